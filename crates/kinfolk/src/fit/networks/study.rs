//! The study of networks on a table: which rows and columns they are trained on, and how.

use crate::assignment::Assignment;
use crate::compute::threads;
use crate::data::numbers::convert;
use crate::data::schema::Schema;
use crate::data::{Client, DataShape, Features, Shard, Targets};
use crate::error::Result;
use crate::families::Role;
use crate::federation::Params;
use crate::federation::engines::Engine;
use crate::federation::engines::local::LocalFederation;
use crate::federation::work::TargetScale;
use crate::methods::options::{OptimiserKind, Optimising, Schedule, Training};
use crate::methods::room::{MethodLedger, MissingRule};
use crate::methods::{AutoSettings, DataFacts, Networks, NetworksFound, Setup};
use crate::models::{MlpSettings, Model, ModelSettings, Precision};
use crate::rng::Key;
use crate::run::{Options, Watch};
use crate::settings::{Auto, Declared, Settings};
use std::collections::HashMap;
use std::sync::Arc;

/// Widths of the hidden layers.
pub(super) const HIDDEN: [usize; 2] = [32, 32];
/// Rounds of training at most, and where it shall be quick.
const ROUNDS: usize = 200;
const QUICK_ROUNDS: usize = 60;
/// Rows in a step, and the size of steps.
const BATCH: u32 = 32;
const STEP: f64 = 0.005;
/// Steps of a client in a round, from few rows to many.
const STEPS: std::ops::RangeInclusive<u32> = 4..=40;
/// Clients that are asked in a round: more of them hardly change the mean.
const ASKED: f64 = 200.0;

/// A table as networks see it: numbers of unit spread, and so is a target that is a number.
pub(super) struct NetworkTable {
    pub(super) clients: Vec<Client>,
    pub(super) shape: DataShape,
    /// The target's scale before.
    pub(super) target: TargetScale,
    /// Whether rows are in the order of time.
    pub(super) ordered: bool,
    /// The families, where they are known,
    pub(super) known: Option<Assignment>,
    /// and how many, where that is.
    pub(super) families: Option<usize>,
    pub(super) seed: u64,
    pub(super) quick: bool,
}

/// What was found, with the clients it was found of.
pub(super) struct Studied {
    pub(super) found: NetworksFound,
    /// Models of single clients, in their order.
    pub(super) own: Vec<Option<Params>>,
    pub(super) engine: Box<dyn Engine>,
    /// Answers that were missing.
    pub(super) note: Option<String>,
}

/// Whether there is a column to predict by.
pub(super) fn has_columns(schema: &Schema) -> bool {
    schema.roles().iter().any(|role| *role != Role::Unused)
}

/// Some columns of rows, with targets on this scale.
pub(super) fn scaled_rows(rows: &Shard, columns: &[usize], target: TargetScale) -> Result<Shard> {
    let mut buffer = Vec::new();
    let x = convert::<f64>(rows, &mut buffer);
    let picked = |row: &[f64]| columns.iter().map(|&column| row[column]).collect::<Vec<f64>>();
    let values = x.chunks_exact(rows.columns().max(1)).flat_map(picked).collect();
    let scaled = |value: &f64| (value - target.mean) / target.deviation;
    let targets = match (rows.classes(), rows.values()) {
        (Some(classes), _) => Targets::Classes(classes.to_vec()),
        (None, Some(values)) => Targets::Values(values.iter().map(scaled).collect()),
        (None, None) => Targets::None,
    };
    Shard::new(Features::F64 { columns: columns.len(), values }, targets)
}

/// A client with some columns of its rows, and targets on this scale.
pub(super) fn scaled_client(client: &Client, columns: &[usize], target: TargetScale) -> Result<Client> {
    let mut own = Client::new(client.id.clone(), scaled_rows(&client.train, columns, target)?);
    own.test = scaled_rows(&client.test, columns, target)?;
    Ok(own)
}

/// A network for rows of this shape.
pub(super) fn network(hidden: &[usize], precision: Precision, shape: DataShape) -> Result<Arc<dyn Model>> {
    let settings = MlpSettings { hidden: hidden.to_vec(), precision };
    Ok(Arc::from(settings.build(shape)?))
}

impl NetworkTable {
    /// How clients train: as many steps in a round as their rows have batches, in the mean.
    fn training(&self) -> Training {
        let clients = self.clients.len().max(1);
        let rows: usize = self.clients.iter().map(|client| client.train.len()).sum();
        let steps = (rows / clients) as u32 / BATCH;
        let optimising = Optimising { optimiser: OptimiserKind::Adam, ..Optimising::default() };
        let schedule = Schedule {
            local_steps: Some(steps.clamp(*STEPS.start(), *STEPS.end())),
            batch: Some(BATCH),
            optimising,
            participation: (ASKED / clients as f64).min(1.0),
            ..Schedule::rounds(if self.quick { QUICK_ROUNDS } else { ROUNDS })
        };
        Training { step: Auto::Given(STEP), schedule }
    }

    /// Studies the clients, as long as that is worth it.
    pub(super) fn study(
        &self,
        options: &Options,
        watch: &mut dyn Watch,
        mut is_worth_it: impl FnMut(&Networks, &mut dyn Engine) -> Result<bool>,
    ) -> Result<Option<Studied>> {
        let model = network(&HIDDEN, Precision::F32, self.shape)?;
        let rows: Vec<usize> = self.clients.iter().map(|client| client.train.len()).collect();
        let mut federation = LocalFederation::new(self.clients.clone(), threads(options.threads)?);
        federation = federation.with_backend(options.backend.clone());
        federation.set_model(model.clone())?;
        let mut engine = federation.afresh("networks", Default::default(), options.stop.clone())?;
        let setup = Setup {
            place: "fit".into(),
            settings: &Settings::defaults(AutoSettings::SETTINGS),
            model,
            rows: &rows,
            curvature: None,
            truth: None,
            planted: None,
            groups: None,
            over: None,
            facts: DataFacts { ordered: self.ordered, ..DataFacts::default() },
            seed: self.seed,
            key: Key::new(self.seed).word("networks"),
        };
        let mut method = Networks::new(&setup, self.training(), self.families)?.with_checks();
        if let Some(known) = &self.known {
            method = method.with_families(known.clone());
        }
        let mut ledger = MethodLedger::new(MissingRule::Skip);
        let mut round = 0;
        loop {
            round += 1;
            watch.doing(&format!("training networks: round {round}"));
            if ledger.run_round(&mut method, &mut *engine)?.finished {
                break;
            }
            if !is_worth_it(&method, &mut *engine)? {
                return Ok(None);
            }
        }
        let mut models: HashMap<String, Vec<f64>> =
            engine.own_models().into_iter().flatten().map(|(id, model)| (id.to_string(), model)).collect();
        let own = self.clients.iter().map(|client| models.remove(&client.id).map(Params::new)).collect();
        Ok(Some(Studied { found: method.found(), own, note: ledger.note(), engine }))
    }
}
