//! What the rows of clients say that did not take part in the fit.

use super::{Input, Saved};
use crate::data::known::{self, KnownRows};
use crate::data::numbers::convert;
use crate::error::Result;
use crate::families::{ClassOdds, Newcomer, Products, Response};
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
    let mut are_there = false;
    // Most often there are none, and then two columns tell it.
    known::scan_targets(table, saved.known_columns(), |client, has_target| {
        are_there = has_target && is_new(client);
        if are_there { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if are_there { by_their_rows(saved, table, is_new) } else { Ok(HashMap::new()) }
}

/// What is said of clients with a target that are asked for, as if the model did not know them. With classes the table is read several
/// times, each time with the likelihoods expanded at the models that the last one led to.
pub(super) fn by_their_rows(
    saved: &Saved,
    table: Input,
    is_asked: impl Fn(&str) -> bool,
) -> Result<HashMap<String, Newcomer>> {
    let learned = &saved.model.learned;
    let arrive = |(name, products): (String, Products)| -> Result<(String, Newcomer)> {
        let newcomer = learned.newcomer(&products).map_err(|error| error.at(format!("client {name}")))?;
        Ok((name, newcomer))
    };
    let mut points: HashMap<String, Vec<f64>> = HashMap::new();
    let mut arrived = HashMap::new();
    let expansions = if learned.response == Response::Numbers { 1 } else { EXPANSIONS };
    for expansion in 0..expansions {
        let found = products(saved, table, &points, &is_asked)?;
        arrived = found.into_par_iter().map(arrive).collect::<Result<HashMap<_, _>>>()?;
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
    let learned = &saved.model.learned;
    let (target, unknown) = (saved.model.target, learned.unknown());
    let mut odds = ClassOdds::new(learned.response.equations());
    KnownRows::read_ahead(table, saved.known_columns(), |batch| {
        let is_asked = |place: &usize| is_asked(&batch.clients[*place]);
        if !(0..batch.clients.len()).any(|place| is_asked(&place)) {
            return Ok(());
        }
        let rows = batch.encoded(&saved.columns, 0..batch.clients.len())?;
        let (values, classes, columns) = (rows.values(), rows.classes(), rows.columns());
        let mut buffer = Vec::new();
        let x = convert::<f64>(&rows, &mut buffer);
        let mut row = vec![1.0; columns + 1];
        for place in (0..batch.clients.len()).filter(is_asked) {
            let client = &batch.clients[place];
            let value = values.map(|values| values[place]).filter(|value| value.is_finite());
            let class = classes.map(|classes| classes[place] as usize).filter(|class| *class < saved.classes.len());
            if value.is_none() && class.is_none() {
                continue;
            }
            row[..columns].copy_from_slice(&x[place * columns..(place + 1) * columns]);
            let products = found.entry(client.clone()).or_insert_with(|| Products::none(learned.global.len()));
            if let Some(value) = value {
                products.add_row(&row, (value - target.mean) / target.deviation, 1.0);
            } else if let Some(class) = class {
                odds.set(&row, points.get(client).unwrap_or(&unknown));
                products.add_class(&row, class, &odds);
            }
        }
        Ok(())
    })?;
    Ok(found)
}
