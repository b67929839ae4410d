//! Line 1 of IFCA: where the first models come from.

use super::*;
use crate::aggregate::robust;
use crate::clustering::{Algorithm, Request};
use crate::federation::server::ledger::few_of;
use crate::federation::work::Losses;
use crate::methods::parts::aggregating::Rule;
use crate::methods::parts::averaging::plain_mean;
use crate::methods::parts::model_clusters::{ModelClusters, points_of};
use crate::methods::parts::pooled_search::PooledSearch;
use crate::methods::parts::solving::Solve;
use crate::methods::parts::training::draw_clients;
use crate::methods::setup::{random_models, start_key};
use crate::modelfile;
use crate::text::counted;
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use std::path::Path;

pub(super) enum Beginning {
    Random {
        clusters: usize,
    },
    Given(Vec<Params>),
    Farthest {
        clusters: usize,
        clients: usize,
        steps: u32,
    },
    /// Whether models that are far from all others are set aside first.
    OneShot {
        solve: Solve,
        request: Box<Request>,
        set_aside: bool,
    },
    Oracle {
        truth: Assignment,
        ridge: f64,
        shift: Shift,
    },
    Planted {
        models: Vec<Params>,
        shift: Shift,
    },
}

/// How far a start is moved away from the truth.
pub(super) struct Shift {
    noise: Option<f64>,
    /// Smallest and largest distance, as shares of the least distance between two models.
    distance: Option<(f64, f64)>,
}

