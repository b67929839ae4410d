//! MR-MTL, mean-regularised multi-task learning (Liu, Hu, Wu, Smith: On privacy and personalization in cross-silo federated
//! learning, 2022). Every client has a model of its own, pulled to the mean of all; over the clusters of a method above, to the
//! mean of its cluster.
//!
//! ```text
//! w_i ← θ ← random
//! for each round, each client i in M:
//!   w_i ← local steps on f_i(w) + λ/2 ‖w − θ‖² from w_i, kept and sent
//!   θ ← mean of the w_i
//! ```
//!
//! A client is served by w_i; unseen clients by θ. Differences from the paper: a client that joins late begins at θ.

use super::parts::cluster_models::{Layer, PersonalModels, losses, note_stamps};
use super::*;

settings! {
    /// The settings of the method `mr-mtl`.
    pub struct MrMtlSettings {
        /// how strongly the mean pulls at a client's model, λ
        pull: f64 [0.0..=1e18] = 0.1,
        /// what a client's model counts in the mean
        weight: Weight = "uniform",
        /// what it lies over, and how clients train
        layer: Layer,
    }
}

impl MethodSettings for MrMtlSettings {
    const NAME: &str = "mr-mtl";
    const SUMMARY: &str = "a model of every client's own, pulled to the mean of them";
    const PAPER: &str = "Liu, Hu, Wu, Smith 2022";

    fn needs(&self) -> Needs {
        self.layer.needs()
    }

    fn exposure(&self, pass: u64, _: Ability) -> Hidable {
        Ok(Exposure { sums: 0, ..self.layer.training.schedule.exposure(pass)? })
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![Disclosure::sums::<Train>(Phase::Train, self.layer.training.schedule.rounds, "the mean of models")]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let state = PersonalModels::over(&setup)?;
        Ok(Box::new(MrMtl { trainer: self.layer.trainer(&setup), settings: self, state }))
    }
}

struct MrMtl {
    settings: MrMtlSettings,
    trainer: Trainer,
    /// θ, one in every cluster, and w_i.
    state: PersonalModels,
}

impl Method for MrMtl {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let MrMtlSettings { pull: strength, weight, .. } = self.settings;
        let PersonalModels { base, stamps } = &mut self.state;
        let asked = self.trainer.participants(room.round(), room);
        let plan = self.trainer.plan(room.round());
        let mut ask = Ask::new(Phase::Train, base.models.clone(), self.trainer.gather(By::All, weight));
        let orders = base.order_by(&asked, stamps, &mut ask, |cluster, stamp| {
            let mut plan = plan.clone();
            plan.terms.pulls.push(Pull { centre: cluster, strength });
            let from = if stamp > 0 { Start::Own { stamp } } else { Start::Model(cluster) };
            Train { from, plan, keep: Keep::Also }
        });
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&losses(&answers, &orders))?;
        base.average((&self.trainer, weight), &answers, &orders, room);
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
