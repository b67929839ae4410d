//! Probabilities of the kinds of steps, and the coins drawn by them.

use crate::rng::Key;
use rand::RngExt;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chances {
    /// p₀: a step of everybody towards the means of the clusters and of all.
    pub between: f64,
    /// p_j: otherwise, a step of a cluster towards its own mean.
    pub within: Vec<f64>,
}

impl Chances {
    /// (1 − p₀)(1 − p_j).
    pub fn local(&self, cluster: usize) -> f64 {
        (1.0 - self.between) * (1.0 - self.within[cluster])
    }

    /// Expected rounds between clusters and within each of them, where clients of a cluster are pulled alike and the anchor
    /// is renewed with probability `refresh`.
    pub fn expected_rounds(&self, iterations: usize, refresh: f64) -> (f64, Vec<f64>) {
        let iterations = iterations.max(1) as f64;
        let all_within: f64 = self.within.iter().product();
        let apart = 1.0 - self.between;
        // A renewed anchor tells the means too: a step right after it needs no round.
        let unrenewed = 1.0 - refresh;
        // Going back from a step of everybody: nothing but steps within clusters until the last time all means were known.
        let known = (1.0 - unrenewed * apart) / (1.0 - unrenewed * apart * all_within);
        let within = |chance: &f64| apart * apart * unrenewed * chance * (1.0 - chance) * iterations;
        (self.between * (1.0 - known) * iterations, self.within.iter().map(within).collect())
    }
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

/// The coins of a run, drawn as they are needed and forgotten when every cluster is past them. Each iteration's are keyed
/// by its number, so that they are the same whenever they are drawn.
pub struct Coins {
    chances: Chances,
    /// ρ, where there are anchors.
    refresh: Option<f64>,
    key: Key,
    iterations: usize,
    first: usize,
    drawn: VecDeque<(Vec<Step>, bool)>,
}

impl Coins {
    /// Coins of so many iterations, from the given one on.
    pub fn new(chances: &Chances, refresh: Option<f64>, key: Key, iterations: usize, first: usize) -> Self {
        Self { chances: chances.clone(), refresh, key, iterations, first, drawn: VecDeque::new() }
    }

    pub fn forget(&mut self, before: usize) {
        while self.first < before && self.drawn.pop_front().is_some() {
            self.first += 1;
        }
    }

    fn draw(&mut self, iteration: usize) -> &(Vec<Step>, bool) {
        while self.first + self.drawn.len() <= iteration {
            let mut rng = self.key.clone().number((self.first + self.drawn.len()) as u64).rng();
            let everybody = rng.random::<f64>() < self.chances.between;
            let mut step = |chance: &f64| match rng.random::<f64>() < *chance {
                _ if everybody => Step::Between,
                true => Step::Within,
                false => Step::Local,
            };
            let steps = self.chances.within.iter().map(&mut step).collect();
            let refresh = self.refresh.is_some_and(|chance| rng.random::<f64>() < chance);
            self.drawn.push_back((steps, refresh));
        }
        &self.drawn[iteration - self.first]
    }

    pub fn step(&mut self, cluster: usize, iteration: usize) -> Step {
        self.draw(iteration).0[cluster]
    }

    /// Whether there is an iteration of this number, and it is a step towards means.
    pub fn averages(&mut self, cluster: usize, iteration: usize) -> bool {
        iteration < self.iterations && self.step(cluster, iteration) != Step::Local
    }

    /// Whether the anchor is renewed before an iteration; it has to be before the first.
    pub fn refreshes_before(&mut self, iteration: usize) -> bool {
        self.refresh.is_some() && (iteration == 0 || self.draw(iteration - 1).1)
    }
}
