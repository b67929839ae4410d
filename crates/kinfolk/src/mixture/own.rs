//! A mixture of a client's rows alone.

use super::{Begin, Fitting, Rows, Shape, fit};
use crate::rng::Key;

/// Rows for every component, as many times as its scatter needs.
const TIMES: usize = 3;

/// The most components that so many rows can tell apart.
pub(crate) fn most_components(shape: &Shape, rows: usize) -> usize {
    (1..=rows).take_while(|&components| TIMES * Shape { components, ..*shape }.least_rows() <= rows).count()
}

/// The mixture of up to so many components with the best BIC; `None` where rows are too few for one.
pub(crate) fn own_mixture(shape: &Shape, rows: &Rows, most: usize, key: &Key) -> Option<(Shape, Vec<f64>)> {
    let fitting = Fitting { begin: Begin::KMeans, starts: 3, iterations: 100, tolerance: 1e-6 };
    let count = rows.len();
    let mut best: Option<(f64, Shape, Vec<f64>)> = None;
    for components in 1..=most.min(most_components(shape, count)) {
        let shape = Shape { components, ..*shape };
        let Ok(fitted) = fit(&shape, rows, &fitting, key) else { break };
        let criterion = shape.free_parameters() as f64 * (count as f64).ln() - 2.0 * fitted.log_likelihood;
        if best.as_ref().is_some_and(|(least, ..)| criterion >= *least) {
            break;
        }
        best = Some((criterion, shape, fitted.params));
    }
    best.map(|(_, shape, params)| (shape, params))
}
