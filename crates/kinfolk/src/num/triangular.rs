//! Cholesky factors of small matrices, which may be singular up to rounding.
//!
//! Of our own because faer's `Llt` refuses singular matrices, and takes longer for small ones: 6.4 times as long for 2 columns, 1.7
//! times for 10, as long for 32 and 50. From 64 on it is the faster one (5 times for 200).

use super::{add_scaled, dot};

/// Lower bound on a pivot, relative to its diagonal element; less is rounding.
const LEAST_PIVOT: f64 = 1e-14;
const LEAST_DIAGONAL: f64 = 1e-100;

/// Writes the upper triangle `u` with `uᵀ u` = matrix, row-major. A column that depends linearly on earlier ones up to
/// rounding is treated as independent with a tiny variance.
pub(crate) fn factorise(matrix: &[f64], size: usize, factor: &mut Vec<f64>) {
    factor.clear();
    factor.extend_from_slice(matrix);
    for pivot in 0..size {
        let (done, later) = factor.split_at_mut((pivot + 1) * size);
        let row = &mut done[pivot * size..];
        let least = (LEAST_PIVOT * matrix[pivot * size + pivot]).max(LEAST_DIAGONAL);
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

pub(crate) fn log_determinant(factor: &[f64], size: usize) -> f64 {
    2.0 * factor.iter().step_by(size + 1).map(|root| root.ln()).sum::<f64>()
}

/// Writes the inverse of the transposed factor, a lower triangle, row-major, into zeros.
pub(crate) fn invert(factor: &[f64], size: usize, inverse: &mut [f64]) {
    for row in 0..size {
        let (done, later) = inverse.split_at_mut(row * size);
        let solved = &mut later[..=row];
        for (earlier, values) in done.chunks_exact(size.max(1)).enumerate() {
            add_scaled(&mut solved[..=earlier], -factor[earlier * size + row], values);
        }
        solved[row] = 1.0;
        let share = factor[row * size + row].recip();
        solved.iter_mut().for_each(|value| *value *= share);
    }
}

/// Replaces a vector by the solution of the factored system.
pub(crate) fn solve(factor: &[f64], size: usize, vector: &mut [f64]) {
    for (at, row) in factor.chunks_exact(size.max(1)).enumerate() {
        let value = vector[at] / row[at];
        vector[at] = value;
        add_scaled(&mut vector[at + 1..], -value, &row[at + 1..]);
    }
    for (at, row) in factor.chunks_exact(size.max(1)).enumerate().rev() {
        vector[at] = (vector[at] - dot(&row[at + 1..], &vector[at + 1..])) / row[at];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::distance;

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
}
