//! StoCFL (Zeng, Hu, Lin, Cai, Wang: Stochastic clustered federated learning, 2023). Clusters grow as clients come along: every client
//! is first a cluster by itself, known by its gradient at one fixed model, and clusters whose gradients point the same way become one.
//!
//! ```text
//!  1  ω_0, ω ← random
//!  2  for each round, with the clients of M:
//!  3    a client i that was never seen sends Ψ_i ← ∇f_i(ω_0) and is a cluster {i} with θ ← ω
//!  4    while two clusters have cos(Ψ_c, Ψ_d) ≥ τ: the two that are most alike become one,
//!         Ψ ← mean over its clients, θ ← mean of θ_c and θ_d, weighted by their clients
//!  5    each client in M trains from ω and sends it; ω ← mean of these
//!  6    each client in M trains on f_i(θ) + λ/2 ‖θ − ω‖² from the θ of its cluster and sends it; θ ← mean in each cluster
//! ```

use super::parts::client_models::{cosine, gram};
use super::parts::cluster_models::{ClusterModels, losses};
use super::*;
use crate::federation::work::Gradient;

settings! {
    /// The settings of the method `stocfl`.
    pub struct StoCflSettings {
        /// clusters become one when the cosine between their gradients is at least this, τ
        alike: f64 [-1.0..=1.0] = 0.5,
        /// how strongly the model of all pulls at those of the clusters, λ
        pull: f64 [0.0..=1e18] = 0.05,
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// how clients train
        training: Training,
        /// how what they send becomes one model
        aggregating: Aggregating,
    }
}

impl MethodSettings for StoCflSettings {
    const NAME: &str = "stocfl";
    const SUMMARY: &str = "clusters merged as clients come along, by the directions of their gradients";
    const PAPER: &str = "Zeng et al. 2023";
    const HAS_CLUSTERS: bool = true;
    const WANTS_SINGLE: Option<&'static str> = Some("it clusters clients by their gradients");

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![
            Disclosure::single::<Gradient>(Phase::Train, 1, "clusters of clients with similar gradients"),
            Disclosure::sums::<Train>(
                Phase::Train,
                2 * self.training.schedule.rounds,
                "the means of models, in clusters and of all",
            ),
        ]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        setup.want_room_for_models("alike", 2 * setup.rows.len())?;
        setup.want_room_for_pairs(16)?;
        let anchor = setup.common_start()?;
        let state = State {
            global: anchor.clone(),
            clusters: ClusterModels::new(Assignment::none(0, setup.rows.len()), Vec::new()),
            gradients: Vec::new(),
        };
        Ok(Box::new(StoCfl {
            anchor,
            trainer: self.training.clone().trainer(&setup).aggregating(&self.aggregating),
            settings: self,
            state,
        }))
    }
}

struct StoCfl {
    settings: StoCflSettings,
    trainer: Trainer,
    /// ω_0.
    anchor: Params,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// ω.
    global: Params,
    /// θ.
    clusters: ClusterModels,
    /// Ψ of every cluster.
    gradients: Vec<Vec<f64>>,
}

/// The pairs of clusters to become one, in order, each named by its places among those that are left; the second goes.
fn merges(mut products: Vec<f64>, mut sizes: Vec<f64>, alike: f64) -> Vec<(usize, usize)> {
    let mut merges = Vec::new();
    loop {
        let count = sizes.len();
        let pairs = (0..count).flat_map(|j| (0..j).map(move |i| (i, j)));
        let best = pairs
            .map(|(i, j)| (cosine(&products, count, i, j), i, j))
            .filter(|(cosine, _, _)| *cosine >= alike)
            .reduce(|best, other| if other.0 > best.0 { other } else { best });
        let Some((_, i, j)) = best else { return merges };
        merges.push((i, j));
        // Ψ ← (s_i Ψ_i + s_j Ψ_j)/(s_i + s_j), in terms of scalar products.
        let (own, other) = (sizes[i] / (sizes[i] + sizes[j]), sizes[j] / (sizes[i] + sizes[j]));
        for k in 0..count {
            products[i * count + k] = own * products[i * count + k] + other * products[j * count + k];
        }
        for k in 0..count {
            products[k * count + i] = own * products[k * count + i] + other * products[k * count + j];
        }
        products = (0..count * count)
            .filter(|place| place / count != j && place % count != j)
            .map(|place| products[place])
            .collect();
        sizes[i] += sizes.remove(j);
    }
}

