//! Models with one output right above the inputs, on rows too few or too short for a matrix product to pay: every row is
//! read once, its output found and its slope added up. Squared errors need not even that: their gradient is
//! (2/n)·(XᵀX·θ − Xᵀy), whose parts are formed once a client.

use super::{DenseWorker, Output, Seat};
use super::{Goal, convert, row_loss, steps_of};
use crate::num::logistic::Odds;
use crate::num::{Cpu, Matrix, Real, add_scaled, dispatch, multiply};
use crate::training::{Amount, Course, Optimiser, Plan, Portion};

/// Rows longer than this go through the matrix library.
const WIDEST: usize = 128;

/// XᵀX and Xᵀy over a client's rows, with a column of ones where there is an intercept, both times 2/n.
struct Moments<T> {
    squares: Vec<T>,
    products: Vec<T>,
}

impl<T: Real> DenseWorker<T> {
    /// Whether this training can go row by row, or by moments.
    pub(super) fn narrow_pays(&self, rows: usize, plan: &Plan) -> bool {
        self.fast
            && self.shape.widths[0] <= WIDEST
            && plan.sample.on == Portion::All
            && plan.sample.batch.is_none_or(|batch| batch as usize >= rows)
            && plan.course == Course::PLAIN
            && plan.terms.is_empty()
            && matches!(plan.amount, Amount::Steps(_))
            && matches!(plan.optimiser, Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 })
    }

    /// Full-batch descent of a single output. Returns the loss before the first step.
    pub(super) fn train_narrowly(&mut self, output: Output, params: &mut [T], seat: &Seat, plan: &Plan) -> f64 {
        let rows = &seat.client.train;
        let mut buffer = std::mem::take(&mut self.plain.input);
        let mut scratch = std::mem::take(&mut self.plain.scratch);
        scratch.begin(params.len());
        let (input, goal) = (convert(rows, &mut buffer), Goal::of(rows));
        let step = T::of(-plan.step);
        let steps = steps_of(plan, rows.len(), rows.len());
        let by_moments = output == Output::Squared && rows.len() > params.len();
        let first_loss = match goal {
            Goal::Values(values) if by_moments && steps > 1 => {
                let loss = slope(output, params, input, goal, None, &mut scratch.gradient);
                add_scaled(params, step, &scratch.gradient);
                self.with_moments(seat, input, values, |moments| {
                    for _ in 1..steps {
                        let rows = moments.squares.chunks_exact(params.len());
                        for ((gradient, row), &product) in scratch.gradient.iter_mut().zip(rows).zip(&moments.products)
                        {
                            *gradient = row.iter().zip(&*params).fold(-product, |sum, (&a, &p)| sum + a * p);
                        }
                        add_scaled(params, step, &scratch.gradient);
                    }
                });
                loss
            }
            _ => {
                let mut first_loss = f64::NAN;
                for t in 0..steps {
                    if t == 0 {
                        first_loss = whole_slope::<T, true>(output, params, input, goal, &mut scratch.gradient);
                    } else {
                        whole_slope::<T, false>(output, params, input, goal, &mut scratch.gradient);
                    }
                    add_scaled(params, step, &scratch.gradient);
                }
                first_loss
            }
        };
        (self.plain.scratch, self.plain.input) = (scratch, buffer);
        first_loss
    }

    /// The moments of a client's training rows, remembered where there is room.
    fn with_moments(&self, seat: &Seat, input: &[T], values: &[f64], then: impl FnOnce(&Moments<T>)) {
        let columns = self.shape.widths[0];
        let make = || {
            let width = columns + usize::from(self.shape.bias);
            let mut x = Vec::with_capacity(values.len() * width);
            for row in input.chunks_exact(columns) {
                x.extend_from_slice(row);
                x.extend(self.shape.bias.then_some(T::ONE));
            }
            let x = Matrix::new(&x, values.len(), width);
            let y: Vec<T> = values.iter().map(|&value| T::of(value)).collect();
            let (mut squares, mut products) = (vec![T::ZERO; width * width], vec![T::ZERO; width]);
            let scale = T::of(2.0 / values.len() as f64);
            multiply(&mut squares, scale, x.transpose(), x);
            multiply(&mut products, scale, x.transpose(), Matrix::new(&y, values.len(), 1));
            Moments { squares, products }
        };
        if !seat.may_prepare {
            return then(&make());
        }
        match seat.prepared.get_or_init(|| Box::new(make())).downcast_ref::<Moments<T>>() {
            Some(moments) => then(moments),
            None => then(&make()),
        }
    }
}

