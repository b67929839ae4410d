//! How one schema follows from the descriptions of all clients.

use super::bends::Bends;
use super::description::{ColumnKey, Description, FeaturesDescription, Summary, TARGET, TargetDescription};
use super::scaling::{Extreme, Pooled, Scale};
use super::schema::{ColumnSchema, Encoding, FeaturesSchema, LeftOut, Schema, TargetSchema, WhyLeftOut, find_named};
use super::understood::ColumnKind;
use super::yes_no::YesNo;
use crate::error::{Error, ErrorKind, Result};
use crate::num::Moments;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How an experiment codes its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coding {
    /// Standardise every column of numbers.
    pub standardise: bool,
    /// Whether the model has an intercept.
    pub constant: bool,
    /// Most kinds of words in a column; rarer ones are one kind together.
    pub kinds: usize,
    /// Whether numbers may bend.
    pub curves: bool,
    /// Whether columns of words and dates are left out, and missing numbers filled in without a column that says where.
    pub numbers_only: bool,
    /// Whether no column need vary.
    pub means_alone: bool,
}

impl Coding {
    /// Kinds of words that are told apart unless somebody says otherwise.
    pub const KINDS: usize = 50;
}

/// A number that is far from those of all other clients.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExtremeCell {
    /// Index of its description.
    pub client: usize,
    /// Its column; `None` for the target.
    pub column: Option<String>,
    pub value: f64,
    /// Distance from the mean of the others, in their deviations.
    pub ratio: f64,
}

impl Schema {
    /// The schema for all clients that sent a description.
    pub fn fix(descriptions: &[Description], coding: Coding) -> Result<Self> {
        let Some(first) = descriptions.first() else {
            return Err(Error::data("no schema without a description"));
        };
        let features = match &first.features {
            FeaturesDescription::Matrix { columns, .. } => fix_matrix(descriptions, *columns, coding.standardise)?,
            FeaturesDescription::Named(columns) => {
                let mut constant = coding.constant;
                let mut agreed = Vec::with_capacity(columns.len());
                for (place, column) in columns.iter().enumerate() {
                    let gathered = Gathered::of(descriptions, place, &column.name)?;
                    let column = gathered.fix(&column.name, Coding { constant, ..coding });
                    constant |= matches!(column.encoding, Encoding::OneHot { .. });
                    agreed.push(column);
                }
                let varies = agreed.iter().any(|column| column.width() > 0);
                if !varies && coding.means_alone {
                    agreed.push(ColumnSchema::none());
                } else if !varies {
                    let of = if coding.numbers_only { " of numbers" } else { "" };
                    let message = format!("no column{of} varies over the training rows, want one that does");
                    return Err(Error::data(message));
                }
                FeaturesSchema::Named(agreed)
            }
        };
        Ok(Self { features, target: fix_target(descriptions)?, interactions: Vec::new() })
    }

    /// Classes that some of these clients have in their test rows, and no client had in training.
    pub(crate) fn unknown_classes(&self, descriptions: &[Description]) -> Vec<String> {
        let TargetSchema::Names(names) = &self.target else { return Vec::new() };
        let of = |description: &Description| match &description.target {
            TargetDescription::Words { train, test } => train.union(test).cloned().collect(),
            _ => Vec::new(),
        };
        let spellings = YesNo::of(names.iter().map(String::as_str)).filter(|_| names.len() == 2);
        let is_known = |name: &String| {
            names.contains(name) || spellings.as_ref().is_some_and(|found| found.is_yes(name).is_some())
        };
        let met: BTreeSet<String> = descriptions.iter().flat_map(of).filter(|name| !is_known(name)).collect();
        sorted(met)
    }
}

/// Nothing of what is not a number.
fn without_words(encoding: Encoding) -> Encoding {
    let why = WhyLeftOut::NoNumber;
    match encoding {
        Encoding::OneHot { .. } => Encoding::LeftOut(LeftOut { kind: ColumnKind::Words, why }),
        Encoding::Date { .. } => Encoding::LeftOut(LeftOut { kind: ColumnKind::Date, why }),
        other => other,
    }
}

