//! Numbers as people write them: with a decimal point or comma, separated thousands, a sign of percent or currency.

use serde::{Deserialize, Serialize};

/// The decimal mark of a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    #[default]
    Point,
    Comma,
}

/// What a cell is as a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Reading {
    /// The same whatever the decimal mark is.
    Sure(f64),
    /// A number only if the decimal mark is this.
    With(Mark, f64),
    /// A number of thousands with one mark, a fraction with the other.
    Either { point: f64, comma: f64 },
}

impl Reading {
    pub fn of(cell: &str) -> Option<Self> {
        if let Ok(value) = cell.parse::<f64>() {
            return Some(match is_one_thousand(cell, b'.') {
                true => Self::Either { point: value, comma: value * 1000.0 },
                // Whoever writes 1.5 has a decimal point; 5e3 and 12 say nothing.
                false if cell.contains('.') => Self::With(Mark::Point, value),
                false => Self::Sure(value),
            });
        }
        let bare = without_unit(cell);
        if bare.len() < cell.len() && !bare.is_empty() {
            return Self::of(bare).filter(|_| !bare.contains(['e', 'E', 'n', 'N']));
        }
        let (sign, body) = match cell.as_bytes().first()? {
            b'-' => (-1.0, &cell[1..]),
            b'+' => (1.0, &cell[1..]),
            _ => (1.0, cell),
        };
        Self::of_groups(body).map(|reading| reading.times(sign))
    }

    /// A number without a sign, with commas, or thousands set apart.
    fn of_groups(body: &str) -> Option<Self> {
        let is_gap = |letter: char| matches!(letter, ' ' | '\u{a0}' | '\u{202f}' | '\'' | '’');
        if body.contains(is_gap) {
            let (whole, fraction) = body.split_once(['.', ',']).unwrap_or((body, ""));
            let value = number(&grouped(whole, is_gap)?, fraction)?;
            let mark = body[whole.len()..].chars().next();
            return Some(match mark {
                Some('.') => Self::With(Mark::Point, value),
                Some(_) => Self::With(Mark::Comma, value),
                None => Self::Sure(value),
            });
        }
        let (points, commas) = (body.matches('.').count(), body.matches(',').count());
        let thousands =
            |separator: char| grouped(body, |letter| letter == separator).and_then(|whole| number(&whole, ""));
        match (points, commas) {
            (0, 1) => {
                let (whole, fraction) = body.split_once(',')?;
                let comma = number(whole, fraction)?;
                Some(match is_one_thousand(body, b',') {
                    true => Self::Either { point: comma * 1000.0, comma },
                    false => Self::With(Mark::Comma, comma),
                })
            }
            (0, 2..) => thousands(',').map(|value| Self::With(Mark::Point, value)),
            (2.., 0) => thousands('.').map(|value| Self::With(Mark::Comma, value)),
            (1, 1..) | (1.., 1) => {
                let last = body.rfind(['.', ','])?;
                let (whole, fraction) = (&body[..last], &body[last + 1..]);
                let (mark, separator) = match body.as_bytes()[last] {
                    b'.' => (Mark::Point, ','),
                    _ => (Mark::Comma, '.'),
                };
                let value = number(&grouped(whole, |letter| letter == separator)?, fraction)?;
                Some(Self::With(mark, value))
            }
            _ => None,
        }
    }

    fn times(self, sign: f64) -> Self {
        match self {
            Self::Sure(value) => Self::Sure(sign * value),
            Self::With(mark, value) => Self::With(mark, sign * value),
            Self::Either { point, comma } => Self::Either { point: sign * point, comma: sign * comma },
        }
    }

    fn value(self, mark: Mark) -> Option<f64> {
        match self {
            Self::Sure(value) => Some(value),
            Self::With(wanted, value) => (wanted == mark).then_some(value),
            Self::Either { point, comma } => Some(if mark == Mark::Point { point } else { comma }),
        }
    }
}

