//! Differential privacy over machines: whose noise it is, what it costs a machine's budget, and what does not leave without it.

use crate::loopback::{Loopback, MakeSite};
use crate::sealed::{here, overheard, there};
use kinfolk::experiment::Experiment;
use kinfolk::federation::Phase;
use kinfolk::federation::client::node::Node;
use kinfolk::federation::client::site::Site;
use kinfolk::federation::engines::remote::Line;
use kinfolk::federation::wire::{self, Request, SiteMessage, SiteReply};
use kinfolk::privacy::Hidden;
use kinfolk::record::Record;
use kinfolk::run::venue::Elsewhere;
use kinfolk::run::{Disclosures, Options, Unwatched, run_at};
use std::path::Path;

/// Twelve clients that hide their rows.
const ROWS: &str = r#"
name = "hidden"
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
level = "record"
epsilon = 500.0
clip = 0.5
rate = 0.5
[[method]]
name = "ifca"
clusters = 2
rounds = 4
step = 0.5
"#;

/// Twelve clients that are hidden in sums.
const CLIENTS: &str = r#"
name = "hidden"
[data]
source = "linear"
clients = 12
samples = 40
test_samples = 20
dimension = 2
true_clusters = 1
[model]
kind = "linear"
initial = "zero"
intercept = false
[privacy]
sums = "secure"
level = "client"
epsilon = 1000.0
clip = 2.0
[[method]]
name = "fedavg"
rounds = 6
step = 0.3
weight = "uniform"
"#;

/// Machines with files of their own in a folder, each with a part of the clients.
fn machines(folder: &Path, policies: &[&str]) -> Line {
    let of = policies.len();
    let site = |(index, policy): (usize, &&str)| -> MakeSite {
        let text = format!("name = \"machine-{index}\"\npartition = [{index}, {of}]\n[policy]\n{policy}");
        let own = folder.join(index.to_string());
        std::fs::create_dir_all(&own).unwrap();
        let node = Node::of_keys(toml::from_str(&text).unwrap(), &own, None, Vec::new()).unwrap();
        Box::new(move || Site::new(node.clone(), 1))
    };
    Loopback::line(policies.iter().enumerate().map(site).collect())
}

fn processes(text: &str, of: usize) -> Record {
    let site = |index: usize| -> MakeSite { Box::new(move || Site::new(Node::share_of_run(index, of), 1)) };
    let line = Loopback::line((0..of).map(site).collect());
    let experiment = Experiment::parse("test", text, &[]).unwrap();
    run_at(&mut Elsewhere::of_processes(line), &experiment, &Options::default(), &mut Unwatched).unwrap()
}

fn notes(record: &Record) -> String {
    record.summary.methods.iter().flat_map(|method| &method.repeats).flat_map(|repeat| repeat.notes.clone()).collect()
}

fn mean(record: &Record) -> f64 {
    record.summary.methods[0].repeats[0].metric.as_ref().expect("it was scored").mean
}

#[test]
fn processes_of_a_run_give_the_bits_of_one_process() {
    // What processes cannot know is how the data was planted.
    let found = |record: &Record| {
        let repeat = &record.summary.methods[0].repeats[0];
        let rounds: Vec<_> = record.rounds.iter().map(|it| (it.loss, it.sizes.clone(), it.metric)).collect();
        format!("{rounds:?} {:?} {:?}", repeat.metric, repeat.notes)
    };
    // The seed's noise of a client, or of a sum, whichever process it is in.
    for text in [CLIENTS.replace("\"secure\"", "\"sealed\""), ROWS.replace("[privacy]", "[privacy]\nsums = \"sealed\"")]
    {
        let alone = here(&text);
        assert_eq!(alone.summary.methods[0].status, "done", "{:?}", alone.summary.methods[0]);
        for of in [1, 3] {
            assert_eq!(found(&processes(&text, of)), found(&alone), "{of} processes");
        }
    }
}

