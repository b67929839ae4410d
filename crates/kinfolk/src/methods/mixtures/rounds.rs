//! Rounds of steps until centres stay, and one set of components for everybody.

use super::*;

settings! {
    /// When rounds end.
    pub struct Until {
        /// rounds of one step each, at most
        rounds: usize [1..=1 << 40] = 1000,
        /// it ends when no centre moves by more than this, in deviations of the rows around their centres
        tolerance: f64 [0.0..=1.0] = 1e-6,
    }
}

/// The state of a method that takes steps from the clients' fits.
#[derive(Default, Serialize, Deserialize)]
pub(in crate::methods) struct Rounds {
    pub(in crate::methods) done: usize,
    pub(in crate::methods) fits: ClientFits,
    pub(in crate::methods) converged: bool,
    /// Whether clients have been handed the last models.
    delivered: bool,
}

impl Rounds {
    pub(in crate::methods) fn new(clients: usize) -> Self {
        Self { fits: ClientFits::new(clients), ..Self::default() }
    }

    /// Counts a round with this move, meaningless unless `complete`; returns whether it was the last.
    pub(in crate::methods) fn end_round(&mut self, until: &Until, moved: f64, complete: bool) -> bool {
        self.converged = complete && moved <= until.tolerance;
        self.done += 1;
        self.converged || self.done >= until.rounds
    }

    /// Counts a round in which nobody had a mixture.
    pub(in crate::methods) fn skip_round(&mut self, until: &Until) -> Progress {
        Progress::of(None, self.end_round(until, f64::INFINITY, false))
    }

    /// Has clients take over these models, with a `look` at all rows find weights for them, and asks silent ones again.
    pub(in crate::methods) fn deliver(
        &mut self,
        training: &MixtureTraining,
        models: ClientModels,
        look: bool,
        room: &mut Room,
    ) -> Result<()> {
        const ATTEMPTS: usize = 5;
        let step = StepMixture { steps: u32::from(look), ..training.plain_step(Rule::Stay, Parts::Nothing) };
        let mut waiting = models;
        for _ in 0..ATTEMPTS {
            let (answers, _) = training.step(&mut self.fits, &waiting, &step, Gather::Each, room)?;
            let absent = |client: u32| answers.missing.iter().any(|missing| missing.client == client);
            waiting.clients.retain(|(client, _)| absent(*client));
            if waiting.clients.is_empty() {
                break;
            }
        }
        self.fits.unserved = waiting.clients.len();
        self.delivered = true;
        Ok(())
    }

    /// What clients would be handed if this were the end; empty once they were.
    pub(in crate::methods) fn drafts(&self, models: impl FnOnce() -> ClientModels) -> Vec<Option<Params>> {
        if self.delivered {
            return Vec::new();
        }
        let ClientModels { models, clients } = models();
        let mut drafts = vec![None; self.fits.stamps.len()];
        for (client, model) in clients {
            drafts[client as usize] = model.map(|model| models[model].clone());
        }
        drafts
    }
}

/// The state of a method with one set of components for everybody.
#[derive(Serialize, Deserialize)]
pub(super) struct Common {
    pub(super) rounds: Rounds,
    /// The common parameters; empty before the first round. Where clients have weights of their own, equal ones stand in.
    pub(super) params: Vec<f64>,
}

impl Common {
    pub(super) fn new(clients: usize) -> Self {
        Self { rounds: Rounds::new(clients), params: Vec::new() }
    }

    pub(super) fn outcome(&self, training: &MixtureTraining, drafts: Vec<Option<Params>>) -> Outcome {
        let models = if self.params.is_empty() { Vec::new() } else { vec![Arc::new(self.params.clone())] };
        let common = self.params.get(training.shape.centres()).unwrap_or_default().to_vec();
        Outcome {
            mixture: Some(MixtureOutcome { common, drafts, ..MixtureOutcome::default() }),
            ..training.outcome(&self.rounds.fits, models, self.rounds.converged)
        }
    }
}
