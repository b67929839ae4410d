//! New rows: a prediction with its interval for every row of a table, in its order.

use super::SavedNetworks;
use super::newcomers::{Newcomer, newcomers};
use crate::data::known::{KnownBatch, KnownRows};
use crate::error::Result;
use crate::federation::Params;
use crate::fit::output::{Block, Format, Head, Lines, Output};
use crate::fit::serving::Predicted;
use crate::fit::{Input, PredictedRows, Predictions};
use crate::methods::NetworkRung;
use crate::models::Model;
use rayon::prelude::*;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

/// What serves a client.
struct Serving {
    /// Networks with their weights.
    blend: Vec<(usize, f64)>,
    /// How far an interval reaches to either side.
    reach: f64,
    /// Whether the client took part in the fit, or was added.
    is_known: bool,
}

/// Who was met so far, and what serves them.
struct Crowd<'a> {
    saved: &'a SavedNetworks,
    newcomers: BTreeMap<String, Newcomer>,
    /// Everybody's, the families', and those of clients that were met.
    networks: Vec<Params>,
    /// The first serves those of which nothing is known.
    servings: Vec<Serving>,
    words: Vec<Arc<str>>,
    places: HashMap<String, u32>,
    known: usize,
    fitted: usize,
    /// Hashes of their names: there may be millions.
    unknown: HashSet<u64>,
}

impl<'a> Crowd<'a> {
    fn new(saved: &'a SavedNetworks, newcomers: BTreeMap<String, Newcomer>) -> Self {
        let families = &saved.model.families;
        let networks = std::iter::once(&saved.networks_of.global).chain(&saved.networks_of.families).cloned().collect();
        let blend = families.iter().enumerate().map(|(place, family)| (1 + place, family.share)).collect();
        let reach = saved.model.intervals.as_ref().map_or(f64::NAN, |own| own.reach.newcomer_reach * own.spread);
        let words = vec![if families.len() > 1 { "families by share" } else { "everybody" }.into()];
        Self {
            saved,
            newcomers,
            networks,
            servings: vec![Serving { blend, reach, is_known: false }],
            words,
            places: HashMap::new(),
            known: 0,
            fitted: 0,
            unknown: HashSet::new(),
        }
    }

    fn place(&mut self, client: &str) -> u32 {
        if let Some(place) = self.places.get(client) {
            return *place;
        }
        let saved = self.saved;
        let intervals = saved.model.intervals.as_ref();
        let reach =
            |spread: Option<f64>| intervals.map_or(f64::NAN, |own| own.reach.reach * spread.unwrap_or(own.spread));
        let (rung, family, own, reach, by, is_known) = match (saved.place(client), self.newcomers.remove(client)) {
            (Some(place), _) => {
                self.known += 1;
                let own = saved.networks_of.own[place].clone();
                let facts = &saved.model.clients[place];
                let spread = intervals.map(|intervals| intervals.spreads[place]);
                (facts.rung, facts.family, own, reach(spread), saved.served_by(facts), true)
            }
            (None, Some(newcomer)) => {
                self.fitted += 1;
                let by = saved.served_by(&newcomer.client());
                let number = saved.model.families[newcomer.family].number;
                let by =
                    if newcomer.own.is_some() { format!("{by} near family {number}") } else { format!("{by}, new") };
                (newcomer.rung, newcomer.family, newcomer.own, reach(None), by, false)
            }
            (None, None) => {
                let mut hasher = DefaultHasher::new();
                client.hash(&mut hasher);
                self.unknown.insert(hasher.finish());
                return 0;
            }
        };
        let network = match (rung, own) {
            (NetworkRung::Global, _) => 0,
            (NetworkRung::Personal(_) | NetworkRung::Alone(_), Some(own)) => {
                self.networks.push(own);
                self.networks.len() - 1
            }
            _ => 1 + family,
        };
        let place = self.servings.len() as u32;
        self.servings.push(Serving { blend: vec![(network, 1.0)], reach, is_known });
        self.words.push(by.into());
        self.places.insert(client.to_string(), place);
        place
    }
}

