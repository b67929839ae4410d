//! Training: step by step on the parameters, or in the space of the rows.

use super::super::course::{self, Trainee};
use super::super::steps::Batches;
use super::{DenseWorker, Goal, PickedRows, Seat, convert, steps_of};
use crate::data::Shard;
use crate::linalg::{Matrix, Real, add_scaled, multiply, multiply_add};
use crate::training::{Course, Optimiser, Plan, Portion};

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
        let mut buffer = std::mem::take(&mut self.input);
        let mut scratch = std::mem::take(&mut self.scratch);
        let models = std::mem::take(&mut self.models);
        let batches = Batches::new(rows.len(), &plan.sample, client);
        let steps = steps_of(plan, rows.len(), batches.size);
        let picked = std::mem::take(&mut self.picked);
        let input = convert(rows, &mut buffer);
        scratch.begin(params.len());
        let mut stack = Stack { worker: self, picked, batches, input, goal: Goal::of(rows) };
        let loss = course::train(&mut stack, plan, steps, &models, params, &mut scratch);
        self.picked = stack.picked;
        self.models = models;
        self.scratch = scratch;
        self.input = buffer;
        loss
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
            && plan.pulls.is_empty()
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

/// A stack in training, batch after batch.
struct Stack<'w, 'a, 'i, T> {
    worker: &'w mut DenseWorker<'a, T>,
    picked: PickedRows<T>,
    batches: Batches,
    input: &'i [T],
    goal: Goal<'i>,
}

impl<T: Real> Trainee<T> for Stack<'_, '_, '_, T> {
    fn slope(&mut self, params: &[T], gradient: &mut [T]) -> f64 {
        let columns = self.worker.shape.widths[0];
        let (x, goal, count) = self.picked.gather(self.batches.next(), self.input, self.goal, columns);
        self.worker.whole_slope(params, x, goal, count, gradient)
    }

    /// The first weight's gradient goes straight into the weight.
    fn descend(&mut self, step: T, params: &mut [T], gradient: &mut [T]) -> f64 {
        let shape = self.worker.shape;
        let (columns, skip) = (shape.widths[0], shape.first_weights());
        let (x, goal, count) = self.picked.gather(self.batches.next(), self.input, self.goal, columns);
        let loss = self.worker.slopes_of(params, x, goal, count, gradient);
        let slope = Matrix::new(&self.worker.slopes[0], count, shape.widths[1]).turn();
        multiply_add(&mut params[..skip], -step, slope, Matrix::new(x, count, columns));
        add_scaled(&mut params[skip..], -step, &gradient[skip..]);
        loss
    }
}
