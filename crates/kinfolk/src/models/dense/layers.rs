//! Forward and backward through the stack, losses of rows, and the competition between models.

use super::{Choice, Dense, DenseWorker, Output};
use crate::data::{Features, Shard};
use crate::linalg::{Matrix, Real, add_scaled, multiply};

/// The targets of some rows.
#[derive(Clone, Copy)]
pub(super) enum Goal<'a> {
    Classes(&'a [u32]),
    Values(&'a [f64]),
}

impl<'a> Goal<'a> {
    /// A model's `check` has seen that these are there.
    pub(super) fn of(rows: &'a Shard) -> Self {
        match rows.classes() {
            Some(classes) => Goal::Classes(classes),
            None => Goal::Values(rows.values().unwrap_or_default()),
        }
    }

    pub(super) fn len(self) -> usize {
        match self {
            Goal::Classes(classes) => classes.len(),
            Goal::Values(values) => values.len(),
        }
    }

    pub(super) fn part(self, range: std::ops::Range<usize>) -> Self {
        match self {
            Goal::Classes(classes) => Goal::Classes(&classes[range]),
            Goal::Values(values) => Goal::Values(&values[range]),
        }
    }
}

/// The rows of a shard as T, converted into `buffer` unless they are stored as T.
pub(crate) fn convert<'b, T: Real>(rows: &'b Shard, buffer: &'b mut Vec<T>) -> &'b [T] {
    let columns = rows.columns();
    let range = rows.rows().start * columns..rows.rows().end * columns;
    if let Some(stored) = T::stored(rows.features()) {
        return &stored[range];
    }
    buffer.resize(range.len(), T::ZERO);
    convert_into(rows, buffer);
    buffer
}

pub(super) fn convert_into<T: Real>(rows: &Shard, out: &mut [T]) {
    let columns = rows.columns();
    let range = rows.rows().start * columns..rows.rows().end * columns;
    match &**rows.features() {
        Features::Bytes { values, .. } => {
            let scale = T::ONE / T::of(255.0);
            for (o, &v) in out.iter_mut().zip(&values[range]) {
                *o = T::of(f64::from(v)) * scale;
            }
        }
        Features::F32 { values, .. } => out.iter_mut().zip(&values[range]).for_each(|(o, &v)| *o = T::of(f64::from(v))),
        Features::F64 { values, .. } => out.iter_mut().zip(&values[range]).for_each(|(o, &v)| *o = T::of(v)),
        Features::Columns(_) => unreachable!("a model's check refuses rows that are not encoded"),
    }
}

/// Rows that are looked at together when candidates compete: enough for the matrix product to be worth it,
/// few enough to give up early. A function of the number of rows alone, so that sums always run alike.
fn competing_rows(rows: usize) -> usize {
    rows.div_ceil(4).next_multiple_of(8).clamp(16, 64)
}

/// Loss and slope of one row: fills `slope` with the derivative of the row's loss times `scale`.
#[inline]
pub(super) fn row_loss<T: Real>(output: Output, out: &[T], goal: Goal, row: usize, slope: Option<(&mut [T], T)>) -> T {
    match (output, goal) {
        (Output::Squared, Goal::Values(values)) => {
            let residual = out[0] - T::of(values[row]);
            if let Some((slope, scale)) = slope {
                slope[0] = (residual + residual) * scale;
            }
            residual * residual
        }
        (Output::Logistic, Goal::Classes(classes)) => {
            // log(1 + e^{-s}) with s = ±log odds, and its slope, without overflow either way.
            let sign = if classes[row] == 1 { T::ONE } else { -T::ONE };
            let s = sign * out[0];
            let e = if s > T::ZERO { (-s).exponential() } else { s.exponential() };
            let wrong = if s > T::ZERO { e / (T::ONE + e) } else { T::ONE / (T::ONE + e) };
            if let Some((slope, scale)) = slope {
                slope[0] = -sign * wrong * scale;
            }
            let loss = e.log_one_plus();
            if s > T::ZERO { loss } else { loss - s }
        }
        (Output::Softmax, Goal::Classes(classes)) => {
            let largest = out.iter().copied().fold(out[0], |a, b| if b > a { b } else { a });
            let class = classes[row] as usize;
            let mut total = T::ZERO;
            match slope {
                Some((slope, scale)) => {
                    for (s, &o) in slope.iter_mut().zip(out) {
                        *s = (o - largest).exponential();
                        total += *s;
                    }
                    let share = scale / total;
                    slope.iter_mut().for_each(|s| *s *= share);
                    slope[class] -= scale;
                }
                None => out.iter().for_each(|&o| total += (o - largest).exponential()),
            }
            // Never negative: the sum holds e⁰ = 1, and the largest is at least the class's own. Early exit needs that.
            total.logarithm() + (largest - out[class])
        }
        _ => unreachable!("a model's check refuses targets it cannot predict"),
    }
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

    /// Sum of the losses of rows whose outputs lie in the last of `hidden`.
    pub(super) fn output_loss(&self, goal: Goal, rows: usize) -> f64 {
        let width = self.shape.widths[self.shape.layers()];
        let out = &self.hidden[self.shape.layers() - 1];
        let mut total = 0.0;
        for (row, out) in out.chunks_exact(width).take(rows).enumerate() {
            total += row_loss(self.shape.output, out, goal, row, None).wide();
        }
        total
    }

    /// How many rows' largest output is their class.
    pub(super) fn hits(&self, goal: Goal) -> u32 {
        let Goal::Classes(classes) = goal else { return 0 };
        let width = self.shape.widths[self.shape.layers()];
        let outputs = self.hidden[self.shape.layers() - 1].chunks_exact(width);
        let right = |(out, &class): (&[T], &u32)| match self.shape.output {
            Output::Logistic => (out[0] > T::ZERO) == (class == 1),
            _ => out.iter().enumerate().all(|(c, &o)| {
                c == class as usize || o < out[class as usize] || (o == out[class as usize] && c > class as usize)
            }),
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
                total += self.output_loss(goal.part(begin..end), end - begin);
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
