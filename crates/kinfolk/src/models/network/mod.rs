//! Networks: what all of them share, which is all but what they compute.
//!
//! A network reads rows and gives a score for every class; softmax cross entropy judges them. Its parameters are those
//! that are learned by descent, and behind them statistics of the data that training brings up to date (running means of
//! batch normalisation): they travel and are averaged like all others, but no optimiser, pull or decay touches them.

mod augment;
mod convolution;
mod dense;
mod dropout;
mod lanes;
mod layers;
mod normalisation;
mod pooling;
mod response;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
mod winograd;

use super::check::check;
use super::course::{self, Trainee};
use super::rows::{Goal, Output, PickedRows, is_largest, row_loss};
use super::steps::{Batches, Scratch, steps_of};
use super::{Layout, Metric, Model, Precision, Seat, Worker};
use crate::data::numbers::convert;
use crate::data::{Client, DataShape, Form, Shard};
use crate::error::{Error, Result};
use crate::linalg::{Real, add_scaled};
use crate::models::Score;
use crate::rng::{Key, Rng};
use crate::training::{Plan, Sample};
use augment::augment;
pub(super) use convolution::Padding;
pub(super) use layers::{Builder, Norm, Sequence, Size};
pub(super) use pooling::Kind as Pooled;
use std::ops::Range;

/// What a network computes; batches, steps, losses and scores are the same for all of them.
pub(super) trait Network: Send + Sync {
    /// Buffers of one thread, reused from batch to batch.
    type Memory<T: Real>: Default + Send;

    /// Where each tensor lies.
    fn layout(&self) -> &Layout;

    /// How many parameters are learned; they come first, and statistics behind them.
    fn learned(&self) -> usize {
        self.layout().len()
    }

    /// Random parameters to begin with.
    fn initialise(&self, rng: &mut Rng) -> Vec<f64>;

    /// How many classes there are.
    fn outputs(&self) -> usize;

    /// Why it cannot read rows of the right shape, to stand behind "training rows".
    fn fault(&self, _rows: &Shard) -> Option<String> {
        None
    }

    /// A score for every class of each row into `out` (rows × outputs).
    fn forward<T: Real>(
        &self,
        params: &[T],
        x: &[T],
        rows: usize,
        pass: Pass,
        memory: &mut Self::Memory<T>,
        out: &mut [T],
    );

    /// The gradient that belongs to the last `forward` with [`Pass::Train`], given the slopes of the loss in its outputs.
    /// Overwrites `gradient`, which has as many numbers as are learned.
    fn backward<T: Real>(
        &self,
        params: &[T],
        x: &[T],
        rows: usize,
        slopes: &[T],
        memory: &mut Self::Memory<T>,
        gradient: &mut [T],
    );

    /// A plain step of descent in place of `backward`, for networks that need not form the whole gradient.
    #[expect(clippy::too_many_arguments, reason = "backward's, and the step")]
    fn descend<T: Real>(
        &self,
        step: T,
        params: &mut [T],
        x: &[T],
        rows: usize,
        slopes: &[T],
        memory: &mut Self::Memory<T>,
        gradient: &mut [T],
    ) {
        self.backward(params, x, rows, slopes, memory, gradient);
        add_scaled(params, -step, gradient);
    }

    /// Brings the statistics up to date with the last `forward` with [`Pass::Train`].
    fn settle<T: Real>(&self, _memory: &Self::Memory<T>, _statistics: &mut [T]) {}
}

/// What a pass through a network is for.
pub(super) enum Pass<'a> {
    /// Scores, and nothing else.
    Score,
    /// A step: `backward` follows. Dropout draws from the generator; without one nothing is dropped.
    Train(Option<&'a mut Rng>),
}

/// The size of the images a model reads, where it can tell classes apart.
pub(super) fn image_size(model: &str, data: DataShape) -> Result<Size> {
    let Form::Image { channels, height, width, .. } = data.form else { unreachable!("`make` refuses other rows") };
    must_have_classes(model, data)?;
    Ok(Size { height, width, channels })
}

/// Refuses data that has no classes to tell apart.
pub(super) fn must_have_classes(model: &str, data: DataShape) -> Result<()> {
    let refused = |found: &str| Error::settings(format!("model.kind: {model} tells classes apart, but {found}"));
    match data.classes {
        0 => Err(refused("the target of this data is a number").hint("use linear or mlp")),
        1 => Err(refused("this data has only one").hint("use data of two classes or more")),
        _ => Ok(()),
    }
}

