//! Oracle averaging: every client's own minimiser, averaged inside the true clusters, in one round. What one-shot
//! methods are after; nobody could run it on real clients.
//!
//! ```text
//! each client i: θ̂_i ← argmin F_i, sent
//! θ_k ← plain mean of the θ̂_i of true cluster k, sent to its clients
//! ```

use super::odcl::{Solve, check_one_shot, one_shot_settings};
use super::*;
use crate::federation::{Ask, By, Gather, Order, Phase};

pub(super) static KIND: MethodKind = MethodKind {
    name: "oracle-average",
    summary: "the clients' minimisers, averaged inside the true clusters",
    paper: "baseline",
    settings: one_shot_settings!(),
    needs_truth: |_| true,
    has_clusters: true,
    wants: Ability::Descent,
    check: check_one_shot,
    build: |setup| {
        let truth = setup.true_clusters()?.to_vec();
        Ok(Box::new(GroupMeans::new(&setup, Some(truth))?))
    },
};

/// One mean for every group of clients, known beforehand.
pub(super) struct GroupMeans {
    solve: Solve,
    missing: MissingRule,
    /// The group of every client; `None` has everybody in one, which is no cluster.
    groups: Option<Vec<usize>>,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    models: Vec<Params>,
    absences: Absences,
}

impl GroupMeans {
    pub(super) fn new(setup: &Setup, groups: Option<Vec<usize>>) -> Result<Self> {
        let state = State { models: Vec::new(), absences: Absences::NONE };
        Ok(Self { solve: Solve::of(setup)?, missing: MissingRule::of(setup.settings), groups, state })
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
    fn round(&mut self, federation: &mut dyn Federation) -> Result<Progress> {
        let count = self.groups.as_ref().map_or(1, |groups| groups.iter().max().map_or(0, |last| last + 1));
        let work = self.solve.work();
        let order = |group: usize| Order { to: self.members(group), work: work.clone() };
        let answers = federation.ask(&Ask {
            phase: Phase::Train,
            models: self.solve.models(),
            orders: (0..count).map(order).collect(),
            gather: Gather::Sum { by: By::All, weight: Weight::Uniform },
        })?;
        self.missing.accept(&answers, federation, 0)?;
        self.state.absences.count(&answers);
        let losses: Vec<f64> = answers.orders.iter().flat_map(|order| order.losses.iter().copied()).collect();
        let loss = watch_loss(&losses, &mut None, 0)?;
        for (group, order) in answers.orders.iter().enumerate() {
            let sum = &order.sums[0];
            if sum.count == 0 {
                let message = match self.groups {
                    Some(_) => format!("cluster {group}: none of its clients answered"),
                    None => "none of the clients answered".into(),
                };
                return Err(Error::new(ErrorKind::Client, message).hint("there is only one round to answer in"));
            }
            self.state.models.push(Arc::new(sum.total.iter().map(|total| total / sum.weight).collect()));
        }
        let given = match &self.groups {
            Some(groups) => groups.iter().copied().map(Some).collect(),
            None => vec![Some(0); federation.clients().len()],
        };
        hand_over(&self.state.models, &given, federation)?;
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
            models: self.state.models.clone(),
            clustered: self.groups.is_some(),
            serving: match &self.groups {
                Some(groups) => Serving::Given(groups.iter().copied().map(Some).collect()),
                None => Serving::Choose,
            },
            notes: self.state.absences.note().into_iter().collect(),
            ..Outcome::default()
        }
    }

    keep_state!();
}
