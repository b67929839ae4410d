//! Training through the Moreau envelope of a client's loss (pFedMe).

use super::*;
use crate::models::Slopes;
use crate::num::add_scaled;

/// Each step finds θ ≈ argmin f(θ) + λ/2 ‖θ − w‖² on a batch by steps of its own, then w ← w − η λ (w − θ). w is sent, the last θ is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainNearby {
    /// Where w begins, a model of the ask.
    pub model: usize,
    /// How to train; its step is η.
    pub plan: Plan,
    /// λ.
    pub strength: f64,
    /// Number of steps towards θ.
    pub inner_steps: u32,
    /// Their size.
    pub inner_step: f64,
}

impl Telling for TrainNearby {
    const TELLS: Tells =
        Tells::numbers("its mean loss before the steps").with_vector("its copy of the common model after local steps");
}

impl Kind for TrainNearby {
    fn needs(&self) -> Needs<'_> {
        Needs::new(vec![self.model], Capability::Gradients).on(self.plan.sample.on).keeping(true)
    }

    fn sends(&self, width: usize) -> Sends {
        Sends::numbers(1).model(Content::Trained, width, true)
    }

    fn cost(&self, load: &Load) -> Cost {
        let (cost, times) = (load.training(&self.plan), f64::from(self.inner_steps));
        Cost { steps: times * cost.steps, work: times * cost.work, numbers: 5.0 * cost.numbers }
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let plan = context.guard.plan(&self.plan)?;
        let width = context.worker.width();
        if let Some(numbers) = context.numbers_of(context.stamp) {
            // This order has been carried out, and its answer got lost. Behind θ lies what was sent.
            let kept = context.kept_vectors(context.stamp, 2)?;
            return Ok(context.reply(numbers, Some(kept[width..].to_vec())));
        }
        let mut centre = context.models[self.model].clone();
        let mut near = centre.clone();
        let seat = context.seat();
        let mut slopes = Slopes::new(context.worker, &seat, &plan);
        let mut gradient = vec![0.0; width];
        let mut loss = f64::NAN;
        for step in 0..slopes.steps() {
            slopes.next();
            for inner in 0..self.inner_steps {
                let before = slopes.at(&near, &mut gradient);
                loss = if step == 0 && inner == 0 { before } else { loss };
                for ((near, gradient), centre) in near.iter_mut().zip(&gradient).zip(&centre) {
                    *near -= self.inner_step * (gradient + self.strength * (*near - centre));
                }
            }
            let pull = plan.step * self.strength;
            centre.iter_mut().for_each(|centre| *centre *= 1.0 - pull);
            add_scaled(&mut centre, pull, &near);
        }
        context.worker.failure().map_or(Ok(()), Err)?;
        context.model().precision().round(&mut centre);
        context.keep(&[loss], [&near[..], &centre].concat())?;
        Ok(context.reply(Loss(loss), Some(centre)))
    }

    fn base(&self, _: &Reply) -> Option<usize> {
        Some(self.model)
    }

    fn fault(&self) -> Option<&'static str> {
        if self.inner_steps == 0 {
            return Some("takes no steps towards a nearby model");
        }
        let sound = self.plan.sample.on == Portion::All && self.plan.terms.is_empty();
        (!sound).then_some("trains on a portion of the rows, or with pulls")
    }
}