impl StoCfl {
    /// Line 3.
    fn meet(&mut self, asked: &Recipients, room: &mut Room) -> Result<usize> {
        let mut strangers = self.state.clusters.clusters.unassigned();
        strangers.retain(|&client| asked.contains(client));
        if strangers.is_empty() {
            return Ok(0);
        }
        let mut ask = Ask::new(Phase::Train, vec![self.anchor.clone()], Gather::Each);
        let order = ask.order(Recipients::list(strangers), Gradient { of: 0, sample: Sample::FULL });
        let answers = room.ask_for_any(&ask)?;
        let answer = answers.of(order);
        let mut met = 0;
        for (place, gradient) in finite_vectors(&answer) {
            let State { global, clusters, gradients } = &mut self.state;
            clusters.clusters.put(answer.clients[place], clusters.models.len());
            clusters.models.push(global.clone());
            gradients.push(gradient.to_vec());
            met += 1;
        }
        Ok(met)
    }

    /// Line 4.
    fn merge(&mut self) -> usize {
        let State { clusters, gradients, .. } = &mut self.state;
        let sizes: Vec<f64> = clusters.clusters.sizes().iter().map(|&size| size as f64).collect();
        let products = gram(&gradients.concat(), gradients.len());
        let merges = merges(products, sizes.clone(), self.settings.alike);
        let mut names: Vec<usize> = (0..sizes.len()).collect();
        let mut sizes = sizes;
        for &(i, j) in &merges {
            let (one, other) = (names[i], names.remove(j));
            let share = sizes[other] / (sizes[one] + sizes[other]);
            sizes[one] += sizes[other];
            let mix = |into: &mut [f64], from: &[f64]| {
                into.iter_mut().zip(from).for_each(|(own, theirs)| *own += share * (theirs - *own));
            };
            let theirs = (clusters.models[other].clone(), gradients[other].clone());
            mix(Arc::make_mut(&mut clusters.models[one]).as_mut_slice(), &theirs.0);
            mix(&mut gradients[one], &theirs.1);
            for client in clusters.clusters.members(other) {
                clusters.clusters.put(client, one);
            }
        }
        // Without the clusters that are gone, in the order of those that are left.
        let place = |name: usize| names.iter().position(|&other| other == name);
        let of: Assignment = clusters.clusters.each().iter().map(|name| name.and_then(place)).collect();
        let models = names.iter().map(|&name| clusters.models[name].clone()).collect();
        *gradients = names.iter().map(|&name| std::mem::take(&mut gradients[name])).collect();
        *clusters = ClusterModels::new(of, models);
        merges.len()
    }
}

impl Method for StoCfl {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let asked = self.trainer.participants(room.round(), room);
        let met = self.meet(&asked, room)?;
        let merged = if met > 0 { self.merge() } else { 0 };
        let StoCflSettings { pull: strength, weight, .. } = self.settings;
        let State { global, clusters, .. } = &mut self.state;
        let count = clusters.models.len();
        let models = clusters.models.iter().chain([&*global]).cloned().collect();
        let mut ask = Ask::new(Phase::Train, models, self.trainer.gather(By::All, weight));
        let everybody = ask.order(asked.clone(), Train::from_model(count, self.trainer.plan(room.round())));
        let plan = self.trainer.with_draws("clusters").plan(room.round());
        let orders = clusters.order(&asked, &mut ask, |cluster| {
            let mut plan = plan.clone();
            plan.terms.pulls.push(Pull { centre: count, strength });
            Train::from_model(cluster, plan)
        });
        let answers = room.ask(&ask)?;
        let trained = if orders.is_empty() { answers.of(everybody).losses() } else { losses(&answers, &orders) };
        let loss = room.check_loss(&trained)?;
        clusters.average((&self.trainer, weight), &answers, &orders, room);
        let sums = self.trainer.sums(weight, std::slice::from_ref(global), &answers, &[(0, everybody)]);
        *global = mean_model(global, &sums[0], room.unchanged(answers.missing.len()));
        let finished = self.trainer.is_last(room);
        Ok(Progress { switched: Some(merged), ..self.state.clusters.progress(loss, finished) })
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        let State { global, clusters, .. } = &self.state;
        match clusters.models.is_empty() {
            true => Outcome::of_model(global.clone()),
            false => Outcome { global: Some(global.clone()), ..clusters.outcome() },
        }
    }

    keep_state!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_alike_become_one_first() {
        // Gradients (1, 0), (0, 1), (4, 3): the first and the last have cosine 0.8, the last two 0.6.
        let vectors = [1.0, 0.0, 0.0, 1.0, 4.0, 3.0];
        let products = gram(&vectors, 3);
        assert_eq!(merges(products.clone(), vec![1.0; 3], 0.9), []);
        assert_eq!(merges(products.clone(), vec![1.0; 3], 0.7), [(0, 2)]);
        // The mean of the two, (2.5, 1.5), has cosine 0.51 with the second; weighted 1 to 3, (3.25, 2.25), 0.57.
        assert_eq!(merges(products.clone(), vec![1.0; 3], 0.52), [(0, 2)]);
        assert_eq!(merges(products.clone(), vec![1.0, 1.0, 3.0], 0.52), [(0, 2), (0, 1)]);
        assert_eq!(merges(products, vec![1.0; 3], 0.51), [(0, 2), (0, 1)]);
    }
}
