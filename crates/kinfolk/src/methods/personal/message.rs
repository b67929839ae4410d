//! One ask to the clients of several clusters: what they have yet to do, and what they send then.

use super::super::*;
use super::Class;
use super::cluster::Cluster;
use crate::federation::Handle;
use crate::federation::work::{Addend, Advance, Advanced, Blend};

/// An ask in the making.
pub struct Message {
    pub ask: Ask,
    start: Params,
    /// Where the start is among the models, once a client needs it.
    start_place: Option<usize>,
    /// The orders of every cluster, each with the γ of its clients.
    orders: Vec<Vec<(f64, Handle<Advanced>)>>,
}

impl Message {
    /// An ask of clients that begin at `start`.
    pub fn new(start: &Params) -> Self {
        let ask = Ask::new(Phase::Train, Vec::new(), Gather::Sum { by: By::All, weight: Weight::Uniform });
        Self { ask, start: start.clone(), start_place: None, orders: Vec::new() }
    }

    /// Adds the orders of a cluster's clients: `order`, from what each of them holds and after the blend of its class.
    pub fn add(&mut self, cluster: &Cluster, order: &Advance, classes: &[Class], stamps: &[u64]) {
        let mut orders = Vec::new();
        let vectors = order.vectors as usize;
        let first_target = self.ask.models.len();
        let is_moved = |shares: &&Vec<f64>| shares[vectors..].iter().any(|share| *share != 0.0);
        let moved = cluster.blends[0].iter().filter(is_moved).count();
        // The targets travel one by one, unless there are more of them than vectors they move.
        let one_by_one = cluster.targets.len() <= moved || !cluster.is_uniform();
        if one_by_one {
            self.ask.models.extend(cluster.targets.iter().cloned().map(Arc::new));
        }
        let has_moves = order.run.is_some() || order.renewal.is_some() || !cluster.targets.is_empty();
        let is_needed = has_moves || !order.send.is_empty();
        for (class, blend) in classes.iter().zip(&cluster.blends).filter(|_| is_needed) {
            let mut add = Vec::new();
            for (to, shares) in (0u32..).zip(blend) {
                let targets = shares[vectors..].iter().enumerate().filter(|(_, share)| **share != 0.0);
                if one_by_one {
                    add.extend(targets.map(|(target, &times)| Addend { to, model: first_target + target, times }));
                } else if targets.clone().next().is_some() {
                    let mut sum = vec![0.0; self.start.len()];
                    targets.for_each(|(target, &times)| add_scaled(&mut sum, times, &cluster.targets[target]));
                    add.push(Addend { to, model: self.add_model(Arc::new(sum)), times: 1.0 });
                }
            }
            let matrix = blend.iter().flat_map(|shares| shares[..vectors].iter().copied()).collect();
            let blend = (!cluster.targets.is_empty()).then_some(Blend { matrix, add });
            for (stamp, to) in class.by_stamp(stamps) {
                let from = match stamp {
                    0 => Start::Model(self.place_of_start()),
                    stamp => Start::Own { stamp },
                };
                let handle = self.ask.order(to, Advance { from, blend: blend.clone(), ..order.clone() });
                orders.push((class.gamma, handle));
            }
        }
        self.orders.push(orders);
    }

    fn add_model(&mut self, model: Params) -> usize {
        self.ask.models.push(model);
        self.ask.models.len() - 1
    }

    fn place_of_start(&mut self) -> usize {
        let place = self.start_place.unwrap_or_else(|| self.add_model(self.start.clone()));
        *self.start_place.insert(place)
    }

    /// What every client said.
    pub fn answers(&self, answers: &Answers) -> Vec<Advanced> {
        let each = |&(_, order): &(f64, _)| answers.of(order).each().map(|(_, answer)| answer).collect::<Vec<_>>();
        self.orders.iter().flatten().flat_map(each).collect()
    }

    /// For every cluster, in the order they were added, the mean over its clients of what they sent, weighted by γ where
    /// that is not 0; `None` where nobody sent anything.
    pub fn means(&self, answers: &Answers) -> Vec<Option<Vec<f64>>> {
        let mean = |orders: &Vec<(f64, Handle<Advanced>)>| {
            let sum = |(gamma, order): &(f64, _)| Some((*gamma, answers.of(*order).sums().first()?));
            let sums: Vec<(f64, &Sum)> = orders.iter().filter_map(sum).filter(|(_, sum)| sum.count > 0).collect();
            let pulled = sums.iter().any(|(gamma, _)| *gamma > 0.0);
            let weight = |gamma: f64| if pulled { gamma } else { 1.0 };
            let whole: f64 = sums.iter().map(|(gamma, sum)| weight(*gamma) * sum.weight).sum();
            let mut mean = vec![0.0; sums.first()?.1.total.len()];
            sums.iter().for_each(|(gamma, sum)| add_scaled(&mut mean, weight(*gamma) / whole, &sum.total));
            Some(mean)
        };
        self.orders.iter().map(mean).collect()
    }
}
