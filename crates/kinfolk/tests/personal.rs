//! Methods that give every client a model of its own inside known clusters: how a run serves, scores and files them.

use crate::loopback::Loopback;
use kinfolk::assignment::Assignment;
use kinfolk::compute::threads;
use kinfolk::data::{Client, Features, Population, Shard, Targets, source};
use kinfolk::experiment::{Experiment, MethodEntry};
use kinfolk::federation::engines::Engine;
use kinfolk::federation::engines::local::LocalFederation;
use kinfolk::federation::engines::remote::RemoteFederation;
use kinfolk::federation::wire::DataOrder;
use kinfolk::federation::work::{Evaluate, Gradient, Minimise, Subject};
use kinfolk::federation::{Ask, Federation, Gather, Params, Phase, Recipients};
use kinfolk::groups::Grouping;
use kinfolk::methods::room::{MissingRule, Room};
use kinfolk::methods::{Method, MethodKind, Needs, Outcome, Progress, Serving};
use kinfolk::models::Score;
use kinfolk::models::{self, Ability, Blueprint, Model};
use kinfolk::num::distance;
use kinfolk::record::{ClientRecord, Record, RepeatSummary, RoundRecord};
use kinfolk::run::{Options, Unwatched, Watch, run};
use kinfolk::settings::Declared;
use kinfolk::settings::Settings;
use kinfolk::training::Split;
use kinfolk::{Result, evaluate, modelfile};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Every client keeps its own minimiser; a cluster's model is the mean of its clients', and one more cluster is empty.
static OWN_MINIMISERS: MethodKind = MethodKind {
    name: "own-minimisers",
    summary: "",
    paper: "",
    settings: Grouping::SETTINGS,
    needs: |settings| Needs { groups: Some(Grouping::of(settings)), ..Needs::only(MissingRule::Skip) },
    has_clusters: true,
    wants: Ability::Minimiser,
    particular: false,
    exposure: |_, _, _| Err("it answers with minimisers"),
    discloses: |_, _| Vec::new(),
    wants_single: |_| None,
    check: |_, _, _| {},
    build: |setup| {
        let groups = setup.groups.expect("it has the setting");
        Ok(Box::new(OwnMinimisers { clusters: groups.of, models: Vec::new(), global: None, stamps: Vec::new() }))
    },
};

struct OwnMinimisers {
    clusters: Assignment,
    models: Vec<Params>,
    global: Option<Params>,
    stamps: Vec<u64>,
}

fn mean<'a>(vectors: impl Iterator<Item = &'a [f64]>) -> Vec<f64> {
    let vectors: Vec<&[f64]> = vectors.collect();
    let sum = |place: usize| vectors.iter().map(|vector| vector[place]).sum::<f64>();
    (0..vectors[0].len()).map(|place| sum(place) / vectors.len() as f64).collect()
}

impl Method for OwnMinimisers {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let mut minimise = |keep| {
            let mut ask = Ask::new(Phase::Train, vec![], Gather::Each);
            ask.order(Recipients::All, Minimise { ridge: 0.0, keep });
            room.ask(&ask)
        };
        let (sent, kept) = (minimise(false)?, minimise(true)?);
        let clients = self.clusters.each().len() as u32;
        let own = |client: u32| sent.orders[0].vector(client as usize);
        let of = |cluster: usize| Arc::new(mean(self.clusters.members(cluster).into_iter().map(own)));
        let global = Arc::new(mean((0..clients).map(own)));
        self.models = (0..self.clusters.clusters()).map(of).chain([global.clone()]).collect();
        self.global = Some(global);
        self.stamps = vec![kept.stamp; clients as usize];
        Ok(Progress { loss: None, switched: None, sizes: Vec::new(), finished: true })
    }

    fn planned_rounds(&self) -> usize {
        1
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            models: self.models.clone(),
            clustered: true,
            clusters_given: true,
            global: self.global.clone(),
            serving: Serving::Own { stamps: self.stamps.clone(), clusters: Some(self.clusters.clone()) },
            ..Outcome::default()
        }
    }
}

