//! Run folders that are gone on with: checkpoints, settings and summaries that were spoiled in the meantime.

use super::harness::{Inputs, Place, cases, fuzz};
use kinfolk::ErrorKind;
use kinfolk::experiment::Experiment;
use kinfolk::record::RoundRecord;
use kinfolk::run::{Options, Unwatched, Watch, run};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const EXPERIMENT: &str = "
[data]
source = \"linear\"
clients = 4
samples = 6
test_samples = 3
dimension = 2
[model]
kind = \"linear\"
[[method]]
name = \"ifca\"
clusters = 2
rounds = 2
[[method]]
name = \"local\"
solve = \"steps\"
rounds = 4
";

/// Raises the flag in a round of the second method.
struct StopAt(u64, Arc<AtomicBool>);

impl Watch for StopAt {
    fn round(&mut self, record: &RoundRecord) {
        if record.label == "local" && record.round as u64 >= self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

fn options(folder: PathBuf, resume: bool) -> Options {
    Options { folder: Some(folder), resume, checkpoint_every: Duration::ZERO, threads: 1, ..Options::default() }
}

/// All files below a folder, with their paths in it.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => open.push(path),
                false => {
                    let bytes = std::fs::read(&path).expect("a file");
                    found.push((path.strip_prefix(folder).expect("a path").to_path_buf(), bytes));
                }
            }
        }
    }
    found.sort();
    found
}

/// A run with a file of this ending spoiled, and everything else as it was left.
fn resume_with_spoiled(name: &'static str, endings: &[&str], is_finished: bool, cases: std::ops::Range<u64>) {
    let place = Place::new();
    let experiment = Experiment::parse("spoiled", EXPERIMENT, &[]).expect("an experiment");
    let whole = place.file("whole");
    let stop = Arc::new(AtomicBool::new(false));
    let watched = Options { stop: stop.clone(), ..options(whole.clone(), false) };
    let ended = run(&experiment, &watched, &mut StopAt(if is_finished { u64::MAX } else { 2 }, stop));
    assert_eq!(ended.is_ok(), is_finished);
    let undisturbed = run(&experiment, &Options::default(), &mut Unwatched).expect("a run");
    let files = files(&whole);
    let is_meant = |path: &Path| endings.iter().any(|ending| path.display().to_string().ends_with(ending));
    let (spoiled, corpus): (Vec<PathBuf>, Vec<Vec<u8>>) =
        files.iter().filter(|(path, _)| is_meant(path)).cloned().unzip();
    assert!(!corpus.is_empty(), "{endings:?} among {:?}", files.iter().map(|(path, _)| path).collect::<Vec<_>>());
    fuzz(&Inputs::of(name, corpus), cases, |case, bytes| {
        let folder = place.file("spoiled");
        let _ = std::fs::remove_dir_all(&folder);
        for (path, content) in &files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, content).expect("a file");
        }
        // The first inputs are the files themselves, in this order.
        std::fs::write(folder.join(&spoiled[case as usize % spoiled.len()]), bytes).expect("a file");
        let ended = run(&experiment, &options(folder, true), &mut Unwatched);
        match &ended {
            // What is gone on with ends like a run that was left alone.
            Ok(record) => assert!(is_finished || record.clients == undisturbed.clients, "other numbers"),
            Err(error) => assert_ne!(error.kind(), ErrorKind::Internal, "{error}"),
        }
        ended.is_ok()
    });
}

#[test]
fn checkpoint() {
    resume_with_spoiled("checkpoint", &[".current", ".done"], false, cases(60, 100));
}

#[test]
fn run_settings() {
    resume_with_spoiled("run_settings", &["experiment.toml"], false, cases(60, 100));
}

#[test]
fn run_summary() {
    resume_with_spoiled("run_summary", &["summary.json"], true, cases(100, 20));
}
