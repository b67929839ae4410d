//! Clusters of clients from the distances between them, by average linkage: the two nearest clusters are joined, again and again, up to
//! a distance or down to a number of clusters.

use super::super::*;
use super::cluster_models::ClusterModels;
use crate::clustering::ward::cut;
use kodama::{Method as Linkage, linkage};

settings! {
    /// Where joining ends.
    pub struct JoinUntil {
        /// join down to so many clusters (default: until the distance says)
        clusters: Option<usize> [1..=1 << 20],
        /// join clusters that are at most so far apart; auto: up to the largest gap between one joining and the next
        distance: Auto<f64> [0.0..=1e300] = "auto",
    }

    fn check(&self, check: &mut Check) {
        if self.clusters.is_some() && self.distance != Auto::Auto {
            check.fault("distance", "clusters is given too, want one of them");
        }
    }
}

/// Clusters of points, numbered by their first members, and the distance up to which they were joined.
pub struct Joined {
    pub labels: Vec<usize>,
    pub distance: f64,
}

impl Joined {
    /// These clients in their clusters, of all, each of which begins at the same model.
    pub fn clusters(&self, who: &[u32], clients: usize, start: &Params) -> ClusterModels {
        let count = self.labels.iter().max().map_or(0, |last| last + 1);
        let mut clusters = Assignment::none(count, clients);
        who.iter().zip(&self.labels).for_each(|(&client, &label)| {
            clusters.put(client, label);
        });
        ClusterModels::new(clusters, vec![start.clone(); count])
    }
}

impl JoinUntil {
    /// Joins `count` points with these distances: those of the pairs (0, 1), (0, 2) …, (1, 2) ….
    pub fn join(&self, mut distances: Vec<f64>, count: usize) -> Joined {
        if count < 2 {
            return Joined { labels: vec![0; count], distance: 0.0 };
        }
        let tree = linkage(&mut distances, count, Linkage::Average);
        let heights: Vec<f64> = tree.steps().iter().map(|step| step.dissimilarity).collect();
        let taken = match (self.clusters, &self.distance) {
            (Some(clusters), _) => count.saturating_sub(clusters.max(1)),
            (None, Auto::Given(distance)) => heights.iter().filter(|height| **height <= *distance).count(),
            (None, Auto::Auto) => before_largest_gap(&heights),
        };
        let distance = taken.checked_sub(1).map_or(0.0, |last| heights[last]);
        Joined { labels: cut(&tree, count, taken), distance }
    }
}

/// How many joinings come before the largest ratio of a distance to the one before; all of them where no ratio is above 1.5.
fn before_largest_gap(heights: &[f64]) -> usize {
    const CLEAR: f64 = 1.5;
    let ratio = |at: usize| heights[at] / heights[at - 1].max(f64::MIN_POSITIVE);
    let best = (1..heights.len()).max_by(|&a, &b| ratio(a).total_cmp(&ratio(b)));
    best.filter(|&at| ratio(at) > CLEAR).unwrap_or(heights.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_by_hand() {
        // 0, 1, 10, 12, 13: joined at 1, 1, 2.5, then the two parts at 11.1…
        let points: [f64; 5] = [0.0, 1.0, 10.0, 12.0, 13.0];
        let distances: Vec<f64> = (0..5).flat_map(|i| (i + 1..5).map(move |j| (points[j] - points[i]).abs())).collect();
        let join = |until: JoinUntil| until.join(distances.clone(), 5);
        let auto = join(JoinUntil::default());
        assert_eq!((auto.labels, auto.distance), (vec![0, 0, 1, 1, 1], 2.5));
        let three = join(JoinUntil { clusters: Some(3), ..JoinUntil::default() });
        assert_eq!((three.labels, three.distance), (vec![0, 0, 1, 2, 2], 1.0));
        let far = join(JoinUntil { distance: Auto::Given(20.0), ..JoinUntil::default() });
        assert_eq!(far.labels, [0; 5]);
        let alone = join(JoinUntil { distance: Auto::Given(0.5), ..JoinUntil::default() });
        assert_eq!((alone.labels, alone.distance), (vec![0, 1, 2, 3, 4], 0.0));
        assert_eq!(JoinUntil::default().join(Vec::new(), 1).labels, [0]);
    }
}
