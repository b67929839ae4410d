//! Rows as they are clustered before EM begins.

use super::Rows;
use crate::num::{Matrix, Spectrum, add_scaled, multiply, squared_distance};

/// How rows are scaled. Which scaling shows the components best depends on how they differ; the likelihood tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scaling {
    /// Columns of variance 1, then halfway to variance 1 in every direction.
    HalfWhite,
    /// Columns of variance 1.
    Standard,
    /// As they are.
    Plain,
}

/// Every scaling, in the order of the variants.
pub(super) const SCALINGS: [Scaling; 3] = [Scaling::HalfWhite, Scaling::Standard, Scaling::Plain];

/// Rows minus their mean, followed by the targets of regressions, row-major.
pub(super) struct View {
    pub values: Vec<f64>,
    pub columns: usize,
}

impl View {
    pub fn of(rows: &Rows, scaling: Scaling) -> Self {
        let (values, columns) = rows.with_targets();
        let mut view = Self { values, columns };
        let count = rows.len().max(1) as f64;
        for column in 0..view.columns {
            let values = || view.values.iter().skip(column).step_by(view.columns);
            let mean = values().sum::<f64>() / count;
            let variance = values().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count;
            let factor = match scaling {
                Scaling::Plain => 1.0,
                // A column that does not vary says nothing.
                _ if variance == 0.0 => 0.0,
                _ => variance.sqrt().recip(),
            };
            let values = view.values.iter_mut().skip(column).step_by(view.columns);
            values.for_each(|value| *value = (*value - mean) * factor);
        }
        if scaling == Scaling::HalfWhite {
            view.whiten_by_half(count);
        }
        view
    }

    fn whiten_by_half(&mut self, count: f64) {
        let columns = self.columns;
        let mut correlations = vec![0.0; columns * columns];
        let values = Matrix::new(&self.values, self.values.len() / columns, columns);
        multiply(&mut correlations, 1.0 / count, values.transpose(), values);
        if let Some(spectrum) = Spectrum::new(&correlations, columns) {
            let factor = spectrum.map(|value| value.powf(-0.25));
            let mut whitened = vec![0.0; self.values.len()];
            multiply(&mut whitened, 1.0, values, Matrix::new(&factor, columns, columns));
            self.values = whitened;
        }
    }

    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// For every row the cluster with the nearest mean, where some rows are clustered.
    pub fn nearest(&self, some: &[f64], labels: &[u32], clusters: usize) -> Vec<u32> {
        let mut means = vec![0.0; clusters * self.columns];
        let mut sizes = vec![0.0; clusters];
        for (row, &label) in some.chunks_exact(self.columns).zip(labels) {
            add_scaled(&mut means[label as usize * self.columns..][..self.columns], 1.0, row);
            sizes[label as usize] += 1.0;
        }
        for (mean, size) in means.chunks_exact_mut(self.columns).zip(&sizes) {
            mean.iter_mut().for_each(|value| *value /= size);
        }
        let nearest = |row: &[f64]| {
            let squares = (0u32..).zip(means.chunks_exact(self.columns).map(|mean| squared_distance(row, mean)));
            squares.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(cluster, _)| cluster)
        };
        self.values.chunks_exact(self.columns).map(nearest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Covariance, Family, Noise, Shape};
    use super::*;

    fn close(found: &[f64], wanted: &[f64]) {
        assert_eq!(found.len(), wanted.len());
        assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-12), "{found:?} {wanted:?}");
    }

    #[test]
    fn scalings_by_hand() {
        // The first column varies by 1, the second by 3, the third does not.
        let shape = Shape { family: Family::Gaussian(Covariance::Tied), components: 1, columns: 3 };
        let rows = Rows::new(&shape, &[4.0, 7.0, 5.0, 6.0, 1.0, 5.0, 4.0, 1.0, 5.0, 6.0, 7.0, 5.0], &[]);
        let plain = [-1.0, 3.0, 0.0, 1.0, -3.0, 0.0, -1.0, -3.0, 0.0, 1.0, 3.0, 0.0];
        let standard = [-1.0, 1.0, 0.0, 1.0, -1.0, 0.0, -1.0, -1.0, 0.0, 1.0, 1.0, 0.0];
        close(&View::of(&rows, Scaling::Plain).values, &plain);
        close(&View::of(&rows, Scaling::Standard).values, &standard);
        close(&View::of(&rows, Scaling::HalfWhite).values, &standard);
        // Columns that are the same have variance 2 along their direction, and √2 halfway to 1.
        let shape = Shape { columns: 2, ..shape };
        let rows = Rows::new(&shape, &[4.0, 4.0, 6.0, 6.0], &[]);
        let root = 2f64.powf(-0.25);
        close(&View::of(&rows, Scaling::HalfWhite).values, &[-root, -root, root, root]);
    }

    #[test]
    fn targets_are_seen_and_constants_are_not() {
        let family = Family::Regression { intercept: true, noise: Noise::Unit };
        let rows = Rows::new(&Shape { family, components: 1, columns: 1 }, &[1.0, 3.0], &[20.0, 10.0]);
        let view = View::of(&rows, Scaling::Plain);
        assert_eq!((view.columns, view.values.as_slice()), (2, &[-1.0, 5.0, 1.0, -5.0][..]));
        // The means are (1, 1) and (−1, 0).
        assert_eq!(view.nearest(&[-1.0, 0.0, 1.0, 0.0, 1.0, 2.0], &[1, 0, 0], 2), [0, 1]);
    }
}
