//! Oracle averaging: every client's own minimiser, averaged inside the true clusters, in one round. What one-shot
//! methods are after; nobody could run it on real clients.
//!
//! ```text
//! each client i: θ̂_i ← argmin F_i, sent
//! θ_k ← plain mean of the θ̂_i of true cluster k, sent to its clients
//! ```

use super::parts::cluster_means::ClusterMeans;
use super::*;

settings! {
    /// The settings of the method `oracle-average`.
    pub struct OracleAverageSettings {
        /// how a client finds a model of its own
        solving: Solving,
        /// how what clients send becomes one model
        aggregating: Aggregating,
    }
}

impl MethodSettings for OracleAverageSettings {
    const NAME: &str = "oracle-average";
    const SUMMARY: &str = "the clients' minimisers, averaged inside the true clusters";
    const HAS_CLUSTERS: bool = true;

    fn needs(&self) -> Needs {
        Needs { truth: true, ..self.solving.needs() }
    }

    fn exposure(&self, _: u64, ability: Ability) -> Hidable {
        self.solving.exposure(ability)
    }

    fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        vec![Disclosure {
            told: Told::Sums,
            ..self.solving.discloses(ability, Phase::Train, "the mean of the best models in each cluster")
        }]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let (clusters, solve) = (setup.true_clusters()?, self.solving.solve(&setup)?);
        Ok(Box::new(ClusterMeans::inside(clusters, solve, &self.aggregating, &setup.key)))
    }
}
