//! Rounds in which some of a model's parameters stay with the clients: only the others are sent and averaged.

use super::super::*;
use super::cluster_models::{ClusterOrders, Layer, PersonalModels, losses, note_stamps};
use crate::federation::work::{Loss, Moves, Receive, TrainParts, TrainingStage, between};
use std::ops::Range;

/// A method that averages the shared parameters.
pub struct AtHome {
    trainer: Trainer,
    weight: Weight,
    home: Vec<Range<usize>>,
    /// The model that a client of each cluster begins with.
    starts: Vec<Params>,
    work: AtHomeWork,
    /// The shared parameters of every cluster, and what clients keep.
    state: PersonalModels,
}

/// What clients do.
pub struct AtHomeWork {
    /// What is trained in a round, one after the other, by its amount where that is not a round's.
    pub stages: Vec<(Moves, Option<Amount>)>,
    /// What each trains by itself when the last round is over.
    pub last: Vec<(Moves, Option<Amount>)>,
}

impl AtHome {
    /// The method that does so. Refuses a model all or none of whose parameters would stay; `what` says which these are.
    pub fn method(
        setup: &Setup,
        home: Vec<Range<usize>>,
        what: &str,
        (weight, layer): (Weight, Layer),
        work: AtHomeWork,
    ) -> Result<Box<dyn Method>> {
        let width = setup.model.layout().len();
        let shared = between(&home, width);
        if home.is_empty() || shared.is_empty() {
            let fault = if home.is_empty() { "has none" } else { "has nothing else" };
            return Err(Error::settings(format!("{}: {what} stay with the clients; the model {fault}", setup.place))
                .hint("use a network with several layers"));
        }
        let mut state = PersonalModels::over(setup)?;
        let starts = state.base.models.clone();
        for model in &mut state.base.models {
            *model = Arc::new(shared.iter().flat_map(|range| model[range.clone()].iter().copied()).collect());
        }
        Ok(Box::new(Self { trainer: layer.trainer(setup), weight, home, starts, work, state }))
    }

    /// The trainings of a round; each draws batches of its own.
    fn stages(&self, stages: &[(Moves, Option<Amount>)], purpose: &str, round: usize) -> Vec<TrainingStage> {
        let stage = |(place, &(moves, amount)): (usize, &(Moves, Option<Amount>))| {
            let plan = self.trainer.with_draws(&format!("{purpose} {place}")).plan(round);
            TrainingStage { plan: Plan { amount: amount.unwrap_or(plan.amount), ..plan }, moves }
        };
        stages.iter().enumerate().map(stage).collect()
    }

    /// Clients that have no model yet are handed one.
    fn begin(&mut self, asked: &Recipients, room: &mut Room) -> Result<()> {
        let PersonalModels { base, stamps } = &mut self.state;
        let new = (0..stamps.len() as u32).filter(|&client| asked.contains(client) && stamps[client as usize] == 0);
        let new: Vec<u32> = new.collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut ask = Ask::new(Phase::Train, self.starts.clone(), Gather::Each);
        base.order(&Recipients::list(new), &mut ask, |cluster| Receive { models: vec![cluster], keep: true });
        note_stamps(&room.ask_for_any(&ask)?, stamps);
        Ok(())
    }

    fn order(&self, asked: &Recipients, ask: &mut Ask, stages: &[TrainingStage], send: bool) -> ClusterOrders<Loss> {
        let PersonalModels { base, stamps } = &self.state;
        let have = (0..stamps.len() as u32).filter(|&client| asked.contains(client) && stamps[client as usize] > 0);
        let have = Recipients::list(have.collect());
        base.order_by(&have, stamps, ask, |shared, stamp| TrainParts {
            shared,
            home: self.home.clone(),
            stamp,
            stages: stages.to_vec(),
            send,
        })
    }
}

impl Method for AtHome {
    /// After the last round every client keeps the shared parameters as they are in the end.
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let asked = self.trainer.participants(room.round(), room);
        self.begin(&asked, room)?;
        let gather = self.trainer.gather(By::All, self.weight);
        let mut ask = Ask::new(Phase::Train, self.state.base.models.clone(), gather);
        let orders = self.order(&asked, &mut ask, &self.stages(&self.work.stages, "stage", room.round()), true);
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&losses(&answers, &orders))?;
        self.state.base.average((&self.trainer, self.weight), &answers, &orders, room);
        note_stamps(&answers, &mut self.state.stamps);
        let finished = self.trainer.is_last(room);
        if finished {
            self.begin(&Recipients::All, room)?;
            let mut ask = Ask::new(Phase::Train, self.state.base.models.clone(), gather);
            let last = self.stages(&self.work.last, "last", room.round());
            self.order(&Recipients::All, &mut ask, &last, false);
            let answers = room.ask_for_any(&ask)?;
            note_stamps(&answers, &mut self.state.stamps);
        }
        Ok(self.state.base.progress(loss, finished))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        Outcome { models: Vec::new(), clustered: false, ..self.state.outcome() }
    }

    keep_state!();
}
