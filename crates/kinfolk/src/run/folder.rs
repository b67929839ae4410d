//! The run folder while a run is going on: what is there is neither overwritten nor mixed with something else.

use super::{Current, Finished};
use crate::data::schema::Schema;
use crate::error::{Error, ErrorKind, Result};
use crate::experiment::Experiment;
use crate::report::files::{is_partial, write_atomically, write_record};
use crate::report::folder::NewFolder;
use crate::report::{Record, RepeatSummary};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a run writes into its folder, after experiment.toml.
const OUR_NAMES: [&str; 8] =
    ["checkpoint", "models", "rounds.csv", "clients.csv", "components.csv", "rows.csv", "report.html", "summary.json"];

/// The run folder.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// What a run that had ended before left.
    pub(super) finished: Option<Record>,
    /// Kept so that an experiment that is refused leaves no empty folder behind.
    new: Option<NewFolder>,
}

impl Folder {
    /// Looks at what is there, and refuses to overwrite or to mix.
    pub(super) fn open(path: &Path, experiment: &Experiment, resume: bool) -> Result<Self> {
        let mut folder = Self { path: path.to_path_buf(), finished: None, new: None };
        let before = std::fs::read_to_string(path.join("experiment.toml")).ok();
        let is_finished = path.join("summary.json").exists();
        match (before, resume) {
            // Killed before the first file: there is nothing to lose by beginning anew.
            (None, true) if path.is_dir() && !is_finished => Ok(folder),
            (None, true) => Err(Error::settings(format!("{}: nothing to resume here", path.display()))
                .hint("run without --resume first, or name the right folder with --out")),
            (None, false) => {
                folder.new = Some(NewFolder::claim(path, &OUR_NAMES)?);
                Ok(folder)
            }
            (Some(_), false) if is_finished => {
                Err(Error::settings(format!("{}: holds a finished run", path.display()))
                    .hint("choose another folder with --out"))
            }
            (Some(_), false) => Err(Error::settings(format!("{}: holds an unfinished run", path.display()))
                .hint("go on with --resume, or choose another folder with --out")),
            (Some(before), true) => {
                let now = experiment.to_toml();
                if before != now {
                    return Err(Error::settings(format!(
                        "{}: settings have changed\n{}",
                        path.display(),
                        differences(&before, &now)
                    ))
                    .hint("resume with the same settings, or start anew in another folder"));
                }
                remove_partial_files(path)?;
                if is_finished {
                    folder.finished = Some(folder.read_finished()?);
                }
                Ok(folder)
            }
        }
    }

    fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    pub(super) fn begin(&self, experiment: &Experiment, schema: &Schema) -> Result<()> {
        let checkpoint = self.checkpoint();
        std::fs::create_dir_all(&checkpoint).map_err(|error| Error::io("creating", &checkpoint, error))?;
        if experiment.settings.text("save_models") != "none" {
            let models = self.path.join("models");
            std::fs::create_dir_all(&models).map_err(|error| Error::io("creating", &models, error))?;
            let text =
                serde_json::to_vec_pretty(schema).map_err(|e| Error::new(ErrorKind::Io, format!("schema: {e}")))?;
            write_atomically(&models.join("schema.json"), &text)?;
        }
        write_atomically(&self.path.join("experiment.toml"), experiment.to_toml().as_bytes())
    }

    fn file(&self, kind: &str, label: &str, seed: u64) -> PathBuf {
        self.checkpoint().join(format!("{label}-{seed}.{kind}"))
    }

    fn write<S: Serialize>(&self, path: &Path, value: &S) -> Result<()> {
        let bytes = postcard::to_stdvec(value)
            .map_err(|error| Error::new(ErrorKind::Io, format!("writing {}: {error}", path.display())))?;
        write_atomically(path, &bytes)
    }

