//! The cross-products of a client's columns and target, fold by fold: all that fitting a linear model, its cross-validation
//! and tests of it need to know of the rows. Of classes, those of the log-likelihood's expansion at a model.

use super::*;
use crate::data::numbers::convert;
use crate::families::{ClassOdds, Products, Response};
use crate::models::LinearForm;
use crate::rng::Key;
use rand::seq::SliceRandom;

/// The cross-products of the training rows, fold by fold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoldProducts {
    pub(crate) folds: Folds,
    pub(crate) target: TargetScale,
    /// Of classes: the coefficients at which the log-likelihood is expanded.
    pub(crate) at: Vec<f64>,
}

/// How a client's training rows are cut into folds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folds {
    pub(crate) count: u32,
    /// The seed of the draw; without one, folds follow each other in the order of the rows.
    pub(crate) seed: Option<u64>,
}

/// What is subtracted from the target, and what it is divided by then: squares of large numbers would lose digits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TargetScale {
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
}

impl TargetScale {
    /// Of numbers that are taken as they are, and of classes.
    pub(crate) const PLAIN: Self = Self { mean: 0.0, deviation: 1.0 };
}

/// A client's rows as a linear model sees them, each with its fold.
pub(super) struct FoldedRows {
    pub(super) fold: Vec<usize>,
    pub(super) form: LinearForm,
    /// Row-major, with a column of ones behind where the model has an intercept.
    x: Vec<f64>,
    targets: FoldedTargets,
    /// Of classes, where rows do not all count alike.
    weights: Option<Vec<f64>>,
}

enum FoldedTargets {
    Values(Vec<f64>),
    Classes(Vec<usize>),
}

impl FoldedRows {
    pub(super) fn of(context: &ClientContext, folds: Folds, target: TargetScale) -> Result<Self> {
        let rows = &context.client().train;
        let Some(form) = context.model().linear_form() else {
            return Err(context.naming()(Error::federation("products of rows are for linear models")));
        };
        let columns = form.width();
        let mut buffer = Vec::new();
        let features = convert::<f64>(rows, &mut buffer);
        let mut x = Vec::with_capacity(rows.len() * columns);
        for row in features.chunks_exact(rows.columns().max(1)) {
            x.extend_from_slice(row);
            x.extend(std::iter::repeat_n(1.0, columns - rows.columns()));
        }
        let mut weights = rows.weights().map(<[f64]>::to_vec);
        let targets = match rows.classes() {
            Some(classes) => FoldedTargets::Classes(classes.iter().map(|&class| class as usize).collect()),
            None => {
                let values = rows.values().unwrap_or_default().iter();
                let mut values: Vec<f64> = values.map(|y| (y - target.mean) / target.deviation).collect();
                // A row of weight w has noise of variance σ²/w: times √w it is like any other.
                for (place, weight) in weights.take().into_iter().flatten().enumerate() {
                    let root = weight.sqrt();
                    x[place * columns..(place + 1) * columns].iter_mut().for_each(|value| *value *= root);
                    values[place] *= root;
                }
                FoldedTargets::Values(values)
            }
        };
        let minimum = context.guard.minimum().unwrap_or(1);
        let fold = folds.of_rows(rows.len(), minimum, &context.client().id, context.guard.secret());
        let mut sizes = vec![0usize; folds.count as usize];
        fold.iter().for_each(|&fold| sizes[fold] += 1);
        sizes.iter().filter(|size| **size > 0).try_for_each(|&size| context.guard.enough("a fold", size as f64))?;
        Ok(Self { fold, form, x, targets, weights })
    }

    /// Fold, columns and target of every row, where that is a number.
    pub(super) fn values(&self) -> impl Iterator<Item = (usize, &[f64], f64)> {
        let values = if let FoldedTargets::Values(values) = &self.targets { &values[..] } else { &[] };
        self.rows().zip(values).map(|((fold, x), &y)| (fold, x, y))
    }

    /// Fold, columns, class and weight of every row.
    pub(super) fn classes(&self) -> impl Iterator<Item = (usize, &[f64], usize, f64)> {
        let classes = if let FoldedTargets::Classes(classes) = &self.targets { &classes[..] } else { &[] };
        let weight = |place: usize| self.weights.as_ref().map_or(1.0, |weights| weights[place]);
        let row = move |(place, ((fold, x), &class))| (fold, x, class, weight(place));
        let equations = self.form.response.equations();
        self.rows().zip(classes).enumerate().map(row).filter(move |(_, _, class, _)| *class <= equations)
    }

    fn rows(&self) -> impl Iterator<Item = (usize, &[f64])> {
        self.fold.iter().copied().zip(self.x.chunks_exact(self.form.width().max(1)))
    }
}

