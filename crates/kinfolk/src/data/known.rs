//! New rows of a table whose columns are known: a saved schema says what they hold and how they are encoded. They come in
//! batches, in the order of the file, so that a file may be larger than the memory.
//!
//! A word that training rows did not have is no fault, nor is a missing cell; a missing column is one.

use super::files::{Header, Input, MissingCells, Notation, Role, Rows, Source};
use super::schema::{Encoding, FeaturesSchema, Schema, TargetSchema};
use super::{Cells, Features, Shard, Targets};
use crate::error::{Error, Result};
use crate::settings::finish;
use std::path::Path;

/// What is known of the columns of new rows.
#[derive(Clone, Copy)]
pub struct KnownColumns<'a> {
    /// What they hold, and how they are encoded.
    pub schema: &'a Schema,
    /// How they were written in the table that the schema is of.
    pub notation: &'a Notation,
    /// The column that names the client.
    pub client: &'a str,
    /// The column that is predicted.
    pub target: &'a str,
}

/// New rows of clients.
pub struct KnownRows<'a> {
    columns: KnownColumns<'a>,
    rows: Rows<'a>,
}

/// Some of them, one after the other.
pub struct KnownBatch {
    /// The line of each row in the file.
    pub lines: Vec<u64>,
    /// The client of each row.
    pub clients: Vec<String>,
    /// The rows, encoded. Where the file has the target: a missing number is NaN, a missing or new class that of nobody.
    pub rows: Shard,
}

impl<'a> KnownRows<'a> {
    /// Opens a table. It need not have the target.
    pub fn open(input: impl Into<Input<'a>>, columns: KnownColumns<'a>) -> Result<Self> {
        let input = input.into();
        let path = input.path();
        let drop = |name: &str| format!("a model without `{name}`");
        let source =
            Source { input, header: Header::Always, drop, missing: MissingCells::Kept, known: Some(columns.notation) };
        let Some(rows) = source.stream(&|names| roles(path, names, columns)) else {
            let message = format!(
                "got {}, want a file that ends in .csv, .tsv, .txt, .parquet, .arrow or .feather",
                path.display()
            );
            return Err(Error::settings(message).hint("save a workbook as CSV"));
        };
        Ok(Self { columns, rows: rows? })
    }

    /// The next rows; `None` behind the last.
    pub fn next_batch(&mut self) -> Result<Option<KnownBatch>> {
        let KnownColumns { schema, client, target, .. } = self.columns;
        let Some(mut table) = self.rows.next_batch()? else { return Ok(None) };
        let Some(Cells::Words(clients)) = table.take(client).map(|column| column.values) else {
            return Err(Error::data(format!("no column `{}`, which names the clients", client)));
        };
        let targets = match table.take(target).map(|column| column.values) {
            Some(Cells::Numbers(values)) => Targets::Values(values),
            Some(Cells::Words(words)) => Targets::Words(self.classes(words)),
            _ => Targets::None,
        };
        let has_targets = !matches!(targets, Targets::None);
        let rows = Shard::new(Features::Columns(table.columns), targets)?;
        let rows = if has_targets { schema.encode(&rows)? } else { schema.encode_features(&rows)? };
        Ok(Some(KnownBatch { lines: table.lines, clients, rows }))
    }

    /// Classes as the schema names them. Where their names are numbers, 1.0 is the class 1.
    fn classes(&self, words: Vec<String>) -> Vec<String> {
        let is_number = |name: &String| name.parse::<f64>().is_ok();
        match &self.columns.schema.target {
            TargetSchema::Names(names) if names.iter().all(is_number) => {
                let name = |word: String| word.parse::<f64>().map_or(word, |value| (value + 0.0).to_string());
                words.into_iter().map(name).collect()
            }
            _ => words,
        }
    }

    /// What was read in a way that may surprise, so far.
    pub fn remarks(&self) -> Vec<String> {
        self.rows.remarks()
    }
}

/// What the columns of a file are to the schema. Columns that it does not know are not read.
fn roles(path: &Path, names: &[String], known: KnownColumns) -> Result<Vec<Role>> {
    let KnownColumns { schema, client, target, .. } = known;
    let FeaturesSchema::Named(columns) = &schema.features else {
        return Err(Error::data("the model was fitted to rows without column names"));
    };
    let mut roles = vec![Role::Dropped; names.len()];
    let mut lacking = Vec::new();
    let mut want = |name: &str, role: Role| match names.iter().position(|known| known == name) {
        Some(place) => roles[place] = role,
        None => lacking.push(Error::data(format!("{}: no column `{name}`", path.display()))),
    };
    want(client, Role::Name);
    for column in columns {
        match column.encoding {
            Encoding::Number(_) => want(&column.name, Role::Number),
            Encoding::OneHot { .. } => want(&column.name, Role::Words),
            Encoding::Date { .. } => want(&column.name, Role::Date),
            Encoding::LeftOut(_) => {}
        }
    }
    finish(lacking).map_err(|error| error.hint("the model was fitted with it; add it, or fit a model without it"))?;
    if let Some(place) = names.iter().position(|known| known == target) {
        roles[place] = match schema.target {
            TargetSchema::Number => Role::Number,
            TargetSchema::Names(_) => Role::Words,
            TargetSchema::Classes(_) | TargetSchema::None => Role::Dropped,
        };
    }
    Ok(roles)
}
