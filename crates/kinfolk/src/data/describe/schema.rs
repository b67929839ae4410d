//! How clients agree on columns without revealing rows.
//!
//! Every client sends a [`Description`] of its data: moments, not rows. The server fixes one [`Schema`] from them, and each
//! client encodes its own rows with it. Both are sent over the network, and the schema is saved with the models.
//!
//! Numbers become one feature, scaled by the pooled mean and standard deviation when asked for. Words become one feature
//! per category, in sorted order (by value where all of them are numbers), but for the base, the category that most
//! clients have: with a feature of its own, all of them would add up to the model's constant, and what clients fit could
//! not be compared or averaged. Where the model has no constant, the first column of words keeps its base. Of too many
//! categories the most frequent are kept, and the others share a feature. Dates become the year, with the part of it that
//! has passed, and categories for month, weekday and hour, as far as they vary.
//!
//! A missing number is the mean, and a feature of its own says so where training rows lack some; a missing word is a
//! category. Columns that are the same in every row, or different like the numbers of rows, are left out.
//!
//! Products of features of two columns may stand behind all others (`interactions.rs`).
//!
//! All of it comes from training rows. A category that is in none of them is one of the others, or the base where there
//! are none; a class is `UNKNOWN_CLASS`, which no model predicts.

pub use super::agree::Coding;
pub(crate) use super::agree::{ExtremeCell, extreme_cells, sorted};
pub use super::description::{
    ColumnDescription, Description, FeaturesDescription, Summary, TargetDescription, describe,
};
pub(crate) use super::interactions::Interacting;
pub use super::interactions::Interaction;
pub(crate) use super::pool::pool;

use super::bends::Bends;
use super::calendar::{Moment, decimal_year, weekday};
use super::description::row_values;
use super::scaling::Scale;
use super::understood::{ColumnKind, Understood};
use super::yes_no::YesNo;
use crate::data::{Cells, Column, DataShape, Features, Shard, Targets, UNKNOWN_CLASS};
use crate::error::{Error, ErrorKind, Result};
use crate::families::Role;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The agreed meaning of every feature and of the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    pub(crate) features: FeaturesSchema,
    pub(crate) target: TargetSchema,
    /// Products of two features, behind those of all columns.
    #[serde(default)]
    pub(crate) interactions: Vec<Interaction>,
}

/// The agreed meaning of the features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FeaturesSchema {
    /// Numbers without names.
    Matrix {
        /// Values in a row.
        columns: usize,
        /// The scale of each; empty when they are not scaled.
        scales: Vec<Scale>,
    },
    /// The columns of a table, in the order of the first description.
    Named(Vec<ColumnSchema>),
}

/// The agreed meaning of one column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnSchema {
    pub(crate) name: String,
    pub(crate) encoding: Encoding,
    /// Training rows without a value. Where there are any, a feature of a number or a date says that it is missing.
    pub(crate) missing: u64,
    /// In place of a missing number, or of the year of a missing date.
    pub(crate) fill: f64,
    /// How a number may bend, where that is wanted.
    pub(crate) bends: Option<Bends>,
    /// Whether no feature says that a value is missing.
    #[serde(default)]
    pub(crate) unmarked: bool,
    /// Whether its words are a yes and a no that training rows spell in several ways.
    #[serde(default)]
    pub(crate) spelled_differently: bool,
}

/// How a cell becomes features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Encoding {
    /// A number becomes one feature.
    Number(Scale),
    /// A word becomes a one at its category and zeros at the others.
    OneHot {
        /// The category encoded as zeros.
        base: Option<String>,
        /// The other categories; the empty one is a missing word.
        categories: Vec<String>,
        /// How many rarer words share a feature, as do words that are not known; without any, unknown ones are zeros.
        others: u64,
    },
    /// A date becomes its year, and ones at its month, its weekday and its hour.
    Date {
        /// Of the year with the part of it that has passed.
        year: Scale,
        /// Those with a feature; the first that occurs has none.
        months: Vec<u32>,
        /// The same, from Monday, which is 1.
        weekdays: Vec<u32>,
        /// The same, from 0.
        hours: Vec<u32>,
    },
    /// No feature.
    LeftOut(LeftOut),
    /// A feature that is always 0, where there is no other.
    Nothing,
}

/// A column that bends, at some of its values.
pub(crate) struct BentColumn {
    pub(crate) name: String,
    /// The first of its features.
    pub(crate) begin: usize,
    pub(crate) values: Vec<f64>,
    /// The linear feature and the bends of every value.
    pub(crate) features: Vec<Vec<f64>>,
    /// Those of the column's mean.
    pub(crate) mean: Vec<f64>,
}

