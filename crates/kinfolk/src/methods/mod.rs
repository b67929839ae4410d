//! Methods: server-side code that reads like a paper's pseudocode and talks to clients only through a federation.
//!
//! One file a method; adding one is a file and a line in [`METHODS`]. Folders are what methods share: `personal/` of those
//! that give every client a model of its own, `mixtures/` of those for mixtures, `bottom_up/` of those that build clusters
//! from single clients.

mod al2sgd_plus;
mod bottom_up;
mod cfl;
mod cluster_oracle;
mod fedavg;
mod fedgrem;
mod fedsoft;
mod hierarchical;
mod ifca;
mod james_stein;
mod l2gd;
mod local;
mod local_em;
mod local_grem;
mod local_kmeans;
mod mixture_fedem;
mod mixture_fedgmm;
mod mixtures;
mod naive_average;
mod odcl;
mod one_shot_ifca;
mod oracle;
mod oracle_average;
mod personal;
mod pooled_em;
mod pooled_grem;
pub mod room;
mod single_cluster;
mod single_model;
mod sr_fca;
mod tgmm;

pub(crate) use mixtures::components::choose_components;
pub(crate) use single_model::pooled_minimiser;

use crate::aggregate::{Sum, Weight};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::work::Receive;
use crate::federation::{Ask, By, Gather, Params, Phase, Recipients};
use crate::groups::{Groups, Origin};
use crate::memory::check_room;
use crate::models::{Ability, Model};
use crate::rng::Key;
use crate::settings::{Auto, Check, Declared, Field, Kind, Setting, Settings, choices, settings, unknown_name};
use crate::training::{Amount, Course, Optimiser, Plan, Portion, Sample};
use room::{MissingRule, Room};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A method as users name it.
pub struct MethodKind {
    /// The word in `method.name`.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// Its settings.
    pub settings: &'static [Setting],
    /// Whether it is told what was planted.
    pub needs_truth: fn(&Settings) -> bool,
    /// Whether it has its clients in clusters, which a method below may take over.
    pub has_clusters: bool,
    /// What a model must be able to do for it.
    pub wants: Ability,
    /// Faults that need more than one setting to see.
    pub check: fn(&str, &Settings, &mut Vec<Error>),
    /// Makes one ready to run.
    pub build: fn(Setup) -> Result<Box<dyn Method>>,
}

/// A method's settings, and the method that is made from them.
trait MethodSettings: Declared {
    /// The word in `method.name`.
    const NAME: &str;
    /// One line for people.
    const SUMMARY: &str;
    /// Where the method comes from.
    const PAPER: &str;
    /// Whether it has its clients in clusters, which a method below may take over.
    const HAS_CLUSTERS: bool = false;
    /// What a model must be able to do for it.
    const WANTS: Ability = Ability::Descent;

    /// Whether the method is told what was planted, other than as its groups.
    fn needs_truth(&self) -> bool {
        false
    }

    /// Makes the method ready to run.
    fn build(self, setup: Setup) -> Result<Box<dyn Method>>;
}

impl MethodKind {
    /// The method that is made from these settings.
    const fn new<S: MethodSettings>() -> Self {
        Self {
            name: S::NAME,
            summary: S::SUMMARY,
            paper: S::PAPER,
            settings: S::SETTINGS,
            needs_truth: |settings| {
                Origin::of(settings) == Some(Origin::Truth)
                    || S::read(settings).is_some_and(|settings| settings.needs_truth())
            },
            has_clusters: S::HAS_CLUSTERS,
            wants: S::WANTS,
            check: S::check_section,
            build: |setup| S::of(setup.settings).build(setup),
        }
    }
}

