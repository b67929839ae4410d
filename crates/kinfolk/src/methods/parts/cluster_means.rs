//! The mean of the models that clients find alone, in every cluster known beforehand, in one round.

use super::super::*;
use super::aggregating::Aggregating;
use super::solving::Solve;
use crate::aggregate::robust;

pub struct ClusterMeans {
    solve: Solve,
    clusters: Assignment,
    /// Whether the outcome has clusters; otherwise there is one, of all clients.
    clustered: bool,
    aggregating: Aggregating,
    key: Key,
    models: Vec<Params>,
}

impl ClusterMeans {
    /// One mean for every cluster.
    pub fn inside(clusters: Assignment, solve: Solve, aggregating: &Aggregating, key: &Key) -> Self {
        let (aggregating, key) = (aggregating.clone(), key.clone().word("aggregate"));
        Self { solve, clusters, clustered: true, aggregating, key, models: Vec::new() }
    }

    /// One mean of all clients.
    pub fn of_all(clients: usize, solve: Solve, aggregating: &Aggregating, key: &Key) -> Self {
        Self { clustered: false, ..Self::inside(Assignment::one(clients), solve, aggregating, key) }
    }
}

impl Method for ClusterMeans {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let gather = self.aggregating.gather(By::All, Weight::Uniform);
        let mut ask = Ask::new(Phase::Train, self.solve.models(), gather);
        let members = |cluster: usize| match self.clustered {
            true => Recipients::list(self.clusters.members(cluster)),
            false => Recipients::All,
        };
        let clusters = 0..self.clusters.clusters();
        let orders: Vec<_> = clusters.map(|cluster| self.solve.order(members(cluster), &mut ask)).collect();
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&answers.losses(&orders))?;
        // Minimisers are updates of no model: their medians stand for it.
        let middle = |order: &OrderAnswers| {
            Arc::new(robust::median(&finite_vectors(order).map(|(_, vector)| vector).collect::<Vec<_>>()))
        };
        let before: Vec<Params> = answers.orders.iter().map(middle).collect();
        let orders = answers.orders.iter().enumerate();
        let sums = self.aggregating.by_order((Weight::Uniform, &self.key), &before, orders);
        for (cluster, sum) in sums.iter().enumerate() {
            if sum.count == 0 {
                let message = match self.clustered {
                    true => format!("cluster {cluster}: none of its clients answered"),
                    false => "none of the clients answered".into(),
                };
                return Err(Error::new(ErrorKind::Client, message).hint("there is only one round to answer in"));
            }
            self.models.push(Arc::new(sum.total.iter().map(|total| total / sum.weight).collect()));
        }
        room.distribute(&self.models, &self.clusters)?;
        let sizes = answers.orders.iter().filter(|_| self.clustered).map(|order| order.answered()).collect();
        Ok(Progress { loss, switched: None, sizes, finished: true })
    }

    fn outcome(&self) -> Outcome {
        match self.clustered {
            true => Outcome::of_clusters(self.models.clone(), self.clusters.clone()),
            false => Outcome { models: self.models.clone(), ..Outcome::default() },
        }
    }

    keep_state!(models);
}
