//! The centres of the clusters and the global one, from the sums of their clients' quadratics.
//!
//! The centres minimise `Σ_j [½w_jᵀT_jw_j − t_jᵀw_j + λ_j/2 ‖w_j − w̄‖²]`. A cluster's own strength `λ_j` may be 0: it
//! stands alone; or infinite: its centre is the global one.

use super::response::{Quadratic, Response};
use crate::num::{Matrix, Spectrum, add_scaled, multiply, multiply_add};
use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Centres {
    /// `w_j` of every cluster.
    pub clusters: Vec<Vec<f64>>,
    /// `w̄`. Where every cluster stands alone it is the mean over the clients of their clusters' centres.
    pub global: Vec<f64>,
    /// For every cluster, the number of directions without data. The centre is zero along them.
    pub undetermined: Vec<usize>,
}

/// The clusters joined under one global centre.
pub struct Joint<'a> {
    clusters: &'a [Quadratic],
    strengths: Vec<f64>,
    /// The response of each cluster to the global centre, and the sum.
    pub(super) responses: Vec<Response>,
    pub(super) sum: Quadratic,
    pub(super) spectrum: Spectrum,
    pub(super) global: Vec<f64>,
}

impl<'a> Joint<'a> {
    /// Joins the clusters' quadratics, with a strength for every cluster.
    pub fn new(clusters: &'a [Quadratic], strengths: &[f64]) -> Result<Self> {
        let size = clusters.first().map_or(0, Quadratic::dimension);
        let responses = clusters.iter().zip(strengths).map(|(cluster, &strength)| cluster.respond(strength));
        let responses = responses.collect::<Option<Vec<_>>>().ok_or_else(diverged)?;
        let mut sum = Response::zero(size).into_quadratic();
        responses.iter().for_each(|response| sum.add_scaled(1.0, &response.clone().into_quadratic()));
        // A weak tie brings the clusters' curvatures down to its strength, but not the rounding in them.
        let largest = |matrix: &[f64]| matrix.iter().step_by(size + 1).copied().fold(0.0, f64::max);
        let below: f64 = clusters.iter().map(|cluster| largest(&cluster.curvature)).sum();
        let share = Spectrum::ROUNDING * size as f64 * (1.0 + below / largest(&sum.curvature).max(f64::MIN_POSITIVE));
        let spectrum = Spectrum::above(&sum.curvature, size, share.min(0.5)).ok_or_else(diverged)?;
        let global = spectrum.solve(&sum.moment);
        Ok(Self { clusters, strengths: strengths.to_vec(), responses, sum, spectrum, global })
    }

    pub fn centre(&self, cluster: usize) -> Result<Vec<f64>> {
        self.clusters[cluster].minimiser(self.strengths[cluster], &self.global).ok_or_else(diverged)
    }

    /// All centres; `clients` are the numbers of clients in the clusters.
    pub fn centres(&self, clients: &[usize]) -> Result<Centres> {
        let size = self.global.len();
        let clusters = (0..self.clusters.len()).map(|j| self.centre(j)).collect::<Result<Vec<_>>>()?;
        let mut global = self.global.clone();
        if self.strengths.iter().all(|&strength| strength == 0.0) {
            let all = clients.iter().sum::<usize>().max(1) as f64;
            for (centre, &count) in clusters.iter().zip(clients) {
                add_scaled(&mut global, count as f64 / all, centre);
            }
        }
        let mut undetermined = vec![size - self.spectrum.rank(); clusters.len()];
        for (j, silent) in undetermined.iter_mut().enumerate().filter(|(j, _)| self.strengths[*j] == 0.0) {
            *silent = size - Spectrum::new(&self.clusters[j].curvature, size).ok_or_else(diverged)?.rank();
        }
        Ok(Centres { clusters, global, undetermined })
    }

    /// The covariance of one centre, by that of the global one.
    pub(super) fn covariance(&self, cluster: usize, global: &[f64]) -> Result<Vec<f64>> {
        let (strength, size) = (self.strengths[cluster], self.global.len());
        if strength == f64::INFINITY {
            return Ok(global.to_vec());
        }
        // C + λ²·C·G·C, where C is the covariance if the global centre is known, and G that of the global centre.
        let mut covariance = self.clusters[cluster].covariance(strength).ok_or_else(diverged)?;
        let followed: Vec<f64> = covariance.iter().map(|x| strength * x).collect();
        let square = |values| Matrix::new(values, size, size);
        let mut half = vec![0.0; size * size];
        multiply(&mut half, 1.0, square(&followed), square(global));
        multiply_add(&mut covariance, 1.0, square(&half), square(&followed));
        Ok(covariance)
    }
}

