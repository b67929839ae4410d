//! Files and folders: each file is written whole or not at all, and each folder by one process at a time.

pub mod folder;
pub mod lock;

use crate::error::{Error, ErrorKind, Result};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file so that a reader, or a crash, sees the old content or the new, never a part:
/// a temporary file in the same folder, flushed to the disk, then renamed.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    replace(path, bytes, false)?;
    flush_folder(path.parent().unwrap_or(Path::new("."))).map_err(|error| Error::io("writing", path, error))
}

/// [`write_atomically`] for a file that nobody but its owner may read.
pub(crate) fn write_privately(path: &Path, bytes: &[u8]) -> Result<()> {
    replace(path, bytes, true)?;
    flush_folder(path.parent().unwrap_or(Path::new("."))).map_err(|error| Error::io("writing", path, error))
}

/// [`write_atomically`] for many files of one folder, which is flushed once; the files are flushed side by side.
pub(crate) fn write_all_atomically(folder: &Path, files: Vec<(String, Vec<u8>)>) -> Result<()> {
    let write = |(name, bytes): &(String, Vec<u8>)| replace(&folder.join(name), bytes, false);
    // More threads than cores: they wait for the disk, which flushes many files at once.
    const WRITERS: usize = 32;
    std::thread::scope(|scope| {
        let part = files.len().div_ceil(WRITERS).max(1);
        let writers: Vec<_> =
            files.chunks(part).map(|part| scope.spawn(move || part.iter().try_for_each(write))).collect();
        let joined = writers.into_iter().map(|writer| {
            writer.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, format!("writing {}", folder.display()))))
        });
        joined.collect::<Result<()>>()
    })?;
    flush_folder(folder).map_err(|error| Error::io("writing", folder, error))
}

fn replace(path: &Path, bytes: &[u8], is_private: bool) -> Result<()> {
    let temporary = temporary_beside(path)?;
    fill(&temporary, bytes, is_private).and_then(|()| fs::rename(&temporary, path)).map_err(|error| {
        // The write's own error is the one to report.
        let _ = fs::remove_file(&temporary);
        Error::io("writing", path, error)
    })
}

/// Makes renames in a folder durable. Only Unix lets a folder be opened, and needs it.
fn flush_folder(folder: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?.sync_all()?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

fn fill(path: &Path, bytes: &[u8], is_private: bool) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if is_private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = is_private;
    let mut file: File = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn temporary_beside(path: &Path) -> Result<PathBuf> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path
        .file_name()
        .ok_or_else(|| Error::new(ErrorKind::Io, format!("writing {}: want the path of a file", path.display())))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}-{}.part", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
    Ok(path.with_file_name(temporary))
}

/// The file that [`write_atomically`] was writing, if this is the name of its temporary file.
pub(crate) fn partial_of(name: &str) -> Option<&str> {
    let (name, numbers) = name.strip_prefix('.')?.strip_suffix(".part")?.rsplit_once('.')?;
    let (process, count) = numbers.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (!name.is_empty() && is_number(process) && is_number(count)).then_some(name)
}

pub(crate) fn comma_separated<Row: IntoIterator<Item = String>>(
    file: &str,
    header: impl IntoIterator<Item = impl AsRef<[u8]>>,
    rows: impl IntoIterator<Item = Row>,
) -> Result<Vec<u8>> {
    let fault = |error: &dyn std::fmt::Display| Error::new(ErrorKind::Io, format!("writing {file}: {error}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(header).map_err(|error| fault(&error))?;
    for row in rows {
        writer.write_record(row).map_err(|error| fault(&error))?;
    }
    writer.into_inner().map_err(|error| fault(&error))
}

pub(crate) fn json_text(value: &impl serde::Serialize) -> Result<String> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::new(ErrorKind::Io, format!("writing json: {error}")))?;
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_told_from_those_of_others() {
        let temporary = temporary_beside(Path::new("a/summary.json")).expect("a path of a file");
        let name = temporary.file_name().and_then(|name| name.to_str()).expect("a name");
        assert_eq!(partial_of(name), Some("summary.json"));
        for other in
            [".video.mp4.part", "summary.json.1-2.part", ".1-2.part", ".a.1-.part", ".a.1-2.part.gz", ".a.-1-2.part"]
        {
            assert_eq!(partial_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_failed_write_says_where_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let missing = folder.path().join("missing").join("file");
        let error = write_atomically(&missing, b"x").expect_err("the folder is missing");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("missing"), "{error}");
        fs::create_dir(folder.path().join("taken")).expect("writable");
        write_atomically(&folder.path().join("taken"), b"x").expect_err("a folder cannot be replaced");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
    }
}
