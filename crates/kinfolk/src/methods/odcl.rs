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

use super::*;
use crate::clustering::convex::{self, Weights};
use crate::clustering::quality::{
    RecoveryInterval, recovery_interval, separability, separability_for_convex, separability_for_kmeans,
};
use crate::clustering::threshold::Distances;
use crate::clustering::{Algorithm, Clustering, Found, NEIGHBOURS, Points, Request, Sureness, find};
use crate::federation::work::{Keep, Loss, Minimise, Start, Train};
use crate::federation::{Answers, Handle, OrderAnswers};
use crate::linalg::distance;
use rand::RngExt;

choices! {
    /// How clients find their own models.
    pub(super) enum SolveBy { Auto = "auto", Exact = "exact", Steps = "steps" }
    /// Whether step t has the step size, or the step size divided by t.
    pub(super) enum Pace { Constant = "constant", Inverse = "inverse" }
    /// What a client sends: its last model, or the mean of all, weighted by t.
    pub(super) enum Iterate { Last = "last", Average = "average" }
}

settings! {
    /// How clients find their own models, the same for every method that asks for them once.
    pub(super) struct Solving {
        /// clients find their minimiser exactly, or by steps; auto is exactly where the model can
        solve: SolveBy = "auto",
        /// strength of ½·ridge·‖θ‖² added to every client's loss; where a client's classes separate, a small one is added anyway
        ridge: f64 [0.0..=1e18] = 0.0,
        /// steps of a client that does not solve exactly (default 100)
        #[only_with(solve = "steps" | "auto")]
        steps: Option<u32> [1..=1 << 31],
        /// step size; auto is safe on this data for full batches of a linear model, 0.1 for a network
        #[only_with(solve = "steps" | "auto")]
        step: Auto<f64> [above 0.0] = "auto",
        /// rows in a step (default all)
        #[only_with(solve = "steps" | "auto")]
        batch: Option<u32> [1..=1 << 31],
        /// whether step t has the step size, or the step size divided by t
        #[only_with(solve = "steps" | "auto")]
        pace: Pace = "constant",
        /// what a client sends: its last model, or the mean of all, weighted by t
        #[only_with(solve = "steps" | "auto")]
        iterate: Iterate = "last",
        /// a client stops when its gradient is no longer than this
        #[only_with(solve = "steps" | "auto")]
        tolerance: f64 [0.0..=1e18] = 0.0,
        /// a missing answer is left out, or ends the run
        missing: MissingRule ["skip", "fail"] = "skip",
    }

    fn check(&self, check: &mut Check) {
        if self.solve == SolveBy::Exact {
            return;
        }
        if self.tolerance > 0.0 && self.batch.is_some() {
            check.fault_with_hint(
                "tolerance",
                "the gradient of a batch is never that short",
                "leave batch or tolerance out",
            );
        }
        if self.tolerance > 0.0 && self.iterate == Iterate::Average {
            check.fault_with_hint(
                "tolerance",
                "is about the last model, not about an average",
                "leave iterate or tolerance out",
            );
        }
        if self.pace == Pace::Inverse && self.step == Auto::Auto {
            check.fault_with_hint(
                "step",
                "pace = \"inverse\" wants a number",
                "1/μ, where the loss curves by at least μ",
            );
        }
    }
}

/// The fault of a model without an exact minimiser.
pub(super) fn want_minimiser(setup: &Setup) -> Result<()> {
    if setup.model.convex().is_some() {
        return Ok(());
    }
    Err(Error::settings(format!("{}.solve: this model has no exact minimiser", setup.place)).hint("use \"steps\""))
}

/// How every client finds a model of its own.
pub(super) enum Solve {
    Exact {
        ridge: f64,
    },
    Steps {
        from: Params,
        plan: Plan,
    },
    /// Steps from random models of the clients' own.
    Apart {
        seed: u64,
        plan: Plan,
    },
}

