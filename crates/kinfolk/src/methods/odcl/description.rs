//! Notes and numbers about ODCL's clusters, for the summary.

use super::*;
use crate::clustering::convex;
use crate::clustering::quality::{separability, separability_for_convex, separability_for_kmeans};
use crate::clustering::threshold::Distances;
use crate::num::distance;

/// Notes and numbers about the clusters.
pub(super) fn describe(clusters: &ModelClusters) -> Result<(Vec<String>, BTreeMap<String, f64>)> {
    let found = &clusters.found;
    // The numbers are about clients that are in a cluster.
    let (values, clustering) = &found.members(clusters.points);
    let points = Points::new(values, clusters.points.dimension())?;
    let mut notes = Vec::new();
    let mut extra = BTreeMap::new();
    let mut number = |name: &str, value: f64| {
        extra.insert(name.to_string(), value);
    };
    if let Some((words, share)) = clusters.sureness() {
        notes.push(words);
        number("sureness", share);
    }
    if let Some(certificate) = &found.certificate {
        number("gap", certificate.gap);
        number("undecided", certificate.undecided as f64);
    }
    if let Some(alpha) = separability(points, clustering) {
        number("separability", alpha);
        number("separability_kmeans", separability_for_kmeans(clustering));
        number("separability_convex", separability_for_convex(clustering));
    }
    if let (Some(lambda), Some(weights)) = (found.lambda, &found.weights) {
        number("lambda", lambda);
        if *weights == Weights::Uniform {
            let interval = recovery_interval(points, clustering);
            number("recovery_lower", interval.lower);
            number("recovery_upper", interval.upper);
            number("recovery", f64::from(u8::from(interval.contains(lambda))));
        }
        if found.path.is_none() && points.count() <= FEW_POINTS {
            // Number of clusters if solutions this close to each other count as equal.
            let solution = convex::cluster(points, weights, lambda)?.solution;
            for (name, share) in [("clusters_1e-3", 1e-3), ("clusters_3e-3", 3e-3)] {
                number(name, groups_within(Points::new(&solution, points.dimension())?, share * spread(points)) as f64);
            }
        }
    }
    notes.extend(found.notes.iter().cloned());
    notes.extend(clusters.aside_note().map(|note| format!("{note}; each has the model of the nearest cluster")));
    Ok((notes, extra))
}

/// Numbers that need all pairs of points are left out beyond this many points.
const FEW_POINTS: usize = 1000;

/// The root mean square distance of points from their mean.
fn spread(points: Points) -> f64 {
    let whole = Clustering::of(points, &vec![0; points.count()]);
    let square = |point: usize| distance(points.row(point), whole.centre(0)).powi(2);
    ((0..points.count()).map(square).sum::<f64>() / points.count() as f64).sqrt()
}

/// Number of connected components when points at most this far apart are neighbours.
fn groups_within(points: Points, reach: f64) -> usize {
    let mut distances = Distances::unknown(points.count());
    for b in 0..points.count() {
        (0..b).for_each(|a| distances.set(a, b, distance(points.row(a), points.row(b))));
    }
    distances.components(reach).iter().max().map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_chains_of_near_points() {
        let points = [0.0, 5.0, 1.0, 2.0, 5.5];
        let count = |reach| groups_within(Points::new(&points, 1).unwrap(), reach);
        assert_eq!([0.4, 0.5, 1.0, 3.0].map(count), [5, 4, 2, 1]);
        assert!((spread(Points::new(&[1.0, 3.0], 1).unwrap()) - 1.0).abs() < 1e-15);
    }
}
