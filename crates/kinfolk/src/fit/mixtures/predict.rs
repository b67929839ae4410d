//! New rows: the component of every row of a table, in its order, how dense rows are there, and whether a row is an outlier.

use super::SavedMixture;
use super::newcomers::{Newcomer, newcomers};
use crate::data::known::{KnownBatch, KnownColumns};
use crate::error::Result;
use crate::families::most_probable;
use crate::fit::output::{Format, Head, Lines};
use crate::fit::predict::{Met, Service, Serving, Tally, hand_on_predictions, write_predictions};
use crate::fit::serving::Predicted;
use crate::fit::{Input, PredictedRows};
use crate::methods::OwnMixture;
use crate::mixture::{Densities, Rows, Scratch};
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::ptr;

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

impl ComponentsPredicted {
    fn of(tally: Tally) -> Self {
        let Tally { rows, known, fitted, unknown, counts: [outliers, _], remarks } = tally;
        Self { rows, outliers, known, new: fitted + unknown, remarks }
    }
}

/// What can serve clients.
struct Servings<'a> {
    saved: &'a SavedMixture,
    /// What components are called.
    names: Vec<String>,
}

/// What the rows of a client are predicted with.
struct Weighed<'a> {
    weights: Vec<f64>,
    /// A mixture of its own, for the density.
    alone: Option<&'a OwnMixture>,
}

impl<'a> Servings<'a> {
    fn new(saved: &'a SavedMixture) -> Self {
        let names = (1..=saved.model.shape.components).map(|component| component.to_string()).collect();
        Self { saved, names }
    }

    fn head(&self) -> Head {
        Head::of_words("component", &self.names, &["log_density", "outlier"])
    }
}

impl Service for Servings<'_> {
    type Model<'s>
        = Weighed<'s>
    where
        Self: 's;
    type Newcomer = Newcomer;

    fn columns(&self) -> KnownColumns<'_> {
        self.saved.known_columns()
    }

    fn known(&self, client: &str) -> Option<Serving<Weighed<'_>>> {
        let place = self.saved.place(client)?;
        let own = &self.saved.model.clients[place];
        let model = Weighed { weights: own.served.clone(), alone: own.alone.as_ref() };
        Some(Serving { model, by: self.saved.served_by(place).into(), is_known: true })
    }

    fn newcomer(&self, newcomer: Newcomer) -> Serving<Weighed<'_>> {
        let model = Weighed { weights: newcomer.personal, alone: None };
        Serving { model, by: "personal, new".into(), is_known: false }
    }

    /// Every client with rows is a newcomer: nobody is served by this.
    fn unknown(&self) -> Serving<Weighed<'_>> {
        let model = &self.saved.model;
        let weights = model.params[model.shape.weights()].to_vec();
        Serving { model: Weighed { weights, alone: None }, by: "everybody".into(), is_known: false }
    }

    /// The first count is of outliers.
    fn predict_part<'s>(
        &'s self,
        batch: &KnownBatch,
        part: Range<usize>,
        format: Format,
        met: &Met<'_, Weighed<'s>>,
    ) -> Result<(Lines, [u64; 2])> {
        let model = &self.saved.model;
        let (shape, mut scratch) = (model.shape, Scratch::default());
        let rows = Rows::of(&shape, &batch.encoded(&self.saved.columns, part.clone())?);
        let common = Densities::of(&shape, &model.params, &rows, &mut scratch);
        let mut own: HashMap<*const OwnMixture, Densities> = HashMap::new();
        let (mut lines, mut outliers) = (Lines::default(), 0);
        let mut values = vec![0.0; shape.components + 2];
        for (row, number) in part.enumerate() {
            let serving = met.of(number);
            let (probabilities, rest) = values.split_at_mut(shape.components);
            let mut density = common.posteriors(row, &serving.model.weights, probabilities);
            if let Some(alone) = serving.model.alone {
                let of_rows = || Densities::of(&alone.shape, &alone.params, &rows, &mut scratch);
                let own = own.entry(ptr::from_ref(alone)).or_insert_with(of_rows);
                density = own.log_density(row, &alone.params[alone.shape.weights()]);
            }
            let is_outlier = density < model.rare;
            outliers += u64::from(is_outlier);
            rest.copy_from_slice(&[density + model.log_units, f64::from(u8::from(is_outlier))]);
            let class = most_probable(&values[..shape.components]);
            let predicted = Predicted::Class { class, name: &self.names[class], probabilities: &values };
            lines.push(format, &batch.clients[number], &predicted, &serving.by);
        }
        Ok((lines, [outliers, 0]))
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
    let (table, servings) = (table.into(), Servings::new(saved));
    // Nothing is written of a table that cannot be read.
    let newcomers = newcomers(saved, table)?;
    write_predictions(&servings, newcomers, table, servings.head(), format, out).map(ComponentsPredicted::of)
}

/// Predicts every row of a table, in bounded memory, and hands on one batch after the other.
pub fn predict_component_batches<'a>(
    saved: &SavedMixture,
    table: impl Into<Input<'a>>,
    take: &mut dyn FnMut(PredictedRows) -> Result<()>,
) -> Result<ComponentsPredicted> {
    let table = table.into();
    hand_on_predictions(&Servings::new(saved), newcomers(saved, table)?, table, take).map(ComponentsPredicted::of)
}
