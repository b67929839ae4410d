//! ONE_SHOT, which methods share that build clusters from single clients: every client trains alone from one common model,
//! the models are compared, and those close to each other are a cluster.
//!
//! ```text
//! 1  each client i: w_i ← local training from w_0
//! 2  dist(w_i, w_j) for all pairs, or for some
//! 3  λ ← given, or from the distances                                `clustering/levels.rs`
//! 4  C_0 ← groups of at least t clients in the graph of all pairs with dist ≤ λ
//! ```
//!
//! `distance = "l2"` is ‖w_i − w_j‖ and needs no client. `"cross-loss"` is ½(f_i(w_j) + f_j(w_i)): every client tries
//! the others' models in one ask, m(m − 1) models down for m clients. `compare` lets many clients try fewer.

use super::super::*;
use super::averaging::plain_mean;
use super::solving::Solve;
use crate::clustering::threshold::{Distances, Threshold, short};
use crate::federation::Absence;
use crate::federation::work::Losses;
use crate::methods::room::{diverged, exploded};
use crate::num::distance;
use rand::seq::index;
use rayon::prelude::*;

choices! {
    /// How far apart two models are.
    pub enum DistanceBy { CrossLoss = "cross-loss", L2 = "l2" }
    /// How λ is found.
    pub enum LambdaRule { Gap = "gap", Quantile = "quantile" }
    /// Which clients are a group.
    pub enum GroupsBy { Components = "components", Pivots = "pivots" }
    /// Whom a client is compared with.
    pub enum Compare { All = "all", Sample = "sample", Neighbours = "neighbours" }
}

settings! {
    /// How clusters are built from single clients.
    pub struct BottomUp {
        /// how far apart two models are: what they lose on each other's rows, or how much their parameters differ
        distance: DistanceBy = "cross-loss",
        /// clients at most this far apart belong together (default: found from the distances)
        #[only_with(lambda_rule = "gap")]
        lambda: Option<f64> [0.0..=1e300],
        /// how lambda is found: in the gap between groups that stand apart (one cluster where none do), or at a quantile
        lambda_rule: LambdaRule = "gap",
        /// share of the distances up to lambda, for lambda_rule = "quantile"
        #[only_with(lambda_rule = "quantile")]
        quantile: f64 [0.0..=1.0] = 0.25,
        /// fewer clients than this are no cluster
        min_size: usize [1..=1 << 31] = 2,
        /// which clients are a group: all that are connected by pairs within lambda, or those within lambda of a random one
        groups_by: GroupsBy = "components",
        /// whom a client is compared with: everybody, random others, or half nearest by parameters and half random
        compare: Compare = "all",
        /// how many others a client asks for; some more ask for it
        #[only_with(compare = "sample" | "neighbours")]
        peers: usize [2..=1 << 31] = 30,
        /// steps a client trains alone at first (default: exactly where the model can, otherwise 250)
        one_shot_steps: Option<u32> [1..=1 << 31],
        /// how clients train
        training: Training,
    }
}

impl BottomUp {
    /// What clients tell in lines 1 to 4.
    pub(in crate::methods) fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        let what = "clusters of the clients' own models";
        let mut all = vec![match self.one_shot_steps.is_none() && ability.solves_exactly() {
            true => Disclosure::single::<work::Minimise>(Phase::Start, 1, what),
            false => Disclosure::single::<Train>(Phase::Start, 1, what),
        }];
        if self.distance == DistanceBy::CrossLoss {
            all.push(Disclosure::single::<Losses>(Phase::Start, 1, what));
        }
        all
    }
}

/// Lines 1 to 4, ready to run.
pub struct OneShot {
    pub settings: BottomUp,
    /// How clients train afterwards.
    pub trainer: Trainer,
    solve: Solve,
}

/// Local models, and which of them are close to each other.
#[derive(Serialize, Deserialize)]
pub struct FirstClusters {
    /// w_i; `None` for a client that did not answer or whose training diverged. Empty once they are no longer needed.
    pub models: Vec<Option<Params>>,
    /// Mean loss before the first step.
    pub loss: Option<f64>,
    /// C_0, numbered in the order of their first members.
    pub clusters: Assignment,
    /// Whose training went astray: it diverged, or its model is beyond all others.
    pub astray: Vec<bool>,
    /// λ.
    pub lambda: f64,
    /// The loss of each client i with others' models: j and f_i(w_j), ascending; empty for `l2`.
    pub losses: Vec<Vec<(u32, f64)>>,
    comparison: Comparison,
    notes: Vec<String>,
    extra: BTreeMap<String, f64>,
}