/// Every method there is.
pub static METHODS: &[&MethodKind] = &[
    &MethodKind::new::<ifca::IfcaSettings>(),
    &MethodKind::new::<odcl::OdclSettings>(),
    &MethodKind::new::<sr_fca::SrFcaSettings>(),
    &MethodKind::new::<cfl::CflSettings>(),
    &MethodKind::new::<fedsoft::FedSoftSettings>(),
    &MethodKind::new::<local_kmeans::LocalKmeansSettings>(),
    &MethodKind::new::<one_shot_ifca::OneShotIfcaSettings>(),
    &MethodKind::new::<fedavg::FedAvgSettings>(),
    &MethodKind::new::<local::LocalSettings>(),
    &MethodKind::new::<oracle::OracleSettings>(),
    &MethodKind::new::<naive_average::NaiveAverageSettings>(),
    &MethodKind::new::<oracle_average::OracleAverageSettings>(),
    &MethodKind::new::<cluster_oracle::ClusterOracleSettings>(),
    &MethodKind::new::<l2gd::L2gdSettings>(),
    &MethodKind::new::<al2sgd_plus::Al2sgdPlusSettings>(),
    &MethodKind::new::<hierarchical::HierarchicalSettings>(),
    &MethodKind::new::<single_cluster::SingleClusterSettings>(),
    &MethodKind::new::<james_stein::JamesSteinSettings>(),
    &MethodKind::new::<single_model::SingleModelSettings>(),
    &MethodKind::new::<fedgrem::FedGrEmSettings>(),
    &MethodKind::new::<local_em::LocalEmSettings>(),
    &MethodKind::new::<local_grem::LocalGrEmSettings>(),
    &MethodKind::new::<pooled_em::PooledEmSettings>(),
    &MethodKind::new::<pooled_grem::PooledGrEmSettings>(),
    &MethodKind::new::<mixture_fedem::MixtureFedEmSettings>(),
    &MethodKind::new::<mixture_fedgmm::MixtureFedGmmSettings>(),
    &MethodKind::new::<tgmm::TgmmSettings>(),
];

/// The method of this name.
pub fn kind(name: &str) -> Option<&'static MethodKind> {
    METHODS.iter().copied().find(|kind| kind.name == name)
}

/// The fault of a name that no method has, with the one it has now or the nearest of all.
pub fn unknown(place: &str, name: &str, known: &[&str]) -> Error {
    let renamed = |published: &str| {
        Error::settings(format!("{place}: got \"{name}\", want \"mixture-{name}\""))
            .hint(format!("{published} proper trains models to predict by; this version of it fits mixtures of rows"))
    };
    match name {
        "fedem" => renamed("FedEM"),
        "fedgmm" => renamed("FedGMM"),
        _ => unknown_name(place, name, known),
    }
}

/// What a method is made from.
pub struct Setup<'a> {
    /// Where its settings stand, for messages: `method.LABEL`.
    pub place: String,
    /// Its checked settings.
    pub settings: &'a Settings,
    /// The model it trains.
    pub model: Arc<dyn Model>,
    /// Training rows of every client, as the clients described them.
    pub rows: &'a [usize],
    /// The most the loss curves on any client's rows, where that is known.
    pub curvature: Option<f64>,
    /// The true cluster of every client, for methods that need it.
    pub truth: Option<&'a [usize]>,
    /// The planted parameters of every true cluster, for methods that need the truth, where they are known.
    pub planted: Option<&'a [Vec<f64>]>,
    /// Who belongs together, for methods that are told so ([`Grouping`](crate::groups::Grouping)).
    pub groups: Option<Groups>,
    /// The seed of this repeat, for draws that all methods share.
    pub seed: u64,
    /// Names this method's draws: seed and label.
    pub key: Key,
}

/// A method in the middle of a run.
pub trait Method: Send {
    /// One round.
    fn round(&mut self, room: &mut Room) -> Result<Progress>;

    /// How many rounds it means to run at most.
    fn planned_rounds(&self) -> usize;

    /// The name of the stage that the last round ended, of a method that has stages: it is scored there.
    fn stage(&self) -> Option<String> {
        None
    }

    /// What it has found so far.
    fn outcome(&self) -> Outcome;

    /// Its state as bytes, for a checkpoint.
    fn save(&self) -> Result<Vec<u8>>;

    /// Its state from bytes.
    fn restore(&mut self, bytes: &[u8]) -> Result<()>;
}

/// How a round went.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Mean loss of the clients that answered, before the round's step.
    pub loss: Option<f64>,
    /// How many clients changed cluster.
    pub switched: Option<usize>,
    /// Clients in every cluster; empty for methods without clusters.
    pub sizes: Vec<usize>,
    /// Whether this was the last round.
    pub finished: bool,
}

impl Progress {
    /// Of a method without clusters.
    fn of(loss: Option<f64>, finished: bool) -> Self {
        Self { loss, switched: None, sizes: Vec::new(), finished }
    }
}

