//! EM on all rows of all clients as if they lay in one place, from sums of the clients' E-steps: rows stay where they are.
//!
//! ```text
//! 1  for t = 1..T:
//! 2      each client: Σγ, Σγx (and Σγxxᵀ) at the common parameters
//! 3      server: the M-step from their sums
//! ```
//!
//! It begins at the mean of the clients' fits, or at the fit of one of five of them, whichever makes all rows likeliest.

use super::mixtures::*;
use super::*;

settings! {
    /// The settings of the method `pooled-em`.
    pub struct PooledEmSettings {
        /// the rounds, and how components are put into one order for everybody
        common: CommonOrder,
    }
}

impl MethodSettings for PooledEmSettings {
    const NAME: &str = "pooled-em";
    const SUMMARY: &str = "EM for one mixture on everybody's rows together";
    const WANTS: Ability = Ability::Mixture;
    const WANTS_SINGLE: Option<&'static str> = Some("it begins with the mixtures that single clients fit");

    fn exposure(&self, _: u64, _: Ability) -> Hidable {
        self.common.exposure()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        discloses_pooled(&self.common)
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        Pooled::ready(&setup, self.common, None)
    }
}
