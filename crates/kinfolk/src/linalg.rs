//! The one seam to the matrix library, and the few vector loops everything else is made of.
//!
//! Matrices are row-major slices. Products run on the calling thread: parallelism is over clients.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

/// The numbers a model may compute in. Used inside models only; borders speak `f64`.
pub trait Real:
    faer::traits::RealField
    + Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + std::ops::AddAssign
    + std::ops::SubAssign
    + std::ops::MulAssign
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Rounds from `f64`.
    fn of(value: f64) -> Self;
    /// Widens to `f64`.
    fn wide(self) -> f64;
    /// e to this power.
    fn exponential(self) -> Self;
    /// The natural logarithm of 1 + this.
    fn log_one_plus(self) -> Self;
    /// The natural logarithm.
    fn logarithm(self) -> Self;
    /// The square root.
    fn root(self) -> Self;
    /// Features stored in this very type, which need no conversion.
    fn stored(features: &crate::data::Features) -> Option<&[Self]>;
}

macro_rules! real {
    ($type:ty, $variant:ident) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            #[inline]
            fn of(value: f64) -> Self {
                value as $type
            }
            #[inline]
            fn wide(self) -> f64 {
                self as f64
            }
            #[inline]
            fn exponential(self) -> Self {
                self.exp()
            }
            #[inline]
            fn log_one_plus(self) -> Self {
                self.ln_1p()
            }
            #[inline]
            fn logarithm(self) -> Self {
                self.ln()
            }
            #[inline]
            fn root(self) -> Self {
                self.sqrt()
            }
            fn stored(features: &crate::data::Features) -> Option<&[Self]> {
                match features {
                    crate::data::Features::$variant { values, .. } => Some(values),
                    _ => None,
                }
            }
        }
    };
}
real!(f32, F32);
real!(f64, F64);

/// A row-major matrix to be read, as it stands or turned.
#[derive(Clone, Copy)]
pub struct Matrix<'a, T> {
    values: &'a [T],
    rows: usize,
    columns: usize,
    turned: bool,
}

impl<'a, T: Real> Matrix<'a, T> {
    /// `rows` × `columns`, row after row.
    pub fn new(values: &'a [T], rows: usize, columns: usize) -> Self {
        debug_assert_eq!(values.len(), rows * columns);
        Self { values, rows, columns, turned: false }
    }

    /// Its transpose.
    pub fn turn(self) -> Self {
        Self { turned: !self.turned, ..self }
    }

    fn view(self) -> MatRef<'a, T> {
        let plain = MatRef::from_row_major_slice(self.values, self.rows, self.columns);
        if self.turned { plain.transpose() } else { plain }
    }
}

/// `out = scale · left · right`, with `out` row-major of the product's shape.
pub fn multiply<T: Real>(out: &mut [T], scale: T, left: Matrix<T>, right: Matrix<T>) {
    product(out, Accum::Replace, scale, left, right);
}

/// `out += scale · left · right`.
pub fn multiply_add<T: Real>(out: &mut [T], scale: T, left: Matrix<T>, right: Matrix<T>) {
    product(out, Accum::Add, scale, left, right);
}

fn product<T: Real>(out: &mut [T], accumulate: Accum, scale: T, left: Matrix<T>, right: Matrix<T>) {
    let (left, right) = (left.view(), right.view());
    let out = MatMut::from_row_major_slice_mut(out, left.nrows(), right.ncols());
    matmul(out, accumulate, left, right, scale, Par::Seq);
}

/// `out += scale · x`.
#[inline]
pub fn add_scaled<T: Real>(out: &mut [T], scale: T, x: &[T]) {
    for (o, &v) in out.iter_mut().zip(x) {
        *o += scale * v;
    }
}

/// The inner product of two vectors, in eight sums side by side.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (eights, others) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = eights.remainder().iter().zip(others.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in eights.zip(others) {
        sums.iter_mut().zip(x.iter().zip(y)).for_each(|(sum, (x, y))| *sum += x * y);
    }
    sums.iter().sum::<f64>() + rest
}

/// Squared Euclidean distance of two vectors.
pub fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum()
}

/// Euclidean distance of two vectors.
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    squared_distance(a, b).sqrt()
}

/// Solves the symmetric positive definite system `a x = b` for each of the `columns` columns of `b` (row-major).
/// `None` when `a` is not positive definite.
pub fn solve_positive(a: &[f64], b: &[f64], size: usize, columns: usize) -> Option<Vec<f64>> {
    use faer::linalg::solvers::{Llt, Solve};
    let decomposed = Llt::new(MatRef::from_row_major_slice(a, size, size), faer::Side::Lower).ok()?;
    let solution = decomposed.solve(MatRef::from_row_major_slice(b, size, columns));
    Some((0..size).flat_map(|i| (0..columns).map(move |j| (i, j))).map(|(i, j)| solution[(i, j)]).collect())
}

