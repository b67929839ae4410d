//! Ditto (Li, Hu, Beirami, Smith: Ditto: fair and robust federated learning through personalization, 2021). Every client has two
//! models: its copy of the common one, which is averaged, and its own, which is pulled to the common one.
//!
//! ```text
//! θ ← random, v_i ← θ
//! for each round, each client i in M:
//!   w_i ← local steps on f_i from θ, sent
//!   v_i ← local steps on f_i(v) + λ/2 ‖v − θ‖² from v_i, kept
//!   θ ← mean of the w_i
//! ```
//!
//! A client is served by v_i; unseen clients by θ. Differences from the paper: v_i of a client that joins late begins at the θ of that
//! round.

use super::parts::cluster_models::{Layer, PersonalModels, losses, note_stamps};
use super::parts::training::{amount, one_amount, steps};
use super::*;

settings! {
    /// The settings of the method `ditto`.
    pub struct DittoSettings {
        /// how strongly the common model pulls at a client's own, λ
        pull: f64 [0.0..=1e18] = 0.1,
        /// steps for a client's own model (default: as for the common one)
        own_steps: Option<u32> [1..=1 << 31],
        /// passes over the rows for a client's own model, instead of steps
        own_epochs: Option<u32> [1..=1 << 31],
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// what it lies over, and how clients train
        layer: Layer,
    }

    fn check(&self, check: &mut Check) {
        one_amount(check, ["own_steps", "own_epochs"]);
    }
}

impl MethodSettings for DittoSettings {
    const NAME: &str = "ditto";
    const SUMMARY: &str = "a model of every client's own, pulled to the common one";
    const PAPER: &str = "Li, Hu, Beirami, Smith 2021";

    fn needs(&self) -> Needs {
        self.layer.needs()
    }

    fn exposure(&self, pass: u64, _: Ability) -> Hidable {
        let schedule = &self.layer.training.schedule;
        let own = amount(self.own_steps, self.own_epochs).unwrap_or(schedule.amount());
        let Exposure { steps: common, .. } = schedule.exposure(pass)?;
        let own = steps(own, pass).saturating_mul(schedule.rounds as u64);
        Ok(Exposure { steps: common.saturating_add(own), ..Exposure::default() })
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![
            Disclosure::sums::<Train>(Phase::Train, self.layer.training.schedule.rounds, "the mean of models"),
            Disclosure::single::<Train>(
                Phase::Train,
                self.layer.training.schedule.rounds,
                "a model of its own, which stays with it",
            )
            .without_vector::<Train>(),
        ]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let state = PersonalModels::over(&setup)?;
        Ok(Box::new(Ditto { trainer: self.layer.trainer(&setup), settings: self, state }))
    }
}

struct Ditto {
    settings: DittoSettings,
    trainer: Trainer,
    /// θ, one in every cluster, and v_i.
    state: PersonalModels,
}

impl Method for Ditto {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let DittoSettings { pull: strength, own_steps, own_epochs, weight, .. } = self.settings;
        let PersonalModels { base, stamps } = &mut self.state;
        let asked = self.trainer.participants(room.round(), room);
        let mut ask = Ask::new(Phase::Train, base.models.clone(), self.trainer.gather(By::All, weight));
        let common = self.trainer.plan(room.round());
        let own = self.trainer.with_draws("own").plan(room.round());
        let amount = amount(own_steps, own_epochs).unwrap_or(own.amount);
        let averaged = base.order(&asked, &mut ask, |cluster| Train::from_model(cluster, common.clone()));
        base.order_by(&asked, stamps, &mut ask, |cluster, stamp| {
            let mut plan = Plan { amount, ..own.clone() };
            plan.terms.pulls.push(Pull { centre: cluster, strength });
            let from = if stamp > 0 { Start::Own { stamp } } else { Start::Model(cluster) };
            Train { from, plan, keep: Keep::Instead }
        });
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&losses(&answers, &averaged))?;
        base.average((&self.trainer, weight), &answers, &averaged, room);
        note_stamps(&answers, stamps);
        Ok(base.progress(loss, self.trainer.is_last(room)))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        self.state.outcome()
    }

    keep_state!();
}
