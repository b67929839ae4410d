//! Clients and their data.
//!
//! A [`Client`] has training and test rows in two [`Shard`]s; a shard is a range of rows of shared
//! storage, so that many clients can look at one test set without copies, and pixels stay bytes.
//! A [`Source`] makes a [`Population`] of clients from its settings and a seed; [`SOURCES`] lists them all.

#[doc(hidden)]
pub mod cache;
#[doc(hidden)]
pub mod cifar;
mod contamination;
mod deal;
pub(crate) mod describe;
#[doc(hidden)]
pub mod digits;
#[cfg(feature = "download")]
mod download;
pub(crate) mod files;
#[doc(hidden)]
pub mod idx;
#[doc(hidden)]
pub mod images;
#[doc(hidden)]
pub mod known;
mod letters;
mod npy;
pub(crate) mod numbers;
pub mod own;
#[doc(hidden)]
pub mod plays;
#[doc(hidden)]
pub mod points;
mod split;

#[doc(hidden)]
pub use describe::{scaling, schema, understood};

use crate::error::{Error, ErrorKind, Result};
use crate::num::Moments;
use crate::rng::{Key, Rng};
use crate::settings::{Declared, Setting, Settings, choices, finish, number, settings};
pub use images::ImageSettings;
use images::{Augmenting, Images, Pools};
use own::OwnRows;
use rand::RngExt;
use rand::seq::index;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use split::{Drawing, block, dirichlet, draw_clients, draw_lots, keep};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where clients come from: a dataset, a generator or a file format.
#[derive(Debug)]
pub struct Source {
    /// The name in the experiment file's `data.source`.
    pub name: &'static str,
    /// A line for lists.
    pub summary: &'static str,
    /// Its settings.
    pub settings: &'static [Setting],
    /// Adds faults that involve more than one setting.
    pub check: fn(&str, &Settings, &mut Vec<Error>),
    /// Makes the population for checked settings and a seed.
    pub build: fn(&Settings, u64) -> Result<Population>,
    /// Makes a part of it without the others, where it can. Unseen clients are in no part.
    #[doc(hidden)]
    pub part: Option<BuildPart>,
}

/// Makes a part of the population for checked settings and a seed.
#[doc(hidden)]
pub type BuildPart = fn(&Settings, u64, Part) -> Result<Population>;

/// One of several parts of the clients, in their order.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Which, from 0.
    pub index: usize,
    /// Number of parts.
    pub of: usize,
}

impl Part {
    /// Everybody.
    pub(crate) const ALL: Self = Self { index: 0, of: 1 };

    /// The places of its clients among all; an error if there is none for every part.
    pub(crate) fn places(self, all: usize) -> Result<Range<usize>> {
        let Self { index, of } = self;
        if index >= of || of > all {
            return Err(Error::settings(format!(
                "partition {index} of {of}: want a number below {of}, and at most {all} partitions for {all} clients"
            ))
            .open());
        }
        let cut = |part: usize| (all as u128 * part as u128 / of as u128) as usize;
        Ok(cut(index)..cut(index + 1))
    }
}

/// The settings of a source, from which populations are made.
pub trait SourceSettings: Declared {
    /// The name in the experiment file's `data.source`.
    const NAME: &str;
    /// A line for lists.
    const SUMMARY: &str;
    /// The source.
    const SOURCE: &'static Source = &Source::new::<Self>();

    /// Makes a part of the population without the others, where it can.
    #[doc(hidden)]
    const PART: Option<BuildPart> = None;

    /// Makes the population for a seed.
    #[doc(hidden)]
    fn build(self, seed: u64) -> Result<Population>;
}

impl Source {
    const fn new<S: SourceSettings>() -> Self {
        Self {
            name: S::NAME,
            summary: S::SUMMARY,
            settings: S::SETTINGS,
            check: S::check_section,
            build: |settings, seed| S::of(settings).build(seed),
            part: S::PART,
        }
    }

