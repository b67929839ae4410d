//! Mixtures of linear regressions.

use super::gaussian::{add_triangle, write_square};
use super::kernels::{LANES, affine, count, fused, gather, largest, one_hot, posteriors, sized};
use super::rows::Block;
use super::{HALF_LOG_TWO_PI, NOBODY, Noise, Rows, Scratch, Shape, Statistics, triangle};
use crate::linalg::{Cholesky, Spectrum, dot};

/// See [`super::expect`].
pub(super) fn expect(
    shape: &Shape,
    noise: Noise,
    params: &[f64],
    rows: &Rows,
    limit: Option<f64>,
    scratch: &mut Scratch,
    out: &mut Statistics,
) {
    let precision = prepare(shape, noise, params, scratch);
    accumulate(shape, noise, rows, limit, scratch, out, |block, scratch| {
        score(shape, &params[shape.centres()], precision, block, scratch);
        posteriors(&mut scratch.posteriors, shape.components, block.rows)
    });
}

/// See [`super::assigned`].
pub(super) fn assigned(
    shape: &Shape,
    noise: Noise,
    rows: &Rows,
    labels: &[u32],
    scratch: &mut Scratch,
    out: &mut Statistics,
) {
    let mut labels = labels.iter();
    accumulate(shape, noise, rows, None, scratch, out, |block, scratch| {
        one_hot(&mut scratch.posteriors, shape.components, labels.by_ref().take(block.rows));
        // The residuals of regressions that are 0.
        scratch.weights.clear();
        scratch.weights.extend(block.targets.iter().flat_map(|targets| std::iter::repeat_n(targets, shape.components)));
        0.0
    });
}

/// Sums up, given what writes the posteriors of a block and its residuals and returns its likelihood.
fn accumulate(
    shape: &Shape,
    noise: Noise,
    rows: &Rows,
    limit: Option<f64>,
    scratch: &mut Scratch,
    out: &mut Statistics,
    mut posteriors: impl FnMut(&Block, &mut Scratch) -> f64,
) {
    let (components, width) = (shape.components, shape.width());
    for block in rows.blocks() {
        out.log_likelihood += posteriors(&block, scratch);
        count(&scratch.posteriors, &mut out.members);
        if !out.squares.is_empty() {
            add_squares(noise, &block, components, width, scratch, &mut out.squares);
        }
        let Scratch { posteriors, weights, .. } = &mut *scratch;
        for (weight, posterior) in weights.as_flattened_mut().iter_mut().zip(posteriors.as_flattened()) {
            *weight *= posterior;
        }
        if let Some(limit) = limit {
            clip(&block, limit, components, width, scratch);
        }
        gather(&mut out.pulls, &scratch.weights, components, block.values, width);
    }
}

/// See [`super::classify`].
pub(super) fn classify(
    shape: &Shape,
    noise: Noise,
    params: &[f64],
    rows: &Rows,
    scratch: &mut Scratch,
    labels: &mut Vec<u32>,
) -> f64 {
    let precision = prepare(shape, noise, params, scratch);
    let mut log_likelihood = 0.0;
    for block in rows.blocks() {
        score(shape, &params[shape.centres()], precision, &block, scratch);
        largest(&scratch.posteriors, shape.components, block.rows, labels);
        log_likelihood += posteriors(&mut scratch.posteriors, shape.components, block.rows);
    }
    log_likelihood
}

/// Makes the constants; returns the precision of the noise.
fn prepare(shape: &Shape, noise: Noise, params: &[f64], scratch: &mut Scratch) -> f64 {
    let variance = match noise {
        Noise::Unit => 1.0,
        Noise::Common => params[shape.scatter().start],
    };
    let constant = -HALF_LOG_TWO_PI - 0.5 * variance.ln();
    scratch.constants.clear();
    scratch.constants.extend(params[shape.weights()].iter().map(|weight| weight.ln() + constant));
    variance.recip()
}

/// The logits of a block, and its residuals in `weights`.
fn score(shape: &Shape, centres: &[f64], precision: f64, block: &Block, scratch: &mut Scratch) {
    let (components, width) = (shape.components, shape.width());
    let Scratch { constants, panel, posteriors, weights, coefficients, .. } = scratch;
    let groups = block.targets.len();
    posteriors.resize(groups * components, [0.0; LANES]);
    weights.resize(groups * components, [0.0; LANES]);
    affine(weights, sized(coefficients, components, 0.0), centres, block.values, width, panel);
    let predictions = weights.chunks_exact_mut(components).zip(posteriors.chunks_exact_mut(components));
    for ((residuals, logits), targets) in predictions.zip(block.targets) {
        for ((residuals, logits), &constant) in residuals.iter_mut().zip(logits).zip(&*constants) {
            for ((residual, logit), target) in residuals.iter_mut().zip(logits).zip(targets) {
                *residual = target - *residual;
                *logit = fused(-0.5 * precision * *residual, *residual, constant);
            }
        }
    }
}

