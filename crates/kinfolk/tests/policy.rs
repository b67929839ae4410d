//! A machine's policy: what a server asks for and does not get, whatever it says, and that the run says so.

use crate::loopback::{Loopback, MakeSite};
use kinfolk::data::{Client, DataShape, Features, Shard, Targets};
use kinfolk::experiment::Experiment;
use kinfolk::federation::Phase;
use kinfolk::federation::client::node::{Node, Rows};
use kinfolk::federation::client::site::Site;
use kinfolk::federation::wire::{
    self, DataOrder, ModelOrder, Request, RunMark, SiteMessage, SiteOrder, SiteReply, roll_of,
};
use kinfolk::federation::work::{Choose, Evaluate, Gradient, Losses, Minimise, Subject, Train, Work};
use kinfolk::models::{self, Blueprint, Packed};
use kinfolk::record::Record;
use kinfolk::run::venue::Elsewhere;
use kinfolk::run::{Options, Unwatched, run_at};
use kinfolk::settings::Settings;
use kinfolk::training::{Amount, Course, Optimiser, Plan, Portion, Sample, Split, Terms, Then};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const ALL: Portion = Portion::All;

/// A machine whose clients have so many rows, named a, b, c …, with this policy.
struct Machine {
    folder: TempDir,
    node: Node,
    /// Those with enough rows.
    names: Vec<String>,
    model: ModelOrder,
    stamp: u64,
    run: RunMark,
}

/// What a server hears.
type Heard = Result<SiteReply, String>;

fn shard(rows: usize, offset: f64) -> Shard {
    let values = (0..rows).flat_map(|row| [1.0, row as f64, (row % 7) as f64]).collect();
    let targets = Targets::Values((0..rows).map(|row| offset + row as f64).collect());
    Shard::new(Features::F64 { columns: 3, values }, targets).unwrap()
}

impl Machine {
    fn new(policy: &str, rows: &[usize]) -> Self {
        let name = |place: usize| char::from(b'a' + place as u8).to_string();
        let client = |(place, &rows): (usize, &usize)| {
            let (train, test) = (shard(rows, place as f64), shard(rows / 4, place as f64));
            Client { id: name(place), train, test, group: None, truth: None }
        };
        let shape = DataShape::numbers(3, 0);
        let given = Rows::Given(rows.iter().enumerate().map(client).collect(), shape);
        let folder = tempfile::tempdir().unwrap();
        let keys = toml::from_str(&format!("name = \"north\"\n[policy]\n{policy}")).unwrap();
        let node = Node::of_keys(keys, folder.path(), Some(given), Vec::new()).unwrap();
        let kind = models::kind("linear").unwrap();
        let settings = Settings::check("model", kind.settings, toml::Table::new(), &mut Vec::new());
        let model = ModelOrder::of(&Blueprint { kind, settings, shape }).unwrap();
        let names = (0..rows.len()).filter(|&place| rows[place] >= node.minimum_rows).map(name).collect();
        Self { folder, node, names, model, stamp: 0, run: RunMark { name: "run".into(), session: 1, checkpoint: 0 } }
    }

    fn message(&mut self, request: Request) -> Vec<u8> {
        self.stamp += 1;
        wire::encode(&SiteMessage {
            data: DataOrder { source: "linear".into(), settings: String::new(), seed: 0 },
            run: self.run.clone(),
            label: "method".into(),
            schema: None,
            model: Some(self.model.clone()),
            request,
        })
        .unwrap()
    }

    /// An order to some clients, about a model of these numbers.
    fn order(&mut self, to: &[u32], work: Work, model: f64) -> Vec<u8> {
        let roll = roll_of(self.names.iter().map(String::as_str));
        let models = vec![(0, Arc::new(Packed::F64(vec![model; 4])))];
        let orders = vec![SiteOrder { index: 0, to: Some(to.to_vec()), work, sum: None, seal: None }];
        let stamp = self.stamp + 1;
        self.message(Request::Work { roll, stamp, phase: Phase::Train, models, orders, hides: None })
    }

    /// The bytes of the answer of a new process on the machine.
    fn send(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let mut site = Site::new(self.node.clone(), 1).unwrap();
        site.answer(message, &[]).map(|(reply, _)| reply).map_err(|error| error.told())
    }

    fn ask(&mut self, to: &[u32], work: Work, model: f64) -> Heard {
        let message = self.order(to, work, model);
        self.send(&message).map(|reply| wire::decode(&reply).unwrap())
    }
}

fn losses() -> Work {
    Work::Losses(Losses { of: vec![0], on: ALL })
}

