//! The softened objective on a sparse graph of weighted points.

use super::aggregates::{Aggregates, Link};
use super::*;
use std::ops::Range;

const BLOCK: usize = 256;

/// A weighted pair of nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) weight: f64,
}

/// min ½ Σ n_g‖a_g − u_g‖² + λ Σ w_gh ‖u_g − u_h‖ over the edges of a graph.
pub(super) struct Graph {
    pub(super) dimension: usize,
    /// n.
    pub(super) mass: Vec<f64>,
    /// a, row-major.
    pub(super) centre: Vec<f64>,
    /// u.
    pub(super) solution: Vec<f64>,
    /// Start of each node's arcs; every edge is an arc at both of its ends.
    start: Vec<usize>,
    arcs: Vec<Arc>,
    /// λ w / s and λ w / s³ of every arc.
    pull: Vec<[f64; 2]>,
    degree: Vec<f64>,
    softness: f64,
    gradient: Vec<f64>,
    both: Vec<f64>,
}

#[derive(Clone, Copy)]
struct Arc {
    to: usize,
    weight: f64,
}

impl Graph {
    pub(super) fn new(dimension: usize, mass: Vec<f64>, centre: Vec<f64>, edges: &[Edge]) -> Self {
        let nodes = mass.len();
        let mut start = vec![0; nodes + 1];
        for edge in edges {
            start[edge.from + 1] += 1;
            start[edge.to + 1] += 1;
        }
        for node in 0..nodes {
            start[node + 1] += start[node];
        }
        let mut next = start.clone();
        let mut arcs = vec![Arc { to: 0, weight: 0.0 }; 2 * edges.len()];
        for edge in edges {
            for (at, to) in [(edge.from, edge.to), (edge.to, edge.from)] {
                arcs[next[at]] = Arc { to, weight: edge.weight };
                next[at] += 1;
            }
        }
        Self {
            dimension,
            solution: centre.clone(),
            pull: vec![[0.0; 2]; arcs.len()],
            degree: vec![0.0; nodes],
            softness: 0.0,
            gradient: vec![0.0; centre.len()],
            both: Vec::new(),
            mass,
            centre,
            start,
            arcs,
        }
    }

    pub(super) fn nodes(&self) -> usize {
        self.mass.len()
    }

    pub(super) fn row<'a>(&self, values: &'a [f64], node: usize) -> &'a [f64] {
        &values[node * self.dimension..(node + 1) * self.dimension]
    }

    /// The other ends and the lengths of a node's edges.
    pub(super) fn edges_of(&self, node: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let place = self.row(&self.solution, node);
        let arcs = self.arcs[self.start[node]..self.start[node + 1]].iter();
        arcs.map(move |arc| (arc.to, distance(place, self.row(&self.solution, arc.to))))
    }

    /// The length and both ends of every edge.
    pub(super) fn edges(&self) -> impl Iterator<Item = (f64, usize, usize)> + '_ {
        let below = |g: usize| self.edges_of(g).filter(move |&(to, _)| to < g).map(move |(to, length)| (length, to, g));
        (0..self.nodes()).flat_map(below)
    }

    /// The objective without softness, the gap of the softened forces, and the shortest edge.
    pub(super) fn bound(&self, lambda: f64, softness: f64) -> (f64, f64, f64) {
        let parts: Vec<[f64; 4]> = (0..self.nodes().div_ceil(BLOCK))
            .into_par_iter()
            .map(|block| {
                let [mut off, mut length, mut lost, mut nearest] = [0.0, 0.0, 0.0, f64::INFINITY];
                for g in block * BLOCK..self.nodes().min((block + 1) * BLOCK) {
                    let u = self.row(&self.solution, g);
                    off += 0.5 * self.mass[g] * distance(u, self.row(&self.centre, g)).powi(2);
                    for arc in self.arcs[self.start[g]..self.start[g + 1]].iter().filter(|arc| arc.to < g) {
                        let distance = distance(u, self.row(&self.solution, arc.to));
                        let smoothed = distance.hypot(softness);
                        length += arc.weight * distance;
                        lost += arc.weight * distance / (smoothed * (smoothed + distance));
                        nearest = distance.min(nearest);
                    }
                }
                [off, length, lost, nearest]
            })
            .collect();
        let sum = |at: usize| parts.iter().map(|part| part[at]).sum::<f64>();
        let nearest = parts.iter().map(|part| part[3]).fold(f64::INFINITY, f64::min);
        (sum(0) + lambda * sum(1), self.slope() + lambda * sum(2) * softness * softness, nearest)
    }
}

