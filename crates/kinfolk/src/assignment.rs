//! Which client is in which cluster: the one type for it, from methods to reports.

use serde::{Deserialize, Serialize};

/// The cluster of every client; `None` for a client that is in no cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    clusters: usize,
    of: Vec<Option<usize>>,
}

impl Assignment {
    pub(crate) fn none(clusters: usize, clients: usize) -> Self {
        Self { clusters, of: vec![None; clients] }
    }

    pub(crate) fn one(clients: usize) -> Self {
        Self { clusters: 1, of: vec![Some(0); clients] }
    }

    /// Number of clusters, empty ones included.
    pub fn clusters(&self) -> usize {
        self.clusters
    }

    pub(crate) fn of(&self, client: u32) -> Option<usize> {
        self.of[client as usize]
    }

    /// Every client's cluster.
    pub fn each(&self) -> &[Option<usize>] {
        &self.of
    }

    /// Moves a client into a cluster. Returns the cluster it was in before.
    pub(crate) fn put(&mut self, client: u32, cluster: usize) -> Option<usize> {
        self.clusters = self.clusters.max(cluster + 1);
        self.of[client as usize].replace(cluster)
    }

    /// The clients of a cluster, ascending.
    pub fn members(&self, cluster: usize) -> Vec<u32> {
        self.with(Some(cluster))
    }

    /// The clients that are in no cluster, ascending.
    pub fn unassigned(&self) -> Vec<u32> {
        self.with(None)
    }

    fn with(&self, cluster: Option<usize>) -> Vec<u32> {
        (0..).zip(&self.of).filter(|(_, of)| **of == cluster).map(|(client, _)| client).collect()
    }

    /// The same without empty clusters, the others numbered in the order of their first members; and their numbers before.
    pub(crate) fn renumbered(&self) -> (Self, Vec<usize>) {
        let mut before: Vec<usize> = Vec::new();
        for cluster in self.of.iter().flatten() {
            if !before.contains(cluster) {
                before.push(*cluster);
            }
        }
        let number = |cluster: usize| before.iter().position(|other| *other == cluster);
        (self.of.iter().map(|cluster| cluster.and_then(number)).collect(), before)
    }

    pub(crate) fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.clusters];
        self.of.iter().flatten().for_each(|&cluster| sizes[cluster] += 1);
        sizes
    }
}

/// The clusters of clients in their order; there are as many as the largest number says.
impl FromIterator<Option<usize>> for Assignment {
    fn from_iter<I: IntoIterator<Item = Option<usize>>>(clusters: I) -> Self {
        let of: Vec<Option<usize>> = clusters.into_iter().collect();
        Self { clusters: of.iter().flatten().max().map_or(0, |last| last + 1), of }
    }
}

impl FromIterator<usize> for Assignment {
    fn from_iter<I: IntoIterator<Item = usize>>(clusters: I) -> Self {
        clusters.into_iter().map(Some).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_sizes_and_moves() {
        let mut assignment = Assignment::from_iter([Some(1), None, Some(0), Some(1)]);
        assert_eq!((assignment.clusters(), assignment.sizes()), (2, vec![1, 2]));
        assert_eq!((assignment.members(1), assignment.unassigned()), (vec![0, 3], vec![1]));
        assert_eq!(assignment.put(1, 4), None);
        assert_eq!((assignment.put(0, 1), assignment.of(1), assignment.clusters()), (Some(1), Some(4), 5));
        assert_eq!(assignment.renumbered(), (Assignment::from_iter([0, 1, 2, 0]), vec![1, 4, 0]));
        assert_eq!(Assignment::from_iter([0, 0]), Assignment::one(2));
        assert_eq!(Assignment::none(2, 1).sizes(), [0, 0]);
    }
}
