//! pFedMe (Dinh, Tran, Nguyen: Personalized federated learning with Moreau envelopes, 2020). Every client's own model is the
//! minimiser of its loss near the common one; the common one descends what that leaves, the Moreau envelope.
//!
//! ```text
//! w ← random
//! for each round, each client i in M, from w_i ← w, R times on a batch:
//!   θ_i ← a few steps on f_i(θ) + λ/2 ‖θ − w_i‖², from the last θ_i
//!   w_i ← w_i − η λ (w_i − θ_i)
//!   w_i is sent, θ_i is kept;  w ← (1 − β) w + β mean of the w_i
//! ```
//!
//! A client is served by θ_i; unseen clients by w. Differences from the paper: all clients asked in a round count in the mean, with
//! β = 1 by default.

use super::parts::cluster_models::{Layer, PersonalModels, losses, note_stamps};
use super::parts::training::plain_steps_only;
use super::*;
use crate::federation::work::TrainNearby;

settings! {
    /// The settings of the method `pfedme`.
    pub struct PfedMeSettings {
        /// how strongly the common model pulls at a client's own, λ; auto is 15, or less where the step is too large for it
        pull: Auto<f64> [above 0.0..=1e18] = "auto",
        /// steps towards a client's own model on each batch
        inner_steps: u32 [1..=1 << 20] = 5,
        /// their size (default: the step of training, or less where the pull is strong)
        inner_step: Option<f64> [above 0.0..=1e6],
        /// how far the common model goes to the clients' mean, β
        server_step: f64 [above 0.0..=10.0] = 1.0,
        /// what a client's model counts in the mean
        weight: Weight = "uniform",
        /// what it lies over, and how clients train; step is η
        layer: Layer,
    }

    fn check(&self, check: &mut Check) {
        plain_steps_only(check, "steps of the envelope are plain ones");
    }
}

impl MethodSettings for PfedMeSettings {
    const NAME: &str = "pfedme";
    const SUMMARY: &str = "a model of every client's own near the common one, by Moreau envelopes";
    const PAPER: &str = "Dinh, Tran, Nguyen 2020";

    fn needs(&self) -> Needs {
        self.layer.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![Disclosure::sums::<TrainNearby>(Phase::Train, self.layer.training.schedule.rounds, "the mean of models")]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let state = PersonalModels::over(&setup)?;
        Ok(Box::new(PfedMe { trainer: self.layer.trainer(&setup), settings: self, state }))
    }
}

struct PfedMe {
    settings: PfedMeSettings,
    trainer: Trainer,
    /// w, one in every cluster, and θ_i.
    state: PersonalModels,
}

impl Method for PfedMe {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let PfedMeSettings { inner_steps, inner_step, server_step, weight, .. } = self.settings;
        let PersonalModels { base, stamps } = &mut self.state;
        let asked = self.trainer.participants(room.round(), room);
        let plan = self.trainer.plan(room.round());
        // Steps of η·λ above 1 go beyond θ, and steps of more than 2/λ towards it do not come to rest.
        let strength = self.settings.pull.given().unwrap_or_else(|| f64::min(15.0, 0.5 / plan.step));
        let inner_step = inner_step.unwrap_or_else(|| plan.step / (1.0 + plan.step * strength));
        let mut ask = Ask::new(Phase::Train, base.models.clone(), self.trainer.gather(By::All, weight));
        let orders = base.order(&asked, &mut ask, |model| TrainNearby {
            model,
            plan: plan.clone(),
            strength,
            inner_steps,
            inner_step,
        });
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&losses(&answers, &orders))?;
        let before = base.models.clone();
        base.average((&self.trainer, weight), &answers, &orders, room);
        for (model, before) in base.models.iter_mut().zip(&before) {
            let moved = model.iter().zip(&**before).map(|(mean, old)| old + server_step * (mean - old));
            *model = Arc::new(moved.collect());
        }
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
