//! Stacks of dense layers: forward, backward, and the fast paths.
//!
//! Parameters lie layer by layer: weight (outputs × inputs, as PyTorch has it), then bias.
//!
//! Fast paths, each with the trainer's plain path as its test oracle:
//! - **Gram form.** With full-batch descent every change of the first weight is Qᵀ·X for some Q (rows × outputs).
//!   So train in the space of Q: the first layer's outputs are a·X·W₀ᵀ + (X·Xᵀ)·Q, where a carries weight decay.
//!   W = a·W₀ + Qᵀ·X is formed once at the end, and summed over clients without ever forming it for one.
//! - **Stacking.** Without hidden layers all models of all jobs are rows of one product.
//! - **Single outputs** of few or short rows, row by row or from moments (`narrow.rs`).

mod convex;
mod gram;
mod identify;
mod narrow;
mod reduce;
#[cfg(test)]
mod tests;

use super::architecture::Part;
use super::trainer::choose::{Candidates, compete};
use super::trainer::rows::{Goal, Output, row_loss};
use super::trainer::steps::steps_of;
use super::trainer::{Network, NetworkModel, NetworkWorker, Pass, widen};
use super::worker::reduce_plainly;
use super::{Choice, Choosing, Convex, Layout, LinearForm, Reduced, Score, Seat, Summing, TensorPlace, Worker};
use crate::data::Shard;
use crate::data::numbers::{convert, convert_into};
use crate::families::Response;
use crate::num::{Matrix, Real, add_scaled, multiply, multiply_add};
use crate::rng::Rng;
use crate::training::{Plan, Sample, Then};
pub(super) use convex::{Minimiser, Rows};
use rand::RngExt;
use reduce::Hints;
use std::ops::Range;
use std::sync::Arc;

/// A stack of dense layers with rectifiers in between.
#[derive(Debug, Clone)]
pub(super) struct Dense {
    /// Inputs, hidden widths, outputs.
    widths: Vec<usize>,
    bias: bool,
    output: Output,
    initial: Initial,
    minimiser: Option<Minimiser>,
    layout: Layout,
}

/// Distribution of the initial parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initial {
    /// Uniform on ±1/√inputs, weights and biases alike.
    Uniform,
    /// 0 or 1 with equal chance.
    Coins,
    /// All 0.
    Zero,
}

impl Dense {
    pub(super) fn new(widths: Vec<usize>, bias: bool, output: Output) -> Self {
        let mut layout = Layout { tensors: Vec::new() };
        for (layer, pair) in widths.windows(2).enumerate() {
            let mut place = |part: &str, shape: Vec<usize>| {
                let offset = layout.len();
                layout.tensors.push(TensorPlace { name: format!("layer{layer}.{part}"), shape, offset });
            };
            place("weight", vec![pair[1], pair[0]]);
            if bias {
                place("bias", vec![pair[1]]);
            }
        }
        Self { widths, bias, output, initial: Initial::Uniform, minimiser: None, layout }
    }

    pub(super) fn starting(self, initial: Initial) -> Self {
        Self { initial, ..self }
    }

    /// With an exact minimiser, of a single output right above the inputs.
    pub(super) fn minimised_by(self, minimiser: Minimiser) -> Self {
        Self { minimiser: Some(minimiser), ..self }
    }

    /// What the only output means, where it is right above the inputs.
    fn single_output(&self) -> Option<Output> {
        (self.layers() == 1 && self.widths[1] == 1).then_some(self.output)
    }

    /// Size of the first weight; everything above it begins there.
    fn first_weights(&self) -> usize {
        self.weight_range(0).end
    }

    fn layers(&self) -> usize {
        self.widths.len() - 1
    }

    fn weight_range(&self, layer: usize) -> Range<usize> {
        self.layout.tensors[layer * (1 + usize::from(self.bias))].range()
    }

    fn bias_range(&self, layer: usize) -> Range<usize> {
        let weight_end = self.weight_range(layer).end;
        weight_end..weight_end + if self.bias { self.widths[layer + 1] } else { 0 }
    }

