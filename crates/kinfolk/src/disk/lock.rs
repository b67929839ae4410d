//! Locks: one writer per folder.

use crate::error::{Error, Result, option};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// The file that names the process writing to a folder.
pub(crate) const LOCK_FILE: &str = ".kinfolk-lock";

/// The exclusive right to write to a folder, released when the process ends; a file left behind means nothing.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    /// Locked while open.
    _file: File,
}

impl Lock {
    /// Locks an existing folder; the error names the process that holds the lock.
    pub fn take(folder: &Path) -> Result<Self> {
        let path = folder.join(LOCK_FILE);
        let failed = |error| Error::io("writing to", folder, error);
        loop {
            let mut options = OpenOptions::new();
            let mut file = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Err(in_use(folder, &mut file)),
                // Without locks on this file system, run anyway.
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                // The previous holder may have removed the file after we opened it.
                Ok(()) if !is_at(&file, &path) => continue,
                Ok(()) => {}
            }
            file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(failed)?;
            return Ok(Self { path, _file: file });
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn in_use(folder: &Path, file: &mut File) -> Error {
    let mut text = String::new();
    let process = file.take(20).read_to_string(&mut text).ok().and_then(|_| text.parse::<u32>().ok());
    let who = process.map_or("another process".to_string(), |process| format!("process {process}"));
    Error::settings(format!("{}: in use by {who}", folder.display()))
        .hint(format!("wait until it has ended, or choose another folder with {}", option("out")))
}

/// Whether an open file is still the one at this path.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
        let there = std::fs::symlink_metadata(path).map(identity);
        matches!((file.metadata().map(identity), there), (Ok(ours), Ok(there)) if ours == there)
    }
    // Elsewhere an open file cannot be removed.
    #[cfg(not(unix))]
    {
        let _ = (file, path);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_writer_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::take(folder.path()).unwrap();
        let error = Lock::take(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("in use by process {}\n", std::process::id())), "{error}");
        drop(lock);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file is left");
        drop(Lock::take(folder.path()).unwrap());
        // What a killed process left holds nobody up.
        std::fs::write(folder.path().join(LOCK_FILE), "12345").unwrap();
        drop(Lock::take(folder.path()).unwrap());
        assert!(Lock::take(&folder.path().join("missing")).unwrap_err().to_string().contains("missing"));
    }

    #[test]
    fn of_many_writers_at_once_one_wins() {
        let folder = tempfile::tempdir().unwrap();
        let start = std::sync::Barrier::new(8);
        let held = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..50 {
                        if let Ok(_lock) = Lock::take(folder.path()) {
                            use std::sync::atomic::Ordering::SeqCst;
                            assert_eq!(held.fetch_add(1, SeqCst), 0, "two hold it");
                            std::thread::yield_now();
                            held.fetch_sub(1, SeqCst);
                        }
                    }
                });
            }
        });
    }
}
