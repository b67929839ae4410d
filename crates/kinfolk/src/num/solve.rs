//! Linear systems, least squares and eigenvalues.

use super::cpu::clearing;
use super::lanes::{add_scaled, dot};
use super::matrix::{Matrix, multiply};
use faer::{MatMut, MatRef, Par};

/// Solves the symmetric `a x = b` for each column of the row-major `b`; `None` when `a` is not positive definite.
pub(crate) fn solve_positive(a: &[f64], b: &[f64], size: usize, columns: usize) -> Option<Vec<f64>> {
    use faer::linalg::solvers::{Llt, Solve};
    let (a, b) = (MatRef::from_row_major_slice(a, size, size), MatRef::from_row_major_slice(b, size, columns));
    let solution = clearing(|| Some(Llt::new(a, faer::Side::Lower).ok()?.solve(b)))?;
    Some((0..size).flat_map(|i| (0..columns).map(move |j| (i, j))).map(|(i, j)| solution[(i, j)]).collect())
}

pub(crate) struct Cholesky(faer::linalg::solvers::Llt<f64>);

impl Cholesky {
    /// Factors `a`, row-major `size` × `size`; `None` when it is not positive definite.
    pub(crate) fn new(a: &[f64], size: usize) -> Option<Self> {
        let matrix = MatRef::from_row_major_slice(a, size, size).transpose();
        clearing(|| faer::linalg::solvers::Llt::new(matrix, faer::Side::Lower)).ok().map(Self)
    }

    /// Replaces `b`, row-major with `columns` columns, by the solution of `a x = b`.
    pub(crate) fn solve(&self, b: &mut [f64], columns: usize) {
        use faer::linalg::solvers::Solve;
        let rows = b.len() / columns;
        clearing(|| self.0.solve_in_place(MatMut::from_row_major_slice_mut(b, rows, columns)));
    }
}

/// Replaces the row-major `b` by the solution of `l lᵀ x = b`, `l` row-major; its upper triangle is not read.
pub(crate) fn solve_factored(l: &[f64], b: &mut [f64], size: usize, columns: usize) {
    use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
    let lower = MatRef::from_row_major_slice(l, size, size);
    let mut b = MatMut::from_row_major_slice_mut(b, size, columns);
    clearing(|| {
        solve_lower_triangular_in_place(lower, b.as_mut(), Par::Seq);
        solve_upper_triangular_in_place(lower.transpose(), b, Par::Seq);
    });
}

/// The eigendecomposition of a positive semidefinite matrix without its null space: its inverse is the pseudo-inverse.
pub(crate) struct Spectrum {
    /// The eigenvalues above rounding, and their eigenvectors, one per row.
    values: Vec<f64>,
    directions: Vec<f64>,
    size: usize,
}

impl Spectrum {
    /// Rounding error per dimension, relative to the largest eigenvalue.
    pub(crate) const ROUNDING: f64 = 1e-14;

    /// Decomposes `a`, row-major `size` × `size`; `None` if it is not finite.
    pub(crate) fn new(a: &[f64], size: usize) -> Option<Self> {
        Self::above(a, size, Self::ROUNDING * size as f64)
    }

    /// The same without eigenvalues below this share of the largest.
    pub(crate) fn above(a: &[f64], size: usize, share: f64) -> Option<Self> {
        if a.iter().any(|value| !value.is_finite()) {
            return None;
        }
        if size == 0 {
            return Some(Self { values: Vec::new(), directions: Vec::new(), size });
        }
        let matrix = MatRef::from_row_major_slice(a, size, size);
        let parts = clearing(|| faer::linalg::solvers::SelfAdjointEigen::new(matrix, faer::Side::Lower)).ok()?;
        let cutoff = (0..size).map(|r| parts.S()[r]).fold(0.0, f64::max) * share;
        let (mut values, mut directions) = (Vec::with_capacity(size), Vec::with_capacity(size * size));
        for r in (0..size).filter(|&r| parts.S()[r] > cutoff) {
            values.push(parts.S()[r]);
            directions.extend((0..size).map(|i| parts.U()[(i, r)]));
        }
        Some(Self { values, directions, size })
    }

    pub(crate) fn rank(&self) -> usize {
        self.values.len()
    }

    /// The eigenvalues with their eigenvectors, the largest first.
    pub(crate) fn descending(&self) -> impl Iterator<Item = (f64, &[f64])> {
        self.values.iter().copied().zip(self.directions.chunks_exact(self.size.max(1))).rev()
    }

