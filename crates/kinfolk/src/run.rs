//! From an experiment to a run folder: data, federation, method, rounds, records, checkpoints.
//!
//! ```text
//! DIR/experiment.toml      first: every default filled in
//! DIR/checkpoint/          while running: what is finished, and where the method in progress stands
//! DIR/models/…             as each method finishes
//! DIR/rounds.csv …         at the end
//! DIR/summary.json         last: a folder without it is not finished
//! ```

mod columns;
mod environment;
mod folder;
mod mixtures;
pub mod venue;

pub use environment::checkpoint_every;

use crate::data::schema::{Description, Schema, extreme_cells};
use crate::data::{Client, Population};
use crate::error::{Error, ErrorKind, Result};
use crate::evaluate::{self, Baselines, Evaluation};
use crate::experiment::{Experiment, MethodEntry};
use crate::federation::engines::{Engine, FederationState};
use crate::federation::faults::Faults;
use crate::federation::server::ledger::few_of;
use crate::federation::server::meter::Traffic;
use crate::federation::{ClientInfo, Phase};
use crate::groups::{Groups, Origin};
use crate::linalg::{norm, squared_distance};
use crate::methods::room::{Book, MissingRule, diverged, exploded, nobody_answered};
use crate::methods::{Comparison, Method, Outcome, Serving, Setup, auto_step, choose_components, no_true_clusters};
use crate::modelfile::{self, CLIENT_FILES, ClientNames};
use crate::models::{Blueprint, Metric, Model};
use crate::panics::contained;
use crate::report::files::write_all_atomically;
use crate::report::{
    ClientRecord, ComparisonRecord, MethodSummary, MixtureRecord, Record, RepeatSummary, RoundRecord, Summary,
};
use crate::rng::Key;
use folder::Folder;
use serde::{Deserialize, Serialize};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use venue::{InProcess, Meeting, Venue};

/// How to run an experiment.
pub struct Options {
    /// The run folder; `None` keeps everything in memory.
    pub folder: Option<PathBuf>,
    /// Threads; 0 is one for every core.
    pub threads: usize,
    /// Go on with what is in the folder.
    pub resume: bool,
    /// Raise it to stop; what was done is in the checkpoint.
    pub stop: Arc<AtomicBool>,
    /// Least time between two checkpoints of one method.
    pub checkpoint_every: Duration,
    /// Sum single answers instead of reducing while computing: the bits that clients on other machines give.
    pub single_answers: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            folder: None,
            threads: 0,
            resume: false,
            stop: Arc::new(AtomicBool::new(false)),
            checkpoint_every: Duration::from_secs(10),
            single_answers: false,
        }
    }
}

/// Somebody who watches a run.
pub trait Watch {
    /// Something slow begins: making the data, evaluating.
    fn doing(&mut self, what: &str);
    /// A method means to ask clients about so many questions on each of so many seeds. Said before any method runs, and
    /// again where one only learns on the way how many there will be.
    fn planned(&mut self, _label: &str, _questions: usize, _seeds: usize) {}
    /// A method begins, or goes on from a round.
    fn method(&mut self, label: &str, seed: u64, from: usize, rounds: usize);
    /// A round is over.
    fn round(&mut self, record: &RoundRecord);
    /// A method is finished.
    fn finished(&mut self, summary: &RepeatSummary, label: &str);
}

/// Watches nothing.
pub struct Unwatched;

impl Watch for Unwatched {
    fn doing(&mut self, _: &str) {}
    fn method(&mut self, _: &str, _: u64, _: usize, _: usize) {}
    fn round(&mut self, _: &RoundRecord) {}
    fn finished(&mut self, _: &RepeatSummary, _: &str) {}
}

/// Everything one finished method on one seed leaves behind.
#[derive(Serialize, Deserialize)]
struct Finished {
    origin: String,
    summary: String,
    rounds: Vec<RoundRecord>,
    clients: Vec<ClientRecord>,
    /// At most one.
    mixtures: Vec<MixtureRecord>,
    /// At most one.
    comparisons: Vec<ComparisonRecord>,
    /// The clients' models, of a method that minimises exactly.
    minimiser: Option<Models>,
}

/// Models of clients by their ids.
type Models = BTreeMap<String, Vec<f64>>;

/// What a method leaves behind beside its summary.
#[derive(Default)]
struct Details {
    rounds: Vec<RoundRecord>,
    clients: Vec<ClientRecord>,
    mixtures: Vec<MixtureRecord>,
    comparisons: Vec<ComparisonRecord>,
    minimiser: Option<Models>,
}

/// How far a method has come: what is known of it even if it fails.
struct Course {
    book: Book,
    rounds: Vec<RoundRecord>,
    round: usize,
    seconds: f64,
    traffic: Traffic,
    notes: Vec<String>,
    comparison: Option<Comparison>,
}

impl Course {
    fn new(rule: MissingRule) -> Self {
        Self {
            book: Book::new(rule),
            rounds: Vec::new(),
            round: 0,
            seconds: 0.0,
            traffic: Traffic::default(),
            notes: Vec::new(),
            comparison: None,
        }
    }

    /// Notes what was spent on the way, and what went wrong.
    fn look_at(&mut self, federation: &dyn Engine) {
        (self.traffic, self.notes) = (federation.meter().total(), federation.notes());
    }
}

