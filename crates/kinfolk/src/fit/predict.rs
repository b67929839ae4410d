//! New rows: a prediction with its interval for every row of a table, in its order.

use super::newcomers::newcomers;
use super::{Input, Saved};
use crate::data::known::{KnownBatch, KnownRows};
use crate::data::numbers::convert;
use crate::error::{Error, Result};
use crate::families::{ClassMix, ClassOdds, Predictor, most_probable};
use crate::methods::Intervals;
use rayon::prelude::*;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Rows that a thread predicts at once.
const PART: usize = 512;

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
    /// Of rows of known clients with a target value, the share inside their intervals, or whose class is predicted, and how many there are.
    pub covered: Option<(f64, u64)>,
    /// What was read in an unusual way.
    pub remarks: Vec<String>,
}

/// How a client is served.
struct Serving {
    model: Served,
    by: Arc<str>,
    /// Whether the client took part in the fit.
    is_known: bool,
}

enum Served {
    /// A number, and by how many deviations its interval reaches to either side.
    Number(Predictor, f64),
    Class(ClassMix),
}

impl Served {
    fn number(saved: &Saved, predictor: Predictor, is_unknown: bool) -> Self {
        let reach = |intervals: Intervals| if is_unknown { intervals.newcomer_reach } else { intervals.reach };
        Self::Number(predictor, saved.model.intervals.map_or(f64::NAN, reach))
    }
}

/// Predictions of rows that follow each other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Predicted {
    /// The client of each row.
    pub clients: Vec<String>,
    /// Of each row: what is expected, and the ends of its interval; or the probability of every class.
    pub values: Vec<f64>,
    /// What serves each row's client.
    pub served_by: Vec<Arc<str>>,
}

/// Predicts every row of a table, in constant memory, and writes csv: client, prediction, low, high, served_by; with classes, the
/// probability of each instead of an interval.
pub fn predict<'a>(saved: &'a Saved, table: impl Into<Input<'a>>, out: &mut dyn Write) -> Result<Predictions> {
    let failed = |error| Error::io("writing", Path::new("the predictions"), error);
    let mut header = "client,prediction".to_string();
    if saved.classes.is_empty() {
        header.push_str(",low,high");
    } else {
        saved.classes.iter().for_each(|class| header.push_str(&format!(",{}", quoted(&format!("p({class})")))));
    }
    header.push_str(",served_by\n");
    out.write_all(header.as_bytes()).map_err(failed)?;
    predict_batches(saved, table, &mut |rows| {
        lines(saved, &rows).iter().try_for_each(|part| out.write_all(part.as_bytes()).map_err(failed))
    })
}

/// Predicts every row of a table, in constant memory, and hands on one batch after the other.
pub fn predict_batches<'a>(
    saved: &'a Saved,
    table: impl Into<Input<'a>>,
    take: &mut dyn FnMut(Predicted) -> Result<()>,
) -> Result<Predictions> {
    let table = table.into();
    let newcomers = newcomers(saved, table)?;
    let mut rows = KnownRows::open(table, saved.known_columns())?;
    let (learned, has_classes) = (&saved.model.learned, !saved.classes.is_empty());
    let unknown = Serving {
        model: match has_classes {
            true => Served::Class(learned.unknown_classes()),
            false => Served::number(saved, learned.unknown_predictor(), true),
        },
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
            let serving = match (saved.place(client), newcomers.get(client)) {
                (Some(place), _) => {
                    found.known += 1;
                    let model = match has_classes {
                        true => Served::Class(ClassMix::one(learned.clients[place].served.clone())),
                        false => Served::number(saved, learned.predictor(place), false),
                    };
                    Some(Serving { model, by: saved.served_by(place).into(), is_known: true })
                }
                (None, Some(arrival)) => {
                    found.fitted += 1;
                    let newcomer = &arrival.newcomer;
                    let model = match has_classes {
                        true => Served::Class(ClassMix::one(newcomer.personal.clone())),
                        false => Served::number(saved, newcomer.predictor(), false),
                    };
                    let by = format!("personal near family {}", newcomer.family + 1).into();
                    Some(Serving { model, by, is_known: false })
                }
                (None, None) => {
                    found.unknown += 1;
                    None
                }
            };
            served.insert(client.clone(), serving);
        }
        found.rows += batch.clients.len() as u64;
        let (predicted, counts) = predict_batch(saved, batch, &served, &unknown);
        take(predicted)?;
        inside += counts.0;
        with_target += counts.1;
    }
    found.covered = (with_target > 0).then(|| (inside as f64 / with_target as f64, with_target));
    found.remarks = rows.remarks();
    Ok(found)
}

