//! What was understood of the columns of a table, for people: one line a column.

use super::schema::{ColumnSchema, Encoding, LeftOut, WhyLeftOut};
use super::yes_no::{YesNo, repeats_an_answer};
use serde::{Deserialize, Serialize};

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColumnKind {
    /// Numbers.
    Number,
    /// Words.
    Words,
    /// Dates or times.
    Date,
    /// Words of which one is a yes and the other a no.
    YesNo,
}

impl ColumnKind {
    /// In a word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ColumnKind::Number => "number",
            ColumnKind::Words => "words",
            ColumnKind::Date => "date",
            ColumnKind::YesNo => "yes-no",
        }
    }
}

/// What was understood of one column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Understood {
    /// The header.
    pub column: String,
    /// What its cells are.
    pub kind: ColumnKind,
    /// Training rows without a value.
    pub missing: u64,
    /// The number of different words.
    pub kinds: Option<u64>,
    /// What is done with it.
    pub done: String,
    /// Whether that may surprise: it is left out, or something is put in place of some cells.
    pub is_unusual: bool,
}

impl Understood {
    pub(super) fn of(column: &ColumnSchema) -> Self {
        let (kind, kinds, done, is_unusual) = match &column.encoding {
            Encoding::Number(_) if column.missing > 0 && column.unmarked => {
                (ColumnKind::Number, None, "missing ones are the mean".to_string(), true)
            }
            Encoding::Number(_) if column.missing > 0 => {
                (ColumnKind::Number, None, "missing ones are the mean, and a column says where".to_string(), true)
            }
            Encoding::Number(_) => (ColumnKind::Number, None, "used as it is".to_string(), false),
            Encoding::OneHot { base, categories, others } => {
                let kept = base.iter().chain(categories).map(String::as_str);
                let words: Vec<&str> = kept.filter(|word| !word.is_empty()).collect();
                let kinds = words.len() as u64 + others;
                let (kind, done) = match &words[..] {
                    _ if *others > 0 => {
                        let kept = words.len();
                        (
                            ColumnKind::Words,
                            format!("the {kept} most frequent are told apart, the other {others} are one kind"),
                        )
                    }
                    [_, _] if YesNo::of(words.iter().copied()).is_some() => {
                        let spelled = if column.spelled_differently { ", however yes and no are spelled" } else { "" };
                        (ColumnKind::YesNo, format!("one column{spelled}"))
                    }
                    _ => (ColumnKind::Words, "a column for every kind but one".to_string()),
                };
                let told_apart = kind == ColumnKind::Words && repeats_an_answer(words.iter().copied());
                let done = match told_apart {
                    true => done + "; spellings of yes or no are told apart, as there are other words",
                    false => done,
                };
                let done = if column.missing > 0 { done + "; missing ones are a kind" } else { done };
                let is_unusual = *others > 0 || column.missing > 0 || column.spelled_differently || told_apart;
                (kind, Some(kinds), done, is_unusual)
            }
            Encoding::Date { months, weekdays, hours, .. } => {
                let parts = [("month", months), ("weekday", weekdays), ("hour", hours)];
                let used = parts.iter().filter(|(_, kinds)| !kinds.is_empty()).map(|(name, _)| format!(", {name}"));
                let missing =
                    if column.missing > 0 { "; missing ones are the mean, and a column says where" } else { "" };
                (ColumnKind::Date, None, format!("becomes year{}{missing}", used.collect::<String>()), true)
            }
            Encoding::Nothing => (ColumnKind::Number, None, "always 0".to_string(), false),
            Encoding::LeftOut(LeftOut { kind, why }) => {
                let why = match why {
                    WhyLeftOut::Empty => "no row has a value",
                    WhyLeftOut::Same => "the same in every row",
                    WhyLeftOut::NoNumber => "a mixture is of numbers",
                    WhyLeftOut::Different => "different in every row, like a name or a number of rows",
                };
                (*kind, None, format!("left out: {why}"), true)
            }
        };
        Self { column: column.name.clone(), kind, missing: column.missing, kinds, done, is_unusual }
    }

    /// As a note among others.
    pub fn note(&self) -> String {
        let missing = if self.missing > 0 { format!(", {} missing", self.missing) } else { String::new() };
        let kinds = self.kinds.map_or(String::new(), |kinds| format!(", {kinds} kinds"));
        format!("column `{}` ({}{kinds}{missing}): {}", self.column, self.kind.name(), self.done)
    }
}

/// One line a column.
pub fn lines(columns: &[Understood]) -> Vec<String> {
    let cells = |column: &Understood| {
        let missing = if column.missing > 0 { format!("{} missing", column.missing) } else { String::new() };
        let kinds = column.kinds.map_or(String::new(), |kinds| format!("{kinds} kinds"));
        [column.column.clone(), column.kind.name().to_string(), kinds, missing, column.done.clone()]
    };
    let rows: Vec<[String; 5]> = columns.iter().map(cells).collect();
    let width = |place: usize| rows.iter().map(|row| row[place].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..4).map(width).collect();
    let line = |row: &[String; 5]| {
        let padded = row.iter().zip(&widths).filter(|(_, width)| **width > 0);
        let padded: String = padded.map(|(cell, width)| format!("{cell:width$}  ")).collect();
        format!("{padded}{}", row[4])
    };
    rows.iter().map(line).collect()
}