fn plan() -> Plan {
    let optimiser = Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 };
    let (sample, amount) = (Sample::FULL, Amount::Steps(1));
    Plan { sample, amount, step: 0.001, optimiser, terms: Terms::default(), course: Course::PLAIN }
}

/// Every way in which one client answers.
fn single() -> Vec<Work> {
    vec![
        losses(),
        Work::Gradient(Gradient { of: 0, sample: Sample::FULL }),
        Work::Train(Train::from_model(0, plan())),
        Work::Choose(Choose { among: vec![0], on: ALL, then: Then::Nothing }),
        Work::Minimise(Minimise { ridge: 0.1, keep: false }),
        Work::Evaluate(Evaluate { with: Subject::Models(vec![0]), assign_on: Split::Train, compare: false }),
    ]
}

#[test]
fn the_minimiser_of_a_client_with_one_row_is_not_there() {
    let mut machine = Machine::new("", &[60, 1]);
    let minimise = || Work::Minimise(Minimise { ridge: 0.1, keep: false });
    machine.ask(&[0], minimise(), 0.0).expect("the other client has 60 rows");
    let said = machine.ask(&[1], minimise(), 0.0).unwrap_err();
    assert!(said.contains("names a client that is not there"), "{said}");
}

#[test]
fn kinds_of_work_may_be_refused_or_listed() {
    let mut machine = Machine::new("refuse = [\"minimise\"]", &[60, 60, 60]);
    let said = machine.ask(&[0], Work::Minimise(Minimise { ridge: 0.1, keep: false }), 0.0).unwrap_err();
    assert_eq!(said, "minimise is not done on this machine (node.policy.refuse)");
    machine.ask(&[0], losses(), 0.0).expect("all else is done");
    let mut machine = Machine::new("work = [\"losses\"]", &[60, 60, 60]);
    machine.ask(&[0], losses(), 0.0).expect("it is in the list");
    let said = machine.ask(&[0], Work::Gradient(Gradient { of: 0, sample: Sample::FULL }), 0.0).unwrap_err();
    assert_eq!(said, "gradient is not among what is done on this machine (node.policy.work)");
}

#[test]
fn nothing_of_single_clients_leaves_where_sums_alone_may() {
    let mut machine = Machine::new("allow = [\"sums\"]", &[60, 60, 60, 60]);
    for work in single() {
        let name = work.name();
        let said = machine.ask(&[0, 1, 2, 3], work, 0.0).unwrap_err();
        let wanted = format!("{name} of single clients: sums alone leave this machine (node.policy.allow)");
        assert_eq!(said, wanted);
    }
    assert!(!machine.folder.path().join("kinfolk-account").exists(), "nothing was told");
}

#[test]
fn columns_are_described_together_where_sums_alone_may_leave() {
    let described = |policy: &str, rows: &[usize]| -> Heard {
        let mut machine = Machine::new(policy, rows);
        let hello = machine.message(Request::Hello { moments: true });
        machine.send(&hello).map(|reply| wire::decode(&reply).unwrap())
    };
    let targets = |heard: Heard| match heard.unwrap() {
        SiteReply::Roll(roll) => roll.members.into_iter().map(|member| format!("{:?}", member.description.target)),
        other => panic!("{other:?}"),
    };
    let open: Vec<String> = targets(described("", &[40, 40, 40])).collect();
    assert!(open[0] != open[1] && open[1] != open[2], "{open:?}");
    // All have the same mean and bounds, and as many rows as they have.
    let together: Vec<String> = targets(described("allow = [\"sums\"]", &[40, 40, 40])).collect();
    assert!(together[0] == together[1] && together[1] == together[2], "{together:?}");
    let said = described("allow = [\"sums\"]", &[60, 60]).unwrap_err();
    assert_eq!(said, "a sum over 2 clients: this machine wants at least 3 (node.policy.minimum_clients)");
}

