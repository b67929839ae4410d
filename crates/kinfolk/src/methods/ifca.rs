//! IFCA, the Iterative Federated Clustering Algorithm (Ghosh, Chung, Yin, Ramchandran: An efficient framework for
//! clustered federated learning, 2020). Alternates between "which cluster am I in" and a step for every cluster.
//!
//! ```text
//!  1  θ_1 … θ_k ← start
//!  2  for t = 0, 1, …, T − 1:
//!  3    M_t ← some of the m clients
//!  4    send θ_1 … θ_k to M_t
//!  5    each client i in M_t:
//!  6      ĵ ← argmin_j F_i(θ_j)                              ties to the smallest j
//!  7      option I:  send ĵ and g_i = ∇F_i(θ_ĵ)
//!  8      option II: send ĵ and θ̃_i = τ local steps from θ_ĵ
//!  9    option I:  θ_j ← θ_j − (γ/m) Σ_{i: ĵ_i = j} g_i
//! 10    option II: θ_j ← mean of the θ̃_i with ĵ_i = j         nobody: θ_j stays
//! ```
//!
//! Lines 4 to 8 are one order: the client chooses and goes on from its choice.
//!
//! Differences from the paper, all by setting:
//! - several starts and several step sizes run side by side in the same asks; the one with the smallest training
//!   loss at the beginning of the last round is the outcome. One that diverges is dropped, and with `tolerance` one that has settled stops.
//! - `start = "farthest"`: some clients train a little from one common model and try each other's models; models far
//!   apart in loss become the start. It costs two asks and does not depend on luck.
//! - `start = "odcl"`: the clusters that one-shot learning finds among the clients' own models become the start. It costs
//!   one ask, and with `clusters = "auto"` it finds their number too.
//! - `start = "oracle"` and `start = "planted"`, for experiments: the minimisers of the true clusters, or their planted
//!   parameters, moved by noise or by a distance.
//! - `shared`: these layers are averaged over everybody, only the rest is kept per cluster.
//! - `resample`: fresh, disjoint rows for every choice and every step, as the paper's theory has it.
//! - `divisor = "participants"` divides by |M_t| in line 9 instead of by m.

use super::cluster_oracle::PooledSearch;
use super::room::{diverged, watch_loss};
use super::*;
use crate::clustering::convex::Weights;
use crate::clustering::{Algorithm, Request};
use crate::federation::work::{Choice, Choose, Losses, Train};
use crate::federation::{Absence, Answered};
use crate::linalg::distance;
use crate::training::Then;
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use std::ops::Range;

