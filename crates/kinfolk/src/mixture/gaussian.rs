//! Mixtures of normal distributions.
//!
//! Rows and centres are taken relative to the rows' mean. With one precision matrix P for all components the logits are
//! one product, ⟨x, P θ⟩ plus a constant: the quadratic term of a row is the same for all of them and leaves the posterior,
//! and its sum over rows is the product of P with the rows' second moments.

use super::kernels::{Group, LANES, affine, count, fused, gather, largest, one_hot, posteriors, sized};
use super::rows::Block;
use super::{Covariance, HALF_LOG_TWO_PI, NOBODY, Rows, Scratch, Shape, Statistics, triangle};
use crate::linalg::{add_scaled, dot};

/// See [`super::expect`].
pub(super) fn expect(
    shape: &Shape,
    covariance: Covariance,
    params: &[f64],
    rows: &Rows,
    limit: Option<f64>,
    scratch: &mut Scratch,
    out: &mut Statistics,
) {
    out.log_likelihood = prepare(shape, covariance, params, rows, scratch);
    accumulate(shape, covariance, rows, limit, scratch, out, |block, scratch| {
        score(shape, covariance, block, scratch);
        posteriors(&mut scratch.posteriors, shape.components, block.rows)
    });
}

/// See [`super::assigned`].
pub(super) fn assigned(
    shape: &Shape,
    covariance: Covariance,
    rows: &Rows,
    labels: &[u32],
    scratch: &mut Scratch,
    out: &mut Statistics,
) {
    sized(&mut scratch.centres, shape.components * shape.columns, 0.0);
    let mut labels = labels.iter();
    accumulate(shape, covariance, rows, None, scratch, out, |block, scratch| {
        one_hot(&mut scratch.posteriors, shape.components, labels.by_ref().take(block.rows));
        0.0
    });
}

/// Sums up around the centres in `scratch`, given what writes the posteriors of a block and returns its likelihood.
fn accumulate(
    shape: &Shape,
    covariance: Covariance,
    rows: &Rows,
    limit: Option<f64>,
    scratch: &mut Scratch,
    out: &mut Statistics,
    mut posteriors: impl FnMut(&Block, &mut Scratch) -> f64,
) {
    let (components, columns) = (shape.components, shape.columns);
    sized(&mut scratch.sums, components * columns, 0.0);
    let mut clipped = limit.map(|limit| (limit, vec![0.0; components]));
    for block in rows.blocks() {
        out.log_likelihood += posteriors(&block, scratch);
        count(&scratch.posteriors, &mut out.members);
        gather(&mut scratch.sums, &scratch.posteriors, components, block.values, columns);
        if let Some((limit, members)) = &mut clipped {
            clip(&block, *limit, columns, scratch);
            count(&scratch.weights, members);
            gather(&mut out.pulls, &scratch.weights, components, block.values, columns);
        }
        if !out.squares.is_empty() {
            add_squares(covariance, &block, columns, scratch, &mut out.squares);
        }
    }
    let Scratch { centres, sums, .. } = scratch;
    let around = |sums: &mut [f64], members: &[f64]| {
        let each = sums.chunks_exact_mut(columns).zip(members).zip(centres.chunks_exact(columns));
        each.for_each(|((sum, &members), centre)| add_scaled(sum, -members, centre));
    };
    around(sums, &out.members);
    match &clipped {
        None => out.pulls.copy_from_slice(sums),
        Some((_, members)) => around(&mut out.pulls, members),
    }
    if covariance == Covariance::Tied && !out.squares.is_empty() {
        tie_squares(rows.moments(), centres, sums, &out.members, &mut out.squares);
    }
}

/// See [`super::classify`].
pub(super) fn classify(
    shape: &Shape,
    covariance: Covariance,
    params: &[f64],
    rows: &Rows,
    scratch: &mut Scratch,
    labels: &mut Vec<u32>,
) -> f64 {
    let mut log_likelihood = prepare(shape, covariance, params, rows, scratch);
    for block in rows.blocks() {
        score(shape, covariance, &block, scratch);
        largest(&scratch.posteriors, shape.components, block.rows, labels);
        log_likelihood += posteriors(&mut scratch.posteriors, shape.components, block.rows);
    }
    log_likelihood
}

