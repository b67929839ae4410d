//! Components come in any order: finds an order for every client, so that equal numbers mean alike components.
//!
//! ```text
//! score(π) = Σ_r Σ_{k≠k'} ‖θ^(k)_{π_k(r)} − θ^(k')_{π_k'(r)}‖
//! ```
//!
//! Client by client, in several random orders of the clients, each takes the order that fits best those already placed:
//! a linear assignment, found exactly. Then clients change places as long as that lowers the score. The best of all is
//! kept.

use crate::clustering::quality::assign;
use crate::num::{add_scaled, distance};

/// Most distances between components that are kept in a table.
const ROOM: usize = 1 << 24;

/// The components of every client, and the distances between them.
pub struct Alignment<'a> {
    centres: &'a [&'a [f64]],
    components: usize,
    /// Distances of all components of all clients; empty where there are too many to keep.
    table: Vec<f64>,
}

/// An order for every client.
#[derive(Debug, Clone, PartialEq)]
pub struct Aligned {
    /// For every client, which of its components is the first, the second and so on.
    pub orders: Vec<Vec<usize>>,
    /// The score, every pair of clients counted twice.
    pub score: f64,
}

impl<'a> Alignment<'a> {
    /// Of clients with `components` centres each, end to end.
    pub fn new(centres: &'a [&'a [f64]], components: usize) -> Self {
        let mut alignment = Self { centres, components, table: Vec::new() };
        let all = centres.len() * components;
        if all * all <= ROOM {
            let mut table = vec![0.0; all * all];
            for one in 0..all {
                for other in 0..one {
                    let apart =
                        alignment.apart((one / components, one % components), (other / components, other % components));
                    (table[one * all + other], table[other * all + one]) = (apart, apart);
                }
            }
            alignment.table = table;
        }
        alignment
    }

    /// The distance between two components, each of a client.
    fn apart(&self, (client, component): (usize, usize), (other, its): (usize, usize)) -> f64 {
        if !self.table.is_empty() {
            let all = self.centres.len() * self.components;
            return self.table[(client * self.components + component) * all + other * self.components + its];
        }
        let width = self.centres[client].len() / self.components;
        let centre = |client: usize, component: usize| &self.centres[client][component * width..][..width];
        distance(centre(client, component), centre(other, its))
    }

    /// The best order of one client, given those of others.
    fn place(&self, client: usize, others: &[usize], orders: &[Vec<usize>]) -> Vec<usize> {
        let count = self.components;
        let all = self.centres.len() * count;
        let mut costs = vec![0.0; count * count];
        for &other in others {
            for (row, &its) in costs.chunks_exact_mut(count).zip(&orders[other]) {
                if self.table.is_empty() {
                    row.iter_mut().enumerate().for_each(|(component, cost)| {
                        *cost += self.apart((client, component), (other, its));
                    });
                } else {
                    add_scaled(row, 1.0, &self.table[(other * count + its) * all + client * count..][..count]);
                }
            }
        }
        let chosen = assign(&costs, count, count);
        chosen.into_iter().enumerate().map(|(place, component)| component.unwrap_or(place)).collect()
    }

    /// The cost of an order of one client, given those of all others.
    fn cost(&self, client: usize, order: &[usize], orders: &[Vec<usize>]) -> f64 {
        let others = (0..orders.len()).filter(|&other| other != client);
        let beside = |other: usize| {
            let pairs = order.iter().zip(&orders[other]);
            pairs.map(|(&component, &its)| self.apart((client, component), (other, its))).sum::<f64>()
        };
        others.map(beside).sum()
    }

    pub(crate) fn score(&self, orders: &[Vec<usize>]) -> f64 {
        (0..orders.len()).map(|client| self.cost(client, &orders[client], orders)).sum()
    }

    /// Client by client in the given sequence, and then again as long as that helps.
    fn step_by_step(&self, sequence: &[usize]) -> Aligned {
        const MOST_SWEEPS: usize = 20;
        let mut orders: Vec<Vec<usize>> = vec![(0..self.components).collect(); self.centres.len()];
        for (position, &client) in sequence.iter().enumerate().skip(1) {
            orders[client] = self.place(client, &sequence[..position], &orders);
        }
        let all: Vec<usize> = (0..orders.len()).collect();
        for _ in 0..MOST_SWEEPS {
            let mut moved = false;
            for &client in sequence {
                let others: Vec<usize> = all.iter().copied().filter(|&other| other != client).collect();
                let order = self.place(client, &others, &orders);
                let better = |new: f64, old: f64| new < old * (1.0 - 1e-12);
                if order != orders[client]
                    && better(self.cost(client, &order, &orders), self.cost(client, &orders[client], &orders))
                {
                    orders[client] = order;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        let score = self.score(&orders);
        Aligned { orders, score }
    }

    /// The best of several sequences of the clients.
    pub fn find(&self, sequences: &[Vec<usize>]) -> Aligned {
        let found = sequences.iter().map(|sequence| self.step_by_step(sequence));
        let best = found.min_by(|a, b| a.score.total_cmp(&b.score));
        best.unwrap_or_else(|| self.step_by_step(&(0..self.centres.len()).collect::<Vec<_>>()))
    }
}

/// The order of components that fits given centres best: a client that comes later.
pub(crate) fn align_to(centres: &[f64], to: &[f64], components: usize) -> Vec<usize> {
    Alignment::new(&[to, centres], components).place(1, &[0], &[(0..components).collect(), Vec::new()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;
    use rand::RngExt;
    use rand::seq::SliceRandom;

    fn permutations(count: usize) -> Vec<Vec<usize>> {
        if count == 0 {
            return vec![Vec::new()];
        }
        let shorter = permutations(count - 1);
        let insert = |order: &Vec<usize>, place: usize| {
            let mut order = order.clone();
            order.insert(place, count - 1);
            order
        };
        shorter.iter().flat_map(|order| (0..count).map(move |place| insert(order, place))).collect()
    }

    /// Clients whose components are those of one mixture, shaken, in an order of their own.
    fn shaken(clients: usize, components: usize, width: usize, by: f64, seed: u64) -> (Vec<Vec<f64>>, Vec<Vec<usize>>) {
        let mut rng = Key::new(seed).word("alignment").rng();
        let common: Vec<f64> = (0..components * width).map(|_| rng.random_range(-1.0..1.0)).collect();
        let client = |_| {
            let mut order: Vec<usize> = (0..components).collect();
            order.shuffle(&mut rng);
            let mut centres = vec![0.0; components * width];
            for (component, &place) in order.iter().enumerate() {
                for column in 0..width {
                    centres[place * width + column] =
                        common[component * width + column] + by * rng.random_range(-1.0..1.0);
                }
            }
            (centres, order)
        };
        (0..clients).map(client).unzip()
    }

    fn sequences(clients: usize, count: u64) -> Vec<Vec<usize>> {
        let sequence = |number: u64| {
            let mut all: Vec<usize> = (0..clients).collect();
            all.shuffle(&mut Key::new(9).number(number).rng());
            all
        };
        (0..count).map(sequence).collect()
    }

    #[test]
    fn each_step_is_the_best_of_all_permutations() {
        let (centres, _) = shaken(6, 4, 3, 0.8, 1);
        let centres: Vec<&[f64]> = centres.iter().map(Vec::as_slice).collect();
        let alignment = Alignment::new(&centres, 4);
        let mut orders: Vec<Vec<usize>> = vec![(0..4).collect(); 6];
        for client in 1..6 {
            let placed: Vec<usize> = (0..client).collect();
            let cost = |order: &[usize]| -> f64 {
                let beside = |&other: &usize| -> f64 {
                    let pairs = order.iter().zip(&orders[other]);
                    pairs.map(|(&mine, &its)| alignment.apart((client, mine), (other, its))).sum()
                };
                placed.iter().map(beside).sum()
            };
            let best = permutations(4).iter().map(|order| cost(order)).fold(f64::INFINITY, f64::min);
            let found = alignment.place(client, &placed, &orders);
            assert!((cost(&found) - best).abs() < 1e-12);
            orders[client] = found;
        }
    }

    #[test]
    fn tiny_cases_reach_the_exhaustive_search() {
        for seed in 0..20 {
            let (centres, _) = shaken(4, 3, 2, 1.0, seed);
            let centres: Vec<&[f64]> = centres.iter().map(Vec::as_slice).collect();
            let alignment = Alignment::new(&centres, 3);
            let found = alignment.find(&sequences(4, 10));
            let all = permutations(3);
            let mut best = f64::INFINITY;
            for a in &all {
                for b in &all {
                    for c in &all {
                        best = best.min(alignment.score(&[vec![0, 1, 2], a.clone(), b.clone(), c.clone()]));
                    }
                }
            }
            assert!((alignment.score(&found.orders) - found.score).abs() < 1e-12);
            assert!(found.score <= best * (1.0 + 1e-12), "seed {seed}: {} against {best}", found.score);
        }
    }

    #[test]
    fn shaken_components_find_each_other_with_and_without_the_table() {
        let (centres, truth) = shaken(12, 5, 6, 0.2, 4);
        let centres: Vec<&[f64]> = centres.iter().map(Vec::as_slice).collect();
        let mut alignment = Alignment::new(&centres, 5);
        let found = alignment.find(&sequences(12, 5));
        // Up to one renaming for everybody, the orders are those the components were shuffled by.
        let rename: Vec<usize> =
            (0..5).map(|place| truth[0].iter().position(|&at| at == found.orders[0][place]).unwrap()).collect();
        for (order, truth) in found.orders.iter().zip(&truth) {
            assert!((0..5).all(|place| order[place] == truth[rename[place]]));
        }
        alignment.table.clear();
        assert_eq!(alignment.find(&sequences(12, 5)).orders, found.orders);
        let late = align_to(centres[3], centres[0], 5);
        assert!(
            (0..5).all(|place| truth[0].iter().position(|&at| at == place)
                == truth[3].iter().position(|&at| at == late[place]))
        );
    }

    #[test]
    fn one_client_and_one_component_are_no_trouble() {
        let centres: [&[f64]; 1] = [&[1.0, 2.0]];
        assert_eq!(Alignment::new(&centres, 2).find(&[]).orders, [vec![0, 1]]);
        let centres: [&[f64]; 2] = [&[1.0], &[2.0]];
        assert_eq!(Alignment::new(&centres, 1).find(&[]).score, 2.0);
    }
}
