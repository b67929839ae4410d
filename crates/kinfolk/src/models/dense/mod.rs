//! Stacks of dense layers with a loss on top: forward, backward, training, and the fast paths.
//!
//! Parameters lie layer by layer: weight (outputs × inputs, as PyTorch has it), then bias.
//! Losses are means over rows; a row's loss is never negative, which lets a choice stop early.
//!
//! Fast paths, each with the plain path as its test oracle:
//! - **Gram form.** With full-batch descent every change of the first weight is Qᵀ·X for some Q (rows × outputs).
//!   So train in the space of Q: the first layer's outputs are a·X·W₀ᵀ + (X·Xᵀ)·Q, where a carries weight decay.
//!   W = a·W₀ + Qᵀ·X is formed once at the end, and summed over clients without ever forming it for one.
//! - **Early exit.** A candidate whose partial loss exceeds the best total is out, exactly.
//! - **Stacking.** Without hidden layers all models of all jobs are rows of one product.

mod identify;
mod layers;
mod narrow;
mod reduce;
#[cfg(test)]
mod tests;
mod train;

use super::check::check;
use super::rows::{Goal, Output, PickedRows, is_largest, row_loss};
use super::steps::{Batches, Scratch, steps_of};
use super::{Choice, Convex, Job, Layout, Metric, Model, Precision, Reduced, Seat, TensorPlace, Worker};
use crate::aggregate::Weight;
use crate::data::numbers::{convert, convert_into};
use crate::data::{Client, DataShape, Shard};
use crate::error::{Error, Result};
use crate::hierarchy::response::Quadratic;
use crate::linalg::{Matrix, Real, add_scaled, dot, extreme_eigenvalues, multiply};
use crate::models::Score;
use crate::rng::Rng;
use crate::training::{Plan, Portion, Sample, Then};
use identify::identify;
use rand::RngExt;
use reduce::Hints;

/// A stack of dense layers with rectifiers in between.
#[derive(Debug, Clone)]
pub(super) struct Dense {
    /// Inputs, hidden widths, outputs.
    widths: Vec<usize>,
    bias: bool,
    output: Output,
    precision: Precision,
    initial: Initial,
    layout: Layout,
}

/// Where parameters begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Initial {
    /// Uniform on ±1/√inputs, weights and biases alike.
    Uniform,
    /// 0 or 1 with equal chance.
    Coins,
    /// 0.
    Zero,
}

impl Dense {
    pub(super) fn new(widths: Vec<usize>, bias: bool, output: Output, precision: Precision) -> Self {
        let mut tensors: Vec<TensorPlace> = Vec::new();
        let mut offset = 0;
        for (layer, pair) in widths.windows(2).enumerate() {
            let mut place = |part: &str, shape: Vec<usize>| {
                let tensor = TensorPlace { name: format!("layer{layer}.{part}"), shape, offset };
                offset = tensor.range().end;
                tensors.push(tensor);
            };
            place("weight", vec![pair[1], pair[0]]);
            if bias {
                place("bias", vec![pair[1]]);
            }
        }
        Self { widths, bias, output, precision, initial: Initial::Uniform, layout: Layout { tensors } }
    }

    pub(super) fn starting(self, initial: Initial) -> Self {
        Self { initial, ..self }
    }

    fn initialise(&self, rng: &mut Rng) -> Vec<f64> {
        let mut params = vec![0.0; self.layout.len()];
        match self.initial {
            Initial::Zero => return params,
            Initial::Coins => {
                params.iter_mut().for_each(|value| *value = f64::from(u8::from(rng.random::<bool>())));
                return params;
            }
            Initial::Uniform => {}
        }
        for layer in 0..self.layers() {
            let bound = 1.0 / (self.widths[layer] as f64).sqrt();
            let bias = self.bias_range(layer);
            for value in &mut params[self.weight_range(layer).start..bias.end] {
                *value = rng.random_range(-bound..bound);
            }
        }
        params
    }

