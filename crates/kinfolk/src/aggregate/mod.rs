//! Weighted sums, and robust aggregation: rules that a minority of hostile members cannot move far, and points pulled to a
//! common centre.

mod location;
pub(crate) mod robust;

use crate::num::add_scaled;
pub(crate) use location::{Location, pull};
use serde::{Deserialize, Serialize};

/// The weight of an answer in a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Weight {
    /// 1.
    Uniform,
    /// The client's training rows.
    Rows,
}

impl Weight {
    pub(crate) fn of(self, rows: usize) -> f64 {
        match self {
            Weight::Uniform => 1.0,
            Weight::Rows => rows as f64,
        }
    }
}

/// What the slots of a sum are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum By {
    /// One slot for all clients of an order.
    All,
    /// One slot for every candidate of a choice.
    Choice,
}

/// A sum of models or gradients over the clients of a slot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// Σ weight · vector; empty when nobody is in the slot.
    pub total: Vec<f64>,
    /// Σ weight.
    pub weight: f64,
    /// Number of clients.
    pub count: usize,
}

impl Sum {
    /// The weighted mean; `None` when nobody is in the slot.
    pub fn mean(&self) -> Option<Vec<f64>> {
        (self.count > 0).then(|| self.total.iter().map(|total| total / self.weight).collect())
    }

    pub(crate) fn add(&mut self, weight: f64, vector: &[f64]) {
        self.total.resize(vector.len(), 0.0);
        add_scaled(&mut self.total, weight, vector);
        self.weight += weight;
        self.count += 1;
    }

    pub(crate) fn merge(&mut self, other: &Sum) {
        if other.count > 0 {
            self.total.resize(other.total.len(), 0.0);
            add_scaled(&mut self.total, 1.0, &other.total);
            self.weight += other.weight;
            self.count += other.count;
        }
    }
}
