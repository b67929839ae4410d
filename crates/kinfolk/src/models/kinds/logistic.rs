//! Logistic regression for two classes.

use super::*;
use crate::num::logistic::Odds;
use crate::num::newton::{self, Step};
use crate::num::{Matrix, dot, multiply, multiply_add, row_space, solve_positive, sum_of_squares};
use std::f64::consts::LN_2;

settings! {
    /// The settings of the model `logistic`.
    pub struct LogisticSettings {
        /// add a constant term
        intercept: bool = true,
        /// numbers to compute in and to send
        precision: Precision = "f64",
    }
}

impl ModelSettings for LogisticSettings {
    const NAME: &str = "logistic";
    const SUMMARY: &str = "logistic regression for two classes";
    const ABILITY: Ability = Ability::Minimiser;
    const ROW_GRADIENTS: bool = true;

    fn build(self, data: DataShape) -> Result<Box<dyn Model>> {
        if data.classes != 2 {
            return Err(Error::settings(format!(
                "model.kind: \"logistic\" wants 2 classes, the data has {}",
                data.classes
            ))
            .hint("use \"softmax\" for more classes, \"linear\" for numbers"));
        }
        let dense = Dense::new(vec![data.columns, 1], self.intercept, Output::Logistic);
        Ok(Box::new(NetworkModel::new(dense.minimised_by(minimise), data, self.precision)))
    }
}

/// Where the classes separate and nothing holds the model back, a ridge of this share of the columns' mean square does.
const RIDGE_WHERE_SEPARATED: f64 = 1e-4;

/// A gain this small, relatively, is lost in rounding.
const BELOW_ROUNDING: f64 = 1e-14;