pub(super) static KIND: MethodKind = MethodKind {
    name: "ifca",
    summary: "choose the best of k models, train it, repeat",
    paper: "Ghosh, Chung, Yin, Ramchandran 2020",
    settings: training_settings!(
        Setting::new(
            "clusters",
            Kind::Or("auto", &Kind::Integer(1, 1 << 20)),
            Default::Required,
            "how many clusters to look for; auto lets start = \"odcl\" find the number"
        ),
        Setting::new(
            "step",
            Kind::Or("auto", &Kind::Positives),
            Default::Is("\"auto\""),
            "step size, or several to try side by side; auto is safe on this data for a linear model, else 0.1 (adam 0.01)"
        ),
        Setting::new(
            "averaging",
            Kind::OneOf(&["models", "gradients"]),
            Default::Is("\"models\""),
            "what clients send: a model after local steps (option II), or a gradient (option I)",
        ),
        Setting::new(
            "weight",
            Kind::OneOf(WEIGHT),
            Default::Is("\"uniform\""),
            "what a client's model counts in the mean"
        ),
        Setting::new(
            "divisor",
            Kind::OneOf(&["clients", "participants"]),
            Default::Is("\"clients\""),
            "what a sum of gradients is divided by",
        ),
        Setting::new(
            "start",
            Kind::OneOf(&["random", "farthest", "odcl", "given", "oracle", "planted"]),
            Default::Is("\"random\""),
            "random models, models of clients far apart, clusters of the clients' own models, the files in start_from; \
             for experiments the minimisers of the true clusters or their planted parameters",
        ),
        Setting::new("start_from", Kind::Text, Default::Absent, "folder with cluster-0.safetensors and so on"),
        Setting::new(
            "start_clients",
            Kind::Integer(1, 1 << 20),
            Default::Absent,
            "clients that look for start = \"farthest\" (default 16 a cluster)"
        ),
        Setting::new(
            "start_steps",
            Kind::Integer(1, 1 << 20),
            Default::Is("50"),
            "steps a client trains for start = \"farthest\", and for \"odcl\" where the model has no exact minimiser"
        ),
        Setting::new(
            "start_ridge",
            Kind::Number(0.0, 1e18),
            Default::Absent,
            "strength of ½·ridge·‖θ‖² in the minimisers of start = \"odcl\" and \"oracle\" (default 0; with steps weight_decay)"
        ),
        Setting::new(
            "start_noise",
            Kind::Number(0.0, 1e18),
            Default::Absent,
            "standard deviation of the noise on start = \"oracle\" or \"planted\""
        ),
        Setting::new(
            "start_distance",
            Kind::Positives,
            Default::Absent,
            "how far to move that start, or between which two distances, as shares of the least distance within it"
        ),
        Setting::new("restarts", Kind::Integer(1, 1 << 16), Default::Is("1"), "how many starts to run side by side"),
        Setting::new(
            "tolerance",
            Kind::Number(0.0, 1.0),
            Default::Is("0.0"),
            "stop when no parameter vector moves by more than this, relatively"
        ),
        Setting::new("shared", Kind::Texts, Default::Is("[]"), "layers averaged over everybody, such as \"layer0\""),
        Setting::new("resample", Kind::Flag, Default::Is("false"), "fresh rows for every choice and every step"),
    ),
    needs_truth: |settings| matches!(settings.text("start"), "oracle" | "planted"),
    has_clusters: true,
    wants: Ability::Descent,
    check: |place, settings, faults| {
        check_training(place, settings, faults);
        let gradients = settings.text("averaging") == "gradients";
        check_gradients(place, settings, faults);
        if gradients && settings.text("weight") == "rows" {
            faults.push(Error::settings(format!("{place}.weight: averaging = \"gradients\" weighs clients alike")));
        }
        let given = settings.text("start") == "given";
        if given != settings.get("start_from").is_some() {
            faults.push(Error::settings(format!("{place}: start = \"given\" and start_from go together")));
        }
        let start = settings.text("start");
        if matches!(start, "given" | "odcl") && settings.integer("restarts") > 1 {
            faults.push(Error::settings(format!("{place}.restarts: start = \"{start}\" is only one")));
        }
        if settings.optional_text("clusters") == Some("auto") && start != "odcl" {
            faults.push(Error::settings(format!("{place}.clusters: \"auto\" is for start = \"odcl\"")));
        }
        for name in ["start_noise", "start_distance"] {
            if settings.get(name).is_some() && !matches!(start, "oracle" | "planted") {
                faults.push(Error::settings(format!("{place}.{name}: is for start = \"oracle\" or \"planted\"")));
            }
        }
        if settings.get("start_ridge").is_some() && !matches!(start, "oracle" | "odcl") {
            faults.push(Error::settings(format!("{place}.start_ridge: is for start = \"oracle\" or \"odcl\"")));
        }
        if settings.get("start_clients").is_some() && start != "farthest" {
            faults.push(Error::settings(format!("{place}.start_clients: is for start = \"farthest\"")));
        }
        if !settings.changed(KIND.settings, &["start_steps"]).is_empty() && !matches!(start, "farthest" | "odcl") {
            faults.push(Error::settings(format!("{place}.start_steps: is for start = \"farthest\" or \"odcl\"")));
        }
        let distances = settings.numbers("start_distance");
        if !distances.is_empty() && settings.optional_integer("clusters") == Some(1) {
            faults.push(
                Error::settings(format!("{place}.start_distance: one cluster has no distance to another"))
                    .hint("use start_noise"),
            );
        }
        if distances.len() > 2 || !distances.is_sorted() {
            faults.push(Error::settings(format!(
                "{place}.start_distance: want one number, or a smaller and a larger one"
            )));
        }
    },
    build: |setup| Ok(Box::new(make(setup)?)),
};

pub(super) struct Ifca {
    training: Training,
    gradients: bool,
    weight: Weight,
    by_participants: bool,
    beginning: Beginning,
    tolerance: f64,
    shared: Vec<Range<usize>>,
    resample: bool,
    model: Arc<dyn Model>,
    clients: usize,
    key: Key,
    state: State,
}

/// Where the models of line 1 come from.
enum Beginning {
    Random { clusters: usize },
    Given(Vec<Params>),
    Farthest { clusters: usize, clients: usize, steps: u32 },
    OneShot { solve: odcl::Solve, request: Box<Request> },
    Oracle { truth: Vec<usize>, ridge: f64, shift: Shift },
    Planted { models: Vec<Params>, shift: Shift },
}

/// How far a start is moved from where the truth is.
struct Shift {
    noise: Option<f64>,
    /// Between which distances, as shares of the least distance between two models.
    distance: Option<(f64, f64)>,
}

#[derive(Serialize, Deserialize)]
struct State {
    round: usize,
    lanes: Vec<Lane>,
    /// What there is to say about the start, in words and in numbers.
    notes: Vec<String>,
    extra: BTreeMap<String, f64>,
}

