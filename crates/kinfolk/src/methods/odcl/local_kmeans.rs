//! Local-KMeans: k-means on what clients learnt alone, and the mean of every cluster's models (a baseline of Vardhan, Ghosh,
//! Mazumdar 2024). It is ODCL with k-means whose clients take steps from one common model.
//!
//! ```text
//! 1  each client i: w_i ← local steps from w_0, sent
//! 2  C_1 … C_K ← k-means of the w_i
//! 3  ω_k ← mean of the w_i in C_k
//! ```
//!
//! `start = "own"` lets every client begin at a random model of its own. For networks that shows why the common start
//! matters: the same function has many parameter vectors, and neither distances nor means of them say anything.

use super::*;
use crate::methods::parts::solving::one_plan;
use crate::methods::parts::training::{Optimising, StartModel};

settings! {
    /// The settings of the method `local-kmeans`.
    pub struct LocalKmeansSettings {
        /// how many clusters
        clusters: usize [1..=1 << 20],
        /// starts of k-means
        starts: usize [1..=1 << 16] = 10,
        /// whether clients begin at one common model, or each at a random one
        start: StartModel ["common", "own"] = "common",
        /// steps a client takes
        steps: u32 [1..=1 << 31] = 250,
        /// step size; auto is safe on this data for full batches of a linear model, 0.1 for a network, 0.01 for adam
        step: Auto<f64> [above 0.0] = "auto",
        /// rows in a step (default all)
        batch: Option<u32> [1..=1 << 31],
        /// how gradients become steps
        optimising: Optimising,
        /// a missing answer is left out, or ends the run
        missing: MissingRule ["skip", "fail"] = "skip",
    }
}

impl MethodSettings for LocalKmeansSettings {
    const NAME: &str = "local-kmeans";
    const SUMMARY: &str = "one round: k-means of the clients' own models, average inside";
    const PAPER: &str = "Vardhan, Ghosh, Mazumdar 2024";
    const HAS_CLUSTERS: bool = true;
    const WANTS_SINGLE: Option<&'static str> = Some("it clusters the clients' own models, which come one by one");

    fn needs(&self) -> Needs {
        let auto_step = AutoStep::unless_given(&self.step, self.optimising.optimiser());
        Needs { auto_step, ..Needs::only(self.missing) }
    }

    fn exposure(&self, _: u64, _: Ability) -> Hidable {
        Ok(Exposure { steps: u64::from(self.steps), ..Exposure::default() })
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![Disclosure::single::<Train>(Phase::Train, 1, "clusters of the clients' own models, and their means")]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        setup.want_clients("clusters", self.clusters)?;
        let optimiser = self.optimising.optimiser();
        let step = setup.step(self.step, optimiser);
        let plan = one_plan(&setup, self.batch, Amount::Steps(self.steps), step, optimiser);
        let solve = match self.start {
            StartModel::Common => Solve::from_common(&setup, plan)?,
            StartModel::Own => {
                let from = Start::Fresh { seed: setup.key.clone().word("start").seed() };
                Solve::Steps { from, sent: Vec::new(), plan }
            }
        };
        let key = setup.key.clone().word("clustering");
        let request = Request::new(Algorithm::KMeans, Some(self.clusters), key);
        Ok(Box::new(Odcl::new(solve, Request { starts: self.starts, ..request }, None)))
    }
}
