//! What a client reveals about its data: sums, words and what occurs, but no rows.

use super::calendar::{Moment, decimal_year, weekday};
use crate::data::{Cells, Client, Column, Features, Shard, Targets};
use crate::num::Moments;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

/// What one client reveals about its data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Its training rows.
    pub rows: usize,
    /// The group it is known to belong to.
    pub group: Option<String>,
    /// Its features.
    pub features: FeaturesDescription,
    /// Its target.
    pub target: TargetDescription,
}

impl Description {
    /// The same with bounds in place of the smallest and the largest number of every column, which are cells, and with
    /// powers of two for the numbers of rows that have a word.
    pub(crate) fn coarse(mut self) -> Self {
        match &mut self.features {
            FeaturesDescription::Matrix { moments, .. } => moments.iter_mut().for_each(|own| *own = own.coarse()),
            FeaturesDescription::Named(columns) => {
                for column in columns {
                    match &mut column.summary {
                        Summary::Numbers { moments, .. } | Summary::Dates { moments, .. } => {
                            *moments = moments.coarse()
                        }
                        Summary::Words { counts, .. } => {
                            counts.values_mut().for_each(|count| *count = 1 << count.checked_ilog2().unwrap_or(0));
                        }
                    }
                }
            }
        }
        if let TargetDescription::Values(own) = &mut self.target {
            *own = own.coarse();
        }
        self
    }

    /// The squared length of a row, on average; 0 where moments were not asked for.
    pub(crate) fn mean_square(&self) -> f64 {
        match &self.features {
            FeaturesDescription::Matrix { moments, .. } => {
                moments.iter().map(|moments| moments.distance_from(0.0).powi(2)).sum()
            }
            FeaturesDescription::Named(_) => 0.0,
        }
    }

    /// What cannot be true of it: moments or words of more values than there are rows, or that are not finite.
    pub(crate) fn fault(&self) -> Option<String> {
        if let FeaturesDescription::Named(columns) = &self.features {
            let of = |column: &ColumnDescription| {
                Some(format!("{} for column {:?}", column.summary.fault(self.rows)?, column.name))
            };
            if let Some(fault) = columns.iter().find_map(of) {
                return Some(fault);
            }
        }
        if let FeaturesDescription::Matrix { columns, moments } = &self.features
            && !moments.is_empty()
            && moments.len() != *columns
        {
            return Some(format!("moments of {} columns, want {columns}", moments.len()));
        }
        self.moments().into_iter().find_map(|(column, moments)| {
            let fault = moments.fault(self.rows)?;
            Some(match column {
                TARGET => format!("{fault} for its target"),
                (place, None) => format!("{fault} for column {place}"),
                (_, Some(name)) => format!("{fault} for column {name:?}"),
            })
        })
    }

    pub(super) fn moments(&self) -> Vec<(ColumnKey<'_>, &Moments)> {
        let target = match &self.target {
            TargetDescription::Values(moments) => Some((TARGET, moments)),
            _ => None,
        };
        match &self.features {
            FeaturesDescription::Matrix { moments, .. } => {
                target.into_iter().chain((0..).map(|place| (place, None)).zip(moments)).collect()
            }
            FeaturesDescription::Named(columns) => {
                let named = columns.iter().enumerate().filter_map(|(place, column)| match &column.summary {
                    Summary::Numbers { moments, .. } | Summary::Dates { moments, .. } => {
                        Some(((place, Some(column.name.as_str())), moments))
                    }
                    Summary::Words { .. } => None,
                });
                target.into_iter().chain(named).collect()
            }
        }
    }
}

/// A column: its place, and its name where it has one.
pub(super) type ColumnKey<'a> = (usize, Option<&'a str>);
/// Stands for the target.
pub(super) const TARGET: ColumnKey = (usize::MAX, None);

/// What one client reveals about its features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FeaturesDescription {
    /// Numbers without names.
    Matrix {
        /// Values in a row.
        columns: usize,
        /// The moments of each column; empty unless asked for.
        moments: Vec<Moments>,
    },
    /// The columns of a table.
    Named(Vec<ColumnDescription>),
}

/// What one client reveals about a column of its table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnDescription {
    /// The header.
    pub name: String,
    /// Summary of its cells.
    pub summary: Summary,
}