/// One start with one step size.
#[derive(Serialize, Deserialize)]
struct Lane {
    step: f64,
    start: usize,
    /// θ_1 … θ_k; empty before line 1.
    models: Vec<Params>,
    /// The cluster each client last chose.
    choices: Vec<Option<u32>>,
    /// Mean loss of the chosen models, in the first round and before the last step.
    first_loss: Option<f64>,
    loss: Option<f64>,
    going: Going,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Going {
    On,
    Settled { round: usize },
    Diverged { round: usize },
}

fn make(setup: Setup) -> Result<Ifca> {
    let (settings, place) = (setup.settings, &setup.place);
    let wanted = settings.optional_integer("clusters");
    let clients = setup.rows.len();
    setup.want_clients("clusters", wanted.unwrap_or(0))?;
    setup.want_room_for_models("clusters", wanted.unwrap_or(0))?;
    let training = Training::of(settings);
    let resample = settings.flag("resample");
    if resample && !setup.model.divides_rows() {
        let message = format!("{place}.resample: clients of your own use all their rows at once");
        return Err(Error::new(ErrorKind::Unsupported, message).hint("leave resample out"));
    }
    let fewest = setup.rows.iter().min().copied().unwrap_or(0);
    if resample && fewest < 2 * training.rounds {
        return Err(Error::settings(format!(
            "{place}.resample: {} rounds need {} rows a client, the smallest client has {fewest}",
            training.rounds,
            2 * training.rounds
        ))
        .hint("run fewer rounds, or leave resample out"));
    }
    let layout = setup.model.layout();
    let mut shared = Vec::new();
    for layer in settings.texts("shared") {
        let found: Vec<Range<usize>> =
            layout.tensors.iter().filter(|t| t.name.split('.').next() == Some(&layer)).map(|t| t.range()).collect();
        if found.is_empty() {
            let known: Vec<&str> = layout.tensors.iter().filter_map(|tensor| tensor.name.split('.').next()).collect();
            return Err(Error::settings(format!("{place}.shared: got \"{layer}\", want one of {}", known.join(", "))));
        }
        shared.extend(found);
    }
    let beginning = beginning(&setup, &training)?;
    let steps = setup.steps();
    let lanes = (0..settings.integer("restarts")).flat_map(|start| steps.iter().map(move |&step| (start, step)));
    Ok(Ifca {
        gradients: settings.text("averaging") == "gradients",
        weight: weight_of(settings),
        by_participants: settings.text("divisor") == "participants",
        beginning,
        tolerance: settings.number("tolerance"),
        shared,
        resample,
        model: setup.model.clone(),
        clients,
        state: State::new(lanes.map(|(start, step)| Lane::new(start, step, clients)).collect()),
        key: setup.key,
        training,
    })
}

impl Ifca {
    /// The plain algorithm, whose first models somebody else will bring.
    pub(super) fn from_models(setup: &Setup, training: Training) -> Self {
        let clients = setup.rows.len();
        let lane = Lane::new(0, setup.steps()[0], clients);
        Self {
            training,
            gradients: false,
            weight: weight_of(setup.settings),
            by_participants: false,
            beginning: Beginning::Given(Vec::new()),
            tolerance: 0.0,
            shared: Vec::new(),
            resample: false,
            model: setup.model.clone(),
            clients,
            key: setup.key.clone(),
            state: State::new(vec![lane]),
        }
    }

