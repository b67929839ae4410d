//! FedBN (Li, Jiang, Zhang, Kamp, Dou: FedBN: federated learning on non-IID features via local batch normalization, 2021). What
//! normalises stays with the client: its columns may be scaled and shifted in a way of their own.
//!
//! ```text
//! θ ← random, common; b_i ← the scales, shifts and statistics of normalisation
//! for each round, each client in M:
//!   (θ_i, b_i) ← local steps on f_i from (θ, b_i); θ_i is sent, b_i stays
//!   θ ← mean of the θ_i, weighted by rows
//! ```
//!
//! A client is served by (θ, b_i). It wants a model that normalises (`cnn` or `resnet9` with a `norm`); group normalisation has no
//! statistics, and keeps its scales and shifts at home.

use super::parts::at_home::{AtHome, AtHomeWork};
use super::parts::cluster_models::Layer;
use super::*;
use crate::federation::work::Moves;

settings! {
    /// The settings of the method `fedbn`.
    pub struct FedBnSettings {
        /// what a client's parameters count in the mean
        weight: Weight = "rows",
        /// what it lies over, and how clients train
        layer: Layer,
    }
}

impl MethodSettings for FedBnSettings {
    const NAME: &str = "fedbn";
    const SUMMARY: &str = "normalisation stays with the client, all else is averaged";
    const PAPER: &str = "Li et al. 2021";
    const PARTICULAR: bool = true;

    fn needs(&self) -> Needs {
        self.layer.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        self.layer.discloses_shared()
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let home = setup.model.layout().normalisation();
        let work = AtHomeWork { stages: vec![(Moves::All, None)], last: Vec::new() };
        AtHome::method(&setup, home, "the parameters of normalisation", (self.weight, self.layer), work)
    }
}
