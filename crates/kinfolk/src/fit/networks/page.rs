//! The page of fitted networks.

use super::SavedNetworks;
use super::effects::Effect;
use super::saved::FittedClient;
use super::show;
use crate::fit::page::{Residuals, calibration, columns};
use crate::methods::Intervals;
use crate::report::html::{assemble, shortened};
use crate::report::table::Table;
use serde::Serialize;

/// Drawn with what the page of families has.
const SCRIPT: &str = concat!(include_str!("../page.js"), "\n", include_str!("networks.js"));
/// Upper bound on the clients that are drawn or listed one by one.
const MOST_CLIENTS: usize = 400;
/// Upper bound on the terms whose effects are drawn.
const MOST_TERMS: usize = 16;

/// The page.
pub(super) fn page(saved: &SavedNetworks) -> String {
    assemble(&Content::of(saved), SCRIPT)
}

#[derive(Serialize)]
struct Content<'a> {
    version: &'a str,
    target: &'a str,
    /// What errors are.
    loss: &'static str,
    client: &'a str,
    count: usize,
    rows: usize,
    families: usize,
    /// What each family is called.
    family_numbers: Vec<usize>,
    sentences: &'a [String],
    columns: Table,
    table: Table,
    errors: Table,
    coverage: Option<f64>,
    residuals: Option<Residuals<'a>>,
    calibration: Vec<[f64; 3]>,
    clients: Vec<Client<'a>>,
    terms: Vec<Term>,
    remarks: Vec<&'a String>,
    /// The file with all numbers.
    numbers: &'static str,
}

#[derive(Serialize)]
struct Client<'a> {
    name: &'a str,
    rows: usize,
    family: usize,
    served: String,
    /// Everybody's model, the family's, fine-tuned, alone, what serves it.
    errors: Option<[Option<f64>; 5]>,
    joining: &'static str,
    gain: Option<f64>,
    gain_error: Option<f64>,
}

/// The effect of a column in every family, without an error, and in everybody's model.
#[derive(Serialize)]
struct Term {
    name: String,
    families: Vec<[Option<f64>; 2]>,
    global: Option<f64>,
}

impl<'a> Content<'a> {
    fn of(saved: &'a SavedNetworks) -> Self {
        let model = &saved.model;
        let residuals = model.intervals.as_ref().map(|intervals| &intervals.reach);
        let residuals = residuals.filter(|reach| !reach.residuals.is_empty());
        Self {
            version: env!("CARGO_PKG_VERSION"),
            target: &saved.target,
            loss: show::loss(saved),
            client: &saved.client,
            count: saved.names.len(),
            rows: model.clients.iter().map(|client| client.rows).sum(),
            families: model.families.len(),
            family_numbers: model.families.iter().map(|family| family.number).collect(),
            sentences: &model.sentences,
            columns: columns(&saved.understood),
            table: show::families(saved),
            errors: show::errors(saved),
            coverage: show::coverage(saved),
            residuals: residuals.map(|own| Residuals {
                step: Intervals::STEP,
                shares: &own.residuals,
                reach: own.reach,
            }),
            calibration: calibration(model.reliability.as_ref()),
            clients: clients(saved),
            terms: terms(saved),
            remarks: saved.changes.iter().chain(&saved.remarks).collect(),
            numbers: "model.json",
        }
    }
}

/// All clients, or as many as can be told apart, evenly picked.
fn clients(saved: &SavedNetworks) -> Vec<Client<'_>> {
    let unit = saved.unit();
    let count = saved.names.len();
    let picked = (0..count.min(MOST_CLIENTS)).map(|place| place * count / count.clamp(1, MOST_CLIENTS));
    let in_units = |value: Option<f64>| value.and_then(|value| shortened(unit * value));
    let client = |place: usize| {
        let client: &FittedClient = &saved.model.clients[place];
        Client {
            name: &saved.names[place],
            rows: client.rows,
            family: client.family,
            served: saved.served_by(client),
            errors: client.errors.map(|errors| errors.map(in_units)),
            joining: if client.joining.is_some() { show::joining(client) } else { "is not known" },
            gain: in_units(client.joining.map(|gain| gain.mean)),
            gain_error: in_units(client.joining.map(|gain| gain.error)),
        }
    };
    picked.map(client).collect()
}

/// The terms whose effects differ most between families; with one family the largest ones.
fn terms(saved: &SavedNetworks) -> Vec<Term> {
    let (global, families) = (&saved.model.effects, &saved.model.families);
    let outputs = show::outputs(saved);
    let apart = |(term, output): (usize, usize)| {
        let of = |effects: &[Effect]| effects[term].mean[output];
        let from = if families.len() > 1 { of(global) } else { 0.0 };
        // Terms have different units: beside how much effects differ between rows.
        let spread = global[term].spread[output].max(of(global).abs()).max(f64::MIN_POSITIVE);
        families.iter().map(|family| (of(&family.effects) - from).abs() / spread).fold(0.0, f64::max)
    };
    let mut places: Vec<(usize, usize)> =
        (0..global.len()).flat_map(|term| outputs.iter().map(move |(output, _)| (term, *output))).collect();
    places.sort_by(|a, b| apart(*b).total_cmp(&apart(*a)));
    places.truncate(MOST_TERMS);
    let term = |(term, output): (usize, usize)| {
        let prefix = outputs.iter().find(|(place, _)| *place == output).map_or("", |(_, prefix)| prefix);
        Term {
            name: format!("{prefix}{}", global[term].term),
            families: families.iter().map(|family| [shortened(family.effects[term].mean[output]), None]).collect(),
            global: shortened(global[term].mean[output]),
        }
    };
    places.into_iter().map(term).collect()
}
