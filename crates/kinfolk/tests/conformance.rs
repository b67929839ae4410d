//! Every registered method through every federation: the same bits where answers are reduced in the same place,
//! a stated tolerance where an engine reduces while it computes.

use crate::loopback::{Loopback, MakeSite};
use kinfolk::Result;
use kinfolk::aggregate::{By, Sum, Weight};
use kinfolk::clustering::quality::misclustering;
use kinfolk::compute::{Backend, Batch, Computed, Cpu, Roster, Threads, threads};
use kinfolk::data::{Client, DataShape, Features, Population, Shard, Targets, source};
use kinfolk::evaluate;
use kinfolk::federation::client::node::{Node, Rows};
use kinfolk::federation::client::site::Site;
use kinfolk::federation::disclosure::{Disclosure, Times, Told};
use kinfolk::federation::engines::Engine;
use kinfolk::federation::engines::local::LocalFederation;
use kinfolk::federation::engines::remote::{Line, RemoteFederation};
use kinfolk::federation::faults;
use kinfolk::federation::secure::Minimum;
use kinfolk::federation::wire::DataOrder;
use kinfolk::federation::work::{Minimise, Train, Work};
use kinfolk::federation::{Answers, Ask, ClientInfo, Federation, Gather, Meter, Order, Phase, Recipients};
use kinfolk::groups::Groups;
use kinfolk::methods::room::{MethodLedger, MissingRule};
use kinfolk::methods::{METHODS, Method, MethodKind, Outcome, Serving, Setup};
use kinfolk::mixture::{Covariance, Family};
use kinfolk::models::{self, Blueprint, Choice, Found, Model, Packed, Reduced, Seat, Step};
use kinfolk::rng::Key;
use kinfolk::settings::Settings;
use kinfolk::training::Split;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

fn settings(declared: &'static [kinfolk::settings::Setting], text: &str) -> Settings {
    let mut faults = Vec::new();
    let settings = Settings::check("test", declared, toml::from_str(text).unwrap(), &mut faults);
    assert!(faults.is_empty(), "{faults:?}");
    settings
}

/// Data, a model that fits it, and a step that suits both.
struct Problem {
    population: Population,
    blueprint: Blueprint,
    model: Arc<dyn Model>,
    step: f64,
    /// How far parameters may be apart after one round, relatively.
    tolerance: f64,
}

impl Problem {
    fn new(name: &str, data: &str, kind: &str, model: &str, step: f64, tolerance: f64) -> Self {
        let source = source(name).unwrap();
        let population = (source.build)(&settings(source.settings, data), 5).unwrap();
        let kind = models::kind(kind).unwrap();
        let settings = settings(kind.settings, model);
        let blueprint = Blueprint { kind, settings, shape: population.shape };
        let model = blueprint.build().unwrap();
        Self { population, blueprint, model, step, tolerance }
    }

    fn all() -> [Self; 4] {
        [Self::digits(), Self::linear(), Self::gaussians(), Self::regressions()]
    }

    fn digits() -> Self {
        let data = "clients = 12\nsamples = 30\ntest_samples = 20\ntrue_clusters = 2";
        Self::new("digits", data, "mlp", "hidden = [16]", 0.3, 1e-5)
    }

    fn linear() -> Self {
        let data = "clients = 12\nsamples = 20\ndimension = 30\ntest_samples = 10\nscale = 2.0";
        Self::new("linear", data, "linear", "intercept = false", 0.1, 1e-10)
    }

    fn gaussians() -> Self {
        let data = "clients = 8\nsamples = 60\ncomponents = 3\nheterogeneity = 0.5";
        Self::new("fedgrem-gaussian", data, "gaussian-mixture", "components = 3", 0.5, 1e-10)
    }

    fn normalised() -> Self {
        let data = "clients = 6\nsamples = 20\ntest_samples = 10\ntrue_clusters = 2";
        Self::new(
            "digits",
            data,
            "cnn",
            "filters = [4]\nkernel = 3\npool = 2\nnorm = \"batch\"\nhidden = [6]",
            0.1,
            1e-5,
        )
    }

    fn logistic() -> Self {
        let data = "clients = 12\nsamples = 60\ntest_samples = 20";
        Self::new("odcl-logistic", data, "logistic", "intercept = true", 0.1, 1e-10)
    }

    /// The same with other training rows for one client.
    fn with_client(mut self, client: usize, change: impl Fn(&Shard) -> Shard) -> Self {
        let shard = &mut self.population.clients[client].train;
        *shard = change(shard);
        self
    }

    fn regressions() -> Self {
        let data = "clients = 6\nsamples = 80\ncomponents = 2";
        Self::new("fedgrem-regression", data, "regression-mixture", "components = 2\nintercept = false", 0.5, 1e-10)
    }

    fn settings(&self, kind: &MethodKind, more: &str) -> Settings {
        let usual = format!("step = {}\nrounds = 25\nclusters = 2\ntimes = 2", self.step);
        let mut wishes: toml::Table = toml::from_str(&usual).unwrap();
        wishes.extend(toml::from_str::<toml::Table>(more).unwrap());
        match kind.name {
            "ifca" => drop(wishes.entry("start").or_insert("farthest".into())),
            "odcl" => drop(wishes.insert("clustering".into(), "kmeans++".into())),
            // Strengths that are not given are estimated; networks have no likelihood to do that by.
            "l2gd" | "al2sgd+" | "james-stein" => {
                let given = "gamma = 0.2\nlambda = 0.3\niterations = 300\nchance_between = 0.1\nchance_within = 0.2";
                wishes.extend(toml::from_str::<toml::Table>(given).unwrap());
                if self.model.convex().is_none() {
                    wishes.extend(
                        toml::from_str::<toml::Table>("loss = \"mean\"\nsmoothness = 2\nconvexity = 0.1").unwrap(),
                    );
                }
                wishes.remove("step");
            }
            _ => {}
        }
        // A method that asks once has no use for rounds or participation, nor for a step where it solves exactly.
        if self.model.convex().is_some() && kind.settings.iter().any(|setting| setting.name == "iterate") {
            wishes.remove("step");
            wishes.remove("batch");
        }
        wishes.retain(|name, _| kind.settings.iter().any(|setting| setting.name == name));
        settings(kind.settings, &toml::to_string(&wishes).unwrap())
    }

    fn method(&self, kind: &MethodKind, more: &str) -> Box<dyn Method> {
        let rows: Vec<usize> = self.population.clients.iter().map(|client| client.train.len()).collect();
        let truth: Vec<usize> = self.population.clients.iter().map(|client| client.truth.unwrap_or(0)).collect();
        let has_groups = kind.settings.iter().any(|setting| setting.name == "groups");
        (kind.build)(Setup {
            place: "method".into(),
            curvature: None,
            settings: &self.settings(kind, more),
            model: self.model.clone(),
            rows: &rows,
            truth: Some(&truth),
            planted: Some(&self.population.true_parameters),
            groups: has_groups.then(|| Groups::numbered(truth.iter().copied().map(Some)).unwrap()),
            over: None,
            facts: Default::default(),
            seed: 5,
            key: Key::new(5).word(kind.name),
        })
        .unwrap()
    }

