//! LG-FedAvg (Liang, Liu, Ziyin, Salakhutdinov, Morency: Think locally, act globally, 2020). The layers below stay with the client, which
//! learns a representation of its own; the last layer is averaged.
//!
//! ```text
//! θ_i ← random, common; h ← random, common
//! for each round, each client in M:
//!   (θ_i, h_i) ← local steps on f_i from (θ_i, h); h_i is sent, θ_i stays
//!   h ← mean of the h_i, weighted by rows
//! ```
//!
//! A client is served by (θ_i, h). Differences from the paper: it begins from models trained by FedAvg; name one with `over` for that.

use super::parts::at_home::{AtHome, rounds_at_home};
use super::*;
use crate::federation::work::{Moves, TrainingStage};

settings! {
    /// The settings of the method `lg-fedavg`.
    pub struct LgFedAvgSettings {
        /// what a client's parameters count in the mean
        weight: Weight = "rows",
        /// the label of a method above: its clusters, each from its model; left out: everybody together
        over: Option<String>,
        /// how clients train
        training: Training,
    }
}

impl MethodSettings for LgFedAvgSettings {
    const NAME: &str = "lg-fedavg";
    const SUMMARY: &str = "every client a representation of its own, the last layer averaged";
    const PAPER: &str = "Liang et al. 2020";
    const PARTICULAR: bool = true;

    fn needs(&self) -> Needs {
        Needs { over: self.over.clone(), ..self.training.needs() }
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let layout = setup.model.layout();
        let home = crate::federation::work::between(&layout.last_layer(), layout.len());
        let rounds = AtHome::new(&setup, home, "all layers but the last", self.weight, self.training)?;
        Ok(Box::new(LgFedAvg { rounds }))
    }
}

struct LgFedAvg {
    rounds: AtHome,
}

impl LgFedAvg {
    fn stages(&self, round: usize) -> Vec<TrainingStage> {
        vec![TrainingStage { plan: self.rounds.trainer.plan(round), moves: Moves::All }]
    }

    fn last(&self) -> Vec<TrainingStage> {
        Vec::new()
    }
}

rounds_at_home!(LgFedAvg);
