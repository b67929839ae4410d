//! What the rows of clients say that did not take part in the fit.

use super::{Input, Saved};
use crate::data::known::{self, KnownRows};
use crate::data::numbers::convert;
use crate::error::Result;
use crate::families::{ClassOdds, Newcomer, Products, Response};
use crate::num::{distance, norm};
use rayon::prelude::*;
use std::collections::HashMap;

/// How often the likelihoods of classes are expanded at most, those expansions that are followed all the way, and the change below which
/// models stay.
const EXPANSIONS: usize = 8;
const WHOLE_STEPS: usize = 3;
const STAYS: f64 = 0.001;

/// A new client with its rows that have a target.
pub(super) struct Arrival {
    pub(super) rows: usize,
    pub(super) newcomer: Newcomer,
}

/// Every client with a target that did not take part in the fit. With classes the table is read several times, each time with the
/// likelihoods expanded at the models that the last one led to.
pub(super) fn newcomers(saved: &Saved, table: Input) -> Result<HashMap<String, Arrival>> {
    let learned = &saved.model.learned;
    let arrive = |(name, products): (String, Products)| -> Result<(String, Arrival)> {
        let newcomer = learned.newcomer(&products).map_err(|error| error.at(format!("client {name}")))?;
        Ok((name, Arrival { rows: products.rows, newcomer }))
    };
    let mut points: HashMap<String, Vec<f64>> = HashMap::new();
    // Most often there are none, and then two columns tell it.
    if !known::any_target(table, saved.known_columns(), |client| saved.place(client).is_none())? {
        return Ok(HashMap::new());
    }
    let mut arrived = HashMap::new();
    let expansions = if learned.response == Response::Numbers { 1 } else { EXPANSIONS };
    for expansion in 0..expansions {
        let found = products(saved, table, &points)?;
        arrived = found.into_par_iter().map(arrive).collect::<Result<HashMap<_, _>>>()?;
        let share = if expansion < WHOLE_STEPS { 1.0 } else { 0.5 };
        let mut moved = 0.0_f64;
        for (name, arrival) in &arrived {
            let point = points.entry(name.clone()).or_insert_with(|| learned.unknown());
            let next = &arrival.newcomer.personal;
            moved = moved.max(distance(point, next) / (1.0 + norm(point)));
            point.iter_mut().zip(next).for_each(|(from, to)| *from += share * (to - *from));
        }
        if moved < STAYS {
            break;
        }
    }
    Ok(arrived)
}

/// The products of every new client's rows with a target; of classes, expanded at these models, or where nothing is known of a client.
fn products(saved: &Saved, table: Input, points: &HashMap<String, Vec<f64>>) -> Result<HashMap<String, Products>> {
    let mut found: HashMap<String, Products> = HashMap::new();
    let learned = &saved.model.learned;
    let (target, unknown) = (saved.model.target, learned.unknown());
    let mut odds = ClassOdds::new(learned.response.equations());
    KnownRows::read_ahead(table, saved.known_columns(), |batch| {
        let is_new = |place: &usize| saved.place(&batch.clients[*place]).is_none();
        if !(0..batch.clients.len()).any(|place| is_new(&place)) {
            return Ok(());
        }
        let rows = batch.encoded(&saved.columns, 0..batch.clients.len())?;
        let (values, classes, columns) = (rows.values(), rows.classes(), rows.columns());
        let mut buffer = Vec::new();
        let x = convert::<f64>(&rows, &mut buffer);
        let mut row = vec![1.0; columns + 1];
        for place in (0..batch.clients.len()).filter(is_new) {
            let client = &batch.clients[place];
            let value = values.map(|values| values[place]).filter(|value| value.is_finite());
            let class = classes.map(|classes| classes[place] as usize).filter(|class| *class < saved.classes.len());
            if value.is_none() && class.is_none() {
                continue;
            }
            // A row without a weight counts like a usual one.
            let weight =
                rows.weights().map(|weights| weights[place]).filter(|weight| weight.is_finite()).unwrap_or(1.0);
            if weight <= 0.0 {
                continue;
            }
            row[..columns].copy_from_slice(&x[place * columns..(place + 1) * columns]);
            let products = found.entry(client.clone()).or_insert_with(|| Products::none(learned.global.len()));
            if let Some(value) = value {
                products.add_row(&row, (value - target.mean) / target.deviation, weight);
            } else if let Some(class) = class {
                odds.set(&row, points.get(client).unwrap_or(&unknown));
                products.add_class(&row, class, &odds, weight);
            }
        }
        Ok(())
    })?;
    Ok(found)
}
