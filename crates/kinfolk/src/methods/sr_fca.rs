//! SR-FCA, Successive Refinement Federated Clustering (Vardhan, Ghosh, Mazumdar: An improved federated clustering
//! algorithm with model-based clustering, 2024). Clusters from the bottom up, without a number of them and without a good
//! start: clients that learn alike are a cluster, and clusters are refined and merged.
//!
//! ```text
//!  1  C_0 ← ONE_SHOT(λ, t)                                            `bottom_up/`
//!  2  for r = 1 … R:                                                  REFINE
//!  3    each cluster c, from ω_c ← w_0, for T rounds:                 TrimmedMeanGD
//!  4      members of c train from ω_c and send their models           or gradients
//!  5      ω_c ← mean of every coordinate without the ⌊βJ⌋ smallest and largest of J
//!  6    each client i goes to argmin_c dist(w_i, ω_c)                 RECLUSTER
//!  7    clusters with dist(ω_c, ω_c') ≤ λ become one, ω the mean of theirs      MERGE
//!  8    clusters of fewer than t clients end; their clients go to the nearest of the others
//! ```
//!
//! dist is ‖·‖ of parameters, or the cross loss: between a client and a cluster ½(f_i(ω_c) + f_c(w_i)), between clusters
//! ½(f_c(ω_c') + f_c'(ω_c)), with f_c the mean of the members' losses. What clients lost with each other's models in line
//! 1 is remembered for line 6.
//!
//! Differences from the paper:
//! - λ can be left out (`bottom_up/`).
//! - line 3 begins at the mean of the members' w_i, and from the second REFINE on at ω_c as it is: what clients have learnt is
//!   not thrown away, and with the right clusters a fresh start is only another draw. `warm = false` begins at w_0 each time.
//! - the size in line 8 counts clients after merging; the paper's text would count clusters.
//! - a client without a w_i (it was silent, or diverged) is placed by f_i(ω_c) alone. One that diverged, or whose w_i is
//!   beyond all others, is served by its cluster; it is not asked to train in it, and its losses are not the cluster's.
//! - steps are not projected on a bounded set.
//! - `groups_by = "pivots"` is what the authors' program does in place of connected components.
//! - where no cluster forms at all, every client keeps its own model, and the run ends.

use super::bottom_up::{Alone, BottomUp, Compared, OneShot};
use super::room::{diverged, mean_loss};
use super::*;
use crate::aggregate::{trimmed, trimmed_mean};
use crate::clustering::threshold::Distances;
use crate::federation::OrderAnswers;
use crate::federation::work::{Gradient, Losses, Train};
use crate::linalg::{add_scaled, distance};

settings! {
    pub(super) struct SrFcaSettings {
        /// how often to refine, each time for all rounds
        refinements: usize [1..=1 << 16] = 2,
        /// share of the members left out at each end of every coordinate
        trim: f64 [0.0..0.5] = 0.15,
        /// what members send: a model after local steps, or a gradient
        averaging: Averaging = "models",
        /// begin with the mean of what members learnt alone, and go on from there, instead of beginning anew each time
        warm: bool = true,
        bottom_up: BottomUp,
    }

    fn check(&self, check: &mut Check) {
        self.bottom_up.training.check_averaging(self.averaging, check);
    }
}

impl MethodSettings for SrFcaSettings {
    const NAME: &str = "sr-fca";
    const SUMMARY: &str = "cluster clients that learn alike, train robustly inside, refine and merge";
    const PAPER: &str = "Vardhan, Ghosh, Mazumdar 2024";
    const HAS_CLUSTERS: bool = true;

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        Ok(Box::new(SrFca {
            start: odcl::common_start(&setup)?,
            step: setup.step(self.bottom_up.step),
            refinements: self.refinements,
            trim: self.trim,
            gradients: self.averaging == Averaging::Gradients,
            warm: self.warm,
            training: self.bottom_up.training.clone(),
            one_shot: OneShot::new(&setup, self.bottom_up)?,
            key: setup.key,
            state: State {
                alone: None,
                compared: None,
                models: Vec::new(),
                given: vec![None; setup.rows.len()],
                refined: 0,
                round: 0,
                notes: Vec::new(),
            },
        }))
    }
}

struct SrFca {
    one_shot: OneShot,
    /// w_0.
    start: Params,
    training: Training,
    step: f64,
    refinements: usize,
    /// β.
    trim: f64,
    gradients: bool,
    warm: bool,
    key: Key,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// The clients' own models, while somebody needs them.
    alone: Option<Alone>,
    compared: Option<Compared>,
    /// ω_c.
    models: Vec<Params>,
    /// The cluster of each client.
    given: Vec<Option<usize>>,
    /// How often all of REFINE is done.
    refined: usize,
    /// Rounds of line 3 in this REFINE.
    round: usize,
    notes: Vec<String>,
}