const EXPERIMENT: &str = "
[data]
source = \"hierarchical-linear\"
clients = 5
true_clusters = 2
samples = 12
test_samples = 6
dimension = 2
unseen_clients = 2
[model]
kind = \"linear\"
intercept = false
[[method]]
name = \"local\"
solve = \"exact\"
";

/// The experiment with [`OWN_MINIMISERS`] behind its own method.
fn experiment(text: &str, groups: &str) -> Experiment {
    let mut experiment = Experiment::parse("test", text, &[]).unwrap();
    let given = toml::Table::from_iter([("groups".to_string(), groups.into())]);
    let settings = Settings::check("method", OWN_MINIMISERS.settings, given, &mut Vec::new());
    experiment.methods.push(MethodEntry { label: "own".into(), kind: &OWN_MINIMISERS, settings });
    experiment
}

fn population(experiment: &Experiment) -> (Population, Box<dyn Model>) {
    let population = (experiment.source.build)(&experiment.data, 0).unwrap();
    let model = experiment.model_kind.make(&experiment.model, population.shape).unwrap();
    (population, model)
}

/// All clients' training rows in one.
fn pooled(population: &Population) -> Shard {
    let (mut all, mut targets) = (Vec::new(), Vec::new());
    for client in &population.clients {
        let Features::F64 { columns, values } = &**client.train.features() else { panic!() };
        all.extend(&values[..client.train.len() * columns]);
        targets.extend(client.train.values().unwrap());
    }
    Shard::new(Features::F64 { columns: population.shape.columns, values: all }, Targets::Values(targets)).unwrap()
}

fn metric_of(model: &dyn Model, params: &[f64], client: &Client) -> f64 {
    model.worker(&[params]).score(0, &client.test).loss / client.test.len() as f64
}

fn close(found: Option<f64>, wanted: f64) {
    let found = found.expect("a value");
    assert!((found - wanted).abs() <= 1e-8 * (1.0 + wanted.abs()), "{found}, want {wanted}");
}

fn of<'a>(record: &'a Record, label: &str) -> Vec<&'a ClientRecord> {
    record.clients.iter().filter(|client| client.label == label).collect()
}