    /// Line 1 with these models.
    pub(super) fn begin_at(&mut self, models: Vec<Params>) {
        self.state.lanes.iter_mut().for_each(|lane| lane.models.clone_from(&models));
    }
}

impl State {
    fn new(lanes: Vec<Lane>) -> Self {
        Self { round: 0, lanes, notes: Vec::new(), extra: BTreeMap::new() }
    }
}

impl Lane {
    fn new(start: usize, step: f64, clients: usize) -> Self {
        Self {
            step,
            start,
            models: Vec::new(),
            choices: vec![None; clients],
            first_loss: None,
            loss: None,
            going: Going::On,
        }
    }
}

/// Where the models of line 1 come from, by the settings.
fn beginning(setup: &Setup, training: &Training) -> Result<Beginning> {
    let (settings, place, layout) = (setup.settings, &setup.place, setup.model.layout());
    let clients = setup.rows.len();
    let wanted = settings.optional_integer("clusters");
    let clusters = wanted.unwrap_or(1);
    let as_many = |there: usize| {
        let message = format!("{place}.clusters: got {clusters}, want {there}, the number of true clusters");
        if clusters == there { Ok(()) } else { Err(Error::settings(message)) }
    };
    let given_ridge = settings.optional_number("start_ridge");
    let start_ridge = given_ridge.unwrap_or(0.0);
    let shift = || Shift {
        noise: settings.optional_number("start_noise"),
        distance: match settings.numbers("start_distance")[..] {
            [] => None,
            [low, .., high] => Some((low, high)),
            [one] => Some((one, one)),
        },
    };
    Ok(match settings.text("start") {
        "odcl" => Beginning::OneShot {
            solve: match setup.model.has_minimiser() {
                true if !settings.changed(KIND.settings, &["start_steps"]).is_empty() => {
                    let message = format!("{place}.start_steps: this model is solved exactly, without steps");
                    return Err(Error::settings(message).hint("leave start_steps out"));
                }
                true => odcl::Solve::Exact { ridge: start_ridge },
                false => {
                    let steps = settings.numbers("step");
                    let safe = || auto_step(settings, setup.curvature.map(|curvature| curvature + start_ridge));
                    let step = steps.first().copied().unwrap_or_else(safe);
                    let mut plan = training.plan(&setup.key.clone().word("start plan"), 0, step);
                    let (Optimiser::Descent { weight_decay, .. } | Optimiser::Adam { weight_decay }) =
                        &mut plan.optimiser;
                    *weight_decay = given_ridge.unwrap_or(*weight_decay);
                    plan.amount = Amount::Steps(settings.integer("start_steps") as u32);
                    odcl::Solve::Steps { from: odcl::common_start(setup)?, plan }
                }
            },
            request: Box::new(Request {
                algorithm: if wanted.is_some() { Algorithm::KMeans } else { Algorithm::Auto },
                clusters: wanted,
                lambda: None,
                weights: Weights::Uniform,
                starts: 10,
                path_values: 20,
                key: setup.key.clone().word("clustering"),
            }),
        },
        "oracle" => {
            let truth = setup.true_clusters()?.to_vec();
            as_many(truth.iter().max().map_or(0, |last| last + 1))?;
            Beginning::Oracle { truth, ridge: start_ridge, shift: shift() }
        }
        "planted" => {
            let planted = setup.planted.unwrap_or_default();
            if planted.iter().any(|parameters| parameters.len() != layout.len()) || planted.is_empty() {
                return Err(Error::settings(format!(
                    "{place}.start: this data has no planted parameters of this model"
                ))
                .hint("use start = \"oracle\", or a generator such as odcl-linear"));
            }
            as_many(planted.len())?;
            Beginning::Planted { models: planted.iter().cloned().map(Arc::new).collect(), shift: shift() }
        }
        "farthest" => Beginning::Farthest {
            clusters,
            clients: settings.optional_integer("start_clients").unwrap_or(16 * clusters).clamp(clusters, clients),
            steps: settings.integer("start_steps") as u32,
        },
        "given" => Beginning::Given(
            (0..clusters)
                .map(|j| {
                    crate::modelfile::read(
                        &std::path::Path::new(settings.text("start_from")).join(format!("cluster-{j}.safetensors")),
                        layout,
                    )
                })
                .map(|read| read.map(Arc::new))
                .collect::<Result<_>>()?,
        ),
        _ => Beginning::Random { clusters },
    })
}

impl Ifca {
    /// Line 1.
    fn begin(&mut self, room: &mut Room) -> Result<()> {
        let mut notes = Vec::new();
        let mut extra = BTreeMap::new();
        for lane in 0..self.state.lanes.len() {
            let start = self.state.lanes[lane].start;
            let earlier = self.state.lanes[..lane].iter().find(|other| other.start == start);
            let models = match (earlier, &self.beginning) {
                (Some(same), _) => same.models.clone(),
                (None, Beginning::Given(models)) => models.clone(),
                (None, Beginning::Random { clusters }) => match clusters {
                    1 => vec![self.common(start)?],
                    _ => (0..*clusters).map(|j| self.random(start, j)).collect::<Result<_>>()?,
                },
                (None, Beginning::Farthest { clusters, clients, steps }) => {
                    self.farthest(room, start, *clusters, *clients, *steps)?
                }
                (None, Beginning::OneShot { solve, request }) => {
                    let (answers, order) = solve.ask_everybody(Phase::Start, room)?;
                    let order = &answers.of(order);
                    odcl::want_answers(order, request, "use another start")?;
                    let found = odcl::cluster(order, solve, request)?;
                    if let Some((words, share)) = odcl::sureness(&found) {
                        notes.push(format!("start = \"odcl\": {words}"));
                        extra.insert("sureness".to_string(), share);
                    }
                    let about = found.notes.iter().cloned().chain(odcl::note_aside(order, &found));
                    notes.extend(about.map(|note| format!("start = \"odcl\": {note}")));
                    odcl::means(&found)
                }
                (None, Beginning::Oracle { truth, ridge, shift }) => {
                    let search = self.minimisers(room, truth, *ridge)?;
                    notes.extend(search.notes().iter().map(|note| format!("start = \"oracle\": {note}")));
                    self.shifted(search.models(), shift, start)?
                }
                (None, Beginning::Planted { models, shift }) => self.shifted(models.clone(), shift, start)?,
            };
            self.state.lanes[lane].models = self.with_shared_layers(models);
        }
        (self.state.notes, self.state.extra) = (notes, extra);
        Ok(())
    }

    /// How many clusters there are, once there is a start.
    fn clusters(&self) -> usize {
        self.state.lanes[0].models.len()
    }

    /// A search for the minimisers of the true clusters that came close enough to start around them.
    fn minimisers(&self, room: &mut Room, truth: &[usize], ridge: f64) -> Result<PooledSearch> {
        const TOLERANCE: f64 = 1e-4;
        const ROUNDS: usize = 1000;
        let mut search = PooledSearch::new(truth, self.common(0)?.to_vec(), ridge, TOLERANCE);
        for _ in 0..ROUNDS {
            if search.is_finished() {
                break;
            }
            search.advance(Phase::Start, room)?;
        }
        Ok(search)
    }

