//! FedGroup, later FlexCFL (Duan, Liu, Ji, Wu, Liang, Chen, Tan, Ren: Flexible clustered federated learning for client-level data
//! distribution shift, 2021). Clients are grouped once, by the directions of their first updates; whoever comes later joins the group
//! whose direction its update is nearest to.
//!
//! ```text
//! 1  every client takes local steps from θ_0 and sends its update Δ_i
//! 2  v_1 … v_K ← the first right singular vectors of the matrix of updates
//! 3  e_i ← (cos(Δ_i, v_1), …, cos(Δ_i, v_K));  groups ← k-means of the e_i           EDC: decomposed cosines
//! 4  δ_g ← mean of the Δ_i of group g;  θ_g ← θ_0 + δ_g
//! 5  for each round: members train from θ_g and send their models; θ_g ← mean of them
//! 6    θ_g ← θ_g + η Σ_h≠g θ_h/‖θ_h‖
//! 7  a client that was not there trains from θ_0 and joins argmax_g cos(Δ_i, δ_g)     cold start
//! ```
//!
//! Differences from the paper: everybody is asked in line 1, not a sample of 20 K clients (`sample` draws one); cosines come from the
//! scalar products of the updates, which have the same singular values, so that no vector v is formed.

use super::parts::client_models::{cosine, gram};
use super::parts::cluster_models::ClusterModels;
use super::parts::training::draw_clients;
use super::*;
use crate::clustering::{Points, kmeans};
use crate::num::{Spectrum, norm};

settings! {
    /// The settings of the method `fedgroup`.
    pub struct FedGroupSettings {
        /// how many groups to make
        clusters: usize [1..=1 << 20],
        /// how many clients the groups are made from (default: all)
        sample: Option<usize> [1..=1 << 31],
        /// how much of the other groups' models is added to a group's, η
        between: f64 [0.0..=1e6] = 0.0,
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// how clients train
        training: Training,
        /// how what they send becomes one model
        aggregating: Aggregating,
    }

    fn check(&self, check: &mut Check) {
        if self.sample.is_some_and(|sample| sample < self.clusters) {
            check.fault("sample", "fewer clients than groups");
        }
    }
}

impl MethodSettings for FedGroupSettings {
    const NAME: &str = "fedgroup";
    const SUMMARY: &str = "groups from the directions of clients' first updates, averaging inside";
    const PAPER: &str = "Duan et al. 2021";
    const HAS_CLUSTERS: bool = true;
    const WANTS_SINGLE: Option<&'static str> = Some("it groups clients by their first updates");

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![
            Disclosure::single::<Train>(Phase::Train, 1, "groups of clients whose updates point the same way"),
            Disclosure::sums::<Train>(Phase::Train, self.training.schedule.rounds, "the mean of models in each group"),
        ]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        setup.want_clients("clusters", self.clusters)?;
        setup.want_clients("sample", self.sample.unwrap_or(1))?;
        setup.want_room_for_models("clusters", 2 * setup.rows.len())?;
        setup.want_room_for_pairs(16)?;
        let groups = ClusterModels::new(Assignment::none(self.clusters, setup.rows.len()), Vec::new());
        Ok(Box::new(FedGroup {
            start: setup.common_start()?,
            trainer: self.training.clone().trainer(&setup).aggregating(&self.aggregating),
            settings: self,
            state: State { groups, directions: Vec::new() },
        }))
    }
}

struct FedGroup {
    settings: FedGroupSettings,
    trainer: Trainer,
    /// θ_0.
    start: Params,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// θ_g.
    groups: ClusterModels,
    /// δ_g.
    directions: Vec<Vec<f64>>,
}

/// Line 3 before k-means: the cosines of every update with the first `count` singular vectors, from the updates' scalar products.
fn decomposed_cosines(gram: &[f64], clients: usize, count: usize) -> Option<Vec<f64>> {
    let spectrum = Spectrum::new(gram, clients)?;
    let parts: Vec<(f64, &[f64])> = spectrum.descending().take(count).collect();
    let length = |client: usize| gram[client * clients + client].sqrt();
    // With Δ = U S Vᵀ the scalar product of Δ_i and v_j is S_j U_ij.
    let cosine = |client: usize, (square, vector): &(f64, &[f64])| match length(client) {
        length if length > 0.0 => square.sqrt() * vector[client] / length,
        _ => 0.0,
    };
    Some((0..clients).flat_map(|client| parts.iter().map(move |part| cosine(client, part))).collect())
}

