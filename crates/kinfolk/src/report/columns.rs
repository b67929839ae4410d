//! The columns of rounds.csv and clients.csv: what they are called, what is in them, and how they are read again.

use crate::error::{Error, Result};
use std::path::Path;

/// What the cells of a column are. Any but a text may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Words.
    Text,
    /// Whole numbers.
    Whole,
    /// Numbers.
    Number,
    /// true or false.
    Flag,
}

use Kind::{Flag, Number, Text, Whole};

/// The columns of rounds.csv.
pub const ROUNDS: [(&str, Kind); 16] = [
    ("label", Text),
    ("seed", Whole),
    ("round", Whole),
    ("phase", Text),
    ("loss", Number),
    ("metric", Number),
    ("switched", Whole),
    ("sizes", Text),
    ("bytes_down", Whole),
    ("bytes_up", Whole),
    ("seconds", Number),
    ("unseen_metric", Number),
    ("normalised_mse", Number),
    ("distance_to_exact", Number),
    ("misclustering", Number),
    ("stage", Text),
];

/// The columns of clients.csv.
pub const CLIENTS: [(&str, Kind); 18] = [
    ("label", Text),
    ("seed", Whole),
    ("client", Text),
    ("true_cluster", Whole),
    ("cluster", Whole),
    ("samples", Whole),
    ("margin", Number),
    ("metric", Number),
    ("model_norm", Number),
    ("distance_to_cluster", Number),
    ("distance_to_global", Number),
    ("metric_local", Number),
    ("metric_global", Number),
    ("group", Text),
    ("outlier_score", Number),
    ("apart", Whole),
    ("outlier", Flag),
    ("planted_outlier", Flag),
];

/// A column that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What is in it.
    pub cells: Cells,
}

/// The cells of a column; `None` is an empty one.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells {
    /// Words, perhaps none.
    Texts(Vec<String>),
    /// Whole numbers.
    Wholes(Vec<Option<i64>>),
    /// Numbers.
    Numbers(Vec<Option<f64>>),
    /// true or false.
    Flags(Vec<Option<bool>>),
}

impl Cells {
    fn new(kind: Kind) -> Self {
        match kind {
            Text => Self::Texts(Vec::new()),
            Whole => Self::Wholes(Vec::new()),
            Number => Self::Numbers(Vec::new()),
            Flag => Self::Flags(Vec::new()),
        }
    }

    /// How many there are.
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

    /// Adds a cell; `None` where its text is no such value.
    fn push(&mut self, text: &str) -> Option<()> {
        fn parse<T: std::str::FromStr>(text: &str) -> Option<Option<T>> {
            if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
        }
        match self {
            Self::Texts(cells) => cells.push(text.to_string()),
            Self::Wholes(cells) => cells.push(parse(text)?),
            Self::Numbers(cells) => cells.push(parse(text)?),
            Self::Flags(cells) => cells.push(parse(text)?),
        }
        Some(())
    }
}

/// Reads the columns of a file that was written with these. A file of an earlier version may lack some.
pub fn read(path: &Path, declared: &[(&str, Kind)]) -> Result<Vec<Column>> {
    let fault = |message: String| Error::data(format!("{}: {message}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| Error::io("reading", path, error))?;
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let mut columns = Vec::new();
    for name in reader.headers().map_err(|error| fault(error.to_string()))? {
        let declared = declared.iter().find(|(known, _)| *known == name);
        let (_, kind) = declared.ok_or_else(|| fault(format!("unknown column `{name}`")))?;
        columns.push(Column { name: name.to_string(), cells: Cells::new(*kind) });
    }
    for (row, record) in reader.records().enumerate() {
        let record = record.map_err(|error| fault(error.to_string()))?;
        for (column, text) in columns.iter_mut().zip(&record) {
            column.cells.push(text).ok_or_else(|| {
                fault(format!("row {}, column {}: got \"{text}\", want a number or nothing", row + 1, column.name))
            })?;
        }
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::super::{fabricated, files};
    use super::*;

    fn reread(bytes: &[u8], declared: &[(&str, Kind)]) -> Result<Vec<Column>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        read(file.path(), declared)
    }

    #[test]
    fn what_was_written_is_read_again() {
        let record = fabricated::record();
        let rounds = reread(&files::rounds_csv(&record.rounds[..2]).unwrap(), &ROUNDS).unwrap();
        let names: Vec<&str> = rounds.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ROUNDS.map(|(name, _)| name));
        assert_eq!(rounds[0].cells, Cells::Texts(vec!["a, \"quoted\"".into(); 2]));
        assert_eq!(rounds[4].cells, Cells::Numbers(vec![Some(0.5), None]));
        assert_eq!(rounds[6].cells, Cells::Wholes(vec![Some(2), None]));
        let clients = reread(&files::clients_csv(&record.clients[..2]).unwrap(), &CLIENTS).unwrap();
        assert_eq!(clients[16].cells, Cells::Flags(vec![None, Some(false)]));
        assert_eq!(reread(b"label,seed\n", &ROUNDS).unwrap()[1].cells.len(), 0);
    }

    #[test]
    fn what_is_no_such_table_is_refused() {
        let fault = |text: &str| reread(text.as_bytes(), &CLIENTS).unwrap_err().to_string();
        assert!(fault("label,sed\n").contains("unknown column `sed`"));
        assert!(fault("label,seed\na,x\n").contains("row 1, column seed: got \"x\""));
        assert!(fault("label,seed\na\n").contains("record"));
    }
}
