//! What a method goes on from: the clusters and models that a method above it ended with.

use crate::assignment::Assignment;
use crate::error::{Error, Result};
use crate::federation::Params;
use crate::settings::unknown_name;
use serde::{Deserialize, Serialize};

/// The clusters and models that a method ended with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Over {
    /// Which client is in which cluster; `None` where one model is for everybody.
    pub clusters: Option<Assignment>,
    /// The models of the clusters, or the one model.
    pub models: Vec<Params>,
}

impl Over {
    /// The fault of a label that is not one of those above.
    pub(crate) fn check(place: &str, label: &str, above: &[String], all: &[String]) -> Option<Error> {
        if above.iter().any(|known| known == label) {
            return None;
        }
        if all.iter().any(|known| known == label) {
            let message = format!("{place}.over: method {label} stands below or here, want one that stands above");
            return Some(Error::settings(message).hint("methods run in the order of the file: move it up"));
        }
        if above.is_empty() {
            let message = format!("{place}.over: got \"{label}\", and no method stands above");
            return Some(Error::settings(message).hint("put that method first; or leave over out"));
        }
        Some(unknown_name(&format!("{place}.over"), label, &above.iter().map(String::as_str).collect::<Vec<_>>()))
    }

    /// What the method of this label found, as its record has it.
    pub(crate) fn found_by(label: &str, status: &str, found: Option<&Self>) -> Result<Self> {
        if ["diverged", "failed"].contains(&status) {
            return Err(Error::data(format!("it goes on from method {label}, which {status}")));
        }
        let none = || {
            let message = format!("it goes on from method {label}, which has no model for several clients");
            Error::settings(message).hint("name a method that averages, such as fedavg or ifca")
        };
        found.cloned().ok_or_else(none)
    }
}
