//! Mixtures on the rows of one client: which component each row belongs to, and the parameters that explain them best.
//!
//! Parameters lie flat, as [`Shape`] lays them out. [`expect`] is the E-step, in log space; its [`Statistics`] are sums
//! over rows, so those of several clients at the same parameters add up. [`maximise`] is the full M-step from them, and
//! their `pulls`, divided by the rows, are the gradient. [`fit()`] runs EM from several starts.

pub mod alignment;
mod fit;
mod gaussian;
mod kernels;
mod recast;
mod regression;
mod rows;
mod starts;
mod statistics;
pub mod step;
#[cfg(test)]
mod tests;
mod triangles;
mod views;

pub use fit::{Begin, Fitted, Fitting, fit};
pub use recast::{recast, relabel};
pub use rows::Rows;
pub use statistics::{Detail, Statistics};

use serde::{Deserialize, Serialize};
use std::ops::Range;
use triangles::triangle;

/// What is mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// Normal distributions of the rows.
    Gaussian(Covariance),
    /// Linear regressions of the targets on the rows.
    Regression {
        /// Whether regressions have a constant; it stands last in a centre.
        intercept: bool,
        /// How targets scatter.
        noise: Noise,
    },
}

/// How rows scatter around their component's centre.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Covariance {
    /// With variance 1 in every direction.
    Identity,
    /// With one variance for every component.
    Spherical,
    /// With a variance for every component and column.
    Diagonal,
    /// With one covariance for all components.
    Tied,
    /// With a covariance for every component.
    Full,
}

/// How targets scatter around a regression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Noise {
    /// With variance 1.
    Unit,
    /// With one estimated variance for all components.
    Common,
}

/// The form of a mixture.
///
/// Its parameters are all centres, one after the other, then the scatter, then the weights. The scatter is: nothing for
/// `Identity` and `Unit`, a variance a component for `Spherical`, one a component and column for `Diagonal`, a symmetric
/// row-major matrix for `Tied`, one a component for `Full`, one variance for `Common`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// What is mixed.
    pub family: Family,
    /// How many components there are.
    pub components: usize,
    /// How many columns the data's rows have.
    pub columns: usize,
}

impl Shape {
    /// How many numbers a centre has.
    pub fn width(&self) -> usize {
        match self.family {
            Family::Regression { intercept: true, .. } => self.columns + 1,
            _ => self.columns,
        }
    }

    /// Where the centres lie in the parameters.
    pub fn centres(&self) -> Range<usize> {
        0..self.components * self.width()
    }

    /// Where the scatter lies in the parameters.
    pub fn scatter(&self) -> Range<usize> {
        let begin = self.centres().end;
        let columns = self.columns;
        let length = match self.family {
            Family::Gaussian(Covariance::Identity) | Family::Regression { noise: Noise::Unit, .. } => 0,
            Family::Gaussian(Covariance::Spherical) => self.components,
            Family::Gaussian(Covariance::Diagonal) => self.components * columns,
            Family::Gaussian(Covariance::Tied) => columns * columns,
            Family::Gaussian(Covariance::Full) => self.components * columns * columns,
            Family::Regression { noise: Noise::Common, .. } => 1,
        };
        begin..begin + length
    }

    /// Where the weights lie in the parameters.
    pub fn weights(&self) -> Range<usize> {
        let begin = self.scatter().end;
        begin..begin + self.components
    }

    /// How many numbers the parameters are.
    pub fn len(&self) -> usize {
        self.weights().end
    }

    /// The fewest rows that can tell how they scatter: with less, a covariance is of too low a rank, and likelihoods have no
    /// bound. 1 where the scatter is given.
    pub fn least_rows(&self) -> usize {
        match self.family {
            Family::Gaussian(Covariance::Identity) | Family::Regression { noise: Noise::Unit, .. } => 1,
            Family::Gaussian(Covariance::Spherical | Covariance::Diagonal) => 2 * self.components,
            Family::Gaussian(Covariance::Tied) => self.components + self.columns,
            Family::Gaussian(Covariance::Full) => self.components * (self.columns + 1),
            Family::Regression { noise: Noise::Common, .. } => self.components * self.width() + 1,
        }
    }

    /// Whether there are no parameters, for want of components.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of them are free: a symmetric matrix counts once, and the weights sum to 1.
    pub fn free_parameters(&self) -> usize {
        let scatter = match self.family {
            Family::Gaussian(Covariance::Tied) => triangle(self.columns),
            Family::Gaussian(Covariance::Full) => self.components * triangle(self.columns),
            _ => self.scatter().len(),
        };
        (self.centres().len() + scatter + self.components).saturating_sub(1)
    }
}

