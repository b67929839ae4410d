//! The experiment files of this repository, small: they must parse, run, and show what they are there to show.

use kinfolk::experiment::{Experiment, Override};
use kinfolk::report::{Record, RepeatSummary};
use kinfolk::run::{Options, Unwatched, run};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments")
}

fn parse(file: &str, changes: &[&str]) -> kinfolk::Result<Experiment> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    let changes: Vec<Override> = changes.iter().map(|change| Override::parse(change).unwrap()).collect();
    Experiment::parse(file, &text, &changes)
}

fn result(file: &str, changes: &[&str]) -> Record {
    run(&parse(file, changes).unwrap(), &Options::default(), &mut Unwatched).unwrap()
}

fn repeat<'a>(record: &'a Record, label: &str) -> &'a RepeatSummary {
    &record.summary.methods.iter().find(|method| method.label == label).unwrap().repeats[0]
}

#[test]
fn ifca_e1_small_finds_the_planted_parameters() {
    let small = [
        "repeat=1",
        "data.clients=20",
        "data.samples=50",
        "data.dimension=20",
        "method.ifca.rounds=100",
        "data.scale=1.0",
    ];
    let record = result("ifca/e1.toml", &small);
    let found = repeat(&record, "ifca");
    assert_eq!(found.misclustering, Some(0.0));
    let error = found.extra["parameter_error_nearest_best"].as_f64().unwrap();
    assert!(error <= 0.6 * 0.1, "{error}");
}

#[test]
fn ifca_e2_small_beats_one_model_and_local_models() {
    let small = [
        "data.source=digits",
        "data.clients=40",
        "data.samples=36",
        "data.test_samples=35",
        "data.unseen_clients=40",
        "method.ifca.rounds=40",
        "method.ifca.step=0.3",
        "method.ifca.start=farthest",
        "method.fedavg.rounds=40",
        "method.fedavg.step=0.3",
        "model.hidden=[32]",
    ];
    let record = result("ifca/e2-1200x200.toml", &small);
    let pooled = |label: &str| repeat(&record, label).unseen.as_ref().unwrap().pooled;
    assert_eq!(repeat(&record, "ifca").misclustering, Some(0.0));
    assert!(pooled("ifca") > pooled("fedavg") + 0.05);
    let local = repeat(&record, "local").metric.as_ref().unwrap().mean;
    assert!(repeat(&record, "ifca").metric.as_ref().unwrap().mean > local + 0.05);
}

#[test]
fn ifca_e3_waits_for_nothing_but_its_model() {
    let fault = parse("ifca/e3.toml", &[]).err().unwrap().to_string();
    assert!(fault.starts_with("model.kind: got \"cnn\""), "{fault}");
    assert!(parse("ifca/e3.toml", &["model.kind=mlp"]).is_ok());
}

#[test]
fn every_experiment_file_is_tested_here() {
    let here = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/experiments.rs")).unwrap();
    for paper in std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for file in std::fs::read_dir(&paper).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|extension| extension == "toml") {
                let name = format!("{}/{}", paper.file_name().unwrap().display(), file.file_name().unwrap().display());
                assert!(here.contains(&name), "{name} has no small version in tests/experiments.rs");
            }
        }
    }
}

/// The quickstart against its recorded numbers. Bits are promised on one kind of CPU only, hence the tolerances;
/// what is counted must agree exactly. `make bless` records anew.
#[test]
fn the_quickstart_gives_its_recorded_numbers() {
    let preset = kinfolk::presets::find("quickstart").unwrap();
    let experiment = Experiment::parse(preset.name, preset.text, &[]).unwrap();
    let record = run(&experiment, &Options::default(), &mut Unwatched).unwrap();
    let mut means: Vec<Value> = record
        .summary
        .methods
        .iter()
        .map(|method| serde_json::json!({ "label": method.label, "mean": method.mean }))
        .collect();
    for method in &mut means {
        method["mean"].as_object_mut().unwrap().remove("seconds");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/quickstart.json");
    if std::env::var_os("KINFOLK_BLESS").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&means).unwrap() + "\n").unwrap();
    }
    let recorded: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(means.len(), recorded.len());
    for (now, then) in means.iter().zip(&recorded) {
        compare(now["label"].as_str().unwrap(), now, then);
    }
}

fn compare(place: &str, now: &Value, then: &Value) {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            assert_eq!(now.keys().collect::<Vec<_>>(), then.keys().collect::<Vec<_>>(), "{place}");
            now.iter().for_each(|(key, now)| compare(&format!("{place}.{key}"), now, &then[key]));
        }
        (Value::Array(now), Value::Array(then)) => {
            assert_eq!(now.len(), then.len(), "{place}");
            now.iter().zip(then).for_each(|(now, then)| compare(place, now, then));
        }
        (Value::Number(now), Value::Number(then)) => {
            let (now, then) = (now.as_f64().unwrap(), then.as_f64().unwrap());
            let counted =
                ["bytes", "models", "rounds", "clusters", "misclustering"].iter().any(|word| place.contains(word));
            let tolerance = if counted { 0.0 } else { 0.02 };
            assert!((now - then).abs() <= tolerance, "{place}: {now}, recorded {then}");
        }
        _ => assert_eq!(now, then, "{place}"),
    }
}