#[test]
fn personal_models_are_scored_filed_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("run");
    let experiment = experiment(EXPERIMENT, "auto");
    let options = Options { folder: Some(place.clone()), ..Options::default() };
    let record = run(&experiment, &options, &mut Unwatched).unwrap();
    let (population, model) = population(&experiment);
    let own: Vec<Vec<f64>> =
        population.clients.iter().map(|c| model.want_convex().unwrap().minimise(&c.train, 0.0).unwrap()).collect();
    let cluster = [mean(own[..3].iter().map(Vec::as_slice)), mean(own[3..].iter().map(Vec::as_slice))];
    let global = mean(own.iter().map(Vec::as_slice));
    let single = model.want_convex().unwrap().minimise(&pooled(&population), 0.0).unwrap();

    let mut no_worse = 0;
    for (place, (found, client)) in of(&record, "own").into_iter().zip(&population.clients).enumerate() {
        let truth = client.truth.unwrap();
        assert_eq!((found.cluster, found.true_cluster, found.margin), (Some(truth), Some(truth), None));
        let (alone, one) = (metric_of(&*model, &own[place], client), metric_of(&*model, &single, client));
        close(found.metric, alone);
        close(found.metric_local, alone);
        close(found.metric_global, one);
        close(found.model_norm, distance(&own[place], &[0.0, 0.0]));
        close(found.distance_to_cluster, distance(&own[place], &cluster[truth]));
        close(found.distance_to_global, distance(&own[place], &global));
        no_worse += usize::from(alone <= one);
    }
    let repeat = &record.summary.methods[1].repeats[0];
    let extra = |name: &str| repeat.extra[name].as_f64();
    let metric = repeat.metric.as_ref().unwrap();
    close(extra("metric_local_mean"), metric.mean);
    assert_eq!((extra("no_worse_than_local"), extra("no_worse_than_global")), (Some(1.0), Some(no_worse as f64 / 5.0)));
    let errors: Vec<f64> = own.iter().zip(&population.client_parameters).map(|(own, it)| distance(own, it)).collect();
    close(extra("personal_error"), errors.iter().sum::<f64>() / 5.0);
    close(extra("personal_error_max"), errors.iter().copied().fold(0.0, f64::max));

    // It was told the clusters, so they are not compared with the truth.
    assert_eq!((repeat.misclustering, repeat.ari, repeat.clusters), (None, None, Some(2)));
    assert!(matches!(metric.per_cluster[..], [Some(_), Some(_), None]));
    assert_eq!(repeat.notes, ["cluster 2 is empty"]);
    assert_eq!(repeat.unseen.as_ref().unwrap().per_cluster.len(), 3);
    // Comparing costs nothing: five models and ten losses went up, nothing went down.
    assert_eq!((repeat.models_up, repeat.models_down, repeat.bytes_down), (5, 0, 0));
    assert_eq!(repeat.bytes_up, 5 * 16 + 10 * 8);

    let read = |name: &str| modelfile::read(&place.join(format!("models/own/0/{name}.safetensors")), model.layout());
    assert_eq!(read("client-3").unwrap(), own[3]);
    close(Some(distance(&read("cluster-1").unwrap(), &cluster[1])), 0.0);
    close(Some(distance(&read("global").unwrap(), &global)), 0.0);
    // A method without clusters has errors, and no columns of its own.
    let local = &record.summary.methods[0].repeats[0];
    close(local.extra["personal_error"].as_f64(), errors.iter().sum::<f64>() / 5.0);
    assert_eq!(local.extra.get("no_worse_than_local"), None);
    assert!(of(&record, "local").iter().all(|client| client.model_norm.is_none() && client.metric_local.is_none()));
}

#[test]
fn a_cluster_of_one_client_is_named() {
    let text = EXPERIMENT.replace("clients = 5", "clients = 3").replace("samples = 12", "samples = 1");
    let record = run(&experiment(&text, "auto"), &Options::default(), &mut Unwatched).unwrap();
    let repeat = &record.summary.methods[1].repeats[0];
    assert_eq!(repeat.notes, ["cluster 1 has one client, 2", "cluster 2 is empty"]);
    assert_eq!(of(&record, "own")[2].distance_to_cluster, Some(0.0));
}

