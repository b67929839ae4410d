//! FedRC (Guo, Tang, Lin: FedRC: tackling diverse distribution shifts challenge in federated learning by robust clustering, 2024). A
//! mixture of supervised models like FedEM, whose kinds differ in what y does given x, and not in which classes are frequent: a row
//! counts for a model by p(y|x)/p(y).
//!
//! ```text
//! θ_1 … θ_K ← random, π_i ← uniform
//! for each round, each client i in M:
//!   q_k(x, y) ← π_ik e^(−loss of θ_k at (x, y)) / C_k(y), made to sum to 1 over k, for each of its rows
//!   π_ik ← mean of q_k over its rows
//!   θ_ik ← local steps on Σ q_k(x, y) · loss from θ_k, sent, with the sums of q_k over the rows of every class
//!   θ_k ← mean of the θ_ik, weighted by rows;  C_k(y) ← share of class y in the sum of all q_k
//! ```
//!
//! A client is served by Σ_k π_ik p_k(y|x). It is for classes. Differences from the paper: C_k is that of the clients asked in the last
//! round, and uniform in the first.

use super::parts::supervised_mixture::{Components, SupervisedMixture};
use super::*;

settings! {
    /// The settings of the method `fedrc`.
    pub struct FedRcSettings {
        /// the models, and how they are trained
        components: Components,
    }
}

impl MethodSettings for FedRcSettings {
    const NAME: &str = "fedrc";
    const SUMMARY: &str = "a mixture of models that differ in what y does given x, whatever classes are frequent";
    const PAPER: &str = "Guo, Tang, Lin 2024";
    const PARTICULAR: bool = true;
    const HAS_CLUSTERS: bool = true;
    const WANTS: Ability = Ability::Rows;
    const WANTS_SINGLE: Option<&'static str> = Some("it has every client's shares of the models");

    fn needs(&self) -> Needs {
        self.components.training.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![Disclosure::sums::<work::TrainMixed>(
            Phase::Train,
            self.components.training.schedule.rounds,
            "the mean of the models of each component",
        )]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        if setup.model.classes() == 0 {
            let fault = format!("{}: it weighs rows by their classes; the target is a number", setup.place);
            return Err(Error::settings(fault).hint("use fedem-soft for numbers"));
        }
        Ok(Box::new(SupervisedMixture::new(&setup, self.components, true)?))
    }
}
