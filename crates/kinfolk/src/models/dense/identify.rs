//! One of many models that are the same on a client's rows, chosen so that clients' models can be averaged.
//!
//! A column that is constant at a client, and columns that add up to a constant there (all categories but one that a
//! client does not have), can be traded for the intercept. The shortest parameters would share the mean of the targets
//! among all of them, and then predict only a part of it for a row with other categories: the mean of such models is
//! worse than no model. Here slopes say only what the client's rows show, and the intercept has the rest.

use super::Rows;
use crate::num::Moments;
use crate::num::{Matrix, Spectrum, dot, least_squares, multiply};

/// Replaces parameters (slopes, then the intercept) by those that give the same on all rows and have the shortest slopes.
pub(super) fn identify(rows: &Rows, params: &mut [f64]) {
    let (count, slopes) = (rows.y.len(), rows.columns - 1);
    if slopes == 0 {
        return;
    }
    let columns: Vec<Moments> =
        (0..slopes).map(|column| Moments::of(rows.x.iter().skip(column).step_by(rows.columns).copied())).collect();
    let centred: Vec<f64> = (rows.x.chunks_exact(rows.columns))
        .flat_map(|row| row.iter().zip(&columns).map(|(value, column)| value - column.mean))
        .collect();
    if count > slopes && is_determined(&centred, &columns) {
        return;
    }
    let Some((intercept, given)) = params.split_last_mut() else { return };
    let mut heights = vec![0.0; count];
    multiply(&mut heights, 1.0, Matrix::new(&centred, count, slopes), Matrix::new(given, slopes, 1));
    let Some(shortest) = least_squares(&centred, &heights, count, slopes) else { return };
    let means: Vec<f64> = columns.iter().map(|column| column.mean).collect();
    *intercept += dot(&means, given) - dot(&means, &shortest);
    given.copy_from_slice(&shortest);
}

/// Whether centred columns are independent of each other, whatever their units.
fn is_determined(centred: &[f64], columns: &[Moments]) -> bool {
    if columns.iter().any(|column| column.deviation == 0.0) {
        return false;
    }
    let size = columns.len();
    let count = centred.len() / size;
    let unit: Vec<f64> = centred
        .chunks_exact(size)
        .flat_map(|row| row.iter().zip(columns).map(|(x, column)| x / column.deviation))
        .collect();
    let mut correlations = vec![0.0; size * size];
    let x = Matrix::new(&unit, count, size);
    multiply(&mut correlations, 1.0 / count as f64, x.transpose(), x);
    Spectrum::new(&correlations, size).is_some_and(|spectrum| spectrum.rank() == size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heights(rows: &Rows, params: &[f64]) -> Vec<f64> {
        rows.x.chunks_exact(rows.columns).map(|row| dot(row, params)).collect()
    }

    #[test]
    fn a_client_with_one_category_has_its_mean_in_the_intercept() {
        // Two categories and a number; this client has the second category only.
        let rows = Rows { x: vec![0.0, 1.0, -1.0, 1.0, 0.0, 1.0, 1.0, 1.0], y: vec![2.0, 6.0], columns: 4 };
        let mut params = [0.0, 2.0, 2.0, 2.0];
        let before = heights(&rows, &params);
        identify(&rows, &mut params);
        assert_eq!(heights(&rows, &params), before);
        let wanted = [0.0, 0.0, 2.0, 4.0];
        assert!(params.iter().zip(wanted).all(|(found, want)| (found - want).abs() < 1e-12), "{params:?}");
    }

    #[test]
    fn what_rows_determine_stays_as_it_is() {
        // Units of 1e9 and 1e-9 are no reason to call a column redundant.
        let x = vec![1e9, 2e-9, 1.0, -1e9, 1e-9, 1.0, 2e9, 5e-9, 1.0, 0.0, 0.0, 1.0];
        let rows = Rows { x, y: vec![0.0; 4], columns: 3 };
        let mut params = [1e-9, 3e9, 0.5];
        identify(&rows, &mut params);
        assert_eq!(params, [1e-9, 3e9, 0.5]);
    }
}
