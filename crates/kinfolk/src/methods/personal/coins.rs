//! Chances, and the coins drawn by them.

use crate::rng::Key;
use crate::settings::{choices, settings};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

choices! {
    /// What chances are for: few rounds, or an end near the minimiser.
    pub enum Aim { FewRounds = "few-rounds", Accuracy = "accuracy" }
}

settings! {
    /// How many steps there are, and how likely those towards the means.
    pub struct Stepping {
        /// steps of the algorithm at most
        iterations: usize [1..=1 << 31] = 10000,
        /// chances that keep rounds few, or 0.1 and 0.3, which end nearer to the minimiser
        aim: Aim = "few-rounds",
        /// how likely a step of everybody towards the means is (default: by aim)
        chance_between: Option<f64> [0.0..=0.999],
        /// otherwise, how likely a step of a cluster towards its mean is (default: by aim)
        chance_within: Option<f64> [0.0..=0.999],
        /// L, how much a client's loss curves at most (default: asked from the clients; needed for networks)
        smoothness: Option<f64> [above 0.0],
    }
}

/// How likely the kinds of steps are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chances {
    /// p₀: of a step of everybody towards the means of the clusters and of all.
    pub between: f64,
    /// p_j: otherwise, of a step of a cluster towards its own mean.
    pub within: Vec<f64>,
}

/// What a cluster does in one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Every client descends its own loss.
    Local,
    /// Towards the cluster's mean.
    Within,
    /// Towards the cluster's mean and that of all, with everybody else.
    Between,
}

/// The coins of a run, drawn as they are needed and forgotten when every cluster is past them. Each iteration's are named
/// by its number, so that they are the same whenever they are drawn.
pub struct Coins {
    chances: Chances,
    /// ρ, where anchors are renewed at all.
    refresh: Option<f64>,
    key: Key,
    first: usize,
    drawn: VecDeque<(Vec<Step>, bool)>,
}

impl Coins {
    /// Coins from this iteration on.
    pub fn new(chances: &Chances, refresh: Option<f64>, key: Key, first: usize) -> Self {
        Self { chances: chances.clone(), refresh, key, first, drawn: VecDeque::new() }
    }

    /// Forgets what came before this iteration.
    pub fn forget(&mut self, before: usize) {
        while self.first < before && self.drawn.pop_front().is_some() {
            self.first += 1;
        }
    }

    fn draw(&mut self, iteration: usize) -> &(Vec<Step>, bool) {
        while self.first + self.drawn.len() <= iteration {
            let mut rng = self.key.clone().number((self.first + self.drawn.len()) as u64).rng();
            let everybody = rng.random::<f64>() < self.chances.between;
            let mut of = |chance: f64| match rng.random::<f64>() < chance {
                _ if everybody => Step::Between,
                true => Step::Within,
                false => Step::Local,
            };
            let steps = self.chances.within.iter().map(|&chance| of(chance)).collect();
            let refresh = self.refresh.is_some_and(|chance| rng.random::<f64>() < chance);
            self.drawn.push_back((steps, refresh));
        }
        &self.drawn[iteration - self.first]
    }

    /// What a cluster does in an iteration.
    pub fn step(&mut self, cluster: usize, iteration: usize) -> Step {
        self.draw(iteration).0[cluster]
    }

    /// Whether the anchor is renewed before an iteration; it has to be before the first.
    pub fn refreshes_before(&mut self, iteration: usize) -> bool {
        self.refresh.is_some() && (iteration == 0 || self.draw(iteration - 1).1)
    }
}