    /// The methods that can train its model.
    fn methods(&self) -> impl Iterator<Item = &'static MethodKind> {
        let ability = (self.blueprint.kind.ability)(&self.blueprint.settings);
        // Those that keep some layers at home want several, or such as normalise.
        let tensors = &self.model.layout().tensors;
        let has_layers = tensors.iter().filter(|tensor| tensor.name.ends_with(".weight")).count() > 1;
        let has_classes = self.population.shape.classes > 0;
        let normalises = tensors.iter().any(|tensor| tensor.name.ends_with(".scale"));
        METHODS.iter().copied().filter(move |kind| {
            ability.suffices(kind.wants)
                && (has_layers || !["fedper", "fedrep", "fedbabu", "lg-fedavg"].contains(&kind.name))
                && (normalises || kind.name != "fedbn")
                && (has_classes || kind.name != "fedrc")
        })
    }

    fn fused(&self, workers: usize) -> LocalFederation {
        let mut federation = LocalFederation::new(self.population.clients.clone(), threads(workers).unwrap());
        federation.set_model(self.model.clone()).unwrap();
        federation
    }

    fn single(&self) -> LocalFederation {
        self.fused(2).from_single_answers()
    }

    /// The same clients on three machines, which answer for any number of rows.
    fn remote(&self) -> RemoteFederation {
        self.at_the_end_of(Loopback::among(&self.population.clients, self.population.shape, 3))
    }

    /// The same clients on three machines that decide as they do where nobody says otherwise.
    fn guarded(&self) -> RemoteFederation {
        let site = |clients: &[Client]| -> MakeSite {
            let node = Node::new(Rows::Given(clients.to_vec(), self.population.shape));
            Box::new(move || Site::new(node.clone(), 1))
        };
        let third = self.population.clients.len().div_ceil(3);
        self.at_the_end_of(Loopback::line(self.population.clients.chunks(third).map(site).collect()))
    }

    /// The same clients, dealt to machines by this function of their places, which sum their own clients' vectors.
    fn dealt(&self, machines: usize, machine_of: impl Fn(usize) -> usize) -> RemoteFederation {
        let site = |machine: usize| -> MakeSite {
            let clients = self.population.clients.iter().enumerate();
            let own: Vec<Client> =
                clients.filter(|(place, _)| machine_of(*place) == machine).map(|(_, client)| client.clone()).collect();
            let node = Node::new(Rows::Given(own, self.population.shape)).with_minimum_rows(1);
            Box::new(move || Site::new(node.clone(), 1))
        };
        self.meet(Loopback::line((0..machines).map(site).collect()))
    }

    fn integer(&self, workers: usize) -> LocalFederation {
        self.fused(workers).with_integer_sums()
    }

    fn at_the_end_of(&self, line: Line) -> RemoteFederation {
        self.meet(line).from_single_answers()
    }

    fn meet(&self, line: Line) -> RemoteFederation {
        let data = DataOrder { source: "linear".into(), settings: String::new(), seed: 0 };
        let (mut federation, _) = RemoteFederation::meet(&line, data, false, false).unwrap();
        federation.equip(&self.model, &self.blueprint).unwrap();
        federation
    }
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
        if ledger.run_round(method, federation)?.finished {
            break;
        }
    }
    let mut outcome = method.outcome();
    outcome.notes.splice(0..0, ledger.note());
    Ok(outcome)
}

fn relative_distance(a: &[f64], b: &[f64]) -> f64 {
    if a == b {
        return 0.0;
    }
    kinfolk::num::distance(a, b) / b.iter().map(|value| value * value).sum::<f64>().sqrt()
}

fn scores(outcome: &Outcome, federation: &mut dyn Federation, problem: &Problem) -> evaluate::Evaluation {
    evaluate::seen(outcome, federation, problem.model.metrics()[0], Split::Train, &[], true).unwrap()
}

#[test]
fn single_answers_give_the_same_bits_in_threads_and_on_other_machines() {
    for problem in Problem::all() {
        for kind in problem.methods() {
            let (mut local, mut remote) = (problem.single(), problem.remote());
            let here = play(&mut *problem.method(kind, ""), &mut local, 5).unwrap();
            let there = play(&mut *problem.method(kind, ""), &mut remote, 5).unwrap();
            assert_eq!(here.models, there.models, "{}", kind.name);
            assert_eq!(here.serving, there.serving, "{}", kind.name);
            let (here, there) = (scores(&here, &mut local, &problem), scores(&there, &mut remote, &problem));
            assert_eq!(here.clients, there.clients, "{}", kind.name);
            assert_eq!(local.meter(), remote.meter(), "{}", kind.name);
        }
    }
}

#[test]
fn integer_sums_give_the_same_bits_however_clients_are_spread() {
    type Deal = fn(usize) -> usize;
    let deals: [(usize, Deal); 5] = [
        (1, |_| 0),
        (2, |place| usize::from(place > 3)),
        (3, |place| place % 3),
        // Machines with one client beside such with several.
        (3, |place| (place * place / 5).min(2)),
        (7, |place| (place * 5 + 2) % 7),
    ];
    for mut problem in Problem::all() {
        // Clients elsewhere come in the order of their names.
        for (place, client) in problem.population.clients.iter_mut().enumerate() {
            client.id = format!("{place:02}");
        }
        for kind in problem.methods() {
            let mut local = problem.integer(2);
            let here = play(&mut *problem.method(kind, ""), &mut local, 5).unwrap();
            let scored = scores(&here, &mut local, &problem);
            for (machines, deal) in deals {
                let taken =
                    |machine: &usize| (0..problem.population.clients.len()).any(|place| deal(place) == *machine);
                if !(0..machines).all(|machine| taken(&machine)) {
                    continue;
                }
                let mut remote = problem.dealt(machines, deal);
                let there = play(&mut *problem.method(kind, ""), &mut remote, 5).unwrap();
                assert_eq!(here.models, there.models, "{} on {machines} machines", kind.name);
                assert_eq!(here.serving, there.serving, "{} on {machines} machines", kind.name);
                assert_eq!(scored.clients, scores(&there, &mut remote, &problem).clients, "{}", kind.name);
                assert_eq!(local.meter(), remote.meter(), "{} on {machines} machines", kind.name);
                assert_eq!(local.ledger(), remote.ledger(), "{} on {machines} machines", kind.name);
            }
        }
    }
}

/// What is to be added to the settings of a method, so that it does with sums; `None` if nothing helps.
fn in_sums(kind: &MethodKind) -> Option<&'static str> {
    let (given, more) = match kind.name {
        "ifca" => (settings(kind.settings, "clusters = 2\nstart = \"random\""), "start = \"random\""),
        _ => (Settings::defaults(kind.settings), ""),
    };
    (kind.wants_single)(&given).is_none().then_some(more)
}