/// The gradient of the mean loss over some rows, or all of them; returns that loss.
pub(super) fn slope<T: Real>(
    output: Output,
    params: &[T],
    input: &[T],
    goal: Goal,
    rows: Option<&[u32]>,
    gradient: &mut [T],
) -> f64 {
    let Some(rows) = rows else { return whole_slope::<T, true>(output, params, input, goal, gradient) };
    let columns = input.len() / goal.len();
    let (weights, bias) = params.split_at(columns);
    let (slopes, bias_slope) = gradient.split_at_mut(columns);
    let scale = T::ONE / T::of(rows.len() as f64);
    slopes.fill(T::ZERO);
    let (mut loss, mut constant) = (0.0, T::ZERO);
    for row in rows.iter().map(|&row| row as usize) {
        let x = &input[row * columns..(row + 1) * columns];
        let mut slope = [T::ZERO];
        loss += row_loss(output, &[affine(weights, bias, x)], goal, row, Some((&mut slope, scale))).to_f64();
        add_scaled(slopes, slope[0], x);
        constant += slope[0];
    }
    bias_slope.iter_mut().for_each(|slope| *slope = constant);
    loss / rows.len() as f64
}

/// The gradient over all rows; returns the mean loss where it is wanted.
fn whole_slope<T: Real, const LOSS: bool>(
    output: Output,
    params: &[T],
    input: &[T],
    goal: Goal,
    gradient: &mut [T],
) -> f64 {
    // Few columns are common, and their loops are unrolled when the compiler knows how many there are.
    dispatch!(|cpu| match input.len() / goal.len() {
        1 => slope_of::<T, 1, LOSS>(cpu, output, params, input, goal, gradient),
        2 => slope_of::<T, 2, LOSS>(cpu, output, params, input, goal, gradient),
        3 => slope_of::<T, 3, LOSS>(cpu, output, params, input, goal, gradient),
        4 => slope_of::<T, 4, LOSS>(cpu, output, params, input, goal, gradient),
        _ => slope_of::<T, 0, LOSS>(cpu, output, params, input, goal, gradient),
    })
}

/// Rows whose outputs are found side by side.
const LANES: usize = 16;
/// A product is turned into its logarithm before it can overflow.
const LARGE: f64 = 1e200;

/// `COLUMNS` is 0 where it is not known beforehand.
#[inline(always)]
fn slope_of<T: Real, const COLUMNS: usize, const LOSS: bool>(
    cpu: Cpu,
    output: Output,
    params: &[T],
    input: &[T],
    goal: Goal,
    gradient: &mut [T],
) -> f64 {
    let columns = if COLUMNS > 0 { COLUMNS } else { input.len() / goal.len() };
    let (weights, bias) = params.split_at(columns);
    let (slopes, bias_slope) = gradient.split_at_mut(columns);
    slopes.fill(T::ZERO);
    // Few sums stay in registers.
    let mut few = [T::ZERO; COLUMNS];
    let sums = if COLUMNS > 0 { &mut few[..] } else { &mut *slopes };
    let mut constant = T::ZERO;
    // Of logistic losses log(1 + e), the logarithms are taken of products.
    let (mut loss, mut product) = (0.0, 1.0);
    for (block, x) in input.chunks(LANES * columns).enumerate() {
        let mut outputs = [T::ZERO; LANES];
        let count = x.len() / columns;
        for (out, x) in outputs.iter_mut().zip(x.chunks_exact(columns)) {
            *out = affine(&weights[..columns], bias, x);
        }
        match goal.part(block * LANES..block * LANES + count) {
            Goal::Values(values) => {
                for (out, &value) in outputs.iter_mut().zip(values) {
                    *out -= T::of(value);
                    if LOSS {
                        loss += (*out * *out).to_f64();
                    }
                }
            }
            Goal::Classes(classes) => {
                let mut powers = outputs.map(Odds::exponent);
                T::exp_all(cpu, &mut powers);
                if LOSS {
                    for ((&odds, &power), &class) in outputs.iter().zip(&powers).zip(classes) {
                        product *= 1.0 + power.to_f64();
                        let wrong = if class == 1 { -odds } else { odds };
                        loss += wrong.to_f64().max(0.0);
                    }
                    if product > LARGE {
                        loss += product.ln();
                        product = 1.0;
                    }
                }
                for (out, &power) in outputs.iter_mut().zip(&powers) {
                    *out = Odds::with_power(*out, power).chance();
                }
                outputs.iter_mut().zip(classes).for_each(|(out, &class)| *out -= T::of(f64::from(class)));
            }
        }
        for (&residual, x) in outputs.iter().zip(x.chunks_exact(columns)) {
            add_scaled(&mut sums[..columns], residual, &x[..columns]);
            constant += residual;
        }
    }
    slopes[..COLUMNS].copy_from_slice(&few);
    // The slope of a squared error is twice the residual.
    let scale = T::of(if output == Output::Squared { 2.0 } else { 1.0 } / goal.len() as f64);
    slopes.iter_mut().for_each(|slope| *slope *= scale);
    bias_slope.iter_mut().for_each(|slope| *slope = scale * constant);
    (loss + product.ln()) / goal.len() as f64
}

#[inline(always)]
fn affine<T: Real>(weights: &[T], bias: &[T], x: &[T]) -> T {
    weights.iter().zip(x).fold(bias.first().copied().unwrap_or(T::ZERO), |sum, (&w, &x)| sum + w * x)
}
