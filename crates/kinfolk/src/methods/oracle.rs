//! Oracle: FedAvg inside the true clusters. Nobody could run it on real clients; it shows what perfect clustering
//! is worth.
//!
//! ```text
//! for each true cluster j: θ_j ← random
//! for each round:
//!   each client in M trains from the model of its true cluster and sends it
//!   θ_j ← mean of the models of cluster j
//! ```

use super::parts::cluster_models::ClusterModels;
use super::*;

settings! {
    /// The settings of the method `oracle`.
    pub struct OracleSettings {
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// how clients train
        training: Training,
        /// how what they send becomes one model
        aggregating: Aggregating,
    }
}

impl MethodSettings for OracleSettings {
    const NAME: &str = "oracle";
    const SUMMARY: &str = "averaging inside the true clusters";
    const HAS_CLUSTERS: bool = true;

    fn needs(&self) -> Needs {
        Needs { truth: true, ..self.training.needs() }
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![Disclosure::sums::<Train>(
            Phase::Train,
            self.training.schedule.rounds,
            "the mean of models in each cluster",
        )]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let clusters = setup.true_clusters()?;
        let models = setup.random_models(clusters.clusters())?;
        let base = ClusterModels::new(clusters, models);
        Ok(Box::new(Oracle {
            weight: self.weight,
            base,
            trainer: self.training.trainer(&setup).aggregating(&self.aggregating),
        }))
    }
}

struct Oracle {
    trainer: Trainer,
    weight: Weight,
    /// The true clusters, and θ_j.
    base: ClusterModels,
}

impl Method for Oracle {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let loss = self.base.train(&self.trainer, self.weight, room, |_, _| {})?;
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
