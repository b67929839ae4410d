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

pub(super) static KIND: MethodKind = MethodKind {
    name: "local",
    summary: "every client on its own",
    paper: "baseline",
    settings: training_settings!(
        STEP,
        Setting::new(
            "start",
            Kind::OneOf(&["own", "common"]),
            Default::Is("\"own\""),
            "begin at a model of its own, or all at one"
        ),
        Setting::new(
            "solve",
            Kind::OneOf(&["steps", "exact"]),
            Default::Is("\"steps\""),
            "train by steps, or find the minimiser of the local loss in one round"
        ),
        odcl::RIDGE,
    ),
    needs_truth: |_| false,
    has_clusters: false,
    wants: Ability::Descent,
    check: |place, settings, faults| {
        check_training(place, settings, faults);
        if settings.text("solve") == "exact" {
            let names = settings.changed(KIND.settings, &STEP_SETTINGS);
            let fault = |name| {
                Error::settings(format!("{place}.{name}: solve = \"exact\" takes no steps"))
                    .hint(format!("leave {name} out, or set solve = \"steps\""))
            };
            faults.extend(names.into_iter().map(fault));
        } else if settings.number("ridge") > 0.0 {
            faults.push(
                Error::settings(format!("{place}.ridge: is for solve = \"exact\"")).hint("use weight_decay with steps"),
            );
        }
    },
    build: |setup| {
        let exact = setup.settings.text("solve") == "exact";
        if exact {
            odcl::want_minimiser(&setup)?;
        }
        Ok(Box::new(Local {
            training: Training::of(setup.settings),
            step: setup.steps()[0],
            ridge: exact.then(|| setup.settings.number("ridge")),
            common: (setup.settings.text("start") == "common").then(|| odcl::common_start(&setup)).transpose()?,
            stamps: vec![0; setup.rows.len()],
            key: setup.key,
        }))
    },
};

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
