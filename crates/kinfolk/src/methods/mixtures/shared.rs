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
    workshop: Workshop,
    until: Until,
    place: Place,
    state: Common,
}

impl SharedComponents {
    pub(in crate::methods) fn ready(setup: &Setup, settings: CommonOrder, place: Place) -> Result<Box<dyn Method>> {
        let workshop = Workshop::new(setup, &settings.fits, settings.orders)?;
        Ok(Box::new(Self { workshop, until: settings.until, place, state: Common::new(setup.rows.len()) }))
    }

    /// The components as they travel, to all that have a mixture.
    fn to_everybody(&self) -> (Vec<Params>, Vec<(u32, Option<usize>)>) {
        let shared = &self.state.params[..self.workshop.shape.scatter().end];
        let asked = self.state.standing.fitted().map(|client| (client, Some(0))).collect();
        (vec![Arc::new(shared.to_vec())], asked)
    }
}

impl Method for SharedComponents {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let shape = self.workshop.shape;
        self.workshop.fit(&mut self.state.standing, Parts::Shared, room)?;
        if self.state.params.is_empty() {
            match self.state.standing.mean_fit(&self.workshop) {
                Some(fit) => self.state.params = fit,
                None => return Ok(Progress::of(None, self.state.pass_round(&self.until))),
            }
        }
        let step = match self.place {
            Place::Clients => self.workshop.plain_step(Rule::Maximise, Parts::Shared),
            Place::Server => self.workshop.plain_step(Rule::Stay, Parts::Statistics(Detail::Full)),
        };
        let (models, asked) = self.to_everybody();
        let gather = Gather::Sum { by: By::All, weight: Weight::Uniform };
        let (answers, orders) = self.workshop.step(&mut self.state.standing, (models, &asked), &step, gather, room)?;
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
        let complete = self.state.standing.is_complete(&answers);
        let finished = self.state.end_round(&self.workshop, &before, complete, &self.until);
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
        let mut outcome = self.state.outcome(&self.workshop);
        if !self.state.delivered && !self.state.params.is_empty() {
            let shared = self.to_everybody().0.remove(0);
            let drafts = self.state.standing.stamps.iter().map(|&stamp| (stamp > 0).then(|| shared.clone()));
            outcome.mixture = outcome.mixture.map(|mixture| MixtureOutcome { drafts: drafts.collect(), ..mixture });
        }
        outcome
    }

    keep_state!();
}
