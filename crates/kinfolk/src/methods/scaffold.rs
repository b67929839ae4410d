//! SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: stochastic controlled averaging for federated learning, 2020).
//! Clients know in which direction their own loss pulls them away from everybody's, and correct every step by it.
//!
//! ```text
//! x ← random, c ← 0, c_i ← 0
//! for each round, each client i in M:
//!   y_i ← x, then K steps y_i ← y_i − η (∇f_i(y_i) − c_i + c)
//!   c_i⁺ ← c_i − c + (x − y_i)/(K η); y_i and c_i⁺ − c_i are sent, c_i⁺ is kept
//!   x ← x + η_g (mean of the y_i − x),  c ← c + |M|/N · mean of the c_i⁺ − c_i
//! ```
//!
//! It is the paper's second option for c_i. Differences from the paper: `weight = "rows"` weighs the y_i by rows.

use super::parts::cluster_models::{losses, note_stamps};
use super::parts::training::plain_steps_only;
use super::*;
use crate::federation::work::TrainCorrected;

settings! {
    /// The settings of the method `scaffold`.
    pub struct ScaffoldSettings {
        /// the server's step size, η_g
        server_step: f64 [above 0.0..=1e6] = 1.0,
        /// what a client's model counts in the mean
        weight: Weight = "uniform",
        /// how clients train
        training: Training,
        /// how what they send becomes one model
        aggregating: Aggregating,
    }

    fn check(&self, check: &mut Check) {
        plain_steps_only(check, "corrections are for plain steps of one size");
    }
}

impl MethodSettings for ScaffoldSettings {
    const NAME: &str = "scaffold";
    const SUMMARY: &str = "one model for everybody, every step corrected for a client's own pull";
    const PAPER: &str = "Karimireddy et al. 2020";

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![Disclosure::sums::<TrainCorrected>(
            Phase::Train,
            self.training.schedule.rounds,
            "the means of models and of corrections",
        )]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let model = setup.common_start()?;
        let state = State { control: Arc::new(vec![0.0; model.len()]), model, stamps: vec![0; setup.rows.len()] };
        Ok(Box::new(Scaffold {
            trainer: self.training.clone().trainer(&setup).aggregating(&self.aggregating),
            settings: self,
            state,
        }))
    }
}

struct Scaffold {
    settings: ScaffoldSettings,
    trainer: Trainer,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// x.
    model: Params,
    /// c.
    control: Params,
    /// Of the c_i; 0 before the first.
    stamps: Vec<u64>,
}

impl Method for Scaffold {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let State { model, control, stamps } = &mut self.state;
        let (clients, width) = (stamps.len(), model.len());
        let asked = self.trainer.participants(room.round(), room);
        let gather = self.trainer.gather(By::All, self.settings.weight);
        let mut ask = Ask::new(Phase::Train, vec![model.clone(), control.clone()], gather);
        let plan = self.trainer.plan(room.round());
        let members = (0..clients as u32).filter(|&client| asked.contains(client));
        let mut orders = Vec::new();
        for (stamp, to) in Recipients::by_stamp(members, stamps) {
            let stamp = (stamp > 0).then_some(stamp);
            orders.push((0, ask.order(to, TrainCorrected { model: 0, control: 1, stamp, plan: plan.clone() })));
        }
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&losses(&answers, &orders))?;
        // Behind its model a client sends the change of its control.
        let still = Arc::new([&model[..], &vec![0.0; width]].concat());
        let sum = self.trainer.sums(self.settings.weight, &[still], &answers, &orders).swap_remove(0);
        if let Some(mean) = sum.mean() {
            let unchanged = room.unchanged(answers.absent()) as f64;
            let share = sum.count as f64 / (sum.count as f64 + unchanged);
            let step = self.settings.server_step * share;
            let trained = Arc::make_mut(model).iter_mut().zip(&mean[..width]);
            trained.for_each(|(own, mean)| *own += step * (mean - *own));
            let of_all = sum.count as f64 / clients as f64;
            add_scaled(Arc::make_mut(control).as_mut_slice(), of_all, &mean[width..]);
        }
        note_stamps(&answers, stamps);
        Ok(Progress::of(loss, self.trainer.is_last(room)))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        Outcome::of_model(self.state.model.clone())
    }

    keep_state!();
}
