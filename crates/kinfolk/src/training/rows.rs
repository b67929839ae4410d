//! Which of a client's rows are used.

use serde::{Deserialize, Serialize};

/// Training rows or held-out rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Split {
    /// Training rows.
    Train,
    /// Held-out rows.
    Test,
}

/// Some of a client's training rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Portion {
    /// All of them.
    All,
    /// Part `index` of `of` disjoint parts.
    Part {
        /// Which part, from 0.
        index: u32,
        /// How many parts there are.
        of: u32,
    },
    /// One of `of` folds, into which each client's own shuffle divides its rows.
    Fold {
        /// Which fold, from 0.
        index: u32,
        /// How many folds there are.
        of: u32,
    },
    /// All rows but those of a fold.
    Others {
        /// The fold left out, from 0.
        index: u32,
        /// How many folds there are.
        of: u32,
    },
    /// All rows before the last of `of` parts, for rows in the order of time.
    Earlier {
        /// How many parts there are.
        of: u32,
    },
}

impl Portion {
    pub(crate) fn place(&self) -> Option<(u32, u32)> {
        match *self {
            Portion::All => None,
            Portion::Part { index, of } | Portion::Fold { index, of } | Portion::Others { index, of } => {
                Some((index, of))
            }
            Portion::Earlier { of } => Some((of.saturating_sub(1), of)),
        }
    }
}

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
