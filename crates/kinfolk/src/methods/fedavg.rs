//! FedAvg: one model for everybody (McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-efficient
//! learning of deep networks from decentralized data, 2017). The global baseline of every clustered method.
//!
//! ```text
//! θ ← random
//! for each round:
//!   M ← some clients
//!   each client in M trains from θ and sends its model
//!   θ ← mean of the models, weighted by rows
//! ```
//!
//! Differences from the paper: full batches by default; `weight = "uniform"` gives the plain mean.

use super::*;
use crate::federation::work::Train;

settings! {
    pub(super) struct FedAvgSettings {
        /// step size; auto is safe on this data for full batches of a linear model, 0.1 for a network, 0.01 for adam
        step: Auto<f64> [above 0.0] = "auto",
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        training: Training,
    }
}

impl MethodSettings for FedAvgSettings {
    const NAME: &str = "fedavg";
    const SUMMARY: &str = "one model for everybody, by averaging";
    const PAPER: &str = "McMahan et al. 2017";

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let start = setup.model.common_start(&mut setup.key.clone().word("start").number(0).number(0).rng())?;
        Ok(Box::new(FedAvg {
            step: setup.step(self.step),
            weight: self.weight,
            training: self.training,
            key: setup.key,
            model: Arc::new(start),
        }))
    }
}

struct FedAvg {
    training: Training,
    step: f64,
    weight: Weight,
    key: Key,
    model: Params,
}

impl Method for FedAvg {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let gather = Gather::Sum { by: By::All, weight: self.weight };
        let mut ask = Ask::new(Phase::Train, vec![self.model.clone()], gather);
        let plan = self.training.plan(&self.key, room.round(), self.step);
        let order = ask.order(self.training.participants(&self.key, room.round(), room), Train::from_model(0, plan));
        let answers = room.ask(&ask)?;
        let trained = answers.of(order);
        self.model = self.training.mean(&self.model, &trained.sums[0], answers.missing.len());
        Ok(Progress::of(room.watch(&trained.losses())?, room.round() + 1 >= self.training.rounds))
    }

    fn planned_rounds(&self) -> usize {
        self.training.rounds
    }

    fn outcome(&self) -> Outcome {
        Outcome { models: vec![self.model.clone()], ..Outcome::default() }
    }

    keep_state!(model);
}
