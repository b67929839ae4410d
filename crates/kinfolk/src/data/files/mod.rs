//! Tables in files, text with a delimiter, Parquet, Arrow, and in memory. The caller says which columns are wanted, and as what;
//! rows come in batches, in their order, with numbers, words and dates told apart.

#[cfg(feature = "parquet")]
mod arrow;
mod batch;
pub(super) mod dates;
mod delimited;
mod lines;
#[cfg(feature = "parquet")]
mod memory;
pub(super) mod notation;
#[cfg(feature = "parquet")]
mod pages;
#[cfg(feature = "parquet")]
mod parquet;
mod survey;

use super::{Cells, Column};
use crate::error::{Error, Result};
use crate::settings::nearest;
use batch::{Batches, Strip, Want};
use dates::First;
use delimited::Delimited;
#[cfg(feature = "parquet")]
pub use memory::Records;
use notation::Mark;
use rayon::prelude::*;
use std::collections::HashSet;
use std::path::Path;
use survey::{Doubt, Kind, Survey};
pub(crate) use survey::{Notation, Written};

/// Where a table is.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// In a file.
    File(&'a Path),
    /// In memory.
    #[cfg(feature = "parquet")]
    Memory(&'a Records),
}

impl<'a> Input<'a> {
    /// What it is called in messages.
    pub(crate) fn path(self) -> &'a Path {
        match self {
            Input::File(path) => path,
            #[cfg(feature = "parquet")]
            Input::Memory(_) => Path::new("the table"),
        }
    }
}

impl<'a, P: AsRef<Path> + ?Sized> From<&'a P> for Input<'a> {
    fn from(path: &'a P) -> Self {
        Input::File(path.as_ref())
    }
}

/// A table, and what is to be known for messages about it.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub input: Input<'a>,
    pub header: Header,
    /// The option that leaves out a column of this name, for hints.
    pub drop: fn(&str) -> String,
    pub missing: MissingCells,
    /// How its columns are written where they do not show it themselves.
    pub known: Option<&'a Notation>,
}

/// Whether the first row of a text file names the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    Always,
    /// If it has words and no number; both together are refused. Otherwise columns are named 1, 2, ….
    IfWords,
}

/// What a cell without a value is: an empty word, or NaN among numbers and dates, or a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingCells {
    Kept,
    /// The hint to the option that keeps them follows, if there is one.
    Refused(&'static str),
}

enum Format {
    Text,
    Parquet,
    Arrow,
}

fn format(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_str()?.to_lowercase();
    let name = name.strip_suffix(".gz").filter(|name| name.contains('.')).unwrap_or(&name);
    match name.rsplit_once('.')?.1 {
        "csv" | "tsv" | "tab" | "txt" => Some(Format::Text),
        "parquet" | "pq" => Some(Format::Parquet),
        "arrow" | "feather" | "ipc" => Some(Format::Arrow),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Its cells are names, even if they look like numbers.
    Name,
    /// The same, but a missing cell is an empty name.
    NameIfAny,
    /// Numbers, words or dates, as its cells say.
    Value,
    /// Words, whatever they look like.
    Words,
    /// Numbers; a cell that is none is missing, but most are some.
    Number,
    /// The same, and perhaps none is.
    NumberIfAny,
    /// Dates; a cell that is none is missing.
    Date,
    Dropped,
}

/// The columns that were not dropped.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub columns: Vec<Column>,
    /// The line of each row in the file.
    pub lines: Vec<u64>,
    /// How the columns are written.
    pub notation: Notation,
}

impl Table {
    pub fn take(&mut self, name: &str) -> Option<Column> {
        let place = self.columns.iter().position(|column| column.name == name)?;
        Some(self.columns.remove(place))
    }

    fn append(&mut self, more: Table) {
        self.lines.extend(more.lines);
        if self.columns.is_empty() {
            self.columns = more.columns;
            return;
        }
        for (column, more) in self.columns.iter_mut().zip(more.columns) {
            match (&mut column.values, more.values) {
                (Cells::Numbers(cells), Cells::Numbers(more)) | (Cells::Dates(cells), Cells::Dates(more)) => {
                    cells.extend(more)
                }
                (Cells::Words(cells), Cells::Words(more)) => cells.extend(more),
                _ => unreachable!("a column is of one kind in all batches"),
            }
        }
    }
}

