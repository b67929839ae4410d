//! Naive averaging: every client's own minimiser, averaged over everybody, in one round. What one round can do for
//! clients that are all alike, and what it does to those that are not.
//!
//! ```text
//! each client i: θ̂_i ← argmin F_i, sent
//! θ ← plain mean of the θ̂_i, sent to everybody
//! ```

use super::odcl::Solving;
use super::oracle_average::GroupMeans;
use super::*;

settings! {
    pub(super) struct NaiveAverageSettings {
        solving: Solving,
    }
}

impl MethodSettings for NaiveAverageSettings {
    const NAME: &str = "naive-average";
    const SUMMARY: &str = "the clients' minimisers, averaged over everybody";
    const PAPER: &str = "baseline";

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        Ok(Box::new(GroupMeans::new(&setup, &self.solving, None)?))
    }
}
