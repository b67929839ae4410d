//! The files of a run folder. Each is written whole or not at all.

use super::{ClientRecord, Record, RoundRecord, html};
use crate::{Error, ErrorKind, Result};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file so that a reader, or a crash, sees the old content or the new, never a part:
/// a temporary file in the same folder, flushed to the disk, then renamed.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary_beside(path)?;
    let written = fill(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // The write's own error is the one to report.
        let _ = fs::remove_file(&temporary);
        return Err(Error::io("writing", path, error));
    }
    let folder = temporary.parent().unwrap_or(Path::new("."));
    flush_folder(folder).map_err(|error| Error::io("writing", path, error))
}

/// [`write_atomically`] for many files of one folder, which is flushed once; the files are flushed side by side.
pub fn write_all_atomically(folder: &Path, files: Vec<(String, Vec<u8>)>) -> Result<()> {
    let write = |(name, bytes): &(String, Vec<u8>)| {
        let path = folder.join(name);
        let temporary = temporary_beside(&path)?;
        let written = fill(&temporary, bytes).and_then(|()| fs::rename(&temporary, &path));
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary);
            return Err(Error::io("writing", &path, error));
        }
        Ok(())
    };
    // Threads that wait for the disk do not need cores: flushes of many files share the disk's turns.
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

/// Makes renames in a folder last. Only unix lets a folder be opened, and needs it.
fn flush_folder(folder: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?.sync_all()?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

fn fill(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).open(path)?;
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

/// Whether a file is one that [`write_atomically`] had not finished.
pub fn is_partial(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') && name.ends_with(".part")
}

/// The bytes of rounds.csv. A value that does not apply is an empty cell.
pub fn rounds_csv(rounds: &[RoundRecord]) -> Result<Vec<u8>> {
    let header = [
        "label",
        "seed",
        "round",
        "phase",
        "loss",
        "metric",
        "switched",
        "sizes",
        "bytes_down",
        "bytes_up",
        "seconds",
        "unseen_metric",
        "normalised_mse",
        "distance_to_exact",
    ];
    let rows = rounds.iter().map(|round| {
        let sizes: Vec<String> = round.sizes.iter().map(usize::to_string).collect();
        [
            round.label.clone(),
            round.seed.to_string(),
            round.round.to_string(),
            round.phase.clone(),
            cell(round.loss),
            cell(round.metric),
            cell(round.switched),
            sizes.join(";"),
            round.bytes_down.to_string(),
            round.bytes_up.to_string(),
            round.seconds.to_string(),
            cell(round.unseen_metric),
            cell(round.normalised_mse),
            cell(round.distance_to_exact),
        ]
    });
    comma_separated("rounds.csv", header, rows)
}

/// The bytes of clients.csv. A value that does not apply is an empty cell.
pub fn clients_csv(clients: &[ClientRecord]) -> Result<Vec<u8>> {
    let header = [
        "label",
        "seed",
        "client",
        "true_cluster",
        "cluster",
        "samples",
        "margin",
        "metric",
        "model_norm",
        "distance_to_cluster",
        "distance_to_global",
        "metric_local",
        "metric_global",
        "group",
    ];
    let rows = clients.iter().map(|client| {
        let personal = &client.personal;
        [
            client.label.clone(),
            client.seed.to_string(),
            client.client.clone(),
            cell(client.true_cluster),
            cell(client.cluster),
            client.samples.to_string(),
            cell(client.margin),
            cell(client.metric),
            cell(personal.model_norm),
            cell(personal.distance_to_cluster),
            cell(personal.distance_to_global),
            cell(personal.metric_local),
            cell(personal.metric_global),
            client.group.clone().unwrap_or_default(),
        ]
    });
    comma_separated("clients.csv", header, rows)
}

fn cell(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

pub(super) fn comma_separated<Row: IntoIterator<Item = String>>(
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

/// The text of summary.json.
pub fn summary_json(summary: &impl serde::Serialize) -> Result<String> {
    let mut text = serde_json::to_string_pretty(summary)
        .map_err(|error| Error::new(ErrorKind::Io, format!("writing summary.json: {error}")))?;
    text.push('\n');
    Ok(text)
}

/// Writes rounds.csv, clients.csv, report.html and, last, summary.json into a run folder:
/// a folder without summary.json is not finished.
pub fn write_record(folder: &Path, record: &Record) -> Result<()> {
    write_atomically(&folder.join("rounds.csv"), &rounds_csv(&record.rounds)?)?;
    write_atomically(&folder.join("clients.csv"), &clients_csv(&record.clients)?)?;
    write_atomically(&folder.join("report.html"), html::page(record).as_bytes())?;
    write_atomically(&folder.join("summary.json"), summary_json(&record.summary)?.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::{Summary, fabricated};
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).expect("csv is text")
    }

    #[test]
    fn rounds_have_the_columns_of_the_contract() {
        let record = fabricated::record();
        assert_eq!(
            text(rounds_csv(&record.rounds[..2]).expect("in memory")),
            "label,seed,round,phase,loss,metric,switched,sizes,bytes_down,bytes_up,seconds,unseen_metric,\
             normalised_mse,distance_to_exact\n\
             \"a, \"\"quoted\"\"\",0,1,train,0.5,,2,2;1,800,400,0.25,,,\n\
             \"a, \"\"quoted\"\"\",0,1,evaluate,,0.75,,2;1,0,0,0.25,0.5,,0.125\n"
        );
    }

    #[test]
    fn clients_have_the_columns_of_the_contract() {
        let record = fabricated::record();
        assert_eq!(
            text(clients_csv(&record.clients[..2]).expect("in memory")),
            "label,seed,client,true_cluster,cluster,samples,margin,metric,model_norm,distance_to_cluster,\
             distance_to_global,metric_local,metric_global,group\n\
             \"a, \"\"quoted\"\"\",0,north,0,1,20,0.125,0.5,1.5,,,0.25,,hills\n\
             \"a, \"\"quoted\"\"\",0,south,,,20,,,,,,,,\n"
        );
        assert_eq!(text(clients_csv(&[]).expect("in memory")).lines().count(), 1, "an empty file has its header");
    }

    #[test]
    fn a_folder_holds_all_files_and_no_leftovers() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let record = fabricated::record();
        write_record(folder.path(), &record).expect("a writable folder");
        write_record(folder.path(), &record).expect("files are replaced");
        let mut names: Vec<String> = fs::read_dir(folder.path())
            .expect("the folder is there")
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, ["clients.csv", "report.html", "rounds.csv", "summary.json"]);
        let text = fs::read_to_string(folder.path().join("summary.json")).expect("just written");
        assert_eq!(serde_json::from_str::<Summary>(&text).expect("a summary"), record.summary);
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