    /// X·W₀ᵀ.
    fn first_layer<T: Real>(&self, params: &[T], input: &[T], rows: usize, out: &mut [T]) {
        let weight = Matrix::new(&params[self.weight_range(0)], self.widths[1], self.widths[0]);
        multiply(out, T::ONE, Matrix::new(input, rows, self.widths[0]), weight.transpose());
    }

    /// From the first layer's products (without bias) to the outputs. `upper` are the parameters above the first weight.
    fn forward_rest<T: Real>(&self, upper: &[T], first: &[T], rows: usize, hidden: &mut Vec<Vec<T>>, out: &mut [T]) {
        let skip = self.first_weights();
        hidden.resize_with(self.layers() - 1, Vec::new);
        for layer in 0..self.layers() {
            let width = self.widths[layer + 1];
            let (below, from_here) = hidden.split_at_mut(layer);
            let rectify = !from_here.is_empty();
            let out = match from_here.first_mut() {
                Some(hidden) => {
                    hidden.resize(rows * width, T::ZERO);
                    &mut hidden[..]
                }
                None => &mut *out,
            };
            match below.last() {
                None => out.copy_from_slice(first),
                Some(input) => {
                    let weight = self.weight_range(layer);
                    let weight = &upper[weight.start - skip..weight.end - skip];
                    let weight = Matrix::new(weight, width, self.widths[layer]);
                    multiply(out, T::ONE, Matrix::new(input, rows, self.widths[layer]), weight.transpose());
                }
            }
            let bias = self.bias_range(layer);
            let bias = &upper[bias.start - skip..bias.end - skip];
            for row in out.chunks_exact_mut(width) {
                if !bias.is_empty() {
                    add_scaled(row, T::ONE, bias);
                }
                if rectify {
                    row.iter_mut().for_each(|v| *v = if *v > T::ZERO { *v } else { T::ZERO });
                }
            }
        }
    }

    /// Returns the slopes of the first layer's outputs; finds the gradient of everything above the first weight.
    fn backward_rest<'m, T: Real>(
        &self,
        upper: &[T],
        rows: usize,
        top: &'m [T],
        memory: &'m mut DenseMemory<T>,
        gradient: &mut [T],
    ) -> &'m [T] {
        let skip = self.first_weights();
        let DenseMemory { hidden, slopes, .. } = memory;
        slopes.resize_with(self.layers() - 1, Vec::new);
        for layer in (0..self.layers()).rev() {
            let width = self.widths[layer + 1];
            let (below, from_here) = slopes.split_at_mut(layer);
            let slope = from_here.first().map_or(top, |slopes| slopes);
            let bias = self.bias_range(layer);
            if !bias.is_empty() {
                let bias = &mut gradient[bias.start - skip..bias.end - skip];
                bias.fill(T::ZERO);
                slope.chunks_exact(width).for_each(|slope| add_scaled(bias, T::ONE, slope));
            }
            let Some(down) = below.last_mut() else { break };
            let inputs = self.widths[layer];
            let slope = Matrix::new(slope, rows, width);
            let weight = self.weight_range(layer);
            let weight = weight.start - skip..weight.end - skip;
            let input = &hidden[layer - 1];
            multiply(&mut gradient[weight.clone()], T::ONE, slope.transpose(), Matrix::new(input, rows, inputs));
            down.resize(rows * inputs, T::ZERO);
            multiply(down, T::ONE, slope, Matrix::new(&upper[weight], width, inputs));
            for (d, &h) in down.iter_mut().zip(input) {
                *d = if h > T::ZERO { *d } else { T::ZERO };
            }
        }
        slopes.first().map_or(top, |slopes| slopes)
    }
}

/// Buffers of one thread.
#[derive(Default)]
pub(super) struct DenseMemory<T> {
    /// X·W₀ᵀ.
    first: Vec<T>,
    /// Outputs of every hidden layer, after the rectifier, and slopes of the loss with respect to them.
    hidden: Vec<Vec<T>>,
    slopes: Vec<Vec<T>>,
}

impl Network for Dense {
    type Memory<T: Real> = DenseMemory<T>;

