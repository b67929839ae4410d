//! The arena: every suitable method on every table, with one budget of rounds, and one of bytes.
//!
//! A [`Table`] is an experiment file with a section `[arena]`: its title, its protocol, the published numbers. Each method of it is run
//! alone, seed by seed, and what it found is kept in a folder, so that a new method joins a table by running it alone.

mod page;

pub use page::page;

use kinfolk::compute::Backend;
use kinfolk::data::cache;
use kinfolk::disk::lock::Lock;
use kinfolk::disk::write_atomically;
use kinfolk::experiment::{Experiment, Override};
use kinfolk::record::Record;
use kinfolk::record::summary::{is_higher_better, mean, standard_deviation};
use kinfolk::rng::Key;
use kinfolk::run::{Options, Watch, run};
use kinfolk::settings::unknown_name;
use kinfolk::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The tables by name, with their files.
const TABLES: [(&str, &str); 8] = [
    ("digits", include_str!("tables/digits.toml")),
    ("schools", include_str!("tables/schools.toml")),
    ("hospitals", include_str!("tables/hospitals.toml")),
    ("flamby", include_str!("tables/flamby.toml")),
    ("fashion-dirichlet", include_str!("tables/fashion-dirichlet.toml")),
    ("fashion-labels", include_str!("tables/fashion-labels.toml")),
    ("fashion-groups", include_str!("tables/fashion-groups.toml")),
    ("niid-bench", include_str!("tables/niid-bench.toml")),
];

/// A table to be judged by.
pub struct Table {
    /// Its name on the command line.
    pub name: &'static str,
    /// What `[arena]` says.
    pub about: About,
    /// The experiment.
    text: String,
    /// How every method trains that has such settings.
    training: toml::Table,
    labels: Vec<String>,
    quick: bool,
}

/// What a table says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// Its title.
    pub title: String,
    /// How it is done, and where that differs from what is published.
    pub protocol: String,
    /// Number of seeds.
    pub seeds: u64,
    /// Megabytes that all clients together may send and receive, for the column of results within them.
    pub megabytes: f64,
    /// Whether rows are averaged, not clients, as in what is published.
    #[serde(default)]
    pub pooled: bool,
    /// Settings to change in the quick version.
    #[serde(default)]
    pub quick: Vec<String>,
    /// Published numbers by label.
    #[serde(default)]
    pub published: BTreeMap<String, f64>,
    /// Where these come from.
    #[serde(default)]
    pub source: String,
}

/// What one method found on one seed, as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    /// Digest of the experiment, its data and the program's version.
    digest: String,
    status: String,
    reason: Option<String>,
    metric: Option<String>,
    mean: Option<f64>,
    worst_decile: Option<f64>,
    /// The last result before the budget of bytes was spent.
    within: Option<f64>,
    /// Every client's metric by its id.
    clients: BTreeMap<String, f64>,
    megabytes: f64,
    seconds: f64,
    rounds: usize,
    clusters: Option<usize>,
    ari: Option<f64>,
}

/// A method's line in a table: means over seeds.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// The method's label.
    pub method: String,
    /// Number of seeds it ended well on, of all that were run.
    pub seeds: [usize; 2],
    /// Why it did not, on one of the others.
    pub reason: Option<String>,
    /// Mean over clients and seeds.
    pub mean: Option<f64>,
    /// Its standard deviation over seeds.
    pub sd: Option<f64>,
    /// The published number.
    pub published: Option<f64>,
    /// Mean of the worst tenth of the clients.
    pub worst_decile: Option<f64>,
    /// Share of the clients that would be better off alone.
    pub better_alone: Option<f64>,
    /// The mean when the budget of bytes was spent.
    pub within: Option<f64>,
    /// Megabytes of all clients.
    pub megabytes: Option<f64>,
    /// Seconds of training.
    pub seconds: Option<f64>,
    /// Clusters found.
    pub clusters: Option<f64>,
    /// Adjusted Rand index with the true clusters.
    pub ari: Option<f64>,
}

