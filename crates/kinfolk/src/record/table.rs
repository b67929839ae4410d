//! Records that are rows of a csv file. A field declares a column by its name, its type and its comment.

use crate::disk::comma_separated;
use crate::error::{Error, Result};
use std::path::Path;

/// A declared column.
pub struct Heading {
    /// Its name.
    pub name: &'static str,
    /// Its meaning.
    pub help: &'static str,
    /// An empty column of its type.
    cells: Cells,
}

impl Heading {
    pub(crate) const fn new<C: Cell>(name: &'static str, help: &'static str) -> Self {
        Self { name, help, cells: C::NONE }
    }
}

/// A record that is one row of a csv file.
pub trait TableRow: Default {
    /// The file's name.
    const FILE: &'static str;
    /// The columns, in their order.
    const COLUMNS: &'static [Heading];

    /// Its cells, in the order of the columns; those that do not apply are empty.
    fn cells(&self) -> Vec<String>;

    /// Sets the column of this name from the text of a cell; `None` where the text is invalid.
    fn set(&mut self, column: &str, text: &str) -> Option<()>;
}

/// Declares a record with its columns. The comment on a field is the help of its column.
macro_rules! table_row {
    (
        $(#[$about:meta])*
        pub struct $name:ident in $file:literal {
            $($(#[doc = $help:literal])+ pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $name {
            $($(#[doc = $help])+ pub $field: $type,)*
        }

        impl $crate::record::table::TableRow for $name {
            const FILE: &'static str = $file;
            const COLUMNS: &'static [$crate::record::table::Heading] = &[$(
                $crate::record::table::Heading::new::<$type>(stringify!($field), concat!($($help),+)),
            )*];

            fn cells(&self) -> Vec<String> {
                vec![$($crate::record::table::Cell::text(&self.$field)),*]
            }

            fn set(&mut self, column: &str, text: &str) -> Option<()> {
                match column {
                    $(stringify!($field) => self.$field = $crate::record::table::Cell::parse(text)?,)*
                    _ => return None,
                }
                Some(())
            }
        }
    };
}
pub(crate) use table_row;

pub(crate) trait Cell: Sized {
    const NONE: Cells;

    fn text(&self) -> String;

    fn parse(text: &str) -> Option<Self>;
}

macro_rules! cell {
    ($($type:ty: $kind:ident),*) => {
        $(impl Cell for $type {
            const NONE: Cells = Cells::$kind(Vec::new());

            fn text(&self) -> String {
                self.to_string()
            }

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        })*
    };
}
cell!(String: Texts, i64: Wholes, u64: Wholes, usize: Wholes, u32: Wholes, u8: Wholes, f64: Numbers, bool: Flags);

impl<C: Cell> Cell for Option<C> {
    const NONE: Cells = C::NONE;

    fn text(&self) -> String {
        self.as_ref().map_or_else(String::new, C::text)
    }

    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() { Some(None) } else { C::parse(text).map(Some) }
    }
}

/// Numbers in one cell, as `300;298`.
impl Cell for Vec<usize> {
    const NONE: Cells = Cells::Texts(Vec::new());

    fn text(&self) -> String {
        self.iter().map(usize::to_string).collect::<Vec<_>>().join(";")
    }

    fn parse(text: &str) -> Option<Self> {
        text.split_terminator(';').map(|number| number.parse().ok()).collect()
    }
}

/// The bytes of a file of these rows.
pub(crate) fn write<R: TableRow>(rows: impl IntoIterator<Item = impl std::borrow::Borrow<R>>) -> Result<Vec<u8>> {
    let names = R::COLUMNS.iter().map(|column| column.name);
    comma_separated(R::FILE, names, rows.into_iter().map(|row| row.borrow().cells()))
}

/// A column read from a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its cells.
    pub cells: Cells,
}

/// The cells of a column; `None` is an empty one.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells {
    /// Texts, which may be empty.
    Texts(Vec<String>),
    /// Whole numbers.
    Wholes(Vec<Option<i64>>),
    /// Numbers.
    Numbers(Vec<Option<f64>>),
    /// true or false.
    Flags(Vec<Option<bool>>),
}

