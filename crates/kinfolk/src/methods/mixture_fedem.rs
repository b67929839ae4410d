//! FedEM with mixtures of rows in place of models (Marfoq, Neglia, Bellet, Kameni, Vidal: Federated multi-task learning under a mixture of
//! distributions, 2021): all clients have the same components, each with weights of its own.
//!
//! ```text
//! 1  for t = 1..T:
//! 2      each client: E-step at (its w, the common θ), w ← mean γ, the full M-step, send θ
//! 3      server: θ ← the plain mean of what clients sent
//! ```
//!
//! Difference from the paper: components begin at the mean of the clients' own fits, and the M-step is exact, not local
//! training.

use super::mixtures::*;
use super::*;

settings! {
    /// The settings of the method `mixture-fedem`.
    pub struct MixtureFedEmSettings {
        /// the rounds, and how components are put into one order for everybody
        common: CommonOrder,
    }
}

impl MethodSettings for MixtureFedEmSettings {
    const NAME: &str = "mixture-fedem";
    const SUMMARY: &str = "common components and weights of their own, clients' M-steps averaged";
    const PAPER: &str = "Marfoq, Neglia, Bellet, Kameni, Vidal 2021";
    const WANTS: Ability = Ability::Mixture;
    const WANTS_SINGLE: Option<&'static str> = Some("it begins with the mixtures that single clients fit");

    fn exposure(&self, _: u64, _: Ability) -> Hidable {
        self.common.exposure()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        discloses_shared(&self.common)
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        SharedComponents::ready(&setup, self.common, Place::Clients)
    }
}
