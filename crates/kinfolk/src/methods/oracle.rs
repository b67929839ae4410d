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
use crate::federation::work::Train;

settings! {
    pub(super) struct OracleSettings {
        /// step size; auto is safe on this data for full batches of a linear model, 0.1 for a network, 0.01 for adam
        step: Auto<f64> [above 0.0] = "auto",
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        training: Training,
    }
}

impl MethodSettings for OracleSettings {
    const NAME: &str = "oracle";
    const SUMMARY: &str = "averaging inside the true clusters";
    const PAPER: &str = "baseline";
    const HAS_CLUSTERS: bool = true;

    fn needs_truth(&self) -> bool {
        true
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let truth = setup.true_clusters()?;
        let clusters = truth.iter().max().map_or(0, |last| last + 1);
        let start = |cluster: usize| {
            let key = setup.key.clone().word("start").number(0).number(cluster as u64);
            setup.model.initialise(&mut key.rng()).map(Arc::new)
        };
        Ok(Box::new(Oracle {
            training: self.training,
            step: setup.step(self.step),
            weight: self.weight,
            truth: truth.to_vec(),
            models: (0..clusters).map(start).collect::<Result<_>>()?,
            key: setup.key,
        }))
    }
}

struct Oracle {
    training: Training,
    step: f64,
    weight: Weight,
    truth: Vec<usize>,
    key: Key,
    models: Vec<Params>,
}

impl Oracle {
    fn members(&self, cluster: usize, among: &Recipients) -> Vec<u32> {
        let member = |client: &u32| self.truth[*client as usize] == cluster && among.contains(*client);
        (0..self.truth.len() as u32).filter(member).collect()
    }
}

impl Method for Oracle {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let plan = self.training.plan(&self.key, room.round(), self.step);
        let asked = self.training.participants(&self.key, room.round(), room);
        let gather = Gather::Sum { by: By::All, weight: self.weight };
        let mut ask = Ask::new(Phase::Train, self.models.clone(), gather);
        let clusters = 0..self.models.len();
        let order = |cluster: usize| {
            let members = Recipients::list(self.members(cluster, &asked));
            ask.order(members, Train::from_model(cluster, plan.clone()))
        };
        let orders: Vec<_> = clusters.clone().map(order).collect();
        let answers = room.ask(&ask)?;
        let loss = room.watch(&answers.losses(&orders))?;
        for (cluster, &order) in orders.iter().enumerate() {
            let absent =
                answers.missing.iter().filter(|missing| self.truth[missing.client as usize] == cluster).count();
            self.models[cluster] = self.training.mean(&self.models[cluster], &answers.of(order).sums[0], absent);
        }
        let sizes = clusters.map(|cluster| self.members(cluster, &Recipients::All).len()).collect();
        Ok(Progress { loss, switched: Some(0), sizes, finished: room.round() + 1 >= self.training.rounds })
    }

    fn planned_rounds(&self) -> usize {
        self.training.rounds
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            models: self.models.clone(),
            clustered: true,
            serving: Serving::Given(self.truth.iter().copied().map(Some).collect()),
            ..Outcome::default()
        }
    }

    keep_state!(models);
}