    /// What its one output means, where it is a single one right above the inputs.
    fn single_output(&self) -> Option<Output> {
        (self.layers() == 1 && self.widths[1] == 1).then_some(self.output)
    }

    /// How many parameters the first weight has; everything above it begins there.
    fn first_weights(&self) -> usize {
        self.weight_range(0).end
    }

    fn layers(&self) -> usize {
        self.widths.len() - 1
    }

    fn weight_range(&self, layer: usize) -> std::ops::Range<usize> {
        self.layout.tensors[layer * (1 + usize::from(self.bias))].range()
    }

    fn bias_range(&self, layer: usize) -> std::ops::Range<usize> {
        let weight_end = self.weight_range(layer).end;
        weight_end..weight_end + if self.bias { self.widths[layer + 1] } else { 0 }
    }

    fn worker<'a, T: Real>(&'a self, models: &[&[f64]]) -> DenseWorker<'a, T> {
        let round = |model: &&[f64]| model.iter().map(|&value| T::of(value)).collect();
        DenseWorker {
            shape: self,
            given: models.len(),
            models: models.iter().map(round).collect(),
            hidden: vec![Vec::new(); self.layers()],
            slopes: vec![Vec::new(); self.layers()],
            input: Vec::new(),
            first: Vec::new(),
            candidate: Vec::new(),
            stack: Vec::new(),
            stacked: Vec::new(),
            scratch: Scratch::default(),
            picked: PickedRows::default(),
            own: Vec::new(),
            change: Vec::new(),
            fast: true,
        }
    }
}

/// How a model finds its exact minimiser: rows as f64, one after the other, and the ridge.
pub(super) type Minimiser = fn(&Rows, f64) -> Result<Vec<f64>>;

/// Rows for an exact minimiser, with a column of ones behind them where there is an intercept.
pub(super) struct Rows {
    pub(super) x: Vec<f64>,
    pub(super) y: Vec<f64>,
    pub(super) columns: usize,
}

/// A stack of dense layers as a model.
pub(super) struct DenseModel {
    pub(super) dense: Dense,
    pub(super) wanted: DataShape,
    pub(super) minimiser: Option<Minimiser>,
}

impl Model for DenseModel {
    fn layout(&self) -> &Layout {
        &self.dense.layout
    }

    fn precision(&self) -> Precision {
        self.dense.precision
    }

    fn metrics(&self) -> &'static [Metric] {
        match self.dense.output {
            Output::Squared => &[Metric::SquaredError],
            Output::Logistic | Output::Softmax => &[Metric::Accuracy, Metric::LogLoss],
        }
    }

    fn curvature(&self, mean_square: f64) -> Option<f64> {
        let length = mean_square + f64::from(u8::from(self.dense.bias));
        let factor = match self.dense.output {
            Output::Squared => 2.0,
            Output::Logistic => 0.25,
            Output::Softmax => 0.5,
        };
        (self.dense.layers() == 1).then_some(factor * length)
    }

    fn initialise(&self, rng: &mut Rng) -> Result<Vec<f64>> {
        Ok(self.dense.initialise(rng))
    }

    fn check(&self, client: &Client) -> Result<()> {
        check(self.dense.output, client, self.wanted, |_| None)
    }

    fn worker<'a>(&'a self, models: &[&[f64]]) -> Box<dyn Worker + 'a> {
        match self.dense.precision {
            Precision::F32 => Box::new(self.dense.worker::<f32>(models)),
            Precision::F64 => Box::new(self.dense.worker::<f64>(models)),
        }
    }

    fn likelihood(&self) -> f64 {
        if self.dense.output == Output::Squared { 0.5 } else { 1.0 }
    }

    fn convex(&self) -> Option<&dyn Convex> {
        self.minimiser.is_some().then_some(self)
    }
}

