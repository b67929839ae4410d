//! The exact minimiser for known clusters: every client's model, pulled to its cluster's centre, the centres pulled to a
//! global one. For linear models this is the best linear unbiased predictor of a hierarchical model, and what Async-L2GD
//! and Async-AL2SGD+ (Lyu, Hanzely, Kolar 2022) approach step by step.
//!
//! ```text
//! 1  every client, told its centre w_j:  θ_i ← argmin f_i(θ) + γ_i/2·‖θ − w_j‖², and how that depends on w_j, as a quadratic
//! 2  w_1 … w_k, w̄ ← argmin of the sums of these quadratics + Σ λ_j/2·‖w_j − w̄‖²
//! 3  again until the centres stay; for linear models once more, to find the θ_i
//! ```
//!
//! Strengths that are not given are estimated from the data, or tuned (`personal/preparation.rs`).

use super::personal::fit::Fit;
use super::*;
use crate::text::counted;

settings! {
    /// The settings of the method `hierarchical`.
    pub struct HierarchicalSettings {
        /// a missing answer is asked for again, or ends the run
        missing: MissingRule ["again", "fail"] = "again",
        /// what is minimised
        objective: Objective,
    }
}

impl MethodSettings for HierarchicalSettings {
    const NAME: &str = "hierarchical";
    const SUMMARY: &str = "known clusters: the exact personal models of a hierarchical model";
    const PAPER: &str = "Lyu, Hanzely, Kolar 2022, sections 2 and 5";
    const SHOWS_ROWS: &str =
        "its clients answer with how their smallest loss depends on the centre, a function of all their rows";
    const HAS_CLUSTERS: bool = true;
    const WANTS: Ability = Ability::Minimiser;
    const WANTS_SINGLE: Option<&'static str> = Some("it needs to know of every single client that it has answered");

    fn needs(&self) -> Needs {
        self.objective.client.needs(self.missing)
    }

    fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        let mut all = self.objective.discloses(ability);
        all.push(personal::fit::discloses_fit(ability, Phase::Train));
        all
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let problem = Problem::with_groups(&setup, &self.objective.client)?;
        let preparation = Preparation::new(&setup, &self.objective, &problem, false)?;
        Ok(exactly(problem, preparation))
    }
}

/// The exact minimiser once strengths are there.
pub(super) fn exactly(problem: Problem, preparation: Preparation) -> Box<dyn Method> {
    let fit = Fit::new(vec![problem.start.to_vec(); problem.families.count()], &problem.start, problem.rows.len());
    Box::new(Exact { state: State { preparation, fit, finished: false }, problem })
}

struct Exact {
    problem: Problem,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    preparation: Preparation,
    fit: Fit,
    finished: bool,
}

impl Method for Exact {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let State { preparation, fit, finished } = &mut self.state;
        let strengths = match preparation.round(&self.problem, room)? {
            Prepared::Ready(strengths) => strengths,
            Prepared::NotYet(progress) => return Ok(progress),
        };
        let progress = fit.round(&self.problem.response_round(Phase::Train, strengths.noise), strengths, room)?;
        *finished = progress.finished;
        Ok(progress)
    }

    fn planned_rounds(&self) -> usize {
        self.state.preparation.planned_rounds() + if self.problem.model.is_quadratic() { 2 } else { 6 }
    }

    fn outcome(&self) -> Outcome {
        let State { preparation, fit, finished } = &self.state;
        let centres = fit.centres().clone();
        let mut outcome = self.problem.outcome(preparation, &fit.stamps, (centres.clusters, Some(centres.global)));
        if fit.gave_up() {
            outcome.notes.push("the centres still moved when the rounds were used up".into());
        }
        let undetermined = fit.undetermined();
        if undetermined > 0 {
            let directions = counted(undetermined, "direction");
            outcome.notes.push(format!(
                "the data say nothing along {directions} of the parameters (columns that add up to each \
                 other?); there the centres are as short as can be"
            ));
        }
        let converged = *finished && !fit.gave_up();
        Outcome { converged, minimises: self.problem.minimises(true).filter(|_| converged), ..outcome }
    }

    keep_state!();
}
