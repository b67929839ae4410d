//! How everybody agrees on columns without showing rows.
//!
//! Every client sends a [`Description`] of its data: moments, not rows. The server fixes one [`Schema`] from them, and each
//! client encodes its own rows with it. Both cross the wire, and the schema is saved with the models.
//!
//! Numbers become one feature, scaled by the pooled mean and standard deviation when asked for; words become one
//! feature per category, in sorted order (by value where all of them are numbers). A category that nobody described,
//! met later, is encoded as none of them; an unknown class is an error.

use super::moments::{Moments, Scale};
use super::{Cells, Client, Column, DataShape, Features, Shard, Targets};
use crate::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// What one client tells about its data.
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
    /// The squared length of a row, on average; 0 where moments were not asked for.
    pub fn mean_square(&self) -> f64 {
        match &self.features {
            FeaturesDescription::Matrix { moments, .. } => {
                moments.iter().map(|moments| moments.distance_from(0.0).powi(2)).sum()
            }
            FeaturesDescription::Named(_) => 0.0,
        }
    }
}

/// What one client tells about its features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FeaturesDescription {
    /// Numbers without names.
    Matrix {
        /// Values in a row.
        columns: usize,
        /// What the numbers of each column are like; empty unless asked for.
        moments: Vec<Moments>,
    },
    /// The columns of a table.
    Named(Vec<ColumnDescription>),
}

/// What one client tells about a column of its table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnDescription {
    /// The header.
    pub name: String,
    /// What is in it.
    pub summary: Summary,
}

/// The content of a column, summed up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Summary {
    /// What its numbers are like, over the training rows.
    Numbers(Moments),
    /// The categories that occur, over training and test rows.
    Words(BTreeSet<String>),
}

/// What one client tells about its target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TargetDescription {
    /// There is none.
    None,
    /// Numbered classes, and one more than the largest number.
    Classes(usize),
    /// Numbers.
    Values(Moments),
    /// The classes that occur, over training and test rows.
    Words(BTreeSet<String>),
}

/// The agreed meaning of every feature and of the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    /// The features.
    pub features: FeaturesSchema,
    /// The target.
    pub target: TargetSchema,
}

/// The agreed meaning of the features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FeaturesSchema {
    /// Numbers without names.
    Matrix {
        /// Values in a row.
        columns: usize,
        /// How each is scaled; empty when they are taken as they are.
        scales: Vec<Scale>,
    },
    /// The columns of a table, in the order of the first description.
    Named(Vec<ColumnSchema>),
}

/// The agreed meaning of one column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnSchema {
    /// The header.
    pub name: String,
    /// How a cell becomes features.
    pub encoding: Encoding,
}

/// How a cell becomes features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Encoding {
    /// A number becomes one feature.
    Number(Scale),
    /// A word becomes a one at its category and zeros at the others.
    OneHot(Vec<String>),
}

/// The agreed meaning of the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TargetSchema {
    /// There is none.
    None,
    /// A number.
    Number,
    /// So many classes without names.
    Classes(usize),
    /// Classes by name; their place in the list is their number.
    Names(Vec<String>),
}

/// Describes a client; the columns of a matrix only when their `moments` are asked for.
pub fn describe(client: &Client, moments: bool) -> Description {
    let rows = client.train.rows();
    let train = &client.train;
    let features = match &**train.features() {
        Features::Columns(columns) => FeaturesDescription::Named(
            columns.iter().enumerate().map(|(index, column)| describe_column(client, index, column)).collect(),
        ),
        features => {
            let columns = features.columns();
            let moments = if moments { matrix_moments(train) } else { Vec::new() };
            FeaturesDescription::Matrix { columns, moments }
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
            let mut names: BTreeSet<String> = words[rows].iter().cloned().collect();
            if let Targets::Words(words) = &**client.test.targets() {
                names.extend(words[client.test.rows()].iter().cloned());
            }
            TargetDescription::Words(names)
        }
    };
    Description { rows: client.train.len(), group: client.group.clone(), features, target }
}

fn describe_column(client: &Client, index: usize, column: &Column) -> ColumnDescription {
    let summary = match &column.values {
        Cells::Numbers(numbers) => Summary::Numbers(Moments::of(numbers[client.train.rows()].iter().copied())),
        Cells::Words(words) => {
            let mut names: BTreeSet<String> = words[client.train.rows()].iter().cloned().collect();
            if let Features::Columns(columns) = &**client.test.features()
                && let Some(Cells::Words(words)) = columns.get(index).map(|column| &column.values)
            {
                names.extend(words[client.test.rows()].iter().cloned());
            }
            Summary::Words(names)
        }
    };
    ColumnDescription { name: column.name.clone(), summary }
}

