//! How a number may bend: the terms of a natural cubic spline beside its linear one.
//!
//! Between the knots the curve is cubic, beyond the outermost it is straight, so that it does not run away where there are no rows.
//! Knots are evenly spaced over where most values lie, as their moments say: all of it can be agreed on by sums.

use super::scaling::Scale;
use crate::num::Moments;
use serde::{Deserialize, Serialize};

const KNOTS: usize = 5;
/// Nine tenths of a normal distribution are within this many deviations.
const REACH: f64 = 1.645;

/// The bends of a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bends {
    scale: Scale,
    /// In scaled units, ascending.
    knots: Vec<f64>,
}

impl Bends {
    /// Where the values of a column allow it.
    pub(super) fn of(moments: &Moments) -> Option<Self> {
        let Moments { mean, deviation, min, max, .. } = *moments;
        // Two values, as of a yes and a no, cannot bend: their variance is the product of their distances from the mean.
        let two_valued = (mean - min) * (max - mean);
        if deviation <= 0.0 || (deviation * deviation - two_valued).abs() <= 1e-9 * two_valued.abs() {
            return None;
        }
        let scale = Scale::of(moments);
        let (low, high) = (scale.apply(min).max(-REACH), scale.apply(max).min(REACH));
        let knot = |place: usize| low + (high - low) * place as f64 / (KNOTS - 1) as f64;
        (high > low).then(|| Self { scale, knots: (0..KNOTS).map(knot).collect() })
    }

    /// How many terms there are.
    pub(super) fn terms(&self) -> usize {
        self.knots.len().saturating_sub(2)
    }

    /// So many values evenly over the knots.
    pub(super) fn values(&self, count: usize) -> Vec<f64> {
        let [first, .., last] = self.knots[..] else { return Vec::new() };
        let share = |place: usize| place as f64 / (count - 1).max(1) as f64;
        (0..count).map(|place| self.scale.undo(first + (last - first) * share(place))).collect()
    }

    /// The terms of a value.
    pub(super) fn encode(&self, value: f64, out: &mut [f64]) {
        let [.., before, last] = self.knots[..] else { return };
        let (z, width) = (self.scale.apply(value), last - self.knots[0]);
        let cube = |knot: f64| ((z - knot).max(0.0) / width).powi(3);
        let slope = |knot: f64| (cube(knot) - cube(last)) * width / (last - knot);
        for (out, &knot) in out.iter_mut().zip(&self.knots[..self.terms()]) {
            *out = slope(knot) - slope(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bends(values: &[f64]) -> Option<Bends> {
        Bends::of(&Moments::of(values.iter().copied()))
    }

    #[test]
    fn straight_beyond_the_outermost_knots_and_smooth_between() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let bends = bends(&values).unwrap();
        assert_eq!(bends.terms(), 3);
        let at = |value: f64| {
            let mut terms = [0.0; 3];
            bends.encode(value, &mut terms);
            terms
        };
        assert_eq!(at(-50.0), [0.0; 3]);
        for term in 0..3 {
            let second =
                |x: f64, step: f64| (at(x + step)[term] - 2.0 * at(x)[term] + at(x - step)[term]) / (step * step);
            assert!(second(500.0, 10.0).abs() < 1e-9, "straight on the right");
            assert!(second(60.0, 1.0).abs() > 1e-6, "bent inside");
            let jump = (second(50.0, 1e-2) - second(50.02, 1e-2)).abs();
            assert!(jump < 1e-3, "curvature is continuous: {jump}");
        }
    }

    #[test]
    fn two_values_do_not_bend() {
        assert!(bends(&[0.0, 1.0, 1.0, 0.0, 1.0]).is_none());
        assert!(bends(&[3.0, 3.0]).is_none());
        assert!(bends(&[0.0, 1.0, 2.0]).is_some());
    }
}