impl Cells {
    /// Number of cells.
    pub fn len(&self) -> usize {
        match self {
            Self::Texts(cells) => cells.len(),
            Self::Wholes(cells) => cells.len(),
            Self::Numbers(cells) => cells.len(),
            Self::Flags(cells) => cells.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a cell; `None` where its text is invalid.
    fn push(&mut self, text: &str) -> Option<()> {
        match self {
            Self::Texts(cells) => cells.push(text.to_string()),
            Self::Wholes(cells) => cells.push(Cell::parse(text)?),
            Self::Numbers(cells) => cells.push(Cell::parse(text)?),
            Self::Flags(cells) => cells.push(Cell::parse(text)?),
        }
        Some(())
    }
}

/// Reads the file of these rows from a run folder, column by column. A file of an earlier version may lack some.
pub fn read_columns<R: TableRow>(folder: &Path) -> Result<Vec<Column>> {
    let column = |heading: &Heading| Column { name: heading.name.to_string(), cells: heading.cells.clone() };
    let mut columns: Vec<Column> = R::COLUMNS.iter().map(column).collect();
    let there = each_cell::<R>(folder, |_, place, text| columns[place].cells.push(text))?;
    let mut places = 0..;
    columns.retain(|_| places.next().is_some_and(|place| there.contains(&place)));
    Ok(columns)
}

/// Reads the same row by row; a column that is missing is empty.
pub(crate) fn read_rows<R: TableRow>(folder: &Path) -> Result<Vec<R>> {
    let mut rows: Vec<R> = Vec::new();
    each_cell::<R>(folder, |row, place, text| {
        rows.resize_with(row + 1, R::default);
        rows[row].set(R::COLUMNS[place].name, text)
    })?;
    Ok(rows)
}

/// Calls `take` with every cell, its row and the index of its column, and returns the indices of the columns in the file.
fn each_cell<R: TableRow>(folder: &Path, mut take: impl FnMut(usize, usize, &str) -> Option<()>) -> Result<Vec<usize>> {
    let path = folder.join(R::FILE);
    let fault = |message: String| Error::data(format!("{}: {message}", path.display()));
    let bytes = std::fs::read(&path).map_err(|error| Error::io("reading", &path, error))?;
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let declared = |name: &str| {
        let place = R::COLUMNS.iter().position(|column| column.name == name);
        place.ok_or_else(|| fault(format!("unknown column `{name}`")))
    };
    let header = reader.headers().map_err(|error| fault(error.to_string()))?;
    let places = header.iter().map(declared).collect::<Result<Vec<usize>>>()?;
    for (row, record) in reader.records().enumerate() {
        for (&place, text) in places.iter().zip(&record.map_err(|error| fault(error.to_string()))?) {
            take(row, place, text).ok_or_else(|| {
                let name = R::COLUMNS[place].name;
                fault(format!("row {}, column {name}: got \"{text}\", want a number or nothing", row + 1))
            })?;
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{ClientRecord, RoundRecord, fabricated};

    fn reread<R: TableRow>(bytes: &[u8]) -> Result<Vec<Column>> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(R::FILE), bytes).unwrap();
        read_columns::<R>(folder.path())
    }

    #[test]
    fn what_was_written_is_read_again() {
        let record = fabricated::record();
        let rounds = reread::<RoundRecord>(&write::<RoundRecord>(&record.rounds[..2]).unwrap()).unwrap();
        assert!(rounds.iter().map(|column| &*column.name).eq(RoundRecord::COLUMNS.iter().map(|column| column.name)));
        assert_eq!(rounds[0].cells, Cells::Texts(vec!["a, \"quoted\"".into(); 2]));
        assert_eq!(rounds[4].cells, Cells::Numbers(vec![Some(0.5), None]));
        assert_eq!(rounds[6].cells, Cells::Wholes(vec![Some(2), None]));
        let clients = reread::<ClientRecord>(&write::<ClientRecord>(&record.clients[..2]).unwrap()).unwrap();
        assert_eq!(clients[16].cells, Cells::Flags(vec![None, Some(false)]));
        assert_eq!(reread::<RoundRecord>(b"label,seed\n").unwrap()[1].cells.len(), 0);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rounds.csv"), write::<RoundRecord>(&record.rounds).unwrap()).unwrap();
        std::fs::write(folder.path().join("clients.csv"), write::<ClientRecord>(&record.clients).unwrap()).unwrap();
        assert_eq!(read_rows::<RoundRecord>(folder.path()).unwrap(), record.rounds);
        assert_eq!(read_rows::<ClientRecord>(folder.path()).unwrap(), record.clients);
    }

    #[test]
    fn what_is_no_such_table_is_refused() {
        let fault = |text: &str| reread::<ClientRecord>(text.as_bytes()).unwrap_err().to_string();
        assert!(fault("label,sed\n").contains("unknown column `sed`"));
        assert!(fault("label,seed\na,x\n").contains("row 1, column seed: got \"x\""));
        assert!(fault("label,seed\na\n").contains("record"));
    }
}
