//! Convex clustering: min ½ Σ‖a_i − u_i‖² + λ Σ w_ij ‖u_i − u_j‖ over i < j. Points with equal u are together.
//!
//! Solutions come with a certificate: the objective, a lower bound on it, a proof in the dual problem for every pair of
//! points that is together, and a distance that the gap cannot bridge for every other pair. The rest is counted as
//! undecided. With sparse weights the proof of a group holds for the forces from outside at the solution, which is as
//! close to the optimum as the gap. Uniform and sparse weights have different solvers; both replace points that are
//! proved to be together by one heavier point, so that the work shrinks as λ grows.

mod aggregates;
mod graph;
mod neighbours;
mod newton;
mod sparse;
mod squares;
#[cfg(test)]
mod tests;
mod tree;
mod uniform;

#[doc(hidden)]
pub use graph::Edge;

use super::plane::Plane;
use super::spectral::Projection;
use super::{Clustering, Points, Progress, Stage, renumber, root};
use crate::error::{Error, Result};
use crate::num::{Matrix, add_scaled, dispatch, distance, dot, multiply, squared_distance};
use newton::{MOST_STEPS, ROUGHLY, Softened, descend};
use rayon::prelude::*;
use sparse::Sparse;
use std::collections::{HashMap, HashSet};
use uniform::Uniform;

/// The relative gap of solutions.
const TOLERANCE: f64 = 1e-8;
/// The smallest relative gap, for points too close to each other to separate with a larger one.
const FINEST: f64 = 1e-20;
/// Softness in units of the data's radius: initial, lower bound near a known solution, and what counts as none.
const SOFT: f64 = 0.05;
const SOFT_AGAIN: f64 = 1e-3;
const SHARP: f64 = 1e-12;
/// Number of values of λ for finding the ends of a path.
const SCOUTS: usize = 8;

/// Weights of the pairs of points.
#[derive(Debug, Clone, PartialEq)]
pub enum Weights {
    /// Every pair with weight 1.
    Uniform,
    /// Each point and its nearest neighbours, with weight exp(−decay · distance²), if above 1e-8 of the largest.
    Neighbours {
        /// Number of neighbours of a point.
        neighbours: usize,
        /// Where absent, 1 / (2 · median squared distance to the neighbours).
        decay: Option<f64>,
    },
    /// These pairs; the weights of a repeated pair are added.
    Sparse(Vec<Edge>),
}

/// The proof of a solution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Certificate {
    /// The objective at the solution.
    pub primal: f64,
    /// A lower bound on the objective.
    pub dual: f64,
    /// Their difference, at least 0.
    pub gap: f64,
    /// Number of pairs proved neither together nor apart; with sparse weights, of pairs with a weight.
    pub undecided: usize,
}

/// A solution at one λ.
#[derive(Debug, Clone)]
pub struct Convex {
    /// Groups of points with equal solutions that, unless λ is 0, the weights connect.
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
    /// One entry per value of λ, ascending.
    pub steps: Vec<Step>,
}

/// One value of λ on a path.
#[derive(Debug, Clone)]
pub struct Step {
    /// The λ.
    pub lambda: f64,
    /// The cluster of every point, numbered as in a [`Clustering`].
    pub labels: Vec<usize>,
    /// Number of clusters.
    pub clusters: usize,
    /// Every point's solution in the two principal directions of the data.
    pub plane: Vec<[f64; 2]>,
    /// What proves it.
    pub certificate: Certificate,
}

/// A number of clusters and the interval of λ with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Number of clusters.
    pub clusters: usize,
    /// Its first step.
    pub first: usize,
    /// Its last step.
    pub last: usize,
    /// Its start and the start of the next level; the last level ends with the path.
    pub lambda: [f64; 2],
}

impl Level {
    /// Its length in λ.
    pub(crate) fn life(&self) -> f64 {
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

/// Objective and gap of a solution, in the solver's units.
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
        // Every point is its own solution.
        let certificate = Certificate { primal: 0.0, dual: 0.0, gap: 0.0, undecided: 0 };
        let clustering = Clustering::of(points, &equal_rows(points.values(), points.dimension()));
        return Ok(Convex { clustering, lambda, solution: points.values().to_vec(), certificate });
    }
    rayon::scope(|_| {
        let certificate = solver.solve(lambda);
        Ok(Convex {
            clustering: Clustering::of(points, solver.inner.labels()),
            lambda,
            solution: solver.solution(),
            certificate,
        })
    })
}

