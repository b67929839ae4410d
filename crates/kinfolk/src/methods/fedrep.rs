//! FedRep (Collins, Hassani, Mokhtari, Shakkottai: Exploiting shared representations for personalized federated learning, 2021). A
//! representation for everybody, a last layer for every client; a round first fits the last layer to the representation.
//!
//! ```text
//! θ ← random, common; h_i ← random, common
//! for each round, each client in M:
//!   h_i ← local steps on f_i of the last layer alone
//!   θ_i ← local steps on f_i of the other layers alone; θ_i is sent, h_i stays
//!   θ ← mean of the θ_i, weighted by rows
//! ```
//!
//! A client is served by (θ, h_i).

use super::parts::at_home::{AtHome, AtHomeWork};
use super::parts::cluster_models::Layer;
use super::parts::training::{amount, one_amount};
use super::*;
use crate::federation::work::Moves;

settings! {
    /// The settings of the method `fedrep`.
    pub struct FedRepSettings {
        /// steps of the last layer in a round (default: as many as of the others)
        head_steps: Option<u32> [1..=1 << 31],
        /// passes over the rows for the last layer, instead of steps
        head_epochs: Option<u32> [1..=1 << 31],
        /// what a client's parameters count in the mean
        weight: Weight = "rows",
        /// what it lies over, and how clients train
        layer: Layer,
    }

    fn check(&self, check: &mut Check) {
        one_amount(check, ["head_steps", "head_epochs"]);
    }
}

impl MethodSettings for FedRepSettings {
    const NAME: &str = "fedrep";
    const SUMMARY: &str = "a representation for everybody, a last layer for every client, fitted in turns";
    const PAPER: &str = "Collins et al. 2021";
    const PARTICULAR: bool = true;

    fn needs(&self) -> Needs {
        self.layer.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        self.layer.discloses_shared()
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let home = setup.model.layout().last_layer();
        let work = AtHomeWork {
            stages: vec![(Moves::Home, amount(self.head_steps, self.head_epochs)), (Moves::Shared, None)],
            last: Vec::new(),
        };
        AtHome::method(&setup, home, "the parameters of the last layer", (self.weight, self.layer), work)
    }
}
