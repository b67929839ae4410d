//! SR-FCA, Successive Refinement Federated Clustering (Vardhan, Ghosh, Mazumdar: An improved federated clustering
//! algorithm with model-based clustering, 2024). Clusters from the bottom up, without a number of them and without a good
//! start: clients that learn alike are a cluster, and clusters are refined and merged.
//!
//! ```text
//!  1  C_0 ← ONE_SHOT(λ, t)                                            `parts/one_shot.rs`
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
//! - λ can be left out (`parts/one_shot.rs`).
//! - line 3 begins at the mean of the members' w_i, and from the second REFINE on at ω_c as it is: what clients have learnt is
//!   not thrown away, and with the right clusters a fresh start is only another draw. `warm = false` begins at w_0 each time.
//! - `aggregate` puts another rule in place of line 5.
//! - the size in line 8 counts clients after merging; the paper's text would count clusters.
//! - a client without a w_i (it was silent, or diverged) is placed by f_i(ω_c) alone. One that diverged, or whose w_i is
//!   beyond all others, is served by its cluster; it is not asked to train in it, and its losses are not the cluster's.
//! - steps are not projected on a bounded set.
//! - `groups_by = "pivots"` is what the authors' program does in place of connected components.
//! - where no cluster forms at all, every client keeps its own model, and the run ends.

use super::parts::aggregating::Rule;
use super::parts::averaging::{Averaging, plain_mean};
use super::parts::cluster_models::losses;
use super::parts::one_shot::{BottomUp, FirstClusters, OneShot};
use super::room::diverged;
use super::*;
use crate::aggregate::robust::{trimmed, trimmed_mean};
use crate::clustering::threshold::Distances;
use crate::federation::work::{Gradient, Losses};
use crate::models::first_smallest;
use crate::num::distance;

settings! {
    /// The settings of the method `sr-fca`.
    pub struct SrFcaSettings {
        /// how often to refine, each time for all rounds
        refinements: usize [1..=1 << 16] = 2,
        /// share of the members left out at each end of every coordinate
        #[only_with(aggregate = "mean")]
        trim: f64 [0.0..0.5] = 0.15,
        /// what members send: a model after local steps, or a gradient
        averaging: Averaging = "models",
        /// begin with the mean of what members learnt alone, and go on from there, instead of beginning anew each time
        warm: bool = true,
        /// how clusters are built from single clients
        bottom_up: BottomUp,
        /// what becomes of what members send in place of line 5
        aggregating: Aggregating,
    }

    fn check(&self, check: &mut Check) {
        self.averaging.check(check);
    }
}

impl MethodSettings for SrFcaSettings {
    const NAME: &str = "sr-fca";
    const SUMMARY: &str = "cluster clients that learn alike, train robustly inside, refine and merge";
    const PAPER: &str = "Vardhan, Ghosh, Mazumdar 2024";
    const SHOWS_ROWS: &str =
        "its clients answer with their losses for the models of others, and λ comes from distances that are private";
    const HAS_CLUSTERS: bool = true;
    const WANTS_SINGLE: Option<&'static str> = Some("it compares the clients' own models");

    fn needs(&self) -> Needs {
        self.bottom_up.training.needs()
    }

    fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        let rounds = self.bottom_up.training.schedule.rounds.saturating_mul(self.refinements);
        let (what, told) =
            ("the mean of models in each cluster", if self.trim > 0.0 { Told::Single } else { Told::Sums });
        let training = match self.averaging {
            Averaging::Gradients => Disclosure::single::<Gradient>(Phase::Train, rounds, what),
            _ => Disclosure::single::<Train>(Phase::Train, rounds, what),
        };
        let mut all = self.bottom_up.discloses(ability);
        all.push(Disclosure { told, ..training });
        all.push(Disclosure::single::<Losses>(Phase::Train, self.refinements, "who belongs to which cluster"));
        all
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let mut one_shot = OneShot::new(&setup, self.bottom_up)?;
        one_shot.trainer.aggregating = self.aggregating;
        Ok(Box::new(SrFca {
            start: setup.common_start()?,
            refinements: self.refinements,
            trim: self.trim,
            gradients: self.averaging == Averaging::Gradients,
            warm: self.warm,
            one_shot,
            state: State { clusters: Assignment::none(0, setup.rows.len()), ..State::default() },
        }))
    }
}

