//! Work on what a client keeps between asks: its own model, and whatever else a method has it remember.
//!
//! A client keeps one or more vectors of a model's length; the first is its own model. They move in two ways: a
//! [`Blend`] mixes them with each other and with models of the ask, which is all that averaging ever does to a client;
//! a [`Run`] takes steps down the client's own loss. Both come in one order, so that a run of local steps, however long,
//! is one message.

use super::personal::MOST_VECTORS;
use super::{Portion, Sample, Start, Weight};
use serde::{Deserialize, Serialize};

/// How a client's mean loss enters a sum over clients: `factor` times the mean loss, or times its rows as well.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// What every mean loss is multiplied by.
    pub factor: f64,
    /// Whether the number of rows multiplies it too, which makes the mean a sum.
    pub by: Weight,
}

impl Scale {
    /// What the mean loss of a client with so many rows is multiplied by.
    pub fn of(&self, rows: usize) -> f64 {
        self.factor * self.by.of(rows)
    }
}

/// Moves of the vectors a client keeps: blended, then stepped; some of them are sent. With the loss goes, where there are
/// four vectors, the squared length of the fourth after the blend: how steep the objective is at the anchor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advance {
    /// The client's own vectors, or a model at which all of them begin.
    pub from: Start,
    /// How many vectors it keeps.
    pub vectors: u32,
    /// What happens to them first.
    pub blend: Option<Blend>,
    /// Steps after that.
    pub run: Option<Run>,
    /// Afterwards the first vector is copied to the third and the gradient there replaces the fourth.
    pub anchor: bool,
    /// What is sent: combinations of the vectors, one after the other.
    pub send: Vec<Vec<f64>>,
    /// The client's loss in the method's objective.
    pub scale: Scale,
}

impl Advance {
    /// Whether it only asks for what the client holds.
    pub(super) fn moves_nothing(&self) -> bool {
        self.blend.is_none() && self.run.is_none() && !self.anchor
    }

    /// Whether everything it names is among the vectors.
    pub(super) fn is_sound(&self) -> bool {
        let count = self.vectors as usize;
        let accelerated = self.anchor || self.run.as_ref().is_some_and(|run| run.acceleration.is_some());
        (1..=MOST_VECTORS).contains(&count)
            && (!accelerated || count == 4)
            && self.send.iter().all(|shares| shares.len() == count)
            && self.blend.as_ref().is_none_or(|blend| {
                blend.matrix.len() == count * count && blend.add.iter().all(|addend| addend.to < self.vectors)
            })
    }
}

/// vectors ← matrix · vectors + models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blend {
    /// Row-major, `vectors` × `vectors`.
    pub matrix: Vec<f64>,
    /// The model that is added to a vector, and how often.
    pub add: Vec<Addend>,
}

/// A model of the ask on its way into a vector.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Addend {
    /// Which vector it is added to.
    pub to: u32,
    /// Which model of the ask.
    pub model: usize,
    /// What it is multiplied by.
    pub times: f64,
}

/// Steps down the client's own loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// How many.
    pub steps: u32,
    /// Step size for the scaled loss.
    pub step: f64,
    /// The rows of every step.
    pub sample: Sample,
    /// Accelerated steps with reduced variance, on four vectors; plain descent of the first without.
    pub acceleration: Option<Acceleration>,
}

/// How accelerated steps mix the vectors y, z, x and h, where h is the whole gradient at the anchor x.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Acceleration {
    /// θ = a₁z + a₂x + (1 − a₁ − a₂)y.
    pub a: [f64; 2],
    /// z ← b₁z + (1 − b₁)θ + (b₂/step)·(y − θ).
    pub b: [f64; 2],
    /// How likely a local step is: its change of gradient is divided by it.
    pub chance: f64,
}

/// The best model of a client under the pull of a centre, and how it answers to other centres.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Respond {
    /// The centre, and how strongly it pulls.
    pub pull: Pull,
    /// Which rows the loss is about.
    pub on: Portion,
    /// What is sent.
    pub send: Answer,
    /// Whether the client keeps the model as its own.
    pub keep: bool,
    /// The client's loss in the method's objective.
    pub scale: Scale,
}

/// A centre that pulls at a client: ½·strength·‖θ − centre‖² is added to its loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pull {
    /// The centre, a model of the ask.
    pub centre: usize,
    /// How strongly it pulls.
    pub strength: f64,
}

/// What a client says of its loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Nothing but its value, and the squared distance of the client's model to the centre.
    Nothing,
    /// How its smallest value depends on the centre, as a quadratic.
    Response,
    /// The same, and the slope of that in the strength.
    ResponseAndSlope,
    /// The loss itself as a quadratic at the centre, without any pull.
    Quadratic,
}
