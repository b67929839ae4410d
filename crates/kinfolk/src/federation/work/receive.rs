//! Models that a method hands to its clients.

use super::*;

/// Receive the models that serve the client from now on; nothing comes back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receive {
    /// One model, or several to choose from by their loss.
    pub(crate) models: Vec<usize>,
    /// Keep the first as the client's own model.
    pub(crate) keep: bool,
}

impl Telling for Receive {
    const TELLS: Tells = Tells::NOTHING;
}

impl Kind for Receive {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&self.models, Capability::Any).keeping(self.keep)
    }

    fn sends(&self, _: usize) -> Sends {
        Sends::numbers(0)
    }

    fn cost(&self, _: &Load) -> Cost {
        Cost::default()
    }

    fn hides_rows(&self) -> bool {
        true
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        if let Some(&first) = self.models.first().filter(|_| self.keep) {
            context.keep(&[], context.models[first].clone())?;
        }
        Ok(context.reply((), None))
    }
}
