//! Clients that are added to a fitted model.

use crate::bench::Bench;
use crate::fit::{NEW, bakeries, fitted, visitors};
use serde_json::Value;

/// Predictions without what serves the rows.
fn predicted(bench: &Bench, model: &str, table: &str) -> Vec<String> {
    let rows = bench.well(&["predict", model, table]).stdout;
    rows.lines().map(|line| line.rsplit_once(',').expect("several cells").0.to_string()).collect()
}

/// The column at the end taken away.
fn without_last_column(table: &str) -> String {
    table.lines().map(|line| format!("{}\n", line.rsplit_once(',').expect("several cells").0)).collect()
}

#[test]
fn added_clients_are_served_as_with_their_targets_at_hand() {
    let bench = bakeries();
    fitted(&bench);
    let ended = bench.well(&["assign", "bakeries.families", "new-bakeries.csv", "--add", "--out", "more"]);
    assert!(ended.stderr.contains("client N2 is added to family 2\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("client N3 is added to family 2, though it fits none\n"), "{}", ended.stderr);
    bench.write("without.csv", without_last_column(NEW));
    assert_eq!(
        predicted(&bench, "more", "without.csv"),
        predicted(&bench, "bakeries.families", "new-bakeries.csv"),
        "to the bit"
    );
    assert_ne!(predicted(&bench, "bakeries.families", "without.csv"), predicted(&bench, "more", "without.csv"));
    let ended = bench.well(&["predict", "more", "without.csv"]);
    assert!(ended.stderr.contains("45 rows of 3 known and 0 new clients"), "{}", ended.stderr);

    let shown = bench.well(&["show", "more"]).stdout;
    assert!(shown.contains("added later: N1, N2, N3"), "{shown}");
    assert!(bench.well(&["show", "more", "--client", "N1"]).stdout.contains("added later"));
    let clients = std::fs::read_to_string(bench.path("more").join("clients.csv")).unwrap();
    let added: Vec<&str> = clients.lines().filter(|line| line.ends_with(",yes")).collect();
    assert!(added.len() == 3 && added.iter().all(|line| line.starts_with('N')), "{added:?}");
    assert!(clients.lines().next().unwrap().ends_with(",added"));

    // What was there is as it was.
    let [old, new] = ["bakeries.families", "more"].map(|folder| {
        let text = std::fs::read_to_string(bench.path(folder).join("model.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    });
    let clients = |model: &Value| model["model"]["learned"]["clients"].as_array().unwrap().clone();
    assert_eq!(clients(&new)[..40], clients(&old)[..]);
    assert_eq!(new["model"]["learned"]["stack"], old["model"]["learned"]["stack"]);
}

#[test]
fn known_clients_stay_where_they_are() {
    let bench = bakeries();
    fitted(&bench);
    // A known client whose new rows are as before, one whose are not, a new one, and one without sales.
    let mut text = NEW.lines().next().unwrap().to_string() + "\n";
    for line in NEW.lines().skip(1) {
        if line.starts_with("N1") {
            text += &format!("{line}\n{}\n", line.replace("N1", "B01"));
        } else if line.starts_with("N3") {
            text += &format!("{}\n", line.replace("N3", "B02"));
        } else {
            text += &format!("{line}\n{},\n", line.replace("N2", "N4").rsplit_once(',').unwrap().0);
        }
    }
    bench.write("mixed.csv", text);
    let ended = bench.well(&["assign", "bakeries.families", "mixed.csv", "--json"]);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    let said: Vec<(&str, bool, bool)> = found["clients"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["client"].as_str().unwrap(), one["known"] == true, one["fits_none"] == true))
        .collect();
    let [b01, b02, n1, n2] = said[..] else { panic!("{said:?}") };
    assert_eq!((b02, n1, n2), (("B02", true, true), ("N1", false, false), ("N2", false, false)));
    assert_eq!((b01.0, b01.1), ("B01", true));
    assert_eq!(found["without_target"], serde_json::json!(["N4"]));
    assert!(ended.stderr.contains("client B02 is known; it stays in family "), "{}", ended.stderr);

    let before = std::fs::read(bench.path("bakeries.families").join("model.json")).unwrap();
    let ended = bench.well(&["assign", "bakeries.families", "mixed.csv", "--add", "--replace"]);
    assert!(ended.stderr.contains("client N4 has no value of the target: it is not added"), "{}", ended.stderr);
    assert_ne!(std::fs::read(bench.path("bakeries.families").join("model.json")).unwrap(), before);
    let shown = bench.well(&["show", "bakeries.families"]).stdout;
    assert!(shown.contains("added later: N1, N2\n"), "{shown}");
    let ended = bench.kinfolk(&["assign", "bakeries.families", "mixed.csv", "--add", "--replace"]);
    assert_eq!(ended.code, Some(2), "added already: {}", ended.stdout);
}

#[test]
fn shops_with_classes_are_added_too() {
    let classes = ["nothing", "one", "two"];
    let bench = Bench::new();
    bench.write("visits.csv", visitors(0..30, &classes));
    let new = visitors(30..33, &classes);
    bench.write("new.csv", &new);
    bench.write("without.csv", without_last_column(&new));
    bench.well(&["fit", "visits.csv", "--client", "shop", "--target", "bought", "--quick"]);
    bench.well(&["assign", "visits.families", "new.csv", "--add", "--out", "more"]);
    assert_eq!(predicted(&bench, "more", "without.csv"), predicted(&bench, "visits.families", "new.csv"));
}