impl Setup<'_> {
    /// The true cluster of every client, or the fault that there is none.
    fn true_clusters(&self) -> Result<&[usize]> {
        self.truth.ok_or_else(|| no_true_clusters(&self.place))
    }

    /// Refuses to compare more clients with each other than there is memory for, at so many bytes a pair.
    fn want_room_for_pairs(&self, bytes: usize) -> Result<()> {
        let clients = self.rows.len();
        check_room(&format!("{}: pairs of {clients} clients", self.place), &[clients, clients], bytes)
    }

    /// Refuses more models than there is memory for.
    fn want_room_for_models(&self, setting: &str, count: usize) -> Result<()> {
        check_room(&format!("{}.{setting}", self.place), &[count, self.model.layout().len()], size_of::<f64>())
    }

    /// Refuses a setting that wants more clusters, or more clients in one, than there are clients.
    fn want_clients(&self, setting: &str, wanted: usize) -> Result<()> {
        let (place, there) = (&self.place, self.rows.len());
        if wanted <= there {
            return Ok(());
        }
        Err(Error::settings(format!("{place}.{setting}: got {wanted}, want at most the number of clients, {there}")))
    }

    /// The step size to use.
    fn step(&self, step: Auto<f64>) -> f64 {
        step.given().unwrap_or_else(|| auto_step(self.settings, self.curvature))
    }
}

/// The fault of data without the truth that the setting or method at this place needs.
pub(crate) fn no_true_clusters(place: &str) -> Error {
    Error::settings(format!("{place}: the data has no true clusters"))
        .hint("set data.clusters, or data.truth for a table, or leave this method out")
}

/// Whether a method of these settings takes steps, and wants them chosen from the data.
pub(crate) fn takes_auto_step(settings: &Settings, model: &dyn Model) -> bool {
    let word = |name: &str| settings.get(name).and_then(toml::Value::as_str);
    let exact = match word("solve") {
        Some("auto") => model.convex().is_some(),
        solve => solve == Some("exact"),
    };
    !exact && word("step") == Some("auto")
}

/// What `step = "auto"` stands for: for descent on a loss whose curvature is known, the step that cannot overshoot.
pub(crate) fn auto_step(settings: &Settings, curvature: Option<f64>) -> f64 {
    let decay = ["weight_decay", "ridge"].iter().find_map(|name| f64::find(settings, name)).unwrap_or(0.0);
    match (OptimiserKind::find(settings, "optimiser"), curvature) {
        (Some(OptimiserKind::Adam), _) => 0.01,
        (_, Some(curvature)) => 1.0 / (curvature + decay).max(1e-12),
        (_, None) => 0.1,
    }
}

/// What a method found. Of a method with personal models inside clusters, `models` are the clusters'.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The models of the clusters, or the one model.
    pub models: Vec<Params>,
    /// Whether the models stand for clusters.
    pub clustered: bool,
    /// The mean of all models, where a method with clusters has one.
    pub global: Option<Params>,
    /// How a client that took part is served.
    pub serving: Serving,
    /// All starts' models, the best one's included, where there were several.
    pub candidates: Vec<Vec<Params>>,
    /// Whether it reached what it was after.
    pub converged: bool,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Numbers of its own for the summary.
    pub extra: BTreeMap<String, f64>,
    /// What else is known of mixtures.
    pub mixture: Option<MixtureOutcome>,
    /// How far clients are apart, where a method compared them.
    pub comparison: Option<Comparison>,
    /// What it minimises, where another method may minimise the same.
    pub minimises: Option<Minimises>,
}

/// What the clients' models minimise.
#[derive(Debug, Clone, PartialEq)]
pub struct Minimises {
    /// Identifies the objective: equal texts are the same objective.
    pub objective: String,
    /// Whether they are its minimiser; otherwise they approach it.
    pub exactly: bool,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            models: Vec::new(),
            clustered: false,
            global: None,
            serving: Serving::Choose,
            candidates: Vec::new(),
            converged: true,
            notes: Vec::new(),
            extra: BTreeMap::new(),
            mixture: None,
            comparison: None,
            minimises: None,
        }
    }
}

/// How far clients are apart, and from where on they are strangers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Two clients and their distance, each pair that was compared once.
    pub pairs: Vec<(u32, u32, f64)>,
    /// λ: those at most this far apart belong together; `None` where that is everybody.
    pub lambda: Option<f64>,
    /// Why λ is what it is.
    pub reason: String,
}

/// What a method for mixtures found beside the clients' own ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MixtureOutcome {
    /// The centres that all clients have in common, end to end; empty where there are none.
    pub common: Vec<f64>,
    /// How far each client is from them; empty where nobody measures it.
    pub apart: Vec<Option<Apart>>,
    /// What clients would be handed if this were the end, in place of the first parameters they keep; empty where they
    /// have it already.
    pub drafts: Vec<Option<Params>>,
}

