//! Some consecutive rows of a file, column by column: the unit in which files are read.

use crate::error::Result;

/// Rows in a batch of a text file.
pub(super) const ROWS: usize = 4096;

/// Rows in the order of the file.
pub(super) trait Batches {
    /// The next rows; `None` behind the last.
    fn next(&mut self) -> Result<Option<Batch>>;

    /// What may surprise about the rows so far.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// In which form the cells of a column are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Nothing,
    /// As texts, whatever the file has.
    Texts,
    /// As the file has them.
    Cells,
}

pub(super) struct Batch {
    /// The line of each row in the file.
    pub lines: Vec<u64>,
    pub columns: Vec<Strip>,
}

/// The cells of one column in a batch.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "files that say what columns are"))]
pub(super) enum Strip {
    Nothing,
    /// An empty one is missing.
    Texts(Texts),
    /// One that is not a number is missing.
    Numbers(Vec<f64>),
    /// Seconds since 1970; one that is not a number is missing.
    Dates(Vec<f64>),
}

/// Texts in one allocation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Texts {
    joined: String,
    ends: Vec<usize>,
}

impl Texts {
    pub fn push(&mut self, text: &str) {
        self.joined.push_str(text);
        self.ends.push(self.joined.len());
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.joined[begin..*end])
    }
}
