//! Gradient EM on every client alone: what FedGrEM is without its centre.
//!
//! ```text
//! each client: fit a mixture on its own; then T steps w_r ← mean γ_r, θ_r ← θ_r + η ∂Q/∂θ_r
//! ```

use super::mixtures::*;
use super::*;
use crate::federation::work::Parts;
use crate::mixture::step::{Rate, Rule};

pub(super) static KIND: MethodKind = MethodKind {
    name: "local-grem",
    summary: "gradient EM for a mixture on every client alone",
    paper: "baseline",
    settings: mixture_settings!(
        ROUNDS_AT_MOST,
        Setting::new("step", Kind::Positive, Default::Is("0.1"), "the step size"),
        Setting { default: Default::Is("\"fixed\""), ..STEP_RULE },
    ),
    needs_truth: |_| false,
    has_clusters: false,
    wants: Ability::Mixture,
    check: |_, _, _| {},
    build: |setup| {
        Ok(Box::new(LocalGrEm {
            workshop: Workshop::with_own_scatter(&setup)?,
            rounds: setup.settings.integer("rounds"),
            rate: rate_of(setup.settings),
            state: State { round: 0, standing: Standing::new(setup.rows.len()) },
        }))
    },
};

struct LocalGrEm {
    workshop: Workshop,
    rounds: usize,
    rate: Rate,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    round: usize,
    standing: Standing,
}

impl Method for LocalGrEm {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let standing = &mut self.state.standing;
        self.workshop.fit(standing, Parts::Nothing, room)?;
        let asked: Vec<(u32, Option<usize>)> = standing.fitted().map(|client| (client, None)).collect();
        let step = self.workshop.plain_step(Rule::Ascend(self.rate), Parts::Nothing);
        let (answers, orders) = self.workshop.step(standing, (Vec::new(), &asked), &step, Gather::Each, room)?;
        let loss = finite_loss(&answers.losses(&orders), room)?;
        self.state.round += 1;
        Ok(Progress::of(loss, self.state.round >= self.rounds))
    }

    fn planned_rounds(&self) -> usize {
        self.rounds
    }

    fn outcome(&self) -> Outcome {
        self.workshop.outcome(&self.state.standing, Vec::new(), true)
    }

    keep_state!();
}
