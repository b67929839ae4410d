//! Clients and what they hold.
//!
//! A [`Client`] has training and test rows in two [`Shard`]s; a shard is a range of rows of shared
//! storage, so that many clients can look at one test set without copies, and pixels stay bytes.

use crate::error::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// One member of a federation, with the data that never leaves it.
#[derive(Debug, Clone)]
pub struct Client {
    /// A name that stays the same however the clients are ordered; draws are keyed by it.
    pub id: String,
    /// Rows to learn from, and to choose a cluster by.
    pub train: Shard,
    /// Held-out rows to be scored on.
    pub test: Shard,
    /// The group it is known to belong to (a sector, a region), where there is one.
    pub group: Option<String>,
    /// The cluster it was planted in. Only the evaluator and the oracle methods see it.
    pub truth: Option<usize>,
}

/// Some rows: features and what is to be predicted from them.
#[derive(Debug, Clone)]
pub struct Shard {
    features: Arc<Features>,
    targets: Arc<Targets>,
    rows: Range<usize>,
}

/// Features in row-major order, in the type that holds them without loss.
#[derive(Debug, Clone, PartialEq)]
pub enum Features {
    /// Pixels 0..=255, read as value / 255.
    Bytes {
        /// Values in a row.
        columns: usize,
        /// All rows.
        values: Vec<u8>,
    },
    /// Single precision numbers.
    F32 {
        /// Values in a row.
        columns: usize,
        /// All rows.
        values: Vec<f32>,
    },
    /// Double precision numbers.
    F64 {
        /// Values in a row.
        columns: usize,
        /// All rows.
        values: Vec<f64>,
    },
    /// Columns of a table as they were read; `Describe` sums them up and `Adopt` encodes them.
    Columns(Vec<Column>),
}

/// One named column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The header.
    pub name: String,
    /// The cells.
    pub values: Cells,
}

/// The cells of a column, typed.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells {
    /// Numbers.
    Numbers(Vec<f64>),
    /// Categories by name.
    Words(Vec<String>),
}

/// What is to be predicted.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// Nothing: the rows are only features.
    None,
    /// A class per row, from 0.
    Classes(Vec<u32>),
    /// A number per row.
    Values(Vec<f64>),
    /// A class by name per row, as read from a table; `Adopt` numbers them.
    Words(Vec<String>),
}

impl Features {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        match self {
            Features::Bytes { columns, values } => values.len() / (*columns).max(1),
            Features::F32 { columns, values } => values.len() / (*columns).max(1),
            Features::F64 { columns, values } => values.len() / (*columns).max(1),
            Features::Columns(columns) => columns.first().map_or(0, |column| column.values.len()),
        }
    }

    /// How many values a row has.
    pub fn columns(&self) -> usize {
        match self {
            Features::Bytes { columns, .. } | Features::F32 { columns, .. } | Features::F64 { columns, .. } => *columns,
            Features::Columns(columns) => columns.len(),
        }
    }
}

impl Cells {
    /// How many cells there are.
    pub fn len(&self) -> usize {
        match self {
            Cells::Numbers(values) => values.len(),
            Cells::Words(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Targets {
    /// How many rows have a target.
    pub fn len(&self) -> usize {
        match self {
            Targets::None => 0,
            Targets::Classes(classes) => classes.len(),
            Targets::Values(values) => values.len(),
            Targets::Words(words) => words.len(),
        }
    }

    /// Whether no row has one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shard {
    /// A shard of all rows of its own storage.
    pub fn new(features: Features, targets: Targets) -> Result<Self> {
        let rows = features.rows();
        Self::of(Arc::new(features), Arc::new(targets), 0..rows)
    }

    /// A shard of some rows of shared storage.
    pub fn of(features: Arc<Features>, targets: Arc<Targets>, rows: Range<usize>) -> Result<Self> {
        let (have, labelled) = (features.rows(), targets.len());
        if rows.end > have || rows.start > rows.end {
            return Err(Error::data(format!("rows {}..{} of a storage of {have} rows", rows.start, rows.end)));
        }
        if !matches!(*targets, Targets::None) && labelled != have {
            return Err(Error::data(format!("{have} rows of features but {labelled} targets")));
        }
        Ok(Self { features, targets, rows })
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many features a row has.
    pub fn columns(&self) -> usize {
        self.features.columns()
    }

    /// The storage its rows lie in.
    pub fn features(&self) -> &Arc<Features> {
        &self.features
    }

    /// The storage its targets lie in.
    pub fn targets(&self) -> &Arc<Targets> {
        &self.targets
    }

    /// Which rows of the storage are its own.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// The classes of its rows, where it has classes.
    pub fn classes(&self) -> Option<&[u32]> {
        match &*self.targets {
            Targets::Classes(classes) => Some(&classes[self.rows.clone()]),
            _ => None,
        }
    }

    /// The target values of its rows, where it has values.
    pub fn values(&self) -> Option<&[f64]> {
        match &*self.targets {
            Targets::Values(values) => Some(&values[self.rows.clone()]),
            _ => None,
        }
    }

    /// Part `index` of `of` nearly equal, disjoint, consecutive parts.
    pub fn part(&self, index: usize, of: usize) -> Self {
        let cut = |i: usize| self.rows.start + self.rows.len() * i / of.max(1);
        Self { rows: cut(index)..cut(index + 1), ..self.clone() }
    }
}

/// Everything an experiment knows about its data: the clients and the truth about them.
#[derive(Debug, Clone, Default)]
pub struct Population {
    /// The clients that take part in training.
    pub clients: Vec<Client>,
    /// Clients met only after training.
    pub unseen: Vec<Client>,
    /// How many clusters were planted, where they were.
    pub true_clusters: Option<usize>,
    /// The parameters each planted cluster was drawn from, where a generator knows them.
    pub true_parameters: Vec<Vec<f64>>,
    /// What a model for this data must fit: columns and classes (0 for a number).
    pub shape: DataShape,
}

/// What a model must fit: how wide the rows are and what is predicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DataShape {
    /// Features in a row.
    pub columns: usize,
    /// Classes to tell apart; 0 when the target is a number.
    pub classes: usize,
}
