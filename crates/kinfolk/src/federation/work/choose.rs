//! A choice among models, and what follows from it, in one pass over a client's rows.

use super::*;
use crate::models::Job;
use crate::training::{Portion, Then};

/// Find the model with the smallest loss (ties to the first), and go on from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choose {
    /// The candidates.
    pub among: Vec<usize>,
    /// On which rows they compete.
    pub on: Portion,
    /// What to do with the winner.
    pub then: Then,
}

impl Kind for Choose {
    fn needs(&self) -> Needs<'_> {
        let needs = match &self.then {
            Then::Train(plan) => {
                let models: Vec<usize> = self.among.iter().copied().chain(plan.centres()).collect();
                Needs::new(models, Capability::Descent).on(plan.sample.on)
            }
            Then::Gradient(sample) => Needs::new(&self.among, Capability::Gradients).on(sample.on),
            Then::Nothing => Needs::new(&self.among, Capability::Descent),
        };
        needs.on(self.on)
    }

    fn sends(&self, width: usize) -> Sends {
        let content = match self.then {
            Then::Nothing => Content::Nothing,
            Then::Gradient(_) => Content::Gradient,
            Then::Train(_) => Content::Trained,
        };
        Sends::numbers(1).with_counts(1).model(content, width, self.then != Then::Nothing)
    }

    fn cost(&self, load: &Load) -> Cost {
        let then = match &self.then {
            Then::Nothing => Cost::default(),
            Then::Gradient(sample) => load.runs(1.0, sample),
            Then::Train(plan) => load.training(plan),
        };
        let looks = load.looks(self.among.len() as f64, 1);
        Cost { steps: then.steps, work: looks.work + then.work, numbers: looks.numbers + then.numbers }
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        context.guard.portion(self.on)?;
        let then = match &self.then {
            Then::Nothing => Then::Nothing,
            Then::Gradient(sample) => Then::Gradient(context.guard.sample(sample, false)?),
            Then::Train(plan) => Then::Train(context.guard.plan(plan)?),
        };
        let job = Job { among: &self.among, on: self.on, then: &then, slots: 1 };
        let seat = context.seat();
        let choice = context.worker.choose_for(&job, context.hint() as usize, &seat);
        context.set_hint(choice.position as u32);
        let model = self.among[choice.position];
        let mut vector = vec![0.0; if self.then == Then::Nothing { 0 } else { context.worker.width() }];
        let first_loss = match &then {
            Then::Nothing => choice.loss,
            Then::Gradient(sample) => context.worker.gradient(model, &seat, sample, &mut vector),
            Then::Train(plan) => context.worker.train(model, &seat, plan, &mut vector),
        };
        let loss = if self.among.len() == 1 { first_loss } else { choice.loss };
        let answer = Choice { place: choice.position as u32, loss };
        Ok(context.reply(answer, (self.then != Then::Nothing).then_some(vector)))
    }

    fn fault(&self) -> Option<&'static str> {
        self.among.is_empty().then_some("has no model to work with")
    }

    fn implausible(&self, reply: &Reply, least_loss: f64) -> Option<String> {
        let there = (reply.counts[0] as usize) < self.among.len();
        reply::below(&reply.numbers, least_loss)
            .or_else(|| (!there).then(|| "no choice among the models it was sent".to_string()))
    }

    fn base(&self, reply: &Reply) -> Option<usize> {
        let trained = matches!(self.then, Then::Train(_));
        reply.counts.first().and_then(|&place| self.among.get(place as usize)).copied().filter(|_| trained)
    }

    fn task(&self) -> Option<Task> {
        Some(Task { among: self.among.clone(), on: self.on, then: self.then.clone(), tells_choice: true })
    }
}
