//! Dates as people write them: the ISO way, the day or the month first, or with the month's English name. A time of day may
//! follow. Its time zone is ignored: what counts is the hour that the clock showed.

use crate::data::describe::calendar::Moment;
use serde::{Deserialize, Serialize};

/// What comes first where a date begins with two numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum First {
    #[default]
    Day,
    Month,
}

/// The time of a cell, in seconds since 1970.
pub(super) fn parse(cell: &str, first: First) -> Option<f64> {
    // Anything else is refused at its first letters.
    if !(6..=40).contains(&cell.len()) || !cell.is_ascii() {
        return None;
    }
    let (date, clock) = split(cell);
    let (year, month, day) = parse_date(date, first)?;
    Moment { year, month, day, seconds: parse_clock(clock)? }.time()
}

/// The date and the time of day, which begins with the first colon's hour.
fn split(cell: &str) -> (&str, &str) {
    let Some(colon) = cell.find(':') else { return (cell, "") };
    match cell[..colon].rfind([' ', 'T', 't']) {
        Some(gap) => (cell[..gap].trim_end_matches([' ', ',']), &cell[gap + 1..]),
        None => (cell, ""),
    }
}

fn parse_date(date: &str, first: First) -> Option<(i64, u32, u32)> {
    let separator = date.chars().find(|letter| matches!(letter, '-' | '/' | '.' | ' '))?;
    let mut parts = match separator {
        ' ' => date.splitn(3, ' '),
        other => date.splitn(3, other),
    };
    let parts = [parts.next()?, parts.next()?, parts.next()?];
    let number = |part: &str| (part.len() <= 2).then(|| digits(part))?;
    let year = |part: &str| (part.len() == 4).then(|| digits(part)).flatten().map(i64::from);
    let comma = parts[1].trim_end_matches(',');
    match parts {
        [first, ..] if first.len() == 4 && separator != ' ' => {
            Some((year(first)?, number(parts[1])?, number(parts[2])?))
        }
        [day, name, last] if month(name).is_some() => {
            Some((year(last)?, month(name)?, number(day.trim_end_matches('.'))?))
        }
        [name, _, last] if month(name).is_some() => Some((year(last)?, month(name)?, number(comma)?)),
        [one, other, last] if separator != ' ' => {
            let (one, other) = (number(one)?, number(other)?);
            // With dots the day is first everywhere.
            let day_first = separator == '.' || first == First::Day;
            let (day, month) = if day_first { (one, other) } else { (other, one) };
            Some((year(last)?, month, day))
        }
        _ => None,
    }
}

/// Seconds since midnight; 0 without a time.
fn parse_clock(clock: &str) -> Option<f64> {
    if clock.is_empty() {
        return Some(0.0);
    }
    let upper = clock.to_ascii_uppercase();
    let (clock, half) = match upper
        .strip_suffix("AM")
        .map(|rest| (rest, 0))
        .or_else(|| upper.strip_suffix("PM").map(|rest| (rest, 12)))
    {
        Some((rest, hours)) => (rest.trim_end(), Some(hours)),
        None => (upper.as_str(), None),
    };
    let clock = clock.strip_suffix('Z').or_else(|| clock.strip_suffix(" UTC")).unwrap_or(clock);
    let clock = clock.rfind(['+', '-']).map_or(clock, |zone| clock[..zone].trim_end());
    let mut parts = clock.split(':');
    let (hour, minute) = (digits(parts.next()?)?, digits(parts.next()?)?);
    let second = match parts.next() {
        Some(second) if second.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') => {
            second.parse::<f64>().ok()?
        }
        Some(_) => return None,
        None => 0.0,
    };
    let hour = match half {
        Some(half) if (1..=12).contains(&hour) => hour % 12 + half,
        Some(_) => return None,
        None => hour,
    };
    let possible = hour <= 24 && minute < 60 && second < 61.0 && parts.next().is_none();
    possible.then(|| f64::from(hour * 3600 + minute * 60) + second)
}

fn digits(part: &str) -> Option<u32> {
    let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| part.parse().ok()).flatten()
}

fn month(name: &str) -> Option<u32> {
    const NAMES: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_it = |full: &&str| name.len() >= 3 && full.starts_with(&name) || *full == "september" && name == "sept";
    NAMES.iter().position(is_it).map(|place| place as u32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_in_many_forms() {
        let text = |cell: &str, first| parse(cell, first).map(|time| Moment::of(time).text());
        for (cell, day_first, month_first) in [
            ("2021-03-04", "2021-03-04", "2021-03-04"),
            ("2021/3/4", "2021-03-04", "2021-03-04"),
            ("04.03.2021", "2021-03-04", "2021-03-04"),
            ("04/03/2021", "2021-03-04", "2021-04-03"),
            ("4-3-2021", "2021-03-04", "2021-04-03"),
            ("25/12/2021", "2021-12-25", ""),
            ("12/25/2021", "", "2021-12-25"),
            ("4 Mar 2021", "2021-03-04", "2021-03-04"),
            ("04-Mar-2021", "2021-03-04", "2021-03-04"),
            ("March 4, 2021", "2021-03-04", "2021-03-04"),
            ("2021-03-04 15:06", "2021-03-04T15:06:00", "2021-03-04T15:06:00"),
            ("2021-03-04T15:06:07.5Z", "2021-03-04T15:06:07", "2021-03-04T15:06:07"),
            ("2021-03-04T15:06:07+02:00", "2021-03-04T15:06:07", "2021-03-04T15:06:07"),
            ("4/3/2021 3:06 PM", "2021-03-04T15:06:00", "2021-04-03T15:06:00"),
            ("4/3/2021 12:00:00 AM", "2021-03-04", "2021-04-03"),
            ("2021-02-30", "", ""),
            ("2021-03", "", ""),
            ("20210304", "", ""),
            ("12:30", "", ""),
            ("1.234.567", "", ""),
            ("Mayor 4, 2021", "", ""),
            ("2021-03-04T25:00", "", ""),
            ("a/b/2021", "", ""),
        ] {
            let wanted = |text: &str| (!text.is_empty()).then(|| text.to_string());
            assert_eq!(text(cell, First::Day), wanted(day_first), "{cell}");
            assert_eq!(text(cell, First::Month), wanted(month_first), "{cell}");
        }
    }
}