    const SCORED_AT_ONCE: usize = 256;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn initialise(&self, rng: &mut Rng) -> Vec<f64> {
        let mut params = vec![0.0; self.layout.len()];
        match self.initial {
            Initial::Zero => {}
            Initial::Coins => {
                params.iter_mut().for_each(|value| *value = f64::from(u8::from(rng.random::<bool>())));
            }
            Initial::Uniform => {
                for layer in 0..self.layers() {
                    let bound = 1.0 / (self.widths[layer] as f64).sqrt();
                    for value in &mut params[self.weight_range(layer).start..self.bias_range(layer).end] {
                        *value = rng.random_range(-bound..bound);
                    }
                }
            }
        }
        params
    }

    fn outputs(&self) -> usize {
        self.widths[self.layers()]
    }

    fn output(&self) -> Output {
        self.output
    }

    fn parts(&self) -> Option<([usize; 3], Vec<Part>)> {
        let dense = |layer: usize| Part::Dense {
            inputs: self.widths[layer],
            outputs: self.widths[layer + 1],
            weight: self.weight_range(layer),
            bias: self.bias_range(layer),
            rectify: layer + 1 < self.layers(),
        };
        Some(([1, 1, self.widths[0]], (0..self.layers()).map(dense).collect()))
    }

    fn most_rows(&self) -> usize {
        usize::MAX
    }

    fn curvature(&self, mean_square: f64) -> Option<f64> {
        let length = mean_square + f64::from(u8::from(self.bias));
        let factor = match self.output {
            Output::Squared => 2.0,
            Output::Logistic => 0.25,
            Output::Softmax => 0.5,
        };
        (self.layers() == 1).then_some(factor * length)
    }

    fn linear_form(&self) -> Option<LinearForm> {
        let &[slopes, outputs] = &self.widths[..] else { return None };
        let response = match self.output {
            Output::Squared if outputs == 1 => Response::Numbers,
            Output::Squared => return None,
            Output::Logistic => Response::Classes { equations: 1 },
            Output::Softmax => Response::Classes { equations: outputs - 1 },
        };
        Some(LinearForm { response, slopes, intercept: self.bias, outputs })
    }

    fn convex(&self) -> Option<&dyn Convex> {
        self.minimiser.is_some().then_some(self)
    }

    fn worker<T: Real>(model: &NetworkModel<Self>, models: &[&[f64]]) -> Box<dyn Worker> {
        Box::new(DenseWorker::<T>::new(model, models))
    }

    fn forward<T: Real>(
        &self,
        params: &[T],
        x: &[T],
        rows: usize,
        _: Pass,
        DenseMemory { first, hidden, .. }: &mut DenseMemory<T>,
        out: &mut [T],
    ) {
        first.resize(rows * self.widths[1], T::ZERO);
        self.first_layer(params, x, rows, first);
        self.forward_rest(&params[self.first_weights()..], first, rows, hidden, out);
    }

    fn backward<T: Real>(
        &self,
        params: &[T],
        x: &[T],
        rows: usize,
        slopes: &[T],
        memory: &mut DenseMemory<T>,
        gradient: &mut [T],
    ) {
        let (first, upper) = gradient.split_at_mut(self.first_weights());
        let slope = self.backward_rest(&params[first.len()..], rows, slopes, memory, upper);
        let slope = Matrix::new(slope, rows, self.widths[1]);
        multiply(first, T::ONE, slope.transpose(), Matrix::new(x, rows, self.widths[0]));
    }

