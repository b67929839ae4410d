//! FedAvg: one model for everybody (McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-efficient
//! learning of deep networks from decentralized data, 2017). The global baseline of every clustered method.
//!
//! ```text
//! θ ← random
//! for each round:
//!   M ← some clients
//!   each client in M trains from θ and sends its model
//!   θ ← mean of the models, weighted by rows
//! ```
//!
//! Differences from the paper: full batches by default; `weight = "uniform"` gives the plain mean.

use super::*;

settings! {
    /// The settings of the method `fedavg`.
    pub struct FedAvgSettings {
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// how clients train
        training: Training,
        /// how what they send becomes one model
        aggregating: Aggregating,
    }
}

impl MethodSettings for FedAvgSettings {
    const NAME: &str = "fedavg";
    const SUMMARY: &str = "one model for everybody, by averaging";
    const PAPER: &str = "McMahan et al. 2017";

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
        Ok(Box::new(FedAvg {
            weight: self.weight,
            model,
            trainer: self.training.trainer(&setup).aggregating(&self.aggregating),
        }))
    }
}

struct FedAvg {
    trainer: Trainer,
    weight: Weight,
    /// θ.
    model: Params,
}

impl Method for FedAvg {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let gather = self.trainer.gather(By::All, self.weight);
        let mut ask = Ask::new(Phase::Train, vec![self.model.clone()], gather);
        let train = Train::from_model(0, self.trainer.plan(room.round()));
        let order = ask.order(self.trainer.participants(room.round(), room), train);
        let answers = room.ask(&ask)?;
        let sums = self.trainer.sums(self.weight, &ask.models, &answers, &[(0, order)]);
        self.model = mean_model(&self.model, &sums[0], room.unchanged(answers.absent()));
        Ok(Progress::of(room.check_loss(&answers.of(order).losses())?, self.trainer.is_last(room)))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        Outcome { models: vec![self.model.clone()], ..Outcome::default() }
    }

    keep_state!(model);
}