impl Solving {
    /// How every client of this model finds one of its own.
    pub(super) fn solve(&self, setup: &Setup) -> Result<Solve> {
        if self.solve == SolveBy::Exact {
            want_minimiser(setup)?;
        }
        if self.solve != SolveBy::Steps && setup.model.convex().is_some() {
            let idle = ["steps", "step", "batch", "pace", "iterate", "tolerance"];
            let fault = |name| {
                Error::settings(format!("{}.{name}: this model is solved exactly, without steps", setup.place))
                    .hint(format!("leave {name} out, or set solve = \"steps\""))
            };
            let faults = setup.settings.changed(Self::SETTINGS, &idle).into_iter().map(fault);
            crate::settings::finish(faults.collect())?;
            return Ok(Solve::Exact { ridge: self.ridge });
        }
        let plan = Plan {
            sample: Sample {
                on: Portion::All,
                batch: self.batch,
                seed: setup.key.clone().word("batches").number(0).seed(),
            },
            amount: Amount::Steps(self.steps.unwrap_or(100)),
            step: setup.step(self.step),
            optimiser: Optimiser::Descent { momentum: 0.0, weight_decay: self.ridge },
            pulls: Vec::new(),
            course: Course {
                fading: self.pace == Pace::Inverse,
                averaged: self.iterate == Iterate::Average,
                tolerance: self.tolerance,
            },
        };
        Ok(Solve::Steps { from: common_start(setup)?, plan })
    }
}

impl Solve {
    /// The models the work needs.
    pub(super) fn models(&self) -> Vec<Params> {
        match self {
            Solve::Exact { .. } | Solve::Apart { .. } => Vec::new(),
            Solve::Steps { from, .. } => vec![from.clone()],
        }
    }

    /// What every client does.
    pub(super) fn order(&self, to: Recipients, ask: &mut Ask) -> Handle<Loss> {
        let train = |from: Start, plan: &Plan| Train { from, plan: plan.clone(), keep: Keep::No };
        match self {
            Solve::Exact { ridge } => ask.order(to, Minimise { ridge: *ridge, keep: false }),
            Solve::Steps { plan, .. } => ask.order(to, train(Start::Model(0), plan)),
            Solve::Apart { seed, plan } => ask.order(to, train(Start::Fresh { seed: *seed }, plan)),
        }
    }

    /// Line 1: everybody's model.
    pub(super) fn ask_everybody(&self, phase: Phase, room: &mut Room) -> Result<(Answers, Handle<Loss>)> {
        let mut ask = Ask::new(phase, self.models(), Gather::Each);
        let order = self.order(Recipients::All, &mut ask);
        Ok((room.ask(&ask)?, order))
    }
}

/// The model everybody begins at, as it travels: means of networks need it.
pub(super) fn common_start(setup: &Setup) -> Result<Params> {
    let mut start = setup.model.common_start(&mut setup.key.clone().word("start").number(0).number(0).rng())?;
    setup.model.precision().round(&mut start);
    Ok(Arc::new(start))
}

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
    pub(super) enum Pulling { Uniform = "uniform", Neighbours = "neighbours" }
}

/// λ of convex clustering: given, or from the true clusters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Lambda {
    Exact,
    Given(f64),
}

impl Field for Lambda {
    type Bound = f64;
    const KIND: Kind = f64::KIND;
    const OR: Option<&'static str> = Some("exact");

    fn parse(value: &toml::Value) -> Option<Self> {
        if value.is_str() { Some(Lambda::Exact) } else { f64::parse(value).map(Lambda::Given) }
    }
}

settings! {
    pub(super) struct OdclSettings {
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

    fn needs_truth(&self) -> bool {
        self.lambda == Some(Lambda::Exact)
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        setup.want_clients("clusters", self.clusters.unwrap_or(0))?;
        let (lambda, truth) = match self.lambda {
            Some(Lambda::Exact) => (None, Some(setup.true_clusters()?.to_vec())),
            Some(Lambda::Given(lambda)) => (Some(lambda), None),
            None => (None, None),
        };
        let request = Request {
            algorithm: self.clustering,
            clusters: self.clusters,
            lambda,
            weights: match self.weights {
                Pulling::Uniform => Weights::Uniform,
                Pulling::Neighbours => {
                    Weights::Neighbours { neighbours: self.neighbours.unwrap_or(NEIGHBOURS), decay: None }
                }
            },
            starts: self.starts,
            path_values: self.path_values,
            key: setup.key.clone().word("clustering"),
        };
        let clients = setup.rows.len();
        Ok(Box::new(Odcl::new(self.solving.solve(&setup)?, request, truth, clients)))
    }
}

pub(super) struct Odcl {
    solve: Solve,
    request: Request,
    /// The true clusters, for an exact λ.
    truth: Option<Vec<usize>>,
    clients: usize,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    models: Vec<Params>,
    /// The cluster of every client that answered.
    given: Vec<Option<usize>>,
    notes: Vec<String>,
    extra: BTreeMap<String, f64>,
}

impl Odcl {
    pub(super) fn new(solve: Solve, request: Request, truth: Option<Vec<usize>>, clients: usize) -> Self {
        let state = State { models: Vec::new(), given: Vec::new(), notes: Vec::new(), extra: BTreeMap::new() };
        Self { solve, request, truth, clients, state }
    }
}

/// Refuses answers that are too few for the clusters asked for.
pub(super) fn want_answers(order: &OrderAnswers, request: &Request, hint: &str) -> Result<()> {
    let (answered, wanted) = (order.clients.len(), request.clusters.unwrap_or(1));
    if answered >= wanted {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Client, format!("{answered} clients answered, want at least {wanted}")).hint(hint))
}

