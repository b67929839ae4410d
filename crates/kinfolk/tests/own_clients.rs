//! Clients that are code of the user's own, here in Rust: every method that needs no more than their verbs finds what was
//! planted, and what goes wrong inside them is told with their name.

use crate::loopback::Loopback;
use kinfolk::clustering::quality::misclustering;
use kinfolk::compute::threads;
use kinfolk::data::own::{OwnClient, OwnScore, OwnStart, Point};
use kinfolk::data::{Client, DataShape, Form, Population};
use kinfolk::evaluate;
use kinfolk::experiment::{Experiment, Override};
use kinfolk::federation::Federation;
use kinfolk::federation::engines::Engine;
use kinfolk::federation::engines::local::LocalFederation;
use kinfolk::federation::engines::remote::RemoteFederation;
use kinfolk::federation::wire::DataOrder;
use kinfolk::methods::room::{MethodLedger, MissingRule};
use kinfolk::methods::{Method, Outcome, Setup, kind};
use kinfolk::models::{self, Blueprint, Metric, Model};
use kinfolk::record::{Record, RoundRecord};
use kinfolk::rng::Key;
use kinfolk::run::venue::InProcess;
use kinfolk::run::{Options, Unwatched, Watch, run, run_at};
use kinfolk::settings::{Setting, Settings};
use kinfolk::training::{Amount, Optimiser, Plan, Sample, Split};
use kinfolk::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const WIDTH: usize = 3;

/// Loss ‖θ − centre‖², of which every step sees a little noise that depends on the plan's seed and on the steps taken so far.
#[derive(Debug, Default)]
struct Bowl {
    id: String,
    centre: [f64; WIDTH],
    noise: f64,
    taken: AtomicU64,
    stateless: bool,
    broken: Option<&'static str>,
    no_hits: bool,
    tells_loss: bool,
}

impl Bowl {
    fn fails_at(&self, verb: &str) -> Result<()> {
        match self.broken == Some(verb) {
            true => Err(Error::new(ErrorKind::Client, "out of order")),
            false => Ok(()),
        }
    }
}

impl OwnClient for Bowl {
    fn id(&self) -> &str {
        &self.id
    }

    fn rows(&self) -> usize {
        10
    }

    fn can_score(&self) -> bool {
        true
    }

    fn loss(&self, at: Point) -> Result<f64> {
        self.fails_at("loss")?;
        Ok(at.values.iter().zip(&self.centre).map(|(p, c)| (p - c).powi(2)).sum())
    }

    fn train(&self, from: Point, plan: &Plan, out: &mut [f64]) -> Result<Option<f64>> {
        self.fails_at("train")?;
        out.copy_from_slice(from.values);
        let Amount::Steps(steps) = plan.amount else { panic!("{plan:?}") };
        assert!(matches!(plan.optimiser, Optimiser::Descent { .. }) && plan.sample.seed < 1 << 32);
        for _ in 0..steps {
            let taken = self.taken.fetch_add(1, Ordering::Relaxed);
            let drawn = Key::new(plan.sample.seed).number(taken).seed() as f64 / u64::MAX as f64 - 0.5;
            for (p, c) in out.iter_mut().zip(&self.centre) {
                *p -= plan.step * 2.0 * (*p - c + self.noise * drawn);
            }
        }
        Ok(if self.tells_loss { Some(self.loss(from)?) } else { None })
    }

    fn gradient(&self, at: Point, _: &Sample, out: &mut [f64]) -> Result<Option<f64>> {
        self.fails_at("gradient")?;
        out.iter_mut().zip(at.values).zip(&self.centre).for_each(|((g, p), c)| *g = 2.0 * (p - c));
        self.loss(at).map(Some)
    }

    fn score(&self, at: Point) -> Result<OwnScore> {
        self.fails_at("score")?;
        Ok(OwnScore { rows: 4, loss: self.loss(at)?, hits: (!self.no_hits).then_some(3) })
    }

    fn save(&self) -> Result<Option<Vec<u8>>> {
        self.fails_at("save")?;
        Ok((!self.stateless).then(|| self.taken.load(Ordering::Relaxed).to_le_bytes().to_vec()))
    }

    fn load(&self, state: &[u8]) -> Result<()> {
        self.fails_at("load")?;
        let bytes = state.try_into().map_err(|_| Error::new(ErrorKind::Client, "8 bytes wanted"))?;
        self.taken.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        Ok(())
    }
}

