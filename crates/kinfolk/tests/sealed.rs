//! Whole runs in which only sums over clients are told: what leaves machines, what is known in the end, and what is refused.

use crate::loopback::{Loopback, MakeSite};
use kinfolk::aggregate::{By, Weight};
use kinfolk::data::{Client, DataShape, Features, Shard, Targets};
use kinfolk::experiment::Experiment;
use kinfolk::federation::client::node::{Node, Rows};
use kinfolk::federation::client::site::Site;
use kinfolk::federation::engines::Engine;
use kinfolk::federation::engines::remote::{Delivery, Line, MessageKind, RemoteFederation, Transport};
use kinfolk::federation::wire::{self, DataOrder, Request, SiteMessage, SiteReply};
use kinfolk::federation::work::{Choose, Train};
use kinfolk::federation::{Ask, Federation, Gather, Phase, Recipients};
use kinfolk::models::{self, Blueprint};
use kinfolk::record::Record;
use kinfolk::run::venue::Elsewhere;
use kinfolk::run::{Options, Unwatched, run, run_at};
use kinfolk::settings::Settings;
use kinfolk::training::{Amount, Course, Optimiser, Plan, Portion, Sample, Terms, Then};
use kinfolk::{ErrorKind, Result};
use std::sync::{Arc, Mutex};

const DIGITS: &str = r#"
name = "sealed"
[data]
source = "digits"
clients = 12
samples = 40
test_samples = 20
clusters = "rotate"
true_clusters = 2
[model]
kind = "softmax"
[privacy]
sums = "sealed"
[[method]]
name = "ifca"
clusters = 2
rounds = 4
step = 0.5
restarts = 3
[[method]]
name = "fedavg"
rounds = 4
step = 0.5
[[method]]
name = "ditto"
rounds = 4
step = 0.5
[[method]]
name = "fedprox"
label = "in-oracle"
rounds = 2
step = 0.5
over = "oracle"
"#;

/// With a method of known clusters in front of the last.
pub(crate) fn digits() -> String {
    let oracle = "[[method]]\nname = \"oracle\"\nrounds = 4\nstep = 0.5\n";
    let (before, last) = DIGITS.split_at(DIGITS.rfind("[[method]]").unwrap());
    format!("{before}{oracle}{last}")
}

/// What went over the wire.
pub(crate) type Spoken = Arc<Mutex<Vec<(Vec<u8>, Vec<u8>)>>>;

/// Remembers every message with its reply.
struct Overheard {
    inner: Line,
    spoken: Spoken,
}

impl Transport for Overheard {
    fn machines(&mut self) -> Result<Vec<u64>> {
        self.inner.lock().unwrap().machines()
    }

    fn exchange(&mut self, messages: Vec<(u64, Vec<u8>)>, kind: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        let replies = self.inner.lock().unwrap().exchange(messages.clone(), kind)?;
        for (number, message) in messages {
            let reply = replies.iter().find(|(from, _)| *from == number).and_then(|(_, reply)| reply.clone().ok());
            self.spoken.lock().unwrap().push((message, reply.unwrap_or_default()));
        }
        Ok(replies)
    }
}

pub(crate) fn overheard(inner: Line) -> (Line, Spoken) {
    let spoken = Spoken::default();
    (Arc::new(Mutex::new(Box::new(Overheard { inner, spoken: spoken.clone() }))), spoken)
}

pub(crate) fn partitions(of: usize) -> Line {
    let site = |index: usize| -> MakeSite { Box::new(move || Site::new(Node::new(Rows::Partition { index, of }), 1)) };
    Loopback::line((0..of).map(site).collect())
}

pub(crate) fn here(text: &str) -> Record {
    run(&Experiment::parse("test", text, &[]).unwrap(), &Options::default(), &mut Unwatched).unwrap()
}

pub(crate) fn there(line: Line, text: &str) -> Record {
    let experiment = Experiment::parse("test", text, &[]).unwrap();
    run_at(&mut Elsewhere::new(line), &experiment, &Options::default(), &mut Unwatched).unwrap()
}

/// A record without times and without what is said of personal models.
pub(crate) fn comparable(record: &Record) -> String {
    let mut summary = record.summary.clone();
    for repeat in summary.methods.iter_mut().flat_map(|method| &mut method.repeats) {
        repeat.seconds = 0.0;
        repeat.notes.retain(|note| !note.starts_with("personal models"));
    }
    let repeats = summary.methods.iter().map(|method| serde_json::to_string_pretty(&method.repeats).unwrap());
    let rounds = record.rounds.iter().map(|round| format!("{:?} {:?} {:?}", round.loss, round.sizes, round.metric));
    repeats.chain(rounds).collect::<Vec<_>>().join("\n")
}

