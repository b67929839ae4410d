//! FedPer (Arivazhagan, Aggarwal, Singh, Choudhary: Federated learning with personalization layers, 2019). The last layer stays with
//! the client; the layers below are averaged.
//!
//! ```text
//! θ ← random, common; h_i ← random, common
//! for each round, each client in M:
//!   (θ_i, h_i) ← local steps on f_i from (θ, h_i); θ_i is sent, h_i stays
//!   θ ← mean of the θ_i, weighted by rows
//! ```
//!
//! A client is served by (θ, h_i). Unseen clients have no last layer, and are not served.

use super::parts::at_home::{AtHome, rounds_at_home};
use super::*;
use crate::federation::work::{Moves, TrainingStage};

settings! {
    /// The settings of the method `fedper`.
    pub struct FedPerSettings {
        /// what a client's parameters count in the mean
        weight: Weight = "rows",
        /// the label of a method above: its clusters, each from its model; left out: everybody together
        over: Option<String>,
        /// how clients train
        training: Training,
    }
}

impl MethodSettings for FedPerSettings {
    const NAME: &str = "fedper";
    const SUMMARY: &str = "the last layer stays with the client, the layers below are averaged";
    const PAPER: &str = "Arivazhagan et al. 2019";
    const PARTICULAR: bool = true;

    fn needs(&self) -> Needs {
        Needs { over: self.over.clone(), ..self.training.needs() }
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let home = setup.model.layout().last_layer();
        let rounds = AtHome::new(&setup, home, "the parameters of the last layer", self.weight, self.training)?;
        Ok(Box::new(FedPer { rounds }))
    }
}

struct FedPer {
    rounds: AtHome,
}

impl FedPer {
    fn stages(&self, round: usize) -> Vec<TrainingStage> {
        vec![TrainingStage { plan: self.rounds.trainer.plan(round), moves: Moves::All }]
    }

    fn last(&self) -> Vec<TrainingStage> {
        Vec::new()
    }
}

rounds_at_home!(FedPer);
