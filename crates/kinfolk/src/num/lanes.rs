//! Loops over vectors. Sums run in eight lanes, which are added up as a tree, and then the rest: always in this order and
//! without fused products, so that they have the same bits on every CPU. They are not dispatched: an addition waits for the one
//! before it in its lane, and wider registers do not make that shorter.

use super::cpu::dispatch;
use super::matrix::Real;

const LANES: usize = 8;

/// Vectors shorter than this are not worth a dispatched call: they run with what every CPU has.
const SHORT: usize = 32;

/// `out += scale · x`.
#[inline]
pub(crate) fn add_scaled<T: Real>(out: &mut [T], scale: T, x: &[T]) {
    #[inline(always)]
    fn add<T: Real>(out: &mut [T], scale: T, x: &[T]) {
        for (o, &v) in out.iter_mut().zip(x) {
            *o += scale * v;
        }
    }
    if out.len() < SHORT { add(out, scale, x) } else { dispatch!(|_| add(out, scale, x)) }
}

#[inline]
pub(crate) fn sum<T: Real>(a: &[T]) -> T {
    let (eights, rest) = a.as_chunks::<LANES>();
    let mut lanes = [T::ZERO; LANES];
    for eight in eights {
        lanes.iter_mut().zip(eight).for_each(|(lane, &a)| *lane += a);
    }
    rest.iter().fold(tree(lanes), |sum, &a| sum + a)
}

/// The inner product of two vectors of one length.
#[inline]
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    sum_of_pairs(a, b, |a, b| a * b)
}

#[inline]
pub(crate) fn squared_distance<T: Real>(a: &[T], b: &[T]) -> T {
    sum_of_pairs(a, b, |a, b| (a - b) * (a - b))
}

#[inline(always)]
fn sum_of_pairs<T: Real>(a: &[T], b: &[T], term: impl Fn(T, T) -> T) -> T {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [T::ZERO; LANES];
    for (a, b) in a.iter().zip(b) {
        lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(lane, (&a, &b))| *lane += term(a, b));
    }
    a_rest.iter().zip(b_rest).fold(tree(lanes), |sum, (&a, &b)| sum + term(a, b))
}

#[inline(always)]
fn tree<T: Real>([a, b, c, d, e, f, g, h]: [T; LANES]) -> T {
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// Euclidean distance of two vectors.
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    squared_distance(a, b).sqrt()
}

pub(crate) fn sum_of_squares<T: Real>(a: &[T]) -> T {
    dot(a, a)
}

/// Euclidean length of a vector.
pub fn norm(a: &[f64]) -> f64 {
    sum_of_squares(a).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_every_length_are_those_of_a_plain_loop() {
        for length in 0..3 * SHORT {
            let a: Vec<f64> = (0..length).map(|i| f64::from(i as u32 % 7) - 2.5).collect();
            let b: Vec<f64> = (0..length).map(|i| f64::from(i as u32 % 5) * 0.25).collect();
            let pairs = || a.iter().zip(&b);
            // All of these are exact.
            assert_eq!(sum(&a), a.iter().sum::<f64>() + 0.0);
            assert_eq!(dot(&a, &b), pairs().map(|(a, b)| a * b).sum::<f64>() + 0.0);
            assert_eq!(squared_distance(&a, &b), pairs().map(|(a, b)| (a - b) * (a - b)).sum::<f64>() + 0.0);
            assert_eq!(distance(&a, &b), squared_distance(&a, &b).sqrt());
            assert_eq!(norm(&a), a.iter().map(|a| a * a).sum::<f64>().sqrt());
            let mut out = b.clone();
            add_scaled(&mut out, 2.0, &a);
            assert!(out.iter().zip(pairs()).all(|(out, (a, b))| *out == b + 2.0 * a));
        }
    }
}