/// The content of a column, summarised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Summary {
    /// Numbers.
    Numbers {
        /// Those of the training rows that have one.
        moments: Moments,
        /// Whether they are whole, and different in every row.
        different: bool,
    },
    /// Words.
    Words {
        /// In how many training rows each is; the most frequent where there are very many.
        counts: BTreeMap<String, u64>,
        /// Rows with a word that is not among them.
        others: u64,
        /// The number of different words.
        kinds: u64,
    },
    /// Dates.
    Dates {
        /// Years with the part that has passed, of the training rows that have a date.
        moments: Moments,
        /// Which months, weekdays, hours and days of the month occur: one bit each.
        occurring: [u32; 4],
    },
}

impl Summary {
    /// What cannot be true of so many rows, moments aside.
    fn fault(&self, rows: usize) -> Option<String> {
        match self {
            Summary::Numbers { .. } => None,
            Summary::Words { counts, others, kinds } => {
                let words = counts.values().fold(*others, |all, count| all.saturating_add(*count));
                let most = words.max(*kinds).max(counts.len() as u64);
                (most > rows as u64).then(|| format!("{most} words in {rows} rows"))
            }
            Summary::Dates { occurring, .. } => {
                let possible = [0x1ffe, 0xfe, 0xff_ffff, 0xffff_fffe];
                let is_possible = occurring.iter().zip(possible).all(|(bits, possible)| bits & !possible == 0);
                (!is_possible).then(|| "days that no calendar has".into())
            }
        }
    }
}

/// What one client reveals about its target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TargetDescription {
    /// There is none.
    None,
    /// Numbered classes: one more than the largest number.
    Classes(usize),
    /// Numbers.
    Values(Moments),
    /// Classes by name.
    Words {
        /// Classes of the training rows.
        train: BTreeSet<String>,
        /// Classes of the test rows alone.
        test: BTreeSet<String>,
    },
}

/// Describes a client, with the `moments` of a matrix's columns only when asked.
pub fn describe(client: &Client, moments: bool) -> Description {
    let rows = client.train.rows();
    let train = &client.train;
    let features = match &**train.features() {
        Features::Columns(columns) => {
            FeaturesDescription::Named(columns.iter().map(|column| describe_column(column, train.rows())).collect())
        }
        features => {
            let columns = features.columns();
            FeaturesDescription::Matrix { columns, moments: if moments { matrix_moments(train) } else { Vec::new() } }
        }
    };
    let target = match &**train.targets() {
        Targets::None => TargetDescription::None,
        Targets::Classes(_) => {
            let classes = [train, &client.test].into_iter().filter_map(Shard::classes).flatten();
            TargetDescription::Classes(classes.max().map_or(0, |class| *class as usize + 1))
        }
        Targets::Values(values) => TargetDescription::Values(Moments::of(values[rows].iter().copied())),
        Targets::Words(words) => {
            let train: BTreeSet<String> = words[rows].iter().cloned().collect();
            let test = match &**client.test.targets() {
                Targets::Words(words) => &words[client.test.rows()],
                _ => &[],
            };
            let test = test.iter().filter(|word| !train.contains(*word)).cloned().collect();
            TargetDescription::Words { train, test }
        }
    };
    Description { rows: client.train.len(), group: client.group.clone(), features, target }
}

fn describe_column(column: &Column, rows: Range<usize>) -> ColumnDescription {
    let present = |values: &[f64]| values.iter().copied().filter(|value| !value.is_nan()).collect::<Vec<f64>>();
    let summary = match &column.values {
        Cells::Numbers(numbers) => {
            let numbers = present(&numbers[rows]);
            let mut seen = HashSet::new();
            let different = numbers.iter().all(|value| value.fract() == 0.0 && seen.insert(value.to_bits()));
            Summary::Numbers { moments: Moments::of(numbers.iter().copied()), different }
        }
        Cells::Words(words) => describe_words(&words[rows]),
        Cells::Dates(times) => {
            let times = present(&times[rows]);
            let mut occurring = [0; 4];
            for &time in &times {
                let moment = Moment::of(time);
                let parts = [moment.month, weekday(time), moment.hour(), moment.day];
                occurring.iter_mut().zip(parts).for_each(|(bits, part)| *bits |= 1 << part.min(31));
            }
            let years: Vec<f64> = times.into_iter().map(decimal_year).collect();
            Summary::Dates { moments: Moments::of(years.iter().copied()), occurring }
        }
    };
    ColumnDescription { name: column.name.clone(), summary }
}

