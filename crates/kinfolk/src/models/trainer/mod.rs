//! The trainer: batches, optimisers, losses, choices and scores of every model that is trained by descent.
//!
//! A [`Network`] is forward and backward; all else is here. Losses are means over rows. Parameters are those learned by
//! descent, and behind them statistics of the data that training updates (running means of batch normalisation): they
//! travel and are averaged like all others, but no optimiser, pull or weight decay touches them.

mod augment;
pub mod batches;
mod check;
pub(super) mod choose;
mod course;
mod predict;
pub(super) mod rows;
pub(super) mod steps;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use super::architecture::{Architecture, Judged, Part};
use super::{Choice, Convex, Layout, LinearForm, Metric, Model, Precision, Score, Seat, Worker};
use crate::data::numbers::convert;
use crate::data::{Augment, Client, DataShape, Form, Shard, UNKNOWN_CLASS};
use crate::error::{Error, Result};
use crate::num::{Real, add_scaled};
use crate::privacy::noise::Noise;
use crate::rng::{Key, Rng};
use crate::training::{HiddenRows, Plan, Sample};
use augment::augment;
use check::check;
use choose::{Candidates, compete};
use course::Trainable;
use predict::Said;
use rows::{Goal, Output, PickedRows, is_right, row_loss};
use std::ops::Range;
use std::sync::Arc;
use steps::{Batches, Scratch, steps_of};

pub(super) trait Network: Sized + Send + Sync + 'static {
    /// Buffers of one thread, reused from batch to batch.
    type Memory<T: Real>: Default + Send;

    /// Rows that are scored together.
    const SCORED_AT_ONCE: usize = 64;

    fn layout(&self) -> &Layout;

    /// Number of parameters learned by descent; statistics follow them.
    fn learned(&self) -> usize {
        self.layout().len()
    }

    fn initialise(&self, rng: &mut Rng) -> Vec<f64>;

    fn outputs(&self) -> usize;

    fn output(&self) -> Output {
        Output::Softmax
    }

    /// Its layers and the height, width and channels of what goes in, where they can be told as data.
    fn parts(&self) -> Option<([usize; 3], Vec<Part>)> {
        None
    }

    /// Most rows of a step that go through the network together.
    fn most_rows(&self) -> usize {
        128
    }

    /// See [`Model::curvature`].
    fn curvature(&self, _mean_square: f64) -> Option<f64> {
        None
    }

    /// See [`Model::linear_form`].
    fn linear_form(&self) -> Option<LinearForm> {
        None
    }

    /// See [`Model::convex`].
    fn convex(&self) -> Option<&dyn Convex> {
        None
    }

    /// Computes with these models on one thread; a network with faster ways overrides it.
    fn worker<T: Real>(model: &NetworkModel<Self>, models: &[&[f64]]) -> Box<dyn Worker> {
        Box::new(NetworkWorker::<Self, T>::new(model, models))
    }

    /// What is wrong with rows of the right shape, as in "training rows {fault}".
    fn fault(&self, _rows: &Shard) -> Option<String> {
        None
    }

    /// The outputs of each row into `out` (rows × outputs).
    fn forward<T: Real>(
        &self,
        params: &[T],
        x: &[T],
        rows: usize,
        pass: Pass,
        memory: &mut Self::Memory<T>,
        out: &mut [T],
    );

    /// Backpropagates the gradient of the loss with respect to the outputs of the last `forward` with [`Pass::Train`].
    /// Overwrites `gradient`, which is as long as [`Network::learned`].
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

    /// The squared length of each row's gradient, after the last `forward` with [`Pass::Train`]; `slopes` are those of the rows' own
    /// losses. Only for kinds of models that say they have [row gradients](super::ModelKind::row_gradients).
    fn row_squares<T: Real>(
        &self,
        _params: &[T],
        _x: &[T],
        _rows: usize,
        _slopes: &[T],
        _memory: &mut Self::Memory<T>,
        _gradient: &mut [T],
    ) -> Vec<f64> {
        unreachable!("privacy of rows is refused for models without gradients of single rows")
    }

    /// The outputs of some rows into those of a pass.
    fn score<T: Real>(&self, params: &[T], x: &[T], rows: usize, pass: &mut Passing<Self::Memory<T>, T>) {
        let Passing { memory, outputs, .. } = pass;
        outputs.resize(rows * self.outputs(), T::ZERO);
        self.forward(params, x, rows, Pass::Score, memory, outputs);
    }

    /// Updates the statistics after the last `forward` with [`Pass::Train`].
    fn update_statistics<T: Real>(&self, _memory: &Self::Memory<T>, _statistics: &mut [T]) {}
}

