//! Mixtures of normal distributions.
//!
//! Rows and centres are taken relative to the rows' mean. With one precision matrix P for all components the logits are
//! one product, ⟨x, P θ⟩ plus a constant: the quadratic term of a row is the same for all of them and leaves the posterior,
//! and its sum over rows is the product of P with the rows' second moments.

use super::kernels::{add_squared_differences, count, filled, weighted_square};
use super::rows::Block;
use super::triangles::{add_outer_products, add_triangle, triangle, triangle_rows, write_square};
use super::{Covariance, HALF_LOG_TWO_PI, LEAST_VARIANCE, NOBODY, Rows, Scratch, Shape, Statistics};
use crate::num::triangular::{factorise, invert, log_determinant};
use crate::num::{Matrix, add_scaled, dot, multiply, multiply_add};

/// See [`super::accumulate`]. Sums are taken around the centres in `scratch`.
pub(super) fn accumulate(
    shape: &Shape,
    covariance: Covariance,
    rows: &Rows,
    limit: Option<f64>,
    scratch: &mut Scratch,
    out: &mut Statistics,
    mut posteriors: impl FnMut(&Block, &mut Scratch) -> f64,
) {
    let (components, columns) = (shape.components, shape.columns);
    filled(&mut scratch.sums, components * columns, 0.0);
    filled(&mut scratch.clipped, components, 0.0);
    for block in rows.blocks() {
        let values = Matrix::new(block.values, columns, block.rows).transpose();
        out.log_likelihood += posteriors(&block, scratch);
        count(&scratch.posteriors, block.rows, &mut out.members);
        multiply_add(&mut scratch.sums, 1.0, Matrix::new(&scratch.posteriors, components, block.rows), values);
        if let Some(limit) = limit {
            clip(&block, limit, columns, scratch);
            count(&scratch.weights, block.rows, &mut scratch.clipped);
            multiply_add(&mut out.pulls, 1.0, Matrix::new(&scratch.weights, components, block.rows), values);
        }
        if !out.squares.is_empty() {
            add_squares(covariance, &block, columns, scratch, &mut out.squares);
        }
    }
    let Scratch { centres, sums, clipped, .. } = scratch;
    let around = |sums: &mut [f64], members: &[f64]| {
        let each = sums.chunks_exact_mut(columns).zip(members).zip(centres.chunks_exact(columns));
        each.for_each(|((sum, &members), centre)| add_scaled(sum, -members, centre));
    };
    around(sums, &out.members);
    match limit {
        None => out.pulls.copy_from_slice(sums),
        Some(_) => around(&mut out.pulls, clipped),
    }
    if covariance == Covariance::Tied && !out.squares.is_empty() {
        tie_squares(rows.products(), centres, sums, &out.members, &mut out.squares);
    }
}

