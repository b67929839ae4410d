//! A paper's experiments, run again: its numbers beside ours, and beside those we measured before.
//!
//! A [`Paper`] is a list of [`Reproduction`]s, one per table or figure. Each is an experiment file and some cases:
//! settings to change, and the cells to read off the record. Finished repeats go into a ledger, so that an interrupted
//! reproduction continues where it stopped.

mod fedgrem;
mod ifca;
mod known_clusters;
mod odcl;
mod recorded;
mod sr_fca;

pub use recorded::{Recorded, cpu};

use crate::data::cache;
use crate::disk::lock::Lock;
use crate::disk::write_atomically;
use crate::error::{Error, ErrorKind, Result};
use crate::experiment::{Experiment, Override};
use crate::record::summary::{mean, standard_deviation};
use crate::record::{Record, RepeatSummary};
use crate::rng::Key;
use crate::run::{Options, Watch, run};
use crate::settings::unknown_name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A paper whose numbers can be reproduced.
pub struct Paper {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Its experiments.
    pub experiments: &'static [Reproduction],
    /// What we measured before, in full and cut down: `expected.json` and `quick.json` in its folder.
    recorded: [&'static str; 2],
}

impl Paper {
    fn recorded(&self, quick: bool) -> Result<Recorded> {
        Recorded::read(self.recorded[usize::from(quick)]).map_err(|error| error.at(format!("reproduce {}", self.name)))
    }
}

/// A paper's name, its title, and its experiments, each as `name: file, title, cases`.
macro_rules! declare_paper {
    ($paper:literal, $title:literal, $($name:literal: $file:literal, $shows:literal, $cases:expr;)*) => {
        Paper {
            name: $paper,
            title: $title,
            experiments: &[$(Reproduction {
                name: $name,
                title: $shows,
                text: include_str!(concat!("../../../../experiments/", $paper, "/", $file)),
                cases: $cases,
            }),*],
            recorded: [
                include_str!(concat!("../../../../experiments/", $paper, "/expected.json")),
                include_str!(concat!("../../../../experiments/", $paper, "/quick.json")),
            ],
        }
    };
}
use declare_paper;

pub(crate) static PAPERS: &[&Paper] =
    &[&ifca::PAPER, &odcl::PAPER, &known_clusters::PAPER, &fedgrem::PAPER, &sr_fca::PAPER];

/// One experiment of a paper.
pub struct Reproduction {
    /// Such as `e2`.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The experiment file the cases change.
    text: &'static str,
    cases: fn(quick: bool) -> Vec<Case>,
}

/// One run, and what is read off it.
struct Case {
    name: String,
    /// Settings to change, as on the command line.
    changes: Vec<String>,
    /// Further changes that cut it down.
    small: Vec<String>,
    /// Further changes to try in turn, until every cell of a repeat is at its best.
    attempts: Vec<Vec<String>>,
    /// Repeats when cut down, and in full.
    repeats: [u64; 2],
    /// Whether one full repeat takes long enough to need a run folder with checkpoints.
    long: bool,
    cells: Vec<Cell>,
}

struct Cell {
    name: String,
    paper: Option<f64>,
    /// What an independent implementation found.
    reference: Option<f64>,
    judge: Judge,
    average: Average,
    read: Reading,
    /// Its upper bound, where it has one: no further attempt can improve on it.
    best: Option<f64>,
}

#[derive(Clone, Copy)]
enum Judge {
    /// At most this much below the paper's number.
    AtLeast(f64),
    /// At most this much above the paper's number.
    AtMost(f64),
    /// At most this much away from the reference.
    Near(f64),
    /// At most this much above the reference.
    AtMostReference(f64),
    /// No tolerance is known.
    Shown,
}

#[derive(Clone, Copy, PartialEq)]
enum Average {
    Mean,
    Median,
}

/// Reads a cell off the record of a run.
type Reading = Box<dyn Fn(&Record) -> Option<f64>>;

/// A finished cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
    /// The cut-down version.
    pub quick: bool,
    /// Another number of repeats than the paper's.
    pub repeats: Option<u64>,
    /// Folder of the ledger and the run folders.
    pub folder: &'a Path,
    /// Threads; 0 is one per core.
    pub threads: usize,
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

/// The paper of this name.
pub fn paper(name: &str) -> Result<&'static Paper> {
    PAPERS
        .iter()
        .copied()
        .find(|paper| paper.name == name)
        .ok_or_else(|| unknown_name("reproduce", name, &PAPERS.iter().map(|paper| paper.name).collect::<Vec<_>>()))
}

