//! The papers behind Kinfolk, run again: their numbers beside ours, and beside those we measured before.
//!
//! A [`Paper`] is a list of [`Reproduction`]s, one per table or figure. Each is an experiment file and some cases:
//! settings to change, and the cells to read off the record. All of them are data, in `experiments/PAPER/paper.toml`.
//! Finished repeats go into a ledger, so that an interrupted reproduction continues where it stopped.

pub mod arena;
mod formula;
mod ledger;
mod paper;
mod recorded;
mod scope;

pub use paper::paper;
pub use recorded::{Recorded, cpu};

use formula::Formula;
use kinfolk::compute::Backend;
use kinfolk::data::cache;
use kinfolk::disk::lock::Lock;
use kinfolk::experiment::{Experiment, Override};
use kinfolk::record::summary::{mean, standard_deviation};
use kinfolk::rng::Key;
use kinfolk::run::{Options, Watch, run};
use kinfolk::settings::{finish, unknown_name};
use kinfolk::{Error, Result};
use ledger::Ledger;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A paper whose numbers can be reproduced, in full or cut down.
pub struct Paper {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title.
    pub title: String,
    /// Its experiments.
    pub experiments: Vec<Reproduction>,
    quick: bool,
    recorded: Recorded,
}

/// One experiment of a paper.
pub struct Reproduction {
    /// Such as `e2`.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The experiment file the cases change.
    text: &'static str,
    cases: Vec<Case>,
}

/// One run, and what is read off it.
struct Case {
    name: String,
    /// Settings to change, as on the command line.
    changes: Vec<String>,
    /// Further changes to try in turn, until every cell of a repeat is at its best.
    attempts: Vec<Vec<String>>,
    repeats: u64,
    /// Whether one repeat takes long enough to need a run folder with checkpoints.
    long: bool,
    cells: Vec<Cell>,
}

struct Cell {
    name: String,
    paper: Option<f64>,
    /// What an independent implementation found.
    reference: Option<f64>,
    /// With its tolerance.
    judge: Option<(Judge, f64)>,
    average: Average,
    read: Formula,
    /// Its upper bound, where it has one: no further attempt can improve on it.
    best: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Judge {
    /// Not further below the paper's number than the tolerance.
    AtLeast,
    /// Not further above the paper's number.
    AtMost,
    /// Not further from the reference.
    Near,
    /// Not further above the reference.
    AtMostReference,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Average {
    Mean,
    Median,
}

/// A finished cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellResult {
    /// Its name.
    pub cell: String,
    /// The paper's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<f64>,
    /// What an independent implementation found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<f64>,
    /// What we measured before, in a run of the same kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<f64>,
    /// Our number, averaged over the repeats; absent when no repeat gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours: Option<f64>,
    /// Standard deviation (n − 1); absent beside a median, which it says nothing about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sd: Option<f64>,
    /// Number of repeats.
    pub repeats: usize,
    /// Whether our number is within the tolerance of the paper's or of the reference, or better; and as close to what we
    /// measured before as chance, or for a cut-down run rounding, allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<bool>,
}

/// A finished experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentResult {
    /// Its name.
    pub experiment: String,
    /// Its cells.
    pub cells: Vec<CellResult>,
}

/// How to reproduce.
pub struct Plan<'a> {
    /// Only this experiment.
    pub experiment: Option<&'a str>,
    /// Another number of repeats than the paper's.
    pub repeats: Option<u64>,
    /// Folder of the ledger and the run folders.
    pub folder: &'a Path,
    /// Threads; 0 is one per core.
    pub threads: usize,
    /// What clients compute on.
    pub backend: Arc<dyn Backend>,
    /// Set it to stop; finished repeats are in the ledger.
    pub stop: Arc<AtomicBool>,
}

/// Observes a reproduction.
pub trait WatchCases {
    /// An experiment is left out, because its data is missing.
    fn skipped(&mut self, experiment: &str, why: &Error);
    /// A repeat of a case begins; returns the observer of its run.
    fn case(&mut self, experiment: &str, case: &str, repeat: u64, of: u64) -> Box<dyn Watch>;
}