/// A network as a model.
pub(super) struct NetworkModel<N> {
    pub(super) network: N,
    pub(super) wanted: DataShape,
    pub(super) precision: Precision,
    /// Share of each row's target that is spread evenly over all classes in training.
    pub(super) smoothing: f64,
}

impl<N: Network> NetworkModel<N> {
    fn worker<T: Real>(&self, models: &[&[f64]]) -> NetworkWorker<'_, N, T> {
        let round = |model: &&[f64]| model.iter().map(|&value| T::of(value)).collect();
        NetworkWorker {
            model: self,
            given: models.len(),
            models: models.iter().map(round).collect(),
            input: Vec::new(),
            scratch: Scratch::default(),
            buffers: Buffers::default(),
        }
    }
}

impl<N: Network> Model for NetworkModel<N> {
    fn layout(&self) -> &Layout {
        self.network.layout()
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn metrics(&self) -> &'static [Metric] {
        &[Metric::Accuracy, Metric::LogLoss]
    }

    fn initialise(&self, rng: &mut Rng) -> Result<Vec<f64>> {
        Ok(self.network.initialise(rng))
    }

    fn check(&self, client: &Client) -> Result<()> {
        check(Output::Softmax, client, self.wanted, |rows| self.network.fault(rows))
    }

    fn worker<'a>(&'a self, models: &[&[f64]]) -> Box<dyn Worker + 'a> {
        match self.precision {
            Precision::F32 => Box::new(self.worker::<f32>(models)),
            Precision::F64 => Box::new(self.worker::<f64>(models)),
        }
    }

    fn keeps_statistics(&self) -> bool {
        self.network.learned() < self.network.layout().len()
    }
}

/// Computes with a network on one thread. All buffers are reused between clients.
pub(super) struct NetworkWorker<'a, N: Network, T: Real> {
    model: &'a NetworkModel<N>,
    /// Models of the ask; one more place behind them is for `load`.
    given: usize,
    models: Vec<Vec<T>>,
    /// Rows converted to T.
    input: Vec<T>,
    /// Gradients and moments of a training.
    scratch: Scratch<T>,
    buffers: Buffers<N::Memory<T>, T>,
}

/// What one batch needs.
#[derive(Default)]
struct Buffers<M, T> {
    picked: PickedRows<T>,
    augmented: Vec<T>,
    pass: Passing<M, T>,
}

/// What rows on their way through a network need.
#[derive(Default)]
struct Passing<M, T> {
    memory: M,
    outputs: Vec<T>,
    slopes: Vec<T>,
    /// The gradient of one of several chunks.
    gradient: Vec<T>,
}

/// Rows that share a step.
#[derive(Clone, Copy)]
struct Batch<'a, T> {
    x: &'a [T],
    goal: Goal<'a>,
    rows: usize,
}

impl<T> Batch<'_, T> {
    /// Some of its rows.
    fn part(&self, rows: Range<usize>) -> Self {
        let columns = self.x.len() / self.rows.max(1);
        let x = &self.x[rows.start * columns..rows.end * columns];
        Self { x, goal: self.goal.part(rows.clone()), rows: rows.len() }
    }
}

impl<N: Network, T: Real> NetworkWorker<'_, N, T> {
    /// Carries rows through a model, some at a time; `look` sees each one's loss, and whether its class is right.
    fn visit(&mut self, model: usize, rows: &Shard, mut look: impl FnMut(f64, bool)) {
        const ROWS_AT_ONCE: usize = 64;
        let network = &self.model.network;
        let width = network.outputs();
        let x = convert(rows, &mut self.input);
        let Passing { memory, outputs, .. } = &mut self.buffers.pass;
        for begin in (0..rows.len()).step_by(ROWS_AT_ONCE) {
            let end = (begin + ROWS_AT_ONCE).min(rows.len());
            let x = &x[begin * rows.columns()..end * rows.columns()];
            let Goal::Classes(classes) = Goal::of(rows).part(begin..end) else { continue };
            outputs.resize((end - begin) * width, T::ZERO);
            network.forward(&self.models[model], x, end - begin, Pass::Score, memory, outputs);
            for (row, (out, &class)) in outputs.chunks_exact(width).zip(classes).enumerate() {
                let loss = row_loss(Output::Softmax, out, Goal::Classes(classes), row, None).wide();
                look(loss, is_largest(out, class));
            }
        }
    }
}

