//! CFL-GP, clustered federated learning by gradient-based partitioning (Kim, Kim, De Veciana, 2024). Every few rounds all clients send
//! their gradients at one model, each cluster's in turn; clients are told apart by all gradients collected so far, so that noise averages
//! out and one model that says little does no harm.
//!
//! ```text
//!  1  θ_1 … θ_K ← random;  every client in cluster 1;  G_i = (G_i1 … G_iK) ← 0
//!  2  for each round, each client i in M:
//!  3    w_i ← local steps on f_i from the θ of its cluster, sent
//!  4    every P rounds, until that has been done T times:
//!  5      g_i ← ∇f_i(θ_m), sent, with the next m of 1 … K in turn
//!  6      G_im ← (1 − β) G_im + β g_i, with β = 1/(how often it has been m's turn)
//!  7      e_i ← the coordinates of G_i along the first K left singular vectors of (G_1 … G_N)
//!  8      clusters ← k-means of the e_i, named so that most clients stay where they were
//!  9    θ_k ← mean of the w_i of the clients that are in cluster k now
//! ```
//!
//! Differences from the paper: gradients are on all rows. A client that has not answered in line 5 yet is in no cluster, and trains from
//! θ_1 when the clusters are next looked for. Coordinates come from the scalar products of the G_i, which have the same singular values,
//! and gradients are forgotten once their model has no further turn.

use super::parts::client_models::gram;
use super::parts::cluster_models::ClusterModels;
use super::*;
use crate::clustering::quality::match_clusters;
use crate::clustering::{Points, kmeans};
use crate::federation::work::Gradient;
use crate::num::Spectrum;

settings! {
    /// The settings of the method `cfl-gp`.
    pub struct CflGpSettings {
        /// how many clusters to look for, K
        clusters: usize [1..=1 << 20],
        /// clusters are looked for every so many rounds, P
        every: usize [1..=1 << 20] = 2,
        /// how often clusters are looked for, T
        times: usize [1..=1 << 20] = 5,
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// how clients train
        training: Training,
        /// how what they send becomes one model
        aggregating: Aggregating,
    }
}

impl MethodSettings for CflGpSettings {
    const NAME: &str = "cfl-gp";
    const WANTS_SINGLE: Option<&'static str> = Some("it clusters clients by their gradients");
    const SUMMARY: &str =
        "clusters from gradients at the clusters' models in turn, collected over rounds; averaging inside";
    const PAPER: &str = "Kim, Kim, De Veciana 2024";
    const HAS_CLUSTERS: bool = true;

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        let rounds = self.training.schedule.rounds;
        let looks = self.times.min(rounds);
        vec![
            Disclosure::single::<Gradient>(Phase::Train, looks, "clusters of clients with similar gradients"),
            Disclosure::single::<Train>(Phase::Train, looks, "the means of models in the clusters found with them"),
            Disclosure::sums::<Train>(Phase::Train, rounds, "the mean of models in each cluster"),
        ]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let (clients, count) = (setup.rows.len(), self.clusters);
        setup.want_clients("clusters", count)?;
        // Gradients and models of a round, and the gradients that are kept of models with a further turn.
        setup.want_room_for_models("clusters", (2 + self.times.saturating_sub(count).min(count)) * clients)?;
        setup.want_room_for_pairs(8 * (2 + count))?;
        let collected = (0..count).map(|_| Collected::none(clients)).collect();
        let clusters = ClusterModels::new(Assignment::none(count, clients), setup.random_models(count)?);
        let state = State { clusters, collected, looked: 0, found: false };
        let trainer = self.training.clone().trainer(&setup).aggregating(&self.aggregating);
        Ok(Box::new(CflGp { trainer, settings: self, state }))
    }
}

struct CflGp {
    settings: CflGpSettings,
    trainer: Trainer,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// θ_k.
    clusters: ClusterModels,
    /// G_im, by m.
    collected: Vec<Collected>,
    /// How often clusters have been looked for.
    looked: usize,
    /// Whether they have been found.
    found: bool,
}

/// The gradients of all clients at one model.
#[derive(Serialize, Deserialize)]
struct Collected {
    /// G_im; `None` for a client that has never answered, and for all once the model has no further turn.
    gradients: Vec<Option<Vec<f64>>>,
    /// Their scalar products, row-major; 0 for clients that have never answered.
    products: Vec<f64>,
    known: Vec<bool>,
}

