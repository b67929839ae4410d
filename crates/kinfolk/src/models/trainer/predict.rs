//! What a trained network says of rows whose target nobody knows.

use super::rows::{Output, expected, predicted};
use super::{Network, NetworkModel, Passing, Shard, convert};
use crate::num::Real;

impl<N: Network> NetworkModel<N> {
    /// The number or the class that it predicts for each row.
    pub(super) fn predictions<T: Real>(&self, params: &[f64], rows: &Shard) -> Vec<f64> {
        self.of_outputs::<T>(params, rows, |output, out, found| found.push(predicted(output, out)))
    }

    /// The number that it predicts for each row, or the probability of every class.
    pub(super) fn expectations<T: Real>(&self, params: &[f64], rows: &Shard) -> Vec<f64> {
        self.of_outputs::<T>(params, rows, expected)
    }

    /// What is made of the outputs of every row.
    fn of_outputs<T: Real>(
        &self,
        params: &[f64],
        rows: &Shard,
        make: impl Fn(Output, &[T], &mut Vec<f64>),
    ) -> Vec<f64> {
        let params: Vec<T> = params.iter().map(|&value| T::of(value)).collect();
        let (mut input, mut pass) = (Vec::new(), Passing::default());
        let x = convert(rows, &mut input);
        let mut found = Vec::with_capacity(rows.len());
        for x in x.chunks(N::SCORED_AT_ONCE * rows.columns().max(1)) {
            self.network.score(&params, x, x.len() / rows.columns(), &mut pass);
            let outputs = pass.outputs.chunks_exact(self.network.outputs());
            outputs.for_each(|out| make(self.network.output(), out, &mut found));
        }
        found
    }
}
