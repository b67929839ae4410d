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
use crate::federation::work::Shares;
use rand::RngExt;

settings! {
    /// The settings of the method `fedsoft`.
    pub struct FedSoftSettings {
        /// how many clusters to look for
        clusters: usize [1..=1 << 20],
        /// how strongly clusters pull at a client, λ
        pull: f64 [0.0..=1e18] = 0.1,
        /// rounds between two looks at the rows, τ
        interval: usize [1..=1 << 31] = 2,
        /// least weight of a cluster for a client, σ
        floor: f64 [0.0..=1.0] = 0.0001,
        /// how clients train
        training: Training,
    }
}

impl MethodSettings for FedSoftSettings {
    const NAME: &str = "fedsoft";
    const SUMMARY: &str = "every client a mixture of clusters, its model pulled to all of them";
    const PAPER: &str = "Ruan, Joe-Wong 2022";
    const WANTS: Ability = Ability::Rows;
    const WANTS_SINGLE: Option<&'static str> = Some("it mixes models in shares that every client tells by itself");

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![
            Disclosure::single::<Shares>(
                Phase::Train,
                self.training.schedule.rounds.div_ceil(self.interval),
                "how much of each cluster a client is",
            ),
            Disclosure::single::<Train>(
                Phase::Train,
                self.training.schedule.rounds,
                "means of models, weighted by shares of clusters",
            ),
        ]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        setup.want_clients("clusters", self.clusters)?;
        setup.want_room_for_models("clusters", self.clusters)?;
        let clients = setup.rows.len();
        Ok(Box::new(FedSoft {
            rows: setup.rows.to_vec(),
            state: State {
                models: setup.random_models(self.clusters)?,
                shares: vec![Vec::new(); clients],
                stamps: vec![0; clients],
                anew: vec![false; clients],
            },
            trainer: self.training.clone().trainer(&setup),
            settings: self,
        }))
    }
}

struct FedSoft {
    settings: FedSoftSettings,
    trainer: Trainer,
    rows: Vec<usize>,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// c_s.
    models: Vec<Params>,
    /// u_ks; empty for a client that never answered.
    shares: Vec<Vec<f64>>,
    /// The ask after which each client last kept its model; 0 before the first.
    stamps: Vec<u64>,
    /// Clients whose own model cannot be trusted, and that begin again at a cluster's.
    anew: Vec<bool>,
}

/// The cluster that fits most of a client's rows.
fn largest(shares: &[f64]) -> usize {
    crate::models::first_smallest(shares.iter().map(|share| -share)).position
}

impl FedSoft {
    /// Line 3.
    fn estimate_shares(&mut self, room: &mut Room) -> Result<()> {
        let mut ask = Ask::new(Phase::Train, self.state.models.clone(), Gather::Each);
        let order = ask.order(Recipients::All, Shares { among: (0..self.state.models.len()).collect() });
        for (client, shares) in room.ask_for_any(&ask)?.of(order).each() {
            self.state.shares[client as usize] = shares.iter().map(|share| share.max(self.settings.floor)).collect();
        }
        Ok(())
    }

    /// Lines 4 and 5: the weight of each client in each cluster this round, cluster by cluster; 0 for most.
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
            if self.trainer.schedule.participation >= 1.0 {
                return importance;
            }
            let draws = ((self.trainer.schedule.participation * count as f64).round() as usize).max(1);
            let key = self.trainer.key.clone().word("selection").number(room.round() as u64).number(cluster as u64);
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
        let mut plan = self.trainer.plan(round);
        let pull = |(centre, share): (usize, &f64)| Pull { centre, strength: self.settings.pull * share };
        plan.terms.pulls = shares.iter().enumerate().map(pull).filter(|pull| pull.strength > 0.0).collect();
        let from = match self.state.stamps[client] {
            stamp if stamp > 0 && !self.state.anew[client] => Start::Own { stamp },
            _ => Start::Model(largest(shares)),
        };
        Train { from, plan, keep: Keep::Also }
    }

    /// Number of clients whose rows each cluster fits best.
    fn sizes(&self) -> Vec<usize> {
        let mut clusters = Assignment::none(self.state.models.len(), self.rows.len());
        for (client, shares) in (0..).zip(&self.state.shares).filter(|(_, shares)| !shares.is_empty()) {
            clusters.put(client, largest(shares));
        }
        clusters.sizes()
    }
}

impl Method for FedSoft {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        if room.round().is_multiple_of(self.settings.interval) {
            self.estimate_shares(room)?;
        }
        let finished = self.trainer.is_last(room);
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
        let loss = room.check_loss(&answers.losses(&orders))?;
        let mut sums = vec![Sum::default(); self.state.models.len()];
        let mut absent = vec![0.0; self.state.models.len()];
        let kept: BTreeMap<u32, u64> = stamps_after(&answers).collect();
        for (&client, order) in asked.iter().zip(&answers.orders) {
            let vector = finite_vectors(order).next();
            for (cluster, weights) in weights.iter().enumerate().filter(|(_, weights)| weights[client] > 0.0) {
                match vector {
                    Some((_, vector)) => sums[cluster].add(weights[client], vector),
                    None => absent[cluster] += weights[client],
                }
            }
            // A client whose answer was garbage has kept what it trained, which may be anything: it begins anew.
            if let Some(&stamp) = kept.get(&(client as u32)) {
                (self.state.stamps[client], self.state.anew[client]) = (stamp, vector.is_none());
            }
        }
        for ((model, sum), absent) in self.state.models.iter_mut().zip(&sums).zip(absent) {
            if sum.count > 0 {
                let unchanged = room.unchanged(1) as f64 * absent;
                let whole = sum.weight + unchanged;
                let mut mean = vec![0.0; sum.total.len()];
                add_scaled(&mut mean, 1.0 / whole, &sum.total);
                add_scaled(&mut mean, unchanged / whole, model);
                *model = Arc::new(mean);
            }
        }
        Ok(Progress { loss, switched: None, sizes: self.sizes(), finished })
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        let untrained = self.state.stamps.iter().filter(|&&stamp| stamp == 0).count();
        let note =
            (untrained > 0).then(|| format!("{untrained} clients never took part and have no model of their own"));
        Outcome {
            models: self.state.models.clone(),
            serving: Serving::Own { stamps: self.state.stamps.clone(), clusters: None },
            notes: note.into_iter().collect(),
            ..Outcome::default()
        }
    }

    keep_state!();
}