/// Clients around two centres, every other one around the second.
fn bowls(change: impl Fn(usize, &mut Bowl)) -> Vec<Client> {
    let client = |place: usize| {
        let side = if place.is_multiple_of(2) { 2.0 } else { -2.0 };
        let centre = [side, side + 0.05 * place as f64, 1.0];
        let mut bowl = Bowl { id: format!("bowl-{place:02}"), centre, noise: 0.1, ..Bowl::default() };
        change(place, &mut bowl);
        Client::own(Box::new(bowl), None, Some(place % 2)).unwrap()
    };
    (0..12).map(client).collect()
}

fn sound() -> Vec<Client> {
    bowls(|_, _| {})
}

fn settings(declared: &[Setting], text: &str) -> Settings {
    let mut faults = Vec::new();
    let settings = Settings::check("method.it", declared, toml::from_str(text).unwrap(), &mut faults);
    assert!(faults.is_empty(), "{faults:?}");
    settings
}

const SHAPE: DataShape = DataShape { columns: 0, classes: 0, form: Form::Own };

fn blueprint(precision: &str) -> Blueprint {
    let kind = models::kind("own").unwrap();
    let text = format!("parameters = {WIDTH}\nprecision = \"{precision}\"");
    Blueprint { kind, settings: settings(kind.settings, &text), shape: SHAPE }
}

fn model_of(precision: &str, start: OwnStart) -> Result<Arc<dyn Model>> {
    blueprint(precision).build_from(Some(start))
}

fn drawn() -> OwnStart {
    OwnStart::Drawn(Arc::new(|seed| {
        assert!(seed < 1 << 32);
        let number = |place: usize| Key::new(seed).number(place as u64).seed() as f64 / u64::MAX as f64 * 4.0 - 2.0;
        Ok((0..WIDTH).map(number).collect())
    }))
}

fn model(precision: &str) -> Arc<dyn Model> {
    model_of(precision, drawn()).unwrap()
}

fn built(name: &str, text: &str, model: &Arc<dyn Model>) -> Result<Box<dyn Method>> {
    let kind = kind(name).unwrap();
    (kind.build)(Setup {
        place: "method.it".into(),
        settings: &settings(kind.settings, text),
        model: model.clone(),
        rows: &[10; 12],
        curvature: None,
        truth: None,
        planted: None,
        groups: None,
        over: None,
        facts: Default::default(),
        seed: 3,
        key: Key::new(3).word("it"),
    })
}

fn local(clients: Vec<Client>, model: &Arc<dyn Model>, workers: usize) -> LocalFederation {
    let mut federation = LocalFederation::new(clients, threads(workers).unwrap());
    federation.set_model(model.clone()).unwrap();
    federation
}

/// The same clients on three machines.
fn remote(clients: &[Client], model: &Arc<dyn Model>, precision: &str) -> RemoteFederation {
    let line = Loopback::among(clients, SHAPE, 3);
    let data = DataOrder { source: "own".into(), settings: String::new(), seed: 0 };
    let (mut federation, _) = RemoteFederation::meet(&line, data, false, false).unwrap();
    federation.equip(model, &blueprint(precision)).unwrap();
    federation
}

fn play(method: &mut dyn Method, federation: &mut dyn Federation, rounds: usize) -> Result<Outcome> {
    play_on(&mut MethodLedger::new(MissingRule::Skip), method, federation, rounds)
}

fn play_on(
    ledger: &mut MethodLedger,
    method: &mut dyn Method,
    federation: &mut dyn Federation,
    rounds: usize,
) -> Result<Outcome> {
    for _ in 0..rounds {
        if ledger.run_round(&mut *method, federation)?.finished {
            break;
        }
    }
    Ok(method.outcome())
}

const METHODS: [(&str, &str); 5] = [
    ("ifca", "clusters = 2\nrounds = 6\nstep = 0.1"),
    ("ifca", "clusters = 2\nrounds = 40\nstep = 0.2\naveraging = \"gradients\""),
    ("odcl", "steps = 40\nstep = 0.1"),
    ("sr-fca", "rounds = 3\nrefinements = 1\none_shot_steps = 40\nstep = 0.1"),
    ("fedavg", "rounds = 6\nstep = 0.1"),
];

