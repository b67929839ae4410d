//! Finished repeats on disk, so that an interrupted reproduction continues where it stopped.

use kinfolk::disk::write_atomically;
use kinfolk::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The values of the cells of every finished repeat, by what names it.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Ledger {
    #[serde(skip)]
    path: PathBuf,
    version: String,
    pub(crate) entries: BTreeMap<String, Vec<Option<f64>>>,
}

impl Ledger {
    pub(crate) fn open(folder: &Path) -> Result<Self> {
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

    pub(crate) fn add(&mut self, key: String, values: Vec<Option<f64>>) -> Result<()> {
        self.entries.insert(key, values);
        let text =
            serde_json::to_vec_pretty(self).map_err(|error| Error::new(ErrorKind::Io, format!("ledger: {error}")))?;
        write_atomically(&self.path, &text)
    }
}