/// Where a method in progress stands.
#[derive(Serialize, Deserialize)]
struct Current {
    origin: String,
    method: Vec<u8>,
    federation: FederationState,
    book: Book,
    rounds: Vec<RoundRecord>,
    round: usize,
    seconds: f64,
}

/// The data of one seed, as every method of the experiment sees it.
struct Stage {
    population: Population,
    engine: Box<dyn Engine>,
    unseen: Option<Box<dyn Engine>>,
    rows: Vec<usize>,
    truth: Option<Vec<usize>>,
    /// The groups that clients say they belong to.
    column: Option<Groups>,
    model: Arc<dyn Model>,
    metric: Metric,
    schema: Schema,
    /// What every method's reader must know of the data and the model.
    notes: Vec<String>,
    /// The most the loss curves on any client's rows, where a method wants to know.
    curvature: Option<f64>,
    /// The program and the data, told apart from all others.
    origin: String,
    /// What other models give the clients, once somebody asked.
    baselines: OnceCell<Baselines>,
    /// What was minimised exactly so far.
    minimisers: RefCell<Vec<Minimiser>>,
}

/// The exact minimiser of an objective, as a method of this run found it.
struct Minimiser {
    objective: Vec<Option<toml::Value>>,
    models: Models,
}

/// The settings that say what personal methods minimise.
const OBJECTIVE: [&str; 10] =
    ["groups", "gamma", "lambda", "alpha", "loss", "noise", "spread", "tune", "grid", "folds"];

/// What a personal method minimises.
fn objective(entry: &MethodEntry) -> Vec<Option<toml::Value>> {
    OBJECTIVE.iter().map(|name| entry.settings.get(name).cloned()).collect()
}

/// Runs an experiment to its end and returns everything it found. Methods that diverge, fail or panic are part of the
/// record; an error means that the input was at fault or a file could not be written.
pub fn run(experiment: &Experiment, options: &Options, watch: &mut dyn Watch) -> Result<Record> {
    run_at(&mut InProcess::new(options)?, experiment, options, watch)
}

/// The same, with the clients of a venue.
pub fn run_at(
    venue: &mut dyn Venue,
    experiment: &Experiment,
    options: &Options,
    watch: &mut dyn Watch,
) -> Result<Record> {
    let mut folder =
        options.folder.as_deref().map(|path| Folder::open(path, experiment, options.resume)).transpose()?;
    if let Some(record) = folder.as_mut().and_then(|folder| folder.finished.take()) {
        return Ok(record);
    }
    let mut results = Results::new();
    let mut about_data = serde_json::Value::Null;
    for seed in experiment.seeds() {
        watch.doing("preparing the data");
        let stage = Stage::prepare(experiment, seed, venue)?;
        if options.resume {
            stage.population.clients.iter().try_for_each(Client::check_resumable)?;
            if stage.engine.state()?.is_none() {
                return Err(Error::new(ErrorKind::Unsupported, "this run cannot go on from a checkpoint")
                    .hint("what its clients remember is out of reach; start anew in another folder"));
            }
        }
        if seed == experiment.seeds().start {
            // Every method is made once before any runs, so that no fault shows up hours later. A fault that only another
            // seed shows, or a bug, is that method's own.
            let (mut faults, mut planned) = (Vec::new(), Vec::new());
            for entry in &experiment.methods {
                match contained(|| Ok(questions(&*stage.method(entry, seed, None)?, experiment))) {
                    Ok(questions) => planned.push((&entry.label, questions)),
                    Err(fault) if fault.kind() == ErrorKind::Internal => {}
                    Err(fault) => faults.push(fault),
                }
            }
            crate::settings::finish(faults)?;
            let seeds = experiment.seeds().count();
            planned.iter().for_each(|(label, questions)| watch.planned(label, *questions, seeds));
            about_data = stage.about(experiment);
            if let Some(folder) = &mut folder {
                folder.begin(experiment, &stage.schema)?;
            }
        }
        for (index, entry) in experiment.methods.iter().enumerate() {
            let done = folder
                .as_ref()
                .map(|folder| folder.read_done(&entry.label, seed, &stage.origin))
                .transpose()?
                .flatten();
            let mut result = match done {
                Some(done) => done,
                None => {
                    let found = |label: &str| found_groups(experiment, &results, label, seed);
                    let folder = folder.as_ref();
                    let running = Running { experiment, entry, seed, stage: &stage, options, folder, found: &found };
                    let result = running.to_the_end(watch)?;
                    watch.finished(&result.0, &entry.label);
                    result
                }
            };
            stage.keep_minimiser(entry, result.1.minimiser.take());
            results.insert((index, seed), result);
        }
    }
    let record = gather(experiment, about_data, results);
    if let Some(folder) = &folder {
        folder.finish(&record)?;
    }
    Ok(record)
}

/// About how many questions a method has left to ask: one a round, and one each time it is scored.
fn questions(method: &dyn Method, experiment: &Experiment) -> usize {
    let rounds = method.planned_rounds();
    rounds + rounds.div_ceil(experiment.settings.integer("evaluate_every").max(1))
}

/// Looks up the groups that the method of a label found.
type Found<'a> = &'a dyn Fn(&str) -> Result<Groups>;

/// What each method left on each seed, by its place in the experiment.
type Results = BTreeMap<(usize, u64), (RepeatSummary, Finished)>;