/// How far a client's centres are from the common ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Apart {
    /// The outlier score: the mean distance of its centres, in units of how far the common centre reaches.
    pub score: f64,
    /// For how many components it is out of reach.
    pub components: usize,
}

/// How a client that took part is served.
#[derive(Debug, Clone, PartialEq)]
pub enum Serving {
    /// By the model with the smallest loss on its training rows.
    Choose,
    /// By the model of the cluster it was given; one that was given none chooses.
    Given(Vec<Option<usize>>),
    /// By a model of its own.
    Own {
        /// The stamp each client's model carries; 0 for none.
        stamps: Vec<u64>,
        /// The cluster of each client, where personal models belong to clusters.
        clusters: Option<Vec<usize>>,
    },
}

/// Restores what [`save`] wrote.
fn restore<S: DeserializeOwned>(bytes: &[u8]) -> Result<S> {
    postcard::from_bytes(bytes)
        .map_err(|error| Error::new(ErrorKind::Io, format!("a checkpoint could not be read: {error}")))
}

/// A method's state as bytes.
fn save<S: Serialize>(state: &S) -> Result<Vec<u8>> {
    postcard::to_stdvec(state)
        .map_err(|error| Error::new(ErrorKind::Io, format!("a checkpoint could not be written: {error}")))
}

/// `save` and `restore` of a method that keeps all that changes in its field `state`, or in the one named.
macro_rules! keep_state {
    ($field:ident) => {
        fn save(&self) -> Result<Vec<u8>> {
            save(&self.$field)
        }

        fn restore(&mut self, bytes: &[u8]) -> Result<()> {
            self.$field = restore(bytes)?;
            Ok(())
        }
    };
    () => {
        keep_state!(state);
    };
}
use keep_state;

choices! {
    /// How gradients become steps.
    enum OptimiserKind { Descent = "descent", Adam = "adam" }
    /// The models at which clients begin: each at one of its own, or all at the same.
    enum StartModel { Own = "own", Common = "common" }
    /// What clients send: a model after local steps, or a gradient.
    enum Averaging { Models = "models", Gradients = "gradients" }
}

choices!(Weight { Uniform = "uniform", Rows = "rows", });

settings! {
    /// How gradients become steps.
    struct Optimising {
        /// how gradients become steps
        optimiser: OptimiserKind = "descent",
        /// momentum of descent
        momentum: f64 [0.0..=1.0] = 0.0,
        /// pull of the parameters towards 0
        weight_decay: f64 [0.0..=1e18] = 0.0,
    }

    fn check(&self, check: &mut Check) {
        if self.optimiser == OptimiserKind::Adam && self.momentum > 0.0 {
            check.fault("momentum", "adam has its own, want 0");
        }
    }
}

settings! {
    /// How clients train, the same for every method that has them train.
    struct Training {
        /// rounds to run at most
        rounds: usize [1..=1 << 40] = 100,
        /// steps a client takes in a round (default 10)
        local_steps: Option<u32> [1..=1 << 31],
        /// passes over its rows instead of steps
        local_epochs: Option<u32> [1..=1 << 31],
        /// rows in a step (default all)
        batch: Option<u32> [1..=1 << 31],
        /// the step shrinks by this factor every round
        decay: f64 [0.0..=1.0] = 1.0,
        optimising: Optimising,
        /// share of the clients asked in a round
        participation: f64 [above 0.0..=1.0] = 1.0,
        /// a missing answer is left out, stands for no change, or ends the run
        missing: MissingRule ["skip", "keep", "fail"] = "skip",
    }

    fn check(&self, check: &mut Check) {
        if self.local_steps.is_some() && self.local_epochs.is_some() {
            check.fault("local_epochs", "local_steps is given too, want one of them");
        }
    }
}

impl Optimising {
    fn optimiser(&self) -> Optimiser {
        match self.optimiser {
            OptimiserKind::Adam => Optimiser::Adam { weight_decay: self.weight_decay },
            OptimiserKind::Descent => Optimiser::Descent { momentum: self.momentum, weight_decay: self.weight_decay },
        }
    }
}

impl Training {
    /// Faults of settings that mean nothing to clients that send gradients.
    fn check_averaging(&self, averaging: Averaging, check: &mut Check) {
        if averaging == Averaging::Models {
            return;
        }
        for name in check.changed(&["local_steps", "local_epochs", "momentum", "optimiser", "weight_decay"]) {
            let hint = format!("leave {name} out, or use averaging = \"models\"");
            check.fault_with_hint(name, "averaging = \"gradients\" takes plain steps at the server", hint);
        }
    }

