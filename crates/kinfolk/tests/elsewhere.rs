//! Whole runs with clients on other machines: the same bits as here, and honest about what gets lost.

use crate::loopback::{Loopback, MakeSite};
use kinfolk::experiment::Experiment;
use kinfolk::federation::client::node::{Node, Rows, TableRows};
use kinfolk::federation::client::site::Site;
use kinfolk::federation::engines::remote::{Delivery, Line, MessageKind, Transport};
use kinfolk::federation::wire::{self, ClientReply, Request, SiteMessage, SiteReply};
use kinfolk::federation::work::{Losses, Work};
use kinfolk::record::{Record, RoundRecord};
use kinfolk::run::venue::Elsewhere;
use kinfolk::run::{Options, Unwatched, Watch, run, run_at};
use kinfolk::{ErrorKind, Result};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

const DIGITS: &str = r#"
name = "elsewhere"
repeat = 2
[data]
source = "digits"
clients = 12
samples = 40
test_samples = 20
clusters = "rotate"
true_clusters = 2
[model]
kind = "softmax"
[[method]]
name = "ifca"
clusters = 2
rounds = 4
step = 0.5
[[method]]
name = "odcl"
clustering = "kmeans++"
clusters = 2
[[method]]
name = "local"
"#;

fn partitions(of: usize) -> Line {
    let site = |index: usize| -> MakeSite { Box::new(move || Site::new(Node::new(Rows::Partition { index, of }), 1)) };
    Loopback::line((0..of).map(site).collect())
}

fn tables(paths: &[&String]) -> Line {
    let site = |path: &&String| -> MakeSite {
        let texts = |list: &[&str]| list.iter().map(|text| text.to_string()).collect();
        let rows = TableRows {
            path: path.into(),
            client: "client".into(),
            columns: texts(&["colour", "x", "y"]),
            words: texts(&["colour"]),
            test_fraction: 0.2,
            split_seed: 0,
        };
        Box::new(move || Site::new(Node::new(Rows::Table(rows.clone())), 1))
    };
    Loopback::line(paths.iter().map(site).collect())
}

fn run_elsewhere(line: Line, text: &str, folder: Option<&Path>) -> Result<Record> {
    let experiment = Experiment::parse("test", text, &[]).unwrap();
    let options = Options { folder: folder.map(Path::to_path_buf), ..Options::default() };
    run_at(&mut Elsewhere::new(line), &experiment, &options, &mut Unwatched)
}

/// A record without what differs from run to run: times, what only rows that are here can tell, and where clients' own
/// models are.
fn comparable(record: &Record) -> String {
    let mut summary = record.summary.clone();
    for repeat in summary.methods.iter_mut().flat_map(|method| &mut method.repeats) {
        repeat.seconds = 0.0;
        repeat.notes.retain(|note| !note.starts_with("personal models"));
    }
    let methods: Vec<String> =
        summary.methods.iter().map(|method| serde_json::to_string_pretty(&method.repeats).unwrap()).collect();
    let clients = serde_json::to_string_pretty(&record.clients).unwrap();
    format!("{}\n{}\n{clients}", summary.data, methods.join("\n"))
}

#[test]
fn the_same_bits_as_here() {
    let experiment = Experiment::parse("test", DIGITS, &[]).unwrap();
    let options = Options { single_answers: true, ..Options::default() };
    let here = run(&experiment, &options, &mut Unwatched).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let there = run_elsewhere(partitions(3), DIGITS, Some(&folder.path().join("run"))).unwrap();
    assert_eq!(comparable(&here), comparable(&there));
    assert_eq!(there.summary.methods[0].repeats[0].misclustering, Some(0.0));
    // Personal models stay with their clients.
    assert!(folder.path().join("run/models/ifca/0/cluster-0.safetensors").exists());
    assert!(!folder.path().join("run/models/local/0").exists());
}

/// Digits with two methods, of which one gives clients models of their own.
const PERSONAL: &str = r#"
name = "elsewhere"
[data]
source = "digits"
clients = 12
samples = 40
test_samples = 20
[model]
kind = "softmax"
[[method]]
name = "fedavg"
rounds = 1
step = 0.5
[[method]]
name = "local"
rounds = 2
step = 0.5
"#;

