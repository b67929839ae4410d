//! The gradient of a model on a client's rows.

use super::*;
use crate::models::Step;

/// The gradient of the mean loss of one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gradient {
    /// The model.
    pub of: usize,
    /// On which rows.
    pub sample: Sample,
}

impl Telling for Gradient {
    const TELLS: Tells = Tells::numbers("its mean loss").with_vector("the gradient of its mean loss");
}

impl Kind for Gradient {
    fn needs(&self) -> Needs<'_> {
        Needs::new(std::slice::from_ref(&self.of), Capability::Gradients).on(self.sample.on)
    }

    fn sends(&self, width: usize) -> Sends {
        Sends::numbers(1).model(Content::Gradient, width, true)
    }

    fn cost(&self, load: &Load) -> Cost {
        load.runs(1.0, &self.sample)
    }

    fn step(&self) -> Option<Step<'_>> {
        let then = Cow::Owned(Then::Gradient(self.sample.clone()));
        Some(Step::Choose(Choosing { among: std::slice::from_ref(&self.of), on: Portion::All, then }))
    }
}
