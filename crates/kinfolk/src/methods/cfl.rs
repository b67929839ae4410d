//! CFL, Clustered Federated Learning (Sattler, Müller, Samek: Clustered federated learning: model-agnostic distributed
//! multitask optimization under privacy constraints, 2019). From the top down: everybody trains one model until it stands
//! still although single clients still pull; then the clients are parted by the direction they pull in.
//!
//! ```text
//! 1  one cluster c of all clients, θ_c ← random
//! 2  for each round, each cluster c:
//! 3    members train from θ_c and send their updates Δ_i; θ_c ← θ_c + mean of the Δ_i, weighted by rows
//! 4    if ‖mean Δ‖ < ε_1 and max_i ‖Δ_i‖ > ε_2:             the cluster stands still, its clients do not
//! 5      α_ij ← ⟨Δ_i, Δ_j⟩ / (‖Δ_i‖ ‖Δ_j‖)
//! 6      c_1, c_2 ← the bipartition with the smallest α_max = largest α_ij across
//! 7      if √((1 − α_max)/2) > γ_max: c_1 and c_2 go on in its place, both from θ_c
//! ```
//!
//! Line 6 is exact: joining the most similar clients first until two groups are left makes the largest similarity across
//! as small as it can be.
//!
//! Differences from the paper:
//! - ε_1 and ε_2 can be left out. Then they are shares of the mean length of the clients' updates in the first round: 0.4 and
//!   0.6. With local steps updates do not vanish at a stationary point, so absolute lengths mean little.
//! - γ_max, which the paper takes from bounds on the gradient noise, is 0.7 by default: parts whose most similar members
//!   are at less than a right angle stay together. What noise alone pulls at is about at right angles, a little more in
//!   small clusters, which may part once too often.
//! - a cluster does not part while one of its members is missing: it would be left behind in the wrong part. One that
//!   was missing in five rounds in a row is not waited for any longer.
//! - parts of fewer than `min_size` clients are not split off.

use super::*;
use crate::federation::OrderAnswers;
use crate::federation::work::Train;
use crate::linalg::{add_scaled, dot, norm};
use rayon::prelude::*;

/// In how many rounds in a row a client may be missing before a cluster parts without it.
const WAITING: usize = 5;

settings! {
    pub(super) struct CflSettings {
        /// step size; auto is safe on this data for full batches of a linear model, 0.1 for a network, 0.01 for adam
        step: Auto<f64> [above 0.0] = "auto",
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// a cluster stands still when the mean update is shorter than this (default: 0.4 of a client's first update)
        still: Option<f64> [above 0.0],
        /// and some client pulls when its update is longer than this (default: 0.6 of a client's first update)
        pulling: Option<f64> [above 0.0],
        /// least difference in direction between two parts, √((1 − largest cosine across)/2)
        gap: f64 [0.0..=1.0] = 0.7,
        /// smallest part that is split off
        min_size: usize [1..=1 << 31] = 2,
        /// rounds before a cluster may be split
        patience: usize [0..=1 << 31] = 5,
        training: Training,
    }

    fn check(&self, check: &mut Check) {
        if self.training.participation < 1.0 {
            check.fault("participation", "cfl compares the updates of all clients, want 1");
        }
    }
}

impl MethodSettings for CflSettings {
    const NAME: &str = "cfl";
    const SUMMARY: &str = "one model, parted wherever clients pull apart";
    const PAPER: &str = "Sattler, Müller, Samek 2019";
    const HAS_CLUSTERS: bool = true;

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        setup.want_clients("min_size", self.min_size)?;
        // Similarities, and the list of pairs that is sorted by them.
        setup.want_room_for_pairs(16)?;
        Ok(Box::new(Cfl {
            step: setup.step(self.step),
            training: self.training,
            weight: self.weight,
            still: self.still,
            pulling: self.pulling,
            gap: self.gap,
            min_size: self.min_size,
            patience: self.patience,
            state: State {
                models: vec![odcl::common_start(&setup)?],
                ages: vec![0],
                given: vec![0; setup.rows.len()],
                away: vec![0; setup.rows.len()],
                length: None,
                splits: Vec::new(),
            },
            key: setup.key,
        }))
    }
}

struct Cfl {
    training: Training,
    step: f64,
    weight: Weight,
    /// ε_1 and ε_2.
    still: Option<f64>,
    pulling: Option<f64>,
    /// γ_max.
    gap: f64,
    min_size: usize,
    patience: usize,
    key: Key,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// θ_c.
    models: Vec<Params>,
    /// Rounds since each cluster came to be.
    ages: Vec<usize>,
    given: Vec<usize>,
    /// In how many rounds up to now each client was missing.
    away: Vec<usize>,
    /// Mean length of the clients' updates in the first round.
    length: Option<f64>,
    splits: Vec<String>,
}

