//! FeSEM (Xie, Long, Shen, Zhou, Wang, Jiang, Zhang: Multi-center federated learning, 2021): k-means of the clients' models, one
//! iteration a round.
//!
//! ```text
//! 1  every client trains from one model θ_0 and sends w_i;  θ_1 … θ_K ← centres of k-means of the w_i
//! 2  for each round:
//! 3    each client i goes to the nearest centre, argmin_k ‖w_i − θ_k‖
//! 4    θ_k ← mean of the w_i of its clients
//! 5    each client in M trains from the θ_k of its cluster and sends w_i
//! ```
//!
//! Differences from the paper: line 1; there, the centres begin at random models, to which nobody's training is near. A cluster that
//! loses all its clients takes the client farthest from its own centre. A client whose w_i is not known yet stays out of line 3, and trains
//! from θ_0.

use super::parts::client_models::ClientModels;
use super::*;
use crate::clustering::{Points, kmeans};

settings! {
    /// The settings of the method `fesem`.
    pub struct FesemSettings {
        /// how many clusters to look for
        clusters: usize [1..=1 << 20],
        /// how clients train
        training: Training,
    }
}

impl MethodSettings for FesemSettings {
    const NAME: &str = "fesem";
    const SUMMARY: &str = "k-means of the clients' models, one iteration a round";
    const PAPER: &str = "Xie et al. 2021";
    const HAS_CLUSTERS: bool = true;
    const WANTS_SINGLE: Option<&'static str> = Some("it clusters the clients' own models, which come one by one");

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![Disclosure::single::<Train>(
            Phase::Train,
            self.training.schedule.rounds,
            "clusters of models, and the means in them",
        )]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let clients = setup.rows.len();
        setup.want_clients("clusters", self.clusters)?;
        setup.want_room_for_models("clusters", 2 * clients + self.clusters)?;
        let state = State {
            clients: ClientModels::new(clients),
            clusters: Assignment::none(self.clusters, clients),
            models: Vec::new(),
        };
        Ok(Box::new(Fesem {
            start: setup.common_start()?,
            trainer: self.training.trainer(&setup),
            count: self.clusters,
            state,
        }))
    }
}

struct Fesem {
    trainer: Trainer,
    count: usize,
    /// θ_0.
    start: Params,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// w_i.
    clients: ClientModels,
    clusters: Assignment,
    /// θ_k; empty before line 1 is done.
    models: Vec<Params>,
}

impl Fesem {
    /// Lines 1, 3 and 4; returns how many clients changed their cluster.
    fn recluster(&mut self) -> Result<usize> {
        let State { clients, clusters, models } = &mut self.state;
        let (who, known): (Vec<u32>, Vec<&Params>) = clients.known().unzip();
        if who.len() < self.count {
            return Ok(0);
        }
        let points: Vec<f64> = known.iter().flat_map(|model| model.iter().copied()).collect();
        let points = Points::new(&points, self.start.len())?;
        let distinct = (1..known.len()).any(|client| known[client] != known[0]);
        let found = match models.is_empty() {
            true if !distinct && self.count > 1 => return Ok(0),
            true => kmeans::cluster(
                points,
                self.count,
                &kmeans::Options::default(),
                &self.trainer.key.clone().word("kmeans"),
            )?,
            false => {
                let centres: Vec<f64> = models.iter().flat_map(|model| model.iter().copied()).collect();
                kmeans::lloyd(points, &centres, 1)?
            }
        };
        let mut switched = 0;
        for (&client, &cluster) in who.iter().zip(&found.clustering.labels) {
            let before = clusters.put(client, cluster);
            switched += usize::from(before.is_some_and(|before| before != cluster));
        }
        // The mean of the clients as they are assigned now.
        *models = (0..self.count)
            .map(|cluster| {
                let members = who.iter().zip(&known).filter(|(client, _)| clusters.of(**client) == Some(cluster));
                let members: Vec<&Params> = members.map(|(_, model)| *model).collect();
                match members.is_empty() {
                    true => Arc::new(found.clustering.centre(cluster).to_vec()),
                    false => parts::averaging::plain_mean(members.into_iter()),
                }
            })
            .collect();
        Ok(switched)
    }
}

impl Method for Fesem {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let asked = match self.state.models.is_empty() {
            true => Recipients::All,
            false => self.trainer.participants(room.round(), room),
        };
        let plan = self.trainer.plan(room.round());
        let models = self.state.models.iter().chain([&self.start]).cloned().collect();
        let mut ask = Ask::new(Phase::Train, models, Gather::Each);
        let mut orders = Vec::new();
        let clusters = &self.state.clusters;
        let groups = (0..self.state.models.len()).map(|cluster| clusters.members(cluster));
        let without: Vec<u32> = match self.state.models.is_empty() {
            true => (0..clusters.each().len() as u32).collect(),
            false => clusters.unassigned(),
        };
        for (model, mut members) in groups.chain([without]).enumerate() {
            members.retain(|&client| asked.contains(client));
            if !members.is_empty() {
                orders.push(ask.order(Recipients::list(members), Train::from_model(model, plan.clone())));
            }
        }
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&answers.losses(&orders))?;
        self.state.clients.take(&answers);
        let switched = self.recluster()?;
        let sizes = self.state.clusters.sizes();
        Ok(Progress { loss, switched: Some(switched), sizes, finished: self.trainer.is_last(room) })
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        if self.state.models.is_empty() {
            let note = "no clusters: fewer clients than clusters sent models that differ".to_string();
            return Outcome { notes: vec![note], ..Outcome::of_model(self.start.clone()) };
        }
        Outcome::of_clusters(self.state.models.clone(), self.state.clusters.clone())
    }

    keep_state!();
}
