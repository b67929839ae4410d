//! A preconditioner for graphs with edges of very different strengths, as there are where groups are about to fuse.
//!
//! Nodes that strong edges connect move as one, and nothing but their mass and the edges that leave them resists. A diagonal
//! takes the strength inside for resistance, and conjugate gradients need hundreds of steps. So the components under
//! ever weaker edges are taken as aggregates, one level in the other, and each adds two directions with their own
//! resistance: to move, and to stretch, because an edge's force hardly changes with its length once that exceeds the softness.
//! The sum over all levels is an additive multilevel method like that of Bramble, Pasciak and Xu (1990).

use super::*;
use std::ops::Range;

/// Rows that a thread takes together.
const BLOCK: usize = 256;

/// How much weaker the edges may be that connect the next level's aggregates.
const WEAKER: f64 = 0.1;

/// Solves approximately with the Hessian of the softened objective.
pub(super) struct Aggregates {
    dimension: usize,
    /// One over the resistance of every single node.
    inverse: Vec<f64>,
    families: Vec<Family>,
    /// The family of every node that has one, and its place among the members.
    member_of: Vec<Option<(usize, usize)>>,
}

/// An edge.
pub(super) struct Link {
    pub(super) ends: [usize; 2],
    /// Its second derivative across.
    pub(super) strength: f64,
    /// Its second derivative along, times its squared length.
    pub(super) stretch: f64,
}

/// One of the largest aggregates with all those inside, which are ranges of its members.
struct Family {
    members: Vec<usize>,
    places: Vec<f64>,
    aggregates: Vec<Aggregate>,
}

struct Aggregate {
    range: Range<usize>,
    centre: Vec<f64>,
    /// One over the resistance to a move, and to a growth about the centre.
    inverse: [f64; 2],
}

/// Components under edges of at least some strength.
struct Level {
    /// The first node of every node's component.
    of: Vec<usize>,
    /// The strength of every node's edges to other components.
    leaving: Vec<f64>,
    /// The resistance of the edges inside to growth, by the component's first node.
    inner: Vec<f64>,
}

impl Aggregates {
    /// Nodes with their masses and places.
    pub(super) fn new(dimension: usize, mass: &[f64], places: &[f64], links: Vec<Link>) -> Self {
        let mut inverse = mass.to_vec();
        for link in &links {
            link.ends.iter().for_each(|&end| inverse[end] += link.strength);
        }
        inverse.iter_mut().for_each(|value| *value = 1.0 / *value);
        let levels = levels(mass, links);
        let mut order: Vec<usize> = (0..mass.len()).collect();
        // Sorted by the strongest edges first, in the end the components of all levels are ranges.
        levels.iter().for_each(|level| order.sort_by_key(|&node| level.of[node]));
        let largest = |a: &usize, b: &usize| levels.last().is_some_and(|level| level.of[*a] == level.of[*b]);
        let sets: Vec<&[usize]> = order.chunk_by(largest).filter(|set| set.len() > 1).collect();
        let family = |set: &&[usize]| Family::new(dimension, mass, places, &levels, set);
        let mut member_of = vec![None; mass.len()];
        for (family, set) in sets.iter().enumerate() {
            set.iter().enumerate().for_each(|(member, &node)| member_of[node] = Some((family, member)));
        }
        Self { dimension, inverse, families: sets.par_iter().map(family).collect(), member_of }
    }

    /// Replaces a vector, with a row for every node, by the approximate solution.
    pub(super) fn solve(&self, vector: &mut [f64]) {
        let dimension = self.dimension;
        let answers: Vec<Vec<f64>> = self.families.par_iter().map(|family| family.solve(vector, dimension)).collect();
        let rows = vector.par_chunks_mut(dimension).with_min_len(BLOCK);
        rows.zip(&self.inverse).zip(&self.member_of).for_each(|((row, inverse), member)| match *member {
            Some((family, member)) => {
                let answer = &answers[family][member * dimension..(member + 1) * dimension];
                row.iter_mut().zip(answer).for_each(|(value, answer)| *value = *value * inverse + answer);
            }
            None => row.iter_mut().for_each(|value| *value *= inverse),
        });
    }
}

