//! The files of a run folder, each declared once.

use super::*;
use crate::disk::json_text;
use crate::record::comparisons::{DistanceRecord, distances_csv};
use crate::record::mixtures::{RowRecord, components_csv, rows_csv};
use crate::record::table::{self, Heading, TableRow};
use crate::report::html;

/// A file or subfolder at the top of a run folder.
pub struct RunFile {
    /// Its name.
    pub name: &'static str,
    /// Its content.
    pub holds: &'static str,
    /// Its columns, where these are the same for every run.
    pub columns: &'static [Heading],
    /// Makes it when the run has ended; `None` for what is written during the run.
    content: Option<Content>,
}

type Content = fn(&Record) -> Result<Option<Vec<u8>>>;

impl RunFile {
    const fn during(name: &'static str, holds: &'static str) -> Self {
        Self { name, holds, columns: &[], content: None }
    }

    const fn after(name: &'static str, holds: &'static str, content: Content) -> Self {
        Self { name, holds, columns: &[], content: Some(content) }
    }

    const fn with_columns(self, columns: &'static [Heading]) -> Self {
        Self { columns, ..self }
    }
}

/// The experiment, which is written first.
pub(super) const EXPERIMENT: &str = "experiment.toml";
pub(super) const CHECKPOINT: &str = "checkpoint";
pub(super) const MODELS: &str = "models";
/// The summary, which is written last: a folder without it is not finished.
pub(super) const SUMMARY: &str = "summary.json";

/// Everything a run may write into its folder, in this order.
pub static FILES: &[RunFile] = &[
    RunFile::during(EXPERIMENT, "the experiment with every default filled in"),
    RunFile::during(CHECKPOINT, "while it runs: what is finished, and where the method in progress stands"),
    RunFile::during(MODELS, "the models as each method ends, and how columns are encoded"),
    RunFile::after("rounds.csv", "what every round did", |record| {
        table::write::<RoundRecord>(&record.rounds).map(Some)
    })
    .with_columns(RoundRecord::COLUMNS),
    RunFile::after("clients.csv", "how every client ended", |record| {
        table::write::<ClientRecord>(&record.clients).map(Some)
    })
    .with_columns(ClientRecord::COLUMNS),
    RunFile::after("components.csv", "of mixtures: centres and weights, common and of every client", |record| {
        components_csv(&record.mixtures)
    }),
    RunFile::after("rows.csv", "of mixtures: the component of every row on the first seed", |record| {
        rows_csv(&record.mixtures)
    })
    .with_columns(RowRecord::COLUMNS),
    RunFile::after("distances.csv", "of methods that compare clients: how far they are apart", |record| {
        distances_csv(&record.comparisons)
    })
    .with_columns(DistanceRecord::COLUMNS),
    RunFile::after("report.html", "the report, for a browser", |record| Ok(Some(html::page(record).into_bytes()))),
    RunFile::after(SUMMARY, "how every method ended on every seed, with means and deviations", |record| {
        Ok(Some(json_text(&record.summary)?.into_bytes()))
    }),
];

pub(super) fn write_record(folder: &Path, record: &Record) -> Result<()> {
    for (name, content) in FILES.iter().filter_map(|file| Some((file.name, file.content?))) {
        if let Some(bytes) = content(record)? {
            write_atomically(&folder.join(name), &bytes)?;
        }
    }
    Ok(())
}

pub(super) fn is_ours(name: &str) -> bool {
    FILES.iter().any(|file| file.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Summary, fabricated};
    use std::fs;

    #[test]
    fn a_folder_holds_all_files_and_no_leftovers() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let record = fabricated::record();
        write_record(folder.path(), &record).expect("a writable folder");
        write_record(folder.path(), &record).expect("files are replaced");
        let entries = fs::read_dir(folder.path()).expect("the folder is there");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        assert_eq!(
            names,
            ["clients.csv", "components.csv", "distances.csv", "report.html", "rounds.csv", "rows.csv", "summary.json"]
        );
        let without = tempfile::tempdir().expect("a temporary folder");
        write_record(without.path(), &Record { mixtures: Vec::new(), comparisons: Vec::new(), ..record.clone() })
            .expect("a writable folder");
        assert_eq!(fs::read_dir(without.path()).expect("there").count(), 4, "no files of mixtures without mixtures");
        let text = fs::read_to_string(folder.path().join(SUMMARY)).expect("just written");
        assert_eq!(serde_json::from_str::<Summary>(&text).expect("a summary"), record.summary);
        assert!(FILES.last().is_some_and(|file| file.name == SUMMARY));
    }
}
