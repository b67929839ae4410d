//! New rows: a prediction with its interval for every row of a table, in its order.

use super::SavedNetworks;
use super::newcomers::{Newcomer, newcomers};
use crate::data::known::{KnownBatch, KnownColumns};
use crate::error::Result;
use crate::families::most_probable;
use crate::federation::Params;
use crate::fit::output::{Format, Lines};
use crate::fit::predict::{Met, Service, Serving, TargetLines, hand_on_predictions, target_head, write_predictions};
use crate::fit::serving::Predicted;
use crate::fit::{Input, PredictedRows, Predictions};
use crate::methods::NetworkRung;
use crate::models::Model;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

/// What can serve clients.
struct Servings<'a> {
    saved: &'a SavedNetworks,
    network: Arc<dyn Model>,
}

/// What the rows of a client are predicted with.
struct Blend {
    /// Networks with their weights.
    networks: Vec<(Params, f64)>,
    /// How far an interval reaches to either side.
    reach: f64,
}

impl Servings<'_> {
    /// What serves a client by its rung; an own network, where it has one, is its own.
    fn of_rung(&self, rung: NetworkRung, family: usize, own: Option<Params>, spread: Option<f64>) -> Blend {
        let networks = &self.saved.networks_of;
        let network = match (rung, own) {
            (NetworkRung::Global, _) => networks.global.clone(),
            (NetworkRung::Personal(_) | NetworkRung::Alone(_), Some(own)) => own,
            _ => networks.families[family].clone(),
        };
        let intervals = self.saved.model.intervals.as_ref();
        let reach = intervals.map_or(f64::NAN, |own| own.reach.reach * spread.unwrap_or(own.spread));
        Blend { networks: vec![(network, 1.0)], reach }
    }
}

impl Service for Servings<'_> {
    type Model<'s>
        = Blend
    where
        Self: 's;
    type Newcomer = Newcomer;

    fn columns(&self) -> KnownColumns<'_> {
        self.saved.known_columns()
    }

    fn known(&self, client: &str) -> Option<Serving<Blend>> {
        let (saved, place) = (self.saved, self.saved.place(client)?);
        let facts = &saved.model.clients[place];
        let spread = saved.model.intervals.as_ref().map(|intervals| intervals.spreads[place]);
        let model = self.of_rung(facts.rung, facts.family, saved.networks_of.own[place].clone(), spread);
        Some(Serving { model, by: saved.served_by(facts).into(), is_known: true })
    }

    fn newcomer(&self, newcomer: Newcomer) -> Serving<Blend> {
        let by = self.saved.served_by(&newcomer.client());
        let number = self.saved.model.families[newcomer.family].number;
        let by = if newcomer.own.is_some() { format!("{by} near family {number}") } else { format!("{by}, new") };
        let model = self.of_rung(newcomer.rung, newcomer.family, newcomer.own, None);
        Serving { model, by: by.into(), is_known: false }
    }

    fn unknown(&self) -> Serving<Blend> {
        let model = &self.saved.model;
        let shares = model.families.iter().map(|family| family.share);
        let networks = self.saved.networks_of.families.iter().cloned().zip(shares).collect();
        let reach = model.intervals.as_ref().map_or(f64::NAN, |own| own.reach.newcomer_reach * own.spread);
        let by = if model.families.len() > 1 { "families by share" } else { "everybody" };
        Serving { model: Blend { networks, reach }, by: by.into(), is_known: false }
    }

    fn predict_part(
        &self,
        batch: &KnownBatch,
        part: Range<usize>,
        format: Format,
        met: &Met<'_, Blend>,
    ) -> Result<(Lines, [u64; 2])> {
        let saved = self.saved;
        let rows = batch.encoded(&saved.columns, part.clone())?;
        let (width, target) = (saved.classes.len().max(1), saved.model.target);
        let mut expected = vec![0.0; part.len() * width];
        // Rows of the same network are predicted together; a row's sum runs in the order of its blend.
        let most = part.clone().map(|number| met.of(number).model.networks.len()).max().unwrap_or(0);
        for turn in 0..most {
            let mut of_network: BTreeMap<usize, (&Params, Vec<usize>)> = BTreeMap::new();
            for (row, number) in part.clone().enumerate() {
                if let Some((network, _)) = met.of(number).model.networks.get(turn) {
                    of_network.entry(network.as_ptr() as usize).or_insert_with(|| (network, Vec::new())).1.push(row);
                }
            }
            for (network, picked) in of_network.into_values() {
                let found = self.network.expectations(network, &rows.pick(&picked))?;
                for (row, found) in picked.into_iter().zip(found.chunks_exact(width)) {
                    let weight = met.of(part.start + row).model.networks[turn].1;
                    let sum = &mut expected[row * width..(row + 1) * width];
                    sum.iter_mut().zip(found).for_each(|(sum, found)| *sum += weight * found);
                }
            }
        }
        let mut found = TargetLines::default();
        for ((row, number), expected) in part.enumerate().zip(expected.chunks_exact(width)) {
            let serving = met.of(number);
            let predicted = match saved.classes.is_empty() {
                true => {
                    let mean = target.mean + target.deviation * expected[0];
                    let reach = target.deviation * serving.model.reach;
                    Predicted::Number([mean, mean - reach, mean + reach])
                }
                false => {
                    let class = most_probable(expected);
                    Predicted::Class { class, name: &saved.classes[class], probabilities: expected }
                }
            };
            found.push(format, (&rows, row), (batch, number), &predicted, serving);
        }
        Ok((found.lines, found.counts))
    }
}

impl SavedNetworks {
    fn servings(&self) -> Result<Servings<'_>> {
        Ok(Servings { saved: self, network: self.network()? })
    }

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
        let newcomers = newcomers(self, table)?.into_iter().collect();
        let head = target_head(&self.classes);
        write_predictions(&self.servings()?, newcomers, table, head, format, out).map(Predictions::of)
    }

    /// Predicts every row of a table, in bounded memory, and hands on one batch after the other.
    pub fn predict_batches<'a>(
        &self,
        table: impl Into<Input<'a>>,
        take: &mut dyn FnMut(PredictedRows) -> Result<()>,
    ) -> Result<Predictions> {
        let table = table.into();
        let newcomers = newcomers(self, table)?.into_iter().collect();
        hand_on_predictions(&self.servings()?, newcomers, table, take).map(Predictions::of)
    }
}
