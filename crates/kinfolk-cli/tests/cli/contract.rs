//! The run folder, the JSON document and the table, as scripts depend on them.

use crate::bench::{Bench, without_seconds};
use serde_json::Value;

#[test]
fn a_small_run_prints_its_table() {
    let bench = Bench::new();
    let ended = bench.well(&["run", "tiny.toml", "--out", "out"]);
    insta::assert_snapshot!("run-table", without_seconds(&ended.stdout));
    assert_eq!(ended.stderr, "report: out/report.html\n", "no talk but this when nobody watches");
}

#[test]
fn the_folder_holds_what_is_promised_and_nothing_else() {
    let bench = Bench::new();
    bench.well(&["run", "tiny.toml", "--out", "out"]);
    insta::assert_snapshot!("run-files", bench.files("out").join("\n"));
    let header = |name: &str| bench.read(name).lines().next().map(str::to_string);
    assert_eq!(
        header("out/rounds.csv").as_deref(),
        Some(
            "label,seed,round,phase,loss,metric,switched,sizes,bytes_down,bytes_up,seconds,unseen_metric,\
             normalised_mse,distance_to_exact,misclustering,stage"
        )
    );
    assert_eq!(
        header("out/clients.csv").as_deref(),
        Some(
            "label,seed,client,true_cluster,cluster,samples,margin,metric,model_norm,distance_to_cluster,\
         distance_to_global,metric_local,metric_global,group,outlier_score,apart,outlier,planted_outlier"
        )
    );
    assert_eq!(bench.read("out/clients.csv").lines().count(), 1 + 3 * 12, "three methods, twelve clients");
    insta::assert_snapshot!("run-experiment", bench.read("out/experiment.toml"));
}