    /// Models moved at random from where they are.
    fn shifted(&self, mut models: Vec<Params>, shift: &Shift, start: usize) -> Result<Vec<Params>> {
        let pairs = (0..models.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
        let apart = pairs.map(|(i, j)| distance(&models[i], &models[j])).fold(f64::INFINITY, f64::min);
        if shift.distance.is_some() && apart == 0.0 {
            return Err(Error::settings("start_distance: two true clusters have the same model, no distance apart")
                .hint("use start_noise"));
        }
        for (cluster, model) in models.iter_mut().enumerate() {
            let key = self.key.clone().word("shift").number(start as u64).number(cluster as u64);
            let mut rng = key.rng();
            let model = Arc::make_mut(model);
            let size = model.len();
            let mut normals = || -> Vec<f64> { StandardNormal.sample_iter(&mut rng).take(size).collect() };
            if let Some(noise) = shift.noise {
                crate::linalg::add_scaled(model, noise, &normals());
            }
            if let Some((low, high)) = shift.distance {
                let direction = normals();
                let length = direction.iter().map(|value| value * value).sum::<f64>().sqrt();
                let share = low + (high - low) * key.word("length").rng().random::<f64>();
                crate::linalg::add_scaled(model, share * apart / length, &direction);
            }
        }
        Ok(models)
    }

    fn start_key(&self, start: usize, cluster: usize) -> Key {
        self.key.clone().word("start").number(start as u64).number(cluster as u64)
    }

    /// One of several starts.
    fn random(&self, start: usize, cluster: usize) -> Result<Params> {
        self.model.initialise(&mut self.start_key(start, cluster).rng()).map(Arc::new)
    }

    /// The only start.
    fn common(&self, start: usize) -> Result<Params> {
        self.model.common_start(&mut self.start_key(start, 0).rng()).map(Arc::new)
    }

    /// Some clients train a little from one random model and try each other's models; k of them that do badly on
    /// each other's rows, with those that resemble them, become the start.
    fn farthest(
        &self,
        room: &mut Room,
        start: usize,
        clusters: usize,
        clients: usize,
        steps: u32,
    ) -> Result<Vec<Params>> {
        let too_few = |answered: usize| {
            let message = format!("start = \"farthest\": {answered} of {clients} clients answered, want {}", clusters);
            Error::new(ErrorKind::Client, message).hint("ask more clients with start_clients, or use another start")
        };
        let common = self.common(start)?;
        let to = draw_clients(&self.key.clone().word("start clients").number(start as u64), clients, room);
        let lane = &self.state.lanes[0];
        let mut plan = self.training.plan(&self.key.clone().word("start plan"), start, lane.step);
        (plan.amount, plan.step) = (Amount::Steps(steps), lane.step);
        let mut ask = Ask::new(Phase::Start, vec![common], Gather::Each);
        let order = ask.order(to, Train::from_model(0, plan));
        let trained = room.ask(&ask)?;
        let trained = trained.of(order);
        if trained.clients.len() < clusters {
            return Err(too_few(trained.clients.len()));
        }
        let models: Vec<Params> = (0..trained.clients.len()).map(|i| Arc::new(trained.vector(i).to_vec())).collect();
        let mut ask = Ask::new(Phase::Start, models.clone(), Gather::Each);
        let everything = Losses { of: (0..models.len()).collect(), on: Portion::All };
        let order = ask.order(Recipients::list(trained.clients.clone()), everything);
        let tried = room.ask(&ask)?;
        let tried = tried.of(order);
        // A client that trained but did not try is left out.
        let present: Vec<usize> = tried.clients.iter().filter_map(|c| trained.clients.binary_search(c).ok()).collect();
        if present.len() < clusters {
            return Err(too_few(present.len()));
        }
        let losses: Vec<Vec<f64>> = tried.each().map(|(_, losses)| losses).collect();
        let loss = |i: usize, j: usize| losses[i][present[j]];
        let apart = |i: usize, j: usize| 0.5 * (loss(i, j) + loss(j, i) - loss(i, i) - loss(j, j));
        let families = farthest_first(present.len(), clusters, apart);
        let mean = |family: &Vec<usize>| {
            let mut mean = vec![0.0; models[0].len()];
            for &i in family {
                crate::linalg::add_scaled(&mut mean, 1.0 / family.len() as f64, &models[present[i]]);
            }
            Arc::new(mean)
        };
        Ok(families.iter().map(mean).collect())
    }

    /// All models agree on the shared layers from the beginning.
    fn with_shared_layers(&self, mut models: Vec<Params>) -> Vec<Params> {
        if let Some((first, rest)) = models.split_first_mut() {
            for model in rest {
                let model = Arc::make_mut(model);
                for range in &self.shared {
                    model[range.clone()].copy_from_slice(&first[range.clone()]);
                }
            }
        }
        models
    }

    /// Lines 5 to 8 for a lane whose models begin at `first`.
    fn work(&self, first: usize, step: f64) -> Choose {
        let round = self.state.round;
        let part = |index: usize| match self.resample {
            true => Portion::Part { index: index as u32, of: 2 * self.training.rounds as u32 },
            false => Portion::All,
        };
        let then = match self.gradients {
            true => Then::Gradient(Sample { on: part(2 * round + 1), ..self.training.sample(&self.key, round) }),
            false => {
                let mut plan = self.training.plan(&self.key, round, step);
                plan.sample.on = part(2 * round + 1);
                Then::Train(plan)
            }
        };
        Choose { among: (first..first + self.clusters()).collect(), on: part(2 * round), then }
    }

    /// Lines 9 and 10.
    fn step(&self, lane: &Lane, asked: usize, answer: &Answered<Choice>, missing: &[u32]) -> Vec<Params> {
        if self.gradients {
            let divisor = match (self.by_participants, self.training.missing) {
                (false, _) => self.clients,
                (true, MissingRule::Keep) => asked,
                (true, _) => answer.clients.len().max(1),
            };
            let factor = self.training.step_at(self.state.round, lane.step) / divisor as f64;
            let mut models = lane.models.clone();
            for (model, sum) in models.iter_mut().zip(&answer.sums) {
                let model = Arc::make_mut(model);
                model.iter_mut().zip(&sum.total).for_each(|(value, total)| *value -= factor * total);
            }
            for range in &self.shared {
                let mut common = lane.models[0][range.clone()].to_vec();
                for sum in answer.sums.iter().filter(|sum| sum.count > 0) {
                    crate::linalg::add_scaled(&mut common, -factor, &sum.total[range.clone()]);
                }
                models.iter_mut().for_each(|model| Arc::make_mut(model)[range.clone()].copy_from_slice(&common));
            }
            return models;
        }
        let absent = |cluster: usize| {
            missing.iter().filter(|&&client| lane.choices[client as usize] == Some(cluster as u32)).count()
        };
        let new = lane.models.iter().zip(&answer.sums).enumerate();
        let mut models: Vec<Params> = new.map(|(j, (old, sum))| self.training.mean(old, sum, absent(j))).collect();
        if !self.shared.is_empty() {
            let mut everybody = Sum::default();
            answer.sums.iter().for_each(|sum| everybody.merge(sum));
            let common = self.training.mean(&lane.models[0], &everybody, (0..self.clusters()).map(absent).sum());
            for range in &self.shared {
                models.iter_mut().for_each(|m| Arc::make_mut(m)[range.clone()].copy_from_slice(&common[range.clone()]));
            }
        }
        models
    }

    /// The lane with the smallest loss; before the first loss, the first.
    fn best(&self) -> usize {
        let alive = |lane: &Lane| !matches!(lane.going, Going::Diverged { .. });
        let loss = |lane: &Lane| if alive(lane) { lane.loss.unwrap_or(f64::MAX) } else { f64::INFINITY };
        crate::models::first_smallest(self.state.lanes.iter().map(loss)).position
    }

    fn sizes(&self, lane: &Lane) -> Vec<usize> {
        sizes_of(self.clusters(), lane.choices.iter().flatten().map(|&choice| choice as usize))
    }
}

/// k families of n points: the first centre is the point closest to all others, each further one the point
/// farthest from the centres so far; every point joins its nearest centre.
fn farthest_first(count: usize, families: usize, apart: impl Fn(usize, usize) -> f64) -> Vec<Vec<usize>> {
    let total = |i: usize| (0..count).map(|j| apart(i, j)).sum::<f64>();
    let mut centres = vec![crate::models::first_smallest((0..count).map(total)).position];
    while centres.len() < families {
        let gap = |i: usize| {
            centres.iter().map(|&c| if c == i { f64::NEG_INFINITY } else { apart(i, c) }).fold(f64::INFINITY, f64::min)
        };
        centres.push(crate::models::first_smallest((0..count).map(|i| -gap(i))).position);
    }
    let mut members = vec![Vec::new(); families];
    for i in 0..count {
        let nearest = centres.iter().map(|&c| if c == i { f64::NEG_INFINITY } else { apart(i, c) });
        members[crate::models::first_smallest(nearest).position].push(i);
    }
    members
}

impl Method for Ifca {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let round = self.state.round;
        if round == 0 && self.state.lanes[0].models.is_empty() {
            self.begin(room)?;
        }
        let to = self.training.participants(&self.key, round, room);
        let asked = to.count(self.clients);
        let going: Vec<usize> =
            (0..self.state.lanes.len()).filter(|&l| self.state.lanes[l].going == Going::On).collect();
        let models = going.iter().flat_map(|&lane| self.state.lanes[lane].models.iter().cloned()).collect();
        let mut ask = Ask::new(Phase::Train, models, Gather::Sum { by: By::Choice, weight: self.weight });
        let order = |(place, &lane): (usize, &usize)| {
            ask.order(to.clone(), self.work(place * self.clusters(), self.state.lanes[lane].step))
        };
        let orders: Vec<_> = going.iter().enumerate().map(order).collect();
        let answers = room.ask(&ask)?;
        let missing: Vec<u32> = answers.missing.iter().map(|missing| missing.client).collect();
        // Where no answer to a lane can be used, its models have blown up.
        let garbage = answers.missing.iter().any(|missing| missing.reason == Absence::Garbage);

