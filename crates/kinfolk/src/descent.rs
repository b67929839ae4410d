//! L-BFGS with inverted control: the caller evaluates the objective where it says, so that an evaluation can be a round of a
//! federation. Its state can be saved between any two evaluations.

use crate::num::{add_scaled, dot, norm};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Pairs of moves and gradient changes that shape a direction.
const MEMORY: usize = 20;
/// Wolfe conditions: share of the predicted decrease that a step must achieve,
const SUFFICIENT_DECREASE: f64 = 1e-4;
/// and share of the directional derivative that may remain after it.
const CURVATURE: f64 = 0.9;
/// Relative differences below this are rounding.
const ROUNDING: f64 = 1e-14;
/// Evaluations along one direction before it is given up.
const EVALUATIONS: usize = 60;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Descent {
    point: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
    /// Norm of the first gradient.
    first: Option<f64>,
    pairs: VecDeque<Pair>,
    direction: Vec<f64>,
    /// The step being tried, and the bounds between which a good one lies.
    step: f64,
    bounds: (f64, f64),
    evaluations: usize,
    stuck: bool,
}

/// A move, the change of the gradient over it, and their product.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pair {
    moved: Vec<f64>,
    changed: Vec<f64>,
    product: f64,
}

impl Descent {
    pub(crate) fn new(start: Vec<f64>) -> Self {
        let size = start.len();
        Self {
            point: start,
            value: f64::INFINITY,
            gradient: vec![0.0; size],
            direction: vec![0.0; size],
            bounds: (0.0, f64::INFINITY),
            ..Self::default()
        }
    }

    /// The best point so far.
    pub(crate) fn point(&self) -> &[f64] {
        &self.point
    }

    /// Where to evaluate next.
    pub(crate) fn wanted(&self) -> Vec<f64> {
        let mut wanted = self.point.clone();
        add_scaled(&mut wanted, self.step, &self.direction);
        wanted
    }

    /// Norm of the gradient relative to the first one; 1 before the first evaluation, infinite where that went wrong.
    pub(crate) fn steepness(&self) -> f64 {
        match self.first {
            Some(0.0) => 0.0,
            Some(first) if first.is_finite() => norm(&self.gradient) / first,
            Some(_) => f64::INFINITY,
            None => 1.0,
        }
    }

    /// Whether the very first evaluation was not finite.
    pub(crate) fn has_diverged(&self) -> bool {
        self.first.is_some_and(|first| !first.is_finite())
    }

    /// Whether no better point can be found along any direction it knows.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Takes the value and the gradient at [`Descent::wanted`].
    pub(crate) fn report(&mut self, value: f64, gradient: &[f64]) {
        let length = if value.is_finite() { norm(gradient) } else { f64::INFINITY };
        if self.first.is_none() {
            (self.value, self.first) = (value, Some(length));
            self.gradient.copy_from_slice(gradient);
            self.stuck = !length.is_finite();
            return self.choose_direction();
        }
        let slope = dot(&self.direction, &self.gradient);
        let promised = self.value + SUFFICIENT_DECREASE * self.step * slope + ROUNDING * self.value.abs();
        if value > promised || !length.is_finite() {
            self.bounds.1 = self.step;
        } else if dot(&self.direction, gradient) < CURVATURE * slope {
            self.bounds.0 = self.step;
        } else {
            return self.accept(value, gradient);
        }
        self.evaluations += 1;
        let (low, high) = self.bounds;
        self.step = if high.is_finite() { 0.5 * (low + high) } else { 2.0 * low };
        if self.evaluations >= EVALUATIONS {
            // What the pairs know may be of no use here; without them there is one more direction to try.
            self.stuck = self.pairs.is_empty();
            self.pairs.clear();
            self.choose_direction();
        }
    }

    fn accept(&mut self, value: f64, gradient: &[f64]) {
        let moved: Vec<f64> = self.direction.iter().map(|d| self.step * d).collect();
        let changed: Vec<f64> = gradient.iter().zip(&self.gradient).map(|(new, old)| new - old).collect();
        let along = dot(&moved, &changed);
        if along > f64::EPSILON * norm(&moved) * norm(&changed) {
            self.pairs.push_back(Pair { moved, changed, product: along });
            if self.pairs.len() > MEMORY {
                self.pairs.pop_front();
            }
        }
        self.point = self.wanted();
        self.value = value;
        self.gradient.copy_from_slice(gradient);
        self.choose_direction();
    }

