//! Quality of a clustering. With a known truth: the best matching of clusters, the share of clients outside it, and the
//! adjusted Rand index; clusters need not be numbered consecutively, and relabelling either side changes nothing.
//! Without: silhouette, separability, and the conditions under which methods are proven to recover it.

pub use super::geometry::{
    Proximity, RecoveryInterval, SILHOUETTE_ALL, SILHOUETTE_SAMPLE, THRESHOLD_CONSTANT, centre_separation, proximity,
    recovery_interval, separability, separability_for_convex, separability_for_kmeans, silhouette, silhouettes,
};
use std::collections::BTreeMap;

/// Number of clients that every found cluster shares with every true cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contingency {
    /// The found clusters that occur, ascending: the rows.
    pub found: Vec<usize>,
    /// The true clusters that occur, ascending: the columns.
    pub truth: Vec<usize>,
    /// Clients by row and column.
    pub counts: Vec<Vec<usize>>,
}

impl Contingency {
    /// Counts the pairs. Both slices are of the same clients in the same order.
    pub(crate) fn of(found: &[usize], truth: &[usize]) -> Self {
        debug_assert_eq!(found.len(), truth.len(), "both sides must speak of the same clients");
        let (rows, columns) = (positions(found), positions(truth));
        let mut counts = vec![vec![0; columns.len()]; rows.len()];
        for (row, column) in found.iter().zip(truth) {
            counts[rows[row]][columns[column]] += 1;
        }
        Self { found: rows.into_keys().collect(), truth: columns.into_keys().collect(), counts }
    }

    /// The one-to-one matching of clusters that agrees on the most clients.
    pub(crate) fn matching(&self) -> Matching {
        let cost: Vec<f64> = self.counts.iter().flatten().map(|&count| -(count as f64)).collect();
        let assigned = assign(&cost, self.found.len(), self.truth.len());
        let mut matching = Matching { pairs: Vec::new(), matched: 0, clients: self.counts.iter().flatten().sum() };
        for (row, column) in assigned.into_iter().enumerate() {
            if let Some(column) = column {
                matching.pairs.push((self.found[row], self.truth[column]));
                matching.matched += self.counts[row][column];
            }
        }
        matching
    }
}

fn positions(labels: &[usize]) -> BTreeMap<usize, usize> {
    let mut positions: BTreeMap<usize, usize> = labels.iter().map(|&label| (label, 0)).collect();
    for (position, place) in positions.values_mut().enumerate() {
        *place = position;
    }
    positions
}

/// A one-to-one matching of found clusters to true ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matching {
    /// (found, true) in the order of the found clusters; as many as the smaller side has clusters.
    pub pairs: Vec<(usize, usize)>,
    /// Clients that lie in a matched pair.
    pub matched: usize,
    /// All clients.
    pub clients: usize,
}

impl Matching {
    pub(crate) fn truth_of(&self, found: usize) -> Option<usize> {
        self.pairs.iter().find(|pair| pair.0 == found).map(|pair| pair.1)
    }

    /// The share of clients outside the matching; 0 when there are none at all.
    pub(crate) fn misclustering(&self) -> f64 {
        if self.clients == 0 { 0.0 } else { 1.0 - self.matched as f64 / self.clients as f64 }
    }
}

/// The best one-to-one matching of found clusters to true ones; either side may have more clusters.
pub fn match_clusters(found: &[usize], truth: &[usize]) -> Matching {
    Contingency::of(found, truth).matching()
}

/// The share of clients outside the best matching, 1 − matched / clients.
pub fn misclustering(found: &[usize], truth: &[usize]) -> f64 {
    match_clusters(found, truth).misclustering()
}

/// The Rand index, corrected for chance: 1 for equal partitions, around 0 for unrelated ones.
/// Where chance alone gives full agreement (both trivial in the same way) it is 1.
pub fn adjusted_rand_index(found: &[usize], truth: &[usize]) -> f64 {
    let table = Contingency::of(found, truth);
    let pairs = |count: usize| count as f64 * (count as f64 - 1.0) / 2.0;
    let together: f64 = table.counts.iter().flatten().map(|&count| pairs(count)).sum();
    let in_found: f64 = table.counts.iter().map(|row| pairs(row.iter().sum())).sum();
    let in_truth: f64 =
        (0..table.truth.len()).map(|column| pairs(table.counts.iter().map(|row| row[column]).sum())).sum();
    let all = pairs(table.counts.iter().flatten().sum());
    let expected = if all > 0.0 { in_found * in_truth / all } else { 0.0 };
    let largest = (in_found + in_truth) / 2.0;
    if largest == expected { 1.0 } else { (together - expected) / (largest - expected) }
}