    /// A part of the clients, and their places among all.
    pub(crate) fn build_part(&self, settings: &Settings, seed: u64, part: Part) -> Result<(Population, Range<usize>)> {
        if let (Some(build), Some(all)) = (self.part, settings.get("clients").and_then(number)) {
            return Ok((build(settings, seed, part)?, part.places(all as usize)?));
        }
        let mut population = (self.build)(settings, seed)?;
        let places = part.places(population.clients.len())?;
        population.clients = population.clients[places.clone()].to_vec();
        if !population.outliers.is_empty() {
            population.outliers = population.outliers[places.clone()].to_vec();
        }
        Ok((population, places))
    }

    pub(crate) fn has_target(&self, settings: &Settings) -> bool {
        self.settings.iter().all(|setting| setting.name != "target") || settings.get("target").is_some()
    }

    const fn of_images(
        name: &'static str,
        summary: &'static str,
        build: fn(&Settings, u64) -> Result<Population>,
        part: BuildPart,
    ) -> Self {
        let (settings, check) = (ImageSettings::SETTINGS, ImageSettings::check_section);
        Self { name, summary, settings, check, build, part: Some(part) }
    }
}

/// Sources of images: their name, a line about them, and where the images are.
macro_rules! images {
    ($($source:ident $name:literal $summary:literal $pools:expr;)*) => {
        $(const $source: Source = Source::of_images(
            $name,
            $summary,
            |settings, seed| images::build(&$pools?, settings, seed, Part::ALL),
            |settings, seed, part| images::build(&$pools?, settings, seed, part),
        );)*
    };
}

images! {
    DIGITS "digits" "1797 handwritten digits of 8x8 pixels; built in" digits::load();
    MNIST "mnist" "70 000 handwritten digits of 28x28 pixels" Pools::read_idx(&cache::find("mnist")?);
    FASHION_MNIST "fashion-mnist" "70 000 pieces of clothing of 28x28 pixels" Pools::read_idx(&cache::find("fashion-mnist")?);
    CIFAR_10 "cifar-10" "60 000 colour photographs of 32x32 pixels" cifar::read(&cache::find("cifar-10")?);
}

/// A set of images, which [`ImageSettings`] deal out to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageSet {
    /// 1797 handwritten digits of 8x8 pixels; built in.
    Digits,
    /// 70 000 handwritten digits of 28x28 pixels.
    Mnist,
    /// 70 000 pieces of clothing of 28x28 pixels.
    FashionMnist,
    /// 60 000 colour photographs of 32x32 pixels.
    Cifar10,
}

impl ImageSet {
    pub(crate) fn source(self) -> &'static Source {
        match self {
            ImageSet::Digits => &DIGITS,
            ImageSet::Mnist => &MNIST,
            ImageSet::FashionMnist => &FASHION_MNIST,
            ImageSet::Cifar10 => &CIFAR_10,
        }
    }
}

const OWN: Source = Source {
    name: "own",
    summary: "clients that are Python objects of your own, given as kinfolk.run(…, clients=…)",
    settings: &[],
    check: |_, _, _| {},
    build: |_, _| {
        Err(Error::settings("data.source: \"own\" has no clients in a file")
            .hint("they are Python objects: kinfolk.run(experiment, clients={id: object}, start=…)"))
    },
    part: None,
};

/// Declares every source with settings of its own: its file, and the settings it is built from.
macro_rules! sources {
    ($($visibility:vis $file:ident::{$($settings:ident),+})*) => {
        $($visibility mod $file; pub use $file::{$($settings),+};)*

        /// All sources.
        pub static SOURCES: &[&Source] = &[
            &DIGITS, &MNIST, &FASHION_MNIST, &CIFAR_10, $($($file::$settings::SOURCE,)+)* &OWN,
        ];
    };
}