fn matrix_moments(shard: &Shard) -> Vec<Moments> {
    /// Rows lie one after the other, columns are wanted: so many rows are turned at a time.
    const BLOCK: usize = 256;
    let mut moments = vec![Moments::NONE; shard.columns()];
    let mut turned = Vec::new();
    for begin in shard.rows().step_by(BLOCK) {
        let rows = begin..shard.rows().end.min(begin + BLOCK);
        turned.resize(rows.len() * shard.columns(), 0.0);
        for (place, row) in rows.clone().enumerate() {
            let values = row_values(shard.features(), row);
            turned.iter_mut().skip(place).step_by(rows.len()).zip(values).for_each(|(cell, value)| *cell = value);
        }
        let columns = turned.chunks_exact(rows.len());
        moments
            .iter_mut()
            .zip(columns)
            .for_each(|(moments, column)| moments.merge(&Moments::of(column.iter().copied())));
    }
    moments
}

/// The numbers of one row of a matrix; the columns of a table have none.
fn row_values(features: &Features, row: usize) -> Box<dyn Iterator<Item = f64> + '_> {
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

impl Schema {
    /// Agrees on one schema for everybody who sent a description.
    pub fn fix(descriptions: &[Description], scale: bool) -> Result<Self> {
        let Some(first) = descriptions.first() else {
            return Err(Error::data("no schema without a description"));
        };
        let features = match &first.features {
            FeaturesDescription::Matrix { columns, .. } => fix_matrix(descriptions, *columns, scale)?,
            FeaturesDescription::Named(columns) => {
                let columns = columns.iter().map(|column| fix_column(descriptions, &column.name, scale));
                FeaturesSchema::Named(columns.collect::<Result<_>>()?)
            }
        };
        Ok(Self { features, target: fix_target(descriptions)? })
    }

    /// What a model for the encoded rows must fit.
    pub fn shape(&self) -> DataShape {
        let columns = match &self.features {
            FeaturesSchema::Matrix { columns, .. } => *columns,
            FeaturesSchema::Named(columns) => columns.iter().map(ColumnSchema::width).sum(),
        };
        let classes = match &self.target {
            TargetSchema::None | TargetSchema::Number => 0,
            TargetSchema::Classes(count) => *count,
            TargetSchema::Names(names) => names.len(),
        };
        DataShape::numbers(columns, classes)
    }

    /// A name for every feature: the header, or `header=category`; `x0` and so on where there are no headers.
    pub fn feature_names(&self) -> Vec<String> {
        match &self.features {
            FeaturesSchema::Matrix { columns, .. } => (0..*columns).map(|index| format!("x{index}")).collect(),
            FeaturesSchema::Named(columns) => columns
                .iter()
                .flat_map(|column| match &column.encoding {
                    Encoding::Number(_) => vec![column.name.clone()],
                    Encoding::OneHot(names) => names.iter().map(|name| format!("{}={name}", column.name)).collect(),
                })
                .collect(),
        }
    }

    /// Puts the features of one encoded row back into the units they were read in.
    pub fn decode(&self, row: &mut [f64]) {
        row.iter_mut().zip(self.scales()).for_each(|(value, scale)| *value = scale.undo(*value));
    }

    /// Turns the slopes of a linear function of encoded rows into those for rows as they were read; returns what its
    /// constant then gains.
    pub fn decode_slopes(&self, slopes: &mut [f64]) -> f64 {
        let mut gained = 0.0;
        for (slope, scale) in slopes.iter_mut().zip(self.scales()) {
            *slope /= scale.deviation;
            gained -= *slope * scale.mean;
        }
        gained
    }

    /// Whether any column is moved when it is encoded.
    pub fn moves_columns(&self) -> bool {
        self.scales().iter().any(|scale| scale.mean != 0.0)
    }

    /// How every feature is scaled; empty where all are taken as they are.
    fn scales(&self) -> Vec<Scale> {
        match &self.features {
            FeaturesSchema::Matrix { scales, .. } => scales.clone(),
            FeaturesSchema::Named(columns) => columns
                .iter()
                .flat_map(|column| match &column.encoding {
                    Encoding::Number(scale) => vec![*scale],
                    Encoding::OneHot(names) => vec![Scale::KEEP; names.len()],
                })
                .collect(),
        }
    }