#[test]
fn a_method_does_with_sums_alone_or_says_why_not() {
    let (mut able, mut unable) = (BTreeSet::new(), BTreeSet::new());
    let problems = [Problem::digits(), Problem::linear(), Problem::normalised(), Problem::gaussians()];
    for (number, mut problem) in problems.into_iter().enumerate() {
        for (place, client) in problem.population.clients.iter_mut().enumerate() {
            client.id = format!("{place:02}");
        }
        // Gradients leave statistics of normalisation as they were.
        for kind in problem.methods().filter(|kind| number != 2 || kind.name == "fedbn") {
            let Some(more) = in_sums(kind) else {
                unable.insert(kind.name);
                continue;
            };
            able.insert(kind.name);
            let mut local = problem.integer(2).with_sealed_sums();
            let here = play(&mut *problem.method(kind, more), &mut local, 3).unwrap();
            let scored = scores(&here, &mut local, &problem);
            for machines in [1, 3] {
                let mut remote = problem.dealt(machines, |place| place % machines).with_sealed_sums();
                let there = play(&mut *problem.method(kind, more), &mut remote, 3).unwrap();
                assert_eq!(here.models, there.models, "{} on {machines} machines", kind.name);
                assert_eq!(here.serving, there.serving, "{} on {machines} machines", kind.name);
                let told = scores(&there, &mut remote, &problem);
                assert_eq!((&scored.metric, scored.loss), (&told.metric, told.loss), "{}", kind.name);
                assert_eq!((&scored.sizes, &scored.clients), (&told.sizes, &told.clients), "{}", kind.name);
                assert_eq!(local.meter(), remote.meter(), "{} on {machines} machines", kind.name);
            }
            // Secure ones too, but for slots with few clients, which are empty here and there.
            let minimum = Minimum { clients: 3, machines: 3 };
            let mut local = problem.integer(2).with_secure_sums(minimum);
            let here = play(&mut *problem.method(kind, more), &mut local, 3).unwrap();
            let scored = scores(&here, &mut local, &problem);
            let several: &[usize] = if kind.name == "ifca" { &[3, 4, 10] } else { &[3] };
            for &machines in several {
                let mut remote = problem.dealt(machines, |place| place % machines).with_secure_sums(minimum);
                let there = play(&mut *problem.method(kind, more), &mut remote, 3).unwrap();
                assert_eq!(here.models, there.models, "{} on {machines} machines", kind.name);
                assert_eq!(here.serving, there.serving, "{} on {machines} machines", kind.name);
                let told = scores(&there, &mut remote, &problem);
                assert_eq!((&scored.metric, scored.loss), (&told.metric, told.loss), "{}", kind.name);
                assert_eq!((&scored.sizes, &scored.clients), (&told.sizes, &told.clients), "{}", kind.name);
                assert_eq!(local.meter(), remote.meter(), "{} on {machines} machines", kind.name);
                assert_eq!(local.ledger(), remote.ledger(), "{} on {machines} machines", kind.name);
            }
            // Open sums are the same, but for the grid of the first rounds.
            let mut open = problem.integer(2);
            let other = play(&mut *problem.method(kind, more), &mut open, 1).unwrap();
            let mut local = problem.integer(2).with_sealed_sums();
            let one = play(&mut *problem.method(kind, more), &mut local, 1).unwrap();
            for (a, b) in one.models.iter().zip(&other.models) {
                assert!(relative_distance(a, b) <= 1e-8, "{}", kind.name);
            }
        }
    }
    let named = |kind: &&&MethodKind| (kind.wants_single)(&Settings::defaults(kind.settings)).is_some();
    let reasons: BTreeSet<&str> = METHODS.iter().filter(named).map(|kind| kind.name).collect();
    assert!(able.is_disjoint(&reasons) && able.len() >= 18, "{able:?}");
    assert_eq!(able.len() + reasons.len(), METHODS.len(), "{able:?} {reasons:?}");
}

/// The same rows, multiplied.
fn scaled(shard: &Shard, scale: f64) -> Shard {
    let Features::F64 { columns, values } = &**shard.features() else { panic!("{shard:?}") };
    let values = values.iter().map(|value| value * scale).collect();
    Shard::new(Features::F64 { columns: *columns, values }, (**shard.targets()).clone()).unwrap()
}

#[test]
fn one_bad_client_is_taken_out_of_its_machines_sum() {
    // A vector that only the comparison with others shows, one that no sum can hold, and one that is not finite.
    for scale in [2e4, 1e12, 1e170] {
        let mut problem = Problem::linear().with_client(7, |shard| scaled(shard, scale));
        for (place, client) in problem.population.clients.iter_mut().enumerate() {
            client.id = format!("{place:02}");
        }
        for name in ["fedavg", "ifca", "oracle"] {
            let kind = METHODS.iter().find(|kind| kind.name == name).unwrap();
            let (mut local, mut remote) = (problem.integer(2), problem.dealt(3, |place| place % 3));
            let here = play(&mut *problem.method(kind, ""), &mut local, 5).unwrap();
            let there = play(&mut *problem.method(kind, ""), &mut remote, 5).unwrap();
            assert_eq!(here.models, there.models, "{name}, {scale}");
            assert_eq!(local.ledger(), remote.ledger(), "{name}, {scale}");
            assert!(
                here.models.iter().flat_map(|model| model.iter()).all(|value| value.abs() < 1e3),
                "{name}, {scale}"
            );
            let notes = remote.notes();
            assert!(notes.iter().any(|note| note.starts_with("client 07 sent")), "{name}, {scale}: {notes:?}");
            assert_eq!(notes.iter().filter(|note| note.contains("sent")).count(), 1, "{name}, {scale}: {notes:?}");
        }
    }
}

#[test]
fn integer_sums_are_those_of_single_answers_but_for_rounding() {
    for problem in Problem::all() {
        for kind in problem.methods() {
            let (mut integer, mut single) = (problem.integer(2), problem.single());
            let one = play(&mut *problem.method(kind, ""), &mut integer, 1).unwrap();
            let other = play(&mut *problem.method(kind, ""), &mut single, 1).unwrap();
            for (a, b) in one.models.iter().zip(&other.models) {
                let apart = relative_distance(a, b);
                assert!(apart <= 1e-13, "{}: {apart}", kind.name);
            }
            assert_eq!(integer.meter(), single.meter(), "{}", kind.name);
        }
    }
}

/// A backend that does everything in the simplest way, one client after another in a single block.
#[derive(Clone, Default)]
struct OneByOne {
    steps: Arc<AtomicUsize>,
}

struct OneByOneRoster {
    clients: Arc<Threads>,
    kept: Mutex<Vec<Option<Packed>>>,
    steps: Arc<AtomicUsize>,
}

