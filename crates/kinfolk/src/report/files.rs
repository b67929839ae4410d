//! The files of a run folder. Each is written whole or not at all.

use super::{ClientRecord, ComparisonRecord, MixtureRecord, Record, RoundRecord, columns, html};
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

/// The file that [`write_atomically`] had not finished, where this is the name of such a temporary one.
pub fn partial_of(name: &str) -> Option<&str> {
    let (name, numbers) = name.strip_prefix('.')?.strip_suffix(".part")?.rsplit_once('.')?;
    let (process, count) = numbers.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (!name.is_empty() && is_number(process) && is_number(count)).then_some(name)
}

/// The bytes of rounds.csv. A value that does not apply is an empty cell.
pub fn rounds_csv(rounds: &[RoundRecord]) -> Result<Vec<u8>> {
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
            cell(round.misclustering),
            round.stage.clone().unwrap_or_default(),
        ]
    });
    comma_separated("rounds.csv", columns::ROUNDS.map(|(name, _)| name), rows)
}

/// The bytes of clients.csv. A value that does not apply is an empty cell.
pub fn clients_csv(clients: &[ClientRecord]) -> Result<Vec<u8>> {
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
            cell(client.outlier.score),
            cell(client.outlier.apart),
            cell(client.outlier.verdict),
            cell(client.outlier.planted),
        ]
    });
    comma_separated("clients.csv", columns::CLIENTS.map(|(name, _)| name), rows)
}

/// The bytes of components.csv: the common centres first, in rows without a client and without a weight, then every
/// client's own. `None` where no method found mixtures.
pub fn components_csv(mixtures: &[MixtureRecord]) -> Result<Option<Vec<u8>>> {
    let Some(widest) = mixtures.iter().max_by_key(|mixture| mixture.width()) else { return Ok(None) };
    let width = widest.width();
    let name = |column: usize| widest.features.get(column).cloned().unwrap_or_else(|| format!("x{column}"));
    let header = ["label", "seed", "client", "component", "weight"].map(str::to_string);
    let header: Vec<String> = header.into_iter().chain((0..width).map(name)).collect();
    let rows = mixtures.iter().flat_map(|mixture| {
        let common = ("", &[][..], &mixture.common[..]);
        let own = mixture.clients.iter().map(|client| (&*client.client, &client.weights[..], &client.centres[..]));
        let rows = [common].into_iter().chain(own).flat_map(|(client, weights, centres)| {
            centres.chunks(mixture.width().max(1)).enumerate().map(move |(component, centre)| {
                let mut row = vec![mixture.label.clone(), mixture.seed.to_string(), client.to_string()];
                row.extend([component.to_string(), cell(weights.get(component))]);
                row.extend((0..width).map(|column| cell(centre.get(column))));
                row
            })
        });
        rows.collect::<Vec<_>>()
    });
    comma_separated("components.csv", header, rows).map(Some)
}

/// The bytes of rows.csv: the component of every row, by its place in the file it was read from, or else in its part.
/// `None` where no method told rows apart.
pub fn rows_csv(mixtures: &[MixtureRecord]) -> Result<Option<Vec<u8>>> {
    let clients = || mixtures.iter().flat_map(|mixture| mixture.clients.iter().map(move |client| (mixture, client)));
    if clients().all(|(_, client)| client.parts().iter().all(|(_, rows)| rows.components.is_empty())) {
        return Ok(None);
    }
    let header = ["label", "seed", "client", "split", "row", "component", "class"];
    let parts = clients().flat_map(|(mixture, client)| client.parts().map(|part| (mixture, client, part)));
    let rows = parts.flat_map(|(mixture, client, (split, rows))| {
        rows.components.iter().enumerate().map(move |(place, component)| {
            let class = rows.classes.get(place).map(|&class| match mixture.classes.get(class as usize) {
                Some(name) => name.clone(),
                None => class.to_string(),
            });
            [
                mixture.label.clone(),
                mixture.seed.to_string(),
                client.client.clone(),
                split.to_string(),
                rows.lines.get(place).map_or_else(|| place.to_string(), u64::to_string),
                component.to_string(),
                class.unwrap_or_default(),
            ]
        })
    });
    comma_separated("rows.csv", header, rows).map(Some)
}

