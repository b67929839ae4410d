//! The program with spoiled files: it ends, and says 0, 1 or 2.
//!
//! A few cases here; `make fuzz` goes on for as long as one likes (`KINFOLK_FUZZ_BINARY` cases of every kind).

use super::bench::Bench;
use crate::fuzzing::harness::{Inputs, fuzz, setting};
use crate::fuzzing::samples;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A run that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(50);

const METHODS: &str = "[[method]]\nname = \"ifca\"\nclusters = 2\nrounds = 2\n[[method]]\nname = \"odcl\"\n\
    clustering = \"kmeans++\"\nclusters = 2\n";

fn cases(usual: u64) -> std::ops::Range<u64> {
    match setting("CASE") {
        Some(case) => case..case + 1,
        None => 0..setting("BINARY").unwrap_or(usual),
    }
}

/// Runs the program to its end. Whether it took the input; any other end than those promised fails.
fn ends(mut command: Command) -> bool {
    let begun = Instant::now();
    let mut said = tempfile::tempfile().expect("a temporary file");
    let stderr = said.try_clone().expect("a file");
    let mut child = command.stdout(Stdio::null()).stderr(stderr).spawn().expect("the program starts");
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break status,
            None if begun.elapsed() > LONGEST => {
                let _ = child.kill();
                let _ = child.wait();
                panic!("no end after {LONGEST:?}");
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    assert!(matches!(status.code(), Some(0..=2)), "ended with {status}");
    // A panic is told as a bug, and is one.
    let mut text = String::new();
    said.rewind().and_then(|()| said.read_to_string(&mut text)).expect("text");
    assert!(!text.contains("a bug in kinfolk"), "{text}");
    status.code() == Some(0)
}

/// Runs an experiment without keeping anything.
fn runs(bench: &Bench, text: &str) -> bool {
    bench.write("experiment.toml", text);
    let _ = std::fs::remove_dir_all(bench.path("out"));
    ends(bench.command(&["run", "experiment.toml", "--out", "out", "--threads", "1", "--json"]))
}

#[test]
fn binary_experiment() {
    let bench = Bench::new();
    let text = format!(
        "name = \"small\"\nseed = 1\nrepeat = 1\nevaluate_every = 1\n[data]\nsource = \"linear\"\nclients = 6\nsamples = 8\n\
         test_samples = 4\ndimension = 3\n[model]\nkind = \"linear\"\nintercept = true\n{METHODS}"
    );
    fuzz(&Inputs::of("binary_experiment", vec![text.into_bytes()]), cases(6), |_, bytes| {
        let text = String::from_utf8_lossy(bytes);
        // Whoever asks for a million rounds has to wait for them.
        let is_long = |word: &str| word.parse::<f64>().is_ok_and(|number| number > 100.0);
        let all = kinfolk::experiment::Experiment::parse("small", &text, &[]).map(|parsed| parsed.to_toml());
        let is_long_run = all.is_ok_and(|all| all.split([' ', '\n', ',', '[', ']']).any(is_long));
        is_long_run || runs(&bench, &text)
    });
}

fn table(name: &'static str, file: &str, corpus: Vec<Vec<u8>>) {
    let bench = Bench::new();
    let text = format!(
        "[data]\nsource = \"table\"\npath = \"{file}\"\nclient = \"who\"\ntarget = \"y\"\ntask = \"regression\"\n\
         small = \"drop\"\n[model]\nkind = \"linear\"\n{METHODS}"
    );
    fuzz(&Inputs::of(name, corpus), cases(5), |_, bytes| {
        bench.write(file, bytes);
        runs(&bench, &text)
    });
}

#[test]
fn binary_table_csv() {
    table("binary_table_csv", "t.csv", samples::tables());
}

#[test]
fn binary_table_parquet() {
    table("binary_table_parquet", "t.parquet", samples::parquet_tables());
}

fn points(name: &'static str, file: &str, corpus: Vec<Vec<u8>>, more: &[&str]) {
    let bench = Bench::new();
    fuzz(&Inputs::of(name, corpus), cases(5), |_, bytes| {
        bench.write(file, bytes);
        ends(bench.command(&[&["cluster", file, "--standardise", "--json"], more].concat()))
    });
}

#[test]
fn binary_points_csv() {
    points("binary_points_csv", "p.csv", samples::points(), &[]);
}

#[test]
fn binary_points_npy() {
    points("binary_points_npy", "p.npy", samples::arrays(), &[]);
}

#[test]
fn binary_points_parquet() {
    points("binary_points_parquet", "p.parquet", samples::parquet_tables(), &["--drop", "colour"]);
}

const SMALL: &str = "[model]\nkind = \"softmax\"\n[[method]]\nname = \"fedavg\"\nrounds = 2\n";

#[test]
fn binary_leaf() {
    let bench = Bench::new();
    let text = format!("[data]\nsource = \"leaf\"\npath = \"all.json\"\nmin_rows = 1\ntest_fraction = 0.3\n{SMALL}");
    fuzz(&Inputs::mixed("binary_leaf", samples::leaf()), cases(5), |_, bytes| {
        bench.write("all.json", bytes);
        runs(&bench, &text)
    });
}

#[test]
fn binary_mnist() {
    let bench = Bench::new();
    let text = format!("[data]\nsource = \"mnist\"\nclients = 4\nsamples = 3\ntest_samples = 2\n{SMALL}");
    let names = ["train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"];
    let pools: Vec<Vec<u8>> = (0..4).map(samples::mnist).collect();
    fuzz(&Inputs::of("binary_mnist", pools.clone()), cases(5), |case, bytes| {
        for (place, name) in names.iter().enumerate() {
            let content = if case as usize % 4 == place { bytes } else { &pools[place] };
            bench.write(&format!("datasets/mnist/{name}-ubyte.gz"), content);
        }
        runs(&bench, &text)
    });
}

#[test]
fn binary_resume() {
    let bench = Bench::new();
    let text = format!(
        "[data]\nsource = \"linear\"\nclients = 4\nsamples = 6\ndimension = 2\n[model]\nkind = \"linear\"\n{METHODS}"
    );
    assert!(runs(&bench, &text));
    let files = bench.files("out");
    let whole: Vec<Vec<u8>> =
        files.iter().map(|file| std::fs::read(bench.path("out").join(file)).expect("a file")).collect();
    fuzz(&Inputs::of("binary_resume", whole.clone()), cases(5), |case, bytes| {
        let _ = std::fs::remove_dir_all(bench.path("out"));
        for (place, (file, content)) in files.iter().zip(&whole).enumerate() {
            let spoiled = case as usize % files.len() == place;
            bench.write(&format!("out/{file}"), if spoiled { bytes } else { content });
        }
        ends(bench.command(&["run", "experiment.toml", "--out", "out", "--threads", "1", "--resume"]))
    });
}
