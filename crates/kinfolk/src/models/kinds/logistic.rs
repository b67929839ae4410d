//! Logistic regression for two classes.

use super::super::dense::{Dense, Rows};
use super::super::trainer::{NetworkModel, rows::Output};
use super::{Ability, Model, ModelSettings, Precision};
use crate::data::DataShape;
use crate::error::{Error, Result};
use crate::num::{Matrix, multiply, row_space, solve_positive};
use crate::settings::settings;

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

/// Newton's method with halved steps, to a gradient of 1e-12. Where there is no minimiser, because the classes separate, it
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
    let mut params = vec![0.0; size];
    let mut odds = vec![0.0; count];
    let objective = |params: &[f64], odds: &mut [f64]| -> f64 {
        multiply(odds, 1.0, x, Matrix::new(params, size, 1));
        let loss = |(&o, &y): (&f64, &f64)| {
            let s = if y > 0.5 { o } else { -o };
            (-s.abs()).exp().ln_1p() + (-s).max(0.0)
        };
        let penalty = 0.5 * ridge * params.iter().map(|p| p * p).sum::<f64>();
        odds.iter().zip(&rows.y).map(loss).sum::<f64>() * share + penalty
    };
    let mut value = objective(&params, &mut odds);
    for _ in 0..100 {
        let chance: Vec<f64> = odds.iter().map(|o| 1.0 / (1.0 + (-o).exp())).collect();
        let residual: Vec<f64> = chance.iter().zip(&rows.y).map(|(p, y)| p - y).collect();
        let mut gradient: Vec<f64> = params.iter().map(|p| ridge * p).collect();
        crate::num::multiply_add(&mut gradient, share, x.transpose(), Matrix::new(&residual, count, 1));
        if gradient.iter().map(|g| g * g).sum::<f64>().sqrt() < 1e-12 {
            break;
        }
        let weighted: Vec<f64> = rows
            .x
            .chunks_exact(size)
            .zip(&chance)
            .flat_map(|(row, p)| row.iter().map(move |v| v * p * (1.0 - p)))
            .collect();
        let mut curvature = vec![0.0; size * size];
        multiply(&mut curvature, share, Matrix::new(&weighted, count, size).transpose(), x);
        (0..size).for_each(|i| curvature[i * size + i] += ridge);
        let direction = solve_positive(&curvature, &gradient, size, 1).or_else(|| {
            // Columns that depend on each other leave a direction free; a little damping picks a short step.
            let largest = (0..size).map(|i| curvature[i * size + i]).fold(0.0, f64::max);
            (0..size).for_each(|i| curvature[i * size + i] += 1e-10 * largest);
            solve_positive(&curvature, &gradient, size, 1)
        });
        let Some(direction) = direction else { break };
        let mut length = 1.0;
        let moved = loop {
            let next: Vec<f64> = params.iter().zip(&direction).map(|(p, d)| p - length * d).collect();
            let next_value = objective(&next, &mut odds);
            if next_value <= value {
                params = next;
                break value - next_value;
            }
            length *= 0.5;
            if length < 1e-10 {
                break 0.0;
            }
        };
        if moved == 0.0 {
            // No smaller value within rounding: this is the minimum.
            objective(&params, &mut odds);
            break;
        }
        value -= moved;
    }
    // A model that puts every row on its right side gets better without end when nothing holds it back.
    let separated = odds.iter().zip(&rows.y).all(|(&odds, &y)| (odds > 0.0) == (y > 0.5));
    let mean_square = rows.x.iter().map(|value| value * value).sum::<f64>() / rows.x.len() as f64;
    let small_ridge = RIDGE_WHERE_SEPARATED * mean_square;
    if separated && ridge == 0.0 && small_ridge > 0.0 {
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
