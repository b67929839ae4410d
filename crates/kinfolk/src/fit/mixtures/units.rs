//! Components in the table's own units and names.

use super::SavedMixture;
use crate::data::schema::Schema;

/// One over the deviation of every column.
fn factors(columns: &Schema) -> Vec<f64> {
    let mut factors = vec![1.0; columns.shape().columns];
    columns.decode_slopes(&mut factors);
    factors
}

/// What is added to a log density of encoded columns to be one of the table's.
pub(super) fn log_units(columns: &Schema) -> f64 {
    factors(columns).iter().map(|factor| factor.ln()).sum()
}

/// A component in the table's units.
pub(super) struct Component {
    pub(super) weight: f64,
    pub(super) means: Vec<f64>,
    pub(super) deviations: Vec<f64>,
    /// Row-major.
    pub(super) covariance: Vec<f64>,
    /// How far its means are from those of all rows, in deviations of all rows.
    pub(super) apart: Vec<f64>,
}

/// All components.
pub(super) fn components(saved: &SavedMixture) -> Vec<Component> {
    let (shape, params) = (saved.model.shape, &saved.model.params);
    let (columns, factors) = (shape.columns, factors(&saved.columns));
    (0..shape.components)
        .map(|component| {
            let apart = params[shape.centres()][component * columns..][..columns].to_vec();
            let mut means = apart.clone();
            saved.columns.decode(&mut means);
            let mut covariance = crate::methods::covariance_of(&shape, params, component);
            for (i, line) in covariance.chunks_exact_mut(columns).enumerate() {
                line.iter_mut().zip(&factors).for_each(|(value, factor)| *value /= factor * factors[i]);
            }
            let deviations = covariance.iter().step_by(columns + 1).map(|variance| variance.sqrt()).collect();
            Component { weight: params[shape.weights()][component], means, deviations, covariance, apart }
        })
        .collect()
}
