//! FedSoft (Ruan, Joe-Wong: FedSoft: soft clustered federated learning with proximal local updating, 2022). Every client's
//! data is a mixture of clusters: its model is pulled to all of them, by how many of its rows each fits best.
//!
//! ```text
//! 1  c_1 … c_S ← random
//! 2  for t = 0, 1, …, T − 1:
//! 3    every τ rounds each client k: n_ks ← how many of its rows c_s fits best; u_ks ← max(n_ks/n_k, σ), sent
//! 4    v_sk ← u_ks n_k / Σ_k' u_k's n_k'
//! 5    each cluster s: Sel_s ← K clients drawn by v_s
//! 6    each client k in any Sel_s: w_k ← local steps on f_k(w) + λ/2 Σ_s u_ks ‖w − c_s‖²
//! 7    c_s ← mean of the w_k of Sel_s
//! ```
//!
//! A client is served by its own w_k, and not at all before it has one; unseen clients choose the best c_s.
//!
//! Differences from the paper:
//! - with `participation = 1` everybody takes part, and line 7 is Σ_k v_sk w_k, the mean that line 5 estimates.
//! - the paper does not say where line 6 begins: at the client's last w_k, and the first time at the c_s that fits it best.

use super::*;
use crate::federation::Absence;
use crate::federation::work::{Keep, Shares, Start, Train};
use crate::linalg::add_scaled;
use crate::training::Pull;
use rand::RngExt;

settings! {
    pub(super) struct FedSoftSettings {
        /// step size; auto is safe on this data for full batches of a linear model, 0.1 for a network, 0.01 for adam
        step: Auto<f64> [above 0.0] = "auto",
        /// how many clusters to look for
        clusters: usize [1..=1 << 20],
        /// how strongly clusters pull at a client, λ
        pull: f64 [0.0..=1e18] = 0.1,
        /// rounds between two looks at the rows, τ
        interval: usize [1..=1 << 31] = 2,
        /// least weight of a cluster for a client, σ
        floor: f64 [0.0..=1.0] = 0.0001,
        training: Training,
    }
}

impl MethodSettings for FedSoftSettings {
    const NAME: &str = "fedsoft";
    const SUMMARY: &str = "every client a mixture of clusters, its model pulled to all of them";
    const PAPER: &str = "Ruan, Joe-Wong 2022";
    const WANTS: Ability = Ability::Rows;

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        setup.want_clients("clusters", self.clusters)?;
        setup.want_room_for_models("clusters", self.clusters)?;
        let start = |cluster: usize| {
            let key = setup.key.clone().word("start").number(0).number(cluster as u64);
            setup.model.initialise(&mut key.rng()).map(Arc::new)
        };
        let clients = setup.rows.len();
        Ok(Box::new(FedSoft {
            step: setup.step(self.step),
            training: self.training,
            pull: self.pull,
            interval: self.interval,
            floor: self.floor,
            rows: setup.rows.to_vec(),
            state: State {
                models: (0..self.clusters).map(start).collect::<Result<_>>()?,
                shares: vec![Vec::new(); clients],
                stamps: vec![0; clients],
                anew: vec![false; clients],
            },
            key: setup.key,
        }))
    }
}

struct FedSoft {
    training: Training,
    step: f64,
    /// λ.
    pull: f64,
    /// τ.
    interval: usize,
    /// σ.
    floor: f64,
    rows: Vec<usize>,
    key: Key,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// c_s.
    models: Vec<Params>,
    /// u_ks; empty of a client that never answered.
    shares: Vec<Vec<f64>>,
    /// The ask after which each client last kept its model; 0 before the first.
    stamps: Vec<u64>,
    /// Whose own model cannot be trusted.
    anew: Vec<bool>,
}

/// The cluster that fits most of a client's rows.
fn largest(shares: &[f64]) -> usize {
    crate::models::first_smallest(shares.iter().map(|share| -share)).position
}

impl FedSoft {
    /// Line 3.
    fn look(&mut self, room: &mut Room) -> Result<()> {
        let mut ask = Ask::new(Phase::Train, self.state.models.clone(), Gather::Each);
        let order = ask.order(Recipients::All, Shares { among: (0..self.state.models.len()).collect() });
        for (client, shares) in room.ask_for_any(&ask)?.of(order).each() {
            self.state.shares[client as usize] = shares.iter().map(|share| share.max(self.floor)).collect();
        }
        Ok(())
    }

