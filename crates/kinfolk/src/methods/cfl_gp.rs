//! CFL-GP, clustered federated learning by gradient-based partitioning (Kim, Kim, De Veciana, 2024). Clients are told apart by their
//! gradients at several models, collected over some rounds, so that noise averages out and one bad model does no harm.
//!
//! ```text
//! 1  θ_1 … θ_S ← random;  G_i ← 0
//! 2  for the first P rounds:
//! 3    each client i sends its gradients g_is at every θ_s
//! 4    G_i ← G_i + (g_i1, …, g_iS), each of unit length;  θ_s ← θ_s − step · mean of the g_is
//! 5  A_ij ← exp(−‖G_i − G_j‖² / σ²), σ² the median;  Y ← the first K eigenvectors of D^(−1/2) A D^(−1/2), rows of unit length
//! 6  clusters ← k-means of the rows of Y
//! 7  for each further round: members train from the model of their cluster and send theirs; the cluster's ← mean of them
//! ```
//!
//! Written from the abstract and the idea of the paper: differences in detail are likely. Gradients are on all rows; clusters begin
//! at the θ_s with the smallest mean loss.

use super::parts::client_models::gram;
use super::parts::cluster_models::ClusterModels;
use super::*;
use crate::clustering::{Points, kmeans};
use crate::federation::work::Gradient;
use crate::num::{Spectrum, norm};

settings! {
    /// The settings of the method `cfl-gp`.
    pub struct CflGpSettings {
        /// how many clusters to look for
        clusters: usize [1..=1 << 20],
        /// number of models at which gradients are compared
        probes: usize [1..=1000] = 3,
        /// rounds in which gradients are collected
        collect: usize [1..=1 << 20] = 5,
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// how clients train
        training: Training,
    }
}

impl MethodSettings for CflGpSettings {
    const NAME: &str = "cfl-gp";
    const WANTS_SINGLE: Option<&'static str> = Some("it clusters clients by their gradients");
    const SUMMARY: &str = "clusters from gradients at several models, collected over rounds; averaging inside";
    const PAPER: &str = "Kim, Kim, De Veciana 2024";
    const HAS_CLUSTERS: bool = true;

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let clients = setup.rows.len();
        setup.want_clients("clusters", self.clusters)?;
        setup.want_room_for_models("probes", 2 * self.probes * clients)?;
        setup.want_room_for_pairs(24)?;
        let state = State {
            probes: setup.random_models(self.probes)?,
            losses: vec![0.0; self.probes],
            collected: vec![Vec::new(); clients],
            clusters: ClusterModels::new(Assignment::none(self.clusters, clients), Vec::new()),
        };
        Ok(Box::new(CflGp { trainer: self.training.clone().trainer(&setup), settings: self, state }))
    }
}

struct CflGp {
    settings: CflGpSettings,
    trainer: Trainer,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// θ_s.
    probes: Vec<Params>,
    /// Their mean losses in the last round of collecting.
    losses: Vec<f64>,
    /// G_i; empty for a client that has never answered.
    collected: Vec<Vec<f64>>,
    clusters: ClusterModels,
}

/// Lines 5 and 6 before k-means: the first eigenvectors of the normalised affinities, by rows, from scalar products.
fn embedding(gram: &[f64], count: usize, dimension: usize) -> Option<Vec<f64>> {
    let square = |i: usize, j: usize| (gram[i * count + i] + gram[j * count + j] - 2.0 * gram[i * count + j]).max(0.0);
    let pairs = (0..count).flat_map(|j| (0..j).map(move |i| (i, j)));
    let width = median(pairs.map(|(i, j)| square(i, j))).unwrap_or(1.0).max(f64::MIN_POSITIVE);
    let mut affinity: Vec<f64> =
        (0..count * count).map(|place| (-square(place / count, place % count) / width).exp()).collect();
    let degrees: Vec<f64> = affinity.chunks_exact(count).map(|row| row.iter().sum()).collect();
    for (place, value) in affinity.iter_mut().enumerate() {
        *value /= (degrees[place / count] * degrees[place % count]).sqrt();
    }
    let spectrum = Spectrum::new(&affinity, count)?;
    let vectors: Vec<&[f64]> = spectrum.descending().take(dimension).map(|(_, vector)| vector).collect();
    let row = |client: usize| {
        let row: Vec<f64> = vectors.iter().map(|vector| vector[client]).collect();
        let length = norm(&row).max(f64::MIN_POSITIVE);
        row.into_iter().map(move |value| value / length)
    };
    Some((0..count).flat_map(row).collect())
}

