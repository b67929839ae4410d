//! New rows of a table whose columns are known: a saved schema says what they hold and how they are encoded. They come in
//! batches, in the order of the file, so that a file may be larger than the memory.
//!
//! A word that training rows did not have is no fault, nor is a missing cell; a missing column is one.

use super::files::{ChooseRoles, Header, Input, MissingCells, Notation, Role, Rows, Source, lacking_hint};
use super::schema::{Encoding, FeaturesSchema, Schema, TargetSchema};
use super::{Cells, Column, Features, Shard, Targets};
use crate::error::{Error, ErrorKind, Result};
use crate::panics::contained;
use crate::settings::finish;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

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
    /// The column of weights, and their mean.
    pub weight: Option<(&'a str, f64)>,
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
    /// The rows as they are in the file.
    pub rows: Shard,
}

impl KnownBatch {
    /// Some of the rows, encoded. Where the file has the target: a missing number is NaN, a missing or new class that of nobody.
    pub(crate) fn encoded(&self, schema: &Schema, rows: Range<usize>) -> Result<Shard> {
        let part = self.rows.within(rows)?;
        match **part.targets() {
            Targets::None => schema.encode_features(&part),
            _ => schema.encode(&part),
        }
    }
}

impl<'a> KnownRows<'a> {
    /// Opens a table. It need not have the target.
    pub fn open(input: impl Into<Input<'a>>, columns: KnownColumns<'a>) -> Result<Self> {
        let input = input.into();
        Self::open_with(input, columns, &|names| roles(input.path(), names, columns))
    }

    /// Hands out the batches of a table, and reads the next ones meanwhile. Returns remarks about how it was read.
    pub(crate) fn read_ahead(
        input: Input,
        columns: KnownColumns,
        each: impl FnMut(KnownBatch) -> Result<()>,
    ) -> Result<Vec<String>> {
        const AHEAD: usize = 4;
        std::thread::scope(|scope| {
            let (send, batches) = sync_channel(AHEAD);
            let read = move || {
                let mut rows = KnownRows::open(input, columns)?;
                while let Some(batch) = rows.next_batch()? {
                    // Nobody takes it where the work has failed.
                    if send.send(batch).is_err() {
                        break;
                    }
                }
                Ok(rows.remarks())
            };
            let reader = scope.spawn(|| contained(read));
            let worked = batches.into_iter().try_for_each(each);
            let read = reader.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "the reader of a table")));
            worked.and(read)
        })
    }

    fn open_with(input: Input<'a>, columns: KnownColumns<'a>, roles: ChooseRoles) -> Result<Self> {
        let drop = |name: &str| format!("a model without `{name}`");
        let source =
            Source { input, header: Header::Always, drop, missing: MissingCells::Kept, known: Some(columns.notation) };
        let Some(rows) = source.stream(roles) else {
            let message = format!(
                "got {}, want a file that ends in .csv, .tsv, .txt, .parquet, .arrow or .feather",
                input.path().display()
            );
            return Err(Error::settings(message).hint("save a workbook as CSV"));
        };
        Ok(Self { columns, rows: rows? })
    }

    /// The next rows; `None` behind the last.
    pub fn next_batch(&mut self) -> Result<Option<KnownBatch>> {
        let KnownColumns { client, target, weight, .. } = self.columns;
        let Some(mut table) = self.rows.next_batch()? else { return Ok(None) };
        let Some(Cells::Words(clients)) = table.take(client).map(|column| column.values) else {
            return Err(Error::data(format!("no column `{}`, which names the clients", client)));
        };
        let targets = match table.take(target).map(|column| column.values) {
            Some(Cells::Numbers(values)) => Targets::Values(values),
            Some(Cells::Words(words)) => Targets::Words(self.classes(words)),
            _ => Targets::None,
        };
        let weights = match weight.and_then(|(name, mean)| Some((table.take(name)?.values, mean))) {
            Some((Cells::Numbers(weights), mean)) => Some(weights.into_iter().map(|weight| weight / mean).collect()),
            _ => None,
        };
        if table.columns.is_empty() {
            table.columns.push(Column::none(clients.len()));
        }
        let rows = Shard::new(Features::Columns(table.columns), targets)?.weighted(weights.map(Arc::new))?;
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

/// Hands out the client of every row, and whether it has a target there, until that is enough. Only the two columns are read.
pub(crate) fn scan_targets(
    input: Input,
    columns: KnownColumns,
    mut each: impl FnMut(&str, bool) -> ControlFlow<()>,
) -> Result<()> {
    let mut rows = KnownRows::open_with(input, columns, &|names| {
        let roles = roles(input.path(), names, columns)?;
        let only = |(role, name): (Role, &String)| match name == columns.client || name == columns.target {
            true => role,
            false => Role::Dropped,
        };
        Ok(roles.into_iter().zip(names).map(only).collect())
    })?;
    while let Some(mut table) = rows.rows.next_batch()? {
        let [clients, targets] =
            [columns.client, columns.target].map(|name| table.take(name).map(|column| column.values));
        let Some(Cells::Words(clients)) = clients else { return Ok(()) };
        let has_target = |row: usize| match &targets {
            Some(Cells::Numbers(values) | Cells::Dates(values)) => values[row].is_finite(),
            Some(Cells::Words(words)) => !words[row].is_empty(),
            None => false,
        };
        if (0..clients.len()).any(|row| each(&clients[row], has_target(row)).is_break()) {
            break;
        }
    }
    Ok(())
}

/// What the columns of a file are to the schema. Columns that it does not know are not read.
fn roles(path: &Path, names: &[String], known: KnownColumns) -> Result<Vec<Role>> {
    let KnownColumns { schema, client, target, weight, .. } = known;
    let FeaturesSchema::Named(columns) = &schema.features else {
        return Err(Error::data("the model was fitted to rows without column names"));
    };
    let mut roles = vec![Role::Dropped; names.len()];
    let mut lacking = Vec::new();
    let mut want = |name: &str, role: Role| match names.iter().position(|known| known == name) {
        Some(place) => roles[place] = role,
        None => {
            let fault = Error::data(format!("{}: no column `{name}`", path.display()));
            let usual = || "the model was fitted with it; add it, or fit a model without it".into();
            lacking.push(fault.hint(lacking_hint(name, names).unwrap_or_else(usual)));
        }
    };
    want(client, Role::Name);
    for column in columns {
        match column.encoding {
            Encoding::Number(_) => want(&column.name, Role::Number),
            Encoding::OneHot { .. } => want(&column.name, Role::Words),
            Encoding::Date { .. } => want(&column.name, Role::Date),
            Encoding::LeftOut(_) | Encoding::Nothing => {}
        }
    }
    finish(lacking)?;
    if let Some(place) = weight.and_then(|(weight, _)| names.iter().position(|known| known == weight)) {
        roles[place] = Role::Number;
    }
    if let Some(place) = names.iter().position(|known| known == target) {
        roles[place] = match schema.target {
            TargetSchema::Number => Role::NumberIfAny,
            TargetSchema::Names(_) => Role::Words,
            TargetSchema::Classes(_) | TargetSchema::None => Role::Dropped,
        };
    }
    Ok(roles)
}