    /// Of a layer, a row's gradient is the product of its slopes and its inputs, and a 1 for the bias.
    fn row_squares<T: Real>(
        &self,
        params: &[T],
        x: &[T],
        rows: usize,
        slopes: &[T],
        memory: &mut DenseMemory<T>,
        gradient: &mut [T],
    ) -> Vec<f64> {
        let skip = self.first_weights();
        self.backward_rest(&params[skip..], rows, slopes, memory, &mut gradient[skip..]);
        let square = |numbers: &[T]| numbers.iter().map(|number| number.to_f64().powi(2)).sum::<f64>();
        let bias = f64::from(u8::from(self.bias));
        let mut squares = vec![0.0; rows];
        for layer in 0..self.layers() {
            let inputs = if layer == 0 { x } else { &memory.hidden[layer - 1] };
            let slopes = memory.slopes.get(layer).map_or(slopes, Vec::as_slice);
            let rows = inputs.chunks_exact(self.widths[layer]).zip(slopes.chunks_exact(self.widths[layer + 1]));
            for (total, (inputs, slopes)) in squares.iter_mut().zip(rows) {
                *total += square(slopes) * (square(inputs) + bias);
            }
        }
        squares
    }

    /// The first weight's gradient goes straight into the weight.
    fn descend<T: Real>(
        &self,
        step: T,
        params: &mut [T],
        x: &[T],
        rows: usize,
        slopes: &[T],
        memory: &mut DenseMemory<T>,
        gradient: &mut [T],
    ) {
        let (first, upper) = params.split_at_mut(self.first_weights());
        let gradient = &mut gradient[first.len()..];
        let slope = self.backward_rest(upper, rows, slopes, memory, gradient);
        let slope = Matrix::new(slope, rows, self.widths[1]);
        multiply_add(first, -step, slope.transpose(), Matrix::new(x, rows, self.widths[0]));
        add_scaled(upper, -step, gradient);
    }
}

/// The trainer's worker with the fast paths. All buffers are reused, between clients and between asks.
struct DenseWorker<T: Real> {
    plain: NetworkWorker<Dense, T>,
    shape: Arc<Dense>,
    /// X·W₀ᵀ of the chosen model, and of a candidate.
    first: Vec<T>,
    candidate: Vec<T>,
    /// The first weights of some models of the ask, one under the other, and which models those are.
    stack: Vec<T>,
    stacked: Vec<usize>,
    /// Q of the Gram form.
    change: Vec<T>,
    /// Whether fast paths are taken; tests compare with them off.
    fast: bool,
}

impl<T: Real> DenseWorker<T> {
    fn new(model: &NetworkModel<Dense>, models: &[&[f64]]) -> Self {
        Self {
            plain: NetworkWorker::new(model, models),
            shape: model.network.clone(),
            first: Vec::new(),
            candidate: Vec::new(),
            stack: Vec::new(),
            stacked: Vec::new(),
            change: Vec::new(),
            fast: true,
        }
    }
}

impl<T: Real> Worker for DenseWorker<T> {
    fn begin(&mut self, models: &[&[f64]]) {
        self.plain.begin(models);
        self.stacked.clear();
    }

    fn load(&mut self, params: &[f64]) -> usize {
        self.plain.load(params)
    }

    fn width(&self) -> usize {
        self.plain.width()
    }

    fn loss(&mut self, model: usize, rows: &Shard) -> f64 {
        self.plain.loss(model, rows)
    }

    fn losses(&mut self, of: &[usize], rows: &Shard) -> Vec<f64> {
        if self.stack_pays(of) { self.stacked_losses(of, rows) } else { self.plain.losses(of, rows) }
    }

    fn row_losses(&mut self, model: usize, rows: &Shard) -> Vec<f64> {
        self.plain.row_losses(model, rows)
    }

    fn score(&mut self, model: usize, rows: &Shard) -> Score {
        self.plain.score(model, rows)
    }

    fn gradient(&mut self, model: usize, seat: &Seat, sample: &Sample, out: &mut [f64]) -> f64 {
        self.plain.gradient(model, seat, sample, out)
    }

    fn weighted_slope(
        &mut self,
        params: &[f64],
        seat: &Seat,
        rows: Option<&[u32]>,
        weights: &[f64],
        out: &mut [f64],
    ) -> f64 {
        self.plain.weighted_slope(params, seat, rows, weights, out)
    }

