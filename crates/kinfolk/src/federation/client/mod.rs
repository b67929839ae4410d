//! The clients' side of the waist.
//!
//! | file | what it is |
//! |---|---|
//! | `host.rs` | clients with their data, and what they keep between asks |
//! | `context.rs` | what one client has at hand for one order |
//! | `guard.rs` | work that a machine of others does for nobody |
//! | `node.rs` | what such a machine itself decides: its rows, their columns, the least rows of an answer, limits |
//! | `site.rs` | such a machine: bytes in, bytes out |

pub mod context;
pub(super) mod guard;
pub mod host;
pub mod node;
pub mod site;
