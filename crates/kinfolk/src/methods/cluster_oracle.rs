//! Cluster oracle: the minimiser of the pooled loss of every true cluster. What all its clients' rows together can
//! give; nobody could run it on real clients.
//!
//! ```text
//! for each true cluster k: θ_k ← argmin Σ_{i in k} n_i F_i / Σ_{i in k} n_i
//! ```
//!
//! Rows stay where they are: the server does L-BFGS on sums of the clients' gradients (`parts/pooled_search.rs`).

use super::parts::pooled_search::PooledSearch;
use super::*;

settings! {
    /// The settings of the method `cluster-oracle`.
    pub struct ClusterOracleSettings {
        /// rounds to run at most
        rounds: usize [1..=1 << 40] = 1000,
        /// how short a gradient must be in the end, as a share of the first one
        tolerance: f64 [above 0.0..1.0] = 1e-10,
        /// strength of ½·ridge·‖θ‖² added to every client's loss; where a client's classes separate, a small one is added anyway
        ridge: f64 [0.0..=1e18] = 0.0,
        /// a missing answer is asked for again, or ends the run
        missing: MissingRule ["skip", "fail"] = "skip",
    }
}

impl MethodSettings for ClusterOracleSettings {
    const NAME: &str = "cluster-oracle";
    const SUMMARY: &str = "the minimiser of the pooled loss of every true cluster";
    const HAS_CLUSTERS: bool = true;
    const SHOWS_ROWS: &str = "it searches by gradients in which single rows are not cut to a length, until they vanish";
    const WANTS_SINGLE: Option<&'static str> = Some("it weighs the losses of single clients by their rows");

    fn needs(&self) -> Needs {
        Needs { truth: true, ..Needs::only(self.missing) }
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![Disclosure::sums::<work::Gradient>(
            Phase::Train,
            self.rounds,
            "the model with the smallest loss in each cluster",
        )]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let clusters = setup.true_clusters()?;
        let search = PooledSearch::new(&clusters, &setup.common_start()?, self.ridge, self.tolerance);
        Ok(Box::new(ClusterOracle { rounds: self.rounds, clusters, search }))
    }
}

struct ClusterOracle {
    rounds: usize,
    /// The true clusters.
    clusters: Assignment,
    search: PooledSearch,
}

impl Method for ClusterOracle {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let loss = mean_loss(&self.search.advance(Phase::Train, room)?);
        let finished = self.search.is_finished() || room.round() + 1 >= self.rounds;
        Ok(Progress { loss, switched: Some(0), sizes: self.clusters.sizes(), finished })
    }

    fn planned_rounds(&self) -> usize {
        self.rounds
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            converged: self.search.has_converged(),
            notes: self.search.notes(),
            extra: BTreeMap::from([("steepness".into(), self.search.steepness())]),
            ..Outcome::of_clusters(self.search.models(), self.clusters.clone())
        }
    }

    keep_state!(search);
}