pub(crate) type ChooseRoles<'a> = &'a dyn Fn(&[String]) -> Result<Vec<Role>>;

/// Rows of a file whose first rows tell how they are read are not all looked at before.
const SURVEYED: usize = 100_000;

impl<'a> Source<'a> {
    /// Reads the columns that `roles`, given all names, does not drop, and remarks on what was read in an unusual way.
    /// `None` for an unknown format.
    pub fn read(&self, roles: ChooseRoles) -> Option<Result<(Table, Vec<String>)>> {
        let read = |mut rows: Rows| {
            let mut all = rows.none();
            while let Some(next) = rows.next_batch()? {
                all.append(next);
            }
            Ok((all, rows.remarks()))
        };
        Some(self.table()?.and_then(|table| self.open(&*table, roles, usize::MAX)).and_then(read))
    }

    /// The same batch by batch. What columns hold is found from the first rows, unless their roles say it.
    pub fn stream(&self, roles: ChooseRoles) -> Option<Result<Rows<'a>>> {
        Some(self.table()?.and_then(|table| self.open(&*table, roles, SURVEYED)))
    }

    fn open(&self, file: &dyn TableFile, roles: ChooseRoles, surveyed: usize) -> Result<Rows<'a>> {
        let (names, types) = (file.names(), file.types());
        self.check_names(&names)?;
        let roles = roles(&names)?;
        let want = |role: &Role| match role {
            Role::Dropped => Want::Nothing,
            Role::Name | Role::NameIfAny | Role::Words => Want::Texts,
            Role::Value | Role::Number | Role::NumberIfAny | Role::Date => Want::Cells,
        };
        let wants: Vec<Want> = roles.iter().map(want).collect();
        for ((name, kind), want) in names.iter().zip(&types).zip(&wants) {
            if let (Type::Other(kind), true) = (kind, *want != Want::Nothing) {
                let message = format!(
                    "{}: column `{name}` holds {kind}, want numbers, texts or dates",
                    self.input.path().display()
                );
                return Err(Error::data(message)
                    .hint(format!("leave the column out with {}, or turn it into numbers", (self.drop)(name))));
            }
        }
        let kinds = self.kinds(file, (&names, &types), &roles, surveyed)?;
        let batches = file.batches(&wants)?;
        let column = |((name, role), (kind, written)): ((String, Role), (Kind, Option<Written>))| {
            let known = self.known.and_then(|known| known.get(&name).copied());
            ColumnReader { name, role, kind, written, known, odd: Odd::default() }
        };
        let columns = names.into_iter().zip(roles).zip(kinds).map(column).collect();
        Ok(Rows { source: *self, batches, columns })
    }

    fn table(&self) -> Option<Result<Box<dyn TableFile>>> {
        match self.input {
            Input::File(path) => format(path).map(|format| open_file(path, format, self.header)),
            #[cfg(feature = "parquet")]
            Input::Memory(records) => Some(Ok(Box::new(records.clone()))),
        }
    }

    /// How the columns are read, and written. Texts whose kind is not known are looked at first.
    fn kinds(
        &self,
        file: &dyn TableFile,
        (names, types): (&[String], &[Type]),
        roles: &[Role],
        surveyed: usize,
    ) -> Result<Vec<(Kind, Option<Written>)>> {
        let is_open = |(role, kind): (&Role, &Type)| {
            let is_text = matches!(kind, Type::Text | Type::Words);
            is_text && matches!(role, Role::Value | Role::Number | Role::NumberIfAny | Role::Date)
        };
        let is_open: Vec<bool> = roles.iter().zip(types).map(is_open).collect();
        let mut surveys = vec![Survey::default(); names.len()];
        if is_open.contains(&true) {
            let wants: Vec<Want> =
                is_open.iter().map(|is_open| if *is_open { Want::Cells } else { Want::Nothing }).collect();
            let mut batches = file.batches(&wants)?;
            let mut seen = 0;
            while seen < surveyed
                && let Some(batch) = batches.next()?
            {
                seen += batch.lines.len();
                surveys.iter_mut().zip(&batch.columns).for_each(|(survey, strip)| survey.add(strip));
            }
        }
        let marks = surveys.iter().map(Survey::marks).fold([false; 2], |all, own| [all[0] | own[0], all[1] | own[1]]);
        let of = |place: usize| {
            let (survey, name) = (&surveys[place], &names[place]);
            let (mark, first) = match self.known.and_then(|known| known.get(name)) {
                Some(Written::DecimalMark(mark)) => (Some(*mark), None),
                Some(Written::FirstInDates(first)) => (None, Some(*first)),
                None => (None, None),
            };
            let kind = match (roles[place], &types[place]) {
                (Role::Dropped | Role::Name | Role::NameIfAny | Role::Words, _) => Ok(Kind::Words),
                (Role::Value | Role::Number | Role::NumberIfAny, Type::Numbers) => Ok(Kind::Number(Mark::Point)),
                (Role::Value | Role::Date, Type::Dates) => Ok(Kind::Date(Default::default())),
                (Role::Value, kind) => survey.kind(marks, *kind == Type::Text),
                (Role::Number | Role::NumberIfAny, Type::Dates) => {
                    return Err(self.other_kind(name, "dates", "numbers"));
                }
                (Role::Date, Type::Numbers) => return Err(self.other_kind(name, "numbers", "dates")),
                (Role::Number, _) if survey.are_few_numbers() => return Err(self.other_kind(name, "words", "numbers")),
                (Role::Number | Role::NumberIfAny, _) => survey.mark(marks, mark).map(Kind::Number),
                (Role::Date, _) if survey.are_few_dates() => return Err(self.other_kind(name, "words", "dates")),
                (Role::Date, _) => survey.first(first).map(Kind::Date),
            };
            let kind = kind.map_err(|doubt| self.doubtful(name, doubt))?;
            let is_read = is_open[place];
            Ok((kind, is_read.then(|| survey.written(kind, marks)).flatten()))
        };
        (0..names.len()).map(of).collect()
    }

    fn other_kind(&self, name: &str, found: &str, wanted: &str) -> Error {
        Error::data(format!("{}: column `{name}` holds {found}, want {wanted}", self.input.path().display()))
            .hint(format!("mend the column, or use {}", (self.drop)(name)))
    }

    fn doubtful(&self, name: &str, doubt: Doubt) -> Error {
        let place = format!("{}: column `{name}`", self.input.path().display());
        let drop = (self.drop)(name);
        match doubt {
            Doubt::Thousands(cell) => Error::data(format!("{place}: `{cell}` may be thousands or a fraction"))
                .hint(format!("write its numbers without separated thousands, or leave the column out with {drop}")),
            Doubt::BothMarks { point, comma } => {
                Error::data(format!("{place}: `{point}` has a decimal point and `{comma}` a decimal comma"))
                    .hint(format!("write all its numbers in one way, or leave the column out with {drop}"))
            }
            Doubt::DayOrMonth(cell) => {
                Error::data(format!("{place}: `{cell}` may begin with the day or with the month"))
                    .hint(format!("write its dates as 2020-12-31, or leave the column out with {drop}"))
            }
            Doubt::Mixed { word, numbers, cells } => {
                Error::data(format!("{place}: {numbers} of {cells} cells are numbers, others are such as `{word}`"))
                    .hint(format!("write numbers alone, or leave the column out with {drop}"))
            }
        }
    }

    /// A cell without a value. A column that names rows cannot be left out.
    pub fn missing(&self, line: u64, name: &str, role: Role) -> Error {
        let error = Error::data(format!("{} row {line}: column `{name}` has no value", self.input.path().display()));
        match role {
            Role::Name | Role::NameIfAny => error.hint("fill it in or delete the row"),
            _ => error.hint(self.remedy("fill it in, delete the row", name)),
        }
    }

    /// A cell that is not of its column's kind.
    fn odd(&self, line: u64, name: &str, cell: &str, kind: Kind) -> Error {
        let others = if matches!(kind, Kind::Date(_)) { "dates" } else { "numbers" };
        let message =
            format!("{} row {line}: column `{name}` holds `{cell}`, others {others}", self.input.path().display());
        Error::data(message).hint(self.remedy("mend it, delete the row", name))
    }

    fn remedy(&self, first: &str, name: &str) -> String {
        let keep = match self.missing {
            MissingCells::Refused(option) if !option.is_empty() => format!(", {option}"),
            _ => String::new(),
        };
        format!("{first}{keep}, or leave the column out with {}", (self.drop)(name))
    }

    pub fn infinite(&self, line: u64, name: &str) -> Error {
        Error::data(format!("{} row {line}: column `{name}` is not finite", self.input.path().display()))
            .hint(self.remedy("mend it, delete the row", name))
    }

    fn check_names(&self, names: &[String]) -> Result<()> {
        let mut known = HashSet::with_capacity(names.len());
        match names.iter().find(|name| !known.insert(name.as_str())) {
            Some(name) if name.is_empty() => {
                Err(Error::data(format!("{}: two columns have no name", self.input.path().display()))
                    .hint("name them in the first row, or delete them"))
            }
            Some(name) => Err(Error::data(format!("{}: two columns are called `{name}`", self.input.path().display()))
                .hint("rename one of them, or delete it")),
            None => Ok(()),
        }
    }
}

