//! Mixtures of linear regressions.

use super::kernels::{add_squared_differences, count, filled, weighted_square};
use super::rows::Block;
use super::triangles::{triangle, write_square};
use super::{HALF_LOG_TWO_PI, LEAST_VARIANCE, NOBODY, Noise, Rows, Scratch, Shape, Statistics};
use crate::num::triangular::{factorise, solve};
use crate::num::{Matrix, add_scaled, dot, multiply_add};

pub(super) fn accumulate(
    shape: &Shape,
    noise: Noise,
    rows: &Rows,
    limit: Option<f64>,
    scratch: &mut Scratch,
    out: &mut Statistics,
    mut posteriors: impl FnMut(&Block, &mut Scratch) -> f64,
) {
    let (components, width) = (shape.components, shape.width());
    filled(&mut scratch.square, triangle(width) * components, 0.0);
    for block in rows.blocks() {
        out.log_likelihood += posteriors(&block, scratch);
        count(&scratch.posteriors, block.rows, &mut out.members);
        if !out.squares.is_empty() {
            add_products(&block, width, scratch);
        }
        if noise == Noise::Common
            && let Some(sum) = out.squares.last_mut()
        {
            *sum += weighted_square(&scratch.weights, 0.0, &scratch.posteriors);
        }
        let Scratch { posteriors, weights, .. } = &mut *scratch;
        weights.iter_mut().zip(&*posteriors).for_each(|(weight, posterior)| *weight *= posterior);
        if let Some(limit) = limit {
            clip(&block, limit, scratch);
        }
        let weights = Matrix::new(&scratch.weights, components, block.rows);
        multiply_add(&mut out.pulls, 1.0, weights, Matrix::new(block.values, width, block.rows).transpose());
    }
    for (component, squares) in out.squares.chunks_exact_mut(triangle(width)).take(components).enumerate() {
        let products = scratch.square.iter().skip(component).step_by(components);
        squares.iter_mut().zip(products).for_each(|(square, product)| *square = *product);
    }
}

pub(super) fn prepare(shape: &Shape, noise: Noise, params: &[f64], scratch: &mut Scratch) -> f64 {
    let variance = match noise {
        Noise::Unit => 1.0,
        Noise::Common => params[shape.scatter().start],
    };
    let constant = -HALF_LOG_TWO_PI - 0.5 * variance.ln();
    let Scratch { centres, constants, coefficients, .. } = scratch;
    centres.clear();
    centres.extend_from_slice(&params[shape.centres()]);
    constants.clear();
    constants.extend(params[shape.weights()].iter().map(|weight| weight.ln() + constant));
    filled(coefficients, 1, variance.recip());
    0.0
}

/// See [`super::score`]. Residuals are left in `weights`.
pub(super) fn score(shape: &Shape, block: &Block, scratch: &mut Scratch) {
    let (components, width, rows) = (shape.components, shape.width(), block.rows);
    let Scratch { centres, constants, coefficients, posteriors, weights, .. } = scratch;
    block.repeat_targets(components, weights);
    multiply_add(weights, -1.0, Matrix::new(centres, components, width), Matrix::new(block.values, width, rows));
    posteriors.clear();
    let precision = coefficients[0];
    for (residuals, &constant) in weights.chunks_exact(rows).zip(&*constants) {
        posteriors.extend(std::iter::repeat_n(constant, rows));
        let logits = posteriors.len() - rows;
        add_squared_differences(&mut posteriors[logits..], residuals, 0.0, -0.5 * precision);
    }
}

/// Lowers posterior times residual where its product with the row's length is beyond the limit.
fn clip(block: &Block, limit: f64, scratch: &mut Scratch) {
    let squares = filled(&mut scratch.row_sums, block.rows, 0.0);
    block.values.chunks_exact(block.rows).for_each(|column| add_squared_differences(squares, column, 0.0, 1.0));
    for weights in scratch.weights.chunks_exact_mut(block.rows) {
        for (weight, square) in weights.iter_mut().zip(&*squares) {
            let length = weight.abs() * square.sqrt();
            if length > limit {
                *weight *= limit / length;
            }
        }
    }
}

/// Pairs of columns whose products are formed together, at least: few enough for a near cache.
const BAND: usize = 64;

/// Adds Σ γ x xᵀ of a block to `square`, by pairs of columns, and within these by components.
fn add_products(block: &Block, width: usize, scratch: &mut Scratch) {
    let Scratch { posteriors, scaled, square, .. } = scratch;
    let rows = block.rows;
    let components = posteriors.len() / rows;
    let posteriors = Matrix::new(posteriors, components, rows).transpose();
    let mut sums = square.as_mut_slice();
    scaled.clear();
    for (at, column) in block.values.chunks_exact(rows).enumerate() {
        for other in block.values.chunks_exact(rows).take(at + 1) {
            scaled.extend(column.iter().zip(other).map(|(one, other)| one * other));
        }
        let pairs = scaled.len() / rows;
        if pairs >= BAND || at + 1 == width {
            let (now, later) = sums.split_at_mut(pairs * components);
            multiply_add(now, 1.0, Matrix::new(scaled, pairs, rows), posteriors);
            sums = later;
            scaled.clear();
        }
    }
}

/// What is added to the diagonal of a component's normal equations.
const RIDGE: f64 = 1e-5;

/// Of the mean square of predictions, what the variance of noise is kept above: rounding.
const ROUNDING: f64 = 1e-24;

/// See [`super::maximise`]; all but the weights.
pub(super) fn maximise(shape: &Shape, noise: Noise, statistics: &Statistics, params: &mut [f64]) {
    let width = shape.width();
    let (centres, rest) = params.split_at_mut(shape.centres().end);
    // What is left of Σ γ (y − ⟨x, θ⟩)², and Σ γ ⟨x, θ⟩².
    let (mut left, mut explained) = (statistics.squares.last().copied().unwrap_or_default(), 0.0);
    let (mut gram, mut ridged, mut factor) = (vec![0.0; width * width], vec![0.0; width * width], Vec::new());
    let each = centres.chunks_exact_mut(width).zip(statistics.pulls.chunks_exact(width)).zip(&statistics.members);
    for (((centre, pull), &members), triangle) in each.zip(statistics.squares.chunks_exact(triangle(width))) {
        if members <= NOBODY {
            continue;
        }
        write_square(&mut gram, triangle, 1.0, width);
        ridged.copy_from_slice(&gram);
        ridged.iter_mut().step_by(width + 1).for_each(|value| *value += RIDGE);
        factorise(&ridged, width, &mut factor);
        let mut step: Vec<f64> = pull.iter().zip(&*centre).map(|(pull, centre)| pull - RIDGE * centre).collect();
        solve(&factor, width, &mut step);
        let curve = |along: &[f64]| -> f64 {
            gram.chunks_exact(width).zip(along).map(|(row, value)| value * dot(row, along)).sum()
        };
        left += curve(&step) - 2.0 * dot(&step, pull);
        add_scaled(centre, 1.0, &step);
        explained += curve(centre);
    }
    let all: f64 = statistics.members.iter().sum();
    if noise == Noise::Common && all > NOBODY {
        rest[0] = (left / all).max(ROUNDING * explained / all).max(LEAST_VARIANCE);
    }
}