/// The clusters that an earlier method found on this seed, in this run or before it was resumed.
fn found_groups(experiment: &Experiment, results: &Results, label: &str, seed: u64) -> Result<Groups> {
    let place = experiment.methods.iter().position(|entry| entry.label == label);
    match place.and_then(|place| results.get(&(place, seed))) {
        Some((summary, finished)) => Groups::found_by(label, summary, &finished.clients),
        None => Err(Error::settings(format!("its groups come from method {label}, which has not run"))),
    }
}

/// Whether a method takes steps, and wants them chosen from the data.
fn uses_auto_step(entry: &MethodEntry, model: &dyn Model) -> bool {
    let exact = match entry.settings.optional_text("solve") {
        Some("auto") => model.has_minimiser(),
        solve => solve == Some("exact"),
    };
    !exact && entry.settings.optional_text("step") == Some("auto")
}

impl Stage {
    fn prepare(experiment: &Experiment, seed: u64, venue: &mut dyn Venue) -> Result<Self> {
        let Meeting { mut population, mut engine, mut unseen, digest } = venue.open(experiment, seed)?;
        let origin = format!("{} {digest}", env!("CARGO_PKG_VERSION"));

        // The server learns what the data looks like by asking, and fixes one schema for everybody.
        let scale = experiment.standardises();
        let described = engine.describe(scale)?;
        let silent = |(_, description): &(&ClientInfo, &Option<Description>)| description.is_none();
        if let Some((client, _)) = engine.clients().iter().zip(&described).find(silent) {
            let message = format!("client {} does not say what its data looks like", client.id);
            return Err(Error::new(ErrorKind::Client, message));
        }
        let described: Vec<Description> = described.into_iter().flatten().collect();
        let rows: Vec<usize> = described.iter().map(|description| description.rows).collect();
        let column = Groups::named(described.iter().map(|description| description.group.as_deref()));
        let schema = Schema::fix(&described, experiment.coding())?;
        let mut notes = columns::extreme_cell_notes(engine.clients(), &extreme_cells(&described));
        let mut unknown = schema.unknown_classes(&described);
        engine.adopt(&schema)?;
        // Rows that are here are looked at as everybody agreed to see them.
        if let Some(host) = engine.host() {
            population.clients = host.clients().to_vec();
        }
        if let Some(unseen) = &mut unseen {
            let described: Vec<Description> = unseen.describe(false)?.into_iter().flatten().collect();
            unknown.extend(schema.unknown_classes(&described));
            unseen.adopt(&schema)?;
            if let Some(host) = unseen.host() {
                population.unseen = host.clients().to_vec();
            }
        }
        let mut shape = schema.shape();
        shape.classes = shape.classes.max(population.shape.classes);
        // A schema knows columns, not how they lie; only tables are encoded into other columns, and they lie in no order.
        shape.form = population.shape.form;
        let mut blueprint = Blueprint { kind: experiment.model_kind, settings: experiment.model.clone(), shape };
        let mut model = blueprint.build_from(venue.start())?;
        notes.extend(columns::unknown_classes_note(unknown));
        if let (Some("auto"), Some(form)) = (experiment.model.optional_text("components"), model.mixture()) {
            let (form, most) = (*form, experiment.model.integer("most_components"));
            engine.equip(&model, &blueprint)?;
            let found = choose_components(&mut *engine, &form, &rows, most, &Key::new(seed))?;
            blueprint.settings = experiment.model.with("components", found.count as i64);
            model = blueprint.build_from(venue.start())?;
            notes.push(found.note());
        }
        engine.equip(&model, &blueprint)?;
        if let Some(unseen) = &mut unseen {
            unseen.equip(&model, &blueprint)?;
        }
        let metric = match experiment.settings.text("metric") {
            "auto" => model.metrics()[0],
            wanted => *model.metrics().iter().find(|metric| metric.name() == wanted).ok_or_else(|| {
                let offered: Vec<&str> = model.metrics().iter().map(|metric| metric.name()).collect();
                Error::settings(format!("metric: got \"{wanted}\", want one of {} for this model", offered.join(", ")))
            })?,
        };
        let wants_curvature = experiment.methods.iter().any(|entry| uses_auto_step(entry, &*model));
        let curvature = if model.curvature(0.0).is_some() && wants_curvature {
            let described: Vec<Description> = engine.describe(true)?.into_iter().flatten().collect();
            // A client with an extreme cell would shorten the steps of everybody to nothing.
            let extremes = extreme_cells(&described);
            let is_usual = |place: usize| extremes.iter().all(|cell| cell.client != place || cell.column.is_none());
            let described = described.iter().enumerate().filter(|(place, _)| is_usual(*place));
            let mean_squares = described.map(|(_, description)| description.mean_square());
            model.curvature(mean_squares.fold(0.0, f64::max))
        } else {
            None
        };
        let truth = population.clients.iter().map(|client| client.truth).collect();
        let (baselines, minimisers) = (OnceCell::new(), RefCell::default());
        Ok(Self {
            population,
            engine,
            unseen,
            rows,
            truth,
            column,
            model,
            metric,
            schema,
            notes,
            curvature,
            origin,
            baselines,
            minimisers,
        })
    }

