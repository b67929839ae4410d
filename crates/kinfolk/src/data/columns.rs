//! Columns of a csv, tsv or parquet file. The caller says which columns are wanted, and as what.

use super::line_counter::LineCounter;
use super::{Cells, Column};
use crate::error::{Error, Result};
use crate::settings::nearest;
use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

pub(super) struct Source<'a> {
    pub path: &'a Path,
    pub header: Header,
    /// The option that leaves out a column of this name, for hints.
    pub drop: fn(&str) -> String,
}

/// Whether the first row of a text file names the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    Always,
    /// If it has words and no number; both together are refused. Otherwise columns are named 1, 2, ….
    IfWords,
}

enum Format {
    Text(u8),
    Parquet,
}

fn format(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()?.to_lowercase().as_str() {
        "csv" => Some(Format::Text(b',')),
        "tsv" => Some(Format::Text(b'\t')),
        "parquet" | "pq" => Some(Format::Parquet),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Its cells are names, even if they look like numbers.
    Name,
    /// The same, but a missing cell is an empty name.
    NameIfAny,
    Value,
    Dropped,
}

/// The columns that were not dropped.
pub(super) struct Table {
    pub columns: Vec<Column>,
    /// The line of each row in the file.
    pub lines: Vec<u64>,
}

impl Table {
    pub fn take(&mut self, name: &str) -> Option<Column> {
        let place = self.columns.iter().position(|column| column.name == name)?;
        Some(self.columns.remove(place))
    }
}

pub(super) type ChooseRoles<'a> = &'a dyn Fn(&[String]) -> Result<Vec<Role>>;

impl Source<'_> {
    /// Reads the columns that `roles`, given all names, does not drop. `None` for an unknown format.
    pub fn read(&self, roles: ChooseRoles) -> Option<Result<Table>> {
        Some(match format(self.path)? {
            Format::Text(delimiter) => self.read_text(delimiter, roles),
            Format::Parquet => self.read_parquet(roles),
        })
    }

    /// A cell without a value. A column that names rows cannot be left out.
    pub fn missing(&self, line: u64, name: &str, role: Role) -> Error {
        let error = Error::data(format!("{} row {line}: column `{name}` has no value", self.path.display()));
        match role {
            Role::Value => {
                error.hint(format!("fill it in, delete the row, or leave the column out with {}", (self.drop)(name)))
            }
            _ => error.hint("fill it in or delete the row"),
        }
    }

    pub fn infinite(&self, line: u64, name: &str) -> Error {
        Error::data(format!("{} row {line}: column `{name}` is not finite", self.path.display()))
    }

    pub fn check_names(&self, names: &[String]) -> Result<()> {
        let mut known = HashSet::with_capacity(names.len());
        match names.iter().find(|name| !known.insert(name.as_str())) {
            Some(name) => Err(Error::data(format!("{}: two columns are called `{name}`", self.path.display()))),
            None => Ok(()),
        }
    }

    fn read_text(&self, delimiter: u8, roles: ChooseRoles) -> Result<Table> {
        let path = self.path;
        let io = |error| Error::io("reading", path, error);
        let open = || File::open(path).map_err(io);
        let records = |named: bool| {
            let mut builder = csv::ReaderBuilder::new();
            Ok(builder.delimiter(delimiter).trim(csv::Trim::All).has_headers(named).from_reader(open()?))
        };
        let count_lines = || Ok::<_, Error>(LineCounter::new(BufReader::new(open()?)));
        let place = |position: &csv::Position| {
            let line = count_lines().and_then(|mut counter| counter.line_at(position.byte()).map_err(io));
            line.map_or_else(|_| path.display().to_string(), |line| format!("{} row {line}", path.display()))
        };
        let broken = |error: csv::Error| match error.kind() {
            csv::ErrorKind::UnequalLengths { pos: Some(position), expected_len, len } => {
                let cells = if *len == 1 { "1 cell".to_string() } else { format!("{len} cells") };
                let message = format!("{}: {cells}, want {expected_len}", place(position));
                Error::data(message).hint("quote cells that contain the separator")
            }
            csv::ErrorKind::Utf8 { pos: Some(position), .. } => {
                Error::data(format!("{}: not UTF-8 text", place(position)))
            }
            _ => Error::data(format!("{}: {error}", path.display())),
        };
        let mut first = csv::StringRecord::new();
        records(false)?.read_record(&mut first).map_err(broken)?;
        let start = first.position().cloned().unwrap_or_else(csv::Position::new);
        let named = self.header == Header::Always || has_names(&first).map_err(|error| error.at(place(&start)))?;
        let name = |(index, cell): (usize, &str)| if named { cell.to_string() } else { (index + 1).to_string() };
        let names: Vec<String> = first.iter().enumerate().map(name).collect();
        self.check_names(&names)?;
        let roles = roles(&names)?;

        // A first pass finds the types, a second one stores the cells: texts of numbers would take far more memory.
        let mut numeric: Vec<bool> = roles.iter().map(|role| *role == Role::Value).collect();
        let mut lines = Vec::new();
        let mut counter = count_lines()?;
        let mut reader = records(named)?;
        let mut record = csv::StringRecord::new();
        while reader.read_record(&mut record).map_err(broken)? {
            let line = counter.line_at(record.position().map_or(0, csv::Position::byte)).map_err(io)?;
            lines.push(line);
            for (index, cell) in record.iter().enumerate().filter(|(index, _)| roles[*index] != Role::Dropped) {
                if is_missing(cell) && roles[index] != Role::NameIfAny {
                    return Err(self.missing(line, &names[index], roles[index]));
                }
                numeric[index] = numeric[index] && is_number(cell);
            }
        }
        let mut cells: Vec<Cells> = numeric
            .iter()
            .map(|numeric| if *numeric { Cells::Numbers(Vec::new()) } else { Cells::Words(Vec::new()) })
            .collect();
        let mut reader = records(named)?;
        let changed = || Error::data(format!("{}: changed while it was read", path.display()));
        let mut rest = lines.iter();
        while reader.read_record(&mut record).map_err(broken)? {
            let &line = rest.next().ok_or_else(changed)?;
            for (index, cell) in record.iter().enumerate().filter(|(index, _)| roles[*index] != Role::Dropped) {
                match &mut cells[index] {
                    Cells::Words(words) if is_missing(cell) => words.push(String::new()),
                    Cells::Words(words) => words.push(cell.to_string()),
                    Cells::Numbers(numbers) => match cell.parse::<f64>() {
                        Ok(number) if number.is_finite() => numbers.push(number),
                        _ => return Err(self.infinite(line, &names[index])),
                    },
                }
            }
        }
        if rest.len() > 0 {
            return Err(changed());
        }
        Ok(Table { columns: keep(names, cells, &roles), lines })
    }

    #[cfg(not(feature = "parquet"))]
    fn read_parquet(&self, _: ChooseRoles) -> Result<Table> {
        let message = format!("{}: this build reads no Parquet files", self.path.display());
        Err(Error::data(message).hint("build with the feature `parquet`, or save the table as csv"))
    }
}