        let mut switched = vec![0; self.state.lanes.len()];
        for (&index, &order) in going.iter().zip(&orders) {
            let (lane, answer) = (&self.state.lanes[index], answers.of(order));
            let models = self.step(lane, asked, &answer, &missing);
            let moved = lane.models.iter().zip(&models).map(|(old, new)| {
                let norm = new.iter().map(|value| value * value).sum::<f64>().sqrt();
                distance(old, new) / norm.max(f64::MIN_POSITIVE)
            });
            let settled =
                self.tolerance > 0.0 && !answer.clients.is_empty() && moved.fold(0.0, f64::max) <= self.tolerance;
            let finite = models.iter().all(|model| model.iter().all(|value| value.is_finite()));
            let lane = &mut self.state.lanes[index];
            for (client, Choice { place, .. }) in answer.each() {
                let last = lane.choices[client as usize].replace(place);
                switched[index] += usize::from(last.is_some_and(|last| last != place));
            }
            match watch_loss(&answer.losses(), &mut lane.first_loss, round) {
                Ok(loss) if finite && !(garbage && answer.clients.is_empty()) => {
                    lane.loss = loss.or(lane.loss);
                    lane.models = models;
                    if settled {
                        lane.going = Going::Settled { round: round + 1 };
                    }
                }
                _ => lane.going = Going::Diverged { round: round + 1 },
            }
        }
        if self.state.lanes.iter().all(|lane| matches!(lane.going, Going::Diverged { .. })) {
            return Err(diverged(round));
        }
        self.state.round += 1;
        let best = self.best();
        let lane = &self.state.lanes[best];
        let nobody_left = self.state.lanes.iter().all(|lane| lane.going != Going::On);
        Ok(Progress {
            loss: lane.loss,
            switched: Some(switched[best]),
            sizes: self.sizes(lane),
            finished: nobody_left || self.state.round >= self.training.rounds,
        })
    }

