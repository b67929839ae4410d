//! CFL, Clustered Federated Learning (Sattler, Müller, Samek: Clustered federated learning: model-agnostic distributed
//! multitask optimization under privacy constraints, 2019). From the top down: all clients train one model until it is
//! stationary although the gradients of single clients are not small; then they are split by the directions of their updates.
//!
//! ```text
//! 1  one cluster c of all clients, θ_c ← random
//! 2  for each round, each cluster c:
//! 3    members train from θ_c and send their updates Δ_i; θ_c ← θ_c + mean of the Δ_i, weighted by rows
//! 4    if ‖mean Δ‖ < ε_1 and max_i ‖Δ_i‖ > ε_2:             the cluster is stationary, its clients are not
//! 5      α_ij ← ⟨Δ_i, Δ_j⟩ / (‖Δ_i‖ ‖Δ_j‖)
//! 6      c_1, c_2 ← the bipartition with the smallest α_max = largest α_ij across
//! 7      if √((1 − α_max)/2) > γ_max: c_1 and c_2 go on in its place, both from θ_c
//! ```
//!
//! Line 6 is exact: joining the most similar clients first until two groups are left minimises the largest similarity
//! across.
//!
//! Differences from the paper:
//! - ε_1 and ε_2 can be left out. Then they are shares of the mean length of the clients' updates in the first round: 0.4 and
//!   0.6. With local steps updates do not vanish at a stationary point, so absolute lengths mean little.
//! - γ_max, which the paper takes from bounds on the gradient noise, is 0.7 by default: parts whose most similar members
//!   are at less than a right angle stay together. Updates that are noise alone are about at right angles, a little more in
//!   small clusters, which may be split once too often.
//! - a cluster is not split while one of its members is missing: it would be left behind in the wrong part. A member that
//!   was missing in five rounds in a row is no longer waited for.
//! - parts of fewer than `min_size` clients are not split off.

use super::*;
use crate::num::norm;
use rayon::prelude::*;

/// Number of rounds in a row that a client may be missing before its cluster is split without it.
const WAITING: usize = 5;

settings! {
    /// The settings of the method `cfl`.
    pub struct CflSettings {
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
        /// how clients train
        training: Training,
    }

    fn check(&self, check: &mut Check) {
        if self.training.schedule.participation < 1.0 {
            check.fault("participation", "cfl compares the updates of all clients, want 1");
        }
    }
}

impl MethodSettings for CflSettings {
    const NAME: &str = "cfl";
    const SUMMARY: &str = "one model, parted wherever clients pull apart";
    const PAPER: &str = "Sattler, Müller, Samek 2019";
    const SHOWS_ROWS: &str = "it divides clusters by the gradients of single clients, which are not cut row by row";
    const HAS_CLUSTERS: bool = true;
    const WANTS_SINGLE: Option<&'static str> = Some("it splits clusters by the updates of single clients");

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![Disclosure::single::<Train>(
            Phase::Train,
            self.training.schedule.rounds,
            "which updates oppose each other, and the mean of models in each cluster",
        )]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        setup.want_clients("min_size", self.min_size)?;
        // Similarities, and the list of pairs that is sorted by them.
        setup.want_room_for_pairs(16)?;
        let state = State {
            models: vec![setup.common_start()?],
            ages: vec![0],
            clusters: Assignment::one(setup.rows.len()),
            away: vec![0; setup.rows.len()],
            ..State::default()
        };
        Ok(Box::new(Cfl { trainer: self.training.clone().trainer(&setup), settings: self, state }))
    }
}

struct Cfl {
    settings: CflSettings,
    trainer: Trainer,
    state: State,
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    /// θ_c.
    models: Vec<Params>,
    /// Rounds since each cluster was split off.
    ages: Vec<usize>,
    clusters: Assignment,
    /// Number of rounds in a row that each client has been missing.
    away: Vec<usize>,
    /// Mean length of the clients' updates in the first round.
    length: Option<f64>,
    splits: Vec<String>,
}

/// The updates Δ_i that members of a cluster sent.
struct Updates {
    clients: Vec<u32>,
    moves: Vec<Vec<f64>>,
    weights: Vec<f64>,
}

impl Updates {
    fn of(order: &OrderAnswers, model: &[f64], weight: Weight) -> Self {
        let mut updates = Self { clients: Vec::new(), moves: Vec::new(), weights: Vec::new() };
        for (place, vector) in finite_vectors(order) {
            updates.clients.push(order.clients[place]);
            updates.moves.push(vector.iter().zip(model).map(|(new, old)| new - old).collect());
            updates.weights.push(weight.of(order.rows[place] as usize));
        }
        updates
    }

