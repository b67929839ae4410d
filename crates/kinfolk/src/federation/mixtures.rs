//! Work on mixtures: what a client fits to its own rows, how it takes a step, and what it sends of it.
//!
//! A client keeps the parameters of a mixture, and behind them the weights it began with. A model of an ask replaces
//! the first of these parameters, as many as it brings: centres alone, centres with their scatter, or all. So centres
//! travel, and mixing weights need never leave a client.

use super::host::Host;
use super::wire::Reply;
use super::{Sample, Subject};
use crate::error::{Error, Result};
use crate::mixture::{
    Detail, Family, Fitting, LEAST_WEIGHT, Rows, Scratch, Shape, Statistics, classify, expect, fit, maximise,
    normalise, recast, relabel,
};
use crate::models::{Seat, Worker};
use crate::rng::Key;
use rand::seq::index;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Fit a mixture to the client's own rows by EM from several starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FitMixture {
    /// The mixture to fit. It may scatter in another way than the model; what is kept has the model's form.
    pub shape: Shape,
    /// How.
    pub fitting: Fitting,
    /// Seeds the starts, together with the client's id.
    pub seed: u64,
    /// Keep the result as the client's own model.
    pub keep: bool,
    /// What is sent of the fit, in the form in which it was fitted.
    pub send: Parts,
}

/// Take steps of EM, or of gradient EM, on the client's own rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MixtureStep {
    /// The form of the mixture.
    pub shape: Shape,
    /// The stamp of what the client keeps; without, the model brings everything and nothing is kept.
    pub from: Option<u64>,
    /// A model of the ask that replaces the first parameters.
    pub model: Option<usize>,
    /// Which of the kept components is the first, the second and so on; empty for no change. The model is in this order.
    pub relabel: Vec<u32>,
    /// What a step is.
    pub rule: Rule,
    /// How many steps.
    pub steps: u32,
    /// Rows of a step.
    pub sample: Sample,
    /// No row pulls at a component by more than this length.
    pub limit: Option<f64>,
    /// Every step draws coordinates this much towards 0, times its length.
    pub sparsity: f64,
    /// How much of a step is taken: 1, or less where it is made from few rows.
    pub share: f64,
    /// What is sent of the result.
    pub send: Parts,
}

impl FitMixture {
    /// Whether it fits the clients' own mixture, in all but how rows scatter.
    fn is_sound(&self, own: &Shape) -> bool {
        let same_family = match (self.shape.family, own.family) {
            (Family::Gaussian(_), Family::Gaussian(_)) => true,
            (Family::Regression { intercept: one, .. }, Family::Regression { intercept: other, .. }) => one == other,
            _ => false,
        };
        let same_size = !self.keep || self.shape.components == own.components;
        let few_enough =
            self.shape.components <= MOST && self.fitting.starts <= MOST && self.fitting.iterations <= MOST;
        same_family && same_size && few_enough && self.shape.components > 0 && self.shape.columns == own.columns
    }
}

/// No fit has more components, starts or iterations.
const MOST: usize = 1 << 24;

impl MixtureStep {
    /// Whether it fits the clients' own mixture: parameters to begin with, as many as there may be, an order of components
    /// that is one, and rows to look at.
    fn is_sound(&self, own: &Shape, models: &[Vec<f64>]) -> bool {
        let mut order = self.relabel.clone();
        order.sort_unstable();
        let permutation = order.is_empty() || order.iter().copied().eq(0..own.components as u32);
        let length = self.model.map(|model| models.get(model).map_or(0, Vec::len));
        let begins = match (self.from, length) {
            (None, length) => length == Some(own.len()),
            (Some(_), Some(length)) => [own.centres().end, own.scatter().end, own.len()].contains(&length),
            (Some(_), None) => self.rule != Rule::Contest,
        };
        self.shape == *own && permutation && begins && self.sample.batch != Some(0) && self.share.is_finite()
    }
}

fn unsound(what: &str) -> Error {
    Error::federation(format!("{what} that does not fit the clients' mixture"))
}

/// What a step on a mixture is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Rule {
    /// Take over the model; with a step, find new weights for what is kept.
    Stay,
    /// Move centres along their gradients, and find new weights.
    Ascend(Rate),
    /// The full M-step.
    Maximise,
    /// Full M-steps from what is kept, and from the model with equal weights; what makes the rows likelier stays.
    Contest,
}

/// The step sizes η_r of gradient EM.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Rate {
    /// The same for all components.
    Fixed(f64),
    /// A number over the weight each component began with.
    Relative {
        /// C_η.
        factor: f64,
        /// At most what does not overshoot: one over the weight a component has, and for regressions less where features
        /// are alike.
        capped: bool,
    },
}

