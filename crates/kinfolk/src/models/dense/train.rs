//! Training: step by step on the parameters, or in the space of the rows.

use super::layers::{Goal, convert};
use super::{DenseWorker, Seat};
use crate::data::Shard;
use crate::federation::{Amount, Course, Optimiser, Plan, Portion, Sample};
use crate::linalg::{Matrix, Real, add_scaled, multiply, multiply_add};
use crate::rng::{Key, Rng};
use rand::seq::SliceRandom;

impl<T: Real> DenseWorker<'_, T> {
    /// Full-batch descent in the space of the rows: `self.first` holds X·W₀ᵀ, `upper` everything above the first
    /// weight. Leaves Q in `change` and returns the loss before the first step and the factor a of W₀.
    pub(super) fn train_by_gram(
        &mut self,
        upper: &mut [T],
        gram: &[T],
        goal: Goal,
        plan: &Plan,
        change: &mut [T],
    ) -> (f64, T) {
        let rows = change.len() / self.shape.widths[1];
        let (momentum, decay) = match plan.optimiser {
            Optimiser::Descent { momentum, weight_decay } => (T::of(momentum), T::of(weight_decay)),
            Optimiser::Adam { .. } => unreachable!("the Gram form is for descent"),
        };
        let step = T::of(plan.step);
        let plain = momentum == T::ZERO && decay == T::ZERO;
        let mut scratch = std::mem::take(&mut self.scratch);
        let first = std::mem::take(&mut self.first);
        let mut current = std::mem::take(&mut self.candidate);
        current.clear();
        current.extend_from_slice(&first);
        scratch.begin(upper.len());
        scratch.velocity.clear();
        scratch.velocity.resize(if plain { 0 } else { change.len() }, T::ZERO);
        change.fill(T::ZERO);
        let (mut keep, mut keep_velocity) = (T::ONE, T::ZERO);
        let mut first_loss = f64::NAN;
        let steps = steps_of(plan, rows, rows);
        for t in 0..steps {
            if t > 0 {
                let width = self.shape.widths[1];
                multiply(&mut current, T::ONE, Matrix::new(gram, rows, rows), Matrix::new(change, rows, width));
                add_scaled(&mut current, keep, &first);
            }
            self.forward_rest(upper, &current, rows);
            let loss = self.backward(upper, goal, rows, &mut scratch.gradient);
            if t == 0 {
                first_loss = loss;
            }
            scratch.apply(plan.optimiser, plan.step, upper);
            if plain {
                add_scaled(change, -step, &self.slopes[0]);
            } else {
                for ((q, v), &slope) in change.iter_mut().zip(&mut scratch.velocity).zip(&self.slopes[0]) {
                    *v = momentum * *v + slope + decay * *q;
                    *q -= step * *v;
                }
                keep_velocity = momentum * keep_velocity + decay * keep;
                keep -= step * keep_velocity;
            }
        }
        self.scratch = scratch;
        self.first = first;
        self.candidate = current;
        (first_loss, keep)
    }

    /// The gradient of the mean loss over some rows; returns that loss.
    pub(super) fn whole_slope(&mut self, params: &[T], x: &[T], goal: Goal, count: usize, out: &mut [T]) -> f64 {
        let loss = self.slopes_of(params, x, goal, count, out);
        let skip = self.shape.first_weights();
        let slope = Matrix::new(&self.slopes[0], count, self.shape.widths[1]).turn();
        multiply(&mut out[..skip], T::ONE, slope, Matrix::new(x, count, self.shape.widths[0]));
        loss
    }

    /// Training step by step on the parameters themselves. Returns the loss before the first step.
    pub(super) fn train_plainly(&mut self, params: &mut [T], rows: &Shard, client: &str, plan: &Plan) -> f64 {
        let columns = self.shape.widths[0];
        let skip = self.shape.first_weights();
        let mut buffer = std::mem::take(&mut self.input);
        let mut picked = std::mem::take(&mut self.picked);
        let mut scratch = std::mem::take(&mut self.scratch);
        let input = convert(rows, &mut buffer);
        let mut batches = Batches::new(rows.len(), &plan.sample, client);
        scratch.begin(params.len());
        let fused = matches!(plan.optimiser, Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 })
            && plan.course.tolerance == 0.0;
        let mut average = vec![T::ZERO; if plan.course.averaged { params.len() } else { 0 }];
        let (mut taken, mut first_loss) = (0, f64::NAN);
        for t in 0..steps_of(plan, rows.len(), batches.size) {
            let (x, goal, count) = picked.gather(batches.next(), input, Goal::of(rows), columns);
            let loss = self.slopes_of(params, x, goal, count, &mut scratch.gradient);
            if t == 0 {
                first_loss = loss;
            }
            let slope = Matrix::new(&self.slopes[0], count, self.shape.widths[1]).turn();
            let x = Matrix::new(x, count, columns);
            let step = if plan.course.fading { plan.step / (t + 1) as f64 } else { plan.step };
            if fused {
                multiply_add(&mut params[..skip], T::of(-step), slope, x);
                add_scaled(&mut params[skip..], T::of(-step), &scratch.gradient[skip..]);
            } else {
                multiply(&mut scratch.gradient[..skip], T::ONE, slope, x);
                if scratch.within(plan, params) {
                    break;
                }
                scratch.apply(plan.optimiser, step, params);
            }
            // θ̄ ← θ̄ + 2/(t + 2)·(θ − θ̄), counting t from 0, is the mean with weights 1, 2, …, t + 1.
            let share = T::of(2.0 / (t + 2) as f64);
            average.iter_mut().zip(&*params).for_each(|(mean, &p)| *mean += share * (p - *mean));
            taken += 1;
        }
        if plan.course.averaged && taken > 0 {
            params.copy_from_slice(&average);
        }
        self.scratch = scratch;
        self.picked = picked;
        self.input = buffer;
        first_loss
    }

    /// One client's training in Gram form, with its parameters formed at the end.
    pub(super) fn train_one_by_gram(&mut self, params: &mut [T], rows: &Shard, seat: &Seat, plan: &Plan) -> f64 {
        let (columns, width) = (self.shape.widths[0], self.shape.widths[1]);
        let mut buffer = std::mem::take(&mut self.input);
        let mut change = std::mem::take(&mut self.change);
        let x = convert(rows, &mut buffer);
        self.first.resize(rows.len() * width, T::ZERO);
        Self::first_layer(self.shape, params, x, rows.len(), &mut self.first);
        change.resize(rows.len() * width, T::ZERO);
        let (weights, upper) = params.split_at_mut(self.shape.first_weights());
        let (loss, keep) = self
            .with_gram(seat, x, |worker, gram| worker.train_by_gram(upper, gram, Goal::of(rows), plan, &mut change));
        weights.iter_mut().for_each(|w| *w *= keep);
        let q = Matrix::new(&change, rows.len(), width).turn();
        multiply_add(weights, T::ONE, q, Matrix::new(x, rows.len(), columns));
        self.change = change;
        self.input = buffer;
        loss
    }

    /// Whether training this client by its Gram matrix is exact and pays.
    pub(super) fn gram_pays(&self, rows: usize, plan: &Plan) -> bool {
        self.fast
            && plan.sample.batch.is_none_or(|batch| batch as usize >= rows)
            && plan.sample.on == Portion::All
            && plan.course == Course::PLAIN
            && matches!(plan.optimiser, Optimiser::Descent { .. })
            && steps_of(plan, rows, rows) >= 2
            && rows <= self.shape.widths[0]
    }

    /// X·Xᵀ of a client's training rows, remembered where there is room.
    pub(super) fn with_gram<R>(&mut self, seat: &Seat, input: &[T], then: impl FnOnce(&mut Self, &[T]) -> R) -> R {
        let rows = seat.client.train.len();
        let make = || {
            let x = Matrix::new(input, rows, self.shape.widths[0]);
            let mut gram = vec![T::ZERO; rows * rows];
            multiply(&mut gram, T::ONE, x, x.turn());
            gram
        };
        if !seat.may_prepare {
            let gram = make();
            return then(self, &gram);
        }
        let kept = seat.prepared.get_or_init(|| Box::new(make()));
        match kept.downcast_ref::<Vec<T>>() {
            Some(gram) => then(self, gram),
            None => then(self, &make()),
        }
    }
}