sources! {
    writers::{WriterSettings}
    shakespeare::{PlaySettings}
    leaf::{LeafSettings}
    synthetic::{LinearSettings, OdclLinearSettings, OdclLogisticSettings, HierarchicalLinearSettings, HierarchicalLogisticSettings}
    mixtures::{GaussianSettings, RegressionSettings}
    pendigits::{PenDigitSettings}
    schools::{SchoolSettings}
    pub(crate) table::{TableSettings}
}

/// What the settings of sources are made of.
pub mod options {
    pub use super::contamination::{Contamination, Spoiling};
    pub use super::deal::{Deal, Dealing};
    pub use super::images::{Arrange, Augmenting, Clusters, Owners, Pixels, SplitKind, UnseenTrain};
    pub use super::leaf::Content;
    pub use super::mixtures::{Mixing, Outlier};
    pub use super::schools::SchoolTarget;
    pub use super::split::Drawing;
    pub use super::synthetic::{Hierarchy, Intervals, ParameterScaling, Sizes, Stored};
    pub use super::table::{Missing, Small, Task};
}

/// Clients that come with the experiment, not from a source.
pub(crate) static GIVEN: Source = Source {
    name: "given",
    summary: "",
    settings: &[],
    check: |_, _, _| {},
    build: |_, _| {
        Err(Error::settings("data.source: \"given\" are clients that a program brings along, and has none here"))
    },
    part: None,
};

/// The source of this name.
#[doc(hidden)]
pub fn source(name: &str) -> Option<&'static Source> {
    SOURCES.iter().copied().find(|source| source.name == name)
}

/// One member of a federation, with the data that never leaves it.
#[derive(Debug, Clone)]
pub struct Client {
    /// A name that does not depend on the order of the clients; draws are keyed by it.
    pub id: String,
    /// Training rows, by which it also chooses a cluster.
    pub train: Shard,
    /// Held-out rows for scoring.
    pub test: Shard,
    /// The group it is known to belong to (a sector, a region).
    pub group: Option<String>,
    /// The cluster it was planted in, for evaluation and oracle methods only.
    pub truth: Option<usize>,
}

/// Rows of features and targets.
#[derive(Debug, Clone)]
pub struct Shard {
    features: Arc<Features>,
    targets: Arc<Targets>,
    /// Of every row of the storage, where rows do not all count alike.
    weights: Option<Arc<Vec<f64>>>,
    rows: Range<usize>,
}

/// Features in row-major order, in the type that stores them without loss.
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
    /// Symbols of a text by their number.
    Symbols {
        /// Symbols in a row.
        columns: usize,
        /// All rows.
        values: Vec<u8>,
    },
    /// Columns of a table as read; a schema encodes them.
    Columns(Vec<Column>),
    /// The data of a user's own client.
    Own(OwnRows),
}

/// One named column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The header.
    pub name: String,
    /// The cells.
    pub values: Cells,
}

impl Column {
    /// What the column of a table without any is called.
    pub(crate) const NONE: &str = "(no column)";

    /// In place of the columns of a table without any: it says how many rows there are.
    pub(crate) fn none(rows: usize) -> Self {
        Self { name: Self::NONE.to_string(), values: Cells::Numbers(vec![0.0; rows]) }
    }
}

/// The cells of a column, typed.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells {
    /// Numbers; NaN where one is missing.
    Numbers(Vec<f64>),
    /// Categories by name; empty where one is missing.
    Words(Vec<String>),
    /// Dates and times in seconds since 1970; NaN where one is missing.
    Dates(Vec<f64>),
}

/// The class of a test row that no training row has: no model predicts it.
pub(crate) const UNKNOWN_CLASS: u32 = u32::MAX;

/// The targets of rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// The rows are only features.
    None,
    /// A class per row, from 0.
    Classes(Vec<u32>),
    /// A number per row.
    Values(Vec<f64>),
    /// A class by name per row, as read from a table; a schema numbers them.
    Words(Vec<String>),
}