/// What is sent of a mixture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parts {
    /// Nothing.
    Nothing,
    /// The centres.
    Centres,
    /// The centres and how rows scatter around them.
    Shared,
    /// All parameters.
    Whole,
    /// The sums of the E-step at the parameters before the step.
    Statistics(Detail),
}

impl Parts {
    /// How many numbers that is.
    pub fn count(self, shape: &Shape) -> usize {
        match self {
            Parts::Nothing => 0,
            Parts::Centres => shape.centres().end,
            Parts::Shared => shape.scatter().end,
            Parts::Whole => shape.len(),
            Parts::Statistics(detail) => Statistics::packed_len(shape, detail),
        }
    }
}

/// Numbers a mixture answers with: the mean negative log likelihood at the last step (0 without any), the smallest weight,
/// and 0 for a fit that was broken off.
pub(super) const MIXTURE_LOSSES: usize = 3;

/// A client's training rows as the model, a mixture of this shape, sees them.
fn rows_of<'a>(seat: &'a Seat, shape: &Shape) -> Cow<'a, Rows> {
    if !seat.may_prepare {
        return Cow::Owned(Rows::of(shape, &seat.client.train));
    }
    let prepared = seat.prepared.get_or_init(|| Box::new(Rows::of(shape, &seat.client.train)));
    match prepared.downcast_ref::<Rows>() {
        Some(rows) => Cow::Borrowed(rows),
        None => Cow::Owned(Rows::of(shape, &seat.client.train)),
    }
}

impl Host {
    fn shape(&self) -> Result<Shape> {
        let shape = self.model()?.mixture();
        shape.copied().ok_or_else(|| Error::federation("the clients' model is not a mixture"))
    }

    /// Forgets what single components have learnt from fewer rows than an answer may be about.
    fn withhold(&self, shape: &Shape, statistics: &mut Statistics) {
        if self.minimum_rows() > 1 {
            statistics.withhold(shape, self.minimum_rows() as f64);
        }
    }

    /// Fits a mixture to one client's rows.
    pub(super) fn fit_mixture(&self, stamp: u64, order: &FitMixture, client: u32) -> Result<Reply> {
        let seat = self.seat(client);
        let shape = order.shape;
        if !order.is_sound(&self.shape()?) {
            return Err(unsound("a fit"));
        }
        let kept = if order.keep { self.kept_by(client, stamp) } else { None };
        let key = Key::new(order.seed).word("fit").word(&seat.client.id);
        let at = |error: Error| error.at(format!("client {}", seat.client.id));
        // What was kept is in the model's form: a repeated order whose answer is in another is fitted again.
        let rows = match shape.family == self.shape()?.family {
            true => rows_of(&seat, &shape),
            false => Cow::Owned(Rows::of(&shape, &seat.client.train)),
        };
        let fitted = fit(&shape, &rows, &order.fitting, &key).map_err(at)?;
        let members = smallest(&fitted.params[shape.weights()]) * seat.client.train.len() as f64;
        if members < self.minimum_rows() as f64 && self.minimum_rows() > 1 {
            let least = self.minimum_rows();
            let message = format!("a fit with a component of {members:.1} rows, this machine wants at least {least}");
            return Err(Error::federation(message).hint("node.minimum_rows in the machine's own file says so"));
        }
        let mean_loss = -fitted.log_likelihood / seat.client.train.len() as f64;
        let losses = vec![mean_loss, smallest(&fitted.params[shape.weights()]), f64::from(u8::from(fitted.converged))];
        if order.keep && kept.is_none() {
            let model = self.shape()?;
            let mut vectors = recast(&shape, &fitted.params, &model);
            vectors.extend_from_within(model.weights());
            self.keep(client, stamp, &losses, vectors)?;
        }
        let count = order.send.count(&shape);
        let vector = (count > 0).then(|| fitted.params[..count].to_vec());
        Ok(Reply { rows: seat.client.train.len() as u32, losses, vector, ..Reply::default() })
    }

