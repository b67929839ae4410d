//! New rows: a prediction with its interval for every row of a table, in its order.

use super::newcomers::newcomers;
use super::output::{Block, Format, Head, Lines, Output};
use super::serving::{Predicted, Servings};
use super::{Input, Saved};
use crate::data::Shard;
use crate::data::known::{KnownBatch, KnownColumns, KnownRows};
use crate::error::Result;
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
    /// Of each row: what is expected, and the ends of its interval; or the probability of every class; or, of a mixture, the probability
    /// of every component, the log density in the table's units, and 1 for an outlier.
    pub values: Vec<f64>,
    /// What serves each row's client.
    pub served_by: Vec<Arc<str>>,
}

/// What serves a client.
pub(super) struct Serving<M> {
    pub(super) model: M,
    /// In words.
    pub(super) by: Arc<str>,
    /// Whether the client took part in the fit, or was added.
    pub(super) is_known: bool,
}

/// What serves the clients of a fitted model, and predicts their rows.
pub(super) trait Service: Sync {
    /// What a client's rows are predicted with.
    type Model<'s>: Sync
    where
        Self: 's;
    /// What the rows of a client say that the model does not know.
    type Newcomer;

    /// What is read of a table.
    fn columns(&self) -> KnownColumns<'_>;
    /// What serves a client that the model knows.
    fn known(&self, client: &str) -> Option<Serving<Self::Model<'_>>>;
    /// What serves one that it does not, by its rows.
    fn newcomer(&self, newcomer: Self::Newcomer) -> Serving<Self::Model<'_>>;
    /// What serves one of which nothing is known.
    fn unknown(&self) -> Serving<Self::Model<'_>>;
    /// The lines of some rows of a batch, and two counts about them.
    fn predict_part<'s>(
        &'s self,
        batch: &KnownBatch,
        part: Range<usize>,
        format: Format,
        met: &Met<'_, Self::Model<'s>>,
    ) -> Result<(Lines, [u64; 2])>;
}

/// What serves the clients of a batch's rows.
pub(super) struct Met<'c, M> {
    servings: &'c [Serving<M>],
    places: &'c [u32],
}

impl<'c, M> Met<'c, M> {
    /// What serves the client of a row.
    pub(super) fn of(&self, row: usize) -> &'c Serving<M> {
        &self.servings[self.places[row] as usize]
    }
}

/// What was predicted of a table, by any kind of model.
pub(super) struct Tally {
    pub(super) rows: u64,
    /// Clients that the model knows, that are served by their rows, and of which nothing is known.
    pub(super) known: usize,
    pub(super) fitted: usize,
    pub(super) unknown: usize,
    pub(super) counts: [u64; 2],
    pub(super) remarks: Vec<String>,
}

/// Predicts every row of a table, in constant memory, and writes the lines.
pub(super) fn write_predictions<S: Service>(
    service: &S,
    newcomers: HashMap<String, S::Newcomer>,
    table: Input,
    head: Head,
    format: Format,
    out: &mut (dyn Write + Send),
) -> Result<Tally> {
    let mut output = Output::new(format, head, out)?;
    let tally = predict_blocks(service, newcomers, table, format, |block| output.write(block))?;
    output.finish()?;
    Ok(tally)
}

/// Predicts every row of a table, in constant memory, and hands on one batch after the other.
pub(super) fn hand_on_predictions<S: Service>(
    service: &S,
    newcomers: HashMap<String, S::Newcomer>,
    table: Input,
    take: &mut dyn FnMut(PredictedRows) -> Result<()>,
) -> Result<Tally> {
    predict_blocks(service, newcomers, table, Format::Arrow, |block| {
        let served_by = block.served().cloned().collect();
        let values = block.lines.iter().flat_map(Lines::by_row).collect();
        take(PredictedRows { clients: block.clients, values, served_by })
    })
}

