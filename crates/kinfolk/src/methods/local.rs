//! Local training: every client on its own, nothing shared. The baseline that shows what a federation is worth.
//!
//! ```text
//! each client: θ ← random, its own
//! for each round: each client trains on from its θ and keeps it
//! ```
//!
//! Models stay with the clients between rounds; only a loss goes up. With `solve = "exact"` there is one round, in which
//! every client finds the minimiser of its own loss.

use super::*;
use crate::federation::{Ask, Gather, Keep, Order, Phase, Start, Work};

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
            state: State { round: 0, stamps: vec![0; setup.rows.len()], first_loss: None, absences: Absences::NONE },
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
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    round: usize,
    /// The ask after which each client last kept its model; 0 before the first.
    stamps: Vec<u64>,
    first_loss: Option<f64>,
    absences: Absences,
}

impl Method for Local {
    fn round(&mut self, federation: &mut dyn Federation) -> Result<Progress> {
        let round = self.state.round;
        let plan = self.training.plan(&self.key, round, self.step);
        let everybody = federation.clients().len();
        let asked = self.training.participants(&self.key, round, federation);
        // Clients that missed a round hold an older model: one order for every age.
        let mut ages: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for client in (0..everybody as u32).filter(|&client| asked.contains(client)) {
            ages.entry(self.state.stamps[client as usize]).or_default().push(client);
        }
        let order = |(stamp, clients): (u64, Vec<u32>)| {
            let to = Recipients::list(clients);
            if let Some(ridge) = self.ridge {
                return Order { to, work: Work::Minimise { ridge, keep: true } };
            }
            let from = match (stamp, &self.common) {
                (0, Some(_)) => Start::Model(0),
                (0, None) => Start::Fresh { seed: self.key.clone().word("start").seed() },
                (stamp, _) => Start::Own { stamp },
            };
            Order { to, work: Work::Train { from, plan: plan.clone(), keep: Keep::Instead } }
        };
        let answers = federation.ask(&Ask {
            phase: Phase::Train,
            models: self.common.iter().filter(|_| self.ridge.is_none()).cloned().collect(),
            orders: ages.into_iter().map(order).collect(),
            gather: Gather::Each,
        })?;
        self.training.missing.accept(&answers, federation, round)?;
        let losses: Vec<f64> = answers.orders.iter().flat_map(|order| order.losses.iter().copied()).collect();
        let loss = watch_loss(&losses, &mut self.state.first_loss, round)?;
        for (client, stamp) in stamps_after(&answers) {
            self.state.stamps[client as usize] = stamp;
        }
        self.state.absences.count(&answers);
        self.state.round += 1;
        Ok(Progress { loss, switched: None, sizes: Vec::new(), finished: self.state.round >= self.planned_rounds() })
    }

    fn planned_rounds(&self) -> usize {
        if self.ridge.is_some() { 1 } else { self.training.rounds }
    }

    fn outcome(&self) -> Outcome {
        let mut notes: Vec<String> = self.state.absences.note().into_iter().collect();
        let untrained = self.state.stamps.iter().filter(|&&stamp| stamp == 0).count();
        if untrained > 0 {
            notes.push(format!("{untrained} clients never trained and have no model"));
        }
        Outcome {
            serving: Serving::Own { stamps: self.state.stamps.clone(), clusters: None },
            notes,
            ..Outcome::default()
        }
    }

    keep_state!();
}
