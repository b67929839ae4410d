//! FedEM (Marfoq, Neglia, Bellet, Kameni, Vidal: Federated multi-task learning under a mixture of distributions, 2021). Every client's
//! rows come from the same few kinds, in shares of its own; the models of the kinds are learned together. (`mixture-fedem` fits mixtures
//! of rows without a target.)
//!
//! ```text
//! θ_1 … θ_K ← random, π_i ← uniform
//! for each round, each client i in M:
//!   q_k(x, y) ← π_ik e^(−loss of θ_k at (x, y)), made to sum to 1 over k, for each of its rows        E-step
//!   π_ik ← mean of q_k over its rows
//!   θ_ik ← local steps on Σ q_k(x, y) · loss from θ_k, sent                                        M-step
//!   θ_k ← mean of the θ_ik, weighted by rows
//! ```
//!
//! A client is served by Σ_k π_ik p_k(y|x). Its cluster, in tables, is the model with its largest share. Differences from the paper: for
//! targets that are numbers the loss is a squared error, so that a likelihood of variance ½ is meant.

use super::parts::supervised_mixture::{Components, SupervisedMixture};
use super::*;

settings! {
    /// The settings of the method `fedem-soft`.
    pub struct FedEmSoftSettings {
        /// the models, and how they are trained
        components: Components,
    }
}

impl MethodSettings for FedEmSoftSettings {
    const NAME: &str = "fedem-soft";
    const SUMMARY: &str = "every client a mixture of the same models, in shares of its own";
    const PAPER: &str = "Marfoq et al. 2021";
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
        Ok(Box::new(SupervisedMixture::new(&setup, self.components, false)?))
    }
}
