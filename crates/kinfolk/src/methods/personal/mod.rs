//! What methods share that give every client of a known cluster a personal model.
//!
//! They minimise Σ_j Σ_i f_i(θ_i) + γ_i/2·‖θ_i − w_j‖² + λ_j/2·‖w_j − w̄‖² over the clients' models θ_i, the clusters'
//! centres w_j and the global centre w̄; or the same without centres, with the share α_j of every γ_i pulling at the mean
//! of all and the rest at the mean of the cluster. The two agree for α_j = λ_j/(λ_j + Σ_i γ_i).
//!
//! | file | what it is |
//! |---|---|
//! | `strengths.rs` | the known clusters; γ, λ and α as they are given, and who is pulled alike |
//! | `preparation.rs` | strengths that are not given: estimated from the data, or tuned on a grid |
//! | `fit.rs` | the exact minimiser |
//! | `coins.rs` | probabilities of local steps and steps towards means, and the coins drawn by them |
//! | `theory.rs` | step size and probabilities by the paper's theory |
//! | `convexity.rs` | μ of the whole objective |
//! | `algorithm.rs` | how a client's vectors move: what tells the asynchronous algorithms apart |
//! | `cluster.rs` | a cluster's clients as the server follows them between two asks |
//! | `message.rs` | one ask to the clients of several clusters |
//! | `complete.rs` | asks that are repeated until everybody has answered |

pub mod algorithm;
pub mod cluster;
pub mod coins;
pub mod complete;
pub mod convexity;
pub mod fit;
pub mod message;
pub mod preparation;
pub mod strengths;
#[cfg(test)]
mod tests;
pub mod theory;

use super::*;
use crate::groups::{Grouping, Origin};
use crate::models::Precision;
use crate::settings::ForEach;
use crate::training::Scale;
use preparation::Preparation;
pub use strengths::{Class, Families, Strengths};

choices! {
    /// A client's loss: over its rows the sum, as in a likelihood, or the mean.
    pub enum LossOver { Sum = "sum", Mean = "mean" }
    /// Whether clients differ alike in all clusters.
    pub enum Spread { Common = "common", PerCluster = "per-cluster" }
}

settings! {
    /// How a client is pulled to its cluster.
    pub struct ClientPull {
        /// who belongs together
        grouping: Grouping,
        /// γ, the pull of a client to its cluster: a number; one for every cluster (a list in the order of their names, or a
        /// table by name); or a list with one for every client
        gamma: Option<ForEach>,
        /// a client's loss: over its rows the sum, as in a likelihood, or the mean
        loss: LossOver = "sum",
        /// variance of the noise of a linear model where strengths are given (default 1)
        noise: Option<f64> [above 0.0],
        /// where strengths are estimated: whether clients differ alike in all clusters
        #[only_with(tune = false)]
        spread: Spread = "common",
    }

    fn check(&self, check: &mut Check) {
        if self.spread == Spread::PerCluster && self.gamma.is_some() {
            check.fault("spread", "is for strengths that are estimated");
        }
        if self.noise.is_some() && self.gamma.is_none() {
            check.fault("noise", "is for given strengths; it is estimated with them otherwise");
        }
    }
}

settings! {
    /// What personal methods minimise.
    pub struct Objective {
        /// how a client is pulled to its cluster
        client: ClientPull,
        /// λ, the pull of a cluster to the global centre: a number, or one for every cluster
        lambda: Option<ForEach>,
        /// α instead of λ: the share of γ that pulls to everybody's mean, 0 to 1
        alpha: Option<ForEach>,
        /// choose strengths by cross-validation over a grid instead of estimating them
        tune: bool = false,
        /// values to try when tuning (default: 17 from 0.01 to 100)
        #[only_with(tune = true)]
        grid: Option<Vec<f64>>,
        /// parts of a client's rows when tuning
        folds: u32 [2..=1000] = 5,
    }

    fn check(&self, check: &mut Check) {
        let given = self.client.gamma.is_some();
        let tie = [("alpha", &self.alpha), ("lambda", &self.lambda)].into_iter().find(|(_, tie)| tie.is_some());
        if self.lambda.is_some() && self.alpha.is_some() {
            let hint = "alpha is lambda / (lambda + the sum of gamma)";
            check.fault_with_hint("alpha", "lambda is given too, want one of them", hint);
        }
        match tie {
            Some((name, _)) if !given => {
                let hint = "give gamma too, or neither: then both are estimated";
                check.fault_with_hint(name, "is of no use without gamma", hint);
            }
            None if given => {
                let hint = "give one of them too, or none: then they are estimated";
                check.fault_with_hint("gamma", "is given without lambda or alpha", hint);
            }
            _ => {}
        }
        for name in check.changed(&["gamma", "lambda", "alpha"]).into_iter().filter(|_| self.tune) {
            check.fault_with_hint(name, "is given, but tune = true looks for it", "leave it or tune out");
        }
        if self.client.loss == LossOver::Mean && !given && !self.tune {
            let hint = "give gamma, or set tune = true";
            check.fault_with_hint("loss", "estimated strengths are about the likelihood, want \"sum\"", hint);
        }
    }
}

