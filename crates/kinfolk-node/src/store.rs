//! What a node keeps on disk, so that it can be started again: the clients' state for every run, and its number at the SuperLink.

use kinfolk::disk::lock::Lock;
use kinfolk::disk::write_atomically;
use kinfolk::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// States of so many runs stay in memory, and of so many on disk.
const IN_MEMORY: usize = 2;
const ON_DISK: usize = 100;
const ENDING: &str = "state";
const NUMBER: &str = "number";
/// Of the layout, and of the program: what another wrote is not read.
const HEAD: &str = concat!("kinfolk node ", env!("CARGO_PKG_VERSION"), "\n");
const DIGEST: usize = 32;

/// What a node keeps.
pub struct Store {
    /// Where, if anywhere. Held by one process at a time.
    folder: Option<(PathBuf, Lock)>,
    /// The states of runs, the last used one last.
    recent: Vec<(String, Vec<u8>)>,
}

impl Store {
    /// A store that lasts as long as the process.
    pub fn in_memory() -> Self {
        Self { folder: None, recent: Vec::new() }
    }

    /// A store in a folder, which is made where it is missing.
    pub fn open(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|error| Error::io("making", folder, error))?;
        let lock = Lock::take(folder).map_err(|error| {
            error.hint("a node with this key runs on this machine; end it, or give this one another key")
        })?;
        let store = Self { folder: Some((folder.into(), lock)), recent: Vec::new() };
        store.prune()?;
        Ok(store)
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.folder.as_ref().map(|(folder, _)| folder.join(name))
    }

    /// Removes the oldest states, where there are many.
    fn prune(&self) -> Result<()> {
        let Some((folder, _)) = &self.folder else { return Ok(()) };
        let entries = fs::read_dir(folder).map_err(|error| Error::io("reading", folder, error))?;
        let mut states: Vec<(SystemTime, PathBuf)> = (entries.flatten())
            .filter(|entry| entry.path().extension().is_some_and(|ending| ending == ENDING))
            .filter_map(|entry| Some((entry.metadata().and_then(|found| found.modified()).ok()?, entry.path())))
            .collect();
        states.sort();
        for (_, path) in states.iter().rev().skip(ON_DISK) {
            fs::remove_file(path).map_err(|error| Error::io("removing", path, error))?;
        }
        Ok(())
    }

    /// The clients' state in a run, empty where there is none; and a remark, where there is one that cannot be used.
    pub fn state(&mut self, run: &str) -> (Vec<u8>, Option<String>) {
        if let Some(at) = self.recent.iter().position(|(name, _)| name == run) {
            let found = self.recent.remove(at);
            self.recent.push(found.clone());
            return (found.1, None);
        }
        let Some(path) = self.path(&format!("{run}.{ENDING}")).filter(|path| path.is_file()) else {
            return (Vec::new(), None);
        };
        let found =
            fs::read(&path).map_err(|error| error.to_string()).and_then(|bytes| unseal(bytes).map_err(Into::into));
        match found {
            Ok(state) => {
                self.hold(run, state.clone());
                (state, None)
            }
            Err(why) => (Vec::new(), Some(format!("{}: not used: {why}", path.display()))),
        }
    }

    /// Keeps the clients' state in a run. It is there after this, whatever happens to the process.
    pub fn keep(&mut self, run: &str, state: Vec<u8>) -> Result<()> {
        if self.recent.iter().any(|(name, kept)| name == run && *kept == state) {
            return Ok(());
        }
        let sealed = self.path(&format!("{run}.{ENDING}")).map(|path| (path, seal(&state)));
        self.hold(run, state);
        sealed.map_or(Ok(()), |(path, bytes)| write_atomically(&path, &bytes))
    }

    fn hold(&mut self, run: &str, state: Vec<u8>) {
        self.recent.retain(|(name, _)| name != run);
        self.recent.push((run.into(), state));
        let surplus = self.recent.len().saturating_sub(IN_MEMORY);
        self.recent.drain(..surplus);
    }

    /// The number that this node has at a SuperLink, if it was there before.
    pub fn number(&self, superlink: &str) -> Option<u64> {
        let text = fs::read_to_string(self.path(NUMBER)?).ok()?;
        let (number, at) = text.trim_end().split_once(' ')?;
        number.parse().ok().filter(|_| at == superlink)
    }

    /// Keeps the number that this node has at a SuperLink.
    pub fn keep_number(&self, superlink: &str, number: u64) -> Result<()> {
        self.path(NUMBER).map_or(Ok(()), |path| write_atomically(&path, format!("{number} {superlink}\n").as_bytes()))
    }
}

fn seal(state: &[u8]) -> Vec<u8> {
    [HEAD.as_bytes(), &Sha256::digest(state), state].concat()
}

fn unseal(mut bytes: Vec<u8>) -> Result<Vec<u8>, &'static str> {
    let rest = bytes.strip_prefix(HEAD.as_bytes()).ok_or("another version of the program wrote it")?;
    let (digest, state) = rest.split_at_checked(DIGEST).ok_or("it is damaged")?;
    if *Sha256::digest(state) != *digest {
        return Err("it is damaged");
    }
    bytes.drain(..HEAD.len() + DIGEST);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("node");
        let mut store = Store::open(&place).unwrap();
        assert_eq!(store.state("7"), (Vec::new(), None));
        for (run, state) in
            [("7", b"one".to_vec()), ("8", b"two".to_vec()), ("9", b"three".to_vec()), ("7", b"four".to_vec())]
        {
            store.keep(run, state).unwrap();
        }
        assert_eq!(store.recent.len(), IN_MEMORY);
        assert_eq!(store.state("8"), (b"two".to_vec(), None));
        drop(store);
        let mut store = Store::open(&place).unwrap();
        assert_eq!(store.state("7"), (b"four".to_vec(), None));
        assert_eq!(store.state("10"), (Vec::new(), None));
    }

    #[test]
    fn a_damaged_state_is_not_used_and_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7.state");
        for (bytes, wanted) in [
            (b"kinfolk node 0.0.0\n".to_vec(), "another version"),
            (HEAD.into(), "damaged"),
            ([&*seal(b"one"), b"x"].concat(), "damaged"),
        ] {
            fs::write(&path, bytes).unwrap();
            let (state, remark) = Store::open(folder.path()).unwrap().state("7");
            assert!(state.is_empty());
            assert!(remark.as_ref().unwrap().contains(wanted), "{remark:?}");
        }
    }

    #[test]
    fn one_process_has_it_and_the_oldest_states_go() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        let said = Store::open(folder.path()).err().unwrap().to_string();
        assert!(said.contains("a node with this key runs on this machine"), "{said}");
        for run in 0..ON_DISK + 5 {
            store.keep(&run.to_string(), vec![1]).unwrap();
        }
        store.prune().unwrap();
        let left = fs::read_dir(folder.path()).unwrap().flatten().filter(|entry| entry.path().extension().is_some());
        assert_eq!(left.count(), ON_DISK);
    }

    #[test]
    fn a_number_is_that_at_one_superlink() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.number("here:1"), None);
        store.keep_number("here:1", u64::MAX).unwrap();
        assert_eq!(store.number("here:1"), Some(u64::MAX));
        assert_eq!(store.number("there:1"), None);
        let fleeting = Store::in_memory();
        fleeting.keep_number("here:1", 3).unwrap();
        assert_eq!(fleeting.number("here:1"), None);
    }
}
