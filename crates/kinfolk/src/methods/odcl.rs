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

/// Strength of a penalty on every client's loss.
pub(super) const RIDGE: Setting = Setting::new(
    "ridge",
    Kind::Number(0.0, 1e18),
    Default::Is("0.0"),
    "strength of ½·ridge·‖θ‖² added to every client's loss; where a client's classes separate, a small one is added anyway",
);

/// What a missing answer means where nothing came before it.
pub(super) const MISSING_ONCE: Setting = Setting::new(
    "missing",
    Kind::OneOf(&["skip", "fail"]),
    Default::Is("\"skip\""),
    "a missing answer is left out, or ends the run",
);

/// Settings of how clients find their own models, the same for every method that asks for them once.
macro_rules! one_shot_settings {
    ($($more:expr),* $(,)?) => {
        &[
            $($more,)*
            Setting::new("solve", Kind::OneOf(&["auto", "exact", "steps"]), Default::Is("\"auto\""), "clients find their minimiser exactly, or by steps; auto is exactly where the model can"),
            $crate::methods::odcl::RIDGE,
            Setting::new("steps", Kind::Integer(1, 1 << 31), Default::Absent, "steps of a client that does not solve exactly (default 100)"),
            Setting { help: "step size; auto is safe on this data for full batches of a linear model, 0.1 for a network", ..$crate::methods::STEP },
            Setting::new("batch", Kind::Integer(1, 1 << 31), Default::Absent, "rows in a step (default all)"),
            Setting::new("pace", Kind::OneOf(&["constant", "inverse"]), Default::Is("\"constant\""), "whether step t has the step size, or the step size divided by t"),
            Setting::new("iterate", Kind::OneOf(&["last", "average"]), Default::Is("\"last\""), "what a client sends: its last model, or the mean of all, weighted by t"),
            Setting::new("tolerance", Kind::Number(0.0, 1e18), Default::Is("0.0"), "a client stops when its gradient is no longer than this"),
            $crate::methods::odcl::MISSING_ONCE,
        ]
    };
}
pub(super) use one_shot_settings;

/// Faults in the settings above that need more than one of them to see.
pub(super) fn check_one_shot(place: &str, settings: &Settings, faults: &mut Vec<Error>) {
    let given = |name: &str| settings.get(name).is_some();
    let ends = settings.number("tolerance") > 0.0;
    if settings.text("solve") == "exact" {
        return faults.extend(step_settings(place, settings));
    }
    if ends && given("batch") {
        faults.push(
            Error::settings(format!("{place}.tolerance: the gradient of a batch is never that short"))
                .hint("leave batch or tolerance out"),
        );
    }
    if ends && settings.text("iterate") == "average" {
        faults.push(
            Error::settings(format!("{place}.tolerance: is about the last model, not about an average"))
                .hint("leave iterate or tolerance out"),
        );
    }
    if settings.text("pace") == "inverse" && settings.optional_number("step").is_none() {
        faults.push(
            Error::settings(format!("{place}.step: pace = \"inverse\" wants a number"))
                .hint("1/μ, where the loss curves by at least μ"),
        );
    }
}

/// Faults of settings that say how to step where clients solve exactly.
fn step_settings(place: &str, settings: &Settings) -> Vec<Error> {
    let names = settings.changed(KIND.settings, &["steps", "step", "batch", "pace", "iterate", "tolerance"]);
    let fault = |name| {
        let why = match settings.text("solve") {
            "exact" => "solve = \"exact\" takes no steps",
            _ => "this model is solved exactly, without steps",
        };
        Error::settings(format!("{place}.{name}: {why}")).hint(format!("leave {name} out, or set solve = \"steps\""))
    };
    names.into_iter().map(fault).collect()
}

