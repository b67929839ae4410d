//! LG-FedAvg (Liang, Liu, Ziyin, Salakhutdinov, Morency: Think locally, act globally, 2020). The layers below stay with the client, which
//! learns a representation of its own; the last layer is averaged.
//!
//! ```text
//! θ_i ← random, common; h ← random, common
//! for each round, each client in M:
//!   (θ_i, h_i) ← local steps on f_i from (θ_i, h); h_i is sent, θ_i stays
//!   h ← mean of the h_i, weighted by rows
//! ```
//!
//! A client is served by (θ_i, h). Differences from the paper: it begins from models trained by FedAvg; name one with `over` for that.

use super::parts::at_home::{AtHome, AtHomeWork};
use super::parts::cluster_models::Layer;
use super::*;
use crate::federation::work::{Moves, between};

settings! {
    /// The settings of the method `lg-fedavg`.
    pub struct LgFedAvgSettings {
        /// what a client's parameters count in the mean
        weight: Weight = "rows",
        /// what it lies over, and how clients train
        layer: Layer,
    }
}

impl MethodSettings for LgFedAvgSettings {
    const NAME: &str = "lg-fedavg";
    const SUMMARY: &str = "every client a representation of its own, the last layer averaged";
    const PAPER: &str = "Liang et al. 2020";
    const PARTICULAR: bool = true;

    fn needs(&self) -> Needs {
        self.layer.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        self.layer.discloses_shared()
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let layout = setup.model.layout();
        let home = between(&layout.last_layer(), layout.len());
        let work = AtHomeWork { stages: vec![(Moves::All, None)], last: Vec::new() };
        AtHome::method(&setup, home, "all layers but the last", (self.weight, self.layer), work)
    }
}