/// The purpose of a forward pass.
pub(super) enum Pass<'a> {
    Score,
    /// `backward` follows. Dropout draws from the generator; without one nothing is dropped.
    Train(Option<&'a mut Rng>),
}

pub(super) struct NetworkModel<N> {
    pub(super) network: Arc<N>,
    pub(super) wanted: DataShape,
    pub(super) precision: Precision,
    /// Share of each row's target that is spread evenly over all classes in training.
    pub(super) smoothing: f64,
}

impl<N> Clone for NetworkModel<N> {
    fn clone(&self) -> Self {
        Self { network: self.network.clone(), ..*self }
    }
}

impl<N: Network> Model for NetworkModel<N> {
    fn layout(&self) -> &Layout {
        self.network.layout()
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn columns(&self) -> usize {
        match self.wanted.form {
            Form::Text { .. } => 0,
            _ => self.wanted.columns,
        }
    }

    fn classes(&self) -> usize {
        match self.network.output() {
            Output::Squared => 0,
            Output::Logistic => 2,
            Output::Softmax => self.network.outputs(),
        }
    }

    fn metrics(&self) -> &'static [Metric] {
        match self.network.output() {
            Output::Squared => &[Metric::SquaredError],
            Output::Logistic | Output::Softmax => &[Metric::Accuracy, Metric::LogLoss],
        }
    }

    fn initialise(&self, rng: &mut Rng) -> Result<Vec<f64>> {
        Ok(self.network.initialise(rng))
    }

    fn check(&self, client: &Client) -> Result<()> {
        check(self.network.output(), client, self.wanted, |rows| self.network.fault(rows))
    }

    fn worker(&self, models: &[&[f64]]) -> Box<dyn Worker> {
        match self.precision {
            Precision::F32 => N::worker::<f32>(self, models),
            Precision::F64 => N::worker::<f64>(self, models),
        }
    }

    fn predict(&self, params: &[f64], rows: &Shard) -> Result<Vec<f64>> {
        self.say(params, rows, Said::Prediction)
    }

    fn expectations(&self, params: &[f64], rows: &Shard) -> Result<Vec<f64>> {
        self.say(params, rows, Said::Expectation)
    }

    fn curvature(&self, mean_square: f64) -> Option<f64> {
        self.network.curvature(mean_square)
    }

    fn linear_form(&self) -> Option<LinearForm> {
        self.network.linear_form()
    }

    fn convex(&self) -> Option<&dyn Convex> {
        self.network.convex()
    }

    fn likelihood(&self) -> f64 {
        if self.network.output() == Output::Squared { 0.5 } else { 1.0 }
    }

    fn keeps_statistics(&self) -> bool {
        self.network.learned() < self.network.layout().len()
    }

    /// Images that training mirrors or moves are not told as data.
    fn architecture(&self) -> Option<Architecture> {
        let moves = matches!(self.wanted.form, Form::Image { augment, .. } if augment != Augment::default());
        let (input, layers) = self.network.parts().filter(|_| !moves)?;
        let judged = match self.network.output() {
            Output::Squared => Judged::Squared,
            Output::Logistic => Judged::Logistic,
            Output::Softmax => Judged::Softmax,
        };
        let (smoothing, width, precision) = (self.smoothing, self.network.layout().len(), self.precision);
        Some(Architecture { input, layers, judged, smoothing, width, precision })
    }
}

