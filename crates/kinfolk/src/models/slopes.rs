//! Gradients on one batch after another, for training that is more than descent of one model.

use super::trainer::steps::{Batches, steps_of};
use super::{Seat, Worker};
use crate::training::Plan;

/// How many steps a plan means for a client with so many rows.
pub(crate) fn steps_for(plan: &Plan, rows: usize) -> usize {
    steps_of(plan, rows, plan.sample.batch.map_or(rows, |batch| (batch as usize).min(rows)))
}

/// The batches of a plan, and the gradients of any parameters there.
pub(crate) struct Slopes<'a, 's> {
    worker: &'a mut dyn Worker,
    seat: &'a Seat<'s>,
    batches: Batches,
    /// Whether the batch at hand is all rows; otherwise which these are.
    all: bool,
    rows: Vec<u32>,
    /// The weights of these rows.
    weights: Vec<f64>,
    steps: usize,
}

impl<'a, 's> Slopes<'a, 's> {
    /// Those of a plan on all of a client's rows.
    pub(crate) fn new(worker: &'a mut dyn Worker, seat: &'a Seat<'s>, plan: &Plan) -> Self {
        let count = seat.client.train.len();
        let batches = Batches::new(count, &plan.sample, &seat.client.id);
        let steps = steps_of(plan, count, batches.size);
        Self { worker, seat, batches, all: true, rows: Vec::new(), weights: Vec::new(), steps }
    }

    /// Number of steps of the plan.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Goes on to the next batch.
    pub(crate) fn next(&mut self) {
        self.rows.clear();
        let picked = self.batches.next();
        self.all = picked.is_none();
        self.rows.extend_from_slice(picked.unwrap_or_default());
    }

    /// The gradient of the mean loss on the batch at hand into `out`; returns that loss.
    pub(crate) fn at(&mut self, params: &[f64], out: &mut [f64]) -> f64 {
        let rows = (!self.all).then_some(&self.rows[..]);
        self.worker.slope(params, self.seat, rows, out)
    }

    /// The same of the loss with a weight for each of the client's rows.
    pub(crate) fn weighted(&mut self, params: &[f64], weights: &[f64], out: &mut [f64]) -> f64 {
        if self.all {
            return self.worker.weighted_slope(params, self.seat, None, weights, out);
        }
        self.weights.clear();
        self.weights.extend(self.rows.iter().map(|&row| weights[row as usize]));
        self.worker.weighted_slope(params, self.seat, Some(&self.rows), &self.weights, out)
    }
}