#[test]
fn machines_of_any_number_give_the_bits_of_one_process() {
    let text = digits();
    let alone = here(&text);
    for machines in [1, 3, 5] {
        assert_eq!(comparable(&there(partitions(machines), &text)), comparable(&alone), "{machines} machines");
    }
    let [ifca, fedavg, ditto, oracle, _] = &alone.summary.methods[..] else { panic!("{:?}", alone.summary) };
    let metric = |method: &kinfolk::record::MethodSummary| method.repeats[0].metric.clone().unwrap();
    assert!(metric(ifca).mean > metric(fedavg).mean + 0.05, "{:?} {:?}", metric(ifca), metric(fedavg));
    assert!(metric(ditto).mean > 0.5 && metric(oracle).per_cluster.len() == 2);
    assert_eq!(ifca.repeats[0].clusters, Some(2));
}

#[test]
fn personal_models_end_with_the_bits_of_one_process() {
    let methods =
        ["fine-tune", "per-fedavg", "apfl", "pfedme", "mr-mtl", "fedper", "fedrep", "fedbabu", "lg-fedavg", "local"];
    let entries = methods.map(|name| format!("[[method]]\nname = \"{name}\"\nrounds = 2\nstep = 0.2\n")).concat();
    let head = DIGITS.split("[[method]]").next().unwrap().replace("\"softmax\"", "\"mlp\"\nhidden = [8]");
    let text = format!("{head}{entries}");
    let alone = here(&text);
    assert_eq!(comparable(&there(partitions(3), &text)), comparable(&alone));
    for method in &alone.summary.methods {
        let repeat = &method.repeats[0];
        assert!(repeat.status == "done" && repeat.metric.is_some(), "{}: {:?}", method.label, repeat.reason);
    }
}

#[test]
fn what_is_known_of_single_clients_is_nothing_and_the_summary_says_so() {
    let record = here(DIGITS.split("[[method]]\nname = \"fedprox\"").next().unwrap());
    for method in &record.summary.methods {
        let repeat = &method.repeats[0];
        let metric = repeat.metric.as_ref().unwrap();
        assert_eq!((metric.worst_decile, repeat.misclustering), (None, None), "{}", method.label);
        assert!(metric.mean.is_finite() && metric.pooled.is_finite());
        let said = repeat.notes.iter().filter(|note| note.starts_with("only sums over clients were told")).count();
        assert_eq!(said, 1, "{:?}", repeat.notes);
    }
    let known = |client: &kinfolk::record::ClientRecord| (client.cluster, client.margin, client.metric);
    assert!(record.clients.iter().all(|client| known(client) == (None, None, None)));
    let rounds: Vec<_> = record.rounds.iter().filter(|round| round.label == "ifca" && round.phase == "train").collect();
    assert!(rounds.iter().all(|round| round.switched.is_none() && round.sizes.iter().sum::<usize>() == 12));
}

#[test]
fn sums_are_those_of_open_answers() {
    let open = here(&digits().replace("\"sealed\"\n[[", "\"open\"\n[["));
    let sealed = here(&digits());
    for (open, sealed) in open.summary.methods.iter().zip(&sealed.summary.methods) {
        let of = |method: &kinfolk::record::MethodSummary| method.repeats[0].metric.clone().unwrap();
        let (open, told) = (of(open), of(sealed));
        assert!((open.mean - told.mean).abs() < 1e-6, "{}: {open:?} {told:?}", sealed.label);
        assert!((open.pooled - told.pooled).abs() < 1e-6, "{}: {open:?} {told:?}", sealed.label);
        assert_eq!(open.per_cluster.len(), told.per_cluster.len());
        for (open, told) in open.per_cluster.iter().zip(&told.per_cluster) {
            assert!((open.unwrap() - told.unwrap()).abs() < 1e-6, "{}", sealed.label);
        }
    }
}

#[test]
fn nothing_but_sums_leaves_a_machine() {
    let (line, spoken) = overheard(partitions(3));
    there(line, &digits());
    let mut sums = 0;
    for (message, reply) in spoken.lock().unwrap().iter() {
        let message: SiteMessage = wire::decode(message).unwrap();
        match (message.request, wire::decode(reply).unwrap()) {
            (Request::Work { .. }, SiteReply::Sealed(_)) => sums += 1,
            (Request::Hello { .. }, SiteReply::Roll(_)) => {}
            (request, reply) => panic!("{request:?}: {reply:?}"),
        }
    }
    // At the least a question a round and machine.
    assert!(sums > 3 * 18, "{sums}");
}