fn diverged() -> Error {
    Error::new(ErrorKind::Diverged, "the clients' sums are no losses: not finite, or with negative curvature")
        .hint("scale the features, or choose larger strengths")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::{distance, dot, squared_distance};

    /// Losses around planted points, with data in the first `rank` directions of a rotated basis only.
    fn cluster(seed: u64, size: usize, rank: usize) -> Quadratic {
        let mut curvature = vec![0.0; size * size];
        for r in 0..rank {
            let row: Vec<f64> =
                (0..size).map(|i| (1.3 * ((seed + 1) * (i as u64 + 1) * (r as u64 + 2)) as f64).sin()).collect();
            multiply_add(&mut curvature, 1.0, Matrix::new(&row, size, 1), Matrix::new(&row, 1, size));
        }
        let truth: Vec<f64> = (0..size).map(|i| (seed as f64 + i as f64).cos()).collect();
        let moment = curvature.chunks_exact(size).map(|row| dot(row, &truth)).collect();
        Quadratic { curvature, moment, energy: 0.0 }
    }

    /// The objective whose minimum the centres are.
    fn objective(clusters: &[Quadratic], strengths: &[f64], centres: &[Vec<f64>], global: &[f64]) -> f64 {
        let terms = clusters.iter().zip(strengths).zip(centres).map(|((cluster, strength), centre)| {
            let pull = if strength.is_finite() { 0.5 * strength * squared_distance(centre, global) } else { 0.0 };
            cluster.value(centre) + pull
        });
        terms.sum()
    }

    #[test]
    fn two_clusters_of_one_parameter_by_hand() {
        // ½·2(w−1)² and ½·2(w−4)², λ = 2 and 1: responses 1 and ⅔, so w̄ = (1·1 + ⅔·4)/(5/3) = 2.2.
        let at = |place: f64| Quadratic { curvature: vec![2.0], moment: vec![2.0 * place], energy: 0.0 };
        let (clusters, strengths) = ([at(1.0), at(4.0)], [2.0, 1.0]);
        let joint = Joint::new(&clusters, &strengths).unwrap();
        let found = joint.centres(&[1, 1]).unwrap();
        assert!((found.global[0] - 2.2).abs() < 1e-14);
        assert!((found.clusters[0][0] - 1.6).abs() < 1e-14 && (found.clusters[1][0] - 3.4).abs() < 1e-14);
        // 1/U = .6; ¼ + (½)²·.6 and ⅓ + (⅓)²·.6.
        let global = joint.spectrum.inverse();
        let wanted = [0.6, 0.25 + 0.15, 1.0 / 3.0 + 0.6 / 9.0];
        let values = [global.clone(), joint.covariance(0, &global).unwrap(), joint.covariance(1, &global).unwrap()];
        assert!(values.iter().zip(wanted).all(|(value, wanted)| (value[0] - wanted).abs() < 1e-14));
    }

    #[test]
    fn any_mixture_of_strengths_is_a_minimum() {
        let clusters: Vec<Quadratic> = (0..5).map(|j| cluster(j, 3, 3)).collect();
        let strengths = [0.0, 0.3, f64::INFINITY, 20.0, f64::INFINITY];
        let joint = Joint::new(&clusters, &strengths).unwrap();
        let found = joint.centres(&[1; 5]).unwrap();
        assert_eq!((&found.clusters[2], &found.clusters[4]), (&found.global, &found.global));
        assert_eq!(found.undetermined, [0; 5]);
        let least = objective(&clusters, &strengths, &found.clusters, &found.global);
        for moved in 0..6 {
            for i in 0..3 {
                let (mut centres, mut global) = (found.clusters.clone(), found.global.clone());
                if moved < 5 && strengths[moved].is_finite() {
                    centres[moved][i] += 1e-3;
                } else {
                    [&mut global, &mut centres[2]].into_iter().for_each(|w| w[i] += 1e-3);
                    centres[4][i] += 1e-3;
                }
                assert!(objective(&clusters, &strengths, &centres, &global) > least + 1e-9);
                let (mut opposite, mut away) = (found.clusters.clone(), found.global.clone());
                opposite
                    .iter_mut()
                    .zip(&centres)
                    .for_each(|(o, c)| o.iter_mut().zip(c).for_each(|(o, c)| *o = 2.0 * *o - c));
                away.iter_mut().zip(&global).for_each(|(a, g)| *a = 2.0 * *a - g);
                assert!(objective(&clusters, &strengths, &opposite, &away) > least + 1e-9);
            }
        }
    }

    #[test]
    fn the_global_centre_is_the_weighted_mean_and_covariances_invert_the_joint_curvature() {
        let (size, strengths) = (2, [0.7, 3.0]);
        let clusters: Vec<Quadratic> = (0..2).map(|j| cluster(j, size, size)).collect();
        let joint = Joint::new(&clusters, &strengths).unwrap();
        let found = joint.centres(&[1, 1]).unwrap();
        let mean = |i: usize| (0.7 * found.clusters[0][i] + 3.0 * found.clusters[1][i]) / 3.7;
        assert!((0..2).all(|i| (found.global[i] - mean(i)).abs() < 1e-13));
        // (w_0, w_1, w̄) jointly: T_j + λ_j on the diagonal, −λ_j beside it, Σλ_j at its end.
        let mut whole = [0.0; 36];
        for j in 0..2 {
            for a in 0..size {
                for b in 0..size {
                    whole[(j * 2 + a) * 6 + j * 2 + b] = clusters[j].curvature[a * size + b];
                }
                whole[(j * 2 + a) * 7] += strengths[j];
                whole[(j * 2 + a) * 6 + 4 + a] -= strengths[j];
                whole[(4 + a) * 6 + j * 2 + a] -= strengths[j];
                whole[(4 + a) * 7] += strengths[j];
            }
        }
        let inverse = Spectrum::new(&whole, 6).unwrap().inverse();
        let block = |r: usize, c: usize| [0, 1, 2, 3].map(|i| inverse[(2 * r + i / 2) * 6 + 2 * c + i % 2]);
        let global = joint.spectrum.inverse();
        assert!(distance(&global, &block(2, 2)) < 1e-13);
        for j in 0..2 {
            assert!(distance(&joint.covariance(j, &global).unwrap(), &block(j, j)) < 1e-13);
        }
    }

    #[test]
    fn directions_without_data_are_zero_and_said() {
        // Data in the plane of the first two axes only, in all clusters together.
        let flat = |a: f64, b: f64, place: f64| Quadratic {
            curvature: vec![a, 0.0, 0.0, 0.0, b, 0.0, 0.0, 0.0, 0.0],
            moment: vec![a * place, b * place, 0.0],
            energy: 0.0,
        };
        let clusters = [flat(1.0, 0.0, 1.0), flat(0.0, 2.0, 3.0), flat(1.0, 0.0, 5.0)];
        let joint = Joint::new(&clusters, &[1.0, 1.0, 0.0]).unwrap();
        let found = joint.centres(&[1; 3]).unwrap();
        assert_eq!(found.undetermined, [1, 1, 2]);
        assert!(distance(&found.global, &[1.0, 3.0, 0.0]) < 1e-14);
        assert!(distance(&found.clusters[0], &[1.0, 3.0, 0.0]) < 1e-14);
        assert!(distance(&found.clusters[2], &[5.0, 0.0, 0.0]) < 1e-14);
        let global = joint.spectrum.inverse();
        assert!((0..3).all(|j| joint.covariance(j, &global).unwrap().iter().all(|x| x.is_finite())));
        let none = [flat(0.0, 0.0, 0.0), flat(0.0, 0.0, 0.0)];
        let found = Joint::new(&none, &[f64::INFINITY, 0.0]).unwrap().centres(&[1, 1]).unwrap();
        assert_eq!((found.global, found.undetermined), (vec![0.0; 3], vec![3, 3]));
    }

    #[test]
    fn alone_they_have_a_mean_over_clients() {
        let at = |place: f64| Quadratic { curvature: vec![2.0], moment: vec![2.0 * place], energy: 0.0 };
        let clusters = [at(1.0), at(4.0)];
        let found = Joint::new(&clusters, &[0.0, 0.0]).unwrap().centres(&[3, 1]).unwrap();
        assert_eq!((found.clusters, found.global), (vec![vec![1.0], vec![4.0]], vec![1.75]));
        assert!(Joint::new(&clusters, &[0.0, -1.0]).is_err());
        let lost = [Quadratic { curvature: vec![f64::NAN], moment: vec![0.0], energy: 0.0 }];
        assert_eq!(Joint::new(&lost, &[1.0]).err().unwrap().kind(), ErrorKind::Diverged);
    }
}