impl Collected {
    fn none(clients: usize) -> Self {
        Self { gradients: vec![None; clients], products: Vec::new(), known: vec![false; clients] }
    }

    /// Line 6, in the turn of this number, counted from 1.
    fn take(&mut self, answer: &OrderAnswers, turn: usize) {
        for (place, gradient) in finite_vectors(answer) {
            let client = answer.clients[place] as usize;
            match &mut self.gradients[client] {
                Some(own) => {
                    let share = 1.0 / turn as f64;
                    own.iter_mut().zip(gradient).for_each(|(own, new)| *own += share * (new - *own));
                }
                none => *none = Some(gradient.to_vec()),
            }
            self.known[client] = true;
        }
        let clients = self.known.len();
        let vectors: Vec<f64> = self.gradients.iter().flatten().flatten().copied().collect();
        let who: Vec<usize> = (0..clients).filter(|&client| self.gradients[client].is_some()).collect();
        let products = gram(&vectors, who.len());
        self.products = vec![0.0; clients * clients];
        for (row, &i) in who.iter().enumerate() {
            who.iter().enumerate().for_each(|(column, &j)| {
                self.products[i * clients + j] = products[row * who.len() + column];
            });
        }
    }

    /// Nothing but the products, as there is no further turn.
    fn forget(&mut self) {
        self.gradients.fill(None);
    }
}

/// Line 7: the coordinates of vectors with these scalar products along their first singular vectors, by rows.
fn coordinates(products: &[f64], count: usize, dimension: usize) -> Option<Vec<f64>> {
    let spectrum = Spectrum::new(products, count)?;
    let parts: Vec<(f64, &[f64])> = spectrum.descending().take(dimension).collect();
    let along = |client: usize| parts.iter().map(move |(square, vector)| square.sqrt() * vector[client]);
    Some((0..count).flat_map(along).collect())
}

/// Line 8: new labels under the names with which most clients stay where they were.
fn renamed(labels: &[usize], before: &[Option<usize>], count: usize) -> Vec<usize> {
    let (found, old): (Vec<usize>, Vec<usize>) =
        labels.iter().zip(before).filter_map(|(&label, before)| Some((label, (*before)?))).unzip();
    let mut names = vec![None; count];
    match_clusters(&found, &old).pairs.into_iter().for_each(|(found, old)| names[found] = Some(old));
    let mut free = (0..count).filter(|name| !names.contains(&Some(*name))).collect::<Vec<_>>().into_iter();
    let names: Vec<usize> = names.iter().map(|name| name.or_else(|| free.next()).unwrap_or(0)).collect();
    labels.iter().map(|&label| names[label]).collect()
}

impl CflGp {
    /// Lines 7 and 8; how many clients changed their cluster.
    fn partition(&mut self) -> Result<usize> {
        let State { clusters, collected, found, looked } = &mut self.state;
        let (all, count) = (clusters.clusters.each().len(), clusters.models.len());
        let is_known = |client: &usize| collected.iter().any(|part| part.known[*client]);
        let who: Vec<usize> = (0..all).filter(is_known).collect();
        if who.len() < count {
            return Ok(0);
        }
        let product =
            |i: usize, j: usize| -> f64 { collected.iter().filter_map(|part| part.products.get(i * all + j)).sum() };
        let products: Vec<f64> = who.iter().flat_map(|&i| who.iter().map(move |&j| product(i, j))).collect();
        let still = || Error::new(ErrorKind::Diverged, "the clients' gradients have no directions");
        let points = coordinates(&products, who.len(), count).filter(|points| !points.is_empty()).ok_or_else(still)?;
        let points = Points::new(&points, points.len() / who.len())?;
        let key = self.trainer.key.clone().word("kmeans").number(*looked as u64);
        let labels = kmeans::cluster(points, count, &kmeans::Options::default(), &key)?.clustering.labels;
        let before: Vec<Option<usize>> = who.iter().map(|&client| clusters.clusters.of(client as u32)).collect();
        let mut switched = 0;
        for ((&client, label), before) in who.iter().zip(renamed(&labels, &before, count)).zip(&before) {
            clusters.clusters.put(client as u32, label);
            switched += usize::from(before.is_some_and(|before| before != label));
        }
        *found = true;
        Ok(switched)
    }

