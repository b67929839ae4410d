//! What serves the clients of new rows: a prediction with its variance, from the columns that the model uses.
//!
//! The uncertainty of a client's coefficients is a quadratic form in the coordinates of the model's basis, where that of the columns with
//! coefficients of the client's own and that of the others' are apart: the first is kept with the client, the second with its family.

use super::Saved;
use super::output::{Format, Lines};
use super::predict::{Met, Service, Serving, TargetLines};
use crate::data::known::{KnownBatch, KnownColumns};
use crate::data::numbers::convert;
use crate::data::schema::Schema;
use crate::error::Result;
use crate::families::{ClassMix, ClassOdds, LearnedClient, Newcomer, Predictor, most_probable};
use crate::num::dot;
use std::ops::Range;

/// What can serve clients.
pub(super) struct Servings<'a> {
    saved: &'a Saved,
    /// Encodes the columns that the model uses.
    schema: Schema,
    /// What these are among all, and the intercept.
    used: Vec<usize>,
    /// The columns of the basis among the used ones.
    kept: Vec<usize>,
    /// The covariance of every family's common coefficients: the upper triangle, row by row.
    commons: Vec<Vec<f64>>,
}

/// What the rows of a client are predicted with.
pub(super) enum Model<'a> {
    Number {
        coefficients: Vec<f64>,
        uncertainty: Uncertainty<'a>,
        noise: f64,
        /// By how many standard deviations an interval reaches to either side.
        reach: f64,
    },
    Class(ClassMix),
}

/// The covariance of coefficients: upper triangles, row by row.
pub(super) enum Uncertainty<'a> {
    /// In the coordinates of the basis.
    Known { own: Vec<f64>, common: &'a [f64] },
    /// Of the used columns.
    New(Vec<f64>),
}

/// A row, and room to work in.
struct Row {
    /// Used columns, and 1.
    values: Vec<f64>,
    /// In the coordinates of the basis.
    moved: Vec<f64>,
    odds: ClassOdds,
    probabilities: Vec<f64>,
}

impl Row {
    fn new(servings: &Servings, columns: usize) -> Self {
        let saved = servings.saved;
        Self {
            values: vec![1.0; columns + 1],
            moved: Vec::new(),
            odds: ClassOdds::new(saved.model.learned.response.equations()),
            probabilities: vec![0.0; saved.classes.len()],
        }
    }

    fn columns_mut(&mut self) -> &mut [f64] {
        let (_, columns) = self.values.split_last_mut().unwrap_or((&mut 0.0, &mut []));
        columns
    }
}

/// What is predicted for a row.
pub(super) enum Predicted<'a> {
    /// A number with the ends of its interval.
    Number([f64; 3]),
    /// The most probable class, and the probabilities of all.
    Class { class: usize, name: &'a str, probabilities: &'a [f64] },
}

impl Predicted<'_> {
    pub(super) fn values(&self) -> &[f64] {
        match self {
            Self::Number(values) => values,
            Self::Class { probabilities, .. } => probabilities,
        }
    }

    /// Whether the interval has the value in it, or the class is the one; `None` where neither is there.
    pub(super) fn is_right(&self, value: Option<f64>, class: Option<usize>) -> Option<bool> {
        match self {
            Self::Number([_, low, high]) => value.map(|value| (*low..=*high).contains(&value)),
            Self::Class { class: own, probabilities, .. } => {
                class.filter(|class| *class < probabilities.len()).map(|class| class == *own)
            }
        }
    }
}

impl<'a> Servings<'a> {
    pub(super) fn new(saved: &'a Saved) -> Self {
        let learned = &saved.model.learned;
        let basis = &learned.basis;
        let (schema, mut used) = saved.used_columns();
        used.push(saved.columns.shape().columns);
        let place = |given: &usize| used.iter().position(|used| used == given).unwrap_or(0);
        let kept = basis.kept.iter().map(place).collect();
        let (p, q) = (basis.kept.len(), basis.random);
        let common = |covariance: &Vec<f64>| (q..p).flat_map(|i| covariance[i * p + i..(i + 1) * p].to_vec()).collect();
        let commons = learned.population.covariances.iter().map(common).collect();
        Self { saved, schema, used, kept, commons }
    }

