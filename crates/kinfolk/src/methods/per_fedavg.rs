//! Per-FedAvg (Fallah, Mokhtari, Ozdaglar: Personalized federated learning with theoretical guarantees: a model-agnostic
//! meta-learning approach, 2020). A common model that is good not as it is, but after one step on a client's own rows.
//!
//! ```text
//! w ← random
//! for each round, each client i in M, from w_i ← w, on batches D, D', D'':
//!   w_i ← w_i − β (I − α ∇²f_i(w_i; D'')) ∇f_i(w_i − α ∇f_i(w_i; D); D'), sent
//!   w ← mean of the w_i
//! in the end each client: w_i ← w − α ∇f_i(w), kept
//! ```
//!
//! With `hessian = "none"` the matrix is left out (the paper's FO); with "difference" its product is a difference of two gradients (HF).
//! Differences from the paper: none known.

use super::parts::cluster_models::{Layer, PersonalModels, losses, note_stamps};
use super::parts::training::plain_steps_only;
use super::*;
use crate::federation::work::MetaTrain;

choices! {
    /// The second-order part of the meta-gradient.
    pub enum Hessian { None = "none", Difference = "difference" }
}

settings! {
    /// The settings of the method `per-fedavg`.
    pub struct PerFedAvgSettings {
        /// the step that a client takes in the end, α (default: half the step of training)
        inner_step: Option<f64> [above 0.0..=1e6],
        /// the second-order part: left out (FO), or from a difference of gradients (HF)
        hessian: Hessian = "none",
        /// steps of every client in the end
        tune_steps: u32 [1..=1 << 31] = 1,
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// what it lies over, and how clients train; step is β
        layer: Layer,
    }

    fn check(&self, check: &mut Check) {
        plain_steps_only(check, "meta-gradients are for plain steps");
    }
}

impl MethodSettings for PerFedAvgSettings {
    const NAME: &str = "per-fedavg";
    const SUMMARY: &str = "a common model that is good after a step of the client's own";
    const PAPER: &str = "Fallah, Mokhtari, Ozdaglar 2020";

    fn needs(&self) -> Needs {
        self.layer.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![
            Disclosure::sums::<MetaTrain>(Phase::Train, self.layer.training.schedule.rounds, "the mean of models"),
            Disclosure::single::<Train>(Phase::Train, 1, "a model of its own, which stays with it")
                .without_vector::<Train>(),
        ]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let state = State { models: PersonalModels::over(&setup)?, tuned: false };
        Ok(Box::new(PerFedAvg { trainer: self.layer.trainer(&setup), settings: self, state }))
    }
}

struct PerFedAvg {
    settings: PerFedAvgSettings,
    trainer: Trainer,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// w, one in every cluster, and what clients made of it.
    models: PersonalModels,
    /// Whether clients have taken their own step.
    tuned: bool,
}

impl PerFedAvg {
    fn inner_step(&self, round: usize) -> f64 {
        // With a step α of more than 1/L meta-gradients point uphill; training may have one of 2/L.
        self.settings.inner_step.unwrap_or_else(|| 0.5 * self.trainer.step_in(round))
    }

    /// Every client's own step.
    fn tune(&mut self, room: &mut Room) -> Result<()> {
        let plan = Plan {
            amount: Amount::Steps(self.settings.tune_steps),
            step: self.inner_step(room.round()),
            ..self.trainer.with_draws("fine-tune").plan(room.round())
        };
        let gather = Gather::Sum { by: By::All, weight: self.settings.weight };
        let mut ask = Ask::new(Phase::Train, self.state.models.base.models.clone(), gather);
        self.state.models.base.order(&Recipients::All, &mut ask, |cluster| Train {
            from: Start::Model(cluster),
            plan: plan.clone(),
            keep: Keep::Instead,
        });
        note_stamps(&room.ask_for_any(&ask)?, &mut self.state.models.stamps);
        self.state.tuned = true;
        Ok(())
    }
}

impl Method for PerFedAvg {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let round = room.round();
        let asked = self.trainer.participants(round, room);
        let gather = self.trainer.gather(By::All, self.settings.weight);
        let mut ask = Ask::new(Phase::Train, self.state.models.base.models.clone(), gather);
        let difference = (self.settings.hessian == Hessian::Difference).then_some(1e-3);
        let orders = self.state.models.base.order(&asked, &mut ask, |model| MetaTrain {
            model,
            plan: self.trainer.plan(round),
            inner_step: self.inner_step(round),
            difference,
        });
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&losses(&answers, &orders))?;
        let how = (&self.trainer, self.settings.weight);
        self.state.models.base.average(how, &answers, &orders, room);
        let finished = self.trainer.is_last(room);
        if finished {
            self.tune(room)?;
        }
        Ok(self.state.models.base.progress(loss, finished))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        let State { models, tuned } = &self.state;
        if *tuned { models.outcome() } else { models.base.outcome() }
    }

    keep_state!();
}
