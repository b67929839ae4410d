//! The single-linkage tree of a set of points.

use super::squares::{squared_distances, transpose};
use crate::clustering::root;

/// Nested sets of points. Every set is a range of one order of the points.
pub(super) struct Tree {
    order: Vec<usize>,
    /// Sets of at least two points; the last one is all points.
    nodes: Vec<Node>,
}

struct Node {
    first: usize,
    last: usize,
    length: f64,
    children: [Option<usize>; 2],
}

#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) members: &'a [usize],
    /// The largest merge distance inside.
    pub(super) inside: f64,
    /// The distance to the nearest point outside.
    pub(super) outside: f64,
}

impl Tree {
    /// Over rows of `dimension` numbers.
    pub(super) fn over(values: &[f64], dimension: usize) -> Self {
        Self::join(spanning_tree(values, dimension), values.len() / dimension)
    }

    /// Over the nodes of a graph with these edges (length, one end, other end). Parts without a connection are joined last, at
    /// an infinite length.
    pub(super) fn linking(count: usize, mut edges: Vec<(f64, usize, usize)>) -> Self {
        edges.extend((1..count).map(|node| (f64::INFINITY, node - 1, node)));
        edges.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self::join(edges, count)
    }

    /// Edges in a cycle of shorter ones are left out.
    fn join(edges: Vec<(f64, usize, usize)>, count: usize) -> Self {
        // First the shape, with a set named by its node, or by its only point.
        let mut above: Vec<usize> = (0..count).collect();
        let mut set: Vec<Option<usize>> = vec![None; count];
        let mut nodes: Vec<Node> = Vec::with_capacity(count);
        let mut leaves: Vec<[usize; 2]> = Vec::with_capacity(count);
        for (length, g, h) in edges {
            let (g, h) = (root(&mut above, g), root(&mut above, h));
            if g == h {
                continue;
            }
            nodes.push(Node { first: 0, last: 0, length, children: [set[g], set[h]] });
            leaves.push([g, h]);
            above[h] = g;
            set[g] = Some(nodes.len() - 1);
        }
        // Then the order, from the top.
        let mut order = Vec::with_capacity(count);
        let mut open: Vec<Result<usize, usize>> = vec![if nodes.is_empty() { Err(0) } else { Ok(nodes.len() - 1) }];
        while let Some(next) = open.pop() {
            match next {
                Err(point) => order.push(point),
                Ok(node) => {
                    nodes[node].first = order.len();
                    for side in [1, 0] {
                        open.push(nodes[node].children[side].ok_or(leaves[node][side]));
                    }
                }
            }
        }
        let sizes: Vec<usize> = nodes.iter().fold(Vec::new(), |mut sizes, node| {
            sizes.push(node.children.iter().map(|child| child.map_or(1, |child| sizes[child])).sum());
            sizes
        });
        for (node, size) in nodes.iter_mut().zip(sizes) {
            node.last = node.first + size;
        }
        Self { order, nodes }
    }

    /// The largest accepted sets, from the root down.
    pub(super) fn select(&self, mut accept: impl FnMut(Candidate) -> bool) -> Vec<Vec<usize>> {
        let mut accepted = Vec::new();
        let mut open: Vec<(usize, f64)> = Vec::new();
        open.extend(self.nodes.len().checked_sub(1).map(|top| (top, f64::INFINITY)));
        while let Some((at, outside)) = open.pop() {
            let node = &self.nodes[at];
            let members = &self.order[node.first..node.last];
            if accept(Candidate { members, inside: node.length, outside }) {
                accepted.push(members.to_vec());
            } else {
                open.extend(node.children.iter().flatten().map(|&child| (child, node.length)));
            }
        }
        accepted
    }
}

/// The edges (length, one end, other end) of the minimum spanning tree, ascending; Prim's algorithm.
fn spanning_tree(values: &[f64], dimension: usize) -> Vec<(f64, usize, usize)> {
    let count = values.len() / dimension;
    let mut transposed = Vec::new();
    transpose(&mut transposed, values, dimension);
    let mut squares = vec![0.0; count];
    let mut outside: Vec<(f64, usize)> = vec![(f64::INFINITY, 0); count];
    let mut edges = Vec::with_capacity(count.saturating_sub(1));
    let mut left: Vec<usize> = (1..count).collect();
    let mut last = 0;
    while !left.is_empty() {
        squared_distances(&mut squares, &transposed, last);
        let (mut best, mut position) = (f64::INFINITY, 0);
        for (at, &h) in left.iter().enumerate() {
            if squares[h] < outside[h].0 {
                outside[h] = (squares[h], last);
            }
            if outside[h].0 < best {
                (best, position) = (outside[h].0, at);
            }
        }
        last = left.swap_remove(position);
        edges.push((outside[last].0.sqrt(), outside[last].1, last));
    }
    edges.sort_by(|a, b| a.0.total_cmp(&b.0));
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_on_a_line() {
        let tree = Tree::over(&[0.0, 10.0, 1.0, 11.5, 30.0], 1);
        let mut seen = Vec::new();
        tree.select(|candidate| {
            let mut members = candidate.members.to_vec();
            members.sort();
            seen.push((members, candidate.inside, candidate.outside));
            false
        });
        seen.sort_by_key(|entry| std::cmp::Reverse(entry.0.len()));
        assert_eq!(seen[0], (vec![0, 1, 2, 3, 4], 18.5, f64::INFINITY));
        assert_eq!(seen[1], (vec![0, 1, 2, 3], 9.0, 18.5));
        assert!(seen.contains(&(vec![0, 2], 1.0, 9.0)) && seen.contains(&(vec![1, 3], 1.5, 9.0)));
        assert_eq!(tree.select(|candidate| candidate.inside < 5.0).len(), 2);
        assert!(Tree::over(&[3.0, 4.0], 2).select(|_| true).is_empty());
    }

    #[test]
    fn sets_of_a_graph_in_two_parts() {
        let edges = vec![(2.0, 0, 2), (1.0, 0, 1), (1.5, 1, 2), (3.0, 3, 4)];
        let mut seen = Vec::new();
        Tree::linking(5, edges).select(|candidate| {
            let mut members = candidate.members.to_vec();
            members.sort();
            seen.push((members, candidate.inside, candidate.outside));
            false
        });
        seen.sort_by_key(|entry| entry.0.clone());
        let whole = (vec![0, 1, 2, 3, 4], f64::INFINITY, f64::INFINITY);
        let expected =
            [(vec![0, 1], 1.0, 1.5), (vec![0, 1, 2], 1.5, f64::INFINITY), whole, (vec![3, 4], 3.0, f64::INFINITY)];
        assert_eq!(seen, expected);
    }
}