/// The predictions of a batch, and how many of its rows lie inside their intervals or have the class that is predicted, of how many
/// with a target.
fn predict_batch(
    saved: &Saved,
    batch: KnownBatch,
    served: &HashMap<String, Option<Serving>>,
    unknown: &Serving,
) -> (Predicted, (u64, u64)) {
    let columns = batch.rows.columns();
    let mut buffer = Vec::new();
    let x = convert::<f64>(&batch.rows, &mut buffer);
    let (targets, classes) = (batch.rows.values(), batch.rows.classes());
    let target = saved.model.target;
    let serving = |client: &String| served.get(client).and_then(Option::as_ref).unwrap_or(unknown);
    let part = |number: usize| {
        let (mut values, mut counts) = (Vec::new(), (0, 0));
        let mut row = vec![1.0; columns + 1];
        let mut odds = ClassOdds::new(saved.model.learned.response.equations());
        let mut probabilities = vec![0.0; saved.classes.len()];
        for place in number * PART..batch.clients.len().min((number + 1) * PART) {
            let serving = serving(&batch.clients[place]);
            row[..columns].copy_from_slice(&x[place * columns..(place + 1) * columns]);
            let is_right = match &serving.model {
                Served::Number(predictor, reach) => {
                    let mean = target.mean + target.deviation * predictor.mean(&row);
                    let reach = reach * target.deviation * predictor.variance(&row).sqrt();
                    values.extend([mean, mean - reach, mean + reach]);
                    let value = targets.map(|targets| targets[place]).filter(|value| value.is_finite());
                    value.map(|value| (value - mean).abs() <= reach)
                }
                Served::Class(mix) => {
                    mix.probabilities(&row, &mut odds, &mut probabilities);
                    values.extend_from_slice(&probabilities);
                    let class = classes.map(|classes| classes[place] as usize);
                    let class = class.filter(|class| *class < saved.classes.len());
                    class.map(|class| class == most_probable(&probabilities))
                }
            };
            if let Some(is_right) = is_right.filter(|_| serving.is_known) {
                counts.0 += u64::from(is_right);
                counts.1 += 1;
            }
        }
        (values, counts)
    };
    let parts: Vec<(Vec<f64>, (u64, u64))> =
        (0..batch.clients.len().div_ceil(PART)).into_par_iter().map(part).collect();
    let counts = parts.iter().fold((0, 0), |sum, (_, part)| (sum.0 + part.0, sum.1 + part.1));
    let served_by = batch.clients.iter().map(|client| serving(client).by.clone()).collect();
    let values = parts.into_iter().flat_map(|(values, _)| values).collect();
    (Predicted { clients: batch.clients, values, served_by }, counts)
}

/// The lines of a batch, in parts.
fn lines(saved: &Saved, rows: &Predicted) -> Vec<String> {
    let width = rows.values.len() / rows.clients.len().max(1);
    let part = |begin: usize| {
        let mut text = String::new();
        for place in begin..rows.clients.len().min(begin + PART) {
            let values = &rows.values[place * width..(place + 1) * width];
            // Writing to a string cannot fail.
            let _ = write!(text, "{}", quoted(&rows.clients[place]));
            if !saved.classes.is_empty() {
                let _ = write!(text, ",{}", quoted(&saved.classes[most_probable(values)]));
            }
            for value in values {
                let _ = write!(text, ",{value}");
            }
            let _ = writeln!(text, ",{}", quoted(&rows.served_by[place]));
        }
        text
    };
    (0..rows.clients.len()).into_par_iter().step_by(PART).map(part).collect()
}

fn quoted(cell: &str) -> std::borrow::Cow<'_, str> {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\"")).into()
    } else {
        cell.into()
    }
}
