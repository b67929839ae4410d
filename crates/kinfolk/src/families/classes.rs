//! Classes: probabilities from log-odds, and what the second-order expansion of a row's log-likelihood is.
//!
//! At given log-odds `η` with probabilities `p`, minus twice the log-likelihood of a row is `(z − η')ᵀW(z − η')` for others `η'` nearby, but
//! for a constant, with `W = diag(p) − ppᵀ` and the working response `z = η + W⁻¹(y − p)`: a row of a linear model with noise of variance 1.

use super::evidence::Products;
use super::ladder::FoldLosses;
use super::learned::{Family, Learned, most_probable};
use crate::num::{add_scaled, dot};
use serde::{Deserialize, Serialize};

/// What is added to every probability where weights are formed of them: those of rows that are certain do not vanish.
const FLOOR: f64 = 1e-5;

/// The log-odds of each class against the first, and the probabilities of all.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClassOdds {
    pub odds: Vec<f64>,
    pub probabilities: Vec<f64>,
}

impl ClassOdds {
    pub(crate) fn new(equations: usize) -> Self {
        Self { odds: vec![0.0; equations], probabilities: vec![0.0; equations + 1] }
    }

    /// Of a row, by the coefficients of one equation after the other.
    pub(crate) fn set(&mut self, row: &[f64], coefficients: &[f64]) {
        for (odds, equation) in self.odds.iter_mut().zip(coefficients.chunks_exact(row.len().max(1))) {
            *odds = dot(equation, row);
        }
        self.normalise();
    }

    /// Probabilities of the log-odds that are there.
    pub(crate) fn normalise(&mut self) {
        let largest = self.odds.iter().fold(0.0, |largest: f64, &odds| odds.max(largest));
        self.probabilities[0] = (-largest).exp();
        for (probability, odds) in self.probabilities[1..].iter_mut().zip(&self.odds) {
            *probability = (odds - largest).exp();
        }
        let total: f64 = self.probabilities.iter().sum();
        self.probabilities.iter_mut().for_each(|probability| *probability /= total);
    }

    /// Minus twice the log-likelihood of a class.
    pub(crate) fn deviance(&self, class: usize) -> f64 {
        let largest = self.odds.iter().fold(0.0, |largest: f64, &odds| odds.max(largest));
        let total: f64 = (-largest).exp() + self.odds.iter().map(|odds| (odds - largest).exp()).sum::<f64>();
        let own = if class == 0 { 0.0 } else { self.odds[class - 1] };
        2.0 * (largest + total.ln() - own)
    }

    /// `y − p`, but for the first class.
    pub(crate) fn residual(&self, class: usize, out: &mut [f64]) {
        for (at, (out, probability)) in out.iter_mut().zip(&self.probabilities[1..]).enumerate() {
            *out = f64::from(u8::from(at + 1 == class)) - probability;
        }
    }

    /// `W` times a vector.
    pub(crate) fn weigh(&self, vector: &[f64], out: &mut [f64]) {
        let (probabilities, _) = self.floored();
        let mean: f64 = vector.iter().zip(probabilities.clone()).map(|(value, p)| value * p).sum();
        for ((out, value), p) in out.iter_mut().zip(vector).zip(probabilities) {
            *out = p * (value - mean);
        }
    }

    /// Probabilities that are not 0, of all classes but the first, and of the first.
    fn floored(&self) -> (impl Iterator<Item = f64> + Clone, f64) {
        let total = 1.0 + FLOOR * self.probabilities.len() as f64;
        let floored = move |p: &f64| (p + FLOOR) / total;
        (self.probabilities[1..].iter().map(floored), floored(&self.probabilities[0]))
    }
}

