//! Where predictions go: csv, Parquet or Arrow, batch by batch.

use super::serving::Predicted;
use crate::error::{Error, Result};
#[cfg(feature = "parquet")]
use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray};
#[cfg(feature = "parquet")]
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
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
    /// What serves clients, in words, and which of these serves each row.
    pub(super) servings: &'b [Arc<str>],
    pub(super) places: Vec<u32>,
}

impl<'b> Block<'b> {
    /// What serves each row.
    pub(super) fn served(&self) -> impl Iterator<Item = &'b Arc<str>> {
        self.places.iter().map(|&place| &self.servings[place as usize])
    }
}

/// The columns between those of the client and of what serves it.
pub(super) struct Head {
    /// The column of what is predicted, where that is one of some words, and these.
    label: Option<(&'static str, Vec<String>)>,
    numbers: Vec<String>,
}

impl Head {
    /// Of numbers with their intervals.
    pub(super) fn of_numbers() -> Self {
        Self { label: None, numbers: ["prediction", "low", "high"].map(str::to_string).to_vec() }
    }

    /// Of one of some words with the probability of each, and more numbers.
    pub(super) fn of_words(label: &'static str, words: &[String], more: &[&str]) -> Self {
        let probabilities = words.iter().map(|word| format!("p({word})"));
        let numbers = probabilities.chain(more.iter().map(|name| name.to_string())).collect();
        Self { label: Some((label, words.to_vec())), numbers }
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
    head: Head,
    writer: Writer<'a>,
}

enum Writer<'a> {
    Csv(Out<'a>),
    #[cfg(feature = "parquet")]
    Parquet(Box<parquet::arrow::ArrowWriter<Out<'a>>>),
    #[cfg(feature = "parquet")]
    Arrow(Box<arrow_ipc::writer::FileWriter<Out<'a>>>),
}

impl<'a> Output<'a> {
    pub(super) fn new(format: Format, head: Head, out: Out<'a>) -> Result<Self> {
        let writer = match format {
            Format::Csv => {
                let numbers: Vec<String> = head.numbers.iter().map(|name| quoted(name).into_owned()).collect();
                let label = head.label.as_ref().map_or(String::new(), |(name, _)| format!("{name},"));
                writeln!(out, "client,{label}{},served_by", numbers.join(",")).map_err(failed)?;
                Writer::Csv(out)
            }
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                use parquet::basic::Compression;
                use parquet::file::properties::WriterProperties;
                let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
                // No two predictions are the same.
                let properties = head.numbers.iter().fold(properties, |properties, column| {
                    properties.set_column_dictionary_enabled(column.as_str().into(), false)
                });
                let writer = parquet::arrow::ArrowWriter::try_new(out, schema(&head), Some(properties.build()));
                Writer::Parquet(Box::new(writer.map_err(failed)?))
            }
            #[cfg(feature = "parquet")]
            Format::Arrow => {
                let writer = arrow_ipc::writer::FileWriter::try_new(out, &schema(&head));
                Writer::Arrow(Box::new(writer.map_err(failed)?))
            }
            #[cfg(not(feature = "parquet"))]
            Format::Parquet | Format::Arrow => {
                return Err(Error::data("this build writes no Parquet or Arrow files"));
            }
        };
        Ok(Self { head, writer })
    }

    /// Writes the predictions of a batch.
    pub(super) fn write(&mut self, block: Block) -> Result<()> {
        match &mut self.writer {
            Writer::Csv(out) => {
                block.lines.iter().try_for_each(|lines| out.write_all(lines.text.as_bytes())).map_err(failed)
            }
            #[cfg(feature = "parquet")]
            Writer::Parquet(writer) => writer.write(&record(&self.head, block)?).map_err(failed),
            #[cfg(feature = "parquet")]
            Writer::Arrow(writer) => writer.write(&record(&self.head, block)?).map_err(failed),
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
fn schema(head: &Head) -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let mut fields = vec![text("client")];
    fields.extend(head.label.as_ref().map(|(name, _)| text(name)));
    fields.extend(head.numbers.iter().map(|name| Field::new(name, DataType::Float64, false)));
    fields.push(text("served_by"));
    Arc::new(Schema::new(fields))
}

#[cfg(feature = "parquet")]
fn record(head: &Head, block: Block) -> Result<RecordBatch> {
    let mut columns = vec![Vec::with_capacity(block.clients.len()); head.numbers.len()];
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(StringArray::from_iter_values(&block.clients))];
    if let Some((_, words)) = &head.label {
        let names = block.lines.iter().flat_map(|lines| &lines.classes).map(|class| &words[*class]);
        arrays.push(Arc::new(StringArray::from_iter_values(names)));
    }
    let served = StringArray::from_iter_values(block.served().map(|by| &**by));
    for lines in block.lines {
        columns.iter_mut().zip(lines.columns).for_each(|(all, own)| all.extend(own));
    }
    arrays.extend(columns.into_iter().map(|column| Arc::new(Float64Array::from(column)) as ArrayRef));
    arrays.push(Arc::new(served));
    RecordBatch::try_new(schema(head), arrays).map_err(failed)
}