/// The assignment of rows to columns with the lowest total cost (Hungarian algorithm with potentials, O(n²m)). `cost` is
/// row-major; the smaller side is assigned completely, so a row gets `None` only when there are more rows than columns. A
/// cost that is missing, not finite or beyond 1e150 (where sums would overflow) is avoided if another assignment exists.
pub(crate) fn assign(cost: &[f64], rows: usize, columns: usize) -> Vec<Option<usize>> {
    let usable = |cost: &f64| cost.abs() < 1e150;
    let largest = cost.iter().copied().filter(usable).map(f64::abs).fold(0.0, f64::max);
    // One forbidden cell must outweigh every sum of allowed ones.
    let forbidden = (largest + 1.0) * 2.0 * (rows.min(columns) as f64 + 1.0);
    let at = |row: usize, column: usize| cost.get(row * columns + column).copied().filter(usable).unwrap_or(forbidden);
    if rows <= columns {
        let mut assigned = vec![None; rows];
        for (column, row) in assign_short_side(rows, columns, at).into_iter().enumerate() {
            if let Some(row) = row {
                assigned[row] = Some(column);
            }
        }
        assigned
    } else {
        assign_short_side(columns, rows, |column, row| at(row, column))
    }
}

/// For each of the `many`, which of the `few` is assigned to it. Needs `few <= many`.
fn assign_short_side(few: usize, many: usize, cost: impl Fn(usize, usize) -> f64) -> Vec<Option<usize>> {
    // Position 0 of both sides is a sentinel: column 0 holds the item being assigned.
    let mut potential_few = vec![0.0; few + 1];
    let mut potential_many = vec![0.0; many + 1];
    let mut holder = vec![0_usize; many + 1];
    for item in 1..=few {
        holder[0] = item;
        let mut slack = vec![f64::INFINITY; many + 1];
        let mut came_from = vec![0_usize; many + 1];
        let mut visited = vec![false; many + 1];
        let mut current = 0;
        while holder[current] != 0 {
            visited[current] = true;
            let row = holder[current];
            let (mut step, mut next) = (f64::INFINITY, 0);
            for column in (1..=many).filter(|&column| !visited[column]) {
                let reduced = cost(row - 1, column - 1) - potential_few[row] - potential_many[column];
                if reduced < slack[column] {
                    slack[column] = reduced;
                    came_from[column] = current;
                }
                if slack[column] < step {
                    step = slack[column];
                    next = column;
                }
            }
            for column in 0..=many {
                if visited[column] {
                    potential_few[holder[column]] += step;
                    potential_many[column] -= step;
                } else {
                    slack[column] -= step;
                }
            }
            current = next;
        }
        while current != 0 {
            holder[current] = holder[came_from[current]];
            current = came_from[current];
        }
    }
    holder[1..].iter().map(|&item| item.checked_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;
    use rand::RngExt;

    /// The lowest cost over all ways to give each of `rows` its own column, by trying them all.
    fn lowest_by_search(cost: &[f64], rows: usize, columns: usize) -> f64 {
        fn search(cost: &[f64], rows: usize, columns: usize, row: usize, taken: &mut Vec<bool>, spare: usize) -> f64 {
            if row == rows {
                return 0.0;
            }
            let mut best = f64::INFINITY;
            if spare > 0 {
                best = search(cost, rows, columns, row + 1, taken, spare - 1);
            }
            for column in 0..columns {
                if !taken[column] {
                    taken[column] = true;
                    best = best.min(cost[row * columns + column] + search(cost, rows, columns, row + 1, taken, spare));
                    taken[column] = false;
                }
            }
            best
        }
        search(cost, rows, columns, 0, &mut vec![false; columns], rows.saturating_sub(columns))
    }

    fn total(cost: &[f64], columns: usize, assigned: &[Option<usize>]) -> f64 {
        assigned.iter().enumerate().filter_map(|(row, column)| column.map(|column| cost[row * columns + column])).sum()
    }

    #[test]
    fn assigns_a_table_solved_by_hand() {
        // Taking the 0 in the middle first would force 4 + 0 + 2 or 3 + 0 + 3; the best is 1 + 2 + 2.
        let cost = [4.0, 1.0, 3.0, 2.0, 0.0, 5.0, 3.0, 2.0, 2.0];
        let assigned = assign(&cost, 3, 3);
        assert_eq!(assigned, [Some(1), Some(0), Some(2)]);
        assert_eq!(total(&cost, 3, &assigned), 5.0);
    }

    #[test]
    fn assigns_like_exhaustive_search() {
        let mut random = Key::new(0).word("assign").rng();
        for rows in 0..6 {
            for columns in 0..6 {
                for _ in 0..20 {
                    let cost: Vec<f64> = (0..rows * columns).map(|_| random.random_range(-5.0..5.0)).collect();
                    let assigned = assign(&cost, rows, columns);
                    assert_eq!(assigned.len(), rows);
                    let mut taken: Vec<usize> = assigned.iter().flatten().copied().collect();
                    taken.sort_unstable();
                    taken.dedup();
                    assert_eq!(taken.len(), rows.min(columns), "every column once, the smaller side completely");
                    let (ours, best) = (total(&cost, columns, &assigned), lowest_by_search(&cost, rows, columns));
                    assert!((ours - best).abs() < 1e-9, "{rows} x {columns}: {ours} against {best}");
                }
            }
        }
    }

    #[test]
    fn avoids_costs_that_are_not_numbers() {
        let cost = [f64::NAN, 7.0, 1.0, f64::INFINITY];
        assert_eq!(assign(&cost, 2, 2), [Some(1), Some(0)]);
        assert_eq!(assign(&[f64::MAX, f64::MAX, f64::MAX, 1.0], 2, 2), [Some(0), Some(1)]);
        assert_eq!(assign(&[], 2, 2).len(), 2);
    }

    #[test]
    fn matches_clusters_by_hand() {
        // Found 5 shares 3 clients with true 1; found 9 shares 2 with true 0; one client strays.
        let (found, truth) = ([5, 5, 5, 5, 9, 9], [1, 1, 1, 0, 0, 0]);
        let matching = match_clusters(&found, &truth);
        assert_eq!(matching.pairs, [(5, 1), (9, 0)]);
        assert_eq!((matching.matched, matching.clients), (5, 6));
        assert_eq!(matching.truth_of(9), Some(0));
        assert_eq!(matching.truth_of(0), None);
        assert!((misclustering(&found, &truth) - 1.0 / 6.0).abs() < 1e-15);
    }

    #[test]
    fn matches_when_one_side_has_more_clusters() {
        // Four singletons against two pairs: two singletons match, two are left over.
        assert_eq!(misclustering(&[0, 1, 2, 3], &[0, 0, 1, 1]), 0.5);
        // One cluster against two pairs: one pair matches.
        assert_eq!(misclustering(&[0, 0, 0, 0], &[0, 0, 1, 1]), 0.5);
        assert_eq!(misclustering(&[], &[]), 0.0);
    }

    #[test]
    fn adjusted_rand_index_by_hand() {
        // Together 2, in found 3 + 3, in truth 1 + 1 + 1, all 15: (2 - 1.2) / (4.5 - 1.2).
        let index = adjusted_rand_index(&[0, 0, 0, 1, 1, 1], &[0, 0, 1, 1, 2, 2]);
        assert!((index - 0.8 / 3.3).abs() < 1e-12, "{index}");
        assert!((adjusted_rand_index(&[0, 0, 1, 1], &[0, 1, 0, 1]) + 0.5).abs() < 1e-12);
        assert_eq!(adjusted_rand_index(&[0, 0, 0], &[0, 1, 2]), 0.0);
        for trivial in [&[][..], &[3], &[1, 1, 1], &[0, 1, 2]] {
            assert_eq!(adjusted_rand_index(trivial, trivial), 1.0);
        }
    }

    #[test]
    fn relabelling_and_reordering_change_nothing() {
        let mut random = Key::new(1).word("relabel").rng();
        for _ in 0..50 {
            let found: Vec<usize> = (0..40).map(|_| random.random_range(0..5)).collect();
            let truth: Vec<usize> = (0..40).map(|_| random.random_range(0..4)).collect();
            let renamed: Vec<usize> = found.iter().rev().map(|cluster| [70, 3, 11, 0, 2][*cluster]).collect();
            let reordered: Vec<usize> = truth.iter().rev().map(|cluster| [1, 9, 0, 4][*cluster]).collect();
            assert_eq!(misclustering(&found, &truth), misclustering(&renamed, &reordered));
            let difference = adjusted_rand_index(&found, &truth) - adjusted_rand_index(&renamed, &reordered);
            assert!(difference.abs() < 1e-12);
            assert_eq!(misclustering(&found, &found), 0.0);
        }
    }
}
