//! A cluster's clients as the server follows them between two asks.
//!
//! As long as the server knows a cluster's mean it also knows what steps towards means do to it: they are composed into
//! one blend of the clients' vectors, and only the first of them needs an answer from the clients. That holds where all
//! clients of a cluster are pulled alike; where they are not, every such step needs one.

use super::Class;
use super::algorithm::{ANCHOR_GRADIENT, Algorithm, MODEL, MOMENTUM, Part, unit};
use crate::num::add_scaled;
use serde::{Deserialize, Serialize};

/// What the server knows of the means over a cluster's clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
enum Means {
    #[default]
    Unknown,
    /// Of θ alone.
    Point(Vec<f64>),
    /// Of every vector that moves: θ, or y and z.
    Vectors(Vec<Vec<f64>>),
}

/// The gradient of a step towards means, for a client pulled with γ: γ·[own·(θ − θ̄_j) + all·(θ − θ̄)].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanPull {
    pub own: f64,
    pub all: f64,
}

impl MeanPull {
    /// The gradient is γ·(rate·θ − target).
    pub fn rate(self) -> f64 {
        self.own + self.all
    }

    pub fn target(self, own: &[f64], all: &[f64]) -> Vec<f64> {
        own.iter().zip(all).map(|(own, all)| self.own * own + self.all * all).collect()
    }
}

/// A cluster between two asks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Cluster {
    pub number: usize,
    /// The next iteration.
    pub time: usize,
    /// What clients have yet to do: a blend of their vectors, then local steps. For every class of clients and vector, the
    /// blend has shares of the client's vectors and behind them of the targets.
    pub blends: Vec<Vec<Vec<f64>>>,
    pub targets: Vec<Vec<f64>>,
    pub local: u32,
    means: Means,
    /// The last known mean of the clients' models.
    pub mean: Vec<f64>,
    /// The means of the anchors and of the gradients there; 0 without anchors.
    pub anchor: Vec<f64>,
    pub anchor_gradient: Vec<f64>,
    /// Whether the anchor was renewed before the next iteration.
    pub renewed: bool,
}

impl Cluster {
    /// A cluster whose clients all begin at `start`.
    pub fn new<A: Algorithm>(number: usize, classes: usize, start: &[f64]) -> Self {
        let zero = vec![0.0; start.len()];
        Self {
            number,
            blends: vec![identity(A::VECTORS); classes],
            means: Means::Vectors(vec![start.to_vec(); A::VECTORS.min(2)]),
            mean: start.to_vec(),
            anchor: if A::ANCHOR.is_some() { start.to_vec() } else { zero.clone() },
            anchor_gradient: zero,
            ..Self::default()
        }
    }

    pub fn knows_mean(&self) -> bool {
        self.local == 0 && self.means != Means::Unknown
    }

    pub fn knows_vectors(&self) -> bool {
        self.local == 0 && matches!(self.means, Means::Vectors(_))
    }

    /// Whether all clients are pulled alike.
    pub fn is_uniform(&self) -> bool {
        self.blends.len() == 1
    }

    /// The mean of θ over the clients.
    pub fn point<A: Algorithm>(&self, algorithm: &A) -> Vec<f64> {
        match &self.means {
            Means::Unknown => self.mean.clone(),
            Means::Point(point) => point.clone(),
            Means::Vectors(means) => {
                let mut point = vec![0.0; self.mean.len()];
                let vectors = means.iter().chain([&self.anchor]);
                vectors.zip(algorithm.point()).for_each(|(mean, share)| add_scaled(&mut point, share, mean));
                point
            }
        }
    }

    pub fn step_locally(&mut self) {
        self.local += 1;
        self.pass_iteration();
    }

    /// Every client steps towards the means. `all` is the mean of θ over everybody, less that of the anchors.
    pub fn step_towards_means<A: Algorithm>(
        &mut self,
        (algorithm, size): (&A, f64),
        classes: &[Class],
        pull: MeanPull,
        all: &[f64],
    ) {
        let rate = pull.rate();
        let mut own = self.point(algorithm);
        add_scaled(&mut own, -1.0, &self.anchor);
        let target = pull.target(&own, all);
        for (class, blend) in classes.iter().zip(&mut self.blends) {
            blend.iter_mut().for_each(|shares| shares.push(0.0));
            algorithm.take_step(size, blend, class.gamma * rate, |gradient| {
                *gradient.last_mut().unwrap_or(&mut 0.0) -= class.gamma;
            });
        }
        match (&mut self.means, classes) {
            (Means::Vectors(means), [class]) => {
                if A::ANCHOR.is_some() {
                    means.extend([self.anchor.clone(), self.anchor_gradient.clone()]);
                }
                algorithm.take_step(size, means, class.gamma * rate, |gradient| {
                    add_scaled(gradient, -class.gamma, &target);
                });
                means.truncate(2);
                self.mean.clone_from(&means[0]);
            }
            (means, _) => *means = Means::Unknown,
        }
        self.targets.push(target);
        self.pass_iteration();
    }

    fn pass_iteration(&mut self) {
        self.time += 1;
        self.renewed = false;
    }

    /// Takes in the mean of what the clients sent, which have now done all they had to do; `None` where nobody answered.
    pub fn learn(&mut self, sends: &[Part], sent: Option<Vec<f64>>) {
        let width = self.mean.len();
        let vectors = self.blends[0].len();
        self.local = 0;
        self.targets.clear();
        self.blends.iter_mut().for_each(|blend| *blend = identity(vectors));
        let part = |wanted: Part| {
            let place = sends.iter().position(|part| *part == wanted)?;
            sent.as_ref().map(|sent| sent[place * width..(place + 1) * width].to_vec())
        };
        let (point, model, momentum) = (part(Part::Point), part(MODEL), part(MOMENTUM));
        if let Some(mean) = model.as_ref().or(point.as_ref()) {
            self.mean.clone_from(mean);
        }
        if let Some(gradient) = part(ANCHOR_GRADIENT) {
            self.anchor_gradient = gradient;
        }
        self.means = match (point, model, momentum) {
            (Some(point), ..) => Means::Point(point),
            (_, Some(model), Some(momentum)) => Means::Vectors(vec![model, momentum]),
            (_, Some(model), None) if vectors == 1 => Means::Vectors(vec![model]),
            (_, Some(_), None) => Means::Unknown,
            // Nothing was asked for because all was known, or nobody answered: what was known last has to do.
            _ => match std::mem::take(&mut self.means) {
                Means::Unknown => Means::Point(self.mean.clone()),
                known => known,
            },
        };
    }
}

fn identity(size: usize) -> Vec<Vec<f64>> {
    (0..size).map(|row| unit(size, row)).collect()
}