/// Memory that is used again from step to step.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Centres relative to the rows' origin.
    centres: Vec<f64>,
    /// The part of a component's logits that is the same for every row.
    constants: Vec<f64>,
    /// What rows are multiplied by.
    coefficients: Vec<f64>,
    /// A triangular factor of a covariance, and the inverses of all factors.
    factor: Vec<f64>,
    whiteners: Vec<f64>,
    /// Logits, then posteriors, of a block of rows, component by component.
    posteriors: Vec<f64>,
    /// Of the same form: residuals, or posteriors after clipping.
    weights: Vec<f64>,
    /// A block of rows, column by column.
    differences: Vec<f64>,
    scaled: Vec<f64>,
    /// A number for every row of a block.
    row_largest: Vec<f64>,
    row_sums: Vec<f64>,
    /// Sums of posteriors times rows; of clipped posteriors; and a square matrix.
    sums: Vec<f64>,
    clipped: Vec<f64>,
    square: Vec<f64>,
}

/// Makes posteriors of a block's logits; returns its log likelihood.
fn turn_into_posteriors(rows: usize, scratch: &mut Scratch) -> f64 {
    kernels::posteriors(&mut scratch.posteriors, rows, &mut scratch.row_largest, &mut scratch.row_sums)
}

/// The E-step: for every row the posteriors of the components at `params`, and their sums.
///
/// Under a `limit` no row pulls at a component by more than this length (against contaminated rows); members and squares
/// are those without.
pub fn expect(
    shape: &Shape,
    params: &[f64],
    rows: &Rows,
    detail: Detail,
    limit: Option<f64>,
    scratch: &mut Scratch,
    out: &mut Statistics,
) {
    out.clear(shape, detail, rows.len());
    match shape.family {
        Family::Gaussian(covariance) => gaussian::expect(shape, covariance, params, rows, limit, scratch, out),
        Family::Regression { noise, .. } => regression::expect(shape, noise, params, rows, limit, scratch, out),
    }
}

/// The statistics of rows whose components are known, taken around the rows' origin, or around regressions that are 0;
/// [`maximise`] needs parameters with such centres.
fn assigned(shape: &Shape, rows: &Rows, labels: &[u32], scratch: &mut Scratch, out: &mut Statistics) {
    out.clear(shape, Detail::Full, rows.len());
    match shape.family {
        Family::Gaussian(covariance) => gaussian::assigned(shape, covariance, rows, labels, scratch, out),
        Family::Regression { noise, .. } => regression::assigned(shape, noise, rows, labels, scratch, out),
    }
}

/// The full M-step: the weights, centres and scatter that maximise, given [`Detail::Full`] statistics taken at `params`, of
/// one client or summed over many.
///
/// Weights are at least 1e-8 before they are scaled to sum to 1. A component to which nobody belongs stays where it is.
/// Variances are kept a little above 0, and regressions have a ridge of 1e-5.
pub fn maximise(shape: &Shape, statistics: &Statistics, params: &mut [f64]) {
    match shape.family {
        Family::Gaussian(covariance) => gaussian::maximise(shape, covariance, statistics, params),
        Family::Regression { noise, .. } => regression::maximise(shape, noise, statistics, params),
    }
    let weights = &mut params[shape.weights()];
    let all: f64 = statistics.members.iter().sum();
    if all > 0.0 {
        weights.iter_mut().zip(&statistics.members).for_each(|(weight, members)| *weight = members / all);
    }
    normalise(weights);
}

/// The least weight a component has before weights are scaled to sum to 1.
pub const LEAST_WEIGHT: f64 = 1e-8;

/// Lifts weights to the smallest allowed one and scales them to sum to 1.
pub(crate) fn normalise(weights: &mut [f64]) {
    weights.iter_mut().for_each(|weight| *weight = weight.max(LEAST_WEIGHT));
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
}

/// The component of every row, by the largest posterior and the first among equals; returns the log likelihood of all
/// rows.
pub fn classify(shape: &Shape, params: &[f64], rows: &Rows, scratch: &mut Scratch, labels: &mut Vec<u32>) -> f64 {
    labels.clear();
    match shape.family {
        Family::Gaussian(covariance) => gaussian::classify(shape, covariance, params, rows, scratch, labels),
        Family::Regression { noise, .. } => regression::classify(shape, noise, params, rows, scratch, labels),
    }
}

/// Members below which a component counts as one nobody belongs to.
const NOBODY: f64 = 1e-8;

/// Smallest variance, where there is nothing to compare with.
const LEAST_VARIANCE: f64 = 1e-100;

/// ½ log 2π.
const HALF_LOG_TWO_PI: f64 = 0.918_938_533_204_672_7;