/// Runs a paper's experiments, or one of them. An experiment without data is left out, unless it was named.
pub fn reproduce(paper: &Paper, plan: &Plan, watch: &mut dyn WatchCases) -> Result<Vec<ExperimentResult>> {
    let wanted = |reproduction: &&Reproduction| plan.experiment.is_none_or(|name| name == reproduction.name);
    let mut chosen: Vec<&Reproduction> = paper.experiments.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let known: Vec<&str> = paper.experiments.iter().map(|experiment| experiment.name.as_str()).collect();
        let name = plan.experiment.unwrap_or_default();
        return Err(unknown_name(&format!("reproduce {}", paper.name), name, &known));
    }
    // Every setting and every dataset is checked before the first case runs.
    let (mut faults, mut missing) = (Vec::new(), Vec::new());
    for reproduction in &chosen {
        for case in &reproduction.cases {
            match reproduction.experiment(case, 0, &[]) {
                Err(error) => faults.push(error),
                Ok(experiment) => missing.extend(Some(&reproduction.name).zip(missing_data(paper.name, &experiment))),
            }
        }
    }
    missing.dedup();
    let is_missing = |reproduction: &&Reproduction| missing.iter().any(|(name, _)| **name == reproduction.name);
    if plan.experiment.is_some() || chosen.iter().all(is_missing) {
        faults.extend(missing.iter().map(|(_, why)| why.clone()));
    }
    faults.dedup();
    finish(faults)?;
    chosen.retain(|reproduction| !is_missing(reproduction));
    missing.iter().for_each(|(name, why)| watch.skipped(name, why));
    std::fs::create_dir_all(plan.folder).map_err(|error| Error::io("creating", plan.folder, error))?;
    let _lock = Lock::take(plan.folder)?;
    let mut ledger = Ledger::open(plan.folder)?;
    chosen.iter().map(|reproduction| reproduction.run(paper, plan, &mut ledger, watch)).collect()
}

/// Why an experiment's data cannot be read, where it is missing.
fn missing_data(folder: &str, experiment: &Experiment) -> Option<Error> {
    let path = experiment.data.get("path").and_then(toml::Value::as_str).filter(|path| !Path::new(path).exists());
    let is_dataset = cache::DATASETS.iter().any(|dataset| dataset.name == experiment.source.name);
    match path {
        Some(path) => Some(
            Error::data(format!("no file {path}")).hint(format!("experiments/{folder}/README.md says how it is made")),
        ),
        None if is_dataset => cache::find(experiment.source.name).err(),
        None => None,
    }
}

impl Reproduction {
    fn experiment(&self, case: &Case, seed: u64, more: &[String]) -> Result<Experiment> {
        let changes = case.changes.iter().chain(more);
        let mut overrides = changes.map(|change| Override::parse(change)).collect::<Result<Vec<_>>>()?;
        overrides.push(Override::top("seed", seed as i64));
        overrides.push(Override::top("repeat", 1));
        Experiment::parse(&self.name, self.text, &overrides)
    }

    fn run(
        &self,
        paper: &Paper,
        plan: &Plan,
        ledger: &mut Ledger,
        watch: &mut dyn WatchCases,
    ) -> Result<ExperimentResult> {
        let mut cells = Vec::new();
        for case in &self.cases {
            let repeats = plan.repeats.unwrap_or(case.repeats);
            let mut values: Vec<Vec<f64>> = vec![Vec::new(); case.cells.len()];
            for seed in 0..repeats {
                let key = self.key(case, seed)?;
                if !ledger.entries.contains_key(&key) {
                    let mut watch = || watch.case(&self.name, &case.name, seed + 1, repeats);
                    ledger.add(key.clone(), self.repeat(case, seed, plan, &mut watch)?)?;
                }
                for (values, value) in values.iter_mut().zip(&ledger.entries[&key]) {
                    values.extend(value);
                }
            }
            for (cell, values) in case.cells.iter().zip(values) {
                let mut result = cell.result(&values);
                if let Some(before) = paper.recorded.find(&self.name, &cell.name) {
                    let holds = paper.recorded.closeness(paper.quick).holds(before, &result, cell.judge);
                    result.recorded = before.ours;
                    result.within = match (result.within, holds) {
                        (Some(paper), Some(holds)) => Some(paper && holds),
                        (paper, holds) => paper.or(holds),
                    };
                }
                cells.push(result);
            }
        }
        Ok(ExperimentResult { experiment: self.name.clone(), cells })
    }

