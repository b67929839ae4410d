//! ODCL, one-shot distributed clustered learning (Armacki, Bajović, Jakovetić, Kar: A one-shot framework for distributed
//! clustered learning in heterogeneous environments, 2022). One round: clients send what they learnt alone, the server
//! sees which of it is alike.
//!
//! ```text
//! 1  each client i: θ̂_i ← argmin F_i, sent            inexact: T steps from a common start
//! 2  C'_1 … C'_K' ← clusters of the points θ̂_i
//! 3  θ̃_k ← plain mean of the θ̂_i in C'_k
//! 4  each client of C'_k gets θ̃_k
//! ```
//!
//! Differences from the paper:
//! - inexact clients do not project on a bounded set; their step is given as a number (1/μ with `pace = "inverse"`).
//! - `clustering = "auto"` looks for the number of clusters and says how sure it is. Clients that fit no cluster are set
//!   aside: they count for no mean, and have the model of the nearest cluster.
//! - a client that did not answer has no model to be clustered by; it chooses among the clusters' models by its loss.

mod description;
pub(super) mod local_kmeans;

use super::parts::model_clusters::{ModelClusters, points_of};
use super::parts::solving::Solve;
use super::*;
use crate::clustering::convex::Weights;
use crate::clustering::quality::{RecoveryInterval, recovery_interval};
use crate::clustering::{Algorithm, Clustering, NEIGHBOURS, Points, Request};
use description::describe;
use rand::RngExt;

choices!(Algorithm {
    Auto = "auto",
    KMeans = "kmeans++",
    Spectral = "spectral",
    Gradient = "gradient",
    Convex = "convex",
    Clusterpath = "clusterpath",
});

choices! {
    /// Which models pull at each other.
    pub enum Pulling { Uniform = "uniform", Neighbours = "neighbours" }
}

/// λ of convex clustering.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lambda {
    /// From the true clusters.
    Exact,
    /// This number.
    Given(f64),
}

impl Field for Lambda {
    type Bound = f64;
    const KIND: Kind = f64::KIND;
    const OR: Option<&'static str> = Some("exact");

    fn parse(value: &toml::Value) -> Option<Self> {
        if value.is_str() { Some(Lambda::Exact) } else { f64::parse(value).map(Lambda::Given) }
    }

    fn value(&self) -> Option<toml::Value> {
        match self {
            Lambda::Exact => Some("exact".into()),
            Lambda::Given(lambda) => lambda.value(),
        }
    }

    fn unset() -> Self {
        Lambda::Given(f64::unset())
    }
}

settings! {
    /// The settings of the method `odcl`.
    pub struct OdclSettings {
        /// how models are clustered; auto finds the number of clusters and says how sure it is
        clustering: Algorithm = "auto",
        /// how many clusters, for kmeans++, spectral and gradient (default: by silhouette)
        #[only_with(clustering = "kmeans++" | "spectral" | "gradient")]
        clusters: Option<usize> [1..=1 << 20],
        /// starts of kmeans++, spectral and gradient
        starts: usize [1..=1 << 16] = 10,
        /// λ of convex (default: where the path's longest-lived clustering is); exact takes it from the true clusters
        #[only_with(clustering = "convex")]
        lambda: Option<Lambda> [0.0..=1e300],
        /// which models pull at each other in convex and clusterpath: all, or nearest neighbours
        #[only_with(clustering = "convex" | "clusterpath")]
        weights: Pulling = "uniform",
        /// how many neighbours (default 10)
        #[only_with(weights = "neighbours")]
        neighbours: Option<usize> [1..=1 << 20],
        /// values of λ on a path
        path_values: usize [3..=1 << 16] = 20,
        /// how a client finds a model of its own
        solving: Solving,
    }

    fn check(&self, check: &mut Check) {
        if self.lambda == Some(Lambda::Exact) && self.weights == Pulling::Neighbours {
            check.fault("lambda", "\"exact\" is for weights = \"uniform\"");
        }
    }
}

