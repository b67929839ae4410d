//! The fusion tree of a path: which points were joined, and at which λ.
//!
//! Groups that came apart again stay together here: the tree shows when points were first joined.

use super::*;
use crate::clustering::root;
use std::collections::HashMap;

/// A forest whose leaves are ordered such that its lines do not cross.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FusionTree {
    pub leaves: Vec<Vec<usize>>,
    /// Nodes after the leaves: join `j` is node `leaves.len() + j`. Children come before their parents.
    pub joins: Vec<Join>,
    /// Whether some groups came apart again along the path.
    pub came_apart: bool,
}

/// Nodes that became one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Join {
    /// Leaves or earlier joins, in drawing order.
    pub children: Vec<usize>,
    /// The step of the path at which they were one.
    pub step: usize,
}

impl FusionTree {
    /// The tree of a path. Leaves are points or, beyond `most`, the groups of the first step with at most `most`.
    pub(crate) fn of(path: &Path, points: usize, most: usize) -> Self {
        let mut node_of: Vec<usize> = (0..points).collect();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); points];
        let mut step_of: Vec<usize> = vec![0; points];
        let mut alive = points;
        let mut came_apart = false;
        // Nodes that exist before the tree begins are its leaves.
        let mut begin = if points <= most { points } else { usize::MAX };
        for (number, step) in path.steps.iter().enumerate() {
            let mut parent: Vec<usize> = (0..children.len()).collect();
            let mut first: HashMap<usize, usize> = HashMap::new();
            let mut label_of: HashMap<usize, usize> = HashMap::new();
            for (&node, &label) in node_of.iter().zip(&step.labels) {
                let met = *first.entry(label).or_insert(node);
                let (a, b) = (root(&mut parent, met), root(&mut parent, node));
                parent[a.max(b)] = a.min(b);
                came_apart |= *label_of.entry(node).or_insert(label) != label;
            }
            // Joins are made in the order of their first points, independent of the labels.
            let mut members: Vec<(usize, Vec<usize>)> = Vec::new();
            let mut place_of: HashMap<usize, usize> = HashMap::new();
            let mut seen = vec![false; children.len()];
            for &node in &node_of {
                if !std::mem::replace(&mut seen[node], true) {
                    let group = root(&mut parent, node);
                    let place = *place_of.entry(group).or_insert(members.len());
                    if place == members.len() {
                        members.push((group, Vec::new()));
                    }
                    members[place].1.push(node);
                }
            }
            let mut joined: HashMap<usize, usize> = HashMap::new();
            for (group, nodes) in members.into_iter().filter(|(_, nodes)| nodes.len() > 1) {
                alive -= nodes.len() - 1;
                joined.insert(group, children.len());
                children.push(nodes);
                step_of.push(number);
            }
            node_of.iter_mut().for_each(|node| {
                let group = root(&mut parent, *node);
                *node = joined.get(&group).copied().unwrap_or(*node);
            });
            if begin == usize::MAX && alive <= most {
                begin = children.len();
            }
        }
        let begin = if begin == usize::MAX { children.len() } else { begin };
        let beginning: Vec<f64> =
            path.steps.first().map_or_else(Vec::new, |step| step.plane.iter().map(|place| place[0]).collect());
        Nodes { children, step_of, begin, roots: node_of, place: beginning }.arrange(came_apart)
    }
}

struct Nodes {
    /// Points first, then joins.
    children: Vec<Vec<usize>>,
    step_of: Vec<usize>,
    /// Nodes from here on are joins of the tree; those before are leaves or inside of leaves.
    begin: usize,
    /// The last node of every point.
    roots: Vec<usize>,
    /// Where every point lies along the first principal direction.
    place: Vec<f64>,
}

