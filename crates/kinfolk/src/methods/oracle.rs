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

settings! {
    /// The settings of the method `oracle`.
    pub struct OracleSettings {
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// how clients train
        training: Training,
    }
}

impl MethodSettings for OracleSettings {
    const NAME: &str = "oracle";
    const SUMMARY: &str = "averaging inside the true clusters";
    const HAS_CLUSTERS: bool = true;

    fn needs(&self) -> Needs {
        Needs { truth: true, ..self.training.needs() }
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let clusters = setup.true_clusters()?;
        Ok(Box::new(Oracle {
            weight: self.weight,
            models: setup.random_models(clusters.clusters())?,
            clusters,
            trainer: self.training.trainer(&setup),
        }))
    }
}

struct Oracle {
    trainer: Trainer,
    weight: Weight,
    /// The true clusters.
    clusters: Assignment,
    models: Vec<Params>,
}

impl Method for Oracle {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let plan = self.trainer.plan(room.round());
        let asked = self.trainer.participants(room.round(), room);
        let mut ask = Ask::new(Phase::Train, self.models.clone(), Gather::Sum { by: By::All, weight: self.weight });
        let order = |cluster: usize| {
            let mut members = self.clusters.members(cluster);
            members.retain(|&client| asked.contains(client));
            ask.order(Recipients::list(members), Train::from_model(cluster, plan.clone()))
        };
        let orders: Vec<_> = (0..self.models.len()).map(order).collect();
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&answers.losses(&orders))?;
        for (cluster, (model, order)) in self.models.iter_mut().zip(&answers.orders).enumerate() {
            let unchanged = room.unchanged(absent_from(cluster, &self.clusters, &answers));
            *model = mean_model(model, &order.sums[0], unchanged);
        }
        Ok(Progress { loss, switched: Some(0), sizes: self.clusters.sizes(), finished: self.trainer.is_last(room) })
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        Outcome::of_clusters(self.models.clone(), self.clusters.clone())
    }

    keep_state!(models);
}
