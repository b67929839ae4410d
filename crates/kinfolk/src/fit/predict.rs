//! New rows: a prediction with its interval for every row of a table, in its order.

use super::newcomers::newcomers;
use super::output::{Block, Format, Head, Lines, Output};
use super::serving::{Row, Serving, Servings};
use super::{Input, Saved};
use crate::data::known::{KnownBatch, KnownColumns, KnownRows};
use crate::data::numbers::convert;
use crate::error::Result;
use crate::families::Newcomer;
use rayon::prelude::*;
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

/// What was predicted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Predictions {
    /// Rows.
    pub rows: u64,
    /// Clients that the model knows,
    pub known: usize,
    /// that it does not, and that are served by a model of their own from the target values in the table,
    pub fitted: usize,
    /// and that are served by what is known of everybody.
    pub unknown: usize,
    /// Of rows of known clients with a target value, the share inside their intervals, or whose class is predicted, and how many there are.
    pub covered: Option<(f64, u64)>,
    /// What was read in an unusual way.
    pub remarks: Vec<String>,
}

/// Predictions of rows that follow each other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PredictedRows {
    /// The client of each row.
    pub clients: Vec<String>,
    /// Of each row: what is expected, and the ends of its interval; or the probability of every class.
    pub values: Vec<f64>,
    /// What serves each row's client.
    pub served_by: Vec<Arc<str>>,
}

/// Predicts every row of a table, in constant memory, and writes client, prediction, low, high, served_by; with classes, the probability
/// of each instead of an interval.
pub fn predict<'a>(
    saved: &Saved,
    table: impl Into<Input<'a>>,
    format: Format,
    out: &mut (dyn Write + Send),
) -> Result<Predictions> {
    let table = table.into();
    // Nothing is written of a table that cannot be read.
    let newcomers = newcomers(saved, table)?;
    let head = match &saved.classes[..] {
        [] => Head::of_numbers(),
        classes => Head::of_words("prediction", classes, &[]),
    };
    let mut output = Output::new(format, head, out)?;
    let found = predict_blocks(saved, table, newcomers, format, |block| output.write(block))?;
    output.finish()?;
    Ok(found)
}

/// Predicts every row of a table, in constant memory, and hands on one batch after the other.
pub fn predict_batches<'a>(
    saved: &Saved,
    table: impl Into<Input<'a>>,
    take: &mut dyn FnMut(PredictedRows) -> Result<()>,
) -> Result<Predictions> {
    let table = table.into();
    let newcomers = newcomers(saved, table)?;
    predict_blocks(saved, table, newcomers, Format::Arrow, |block| {
        let served_by = block.served().cloned().collect();
        let values = block.lines.iter().flat_map(Lines::by_row).collect();
        take(PredictedRows { clients: block.clients, values, served_by })
    })
}

fn predict_blocks(
    saved: &Saved,
    table: Input,
    newcomers: HashMap<String, Newcomer>,
    format: Format,
    mut take: impl FnMut(Block) -> Result<()>,
) -> Result<Predictions> {
    /// Rows that are predicted by one thread.
    const PART: usize = 512;
    let servings = Servings::new(saved);
    let mut crowd = Crowd::new(&servings, newcomers);
    let (mut rows, mut right, mut with_target) = (0, 0, 0);
    let columns = KnownColumns { schema: &servings.schema, ..saved.known_columns() };
    let remarks = KnownRows::read_ahead(table, columns, |batch| {
        let count = batch.clients.len();
        let places = crowd.places(&batch.clients);
        let served = |row: usize| &crowd.servings[places[row] as usize];
        let parts = (0..count.div_ceil(PART)).into_par_iter().map(|part| {
            let part = part * PART..count.min((part + 1) * PART);
            predict_part(&servings, &batch, part, format, &served)
        });
        let mut lines = Vec::new();
        for part in parts.collect::<Vec<_>>() {
            let (part, (own_right, of)) = part?;
            lines.push(part);
            right += own_right;
            with_target += of;
        }
        rows += count as u64;
        take(Block { lines, clients: batch.clients, servings: &crowd.words, places })
    })?;
    let covered = (with_target > 0).then(|| (right as f64 / with_target as f64, with_target));
    let Crowd { known, fitted, unknown, .. } = crowd;
    Ok(Predictions { rows, known, fitted, unknown: unknown.len(), covered, remarks })
}