    /// What serves a client of which something is known.
    fn own(&self, client: &LearnedClient) -> Model<'_> {
        match self.has_classes() {
            true => Model::Class(ClassMix::one(client.served.clone())),
            false => Model::Number {
                coefficients: self.used.iter().map(|&given| client.served[given]).collect(),
                uncertainty: Uncertainty::Known {
                    own: client.covariance.clone(),
                    common: &self.commons[client.family],
                },
                noise: client.noise,
                reach: self.reach(),
            },
        }
    }

    /// What serves a client of which nothing is known but the probabilities of the families.
    fn member(&self, shares: &[f64]) -> Model<'_> {
        let learned = &self.saved.model.learned;
        match self.has_classes() {
            true => Model::Class(learned.member_classes(shares)),
            false => self.number(&learned.member_predictor(shares), self.newcomer_reach()),
        }
    }

    fn has_classes(&self) -> bool {
        !self.saved.classes.is_empty()
    }

    fn reach(&self) -> f64 {
        self.saved.model.intervals.as_ref().map_or(f64::NAN, |intervals| intervals.reach)
    }

    fn newcomer_reach(&self) -> f64 {
        self.saved.model.intervals.as_ref().map_or(f64::NAN, |intervals| intervals.newcomer_reach)
    }

    fn number(&self, predictor: &Predictor, reach: f64) -> Model<'_> {
        let width = predictor.coefficients.len();
        let line = |(place, &i): (usize, &usize)| {
            self.used[place..].iter().map(|&j| predictor.covariance[i * width + j]).collect::<Vec<f64>>()
        };
        Model::Number {
            coefficients: self.used.iter().map(|&given| predictor.coefficients[given]).collect(),
            uncertainty: Uncertainty::New(self.used.iter().enumerate().flat_map(line).collect()),
            noise: predictor.noise,
            reach,
        }
    }

    /// What is predicted for a row.
    fn predict<'r>(&'r self, model: &Model, row: &'r mut Row) -> Predicted<'r> {
        let (target, basis) = (self.saved.model.target, &self.saved.model.learned.basis);
        let Row { values, moved, odds, probabilities } = row;
        match model {
            Model::Class(mix) => {
                mix.probabilities(values, odds, probabilities);
                let class = most_probable(probabilities);
                Predicted::Class { class, name: &self.saved.classes[class], probabilities }
            }
            Model::Number { coefficients, uncertainty, noise, reach } => {
                let uncertain = match uncertainty {
                    Uncertainty::New(covariance) => quadratic(covariance, values),
                    Uncertainty::Known { own, common } => {
                        let scales = basis.means.iter().zip(&basis.scales);
                        moved.clear();
                        moved.extend(
                            self.kept.iter().zip(scales).map(|(&at, (mean, scale))| (values[at] - mean) / scale),
                        );
                        let (random, others) = moved.split_at(basis.random);
                        quadratic(own, random) + quadratic(common, others)
                    }
                };
                let mean = target.mean + target.deviation * dot(coefficients, values);
                let reach = reach * target.deviation * (noise + uncertain.max(0.0)).sqrt();
                Predicted::Number([mean, mean - reach, mean + reach])
            }
        }
    }
}

impl Service for Servings<'_> {
    type Model<'s>
        = Model<'s>
    where
        Self: 's;
    type Newcomer = Newcomer;

    fn columns(&self) -> KnownColumns<'_> {
        KnownColumns { schema: &self.schema, ..self.saved.known_columns() }
    }

    fn known(&self, name: &str) -> Option<Serving<Model<'_>>> {
        let client = &self.saved.model.learned.clients[self.saved.place(name)?];
        if client.is_elsewhere() {
            let by = format!("family {}, its own model is on its machine", self.saved.model.learned.number_of(client));
            return Some(Serving { model: self.member(&client.responsibilities), by: by.into(), is_known: true });
        }
        let by = self.saved.served_by(client);
        Some(Serving { model: self.own(client), by: by.into(), is_known: true })
    }

    fn newcomer(&self, newcomer: Newcomer) -> Serving<Model<'_>> {
        let (client, learned) = (&newcomer.client, &self.saved.model.learned);
        let by = format!("{} near family {}", self.saved.served_by(client), learned.number_of(client));
        Serving { model: self.own(client), by: by.into(), is_known: false }
    }

    fn unknown(&self) -> Serving<Model<'_>> {
        let learned = &self.saved.model.learned;
        let model = self.member(&learned.shares());
        let by = if learned.families.len() > 1 { "families by share" } else { "everybody" };
        Serving { model, by: by.into(), is_known: false }
    }

    fn predict_part<'s>(
        &'s self,
        batch: &KnownBatch,
        part: Range<usize>,
        format: Format,
        met: &Met<'_, Model<'s>>,
    ) -> Result<(Lines, [u64; 2])> {
        let rows = batch.encoded(&self.schema, part.clone())?;
        let columns = rows.columns();
        let mut buffer = Vec::new();
        let x = convert::<f64>(&rows, &mut buffer);
        let mut found = TargetLines::default();
        let mut row = Row::new(self, columns);
        for (place, number) in part.enumerate() {
            let serving = met.of(number);
            row.columns_mut().copy_from_slice(&x[place * columns..(place + 1) * columns]);
            let predicted = self.predict(&serving.model, &mut row);
            found.push(format, (&rows, place), (batch, number), &predicted, serving);
        }
        Ok((found.lines, found.counts))
    }
}