impl FirstClusters {
    /// The progress of the round that found them.
    pub fn progress(&self) -> Progress {
        let finished = self.clusters.clusters() == 0;
        Progress { loss: self.loss, switched: None, sizes: self.clusters.sizes(), finished }
    }

    /// Every client served by its local model.
    pub fn local_models(&self) -> Outcome {
        let mut next = 0..;
        let place = |model: &Option<Params>| model.as_ref().and_then(|_| next.next());
        Outcome {
            serving: Serving::Given(self.models.iter().map(place).collect()),
            models: self.models.iter().flatten().cloned().collect(),
            converged: self.clusters.clusters() > 0,
            ..Outcome::default()
        }
    }

    /// The mean of the w_i of every cluster.
    pub fn means(&self) -> Vec<Params> {
        let mean = |cluster: usize| {
            plain_mean(self.clusters.members(cluster).iter().filter_map(|&i| self.models[i as usize].as_ref()))
        };
        (0..self.clusters.clusters()).map(mean).collect()
    }

    pub fn describe(&self, outcome: &mut Outcome) {
        outcome.notes.extend(self.notes.iter().cloned());
        outcome.extra.extend(self.extra.clone());
        outcome.comparison = Some(self.comparison.clone());
    }
}

/// The outcome of line 1.
struct LocalModels {
    /// w_i.
    models: Vec<Option<Params>>,
    /// Whose answer was not finite, or garbage.
    garbage: Vec<bool>,
    loss: Option<f64>,
}

impl OneShot {
    pub fn new(setup: &Setup, settings: BottomUp) -> Result<Self> {
        setup.want_clients("min_size", settings.min_size)?;
        setup.want_room_for_pairs(size_of::<f64>())?;
        let trainer = settings.training.clone().trainer(setup);
        let solve = match (settings.one_shot_steps, setup.model.convex().is_some()) {
            (None, true) => Solve::Exact { ridge: trainer.schedule.optimising.weight_decay },
            (steps, _) => {
                let amount = Amount::Steps(steps.unwrap_or(250));
                Solve::from_common(setup, Plan { amount, ..trainer.with_draws("one-shot").plan(0) })?
            }
        };
        Ok(Self { settings, trainer, solve })
    }

    /// Lines 1 to 4.
    pub fn run(&self, room: &mut Room) -> Result<FirstClusters> {
        let local = self.train(room)?;
        let peers = self.peers(&local.models, room);
        let mut distances = Distances::unknown(local.models.len());
        let mut losses = vec![Vec::new(); local.models.len()];
        if self.by_losses() {
            losses = try_others(&local.models, &peers, room)?;
            let loss = |i: usize, j: usize| {
                let place = losses[i].binary_search_by_key(&(j as u32), |&(other, _)| other).ok()?;
                Some(losses[i][place].1)
            };
            for (i, j) in pairs(&peers) {
                // If one of the two did not answer, the other's loss counts for both.
                let known: Vec<f64> = [loss(i, j), loss(j, i)].into_iter().flatten().collect();
                if let Some(distance) = mean_loss(&known) {
                    distances.set(i, j, distance);
                }
            }
        } else {
            apart(&local.models, &pairs(&peers)).into_iter().for_each(|(i, j, value)| distances.set(i, j, value));
        }
        let threshold = self.threshold(&distances)?;
        let labels = self.groups(&distances, threshold.value);
        Ok(self.describe(local, &distances, threshold, &labels, losses))
    }

    /// Whether models are compared by their losses on each other's rows.
    pub fn by_losses(&self) -> bool {
        self.settings.distance == DistanceBy::CrossLoss
    }

    /// The groups of line 4, and of clusters that are merged.
    pub fn groups(&self, distances: &Distances, lambda: f64) -> Vec<usize> {
        match self.settings.groups_by {
            GroupsBy::Components => distances.components(lambda),
            GroupsBy::Pivots => distances.pivots(lambda, &self.trainer.key.clone().word("pivots")),
        }
    }

    /// Line 1.
    fn train(&self, room: &mut Room) -> Result<LocalModels> {
        let (answers, order) = self.solve.ask_all(Phase::Start, room)?;
        let order = answers.of(order);
        let mut models = vec![None; room.clients().len()];
        for (place, model) in finite_vectors(&order) {
            models[order.clients[place] as usize] = Some(Arc::new(model.to_vec()));
        }
        let mut garbage = vec![false; models.len()];
        let unusable = answers.missing.iter().filter(|missing| missing.reason == Absence::Garbage);
        for client in unusable.map(|missing| missing.client).chain(order.clients.iter().copied()) {
            garbage[client as usize] = models[client as usize].is_none();
        }
        if models.iter().all(Option::is_none) {
            return Err(match garbage.contains(&true) {
                true => diverged(0),
                false => Error::new(ErrorKind::Client, "0 clients answered, want at least 1")
                    .hint("there is only one round to train alone in"),
            });
        }
        Ok(LocalModels { models, garbage, loss: mean_loss(&order.losses()).filter(|loss| loss.is_finite()) })
    }