#[test]
fn machines_with_equal_sums_send_equal_bytes() {
    // A machine's two clients in either order, and clients that hold each other's rows.
    let rows = |from: f64| {
        let values = (0..12).map(|place| (from + place as f64).sin()).collect();
        let targets = (0..6).map(|place| (from * 2.0 + place as f64).cos()).collect();
        Shard::new(Features::F64 { columns: 2, values }, Targets::Values(targets)).unwrap()
    };
    let client = |id: &str, from: f64| {
        let train = rows(from);
        Client { id: id.into(), test: train.clone(), train, group: None, truth: None }
    };
    let kind = models::kind("linear").unwrap();
    let settings = Settings::defaults(kind.settings);
    let blueprint = Blueprint { kind, settings, shape: DataShape::numbers(2, 0) };
    let model = blueprint.build().unwrap();
    let said = |first: f64, second: f64| {
        let clients = vec![client("0", first), client("1", second), client("2", 5.0), client("3", 6.0)];
        let (line, spoken) = overheard(Loopback::among(&clients, DataShape::numbers(2, 0), 2));
        let data = DataOrder { source: "linear".into(), settings: String::new(), seed: 0 };
        let (federation, _) = RemoteFederation::meet(&line, data, false, false).unwrap();
        let mut federation = federation.with_sealed_sums();
        federation.equip(&model, &blueprint).unwrap();
        spoken.lock().unwrap().clear();
        let plan = Plan {
            sample: Sample::FULL,
            amount: Amount::Steps(3),
            step: 0.1,
            optimiser: Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 },
            terms: Terms::default(),
            course: Course::PLAIN,
        };
        let models = vec![Arc::new(vec![0.5, 0.0, 0.0]), Arc::new(vec![-0.5, 1.0, 0.0])];
        let mut ask = Ask::new(Phase::Train, models, Gather::Sum { by: By::Choice, weight: Weight::Uniform });
        ask.order(Recipients::All, Choose { among: vec![0, 1], on: Portion::All, then: Then::Train(plan.clone()) });
        let counts = federation.ask(&ask).unwrap().orders[0].slots.iter().map(|slot| slot.count).collect::<Vec<_>>();
        assert_eq!(counts.iter().sum::<usize>(), 4);
        // Single answers are refused before anybody is asked.
        let mut single = Ask::new(Phase::Train, ask.models.clone(), Gather::Each);
        single.order(Recipients::All, Train::from_model(0, plan));
        let asked = spoken.lock().unwrap().len();
        let refused = federation.ask(&single).unwrap_err();
        assert_eq!((refused.kind(), spoken.lock().unwrap().len()), (ErrorKind::Unsupported, asked));
        spoken.lock().unwrap().iter().map(|(_, reply)| reply.clone()).collect::<Vec<_>>()
    };
    assert_eq!(said(1.0, 2.0), said(2.0, 1.0));
    assert_ne!(said(1.0, 2.0), said(1.0, 3.0));
}

#[test]
fn methods_that_want_single_answers_are_refused_before_any_work() {
    let text = |method: &str| format!("{}[[method]]\n{method}", DIGITS.split("[[method]]").next().unwrap());
    let refusal = |method: &str| Experiment::parse("test", &text(method), &[]).err().unwrap().to_string();
    let said = refusal("name = \"odcl\"");
    assert!(said.contains("method.odcl: it clusters the clients' own models, which come one by one"), "{said}");
    assert!(said.contains("privacy.sums = \"sealed\"") && said.contains("fedavg, local"), "{said}");
    assert!(refusal("name = \"ifca\"\nclusters = 2\nstart = \"farthest\"").contains("start = \"farthest\" compares"));
    assert!(refusal("name = \"ifca\"\nclusters = 2\nweight = \"rows\"").contains("would tell who chose what"));
    assert!(refusal("name = \"ifca\"\nclusters = 2\nmissing = \"keep\"").contains("which cluster"));
    let over = "name = \"ifca\"\nclusters = 2\n[[method]]\nname = \"mr-mtl\"\nover = \"ifca\"";
    assert!(refusal(over).contains("method.mr-mtl.over: with privacy.sums = \"sealed\" nobody knows"));
    let sums = format!("sums = \"float\"\n{}", text("name = \"fedavg\""));
    assert!(Experiment::parse("test", &sums, &[]).err().unwrap().to_string().contains("adds whole numbers up"));
}

#[test]
fn clients_without_a_usable_answer_are_missed_in_the_count_alone() {
    let faulty = |rate: f64| {
        let text = DIGITS.split("[[method]]\nname = \"ditto\"").next().unwrap();
        here(&format!("{text}[faults]\ngarbage = {rate}\n"))
    };
    let some = faulty(0.2);
    let notes = |record: &Record| record.summary.methods[1].repeats[0].notes.clone();
    let said = notes(&some).into_iter().find(|note| note.contains("answers were missing over all rounds")).unwrap();
    assert!(said.contains("0 silent, 0 late") && !said.contains(" 0 garbage"), "{said}");
    assert!(notes(&some).iter().all(|note| !note.starts_with("client ")), "{:?}", notes(&some));
    assert_eq!(some.summary.methods[1].status, "done");
    // Where most are unusable, nothing tells that from divergence.
    assert_eq!(faulty(1.0).summary.methods[1].status, "diverged");
}