/// Levels of ever weaker edges, until mass resists more than edges do.
fn levels(mass: &[f64], mut links: Vec<Link>) -> Vec<Level> {
    let mut levels = Vec::new();
    let mut of: Vec<usize> = (0..mass.len()).collect();
    let mut mass = mass.to_vec();
    let mut inner = vec![0.0; mass.len()];
    loop {
        let strong = |link: &&Link| link.ends.iter().all(|&end| link.strength > mass[of[end]]);
        let strongest = links.iter().filter(strong).map(|link| link.strength).fold(0.0, f64::max);
        if strongest == 0.0 {
            return levels;
        }
        for link in links.iter().filter(|link| link.strength >= WEAKER * strongest) {
            let [g, h] = link.ends.map(|end| root(&mut of, end));
            if g != h {
                let (first, other) = (g.min(h), g.max(h));
                of[other] = first;
                mass[first] += mass[other];
                inner[first] += inner[other];
            }
        }
        for node in 0..of.len() {
            of[node] = of[of[node]];
        }
        let mut leaving = vec![0.0; of.len()];
        links.retain(|link| {
            let [g, h] = link.ends;
            if of[g] == of[h] {
                inner[of[g]] += link.stretch;
            } else {
                leaving[g] += link.strength;
                leaving[h] += link.strength;
            }
            of[g] != of[h]
        });
        levels.push(Level { of: of.clone(), leaving, inner: inner.clone() });
    }
}

impl Family {
    fn new(dimension: usize, mass: &[f64], places: &[f64], levels: &[Level], members: &[usize]) -> Self {
        let place = |node: usize| &places[node * dimension..(node + 1) * dimension];
        let mut aggregates: Vec<Aggregate> = Vec::new();
        let mut finer: HashSet<Range<usize>> = HashSet::new();
        for level in levels {
            let mut end = 0;
            for set in members.chunk_by(|&a, &b| level.of[a] == level.of[b]) {
                let range = end..end + set.len();
                end = range.end;
                if set.len() == 1 || !finer.insert(range.clone()) {
                    continue;
                }
                let total: f64 = set.iter().map(|&node| mass[node]).sum();
                let mut centre = vec![0.0; dimension];
                set.iter().for_each(|&node| add_scaled(&mut centre, mass[node] / total, place(node)));
                let mut resistance = [0.0, level.inner[level.of[set[0]]]];
                for &node in set {
                    let own = mass[node] + level.leaving[node];
                    resistance[0] += own;
                    resistance[1] += own * squared_distance(place(node), &centre);
                }
                // Nodes at one place cannot grow apart.
                let inverse = resistance.map(|value| if value > 0.0 { 1.0 / value } else { 0.0 });
                aggregates.push(Aggregate { range, centre, inverse });
            }
        }
        let places = members.iter().flat_map(|&node| place(node)).copied().collect();
        Self { members: members.to_vec(), places, aggregates }
    }