#[test]
fn machines_draw_noise_of_their_own_and_a_budget_is_spent_once() {
    let folder = tempfile::tempdir().unwrap();
    let policy = "allow = [\"single\", \"sums\", \"scores\"]\nepsilon = 500.0";
    let first = there(machines(folder.path(), &[policy; 3]), ROWS);
    assert_eq!(first.summary.methods[0].status, "done", "{:?}", first.summary.methods[0]);
    assert!(notes(&first).contains("Noise from the operating system"), "{}", notes(&first));
    assert!(mean(&first) > 0.2, "{}", mean(&first));
    let account = std::fs::read_to_string(folder.path().join("0/kinfolk-account/account.json")).unwrap();
    assert!(account.contains("\"Gaussian\"") && account.contains("\"Choice\""), "{account}");
    // The same again is beyond the budget, at every machine, and it is said.
    let again = there(machines(folder.path(), &[policy; 3]), ROWS);
    let said = format!("{:?}", again.summary.methods[0]);
    assert!(said.contains("over all runs: this machine allows 500 (node.policy.epsilon)"), "{said}");
    // The same seed elsewhere: other noise.
    let other = tempfile::tempdir().unwrap();
    let other = there(machines(other.path(), &[policy; 3]), ROWS);
    let losses = |record: &Record| record.rounds.last().and_then(|round| round.metric);
    assert_ne!(losses(&first), losses(&other));
}

#[test]
fn a_budget_lets_nothing_leave_that_noise_does_not_hide() {
    let folder = tempfile::tempdir().unwrap();
    let open =
        ROWS.split("[privacy]").next().unwrap().to_string() + "[[method]]\nname = \"fedavg\"\nstep = 0.5\nrounds = 2\n";
    let record = there(machines(&folder.path().join("open"), &["epsilon = 500.0"; 3]), &open);
    let said = format!("{:?}", record.summary.methods[0]);
    assert!(said.contains("without noise that hides single rows (node.policy.epsilon)"), "{said}");
    // Models are trained behind noise; scores stay, unless a machine's file lets them leave.
    let record = there(machines(&folder.path().join("scores"), &["epsilon = 500.0"; 3]), ROWS);
    let method = &record.summary.methods[0];
    assert!(method.status == "done" && method.repeats[0].metric.is_none(), "{method:?}");
    assert!(notes(&record).contains("evaluate without noise that hides single rows"), "{}", notes(&record));
    // Hidden rows are not enough for who wants clients hidden.
    let clients = "epsilon = 500.0\nprotects = \"client\"";
    let record = there(machines(&folder.path().join("clients"), &[clients; 3]), ROWS);
    let said = format!("{:?}", record.summary.methods[0]);
    assert!(said.contains("without noise that hides single clients (node.policy.epsilon)"), "{said}");
    // What columns are like is hidden by no noise.
    let table = folder.path().join("table");
    std::fs::create_dir_all(&table).unwrap();
    let text = "table = \"rows.csv\"\nclient = \"school\"\ncolumns = [\"x\", \"y\"]\n[policy]\nepsilon = 1.0";
    std::fs::write(table.join("rows.csv"), format!("school,x,y\n{}", "a,1,2\na,2,3\n".repeat(20))).unwrap();
    let node = Node::of_keys(toml::from_str(text).unwrap(), &table, None, Vec::new()).unwrap();
    let site: MakeSite = Box::new(move || Site::new(node.clone(), 1));
    let text = "data.source = \"table\"\ndata.path = \"t.csv\"\ndata.client = \"school\"\ndata.target = \"y\"\ndata.task = \"regression\"\nmodel.kind = \"linear\"\n\
        [[method]]\nname = \"fedavg\"\nstep = 0.1\n";
    let experiment = Experiment::parse("test", text, &[]).unwrap();
    let line = Loopback::line(vec![site]);
    let error = run_at(&mut Elsewhere::new(line), &experiment, &Options::default(), &mut Unwatched).err().unwrap();
    assert!(error.to_string().contains("what columns are like"), "{error}");
}

