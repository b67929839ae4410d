//! Naive averaging: every client's own minimiser, averaged over everybody, in one round. What one round can do for
//! clients that are all alike, and what it does to those that are not.
//!
//! ```text
//! each client i: θ̂_i ← argmin F_i, sent
//! θ ← plain mean of the θ̂_i, sent to everybody
//! ```

use super::parts::cluster_means::ClusterMeans;
use super::*;

settings! {
    /// The settings of the method `naive-average`.
    pub struct NaiveAverageSettings {
        /// how a client finds a model of its own
        solving: Solving,
        /// how what clients send becomes one model
        aggregating: Aggregating,
    }
}

impl MethodSettings for NaiveAverageSettings {
    const NAME: &str = "naive-average";
    const SUMMARY: &str = "the clients' minimisers, averaged over everybody";

    fn needs(&self) -> Needs {
        self.solving.needs()
    }

    fn exposure(&self, _: u64, ability: Ability) -> Hidable {
        self.solving.exposure(ability)
    }

    fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        vec![Disclosure {
            told: Told::Sums,
            ..self.solving.discloses(ability, Phase::Train, "the mean of the clients' best models")
        }]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let solve = self.solving.solve(&setup)?;
        Ok(Box::new(ClusterMeans::of_all(setup.rows.len(), solve, &self.aggregating, &setup.key)))
    }
}
