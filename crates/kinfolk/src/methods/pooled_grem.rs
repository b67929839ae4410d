//! Gradient EM on all rows of all clients as if they lay in one place: `pooled-em` with a step along the gradient instead
//! of the M-step. How rows scatter stays as the clients' fits had it on average.

use super::mixtures::*;
use super::*;

settings! {
    /// The settings of the method `pooled-grem`.
    pub struct PooledGrEmSettings {
        /// the step size
        step: f64 [above 0.0] = 0.1,
        /// the rounds, and how components are put into one order for everybody
        common: CommonOrder,
    }
}

impl MethodSettings for PooledGrEmSettings {
    const NAME: &str = "pooled-grem";
    const SUMMARY: &str = "gradient EM for one mixture on everybody's rows together";
    const WANTS: Ability = Ability::Mixture;
    const WANTS_SINGLE: Option<&'static str> = Some("it begins with the mixtures that single clients fit");

    fn exposure(&self, _: u64, _: Ability) -> Hidable {
        self.common.exposure()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        discloses_pooled(&self.common)
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        Pooled::ready(&setup, self.common, Some(self.step))
    }
}
