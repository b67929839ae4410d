//! Personal models around one common centre, with no clusters in between: what L2GD, pFedMe and Ditto minimise, found
//! exactly. The baseline that shows what known clusters are worth.
//!
//! ```text
//! minimise Σ_i f_i(θ_i) + strength/2·‖θ_i − θ̄‖², θ̄ the mean of all
//! ```
//!
//! The strength is tuned by cross-validation unless it is given.

use super::hierarchical::exactly;
use super::*;

settings! {
    /// The settings of the method `single-cluster`.
    pub struct SingleClusterSettings {
        /// the pull to the common centre (default: tuned)
        strength: Option<f64> [0.0..=1e18],
        /// values to try when tuning (default: 17 from 0.01 to 100)
        grid: Option<Vec<f64>>,
        /// parts of a client's rows when tuning
        folds: u32 [2..=1000] = 5,
        /// a client's loss: over its rows the sum, as in a likelihood, or the mean
        loss: LossOver = "sum",
        /// a missing answer is asked for again, or ends the run
        missing: MissingRule ["again", "fail"] = "again",
    }

    fn check(&self, check: &mut Check) {
        if self.strength.is_some() && self.grid.is_some() {
            check.fault("grid", "the strength is given, there is nothing to tune");
        }
    }
}

impl MethodSettings for SingleClusterSettings {
    const NAME: &str = "single-cluster";
    const SUMMARY: &str = "personal models around one common centre, exactly";
    const WANTS_SINGLE: Option<&'static str> = Some("it needs to know of every single client that it has answered");
    const PAPER: &str = "baseline; L2GD, pFedMe, Ditto";
    const WANTS: Ability = Ability::Minimiser;

    fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        let mut all = match self.strength {
            Some(_) => Vec::new(),
            None => personal::preparation::discloses_tuning(self.grid.as_ref(), self.folds, ability),
        };
        all.push(personal::fit::discloses_fit(ability, Phase::Train));
        all
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let clients = setup.rows.len();
        let problem = Problem::new(&setup, Families::one(clients), self.loss)?;
        let preparation = match self.strength {
            Some(strength) => {
                Preparation::given(Strengths::new(&problem.families, vec![strength; clients], vec![f64::INFINITY], 1.0))
            }
            None => Preparation::tuning(&setup, &problem, self.grid, self.folds)?,
        };
        Ok(exactly(problem, preparation))
    }
}
