//! Mixtures as users meet them: the files of a run, in the units of the table.

use crate::bench::Bench;
use std::fmt::Write;

const CLOUDS: &str = r#"
name = "clouds"

[data]
source = "table"
path = "clouds.csv"
client = "who"

[model]
kind = "gaussian-mixture"
components = 2

[[method]]
name = "fedgrem"

[[method]]
name = "local-em"

[[method]]
name = "pooled-em"
"#;

/// Eight clients with the same two clouds and a ninth with two others; its lines end the Windows way.
fn clouds() -> String {
    let mut table = "who,age,pay\r\n".to_string();
    for client in 0..9 {
        for row in 0..40 {
            let near = |salt: i32| f64::from((37 * (row + 11 * client) * salt) % 101) / 101.0;
            let (age, pay) = match (client, row % 2) {
                (8, 0) => (90.0, 9000.0),
                (8, _) => (5.0, 90.0),
                (_, 0) => (20.0, 1000.0),
                _ => (60.0, 3000.0),
            };
            write!(table, "{client},{},{}\r\n", age + near(3), pay + 100.0 * near(5)).unwrap();
        }
    }
    table
}

/// The rows of a csv file without its header, split into cells.
fn cells(bench: &Bench, name: &str) -> Vec<Vec<String>> {
    bench.read(name).lines().skip(1).map(|line| line.split(',').map(str::to_string).collect()).collect()
}

fn column(bench: &Bench, name: &str, wanted: &str) -> usize {
    let header = bench.read(name).lines().next().unwrap_or_default().to_string();
    header.split(',').position(|name| name == wanted).unwrap_or_else(|| panic!("{name}: no column {wanted}"))
}

#[test]
fn the_files_say_what_was_found() {
    let bench = Bench::new();
    bench.write("clouds.csv", clouds());
    bench.write("clouds.toml", CLOUDS);
    let sets = ["--set", "repeat=2", "--set", "data.test_fraction=0"];
    bench.well(&[&["run", "clouds.toml", "--out", "out"], &sets[..]].concat());

    // The verdict stands beside the scores; nobody was planted.
    let clients = cells(&bench, "out/clients.csv");
    let (verdict, planted) =
        (column(&bench, "out/clients.csv", "outlier"), column(&bench, "out/clients.csv", "planted_outlier"));
    for row in &clients {
        let expected = match (row[0].as_str(), row[2].as_str()) {
            ("fedgrem", "8") => "true",
            ("fedgrem", _) => "false",
            _ => "",
        };
        assert_eq!((row[verdict].as_str(), row[planted].as_str()), (expected, ""), "{row:?}");
    }

    // Rows are told apart on the first seed, by their lines.
    let rows = cells(&bench, "out/rows.csv");
    assert!(rows.iter().all(|row| row[1] == "0"));
    let mut lines: Vec<usize> =
        rows.iter().filter(|row| row[0] == "pooled-em").map(|row| row[4].parse().unwrap()).collect();
    lines.sort_unstable();
    assert_eq!(lines, (2..362).collect::<Vec<_>>());
    assert!(cells(&bench, "out/components.csv").iter().any(|row| row[1] == "1"), "components of all seeds");

    // One model serves everybody of a pooled mixture, and only that is written.
    let files = |label: &str| bench.files(&format!("out/models/{label}/0"));
    assert_eq!(files("pooled-em"), ["global.safetensors"]);
    assert_eq!(files("fedgrem").iter().filter(|name| name.starts_with("client-")).count(), 9);

    let page = bench.read("out/report.html");
    let said = |text: &str| page.matches(text).count();
    assert_eq!((said("\"ordered\":true"), said("\"ordered\":false")), (4, 2), "alone, clients have their own order");
}

#[test]
fn regressions_are_told_in_the_units_of_the_table() {
    let bench = Bench::new();
    let mut table = "who,hours,age,score\n".to_string();
    for row in 0..30 {
        let (hours, age) = (f64::from(row % 7) * 100.0 + 500.0, f64::from(row % 4));
        writeln!(table, "{},{hours},{age},{}", row % 2, 3.0 + 0.25 * hours - 5.0 * age).unwrap();
    }
    bench.write("clouds.csv", table);
    let lines = CLOUDS.replace("gaussian-mixture", "regression-mixture").replace("components = 2", "components = 1");
    bench.write("clouds.toml", lines.replace("client = \"who\"", "client = \"who\"\ntarget = \"score\""));
    let (hours, age) = ((0..30).map(|row| f64::from(row % 7) * 100.0 + 500.0), (0..30).map(|row| f64::from(row % 4)));
    let (hours, age) = (hours.sum::<f64>() / 30.0, age.sum::<f64>() / 30.0);
    for intercept in [true, false] {
        let out = format!("intercept-{intercept}");
        let set = format!("model.intercept={intercept}");
        bench.well(&["run", "clouds.toml", "--out", &out, "--set", &set, "--set", "data.test_fraction=0"]);
        let name = format!("{out}/components.csv");
        assert!(bench.read(&name).starts_with("label,seed,client,component,weight,hours,age,intercept\n"));
        let alone: Vec<_> = cells(&bench, &name).into_iter().filter(|row| row[0] == "local-em").collect();
        assert_eq!(alone.len(), 2);
        for row in alone {
            let found: Vec<f64> = row[5..].iter().map(|cell| cell.parse().unwrap()).collect();
            // Without a constant of its own it is a plane through 0 at the mean of all columns.
            let expected = match intercept {
                true => [0.25, -5.0, 3.0],
                false => [found[0], found[1], -found[0] * hours - found[1] * age],
            };
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4 * b.abs()), "{row:?}");
        }
    }
}

#[test]
fn a_client_without_a_finite_metric_is_named_and_in_no_average() {
    let bench = Bench::new();
    bench.write("clouds.csv", clouds().replacen("\r\n3,", "\r\n3,1e300,0\r\n3,", 1));
    bench.write("clouds.toml", CLOUDS);
    bench.well(&[
        "run",
        "clouds.toml",
        "--out",
        "out",
        "--set",
        "data.test_fraction=0.5",
        "--set",
        "data.standardise=false",
    ]);
    let summary = bench.json("out/summary.json");
    let repeat = &summary["methods"][1]["repeats"][0];
    let notes = repeat["notes"].to_string();
    assert!(!notes.contains("no client has test rows"), "{notes}");
    assert!(notes.contains("the metric of client 3 is not finite and in no average"), "{notes}");
    assert!(repeat["metric"]["mean"].is_number(), "{repeat}");
}

#[test]
fn a_search_that_does_not_happen_has_no_limit() {
    let bench = Bench::new();
    bench.write("clouds.csv", clouds());
    bench.write("clouds.toml", CLOUDS);
    let ended = bench.kinfolk(&["run", "clouds.toml", "--set", "model.most_components=4"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert_eq!(ended.stderr, "error: model.most_components: is for components = \"auto\"\n");
    bench.well(&["run", "clouds.toml", "--out", "out"]);
    bench.well(&["run", "out/experiment.toml", "--out", "again"]);
}