    /// Line 3.
    fn threshold(&self, distances: &Distances) -> Result<Threshold> {
        let fixed = |value: f64, reason: &str| Threshold {
            value,
            separability: None,
            overlap: false,
            reason: reason.to_string(),
        };
        match (self.settings.lambda, self.settings.lambda_rule) {
            (Some(value), _) => Ok(fixed(value, "as given")),
            // A single client is a cluster by itself, whatever lambda is.
            _ if distances.count() == 1 => Ok(fixed(f64::INFINITY, "one client is one cluster")),
            (None, LambdaRule::Quantile) => distances.quantile(self.settings.quantile),
            (None, LambdaRule::Gap) => distances.threshold(),
        }
    }

    /// Drops small groups, and describes the rest.
    fn describe(
        &self,
        local: LocalModels,
        distances: &Distances,
        threshold: Threshold,
        labels: &[usize],
        losses: Vec<Vec<(u32, f64)>>,
    ) -> FirstClusters {
        let count = local.models.len();
        let group = |client: usize| local.models[client].is_some().then_some(labels[client]);
        let groups: Assignment = (0..count).map(group).collect();
        let sizes = groups.sizes();
        let is_large = |group: &usize| sizes[*group] >= self.settings.min_size;
        let large: Assignment = groups.each().iter().map(|group| group.filter(is_large)).collect();
        let (clusters, _) = large.renumbered();
        let known = distances.sorted();
        let range = match (known.first(), known.last()) {
            (Some(&least), Some(&most)) => format!("distances from {} to {}", short(least), short(most)),
            _ => "no finite distance".to_string(),
        };
        let lambda = match threshold.value.is_finite() {
            true => format!("lambda {}", short(threshold.value)),
            false => "lambda beyond all distances".to_string(),
        };
        let mut notes = vec![format!("{lambda}: {} ({range})", threshold.reason)];
        if threshold.overlap {
            notes.push(
                "the clusters overlap: some clients are farther from members of their own than others from another's; compare with a larger and a smaller lambda"
                    .to_string(),
            );
        }
        if clusters.clusters() == 1 && threshold.value.is_finite() && count > 1 {
            notes.push(
                "one cluster: all groups are connected within lambda (take a smaller lambda, or groups_by = \"pivots\")"
                    .to_string(),
            );
        }
        let astray = astray(&local, distances);
        let strays = astray.iter().filter(|astray| **astray).count();
        if strays > 0 {
            notes
                .push(format!("{strays} clients diverged or are beyond all others; they are served, but do not train"));
        }
        let untrained = local.models.iter().filter(|model| model.is_none()).count();
        if untrained > 0 {
            notes.push(format!("{untrained} clients have no model of their own: they did not answer, or diverged"));
        }
        let unclustered = clusters.unassigned().len();
        let (alone, wanted) = (unclustered - untrained, self.settings.min_size);
        if clusters.clusters() == 0 {
            let largest = sizes.iter().max().copied().unwrap_or(0);
            notes.push(format!(
                "no cluster: the largest group within lambda has {largest}, want at least {wanted} clients; every client keeps its own model (leave lambda out, or take a larger one, or a smaller min_size)",
            ));
        } else if alone > 0 {
            notes.push(format!("{alone} clients were in no group of at least {wanted} at first"));
        }
        let mut extra = BTreeMap::from([
            ("lambda".to_string(), threshold.value),
            ("clusters_at_first".to_string(), clusters.clusters() as f64),
            ("unclustered_at_first".to_string(), unclustered as f64),
        ]);
        extra.extend(threshold.separability.map(|share| ("separability".to_string(), share)));
        let comparison = Comparison {
            pairs: distances.pairs().map(|(a, b, value)| (a as u32, b as u32, value)).collect(),
            lambda: threshold.value.is_finite().then_some(threshold.value),
            reason: threshold.reason,
        };
        let LocalModels { models, loss, .. } = local;
        FirstClusters { models, loss, clusters, astray, lambda: threshold.value, losses, comparison, notes, extra }
    }

