//! Families of clients: the weights of a client are Dirichlet around those of its family, its counts multinomial.

use super::counts::Counts;
use crate::num::gamma::{digamma, ln_gamma};
use serde::{Deserialize, Serialize};

/// Families of clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Families {
    /// The probability of every family.
    pub(crate) shares: Vec<f64>,
    /// Its weights of components.
    pub(crate) centres: Vec<Vec<f64>>,
    /// How near clients are to their family: it counts like so many rows.
    pub(crate) strength: f64,
    pub(crate) log_likelihood: f64,
}

/// Bounds of the strength.
const WEAKEST: f64 = 0.1;
const STRONGEST: f64 = 1e5;
/// The least weight of a component in a family.
const LEAST: f64 = 1e-6;
const STEPS: usize = 200;
/// Steps after which the strength is found anew.
const STRENGTH_EVERY: usize = 3;
const TOLERANCE: f64 = 1e-7;

/// The log-likelihood of counts, up to what depends on these alone.
fn log_likelihood(counts: &[f64], centre: &[f64], strength: f64) -> f64 {
    let all: f64 = counts.iter().sum();
    let parts = counts.iter().zip(centre).filter(|(count, _)| **count > 0.0);
    let parts = parts.map(|(count, weight)| ln_gamma(strength * weight + count) - ln_gamma(strength * weight));
    ln_gamma(strength) - ln_gamma(strength + all) + parts.sum::<f64>()
}

impl Families {
    pub(crate) fn len(&self) -> usize {
        self.shares.len()
    }

    /// Of every family the logarithm of its share times the likelihood of these counts.
    fn joint(&self, counts: &[f64]) -> Vec<f64> {
        let each = self.shares.iter().zip(&self.centres);
        each.map(|(share, centre)| share.max(1e-300).ln() + log_likelihood(counts, centre, self.strength)).collect()
    }

    /// The log-likelihood of a client's counts.
    pub(crate) fn score(&self, counts: &[f64]) -> f64 {
        log_sum(&self.joint(counts))
    }

    /// The probabilities of the families of a client with these counts.
    pub(crate) fn responsibilities(&self, counts: &[f64]) -> Vec<f64> {
        let joint = self.joint(counts);
        let all = log_sum(&joint);
        joint.iter().map(|one| (one - all).exp()).collect()
    }

    /// What the weights of a client lean on.
    pub(crate) fn leaning(&self, responsibilities: &[f64]) -> Vec<f64> {
        let mut weights = vec![0.0; self.centres.first().map_or(0, Vec::len)];
        for (share, centre) in responsibilities.iter().zip(&self.centres) {
            crate::num::add_scaled(&mut weights, *share, centre);
        }
        weights
    }

    /// One family, at the mean of all counts.
    pub(crate) fn one(counts: &Counts) -> Self {
        let all = vec![1.0; counts.len()];
        Self::begin(counts, &[all]).improved(counts)
    }

    /// Families of clients whose responsibilities are known.
    pub(crate) fn begin(counts: &Counts, members: &[Vec<f64>]) -> Self {
        let clients = counts.len().max(1) as f64;
        let centre = |members: &Vec<f64>| {
            let mut sum = vec![LEAST; counts.components];
            for (own, member) in counts.each().zip(members) {
                let rows = own.iter().sum::<f64>().max(1e-9);
                crate::num::add_scaled(&mut sum, member / rows, own);
            }
            normalised(sum)
        };
        let centres = members.iter().map(centre).collect();
        let shares = members.iter().map(|members| (members.iter().sum::<f64>() / clients).max(1e-6)).collect();
        Self { shares, centres, strength: 20.0, log_likelihood: f64::NEG_INFINITY }
    }

    /// Families of clients whose responsibilities are known for sure.
    pub(crate) fn of_members(counts: &Counts, members: &[Vec<f64>]) -> Self {
        const ROUNDS: usize = 30;
        let mut families = Self::begin(counts, members);
        let by_client: Vec<Vec<f64>> =
            (0..counts.len()).map(|client| members.iter().map(|family| family[client]).collect()).collect();
        (0..ROUNDS).for_each(|round| families.maximise(counts, &by_client, round % STRENGTH_EVERY == 0));
        families.log_likelihood = counts.each().map(|own| families.score(own)).sum();
        families
    }

