//! A choice among models, and what follows from it, in one pass over a client's rows.

use super::*;
use crate::models::Step;

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

impl Telling for Choose {
    const TELLS: Tells = Tells::numbers("its mean loss with the model it chose")
        .with_vector("its model after local steps from there, or the gradient")
        .with_counts("which of the models it chose");
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

    fn step(&self) -> Option<Step<'_>> {
        Some(Step::Choose(Choosing { among: &self.among, on: self.on, then: Cow::Borrowed(&self.then) }))
    }

    fn hides_rows(&self) -> bool {
        let then = match &self.then {
            Then::Nothing => true,
            Then::Gradient(_) => false,
            Then::Train(plan) => plan.sample.on == Portion::All,
        };
        then && self.on == Portion::All
    }

    fn tells_choice(&self) -> bool {
        true
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
}
