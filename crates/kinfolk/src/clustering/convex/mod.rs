//! Convex clustering: min ½ Σ‖a_i − u_i‖² + λ Σ w_ij ‖u_i − u_j‖ over i < j. Points with equal u are together.
//!
//! Solutions come with a certificate: the objective, a lower bound of it, and with every pair of points that is said
//! to be together a proof in the dual problem, with every other a distance that the gap cannot bridge. What is neither
//! is counted as undecided. With sparse weights the proof of a group holds for the pulls from outside as they are at the
//! solution, which is as near to the optimum as the gap says. Dense uniform weights and sparse ones have solvers of their own; both replace what is
//! proved to be together by one heavier point, so that the work shrinks as λ grows.

mod graph;
mod neighbours;
mod newton;
mod sparse;
mod squares;
#[cfg(test)]
mod tests;
mod tree;
mod uniform;

pub use graph::Edge;

use super::plane::Plane;
use super::spectral::Projection;
use super::{Clustering, Points, Progress, Stage, renumber};
use crate::error::{Error, Result};
use crate::linalg::{distance, dot};
use sparse::Sparse;
use std::collections::HashMap;
use uniform::Uniform;

/// The relative gap solutions are brought to.
const TOLERANCE: f64 = 1e-8;
/// The relative gap tried last where points are too near to each other to tell them apart with a larger one.
const FINEST: f64 = 1e-20;
/// Softness to begin with, from a solution nearby at least, and softness taken for none, in units of the data's radius.
const SOFT: f64 = 0.05;
const SOFT_AGAIN: f64 = 1e-3;
const SHARP: f64 = 1e-12;
/// Values of λ that look for the two ends of a path.
const SCOUTS: usize = 8;

/// Which pairs pull at each other, and how strongly.
#[derive(Debug, Clone, PartialEq)]
pub enum Weights {
    /// Every pair with weight 1.
    Uniform,
    /// Each point and its nearest neighbours, with weight exp(−decay · distance²). What is less than 1e-8 of the largest
    /// weight is none.
    Neighbours {
        /// How many neighbours a point chooses.
        neighbours: usize,
        /// Where absent, 1 / (2 · median squared distance to the neighbours).
        decay: Option<f64>,
    },
    /// These pairs; a pair named twice has the sum of its weights.
    Sparse(Vec<Edge>),
}

/// What proves a solution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Certificate {
    /// The objective at the solution.
    pub primal: f64,
    /// A lower bound of the objective anywhere.
    pub dual: f64,
    /// Their difference, at least 0.
    pub gap: f64,
    /// Pairs that are neither proved together nor apart; with sparse weights, pairs with a weight.
    pub undecided: usize,
}

/// A solution at one λ.
#[derive(Debug, Clone)]
pub struct Convex {
    /// Groups of points whose solutions are equal, and, where λ is not 0, that weights connect.
    pub clustering: Clustering,
    /// The λ.
    pub lambda: f64,
    /// u, row-major.
    pub solution: Vec<f64>,
    /// What proves it.
    pub certificate: Certificate,
}

/// Solutions at growing λ.
#[derive(Debug, Clone)]
pub struct Path {
    /// One entry a value of λ, ascending.
    pub steps: Vec<Step>,
}

/// One value of λ on a path.
#[derive(Debug, Clone)]
pub struct Step {
    /// The λ.
    pub lambda: f64,
    /// The cluster of every point, numbered as in a [`Clustering`].
    pub labels: Vec<usize>,
    /// How many clusters there are.
    pub clusters: usize,
    /// Every point's solution in the two principal directions of the data.
    pub plane: Vec<[f64; 2]>,
    /// What proves it.
    pub certificate: Certificate,
}

/// A number of clusters and the values of λ at which the path has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// How many clusters.
    pub clusters: usize,
    /// The first step with so many.
    pub first: usize,
    /// The last one.
    pub last: usize,
    /// Where it begins and where the next begins; the last level of a path ends where the path does.
    pub lambda: [f64; 2],
}

