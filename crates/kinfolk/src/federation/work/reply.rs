//! What a client answers to an order: counts, numbers, and a vector at the model's precision. Meter, checks, sums and
//! transforms act on these parts; a kind of work gives them their types.

use super::Evaluated;
use crate::models::{Found, Packed, Precision};
use serde::{Deserialize, Serialize};

/// One client's reply to one order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply<V = Vec<f64>> {
    /// Its training rows.
    pub rows: u32,
    /// Whole numbers: a choice, rows, hits.
    pub counts: Vec<u32>,
    /// Losses and their like.
    pub numbers: Vec<f64>,
    /// A model, a gradient, or whatever else can be summed.
    pub vector: Option<V>,
}

/// A reply whose vector has the precision of the wire.
pub type PackedReply = Reply<Packed>;

/// The type of a client's answer, apart from a vector.
pub trait Answer: Sized {
    /// From the parts of a reply.
    fn read(counts: &[u32], numbers: &[f64]) -> Self;

    /// Into the parts of a reply.
    fn write(self, counts: &mut Vec<u32>, numbers: &mut Vec<f64>);
}

impl Reply {
    pub(crate) fn new(rows: u32, answer: impl Answer, vector: Option<Vec<f64>>) -> Self {
        let (mut counts, mut numbers) = (Vec::new(), Vec::new());
        answer.write(&mut counts, &mut numbers);
        Self { rows, counts, numbers, vector }
    }

    /// From what a step found.
    pub(crate) fn of(rows: u32, found: Found, tells_choice: bool) -> Self {
        match found {
            Found::Losses(losses) => Self::new(rows, losses, None),
            Found::Choice(choice, vector) if tells_choice => {
                Self::new(rows, Choice { place: choice.position as u32, loss: choice.loss }, vector)
            }
            Found::Choice(choice, vector) => Self::new(rows, Loss(choice.loss), vector),
            Found::Score(choice, losses, score) => {
                Self::new(rows, Evaluated { choice: choice as u32, losses, score }, None)
            }
        }
    }

    /// As it travels.
    pub fn pack(self, precision: Precision) -> PackedReply {
        self.map_vector(|vector| Packed::pack(&vector, precision))
    }
}

impl PackedReply {
    /// As it arrived.
    pub fn unpack(self) -> Reply {
        self.map_vector(|vector| vector.unpack())
    }
}

impl<V> Reply<V> {
    fn map_vector<W>(self, change: impl FnOnce(V) -> W) -> Reply<W> {
        let Self { rows, counts, numbers, vector } = self;
        Reply { rows, counts, numbers, vector: vector.map(change) }
    }
}

/// A loss; of training, that before the first step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss(pub f64);

impl Answer for Loss {
    fn read(_: &[u32], numbers: &[f64]) -> Self {
        Self(numbers[0])
    }

    fn write(self, _: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        numbers.push(self.0);
    }
}

/// An answer whose first number is a loss.
pub trait HasLoss: Answer {}

impl HasLoss for Loss {}

impl HasLoss for Choice {}

/// Which model was chosen, by its place among the candidates, and its loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The place among the candidates.
    pub place: u32,
    /// Its loss on the rows that decided.
    pub loss: f64,
}

impl Answer for Choice {
    fn read(counts: &[u32], numbers: &[f64]) -> Self {
        Self { place: counts[0], loss: numbers[0] }
    }

    fn write(self, counts: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        counts.push(self.place);
        numbers.push(self.loss);
    }
}

/// One number for every model that was named.
impl Answer for Vec<f64> {
    fn read(_: &[u32], numbers: &[f64]) -> Self {
        numbers.to_vec()
    }

    fn write(self, _: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        numbers.extend(self);
    }
}

/// Nothing but a vector, or nothing at all.
impl Answer for () {
    fn read(_: &[u32], _: &[f64]) -> Self {}

    fn write(self, _: &mut Vec<u32>, _: &mut Vec<f64>) {}
}

/// Relative rounding error that plausible numbers may have.
pub(crate) const ROUNDING: f64 = 1e-6;

/// What is wrong with losses below their lower bound.
pub(super) fn below(losses: &[f64], least: f64) -> Option<String> {
    let largest = losses.iter().copied().filter(|loss| loss.is_finite()).fold(1.0, larger);
    let low = losses.iter().find(|&&loss| loss < least - ROUNDING * largest.abs());
    low.map(|loss| format!("a loss of {loss:.1e}, which cannot be"))
}

/// The number of larger magnitude, or the one that is not finite.
pub(crate) fn larger(one: f64, other: f64) -> f64 {
    if one.is_nan() || one.abs() >= other.abs() { one } else { other }
}

/// The best of several models' losses; the others may be arbitrarily bad.
pub(super) fn best(losses: &[f64]) -> Option<f64> {
    let finite = losses.iter().copied().filter(|loss| loss.is_finite()).reduce(f64::min);
    finite.or(losses.first().copied())
}

pub(super) fn is_share(value: f64) -> bool {
    (-ROUNDING..=1.0 + ROUNDING).contains(&value)
}