/// Lowers posterior times residual where its product with the row's length is beyond the limit.
fn clip(block: &Block, limit: f64, components: usize, width: usize, scratch: &mut Scratch) {
    for (weights, rows) in scratch.weights.chunks_exact_mut(components).zip(block.values.chunks_exact(width)) {
        let mut lengths = [0.0; LANES];
        for values in rows {
            lengths.iter_mut().zip(values).for_each(|(length, &value)| *length = fused(value, value, *length));
        }
        for weights in weights {
            for (weight, square) in weights.iter_mut().zip(&lengths) {
                let length = weight.abs() * square.sqrt();
                if length > limit {
                    *weight *= limit / length;
                }
            }
        }
    }
}

/// Adds Σ γ x xᵀ of a block, and under `Common` noise Σ γ (y − ⟨x, θ⟩)².
fn add_squares(
    noise: Noise,
    block: &Block,
    components: usize,
    width: usize,
    scratch: &mut Scratch,
    squares: &mut [f64],
) {
    let Scratch { posteriors, weights, scaled, square, .. } = scratch;
    scaled.resize(block.values.len(), [0.0; LANES]);
    for (component, squares) in squares.chunks_exact_mut(triangle(width)).take(components).enumerate() {
        let posteriors = posteriors[component..].iter().step_by(components);
        for ((scaled, rows), posteriors) in
            scaled.chunks_exact_mut(width).zip(block.values.chunks_exact(width)).zip(posteriors)
        {
            for (scaled, values) in scaled.iter_mut().zip(rows) {
                for ((scaled, value), posterior) in scaled.iter_mut().zip(values).zip(posteriors) {
                    *scaled = value * posterior;
                }
            }
        }
        gather(sized(square, width * width, 0.0), scaled, width, block.values, width);
        add_triangle(squares, square, width);
    }
    if noise == Noise::Common
        && let Some(sum) = squares.last_mut()
    {
        let pairs = posteriors.as_flattened().iter().zip(weights.as_flattened());
        *sum += pairs.map(|(posterior, residual)| posterior * residual * residual).sum::<f64>();
    }
}

/// What is added to the diagonal of a component's normal equations.
const RIDGE: f64 = 1e-5;

/// Smallest variance of the noise.
const LEAST_VARIANCE: f64 = 1e-12;

/// See [`super::maximise`]; all but the weights.
pub(super) fn maximise(shape: &Shape, noise: Noise, statistics: &Statistics, params: &mut [f64]) {
    let width = shape.width();
    let (centres, rest) = params.split_at_mut(shape.centres().end);
    let mut left = statistics.squares.last().copied().unwrap_or_default();
    let each = centres.chunks_exact_mut(width).zip(statistics.pulls.chunks_exact(width)).zip(&statistics.members);
    for (((centre, pull), &members), triangle) in each.zip(statistics.squares.chunks_exact(triangle(width))) {
        if members <= NOBODY {
            continue;
        }
        let mut gram = vec![0.0; width * width];
        write_square(&mut gram, triangle, 1.0, width);
        let mut ridged = gram.clone();
        ridged.iter_mut().step_by(width + 1).for_each(|value| *value += RIDGE);
        let mut step: Vec<f64> = pull.iter().zip(&*centre).map(|(pull, centre)| pull - RIDGE * centre).collect();
        match Cholesky::new(&ridged, width) {
            Some(factor) => factor.solve(&mut step, 1),
            None => match Spectrum::new(&ridged, width) {
                Some(spectrum) => step = spectrum.solve(&step),
                None => continue,
            },
        }
        let curved: f64 = gram.chunks_exact(width).zip(&step).map(|(row, value)| value * dot(row, &step)).sum();
        left += curved - 2.0 * dot(&step, pull);
        centre.iter_mut().zip(&step).for_each(|(value, step)| *value += step);
    }
    if noise == Noise::Common {
        let all: f64 = statistics.members.iter().sum();
        if all > NOBODY {
            rest[0] = (left / all).max(LEAST_VARIANCE);
        }
    }
}