/// Makes constants and coefficients of the parameters; returns the part of the log likelihood that is the same for all
/// components.
fn prepare(shape: &Shape, covariance: Covariance, params: &[f64], rows: &Rows, scratch: &mut Scratch) -> f64 {
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
            -0.5 * rows.moments()[0]
        }
        Covariance::Tied => {
            let log_determinant = whiten(scatter, columns, factor, sized(whiteners, columns * columns, 0.0));
            let precision = sized(square, columns * columns, 0.0);
            for (row, whitener) in whiteners.chunks_exact(columns).enumerate() {
                for (column, &value) in whitener[..=row].iter().enumerate() {
                    add_scaled(&mut precision[column * columns..][..=row], value, &whitener[..=row]);
                }
            }
            sized(coefficients, components * columns, 0.0);
            let each = coefficients.chunks_exact_mut(columns).zip(centres.chunks_exact(columns));
            for ((coefficients, centre), constant) in each.zip(constants) {
                for (&value, precision) in centre.iter().zip(precision.chunks_exact(columns)) {
                    add_scaled(coefficients, value, precision);
                }
                *constant -= 0.5 * (dot(centre, coefficients) + log_determinant);
            }
            -0.5 * dot(precision, rows.moments())
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
            // Rows are whitened for every component; the coefficients are the whitened centre, taken off.
            sized(whiteners, components * columns * columns, 0.0);
            sized(coefficients, components * columns, 0.0);
            let matrices = whiteners.chunks_exact_mut(columns * columns).zip(scatter.chunks_exact(columns * columns));
            let vectors = coefficients.chunks_exact_mut(columns).zip(centres.chunks_exact(columns)).zip(constants);
            for ((whitener, covariance), ((offset, centre), constant)) in matrices.zip(vectors) {
                *constant -= 0.5 * whiten(covariance, columns, factor, whitener);
                for (offset, whitener) in offset.iter_mut().zip(whitener.chunks_exact(columns)) {
                    *offset = -dot(whitener, centre);
                }
            }
            0.0
        }
    }
}

/// The logits of a block.
fn score(shape: &Shape, covariance: Covariance, block: &Block, scratch: &mut Scratch) {
    let (components, columns) = (shape.components, shape.columns);
    let Scratch { centres, constants, coefficients, whiteners, panel, posteriors, differences, .. } = scratch;
    let groups = block.values.len() / columns;
    posteriors.resize(groups * components, [0.0; LANES]);
    match covariance {
        Covariance::Identity | Covariance::Tied => {
            affine(posteriors, constants, coefficients, block.values, columns, panel);
        }
        Covariance::Spherical | Covariance::Diagonal => {
            for (logits, rows) in posteriors.chunks_exact_mut(components).zip(block.values.chunks_exact(columns)) {
                let of = coefficients.chunks_exact(columns).zip(centres.chunks_exact(columns)).zip(&*constants);
                for (logits, ((precisions, centre), &constant)) in logits.iter_mut().zip(of) {
                    let mut sums = [0.0; LANES];
                    for ((&precision, &centre), values) in precisions.iter().zip(centre).zip(rows) {
                        for (sum, value) in sums.iter_mut().zip(values) {
                            let difference = value - centre;
                            *sum = fused(difference * difference, precision, *sum);
                        }
                    }
                    *logits = sums.map(|sum| fused(-0.5, sum, constant));
                }
            }
        }
        Covariance::Full => {
            differences.resize(groups * columns, [0.0; LANES]);
            let matrices = whiteners.chunks_exact(columns * columns).zip(coefficients.chunks_exact(columns));
            for (component, ((whitener, offset), &constant)) in matrices.zip(&*constants).enumerate() {
                affine(differences, offset, whitener, block.values, columns, panel);
                let logits = posteriors[component..].iter_mut().step_by(components);
                for (logits, whitened) in logits.zip(differences.chunks_exact(columns)) {
                    *logits = sum_of_squares(whitened).map(|sum| fused(-0.5, sum, constant));
                }
            }
        }
    }
}