#[test]
fn clients_alone_are_scored_with_their_own_minimiser() {
    let source = source("hierarchical-logistic").unwrap();
    let text = "clients = 30\nsamples = 30\nfewest_samples = 3";
    let settings = Settings::check("data", source.settings, toml::from_str(text).unwrap(), &mut Vec::new());
    let population = (source.build)(&settings, 1).unwrap();
    let kind = models::kind("logistic").unwrap();
    let settings = Settings::check("model", kind.settings, toml::from_str("intercept = false").unwrap(), &mut vec![]);
    let blueprint = Blueprint { kind, settings, shape: population.shape };
    let model = blueprint.build().unwrap();
    let mut local = LocalFederation::new(population.clients.clone(), threads(2).unwrap());
    let line = Loopback::among(&population.clients, population.shape, 2);
    let data = DataOrder { source: "linear".into(), settings: String::new(), seed: 1 };
    let (mut remote, _) = RemoteFederation::meet(&line, data, false, false).unwrap();
    local.equip(&model, &blueprint).unwrap();
    remote.equip(&model, &blueprint).unwrap();
    let mut ask = Ask::new(Phase::Evaluate, vec![], Gather::Each);
    let order = ask.order(Recipients::All, Evaluate { with: Subject::Alone, assign_on: Split::Train, compare: false });
    let found = local.ask(&ask).unwrap();
    assert_eq!(found.orders, remote.ask(&ask).unwrap().orders);
    let mut separated = 0;
    for (client, (_, told)) in population.clients.iter().zip(found.of(order).each()) {
        let params = model.want_convex().unwrap().minimise(&client.train, 0.0).unwrap();
        let mut worker = model.worker(&[&params]);
        let wanted: Score = worker.score(0, &client.test);
        assert_eq!(told.score, wanted);
        separated += usize::from(worker.score(0, &client.train).hits == Some(client.train.len() as u32));
    }
    assert!((5..25).contains(&separated), "both kinds of clients are wanted, {separated} of 30 separate");

    // The one model leaves no slope in the pooled loss.
    let single = evaluate::single_model(&mut local, &*model).unwrap().unwrap();
    let gather = Gather::Sum { by: kinfolk::federation::By::All, weight: kinfolk::aggregate::Weight::Rows };
    let mut ask = Ask::new(Phase::Evaluate, vec![single], gather);
    ask.order(Recipients::All, Gradient { of: 0, sample: kinfolk::training::Sample::FULL });
    let slope = local.ask(&ask).unwrap().orders[0].sums[0].total.clone();
    assert!(slope.iter().all(|slope| slope.abs() < 1e-6), "{slope:?}");
    assert_eq!(local.meter().total(), Default::default());
}

const AFTER_OTHERS: &str = "
[[method]]
name = \"oracle\"
rounds = 1
[[method]]
name = \"fedavg\"
step = 1e9
";

fn last_clusters(record: &Record) -> Vec<usize> {
    of(record, "own").iter().map(|client| client.cluster.unwrap()).collect()
}

#[test]
fn groups_come_from_the_column_the_truth_or_another_method() {
    let text = format!("{EXPERIMENT}{AFTER_OTHERS}");
    let result = |groups: &str| run(&experiment(&text, groups), &Options::default(), &mut Unwatched).unwrap();
    for groups in ["auto", "column", "truth", "oracle"] {
        assert_eq!(last_clusters(&result(groups)), [0, 0, 0, 1, 1], "{groups}");
    }
    assert_eq!(last_clusters(&result("one")), [0; 5]);
    for (groups, reason) in [
        ("fedavg", "its groups come from method fedavg, which diverged"),
        (
            "local",
            "its groups come from method local, which puts no client into a cluster\n  hint: name a method that finds \
             clusters",
        ),
    ] {
        let record = result(groups);
        let status: Vec<&str> = record.summary.methods.iter().map(|method| method.status.as_str()).collect();
        assert_eq!(status, ["done", "done", "diverged", "failed"]);
        let last = &record.summary.methods[3].repeats[0];
        assert_eq!((last.reason.as_deref(), last.rounds), (Some(reason), 0));
    }
}

