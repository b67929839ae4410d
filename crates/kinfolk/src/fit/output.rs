//! Where predictions go: csv, Parquet or Arrow, batch by batch.

use super::serving::{Predicted, Serving};
use crate::error::{Error, Result};
#[cfg(feature = "parquet")]
use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray};
#[cfg(feature = "parquet")]
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
#[cfg(feature = "parquet")]
use std::sync::Arc;

/// How predictions are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text with commas.
    Csv,
    /// Parquet, compressed by Snappy.
    Parquet,
    /// An Arrow file, which is also Feather's second version.
    Arrow,
}

impl Format {
    /// By the ending of a file's name.
    pub fn of(path: &Path) -> Result<Self> {
        let has_columns = cfg!(feature = "parquet");
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        match ending.as_deref() {
            None | Some("csv" | "txt") => Ok(Self::Csv),
            Some("parquet" | "pq") if has_columns => Ok(Self::Parquet),
            Some("arrow" | "feather") if has_columns => Ok(Self::Arrow),
            _ => {
                let endings = if has_columns { ".csv, .txt, .parquet, .arrow or .feather" } else { ".csv or .txt" };
                Err(Error::settings(format!("--out: got {}, want a file that ends in {endings}", path.display())))
            }
        }
    }
}

/// Consecutive predictions.
#[derive(Default)]
pub(super) struct Lines {
    /// As csv, if that is wanted;
    text: String,
    /// else the class, and the columns of numbers.
    classes: Vec<usize>,
    columns: Vec<Vec<f64>>,
}

impl Lines {
    pub(super) fn push(&mut self, format: Format, client: &str, predicted: &Predicted, by: &str) {
        if format == Format::Csv {
            // Writing to a string cannot fail.
            let _ = write!(self.text, "{}", quoted(client));
            if let Predicted::Class { name, .. } = predicted {
                let _ = write!(self.text, ",{}", quoted(name));
            }
            for value in predicted.values() {
                let _ = write!(self.text, ",{value}");
            }
            let _ = writeln!(self.text, ",{}", quoted(by));
            return;
        }
        let values = predicted.values();
        self.columns.resize(values.len(), Vec::new());
        self.columns.iter_mut().zip(values).for_each(|(column, value)| column.push(*value));
        if let Predicted::Class { class, .. } = predicted {
            self.classes.push(*class);
        }
    }
}

impl Lines {
    /// The numbers, one row after the other; not of text.
    pub(super) fn by_row(&self) -> impl Iterator<Item = f64> {
        let rows = self.columns.first().map_or(0, Vec::len);
        (0..rows).flat_map(move |row| self.columns.iter().map(move |column| column[row]))
    }
}

/// The predictions of a batch.
pub(super) struct Block<'b> {
    pub(super) lines: Vec<Lines>,
    pub(super) clients: Vec<String>,
    /// What serves clients, and which of these serves each row.
    pub(super) servings: &'b [Serving<'b>],
    pub(super) places: Vec<u32>,
}

impl<'b> Block<'b> {
    /// What serves each row.
    pub(super) fn served(&self) -> impl Iterator<Item = &'b Serving<'b>> {
        self.places.iter().map(|&place| &self.servings[place as usize])
    }
}

fn quoted(cell: &str) -> Cow<'_, str> {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")).into(),
        false => cell.into(),
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::io("writing", Path::new("the predictions"), error)
}

type Out<'a> = &'a mut (dyn Write + Send);

/// Writes predictions in a format.
pub(super) struct Output<'a> {
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "formats with columns"))]
    classes: &'a [String],
    writer: Writer<'a>,
}