impl Level {
    /// How long it lasts, in λ.
    pub fn life(&self) -> f64 {
        self.lambda[1] - self.lambda[0]
    }
}

impl Path {
    /// The runs of steps with the same number of clusters.
    pub fn levels(&self) -> Vec<Level> {
        let mut levels: Vec<Level> = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            match levels.last_mut() {
                Some(level) if level.clusters == step.clusters => (level.last, level.lambda[1]) = (at, step.lambda),
                last => {
                    if let Some(level) = last {
                        level.lambda[1] = step.lambda;
                    }
                    let lambda = [step.lambda; 2];
                    levels.push(Level { clusters: step.clusters, first: at, last: at, lambda });
                }
            }
        }
        levels
    }
}

/// How good a solution is, in the solver's units.
#[derive(Debug, Clone, Copy)]
struct Bound {
    primal: f64,
    gap: f64,
    undecided: usize,
}

/// Solves at one λ, which may be infinite.
pub fn cluster(points: Points, weights: &Weights, lambda: f64) -> Result<Convex> {
    check_lambda(lambda)?;
    let mut solver = Solver::new(points, weights)?;
    if lambda == 0.0 {
        // Nothing pulls: every point stays where it is.
        let certificate = Certificate { primal: 0.0, dual: 0.0, gap: 0.0, undecided: 0 };
        let clustering = Clustering::of(points, &equal_rows(points.values(), points.dimension()));
        return Ok(Convex { clustering, lambda, solution: points.values().to_vec(), certificate });
    }
    rayon::scope(|_| {
        let certificate = solver.solve(lambda);
        Ok(Convex {
            clustering: Clustering::of(points, solver.labels()),
            lambda,
            solution: solver.solution(),
            certificate,
        })
    })
}

/// Solves at `values` values of λ, evenly spaced in its logarithm, from the last one found at which all points are
/// apart to the first at which as many are together as the weights connect.
pub fn path(points: Points, weights: &Weights, values: usize, progress: Progress) -> Result<Path> {
    if values < 2 {
        return Err(Error::settings(format!("values of λ: got {values}, want at least 2")));
    }
    let mut scout = Solver::new(points, weights)?;
    let [mut low, mut high] = scout.ends();
    if low < high {
        let fewest = scout.fewest_groups();
        let coarse: Vec<f64> = spaced(low, high, SCOUTS).collect();
        let distinct = super::kmeans::count_distinct(points, points.count());
        for (at, &lambda) in coarse.iter().enumerate() {
            progress(Stage { what: "looking for the ends of the path", done: at, total: SCOUTS })?;
            rayon::scope(|_| scout.solve(lambda));
            if scout.groups() == distinct {
                low = lambda;
            }
            if scout.groups() == fewest {
                high = lambda;
                break;
            }
        }
    }
    // The scout's solver holds what is fused; the path begins again with all points apart.
    let lambdas: Vec<f64> = if low < high { spaced(low, high, values).collect() } else { vec![high] };
    path_along(points, weights, &lambdas, progress)
}

/// Solves at these values of λ, which must ascend.
pub fn path_along(points: Points, weights: &Weights, lambdas: &[f64], progress: Progress) -> Result<Path> {
    lambdas.iter().try_for_each(|&lambda| check_lambda(lambda))?;
    if lambdas.is_empty() || lambdas.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(Error::settings("values of λ: want at least one, each larger than the one before"));
    }
    let mut solver = Solver::new(points, weights)?;
    let plane = Plane::of(points);
    let mut steps = Vec::with_capacity(lambdas.len());
    for (at, &lambda) in lambdas.iter().enumerate() {
        progress(Stage { what: "clusterpath", done: at, total: lambdas.len() })?;
        let certificate = rayon::scope(|_| solver.solve(lambda));
        let labels = renumber(solver.labels());
        let seen = solver.solution().chunks_exact(points.dimension()).map(|row| plane.project(row)).collect();
        steps.push(Step { lambda, clusters: solver.groups(), labels, plane: seen, certificate });
    }
    Ok(Path { steps })
}