#[test]
fn groups_that_are_not_there_are_refused_before_any_work() {
    let text = EXPERIMENT.replace("hierarchical-linear", "linear");
    let refused = |text: &str, groups: &str| {
        run(&experiment(text, groups), &Options::default(), &mut Unwatched).unwrap_err().to_string()
    };
    let wanted = "method.own.groups: the data names no groups\n  hint: set data.group for a table, or groups = \
        \"truth\", \"one\", or the label of a method above";
    assert_eq!((refused(&text, "auto"), refused(&text, "column")), (wanted.into(), wanted.into()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    std::fs::write(&path, "c,y,x\na,1.5,1\na,2.5,2\nb,1.5,3\nb,2.5,5\n").unwrap();
    let table = format!(
        "[data]\nsource = \"table\"\npath = '{}'\nclient = \"c\"\ntarget = \"y\"\n[model]\nkind = \
         \"linear\"\n[[method]]\nname = \"local\"",
        path.display()
    );
    assert!(refused(&table, "truth").starts_with("method.own.groups: the data has no true clusters"));
}

/// Raises a flag when the first method is finished.
struct StopAfterFirst(Arc<AtomicBool>);

impl Watch for StopAfterFirst {
    fn round(&mut self, _: &RoundRecord) {}
    fn finished(&mut self, _: &RepeatSummary, _: &str) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn groups_are_still_known_after_a_resume() {
    let text = EXPERIMENT.replace("\"local\"\nsolve = \"exact\"", "\"oracle\"\nrounds = 1");
    let experiment = experiment(&text, "oracle");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut options = Options { folder: Some(path), ..Options::default() };
    let stopped = run(&experiment, &options, &mut StopAfterFirst(options.stop.clone())).unwrap_err();
    assert_eq!(stopped.kind(), kinfolk::ErrorKind::Stopped);
    options.stop = Arc::new(AtomicBool::new(false));
    options.resume = true;
    let resumed = run(&experiment, &options, &mut Unwatched).unwrap();
    assert_eq!(last_clusters(&resumed), [0, 0, 0, 1, 1]);
}

const STEPS_TO_THE_MINIMISER: &str = "
[data]
source = \"hierarchical-linear\"
clients = 5
true_clusters = 2
samples = 12
dimension = 2
[model]
kind = \"linear\"
intercept = false
[[method]]
name = \"hierarchical\"
gamma = 1
lambda = 2
[[method]]
name = \"l2gd\"
gamma = 1
lambda = 2
iterations = 300
[[method]]
name = \"l2gd\"
label = \"otherwise\"
gamma = 2
lambda = 2
iterations = 30
[[method]]
name = \"al2sgd+\"
gamma = 1
lambda = 2
";

#[test]
fn steps_say_how_far_they_are_from_the_minimiser_found_before() {
    let experiment = Experiment::parse("test", STEPS_TO_THE_MINIMISER, &[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("run");
    let options = Options { folder: Some(place.clone()), ..Options::default() };
    let record = run(&experiment, &options, &mut Unwatched).unwrap();
    let (_, model) = population(&experiment);
    let read = |label: &str, client: usize| {
        modelfile::read(&place.join(format!("models/{label}/0/client-{client}.safetensors")), model.layout()).unwrap()
    };
    let squares = |label: Option<&str>| -> f64 {
        let other = |client| label.map_or(vec![0.0; 2], |label| read(label, client));
        (0..5).map(|client| distance(&read("hierarchical", client), &other(client)).powi(2)).sum()
    };
    let said = |record: &Record, method: usize| {
        record.summary.methods[method].repeats[0].extra.get("distance_to_exact").and_then(|it| it.as_f64())
    };
    close(said(&record, 1), (squares(Some("l2gd")) / squares(None)).sqrt());
    assert!(said(&record, 1).unwrap() > 1e-4 && said(&record, 3).unwrap() < 1e-8, "{:?}", said(&record, 3));
    assert_eq!((said(&record, 0), said(&record, 2)), (None, None));
    let in_rounds: Vec<f64> =
        record.rounds.iter().filter(|round| round.label == "al2sgd+").filter_map(|it| it.distance_to_exact).collect();
    assert!(in_rounds.len() > 1 && in_rounds[0] > 0.01);
    assert_eq!(in_rounds.last().copied(), said(&record, 3));

    // A minimiser found before the run was broken off is still known.
    let mut options = Options { folder: Some(folder.path().join("broken")), ..Options::default() };
    run(&experiment, &options, &mut StopAfterFirst(options.stop.clone())).unwrap_err();
    options.stop = Arc::new(AtomicBool::new(false));
    options.resume = true;
    assert_eq!(said(&run(&experiment, &options, &mut Unwatched).unwrap(), 3), said(&record, 3));
}