/// Computes with a network on one thread. All buffers are reused, between clients and between asks.
pub(super) struct NetworkWorker<N: Network, T: Real> {
    model: NetworkModel<N>,
    /// Number of models in the ask; one more place behind them is for `load`.
    pub(super) given: usize,
    pub(super) models: Vec<Vec<T>>,
    /// Rows converted to T.
    pub(super) input: Vec<T>,
    /// Gradients and moments of a training.
    pub(super) scratch: Scratch<T>,
    pub(super) buffers: Buffers<N::Memory<T>, T>,
}

#[derive(Default)]
pub(super) struct Buffers<M, T> {
    picked: PickedRows<T>,
    augmented: Vec<T>,
    pub(super) pass: Passing<M, T>,
}

#[derive(Default)]
pub(super) struct Passing<M, T> {
    pub(super) memory: M,
    pub(super) outputs: Vec<T>,
    pub(super) slopes: Vec<T>,
    /// The gradient of one of several chunks.
    gradient: Vec<T>,
}

impl<M, T: Real> Passing<M, T> {
    /// Outputs of a row; 1 where there is no row.
    fn width(&self, goal: Goal) -> usize {
        (self.outputs.len() / goal.len().max(1)).max(1)
    }

    /// The outputs of each row, as they lie in `outputs`.
    fn rows(&self, goal: Goal) -> impl Iterator<Item = &[T]> {
        self.outputs.chunks_exact(self.width(goal))
    }

    pub(super) fn total_loss(&self, output: Output, goal: Goal) -> f64 {
        let losses = self.rows(goal).enumerate().map(|(row, out)| row_loss(output, out, goal, row, None).to_f64());
        losses.fold(0.0, |total, loss| total + loss)
    }

    /// The part of these rows in a mean loss over `of` rows, and its slopes in the outputs, with label smoothing.
    pub(super) fn judge(&mut self, output: Output, smoothing: f64, goal: Goal, of: usize) -> f64 {
        let width = self.width(goal);
        let Self { outputs, slopes, .. } = self;
        slopes.resize(outputs.len(), T::ZERO);
        let scale = T::ONE / T::of(of as f64);
        let mut total = 0.0;
        for (row, (out, slope)) in outputs.chunks_exact(width).zip(slopes.chunks_exact_mut(width)).enumerate() {
            total += row_loss(output, out, goal, row, Some((&mut *slope, scale))).to_f64();
            if let (true, Goal::Classes(classes)) = (smoothing > 0.0, goal) {
                // The target moves from the class to the mean of all: the loss by ε·(own − mean score).
                let own = classes[row] as usize;
                let mean = out.iter().map(|score| score.to_f64()).sum::<f64>() / width as f64;
                total += smoothing * (out[own].to_f64() - mean);
                slope.iter_mut().for_each(|slope| *slope -= scale * T::of(smoothing / width as f64));
                slope[own] += scale * T::of(smoothing);
            }
        }
        total / of as f64
    }
}

/// Rows that share a step.
#[derive(Clone, Copy)]
struct Batch<'a, T> {
    x: &'a [T],
    goal: Goal<'a>,
    rows: usize,
    /// What each row counts; empty where all count alike.
    weights: &'a [f64],
}

impl<T> Batch<'_, T> {
    fn part(&self, rows: Range<usize>) -> Self {
        let columns = self.x.len() / self.rows.max(1);
        let x = &self.x[rows.start * columns..rows.end * columns];
        let weights = if self.weights.is_empty() { self.weights } else { &self.weights[rows.clone()] };
        Self { x, goal: self.goal.part(rows.clone()), rows: rows.len(), weights }
    }
}