    /// Whose models each client tries, ascending; two clients always try each other's.
    fn peers(&self, models: &[Option<Params>], room: &Room) -> Vec<Vec<u32>> {
        let trained: Vec<u32> = (0u32..).zip(models).filter(|(_, model)| model.is_some()).map(|(i, _)| i).collect();
        let mut peers = vec![Vec::new(); models.len()];
        let mut meet = |i: u32, j: u32| {
            peers[i as usize].push(j);
            peers[j as usize].push(i);
        };
        let others = |i: u32| -> Vec<u32> { trained.iter().copied().filter(|&j| j != i).collect() };
        let count = self.settings.peers;
        if self.settings.compare == Compare::All || count + 1 >= trained.len() {
            for (place, &j) in trained.iter().enumerate() {
                trained[..place].iter().for_each(|&i| meet(i, j));
            }
        } else {
            let near = if self.settings.compare == Compare::Neighbours { count / 2 } else { 0 };
            for &i in &trained {
                let others = others(i);
                let mut rng = self.trainer.key.clone().word("peers").word(&room.clients()[i as usize].id).rng();
                let drawn = index::sample(&mut rng, others.len(), (count - near).min(others.len()));
                drawn.iter().for_each(|place| meet(i, others[place]));
            }
            for &i in trained.iter().filter(|_| near > 0) {
                let pairs: Vec<(usize, usize)> = others(i).iter().map(|&j| (i as usize, j as usize)).collect();
                let mut others = apart(models, &pairs);
                others.sort_by(|a, b| a.2.total_cmp(&b.2));
                others.iter().take(near).for_each(|&(_, j, _)| meet(i, j as u32));
            }
        }
        for list in &mut peers {
            list.sort_unstable();
            list.dedup();
        }
        peers
    }
}

/// Whose training went astray: it was not finite, or its model is farther from all others than any loss can be.
fn astray(local: &LocalModels, distances: &Distances) -> Vec<bool> {
    let nearest = |client: usize| {
        let others = (0..distances.count()).filter(|&other| other != client);
        others.map(|other| distances.get(client, other)).fold(f64::INFINITY, f64::min)
    };
    let nearest: Vec<f64> = (0..distances.count()).map(nearest).collect();
    let usual = median(nearest.iter().copied().filter(|distance| distance.is_finite()));
    let is_beyond =
        |client: usize| local.models[client].is_some() && usual.is_some_and(|usual| exploded(usual, nearest[client]));
    (0..distances.count()).map(|client| local.garbage[client] || is_beyond(client)).collect()
}

/// Each pair of peers once.
fn pairs(peers: &[Vec<u32>]) -> Vec<(usize, usize)> {
    let of = |(i, list): (usize, &Vec<u32>)| {
        list.iter().map(|&j| j as usize).filter(|&j| j > i).map(|j| (i, j)).collect::<Vec<_>>()
    };
    peers.iter().enumerate().flat_map(of).collect()
}

/// Distances between the parameters of pairs that both have some.
fn apart(models: &[Option<Params>], pairs: &[(usize, usize)]) -> Vec<(usize, usize, f64)> {
    let measure = |&(i, j): &(usize, usize)| Some((i, j, distance(models[i].as_ref()?, models[j].as_ref()?)));
    pairs.par_iter().filter_map(measure).collect()
}

/// Line 2 for losses: f_i(w_j) of every client i and its peers j, in one ask.
fn try_others(models: &[Option<Params>], peers: &[Vec<u32>], room: &mut Room) -> Result<Vec<Vec<(u32, f64)>>> {
    let mut place = vec![0; models.len()];
    let mut sent = Vec::new();
    for (client, model) in models.iter().enumerate() {
        place[client] = sent.len();
        sent.extend(model.clone());
    }
    let mut ask = Ask::new(Phase::Start, sent, Gather::Each);
    let mut orders = Vec::new();
    for (client, list) in (0u32..).zip(peers).filter(|(_, list)| !list.is_empty()) {
        let of = list.iter().map(|&j| place[j as usize]).collect();
        orders.push(ask.order(Recipients::list(vec![client]), Losses { of, on: Portion::All }));
    }
    let mut losses = vec![Vec::new(); peers.len()];
    if orders.is_empty() {
        return Ok(losses);
    }
    let answers = room.ask_for_any(&ask)?;
    for (client, told) in orders.into_iter().flat_map(|order| answers.of(order).each().collect::<Vec<_>>()) {
        losses[client as usize] = peers[client as usize].iter().copied().zip(told).collect();
    }
    Ok(losses)
}
