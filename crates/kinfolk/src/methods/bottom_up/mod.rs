//! ONE_SHOT, which methods share that build clusters from single clients: everybody trains alone from one common model,
//! the models are compared, and those close to each other are a cluster.
//!
//! ```text
//! 1  each client i: w_i ← local training from w_0
//! 2  dist(w_i, w_j) for all pairs, or for some
//! 3  λ ← given, or from the distances                                `clustering/levels.rs`
//! 4  C_0 ← groups of at least t clients in the graph of all pairs with dist ≤ λ
//! ```
//!
//! `distance = "l2"` is ‖w_i − w_j‖ and needs nobody's help. `"cross-loss"` is ½(f_i(w_j) + f_j(w_i)): every client tries
//! the others' models in one ask, m(m − 1) models down for m clients. `compare` lets many clients try fewer.

use super::*;
use crate::clustering::threshold::{Distances, Threshold, short};
use crate::federation::Absence;
use crate::federation::work::Losses;
use crate::linalg::{add_scaled, distance};
use crate::methods::room::{diverged, exploded, mean_loss};
use rand::seq::index;
use rayon::prelude::*;

choices! {
    /// How far apart two models are.
    pub(super) enum DistanceBy { CrossLoss = "cross-loss", L2 = "l2" }
    /// How λ is found.
    pub(super) enum LambdaRule { Gap = "gap", Quantile = "quantile" }
    /// Which clients are a group.
    pub(super) enum GroupsBy { Components = "components", Pivots = "pivots" }
    /// Whom a client is compared with.
    pub(super) enum Compare { All = "all", Sample = "sample", Neighbours = "neighbours" }
}

settings! {
    /// How clusters are built from single clients.
    pub(super) struct BottomUp {
        /// step size; auto is safe on this data for full batches of a linear model, 0.1 for a network, 0.01 for adam
        step: Auto<f64> [above 0.0] = "auto",
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
        training: Training,
    }
}

/// Lines 1 to 4, ready to run.
pub(super) struct OneShot {
    solve: odcl::Solve,
    pub(super) settings: BottomUp,
    key: Key,
}

/// What every client learnt alone.
#[derive(Serialize, Deserialize)]
pub(super) struct Alone {
    /// w_i; `None` of a client that did not answer or whose training diverged.
    pub(super) models: Vec<Option<Params>>,
    /// Whose answer was none: not finite, or garbage.
    garbage: Vec<bool>,
    /// Mean loss before the first step.
    pub(super) loss: Option<f64>,
}

/// Who is close to whom.
#[derive(Serialize, Deserialize)]
pub(super) struct Compared {
    /// C_0: the cluster of each client, numbered in the order of their first members.
    pub(super) given: Vec<Option<usize>>,
    pub(super) clusters: usize,
    /// Whose training went astray: it diverged, or its model is beyond all others.
    pub(super) astray: Vec<bool>,
    /// λ.
    pub(super) lambda: f64,
    /// What each client i loses with others' models: j and f_i(w_j), ascending; empty for `l2`.
    pub(super) losses: Vec<Vec<(u32, f64)>>,
    pub(super) comparison: Comparison,
    pub(super) notes: Vec<String>,
    pub(super) extra: BTreeMap<String, f64>,
}

impl Alone {
    /// Everybody served by what it learnt alone.
    pub(super) fn outcome(&self, converged: bool) -> Outcome {
        let mut next = 0..;
        Outcome {
            serving: Serving::Given(self.models.iter().map(|model| model.as_ref().and_then(|_| next.next())).collect()),
            models: self.models.iter().flatten().cloned().collect(),
            converged,
            ..Outcome::default()
        }
    }

    /// The mean of the w_i of every cluster of C_0.
    pub(super) fn means(&self, compared: &Compared) -> Vec<Params> {
        let mean = |cluster: usize| {
            let given = compared.given.iter().zip(&self.models).filter(|(given, _)| **given == Some(cluster));
            let members: Vec<&Params> = given.filter_map(|(_, model)| model.as_ref()).collect();
            let mut mean = vec![0.0; members.first().map_or(0, |model| model.len())];
            members.iter().for_each(|model| add_scaled(&mut mean, 1.0 / members.len() as f64, model));
            Arc::new(mean)
        };
        (0..compared.clusters).map(mean).collect()
    }
}

