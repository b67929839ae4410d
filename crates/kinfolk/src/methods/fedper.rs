//! FedPer (Arivazhagan, Aggarwal, Singh, Choudhary: Federated learning with personalization layers, 2019). The last layer stays with
//! the client; the layers below are averaged.
//!
//! ```text
//! θ ← random, common; h_i ← random, common
//! for each round, each client in M:
//!   (θ_i, h_i) ← local steps on f_i from (θ, h_i); θ_i is sent, h_i stays
//!   θ ← mean of the θ_i, weighted by rows
//! ```
//!
//! A client is served by (θ, h_i). Unseen clients have no last layer, and are not served.

use super::parts::at_home::{AtHome, AtHomeWork};
use super::parts::cluster_models::Layer;
use super::*;
use crate::federation::work::Moves;

settings! {
    /// The settings of the method `fedper`.
    pub struct FedPerSettings {
        /// what a client's parameters count in the mean
        weight: Weight = "rows",
        /// what it lies over, and how clients train
        layer: Layer,
    }
}

impl MethodSettings for FedPerSettings {
    const NAME: &str = "fedper";
    const SUMMARY: &str = "the last layer stays with the client, the layers below are averaged";
    const PAPER: &str = "Arivazhagan et al. 2019";
    const PARTICULAR: bool = true;

    fn needs(&self) -> Needs {
        self.layer.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        self.layer.discloses_shared()
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let home = setup.model.layout().last_layer();
        let work = AtHomeWork { stages: vec![(Moves::All, None)], last: Vec::new() };
        AtHome::method(&setup, home, "the parameters of the last layer", (self.weight, self.layer), work)
    }
}
