//! New rows: a prediction with its interval for every row of a table, in its order.

use super::Saved;
use crate::data::known::{KnownBatch, KnownRows};
use crate::data::numbers::convert;
use crate::error::{Error, Result};
use crate::families::{Predictor, Products};
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

/// What was predicted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Predictions {
    /// Rows.
    pub rows: u64,
    /// Clients that took part in the fit,
    pub known: usize,
    /// that did not, and are served by a model of their own from the target values in the table,
    pub fitted: usize,
    /// and that are served by what is known of everybody.
    pub unknown: usize,
    /// Of rows of known clients with a target value, the share inside their intervals, and how many there are.
    pub covered: Option<(f64, u64)>,
    /// What was read in an unusual way.
    pub remarks: Vec<String>,
}

/// How a client is served.
struct Serving {
    predictor: Predictor,
    reach: f64,
    by: String,
    /// Whether the client took part in the fit.
    is_known: bool,
}

/// Predicts every row of a table, in constant memory, and writes csv: client, prediction, low, high, served_by.
pub fn predict(saved: &Saved, path: &Path, out: &mut dyn Write) -> Result<Predictions> {
    let newcomers = newcomers(saved, path)?;
    let mut rows = KnownRows::open(path, &saved.columns, &saved.client, Some(&saved.target))?;
    let failed = |error| Error::io("writing", Path::new("the predictions"), error);
    out.write_all(b"client,prediction,low,high,served_by\n").map_err(failed)?;
    let places: HashMap<&str, usize> = saved.names.iter().map(String::as_str).zip(0..).collect();
    let unknown = Serving {
        predictor: saved.model.learned.unknown_predictor(),
        reach: saved.model.intervals.newcomer_reach,
        by: if saved.model.learned.families.len() > 1 { "families by share".into() } else { "everybody".into() },
        is_known: false,
    };
    let mut served: HashMap<String, Option<Serving>> = HashMap::new();
    let mut found = Predictions::default();
    let (mut inside, mut with_target) = (0u64, 0u64);
    while let Some(batch) = rows.next_batch()? {
        for client in &batch.clients {
            if served.contains_key(client) {
                continue;
            }
            let serving = match (places.get(client.as_str()), newcomers.get(client)) {
                (Some(&place), _) => {
                    found.known += 1;
                    let by = saved.served_by(place);
                    let predictor = saved.model.learned.predictor(place);
                    Some(Serving { predictor, reach: saved.model.intervals.reach, by, is_known: true })
                }
                (None, Some(products)) => {
                    found.fitted += 1;
                    let newcomer = saved.model.learned.newcomer(products)?;
                    let predictor = newcomer.predictor();
                    let by = format!("personal near family {}", newcomer.family + 1);
                    Some(Serving { predictor, reach: saved.model.intervals.reach, by, is_known: false })
                }
                (None, None) => {
                    found.unknown += 1;
                    None
                }
            };
            served.insert(client.clone(), serving);
        }
        let (lines, counts) = predict_batch(saved, &batch, &served, &unknown);
        for line in lines {
            out.write_all(line.as_bytes()).map_err(failed)?;
        }
        found.rows += batch.clients.len() as u64;
        inside += counts.0;
        with_target += counts.1;
    }
    found.covered = (with_target > 0).then(|| (inside as f64 / with_target as f64, with_target));
    found.remarks = rows.remarks();
    Ok(found)
}

/// The lines of a batch, and how many of its rows lie inside their intervals, of how many with a target.
fn predict_batch(
    saved: &Saved,
    batch: &KnownBatch,
    served: &HashMap<String, Option<Serving>>,
    unknown: &Serving,
) -> (Vec<String>, (u64, u64)) {
    const PART: usize = 512;
    let columns = batch.rows.columns();
    let mut buffer = Vec::new();
    let x = convert::<f64>(&batch.rows, &mut buffer);
    let targets = batch.rows.values();
    let target = saved.model.target;
    let part = |number: usize| {
        let (mut text, mut counts) = (String::new(), (0, 0));
        let mut row = vec![1.0; columns + 1];
        for place in number * PART..batch.clients.len().min((number + 1) * PART) {
            let client = &batch.clients[place];
            let serving = served.get(client).and_then(Option::as_ref).unwrap_or(unknown);
            row[..columns].copy_from_slice(&x[place * columns..(place + 1) * columns]);
            let mean = target.mean + target.deviation * serving.predictor.mean(&row);
            let reach = serving.reach * target.deviation * serving.predictor.variance(&row).sqrt();
            let is_known = serving.is_known;
            if let Some(value) = targets.map(|targets| targets[place]).filter(|value| is_known && value.is_finite()) {
                counts.0 += u64::from((value - mean).abs() <= reach);
                counts.1 += 1;
            }
            // Writing to a string cannot fail.
            let (low, high, by) = (mean - reach, mean + reach, quoted(&serving.by));
            let _ = writeln!(text, "{},{mean},{low},{high},{by}", quoted(client));
        }
        (text, counts)
    };
    let parts: Vec<(String, (u64, u64))> = (0..batch.clients.len().div_ceil(PART)).into_par_iter().map(part).collect();
    let counts = parts.iter().fold((0, 0), |sum, (_, part)| (sum.0 + part.0, sum.1 + part.1));
    (parts.into_iter().map(|(text, _)| text).collect(), counts)
}

fn quoted(cell: &str) -> std::borrow::Cow<'_, str> {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\"")).into()
    } else {
        cell.into()
    }
}

/// The products of every client that did not take part in the fit, from its rows with a target.
pub(super) fn newcomers(saved: &Saved, path: &Path) -> Result<HashMap<String, Products>> {
    let mut rows = KnownRows::open(path, &saved.columns, &saved.client, Some(&saved.target))?;
    let mut found: HashMap<String, Products> = HashMap::new();
    let known: HashSet<&str> = saved.names.iter().map(String::as_str).collect();
    let target = saved.model.target;
    while let Some(batch) = rows.next_batch()? {
        let Some(targets) = batch.rows.values() else { break };
        let columns = batch.rows.columns();
        let mut buffer = Vec::new();
        let x = convert::<f64>(&batch.rows, &mut buffer);
        let mut row = vec![1.0; columns + 1];
        for (place, client) in batch.clients.iter().enumerate().filter(|(place, _)| targets[*place].is_finite()) {
            if known.contains(client.as_str()) {
                continue;
            }
            row[..columns].copy_from_slice(&x[place * columns..(place + 1) * columns]);
            let products = found.entry(client.clone()).or_insert_with(|| Products::none(columns + 1));
            products.add_row(&row, (targets[place] - target.mean) / target.deviation, 1.0);
        }
    }
    Ok(found)
}
