//! A node that stays: it speaks the Fleet API of Flower's SuperLink, and answers Kinfolk's messages for the clients of its machine.
//!
//! | file | what it is |
//! |---|---|
//! | `resident.rs` | the node's life: it connects, asks for messages, answers them, says goodbye |
//! | `link.rs` | requests to a SuperLink, and what to do about those that fail |
//! | `key.rs` | who the node is, and how it proves that |
//! | `messages.rs` | the requests and answers, as protobuf |
//! | `objects.rs` | what a message is made of: objects, addressed by their hashes |
//! | `store.rs` | what is kept on disk |
//!
//! Code that comes with a run is neither fetched nor executed: of a run nothing is asked for but its messages.

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod golden;
mod key;
mod link;
mod messages;
mod objects;
mod resident;
mod store;

use kinfolk::federation::client::node::Node;
pub use resident::serve;
use std::path::PathBuf;

/// The versions of Flower with which this node speaks: the first, and the last. Between them the messages are the same.
pub const FIRST_SUPPORTED: &str = "1.40";
/// See [`FIRST_SUPPORTED`].
pub const LAST_SUPPORTED: &str = "1.42";

/// Where the SuperLink is, and how both ends know each other.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Its host and port.
    pub superlink: String,
    /// How the node knows the SuperLink.
    pub security: Security,
    /// The file with the private key by which the SuperLink knows the node; without one, a new one is made.
    pub key: Option<PathBuf>,
}

/// How a node knows its SuperLink.
#[derive(Debug, Clone)]
pub enum Security {
    /// Not at all, and everything is sent in the clear.
    Insecure,
    /// By a certificate of an authority that browsers trust too.
    PublicAuthorities,
    /// By a certificate of an authority in this file.
    Certificates(PathBuf),
}

/// Where a machine's node keeps what has to last, unless it is told another folder: beside the clients' own models.
pub fn default_state(node: &Node) -> PathBuf {
    const NAME: &str = "kinfolk-state";
    node.models.as_ref().map_or_else(|| NAME.into(), |models| models.with_file_name(NAME))
}

/// Lets an experiment leave out the path of its table, which is known to every machine for itself.
pub fn leave_path_open(experiment: &mut toml::Table) {
    let data = experiment.get_mut("data").and_then(toml::Value::as_table_mut);
    if let Some(data) = data.filter(|data| data.get("source").and_then(toml::Value::as_str) == Some("table")) {
        data.entry("path").or_insert_with(|| "on each machine".into());
    }
}
