//! Rows as mixtures see them.

use super::kernels::BLOCK;
use super::{Covariance, Family, Shape};
use crate::data::Shard;
use crate::linalg::{Matrix, add_scaled, dot, multiply_add};
use crate::models::convert;

/// The rows of one client, turned block by block, with what is needed of them in every step.
#[derive(Debug, Clone)]
pub struct Rows {
    family: Family,
    width: usize,
    count: usize,
    /// Blocks of rows, column by column; for Gaussians less the origin.
    values: Vec<f64>,
    /// The targets of regressions.
    targets: Vec<f64>,
    /// The mean of the rows for Gaussians, so that nothing cancels wherever they lie; 0 for regressions.
    origin: Vec<f64>,
    /// For `Identity` the sum of all squares, for `Tied` (and `Full`, whose starts are tied) that of the rows' outer products.
    moments: Vec<f64>,
    /// The first number that cannot be computed with.
    fault: Option<Fault>,
}

/// A number that is none, or too large: sums of products of a few like it would not be finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fault {
    /// Which row it is in.
    pub row: usize,
    /// Which column it is in; none for the target.
    pub column: Option<usize>,
    /// The number.
    pub value: f64,
}

impl Fault {
    /// Largest magnitude that can be computed with.
    pub const LARGEST: f64 = 1e70;

    fn find(features: &[f64], columns: usize, targets: &[f64]) -> Option<Self> {
        let fault = |values: &[f64]| values.iter().position(|value| value.is_nan() || value.abs() > Self::LARGEST);
        let feature =
            fault(features).map(|at| Self { row: at / columns, column: Some(at % columns), value: features[at] });
        feature.or_else(|| fault(targets).map(|row| Self { row, column: None, value: targets[row] }))
    }
}

/// Some consecutive rows.
pub(super) struct Block<'a> {
    pub values: &'a [f64],
    pub targets: &'a [f64],
    pub rows: usize,
}

impl Rows {
    /// The rows of a shard that fits the shape: its features, and for regressions its values.
    pub fn of(shape: &Shape, shard: &Shard) -> Self {
        let mut buffer = Vec::new();
        Self::new(shape, convert(shard, &mut buffer), shard.values().unwrap_or_default())
    }

    /// The same from numbers: row-major features, and for regressions a target a row.
    pub fn new(shape: &Shape, features: &[f64], targets: &[f64]) -> Self {
        let columns = shape.columns.max(1);
        let count = features.len() / columns;
        let mut rows = Self {
            family: shape.family,
            width: shape.width(),
            count,
            values: vec![0.0; count * shape.width()],
            targets: Vec::new(),
            origin: vec![0.0; shape.width()],
            moments: Vec::new(),
            fault: None,
        };
        match shape.family {
            Family::Gaussian(_) => {
                let share = 1.0 / count.max(1) as f64;
                features.chunks_exact(columns).for_each(|row| add_scaled(&mut rows.origin, share, row));
            }
            // A row without a target is like one whose target is no number.
            Family::Regression { .. } => {
                rows.targets.extend_from_slice(targets);
                rows.targets.resize(count, f64::NAN);
            }
        }
        for (number, row) in features.chunks_exact(columns).enumerate() {
            // A regression's constant is the column that is left.
            for (column, value) in row.iter().copied().chain([1.0]).enumerate().take(rows.width) {
                let at = rows.place(number, column);
                rows.values[at] = value - rows.origin[column];
            }
        }
        rows.fault = Fault::find(features, columns, &rows.targets);
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
        let mut picked = Self {
            count: rows.len(),
            values: vec![0.0; rows.len() * self.width],
            targets: Vec::new(),
            origin: self.origin.clone(),
            moments: Vec::new(),
            ..*self
        };
        for (number, &row) in rows.iter().enumerate() {
            for column in 0..self.width {
                let at = picked.place(number, column);
                picked.values[at] = self.value(row as usize, column);
            }
        }
        if !self.targets.is_empty() {
            picked.targets.extend(rows.iter().map(|&row| self.targets[row as usize]));
        }
        picked.sum_up();
        picked
    }

    /// Where a number lies.
    fn place(&self, row: usize, column: usize) -> usize {
        let begin = row / BLOCK * BLOCK;
        let length = BLOCK.min(self.count - begin);
        begin * self.width + column * length + row - begin
    }

    fn sum_up(&mut self) {
        let width = self.width;
        let mut moments = Vec::new();
        match self.family {
            Family::Gaussian(Covariance::Identity) => moments.push(dot(&self.values, &self.values)),
            Family::Gaussian(Covariance::Tied | Covariance::Full) => {
                moments.resize(width * width, 0.0);
                for block in self.blocks() {
                    let values = Matrix::new(block.values, width, block.rows);
                    multiply_add(&mut moments, 1.0, values, values.turn());
                }
            }
            _ => {}
        }
        self.moments = moments;
    }

    /// The rows, block by block.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block<'_>> {
        (0..self.count).step_by(BLOCK).map(|begin| {
            let end = self.count.min(begin + BLOCK);
            Block {
                values: &self.values[begin * self.width..end * self.width],
                targets: self.targets.get(begin..end).unwrap_or_default(),
                rows: end - begin,
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
        self.values[self.place(row, column)]
    }

    /// The rows without a regression's constant, each followed by its target where there are targets, row-major; and how
    /// many numbers a row has.
    pub(super) fn with_targets(&self) -> (Vec<f64>, usize) {
        let columns = match self.family {
            Family::Regression { intercept: true, .. } => self.width - 1,
            _ => self.width,
        };
        let mut values = Vec::with_capacity(self.count * (columns + 1));
        for row in 0..self.count {
            values.extend((0..columns).map(|column| self.value(row, column)));
            values.extend(self.targets.get(row));
        }
        (values, columns + usize::from(!self.targets.is_empty()))
    }

    /// The first number that cannot be computed with.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault
    }
}
