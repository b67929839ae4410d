//! Traffic, counted in one place for every method and every engine.
//!
//! The payload is counted per client as if it were sent in a message: each model a client needs once, at the precision of
//! the wire; 4 bytes for a count, such as a choice, 8 for a number, such as a loss. Envelopes are not counted, so the figures
//! are the same whether threads or machines do the work.
//!
//! A method's final models count where the published method sends them: one-shot methods hand every client its cluster's
//! mean (`work::Receive`), FedGrEM its centres. FedAvg, IFCA, SR-FCA and the like end with models at the server; sending
//! those to be scored is part of the evaluation.

use crate::federation::{Ask, OrderIndex, Phase};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::{Add, Sub};

/// Totals of one phase, or of one ask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Round trips.
    pub asks: u64,
    /// Payload to clients.
    pub bytes_down: u64,
    /// Payload from clients.
    pub bytes_up: u64,
    /// Whole models to clients.
    pub models_down: u64,
    /// Whole models or gradients from clients.
    pub models_up: u64,
}

impl Traffic {
    fn combine(self, other: Traffic, with: fn(u64, u64) -> u64) -> Traffic {
        Traffic {
            asks: with(self.asks, other.asks),
            bytes_down: with(self.bytes_down, other.bytes_down),
            bytes_up: with(self.bytes_up, other.bytes_up),
            models_down: with(self.models_down, other.models_down),
            models_up: with(self.models_up, other.models_up),
        }
    }

    pub(crate) fn since(&self, earlier: Traffic) -> Traffic {
        self.combine(earlier, u64::sub)
    }
}

/// The traffic of every phase.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    phases: BTreeMap<Phase, Traffic>,
}

const COUNT: u64 = 4;
const NUMBER: u64 = 8;

impl Meter {
    /// That of one phase.
    pub fn of(&self, phase: Phase) -> Traffic {
        self.phases.get(&phase).copied().unwrap_or_default()
    }

    /// Totals of the method itself: everything but evaluation.
    pub fn total(&self) -> Traffic {
        self.of(Phase::Start).combine(self.of(Phase::Train), u64::add)
    }

    /// Counts an ask to `clients` clients, of which `answered` answer each order, with models of `width` parameters.
    pub(super) fn count(
        &mut self,
        ask: &Ask,
        index: &OrderIndex,
        clients: usize,
        (width, number_bytes): (usize, u64),
        answered: &[usize],
    ) {
        let (models_down, numbers_down) = models_down(ask, index, clients);
        let mut traffic =
            Traffic { asks: 1, models_down, bytes_down: numbers_down * number_bytes, ..Traffic::default() };
        for (order, &answered) in ask.orders.iter().zip(answered) {
            let (answered, sends) = (answered as u64, order.work.sends(width));
            traffic.models_up += answered * sends.models as u64;
            let beside = COUNT * sends.counts as u64 + NUMBER * sends.numbers as u64;
            traffic.bytes_up += answered * (sends.length as u64 * number_bytes + beside);
        }
        self.phases.insert(ask.phase, self.of(ask.phase).combine(traffic, u64::add));
    }
}

/// Number of models sent to clients, and of the numbers in them. A client gets each model it needs once.
fn models_down(ask: &Ask, index: &OrderIndex, clients: usize) -> (u64, u64) {
    let needs: Vec<Vec<usize>> =
        ask.orders.iter().map(|order| distinct(order.work.needs().models.into_owned())).collect();
    let weigh = |models: &[usize]| {
        (models.len() as u64, models.iter().map(|&model| ask.models[model].len() as u64).sum::<u64>())
    };
    let for_orders = |orders: &[u32]| match orders {
        [] => (0, 0),
        [one] => weigh(&needs[*one as usize]),
        several => weigh(&distinct(several.iter().flat_map(|&order| needs[order as usize].iter().copied()).collect())),
    };
    match index.everybody() {
        Some(orders) => {
            let (models, numbers) = for_orders(orders);
            (models * clients as u64, numbers * clients as u64)
        }
        None => (0..clients as u32)
            .map(|client| for_orders(&index.of_client(client)))
            .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1)),
    }
}

fn distinct(mut models: Vec<usize>) -> Vec<usize> {
    models.sort_unstable();
    models.dedup();
    models
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::federation::work::Choose;
    use crate::federation::{Gather, Order, Recipients};
    use crate::training::{Portion, Sample, Then};
    use std::sync::Arc;

    fn choose(to: Recipients, among: Vec<usize>) -> Order {
        Order { to, work: Choose { among, on: Portion::All, then: Then::Gradient(Sample::FULL) }.into() }
    }

    fn count(orders: Vec<Order>, answered: &[usize]) -> Traffic {
        let model = Arc::new(vec![0.0; 10]);
        let models = vec![model; 4];
        let ask = Ask { phase: Phase::Train, models, orders, gather: Gather::Each };
        let mut meter = Meter::default();
        meter.count(&ask, &OrderIndex::of(&ask, 5), 5, (10, 4), answered);
        meter.total()
    }

    #[test]
    fn ifca_sends_k_models_down_and_one_up() {
        let traffic = count(vec![choose(Recipients::All, vec![0, 1, 2])], &[4]);
        assert_eq!((traffic.models_down, traffic.models_up), (15, 4));
        assert_eq!((traffic.bytes_down, traffic.bytes_up), (600, 4 * (40 + 12)));
    }

    #[test]
    fn a_model_travels_once_to_a_client_with_two_orders() {
        let orders = vec![choose(Recipients::All, vec![0, 1]), choose(Recipients::list(vec![1, 2]), vec![1, 2])];
        assert_eq!(count(orders, &[5, 2]).models_down, 5 * 2 + 2);
        let apart = vec![choose(Recipients::All, vec![0, 1]), choose(Recipients::list(vec![1, 2]), vec![2])];
        assert_eq!(count(apart, &[5, 2]).models_down, 5 * 2 + 2);
    }
}
