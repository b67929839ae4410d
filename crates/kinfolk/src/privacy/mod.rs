//! What is told of clients and their rows: the section `[privacy]` of an experiment, and what keeps it.
//!
//! | file | what it is |
//! |---|---|
//! | `protection.rs` | what is hidden, as a user sets it, and what is said of it |
//! | `accountant.rs` | what releases cost in all, and the noise for a budget |
//! | `noise.rs` | Gaussian noise in whole numbers, from the operating system or a seed |
//! | `clients.rs` | whole clients: what each adds to sums, and the noise on them |
//! | `rows.rs` | single rows: noise of steps, drawn choices, and what a client has spent |
//! | `answers.rs` | single rows: minimisers and sums with noise |

pub mod accountant;
pub(crate) mod answers;
pub mod clients;
pub mod noise;
pub mod protection;
pub mod rows;

use crate::error::{Error, Result};
use crate::settings::{Declared, Setting, choices, settings};
use accountant::Mechanism;
use clients::ClientPrivacy;
use noise::Source;
use protection::Protection;
use rows::RowPrivacy;
use serde::{Deserialize, Serialize};

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

/// What hides clients, or their rows, in all that they answer outside of evaluation.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Hidden {
    /// Noise in the answers of every client hides any one of its rows.
    Rows(RowPrivacy),
    /// Noise in sums hides any one client.
    Clients(ClientPrivacy),
}

impl Hidden {
    /// What is released of a row, or of a client, in all.
    pub fn mechanisms(&self) -> Vec<(Mechanism, u64)> {
        match self {
            Hidden::Rows(rows) => rows.mechanisms(),
            Hidden::Clients(clients) => clients.mechanisms(),
        }
    }

    /// The same with noise from elsewhere.
    pub fn from_source(self, source: Source) -> Self {
        match self {
            Hidden::Rows(rows) => Hidden::Rows(RowPrivacy { source, ..rows }),
            Hidden::Clients(clients) => Hidden::Clients(ClientPrivacy { source, ..clients }),
        }
    }

    /// Refuses what hides nothing, or cannot be computed with: it may have been made up by somebody else.
    pub(crate) fn check(&self) -> Result<()> {
        let is_length = |length: f64| length > 0.0 && length <= 1e18;
        let is_sound = match *self {
            Hidden::Rows(RowPrivacy { clip, rate, noise, choice, loss_cap, bounds, .. }) => {
                let chances = rate > 0.0 && rate <= 1.0 && choice.is_finite() && choice >= 0.0;
                let lengths = [clip, loss_cap, noise, bounds.target].into_iter().chain(bounds.row);
                lengths.into_iter().all(is_length) && chances
            }
            Hidden::Clients(ClientPrivacy { clip, loss_cap, noise, .. }) => {
                is_length(clip) && is_length(loss_cap) && is_length(noise)
            }
        };
        if is_sound { Ok(()) } else { Err(Error::federation("noise that hides nothing, or cannot be drawn")) }
    }
}

/// The keys of `[privacy]`.
pub(crate) const SETTINGS: &[Setting] = Privacy::SETTINGS;
