//! Components that all clients share, with weights of their own: full EM, its M-step made in one of two places.

use super::*;
use crate::mixture::{Detail, Statistics, maximise};

/// Where the M-step is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::methods) enum Place {
    /// By every client; the server averages what they found.
    Clients,
    /// By the server, from the sums of the clients' E-steps.
    Server,
}

/// EM with components in common.
pub(in crate::methods) struct SharedComponents {
    training: MixtureTraining,
    until: Until,
    place: Place,
    state: Common,
}

impl SharedComponents {
    pub(in crate::methods) fn ready(setup: &Setup, settings: CommonOrder, place: Place) -> Result<Box<dyn Method>> {
        let training = MixtureTraining::with_common_order(setup, &settings)?;
        Ok(Box::new(Self { training, until: settings.until, place, state: Common::new(setup.rows.len()) }))
    }

    /// The components without weights, for all that have a mixture.
    fn models(&self) -> ClientModels {
        let shared = &self.state.params[..self.training.shape.scatter().end];
        ClientModels::shared(shared.to_vec(), self.state.rounds.fits.clients())
    }
}

impl Method for SharedComponents {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let shape = self.training.shape;
        self.training.fit(&mut self.state.rounds.fits, Parts::Shared, room)?;
        if self.state.params.is_empty() {
            match self.training.mean_fit(&self.state.rounds.fits) {
                Some(fit) => self.state.params = fit,
                None => return Ok(self.state.rounds.skip_round(&self.until)),
            }
        }
        let step = match self.place {
            Place::Clients => self.training.plain_step(Rule::Maximise, Parts::Shared),
            Place::Server => self.training.plain_step(Rule::Stay, Parts::Statistics(Detail::Full)),
        };
        let models = self.models();
        let gather = Gather::Sum { by: By::All, weight: Weight::Uniform };
        let (answers, orders) = self.training.step(&mut self.state.rounds.fits, &models, &step, gather, room)?;
        let loss = finite_loss(&answers.losses(&orders), room)?;
        let mut all = Sum::default();
        answers.orders.iter().flat_map(|order| &order.sums).for_each(|sum| all.merge(sum));
        let before = self.state.params[shape.centres()].to_vec();
        match self.place {
            _ if all.count == 0 => {}
            Place::Clients => {
                let mean = all.total.iter().map(|total| total / all.weight);
                self.state.params.iter_mut().zip(mean).for_each(|(value, mean)| *value = mean);
            }
            Place::Server => {
                maximise(&shape, &Statistics::unpack(&shape, Detail::Full, &all.total), &mut self.state.params);
            }
        }
        let Common { rounds, params } = &mut self.state;
        let moved = self.training.longest_move(&rounds.fits, &before, &params[shape.centres()]);
        let finished = rounds.end_round(&self.until, moved, rounds.fits.is_complete(&answers));
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
        let has_params = !self.state.params.is_empty();
        let drafts = if has_params { self.state.rounds.drafts(|| self.models()) } else { Vec::new() };
        self.state.outcome(&self.training, drafts)
    }

    keep_state!();
}
