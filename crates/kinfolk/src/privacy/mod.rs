//! What is told of clients and their rows: the section `[privacy]` of an experiment, and what keeps it.
//!
//! | file | what it is |
//! |---|---|
//! | `protection.rs` | what is hidden, as a user sets it, and what is said of it |
//! | `accountant.rs` | what releases cost in all, and the noise for a budget |
//! | `noise.rs` | Gaussian noise in whole numbers, from the operating system or a seed |
//! | `rows.rs` | single rows: noise of steps, drawn choices, and what a client has spent |

pub mod accountant;
pub mod noise;
pub mod protection;
pub mod rows;

use crate::settings::{Declared, Setting, settings};
use protection::Protection;

settings! {
    /// The keys of `[privacy]`.
    pub struct Privacy {
        /// what is hidden behind noise
        protection: Protection,
    }
}

/// The keys of `[privacy]`.
pub(crate) const SETTINGS: &[Setting] = Privacy::SETTINGS;