fn open_file(path: &Path, format: Format, header: Header) -> Result<Box<dyn TableFile>> {
    match format {
        Format::Text => Ok(Box::new(Delimited::new(path, header)?)),
        #[cfg(feature = "parquet")]
        Format::Parquet => Ok(Box::new(parquet::ParquetFile::new(path)?)),
        #[cfg(feature = "parquet")]
        Format::Arrow => Ok(Box::new(arrow::ArrowFile::new(path)?)),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet | Format::Arrow => {
            let message = format!("{}: this build reads no Parquet or Arrow files", path.display());
            Err(Error::data(message).hint("build with the feature `parquet`, or save the table as csv"))
        }
    }
}

/// A file with a table in it, or a table in memory.
trait TableFile {
    fn names(&self) -> Vec<String>;

    fn types(&self) -> Vec<Type>;

    fn batches(&self, wants: &[Want]) -> Result<Box<dyn Batches>>;
}

/// What a file says about a column.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "files that say what columns are"))]
enum Type {
    /// Nothing: numbers, words or dates.
    Text,
    /// Texts, which are not numbers.
    Words,
    Numbers,
    Dates,
    /// What cannot be read, in words.
    #[cfg_attr(not(feature = "parquet"), expect(dead_code))]
    Other(String),
}

impl TableFile for Delimited {
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn types(&self) -> Vec<Type> {
        vec![Type::Text; self.names.len()]
    }

