//! How many clusters there are: by the largest silhouette, or by the level of a path that lasts longest.

use super::kmeans::count_distinct;
use super::quality::{recovery_interval, silhouette};
use super::*;

const MOST: usize = 20;

/// The k-means clustering with the largest mean silhouette.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub kmeans: KMeans,
    pub silhouette: f64,
    /// Every number of clusters tried, ascending, with its mean silhouette.
    pub curve: Vec<(usize, f64)>,
}

/// The number of clusters from 2 on with the largest mean silhouette, the first among equals. A silhouette cannot speak
/// for a single cluster: data without clusters gets some number, with a low silhouette.
pub(super) fn choose_by_silhouette(points: Points, options: &kmeans::Options, key: &Key) -> Result<Choice> {
    let most = count_distinct(points, MOST.min(points.count() - 1));
    if most < 2 {
        return Err(Error::data("points: a silhouette needs at least 3 points, 2 of them distinct")
            .hint("say how many clusters to look for"));
    }
    let mut curve = Vec::new();
    let mut chosen: Option<(f64, KMeans)> = None;
    for clusters in 2..=most {
        let next = kmeans::cluster(points, clusters, options, key)?;
        let silhouette = silhouette(points, &next.clustering, key).unwrap_or(0.0);
        curve.push((clusters, silhouette));
        if chosen.as_ref().is_none_or(|(best, _)| silhouette > *best) {
            chosen = Some((silhouette, next));
        }
    }
    let (silhouette, kmeans) = chosen.expect("two clusters are always tried");
    Ok(Choice { kmeans, silhouette, curve })
}

/// The level of a whole path that lasts longest in λ, and the step that stands for it: neither all distinct points apart
/// nor all together. With `uniform` weights, levels with a λ in the recovery interval (13) of their clusters go before all
/// others unless some clusters are single points, around which the interval is always wide; with other weights the last
/// level wins where it has several clusters besides single points: no λ joins what the weights do not connect.
pub(super) fn choose_by_path(points: Points, path: &Path, uniform: bool) -> Option<(convex::Level, usize)> {
    let distinct = count_distinct(points, points.count());
    let levels = path.levels();
    let between = |level: &convex::Level| level.clusters > 1 && level.clusters < distinct;
    // Of single points that nothing reaches, no more is known than that they are far.
    let pieces = |level: &convex::Level| {
        let mut sizes = vec![0; level.clusters];
        path.steps[level.last].labels.iter().for_each(|&label| sizes[label] += 1);
        sizes.into_iter().filter(|size| *size > 1).count()
    };
    if let Some(last) = levels.last().filter(|level| !uniform && between(level) && pieces(level) > 1) {
        return Some((*last, last.last));
    }
    let proven = |level: &convex::Level| -> Option<usize> {
        let clustering = Clustering::of(points, &path.steps[level.first].labels);
        if !uniform || clustering.sizes().contains(&1) {
            return None;
        }
        let interval = recovery_interval(points, &clustering);
        (level.first..=level.last).find(|&step| interval.contains(path.steps[step].lambda))
    };
    let ranked = levels.into_iter().filter(between).map(|level| (proven(&level), level));
    let best = ranked.max_by(|(proof, level), (other_proof, other)| {
        proof.is_some().cmp(&other_proof.is_some()).then(level.life().total_cmp(&other.life()))
    });
    best.map(|(proof, level)| (level, proof.unwrap_or((level.first + level.last) / 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;
    use rand_distr::StandardNormal;

    fn blobs(clusters: usize, spread: f64) -> (Vec<f64>, Vec<usize>) {
        let mut random = Key::new(7).rng();
        let middles: Vec<f64> = (0..clusters * 5).map(|_| random.sample::<f64, _>(StandardNormal)).collect();
        let values = (0..40 * clusters * 5)
            .map(|index| middles[index % (clusters * 5)] + spread * random.sample::<f64, _>(StandardNormal))
            .collect();
        (values, (0..40 * clusters).map(|point| point % clusters).collect())
    }

    #[test]
    fn finds_planted_clusters() {
        let (values, truth) = blobs(6, 0.1);
        let points = Points::new(&values, 5).unwrap();
        let found = choose_by_silhouette(points, &kmeans::Options::default(), &Key::new(0)).unwrap();
        assert_eq!(found.kmeans.clustering.labels, truth);
        assert!(found.curve.iter().map(|(clusters, _)| *clusters).eq(2..=20));
        let largest = found.curve.iter().map(|(_, silhouette)| *silhouette).fold(f64::NEG_INFINITY, f64::max);
        assert_eq!((found.silhouette, found.curve[4]), (largest, (6, largest)));
    }

    #[test]
    fn degenerate_points() {
        let choose = |values: &[f64]| {
            choose_by_silhouette(Points::new(values, 1).unwrap(), &kmeans::Options::default(), &Key::new(0))
        };
        for values in [&[1.0][..], &[1.0, 2.0], &[1.0, 1.0, 1.0]] {
            assert!(choose(values).unwrap_err().to_string().contains("at least 3 points, 2 of them distinct"));
        }
        // No more than there are distinct points.
        assert_eq!(choose(&[1.0, 1.0, 2.0, 2.0]).unwrap().curve, [(2, 1.0)]);
    }
}
