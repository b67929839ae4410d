//! The page of a fitted model: its content is chosen here, and drawn by the page's own script.

use super::Saved;
use super::coefficients::Coefficients;
use super::show;
use crate::clustering::{Plane, Points};
use crate::data::understood::Understood;
use crate::report::html::{assemble, shortened};
use crate::report::table::Table;
use serde::Serialize;

const SCRIPT: &str = concat!(include_str!("page.js"), "\n", include_str!("families.js"));
/// Upper bound on the clients that are drawn or listed one by one.
const MOST_CLIENTS: usize = 400;
/// Upper bound on the terms whose coefficients are drawn.
const MOST_TERMS: usize = 16;

/// The page.
pub(super) fn page(saved: &Saved) -> String {
    assemble(&Content::of(saved), SCRIPT)
}

#[derive(Serialize)]
struct Content<'a> {
    version: &'a str,
    target: &'a str,
    client: &'a str,
    count: usize,
    rows: usize,
    families: usize,
    sentences: &'a [String],
    columns: Table,
    table: Table,
    errors: Table,
    coverage: Option<f64>,
    clients: Vec<Client<'a>>,
    terms: Vec<Term>,
    remarks: &'a [String],
    /// The file with all numbers.
    numbers: &'static str,
}

#[derive(Serialize)]
struct Client<'a> {
    name: &'a str,
    rows: usize,
    family: usize,
    sure: Option<f64>,
    stability: Option<f64>,
    /// Of its personal model, in the two principal directions of all.
    place: [Option<f64>; 2],
    served: String,
    /// Cross-validated mean squared errors: global, family, personal, alone, what serves it.
    errors: Option<[Option<f64>; 5]>,
    joining: &'static str,
    gain: Option<f64>,
    gain_error: Option<f64>,
}

/// A coefficient of every family with its standard error, and everybody's.
#[derive(Serialize)]
struct Term {
    name: String,
    families: Vec<[Option<f64>; 2]>,
    global: Option<f64>,
}

impl<'a> Content<'a> {
    fn of(saved: &'a Saved) -> Self {
        let learned = &saved.model.learned;
        let rows = learned.clients.iter().map(|client| client.rows).sum();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            target: &saved.target,
            client: &saved.client,
            count: saved.names.len(),
            rows,
            families: learned.families.len(),
            sentences: &learned.sentences,
            columns: columns(&saved.understood),
            table: show::families(saved),
            errors: show::errors(saved),
            coverage: saved.coverage(),
            clients: clients(saved),
            terms: terms(saved),
            remarks: &saved.remarks,
            numbers: "model.json",
        }
    }
}

/// What was understood of the table's columns.
pub(super) fn columns(understood: &[Understood]) -> Table {
    let mut table =
        Table::new().words("column").words("what it is").numbers("kinds").numbers("missing").words("what is done");
    for column in understood {
        let kinds = column.kinds.map_or(String::new(), |kinds| kinds.to_string());
        let missing = if column.missing > 0 { column.missing.to_string() } else { String::new() };
        table.push([column.column.clone(), column.kind.name().to_string(), kinds, missing, column.done.clone()]);
    }
    table
}

/// All clients, or as many as can be told apart, evenly picked.
fn clients(saved: &Saved) -> Vec<Client<'_>> {
    let learned = &saved.model.learned;
    let square = saved.model.target.deviation.powi(2);
    let models: Vec<f64> = learned.clients.iter().flat_map(|client| client.personal.iter().copied()).collect();
    let plane = Points::new(&models, learned.global.len()).ok().map(Plane::of);
    let count = saved.names.len();
    let picked = (0..count.min(MOST_CLIENTS)).map(|place| place * count / count.clamp(1, MOST_CLIENTS));
    let client = |place: usize| {
        let client = &learned.clients[place];
        let service = &client.service;
        let place_of = plane.as_ref().map_or([f64::NAN; 2], |plane| plane.project(&client.personal));
        let errors = service.errors.map(|[global, family, personal, alone]| {
            [global, family, personal, alone, service.error.unwrap_or(f64::NAN)].map(|error| shortened(square * error))
        });
        Client {
            name: &saved.names[place],
            rows: client.rows,
            family: client.family,
            sure: shortened(client.responsibilities[client.family]),
            stability: client.stability.and_then(shortened),
            place: place_of.map(shortened),
            served: saved.served_by(place),
            errors,
            joining: service.verdict(),
            gain: shortened(square * service.joining.mean),
            gain_error: shortened(square * service.joining.error),
        }
    };
    picked.map(client).collect()
}

/// The terms that differ most between families, in standard errors; with one family the largest ones.
fn terms(saved: &Saved) -> Vec<Term> {
    let learned = &saved.model.learned;
    let units = Coefficients::new(saved);
    let global = units.terms(&learned.global, None);
    let families: Vec<_> =
        learned.families.iter().map(|family| units.terms(&family.centre, Some(&family.covariance))).collect();
    let apart = |place: usize| {
        let distance = |family: &Vec<super::coefficients::Term>| {
            let term = &family[place];
            let from = if learned.families.len() > 1 { global[place].value } else { 0.0 };
            (term.value - from).abs() / term.error.unwrap_or(0.0).max(f64::MIN_POSITIVE)
        };
        families.iter().map(distance).filter(|distance| distance.is_finite()).fold(0.0, f64::max)
    };
    // The intercept is where all columns are 0, which may be nowhere near the rows.
    let mut places: Vec<usize> = (1..global.len()).filter(|&place| apart(place) > 0.0).collect();
    places.sort_by(|a, b| apart(*b).total_cmp(&apart(*a)));
    places.truncate(MOST_TERMS);
    let of = |family: &Vec<super::coefficients::Term>, place: usize| {
        [shortened(family[place].value), family[place].error.and_then(shortened)]
    };
    let term = |place: usize| Term {
        name: global[place].name.clone(),
        families: families.iter().map(|family| of(family, place)).collect(),
        global: shortened(global[place].value),
    };
    places.into_iter().map(term).collect()
}