/// Where everybody is after lines 6 to 8.
struct Regrouped {
    given: Vec<Option<usize>>,
    models: Vec<Params>,
    /// How many clients are with others than before.
    switched: usize,
    merged: usize,
    ended: usize,
}

impl SrFca {
    /// Line 1.
    fn one_shot(&mut self, room: &mut Room) -> Result<Progress> {
        let alone = self.one_shot.train(room)?;
        let compared = self.one_shot.compare(&alone, room)?;
        self.state.given.clone_from(&compared.given);
        self.state.models = match self.warm {
            true => alone.means(&compared),
            false => vec![self.start.clone(); compared.clusters],
        };
        let progress =
            Progress { loss: alone.loss, switched: None, sizes: self.sizes(), finished: compared.clusters == 0 };
        (self.state.alone, self.state.compared) = (Some(alone), Some(compared));
        Ok(progress)
    }

    /// Lines 3 to 5, once.
    fn train(&mut self, room: &mut Room) -> Result<Option<f64>> {
        let round = self.state.refined * self.training.rounds + self.state.round;
        if self.state.round == 0 && !self.warm {
            self.state.models.fill(self.start.clone());
        }
        let asked = self.training.participants(&self.key, round, room);
        let members = |cluster: usize| -> Vec<u32> {
            let member = |client: &u32| {
                let at = *client as usize;
                self.state.given[at] == Some(cluster) && asked.contains(*client) && !self.strays(at)
            };
            (0..self.state.given.len() as u32).filter(member).collect()
        };
        let members: Vec<Vec<u32>> = (0..self.state.models.len()).map(members).collect();
        let robust = members.iter().any(|members| trimmed(self.trim, members.len()) > 0);
        let gather = match robust {
            true => Gather::Each,
            false => Gather::Sum { by: By::All, weight: Weight::Uniform },
        };
        let mut ask = Ask::new(Phase::Train, self.state.models.clone(), gather);
        let order = |(cluster, members): (usize, Vec<u32>)| {
            let to = Recipients::list(members);
            match self.gradients {
                true => ask.order(to, Gradient { of: cluster, sample: self.training.sample(&self.key, round) }),
                false => ask.order(to, Train::from_model(cluster, self.training.plan(&self.key, round, self.step))),
            }
        };
        let orders: Vec<_> = members.into_iter().enumerate().map(order).collect();
        let answers = room.ask(&ask)?;
        let losses = answers.losses(&orders);
        // One client that loses beyond all bounds is not everybody.
        let finite: Vec<f64> = losses.iter().copied().filter(|loss| loss.is_finite()).collect();
        if finite.is_empty() && !losses.is_empty() {
            return Err(diverged(room.round()));
        }
        let loss = room.watch(&finite)?;
        for (cluster, order) in answers.orders.iter().enumerate() {
            let absent =
                answers.missing.iter().filter(|missing| self.state.given[missing.client as usize] == Some(cluster));
            let absent = absent.count();
            let model = match robust {
                true => self.trimmed(&self.state.models[cluster], order, absent, round),
                false => self.plain(&self.state.models[cluster], &order.sums[0], absent, round),
            };
            if !model.iter().all(|value| value.is_finite()) {
                return Err(diverged(room.round()));
            }
            self.state.models[cluster] = model;
        }
        self.state.round += 1;
        Ok(loss)
    }

    /// Line 5 without trimming.
    fn plain(&self, old: &Params, sum: &Sum, absent: usize, round: usize) -> Params {
        if !self.gradients {
            return self.training.mean(old, sum, absent);
        }
        let standing = if self.training.missing == MissingRule::Keep { absent } else { 0 };
        let mut model = old.to_vec();
        if sum.count > 0 {
            let share = self.training.step_at(round, self.step) / (sum.count + standing) as f64;
            add_scaled(&mut model, -share, &sum.total);
        }
        Arc::new(model)
    }

    /// Line 5. What is not finite counts as missing.
    fn trimmed(&self, old: &Params, order: &OrderAnswers, absent: usize, round: usize) -> Params {
        let standing = if self.training.missing == MissingRule::Keep { absent } else { 0 };
        let still = if self.gradients { vec![0.0; old.len()] } else { old.to_vec() };
        let mut vectors: Vec<&[f64]> = (0..order.clients.len())
            .map(|place| order.vector(place))
            .filter(|vector| vector.iter().all(|value| value.is_finite()))
            .collect();
        vectors.extend(std::iter::repeat_n(&still[..], standing));
        if vectors.is_empty() {
            return old.clone();
        }
        let mean = trimmed_mean(&vectors, self.trim);
        if !self.gradients {
            return Arc::new(mean);
        }
        let mut model = old.to_vec();
        add_scaled(&mut model, -self.training.step_at(round, self.step), &mean);
        Arc::new(model)
    }

