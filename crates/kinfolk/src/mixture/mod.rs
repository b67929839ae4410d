//! Mixtures on the rows of one client: which component each row belongs to, and the parameters that explain them best.
//!
//! Parameters are one flat vector, laid out by [`Shape`]. [`expect`] is the E-step, in log space; its [`Statistics`] are sums
//! over rows, so those of several clients at the same parameters add up. [`maximise`] is the full M-step from them, and
//! their `pulls`, divided by the rows, are the gradient. [`fit()`] runs EM from several starts.

#[doc(hidden)]
pub mod alignment;
pub(crate) mod clients;
mod densities;
mod fit;
mod gaussian;
mod hidden;
mod kernels;
mod own;
mod recast;
mod regression;
mod rows;
mod starts;
mod statistics;
#[doc(hidden)]
pub mod step;
#[cfg(test)]
mod tests;
mod triangles;
mod views;

pub(crate) use densities::{Densities, draw};
pub use fit::{Begin, Fitted, Fitting, fit};
pub(crate) use hidden::expect_hidden;
pub(crate) use own::{most_components, own_mixture};
#[doc(hidden)]
pub use recast::{recast, relabel};
pub use rows::Rows;
pub use statistics::{Detail, Statistics};

use rows::Block;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use triangles::triangle;

/// The distributions that are mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// Normal distributions of the rows.
    Gaussian(Covariance),
    /// Linear regressions of the targets on the rows.
    Regression {
        /// Whether regressions have an intercept; it is the last coefficient of a centre.
        intercept: bool,
        /// How targets scatter.
        noise: Noise,
    },
}

/// The covariance of the rows around their component's centre.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Covariance {
    /// The identity.
    Identity,
    /// One variance for every component.
    Spherical,
    /// A variance for every component and column.
    Diagonal,
    /// One covariance for all components.
    Tied,
    /// A covariance for every component.
    Full,
}

/// The variance of the targets around a regression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Noise {
    /// 1.
    Unit,
    /// Estimated, the same for all components.
    Common,
}

/// The form of a mixture.
///
/// Its parameters are all centres, one after the other, then the scatter, then the weights. The scatter is: nothing for
/// `Identity` and `Unit`, a variance a component for `Spherical`, one a component and column for `Diagonal`, a symmetric
/// row-major matrix for `Tied`, one a component for `Full`, one variance for `Common`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// The distributions that are mixed.
    pub family: Family,
    /// Number of components.
    pub components: usize,
    /// Number of columns of the data.
    pub columns: usize,
}

impl Shape {
    /// Dimension of a centre.
    pub fn width(&self) -> usize {
        match self.family {
            Family::Regression { intercept: true, .. } => self.columns + 1,
            _ => self.columns,
        }
    }

    /// Range of the centres in the parameters.
    pub fn centres(&self) -> Range<usize> {
        0..self.components * self.width()
    }

    /// Range of the scatter in the parameters.
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

    /// Range of the weights in the parameters.
    pub fn weights(&self) -> Range<usize> {
        let begin = self.scatter().end;
        begin..begin + self.components
    }

    pub(crate) fn len(&self) -> usize {
        self.weights().end
    }

    /// The fewest rows to estimate the scatter from: with fewer the likelihood is unbounded. 1 for a given scatter.
    pub(crate) fn least_rows(&self) -> usize {
        match self.family {
            Family::Gaussian(Covariance::Identity) | Family::Regression { noise: Noise::Unit, .. } => 1,
            Family::Gaussian(Covariance::Spherical | Covariance::Diagonal) => 2 * self.components,
            Family::Gaussian(Covariance::Tied) => self.components + self.columns,
            Family::Gaussian(Covariance::Full) => self.components * (self.columns + 1),
            Family::Regression { noise: Noise::Common, .. } => self.components * self.width() + 1,
        }
    }

    /// Number of free parameters: a symmetric matrix counts once, and the weights sum to 1.
    pub(crate) fn free_parameters(&self) -> usize {
        let scatter = match self.family {
            Family::Gaussian(Covariance::Tied) => triangle(self.columns),
            Family::Gaussian(Covariance::Full) => self.components * triangle(self.columns),
            _ => self.scatter().len(),
        };
        (self.centres().len() + scatter + self.components).saturating_sub(1)
    }
}

/// Working memory, reused from step to step.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct Scratch {
    /// Centres relative to the rows' origin.
    centres: Vec<f64>,
    /// The part of a component's logits that is the same for every row.
    constants: Vec<f64>,
    /// Factors of the rows in the logits.
    coefficients: Vec<f64>,
    /// The Cholesky factor of a covariance, and the inverses of all factors.
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