impl Compared {
    /// Clients in every cluster of C_0.
    pub(super) fn sizes(&self) -> Vec<usize> {
        sizes_of(self.clusters, self.given.iter().flatten().copied())
    }

    /// Adds what was found to an outcome.
    pub(super) fn describe(&self, outcome: &mut Outcome) {
        outcome.notes.extend(self.notes.iter().cloned());
        outcome.extra.extend(self.extra.clone());
        outcome.comparison = Some(self.comparison.clone());
    }
}

impl OneShot {
    pub(super) fn new(setup: &Setup, settings: BottomUp) -> Result<Self> {
        setup.want_clients("min_size", settings.min_size)?;
        setup.want_room_for_pairs(size_of::<f64>())?;
        let solve = match (settings.one_shot_steps, setup.model.convex().is_some()) {
            (None, true) => odcl::Solve::Exact { ridge: settings.training.optimising.weight_decay },
            (steps, _) => {
                let key = setup.key.clone().word("one-shot");
                let mut plan = settings.training.plan(&key, 0, setup.step(settings.step));
                plan.amount = Amount::Steps(steps.unwrap_or(250));
                odcl::Solve::Steps { from: odcl::common_start(setup)?, plan }
            }
        };
        Ok(Self { solve, settings, key: setup.key.clone() })
    }

    /// Whether models are compared by what they lose on each other's rows.
    pub(super) fn by_losses(&self) -> bool {
        self.settings.distance == DistanceBy::CrossLoss
    }

    /// Line 1.
    pub(super) fn train(&self, room: &mut Room) -> Result<Alone> {
        let (answers, order) = self.solve.ask_everybody(Phase::Start, room)?;
        let order = answers.of(order);
        let mut models = vec![None; room.clients().len()];
        let mut garbage = vec![false; models.len()];
        for missing in answers.missing.iter().filter(|missing| missing.reason == Absence::Garbage) {
            garbage[missing.client as usize] = true;
        }
        for (place, &client) in order.clients.iter().enumerate() {
            let model = order.vector(place);
            match model.iter().all(|value| value.is_finite()) {
                true => models[client as usize] = Some(Arc::new(model.to_vec())),
                false => garbage[client as usize] = true,
            }
        }
        if models.iter().all(Option::is_none) {
            return Err(match garbage.contains(&true) {
                true => diverged(0),
                false => Error::new(ErrorKind::Client, "0 clients answered, want at least 1")
                    .hint("there is only one round to train alone in"),
            });
        }
        Ok(Alone { models, garbage, loss: mean_loss(&order.losses()).filter(|loss| loss.is_finite()) })
    }

    /// Lines 2 to 4.
    pub(super) fn compare(&self, alone: &Alone, room: &mut Room) -> Result<Compared> {
        let count = alone.models.len();
        let peers = self.peers(alone, room);
        let mut distances = Distances::unknown(count);
        let mut losses = vec![Vec::new(); count];
        if self.by_losses() {
            losses = try_others(alone, &peers, room)?;
            let known = |i: usize, j: usize| losses[i].binary_search_by_key(&(j as u32), |&(other, _)| other).ok();
            for (i, j) in pairs(&peers) {
                // Where one of the two did not answer, the other's word stands for both.
                let told = [known(i, j).map(|a| losses[i][a].1), known(j, i).map(|b| losses[j][b].1)];
                if let Some(distance) = mean_loss(&told.into_iter().flatten().collect::<Vec<_>>()) {
                    distances.set(i, j, distance);
                }
            }
        } else {
            apart(&alone.models, &pairs(&peers)).into_iter().for_each(|(i, j, value)| distances.set(i, j, value));
        }
        let threshold = self.threshold(&distances)?;
        let labels = self.groups(&distances, threshold.value);
        Ok(self.describe(alone, &distances, threshold, &labels, losses))
    }

    /// The groups of line 4, and of clusters that are merged.
    pub(super) fn groups(&self, distances: &Distances, lambda: f64) -> Vec<usize> {
        match self.settings.groups_by {
            GroupsBy::Components => distances.components(lambda),
            GroupsBy::Pivots => distances.pivots(lambda, &self.key.clone().word("pivots")),
        }
    }