    /// Lines 3 to 9 where clusters are looked for.
    fn look(&mut self, room: &mut Room) -> Result<(Option<f64>, usize)> {
        let asked = self.trainer.participants(room.round(), room);
        let State { clusters, collected, looked, .. } = &mut self.state;
        let count = clusters.models.len();
        let (model, turn) = (*looked % count, *looked / count + 1);
        let mut ask = Ask::new(Phase::Train, clusters.models.clone(), Gather::Each);
        let gradients = ask.order(asked.clone(), Gradient { of: model, sample: Sample::FULL });
        let plan = self.trainer.plan(room.round());
        let mut orders = Vec::new();
        for cluster in 0..count {
            let mut members = clusters.clusters.members(cluster);
            // Before there are clusters everybody is in the first.
            members.extend(clusters.clusters.unassigned().into_iter().filter(|_| cluster == 0));
            members.retain(|&client| asked.contains(client));
            members.sort_unstable();
            if !members.is_empty() {
                orders.push(ask.order(Recipients::list(members), Train::from_model(cluster, plan.clone())));
            }
        }
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&answers.losses(&orders))?;
        *looked += 1;
        collected[model].take(&answers.of(gradients), turn);
        let switched = self.partition()?;
        let State { clusters, collected, found, looked } = &mut self.state;
        if !*found && *looked >= self.settings.times {
            let message = format!("gradients of fewer than {count} clients came in {looked} rounds");
            return Err(Error::new(ErrorKind::Client, message).hint("more times, or a larger participation"));
        }
        if *found && *looked - 1 + count >= self.settings.times {
            collected[model].forget();
        }
        let mut sums = vec![Sum::default(); count];
        for &order in &orders {
            let trained = answers.of(order);
            for (place, vector) in finite_vectors(&trained) {
                let cluster = if *found { clusters.clusters.of(trained.clients[place]) } else { Some(0) };
                let weight = self.settings.weight.of(trained.rows[place] as usize);
                cluster.into_iter().for_each(|cluster| sums[cluster].add(weight, vector));
            }
        }
        for (cluster, (model, sum)) in clusters.models.iter_mut().zip(&sums).enumerate() {
            *model = mean_model(model, sum, room.unchanged(absent_from(cluster, &clusters.clusters, &answers)));
        }
        Ok((loss, switched))
    }
}

impl Method for CflGp {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let finished = self.trainer.is_last(room);
        let CflGpSettings { every, times, .. } = self.settings;
        if !self.state.found || (self.state.looked < times && room.round().is_multiple_of(every)) {
            let (loss, switched) = self.look(room)?;
            return Ok(Progress { switched: Some(switched), ..self.state.clusters.progress(loss, finished) });
        }
        let loss = self.state.clusters.train(&self.trainer, self.settings.weight, room, |_, _| {})?;
        Ok(self.state.clusters.progress(loss, finished))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        if !self.state.found {
            let note = "no clusters: fewer clients than clusters sent gradients".to_string();
            return Outcome { notes: vec![note], ..Outcome::of_model(self.state.clusters.models[0].clone()) };
        }
        self.state.clusters.outcome()
    }

    keep_state!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_by_hand() {
        // Gradients (3, 0), (0, 2) and (0, −2) lie along the axes, the second of which is the less by itself: 9 and 8.
        let found = coordinates(&gram(&[3.0, 0.0, 0.0, 2.0, 0.0, -2.0], 3), 3, 2).unwrap();
        let sign = (found[0].signum(), found[3].signum());
        let wanted = [3.0 * sign.0, 0.0, 0.0, 2.0 * sign.1, 0.0, -2.0 * sign.1];
        assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-12), "{found:?}");
    }

    #[test]
    fn clusters_keep_their_names() {
        assert_eq!(renamed(&[0, 0, 1, 1, 2], &[Some(1), Some(1), Some(0), Some(1), None], 3), [1, 1, 0, 0, 2]);
        assert_eq!(renamed(&[1, 0], &[None, None], 2), [1, 0]);
    }
}
