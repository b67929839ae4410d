//! FedClust (Islam, Javaherian, Xu, Yuan, Chen, Tzeng: FedClust: optimizing federated learning on non-IID data through weight-driven
//! client clustering, 2024). Clusters once, from the weights of the last layer after a little training: these say most about the classes
//! that a client has.
//!
//! ```text
//! 1  every client takes local steps from θ_0 and sends the last layer of its model, l_i
//! 2  clusters ← average linkage of the distances ‖l_i − l_j‖
//! 3  for each round: members train from the model of their cluster and send theirs; the cluster's ← mean of them
//! ```
//!
//! Differences from the paper: the threshold can be left out, and is then the largest gap between two joinings. A client that did not
//! answer in line 1 goes to the cluster whose mean of last layers is nearest, when it first answers.

use super::parts::cluster_models::ClusterModels;
use super::parts::linkage::JoinUntil;
use super::*;
use crate::num::distance;

settings! {
    /// The settings of the method `fedclust`.
    pub struct FedClustSettings {
        /// where joining ends
        until: JoinUntil,
        /// local steps before clustering (default: those of a round)
        first_steps: Option<u32> [1..=1 << 31],
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// how clients train
        training: Training,
        /// how what they send becomes one model
        aggregating: Aggregating,
    }
}

impl MethodSettings for FedClustSettings {
    const NAME: &str = "fedclust";
    const WANTS_SINGLE: Option<&'static str> = Some("it clusters clients by the last layers of their models");
    const SUMMARY: &str = "clusters once, from the last layers of briefly trained models; averaging inside";
    const PAPER: &str = "Islam et al. 2024";
    const HAS_CLUSTERS: bool = true;

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![
            Disclosure::single::<Train>(Phase::Train, 1, "clusters of clients with similar last layers"),
            Disclosure::sums::<Train>(
                Phase::Train,
                self.training.schedule.rounds,
                "the mean of models in each cluster",
            ),
        ]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        setup.want_room_for_pairs(16)?;
        setup.want_clients("clusters", self.until.clusters.unwrap_or(1))?;
        let clusters = ClusterModels::new(Assignment::none(0, setup.rows.len()), Vec::new());
        Ok(Box::new(FedClust {
            start: setup.common_start()?,
            last_layer: setup.model.layout().last_layer(),
            trainer: self.training.clone().trainer(&setup).aggregating(&self.aggregating),
            settings: self,
            state: State { clusters, layers: Vec::new(), joined_at: 0.0 },
        }))
    }
}

struct FedClust {
    settings: FedClustSettings,
    trainer: Trainer,
    /// θ_0.
    start: Params,
    /// The parameters of the last layer.
    last_layer: Vec<std::ops::Range<usize>>,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    clusters: ClusterModels,
    /// The mean of the last layers of every cluster, as they were in line 1.
    layers: Vec<Vec<f64>>,
    joined_at: f64,
}

impl FedClust {
    fn layer_of(&self, model: &[f64]) -> Vec<f64> {
        self.last_layer.iter().flat_map(|range| model[range.clone()].iter().copied()).collect()
    }

    /// Lines 1 and 2; later for clients that were missing.
    fn place(&mut self, asked: Recipients, room: &mut Room) -> Result<Option<f64>> {
        let mut plan = self.trainer.with_draws("first").plan(0);
        plan.amount = self.settings.first_steps.map_or(plan.amount, Amount::Steps);
        let mut ask = Ask::new(Phase::Train, vec![self.start.clone()], Gather::Each);
        let order = ask.order(asked, Train::from_model(0, plan));
        let is_first = self.state.layers.is_empty();
        let answers = if is_first { room.ask(&ask)? } else { room.ask_for_any(&ask)? };
        let trained = answers.of(order);
        let loss = room.check_loss(&trained.losses())?;
        let found = finite_vectors(&trained).map(|(place, vector)| (trained.clients[place], self.layer_of(vector)));
        let (who, layers): (Vec<u32>, Vec<Vec<f64>>) = found.unzip();
        if is_first {
            let pairs = (0..layers.len()).flat_map(|i| (i + 1..layers.len()).map(move |j| (i, j)));
            let distances = pairs.map(|(i, j)| distance(&layers[i], &layers[j])).collect();
            let joined = self.settings.until.join(distances, layers.len());
            self.state.joined_at = joined.distance;
            self.state.clusters = joined.clusters(&who, self.state.clusters.clusters.each().len(), &self.start);
            let count = self.state.clusters.models.len();
            self.state.layers = vec![vec![0.0; layers.first().map_or(0, Vec::len)]; count];
            let sizes = self.state.clusters.clusters.sizes();
            for (layer, &label) in layers.iter().zip(&joined.labels) {
                add_scaled(&mut self.state.layers[label], 1.0 / sizes[label] as f64, layer);
            }
        } else {
            for (&client, layer) in who.iter().zip(&layers) {
                let far = self.state.layers.iter().map(|mean| distance(mean, layer));
                self.state.clusters.clusters.put(client, crate::models::first_smallest(far).position);
            }
        }
        Ok(loss)
    }
}

impl Method for FedClust {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let finished = self.trainer.is_last(room);
        if self.state.layers.is_empty() {
            let loss = self.place(Recipients::All, room)?;
            return Ok(self.state.clusters.progress(loss, finished));
        }
        let asked = self.trainer.participants(room.round(), room);
        let mut absent = self.state.clusters.clusters.unassigned();
        absent.retain(|&client| asked.contains(client));
        if !absent.is_empty() {
            self.place(Recipients::list(absent), room)?;
        }
        let loss = self.state.clusters.train(&self.trainer, self.settings.weight, room, |_, _| {})?;
        Ok(self.state.clusters.progress(loss, finished))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        let mut outcome = self.state.clusters.outcome();
        outcome.extra.insert("joined_at".into(), self.state.joined_at);
        outcome
    }

    keep_state!();
}