/// A column that is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub(crate) kind: ColumnKind,
    pub(crate) why: WhyLeftOut,
}

/// Why a column is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhyLeftOut {
    /// No training row has a value.
    Empty,
    /// All training rows have the same.
    Same,
    /// No two training rows have the same, and they are no measurements: the numbers or names of rows.
    Different,
    /// Its cells are no numbers, and only those are wanted.
    NoNumber,
}

/// The agreed meaning of the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TargetSchema {
    /// There is none.
    None,
    /// A number.
    Number,
    /// Number of unnamed classes.
    Classes(usize),
    /// Names of the classes, in the order of their numbers.
    Names(Vec<String>),
}

impl Schema {
    /// The shape of the encoded rows.
    pub fn shape(&self) -> DataShape {
        let columns = self.width_of_columns() + self.interactions.len();
        let classes = match &self.target {
            TargetSchema::None | TargetSchema::Number => 0,
            TargetSchema::Classes(count) => *count,
            TargetSchema::Names(names) => names.len(),
        };
        DataShape::numbers(columns, classes)
    }

    /// The names of the target's classes; empty where it has none.
    pub(crate) fn class_names(&self) -> Vec<String> {
        match &self.target {
            TargetSchema::None | TargetSchema::Number => Vec::new(),
            TargetSchema::Classes(count) => (0..*count).map(|class| class.to_string()).collect(),
            TargetSchema::Names(names) => names.clone(),
        }
    }

    /// A name for every feature: the header, or `header=category`; `x0` and so on where there are no headers. Products are `one*other`.
    pub(crate) fn feature_names(&self) -> Vec<String> {
        let mut names: Vec<String> = match &self.features {
            FeaturesSchema::Matrix { columns, .. } => (0..*columns).map(|index| format!("x{index}")).collect(),
            FeaturesSchema::Named(columns) => columns.iter().flat_map(ColumnSchema::feature_names).collect(),
        };
        let products = self.factors().into_iter().map(|[first, second]| format!("{}*{}", names[first], names[second]));
        let products: Vec<String> = products.collect();
        names.extend(products);
        names
    }

    /// What became of each column; nothing where columns have no names.
    pub fn understood(&self) -> Vec<Understood> {
        match &self.features {
            FeaturesSchema::Matrix { .. } => Vec::new(),
            FeaturesSchema::Named(columns) => {
                columns.iter().filter(|column| column.name != Column::NONE).map(Understood::of).collect()
            }
        }
    }

    /// What each feature is to a linear model: those that mark missing values have one coefficient for everybody, bends of
    /// a column and products with a column a penalty of their own.
    pub(crate) fn roles(&self) -> Vec<Role> {
        let mut roles: Vec<Role> = match &self.features {
            FeaturesSchema::Matrix { columns, .. } => vec![Role::Linear; *columns],
            FeaturesSchema::Named(columns) => {
                columns.iter().enumerate().flat_map(|(place, column)| column.roles(place)).collect()
            }
        };
        roles.extend(self.interactions.iter().map(|product| Role::Interaction(product.group)));
        roles
    }

    /// Converts the features of one encoded row back to their original units.
    pub(crate) fn decode(&self, row: &mut [f64]) {
        row.iter_mut().zip(self.scales()).for_each(|(value, scale)| *value = scale.undo(*value));
    }

    /// Converts slopes for encoded rows to those for the original rows; returns what is then added to the intercept.
    pub(crate) fn decode_slopes(&self, slopes: &mut [f64]) -> f64 {
        let scales = self.scales();
        let mut gained = self.decode_products(slopes, &scales);
        for (slope, scale) in slopes.iter_mut().zip(scales) {
            *slope /= scale.deviation;
            gained -= *slope * scale.mean;
        }
        gained
    }

    /// Whether encoding shifts any column.
    pub(crate) fn moves_columns(&self) -> bool {
        self.scales().iter().any(|scale| scale.mean != 0.0)
    }

    /// The scale of every feature of a column; empty where none is scaled.
    fn scales(&self) -> Vec<Scale> {
        match &self.features {
            FeaturesSchema::Matrix { scales, .. } => scales.clone(),
            FeaturesSchema::Named(columns) => columns
                .iter()
                .flat_map(|column| {
                    let mut scales = vec![Scale::KEEP; column.width()];
                    if let Encoding::Number(scale) | Encoding::Date { year: scale, .. } = column.encoding {
                        scales[0] = scale;
                    }
                    scales
                })
                .collect(),
        }
    }