impl Features {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Features::Bytes { columns, values } => values.len() / (*columns).max(1),
            Features::Symbols { columns, values } => values.len() / (*columns).max(1),
            Features::F32 { columns, values } => values.len() / (*columns).max(1),
            Features::F64 { columns, values } => values.len() / (*columns).max(1),
            Features::Columns(columns) => columns.first().map_or(0, |column| column.values.len()),
            Features::Own(own) => own.rows(),
        }
    }

    pub(crate) fn columns(&self) -> usize {
        match self {
            Features::Bytes { columns, .. }
            | Features::Symbols { columns, .. }
            | Features::F32 { columns, .. }
            | Features::F64 { columns, .. } => *columns,
            Features::Columns(columns) => columns.len(),
            Features::Own(_) => 0,
        }
    }
}

impl Cells {
    pub(crate) fn len(&self) -> usize {
        match self {
            Cells::Numbers(values) | Cells::Dates(values) => values.len(),
            Cells::Words(values) => values.len(),
        }
    }

    /// These rows of it, in this order.
    fn pick(&self, rows: &[usize]) -> Self {
        match self {
            Cells::Numbers(values) => Cells::Numbers(rows.iter().map(|row| values[*row]).collect()),
            Cells::Words(words) => Cells::Words(rows.iter().map(|row| words[*row].clone()).collect()),
            Cells::Dates(times) => Cells::Dates(rows.iter().map(|row| times[*row]).collect()),
        }
    }
}

impl Targets {
    pub(crate) fn len(&self) -> usize {
        match self {
            Targets::None => 0,
            Targets::Classes(classes) => classes.len(),
            Targets::Values(values) => values.len(),
            Targets::Words(words) => words.len(),
        }
    }
}

impl From<Vec<f64>> for Targets {
    fn from(values: Vec<f64>) -> Self {
        Targets::Values(values)
    }
}

impl From<Vec<u32>> for Targets {
    fn from(classes: Vec<u32>) -> Self {
        Targets::Classes(classes)
    }
}

