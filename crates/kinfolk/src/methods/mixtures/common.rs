//! One set of components for everybody, on its way.

use super::*;

settings! {
    /// When rounds end.
    pub(in crate::methods) struct Until {
        /// rounds of one step each, at most
        rounds: usize [1..=1 << 40] = 1000,
        /// it ends when no centre moves by more than this, in deviations of the rows around their centres
        tolerance: f64 [0.0..=1.0] = 1e-6,
    }
}

/// Where a method with common components stands.
#[derive(Serialize, Deserialize)]
pub(super) struct Common {
    pub(super) round: usize,
    pub(super) standing: Standing,
    /// The common parameters; empty before the first round. Where clients have weights of their own, equal ones stand in.
    pub(super) params: Vec<f64>,
    converged: bool,
    /// Whether clients have been handed the last of these.
    pub(super) delivered: bool,
}

impl Common {
    pub(super) fn new(clients: usize) -> Self {
        Self { round: 0, standing: Standing::new(clients), params: Vec::new(), converged: false, delivered: false }
    }

    /// Counts a round in which nothing could be done. Returns whether it was the last.
    pub(super) fn pass_round(&mut self, until: &Until) -> bool {
        self.round += 1;
        self.round >= until.rounds
    }

    /// Counts a round that began with these centres; where not everybody answered, that nothing moves means nothing.
    /// Returns whether it was the last.
    pub(super) fn end_round(&mut self, workshop: &Workshop, before: &[f64], complete: bool, until: &Until) -> bool {
        let scaling = workshop.fit_scaling(&self.standing.scatter);
        let [mut old, mut new] = [before, &self.params[workshop.shape.centres()]].map(<[f64]>::to_vec);
        [&mut old, &mut new].into_iter().for_each(|centres| scaling.shrink(centres));
        self.converged = complete && longest_move(&old, &new, workshop.shape.width()) <= until.tolerance;
        let last = self.pass_round(until);
        self.converged || last
    }

    pub(super) fn outcome(&self, workshop: &Workshop) -> Outcome {
        let models = if self.params.is_empty() { Vec::new() } else { vec![Arc::new(self.params.clone())] };
        let common = self.params.get(workshop.shape.centres()).unwrap_or_default().to_vec();
        Outcome {
            mixture: Some(MixtureOutcome { common, ..MixtureOutcome::default() }),
            ..workshop.outcome(&self.standing, models, self.converged)
        }
    }
}