    /// Features in a row before it is encoded.
    pub(crate) fn columns(&self) -> usize {
        match &self.features {
            FeaturesSchema::Matrix { columns, .. } => *columns,
            FeaturesSchema::Named(columns) => columns.len(),
        }
    }

    /// The same without the bends of columns none of whose bends is `used`, and which features are left.
    pub(crate) fn without_bends(&self, used: impl Fn(usize) -> bool) -> (Self, Vec<usize>) {
        let mut slim = self.clone();
        let mut left: Vec<usize> = (0..self.shape().columns).collect();
        if let FeaturesSchema::Named(columns) = &mut slim.features {
            let mut begin = 0;
            left.clear();
            for column in columns {
                let (bends, end) = (begin + 1..begin + 1 + column.bend_terms(), begin + column.width());
                let is_bent = bends.clone().any(&used);
                left.extend((begin..end).filter(|feature| is_bent || !bends.contains(feature)));
                column.bends = column.bends.take().filter(|_| is_bent);
                begin = end;
            }
            left.extend(begin..begin + self.interactions.len());
        }
        (slim, left)
    }

    /// Every column that bends, at so many values evenly over its knots.
    pub(crate) fn bent_columns(&self, count: usize) -> Vec<BentColumn> {
        let FeaturesSchema::Named(columns) = &self.features else { return Vec::new() };
        let mut begin = 0;
        let mut bent = Vec::new();
        for column in columns {
            if let (Encoding::Number(scale), Some(bends)) = (&column.encoding, &column.bends) {
                let features = |value: f64| {
                    let mut features = vec![0.0; 1 + bends.terms()];
                    features[0] = scale.apply(value);
                    bends.encode(value, &mut features[1..]);
                    features
                };
                let values = bends.values(count);
                bent.push(BentColumn {
                    name: column.name.clone(),
                    begin,
                    features: values.iter().copied().map(features).collect(),
                    mean: features(column.fill),
                    values,
                });
            }
            begin += column.width();
        }
        bent
    }

    /// Encodes a shard's rows. A matrix that is not scaled keeps its storage.
    pub fn encode(&self, shard: &Shard) -> Result<Shard> {
        self.encode_with(shard, || self.encode_targets(shard))
    }

    /// Encodes rows without their targets.
    pub(crate) fn encode_features(&self, shard: &Shard) -> Result<Shard> {
        self.encode_with(shard, || Ok(Targets::None))
    }

    fn encode_with(&self, shard: &Shard, targets: impl Fn() -> Result<Targets>) -> Result<Shard> {
        if !self.has_its_factors() {
            return Err(Error::data("the schema has products of features that it does not have"));
        }
        let features = match (&self.features, &**shard.features()) {
            (FeaturesSchema::Named(schema), Features::Columns(columns)) => {
                encode_columns(schema, &self.factors(), columns, shard)?
            }
            (FeaturesSchema::Named(_), _) => return Err(Error::data("rows without column names, want a table")),
            (FeaturesSchema::Matrix { .. }, Features::Columns(_)) => {
                return Err(Error::data("the columns of a table, want rows of numbers"));
            }
            (FeaturesSchema::Matrix { columns, .. }, features) if features.columns() != *columns => {
                let message = format!("rows of {} columns, want {columns}", features.columns());
                return Err(Error::new(ErrorKind::Shape, message));
            }
            (FeaturesSchema::Matrix { scales, .. }, _)
                if scales.is_empty() && !matches!(**shard.targets(), Targets::Words(_)) =>
            {
                targets()?;
                return Ok(shard.clone());
            }
            (FeaturesSchema::Matrix { columns, scales }, features) => {
                let scales = if scales.is_empty() { &vec![Scale::KEEP; *columns] } else { scales };
                let scaled = |row| row_values(features, row).zip(scales).map(|(value, scale)| scale.apply(value));
                Features::F64 { columns: *columns, values: shard.rows().flat_map(scaled).collect() }
            }
        };
        let weights = shard.weights().map(|weights| Arc::new(weights.to_vec()));
        Shard::new(features, targets()?)?.weighted(weights)
    }

