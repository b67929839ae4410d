//! New rows: a prediction with its interval for every row of a table, in its order.

use super::Saved;
use super::newcomers::newcomers;
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
    by: String,
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

/// Predicts every row of a table, in constant memory, and writes csv: client, prediction, low, high, served_by; with classes, the
/// probability of each instead of an interval.
pub fn predict(saved: &Saved, path: &Path, out: &mut dyn Write) -> Result<Predictions> {
    let newcomers = newcomers(saved, path)?;
    let mut rows = KnownRows::open(path, &saved.columns, &saved.client, Some(&saved.target))?;
    let failed = |error| Error::io("writing", Path::new("the predictions"), error);
    let (learned, has_classes) = (&saved.model.learned, !saved.classes.is_empty());
    let mut header = "client,prediction".to_string();
    if has_classes {
        saved.classes.iter().for_each(|class| header.push_str(&format!(",{}", quoted(&format!("p({class})")))));
    } else {
        header.push_str(",low,high");
    }
    header.push_str(",served_by\n");
    out.write_all(header.as_bytes()).map_err(failed)?;
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
                    Some(Serving { model, by: saved.served_by(place), is_known: true })
                }
                (None, Some(arrival)) => {
                    found.fitted += 1;
                    let newcomer = &arrival.newcomer;
                    let model = match has_classes {
                        true => Served::Class(ClassMix::one(newcomer.personal.clone())),
                        false => Served::number(saved, newcomer.predictor(), false),
                    };
                    let by = format!("personal near family {}", newcomer.family + 1);
                    Some(Serving { model, by, is_known: false })
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

/// The lines of a batch, and how many of its rows lie inside their intervals or have the class that is predicted, of how many with a target.
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
    let (targets, classes) = (batch.rows.values(), batch.rows.classes());
    let target = saved.model.target;
    let part = |number: usize| {
        let (mut text, mut counts) = (String::new(), (0, 0));
        let mut row = vec![1.0; columns + 1];
        let mut odds = ClassOdds::new(saved.model.learned.response.equations());
        let mut probabilities = vec![0.0; saved.classes.len()];
        for place in number * PART..batch.clients.len().min((number + 1) * PART) {
            let client = &batch.clients[place];
            let serving = served.get(client).and_then(Option::as_ref).unwrap_or(unknown);
            row[..columns].copy_from_slice(&x[place * columns..(place + 1) * columns]);
            let (client, by, is_known) = (quoted(client), quoted(&serving.by), serving.is_known);
            // Writing to a string cannot fail.
            let _ = match &serving.model {
                Served::Number(predictor, reach) => {
                    let mean = target.mean + target.deviation * predictor.mean(&row);
                    let reach = reach * target.deviation * predictor.variance(&row).sqrt();
                    let value = targets.map(|targets| targets[place]);
                    if let Some(value) = value.filter(|value| is_known && value.is_finite()) {
                        counts.0 += u64::from((value - mean).abs() <= reach);
                        counts.1 += 1;
                    }
                    writeln!(text, "{client},{mean},{},{},{by}", mean - reach, mean + reach)
                }
                Served::Class(mix) => {
                    mix.probabilities(&row, &mut odds, &mut probabilities);
                    let chosen = most_probable(&probabilities);
                    let class = classes.map(|classes| classes[place] as usize);
                    if let Some(class) = class.filter(|class| is_known && *class < saved.classes.len()) {
                        counts.0 += u64::from(class == chosen);
                        counts.1 += 1;
                    }
                    let _ = write!(text, "{client},{}", quoted(&saved.classes[chosen]));
                    for probability in &probabilities {
                        let _ = write!(text, ",{probability}");
                    }
                    writeln!(text, ",{by}")
                }
            };
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