/// Equal labels for equal rows.
fn equal_rows(values: &[f64], dimension: usize) -> Vec<usize> {
    let mut seen: HashMap<Vec<u64>, usize> = HashMap::new();
    // 0 and −0 are equal.
    let bits = |row: &[f64]| row.iter().map(|value| (value + 0.0).to_bits()).collect::<Vec<u64>>();
    values.chunks_exact(dimension).enumerate().map(|(at, row)| *seen.entry(bits(row)).or_insert(at)).collect()
}

fn check_lambda(lambda: f64) -> Result<()> {
    if lambda >= 0.0 { Ok(()) } else { Err(Error::settings(format!("lambda: got {lambda}, want at least 0"))) }
}

/// `count` values from `low` to `high`, each the same factor above the one before.
fn spaced(low: f64, high: f64, count: usize) -> impl Iterator<Item = f64> {
    let inner = move |at: usize| low * (high / low).powf(at as f64 / (count - 1) as f64);
    (0..count).map(move |at| if at + 1 == count { high } else { inner(at) })
}

/// Either solver, in units in which the data's radius is 1.
struct Solver<'a> {
    points: Points<'a>,
    mean: Vec<f64>,
    scale: f64,
    /// Where there are more numbers than points, coordinates in the space that the points span: it holds all solutions.
    span: Option<Projection>,
    inner: Inner,
}

enum Inner {
    Uniform(Uniform),
    Sparse(Sparse),
}

impl<'a> Solver<'a> {
    fn new(points: Points<'a>, weights: &Weights) -> Result<Self> {
        let (count, dimension) = (points.count(), points.dimension());
        let edges = match weights {
            Weights::Uniform => None,
            Weights::Neighbours { neighbours, decay } => {
                check_neighbours(*neighbours, *decay)?;
                Some(neighbours::connect(points, *neighbours, *decay))
            }
            Weights::Sparse(edges) => Some(merge(edges, count)?),
        };
        let mean = points.mean();
        let mut values = points.centred();
        // The largest number first: squares of very small ones would vanish.
        let mut scale = 1.0;
        let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        if largest > 0.0 {
            values.iter_mut().for_each(|value| *value /= largest);
            let radius = values.chunks_exact(dimension).map(|row| dot(row, row).sqrt()).fold(0.0, f64::max);
            values.iter_mut().for_each(|value| *value /= radius);
            scale = largest * radius;
        }
        let span = match count < dimension {
            true => Some(Projection::new(Points::new(&values, dimension)?, count)?),
            false => None,
        };
        let (values, dimension) = match &span {
            Some(span) => (&span.coordinates, span.directions),
            None => (&values, dimension),
        };
        let inner = match edges {
            None => Inner::Uniform(Uniform::new(values, dimension)),
            Some(edges) => Inner::Sparse(Sparse::new(values, dimension, edges)),
        };
        Ok(Self { points, mean, scale, span, inner })
    }

    fn solve(&mut self, lambda: f64) -> Certificate {
        let bound = match &mut self.inner {
            Inner::Uniform(solver) => solver.solve(lambda / self.scale, TOLERANCE),
            Inner::Sparse(solver) => solver.solve(lambda / self.scale, TOLERANCE),
        };
        let unit = self.scale * self.scale;
        let primal = bound.primal * unit;
        // Sums this long are not known any better.
        let gap = (bound.gap * unit).max(f64::EPSILON * primal);
        Certificate { primal, dual: primal - gap, gap, undecided: bound.undecided }
    }

    fn groups(&self) -> usize {
        match &self.inner {
            Inner::Uniform(solver) => solver.groups(),
            Inner::Sparse(solver) => solver.groups(),
        }
    }

    fn labels(&self) -> &[usize] {
        match &self.inner {
            Inner::Uniform(solver) => &solver.labels,
            Inner::Sparse(solver) => &solver.labels,
        }
    }

