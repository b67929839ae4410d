//! Secure sums over machines, as whole runs: the bits of one process, machines that die in every phase, a server that lies, and runs
//! that go on.

use crate::loopback::{Loopback, MakeSite};
use crate::sealed::{comparable, digits, here, overheard, partitions, there};
use kinfolk::data::{Client, DataShape, Features, Shard, Targets};
use kinfolk::experiment::Experiment;
use kinfolk::federation::client::memory::Memories;
use kinfolk::federation::client::node::{Node, Rows};
use kinfolk::federation::client::site::Site;
use kinfolk::federation::engines::remote::{Delivery, Line, MessageKind, Transport};
use kinfolk::federation::wire::{self, Request, SiteMessage, SiteReply};
use kinfolk::record::Record;
use kinfolk::run::venue::Elsewhere;
use kinfolk::run::{Disclosures, Options, Unwatched, run_at};
use kinfolk::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn secure() -> String {
    digits().replace("sums = \"sealed\"", "sums = \"secure\"")
}

/// A record without what is said of machines.
fn without_machines(mut record: Record) -> String {
    for repeat in record.summary.methods.iter_mut().flat_map(|method| &mut method.repeats) {
        repeat.notes.retain(|note| !note.starts_with("secure sums over "));
    }
    comparable(&record)
}

fn notes(record: &Record) -> Vec<String> {
    record.summary.methods.iter().flat_map(|method| &method.repeats).flat_map(|repeat| repeat.notes.clone()).collect()
}

#[test]
fn machines_of_any_number_give_the_bits_of_one_process_and_of_sums_that_are_seen() {
    let alone = here(&secure());
    let sealed = here(&digits());
    for (secure, sealed) in alone.summary.methods.iter().zip(&sealed.summary.methods) {
        let metric = |method: &kinfolk::record::MethodSummary| method.repeats[0].metric.clone().unwrap().mean;
        if secure.label != "ifca" {
            assert_eq!(metric(secure), metric(sealed), "{}: no slot is small", secure.label);
        }
    }
    let alone = without_machines(alone);
    for machines in [3, 4, 10] {
        let record = there(partitions(machines), &secure());
        let said = match machines {
            3 => "secure sums over 3 machines: with fewer than four of them none may be missing",
            4 => "secure sums over 4 machines: 3 of them have to help to open one",
            _ => "secure sums over 10 machines: 7 of them have to help to open one",
        };
        assert!(notes(&record).iter().any(|note| note == said), "{:?}", notes(&record));
        assert_eq!(without_machines(record), alone, "{machines} machines");
    }
}