    /// The matrix with every eigenvalue replaced, row-major.
    pub(crate) fn map(&self, replace: impl Fn(f64) -> f64) -> Vec<f64> {
        let (size, rank) = (self.size, self.rank());
        if rank == 0 {
            return vec![0.0; size * size];
        }
        let mut stretched = self.directions.clone();
        for (&value, direction) in self.values.iter().zip(stretched.chunks_exact_mut(size)) {
            let value = replace(value);
            direction.iter_mut().for_each(|x| *x *= value);
        }
        let mut matrix = vec![0.0; size * size];
        let directions = Matrix::new(&self.directions, rank, size);
        multiply(&mut matrix, 1.0, directions.transpose(), Matrix::new(&stretched, rank, size));
        matrix
    }

    /// The product of [`Spectrum::map`] and a vector.
    pub(crate) fn apply(&self, replace: impl Fn(f64) -> f64, vector: &[f64]) -> Vec<f64> {
        let mut product = vec![0.0; self.size];
        for (&value, direction) in self.values.iter().zip(self.directions.chunks_exact(self.size.max(1))) {
            add_scaled(&mut product, replace(value) * dot(direction, vector), direction);
        }
        product
    }

    /// The solution of smallest norm of `a x = b`.
    pub(crate) fn solve(&self, b: &[f64]) -> Vec<f64> {
        self.apply(f64::recip, b)
    }

    /// The inverse, row-major.
    pub(crate) fn inverse(&self) -> Vec<f64> {
        self.map(f64::recip)
    }

    /// The sum of a function of its eigenvalues; of the logarithm, the log determinant.
    pub(crate) fn sum(&self, function: impl Fn(f64) -> f64) -> f64 {
        self.values.iter().map(|&value| function(value)).sum()
    }
}

/// The smallest and the largest eigenvalue of a symmetric matrix.
pub(crate) fn extreme_eigenvalues(a: &[f64], size: usize) -> (f64, f64) {
    let view = MatRef::from_row_major_slice(a, size, size);
    if size == 0 {
        return (f64::INFINITY, f64::NEG_INFINITY);
    }
    let values = clearing(|| view.self_adjoint_eigenvalues(faer::Side::Lower)).unwrap_or_else(|_| vec![f64::NAN; size]);
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| (low.min(value), high.max(value)))
}

/// The least-squares solution of smallest norm of `a x = b`, `a` row-major `rows` × `size`.
pub(crate) fn least_squares(a: &[f64], b: &[f64], rows: usize, size: usize) -> Option<Vec<f64>> {
    let svd = clearing(|| faer::linalg::solvers::Svd::new_thin(MatRef::from_row_major_slice(a, rows, size))).ok()?;
    let (left, singular, right) = (svd.U(), svd.S(), svd.V());
    let rank = rows.min(size);
    let cutoff = (0..rank).map(|r| singular[r]).fold(0.0, f64::max) * f64::EPSILON * rows.max(size) as f64;
    let mut x = vec![0.0; size];
    for r in (0..rank).filter(|&r| singular[r] > cutoff) {
        let along: f64 = (0..rows).map(|i| left[(i, r)] * b[i]).sum::<f64>() / singular[r];
        for (j, value) in x.iter_mut().enumerate() {
            *value += along * right[(j, r)];
        }
    }
    Some(x)
}

/// `a` (row-major, `rows` ≤ `size`) as coordinates (`rows` × `rows`) times an orthonormal basis of its row space.
pub(crate) fn row_space(a: &[f64], rows: usize, size: usize) -> (Vec<f64>, Vec<f64>) {
    let matrix = MatRef::from_row_major_slice(a, rows, size).transpose();
    let transposed = clearing(|| faer::linalg::solvers::Qr::new(matrix));
    let (basis, triangle) = (clearing(|| transposed.compute_thin_Q()), transposed.thin_R());
    let coordinates = (0..rows).flat_map(|i| (0..rows).map(move |j| if j <= i { triangle[(j, i)] } else { 0.0 }));
    let basis = (0..rows).flat_map(|i| (0..size).map(move |j| (i, j))).map(|(i, j)| basis[(j, i)]);
    (coordinates.collect(), basis.collect())
}