impl<N: Network, T: Real> Worker for NetworkWorker<'_, N, T> {
    fn load(&mut self, params: &[f64]) -> usize {
        self.models.truncate(self.given);
        self.models.push(params.iter().map(|&value| T::of(value)).collect());
        self.given
    }

    fn width(&self) -> usize {
        self.model.network.layout().len()
    }

    fn loss(&mut self, model: usize, rows: &Shard) -> f64 {
        self.score(model, rows).loss / rows.len() as f64
    }

    fn row_losses(&mut self, model: usize, rows: &Shard) -> Vec<f64> {
        let mut losses = Vec::with_capacity(rows.len());
        self.visit(model, rows, |loss, _| losses.push(loss));
        losses
    }

    fn score(&mut self, model: usize, rows: &Shard) -> Score {
        let mut score = Score { rows: rows.len() as u32, ..Score::default() };
        self.visit(model, rows, |loss, hit| {
            score.loss += loss;
            *score.hits.get_or_insert(0) += u32::from(hit);
        });
        score
    }

    fn gradient(&mut self, model: usize, seat: &Seat, sample: &Sample, out: &mut [f64]) -> f64 {
        let rows = seat.rows(sample.on);
        self.scratch.begin(self.model.network.learned());
        let input = convert(&rows, &mut self.input);
        let source = Source::new(input, &rows, sample, &seat.client.id);
        let mut pupil = Pupil { model: self.model, source, buffers: &mut self.buffers };
        let loss = pupil.slope(&self.models[model], &mut self.scratch.gradient);
        widen(&self.scratch.gradient, out);
        loss
    }

    /// Nothing is dropped, mirrored or moved: the same parameters and rows always have the same slope.
    fn slope(&mut self, params: &[f64], seat: &Seat, rows: Option<&[u32]>, out: &mut [f64]) -> f64 {
        let shard = &seat.client.train;
        let own = self.load(params);
        self.scratch.begin(self.model.network.learned());
        let input = convert(shard, &mut self.input);
        let (x, goal, count) = self.buffers.picked.gather(rows, input, Goal::of(shard), shard.columns());
        let (batch, pass) = (Batch { x, goal, rows: count }, &mut self.buffers.pass);
        let loss = self.model.gradient(&self.models[own], batch, None, pass, &mut self.scratch.gradient);
        widen(&self.scratch.gradient, out);
        loss
    }

    fn train(&mut self, model: usize, seat: &Seat, plan: &Plan, out: &mut [f64]) -> f64 {
        let rows = seat.rows(plan.sample.on);
        let mut params = self.models[model].clone();
        self.scratch.begin(self.model.network.learned());
        let input = convert(&rows, &mut self.input);
        let source = Source::new(input, &rows, &plan.sample, &seat.client.id);
        let steps = steps_of(plan, rows.len(), source.batches.size);
        let mut pupil = Pupil { model: self.model, source, buffers: &mut self.buffers };
        let loss = course::train(&mut pupil, plan, steps, &self.models, &mut params, &mut self.scratch);
        widen(&params, out);
        loss
    }
}

/// Copies into `out`; what is behind it there has no gradient.
fn widen<T: Real>(values: &[T], out: &mut [f64]) {
    let (first, rest) = out.split_at_mut(values.len());
    first.iter_mut().zip(values).for_each(|(out, value)| *out = value.wide());
    rest.fill(0.0);
}

impl<N: Network> NetworkModel<N> {
    /// How many of a step's rows go through the network together, and are remembered until they have gone back. All of
    /// them where their statistics are taken; else as many in every chunk, by the number of rows alone.
    fn rows_at_once(&self, rows: usize) -> usize {
        const MOST_ROWS: usize = 128;
        if self.keeps_statistics() { rows } else { rows.div_ceil(rows.div_ceil(MOST_ROWS).max(1)) }
    }

    /// The gradient of a batch's mean loss into `gradient`, chunk by chunk; returns that loss. Dropout draws row after
    /// row within a chunk, chunk after chunk.
    fn gradient<T: Real>(
        &self,
        params: &[T],
        batch: Batch<T>,
        mut dropout: Option<&mut Rng>,
        pass: &mut Passing<N::Memory<T>, T>,
        gradient: &mut [T],
    ) -> f64 {
        let at_once = self.rows_at_once(batch.rows).max(1);
        let mut loss = 0.0;
        for begin in (0..batch.rows.max(1)).step_by(at_once) {
            let part = batch.part(begin..(begin + at_once).min(batch.rows));
            loss += self.judge(params, part, batch.rows, dropout.as_deref_mut(), pass);
            let Passing { memory, slopes, gradient: own, .. } = pass;
            if begin == 0 {
                self.network.backward(params, part.x, part.rows, slopes, memory, gradient);
            } else {
                own.resize(gradient.len(), T::ZERO);
                self.network.backward(params, part.x, part.rows, slopes, memory, own);
                add_scaled(gradient, T::ONE, own);
            }
        }
        loss
    }

