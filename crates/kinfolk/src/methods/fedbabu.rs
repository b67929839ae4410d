//! FedBABU (Oh, Kim, Yun: FedBABU: toward enhanced representation for federated image classification, 2022). The last layer stays as
//! it was drawn while the layers below are averaged; in the end every client trains all of them on its own rows.
//!
//! ```text
//! θ ← random, common; h ← random, common, and never trained
//! for each round, each client in M:
//!   θ_i ← local steps on f_i from θ with h as it is; sent
//!   θ ← mean of the θ_i, weighted by rows
//! in the end each client: (θ_i, h_i) ← local steps on f_i from (θ, h), kept
//! ```
//!
//! A client is served by (θ_i, h_i).

use super::parts::at_home::{AtHome, AtHomeWork};
use super::parts::cluster_models::Layer;
use super::parts::training::{amount, one_amount};
use super::*;
use crate::federation::work::Moves;

settings! {
    /// The settings of the method `fedbabu`.
    pub struct FedBabuSettings {
        /// steps of fine-tuning in the end (default: those of a round)
        tune_steps: Option<u32> [1..=1 << 31],
        /// passes over the rows of fine-tuning, instead of steps
        tune_epochs: Option<u32> [1..=1 << 31],
        /// what a client's parameters count in the mean
        weight: Weight = "rows",
        /// what it lies over, and how clients train
        layer: Layer,
    }

    fn check(&self, check: &mut Check) {
        one_amount(check, ["tune_steps", "tune_epochs"]);
    }
}

impl MethodSettings for FedBabuSettings {
    const NAME: &str = "fedbabu";
    const SUMMARY: &str = "layers below the last averaged under a fixed last one, all of them fine-tuned in the end";
    const PAPER: &str = "Oh, Kim, Yun 2022";
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
            stages: vec![(Moves::Shared, None)],
            last: vec![(Moves::All, amount(self.tune_steps, self.tune_epochs))],
        };
        AtHome::method(&setup, home, "the parameters of the last layer", (self.weight, self.layer), work)
    }
}