    /// Takes steps from what one client keeps.
    pub(super) fn step_mixture(
        &self,
        worker: &mut dyn Worker,
        models: &[Vec<f64>],
        stamp: u64,
        order: &MixtureStep,
        client: u32,
    ) -> Result<Reply> {
        let seat = self.seat(client);
        let rows = seat.client.train.len() as u32;
        let shape = self.shape()?;
        if !order.is_sound(&shape, models) {
            return Err(unsound("a step"));
        }
        let length = shape.len();
        let whole = length + shape.components;
        let reply = |losses: Vec<f64>, vectors: &[f64]| {
            let vector = match order.send {
                Parts::Nothing => None,
                Parts::Statistics(_) => Some(vectors[whole..].to_vec()),
                parts => Some(vectors[..parts.count(&shape)].to_vec()),
            };
            Reply { rows, losses, vector, ..Reply::default() }
        };
        if order.from.is_some()
            && let Some(losses) = self.kept_by(client, stamp)
        {
            // This order has been carried out; its answer got lost on the way.
            return Ok(reply(losses, &self.own_vectors(client, stamp)?));
        }
        let mut vectors = match order.from {
            Some(stamp) => self.own_vectors(client, stamp)?,
            None => vec![0.0; whole],
        };
        vectors.resize(whole, 0.0);
        if !order.relabel.is_empty() {
            let (params, first) = vectors.split_at_mut(length);
            relabel(&shape, params, &order.relabel);
            let old = first.to_vec();
            first.iter_mut().zip(&order.relabel).for_each(|(first, &from)| *first = old[from as usize]);
        }
        let mut rival = None;
        if order.rule == Rule::Contest {
            let mut begin = vectors.clone();
            if let Some(model) = order.model {
                begin[..models[model].len()].copy_from_slice(&models[model]);
            }
            begin[shape.weights()].fill(1.0 / shape.components as f64);
            rival = Some(begin);
        } else if let Some(model) = order.model {
            vectors[..models[model].len()].copy_from_slice(&models[model]);
        }
        let Some(scratch) = worker.scratch() else {
            return Err(Error::federation("the clients' model is not a mixture"));
        };
        let all = rows_of(&seat, &shape);
        let mut statistics = Statistics::default();
        let detail = match (order.rule, order.send) {
            (Rule::Maximise | Rule::Contest, _) => Detail::Full,
            (_, Parts::Statistics(detail)) => detail,
            _ => Detail::Gradient,
        };
        for step in 0..order.steps {
            let drawn = draw(order, &seat, step).map(|picked| all.pick(&picked));
            let rows = drawn.as_ref().unwrap_or(&all);
            let (params, first) = vectors.split_at_mut(length);
            expect(&shape, params, rows, detail, order.limit, scratch, &mut statistics);
            self.withhold(&shape, &mut statistics);
            match order.rule {
                Rule::Stay if order.from.is_some() => set_weights(&shape, &statistics, order.share, params),
                Rule::Stay => {}
                Rule::Ascend(rate) => ascend(order, &statistics, rate, rows, first, params),
                Rule::Maximise | Rule::Contest => maximise(&shape, &statistics, params),
            }
            if let Some(rival) = &mut rival {
                let likelihood = statistics.log_likelihood;
                expect(&shape, &rival[..length], rows, detail, order.limit, scratch, &mut statistics);
                self.withhold(&shape, &mut statistics);
                maximise(&shape, &statistics, &mut rival[..length]);
                if step + 1 == order.steps && statistics.log_likelihood > likelihood {
                    vectors.copy_from_slice(rival);
                } else {
                    statistics.log_likelihood = likelihood;
                }
            }
        }
        if order.rule == Rule::Contest {
            let weights = vectors[shape.weights()].to_vec();
            vectors[length..].copy_from_slice(&weights);
        }
        let loss = match order.steps {
            0 => 0.0,
            _ => -statistics.log_likelihood / statistics.rows,
        };
        let losses = vec![loss, smallest(&vectors[shape.weights()]), 1.0];
        if let Parts::Statistics(_) = order.send {
            statistics.pack(&mut vectors);
        }
        let reply = reply(losses, &vectors);
        if order.from.is_some() {
            self.keep(client, stamp, &reply.losses, vectors)?;
        }
        Ok(reply)
    }

    /// What a client keeps, with a model of the ask in place of the first parameters.
    pub(super) fn completed_model(
        &self,
        client: u32,
        models: &[Vec<f64>],
        model: usize,
        stamp: u64,
    ) -> Result<Vec<f64>> {
        let mut params = self.own_model(client, stamp)?;
        let model = models.get(model).filter(|model| model.len() <= params.len()).ok_or_else(|| unsound("a model"))?;
        params[..model.len()].copy_from_slice(model);
        Ok(params)
    }

