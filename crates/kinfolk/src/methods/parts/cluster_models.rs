//! A model for every cluster of clients, each cluster a federation of its own; or one model, and everybody together.

use super::super::*;
use super::aggregating::Aggregating;
use crate::federation::Handle;
use crate::federation::work::{Answer, HasLoss, TypedWork};
use crate::over::Over;

settings! {
    /// What methods for personal models lie over, and how their clients train.
    pub struct Layer {
        /// the label of a method above: its clusters, each from its model; left out: everybody together
        over: Option<String>,
        /// how clients train
        training: Training,
        /// how what they send becomes one model
        aggregating: Aggregating,
    }
}

impl Layer {
    /// What clients tell of a model of which they share a part.
    pub(in crate::methods) fn discloses_shared(&self) -> Vec<Disclosure> {
        let rounds = self.training.schedule.rounds;
        vec![
            Disclosure::sums::<work::TrainParts>(Phase::Train, rounds, "the mean of shared parameters"),
            Disclosure::single::<work::TrainParts>(Phase::Train, 1, "a model of its own, which stays with it")
                .without_vector::<work::TrainParts>(),
        ]
    }

    pub(in crate::methods) fn needs(&self) -> Needs {
        Needs { over: self.over.clone(), ..self.training.needs() }
    }

    pub(in crate::methods) fn trainer(&self, setup: &Setup) -> Trainer {
        self.training.clone().trainer(setup).aggregating(&self.aggregating)
    }
}

/// Clusters of clients with their models.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClusterModels {
    pub clusters: Assignment,
    pub models: Vec<Params>,
    /// Whether the clusters are a finding, this method's or another's: not everybody together.
    clustered: bool,
}

/// Orders of an ask, each with the cluster whose members it is for.
pub type ClusterOrders<A> = Vec<(usize, Handle<A>)>;

impl ClusterModels {
    pub fn new(clusters: Assignment, models: Vec<Params>) -> Self {
        Self { clusters, models, clustered: true }
    }

    /// Everybody together.
    pub fn one(clients: usize, model: Params) -> Self {
        Self { clusters: Assignment::one(clients), models: vec![model], clustered: false }
    }

    /// What the setting `over` means: the clusters and models that a method above ended with, or everybody together. A client
    /// that is in none of its clusters is a cluster by itself.
    pub fn over(setup: &Setup) -> Result<Self> {
        let start = setup.common_start()?;
        let Some(Over { clusters, models }) = &setup.over else { return Ok(Self::one(setup.rows.len(), start)) };
        let Some(clusters) = clusters else { return Ok(Self::one(setup.rows.len(), models[0].clone())) };
        let mut all = Self::new(clusters.clone(), models.clone());
        for client in clusters.unassigned() {
            all.clusters.put(client, all.models.len());
            all.models.push(start.clone());
        }
        Ok(all)
    }

    /// The clusters, where they are more than everybody together.
    fn found(&self) -> Option<Assignment> {
        self.clustered.then(|| self.clusters.clone())
    }

    /// Orders work from those members of every cluster that are asked.
    pub fn order<W: TypedWork>(
        &self,
        asked: &Recipients,
        ask: &mut Ask,
        mut work: impl FnMut(usize) -> W,
    ) -> ClusterOrders<W::Answer> {
        self.order_by(asked, &vec![0; self.clusters.each().len()], ask, |cluster, _| work(cluster))
    }

    /// The same where the work depends on the stamp of what a client keeps: one order a cluster and stamp.
    pub fn order_by<W: TypedWork>(
        &self,
        asked: &Recipients,
        stamps: &[u64],
        ask: &mut Ask,
        mut work: impl FnMut(usize, u64) -> W,
    ) -> ClusterOrders<W::Answer> {
        let mut orders = Vec::new();
        for cluster in 0..self.models.len() {
            let members = self.clusters.members(cluster).into_iter().filter(|&client| asked.contains(client));
            for (stamp, to) in Recipients::by_stamp(members, stamps) {
                let to = if self.clustered || *asked != Recipients::All || stamps.iter().any(|&other| other != stamp) {
                    to
                } else {
                    Recipients::All
                };
                orders.push((cluster, ask.order(to, work(cluster, stamp))));
            }
        }
        orders
    }