    fn planned_rounds(&self) -> usize {
        self.training.rounds
    }

    fn outcome(&self) -> Outcome {
        let best = self.best();
        let lane = &self.state.lanes[best];
        let mut notes = self.state.notes.clone();
        let lanes = self.state.lanes.len();
        let mut extra = self.state.extra.clone();
        if lanes > 1 {
            let diverged = self.state.lanes.iter().filter(|lane| matches!(lane.going, Going::Diverged { .. })).count();
            notes.push(format!("best of {lanes} starts and steps: start {} with step {}", lane.start + 1, lane.step));
            if diverged > 0 {
                notes.push(format!("{diverged} of {lanes} starts and steps diverged and were dropped"));
            }
            extra.insert("best_step".into(), lane.step);
        }
        let candidates =
            if lanes > 1 { self.state.lanes.iter().map(|lane| lane.models.clone()).collect() } else { Vec::new() };
        Outcome {
            models: lane.models.clone(),
            clustered: true,
            candidates,
            converged: self.tolerance == 0.0 || matches!(lane.going, Going::Settled { .. }),
            notes,
            extra,
            ..Outcome::default()
        }
    }

    keep_state!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Client, DataShape, Features, Shard, Targets};
    use crate::federation::engines::local::{LocalFederation, threads};
    use crate::methods::room::Book;

    /// Clients with one feature, always 1: a linear model without intercept fits the mean of the targets.
    fn clients(targets: &[&[f64]]) -> Vec<Client> {
        let client = |(index, values): (usize, &&[f64])| {
            let features = Features::F64 { columns: 1, values: vec![1.0; values.len()] };
            let train = Shard::new(features, Targets::Values(values.to_vec())).unwrap();
            Client { id: index.to_string(), test: train.clone(), train, group: None, truth: None }
        };
        targets.iter().enumerate().map(client).collect()
    }

    fn model(name: &str, text: &str, shape: DataShape) -> Arc<dyn Model> {
        let kind = crate::models::kind(name).unwrap();
        let mut faults = Vec::new();
        let settings = Settings::check("model", kind.settings, toml::from_str(text).unwrap(), &mut faults);
        Arc::from((kind.build)(&settings, shape).unwrap())
    }

    fn method(text: &str, model: Arc<dyn Model>, rows: &[usize]) -> Ifca {
        let mut faults = Vec::new();
        let settings = Settings::check("method", KIND.settings, toml::from_str(text).unwrap(), &mut faults);
        (KIND.check)("method", &settings, &mut faults);
        assert!(faults.is_empty(), "{faults:?}");
        make(Setup {
            place: "method.ifca".into(),
            curvature: None,
            settings: &settings,
            model,
            rows,
            truth: None,
            planted: None,
            groups: None,
            seed: 0,
            key: Key::new(0),
        })
        .unwrap()
    }

    /// One round from these one-number models.
    fn step(targets: &[&[f64]], text: &str, start: &[f64]) -> (Ifca, Progress) {
        let line = model("linear", "intercept = false", DataShape::numbers(1, 0));
        let rows: Vec<usize> = targets.iter().map(|values| values.len()).collect();
        let mut method = method(&format!("clusters = {}\n{text}", start.len()), line.clone(), &rows);
        method.state.lanes[0].models = start.iter().map(|&value| Arc::new(vec![value])).collect();
        let mut federation = LocalFederation::new(clients(targets), threads(1).unwrap());
        federation.set_model(line).unwrap();
        let progress = Book::new(MissingRule::Skip).play(&mut method, &mut federation).unwrap();
        (method, progress)
    }

    fn run(method: &mut Ifca, federation: &mut LocalFederation) {
        let mut book = Book::new(MissingRule::Skip);
        while !book.play(method, federation).unwrap().finished {}
    }

    fn models(method: &Ifca) -> Vec<f64> {
        method.state.lanes[0].models.iter().map(|model| model[0]).collect()
    }

