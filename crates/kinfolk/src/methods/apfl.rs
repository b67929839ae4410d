//! APFL (Deng, Kamani, Mahdavi: Adaptive personalized federated learning, 2020). A client is served by a mixture of the common model
//! and one of its own, and learns how much of each.
//!
//! ```text
//! w ← random, v_i ← w, α_i ← α
//! for each round, each client i in M, from w_i ← w:
//!   α_i ← α_i − η ⟨∇f_i(v̄_i), v_i − w_i⟩, in the first step
//!   w_i ← w_i − η ∇f_i(w_i)
//!   v_i ← v_i − η α_i ∇f_i(v̄_i),  v̄_i ← α_i v_i + (1 − α_i) w_i
//!   w_i is sent;  w ← mean of the w_i
//! ```
//!
//! A client is served by v̄_i; unseen clients by w. Differences from the paper: none known.

use super::parts::cluster_models::{Layer, PersonalModels, losses, note_stamps};
use super::parts::training::plain_steps_only;
use super::*;
use crate::federation::work::Interpolate;

settings! {
    /// The settings of the method `apfl`.
    pub struct ApflSettings {
        /// share of a client's own model at first, α
        share: f64 [0.0..=1.0] = 0.5,
        /// whether clients learn their share
        adaptive: bool = true,
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// what it lies over, and how clients train
        layer: Layer,
    }

    fn check(&self, check: &mut Check) {
        plain_steps_only(check, "mixtures of models take plain steps");
    }
}

impl MethodSettings for ApflSettings {
    const NAME: &str = "apfl";
    const SUMMARY: &str = "a mixture of the common model and one of the client's own, its share learned";
    const PAPER: &str = "Deng, Kamani, Mahdavi 2020";

    fn needs(&self) -> Needs {
        self.layer.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![Disclosure::sums::<Interpolate>(Phase::Train, self.layer.training.schedule.rounds, "the mean of models")]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let shares = vec![self.share; setup.rows.len()];
        let state = State { models: PersonalModels::over(&setup)?, shares };
        Ok(Box::new(Apfl { trainer: self.layer.trainer(&setup), settings: self, state }))
    }
}

struct Apfl {
    settings: ApflSettings,
    trainer: Trainer,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// w, one in every cluster, and v̄_i with v_i.
    models: PersonalModels,
    /// α_i, as clients said last.
    shares: Vec<f64>,
}

impl Method for Apfl {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let State { models: PersonalModels { base, stamps }, shares } = &mut self.state;
        let asked = self.trainer.participants(room.round(), room);
        let plan = self.trainer.plan(room.round());
        let gather = self.trainer.gather(By::All, self.settings.weight);
        let mut ask = Ask::new(Phase::Train, base.models.clone(), gather);
        let orders = base.order_by(&asked, stamps, &mut ask, |model, stamp| Interpolate {
            model,
            stamp: (stamp > 0).then_some(stamp),
            share: self.settings.share,
            adaptive: self.settings.adaptive,
            plan: plan.clone(),
        });
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&losses(&answers, &orders))?;
        base.average((&self.trainer, self.settings.weight), &answers, &orders, room);
        for &(_, order) in &orders {
            let answer = answers.of(order);
            answer.each().for_each(|(client, answer)| shares[client as usize] = answer.share);
            // Where only sums are told, everybody counts as the mean.
            let told = answer.slots.iter().filter(|slot| slot.count > 0);
            for share in told.map(|slot| slot.numbers[1] / slot.count as f64) {
                answer.clients.iter().for_each(|&client| shares[client as usize] = share);
            }
        }
        note_stamps(&answers, stamps);
        Ok(base.progress(loss, self.trainer.is_last(room)))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        let State { models, shares } = &self.state;
        let mut outcome = models.outcome();
        let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        outcome.extra.insert("share_of_own".into(), mean);
        outcome
    }

    keep_state!();
}