impl Graph {
    /// The rows of the Hessian times a vector for nodes from `first` on; `both` has the solution and the vector.
    #[inline(always)]
    fn curve_block(&self, first: usize, both: &[f64], image: &mut [f64]) {
        let dimension = self.dimension;
        for (g, image) in (first..).zip(image.chunks_exact_mut(dimension)) {
            let (u, v) = both[2 * g * dimension..2 * (g + 1) * dimension].split_at(dimension);
            image.iter_mut().zip(v).for_each(|(out, v)| *out = self.mass[g] * v);
            let arcs = self.start[g]..self.start[g + 1];
            for (arc, [strength, bend]) in self.arcs[arcs.clone()].iter().zip(&self.pull[arcs]) {
                let (p, q) = both[2 * arc.to * dimension..2 * (arc.to + 1) * dimension].split_at(dimension);
                let turn = bend * dot_of_differences(u, p, v, q);
                for ((out, (u, p)), (v, q)) in image.iter_mut().zip(u.iter().zip(p)).zip(v.iter().zip(q)) {
                    *out += strength * (v - q) - turn * (u - p);
                }
            }
        }
    }
}

impl Softened for Graph {
    type Preconditioner = Aggregates;

    fn solution(&mut self) -> &mut Vec<f64> {
        &mut self.solution
    }

    fn evaluate(&mut self, lambda: f64, softness: f64) -> f64 {
        self.softness = softness;
        let dimension = self.dimension;
        let (solution, centre, mass) = (&self.solution[..], &self.centre[..], &self.mass[..]);
        let (start, arcs) = (&self.start[..], &self.arcs[..]);
        let mut pulls: Vec<&mut [[f64; 2]]> = Vec::with_capacity(mass.len().div_ceil(BLOCK));
        let mut rest = &mut self.pull[..];
        for block in (0..mass.len()).step_by(BLOCK) {
            let (own, others) = rest.split_at_mut(start[mass.len().min(block + BLOCK)] - start[block]);
            pulls.push(own);
            rest = others;
        }
        let blocks = pulls.into_par_iter().zip(self.degree.par_chunks_mut(BLOCK));
        let blocks = blocks.zip(self.gradient.par_chunks_mut(BLOCK * dimension));
        let objectives: Vec<f64> = blocks
            .enumerate()
            .map(|(block, ((pulls, degree), gradient))| {
                let first = block * BLOCK;
                let nodes = first..first + degree.len();
                let graph = Fixed { dimension, lambda, softness, mass, centre, solution, start, arcs };
                dispatch!(|_| graph.evaluate_block(nodes, pulls, degree, gradient))
            })
            .collect();
        objectives.iter().sum()
    }

    fn gradient(&self) -> &[f64] {
        &self.gradient
    }

    fn slope(&self) -> f64 {
        self.gradient.chunks_exact(self.dimension).zip(&self.mass).map(|(row, n)| 0.5 * dot(row, row) / n).sum()
    }

    fn stiffness(&self) -> f64 {
        self.degree.iter().sum()
    }

    fn preconditioner(&mut self) -> Option<Aggregates> {
        let mut links = Vec::with_capacity(self.arcs.len() / 2);
        for g in 0..self.nodes() {
            for at in (self.start[g]..self.start[g + 1]).filter(|&at| self.arcs[at].to < g) {
                let [strength, bend] = self.pull[at];
                // ε² / s² of the strength, times s² − ε².
                let soft = self.softness * self.softness;
                let stretch = soft * (strength - soft * bend);
                links.push(Link { ends: [self.arcs[at].to, g], strength, stretch });
            }
        }
        Some(Aggregates::new(self.dimension, &self.mass, &self.solution, links))
    }

