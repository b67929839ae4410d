//! A client that was not there when families were learned: its family, a personal model by the same shrinkage, and whether it fits any.

use super::evidence::{Panel, Products, Supports};
use super::intervals::Predictor;
use super::learned::{Learned, most_probable};
use super::mixed::Integrated;
use crate::error::{Error, Result};
use crate::num::tails::chi_square_tail;
use crate::num::{Spectrum, add_scaled, dot};
use serde::{Deserialize, Serialize};

/// What is said of a client that was not there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Newcomer {
    /// Its most probable family.
    pub family: usize,
    /// The probabilities of all families.
    pub responsibilities: Vec<f64>,
    /// Its distance to each family's centre in standard errors: the root of the squared distance over its degrees of freedom.
    pub distances: Vec<f64>,
    /// The largest probability, over the families, that a member is as far from the centre as this client is.
    pub p: f64,
    /// The coefficients of its personal model.
    pub personal: Vec<f64>,
    /// The variance of its noise.
    pub noise: f64,
    /// The covariance of all its coefficients, row-major.
    pub covariance: Vec<f64>,
}

impl Learned {
    /// A client by its rows. Without rows, it is in every family by its share.
    pub fn newcomer(&self, products: &Products) -> Result<Newcomer> {
        let given = self.basis.given;
        let want = (given + 1) * (given + 2) / 2;
        if products.values.len() != want {
            return Err(Error::data(format!(
                "newcomer: got {} products, want {want} for {given} columns",
                products.values.len()
            )));
        }
        if products.values.iter().any(|value| !value.is_finite()) {
            return Err(
                Error::data("newcomer: got products that are not finite").hint("a value is too large to be squared")
            );
        }
        let (p, q) = (self.basis.columns(), self.basis.random);
        let mut full = vec![0.0; (p + 1) * (p + 1)];
        self.basis.change(products, &mut full);
        // What common columns explain is taken out.
        let mut common = self.population.centres[0].clone();
        common[..q].fill(0.0);
        let line = |i: usize| &full[i * (p + 1)..i * (p + 1) + p];
        let target = &full[p * (p + 1)..];
        let bent: f64 = (q..p).map(|i| common[i] * dot(line(i), &common)).sum();
        let panel = Panel {
            noise: self.response.noise(),
            columns: q,
            random: q,
            curves: vec![None; q],
            rows: vec![products.rows as f64],
            supports: Supports::first(q, 1),
            slabs: (0..q).flat_map(|i| line(i)[..q].to_vec()).collect(),
            moments: (0..q).map(|i| target[i] - dot(line(i), &common)).collect(),
            energies: vec![(target[p] - 2.0 * dot(&target[..p], &common) + bent).max(0.0)],
            curvature: Vec::new(),
        };
        let mut integrated = Integrated::new(q);
        let posterior = self.population.posterior(&panel, 0, None, &mut integrated);
        let (distances, p_values): (Vec<f64>, Vec<f64>) =
            (0..self.families.len()).map(|family| self.distance(&panel, &integrated, family)).unzip();
        let used = dot(&integrated.covariance(&self.population.root), panel.slab(0));
        let error = panel_error(&panel, &posterior.mean[..q]);
        let freedom = (panel.rows[0] - used).max(0.0);
        let family = most_probable(&posterior.responsibilities);
        Ok(Newcomer {
            family,
            personal: self.basis.back(&posterior.mean),
            responsibilities: posterior.responsibilities,
            distances,
            p: p_values.into_iter().fold(0.0, f64::max),
            noise: panel.noise.unwrap_or((error + self.noise_freedom * self.noise) / (freedom + self.noise_freedom)),
            covariance: self.whole_covariance(family, &posterior.covariance),
        })
    }

    /// Distance to a centre, and the probability of one as large: `rᵀ(S + SVS)⁺r/σ²` with `S = ZᵀH⁻¹Z`, `r = ZᵀH⁻¹(y − Zμ)` and `V` the
    /// centre's covariance over `σ²`. Where a client's rows determine all coefficients, this is `(b − μ)ᵀ(Σ + T + V)⁻¹(b − μ)`.
    fn distance(&self, panel: &Panel, integrated: &Integrated, family: usize) -> (f64, f64) {
        let (q, p) = (panel.random, self.basis.columns());
        let (mut curvature, mut residual) = (Vec::new(), vec![0.0; q]);
        integrated.curvature(panel.slab(0), &mut curvature);
        integrated.random_moment(panel.moment(0), &mut residual);
        for (value, row) in residual.iter_mut().zip(curvature.chunks_exact(q.max(1))) {
            *value -= dot(row, &self.population.centres[family][..q]);
        }
        let uncertain = &self.population.covariances[family];
        let mut variance = curvature.clone();
        for i in 0..q {
            let mut half = vec![0.0; q];
            for l in 0..q {
                add_scaled(&mut half, curvature[i * q + l] / self.population.noise, &uncertain[l * p..l * p + q]);
            }
            for j in 0..q {
                variance[i * q + j] += dot(&half, &curvature[j * q..(j + 1) * q]);
            }
        }
        let Some(spectrum) = Spectrum::above(&variance, q, 1e-9).filter(|spectrum| spectrum.rank() > 0) else {
            return (0.0, 1.0);
        };
        let square = dot(&residual, &spectrum.solve(&residual)) / self.population.noise;
        let freedom = spectrum.rank() as f64;
        ((square / freedom).sqrt(), chi_square_tail(freedom, square))
    }

    /// What a client of which nothing is known is predicted with: the families by their shares.
    pub fn unknown(&self) -> Vec<f64> {
        let mut mean = vec![0.0; self.basis.given];
        self.families.iter().for_each(|family| add_scaled(&mut mean, family.share, &family.centre));
        mean
    }
}

impl Newcomer {
    /// What serves it.
    pub fn predictor(&self) -> Predictor {
        Predictor { coefficients: self.personal.clone(), covariance: self.covariance.clone(), noise: self.noise }
    }
}

/// The sum of squared errors of a model of random columns.
fn panel_error(panel: &Panel, model: &[f64]) -> f64 {
    let bent: f64 =
        panel.slab(0).chunks_exact(model.len().max(1)).zip(model).map(|(row, value)| value * dot(row, model)).sum();
    (panel.energies[0] - 2.0 * dot(panel.moment(0), model) + bent).max(0.0)
}