    /// The groups a method is told; `None` for one that is told none. `found` looks up what an earlier method found:
    /// while that is not known yet, everybody is in one group.
    fn groups_for(&self, entry: &MethodEntry, found: Option<Found>) -> Result<Option<Groups>> {
        let place = format!("method.{}.groups", entry.label);
        let groups = match Origin::of(&entry.settings) {
            None => return Ok(None),
            Some(Origin::One) => Groups::one(self.rows.len()),
            Some(Origin::Truth) => {
                let truth = self.truth.as_ref().and_then(|truth| Groups::numbered(truth.iter().copied().map(Some)));
                truth.ok_or_else(|| no_true_clusters(&place))?
            }
            Some(Origin::Column) => self.column.clone().ok_or_else(|| {
                Error::settings(format!("{place}: the data names no groups"))
                    .hint("set data.group for a table, or groups = \"truth\", \"one\", or the label of a method above")
            })?,
            Some(Origin::Method(label)) => match found {
                Some(found) => found(label)?,
                None => Groups { provisional: true, ..Groups::one(self.rows.len()) },
            },
        };
        Ok(Some(groups))
    }

    fn method(&self, entry: &MethodEntry, seed: u64, found: Option<Found>) -> Result<Box<dyn Method>> {
        let groups = self.groups_for(entry, found)?;
        let needs_truth = (entry.kind.needs_truth)(&entry.settings);
        (entry.kind.build)(Setup {
            place: format!("method.{}", entry.label),
            settings: &entry.settings,
            model: self.model.clone(),
            rows: &self.rows,
            curvature: self.curvature,
            truth: self.truth.as_deref().filter(|_| needs_truth),
            planted: Some(&*self.population.true_parameters).filter(|planted| needs_truth && !planted.is_empty()),
            groups,
            seed,
            key: Key::new(seed).word(&entry.label),
        })
    }

    /// Adds how far the clients' models are from the planted parameters.
    fn compare_with_planted(&self, outcome: &Outcome, scored: &mut Evaluation, federation: &dyn Engine) {
        if self.population.true_parameters.is_empty() {
            return;
        }
        let own = match outcome.serving {
            Serving::Own { .. } => federation.own_models().collect(),
            _ => BTreeMap::new(),
        };
        scored.normalised_mse = evaluate::normalised_mse(outcome, scored, &self.population, &own);
        scored.extra.extend(evaluate::personal_errors(outcome, scored, &self.population, &own));
    }

    /// Adds what personal models in clusters are beside other models. What those give is the same for every method.
    fn compare_with_baselines(
        &self,
        outcome: &Outcome,
        scored: &mut Evaluation,
        federation: &mut dyn Engine,
    ) -> Result<()> {
        let baselines = match self.baselines.get() {
            Some(baselines) => baselines,
            None => {
                let single = evaluate::single_model(federation, &*self.model)?;
                let found = evaluate::baselines(federation, &*self.model, self.metric, single)?;
                self.baselines.get_or_init(|| found)
            }
        };
        let own = federation.own_models().collect();
        scored.personal = evaluate::personal_records(outcome, &self.population, &own, baselines);
        let outliers = &self.population.outliers;
        scored.extra.extend(evaluate::beside_baselines(scored, baselines, self.metric, outliers));
        Ok(())
    }

    /// Keeps the clients' models of a method that minimised exactly, for those that approach the same.
    fn keep_minimiser(&self, entry: &MethodEntry, models: Option<Models>) {
        let minimiser = models.map(|models| Minimiser { objective: objective(entry), models });
        self.minimisers.borrow_mut().extend(minimiser);
    }

    /// √(Σ ‖θ_i − θ*_i‖² / Σ ‖θ*_i‖²) over the clients, θ* the exact minimiser of what a method approaches by steps;
    /// absent where no method before it found that.
    fn distance_to_exact(&self, entry: &MethodEntry, federation: &dyn Engine) -> Option<f64> {
        if !matches!(entry.kind.name, "l2gd" | "al2sgd+") {
            return None;
        }
        let minimisers = self.minimisers.borrow();
        let exact = minimisers.iter().find(|minimiser| minimiser.objective == objective(entry))?;
        let own: BTreeMap<&str, Vec<f64>> = federation.own_models().collect();
        let (mut apart, mut size) = (0.0, 0.0);
        for (id, minimiser) in &exact.models {
            apart += squared_distance(own.get(id.as_str())?, minimiser);
            size += norm(minimiser).powi(2);
        }
        Some((apart / size).sqrt()).filter(|distance| distance.is_finite())
    }

    /// The `data` entry of summary.json. `samples` is per client, a mean where clients differ.
    fn about(&self, experiment: &Experiment) -> serde_json::Value {
        let mut about = serde_json::Map::new();
        let total: usize = self.rows.iter().sum();
        about.insert("source".into(), experiment.source.name.into());
        about.insert("clients".into(), self.rows.len().into());
        match self.rows.first() {
            Some(&rows) if self.rows.iter().all(|&other| other == rows) => about.insert("samples".into(), rows.into()),
            _ => about.insert("samples".into(), (total as f64 / self.rows.len() as f64).into()),
        };
        about.insert("rows".into(), total.into());
        if self.schema.shape().columns > 0 {
            about.insert("columns".into(), self.schema.shape().columns.into());
        }
        if self.schema.shape().classes > 0 {
            about.insert("classes".into(), self.schema.shape().classes.into());
        }
        if !self.population.unseen.is_empty() {
            about.insert("unseen_clients".into(), self.population.unseen.len().into());
        }
        if let Some(clusters) = self.population.true_clusters {
            about.insert("true_clusters".into(), clusters.into());
        }
        if !self.population.outliers.is_empty() {
            let outliers = self.population.outliers.iter().filter(|outlier| **outlier).count();
            about.insert("outliers".into(), outliers.into());
        }
        about.into()
    }
}

