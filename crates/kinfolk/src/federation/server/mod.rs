//! The server's side of the waist.
//!
//! | file | what it is |
//! |---|---|
//! | `exchange.rs` | one ask from its check to its answers |
//! | `gather.rs` | replies into answers and sums, without implausible ones |
//! | `ledger.rs` | what is remembered of the answers over all asks |
//! | `meter.rs` | traffic |
//! | `rolls.rs` | which of the clients that machines claim to have may take part |

mod exchange;
pub(super) mod gather;
pub mod ledger;
pub mod meter;
pub(super) mod rolls;

pub(super) use exchange::{Exchange, Server};
