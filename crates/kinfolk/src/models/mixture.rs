//! What both kinds of mixtures are as models: parameters in a row, a likelihood, and components to tell rows apart by.

use super::*;
use crate::clustering::quality::match_clusters;
use crate::data::UNKNOWN_CLASS;
use crate::mixture::{Covariance, Family, Noise, Rows, Scratch, classify};
use crate::settings::Auto;

settings! {
    /// How many components there are.
    pub struct Components {
        /// components of the mixture; auto finds the number with the best BIC over all clients
        components: Auto<usize> [1..=10_000],
        /// how many components auto tries
        #[only_with(components = "auto")]
        most_components: usize [1..=10_000] = 15,
    }
}

impl Components {
    /// The components a model is to have; 1 stands in for a number that is yet to be found.
    pub(super) fn count(&self) -> usize {
        self.components.given().unwrap_or(1)
    }
}

/// How many components are to be tried, where their number is to be found.
pub(crate) fn most_components(settings: &Settings) -> Option<usize> {
    let Components { components, most_components } = Components::read(settings)?;
    (components == Auto::Auto).then_some(most_components)
}

pub(super) struct MixtureModel {
    shape: Shape,
    layout: Layout,
    metrics: &'static [Metric],
}

impl MixtureModel {
    pub(super) fn new(shape: Shape, classes: usize) -> Self {
        let count = shape.components;
        let scatter: Option<(&str, Vec<usize>)> = match shape.family {
            Family::Gaussian(Covariance::Identity) | Family::Regression { noise: Noise::Unit, .. } => None,
            Family::Gaussian(Covariance::Spherical) => Some(("variances", vec![count])),
            Family::Gaussian(Covariance::Diagonal) => Some(("variances", vec![count, shape.columns])),
            Family::Gaussian(Covariance::Tied) => Some(("covariance", vec![shape.columns, shape.columns])),
            Family::Gaussian(Covariance::Full) => Some(("covariances", vec![count, shape.columns, shape.columns])),
            Family::Regression { noise: Noise::Common, .. } => Some(("noise", vec![1])),
        };
        let centres = if matches!(shape.family, Family::Gaussian(_)) { "centres" } else { "coefficients" };
        let place = |name: &str, shape: Vec<usize>, offset| TensorPlace { name: name.into(), shape, offset };
        let mut tensors = vec![place(centres, vec![count, shape.width()], 0)];
        tensors.extend(scatter.map(|(name, size)| place(name, size, shape.scatter().start)));
        tensors.push(place("weights", vec![count], shape.weights().start));
        let classed = classes > 0 && matches!(shape.family, Family::Gaussian(_));
        let metrics: &[Metric] = if classed { &[Metric::RowError, Metric::LogLoss] } else { &[Metric::LogLoss] };
        Self { shape, layout: Layout { tensors }, metrics }
    }
}

impl Model for MixtureModel {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn precision(&self) -> Precision {
        Precision::F64
    }

    fn metrics(&self) -> &'static [Metric] {
        self.metrics
    }

    fn least_loss(&self) -> f64 {
        f64::NEG_INFINITY
    }

    /// Where it begins is for the data to say; this is a mixture that tells nothing apart.
    fn initialise(&self, _: &mut Rng) -> Result<Vec<f64>> {
        let mut params = vec![0.0; self.shape.len()];
        params[self.shape.weights()].fill(1.0 / self.shape.components as f64);
        Ok(params)
    }

    fn check(&self, client: &Client) -> Result<()> {
        let id = &client.id;
        if matches!(self.shape.family, Family::Regression { .. }) && client.train.values().is_none() {
            return Err(Error::data(format!(
                "client {id}: no target that is a number, which a regression-mixture needs"
            ))
            .hint("name one with data.target, or use a gaussian-mixture"));
        }
        for (part, shard) in [("training", &client.train), ("test", &client.test)] {
            if let Some(row) = odd_row(shard) {
                return Err(Error::data(format!("client {id}: {part} row {row} has a number that is not finite")));
            }
        }
        Ok(())
    }

    fn worker(&self, models: &[&[f64]]) -> Box<dyn Worker> {
        let models = models.iter().map(|model| model.to_vec()).collect();
        Box::new(MixtureWorker { shape: self.shape, models, loaded: Vec::new(), scratch: Scratch::default() })
    }

    fn mixture(&self) -> Option<&Shape> {
        Some(&self.shape)
    }

    /// Centres, centres with their scatter, or everything.
    fn travels(&self, numbers: usize) -> bool {
        self.layout.tensors.iter().any(|tensor| tensor.range().end == numbers)
    }

    fn prepared_numbers(&self, rows: usize) -> usize {
        rows * (self.shape.width() + 1)
    }
}

