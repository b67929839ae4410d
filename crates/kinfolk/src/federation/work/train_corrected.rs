//! Training with a correction of every gradient (SCAFFOLD).

use super::*;
use crate::models::steps_for;

/// Training from a model of the ask with c − c_i added to every gradient. The client keeps c_i, and sends its model and how much c_i
/// has changed, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainCorrected {
    /// Where it begins.
    pub model: usize,
    /// c, a model of the ask.
    pub control: usize,
    /// The stamp of c_i; none before the client's first: it is 0 then.
    pub stamp: Option<u64>,
    /// How to train, by plain steps.
    pub plan: Plan,
}

impl Telling for TrainCorrected {
    const TELLS: Tells = Tells::numbers("its mean loss before the steps")
        .with_vector("its model after local steps, and how much its correction has changed");
}

impl Kind for TrainCorrected {
    fn needs(&self) -> Needs<'_> {
        Needs::new(vec![self.model, self.control], Capability::Gradients)
            .on(self.plan.sample.on)
            .stamp(self.stamp)
            .keeping(true)
    }

    fn sends(&self, width: usize) -> Sends {
        Sends { content: Content::Statistics, length: 2 * width, models: 2, ..Sends::numbers(1) }
    }

    fn cost(&self, load: &Load) -> Cost {
        let cost = load.training(&self.plan);
        Cost { numbers: 4.0 * cost.numbers, ..cost }
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let mut plan = context.guard.plan(&self.plan)?;
        let width = context.worker.width();
        if let Some(numbers) = context.numbers_of(context.stamp) {
            // This order has been carried out, and its answer got lost. Behind c_i lies what was sent.
            let kept = context.kept_vectors(context.stamp, 3)?;
            return Ok(context.reply(numbers, Some(kept[width..].to_vec())));
        }
        let mut own = match self.stamp {
            Some(stamp) => context.kept_vectors(stamp, 3)?[..width].to_vec(),
            None => vec![0.0; width],
        };
        let (start, control) = (&context.models[self.model], &context.models[self.control]);
        let correction: Vec<f64> = control.iter().zip(&own).map(|(control, own)| control - own).collect();
        plan.terms.tilt = Some(context.worker.load(&correction));
        let mut vector = vec![0.0; width];
        let loss = context.worker.train(self.model, &context.seat(), &plan, &mut vector);
        context.worker.failure().map_or(Ok(()), Err)?;
        // c_i ← c_i − c + (x − y)/(K η), with K steps of size η from x to y.
        let steps = steps_for(&plan, context.rows(plan.sample.on)?.len()) as f64;
        let change = start.iter().zip(&vector).zip(control).map(|((x, y), c)| (x - y) / (steps * plan.step) - c);
        let change: Vec<f64> = change.collect();
        own.iter_mut().zip(&change).for_each(|(own, change)| *own += change);
        let mut sent = [vector, change].concat();
        context.model().precision().round(&mut sent);
        context.keep(&[loss], [&own[..], &sent].concat())?;
        Ok(context.reply(Loss(loss), Some(sent)))
    }

    fn fault(&self) -> Option<&'static str> {
        let plain = matches!(self.plan.optimiser, crate::training::Optimiser::Descent { momentum: 0.0, .. });
        let sound = plain && self.plan.step > 0.0 && self.plan.course == crate::training::Course::PLAIN;
        (!sound).then_some("corrects steps that are not plain ones")
    }
}