/// Models with a minimiser have one output, right above the inputs.
impl Convex for DenseModel {
    fn minimise(&self, shard: &Shard, ridge: f64) -> Result<Vec<f64>> {
        let rows = self.rows(shard);
        let minimiser = self.minimiser.ok_or_else(|| Error::federation("a model without an exact minimiser"))?;
        let mut params = minimiser(&rows, ridge)?;
        if self.dense.bias {
            identify(&rows, &mut params);
        }
        Ok(params)
    }

    fn quadratic(&self, shard: &Shard, at: &[f64], scale: f64) -> Quadratic {
        expand(self.dense.output, &self.rows(shard), at, scale)
    }

    fn is_quadratic(&self) -> bool {
        self.dense.output == Output::Squared
    }

    fn curvature_gradient(&self, shard: &Shard, at: &[f64], scale: f64, weights: &[f64]) -> Vec<f64> {
        let mut gradient = vec![0.0; at.len()];
        if Convex::is_quadratic(self) {
            return gradient;
        }
        let rows = self.rows(shard);
        let share = scale / shard.len() as f64;
        for row in rows.x.chunks_exact(rows.columns) {
            let chance = 1.0 / (1.0 + (-dot(row, at)).exp());
            let weighted: f64 = weights.chunks_exact(at.len()).zip(row).map(|(w, x)| x * dot(w, row)).sum();
            let change = chance * (1.0 - chance) * (1.0 - 2.0 * chance) * weighted;
            add_scaled(&mut gradient, share * change, row);
        }
        gradient
    }

    fn curvatures(&self, shard: &Shard) -> [f64; 3] {
        // Bounds on the second derivative of a row's loss in its output.
        let (most, least) = if Convex::is_quadratic(self) { (2.0, 2.0) } else { (0.25, 0.0) };
        let rows = self.rows(shard);
        let (count, size) = (rows.y.len(), rows.columns);
        let x = Matrix::new(&rows.x, count, size);
        let mut squares = vec![0.0; size * size];
        multiply(&mut squares, 1.0 / count as f64, x.turn(), x);
        let (smallest, largest) = extreme_eigenvalues(&squares, size);
        let longest = rows.x.chunks_exact(size).map(|row| row.iter().map(|v| v * v).sum()).fold(0.0, f64::max);
        [most * largest, least * smallest.max(0.0), most * longest]
    }
}

impl DenseModel {
    /// Rows as f64, with a column of ones behind them where there is an intercept.
    fn rows(&self, shard: &Shard) -> Rows {
        let mut features = vec![0.0; shard.len() * shard.columns()];
        convert_into(shard, &mut features);
        let columns = shard.columns() + usize::from(self.dense.bias);
        let mut x = Vec::with_capacity(shard.len() * columns);
        for row in features.chunks_exact(shard.columns()) {
            x.extend_from_slice(row);
            x.extend(self.dense.bias.then_some(1.0));
        }
        let y = match Goal::of(shard) {
            Goal::Classes(classes) => classes.iter().map(|&class| f64::from(class)).collect(),
            Goal::Values(values) => values.to_vec(),
        };
        Rows { x, y, columns }
    }
}

