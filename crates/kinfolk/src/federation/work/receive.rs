//! Models that a method hands to its clients.

use super::{Capability, Cost, ClientContext, Duty, FewestRows, Kind, Load, Needs, Reply, Sends, Work};
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// Take these models, with which the method serves the client from now on; nothing comes back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receive {
    /// One model, or several to choose from by their loss.
    pub models: Vec<usize>,
}

impl Kind for Receive {
    type Answer = ();
}

impl Duty for Receive {
    fn name(&self) -> &'static str {
        "receive"
    }

    fn needs(&self) -> Needs<'_> {
        Needs::new(&self.models, Capability::Any)
    }

    fn sends(&self, _: usize) -> Sends {
        Sends::numbers(0)
    }

    fn restrict(&self, _: &FewestRows) -> Result<Option<Work>> {
        Ok(None)
    }

    fn cost(&self, _: &Load) -> Cost {
        Cost::default()
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        Ok(context.reply((), None))
    }
}