impl<N: Network, T: Real> NetworkWorker<N, T> {
    pub(super) fn new(model: &NetworkModel<N>, models: &[&[f64]]) -> Self {
        let mut worker = Self {
            model: model.clone(),
            given: 0,
            models: Vec::new(),
            input: Vec::new(),
            scratch: Scratch::default(),
            buffers: Buffers::default(),
        };
        worker.begin(models);
        worker
    }

    /// Scores rows with some models; `look` sees a model's place in `of`, a row's loss, and whether its class is right.
    fn visit(&mut self, of: &[usize], rows: &Shard, mut look: impl FnMut(usize, f64, bool)) {
        let network = &self.model.network;
        let (output, columns) = (network.output(), rows.columns());
        let x = convert(rows, &mut self.input);
        let pass = &mut self.buffers.pass;
        for (place, &model) in of.iter().enumerate() {
            for begin in (0..rows.len()).step_by(N::SCORED_AT_ONCE) {
                let end = (begin + N::SCORED_AT_ONCE).min(rows.len());
                let goal = Goal::of(rows).part(begin..end);
                let x = &x[begin * columns..end * columns];
                network.score(&self.models[model], x, end - begin, pass);
                for (row, out) in pass.rows(goal).enumerate() {
                    look(place, row_loss(output, out, goal, row, None).to_f64(), is_right(output, out, goal, row));
                }
            }
        }
    }
}

impl<N: Network, T: Real> Worker for NetworkWorker<N, T> {
    fn begin(&mut self, models: &[&[f64]]) {
        self.given = models.len();
        self.models.resize(models.len().max(self.models.len()), Vec::new());
        self.models.iter_mut().zip(models).for_each(|(own, model)| round_into(model, own));
    }

    fn load(&mut self, params: &[f64]) -> usize {
        self.models.resize(self.models.len().max(self.given + 1), Vec::new());
        round_into(params, &mut self.models[self.given]);
        self.given
    }

    fn width(&self) -> usize {
        self.model.network.layout().len()
    }

    fn loss(&mut self, model: usize, rows: &Shard) -> f64 {
        self.score(model, rows).loss / rows.len() as f64
    }

    fn losses(&mut self, of: &[usize], rows: &Shard) -> Vec<f64> {
        let mut totals = vec![0.0; of.len()];
        self.visit(of, rows, |place, loss, _| totals[place] += loss);
        totals.iter().map(|total| total / rows.len() as f64).collect()
    }

    fn row_losses(&mut self, model: usize, rows: &Shard) -> Vec<f64> {
        let mut losses = Vec::with_capacity(rows.len());
        self.visit(&[model], rows, |_, loss, _| losses.push(loss));
        losses
    }