/// `scale` times the mean loss of a single output, up to second derivatives at one point.
fn expand(output: Output, rows: &Rows, at: &[f64], scale: f64) -> Quadratic {
    let (count, size) = (rows.y.len(), rows.columns);
    let share = scale / count as f64;
    let x = Matrix::new(&rows.x, count, size);
    let mut curvature = vec![0.0; size * size];
    let mut moment = vec![0.0; size];
    if output == Output::Squared {
        multiply(&mut curvature, 2.0 * share, x.turn(), x);
        multiply(&mut moment, 2.0 * share, x.turn(), Matrix::new(&rows.y, count, 1));
        let energy = share * dot(&rows.y, &rows.y);
        return Quadratic { curvature, moment, energy };
    }
    let mut loss = 0.0;
    let mut weighted = vec![0.0; rows.x.len()];
    for ((row, out), &y) in rows.x.chunks_exact(size).zip(weighted.chunks_exact_mut(size)).zip(&rows.y) {
        let odds = dot(row, at);
        let towards = if y > 0.5 { odds } else { -odds };
        let chance = 1.0 / (1.0 + (-odds).exp());
        loss += share * ((-towards.abs()).exp().ln_1p() + (-towards).max(0.0));
        // −gradient goes into the moment; the curvature's part of it follows below.
        add_scaled(&mut moment, share * (y - chance), row);
        out.iter_mut().zip(row).for_each(|(out, x)| *out = share * chance * (1.0 - chance) * x);
    }
    multiply(&mut curvature, 1.0, Matrix::new(&weighted, count, size).turn(), x);
    let downhill = dot(&moment, at);
    let mut bent = vec![0.0; size];
    multiply(&mut bent, 1.0, Matrix::new(&curvature, size, size), Matrix::new(at, size, 1));
    let energy = loss + downhill + 0.5 * dot(&bent, at);
    add_scaled(&mut moment, 1.0, &bent);
    Quadratic { curvature, moment, energy }
}

/// Computes with a stack of dense layers on one thread. All buffers are reused between clients.
pub(super) struct DenseWorker<'a, T> {
    shape: &'a Dense,
    /// Models of the ask; one more place behind them is for `load`.
    given: usize,
    models: Vec<Vec<T>>,
    /// Outputs of every layer, after the rectifier.
    hidden: Vec<Vec<T>>,
    /// Slopes of the mean loss with respect to every layer's outputs.
    slopes: Vec<Vec<T>>,
    /// Rows converted to T.
    input: Vec<T>,
    /// X·W₀ᵀ of the chosen model.
    first: Vec<T>,
    /// The same of a candidate.
    candidate: Vec<T>,
    /// The first weights of some models of the ask, one under the other, and which models those are.
    stack: Vec<T>,
    stacked: Vec<usize>,
    /// Gradients and moments of a training.
    scratch: Scratch<T>,
    /// Rows of a batch.
    picked: PickedRows<T>,
    /// Parameters that belong to no model of the ask.
    own: Vec<T>,
    /// Q of the Gram form.
    change: Vec<T>,
    /// Whether fast paths are taken; tests compare with them off.
    fast: bool,
}

