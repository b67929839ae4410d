//! Products of features of two columns, by which the effect of one may depend on the other.

use super::scaling::Scale;
use super::schema::{ColumnSchema, Encoding, FeaturesSchema, Schema};
use crate::data::{Features, Shard, Targets};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Features that a column may have for its products to be taken: those of words with many kinds would be too many.
const MOST_PARTS: usize = 12;
/// Products in all.
const MOST_PRODUCTS: usize = 60;

/// A feature of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    column: usize,
    /// Its place among those of the column.
    part: usize,
}

/// The product of two features, as they are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interaction {
    first: Part,
    second: Part,
    /// Of the columns whose products are taken, that of the first feature.
    pub(crate) group: usize,
}

/// A column whose products may be taken, and its features in an encoded row.
pub(crate) struct Interacting {
    pub(crate) column: usize,
    pub(crate) name: String,
    pub(crate) features: Range<usize>,
}

impl Schema {
    /// The columns that may interact with others.
    pub(crate) fn interacting(&self) -> Vec<Interacting> {
        let FeaturesSchema::Named(columns) = &self.features else { return Vec::new() };
        let mut begin = 0;
        let mut found = Vec::new();
        for (place, column) in columns.iter().enumerate() {
            let parts = column.parts();
            if (1..=MOST_PARTS).contains(&parts) {
                let features = begin..begin + parts;
                found.push(Interacting { column: place, name: column.name.clone(), features });
            }
            begin += column.width();
        }
        found
    }

    /// With the products of each of these columns' features and those of all other columns, of a group for each. Where that would be too
    /// many, columns of many features are left out.
    pub(crate) fn with_interactions(&self, strongest: &[usize]) -> Self {
        let mut others = self.interacting();
        others.sort_by_key(|column| (column.features.len(), column.column));
        let mut interactions: Vec<Interaction> = Vec::new();
        for other in others {
            let mut further = Vec::new();
            for (group, &column) in strongest.iter().enumerate() {
                // A pair of the strongest is of the first one's group.
                if column == other.column || strongest[..group].contains(&other.column) {
                    continue;
                }
                let parts = self.interacting().into_iter().find(|own| own.column == column);
                for part in 0..parts.map_or(0, |own| own.features.len()) {
                    let product = |second: usize| Interaction {
                        first: Part { column, part },
                        second: Part { column: other.column, part: second },
                        group,
                    };
                    further.extend((0..other.features.len()).map(product));
                }
            }
            if interactions.len() + further.len() <= MOST_PRODUCTS {
                interactions.extend(further);
            }
        }
        interactions
            .sort_by_key(|product| (product.group, product.first.part, product.second.column, product.second.part));
        Self { interactions, ..self.clone() }
    }

    /// With the products of some groups alone, and which features are left.
    pub(crate) fn with_groups(&self, groups: &[usize]) -> (Self, Vec<usize>) {
        let first = self.width_of_columns();
        let is_left = |product: &Interaction| groups.contains(&product.group);
        let products = self.interactions.iter().zip(first..).filter(|(product, _)| is_left(product));
        let left = (0..first).chain(products.map(|(_, place)| place)).collect();
        let interactions = self.interactions.iter().copied().filter(is_left).collect();
        (Self { interactions, ..self.clone() }, left)
    }

    /// Features of the columns themselves.
    pub(super) fn width_of_columns(&self) -> usize {
        match &self.features {
            FeaturesSchema::Matrix { columns, .. } => *columns,
            FeaturesSchema::Named(columns) => columns.iter().map(ColumnSchema::width).sum(),
        }
    }

    /// The two features of every product.
    pub(super) fn factors(&self) -> Vec<[usize; 2]> {
        let FeaturesSchema::Named(columns) = &self.features else { return Vec::new() };
        let mut begin = 0;
        let mut begins = Vec::new();
        for column in columns {
            begins.push(begin);
            begin += column.width();
        }
        let place = |part: Part| begins.get(part.column).map_or(0, |begin| begin + part.part);
        self.interactions.iter().map(|product| [place(product.first), place(product.second)]).collect()
    }

    /// Whether all products are of features that there are.
    pub(crate) fn has_its_factors(&self) -> bool {
        let columns: &[ColumnSchema] = match &self.features {
            FeaturesSchema::Matrix { .. } => &[],
            FeaturesSchema::Named(columns) => columns,
        };
        let is_there = |part: Part| columns.get(part.column).is_some_and(|column| part.part < column.parts());
        self.interactions.iter().all(|product| is_there(product.first) && is_there(product.second))
    }

    /// Converts the slopes of products to those of products of the original values. What the scales of a product's factors leave over is
    /// slopes of these, still of encoded rows, and a part of the intercept, which is returned.
    pub(super) fn decode_products(&self, slopes: &mut [f64], scales: &[Scale]) -> f64 {
        let mut gained = 0.0;
        for (place, [first, second]) in (self.width_of_columns()..).zip(self.factors()) {
            let (one, other) = (scales[first], scales[second]);
            // γ·(a − m)/s·(b − n)/t = γ/(st)·ab − γn/t·(a − m)/s − γm/s·(b − n)/t − γmn/(st).
            let slope = slopes[place];
            slopes[place] = slope / (one.deviation * other.deviation);
            slopes[first] -= slope * other.mean / other.deviation;
            slopes[second] -= slope * one.mean / one.deviation;
            gained -= slopes[place] * one.mean * other.mean;
        }
        gained
    }

