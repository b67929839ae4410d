//! What is told of clients and their rows: the section `[privacy]` of an experiment, and what keeps it.
//!
//! | file | what it is |
//! |---|---|
//! | `protection.rs` | what is hidden, as a user sets it, and what is said of it |
//! | `accountant.rs` | what releases cost in all, and the noise for a budget |
//! | `noise.rs` | Gaussian noise in whole numbers, from the operating system or a seed |
//! | `clients.rs` | whole clients: what each adds to sums, and the noise on them |
//! | `rows.rs` | single rows: noise of steps, drawn choices, and what a client has spent |

pub mod accountant;
pub mod clients;
pub mod noise;
pub mod protection;
pub mod rows;

use crate::settings::{Declared, Setting, choices, settings};
use protection::Protection;

choices! {
    /// What the server learns of clients' answers.
    pub enum Disclosure { Open = "open", Sealed = "sealed", Secure = "secure" }
}

settings! {
    /// The keys of `[privacy]`.
    pub struct Privacy {
        /// open: single clients' losses, choices and, where a method wants them, vectors reach the server; sealed: only sums over the
        /// clients of a machine leave it; secure: these are masked, and the server learns sums over machines
        sums: Disclosure = "open",
        /// the fewest clients of a slot that is opened, such as those who chose a model
        #[only_with(sums = "secure")]
        minimum_clients: usize [2..=1 << 31] = 3,
        /// the fewest machines that a sum is over
        #[only_with(sums = "secure")]
        minimum_machines: usize [2..=64] = 3,
        /// what is hidden behind noise
        protection: Protection,
    }
}

/// The keys of `[privacy]`.
pub(crate) const SETTINGS: &[Setting] = Privacy::SETTINGS;
