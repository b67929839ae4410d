//! Line 1 of IFCA: where the first models come from.

use super::settings::{IfcaSettings, StartBy};
use super::*;
use crate::clustering::convex::Weights;
use crate::clustering::{Algorithm, Request};
use crate::federation::work::{Losses, Train};
use crate::methods::cluster_oracle::PooledSearch;
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use std::path::Path;

/// Where the models of line 1 come from.
pub(super) enum Beginning {
    Random { clusters: usize },
    Given(Vec<Params>),
    Farthest { clusters: usize, clients: usize, steps: u32 },
    OneShot { solve: odcl::Solve, request: Box<Request> },
    Oracle { truth: Vec<usize>, ridge: f64, shift: Shift },
    Planted { models: Vec<Params>, shift: Shift },
}

/// How far a start is moved from where the truth is.
pub(super) struct Shift {
    noise: Option<f64>,
    /// Between which distances, as shares of the least distance between two models.
    distance: Option<(f64, f64)>,
}

impl Beginning {
    /// As the settings say.
    pub(super) fn new(settings: &IfcaSettings, setup: &Setup) -> Result<Self> {
        let clusters = settings.clusters.given().unwrap_or(1);
        let as_many = |there: usize| {
            let found = format!("{}.clusters: got {clusters}, want {there}, the number of true clusters", setup.place);
            if clusters == there { Ok(()) } else { Err(Error::settings(found)) }
        };
        Ok(match settings.start {
            StartBy::Random => Beginning::Random { clusters },
            StartBy::Given => Beginning::Given(read_models(settings, clusters, setup)?),
            StartBy::Farthest => Beginning::Farthest {
                clusters,
                clients: settings.start_clients.unwrap_or(16 * clusters).clamp(clusters, setup.rows.len()),
                steps: settings.start_steps,
            },
            StartBy::Odcl => Beginning::OneShot {
                solve: solve(settings, setup)?,
                request: Box::new(Request {
                    algorithm: match settings.clusters {
                        Auto::Given(_) => Algorithm::KMeans,
                        Auto::Auto => Algorithm::Auto,
                    },
                    clusters: settings.clusters.given(),
                    lambda: None,
                    weights: Weights::Uniform,
                    starts: 10,
                    path_values: 20,
                    key: setup.key.clone().word("clustering"),
                }),
            },
            StartBy::Oracle => {
                let truth = setup.true_clusters()?.to_vec();
                as_many(truth.iter().max().map_or(0, |last| last + 1))?;
                let ridge = settings.start_ridge.unwrap_or(0.0);
                Beginning::Oracle { truth, ridge, shift: Shift::new(settings) }
            }
            StartBy::Planted => {
                let (planted, width) = (setup.planted.unwrap_or_default(), setup.model.layout().len());
                if planted.iter().any(|parameters| parameters.len() != width) || planted.is_empty() {
                    let message = format!("{}.start: this data has no planted parameters of this model", setup.place);
                    return Err(
                        Error::settings(message).hint("use start = \"oracle\", or a generator such as odcl-linear")
                    );
                }
                as_many(planted.len())?;
                let models = planted.iter().cloned().map(Arc::new).collect();
                Beginning::Planted { models, shift: Shift::new(settings) }
            }
        })
    }
}

impl Shift {
    fn new(settings: &IfcaSettings) -> Self {
        let distance = settings.start_distance.as_ref().map(|distances| (distances[0], distances[distances.len() - 1]));
        Self { noise: settings.start_noise, distance }
    }
}

/// The models in the folder that is given.
fn read_models(settings: &IfcaSettings, clusters: usize, setup: &Setup) -> Result<Vec<Params>> {
    let folder = Path::new(settings.start_from.as_deref().unwrap_or_default());
    let read = |cluster: usize| {
        let path = folder.join(format!("cluster-{cluster}.safetensors"));
        crate::modelfile::read(&path, setup.model.layout()).map(Arc::new)
    };
    (0..clusters).map(read).collect()
}

