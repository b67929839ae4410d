//! The library as a Rust program uses it: experiments in code, and records with the models in them.

use kinfolk::data::{DataShape, ImageSet, ImageSettings, LinearSettings as LinearData, Targets, options::Sizes};
use kinfolk::experiment::{Draft, Registry, Top};
use kinfolk::methods::options::{Schedule, SolveBy, Solving, Training};
use kinfolk::methods::prelude::*;
use kinfolk::methods::{FedAvgSettings, IfcaSettings, LocalSettings, OdclSettings, SrFcaSettings};
use kinfolk::models::{Layout, LinearSettings, LogisticSettings, MlpSettings, OwnNetwork, SoftmaxSettings};
use kinfolk::rng::Rng;
use kinfolk::run::{Options, Unwatched, run};
use kinfolk::settings::Settings;
use kinfolk::{Client, Experiment, Shard};
use std::time::Duration;

const ROWS: usize = 24;

/// A client of ids a to h whose rows follow the line of its kind; the first rows are for training.
fn client(number: u8) -> Client {
    let slope = if number.is_multiple_of(2) { 1.0 } else { -2.0 };
    let x: Vec<f64> = (0..ROWS).map(|row| (row * 7 % ROWS) as f64 / 12.0 - 1.0).collect();
    let y: Vec<f64> = x.iter().map(|x| slope * x + 0.5).collect();
    let rows = Shard::of_numbers(1, x, y).unwrap();
    let id = char::from(b'a' + number).to_string();
    Client { test: rows.part(1, 2), truth: Some(usize::from(number % 2)), ..Client::new(id, rows.part(0, 2)) }
}

fn on_lines() -> Draft {
    Experiment::on((0..8).map(client).collect::<Vec<_>>())
}

fn ifca() -> IfcaSettings {
    IfcaSettings { clusters: 2.into(), restarts: 5, schedule: Schedule::rounds(60), ..IfcaSettings::default() }
}

#[test]
fn an_experiment_in_code_is_the_one_in_a_file() {
    let sizes = Sizes { clients: 6, ..Sizes::default() };
    let code = Experiment::on(LinearData { sizes, dimension: 3, ..LinearData::default() })
        .model(LinearSettings { intercept: false, ..LinearSettings::default() })
        .method(ifca())
        .method(IfcaSettings { clusters: 3.into(), step: 0.25.into(), ..IfcaSettings::default() })
        .method_called("steps", LocalSettings { training: Training::rounds(7), ..LocalSettings::default() })
        .method(OdclSettings::default())
        .method(SrFcaSettings::default())
        .with(Top { name: "same".into(), repeat: 2, ..Top::default() })
        .check()
        .unwrap();
    let file = "name = \"same\"\nrepeat = 2\ndata = { source = \"linear\", clients = 6, dimension = 3 }\n\
        model = { kind = \"linear\", intercept = false }\n\
        [[method]]\nname = \"ifca\"\nclusters = 2\nrestarts = 5\nrounds = 60\n\
        [[method]]\nname = \"ifca\"\nclusters = 3\nstep = 0.25\n\
        [[method]]\nlabel = \"steps\"\nname = \"local\"\nrounds = 7\n\
        [[method]]\nname = \"odcl\"\n[[method]]\nname = \"sr-fca\"\n";
    assert_eq!(code.to_toml(), Experiment::parse("file", file, &[]).unwrap().to_toml());
}

#[test]
fn what_must_be_given_is_asked_for_in_code_too() {
    let fault = |draft: Draft| draft.check().err().unwrap().to_string();
    let said = fault(on_lines().model(LinearSettings::default()).method(IfcaSettings::default()));
    assert!(said.starts_with("method.ifca.clusters: got 0, want"), "{said}");
    let said = fault(on_lines().method(ifca()));
    assert!(said.starts_with("model.kind: missing, want one of auto, linear, "), "{said}");
    let said = fault(on_lines().model(LinearSettings::default()));
    assert!(said.starts_with("experiment: no [[method]]"), "{said}");
    let table = kinfolk::data::TableSettings::default();
    let said = fault(Experiment::on(table).model(LinearSettings::default()).method(ifca()));
    assert!(said.contains("data.path: missing") && said.contains("data.client: missing"), "{said}");
}

