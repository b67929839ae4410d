//! The model of all clients: families with centres, and clients' coefficients around them.
//!
//! A client of family `k` has coefficients `N(μ_k, σ²ΛΛᵀ)` of random columns; those of common columns are everybody's.

use super::evidence::Panel;
use super::mixed::{Integrated, Mixed};
use crate::num::triangular::factorise;
use crate::num::{add_scaled, dot};
use serde::{Deserialize, Serialize};

/// Families in the coordinates of a [`Basis`](super::evidence::Basis).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Population {
    /// Each family's share of the clients.
    pub shares: Vec<f64>,
    /// Each family's centre: random columns, then the common ones, which all have in common.
    pub centres: Vec<Vec<f64>>,
    /// The covariances of the centres, row-major.
    pub covariances: Vec<Vec<f64>>,
    /// `Λ`, row-major.
    pub root: Vec<f64>,
    /// `λ` of the penalised groups.
    pub bends: Vec<f64>,
    /// `σ²`.
    pub noise: f64,
}

/// What is known of one client.
pub(crate) struct Posterior {
    /// Probabilities of the families.
    pub responsibilities: Vec<f64>,
    /// Expected coefficients of all columns.
    pub mean: Vec<f64>,
    /// Expected centre: the families' centres by their probabilities.
    pub centre: Vec<f64>,
    /// Covariance of the random columns' coefficients, row-major, with the uncertainty of family and centre.
    pub covariance: Vec<f64>,
}

impl Population {
    pub(crate) fn one(mixed: &Mixed) -> Self {
        Self {
            shares: vec![1.0],
            centres: vec![mixed.centre.clone()],
            covariances: vec![mixed.inverse.iter().map(|value| value * mixed.noise).collect()],
            root: mixed.root.clone(),
            bends: mixed.bends.clone(),
            noise: mixed.noise,
        }
    }

    pub(crate) fn random(&self) -> usize {
        self.root.len().isqrt()
    }

    /// The covariance of clients around their centre, `σ²ΛΛᵀ`.
    pub(crate) fn spread(&self) -> Vec<f64> {
        let q = self.random();
        let entry =
            |i: usize, j: usize| self.noise * dot(&self.root[i * q..(i + 1) * q], &self.root[j * q..(j + 1) * q]);
        (0..q * q).map(|at| entry(at / q, at % q)).collect()
    }

    /// With variances of clients at the upper end of what the estimates leave possible: those are uncertain by about `√(2/n)` of themselves
    /// and of the variance with which a typical client's coefficients are estimated, with `n` clients and columns that share one.
    pub(crate) fn with_more_spread(&self, panel: &Panel, entries: &[Vec<(usize, usize)>]) -> Self {
        const UPPER: f64 = 1.645;
        let (q, p, clients) = (self.random(), panel.columns, panel.clients() as f64);
        let mut spread: Vec<f64> = self.spread().iter().map(|value| value / self.noise).collect();
        for entries in entries {
            let diagonal: Vec<usize> = entries.iter().filter(|(i, j)| i == j).map(|(i, _)| *i).collect();
            let share = UPPER * (2.0 / (clients * diagonal.len() as f64)).sqrt();
            for &j in &diagonal {
                let information = panel.curvature[j * (p + 1)];
                let estimated = if information > 0.0 { clients / information } else { 0.0 };
                spread[j * (q + 1)] += share * (spread[j * (q + 1)] + estimated);
            }
        }
        let mut factor = Vec::new();
        factorise(&spread, q, &mut factor);
        let root = (0..q * q).map(|at| if at % q <= at / q { factor[at % q * q + at / q] } else { 0.0 }).collect();
        Self { root, ..self.clone() }
    }

    /// What a client's rows say, whose family may be known; of the panel, only random columns are left (`Working::without_common`).
    pub(crate) fn posterior(
        &self,
        panel: &Panel,
        client: usize,
        known: Option<usize>,
        integrated: &mut Integrated,
    ) -> Posterior {
        let q = panel.random;
        let (slab, moment, rows) = (panel.slab(client), panel.moment(client), panel.rows[client]);
        integrated.set(&self.root, slab, moment);
        let logs = self.log_likelihoods(integrated, slab, moment, panel.energies[client], rows);
        let largest = logs.iter().fold(f64::NEG_INFINITY, |largest, &value| value.max(largest));
        let sum: f64 = logs.iter().map(|value| (value - largest).exp()).sum();
        let responsibilities: Vec<f64> = match known {
            None => logs.iter().map(|value| (value - largest).exp() / sum).collect(),
            Some(known) => (0..logs.len()).map(|family| f64::from(u8::from(family == known))).collect(),
        };

        let columns = self.centres[0].len();
        let (mut mean, mut centre) = (vec![0.0; columns], vec![0.0; columns]);
        let own = integrated.covariance(&self.root);
        let mut covariance: Vec<f64> = own.iter().map(|value| value * self.noise).collect();
        let mut means = Vec::new();
        for (family, &share) in self.centres.iter().zip(&responsibilities) {
            let mut expected = family.clone();
            add_scaled(&mut expected[..q], 1.0, &integrated.deviation(&self.root, &family[..q]));
            add_scaled(&mut mean, share, &expected);
            add_scaled(&mut centre, share, family);
            means.push(expected);
        }
        // I − Λ(I + ΛᵀGΛ)⁻¹Λᵀ G: the share of the centre in the client's coefficients.
        let mut kept = vec![0.0; q * q];
        for (i, row) in kept.chunks_exact_mut(q.max(1)).enumerate() {
            own[i * q..(i + 1) * q]
                .iter()
                .zip(slab.chunks_exact(q))
                .for_each(|(value, line)| add_scaled(row, -value, line));
            row[i] += 1.0;
        }
        for ((expected, &share), uncertain) in means.iter().zip(&responsibilities).zip(&self.covariances) {
            for i in 0..q {
                let mut half = vec![0.0; q];
                for l in 0..q {
                    add_scaled(&mut half, kept[i * q + l], &uncertain[l * columns..l * columns + q]);
                }
                for j in 0..q {
                    let apart = (expected[i] - mean[i]) * (expected[j] - mean[j]);
                    covariance[i * q + j] += share * (apart + dot(&half, &kept[j * q..(j + 1) * q]));
                }
            }
        }
        Posterior { responsibilities, mean, centre, covariance }
    }

    /// The logarithms of the families' shares times the density of a client's target in each.
    pub(crate) fn log_likelihoods(
        &self,
        integrated: &Integrated,
        slab: &[f64],
        moment: &[f64],
        energy: f64,
        rows: f64,
    ) -> Vec<f64> {
        let q = self.random();
        let constant = rows * (2.0 * std::f64::consts::PI * self.noise).ln() + integrated.log_determinant;
        let family = |(centre, share): (&Vec<f64>, &f64)| {
            let centre = &centre[..q];
            // (y − Zμ)ᵀH⁻¹(y − Zμ).
            let mut square = energy - 2.0 * dot(&moment[..q], centre);
            square += slab.chunks_exact(q.max(1)).zip(centre).map(|(row, value)| value * dot(row, centre)).sum::<f64>();
            let pulled = integrated.pulled.chunks_exact(q.max(1)).zip(&integrated.moment);
            square -= pulled.map(|(row, value)| (value - dot(row, centre)).powi(2)).sum::<f64>();
            share.ln() - 0.5 * (constant + square.max(0.0) / self.noise)
        };
        self.centres.iter().zip(&self.shares).map(family).collect()
    }
}
