//! How every client finds a model of its own, for methods that ask for it once.

use super::super::*;
use crate::federation::Handle;
use crate::federation::work::{Loss, Minimise};

choices! {
    /// How a client finds its minimiser.
    pub enum SolveBy { Auto = "auto", Exact = "exact", Steps = "steps" }
    /// How the step size changes.
    pub enum Pace { Constant = "constant", Inverse = "inverse" }
    /// What a client sends of its steps.
    pub enum Iterate { Last = "last", Average = "average" }
}

settings! {
    /// How a client finds a model of its own.
    pub struct Solving {
        /// clients find their minimiser exactly, or by steps; auto is exactly where the model can
        solve: SolveBy = "auto",
        /// strength of ½·ridge·‖θ‖² added to every client's loss; where a client's classes separate, a small one is added anyway
        ridge: f64 [0.0..=1e18] = 0.0,
        /// steps of a client that does not solve exactly (default 100)
        #[only_with(solve = "steps" | "auto")]
        steps: Option<u32> [1..=1 << 31],
        /// step size; auto is safe on this data for full batches of a linear model, 0.1 for a network
        #[only_with(solve = "steps" | "auto")]
        step: Auto<f64> [above 0.0] = "auto",
        /// rows in a step (default all)
        #[only_with(solve = "steps" | "auto")]
        batch: Option<u32> [1..=1 << 31],
        /// whether step t has the step size, or the step size divided by t
        #[only_with(solve = "steps" | "auto")]
        pace: Pace = "constant",
        /// what a client sends: its last model, or the mean of all, weighted by t
        #[only_with(solve = "steps" | "auto")]
        iterate: Iterate = "last",
        /// a client stops when its gradient is no longer than this
        #[only_with(solve = "steps" | "auto")]
        tolerance: f64 [0.0..=1e18] = 0.0,
        /// a missing answer is left out, or ends the run
        missing: MissingRule ["skip", "fail"] = "skip",
    }

    fn check(&self, check: &mut Check) {
        if self.solve == SolveBy::Exact {
            return;
        }
        if self.tolerance > 0.0 && self.batch.is_some() {
            let why = "the gradient of a batch is never that short";
            check.fault_with_hint("tolerance", why, "leave batch or tolerance out");
        }
        if self.tolerance > 0.0 && self.iterate == Iterate::Average {
            let why = "is about the last model, not about an average";
            check.fault_with_hint("tolerance", why, "leave iterate or tolerance out");
        }
        if self.pace == Pace::Inverse && self.step == Auto::Auto {
            let hint = "1/μ, where the loss curves by at least μ";
            check.fault_with_hint("step", "pace = \"inverse\" wants a number", hint);
        }
    }
}

/// How every client finds a model of its own, ready to run.
pub enum Solve {
    /// The minimiser of its loss.
    Exact { ridge: f64 },
    /// By steps, from a model that is sent or from a random one of its own.
    Steps { from: Start, sent: Vec<Params>, plan: Plan },
}

/// An error for a model without an exact minimiser.
pub fn want_minimiser(setup: &Setup) -> Result<()> {
    if setup.model.convex().is_some() {
        return Ok(());
    }
    Err(Error::settings(format!("{}.solve: this model has no exact minimiser", setup.place)).hint("use \"steps\""))
}

/// What clients do with their rows that answer with their minimiser, once.
pub fn exposes_minimiser(ridge: f64, ability: Ability) -> Hidable {
    match ridge == 0.0 && ability < Ability::Quadratic {
        true => Err("without a ridge one row may move the minimiser of this model anywhere: set ridge above 0"),
        false => Ok(Exposure { answers: 1, ..Exposure::default() }),
    }
}

impl Solving {
    /// How much clients use their rows to find a model of their own, once.
    pub(in crate::methods) fn exposure(&self, ability: Ability) -> Hidable {
        if self.solve != SolveBy::Steps && ability.solves_exactly() {
            return exposes_minimiser(self.ridge, ability);
        }
        match self.tolerance > 0.0 {
            true => Err("with a tolerance the rows decide when steps end"),
            false => Ok(Exposure { steps: u64::from(self.steps()), ..Exposure::default() }),
        }
    }

