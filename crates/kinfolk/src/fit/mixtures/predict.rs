//! New rows: the component of every row of a table, in its order, how dense rows are there, and whether a row is an outlier.

use super::SavedMixture;
use super::newcomers::{Newcomer, newcomers};
use crate::data::known::{KnownBatch, KnownRows};
use crate::error::Result;
use crate::fit::Input;
use crate::fit::output::{Block, Format, Head, Lines, Output};
use crate::fit::serving::Predicted;
use crate::methods::OwnMixture;
use crate::mixture::{Densities, Rows, Scratch};
use rayon::prelude::*;
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

/// What was predicted of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ComponentsPredicted {
    /// Rows,
    pub rows: u64,
    /// those with a density below that of 1 % of held-out rows,
    pub outliers: u64,
    /// clients that took part in the fit,
    pub known: usize,
    /// and that did not: their weights come from their rows in the table.
    pub new: usize,
    /// What was read in an unusual way.
    pub remarks: Vec<String>,
}

/// Predictions of rows that follow each other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ComponentRows {
    /// The client of each row.
    pub clients: Vec<String>,
    /// Of each row: the probability of every component, the log density in the table's units, and 1 for an outlier.
    pub values: Vec<f64>,
    /// What serves each row's client.
    pub served_by: Vec<Arc<str>>,
}

/// What serves a client.
struct Serving<'a> {
    weights: Vec<f64>,
    alone: Option<&'a OwnMixture>,
}

/// Who was met so far.
struct Crowd<'a> {
    saved: &'a SavedMixture,
    newcomers: HashMap<String, Newcomer>,
    servings: Vec<Serving<'a>>,
    words: Vec<Arc<str>>,
    places: HashMap<String, u32>,
    known: usize,
}

impl Crowd<'_> {
    fn place(&mut self, client: &str) -> u32 {
        if let Some(place) = self.places.get(client) {
            return *place;
        }
        let (serving, by) = match self.saved.place(client) {
            Some(place) => {
                self.known += 1;
                let own = &self.saved.model.clients[place];
                (Serving { weights: own.served.clone(), alone: own.alone.as_ref() }, self.saved.served_by(place))
            }
            None => {
                let own = self.newcomers.remove(client);
                let everybody = || self.saved.model.params[self.saved.model.shape.weights()].to_vec();
                (
                    Serving { weights: own.map_or_else(everybody, |own| own.personal), alone: None },
                    "personal, new".to_string(),
                )
            }
        };
        let place = self.servings.len() as u32;
        self.servings.push(serving);
        self.words.push(by.into());
        self.places.insert(client.to_string(), place);
        place
    }
}

/// Predicts every row of a table, in bounded memory, and writes client, component, the probability of each, log_density, outlier,
/// served_by.
pub fn predict_components<'a>(
    saved: &SavedMixture,
    table: impl Into<Input<'a>>,
    format: Format,
    out: &mut (dyn Write + Send),
) -> Result<ComponentsPredicted> {
    let table = table.into();
    // Nothing is written of a table that cannot be read.
    let newcomers = newcomers(saved, table)?;
    let mut output = Output::new(format, Head::of_words("component", &names(saved), &["log_density", "outlier"]), out)?;
    let found = blocks(saved, table, newcomers, format, |block| output.write(block))?;
    output.finish()?;
    Ok(found)
}

/// Predicts every row of a table, in bounded memory, and hands on one batch after the other.
pub fn predict_component_batches<'a>(
    saved: &SavedMixture,
    table: impl Into<Input<'a>>,
    take: &mut dyn FnMut(ComponentRows) -> Result<()>,
) -> Result<ComponentsPredicted> {
    let table = table.into();
    let newcomers = newcomers(saved, table)?;
    blocks(saved, table, newcomers, Format::Arrow, |block| {
        let served_by = block.served().cloned().collect();
        let values = block.lines.iter().flat_map(Lines::by_row).collect();
        take(ComponentRows { clients: block.clients, values, served_by })
    })
}

fn names(saved: &SavedMixture) -> Vec<String> {
    (1..=saved.model.shape.components).map(|component| component.to_string()).collect()
}

fn blocks(
    saved: &SavedMixture,
    table: Input,
    newcomers: HashMap<String, Newcomer>,
    format: Format,
    mut take: impl FnMut(Block) -> Result<()>,
) -> Result<ComponentsPredicted> {
    /// Rows that are predicted by one thread.
    const PART: usize = 512;
    let new = newcomers.len();
    let mut crowd =
        Crowd { saved, newcomers, servings: Vec::new(), words: Vec::new(), places: HashMap::new(), known: 0 };
    let (mut rows, mut outliers) = (0, 0);
    let names = names(saved);
    let remarks = KnownRows::read_ahead(table, saved.known_columns(), |batch| {
        let count = batch.clients.len();
        let places: Vec<u32> = batch.clients.iter().map(|client| crowd.place(client)).collect();
        let parts = (0..count.div_ceil(PART)).into_par_iter().map(|part| {
            let part = part * PART..count.min((part + 1) * PART);
            predict_part(saved, &names, &batch, part, format, &crowd.servings, &places, &crowd.words)
        });
        let mut lines = Vec::new();
        for part in parts.collect::<Vec<_>>() {
            let (part, own) = part?;
            lines.push(part);
            outliers += own;
        }
        rows += count as u64;
        take(Block { lines, clients: batch.clients, servings: &crowd.words, places })
    })?;
    Ok(ComponentsPredicted { rows, outliers, known: crowd.known, new, remarks })
}

#[expect(clippy::too_many_arguments, reason = "what the threads share")]
fn predict_part(
    saved: &SavedMixture,
    names: &[String],
    batch: &KnownBatch,
    part: Range<usize>,
    format: Format,
    servings: &[Serving],
    places: &[u32],
    words: &[Arc<str>],
) -> Result<(Lines, u64)> {
    let model = &saved.model;
    let (shape, mut scratch) = (model.shape, Scratch::default());
    let rows = Rows::of(&shape, &batch.encoded(&saved.columns, part.clone())?);
    let common = Densities::of(&shape, &model.params, &rows, &mut scratch);
    let mut own: HashMap<u32, Densities> = HashMap::new();
    let (mut lines, mut outliers) = (Lines::default(), 0);
    let mut values = vec![0.0; shape.components + 2];
    for (row, number) in part.enumerate() {
        let place = places[number];
        let serving = &servings[place as usize];
        let (probabilities, rest) = values.split_at_mut(shape.components);
        let mut density = common.posteriors(row, &serving.weights, probabilities);
        if let Some(alone) = serving.alone {
            let own =
                own.entry(place).or_insert_with(|| Densities::of(&alone.shape, &alone.params, &rows, &mut scratch));
            density = own.log_density(row, &alone.params[alone.shape.weights()]);
        }
        let is_outlier = density < model.rare;
        outliers += u64::from(is_outlier);
        rest.copy_from_slice(&[density + model.log_units, f64::from(u8::from(is_outlier))]);
        let class = crate::families::most_probable(&values[..shape.components]);
        let predicted = Predicted::Class { class, name: &names[class], probabilities: &values };
        lines.push(format, &batch.clients[number], &predicted, &words[place as usize]);
    }
    Ok((lines, outliers))
}
