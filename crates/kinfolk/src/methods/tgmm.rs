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
use crate::federation::work::Parts;
use crate::linalg::add_scaled;
use crate::mixture::step::Rule;

settings! {
    pub(super) struct TgmmSettings {
        /// the share of the others' mean
        strength: f64 [0.0..=1.0] = 0.4,
        common: CommonOrder,
    }
}

impl MethodSettings for TgmmSettings {
    const NAME: &str = "tgmm";
    const SUMMARY: &str = "each client's mixture drawn to the mean of all others'";
    const PAPER: &str = "Wang, Zhou, Xiao and others 2021";
    const WANTS: Ability = Ability::Mixture;

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        Ok(Box::new(Tgmm {
            strength: self.strength,
            state: State {
                round: 0,
                standing: Standing::new(setup.rows.len()),
                centres: Vec::new(),
                converged: false,
                delivered: false,
            },
            workshop: Workshop::with_own_scatter(&setup, &self.common.fits, self.common.orders)?,
            until: self.common.until,
        }))
    }
}

struct Tgmm {
    workshop: Workshop,
    until: Until,
    strength: f64,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    round: usize,
    standing: Standing,
    /// θ^(k) of every client; empty for one that has none.
    centres: Vec<Vec<f64>>,
    converged: bool,
    /// Whether clients have been handed the last of these.
    delivered: bool,
}

impl Tgmm {
    /// The sum of all fits, and how many there are.
    fn sum_of_fits(&self) -> (Vec<f64>, f64) {
        let (mut sum, mut count) = (vec![0.0; self.workshop.shape.centres().end], 0.0);
        for fit in self.state.standing.fits.iter().filter(|fit| !fit.is_empty()) {
            add_scaled(&mut sum, 1.0, fit);
            count += 1.0;
        }
        (sum, count)
    }

    /// The mean of all fits but one client's; its own where it is alone.
    fn source(&self, client: usize, (sum, count): &(Vec<f64>, f64)) -> Vec<f64> {
        let own = &self.state.standing.fits[client];
        if *count <= 1.0 {
            return own.clone();
        }
        sum.iter().zip(own).map(|(sum, own)| (sum - own) / (count - 1.0)).collect()
    }

    /// Every client's centres as a model of its own.
    fn to_everybody(&self) -> (Vec<Params>, Vec<(u32, Option<usize>)>) {
        let known = (0u32..).zip(&self.state.centres).filter(|(_, centres)| !centres.is_empty());
        let models: Vec<(u32, Params)> = known.map(|(client, centres)| (client, Arc::new(centres.clone()))).collect();
        let asked = models.iter().enumerate().map(|(place, (client, _))| (*client, Some(place))).collect();
        (models.into_iter().map(|(_, model)| model).collect(), asked)
    }
}

impl Method for Tgmm {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let shape = self.workshop.shape;
        self.workshop.fit(&mut self.state.standing, Parts::Shared, room)?;
        let fits = &self.state.standing.fits;
        self.state.centres.resize(fits.len(), Vec::new());
        for (centres, fit) in self.state.centres.iter_mut().zip(fits).filter(|(centres, _)| centres.is_empty()) {
            centres.clone_from(fit);
        }
        let (models, asked) = self.to_everybody();
        let step = self.workshop.plain_step(Rule::Maximise, Parts::Centres);
        let (answers, orders) =
            self.workshop.step(&mut self.state.standing, (models, &asked), &step, Gather::Each, room)?;
        let loss = finite_loss(&answers.losses(&orders), room)?;
        let scaling = self.workshop.fit_scaling(&self.state.standing.scatter);
        let sum = self.sum_of_fits();
        let mut moved: f64 = 0.0;
        for order in &answers.orders {
            for (place, &client) in order.clients.iter().enumerate() {
                let mut next = self.source(client as usize, &sum);
                next.iter_mut().for_each(|value| *value *= self.strength);
                add_scaled(&mut next, 1.0 - self.strength, order.vector(place));
                let mut before = std::mem::replace(&mut self.state.centres[client as usize], next.clone());
                [&mut before, &mut next].into_iter().for_each(|centres| scaling.shrink(centres));
                moved = moved.max(longest_move(&before, &next, shape.width()));
            }
        }
        self.state.converged = self.state.standing.is_complete(&answers) && moved <= self.until.tolerance;
        self.state.round += 1;
        let finished = self.state.converged || self.state.round >= self.until.rounds;
        if finished {
            let (models, asked) = self.to_everybody();
            self.workshop.deliver(&mut self.state.standing, (models, &asked), false, room)?;
            self.state.delivered = true;
        }
        Ok(Progress::of(loss, finished))
    }

    fn planned_rounds(&self) -> usize {
        self.until.rounds
    }

    fn outcome(&self) -> Outcome {
        let draft = |centres: &Vec<f64>| (!centres.is_empty()).then(|| Arc::new(centres.clone()));
        let drafts = if self.state.delivered { Vec::new() } else { self.state.centres.iter().map(draft).collect() };
        Outcome {
            mixture: Some(MixtureOutcome { drafts, ..MixtureOutcome::default() }),
            ..self.workshop.outcome(&self.state.standing, Vec::new(), self.state.converged)
        }
    }

    keep_state!();
}
