//! Newton's method for the softened objective, the same for all weights.

use super::*;

/// A softened objective ½ Σ n‖u − a‖² + λ Σ w √(‖u_g − u_h‖² + ε²) at a current solution.
pub(super) trait Softened {
    /// Solves with the Hessian approximately.
    type Preconditioner;

    fn solution(&mut self) -> &mut Vec<f64>;

    /// The softened objective at the solution; all methods below refer to this point until the next call.
    fn evaluate(&mut self, lambda: f64, softness: f64) -> f64;

    fn gradient(&self) -> &[f64];

    /// ½ Σ‖gradient_g‖² / n_g: the gap, were there no softness.
    fn slope(&self) -> f64;

    /// Σ λ w / s over both ends of all pairs: the growth of the gap with ε².
    fn stiffness(&self) -> f64;

    /// `None` if it is not positive definite because of rounding.
    fn preconditioner(&mut self) -> Option<Self::Preconditioner>;

    /// Replaces a vector by the approximate solution.
    fn precondition(&self, with: &Self::Preconditioner, vector: &mut [f64]);

    /// The Hessian times a vector.
    fn curve(&mut self, along: &[f64], image: &mut [f64]);
}

/// Upper bound on the steps; rounding usually ends them before.
pub(super) const MOST_STEPS: usize = 100;

/// Numbers of a vector that a thread takes together.
const PART: usize = 1 << 13;

/// What the slope may add to the gap due to softness, as a share of it: enough to go on, and for forces that have to balance.
pub(super) const ROUGHLY: f64 = 0.03;
pub(super) const CLOSELY: f64 = 1e-6;

/// Descends until the slope adds no more than `share` to the gap due to softness, or for `steps` steps; returns whether it
/// converged. Without softness the slope is held against the objective, by `tolerance`.
pub(super) fn descend<S: Softened>(
    problem: &mut S,
    lambda: f64,
    softness: f64,
    (share, tolerance): (f64, f64),
    steps: usize,
) -> bool {
    let sharp = softness <= SHARP;
    let mut objective = problem.evaluate(lambda, softness);
    for step in 0..=steps {
        let goal = if sharp { 0.01 * tolerance * objective } else { share * softness * softness * problem.stiffness() };
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
    let right: Vec<f64> = problem.gradient().iter().map(|g| -g).collect();
    let Some(preconditioner) = problem.preconditioner() else { return right };
    let precondition = |problem: &S, vector: &mut [f64]| problem.precondition(&preconditioner, vector);
    conjugate_gradients(problem, right, precondition, S::curve, accuracy * accuracy, 200)
}

/// Solves a linear system by preconditioned conjugate gradients, until the squared residual, in the norm of the
/// preconditioner, is this share of the first one. `apply` multiplies a vector by the matrix.
pub(super) fn conjugate_gradients<P>(
    problem: &mut P,
    right: Vec<f64>,
    precondition: impl Fn(&P, &mut [f64]),
    apply: impl Fn(&mut P, &[f64], &mut [f64]),
    share: f64,
    steps: usize,
) -> Vec<f64> {
    let mut residual = right;
    let mut solution = vec![0.0; residual.len()];
    let mut image = solution.clone();
    let mut ahead = residual.clone();
    precondition(problem, &mut ahead);
    let mut along = ahead.clone();
    let mut size = product(&residual, &ahead);
    let goal = share * size;
    for _ in 0..steps {
        if size <= goal {
            break;
        }
        apply(problem, &along, &mut image);
        let curvature = product(&along, &image);
        let length = size / curvature;
        if curvature <= 0.0 || !length.is_finite() {
            break;
        }
        let parts = solution.par_chunks_mut(PART).zip(along.par_chunks(PART));
        let parts =
            parts.zip(residual.par_chunks_mut(PART).zip(image.par_chunks(PART)).zip(ahead.par_chunks_mut(PART)));
        parts.for_each(|((solution, along), ((residual, image), ahead))| {
            add_scaled(solution, length, along);
            add_scaled(residual, -length, image);
            ahead.copy_from_slice(residual);
        });
        precondition(problem, &mut ahead);
        let next = product(&residual, &ahead);
        let keep = next / size;
        size = next;
        let parts = along.par_chunks_mut(PART).zip(ahead.par_chunks(PART));
        parts.for_each(|(along, ahead)| dispatch!(|_| go_on(along, keep, ahead)));
    }
    solution
}

/// The inner product, part by part.
fn product(a: &[f64], b: &[f64]) -> f64 {
    let parts: Vec<f64> = a.par_chunks(PART).zip(b.par_chunks(PART)).map(|(a, b)| dot(a, b)).collect();
    parts.iter().sum()
}

/// The next direction: ahead, and on along the last one.
#[inline(always)]
fn go_on(along: &mut [f64], keep: f64, ahead: &[f64]) {
    along.iter_mut().zip(ahead).for_each(|(a, z)| *a = z + keep * *a);
}
