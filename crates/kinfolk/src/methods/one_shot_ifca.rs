//! ONE_SHOT-IFCA: IFCA that begins with the clusters ONE_SHOT finds (Vardhan, Ghosh, Mazumdar 2024, a baseline there). It
//! needs no number of clusters and no luck, but clusters can only swap clients afterwards: none is merged or ended.
//!
//! ```text
//! 1  C_0 ← ONE_SHOT(λ, t)                                            `bottom_up/`
//! 2  θ_c ← mean of the w_i of cluster c
//! 3  IFCA from these models                                          `ifca.rs`
//! ```

use super::bottom_up::{Alone, Compared, OneShot, bottom_up_settings, check_bottom_up};
use super::*;

pub(super) static KIND: MethodKind = MethodKind {
    name: "one-shot-ifca",
    summary: "IFCA that begins with clusters of clients that learn alike",
    paper: "Vardhan, Ghosh, Mazumdar 2024",
    settings: bottom_up_settings!(rounds = "rounds of IFCA"; Setting::new(
        "weight",
        Kind::OneOf(WEIGHT),
        Default::Is("\"uniform\""),
        "what a client's model counts in the mean"
    )),
    needs_truth: |_| false,
    has_clusters: true,
    wants: Ability::Descent,
    check: check_bottom_up,
    build: |setup| {
        let training = Training::of(setup.settings);
        Ok(Box::new(OneShotIfca {
            one_shot: OneShot::of(&setup, &training)?,
            ifca: ifca::Ifca::from_models(&setup, training),
            state: State { alone: None, compared: None },
        }))
    },
};

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
