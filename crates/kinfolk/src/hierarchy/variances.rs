//! How much noise there is, how far clients lie from their clusters' centres, and how far these lie apart: the
//! variances `σ²`, `σ_w²` and `σ_b²` by restricted maximum likelihood, that is with the global centre integrated out.
//!
//! Everything is computed at noise 1 with the ratios `γ = σ²/σ_w²` and `λ = σ²/σ_b²`. The clients know what they say of
//! their centres at one `γ` only, so that each new `γ` costs a round of the federation; `λ` and `σ²` are the server's
//! and cost none. The search is therefore over `γ` alone, of the likelihood at its best `λ` and `σ²`, by asking and
//! telling: it says which `γ` it wants and is told the sums.
//!
//! The derivative of the negative log likelihood `V` in the logarithm of a ratio `g` is `½(g·spread − freedom)`, where
//! the spread is the sum of squared distances in units of the noise, and the freedom the number of those distances that
//! the data determine. Both are positive, so `g = freedom/spread` at the optimum, and the logarithm of the two sides'
//! ratio is nearly linear in `log g`: the secant method needs few steps.

mod search;
#[cfg(test)]
mod tests;

use super::centres::Joint;
use super::response::{Quadratic, Response, trace};
use crate::num::{Matrix, dot, multiply};
use crate::{Error, Result};
pub use search::{Estimates, VarianceSearch};
use serde::{Deserialize, Serialize};

/// What is known before the first round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Design {
    pub dimension: usize,
    /// Number of rows of all clients.
    pub rows: usize,
    /// Number of clients in every cluster.
    pub clients: Vec<usize>,
    /// The mean of the diagonals of the clients' curvatures, summed over the clients.
    pub curvature: f64,
    /// The variance of the noise, where it is known.
    pub noise: Option<f64>,
    /// Whether all clusters share one variance of their clients.
    pub common: bool,
}

/// The summed responses of a cluster's clients at the wanted strength and at noise 1.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterSums {
    pub response: Response,
    pub slope: Response,
}

impl ClusterSums {
    /// One over about the standard error of the logarithm of the clients' variance, `√(½ Σ tr K²)`.
    fn scale(&self) -> f64 {
        (0.5 * trace(&self.slope.curvature, self.slope.dimension())).sqrt().max(1e-3)
    }
}

/// One kind of distances in the hierarchy.
#[derive(Debug, Clone, Copy, Default)]
struct Component {
    /// The sum of their squares, in units of the noise.
    spread: f64,
    /// How many of them the data determine.
    freedom: f64,
}

impl Component {
    /// The derivative of the negative log likelihood in the logarithm of this ratio.
    fn gradient(self, ratio: f64) -> f64 {
        0.5 * (ratio * self.spread - self.freedom)
    }

    /// Logarithm of what the ratio would be for this spread and freedom over what it is: positive where it should grow.
    fn pull(self, ratio: f64) -> f64 {
        (self.freedom / (ratio * self.spread)).ln()
    }

    fn join(self, other: Self) -> Self {
        Self { spread: self.spread + other.spread, freedom: self.freedom + other.freedom }
    }
}

/// The likelihood at one point.
struct Likelihood<'a> {
    joint: Joint<'a>,
    /// The negative logarithm, up to a constant.
    value: f64,
    noise: f64,
    /// The weighted squares: half of what the noise has to explain.
    misfit: f64,
    between: Component,
}

impl Design {
    fn clusters(&self) -> usize {
        self.clients.len()
    }

    /// The likelihood of these sums at this ratio of noise and centres and, unless given or known, at the best noise.
    fn likelihood<'a>(
        &self,
        evidence: &'a [Quadratic],
        volume: f64,
        ratio: f64,
        noise: Option<f64>,
    ) -> Result<Likelihood<'a>> {
        let joint = Joint::new(evidence, &vec![ratio; evidence.len()])?;
        let misfit = joint.sum.energy - 0.5 * dot(&joint.sum.moment, &joint.global);
        let freedom = self.rows as f64 - joint.spectrum.rank() as f64;
        let noise = match noise.or(self.noise) {
            Some(noise) => noise,
            None if freedom <= 0.0 => return Err(too_few_rows(self.rows, joint.spectrum.rank())),
            None if misfit <= 0.0 => return Err(no_noise()),
            None => 2.0 * misfit / freedom,
        };
        let volumes = volume + joint.responses.iter().map(|response| response.volume).sum::<f64>();
        let value = misfit / noise + volumes + 0.5 * joint.spectrum.sum(f64::ln) + 0.5 * freedom * noise.ln();
        let between = if ratio.is_finite() { centres_apart(&joint, ratio, noise) } else { Component::default() };
        Ok(Likelihood { joint, value, noise, misfit, between })
    }
}

fn centres_apart(joint: &Joint, ratio: f64, noise: f64) -> Component {
    let size = joint.global.len();
    let global = joint.spectrum.inverse();
    let mut carried = vec![0.0; size * size];
    let mut component = Component::default();
    for response in &joint.responses {
        // w_j − w̄ = (s − Sw̄)/λ, and K = S/λ.
        let rows = response.curvature.chunks_exact(size).zip(&response.moment);
        component.spread += rows.map(|(row, s)| (s - dot(row, &joint.global)).powi(2)).sum::<f64>();
        let square = |values| Matrix::new(values, size, size);
        multiply(&mut carried, 1.0, square(&response.curvature), square(&global));
        component.freedom += trace(&response.curvature, size) - dot(&carried, &response.curvature);
    }
    Component { spread: component.spread / (ratio * ratio * noise), freedom: (component.freedom / ratio).max(0.0) }
}

impl Likelihood<'_> {
    /// The distances of the clients of each cluster from its centre, with the strengths that were asked.
    fn within(&self, sums: &[ClusterSums], strengths: &[f64]) -> Result<Vec<Component>> {
        let global = self.joint.spectrum.inverse();
        let of_cluster = |(j, (cluster, strength)): (usize, (&ClusterSums, &f64))| {
            let (centre, covariance) = (self.joint.centre(j)?, self.joint.covariance(j, &global)?);
            let slope = &cluster.slope;
            let rows = slope.curvature.chunks_exact(centre.len()).zip(&centre);
            let bent: f64 = rows.map(|(row, x)| x * dot(row, &centre)).sum();
            let spread = bent - 2.0 * dot(&slope.moment, &centre) + 2.0 * slope.energy;
            let freedom = -strength * (2.0 * slope.volume + dot(&slope.curvature, &covariance));
            Ok(Component { spread: spread.max(0.0) / self.noise, freedom: freedom.max(0.0) })
        };
        sums.iter().zip(strengths).enumerate().map(of_cluster).collect()
    }
}

fn too_few_rows(rows: usize, rank: usize) -> Error {
    Error::data(format!("{rows} rows for {rank} parameters of the global centre: nothing is left to show the noise"))
        .hint("give the strengths, or more rows")
}

fn no_noise() -> Error {
    Error::data("one model fits all rows of all clients exactly: there is no noise and nothing that varies")
        .hint("give the strengths")
}