/// Whether the first row names the columns. A point taken for names would be lost silently.
fn has_names(first: &csv::StringRecord) -> Result<bool> {
    let word = first.iter().find(|cell| !is_missing(cell) && !is_number(cell));
    match (word, first.iter().find(|cell| is_number(cell))) {
        (Some(word), Some(number)) => Err(Error::data(format!(
            "`{word}` is a word and `{number}` a number, want the names of all columns or a point"
        ))
        .hint("begin the file with a row of names, none of them a number")),
        (word, _) => Ok(word.is_some()),
    }
}

/// The roles of the columns that settings name. `wanted` are settings, columns and roles; `spell` writes a setting as the
/// user knows it, and `relation` says how a column belongs to one.
pub(super) fn find_roles<'a>(
    path: &Path,
    names: &[String],
    wanted: impl IntoIterator<Item = (&'a str, &'a String, Role)>,
    (spell, relation): (impl Fn(&str) -> String, &str),
    faults: &mut Vec<Error>,
) -> Vec<Option<Role>> {
    let mut given: Vec<Option<(&str, Role)>> = vec![None; names.len()];
    for (setting, name, role) in wanted {
        let Some(place) = names.iter().position(|known| known == name) else {
            let fault = Error::settings(format!("{}: {} has no column `{name}`", spell(setting), path.display()));
            faults.push(match nearest(name, names.iter().map(String::as_str)) {
                Some(near) => fault.hint(format!("did you mean `{near}`?")),
                None => fault.hint(format!("its columns are {}", listed(names))),
            });
            continue;
        };
        if let Some((earlier, _)) = given[place].replace((setting, role)) {
            let (setting, earlier) = (spell(setting), spell(earlier));
            faults.push(Error::settings(format!("{setting}: column `{name}` {relation} {earlier} already")));
        }
    }
    given.into_iter().map(|given| given.map(|(_, role)| role)).collect()
}

/// Names of columns for a message, which may be many.
fn listed(names: &[String]) -> String {
    const NAMED: usize = 20;
    match names.split_at_checked(NAMED) {
        Some((first, more)) if !more.is_empty() => format!("{} and {} more", first.join(", "), more.len()),
        _ => names.join(", "),
    }
}

pub(super) fn is_missing(cell: &str) -> bool {
    matches!(cell, "" | "NA" | "N/A" | "#N/A") || cell.eq_ignore_ascii_case("nan") || cell.eq_ignore_ascii_case("null")
}

pub(super) fn is_number(cell: &str) -> bool {
    cell.parse::<f64>().is_ok()
}

pub(super) fn keep(names: Vec<String>, cells: Vec<Cells>, roles: &[Role]) -> Vec<Column> {
    let columns = names.into_iter().zip(cells).map(|(name, values)| Column { name, values });
    columns.zip(roles).filter(|(_, role)| **role != Role::Dropped).map(|(column, _)| column).collect()
}