impl Shard {
    /// Rows of so many numbers, one after the other, and their targets: numbers, classes from 0, or [`Targets::None`].
    pub fn of_numbers(columns: usize, values: Vec<f64>, targets: impl Into<Targets>) -> Result<Self> {
        if columns == 0 || !values.len().is_multiple_of(columns) {
            let message = format!("got {} numbers, want rows of {columns}", values.len());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        Self::new(Features::F64 { columns, values }, targets.into())
    }

    /// A shard of all these rows.
    pub fn new(features: Features, targets: Targets) -> Result<Self> {
        let rows = features.rows();
        Self::of(Arc::new(features), Arc::new(targets), 0..rows)
    }

    pub(crate) fn of(features: Arc<Features>, targets: Arc<Targets>, rows: Range<usize>) -> Result<Self> {
        let (have, labelled) = (features.rows(), targets.len());
        if rows.end > have || rows.start > rows.end {
            return Err(Error::data(format!("rows {}..{} of a storage of {have} rows", rows.start, rows.end)));
        }
        if !matches!(*targets, Targets::None) && labelled != have {
            return Err(Error::data(format!("{have} rows of features but {labelled} targets")));
        }
        Ok(Self { features, targets, weights: None, rows })
    }

    /// The same rows, which count by these weights of the storage's rows.
    pub(crate) fn weighted(self, weights: Option<Arc<Vec<f64>>>) -> Result<Self> {
        let (have, weighed) = (self.features.rows(), weights.as_ref().map(|weights| weights.len()));
        match weighed.filter(|weighed| *weighed != have) {
            Some(weighed) => Err(Error::data(format!("{have} rows of features but {weighed} weights"))),
            None => Ok(Self { weights, ..self }),
        }
    }

    /// Some of the rows of a shard of all.
    pub(crate) fn within(&self, rows: Range<usize>) -> Result<Self> {
        Self::of(self.features.clone(), self.targets.clone(), rows)?.weighted(self.weights.clone())
    }

    /// The same rows with other classes, where they have classes.
    pub(crate) fn relabelled(&self, class: impl Fn(u32) -> u32) -> Result<Self> {
        let Targets::Classes(classes) = &*self.targets else { return Ok(self.clone()) };
        let mut classes = classes.clone();
        classes[self.rows.clone()].iter_mut().for_each(|own| *own = class(*own));
        let targets = Arc::new(Targets::Classes(classes));
        Self::of(self.features.clone(), targets, self.rows.clone())?.weighted(self.weights.clone())
    }

    /// The same rows, those marked with one value in some columns, and of one class.
    pub(crate) fn marked(&self, is_marked: impl Fn(usize) -> bool, columns: &[usize], value: f64, class: u32) -> Self {
        fn mark<T: Copy>(values: &mut [T], width: usize, marked: &[usize], columns: &[usize], value: T) {
            marked.iter().for_each(|row| columns.iter().for_each(|column| values[row * width + column] = value));
        }
        let mut own = self.pick(&(0..self.len()).collect::<Vec<_>>());
        let marked: Vec<usize> = (0..self.len()).filter(|&row| is_marked(row)).collect();
        match Arc::make_mut(&mut own.features) {
            Features::Bytes { columns: width, values } => mark(values, *width, &marked, columns, value as u8),
            Features::F32 { columns: width, values } => mark(values, *width, &marked, columns, value as f32),
            Features::F64 { columns: width, values } => mark(values, *width, &marked, columns, value),
            Features::Symbols { .. } | Features::Columns(_) | Features::Own(_) => {}
        }
        if let Targets::Classes(classes) = Arc::make_mut(&mut own.targets) {
            marked.iter().for_each(|row| classes[*row] = class);
        }
        own
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of features in a row.
    pub fn columns(&self) -> usize {
        self.features.columns()
    }

    /// The storage of its rows.
    #[doc(hidden)]
    pub fn features(&self) -> &Arc<Features> {
        &self.features
    }

    /// The storage of its targets.
    #[doc(hidden)]
    pub fn targets(&self) -> &Arc<Targets> {
        &self.targets
    }

    /// Its rows within the storage.
    #[doc(hidden)]
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

    /// The weights of its rows, where they have any.
    #[doc(hidden)]
    pub fn weights(&self) -> Option<&[f64]> {
        self.weights.as_ref().map(|weights| &weights[self.rows.clone()])
    }

    fn add_to(&self, digest: &mut Sha256) {
        let values = |columns: &usize| self.rows.start * columns..self.rows.end * columns;
        digest.update((self.len() as u64).to_le_bytes());
        match &*self.features {
            Features::Bytes { columns, values: bytes } | Features::Symbols { columns, values: bytes } => {
                digest.update(&bytes[values(columns)])
            }
            Features::F32 { columns, values: all } => add_numbers(&all[values(columns)], f32::to_le_bytes, digest),
            Features::F64 { columns, values: all } => add_numbers(&all[values(columns)], f64::to_le_bytes, digest),
            Features::Columns(columns) => {
                for column in columns {
                    digest.update(column.name.as_bytes());
                    match &column.values {
                        Cells::Numbers(all) | Cells::Dates(all) => {
                            add_numbers(&all[self.rows()], f64::to_le_bytes, digest);
                        }
                        Cells::Words(all) => add_words(&all[self.rows()], digest),
                    }
                }
            }
            // Opaque: only the number of rows can be told.
            Features::Own(own) => digest.update(own.beginning()),
        }
        match &*self.targets {
            Targets::None => {}
            Targets::Classes(all) => add_numbers(&all[self.rows()], u32::to_le_bytes, digest),
            Targets::Values(all) => add_numbers(&all[self.rows()], f64::to_le_bytes, digest),
            Targets::Words(all) => add_words(&all[self.rows()], digest),
        }
        if let Some(weights) = self.weights() {
            add_numbers(weights, f64::to_le_bytes, digest);
        }
    }

    /// A shard of these rows alone, counted from its own first one.
    pub fn pick(&self, rows: &[usize]) -> Self {
        fn pick<T: Clone>(values: &[T], width: usize, rows: &[usize]) -> Vec<T> {
            rows.iter().flat_map(|row| &values[row * width..][..width]).cloned().collect()
        }
        let count = rows.len();
        let rows: &[usize] = &rows.iter().map(|row| self.rows.start + row).collect::<Vec<_>>();
        let features = match *self.features {
            Features::Bytes { columns, ref values } => Features::Bytes { columns, values: pick(values, columns, rows) },
            Features::Symbols { columns, ref values } => {
                Features::Symbols { columns, values: pick(values, columns, rows) }
            }
            Features::F32 { columns, ref values } => Features::F32 { columns, values: pick(values, columns, rows) },
            Features::F64 { columns, ref values } => Features::F64 { columns, values: pick(values, columns, rows) },
            Features::Columns(ref columns) => {
                let picked = |column: &Column| Column { name: column.name.clone(), values: column.values.pick(rows) };
                Features::Columns(columns.iter().map(picked).collect())
            }
            // They cannot be divided; the model refuses a part of them.
            Features::Own(ref own) => Features::Own(own.clone()),
        };
        let targets = match &*self.targets {
            Targets::None => Targets::None,
            Targets::Classes(classes) => Targets::Classes(pick(classes, 1, rows)),
            Targets::Values(values) => Targets::Values(pick(values, 1, rows)),
            Targets::Words(words) => Targets::Words(pick(words, 1, rows)),
        };
        let weights = self.weights.as_ref().map(|weights| Arc::new(pick(weights, 1, rows)));
        Self { features: Arc::new(features), targets: Arc::new(targets), weights, rows: 0..count }
    }

    /// Part `index` of `of` nearly equal, disjoint, consecutive parts.
    pub fn part(&self, index: usize, of: usize) -> Self {
        let cut = |i: usize| self.rows.start + self.rows.len() * i / of.max(1);
        Self { rows: cut(index)..cut(index + 1), ..self.clone() }
    }

    /// The rows before the last of so many such parts.
    pub(crate) fn before_last(&self, of: usize) -> Self {
        let last = self.part(of.saturating_sub(1), of);
        Self { rows: self.rows.start..last.rows.start, ..last }
    }
}

impl Client {
    /// A client that trains on these rows and is not scored; rows to score it on are its field `test`.
    pub fn new(id: impl Into<String>, train: Shard) -> Self {
        let test = train.pick(&[]);
        Self { id: id.into(), train, test, group: None, truth: None }
    }

    /// A client whose first rows are for training and the others for testing.
    fn divided(id: String, features: Features, targets: Targets, train: usize) -> Result<Self> {
        let rows = features.rows();
        let (features, targets) = (Arc::new(features), Arc::new(targets));
        let test = Shard::of(features.clone(), targets.clone(), train..rows)?;
        Ok(Self { id, train: Shard::of(features, targets, 0..train)?, test, group: None, truth: None })
    }

    /// A number that cannot be known without the client's rows.
    pub(crate) fn secret(&self) -> u64 {
        let mut digest = Sha256::new();
        digest.update(self.id.as_bytes());
        self.train.add_to(&mut digest);
        self.test.add_to(&mut digest);
        let digest: [u8; 32] = digest.finalize().into();
        u64::from_le_bytes(std::array::from_fn(|place| digest[place]))
    }
}

fn add_numbers<T: Copy, const BYTES: usize>(numbers: &[T], bytes: fn(T) -> [u8; BYTES], digest: &mut Sha256) {
    numbers.iter().for_each(|number| digest.update(bytes(*number)));
}

fn add_words(words: &[String], digest: &mut Sha256) {
    for word in words {
        digest.update((word.len() as u64).to_le_bytes());
        digest.update(word.as_bytes());
    }
}

/// The clients of an experiment, and the truth about them.
#[derive(Debug, Clone, Default)]
pub struct Population {
    /// The clients that take part in training.
    pub clients: Vec<Client>,
    /// Clients met only after training.
    pub unseen: Vec<Client>,
    /// Number of planted clusters.
    pub true_clusters: Option<usize>,
    /// The parameters of each planted cluster, where a generator knows them.
    pub true_parameters: Vec<Vec<f64>>,
    /// The parameters of each client, in their order, where clients of a cluster differ.
    pub client_parameters: Vec<Vec<f64>>,
    /// Whether each client was planted as an outlier, in their order; empty where none was.
    pub outliers: Vec<bool>,
    /// The mixture of each client, in their order, where a generator knows it; an outlier has none.
    pub mixtures: Vec<Option<PlantedMixture>>,
    /// The lines of each client's rows in the file they were read from, in their order.
    pub lines: Vec<Lines>,
    /// What a reader of the file should know: what was left out, what was read in an unusual way.
    pub remarks: Vec<String>,
    /// How the columns of that file are written.
    #[doc(hidden)]
    pub notation: files::Notation,
    /// The mean weight of its training rows, where they have weights: these are relative to it.
    #[doc(hidden)]
    pub mean_weight: Option<f64>,
    /// The shape of the rows. For a table this counts columns and classes as read; the schema's shape replaces it.
    pub shape: DataShape,
}

/// The mixture that one client's rows were drawn from.
#[derive(Debug, Clone, PartialEq)]
#[doc(hidden)]
pub struct PlantedMixture {
    pub(crate) weights: Vec<f64>,
    /// The centres of the components, concatenated.
    pub(crate) centres: Vec<f64>,
}

/// Positions of one client's rows in a file: lines of a text, or rows of a parquet file, both from 1.
#[derive(Debug, Clone, Default, PartialEq)]
#[doc(hidden)]
pub struct Lines {
    pub(crate) train: Vec<u64>,
    pub(crate) test: Vec<u64>,
}

impl Population {
    pub(crate) fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for client in self.clients.iter().chain(&self.unseen) {
            digest.update(client.id.as_bytes());
            digest.update([0]);
            client.train.add_to(&mut digest);
            client.test.add_to(&mut digest);
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Refuses a population without clients, with equal names, without training rows, or with rows of different widths.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(first) = self.clients.first() else {
            return Err(Error::data("no clients"));
        };
        let mut ids = HashSet::new();
        for client in self.clients.iter().chain(&self.unseen) {
            if !ids.insert(client.id.as_str()) {
                return Err(Error::data(format!("client {}: there are two of this name", client.id)));
            }
            if client.train.is_empty() {
                return Err(Error::data(format!("client {}: no training rows, want at least 1", client.id)));
            }
            let want = first.train.columns();
            let parts = [(&client.train, "training"), (&client.test, "test")];
            let odd = parts.iter().find(|(shard, _)| !shard.is_empty() && shard.columns() != want);
            if let Some((shard, part)) = odd {
                let (id, columns) = (&client.id, shard.columns());
                let message =
                    format!("client {id}: {part} rows of {columns} columns, but client {} has {want}", first.id);
                return Err(Error::data(message));
            }
        }
        Ok(())
    }
}

/// The shape of rows: their width, and what is predicted from them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataShape {
    /// Features in a row.
    pub columns: usize,
    /// Number of classes; 0 when the target is a number.
    pub classes: usize,
    /// The structure of the features in a row.
    pub form: Form,
}

/// The structure of the features in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// Unordered numbers.
    #[default]
    Numbers,
    /// An image, plane by plane, row by row.
    Image {
        /// Colour planes.
        channels: usize,
        /// Height in pixels.
        height: usize,
        /// Width in pixels.
        width: usize,
        /// Augmentation in training.
        augment: Augment,
    },
    /// A text: each feature is the number of a symbol.
    Text {
        /// Number of different symbols.
        symbols: usize,
    },
    /// Known only to the clients' own code.
    Own,
}