/// Who was met so far, and what serves them.
struct Crowd<'a> {
    from: &'a Servings<'a>,
    newcomers: HashMap<String, Newcomer>,
    /// The first serves those of which nothing is known.
    servings: Vec<Serving<'a>>,
    /// The same in words.
    words: Vec<Arc<str>>,
    places: HashMap<String, u32>,
    known: usize,
    fitted: usize,
    /// Hashes of their names: there may be millions.
    unknown: HashSet<u64>,
}

impl<'a> Crowd<'a> {
    fn new(from: &'a Servings<'a>, newcomers: HashMap<String, Newcomer>) -> Self {
        let servings = vec![from.unknown()];
        let words = servings.iter().map(|serving| serving.by.clone()).collect();
        Self { from, newcomers, servings, words, places: HashMap::new(), known: 0, fitted: 0, unknown: HashSet::new() }
    }

    /// What serves each of these.
    fn places(&mut self, clients: &[String]) -> Vec<u32> {
        let mut places: Vec<u32> = Vec::with_capacity(clients.len());
        for (row, client) in clients.iter().enumerate() {
            let before = row.checked_sub(1).filter(|before| clients[*before] == *client);
            places.push(before.map_or_else(|| self.place(client), |before| places[before]));
        }
        places
    }

    fn place(&mut self, client: &str) -> u32 {
        if let Some(place) = self.places.get(client) {
            return *place;
        }
        let serving = match (self.from.known(client), self.newcomers.remove(client)) {
            (Some(serving), _) => {
                self.known += 1;
                serving
            }
            (None, Some(newcomer)) => {
                self.fitted += 1;
                self.from.newcomer(&newcomer.client)
            }
            (None, None) => {
                let mut hasher = DefaultHasher::new();
                client.hash(&mut hasher);
                self.unknown.insert(hasher.finish());
                return 0;
            }
        };
        let place = self.servings.len() as u32;
        self.words.push(serving.by.clone());
        self.servings.push(serving);
        self.places.insert(client.to_string(), place);
        place
    }
}

/// The lines of some rows of a batch, and how many of them lie inside their intervals or have the class that is predicted, of how many with
/// a target.
fn predict_part<'s>(
    servings: &Servings,
    batch: &KnownBatch,
    part: Range<usize>,
    format: Format,
    served: &impl Fn(usize) -> &'s Serving<'s>,
) -> Result<(Lines, (u64, u64))> {
    let rows = batch.encoded(&servings.schema, part.clone())?;
    let columns = rows.columns();
    let mut buffer = Vec::new();
    let x = convert::<f64>(&rows, &mut buffer);
    let (values, classes) = (rows.values(), rows.classes());
    let (mut lines, mut counts) = (Lines::default(), (0, 0));
    let mut row = Row::new(servings, columns);
    for (place, number) in part.enumerate() {
        let serving = served(number);
        row.columns_mut().copy_from_slice(&x[place * columns..(place + 1) * columns]);
        let predicted = servings.predict(serving, &mut row);
        let value = values.map(|values| values[place]).filter(|value| value.is_finite());
        let class = classes.map(|classes| classes[place] as usize);
        if let Some(right) = predicted.is_right(value, class).filter(|_| serving.is_known) {
            counts.0 += u64::from(right);
            counts.1 += 1;
        }
        lines.push(format, &batch.clients[number], &predicted, &serving.by);
    }
    Ok((lines, counts))
}
