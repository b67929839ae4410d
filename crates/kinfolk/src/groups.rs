//! Groups of clients that are known before a method begins: by a column, by the truth, or as another method found them.

use crate::assignment::Assignment;
use crate::data::schema;
use crate::error::{Error, Result};
use crate::settings::{settings, unknown_name};
use std::collections::{BTreeSet, HashMap};

/// The group of every client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    /// The group of every client, if it has one.
    pub of: Assignment,
    /// The names of the groups. None of them is empty.
    pub names: Vec<String>,
    /// Whether they are a placeholder for groups that a method above has yet to find.
    pub provisional: bool,
}

settings! {
    /// The setting of methods that are told groups.
    pub struct Grouping {
        /// who belongs together: by "column" (the data's groups; this is auto), by the "truth", in "one" group, or as
        /// found by a method above, by its label
        groups: String = "auto",
    }
}

impl Grouping {
    pub(crate) fn origin(&self) -> Origin<'_> {
        match &*self.groups {
            "auto" | "column" => Origin::Column,
            "truth" => Origin::Truth,
            "one" => Origin::One,
            label => Origin::Method(label),
        }
    }
}

const WORDS: [&str; 4] = ["auto", "column", "truth", "one"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin<'a> {
    /// The groups that clients say they belong to.
    Column,
    /// What was planted.
    Truth,
    /// Everybody together.
    One,
    /// The clusters that the method of this label found.
    Method(&'a str),
}

impl Origin<'_> {
    /// The fault of a label that is not one of those above. `above` are the labels of the methods before this one, each
    /// with whether it has clusters; `all` are those of the whole experiment.
    pub(crate) fn check(self, place: &str, above: &[(String, bool)], all: &[String]) -> Option<Error> {
        let Origin::Method(label) = self else { return None };
        if let Some((_, has_clusters)) = above.iter().find(|(known, _)| known == label) {
            let fault = || Error::settings(format!("{place}.groups: method {label} puts no client into a cluster"));
            return (!has_clusters).then(|| fault().hint("name a method that finds clusters, such as ifca or odcl"));
        }
        let known: Vec<&str> = WORDS.into_iter().chain(above.iter().map(|(label, _)| label.as_str())).collect();
        not_above(&format!("{place}.groups"), label, &known, all)
    }
}

/// The fault of a label in this setting that is none of the `known` words and labels above; `all` are those of the experiment.
pub(crate) fn not_above(setting: &str, label: &str, known: &[&str], all: &[String]) -> Option<Error> {
    if known.contains(&label) {
        return None;
    }
    if all.iter().any(|other| other == label) {
        let message = format!("{setting}: method {label} stands below or here, want one that stands above");
        return Some(Error::settings(message).hint("methods run in the order of the file: move it up"));
    }
    Some(unknown_name(setting, label, known))
}

impl Groups {
    pub(crate) fn one(clients: usize) -> Self {
        Self { of: Assignment::one(clients), names: vec!["everybody".into()], provisional: false }
    }

    /// Groups by name, numbered in the order of their names; `None` if no client has one.
    pub(crate) fn named<'a>(names: impl Iterator<Item = Option<&'a str>> + Clone) -> Option<Self> {
        let sorted = schema::sorted(names.clone().flatten().map(str::to_string).collect::<BTreeSet<_>>());
        let number: HashMap<&str, usize> = sorted.iter().map(String::as_str).zip(0..).collect();
        let of = names.map(|name| number.get(name?).copied()).collect();
        (!sorted.is_empty()).then_some(Self { of, names: sorted, provisional: false })
    }

    /// Groups by number, which is their name; `None` if no client has one. Numbers that no client has are skipped.
    pub fn numbered(numbers: impl Iterator<Item = Option<usize>>) -> Option<Self> {
        let names: Vec<Option<String>> = numbers.map(|number| Some(number?.to_string())).collect();
        Self::named(names.iter().map(Option::as_deref))
    }

    /// The clusters that the method of this label ended with.
    pub(crate) fn found_by(label: &str, status: &str, clusters: impl Iterator<Item = Option<usize>>) -> Result<Self> {
        if ["diverged", "failed"].contains(&status) {
            return Err(Error::data(format!("its groups come from method {label}, which {status}")));
        }
        Self::numbered(clusters).ok_or_else(|| {
            let message = format!("its groups come from method {label}, which puts no client into a cluster");
            Error::settings(message).hint("name a method that finds clusters")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn groups_are_numbered_by_their_names() {
        let named = Groups::named([Some("south"), None, Some("north"), Some("south")].into_iter()).unwrap();
        let of = Assignment::from_iter([Some(1), None, Some(0), Some(1)]);
        assert_eq!(named, Groups { of, names: labels("north south"), provisional: false });
        let by_value = Groups::named([Some("10"), Some("9")].into_iter()).unwrap();
        assert_eq!(by_value.of.each(), [Some(1), Some(0)]);
        assert_eq!(Groups::named([None, None].into_iter()), None);
        let numbered = Groups::numbered([Some(7), Some(2), None, Some(7)].into_iter()).unwrap();
        let of = Assignment::from_iter([Some(1), Some(0), None, Some(1)]);
        assert_eq!(numbered, Groups { of, names: labels("2 7"), provisional: false });
    }

    #[test]
    fn labels_must_stand_above() {
        let fault = |label| {
            let above = [("ifca".to_string(), true), ("odcl".to_string(), true), ("local".to_string(), false)];
            let all = labels("ifca odcl local l2gd oracle");
            let fault = Origin::Method(label).check("method.l2gd", &above, &all);
            fault.map(|fault| fault.to_string())
        };
        assert_eq!(fault("odcl"), None);
        let below = |label: &str| {
            format!(
                "method.l2gd.groups: method {label} stands below or here, want one that stands above\n  hint: methods \
                 run in the order of the file: move it up"
            )
        };
        assert_eq!((fault("oracle"), fault("l2gd")), (Some(below("oracle")), Some(below("l2gd"))));
        assert_eq!(
            fault("colum").unwrap(),
            "method.l2gd.groups: got \"colum\", want one of auto, column, truth, one, ifca, odcl, local\n  hint: did you mean \
             \"column\"?"
        );
        assert_eq!(
            fault("local").unwrap(),
            "method.l2gd.groups: method local puts no client into a cluster\n  hint: name a method that finds clusters, \
             such as ifca or odcl"
        );
        assert_eq!(Origin::One.check("method.l2gd", &[], &[]), None);
    }
}
