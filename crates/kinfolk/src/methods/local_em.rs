//! EM on every client alone, from several starts: the baseline that shows what a federation is worth for mixtures.
//!
//! ```text
//! each client: fit a mixture to its own rows; where that scatters otherwise than the model, EM goes on in the model's form
//! ```

use super::mixtures::*;
use super::*;

settings! {
    /// The settings of the method `local-em`.
    pub struct LocalEmSettings {
        /// how clients fit mixtures of their own to begin with
        fits: OwnFits,
    }
}

impl MethodSettings for LocalEmSettings {
    const NAME: &str = "local-em";
    const SUMMARY: &str = "EM for a mixture on every client alone";
    const WANTS: Ability = Ability::Mixture;
    const SHOWS_ROWS: &str = "it begins with what clients fit alone to their rows";
    const WANTS_SINGLE: Option<&'static str> = Some("it tells the mixtures that single clients fit");

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![
            Disclosure::single::<work::FitMixture>(Phase::Start, 1, "a model of its own, which stays with it")
                .without_vector::<work::FitMixture>(),
            Disclosure::single::<work::FitMixture>(Phase::Train, 4, "a model of its own, which stays with it")
                .without_vector::<work::FitMixture>(),
            Disclosure::single::<StepMixture>(Phase::Train, 1, "a model of its own, which stays with it")
                .without_vector::<StepMixture>(),
        ]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        Ok(Box::new(LocalEm {
            training: MixtureTraining::with_own_scatter(&setup, &self.fits, 1)?,
            iterations: self.fits.start_iterations,
            state: ClientFits::new(setup.rows.len()),
        }))
    }
}

struct LocalEm {
    training: MixtureTraining,
    iterations: usize,
    state: ClientFits,
}

impl Method for LocalEm {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        /// How often a client that did not answer is asked.
        const ATTEMPTS: usize = 5;
        let fits = &mut self.state;
        let mut loss = None;
        for _ in 0..ATTEMPTS {
            loss = self.training.fit(fits, Parts::Nothing, room)?.or(loss);
        }
        if self.training.fit.shape != self.training.shape {
            let models = ClientModels::none(fits.clients());
            let steps = self.iterations as u32;
            let step = StepMixture { steps, ..self.training.plain_step(Rule::Maximise, Parts::Nothing) };
            let (answers, orders) = self.training.step(fits, &models, &step, Gather::Each, room)?;
            loss = finite_loss(&answers.losses(&orders), room)?.or(loss);
        }
        Ok(Progress::of(loss, true))
    }

    fn outcome(&self) -> Outcome {
        self.training.outcome(&self.state, Vec::new(), true)
    }

    keep_state!();
}
