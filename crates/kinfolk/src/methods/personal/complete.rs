//! Asks that need everybody's answer: whoever did not give one is asked again.
//!
//! Sums over some clients in one round and over others in the next cannot be compared, and an accelerated step that some
//! clients missed never comes right again. So a missing answer costs a further ask, which the meter counts.

use super::super::*;
use crate::federation::own::Advance;
use crate::federation::{Ask, Order, Start, Work};
use std::collections::BTreeMap;

/// How often a client is asked before it is given up.
const ATTEMPTS: usize = 50;

/// Asks until every client has answered. Returns the answers as if all had come at once, and for every client that was
/// asked the stamp of what it now keeps.
pub fn ask_everybody(
    ask: &Ask,
    missing: MissingRule,
    federation: &mut dyn Federation,
    absences: &mut Absences,
) -> Result<(Answers, BTreeMap<u32, u64>)> {
    let mut all = federation.ask(ask)?;
    let mut stamps = BTreeMap::new();
    note(&mut stamps, &all);
    let mut latest = all.clone();
    for _ in 1..ATTEMPTS {
        missing.refuse(&latest, federation)?;
        absences.count(&latest);
        if latest.missing.is_empty() {
            return Ok((all, stamps));
        }
        let mut orders = Vec::new();
        let mut places = Vec::new();
        for (place, order) in ask.orders.iter().enumerate() {
            let again = |done: bool| {
                let of = |client: &u32| order.to.contains(*client) && stamps.contains_key(client) == done;
                latest.missing.iter().map(|missing| missing.client).filter(of).collect::<Vec<u32>>()
            };
            for client in again(true) {
                let work = repeat(&order.work, stamps[&client]);
                orders.push(Order { to: Recipients::list(vec![client]), work });
                places.push(place);
            }
            let waiting = again(false);
            if !waiting.is_empty() {
                orders.push(Order { to: Recipients::list(waiting), work: order.work.clone() });
                places.push(place);
            }
        }
        latest = federation.ask(&Ask { orders, ..ask.clone() })?;
        note(&mut stamps, &latest);
        for (place, more) in places.into_iter().zip(&latest.orders) {
            let order = &mut all.orders[place];
            order.clients.extend(&more.clients);
            order.rows.extend(&more.rows);
            order.losses.extend(&more.losses);
            order.vectors.extend(&more.vectors);
            order.sums.iter_mut().zip(&more.sums).for_each(|(sum, more)| sum.merge(more));
        }
    }
    let first = latest.missing.first().map_or(0, |missing| missing.client);
    let id = &federation.clients()[first as usize].id;
    Err(Error::new(ErrorKind::Client, format!("client {id} gave no usable answer {ATTEMPTS} times"))
        .hint("this method needs everybody's answer; leave the client out, or use \"l2gd\""))
}

/// What clients keep after an ask. One whose answer was garbage has done the work all the same.
fn note(stamps: &mut BTreeMap<u32, u64>, answers: &Answers) {
    let garbage = answers.missing.iter().filter(|missing| missing.reason == Absence::Garbage);
    let answered = answers.orders.iter().flat_map(|order| order.clients.iter().copied());
    stamps.extend(answered.chain(garbage.map(|missing| missing.client)).map(|client| (client, answers.stamp)));
}

/// Work whose answer did not arrive, for a client that has done it: moves are not made twice.
fn repeat(work: &Work, stamp: u64) -> Work {
    match work {
        Work::Advance(advance) => {
            let from = Start::Own { stamp };
            Work::Advance(Advance { from, blend: None, run: None, anchor: false, ..advance.clone() })
        }
        other => other.clone(),
    }
}