#[test]
fn planted_clusters_are_found() {
    let truth: Vec<usize> = (0..12).map(|place| place % 2).collect();
    for (name, text) in METHODS {
        let model = model("f64");
        let mut federation = local(sound(), &model, 2);
        let outcome = play(&mut *built(name, text, &model).unwrap(), &mut federation, 100).unwrap();
        let scored = evaluate::seen(&outcome, &mut federation, Metric::Loss, Split::Train, &[], true).unwrap();
        let metric = scored.metric.unwrap();
        if name == "fedavg" {
            assert!(!outcome.clustered && metric.mean > 4.0, "{metric:?}");
            continue;
        }
        let found: Vec<usize> = scored.clients.iter().map(|served| served.cluster.unwrap()).collect();
        assert_eq!(misclustering(&found, &truth), 0.0, "{name} {text}");
        assert!(metric.mean < 0.7 && metric.name == "loss", "{name}: {metric:?}");
        let accuracy = evaluate::seen(&outcome, &mut federation, Metric::Accuracy, Split::Test, &[], true).unwrap();
        assert_eq!(accuracy.metric.unwrap().mean, 0.75);
    }
}

#[test]
fn the_same_bits_on_any_number_of_threads_and_on_other_machines() {
    for precision in ["f32", "f64"] {
        let model = model(precision);
        for (name, text) in METHODS {
            let run = |federation: &mut dyn Federation| {
                play(&mut *built(name, text, &model).unwrap(), federation, 100).unwrap()
            };
            let one = run(&mut local(sound(), &model, 1));
            let three = run(&mut local(sound(), &model, 3));
            assert_eq!((&one.models, &one.serving), (&three.models, &three.serving), "{name}");
            let single = run(&mut local(sound(), &model, 2).from_single_answers());
            let there = run(&mut remote(&sound(), &model, precision).from_single_answers());
            assert_eq!((&single.models, &single.serving), (&there.models, &there.serving), "{name}");
            let integer = run(&mut local(sound(), &model, 2).with_integer_sums());
            let there = run(&mut remote(&sound(), &model, precision));
            assert_eq!((&integer.models, &integer.serving), (&there.models, &there.serving), "{name}");
        }
    }
}

#[test]
fn a_run_goes_on_from_what_clients_saved() {
    let model = model("f64");
    for (name, text) in [METHODS[0], METHODS[4]] {
        let straight = play(&mut *built(name, text, &model).unwrap(), &mut local(sound(), &model, 2), 6).unwrap();
        let (mut method, mut federation) = (built(name, text, &model).unwrap(), local(sound(), &model, 2));
        let mut ledger = MethodLedger::new(MissingRule::Skip);
        play_on(&mut ledger, &mut *method, &mut federation, 2).unwrap();
        let (saved, state) = (method.save().unwrap().unwrap(), federation.state().unwrap().unwrap());
        let go_on = |restore: bool| {
            let (mut method, mut federation) = (built(name, text, &model).unwrap(), local(sound(), &model, 1));
            method.restore(&saved).unwrap();
            if restore {
                federation.restore(state.clone()).unwrap();
            }
            play_on(&mut ledger.clone(), &mut *method, &mut federation, 4).unwrap()
        };
        assert_eq!(straight.models, go_on(true).models);
        assert_ne!(straight.models, go_on(false).models, "the clients' state has no say");
    }
    assert!(local(bowls(|_, bowl| bowl.stateless = true), &model, 1).state().unwrap().is_none());
}