    fn solve(&self, vector: &[f64], dimension: usize) -> Vec<f64> {
        let row = |&node: &usize| &vector[node * dimension..(node + 1) * dimension];
        let right: Vec<f64> = self.members.iter().flat_map(row).copied().collect();
        let mut answer = vec![0.0; right.len()];
        let mut sums = vec![0.0; 2 * dimension];
        for Aggregate { range, centre, inverse } in &self.aggregates {
            let range = range.start * dimension..range.end * dimension;
            let places = self.places[range.clone()].chunks_exact(dimension);
            sums.fill(0.0);
            let (shift, growth) = sums.split_at_mut(dimension);
            for (row, place) in right[range.clone()].chunks_exact(dimension).zip(places.clone()) {
                let ahead = row.iter().zip(place.iter().zip(centre));
                for ((shift, growth), (value, (p, c))) in shift.iter_mut().zip(growth.iter_mut()).zip(ahead) {
                    *shift += value;
                    *growth += value * (p - c);
                }
            }
            shift.iter_mut().for_each(|value| *value *= inverse[0]);
            let growth = inverse[1] * growth.iter().sum::<f64>();
            for (row, place) in answer[range].chunks_exact_mut(dimension).zip(places) {
                for ((out, shift), (p, c)) in row.iter_mut().zip(&*shift).zip(place.iter().zip(centre)) {
                    *out += shift + growth * (p - c);
                }
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::{Edge, Graph};
    use super::super::newton::{Softened, conjugate_gradients};
    use super::*;
    use crate::num::{dot, solve_positive};
    use crate::rng::Key;
    use rand::RngExt;

    /// Three rings of eight points, each about as large as the softness, with weak edges between them.
    fn nearly_fused() -> Graph {
        let mut random = Key::new(3).word("rings").rng();
        let mut draw = || random.random::<f64>() - 0.5;
        let centre: Vec<f64> = (0..24).flat_map(|at| [(at / 8) as f64 + 1e-5 * draw(), 1e-5 * draw()]).collect();
        let ring = (0..24).map(|at| (at, at / 8 * 8 + (at + 1) % 8, 1.0));
        let edges = ring
            .chain((0..16).map(|at| (at, at + 8, 1e-3)))
            .chain((0..24).map(|at| (at, at / 8 * 8 + (at + 3) % 8, 1.0)));
        let edges: Vec<Edge> = edges.map(|(from, to, weight)| Edge { from, to, weight }).collect();
        let mut graph = Graph::new(2, vec![1.0; 24], centre, &edges);
        graph.evaluate(0.5, 1e-6);
        graph
    }

    #[test]
    fn the_solution_is_the_direct_one_in_fewer_steps() {
        let mut graph = nearly_fused();
        let numbers = graph.solution.len();
        let mut hessian = vec![0.0; numbers * numbers];
        for (at, row) in hessian.chunks_exact_mut(numbers).enumerate() {
            let mut unit = vec![0.0; numbers];
            unit[at] = 1.0;
            graph.curve(&unit, row);
        }
        let right: Vec<f64> = (0..numbers).map(|at| (at as f64).sin()).collect();
        let direct = solve_positive(&hessian, &right, numbers, 1).unwrap();
        let Some(aggregates) = graph.preconditioner() else { unreachable!() };
        let diagonal: Vec<f64> = (0..numbers).map(|at| hessian[at * numbers + at]).collect();
        let mut off = |steps: usize, precondition: &dyn Fn(&mut [f64])| {
            let found = conjugate_gradients(
                &mut graph,
                right.clone(),
                |_, vector| precondition(vector),
                Graph::curve,
                1e-30,
                steps,
            );
            squared_distance(&found, &direct).sqrt() / dot(&direct, &direct).sqrt()
        };
        let plain = |vector: &mut [f64]| vector.iter_mut().zip(&diagonal).for_each(|(value, by)| *value /= by);
        assert!(off(40, &|vector| aggregates.solve(vector)) < 1e-6);
        assert!(off(12, &|vector| aggregates.solve(vector)) < 0.05);
        assert!(off(12, &plain) > 0.5);
    }

    #[test]
    fn it_is_symmetric() {
        let Some(aggregates) = nearly_fused().preconditioner() else { unreachable!() };
        let [a, b]: [Vec<f64>; 2] = [1.0, 2.0].map(|by| (0..48).map(|at| (by * at as f64).cos()).collect());
        let solved = |vector: &[f64]| {
            let mut vector = vector.to_vec();
            aggregates.solve(&mut vector);
            vector
        };
        let (one, other) = (dot(&solved(&a), &b), dot(&a, &solved(&b)));
        assert!((one - other).abs() < 1e-12 * one.abs().max(other.abs()));
        assert_eq!(aggregates.families.len(), 3);
    }
}