    /// The mean, with `unchanged` clients counting as 0.
    fn mean(&self, width: usize, unchanged: usize) -> Vec<f64> {
        let mut mean = vec![0.0; width];
        let total: f64 = self.weights.iter().sum();
        let whole = total + unchanged as f64 * total / self.weights.len().max(1) as f64;
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
    /// Lines 4 to 7: the clients that leave a cluster, if it is split, and the gap.
    fn split(&self, updates: &Updates, mean: &[f64]) -> Option<(Vec<u32>, f64)> {
        let length = self.state.length.unwrap_or(0.0);
        let longest = updates.moves.iter().map(|moved| norm(moved)).fold(0.0, f64::max);
        let CflSettings { still, pulling, gap: least_gap, min_size, .. } = self.settings;
        let is_still = norm(mean) < still.unwrap_or(0.4 * length);
        let is_pulled = longest > pulling.unwrap_or(0.6 * length);
        if !is_still || !is_pulled || updates.clients.len() < 2 * min_size {
            return None;
        }
        let (stays, across) = bipartition(&updates.cosines(), updates.clients.len());
        let staying = stays.iter().filter(|stays| **stays).count();
        let smaller = staying.min(stays.len() - staying);
        let gap = (0.5 * (1.0 - across).max(0.0)).sqrt();
        (gap > least_gap && smaller >= min_size).then(|| {
            let leaving = updates.clients.iter().zip(&stays).filter(|(_, stays)| !**stays).map(|(&client, _)| client);
            (leaving.collect(), gap)
        })
    }
}

impl Method for Cfl {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let plan = self.trainer.plan(room.round());
        let state = &mut self.state;
        let mut ask = Ask::new(Phase::Train, state.models.clone(), Gather::Each);
        let order = |cluster: usize| {
            ask.order(Recipients::list(state.clusters.members(cluster)), Train::from_model(cluster, plan.clone()))
        };
        let orders: Vec<_> = (0..state.models.len()).map(order).collect();
        let answers = room.ask(&ask)?;
        state.away.iter_mut().for_each(|away| *away += 1);
        answers.orders.iter().flat_map(|order| &order.clients).for_each(|&client| state.away[client as usize] = 0);
        let loss = room.check_loss(&answers.losses(&orders))?;
        let mut switched = 0;
        for (cluster, order) in answers.orders.iter().enumerate() {
            let state = &mut self.state;
            let updates = Updates::of(order, &state.models[cluster], self.settings.weight);
            if updates.clients.is_empty() {
                continue;
            }
            if room.round() == 0 {
                let total: f64 = updates.moves.iter().map(|moved| norm(moved)).sum();
                state.length = Some(total / updates.moves.len() as f64);
            }
            let unusable = order.clients.len() - updates.clients.len();
            let missing = absent_from(cluster, &state.clusters, &answers) + unusable;
            let mean = updates.mean(state.models[cluster].len(), room.unchanged(missing));
            add_scaled(Arc::make_mut(&mut state.models[cluster]).as_mut_slice(), 1.0, &mean);
            state.ages[cluster] += 1;
            let is_awaited = |client: &u32| (1..=WAITING).contains(&state.away[*client as usize]);
            let waits = state.clusters.members(cluster).iter().any(is_awaited);
            if state.ages[cluster] <= self.settings.patience || waits || unusable > 0 {
                continue;
            }
            if let Some((leaving, gap)) = self.split(&updates, &mean) {
                let state = &mut self.state;
                let new = state.models.len();
                switched += leaving.len();
                for &client in &leaving {
                    state.clusters.put(client, new);
                }
                state.models.push(state.models[cluster].clone());
                state.ages[cluster] = 0;
                state.ages.push(0);
                state.splits.push(format!(
                    "round {}: {} clients left cluster {cluster} as cluster {new} (gap {gap:.2})",
                    room.round() + 1,
                    leaving.len()
                ));
            }
        }
        let (sizes, finished) = (self.state.clusters.sizes(), self.trainer.is_last(room));
        Ok(Progress { loss, switched: Some(switched), sizes, finished })
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        const NAMED: usize = 10;
        let State { models, clusters, splits, .. } = &self.state;
        let mut notes: Vec<String> = splits.iter().take(NAMED).cloned().collect();
        if splits.is_empty() {
            let still =
                "never parted: the mean update stayed long, or no part of min_size clients pulled away far enough";
            notes.push(still.into());
        } else if splits.len() > NAMED {
            notes.push(format!("and {} more splits", splits.len() - NAMED));
        }
        Outcome { notes, ..Outcome::of_clusters(models.clone(), clusters.clone()) }
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