    /// Appends the products to rows that are encoded without them.
    pub(crate) fn widen(&self, shard: &Shard) -> Result<Shard> {
        let narrow = self.width_of_columns();
        let values = match &**shard.features() {
            Features::F64 { columns, values } if *columns == narrow => values,
            _ => return Err(Error::data(format!("rows of another kind, want {narrow} encoded features"))),
        };
        let factors = self.factors();
        let mut wide = Vec::with_capacity(shard.len() * (narrow + factors.len()));
        for row in shard.rows() {
            let row = &values[row * narrow..(row + 1) * narrow];
            wide.extend_from_slice(row);
            wide.extend(factors.iter().map(|[first, second]| row[*first] * row[*second]));
        }
        let features = Features::F64 { columns: narrow + factors.len(), values: wide };
        let weights = shard.weights().map(|weights| Arc::new(weights.to_vec()));
        let targets = match (shard.values(), shard.classes()) {
            (Some(values), _) => Targets::Values(values.to_vec()),
            (_, Some(classes)) => Targets::Classes(classes.to_vec()),
            (None, None) => Targets::None,
        };
        Shard::new(features, targets)?.weighted(weights)
    }
}

impl ColumnSchema {
    /// How many of its features are neither bends nor the marker of missing cells: the first ones.
    fn parts(&self) -> usize {
        match &self.encoding {
            Encoding::Number(_) => 1,
            Encoding::Date { .. } => self.width() - usize::from(self.is_marked()),
            Encoding::OneHot { .. } => self.width(),
            Encoding::LeftOut(_) | Encoding::Nothing => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::schema::{Coding, describe};
    use crate::data::{Cells, Client, Column};

    fn shard(rows: &[(f64, &str, f64)]) -> Shard {
        let column = |name: &str, values| Column { name: name.into(), values };
        let columns = vec![
            column("size", Cells::Numbers(rows.iter().map(|row| row.0).collect())),
            column("kind", Cells::Words(rows.iter().map(|row| row.1.to_string()).collect())),
            column("age", Cells::Numbers(rows.iter().map(|row| row.2).collect())),
        ];
        Shard::new(Features::Columns(columns), Targets::Values(vec![0.0; rows.len()])).unwrap()
    }

    fn schema(rows: &[(f64, &str, f64)]) -> Schema {
        let train = shard(rows);
        let client = Client { id: "a".into(), test: train.part(0, 2), train, group: None, truth: None };
        let coding = Coding {
            standardise: true,
            constant: true,
            kinds: 50,
            curves: true,
            numbers_only: false,
            means_alone: false,
        };
        Schema::fix(&[describe(&client, true)], coding).unwrap()
    }

    const ROWS: [(f64, &str, f64); 5] =
        [(1.0, "red", 10.0), (2.0, "blue", 30.0), (4.0, "blue", 20.0), (7.0, "red", 5.0), (3.0, "green", 8.0)];

    #[test]
    fn products_stand_behind_and_are_decoded() {
        let wide = schema(&ROWS).with_interactions(&[2, 0]);
        let products = ["age*size", "age*kind=green", "age*kind=red", "size*kind=green", "size*kind=red"];
        assert!(wide.feature_names().ends_with(&products.map(str::to_string)), "{:?}", wide.feature_names());
        assert!(wide.has_its_factors());
        let encoded = wide.encode(&shard(&ROWS)).unwrap();
        let widened = wide.widen(&schema(&ROWS).encode(&shard(&ROWS)).unwrap()).unwrap();
        assert_eq!(encoded.features(), widened.features());
        // A function of encoded rows is the same function of the cells.
        let names = wide.feature_names();
        let bent = |name: &String| name.contains(".bend");
        let slopes: Vec<f64> =
            names.iter().zip(1..).map(|(name, n)| if bent(name) { 0.0 } else { f64::from(n) / 3.0 }).collect();
        let mut decoded = slopes.clone();
        let gained = wide.decode_slopes(&mut decoded);
        let Features::F64 { values, .. } = &**encoded.features() else { panic!() };
        for (row, (size, kind, age)) in values.chunks_exact(names.len()).zip(ROWS) {
            let value = |term: &str| match term {
                "size" => size,
                "age" => age,
                _ => f64::from(u8::from(term == format!("kind={kind}"))),
            };
            let by_hand: f64 = (names.iter().zip(&decoded))
                .map(|(name, slope)| slope * name.split('*').map(value).product::<f64>())
                .sum();
            let wanted: f64 = row.iter().zip(&slopes).map(|(value, slope)| value * slope).sum();
            assert!((by_hand + gained - wanted).abs() < 1e-9, "{by_hand} + {gained}, want {wanted}");
        }
        let (one, left) = wide.with_groups(&[1]);
        assert_eq!(one.interactions.len(), 2);
        assert_eq!(left.iter().map(|&at| names[at].clone()).collect::<Vec<_>>(), one.feature_names());
        let (slim, left) = one.without_bends(|_| false);
        assert_eq!(slim.feature_names(), left.iter().map(|&at| one.feature_names()[at].clone()).collect::<Vec<_>>());
    }

    #[test]
    fn products_of_features_that_are_not_there_are_refused() {
        let mut wide = schema(&ROWS).with_interactions(&[0, 2]);
        wide.interactions[0].second.part = 9;
        assert!(!wide.has_its_factors());
        assert!(wide.encode(&shard(&ROWS)).is_err());
    }

    #[test]
    fn words_of_many_kinds_have_no_products() {
        let names: Vec<String> = (0..40).map(|number| format!("k{}", number % 20)).collect();
        let rows: Vec<(f64, &str, f64)> =
            names.iter().zip(0..).map(|(name, n)| (f64::from(n * 7 % 11), &**name, f64::from(n * 5 % 13))).collect();
        let wide = schema(&rows).with_interactions(&[0, 2]);
        assert_eq!(wide.interactions.len(), 1, "{:?}", wide.feature_names());
    }
}
