//! ONE_SHOT-IFCA: IFCA that begins with the clusters ONE_SHOT finds (Vardhan, Ghosh, Mazumdar 2024, a baseline there). It
//! needs no number of clusters and no luck, but clusters can only swap clients afterwards: none is merged or ended.
//!
//! ```text
//! 1  C_0 ← ONE_SHOT(λ, t)                                            `bottom_up/`
//! 2  θ_c ← mean of the w_i of cluster c
//! 3  IFCA from these models                                          `ifca.rs`
//! ```

use super::bottom_up::{Alone, BottomUp, Compared, OneShot};
use super::*;

settings! {
    pub(super) struct OneShotIfcaSettings {
        /// what a client's model counts in the mean
        weight: Weight = "uniform",
        bottom_up: BottomUp,
    }
}

impl MethodSettings for OneShotIfcaSettings {
    const NAME: &str = "one-shot-ifca";
    const SUMMARY: &str = "IFCA that begins with clusters of clients that learn alike";
    const PAPER: &str = "Vardhan, Ghosh, Mazumdar 2024";
    const HAS_CLUSTERS: bool = true;

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let training = self.bottom_up.training.clone();
        Ok(Box::new(OneShotIfca {
            ifca: ifca::Ifca::from_models(&setup, training, setup.step(self.bottom_up.step), self.weight),
            one_shot: OneShot::new(&setup, self.bottom_up)?,
            state: State { alone: None, compared: None },
        }))
    }
}

struct OneShotIfca {
    one_shot: OneShot,
    ifca: ifca::Ifca,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// Everybody's own model, until IFCA begins.
    alone: Option<Alone>,
    compared: Option<Compared>,
}

impl Method for OneShotIfca {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        if self.state.compared.is_some() {
            self.state.alone = None;
            return self.ifca.round(room);
        }
        let alone = self.one_shot.train(room)?;
        let compared = self.one_shot.compare(&alone, room)?;
        self.ifca.begin_at(alone.means(&compared));
        let progress =
            Progress { loss: alone.loss, switched: None, sizes: compared.sizes(), finished: compared.clusters == 0 };
        (self.state.alone, self.state.compared) = (Some(alone), Some(compared));
        Ok(progress)
    }

    fn planned_rounds(&self) -> usize {
        1 + self.ifca.planned_rounds()
    }

    fn stage(&self) -> Option<String> {
        self.state.alone.as_ref().map(|_| "one_shot".into())
    }

    fn outcome(&self) -> Outcome {
        let mut outcome = match (&self.state.alone, &self.state.compared) {
            (Some(alone), Some(compared)) => alone.outcome(compared.clusters > 0),
            _ => self.ifca.outcome(),
        };
        if let Some(compared) = &self.state.compared {
            compared.describe(&mut outcome);
        }
        outcome
    }

    fn save(&self) -> Result<Vec<u8>> {
        save(&(&self.state, self.ifca.save()?))
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (state, ifca): (State, Vec<u8>) = restore(bytes)?;
        self.state = state;
        self.ifca.restore(&ifca)
    }
}