fn sum_of_squares(columns: &[Group]) -> Group {
    let mut sums = [0.0; LANES];
    for column in columns {
        sums.iter_mut().zip(column).for_each(|(sum, &value)| *sum = fused(value, value, *sum));
    }
    sums
}

/// Posteriors, lowered where posterior times distance is beyond the limit.
fn clip(block: &Block, limit: f64, columns: usize, scratch: &mut Scratch) {
    let Scratch { centres, posteriors, weights, .. } = scratch;
    let components = centres.len() / columns;
    weights.clone_from(posteriors);
    for (weights, rows) in weights.chunks_exact_mut(components).zip(block.values.chunks_exact(columns)) {
        for (weights, centre) in weights.iter_mut().zip(centres.chunks_exact(columns)) {
            let mut squares = [0.0; LANES];
            for (&centre, values) in centre.iter().zip(rows) {
                for (square, value) in squares.iter_mut().zip(values) {
                    *square = fused(value - centre, value - centre, *square);
                }
            }
            for (weight, square) in weights.iter_mut().zip(squares) {
                let length = *weight * square.sqrt();
                if length > limit {
                    *weight *= limit / length;
                }
            }
        }
    }
}

/// Adds a block's squares, except for `Tied`.
fn add_squares(covariance: Covariance, block: &Block, columns: usize, scratch: &mut Scratch, squares: &mut [f64]) {
    if matches!(covariance, Covariance::Identity | Covariance::Tied) {
        return;
    }
    let Scratch { centres, posteriors, differences, scaled, square, .. } = scratch;
    let components = centres.len() / columns;
    let length = squares.len() / components;
    differences.resize(block.values.len(), [0.0; LANES]);
    scaled.resize(block.values.len(), [0.0; LANES]);
    for (component, centre) in centres.chunks_exact(columns).enumerate() {
        let groups = differences.chunks_exact_mut(columns).zip(scaled.chunks_exact_mut(columns));
        let posteriors = posteriors[component..].iter().step_by(components);
        for ((differences, scaled), (rows, posteriors)) in
            groups.zip(block.values.chunks_exact(columns).zip(posteriors))
        {
            for (((difference, scaled), values), &centre) in differences.iter_mut().zip(scaled).zip(rows).zip(centre) {
                *difference = values.map(|value| value - centre);
                for ((scaled, difference), posterior) in scaled.iter_mut().zip(&*difference).zip(posteriors) {
                    *scaled = difference * posterior;
                }
            }
        }
        let squares = &mut squares[component * length..][..length];
        match covariance {
            Covariance::Spherical => squares[0] += dot(scaled.as_flattened(), differences.as_flattened()),
            Covariance::Diagonal => {
                for (column, square) in squares.iter_mut().enumerate() {
                    let pairs = scaled[column..].iter().zip(&differences[column..]).step_by(columns);
                    let mut sums = [0.0; LANES];
                    for (scaled, differences) in pairs {
                        for ((sum, &scaled), &difference) in sums.iter_mut().zip(scaled).zip(differences) {
                            *sum = fused(scaled, difference, *sum);
                        }
                    }
                    *square += sums.iter().sum::<f64>();
                }
            }
            _ => {
                gather(sized(square, columns * columns, 0.0), scaled, columns, differences, columns);
                add_triangle(squares, square, columns);
            }
        }
    }
}

/// Adds the lower triangle of a square matrix to one that is stored so.
pub(super) fn add_triangle(triangle: &mut [f64], square: &[f64], size: usize) {
    let mut begin = 0;
    for (row, values) in square.chunks_exact(size).enumerate() {
        add_scaled(&mut triangle[begin..], 1.0, &values[..=row]);
        begin += row + 1;
    }
}