    fn encode_targets(&self, shard: &Shard) -> Result<Targets> {
        let rows = shard.rows();
        match (&self.target, &**shard.targets()) {
            (TargetSchema::None, Targets::None) => Ok(Targets::None),
            (TargetSchema::Number, Targets::Values(values)) => Ok(Targets::Values(values[rows].to_vec())),
            (TargetSchema::Classes(count), Targets::Classes(classes)) => {
                let classes = classes[rows].to_vec();
                match classes.iter().find(|class| **class as usize >= *count) {
                    Some(class) => Err(Error::data(format!("class {class} is not among the {count} agreed on"))),
                    None => Ok(Targets::Classes(classes)),
                }
            }
            (TargetSchema::Names(names), Targets::Words(words)) => {
                let numbers: HashMap<&str, u32> = names.iter().map(String::as_str).zip(0..).collect();
                let spelled = |word: &str| spelled_as(names.iter().map(String::as_str), word).map(|name| numbers[name]);
                let number = |word: &String| {
                    let known = numbers.get(word.as_str()).copied();
                    known.or_else(|| spelled(word)).unwrap_or(UNKNOWN_CLASS)
                };
                Ok(Targets::Classes(words[rows].iter().map(number).collect()))
            }
            (agreed, _) => {
                let want = match agreed {
                    TargetSchema::None => "none",
                    TargetSchema::Number => "numbers",
                    TargetSchema::Classes(_) => "numbered classes",
                    TargetSchema::Names(_) => "classes by name",
                };
                Err(Error::data(format!("the target is of another kind than agreed on, want {want}")))
            }
        }
    }
}

impl ColumnSchema {
    pub(crate) fn width(&self) -> usize {
        let marker = usize::from(self.is_marked());
        match &self.encoding {
            Encoding::Number(_) => 1 + self.bend_terms() + marker,
            Encoding::OneHot { categories, others, .. } => categories.len() + usize::from(*others > 0),
            Encoding::Date { months, weekdays, hours, .. } => 1 + months.len() + weekdays.len() + hours.len() + marker,
            Encoding::LeftOut(_) => 0,
            Encoding::Nothing => 1,
        }
    }

    /// Where no column varies.
    pub(super) fn none() -> Self {
        Self {
            name: Column::NONE.to_string(),
            encoding: Encoding::Nothing,
            missing: 0,
            fill: 0.0,
            bends: None,
            unmarked: true,
            spelled_differently: false,
        }
    }

    fn bend_terms(&self) -> usize {
        self.bends.as_ref().map_or(0, Bends::terms)
    }

    /// Whether its last feature says that a cell is missing.
    pub(super) fn is_marked(&self) -> bool {
        self.missing > 0 && !self.unmarked && matches!(self.encoding, Encoding::Number(_) | Encoding::Date { .. })
    }

    fn roles(&self, place: usize) -> Vec<Role> {
        let usual = if self.encoding == Encoding::Nothing { Role::Unused } else { Role::Linear };
        let mut roles = vec![usual; self.width()];
        roles.iter_mut().skip(1).take(self.bend_terms()).for_each(|role| *role = Role::Curve(place));
        if let (Some(last), true) = (roles.last_mut(), self.is_marked()) {
            *last = Role::Common;
        }
        roles
    }

    fn feature_names(&self) -> Vec<String> {
        let name = &self.name;
        let mut names = match &self.encoding {
            Encoding::Number(_) => {
                let bends = (1..=self.bend_terms()).map(|bend| format!("{name}.bend{bend}"));
                std::iter::once(name.clone()).chain(bends).collect()
            }
            Encoding::OneHot { categories, others, .. } => {
                let of = |word: &String| format!("{name}={}", if word.is_empty() { "(missing)" } else { word });
                let other = (*others > 0).then(|| format!("{name}=(other)"));
                categories.iter().map(of).chain(other).collect()
            }
            Encoding::Date { months, weekdays, hours, .. } => {
                const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
                let day = |day: &u32| DAYS.get((*day as usize).wrapping_sub(1)).copied().unwrap_or("?");
                let months = months.iter().map(|month| format!("{name}.month={month}"));
                let weekdays = weekdays.iter().map(|weekday| format!("{name}.weekday={}", day(weekday)));
                let hours = hours.iter().map(|hour| format!("{name}.hour={hour}"));
                std::iter::once(format!("{name}.year")).chain(months).chain(weekdays).chain(hours).collect()
            }
            Encoding::LeftOut(_) => Vec::new(),
            Encoding::Nothing => vec![name.clone()],
        };
        names.extend(self.is_marked().then(|| format!("{name}=(missing)")));
        names
    }

