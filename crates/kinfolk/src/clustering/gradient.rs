//! Gradient clustering (Armacki, Bajović, Jakovetić, Kar): points go to their nearest centres, and every centre takes a
//! step against the gradient of its cluster's cost, x_k ← x_k − α Σ_{i∈C_k} (x_k − a_i).
//!
//! A step moves a centre towards its cluster's mean by α |C_k| of the way, so the cost falls while α |C_k| < 2. By
//! default α is 1 / the size of the largest cluster, at which no centre passes its mean. The iteration ends when no
//! point changes and every centre is as close to its cluster's mean as the tolerance asks. A centre without points,
//! which has no gradient, takes the point farthest from its own cluster's mean. The result has the means as centres.

use super::kmeans::{KMeans, best_of, check_clusters, finish};
use super::{Points, kmeans, lloyd};
use crate::error::{Error, Result};
use crate::rng::Key;

/// How long and how often to try, and how fast to go.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Independent k-means++ seedings, the best of which is returned.
    pub starts: usize,
    /// Steps at most.
    pub iterations: usize,
    /// α; where absent, 1 / the size of the largest cluster, whatever that is at the time.
    pub step: Option<f64>,
    /// How far from its mean a centre may rest, as a share of the distance to the nearest other centre.
    pub tolerance: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { starts: 10, iterations: 10_000, step: None, tolerance: 1e-8 }
    }
}

/// Clusters by descent. There must be as many distinct points as clusters.
pub fn cluster(points: Points, clusters: usize, options: &Options, key: &Key) -> Result<KMeans> {
    kmeans::Options { starts: options.starts, iterations: options.iterations }.check()?;
    if let Some(step) = options.step.filter(|step| !(step.is_finite() && *step > 0.0)) {
        return Err(Error::settings(format!("step: got {step}, want a number above 0")));
    }
    if !(options.tolerance >= 0.0 && options.tolerance < 1.0) {
        return Err(Error::settings(format!("tolerance: got {}, want at least 0 and below 1", options.tolerance)));
    }
    check_clusters(points, clusters)?;
    let pace = lloyd::Pace::Descend { step: options.step, tolerance: options.tolerance };
    best_of(points, clusters, options.starts, key, |start| {
        Ok(finish(points, lloyd::run(points, start, pace, options.iterations)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use rand::RngExt;
    use rand_distr::StandardNormal;

    fn blobs(count: usize, clusters: usize) -> Vec<f64> {
        let mut random = Key::new(5).rng();
        let middles: Vec<f64> = (0..clusters * 2).map(|_| 8.0 * random.sample::<f64, _>(StandardNormal)).collect();
        // Cluster sizes differ: every second point is of cluster 0.
        let cluster = |point: usize| if point.is_multiple_of(2) { 0 } else { point / 2 % clusters };
        let at = |index: usize| middles[2 * cluster(index / 2) + index % 2];
        (0..2 * count).map(|index| at(index) + 0.3 * random.sample::<f64, _>(StandardNormal)).collect()
    }

    #[test]
    fn steps_by_hand() {
        // From centres 0 and 10; what the first step did shows in the second assignment.
        let labels = |free: f64, step: f64| {
            let values = [0.0, free, 5.1, 6.0, 6.0];
            let pace = lloyd::Pace::Descend { step: Some(step), tolerance: 0.0 };
            lloyd::run(Points::new(&values, 1).unwrap(), &[0.0, 10.0], pace, 2).unwrap().labels
        };
        // {0, 3.5} goes 0.8 of the way to 1.75, {5.1, 6, 6} 1.2 of the way to 5.7: 1.4 and 4.84, with 3.12 between; the
        // means have 3.725.
        assert_eq!(labels(3.5, 0.4), [0, 1, 1, 1, 1]);
        // 0.4 of the way to 1.95 and 0.6 to 5.7: 0.78 and 7.42, with 4.1 between; the means have 3.825.
        assert_eq!(labels(3.9, 0.2), [0, 0, 1, 1, 1]);
        let values = [0.0, 2.0, 9.0];
        let found = cluster(Points::new(&values, 1).unwrap(), 2, &Options::default(), &Key::new(0)).unwrap();
        assert_eq!((found.clustering.labels, found.clustering.centres), (vec![0, 0, 1], vec![1.0, 9.0]));
    }

    #[test]
    fn rests_where_lloyd_does() {
        let values = blobs(600, 4);
        let points = Points::new(&values, 2).unwrap();
        let descent = cluster(points, 4, &Options::default(), &Key::new(1)).unwrap();
        let jump = kmeans::cluster(points, 4, &kmeans::Options::default(), &Key::new(1)).unwrap();
        assert!(descent.converged);
        assert_eq!(descent.clustering, jump.clustering);
        assert!(descent.iterations > jump.iterations);
        // Small steps come to the same place.
        let options = Options { step: Some(1e-3), ..Options::default() };
        assert_eq!(cluster(points, 4, &options, &Key::new(1)).unwrap().clustering, jump.clustering);
    }

    #[test]
    fn steps_that_cannot_descend_are_refused() {
        let values = blobs(100, 3);
        let points = Points::new(&values, 2).unwrap();
        let with = |step: f64, tolerance: f64| {
            cluster(points, 3, &Options { step: Some(step), tolerance, ..Options::default() }, &Key::new(0))
                .unwrap_err()
        };
        assert_eq!(with(0.1, 1e-8).kind(), ErrorKind::Diverged);
        for error in [with(0.0, 1e-8), with(f64::NAN, 1e-8), with(0.001, -1.0), with(0.001, f64::NAN)] {
            assert_eq!(error.kind(), ErrorKind::Settings);
        }
    }

    #[test]
    fn degenerate_points() {
        let run = |values: &[f64], clusters| {
            cluster(Points::new(values, 1).unwrap(), clusters, &Options::default(), &Key::new(0))
        };
        assert_eq!(run(&[3.0], 1).unwrap().clustering.centres, [3.0]);
        assert_eq!(run(&[3.0, 4.0], 2).unwrap().clustering.labels, [0, 1]);
        assert_eq!(run(&[3.0, 3.0, 3.0], 1).unwrap().inertia, 0.0);
        assert!(run(&[3.0, 3.0, 4.0], 3).unwrap_err().to_string().contains("want at most 2"));
    }
}