impl Backend for OneByOne {
    fn admit(&self, clients: Arc<Threads>) -> Result<Box<dyn Roster>> {
        let kept = Mutex::new(vec![None; clients.clients().len()]);
        Ok(Box::new(OneByOneRoster { clients, kept, steps: self.steps.clone() }))
    }
}

impl OneByOneRoster {
    fn find(&self, models: &[&[f64]], step: &Step, client: u32) -> Found {
        let (client, prepared) = (&self.clients.clients()[client as usize], OnceLock::new());
        let seat = Seat { client, prepared: &prepared, may_prepare: false, secret: None };
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.clients.model().worker(models).take(step, &seat, &mut 0)
    }
}

impl Roster for OneByOneRoster {
    fn takes(&self, _: &Step) -> bool {
        true
    }

    fn run(&mut self, batch: &Batch, take: &mut (dyn FnMut(usize, Computed) + Send)) -> Result<()> {
        for (index, job) in batch.jobs.iter().enumerate() {
            let found = job.to.iter().map(|&client| (client, self.find(batch.models, &job.step, client)));
            let Some(sums) = &batch.sums else {
                found.for_each(|(client, found)| take(index, Computed::Single(client, found)));
                continue;
            };
            let Step::Choose(step) = &job.step else { panic!("{:?} has no sum", job.step) };
            let slots = if sums.summing.by == By::Choice { step.among.len() } else { 1 };
            let mut reduced = Reduced { sums: vec![Sum::default(); slots], ..Reduced::default() };
            for (client, found) in found {
                let Found::Choice(Choice { position, loss }, Some(vector)) = found else { panic!("{found:?}") };
                reduced.choices.push(position as u32);
                reduced.losses.push(loss);
                let weight = match sums.summing.weight {
                    Weight::Uniform => 1.0,
                    Weight::Rows => self.clients.clients()[client as usize].train.len() as f64,
                };
                let Sum { total, weight: weights, count } = &mut reduced.sums[position.min(slots - 1)];
                total.resize(vector.len(), 0.0);
                total.iter_mut().zip(vector).for_each(|(total, value)| *total += weight * value);
                (*weights, *count) = (*weights + weight, *count + 1);
            }
            take(index, Computed::Sums(job.to.clone(), reduced));
        }
        Ok(())
    }

    fn export(&self, client: u32) -> Option<Packed> {
        self.kept.lock().unwrap()[client as usize].clone()
    }

    fn take(&self, client: u32) -> Option<Packed> {
        self.kept.lock().unwrap()[client as usize].take()
    }

    fn import(&self, client: u32, vectors: Packed) {
        self.kept.lock().unwrap()[client as usize] = Some(vectors);
    }

    fn afresh(&self) -> Box<dyn Roster> {
        OneByOne { steps: self.steps.clone() }.admit(self.clients.clone()).unwrap()
    }
}

/// Single answers are the same bits on any backend; sums differ by their order alone.
#[test]
fn every_method_runs_on_another_backend() {
    for problem in Problem::all() {
        for kind in problem.methods() {
            let on = |backend: Arc<dyn Backend>, single: bool| {
                let federation = LocalFederation::new(problem.population.clients.clone(), threads(2).unwrap());
                let federation = federation.with_backend(backend);
                let mut federation = if single { federation.from_single_answers() } else { federation };
                federation.set_model(problem.model.clone()).unwrap();
                let outcome = play(&mut *problem.method(kind, ""), &mut federation, 3).unwrap();
                let scored = scores(&outcome, &mut federation, &problem);
                (outcome, scored.clients, federation.host().states())
            };
            let mock = OneByOne::default();
            let (wanted, found) = (on(Arc::new(Cpu), true), on(Arc::new(mock.clone()), true));
            assert_eq!((wanted.0.models, wanted.1, wanted.2), (found.0.models, found.1, found.2), "{}", kind.name);
            // Other kinds of work are done by the threads.
            let steps = mock.steps.load(Ordering::Relaxed);
            assert!(steps > 0 || !["cfl", "fedavg", "ifca", "odcl", "sr-fca"].contains(&kind.name), "{}", kind.name);
            let (wanted, found) = (on(Arc::new(Cpu), false).0, on(Arc::new(mock), false).0);
            assert_eq!(wanted.serving, found.serving, "{}", kind.name);
            for (wanted, found) in wanted.models.iter().zip(&found.models) {
                let distance = relative_distance(found, wanted);
                assert!(distance <= 30.0 * problem.tolerance, "{}: {distance}", kind.name);
            }
        }
    }
}

#[test]
fn all_methods_run_on_machines_that_refuse_to_show_few_rows() {
    // Of 60 rows a fold has 12: enough.
    let linear = "clients = 12\nsamples = 60\ndimension = 5\ntest_samples = 20\nscale = 2.0";
    let linear = Problem::new("linear", linear, "linear", "intercept = false", 0.1, 1e-10);
    for problem in [Problem::digits(), linear, Problem::gaussians(), Problem::regressions()] {
        for kind in problem.methods() {
            let scored = |mut federation: RemoteFederation| {
                let outcome = play(&mut *problem.method(kind, ""), &mut federation, 5);
                let outcome =
                    outcome.unwrap_or_else(|error| panic!("{}: {error}: {:?}", kind.name, federation.notes()));
                scores(&outcome, &mut federation, &problem).metric.map(|metric| metric.mean)
            };
            // Five rounds are not enough for every method to give models.
            let (guarded, open) = (scored(problem.guarded()), scored(problem.remote()));
            assert_eq!(guarded.is_some(), open.is_some(), "{}", kind.name);
            assert!(guarded.is_none_or(f64::is_finite), "{}: {guarded:?}", kind.name);
        }
    }
}

