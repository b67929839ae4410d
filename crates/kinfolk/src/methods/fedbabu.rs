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

use super::parts::at_home::{AtHome, rounds_at_home};
use super::*;
use crate::federation::work::{Moves, TrainingStage};

settings! {
    /// The settings of the method `fedbabu`.
    pub struct FedBabuSettings {
        /// steps of fine-tuning in the end (default: those of a round)
        tune_steps: Option<u32> [1..=1 << 31],
        /// passes over the rows of fine-tuning, instead of steps
        tune_epochs: Option<u32> [1..=1 << 31],
        /// what a client's parameters count in the mean
        weight: Weight = "rows",
        /// the label of a method above: its clusters, each from its model; left out: everybody together
        over: Option<String>,
        /// how clients train
        training: Training,
    }

    fn check(&self, check: &mut Check) {
        if self.tune_steps.is_some() && self.tune_epochs.is_some() {
            check.fault("tune_epochs", "tune_steps is given too, want one of them");
        }
    }
}

impl MethodSettings for FedBabuSettings {
    const NAME: &str = "fedbabu";
    const SUMMARY: &str = "layers below the last averaged under a fixed last one, all of them fine-tuned in the end";
    const PAPER: &str = "Oh, Kim, Yun 2022";
    const PARTICULAR: bool = true;

    fn needs(&self) -> Needs {
        Needs { over: self.over.clone(), ..self.training.needs() }
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let home = setup.model.layout().last_layer();
        let tune = self.tune_steps.map(Amount::Steps).or(self.tune_epochs.map(Amount::Epochs));
        let rounds = AtHome::new(&setup, home, "the parameters of the last layer", self.weight, self.training)?;
        Ok(Box::new(FedBabu { tune, rounds }))
    }
}

struct FedBabu {
    /// How long everything is trained in the end.
    tune: Option<Amount>,
    rounds: AtHome,
}

impl FedBabu {
    fn stages(&self, round: usize) -> Vec<TrainingStage> {
        vec![TrainingStage { plan: self.rounds.trainer.plan(round), moves: Moves::Shared }]
    }

    fn last(&self) -> Vec<TrainingStage> {
        let trainer = self.rounds.trainer.with_draws("fine-tune");
        let plan = trainer.plan(trainer.schedule.rounds - 1);
        let amount = self.tune.unwrap_or(plan.amount);
        vec![TrainingStage { plan: Plan { amount, ..plan }, moves: Moves::All }]
    }
}

rounds_at_home!(FedBabu);
