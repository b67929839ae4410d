//! The only interface to the matrix library, and the basic vector loops.
//!
//! Matrices are row-major slices. Products run on the calling thread: parallelism is over clients.

pub(crate) mod triangular;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use serde::{Deserialize, Serialize};

/// The types of numbers a model may compute in. Used inside models only; their interfaces are in `f64`.
pub(crate) trait Real:
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
    const ZERO: Self;
    const ONE: Self;
    /// Rounds from `f64`.
    fn of(value: f64) -> Self;
    fn to_f64(self) -> f64;
    fn exp(self) -> Self;
    /// e to each of these powers, vectorised; within a few units in the last place.
    fn exp_all(powers: &mut [Self]);
    /// 1/(1 + e^−x), without a branch, so that loops over it vectorise.
    fn logistic(self) -> Self;
    /// The hyperbolic tangent, without a branch.
    fn fast_tanh(self) -> Self;
    fn ln_1p(self) -> Self;
    fn ln(self) -> Self;
    fn sqrt(self) -> Self;
    fn mul_add(self, factor: Self, term: Self) -> Self;
}

/// The precision in which a model computes and is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precision {
    /// 4 bytes.
    F32,
    /// 8 bytes.
    F64,
}

impl Precision {
    /// Size of a number in bytes.
    pub(crate) fn width(self) -> u64 {
        match self {
            Precision::F32 => 4,
            Precision::F64 => 8,
        }
    }

    /// Rounds numbers to this precision.
    pub fn round(self, values: &mut [f64]) {
        if self == Precision::F32 {
            for value in values {
                *value = f64::from(*value as f32);
            }
        }
    }
}

macro_rules! real {
    ($type:ty, $growth:ident, $exponentials:expr) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            #[inline]
            fn of(value: f64) -> Self {
                value as $type
            }
            #[inline]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline]
            fn exp(self) -> Self {
                self.exp()
            }
            #[inline]
            fn exp_all(powers: &mut [Self]) {
                $exponentials(powers)
            }
            #[inline]
            fn logistic(self) -> Self {
                let (growth, scale) = $growth(-self.abs());
                let e = (growth + 1.0) * scale;
                (if self < 0.0 { e } else { 1.0 }) / (1.0 + e)
            }
            #[inline]
            fn fast_tanh(self) -> Self {
                // (1 − e)/(1 + e) with e = e^(−2|x|), through e − 1, which is exact near 0 as well.
                let (growth, scale) = $growth(-2.0 * self.abs());
                let less = growth.mul_add(scale, scale - 1.0);
                (-less / (2.0 + less)).copysign(self)
            }
            #[inline]
            fn ln_1p(self) -> Self {
                self.ln_1p()
            }
            #[inline]
            fn ln(self) -> Self {
                self.ln()
            }
            #[inline]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            #[inline]
            fn mul_add(self, factor: Self, term: Self) -> Self {
                self.mul_add(factor, term)
            }
        }
    };
}
real!(f32, single_growth, |powers: &mut [f32]| powers.iter_mut().for_each(|power| *power = power.exp()));
real!(f64, double_growth, |powers: &mut [f64]| for power in powers {
    let (growth, scale) = double_growth(*power);
    *power = (growth + 1.0) * scale;
});

/// e to a power without a branch, so that loops over it vectorise: e^r − 1 and 2^k with |r| ≤ ½·log 2, of which
/// e^power = 2^k·e^r, and e^r by its series.
macro_rules! growth {
    ($name:ident, $type:ident, $least:expr, $most:expr, $round:expr, $log_2:expr, $series:expr, $digits:expr, $bias:expr) => {
        #[inline]
        fn $name(power: $type) -> ($type, $type) {
            // Adding this leaves the nearest integer in the lowest bits.
            const ROUND: $type = $round;
            // log 2 in two parts, the first one short enough for integer multiples of it to be exact.
            const LOG_2: ($type, $type) = $log_2;
            let power = power.clamp($least, $most);
            let rounded = power.mul_add(std::$type::consts::LOG2_E, ROUND);
            let whole = rounded - ROUND;
            let rest = whole.mul_add(-LOG_2.1, whole.mul_add(-LOG_2.0, power));
            let series = $series.iter().fold(0.0, |sum: $type, &term| sum.mul_add(rest, term));
            let scale = $type::from_bits((rounded.to_bits() << $digits).wrapping_add($bias << $digits));
            ((series * rest).mul_add(rest, rest), scale)
        }
    };
}
growth!(single_growth, f32, -87.0, 88.0, 12_582_912.0, (0.693_359_4, -2.121_944_4e-4), SERIES_7, 23, 127);
growth!(
    double_growth,
    f64,
    -708.0,
    709.0,
    6_755_399_441_055_744.0,
    (6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10),
    SERIES_13,
    52,
    1023
);