/// Solves at `values` values of λ, evenly spaced in its logarithm, from the last one found with all points apart to the
/// first with all connected points together.
pub fn path(points: Points, weights: &Weights, values: usize, progress: Progress) -> Result<Path> {
    if values < 2 {
        return Err(Error::settings(format!("values of λ: got {values}, want at least 2")));
    }
    let mut scout = Solver::new(points, weights)?;
    let [mut low, mut high] = scout.inner.ends().map(|end| end * scout.scale);
    if low < high {
        let fewest = scout.inner.fewest_groups();
        let coarse: Vec<f64> = spaced(low, high, SCOUTS).collect();
        let distinct = super::kmeans::count_distinct(points, points.count());
        for (at, &lambda) in coarse.iter().enumerate() {
            progress(Stage { what: "looking for the ends of the path", done: at, total: SCOUTS })?;
            rayon::scope(|_| scout.solve(lambda));
            if scout.inner.groups() == distinct {
                low = lambda;
            }
            if scout.inner.groups() == fewest {
                high = lambda;
                break;
            }
        }
    }
    check_lambda(high)?;
    // The scout has fused groups; the path starts again with all points apart.
    let lambdas: Vec<f64> = if low < high { spaced(low, high, values).collect() } else { vec![high] };
    let mut solver = Solver::new(points, weights)?;
    let plane = Plane::of(points);
    let mut steps = Vec::with_capacity(lambdas.len());
    for (at, &lambda) in lambdas.iter().enumerate() {
        progress(Stage { what: "clusterpath", done: at, total: lambdas.len() })?;
        let certificate = rayon::scope(|_| solver.solve(lambda));
        let labels = renumber(solver.inner.labels());
        let seen = solver.solution().chunks_exact(points.dimension()).map(|row| plane.project(row)).collect();
        steps.push(Step { lambda, clusters: solver.inner.groups(), labels, plane: seen, certificate });
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

/// Either solver, in units of the data's radius.
struct Solver<'a> {
    points: Points<'a>,
    mean: Vec<f64>,
    scale: f64,
    /// Where there are more dimensions than points, coordinates in the span of the points, which contains all solutions.
    span: Option<Projection>,
    inner: Box<dyn Solve + Send>,
}

/// A solver for one kind of weights. The data's radius should be about 1.
trait Solve {
    /// Solves at this λ, which must not be smaller than any before, to a gap of `tolerance` times the objective.
    fn solve(&mut self, lambda: f64, tolerance: f64) -> Bound;

    fn labels(&self) -> &[usize];

    /// Solutions of the groups, row-major.
    fn places(&self) -> &[f64];

    fn groups(&self) -> usize;

    /// Lower bound on the number of groups at any λ.
    fn fewest_groups(&self) -> usize;

    /// A λ at which no two distinct points are together, and one at which all connected points are.
    fn ends(&self) -> [f64; 2];
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
        // The largest number first: squares of very small ones would underflow.
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
        let inner: Box<dyn Solve + Send> = match edges {
            None => Box::new(Uniform::new(values, dimension)),
            Some(edges) => Box::new(Sparse::new(values, dimension, edges)),
        };
        Ok(Self { points, mean, scale, span, inner })
    }

    fn solve(&mut self, lambda: f64) -> Certificate {
        let bound = self.inner.solve(lambda / self.scale, TOLERANCE);
        let unit = self.scale * self.scale;
        let primal = bound.primal * unit;
        // Sums of this length are not more accurate.
        let gap = (bound.gap * unit).max(f64::EPSILON * primal);
        Certificate { primal, dual: primal - gap, gap, undecided: bound.undecided }
    }

    fn solution(&self) -> Vec<f64> {
        let groups = self.inner.places();
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
        self.inner.labels().iter().flat_map(row).collect()
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

/// The edges with ordered ends, every pair once, without zero weights.
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
