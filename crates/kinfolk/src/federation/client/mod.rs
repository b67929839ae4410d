//! The clients' side of the waist.
//!
//! | file | what it is |
//! |---|---|
//! | `host.rs` | clients with their data and their state between asks |
//! | `context.rs` | what one client works with to carry out one order |
//! | `guard.rs` | work that somebody else's machine refuses |
//! | `node.rs` | what such a machine decides: its rows, their columns, the fewest rows of an answer, limits |
//! | `policy.rs` | what may leave the machine at all, and how often |
//! | `account.rs` | what was told about its clients before, in a folder |
//! | `masking.rs` | its part in secure sums: who it is, and what it has taken part in |
//! | `memory.rs` | what its clients remember between messages, and in a folder |
//! | `site.rs` | such a machine: bytes in, bytes out |

mod account;
pub(super) mod context;
pub(super) mod guard;
pub(crate) mod host;
mod masking;
pub mod memory;
pub mod node;
pub mod policy;
pub mod site;