    /// Every model becomes the mean of those that the members of its cluster sent, or what the trainer makes of them.
    pub fn average<A: Answer>(
        &mut self,
        (trainer, weight): (&Trainer, Weight),
        answers: &Answers,
        orders: &ClusterOrders<A>,
        room: &Room,
    ) {
        let sums = trainer.sums(weight, &self.models, answers, orders);
        for (cluster, (model, sum)) in self.models.iter_mut().zip(&sums).enumerate() {
            let of_this = orders.iter().filter(|(of, _)| *of == cluster);
            let unusable: usize = of_this.map(|(_, order)| answers.of(*order).unusable()).sum();
            let absent = absent_from(cluster, &self.clusters, answers) + unusable;
            *model = mean_model(model, sum, room.unchanged(absent));
        }
    }

    /// A round of averaging in every cluster; `change` adds to the plan of a cluster.
    pub fn train(
        &mut self,
        trainer: &Trainer,
        weight: Weight,
        room: &mut Room,
        change: impl Fn(usize, &mut Plan),
    ) -> Result<Option<f64>> {
        let asked = trainer.participants(room.round(), room);
        let mut ask = Ask::new(Phase::Train, self.models.clone(), trainer.gather(By::All, weight));
        let orders = self.order(&asked, &mut ask, |cluster| {
            let mut plan = trainer.plan(room.round());
            change(cluster, &mut plan);
            Train::from_model(cluster, plan)
        });
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&losses(&answers, &orders))?;
        self.average((trainer, weight), &answers, &orders, room);
        Ok(loss)
    }

    /// How a round went.
    pub fn progress(&self, loss: Option<f64>, finished: bool) -> Progress {
        let sizes = if self.clustered { self.clusters.sizes() } else { Vec::new() };
        Progress { loss, switched: self.clustered.then_some(0), sizes, finished }
    }

    /// Every client served by the model of its cluster.
    pub fn outcome(&self) -> Outcome {
        match self.clustered {
            true => Outcome::of_clusters(self.models.clone(), self.clusters.clone()),
            false => Outcome { models: self.models.clone(), ..Outcome::default() },
        }
    }
}

/// The models of clusters, and the stamps of clients' own ones.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PersonalModels {
    pub base: ClusterModels,
    /// 0 before a client has one.
    pub stamps: Vec<u64>,
}

impl PersonalModels {
    /// Nobody has a model of its own yet.
    pub fn over(setup: &Setup) -> Result<Self> {
        Ok(Self { base: ClusterModels::over(setup)?, stamps: vec![0; setup.rows.len()] })
    }

    /// Every client served by a model of its own.
    pub fn outcome(&self) -> Outcome {
        let untrained = self.stamps.iter().filter(|&&stamp| stamp == 0).count();
        let note = (untrained > 0).then(|| format!("{untrained} clients never trained and have no model of their own"));
        Outcome {
            serving: Serving::Own { stamps: self.stamps.clone(), clusters: self.base.found() },
            notes: note.into_iter().collect(),
            ..self.base.outcome()
        }
    }
}

/// The losses in the answers to some orders.
pub fn losses<A: HasLoss>(answers: &Answers, orders: &ClusterOrders<A>) -> Vec<f64> {
    answers.losses(orders.iter().map(|(_, order)| order))
}

/// The stamps of what clients keep after an ask. What a client with a garbage answer keeps may be anything: it begins anew.
pub fn note_stamps(answers: &Answers, stamps: &mut [u64]) {
    stamps_after(answers).for_each(|(client, _)| stamps[client as usize] = 0);
    let answered = answers.orders.iter().flat_map(|order| &order.clients);
    answered.for_each(|&client| stamps[client as usize] = answers.stamp);
}