    /// u of every point.
    fn solution(&self) -> Vec<f64> {
        let groups = match &self.inner {
            Inner::Uniform(solver) => &solver.solution[..],
            Inner::Sparse(solver) => solver.solution(),
        };
        let dimension = self.points.dimension();
        let lifted;
        let groups = match &self.span {
            None => groups,
            Some(span) => {
                let mut full = vec![0.0; groups.len() / span.directions * dimension];
                let rows = full.chunks_exact_mut(dimension).zip(groups.chunks_exact(span.directions));
                rows.for_each(|(full, coordinates)| span.lift(coordinates, full));
                lifted = full;
                &lifted
            }
        };
        let row = |&label: &usize| {
            let row = groups[label * dimension..(label + 1) * dimension].iter();
            row.zip(&self.mean).map(|(value, mean)| value * self.scale + mean)
        };
        self.labels().iter().flat_map(row).collect()
    }

    /// A λ at which surely no two distinct points are together, and one at which surely all are that are connected.
    fn ends(&self) -> [f64; 2] {
        let ends = match &self.inner {
            Inner::Uniform(solver) => solver.ends(),
            Inner::Sparse(solver) => solver.ends(),
        };
        ends.map(|end| end * self.scale)
    }

    fn fewest_groups(&self) -> usize {
        match &self.inner {
            Inner::Uniform(_) => 1,
            Inner::Sparse(solver) => solver.components(),
        }
    }
}

fn check_neighbours(neighbours: usize, decay: Option<f64>) -> Result<()> {
    if neighbours == 0 {
        return Err(Error::settings("neighbours: got 0, want at least 1"));
    }
    match decay {
        Some(decay) if !(decay >= 0.0 && decay.is_finite()) => {
            Err(Error::settings(format!("decay: got {decay}, want a number of at least 0")))
        }
        _ => Ok(()),
    }
}

/// The edges with their ends in order, every pair once, without those that pull at nothing.
fn merge(edges: &[Edge], count: usize) -> Result<Vec<Edge>> {
    for (at, edge) in edges.iter().enumerate() {
        let fault = if edge.from >= count || edge.to >= count {
            format!("got points {} and {}, want numbers below {count}", edge.from, edge.to)
        } else if edge.from == edge.to {
            format!("got point {} twice, want two points", edge.from)
        } else if !(edge.weight >= 0.0 && edge.weight.is_finite()) {
            format!("got weight {}, want a number of at least 0", edge.weight)
        } else {
            continue;
        };
        return Err(Error::settings(format!("edge {at}: {fault}")));
    }
    let mut merged: Vec<Edge> = edges
        .iter()
        .filter(|edge| edge.weight > 0.0)
        .map(|edge| Edge { from: edge.from.min(edge.to), to: edge.from.max(edge.to), weight: edge.weight })
        .collect();
    merged.sort_by_key(|edge| (edge.from, edge.to));
    graph::merge_sorted(&mut merged);
    Ok(merged)
}

/// The objective itself, term by term.
pub fn objective(points: Points, weights: &Weights, lambda: f64, solution: &[f64]) -> Result<f64> {
    let dimension = points.dimension();
    let row = |point: usize| &solution[point * dimension..(point + 1) * dimension];
    let off: Vec<f64> = points.values().iter().zip(solution).map(|(a, u)| a - u).collect();
    let count = points.count();
    let length: f64 = match weights {
        Weights::Uniform => {
            (0..count).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| distance(row(i), row(j))).sum()
        }
        Weights::Neighbours { neighbours, decay } => {
            check_neighbours(*neighbours, *decay)?;
            let edges = neighbours::connect(points, *neighbours, *decay);
            edges.iter().map(|edge| edge.weight * distance(row(edge.from), row(edge.to))).sum()
        }
        Weights::Sparse(edges) => {
            merge(edges, count)?.iter().map(|edge| edge.weight * distance(row(edge.from), row(edge.to))).sum()
        }
    };
    Ok(0.5 * dot(&off, &off) + if length > 0.0 { lambda * length } else { 0.0 })
}
