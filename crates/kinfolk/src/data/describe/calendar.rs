//! Days and hours of times, which are seconds since the beginning of 1970, as clocks where the rows come from show them.

const DAY: f64 = 86_400.0;

/// A date with a time of day, in the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Moment {
    pub year: i64,
    /// From 1.
    pub month: u32,
    /// From 1.
    pub day: u32,
    /// Since midnight.
    pub seconds: f64,
}

impl Moment {
    /// The moment as seconds; `None` where the calendar has no such day.
    pub fn time(&self) -> Option<f64> {
        let is_day = (1..=12).contains(&self.month) && (1..=days_of(self.year, self.month)).contains(&self.day);
        (is_day && (0.0..=DAY).contains(&self.seconds))
            .then(|| days_before(self.year, self.month, self.day) as f64 * DAY + self.seconds)
    }

    pub fn of(time: f64) -> Self {
        let days = (time / DAY).floor();
        let (year, month, day) = date_of(days as i64);
        Self { year, month, day, seconds: time - days * DAY }
    }

    pub fn hour(&self) -> u32 {
        ((self.seconds / 3600.0) as u32).min(23)
    }

    /// As ISO 8601 writes it, without a time at midnight.
    pub fn text(&self) -> String {
        let date = format!("{:04}-{:02}-{:02}", self.year, self.month, self.day);
        let seconds = self.seconds as u64;
        match self.seconds == 0.0 {
            true => date,
            false => format!("{date}T{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
        }
    }
}

/// The day of the week, Monday being 1.
pub(crate) fn weekday(time: f64) -> u32 {
    // The first day of 1970 was a Thursday.
    ((time / DAY).floor() as i64 + 3).rem_euclid(7) as u32 + 1
}

/// The year with the part of it that has passed.
pub(crate) fn decimal_year(time: f64) -> f64 {
    let moment = Moment::of(time);
    let begin = days_before(moment.year, 1, 1);
    let length = days_before(moment.year + 1, 1, 1) - begin;
    moment.year as f64 + (time / DAY - begin as f64) / length as f64
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the first of 1970 to a date. Years begin in March here, so that leap days come last.
fn days_before(year: i64, month: u32, day: u32) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let month = i64::from((month + 9) % 12);
    let since_march = (153 * month + 2) / 5 + i64::from(day) - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + since_march - 719_468
}

fn date_of(days: i64) -> (i64, u32, u32) {
    let since = days + 719_468;
    let (cycle, within) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year = (within - within / 1_460 + within / 36_524 - within / 146_096) / 365;
    let since_march = within - (365 * year + year / 4 - year / 100);
    let month = (5 * since_march + 2) / 153;
    let day = since_march - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + 400 * cycle + i64::from(month <= 2), month as u32, day as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_and_found_again() {
        let day = |year, month, day| Moment { year, month, day, seconds: 0.0 };
        assert_eq!(day(1970, 1, 1).time(), Some(0.0));
        assert_eq!(day(2000, 3, 1).time(), Some(951_868_800.0));
        assert_eq!(day(2023, 2, 29).time(), None);
        assert_eq!(day(2020, 13, 1).time(), None);
        for days in (-800_000..800_000).step_by(97) {
            let moment = Moment::of(f64::from(days) * DAY);
            assert_eq!(moment.time(), Some(f64::from(days) * DAY), "{moment:?}");
        }
        // 16 November 2026 was a Monday.
        let time = Moment { year: 2026, month: 11, day: 16, seconds: 15.5 * 3600.0 }.time().unwrap();
        assert_eq!(
            (weekday(time), Moment::of(time).hour(), Moment::of(time).text()),
            (1, 15, "2026-11-16T15:30:00".into())
        );
        assert_eq!(decimal_year(day(2021, 1, 1).time().unwrap()), 2021.0);
        assert!((decimal_year(day(2020, 7, 2).time().unwrap()) - 2020.5).abs() < 1e-12);
    }
}
