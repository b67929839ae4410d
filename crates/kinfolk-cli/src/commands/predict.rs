//! `kinfolk predict MODEL TABLE`: a prediction with its interval for every row.

use super::say;
use crate::Ending;
use crate::progress::Wait;
use kinfolk::fit::{FittedModel, Format, Predictions, predict, predict_components};
use kinfolk::{Error, Result};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Predict the rows of a table with a fitted model: one line for each row, in order.
#[derive(clap::Args)]
pub struct Arguments {
    /// The folder of a model that `fit` has written
    model: PathBuf,
    /// The table, with the columns the model was fitted with; where it has the target, new clients get a model of their own
    table: PathBuf,
    /// File for the predictions instead of stdout: csv, or by its ending parquet, arrow or feather
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> Result<Ending> {
    match FittedModel::read(&arguments.model)? {
        FittedModel::Families(saved) => {
            let found = write(&arguments, |format, out| predict(&saved, &arguments.table, format, out))?;
            say_predictions(&found, saved.classes.is_empty(), "a personal model from their own target values");
        }
        FittedModel::Networks(saved) => {
            let found = write(&arguments, |format, out| saved.predict(&arguments.table, format, out))?;
            say_predictions(&found, saved.classes.is_empty(), "a family by their own target values");
        }
        FittedModel::Mixture(saved) => {
            let found = write(&arguments, |format, out| predict_components(&saved, &arguments.table, format, out))?;
            say(&format!("{} rows of {} known and {} new clients", found.rows, found.known, found.new));
            say(&format!("{} rows are outliers: their density is below that of 99 % of training rows", found.outliers));
            found.remarks.iter().for_each(|remark| say(&format!("note: {remark}")));
        }
    }
    Ok(Ending::Done)
}

/// What was predicted, and for whom; `given` is what new clients with target values have.
fn say_predictions(found: &Predictions, is_number: bool, given: &str) {
    let new = found.fitted + found.unknown;
    say(&format!("{} rows of {} known and {new} new clients", found.rows, found.known));
    if found.fitted > 0 {
        say(&format!("{} new clients have {given}", found.fitted));
    }
    if found.unknown > 0 {
        let who = format!("{} new clients without target values", found.unknown);
        say(&format!("{who} are served by what holds for everybody"));
    }
    if let Some((share, rows)) = found.covered {
        let what = if is_number { "intervals cover" } else { "the class is right in" };
        say(&format!("{what} {:.1} % of {rows} rows of known clients with a target value", 100.0 * share));
    }
    found.remarks.iter().for_each(|remark| say(&format!("note: {remark}")));
}

/// Writes predictions to the file that is asked for, or to stdout.
fn write<T>(arguments: &Arguments, predict: impl FnOnce(Format, &mut (dyn Write + Send)) -> Result<T>) -> Result<T> {
    let wait = Wait::new("predicting");
    let found = match &arguments.out {
        Some(path) => {
            let format = Format::of(path)?;
            let [own, table] = [path, &arguments.table].map(std::fs::canonicalize);
            if own.is_ok_and(|own| table.is_ok_and(|table| table == own)) {
                let message = format!("--out: got {}, which is the table itself", path.display());
                return Err(Error::settings(message).hint("name another file for the predictions"));
            }
            let failed = |error| Error::io("writing", path, error);
            // Whole or not at all, and never all of it in memory.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let mut file = BufWriter::new(tempfile::NamedTempFile::new_in(folder).map_err(failed)?);
            let found = predict(format, &mut file)?;
            let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
            file.as_file().sync_all().map_err(failed)?;
            file.persist(path).map_err(|error| failed(error.error))?;
            found
        }
        None => {
            let mut out = BufWriter::new(Piped(std::io::stdout()));
            let found = predict(Format::Csv, &mut out)?;
            out.flush().map_err(|error| Error::io("writing", "the predictions", error))?;
            found
        }
    };
    drop(wait);
    Ok(found)
}

/// Somebody who closes the pipe early has seen enough.
struct Piped<W>(W);

impl<W: Write> Write for Piped<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}