    fn read<S: serde::de::DeserializeOwned>(&self, path: &Path) -> Result<Option<S>> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("reading", path, error)),
        };
        postcard::from_bytes(&bytes).map(Some).map_err(|error| {
            Error::new(ErrorKind::Io, format!("{}: a broken checkpoint: {error}", path.display()))
                .hint("remove this file; what it held is then run again")
        })
    }

    pub(super) fn write_current(&self, label: &str, seed: u64, current: &Current) -> Result<()> {
        self.write(&self.file("current", label, seed), current)
    }

    pub(super) fn read_current(&self, label: &str, seed: u64, origin: &str) -> Result<Option<Current>> {
        let current: Option<Current> = self.read(&self.file("current", label, seed))?;
        current.as_ref().map_or(Ok(()), |current| self.same_origin(&current.origin, origin))?;
        Ok(current)
    }

    fn same_origin(&self, before: &str, now: &str) -> Result<()> {
        if before == now {
            return Ok(());
        }
        Err(Error::settings(format!(
            "{}: the data or the program has changed since this run began",
            self.path.display()
        ))
        .hint("start anew in another folder"))
    }

    pub(super) fn write_done(&self, label: &str, seed: u64, finished: &Finished) -> Result<()> {
        self.write(&self.file("done", label, seed), finished)?;
        // Its place in the middle is no longer of use; a leftover would do no harm.
        let _ = std::fs::remove_file(self.file("current", label, seed));
        Ok(())
    }

    pub(super) fn read_done(&self, label: &str, seed: u64, origin: &str) -> Result<Option<(RepeatSummary, Finished)>> {
        let Some(finished) = self.read::<Finished>(&self.file("done", label, seed))? else { return Ok(None) };
        self.same_origin(&finished.origin, origin)?;
        let summary = serde_json::from_str(&finished.summary)
            .map_err(|error| Error::new(ErrorKind::Io, format!("reading a checkpoint of {label}: {error}")))?;
        Ok(Some((summary, finished)))
    }

    pub(super) fn finish(&self, record: &Record) -> Result<()> {
        write_record(&self.path, record)?;
        self.remove_checkpoint()
    }

    fn remove_checkpoint(&self) -> Result<()> {
        let checkpoint = self.checkpoint();
        let failed = |error| Error::io("removing", &checkpoint, error);
        for entry in std::fs::read_dir(&checkpoint).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if is_partial(&path) || path.extension().is_some_and(|kind| kind == "done" || kind == "current") {
                std::fs::remove_file(&path).map_err(failed)?;
            }
        }
        std::fs::remove_dir(&checkpoint).map_err(failed)
    }

    /// A run that was finished before: its summary. A checkpoint left by a kill at the last moment goes away.
    fn read_finished(&self) -> Result<Record> {
        let path = self.path.join("summary.json");
        let text = std::fs::read_to_string(&path).map_err(|error| Error::io("reading", &path, error))?;
        let summary = serde_json::from_str(&text)
            .map_err(|error| Error::new(ErrorKind::Io, format!("reading {}: {error}", path.display())))?;
        if self.checkpoint().exists() {
            self.remove_checkpoint()?;
        }
        let (rounds, clients, mixtures, comparisons) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Ok(Record { summary, rounds, clients, mixtures, comparisons })
    }
}

/// The settings in which two experiment files differ, one a line.
fn differences(before: &str, now: &str) -> String {
    let (before, now) = (flat(before), flat(now));
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let line = |key: &String| match (before.get(key), now.get(key)) {
        (Some(old), Some(new)) if old == new => None,
        (Some(old), Some(new)) => Some(format!("  {key}: was {old}, is {new}")),
        (Some(old), None) => Some(format!("  {key}: was {old}, is gone")),
        (None, Some(new)) => Some(format!("  {key}: is new, {new}")),
        (None, None) => None,
    };
    let lines: Vec<String> = keys.into_iter().filter_map(line).collect();
    if lines.is_empty() { "  the methods stand in another order".into() } else { lines.join("\n") }
}

/// Every setting of an experiment file under its dotted name, methods by their label.
fn flat(text: &str) -> BTreeMap<String, String> {
    fn walk(place: &str, value: &toml::Value, found: &mut BTreeMap<String, String>) {
        match value {
            toml::Value::Table(table) => {
                table.iter().for_each(|(key, value)| walk(&format!("{place}.{key}"), value, found))
            }
            toml::Value::Array(list) if list.iter().any(toml::Value::is_table) => {
                for (number, value) in list.iter().enumerate() {
                    let label = value.get("label").and_then(toml::Value::as_str);
                    walk(&format!("{place}.{}", label.unwrap_or(&number.to_string())), value, found);
                }
            }
            value => drop(found.insert(place.to_string(), value.to_string())),
        }
    }
    let mut found = BTreeMap::new();
    match toml::from_str::<toml::Table>(text) {
        Ok(table) => table.iter().for_each(|(key, value)| walk(key, value, &mut found)),
        Err(_) => drop(found.insert("experiment.toml".into(), "not TOML".into())),
    }
    found
}

/// Removes what a kill in the middle of a write left behind.
fn remove_partial_files(folder: &Path) -> Result<()> {
    let fault = |error| Error::io("cleaning up", folder, error);
    for entry in std::fs::read_dir(folder).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        if path.is_dir() {
            remove_partial_files(&path)?;
        } else if is_partial(&path) {
            std::fs::remove_file(&path).map_err(fault)?;
        }
    }
    Ok(())
}
