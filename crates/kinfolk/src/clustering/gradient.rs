//! Gradient clustering (Armacki, Bajović, Jakovetić, Kar): points go to their nearest centres, and every centre takes a
//! step against the gradient of its cluster's cost, x_k ← x_k − α Σ_{i∈C_k} (x_k − a_i).
//!
//! A step moves a centre towards its cluster's mean by α |C_k| of the way, so the cost falls while α |C_k| < 2. α is 1
//! / the size of the largest cluster, at which no centre passes its mean. The iteration ends when no point changes and
//! every centre is close to its cluster's mean. A centre without points, which has no gradient, takes the point farthest
//! from its own cluster's mean. The result has the means as centres.

use super::kmeans::{best_of, finish};
use super::*;

const MOST_STEPS: usize = 10_000;

/// Clusters by descent, the best of several k-means++ seedings. There must be as many distinct points as clusters.
pub(super) fn cluster(points: Points, clusters: usize, starts: usize, key: &Key) -> Result<KMeans> {
    check_clusters(points, clusters)?;
    best_of(points, clusters, starts, key, |start| {
        Ok(finish(points, lloyd::run(points, start, lloyd::Pace::Descend, MOST_STEPS)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clustering::kmeans;
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
        // From centres 0 and 10; what the first step did shows in the second assignment. α is 1/3: {0, 3.5} goes ⅔ of the
        // way to 1.75, {5.1, 6, 6} all the way to 5.7: 1.17 and 5.7, with 3.43 between; the means have 3.725.
        let labels = |free: f64| {
            let values = [0.0, free, 5.1, 6.0, 6.0];
            lloyd::run(Points::new(&values, 1).unwrap(), &[0.0, 10.0], lloyd::Pace::Descend, 2).unwrap().labels
        };
        assert_eq!(labels(3.5), [0, 1, 1, 1, 1]);
        assert_eq!(labels(3.3), [0, 0, 1, 1, 1]);
        let values = [0.0, 2.0, 9.0];
        let found = cluster(Points::new(&values, 1).unwrap(), 2, 10, &Key::new(0)).unwrap();
        assert_eq!((found.clustering.labels, found.clustering.centres), (vec![0, 0, 1], vec![1.0, 9.0]));
    }

    #[test]
    fn rests_where_lloyd_does() {
        let values = blobs(600, 4);
        let points = Points::new(&values, 2).unwrap();
        let descent = cluster(points, 4, 10, &Key::new(1)).unwrap();
        let jump = kmeans::cluster(points, 4, &kmeans::Options::default(), &Key::new(1)).unwrap();
        assert!(descent.converged);
        assert_eq!(descent.clustering, jump.clustering);
        assert!(descent.iterations > jump.iterations);
    }

    #[test]
    fn degenerate_points() {
        let run = |values: &[f64], clusters| cluster(Points::new(values, 1).unwrap(), clusters, 10, &Key::new(0));
        assert_eq!(run(&[3.0], 1).unwrap().clustering.centres, [3.0]);
        assert_eq!(run(&[3.0, 4.0], 2).unwrap().clustering.labels, [0, 1]);
        assert_eq!(run(&[3.0, 3.0, 3.0], 1).unwrap().inertia, 0.0);
        assert!(run(&[3.0, 3.0, 4.0], 3).unwrap_err().to_string().contains("want at most 2"));
    }
}