#[test]
fn faults_hit_both_federations_alike() {
    let misbehaving = "silent = 0.2\nlate = 0.1\ngarbage = 0.2\nattack = \"sign-flip\"\nattackers = 0.2";
    let misbehaving = settings(faults::SETTINGS, misbehaving);
    let problems = [Problem::linear(), Problem::gaussians()];
    for (problem, kind) in problems.iter().flat_map(|problem| problem.methods().map(move |kind| (problem, kind))) {
        let faults = || faults::transforms(&misbehaving, 5, &problem.population.clients);
        let missing = kind.settings.iter().find(|setting| setting.name == "missing").unwrap();
        let kinfolk::settings::Kind::OneOf(rules) = missing.kind else { panic!("{:?}", missing.kind) };
        for rule in rules.iter().filter(|rule| **rule != "fail") {
            let rule = format!("missing = \"{rule}\"\n");
            let mut local = problem.single().with_transforms(faults());
            let mut remote = problem.remote().with_transforms(faults());
            let start = if kind.name == "ifca" { format!("{rule}start_clients = 12") } else { rule };
            let here = play(&mut *problem.method(kind, &start), &mut local, 6);
            let there = play(&mut *problem.method(kind, &start), &mut remote, 6);
            let (here, there) = match (here, there) {
                (Ok(here), Ok(there)) => (here, there),
                // Losses with their signs turned have no minimiser, and covariances are none: methods that average
                // what they get say so.
                (here, there) => {
                    let failure = here.unwrap_err();
                    let said = failure.to_string();
                    assert!(said.contains("no losses") || said.contains("exploded"), "{}: {said}", kind.name);
                    assert_ne!(kind.name, "fedgrem", "{said}");
                    assert_eq!(Some(failure), there.err(), "{}", kind.name);
                    continue;
                }
            };
            assert_eq!(here.models, there.models, "{}", kind.name);
            assert_eq!(here.notes, there.notes, "{}", kind.name);
            assert!(here.notes[0].contains("answers were missing"), "{:?}", here.notes);
            assert_eq!(local.meter(), remote.meter(), "{}", kind.name);
            // Answers that are altered are summed here, also as integers.
            let mut local = problem.integer(2).with_transforms(faults());
            let mut remote = problem.meet(Loopback::among(&problem.population.clients, problem.population.shape, 3));
            remote = remote.with_transforms(faults());
            let found = |outcome: Result<Outcome>| outcome.map(|outcome| (outcome.models, outcome.notes));
            let here = found(play(&mut *problem.method(kind, &start), &mut local, 6));
            let there = found(play(&mut *problem.method(kind, &start), &mut remote, 6));
            assert_eq!(here, there, "{}", kind.name);
        }
        let mut local = problem.single().with_transforms(faults());
        let mut ledger = MethodLedger::new(MissingRule::Fail);
        let failure = play_on(&mut ledger, &mut *problem.method(kind, ""), &mut local, 6).err().unwrap();
        assert!(failure.to_string().contains("client"), "{failure}");
    }
}