enum Writer<'a> {
    Csv(Out<'a>),
    #[cfg(feature = "parquet")]
    Parquet(Box<parquet::arrow::ArrowWriter<Out<'a>>>),
    #[cfg(feature = "parquet")]
    Arrow(Box<arrow_ipc::writer::FileWriter<Out<'a>>>),
}

/// The names of the columns of numbers, the first of which is the prediction where there are no classes.
fn number_columns(classes: &[String]) -> Vec<String> {
    match classes {
        [] => ["prediction", "low", "high"].map(str::to_string).to_vec(),
        classes => classes.iter().map(|class| format!("p({class})")).collect(),
    }
}

impl<'a> Output<'a> {
    pub(super) fn new(format: Format, classes: &'a [String], out: Out<'a>) -> Result<Self> {
        let writer = match format {
            Format::Csv => {
                let numbers: Vec<String> =
                    number_columns(classes).iter().map(|name| quoted(name).into_owned()).collect();
                let class = if classes.is_empty() { "" } else { "prediction," };
                writeln!(out, "client,{class}{},served_by", numbers.join(",")).map_err(failed)?;
                Writer::Csv(out)
            }
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                use parquet::basic::Compression;
                use parquet::file::properties::WriterProperties;
                let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
                // No two predictions are the same.
                let properties = number_columns(classes).into_iter().fold(properties, |properties, column| {
                    properties.set_column_dictionary_enabled(column.into(), false)
                });
                let writer = parquet::arrow::ArrowWriter::try_new(out, schema(classes), Some(properties.build()));
                Writer::Parquet(Box::new(writer.map_err(failed)?))
            }
            #[cfg(feature = "parquet")]
            Format::Arrow => {
                let writer = arrow_ipc::writer::FileWriter::try_new(out, &schema(classes));
                Writer::Arrow(Box::new(writer.map_err(failed)?))
            }
            #[cfg(not(feature = "parquet"))]
            Format::Parquet | Format::Arrow => {
                return Err(Error::data("this build writes no Parquet or Arrow files"));
            }
        };
        Ok(Self { classes, writer })
    }

    /// Writes the predictions of a batch.
    pub(super) fn write(&mut self, block: Block) -> Result<()> {
        match &mut self.writer {
            Writer::Csv(out) => {
                block.lines.iter().try_for_each(|lines| out.write_all(lines.text.as_bytes())).map_err(failed)
            }
            #[cfg(feature = "parquet")]
            Writer::Parquet(writer) => writer.write(&record(self.classes, block)?).map_err(failed),
            #[cfg(feature = "parquet")]
            Writer::Arrow(writer) => writer.write(&record(self.classes, block)?).map_err(failed),
        }
    }

    /// Without it, files are not whole.
    pub(super) fn finish(self) -> Result<()> {
        match self.writer {
            Writer::Csv(out) => out.flush().map_err(failed),
            #[cfg(feature = "parquet")]
            Writer::Parquet(writer) => writer.close().map(|_| ()).map_err(failed),
            #[cfg(feature = "parquet")]
            Writer::Arrow(mut writer) => writer.finish().map_err(failed),
        }
    }
}

#[cfg(feature = "parquet")]
fn schema(classes: &[String]) -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let mut fields = vec![text("client")];
    fields.extend((!classes.is_empty()).then(|| text("prediction")));
    fields.extend(number_columns(classes).into_iter().map(|name| Field::new(name, DataType::Float64, false)));
    fields.push(text("served_by"));
    Arc::new(Schema::new(fields))
}

#[cfg(feature = "parquet")]
fn record(classes: &[String], block: Block) -> Result<RecordBatch> {
    let mut columns = vec![Vec::with_capacity(block.clients.len()); number_columns(classes).len()];
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(StringArray::from_iter_values(&block.clients))];
    if !classes.is_empty() {
        let names = block.lines.iter().flat_map(|lines| &lines.classes).map(|class| &classes[*class]);
        arrays.push(Arc::new(StringArray::from_iter_values(names)));
    }
    let served = StringArray::from_iter_values(block.served().map(|serving| &*serving.by));
    for lines in block.lines {
        columns.iter_mut().zip(lines.columns).for_each(|(all, own)| all.extend(own));
    }
    arrays.extend(columns.into_iter().map(|column| Arc::new(Float64Array::from(column)) as ArrayRef));
    arrays.push(Arc::new(served));
    RecordBatch::try_new(schema(classes), arrays).map_err(failed)
}
