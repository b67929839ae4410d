//! Hierarchical clustering by Ward's criterion: the two clusters whose union raises the sum of squared distances to the
//! cluster means the least are merged, again and again.

use crate::num::distance;
use kodama::{Dendrogram, Method, linkage};

/// The cluster of every point when `clusters` are left, numbered in the order of their first points. `points` are
/// row-major, finite, and at least as many as clusters.
pub(crate) fn cluster(points: &[f64], dimension: usize, clusters: usize) -> Vec<u32> {
    let count = points.len() / dimension;
    let row = |point: usize| &points[point * dimension..][..dimension];
    let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other)));
    let mut distances: Vec<f64> = pairs.map(|(one, other)| distance(row(one), row(other))).collect();
    let tree = linkage(&mut distances, count, Method::Ward);
    cut(&tree, count, count - clusters).into_iter().map(|label| label as u32).collect()
}

/// The cluster of each of `count` points after so many merges of a tree, numbered in the order of their first points. (The
/// tree of a single point says that it has none.)
pub(crate) fn cut(tree: &Dendrogram<f64>, count: usize, merges: usize) -> Vec<usize> {
    // A merge is a further node, numbered after the points and the merges before it.
    let mut parents: Vec<usize> = (0..2 * count).collect();
    for (merge, step) in tree.steps().iter().take(merges).enumerate() {
        (parents[step.cluster1], parents[step.cluster2]) = (count + merge, count + merge);
    }
    let roots: Vec<usize> = (0..count).map(|point| super::root(&mut parents, point)).collect();
    super::renumber(&roots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;
    use rand::RngExt;

    /// The same by trying all pairs again and again.
    fn plain(points: &[f64], dimension: usize, clusters: usize) -> Vec<u32> {
        let mut members: Vec<Vec<usize>> = (0..points.len() / dimension).map(|point| vec![point]).collect();
        let squares = |members: &[usize]| -> f64 {
            let column = |column: usize| members.iter().map(move |point| points[point * dimension + column]);
            let spread = |values: usize| {
                let mean = column(values).sum::<f64>() / members.len() as f64;
                column(values).map(|value| (value - mean) * (value - mean)).sum::<f64>()
            };
            (0..dimension).map(spread).sum()
        };
        while members.len() > clusters {
            let mut best = (f64::INFINITY, 0, 0);
            for one in 0..members.len() {
                for other in one + 1..members.len() {
                    let joined = [&members[one][..], &members[other]].concat();
                    let rise = squares(&joined) - squares(&members[one]) - squares(&members[other]);
                    best = if rise < best.0 { (rise, one, other) } else { best };
                }
            }
            let gone = members.remove(best.2);
            members[best.1].extend(gone);
        }
        members.sort_by_key(|members| *members.iter().min().unwrap());
        let mut labels = vec![0; points.len() / dimension];
        for (label, members) in members.iter().enumerate() {
            members.iter().for_each(|&member| labels[member] = label as u32);
        }
        labels
    }

    #[test]
    fn agrees_with_trying_all_pairs() {
        let mut random = Key::new(1).rng();
        for (count, dimension) in [(1, 1), (2, 3), (7, 1), (30, 2), (40, 5)] {
            let points: Vec<f64> = (0..count * dimension).map(|_| random.random()).collect();
            for clusters in [1, 2, 5, count].into_iter().filter(|&clusters| clusters <= count) {
                let found = cluster(&points, dimension, clusters);
                assert_eq!(found, plain(&points, dimension, clusters), "{count} {dimension} {clusters}");
            }
        }
    }

    #[test]
    fn joins_by_hand() {
        // 0 and 1 rise by ½, 4 and 6 by 2; then 9 joins 4 and 6 (⅔·16), not so 0 and 1 with 4 and 6 (20¼).
        let points = [9.0, 0.0, 4.0, 1.0, 6.0];
        assert_eq!(cluster(&points, 1, 4), [0, 1, 2, 1, 3]);
        assert_eq!(cluster(&points, 1, 3), [0, 1, 2, 1, 2]);
        assert_eq!(cluster(&points, 1, 2), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn points_that_coincide_are_joined_first() {
        let points = [5.0, 1.0, 5.0, 1.0, 5.0, 2.0];
        assert_eq!(cluster(&points, 1, 3), [0, 1, 0, 1, 0, 2]);
        // More clusters than distinct points: some coincide, but all have points.
        let labels = cluster(&[3.0; 6], 1, 4);
        assert_eq!((labels.len(), labels.iter().max()), (6, Some(&3)));
    }
}
