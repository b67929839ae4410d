//! The page of a fitted mixture.

use super::SavedMixture;
use super::show;
use super::units::components;
use crate::clustering::{Plane, Points};
use crate::fit::page::columns;
use crate::report::html::{assemble, shortened};
use crate::report::table::Table;
use serde::Serialize;

/// Drawn with what the page of families has.
const SCRIPT: &str = concat!(include_str!("../page.js"), "\n", include_str!("page.js"));
/// Upper bound on the clients that are drawn or listed one by one.
const MOST_CLIENTS: usize = 400;
/// Upper bound on the columns whose means are drawn.
const MOST_COLUMNS: usize = 16;

/// The page.
pub(super) fn page(saved: &SavedMixture) -> String {
    assemble(&Content::of(saved), SCRIPT)
}

#[derive(Serialize)]
struct Content<'a> {
    version: &'a str,
    client: &'a str,
    count: usize,
    rows: usize,
    families: usize,
    components: usize,
    sentences: &'a [String],
    columns: Table,
    component_table: Table,
    tried: Vec<Tried>,
    table: Table,
    held_out: Table,
    clients: Vec<Client<'a>>,
    means: Vec<Means>,
    remarks: &'a [String],
    /// The file with all numbers.
    numbers: &'static str,
}

#[derive(Serialize)]
struct Tried {
    components: usize,
    full: bool,
    held_out: Option<f64>,
    chosen: bool,
}

#[derive(Serialize)]
struct Client<'a> {
    name: &'a str,
    rows: usize,
    family: usize,
    sure: Option<f64>,
    /// Of its weights, in the two principal directions of all.
    place: [Option<f64>; 2],
    served: String,
    outlier: bool,
    weights: Vec<Option<f64>>,
    density: Option<f64>,
    joining: &'static str,
    gain: Option<f64>,
    gain_error: Option<f64>,
}

/// The mean and the spread of a column in every component.
#[derive(Serialize)]
struct Means {
    name: String,
    components: Vec<[Option<f64>; 2]>,
}

impl<'a> Content<'a> {
    fn of(saved: &'a SavedMixture) -> Self {
        let model = &saved.model;
        let tried = model.tried.iter().map(|tried| Tried {
            components: tried.components,
            full: tried.full,
            held_out: shortened(tried.held_out + model.log_units),
            chosen: tried.chosen,
        });
        Self {
            version: env!("CARGO_PKG_VERSION"),
            client: &saved.client,
            count: saved.names.len(),
            rows: model.clients.iter().map(|client| client.rows).sum(),
            families: model.families.len(),
            components: model.shape.components,
            sentences: &model.sentences,
            columns: columns(&saved.understood),
            component_table: show::component_table(saved),
            tried: tried.collect(),
            table: show::families(saved),
            held_out: show::held_out(saved),
            clients: clients(saved),
            means: means(saved),
            remarks: &saved.remarks,
            numbers: "model.json",
        }
    }
}

/// All clients, or as many as can be told apart, evenly picked.
fn clients(saved: &SavedMixture) -> Vec<Client<'_>> {
    let model = &saved.model;
    let weights: Vec<f64> = model.clients.iter().flat_map(|client| client.personal.iter().copied()).collect();
    let plane = Points::new(&weights, model.shape.components).ok().map(Plane::of);
    let count = saved.names.len();
    let picked = (0..count.min(MOST_CLIENTS)).map(|place| place * count / count.clamp(1, MOST_CLIENTS));
    let client = |place: usize| {
        let client = &model.clients[place];
        let at = plane.as_ref().map_or([f64::NAN; 2], |plane| plane.project(&client.personal));
        Client {
            name: &saved.names[place],
            rows: client.rows,
            family: client.family,
            sure: shortened(client.responsibilities[client.family]),
            place: at.map(shortened),
            served: saved.served_by(place),
            outlier: client.is_outlier,
            weights: client.served.iter().map(|weight| shortened(*weight)).collect(),
            density: client.held_out.and_then(|value| shortened(value + model.log_units)),
            joining: show::joining(client),
            gain: client.joining.and_then(|gain| shortened(gain.mean)),
            gain_error: client.joining.and_then(|gain| shortened(gain.error)),
        }
    };
    picked.map(client).collect()
}

/// The columns that differ most between components.
fn means(saved: &SavedMixture) -> Vec<Means> {
    let (names, components) = (saved.features(), components(saved));
    let apart = |place: usize| components.iter().map(|own| own.weight * own.apart[place].powi(2)).sum::<f64>();
    let mut places: Vec<usize> = (0..names.len()).collect();
    places.sort_by(|&a, &b| apart(b).total_cmp(&apart(a)));
    places.truncate(MOST_COLUMNS);
    let column = |place: usize| Means {
        name: names[place].clone(),
        components: components.iter().map(|own| [own.means[place], own.deviations[place]].map(shortened)).collect(),
    };
    places.into_iter().map(column).collect()
}
