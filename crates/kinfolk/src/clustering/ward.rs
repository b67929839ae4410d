//! Hierarchical clustering by Ward's criterion: again and again the two clusters are joined that raise the sum of squared
//! distances to the cluster means the least.

use crate::linalg::squared_distance;

/// The cluster of every point when `clusters` are left, numbered in the order of their first points. `points` are
/// row-major, finite, and at least as many as clusters.
///
/// Two clusters that are nearest to each other stay so until they are joined, so chains of nearest neighbours find all
/// joins in time proportional to the square of the points, in another order; sorted by height it is the same tree.
pub(crate) fn cluster(points: &[f64], dimension: usize, clusters: usize) -> Vec<u32> {
    let count = points.len() / dimension;
    let mut tree = Tree::new(points, dimension);
    let mut joins = tree.joins();
    // Stable: a join never stands before those that made its parts, which are not higher.
    joins.sort_by(|one, other| one.height.total_cmp(&other.height));
    let mut parents: Vec<usize> = (0..count).collect();
    for join in joins.iter().take(count.saturating_sub(clusters)) {
        let (one, other) = (root(&mut parents, join.one), root(&mut parents, join.other));
        parents[one.max(other)] = one.min(other);
    }
    let mut names = vec![u32::MAX; count];
    let mut next = 0;
    (0..count)
        .map(|point| {
            let root = root(&mut parents, point);
            if names[root] == u32::MAX {
                names[root] = next;
                next += 1;
            }
            names[root]
        })
        .collect()
}

fn root(parents: &mut [usize], mut point: usize) -> usize {
    while parents[point] != point {
        parents[point] = parents[parents[point]];
        point = parents[point];
    }
    point
}

/// Two clusters become one, each named by one of its points.
struct Join {
    one: usize,
    other: usize,
    height: f64,
}

struct Tree {
    count: usize,
    /// Twice the rise of the sum of squares by joining two clusters, for all pairs; infinite for those that are gone.
    rises: Vec<f64>,
    sizes: Vec<f64>,
}

impl Tree {
    fn new(points: &[f64], dimension: usize) -> Self {
        let count = points.len() / dimension;
        let mut rises = vec![f64::INFINITY; count * count];
        for (one, point) in points.chunks_exact(dimension).enumerate() {
            for (other, second) in points.chunks_exact(dimension).enumerate().take(one) {
                let square = squared_distance(point, second);
                rises[one * count + other] = square;
                rises[other * count + one] = square;
            }
        }
        Self { count, rises, sizes: vec![1.0; count] }
    }

    fn joins(&mut self) -> Vec<Join> {
        let mut joins = Vec::with_capacity(self.count.saturating_sub(1));
        let mut chain: Vec<usize> = Vec::new();
        let mut first = 0;
        while joins.len() + 1 < self.count {
            let Some(&last) = chain.last() else {
                while self.sizes[first] == 0.0 {
                    first += 1;
                }
                chain.push(first);
                continue;
            };
            let (mut nearest, height) = self.nearest(last);
            // Among equals the one before in the chain, or the chain would go round in circles.
            if let Some(&before) = chain.iter().nth_back(1)
                && self.rises[last * self.count + before] <= height
            {
                nearest = before;
                chain.truncate(chain.len() - 2);
                self.join(last, nearest);
                joins.push(Join { one: last, other: nearest, height });
            } else {
                chain.push(nearest);
            }
        }
        joins
    }

    fn nearest(&self, cluster: usize) -> (usize, f64) {
        let rises = &self.rises[cluster * self.count..][..self.count];
        let least = rises.iter().fold(f64::INFINITY, |least: f64, &rise| if rise < least { rise } else { least });
        (rises.iter().position(|&rise| rise == least).unwrap_or(cluster), least)
    }

    /// Joins two clusters under the name of the second, by Lance and Williams' formula.
    fn join(&mut self, gone: usize, into: usize) {
        let between = self.rises[gone * self.count + into];
        let (one, two) = (self.sizes[gone], self.sizes[into]);
        for other in 0..self.count {
            let size = self.sizes[other];
            if size == 0.0 || other == gone || other == into {
                continue;
            }
            let from = (self.rises[gone * self.count + other], self.rises[into * self.count + other]);
            let rise = ((one + size) * from.0 + (two + size) * from.1 - size * between) / (one + two + size);
            self.rises[into * self.count + other] = rise;
            self.rises[other * self.count + into] = rise;
            self.rises[other * self.count + gone] = f64::INFINITY;
        }
        self.rises[gone * self.count..][..self.count].fill(f64::INFINITY);
        self.rises[into * self.count + gone] = f64::INFINITY;
        self.sizes[into] += one;
        self.sizes[gone] = 0.0;
    }
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