fn fix_matrix(descriptions: &[Description], columns: usize, scale: bool) -> Result<FeaturesSchema> {
    for description in descriptions {
        let FeaturesDescription::Matrix { columns: found, moments } = &description.features else {
            return Err(Error::data("some clients have tables and others rows without column names"));
        };
        if *found != columns {
            let message = format!("rows of {found} columns at one client, of {columns} at another");
            return Err(Error::new(ErrorKind::Shape, message));
        }
        if scale && moments.len() != columns {
            return Err(Error::data("no scaling without moments of the columns: describe with them"));
        }
    }
    let of = |description: &Description, column: usize| match &description.features {
        FeaturesDescription::Matrix { moments, .. } => moments[column],
        FeaturesDescription::Named(_) => Moments::NONE,
    };
    let pooled = |column: usize| {
        Pooled::of(&descriptions.iter().map(|description| of(description, column)).collect::<Vec<_>>()).moments
    };
    let scales = (0..if scale { columns } else { 0 }).map(|column| Scale::of(&pooled(column))).collect();
    Ok(FeaturesSchema::Matrix { columns, scales })
}

/// What all clients say about a column.
#[derive(Default)]
struct Gathered<'a> {
    rows: u64,
    clients: usize,
    /// Training rows with a value, and clients with rows that have none.
    present: u64,
    lacking: usize,
    numbers: Vec<Moments>,
    dates: Vec<Moments>,
    occurring: [u32; 4],
    /// Clients and rows with each word.
    words: BTreeMap<&'a str, (usize, u64)>,
    word_clients: usize,
    /// Words that clients have not sent.
    unsent: u64,
    /// Whether no client has a whole number or a word twice.
    different: bool,
}

impl<'a> Gathered<'a> {
    fn of(descriptions: &'a [Description], place: usize, name: &str) -> Result<Self> {
        let width = |description: &Description| match &description.features {
            FeaturesDescription::Named(columns) => columns.len(),
            FeaturesDescription::Matrix { .. } => 0,
        };
        let mut all = Self { clients: descriptions.len(), different: true, ..Self::default() };
        for description in descriptions {
            let FeaturesDescription::Named(columns) = &description.features else {
                return Err(Error::data("some clients have tables and others rows without column names"));
            };
            if columns.len() != width(&descriptions[0]) {
                let message =
                    format!("{} columns at one client, {} at another", columns.len(), width(&descriptions[0]));
                return Err(Error::new(ErrorKind::Shape, message));
            }
            let rows = description.rows as u64;
            all.rows = all.rows.saturating_add(rows);
            let present = all.present;
            match find_named(columns, place, name, |column| &column.name).map(|column| &column.summary) {
                // Cells that are all missing have no kind.
                Some(Summary::Numbers { moments, .. } | Summary::Dates { moments, .. }) if moments.count == 0 => {}
                Some(Summary::Words { counts, kinds: 1, .. }) if counts.contains_key("") => {}
                Some(Summary::Numbers { moments, different }) => {
                    all.present = all.present.saturating_add(moments.count);
                    all.different &= different;
                    all.numbers.push(*moments);
                }
                Some(Summary::Dates { moments, occurring }) => {
                    all.present = all.present.saturating_add(moments.count);
                    all.dates.push(*moments);
                    all.occurring.iter_mut().zip(occurring).for_each(|(all, own)| *all |= own);
                }
                Some(Summary::Words { counts, kinds, .. }) => {
                    let missing = counts.get("").copied().unwrap_or(0);
                    all.present = all.present.saturating_add(rows.saturating_sub(missing));
                    all.different &= *kinds == rows && missing == 0;
                    all.unsent = all.unsent.saturating_add(kinds.saturating_sub(counts.len() as u64));
                    all.word_clients += 1;
                    for (word, count) in counts.iter().filter(|(word, _)| !word.is_empty()) {
                        let (clients, all) = all.words.entry(word).or_default();
                        *clients += 1;
                        *all = all.saturating_add(*count);
                    }
                }
                None => return Err(Error::data(format!("column `{name}`: some clients do not have it"))),
            }
            all.lacking += usize::from(all.present - present < rows);
        }
        if all.word_clients > 0 && all.lacking > 0 {
            all.words.insert("", (all.lacking, all.rows.saturating_sub(all.present)));
        }
        let found: Vec<&str> =
            [("numbers", all.numbers.len()), ("words", all.word_clients), ("dates", all.dates.len())]
                .into_iter()
                .filter(|(_, clients)| *clients > 0)
                .map(|(kind, _)| kind)
                .collect();
        match found[..] {
            [some, others, ..] => {
                Err(Error::data(format!("column `{name}`: {some} at some clients, {others} at others")))
            }
            _ => Ok(all),
        }
    }

