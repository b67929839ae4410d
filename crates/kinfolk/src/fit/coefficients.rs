//! Coefficients in the table's own units and names.

use super::Saved;
use crate::num::dot;

/// How coefficients of encoded columns become those of the table's.
pub(super) struct Coefficients {
    names: Vec<String>,
    /// What each encoded slope is multiplied by.
    factors: Vec<f64>,
    /// What each encoded slope adds to the intercept.
    shifts: Vec<f64>,
    mean: f64,
}

/// A coefficient.
pub(super) struct Term {
    pub(super) name: String,
    pub(super) value: f64,
    /// Its standard error, where it is known.
    pub(super) error: Option<f64>,
}

impl Coefficients {
    pub(super) fn new(saved: &Saved) -> Self {
        let names = saved.columns.feature_names();
        let target = saved.model.target;
        let (mut factors, mut shifts) = (Vec::new(), Vec::new());
        for column in 0..names.len() {
            let mut unit = vec![0.0; names.len()];
            unit[column] = target.deviation;
            shifts.push(saved.columns.decode_slopes(&mut unit));
            factors.push(unit[column]);
        }
        shifts.push(target.deviation);
        Self { names, factors, shifts, mean: target.mean }
    }

    /// The intercept, and the slope of every column; the covariance is that of the encoded coefficients, row-major.
    pub(super) fn terms(&self, coefficients: &[f64], covariance: Option<&[f64]>) -> Vec<Term> {
        let width = coefficients.len();
        let intercept = self.mean + dot(&self.shifts, coefficients);
        let spread = |covariance: &[f64]| {
            let lines = covariance.chunks_exact(width).zip(&self.shifts);
            lines.map(|(line, shift)| shift * dot(line, &self.shifts)).sum::<f64>().max(0.0).sqrt()
        };
        let mut terms = vec![Term { name: "(intercept)".into(), value: intercept, error: covariance.map(spread) }];
        for (place, (name, factor)) in self.names.iter().zip(&self.factors).enumerate() {
            let error = covariance.map(|covariance| covariance[place * width + place].max(0.0).sqrt() * factor.abs());
            terms.push(Term { name: name.clone(), value: coefficients[place] * factor, error });
        }
        terms
    }
}