/// The first row with a number that is not finite.
fn odd_row(shard: &Shard) -> Option<usize> {
    let columns = shard.columns().max(1);
    let rows = shard.rows();
    let range = rows.start * columns..rows.end * columns;
    let features = match &**shard.features() {
        Features::F32 { values, .. } => values[range].iter().position(|value| !value.is_finite()),
        Features::F64 { values, .. } => values[range].iter().position(|value| !value.is_finite()),
        Features::Bytes { .. } | Features::Symbols { .. } | Features::Columns(_) | Features::Own(_) => None,
    };
    let target = shard.values().and_then(|values| values.iter().position(|value| !value.is_finite()));
    features.map(|place| place / columns).or(target)
}

struct MixtureWorker {
    shape: Shape,
    models: Vec<Vec<f64>>,
    loaded: Vec<f64>,
    scratch: Scratch,
}

impl MixtureWorker {
    /// The component of every row, and the sum of their log likelihoods; `None` for a model that is only in part here.
    fn classify(&mut self, model: usize, rows: &Shard) -> Option<(Vec<u32>, f64)> {
        let params = self.models.get(model).unwrap_or(&self.loaded);
        let mut labels = Vec::new();
        let rows = (params.len() == self.shape.len()).then(|| Rows::of(&self.shape, rows))?;
        let likelihood = classify(&self.shape, params, &rows, &mut self.scratch, &mut labels);
        Some((labels, likelihood))
    }
}

impl Worker for MixtureWorker {
    fn begin(&mut self, models: &[&[f64]]) {
        self.models = models.iter().map(|model| model.to_vec()).collect();
    }

    fn load(&mut self, params: &[f64]) -> usize {
        self.loaded.clear();
        self.loaded.extend_from_slice(params);
        self.models.len()
    }

    fn width(&self) -> usize {
        self.shape.len()
    }

    fn loss(&mut self, model: usize, rows: &Shard) -> f64 {
        self.classify(model, rows).map_or(f64::NAN, |(_, likelihood)| -likelihood / rows.len() as f64)
    }

    /// Hits are rows in the best matching of components to classes, where rows have classes.
    fn score(&mut self, model: usize, rows: &Shard) -> Score {
        if rows.is_empty() {
            return Score::default();
        }
        let Some((labels, likelihood)) = self.classify(model, rows) else {
            return Score { rows: rows.len() as u32, loss: f64::NAN, hits: None };
        };
        let hits = rows.classes().map_or(0, |classes| {
            let known = labels.iter().zip(classes).filter(|(_, class)| **class != UNKNOWN_CLASS);
            let (found, truth): (Vec<usize>, Vec<usize>) =
                known.map(|(&label, &class)| (label as usize, class as usize)).unzip();
            match_clusters(&found, &truth).matched
        });
        Score { rows: rows.len() as u32, loss: -likelihood, hits: Some(hits as u32) }
    }

    // The host refuses work that would come here.
    fn gradient(&mut self, _: usize, _: &Seat, _: &Sample, out: &mut [f64]) -> f64 {
        out.fill(f64::NAN);
        f64::NAN
    }

    fn train(&mut self, _: usize, _: &Seat, _: &Plan, out: &mut [f64]) -> f64 {
        out.fill(f64::NAN);
        f64::NAN
    }

    fn slope(&mut self, _: &[f64], _: &Seat, _: Option<&[u32]>, out: &mut [f64]) -> f64 {
        out.fill(f64::NAN);
        f64::NAN
    }

    fn scratch(&mut self) -> Option<&mut Scratch> {
        Some(&mut self.scratch)
    }
}