    fn score(&mut self, model: usize, rows: &Shard) -> Score {
        let mut score = Score { rows: rows.len() as u32, ..Score::default() };
        self.visit(&[model], rows, |_, loss, hit| {
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
        let mut training = Training { model: &self.model, source, hiding: None, buffers: &mut self.buffers };
        let loss = training.slope(&self.models[model], &mut self.scratch.gradient);
        widen(&self.scratch.gradient, out);
        loss
    }

    /// Without dropout and augmentation: the same parameters and rows always have the same gradient.
    fn slope(&mut self, params: &[f64], seat: &Seat, rows: Option<&[u32]>, out: &mut [f64]) -> f64 {
        self.weighted_slope(params, seat, rows, &[], out)
    }

    /// Without weights all rows count 1.
    fn weighted_slope(
        &mut self,
        params: &[f64],
        seat: &Seat,
        rows: Option<&[u32]>,
        weights: &[f64],
        out: &mut [f64],
    ) -> f64 {
        let shard = &seat.client.train;
        let own = self.load(params);
        self.scratch.begin(self.model.network.learned());
        let input = convert(shard, &mut self.input);
        let (x, goal, count) = self.buffers.picked.gather(rows, input, Goal::of(shard), shard.columns());
        let (batch, pass) = (Batch { x, goal, rows: count, weights }, &mut self.buffers.pass);
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
        let hiding = plan.terms.hidden.as_deref();
        let hiding = hiding.map(|&hidden| Hiding { hidden, noise: Noise::new(hidden.source), drawn: Vec::new() });
        let mut training = Training { model: &self.model, source, hiding, buffers: &mut self.buffers };
        let loss = course::train(&mut training, plan, steps, &self.models, &mut params, &mut self.scratch);
        widen(&params, out);
        loss
    }

    fn choose(&mut self, among: &[usize], hint: usize, rows: &Shard) -> Choice {
        let Self { model, models, input, buffers, .. } = self;
        let (x, goal) = (convert(rows, input), Goal::of(rows));
        let mut competition = Competition { network: &*model.network, models, among, x, goal, pass: &mut buffers.pass };
        compete(&mut competition, (among.len(), rows.len()), hint, true)
    }
}

/// Models that compete on a client's rows.
struct Competition<'c, N: Network, T: Real> {
    network: &'c N,
    models: &'c [Vec<T>],
    among: &'c [usize],
    x: &'c [T],
    goal: Goal<'c>,
    pass: &'c mut Passing<N::Memory<T>, T>,
}

impl<N: Network, T: Real> Candidates for Competition<'_, N, T> {
    fn loss(&mut self, position: usize, rows: Range<usize>) -> f64 {
        let columns = self.x.len() / self.goal.len();
        let x = &self.x[rows.start * columns..rows.end * columns];
        self.network.score(&self.models[self.among[position]], x, rows.len(), self.pass);
        self.pass.total_loss(self.network.output(), self.goal.part(rows))
    }
}

fn round_into<T: Real>(params: &[f64], own: &mut Vec<T>) {
    own.clear();
    own.extend(params.iter().map(|&value| T::of(value)));
}

/// Copies into `out`; statistics at its end have no gradient.
pub(super) fn widen<T: Real>(values: &[T], out: &mut [f64]) {
    let (first, rest) = out.split_at_mut(values.len());
    first.iter_mut().zip(values).for_each(|(out, value)| *out = value.to_f64());
    rest.fill(0.0);
}

impl<N: Network> NetworkModel<N> {
    pub(super) fn new(network: N, wanted: DataShape, precision: Precision) -> Self {
        Self { network: Arc::new(network), wanted, precision, smoothing: 0.0 }
    }

    /// Rows of a step that go through the network together. All of them under batch normalisation; else chunks of equal
    /// size, a function of the number of rows alone.
    fn rows_at_once(&self, rows: usize) -> usize {
        if self.keeps_statistics() { rows } else { rows.div_ceil(rows.div_ceil(self.network.most_rows()).max(1)) }
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

    /// The mean gradient over `of` rows of those in this batch, each cut to a length.
    fn cut_gradient<T: Real>(
        &self,
        params: &[T],
        batch: Batch<T>,
        (clip, of): (f64, f64),
        pass: &mut Passing<N::Memory<T>, T>,
        gradient: &mut [T],
    ) {
        if batch.rows == 0 {
            gradient.fill(T::ZERO);
            return;
        }
        self.judge(params, batch, 1, None, pass);
        let Passing { memory, slopes, .. } = pass;
        let squares = self.network.row_squares(params, batch.x, batch.rows, slopes, memory, gradient);
        // A row's gradient is linear in the slopes of its outputs.
        for (slopes, square) in slopes.chunks_exact_mut(self.network.outputs()).zip(squares) {
            let length = square.sqrt();
            let share = if length.is_finite() { (clip / length).min(1.0) / of } else { 0.0 };
            slopes.iter_mut().for_each(|slope| *slope = if share > 0.0 { *slope * T::of(share) } else { T::ZERO });
        }
        self.network.backward(params, batch.x, batch.rows, slopes, memory, gradient);
    }

    /// Takes some rows of a batch of `of` through the network: returns their part of its mean loss, leaves its slopes.
    fn judge<T: Real>(
        &self,
        params: &[T],
        batch: Batch<T>,
        of: usize,
        dropout: Option<&mut Rng>,
        pass: &mut Passing<N::Memory<T>, T>,
    ) -> f64 {
        pass.outputs.resize(batch.rows * self.network.outputs(), T::ZERO);
        self.network.forward(params, batch.x, batch.rows, Pass::Train(dropout), &mut pass.memory, &mut pass.outputs);
        let loss = pass.judge(self.network.output(), self.smoothing, batch.goal, of);
        let width = self.network.outputs();
        for (slopes, &weight) in pass.slopes.chunks_exact_mut(width).zip(batch.weights) {
            slopes.iter_mut().for_each(|slope| *slope *= T::of(weight));
        }
        loss
    }
}

/// The batches of one training.
struct Source<'i, T> {
    input: &'i [T],
    goal: Goal<'i>,
    columns: usize,
    batches: Batches,
    augment: Rng,
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

/// The training of a network on one client's batches.
struct Training<'m, 'i, 'b, N: Network, T: Real> {
    model: &'m NetworkModel<N>,
    source: Source<'i, T>,
    /// Where single rows are hidden.
    hiding: Option<Hiding>,
    buffers: &'b mut Buffers<N::Memory<T>, T>,
}