/// `xᵀAx` of a symmetric matrix by its upper triangle.
fn quadratic(triangle: &[f64], x: &[f64]) -> f64 {
    let (mut rest, mut sum) = (triangle, 0.0);
    for (place, &value) in x.iter().enumerate() {
        let (line, more) = rest.split_at(x.len() - place);
        sum += value * (2.0 * dot(line, &x[place..]) - line[0] * value);
        rest = more;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::TableSettings;
    use crate::data::known::KnownRows;
    use crate::fit::{FitSettings, fit};
    use crate::run::{Options, Unwatched};

    #[test]
    fn quadratic_forms_by_hand() {
        // 1·1 + 2·(1·2·½) + 4·2 = 11
        assert_eq!(quadratic(&[1.0, 0.5, 2.0], &[1.0, 2.0]), 11.0);
        assert_eq!(quadratic(&[], &[]), 0.0);
    }

    #[test]
    fn the_same_as_with_all_columns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let fitted = |mut state: u64| {
            let mut text = "client,kind,x,y\n".to_string();
            let mut draw = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 33) % 1000) as f64
            };
            for row in 0..480 {
                let (client, x) = (row % 12, draw());
                let y = client as f64 + x / 2.0 + draw() - draw();
                text += &format!("c{client},{},{x},{y}\n", ["red", "green", "blue"][row % 7 % 3]);
            }
            std::fs::write(&path, text).unwrap();
            let (client, target) = ("client".to_string(), Some("y".to_string()));
            let table = TableSettings { path: path.display().to_string(), client, target, ..TableSettings::default() };
            let settings = FitSettings { table, quick: true, ..FitSettings::default() };
            fit(settings, &Options::default(), &mut Unwatched, &mut |_| {}).unwrap()
        };
        // Straight lines: as a rule, cross-validation takes no curve, whose columns are not used then.
        let is_shorter = |saved: &Saved| Servings::new(saved).used.len() < saved.model.learned.basis.given;
        let saved = (0..8).map(fitted).find(is_shorter).expect("a table without curves");
        let servings = Servings::new(&saved);
        let mut rows = KnownRows::open(&path, saved.known_columns()).unwrap();
        let batch = rows.next_batch().unwrap().unwrap();
        let [used, all] = [&servings.schema, &saved.columns].map(|schema| {
            let rows = batch.encoded(schema, 0..batch.clients.len()).unwrap();
            let mut buffer = Vec::new();
            let values = convert::<f64>(&rows, &mut buffer).to_vec();
            values.chunks(rows.columns()).map(<[f64]>::to_vec).collect::<Vec<Vec<f64>>>()
        });
        let target = saved.model.target;
        for (place, client) in batch.clients.iter().enumerate().step_by(7) {
            let learned = |name: &str| &saved.model.learned.clients[saved.place(name).unwrap()];
            let known = (servings.known(client).unwrap(), saved.model.learned.predictor(learned(client)));
            let unknown = (servings.unknown(), saved.model.learned.unknown_predictor());
            for (serving, predictor) in [known, unknown] {
                let mut row = Row::new(&servings, used[place].len());
                row.columns_mut().copy_from_slice(&used[place]);
                let Predicted::Number([mean, low, high]) = servings.predict(&serving.model, &mut row) else { panic!() };
                let plain = [&all[place][..], &[1.0]].concat();
                let wanted = target.mean + target.deviation * predictor.mean(&plain);
                assert!((mean / wanted - 1.0).abs() < 1e-9, "{mean}, want {wanted}");
                let reach = if serving.is_known { servings.reach() } else { servings.newcomer_reach() };
                let wanted = 2.0 * reach * target.deviation * predictor.variance(&plain).sqrt();
                assert!(((high - low) / wanted - 1.0).abs() < 1e-9, "{low} to {high}, want {wanted}");
            }
        }
    }
}