/// One method on one seed.
struct Running<'a> {
    experiment: &'a Experiment,
    entry: &'a MethodEntry,
    seed: u64,
    stage: &'a Stage,
    options: &'a Options,
    folder: Option<&'a Folder>,
    found: Found<'a>,
}

impl Running<'_> {
    /// Runs the method to its end, whatever that is: one that fails, or panics, costs its own result only.
    fn to_the_end(&self, watch: &mut dyn Watch) -> Result<(RepeatSummary, Finished)> {
        let mut course = Course::new(MissingRule::of(&self.entry.settings));
        let (summary, details) = match contained(|| self.follow(watch, &mut course)) {
            Ok(ended) => ended,
            Err(error) if error.ends_run() => return Err(error),
            Err(error) => self.failure(course, &error),
        };
        self.leave(summary, details)
    }

    /// What is left of a method that ended with an error.
    fn failure(&self, course: Course, error: &Error) -> (RepeatSummary, Details) {
        let mut summary = self.summary(&course);
        summary.status = if error.kind() == ErrorKind::Diverged { "diverged" } else { "failed" }.into();
        summary.reason = Some(error.to_string());
        let comparisons = course.comparison.map(|found| self.comparison(found)).into_iter().collect();
        (summary, Details { rounds: course.rounds, comparisons, ..Details::default() })
    }

    /// Follows the method through its rounds to what it found, and writes its models.
    fn follow(&self, watch: &mut dyn Watch, course: &mut Course) -> Result<(RepeatSummary, Details)> {
        let stage = self.stage;
        let label = &self.entry.label;
        let mut method = stage.method(self.entry, self.seed, Some(self.found))?;
        let faults = Faults::from_settings(&self.experiment.faults, self.seed);
        let mut federation = stage.engine.afresh(label, faults, self.options.stop.clone())?;
        let federation = &mut *federation;
        let mut unseen = match &stage.unseen {
            Some(unseen) => Some(unseen.afresh(label, Faults::none(), self.options.stop.clone())?),
            None => None,
        };
        let current = self.folder.map(|folder| folder.read_current(label, self.seed, &stage.origin));
        if let Some(current) = current.transpose().map_err(Error::ending_the_run)?.flatten() {
            method.restore(&current.method).map_err(Error::ending_the_run)?;
            federation.restore(current.federation).map_err(Error::ending_the_run)?;
            (course.rounds, course.round, course.seconds) = (current.rounds, current.round, current.seconds);
            course.book = current.book;
        }
        watch.method(label, self.seed, course.round, method.planned_rounds());
        let every = self.experiment.settings.integer("evaluate_every");
        let mut planned = questions(&*method, self.experiment);
        let mut saved = Instant::now();
        let mut last: Option<(Evaluation, Option<Evaluation>)> = None;
        loop {
            let began = Instant::now();
            let before = Phases::of(federation);
            let progress = course.book.play(&mut *method, federation);
            course.look_at(federation);
            let progress = progress?;
            course.round += 1;
            course.seconds += began.elapsed().as_secs_f64();
            let (round, seconds) = (course.round, course.seconds);
            let now = questions(&*method, self.experiment);
            if now.abs_diff(planned) * 4 > planned {
                planned = now;
                watch.planned(label, planned, 1);
            }
            let after = Phases::of(federation);
            let record = |phase: Phase| {
                let traffic = after.get(phase).since(before.get(phase));
                RoundRecord {
                    label: label.clone(),
                    seed: self.seed,
                    round: if phase == Phase::Start { 0 } else { round },
                    phase: phase.name().to_string(),
                    loss: None,
                    metric: None,
                    unseen_metric: None,
                    normalised_mse: None,
                    distance_to_exact: None,
                    misclustering: None,
                    stage: None,
                    switched: None,
                    sizes: Vec::new(),
                    bytes_down: traffic.bytes_down,
                    bytes_up: traffic.bytes_up,
                    seconds,
                }
            };
            let asked = |phase: Phase| after.get(phase).asks > before.get(phase).asks;
            // A round that only finds a start is one all the same.
            let only_start = asked(Phase::Start) && !asked(Phase::Train);
            if asked(Phase::Start) && !only_start {
                course.rounds.push(record(Phase::Start));
            }
            let trained = RoundRecord {
                round,
                loss: progress.loss,
                switched: progress.switched,
                sizes: progress.sizes.clone(),
                ..record(if only_start { Phase::Start } else { Phase::Train })
            };
            watch.round(&trained);
            course.rounds.push(trained);
            let stage_ended = method.stage();
            if progress.finished || round % every == 0 || stage_ended.is_some() {
                let mut outcome = method.outcome();
                course.comparison = outcome.comparison.take();
                let assign_on = self.experiment.assign_on();
                let outliers = &stage.population.outliers;
                let mut scored = evaluate::seen(&outcome, federation, stage.metric, assign_on, outliers)?;
                stage.compare_with_planted(&outcome, &mut scored, federation);
                let distance_to_exact = stage.distance_to_exact(self.entry, federation);
                scored.extra.extend(distance_to_exact.map(|distance| ("distance_to_exact".to_string(), distance)));
                let unseen = match &mut unseen {
                    Some(unseen) => evaluate::unseen(&outcome, &mut **unseen, stage.metric, assign_on)?,
                    None => None,
                };
                let mean = |evaluation: &Evaluation| evaluation.metric.as_ref().map(|metric| metric.mean);
                let evaluated = RoundRecord {
                    misclustering: evaluate::against_truth(&outcome, &scored, &stage.population).misclustering,
                    stage: stage_ended,
                    metric: mean(&scored),
                    unseen_metric: unseen.as_ref().and_then(mean),
                    normalised_mse: scored.normalised_mse,
                    distance_to_exact,
                    sizes: progress.sizes,
                    ..record(Phase::Evaluate)
                };
                watch.round(&evaluated);
                course.rounds.push(evaluated);
                // A method sees the loss before a step; what the step itself did shows here.
                let first = course.rounds.iter().find_map(|round| round.loss);
                // One client's model may be as bad as it likes.
                if scored.median_loss().is_some_and(|loss| exploded(first.unwrap_or(loss), loss)) {
                    return Err(diverged(round - 1));
                }
                last = Some((scored, unseen));
            }
            if progress.finished {
                break;
            }
            if let Some(folder) = self.folder
                && saved.elapsed() >= self.options.checkpoint_every
                && let Some(federation) = federation.state()?
            {
                let method = method.save()?;
                let origin = stage.origin.clone();
                let rounds = std::mem::take(&mut course.rounds);
                let book = course.book.clone();
                let current = Current { origin, method, federation, book, rounds, round, seconds };
                let written = folder.write_current(label, self.seed, &current);
                course.rounds = current.rounds;
                written.map_err(Error::ending_the_run)?;
                saved = Instant::now();
            }
        }
        if federation.ledger().useful_answers() == 0 {
            return Err(nobody_answered());
        }
        let outcome = method.outcome();
        if let Some((scored, _)) = &mut last
            && matches!(outcome.serving, Serving::Own { clusters: Some(_), .. })
        {
            watch.doing("comparing with local models and with one model");
            stage.compare_with_baselines(&outcome, scored, federation)?;
        }
        if let (Some((scored, _)), Some(shape)) = (&mut last, stage.model.mixture()) {
            mixtures::compare(stage, &outcome, shape, scored, federation)?;
        }
        let minimises = self.entry.kind.name == "hierarchical" && outcome.converged;
        let own = || federation.own_models().map(|(id, model)| (id.to_string(), model)).collect();
        let minimiser = minimises.then(own);
        if self.folder.is_some() {
            self.keep_models(&outcome, federation)?;
        }
        course.look_at(federation);
        let summary = self.summarise(course, &outcome, last.as_ref());
        let clients = last.as_ref().map(|(scored, _)| self.client_records(scored, &outcome)).unwrap_or_default();
        if let Some(folder) = self.folder {
            self.write_models(folder, &outcome, federation)?;
        }
        let mixtures = stage.model.mixture().map(|shape| mixtures::record(self, &outcome, shape, federation));
        let mixtures = mixtures.into_iter().collect();
        let comparisons = outcome.comparison.map(|found| self.comparison(found)).into_iter().collect();
        let rounds = std::mem::take(&mut course.rounds);
        Ok((summary, Details { rounds, clients, mixtures, comparisons, minimiser }))
    }

    fn comparison(&self, found: Comparison) -> ComparisonRecord {
        let population = &self.stage.population;
        ComparisonRecord {
            label: self.entry.label.clone(),
            seed: self.seed,
            clients: population.clients.iter().map(|client| client.id.clone()).collect(),
            truth: population.clients.iter().map(|client| client.truth).collect(),
            found,
        }
    }

    /// What it leaves behind, also in the folder.
    fn leave(&self, summary: RepeatSummary, details: Details) -> Result<(RepeatSummary, Finished)> {
        let text = serde_json::to_string(&summary).map_err(|e| Error::new(ErrorKind::Io, format!("summary: {e}")))?;
        let Details { rounds, clients, mixtures, comparisons, minimiser } = details;
        let origin = self.stage.origin.clone();
        let finished = Finished { origin, summary: text, rounds, clients, mixtures, comparisons, minimiser };
        if let Some(folder) = self.folder {
            folder.write_done(&self.entry.label, self.seed, &finished)?;
        }
        Ok((summary, finished))
    }

    /// A summary that says what was spent, and nothing yet of what was found.
    fn summary(&self, course: &Course) -> RepeatSummary {
        let traffic = course.traffic;
        RepeatSummary {
            seed: self.seed,
            status: "done".into(),
            reason: None,
            rounds: course.round,
            clusters: None,
            metric: None,
            unseen: None,
            misclustering: None,
            ari: None,
            parameter_error: None,
            bytes_down: traffic.bytes_down,
            bytes_up: traffic.bytes_up,
            models_down: traffic.models_down,
            models_up: traffic.models_up,
            seconds: course.seconds,
            notes: course.notes.clone(),
            extra: stages(&course.rounds),
        }
    }

    fn summarise(
        &self,
        course: &Course,
        outcome: &Outcome,
        last: Option<&(Evaluation, Option<Evaluation>)>,
    ) -> RepeatSummary {
        let mut summary = self.summary(course);
        if !outcome.converged {
            summary.status = "not-converged".into();
        }
        let first = self.stage.notes.iter().cloned().chain(course.book.note());
        summary.notes.splice(0..0, first.chain(outcome.notes.iter().cloned()));
        summary.notes.extend(mixtures::note(self.stage, outcome));
        if uses_auto_step(self.entry, &*self.stage.model)
            && let Some(curvature) = self.stage.curvature
        {
            let step = auto_step(&self.entry.settings, Some(curvature));
            summary.notes.push(format!("step {step:.3e}, chosen from the data"));
        }
        let mut extra = outcome.extra.clone();
        if let Some((scored, unseen)) = last {
            let population = &self.stage.population;
            let infinite = without_finite_metric(&population.clients, scored);
            if scored.metric.is_none() && infinite.is_none() {
                let nobody =
                    matches!(&outcome.serving, Serving::Own { stamps, .. } if stamps.iter().all(|&stamp| stamp == 0));
                let reached = scored.clients.iter().any(|served| served.loss.is_some());
                let why = match (nobody, reached) {
                    (true, _) => "no client has a model",
                    (false, false) => "no client could be reached any more",
                    (false, true) => "no client has test rows",
                };
                summary.notes.push(format!("{why}, so there is nothing to score"));
            }
            let unseen_infinite = unseen.as_ref().and_then(|unseen| without_finite_metric(&population.unseen, unseen));
            summary.notes.extend(infinite.into_iter().chain(unseen_infinite));
            summary.notes.extend(columns::lone_metric_note(&population.clients, &scored.clients, &population.outliers));
            let truth = evaluate::against_truth(outcome, scored, &self.stage.population);
            summary.metric = scored.metric.clone();
            summary.unseen = unseen.as_ref().and_then(|unseen| unseen.metric.clone());
            summary.misclustering = truth.misclustering;
            summary.ari = truth.ari;
            summary.parameter_error = truth.parameter_error.filter(|error| error.is_finite());
            extra.extend(truth.extra);
            extra.extend(scored.extra.clone());
            extra.extend(scored.normalised_mse.map(|error| ("normalised_mse".to_string(), error)));
            if outcome.clustered {
                let sizes = sizes(scored, outcome.models.len());
                summary.clusters = Some(sizes.iter().filter(|&&size| size > 0).count());
                summary.notes.extend(self.odd_clusters(&sizes, scored));
            }
        }
        let number = |value: f64| serde_json::Number::from_f64(value).map(serde_json::Value::Number);
        summary.extra.extend(extra.into_iter().filter_map(|(name, value)| Some((name, number(value)?))));
        summary
    }

    /// Empty and one-member clusters are said out loud, one by one while they are few.
    fn odd_clusters(&self, sizes: &[usize], scored: &Evaluation) -> Vec<String> {
        const FEW: usize = 5;
        let (empty, alone) = [0, 1].map(|odd| sizes.iter().filter(|&&size| size == odd).count()).into();
        if empty + alone > FEW {
            let said = [(empty, "empty"), (alone, "of one client")].into_iter().filter(|(count, _)| *count > 0);
            return said.map(|(count, what)| format!("{count} of {} clusters are {what}", sizes.len())).collect();
        }
        let name = |cluster: usize| {
            let place = scored.clients.iter().position(|served| served.cluster == Some(cluster));
            place.map_or("", |place| &self.stage.population.clients[place].id)
        };
        let note = |(cluster, &size): (usize, &usize)| match size {
            0 => Some(format!("cluster {cluster} is empty")),
            1 => Some(format!("cluster {cluster} has one client, {}", name(cluster))),
            _ => None,
        };
        sizes.iter().enumerate().filter_map(note).collect()
    }

    fn client_records(&self, scored: &Evaluation, outcome: &Outcome) -> Vec<ClientRecord> {
        let groups = self.stage.groups_for(self.entry, Some(self.found)).ok().flatten();
        let name = |place: usize| groups.as_ref().and_then(|groups| Some(groups.names[groups.of[place]?].clone()));
        let outliers = mixtures::outliers(self.stage, outcome);
        let clients = self.stage.population.clients.iter().zip(&scored.clients).enumerate();
        clients
            .map(|(place, (client, served))| ClientRecord {
                label: self.entry.label.clone(),
                seed: self.seed,
                client: client.id.clone(),
                true_cluster: client.truth,
                cluster: served.cluster,
                samples: self.stage.rows[place],
                margin: served.margin,
                metric: served.score.and_then(|score| score.mean()),
                personal: scored.personal.get(place).copied().unwrap_or_default(),
                group: name(place),
                outlier: outliers[place],
            })
            .collect()
    }

    /// Has clients that are elsewhere keep their own models, as they are written here for clients that are here.
    fn keep_models(&self, outcome: &Outcome, federation: &mut dyn Engine) -> Result<()> {
        match &outcome.serving {
            Serving::Own { stamps, .. } if self.experiment.settings.text("save_models") == "all" => {
                federation.keep_models(self.experiment.name(), stamps)
            }
            _ => Ok(()),
        }
    }

    fn write_models(&self, folder: &Folder, outcome: &Outcome, federation: &dyn Engine) -> Result<()> {
        let wanted = self.experiment.settings.text("save_models");
        if wanted == "none" {
            return Ok(());
        }
        /// Files that may wait in memory to be written together.
        const TOGETHER: usize = 64 << 20;
        let model = &self.stage.model;
        let place = folder.path.join("models").join(&self.entry.label).join(self.seed.to_string());
        let mut waiting: Vec<(String, Vec<u8>)> = Vec::new();
        let mut size = 0;
        let mut write = |name: String, params: &[f64]| {
            let about = [("label", self.entry.label.clone()), ("seed", self.seed.to_string()), ("model", name.clone())];
            let bytes = modelfile::bytes(params, model.layout(), model.precision(), &about)?;
            size += bytes.len();
            waiting.push((format!("{name}.safetensors"), bytes));
            if size < TOGETHER {
                return Ok(());
            }
            size = 0;
            write_together(&place, std::mem::take(&mut waiting))
        };
        let mut names = ClientNames::default();
        match &outcome.serving {
            Serving::Given(given) if !outcome.clustered => {
                let clients = self.stage.population.clients.iter().zip(given);
                for (client, model) in clients.filter_map(|(client, given)| Some((client, (*given)?))) {
                    write(names.of(&client.id), &outcome.models[model])?;
                }
            }
            _ => {
                let several = outcome.clustered || outcome.models.len() > 1;
                for (cluster, params) in outcome.models.iter().enumerate() {
                    write(if several { format!("cluster-{cluster}") } else { "global".into() }, params)?;
                }
            }
        }
        if let Some(global) = &outcome.global {
            write("global".into(), global)?;
        }
        // What clients keep is not always what serves them: it may be where they began.
        if wanted == "all" && matches!(outcome.serving, Serving::Own { .. }) {
            for (id, params) in federation.own_models() {
                write(names.of(id), &params)?;
            }
        }
        waiting.extend(names.table()?.map(|table| (CLIENT_FILES.to_string(), table)));
        write_together(&place, waiting)
    }
}

