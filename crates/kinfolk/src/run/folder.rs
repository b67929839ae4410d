//! The run folder during a run: nothing in it is overwritten or mixed with another run's files.

use super::files::{CHECKPOINT, EXPERIMENT, FILES, MODELS, SUMMARY, is_ours, write_record};
use super::*;
use crate::disk::folder::NewFolder;
use crate::disk::lock::Lock;
use crate::disk::partial_of;
use crate::error::option;
use crate::modelfile::CLIENT_FILES;
use crate::record::table::read_rows;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::io::ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound};
use std::path::PathBuf;

/// Bytes of the digest at the start of every checkpoint.
const DIGEST: usize = 32;

/// What a checkpoint held, and what there is to say of going on from it.
pub(super) struct Resumed<S> {
    pub(super) value: S,
    pub(super) note: Option<String>,
}

/// The run folder, held by this process alone.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    experiment: String,
    /// The record of a run that had ended before.
    pub(super) finished: Option<Record>,
    /// Removes an empty folder again if the experiment is refused.
    _new: Option<NewFolder>,
    /// None for a run that has ended and left nothing to clean up, which is only read.
    _lock: Option<Lock>,
}

impl Folder {
    /// Opens a new folder, or one to resume, and refuses all others.
    pub(super) fn open(path: &Path, experiment: &Experiment, resume: bool) -> Result<Self> {
        let (before, is_finished) = contents(path);
        let folder = |_new: Option<NewFolder>, _lock: Option<Lock>| Self {
            path: path.to_path_buf(),
            experiment: experiment.to_toml(),
            finished: None,
            _new,
            _lock,
        };
        let refuse = |what: &str, hint: String| Err(Error::settings(format!("{}: {what}", path.display())).hint(hint));
        let (out, go_on) = (option("out"), option("resume"));
        match (before, resume) {
            (None, true) if !path.is_dir() || is_finished => {
                let hint = format!("run without {go_on} first, or name the right folder with {out}");
                refuse("nothing to resume here", hint)
            }
            (None, false) => Ok(folder(Some(NewFolder::claim(path, FILES.iter().map(|file| file.name))?), None)),
            (Some(_), false) if is_finished => {
                refuse("holds a finished run", format!("choose another folder with {out}"))
            }
            (Some(_), false) => {
                // A run in progress cannot be resumed.
                drop(Lock::take(path)?);
                let hint = format!("go on with {go_on}, or choose another folder with {out}");
                refuse("holds an unfinished run", hint)
            }
            (_, true) => {
                let is_read = is_finished && !path.join(CHECKPOINT).exists();
                let lock = if is_read { None } else { Some(Lock::take(path)?) };
                let mut folder = folder(None, lock);
                // Read again under the lock.
                let (before, is_finished) = contents(path);
                if let Some(before) = before.filter(|before| *before != folder.experiment) {
                    let changes = differences(&before, &folder.experiment);
                    let hint = "resume with the same settings, or start anew in another folder";
                    return refuse(&format!("settings have changed\n{changes}"), hint.into());
                }
                if !is_read {
                    remove_partial_files(path)?;
                }
                if is_finished {
                    folder.finished = Some(folder.read_finished()?);
                }
                // A run that was killed before its first file simply starts again.
                Ok(folder)
            }
        }
    }

    fn checkpoint(&self) -> PathBuf {
        self.path.join(CHECKPOINT)
    }

    pub(super) fn begin(&self, experiment: &Experiment, schema: &Schema) -> Result<()> {
        let checkpoint = self.checkpoint();
        std::fs::create_dir_all(&checkpoint).map_err(|error| Error::io("creating", &checkpoint, error))?;
        if experiment.top.save_models != SaveModels::None {
            let models = self.path.join(MODELS);
            std::fs::create_dir_all(&models).map_err(|error| Error::io("creating", &models, error))?;
            let text =
                serde_json::to_vec_pretty(schema).map_err(|e| Error::new(ErrorKind::Io, format!("schema: {e}")))?;
            write_atomically(&models.join("schema.json"), &text)?;
        }
        write_atomically(&self.path.join(EXPERIMENT), self.experiment.as_bytes())
    }

    pub(super) fn current(&self, label: &str, seed: u64) -> PathBuf {
        self.checkpoint().join(format!("{label}-{seed}.current"))
    }

    /// Who was met on other machines.
    pub(super) fn met(&self, seed: u64) -> PathBuf {
        self.checkpoint().join(format!("{seed}.met"))
    }

    pub(super) fn done(&self, label: &str, seed: u64) -> PathBuf {
        self.checkpoint().join(format!("{label}-{seed}.done"))
    }

