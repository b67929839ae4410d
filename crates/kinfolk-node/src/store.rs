//! What a node keeps on disk, so that it can be started again: what its clients remember, and its number at the SuperLink.

use kinfolk::disk::lock::Lock;
use kinfolk::disk::write_atomically;
use kinfolk::federation::client::memory::Memories;
use kinfolk::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The file with the node's number.
const NUMBER: &str = "number";

/// What a node keeps.
pub struct Store {
    /// Where, if anywhere. One process has it at a time.
    folder: Option<(PathBuf, Lock)>,
    /// What clients remember.
    pub memories: Memories,
}

impl Store {
    /// A store that lasts as long as the process.
    pub fn in_memory() -> Self {
        Self { folder: None, memories: Memories::here() }
    }

    /// A store in a folder, which is made where it is missing, with what clients remember in so many files at most.
    pub fn open(folder: &Path, most: usize) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|error| Error::io("making", folder, error))?;
        let hint = "a node with this key runs on this machine; end it, or give this one another key";
        let lock = Lock::take(folder).map_err(|error| error.hint(hint))?;
        Ok(Self { folder: Some((folder.into(), lock)), memories: Memories::in_folder(folder.into(), most) })
    }

    fn number_file(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|(folder, _)| folder.join(NUMBER))
    }

    /// The number that this node has at a SuperLink, if it was there before.
    pub fn number(&self, superlink: &str) -> Option<u64> {
        let text = fs::read_to_string(self.number_file()?).ok()?;
        let (number, at) = text.trim_end().split_once(' ')?;
        number.parse().ok().filter(|_| at == superlink)
    }

    /// Keeps the number that this node has at a SuperLink.
    pub fn keep_number(&self, superlink: &str, number: u64) -> Result<()> {
        let text = format!("{number} {superlink}\n");
        self.number_file().map_or(Ok(()), |path| write_atomically(&path, text.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let _store = Store::open(folder.path(), 1).unwrap();
        let said = Store::open(folder.path(), 1).err().unwrap().to_string();
        assert!(said.contains("a node with this key runs on this machine"), "{said}");
    }

    #[test]
    fn a_number_is_that_at_one_superlink() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), 1).unwrap();
        assert_eq!(store.number("here:1"), None);
        store.keep_number("here:1", u64::MAX).unwrap();
        assert_eq!(store.number("here:1"), Some(u64::MAX));
        assert_eq!(store.number("there:1"), None);
        fs::write(folder.path().join(NUMBER), "damaged").unwrap();
        assert_eq!(store.number("here:1"), None);
        let fleeting = Store::in_memory();
        fleeting.keep_number("here:1", 3).unwrap();
        assert_eq!(fleeting.number("here:1"), None);
    }
}
