//! Asks that need everybody's answer: whoever did not give one is asked again.
//!
//! Sums over some clients in one round and over others in the next cannot be compared, and an accelerated step that some
//! clients missed never comes right again. So a missing answer costs a further ask, which the meter counts. A client that
//! gives no usable answer time after time is left out from then on.

use super::super::*;
use crate::federation::work::Work;
use crate::federation::{Absence, Missing, Order};
use crate::methods::room::nobody_answered;

/// How often a client is asked before it is left out.
const ATTEMPTS: usize = 20;

/// Asks until every client has answered that was not left out before. Returns the answers as if all had come at once, and
/// the stamps of what clients keep, the latest of a client last.
pub fn ask_everybody(ask: &Ask, room: &mut Room) -> Result<(Answers, Vec<(u32, u64)>)> {
    let ask = &room.without_left_out(ask);
    let mut all = room.ask_for_any(ask)?;
    let mut stamps: Vec<(u32, u64)> = stamps_after(&all).collect();
    let mut absent = std::mem::take(&mut all.missing);
    // Clients that have done the work, but whose answer was unusable.
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
            let (repeated, waiting): (Vec<u32>, Vec<u32>) =
                absent.iter().filter(of).map(|missing| missing.client).partition(|client| done.contains_key(client));
            for client in repeated {
                orders.push(Order { to: Recipients::list(vec![client]), work: repeat(&order.work, done[&client]) });
            }
            if !waiting.is_empty() {
                orders.push(Order { to: Recipients::list(waiting), work: order.work.clone() });
            }
            places.resize(orders.len(), place);
        }
        let more = room.ask_for_any(&Ask { orders, ..ask.clone() })?;
        stamps.extend(stamps_after(&more));
        for (place, more) in places.into_iter().zip(&more.orders) {
            let order = &mut all.orders[place];
            order.clients.extend(&more.clients);
            order.rows.extend(&more.rows);
            order.counts.extend(&more.counts);
            order.numbers.extend(&more.numbers);
            order.vectors.extend(&more.vectors);
            order.sums.iter_mut().zip(&more.sums).for_each(|(sum, more)| sum.merge(more));
        }
        (absent, stamp) = (more.missing, more.stamp);
    }
    if all.orders.iter().all(|order| order.clients.is_empty()) {
        return Err(nobody_answered().hint("this method needs everybody's answer"));
    }
    absent.iter().for_each(|missing| room.leave_out(missing.client));
    Ok((all, stamps))
}

/// Work whose answer did not arrive, for a client that has done it: moves are not made twice.
fn repeat(work: &Work, stamp: u64) -> Work {
    match work {
        Work::Advance(advance) => advance.at_rest(stamp).into(),
        other => other.clone(),
    }
}