impl FedGroup {
    /// Lines 1 to 4.
    fn begin(&mut self, room: &mut Room) -> Result<Option<f64>> {
        let asked = match self.settings.sample {
            Some(count) => draw_clients(&self.trainer.key.clone().word("sample"), count, room),
            None => Recipients::All,
        };
        let mut ask = Ask::new(Phase::Train, vec![self.start.clone()], Gather::Each);
        let order = ask.order(asked, Train::from_model(0, self.trainer.plan(room.round())));
        let answers = room.ask(&ask)?;
        let trained = answers.of(order);
        let loss = room.check_loss(&trained.losses())?;
        let (mut who, mut updates) = (Vec::new(), Vec::new());
        for (place, vector) in finite_vectors(&trained) {
            who.push(trained.clients[place]);
            updates.extend(vector.iter().zip(&*self.start).map(|(new, old)| new - old));
        }
        let count = self.settings.clusters;
        if who.len() < count {
            return Err(Error::new(
                ErrorKind::Client,
                format!("{} clients answered, want at least {count}", who.len()),
            )
            .hint("groups are made in the first round"));
        }
        let products = gram(&updates, who.len());
        let still = || Error::new(ErrorKind::Diverged, "the first updates of the clients have no directions");
        let points = decomposed_cosines(&products, who.len(), count).ok_or_else(still)?;
        let dimension = points.len() / who.len();
        if dimension == 0 {
            return Err(still());
        }
        let key = self.trainer.key.clone().word("kmeans");
        let found = kmeans::cluster(Points::new(&points, dimension)?, count, &kmeans::Options::default(), &key)?;
        let width = self.start.len();
        for group in 0..count {
            let members = (0..who.len()).filter(|&place| found.clustering.labels[place] == group);
            let members: Vec<usize> = members.collect();
            let mut direction = vec![0.0; width];
            for &place in &members {
                add_scaled(&mut direction, 1.0 / members.len() as f64, &updates[place * width..][..width]);
                self.state.groups.clusters.put(who[place], group);
            }
            let model = self.start.iter().zip(&direction).map(|(start, step)| start + step).collect();
            self.state.groups.models.push(Arc::new(model));
            self.state.directions.push(direction);
        }
        Ok(loss)
    }

    /// Line 7.
    fn admit(&mut self, order: &OrderAnswers) -> usize {
        let mut admitted = 0;
        for (place, vector) in finite_vectors(order) {
            let update: Vec<f64> = vector.iter().zip(&*self.start).map(|(new, old)| new - old).collect();
            let mut vectors = update;
            self.state.directions.iter().for_each(|direction| vectors.extend(direction));
            let count = self.state.directions.len() + 1;
            let products = gram(&vectors, count);
            let nearest =
                (1..count).max_by(|&a, &b| cosine(&products, count, 0, a).total_cmp(&cosine(&products, count, 0, b)));
            if let Some(nearest) = nearest {
                self.state.groups.clusters.put(order.clients[place], nearest - 1);
                admitted += 1;
            }
        }
        admitted
    }

    /// Line 6.
    fn share_between(&mut self) {
        let models = self.state.groups.models.clone();
        for (group, model) in self.state.groups.models.iter_mut().enumerate().filter(|_| self.settings.between > 0.0) {
            for (_, other) in models.iter().enumerate().filter(|(other, _)| *other != group) {
                let length = norm(other).max(f64::MIN_POSITIVE);
                add_scaled(Arc::make_mut(model).as_mut_slice(), self.settings.between / length, other);
            }
        }
    }
}

impl Method for FedGroup {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let finished = self.trainer.is_last(room);
        if self.state.directions.is_empty() {
            let loss = self.begin(room)?;
            return Ok(self.state.groups.progress(loss, finished));
        }
        let asked = self.trainer.participants(room.round(), room);
        let mut newcomers = self.state.groups.clusters.unassigned();
        newcomers.retain(|&client| asked.contains(client));
        // Newcomers' updates are seen one by one.
        let mut switched = 0;
        if !newcomers.is_empty() {
            let mut ask = Ask::new(Phase::Train, vec![self.start.clone()], Gather::Each);
            let train = Train::from_model(0, self.trainer.plan(room.round()));
            let order = ask.order(Recipients::list(newcomers), train);
            let answers = room.ask_for_any(&ask)?;
            switched = self.admit(&answers.of(order));
        }
        let loss = self.state.groups.train(&self.trainer, self.settings.weight, room, |_, _| {})?;
        self.share_between();
        Ok(Progress { switched: Some(switched), ..self.state.groups.progress(loss, finished) })
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        self.state.groups.outcome()
    }

    keep_state!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_with_singular_vectors_by_hand() {
        // Updates (3, 0), (0, 2), (0, −2): ΔᵀΔ = diag(9, 8), so that v is the first axis, then the second.
        let products = gram(&[3.0, 0.0, 0.0, 2.0, 0.0, -2.0], 3);
        assert_eq!(products, [9.0, 0.0, 0.0, 0.0, 4.0, -4.0, 0.0, -4.0, 4.0]);
        let found = decomposed_cosines(&products, 3, 2).unwrap();
        let sign = (found[0].signum(), found[3].signum());
        let wanted = [sign.0, 0.0, 0.0, sign.1, 0.0, -sign.1];
        assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-12), "{found:?}");
    }
}
