//! What a method needs of a run, and what it is made from.

use super::*;
use crate::families::Role;
use crate::federation::work::TargetScale;
use crate::groups::Grouping;
use crate::memory::check_room;
use crate::over::Over;

/// What a method needs of the run, by its settings.
pub struct Needs {
    /// Whether it is told the true clusters and planted parameters.
    pub truth: bool,
    /// Where its groups come from, if it is told groups.
    pub groups: Option<Grouping>,
    /// The label of the method above whose clusters and models it begins with, if any.
    pub over: Option<String>,
    /// What a missing answer means.
    pub missing: MissingRule,
    /// The step size to choose from the data, if it is not given.
    pub auto_step: Option<AutoStep>,
}

impl Needs {
    /// The needs of a method that is told nothing and takes no steps of unknown size.
    pub fn only(missing: MissingRule) -> Self {
        Self { truth: false, groups: None, over: None, missing, auto_step: None }
    }
}

/// A step size chosen from the data.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(hidden)]
pub struct AutoStep {
    pub(crate) optimiser: Optimiser,
    /// Whether no steps are taken with a model that has an exact minimiser.
    pub(crate) only_without_minimiser: bool,
}

impl AutoStep {
    /// The step size for this optimiser, unless it is given.
    pub(super) fn unless_given<T>(step: &Auto<T>, optimiser: Optimiser) -> Option<Self> {
        matches!(step, Auto::Auto).then_some(Self { optimiser, only_without_minimiser: false })
    }

    /// Whether steps are taken with this model.
    pub(crate) fn is_used(&self, model: &dyn Model) -> bool {
        !(self.only_without_minimiser && model.convex().is_some())
    }
}

/// What `step = "auto"` stands for: for descent on a loss of known curvature, the step that cannot overshoot.
pub(crate) fn auto_step(optimiser: Optimiser, curvature: Option<f64>) -> f64 {
    match (optimiser, curvature) {
        (Optimiser::Adam { .. }, _) => 0.01,
        (Optimiser::Descent { weight_decay, .. }, Some(curvature)) => 1.0 / (curvature + weight_decay).max(1e-12),
        (Optimiser::Descent { .. }, None) => 0.1,
    }
}

/// What clients said of their columns and targets.
#[derive(Debug, Clone, Default, PartialEq)]
#[doc(hidden)]
pub struct DataFacts {
    /// What each column is to a linear model; empty where all are alike.
    pub(crate) columns: Vec<Role>,
    /// The target's mean and deviation over all clients, where it is a number.
    pub(crate) target: Option<TargetScale>,
    /// Whether rows are in the order of time.
    pub(crate) ordered: bool,
}

/// What a method is made from.
pub struct Setup<'a> {
    /// The path of its settings, for messages: `method.LABEL`.
    pub place: String,
    /// Its checked settings.
    pub settings: &'a Settings,
    /// The model it trains.
    pub model: Arc<dyn Model>,
    /// Training rows of every client, as the clients described them.
    pub rows: &'a [usize],
    /// The largest curvature of the loss on any client's rows, if known.
    pub curvature: Option<f64>,
    /// The true cluster of every client, for methods that need it.
    pub truth: Option<&'a [usize]>,
    /// The planted parameters of every true cluster, for methods that need the truth, if known.
    pub planted: Option<&'a [Vec<f64>]>,
    /// The groups of the clients, for methods that are told groups.
    pub groups: Option<Groups>,
    /// What the method above found, for methods that go on from it.
    pub over: Option<Over>,
    /// What clients said of their columns and targets.
    pub facts: DataFacts,
    /// The seed of this repeat, for draws that all methods share.
    pub seed: u64,
    /// The key of this method's draws: seed and label.
    pub key: Key,
}

impl Setup<'_> {
    /// The model that all clients begin with, rounded as it travels: means of networks need it.
    pub fn common_start(&self) -> Result<Params> {
        let mut start = self.model.common_start(&mut start_key(&self.key, 0, 0).rng())?;
        self.model.precision().round(&mut start);
        Ok(Arc::new(start))
    }

    /// Random models that differ.
    pub fn random_models(&self, count: usize) -> Result<Vec<Params>> {
        random_models(&*self.model, &self.key, 0, count)
    }

    pub(super) fn true_clusters(&self) -> Result<Assignment> {
        Ok(self.truth.ok_or_else(|| no_true_clusters(&self.place))?.iter().copied().collect())
    }

    pub(super) fn want_room_for_pairs(&self, bytes: usize) -> Result<()> {
        let clients = self.rows.len();
        check_room(&format!("{}: pairs of {clients} clients", self.place), &[clients, clients], bytes)
    }

    pub(super) fn want_room_for_models(&self, setting: &str, count: usize) -> Result<()> {
        check_room(&format!("{}.{setting}", self.place), &[count, self.model.layout().len()], size_of::<f64>())
    }

    /// An error if a setting wants more clusters, or more clients in one, than there are clients.
    pub(super) fn want_clients(&self, setting: &str, wanted: usize) -> Result<()> {
        let (place, there) = (&self.place, self.rows.len());
        if wanted <= there {
            return Ok(());
        }
        Err(Error::settings(format!("{place}.{setting}: got {wanted}, want at most the number of clients, {there}")))
    }

    /// The step size to use with this optimiser.
    pub(super) fn step(&self, step: Auto<f64>, optimiser: Optimiser) -> f64 {
        step.given().unwrap_or_else(|| auto_step(optimiser, self.curvature))
    }
}

pub(super) fn start_key(key: &Key, start: usize, cluster: usize) -> Key {
    key.clone().word("start").number(start as u64).number(cluster as u64)
}

/// Random models that differ, one a cluster.
pub(super) fn random_models(model: &dyn Model, key: &Key, start: usize, clusters: usize) -> Result<Vec<Params>> {
    (0..clusters).map(|cluster| model.initialise(&mut start_key(key, start, cluster).rng()).map(Arc::new)).collect()
}

/// The error of a setting or method that needs the truth, for data without one.
pub(crate) fn no_true_clusters(place: &str) -> Error {
    Error::settings(format!("{place}: the data has no true clusters"))
        .hint("set data.clusters, or data.truth for a table, or leave this method out")
}