    fn slope(&mut self, params: &[f64], seat: &Seat, rows: Option<&[u32]>, out: &mut [f64]) -> f64 {
        let Some(output) = self.shape.single_output().filter(|_| self.fast) else {
            return self.plain.slope(params, seat, rows, out);
        };
        let shard = &seat.client.train;
        let own = self.plain.load(params);
        let NetworkWorker { models, input, scratch, .. } = &mut self.plain;
        scratch.begin(params.len());
        let (input, goal) = (convert(shard, input), Goal::of(shard));
        let loss = narrow::slope(output, &models[own], input, goal, rows, &mut scratch.gradient);
        widen(&scratch.gradient, out);
        loss
    }

    fn train(&mut self, model: usize, seat: &Seat, plan: &Plan, out: &mut [f64]) -> f64 {
        // The fast paths are for all rows; the trainer draws what else is asked for.
        let rows = seat.client.train.len();
        let by_gram = self.gram_pays(rows, plan);
        let narrow = self.shape.single_output().filter(|_| self.narrow_pays(rows, plan));
        if !by_gram && narrow.is_none() {
            return self.plain.train(model, seat, plan, out);
        }
        let mut params = self.plain.models[model].clone();
        let loss = match narrow {
            Some(output) if !by_gram => self.train_narrowly(output, &mut params, seat, plan),
            _ => self.train_one_by_gram(&mut params, seat, plan),
        };
        widen(&params, out);
        loss
    }

    fn choose(&mut self, among: &[usize], hint: usize, rows: &Shard) -> Choice {
        let mut buffer = std::mem::take(&mut self.plain.input);
        let choice = self.compete(among, hint, convert(rows, &mut buffer), Goal::of(rows));
        self.plain.input = buffer;
        choice
    }

    fn reduce(&mut self, steps: &[&Choosing], seats: &[Seat], hints: &mut [u32], summing: Summing) -> Vec<Reduced> {
        if self.stacks(steps) {
            return self.reduce_stacked(steps, seats, summing);
        }
        let trains = |step: &&Choosing| matches!(*step.then, Then::Train(_)) && summing.slots(step) == step.among.len();
        if !(self.fast && steps.iter().all(trains)) {
            return reduce_plainly(self, steps, seats, hints, summing);
        }
        let reduce = |(place, step): (usize, &&Choosing)| {
            let hints = Hints { table: &mut *hints, steps: steps.len(), place };
            self.reduce_by_gram(step, seats, hints, summing)
        };
        steps.iter().enumerate().map(reduce).collect()
    }
}

impl<T: Real> DenseWorker<T> {
    /// The candidate with the smallest loss on these rows, leaving its X·W₀ᵀ in `first`.
    fn compete(&mut self, among: &[usize], hint: usize, x: &[T], goal: Goal) -> Choice {
        let early_exit = self.fast;
        compete(&mut Competition { worker: self, among, x, goal }, (among.len(), goal.len()), hint, early_exit)
    }
}

/// Candidates whose products with the rows are kept for the training that follows.
struct Competition<'w, 'i, T: Real> {
    worker: &'w mut DenseWorker<T>,
    among: &'i [usize],
    x: &'i [T],
    goal: Goal<'i>,
}

impl<T: Real> Candidates for Competition<'_, '_, T> {
    fn loss(&mut self, position: usize, rows: Range<usize>) -> f64 {
        let DenseWorker { plain, shape, candidate, .. } = &mut *self.worker;
        let (columns, width) = (shape.widths[0], shape.widths[1]);
        let params = &plain.models[self.among[position]];
        candidate.resize(self.goal.len() * width, T::ZERO);
        let first = &mut candidate[rows.start * width..rows.end * width];
        shape.first_layer(params, &self.x[rows.start * columns..rows.end * columns], rows.len(), first);
        let pass = &mut plain.buffers.pass;
        pass.outputs.resize(rows.len() * shape.outputs(), T::ZERO);
        let upper = &params[shape.first_weights()..];
        shape.forward_rest(upper, first, rows.len(), &mut pass.memory.hidden, &mut pass.outputs);
        pass.total_loss(shape.output, self.goal.part(rows))
    }

    fn lead(&mut self, _: usize) {
        std::mem::swap(&mut self.worker.first, &mut self.worker.candidate);
    }
}