#[test]
fn reducing_while_computing_agrees_after_one_round_and_over_a_run() {
    for problem in Problem::all() {
        for kind in problem.methods() {
            let (mut fused, mut single) = (problem.fused(2), problem.single());
            let one = play(&mut *problem.method(kind, ""), &mut fused, 1).unwrap();
            let other = play(&mut *problem.method(kind, ""), &mut single, 1).unwrap();
            for (a, b) in one.models.iter().zip(&other.models) {
                let apart = relative_distance(a, b);
                assert!(apart <= problem.tolerance, "{}: {apart}", kind.name);
            }
            let (mut fused, mut single) = (problem.fused(2), problem.single());
            let one = play(&mut *problem.method(kind, ""), &mut fused, 25);
            let one = one.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
            let other = play(&mut *problem.method(kind, ""), &mut single, 25).unwrap();
            let (a, b) = (scores(&one, &mut fused, &problem), scores(&other, &mut single, &problem));
            let clusters = |e: &evaluate::Evaluation| e.clients.iter().map(|served| served.cluster).collect::<Vec<_>>();
            assert_eq!(clusters(&a), clusters(&b), "{}", kind.name);
            let (a, b) = (a.metric.unwrap().mean, b.metric.unwrap().mean);
            assert!((a - b).abs() <= 0.01 * b.abs(), "{}: {a} against {b}", kind.name);
            assert_eq!(fused.meter(), single.meter(), "{}", kind.name);
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let digits = "clients = 80\nsamples = 16\ntest_samples = 10";
    let linear = "clients = 80\nsamples = 16\ntest_samples = 10\ndimension = 5";
    for problem in [
        Problem::new("digits", digits, "mlp", "hidden = [8]", 0.3, 1e-5),
        Problem::new("linear", linear, "linear", "intercept = false", 0.1, 1e-10),
        Problem::gaussians(),
    ] {
        for kind in problem.methods() {
            let outcomes: Vec<Outcome> = [1, 2, 5]
                .map(|workers| {
                    play(&mut *problem.method(kind, "participation = 0.6"), &mut problem.fused(workers), 8).unwrap()
                })
                .to_vec();
            assert!(outcomes.iter().all(|outcome| outcome.models == outcomes[0].models), "{}", kind.name);
        }
    }
}

#[test]
fn a_method_goes_on_from_its_saved_state_bit_for_bit() {
    for problem in Problem::all() {
        for kind in problem.methods() {
            let options = "participation = 0.7\nbatch = 8";
            let mut straight_federation = problem.fused(2);
            let straight = play(&mut *problem.method(kind, options), &mut straight_federation, 9).unwrap();
            let (mut method, mut federation) = (problem.method(kind, options), problem.fused(2));
            let mut ledger = MethodLedger::new(MissingRule::Skip);
            play_on(&mut ledger, &mut *method, &mut federation, 4).unwrap();
            let (saved, state) = (method.save().unwrap().unwrap(), federation.state().unwrap().unwrap());
            let (mut method, mut federation) = (problem.method(kind, options), problem.fused(1));
            method.restore(&saved).unwrap();
            federation.restore(state).unwrap();
            let left = method.planned_rounds().saturating_sub(4).min(5);
            let resumed = play_on(&mut ledger, &mut *method, &mut federation, left).unwrap();
            assert_eq!(straight.models, resumed.models, "{}", kind.name);
            assert_eq!(straight.serving, resumed.serving, "{}", kind.name);
            assert_eq!(straight_federation.host().states(), federation.host().states(), "{}", kind.name);
            assert_eq!(straight_federation.meter(), federation.meter(), "{}", kind.name);
            assert!(method.restore(&saved[..saved.len() / 2]).is_err());
        }
    }
}

/// Rows whose first column says which class they are in.
fn separated(shard: &Shard) -> Shard {
    let columns = shard.columns();
    let value = |place: usize| match (place / columns % 2, place % columns) {
        (0, 0) => -3.0,
        (_, 0) => 3.0,
        (_, other) => (place as f64 * 0.7 + other as f64).sin(),
    };
    let values = (0..shard.len() * columns).map(value).collect();
    let classes = (0..shard.len() as u32).map(|row| row % 2).collect();
    Shard::new(Features::F64 { columns, values }, Targets::Classes(classes)).unwrap()
}

#[test]
fn one_client_whose_classes_separate_ends_no_method() {
    let problem = Problem::logistic().with_client(4, separated);
    // James and Stein's shrinkage is for linear models.
    for kind in problem.methods().filter(|kind| kind.name != "james-stein") {
        let mut federation = problem.single();
        let outcome = play(&mut *problem.method(kind, ""), &mut federation, 400);
        let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        assert!(outcome.models.iter().all(|model| model.iter().all(|value| value.is_finite())), "{}", kind.name);
        let scored = scores(&outcome, &mut federation, &problem);
        assert!(scored.metric.is_some_and(|metric| metric.mean.is_finite()), "{}", kind.name);
    }
}

#[test]
fn one_client_with_too_few_rows_ends_no_method_and_spoils_no_mean() {
    let covariance = ["identity", "tied", "full", "diagonal"].map(|covariance| {
        let data = "clients = 8\nsamples = 60\ntest_samples = 20\ncomponents = 3\nheterogeneity = 0.5";
        let model = format!("components = 3\ncovariance = \"{covariance}\"");
        Problem::new("fedgrem-gaussian", data, "gaussian-mixture", &model, 0.5, 1e-10)
    });
    let noise = "components = 2\nintercept = false\nnoise = \"common\"";
    let data = "clients = 6\nsamples = 80\ntest_samples = 20\ncomponents = 2";
    let regressions = Problem::new("fedgrem-regression", data, "regression-mixture", noise, 0.5, 1e-10);
    // A single row curves far more than many do together: steps are short.
    let data = "clients = 12\nsamples = 20\ndimension = 5\ntest_samples = 10\nscale = 2.0";
    let linear = Problem::new("linear", data, "linear", "intercept = false", 0.01, 1e-10);
    for problem in covariance.into_iter().chain([regressions, linear, Problem::logistic()]) {
        let linear = problem.blueprint.kind.name == "linear";
        let kinds: Vec<&MethodKind> = problem.methods().filter(|kind| linear || kind.name != "james-stein").collect();
        // FedGrEM is for components that scatter alike.
        let alike = match problem.model.mixture().map(|shape| shape.family) {
            Some(Family::Gaussian(covariance)) => matches!(covariance, Covariance::Tied | Covariance::Identity),
            _ => true,
        };
        let fits = |kind: &&&MethodKind| alike || kind.name != "fedgrem";
        let score = |problem: &Problem, kind: &MethodKind| {
            let mut federation = problem.single();
            let outcome = play(&mut *problem.method(kind, ""), &mut federation, 400);
            let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
            let metric = problem.model.metrics()[0];
            let scored = evaluate::seen(&outcome, &mut federation, metric, Split::Test, &[], true).unwrap();
            (scored.metric.unwrap().mean, outcome)
        };
        let has_scatter = problem.model.mixture().is_some_and(|shape| !shape.scatter().is_empty());
        let before: Vec<f64> = kinds.iter().filter(fits).map(|kind| score(&problem, kind).0).collect();
        // One row is too few for a mixture; three are not, but say nothing of how rows scatter.
        let mut problem = problem.with_client(3, |shard| shard.pick(&[0, 1, 2]));
        for rows in [3, 1] {
            problem = problem.with_client(3, |shard| shard.pick(&[0, 1, 2][..rows]));
            for (kind, before) in kinds.iter().filter(fits).zip(&before) {
                let (after, outcome) = score(&problem, kind);
                assert!(after.is_finite(), "{}: {after}", kind.name);
                if has_scatter {
                    assert!((after - before).abs() < 1.5, "{}, {rows} rows: {before} became {after}", kind.name);
                    let own = ["local-em", "local-grem", "tgmm", "fedgrem"].contains(&kind.name);
                    let pooled = kind.name.starts_with("pooled");
                    let named = outcome.notes.iter().any(|note| note.contains("1 client with fewer rows"));
                    assert_eq!(named, own || (rows == 1 && !pooled), "{}, {rows} rows: {:?}", kind.name, outcome.notes);
                }
            }
        }
    }
}

#[test]
fn methods_are_told_apart_by_what_they_cost() {
    let problem = Problem::linear();
    let model = 30 * 8;
    for (name, down, up) in
        [("fedavg", 1, 1), ("oracle", 1, 1), ("cluster-oracle", 1, 1), ("local", 0, 0), ("ifca", 2, 1)]
    {
        let kind = METHODS.iter().find(|kind| kind.name == name).unwrap();
        let mut federation = problem.fused(2);
        play(&mut *problem.method(kind, ""), &mut federation, 3).unwrap();
        let traffic = federation.meter().of(Phase::Train);
        assert_eq!((traffic.asks, traffic.models_down, traffic.models_up), (3, 3 * 12 * down, 3 * 12 * up), "{name}");
        assert_eq!(traffic.bytes_down, 3 * 12 * down * model, "{name}");
    }
}

#[test]
fn planted_clusters_are_found_and_beat_one_model() {
    for problem in [Problem::digits(), Problem::linear()] {
        let run = |name: &str| {
            let kind = METHODS.iter().find(|kind| kind.name == name).unwrap();
            let mut federation = problem.fused(2);
            let outcome = play(&mut *problem.method(kind, ""), &mut federation, 25).unwrap();
            let evaluation = scores(&outcome, &mut federation, &problem);
            (
                evaluation.clients.iter().map(|served| served.cluster).collect::<Vec<_>>(),
                evaluation.metric.unwrap().mean,
            )
        };
        let (found, with_clusters) = run("ifca");
        let truth: Vec<usize> = problem.population.clients.iter().map(|client| client.truth.unwrap()).collect();
        let found: Vec<usize> = found.into_iter().map(Option::unwrap).collect();
        assert_eq!(misclustering(&found, &truth), 0.0);
        let (_, with_one) = run("fedavg");
        let better = if problem.model.metrics()[0] == models::Metric::Accuracy {
            with_clusters > with_one
        } else {
            with_clusters < with_one
        };
        assert!(better, "{with_clusters} against {with_one}");
    }
}

fn shuffled(clients: &[Client]) -> Vec<Client> {
    let mut shuffled = clients.to_vec();
    shuffled.rotate_left(5);
    shuffled.swap(0, 3);
    shuffled
}

#[test]
fn the_order_of_the_clients_changes_nothing_but_rounding() {
    let mut problem = Problem::linear();
    let kind = METHODS.iter().find(|kind| kind.name == "ifca").unwrap();
    let run = |problem: &Problem| {
        let rows: Vec<usize> = problem.population.clients.iter().map(|client| client.train.len()).collect();
        let text = "clusters = 2\nrounds = 10\nbatch = 5\nlocal_steps = 4\nstep = 0.05\nparticipation = 0.5\nstart = \"farthest\"\nstart_clients = 8";
        let mut method = (kind.build)(Setup {
            place: "method".into(),
            curvature: None,
            settings: &settings(kind.settings, text),
            model: problem.model.clone(),
            rows: &rows,
            truth: None,
            planted: None,
            groups: None,
            over: None,
            facts: Default::default(),
            seed: 1,
            key: Key::new(1),
        })
        .unwrap();
        play(&mut *method, &mut problem.fused(2), 10).unwrap()
    };
    let before = run(&problem);
    problem.population.clients = shuffled(&problem.population.clients);
    let after = run(&problem);
    for (a, b) in before.models.iter().zip(&after.models) {
        assert!(relative_distance(a, b) < 1e-12);
    }
}

#[test]
fn one_cluster_is_fedavg() {
    let problem = Problem::digits();
    let rows: Vec<usize> = problem.population.clients.iter().map(|client| client.train.len()).collect();
    let run = |name: &str, text: &str| {
        let kind = METHODS.iter().find(|kind| kind.name == name).unwrap();
        let mut method = (kind.build)(Setup {
            place: "method".into(),
            curvature: None,
            settings: &settings(kind.settings, text),
            model: problem.model.clone(),
            rows: &rows,
            truth: None,
            planted: None,
            groups: None,
            over: None,
            facts: Default::default(),
            seed: 2,
            key: Key::new(2),
        })
        .unwrap();
        play(&mut *method, &mut problem.fused(2), 6).unwrap().models
    };
    let shared = "step = 0.3\nrounds = 6\nparticipation = 0.5\n";
    assert_eq!(run("ifca", &format!("{shared}clusters = 1")), run("fedavg", &format!("{shared}weight = \"uniform\"")));
}

#[test]
fn duplicated_clients_land_together() {
    let mut problem = Problem::digits();
    let twins: Vec<Client> = problem
        .population
        .clients
        .iter()
        .map(|client| Client { id: format!("{}-twin", client.id), ..client.clone() })
        .collect();
    problem.population.clients.extend(twins);
    let kind = METHODS.iter().find(|kind| kind.name == "ifca").unwrap();
    let mut federation = problem.fused(2);
    let outcome = play(&mut *problem.method(kind, ""), &mut federation, 10).unwrap();
    let evaluation = scores(&outcome, &mut federation, &problem);
    let (first, second) = evaluation.clients.split_at(12);
    assert_eq!(first, second);
}

#[test]
fn own_models_are_kept_by_stamp_and_a_repeated_order_changes_nothing() {
    use kinfolk::federation::work::{Keep, Start, Train, Work};
    use kinfolk::federation::{Ask, Gather, Order, Recipients};
    use kinfolk::training::{Amount, Course, Optimiser, Plan, Sample, Terms};
    let problem = Problem::linear();
    let mut federation = problem.fused(1);
    let plan = Plan {
        sample: Sample::FULL,
        amount: Amount::Steps(2),
        step: 0.1,
        optimiser: Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 },
        terms: Terms::default(),
        course: Course::PLAIN,
    };
    let train = |from: Start| Ask {
        phase: Phase::Train,
        models: Vec::new(),
        orders: vec![Order {
            to: Recipients::All,
            work: Work::Train(Train { from, plan: plan.clone(), keep: Keep::Instead }),
        }],
        gather: Gather::Each,
    };
    let first = federation.ask(&train(Start::Fresh { seed: 1 })).unwrap();
    let kept = federation.state().unwrap().unwrap();
    let error = federation.ask(&train(Start::Own { stamp: first.stamp + 7 })).unwrap_err();
    assert!(error.to_string().contains("own model of ask 8 wanted, found one of ask 1"), "{error}");

    // The same order again, as after a lost answer: the stamp says that it has been done.
    federation.restore(kept.clone()).unwrap();
    let second = federation.ask(&train(Start::Own { stamp: first.stamp })).unwrap();
    let done = federation.host().states();
    let mut again = problem.fused(1);
    again.restore(kept).unwrap();
    again.host().restore(done.clone());
    let repeated = again.ask(&train(Start::Own { stamp: first.stamp })).unwrap();
    assert_eq!(again.host().states(), done);
    assert_eq!(repeated.orders[0].numbers, second.orders[0].numbers);
}

#[test]
fn moves_are_not_made_twice_and_are_told_alike() {
    use kinfolk::aggregate::Weight;
    use kinfolk::federation::work::{Acceleration, Renewal, Start, Work};
    use kinfolk::federation::work::{Addend, Advance, Blend, Run};
    use kinfolk::federation::{Ask, Gather, Order, Recipients};
    use kinfolk::training::Sample;
    use kinfolk::training::Scale;
    let data = "clients = 6\nsamples = 9\ndimension = 4\ntest_samples = 0";
    for precision in ["f64", "f32"] {
        let model = format!("intercept = false\nprecision = \"{precision}\"");
        let problem = Problem::new("linear", data, "linear", &model, 0.1, 1e-10);
        let advance = |from: Start| {
            let acceleration = Some(Acceleration { vectors: [0, 1, 2, 3], a: [0.3, 0.2], b: [0.9, 0.05], chance: 0.8 });
            Ask {
                phase: Phase::Train,
                models: vec![Arc::new(vec![0.1, 0.2, 0.3, 0.4])],
                orders: vec![Order {
                    to: Recipients::All,
                    work: Work::Advance(Advance {
                        from,
                        vectors: 4,
                        blend: Some(Blend {
                            matrix: (0..16).map(|place| f64::from(place) / 13.0).collect(),
                            add: vec![Addend { to: 1, model: 0, times: 0.7 }],
                        }),
                        run: Some(Run { steps: 3, step: 0.01, sample: Sample::FULL, acceleration }),
                        renewal: Some(Renewal { copy: 2, gradient: 3 }),
                        measured: Some(3),
                        send: vec![vec![0.5, 0.3, 0.2, 0.0], vec![0.0, 0.0, 0.0, 1.0]],
                        scale: Scale { factor: 0.5, by: Weight::Rows },
                    }),
                }],
                gather: Gather::Each,
            }
        };
        let mut federation = problem.fused(1);
        let first = federation.ask(&advance(Start::Model(0))).unwrap();
        let kept = federation.state().unwrap().unwrap();
        let second = federation.ask(&advance(Start::Own { stamp: first.stamp })).unwrap();
        let done = federation.host().states();
        let mut again = problem.fused(1);
        again.restore(kept).unwrap();
        again.host().restore(done.clone());
        let repeated = again.ask(&advance(Start::Own { stamp: first.stamp })).unwrap();
        assert_eq!(again.host().states(), done);
        assert_eq!(repeated.orders, second.orders, "{precision}");
        assert_ne!(first.orders, second.orders);
        // What is wanted of a client that holds something else is refused, and takes nothing away from it.
        let error = federation.ask(&advance(Start::Own { stamp: 9 })).unwrap_err();
        assert!(error.to_string().contains("own model of ask 9 wanted, found one of ask 2"), "{error}");
        assert_eq!(federation.host().states(), done);
    }
}

#[test]
fn asks_that_make_no_sense_are_refused() {
    use kinfolk::aggregate::Weight;
    use kinfolk::federation::work::{Choose, Minimise, Validate, Work};
    use kinfolk::federation::{Ask, Gather, Order, Recipients};
    use kinfolk::training::Scale;
    use kinfolk::training::{Portion, Then};
    let keep = Work::Minimise(Minimise { ridge: 0.0, keep: true });
    let no_fold =
        Work::Validate(Validate { trials: Vec::new(), fold: 0, of: 0, scale: Scale { factor: 1.0, by: Weight::Rows } });
    let problem = Problem::linear();
    let mut federation = problem.fused(1);
    let choose = |to: Recipients, among: Vec<usize>, models: Vec<Arc<Vec<f64>>>| Ask {
        phase: Phase::Train,
        models,
        orders: vec![Order { to, work: Work::Choose(Choose { among, on: Portion::All, then: Then::Nothing }) }],
        gather: Gather::Each,
    };
    let fits = Arc::new(vec![0.0; 30]);
    for (ask, wanted) in [
        (choose(Recipients::All, vec![1], vec![fits.clone()]), "names model 1 of 1"),
        (choose(Recipients::All, vec![], vec![]), "has no model to work with"),
        (choose(Recipients::list(vec![99]), vec![0], vec![fits]), "names a client that is not there"),
        (choose(Recipients::All, vec![0], vec![Arc::new(vec![0.0; 3])]), "a model of 3 numbers, want 30"),
        (
            Ask {
                orders: vec![Order { to: Recipients::All, work: no_fold }],
                ..choose(Recipients::All, vec![], vec![])
            },
            "names part 0 of 0",
        ),
        (
            Ask {
                orders: [vec![1, 2], vec![2, 3]]
                    .map(|list| Order { to: Recipients::list(list), work: keep.clone() })
                    .to_vec(),
                ..choose(Recipients::All, vec![], vec![])
            },
            "two orders have client 2 keep something",
        ),
    ] {
        let error = federation.ask(&ask).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

#[test]
fn a_shape_that_does_not_fit_is_refused_before_any_work() {
    let problem = Problem::digits();
    let kind = models::kind("softmax").unwrap();
    let narrow = kind.make(&settings(kind.settings, ""), DataShape::numbers(3, 10)).unwrap();
    let mut federation = LocalFederation::new(problem.population.clients.clone(), threads(1).unwrap());
    let error = federation.set_model(Arc::from(narrow)).unwrap_err();
    assert!(error.to_string().contains("training rows have 64 columns, want 3"), "{error}");
}

#[test]
fn local_serves_own_models_and_has_none_for_strangers() {
    let problem = Problem::linear();
    let kind = METHODS.iter().find(|kind| kind.name == "local").unwrap();
    let mut federation = problem.fused(2);
    let outcome = play(&mut *problem.method(kind, ""), &mut federation, 2).unwrap();
    assert!(
        matches!(&outcome.serving, Serving::Own { stamps, clusters: None } if stamps.iter().all(|&stamp| stamp == 2))
    );
    assert!(evaluate::unseen(&outcome, &mut federation, problem.model.metrics()[0], Split::Train).unwrap().is_none());
}

/// A federation that notes what clients are asked.
struct Noted {
    clients: LocalFederation,
    heard: Vec<Heard>,
}

/// What one client is asked: the work, when, in what form, and whether it sends a vector.
struct Heard {
    client: u32,
    work: Work,
    phase: Phase,
    told: Told,
}

impl Federation for Noted {
    fn clients(&self) -> &[ClientInfo] {
        self.clients.clients()
    }

    fn ask(&mut self, ask: &Ask) -> Result<Answers> {
        let told = if ask.gather == Gather::Each { Told::Single } else { Told::Sums };
        for Order { to, work } in &ask.orders {
            let clients: Vec<u32> = match to {
                Recipients::All => (0..self.clients().len() as u32).collect(),
                Recipients::List(list) => list.to_vec(),
            };
            let heard = |client| Heard { client, work: work.clone(), phase: ask.phase, told };
            self.heard.extend(clients.into_iter().map(heard));
        }
        self.clients.ask(ask)
    }

    fn meter(&self) -> &Meter {
        self.clients.meter()
    }
}

/// What was asked and not declared, or more often than was declared.
fn undeclared(heard: &[Heard], declared: &[Disclosure]) -> Option<String> {
    let telling = || heard.iter().filter(|heard| heard.work.tells() != "nothing");
    if let Some(Heard { work, phase, told, .. }) =
        telling().find(|it| !declared.iter().any(|declared| declared.covers(&it.work, it.phase, it.told)))
    {
        return Some(format!("{} {phase:?} {told:?}: {}", work.name(), work.tells()));
    }
    let mut counts: BTreeMap<(&str, Phase, bool, u32), u64> = BTreeMap::new();
    for Heard { client, work, phase, .. } in telling() {
        *counts.entry((work.name(), *phase, false, *client)).or_default() += 1;
        if work.sends_vector() {
            *counts.entry((work.name(), *phase, true, *client)).or_default() += 1;
        }
    }
    counts.into_iter().find_map(|((work, phase, vector, client), found)| {
        let of = declared.iter().filter(|it| (it.work, it.phase) == (work, phase) && (it.vector || !vector));
        let most = of.map(|it| if let Times::AtMost(times) = it.times { times } else { u64::MAX });
        let most = most.fold(0, u64::saturating_add);
        (found > most)
            .then(|| format!("{work} {phase:?}: client {client} was asked {found} times, {most} were declared"))
    })
}

#[test]
fn methods_ask_for_what_they_declare_and_no_more() {
    let mut faults = Vec::new();
    for problem in Problem::all() {
        let ability = (problem.blueprint.kind.ability)(&problem.blueprint.settings);
        for kind in problem.methods() {
            let has_participation = kind.settings.iter().any(|setting| setting.name == "participation");
            // All clients' updates are compared there.
            let may_have_part = has_participation && kind.name != "cfl";
            for more in
                ["rounds = 4", "rounds = 4\nparticipation = 0.5"].into_iter().take(1 + usize::from(may_have_part))
            {
                let declared = (kind.discloses)(&problem.settings(kind, more), ability);
                let mut noted = Noted { clients: problem.fused(2), heard: Vec::new() };
                play(&mut *problem.method(kind, more), &mut noted, 20).unwrap();
                assert!(!noted.heard.is_empty(), "{} asks nobody", kind.name);
                faults
                    .extend(undeclared(&noted.heard, &declared).map(|fault| format!("{} {more}: {fault}", kind.name)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn an_ask_that_is_not_declared_is_found() {
    let problem = Problem::linear();
    let kind = METHODS.iter().find(|kind| kind.name == "odcl").unwrap();
    let mut noted = Noted { clients: problem.fused(2), heard: Vec::new() };
    play(&mut *problem.method(kind, ""), &mut noted, 1).unwrap();
    let minimise = || Disclosure::single::<Minimise>(Phase::Train, 1, "clusters");
    assert_eq!(undeclared(&noted.heard, &[minimise()]), None);
    let other = Disclosure::single::<Train>(Phase::Train, 1, "clusters");
    assert!(undeclared(&noted.heard, &[other]).unwrap().starts_with("minimise Train Single"));
    let kept = minimise().without_vector::<Minimise>();
    assert!(undeclared(&noted.heard, &[kept]).is_some());
    let never = Disclosure { times: Times::AtMost(0), ..minimise() };
    assert!(undeclared(&noted.heard, &[never]).unwrap().contains("was asked 1 times, 0 were declared"));
}
