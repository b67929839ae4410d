//! The types of numbers that models compute in, and products of row-major matrices.
//!
//! Products run on the calling thread: parallelism is over clients.

use super::cpu::{Cpu, clearing};
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
    fn exp_all(cpu: Cpu, powers: &mut [Self]);
    /// 1/(1 + e^−x), without a branch, so that loops over it vectorise.
    fn logistic(self, cpu: Cpu) -> Self;
    /// The hyperbolic tangent, without a branch.
    fn fast_tanh(self, cpu: Cpu) -> Self;
    fn ln_1p(self) -> Self;
    fn ln(self) -> Self;
    fn sqrt(self) -> Self;
    /// In one rounding, which takes long without an instruction for it: see [`Cpu::mul_add`].
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
            #[inline(always)]
            fn exp_all(cpu: Cpu, powers: &mut [Self]) {
                $exponentials(cpu, powers)
            }
            #[inline(always)]
            fn logistic(self, cpu: Cpu) -> Self {
                let (growth, scale) = $growth(cpu, -self.abs());
                let e = (growth + 1.0) * scale;
                (if self < 0.0 { e } else { 1.0 }) / (1.0 + e)
            }
            #[inline(always)]
            fn fast_tanh(self, cpu: Cpu) -> Self {
                // (1 − e)/(1 + e) with e = e^(−2|x|), through e − 1, which is exact near 0 as well.
                let (growth, scale) = $growth(cpu, -2.0 * self.abs());
                let less = cpu.mul_add(growth, scale, scale - 1.0);
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
real!(f32, single_growth, |_, powers: &mut [f32]| powers.iter_mut().for_each(|power| *power = power.exp()));
real!(f64, double_growth, double_exponentials);

#[inline(always)]
fn double_exponentials(cpu: Cpu, powers: &mut [f64]) {
    for power in powers {
        let (growth, scale) = double_growth(cpu, *power);
        *power = (growth + 1.0) * scale;
    }
}

/// e to a power without a branch, so that loops over it vectorise: e^r − 1 and 2^k with |r| ≤ ½·log 2, of which
/// e^power = 2^k·e^r, and e^r by its series.
macro_rules! growth {
    ($name:ident, $type:ident, $least:expr, $most:expr, $round:expr, $log_2:expr, $series:expr, $digits:expr, $bias:expr) => {
        #[inline(always)]
        fn $name(cpu: Cpu, power: $type) -> ($type, $type) {
            // Adding this leaves the nearest integer in the lowest bits.
            const ROUND: $type = $round;
            // log 2 in two parts, the first one short enough for integer multiples of it to be exact.
            const LOG_2: ($type, $type) = $log_2;
            let power = power.clamp($least, $most);
            let rounded = cpu.mul_add(power, std::$type::consts::LOG2_E, ROUND);
            let whole = rounded - ROUND;
            let rest = cpu.mul_add(whole, -LOG_2.1, cpu.mul_add(whole, -LOG_2.0, power));
            let series = $series.iter().fold(0.0, |sum: $type, &term| cpu.mul_add(sum, rest, term));
            let scale = $type::from_bits((rounded.to_bits() << $digits).wrapping_add($bias << $digits));
            (cpu.mul_add(series * rest, rest, rest), scale)
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
    clearing(|| matmul(out, accumulate, left, right, scale, Par::Seq));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::dispatch;

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
        dispatch!(|cpu| f64::exp_all(cpu, &mut powers));
        let worst = powers.iter().zip(&wanted).map(|(found, wanted)| (found / wanted - 1.0).abs()).fold(0.0, f64::max);
        assert!(worst < 5e-16, "{worst}");
        let mut ends = [f64::NEG_INFINITY, f64::INFINITY, f64::NAN];
        dispatch!(|cpu| f64::exp_all(cpu, &mut ends));
        assert!(ends[0] < 1e-300 && ends[1] > 1e300 && ends[2].is_nan(), "{ends:?}");
    }

    #[test]
    fn squashing_functions_are_right_to_the_last_digits() {
        let cpu = dispatch!(|cpu| cpu);
        let points = (-4000..=4000).map(|i| f64::from(i) * 0.025).chain((-30..0).map(|e| 10f64.powi(e)));
        let mut worst = [0.0; 4];
        for x in points {
            let single = f64::from(x as f32);
            let error = |found: f64, wanted: f64| if found == wanted { 0.0 } else { (found / wanted - 1.0).abs() };
            let (logistic, tangent) = (|x: f64| 1.0 / (1.0 + (-x).exp()), f64::tanh);
            let found = [
                error(x.logistic(cpu), logistic(x)),
                error(x.fast_tanh(cpu), tangent(x)),
                // Below e^-87 single precision ends.
                if x < -87.0 { 0.0 } else { error(f64::from((x as f32).logistic(cpu)), logistic(single)) },
                error(f64::from((x as f32).fast_tanh(cpu)), tangent(single)),
            ];
            worst.iter_mut().zip(found).for_each(|(worst, found)| *worst = found.max(*worst));
        }
        assert!(worst[0] < 1e-15 && worst[1] < 1e-15 && worst[2] < 3e-7 && worst[3] < 3e-7, "{worst:?}");
        assert!(f32::NAN.logistic(cpu).is_nan() && f32::NAN.fast_tanh(cpu).is_nan());
        assert_eq!([f32::INFINITY.fast_tanh(cpu), f32::NEG_INFINITY.fast_tanh(cpu)], [1.0, -1.0]);
        assert_eq!(f32::INFINITY.logistic(cpu), 1.0);
        assert!((-0.0f32).fast_tanh(cpu).is_sign_negative());
    }
}