/// Three machines that keep their clients' own models in folders of their own.
fn keeping(folder: &Path) -> Line {
    let site = |index: usize| -> MakeSite {
        let mut node = Node::new(Rows::Partition { index, of: 3 });
        node.name = Some(format!("north-{index}"));
        node.models = Some(folder.join(format!("machine-{index}/models")));
        Box::new(move || Site::new(node.clone(), 1))
    };
    Loopback::line((0..3).map(site).collect())
}

#[test]
fn personal_models_are_kept_on_their_machines_and_it_is_said_where() {
    let experiment = Experiment::parse("test", PERSONAL, &[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("here");
    let options = Options { single_answers: true, folder: Some(here.clone()), ..Options::default() };
    run(&experiment, &options, &mut Unwatched).unwrap();
    let there = run_elsewhere(keeping(folder.path()), PERSONAL, Some(&folder.path().join("there"))).unwrap();
    for client in 0..12 {
        let name = format!("local/0/client-{client}.safetensors");
        let kept = folder.path().join(format!("machine-{}/models/elsewhere/{name}", client / 4));
        assert_eq!(std::fs::read(kept).unwrap(), std::fs::read(here.join("models").join(&name)).unwrap(), "{client}");
    }
    let table = std::fs::read_to_string(folder.path().join("machine-1/models/elsewhere/local/0/clients.csv")).unwrap();
    assert!(table.starts_with("client,file\n4,client-4.safetensors\n"), "{table}");
    let repeats: Vec<_> = there.summary.methods.iter().map(|method| &method.repeats[0]).collect();
    let said = |machine: usize| {
        format!("personal models of 4 clients are kept on their machine, north-{machine}: models/elsewhere/local/0")
    };
    (0..3).for_each(|machine| assert!(repeats[1].notes.contains(&said(machine)), "{:?}", repeats[1].notes));
    assert!(repeats[0].notes.iter().all(|note| !note.contains("personal")), "{:?}", repeats[0].notes);
    // Where no machine has a folder for them, that is said as well.
    let nowhere = run_elsewhere(partitions(3), PERSONAL, Some(&folder.path().join("nowhere"))).unwrap();
    let notes = &nowhere.summary.methods[1].repeats[0].notes;
    let said = "personal models of 4 clients are kept nowhere: machine 0 has no folder for them (node.models)";
    assert!(notes.iter().any(|note| note == said), "{notes:?}");
}

#[test]
fn a_server_cannot_fill_a_disk_or_leave_the_folder_of_models() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::new(Rows::Partition { index: 0, of: 3 });
    node.models = Some(folder.path().join("models"));
    node.limits.kept = 2;
    let names = ["../../out", "two", "three"];
    let notes: Vec<Vec<String>> = names
        .iter()
        .map(|name| {
            let site: MakeSite = Box::new({
                let node = node.clone();
                move || Site::new(node.clone(), 1)
            });
            let text = PERSONAL.replace("\"elsewhere\"", &format!("{name:?}"));
            let out = folder.path().join("runs").join(name.replace(['.', '/'], "_"));
            let record = run_elsewhere(Loopback::line(vec![site]), &text, Some(&out)).unwrap();
            record.summary.methods[1].repeats[0].notes.clone()
        })
        .collect();
    let refused = "folders of clients' own models: got 3, this machine allows 2 (node.limits.kept)";
    assert!(notes[2].iter().any(|note| note.contains(refused)), "{notes:?}");
    let kept: Vec<String> = std::fs::read_dir(folder.path().join("models"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(kept.iter().any(|name| name.starts_with("______out-")), "{kept:?}");
}

#[derive(Default)]
struct Planned(Vec<(String, usize, usize)>);

impl Watch for Planned {
    fn planned(&mut self, label: &str, questions: usize, seeds: usize) {
        self.0.push((label.into(), questions, seeds));
    }
    fn round(&mut self, _: &RoundRecord) {}
}

#[test]
fn the_number_of_questions_is_said_before_the_run_and_again_when_it_is_known_better() {
    let text = "[data]\nsource = \"linear\"\nclients = 6\nsamples = 20\ndimension = 3\n[model]\nkind = \"linear\"\n\
                [[method]]\nname = \"fedavg\"\nrounds = 20\nstep = 0.1\n\
                [[method]]\nname = \"al2sgd+\"\ngroups = \"one\"\ngamma = 0.5\nlambda = 0.5\niterations = 400\n";
    let experiment = Experiment::parse("test", text, &[]).unwrap();
    let mut planned = Planned::default();
    let asked = Arc::new(Mutex::new(0));
    let counted = asked.clone();
    let line = way(move |_, messages, _| *counted.lock().unwrap() += usize::from(!messages.is_empty()));
    run_at(&mut Elsewhere::new(line), &experiment, &Options::default(), &mut planned).unwrap();
    // Twenty rounds, scored after ten and twenty.
    assert_eq!(planned.0[0], ("fedavg".to_string(), 22, 1));
    let last = planned.0.iter().rfind(|(label, ..)| label == "al2sgd+").unwrap().1;
    let (asked, others) = (*asked.lock().unwrap(), 1 + 22);
    let found = asked - others;
    assert!(found * 2 > last && found < last * 2, "{found} questions, {last} were said");
}

/// What happens on the way to the machines and back.
struct Way<F> {
    inner: Line,
    exchanges: usize,
    happens: F,
}

impl<F: FnMut(usize, &mut Vec<(u64, Vec<u8>)>, &mut Vec<(u64, Delivery)>) + Send> Transport for Way<F> {
    fn machines(&mut self) -> Result<Vec<u64>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).machines()
    }

    /// The messages may be changed before the replies are there, the replies after.
    fn exchange(&mut self, mut messages: Vec<(u64, Vec<u8>)>, kind: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        self.exchanges += 1;
        (self.happens)(self.exchanges, &mut messages, &mut Vec::new());
        let mut replies = self.inner.lock().unwrap_or_else(PoisonError::into_inner).exchange(messages, kind)?;
        (self.happens)(self.exchanges, &mut Vec::new(), &mut replies);
        Ok(replies)
    }
}

/// A way to three machines on which this happens.
fn way<F>(happens: F) -> Line
where
    F: FnMut(usize, &mut Vec<(u64, Vec<u8>)>, &mut Vec<(u64, Delivery)>) + Send + 'static,
{
    Arc::new(Mutex::new(Box::new(Way { inner: partitions(3), exchanges: 0, happens })))
}

#[test]
fn a_machine_that_falls_silent_is_said_and_the_others_go_on() {
    // One exchange meets the machines; the second machine is there for two rounds more.
    let line = way(|number, messages, _| messages.retain(|(machine, _)| number < 4 || *machine != 1));
    let record = run_elsewhere(line, DIGITS, None).unwrap();
    let repeat = &record.summary.methods[0].repeats[0];
    assert_eq!((repeat.status.as_str(), repeat.rounds), ("done", 4));
    let said = repeat.notes.iter().find(|note| note.starts_with("machine 1: no answer to")).unwrap();
    assert!(said.contains("asks from 4, 5, 6, 7: no answer"), "{said}");
    let clusters: Vec<bool> =
        record.clients.iter().take(12).map(|client| client.cluster.is_some() && client.metric.is_some()).collect();
    assert_eq!(clusters, [[true; 4], [false; 4], [true; 4]].concat());
    assert_eq!(repeat.misclustering, Some(0.0));
    for method in &record.summary.methods[..2] {
        // The second seed begins without that machine.
        let [_, second] = &method.repeats[..] else { panic!("{} repeats", method.repeats.len()) };
        assert_eq!(second.status, "done", "{:?}", second.reason);
        assert_eq!(second.notes[0], "left out: machine 1: it did not say who is there");
        assert_eq!(second.misclustering, Some(0.0));
    }
}

#[test]
fn a_reply_that_got_lost_costs_one_ask_and_no_state() {
    let text = "[data]\nsource = \"linear\"\nclients = 6\nsamples = 20\ndimension = 4\n\
                [model]\nkind = \"linear\"\n[[method]]\nname = \"local\"\nsolve = \"steps\"\nrounds = 5\nstep = 0.1\n";
    let whole = run_elsewhere(partitions(3), text, None).unwrap();
    // The second machine does the work of the third round; its reply does not arrive.
    let line = way(|number, _, replies| replies.retain(|(machine, _)| number != 4 || *machine != 1));
    let record = run_elsewhere(line, text, None).unwrap();
    let repeat = &record.summary.methods[0].repeats[0];
    assert!(
        repeat.notes.iter().any(|note| note == "machine 1: no answer to one ask from 2, 3: no answer"),
        "{:?}",
        repeat.notes
    );
    assert!(record.clients.iter().all(|client| client.metric.is_some()));
    let metric = |record: &Record, place: usize| record.clients[place].metric;
    for place in 0..6 {
        assert_eq!(metric(&record, place) == metric(&whole, place), ![2, 3].contains(&place), "client {place}");
    }
}

/// Has the second machine lie in its replies.
fn lies(lie: impl Fn(&mut Vec<ClientReply>) + Send + 'static) -> Record {
    let line = way(move |_, _, replies| {
        for (_, delivery) in replies.iter_mut().filter(|(machine, _)| *machine == 1) {
            let Ok(bytes) = delivery else { continue };
            if let Ok(SiteReply::Replies(mut told, summed)) = wire::decode(bytes) {
                lie(&mut told);
                *bytes = wire::encode(&SiteReply::Replies(told, summed)).unwrap();
            }
        }
    });
    run_elsewhere(line, &DIGITS.replace("repeat = 2", "repeat = 1"), None).unwrap()
}

#[test]
fn what_a_machine_makes_up_counts_for_nothing() {
    let truth = run_elsewhere(partitions(3), &DIGITS.replace("repeat = 2", "repeat = 1"), None).unwrap();
    let twice = lies(|replies| {
        let again = replies.clone();
        replies.extend(again);
        replies.push(ClientReply { client: 99, order: 99, reply: Err("?".into()) });
    });
    assert_eq!(comparable(&twice), comparable(&truth));
    // Its four clients are 0 to 3 to itself, whatever they are to others: under no other number can it speak for anybody.
    let for_others = lies(|replies| {
        let mut lies = replies.clone();
        for (place, lie) in lies.iter_mut().enumerate() {
            lie.client = 4 + place as u32;
            let mut told = lie.reply.clone().unwrap().unpack();
            told.vector.iter_mut().for_each(|vector| vector.fill(9.0));
            lie.reply = Ok(told.pack(kinfolk::models::Precision::F32));
        }
        replies.splice(0..0, lies);
    });
    assert_eq!(comparable(&for_others), comparable(&truth));
    let silent = lies(Vec::clear);
    let without = lies(|replies| {
        for reply in replies {
            let mut told = reply.reply.clone().unwrap().unpack();
            // Only what is scored counts rows and hits: more hits than rows cannot be.
            if let [_, rows, hits] = &mut told.counts[..] {
                *hits = *rows + 2;
            }
            reply.reply = Ok(told.pack(kinfolk::models::Precision::F32));
        }
    });
    for record in [silent, without] {
        assert!(record.clients[4..8].iter().all(|client| client.metric.is_none()));
        let repeat = &record.summary.methods[0].repeats[0];
        assert_eq!((repeat.status.as_str(), repeat.rounds), ("done", 4));
    }
}

fn first_model(request: &mut Request) -> &mut (u32, Arc<kinfolk::models::Packed>) {
    match request {
        Request::Work { models, .. } => &mut models[0],
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_message_ends_a_machine() {
    let mut site = Site::new(Node::new(Rows::Partition { index: 0, of: 3 }), 1).unwrap();
    let sent: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let seen = sent.clone();
    let line = way(move |_, messages, _| {
        seen.lock()
            .unwrap()
            .extend(messages.iter().filter(|(machine, _)| *machine == 0).map(|(_, bytes)| bytes.clone()));
    });
    run_elsewhere(line, &DIGITS.replace("repeat = 2", "repeat = 1"), None).unwrap();
    let messages = sent.lock().unwrap().clone();
    let asks = messages.iter().map(|bytes| wire::decode::<SiteMessage>(bytes).unwrap());
    let has_models =
        |message: &SiteMessage| matches!(&message.request, Request::Work { models, .. } if !models.is_empty());
    let ask = asks.into_iter().find(has_models).unwrap();
    let mut refuse = |change: &dyn Fn(&mut Request)| {
        let mut changed = ask.clone();
        change(&mut changed.request);
        site.answer(&wire::encode(&changed).unwrap(), b"").unwrap_err().to_string()
    };
    assert!(refuse(&|request| first_model(request).0 = u32::MAX).contains("models in an ask: got 4294967296"));
    let short = Arc::new(kinfolk::models::Packed::F32(vec![0.0; 3]));
    assert!(refuse(&|request| first_model(request).1 = short.clone()).contains("a model of 3 numbers"));
    let elsewhere = |request: &mut Request| {
        if let Request::Work { orders, .. } = request {
            let on = kinfolk::training::Portion::Fold { index: 0, of: 0 };
            orders[0].work = Work::Losses(Losses { of: vec![0], on });
        }
    };
    assert!(refuse(&elsewhere).contains("names part 0 of 0"));
    for cut in [0, 1, 2, 10, 50] {
        let bytes = wire::encode(&ask).unwrap();
        site.answer(&bytes[..cut], b"").unwrap_err();
    }
}

#[test]
fn tables_stay_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, clients: &[(&str, f64)]| {
        let mut text = "client,colour,x,y\n".to_string();
        for (id, slope) in clients {
            for row in 0..60 {
                let (x, colour) = (f64::from(row) - 29.5, if row % 2 == 0 { "red" } else { "blue" });
                text += &format!("{id},{colour},{x},{}\n", slope * x + 0.01 * f64::from(row % 3));
            }
        }
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (north, south) = ([("a", 2.0), ("c", -2.0), ("e", 2.0)], [("b", -2.0), ("d", 2.0), ("f", -2.0)]);
    let mut everybody: Vec<(&str, f64)> = [north, south].concat();
    everybody.sort_by_key(|(id, _)| *id);
    let paths = [write("north.csv", &north), write("south.csv", &south)];
    let all = write("all.csv", &everybody);
    let text = |path: &str| {
        format!(
            "[data]\nsource = \"table\"\npath = \"{path}\"\nclient = \"client\"\ntarget = \"y\"\nstandardise = true\n\
             [model]\nkind = \"linear\"\n[[method]]\nname = \"odcl\"\nclustering = \"kmeans++\"\nclusters = 2\n"
        )
    };
    let experiment = Experiment::parse("test", &text(&all), &[]).unwrap();
    let here = run(&experiment, &Options { single_answers: true, ..Options::default() }, &mut Unwatched).unwrap();
    let there = run_elsewhere(tables(&[&paths[0], &paths[1]]), &text("on each machine"), None).unwrap();
    assert_eq!(comparable(&here), comparable(&there));
    let clusters: Vec<Option<usize>> = there.clients.iter().map(|client| client.cluster).collect();
    assert_eq!(clusters, [0, 1, 1, 0, 0, 1].map(Some));

    // Who is on two machines takes part once.
    let twice = run_elsewhere(tables(&[&paths[0], &paths[0]]), &text("on each machine"), None).unwrap();
    let notes = &twice.summary.methods[0].repeats[0].notes;
    let said = "left out: clients a, c, e of machine 1: machine 0 has a client of that name";
    assert!(twice.clients.len() == 3 && notes.iter().any(|note| note == said), "{notes:?}");
    // A server cannot have a machine read a file that the machine did not name.
    let refused = run_elsewhere(partitions(2), &text(&all), None).err().unwrap();
    assert!(refused.to_string().contains("machine 0: data source table has no partitions"), "{refused}");
}

#[test]
fn what_cannot_be_done_elsewhere_is_refused_before_any_work() {
    let refused = run_elsewhere(Loopback::line(Vec::new()), DIGITS, None).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Federation);
    let refused = run_elsewhere(partitions(13), DIGITS, None).err().unwrap();
    assert!(refused.to_string().contains("at most 12 partitions for 12 clients"), "{refused}");
    let unseen = DIGITS.replace("samples = 40", "samples = 40\nunseen_clients = 4");
    let refused = run_elsewhere(partitions(3), &unseen, None).err().unwrap();
    assert!(refused.to_string().starts_with("data.unseen_clients"), "{refused}");
}
