//! Points as mixtures see them.

use crate::linalg::squared_distance;

/// Of the points' typical squared distance to their middle, what a variance is at least.
const FLOOR: f64 = 1e-9;

/// Points, row-major, and what their extent says.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub values: Vec<f64>,
    pub dimension: usize,
    /// The logarithm of the volume of the box around the points: noise is uniform in it.
    pub log_volume: f64,
    /// The smallest variance.
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
        // Medians, so that a point far outside does not decide what is small.
        let middle: Vec<f64> = (0..dimension).map(|at| median(column(at).collect())).collect();
        let squares: Vec<f64> = values.chunks_exact(dimension).map(|row| squared_distance(row, &middle)).collect();
        let mean = squares.iter().sum::<f64>() / squares.len() as f64;
        let typical = Some(median(squares)).filter(|square| *square > 0.0).unwrap_or(mean) / dimension as f64;
        let floor = if typical > 0.0 { FLOOR * typical } else { 1.0 };
        let width = |(low, high): (&f64, &f64)| (high - low).max(floor.sqrt()).ln();
        let log_volume = lowest.iter().zip(&highest).map(width).sum();
        Self { values, dimension, log_volume, floor, lowest, highest }
    }

    pub fn count(&self) -> usize {
        self.values.len() / self.dimension
    }

    pub fn row(&self, point: usize) -> &[f64] {
        &self.values[point * self.dimension..][..self.dimension]
    }

    /// Some of the points.
    pub fn part(&self, points: &[usize]) -> Self {
        Self::new(points.iter().flat_map(|&point| self.row(point)).copied().collect(), self.dimension)
    }

    /// Other points in the same box.
    pub fn with(&self, values: Vec<f64>) -> Self {
        Self { values, ..self.clone() }
    }
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    if values.is_empty() { 0.0 } else { *values.select_nth_unstable_by(middle, f64::total_cmp).1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_point_does_not_decide_what_is_small() {
        let mut values: Vec<f64> = (0..20).map(f64::from).collect();
        let near = Sample::new(values.clone(), 1).floor;
        values.push(1e12);
        assert!(Sample::new(values, 1).floor < 2.0 * near);
        let alike = Sample::new(vec![3.0; 4], 2);
        assert!(alike.floor > 0.0 && alike.log_volume.is_finite());
    }
}
