//! Local training: every client on its own, nothing shared. The baseline that shows what a federation is worth.
//!
//! ```text
//! each client: θ ← random, its own
//! for each round: each client trains on from its θ and keeps it
//! ```
//!
//! Models stay with the clients between rounds; only a loss goes up. With `solve = "exact"` there is one round, in which
//! every client finds the minimiser of its own loss.

use super::parts::solving::{SolveBy, exposes_minimiser, want_minimiser};
use super::parts::training::StartModel;
use super::*;
use crate::federation::work::Minimise;

settings! {
    /// The settings of the method `local`.
    pub struct LocalSettings {
        /// begin at a model of its own, or all at one
        start: StartModel = "own",
        /// train by steps, or find the minimiser of the local loss in one round
        solve: SolveBy ["steps", "exact"] = "steps",
        /// strength of ½·ridge·‖θ‖² added to every client's loss; where a client's classes separate, a small one is added anyway
        #[only_with(solve = "exact")]
        ridge: f64 [0.0..=1e18] = 0.0,
        /// how clients train
        training: Training,
    }

    fn check(&self, check: &mut Check) {
        let names = Training::SETTINGS.iter().map(|setting| setting.name).chain(["start"]);
        let of_steps: Vec<&str> = names.filter(|name| !["participation", "missing"].contains(name)).collect();
        for name in check.changed(&of_steps).into_iter().filter(|_| self.solve == SolveBy::Exact) {
            let hint = format!("leave {name} out, or set solve = \"steps\"");
            check.fault_with_hint(name, "solve = \"exact\" takes no steps", hint);
        }
    }
}

impl MethodSettings for LocalSettings {
    const NAME: &str = "local";
    const SUMMARY: &str = "every client on its own";

    fn needs(&self) -> Needs {
        let needs = self.training.needs();
        Needs { auto_step: needs.auto_step.filter(|_| self.solve == SolveBy::Steps), ..needs }
    }

    fn exposure(&self, pass: u64, ability: Ability) -> Hidable {
        match self.solve {
            SolveBy::Exact => exposes_minimiser(self.ridge, ability),
            _ => Ok(Exposure { sums: 0, ..self.training.schedule.exposure(pass)? }),
        }
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        if self.solve == SolveBy::Exact {
            return vec![
                Disclosure::single::<Minimise>(Phase::Train, 1, "a model of its own, which stays with it")
                    .without_vector::<Minimise>(),
            ];
        }
        let rounds = self.training.schedule.rounds;
        vec![
            Disclosure::single::<Train>(Phase::Train, rounds, "a model of its own, which stays with it")
                .without_vector::<Train>(),
        ]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let exact = self.solve == SolveBy::Exact;
        if exact {
            want_minimiser(&setup)?;
        }
        Ok(Box::new(Local {
            ridge: exact.then_some(self.ridge),
            common: (self.start == StartModel::Common).then(|| setup.common_start()).transpose()?,
            stamps: vec![0; setup.rows.len()],
            trainer: self.training.trainer(&setup),
        }))
    }
}

struct Local {
    trainer: Trainer,
    /// Set if clients minimise exactly.
    ridge: Option<f64>,
    common: Option<Params>,
    /// The stamp of the model that each client keeps; 0 before the first.
    stamps: Vec<u64>,
}

impl Method for Local {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let plan = self.trainer.plan(room.round());
        let asked = self.trainer.participants(room.round(), room);
        let asked = (0..self.stamps.len() as u32).filter(|&client| asked.contains(client));
        let models = self.common.iter().filter(|_| self.ridge.is_none()).cloned().collect();
        // Nothing is sent but losses.
        let mut ask = Ask::new(Phase::Train, models, Gather::Sum { by: By::All, weight: Weight::Uniform });
        // Clients that missed a round hold an older model: one order for every stamp.
        let order = |(stamp, to): (u64, Recipients)| {
            if let Some(ridge) = self.ridge {
                return ask.order(to, Minimise { ridge, keep: true });
            }
            let from = match (stamp, &self.common) {
                (0, Some(_)) => Start::Model(0),
                (0, None) => Start::Fresh { seed: self.trainer.key.clone().word("start").seed() },
                (stamp, _) => Start::Own { stamp },
            };
            ask.order(to, Train { from, plan: plan.clone(), keep: Keep::Instead })
        };
        let orders: Vec<_> = Recipients::by_stamp(asked, &self.stamps).into_iter().map(order).collect();
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&answers.losses(&orders))?;
        stamps_after(&answers).for_each(|(client, stamp)| self.stamps[client as usize] = stamp);
        Ok(Progress::of(loss, room.round() + 1 >= self.planned_rounds()))
    }

    fn planned_rounds(&self) -> usize {
        if self.ridge.is_some() { 1 } else { self.trainer.schedule.rounds }
    }

    fn outcome(&self) -> Outcome {
        let untrained = self.stamps.iter().filter(|&&stamp| stamp == 0).count();
        let note = (untrained > 0).then(|| format!("{untrained} clients never trained and have no model"));
        let serving = Serving::Own { stamps: self.stamps.clone(), clusters: None };
        Outcome { serving, notes: note.into_iter().collect(), ..Outcome::default() }
    }

    keep_state!(stamps);
}