    /// Line 3.
    fn threshold(&self, distances: &Distances) -> Result<Threshold> {
        let quantile = (self.settings.lambda_rule == LambdaRule::Quantile).then_some(self.settings.quantile);
        match (self.settings.lambda, quantile) {
            (Some(value), _) => Ok(Threshold { value, separability: None, overlap: false, reason: "as given".into() }),
            // Somebody alone is a cluster by itself, whatever lambda is.
            _ if distances.count() == 1 => {
                let reason = "one client is one cluster".into();
                Ok(Threshold { value: f64::INFINITY, separability: None, overlap: false, reason })
            }
            (None, Some(share)) => distances.quantile(share),
            (None, None) => distances.threshold(),
        }
    }

    /// Drops small groups, and says what was found.
    fn describe(
        &self,
        alone: &Alone,
        distances: &Distances,
        threshold: Threshold,
        labels: &[usize],
        losses: Vec<Vec<(u32, f64)>>,
    ) -> Compared {
        let learnt = |client: usize| alone.models[client].is_some();
        let members = (0..labels.len()).filter(|&client| learnt(client)).map(|client| labels[client]);
        let sizes = sizes_of(labels.len(), members);
        let mut names = vec![None; sizes.len()];
        let mut clusters = 0;
        let mut given = vec![None; labels.len()];
        for (client, &label) in labels.iter().enumerate().filter(|(client, _)| learnt(*client)) {
            if sizes[label] >= self.settings.min_size {
                given[client] = *names[label].get_or_insert_with(|| {
                    clusters += 1;
                    Some(clusters - 1)
                });
            }
        }
        let mut notes = Vec::new();
        let known: Vec<f64> = distances.sorted();
        let range = match (known.first(), known.last()) {
            (Some(&least), Some(&most)) => format!("distances from {} to {}", short(least), short(most)),
            _ => "no finite distance".to_string(),
        };
        let lambda = match threshold.value.is_finite() {
            true => format!("lambda {}", short(threshold.value)),
            false => "lambda beyond all distances".to_string(),
        };
        notes.push(format!("{lambda}: {} ({range})", threshold.reason));
        if threshold.overlap {
            notes.push(
                "the clusters overlap: some clients are farther from members of their own than others from another's; compare with a larger and a smaller lambda"
                    .to_string(),
            );
        }
        if clusters == 1 && threshold.value.is_finite() && alone.models.len() > 1 {
            notes.push(
                "one cluster: all groups are connected within lambda (take a smaller lambda, or groups_by = \"pivots\")"
                    .to_string(),
            );
        }
        let astray = astray(alone, distances);
        let strays = astray.iter().filter(|astray| **astray).count();
        if strays > 0 {
            notes
                .push(format!("{strays} clients diverged or are beyond all others; they are served, but do not train"));
        }
        let untrained = alone.models.iter().filter(|model| model.is_none()).count();
        if untrained > 0 {
            notes.push(format!("{untrained} clients have no model of their own: they did not answer, or diverged"));
        }
        let alone = given.iter().filter(|given| given.is_none()).count() - untrained;
        if clusters == 0 {
            let largest = sizes.iter().max().copied().unwrap_or(0);
            notes.push(format!(
                "no cluster: the largest group within lambda has {largest}, want at least {} clients; every client keeps its own model (leave lambda out, or take a larger one, or a smaller min_size)",
                self.settings.min_size
            ));
        } else if alone > 0 {
            notes.push(format!("{alone} clients were in no group of at least {} at first", self.settings.min_size));
        }
        let mut extra = BTreeMap::new();
        extra.insert("lambda".to_string(), threshold.value);
        extra.extend(threshold.separability.map(|share| ("separability".to_string(), share)));
        extra.insert("clusters_at_first".to_string(), clusters as f64);
        extra.insert("unclustered_at_first".to_string(), (alone + untrained) as f64);
        let comparison = Comparison {
            pairs: distances.pairs().map(|(a, b, value)| (a as u32, b as u32, value)).collect(),
            lambda: threshold.value.is_finite().then_some(threshold.value),
            reason: threshold.reason,
        };
        Compared { given, clusters, astray, lambda: threshold.value, losses, comparison, notes, extra }
    }