    /// EM from here until nothing changes any more.
    pub(crate) fn improved(mut self, counts: &Counts) -> Self {
        for step in 0..STEPS {
            let before = self.log_likelihood;
            let joint: Vec<Vec<f64>> = counts.each().map(|own| self.joint(own)).collect();
            self.log_likelihood = joint.iter().map(|joint| log_sum(joint)).sum();
            if (self.log_likelihood - before).abs() <= TOLERANCE * (1.0 + self.log_likelihood.abs())
                && step % STRENGTH_EVERY == 1
            {
                break;
            }
            let members: Vec<Vec<f64>> = joint
                .iter()
                .map(|joint| {
                    let all = log_sum(joint);
                    joint.iter().map(|one| (one - all).exp()).collect()
                })
                .collect();
            self.maximise(counts, &members, step % STRENGTH_EVERY == 0);
        }
        self
    }

    fn maximise(&mut self, counts: &Counts, members: &[Vec<f64>], with_strength: bool) {
        let clients = members.len().max(1) as f64;
        for (family, centre) in self.centres.iter_mut().enumerate() {
            self.shares[family] = (members.iter().map(|members| members[family]).sum::<f64>() / clients).max(1e-12);
            // A fixed point of the weights, given the strength.
            let mut next = vec![0.0; centre.len()];
            for (own, members) in counts.each().zip(members).filter(|(_, members)| members[family] > 1e-9) {
                for ((next, &weight), &count) in next.iter_mut().zip(&*centre).zip(own) {
                    if count > 0.0 {
                        let at = self.strength * weight;
                        *next += members[family] * weight * (digamma(at + count) - digamma(at));
                    }
                }
            }
            if next.iter().sum::<f64>() > 0.0 {
                *centre = normalised(next);
            }
        }
        if with_strength {
            self.strength = self.best_strength(counts, members);
        }
    }

    /// Golden section over the logarithm.
    fn best_strength(&self, counts: &Counts, members: &[Vec<f64>]) -> f64 {
        const ROUNDS: usize = 24;
        const GOLDEN: f64 = 0.618_033_988_749_895;
        let value = |log: f64| {
            let of = |(own, members): (&[f64], &Vec<f64>)| {
                let each = self.centres.iter().zip(members).filter(|(_, member)| **member > 1e-6);
                each.map(|(centre, member)| member * log_likelihood(own, centre, log.exp())).sum::<f64>()
            };
            counts.each().zip(members).map(of).sum::<f64>()
        };
        let (mut low, mut high) = (WEAKEST.ln(), STRONGEST.ln());
        let (mut left, mut right) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
        let (mut at_left, mut at_right) = (value(left), value(right));
        for _ in 0..ROUNDS {
            if at_left > at_right {
                (high, right, at_right) = (right, left, at_left);
                left = high - GOLDEN * (high - low);
                at_left = value(left);
            } else {
                (low, left, at_left) = (left, right, at_right);
                right = low + GOLDEN * (high - low);
                at_right = value(right);
            }
        }
        (0.5 * (low + high)).exp()
    }

    /// The families from the largest to the smallest.
    pub(crate) fn ordered(self) -> Self {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by(|&a, &b| self.shares[b].total_cmp(&self.shares[a]));
        Self {
            shares: order.iter().map(|&family| self.shares[family]).collect(),
            centres: order.iter().map(|&family| self.centres[family].clone()).collect(),
            ..self
        }
    }
}

fn normalised(mut weights: Vec<f64>) -> Vec<f64> {
    let all: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight = (*weight / all).max(LEAST));
    let all: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= all);
    weights
}

fn log_sum(values: &[f64]) -> f64 {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    largest + values.iter().map(|value| (value - largest).exp()).sum::<f64>().ln()
}