/// What members of a cluster sent: who, and how far each moved.
struct Updates {
    clients: Vec<u32>,
    moves: Vec<Vec<f64>>,
    weights: Vec<f64>,
}

impl Updates {
    fn of(order: &OrderAnswers, model: &[f64], weight: Weight) -> Self {
        let finite: Vec<usize> = (0..order.clients.len())
            .filter(|&place| order.vector(place).iter().all(|value| value.is_finite()))
            .collect();
        let moved = |&place: &usize| order.vector(place).iter().zip(model).map(|(new, old)| new - old).collect();
        Self {
            clients: finite.iter().map(|&place| order.clients[place]).collect(),
            moves: finite.iter().map(moved).collect(),
            weights: finite.iter().map(|&place| weight.of(order.rows[place] as usize)).collect(),
        }
    }

    /// `standing` clients stand for no move.
    fn mean(&self, width: usize, standing: usize) -> Vec<f64> {
        let mut mean = vec![0.0; width];
        let total: f64 = self.weights.iter().sum();
        let whole = total + standing as f64 * total / self.weights.len().max(1) as f64;
        for (moved, weight) in self.moves.iter().zip(&self.weights) {
            add_scaled(&mut mean, weight / whole, moved);
        }
        mean
    }

    /// Line 5, row-major.
    fn cosines(&self) -> Vec<f64> {
        let lengths: Vec<f64> = self.moves.iter().map(|moved| norm(moved)).collect();
        let cosine = |i: usize, j: usize| {
            let length = lengths[i] * lengths[j];
            if length > 0.0 { dot(&self.moves[i], &self.moves[j]) / length } else { 1.0 }
        };
        let count = self.moves.len();
        (0..count * count).into_par_iter().map(|place| cosine(place / count, place % count)).collect()
    }
}

/// Line 6: the two parts, `true` for the part of the first member, and the largest similarity across.
fn bipartition(similarity: &[f64], count: usize) -> (Vec<bool>, f64) {
    let mut edges: Vec<(usize, usize)> = (0..count).flat_map(|j| (0..j).map(move |i| (i, j))).collect();
    edges.sort_by(|a, b| similarity[b.0 * count + b.1].total_cmp(&similarity[a.0 * count + a.1]));
    let mut group: Vec<usize> = (0..count).collect();
    let mut groups = count;
    for (i, j) in edges {
        let (from, into) = (group[j], group[i]);
        if from == into {
            continue;
        }
        if groups == 2 {
            let first = group[0];
            return (group.iter().map(|&other| other == first).collect(), similarity[i * count + j]);
        }
        group.iter_mut().filter(|group| **group == from).for_each(|group| *group = into);
        groups -= 1;
    }
    (vec![true; count], 1.0)
}

impl Cfl {
    /// Lines 4 to 7: the clients that leave cluster `c`, if it parts.
    fn part(&self, updates: &Updates, mean: &[f64]) -> Option<(Vec<u32>, f64)> {
        let length = self.state.length.unwrap_or(0.0);
        let longest = updates.moves.iter().map(|moved| norm(moved)).fold(0.0, f64::max);
        let still = norm(mean) < self.still.unwrap_or(0.4 * length);
        let pulling = longest > self.pulling.unwrap_or(0.6 * length);
        if !still || !pulling || updates.clients.len() < 2 * self.min_size {
            return None;
        }
        let (stays, across) = bipartition(&updates.cosines(), updates.clients.len());
        let staying = stays.iter().filter(|stays| **stays).count();
        let smaller = staying.min(stays.len() - staying);
        let gap = (0.5 * (1.0 - across).max(0.0)).sqrt();
        (gap > self.gap && smaller >= self.min_size).then(|| {
            let leaving = updates.clients.iter().zip(&stays).filter(|(_, stays)| !**stays).map(|(&client, _)| client);
            (leaving.collect(), gap)
        })
    }

    fn sizes(&self) -> Vec<usize> {
        sizes_of(self.state.models.len(), self.state.given.iter().copied())
    }
}

