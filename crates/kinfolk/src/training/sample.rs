//! The rows of a step.

use super::Portion;
use serde::{Deserialize, Serialize};

/// Which rows a gradient sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The rows to draw from.
    pub on: Portion,
    /// Rows in a batch; all of them when absent.
    pub batch: Option<u32>,
    /// Seeds the batches, together with the client's id.
    pub seed: u64,
}

impl Sample {
    /// Every row, every time.
    pub const FULL: Sample = Sample { on: Portion::All, batch: None, seed: 0 };
}
