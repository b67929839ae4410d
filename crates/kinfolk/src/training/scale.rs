//! A client's loss in a sum over clients.

use crate::aggregate::Weight;
use serde::{Deserialize, Serialize};

/// How a client's mean loss enters a sum over clients: `factor` times the mean loss, or times its rows as well.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// What every mean loss is multiplied by.
    pub factor: f64,
    /// Whether the number of rows multiplies it too, which makes the mean a sum.
    pub by: Weight,
}

impl Scale {
    /// What the mean loss of a client with so many rows is multiplied by.
    pub fn of(&self, rows: usize) -> f64 {
        self.factor * self.by.of(rows)
    }
}
