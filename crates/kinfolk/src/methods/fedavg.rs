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
use crate::federation::{Ask, By, Gather, Keep, Order, Phase, Start, Work};

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
            state: State { round: 0, model: Arc::new(start), first_loss: None, absences: Absences::NONE },
        }))
    },
};

struct FedAvg {
    training: Training,
    step: f64,
    weight: Weight,
    key: Key,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    round: usize,
    model: Params,
    first_loss: Option<f64>,
    absences: Absences,
}

impl Method for FedAvg {
    fn round(&mut self, federation: &mut dyn Federation) -> Result<Progress> {
        let round = self.state.round;
        let plan = self.training.plan(&self.key, round, self.step);
        let to = self.training.participants(&self.key, round, federation);
        let answers = federation.ask(&Ask {
            phase: Phase::Train,
            models: vec![self.state.model.clone()],
            orders: vec![Order { to, work: Work::Train { from: Start::Model(0), plan, keep: Keep::No } }],
            gather: Gather::Sum { by: By::All, weight: self.weight },
        })?;
        self.training.missing.accept(&answers, federation, round)?;
        let loss = watch_loss(&answers.orders[0].losses, &mut self.state.first_loss, round)?;
        self.state.model = self.training.mean(&self.state.model, &answers.orders[0].sums[0], answers.missing.len());
        self.state.absences.count(&answers);
        self.state.round += 1;
        Ok(Progress { loss, switched: None, sizes: Vec::new(), finished: self.state.round >= self.training.rounds })
    }

    fn planned_rounds(&self) -> usize {
        self.training.rounds
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            models: vec![self.state.model.clone()],
            notes: self.state.absences.note().into_iter().collect(),
            ..Outcome::default()
        }
    }

    keep_state!();
}