/// A table with its lines, the best first.
#[derive(Debug, Clone, Serialize)]
pub struct Filled {
    /// Its name.
    pub name: String,
    /// What it says of itself.
    pub about: About,
    /// Whether it is the quick version.
    pub quick: bool,
    /// The metric.
    pub metric: String,
    /// Whether more of it is better.
    pub higher_is_better: bool,
    /// The methods.
    pub lines: Vec<Line>,
}

/// What to run, and where.
pub struct Wishes<'a> {
    /// Labels of methods or method names; all of the table's where empty. A method that the table does not have is run with its
    /// defaults and the table's way of training.
    pub only: &'a [String],
    /// Seeds instead of the table's number.
    pub seeds: Option<u64>,
    /// Where results are kept.
    pub folder: &'a Path,
    /// Threads; 0 for one a core.
    pub threads: usize,
    /// What clients compute on.
    pub backend: Arc<dyn Backend>,
    /// Raised to stop.
    pub stop: Arc<AtomicBool>,
}

/// Shows the progress of one method on one seed.
pub type Show<'a> = &'a mut dyn FnMut(&str, &str, u64) -> Box<dyn Watch>;

/// The names of all tables.
pub fn names() -> Vec<&'static str> {
    TABLES.iter().map(|(name, _)| *name).collect()
}

/// The table of this name, in full or cut down.
pub fn table(name: &str, quick: bool) -> Result<Table> {
    let found = TABLES.iter().find(|(known, _)| *known == name);
    let (name, text) = found.ok_or_else(|| unknown_name("arena", name, &names()))?;
    Table::read(name, text, quick)
}

impl Table {
    fn read(name: &'static str, text: &str, quick: bool) -> Result<Self> {
        let broken = |error: &dyn std::fmt::Display| Error::data(format!("arena {name}: {error}"));
        let data = cache::folder()?.display().to_string();
        let mut file: toml::Table = toml::from_str(&text.replace("{data}", &data)).map_err(|error| broken(&error))?;
        let about = file.remove("arena").ok_or_else(|| broken(&"no [arena]"))?;
        let about: About = about.try_into().map_err(|error| broken(&error))?;
        // What `[training]` says goes into every method that has such a setting.
        let training = file.remove("training").and_then(|training| training.as_table().cloned()).unwrap_or_default();
        let mut labels = Vec::new();
        for entry in file.get_mut("method").and_then(toml::Value::as_array_mut).into_iter().flatten() {
            let Some(entry) = entry.as_table_mut() else { continue };
            let method = entry.get("name").and_then(toml::Value::as_str).unwrap_or_default().to_string();
            fill(entry, &method, &training);
            let label = entry.get("label").and_then(toml::Value::as_str).unwrap_or(&method);
            labels.push(label.to_string());
        }
        file.insert("name".into(), format!("arena-{name}").into());
        let about = About { seeds: if quick { 1 } else { about.seeds }, ..about };
        let text = toml::to_string(&file).map_err(|error| broken(&error))?;
        Ok(Self { name, about, text, training, labels, quick })
    }

    /// Adds a method that the table does not have, with its defaults.
    fn add(&mut self, name: &str) -> Result<()> {
        if kinfolk::methods::kind(name).is_none() {
            let known: Vec<&str> = kinfolk::methods::METHODS.iter().map(|kind| kind.name).collect();
            return Err(unknown_name("--only", name, &known));
        }
        let mut file: toml::Table = toml::from_str(&self.text).map_err(|error| Error::data(error.to_string()))?;
        let mut entry = toml::Table::from_iter([("name".to_string(), toml::Value::from(name))]);
        fill(&mut entry, name, &self.training);
        let methods = file.get("method").and_then(toml::Value::as_array).cloned().unwrap_or_default();
        file.insert("method".into(), methods.into_iter().chain([entry.into()]).collect::<Vec<_>>().into());
        self.labels.push(name.to_string());
        self.text = toml::to_string(&file).map_err(|error| Error::data(error.to_string()))?;
        Ok(())
    }