impl Beginning {
    pub(super) fn new(settings: &IfcaSettings, trainer: &Trainer, setup: &Setup) -> Result<Self> {
        let clusters = settings.clusters.given().unwrap_or(1);
        let as_many = |there: usize| {
            let found = format!("{}.clusters: got {clusters}, want {there}, the number of true clusters", setup.place);
            if clusters == there { Ok(()) } else { Err(Error::settings(found)) }
        };
        Ok(match settings.start {
            StartBy::Random => Beginning::Random { clusters },
            StartBy::Given => {
                let folder = Path::new(settings.start_from.as_deref().unwrap_or_default());
                let path = |cluster: usize| folder.join(format!("cluster-{cluster}.safetensors"));
                let read = |cluster| modelfile::read(&path(cluster), setup.model.layout()).map(Arc::new);
                Beginning::Given((0..clusters).map(read).collect::<Result<_>>()?)
            }
            StartBy::Farthest => Beginning::Farthest {
                clusters,
                clients: settings.start_clients.unwrap_or(16 * clusters).clamp(clusters, setup.rows.len()),
                steps: settings.start_steps,
            },
            StartBy::Odcl => {
                let algorithm = match settings.clusters {
                    Auto::Given(_) => Algorithm::KMeans,
                    Auto::Auto => Algorithm::Auto,
                };
                let key = setup.key.clone().word("clustering");
                let request = Request::new(algorithm, settings.clusters.given(), key);
                let set_aside = trainer.aggregating.aggregate != Rule::Mean;
                if set_aside {
                    setup.want_room_for_pairs(size_of::<f64>())?;
                }
                Beginning::OneShot { solve: solve(settings, trainer, setup)?, request: Box::new(request), set_aside }
            }
            StartBy::Oracle => {
                let truth = setup.true_clusters()?;
                as_many(truth.clusters())?;
                Beginning::Oracle { truth, ridge: settings.start_ridge.unwrap_or(0.0), shift: Shift::new(settings) }
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

/// How clients find the models that `start = "odcl"` clusters.
fn solve(settings: &IfcaSettings, trainer: &Trainer, setup: &Setup) -> Result<Solve> {
    let ridge = settings.start_ridge.unwrap_or(0.0);
    if setup.model.convex().is_some() {
        if !setup.settings.changed(IfcaSettings::SETTINGS, &["start_steps"]).is_empty() {
            let message = format!("{}.start_steps: this model is solved exactly, without steps", setup.place);
            return Err(Error::settings(message).hint("leave start_steps out"));
        }
        return Ok(Solve::Exact { ridge });
    }
    let mut plan = trainer.with_draws("start plan").plan(0);
    if settings.step == Auto::Auto {
        plan.step = auto_step(plan.optimiser, setup.curvature.map(|curvature| curvature + ridge));
    }
    let (Optimiser::Descent { weight_decay, .. } | Optimiser::Adam { weight_decay }) = &mut plan.optimiser;
    *weight_decay = settings.start_ridge.unwrap_or(*weight_decay);
    plan.amount = Amount::Steps(settings.start_steps);
    Solve::from_common(setup, plan)
}

/// Notes and numbers about a start.
#[derive(Default)]
struct Description {
    notes: Vec<String>,
    extra: BTreeMap<String, f64>,
}

/// The places of answers that have no company: the last of as many as are half a cluster, were all of one size, is more than
/// twice as far from them as is usual.
pub(super) fn without_company(order: &OrderAnswers, clusters: Option<usize>) -> Vec<usize> {
    const TIMES: f64 = 2.0;
    const FEWEST: usize = 3;
    let count = order.clients.len();
    let company = clusters.map_or(FEWEST, |clusters| count / (2 * clusters));
    if company < FEWEST {
        return Vec::new();
    }
    let members: Vec<&[f64]> = (0..count).map(|place| order.vector(place)).collect();
    let squares = robust::squared_distances(&members, &robust::median(&members));
    let reach = |squares: &[f64]| {
        let mut squares = squares.to_vec();
        // The first is the member itself.
        *squares.select_nth_unstable_by(company - 1, f64::total_cmp).1
    };
    let reaches: Vec<f64> = squares.chunks_exact(count).map(reach).collect();
    let usual = median(reaches.iter().copied()).unwrap_or(0.0);
    (0..count).filter(|&place| reaches[place] > TIMES * TIMES * usual).collect()
}

/// The means of clusters of the models that clients find alone.
fn one_shot(
    (solve, request, set_aside): (&Solve, &Request, bool),
    room: &mut Room,
    said: &mut Description,
) -> Result<Vec<Params>> {
    let (answers, order) = solve.ask_all(Phase::Start, room)?;
    let answered = answers.of(order);
    let alone = if set_aside { without_company(&answered, request.clusters) } else { Vec::new() };
    let mut order = OrderAnswers::default();
    for place in (0..answered.clients.len()).filter(|place| alone.binary_search(place).is_err()) {
        order.clients.push(answered.clients[place]);
        order.vectors.extend(answered.vector(place));
    }
    let name = |place: &usize| room.clients()[answered.clients[*place] as usize].id.as_str();
    let names: Vec<&str> = alone.iter().map(name).collect();
    if !names.is_empty() {
        said.notes.push(format!(
            "start = \"odcl\": the models of {} ({}) are far from all others, and set aside: they are hostile, or nothing like the \
             others",
            counted(names.len(), "client"),
            few_of(&names)
        ));
    }
    let points = points_of(&order, request, "use another start")?;
    let clusters = ModelClusters::find(points, &order.clients, solve, request)?;
    if let Some((words, share)) = clusters.sureness() {
        said.notes.push(format!("start = \"odcl\": {words}"));
        said.extra.insert("sureness".to_string(), share);
    }
    let about = clusters.found.notes.iter().cloned().chain(clusters.aside_note());
    said.notes.extend(about.map(|note| format!("start = \"odcl\": {note}")));
    Ok(clusters.means())
}

impl Ifca {
    /// Line 1.
    pub(super) fn begin(&mut self, room: &mut Room) -> Result<()> {
        let mut said = Description::default();
        for lane in 0..self.state.lanes.len() {
            let start = self.state.lanes[lane].start;
            let earlier = self.state.lanes[..lane].iter().find(|other| other.start == start);
            let mut models = match (earlier, &self.beginning) {
                (Some(same), _) => same.models.clone(),
                (None, Beginning::Given(models)) => models.clone(),
                (None, Beginning::Random { clusters }) => self.random(*clusters, start)?,
                (None, Beginning::Farthest { clusters, clients, steps }) => {
                    self.farthest(room, start, *clusters, *clients, *steps)?
                }
                (None, Beginning::OneShot { solve, request, set_aside }) => {
                    one_shot((solve, request, *set_aside), room, &mut said)?
                }
                (None, Beginning::Oracle { truth, ridge, shift }) => {
                    let search = self.minimisers(room, truth, *ridge)?;
                    said.notes.extend(search.notes().iter().map(|note| format!("start = \"oracle\": {note}")));
                    self.shifted(search.models(), shift, start)?
                }
                (None, Beginning::Planted { models, shift }) => self.shifted(models.clone(), shift, start)?,
            };
            if let Some((first, rest)) = models.split_first_mut() {
                copy_layers(&self.shared, first, rest);
            }
            self.state.lanes[lane].begin(models);
        }
        (self.state.notes, self.state.extra) = (said.notes, said.extra);
        Ok(())
    }

    /// The minimisers of the true clusters, close enough to start around them.
    fn minimisers(&self, room: &mut Room, truth: &Assignment, ridge: f64) -> Result<PooledSearch> {
        const TOLERANCE: f64 = 1e-4;
        const ROUNDS: usize = 1000;
        let mut search = PooledSearch::new(truth, &self.common(0)?, ridge, TOLERANCE);
        for _ in 0..ROUNDS {
            if search.is_finished() {
                break;
            }
            search.advance(Phase::Start, room)?;
        }
        Ok(search)
    }

    /// Models moved by a random vector each.
    fn shifted(&self, mut models: Vec<Params>, shift: &Shift, start: usize) -> Result<Vec<Params>> {
        let pairs = (0..models.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
        let apart = pairs.map(|(i, j)| distance(&models[i], &models[j])).fold(f64::INFINITY, f64::min);
        if shift.distance.is_some() && apart == 0.0 {
            return Err(Error::settings("start_distance: two true clusters have the same model, no distance apart")
                .hint("use start_noise"));
        }
        for (cluster, model) in models.iter_mut().enumerate() {
            let key = self.trainer.key.clone().word("shift").number(start as u64).number(cluster as u64);
            let mut rng = key.rng();
            let model = Arc::make_mut(model);
            let size = model.len();
            let mut normals = || -> Vec<f64> { StandardNormal.sample_iter(&mut rng).take(size).collect() };
            if let Some(noise) = shift.noise {
                add_scaled(model, noise, &normals());
            }
            if let Some((low, high)) = shift.distance {
                let direction = normals();
                let share = low + (high - low) * key.word("length").rng().random::<f64>();
                add_scaled(model, share * apart / norm(&direction), &direction);
            }
        }
        Ok(models)
    }

    /// Random models; a single one as in FedAvg.
    fn random(&self, clusters: usize, start: usize) -> Result<Vec<Params>> {
        match clusters {
            1 => Ok(vec![self.common(start)?]),
            _ => random_models(&*self.model, &self.trainer.key, start, clusters),
        }
    }

    /// The model that all clients begin with in this start.
    fn common(&self, start: usize) -> Result<Params> {
        self.model.common_start(&mut start_key(&self.trainer.key, start, 0).rng()).map(Arc::new)
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
        let to = draw_clients(&self.trainer.key.clone().word("start clients").number(start as u64), clients, room);
        let plan = self.trainer.with_draws("start plan").plan(start);
        let plan = Plan { amount: Amount::Steps(steps), step: self.trainer.step, ..plan };
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
        let groups = farthest_first(present.len(), clusters, apart);
        let mean = |group: &Vec<usize>| plain_mean(group.iter().map(|&i| &models[present[i]]));
        Ok(groups.iter().map(mean).collect())
    }
}

/// Groups of points: the first centre is the point closest to all others, each further one the point farthest from the
/// centres so far; every point joins its nearest centre.
pub(super) fn farthest_first(count: usize, groups: usize, apart: impl Fn(usize, usize) -> f64) -> Vec<Vec<usize>> {
    let total = |i: usize| (0..count).map(|j| apart(i, j)).sum::<f64>();
    let to_centre = |i: usize, centre: usize| if centre == i { f64::NEG_INFINITY } else { apart(i, centre) };
    let mut centres = vec![first_smallest((0..count).map(total)).position];
    while centres.len() < groups {
        let gap = |i: usize| centres.iter().map(|&centre| to_centre(i, centre)).fold(f64::INFINITY, f64::min);
        centres.push(first_smallest((0..count).map(|i| -gap(i))).position);
    }
    let mut members = vec![Vec::new(); groups];
    for i in 0..count {
        members[first_smallest(centres.iter().map(|&centre| to_centre(i, centre))).position].push(i);
    }
    members
}