    /// Lines 6 to 8.
    fn regroup(&mut self, room: &mut Room) -> Result<Regrouped> {
        let tried = self.try_clusters(room)?;
        let apart = self.distances(&tried);
        let clusters = self.state.models.len();
        // Line 6; whoever said nothing stays.
        let mut given = self.state.given.clone();
        for (client, row) in apart.iter().enumerate() {
            if row.iter().any(|distance| distance.is_finite()) {
                given[client] = Some(crate::models::first_smallest(row.iter().copied()).position);
            }
        }
        let populated: Vec<usize> = (0..clusters).filter(|&c| given.contains(&Some(c))).collect();
        let Some(Compared { lambda, .. }) = self.state.compared else { unreachable!("ONE_SHOT comes first") };
        let groups = self.one_shot.groups(&self.between(&populated, &given, &tried), lambda);
        // Line 7: the group of every cluster.
        let mut group_of = vec![None; clusters];
        populated.iter().zip(&groups).for_each(|(&cluster, &group)| group_of[cluster] = Some(group));
        let count = groups.iter().max().map_or(0, |last| last + 1);
        let sizes = sizes_of(count, given.iter().flatten().filter_map(|&cluster| group_of[cluster]));
        // Line 8; where none is large enough the largest goes on.
        let largest = sizes.iter().max().copied().unwrap_or(0);
        let enough = self.one_shot.settings.min_size.min(largest);
        let survives = |group: usize| sizes[group] >= enough;
        let place = |client: usize| -> Option<usize> {
            let group = group_of[given[client]?]?;
            if survives(group) {
                return Some(group);
            }
            let alive = |cluster: usize| group_of[cluster].is_some_and(survives);
            let known = |cluster: usize| apart[client].get(cluster).copied().unwrap_or(f64::INFINITY);
            let reach = |cluster: usize| if alive(cluster) { known(cluster) } else { f64::INFINITY };
            group_of[crate::models::first_smallest((0..clusters).map(reach)).position].filter(|&group| survives(group))
        };
        let placed: Vec<Option<usize>> = (0..given.len()).map(place).collect();
        let mut names: Vec<Option<usize>> = vec![None; count];
        let mut order = Vec::new();
        for group in placed.iter().flatten() {
            if names[*group].is_none() {
                names[*group] = Some(order.len());
                order.push(*group);
            }
        }
        let model = |group: &usize| {
            let members: Vec<usize> = (0..clusters).filter(|&cluster| group_of[cluster] == Some(*group)).collect();
            let mut mean = vec![0.0; self.start.len()];
            for &cluster in &members {
                add_scaled(&mut mean, 1.0 / members.len() as f64, &self.state.models[cluster]);
            }
            Arc::new(mean)
        };
        let new: Vec<Option<usize>> = placed.iter().map(|group| group.and_then(|group| names[group])).collect();
        let before = |client: usize| self.state.given[client].and_then(|c| group_of[c]).and_then(|g| names[g]);
        Ok(Regrouped {
            switched: (0..new.len()).filter(|&client| new[client] != before(client)).count(),
            merged: populated.len() - count,
            ended: count - order.len(),
            models: order.iter().map(model).collect(),
            given: new,
        })
    }

    /// Whether a client's training went astray in ONE_SHOT: it is served, and not asked to train again.
    fn strays(&self, client: usize) -> bool {
        self.state.compared.as_ref().is_some_and(|compared| compared.astray[client])
    }

    /// f_i(ω_c) of every client that said so, for those whose distances need it.
    fn try_clusters(&mut self, room: &mut Room) -> Result<Vec<Vec<f64>>> {
        let everybody = self.state.given.len();
        let unknown = |client: &u32| match &self.state.alone {
            Some(alone) => alone.models[*client as usize].is_none(),
            None => true,
        };
        let to = match self.one_shot.by_losses() {
            true => Recipients::All,
            false => Recipients::list((0..everybody as u32).filter(unknown).collect()),
        };
        let mut tried = vec![Vec::new(); everybody];
        if to.among(everybody).count() == 0 {
            return Ok(tried);
        }
        let mut ask = Ask::new(Phase::Train, self.state.models.clone(), Gather::Each);
        let order = ask.order(to, Losses { of: (0..self.state.models.len()).collect(), on: Portion::All });
        for (client, losses) in room.ask_for_any(&ask)?.of(order).each() {
            tried[client as usize] = losses;
        }
        Ok(tried)
    }