pub(super) fn prepare(
    shape: &Shape,
    covariance: Covariance,
    params: &[f64],
    rows: &Rows,
    scratch: &mut Scratch,
) -> f64 {
    let (components, columns) = (shape.components, shape.columns);
    let Scratch { centres, constants, coefficients, factor, whiteners, square, .. } = scratch;
    centres.clear();
    for centre in params[shape.centres()].chunks_exact(columns) {
        centres.extend(centre.iter().zip(rows.origin()).map(|(value, origin)| value - origin));
    }
    constants.clear();
    constants.extend(params[shape.weights()].iter().map(|weight| weight.ln() - columns as f64 * HALF_LOG_TWO_PI));
    let scatter = &params[shape.scatter()];
    match covariance {
        Covariance::Identity => {
            coefficients.clone_from(centres);
            for (constant, centre) in constants.iter_mut().zip(centres.chunks_exact(columns)) {
                *constant -= 0.5 * dot(centre, centre);
            }
            -0.5 * rows.squares()
        }
        Covariance::Tied => {
            factorise(scatter, columns, factor);
            let log_determinant = log_determinant(factor, columns);
            invert(factor, columns, filled(whiteners, columns * columns, 0.0));
            let precision = filled(square, columns * columns, 0.0);
            for (row, whitener) in whiteners.chunks_exact(columns).enumerate() {
                for (column, &value) in whitener[..=row].iter().enumerate() {
                    add_scaled(&mut precision[column * columns..][..=row], value, &whitener[..=row]);
                }
            }
            filled(coefficients, components * columns, 0.0);
            let each = coefficients.chunks_exact_mut(columns).zip(centres.chunks_exact(columns));
            for ((coefficients, centre), constant) in each.zip(constants) {
                for (&value, precision) in centre.iter().zip(precision.chunks_exact(columns)) {
                    add_scaled(coefficients, value, precision);
                }
                *constant -= 0.5 * (dot(centre, coefficients) + log_determinant);
            }
            -0.5 * dot(precision, rows.products())
        }
        Covariance::Spherical | Covariance::Diagonal => {
            let repeat = if covariance == Covariance::Spherical { columns } else { 1 };
            coefficients.clear();
            for variance in scatter {
                coefficients.extend(std::iter::repeat_n(variance.recip(), repeat));
            }
            for (constant, precisions) in constants.iter_mut().zip(coefficients.chunks_exact(columns)) {
                *constant += 0.5 * precisions.iter().map(|precision| precision.ln()).sum::<f64>();
            }
            0.0
        }
        Covariance::Full => {
            filled(whiteners, components * columns * columns, 0.0);
            let covariances = scatter.chunks_exact(columns * columns);
            let each = whiteners.chunks_exact_mut(columns * columns).zip(covariances).zip(constants);
            for ((whitener, covariance), constant) in each {
                factorise(covariance, columns, factor);
                *constant -= 0.5 * log_determinant(factor, columns);
                invert(factor, columns, whitener);
            }
            0.0
        }
    }
}

pub(super) fn score(shape: &Shape, covariance: Covariance, block: &Block, scratch: &mut Scratch) {
    let (components, columns, rows) = (shape.components, shape.columns, block.rows);
    let Scratch { centres, constants, coefficients, whiteners, posteriors, differences, scaled, .. } = scratch;
    posteriors.clear();
    constants.iter().for_each(|&constant| posteriors.extend(std::iter::repeat_n(constant, rows)));
    let each = posteriors.chunks_exact_mut(rows).zip(centres.chunks_exact(columns));
    match covariance {
        Covariance::Identity | Covariance::Tied => {
            let coefficients = Matrix::new(coefficients, components, columns);
            multiply_add(posteriors, 1.0, coefficients, Matrix::new(block.values, columns, rows));
        }
        Covariance::Spherical | Covariance::Diagonal => {
            for ((logits, centre), precisions) in each.zip(coefficients.chunks_exact(columns)) {
                let columns = block.values.chunks_exact(rows).zip(centre).zip(precisions);
                columns.for_each(|((column, &at), precision)| {
                    add_squared_differences(logits, column, at, -0.5 * precision);
                });
            }
        }
        Covariance::Full => {
            for ((logits, centre), whitener) in each.zip(whiteners.chunks_exact(columns * columns)) {
                subtract(block, centre, differences);
                let whitened = filled(scaled, columns * rows, 0.0);
                let whitener = Matrix::new(whitener, columns, columns);
                multiply(whitened, 1.0, whitener, Matrix::new(differences, columns, rows));
                whitened.chunks_exact(rows).for_each(|column| add_squared_differences(logits, column, 0.0, -0.5));
            }
        }
    }
}

/// The rows minus a centre.
fn subtract(block: &Block, centre: &[f64], differences: &mut Vec<f64>) {
    differences.clear();
    for (column, at) in block.values.chunks_exact(block.rows).zip(centre) {
        differences.extend(column.iter().map(|value| value - at));
    }
}

