//! Local training: every client on its own, nothing shared. The baseline that shows what a federation is worth.
//!
//! ```text
//! each client: θ ← random, its own
//! for each round: each client trains on from its θ and keeps it
//! ```
//!
//! Models stay with the clients between rounds; only a loss goes up. With `solve = "exact"` there is one round, in which
//! every client finds the minimiser of its own loss.

use super::room::stamps_after;
use super::*;
use crate::federation::work::{Keep, Minimise, Start, Train};

choices! {
    /// How clients find their models.
    pub(super) enum Solve { Steps = "steps", Exact = "exact" }
}

settings! {
    pub(super) struct LocalSettings {
        /// step size; auto is safe on this data for full batches of a linear model, 0.1 for a network, 0.01 for adam
        step: Auto<f64> [above 0.0] = "auto",
        /// begin at a model of its own, or all at one
        start: StartModel = "own",
        /// train by steps, or find the minimiser of the local loss in one round
        solve: Solve = "steps",
        /// strength of ½·ridge·‖θ‖² added to every client's loss; where a client's classes separate, a small one is added anyway
        #[only_with(solve = "exact")]
        ridge: f64 [0.0..=1e18] = 0.0,
        training: Training,
    }

    fn check(&self, check: &mut Check) {
        if self.solve == Solve::Exact {
            for name in check.changed(&STEP_SETTINGS) {
                let hint = format!("leave {name} out, or set solve = \"steps\"");
                check.fault_with_hint(name, "solve = \"exact\" takes no steps", hint);
            }
        }
    }
}

impl MethodSettings for LocalSettings {
    const NAME: &str = "local";
    const SUMMARY: &str = "every client on its own";
    const PAPER: &str = "baseline";

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let exact = self.solve == Solve::Exact;
        if exact {
            odcl::want_minimiser(&setup)?;
        }
        Ok(Box::new(Local {
            step: setup.step(self.step),
            ridge: exact.then_some(self.ridge),
            common: (self.start == StartModel::Common).then(|| odcl::common_start(&setup)).transpose()?,
            stamps: vec![0; setup.rows.len()],
            training: self.training,
            key: setup.key,
        }))
    }
}

/// Settings that mean nothing to clients that solve exactly.
const STEP_SETTINGS: [&str; 10] = [
    "rounds",
    "start",
    "step",
    "local_steps",
    "local_epochs",
    "batch",
    "decay",
    "optimiser",
    "momentum",
    "weight_decay",
];

struct Local {
    training: Training,
    step: f64,
    /// Where clients minimise exactly.
    ridge: Option<f64>,
    common: Option<Params>,
    key: Key,
    /// The ask after which each client last kept its model; 0 before the first.
    stamps: Vec<u64>,
}

impl Method for Local {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let plan = self.training.plan(&self.key, room.round(), self.step);
        let asked = self.training.participants(&self.key, room.round(), room);
        // Clients that missed a round hold an older model: one order for every age.
        let mut ages: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (client, &stamp) in (0..).zip(&self.stamps).filter(|(client, _)| asked.contains(*client)) {
            ages.entry(stamp).or_default().push(client);
        }
        let models = self.common.iter().filter(|_| self.ridge.is_none()).cloned().collect();
        let mut ask = Ask::new(Phase::Train, models, Gather::Each);
        let order = |(stamp, clients): (u64, Vec<u32>)| {
            let to = Recipients::list(clients);
            if let Some(ridge) = self.ridge {
                return ask.order(to, Minimise { ridge, keep: true });
            }
            let from = match (stamp, &self.common) {
                (0, Some(_)) => Start::Model(0),
                (0, None) => Start::Fresh { seed: self.key.clone().word("start").seed() },
                (stamp, _) => Start::Own { stamp },
            };
            ask.order(to, Train { from, plan: plan.clone(), keep: Keep::Instead })
        };
        let orders: Vec<_> = ages.into_iter().map(order).collect();
        let answers = room.ask(&ask)?;
        let loss = room.watch(&answers.losses(&orders))?;
        stamps_after(&answers).for_each(|(client, stamp)| self.stamps[client as usize] = stamp);
        Ok(Progress::of(loss, room.round() + 1 >= self.planned_rounds()))
    }

    fn planned_rounds(&self) -> usize {
        if self.ridge.is_some() { 1 } else { self.training.rounds }
    }

    fn outcome(&self) -> Outcome {
        let untrained = self.stamps.iter().filter(|&&stamp| stamp == 0).count();
        let note = (untrained > 0).then(|| format!("{untrained} clients never trained and have no model"));
        let serving = Serving::Own { stamps: self.stamps.clone(), clusters: None };
        Outcome { serving, notes: note.into_iter().collect(), ..Outcome::default() }
    }

    keep_state!(stamps);
}