impl Method for Cfl {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let plan = self.training.plan(&self.key, room.round(), self.step);
        let mut ask = Ask::new(Phase::Train, self.state.models.clone(), Gather::Each);
        let order = |cluster: usize| {
            let members = (0u32..).zip(&self.state.given).filter(|(_, c)| **c == cluster).map(|(i, _)| i);
            ask.order(Recipients::list(members.collect()), Train::from_model(cluster, plan.clone()))
        };
        let orders: Vec<_> = (0..self.state.models.len()).map(order).collect();
        let answers = room.ask(&ask)?;
        self.state.away.iter_mut().for_each(|away| *away += 1);
        let answered = answers.orders.iter().flat_map(|order| &order.clients);
        answered.for_each(|&client| self.state.away[client as usize] = 0);
        let loss = room.watch(&answers.losses(&orders))?;
        let mut switched = 0;
        for (cluster, order) in answers.orders.iter().enumerate() {
            let updates = Updates::of(order, &self.state.models[cluster], self.weight);
            if updates.clients.is_empty() {
                continue;
            }
            if room.round() == 0 {
                let total: f64 = updates.moves.iter().map(|moved| norm(moved)).sum();
                self.state.length = Some(total / updates.moves.len() as f64);
            }
            let absent = answers.missing.iter().filter(|missing| self.state.given[missing.client as usize] == cluster);
            let missing = absent.count() + order.clients.len() - updates.clients.len();
            let standing = if self.training.missing == MissingRule::Keep { missing } else { 0 };
            let mean = updates.mean(self.state.models[cluster].len(), standing);
            let mut model = self.state.models[cluster].to_vec();
            add_scaled(&mut model, 1.0, &mean);
            self.state.models[cluster] = Arc::new(model);
            self.state.ages[cluster] += 1;
            let is_waited_for = |(given, away): (&usize, &usize)| *given == cluster && (1..=WAITING).contains(away);
            let waits = self.state.given.iter().zip(&self.state.away).any(is_waited_for);
            if self.state.ages[cluster] <= self.patience || waits || updates.clients.len() < order.clients.len() {
                continue;
            }
            if let Some((leaving, gap)) = self.part(&updates, &mean) {
                let new = self.state.models.len();
                switched += leaving.len();
                leaving.iter().for_each(|&client| self.state.given[client as usize] = new);
                self.state.models.push(self.state.models[cluster].clone());
                self.state.ages[cluster] = 0;
                self.state.ages.push(0);
                self.state.splits.push(format!(
                    "round {}: {} clients left cluster {cluster} as cluster {new} (gap {gap:.2})",
                    room.round() + 1,
                    leaving.len()
                ));
            }
        }
        let finished = room.round() + 1 >= self.training.rounds;
        Ok(Progress { loss, switched: Some(switched), sizes: self.sizes(), finished })
    }

    fn planned_rounds(&self) -> usize {
        self.training.rounds
    }

    fn outcome(&self) -> Outcome {
        const NAMED: usize = 10;
        let mut notes: Vec<String> = self.state.splits.iter().take(NAMED).cloned().collect();
        if self.state.splits.is_empty() {
            notes.push(
                "never parted: the mean update stayed long, or no part of min_size clients pulled away far enough"
                    .into(),
            );
        } else if self.state.splits.len() > NAMED {
            notes.push(format!("and {} more splits", self.state.splits.len() - NAMED));
        }
        Outcome {
            models: self.state.models.clone(),
            clustered: true,
            serving: Serving::Given(self.state.given.iter().copied().map(Some).collect()),
            notes,
            ..Outcome::default()
        }
    }

    keep_state!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_cut_is_the_weakest_link_by_hand() {
        // 0 and 2 are alike, 1 and 3 are alike; the largest similarity across is 0.2.
        let similarity = [
            1.0, 0.1, 0.9, 0.0, //
            0.1, 1.0, 0.2, 0.8, //
            0.9, 0.2, 1.0, -0.5, //
            0.0, 0.8, -0.5, 1.0,
        ];
        assert_eq!(bipartition(&similarity, 4), (vec![true, false, true, false], 0.2));
        assert_eq!(bipartition(&[1.0], 1), (vec![true], 1.0));
        assert_eq!(bipartition(&[1.0, -1.0, -1.0, 1.0], 2), (vec![true, false], -1.0));
    }

    #[test]
    fn no_cut_beats_the_one_found() {
        for seed in 0..20 {
            let mut rng = Key::new(seed).rng();
            let count = 7;
            let mut similarity = vec![1.0; count * count];
            for j in 0..count {
                for i in 0..j {
                    let value = rand::RngExt::random_range(&mut rng, -1.0..1.0);
                    (similarity[i * count + j], similarity[j * count + i]) = (value, value);
                }
            }
            let across = |part: &dyn Fn(usize) -> bool| {
                let pairs = (0..count).flat_map(|j| (0..j).map(move |i| (i, j)));
                pairs.filter(|&(i, j)| part(i) != part(j)).map(|(i, j)| similarity[i * count + j]).fold(-2.0, f64::max)
            };
            let best = (1..1usize << (count - 1)).map(|mask| across(&|i| mask >> i & 1 == 1)).fold(2.0, f64::min);
            let (parts, found) = bipartition(&similarity, count);
            assert_eq!(found, best);
            assert_eq!(across(&|i| parts[i]), best);
        }
    }
}