/// Posteriors, lowered where posterior times distance is beyond the limit.
fn clip(block: &Block, limit: f64, columns: usize, scratch: &mut Scratch) {
    let Scratch { centres, posteriors, weights, row_sums, .. } = scratch;
    weights.clone_from(posteriors);
    for (weights, centre) in weights.chunks_exact_mut(block.rows).zip(centres.chunks_exact(columns)) {
        let squares = filled(row_sums, block.rows, 0.0);
        let columns = block.values.chunks_exact(block.rows).zip(centre);
        columns.for_each(|(column, &at)| add_squared_differences(squares, column, at, 1.0));
        for (weight, square) in weights.iter_mut().zip(squares) {
            let length = *weight * square.sqrt();
            if length > limit {
                *weight *= limit / length;
            }
        }
    }
}

/// Adds a block's squares, except for `Tied`.
fn add_squares(covariance: Covariance, block: &Block, columns: usize, scratch: &mut Scratch, squares: &mut [f64]) {
    let Scratch { centres, posteriors, differences, scaled, square, .. } = scratch;
    let each = centres.chunks_exact(columns).zip(posteriors.chunks_exact(block.rows));
    let weighted = |(column, at): (&[f64], &f64), posteriors: &[f64]| weighted_square(column, *at, posteriors);
    match covariance {
        Covariance::Identity | Covariance::Tied => {}
        Covariance::Spherical => {
            for (square, (centre, posteriors)) in squares.iter_mut().zip(each) {
                let columns = block.values.chunks_exact(block.rows).zip(centre);
                *square += columns.map(|column| weighted(column, posteriors)).sum::<f64>();
            }
        }
        Covariance::Diagonal => {
            for (squares, (centre, posteriors)) in squares.chunks_exact_mut(columns).zip(each) {
                let columns = block.values.chunks_exact(block.rows).zip(centre);
                squares.iter_mut().zip(columns).for_each(|(square, column)| *square += weighted(column, posteriors));
            }
        }
        Covariance::Full => {
            for (squares, (centre, posteriors)) in squares.chunks_exact_mut(triangle(columns)).zip(each) {
                subtract(block, centre, differences);
                add_outer_products(squares, differences, posteriors, columns, scaled, square);
            }
        }
    }
}

/// Σ γ (x − θ)(x − θ)ᵀ over rows and components. As posteriors sum to 1 it is Σ x xᵀ less, for every component,
/// p θᵀ + θ pᵀ + m θ θᵀ, with the pull p and the members m.
fn tie_squares(products: &[f64], centres: &[f64], pulls: &[f64], members: &[f64], squares: &mut [f64]) {
    let columns = centres.len() / members.len();
    add_triangle(squares, products, columns);
    let each = centres.chunks_exact(columns).zip(pulls.chunks_exact(columns)).zip(members);
    for ((centre, pull), &members) in each {
        for ((squares, at), pulled) in triangle_rows(squares).zip(centre).zip(pull) {
            add_scaled(squares, -(pulled + members * at), centre);
            add_scaled(squares, -at, pull);
        }
    }
}

