//! Tests for more than one cloud, against single clouds simulated like the best single one.

use super::agglomerate::candidates_with;
use super::*;
use rand::RngExt;
use rand_distr::{ChiSquared, Distribution, StandardNormal};

/// Number of simulated single clouds, for a test at the level 1/20.
pub(super) const SIMULATIONS: usize = 19;
/// The same for few points, which are cheap to simulate and easily misleading: at the level 1/100.
const FOR_FEW: usize = 99;
const FEW: usize = 40;
/// Upper bound on the clouds fitted to simulations: enough to see that there is more than one.
const MOST_CLOUDS: usize = 4;

pub(super) fn simulations(count: usize) -> usize {
    if count <= FEW { FOR_FEW } else { SIMULATIONS }
}

/// The gain in the criterion of several clouds over one.
pub(super) fn gain(candidates: &[Candidate]) -> f64 {
    let best = |several: bool| {
        let found = candidates.iter().find(|candidate| (candidate.mixture.clouds.len() > 1) == several);
        found.map_or(f64::NEG_INFINITY, |candidate| candidate.criterion)
    };
    best(true) - best(false)
}

/// Number of simulated single clouds like this one with at least the same gain.
pub(super) fn count_as_good(sample: &Sample, single: &Mixture, gained: f64, key: &Key) -> usize {
    let as_good = |simulation: &usize| {
        let simulated = simulate(sample, single, &key.clone().number(*simulation as u64));
        gain(&candidates_with(&simulated, single.degrees, MOST_CLOUDS)) >= gained
    };
    (0..simulations(sample.count())).into_par_iter().filter(as_good).count()
}

/// As many points drawn from the mixture's only cloud and its noise.
fn simulate(sample: &Sample, single: &Mixture, key: &Key) -> Sample {
    let dimension = sample.dimension;
    let cloud = &single.clouds[0];
    let mut factor = Vec::new();
    factorise(&cloud.scatter.covariance(dimension), dimension, &mut factor);
    let mut random = key.rng();
    let tails =
        single.degrees.and_then(|degrees| Some((f64::from(degrees), ChiSquared::new(f64::from(degrees)).ok()?)));
    let mut values = Vec::with_capacity(sample.values.len());
    for _ in 0..sample.count() {
        if random.random::<f64>() < single.noise {
            let corners = sample.lowest.iter().zip(&sample.highest);
            values.extend(corners.map(|(low, high)| low + (high - low) * random.random::<f64>()));
            continue;
        }
        let normal: Vec<f64> = (0..dimension).map(|_| StandardNormal.sample(&mut random)).collect();
        let stretch = tails.map_or(1.0, |(degrees, chi_squared)| (degrees / chi_squared.sample(&mut random)).sqrt());
        values.extend((0..dimension).map(|at| {
            let column: Vec<f64> = (0..=at).map(|row| factor[row * dimension + at]).collect();
            cloud.centre[at] + stretch * dot(&column, &normal[..=at])
        }));
    }
    Sample::new(values, dimension)
}

#[cfg(test)]
mod tests {
    use super::super::clouds::Cloud;
    use super::super::scatter::{Form, Scatter};
    use super::*;

    #[test]
    fn simulated_clouds_have_the_covariance_asked_for() {
        let cloud = Cloud {
            members: 4e4,
            share: 1.0,
            centre: vec![5.0, -1.0],
            scatter: Scatter::matrix(vec![4.0, 1.0, 1.0, 1.0], 2),
        };
        let single = Mixture { form: Form::Tied, degrees: None, clouds: vec![cloud], noise: 0.0, log_likelihood: 0.0 };
        let sample = simulate(&Sample::new(vec![0.0; 80_000], 2), &single, &Key::new(2));
        let mean = |of: &dyn Fn(&[f64]) -> f64| sample.values.chunks_exact(2).map(of).sum::<f64>() / 4e4;
        assert!((mean(&|row| row[0]) - 5.0).abs() < 0.05 && (mean(&|row| row[1]) + 1.0).abs() < 0.03);
        let moment =
            |one: usize, two: usize| mean(&|row| (row[one] - [5.0, -1.0][one]) * (row[two] - [5.0, -1.0][two]));
        assert!(
            (moment(0, 0) - 4.0).abs() < 0.15 && (moment(0, 1) - 1.0).abs() < 0.06 && (moment(1, 1) - 1.0).abs() < 0.04
        );
    }
}
