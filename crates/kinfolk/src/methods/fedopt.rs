//! FedOpt (Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive federated optimization, 2021): FedAvg whose
//! server takes an adaptive step along the mean update. FedAdam, FedYogi and FedAdagrad by the setting `server`.
//!
//! ```text
//! θ ← random, m ← 0, v ← τ²
//! for each round:
//!   each client in M trains from θ and sends its model
//!   Δ ← mean of the models − θ,  m ← β_1 m + (1 − β_1) Δ
//!   v ← v + Δ²                                     adagrad
//!   v ← v − (1 − β_2) Δ² sign(v − Δ²)              yogi
//!   v ← β_2 v + (1 − β_2) Δ²                       adam
//!   θ ← θ + η m / (√v + τ)
//! ```
//!
//! Differences from the paper: by default η is such that the first step is as long as Δ, which is FedAvg's step; the paper's is searched on a
//! grid, because a parameter moves by about η in a round, whatever the scale of the data.

use super::*;
use crate::num::norm;

choices! {
    /// How the server makes a step of the mean update.
    pub enum ServerStep { Adam = "adam", Yogi = "yogi", Adagrad = "adagrad" }
}

settings! {
    /// The settings of the method `fedopt`.
    pub struct FedOptSettings {
        /// how the server makes a step of the mean update: FedAdam, FedYogi or FedAdagrad
        server: ServerStep = "adam",
        /// the server's step size, η; auto: the first step is as long as FedAvg's
        server_step: Auto<f64> [above 0.0..=1e18] = "auto",
        /// what the mean update keeps of earlier ones, β_1
        first: f64 [0.0..1.0] = 0.9,
        /// what its square keeps of earlier ones, β_2
        second: f64 [0.0..1.0] = 0.99,
        /// how far the step adapts to small updates, τ
        adaptivity: f64 [above 0.0..=1e18] = 0.001,
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// how clients train
        training: Training,
        /// how what they send becomes one model
        aggregating: Aggregating,
    }
}

impl MethodSettings for FedOptSettings {
    const NAME: &str = "fedopt";
    const SUMMARY: &str = "one model for everybody, by adaptive steps of the server (FedAdam, FedYogi, FedAdagrad)";
    const PAPER: &str = "Reddi et al. 2021";

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn exposure(&self, pass: u64, _: Ability) -> Hidable {
        self.training.schedule.exposure(pass)
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![Disclosure::sums::<Train>(Phase::Train, self.training.schedule.rounds, "the mean of models")]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let model = setup.common_start()?;
        let state = State {
            first: vec![0.0; model.len()],
            second: vec![self.adaptivity * self.adaptivity; model.len()],
            step: self.server_step.given(),
            model,
        };
        Ok(Box::new(FedOpt {
            trainer: self.training.clone().trainer(&setup).aggregating(&self.aggregating),
            settings: self,
            state,
        }))
    }
}

struct FedOpt {
    settings: FedOptSettings,
    trainer: Trainer,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// θ.
    model: Params,
    /// m.
    first: Vec<f64>,
    /// v.
    second: Vec<f64>,
    /// η, once it is known.
    step: Option<f64>,
}

impl FedOptSettings {
    /// The step for η = 1 along one parameter's mean update Δ; m and v are updated.
    fn step(&self, change: f64, first: &mut f64, second: &mut f64) -> f64 {
        let square = change * change;
        *first = self.first * *first + (1.0 - self.first) * change;
        *second = match self.server {
            ServerStep::Adagrad => *second + square,
            ServerStep::Yogi if *second == square => *second,
            ServerStep::Yogi => *second - (1.0 - self.second) * square * (*second - square).signum(),
            ServerStep::Adam => self.second * *second + (1.0 - self.second) * square,
        };
        *first / (second.sqrt() + self.adaptivity)
    }
}

impl Method for FedOpt {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let gather = self.trainer.gather(By::All, self.settings.weight);
        let State { model, first, second, step } = &mut self.state;
        let mut ask = Ask::new(Phase::Train, vec![model.clone()], gather);
        let train = Train::from_model(0, self.trainer.plan(room.round()));
        let order = ask.order(self.trainer.participants(room.round(), room), train);
        let answers = room.ask(&ask)?;
        let sums = self.trainer.sums(self.settings.weight, &ask.models, &answers, &[(0, order)]);
        if sums[0].count > 0 {
            let mean = mean_model(model, &sums[0], room.unchanged(answers.absent()));
            let changes: Vec<f64> = mean.iter().zip(&**model).map(|(mean, own)| mean - own).collect();
            let moments = changes.iter().zip(first.iter_mut().zip(second));
            let steps: Vec<f64> = moments.map(|(&change, (m, v))| self.settings.step(change, m, v)).collect();
            let far = norm(&steps);
            if far > 0.0 {
                let length = *step.get_or_insert_with(|| norm(&changes) / far);
                add_scaled(Arc::make_mut(model).as_mut_slice(), length, &steps);
            }
        }
        Ok(Progress::of(room.check_loss(&answers.of(order).losses())?, self.trainer.is_last(room)))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::of_model(self.state.model.clone());
        outcome.extra.extend(self.state.step.map(|step| ("server_step".into(), step)));
        outcome
    }

    keep_state!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_steps_by_hand() {
        let step = |server: ServerStep| {
            let settings =
                FedOptSettings { server, first: 0.5, second: 0.75, adaptivity: 1.0, ..FedOptSettings::default() };
            let (mut m, mut v) = (0.0, 1.0);
            [2.0, 1.0].map(|change| (settings.step(change, &mut m, &mut v), m, v))
        };
        // m: 1, then ½·1 + ½·1. v: 1 + 4 and 5 + 1; 1 + ¼·4 and 2 − ¼·1; ¾·1 + ¼·4 and ¾·1.75 + ¼.
        let of = |m: f64, v: f64| (m / (v.sqrt() + 1.0), m, v);
        assert_eq!(step(ServerStep::Adagrad), [of(1.0, 5.0), of(1.0, 6.0)]);
        assert_eq!(step(ServerStep::Yogi), [of(1.0, 2.0), of(1.0, 1.75)]);
        assert_eq!(step(ServerStep::Adam), [of(1.0, 1.75), of(1.0, 1.5625)]);
    }
}