    /// Whose models each client tries, ascending; two clients always try each other's.
    fn peers(&self, alone: &Alone, room: &Room) -> Vec<Vec<u32>> {
        let learnt: Vec<u32> =
            (0u32..).zip(&alone.models).filter(|(_, model)| model.is_some()).map(|(i, _)| i).collect();
        let mut peers = vec![Vec::new(); alone.models.len()];
        let mut meet = |i: u32, j: u32| {
            peers[i as usize].push(j);
            peers[j as usize].push(i);
        };
        let others = |i: u32| -> Vec<u32> { learnt.iter().copied().filter(|&j| j != i).collect() };
        let draw = |i: u32, count: usize| -> Vec<u32> {
            let mut rng = self.key.clone().word("peers").word(&room.clients()[i as usize].id).rng();
            let others = others(i);
            index::sample(&mut rng, others.len(), count.min(others.len())).iter().map(|place| others[place]).collect()
        };
        let count = self.settings.peers;
        match self.settings.compare {
            Compare::Sample | Compare::Neighbours if count + 1 < learnt.len() => {
                let near = match self.settings.compare {
                    Compare::Neighbours => count / 2,
                    _ => 0,
                };
                for &i in &learnt {
                    draw(i, count - near).into_iter().for_each(|j| meet(i, j));
                }
                if near > 0 {
                    let nearest = |&i: &u32| {
                        let mut others = apart(
                            &alone.models,
                            &others(i).iter().map(|&j| (i as usize, j as usize)).collect::<Vec<_>>(),
                        );
                        others.sort_by(|a, b| a.2.total_cmp(&b.2));
                        others.truncate(near);
                        others
                    };
                    learnt.iter().flat_map(nearest).for_each(|(i, j, _)| meet(i as u32, j as u32));
                }
            }
            _ => {
                for (place, &j) in learnt.iter().enumerate() {
                    learnt[..place].iter().for_each(|&i| meet(i, j));
                }
            }
        }
        for list in &mut peers {
            list.sort_unstable();
            list.dedup();
        }
        peers
    }
}

/// Whose training went astray: it was not finite, or its model is farther from everybody than any loss can be.
fn astray(alone: &Alone, distances: &Distances) -> Vec<bool> {
    let nearest = |client: usize| {
        let others = (0..distances.count()).filter(|&other| other != client);
        others.map(|other| distances.get(client, other)).fold(f64::INFINITY, f64::min)
    };
    let mut usual: Vec<f64> = (0..distances.count()).map(nearest).filter(|distance| distance.is_finite()).collect();
    usual.sort_by(f64::total_cmp);
    let usual = usual.get(usual.len() / 2).copied().unwrap_or(f64::INFINITY);
    let beyond =
        |client: usize| alone.models[client].is_some() && exploded(usual, nearest(client)) && usual.is_finite();
    (0..distances.count()).map(|client| alone.garbage[client] || beyond(client)).collect()
}

/// Each pair of peers once.
fn pairs(peers: &[Vec<u32>]) -> Vec<(usize, usize)> {
    let of = |(i, list): (usize, &Vec<u32>)| {
        list.iter().map(|&j| j as usize).filter(|&j| j > i).map(|j| (i, j)).collect::<Vec<_>>()
    };
    peers.iter().enumerate().flat_map(of).collect()
}

/// Distances of parameters of pairs that both have some.
fn apart(models: &[Option<Params>], pairs: &[(usize, usize)]) -> Vec<(usize, usize, f64)> {
    let measure = |&(i, j): &(usize, usize)| Some((i, j, distance(models[i].as_ref()?, models[j].as_ref()?)));
    pairs.par_iter().filter_map(measure).collect()
}

/// Line 2 for losses: f_i(w_j) of every client i and its peers j, in one ask.
fn try_others(alone: &Alone, peers: &[Vec<u32>], room: &mut Room) -> Result<Vec<Vec<(u32, f64)>>> {
    let mut place = vec![0; alone.models.len()];
    let mut models = Vec::new();
    for (client, model) in alone.models.iter().enumerate() {
        place[client] = models.len();
        models.extend(model.clone());
    }
    let mut ask = Ask::new(Phase::Start, models, Gather::Each);
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
