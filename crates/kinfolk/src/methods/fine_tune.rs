//! Fine-tuning: averaging first, and in the end every client trains the common model on its own rows and keeps it. The baseline
//! that often wins (Yu, Bagdasaryan, Shmatikov: Salvaging federated learning by local adaptation, 2020; Cheng, Chadha, Duchi:
//! Federated asymptotics, 2021).
//!
//! ```text
//! 1  θ ← the result of FedAvg, or of the method above: a model for each of its clusters
//! 2  each client trains from its θ and keeps the result
//! ```

use super::parts::cluster_models::{Layer, PersonalModels, losses, note_stamps};
use super::parts::training::{amount, one_amount, steps};
use super::*;

settings! {
    /// The settings of the method `fine-tune`.
    pub struct FineTuneSettings {
        /// steps of fine-tuning (default: those of a round)
        tune_steps: Option<u32> [1..=1 << 31],
        /// passes over the rows of fine-tuning, instead of steps
        tune_epochs: Option<u32> [1..=1 << 31],
        /// step size of fine-tuning (default: that of the last round)
        tune_step: Option<f64> [above 0.0],
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// what it lies over, and how clients train
        layer: Layer,
    }

    fn check(&self, check: &mut Check) {
        one_amount(check, ["tune_steps", "tune_epochs"]);
    }
}

impl MethodSettings for FineTuneSettings {
    const NAME: &str = "fine-tune";
    const SUMMARY: &str = "averaging, and in the end every client trains on by itself";
    const PAPER: &str = "Yu, Bagdasaryan, Shmatikov 2020";

    fn needs(&self) -> Needs {
        self.layer.needs()
    }

    fn exposure(&self, pass: u64, _: Ability) -> Hidable {
        let schedule = &self.layer.training.schedule;
        let tuning = amount(self.tune_steps, self.tune_epochs).unwrap_or(schedule.amount());
        let averaging = if self.layer.over.is_some() { 0 } else { schedule.exposure(pass)?.steps };
        Ok(Exposure { steps: averaging.saturating_add(steps(tuning, pass)), ..Exposure::default() })
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![
            Disclosure::sums::<Train>(Phase::Train, self.layer.training.schedule.rounds, "the mean of models"),
            Disclosure::single::<Train>(Phase::Train, 1, "a model of its own, which stays with it")
                .without_vector::<Train>(),
        ]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let state = State { models: PersonalModels::over(&setup)?, averaged: false, tuned: false };
        Ok(Box::new(FineTuned { trainer: self.layer.trainer(&setup), settings: self, state }))
    }
}

struct FineTuned {
    settings: FineTuneSettings,
    trainer: Trainer,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// θ, one in every cluster, and what clients made of it.
    models: PersonalModels,
    /// Whether line 1 has just been done.
    averaged: bool,
    /// Whether line 2 has been done.
    tuned: bool,
}

impl FineTuned {
    fn averaging_rounds(&self) -> usize {
        if self.settings.layer.over.is_some() { 0 } else { self.trainer.schedule.rounds }
    }

    /// Line 2.
    fn plan(&self) -> Plan {
        let FineTuneSettings { tune_steps, tune_epochs, tune_step, .. } = self.settings;
        let trainer = self.trainer.with_draws("fine-tune");
        let plan = trainer.plan(self.averaging_rounds().saturating_sub(1));
        let amount = amount(tune_steps, tune_epochs).unwrap_or(plan.amount);
        Plan { amount, step: tune_step.unwrap_or(plan.step), ..plan }
    }
}

impl Method for FineTuned {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        if room.round() < self.averaging_rounds() {
            let loss = self.state.models.base.train(&self.trainer, self.settings.weight, room, |_, _| {})?;
            self.state.averaged = room.round() + 1 == self.averaging_rounds();
            return Ok(self.state.models.base.progress(loss, false));
        }
        let gather = Gather::Sum { by: By::All, weight: self.settings.weight };
        let mut ask = Ask::new(Phase::Train, self.state.models.base.models.clone(), gather);
        let plan = self.plan();
        let orders = self.state.models.base.order(&Recipients::All, &mut ask, |cluster| Train {
            from: Start::Model(cluster),
            plan: plan.clone(),
            keep: Keep::Instead,
        });
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&losses(&answers, &orders))?;
        note_stamps(&answers, &mut self.state.models.stamps);
        (self.state.averaged, self.state.tuned) = (false, true);
        Ok(self.state.models.base.progress(loss, true))
    }

    fn planned_rounds(&self) -> usize {
        self.averaging_rounds() + 1
    }

    fn stage(&self) -> Option<String> {
        self.state.averaged.then(|| "averaging".to_string())
    }

    fn outcome(&self) -> Outcome {
        let State { models, tuned, .. } = &self.state;
        if *tuned { models.outcome() } else { models.base.outcome() }
    }

    keep_state!();
}
