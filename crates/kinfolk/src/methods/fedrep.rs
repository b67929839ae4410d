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

use super::parts::at_home::{AtHome, rounds_at_home};
use super::*;
use crate::federation::work::{Moves, TrainingStage};

settings! {
    /// The settings of the method `fedrep`.
    pub struct FedRepSettings {
        /// steps of the last layer in a round (default: as many as of the others)
        head_steps: Option<u32> [1..=1 << 31],
        /// passes over the rows for the last layer, instead of steps
        head_epochs: Option<u32> [1..=1 << 31],
        /// what a client's parameters count in the mean
        weight: Weight = "rows",
        /// the label of a method above: its clusters, each from its model; left out: everybody together
        over: Option<String>,
        /// how clients train
        training: Training,
    }

    fn check(&self, check: &mut Check) {
        if self.head_steps.is_some() && self.head_epochs.is_some() {
            check.fault("head_epochs", "head_steps is given too, want one of them");
        }
    }
}

impl MethodSettings for FedRepSettings {
    const NAME: &str = "fedrep";
    const SUMMARY: &str = "a representation for everybody, a last layer for every client, fitted in turns";
    const PAPER: &str = "Collins et al. 2021";
    const PARTICULAR: bool = true;

    fn needs(&self) -> Needs {
        Needs { over: self.over.clone(), ..self.training.needs() }
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let home = setup.model.layout().last_layer();
        let head = self.head_steps.map(Amount::Steps).or(self.head_epochs.map(Amount::Epochs));
        let rounds = AtHome::new(&setup, home, "the parameters of the last layer", self.weight, self.training)?;
        Ok(Box::new(FedRep { head, rounds }))
    }
}

struct FedRep {
    /// How long the last layer is trained.
    head: Option<Amount>,
    rounds: AtHome,
}

impl FedRep {
    fn stages(&self, round: usize) -> Vec<TrainingStage> {
        let trainer = &self.rounds.trainer;
        let mut head = trainer.with_draws("head").plan(round);
        head.amount = self.head.unwrap_or(head.amount);
        let body = TrainingStage { plan: trainer.plan(round), moves: Moves::Shared };
        vec![TrainingStage { plan: head, moves: Moves::Home }, body]
    }

    fn last(&self) -> Vec<TrainingStage> {
        Vec::new()
    }
}

rounds_at_home!(FedRep);
