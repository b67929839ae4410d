//! Clustering of points: pure functions of a matrix. [`find()`] runs any of them by name.

mod auto;
pub mod convex;
mod distances;
mod find;
mod geometry;
mod gradient;
pub mod kmeans;
mod levels;
mod lloyd;
mod number;
mod plane;
#[doc(hidden)]
pub mod quality;
mod search;
mod spectral;
#[doc(hidden)]
pub mod threshold;
pub(crate) mod ward;

pub use find::{Algorithm, Found, NEIGHBOURS, Progress, Request, Stage, Sureness, find};
#[doc(hidden)]
pub use plane::Plane;
pub use quality::{adjusted_rand_index, misclustering};
#[doc(hidden)]
pub use search::Search;

use crate::error::{Error, Result};
use crate::num::{Cpu, add_scaled, dispatch, distance, squared_distance};
use crate::rng::Key;
use convex::{Path, Weights};
use distances::{LANES, Panels, TILE, tiles};
use kmeans::{KMeans, check_clusters};
use rayon::prelude::*;

/// Points to be clustered: finite numbers, row-major, one row per point.
#[derive(Debug, Clone, Copy)]
pub struct Points<'a> {
    values: &'a [f64],
    dimension: usize,
}

/// Upper bound on the magnitude of a number; beyond, squares of differences may overflow.
const LARGEST: f64 = 1e150;

impl<'a> Points<'a> {
    /// Rows of `dimension` numbers each, checked.
    pub fn new(values: &'a [f64], dimension: usize) -> Result<Self> {
        if dimension == 0 || values.is_empty() {
            return Err(Error::data("points: got none, want at least one point with at least one number"));
        }
        if !values.len().is_multiple_of(dimension) {
            return Err(Error::data(format!(
                "points: got {} numbers, want a multiple of the {dimension} columns",
                values.len()
            )));
        }
        match values.iter().position(|value| value.abs() > LARGEST || value.is_nan()) {
            None => Ok(Self { values, dimension }),
            Some(at) => Err(Error::data(format!(
                "points: row {}, column {}: got {:?}, want a number of magnitude at most 1e150",
                at / dimension + 1,
                at % dimension + 1,
                values[at]
            ))
            .hint("rows and columns are counted from 1; drop the row or fill in the number")),
        }
    }

    /// Number of points.
    pub fn count(&self) -> usize {
        self.values.len() / self.dimension
    }

    /// Number of coordinates of a point.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    pub(crate) fn values(&self) -> &'a [f64] {
        self.values
    }

    pub(crate) fn mean(&self) -> Vec<f64> {
        let mut mean = vec![0.0; self.dimension];
        let share = 1.0 / self.count() as f64;
        (0..self.count()).for_each(|point| add_scaled(&mut mean, share, self.row(point)));
        mean
    }

    pub(crate) fn centred(&self) -> Vec<f64> {
        let mean = self.mean();
        let rows = self.values.chunks_exact(self.dimension);
        rows.flat_map(|row| row.iter().zip(&mean).map(|(value, mean)| value - mean)).collect()
    }

    /// One point.
    pub fn row(&self, point: usize) -> &'a [f64] {
        &self.values[point * self.dimension..(point + 1) * self.dimension]
    }
}

/// A partition of points. Clusters are numbered in the order of their first points.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Clustering {
    /// The cluster of every point.
    pub labels: Vec<usize>,
    /// The mean of every cluster's points, row-major.
    pub centres: Vec<f64>,
    dimension: usize,
}

impl Clustering {
    /// The clustering with these labels, renumbered, with the means of the points as centres.
    pub fn of(points: Points, labels: &[usize]) -> Self {
        let labels = renumber(labels);
        let clusters = labels.iter().max().map_or(0, |last| last + 1);
        let dimension = points.dimension();
        let mut found = Self { labels, centres: vec![0.0; clusters * dimension], dimension };
        for (point, &label) in found.labels.iter().enumerate() {
            add_scaled(&mut found.centres[label * dimension..(label + 1) * dimension], 1.0, points.row(point));
        }
        let sizes = found.sizes();
        for (centre, size) in found.centres.chunks_exact_mut(dimension).zip(sizes) {
            centre.iter_mut().for_each(|value| *value /= size as f64);
        }
        found
    }

    /// The clustering of points not set aside, by their means; the others, ascending, get the nearest cluster's label.
    pub(crate) fn without(points: Points, labels: &[usize], aside: &[usize]) -> Self {
        let kept: Vec<usize> = (0..points.count()).filter(|point| aside.binary_search(point).is_err()).collect();
        let values: Vec<f64> = kept.iter().flat_map(|&point| points.row(point)).copied().collect();
        let Ok(some) = Points::new(&values, points.dimension()) else { return Self::of(points, labels) };
        let mut clustering = Self::of(some, &kept.iter().map(|&point| labels[point]).collect::<Vec<_>>());
        for &point in aside {
            let square = |cluster: usize| squared_distance(points.row(point), clustering.centre(cluster));
            let nearest = (0..clustering.clusters()).min_by(|&one, &other| square(one).total_cmp(&square(other)));
            clustering.labels.insert(point, nearest.unwrap_or_default());
        }
        clustering
    }

    /// Number of clusters.
    pub fn clusters(&self) -> usize {
        self.centres.len() / self.dimension
    }

    /// The centre of one cluster.
    pub fn centre(&self, cluster: usize) -> &[f64] {
        &self.centres[cluster * self.dimension..(cluster + 1) * self.dimension]
    }

    pub(crate) fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.clusters()];
        self.labels.iter().for_each(|&label| sizes[label] += 1);
        sizes
    }
}

/// The same partition with clusters numbered 0, 1, … in the order of their first members.
#[doc(hidden)]
pub fn renumber(labels: &[usize]) -> Vec<usize> {
    let mut names = std::collections::HashMap::new();
    labels
        .iter()
        .map(|label| {
            let next = names.len();
            *names.entry(*label).or_insert(next)
        })
        .collect()
}

/// The root of a node in a forest of parents, by path halving.
pub(crate) fn root(parents: &mut [usize], mut node: usize) -> usize {
    while parents[node] != node {
        parents[node] = parents[parents[node]];
        node = parents[node];
    }
    node
}
