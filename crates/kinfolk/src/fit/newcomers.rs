//! What the rows of clients say whose models are not in the model: those that did not take part in the fit, and those on other machines.

use super::{Input, Saved};
use crate::data::known::{self, KnownColumns, KnownRows};
use crate::data::numbers::convert;
use crate::data::{Client, Shard};
use crate::error::{Error, Result};
use crate::families::{ClassOdds, LearnedClient, Newcomer, Products, Response};
use crate::federation::work::TargetScale;
use crate::num::{distance, norm};
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::ControlFlow;

/// How often the likelihoods of classes are expanded at most, those expansions that are followed all the way, and the change below which
/// models stay.
const EXPANSIONS: usize = 8;
const WHOLE_STEPS: usize = 3;
const STAYS: f64 = 0.001;

/// What is said of every client with a target that the model does not know.
pub(super) fn newcomers(saved: &Saved, table: Input) -> Result<HashMap<String, Newcomer>> {
    let is_new = |client: &str| saved.place(client).is_none();
    match are_there(table, saved.known_columns(), is_new)? {
        true => by_their_rows(saved, table, is_new),
        false => Ok(HashMap::new()),
    }
}

/// Whether a table has new clients with a target. Most often there are none, and then two columns tell it.
pub(super) fn are_there(table: Input, columns: KnownColumns, is_new: impl Fn(&str) -> bool) -> Result<bool> {
    let mut found = false;
    known::scan_targets(table, columns, |client, has_target| {
        found = has_target && is_new(client);
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// What is said of clients with a target that are asked for, as if the model did not know them. With classes the table is read several
/// times, each time with the likelihoods expanded at the models that the last one led to.
pub(super) fn by_their_rows(
    saved: &Saved,
    table: Input,
    is_asked: impl Fn(&str) -> bool,
) -> Result<HashMap<String, Newcomer>> {
    let is_asked = &is_asked;
    expanded(saved, |points| products(saved, table, points, is_asked), |_| None)
}

/// What serves clients whose models are not in the model, by their encoded rows.
pub(super) fn at_home(saved: &Saved, clients: &[Client]) -> Result<HashMap<String, Newcomer>> {
    let learned = &saved.model.learned;
    let columns = saved.columns.feature_names().len();
    if clients.iter().any(|client| client.train.columns() != columns) {
        return Err(Error::data(format!("the model is of {columns} columns, and the rows have others")));
    }
    let gather = |points: &HashMap<String, Vec<f64>>| {
        let of = |client: &Client| {
            let mut gatherer = Gatherer::new(saved);
            let mut own = gatherer.nothing();
            each_row(saved, &client.train, 0..client.train.len(), |_, row, target, weight| {
                gatherer.add(&mut own, row, (target, weight), points.get(&client.id));
            });
            (client.id.clone(), own)
        };
        let known = clients.par_iter().filter(|client| saved.place(&client.id).is_some());
        Ok(known.map(of).collect())
    };
    expanded(saved, gather, |name| saved.place(name).map(|place| &learned.clients[place]))
}

/// What the products of clients say, which are gathered at models of theirs; `known` are those that took part.
fn expanded<'a>(
    saved: &'a Saved,
    mut gather: impl FnMut(&HashMap<String, Vec<f64>>) -> Result<HashMap<String, Products>>,
    known: impl Fn(&str) -> Option<&'a LearnedClient> + Sync,
) -> Result<HashMap<String, Newcomer>> {
    let learned = &saved.model.learned;
    let arrive = |(name, products): (String, Products)| -> Result<(String, Newcomer)> {
        let newcomer = match known(&name) {
            None => learned.newcomer(&products),
            Some(known) => learned.at_home(&products, known),
        };
        Ok((name.clone(), newcomer.map_err(|error| error.at(format!("client {name}")))?))
    };
    let mut points: HashMap<String, Vec<f64>> = HashMap::new();
    let mut arrived = HashMap::new();
    let expansions = if learned.response == Response::Numbers { 1 } else { EXPANSIONS };
    for expansion in 0..expansions {
        arrived = gather(&points)?.into_par_iter().map(arrive).collect::<Result<HashMap<_, _>>>()?;
        let share = if expansion < WHOLE_STEPS { 1.0 } else { 0.5 };
        let mut moved = 0.0_f64;
        for (name, newcomer) in &arrived {
            let point = points.entry(name.clone()).or_insert_with(|| learned.unknown());
            let next = &newcomer.client.personal;
            moved = moved.max(distance(point, next) / (1.0 + norm(point)));
            point.iter_mut().zip(next).for_each(|(from, to)| *from += share * (to - *from));
        }
        if moved < STAYS {
            break;
        }
    }
    Ok(arrived)
}

/// The products of clients' rows with a target; of classes, expanded at these models, or where nothing is known of a client.
fn products(
    saved: &Saved,
    table: Input,
    points: &HashMap<String, Vec<f64>>,
    is_asked: impl Fn(&str) -> bool,
) -> Result<HashMap<String, Products>> {
    let mut found: HashMap<String, Products> = HashMap::new();
    let mut gatherer = Gatherer::new(saved);
    KnownRows::read_ahead(table, saved.known_columns(), |batch| {
        let asked: Vec<usize> = (0..batch.clients.len()).filter(|&row| is_asked(&batch.clients[row])).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let rows = batch.encoded(&saved.columns, 0..batch.clients.len())?;
        each_row(saved, &rows, asked, |place, row, target, weight| {
            let client = &batch.clients[place];
            let own = found.entry(client.clone()).or_insert_with(|| gatherer.nothing());
            gatherer.add(own, row, (target, weight), points.get(client));
        });
        Ok(())
    })?;
    Ok(found)
}

enum Target {
    Value(f64),
    Class(usize),
}

/// Hands out those of some encoded rows that have a target, with 1 for the intercept behind, and their weights.
fn each_row(
    saved: &Saved,
    rows: &Shard,
    places: impl IntoIterator<Item = usize>,
    mut take: impl FnMut(usize, &[f64], Target, f64),
) {
    let columns = rows.columns();
    let mut buffer = Vec::new();
    let x = convert::<f64>(rows, &mut buffer);
    let mut row = vec![1.0; columns + 1];
    for place in places {
        let value = rows.values().map(|values| values[place]).filter(|value| value.is_finite());
        let class = rows.classes().map(|classes| classes[place] as usize).filter(|class| *class < saved.classes.len());
        let Some(target) = value.map(Target::Value).or(class.map(Target::Class)) else { continue };
        // A row without a weight counts like a usual one.
        let weight = rows.weights().map(|weights| weights[place]).filter(|weight| weight.is_finite()).unwrap_or(1.0);
        if weight > 0.0 {
            row[..columns].copy_from_slice(&x[place * columns..(place + 1) * columns]);
            take(place, &row, target, weight);
        }
    }
}

/// Adds rows to products.
struct Gatherer {
    scale: TargetScale,
    unknown: Vec<f64>,
    odds: ClassOdds,
}

impl Gatherer {
    fn new(saved: &Saved) -> Self {
        let learned = &saved.model.learned;
        let odds = ClassOdds::new(learned.response.equations());
        Self { scale: saved.model.target, unknown: learned.unknown(), odds }
    }

    fn nothing(&self) -> Products {
        Products::none(self.unknown.len())
    }

    /// A class is expanded at a model, or where nothing is known of the client.
    fn add(&mut self, products: &mut Products, row: &[f64], (target, weight): (Target, f64), at: Option<&Vec<f64>>) {
        match target {
            Target::Value(value) => products.add_row(row, (value - self.scale.mean) / self.scale.deviation, weight),
            Target::Class(class) => {
                self.odds.set(row, at.unwrap_or(&self.unknown));
                products.add_class(row, class, &self.odds, weight);
            }
        }
    }
}
