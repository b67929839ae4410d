//! A client's training as it is ordered.

use super::Sample;
use crate::aggregate::Weight;
use crate::privacy::noise::Source;
use serde::{Deserialize, Serialize};
use std::ops::Range;

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
    /// What acts on every step beside the loss.
    pub terms: Terms,
    /// How steps shrink, where they end, and what is sent.
    pub course: Course,
}

impl Plan {
    /// So many plain steps of descent on all rows.
    pub fn steps(count: u32, step: f64) -> Self {
        let optimiser = Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 };
        let amount = Amount::Steps(count);
        Self { sample: Sample::FULL, amount, step, optimiser, terms: Terms::default(), course: Course::PLAIN }
    }

    pub(crate) fn centres(&self) -> impl Iterator<Item = usize> {
        self.terms.pulls.iter().map(|pull| pull.centre)
    }
}

/// What acts on every step beside the loss.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Models of the ask that pull at the parameters: proximal terms.
    pub pulls: Vec<Pull>,
    /// The model whose parameters are added to every gradient: a correction, which a client loads.
    #[serde(skip)]
    pub(crate) tilt: Option<usize>,
    /// Parameters that no step changes.
    #[serde(skip)]
    pub(crate) frozen: Vec<Range<usize>>,
    /// What hides single rows in every step.
    #[serde(skip)]
    pub(crate) hidden: Option<Box<HiddenRows>>,
}

/// Steps that hide single rows: each is in a step by chance, its gradient is cut to a length, and noise is added.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HiddenRows {
    /// The chance of a row to be in a step.
    pub(crate) rate: f64,
    /// The length to which a row's gradient is cut.
    pub(crate) clip: f64,
    /// The noise of the sum of gradients over that length.
    pub(crate) noise: f64,
    /// Where noise and samples come from.
    pub(crate) source: Source,
}

impl Terms {
    /// The model whose parameters are added to every gradient.
    #[doc(hidden)]
    pub fn tilt(&self) -> Option<usize> {
        self.tilt
    }

    /// Parameters that no step changes.
    #[doc(hidden)]
    pub fn frozen(&self) -> &[Range<usize>] {
        &self.frozen
    }

    /// Whether steps hide single rows.
    #[doc(hidden)]
    pub fn hides_rows(&self) -> bool {
        self.hidden.is_some()
    }

    /// Whether steps follow the loss alone.
    pub(crate) fn is_empty(&self) -> bool {
        self.pulls.is_empty() && self.tilt.is_none() && self.frozen.is_empty() && self.hidden.is_none()
    }
}

/// How long a client trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Amount {
    /// Number of steps.
    Steps(u32),
    /// Number of passes over the rows.
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

/// How gradients become steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Optimiser {
    /// Gradient descent: v ← momentum·v + g + weight_decay·θ, θ ← θ − step·v.
    Descent {
        /// 0 is plain descent.
        momentum: f64,
        /// Strength of ½·weight_decay·‖θ‖².
        weight_decay: f64,
    },
    /// Adam with bias correction; weight decay is added to the gradient.
    Adam {
        /// Strength of ½·weight_decay·‖θ‖².
        weight_decay: f64,
    },
}

/// How the steps of one training shrink, where they end, and what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// Step t, from 1, is the step size divided by t.
    pub fading: bool,
    /// The mean of the models after each step, weighted by t, instead of the last model.
    pub averaged: bool,
    /// No further step once the gradient, with weight decay, is no longer than this; 0 for all steps.
    pub tolerance: f64,
}

impl Course {
    /// Equal steps, all of them, and the last model.
    pub const PLAIN: Course = Course { fading: false, averaged: false, tolerance: 0.0 };
}

/// How a client's mean loss enters a sum over clients: `factor` times the mean loss, or times its rows as well.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// What every mean loss is multiplied by.
    pub factor: f64,
    /// Whether the number of rows multiplies it too, which makes the mean a sum.
    pub by: Weight,
}

impl Scale {
    /// What the mean loss of a client with this many rows is multiplied by.
    pub(crate) fn of(&self, rows: usize) -> f64 {
        self.factor * self.by.of(rows)
    }
}