#[test]
fn a_record_has_the_models_of_every_method_and_they_predict() {
    let record = on_lines()
        .model(LinearSettings::default())
        .method(ifca())
        .method(FedAvgSettings { training: Training::rounds(60), ..FedAvgSettings::default() })
        .method(LocalSettings { training: Training::rounds(60), ..LocalSettings::default() })
        .method(OdclSettings::default())
        .run()
        .unwrap();
    assert_eq!(record.models.len(), 4);
    for (label, expected) in [("ifca", [0.75, 0.0]), ("local", [0.75, 0.0]), ("odcl", [0.75, 0.0])] {
        let found = record.models_of(label).unwrap();
        for (id, expected) in ["a", "b"].into_iter().zip(expected) {
            let said = found.of_client(id).unwrap().predict(&[0.25, 0.25]).unwrap();
            assert!(said.len() == 2 && said.iter().all(|said| (said - expected).abs() < 1e-3), "{label} {id} {said:?}");
        }
    }
    let ifca = record.models_of("ifca").unwrap();
    assert_eq!((ifca.models.len(), ifca.own.len(), ifca.assignment.clusters()), (2, 0, 2));
    let first = ifca.of_client("a").unwrap();
    let clusters: Vec<Option<usize>> = record.clients[..8].iter().map(|client| client.cluster).collect();
    assert_eq!(ifca.assignment.each(), clusters);
    assert_eq!(ifca.of_cluster(clusters[0].unwrap()).unwrap().parameters, first.parameters);
    assert_eq!(first.layout().len(), first.parameters.len());
    let global = record.models_of("fedavg").unwrap();
    assert_eq!(global.of_client("a").unwrap().parameters, global.of_cluster(0).unwrap().parameters);
    assert_eq!(record.models_of("local").unwrap().own.len(), 8);
    let refused = |said: Error| said.to_string();
    assert_eq!(refused(ifca.of_client("z").err().unwrap()), "client z: did not take part");
    assert_eq!(refused(ifca.of_cluster(2).err().unwrap()), "cluster 2: method ifca found 2 models");
    assert_eq!(
        refused(record.models_of("ifcb").unwrap_err()).lines().next(),
        Some("label: got \"ifcb\", want one of ifca, fedavg, local, odcl")
    );
    assert_eq!(
        refused(
            first
                .predict(&[])
                .map(drop)
                .and_then(|()| Shard::of_numbers(2, vec![1.0], vec![1.0]).map(drop))
                .unwrap_err()
        ),
        "got 1 numbers, want rows of 2"
    );
}

#[test]
fn classes_are_predicted_as_they_score() {
    let rows: Vec<f64> = (0..60).map(|row| f64::from(row % 20) / 10.0 - 1.0).collect();
    let classes: Vec<u32> = rows.iter().map(|x| u32::from(*x > 0.05)).collect();
    let client = |id: &str| {
        let shard = Shard::of_numbers(1, rows.clone(), classes.clone()).unwrap();
        Client { test: shard.clone(), ..Client::new(id, shard) }
    };
    let draft = || Experiment::on(vec![client("a"), client("b")]);
    let fedavg = || FedAvgSettings {
        training: Training { step: 0.5.into(), ..Training::rounds(40) },
        ..FedAvgSettings::default()
    };
    let accuracies = [
        draft().model(LogisticSettings::default()).method(fedavg()).run(),
        draft().model(SoftmaxSettings::default()).method(fedavg()).run(),
        draft().model(MlpSettings { hidden: vec![4], ..MlpSettings::default() }).method(fedavg()).run(),
    ];
    for record in accuracies {
        let record = record.unwrap();
        let model = record.models_of("fedavg").unwrap().of_client("b").unwrap();
        let unlabelled = Shard::of_numbers(1, rows.clone(), Targets::None).unwrap();
        let said = model.predict_rows(&unlabelled).unwrap();
        assert_eq!(said, model.predict(&rows).unwrap());
        let right = said.iter().zip(&classes).filter(|(said, class)| **said == f64::from(**class)).count();
        let accuracy = record.summary.methods[0].repeats[0].metric.as_ref().unwrap().mean;
        assert_eq!(right as f64 / rows.len() as f64, accuracy);
        assert!(accuracy > 0.9);
    }
}

#[test]
fn models_are_kept_only_where_they_are_wanted() {
    let experiment = on_lines().model(LinearSettings::default()).method(ifca()).check().unwrap();
    let options = Options { keep_models: false, ..Options::default() };
    let record = run(&experiment, &options, &mut Unwatched).unwrap();
    assert!(record.models.is_empty());
    let said = record.models_of("ifca").unwrap_err().to_string();
    assert_eq!(said, "method ifca: no models; the run did not keep its models");
}

/// Linear regression as a user would write it; the library's own model is what it must agree with.
struct Line(usize);

impl OwnNetwork for Line {
    const NAME: &'static str = "line";

    fn build(_: &Settings, shape: DataShape) -> Result<Self> {
        Ok(Self(shape.columns))
    }