    fn precondition(&self, with: &Aggregates, vector: &mut [f64]) {
        with.solve(vector);
    }

    fn curve(&mut self, along: &[f64], image: &mut [f64]) {
        let dimension = self.dimension;
        // Both rows of a node adjacent, so that an arc reads one contiguous range.
        let mut both = std::mem::take(&mut self.both);
        both.resize(2 * along.len(), 0.0);
        let rows = both.par_chunks_mut(2 * dimension).with_min_len(BLOCK);
        let rows = rows.zip(self.solution.par_chunks(dimension)).zip(along.par_chunks(dimension));
        rows.for_each(|((both, u), v)| {
            both[..dimension].copy_from_slice(u);
            both[dimension..].copy_from_slice(v);
        });
        image.par_chunks_mut(BLOCK * dimension).enumerate().for_each(|(block, image)| {
            dispatch!(|_| self.curve_block(block * BLOCK, &both, image));
        });
        self.both = both;
    }
}

/// What does not change in an evaluation.
struct Fixed<'a> {
    dimension: usize,
    lambda: f64,
    softness: f64,
    mass: &'a [f64],
    centre: &'a [f64],
    solution: &'a [f64],
    start: &'a [usize],
    arcs: &'a [Arc],
}

impl Fixed<'_> {
    /// The part of some nodes in the softened objective, with their pulls, degrees and gradients.
    #[inline(always)]
    fn evaluate_block(
        &self,
        nodes: Range<usize>,
        pulls: &mut [[f64; 2]],
        degree: &mut [f64],
        gradient: &mut [f64],
    ) -> f64 {
        let Self { dimension, lambda, softness, mass, centre, solution, start, arcs } = *self;
        let mut objective = 0.0;
        let mut pulls = pulls.iter_mut();
        for (g, (degree, gradient)) in nodes.zip(degree.iter_mut().zip(gradient.chunks_exact_mut(dimension))) {
            let u = &solution[g * dimension..(g + 1) * dimension];
            let a = &centre[g * dimension..(g + 1) * dimension];
            for ((out, u), a) in gradient.iter_mut().zip(u).zip(a) {
                *out = mass[g] * (u - a);
                objective += 0.5 * *out * (u - a);
            }
            *degree = 0.0;
            for (arc, pull) in arcs[start[g]..start[g + 1]].iter().zip(&mut pulls) {
                let v = &solution[arc.to * dimension..(arc.to + 1) * dimension];
                let square = dot_of_differences(u, v, u, v) + softness * softness;
                let inverse = 1.0 / square.sqrt();
                let strength = lambda * arc.weight * inverse;
                *pull = [strength, strength * inverse * inverse];
                *degree += strength;
                objective += 0.5 * strength * square;
                for ((out, u), v) in gradient.iter_mut().zip(u).zip(v) {
                    *out += strength * (u - v);
                }
            }
        }
        objective
    }
}

/// Merges adjacent edges with the same ends.
pub(super) fn merge_sorted(edges: &mut Vec<Edge>) {
    edges.dedup_by(|next, kept| {
        let same = (next.from, next.to) == (kept.from, kept.to);
        if same {
            kept.weight += next.weight;
        }
        same
    });
}

/// ⟨u − p, v − q⟩, in four partial sums.
#[inline(always)]
fn dot_of_differences(u: &[f64], p: &[f64], v: &[f64], q: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (us, ps, vs, qs) = (u.chunks_exact(4), p.chunks_exact(4), v.chunks_exact(4), q.chunks_exact(4));
    let rest = us.remainder().iter().zip(ps.remainder()).zip(vs.remainder().iter().zip(qs.remainder()));
    let rest: f64 = rest.map(|((u, p), (v, q))| (u - p) * (v - q)).sum();
    for ((u, p), (v, q)) in us.zip(ps).zip(vs.zip(qs)) {
        for k in 0..4 {
            sums[k] += (u[k] - p[k]) * (v[k] - q[k]);
        }
    }
    sums.iter().sum::<f64>() + rest
}