#[test]
fn clients_are_hidden_in_sums_that_machines_add_noise_to() {
    let folder = tempfile::tempdir().unwrap();
    let policy = "allow = [\"sums\", \"descriptions\", \"scores\"]\nrequire = \"secure\"\nepsilon = 1000.0\nprotects = \"client\"";
    let without = here(&CLIENTS.replace("level = \"client\"\nepsilon = 1000.0\nclip = 2.0\n", ""));
    let record = there(machines(&folder.path().join("secure"), &[policy; 4]), CLIENTS);
    assert_eq!(record.summary.methods[0].status, "done", "{:?}", record.summary.methods[0]);
    assert!((mean(&record) - mean(&without)).abs() < 0.2, "{} {}", mean(&record), mean(&without));
    // Where the server sees the sums of each machine, each adds all of the noise.
    let sealed = CLIENTS.replace("\"secure\"", "\"sealed\"");
    let policy = "allow = [\"sums\", \"scores\"]\nepsilon = 1000.0\nprotects = \"client\"";
    let record = there(machines(&folder.path().join("sealed"), &[policy; 4]), &sealed);
    assert_eq!(record.summary.methods[0].status, "done", "{:?}", record.summary.methods[0]);
    assert!(notes(&record).contains("in sums over 4 machines it is 2.0 times"), "{}", notes(&record));
    // Open sums tell the losses of single clients.
    let open = CLIENTS.replace("\"secure\"", "\"open\"");
    let record = there(machines(&folder.path().join("none"), &[""; 4]), &open);
    let said = format!("{:?}", record.summary.methods[0]);
    assert!(said.contains("privacy.sums: \\\"open\\\" tells losses"), "{said}");
}

#[test]
fn what_noise_hides_is_said_before() {
    let shown = |text: &str| Disclosures::of(&Experiment::parse("test", text, &[]).unwrap()).show();
    let rows = shown(ROWS);
    assert!(
        rows.contains("answers to methods have noise in them, which hides single rows: ε = 500 at δ = 1e-5"),
        "{rows}"
    );
    assert!(shown(CLIENTS).contains("sums for methods have noise in them, which hides single clients"));
}

#[test]
fn the_same_question_has_the_same_noise_and_costs_nothing_again() {
    let folder = tempfile::tempdir().unwrap();
    let policy = "allow = [\"single\", \"sums\", \"scores\"]\nepsilon = 500.0";
    let (line, spoken) = overheard(machines(folder.path(), &[policy; 3]));
    there(line, ROWS);
    let account = || std::fs::read_to_string(folder.path().join("1/kinfolk-account/account.json")).unwrap();
    let before = account();
    let spoken = spoken.lock().unwrap();
    let is_training = |message: &[u8]| {
        matches!(wire::decode::<SiteMessage>(message).unwrap().request, Request::Work { phase: Phase::Train, .. })
    };
    // The last one of the second machine.
    let (message, reply) = spoken.iter().filter(|(message, _)| is_training(message)).rev().nth(1).unwrap();
    let text = format!("name = \"machine-1\"\npartition = [1, 3]\n[policy]\n{policy}");
    let node = Node::of_keys(toml::from_str(&text).unwrap(), &folder.path().join("1"), None, Vec::new()).unwrap();
    let (again, _) = Site::new(node.clone(), 1).unwrap().answer(message, &[]).unwrap();
    assert_eq!(&again, reply);
    assert_eq!(account(), before);
    // A server cannot call for rows to be shown by calling training a score, nor for noise that hides nothing.
    let changed = |change: &dyn Fn(&mut Phase, &mut Option<Hidden>)| {
        let mut message: SiteMessage = wire::decode(message).unwrap();
        let Request::Work { phase, hides, .. } = &mut message.request else { panic!("work") };
        change(phase, hides);
        let asked = wire::encode(&message).unwrap();
        Site::new(node.clone(), 1)
            .unwrap()
            .answer(&asked, &[])
            .map(|(reply, _)| wire::decode::<SiteReply>(&reply).unwrap())
    };
    let said = changed(&|phase, _| *phase = Phase::Evaluate).unwrap_err().told();
    assert_eq!(said, "scores are not hidden behind noise");
    let less = |noise: f64| {
        move |_: &mut Phase, hides: &mut Option<Hidden>| {
            if let Some(Hidden::Rows(rows)) = hides {
                rows.noise = noise;
            }
        }
    };
    for noise in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(changed(&less(noise)).unwrap_err().told().contains("noise that hides nothing"), "{noise}");
    }
    let said = changed(&less(0.01)).unwrap_err().told();
    assert!(said.contains("(node.policy.epsilon)"), "{said}");
    let said = changed(&|_, hides| *hides = None).unwrap_err().told();
    assert!(said.contains("without noise that hides single rows"), "{said}");
}