    fn steps(&self) -> u32 {
        self.steps.unwrap_or(100)
    }

    pub(in crate::methods) fn needs(&self) -> Needs {
        let step = AutoStep { optimiser: self.optimiser(), only_without_minimiser: self.solve == SolveBy::Auto };
        let takes_steps = self.solve != SolveBy::Exact && self.step == Auto::Auto;
        Needs { auto_step: takes_steps.then_some(step), ..Needs::only(self.missing) }
    }

    /// What clients tell of the model that each finds, once.
    pub(in crate::methods) fn discloses(&self, ability: Ability, phase: Phase, purpose: &'static str) -> Disclosure {
        match self.solve != SolveBy::Steps && ability.solves_exactly() {
            true => Disclosure::single::<Minimise>(phase, 1, purpose),
            false => Disclosure::single::<Train>(phase, 1, purpose),
        }
    }

    fn optimiser(&self) -> Optimiser {
        Optimiser::Descent { momentum: 0.0, weight_decay: self.ridge }
    }

    pub(in crate::methods) fn solve(&self, setup: &Setup) -> Result<Solve> {
        if self.solve == SolveBy::Exact {
            want_minimiser(setup)?;
        }
        if self.solve != SolveBy::Steps && setup.model.convex().is_some() {
            let idle = ["steps", "step", "batch", "pace", "iterate", "tolerance"];
            let fault = |name| {
                Error::settings(format!("{}.{name}: this model is solved exactly, without steps", setup.place))
                    .hint(format!("leave {name} out, or set solve = \"steps\""))
            };
            let faults = setup.settings.changed(Self::SETTINGS, &idle).into_iter().map(fault);
            crate::settings::finish(faults.collect())?;
            return Ok(Solve::Exact { ridge: self.ridge });
        }
        let course = Course {
            fading: self.pace == Pace::Inverse,
            averaged: self.iterate == Iterate::Average,
            tolerance: self.tolerance,
        };
        let amount = Amount::Steps(self.steps());
        let plan = one_plan(setup, self.batch, amount, setup.step(self.step, self.optimiser()), self.optimiser());
        Solve::from_common(setup, Plan { course, ..plan })
    }
}

/// The plan of a method whose clients train once.
pub fn one_plan(setup: &Setup, batch: Option<u32>, amount: Amount, step: f64, optimiser: Optimiser) -> Plan {
    let sample = Sample { on: Portion::All, batch, seed: setup.key.clone().word("batches").number(0).seed() };
    Plan { sample, amount, step, optimiser, terms: Terms::default(), course: Course::PLAIN }
}

impl Solve {
    /// By steps from one common model.
    pub fn from_common(setup: &Setup, plan: Plan) -> Result<Self> {
        Ok(Solve::Steps { from: Start::Model(0), sent: vec![setup.common_start()?], plan })
    }

    /// The models that are sent.
    pub fn models(&self) -> Vec<Params> {
        match self {
            Solve::Exact { .. } => Vec::new(),
            Solve::Steps { sent, .. } => sent.clone(),
        }
    }

    pub fn order(&self, to: Recipients, ask: &mut Ask) -> Handle<Loss> {
        match self {
            Solve::Exact { ridge } => ask.order(to, Minimise { ridge: *ridge, keep: false }),
            Solve::Steps { from, plan, .. } => {
                ask.order(to, Train { from: from.clone(), plan: plan.clone(), keep: Keep::No })
            }
        }
    }

    pub fn ask_all(&self, phase: Phase, room: &mut Room) -> Result<(Answers, Handle<Loss>)> {
        let mut ask = Ask::new(phase, self.models(), Gather::Each);
        let order = self.order(Recipients::All, &mut ask);
        Ok((room.ask(&ask)?, order))
    }
}