impl Products {
    /// Adds the expansion of a row of this class at these log-odds, with a weight.
    pub(crate) fn add_class(&mut self, row: &[f64], class: usize, at: &ClassOdds, weight: f64) {
        self.rows += 1;
        let (width, equations) = (row.len(), at.odds.len());
        let size = width * equations + 1;
        let (mut score, mut moment) = (vec![0.0; equations], vec![0.0; equations]);
        at.residual(class, &mut score);
        at.weigh(&at.odds, &mut moment);
        let bent = dot(&at.odds, &moment);
        let (probabilities, first) = at.floored();
        let probabilities: Vec<f64> = probabilities.collect();
        // z'Wz = η'Wη + 2η's + s'W⁻¹s, with W⁻¹ = diag(1/p) + 11ᵀ/p₀.
        let total: f64 = score.iter().sum();
        let inverse: f64 = score.iter().zip(&probabilities).map(|(s, p)| s * s / p).sum();
        let energy = bent + 2.0 * dot(&at.odds, &score) + inverse + total * total / first;
        add_scaled(&mut moment, 1.0, &score);
        let mut place = 0;
        for (c, &own) in probabilities.iter().enumerate() {
            for (j, value) in row.iter().map(|value| weight * value).enumerate() {
                let left = width - j;
                add_scaled(&mut self.values[place..place + left], own * (1.0 - own) * value, &row[j..]);
                place += left;
                for other in &probabilities[c + 1..] {
                    add_scaled(&mut self.values[place..place + width], -own * other * value, row);
                    place += width;
                }
                self.values[place] += moment[c] * value;
                place += 1;
            }
        }
        debug_assert_eq!(place + 1, size * (size + 1) / 2);
        self.values[place] += weight * energy;
    }
}

/// Probabilities of classes by several models, each with a share and the uncertainty of its coefficients.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClassMix {
    parts: Vec<ClassPart>,
}

#[derive(Debug, Clone, PartialEq)]
struct ClassPart {
    share: f64,
    coefficients: Vec<f64>,
    /// Of the coefficients, row-major; empty where they count as certain.
    covariance: Vec<f64>,
}

impl ClassMix {
    /// One model, taken as certain.
    pub(crate) fn one(coefficients: Vec<f64>) -> Self {
        Self { parts: vec![ClassPart { share: 1.0, coefficients, covariance: Vec::new() }] }
    }

    /// Writes the probabilities of a row. Of log-odds with variance `s²`, the mean probability is near that of odds divided by
    /// `√(1 + πs²/8)`.
    pub(crate) fn probabilities(&self, row: &[f64], odds: &mut ClassOdds, out: &mut [f64]) {
        out.fill(0.0);
        let width = row.len();
        for part in &self.parts {
            odds.set(row, &part.coefficients);
            if !part.covariance.is_empty() {
                let all = part.coefficients.len();
                for (equation, odds) in odds.odds.iter_mut().enumerate() {
                    let start = equation * width;
                    let line = |at: usize| &part.covariance[(start + at) * all + start..][..width];
                    let variance: f64 = row.iter().enumerate().map(|(at, value)| value * dot(line(at), row)).sum();
                    *odds /= (1.0 + std::f64::consts::PI / 8.0 * variance.max(0.0)).sqrt();
                }
                odds.normalise();
            }
            add_scaled(out, part.share, &odds.probabilities);
        }
    }
}

impl Learned {
    /// What serves a client of which nothing is known but the probabilities of the families: each with the spread of its clients.
    pub(crate) fn member_classes(&self, shares: &[f64]) -> ClassMix {
        let part = |(family, &share): (&Family, &f64)| {
            let covariance = self.spread.iter().zip(&family.covariance).map(|(spread, own)| spread + own).collect();
            ClassPart { share, coefficients: family.centre.clone(), covariance }
        };
        ClassMix { parts: self.families.iter().zip(shares).map(part).collect() }
    }
}

/// The losses of four models and of their stack on some rows, and how the stack's depends on its weights: minus twice log-likelihoods.
#[derive(Debug, Clone, PartialEq)]
pub struct StackLosses {
    pub(crate) losses: FoldLosses,
    /// The derivatives of the stack's loss in its weights,
    pub(crate) gradient: [f64; 4],
    /// and the second ones, row-major.
    pub(crate) curvature: [f64; 16],
}

impl Default for StackLosses {
    fn default() -> Self {
        Self { losses: FoldLosses { rows: 0.0, stack: 0.0, rungs: [0.0; 4] }, gradient: [0.0; 4], curvature: [0.0; 16] }
    }
}

impl StackLosses {
    /// How many numbers they are, without the rows.
    pub(crate) const NUMBERS: usize = 25;

