//! How many clusters there are: k-means for a range of numbers, and where its curve bends or its silhouette is largest.

use super::convex::{self, Path};
use super::kmeans::{self, KMeans, count_distinct};
use super::quality::{recovery_interval, silhouette};
use super::{Clustering, Points, kmeans::Options as KMeansOptions};
use crate::error::{Error, Result};
use crate::rng::Key;

/// Where to look and when to stop.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The largest number of clusters to try; where absent [`MOST`]. Never more than there are distinct points, nor than
    /// one less than there are points.
    pub most: Option<usize>,
    /// The elbow is where one more cluster would improve the inertia by less than this share.
    pub threshold: f64,
    /// How k-means runs.
    pub kmeans: KMeansOptions,
}

/// The largest number of clusters that is tried unless asked for more.
pub const MOST: usize = 20;

impl Default for Options {
    fn default() -> Self {
        Self { most: None, threshold: 0.1, kmeans: KMeansOptions::default() }
    }
}

/// One number of clusters that was tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// How many clusters.
    pub clusters: usize,
    /// Sum of squared distances to the centres.
    pub inertia: f64,
    /// The mean silhouette; absent for one cluster, and where the elbow was looked for.
    pub silhouette: Option<f64>,
}

/// The number that was chosen.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The clustering with this number of clusters.
    pub kmeans: KMeans,
    /// What was tried, by ascending number of clusters.
    pub curve: Vec<Level>,
}

/// The elbow: the first number of clusters, from 1 on, at which the next one lowers the inertia by less than the
/// threshold, as a share of the inertia there. The curve ends with the number after it. Where the inertia keeps falling,
/// or is 0, the last number that was tried.
pub fn choose_by_elbow(points: Points, options: &Options, key: &Key) -> Result<Choice> {
    if !(options.threshold > 0.0 && options.threshold < 1.0) {
        return Err(Error::settings(format!("threshold: got {}, want above 0 and below 1", options.threshold)));
    }
    let most = options.most(points)?;
    let mut curve = Vec::new();
    let mut chosen: Option<KMeans> = None;
    for clusters in 1..=most {
        let next = kmeans::cluster(points, clusters, &options.kmeans, key)?;
        curve.push(Level { clusters, inertia: next.inertia, silhouette: None });
        match &chosen {
            Some(last) if last.inertia - next.inertia < options.threshold * last.inertia => break,
            _ => chosen = Some(next),
        }
    }
    Ok(Choice { kmeans: chosen.expect("one cluster is always tried"), curve })
}

/// The number of clusters from 2 on with the largest mean silhouette, the first among equals. A silhouette cannot speak
/// for a single cluster: data without clusters gets some number, with a low silhouette.
pub fn choose_by_silhouette(points: Points, options: &Options, key: &Key) -> Result<Choice> {
    let most = options.most(points)?;
    if most < 2 {
        return Err(Error::data("points: a silhouette needs at least 3 points, 2 of them distinct")
            .hint("say how many clusters to look for"));
    }
    let mut curve: Vec<Level> = Vec::new();
    let mut chosen: Option<(f64, KMeans)> = None;
    for clusters in 2..=most {
        let next = kmeans::cluster(points, clusters, &options.kmeans, key)?;
        let silhouette = silhouette(points, &next.clustering, key);
        curve.push(Level { clusters, inertia: next.inertia, silhouette });
        let silhouette = silhouette.unwrap_or(0.0);
        if chosen.as_ref().is_none_or(|(best, _)| silhouette > *best) {
            chosen = Some((silhouette, next));
        }
    }
    Ok(Choice { kmeans: chosen.expect("two clusters are always tried").1, curve })
}