    /// The values of a case's cells on one seed: the best of its attempts.
    fn repeat(
        &self,
        case: &Case,
        seed: u64,
        plan: &Plan,
        watch: &mut dyn FnMut() -> Box<dyn Watch>,
    ) -> Result<Vec<Option<f64>>> {
        let mut values: Vec<Option<f64>> = vec![None; case.cells.len()];
        for more in &case.attempts {
            let experiment = self.experiment(case, seed, more)?;
            let folder = case.long.then(|| plan.folder.join(&self.name).join(format!("{}-{seed}", case.name)));
            let resume = folder.as_ref().is_some_and(|folder| folder.join("experiment.toml").exists());
            let stop = plan.stop.clone();
            let backend = plan.backend.clone();
            let options = Options { folder, threads: plan.threads, backend, resume, stop, ..Options::default() };
            let record = run(&experiment, &options, &mut *watch())?;
            for (value, cell) in values.iter_mut().zip(&case.cells) {
                *value = match (*value, cell.read.read(&record)) {
                    (Some(before), Some(now)) => Some(before.max(now)),
                    (before, now) => before.or(now),
                };
            }
            if values.iter().zip(&case.cells).all(|(value, cell)| cell.best.is_some() && *value == cell.best) {
                break;
            }
        }
        Ok(values)
    }

    /// Names a repeat by everything that decides its outcome, and by the cells its values stand for.
    fn key(&self, case: &Case, seed: u64) -> Result<String> {
        let mut key = Key::new(seed).word(env!("CARGO_PKG_VERSION"));
        for more in &case.attempts {
            key = key.word(&self.experiment(case, seed, more)?.to_toml());
        }
        for cell in &case.cells {
            key = key.word(&cell.name);
        }
        Ok(format!("{} {} seed {seed} {:016x}", self.name, case.name, key.seed()))
    }
}

impl Cell {
    fn result(&self, values: &[f64]) -> CellResult {
        let ours = match self.average {
            Average::Mean => mean(values),
            Average::Median => median(values),
        };
        let ours = ours.is_finite().then_some(ours);
        let holds = |of: Option<f64>, holds: &dyn Fn(f64, f64) -> bool| {
            of.map(|number| ours.is_some_and(|ours| holds(ours, number)))
        };
        let within = self.judge.and_then(|(judge, tolerance)| match judge {
            Judge::AtLeast => holds(self.paper, &|ours, paper| ours >= paper - tolerance),
            Judge::AtMost => holds(self.paper, &|ours, paper| ours <= paper + tolerance),
            Judge::Near => holds(self.reference, &|ours, other| (ours - other).abs() <= tolerance),
            Judge::AtMostReference => holds(self.reference, &|ours, other| ours <= other + tolerance),
        });
        CellResult {
            cell: self.name.clone(),
            paper: self.paper,
            reference: self.reference,
            ours,
            sd: standard_deviation(values).filter(|_| self.average == Average::Mean),
            repeats: values.len(),
            within,
            ..CellResult::default()
        }
    }
}

/// The middle value, or the mean of the two in the middle; not a number when there is none.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count => 0.5 * (sorted[(count - 1) / 2] + sorted[count / 2]),
    }
}

#[cfg(test)]
mod tests;
