//! The server's side of the waist.
//!
//! | file | what it is |
//! |---|---|
//! | `exchange.rs` | one ask from its check to its answers |
//! | `gather.rs` | replies into answers and sums, without those that cannot be |
//! | `ledger.rs` | what is remembered of the answers over all asks |
//! | `meter.rs` | what travelled |
//! | `rolls.rs` | who may take part of those that machines say they have |

mod exchange;
pub(super) mod gather;
pub mod ledger;
pub mod meter;
pub(super) mod rolls;

pub(super) use exchange::{Exchange, Server};