    pub(crate) fn write(&self, numbers: &mut Vec<f64>) {
        numbers.push(self.losses.stack);
        numbers.extend(self.losses.rungs.iter().chain(&self.gradient).chain(&self.curvature));
    }

    pub(crate) fn read(rows: f64, numbers: &[f64]) -> Self {
        let at = |place: usize| numbers[place];
        Self {
            losses: FoldLosses { rows, stack: at(0), rungs: std::array::from_fn(|i| at(1 + i)) },
            gradient: std::array::from_fn(|i| at(5 + i)),
            curvature: std::array::from_fn(|i| at(9 + i)),
        }
    }
}

/// How often classes came true, by the probability that they were given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reliability {
    /// Rows that were predicted, and those whose most probable class was theirs.
    pub rows: u64,
    /// See there.
    pub right: u64,
    /// By probability, in equal steps: how often a class did not come true, and how often it did. Of two classes, the second alone counts.
    pub bins: Vec<[u64; 2]>,
}

impl Default for Reliability {
    fn default() -> Self {
        Self { rows: 0, right: 0, bins: vec![[0; 2]; Self::BINS] }
    }
}

impl Reliability {
    const BINS: usize = 50;
    /// How many counts it is.
    pub(crate) const COUNTS: usize = 2 + 2 * Self::BINS;

    pub(crate) fn counts(&self) -> impl Iterator<Item = u64> {
        [self.rows, self.right].into_iter().chain(self.bins.iter().flatten().copied())
    }

    pub(crate) fn from_counts(counts: impl Iterator<Item = u64>) -> Self {
        let counts: Vec<u64> = counts.chain(std::iter::repeat(0)).take(Self::COUNTS).collect();
        let bins = counts[2..].chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
        Self { rows: counts[0], right: counts[1], bins }
    }

    /// Counts a row of this class.
    pub(crate) fn add(&mut self, probabilities: &[f64], class: usize) {
        self.rows += 1;
        self.right += u64::from(most_probable(probabilities) == class);
        let first = usize::from(probabilities.len() == 2);
        for (other, probability) in probabilities.iter().enumerate().skip(first) {
            let bin = ((probability * Self::BINS as f64) as usize).min(Self::BINS - 1);
            self.bins[bin][usize::from(other == class)] += 1;
        }
    }