struct SrFca {
    one_shot: OneShot,
    /// w_0.
    start: Params,
    refinements: usize,
    /// β.
    trim: f64,
    gradients: bool,
    warm: bool,
    state: State,
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    /// C_0; without the local models once they are no longer needed.
    first: Option<FirstClusters>,
    /// ω_c.
    models: Vec<Params>,
    clusters: Assignment,
    /// Completed REFINEs.
    refined: usize,
    /// Rounds of line 3 in this REFINE.
    round: usize,
    notes: Vec<String>,
}

/// The clusters after lines 6 to 8.
struct Regrouped {
    clusters: Assignment,
    models: Vec<Params>,
    /// Number of clients that changed cluster.
    switched: usize,
    merged: usize,
    ended: usize,
}

impl SrFca {
    fn trainer(&self) -> &Trainer {
        &self.one_shot.trainer
    }

    /// Line 1.
    fn one_shot(&mut self, room: &mut Room) -> Result<Progress> {
        let first = self.one_shot.run(room)?;
        self.state.clusters.clone_from(&first.clusters);
        self.state.models = if self.warm { first.means() } else { vec![self.start.clone(); first.clusters.clusters()] };
        Ok(self.state.first.insert(first).progress())
    }

    /// Lines 3 to 5, once.
    fn train(&mut self, room: &mut Room) -> Result<Option<f64>> {
        let round = self.state.refined * self.trainer().schedule.rounds + self.state.round;
        if self.state.round == 0 && !self.warm {
            self.state.models.fill(self.start.clone());
        }
        let asked = self.trainer().participants(round, room);
        let members = |cluster: usize| -> Vec<u32> {
            let mut members = self.state.clusters.members(cluster);
            members.retain(|&client| asked.contains(client) && !self.is_astray(client));
            members
        };
        let members: Vec<Vec<u32>> = (0..self.state.models.len()).map(members).collect();
        let trims = self.trainer().aggregating.aggregate == Rule::Mean
            && members.iter().any(|members| trimmed(self.trim, members.len()) > 0);
        let gather = if trims { Gather::Each } else { self.trainer().gather(By::All, Weight::Uniform) };
        let mut ask = Ask::new(Phase::Train, self.state.models.clone(), gather);
        let order = |(cluster, members): (usize, Vec<u32>)| {
            let to = Recipients::list(members);
            let order = match self.gradients {
                true => ask.order(to, Gradient { of: cluster, sample: self.trainer().sample(round) }),
                false => ask.order(to, Train::from_model(cluster, self.trainer().plan(round))),
            };
            (cluster, order)
        };
        let orders: Vec<_> = members.into_iter().enumerate().map(order).collect();
        let answers = room.ask(&ask)?;
        let losses = losses(&answers, &orders);
        // One client that loses beyond all bounds is not everybody.
        let finite: Vec<f64> = losses.iter().copied().filter(|loss| loss.is_finite()).collect();
        if finite.is_empty() && !losses.is_empty() {
            return Err(diverged(room.round()));
        }
        let loss = room.check_loss(&finite)?;
        let nothing = Arc::new(vec![0.0; self.start.len()]);
        let before = match self.gradients {
            true => vec![nothing; self.state.models.len()],
            false => self.state.models.clone(),
        };
        let sums = self.trainer().sums(Weight::Uniform, &before, &answers, &orders);
        for (cluster, order) in answers.orders.iter().enumerate() {
            let unchanged = room.unchanged(absent_from(cluster, &self.state.clusters, &answers));
            let old = &self.state.models[cluster];
            let model = match trims {
                true => self.trimmed(old, order, unchanged, round),
                false => self.plain(old, &sums[cluster], unchanged, round),
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
    fn plain(&self, old: &Params, sum: &Sum, unchanged: usize, round: usize) -> Params {
        if !self.gradients || sum.count == 0 {
            return mean_model(old, sum, unchanged);
        }
        let mut model = old.to_vec();
        add_scaled(&mut model, -self.trainer().step_in(round) / (sum.count + unchanged) as f64, &sum.total);
        Arc::new(model)
    }

    /// Line 5. Vectors that are not finite count as missing.
    fn trimmed(&self, old: &Params, order: &OrderAnswers, unchanged: usize, round: usize) -> Params {
        let still = if self.gradients { vec![0.0; old.len()] } else { old.to_vec() };
        let mut vectors: Vec<&[f64]> = finite_vectors(order).map(|(_, vector)| vector).collect();
        vectors.extend(std::iter::repeat_n(&still[..], unchanged));
        if vectors.is_empty() {
            return old.clone();
        }
        let mean = trimmed_mean(&vectors, trimmed(self.trim, vectors.len()));
        if !self.gradients {
            return Arc::new(mean);
        }
        let mut model = old.to_vec();
        add_scaled(&mut model, -self.trainer().step_in(round), &mean);
        Arc::new(model)
    }

    /// Lines 6 to 8.
    fn regroup(&self, room: &mut Room) -> Result<Regrouped> {
        let losses = self.try_clusters(room)?;
        let apart = self.distances(&losses);
        let count = self.state.models.len();
        // Line 6; a client that did not answer stays.
        let mut nearest = self.state.clusters.clone();
        for (client, row) in (0..).zip(&apart).filter(|(_, row)| row.iter().any(|distance| distance.is_finite())) {
            nearest.put(client, first_smallest(row.iter().copied()).position);
        }
        // Line 7: the group of every cluster.
        let sizes = nearest.sizes();
        let populated: Vec<usize> = (0..count).filter(|&cluster| sizes[cluster] > 0).collect();
        let lambda = self.state.first.as_ref().map_or(0.0, |first| first.lambda);
        let mut groups = Assignment::none(0, count);
        let labels = self.one_shot.groups(&self.between(&populated, &nearest, &losses), lambda);
        populated.iter().zip(labels).for_each(|(&cluster, group)| {
            groups.put(cluster as u32, group);
        });
        let group_of = |cluster: usize| groups.of(cluster as u32);
        let merged: Assignment = nearest.each().iter().map(|cluster| cluster.and_then(group_of)).collect();
        // Line 8; if no group is large enough the largest goes on.
        let sizes = merged.sizes();
        let enough = self.one_shot.settings.min_size.min(sizes.iter().max().copied().unwrap_or(0));
        let survives = |group: &usize| sizes[*group] >= enough;
        let place = |(client, group): (usize, &Option<usize>)| -> Option<usize> {
            let group = (*group)?;
            if survives(&group) {
                return Some(group);
            }
            let reach = |cluster: usize| match group_of(cluster).filter(survives) {
                Some(_) => apart[client].get(cluster).copied().unwrap_or(f64::INFINITY),
                None => f64::INFINITY,
            };
            group_of(first_smallest((0..count).map(reach)).position).filter(survives)
        };
        let placed: Assignment = merged.each().iter().enumerate().map(place).collect();
        let (clusters, surviving) = placed.renumbered();
        let model = |group: &usize| {
            plain_mean(groups.members(*group).iter().map(|&cluster| &self.state.models[cluster as usize]))
        };
        let number = |group: usize| surviving.iter().position(|other| *other == group);
        let before = self.state.clusters.each().iter().map(|cluster| cluster.and_then(group_of).and_then(number));
        Ok(Regrouped {
            switched: clusters.each().iter().zip(before).filter(|(new, before)| **new != *before).count(),
            merged: populated.len() - groups.clusters(),
            ended: groups.clusters() - surviving.len(),
            models: surviving.iter().map(model).collect(),
            clusters,
        })
    }

    /// Whether a client's training went astray in ONE_SHOT: it is served, but no longer trains.
    fn is_astray(&self, client: u32) -> bool {
        self.state.first.as_ref().is_some_and(|first| first.astray[client as usize])
    }

    /// A client's model from ONE_SHOT.
    fn local_model(&self, client: u32) -> Option<&Params> {
        self.state.first.as_ref().and_then(|first| first.models.get(client as usize)?.as_ref())
    }

    /// f_i(ω_c) of every client that answered, for those whose distances need it.
    fn try_clusters(&self, room: &mut Room) -> Result<Vec<Vec<f64>>> {
        let clients = room.clients().len();
        let to = match self.one_shot.by_losses() {
            true => Recipients::All,
            false => Recipients::list((0..clients as u32).filter(|&i| self.local_model(i).is_none()).collect()),
        };
        let mut tried = vec![Vec::new(); clients];
        if to.among(clients).count() == 0 {
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
        if !self.one_shot.by_losses() {
            let row = |(client, tried): (u32, &Vec<f64>)| match self.local_model(client) {
                Some(own) => self.state.models.iter().map(|model| distance(own, model)).collect(),
                None => tried.clone(),
            };
            return (0..).zip(tried).map(row).collect();
        }
        // f_c(w_i): what the members of c lost with i's model in ONE_SHOT.
        let mut lost = vec![vec![(0.0, 0usize); self.state.models.len()]; tried.len()];
        let remembered = self.state.first.iter().flat_map(|first| (0..).zip(&first.losses));
        for (member, losses) in remembered.filter(|(member, _)| !self.is_astray(*member)) {
            let Some(cluster) = self.state.clusters.of(member) else { continue };
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

    /// dist(ω_c, ω_c') of some of the clusters.
    fn between(&self, some: &[usize], clusters: &Assignment, tried: &[Vec<f64>]) -> Distances {
        let mut distances = Distances::unknown(some.len());
        let loss = |of: usize, with: usize| {
            let members = clusters.members(of).into_iter().filter(|&client| !self.is_astray(client));
            let losses: Vec<f64> = members.filter_map(|client| tried[client as usize].get(with).copied()).collect();
            mean_loss(&losses).unwrap_or(f64::INFINITY)
        };
        for (b, &second) in some.iter().enumerate() {
            for (a, &first) in some.iter().enumerate().take(b) {
                let value = match self.one_shot.by_losses() {
                    true => 0.5 * (loss(first, second) + loss(second, first)),
                    false => distance(&self.state.models[first], &self.state.models[second]),
                };
                distances.set(a, b, value);
            }
        }
        distances
    }
}

impl Method for SrFca {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let Some(first) = &mut self.state.first else { return self.one_shot(room) };
        if self.one_shot.by_losses() {
            first.models.clear();
        }
        let rounds = self.trainer().schedule.rounds;
        if self.state.round == rounds {
            self.state.round = 0;
        }
        let loss = self.train(room)?;
        if self.state.round < rounds {
            return Ok(Progress { loss, switched: None, sizes: self.state.clusters.sizes(), finished: false });
        }
        let Regrouped { clusters, models, switched, merged, ended } = self.regroup(room)?;
        (self.state.clusters, self.state.models) = (clusters, models);
        self.state.refined += 1;
        for (count, what) in [(merged, "merged with others"), (ended, "ended for lack of clients")] {
            if count > 0 {
                self.state.notes.push(format!("refinement {}: {count} clusters {what}", self.state.refined));
            }
        }
        let finished = self.state.refined >= self.refinements;
        Ok(Progress { loss, switched: Some(switched), sizes: self.state.clusters.sizes(), finished })
    }

    fn planned_rounds(&self) -> usize {
        1 + self.refinements * self.trainer().schedule.rounds
    }

    fn stage(&self) -> Option<String> {
        match (&self.state.first, self.state.refined, self.state.round) {
            (Some(_), 0, 0) => Some("one_shot".into()),
            (_, refined, round) if refined > 0 && round == self.trainer().schedule.rounds => {
                Some(format!("refine_{refined}"))
            }
            _ => None,
        }
    }

    fn outcome(&self) -> Outcome {
        let has_trained = self.state.refined > 0 || self.state.round > 0;
        let mut outcome = match &self.state.first {
            Some(first) if !has_trained => first.local_models(),
            _ => Outcome::of_clusters(self.state.models.clone(), self.state.clusters.clone()),
        };
        if let Some(first) = &self.state.first {
            first.describe(&mut outcome);
        }
        outcome.notes.extend(self.state.notes.iter().cloned());
        outcome
    }

    keep_state!();
}
