//! What a trained network says of rows whose target nobody knows.

use super::rows::{expected, predicted};
use super::{Error, Network, NetworkModel, Passing, Precision, Result, Shard, convert};
use crate::num::Real;

/// What is wanted of every row.
#[derive(Clone, Copy)]
pub(super) enum Said {
    /// The number or the class that is predicted.
    Prediction,
    /// The number, or the probability of every class.
    Expectation,
}

impl<N: Network> NetworkModel<N> {
    pub(super) fn say(&self, params: &[f64], rows: &Shard, what: Said) -> Result<Vec<f64>> {
        if let Some(fault) = self.network.fault(rows) {
            return Err(Error::data(format!("rows {fault}")));
        }
        Ok(match self.precision {
            Precision::F32 => self.of_outputs::<f32>(params, rows, what),
            Precision::F64 => self.of_outputs::<f64>(params, rows, what),
        })
    }

    fn of_outputs<T: Real>(&self, params: &[f64], rows: &Shard, what: Said) -> Vec<f64> {
        let params: Vec<T> = params.iter().map(|&value| T::of(value)).collect();
        let (mut input, mut pass) = (Vec::new(), Passing::default());
        let x = convert(rows, &mut input);
        let mut found = Vec::with_capacity(rows.len());
        for x in x.chunks(N::SCORED_AT_ONCE * rows.columns().max(1)) {
            self.network.score(&params, x, x.len() / rows.columns(), &mut pass);
            for out in pass.outputs.chunks_exact(self.network.outputs()) {
                match what {
                    Said::Prediction => found.push(predicted(self.network.output(), out)),
                    Said::Expectation => expected(self.network.output(), out, &mut found),
                }
            }
        }
        found
    }
}
