//! FedGMM with mixtures of rows alone, without a model beside them (Wu, Zhang, Yang, Yu, Zhang, Wang: Personalized federated learning under mixture of joint distributions, 2023):
//! all clients have the same components, each with weights of its own, and the M-step is made from everybody's rows.
//!
//! ```text
//! 1  for t = 1..T:
//! 2      each client: E-step at (its w, the common θ and Σ), w ← mean γ, send Σγ, Σγx, Σγxxᵀ
//! 3      server: θ and Σ that maximise, from the sums
//! ```
//!
//! Difference from the paper: for regressions the distribution of the features is taken to be one and the same normal
//! distribution for all clients and components, which then drops out of the posteriors.

use super::mixtures::*;
use super::*;

settings! {
    /// The settings of the method `mixture-fedgmm`.
    pub struct MixtureFedGmmSettings {
        /// the rounds, and how components are put into one order for everybody
        common: CommonOrder,
    }
}

impl MethodSettings for MixtureFedGmmSettings {
    const NAME: &str = "mixture-fedgmm";
    const SUMMARY: &str = "common components and weights of their own, one M-step from everybody's sums";
    const PAPER: &str = "Wu, Zhang, Yang, Yu, Zhang, Wang 2023";
    const WANTS: Ability = Ability::Mixture;
    const WANTS_SINGLE: Option<&'static str> = Some("it begins with the mixtures that single clients fit");

    fn exposure(&self, _: u64, _: Ability) -> Hidable {
        self.common.exposure()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        discloses_shared(&self.common)
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        SharedComponents::ready(&setup, self.common, Place::Server)
    }
}