    fn fix(mut self, name: &str, coding: Coding) -> ColumnSchema {
        let spelled_differently = self.merge_spellings();
        let missing = self.rows.saturating_sub(self.present);
        let scale = |moments: &Moments| if coding.standardise { Scale::of(moments) } else { Scale::KEEP };
        let (encoding, fill) = if !self.numbers.is_empty() {
            let pooled = Pooled::of(&self.numbers).moments;
            let encoding = match self.why_left_out(&merged(&self.numbers), missing, coding) {
                Some(why) => Encoding::LeftOut(LeftOut { kind: ColumnKind::Number, why }),
                None => Encoding::Number(scale(&pooled)),
            };
            (encoding, pooled.mean)
        } else if !self.dates.is_empty() {
            let all = merged(&self.dates);
            let encoding = match all.deviation == 0.0 && missing == 0 {
                true => Encoding::LeftOut(LeftOut { kind: ColumnKind::Date, why: WhyLeftOut::Same }),
                false => self.fix_dates(scale(&all)),
            };
            (encoding, all.mean)
        } else if self.present == 0 {
            (Encoding::LeftOut(LeftOut { kind: ColumnKind::Words, why: WhyLeftOut::Empty }), 0.0)
        } else {
            (self.fix_words(coding), 0.0)
        };
        let encoding = if coding.numbers_only { without_words(encoding) } else { encoding };
        let may_bend = coding.curves && matches!(encoding, Encoding::Number(_));
        let bends = may_bend.then(|| Bends::of(&Pooled::of(&self.numbers).moments)).flatten();
        let (name, unmarked) = (name.to_string(), coding.numbers_only);
        ColumnSchema { name, encoding, missing, fill, bends, unmarked, spelled_differently }
    }

    /// Whether numbers are useless. Measurements, too, may differ in all rows; the numbers of rows are whole, and leave
    /// few out. All of that can be told from sums.
    fn why_left_out(&self, all: &Moments, missing: u64, coding: Coding) -> Option<WhyLeftOut> {
        /// Row numbers may have gaps, but not more of them than this.
        const SPARSEST: f64 = 10.0;
        if all.deviation == 0.0 && missing == 0 && (coding.constant || coding.standardise) {
            return Some(WhyLeftOut::Same);
        }
        let (span, count) = (all.max - all.min + 1.0, all.count as f64);
        let are_row_numbers = self.different && (count..=SPARSEST * count).contains(&span);
        (are_row_numbers && missing == 0 && self.has_enough_rows()).then_some(WhyLeftOut::Different)
    }

    /// Whether there are so many rows that what differs in all of them does so by its nature.
    fn has_enough_rows(&self) -> bool {
        const FEWEST: u64 = 50;
        self.rows >= FEWEST && self.rows >= 2 * self.clients as u64
    }

    /// Takes the words of a column in which all are a yes or a no for two, however they are spelled; says whether they were more.
    fn merge_spellings(&mut self) -> bool {
        let words: Vec<&str> = self.words.keys().copied().filter(|word| !word.is_empty()).collect();
        let Some(found) = YesNo::of(words.iter().copied()).filter(|_| words.len() > 2 && self.unsent == 0) else {
            return false;
        };
        let mut merged: BTreeMap<&'a str, (usize, u64)> = BTreeMap::new();
        for (word, (clients, rows)) in std::mem::take(&mut self.words) {
            let name = found.is_yes(word).and_then(|yes| found.name(words.iter().copied(), yes)).unwrap_or(word);
            let (all_clients, all_rows) = merged.entry(name).or_default();
            // A client may spell in several ways.
            *all_clients = (*all_clients).max(clients);
            *all_rows = all_rows.saturating_add(rows);
        }
        self.words = merged;
        true
    }

    fn fix_words(&self, coding: Coding) -> Encoding {
        let left_out = |why| Encoding::LeftOut(LeftOut { kind: ColumnKind::Words, why });
        let kinds = self.words.len() as u64 + self.unsent;
        if kinds == 1 {
            return left_out(WhyLeftOut::Same);
        }
        if self.different && kinds == self.rows && self.has_enough_rows() {
            return left_out(WhyLeftOut::Different);
        }
        let mut kept: Vec<(&str, (usize, u64))> = self.words.iter().map(|(word, counts)| (*word, *counts)).collect();
        let is_missing = self.words.contains_key("");
        if kinds - u64::from(is_missing) > coding.kinds as u64 {
            // Missing words are a kind of their own, however rare, and no matter how many kinds there may be.
            let missing = kept.iter().position(|(word, _)| word.is_empty()).map(|place| kept.remove(place));
            kept.sort_by_key(|(_, (_, rows))| Reverse(*rows));
            kept.truncate(coding.kinds);
            // Nothing can be learned about a word that is in one row.
            kept.retain(|(_, (_, rows))| *rows > 1);
            kept.extend(missing);
        }
        let words = kept.iter().filter(|(word, _)| !word.is_empty());
        let clients_with: HashMap<&str, usize> = words.map(|(word, (clients, _))| (*word, *clients)).collect();
        let mut categories = sorted(kept.iter().map(|(word, _)| word.to_string()).collect());
        let others = kinds - categories.len() as u64;
        let most = clients_with.values().max();
        let is_commonest = |word: &String| most.is_some() && clients_with.get(word.as_str()) == most;
        let commonest = categories.iter().position(is_commonest);
        let base = commonest.filter(|_| coding.constant).map(|place| categories.remove(place));
        Encoding::OneHot { base, categories, others }
    }

