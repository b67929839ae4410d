//! Training of a mixture of the common model and one of the client's own, and of how much of each (APFL).

use super::*;
use crate::models::Slopes;
use crate::num::{add_scaled, dot};

/// The client's copy w of the common model takes plain steps and is sent; its own v takes steps of the mixture v̄ = α v + (1 − α) w,
/// and so does α, once. v̄ and v are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interpolate {
    /// Where w begins, a model of the ask.
    pub model: usize,
    /// The stamp of v̄ and v; none before the client's first: v begins where w does.
    pub stamp: Option<u64>,
    /// α of a client that begins.
    pub share: f64,
    /// Whether α is learned.
    pub adaptive: bool,
    /// How to train.
    pub plan: Plan,
}

/// What a client answers: its loss, and α.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interpolated {
    /// The loss of w before the first step.
    pub loss: f64,
    /// α afterwards.
    pub share: f64,
}

impl Answer for Interpolated {
    fn read(_: &[u32], numbers: &[f64]) -> Self {
        Self { loss: numbers[0], share: numbers[1] }
    }

    fn write(self, _: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        numbers.extend([self.loss, self.share]);
    }
}

impl HasLoss for Interpolated {}

impl Telling for Interpolate {
    const TELLS: Tells = Tells::numbers("its mean loss before the steps, and the share of its own model")
        .with_vector("its copy of the common model after local steps");
}

impl Kind for Interpolate {
    fn needs(&self) -> Needs<'_> {
        Needs::new(vec![self.model], Capability::Gradients).on(self.plan.sample.on).stamp(self.stamp).keeping(true)
    }

    fn sends(&self, width: usize) -> Sends {
        Sends::numbers(2).model(Content::Trained, width, true)
    }

    fn cost(&self, load: &Load) -> Cost {
        let cost = load.training(&self.plan);
        Cost { steps: 2.0 * cost.steps, work: 2.0 * cost.work, numbers: 6.0 * cost.numbers }
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let plan = context.guard.plan(&self.plan)?;
        let width = context.worker.width();
        if let Some(numbers) = context.numbers_of(context.stamp) {
            // This order has been carried out, and its answer got lost. Behind v̄ and v lies what was sent.
            let kept = context.kept_vectors(context.stamp, 3)?;
            return Ok(context.reply(numbers, Some(kept[2 * width..].to_vec())));
        }
        let mut common = context.models[self.model].clone();
        let (mut own, mut share) = match self.stamp {
            Some(stamp) => {
                let share = context.numbers_of(stamp).and_then(|numbers| numbers.get(1).copied());
                (context.kept_vectors(stamp, 3)?[width..2 * width].to_vec(), share.unwrap_or(self.share))
            }
            None => (common.clone(), self.share),
        };
        let seat = context.seat();
        let mut slopes = Slopes::new(context.worker, &seat, &plan);
        let zero = || vec![0.0; width];
        let (mut mixed, mut gradient, mut of_common) = (zero(), zero(), zero());
        let mix = |share: f64, own: &[f64], common: &[f64], mixed: &mut [f64]| {
            mixed
                .iter_mut()
                .zip(own.iter().zip(common))
                .for_each(|(mixed, (v, w))| *mixed = share * v + (1.0 - share) * w);
        };
        let mut loss = f64::NAN;
        for step in 0..slopes.steps() {
            slopes.next();
            mix(share, &own, &common, &mut mixed);
            let before = slopes.at(&common, &mut of_common);
            loss = if step == 0 { before } else { loss };
            slopes.at(&mixed, &mut gradient);
            if step == 0 && self.adaptive {
                let along = dot(&own, &gradient) - dot(&common, &gradient);
                share = (share - plan.step * along).clamp(0.0, 1.0);
            }
            add_scaled(&mut common, -plan.step, &of_common);
            add_scaled(&mut own, -plan.step * share, &gradient);
        }
        context.worker.failure().map_or(Ok(()), Err)?;
        mix(share, &own, &common, &mut mixed);
        context.model().precision().round(&mut common);
        context.keep(&[loss, share], [&mixed[..], &own, &common].concat())?;
        Ok(context.reply(Interpolated { loss, share }, Some(common)))
    }

    fn base(&self, _: &Reply) -> Option<usize> {
        Some(self.model)
    }

    fn implausible(&self, reply: &Reply, least_loss: f64) -> Option<String> {
        let Interpolated { loss, share } = Interpolated::read(&reply.counts, &reply.numbers);
        if !(0.0..=1.0).contains(&share) {
            return Some(format!("{share:.1e} for the share of its own model"));
        }
        reply::below(&[loss], least_loss)
    }

    fn loss(&self, reply: &Reply) -> Option<f64> {
        reply.numbers.first().copied()
    }

    fn fault(&self) -> Option<&'static str> {
        if !(0.0..=1.0).contains(&self.share) {
            return Some("has a share that is none");
        }
        let sound = self.plan.sample.on == Portion::All && self.plan.terms.is_empty();
        (!sound).then_some("trains on a portion of the rows, or with pulls")
    }
}
