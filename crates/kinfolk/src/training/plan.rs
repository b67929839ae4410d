//! A client's training as it is ordered.

use super::{Course, Optimiser, Sample};
use serde::{Deserialize, Serialize};

/// How a client trains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The rows of every step.
    pub sample: Sample,
    /// How long.
    pub amount: Amount,
    /// Step size.
    pub step: f64,
    /// How gradients become steps.
    pub optimiser: Optimiser,
    /// Models of the ask that pull at the parameters on their way.
    pub pulls: Vec<Pull>,
    /// How steps shrink, where they end, and what is sent.
    pub course: Course,
}

impl Plan {
    /// The models that pull.
    pub(crate) fn centres(&self) -> impl Iterator<Item = usize> {
        self.pulls.iter().map(|pull| pull.centre)
    }
}

/// How long a client trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Amount {
    /// So many steps.
    Steps(u32),
    /// So many passes over the rows.
    Epochs(u32),
}

/// A centre that pulls at a client: ½·strength·‖θ − centre‖² is added to its loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pull {
    /// The centre, a model of the ask.
    pub centre: usize,
    /// How strongly it pulls.
    pub strength: f64,
}

/// What follows a choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Then {
    /// Nothing: the choice and its loss are the answer.
    Nothing,
    /// The gradient of the chosen model.
    Gradient(Sample),
    /// Training from the chosen model.
    Train(Plan),
}