impl CflGp {
    /// Lines 3 and 4.
    fn collect(&mut self, room: &mut Room) -> Result<Option<f64>> {
        let mut ask = Ask::new(Phase::Train, self.state.probes.clone(), Gather::Each);
        let order = |of: usize| ask.order(Recipients::All, Gradient { of, sample: Sample::FULL });
        let orders: Vec<_> = (0..self.state.probes.len()).map(order).collect();
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&answers.losses(&orders))?;
        let (width, count) = (self.state.probes[0].len(), orders.len());
        for (probe, &order) in orders.iter().enumerate() {
            let answer = answers.of(order);
            let mut sum = Sum::default();
            for (place, gradient) in finite_vectors(&answer) {
                sum.add(1.0, gradient);
                let own = &mut self.state.collected[answer.clients[place] as usize];
                own.resize(count * width, 0.0);
                let length = norm(gradient).max(f64::MIN_POSITIVE);
                add_scaled(&mut own[probe * width..][..width], 1.0 / length, gradient);
            }
            self.state.losses[probe] = mean_loss(&answer.losses()).unwrap_or(f64::INFINITY);
            if let Some(mean) = sum.mean() {
                let step = self.trainer.step_in(room.round());
                add_scaled(Arc::make_mut(&mut self.state.probes[probe]).as_mut_slice(), -step, &mean);
            }
        }
        Ok(loss)
    }

    /// Lines 5 and 6.
    fn partition(&mut self) -> Result<()> {
        let State { probes, losses, collected, clusters } = &mut self.state;
        let known = (0u32..).zip(&*collected).filter(|(_, own)| !own.is_empty());
        let (who, features): (Vec<u32>, Vec<&Vec<f64>>) = known.unzip();
        let count = self.settings.clusters;
        if who.len() < count {
            return Err(Error::new(
                ErrorKind::Client,
                format!("{} clients answered, want at least {count}", who.len()),
            ));
        }
        let features: Vec<f64> = features.into_iter().flatten().copied().collect();
        let points = embedding(&gram(&features, who.len()), who.len(), count)
            .ok_or_else(|| Error::new(ErrorKind::Diverged, "the clients' gradients are not finite"))?;
        let points = Points::new(&points, points.len() / who.len())?;
        let key = self.trainer.key.clone().word("kmeans");
        let found = kmeans::cluster(points, count, &kmeans::Options::default(), &key)?;
        who.iter().zip(&found.clustering.labels).for_each(|(&client, &label)| {
            clusters.clusters.put(client, label);
        });
        let best = crate::models::first_smallest(losses.iter().copied()).position;
        clusters.models = vec![probes[best].clone(); count];
        collected.iter_mut().for_each(|own| *own = Vec::new());
        Ok(())
    }
}

impl Method for CflGp {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let finished = self.trainer.is_last(room);
        if self.state.clusters.models.is_empty() {
            let loss = self.collect(room)?;
            if room.round() + 1 >= self.settings.collect || finished {
                self.partition()?;
            }
            return Ok(self.state.clusters.progress(loss, finished));
        }
        let loss = self.state.clusters.train(&self.trainer, self.settings.weight, room, |_, _| {})?;
        Ok(self.state.clusters.progress(loss, finished))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        match self.state.clusters.models.is_empty() {
            true => Outcome { models: self.state.probes.clone(), ..Outcome::default() },
            false => self.state.clusters.outcome(),
        }
    }

    keep_state!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_of_two_kinds_lie_in_two_places() {
        // Two and three clients around (1, 0) and (0, 1): far fewer numbers within a kind than between.
        let features = [1.0, 0.0, 1.0, 0.1, 0.0, 1.0, 0.1, 1.0, 0.0, 0.9];
        let found = embedding(&gram(&features, 5), 5, 2).unwrap();
        let row = |client: usize| &found[2 * client..2 * client + 2];
        let alike = |i: usize, j: usize| dot(row(i), row(j));
        assert!(alike(0, 1) > 0.99 && alike(2, 3) > 0.99 && alike(2, 4) > 0.99, "{found:?}");
        assert!(alike(0, 2) < 0.5 && alike(1, 4) < 0.5, "{found:?}");
    }
}