    fn layout(&self) -> Layout {
        Layout::of([("weight", &[1, self.0]), ("bias", &[1])])
    }

    fn initialise(&self, _: &mut Rng) -> Vec<f64> {
        vec![0.0; self.0 + 1]
    }

    fn forward(&self, parameters: &[f64], rows: &[f64], memory: &mut Vec<f64>, outputs: &mut [f64]) {
        *memory = rows.to_vec();
        for (row, output) in rows.chunks(self.0).zip(outputs) {
            *output = row.iter().zip(parameters).map(|(x, weight)| x * weight).sum::<f64>() + parameters[self.0];
        }
    }

    fn backward(&self, _: &[f64], _: &[f64], memory: &[f64], slopes: &[f64], gradient: &mut [f64]) {
        for (row, slope) in memory.chunks(self.0).zip(slopes) {
            row.iter().chain(&[1.0]).zip(&mut *gradient).for_each(|(x, gradient)| *gradient += slope * x);
        }
    }
}

/// Every way of training: full batches, batches in epochs with momentum, Adam, pulls, choices, clusters from the bottom up.
/// All begin at 0, where two models would tie, so FedSoft, which pulls, has one.
const WAYS: &str = "
evaluate_every = 5
data = { source = \"linear\", clients = 10, samples = 40, dimension = 3 }
[[method]]
name = \"fedavg\"
rounds = 12
step = 0.05
[[method]]
name = \"fedavg\"
label = \"momentum\"
rounds = 12
step = 0.02
momentum = 0.5
weight_decay = 0.01
batch = 7
local_epochs = 2
[[method]]
name = \"fedavg\"
label = \"adam\"
optimiser = \"adam\"
rounds = 12
batch = 16
step = 0.05
[[method]]
name = \"ifca\"
clusters = 2
start = \"farthest\"
rounds = 12
step = 0.05
[[method]]
name = \"sr-fca\"
rounds = 6
one_shot_steps = 40
step = 0.05
lambda = 0.5
[[method]]
name = \"local\"
rounds = 12
step = 0.05
[[method]]
name = \"fedsoft\"
clusters = 1
rounds = 12
step = 0.05
";

#[test]
fn a_network_of_ones_own_is_trained_like_those_of_the_library() {
    let of = |kind: &str, registry: Registry| {
        let text = format!("model = {{ kind = {kind} }}\n{WAYS}");
        let experiment = registry.parse("ways.toml", &text, &[]).unwrap();
        run(&experiment, &Options { threads: 2, ..Options::default() }, &mut Unwatched).unwrap()
    };
    let own = of("\"line\"", Registry::default().with_model(Line::MODEL));
    let usual = of("\"linear\", initial = \"zero\"", Registry::default());
    assert_eq!(
        own.models.len(),
        7,
        "{:?}",
        own.summary.methods.iter().map(|it| &it.repeats[0].reason).collect::<Vec<_>>()
    );
    for (own, usual) in own.models.iter().zip(&usual.models) {
        assert_eq!((&own.label, own.assignment.each()), (&usual.label, usual.assignment.each()));
        let each = own.models.iter().chain(own.own.values()).zip(usual.models.iter().chain(usual.own.values()));
        let each: Vec<_> = each.collect();
        assert!(!each.is_empty());
        for (own_model, usual) in each {
            let apart = own_model.iter().zip(usual.iter()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(apart < 1e-9, "{}: {apart}", own.label);
        }
    }
    for (own, usual) in own.rounds.iter().zip(&usual.rounds) {
        assert_eq!((&own.label, own.round, &own.phase), (&usual.label, usual.round, &usual.phase));
        assert_eq!((own.bytes_down, own.bytes_up, &own.sizes), (usual.bytes_down, usual.bytes_up, &usual.sizes));
    }
}

/// One weight too few.
struct Short;

impl OwnNetwork for Short {
    const NAME: &'static str = "short";

    fn build(_: &Settings, _: DataShape) -> Result<Self> {
        Ok(Self)
    }

    fn layout(&self) -> Layout {
        Layout::of([("weight", &[2])])
    }

    fn initialise(&self, _: &mut Rng) -> Vec<f64> {
        vec![0.0]
    }

    fn forward(&self, _: &[f64], _: &[f64], _: &mut Vec<f64>, _: &mut [f64]) {}

    fn backward(&self, _: &[f64], _: &[f64], _: &[f64], _: &[f64], _: &mut [f64]) {}
}

#[test]
fn a_network_that_contradicts_itself_is_refused() {
    let said = on_lines().model(Short::MODEL).method(ifca()).run().unwrap_err().to_string();
    assert_eq!(said, "model: short begins with 1 numbers, its layout has 2");
    let said = on_lines()
        .model(Line::MODEL)
        .method(OdclSettings {
            solving: Solving { solve: SolveBy::Exact, ..Solving::default() },
            ..OdclSettings::default()
        })
        .run()
        .unwrap_err();
    assert!(said.to_string().contains("exact"), "{said}");
}

/// FedAvg's round, from outside; it keeps no checkpoint.
struct Mean {
    model: Params,
    rounds: usize,
}

impl Method for Mean {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let mut ask =
            Ask::new(Phase::Train, vec![self.model.clone()], Gather::Sum { by: By::All, weight: Weight::Rows });
        let order = ask.order(Recipients::All, Train::from_model(0, Plan::steps(10, 0.05)));
        let answers = room.ask(&ask)?;
        self.model = answers.of(order).sums[0].mean().map_or_else(|| self.model.clone(), Params::new);
        Ok(Progress::of(room.check_loss(&answers.of(order).losses())?, room.round() + 1 == self.rounds))
    }

    fn outcome(&self) -> Outcome {
        Outcome::of_model(self.model.clone())
    }
}

static MEAN: MethodKind =
    MethodKind::own("mean", |setup| Ok(Box::new(Mean { model: setup.common_start()?, rounds: 12 })));

kinfolk::settings! {
    /// The same, for as many rounds as one likes.
    struct MeanSettings {
        /// rounds to run
        rounds: usize [1..=1000] = 20,
    }
}

impl MethodSettings for MeanSettings {
    const NAME: &str = "long-mean";
    const SUMMARY: &str = "the mean of all models";

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        Ok(Box::new(Mean { model: setup.common_start()?, rounds: self.rounds }))
    }
}