    fn close(found: &[f64], wanted: &[f64]) {
        assert!(found.iter().zip(wanted).all(|(f, w)| (f - w).abs() < 1e-12), "{found:?}, want {wanted:?}");
    }

    const THREE: [&[f64]; 3] = [&[2.0], &[-1.0], &[2.5]];

    #[test]
    fn gradient_averaging_by_hand() {
        // Clients 0 and 2 choose θ = 1 with gradients −2 and −3, client 1 sits on θ = −1.
        let text = "averaging = \"gradients\"\nstep = 0.5\nrounds = 3";
        let (method, progress) = step(&THREE, text, &[1.0, -1.0]);
        close(&models(&method), &[1.0 + 0.5 / 3.0 * 5.0, -1.0]);
        assert_eq!((progress.sizes, progress.finished), (vec![2, 1], false));
        close(&[progress.loss.unwrap()], &[(1.0 + 0.0 + 2.25) / 3.0]);
    }

    #[test]
    fn model_averaging_by_hand() {
        // Two local steps of 0.25: the error halves each time. The third model is nobody's and stays.
        let (method, progress) = step(&THREE, "step = 0.25\nlocal_steps = 2\nrounds = 1", &[1.0, -1.0, -9.0]);
        close(&models(&method), &[((2.0 - 0.25) + (2.5 - 0.375)) / 2.0, -1.0, -9.0]);
        assert_eq!((progress.sizes, progress.finished), (vec![2, 1, 0], true));
    }

    #[test]
    fn a_tie_goes_to_the_first_model() {
        let (method, progress) = step(&[&[0.0], &[0.0]], "rounds = 1\nlocal_steps = 1\nstep = 0.25", &[1.0, -1.0]);
        assert_eq!(progress.sizes, [2, 0]);
        close(&models(&method), &[0.5, -1.0]);
    }

    #[test]
    fn resampling_chooses_on_one_part_and_steps_on_the_next() {
        // One round: the first row decides for θ = 1, the second one pulls it to 5.
        let text = "step = 0.25\nlocal_steps = 1\nrounds = 1\nresample = true";
        let (method, progress) = step(&[&[1.0, 5.0], &[-1.0, -1.0]], text, &[1.0, -1.0]);
        assert_eq!(progress.sizes, [1, 1]);
        close(&models(&method), &[3.0, -1.0]);
    }

    #[test]
    fn a_step_that_diverges_is_dropped_and_the_best_is_kept() {
        let line = model("linear", "intercept = false", DataShape::numbers(1, 0));
        let text = "clusters = 2\nrounds = 40\nrestarts = 3\nstep = [0.2, 1e160]\nlocal_steps = 3";
        let mut method = method(text, line.clone(), &[1, 1, 1]);
        let mut federation = LocalFederation::new(clients(&THREE), threads(1).unwrap());
        federation.set_model(line).unwrap();
        run(&mut method, &mut federation);
        let outcome = method.outcome();
        assert_eq!((outcome.candidates.len(), outcome.extra["best_step"]), (6, 0.2));
        let dropped = "3 of 6 starts and steps diverged and were dropped";
        assert!(outcome.notes.iter().any(|note| note == dropped), "{:?}", outcome.notes);
        let mut found: Vec<f64> = outcome.models.iter().map(|model| model[0]).collect();
        found.sort_by(f64::total_cmp);
        close(&found, &[-1.0, 2.25]);
    }

    #[test]
    fn a_settled_start_stops() {
        let line = model("linear", "intercept = false", DataShape::numbers(1, 0));
        let mut method = method("clusters = 1\nrounds = 1000\ntolerance = 1e-6\nstep = 0.1", line.clone(), &[1, 1, 1]);
        let mut federation = LocalFederation::new(clients(&THREE), threads(1).unwrap());
        federation.set_model(line).unwrap();
        run(&mut method, &mut federation);
        assert!(method.state.round < 20 && method.outcome().converged);
    }

    #[test]
    fn shared_layers_stay_the_same_everywhere() {
        let shape = DataShape::numbers(1, 0);
        let net = model("mlp", "hidden = [3]\nprecision = \"f64\"", shape);
        for averaging in ["models", "gradients"] {
            let text =
                format!("clusters = 2\nrounds = 5\nshared = [\"layer0\"]\naveraging = \"{averaging}\"\nstep = 0.05");
            let mut method = method(&text, net.clone(), &[1, 1, 1]);
            let mut federation = LocalFederation::new(clients(&THREE), threads(1).unwrap());
            federation.set_model(net.clone()).unwrap();
            run(&mut method, &mut federation);
            let models = &method.state.lanes[0].models;
            assert_eq!(models[0][..6], models[1][..6]);
            assert_ne!(models[0][6..], models[1][6..]);
        }
    }

    #[test]
    fn families_far_apart_are_found_first() {
        let points: [f64; 6] = [0.0, 0.1, 10.0, 10.1, 20.0, 0.2];
        let families = farthest_first(6, 3, |i, j| (points[i] - points[j]).abs());
        let mut sorted: Vec<Vec<usize>> = families;
        sorted.sort();
        assert_eq!(sorted, [vec![0, 1, 5], vec![2, 3], vec![4]]);
    }
}