fn describe_words(words: &[String]) -> Summary {
    /// Names of rows need not be sent to find that they are names.
    const MOST_SENT: usize = 1000;
    let mut counts: HashMap<&str, u64> = HashMap::new();
    words.iter().for_each(|word| *counts.entry(word).or_default() += 1);
    let kinds = counts.len() as u64;
    let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
    if counts.len() > MOST_SENT {
        counts.sort_unstable_by_key(|(word, count)| (Reverse(*count), *word));
        counts.truncate(MOST_SENT);
    }
    let others = words.len() as u64 - counts.iter().map(|(_, count)| count).sum::<u64>();
    Summary::Words {
        counts: counts.into_iter().map(|(word, count)| (word.to_string(), count)).collect(),
        others,
        kinds,
    }
}

fn matrix_moments(shard: &Shard) -> Vec<Moments> {
    /// Rows transposed at a time.
    const BLOCK: usize = 256;
    let mut moments = vec![Moments::NONE; shard.columns()];
    let mut transposed = Vec::new();
    for begin in shard.rows().step_by(BLOCK) {
        let rows = begin..shard.rows().end.min(begin + BLOCK);
        transposed.resize(rows.len() * shard.columns(), 0.0);
        for (place, row) in rows.clone().enumerate() {
            let values = row_values(shard.features(), row);
            transposed.iter_mut().skip(place).step_by(rows.len()).zip(values).for_each(|(cell, value)| *cell = value);
        }
        let columns = transposed.chunks_exact(rows.len());
        moments
            .iter_mut()
            .zip(columns)
            .for_each(|(moments, column)| moments.merge(&Moments::of(column.iter().copied())));
    }
    moments
}

/// The numbers of one row of a matrix; none for a table.
pub(super) fn row_values(features: &Features, row: usize) -> Box<dyn Iterator<Item = f64> + '_> {
    fn slice<T>(values: &[T], row: usize, columns: usize) -> std::slice::Iter<'_, T> {
        values[row * columns..][..columns].iter()
    }
    match features {
        Features::Bytes { columns, values } => {
            Box::new(slice(values, row, *columns).map(|value| f64::from(*value) / 255.0))
        }
        Features::Symbols { columns, values } => Box::new(slice(values, row, *columns).map(|value| f64::from(*value))),
        Features::F32 { columns, values } => Box::new(slice(values, row, *columns).map(|value| f64::from(*value))),
        Features::F64 { columns, values } => Box::new(slice(values, row, *columns).copied()),
        Features::Columns(_) | Features::Own(_) => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_words_than_rows_and_unknown_months_are_impossible() {
        let words = |rows: u64, others: u64, kinds: u64| {
            Summary::Words { counts: BTreeMap::from([("red".to_string(), rows)]), others, kinds }.fault(5)
        };
        assert_eq!([words(3, 2, 2), words(2, 0, 1)], [None, None]);
        assert_eq!(words(4, 2, 2), Some("6 words in 5 rows".into()));
        assert_eq!(words(1, u64::MAX, 2), Some(format!("{} words in 5 rows", u64::MAX)));
        assert_eq!(words(1, 1, 9), Some("9 words in 5 rows".into()));
        let dates = |occurring: [u32; 4]| Summary::Dates { moments: Moments::NONE, occurring }.fault(5);
        assert_eq!(dates([1 << 12, 1 << 7, 1, 1 << 31]), None);
        for (place, bit) in [(0, 13), (1, 8), (2, 24), (3, 0)] {
            let mut occurring = [0; 4];
            occurring[place] = 1 << bit;
            assert!(dates(occurring).is_some(), "{place}");
        }
    }

    #[test]
    fn many_words_are_sent_in_part() {
        let words: Vec<String> =
            (0..1500).map(|row| if row < 10 { "often".into() } else { format!("w{row}") }).collect();
        let Summary::Words { counts, others, kinds } = describe_words(&words) else { panic!() };
        assert_eq!((counts.len(), counts["often"], others, kinds), (1000, 10, 491, 1491));
    }
}