/// Σ γ (x − θ)(x − θ)ᵀ over rows and components. As posteriors sum to 1 it is Σ x xᵀ less, for every component,
/// p θᵀ + θ pᵀ + m θ θᵀ, with the pull p and the members m.
fn tie_squares(moments: &[f64], centres: &[f64], pulls: &[f64], members: &[f64], squares: &mut [f64]) {
    let columns = centres.len() / members.len();
    add_triangle(squares, moments, columns);
    let each = centres.chunks_exact(columns).zip(pulls.chunks_exact(columns)).zip(members);
    for ((centre, pull), &members) in each {
        let mut begin = 0;
        for row in 0..columns {
            let squares = &mut squares[begin..=begin + row];
            add_scaled(squares, -(pull[row] + members * centre[row]), centre);
            add_scaled(squares, -centre[row], pull);
            begin += row + 1;
        }
    }
}

/// Writes the inverse of a covariance's lower triangular factor, row-major, into zeros; returns the logarithm of the
/// determinant. A covariance that is not positive definite by rounding is taken to be so, barely.
fn whiten(covariance: &[f64], size: usize, factor: &mut Vec<f64>, inverse: &mut [f64]) -> f64 {
    factor.clear();
    factor.extend_from_slice(covariance);
    let mut log_determinant = 0.0;
    // The upper triangle becomes the transpose of the factor, row by row.
    for pivot in 0..size {
        let (done, rest) = factor.split_at_mut((pivot + 1) * size);
        let row = &mut done[pivot * size..];
        let square = row[pivot];
        let least = (LEAST_PIVOT * covariance[pivot * size + pivot]).max(f64::MIN_POSITIVE);
        let root = if square < least { least.sqrt() } else { square.sqrt() };
        log_determinant += 2.0 * root.ln();
        row[pivot] = root;
        row[pivot + 1..].iter_mut().for_each(|value| *value /= root);
        for (later, values) in (pivot + 1..).zip(rest.chunks_exact_mut(size)) {
            add_scaled(&mut values[later..], -row[later], &row[later..]);
        }
    }
    for row in 0..size {
        let (done, rest) = inverse.split_at_mut(row * size);
        let solved = &mut rest[..=row];
        for (earlier, values) in done.chunks_exact(size).enumerate() {
            add_scaled(&mut solved[..=earlier], -factor[earlier * size + row], values);
        }
        solved[row] = 1.0;
        solved.iter_mut().for_each(|value| *value /= factor[row * size + row]);
    }
    log_determinant
}

/// Of a variance, what may be left of it given the columns before; less is rounding.
const LEAST_PIVOT: f64 = 1e-14;

/// See [`super::maximise`]; all but the weights.
pub(super) fn maximise(shape: &Shape, covariance: Covariance, statistics: &Statistics, params: &mut [f64]) {
    let columns = shape.columns;
    let members = &statistics.members;
    // What every centre moves by.
    let mut moves = statistics.pulls.clone();
    for (moves, &members) in moves.chunks_exact_mut(columns).zip(members) {
        let share = if members > NOBODY { members.recip() } else { 0.0 };
        moves.iter_mut().for_each(|pull| *pull *= share);
    }
    add_scaled(&mut params[shape.centres()], 1.0, &moves);
    let floor = Floor::of(shape, covariance, statistics, &moves, &params[shape.centres()]);
    let scatter = &mut params[shape.scatter()];
    let each = members.iter().zip(moves.chunks_exact(columns));
    match covariance {
        Covariance::Identity => {}
        Covariance::Tied => {
            let mut squares = statistics.squares.clone();
            for (&members, moves) in each {
                take_off(&mut squares, members, moves);
            }
            let all: f64 = members.iter().sum();
            if all > NOBODY {
                write_square(scatter, &squares, all.recip(), columns);
                floor.add_to(scatter);
            }
        }
        Covariance::Spherical => {
            for ((variance, &squares), (&members, moves)) in scatter.iter_mut().zip(&statistics.squares).zip(each) {
                if members > NOBODY {
                    *variance = (squares / members - dot(moves, moves)) / columns as f64;
                    *variance = variance.max(floor.mean());
                }
            }
        }
        Covariance::Diagonal => {
            let squares = statistics.squares.chunks_exact(columns);
            for ((variances, squares), (&members, moves)) in scatter.chunks_exact_mut(columns).zip(squares).zip(each) {
                if members > NOBODY {
                    for (((variance, square), step), floor) in
                        variances.iter_mut().zip(squares).zip(moves).zip(&floor.columns)
                    {
                        *variance = (square / members - step * step).max(*floor);
                    }
                }
            }
        }
        Covariance::Full => {
            let mut squares = statistics.squares.clone();
            let squares = squares.chunks_exact_mut(triangle(columns));
            for ((scatter, squares), (&members, moves)) in
                scatter.chunks_exact_mut(columns * columns).zip(squares).zip(each)
            {
                if members > NOBODY {
                    take_off(squares, members, moves);
                    write_square(scatter, squares, members.recip(), columns);
                    floor.add_to(scatter);
                }
            }
        }
    }
}

