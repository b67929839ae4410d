//! Asks that need everybody's answer: whoever did not give one is asked again.
//!
//! Sums over some clients in one round and over others in the next cannot be compared, and an accelerated step that some
//! clients missed never comes right again. So a missing answer costs a further ask, which the meter counts. A client that
//! gives no usable answer time after time is left out from then on.

use super::super::*;
use crate::federation::own::Advance;
use crate::federation::{Ask, Order, Start, Work};
use std::collections::BTreeMap;

/// How often a client is asked before it is left out.
const ATTEMPTS: usize = 20;

/// Asks until every client has answered that was not left out before. Returns the answers as if all had come at once, and the stamps of what clients
/// keep, the latest of a client last.
pub fn ask_everybody(
    ask: &Ask,
    missing: MissingRule,
    federation: &mut dyn Federation,
    absences: &mut Absences,
) -> Result<(Answers, Vec<(u32, u64)>)> {
    let ask = &without(ask, absences, federation);
    let mut all = federation.ask(ask)?;
    let mut stamps: Vec<(u32, u64)> = stamps_after(&all).collect();
    missing.refuse(&all, federation)?;
    absences.count(&all);
    let mut absent = std::mem::take(&mut all.missing);
    // Those who have done the work and only could not tell.
    let mut done: BTreeMap<u32, u64> = BTreeMap::new();
    let mut stamp = all.stamp;
    for _ in 1..ATTEMPTS {
        if absent.is_empty() {
            return Ok((all, stamps));
        }
        done.extend(absent.iter().filter(|missing| missing.reason == Absence::Garbage).map(|it| (it.client, stamp)));
        let mut orders = Vec::new();
        let mut places = Vec::new();
        for (place, order) in ask.orders.iter().enumerate() {
            let of = |missing: &&Missing| order.to.contains(missing.client);
            let (told, waiting): (Vec<u32>, Vec<u32>) =
                absent.iter().filter(of).map(|missing| missing.client).partition(|client| done.contains_key(client));
            for client in told {
                orders.push(Order { to: Recipients::list(vec![client]), work: repeat(&order.work, done[&client]) });
            }
            if !waiting.is_empty() {
                orders.push(Order { to: Recipients::list(waiting), work: order.work.clone() });
            }
            places.resize(orders.len(), place);
        }
        let more = federation.ask(&Ask { orders, ..ask.clone() })?;
        missing.refuse(&more, federation)?;
        absences.count(&more);
        stamps.extend(stamps_after(&more));
        for (place, more) in places.into_iter().zip(&more.orders) {
            let order = &mut all.orders[place];
            order.clients.extend(&more.clients);
            order.rows.extend(&more.rows);
            order.losses.extend(&more.losses);
            order.vectors.extend(&more.vectors);
            order.sums.iter_mut().zip(&more.sums).for_each(|(sum, more)| sum.merge(more));
        }
        (absent, stamp) = (more.missing, more.stamp);
    }
    if all.orders.iter().all(|order| order.clients.is_empty()) {
        return Err(nobody_answered().hint("this method needs everybody's answer"));
    }
    for missing in absent {
        let id = federation.clients()[missing.client as usize].id.clone();
        absences.left_out.insert(missing.client, id);
    }
    Ok((all, stamps))
}

/// The same ask to those that were not left out before.
fn without(ask: &Ask, absences: &Absences, federation: &dyn Federation) -> Ask {
    let everybody = 0..federation.clients().len() as u32;
    let remain = |to: &Recipients| {
        let is_in = |client: &u32| to.contains(*client) && !absences.left_out.contains_key(client);
        Recipients::list(everybody.clone().filter(is_in).collect())
    };
    let mut ask = ask.clone();
    if !absences.left_out.is_empty() {
        ask.orders.iter_mut().for_each(|order| order.to = remain(&order.to));
    }
    ask
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