/// 1/7!, 1/6!, …, 1/2!.
const SERIES_7: [f32; 6] = [1.984_127e-4, 1.388_888_9e-3, 8.333_334e-3, 4.166_666_8e-2, 0.166_666_67, 0.5];
/// 1/13!, 1/12!, …, 1/2!.
const SERIES_13: [f64; 12] = [
    1.605_904_383_682_161_5e-10,
    2.087_675_698_786_81e-9,
    2.505_210_838_544_172e-8,
    2.755_731_922_398_589e-7,
    2.755_731_922_398_589_3e-6,
    2.480_158_730_158_73e-5,
    1.984_126_984_126_984e-4,
    1.388_888_888_888_889e-3,
    8.333_333_333_333_333e-3,
    4.166_666_666_666_666_4e-2,
    1.666_666_666_666_666_6e-1,
    0.5,
];

/// A row-major matrix, or its transpose.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    values: &'a [T],
    rows: usize,
    columns: usize,
    transposed: bool,
}

impl<'a, T: Real> Matrix<'a, T> {
    pub(crate) fn new(values: &'a [T], rows: usize, columns: usize) -> Self {
        debug_assert_eq!(values.len(), rows * columns);
        Self { values, rows, columns, transposed: false }
    }

    pub(crate) fn transpose(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    fn view(self) -> MatRef<'a, T> {
        let plain = MatRef::from_row_major_slice(self.values, self.rows, self.columns);
        if self.transposed { plain.transpose() } else { plain }
    }
}

/// `out = scale · left · right`, with `out` row-major of the product's shape.
pub(crate) fn multiply<T: Real>(out: &mut [T], scale: T, left: Matrix<T>, right: Matrix<T>) {
    product(out, Accum::Replace, scale, left, right);
}

/// `out += scale · left · right`.
pub(crate) fn multiply_add<T: Real>(out: &mut [T], scale: T, left: Matrix<T>, right: Matrix<T>) {
    product(out, Accum::Add, scale, left, right);
}

fn product<T: Real>(out: &mut [T], accumulate: Accum, scale: T, left: Matrix<T>, right: Matrix<T>) {
    let (left, right) = (left.view(), right.view());
    let out = MatMut::from_row_major_slice_mut(out, left.nrows(), right.ncols());
    matmul(out, accumulate, left, right, scale, Par::Seq);
}

/// `out += scale · x`.
#[inline]
pub(crate) fn add_scaled<T: Real>(out: &mut [T], scale: T, x: &[T]) {
    for (o, &v) in out.iter_mut().zip(x) {
        *o += scale * v;
    }
}

/// The inner product of two vectors, in eight partial sums.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (eights, others) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = eights.remainder().iter().zip(others.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in eights.zip(others) {
        sums.iter_mut().zip(x.iter().zip(y)).for_each(|(sum, (x, y))| *sum += x * y);
    }
    sums.iter().sum::<f64>() + rest
}

pub(crate) fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum()
}

/// Euclidean distance of two vectors.
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    squared_distance(a, b).sqrt()
}

/// Euclidean length of a vector.
pub(crate) fn norm(a: &[f64]) -> f64 {
    a.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// Solves the symmetric `a x = b` for each column of the row-major `b`; `None` when `a` is not positive definite.
pub(crate) fn solve_positive(a: &[f64], b: &[f64], size: usize, columns: usize) -> Option<Vec<f64>> {
    use faer::linalg::solvers::{Llt, Solve};
    let decomposed = Llt::new(MatRef::from_row_major_slice(a, size, size), faer::Side::Lower).ok()?;
    let solution = decomposed.solve(MatRef::from_row_major_slice(b, size, columns));
    Some((0..size).flat_map(|i| (0..columns).map(move |j| (i, j))).map(|(i, j)| solution[(i, j)]).collect())
}

pub(crate) struct Cholesky(faer::linalg::solvers::Llt<f64>);

impl Cholesky {
    /// Factors `a`, row-major `size` × `size`; `None` when it is not positive definite.
    pub(crate) fn new(a: &[f64], size: usize) -> Option<Self> {
        faer::linalg::solvers::Llt::new(MatRef::from_row_major_slice(a, size, size).transpose(), faer::Side::Lower)
            .ok()
            .map(Self)
    }

    /// Replaces `b`, row-major with `columns` columns, by the solution of `a x = b`.
    pub(crate) fn solve(&self, b: &mut [f64], columns: usize) {
        use faer::linalg::solvers::Solve;
        let rows = b.len() / columns;
        self.0.solve_in_place(MatMut::from_row_major_slice_mut(b, rows, columns));
    }
}

/// Replaces the row-major `b` by the solution of `l lᵀ x = b`, `l` row-major; its upper triangle is not read.
pub(crate) fn solve_factored(l: &[f64], b: &mut [f64], size: usize, columns: usize) {
    use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
    let lower = MatRef::from_row_major_slice(l, size, size);
    let mut b = MatMut::from_row_major_slice_mut(b, size, columns);
    solve_lower_triangular_in_place(lower, b.as_mut(), Par::Seq);
    solve_upper_triangular_in_place(lower.transpose(), b, Par::Seq);
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
        let parts = faer::linalg::solvers::SelfAdjointEigen::new(matrix, faer::Side::Lower).ok()?;
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
    let values = view.self_adjoint_eigenvalues(faer::Side::Lower).unwrap_or_else(|_| vec![f64::NAN; size]);
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| (low.min(value), high.max(value)))
}

