//! Clouds without a valley between them are one cluster (Ray and Lindsay 2005).
//!
//! All critical points of the density of two normal clouds lie on their ridge line, on which the gradients of both are
//! parallel. Along it the deepest valley is compared with the lower of the peaks around it.

use super::*;
use crate::num::triangular::solve;

/// Depth of a valley, relative to the lower peak, below which two clusters are distinct.
const SHALLOW: f64 = 0.5;
const PLACES: usize = 40;

/// The cluster of every cloud, numbered in the order of clouds.
pub(super) fn clusters(mixture: &Mixture) -> Vec<usize> {
    let clouds = mixture.clouds.len();
    let mut cluster: Vec<usize> = (0..clouds).collect();
    for one in 0..clouds {
        for two in 0..one {
            let (old, new) = (cluster[one].max(cluster[two]), cluster[one].min(cluster[two]));
            if old != new && valley(mixture, one, two) > SHALLOW {
                cluster.iter_mut().filter(|name| **name == old).for_each(|name| *name = new);
            }
        }
    }
    crate::clustering::renumber(&cluster)
}

/// The least density between two clouds, relative to the lower of the peaks around it: 1 without a valley.
fn valley(mixture: &Mixture, one: usize, two: usize) -> f64 {
    let pair = Mixture { clouds: [one, two].map(|at| mixture.clouds[at].clone()).to_vec(), ..mixture.clone() };
    let size = pair.clouds[0].centre.len();
    let precision = pair.clouds.iter().map(|cloud| precision(&cloud.scatter, size)).collect::<Vec<_>>();
    let pull = |at: usize| -> Vec<f64> {
        precision[at].chunks_exact(size).map(|row| dot(row, &pair.clouds[at].centre)).collect()
    };
    let pulls = [pull(0), pull(1)];
    let density = |place: usize| {
        let share = place as f64 / PLACES as f64;
        let blend = |a: &[f64], b: &[f64]| -> Vec<f64> {
            a.iter().zip(b).map(|(a, b)| (1.0 - share) * a + share * b).collect()
        };
        let mut factor = Vec::new();
        factorise(&blend(&precision[0], &precision[1]), size, &mut factor);
        let mut point = blend(&pulls[0], &pulls[1]);
        solve(&factor, size, &mut point);
        pair.log_densities(&point).into_iter().map(f64::exp).sum::<f64>()
    };
    let densities: Vec<f64> = (0..=PLACES).map(density).collect();
    let peak = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
    let beside_peaks = |place: usize| {
        let lower = peak(&densities[..=place]).min(peak(&densities[place..]));
        // Where even the peaks vanish the clouds are infinitely far apart.
        if lower > 0.0 { densities[place] / lower } else { 0.0 }
    };
    (0..=PLACES).map(beside_peaks).fold(1.0, f64::min)
}

fn precision(scatter: &Scatter, size: usize) -> Vec<f64> {
    let mut factor = Vec::new();
    factorise(&scatter.covariance(size), size, &mut factor);
    let mut inverse = vec![0.0; size * size];
    for (at, column) in inverse.chunks_exact_mut(size).enumerate() {
        column[at] = 1.0;
        solve(&factor, size, column);
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::super::clouds::Cloud;
    use super::super::scatter::Form;
    use super::*;

    fn two(apart: f64, deviation: f64) -> Mixture {
        let cloud = |centre: f64, deviation: f64| Cloud {
            members: 50.0,
            share: 0.5,
            centre: vec![centre],
            scatter: Scatter::Sphere(deviation * deviation),
        };
        let clouds = vec![cloud(0.0, 1.0), cloud(apart, deviation)];
        Mixture { form: Form::Rounds, degrees: None, clouds, noise: 0.0, log_likelihood: 0.0 }
    }

    #[test]
    fn two_equal_clouds_have_a_valley_beyond_two_deviations() {
        assert_eq!(valley(&two(1.9, 1.0), 1, 0), 1.0);
        // Half way between clouds 4 apart: 2 e^(−2) beside 1 + e^(−8).
        let depth = 2.0 * (-2f64).exp() / (1.0 + (-8f64).exp());
        assert!((valley(&two(4.0, 1.0), 1, 0) - depth).abs() < 1e-3);
        assert_eq!(valley(&two(1e6, 1.0), 0, 1), 0.0);
    }

    #[test]
    fn a_core_and_its_halo_are_one_cluster() {
        assert_eq!(clusters(&two(0.5, 4.0)), [0, 0]);
        assert_eq!(clusters(&two(9.0, 1.0)), [0, 1]);
    }
}
