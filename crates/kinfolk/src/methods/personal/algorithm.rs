//! What tells Async-L2GD and Async-AL2SGD+ apart: how the vectors that a client keeps move.

use super::cluster::Cluster;
use super::coins::{Coins, Step};
use super::theory::{Choice, Constants};
use super::{Problem, Strengths};
use crate::error::Result;
use crate::federation::work::{Advanced, Renewal, Run};
use crate::methods::Room;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How an algorithm moves the vectors that a client keeps, the first of which is its model.
pub trait Algorithm: Clone + Send + Serialize + DeserializeOwned {
    /// Number of these vectors.
    const VECTORS: usize;
    /// Where among them the anchor is, and the gradient there; `None` without anchors.
    const ANCHOR: Option<Renewal> = None;

    /// Step size and probabilities by the algorithm's theorem, for which clients may be asked.
    fn constants(
        &mut self,
        choice: &Choice,
        problem: &Problem,
        strengths: &Strengths,
        room: &mut Room,
    ) -> Result<Constants>;

    /// θ, where gradients are taken, as a combination of the vectors.
    fn point(&self) -> Vec<f64>;

    /// One step of this size on the vectors, be they those of a client, their means, or shares of other vectors. The
    /// gradient is `rate`·θ, relative to the anchor where there is one, and what `pull` makes of it.
    fn take_step(&self, size: f64, vectors: &mut [Vec<f64>], rate: f64, pull: impl FnOnce(&mut [f64]));

    /// Local steps of this size, where an iteration is local with probability `chance`.
    fn local_steps(&self, size: f64, steps: u32, chance: f64, seed: u64) -> Run;

    /// What a cluster's clients have to send, given why it stopped and the coins to come.
    fn sends(&self, cluster: &Cluster, _: Stop, _: &mut Coins) -> Vec<Part> {
        if cluster.knows_vectors() { Vec::new() } else { vec![MODEL] }
    }

    /// ρ, the probability that anchors are renewed after an iteration.
    fn refresh(&self) -> f64 {
        0.0
    }

    /// Moves the anchors to where the clients are, by their answers.
    fn renew_anchors(&mut self, _: &[Advanced], _: &mut [Cluster], _: &Strengths) {}

    /// Whether the objective is flat at the anchor; `None` without anchors.
    fn has_converged(&self) -> Option<bool> {
        None
    }

    /// How often anchors were renewed; `None` without anchors.
    fn renewals(&self) -> Option<usize> {
        None
    }

    /// Its own numbers for the summary.
    fn describe(&self, _iterations: usize) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// Something that clients send of themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// θ, where gradients are taken.
    Point,
    Vector(usize),
}

impl Part {
    /// The combination of a client's vectors that is sent.
    pub fn shares<A: Algorithm>(self, algorithm: &A) -> Vec<f64> {
        match self {
            Part::Point => algorithm.point(),
            Part::Vector(vector) => unit(A::VECTORS, vector),
        }
    }
}

pub const MODEL: Part = Part::Vector(0);
/// The accelerated sequence z.
pub const MOMENTUM: Part = Part::Vector(1);
pub const ANCHOR_GRADIENT: Part = Part::Vector(3);

/// Why a cluster cannot go on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Its mean is not known, and is needed for this step.
    Mean(Step),
    /// It steps together with all others.
    Together,
    /// It renews its anchor together with all others.
    Renewal,
    /// All iterations are done.
    End,
}

/// The unit vector along one of so many axes.
pub fn unit(size: usize, axis: usize) -> Vec<f64> {
    (0..size).map(|place| f64::from(u8::from(place == axis))).collect()
}
