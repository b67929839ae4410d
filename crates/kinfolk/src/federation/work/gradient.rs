//! The gradient of a model on a client's rows.

use super::*;
use crate::training::{Portion, Sample, Then};

/// The gradient of the mean loss of one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gradient {
    /// The model.
    pub of: usize,
    /// On which rows.
    pub sample: Sample,
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

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let sample = context.guard.sample(&self.sample, false)?;
        let mut vector = vec![0.0; context.worker.width()];
        let loss = context.worker.gradient(self.of, &context.seat(), &sample, &mut vector);
        Ok(context.reply(Loss(loss), Some(vector)))
    }

    fn task(&self) -> Option<Task> {
        let then = Then::Gradient(self.sample.clone());
        Some(Task { among: vec![self.of], on: Portion::All, then, tells_choice: false })
    }
}