    /// Encodes the cells of some rows, each into its part of a row.
    fn encode<'r>(&self, cells: &Cells, rows: Range<usize>, parts: impl Iterator<Item = &'r mut [f64]>) -> Result<()> {
        let marker = self.is_marked().then(|| self.width() - 1);
        let mark = |part: &mut [f64]| {
            if let Some(marker) = marker {
                part[marker] = 1.0;
            }
        };
        let refuse =
            |found: &str, wanted: &str| Err(Error::data(format!("column `{}`: {found}, want {wanted}", self.name)));
        match (&self.encoding, cells) {
            (Encoding::LeftOut(_) | Encoding::Nothing, _) => {}
            (Encoding::Number(scale), Cells::Numbers(numbers)) => {
                for (part, number) in parts.zip(&numbers[rows]) {
                    let value = if number.is_nan() { self.fill } else { *number };
                    part[0] = scale.apply(value);
                    if let Some(bends) = &self.bends {
                        bends.encode(value, &mut part[1..]);
                    }
                    if number.is_nan() {
                        mark(part);
                    }
                }
            }
            (Encoding::OneHot { categories, others, .. }, Cells::Words(words)) => {
                let places = self.places(categories);
                let other = (*others > 0).then_some(categories.len());
                let known = || places.keys().copied().filter(|word| !word.is_empty());
                let spelled = |word: &str| spelled_as(known(), word).map(|name| places[name]);
                for (part, word) in parts.zip(&words[rows]) {
                    let place = places.get(word.as_str()).copied().or_else(|| spelled(word));
                    if let Some(place) = place.unwrap_or(other) {
                        part[place] = 1.0;
                    }
                }
            }
            (Encoding::Date { year, months, weekdays, hours }, Cells::Dates(times)) => {
                for (part, time) in parts.zip(&times[rows]) {
                    if time.is_nan() {
                        part[0] = year.apply(self.fill);
                        let mut begin = 1;
                        // As likely one as another.
                        for kinds in [months, weekdays, hours] {
                            part[begin..begin + kinds.len()].fill(1.0 / (kinds.len() + 1) as f64);
                            begin += kinds.len();
                        }
                        mark(part);
                        continue;
                    }
                    part[0] = year.apply(decimal_year(*time));
                    let moment = Moment::of(*time);
                    let mut begin = 1;
                    for (kinds, own) in [(months, moment.month), (weekdays, weekday(*time)), (hours, moment.hour())] {
                        if let Some(place) = kinds.iter().position(|kind| *kind == own) {
                            part[begin + place] = 1.0;
                        }
                        begin += kinds.len();
                    }
                }
            }
            // Cells that are all missing have no kind.
            (_, Cells::Numbers(cells) | Cells::Dates(cells))
                if cells[rows.clone()].iter().all(|cell| cell.is_nan()) =>
            {
                let none = match self.encoding {
                    Encoding::Number(_) => Cells::Numbers(vec![f64::NAN; rows.len()]),
                    Encoding::Date { .. } => Cells::Dates(vec![f64::NAN; rows.len()]),
                    _ => Cells::Words(vec![String::new(); rows.len()]),
                };
                self.encode(&none, 0..rows.len(), parts)?;
            }
            (Encoding::Number(_), Cells::Words(_)) => return refuse("words", "numbers"),
            (Encoding::Number(_), Cells::Dates(_)) => return refuse("dates", "numbers"),
            (Encoding::OneHot { .. }, Cells::Numbers(_)) => return refuse("numbers", "words"),
            (Encoding::OneHot { .. }, Cells::Dates(_)) => return refuse("dates", "words"),
            (Encoding::Date { .. }, Cells::Words(_)) => return refuse("words", "dates"),
            (Encoding::Date { .. }, Cells::Numbers(_)) => return refuse("numbers", "dates"),
        }
        Ok(())
    }

    /// The feature of every known word; the base has none.
    fn places<'a>(&'a self, categories: &'a [String]) -> HashMap<&'a str, Option<usize>> {
        let base = match &self.encoding {
            Encoding::OneHot { base, .. } => base.as_deref(),
            _ => None,
        };
        let known = categories.iter().enumerate().map(|(place, word)| (word.as_str(), Some(place)));
        known.chain(base.map(|base| (base, None))).collect()
    }
}

/// The one of two words for yes and no that another word is a spelling of.
fn spelled_as<'a>(words: impl Iterator<Item = &'a str> + Clone, word: &str) -> Option<&'a str> {
    if words.clone().count() != 2 {
        return None;
    }
    let found = YesNo::of(words.clone())?;
    found.name(words, found.is_yes(word)?)
}

/// The item of this name; most often it is at this place.
pub(super) fn find_named<'a, T>(
    things: &'a [T],
    place: usize,
    name: &str,
    name_of: impl Fn(&T) -> &str,
) -> Option<&'a T> {
    let is_it = |thing: &&T| name_of(thing) == name;
    things.get(place).filter(is_it).or_else(|| things.iter().find(is_it))
}

