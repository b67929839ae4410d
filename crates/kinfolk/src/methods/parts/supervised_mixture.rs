//! Rounds of expectation and maximisation for mixtures of supervised models: every client is a mixture of the same models, in shares
//! of its own.

use super::super::*;
use super::training::plain_steps_only;
use crate::federation::work::TrainMixed;

settings! {
    /// What mixtures of supervised models have in common.
    pub struct Components {
        /// number of models in the mixture
        clusters: usize [1..=1000] = 3,
        /// how clients train
        training: Training,
    }

    fn check(&self, check: &mut Check) {
        plain_steps_only(check, "weighted rows are for plain steps");
    }
}

/// The models, the clients' shares, and the rounds.
pub struct SupervisedMixture {
    trainer: Trainer,
    /// Whether a row counts by p(y|x)/p(y) in place of p(y|x).
    by_rarity: bool,
    outputs: usize,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    models: Vec<Params>,
    /// How much of each model every client is.
    shares: Vec<Vec<f64>>,
    /// The shares of the classes in each model's rows, model by model; empty at first.
    classes: Vec<f64>,
}

impl SupervisedMixture {
    pub fn new(setup: &Setup, components: Components, by_rarity: bool) -> Result<Self> {
        let count = components.clusters;
        setup.want_room_for_models("clusters", 2 * count)?;
        let state = State {
            models: setup.random_models(count)?,
            shares: vec![vec![1.0 / count as f64; count]; setup.rows.len()],
            classes: Vec::new(),
        };
        Ok(Self { trainer: components.training.trainer(setup), by_rarity, outputs: setup.model.classes(), state })
    }

    /// The model that each client is most of.
    fn assignment(&self) -> Assignment {
        let largest = |shares: &Vec<f64>| crate::models::first_smallest(shares.iter().map(|share| -share)).position;
        let mut clusters = Assignment::none(self.state.models.len(), self.state.shares.len());
        (0u32..).zip(&self.state.shares).for_each(|(client, shares)| {
            clusters.put(client, largest(shares));
        });
        clusters
    }
}

impl Method for SupervisedMixture {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let State { models, shares, classes } = &mut self.state;
        let (count, width) = (models.len(), models[0].len());
        let asked = self.trainer.participants(room.round(), room);
        let mut ask = Ask::new(Phase::Train, models.clone(), Gather::Sum { by: By::All, weight: Weight::Rows });
        let mut orders = Vec::new();
        for client in (0..shares.len() as u32).filter(|&client| asked.contains(client)) {
            let work = TrainMixed {
                models: (0..count).collect(),
                shares: shares[client as usize].clone(),
                classes: if self.by_rarity { classes.clone() } else { Vec::new() },
                outputs: self.outputs as u32,
                plan: self.trainer.plan(room.round()),
            };
            orders.push(ask.order(Recipients::list(vec![client]), work));
        }
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&answers.losses(&orders))?;
        let mut sum = Sum::default();
        for &order in &orders {
            let answer = answers.of(order);
            answer.sums().iter().for_each(|other| sum.merge(other));
            answer.each().for_each(|(client, told)| shares[client as usize] = told.shares);
        }
        if let Some(mean) = sum.mean() {
            let unchanged = room.unchanged(answers.missing.len()) as f64;
            let share = sum.count as f64 / (sum.count as f64 + unchanged);
            for (model, mean) in models.iter_mut().zip(mean.chunks_exact(width)) {
                let moved = model.iter().zip(mean).map(|(old, new)| old + share * (new - old));
                *model = Arc::new(moved.collect());
            }
            *classes = class_shares(&mean[count * width..], self.outputs);
        }
        let finished = self.trainer.is_last(room);
        Ok(Progress { loss, switched: None, sizes: self.assignment().sizes(), finished })
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        let serving = Serving::Mixed { shares: self.state.shares.clone() };
        Outcome { serving, ..Outcome::of_clusters(self.state.models.clone(), self.assignment()) }
    }

    keep_state!();
}

/// Sums of weights by models and classes as shares within each model.
fn class_shares(sums: &[f64], outputs: usize) -> Vec<f64> {
    let share = |sums: &[f64]| {
        let total: f64 = sums.iter().sum();
        sums.iter().map(|sum| if total > 0.0 { sum / total } else { 1.0 / sums.len() as f64 }).collect::<Vec<_>>()
    };
    sums.chunks_exact(outputs.max(1)).flat_map(share).collect()
}
