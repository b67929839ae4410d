//! One training, step by step, as every model takes it that is trained by descent.

use super::steps::Scratch;
use crate::linalg::{Real, add_scaled};
use crate::training::{Optimiser, Plan};

/// What is trained: it knows the slope of its loss on the rows of the next step.
pub(super) trait Trainee<T: Real> {
    /// The gradient of the mean loss on the next rows into `gradient`; returns that loss.
    fn slope(&mut self, params: &[T], gradient: &mut [T]) -> f64;

    /// A plain step of descent on the next rows, which need not form the whole gradient; returns the loss before it.
    fn descend(&mut self, step: T, params: &mut [T], gradient: &mut [T]) -> f64 {
        let loss = self.slope(params, gradient);
        add_scaled(params, -step, gradient);
        loss
    }

    /// Brings parameters that are not learned by descent up to date after a step.
    fn settle(&mut self, _params: &mut [T]) {}
}

/// Takes so many steps of a plan; `scratch` has begun with as many numbers as are learned, which are the first of
/// `params`. Returns the loss before the first step.
pub(super) fn train<T: Real>(
    trainee: &mut impl Trainee<T>,
    plan: &Plan,
    steps: usize,
    models: &[Vec<T>],
    params: &mut [T],
    scratch: &mut Scratch<T>,
) -> f64 {
    let plain = matches!(plan.optimiser, Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 })
        && plan.course.tolerance == 0.0
        && plan.pulls.is_empty();
    let learned = scratch.gradient.len();
    let mut average = vec![T::ZERO; if plan.course.averaged { params.len() } else { 0 }];
    let (mut taken, mut first_loss) = (0, f64::NAN);
    for t in 0..steps {
        let step = if plan.course.fading { plan.step / (t + 1) as f64 } else { plan.step };
        let loss = if plain {
            trainee.descend(T::of(step), params, &mut scratch.gradient)
        } else {
            trainee.slope(params, &mut scratch.gradient)
        };
        if t == 0 {
            first_loss = loss;
        }
        if !plain {
            scratch.pull(plan, models, params);
            if scratch.within(plan, params) {
                break;
            }
            scratch.apply(plan.optimiser, step, &mut params[..learned]);
        }
        trainee.settle(params);
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