    /// The experiment of one method on one seed, with the methods that it goes on from.
    fn experiment(&self, label: &str, seed: u64) -> Result<Experiment> {
        let mut file: toml::Table = toml::from_str(&self.text).map_err(|error| Error::data(error.to_string()))?;
        let methods = file.get("method").and_then(toml::Value::as_array).cloned().unwrap_or_default();
        let text_of =
            |entry: &toml::Value, name: &str| entry.get(name).and_then(toml::Value::as_str).map(str::to_string);
        let label_of = |entry: &toml::Value| text_of(entry, "label").or_else(|| text_of(entry, "name"));
        let mut wanted = vec![label.to_string()];
        for entry in methods.iter().rev() {
            if label_of(entry).is_some_and(|label| wanted.contains(&label)) {
                wanted.extend(text_of(entry, "over").into_iter().chain(text_of(entry, "groups")));
            }
        }
        let kept = methods.into_iter().filter(|entry| label_of(entry).is_some_and(|label| wanted.contains(&label)));
        file.insert("method".into(), kept.collect::<Vec<_>>().into());
        let text = toml::to_string(&file).map_err(|error| Error::data(error.to_string()))?;
        let mut changes = vec![Override::top("seed", seed as i64), Override::top("repeat", 1)];
        for change in self.about.quick.iter().filter(|_| self.quick) {
            // A change for all methods is one for each that has the setting.
            match change.strip_prefix("method.*.") {
                None => changes.push(Override::parse(change)?),
                Some(rest) => {
                    let name = rest.split('=').next().unwrap_or_default();
                    let has = |entry: &&toml::Value| {
                        let kind = text_of(entry, "name").and_then(|name| kinfolk::methods::kind(&name));
                        kind.is_some_and(|kind| kind.settings.iter().any(|setting| setting.name == name))
                    };
                    for entry in file["method"].as_array().into_iter().flatten().filter(has) {
                        let label = label_of(entry).unwrap_or_default();
                        changes.push(Override::parse(&format!("method.{label}.{rest}"))?);
                    }
                }
            }
        }
        Experiment::parse(&format!("arena-{}", self.name), &text, &changes)
    }

    /// Why it cannot be run here, if so: its data is missing.
    pub fn obstacle(&self) -> Result<Option<Error>> {
        let Some(label) = self.labels.first() else { return Ok(None) };
        let experiment = self.experiment(label, 0)?;
        Ok(crate::missing_data("arena", &experiment))
    }

    fn place(&self, folder: &Path, label: &str, seed: u64) -> PathBuf {
        let name = if self.quick { format!("{}-quick", self.name) } else { self.name.to_string() };
        folder.join(name).join(format!("{label}-{seed}.json"))
    }

    /// What is kept of a method on a seed, if it is of this very experiment.
    fn kept(&self, folder: &Path, label: &str, seed: u64) -> Result<Option<Kept>> {
        let Ok(bytes) = std::fs::read(self.place(folder, label, seed)) else { return Ok(None) };
        let digest = self.digest(label, seed)?;
        Ok(serde_json::from_slice(&bytes).ok().filter(|kept: &Kept| kept.digest == digest))
    }

    fn digest(&self, label: &str, seed: u64) -> Result<String> {
        let text = self.experiment(label, seed)?.to_toml();
        Ok(format!("{:016x}", Key::new(seed).word(env!("CARGO_PKG_VERSION")).word(&text).seed()))
    }