/// The first right singular vectors of `a` (row-major, `rows` × `size`), at most `count`, one after the other.
pub(crate) fn leading_directions(a: &[f64], rows: usize, size: usize, count: usize) -> Vec<f64> {
    let matrix = Matrix::new(a, rows, size);
    let smaller = rows.min(size);
    let mut products = vec![0.0; smaller * smaller];
    if rows <= size {
        multiply(&mut products, 1.0, matrix, matrix.transpose());
    } else {
        multiply(&mut products, 1.0, matrix.transpose(), matrix);
    }
    let Some(spectrum) = Spectrum::new(&products, smaller) else { return Vec::new() };
    let mut directions = Vec::with_capacity(count * size);
    for (square, vector) in spectrum.descending().take(count) {
        if rows > size {
            directions.extend_from_slice(vector);
            continue;
        }
        // v = aᵀ u / σ.
        let begin = directions.len();
        directions.resize(begin + size, 0.0);
        let rows = vector.iter().zip(a.chunks_exact(size));
        rows.for_each(|(u, row)| add_scaled(&mut directions[begin..], u / square.sqrt(), row));
    }
    directions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::distance;

    #[test]
    fn solves_by_hand() {
        let x = solve_positive(&[4.0, 1.0, 1.0, 3.0], &[1.0, 2.0], 2, 1).unwrap();
        assert!((x[0] - 1.0 / 11.0).abs() < 1e-15 && (x[1] - 7.0 / 11.0).abs() < 1e-15);
        assert!(solve_positive(&[1.0, 2.0, 2.0, 1.0], &[1.0, 1.0], 2, 1).is_none());
    }

    #[test]
    fn leading_directions_by_hand() {
        // Rows along (3, 4)/5 with length 10, and across with length 1; as many as columns or fewer, and more.
        let across = [-0.8, 0.6];
        for rows in [vec![6.0, 8.0, -0.8, 0.6], vec![3.0, 4.0, 6.0, 8.0, -0.8, 0.6, 0.8, -0.6]] {
            let found = leading_directions(&rows, rows.len() / 2, 2, 5);
            assert_eq!(found.len(), 4);
            assert!((found[0].abs() - 0.6).abs() < 1e-12 && (found[1].abs() - 0.8).abs() < 1e-12, "{found:?}");
            assert!((dot(&found[2..], &across).abs() - 1.0).abs() < 1e-12, "{found:?}");
        }
        assert!(leading_directions(&[0.0; 6], 2, 3, 2).is_empty());
    }

    #[test]
    fn rows_are_their_coordinates_times_an_orthonormal_basis() {
        let a = [3.0, 4.0, 0.0, 1.0, 0.0, 2.0];
        let (coordinates, basis) = row_space(&a, 2, 3);
        let (mut product, mut squares) = ([0.0; 6], [0.0; 4]);
        multiply(&mut product, 1.0, Matrix::new(&coordinates, 2, 2), Matrix::new(&basis, 2, 3));
        multiply(&mut squares, 1.0, Matrix::new(&basis, 2, 3), Matrix::new(&basis, 2, 3).transpose());
        assert!(distance(&product, &a) < 1e-14 && distance(&squares, &[1.0, 0.0, 0.0, 1.0]) < 1e-14);
    }

    #[test]
    fn a_matrix_is_inverted_where_it_says_something() {
        // 4 along (1, 1)/√2, nothing along (1, −1).
        let spectrum = Spectrum::new(&[2.0, 2.0, 2.0, 2.0], 2).unwrap();
        assert_eq!(spectrum.rank(), 1);
        assert!(distance(&spectrum.inverse(), &[0.125; 4]) < 1e-15);
        assert!(distance(&spectrum.solve(&[3.0, 1.0]), &[0.5; 2]) < 1e-15);
        assert!((spectrum.sum(f64::ln) - 4f64.ln()).abs() < 1e-15);
        assert_eq!(Spectrum::new(&[0.0; 4], 2).unwrap().inverse(), [0.0; 4]);
        assert!(Spectrum::new(&[f64::NAN; 4], 2).is_none());
        let empty = Spectrum::new(&[], 0).unwrap();
        assert_eq!((empty.rank(), empty.inverse(), empty.solve(&[])), (0, Vec::new(), Vec::new()));
        let mut x = [4.0, 11.0];
        solve_factored(&[2.0, 9.0, 1.0, 3.0], &mut x, 2, 1);
        assert!(distance(&x, &[0.5, 1.0]) < 1e-15);
    }

    #[test]
    fn least_squares_takes_the_smallest_solution() {
        let x = least_squares(&[1.0, 1.0], &[2.0], 1, 2).unwrap();
        assert!((x[0] - 1.0).abs() < 1e-14 && (x[1] - 1.0).abs() < 1e-14);
    }
}