/// Writes files into a folder, which is made where there are any.
fn write_together(place: &Path, files: Vec<(String, Vec<u8>)>) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    // A full disk is everybody's, not one method's.
    let made = std::fs::create_dir_all(place).map_err(|error| Error::io("creating", place, error));
    made.and_then(|()| write_all_atomically(place, files)).map_err(Error::ending_the_run)
}

/// Says who is in no average, by name while they are few.
fn without_finite_metric(clients: &[Client], scored: &Evaluation) -> Option<String> {
    let mean = |served: &evaluate::Served| served.score.and_then(|score| score.mean());
    let infinite =
        clients.iter().zip(&scored.clients).filter(|(_, served)| mean(served).is_some_and(|it| !it.is_finite()));
    let names: Vec<&str> = infinite.map(|(client, _)| client.id.as_str()).collect();
    let list = few_of(&names);
    match names.len() {
        0 => None,
        1 => Some(format!("the metric of client {list} is not finite and in no average")),
        _ => Some(format!("the metrics of clients {list} are not finite and in no average")),
    }
}

/// How clients fared when each stage of a method ended, for the summary.
fn stages(rounds: &[RoundRecord]) -> BTreeMap<String, serde_json::Value> {
    let mut numbers = BTreeMap::new();
    for (round, stage) in rounds.iter().filter_map(|round| Some((round, round.stage.as_ref()?))) {
        let clusters = (!round.sizes.is_empty()).then_some(round.sizes.len() as f64);
        let found = [("metric", round.metric), ("misclustering", round.misclustering), ("clusters", clusters)];
        for (name, value) in found {
            let number = value.and_then(serde_json::Number::from_f64);
            numbers.extend(number.map(|number| (format!("{name}_after_{stage}"), number.into())));
        }
    }
    numbers
}