/// Runs a paper's experiments, or one of them. An experiment without data is left out, unless it was named.
pub fn reproduce(paper: &Paper, plan: &Plan, watch: &mut dyn WatchCases) -> Result<Vec<ExperimentResult>> {
    let wanted = |reproduction: &&Reproduction| plan.experiment.is_none_or(|name| name == reproduction.name);
    let mut chosen: Vec<&Reproduction> = paper.experiments.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let known: Vec<&str> = paper.experiments.iter().map(|experiment| experiment.name).collect();
        let name = plan.experiment.unwrap_or_default();
        return Err(unknown_name(&format!("reproduce {}", paper.name), name, &known));
    }
    // Every setting and every dataset is checked before the first case runs.
    let (mut faults, mut missing) = (Vec::new(), Vec::new());
    for reproduction in &chosen {
        for case in reproduction.cases(plan.quick) {
            match reproduction.experiment(&case, 0, &[]) {
                Err(error) => faults.push(error),
                Ok(experiment) => missing.extend(Some(reproduction.name).zip(missing_data(paper, &experiment))),
            }
        }
    }
    missing.dedup();
    let is_missing = |reproduction: &&Reproduction| missing.iter().any(|(name, _)| *name == reproduction.name);
    if plan.experiment.is_some() || chosen.iter().all(is_missing) {
        faults.extend(missing.iter().map(|(_, why)| why.clone()));
    }
    faults.dedup();
    crate::settings::finish(faults)?;
    chosen.retain(|reproduction| !is_missing(reproduction));
    missing.iter().for_each(|(name, why)| watch.skipped(name, why));
    std::fs::create_dir_all(plan.folder).map_err(|error| Error::io("creating", plan.folder, error))?;
    let _lock = Lock::take(plan.folder)?;
    let mut ledger = Ledger::open(plan.folder)?;
    let recorded = paper.recorded(plan.quick)?;
    chosen.iter().map(|reproduction| reproduction.run(plan, &recorded, &mut ledger, watch)).collect()
}

/// Why an experiment's data cannot be read, where it is missing.
fn missing_data(paper: &Paper, experiment: &Experiment) -> Option<Error> {
    let path = experiment.data.get("path").and_then(toml::Value::as_str).filter(|path| !Path::new(path).exists());
    let is_dataset = cache::DATASETS.iter().any(|dataset| dataset.name == experiment.source.name);
    match path {
        Some(path) => Some(
            Error::data(format!("no file {path}"))
                .hint(format!("experiments/{}/README.md says how it is made", paper.name)),
        ),
        None if is_dataset => cache::find(experiment.source.name).err(),
        None => None,
    }
}

impl Reproduction {
    /// The cases, in full or cut down; a cut-down one compares with no paper.
    fn cases(&self, quick: bool) -> Vec<Case> {
        let mut cases = (self.cases)(quick);
        for case in cases.iter_mut().filter(|_| quick) {
            case.changes.append(&mut case.small);
            case.long = false;
            case.cells.iter_mut().for_each(|cell| (cell.paper, cell.reference) = (None, None));
        }
        cases
    }

    fn experiment(&self, case: &Case, seed: u64, more: &[String]) -> Result<Experiment> {
        let changes = case.changes.iter().chain(more);
        let mut overrides = changes.map(|change| Override::parse(change)).collect::<Result<Vec<_>>>()?;
        overrides.push(Override::top("seed", seed as i64));
        overrides.push(Override::top("repeat", 1));
        Experiment::parse(self.name, self.text, &overrides)
    }