/// Augmentation of an image, drawn anew for every step of training, and never for scoring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)]
pub struct Augment {
    /// Mirrors it horizontally, with probability ½.
    pub(crate) flip: bool,
    /// Shifts it by up to this many pixels in both directions, padded with black.
    pub(crate) crop: usize,
}

impl DataShape {
    /// Rows of unordered numbers.
    pub fn numbers(columns: usize, classes: usize) -> Self {
        Self { columns, classes, form: Form::Numbers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a source makes of these settings.
    pub(super) fn make(name: &str, text: &str) -> Result<Population> {
        let source = source(name).unwrap();
        let mut faults = Vec::new();
        let settings = Settings::check("data", source.settings, toml::from_str(text).unwrap(), &mut faults);
        assert_eq!(faults, []);
        (source.build)(&settings, 5)
    }

    fn client(id: &str, rows: usize, columns: usize) -> Client {
        let shard = |rows: usize| {
            Shard::new(Features::F64 { columns, values: vec![0.0; rows * columns] }, Targets::Values(vec![0.0; rows]))
        };
        Client { id: id.into(), train: shard(rows).unwrap(), test: shard(0).unwrap(), group: None, truth: None }
    }

    #[test]
    fn names_are_unique_and_found() {
        for (index, source) in SOURCES.iter().enumerate() {
            assert!(SOURCES[..index].iter().all(|other| other.name != source.name));
            assert!(super::source(source.name).is_some());
        }
        assert!(source("mnits").is_none());
    }

    fn build_small(source: &Source) -> Population {
        let mut small: toml::Table = toml::from_str("clients = 10\nsamples = 20\nunseen_clients = 2").unwrap();
        small.retain(|name, _| source.settings.iter().any(|setting| setting.name == name));
        if source.name.starts_with("hierarchical") {
            small.insert("true_clusters".into(), 3.into());
        }
        let mut faults = Vec::new();
        let settings = Settings::check("data", source.settings, small, &mut faults);
        assert_eq!(faults, []);
        (source.build)(&settings, 1).unwrap()
    }

    #[test]
    fn sources_without_files_build_the_same_on_any_number_of_threads() {
        for name in [
            "digits",
            "linear",
            "odcl-linear",
            "odcl-logistic",
            "hierarchical-linear",
            "hierarchical-logistic",
            "fedgrem-gaussian",
            "fedgrem-regression",
        ] {
            let source = source(name).unwrap();
            let with_threads = |count: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(count).build().unwrap();
                pool.install(|| build_small(source))
            };
            let (one, three) = (with_threads(1), with_threads(3));
            assert_eq!((one.clients.len(), one.unseen.len()), (10, if name.starts_with("fedgrem") { 0 } else { 2 }));
            assert_eq!(one.shape.columns, one.clients[0].train.columns());
            for (a, b) in one.clients.iter().chain(&one.unseen).zip(three.clients.iter().chain(&three.unseen)) {
                assert_eq!(a.train.len(), 20);
                assert_eq!((a.train.features(), a.train.targets()), (b.train.features(), b.train.targets()));
                assert_eq!((a.train.rows(), a.test.rows()), (b.train.rows(), b.test.rows()));
            }
        }
    }

    #[test]
    fn unusable_populations_are_refused() {
        let text = |clients: Vec<Client>, unseen: Vec<Client>| {
            Population { clients, unseen, ..Population::default() }.check().map_err(|error| error.to_string())
        };
        assert_eq!(text(vec![client("a", 1, 2)], vec![client("b", 3, 2)]), Ok(()));
        assert_eq!(text(vec![], vec![]), Err("no clients".into()));
        assert_eq!(
            text(vec![client("a", 1, 2)], vec![client("a", 1, 2)]),
            Err("client a: there are two of this name".into())
        );
        assert_eq!(
            text(vec![client("a", 1, 2), client("b", 0, 2)], vec![]),
            Err("client b: no training rows, want at least 1".into())
        );
        assert_eq!(
            text(vec![client("a", 1, 2), client("b", 1, 3)], vec![]),
            Err("client b: training rows of 3 columns, but client a has 2".into())
        );
    }
}
