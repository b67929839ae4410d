//! Eight numbers side by side: the channels of a pixel are worked on in such blocks.

use crate::num::{Cpu, Real};
use std::array::from_fn;
use std::ops::{Add, Mul, Sub};

pub(super) const LANES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lanes<T>(pub(super) [T; LANES]);

impl<T: Real> Lanes<T> {
    pub(super) const ZERO: Self = Lanes([T::ZERO; LANES]);

    #[inline(always)]
    pub(super) fn mul_add(self, cpu: Cpu, factor: f64, term: Self) -> Self {
        let factor = T::of(factor);
        Lanes(from_fn(|i| cpu.mul_add(self.0[i], factor, term.0[i])))
    }
}

impl<T: Real> Add for Lanes<T> {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Lanes(from_fn(|i| self.0[i] + other.0[i]))
    }
}

impl<T: Real> Sub for Lanes<T> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Lanes(from_fn(|i| self.0[i] - other.0[i]))
    }
}

impl<T: Real> Mul<f64> for Lanes<T> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, factor: f64) -> Self {
        let factor = T::of(factor);
        Lanes(from_fn(|i| self.0[i] * factor))
    }
}

pub(super) fn lanes<T>(values: &[T]) -> &[[T; LANES]] {
    values.as_chunks().0
}

pub(super) fn lanes_mut<T>(values: &mut [T]) -> &mut [[T; LANES]] {
    values.as_chunks_mut().0
}
