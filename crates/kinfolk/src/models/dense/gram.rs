//! Training in the space of the rows.

use super::{DenseWorker, Goal, Matrix, Real, Seat, add_scaled, convert, multiply, multiply_add, steps_of};
use crate::training::{Course, Optimiser, Plan, Portion};

impl<T: Real> DenseWorker<T> {
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
        let (shape, rows) = (self.shape.clone(), change.len() / self.shape.widths[1]);
        let (momentum, decay) = match plan.optimiser {
            Optimiser::Descent { momentum, weight_decay } => (T::of(momentum), T::of(weight_decay)),
            Optimiser::Adam { .. } => unreachable!("the Gram form is for descent"),
        };
        let step = T::of(plan.step);
        let plain = momentum == T::ZERO && decay == T::ZERO;
        let Self { plain: worker, first, candidate: current, .. } = self;
        let (scratch, pass) = (&mut worker.scratch, &mut worker.buffers.pass);
        current.clone_from(first);
        scratch.begin(upper.len());
        scratch.velocity.clear();
        scratch.velocity.resize(if plain { 0 } else { change.len() }, T::ZERO);
        pass.outputs.resize(rows * shape.widths[shape.layers()], T::ZERO);
        change.fill(T::ZERO);
        let (mut keep, mut keep_velocity) = (T::ONE, T::ZERO);
        let mut first_loss = f64::NAN;
        for t in 0..steps_of(plan, rows, rows) {
            if t > 0 {
                let width = shape.widths[1];
                multiply(current, T::ONE, Matrix::new(gram, rows, rows), Matrix::new(change, rows, width));
                add_scaled(current, keep, first);
            }
            shape.forward_rest(upper, current, rows, &mut pass.memory.hidden, &mut pass.outputs);
            let loss = pass.judge(shape.output, 0.0, goal, rows);
            if t == 0 {
                first_loss = loss;
            }
            let slopes = shape.backward_rest(upper, rows, &pass.slopes, &mut pass.memory, &mut scratch.gradient);
            if plain {
                add_scaled(change, -step, slopes);
            } else {
                for ((q, v), &slope) in change.iter_mut().zip(&mut scratch.velocity).zip(slopes) {
                    *v = momentum * *v + slope + decay * *q;
                    *q -= step * *v;
                }
                keep_velocity = momentum * keep_velocity + decay * keep;
                keep -= step * keep_velocity;
            }
            scratch.apply(plan.optimiser, plan.step, upper);
        }
        (first_loss, keep)
    }

    /// One client's training in Gram form, with its parameters formed at the end.
    pub(super) fn train_one_by_gram(&mut self, params: &mut [T], seat: &Seat, plan: &Plan) -> f64 {
        let rows = &seat.client.train;
        let (columns, width) = (self.shape.widths[0], self.shape.widths[1]);
        let mut buffer = std::mem::take(&mut self.plain.input);
        let mut change = std::mem::take(&mut self.change);
        let x = convert(rows, &mut buffer);
        self.first.resize(rows.len() * width, T::ZERO);
        self.shape.first_layer(params, x, rows.len(), &mut self.first);
        change.resize(rows.len() * width, T::ZERO);
        let (weights, upper) = params.split_at_mut(self.shape.first_weights());
        let (loss, keep) = self
            .with_gram(seat, x, |worker, gram| worker.train_by_gram(upper, gram, Goal::of(rows), plan, &mut change));
        weights.iter_mut().for_each(|w| *w *= keep);
        let q = Matrix::new(&change, rows.len(), width).transpose();
        multiply_add(weights, T::ONE, q, Matrix::new(x, rows.len(), columns));
        self.change = change;
        self.plain.input = buffer;
        loss
    }

    /// Whether training this client by its Gram matrix is exact and pays.
    pub(super) fn gram_pays(&self, rows: usize, plan: &Plan) -> bool {
        self.fast
            && plan.sample.batch.is_none_or(|batch| batch as usize >= rows)
            && plan.sample.on == Portion::All
            && plan.course == Course::PLAIN
            && plan.terms.is_empty()
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
            multiply(&mut gram, T::ONE, x, x.transpose());
            gram
        };
        if !seat.may_prepare {
            let gram = make();
            return then(self, &gram);
        }
        match seat.prepared.get_or_init(|| Box::new(make())).downcast_ref::<Vec<T>>() {
            Some(gram) => then(self, gram),
            None => then(self, &make()),
        }
    }
}