    /// Encodes a shard's rows. A matrix that is not scaled keeps its storage.
    pub fn encode(&self, shard: &Shard) -> Result<Shard> {
        let targets = || self.encode_targets(shard);
        let features = match (&self.features, &**shard.features()) {
            (FeaturesSchema::Named(schema), Features::Columns(columns)) => encode_columns(schema, columns, shard)?,
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
        Shard::new(features, targets()?)
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
                let number = |word: &String| {
                    let unknown = || Error::data(format!("class `{word}` is not among those agreed on"));
                    numbers.get(word.as_str()).copied().ok_or_else(unknown)
                };
                Ok(Targets::Classes(words[rows].iter().map(number).collect::<Result<_>>()?))
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
    fn width(&self) -> usize {
        match &self.encoding {
            Encoding::Number(_) => 1,
            Encoding::OneHot(names) => names.len(),
        }
    }
}

fn fix_matrix(descriptions: &[Description], columns: usize, scale: bool) -> Result<FeaturesSchema> {
    let mut pooled = vec![Moments::NONE; if scale { columns } else { 0 }];
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
        pooled.iter_mut().zip(moments).for_each(|(pooled, moments)| pooled.merge(moments));
    }
    Ok(FeaturesSchema::Matrix { columns, scales: pooled.iter().map(Moments::scale).collect() })
}

fn fix_column(descriptions: &[Description], name: &str, scale: bool) -> Result<ColumnSchema> {
    let (mut moments, mut names) = (Moments::NONE, BTreeSet::new());
    let (mut numbers, mut words) = (false, false);
    let width = |description: &Description| match &description.features {
        FeaturesDescription::Named(columns) => columns.len(),
        FeaturesDescription::Matrix { .. } => 0,
    };
    for description in descriptions {
        let FeaturesDescription::Named(columns) = &description.features else {
            return Err(Error::data("some clients have tables and others rows without column names"));
        };
        if columns.len() != width(&descriptions[0]) {
            let message = format!("{} columns at one client, {} at another", columns.len(), width(&descriptions[0]));
            return Err(Error::new(ErrorKind::Shape, message));
        }
        match columns.iter().find(|column| column.name == name).map(|column| &column.summary) {
            Some(Summary::Numbers(other)) => {
                moments.merge(other);
                numbers = true;
            }
            Some(Summary::Words(other)) => {
                names.extend(other.iter().cloned());
                words = true;
            }
            None => return Err(Error::data(format!("column `{name}`: some clients do not have it"))),
        }
    }
    let encoding = match (numbers, words) {
        (true, true) => {
            return Err(Error::data(format!("column `{name}`: numbers at some clients, words at others")));
        }
        (_, true) => Encoding::OneHot(sorted(names)),
        _ => Encoding::Number(if scale { moments.scale() } else { Scale::KEEP }),
    };
    Ok(ColumnSchema { name: name.to_string(), encoding })
}

fn fix_target(descriptions: &[Description]) -> Result<TargetSchema> {
    let mut agreed: Option<TargetSchema> = None;
    let mut names = BTreeSet::new();
    for description in descriptions {
        let own = match &description.target {
            TargetDescription::None => TargetSchema::None,
            TargetDescription::Values(_) => TargetSchema::Number,
            TargetDescription::Classes(count) => TargetSchema::Classes(*count),
            TargetDescription::Words(words) => {
                names.extend(words.iter().cloned());
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
        Some(TargetSchema::Names(_)) => TargetSchema::Names(sorted(names)),
        Some(agreed) => agreed,
        None => TargetSchema::None,
    })
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

fn encode_columns(schema: &[ColumnSchema], columns: &[Column], shard: &Shard) -> Result<Features> {
    let width: usize = schema.iter().map(ColumnSchema::width).sum();
    let mut values = vec![0f64; shard.len() * width];
    let mut place = 0;
    for agreed in schema {
        let found = columns.iter().find(|column| column.name == agreed.name);
        let column = found.ok_or_else(|| Error::data(format!("column `{}` is missing", agreed.name)))?;
        let rows = values.chunks_exact_mut(width.max(1));
        match (&agreed.encoding, &column.values) {
            (Encoding::Number(scale), Cells::Numbers(numbers)) => {
                rows.zip(&numbers[shard.rows()]).for_each(|(row, number)| row[place] = scale.apply(*number));
            }
            (Encoding::OneHot(names), Cells::Words(words)) => {
                let places: HashMap<&str, usize> = names.iter().map(String::as_str).zip(place..).collect();
                for (row, word) in rows.zip(&words[shard.rows()]) {
                    if let Some(place) = places.get(word.as_str()) {
                        row[*place] = 1.0;
                    }
                }
            }
            (Encoding::Number(_), Cells::Words(_)) => {
                return Err(Error::data(format!("column `{}`: words, want numbers", agreed.name)));
            }
            (Encoding::OneHot(_), Cells::Numbers(_)) => {
                return Err(Error::data(format!("column `{}`: numbers, want words", agreed.name)));
            }
        }
        place += agreed.width();
    }
    Ok(Features::F64 { columns: width, values })
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn fix(clients: &[Client], scale: bool) -> Result<Schema> {
        Schema::fix(&clients.iter().map(|client| describe(client, scale)).collect::<Vec<_>>(), scale)
    }

    #[test]
    fn a_plane_through_encoded_rows_is_one_through_rows_as_they_were_read() {
        let clients = two();
        let schema = fix(&clients, true).unwrap();
        assert!(schema.moves_columns() && !fix(&clients, false).unwrap().moves_columns());
        let slopes = [2.0, 5.0, -1.0, 4.0, 0.5];
        let mut decoded = slopes;
        let gained = schema.decode_slopes(&mut decoded);
        let height =
            |slopes: &[f64], row: &[f64]| slopes.iter().zip(row).map(|(slope, value)| slope * value).sum::<f64>();
        let encoded = [0.7, -1.0, 0.0, 1.0, 0.0];
        let mut row = encoded;
        schema.decode(&mut row);
        assert!((height(&decoded, &row) + gained - height(&slopes, &encoded)).abs() < 1e-12);
        assert_eq!(decoded[2..], slopes[2..], "categories have no unit");
    }

    #[test]
    fn a_table_is_described_by_sums_and_categories() {
        let description = describe(&two()[0], false);
        assert_eq!((description.rows, description.group.as_deref()), (2, Some("north")));
        let FeaturesDescription::Named(columns) = &description.features else { panic!() };
        let moments = Moments { count: 2, mean: 2.0, deviation: 1.0, min: 1.0, max: 3.0 };
        assert_eq!(columns[0].summary, Summary::Numbers(moments));
        assert_eq!(columns[2].summary, Summary::Words(words(&["blue", "green", "red"]).into_iter().collect()));
    }

    #[test]
    fn scaled_and_one_hot() {
        let clients = two();
        let schema = fix(&clients, true).unwrap();
        assert_eq!(schema.shape(), DataShape::numbers(5, 3));
        assert_eq!(schema.feature_names(), ["age", "one", "colour=blue", "colour=green", "colour=red"]);
        assert_eq!(schema.target, TargetSchema::Names(words(&["8", "9", "10"])));
        // ages 1, 3, 5: mean 3, variance 8/3; the constant column becomes 0
        let encoded = schema.encode(&clients[0].train).unwrap();
        let deviation = (8.0f64 / 3.0).sqrt();
        let expected = vec![-2.0 / deviation, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0];
        match &**encoded.features() {
            Features::F64 { columns: 5, values } => {
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
    fn unknown_categories_are_none_of_the_known_and_unknown_classes_are_refused() {
        let schema = fix(&two(), false).unwrap();
        let other = client(&[7.0, 8.0], &["violet", "red"], Targets::Words(words(&["9", "11"])));
        let encoded = schema.encode(&other.train).unwrap();
        assert_eq!(**encoded.features(), Features::F64 { columns: 5, values: vec![7.0, 0.1, 0.0, 0.0, 0.0] });
        let text = schema.encode(&other.test).unwrap_err().to_string();
        assert_eq!(text, "class `11` is not among those agreed on");
    }

    #[test]
    fn a_matrix_keeps_its_storage_unless_scaled() {
        let shard =
            Shard::new(Features::Bytes { columns: 2, values: vec![0, 255, 51, 255] }, Targets::Classes(vec![0, 3]))
                .unwrap();
        let client = Client { id: "a".into(), train: shard.clone(), test: shard.part(0, 2), group: None, truth: None };
        let description = describe(&client, false);
        assert_eq!(description.features, FeaturesDescription::Matrix { columns: 2, moments: vec![] });
        let plain = Schema::fix(&[description], false).unwrap();
        assert_eq!(plain.shape(), DataShape::numbers(2, 4));
        assert!(std::sync::Arc::ptr_eq(plain.encode(&shard).unwrap().features(), shard.features()));
        // first column 0 and 0.2: mean 0.1, deviation 0.1; the second is constant
        let scaled = fix(std::slice::from_ref(&client), true).unwrap().encode(&shard).unwrap();
        match &**scaled.features() {
            Features::F64 { values, .. } => {
                let expected = [-1.0, 0.0, 1.0, 0.0];
                assert!(values.iter().zip(expected).all(|(found, want)| (found - want).abs() < 1e-9), "{values:?}");
            }
            other => panic!("{other:?}"),
        }
        assert!(Schema::fix(&[describe(&client, false)], true).is_err());
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
        assert!(Schema::fix(&[], false).is_err());
    }
}
