//! Rounds in which some of a model's parameters stay with the clients: only the others are sent and averaged.

use super::super::*;
use super::cluster_models::{ClusterModels, losses, note_stamps};
use crate::federation::work::{Receive, TrainParts, TrainingStage, between};
use std::ops::Range;

/// Which parameters stay, the rounds, and the shared parameters.
pub struct AtHome {
    pub trainer: Trainer,
    weight: Weight,
    home: Vec<Range<usize>>,
    /// The model that a client of each cluster begins with.
    starts: Vec<Params>,
    pub state: Shared,
}

#[derive(Serialize, Deserialize)]
pub struct Shared {
    /// The shared parameters of every cluster.
    base: ClusterModels,
    /// Of the clients' own models; 0 before they have one.
    stamps: Vec<u64>,
}

impl AtHome {
    /// Refuses a model all or none of whose parameters would stay; `what` says which these are.
    pub fn new(setup: &Setup, home: Vec<Range<usize>>, what: &str, weight: Weight, training: Training) -> Result<Self> {
        let width = setup.model.layout().len();
        let shared = between(&home, width);
        if home.is_empty() || shared.is_empty() {
            let fault = if home.is_empty() { "has none" } else { "has nothing else" };
            return Err(Error::settings(format!("{}: {what} stay with the clients; the model {fault}", setup.place))
                .hint("use a network with several layers"));
        }
        let mut base = ClusterModels::over(setup)?;
        let starts = base.models.clone();
        for model in &mut base.models {
            *model = Arc::new(shared.iter().flat_map(|range| model[range.clone()].iter().copied()).collect());
        }
        let state = Shared { base, stamps: vec![0; setup.rows.len()] };
        Ok(Self { trainer: training.trainer(setup), weight, home, starts, state })
    }

    /// One round; after the last one every client keeps the shared parameters as they are in the end, trained on in `last` stages.
    pub fn round(&mut self, stages: &[TrainingStage], last: &[TrainingStage], room: &mut Room) -> Result<Progress> {
        let asked = self.trainer.participants(room.round(), room);
        self.begin(&asked, room)?;
        let gather = Gather::Sum { by: By::All, weight: self.weight };
        let mut ask = Ask::new(Phase::Train, self.state.base.models.clone(), gather);
        let orders = self.order(&asked, &mut ask, stages, true);
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&losses(&answers, &orders))?;
        self.state.base.average(&answers, &orders, room);
        note_stamps(&answers, &mut self.state.stamps);
        let finished = self.trainer.is_last(room);
        if finished {
            self.begin(&Recipients::All, room)?;
            let mut ask = Ask::new(Phase::Train, self.state.base.models.clone(), Gather::Each);
            self.order(&Recipients::All, &mut ask, last, false);
            let answers = room.ask_for_any(&ask)?;
            note_stamps(&answers, &mut self.state.stamps);
        }
        Ok(self.state.base.progress(loss, finished))
    }

    /// Clients that have no model yet are handed one.
    fn begin(&mut self, asked: &Recipients, room: &mut Room) -> Result<()> {
        let Shared { base, stamps } = &mut self.state;
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

    fn order(
        &self,
        asked: &Recipients,
        ask: &mut Ask,
        stages: &[TrainingStage],
        send: bool,
    ) -> super::cluster_models::ClusterOrders<crate::federation::work::Loss> {
        let Shared { base, stamps } = &self.state;
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

    pub fn outcome(&self) -> Outcome {
        let Shared { base, stamps } = &self.state;
        Outcome { models: Vec::new(), clustered: false, ..base.outcome_with_own(stamps) }
    }
}

/// The rounds, checkpoints and outcome of a method that is nothing but rounds of [`AtHome`]; `stages` and `last` say what clients do.
macro_rules! rounds_at_home {
    ($method:ident) => {
        impl Method for $method {
            fn round(&mut self, room: &mut Room) -> Result<Progress> {
                let (stages, last) = (self.stages(room.round()), self.last());
                self.rounds.round(&stages, &last, room)
            }

            fn planned_rounds(&self) -> usize {
                self.rounds.trainer.schedule.rounds
            }

            fn outcome(&self) -> Outcome {
                self.rounds.outcome()
            }

            fn save(&self) -> Result<Option<Vec<u8>>> {
                save(&self.rounds.state).map(Some)
            }

            fn restore(&mut self, bytes: &[u8]) -> Result<()> {
                self.rounds.state = restore(bytes)?;
                Ok(())
            }
        }
    };
}
pub(in crate::methods) use rounds_at_home;