/// By Newton's method. Where there is no minimiser, because the classes separate, it
/// is that with a small ridge, which scales with the columns. A ridge keeps the minimiser in the span of the rows; where
/// there are fewer of them than columns, that is the smaller problem with the same solution.
fn minimise(rows: &Rows, ridge: f64) -> Result<Vec<f64>> {
    let (count, size) = (rows.y.len(), rows.columns);
    if ridge > 0.0 && count < size {
        let (coordinates, basis) = row_space(&rows.x, count, size);
        let within = minimise(&Rows { x: coordinates, y: rows.y.clone(), columns: count }, ridge)?;
        let mut params = vec![0.0; size];
        multiply(&mut params, 1.0, Matrix::new(&within, 1, count), Matrix::new(&basis, count, size));
        return Ok(params);
    }
    let share = 1.0 / count as f64;
    let x = Matrix::new(&rows.x, count, size);
    let odds = |params: &[f64]| {
        let mut odds = vec![0.0; count];
        multiply(&mut odds, 1.0, x, Matrix::new(params, size, 1));
        odds
    };
    let objective = |params: &[f64]| -> f64 {
        let loss = |(odds, &y): (f64, &f64)| Odds::of(if y > 0.5 { odds } else { -odds }).loss();
        let loss: f64 = odds(params).into_iter().zip(&rows.y).map(loss).sum();
        loss * share + 0.5 * ridge * sum_of_squares(params)
    };
    // Below this no row is on its wrong side: the model gets better without end when nothing holds it back.
    let separated = LN_2 * share;
    let params = newton::minimise(vec![0.0; size], BELOW_ROUNDING, objective, |params, value| {
        if ridge == 0.0 && value < separated {
            return Ok(None);
        }
        let mut gradient: Vec<f64> = params.iter().map(|p| ridge * p).collect();
        let (mut residual, mut weighted) = (Vec::with_capacity(count), Vec::with_capacity(rows.x.len()));
        for ((row, y), odds) in rows.x.chunks_exact(size).zip(&rows.y).zip(odds(params)) {
            let odds = Odds::of(odds);
            residual.push(odds.chance() - y);
            weighted.extend(row.iter().map(|value| value * odds.curvature()));
        }
        multiply_add(&mut gradient, share, x.transpose(), Matrix::new(&residual, count, 1));
        let mut curvature = vec![0.0; size * size];
        multiply(&mut curvature, share, Matrix::new(&weighted, count, size).transpose(), x);
        (0..size).for_each(|i| curvature[i * size + i] += ridge);
        let direction = solve_positive(&curvature, &gradient, size, 1).or_else(|| {
            // Columns that depend on each other leave a direction free; a little damping picks a short step.
            let largest = (0..size).map(|i| curvature[i * size + i]).fold(0.0, f64::max);
            (0..size).for_each(|i| curvature[i * size + i] += 1e-10 * largest);
            solve_positive(&curvature, &gradient, size, 1)
        });
        Ok(direction.map(|direction| Step {
            target: params.iter().zip(&direction).map(|(p, d)| p - d).collect(),
            promised: 0.5 * dot(&gradient, &direction),
        }))
    })?;
    let small_ridge = RIDGE_WHERE_SEPARATED * sum_of_squares(&rows.x) / rows.x.len() as f64;
    if ridge == 0.0 && small_ridge > 0.0 && objective(&params) < separated {
        return minimise(rows, small_ridge);
    }
    match params.iter().all(|value| value.is_finite()) {
        true => Ok(params),
        false => Err(Error::data("logistic regression found no finite minimiser")
            .hint("are there numbers in the data that are far too large?")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_odds_of_a_constant() {
        // Three of four rows in class 1: the intercept alone is log 3.
        let rows = Rows { x: vec![1.0; 4], y: vec![1.0, 1.0, 1.0, 0.0], columns: 1 };
        assert!((minimise(&rows, 0.0).unwrap()[0] - 3f64.ln()).abs() < 1e-10);
    }

    #[test]
    fn separated_classes_have_a_minimiser_that_scales_with_the_columns() {
        let rows = |scale: f64| Rows { x: vec![-scale, scale], y: vec![0.0, 1.0], columns: 1 };
        let found = minimise(&rows(1.0), 0.0).unwrap()[0];
        // 1/(1 + e^θ) = 1e-4·θ, the columns' mean square being 1.
        assert!((1.0 / (1.0 + found.exp()) - 1e-4 * found).abs() < 1e-10);
        for scale in [1e-3, 50.0] {
            let scaled = minimise(&rows(scale), 0.0).unwrap()[0] * scale;
            assert!((scaled - found).abs() < 1e-6 * found, "{scale}: {scaled}, {found}");
        }
        let found = minimise(&rows(1.0), 0.1).unwrap()[0];
        // 1/(1 + e^θ) = 0.1·θ
        assert!((1.0 / (1.0 + found.exp()) - 0.1 * found).abs() < 1e-10);
        // A single row, rows of one class, and columns without anything in them.
        for (x, y) in
            [(vec![2.0, 1.0], vec![1.0]), (vec![1.0, -1.0, 1.0, 3.0], vec![0.0, 0.0]), (vec![0.0; 4], vec![0.0; 2])]
        {
            let found = minimise(&Rows { x, y, columns: 2 }, 0.0).unwrap();
            assert!(found.iter().all(|value| value.is_finite()), "{found:?}");
        }
    }

    #[test]
    fn few_rows_have_no_slope_left_either() {
        // Three rows of five columns, two of them alike; the gradient is formed from its definition.
        let x = vec![1.0, 2.0, 0.0, -1.0, 0.5, 0.0, 1.0, 3.0, 1.0, -2.0, 1.0, 2.0, 0.0, -1.0, 0.5];
        let rows = Rows { x, y: vec![1.0, 0.0, 0.0], columns: 5 };
        let found = minimise(&rows, 0.01).unwrap();
        let mut gradient: Vec<f64> = found.iter().map(|p| 0.01 * p).collect();
        for (row, y) in rows.x.chunks(5).zip(&rows.y) {
            let odds: f64 = row.iter().zip(&found).map(|(x, p)| x * p).sum();
            let residual = 1.0 / (1.0 + (-odds).exp()) - y;
            gradient.iter_mut().zip(row).for_each(|(g, x)| *g += residual * x / 3.0);
        }
        assert!(gradient.iter().all(|g| g.abs() < 1e-12), "{gradient:?}");
    }
}