    fn fix_dates(&self, year: Scale) -> Encoding {
        /// Days of the month, with which months end: weekdays of monthly dates are an accident.
        const MONTHLY: u32 = 4;
        let [months, weekdays, hours, days] = self.occurring;
        let all_but_first = |bits: u32| (0..32).filter(move |bit| bits >> bit & 1 == 1).skip(1).collect::<Vec<u32>>();
        let weekdays = if days.count_ones() > MONTHLY { all_but_first(weekdays) } else { Vec::new() };
        Encoding::Date { year, months: all_but_first(months), weekdays, hours: all_but_first(hours) }
    }
}

fn merged(moments: &[Moments]) -> Moments {
    let mut all = Moments::NONE;
    moments.iter().for_each(|own| all.merge(own));
    all
}

/// The numbers of these clients that are far from those of all others, as far as they are described.
pub(crate) fn extreme_cells(descriptions: &[Description]) -> Vec<ExtremeCell> {
    let mut columns: BTreeMap<ColumnKey, (Vec<usize>, Vec<Moments>)> = BTreeMap::new();
    for (client, description) in descriptions.iter().enumerate() {
        for (column, own) in description.moments() {
            let (clients, moments) = columns.entry(column).or_default();
            clients.push(client);
            moments.push(*own);
        }
    }
    let of = |((place, name), (clients, moments)): (ColumnKey, (Vec<usize>, Vec<Moments>))| {
        let column = name.map(str::to_string).or_else(|| (place < TARGET.0).then(|| format!("x{place}")));
        let cell = |found: Extreme| ExtremeCell {
            client: clients[found.client],
            column: column.clone(),
            value: found.value,
            ratio: found.ratio,
        };
        Pooled::of(&moments).extremes.into_iter().map(cell).collect::<Vec<_>>()
    };
    columns.into_iter().flat_map(of).collect()
}

fn fix_target(descriptions: &[Description]) -> Result<TargetSchema> {
    let mut agreed: Option<TargetSchema> = None;
    let mut names = BTreeSet::new();
    for description in descriptions {
        let own = match &description.target {
            TargetDescription::None => TargetSchema::None,
            TargetDescription::Values(_) => TargetSchema::Number,
            TargetDescription::Classes(count) => TargetSchema::Classes(*count),
            TargetDescription::Words { train, .. } => {
                names.extend(train.iter().cloned());
                TargetSchema::Names(Vec::new())
            }
        };
        agreed = match (agreed, own) {
            (None, own) => Some(own),
            (Some(TargetSchema::Classes(most)), TargetSchema::Classes(count)) => {
                Some(TargetSchema::Classes(most.max(count)))
            }
            (Some(before), own) if before == own => Some(own),
            _ => return Err(Error::data("the target is of one kind at some clients and of another at others")),
        };
    }
    Ok(match agreed {
        Some(TargetSchema::Names(_)) => TargetSchema::Names(sorted(merged_names(names))),
        Some(agreed) => agreed,
        None => TargetSchema::None,
    })
}

/// Two of names that are all a yes or a no, however they are spelled; else all.
fn merged_names(names: BTreeSet<String>) -> BTreeSet<String> {
    let words = || names.iter().map(String::as_str);
    match YesNo::of(words()).filter(|_| names.len() > 2) {
        Some(found) => {
            [false, true].into_iter().filter_map(|yes| found.name(words(), yes)).map(str::to_string).collect()
        }
        None => names,
    }
}

/// By value where all names are numbers, otherwise by letters.
pub(crate) fn sorted(names: BTreeSet<String>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().collect();
    let value = |name: &String| name.parse::<f64>().ok().filter(|value| value.is_finite());
    if names.iter().all(|name| value(name).is_some()) {
        names.sort_by(|a, b| value(a).partial_cmp(&value(b)).unwrap_or(std::cmp::Ordering::Equal));
    }
    names
}