impl SavedNetworks {
    /// Predicts every row of a table, in bounded memory, and writes client, prediction, low, high, served_by; with classes, the probability
    /// of each instead of an interval.
    pub fn predict<'a>(
        &self,
        table: impl Into<Input<'a>>,
        format: Format,
        out: &mut (dyn Write + Send),
    ) -> Result<Predictions> {
        let table = table.into();
        // Nothing is written of a table that cannot be read.
        let newcomers = newcomers(self, table)?;
        let head = match &self.classes[..] {
            [] => Head::of_numbers(),
            classes => Head::of_words("prediction", classes, &[]),
        };
        let mut output = Output::new(format, head, out)?;
        let found = blocks(self, table, newcomers, format, |block| output.write(block))?;
        output.finish()?;
        Ok(found)
    }

    /// Predicts every row of a table, in bounded memory, and hands on one batch after the other.
    pub fn predict_batches<'a>(
        &self,
        table: impl Into<Input<'a>>,
        take: &mut dyn FnMut(PredictedRows) -> Result<()>,
    ) -> Result<Predictions> {
        let table = table.into();
        let newcomers = newcomers(self, table)?;
        blocks(self, table, newcomers, Format::Arrow, |block| {
            let served_by = block.served().cloned().collect();
            let values = block.lines.iter().flat_map(Lines::by_row).collect();
            take(PredictedRows { clients: block.clients, values, served_by })
        })
    }
}

fn blocks(
    saved: &SavedNetworks,
    table: Input,
    newcomers: BTreeMap<String, Newcomer>,
    format: Format,
    mut take: impl FnMut(Block) -> Result<()>,
) -> Result<Predictions> {
    /// Rows that are predicted by one thread.
    const PART: usize = 512;
    let network = saved.network()?;
    let mut crowd = Crowd::new(saved, newcomers);
    let (mut rows, mut right, mut with_target) = (0, 0, 0);
    let remarks = KnownRows::read_ahead(table, saved.known_columns(), |batch| {
        let count = batch.clients.len();
        let places: Vec<u32> = batch.clients.iter().map(|client| crowd.place(client)).collect();
        let parts = (0..count.div_ceil(PART)).into_par_iter().map(|part| {
            let part = part * PART..count.min((part + 1) * PART);
            predict_part(&crowd, &*network, &batch, part, format, &places)
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

/// The lines of some rows of a batch, and how many of them lie inside their intervals or have the class that is predicted, of how many with
/// a target.
fn predict_part(
    crowd: &Crowd,
    network: &dyn Model,
    batch: &KnownBatch,
    part: Range<usize>,
    format: Format,
    places: &[u32],
) -> Result<(Lines, (u64, u64))> {
    let saved = crowd.saved;
    let rows = batch.encoded(&saved.columns, part.clone())?;
    let (width, target) = (saved.classes.len().max(1), saved.model.target);
    let mut expected = vec![0.0; part.len() * width];
    // Rows of the same network are predicted together.
    let mut of_network: BTreeMap<usize, Vec<(usize, f64)>> = BTreeMap::new();
    for (row, number) in part.clone().enumerate() {
        for &(network, weight) in &crowd.servings[places[number] as usize].blend {
            of_network.entry(network).or_default().push((row, weight));
        }
    }
    for (place, own) in of_network {
        let picked: Vec<usize> = own.iter().map(|(row, _)| *row).collect();
        let found = network.expect(&crowd.networks[place], &rows.pick(&picked))?;
        for ((row, weight), found) in own.into_iter().zip(found.chunks_exact(width)) {
            let sum = &mut expected[row * width..(row + 1) * width];
            sum.iter_mut().zip(found).for_each(|(sum, found)| *sum += weight * found);
        }
    }
    let (mut lines, mut counts) = (Lines::default(), (0, 0));
    for ((row, number), expected) in part.enumerate().zip(expected.chunks_exact(width)) {
        let serving = &crowd.servings[places[number] as usize];
        let predicted = match saved.classes.is_empty() {
            true => {
                let mean = target.mean + target.deviation * expected[0];
                let reach = target.deviation * serving.reach;
                Predicted::Number([mean, mean - reach, mean + reach])
            }
            false => {
                let class = crate::families::most_probable(expected);
                Predicted::Class { class, name: &saved.classes[class], probabilities: expected }
            }
        };
        let value = rows.values().map(|values| values[row]).filter(|value| value.is_finite());
        let class = rows.classes().map(|classes| classes[row] as usize);
        if let Some(right) = predicted.is_right(value, class).filter(|_| serving.is_known) {
            counts.0 += u64::from(right);
            counts.1 += 1;
        }
        lines.push(format, &batch.clients[number], &predicted, &crowd.words[places[number] as usize]);
    }
    Ok((lines, counts))
}
