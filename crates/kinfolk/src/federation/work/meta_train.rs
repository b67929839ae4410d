//! Training for what a model is worth after a step of the client's own (MAML; Per-FedAvg).

use super::*;
use crate::models::Slopes;
use crate::num::add_scaled;

/// Steps w ← w − β ∇f(w − α ∇f(w; D); D'), on two batches each: the first order of the meta-gradient, or with its second-order part
/// by a difference of gradients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetaTrain {
    /// Where it begins.
    pub model: usize,
    /// How to train; its step is β.
    pub plan: Plan,
    /// α, the step that the client would take.
    pub inner_step: f64,
    /// The length δ of the difference that stands for a Hessian times a vector; none leaves it out.
    pub difference: Option<f64>,
}

impl Telling for MetaTrain {
    const TELLS: Tells =
        Tells::numbers("its mean loss before the steps").with_vector("its model after local meta-steps");
}

impl Kind for MetaTrain {
    fn needs(&self) -> Needs<'_> {
        Needs::new(vec![self.model], Capability::Gradients).on(self.plan.sample.on)
    }

    fn sends(&self, width: usize) -> Sends {
        Sends::numbers(1).model(Content::Trained, width, true)
    }

    fn cost(&self, load: &Load) -> Cost {
        let cost = load.training(&self.plan);
        Cost { steps: 4.0 * cost.steps, work: 4.0 * cost.work, numbers: 6.0 * cost.numbers }
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let plan = context.guard.plan(&self.plan)?;
        let mut params = context.models[self.model].clone();
        let seat = context.seat();
        let mut slopes = Slopes::new(context.worker, &seat, &plan);
        let zero = || vec![0.0; params.len()];
        let (mut first, mut outer, mut moved, mut change) = (zero(), zero(), zero(), zero());
        let mut loss = f64::NAN;
        for step in 0..slopes.steps() {
            slopes.next();
            let before = slopes.at(&params, &mut first);
            loss = if step == 0 { before } else { loss };
            moved.copy_from_slice(&params);
            add_scaled(&mut moved, -self.inner_step, &first);
            slopes.next();
            slopes.at(&moved, &mut outer);
            if let Some(length) = self.difference {
                // (I − α ∇²f(w)) v with ∇²f(w) v ≈ (∇f(w + δ v) − ∇f(w − δ v)) / 2 δ.
                slopes.next();
                // The difference first, as it is taken at the gradient that it then changes.
                change.fill(0.0);
                for sign in [1.0, -1.0] {
                    moved.copy_from_slice(&params);
                    add_scaled(&mut moved, sign * length, &outer);
                    slopes.at(&moved, &mut first);
                    add_scaled(&mut change, sign / (2.0 * length), &first);
                }
                add_scaled(&mut outer, -self.inner_step, &change);
            }
            add_scaled(&mut params, -plan.step, &outer);
        }
        context.worker.failure().map_or(Ok(()), Err)?;
        Ok(context.reply(Loss(loss), Some(params)))
    }

    fn base(&self, _: &Reply) -> Option<usize> {
        Some(self.model)
    }

    fn fault(&self) -> Option<&'static str> {
        let sound = self.plan.sample.on == Portion::All && self.plan.terms.is_empty();
        (!sound).then_some("trains on a portion of the rows, or with pulls")
    }
}
