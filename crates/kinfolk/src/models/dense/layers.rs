//! Forward and backward through the stack, losses of rows, and the competition between models.

use super::{Choice, Dense, DenseWorker, Goal, Output, convert, is_largest, row_loss};
use crate::data::Shard;
use crate::linalg::{Matrix, Real, add_scaled, multiply};

/// Rows that are looked at together when candidates compete: enough for the matrix product to be worth it,
/// few enough to give up early. A function of the number of rows alone, so that sums always run alike.
fn competing_rows(rows: usize) -> usize {
    rows.div_ceil(4).next_multiple_of(8).clamp(16, 64)
}

impl<T: Real> DenseWorker<'_, T> {
    #[cfg(test)]
    pub(super) fn plain(mut self) -> Self {
        self.fast = false;
        self
    }

    /// Carries the first layer's products (without bias) through the rest of the stack, whose parameters are
    /// `upper`: everything above the first weight. Outputs end in `hidden`.
    pub(super) fn forward_rest(&mut self, upper: &[T], first: &[T], rows: usize) {
        let shape = self.shape;
        let skip = shape.first_weights();
        for layer in 0..shape.layers() {
            let width = shape.widths[layer + 1];
            let (below, from_here) = self.hidden.split_at_mut(layer);
            let out = &mut from_here[0];
            out.resize(rows * width, T::ZERO);
            if layer == 0 {
                out.copy_from_slice(first);
            } else {
                let input = Matrix::new(&below[layer - 1], rows, shape.widths[layer]);
                let weight = shape.weight_range(layer);
                let weight = Matrix::new(&upper[weight.start - skip..weight.end - skip], width, shape.widths[layer]);
                multiply(out, T::ONE, input, weight.turn());
            }
            let bias = shape.bias_range(layer);
            let bias = &upper[bias.start - skip..bias.end - skip];
            let rectify = layer + 1 < shape.layers();
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

    /// X·W₀ᵀ.
    pub(super) fn first_layer(shape: &Dense, params: &[T], input: &[T], rows: usize, out: &mut [T]) {
        let weight = Matrix::new(&params[shape.weight_range(0)], shape.widths[1], shape.widths[0]);
        multiply(out, T::ONE, Matrix::new(input, rows, shape.widths[0]), weight.turn());
    }

    /// Carries some rows through some models, chunk by chunk; `look` sees each model's place in `of` and the targets of a
    /// chunk, while its outputs lie in the last of `hidden`.
    pub(super) fn visit(&mut self, of: &[usize], rows: &Shard, mut look: impl FnMut(&Self, usize, Goal)) {
        const ROWS_AT_ONCE: usize = 256;
        let shape = self.shape;
        let (columns, width) = (shape.widths[0], shape.widths[1]);
        let mut buffer = std::mem::take(&mut self.input);
        let mut first = std::mem::take(&mut self.candidate);
        let x = convert(rows, &mut buffer);
        for (place, &model) in of.iter().enumerate() {
            let params = std::mem::take(&mut self.models[model]);
            for begin in (0..rows.len()).step_by(ROWS_AT_ONCE) {
                let end = (begin + ROWS_AT_ONCE).min(rows.len());
                first.resize((end - begin) * width, T::ZERO);
                Self::first_layer(shape, &params, &x[begin * columns..end * columns], end - begin, &mut first);
                self.forward_rest(&params[shape.first_weights()..], &first, end - begin);
                look(self, place, Goal::of(rows).part(begin..end));
            }
            self.models[model] = params;
        }
        self.candidate = first;
        self.input = buffer;
    }

    /// The losses of rows whose outputs lie in the last of `hidden`.
    pub(super) fn row_losses_of(&self, goal: Goal) -> impl Iterator<Item = f64> {
        let outputs = self.hidden[self.shape.layers() - 1].chunks_exact(self.shape.widths[self.shape.layers()]);
        outputs
            .take(goal.len())
            .enumerate()
            .map(move |(row, out)| row_loss(self.shape.output, out, goal, row, None).wide())
    }

    /// Sum of the losses of rows whose outputs lie in the last of `hidden`.
    pub(super) fn output_loss(&self, goal: Goal) -> f64 {
        self.row_losses_of(goal).fold(0.0, |total, loss| total + loss)
    }

    /// How many rows' largest output is their class.
    pub(super) fn hits(&self, goal: Goal) -> u32 {
        let Goal::Classes(classes) = goal else { return 0 };
        let width = self.shape.widths[self.shape.layers()];
        let outputs = self.hidden[self.shape.layers() - 1].chunks_exact(width);
        let right = |(out, &class): (&[T], &u32)| match self.shape.output {
            Output::Logistic => u32::from(out[0] > T::ZERO) == class,
            _ => is_largest(out, class),
        };
        outputs.zip(classes).filter(|pair| right(*pair)).count() as u32
    }

    /// Slopes of the mean loss down to the first layer's outputs, and gradients of everything above the first
    /// weight into `gradient`. Returns the mean loss.
    pub(super) fn backward(&mut self, upper: &[T], goal: Goal, rows: usize, gradient: &mut [T]) -> f64 {
        let shape = self.shape;
        let last = shape.layers() - 1;
        let width = shape.widths[last + 1];
        let scale = T::ONE / T::of(rows as f64);
        let skip = shape.weight_range(0).end;
        let mut total = 0.0;
        self.slopes[last].resize(rows * width, T::ZERO);
        let outputs = self.hidden[last].chunks_exact(width).zip(self.slopes[last].chunks_exact_mut(width));
        for (row, (out, slope)) in outputs.enumerate() {
            total += row_loss(shape.output, out, goal, row, Some((slope, scale))).wide();
        }
        for layer in (0..=last).rev() {
            let width = shape.widths[layer + 1];
            let bias = shape.bias_range(layer);
            if !bias.is_empty() {
                let bias = &mut gradient[bias.start - skip..bias.end - skip];
                bias.fill(T::ZERO);
                self.slopes[layer].chunks_exact(width).for_each(|slope| add_scaled(bias, T::ONE, slope));
            }
            if layer == 0 {
                break;
            }
            let inputs = shape.widths[layer];
            let (below, from_here) = self.slopes.split_at_mut(layer);
            let slope = Matrix::new(&from_here[0], rows, width);
            let weight = shape.weight_range(layer);
            let weight = weight.start - skip..weight.end - skip;
            let input = &self.hidden[layer - 1];
            multiply(&mut gradient[weight.clone()], T::ONE, slope.turn(), Matrix::new(input, rows, inputs));
            let down = &mut below[layer - 1];
            down.resize(rows * inputs, T::ZERO);
            multiply(down, T::ONE, slope, Matrix::new(&upper[weight], width, inputs));
            for (d, &h) in down.iter_mut().zip(input) {
                *d = if h > T::ZERO { *d } else { T::ZERO };
            }
        }
        total / rows as f64
    }

    /// Forward and backward over some rows: slopes end in `slopes`, gradients above the first weight in the upper
    /// part of `gradient`. Returns the mean loss.
    pub(super) fn slopes_of(&mut self, params: &[T], x: &[T], goal: Goal, rows: usize, gradient: &mut [T]) -> f64 {
        let skip = self.shape.first_weights();
        let mut first = std::mem::take(&mut self.first);
        first.resize(rows * self.shape.widths[1], T::ZERO);
        Self::first_layer(self.shape, params, x, rows, &mut first);
        self.forward_rest(&params[skip..], &first, rows);
        self.first = first;
        self.backward(&params[skip..], goal, rows, &mut gradient[skip..])
    }

    /// The candidate with the smallest loss on these rows, leaving its X·W₀ᵀ in `first`.
    pub(super) fn compete(&mut self, among: &[usize], hint: usize, input: &[T], goal: Goal, rows: usize) -> Choice {
        let shape = self.shape;
        let (columns, width) = (shape.widths[0], shape.widths[1]);
        let chunk = competing_rows(rows);
        let hint = if hint < among.len() { hint } else { 0 };
        let mut best = Choice { position: usize::MAX, loss: f64::INFINITY };
        let others = (0..among.len()).filter(|&position| position != hint);
        for position in std::iter::once(hint).chain(others) {
            let params = std::mem::take(&mut self.models[among[position]]);
            let mut candidate = std::mem::take(&mut self.candidate);
            candidate.resize(rows * width, T::ZERO);
            let mut total = 0.0;
            let mut beaten = false;
            for begin in (0..rows).step_by(chunk) {
                let end = (begin + chunk).min(rows);
                let part = &mut candidate[begin * width..end * width];
                Self::first_layer(shape, &params, &input[begin * columns..end * columns], end - begin, part);
                self.forward_rest(&params[shape.first_weights()..], part, end - begin);
                total += self.output_loss(goal.part(begin..end));
                if total.is_nan() {
                    total = f64::INFINITY;
                }
                beaten = total > best.loss || (total == best.loss && position > best.position);
                if beaten && self.fast {
                    break;
                }
            }
            if !beaten {
                best = Choice { position, loss: total };
                std::mem::swap(&mut self.first, &mut candidate);
            }
            self.candidate = candidate;
            self.models[among[position]] = params;
        }
        Choice { loss: best.loss / rows as f64, ..best }
    }
}
