//! The mean loss of models on a client's rows.

use super::*;
use crate::models::Step;

/// The mean loss of each of these models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// The models.
    pub of: Vec<usize>,
    /// On which rows.
    pub on: Portion,
}

impl Telling for Losses {
    const TELLS: Tells = Tells::numbers("its mean loss with each model it is sent");
}

impl Kind for Losses {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&self.of, Capability::Any).on(self.on)
    }

    fn sends(&self, _: usize) -> Sends {
        Sends::numbers(self.of.len())
    }

    fn cost(&self, load: &Load) -> Cost {
        load.looks(self.of.len() as f64, self.of.len())
    }

    fn step(&self) -> Option<Step<'_>> {
        Some(Step::Losses { of: &self.of, on: self.on })
    }

    fn fault(&self) -> Option<&'static str> {
        self.of.is_empty().then_some("has no model to work with")
    }

    fn loss(&self, reply: &Reply) -> Option<f64> {
        reply::best(&reply.numbers)
    }
}