#[test]
fn a_method_of_ones_own_has_settings_like_any_other() {
    let draft = |rounds| on_lines().model(LinearSettings::default()).method(MeanSettings { rounds });
    assert_eq!(draft(3).run().unwrap().summary.methods[0].repeats[0].rounds, 3);
    let refused = draft(0).run().unwrap_err().to_string();
    assert_eq!(refused, "method.long-mean.rounds: got 0, want a whole number from 1 to 1000");
    let registry = Registry::default().with_method(MeanSettings::METHOD);
    let text = "data.source = \"linear\"
model.kind = \"linear\"
[[method]]
name = \"long-mean\"
ruonds = 3";
    let refused = registry.parse("file", text, &[]).err().unwrap().to_string();
    assert_eq!(
        refused,
        "method.long-mean: unknown key `ruonds`
  hint: did you mean `rounds`?"
    );
}

#[test]
fn a_method_of_ones_own_runs_beside_those_of_the_library() {
    let text = "data = { source = \"linear\", clients = 6, dimension = 3 }\nmodel = { kind = \"linear\", initial = \"zero\" }\n\
        [[method]]\nname = \"mean\"\n[[method]]\nname = \"fedavg\"\nrounds = 12\nstep = 0.05\n";
    let unknown = Experiment::parse("file", text, &[]).err().unwrap().to_string();
    assert!(unknown.starts_with("method.mean.name: got \"mean\", want one of auto, ifca, "), "{unknown}");
    let experiment = Registry::default().with_method(&MEAN).parse("file", text, &[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options =
        Options { folder: Some(folder.path().join("run")), checkpoint_every: Duration::ZERO, ..Options::default() };
    let record = run(&experiment, &options, &mut Unwatched).unwrap();
    assert_eq!(record.models[0].models, record.models[1].models);
    let numbers = |label: &str| -> Vec<(usize, Option<f64>, u64)> {
        let rounds = record.rounds.iter().filter(|round| round.label == label);
        rounds.map(|round| (round.round, round.loss, round.bytes_up)).collect()
    };
    assert_eq!(numbers("mean"), numbers("fedavg"));
    assert!(folder.path().join("run/models/mean/0/global.safetensors").exists());
}

#[test]
fn images_are_dealt_out_in_code_too() {
    let settings = ImageSettings { clients: 8, samples: 20, ..ImageSettings::default() };
    let code = Experiment::on((ImageSet::Digits, settings)).model(SoftmaxSettings::default()).method(ifca()).check();
    let file = "data = { source = \"digits\", clients = 8, samples = 20 }\nmodel.kind = \"softmax\"\n\
        [[method]]\nname = \"ifca\"\nclusters = 2\nrestarts = 5\nrounds = 60\n";
    assert_eq!(code.unwrap().to_toml(), Experiment::parse("file", file, &[]).unwrap().to_toml());
}