impl MethodSettings for OdclSettings {
    const NAME: &str = "odcl";
    const SUMMARY: &str = "one round: cluster the clients' own models, average inside";
    const PAPER: &str = "Armacki, Bajović, Jakovetić, Kar 2022";
    const HAS_CLUSTERS: bool = true;
    const WANTS_SINGLE: Option<&'static str> = Some("it clusters the clients' own models, which come one by one");

    fn needs(&self) -> Needs {
        Needs { truth: self.lambda == Some(Lambda::Exact), ..self.solving.needs() }
    }

    fn exposure(&self, _: u64, ability: Ability) -> Hidable {
        self.solving.exposure(ability)
    }

    fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        vec![self.solving.discloses(ability, Phase::Train, "clusters of the clients' own models, and their means")]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        setup.want_clients("clusters", self.clusters.unwrap_or(0))?;
        let (lambda, truth) = match self.lambda {
            Some(Lambda::Exact) => (None, Some(setup.true_clusters()?)),
            Some(Lambda::Given(lambda)) => (Some(lambda), None),
            None => (None, None),
        };
        let weights = match self.weights {
            Pulling::Uniform => Weights::Uniform,
            Pulling::Neighbours => {
                Weights::Neighbours { neighbours: self.neighbours.unwrap_or(NEIGHBOURS), decay: None }
            }
        };
        let request = Request {
            lambda,
            weights,
            starts: self.starts,
            path_values: self.path_values,
            ..Request::new(self.clustering, self.clusters, setup.key.clone().word("clustering"))
        };
        Ok(Box::new(Odcl::new(self.solving.solve(&setup)?, request, truth)))
    }
}

/// A run of the algorithm, with any local solves and any clustering.
struct Odcl {
    solve: Solve,
    request: Request,
    /// The true clusters, for an exact λ.
    truth: Option<Assignment>,
    state: State,
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    /// θ̃_k.
    models: Vec<Params>,
    clusters: Assignment,
    notes: Vec<String>,
    extra: BTreeMap<String, f64>,
}

impl Odcl {
    fn new(solve: Solve, request: Request, truth: Option<Assignment>) -> Self {
        Self { solve, request, truth, state: State::default() }
    }
}

impl Method for Odcl {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        // Line 1.
        let (answers, order) = self.solve.ask_all(Phase::Train, room)?;
        let order = answers.of(order);
        let loss = room.check_loss(&order.losses())?;
        let points = points_of(&order, &self.request, "there is only one round to answer in")?;
        if let Some(truth) = &self.truth {
            let labels: Vec<usize> = order.clients.iter().filter_map(|&client| truth.of(client)).collect();
            self.request.lambda = Some(exact_lambda(points, &labels, &self.request.key));
        }
        // Lines 2 and 3.
        let clusters = ModelClusters::find(points, &order.clients, &self.solve, &self.request)?;
        let (notes, extra) = describe(&clusters)?;
        let models = clusters.means();
        self.state = State { models, clusters: clusters.assignment(room.clients().len()), notes, extra };
        // Line 4.
        room.distribute(&self.state.models, &self.state.clusters)?;
        Ok(Progress { loss, switched: None, sizes: self.state.clusters.sizes(), finished: true })
    }

    fn outcome(&self) -> Outcome {
        let unassigned = self.state.clusters.unassigned().len();
        let silent = format!("{unassigned} clients did not answer and choose among the models by their loss");
        let silent = (unassigned > 0).then_some(silent);
        Outcome {
            notes: silent.into_iter().chain(self.state.notes.iter().cloned()).collect(),
            extra: self.state.extra.clone(),
            ..Outcome::of_clusters(self.state.models.clone(), self.state.clusters.clone())
        }
    }

    keep_state!();
}

/// λ as in the paper: uniform in the recovery interval of the true clusters, or its upper end where it is empty.
fn exact_lambda(points: Points, labels: &[usize], key: &Key) -> f64 {
    let RecoveryInterval { lower, upper } = recovery_interval(points, &Clustering::of(points, labels));
    match lower < upper {
        // One cluster has no upper end.
        true if upper.is_infinite() => lower,
        true => key.clone().word("lambda").rng().random_range(lower..upper),
        false => upper,
    }
}