#[test]
fn a_loss_that_is_not_told_is_asked_for() {
    let model = model("f64");
    for (name, text) in METHODS {
        let progress = |tells: bool| {
            let mut federation = local(bowls(|_, bowl| bowl.tells_loss = tells), &model, 2);
            let mut method = built(name, text, &model).unwrap();
            let mut ledger = MethodLedger::new(MissingRule::Skip);
            (0..2).map(|_| ledger.run_round(&mut *method, &mut federation).unwrap().loss.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(progress(true), progress(false), "{name}");
    }
}

#[test]
fn every_method_finds_clients_as_they_were_in_the_beginning() {
    let (model, clients) = (model("f64"), sound());
    let run = || {
        let mut federation = local(clients.clone(), &model, 2);
        play(&mut *built("fedavg", METHODS[4].1, &model).unwrap(), &mut federation, 6).unwrap().models
    };
    assert_eq!(run(), run());
}

#[test]
fn failures_name_client_and_verb_and_end_the_run() {
    let model = model("f64");
    let gradients = "clusters = 2\nrounds = 6\nstep = 0.1\naveraging = \"gradients\"";
    let broken = |verb| bowls(move |place, bowl| bowl.broken = (place == 7 && verb != "load").then_some(verb));
    for (verb, text) in [("loss", METHODS[0].1), ("train", METHODS[0].1), ("gradient", gradients)] {
        let sums = local(broken(verb), &model, 3);
        let single = local(broken(verb), &model, 3).from_single_answers();
        for mut federation in [sums, single] {
            let error = play(&mut *built("ifca", text, &model).unwrap(), &mut federation, 6).unwrap_err();
            assert_eq!(error.to_string(), format!("client bowl-07: {verb}: out of order"));
            assert!(error.kind() == ErrorKind::Client && error.ends_run());
        }
        // Elsewhere it is one client less, and the others go on; what its code said stays there.
        let mut elsewhere = remote(&broken(verb), &model, "f64");
        play(&mut *built("ifca", text, &model).unwrap(), &mut elsewhere, 6).unwrap();
        let notes = elsewhere.notes().join("\n");
        assert!(notes.contains(&format!("client bowl-07: {verb}: an error of kind client")), "{notes}");
        assert!(!notes.contains("out of order") && !notes.contains("bowl-08"), "{notes}");
    }
    let mut federation = local(broken("score"), &model, 2);
    let outcome = play(&mut *built("fedavg", METHODS[4].1, &model).unwrap(), &mut federation, 6).unwrap();
    let error = evaluate::seen(&outcome, &mut federation, Metric::Loss, Split::Train, &[], true).unwrap_err();
    assert_eq!(error.to_string(), "client bowl-07: score: out of order");

    let mut federation = local(bowls(|_, bowl| bowl.no_hits = true), &model, 2);
    let error = evaluate::seen(&outcome, &mut federation, Metric::Accuracy, Split::Train, &[], true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Client);
    assert!(
        error.to_string().starts_with("client bowl-00: score: no hits, which metric = \"accuracy\" counts"),
        "{error}"
    );

    let bowl = Bowl { id: "x".into(), broken: Some("save"), ..Bowl::default() };
    let error = Client::own(Box::new(bowl), None, None).unwrap_err();
    assert_eq!(error.to_string(), "client x: save: out of order");
}

#[test]
fn what_the_clients_have_no_verb_for_is_refused() {
    let model = model("f64");
    let refused = |name: &str, text: &str| built(name, text, &model).err().unwrap();
    let resample = refused("ifca", "clusters = 2\nrounds = 2\nresample = true");
    assert_eq!(resample.kind(), ErrorKind::Unsupported);
    assert!(resample.to_string().starts_with("method.it.resample: clients of your own"), "{resample}");
    let rows = Experiment::parse("test", EXPERIMENT, &[Override::parse("method.fedavg.name=fedsoft").unwrap()]);
    let rows = rows.err().unwrap().to_string();
    assert!(rows.contains("fedsoft cannot train model own, whose clients do not show single rows"), "{rows}");
    assert!(refused("odcl", "solve = \"exact\"").to_string().contains("no exact minimiser"));
    let linear = models::kind("linear").unwrap();
    let error = linear.make(&settings(linear.settings, ""), SHAPE).err().unwrap().to_string();
    assert!(error.contains("known to the clients' own code alone"), "{error}");
    let own = models::kind("own").unwrap();
    let error = own.make(&settings(own.settings, "parameters = 3"), DataShape::numbers(2, 0)).err().unwrap();
    assert!(error.to_string().contains("own reads whatever the clients' own code holds"), "{error}");
}

#[test]
fn a_start_is_exact_where_one_is_wanted_and_nearby_where_several_are() {
    let start = vec![1.0, 2.0, 6.0];
    let model = model_of("f64", OwnStart::At(Arc::new(start.clone()))).unwrap();
    let rng = |number| Key::new(number).rng();
    assert_eq!(model.common_start(&mut rng(0)).unwrap(), start);
    let [first, second] = [0, 1].map(|number| model.initialise(&mut rng(number)).unwrap());
    assert_ne!(first, second);
    assert_eq!(first, model.initialise(&mut rng(0)).unwrap());
    // The spread of 1, 2 and 6 is 2.16: five times a tenth of it is further than any draw here goes.
    assert!(first.iter().zip(&start).all(|(found, given)| (found - given).abs() < 1.08 && found != given));

    let refused = |start| model_of("f64", start).err().unwrap().to_string();
    let wide = refused(OwnStart::At(Arc::new(vec![0.0; 4])));
    assert_eq!(wide, "start: got 4 numbers, want 3 (model.parameters)");
    let odd = refused(OwnStart::At(Arc::new(vec![0.0, f64::NAN, 0.0])));
    assert_eq!(odd, "start: got NaN at place 1, want finite numbers");
    let short = model_of("f64", OwnStart::Drawn(Arc::new(|_| Ok(vec![0.0; 2])))).unwrap();
    let error = short.initialise(&mut rng(0)).unwrap_err();
    assert!(error.ends_run() && error.to_string() == "start: got 2 numbers, want 3 (model.parameters)", "{error}");
}

const EXPERIMENT: &str = "
evaluate_every = 2
[data]
source = \"own\"
[model]
kind = \"own\"
parameters = 3
[[method]]
name = \"ifca\"
clusters = 2
start = \"farthest\"
rounds = 6
step = 0.1
[[method]]
name = \"fedavg\"
rounds = 6
step = 0.1
";

#[test]
fn methods_that_the_hint_proposes_for_clients_of_ones_own_are_not_refused() {
    let change = Override::parse("method.fedavg.name=fedgrem").unwrap();
    let error = Experiment::parse("test", EXPERIMENT, &[change]).err().unwrap().to_string();
    let names: Vec<&str> =
        error.lines().find_map(|line| line.split_once("on any data: ")).unwrap().1.split(", ").collect();
    assert!(names.contains(&"ifca") && names.contains(&"sr-fca"), "{error}");
    for name in names {
        let clusters = kind(name).unwrap().settings.iter().any(|setting| setting.name == "clusters");
        let text = if clusters && name != "odcl" { "clusters = 2" } else { "" };
        assert!(built(name, text, &model("f64")).is_ok(), "{name}");
    }
}

/// Stops after some rounds of a method.
struct StopAt(&'static str, usize, Arc<AtomicBool>);

impl Watch for StopAt {
    fn round(&mut self, record: &RoundRecord) {
        if record.label == self.0 && record.round == self.1 {
            self.2.store(true, Ordering::Relaxed);
        }
    }
}

fn whole_run(clients: Vec<Client>, options: Options, watch: &mut dyn Watch) -> Result<Record> {
    let experiment = Experiment::parse("test", EXPERIMENT, &[])?;
    let populate = move |_: &Experiment, _| {
        Ok(Population { clients: clients.clone(), true_clusters: Some(2), shape: SHAPE, ..Population::default() })
    };
    let options = Options { start: Some(drawn()), ..options };
    run_at(&mut InProcess::of(&options, populate)?, &experiment, &options, watch)
}

#[test]
fn an_interrupted_run_ends_like_one_that_was_not() {
    let straight = whole_run(sound(), Options::default(), &mut Unwatched).unwrap();
    let done = &straight.summary.methods[0].repeats[0];
    assert_eq!((done.misclustering, done.metric.as_ref().unwrap().name.as_str()), (Some(0.0), "loss"));
    assert!(straight.summary.data.get("columns").is_none());
    for (label, round) in [("ifca", 3), ("fedavg", 2)] {
        let folder = tempfile::tempdir().unwrap();
        let options = |resume| Options {
            folder: Some(folder.path().join("out")),
            checkpoint_every: Duration::ZERO,
            resume,
            ..Options::default()
        };
        let interrupted = options(false);
        let stop = interrupted.stop.clone();
        let error = whole_run(sound(), interrupted, &mut StopAt(label, round, stop)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped);
        let refused = whole_run(bowls(|_, bowl| bowl.stateless = true), options(true), &mut Unwatched).unwrap_err();
        assert!(refused.to_string().starts_with("client bowl-00: has no save and load"), "{refused}");
        let resumed = whole_run(sound(), options(true), &mut Unwatched).unwrap();
        assert_eq!(format!("{:?}", straight.clients), format!("{:?}", resumed.clients));
        let losses = |record: &Record| record.rounds.iter().map(|round| (round.loss, round.metric)).collect::<Vec<_>>();
        assert_eq!(losses(&straight), losses(&resumed));
    }
}

#[test]
fn a_broken_client_ends_the_whole_run() {
    let broken = bowls(|place, bowl| bowl.broken = (place == 3).then_some("train"));
    let error = whole_run(broken, Options::default(), &mut Unwatched).unwrap_err();
    assert_eq!(error.to_string(), "client bowl-03: train: out of order");
    let alone = Experiment::parse("test", EXPERIMENT, &[]).unwrap();
    let error = run(&alone, &Options::default(), &mut Unwatched).unwrap_err();
    assert!(error.to_string().starts_with("data.source: \"own\" has no clients in a file"), "{error}");
}