    fn run(
        &self,
        plan: &Plan,
        recorded: &Recorded,
        ledger: &mut Ledger,
        watch: &mut dyn WatchCases,
    ) -> Result<ExperimentResult> {
        let mut cells = Vec::new();
        for case in self.cases(plan.quick) {
            let repeats = plan.repeats.unwrap_or(case.repeats[usize::from(!plan.quick)]);
            let mut values: Vec<Vec<f64>> = vec![Vec::new(); case.cells.len()];
            for seed in 0..repeats {
                let key = self.key(&case, seed)?;
                if !ledger.entries.contains_key(&key) {
                    let mut watch = || watch.case(self.name, &case.name, seed + 1, repeats);
                    ledger.add(key.clone(), self.repeat(&case, seed, plan, &mut watch)?)?;
                }
                for (values, value) in values.iter_mut().zip(&ledger.entries[&key]) {
                    values.extend(value);
                }
            }
            for (cell, values) in case.cells.iter().zip(values) {
                let mut result = cell.result(&values);
                if let Some(before) = recorded.find(self.name, &cell.name) {
                    let holds = recorded.closeness(plan.quick).holds(before, &result, cell.judge);
                    result.recorded = before.ours;
                    result.within = match (result.within, holds) {
                        (Some(paper), Some(holds)) => Some(paper && holds),
                        (paper, holds) => paper.or(holds),
                    };
                }
                cells.push(result);
            }
        }
        Ok(ExperimentResult { experiment: self.name.to_string(), cells })
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
            let folder = case.long.then(|| plan.folder.join(self.name).join(format!("{}-{seed}", case.name)));
            let resume = folder.as_ref().is_some_and(|folder| folder.join("experiment.toml").exists());
            let stop = plan.stop.clone();
            let options = Options { folder, threads: plan.threads, resume, stop, ..Options::default() };
            let record = run(&experiment, &options, &mut *watch())?;
            for (value, cell) in values.iter_mut().zip(&case.cells) {
                *value = match (*value, (cell.read)(&record)) {
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
    fn new(name: impl Into<String>, read: impl Fn(&Record) -> Option<f64> + 'static) -> Self {
        Self {
            name: name.into(),
            paper: None,
            reference: None,
            judge: Judge::Shown,
            average: Average::Mean,
            read: Box::new(read),
            best: None,
        }
    }

    /// A number of a method's repeat.
    fn of(
        name: impl Into<String>,
        label: &'static str,
        read: impl Fn(&RepeatSummary) -> Option<f64> + 'static,
    ) -> Self {
        Self::new(name, move |record| read(repeat(record, label)?))
    }

    fn extra(name: impl Into<String>, label: &'static str, field: &'static str) -> Self {
        Self::new(name, move |record| extra(record, label, field))
    }

    /// The metric, averaged over clients.
    fn metric(name: impl Into<String>, label: &'static str) -> Self {
        Self::of(name, label, |repeat| Some(repeat.metric.as_ref()?.mean))
    }

    /// The metric, averaged over clients, in percent.
    fn percent(name: impl Into<String>, label: &'static str) -> Self {
        Self::of(name, label, |repeat| Some(100.0 * repeat.metric.as_ref()?.mean))
    }

    fn misclustering(name: impl Into<String>, label: &'static str) -> Self {
        Self::of(name, label, |repeat| repeat.misclustering)
    }

    fn clusters(name: impl Into<String>, label: &'static str) -> Self {
        Self::of(name, label, |repeat| repeat.clusters.map(|clusters| clusters as f64))
    }

    /// The share of repeats in which something holds.
    fn share(name: impl Into<String>, holds: impl Fn(&Record) -> Option<bool> + 'static) -> Self {
        Self::new(name, move |record| holds(record).map(|holds| f64::from(u8::from(holds))))
    }

    fn paper(self, paper: impl Into<Option<f64>>) -> Self {
        Self { paper: paper.into(), ..self }
    }

    /// With the number of an independent implementation.
    fn reference(self, reference: impl Into<Option<f64>>) -> Self {
        Self { reference: reference.into(), ..self }
    }

    fn judged(self, judge: Judge) -> Self {
        Self { judge, ..self }
    }

    /// The median of the repeats instead of their mean.
    fn median(self) -> Self {
        Self { average: Average::Median, name: format!("{}, median", self.name), ..self }
    }

    fn result(&self, values: &[f64]) -> CellResult {
        let ours = match self.average {
            Average::Mean => mean(values),
            Average::Median => median(values),
        };
        let ours = ours.is_finite().then_some(ours);
        let holds = |of: Option<f64>, holds: &dyn Fn(f64, f64) -> bool| {
            of.map(|number| ours.is_some_and(|ours| holds(ours, number)))
        };
        let within = match self.judge {
            Judge::AtLeast(tolerance) => holds(self.paper, &|ours, paper| ours >= paper - tolerance),
            Judge::AtMost(tolerance) => holds(self.paper, &|ours, paper| ours <= paper + tolerance),
            Judge::Near(tolerance) => holds(self.reference, &|ours, other| (ours - other).abs() <= tolerance),
            Judge::AtMostReference(tolerance) => holds(self.reference, &|ours, other| ours <= other + tolerance),
            Judge::Shown => None,
        };
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

impl Case {
    fn new(name: impl Into<String>, changes: Vec<String>, repeats: [u64; 2], cells: Vec<Cell>) -> Self {
        let (small, attempts) = (Vec::new(), vec![Vec::new()]);
        Self { name: name.into(), changes, small, attempts, repeats, long: false, cells }
    }

    /// With further changes that cut it down.
    fn small(mut self, changes: &[&str]) -> Self {
        self.small.extend(owned(changes));
        self
    }

    /// With a setting of these methods that cuts it down.
    fn small_methods(mut self, labels: &[&str], setting: &str) -> Self {
        self.small.extend(labels.iter().map(|label| format!("method.{label}.{setting}")));
        self
    }

    /// With a run folder of its own.
    fn long(self) -> Self {
        Self { long: true, ..self }
    }
}

fn owned(changes: &[&str]) -> Vec<String> {
    changes.iter().map(|change| change.to_string()).collect()
}

/// A number that a method or a finding added to the summary.
fn extra(record: &Record, label: &str, field: &str) -> Option<f64> {
    repeat(record, label)?.extra.get(field)?.as_f64()
}

fn repeat<'a>(record: &'a Record, label: &str) -> Option<&'a RepeatSummary> {
    record.summary.methods.iter().find(|method| method.label == label)?.repeats.first()
}

/// The rounds a method was set to run at most.
fn planned_rounds(record: &Record, label: &str) -> Option<usize> {
    let method = record.summary.methods.iter().find(|method| method.label == label)?;
    Some(method.settings.get("rounds")?.as_u64()? as usize)
}

/// Finished repeats on disk.
#[derive(Default, Serialize, Deserialize)]
struct Ledger {
    #[serde(skip)]
    path: PathBuf,
    version: String,
    entries: BTreeMap<String, Vec<Option<f64>>>,
}

impl Ledger {
    fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("ledger.json");
        let ledger = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::default(),
            Err(error) => return Err(Error::io("reading", &path, error)),
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                Error::data(format!("{}: {error}", path.display())).hint("move it away to start anew")
            })?,
        };
        Ok(Self { path, version: env!("CARGO_PKG_VERSION").into(), ..ledger })
    }

    fn add(&mut self, key: String, values: Vec<Option<f64>>) -> Result<()> {
        self.entries.insert(key, values);
        let text =
            serde_json::to_vec_pretty(self).map_err(|error| Error::new(ErrorKind::Io, format!("ledger: {error}")))?;
        write_atomically(&self.path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_judgements_by_hand() {
        let cell =
            |judge, average| Cell { average, ..Cell::new("a", |_| None).paper(2.0).reference(3.0).judged(judge) };
        let values = [9.0, 1.0, 2.0, 4.0];
        let result = |judge, average| cell(judge, average).result(&values);
        let mean = result(Judge::AtLeast(0.0), Average::Mean);
        assert_eq!((mean.ours, mean.within, mean.reference), (Some(4.0), Some(true), Some(3.0)));
        let middle = result(Judge::AtMost(0.5), Average::Median);
        assert_eq!((middle.ours, middle.within), (Some(3.0), Some(false)));
        assert!(mean.sd.is_some() && middle.sd.is_none());
        assert_eq!(result(Judge::AtMost(1.0), Average::Median).within, Some(true));
        assert_eq!(result(Judge::Near(0.9), Average::Mean).within, Some(false));
        assert_eq!(result(Judge::Near(0.0), Average::Median).within, Some(true));
        assert_eq!(result(Judge::AtMostReference(0.9), Average::Mean).within, Some(false));
        assert_eq!(result(Judge::AtMostReference(0.0), Average::Median).within, Some(true));
        assert_eq!(result(Judge::Shown, Average::Mean).within, None);
        assert_eq!(cell(Judge::AtLeast(0.0), Average::Median).result(&[]).ours, None);
    }

    /// Notes what is left out; a case that begins raises the stop.
    struct Noted {
        skipped: Vec<String>,
        began: Vec<String>,
        stop: Arc<AtomicBool>,
    }

    impl WatchCases for Noted {
        fn skipped(&mut self, experiment: &str, why: &Error) {
            self.skipped.push(format!("{experiment}: {why}"));
        }

        fn case(&mut self, experiment: &str, _: &str, _: u64, _: u64) -> Box<dyn Watch> {
            self.began.push(experiment.to_string());
            self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
            Box::new(crate::run::Unwatched)
        }
    }

    #[test]
    fn experiments_without_their_data_are_left_out_unless_they_are_named() {
        const TEXT: &str = include_str!("../../../../experiments/fedgrem/e3-mnist.toml");
        const READY: &str = include_str!("../../../../experiments/fedgrem/e1-gaussian.toml");
        fn nowhere(_: bool) -> Vec<Case> {
            vec![Case::new("a", vec!["data.path=nowhere.csv".into()], [1; 2], Vec::new())]
        }
        fn plain(_: bool) -> Vec<Case> {
            vec![Case::new("a", Vec::new(), [1; 2], Vec::new())]
        }
        const NOTHING: [&str; 2] = [r#"{"paper": "p", "experiments": []}"#; 2];
        static ONE: [Reproduction; 1] = [Reproduction { name: "far", title: "", text: TEXT, cases: nowhere }];
        static BOTH: [Reproduction; 2] = [
            Reproduction { name: "far", title: "", text: TEXT, cases: nowhere },
            Reproduction { name: "near", title: "", text: READY, cases: plain },
        ];
        let folder = tempfile::tempdir().unwrap();
        let reproduced = |experiments: &'static [Reproduction], experiment: Option<&str>| {
            let stop = Arc::new(AtomicBool::new(false));
            let mut noted = Noted { skipped: Vec::new(), began: Vec::new(), stop: stop.clone() };
            let plan = Plan { experiment, quick: true, repeats: None, folder: folder.path(), threads: 1, stop };
            let error = reproduce(&Paper { name: "p", title: "", experiments, recorded: NOTHING }, &plan, &mut noted)
                .unwrap_err();
            (error, noted.skipped, noted.began)
        };
        let missing = "no file nowhere.csv\n  hint: experiments/p/README.md says how it is made";
        let (error, skipped, began) = reproduced(&BOTH, None);
        assert_eq!(
            (error.kind(), skipped, began),
            (ErrorKind::Stopped, vec![format!("far: {missing}")], vec!["near".into()])
        );
        for (experiments, named) in [(&BOTH[..], Some("far")), (&ONE, None)] {
            let (error, skipped, began) = reproduced(experiments, named);
            assert_eq!((error.to_string().as_str(), skipped.len(), began.len()), (missing, 0, 0));
        }
    }

    #[test]
    fn a_ledger_is_of_no_use_for_other_cells() {
        let reproduction = &PAPERS[0].experiments[0];
        let mut case = reproduction.cases(true).remove(0);
        let before = reproduction.key(&case, 0).unwrap();
        case.cells.swap(0, 1);
        assert_ne!(reproduction.key(&case, 0).unwrap(), before);
    }

    #[test]
    fn a_cut_down_case_compares_with_no_paper() {
        let experiments = PAPERS.iter().flat_map(|paper| paper.experiments);
        let compared = |quick: bool| {
            let cases = experiments.clone().flat_map(|experiment| experiment.cases(quick));
            cases.flat_map(|case| case.cells).filter(|cell| cell.paper.or(cell.reference).is_some()).count()
        };
        assert!(compared(true) == 0 && compared(false) > 0);
    }

    #[test]
    fn a_cut_down_run_that_misses_its_kept_number_falls_short() {
        const TEXT: &str = "[data]\nsource = \"linear\"\nclients = 4\nsamples = 8\ndimension = 2\n[model]\nkind = \"linear\"\n\
                            [[method]]\nname = \"fedavg\"\nrounds = 2\nstep = 0.1";
        fn cases(_: bool) -> Vec<Case> {
            vec![Case::new("a", Vec::new(), [2; 2], vec![Cell::metric("error", "fedavg")])]
        }
        static ONE: [Reproduction; 1] = [Reproduction { name: "tiny", title: "", text: TEXT, cases }];
        let run = |recorded: String| {
            let folder = tempfile::tempdir().unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let mut noted = Noted { skipped: Vec::new(), began: Vec::new(), stop: Arc::new(AtomicBool::new(false)) };
            let plan = Plan { experiment: None, quick: true, repeats: None, folder: folder.path(), threads: 1, stop };
            let recorded: &'static str = recorded.leak();
            let paper = Paper { name: "p", title: "", experiments: &ONE, recorded: [recorded; 2] };
            reproduce(&paper, &plan, &mut noted).unwrap()
        };
        let first = run(r#"{"paper": "p", "experiments": []}"#.into());
        assert_eq!((first[0].cells[0].recorded, first[0].cells[0].within), (None, None));
        let kept = Recorded::of("p", &first);
        let again = run(kept.to_json().unwrap());
        assert_eq!((again[0].cells[0].recorded, again[0].cells[0].within), (first[0].cells[0].ours, Some(true)));
        let mut harmed = first.clone();
        harmed[0].cells[0].ours = first[0].cells[0].ours.map(|ours| 0.99 * ours);
        assert_eq!(run(Recorded::of("p", &harmed).to_json().unwrap())[0].cells[0].within, Some(false));
    }

    fn cells(paper: &'static Paper, quick: bool) -> Vec<(&'static str, String)> {
        let of = |experiment: &'static Reproduction| {
            let cells = experiment.cases(quick).into_iter().flat_map(|case| case.cells);
            cells.map(|cell| (experiment.name, cell.name)).collect::<Vec<_>>()
        };
        paper.experiments.iter().flat_map(of).collect()
    }

    #[test]
    fn no_recorded_number_is_read_by_nobody() {
        let mut lost = Vec::new();
        for (paper, quick) in PAPERS.iter().flat_map(|paper| [(paper, false), (paper, true)]) {
            let (recorded, known) = (paper.recorded(quick).unwrap(), cells(paper, quick));
            for (experiment, cell) in recorded.names() {
                let readers = known.iter().filter(|(of, name)| *of == experiment && name == cell).count();
                let twice = recorded.names().filter(|name| *name == (experiment, cell)).count() > 1;
                if readers != 1 || twice {
                    lost.push(format!("{} {experiment}: {cell}", paper.name));
                }
            }
        }
        assert!(lost.is_empty(), "{lost:#?}");
    }

    #[test]
    fn every_cut_down_cell_is_compared_with_a_kept_number() {
        // Their tables are made by a script that wants PyTorch.
        let made_by_hand = ["e3-mnist", "e3-fashion-mnist"];
        for paper in PAPERS {
            let recorded = paper.recorded(true).unwrap();
            for (experiment, cell) in cells(paper, true) {
                let kept = recorded.find(experiment, &cell).is_some();
                assert!(kept || made_by_hand.contains(&experiment), "{} {experiment}: {cell}", paper.name);
            }
        }
    }

    #[test]
    fn every_case_of_every_paper_can_be_read() {
        for paper in PAPERS {
            for reproduction in paper.experiments {
                for quick in [true, false] {
                    for case in reproduction.cases(quick) {
                        let parsed = reproduction.experiment(&case, 0, &[]);
                        assert!(parsed.is_ok(), "{} {}: {}", reproduction.name, case.name, parsed.err().unwrap());
                    }
                }
            }
        }
    }
}
