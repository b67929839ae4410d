//! TGMM (Wang, Zhou, Xiao and others: A general transfer learning-based Gaussian mixture model for clustering, 2021), every
//! client in turn the target and all others its sources.
//!
//! ```text
//! 0  each client k: fit a mixture on its own; its source s_k is the mean of all other clients' fits
//! 1  for t = 1..T:
//! 2      each client: E-step, w ← mean γ, the full M-step, send θ̂^(k)
//! 3      server: θ^(k) ← (1 − strength)·θ̂^(k) + strength·s_k
//! ```
//!
//! Difference from the paper: there are several sources, and their mean stands for them.

use super::mixtures::*;
use super::*;

settings! {
    /// The settings of the method `tgmm`.
    pub struct TgmmSettings {
        /// the share of the others' mean
        strength: f64 [0.0..=1.0] = 0.4,
        /// the rounds, and how components are put into one order for everybody
        common: CommonOrder,
    }
}

impl MethodSettings for TgmmSettings {
    const NAME: &str = "tgmm";
    const SUMMARY: &str = "each client's mixture drawn to the mean of all others'";
    const PAPER: &str = "Wang, Zhou, Xiao and others 2021";
    const WANTS: Ability = Ability::Mixture;
    const WANTS_SINGLE: Option<&'static str> = Some("it begins with the mixtures that single clients fit");

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        let mut all = discloses_fits(1, true);
        let (rounds, what) = (self.common.until.rounds, "the centres of components");
        all.push(Disclosure::single::<StepMixture>(Phase::Train, rounds, what));
        all.push(discloses_delivery());
        all
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        Ok(Box::new(Tgmm {
            strength: self.strength,
            state: State { rounds: Rounds::new(setup.rows.len()), centres: vec![Vec::new(); setup.rows.len()] },
            training: MixtureTraining::with_own_scatter(&setup, &self.common.fits, self.common.orders)?,
            until: self.common.until,
        }))
    }
}

struct Tgmm {
    training: MixtureTraining,
    until: Until,
    strength: f64,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    rounds: Rounds,
    /// θ^(k) of every client; empty for one that has none.
    centres: Vec<Vec<f64>>,
}

impl Tgmm {
    /// The sum of all fits, and how many there are.
    fn sum_of_fits(&self) -> (Vec<f64>, f64) {
        let (mut sum, mut count) = (vec![0.0; self.training.shape.centres().end], 0.0);
        for fit in self.state.rounds.fits.centres.iter().filter(|fit| !fit.is_empty()) {
            add_scaled(&mut sum, 1.0, fit);
            count += 1.0;
        }
        (sum, count)
    }

    /// The mean of all fits but one client's; its own where it is alone.
    fn source(&self, client: usize, (sum, count): &(Vec<f64>, f64)) -> Vec<f64> {
        let own = &self.state.rounds.fits.centres[client];
        if *count <= 1.0 {
            return own.clone();
        }
        sum.iter().zip(own).map(|(sum, own)| (sum - own) / (count - 1.0)).collect()
    }

    fn models(&self) -> ClientModels {
        let known = (0u32..).zip(&self.state.centres).filter(|(_, centres)| !centres.is_empty());
        ClientModels::one_each(known.map(|(client, centres)| (client, centres.clone())))
    }
}

impl Method for Tgmm {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let State { rounds, centres } = &mut self.state;
        self.training.fit(&mut rounds.fits, Parts::Shared, room)?;
        for (centres, fit) in centres.iter_mut().zip(&rounds.fits.centres).filter(|(centres, _)| centres.is_empty()) {
            centres.clone_from(fit);
        }
        let models = self.models();
        let step = self.training.plain_step(Rule::Maximise, Parts::Centres);
        let fits = &mut self.state.rounds.fits;
        let (answers, orders) = self.training.step(fits, &models, &step, Gather::Each, room)?;
        let loss = finite_loss(&answers.losses(&orders), room)?;
        let sum = self.sum_of_fits();
        let mut moved: f64 = 0.0;
        for order in &answers.orders {
            for (place, &client) in order.clients.iter().enumerate() {
                let mut next = self.source(client as usize, &sum);
                next.iter_mut().for_each(|value| *value *= self.strength);
                add_scaled(&mut next, 1.0 - self.strength, order.vector(place));
                let State { rounds, centres } = &mut self.state;
                let centres = &mut centres[client as usize];
                moved = moved.max(self.training.longest_move(&rounds.fits, centres, &next));
                *centres = next;
            }
        }
        let complete = self.state.rounds.fits.is_complete(&answers);
        let finished = self.state.rounds.end_round(&self.until, moved, complete);
        if finished {
            let models = self.models();
            self.state.rounds.deliver(&self.training, models, false, room)?;
        }
        Ok(Progress::of(loss, finished))
    }

    fn planned_rounds(&self) -> usize {
        self.until.rounds
    }

    fn outcome(&self) -> Outcome {
        let rounds = &self.state.rounds;
        let drafts = rounds.drafts(|| self.models());
        Outcome {
            mixture: Some(MixtureOutcome { drafts, ..MixtureOutcome::default() }),
            ..self.training.outcome(&rounds.fits, Vec::new(), rounds.converged)
        }
    }

    keep_state!();
}