/// A run's kind of message in secure sums.
fn phase(message: &[u8]) -> &'static str {
    match wire::decode::<SiteMessage>(message).unwrap().request {
        Request::Hello { .. } => "hello",
        Request::Introduce => "introduce",
        Request::Meet(_) => "meet",
        Request::Mask { .. } => "mask",
        Request::Unmask(_) => "unmask",
        Request::Forget => "forget",
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_but_masked_sums_and_shares_leaves_a_machine_in_two_questions_an_ask() {
    let (line, spoken) = overheard(partitions(3));
    there(line, &secure());
    let spoken = spoken.lock().unwrap();
    let count = |wanted: &str| spoken.iter().filter(|(message, _)| phase(message) == wanted).count();
    let asks = count("mask");
    assert_eq!((count("unmask"), count("introduce"), count("meet"), count("forget")), (asks, 15, 15, 15));
    for (message, reply) in spoken.iter() {
        let is_meant = matches!(
            (phase(message), wire::decode(reply).unwrap()),
            ("hello", SiteReply::Roll(_))
                | ("introduce", SiteReply::Card(_))
                | ("meet" | "forget", SiteReply::Done)
                | ("mask", SiteReply::Masked(_))
                | ("unmask", SiteReply::Shares(_))
        );
        assert!(is_meant, "{}", phase(message));
    }
}

#[test]
fn what_would_be_told_is_said_before() {
    let shown = |text: &str| Disclosures::of(&Experiment::parse("test", text, &[]).unwrap()).show();
    let secure = shown(&secure());
    assert!(secure.contains("with three machines none may be missing; from four on more than two thirds"), "{secure}");
    // Names, rows and groups are told of each client, before the first method.
    let (before, after) = secure.split_once("method ifca").unwrap();
    assert!(before.contains("each client") && !after.contains("each client"), "{secure}");
    assert!(after.contains("sums over all machines") && shown(&digits()).contains("sums over a machine's clients"));
}

/// Machines some of which do not answer: (machine, phase, at which message of that phase; for how many).
struct Faulty {
    inner: Line,
    silent: Vec<(u64, &'static str, usize, usize)>,
    seen: Vec<(u64, &'static str)>,
}

impl Faulty {
    fn line(inner: Line, silent: &[(u64, &'static str, usize, usize)]) -> Line {
        Arc::new(Mutex::new(Box::new(Self { inner, silent: silent.to_vec(), seen: Vec::new() })))
    }
}

impl Transport for Faulty {
    fn machines(&mut self) -> Result<Vec<u64>> {
        self.inner.lock().unwrap().machines()
    }

    fn exchange(&mut self, messages: Vec<(u64, Vec<u8>)>, kind: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        let mut heard = Vec::new();
        for (number, message) in messages {
            let of = (number, phase(&message));
            let at = self.seen.iter().filter(|seen| **seen == of).count();
            self.seen.push(of);
            let is_silent = |(machine, phase, from, times): &(u64, &str, usize, usize)| {
                (*machine, *phase) == of && (*from..from + times).contains(&at)
            };
            if !self.silent.iter().any(is_silent) {
                heard.push((number, message));
            }
        }
        self.inner.lock().unwrap().exchange(heard, kind)
    }
}

/// Twelve clients and one method.
fn short(method: &str) -> String {
    format!("{}[[method]]\n{method}\nstep = 0.5\nrounds = 4\n", secure().split("[[method]]").next().unwrap())
}

#[test]
fn a_machine_that_dies_in_any_phase_costs_its_clients_or_the_sum_and_it_is_said() {
    const FOR_EVER: usize = 1000;
    let text = short("name = \"fedavg\"");
    let whole = there(partitions(5), &text);
    let models = |record: &Record| record.summary.methods[0].repeats[0].metric.clone().unwrap();
    for (phase, times, is_whole) in [
        ("introduce", 1, false),
        ("meet", 1, false),
        ("mask", 1, false),
        ("mask", FOR_EVER, false),
        // Four of five open a sum.
        ("unmask", 1, true),
        ("unmask", FOR_EVER, true),
        ("forget", 1, true),
    ] {
        let at = usize::from(times == 1 && !["introduce", "meet", "forget"].contains(&phase));
        let record = there(Faulty::line(partitions(5), &[(2, phase, at, times)]), &text);
        let method = &record.summary.methods[0];
        assert_eq!(method.status, "done", "{phase}: {method:?}");
        assert_eq!(models(&record) == models(&whole), is_whole, "{phase}, {times}");
        let said = notes(&record).into_iter().filter(|note| note.starts_with("machine 2: ")).collect::<Vec<_>>();
        let wanted = match phase {
            "unmask" => "opened without its help",
            "forget" => "may still have its keys",
            _ => "no answer to",
        };
        assert!(said.len() == 1 && said[0].contains(wanted), "{phase}: {said:?}");
    }
    // Of three, none may be missing.
    for phase in ["mask", "unmask"] {
        let record = there(Faulty::line(partitions(3), &[(2, phase, 1, 1)]), &text);
        let method = &record.summary.methods[0];
        assert_eq!(method.status, "done", "{phase}: the other rounds are whole");
        let said = notes(&record);
        assert!(said.iter().any(|note| note.starts_with("machine 2: no answer to one ask")), "{phase}: {said:?}");
        let missing = said.iter().find(|note| note.contains("answers were missing over all rounds"));
        assert!(missing.is_some_and(|note| note.starts_with("12 answers")), "{phase}: {said:?}");
    }
    let record = there(Faulty::line(partitions(3), &[(2, "introduce", 0, 1)]), &text);
    let said = format!("{:?}", record.summary.methods[0]);
    assert!(said.contains("2 machines with 8 clients take part, want at least 3 machines"), "{said}");
}

#[test]
fn every_pattern_of_five_machines_is_the_sum_of_those_who_sent_or_said_to_be_none() {
    let text = short("name = \"fedavg\"").replace("rounds = 4", "rounds = 1\nmissing = \"skip\"");
    let mut seen = BTreeSet::new();
    // Any that do not send, with some that do not help; and of those who all sent, some that do not help.
    let mute = (0..32u64).map(|mute| (mute, if mute % 3 == 0 { mute.rotate_left(2) & 31 } else { 0 }));
    let absent = [1, 2, 16, 3, 20, 31].map(|absent| (0, absent));
    for (mute, absent) in mute.chain(absent) {
        let silent: Vec<_> = (0..5)
            .flat_map(|machine| {
                let mask = (mute & (1 << machine) != 0).then_some((machine, "mask", 0, 1));
                let unmask = (absent & (1 << machine) != 0).then_some((machine, "unmask", 0, 1));
                [mask, unmask]
            })
            .flatten()
            .collect();
        let record = there(Faulty::line(partitions(5), &silent), &text);
        let left = 5 - mute.count_ones() as usize;
        let helpers = (0..5u64).filter(|machine| (mute | absent) & (1 << machine) == 0).count();
        let is_exact = left >= 3 && helpers > 2 * left / 3;
        let trained = record.rounds.iter().find(|round| round.phase == "train").and_then(|round| round.loss);
        assert_eq!(trained.is_some(), is_exact, "{mute:b} {absent:b}: {:?}", notes(&record));
        if !is_exact || mute != 0 {
            let said = format!("{:?}", record.summary.methods);
            assert!(said.contains("no answer to"), "{mute:b} {absent:b}: {said}");
        }
        seen.insert((is_exact, trained.map(f64::to_bits), if is_exact { mute } else { 0 }));
    }
    // The loss of round one is that of those who sent: one for each pattern of senders.
    let exact: Vec<_> = seen.iter().filter(|(is_exact, ..)| *is_exact).collect();
    let senders: BTreeSet<u64> = exact.iter().map(|(_, _, mute)| *mute).collect();
    assert_eq!(exact.len(), senders.len(), "whoever helps, the sum is the same");
    assert!(senders.len() >= 6, "{senders:?}");
}

/// Machines with files of their own, and clients with ids of their own.
struct Office {
    folder: PathBuf,
    nodes: Vec<Node>,
}

fn shard(from: f64) -> Shard {
    let values = (0..40).map(|place| (from + place as f64).sin()).collect();
    let targets = (0..20).map(|place| (from * 2.0 + place as f64).cos()).collect();
    Shard::new(Features::F64 { columns: 2, values }, Targets::Values(targets)).unwrap()
}

impl Office {
    /// As many machines as there are policies, with one client each.
    fn new(folder: &Path, policies: &[String]) -> Self {
        let node = |(place, policy): (usize, &String)| {
            let own = folder.join(place.to_string());
            std::fs::create_dir_all(&own).unwrap();
            let train = shard(place as f64);
            let client = Client { id: place.to_string(), test: train.clone(), train, group: None, truth: None };
            let given = Rows::Given(vec![client], DataShape::numbers(2, 0));
            let keys = toml::from_str(&format!("name = \"m{place}\"\n[policy]\n{policy}")).unwrap();
            Node::of_keys(keys, &own, Some(given), Vec::new()).unwrap()
        };
        Self { folder: folder.into(), nodes: policies.iter().enumerate().map(node).collect() }
    }

    fn line(&self) -> Line {
        let site = |node: &Node| -> MakeSite {
            let node = node.clone();
            Box::new(move || Site::new(node.clone(), 1))
        };
        Loopback::line(self.nodes.iter().map(site).collect())
    }

    fn identity(&self, place: usize) -> String {
        self.nodes[place].public_identity().unwrap().unwrap()
    }
}

const LINEAR: &str = r#"
name = "office"
[data]
source = "linear"
[model]
kind = "linear"
intercept = false
[privacy]
sums = "secure"
[[method]]
name = "fedavg"
rounds = 3
step = 0.1
"#;

const ALONE: &str = "allow = [\"sums\", \"descriptions\"]\nrequire = \"secure\"";

#[test]
fn a_machine_with_one_client_takes_part_in_secure_sums_alone() {
    let folder = tempfile::tempdir().unwrap();
    let office = Office::new(folder.path(), &[ALONE; 4].map(String::from));
    let record = there(office.line(), LINEAR);
    assert_eq!(record.summary.methods[0].status, "done", "{:?}", record.summary.methods[0]);
    assert_eq!(record.summary.methods[0].repeats[0].status, "done");
    let account = std::fs::read_to_string(folder.path().join("0/kinfolk-account/account.json")).unwrap();
    assert!(account.contains(&format!("machine {}", office.identity(1))), "{account}");
    // Sums that the server sees, and single answers, it refuses.
    for sums in ["sealed", "open"] {
        let record = there(office.line(), &LINEAR.replace("\"secure\"", &format!("\"{sums}\"")));
        let said = format!("{:?}", record.summary.methods[0]);
        assert!(said.contains("alone leave this machine"), "{said}");
    }
    // Nor is it described where the machine does not say so, which comes before everything.
    let silent =
        Office::new(&folder.path().join("silent"), &[ALONE; 4].map(|policy| policy.replace(", \"descriptions\"", "")));
    let experiment = Experiment::parse("test", LINEAR, &[]).unwrap();
    let error = run_at(&mut Elsewhere::new(silent.line()), &experiment, &Options::default(), &mut Unwatched);
    let said = error.err().unwrap().to_string();
    assert!(said.contains("a sum over 1 client: this machine wants at least 3"), "{said}");
}

#[test]
fn a_machine_wants_the_minimum_that_its_own_file_says() {
    let folder = tempfile::tempdir().unwrap();
    let policies = [ALONE, ALONE, ALONE, ALONE, &format!("{ALONE}\nminimum_machines = 5")].map(String::from);
    let office = Office::new(folder.path(), &policies);
    let record = there(office.line(), LINEAR);
    assert_eq!(record.summary.methods[0].repeats[0].status, "done", "the other four go on");
    let said = notes(&record);
    let wanted = "sums over at least 3 clients on 3 machines, this machine wants at least 3 clients on 5 machines";
    assert!(said.iter().any(|note| note.starts_with("m4: ") && note.contains(wanted)), "{said:?}");
    // Other work, as the same was in sums of four.
    let five = LINEAR.replace("\"secure\"", "\"secure\"\nminimum_machines = 5").replace("step = 0.1", "step = 0.2");
    let record = there(office.line(), &five);
    assert!(notes(&record).iter().all(|note| !note.starts_with("m4: ")), "{:?}", notes(&record));
}

/// A server that puts keys of its own on the roster in place of a machine's.
struct Impostor {
    inner: Line,
    cards: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Answers for a machine that it has made up.
    own: Site,
    state: Vec<u8>,
}

impl Transport for Impostor {
    fn machines(&mut self) -> Result<Vec<u64>> {
        self.inner.lock().unwrap().machines()
    }

    fn exchange(&mut self, messages: Vec<(u64, Vec<u8>)>, kind: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        let (mine, theirs): (Vec<_>, Vec<_>) =
            messages.into_iter().partition(|(number, message)| *number == 1 && phase(message) != "hello");
        let mut replies = self.inner.lock().unwrap().exchange(theirs, kind)?;
        for (number, message) in mine {
            let answered = self.own.answer(&message, &self.state).map(|(reply, state)| {
                self.state = state;
                self.cards.lock().unwrap().push(reply.clone());
                reply
            });
            replies.push((number, answered.map_err(|error| error.told())));
        }
        replies.sort_by_key(|(number, _)| *number);
        Ok(replies)
    }
}

#[test]
fn a_server_that_swaps_keys_is_found_out_by_machines_that_know_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let run = |policy: &str| {
        let office = Office::new(&folder.path().join(policy.len().to_string()), &[policy; 4].map(String::from));
        let posing = Office::new(&folder.path().join("posing"), &["", ""].map(String::from));
        let own = Site::new(posing.nodes[1].clone(), 1).unwrap();
        let (inner, cards) = (office.line(), Arc::default());
        there(Arc::new(Mutex::new(Box::new(Impostor { inner, cards, own, state: Vec::new() }))), LINEAR)
    };
    let office = Office::new(&folder.path().join(ALONE.len().to_string()), &[ALONE; 4].map(String::from));
    // Without a list, nobody notices.
    assert_eq!(run(ALONE).summary.methods[0].status, "done");
    let peers = (0..4).map(|place| format!("\"{}\"", office.identity(place))).collect::<Vec<_>>().join(", ");
    let knowing = format!("{ALONE}\npeers = [{peers}]");
    // The same machines, with a list.
    let again = folder.path().join(knowing.len().to_string());
    for place in 0..4 {
        std::fs::create_dir_all(again.join(place.to_string())).unwrap();
        let from = folder.path().join(ALONE.len().to_string()).join(place.to_string()).join("kinfolk-identity");
        std::fs::copy(from, again.join(place.to_string()).join("kinfolk-identity")).unwrap();
    }
    let honest = Office::new(&again, &[knowing.clone(), knowing.clone(), knowing.clone(), knowing.clone()]);
    assert_eq!(there(honest.line(), LINEAR).summary.methods[0].status, "done");
    let record = run(&knowing);
    let said = format!("{:?}", record.summary.methods[0]);
    assert!(record.summary.methods[0].status == "failed" && said.contains("does not know the identity"), "{said}");
}

#[test]
fn the_same_work_is_not_done_again_for_other_machines_in_any_run() {
    let folder = tempfile::tempdir().unwrap();
    let office = Office::new(folder.path(), &[String::new(), String::new(), String::new(), String::new()]);
    let experiment = LINEAR.replace("rounds = 3", "rounds = 1");
    let first = there(office.line(), &experiment);
    assert_eq!(first.summary.methods[0].repeats[0].status, "done");
    // Another run, in which the last machine is said to be missing.
    let again = there(Faulty::line(office.line(), &[(3, "mask", 0, 1000)]), &experiment);
    let said = format!("{:?}", again.summary.methods[0]);
    assert!(said.contains("the same work and models were in a sum with other machines"), "{said}");
    let trained = again.rounds.iter().filter(|round| round.phase == "train").find_map(|round| round.loss);
    assert_eq!(trained, None, "{said}");
    // Among the same it tells nothing new; and other models are other work.
    assert_eq!(comparable(&there(office.line(), &experiment)), comparable(&first));
    let other =
        there(Faulty::line(office.line(), &[(3, "mask", 0, 1000)]), &experiment.replace("step = 0.1", "step = 0.2"));
    assert_eq!(other.summary.methods[0].repeats[0].status, "done", "{:?}", other.summary.methods[0]);
    assert!(office.folder.join("0/kinfolk-account/opened").exists());
}

/// Four machines, each of whose messages is answered by a new process that finds what it remembers in a folder; the server dies at
/// some exchange.
struct Restarted {
    folder: PathBuf,
    exchanges: Arc<Mutex<usize>>,
    death: Option<usize>,
    /// Before which exchange the last machine loses all that it remembers.
    loss: Option<usize>,
}

impl Transport for Restarted {
    fn machines(&mut self) -> Result<Vec<u64>> {
        Ok((0..4).collect())
    }

    fn exchange(&mut self, messages: Vec<(u64, Vec<u8>)>, _: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        let now = {
            let mut exchanges = self.exchanges.lock().unwrap();
            *exchanges += 1;
            *exchanges
        };
        if self.loss == Some(now) {
            std::fs::remove_dir_all(self.folder.join("machine-3")).unwrap();
        }
        let answer = |(number, message): (u64, Vec<u8>)| {
            let node = Node::new(Rows::Partition { index: number as usize, of: 4 });
            let mut memories = Memories::in_folder(self.folder.join(format!("machine-{number}")), 20);
            let answer = Site::new(node, 1).and_then(|mut site| site.answer_from(&message, &mut memories));
            (number, answer.map_err(|error| error.told()))
        };
        let replies = messages.into_iter().map(answer).collect();
        if self.death == Some(now) { Err(Error::new(ErrorKind::Stopped, "the server died")) } else { Ok(replies) }
    }
}

#[test]
fn a_machine_that_has_lost_its_keys_is_one_less() {
    let text = short("name = \"fedavg\"");
    // Before a sum is masked, and before it is opened.
    for (loss, rounds) in [(6, 3), (7, 3)] {
        let folder = tempfile::tempdir().unwrap();
        let machines =
            Restarted { folder: folder.path().into(), exchanges: Arc::default(), death: None, loss: Some(loss) };
        let record = there(Arc::new(Mutex::new(Box::new(machines))), &text);
        assert_eq!(record.summary.methods[0].status, "done");
        let said = notes(&record);
        let lost = said.iter().find(|note| note.starts_with("machine 3: no answer to"));
        assert!(lost.is_some_and(|note| note.contains("has lost them")), "{loss}: {said:?}");
        let trained = record.rounds.iter().filter(|round| round.phase == "train" && round.loss.is_some()).count();
        assert!(trained > rounds, "{loss}: {said:?}");
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn a_run_goes_on_with_the_same_bits_after_the_server_and_every_machine_died() {
    let text = short("name = \"ifca\"\nclusters = 2");
    let run = |folder: &Path, death: Option<usize>, resume: bool| {
        let exchanges = Arc::new(Mutex::new(0));
        let machines = Restarted { folder: folder.into(), exchanges: exchanges.clone(), death, loss: None };
        let experiment = Experiment::parse("test", &text, &[]).unwrap();
        let (folder, checkpoint_every) = (Some(folder.join("run")), Duration::ZERO);
        let options = Options { folder, resume, checkpoint_every, ..Options::default() };
        let line: Line = Arc::new(Mutex::new(Box::new(machines)));
        let record = run_at(&mut Elsewhere::new(line), &experiment, &options, &mut Unwatched);
        let exchanges = *exchanges.lock().unwrap();
        (record, exchanges)
    };
    let folder = tempfile::tempdir().unwrap();
    let (whole, exchanges) = run(folder.path(), None, false);
    let whole = comparable(&whole.unwrap());
    assert!(exchanges > 12, "{exchanges}");
    // After the keys, after masks that were not opened, after sums that were.
    for death in [3, 4, 5, 6, 9, exchanges / 2, exchanges - 1] {
        let folder = tempfile::tempdir().unwrap();
        let (died, _) = run(folder.path(), Some(death), false);
        assert_eq!(died.unwrap_err().kind(), ErrorKind::Stopped);
        let files = files_below(&folder.path().join("machine-0"));
        #[cfg(unix)]
        for file in files.iter().filter(|file| file.extension().is_some_and(|it| it == "state")) {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
        }
        let (again, _) = run(folder.path(), None, true);
        assert_eq!(comparable(&again.unwrap()), whole, "died in exchange {death} of {exchanges}");
    }
}

/// Adds up the bytes and the seconds of training, which begins when the second round is asked for: open sums send single vectors in the first.
struct Weighed {
    inner: Line,
    found: Arc<Mutex<(usize, usize, usize, Duration)>>,
}

impl Transport for Weighed {
    fn machines(&mut self) -> Result<Vec<u64>> {
        self.inner.lock().unwrap().machines()
    }

    fn exchange(&mut self, messages: Vec<(u64, Vec<u8>)>, kind: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        let down: usize = messages.iter().map(|(_, message)| message.len()).sum();
        let began = std::time::Instant::now();
        let replies = self.inner.lock().unwrap().exchange(messages, kind)?;
        let up = |(_, reply): &(u64, Delivery)| reply.as_ref().map_or(0, Vec::len);
        if kind == MessageKind::Train {
            let mut found = self.found.lock().unwrap();
            let (exchanges, sent, heard, spent) = &mut *found;
            *exchanges += 1;
            (*sent, *heard) = (*sent + down, *heard + replies.iter().map(up).sum::<usize>());
            *spent += began.elapsed();
        }
        Ok(replies)
    }
}

#[test]
#[ignore = "prints what secure sums cost beside open ones: `cargo nextest run -p kinfolk --test integration what_secure --run-ignored only --no-capture`"]
fn what_secure_sums_cost() {
    const ROUNDS: usize = 11;
    let experiment = |sums: &str, method: &str, rounds: usize| {
        let head = digits().split("[privacy]").next().unwrap().replace("\"softmax\"", "\"mlp\"\nhidden = [64]");
        let head = head
            .replace("clients = 12\nsamples = 40\ntest_samples = 20", "clients = 40\nsamples = 25\ntest_samples = 10");
        format!(
            "evaluate_every = 1000\nsums = \"{sums}\"\n{head}[privacy]\nsums = \"SUMS\"\n[[method]]\n{method}\nstep = 0.1\nrounds = {rounds}\n"
        )
    };
    let weigh = |machines: usize, text: &str| {
        let found = Arc::default();
        let line: Line =
            Arc::new(Mutex::new(Box::new(Weighed { inner: partitions(machines), found: Arc::clone(&found) })));
        there(line, text);
        *found.lock().unwrap()
    };
    // Of ten rounds: eleven less the first.
    let rounds = |machines: usize, privacy: &str, method: &str| {
        let sums = if privacy == "open" { "integer" } else { "auto" };
        let text = |rounds: usize| experiment(sums, method, rounds).replace("SUMS", privacy);
        let (all, first) = (weigh(machines, &text(ROUNDS)), weigh(machines, &text(1)));
        (all.0 - first.0, all.1 - first.1, all.2 - first.2, all.3.saturating_sub(first.3))
    };
    println!(
        "method, machines: exchanges a round; bytes up, down and both against open integer sums; milliseconds a round, of open ones"
    );
    for (name, method) in [
        ("fedavg", "name = \"fedavg\""),
        ("ifca, 2", "name = \"ifca\"\nclusters = 2\nstart = \"random\""),
        ("ifca, 4", "name = \"ifca\"\nclusters = 4\nstart = \"random\""),
    ] {
        for machines in [3, 5, 10] {
            let (open, secure) = (rounds(machines, "open", method), rounds(machines, "secure", method));
            let ratio = |one: usize, other: usize| one as f64 / other as f64;
            println!(
                "{name}, {machines}: {}; {:.2} {:.2} {:.2}; {:.0} {:.0}; {} bytes up a round and machine",
                secure.0 as f64 / (ROUNDS - 1) as f64,
                ratio(secure.2, open.2),
                ratio(secure.1, open.1),
                ratio(secure.1 + secure.2, open.1 + open.2),
                secure.3.as_secs_f64() * 1e3 / (ROUNDS - 1) as f64,
                open.3.as_secs_f64() * 1e3 / (ROUNDS - 1) as f64,
                secure.2 / (ROUNDS - 1) / machines,
            );
        }
    }
}