    /// Adds those of others.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        self.right += other.right;
        for (own, other) in self.bins.iter_mut().zip(&other.bins) {
            own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
        }
    }

    /// Moves counts upwards until every bin has none or at least this many; what is left at the end joins the bin before.
    pub(crate) fn coarsen(&mut self, least: u64) {
        let (mut carried, mut last) = ([0; 2], Self::BINS - 1);
        for bin in 0..Self::BINS {
            let own = std::mem::take(&mut self.bins[bin]);
            carried = [carried[0] + own[0], carried[1] + own[1]];
            if carried[0] + carried[1] >= least.max(1) {
                self.bins[bin] = std::mem::take(&mut carried);
                last = bin;
            }
        }
        (0..2).for_each(|at| self.bins[last][at] += carried[at]);
    }

    /// The share of rows whose most probable class was theirs.
    pub fn accuracy(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.right as f64 / self.rows as f64)
    }

    /// The probability that a row of the class had a higher probability of it than one of another: the area under the ROC curve.
    pub fn auc(&self) -> Option<f64> {
        let total = |at: usize| self.bins.iter().map(|bin| bin[at] as f64).sum::<f64>();
        let (others, hits) = (total(0), total(1));
        let (mut below, mut sum) = (0.0, 0.0);
        for bin in &self.bins {
            sum += bin[1] as f64 * (below + 0.5 * bin[0] as f64);
            below += bin[0] as f64;
        }
        (others > 0.0 && hits > 0.0).then(|| sum / (others * hits))
    }

    /// In ten steps: the mean probability, how often it came true, and how many there are; steps without any are left out.
    pub fn steps(&self) -> Vec<(f64, f64, u64)> {
        let step = |(step, bins): (usize, &[[u64; 2]])| {
            let count: u64 = bins.iter().flatten().sum();
            let middle = |at: usize| (5 * step + at) as f64 / Self::BINS as f64 + 0.5 / Self::BINS as f64;
            let mean: f64 = bins.iter().enumerate().map(|(at, bin)| middle(at) * (bin[0] + bin[1]) as f64).sum();
            let hits: u64 = bins.iter().map(|bin| bin[1]).sum();
            (count > 0).then(|| (mean / count as f64, hits as f64 / count as f64, count))
        };
        self.bins.chunks_exact(5).enumerate().filter_map(step).collect()
    }

    /// How far probabilities are from how often they came true, averaged over predictions: the expected calibration error.
    pub fn calibration_error(&self) -> Option<f64> {
        let (steps, total) = (self.steps(), self.bins.iter().flatten().sum::<u64>());
        let sum: f64 = steps.iter().map(|(said, came, count)| (said - came).abs() * *count as f64).sum();
        (total > 0).then(|| sum / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expansion_has_the_value_slope_and_curvature_of_the_likelihood() {
        let rows = [[1.0, 0.4], [1.0, -1.3], [1.0, 2.0]];
        let classes = [2, 0, 1];
        let at = [0.3, -0.2, -0.5, 0.4];
        let deviance = |model: &[f64]| -> f64 {
            let mut odds = ClassOdds::new(2);
            let row = |(row, class): (&[f64; 2], &usize)| {
                odds.set(row, model);
                odds.deviance(*class)
            };
            rows.iter().zip(&classes).map(row).sum()
        };
        let mut products = Products::none(4);
        let mut odds = ClassOdds::new(2);
        for (row, class) in rows.iter().zip(&classes) {
            odds.set(row, &at);
            products.add_class(row, *class, &odds, 1.0);
        }
        let value = |i: usize, j: usize| products.values[i * 5 - i * (i + 1) / 2 + j];
        let expanded = |model: &[f64]| -> f64 {
            let full = [model, &[-1.0]].concat();
            let entry = |i: usize, j: usize| full[i] * full[j] * value(i.min(j), i.max(j));
            (0..5).flat_map(|i| (0..5).map(move |j| (i, j))).map(|(i, j)| entry(i, j)).sum()
        };
        let constant = deviance(&at) - expanded(&at);
        for i in 0..4 {
            for j in 0..4 {
                for sign in [-1.0, 1.0] {
                    let mut near = at;
                    near[i] += 1e-3;
                    near[j] += sign * 1e-3;
                    let apart = deviance(&near) - expanded(&near) - constant;
                    assert!(apart.abs() < 2e-7, "{i} {j}: {apart}");
                }
            }
        }
        assert!(expanded(&[0.0; 4]) >= 0.0, "a sum of squares");
    }

    #[test]
    fn how_often_probabilities_come_true() {
        let mut found = Reliability::default();
        for row in 0..100 {
            // Said 0.3 and 0.9; came true in 4 of 10 and 9 of 10.
            found.add(&[0.7, 0.3], usize::from(row % 10 < 4));
            found.add(&[0.1, 0.9], usize::from(row % 10 < 9));
        }
        assert_eq!((found.rows, found.accuracy()), (200, Some((60.0 + 90.0) / 200.0)));
        // Of 40·10 pairs ties inside .3, and so on: (40·(60/2) + 90·60 + 90·10/2) / (130·70).
        assert!((found.auc().unwrap() - (40.0 * 30.0 + 90.0 * 65.0) / (130.0 * 70.0)).abs() < 1e-12);
        assert!((found.calibration_error().unwrap() - 0.055).abs() < 0.011, "{:?}", found.steps());
        let again = Reliability::from_counts(found.counts());
        assert_eq!(again, found);
        found.coarsen(150);
        assert_eq!(found.bins.iter().filter(|bin| bin[0] + bin[1] > 0).count(), 1);
    }

    #[test]
    fn odds_by_hand() {
        let mut odds = ClassOdds::new(1);
        odds.set(&[1.0, 2.0], &[1.0, -0.5]);
        assert_eq!((odds.odds[0], &odds.probabilities[..]), (0.0, &[0.5, 0.5][..]));
        assert!((odds.deviance(1) - 2.0 * std::f64::consts::LN_2).abs() < 1e-15);
        odds.set(&[1.0], &[800.0]);
        assert_eq!((odds.deviance(1), odds.deviance(0), most_probable(&odds.probabilities)), (0.0, 1600.0, 1));
    }
}