/// Moves the centre of squares by `moves` from where it was to the members' mean.
fn take_off(squares: &mut [f64], members: f64, moves: &[f64]) {
    let mut begin = 0;
    for (row, value) in moves.iter().enumerate() {
        add_scaled(&mut squares[begin..=begin + row], -members * value, moves);
        begin += row + 1;
    }
}

/// A symmetric matrix from its lower triangle.
pub(super) fn write_square(square: &mut [f64], triangle: &[f64], scale: f64, size: usize) {
    let mut values = triangle.iter().map(|value| value * scale);
    for row in 0..size {
        for (column, value) in (0..=row).zip(&mut values) {
            square[row * size + column] = value;
            square[column * size + row] = value;
        }
    }
}

/// What variances are kept above: a millionth of the mean over components, so that a component does not collapse; and
/// for columns that do not vary at all, what rounding may amount to.
struct Floor {
    columns: Vec<f64>,
}

impl Floor {
    const SHARE: f64 = 1e-6;
    const SHARE_OF_OTHERS: f64 = 1e-12;
    const SHARE_OF_PLACE: f64 = 1e-12;
    const LEAST: f64 = 1e-100;

    fn of(shape: &Shape, covariance: Covariance, statistics: &Statistics, moves: &[f64], centres: &[f64]) -> Self {
        let columns = shape.columns;
        let squares = &statistics.squares;
        let mut sums = vec![0.0; columns];
        match covariance {
            Covariance::Identity => return Self { columns: sums },
            Covariance::Spherical => sums.fill(squares.iter().sum::<f64>() / columns as f64),
            Covariance::Diagonal => squares.chunks_exact(columns).for_each(|one| add_scaled(&mut sums, 1.0, one)),
            Covariance::Tied | Covariance::Full => {
                for one in squares.chunks_exact(triangle(columns)) {
                    sums.iter_mut().enumerate().for_each(|(column, sum)| *sum += one[triangle(column + 1) - 1]);
                }
            }
        }
        for (moves, &members) in moves.chunks_exact(columns).zip(&statistics.members) {
            sums.iter_mut().zip(moves).for_each(|(sum, step)| *sum -= members * step * step);
        }
        let all: f64 = statistics.members.iter().sum();
        sums.iter_mut().for_each(|sum| *sum = (*sum / all).max(0.0));
        let mean = sums.iter().sum::<f64>() / columns as f64;
        let farthest =
            |column: usize| centres.iter().skip(column).step_by(columns).fold(0.0, |far: f64, at| far.max(at.abs()));
        let least = |(column, variance): (usize, &f64)| {
            let place = Self::SHARE_OF_PLACE * farthest(column);
            (Self::SHARE * variance).max(Self::SHARE_OF_OTHERS * mean).max(place * place).max(Self::LEAST)
        };
        Self { columns: sums.iter().enumerate().map(least).collect() }
    }

    fn mean(&self) -> f64 {
        self.columns.iter().sum::<f64>() / self.columns.len() as f64
    }

    fn add_to(&self, covariance: &mut [f64]) {
        let size = self.columns.len();
        covariance.iter_mut().step_by(size + 1).zip(&self.columns).for_each(|(variance, floor)| *variance += floor);
    }
}
