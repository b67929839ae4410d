//! The points that mixtures are fitted to.

use crate::num::{median, squared_distance};

/// Lower bound on a variance, relative to the typical squared distance from the median.
const FLOOR: f64 = 1e-9;

/// Points, row-major, with their bounding box.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub values: Vec<f64>,
    pub dimension: usize,
    /// The log volume of the bounding box, in which noise is uniform.
    pub log_volume: f64,
    pub floor: f64,
    /// The corners of that box.
    pub lowest: Vec<f64>,
    pub highest: Vec<f64>,
}

impl Sample {
    pub fn new(values: Vec<f64>, dimension: usize) -> Self {
        let column = |column: usize| values.iter().skip(column).step_by(dimension).copied();
        let extreme = |of: fn(f64, f64) -> f64| -> Vec<f64> {
            (0..dimension).map(|at| column(at).reduce(of).unwrap_or_default()).collect()
        };
        let (lowest, highest) = (extreme(f64::min), extreme(f64::max));
        // Medians, for robustness against outliers.
        let middle: Vec<f64> = (0..dimension).map(|at| median(column(at)).unwrap_or_default()).collect();
        let squares: Vec<f64> = values.chunks_exact(dimension).map(|row| squared_distance(row, &middle)).collect();
        let mean = squares.iter().sum::<f64>() / squares.len() as f64;
        let typical = median(squares.into_iter()).filter(|square| *square > 0.0).unwrap_or(mean) / dimension as f64;
        let floor = if typical > 0.0 { FLOOR * typical } else { 1.0 };
        let width = |(low, high): (&f64, &f64)| (high - low).max(floor.sqrt()).ln();
        Self { values, dimension, log_volume: lowest.iter().zip(&highest).map(width).sum(), floor, lowest, highest }
    }

    pub fn count(&self) -> usize {
        self.values.len() / self.dimension
    }

    pub fn row(&self, point: usize) -> &[f64] {
        &self.values[point * self.dimension..][..self.dimension]
    }

    pub fn part(&self, points: &[usize]) -> Self {
        Self::new(points.iter().flat_map(|&point| self.row(point)).copied().collect(), self.dimension)
    }

    /// Other points in the same box.
    pub fn with(&self, values: Vec<f64>) -> Self {
        Self { values, ..self.clone() }
    }
}
