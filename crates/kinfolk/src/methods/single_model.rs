//! One model for everybody: the exact minimiser of all losses together, without moving a row.
//!
//! ```text
//! again until the model stays:
//!     every client sends its loss as a quadratic at the model; the server adds them up and takes the minimiser
//! ```
//!
//! The baseline that shows what clusters and personal models are worth. Rows count alike, whoever has them.

use super::personal::fit::{ResponseRound, pooled};
use super::room::MethodLedger;
use super::*;
use crate::training::Scale;

settings! {
    /// The settings of the method `single-model`.
    pub struct SingleModelSettings {
        /// what counts alike: rows (sum), or clients (mean)
        loss: LossOver = "sum",
        /// a missing answer is asked for again, or ends the run
        missing: MissingRule ["again", "fail"] = "again",
    }
}

impl MethodSettings for SingleModelSettings {
    const NAME: &str = "single-model";
    const SUMMARY: &str = "one model for everybody, exactly";
    const WANTS: Ability = Ability::Minimiser;
    const WANTS_SINGLE: Option<&'static str> = Some("it needs to know of every single client that it has answered");

    fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        vec![personal::fit::discloses_pooled(ability, Phase::Train)]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let problem = Problem::new(&setup, Families::one(setup.rows.len()), self.loss)?;
        let state = State { model: problem.start.clone(), converged: false };
        Ok(Box::new(SingleModel { problem, state }))
    }
}

/// The minimiser of all rows' loss together, found in a phase that counts for nothing; `None` where it was not found.
pub(crate) fn pooled_minimiser(federation: &mut dyn Federation, model: &dyn Model) -> Result<Option<Params>> {
    let families = Families::one(federation.clients().len());
    let round = ResponseRound {
        families: &families,
        scale: Scale { factor: 1.0, by: Weight::Rows },
        phase: Phase::Evaluate,
        on: Portion::All,
        exact: model.is_quadratic(),
        tolerance: 1e-8,
    };
    let start = vec![0.0; model.layout().len()];
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    let (model, _, found) = pooled(&round, &start, &mut Room::new(federation, &mut ledger))?;
    Ok(found.then_some(model))
}

struct SingleModel {
    problem: Problem,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    model: Params,
    converged: bool,
}

impl Method for SingleModel {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let round = self.problem.response_round(Phase::Train, 1.0);
        let (model, loss, converged) = pooled(&round, &self.problem.start, room)?;
        (self.state.model, self.state.converged) = (model, converged);
        Ok(Progress::of(loss, true))
    }

    fn outcome(&self) -> Outcome {
        Outcome { models: vec![self.state.model.clone()], converged: self.state.converged, ..Outcome::default() }
    }

    keep_state!();
}