impl Folds {
    /// The fold of every row of a client. Small clients begin at a fold of their own, so that no fold lacks them all.
    pub(crate) fn of_rows(self, rows: usize, minimum: usize, client: &str, secret: Option<u64>) -> Vec<usize> {
        let count = self.count as usize;
        let Some(seed) = self.seed else {
            // Folds are made of blocks that are the same for every number of folds: two answers never differ by a few rows.
            let blocks = (rows / minimum.max(1)).max(1);
            return (0..rows).map(|row| (row / minimum.max(1)).min(blocks - 1) * count / blocks).collect();
        };
        // Where answers are about so many rows at least, a client has as many folds as they make.
        let full = count.min((rows / minimum.max(1)).max(1));
        let mut rng = Key::new(seed).word("folds").word(client).number(secret.unwrap_or(0)).rng();
        let mut folds: Vec<usize> = (0..count).collect();
        folds.shuffle(&mut rng);
        let mut fold: Vec<usize> = (0..rows).map(|row| folds[row % full]).collect();
        fold.shuffle(&mut rng);
        fold
    }
}

/// A client's products, one entry for every fold.
#[derive(Debug, Clone, PartialEq)]
pub struct ByFold(pub(crate) Vec<Products>);

impl Answer for ByFold {
    fn read(counts: &[u32], numbers: &[f64]) -> Self {
        let each = (numbers.len() / counts.len().max(1)).max(1);
        let fold = |(rows, values): (&u32, &[f64])| Products { rows: *rows as usize, values: values.to_vec() };
        Self(counts.iter().zip(numbers.chunks_exact(each)).map(fold).collect())
    }

    fn write(self, counts: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        for fold in self.0 {
            counts.push(fold.rows as u32);
            numbers.extend(fold.values);
        }
    }
}

pub(super) fn misfit() -> Error {
    Error::federation("coefficients that do not fit the clients' columns")
}

impl Telling for FoldProducts {
    const TELLS: Tells = Tells::numbers("products of its columns and its target, summed over each fold of its rows")
        .with_counts("the rows of each fold");
}

