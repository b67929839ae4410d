//! Oracle averaging: every client's own minimiser, averaged inside the true clusters, in one round. What one-shot
//! methods are after; nobody could run it on real clients.
//!
//! ```text
//! each client i: θ̂_i ← argmin F_i, sent
//! θ_k ← plain mean of the θ̂_i of true cluster k, sent to its clients
//! ```

use super::odcl::{Solve, Solving};
use super::*;

settings! {
    pub(super) struct OracleAverageSettings {
        solving: Solving,
    }
}

impl MethodSettings for OracleAverageSettings {
    const NAME: &str = "oracle-average";
    const SUMMARY: &str = "the clients' minimisers, averaged inside the true clusters";
    const PAPER: &str = "baseline";
    const HAS_CLUSTERS: bool = true;

    fn needs_truth(&self) -> bool {
        true
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let truth = setup.true_clusters()?.to_vec();
        Ok(Box::new(GroupMeans::new(&setup, &self.solving, Some(truth))?))
    }
}

/// One mean for every group of clients, known beforehand.
pub(super) struct GroupMeans {
    solve: Solve,
    /// The group of every client; `None` has everybody in one, which is no cluster.
    groups: Option<Vec<usize>>,
    models: Vec<Params>,
}

impl GroupMeans {
    pub(super) fn new(setup: &Setup, solving: &Solving, groups: Option<Vec<usize>>) -> Result<Self> {
        Ok(Self { solve: solving.solve(setup)?, groups, models: Vec::new() })
    }

    fn members(&self, group: usize) -> Recipients {
        match &self.groups {
            None => Recipients::All,
            Some(groups) => {
                Recipients::list((0u32..).zip(groups).filter(|(_, g)| **g == group).map(|(c, _)| c).collect())
            }
        }
    }
}

impl Method for GroupMeans {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let count = self.groups.as_ref().map_or(1, |groups| groups.iter().max().map_or(0, |last| last + 1));
        let gather = Gather::Sum { by: By::All, weight: Weight::Uniform };
        let mut ask = Ask::new(Phase::Train, self.solve.models(), gather);
        let orders: Vec<_> = (0..count).map(|group| self.solve.order(self.members(group), &mut ask)).collect();
        let answers = room.ask(&ask)?;
        let loss = room.watch(&answers.losses(&orders))?;
        for (group, &order) in orders.iter().enumerate() {
            let sum = &answers.of(order).sums[0];
            if sum.count == 0 {
                let message = match self.groups {
                    Some(_) => format!("cluster {group}: none of its clients answered"),
                    None => "none of the clients answered".into(),
                };
                return Err(Error::new(ErrorKind::Client, message).hint("there is only one round to answer in"));
            }
            self.models.push(Arc::new(sum.total.iter().map(|total| total / sum.weight).collect()));
        }
        let given = match &self.groups {
            Some(groups) => groups.iter().copied().map(Some).collect(),
            None => vec![Some(0); room.clients().len()],
        };
        hand_over(&self.models, &given, room)?;
        let sizes = match self.groups {
            Some(_) => answers.orders.iter().map(|order| order.clients.len()).collect(),
            None => Vec::new(),
        };
        Ok(Progress { loss, switched: None, sizes, finished: true })
    }

    fn planned_rounds(&self) -> usize {
        1
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            models: self.models.clone(),
            clustered: self.groups.is_some(),
            serving: match &self.groups {
                Some(groups) => Serving::Given(groups.iter().copied().map(Some).collect()),
                None => Serving::Choose,
            },
            ..Outcome::default()
        }
    }

    keep_state!(models);
}