fn predict_blocks<S: Service>(
    service: &S,
    newcomers: HashMap<String, S::Newcomer>,
    table: Input,
    format: Format,
    mut take: impl FnMut(Block) -> Result<()>,
) -> Result<Tally> {
    /// Rows that are predicted by one thread.
    const PART: usize = 512;
    let mut crowd = Crowd::new(service, newcomers);
    let (mut rows, mut counts) = (0, [0; 2]);
    let remarks = KnownRows::read_ahead(table, service.columns(), |batch| {
        let count = batch.clients.len();
        let places = crowd.places(&batch.clients);
        let met = Met { servings: &crowd.servings, places: &places };
        let parts = (0..count.div_ceil(PART)).into_par_iter().map(|part| {
            let part = part * PART..count.min((part + 1) * PART);
            service.predict_part(&batch, part, format, &met)
        });
        let mut lines = Vec::new();
        for part in parts.collect::<Vec<_>>() {
            let (part, own) = part?;
            lines.push(part);
            counts.iter_mut().zip(own).for_each(|(count, own)| *count += own);
        }
        rows += count as u64;
        take(Block { lines, clients: batch.clients, servings: &crowd.words, places })
    })?;
    let Crowd { known, fitted, unknown, .. } = crowd;
    Ok(Tally { rows, known, fitted, unknown: unknown.len(), counts, remarks })
}

/// Who was met so far, and what serves them.
struct Crowd<'s, S: Service> {
    service: &'s S,
    newcomers: HashMap<String, S::Newcomer>,
    /// The first serves those of which nothing is known.
    servings: Vec<Serving<S::Model<'s>>>,
    /// The same in words.
    words: Vec<Arc<str>>,
    places: HashMap<String, u32>,
    known: usize,
    fitted: usize,
    /// Hashes of their names: there may be millions.
    unknown: HashSet<u64>,
}

impl<'s, S: Service> Crowd<'s, S> {
    fn new(service: &'s S, newcomers: HashMap<String, S::Newcomer>) -> Self {
        let servings = vec![service.unknown()];
        let words = servings.iter().map(|serving| serving.by.clone()).collect();
        let (places, unknown) = (HashMap::new(), HashSet::new());
        Self { service, newcomers, servings, words, places, known: 0, fitted: 0, unknown }
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
        let serving = match (self.service.known(client), self.newcomers.remove(client)) {
            (Some(serving), _) => {
                self.known += 1;
                serving
            }
            (None, Some(newcomer)) => {
                self.fitted += 1;
                self.service.newcomer(newcomer)
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

impl Predictions {
    /// Of a target: rows of known clients whose value is inside the interval or whose class is predicted, and those with a target, are
    /// counted.
    pub(super) fn of(tally: Tally) -> Self {
        let Tally { rows, known, fitted, unknown, counts: [right, with_target], remarks } = tally;
        let covered = (with_target > 0).then(|| (right as f64 / with_target as f64, with_target));
        Self { rows, known, fitted, unknown, covered, remarks }
    }
}

/// The lines of rows, with the counts of [`Predictions::of`].
#[derive(Default)]
pub(super) struct TargetLines {
    pub(super) lines: Lines,
    pub(super) counts: [u64; 2],
}

impl TargetLines {
    /// Adds what is predicted for a row of encoded ones; `number` is its place in the batch.
    pub(super) fn push<M>(
        &mut self,
        format: Format,
        (rows, row): (&Shard, usize),
        (batch, number): (&KnownBatch, usize),
        predicted: &Predicted,
        serving: &Serving<M>,
    ) {
        let value = rows.values().map(|values| values[row]).filter(|value| value.is_finite());
        let class = rows.classes().map(|classes| classes[row] as usize);
        if let Some(right) = predicted.is_right(value, class).filter(|_| serving.is_known) {
            self.counts[0] += u64::from(right);
            self.counts[1] += 1;
        }
        self.lines.push(format, &batch.clients[number], predicted, &serving.by);
    }
}

/// The columns of predictions of a target with these classes.
pub(super) fn target_head(classes: &[String]) -> Head {
    match classes {
        [] => Head::of_numbers(),
        classes => Head::of_words("prediction", classes, &[]),
    }
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
    let head = target_head(&saved.classes);
    write_predictions(&Servings::new(saved), newcomers, table, head, format, out).map(Predictions::of)
}

/// Predicts every row of a table, in constant memory, and hands on one batch after the other.
pub fn predict_batches<'a>(
    saved: &Saved,
    table: impl Into<Input<'a>>,
    take: &mut dyn FnMut(PredictedRows) -> Result<()>,
) -> Result<Predictions> {
    let table = table.into();
    let newcomers = newcomers(saved, table)?;
    hand_on_predictions(&Servings::new(saved), newcomers, table, take).map(Predictions::of)
}
