//! Clients that are fitted again.

use crate::bench::Bench;
use crate::fit::{BAKERIES, bakeries, fitted};
use serde_json::Value;
use std::collections::BTreeMap;

/// The family of every client.
fn families(bench: &Bench, folder: &str) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(bench.path(folder).join("clients.csv")).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        (cells[0].to_string(), cells[2].parse().unwrap())
    };
    text.lines().skip(1).map(row).collect()
}

#[test]
fn families_keep_their_numbers_and_what_moved_is_said() {
    let bench = bakeries();
    fitted(&bench);
    let before = families(&bench, "bakeries.families");
    // Of the larger family half are gone, and one is another now.
    let first: Vec<&String> = before.iter().filter(|(_, family)| **family == 1).map(|(name, _)| name).collect();
    let gone = &first[..12];
    let renamed = |line: &str| line.replace(first[12].as_str(), "C01") + "\n";
    let lines = BAKERIES.lines().filter(|line| !gone.iter().any(|name| line.starts_with(name.as_str())));
    bench.write("later.csv", lines.map(renamed).collect::<String>());

    bench.well(&["fit", "later.csv", "--client", "bakery", "--target", "sold", "--quick", "--out", "anew"]);
    let ended = bench.well(&["fit", "later.csv", "--refit", "bakeries.families", "--json"]);
    let (anew, after) = (families(&bench, "anew"), families(&bench, "later.families"));
    let stays = |found: &BTreeMap<String, usize>| {
        found.iter().filter(|(name, _)| before.contains_key(*name)).all(|(name, family)| before[name] == *family)
    };
    assert!(stays(&after), "{after:?}");
    assert!(!stays(&anew), "the larger family is the first, unless there was a fit before");
    assert_eq!(after["C01"], 1);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    let changes: Vec<&str> = found["changes"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert!(changes.contains(&"1 client came to family 1: C01"), "{changes:?}");
    assert!(changes.iter().any(|change| change.starts_with("13 clients left: ")), "{changes:?}");
    assert_eq!(found["families"][0]["family"], 1);
    assert_eq!(found["families"][0]["clients"], 12);
    // Options of the fit before hold: nothing but rows is another, and linear models stay linear.
    let options = |folder: &str| {
        let text = std::fs::read_to_string(bench.path(folder).join("model.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["options"].clone()
    };
    let mut before = options("bakeries.families");
    before["model"] = "Linear".into();
    assert_eq!(options("later.families"), before);
    assert_eq!(options("later.families")["quick"], true);
}

#[test]
fn numbers_of_families_that_are_gone_are_not_given_again() {
    let bench = bakeries();
    fitted(&bench);
    let refit = ["fit", "bakeries.csv", "--refit", "bakeries.families", "--replace"];
    let ended = bench.well(&refit);
    assert!(
        ended.stdout.contains("since the last fit: all clients are in the families they were in"),
        "{}",
        ended.stdout
    );
    let ended = bench.well(&[&refit[..], &["--families", "one"]].concat());
    assert!(ended.stdout.contains("family 2 is there no longer"), "{}", ended.stdout);
    assert!(ended.stdout.contains("16 clients moved from family 2 to family 1"), "{}", ended.stdout);
    let ended = bench.well(&[&refit[..], &["--families", "2"]].concat());
    assert!(ended.stdout.contains("family 3 is new, with 16 clients"), "{}", ended.stdout);
    assert!(bench.well(&["show", "bakeries.families", "--family", "3"]).stdout.contains("16 clients"));
    let ended = bench.kinfolk(&["show", "bakeries.families", "--family", "2"]);
    assert!(ended.stderr.contains("want 1 or 3"), "{}", ended.stderr);
    let assigned = bench.well(&["assign", "bakeries.families", "new-bakeries.csv", "--json"]).stdout;
    let assigned: Value = serde_json::from_str(&assigned).unwrap();
    assert_eq!(assigned["families"], serde_json::json!([1, 3]));
    assert_eq!(assigned["clients"][1]["family"], 3);
}
