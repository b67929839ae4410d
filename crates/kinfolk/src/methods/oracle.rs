//! Oracle: FedAvg inside the true clusters. Nobody could run it on real clients; it shows what perfect clustering
//! is worth.
//!
//! ```text
//! for each true cluster j: θ_j ← random
//! for each round:
//!   each client in M trains from the model of its true cluster and sends it
//!   θ_j ← mean of the models of cluster j
//! ```

use super::*;
use crate::federation::{Ask, By, Gather, Keep, Order, Phase, Start, Work};

pub(super) static KIND: MethodKind = MethodKind {
    name: "oracle",
    summary: "averaging inside the true clusters",
    paper: "baseline",
    settings: training_settings!(
        STEP,
        Setting::new(
            "weight",
            Kind::OneOf(WEIGHT),
            Default::Is("\"rows\""),
            "what a client's model counts in the mean"
        ),
    ),
    needs_truth: |_| true,
    has_clusters: true,
    wants: Ability::Descent,
    check: check_training,
    build: |setup| {
        let truth = setup.true_clusters()?;
        let clusters = truth.iter().max().map_or(0, |last| last + 1);
        let start = |cluster: usize| {
            let key = setup.key.clone().word("start").number(0).number(cluster as u64);
            setup.model.initialise(&mut key.rng()).map(Arc::new)
        };
        Ok(Box::new(Oracle {
            training: Training::of(setup.settings),
            step: setup.steps()[0],
            weight: weight_of(setup.settings),
            truth: truth.to_vec(),
            state: State {
                round: 0,
                models: (0..clusters).map(start).collect::<Result<_>>()?,
                first_loss: None,
                absences: Absences::NONE,
            },
            key: setup.key,
        }))
    },
};

struct Oracle {
    training: Training,
    step: f64,
    weight: Weight,
    truth: Vec<usize>,
    key: Key,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    round: usize,
    models: Vec<Params>,
    first_loss: Option<f64>,
    absences: Absences,
}

impl Oracle {
    fn members(&self, cluster: usize, among: &Recipients) -> Vec<u32> {
        let member = |client: &u32| self.truth[*client as usize] == cluster && among.contains(*client);
        (0..self.truth.len() as u32).filter(member).collect()
    }
}

impl Method for Oracle {
    fn round(&mut self, federation: &mut dyn Federation) -> Result<Progress> {
        let round = self.state.round;
        let plan = self.training.plan(&self.key, round, self.step);
        let asked = self.training.participants(&self.key, round, federation);
        let order = |cluster: usize| Order {
            to: Recipients::list(self.members(cluster, &asked)),
            work: Work::Train { from: Start::Model(cluster), plan: plan.clone(), keep: Keep::No },
        };
        let answers = federation.ask(&Ask {
            phase: Phase::Train,
            models: self.state.models.clone(),
            orders: (0..self.state.models.len()).map(order).collect(),
            gather: Gather::Sum { by: By::All, weight: self.weight },
        })?;
        self.training.missing.accept(&answers, federation, round)?;
        let losses: Vec<f64> = answers.orders.iter().flat_map(|order| order.losses.iter().copied()).collect();
        let loss = watch_loss(&losses, &mut self.state.first_loss, round)?;
        for (cluster, order) in answers.orders.iter().enumerate() {
            let absent =
                answers.missing.iter().filter(|missing| self.truth[missing.client as usize] == cluster).count();
            self.state.models[cluster] = self.training.mean(&self.state.models[cluster], &order.sums[0], absent);
        }
        self.state.absences.count(&answers);
        self.state.round += 1;
        let sizes = (0..self.state.models.len()).map(|cluster| self.members(cluster, &Recipients::All).len()).collect();
        Ok(Progress { loss, switched: Some(0), sizes, finished: self.state.round >= self.training.rounds })
    }

    fn planned_rounds(&self) -> usize {
        self.training.rounds
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            models: self.state.models.clone(),
            clustered: true,
            serving: Serving::Given(self.truth.iter().copied().map(Some).collect()),
            notes: self.state.absences.note().into_iter().collect(),
            ..Outcome::default()
        }
    }

    keep_state!();
}