    /// A new direction from here: the gradient, bent by what the pairs know of the curvature.
    fn choose_direction(&mut self) {
        let mut direction: Vec<f64> = self.gradient.iter().map(|g| -g).collect();
        let mut shares = Vec::with_capacity(self.pairs.len());
        for pair in self.pairs.iter().rev() {
            let share = dot(&pair.moved, &direction) / pair.product;
            add_scaled(&mut direction, -share, &pair.changed);
            shares.push(share);
        }
        if let Some(last) = self.pairs.back() {
            let scale = last.product / dot(&last.changed, &last.changed);
            direction.iter_mut().for_each(|d| *d *= scale);
        }
        for (pair, share) in self.pairs.iter().zip(shares.into_iter().rev()) {
            let back = dot(&pair.changed, &direction) / pair.product;
            add_scaled(&mut direction, share - back, &pair.moved);
        }
        self.direction = direction;
        self.step = if self.pairs.is_empty() { 1.0 / norm(&self.gradient).max(1.0) } else { 1.0 };
        self.bounds = (0.0, f64::INFINITY);
        self.evaluations = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(start: Vec<f64>, tolerance: f64, function: impl Fn(&[f64]) -> (f64, Vec<f64>)) -> (Descent, usize) {
        let mut descent = Descent::new(start);
        for look in 0..2000 {
            if descent.steepness() <= tolerance || descent.is_stuck() {
                return (descent, look);
            }
            let (value, gradient) = function(&descent.wanted());
            descent.report(value, &gradient);
        }
        panic!("not found: {}", descent.steepness());
    }

    #[test]
    fn a_long_valley_is_followed_to_its_lowest_point() {
        // ½ Σ c_i (x_i − 1)² with curvatures from 1 to 10⁵.
        let curvature = |i: usize| 10f64.powi(i as i32);
        let (found, evaluations) = search(vec![0.0; 6], 1e-12, |x| {
            let gradient: Vec<f64> = x.iter().enumerate().map(|(i, v)| curvature(i) * (v - 1.0)).collect();
            (0.5 * x.iter().zip(&gradient).map(|(v, g)| (v - 1.0) * g).sum::<f64>(), gradient)
        });
        assert!(
            found.point().iter().all(|v| (v - 1.0).abs() < 1e-6) && evaluations < 150,
            "{evaluations} {:?}",
            found.point()
        );
    }

    #[test]
    fn a_bent_valley_too() {
        // Rosenbrock's function.
        let (found, _) = search(vec![-1.2, 1.0], 1e-10, |x| {
            let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
            (a * a + 100.0 * b * b, vec![-2.0 * a - 400.0 * x[0] * b, 200.0 * b])
        });
        assert!((found.point()[0] - 1.0).abs() < 1e-8 && (found.point()[1] - 1.0).abs() < 1e-8);
    }

    #[test]
    fn where_nothing_can_be_had_it_says_so() {
        let mut descent = Descent::new(vec![0.0]);
        descent.report(1.0, &[1.0]);
        (0..2 * EVALUATIONS).for_each(|_| descent.report(f64::NAN, &[1.0]));
        assert!(descent.is_stuck());
        let mut blind = Descent::new(vec![0.0]);
        blind.report(1.0, &[1.0]);
        let before = blind.point().to_vec();
        blind.report(0.0, &[f64::NAN]);
        assert_eq!((blind.point(), blind.steepness()), (&before[..], 1.0));
        for (value, gradient) in [(1.0, f64::NAN), (f64::NAN, 1.0), (f64::INFINITY, 0.0)] {
            let mut lost = Descent::new(vec![0.0]);
            lost.report(value, &[gradient]);
            assert!(lost.has_diverged() && lost.is_stuck() && lost.steepness() > 1.0);
        }
        let mut level = Descent::new(vec![0.0]);
        level.report(1.0, &[0.0]);
        assert_eq!(level.steepness(), 0.0);
    }
}
