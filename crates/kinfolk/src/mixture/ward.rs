//! Hierarchical clustering by Ward's criterion: again and again the two clusters are joined that raise the sum of squared
//! distances to the cluster means the least.

use crate::linalg::squared_distance;

/// The cluster of every point when `clusters` are left, numbered in the order of their first points. `points` are
/// row-major, finite, and at least as many as clusters.
///
/// Two clusters that are nearest to each other stay so until they are joined, so chains of nearest neighbours find all
/// joins in time proportional to the square of the points, in another order; sorted by height it is the same tree.
pub(super) fn cluster(points: &[f64], dimension: usize, clusters: usize) -> Vec<u32> {
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
