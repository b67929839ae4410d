//! Rows as mixtures see them.

use super::kernels::{BLOCK, Group, LANES, gather};
use super::{Covariance, Family, Shape};
use crate::data::Shard;
use crate::models::convert;

/// The rows of one client, side by side in groups, with what is needed of them in every step.
#[derive(Debug, Clone)]
pub struct Rows {
    family: Family,
    width: usize,
    count: usize,
    /// Groups of rows, columns within; for Gaussians less the origin. Places after the last row are 0.
    values: Vec<Group>,
    /// The targets of regressions.
    targets: Vec<Group>,
    /// The mean of the rows for Gaussians, so that nothing cancels wherever they lie; 0 for regressions.
    origin: Vec<f64>,
    /// For `Identity` the sum of all squares, for `Tied` the sum of the rows' outer products.
    moments: Vec<f64>,
}

/// Some consecutive rows.
pub(super) struct Block<'a> {
    pub values: &'a [Group],
    pub targets: &'a [Group],
    /// How many rows there are; there may be places after them.
    pub rows: usize,
}

impl Rows {
    /// The rows of a shard that fits the shape: its features, and for regressions its values.
    pub fn of(shape: &Shape, shard: &Shard) -> Self {
        let mut buffer = Vec::new();
        let features = convert::<f64>(shard, &mut buffer);
        match shape.family {
            Family::Gaussian(_) => Self::new(shape, features, &[]),
            Family::Regression { .. } => Self::new(shape, features, shard.values().unwrap_or_default()),
        }
    }

    /// The same from numbers: row-major features, and for regressions a target a row.
    pub fn new(shape: &Shape, features: &[f64], targets: &[f64]) -> Self {
        let columns = shape.columns.max(1);
        let count = features.len() / columns;
        let mut origin = vec![0.0; shape.width()];
        let mut rows = Self {
            family: shape.family,
            width: shape.width(),
            count,
            values: vec![[0.0; LANES]; count.div_ceil(LANES) * shape.width()],
            targets: Vec::new(),
            origin: Vec::new(),
            moments: Vec::new(),
        };
        match shape.family {
            Family::Gaussian(_) => {
                let share = 1.0 / count.max(1) as f64;
                features.chunks_exact(columns).for_each(|row| crate::linalg::add_scaled(&mut origin, share, row));
            }
            Family::Regression { .. } => {
                rows.targets = vec![[0.0; LANES]; count.div_ceil(LANES)];
                // A row without a target is no number, like one whose target is none.
                let targets = targets.iter().copied().chain(std::iter::repeat(f64::NAN));
                rows.targets.as_flattened_mut()[..count].iter_mut().zip(targets).for_each(|(to, from)| *to = from);
            }
        }
        for (number, row) in features.chunks_exact(columns).enumerate() {
            let (group, lane) = (number / LANES, number % LANES);
            // A regression's constant is the place that is left.
            let row = row.iter().zip(&origin).map(|(value, origin)| value - origin).chain([1.0]);
            for (to, value) in rows.values[group * rows.width..][..rows.width].iter_mut().zip(row) {
                to[lane] = value;
            }
        }
        rows.origin = origin;
        rows.sum_up();
        rows
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// These rows alone, in this order; a row may come several times.
    pub fn pick(&self, rows: &[u32]) -> Self {
        let groups = rows.len().div_ceil(LANES);
        let mut picked = Self {
            count: rows.len(),
            values: vec![[0.0; LANES]; groups * self.width],
            targets: vec![[0.0; LANES]; if self.targets.is_empty() { 0 } else { groups }],
            origin: self.origin.clone(),
            moments: Vec::new(),
            ..*self
        };
        for (number, &row) in rows.iter().enumerate() {
            let (to, from) = ((number / LANES, number % LANES), (row as usize / LANES, row as usize % LANES));
            for column in 0..self.width {
                picked.values[to.0 * self.width + column][to.1] = self.values[from.0 * self.width + column][from.1];
            }
            if !self.targets.is_empty() {
                picked.targets[to.0][to.1] = self.targets[from.0][from.1];
            }
        }
        picked.sum_up();
        picked
    }

    fn sum_up(&mut self) {
        let width = self.width;
        match self.family {
            Family::Gaussian(Covariance::Identity) => {
                let squares = self.values.as_flattened();
                self.moments = vec![crate::linalg::dot(squares, squares)];
            }
            Family::Gaussian(Covariance::Tied) => {
                self.moments = vec![0.0; width * width];
                gather(&mut self.moments, &self.values, width, &self.values, width);
            }
            _ => {}
        }
    }

    /// The rows, block by block.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block<'_>> {
        (0..self.count.div_ceil(BLOCK * LANES)).map(move |block| {
            let begin = block * BLOCK;
            let end = (begin + BLOCK).min(self.count.div_ceil(LANES));
            Block {
                values: &self.values[begin * self.width..end * self.width],
                targets: self.targets.get(begin..end).unwrap_or_default(),
                rows: self.count.min(end * LANES) - begin * LANES,
            }
        })
    }

    /// What is taken off the rows.
    pub(super) fn origin(&self) -> &[f64] {
        &self.origin
    }

    /// The sum of all squares for `Identity`, of the outer products for `Tied`.
    pub(super) fn moments(&self) -> &[f64] {
        &self.moments
    }

    /// One number of a row, less the origin.
    pub(super) fn value(&self, row: usize, column: usize) -> f64 {
        self.values[row / LANES * self.width + column][row % LANES]
    }

    /// The target of a row.
    pub(super) fn target(&self, row: usize) -> f64 {
        self.targets[row / LANES][row % LANES]
    }
}