    fn run_one(&self, label: &str, seed: u64, wishes: &Wishes, watch: &mut dyn Watch) -> Result<Kept> {
        let experiment = self.experiment(label, seed)?;
        let folder = self.place(wishes.folder, label, seed).with_extension("run");
        let resume = folder.join("experiment.toml").exists();
        let options = Options {
            folder: Some(folder.clone()),
            threads: wishes.threads,
            backend: wishes.backend.clone(),
            resume,
            stop: wishes.stop.clone(),
            ..Options::default()
        };
        let record = run(&experiment, &options, watch)?;
        let kept = self.read_off(&record, label, seed)?;
        let text =
            serde_json::to_vec_pretty(&kept).map_err(|error| Error::new(ErrorKind::Io, format!("{label}: {error}")))?;
        write_atomically(&self.place(wishes.folder, label, seed), &text)?;
        // All that is wanted of it is kept.
        let _ = std::fs::remove_dir_all(folder);
        Ok(kept)
    }

    fn read_off(&self, record: &Record, label: &str, seed: u64) -> Result<Kept> {
        let method = record.summary.methods.iter().find(|method| method.label == label);
        let repeat = method.and_then(|method| method.repeats.first());
        let repeat = repeat.ok_or_else(|| Error::data(format!("{label} left no result")))?;
        let rounds = || record.rounds.iter().filter(|round| round.label == label);
        // What the methods cost that it goes on from is part of what it costs.
        let others = record.summary.methods.iter().filter(|method| method.label != label);
        let others: Vec<_> = others.filter_map(|method| method.repeats.first()).collect();
        let before: u64 = others.iter().map(|repeat| repeat.bytes_down + repeat.bytes_up).sum();
        let (mut spent, mut within) = (before, None);
        for round in rounds() {
            if round.phase != "evaluate" {
                spent += round.bytes_down + round.bytes_up;
            }
            if spent as f64 / 1e6 <= self.about.megabytes {
                within = round.metric.or(within);
            }
        }
        let clients = record.clients.iter().filter(|client| client.label == label);
        Ok(Kept {
            digest: self.digest(label, seed)?,
            status: repeat.status.clone(),
            reason: repeat.reason.clone(),
            metric: repeat.metric.as_ref().map(|metric| metric.name.clone()),
            mean: repeat.metric.as_ref().map(|metric| if self.about.pooled { metric.pooled } else { metric.mean }),
            worst_decile: repeat.metric.as_ref().and_then(|metric| metric.worst_decile),
            // Rounds have the mean over clients alone.
            within: within.filter(|_| !self.about.pooled),
            clients: clients.filter_map(|client| Some((client.client.clone(), client.metric?))).collect(),
            megabytes: (before + repeat.bytes_down + repeat.bytes_up) as f64 / 1e6,
            seconds: others.iter().map(|repeat| repeat.seconds).sum::<f64>() + repeat.seconds,
            rounds: repeat.rounds,
            clusters: repeat.clusters,
            ari: repeat.ari,
        })
    }

    /// The table with all that is kept of it, if anything is.
    pub fn kept_lines(&self, folder: &Path) -> Result<Option<Filled>> {
        let filled = self.filled(folder, self.about.seeds)?;
        Ok((!filled.lines.is_empty()).then_some(filled))
    }

