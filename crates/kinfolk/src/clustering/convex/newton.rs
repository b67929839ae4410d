//! Newton's method for the softened objective, the same for all weights.

use super::SHARP;
use crate::linalg::dot;

/// A softened objective ½ Σ n‖u − a‖² + λ Σ w √(‖u_g − u_h‖² + ε²) at a current solution.
pub(super) trait Softened {
    /// What solves approximately with the Hessian.
    type Preconditioner;

    /// The solution, to be changed.
    fn solution(&mut self) -> &mut Vec<f64>;

    /// The softened objective at the solution; all below speak of this place until it is called again.
    fn evaluate(&mut self, lambda: f64, softness: f64) -> f64;

    /// Its gradient.
    fn gradient(&self) -> &[f64];

    /// ½ Σ‖gradient_g‖² / n_g: the gap, were there no softness.
    fn slope(&self) -> f64;

    /// Σ λ w / s over both ends of all pairs: what the gap grows by with ε².
    fn stiffness(&self) -> f64;

    /// `None` when rounding spoils it.
    fn preconditioner(&mut self) -> Option<Self::Preconditioner>;

    /// Replaces a vector by the approximate solution for it.
    fn precondition(&self, with: &Self::Preconditioner, vector: &mut [f64]);

    /// The Hessian times a vector.
    fn curve(&mut self, along: &[f64], image: &mut [f64]);
}

/// Steps that are always enough, unless rounding ends them before.
pub(super) const MOST_STEPS: usize = 100;

/// Descends until what is left adds little to the gap that softness leaves, or for so many steps; says which.
pub(super) fn descend<S: Softened>(problem: &mut S, lambda: f64, softness: f64, tolerance: f64, steps: usize) -> bool {
    let sharp = softness <= SHARP;
    let mut objective = problem.evaluate(lambda, softness);
    for step in 0..=steps {
        let goal = if sharp { 0.01 * tolerance * objective } else { 0.03 * softness * softness * problem.stiffness() };
        if problem.slope() <= goal {
            return true;
        }
        if step == steps {
            break;
        }
        let direction = newton_direction(problem, if sharp { 1e-3 } else { 0.1 });
        let slope = dot(problem.gradient(), &direction);
        let before = problem.solution().clone();
        let mut length = 1.0;
        loop {
            for ((u, b), p) in problem.solution().iter_mut().zip(&before).zip(&direction) {
                *u = b + length * p;
            }
            let now = problem.evaluate(lambda, softness);
            if now <= objective + 1e-4 * length * slope {
                objective = now;
                break;
            }
            length *= 0.5;
            if length < 1e-4 {
                // Rounding hides any further descent.
                problem.solution().copy_from_slice(&before);
                problem.evaluate(lambda, softness);
                return true;
            }
        }
    }
    false
}

/// Solves H p = −gradient by preconditioned conjugate gradients.
fn newton_direction<S: Softened>(problem: &mut S, accuracy: f64) -> Vec<f64> {
    let mut residual: Vec<f64> = problem.gradient().iter().map(|g| -g).collect();
    let Some(preconditioner) = problem.preconditioner() else { return residual };
    let mut direction = vec![0.0; residual.len()];
    let mut image = direction.clone();
    let mut ahead = residual.clone();
    problem.precondition(&preconditioner, &mut ahead);
    let mut along = ahead.clone();
    let first = dot(&residual, &ahead);
    let mut size = first;
    for _ in 0..200 {
        problem.curve(&along, &mut image);
        let curvature = dot(&along, &image);
        if curvature.is_nan() || curvature <= 0.0 {
            break;
        }
        let length = size / curvature;
        for ((p, r), (a, i)) in direction.iter_mut().zip(&mut residual).zip(along.iter().zip(&image)) {
            *p += length * a;
            *r -= length * i;
        }
        ahead.copy_from_slice(&residual);
        problem.precondition(&preconditioner, &mut ahead);
        let next = dot(&residual, &ahead);
        if next <= accuracy * accuracy * first {
            break;
        }
        let keep = next / size;
        size = next;
        along.iter_mut().zip(&ahead).for_each(|(a, z)| *a = z + keep * *a);
    }
    direction
}