/// See [`super::maximise`]; all but the weights.
pub(super) fn maximise(shape: &Shape, covariance: Covariance, statistics: &Statistics, params: &mut [f64]) {
    let columns = shape.columns;
    let members = &statistics.members;
    // A component nobody belongs to stays.
    let shares: Vec<f64> = members.iter().map(|&m| if m > NOBODY { m.recip() } else { 0.0 }).collect();
    let mut moves = statistics.pulls.clone();
    for (moves, share) in moves.chunks_exact_mut(columns).zip(&shares) {
        moves.iter_mut().for_each(|pull| *pull *= share);
    }
    add_scaled(&mut params[shape.centres()], 1.0, &moves);
    let all: f64 = members.iter().sum();
    if covariance == Covariance::Identity || all <= NOBODY {
        return;
    }
    let squares = recentred(covariance, statistics, &moves, columns);
    let floors = floors(covariance, &squares, all, &params[shape.centres()], columns);
    let scatter = &mut params[shape.scatter()];
    let add_floors = |covariance: &mut [f64]| {
        let diagonal = covariance.iter_mut().step_by(columns + 1);
        diagonal.zip(&floors).for_each(|(variance, floor)| *variance = variance.max(0.0) + floor);
    };
    let belonging = shares.iter().enumerate().filter(|(_, share)| **share > 0.0);
    match covariance {
        Covariance::Identity => {}
        Covariance::Spherical => {
            let floor = floors.iter().sum::<f64>() / columns as f64;
            for (component, share) in belonging {
                scatter[component] = (squares[component] * share / columns as f64).max(floor);
            }
        }
        Covariance::Diagonal => {
            for (component, share) in belonging {
                let variances = scatter[component * columns..][..columns].iter_mut();
                for ((variance, square), &floor) in variances.zip(&squares[component * columns..]).zip(&floors) {
                    *variance = (square * share).max(floor);
                }
            }
        }
        Covariance::Tied => {
            write_square(scatter, &squares, all.recip(), columns);
            add_floors(scatter);
        }
        Covariance::Full => {
            for (component, &share) in belonging {
                let covariance = &mut scatter[component * columns * columns..][..columns * columns];
                write_square(
                    covariance,
                    &squares[component * triangle(columns)..][..triangle(columns)],
                    share,
                    columns,
                );
                add_floors(covariance);
            }
        }
    }
}

/// The squares around the centres after their moves.
fn recentred(covariance: Covariance, statistics: &Statistics, moves: &[f64], columns: usize) -> Vec<f64> {
    let mut squares = statistics.squares.clone();
    let length = if covariance == Covariance::Tied { 0 } else { squares.len() / statistics.members.len() };
    for (component, (moves, &members)) in moves.chunks_exact(columns).zip(&statistics.members).enumerate() {
        let squares = &mut squares[component * length..];
        match covariance {
            Covariance::Identity => {}
            Covariance::Spherical => squares[0] -= members * dot(moves, moves),
            Covariance::Diagonal => {
                squares.iter_mut().zip(moves).for_each(|(square, step)| *square -= members * step * step);
            }
            Covariance::Tied | Covariance::Full => {
                let rows = triangle_rows(squares).zip(moves);
                rows.for_each(|(squares, step)| add_scaled(squares, -members * step, moves));
            }
        }
    }
    squares
}

/// What the variance of every column is kept above: a millionth of its mean over components, so that none collapses; and
/// where nothing varies, what rounding may amount to.
fn floors(covariance: Covariance, squares: &[f64], all: f64, centres: &[f64], columns: usize) -> Vec<f64> {
    const SHARE: f64 = 1e-6;
    const SHARE_OF_OTHERS: f64 = 1e-12;
    const SHARE_OF_PLACE: f64 = 1e-24;
    const SHARE_BETWEEN: f64 = 1e-13;
    let variance = |column: usize| {
        let sum: f64 = match covariance {
            Covariance::Identity => 0.0,
            Covariance::Spherical => squares.iter().sum::<f64>() / columns as f64,
            Covariance::Diagonal => squares.iter().skip(column).step_by(columns).sum(),
            Covariance::Tied | Covariance::Full => {
                squares.iter().skip(triangle(column + 1) - 1).step_by(triangle(columns)).sum()
            }
        };
        (sum / all).max(0.0)
    };
    let variances: Vec<f64> = (0..columns).map(variance).collect();
    let others = SHARE_OF_OTHERS * variances.iter().sum::<f64>() / columns as f64;
    let floor = |(column, variance): (usize, &f64)| {
        let places = || centres.iter().skip(column).step_by(columns).copied();
        let (lowest, highest) = (places().fold(f64::INFINITY, f64::min), places().fold(f64::NEG_INFINITY, f64::max));
        let place = SHARE_OF_PLACE * lowest.abs().max(highest.abs()).powi(2);
        let between = SHARE_BETWEEN * (highest - lowest).powi(2);
        (SHARE * variance).max(others).max(place).max(between).max(LEAST_VARIANCE)
    };
    variances.iter().enumerate().map(floor).collect()
}
