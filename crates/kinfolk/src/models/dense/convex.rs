//! Exact solutions and second derivatives of a single output right above the inputs.

use super::identify::identify;
use super::{Convex, Dense, Goal, Output};
use crate::data::Shard;
use crate::data::numbers::convert_into;
use crate::error::{Error, Result};
use crate::hierarchy::response::Quadratic;
use crate::num::logistic::Odds;
use crate::num::{Matrix, add_scaled, dot, extreme_eigenvalues, multiply, norm, sum_of_squares};
use crate::privacy::answers::HiddenAnswer;

/// Finds the exact minimiser of the mean loss plus a ridge.
pub(in crate::models) type Minimiser = fn(&Rows, f64) -> Result<Vec<f64>>;

/// Rows as `f64`, with a column of ones behind them where there is an intercept.
pub(in crate::models) struct Rows {
    pub(in crate::models) x: Vec<f64>,
    pub(in crate::models) y: Vec<f64>,
    pub(in crate::models) columns: usize,
}

impl Dense {
    fn rows(&self, shard: &Shard) -> Rows {
        let mut features = vec![0.0; shard.len() * shard.columns()];
        convert_into(shard, &mut features);
        let columns = shard.columns() + usize::from(self.bias);
        let mut x = Vec::with_capacity(shard.len() * columns);
        for row in features.chunks_exact(shard.columns()) {
            x.extend_from_slice(row);
            x.extend(self.bias.then_some(1.0));
        }
        let y = match Goal::of(shard) {
            Goal::Classes(classes) => classes.iter().map(|&class| f64::from(class)).collect(),
            Goal::Values(values) => values.to_vec(),
        };
        Rows { x, y, columns }
    }

    /// The minimiser of the logistic loss with a ridge on all parameters, and the length of the gradient that is left there.
    fn minimise_regularised(&self, rows: &Rows, ridge: f64) -> Result<(Vec<f64>, f64)> {
        if rows.y.is_empty() || ridge <= 0.0 {
            return Err(Error::data("a minimiser that hides rows wants some rows, and a ridge above 0"));
        }
        let minimiser = self.minimiser.ok_or_else(no_minimiser)?;
        let params = minimiser(rows, ridge)?;
        let share = 1.0 / rows.y.len() as f64;
        let mut gradient: Vec<f64> = params.iter().map(|value| ridge * value).collect();
        for (row, y) in rows.x.chunks_exact(rows.columns).zip(&rows.y) {
            add_scaled(&mut gradient, share * (Odds::of(dot(row, &params)).chance() - y), row);
        }
        Ok((params, norm(&gradient)))
    }
}

impl Convex for Dense {
    fn minimise(&self, shard: &Shard, ridge: f64) -> Result<Vec<f64>> {
        let rows = self.rows(shard);
        let minimiser = self.minimiser.ok_or_else(no_minimiser)?;
        let mut params = minimiser(&rows, ridge)?;
        if self.bias {
            identify(&rows, &mut params);
        }
        Ok(params)
    }

    fn minimise_hidden(&self, shard: &Shard, ridge: f64, hidden: &mut HiddenAnswer) -> Result<Vec<f64>> {
        let mut rows = self.rows(shard);
        let columns = rows.columns;
        if self.is_quadratic() {
            hidden.cut(&mut rows.x, columns, Some(&mut rows.y));
            return Ok(hidden.least_squares(&rows.x, &rows.y, columns, ridge));
        }
        hidden.cut(&mut rows.x, columns, None);
        let (params, slope) = self.minimise_regularised(&rows, ridge)?;
        hidden.minimiser(params, slope, rows.y.len(), columns, ridge)
    }

    fn quadratic(&self, shard: &Shard, at: &[f64], scale: f64) -> Quadratic {
        expand(self.output, &self.rows(shard), at, scale)
    }

    fn is_quadratic(&self) -> bool {
        self.output == Output::Squared
    }

    fn curvature_gradient(&self, shard: &Shard, at: &[f64], scale: f64, weights: &[f64]) -> Vec<f64> {
        let mut gradient = vec![0.0; at.len()];
        if self.is_quadratic() {
            return gradient;
        }
        let rows = self.rows(shard);
        let share = scale / shard.len() as f64;
        for row in rows.x.chunks_exact(rows.columns) {
            let weighted: f64 = weights.chunks_exact(at.len()).zip(row).map(|(w, x)| x * dot(w, row)).sum();
            add_scaled(&mut gradient, share * Odds::of(dot(row, at)).skew() * weighted, row);
        }
        gradient
    }

    fn curvatures(&self, shard: &Shard) -> [f64; 3] {
        // Bounds on the second derivative of a row's loss in its output.
        let (most, least) = if self.is_quadratic() { (2.0, 2.0) } else { (0.25, 0.0) };
        let rows = self.rows(shard);
        let (count, size) = (rows.y.len(), rows.columns);
        let x = Matrix::new(&rows.x, count, size);
        let mut squares = vec![0.0; size * size];
        multiply(&mut squares, 1.0 / count as f64, x.transpose(), x);
        let (smallest, largest) = extreme_eigenvalues(&squares, size);
        let longest = rows.x.chunks_exact(size).map(sum_of_squares).fold(0.0, f64::max);
        [most * largest, least * smallest.max(0.0), most * longest]
    }
}

fn no_minimiser() -> Error {
    Error::federation("a model without an exact minimiser")
}

/// The second-order expansion of `scale` times the mean loss at one point.
fn expand(output: Output, rows: &Rows, at: &[f64], scale: f64) -> Quadratic {
    let (count, size) = (rows.y.len(), rows.columns);
    let share = scale / count as f64;
    let x = Matrix::new(&rows.x, count, size);
    let mut curvature = vec![0.0; size * size];
    let mut moment = vec![0.0; size];
    if output == Output::Squared {
        multiply(&mut curvature, 2.0 * share, x.transpose(), x);
        multiply(&mut moment, 2.0 * share, x.transpose(), Matrix::new(&rows.y, count, 1));
        return Quadratic { curvature, moment, energy: share * dot(&rows.y, &rows.y) };
    }
    let mut loss = 0.0;
    let mut weighted = vec![0.0; rows.x.len()];
    for ((row, out), &y) in rows.x.chunks_exact(size).zip(weighted.chunks_exact_mut(size)).zip(&rows.y) {
        let odds = Odds::of(dot(row, at));
        loss += share * (if y > 0.5 { odds } else { -odds }).loss();
        // −gradient goes into the moment; the curvature's part of it follows below.
        add_scaled(&mut moment, share * (y - odds.chance()), row);
        out.iter_mut().zip(row).for_each(|(out, x)| *out = share * odds.curvature() * x);
    }
    multiply(&mut curvature, 1.0, Matrix::new(&weighted, count, size).transpose(), x);
    let downhill = dot(&moment, at);
    let mut bent = vec![0.0; size];
    multiply(&mut bent, 1.0, Matrix::new(&curvature, size, size), Matrix::new(at, size, 1));
    let energy = loss + downhill + 0.5 * dot(&bent, at);
    add_scaled(&mut moment, 1.0, &bent);
    Quadratic { curvature, moment, energy }
}