    /// Counts the held-out rows of one client by component (rows) and class (columns).
    pub(super) fn tally(
        &self,
        worker: &mut dyn Worker,
        models: &[Vec<f64>],
        (with, components, classes): (&Subject, u32, u32),
        client: u32,
    ) -> Result<Reply> {
        let seat = self.seat(client);
        let shape = self.shape()?;
        let params = match with {
            Subject::Own { stamp } => self.own_model(client, *stamp)?,
            Subject::Completed { model, stamp } => self.completed_model(client, models, *model, *stamp)?,
            Subject::Models(of) if of.len() == 1 => models.get(of[0]).cloned().unwrap_or_default(),
            other => return Err(Error::federation(format!("rows cannot be counted with {other:?}"))),
        };
        if params.len() != shape.len() || components as usize != shape.components || classes > MOST as u32 {
            return Err(unsound("a count of rows"));
        }
        let mut counts = vec![0.0; shape.components * classes as usize];
        let test = &seat.client.test;
        if let (Some(of_rows), Some(scratch), false) = (test.classes(), worker.scratch(), test.is_empty()) {
            let mut labels = Vec::new();
            classify(&shape, &params, &Rows::of(&shape, test), scratch, &mut labels);
            for (&label, &class) in labels.iter().zip(of_rows).filter(|(_, class)| **class < classes) {
                counts[label as usize * classes as usize + class as usize] += 1.0;
            }
        }
        Ok(Reply { rows: seat.client.train.len() as u32, vector: Some(counts), ..Reply::default() })
    }

    /// The component of every row of a client, of training and of test rows. What a client knows of its rows crosses no
    /// wire: this is for an engine whose clients are its own.
    pub(crate) fn row_components(&self, client: u32, params: &[f64]) -> [Vec<u32>; 2] {
        let Ok(shape) = self.shape() else { return [Vec::new(), Vec::new()] };
        let mut scratch = Scratch::default();
        let client = &self.clients()[client as usize];
        [&client.train, &client.test].map(|shard| {
            let mut labels = Vec::new();
            if !shard.is_empty() {
                classify(&shape, params, &Rows::of(&shape, shard), &mut scratch, &mut labels);
            }
            labels
        })
    }
}

fn smallest(weights: &[f64]) -> f64 {
    weights.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The rows of a step; `None` for all of them.
fn draw(order: &MixtureStep, seat: &Seat, step: u32) -> Option<Vec<u32>> {
    let rows = seat.client.train.len();
    let batch = order.sample.batch.map(|batch| batch as usize).filter(|&batch| batch < rows)?;
    let key = Key::new(order.sample.seed).word("rows").word(&seat.client.id).number(u64::from(step));
    let mut picked: Vec<u32> = index::sample(&mut key.rng(), rows, batch).iter().map(|row| row as u32).collect();
    picked.sort_unstable();
    Some(picked)
}

/// The share of rows in every component, none of them 0; `share` of the way there.
fn set_weights(shape: &Shape, statistics: &Statistics, share: f64, params: &mut [f64]) {
    let weights = &mut params[shape.weights()];
    for (weight, members) in weights.iter_mut().zip(&statistics.members) {
        *weight += share * (members / statistics.rows - *weight);
    }
    normalise(weights);
}

/// The longest step, times the weight of a component, that does not overshoot: to the mean of its rows for normal
/// components; for regressions one that is short enough for the direction in which rows stretch most, of which a
/// component's own rows may have a little more than all.
fn longest_step(shape: &Shape, rows: &Rows) -> f64 {
    match shape.family {
        Family::Gaussian(_) => 1.0,
        Family::Regression { .. } => (1.4 / rows.steepness()).min(1.0),
    }
}

/// θ_r ← θ_r + η_r ∂Q/∂θ_r, and new weights.
fn ascend(order: &MixtureStep, statistics: &Statistics, rate: Rate, rows: &Rows, first: &[f64], params: &mut [f64]) {
    let shape = &order.shape;
    set_weights(shape, statistics, order.share, params);
    let width = shape.width();
    let (centres, rest) = params.split_at_mut(shape.centres().end);
    let weights = &rest[rest.len() - shape.components..];
    for (r, centre) in centres.chunks_exact_mut(width).enumerate() {
        let weight = (statistics.members[r] / statistics.rows).max(LEAST_WEIGHT);
        let size = order.share
            * match rate {
                Rate::Fixed(size) => size,
                Rate::Relative { factor, capped } => {
                    let size = factor / first[r].max(LEAST_WEIGHT);
                    if capped { size.min(longest_step(shape, rows) / weight) } else { size }
                }
            };
        let pulls = &statistics.pulls[r * width..][..width];
        for (value, pull) in centre.iter_mut().zip(pulls) {
            *value += size * pull / statistics.rows;
            if order.sparsity > 0.0 {
                *value = value.signum() * (value.abs() - size * order.sparsity * weights[r]).max(0.0);
            }
        }
    }
}
