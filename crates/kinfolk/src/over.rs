//! What a method goes on from: the clusters and models that a method above it ended with.

use crate::assignment::Assignment;
use crate::error::{Error, Result};
use crate::federation::Params;
use crate::groups::not_above;
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
        if above.is_empty() && !all.iter().any(|known| known == label) {
            let message = format!("{place}.over: got \"{label}\", and no method stands above");
            return Some(Error::settings(message).hint("put that method first; or leave over out"));
        }
        let known: Vec<&str> = above.iter().map(String::as_str).collect();
        not_above(&format!("{place}.over"), label, &known, all)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_must_stand_above() {
        let fault = |label: &str, above: &[&str]| {
            let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
            let fault = Over::check("method.ditto", label, &words(above), &words(&["ifca", "ditto"]));
            fault.map(|fault| fault.to_string().lines().next().map(str::to_string).unwrap_or_default())
        };
        assert_eq!(fault("ifca", &["ifca"]), None);
        let found = fault("ditto", &["ifca"]).unwrap();
        assert_eq!(found, "method.ditto.over: method ditto stands below or here, want one that stands above");
        assert!(fault("ifac", &["ifca"]).unwrap().starts_with("method.ditto.over: got \"ifac\", want"));
        assert_eq!(fault("ifac", &[]).unwrap(), "method.ditto.over: got \"ifac\", and no method stands above");
    }

    #[test]
    fn what_has_no_model_for_several_clients_is_not_gone_on_from() {
        let error = |status: &str| Over::found_by("local", status, None).unwrap_err().to_string();
        assert!(error("done").contains("which has no model for several clients"));
        assert_eq!(error("diverged"), "it goes on from method local, which diverged");
    }
}
