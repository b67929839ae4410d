//! The densities of rows under every component, and the weights that components have among some of them.

use super::{Covariance, Family, Rows, Scratch, Shape, prepare, score};
use crate::num::dot;
use rand::RngExt;
use rand_distr::StandardNormal;

/// The densities of rows under every component.
#[derive(Debug, Clone, Default)]
pub(crate) struct Densities {
    components: usize,
    /// Row by row, relative to the largest of the row.
    relative: Vec<f64>,
    /// The logarithms of the largest.
    largest: Vec<f64>,
}

/// A density below which a row is as good as impossible: its logarithm stays finite.
const LEAST: f64 = 1e-300;
/// Steps of EM for weights alone, and the largest change at which they end.
const STEPS: usize = 500;
const TOLERANCE: f64 = 1e-7;

impl Densities {
    /// Of all rows. The scatter must be of every component's own.
    pub(crate) fn of(shape: &Shape, params: &[f64], rows: &Rows, scratch: &mut Scratch) -> Self {
        debug_assert!(matches!(shape.family, Family::Gaussian(Covariance::Full | Covariance::Diagonal)));
        let mut found = Self { components: shape.components, relative: Vec::new(), largest: Vec::new() };
        prepare(shape, params, rows, scratch);
        let weights: Vec<f64> = params[shape.weights()].iter().map(|weight| weight.ln()).collect();
        for block in rows.blocks() {
            score(shape, &block, scratch);
            for row in 0..block.rows {
                let logits = scratch.posteriors.iter().skip(row).step_by(block.rows);
                let logs = logits.zip(&weights).map(|(logit, weight)| logit - weight);
                let largest = logs.clone().fold(f64::NEG_INFINITY, f64::max);
                found.relative.extend(logs.map(|log| (log - largest).exp()));
                found.largest.push(largest);
            }
        }
        found
    }

    pub(crate) fn len(&self) -> usize {
        self.largest.len()
    }

    /// Adds rows of the same components.
    pub(crate) fn append(&mut self, other: &Self) {
        self.components = other.components;
        self.relative.extend_from_slice(&other.relative);
        self.largest.extend_from_slice(&other.largest);
    }

    /// One row alone.
    pub(crate) fn row(&self, row: usize) -> Self {
        Self { components: self.components, relative: self.of_row(row).to_vec(), largest: vec![self.largest[row]] }
    }

    fn of_row(&self, row: usize) -> &[f64] {
        &self.relative[row * self.components..(row + 1) * self.components]
    }

    /// The logarithm of a row's density in the mixture with these weights.
    pub(crate) fn log_density(&self, row: usize, weights: &[f64]) -> f64 {
        self.largest[row] + dot(self.of_row(row), weights).max(LEAST).ln()
    }

    /// Writes the posteriors of a row's components; returns the logarithm of its density.
    pub(crate) fn posteriors(&self, row: usize, weights: &[f64], out: &mut [f64]) -> f64 {
        let mut sum = 0.0;
        for ((out, density), weight) in out.iter_mut().zip(self.of_row(row)).zip(weights) {
            *out = density * weight;
            sum += *out;
        }
        let sum = sum.max(LEAST);
        out.iter_mut().for_each(|out| *out /= sum);
        self.largest[row] + sum.ln()
    }

    /// The weights under which these rows are likeliest, where `prior` counts like so many rows of each component.
    pub(crate) fn weigh(&self, rows: impl Iterator<Item = usize> + Clone, prior: &[f64]) -> Vec<f64> {
        let components = self.components;
        let all = rows.clone().count() as f64 + prior.iter().sum::<f64>();
        let mut weights = vec![1.0 / components as f64; components];
        if all <= 0.0 {
            return weights;
        }
        let mut posteriors = vec![0.0; components];
        for _ in 0..STEPS {
            let mut next = prior.to_vec();
            next.resize(components, 0.0);
            for row in rows.clone() {
                self.posteriors(row, &weights, &mut posteriors);
                next.iter_mut().zip(&posteriors).for_each(|(sum, posterior)| *sum += posterior);
            }
            next.iter_mut().for_each(|weight| *weight /= all);
            let moved = next.iter().zip(&weights).map(|(next, weight)| (next - weight).abs()).fold(0.0, f64::max);
            weights = next;
            if moved < TOLERANCE {
                break;
            }
        }
        weights
    }
}

/// Rows drawn from one component, row-major.
pub(crate) fn draw(
    shape: &Shape,
    params: &[f64],
    component: usize,
    rows: usize,
    random: &mut crate::rng::Rng,
) -> Vec<f64> {
    let columns = shape.columns;
    let centre = &params[shape.centres()][component * columns..][..columns];
    let scatter = &params[shape.scatter()];
    let mut factor = vec![0.0; columns * columns];
    match shape.family {
        Family::Gaussian(Covariance::Full) => {
            crate::num::triangular::factorise(
                &scatter[component * columns * columns..][..columns * columns],
                columns,
                &mut factor,
            );
        }
        _ => {
            let variances = &scatter[component * columns..][..columns];
            variances.iter().enumerate().for_each(|(j, variance)| factor[j * (columns + 1)] = variance.sqrt());
        }
    }
    let mut values = Vec::with_capacity(rows * columns);
    for _ in 0..rows {
        let normal: Vec<f64> = (0..columns).map(|_| random.sample(StandardNormal)).collect();
        // The factor is an upper triangle.
        let moved = |j: usize| (0..=j).map(|i| factor[i * columns + j] * normal[i]).sum::<f64>();
        values.extend((0..columns).map(|j| centre[j] + moved(j)));
    }
    values
}