    /// Lines 4 and 5: what each client counts in each cluster this round, cluster by cluster; nothing for most of them.
    fn weights(&self, room: &Room) -> Vec<Vec<f64>> {
        let count = self.rows.len();
        let importance = |cluster: usize| -> Vec<f64> {
            let one = |client: usize| {
                self.state.shares[client].get(cluster).map_or(0.0, |share| share * self.rows[client] as f64)
            };
            let all: Vec<f64> = (0..count).map(one).collect();
            let total: f64 = all.iter().sum();
            all.iter().map(|value| if total > 0.0 { value / total } else { 0.0 }).collect()
        };
        let selected = |cluster: usize| -> Vec<f64> {
            let importance = importance(cluster);
            if self.training.participation >= 1.0 {
                return importance;
            }
            let draws = ((self.training.participation * count as f64).round() as usize).max(1);
            let key = self.key.clone().word("selection").number(room.round() as u64).number(cluster as u64);
            let mut chosen = vec![0.0; count];
            // By the clients' ids, so that their order does not matter.
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by_key(|&client| &room.clients()[client].id);
            let mut rng = key.rng();
            for _ in 0..draws {
                let mut lot: f64 = rng.random();
                let taken = order.iter().find(|&&client| {
                    lot -= importance[client];
                    lot < 0.0
                });
                if let Some(&client) = taken.or(order.iter().rev().find(|&&client| importance[client] > 0.0)) {
                    chosen[client] += 1.0 / draws as f64;
                }
            }
            chosen
        };
        (0..self.state.models.len()).map(selected).collect()
    }

    /// Line 6 for one client.
    fn work(&self, client: usize, round: usize) -> Train {
        let shares = &self.state.shares[client];
        let mut plan = self.training.plan(&self.key, round, self.step);
        let pull = |(centre, share): (usize, &f64)| Pull { centre, strength: self.pull * share };
        plan.pulls = shares.iter().enumerate().map(pull).filter(|pull| pull.strength > 0.0).collect();
        let from = match self.state.stamps[client] {
            stamp if stamp > 0 && !self.state.anew[client] => Start::Own { stamp },
            _ => Start::Model(largest(shares)),
        };
        Train { from, plan, keep: Keep::Also }
    }

    /// Clients by the cluster that fits most of their rows.
    fn sizes(&self) -> Vec<usize> {
        let known = self.state.shares.iter().filter(|shares| !shares.is_empty());
        sizes_of(self.state.models.len(), known.map(|shares| largest(shares)))
    }
}

impl Method for FedSoft {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        if room.round().is_multiple_of(self.interval) {
            self.look(room)?;
        }
        let finished = room.round() + 1 >= self.training.rounds;
        let weights = self.weights(room);
        let wanted = |client: usize| weights.iter().any(|weights| weights[client] > 0.0);
        let asked: Vec<usize> = (0..self.rows.len()).filter(|&client| wanted(client)).collect();
        if asked.is_empty() {
            return Ok(Progress { loss: None, switched: None, sizes: self.sizes(), finished });
        }
        let mut ask = Ask::new(Phase::Train, self.state.models.clone(), Gather::Each);
        let order = |&client: &usize| ask.order(Recipients::list(vec![client as u32]), self.work(client, room.round()));
        let orders: Vec<_> = asked.iter().map(order).collect();
        let answers = room.ask(&ask)?;
        let loss = room.watch(&answers.losses(&orders))?;
        let mut sums = vec![Sum::default(); self.state.models.len()];
        let mut standing = vec![0.0; self.state.models.len()];
        for (&client, order) in asked.iter().zip(&answers.orders) {
            let answered = !order.clients.is_empty() && order.vectors.iter().all(|value| value.is_finite());
            for (cluster, weights) in weights.iter().enumerate().filter(|(_, weights)| weights[client] > 0.0) {
                match answered {
                    true => sums[cluster].add(weights[client], order.vector(0)),
                    false => standing[cluster] += weights[client],
                }
            }
            // A client whose answer was garbage has kept what it trained, which may be anything: it begins anew.
            let garbage = answers.missing.iter().any(|m| m.client == client as u32 && m.reason == Absence::Garbage);
            let kept = answered || garbage || !order.clients.is_empty();
            if kept {
                self.state.stamps[client] = answers.stamp;
                self.state.anew[client] = !answered;
            }
        }
        for ((model, sum), standing) in self.state.models.iter_mut().zip(&sums).zip(standing) {
            if sum.count > 0 {
                let standing = if self.training.missing == MissingRule::Keep { standing } else { 0.0 };
                let whole = sum.weight + standing;
                let mut mean = vec![0.0; sum.total.len()];
                add_scaled(&mut mean, 1.0 / whole, &sum.total);
                add_scaled(&mut mean, standing / whole, model);
                *model = Arc::new(mean);
            }
        }
        Ok(Progress { loss, switched: None, sizes: self.sizes(), finished })
    }

    fn planned_rounds(&self) -> usize {
        self.training.rounds
    }

    fn outcome(&self) -> Outcome {
        let mut notes = Vec::new();
        let untrained = self.state.stamps.iter().filter(|&&stamp| stamp == 0).count();
        if untrained > 0 {
            notes.push(format!("{untrained} clients never took part and have no model of their own"));
        }
        Outcome {
            models: self.state.models.clone(),
            serving: Serving::Own { stamps: self.state.stamps.clone(), clusters: None },
            notes,
            ..Outcome::default()
        }
    }

    keep_state!();
}