impl<T: Real> Worker for DenseWorker<'_, T> {
    fn load(&mut self, params: &[f64]) -> usize {
        self.models.truncate(self.given);
        self.models.push(params.iter().map(|&value| T::of(value)).collect());
        self.given
    }

    fn width(&self) -> usize {
        self.shape.layout.len()
    }

    fn loss(&mut self, model: usize, rows: &Shard) -> f64 {
        self.score(model, rows).loss / rows.len() as f64
    }

    fn losses(&mut self, of: &[usize], rows: &Shard) -> Vec<f64> {
        if self.stack_pays(of) {
            return self.stacked_losses(of, rows);
        }
        let mut totals = vec![0.0; of.len()];
        self.visit(of, rows, |worker, place, goal| totals[place] += worker.output_loss(goal));
        totals.iter().map(|total| total / rows.len() as f64).collect()
    }

    fn row_losses(&mut self, model: usize, rows: &Shard) -> Vec<f64> {
        let mut losses = Vec::with_capacity(rows.len());
        self.visit(&[model], rows, |worker, _, goal| losses.extend(worker.row_losses_of(goal)));
        losses
    }

    fn score(&mut self, model: usize, rows: &Shard) -> Score {
        let mut score = Score { rows: rows.len() as u32, ..Score::default() };
        self.visit(&[model], rows, |worker, _, goal| {
            score.loss += worker.output_loss(goal);
            *score.hits.get_or_insert(0) += worker.hits(goal);
        });
        score
    }

    fn gradient(&mut self, model: usize, seat: &Seat, sample: &Sample, out: &mut [f64]) -> f64 {
        let rows = seat.rows(sample.on);
        let mut buffer = std::mem::take(&mut self.input);
        let mut picked = std::mem::take(&mut self.picked);
        let mut scratch = std::mem::take(&mut self.scratch);
        let params = std::mem::take(&mut self.models[model]);
        let mut batches = Batches::new(rows.len(), sample, &seat.client.id);
        let input = convert(&rows, &mut buffer);
        let (x, goal, count) = picked.gather(batches.next(), input, Goal::of(&rows), self.shape.widths[0]);
        scratch.begin(params.len());
        let loss = self.whole_slope(&params, x, goal, count, &mut scratch.gradient);
        out.iter_mut().zip(&scratch.gradient).for_each(|(o, g)| *o = g.wide());
        self.models[model] = params;
        self.scratch = scratch;
        self.picked = picked;
        self.input = buffer;
        loss
    }

    fn slope(&mut self, params: &[f64], seat: &Seat, rows: Option<&[u32]>, out: &mut [f64]) -> f64 {
        let shard = &seat.client.train;
        let mut buffer = std::mem::take(&mut self.input);
        let mut own = std::mem::take(&mut self.own);
        own.clear();
        own.extend(params.iter().map(|&value| T::of(value)));
        let input = convert(shard, &mut buffer);
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.begin(params.len());
        let loss = match self.shape.single_output() {
            Some(output) if self.fast => {
                narrow::slope(output, &own, input, Goal::of(shard), rows, &mut scratch.gradient)
            }
            _ => {
                let mut picked = std::mem::take(&mut self.picked);
                let (x, goal, count) = picked.gather(rows, input, Goal::of(shard), self.shape.widths[0]);
                let loss = self.whole_slope(&own, x, goal, count, &mut scratch.gradient);
                self.picked = picked;
                loss
            }
        };
        out.iter_mut().zip(&scratch.gradient).for_each(|(o, g)| *o = g.wide());
        (self.scratch, self.own, self.input) = (scratch, own, buffer);
        loss
    }

    fn train(&mut self, model: usize, seat: &Seat, plan: &Plan, out: &mut [f64]) -> f64 {
        let rows = seat.rows(plan.sample.on);
        let mut params = self.models[model].clone();
        let loss = match self.shape.single_output() {
            _ if self.gram_pays(rows.len(), plan) => self.train_one_by_gram(&mut params, &rows, seat, plan),
            Some(output) if self.narrow_pays(rows.len(), plan) => {
                self.train_narrowly(output, &mut params, &rows, seat, plan)
            }
            _ => self.train_plainly(&mut params, &rows, &seat.client.id, plan),
        };
        out.iter_mut().zip(&params).for_each(|(o, p)| *o = p.wide());
        loss
    }

    fn choose(&mut self, among: &[usize], hint: usize, seat: &Seat, on: Portion) -> Choice {
        let rows = seat.rows(on);
        let mut buffer = std::mem::take(&mut self.input);
        let choice = self.compete(among, hint, convert(&rows, &mut buffer), Goal::of(&rows), rows.len());
        self.input = buffer;
        choice
    }

    fn reduce(&mut self, jobs: &[Job], seats: &[Seat], hints: &mut [u32], weight: Weight) -> Vec<Reduced> {
        if self.stacks(jobs) {
            return self.reduce_stacked(jobs, seats, weight);
        }
        let gram = |job: &Job| matches!(job.then, Then::Train(_)) && job.slots == job.among.len();
        if !(self.fast && jobs.iter().all(gram)) {
            return super::reduce_plainly(self, jobs, seats, hints, weight);
        }
        let reduce = |(j, job): (usize, &Job)| match job.then {
            Then::Train(plan) => {
                let hints = Hints { table: &mut *hints, jobs: jobs.len(), job: j };
                self.reduce_by_gram(job, plan, seats, hints, weight)
            }
            _ => unreachable!("only training jobs come here"),
        };
        jobs.iter().enumerate().map(reduce).collect()
    }
}