    /// Takes some rows of a batch of `of` through the network: their part of its mean loss, which it returns, has the
    /// slopes in the outputs that are left behind.
    fn judge<T: Real>(
        &self,
        params: &[T],
        batch: Batch<T>,
        of: usize,
        dropout: Option<&mut Rng>,
        pass: &mut Passing<N::Memory<T>, T>,
    ) -> f64 {
        let Batch { x, goal, rows } = batch;
        let Goal::Classes(classes) = goal else { unreachable!("check refuses rows without classes") };
        let Passing { memory, outputs, slopes, .. } = pass;
        let width = self.network.outputs();
        outputs.resize(rows * width, T::ZERO);
        slopes.resize(rows * width, T::ZERO);
        self.network.forward(params, x, rows, Pass::Train(dropout), memory, outputs);
        let scale = T::ONE / T::of(of as f64);
        let even = T::of(self.smoothing / width as f64);
        let mut total = 0.0;
        for (row, (out, slope)) in outputs.chunks_exact(width).zip(slopes.chunks_exact_mut(width)).enumerate() {
            total += row_loss(Output::Softmax, out, goal, row, Some((&mut *slope, scale))).wide();
            if self.smoothing > 0.0 {
                // The target moves from the class to the mean of all: the loss by ε·(own − mean score).
                let own = classes[row] as usize;
                let mean = out.iter().map(|score| score.wide()).sum::<f64>() / width as f64;
                total += self.smoothing * (out[own].wide() - mean);
                slope.iter_mut().for_each(|slope| *slope -= scale * even);
                slope[own] += scale * T::of(self.smoothing);
            }
        }
        total / of as f64
    }
}

/// Where the batches of one training come from.
struct Source<'i, T> {
    input: &'i [T],
    goal: Goal<'i>,
    columns: usize,
    batches: Batches,
    /// Draws what is mirrored and moved.
    augment: Rng,
    /// Draws what is dropped.
    dropout: Rng,
}

impl<'i, T: Real> Source<'i, T> {
    fn new(input: &'i [T], rows: &'i Shard, sample: &Sample, client: &str) -> Self {
        let rng = |purpose: &str| Key::new(sample.seed).word(purpose).word(client).rng();
        Self {
            input,
            goal: Goal::of(rows),
            columns: rows.columns(),
            batches: Batches::new(rows.len(), sample, client),
            augment: rng("augment"),
            dropout: rng("dropout"),
        }
    }
}

/// A network in training, batch after batch.
struct Pupil<'m, 'i, 'b, N: Network, T: Real> {
    model: &'m NetworkModel<N>,
    source: Source<'i, T>,
    buffers: &'b mut Buffers<N::Memory<T>, T>,
}

impl<N: Network, T: Real> Pupil<'_, '_, '_, N, T> {
    /// The next batch, what draws its dropout, and memory for its way.
    fn next(&mut self) -> (Batch<'_, T>, &mut Rng, &mut Passing<N::Memory<T>, T>) {
        let Buffers { picked, augmented, pass } = &mut *self.buffers;
        let Source { input, goal, columns, batches, augment: moves, dropout } = &mut self.source;
        let (x, goal, rows) = picked.gather(batches.next(), input, *goal, *columns);
        let x = if augment(self.model.wanted.form, x, moves, augmented) { &*augmented } else { x };
        (Batch { x, goal, rows }, dropout, pass)
    }
}

impl<N: Network, T: Real> Trainee<T> for Pupil<'_, '_, '_, N, T> {
    fn slope(&mut self, params: &[T], gradient: &mut [T]) -> f64 {
        let model = self.model;
        let (batch, dropout, pass) = self.next();
        model.gradient(params, batch, Some(dropout), pass, gradient)
    }

    fn descend(&mut self, step: T, params: &mut [T], gradient: &mut [T]) -> f64 {
        let model = self.model;
        let (batch, dropout, pass) = self.next();
        if model.rows_at_once(batch.rows) < batch.rows {
            let loss = model.gradient(params, batch, Some(dropout), pass, gradient);
            add_scaled(params, -step, gradient);
            return loss;
        }
        let loss = model.judge(params, batch, batch.rows, Some(dropout), pass);
        let Passing { memory, slopes, .. } = pass;
        model.network.descend(step, params, batch.x, batch.rows, slopes, memory, gradient);
        loss
    }

    fn settle(&mut self, params: &mut [T]) {
        let network = &self.model.network;
        network.settle(&self.buffers.pass.memory, &mut params[network.learned()..]);
    }
}