#[test]
fn models_can_be_left_out() {
    let bench = Bench::new();
    bench.well(&["run", "tiny.toml", "--out", "clusters", "--set", "save_models=clusters"]);
    assert!(bench.path("clusters/models/ifca/0/cluster-1.safetensors").exists());
    assert!(!bench.path("clusters/models/local").exists());
    bench.well(&["run", "tiny.toml", "--out", "none", "--set", "save_models=none"]);
    assert!(!bench.path("none/models").exists());
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn sorted<const N: usize>(mut names: [&str; N]) -> [&str; N] {
    names.sort_unstable();
    names
}

fn assert_no_null(value: &Value) {
    match value {
        Value::Null => panic!("a field that does not apply is absent, never null"),
        Value::Array(list) => list.iter().for_each(assert_no_null),
        Value::Object(fields) => fields.values().for_each(assert_no_null),
        _ => {}
    }
}

#[test]
fn the_json_document_has_the_fields_of_the_contract() {
    let bench = Bench::new();
    let ended = bench.well(&["run", "tiny.toml", "--out", "out", "--json"]);
    let printed: Value = serde_json::from_str(&ended.stdout.replace("[VERSION]", env!("CARGO_PKG_VERSION")))
        .expect("stdout is one JSON document");
    assert_eq!(printed, bench.json("out/summary.json"));
    assert_no_null(&printed);

    assert_eq!(keys(&printed), sorted(["schema", "name", "seed", "version", "cpu", "data", "methods"]));
    assert_eq!(printed["schema"], 1);
    assert_eq!(printed["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        keys(&printed["data"]),
        sorted(["source", "clients", "samples", "rows", "columns", "unseen_clients", "true_clusters"])
    );
    let methods = printed["methods"].as_array().expect("methods");
    assert_eq!(methods.iter().map(|method| &method["label"]).collect::<Vec<_>>(), ["ifca", "fedavg", "local"]);
    for method in methods {
        assert_eq!(keys(method), sorted(["label", "name", "settings", "status", "repeats", "mean"]));
        assert_eq!(method["status"], "done");
    }
    let ifca = &methods[0]["repeats"][0];
    let everywhere = [
        "seed",
        "status",
        "rounds",
        "metric",
        "bytes_down",
        "bytes_up",
        "models_down",
        "models_up",
        "seconds",
        "normalised_mse",
    ];
    let clustered = ["clusters", "unseen", "misclustering", "ari", "parameter_error", "parameter_error_nearest"];
    let mut wanted = [everywhere.as_slice(), &clustered].concat();
    wanted.sort_unstable();
    assert_eq!(keys(ifca), wanted);
    assert_eq!(keys(&ifca["metric"]), sorted(["name", "mean", "pooled", "worst_decile", "per_cluster"]));
    assert_eq!(keys(&ifca["unseen"]), keys(&ifca["metric"]));
    assert_eq!(ifca["metric"]["name"], "mse");
    assert_eq!(ifca["misclustering"], 0.0);
    // No clusters, and nothing to serve strangers with: such fields are absent.
    let mut wanted = everywhere;
    wanted.sort_unstable();
    assert_eq!(keys(&methods[2]["repeats"][0]), wanted);
    assert_eq!(keys(&methods[2]["repeats"][0]["metric"]), sorted(["name", "mean", "pooled", "worst_decile"]));
}

#[test]
fn several_seeds_give_mean_and_deviation() {
    let bench = Bench::new();
    let ended = bench.well(&["run", "tiny.toml", "--out", "out", "--seed", "3", "--repeat", "2"]);
    assert!(ended.stdout.contains(" ± "), "{}", ended.stdout);
    let summary = bench.json("out/summary.json");
    assert_eq!(summary["seed"], 3);
    for method in summary["methods"].as_array().expect("methods") {
        let repeats = method["repeats"].as_array().expect("repeats");
        assert_eq!(repeats.iter().map(|repeat| &repeat["seed"]).collect::<Vec<_>>(), [3, 4]);
        let value = |of: &Value| of["metric"]["mean"].as_f64().expect("a number");
        let (first, second) = (value(&repeats[0]), value(&repeats[1]));
        assert!((value(&method["mean"]) - (first + second) / 2.0).abs() < 1e-12);
        // With n − 1 = 1 the deviation of two numbers is their distance over √2.
        assert!((value(&method["sd"]) - (first - second).abs() / 2f64.sqrt()).abs() < 1e-12);
        assert!(method["sd"].get("seed").is_none());
    }
    assert!(bench.path("out/models/ifca/4/cluster-0.safetensors").exists());
}

#[test]
fn the_command_line_goes_before_the_file_and_the_file_before_the_default() {
    let bench = Bench::new();
    let shown =
        |arguments: &[&str]| -> String { bench.well(&[&["run", "tiny.toml", "--show"], arguments].concat()).stdout };
    let rounds = |text: &str| -> Vec<i64> {
        let numbers = text.lines().filter_map(|line| line.strip_prefix("rounds = "));
        numbers.map(|number| number.parse().expect("a number")).collect()
    };
    let plain = shown(&[]);
    assert_eq!(rounds(&plain), [12, 12, 2], "the file");
    assert!(plain.contains("evaluate_every = 10\n"), "the default");
    assert_eq!(rounds(&shown(&["--set", "method.fedavg.rounds=7"])), [12, 7, 2]);
    let set = shown(&["--set", "evaluate_every=3", "--set", "data.noise=0.5", "--set", "model.initial=zero"]);
    for line in ["evaluate_every = 3\n", "noise = 0.5\n", "initial = \"zero\"\n"] {
        assert!(set.contains(line), "{line}");
    }
    let seeds = shown(&["--set", "seed=1", "--seed", "2", "--set", "name=other"]);
    assert!(seeds.contains("seed = 2\n") && seeds.contains("name = \"other\"\n"));
    assert!(!bench.path("runs").exists(), "--show runs nothing");
}

#[test]
fn an_experiment_with_every_default_filled_in_is_the_same_experiment() {
    let bench = Bench::new();
    let shown = bench.well(&["run", "tiny.toml", "--show"]).stdout;
    bench.write("shown.toml", &shown);
    assert_eq!(bench.well(&["run", "shown.toml", "--show"]).stdout, shown);
}

#[test]
fn a_second_method_of_a_name_gets_a_label_of_its_own() {
    let bench = Bench::new();
    let second = "\n[[method]]\nname = \"fedavg\"\nrounds = 3\n\n[[method]]\nname = \"fedavg\"\nlabel = \"third\"\n";
    bench.write("two.toml", format!("{}{second}", crate::bench::TINY));
    bench.well(&["run", "two.toml", "--out", "out", "--set", "method.fedavg-2.rounds=4"]);
    let summary = bench.json("out/summary.json");
    let methods = summary["methods"].as_array().expect("methods");
    let labels: Vec<&str> = methods.iter().filter_map(|method| method["label"].as_str()).collect();
    assert_eq!(labels, ["ifca", "fedavg", "local", "fedavg-2", "third"]);
    assert_eq!(methods[3]["name"], "fedavg");
    assert_eq!(methods[3]["repeats"][0]["rounds"], 4);
}

#[test]
fn a_run_without_a_folder_of_its_own_gets_one() {
    let bench = Bench::new();
    let ended = bench.well(&["run", "tiny.toml"]);
    let page = ended.stderr.trim_end().strip_prefix("report: runs/tiny-").expect("the place is said");
    assert!(page.ends_with("/report.html"), "{page}");
    assert!(bench.path(&format!("runs/tiny-{}", page.replace("report.html", "summary.json"))).exists());
}

#[test]
fn the_quickstart_needs_nothing() {
    let bench = Bench::new();
    let ended = bench.well(&["run", "quickstart", "--out", "out", "--json"]);
    let summary: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_no_null(&summary);
    let accuracy = |method: usize| summary["methods"][method]["mean"]["metric"]["mean"].as_f64().expect("a number");
    assert_eq!(summary["methods"][0]["repeats"][0]["misclustering"], 0.0);
    // In the order of the preset: ifca, fedavg, local.
    assert!(accuracy(0) > accuracy(1) + 0.05 && accuracy(0) > accuracy(2) + 0.05, "{}", ended.stdout);
}