    fn batches(&self, wants: &[Want]) -> Result<Box<dyn Batches>> {
        Ok(Box::new(self.rows(wants)?))
    }
}

/// The rows of a file, batch by batch.
pub(crate) struct Rows<'a> {
    source: Source<'a>,
    batches: Box<dyn Batches>,
    columns: Vec<ColumnReader>,
}

struct ColumnReader {
    name: String,
    role: Role,
    kind: Kind,
    written: Option<Written>,
    /// How it is written in another file.
    known: Option<Written>,
    odd: Odd,
}

/// Cells that are not of their column's kind, and count as missing.
#[derive(Default)]
struct Odd {
    count: u64,
    /// Some of them.
    examples: Vec<String>,
}

impl Rows<'_> {
    /// The next rows, without the columns that are dropped; `None` behind the last.
    pub fn next_batch(&mut self) -> Result<Option<Table>> {
        let Some(batch) = self.batches.next()? else { return Ok(None) };
        let mut table = Table { lines: batch.lines, ..Table::default() };
        let mut first: Option<(usize, Error)> = None;
        let read = self.columns.par_iter_mut().zip(batch.columns).filter(|(column, _)| column.role != Role::Dropped);
        let cells =
            read.map(|(column, strip)| (column.name.clone(), column.convert(&self.source, &table.lines, strip)));
        for (name, cells) in cells.collect::<Vec<_>>() {
            match cells {
                Ok(values) => table.columns.push(Column { name, values }),
                // The first row that is at fault is told, whichever its column.
                Err((row, error)) if first.as_ref().is_none_or(|(before, _)| row < *before) => {
                    first = Some((row, error))
                }
                Err(_) => {}
            }
        }
        first.map_or(Ok(Some(table)), |(_, error)| Err(error))
    }

    fn none(&self) -> Table {
        let kept = self.columns.iter().filter(|column| column.role != Role::Dropped);
        let column = |column: &ColumnReader| Column {
            name: column.name.clone(),
            values: match column.kind {
                Kind::Number(_) => Cells::Numbers(Vec::new()),
                Kind::Words => Cells::Words(Vec::new()),
                Kind::Date(_) => Cells::Dates(Vec::new()),
            },
        };
        let written = self.columns.iter().filter(|column| column.role != Role::Dropped);
        let notation = written.filter_map(|column| Some((column.name.clone(), column.written?))).collect();
        Table { columns: kept.map(column).collect(), lines: Vec::new(), notation }
    }

    /// What was read in a way that may surprise, so far.
    pub fn remarks(&self) -> Vec<String> {
        let path = self.source.input.path().display();
        let mut remarks = self.batches.remarks();
        for (kind, said) in [
            (Kind::Number(Mark::Comma), "a decimal comma in"),
            (Kind::Number(Mark::Point), "a decimal point in"),
            (Kind::Date(First::Day), "the day is first in the dates of"),
            (Kind::Date(First::Month), "the month is first in the dates of"),
        ] {
            let is_it = |column: &&ColumnReader| column.role != Role::Dropped && column.kind == kind;
            let (other, usual): (Vec<&ColumnReader>, Vec<&ColumnReader>) =
                self.columns.iter().filter(is_it).partition(|column| column.is_written_otherwise());
            let names = |columns: &[&ColumnReader]| {
                listed(&columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>())
            };
            if !other.is_empty() {
                remarks.push(format!("{path}: {said} {}, unlike in the table that was fitted", names(&other)));
            }
            if !usual.is_empty() && kind == Kind::Number(Mark::Comma) && self.source.known.is_none() {
                remarks.push(format!("{path}: {said} {}", names(&usual)));
            }
        }
        for column in self.columns.iter().filter(|column| column.odd.count > 0) {
            let (count, name, examples) = (column.odd.count, &column.name, column.odd.examples.join("`, `"));
            let kind = if matches!(column.kind, Kind::Date(_)) { "dates" } else { "numbers" };
            let cells = if count == 1 { "1 cell counts".into() } else { format!("{count} cells count") };
            remarks.push(format!("{path}: column `{name}` holds {kind}; {cells} as missing: `{examples}`"));
        }
        remarks
    }
}