#[test]
fn a_fifth_disclosure_is_one_too_many() {
    let mut machine = Machine::new("disclosures_per_run = 4\ndisclosures = 6", &[60, 60]);
    let mut last = (Vec::new(), Vec::new());
    for model in 0..4 {
        let message = machine.order(&[0], losses(), f64::from(model));
        last = (machine.send(&message).unwrap(), message);
    }
    let said = machine.ask(&[0], losses(), 5.0).unwrap_err();
    let wanted = "disclosure 5 about one client in this run: this machine allows 4 (node.policy.disclosures_per_run)";
    assert_eq!(said, wanted);
    // Nor together with somebody else.
    assert_eq!(machine.ask(&[0, 1], losses(), 5.0).unwrap_err(), wanted);
    // An answer that got lost is given again, and costs nothing.
    let (answer, message) = last;
    for _ in 0..3 {
        assert_eq!(machine.send(&message).unwrap(), answer);
    }
    machine.ask(&[1], losses(), 5.0).expect("another client");
    // A server may call its run what it likes: there is a limit over all runs.
    machine.run.name = "another run".into();
    for model in 0..2 {
        machine.ask(&[0], losses(), f64::from(model)).expect("six in all");
    }
    let said = machine.ask(&[0], losses(), 0.0).unwrap_err();
    assert_eq!(said, "disclosure 7 about one client over all runs: this machine allows 6 (node.policy.disclosures)");
    let account = std::fs::read_to_string(machine.folder.path().join("kinfolk-account/account.json")).unwrap();
    assert!(account.contains("\"a\": 6"), "{account}");
}

#[test]
fn what_clients_remember_is_not_handed_over() {
    let mut machine = Machine::new("", &[60, 60, 60]);
    let roll = roll_of(["a", "b", "c"].into_iter());
    let export = machine.message(Request::Export { roll: roll.clone() });
    let (states, own) = (vec![None; 3], vec![None; 3]);
    let import = machine.message(Request::Import { roll, states, own });
    for message in [export, import] {
        assert_eq!(machine.send(&message).unwrap_err(), "what clients remember stays on this machine");
    }
}

const DIGITS: &str = r#"
name = "policy"
[data]
source = "digits"
clients = 12
samples = 40
test_samples = 20
[model]
kind = "softmax"
[[method]]
name = "fedavg"
rounds = 3
step = 0.5
"#;

fn run_with(policies: [&str; 3]) -> kinfolk::Result<Record> {
    let folder = tempfile::tempdir().unwrap();
    let site = |(index, policy): (usize, &str)| -> MakeSite {
        let text = format!(
            "name = \"machine-{index}\"\npartition = [{index}, 3]\nmodels = \"{index}/models\"\n[policy]\n{policy}"
        );
        let node = Node::of_keys(toml::from_str(&text).unwrap(), folder.path(), None, Vec::new()).unwrap();
        Box::new(move || Site::new(node.clone(), 1))
    };
    let line = Loopback::line(policies.into_iter().enumerate().map(site).collect());
    let experiment = Experiment::parse("test", DIGITS, &[]).unwrap();
    run_at(&mut Elsewhere::new(line), &experiment, &Options::default(), &mut Unwatched)
}

#[test]
fn a_run_says_which_machine_refused_what() {
    let record = run_with(["", "refuse = [\"train\"]", ""]).unwrap();
    let method = &record.summary.methods[0];
    assert_eq!(method.status, "done", "the others go on");
    let notes = &method.repeats[0].notes;
    let said =
        |note: &&String| note.starts_with("machine-1: no answer to 3 asks") && note.contains("(node.policy.refuse)");
    assert_eq!(notes.iter().filter(said).count(), 1, "{notes:?}");
}

#[test]
fn a_run_that_all_refuse_fails_and_says_why() {
    let refuse = "refuse = [\"train\"]";
    let record = run_with([refuse; 3]).unwrap();
    let method = &record.summary.methods[0];
    let said = format!("{method:?}");
    assert!(method.status == "failed" && said.contains("train is not done on this machine"), "{said}");
}

#[test]
fn a_policy_that_contradicts_itself_is_refused() {
    for (policy, wanted) in [
        ("allow = [\"means\"]", "node.policy.allow: got \"means\", want one of single, sums"),
        ("allow = []", "node.policy.allow: nothing could leave"),
        ("allow = [\"descriptions\"]", "node.policy.allow: nothing could leave"),
        ("require = \"secure\"", "node.policy.require: secure sums are no protection"),
        ("peers = [\"12\"]", "node.policy.peers: got \"12\", want an identity of 64 hexadecimal digits"),
        ("refuse = [\"minimize\"]", "node.policy.refuse: got \"minimize\""),
        ("refuse = [\"losses\"]\nwork = [\"train\"]", "node.policy.refuse"),
        ("minimum_clients = 5", "node.policy.minimum_clients: sums are no protection"),
        ("minimum_clients = 1", "node.policy.minimum_clients: got 1"),
        ("epsilon_total = 3", "node.policy: unknown key `epsilon_total`"),
    ] {
        let text = format!("partition = [0, 3]\n[policy]\n{policy}");
        let fault = Node::of_keys(toml::from_str(&text).unwrap(), Path::new(""), None, Vec::new()).unwrap_err();
        assert!(fault.to_string().contains(wanted), "{fault}");
    }
}