/// The fault of a model without an exact minimiser.
pub(super) fn want_minimiser(setup: &Setup) -> Result<()> {
    if setup.model.has_minimiser() {
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

impl Solve {
    pub(super) fn of(setup: &Setup) -> Result<Self> {
        let settings = setup.settings;
        let ridge = settings.number("ridge");
        let solve = settings.text("solve");
        if solve == "exact" {
            want_minimiser(setup)?;
        }
        if solve != "steps" && setup.model.has_minimiser() {
            crate::settings::finish(step_settings(&setup.place, settings))?;
            return Ok(Solve::Exact { ridge });
        }
        let plan = Plan {
            sample: Sample {
                on: Portion::All,
                batch: settings.optional_integer("batch").map(|batch| batch as u32),
                seed: setup.key.clone().word("batches").number(0).seed(),
            },
            amount: Amount::Steps(settings.optional_integer("steps").unwrap_or(100) as u32),
            step: setup.steps()[0],
            optimiser: Optimiser::Descent { momentum: 0.0, weight_decay: ridge },
            pulls: Vec::new(),
            course: Course {
                fading: settings.text("pace") == "inverse",
                averaged: settings.text("iterate") == "average",
                tolerance: settings.number("tolerance"),
            },
        };
        Ok(Solve::Steps { from: common_start(setup)?, plan })
    }

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

pub(super) static KIND: MethodKind = MethodKind {
    name: "odcl",
    summary: "one round: cluster the clients' own models, average inside",
    paper: "Armacki, Bajović, Jakovetić, Kar 2022",
    settings: one_shot_settings!(
        Setting::new(
            "clustering",
            Kind::OneOf(&["auto", "kmeans++", "spectral", "gradient", "convex", "clusterpath"]),
            Default::Is("\"auto\""),
            "how models are clustered; auto finds the number of clusters and says how sure it is",
        ),
        Setting::new(
            "clusters",
            Kind::Integer(1, 1 << 20),
            Default::Absent,
            "how many clusters, for kmeans++, spectral and gradient (default: by silhouette)",
        ),
        Setting::new(
            "starts",
            Kind::Integer(1, 1 << 16),
            Default::Is("10"),
            "starts of kmeans++, spectral and gradient"
        ),
        Setting::new(
            "lambda",
            Kind::Or("exact", &Kind::Number(0.0, 1e300)),
            Default::Absent,
            "λ of convex (default: where the path's longest-lived clustering is); exact takes it from the true clusters",
        ),
        Setting::new(
            "weights",
            Kind::OneOf(&["uniform", "neighbours"]),
            Default::Is("\"uniform\""),
            "which models pull at each other in convex and clusterpath: all, or nearest neighbours",
        ),
        Setting::new("neighbours", Kind::Integer(1, 1 << 20), Default::Absent, "how many neighbours (default 10)"),
        Setting::new("path_values", Kind::Integer(3, 1 << 16), Default::Is("20"), "values of λ on a path"),
    ),
    needs_truth: |settings| settings.optional_text("lambda") == Some("exact"),
    has_clusters: true,
    wants: Ability::Descent,
    check: |place, settings, faults| {
        check_one_shot(place, settings, faults);
        let clustering = settings.text("clustering");
        let of = |family: &[&str]| family.contains(&clustering);
        let given = |name: &str| settings.get(name).is_some();
        let neighbours = settings.text("weights") == "neighbours";
        let mut fault = |name: &str, why: String| faults.push(Error::settings(format!("{place}.{name}: {why}")));
        if given("clusters") && !of(&["kmeans++", "spectral", "gradient"]) {
            fault("clusters", format!("clustering = \"{clustering}\" finds the number itself"));
        }
        if given("lambda") && !of(&["convex"]) {
            fault("lambda", format!("is for clustering = \"convex\", not for \"{clustering}\""));
        }
        if neighbours && !of(&["convex", "clusterpath"]) {
            fault("weights", format!("clustering = \"{clustering}\" has none"));
        }
        if given("neighbours") && !neighbours {
            fault("neighbours", "is for weights = \"neighbours\"".into());
        }
        if settings.optional_text("lambda") == Some("exact") && neighbours {
            fault("lambda", "\"exact\" is for weights = \"uniform\"".into());
        }
    },
    build: |setup| {
        let settings = setup.settings;
        let clients = setup.rows.len();
        let clusters = settings.optional_integer("clusters");
        setup.want_clients("clusters", clusters.unwrap_or(0))?;
        let exact = settings.optional_text("lambda") == Some("exact");
        let algorithm = Algorithm::ALL.iter().find(|(word, _)| *word == settings.text("clustering"));
        let request = Request {
            algorithm: algorithm.map_or(Algorithm::Auto, |(_, algorithm)| *algorithm),
            clusters,
            lambda: settings.optional_number("lambda"),
            weights: match settings.text("weights") {
                "neighbours" => Weights::Neighbours {
                    neighbours: settings.optional_integer("neighbours").unwrap_or(NEIGHBOURS),
                    decay: None,
                },
                _ => Weights::Uniform,
            },
            starts: settings.integer("starts"),
            path_values: settings.integer("path_values"),
            key: setup.key.clone().word("clustering"),
        };
        let truth = if exact { Some(setup.true_clusters()?.to_vec()) } else { None };
        Ok(Box::new(Odcl::new(Solve::of(&setup)?, request, truth, clients)))
    },
};

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