    /// Runs what is wanted and not kept yet, and fills the table with all that is kept.
    pub fn fill(&mut self, wishes: &Wishes, show: Show) -> Result<Filled> {
        let place = self.place(wishes.folder, "", 0);
        let place = place.parent().unwrap_or(wishes.folder).to_path_buf();
        std::fs::create_dir_all(&place).map_err(|error| Error::io("creating", &place, error))?;
        let _alone = Lock::take(&place)?;
        // Methods that joined the table before.
        for entry in std::fs::read_dir(&place).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().to_string();
            let label = name.strip_suffix(".json").and_then(|name| name.rsplit_once('-')).map(|(label, _)| label);
            if let Some(label) = label
                && !self.labels.iter().any(|known| known == label)
                && kinfolk::methods::kind(label).is_some()
            {
                self.add(label)?;
            }
        }
        for name in wishes.only.iter().filter(|name| !self.labels.contains(name)).cloned().collect::<Vec<_>>() {
            self.add(&name)?;
        }
        let seeds = wishes.seeds.unwrap_or(self.about.seeds);
        // Faults of any of them before the first one runs.
        let wanted = |label: &&String| wishes.only.is_empty() || wishes.only.contains(label);
        let mut faults = Vec::new();
        for label in self.labels.iter().filter(wanted) {
            faults.extend(self.experiment(label, 0).err());
        }
        kinfolk::settings::finish(faults)?;
        for label in self.labels.iter().filter(wanted) {
            for seed in 0..seeds {
                if self.kept(wishes.folder, label, seed)?.is_none() {
                    self.run_one(label, seed, wishes, &mut *show(self.name, label, seed))?;
                }
            }
        }
        self.filled(wishes.folder, seeds)
    }

    fn filled(&self, folder: &Path, seeds: u64) -> Result<Filled> {
        let mut all: Vec<(String, Vec<Kept>)> = Vec::new();
        for label in &self.labels {
            let mut kept = Vec::new();
            for seed in 0..seeds {
                kept.extend(self.kept(folder, label, seed)?);
            }
            if !kept.is_empty() {
                all.push((label.clone(), kept));
            }
        }
        let metric = all.iter().flat_map(|(_, kept)| kept).find_map(|kept| kept.metric.clone()).unwrap_or_default();
        let higher = is_higher_better(&metric);
        let alone: Vec<Kept> =
            all.iter().find(|(label, _)| label == "local").map(|(_, kept)| kept.clone()).unwrap_or_default();
        let mut lines: Vec<Line> = all.iter().map(|(label, kept)| self.line(label, kept, &alone, higher)).collect();
        let rank = |line: &Line| line.mean.map_or(f64::INFINITY, |mean| if higher { -mean } else { mean });
        lines.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
        Ok(Filled {
            name: self.name.into(),
            about: self.about.clone(),
            quick: self.quick,
            metric,
            higher_is_better: higher,
            lines,
        })
    }

    fn line(&self, label: &str, kept: &[Kept], alone: &[Kept], higher: bool) -> Line {
        let done: Vec<&Kept> =
            kept.iter().filter(|kept| ["done", "not-converged"].contains(&kept.status.as_str())).collect();
        let average = |of: &dyn Fn(&Kept) -> Option<f64>| {
            let values: Vec<f64> = done.iter().filter_map(|kept| of(kept)).collect();
            (!values.is_empty() && values.len() == done.len()).then(|| mean(&values))
        };
        let means: Vec<f64> = done.iter().filter_map(|kept| kept.mean).collect();
        let mut worse = (0usize, 0usize);
        for (own, alone) in kept.iter().zip(alone).filter(|_| label != "local") {
            for (client, metric) in &own.clients {
                if let Some(other) = alone.clients.get(client) {
                    worse.0 += usize::from(if higher { other > metric } else { other < metric });
                    worse.1 += 1;
                }
            }
        }
        Line {
            method: label.into(),
            seeds: [done.len(), kept.len()],
            reason: kept.iter().find(|kept| kept.mean.is_none()).and_then(|kept| kept.reason.clone()),
            mean: average(&|kept| kept.mean),
            sd: standard_deviation(&means),
            published: self.about.published.get(label).copied(),
            worst_decile: average(&|kept| kept.worst_decile),
            better_alone: (worse.1 > 0).then(|| worse.0 as f64 / worse.1 as f64),
            within: average(&|kept| kept.within),
            megabytes: average(&|kept| Some(kept.megabytes)),
            seconds: average(&|kept| Some(kept.seconds)),
            clusters: average(&|kept| kept.clusters.map(|clusters| clusters as f64)),
            ari: average(&|kept| kept.ari),
        }
    }
}

/// Gives a method those of these settings that it has, but for its own.
fn fill(entry: &mut toml::Table, method: &str, training: &toml::Table) {
    let Some(kind) = kinfolk::methods::kind(method) else { return };
    for (name, value) in training {
        if kind.settings.iter().any(|setting| setting.name == name) && !entry.contains_key(name) {
            entry.insert(name.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests;