/// How clients find the models that `start = "odcl"` clusters.
fn solve(settings: &IfcaSettings, setup: &Setup) -> Result<odcl::Solve> {
    let ridge = settings.start_ridge.unwrap_or(0.0);
    if setup.model.convex().is_some() {
        if !setup.settings.changed(IfcaSettings::SETTINGS, &["start_steps"]).is_empty() {
            let message = format!("{}.start_steps: this model is solved exactly, without steps", setup.place);
            return Err(Error::settings(message).hint("leave start_steps out"));
        }
        return Ok(odcl::Solve::Exact { ridge });
    }
    let step = match &settings.step {
        Auto::Given(steps) => steps[0],
        Auto::Auto => auto_step(setup.settings, setup.curvature.map(|curvature| curvature + ridge)),
    };
    let mut plan = settings.training.plan(&setup.key.clone().word("start plan"), 0, step);
    let (Optimiser::Descent { weight_decay, .. } | Optimiser::Adam { weight_decay }) = &mut plan.optimiser;
    *weight_decay = settings.start_ridge.unwrap_or(*weight_decay);
    plan.amount = Amount::Steps(settings.start_steps);
    Ok(odcl::Solve::Steps { from: odcl::common_start(setup)?, plan })
}

/// What there is to say about a start, in words and in numbers.
#[derive(Default)]
struct Said {
    notes: Vec<String>,
    extra: BTreeMap<String, f64>,
}

/// The means of clusters of the models that clients find alone.
fn one_shot(solve: &odcl::Solve, request: &Request, room: &mut Room, said: &mut Said) -> Result<Vec<Params>> {
    let (answers, order) = solve.ask_everybody(Phase::Start, room)?;
    let order = &answers.of(order);
    odcl::want_answers(order, request, "use another start")?;
    let found = odcl::cluster(order, solve, request)?;
    if let Some((words, share)) = odcl::sureness(&found) {
        said.notes.push(format!("start = \"odcl\": {words}"));
        said.extra.insert("sureness".to_string(), share);
    }
    let about = found.notes.iter().cloned().chain(odcl::note_aside(order, &found));
    said.notes.extend(about.map(|note| format!("start = \"odcl\": {note}")));
    Ok(odcl::means(&found))
}

impl Ifca {
    /// Line 1.
    pub(super) fn begin(&mut self, room: &mut Room) -> Result<()> {
        let mut said = Said::default();
        for lane in 0..self.state.lanes.len() {
            let start = self.state.lanes[lane].start;
            let earlier = self.state.lanes[..lane].iter().find(|other| other.start == start);
            let models = match (earlier, &self.beginning) {
                (Some(same), _) => same.models.clone(),
                (None, Beginning::Given(models)) => models.clone(),
                (None, Beginning::Random { clusters }) => self.random(*clusters, start)?,
                (None, Beginning::Farthest { clusters, clients, steps }) => {
                    self.farthest(room, start, *clusters, *clients, *steps)?
                }
                (None, Beginning::OneShot { solve, request }) => one_shot(solve, request, room, &mut said)?,
                (None, Beginning::Oracle { truth, ridge, shift }) => {
                    let search = self.minimisers(room, truth, *ridge)?;
                    said.notes.extend(search.notes().iter().map(|note| format!("start = \"oracle\": {note}")));
                    self.shifted(search.models(), shift, start)?
                }
                (None, Beginning::Planted { models, shift }) => self.shifted(models.clone(), shift, start)?,
            };
            self.state.lanes[lane].models = self.with_shared_layers(models);
        }
        (self.state.notes, self.state.extra) = (said.notes, said.extra);
        Ok(())
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

    /// Models that differ, or the only one.
    fn random(&self, clusters: usize, start: usize) -> Result<Vec<Params>> {
        let draw = |cluster| self.model.initialise(&mut self.start_key(start, cluster).rng()).map(Arc::new);
        if clusters == 1 { Ok(vec![self.common(start)?]) } else { (0..clusters).map(draw).collect() }
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
}

/// k families of n points: the first centre is the point closest to all others, each further one the point
/// farthest from the centres so far; every point joins its nearest centre.
pub(super) fn farthest_first(count: usize, families: usize, apart: impl Fn(usize, usize) -> f64) -> Vec<Vec<usize>> {
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
