//! What a trained network says of rows whose target nobody knows.

use super::rows::predicted;
use super::{Network, NetworkModel, Passing, Shard, convert};
use crate::num::Real;

impl<N: Network> NetworkModel<N> {
    /// The number or the class that it predicts for each row.
    pub(super) fn predictions<T: Real>(&self, params: &[f64], rows: &Shard) -> Vec<f64> {
        let params: Vec<T> = params.iter().map(|&value| T::of(value)).collect();
        let (mut input, mut pass) = (Vec::new(), Passing::default());
        let x = convert(rows, &mut input);
        let mut found = Vec::with_capacity(rows.len());
        for x in x.chunks(N::SCORED_AT_ONCE * rows.columns().max(1)) {
            self.network.score(&params, x, x.len() / rows.columns(), &mut pass);
            let outputs = pass.outputs.chunks_exact(self.network.outputs());
            found.extend(outputs.map(|out| predicted(self.network.output(), out)));
        }
        found
    }
}