impl Kind for FoldProducts {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&[][..], Capability::Descent)
    }

    fn sends(&self, width: usize) -> Sends {
        let folds = self.folds.count as usize;
        let width = if self.at.is_empty() { width } else { self.at.len() };
        Sends::numbers(folds * (width + 1) * (width + 2) / 2).with_counts(folds)
    }

    fn cost(&self, load: &Load) -> Cost {
        load.solves(1.0)
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let rows = FoldedRows::of(context, self.folds, self.target)?;
        let columns = rows.form.coefficients();
        let mut folds = vec![Products::none(columns); self.folds.count as usize];
        match rows.form.response {
            Response::Numbers => rows.values().for_each(|(fold, x, y)| folds[fold].add_row(x, y, 1.0)),
            Response::Classes { equations } => {
                if self.at.len() != columns {
                    return Err(context.naming()(misfit()));
                }
                let mut odds = ClassOdds::new(equations);
                for (fold, x, class, weight) in rows.classes() {
                    odds.set(x, &self.at);
                    folds[fold].add_class(x, class, &odds, weight);
                }
            }
        }
        Ok(context.reply(ByFold(folds), None))
    }

    fn fault(&self) -> Option<&'static str> {
        let TargetScale { mean, deviation } = self.target;
        if self.folds.count < 2 {
            return Some("has fewer than two folds");
        }
        if self.at.iter().any(|value| !value.is_finite()) {
            return Some("has coefficients that are not finite");
        }
        (!mean.is_finite() || deviation.is_nan() || deviation <= 0.0).then_some("has an impossible scale of the target")
    }

    /// Squares add up to no negative number.
    fn implausible(&self, reply: &Reply, _: f64) -> Option<String> {
        let folds = ByFold::read(&reply.counts, &reply.numbers).0;
        let rows: usize = folds.iter().map(|fold| fold.rows).sum();
        if rows != reply.rows as usize {
            return Some(format!("folds of {rows} rows where there are {}", reply.rows));
        }
        if let Some(product) = reply.numbers.iter().find(|product| !product.is_finite()) {
            return Some(format!("{product} for a sum of products, which nothing can be learned from"));
        }
        let negative = folds.iter().flat_map(Products::squares).find(|square| *square < 0.0);
        negative.map(|square| format!("{square:.1e} for a sum of squares, which cannot be"))
    }

    /// The largest mean square of a column.
    fn loss(&self, reply: &Reply) -> Option<f64> {
        let folds = ByFold::read(&reply.counts, &reply.numbers).0;
        let of = |fold: &Products| fold.squares().reduce(reply::larger).map(|square| square / fold.rows.max(1) as f64);
        folds.iter().filter_map(of).reduce(reply::larger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::threads;
    use crate::data::{Client, DataShape, Features, Shard, Targets};
    use crate::federation::engines::local::LocalFederation;
    use crate::federation::{Ask, Federation, Gather, Phase, Recipients};
    use crate::models::Model;
    use crate::settings::Settings;
    use std::sync::Arc;

    #[test]
    fn folds_are_even_and_differ_between_clients() {
        let folds = Folds { count: 5, seed: Some(1) };
        let of = |client: &str, rows: usize| folds.of_rows(rows, 1, client, None);
        let mut sizes = [0; 5];
        of("a", 23).iter().for_each(|&fold| sizes[fold] += 1);
        assert!(sizes.iter().all(|size| (4..=5).contains(size)), "{sizes:?}");
        assert_eq!(of("a", 23), of("a", 23));
        assert_ne!(of("a", 23), of("b", 23));
        let single: std::collections::BTreeSet<usize> = (0..40).map(|client| of(&client.to_string(), 1)[0]).collect();
        assert_eq!(single.len(), 5, "clients of one row are in all folds");
        let ordered = |count: u32, minimum: usize| Folds { count, seed: None }.of_rows(7, minimum, "a", None);
        assert_eq!(ordered(3, 1), [0, 0, 0, 1, 1, 2, 2]);
        assert_eq!((ordered(3, 3), ordered(2, 3)), (vec![0, 0, 0, 1, 1, 1, 1], vec![0, 0, 0, 1, 1, 1, 1]));
    }

    /// The products of a client's rows, folds together.
    fn products(model: &str, x: Vec<f64>, targets: Targets, weights: Option<Vec<f64>>) -> Vec<f64> {
        let kind = crate::models::kind(model).unwrap();
        let settings = Settings::check("m", kind.settings, toml::Table::new(), &mut Vec::new());
        let classes = if matches!(targets, Targets::Classes(_)) { 2 } else { 0 };
        let model: Arc<dyn Model> = Arc::from(kind.make(&settings, DataShape::numbers(1, classes)).unwrap());
        let rows = Shard::new(Features::F64 { columns: 1, values: x }, targets).unwrap();
        let client = Client::new("it", rows.weighted(weights.map(Arc::new)).unwrap());
        let mut federation = LocalFederation::new(vec![client], threads(1).unwrap());
        federation.set_model(model).unwrap();
        let at = if classes == 2 { vec![0.5, -0.25] } else { Vec::new() };
        let work = FoldProducts { folds: Folds { count: 2, seed: Some(0) }, target: TargetScale::PLAIN, at };
        let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
        let order = ask.order(Recipients::All, work);
        let by_fold = federation.ask(&ask).unwrap().of(order).at(0).0;
        let mut total = Products::none(2);
        by_fold.iter().for_each(|fold| total.add(fold));
        total.values
    }

    #[test]
    fn a_row_of_weight_2_counts_like_two() {
        let (once, twice) = (vec![1.5, -2.0, 4.0], vec![1.5, -2.0, -2.0, 4.0]);
        for (model, targets, more) in [
            ("linear", Targets::Values(vec![1.0, 5.0, 3.0]), Targets::Values(vec![1.0, 5.0, 5.0, 3.0])),
            ("logistic", Targets::Classes(vec![0, 1, 1]), Targets::Classes(vec![0, 1, 1, 1])),
        ] {
            let weighted = products(model, once.clone(), targets, Some(vec![1.0, 2.0, 1.0]));
            for (weighted, repeated) in weighted.iter().zip(products(model, twice.clone(), more, None)) {
                assert!((weighted - repeated).abs() < 1e-12, "{model}: {weighted}, want {repeated}");
            }
        }
    }

    #[test]
    fn products_travel_as_they_are() {
        let mut products = vec![Products::none(2); 2];
        products[1].add_row(&[2.0, 1.0], 3.0, 1.0);
        let (mut counts, mut numbers) = (Vec::new(), Vec::new());
        ByFold(products.clone()).write(&mut counts, &mut numbers);
        assert_eq!((counts.as_slice(), &numbers[6..]), (&[0, 1][..], &[4.0, 2.0, 6.0, 1.0, 3.0, 9.0][..]));
        assert_eq!(ByFold::read(&counts, &numbers).0, products);
        assert_eq!(products[1].squares().collect::<Vec<_>>(), [4.0, 1.0, 9.0]);
    }
}
