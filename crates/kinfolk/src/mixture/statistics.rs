//! The sums of an E-step.

use super::triangles::triangle;
use super::{Covariance, Family, Noise, Shape};
use serde::{Deserialize, Serialize};

/// How much of an E-step is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)]
pub enum Detail {
    /// What a step along the gradient needs.
    Gradient,
    /// What the full M-step needs: the squares as well.
    Full,
}

/// Sums over rows of one E-step. Those of several clients at the same parameters add up.
#[derive(Debug, Clone, PartialEq, Default)]
#[doc(hidden)]
pub struct Statistics {
    /// Number of rows.
    pub rows: f64,
    /// Their log likelihood.
    pub log_likelihood: f64,
    /// For every component the sum of its posteriors γ.
    pub members: Vec<f64>,
    /// For every component Σ γ (x − θ), or Σ γ (y − ⟨x, θ⟩) x for regressions.
    pub pulls: Vec<f64>,
    /// The rest of what the full M-step needs, around the given centres. For every component Σ γ ‖x − θ‖² (`Spherical`),
    /// that for each column (`Diagonal`), Σ γ (x − θ)(x − θ)ᵀ (`Full`); the sum of the latter over components (`Tied`);
    /// Σ γ x xᵀ for regressions, and under `Common` noise the sum of all γ (y − ⟨x, θ⟩)² at the end. Of a symmetric matrix
    /// the lower triangle, row by row.
    pub squares: Vec<f64>,
}

impl Statistics {
    /// Number of values that [`Statistics::pack`] appends.
    pub(crate) fn packed_len(shape: &Shape, detail: Detail) -> usize {
        2 + shape.components + shape.centres().len() + squares(shape, detail)
    }

    pub(crate) fn pack(&self, out: &mut Vec<f64>) {
        out.extend([self.rows, self.log_likelihood]);
        out.extend(self.members.iter().chain(&self.pulls).chain(&self.squares));
    }

    pub(crate) fn unpack(shape: &Shape, detail: Detail, packed: &[f64]) -> Self {
        let (head, rest) = packed.split_at(2);
        let (members, rest) = rest.split_at(shape.components);
        let (pulls, rest) = rest.split_at(shape.centres().len());
        Self {
            rows: head[0],
            log_likelihood: head[1],
            members: members.to_vec(),
            pulls: pulls.to_vec(),
            squares: rest[..squares(shape, detail)].to_vec(),
        }
    }

    /// Zeroes components with so few rows that their sums would reveal them.
    pub(crate) fn withhold(&mut self, shape: &Shape, least: f64) {
        let few: Vec<usize> = (0..shape.components).filter(|&component| self.members[component] < least).collect();
        // One covariance for all components is a sum over all rows.
        let square = match shape.family {
            Family::Gaussian(Covariance::Tied) => 0,
            _ => self.squares.len() / shape.components,
        };
        let width = shape.width();
        for component in few {
            self.members[component] = 0.0;
            self.pulls[component * width..][..width].fill(0.0);
            self.squares[component * square..][..square].fill(0.0);
        }
    }

    /// Resets them to the sums over no rows.
    pub(super) fn clear(&mut self, shape: &Shape, detail: Detail, rows: usize) {
        let zero = |values: &mut Vec<f64>, length: usize| {
            values.clear();
            values.resize(length, 0.0);
        };
        (self.rows, self.log_likelihood) = (rows as f64, 0.0);
        zero(&mut self.members, shape.components);
        zero(&mut self.pulls, shape.centres().len());
        zero(&mut self.squares, squares(shape, detail));
    }
}

/// Number of values in the squares.
fn squares(shape: &Shape, detail: Detail) -> usize {
    if detail == Detail::Gradient {
        return 0;
    }
    let components = shape.components;
    match shape.family {
        Family::Gaussian(Covariance::Identity) => 0,
        Family::Gaussian(Covariance::Spherical) => components,
        Family::Gaussian(Covariance::Diagonal) => components * shape.columns,
        Family::Gaussian(Covariance::Tied) => triangle(shape.columns),
        Family::Gaussian(Covariance::Full) => components * triangle(shape.columns),
        Family::Regression { noise: Noise::Unit, .. } => components * triangle(shape.width()),
        Family::Regression { noise: Noise::Common, .. } => components * triangle(shape.width()) + 1,
    }
}