/// The least-squares solution of smallest norm of `a x = b`, `a` row-major `rows` × `size`.
pub(crate) fn least_squares(a: &[f64], b: &[f64], rows: usize, size: usize) -> Option<Vec<f64>> {
    let svd = faer::linalg::solvers::Svd::new_thin(MatRef::from_row_major_slice(a, rows, size)).ok()?;
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
    let transposed = faer::linalg::solvers::Qr::new(MatRef::from_row_major_slice(a, rows, size).transpose());
    let (basis, triangle) = (transposed.compute_thin_Q(), transposed.thin_R());
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
        multiply_add(&mut out, 2.0, Matrix::new(&a, 2, 3), Matrix::new(&b, 2, 3).transpose());
        assert_eq!(out, [5.0 + 14.0, 11.0 + 20.0, 14.0 + 32.0, 23.0 + 44.0]);
    }

    #[test]
    fn exponentials_side_by_side_are_those_one_by_one() {
        let mut powers: Vec<f64> =
            (-7000..7000).map(|i| f64::from(i) * 0.1 + 1e-3).chain([0.0, -0.0, 1e-300]).collect();
        let wanted: Vec<f64> = powers.iter().map(|power| power.exp()).collect();
        f64::exp_all(&mut powers);
        let worst = powers.iter().zip(&wanted).map(|(found, wanted)| (found / wanted - 1.0).abs()).fold(0.0, f64::max);
        assert!(worst < 5e-16, "{worst}");
        let mut ends = [f64::NEG_INFINITY, f64::INFINITY, f64::NAN];
        f64::exp_all(&mut ends);
        assert!(ends[0] < 1e-300 && ends[1] > 1e300 && ends[2].is_nan(), "{ends:?}");
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
    fn squashing_functions_are_right_to_the_last_digits() {
        let points = (-4000..=4000).map(|i| f64::from(i) * 0.025).chain((-30..0).map(|e| 10f64.powi(e)));
        let mut worst = [0.0; 4];
        for x in points {
            let single = f64::from(x as f32);
            let error = |found: f64, wanted: f64| if found == wanted { 0.0 } else { (found / wanted - 1.0).abs() };
            let (logistic, tangent) = (|x: f64| 1.0 / (1.0 + (-x).exp()), f64::tanh);
            let found = [
                error(x.logistic(), logistic(x)),
                error(x.fast_tanh(), tangent(x)),
                // Below e^-87 single precision ends.
                if x < -87.0 { 0.0 } else { error(f64::from((x as f32).logistic()), logistic(single)) },
                error(f64::from((x as f32).fast_tanh()), tangent(single)),
            ];
            worst.iter_mut().zip(found).for_each(|(worst, found)| *worst = found.max(*worst));
        }
        assert!(worst[0] < 1e-15 && worst[1] < 1e-15 && worst[2] < 3e-7 && worst[3] < 3e-7, "{worst:?}");
        assert!(f32::NAN.logistic().is_nan() && f32::NAN.fast_tanh().is_nan());
        assert_eq!([f32::INFINITY.fast_tanh(), f32::NEG_INFINITY.fast_tanh()], [1.0, -1.0]);
        assert_eq!(f32::INFINITY.logistic(), 1.0);
        assert!((-0.0f32).fast_tanh().is_sign_negative());
    }

    #[test]
    fn least_squares_takes_the_smallest_solution() {
        let x = least_squares(&[1.0, 1.0], &[2.0], 1, 2).unwrap();
        assert!((x[0] - 1.0).abs() < 1e-14 && (x[1] - 1.0).abs() < 1e-14);
    }
}
