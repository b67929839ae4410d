//! What a method found.

use super::*;

/// What a method found. For personal models inside clusters, `models` are those of the clusters.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The models of the clusters, or the one model.
    pub models: Vec<Params>,
    /// Whether the models stand for clusters.
    pub clustered: bool,
    /// Whether the clusters were given to the method, and are no finding of its own.
    pub clusters_given: bool,
    /// The mean of all models, for methods with clusters that have one.
    pub global: Option<Params>,
    /// How a client that took part is served.
    pub serving: Serving,
    /// The models of all starts, the best included, if there were several.
    pub candidates: Vec<Vec<Params>>,
    /// Whether it converged.
    pub converged: bool,
    /// Notes for the reader of the result.
    pub notes: Vec<String>,
    /// Further numbers for the summary.
    pub extra: BTreeMap<String, f64>,
    /// What else is known, for methods for mixtures.
    pub mixture: Option<MixtureOutcome>,
    /// How far clients are apart, for methods that compare them.
    pub comparison: Option<Comparison>,
    /// What it minimises, if another method may minimise the same.
    pub minimises: Option<Minimises>,
}

/// What the clients' models minimise.
#[derive(Debug, Clone, PartialEq)]
#[doc(hidden)]
pub struct Minimises {
    /// Identifies the objective: equal texts are the same objective.
    pub(crate) objective: String,
    /// Whether they are its minimiser, or only approach it.
    pub(crate) exactly: bool,
}

impl Outcome {
    /// One model for everybody.
    pub fn of_model(model: Params) -> Self {
        Self { models: vec![model], ..Self::default() }
    }

    /// A model for every cluster, and who is in which.
    pub fn of_clusters(models: Vec<Params>, clusters: Assignment) -> Self {
        Self { models, clustered: true, serving: Serving::Given(clusters), ..Self::default() }
    }
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            models: Vec::new(),
            clustered: false,
            clusters_given: false,
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

/// How far clients are apart, and up to which distance they belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Two clients and their distance, once for every pair that was compared.
    pub pairs: Vec<(u32, u32, f64)>,
    /// λ: clients at most this far apart belong together; `None` if all do.
    pub lambda: Option<f64>,
    /// How λ was chosen.
    pub reason: String,
}

/// What a method for mixtures found beside the clients' own ones.
#[derive(Debug, Clone, Default, PartialEq)]
#[doc(hidden)]
pub struct MixtureOutcome {
    /// The centres that all clients have in common, end to end; empty where there are none.
    pub common: Vec<f64>,
    /// How far each client is from them; empty where nobody measures it.
    pub apart: Vec<Option<Apart>>,
    /// What clients would now be handed in place of the first parameters they keep; empty where they have it already.
    pub drafts: Vec<Option<Params>>,
}

/// How far a client's centres are from the common ones.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(hidden)]
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
    /// By the model of its cluster; a client in no cluster chooses.
    Given(Assignment),
    /// By a mixture of all models.
    Mixed {
        /// How much of each model every client is; they sum to 1.
        shares: Vec<Vec<f64>>,
    },
    /// By a model of its own.
    Own {
        /// The stamp of each client's model; 0 for none.
        stamps: Vec<u64>,
        /// The clusters, if personal models belong to clusters.
        clusters: Option<Assignment>,
    },
}