/// Makes what scoring needs of the parameters; returns the part of the log likelihood that is the same for all components.
fn prepare(shape: &Shape, params: &[f64], rows: &Rows, scratch: &mut Scratch) -> f64 {
    match shape.family {
        Family::Gaussian(covariance) => gaussian::prepare(shape, covariance, params, rows, scratch),
        Family::Regression { noise, .. } => regression::prepare(shape, noise, params, scratch),
    }
}

/// Writes the logits of a block.
fn score(shape: &Shape, block: &Block, scratch: &mut Scratch) {
    match shape.family {
        Family::Gaussian(covariance) => gaussian::score(shape, covariance, block, scratch),
        Family::Regression { .. } => regression::score(shape, block, scratch),
    }
}

/// Makes posteriors of a block's logits; returns its log likelihood.
fn turn_into_posteriors(rows: usize, scratch: &mut Scratch) -> f64 {
    kernels::posteriors(&mut scratch.posteriors, rows, &mut scratch.row_largest, &mut scratch.row_sums)
}

/// Adds up the statistics, given what writes a block's posteriors (and residuals) and returns its log likelihood.
fn accumulate(
    shape: &Shape,
    rows: &Rows,
    limit: Option<f64>,
    scratch: &mut Scratch,
    out: &mut Statistics,
    posteriors: impl FnMut(&Block, &mut Scratch) -> f64,
) {
    match shape.family {
        Family::Gaussian(covariance) => gaussian::accumulate(shape, covariance, rows, limit, scratch, out, posteriors),
        Family::Regression { noise, .. } => regression::accumulate(shape, noise, rows, limit, scratch, out, posteriors),
    }
}

/// The E-step: for every row the posteriors of the components at `params`, and their sums.
///
/// Under a `limit` no row pulls at a component by more than this length (against contaminated rows); members and squares
/// are those without.
#[doc(hidden)]
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
    out.log_likelihood = prepare(shape, params, rows, scratch);
    accumulate(shape, rows, limit, scratch, out, |block, scratch| {
        score(shape, block, scratch);
        turn_into_posteriors(block.rows, scratch)
    });
}

/// The statistics of rows with known components, around the origin or regressions that are 0, as [`maximise`] expects.
fn assigned(shape: &Shape, rows: &Rows, labels: &[u32], scratch: &mut Scratch, out: &mut Statistics) {
    out.clear(shape, Detail::Full, rows.len());
    kernels::filled(&mut scratch.centres, shape.centres().len(), 0.0);
    let mut blocks = labels.chunks(kernels::BLOCK);
    accumulate(shape, rows, None, scratch, out, |block, scratch| {
        kernels::one_hot(&mut scratch.posteriors, shape.components, blocks.next().unwrap_or_default());
        block.repeat_targets(shape.components, &mut scratch.weights);
        0.0
    });
}

/// The full M-step: the weights, centres and scatter that maximise, given [`Detail::Full`] statistics taken at `params`, of
/// one client or summed over many.
///
/// Weights are at least 1e-8 before they are scaled to sum to 1. A component to which nobody belongs stays where it is.
/// Variances are kept a little above 0, and regressions have a ridge of 1e-5.
#[doc(hidden)]
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
pub(crate) const LEAST_WEIGHT: f64 = 1e-8;

/// Lifts weights to the smallest allowed one and scales them to sum to 1.
pub(crate) fn normalise(weights: &mut [f64]) {
    weights.iter_mut().for_each(|weight| *weight = weight.max(LEAST_WEIGHT));
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
}

/// The component with the largest posterior of every row, the first among equals; returns the log likelihood.
pub(crate) fn classify(
    shape: &Shape,
    params: &[f64],
    rows: &Rows,
    scratch: &mut Scratch,
    labels: &mut Vec<u32>,
) -> f64 {
    labels.clear();
    let mut log_likelihood = prepare(shape, params, rows, scratch);
    for block in rows.blocks() {
        score(shape, &block, scratch);
        kernels::largest(&scratch.posteriors, block.rows, labels);
        log_likelihood += turn_into_posteriors(block.rows, scratch);
    }
    log_likelihood
}

/// Members below which a component counts as one nobody belongs to.
const NOBODY: f64 = 1e-8;

/// Smallest variance, where there is nothing to compare with.
const LEAST_VARIANCE: f64 = 1e-100;

/// ½ log 2π.
const HALF_LOG_TWO_PI: f64 = 0.918_938_533_204_672_7;