    /// dist(w_i, ω_c) of every client and cluster; empty for a client of which nothing is known.
    fn distances(&self, tried: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let clusters = self.state.models.len();
        if !self.one_shot.by_losses() {
            let own = |client: usize| self.state.alone.as_ref().and_then(|alone| alone.models[client].as_ref());
            let row = |client: usize| match own(client) {
                Some(own) => self.state.models.iter().map(|model| distance(own, model)).collect(),
                None => tried[client].clone(),
            };
            return (0..tried.len()).map(row).collect();
        }
        // f_c(w_i): what the members of c lost with i's model in ONE_SHOT.
        let mut lost = vec![vec![(0.0, 0usize); clusters]; tried.len()];
        let remembered = self.state.compared.iter().flat_map(|compared| compared.losses.iter().enumerate());
        for (member, losses) in remembered {
            let Some(cluster) = self.state.given[member].filter(|_| !self.strays(member)) else { continue };
            for &(client, loss) in losses {
                let (sum, count) = &mut lost[client as usize][cluster];
                (*sum, *count) = (*sum + loss, *count + 1);
            }
        }
        let row = |(tried, lost): (&Vec<f64>, &Vec<(f64, usize)>)| -> Vec<f64> {
            if lost.iter().any(|(_, count)| *count == 0) {
                return tried.clone();
            }
            tried.iter().zip(lost).map(|(tried, (sum, count))| 0.5 * (tried + sum / *count as f64)).collect()
        };
        tried.iter().zip(&lost).map(row).collect()
    }

    /// dist(ω_c, ω_c') of these clusters.
    fn between(&self, clusters: &[usize], given: &[Option<usize>], tried: &[Vec<f64>]) -> Distances {
        let mut distances = Distances::unknown(clusters.len());
        let loss = |of: usize, with: usize| {
            let speaks = |client: &usize| !tried[*client].is_empty() && !self.strays(*client);
            let members = (0..given.len()).filter(|client| given[*client] == Some(of) && speaks(client));
            let losses: Vec<f64> = members.map(|client| tried[client][with]).collect();
            mean_loss(&losses).unwrap_or(f64::INFINITY)
        };
        for (b, &second) in clusters.iter().enumerate() {
            for (a, &first) in clusters.iter().enumerate().take(b) {
                let value = match self.one_shot.by_losses() {
                    true => 0.5 * (loss(first, second) + loss(second, first)),
                    false => distance(&self.state.models[first], &self.state.models[second]),
                };
                distances.set(a, b, value);
            }
        }
        distances
    }

    fn sizes(&self) -> Vec<usize> {
        sizes_of(self.state.models.len(), self.state.given.iter().flatten().copied())
    }
}

impl Method for SrFca {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        if self.state.compared.is_none() {
            return self.one_shot(room);
        }
        if self.one_shot.by_losses() {
            self.state.alone = None;
        }
        if self.state.round == self.training.rounds {
            self.state.round = 0;
        }
        let loss = self.train(room)?;
        if self.state.round < self.training.rounds {
            return Ok(Progress { loss, switched: None, sizes: self.sizes(), finished: false });
        }
        let Regrouped { given, models, switched, merged, ended } = self.regroup(room)?;
        (self.state.given, self.state.models) = (given, models);
        self.state.refined += 1;
        for (count, what) in [(merged, "merged with others"), (ended, "ended for lack of clients")] {
            if count > 0 {
                self.state.notes.push(format!("refinement {}: {count} clusters {what}", self.state.refined));
            }
        }
        let finished = self.state.refined >= self.refinements;
        Ok(Progress { loss, switched: Some(switched), sizes: self.sizes(), finished })
    }

    fn planned_rounds(&self) -> usize {
        1 + self.refinements * self.training.rounds
    }

    fn stage(&self) -> Option<String> {
        match (&self.state.compared, self.state.refined, self.state.round) {
            (Some(_), 0, 0) => Some("one_shot".into()),
            (_, refined, round) if refined > 0 && round == self.training.rounds => Some(format!("refine_{refined}")),
            _ => None,
        }
    }

    fn outcome(&self) -> Outcome {
        let untrained = self.state.refined == 0 && self.state.round == 0;
        let mut outcome = match (&self.state.alone, &self.state.compared) {
            (Some(alone), Some(compared)) if untrained => alone.outcome(compared.clusters > 0),
            _ => Outcome {
                models: self.state.models.clone(),
                clustered: true,
                serving: Serving::Given(self.state.given.clone()),
                ..Outcome::default()
            },
        };
        if let Some(compared) = &self.state.compared {
            compared.describe(&mut outcome);
        }
        outcome.notes.extend(self.state.notes.iter().cloned());
        outcome
    }

    keep_state!();
}
