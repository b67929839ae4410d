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

pub(super) static KIND: MethodKind = MethodKind {
    name: "fedavg",
    summary: "one model for everybody, by averaging",
    paper: "McMahan et al. 2017",
    settings: training_settings!(
        STEP,
        Setting::new(
            "weight",
            Kind::OneOf(WEIGHT),
            Default::Is("\"rows\""),
            "what a client's model counts in the mean"
        ),
    ),
    needs_truth: |_| false,
    has_clusters: false,
    wants: Ability::Descent,
    check: check_training,
    build: |setup| {
        let start = setup.model.common_start(&mut setup.key.clone().word("start").number(0).number(0).rng())?;
        Ok(Box::new(FedAvg {
            training: Training::of(setup.settings),
            step: setup.steps()[0],
            weight: weight_of(setup.settings),
            key: setup.key,
            model: Arc::new(start),
        }))
    },
};

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