/// Lines 2 and 3: clusters of the models that came, and their means.
pub(super) fn cluster(order: &OrderAnswers, solve: &Solve, request: &Request) -> Result<Found> {
    let points = Points::new(&order.vectors, order.vectors.len() / order.clients.len().max(1))?;
    let mut found = find(points, request, &mut |_| Ok(()))?;
    if let Solve::Steps { from, .. } = solve
        && (0..points.count()).all(|client| points.row(client) == &from[..])
    {
        let reason = "no client took a step: all sent the model they began at".to_string();
        match &mut found.sureness {
            Some(sureness) => *sureness = Sureness { word: "unsure", reason },
            None => found.notes.push(reason),
        }
    }
    Ok(found)
}

/// Who fits no cluster, where somebody does not.
pub(super) fn note_aside(order: &OrderAnswers, found: &Found) -> Option<String> {
    let names: Vec<String> = found.aside.iter().map(|&point| order.clients[point].to_string()).collect();
    let (clients, verb) = if names.len() == 1 { ("client", "fits") } else { ("clients", "fit") };
    let (names, count) = (names.join(", "), names.len());
    (count > 0).then(|| format!("{count} {clients} {verb} no cluster and count for no mean: {names}"))
}

/// How sure the number of clusters is, in words and from 0 to 1, where it was searched for.
pub(super) fn sureness(found: &Found) -> Option<(String, f64)> {
    let Sureness { word, reason } = found.sureness.as_ref()?;
    let clusters = match found.clustering.clusters() {
        1 => "1 cluster".to_string(),
        several => format!("{several} clusters"),
    };
    let share = match *word {
        "certain" => 1.0,
        "likely" => 0.5,
        _ => 0.0,
    };
    Some((format!("{clusters}, {word}: {reason}"), share))
}

/// The clusters' means as models.
pub(super) fn means(found: &Found) -> Vec<Params> {
    let clustering = &found.clustering;
    (0..clustering.clusters()).map(|cluster| Arc::new(clustering.centre(cluster).to_vec())).collect()
}

impl Method for Odcl {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let (answers, order) = self.solve.ask_everybody(Phase::Train, room)?;
        let order = &answers.of(order);
        let loss = room.watch(&order.losses())?;
        want_answers(order, &self.request, "there is only one round to answer in")?;
        if let Some(truth) = &self.truth {
            self.request.lambda = Some(exact_lambda(order, truth, &self.request.key)?);
        }
        let found = cluster(order, &self.solve, &self.request)?;
        self.state.models = means(&found);
        self.state.given = vec![None; self.clients];
        for (&client, &label) in order.clients.iter().zip(&found.clustering.labels) {
            self.state.given[client as usize] = Some(label);
        }
        let points = Points::new(&order.vectors, found.clustering.centre(0).len())?;
        (self.state.notes, self.state.extra) = describe(points, &found)?;
        if let Some(note) = note_aside(order, &found) {
            self.state.notes.push(format!("{note}; each has the model of the nearest cluster"));
        }
        hand_over(&self.state.models, &self.state.given, room)?;
        Ok(Progress { loss, switched: None, sizes: found.clustering.sizes(), finished: true })
    }

    fn planned_rounds(&self) -> usize {
        1
    }

    fn outcome(&self) -> Outcome {
        let mut notes = Vec::new();
        let unplaced = self.state.given.iter().filter(|given| given.is_none()).count();
        if unplaced > 0 {
            notes.push(format!("{unplaced} clients did not answer and choose among the models by their loss"));
        }
        notes.extend(self.state.notes.iter().cloned());
        Outcome {
            models: self.state.models.clone(),
            clustered: true,
            serving: Serving::Given(self.state.given.clone()),
            notes,
            extra: self.state.extra.clone(),
            ..Outcome::default()
        }
    }

    keep_state!();
}