fn encode_columns(
    schema: &[ColumnSchema],
    factors: &[[usize; 2]],
    columns: &[Column],
    shard: &Shard,
) -> Result<Features> {
    let width = schema.iter().map(ColumnSchema::width).sum::<usize>() + factors.len();
    let mut values = vec![0f64; shard.len() * width];
    let mut place = 0;
    for (index, agreed) in schema.iter().enumerate() {
        let found = find_named(columns, index, &agreed.name, |column| &column.name);
        let own = agreed.width();
        if own > 0 && agreed.encoding != Encoding::Nothing {
            let column = found.ok_or_else(|| Error::data(format!("column `{}` is missing", agreed.name)))?;
            let parts = values.chunks_exact_mut(width).map(|row| &mut row[place..place + own]);
            agreed.encode(&column.values, shard.rows(), parts)?;
        }
        place += own;
    }
    if !factors.is_empty() {
        for row in values.chunks_exact_mut(width) {
            for (product, [first, second]) in (place..).zip(factors) {
                row[product] = row[*first] * row[*second];
            }
        }
    }
    Ok(Features::F64 { columns: width, values })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Client;
    use crate::num::Moments;
    use std::collections::BTreeMap;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| word.to_string()).collect()
    }

    fn client(ages: &[f64], colours: &[&str], targets: Targets) -> Client {
        let columns = vec![
            Column { name: "age".into(), values: Cells::Numbers(ages.to_vec()) },
            Column { name: "one".into(), values: Cells::Numbers(vec![0.1; ages.len()]) },
            Column { name: "colour".into(), values: Cells::Words(words(colours)) },
        ];
        let all = Shard::new(Features::Columns(columns), targets).unwrap();
        let train = Shard::of(all.features().clone(), all.targets().clone(), 0..ages.len() - 1).unwrap();
        let test = Shard::of(all.features().clone(), all.targets().clone(), ages.len() - 1..ages.len()).unwrap();
        Client { id: "a".into(), train, test, group: Some("north".into()), truth: None }
    }

    fn two() -> [Client; 2] {
        [
            client(&[1.0, 3.0, 100.0], &["red", "blue", "green"], Targets::Words(words(&["10", "9", "9"]))),
            client(&[5.0, 100.0], &["blue", "blue"], Targets::Words(words(&["8", "10"]))),
        ]
    }

    fn coding(standardise: bool) -> Coding {
        Coding {
            standardise,
            constant: true,
            kinds: Coding::KINDS,
            curves: false,
            numbers_only: false,
            means_alone: false,
        }
    }

    fn fix(clients: &[Client], standardise: bool) -> Result<Schema> {
        let descriptions: Vec<Description> = clients.iter().map(|client| describe(client, standardise)).collect();
        Schema::fix(&descriptions, coding(standardise))
    }

    #[test]
    fn a_plane_through_encoded_rows_is_one_through_rows_as_they_were_read() {
        let clients = two();
        let schema = fix(&clients, true).unwrap();
        assert!(schema.moves_columns() && !fix(&clients, false).unwrap().moves_columns());
        let slopes = [2.0, -1.0];
        let mut decoded = slopes;
        let gained = schema.decode_slopes(&mut decoded);
        let height =
            |slopes: &[f64], row: &[f64]| slopes.iter().zip(row).map(|(slope, value)| slope * value).sum::<f64>();
        let encoded = [0.7, 1.0];
        let mut row = encoded;
        schema.decode(&mut row);
        assert!((height(&decoded, &row) + gained - height(&slopes, &encoded)).abs() < 1e-12);
        assert_eq!(decoded[1..], slopes[1..], "categories have no unit");
    }

    #[test]
    fn a_table_is_described_by_sums_and_categories() {
        let description = describe(&two()[0], false);
        assert_eq!((description.rows, description.group.as_deref()), (2, Some("north")));
        let FeaturesDescription::Named(columns) = &description.features else { panic!() };
        let moments = Moments { count: 2, mean: 2.0, deviation: 1.0, min: 1.0, max: 3.0 };
        assert_eq!(columns[0].summary, Summary::Numbers { moments, different: true });
        let counts = BTreeMap::from([("blue".to_string(), 1), ("red".to_string(), 1)]);
        assert_eq!(columns[2].summary, Summary::Words { counts, others: 0, kinds: 2 });
        let [train, test] = [&["10", "9"][..], &[]].map(|list| words(list).into_iter().collect());
        assert_eq!(description.target, TargetDescription::Words { train, test });
    }

    #[test]
    fn scaled_and_one_hot() {
        let clients = two();
        let schema = fix(&clients, true).unwrap();
        // Both clients have seen blue: it is the base.
        assert_eq!(schema.shape(), DataShape::numbers(2, 3));
        assert_eq!(schema.feature_names(), ["age", "colour=red"]);
        assert_eq!(schema.target, TargetSchema::Names(words(&["8", "9", "10"])));
        // ages 1, 3, 5: mean 3, variance 8/3; the constant column is left out
        let encoded = schema.encode(&clients[0].train).unwrap();
        let deviation = (8.0f64 / 3.0).sqrt();
        let expected = vec![-2.0 / deviation, 1.0, 0.0, 0.0];
        match &**encoded.features() {
            Features::F64 { columns: 2, values } => {
                assert!(values.iter().zip(&expected).all(|(found, want)| (found - want).abs() < 1e-12), "{values:?}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(encoded.classes(), Some(&[2, 1][..]));
        assert_eq!(schema.encode(&clients[1].test).unwrap().classes(), Some(&[2][..]));
    }

    #[test]
    fn standardisation_does_not_cancel_where_the_mean_is_large() {
        // Seconds since 1970 with a deviation of 0.91, over two clients.
        let offsets = [-1.25, 0.5, 1.25, -0.5, 0.75, -0.75, 0.25, -1.5];
        let times: Vec<f64> = offsets.iter().map(|offset| 1.7e9 + offset).collect();
        let wanted = (offsets.map(|offset| offset * offset).iter().sum::<f64>() / 8.0 - (1.25f64 / 8.0).powi(2)).sqrt();
        let shard =
            |rows: &[f64]| Shard::new(Features::F64 { columns: 1, values: rows.to_vec() }, Targets::None).unwrap();
        let client = |id: &str, rows: &[f64]| Client {
            id: id.into(),
            train: shard(rows),
            test: shard(&[]),
            group: None,
            truth: None,
        };
        let schema = fix(&[client("a", &times[..3]), client("b", &times[3..])], true).unwrap();
        let FeaturesSchema::Matrix { scales, .. } = &schema.features else { panic!() };
        assert!((scales[0].deviation - wanted).abs() < 1e-6, "{scales:?}, want {wanted}");
        assert!((scales[0].mean - 1.7e9 + 0.15625).abs() < 1e-6, "{scales:?}");
        let description = describe(&client("a", &[3.0, 5.0]), true);
        assert_eq!(description.mean_square(), 17.0);
    }

    #[test]
    fn both_cross_the_wire() {
        let description = describe(&two()[0], true);
        let bytes = postcard::to_stdvec(&description).unwrap();
        assert_eq!(postcard::from_bytes::<Description>(&bytes).unwrap(), description);
        let schema = fix(&two(), true).unwrap();
        let text = serde_json::to_string(&schema).unwrap();
        assert_eq!(serde_json::from_str::<Schema>(&text).unwrap(), schema);
    }

    #[test]
    fn unknown_categories_are_the_base_and_unknown_classes_are_nobodys() {
        let schema = fix(&two(), false).unwrap();
        let other = client(&[7.0, 8.0], &["violet", "red"], Targets::Words(words(&["9", "11"])));
        let encoded = schema.encode(&other.train).unwrap();
        assert_eq!(**encoded.features(), Features::F64 { columns: 2, values: vec![7.0, 0.0] });
        let encoded = schema.encode(&other.test).unwrap();
        assert_eq!(encoded.classes(), Some(&[UNKNOWN_CLASS][..]));
        assert_eq!(schema.unknown_classes(&[describe(&other, false)]), ["11"]);
    }

    #[test]
    fn a_word_in_test_rows_alone_changes_no_column() {
        let mut changed = two();
        changed[0].test = client(&[4.0, 100.0], &["red", "mauve"], Targets::Words(words(&["9", "77"]))).test;
        assert_eq!(fix(&changed, true).unwrap(), fix(&two(), true).unwrap());
    }

    #[test]
    fn categories_never_add_up_to_the_constant() {
        let sizes = |constant: bool| {
            let colours = Column { name: "colour".into(), values: Cells::Words(words(&["red", "blue", "blue"])) };
            let shapes = Column { name: "shape".into(), values: Cells::Words(words(&["round", "flat", "odd"])) };
            let train = Shard::new(Features::Columns(vec![colours, shapes]), Targets::Values(vec![1.0; 3])).unwrap();
            let client = Client { id: "a".into(), test: train.part(0, 2), train, group: None, truth: None };
            Schema::fix(&[describe(&client, false)], Coding { constant, ..coding(false) }).unwrap().feature_names()
        };
        assert_eq!(sizes(true), ["colour=red", "shape=odd", "shape=round"]);
        assert_eq!(sizes(false), ["colour=blue", "colour=red", "shape=odd", "shape=round"]);
        let same = client(&[1.0, 1.0, 1.0], &["red", "red", "red"], Targets::Values(vec![1.0; 3]));
        let Features::Columns(columns) = &**same.train.features() else { panic!() };
        let train = Shard::new(Features::Columns(vec![columns[2].clone()]), Targets::Values(vec![1.0; 3])).unwrap();
        let text = fix(&[Client { train, ..same }], false).unwrap_err().to_string();
        assert_eq!(text, "no column varies over the training rows, want one that does");
    }

    #[test]
    fn extreme_cells_are_named() {
        let own = |id: usize, cell: f64, target: f64| {
            let ages = [20.0 + id as f64, 30.0, 41.0, cell, 9.0];
            let targets = Targets::Values(vec![1.0, 2.0 + id as f64, 3.0, target, 0.0]);
            client(&ages, &["red", "blue", "red", "blue", "red"], targets)
        };
        let mut clients: Vec<Client> = (0..6).map(|id| own(id, 25.0, 4.0)).collect();
        let calm: Vec<Description> = clients.iter().map(|client| describe(client, true)).collect();
        assert_eq!(extreme_cells(&calm), []);
        clients[2] = own(2, 1e9, 4.0);
        clients[4] = own(4, 25.0, -1e12);
        let described: Vec<Description> = clients.iter().map(|client| describe(client, true)).collect();
        let found = extreme_cells(&described);
        let told: Vec<_> = found.iter().map(|cell| (cell.client, cell.column.as_deref(), cell.value)).collect();
        assert_eq!(told, [(2, Some("age"), 1e9), (4, None, -1e12)]);
        assert!(found[0].ratio > 1e8, "{found:?}");
        let coding = coding(true);
        let scale = |described: &[Description]| match Schema::fix(described, coding).unwrap().features {
            FeaturesSchema::Named(columns) => match columns[0].encoding {
                Encoding::Number(scale) => scale.deviation,
                _ => panic!(),
            },
            _ => panic!(),
        };
        assert!((scale(&described) / scale(&calm) - 1.0).abs() < 0.1);
    }

    #[test]
    fn a_matrix_keeps_its_storage_unless_scaled() {
        let shard =
            Shard::new(Features::Bytes { columns: 2, values: vec![0, 255, 51, 255] }, Targets::Classes(vec![0, 3]))
                .unwrap();
        let client = Client { id: "a".into(), train: shard.clone(), test: shard.part(0, 2), group: None, truth: None };
        let description = describe(&client, false);
        assert_eq!(description.features, FeaturesDescription::Matrix { columns: 2, moments: vec![] });
        let plain = Schema::fix(&[description], coding(false)).unwrap();
        assert_eq!(plain.shape(), DataShape::numbers(2, 4));
        assert!(Arc::ptr_eq(plain.encode(&shard).unwrap().features(), shard.features()));
        // first column 0 and 0.2: mean 0.1, deviation 0.1; the second is constant
        let scaled = fix(std::slice::from_ref(&client), true).unwrap().encode(&shard).unwrap();
        match &**scaled.features() {
            Features::F64 { values, .. } => {
                let expected = [-1.0, 0.0, 1.0, 0.0];
                assert!(values.iter().zip(expected).all(|(found, want)| (found - want).abs() < 1e-9), "{values:?}");
            }
            other => panic!("{other:?}"),
        }
        let coding = coding(true);
        assert!(Schema::fix(&[describe(&client, false)], coding).is_err());
    }

    #[test]
    fn clients_that_disagree_are_refused() {
        let text = |clients: &[Client]| fix(clients, false).unwrap_err().to_string();
        let [first, second] = two();
        let numbers = client(&[1.0, 2.0], &["red", "red"], Targets::Values(vec![1.0, 2.0]));
        assert_eq!(
            text(&[first.clone(), numbers]),
            "the target is of one kind at some clients and of another at others"
        );
        let mut odd = second.clone();
        let columns = vec![
            Column { name: "age".into(), values: Cells::Words(words(&["old"])) },
            Column { name: "one".into(), values: Cells::Numbers(vec![0.1]) },
            Column { name: "colour".into(), values: Cells::Words(words(&["red"])) },
        ];
        odd.train = Shard::new(Features::Columns(columns), Targets::Words(words(&["9"]))).unwrap();
        odd.test = odd.train.part(0, 2);
        assert_eq!(text(&[first, odd]), "column `age`: numbers at some clients, words at others");
        assert!(fix(&[], false).is_err());
    }
}