/// A meter reading of the phases a round can touch.
struct Phases([Traffic; 3]);

impl Phases {
    fn of(federation: &dyn Engine) -> Self {
        Self([Phase::Start, Phase::Train, Phase::Evaluate].map(|phase| federation.meter().of(phase)))
    }

    fn get(&self, phase: Phase) -> Traffic {
        self.0[phase as usize]
    }
}

fn sizes(scored: &Evaluation, clusters: usize) -> Vec<usize> {
    let mut sizes = vec![0; clusters];
    scored.clients.iter().filter_map(|served| served.cluster).for_each(|cluster| sizes[cluster] += 1);
    sizes
}

fn gather(experiment: &Experiment, data: serde_json::Value, results: Results) -> Record {
    let Details { mut rounds, mut clients, mut mixtures, mut comparisons, .. } = Details::default();
    let mut repeats: Vec<Vec<RepeatSummary>> = vec![Vec::new(); experiment.methods.len()];
    for ((index, _), (summary, finished)) in results {
        repeats[index].push(summary);
        rounds.extend(finished.rounds);
        clients.extend(finished.clients);
        mixtures.extend(finished.mixtures);
        comparisons.extend(finished.comparisons);
    }
    let summarise = |(entry, repeats): (&MethodEntry, Vec<RepeatSummary>)| {
        let settings = serde_json::to_value(&entry.settings).unwrap_or_default();
        MethodSummary::of(&entry.label, entry.kind.name, settings, repeats)
    };
    let summary = Summary {
        schema: 1,
        name: experiment.name().to_string(),
        seed: experiment.seeds().start,
        version: env!("CARGO_PKG_VERSION").to_string(),
        data,
        methods: experiment.methods.iter().zip(repeats).map(summarise).collect(),
    };
    Record { summary, rounds, clients, mixtures, comparisons }
}
