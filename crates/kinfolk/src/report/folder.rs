//! A folder for results.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// A folder that holds none of the files about to be written. If nothing comes of it, it is gone again.
pub struct NewFolder {
    path: PathBuf,
    created: bool,
}

impl NewFolder {
    /// Makes the folder, or takes one that has nothing of these names in it.
    pub fn claim(path: &Path, names: &[&str]) -> Result<Self> {
        if let Some(name) = names.iter().find(|name| path.join(name).exists()) {
            return Err(Error::settings(format!("{}: holds a `{name}` already", path.display()))
                .hint("choose another folder with --out"));
        }
        let created = !path.exists();
        std::fs::create_dir_all(path).map_err(|error| Error::io("creating", path, error))?;
        // Whether it can be written to is better known now than after hours of work.
        let probe = path.join(".kinfolk-probe.tmp");
        std::fs::write(&probe, b"").map_err(|error| Error::io("writing to", path, error))?;
        std::fs::remove_file(&probe).map_err(|error| Error::io("writing to", path, error))?;
        Ok(Self { path: path.to_path_buf(), created })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for NewFolder {
    /// Only an empty folder can be removed this way.
    fn drop(&mut self) {
        if self.created {
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}
