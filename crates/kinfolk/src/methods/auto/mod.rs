//! Whether clients differ, whether they fall into families and how many, and which model serves each of them best: without a
//! setting. Networks are trained for it (`networks/`), and models with very many coefficients. For other models that are linear but for a link, numbers here, classes in
//! `classes.rs`:
//!
//! ```text
//! 1  every client cuts its rows into folds, and sends the cross-products of each
//! 2  different at all?  F statistic, restricted wild bootstrap
//! 3  families or a continuum, and how many?  mixture of mixed models by EM; likelihood ratio, held-out likelihood, valley
//! 4  of every client the global, the family's, a personal and its own model; cross-validation by folds; non-negative stack
//! 5  residuals of held-out rows beside their expected deviation, for intervals
//! 6  every client is handed what serves it
//! ```
//!
//! Steps 2 to 4 are a function of the products (`families/`), so that clients are asked three times in all.

mod classes;
pub(crate) mod networks;
mod study;

pub(crate) use study::{Begun, FamilyModel, Intervals, Study};

use super::*;
use crate::families::{Covariance, Options, Wanted};
use crate::federation::work::Receive;
use networks::Networks;

/// Above this, cross-products of coefficients are too large to be sent: the model is trained like a network.
const MOST_COEFFICIENTS: usize = 500;

settings! {
    /// The settings of the method `auto`.
    pub struct AutoSettings {
        /// how many families; "auto": as many as are found
        families: Auto<usize> [1..=1 << 20] = "auto",
        /// how coefficients vary between clients (linear models); "auto": for intercepts and for slopes, or what cross-validation finds better
        covariance: Auto<Covariance> = "auto",
        /// try no other covariances of clients (linear models)
        quick: bool = false,
        /// how clients train (networks)
        training: Training,
    }
}

/// What clients tell in the study of linear models.
pub(crate) fn study_discloses() -> Vec<Disclosure> {
    let (families, tests) =
        ("families, and a model for each client", "what errors to expect, and whether families are sure");
    let all = [
        Disclosure::single::<work::FoldProducts>(Phase::Train, 1, families),
        Disclosure::single::<work::Residuals>(Phase::Train, 1, tests),
        Disclosure::single::<work::HeldOutLosses>(Phase::Train, 1, tests),
        Disclosure::single::<work::CountProbabilities>(Phase::Train, 1, tests),
    ];
    all.map(Disclosure::as_needed).into()
}

impl MethodSettings for AutoSettings {
    const NAME: &str = "auto";
    const WANTS_SINGLE: Option<&'static str> = Some("it compares what single clients answer");
    const SUMMARY: &str = "finds out whether there are families and which model serves whom; no settings needed";
    const PAPER: &str = "Kinfolk";
    const SHOWS_ROWS: &str = "its clients answer with products of their columns and residuals";
    const HAS_CLUSTERS: bool = true;
    const WANTS: Ability = Ability::Rows;

    fn needs(&self) -> Needs {
        let needs = self.training.needs();
        let auto_step = needs.auto_step.map(|step| AutoStep { only_without_minimiser: true, ..step });
        Needs { auto_step, ..needs }
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        let (families, tests) =
            ("families, and a model for each client", "what errors to expect, and whether they are equal");
        let of_networks = [
            Disclosure::sums::<work::Choose>(Phase::Train, 1, families),
            Disclosure::single::<Train>(Phase::Train, 1, families),
            Disclosure::single::<work::Losses>(Phase::Train, 1, families),
            Disclosure::single::<work::FineTune>(Phase::Train, 1, families),
            Disclosure::single::<work::CheckPredictions>(Phase::Train, 1, tests),
        ];
        study_discloses().into_iter().chain(of_networks.map(Disclosure::as_needed)).collect()
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        if let Auto::Given(families) = self.families {
            setup.want_clients("families", families)?;
        }
        if setup.model.linear_form().is_none_or(|form| form.coefficients() > MOST_COEFFICIENTS) {
            let families = self.families.given();
            return Ok(Box::new(Networks::new(&setup, self.training, families)?));
        }
        let families = match self.families {
            Auto::Auto => Wanted::Auto,
            Auto::Given(1) => Wanted::One,
            Auto::Given(families) => Wanted::Exactly(families),
        };
        let options =
            Options { seed: setup.key.seed(), families, covariance: self.covariance.given(), quick: self.quick };
        let study = Study::new(&*setup.model, &setup.facts, options)?;
        let state = State { found: None, stamps: vec![0; setup.rows.len()] };
        Ok(Box::new(AutoMethod { study, state }))
    }
}

struct AutoMethod {
    study: Study,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    found: Option<FamilyModel>,
    stamps: Vec<u64>,
}

impl State {
    fn families(&self) -> Assignment {
        let Some(found) = &self.found else { return Assignment::one(self.stamps.len()) };
        let mut families = Assignment::none(found.learned.families.len(), self.stamps.len());
        for (&client, learned) in found.clients.iter().zip(&found.learned.clients) {
            families.put(client, learned.family);
        }
        families
    }
}

impl Method for AutoMethod {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let Some(found) = &self.state.found else {
            let found = self.study.carry_out(room)?;
            let loss = found.learned.errors[4] * found.target.deviation.powi(2);
            self.state.found = Some(found);
            return Ok(Progress { sizes: self.state.families().sizes(), ..Progress::of(Some(loss), false) });
        };
        let models = (0..self.state.stamps.len() as u32).map(|client| Params::new(found.serving(client)));
        let mut ask = Ask::new(Phase::Train, models.collect(), Gather::Each);
        for client in 0..self.state.stamps.len() {
            ask.order(Recipients::list(vec![client as u32]), Receive { models: vec![client], keep: true });
        }
        let answers = room.ask(&ask)?;
        stamps_after(&answers).for_each(|(client, stamp)| self.state.stamps[client as usize] = stamp);
        Ok(Progress { sizes: self.state.families().sizes(), ..Progress::of(None, true) })
    }

    fn planned_rounds(&self) -> usize {
        2
    }

    fn outcome(&self) -> Outcome {
        let Some(found) = &self.state.found else { return Outcome::default() };
        let families = found.learned.families.iter().map(|family| Params::new(found.in_units(&family.centre)));
        let extra = found.learned.difference.p.map(|p| ("heterogeneity_p".to_string(), p));
        Outcome {
            models: families.collect(),
            clustered: true,
            global: Some(Params::new(found.in_units(&found.learned.global))),
            serving: Serving::Own { stamps: self.state.stamps.clone(), clusters: Some(self.state.families()) },
            notes: found.learned.sentences.clone(),
            extra: extra.into_iter().collect(),
            ..Outcome::default()
        }
    }

    keep_state!();
}
