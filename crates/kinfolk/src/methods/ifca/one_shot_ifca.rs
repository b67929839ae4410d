//! ONE_SHOT-IFCA: IFCA that begins with the clusters ONE_SHOT finds (Vardhan, Ghosh, Mazumdar 2024, a baseline there). It
//! needs no number of clusters and no luck, but clusters can only swap clients afterwards: none is merged or ended.
//!
//! ```text
//! 1  C_0 ← ONE_SHOT(λ, t)                                            `parts/one_shot.rs`
//! 2  θ_c ← mean of the w_i of cluster c
//! 3  IFCA from these models                                          `ifca/mod.rs`
//! ```

use super::*;
use crate::methods::parts::one_shot::{BottomUp, FirstClusters, OneShot};

settings! {
    /// The settings of the method `one-shot-ifca`.
    pub struct OneShotIfcaSettings {
        /// what a client's model counts in the mean
        weight: Weight = "uniform",
        /// how clusters are built from single clients
        bottom_up: BottomUp,
        /// how what clients send becomes one model
        aggregating: Aggregating,
    }
}

impl MethodSettings for OneShotIfcaSettings {
    const NAME: &str = "one-shot-ifca";
    const SUMMARY: &str = "IFCA that begins with clusters of clients that learn alike";
    const PAPER: &str = "Vardhan, Ghosh, Mazumdar 2024";
    const HAS_CLUSTERS: bool = true;
    const WANTS_SINGLE: Option<&'static str> = Some("it compares the clients' own models");

    fn needs(&self) -> Needs {
        self.bottom_up.training.needs()
    }

    fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        let (mut all, rounds) = (self.bottom_up.discloses(ability), self.bottom_up.training.schedule.rounds);
        all.push(Disclosure::sums::<Choose>(Phase::Train, rounds, "clusters, and the mean of models in each"));
        all
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let one_shot = OneShot::new(&setup, self.bottom_up)?;
        let ifca = Ifca::from_models(&setup, one_shot.trainer.clone().aggregating(&self.aggregating), self.weight);
        Ok(Box::new(OneShotIfca { one_shot, ifca, first: None }))
    }
}

struct OneShotIfca {
    one_shot: OneShot,
    ifca: Ifca,
    /// C_0; without the local models once IFCA has begun.
    first: Option<FirstClusters>,
}

impl Method for OneShotIfca {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        if let Some(first) = &mut self.first {
            first.models.clear();
            return self.ifca.round(room);
        }
        let first = self.first.insert(self.one_shot.run(room)?);
        self.ifca.state.lanes[0].begin(first.means());
        Ok(first.progress())
    }

    fn planned_rounds(&self) -> usize {
        1 + self.ifca.planned_rounds()
    }

    fn stage(&self) -> Option<String> {
        self.first.as_ref().filter(|first| !first.models.is_empty()).map(|_| "one_shot".into())
    }

    fn outcome(&self) -> Outcome {
        let Some(first) = &self.first else { return self.ifca.outcome() };
        let mut outcome = if first.models.is_empty() { self.ifca.outcome() } else { first.local_models() };
        first.describe(&mut outcome);
        outcome
    }

    fn save(&self) -> Result<Option<Vec<u8>>> {
        save(&(&self.first, self.ifca.save()?.unwrap_or_default())).map(Some)
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (first, ifca): (Option<FirstClusters>, Vec<u8>) = restore(bytes)?;
        self.first = first;
        self.ifca.restore(&ifca)
    }
}
