//! How wide an interval is: a prediction with its variance, and how large residuals are beside it.

use super::learned::{Learned, LearnedClient};
use crate::num::dot;
use serde::{Deserialize, Serialize};

/// A linear prediction with its variance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Predictor {
    /// Of the given columns.
    pub coefficients: Vec<f64>,
    /// Of the coefficients, row-major.
    pub covariance: Vec<f64>,
    /// The variance of noise.
    pub noise: f64,
}

impl Predictor {
    /// Whether it is for this many columns.
    pub fn fits(&self, columns: usize) -> bool {
        self.coefficients.len() == columns && self.covariance.len() == columns * columns
    }

    /// What it predicts for a row.
    pub fn mean(&self, row: &[f64]) -> f64 {
        dot(&self.coefficients, row)
    }

    /// The variance of that: noise, and the uncertainty of the coefficients.
    pub fn variance(&self, row: &[f64]) -> f64 {
        let lines = self.covariance.chunks_exact(row.len()).zip(row);
        self.noise + lines.map(|(line, value)| value * dot(line, row)).sum::<f64>().max(0.0)
    }
}

impl Learned {
    /// What serves a client.
    pub fn predictor(&self, client: &LearnedClient) -> Predictor {
        let q = self.basis.random;
        let mut own = vec![0.0; q * q];
        let mut triangle = client.covariance.as_slice();
        for i in 0..q {
            let (line, rest) = triangle.split_at(q - i);
            for (j, value) in (i..q).zip(line) {
                own[i * q + j] = *value;
                own[j * q + i] = *value;
            }
            triangle = rest;
        }
        let covariance = self.whole_covariance(client.family, &own);
        Predictor { coefficients: client.served.clone(), covariance, noise: client.noise }
    }

    /// What serves a client of which nothing is known: the families by their shares.
    pub fn unknown_predictor(&self) -> Predictor {
        self.member_predictor(&self.shares())
    }

    /// What serves a client of which nothing is known but the probabilities of the families.
    pub(crate) fn member_predictor(&self, shares: &[f64]) -> Predictor {
        let p = self.basis.columns();
        let coefficients = self.member(shares);
        let mut covariance = self.spread.clone();
        for ((family, own), share) in self.families.iter().zip(&self.population.covariances).zip(shares) {
            let own = self.basis.back_covariance(own, p);
            let apart: Vec<f64> = family.centre.iter().zip(&coefficients).map(|(centre, mean)| centre - mean).collect();
            for (i, line) in covariance.chunks_exact_mut(apart.len().max(1)).enumerate() {
                for (j, value) in line.iter_mut().enumerate() {
                    *value += share * (own[i * apart.len() + j] + apart[i] * apart[j]);
                }
            }
        }
        Predictor { coefficients, covariance, noise: self.noise }
    }

    /// The covariance of all given columns' coefficients, from that of the random ones of a client in this family.
    pub(super) fn whole_covariance(&self, family: usize, own: &[f64]) -> Vec<f64> {
        let (q, p) = (self.basis.random, self.basis.columns());
        let mut covariance = self.population.covariances[family].clone();
        for (i, line) in covariance.chunks_exact_mut(p.max(1)).enumerate() {
            for (j, value) in line.iter_mut().enumerate().filter(|(j, _)| i < q || *j < q) {
                *value = if i < q && j < q { own[i * q + j] } else { 0.0 };
            }
        }
        self.basis.back_covariance(&covariance, p)
    }
}

/// How often residuals were how large, in units of their expected deviation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// The first below 0.05, each next one larger by the same ratio, the last without an end.
    pub counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; Self::BINS] }
    }
}

impl Histogram {
    /// How many bins there are.
    pub const BINS: usize = 300;
    const LOW: f64 = 0.05;
    const RATIO: f64 = 1.02;

    /// Counts a value.
    pub fn add(&mut self, value: f64) {
        self.add_many(value, 1);
    }

    /// Counts a value that occurs so often.
    pub(crate) fn add_many(&mut self, value: f64, count: u64) {
        let bin = if value < Self::LOW { 0.0 } else { ((value / Self::LOW).ln() / Self::RATIO.ln()).floor() + 1.0 };
        self.counts[(bin as usize).min(Self::BINS - 1)] += count;
    }

    /// Adds those of others.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, other)| *own += other);
    }

    /// Moves counts upwards until every bin has none or at least this many; what is left at the end joins the bin before.
    pub fn coarsen(&mut self, least: u64) {
        let (mut carried, mut last) = (0, None);
        for bin in 0..self.counts.len() {
            carried += std::mem::take(&mut self.counts[bin]);
            if carried >= least.max(1) {
                self.counts[bin] = std::mem::take(&mut carried);
                last = Some(bin);
            }
        }
        self.counts[last.unwrap_or(Self::BINS - 1)] += carried;
    }

    /// How many values there are.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The value below which this share lies; `None` without values.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = share * self.total() as f64;
        let mut below = 0.0;
        for (bin, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = count as f64;
            if below + count >= wanted {
                let (low, high) = (Self::edge(bin), Self::edge(bin + 1));
                return Some(low + (high - low) * ((wanted - below) / count).clamp(0.0, 1.0));
            }
            below += count;
        }
        None
    }

    /// The share of the values below this one.
    pub fn share_below(&self, value: f64) -> f64 {
        let below = |(bin, &count): (usize, &u64)| {
            let (low, high) = (Self::edge(bin), Self::edge(bin + 1));
            count as f64 * ((value - low) / (high - low)).clamp(0.0, 1.0)
        };
        self.counts.iter().enumerate().map(below).sum::<f64>() / self.total().max(1) as f64
    }

    /// Where a bin begins.
    pub(crate) fn edge(bin: usize) -> f64 {
        if bin == 0 { 0.0 } else { Self::LOW * Self::RATIO.powi(bin as i32 - 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_evenly_spread_values() {
        let mut histogram = Histogram::default();
        (0..10_000).for_each(|i| histogram.add(f64::from(i) * 2e-4));
        for share in [0.1, 0.5, 0.9] {
            let value = histogram.quantile(share).unwrap();
            assert!((value - 2.0 * share).abs() < 0.02 * value, "{share}: {value}");
            assert!((histogram.share_below(2.0 * share) - share).abs() < 0.01);
        }
        let mut few = histogram.clone();
        few.coarsen(50);
        assert_eq!(few.total(), histogram.total());
        assert!(few.counts.iter().all(|&count| count == 0 || count >= 50));
        assert_eq!(Histogram::default().quantile(0.9), None);
        histogram.add(f64::INFINITY);
        assert_eq!(histogram.total(), 10_001);
    }

    #[test]
    fn a_variance_by_hand() {
        let predictor = Predictor { coefficients: vec![2.0, -1.0], covariance: vec![1.0, 0.5, 0.5, 2.0], noise: 3.0 };
        // 1·1 + 2·(1·2·½) + 4·2 = 11
        assert_eq!((predictor.mean(&[1.0, 2.0]), predictor.variance(&[1.0, 2.0])), (0.0, 14.0));
        assert!(predictor.fits(2) && !predictor.fits(3));
    }
}