/// λ as the paper's experiments take it: uniform in the recovery interval of the true clusters, or its upper end where
/// it is empty.
fn exact_lambda(order: &OrderAnswers, truth: &[usize], key: &Key) -> Result<f64> {
    let points = Points::new(&order.vectors, order.vectors.len() / order.clients.len().max(1))?;
    let labels: Vec<usize> = order.clients.iter().map(|&client| truth[client as usize]).collect();
    let RecoveryInterval { lower, upper } = recovery_interval(points, &Clustering::of(points, &labels));
    Ok(match lower < upper {
        // One cluster has no upper end.
        true if upper.is_infinite() => lower,
        true => key.clone().word("lambda").rng().random_range(lower..upper),
        false => upper,
    })
}

/// What there is to say about a clustering, in words and in numbers.
fn describe(points: Points, found: &Found) -> Result<(Vec<String>, BTreeMap<String, f64>)> {
    // Numbers speak of those that are in a cluster.
    let (values, clustering) = &found.members(points);
    let points = Points::new(values, points.dimension())?;
    let mut notes = Vec::new();
    let mut extra = BTreeMap::new();
    let mut number = |name: &str, value: f64| {
        extra.insert(name.to_string(), value);
    };
    if let Some((words, share)) = sureness(found) {
        notes.push(words);
        number("sureness", share);
    }
    if let Some(certificate) = &found.certificate {
        number("gap", certificate.gap);
        number("undecided", certificate.undecided as f64);
    }
    if let Some(alpha) = separability(points, clustering) {
        number("separability", alpha);
        number("separability_kmeans", separability_for_kmeans(clustering));
        number("separability_convex", separability_for_convex(clustering));
    }
    if let (Some(lambda), Some(weights)) = (found.lambda, &found.weights) {
        number("lambda", lambda);
        if *weights == Weights::Uniform {
            let interval = recovery_interval(points, clustering);
            number("recovery_lower", interval.lower);
            number("recovery_upper", interval.upper);
            number("recovery", f64::from(u8::from(interval.contains(lambda))));
        }
        if found.path.is_none() && points.count() <= FEW_POINTS {
            // How many clusters a reader would see who takes what is near for what is equal.
            let solution = convex::cluster(points, weights, lambda)?.solution;
            for (name, share) in [("clusters_1e-3", 1e-3), ("clusters_3e-3", 3e-3)] {
                number(name, groups_within(Points::new(&solution, points.dimension())?, share * spread(points)) as f64);
            }
        }
    }
    notes.extend(found.notes.iter().cloned());
    Ok((notes, extra))
}

/// Up to so many points all pairs are looked at for numbers that are only nice to have.
const FEW_POINTS: usize = 1000;

/// The root of the mean squared distance of points to their mean.
fn spread(points: Points) -> f64 {
    let whole = Clustering::of(points, &vec![0; points.count()]);
    let square = |point: usize| distance(points.row(point), whole.centre(0)).powi(2);
    ((0..points.count()).map(square).sum::<f64>() / points.count() as f64).sqrt()
}

/// How many groups there are when points at most this far apart are together, directly or through others.
fn groups_within(points: Points, reach: f64) -> usize {
    let mut distances = Distances::unknown(points.count());
    for b in 0..points.count() {
        (0..b).for_each(|a| distances.set(a, b, distance(points.row(a), points.row(b))));
    }
    distances.components(reach).iter().max().map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_chains_of_near_points() {
        let points = [0.0, 5.0, 1.0, 2.0, 5.5];
        let count = |reach| groups_within(Points::new(&points, 1).unwrap(), reach);
        assert_eq!([0.4, 0.5, 1.0, 3.0].map(count), [5, 4, 2, 1]);
        assert!((spread(Points::new(&[1.0, 3.0], 1).unwrap()) - 1.0).abs() < 1e-15);
    }
}