/// How many steps a plan means for so many rows in batches of this size.
pub(super) fn steps_of(plan: &Plan, rows: usize, batch: usize) -> usize {
    match plan.amount {
        Amount::Steps(steps) => steps as usize,
        Amount::Epochs(epochs) => epochs as usize * rows.div_ceil(batch.max(1)),
    }
}

/// Gradient and moments of one training, reused from step to step.
#[derive(Default)]
pub(super) struct Scratch<T> {
    pub(super) gradient: Vec<T>,
    /// Velocity of descent, or Adam's first moment.
    first: Vec<T>,
    /// Adam's second moment.
    second: Vec<T>,
    /// The first weight's velocity in the Gram form.
    velocity: Vec<T>,
    steps: i32,
}

impl<T: Real> Scratch<T> {
    pub(super) fn begin(&mut self, width: usize) {
        self.gradient.resize(width, T::ZERO);
        self.first.clear();
        self.second.clear();
        self.steps = 0;
    }

    /// Whether the gradient, with the plan's weight decay, is within its tolerance.
    fn within(&self, plan: &Plan, params: &[T]) -> bool {
        if plan.course.tolerance == 0.0 {
            return false;
        }
        let (Optimiser::Descent { weight_decay, .. } | Optimiser::Adam { weight_decay }) = plan.optimiser;
        let whole = |(&g, &p): (&T, &T)| g.wide() + weight_decay * p.wide();
        let square: f64 = self.gradient.iter().zip(params).map(whole).map(|g| g * g).sum();
        square.sqrt() <= plan.course.tolerance
    }