    /// Rows of a step in this round.
    fn sample(&self, key: &Key, round: usize) -> Sample {
        Sample { on: Portion::All, batch: self.batch, seed: key.clone().word("batches").number(round as u64).seed() }
    }

    /// A client's training in this round.
    fn plan(&self, key: &Key, round: usize, step: f64) -> Plan {
        Plan {
            sample: self.sample(key, round),
            amount: match self.local_epochs {
                Some(epochs) => Amount::Epochs(epochs),
                None => Amount::Steps(self.local_steps.unwrap_or(10)),
            },
            step: self.step_at(round, step),
            optimiser: self.optimising.optimiser(),
            pulls: Vec::new(),
            course: Course::PLAIN,
        }
    }

    /// The step size in this round, from 0.
    fn step_at(&self, round: usize, step: f64) -> f64 {
        step * self.decay.powi(round.min(i32::MAX as usize) as i32)
    }

    /// Who takes part in this round.
    fn participants(&self, key: &Key, round: usize, room: &Room) -> Recipients {
        if self.participation >= 1.0 {
            return Recipients::All;
        }
        let all = room.clients().len();
        let count = ((self.participation * all as f64).round() as usize).clamp(1, all);
        draw_clients(&key.clone().word("participation").number(round as u64), count, room)
    }

    /// The new model from a sum of models: their mean, with `absent` clients standing for the old model.
    /// With no answer at all the model stays as it is.
    fn mean(&self, old: &Params, sum: &Sum, absent: usize) -> Params {
        if sum.count == 0 {
            return old.clone();
        }
        let absent = match self.missing {
            MissingRule::Keep => absent as f64 * sum.weight / sum.count as f64,
            _ => 0.0,
        };
        let whole = sum.weight + absent;
        Arc::new(sum.total.iter().zip(old.iter()).map(|(total, old)| (total + absent * old) / whole).collect())
    }
}

/// So many clients at random. Each draws its own lot, so that the order of the clients does not matter.
fn draw_clients(key: &Key, count: usize, room: &Room) -> Recipients {
    let mut lots: Vec<(u64, u32)> =
        (0u32..).zip(room.clients()).map(|(index, client)| (key.clone().word(&client.id).seed(), index)).collect();
    lots.sort_unstable();
    Recipients::list(lots.into_iter().take(count).map(|(_, index)| index).collect())
}

/// How many clients each of so many clusters has.
fn sizes_of(clusters: usize, members: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut sizes = vec![0; clusters];
    members.for_each(|cluster| sizes[cluster] += 1);
    sizes
}

/// Hands every client the model it was given, and all of them to one that was given none.
fn hand_over(models: &[Params], given: &[Option<usize>], room: &mut Room) -> Result<()> {
    let mut ask = Ask::new(Phase::Train, models.to_vec(), Gather::Each);
    for wanted in (0..models.len()).map(Some).chain([None]) {
        let taker = |(client, given): (u32, &Option<usize>)| (*given == wanted).then_some(client);
        let to: Vec<u32> = (0..).zip(given).filter_map(taker).collect();
        if !to.is_empty() {
            let models = wanted.map_or_else(|| (0..models.len()).collect(), |model| vec![model]);
            ask.order(Recipients::list(to), Receive { models });
        }
    }
    room.hand_over(&ask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_registered() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/methods");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let stem = path.file_stem().unwrap().to_str().unwrap().replace("_plus", "+").replace('_', "-");
            assert!(
                ["mod", "room"].contains(&&*stem) || METHODS.iter().any(|kind| kind.name == stem),
                "{stem} is not in METHODS"
            );
        }
    }

    #[test]
    fn a_mean_with_absent_clients_by_hand() {
        let text = "missing = \"keep\"";
        let mut faults = Vec::new();
        let settings = Settings::check("m", Training::SETTINGS, toml::from_str(text).unwrap(), &mut faults);
        let mut training = Training::of(&settings);
        let sum = Sum { total: vec![6.0], weight: 3.0, count: 3 };
        let old = Arc::new(vec![10.0]);
        assert_eq!(*training.mean(&old, &sum, 1), [4.0]);
        training.missing = MissingRule::Skip;
        assert_eq!(*training.mean(&old, &sum, 1), [2.0]);
        assert_eq!(*training.mean(&old, &Sum::default(), 1), [10.0]);
    }
}