impl ColumnReader {
    fn is_written_otherwise(&self) -> bool {
        match (self.known, self.kind) {
            (Some(Written::DecimalMark(known)), Kind::Number(mark)) => mark != known,
            (Some(Written::FirstInDates(known)), Kind::Date(first)) => first != known,
            _ => false,
        }
    }

    /// The cells by their kind, or the row at fault.
    fn convert(&mut self, source: &Source, lines: &[u64], strip: Strip) -> std::result::Result<Cells, (usize, Error)> {
        let refused = matches!(source.missing, MissingCells::Refused(_));
        let (name, role, kind) = (&self.name, self.role, self.kind);
        let missing = |row: usize| (row, source.missing(lines[row], name, role));
        match strip {
            Strip::Nothing => Ok(Cells::Words(Vec::new())),
            Strip::Numbers(values) | Strip::Dates(values) => {
                for (row, value) in values.iter().enumerate() {
                    if value.is_nan() && refused {
                        return Err(missing(row));
                    }
                    if value.is_infinite() {
                        return Err((row, source.infinite(lines[row], name)));
                    }
                }
                Ok(if matches!(kind, Kind::Date(_)) { Cells::Dates(values) } else { Cells::Numbers(values) })
            }
            Strip::Texts(texts) if kind == Kind::Words => {
                let may_lack = role == Role::NameIfAny || role != Role::Name && !refused;
                let mut words = Vec::with_capacity(lines.len());
                for (row, cell) in texts.iter().enumerate() {
                    let is_missing = is_missing(cell);
                    if is_missing && !may_lack {
                        return Err(missing(row));
                    }
                    words.push(if is_missing { String::new() } else { cell.to_string() });
                }
                Ok(Cells::Words(words))
            }
            Strip::Texts(texts) => {
                let mut values = Vec::with_capacity(lines.len());
                for (row, cell) in texts.iter().enumerate() {
                    let value = match kind {
                        Kind::Number(mark) => notation::parse(cell, mark),
                        Kind::Date(first) => dates::parse(cell, first),
                        Kind::Words => None,
                    };
                    match value {
                        Some(value) if value.is_infinite() => return Err((row, source.infinite(lines[row], name))),
                        Some(value) if !value.is_nan() => values.push(value),
                        _ if is_missing(cell) && refused => return Err(missing(row)),
                        _ if refused => return Err((row, source.odd(lines[row], name, cell, kind))),
                        _ => {
                            if !is_missing(cell) {
                                self.odd.add(cell);
                            }
                            values.push(f64::NAN);
                        }
                    }
                }
                Ok(if matches!(kind, Kind::Date(_)) { Cells::Dates(values) } else { Cells::Numbers(values) })
            }
        }
    }
}

