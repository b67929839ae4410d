//! FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated optimization in heterogeneous networks, 2020): FedAvg whose
//! clients do not go far from where the round began.
//!
//! ```text
//! θ ← random
//! for each round:
//!   each client in M takes local steps on f_i(w) + μ/2 ‖w − θ‖², from θ, and sends w
//!   θ ← mean of the w, weighted by rows
//! ```
//!
//! Differences from the paper: every client takes as many steps as it is told; the paper also lets slow clients take fewer.

use super::parts::cluster_models::{ClusterModels, Layer};
use super::*;

settings! {
    /// The settings of the method `fedprox`.
    pub struct FedProxSettings {
        /// how strongly a round's start pulls at a client, μ
        pull: f64 [0.0..=1e18] = 0.01,
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// what it lies over, and how clients train
        layer: Layer,
    }
}

impl MethodSettings for FedProxSettings {
    const NAME: &str = "fedprox";
    const SUMMARY: &str = "one model for everybody, by averaging that stays near its start";
    const PAPER: &str = "Li et al. 2020";

    fn needs(&self) -> Needs {
        self.layer.needs()
    }

    fn exposure(&self, pass: u64, _: Ability) -> Hidable {
        self.layer.training.schedule.exposure(pass)
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![Disclosure::sums::<Train>(Phase::Train, self.layer.training.schedule.rounds, "the mean of models")]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let base = ClusterModels::over(&setup)?;
        Ok(Box::new(FedProx { trainer: self.layer.trainer(&setup), settings: self, base }))
    }
}

struct FedProx {
    settings: FedProxSettings,
    trainer: Trainer,
    /// θ, one in every cluster.
    base: ClusterModels,
}

impl Method for FedProx {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let strength = self.settings.pull;
        let pull = |centre: usize, plan: &mut Plan| plan.terms.pulls.push(Pull { centre, strength });
        let loss = self.base.train(&self.trainer, self.settings.weight, room, pull)?;
        Ok(self.base.progress(loss, self.trainer.is_last(room)))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        self.base.outcome()
    }

    keep_state!(base);
}
