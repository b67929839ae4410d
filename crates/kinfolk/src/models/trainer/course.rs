//! The steps of one training.

use super::*;
use crate::training::Optimiser;

/// Something with gradients on one batch after another.
pub(super) trait Trainable<T: Real> {
    /// The gradient of the mean loss on the next batch into `gradient`; returns that loss.
    fn slope(&mut self, params: &[T], gradient: &mut [T]) -> f64;

    /// A plain gradient step on the next batch, which need not form the whole gradient; returns the loss before it.
    fn descend(&mut self, step: T, params: &mut [T], gradient: &mut [T]) -> f64 {
        let loss = self.slope(params, gradient);
        add_scaled(params, -step, gradient);
        loss
    }

    /// Updates parameters that are not learned by descent after a step.
    fn update_statistics(&mut self, _params: &mut [T]) {}
}

/// Takes the steps of a plan on the first parameters, as many as `scratch` has; returns the loss before the first.
pub(super) fn train<T: Real>(
    trained: &mut impl Trainable<T>,
    plan: &Plan,
    steps: usize,
    models: &[Vec<T>],
    params: &mut [T],
    scratch: &mut Scratch<T>,
) -> f64 {
    let plain = matches!(plan.optimiser, Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 })
        && plan.course.tolerance == 0.0
        && plan.terms.is_empty();
    let learned = scratch.gradient.len();
    let frozen = if plan.terms.frozen.is_empty() { Vec::new() } else { params.to_vec() };
    let mut average = vec![T::ZERO; if plan.course.averaged { params.len() } else { 0 }];
    let (mut taken, mut first_loss) = (0, f64::NAN);
    for t in 0..steps {
        let step = if plan.course.fading { plan.step / (t + 1) as f64 } else { plan.step };
        let loss = if plain {
            trained.descend(T::of(step), params, &mut scratch.gradient)
        } else {
            trained.slope(params, &mut scratch.gradient)
        };
        if t == 0 {
            first_loss = loss;
        }
        if !plain {
            scratch.add_terms(plan, models, params);
            if scratch.within(plan, params) {
                break;
            }
            scratch.apply(plan.optimiser, step, &mut params[..learned]);
            // Weight decay moves parameters without a gradient, too.
            for range in &plan.terms.frozen {
                let end = range.end.min(learned);
                params[range.start.min(end)..end].copy_from_slice(&frozen[range.start.min(end)..end]);
            }
        }
        trained.update_statistics(params);
        // θ̄ ← θ̄ + 2/(t + 2)·(θ − θ̄), counting t from 0, is the mean with weights 1, 2, …, t + 1.
        let share = T::of(2.0 / (t + 2) as f64);
        average.iter_mut().zip(&*params).for_each(|(mean, &p)| *mean += share * (p - *mean));
        taken += 1;
    }
    if plan.course.averaged && taken > 0 {
        params.copy_from_slice(&average);
    }
    first_loss
}