impl Odd {
    fn add(&mut self, cell: &str) {
        const EXAMPLES: usize = 3;
        const LONGEST: usize = 40;
        self.count += 1;
        if self.examples.len() < EXAMPLES && cell.len() <= LONGEST && !self.examples.iter().any(|known| known == cell) {
            self.examples.push(cell.to_string());
        }
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
            let hint = lacking_hint(name, names).unwrap_or_else(|| format!("its columns are {}", listed(names)));
            faults.push(fault.hint(hint));
            continue;
        };
        if let Some((earlier, _)) = given[place].replace((setting, role)) {
            let (setting, earlier) = (spell(setting), spell(earlier));
            faults.push(Error::settings(format!("{setting}: column `{name}` {relation} {earlier} already")));
        }
    }
    given.into_iter().map(|given| given.map(|(_, role)| role)).collect()
}

/// What to do about a column that is not among those of a file, where these show it.
pub(super) fn lacking_hint(name: &str, names: &[String]) -> Option<String> {
    let known = || names.iter().map(String::as_str);
    let same_letters = known().find(|known| known.to_lowercase() == name.to_lowercase());
    // A short name is near to others that have nothing in common with it.
    let alike = || nearest(name, known()).filter(|near| near.chars().any(|letter| name.contains(letter)));
    match (same_letters.or_else(alike), names) {
        (Some(near), _) => Some(format!("did you mean `{near}`?")),
        (None, []) => Some("the file is empty".into()),
        (None, [only]) => {
            let message = format!("its only column is `{only}`; cells are separated by commas, semicolons or tabs");
            Some(message + ", and the first row names the columns")
        }
        _ => None,
    }
}

/// Names of columns for a message, which may be many.
fn listed<T: std::borrow::Borrow<str>>(names: &[T]) -> String {
    const NAMED: usize = 20;
    match names.split_at_checked(NAMED) {
        Some((first, more)) if !more.is_empty() => format!("{} and {} more", first.join(", "), more.len()),
        _ => names.join(", "),
    }
}

pub(super) fn is_missing(cell: &str) -> bool {
    matches!(cell, "" | "<NA>" | "#N/A")
        || ["na", "n/a", "nan", "null"].iter().any(|word| cell.eq_ignore_ascii_case(word))
}

/// What people write where a number or a date is missing. Elsewhere it is a word.
fn is_placeholder(cell: &str) -> bool {
    const WORDS: [&str; 8] = ["n/k", "nk", "k.a.", "k. a.", "unknown", "missing", "not available", "\\n"];
    let is_sign = |letter: char| matches!(letter, '-' | '–' | '—' | '?' | '.' | '*' | '/');
    let is_fault = cell.starts_with('#') && cell.ends_with(['!', '?']);
    cell.chars().all(is_sign) || is_fault || WORDS.iter().any(|word| cell.eq_ignore_ascii_case(word))
}

pub(super) fn is_number(cell: &str) -> bool {
    notation::Reading::of(cell).is_some()
}
