//! Loops over vectors.

use super::matrix::Real;

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
