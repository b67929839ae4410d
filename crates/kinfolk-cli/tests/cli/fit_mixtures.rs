//! A table without a target: kinds of rows, and the verbs on what was found.

use crate::bench::Bench;
use serde_json::Value;

/// Two kinds of visits, of which the shops of two families have different shares.
fn visits() -> Bench {
    let bench = Bench::new();
    let mut state = 5u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 31)
    };
    let mut text = "shop,day,minutes,spent\n".to_string();
    for shop in 0..24 {
        for visit in 0..40 {
            let is_long = draw() < [0.8, 0.2][shop % 2];
            let [x, y] = [0, 1].map(|_| (0..6).map(|_| draw()).sum::<f64>() - 3.0);
            let (minutes, spent) =
                if is_long { (50.0 + 6.0 * x, 80.0 + 9.0 * y) } else { (8.0 + 2.0 * x, 15.0 + 4.0 * y) };
            text += &format!("s{shop:02},{},{minutes:.3},{spent:.3}\n", ["Mon", "Tue"][visit % 2]);
        }
    }
    bench.write("visits.csv", text);
    bench
}

#[test]
fn kinds_of_visits_are_found_and_used() {
    let bench = visits();
    let ended = bench.well(&["fit", "visits.csv", "--client", "shop", "--json"]);
    assert!(ended.stderr.contains("left out: a mixture is of numbers"), "{}", ended.stderr);
    let found: Value = serde_json::from_str(&ended.stdout).expect("one document");
    assert_eq!((&found["schema"], &found["kind"]), (&1.into(), &"mixture".into()));
    assert_eq!(found["components"].as_array().map(Vec::len), Some(2), "{found}");
    assert_eq!(found["families"].as_array().map(Vec::len), Some(2), "{found}");
    for name in ["model.json", "models.safetensors", "families.csv", "clients.csv", "components.csv", "report.html"] {
        assert!(bench.path("visits.families").join(name).exists(), "{name}");
    }
    let rows = bench.well(&["predict", "visits.families", "visits.csv"]);
    assert_eq!(rows.stdout.lines().count(), 1 + 24 * 40);
    assert!(
        rows.stdout.starts_with("client,component,p(1),p(2),log_density,outlier,served_by\ns00,"),
        "{}",
        rows.stdout
    );
    assert!(rows.stderr.contains("960 rows of 24 known and 0 new clients"), "{}", rows.stderr);
    assert!(bench.well(&["show", "visits.families"]).stdout.contains("There are 2 families of clients, of 12 and 12."));
    assert!(bench.well(&["show", "visits.families", "--client", "s03"]).stdout.starts_with("s03: 40 rows, family "));
    assert!(bench.well(&["show", "visits.families", "--family", "2"]).stdout.contains("clients: s0"));
    bench.write("new.csv", "shop,minutes,spent\nnew,9,14\nnew,7,16\nnew,8,13\nnew,48,77\n");
    let assigned = bench.well(&["assign", "visits.families", "new.csv", "--json"]).stdout;
    let assigned: Value = serde_json::from_str(&assigned).expect("one document");
    assert_eq!(assigned["clients"][0]["client"], "new");
}

#[test]
fn what_people_get_wrong() {
    let bench = visits();
    let refused = |arguments: &[&str], wanted: &str| {
        let ended = bench.kinfolk(arguments);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(wanted), "{}", ended.stderr);
    };
    refused(&["fit", "visits.csv", "--client", "shop", "--components", "0"], "want a whole number from 1 on");
    refused(&["fit", "visits.csv", "--client", "shop", "--target", "spent", "--components", "2"], "--components");
    refused(&["fit", "visits.csv", "--client", "shop", "--components", "900"], "components: got 900, want at most");
    refused(&["fit", "visits.csv", "--client", "shop", "--drop", "minutes,spent"], "no column of numbers");
}