    /// Digest of a checkpoint's name, experiment and content: altered files, and those of other runs, are refused.
    fn digest(&self, path: &Path, content: &[u8]) -> [u8; DIGEST] {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let mut hash = Sha256::new();
        for part in [name, self.experiment.as_bytes(), content] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// Writes a checkpoint. `origin` identifies the data and the program.
    pub(super) fn write(&self, path: &Path, origin: &str, value: &impl Serialize) -> Result<()> {
        let mut bytes = postcard::to_extend(&(origin, instructions()?, value), vec![0; DIGEST])
            .map_err(|error| Error::io("writing", path, error))?;
        let digest = self.digest(path, &bytes[DIGEST..]);
        bytes[..DIGEST].copy_from_slice(&digest);
        write_atomically(path, &bytes)
    }

    /// Reads a checkpoint, if any, which must be of the same origin.
    pub(super) fn read<S: DeserializeOwned>(&self, path: &Path, origin: &str) -> Result<Option<Resumed<S>>> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == NotFound => return Ok(None),
            Err(error) => return Err(Error::io("reading", path, error)),
        };
        let content = match bytes.split_first_chunk::<DIGEST>() {
            Some((digest, content)) if *digest == self.digest(path, content) => content,
            _ => return Err(broken(path, "its content does not match its digest")),
        };
        let fault = |error: postcard::Error| broken(path, &error.to_string());
        let ((before, cpu), value) = postcard::take_from_bytes::<(String, String)>(content).map_err(fault)?;
        if before != origin {
            let message = format!("{}: the data or the program has changed since this run began", self.path.display());
            return Err(Error::settings(message).hint("start anew in another folder"));
        }
        let now = instructions()?;
        let note = (cpu != now).then(|| format!("begun with {cpu}, resumed with {now}: last digits may differ"));
        Ok(Some(Resumed { value: postcard::from_bytes(value).map_err(fault)?, note }))
    }

    pub(super) fn finish(&self, record: &Record) -> Result<()> {
        write_record(&self.path, record)?;
        self.remove_checkpoint()
    }

    /// Removes the checkpoints, and their folder unless it holds other files.
    fn remove_checkpoint(&self) -> Result<()> {
        let checkpoint = self.checkpoint();
        remove_where(&checkpoint, &is_checkpoint)?;
        match std::fs::remove_dir(&checkpoint) {
            Err(error) if !matches!(error.kind(), NotFound | NotADirectory | DirectoryNotEmpty) => {
                Err(Error::io("removing", &checkpoint, error))
            }
            _ => Ok(()),
        }
    }

    /// Summary, rounds and clients of a run that was finished before. Removes a checkpoint left by a kill at the last moment.
    fn read_finished(&self) -> Result<Record> {
        let path = self.path.join(SUMMARY);
        let text = std::fs::read_to_string(&path).map_err(|error| Error::io("reading", &path, error))?;
        let summary = serde_json::from_str(&text).map_err(|error| Error::io("reading", &path, error))?;
        let (rounds, clients) = (read_rows(&self.path)?, read_rows(&self.path)?);
        self.remove_checkpoint()?;
        Ok(Record { summary, rounds, clients, ..Record::default() })
    }
}

fn broken(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Io, format!("{}: a broken checkpoint: {why}", path.display()))
        .hint("remove this file and resume; what it held is then run again")
}

/// The settings in which two experiment files differ, one per line.
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

fn contents(path: &Path) -> (Option<String>, bool) {
    (std::fs::read_to_string(path.join(EXPERIMENT)).ok(), path.join(SUMMARY).exists())
}

fn is_checkpoint(name: &str) -> bool {
    [".done", ".current", ".met"].iter().any(|end| name.ends_with(end))
}

fn is_model_file(name: &str) -> bool {
    name.ends_with(".safetensors") || ["schema.json", CLIENT_FILES].contains(&name)
}

/// Removes our own partially written files, which a kill left behind.
fn remove_partial_files(folder: &Path) -> Result<()> {
    let half = |is_ours: fn(&str) -> bool| move |name: &str| partial_of(name).is_some_and(is_ours);
    remove_where(folder, &half(is_ours))?;
    remove_where(&folder.join(CHECKPOINT), &half(is_checkpoint))?;
    let models = folder.join(MODELS);
    remove_where(&models, &half(is_model_file))?;
    for label in folders_in(&models)? {
        folders_in(&label)?.iter().try_for_each(|seed| remove_where(seed, &half(is_model_file)))?;
    }
    Ok(())
}

/// The entries of a folder with their types; none for a missing folder or a link.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, std::fs::FileType)>> {
    let fault = |error| Error::io("cleaning up", folder, error);
    if !std::fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir()) {
        return Ok(Vec::new());
    }
    let entry = |entry: std::io::Result<std::fs::DirEntry>| entry.and_then(|it| Ok((it.path(), it.file_type()?)));
    std::fs::read_dir(folder).map_err(fault)?.map(|it| entry(it).map_err(fault)).collect()
}

fn folders_in(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(entries(folder)?.into_iter().filter(|(_, kind)| kind.is_dir()).map(|(path, _)| path).collect())
}

fn remove_where(folder: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
    for (path, _) in entries(folder)?.into_iter().filter(|(_, kind)| kind.is_file()) {
        if path.file_name().and_then(|name| name.to_str()).is_some_and(wanted) {
            std::fs::remove_file(&path).map_err(|error| Error::io("cleaning up", &path, error))?;
        }
    }
    Ok(())
}