impl Objective {
    /// What clients tell for strengths that are not given.
    pub(in crate::methods) fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        match self.tune {
            true => preparation::discloses_tuning(self.grid.as_ref(), self.folds, ability),
            false => self.client.discloses(ability),
        }
    }
}

impl ClientPull {
    /// What clients tell for strengths that are not given.
    pub(in crate::methods) fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        if self.gamma.is_some() { Vec::new() } else { preparation::discloses_estimates() }
    }

    pub(in crate::methods) fn needs(&self, missing: MissingRule) -> Needs {
        let truth = self.grouping.origin() == Origin::Truth;
        Needs { truth, groups: Some(self.grouping.clone()), over: None, missing, auto_step: None }
    }
}

/// What every personal method solves: the clients in their clusters, their model and losses.
pub struct Problem {
    pub families: Families,
    pub model: Arc<dyn Model>,
    pub key: Key,
    pub rows: Vec<usize>,
    /// Whether a client's loss is the sum over its rows.
    by: Weight,
    /// Where everybody begins.
    pub start: Params,
    /// Identifies the objective, among methods that share its settings.
    objective: Option<String>,
}

impl Problem {
    pub fn new(setup: &Setup, families: Families, loss: LossOver) -> Result<Self> {
        let by = match loss {
            LossOver::Sum => Weight::Rows,
            LossOver::Mean => Weight::Uniform,
        };
        // A convex loss has one minimiser wherever one begins; networks need a start at which units differ.
        let start = match setup.model.convex().is_some() {
            true => Arc::new(vec![0.0; setup.model.layout().len()]),
            false => setup.common_start()?,
        };
        Ok(Self {
            families,
            model: setup.model.clone(),
            key: setup.key.clone(),
            rows: setup.rows.to_vec(),
            by,
            start,
            objective: None,
        })
    }

    /// The clusters are the groups that the method was told.
    pub fn with_groups(setup: &Setup, pull: &ClientPull) -> Result<Self> {
        let groups = setup
            .groups
            .as_ref()
            .ok_or_else(|| Error::settings(format!("{}.groups: the clients' groups are not known", setup.place)))?;
        let value = |setting: &Setting| format!("{} = {:?}", setting.name, setup.settings.get(setting.name));
        let settings: Vec<String> = Objective::SETTINGS.iter().map(value).collect();
        Ok(Self { objective: Some(settings.join(", ")), ..Self::new(setup, Families::from_groups(groups), pull.loss)? })
    }

    /// What is minimised, and whether the models are its minimiser.
    pub fn minimises(&self, exactly: bool) -> Option<Minimises> {
        self.objective.clone().map(|objective| Minimises { objective, exactly })
    }

    /// A client's loss in the objective: its likelihood, or the mean of that over its rows.
    pub fn scale(&self, noise: f64) -> Scale {
        Scale { factor: self.model.likelihood() / noise, by: self.by }
    }

    pub fn response_round(&self, phase: Phase, noise: f64) -> fit::ResponseRound<'_> {
        fit::ResponseRound {
            families: &self.families,
            scale: self.scale(noise),
            phase,
            on: Portion::All,
            exact: self.model.is_quadratic(),
            tolerance: if self.model.precision() == Precision::F32 { 1e-5 } else { 1e-10 },
        }
    }

    /// What a method ends with whose clients keep models of these asks: in clusters with centres, unless nobody is pulled.
    pub fn outcome(&self, preparation: &Preparation, stamps: &[u64], centres: Centres) -> Outcome {
        let mut notes: Vec<String> = self.families.note().into_iter().collect();
        let mut extra = BTreeMap::new();
        preparation.describe(&mut notes, &mut extra);
        let clustered = preparation.strengths().is_some_and(|strengths| !strengths.are_zero());
        let (clusters, global) = if clustered { centres } else { (Vec::new(), None) };
        Outcome {
            models: clusters.into_iter().map(Arc::new).collect(),
            clustered,
            clusters_given: true,
            global: global.map(Arc::new),
            serving: Serving::Own {
                stamps: stamps.to_vec(),
                clusters: Some(self.families.of.iter().copied().collect()),
            },
            notes,
            extra,
            ..Outcome::default()
        }
    }
}

/// The centres of the clusters, and the global one where there is one.
type Centres = (Vec<Vec<f64>>, Option<Vec<f64>>);

/// The fault of a model without quadratics, where they are needed.
pub(super) fn want_quadratic(setup: &Setup, what: &str) -> Result<()> {
    if setup.model.convex().is_some() {
        return Ok(());
    }
    Err(Error::settings(format!("{}: {what} wants a linear or logistic model", setup.place)))
}
