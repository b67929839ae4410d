//! A client's rows, prepared for mixtures.

use super::kernels::BLOCK;
use super::{Family, Shape};
use crate::data::Shard;
use crate::data::numbers::convert;
use crate::error::Error;
use crate::num::{Matrix, add_scaled, extreme_eigenvalues, multiply_add, sum_of_squares};
use std::sync::OnceLock;

/// The rows of one client, transposed block by block, for Gaussians of every covariance or regressions of every noise.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    width: usize,
    count: usize,
    /// Blocks of rows, column by column; for Gaussians minus the origin.
    values: Vec<f64>,
    /// The targets of regressions.
    targets: Vec<f64>,
    /// Whether the last column is a regression's constant.
    constant: bool,
    /// The mean of the rows for Gaussians, so that nothing cancels wherever they lie; 0 for regressions.
    origin: Vec<f64>,
    /// The sums of all squares and of the rows' outer products, once they are needed.
    squares: OnceLock<f64>,
    products: OnceLock<Vec<f64>>,
    largest_eigenvalue: OnceLock<f64>,
    /// The first number that cannot be computed with.
    fault: Option<Fault>,
}

/// A number that is not finite, or so large that sums of a few products would not be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fault {
    row: usize,
    /// `None` for the target.
    column: Option<usize>,
    value: f64,
}

impl Fault {
    /// Largest magnitude that can be computed with.
    const LARGEST: f64 = 1e70;

    pub fn error(self) -> Error {
        let place = self.column.map_or("target".to_owned(), |column| format!("column {}", column + 1));
        Error::data(format!(
            "rows: row {}, {place}: got {:?}, want a number of magnitude at most {:?}",
            self.row + 1,
            self.value,
            Self::LARGEST
        ))
        .hint("rows and columns are counted from 1; drop the row or fill in the number")
    }

    fn find(features: &[f64], columns: usize, targets: &[f64]) -> Option<Self> {
        let fault = |values: &[f64]| values.iter().position(|value| value.is_nan() || value.abs() > Self::LARGEST);
        let feature =
            fault(features).map(|at| Self { row: at / columns, column: Some(at % columns), value: features[at] });
        feature.or_else(|| fault(targets).map(|row| Self { row, column: None, value: targets[row] }))
    }
}

pub(super) struct Block<'a> {
    pub values: &'a [f64],
    pub targets: &'a [f64],
    pub rows: usize,
}

impl Block<'_> {
    /// Writes the targets once for every component.
    pub fn repeat_targets(&self, components: usize, out: &mut Vec<f64>) {
        out.clear();
        (0..components).for_each(|_| out.extend_from_slice(self.targets));
    }
}

impl Rows {
    /// The rows of a shard that fits the shape: its features, and for regressions its values.
    pub fn of(shape: &Shape, shard: &Shard) -> Self {
        debug_assert_eq!(shard.columns(), shape.columns, "a model's check refuses other rows");
        let mut buffer = Vec::new();
        Self::new(shape, convert(shard, &mut buffer), shard.values().unwrap_or_default())
    }

    /// The same relative to 0: one row more or less changes none of the others, not even by rounding.
    pub(crate) fn uncentred(shape: &Shape, shard: &Shard) -> Self {
        let mut buffer = Vec::new();
        let targets = shard.values().unwrap_or_default();
        Self::around(vec![0.0; shape.width()], shape, convert(shard, &mut buffer), targets)
    }

    /// The same from numbers: row-major features, and for regressions a target a row.
    pub fn new(shape: &Shape, features: &[f64], targets: &[f64]) -> Self {
        let columns = shape.columns.max(1);
        let mut origin = vec![0.0; shape.width()];
        if let Family::Gaussian(_) = shape.family {
            let share = 1.0 / (features.len() / columns).max(1) as f64;
            features.chunks_exact(columns).for_each(|row| add_scaled(&mut origin, share, row));
        }
        Self::around(origin, shape, features, targets)
    }

    pub(super) fn around(origin: Vec<f64>, shape: &Shape, features: &[f64], targets: &[f64]) -> Self {
        let columns = shape.columns.max(1);
        let count = features.len() / columns;
        let mut kept = Vec::new();
        if let Family::Regression { .. } = shape.family {
            kept.extend_from_slice(targets);
            // A row without a target is like one whose target is not a number.
            kept.resize(count, f64::NAN);
        }
        let mut rows = Self {
            width: shape.width(),
            count,
            values: vec![0.0; count * shape.width()],
            fault: Fault::find(features, columns, &kept),
            targets: kept,
            constant: matches!(shape.family, Family::Regression { intercept: true, .. }),
            origin,
            ..Self::default()
        };
        for (number, row) in features.chunks_exact(columns).enumerate() {
            // The constant is what is left of the width.
            for (column, value) in row.iter().copied().chain([1.0]).enumerate().take(rows.width) {
                let at = rows.place(number, column);
                rows.values[at] = value - rows.origin[column];
            }
        }
        rows
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// These rows, in this order; a row may be repeated.
    pub(crate) fn pick(&self, rows: &[u32]) -> Self {
        let mut picked = Self {
            width: self.width,
            count: rows.len(),
            values: vec![0.0; rows.len() * self.width],
            constant: self.constant,
            origin: self.origin.clone(),
            fault: self.fault,
            ..Self::default()
        };
        if !self.targets.is_empty() {
            picked.targets.extend(rows.iter().map(|&row| self.targets[row as usize]));
        }
        for (number, &row) in rows.iter().enumerate() {
            for column in 0..self.width {
                let at = picked.place(number, column);
                picked.values[at] = self.value(row as usize, column);
            }
        }
        picked
    }

    /// The index of a number in `values`.
    fn place(&self, row: usize, column: usize) -> usize {
        let begin = row / BLOCK * BLOCK;
        let length = BLOCK.min(self.count - begin);
        begin * self.width + column * length + row - begin
    }

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

    /// What is subtracted from the rows.
    pub(super) fn origin(&self) -> &[f64] {
        &self.origin
    }

    pub(super) fn squares(&self) -> f64 {
        *self.squares.get_or_init(|| sum_of_squares(&self.values))
    }

    /// The largest eigenvalue of the rows' mean outer product.
    pub(super) fn largest_eigenvalue(&self) -> f64 {
        *self.largest_eigenvalue.get_or_init(|| {
            let (_, largest) = extreme_eigenvalues(self.products(), self.width);
            largest.max(0.0) / self.count.max(1) as f64
        })
    }

    /// The sum of the rows' outer products with themselves.
    pub(super) fn products(&self) -> &[f64] {
        self.products.get_or_init(|| {
            let mut products = vec![0.0; self.width * self.width];
            for block in self.blocks() {
                let values = Matrix::new(block.values, self.width, block.rows);
                multiply_add(&mut products, 1.0, values, values.transpose());
            }
            products
        })
    }

    /// One number of a row, minus the origin.
    pub(super) fn value(&self, row: usize, column: usize) -> f64 {
        self.values[self.place(row, column)]
    }

    /// The rows without a regression's constant, each followed by its target if any, row-major; and the width of a row.
    pub(super) fn with_targets(&self) -> (Vec<f64>, usize) {
        let columns = self.width - usize::from(self.constant);
        let mut values = Vec::with_capacity(self.count * (columns + 1));
        for row in 0..self.count {
            values.extend((0..columns).map(|column| self.value(row, column)));
            values.extend(self.targets.get(row));
        }
        (values, columns + usize::from(!self.targets.is_empty()))
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault
    }
}