/// The triangular factor of a symmetric positive definite matrix, to solve with many times.
pub struct Cholesky(faer::linalg::solvers::Llt<f64>);

impl Cholesky {
    /// Factors `a`, row-major `size` × `size`; `None` when it is not positive definite.
    pub fn new(a: &[f64], size: usize) -> Option<Self> {
        faer::linalg::solvers::Llt::new(MatRef::from_row_major_slice(a, size, size).transpose(), faer::Side::Lower)
            .ok()
            .map(Self)
    }

    /// Replaces `b`, row-major with `columns` columns, by the solution of `a x = b`.
    pub fn solve(&self, b: &mut [f64], columns: usize) {
        use faer::linalg::solvers::Solve;
        let rows = b.len() / columns;
        self.0.solve_in_place(MatMut::from_row_major_slice_mut(b, rows, columns));
    }
}

/// The least-squares solution of smallest norm of `a x = b`, `a` row-major `rows` × `size`.
pub fn least_squares(a: &[f64], b: &[f64], rows: usize, size: usize) -> Option<Vec<f64>> {
    let svd = faer::linalg::solvers::Svd::new_thin(MatRef::from_row_major_slice(a, rows, size)).ok()?;
    let (left, singular, right) = (svd.U(), svd.S(), svd.V());
    let rank = rows.min(size);
    let largest = (0..rank).map(|r| singular[r]).fold(0.0, f64::max);
    let cutoff = largest * f64::EPSILON * rows.max(size) as f64;
    let mut x = vec![0.0; size];
    for r in (0..rank).filter(|&r| singular[r] > cutoff) {
        let along: f64 = (0..rows).map(|i| left[(i, r)] * b[i]).sum::<f64>() / singular[r];
        for (j, value) in x.iter_mut().enumerate() {
            *value += along * right[(j, r)];
        }
    }
    Some(x)
}

/// `a` (row-major, `rows` × `size`, not taller than wide) as coordinates (`rows` × `rows`) times a basis of its rows
/// (`rows` × `size`, orthonormal).
pub fn row_space(a: &[f64], rows: usize, size: usize) -> (Vec<f64>, Vec<f64>) {
    let turned = faer::linalg::solvers::Qr::new(MatRef::from_row_major_slice(a, rows, size).transpose());
    let (basis, triangle) = (turned.compute_thin_Q(), turned.thin_R());
    let coordinates = (0..rows).flat_map(|i| (0..rows).map(move |j| if j <= i { triangle[(j, i)] } else { 0.0 }));
    let basis = (0..rows).flat_map(|i| (0..size).map(move |j| (i, j))).map(|(i, j)| basis[(j, i)]);
    (coordinates.collect(), basis.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_by_hand() {
        let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let b = [1.0, 0.0, 2.0, 1.0, 0.0, 3.0];
        let mut out = [0.0; 4];
        multiply(&mut out, 1.0, Matrix::new(&a, 2, 3), Matrix::new(&b, 3, 2));
        assert_eq!(out, [5.0, 11.0, 14.0, 23.0]);
        multiply_add(&mut out, 2.0, Matrix::new(&a, 2, 3), Matrix::new(&b, 2, 3).turn());
        assert_eq!(out, [5.0 + 14.0, 11.0 + 20.0, 14.0 + 32.0, 23.0 + 44.0]);
    }

    #[test]
    fn solves_by_hand() {
        let x = solve_positive(&[4.0, 1.0, 1.0, 3.0], &[1.0, 2.0], 2, 1).unwrap();
        assert!((x[0] - 1.0 / 11.0).abs() < 1e-15 && (x[1] - 7.0 / 11.0).abs() < 1e-15);
        assert!(solve_positive(&[1.0, 2.0, 2.0, 1.0], &[1.0, 1.0], 2, 1).is_none());
    }

    #[test]
    fn rows_are_their_coordinates_times_an_orthonormal_basis() {
        let a = [3.0, 4.0, 0.0, 1.0, 0.0, 2.0];
        let (coordinates, basis) = row_space(&a, 2, 3);
        let (mut product, mut squares) = ([0.0; 6], [0.0; 4]);
        multiply(&mut product, 1.0, Matrix::new(&coordinates, 2, 2), Matrix::new(&basis, 2, 3));
        multiply(&mut squares, 1.0, Matrix::new(&basis, 2, 3), Matrix::new(&basis, 2, 3).turn());
        assert!(distance(&product, &a) < 1e-14 && distance(&squares, &[1.0, 0.0, 0.0, 1.0]) < 1e-14);
    }

    #[test]
    fn least_squares_takes_the_smallest_solution() {
        let x = least_squares(&[1.0, 1.0], &[2.0], 1, 2).unwrap();
        assert!((x[0] - 1.0).abs() < 1e-14 && (x[1] - 1.0).abs() < 1e-14);
    }
}