/// The number in a cell of a column with this decimal mark.
pub(super) fn parse(cell: &str, mark: Mark) -> Option<f64> {
    match mark {
        // By far the most cells.
        Mark::Point => cell.parse().ok().or_else(|| Reading::of(cell)?.value(mark)),
        Mark::Comma => Reading::of(cell)?.value(mark),
    }
}

fn without_unit(cell: &str) -> &str {
    let is_unit = |letter: char| matches!(letter, '%' | '€' | '$' | '£' | '¥');
    cell.strip_suffix(is_unit).or_else(|| cell.strip_prefix(is_unit)).unwrap_or(cell).trim()
}

/// Whether digits look like one group of thousands, as in 1.234, whatever the sign.
fn is_one_thousand(cell: &str, separator: u8) -> bool {
    let digits = cell.trim_start_matches(['-', '+']).as_bytes();
    let Some(place) = digits.len().checked_sub(4) else { return false };
    (1..=3).contains(&place)
        && digits[place] == separator
        && digits[0] != b'0'
        && digits.iter().enumerate().all(|(at, digit)| at == place || digit.is_ascii_digit())
}

/// The digits of groups of three, the first of which may be shorter.
fn grouped(whole: &str, is_separator: impl Fn(char) -> bool) -> Option<String> {
    let mut groups = whole.split(is_separator);
    let first = groups.next()?;
    let is_digits = |group: &str| group.bytes().all(|digit| digit.is_ascii_digit());
    let mut digits = first.to_string();
    if !(1..=3).contains(&first.len()) || !is_digits(first) {
        return None;
    }
    for group in groups {
        if group.len() != 3 || !is_digits(group) {
            return None;
        }
        digits += group;
    }
    Some(digits)
}

fn number(whole: &str, fraction: &str) -> Option<f64> {
    let is_digits = |part: &str| part.bytes().all(|digit| digit.is_ascii_digit());
    (is_digits(whole) && is_digits(fraction) && whole.len() + fraction.len() > 0)
        .then(|| format!("{whole}.{fraction}0").parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_thousands() {
        let (point, comma) =
            (|value| Some(Reading::With(Mark::Point, value)), |value| Some(Reading::With(Mark::Comma, value)));
        let sure = |value| Some(Reading::Sure(value));
        let either = |point, comma| Some(Reading::Either { point, comma });
        for (cell, wanted) in [
            ("12", sure(12.0)),
            ("5e3", sure(5000.0)),
            ("-1.5", point(-1.5)),
            ("1,5", comma(1.5)),
            ("-0,123", comma(-0.123)),
            (",5", comma(0.5)),
            ("1.234", either(1.234, 1234.0)),
            ("-1,234", either(-1234.0, -1.234)),
            ("1234,567", comma(1234.567)),
            ("1.234.567", comma(1_234_567.0)),
            ("1,234,567", point(1_234_567.0)),
            ("1.234,56", comma(1234.56)),
            ("1,234.56", point(1234.56)),
            ("1 234,5", comma(1234.5)),
            ("1\u{a0}234", sure(1234.0)),
            ("12'345.5", point(12345.5)),
            ("12 %", sure(12.0)),
            ("€ 1.234,50", comma(1234.5)),
            ("$5", sure(5.0)),
            ("1,23,4", None),
            ("1.2.3", None),
            ("12 34", None),
            ("2020-01-05", None),
            ("1;2", None),
            ("n/k", None),
            ("-", None),
            (",", None),
            ("%", None),
            ("", None),
        ] {
            assert_eq!(Reading::of(cell), wanted, "{cell}");
        }
        assert_eq!((parse("1.234", Mark::Comma), parse("1.234", Mark::Point)), (Some(1234.0), Some(1.234)));
        assert_eq!((parse("1,5", Mark::Point), parse("1.5", Mark::Comma)), (None, None));
    }
}
