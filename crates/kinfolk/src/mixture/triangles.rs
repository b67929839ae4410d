//! Symmetric matrices: stored as lower triangles, row by row, and taken apart into triangular factors.

use super::LEAST_VARIANCE;
use super::kernels::{filled, scale};
use crate::linalg::{Matrix, add_scaled, dot, multiply};

/// How many numbers of a symmetric matrix are its own.
pub(super) fn triangle(size: usize) -> usize {
    size * (size + 1) / 2
}

/// The rows of a lower triangle.
pub(super) fn triangle_rows(triangle: &mut [f64]) -> impl Iterator<Item = &mut [f64]> {
    let mut rest = triangle;
    (1..).map_while(move |length| rest.split_off_mut(..length))
}

/// Adds the lower triangle of a square matrix to one that is stored so.
pub(super) fn add_triangle(triangle: &mut [f64], square: &[f64], size: usize) {
    triangle_rows(triangle).zip(square.chunks_exact(size)).for_each(|(row, square)| add_scaled(row, 1.0, square));
}

/// Adds to a lower triangle the sum over rows of weight times the row's outer product with itself. Rows lie turned.
pub(super) fn add_outer_products(
    triangle: &mut [f64],
    columns: &[f64],
    weights: &[f64],
    width: usize,
    scaled: &mut Vec<f64>,
    square: &mut Vec<f64>,
) {
    scale(columns, weights, scaled);
    let (left, right) = (Matrix::new(scaled, width, weights.len()), Matrix::new(columns, width, weights.len()));
    multiply(filled(square, width * width, 0.0), 1.0, left, right.turn());
    add_triangle(triangle, square, width);
}

/// Writes a symmetric matrix from its lower triangle.
pub(super) fn write_square(square: &mut [f64], triangle: &[f64], scale: f64, size: usize) {
    let mut values = triangle.iter().map(|value| value * scale);
    for row in 0..size {
        for (column, value) in (0..=row).zip(&mut values) {
            square[row * size + column] = value;
            square[column * size + row] = value;
        }
    }
}

/// Of a diagonal element, what may be left of it after the columns before; less is rounding.
const LEAST_PIVOT: f64 = 1e-14;

/// Writes the upper triangle of `u` with `uᵀ u` the positive definite matrix, row-major. A column of which those before
/// leave nothing but rounding is taken to vary barely, and by itself.
pub(super) fn factorise(matrix: &[f64], size: usize, factor: &mut Vec<f64>) {
    factor.clear();
    factor.extend_from_slice(matrix);
    for pivot in 0..size {
        let (done, later) = factor.split_at_mut((pivot + 1) * size);
        let row = &mut done[pivot * size..];
        let least = (LEAST_PIVOT * matrix[pivot * size + pivot]).max(LEAST_VARIANCE);
        let (root, share) = match row[pivot] < least {
            true => (least.sqrt(), 0.0),
            false => (row[pivot].sqrt(), row[pivot].sqrt().recip()),
        };
        row[pivot] = root;
        row[pivot + 1..].iter_mut().for_each(|value| *value *= share);
        for (at, values) in (pivot + 1..).zip(later.chunks_exact_mut(size)) {
            add_scaled(&mut values[at..], -row[at], &row[at..]);
        }
    }
}

/// The logarithm of the factored matrix's determinant.
pub(super) fn log_determinant(factor: &[f64], size: usize) -> f64 {
    2.0 * factor.iter().step_by(size + 1).map(|root| root.ln()).sum::<f64>()
}

/// Writes the inverse of the transposed factor, a lower triangle, row-major into zeros.
pub(super) fn invert(factor: &[f64], size: usize, inverse: &mut [f64]) {
    for row in 0..size {
        let (done, later) = inverse.split_at_mut(row * size);
        let solved = &mut later[..=row];
        for (earlier, values) in done.chunks_exact(size).enumerate() {
            add_scaled(&mut solved[..=earlier], -factor[earlier * size + row], values);
        }
        solved[row] = 1.0;
        let share = factor[row * size + row].recip();
        solved.iter_mut().for_each(|value| *value *= share);
    }
}

/// Replaces a vector by the solution of the factored system.
pub(super) fn solve(factor: &[f64], size: usize, vector: &mut [f64]) {
    for (at, row) in factor.chunks_exact(size).enumerate() {
        let value = vector[at] / row[at];
        vector[at] = value;
        add_scaled(&mut vector[at + 1..], -value, &row[at + 1..]);
    }
    for (at, row) in factor.chunks_exact(size).enumerate().rev() {
        vector[at] = (vector[at] - dot(&row[at + 1..], &vector[at + 1..])) / row[at];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::distance;

    #[test]
    fn factors_by_hand() {
        // [4 2 0; 2 5 2; 0 2 2] = uᵀ u with u = [2 1 0; 0 2 1; 0 0 1].
        let mut factor = Vec::new();
        factorise(&[4.0, 2.0, 0.0, 2.0, 5.0, 2.0, 0.0, 2.0, 2.0], 3, &mut factor);
        assert!((log_determinant(&factor, 3) - 16f64.ln()).abs() < 1e-15);
        assert_eq!([&factor[..3], &factor[4..6], &factor[8..]].concat(), [2.0, 1.0, 0.0, 2.0, 1.0, 1.0]);
        let mut inverse = vec![0.0; 9];
        invert(&factor, 3, &mut inverse);
        assert_eq!(inverse, [0.5, 0.0, 0.0, -0.25, 0.5, 0.0, 0.25, -0.5, 1.0]);
        let mut x = [8.0, 18.0, 10.0];
        solve(&factor, 3, &mut x);
        assert!(distance(&x, &[1.0, 2.0, 3.0]) < 1e-14, "{x:?}");
    }

    #[test]
    fn singular_matrices_have_a_factor() {
        let mut factor = Vec::new();
        for matrix in [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0 - 1e-16], [0.0; 4]] {
            factorise(&matrix, 2, &mut factor);
            assert!(log_determinant(&factor, 2).is_finite());
            assert!(factor.iter().all(|value| value.is_finite()));
        }
    }

    #[test]
    fn triangles_and_squares() {
        let square = [1.0, 2.0, 4.0, 2.0, 3.0, 5.0, 4.0, 5.0, 6.0];
        let mut triangle = [10.0; 6];
        add_triangle(&mut triangle, &square, 3);
        assert_eq!(triangle, [11.0, 12.0, 13.0, 14.0, 15.0, 16.0]);
        let mut back = [0.0; 9];
        write_square(&mut back, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2.0, 3);
        assert_eq!(back.to_vec(), square.iter().map(|value| 2.0 * value).collect::<Vec<_>>());
    }
}
