//! Gradient EM on every client alone: what FedGrEM is without its centre.
//!
//! ```text
//! each client: fit a mixture on its own; then T steps w_r ← mean γ_r, θ_r ← θ_r + η ∂Q/∂θ_r
//! ```

use super::mixtures::*;
use super::*;

settings! {
    /// The settings of the method `local-grem`.
    pub struct LocalGrEmSettings {
        /// rounds of one step each, at most
        rounds: usize [1..=1 << 40] = 1000,
        /// the step size
        step: f64 [above 0.0] = 0.1,
        /// what the step is: over the weight a component began with, but never beyond its mean; the same without that
        /// bound; or as it is
        step_rule: StepRule = "fixed",
        /// how clients fit mixtures of their own to begin with
        fits: OwnFits,
    }
}

impl MethodSettings for LocalGrEmSettings {
    const NAME: &str = "local-grem";
    const SUMMARY: &str = "gradient EM for a mixture on every client alone";
    const WANTS: Ability = Ability::Mixture;
    const SHOWS_ROWS: &str = "it begins with what clients fit alone to their rows";
    const WANTS_SINGLE: Option<&'static str> = Some("it tells the mixtures that single clients fit");

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        let mut all = discloses_fits(self.rounds, false);
        let what = "a mixture of its own, which stays with it";
        all.push(Disclosure::single::<StepMixture>(Phase::Train, self.rounds, what).without_vector::<StepMixture>());
        all
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        Ok(Box::new(LocalGrEm {
            training: MixtureTraining::with_own_scatter(&setup, &self.fits, 1)?,
            rounds: self.rounds,
            rate: self.step_rule.rate(self.step),
            state: Rounds::new(setup.rows.len()),
        }))
    }
}

struct LocalGrEm {
    training: MixtureTraining,
    rounds: usize,
    rate: Rate,
    state: Rounds,
}

impl Method for LocalGrEm {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let fits = &mut self.state.fits;
        self.training.fit(fits, Parts::Nothing, room)?;
        let models = ClientModels::none(fits.clients());
        let step = self.training.plain_step(Rule::Ascend(self.rate), Parts::Nothing);
        let (answers, orders) = self.training.step(fits, &models, &step, Gather::Each, room)?;
        let loss = finite_loss(&answers.losses(&orders), room)?;
        self.state.done += 1;
        Ok(Progress::of(loss, self.state.done >= self.rounds))
    }

    fn planned_rounds(&self) -> usize {
        self.rounds
    }

    fn outcome(&self) -> Outcome {
        self.training.outcome(&self.state.fits, Vec::new(), true)
    }

    keep_state!();
}
