//! Coefficients in the table's own units and names.

use super::Saved;
use crate::data::Column;
use crate::num::dot;

/// How coefficients of encoded columns become those of the table's.
pub(super) struct Coefficients {
    names: Vec<String>,
    /// Of these, the columns that have a coefficient: not the terms of curves that the model is without.
    listed: Vec<usize>,
    /// What the name of each equation's terms begins with.
    equations: Vec<String>,
    /// What each slope is made of: encoded slopes, and what they are multiplied by.
    factors: Vec<Vec<(usize, f64)>>,
    /// What each encoded slope adds to the intercept.
    shifts: Vec<f64>,
    mean: f64,
}

/// A coefficient.
pub(super) struct Term {
    pub(super) name: String,
    /// Of which encoded column; `None` for an intercept.
    pub(super) column: Option<usize>,
    pub(super) value: f64,
    /// Its standard error, where it is known.
    pub(super) error: Option<f64>,
}

impl Coefficients {
    pub(super) fn new(saved: &Saved) -> Self {
        let names = saved.columns.feature_names();
        let target = saved.model.target;
        let (mut factors, mut shifts) = (vec![Vec::new(); names.len()], Vec::new());
        for column in 0..names.len() {
            let mut unit = vec![0.0; names.len()];
            unit[column] = target.deviation;
            shifts.push(saved.columns.decode_slopes(&mut unit));
            let parts = factors.iter_mut().zip(unit).filter(|(_, factor)| *factor != 0.0);
            parts.for_each(|(parts, factor)| parts.push((column, factor)));
        }
        shifts.push(target.deviation);
        let (_, used) = saved.used_columns();
        let listed = (0..names.len()).filter(|place| names[*place] != Column::NONE && used.contains(place)).collect();
        let equations = match &saved.classes[..] {
            [] | [_, _] => vec![String::new()],
            [_, others @ ..] => others.iter().map(|class| format!("{class}: ")).collect(),
        };
        Self { names, listed, equations, factors, shifts, mean: target.mean }
    }

    /// The intercept, and the slope of every column, of one equation after the other; the covariance is that of the encoded coefficients,
    /// row-major.
    pub(super) fn terms(&self, coefficients: &[f64], covariance: Option<&[f64]>) -> Vec<Term> {
        let (width, all) = (self.shifts.len(), coefficients.len());
        let mut terms = Vec::new();
        for ((equation, prefix), own) in self.equations.iter().enumerate().zip(coefficients.chunks_exact(width)) {
            let start = equation * width;
            let line = |covariance: &'_ [f64], row: usize| covariance[(start + row) * all + start..][..width].to_vec();
            let spread = |covariance: &[f64]| {
                let lines = self.shifts.iter().enumerate().map(|(row, shift)| (line(covariance, row), shift));
                lines.map(|(line, shift)| shift * dot(&line, &self.shifts)).sum::<f64>().max(0.0).sqrt()
            };
            let (name, value) = (format!("{prefix}(intercept)"), self.mean + dot(&self.shifts, own));
            terms.push(Term { name, column: None, value, error: covariance.map(spread) });
            for &column in &self.listed {
                let (name, parts) = (&self.names[column], &self.factors[column]);
                let along = |line: &[f64]| parts.iter().map(|(place, factor)| factor * line[*place]).sum::<f64>();
                let variance = |covariance: &[f64]| {
                    parts.iter().map(|(row, factor)| factor * along(&line(covariance, *row))).sum::<f64>()
                };
                let error = covariance.map(|covariance| variance(covariance).max(0.0).sqrt());
                terms.push(Term { name: format!("{prefix}{name}"), column: Some(column), value: along(own), error });
            }
        }
        terms
    }
}