/// How single rows are hidden in the steps of one training.
struct Hiding {
    hidden: HiddenRows,
    noise: Noise,
    /// The rows of a step.
    drawn: Vec<u32>,
}

impl Hiding {
    /// Draws the rows of a step; `None` means all.
    fn draw(&mut self, rows: usize) -> Option<&[u32]> {
        let Self { hidden: HiddenRows { rate, .. }, noise, drawn } = self;
        if *rate >= 1.0 {
            return None;
        }
        drawn.clear();
        drawn.extend((0..rows as u32).filter(|_| noise.happens(*rate)));
        Some(drawn)
    }
}

impl<N: Network, T: Real> Training<'_, '_, '_, N, T> {
    /// The next batch, the generator of its dropout, and buffers.
    fn next(&mut self) -> (Batch<'_, T>, &mut Rng, &mut Passing<N::Memory<T>, T>) {
        let Buffers { picked, augmented, pass } = &mut *self.buffers;
        let Source { input, goal, columns, batches, augment: moves, dropout } = &mut self.source;
        let (x, goal, rows) = picked.gather(batches.next(), input, *goal, *columns);
        let x = if augment(self.model.wanted.form, x, moves, augmented) { &*augmented } else { x };
        (Batch { x, goal, rows, weights: &[] }, dropout, pass)
    }
}

impl<N: Network, T: Real> Trainable<T> for Training<'_, '_, '_, N, T> {
    fn slope(&mut self, params: &[T], gradient: &mut [T]) -> f64 {
        let model = self.model;
        let Some(hiding) = &mut self.hiding else {
            let (batch, dropout, pass) = self.next();
            return model.gradient(params, batch, Some(dropout), pass, gradient);
        };
        let Buffers { picked, pass, .. } = &mut *self.buffers;
        let Source { input, goal, columns, .. } = self.source;
        let all = goal.len();
        let HiddenRows { rate, clip, noise: times, .. } = hiding.hidden;
        let (x, goal, rows) = picked.gather(hiding.draw(all), input, goal, columns);
        // The mean is over the rows that are expected, as their number tells of a row too.
        let of = rate * all as f64;
        model.cut_gradient(params, Batch { x, goal, rows, weights: &[] }, (clip, of), pass, gradient);
        hiding.noise.hide(gradient, clip / of, times);
        // No loss is told.
        0.0
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

    fn update_statistics(&mut self, params: &mut [T]) {
        let network = &self.model.network;
        network.update_statistics(&self.buffers.pass.memory, &mut params[network.learned()..]);
    }
}