fn cell(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
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

/// The text of summary.json.
pub fn summary_json(summary: &impl serde::Serialize) -> Result<String> {
    let mut text = serde_json::to_string_pretty(summary)
        .map_err(|error| Error::new(ErrorKind::Io, format!("writing summary.json: {error}")))?;
    text.push('\n');
    Ok(text)
}

/// The bytes of distances.csv: how far clients are apart, and whether that is near enough to belong together. `None` where no
/// method compared clients.
pub fn distances_csv(comparisons: &[ComparisonRecord]) -> Result<Option<Vec<u8>>> {
    if comparisons.is_empty() {
        return Ok(None);
    }
    let rows = comparisons.iter().flat_map(|record| {
        record.found.pairs.iter().map(move |&(a, b, distance)| {
            [
                record.label.clone(),
                record.seed.to_string(),
                record.clients[a as usize].clone(),
                record.clients[b as usize].clone(),
                distance.to_string(),
                u8::from(record.found.lambda.is_none_or(|lambda| distance <= lambda)).to_string(),
            ]
        })
    });
    comma_separated("distances.csv", ["label", "seed", "client", "other", "distance", "within"], rows).map(Some)
}

/// Writes rounds.csv, clients.csv, components.csv and rows.csv where there are mixtures, distances.csv where clients were compared, report.html and, last,
/// summary.json into a run folder: a folder without summary.json is not finished.
pub fn write_record(folder: &Path, record: &Record) -> Result<()> {
    write_atomically(&folder.join("rounds.csv"), &rounds_csv(&record.rounds)?)?;
    write_atomically(&folder.join("clients.csv"), &clients_csv(&record.clients)?)?;
    let more = [
        ("components.csv", components_csv(&record.mixtures)?),
        ("rows.csv", rows_csv(&record.mixtures)?),
        ("distances.csv", distances_csv(&record.comparisons)?),
    ];
    for (name, bytes) in more.iter().filter_map(|(name, bytes)| Some((name, bytes.as_ref()?))) {
        write_atomically(&folder.join(name), bytes)?;
    }
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
             normalised_mse,distance_to_exact,misclustering,stage\n\
             \"a, \"\"quoted\"\"\",0,1,train,0.5,,2,2;1,800,400,0.25,,,,,\n\
             \"a, \"\"quoted\"\"\",0,1,evaluate,,0.75,,2;1,0,0,0.25,0.5,,0.125,0.25,middle\n"
        );
    }

    #[test]
    fn distances_have_the_columns_of_the_contract() {
        let record = fabricated::record();
        assert_eq!(
            text(distances_csv(&record.comparisons).expect("in memory").expect("one")),
            "label,seed,client,other,distance,within\n\"a, \"\"quoted\"\"\",0,north,\"south, \"\"far\"\"\",0.5,1\n"
        );
        assert!(distances_csv(&[]).expect("in memory").is_none());
    }

    #[test]
    fn clients_have_the_columns_of_the_contract() {
        let record = fabricated::record();
        assert_eq!(
            text(clients_csv(&record.clients[..2]).expect("in memory")),
            "label,seed,client,true_cluster,cluster,samples,margin,metric,model_norm,distance_to_cluster,\
             distance_to_global,metric_local,metric_global,group,outlier_score,apart,outlier,planted_outlier\n\
             \"a, \"\"quoted\"\"\",0,north,0,1,20,0.125,0.5,1.5,,,0.25,,hills,,,,\n\
             \"a, \"\"quoted\"\"\",0,south,,,20,,,,,,,,,2.5,1,false,true\n"
        );
        assert_eq!(text(clients_csv(&[]).expect("in memory")).lines().count(), 1, "an empty file has its header");
    }

    #[test]
    fn components_and_rows_have_the_columns_of_the_contract() {
        let mixture = fabricated::mixture("em", 7);
        let components = |mixtures: &[MixtureRecord]| components_csv(mixtures).expect("in memory").map(text);
        let rows = |mixtures: &[MixtureRecord]| rows_csv(mixtures).expect("in memory").map(text);
        assert_eq!(
            components(std::slice::from_ref(&mixture)).expect("mixtures"),
            "label,seed,client,component,weight,age,\"pay, net\"\n\
             em,7,,0,,0,1\nem,7,,1,,5,1\n\
             em,7,north,0,0.25,0.5,1\nem,7,north,1,0.75,5,1.5\n\
             em,7,south,0,0.5,9,9\nem,7,south,1,0.5,-9,9\n"
        );
        assert_eq!(
            rows(std::slice::from_ref(&mixture)).expect("rows"),
            "label,seed,client,split,row,component,class\n\
             em,7,north,train,12,1,high\nem,7,north,train,3,0,low\nem,7,north,test,4,1,2\n\
             em,7,south,train,0,0,\nem,7,south,train,1,1,\n"
        );
        // Without names, without common centres, and beside a mixture of other width.
        let narrow = MixtureRecord {
            features: Vec::new(),
            components: 1,
            common: Vec::new(),
            clients: vec![super::super::ClientMixture::new("west", &[1.0], &[3.0, 4.0, 5.0])],
            ..mixture.clone()
        };
        let both = components(&[mixture, narrow.clone()]).expect("mixtures");
        assert!(both.starts_with("label,seed,client,component,weight,x0,x1,x2\nem,7,,0,,0,1,\n"), "{both}");
        assert!(both.ends_with("em,7,west,0,1,3,4,5\n"), "{both}");
        assert_eq!((rows(&[narrow]), components(&[])), (None, None));
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
        assert_eq!(
            names,
            ["clients.csv", "components.csv", "distances.csv", "report.html", "rounds.csv", "rows.csv", "summary.json"]
        );
        let without = tempfile::tempdir().expect("a temporary folder");
        write_record(without.path(), &Record { mixtures: Vec::new(), comparisons: Vec::new(), ..record.clone() })
            .expect("a writable folder");
        assert_eq!(fs::read_dir(without.path()).expect("there").count(), 4, "no files of mixtures without mixtures");
        let text = fs::read_to_string(folder.path().join("summary.json")).expect("just written");
        assert_eq!(serde_json::from_str::<Summary>(&text).expect("a summary"), record.summary);
    }

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