    /// One step of the optimiser along `self.gradient`.
    pub(super) fn apply(&mut self, optimiser: Optimiser, length: f64, params: &mut [T]) {
        let step = T::of(length);
        self.steps += 1;
        match optimiser {
            Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 } => add_scaled(params, -step, &self.gradient),
            Optimiser::Descent { momentum, weight_decay } => {
                self.first.resize(params.len(), T::ZERO);
                let (momentum, decay) = (T::of(momentum), T::of(weight_decay));
                for ((p, &g), v) in params.iter_mut().zip(&self.gradient).zip(&mut self.first) {
                    *v = momentum * *v + g + decay * *p;
                    *p -= step * *v;
                }
            }
            Optimiser::Adam { weight_decay } => {
                const FORGET_FIRST: f64 = 0.9;
                const FORGET_SECOND: f64 = 0.999;
                self.first.resize(params.len(), T::ZERO);
                self.second.resize(params.len(), T::ZERO);
                let (keep_first, keep_second) = (T::of(FORGET_FIRST), T::of(FORGET_SECOND));
                let root = (1.0 - FORGET_SECOND.powi(self.steps)).sqrt();
                let rate = T::of(length * root / (1.0 - FORGET_FIRST.powi(self.steps)));
                let floor = T::of(1e-8 * root);
                let decay = T::of(weight_decay);
                let moments = self.first.iter_mut().zip(&mut self.second);
                for ((p, &g), (m, v)) in params.iter_mut().zip(&self.gradient).zip(moments) {
                    let g = g + decay * *p;
                    *m = keep_first * *m + (T::ONE - keep_first) * g;
                    *v = keep_second * *v + (T::ONE - keep_second) * g * g;
                    *p -= rate * *m / (v.root() + floor);
                }
            }
        }
    }
}

/// Batches without replacement, reshuffled every pass.
pub(super) struct Batches {
    order: Vec<u32>,
    next: usize,
    size: usize,
    rng: Option<Rng>,
}

impl Batches {
    pub(super) fn new(rows: usize, sample: &Sample, client: &str) -> Self {
        let size = sample.batch.map_or(rows, |batch| (batch as usize).min(rows)).max(1);
        let whole = size >= rows;
        let rng = (!whole).then(|| Key::new(sample.seed).word("batches").word(client).rng());
        let order = if whole { Vec::new() } else { (0..rows as u32).collect() };
        Self { next: order.len(), order, size, rng }
    }

    /// The rows of the next batch; `None` means all.
    pub(super) fn next(&mut self) -> Option<&[u32]> {
        let rng = self.rng.as_mut()?;
        if self.next >= self.order.len() {
            self.order.shuffle(rng);
            self.next = 0;
        }
        let begin = self.next;
        self.next = (begin + self.size).min(self.order.len());
        Some(&self.order[begin..self.next])
    }
}

/// The rows of a batch, gathered.
#[derive(Default)]
pub(super) struct PickedRows<T> {
    x: Vec<T>,
    classes: Vec<u32>,
    values: Vec<f64>,
}

impl<T: Real> PickedRows<T> {
    /// The picked rows and their targets; `None` picks all, without a copy.
    pub(super) fn gather<'p>(
        &'p mut self,
        picked: Option<&[u32]>,
        input: &'p [T],
        goal: Goal<'p>,
        columns: usize,
    ) -> (&'p [T], Goal<'p>, usize) {
        let Some(picked) = picked else { return (input, goal, input.len() / columns) };
        self.x.clear();
        for &row in picked {
            self.x.extend_from_slice(&input[row as usize * columns..(row as usize + 1) * columns]);
        }
        let goal = match goal {
            Goal::Classes(classes) => {
                self.classes.clear();
                self.classes.extend(picked.iter().map(|&row| classes[row as usize]));
                Goal::Classes(&self.classes)
            }
            Goal::Values(values) => {
                self.values.clear();
                self.values.extend(picked.iter().map(|&row| values[row as usize]));
                Goal::Values(&self.values)
            }
        };
        (&self.x, goal, picked.len())
    }
}
