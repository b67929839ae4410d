//! The few directions among many columns that have more variance than noise.
//!
//! For isotropic noise in d columns the n − 1 eigenvalues of the covariance lie below the edge of the Marchenko-Pastur law,
//! (1 + √(d / (n − 1)))² times its variance. Directions beyond it are structure; clusters are sought there, because in all
//! directions together noise makes all distances alike.

use super::*;
use crate::clustering::spectral::Projection;
use std::f64::consts::FRAC_PI_2;

/// Up to this many columns all are used, if there are more points than columns; also the upper bound on directions.
const FEW: usize = 12;
/// Distance from the edge, in units of its width n^(−2/3), beyond which a direction counts. An additional direction of noise
/// does little harm; a missing direction of clusters does much.
const BEYOND: f64 = 0.3;
/// Upper bound on the rounds of removing directions and estimating the noise from the rest.
const ROUNDS: usize = 20;

/// Centred points in those directions, of which there may be none; `None` where all columns are to be used.
pub(super) fn beyond_noise(points: Points) -> Result<Option<Projection>> {
    let (count, dimension) = (points.count(), points.dimension());
    if dimension <= FEW && dimension < count {
        return Ok(None);
    }
    let mut projection = Projection::new(points, FEW)?;
    projection.keep(beyond_edge(&projection.singular, count, dimension).min(projection.directions));
    Ok(Some(projection))
}

/// Number of singular values of centred points beyond the edge.
fn beyond_edge(singular: &[f64], count: usize, dimension: usize) -> usize {
    let free = (count - 1).max(1) as f64;
    let rank = dimension.min(count - 1);
    let mut eigenvalues: Vec<f64> = singular.iter().take(rank).map(|value| value * value / free).collect();
    eigenvalues.resize(rank, 0.0);
    let ratio = dimension as f64 / free;
    let edge = (1.0 + ratio.sqrt()).powi(2);
    let middle = middle_of_noise(ratio);
    let mut beyond = 0;
    for _ in 0..ROUNDS {
        let noise = median(eigenvalues[beyond..].iter().copied()).unwrap_or(0.0) / middle;
        let limit = noise * edge * (1.0 + BEYOND * free.powf(-2.0 / 3.0));
        let now = eigenvalues.iter().take_while(|value| **value > limit).count();
        if now == beyond || now == rank {
            return now;
        }
        beyond = now;
    }
    beyond
}

/// The median of the Marchenko-Pastur law for unit variance, among nonzero eigenvalues.
fn middle_of_noise(ratio: f64) -> f64 {
    const STEPS: usize = 2000;
    let (low, high) = ((1.0 - ratio.sqrt()).powi(2), (1.0 + ratio.sqrt()).powi(2));
    let angle = |step: usize| FRAC_PI_2 * (step as f64 + 0.5) / STEPS as f64;
    // In terms of an angle, both ends of the density √((high − x)(x − low)) / x are smooth.
    let place = |step: usize| low + (high - low) * angle(step).sin().powi(2);
    let mass = |step: usize| (2.0 * angle(step)).sin().powi(2) / place(step);
    let half = (0..STEPS).map(mass).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let step = (0..STEPS).find(|&step| {
        sum += mass(step);
        sum >= half
    });
    place(step.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;
    use rand_distr::{Distribution, StandardNormal};

    #[test]
    fn the_middle_of_noise() {
        // With few columns all eigenvalues are near 1; with as many as points half of them are below 0.6529.
        assert!((middle_of_noise(1e-4) - 1.0).abs() < 1e-2);
        assert!((middle_of_noise(1.0) - 0.6529).abs() < 5e-3, "{}", middle_of_noise(1.0));
    }

    #[test]
    fn directions_beyond_noise_are_counted() {
        for (count, dimension) in [(60, 60), (60, 400), (300, 40)] {
            let mut random = Key::new(1).number(count as u64).rng();
            let mut values: Vec<f64> = (0..count * dimension).map(|_| StandardNormal.sample(&mut random)).collect();
            let found = |values: &[f64]| {
                let centred = Points::new(values, dimension).unwrap().centred();
                beyond_noise(Points::new(&centred, dimension).unwrap()).unwrap().unwrap()
            };
            assert!(found(&values).directions <= 1);
            for (at, row) in values.chunks_exact_mut(dimension).enumerate() {
                row[3] += 12.0 * (at % 3) as f64;
                row[5] += if at % 2 == 0 { 14.0 } else { 0.0 };
            }
            assert_eq!(found(&values).directions, 2, "{count} x {dimension}");
        }
    }

    #[test]
    fn of_many_directions_beyond_noise_the_first_are_used() {
        let (count, dimension) = (80, 200);
        let mut random = Key::new(2).rng();
        let mut values: Vec<f64> = (0..count * dimension).map(|_| StandardNormal.sample(&mut random)).collect();
        values.chunks_exact_mut(dimension).for_each(|row| row[..30].iter_mut().for_each(|value| *value *= 50.0));
        let centred = Points::new(&values, dimension).unwrap().centred();
        let centred = Points::new(&centred, dimension).unwrap();
        let singular = Projection::new(centred, FEW).unwrap().singular;
        assert!(beyond_edge(&singular, count, dimension) > FEW);
        assert_eq!(beyond_noise(centred).unwrap().unwrap().directions, FEW);
    }

    #[test]
    fn without_noise_every_direction_counts() {
        assert_eq!(beyond_edge(&[3.0, 1.0], 10, 40), 2);
        assert_eq!(beyond_edge(&[], 10, 40), 0);
    }
}
