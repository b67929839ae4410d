//! Where EM begins.

use super::{Family, Rows, Scratch, Shape, Statistics, assigned, maximise};
use crate::rng::Rng;
use rand::RngExt;

/// The parameters that fit best where every row's component is known. A component without rows lies amid the data.
pub(super) fn of_labels(shape: &Shape, rows: &Rows, labels: &[u32], scratch: &mut Scratch) -> Vec<f64> {
    let mut statistics = Statistics::default();
    assigned(shape, rows, labels, scratch, &mut statistics);
    let mut params = vec![0.0; shape.len()];
    params[shape.centres()].chunks_exact_mut(shape.width()).for_each(|centre| centre.copy_from_slice(rows.origin()));
    params[shape.scatter()].fill(1.0);
    maximise(shape, &statistics, &mut params);
    params
}

/// Rows drawn as centres, and everything else shared.
pub(super) fn random(shape: &Shape, rows: &Rows, scratch: &mut Scratch, random: &mut Rng) -> Vec<f64> {
    match shape.family {
        Family::Gaussian(_) => {
            let mut params = of_labels(shape, rows, &vec![0; rows.len()], scratch);
            let width = shape.width();
            for component in 0..shape.components {
                let row = random.random_range(0..rows.len());
                for column in 0..width {
                    params[component * width + column] = rows.value(row, column) + rows.origin()[column];
                }
            }
            params[shape.weights()].fill(1.0 / shape.components as f64);
            params
        }
        Family::Regression { .. } => {
            let labels: Vec<u32> = (0..rows.len()).map(|_| random.random_range(0..shape.components as u32)).collect();
            of_labels(shape, rows, &labels, scratch)
        }
    }
}