/// The level of a whole path that lasts longest in λ, and the step that stands for it: neither all distinct points apart
/// nor all together. With `uniform` weights, levels with a λ in the recovery interval (13) of their clusters go before all
/// others unless some clusters are single points, around which the interval is always wide; with other weights the last
/// level wins where it has several clusters beside single points: no λ joins what the weights do not connect.
pub fn choose_by_path(points: Points, path: &Path, uniform: bool) -> Option<(convex::Level, usize)> {
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

impl Options {
    /// How far to go with these points.
    fn most(&self, points: Points) -> Result<usize> {
        if self.most == Some(0) {
            return Err(Error::settings("most: got 0, want at least 1"));
        }
        let most = self.most.unwrap_or(MOST).min(points.count() - 1).max(1);
        Ok(count_distinct(points, most))
    }
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
    fn both_find_planted_clusters() {
        let (values, truth) = blobs(6, 0.1);
        let points = Points::new(&values, 5).unwrap();
        let options = Options { most: Some(10), ..Options::default() };
        let elbow = choose_by_elbow(points, &options, &Key::new(0)).unwrap();
        assert_eq!(elbow.kmeans.clustering.labels, truth);
        assert_eq!(elbow.curve.len(), 7);
        assert!(elbow.curve.windows(2).all(|pair| pair[1].inertia < pair[0].inertia));
        let silhouette = choose_by_silhouette(points, &options, &Key::new(0)).unwrap();
        assert_eq!(silhouette.kmeans.clustering.labels, truth);
        assert_eq!(
            silhouette.curve.iter().map(|level| level.clusters).collect::<Vec<_>>(),
            (2..=10).collect::<Vec<_>>()
        );
        let largest = silhouette.curve.iter().map(|level| level.silhouette.unwrap()).fold(f64::NEG_INFINITY, f64::max);
        assert_eq!(silhouette.curve[4].silhouette, Some(largest));
        assert_eq!(silhouette.curve[4].inertia, elbow.curve[5].inertia);
    }

    #[test]
    fn the_elbow_by_hand() {
        // Inertia 101, 1, 0.5, 0: improvements 100/101, 1/2, all.
        let points = Points::new(&[0.0, 1.0, 10.0, 11.0], 1).unwrap();
        let with = |threshold| {
            let choice = choose_by_elbow(points, &Options { threshold, ..Options::default() }, &Key::new(0)).unwrap();
            (choice.kmeans.clustering.clusters(), choice.curve.iter().map(|level| level.inertia).collect::<Vec<_>>())
        };
        assert_eq!(with(0.6), (2, vec![101.0, 1.0, 0.5]));
        assert_eq!(with(0.995), (1, vec![101.0, 1.0]));
        // Never below: the last that was tried, one less than there are points.
        assert_eq!(with(0.4), (3, vec![101.0, 1.0, 0.5]));
    }

    #[test]
    fn one_cluster_is_an_elbow() {
        let (values, _) = blobs(1, 1.0);
        let mut random = Key::new(8).rng();
        let wide: Vec<f64> = (0..400 * 20).map(|_| random.sample::<f64, _>(StandardNormal)).collect();
        for (values, dimension) in [(&values, 200), (&wide, 20)] {
            let points = Points::new(values, dimension).unwrap();
            let found = choose_by_elbow(points, &Options::default(), &Key::new(0)).unwrap();
            assert_eq!(found.kmeans.clustering.clusters(), 1);
        }
    }

    #[test]
    fn degenerate_points() {
        let elbow =
            |values: &[f64]| choose_by_elbow(Points::new(values, 1).unwrap(), &Options::default(), &Key::new(0));
        let silhouette =
            |values: &[f64]| choose_by_silhouette(Points::new(values, 1).unwrap(), &Options::default(), &Key::new(0));
        for values in [&[1.0][..], &[1.0, 2.0], &[1.0, 1.0, 1.0]] {
            assert_eq!(elbow(values).unwrap().kmeans.clustering.clusters(), 1);
            assert!(silhouette(values).unwrap_err().to_string().contains("at least 3 points, 2 of them distinct"));
        }
        // No more than there are distinct points.
        assert_eq!(silhouette(&[1.0, 1.0, 2.0, 2.0]).unwrap().curve.len(), 1);
        assert_eq!(silhouette(&[1.0, 1.0, 2.0, 2.0]).unwrap().curve[0].silhouette, Some(1.0));
        assert_eq!(elbow(&[1.0, 1.0, 2.0, 2.0]).unwrap().kmeans.clustering.clusters(), 2);
        let fault = |options| choose_by_elbow(Points::new(&[1.0], 1).unwrap(), &options, &Key::new(0)).unwrap_err();
        assert!(fault(Options { most: Some(0), ..Options::default() }).to_string().starts_with("most: got 0"));
        assert!(fault(Options { threshold: 0.0, ..Options::default() }).to_string().starts_with("threshold: got 0"));
    }
}