impl Nodes {
    /// Orders siblings by their places in the plane.
    fn arrange(mut self, came_apart: bool) -> FusionTree {
        let points = self.roots.len();
        let mut sums: Vec<(f64, usize)> =
            (0..points).map(|point| (self.place.get(point).copied().unwrap_or(0.0), 1)).collect();
        for node in points..self.children.len() {
            let of = |child: &usize| sums[*child];
            sums.push(self.children[node].iter().map(of).fold((0.0, 0), |(a, n), (b, k)| (a + b, n + k)));
        }
        let key = |node: &usize| sums[*node].0 / sums[*node].1 as f64;
        let mut roots = std::mem::take(&mut self.roots);
        roots.sort_unstable();
        roots.dedup();
        roots.sort_by(|a, b| key(a).total_cmp(&key(b)));
        for children in &mut self.children {
            children.sort_by(|a, b| key(a).total_cmp(&key(b)));
        }
        let mut leaves = Vec::new();
        let mut number: Vec<usize> = vec![0; self.children.len()];
        // Depth first without recursion: a path may join one point at a time.
        let mut waiting: Vec<usize> = roots.into_iter().rev().collect();
        while let Some(node) = waiting.pop() {
            if node >= self.begin {
                waiting.extend(self.children[node].iter().rev());
            } else {
                number[node] = leaves.len();
                leaves.push(self.points_below(node));
            }
        }
        for (join, node) in (self.begin..self.children.len()).enumerate() {
            number[node] = leaves.len() + join;
        }
        let joins = (self.begin..self.children.len()).map(|node| Join {
            children: self.children[node].iter().map(|child| number[*child]).collect(),
            step: self.step_of[node],
        });
        FusionTree { joins: joins.collect(), leaves, came_apart }
    }

    fn points_below(&self, node: usize) -> Vec<usize> {
        let mut waiting = vec![node];
        let mut points = Vec::new();
        while let Some(node) = waiting.pop() {
            match self.children[node].as_slice() {
                [] => points.push(node),
                children => waiting.extend(children),
            }
        }
        points.sort_unstable();
        points
    }
}

#[cfg(test)]
mod tests {
    use super::super::fabricated::path;
    use super::*;

    #[test]
    fn joins_by_hand() {
        // Points 0..5 along a line; {0, 1} and {3, 4} meet first, then 2 joins {3, 4}, then all.
        let places = [4.0, 3.0, 0.5, 0.0, 0.1];
        let path = path(&places, &[&[0, 1, 2, 3, 4], &[0, 0, 1, 2, 2], &[0, 0, 1, 1, 1], &[0, 0, 0, 0, 0]]);
        let tree = FusionTree::of(&path, 5, 200);
        // From left to right: 3, 4, 2, 1, 0.
        assert_eq!(tree.leaves, [[3], [4], [2], [1], [0]]);
        assert_eq!(
            tree.joins,
            [
                Join { children: vec![3, 4], step: 1 },
                Join { children: vec![0, 1], step: 1 },
                Join { children: vec![6, 2], step: 2 },
                Join { children: vec![7, 5], step: 3 },
            ]
        );
        assert!(!tree.came_apart);
    }

    #[test]
    fn many_points_begin_as_groups() {
        let path = path(&[0.0, 1.0, 2.0, 3.0], &[&[0, 1, 2, 3], &[0, 0, 1, 2], &[0, 0, 1, 1], &[0, 0, 0, 0]]);
        let tree = FusionTree::of(&path, 4, 2);
        assert_eq!(tree.leaves, [[0, 1], [2, 3]]);
        assert_eq!(tree.joins, [Join { children: vec![0, 1], step: 3 }]);
        assert_eq!(FusionTree::of(&path, 4, 3).leaves, [vec![0, 1], vec![2], vec![3]]);
    }

    #[test]
    fn groups_that_come_apart_and_never_meet() {
        // 0 and 1 part again, and 1 goes to 2; 3 stays alone for ever.
        let path = path(&[0.0, 1.0, 2.0, 3.0], &[&[0, 0, 1, 2], &[0, 1, 1, 2]]);
        let tree = FusionTree::of(&path, 4, 200);
        assert!(tree.came_apart);
        assert_eq!(tree.leaves, [[0], [1], [2], [3]]);
        assert_eq!(tree.joins, [Join { children: vec![0, 1], step: 0 }, Join { children: vec![4, 2], step: 1 }]);
    }
}
