//! Linear regression: one number from a weighted sum, squared error without the ½.

use super::super::dense::Initial;
use super::*;
use crate::num::{Matrix, least_squares, multiply, solve_positive};

choices!(Initial { Uniform = "uniform", Coins = "bernoulli", Zero = "zero" });

settings! {
    /// The settings of the model `linear`.
    pub struct LinearSettings {
        /// add a constant term
        intercept: bool = true,
        /// numbers to compute in and to send
        precision: Precision = "f64",
        /// random parameters: uniform within 1/√inputs, 0 or 1 by a coin, or all 0
        initial: Initial = "uniform",
    }
}

impl ModelSettings for LinearSettings {
    const NAME: &str = "linear";
    const SUMMARY: &str = "linear regression, squared error";
    const ABILITY: Ability = Ability::Quadratic;
    const ROW_GRADIENTS: bool = true;

    fn build(self, data: DataShape) -> Result<Box<dyn Model>> {
        if data.classes > 0 {
            return Err(Error::settings(format!(
                "model.kind: \"linear\" predicts a number, the data has {} classes",
                data.classes
            ))
            .hint(
                "use \"softmax\", \"logistic\" (two classes) or \"mlp\"; numbers of a table stay numbers, whole or few as they \
                 are, with data.task = \"regression\"",
            ));
        }
        let dense = Dense::new(vec![data.columns, 1], self.intercept, Output::Squared);
        let dense = dense.starting(self.initial);
        Ok(Box::new(NetworkModel::new(dense.minimised_by(minimise), data, self.precision)))
    }
}

/// Normal equations with a ridge, the smallest of all solutions without.
fn minimise(rows: &Rows, ridge: f64) -> Result<Vec<f64>> {
    let (count, size) = (rows.y.len(), rows.columns);
    if ridge > 0.0 {
        let x = Matrix::new(&rows.x, count, size);
        let scale = 2.0 / count as f64;
        let mut normal = vec![0.0; size * size];
        multiply(&mut normal, scale, x.transpose(), x);
        (0..size).for_each(|i| normal[i * size + i] += ridge);
        let mut moments = vec![0.0; size];
        multiply(&mut moments, scale, x.transpose(), Matrix::new(&rows.y, count, 1));
        if let Some(solution) = solve_positive(&normal, &moments, size, 1) {
            return Ok(solution);
        }
    }
    least_squares(&rows.x, &rows.y, count, size).ok_or_else(|| Error::data("least squares found no solution"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ridge_and_least_squares_by_hand() {
        let rows = Rows { x: vec![1.0, 2.0], y: vec![1.0, 3.0], columns: 1 };
        assert!((minimise(&rows, 0.0).unwrap()[0] - 1.4).abs() < 1e-14);
        // (2/2)·5·θ + 5·θ = (2/2)·7
        assert!((minimise(&rows, 5.0).unwrap()[0] - 0.7).abs() < 1e-14);
    }
}
