//! Messages between a server and machines, both ways, and what machines keep in between.

use super::harness::{Inputs, Place, cases, fuzz, seed};
use super::mutate;
use kinfolk::Result;
use kinfolk::experiment::Experiment;
use kinfolk::federation::client::memory::Memories;
use kinfolk::federation::client::node::{Node, Rows};
use kinfolk::federation::client::site::Site;
use kinfolk::federation::engines::remote::{Delivery, Line, MessageKind, Transport};
use kinfolk::federation::wire::{self, SiteMessage, SiteReply};
use kinfolk::rng::Key;
use kinfolk::run::venue::Elsewhere;
use kinfolk::run::{Options, Unwatched, run_at};
use rand::RngExt;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const EXPERIMENTS: [&str; 4] = [
    r#"
[data]
source = "linear"
clients = 6
samples = 12
test_samples = 12
dimension = 2
[model]
kind = "linear"
[[method]]
name = "ifca"
clusters = 2
rounds = 2
[[method]]
name = "odcl"
clustering = "kmeans++"
clusters = 2
[[method]]
name = "local"
solve = "steps"
rounds = 2
[[method]]
name = "sr-fca"
[[method]]
name = "cfl"
rounds = 2
[[method]]
name = "fedsoft"
clusters = 2
rounds = 2
"#,
    r#"
[data]
source = "hierarchical-linear"
clients = 6
true_clusters = 2
[model]
kind = "linear"
intercept = false
[[method]]
name = "hierarchical"
groups = "truth"
[[method]]
name = "l2gd"
groups = "truth"
gamma = 0.2
lambda = 0.3
iterations = 40
chance_between = 0.1
chance_within = 0.2
[[method]]
name = "james-stein"
groups = "truth"
gamma = 0.2
"#,
    r#"
[data]
source = "fedgrem-gaussian"
clients = 4
samples = 24
[model]
kind = "gaussian-mixture"
components = 2
[[method]]
name = "fedgrem"
rounds = 2
[[method]]
name = "mixture-fedem"
rounds = 2
"#,
    r#"
[data]
source = "linear"
clients = 6
samples = 12
test_samples = 12
dimension = 2
[model]
kind = "linear"
[privacy]
sums = "secure"
[[method]]
name = "ifca"
clusters = 2
start = "random"
rounds = 2
"#,
];

const MACHINES: usize = 3;

/// What a machine is started with.
fn site(index: usize) -> Result<Site> {
    Site::new(Node::new(Rows::Partition { index, of: MACHINES }), 1)
}

/// Messages, replies and states as they crossed the wire.
#[derive(Default)]
struct Heard {
    messages: BTreeSet<Vec<u8>>,
    replies: BTreeSet<Vec<u8>>,
    states: BTreeSet<Vec<u8>>,
}

/// Machines in this process; `spoil` may change what they reply.
struct Way<F> {
    states: [Vec<u8>; MACHINES],
    heard: Arc<Mutex<Heard>>,
    spoil: F,
}

impl<F: FnMut(&mut Vec<u8>) + Send> Transport for Way<F> {
    fn machines(&mut self) -> Result<Vec<u64>> {
        Ok((0..MACHINES as u64).collect())
    }

    fn exchange(&mut self, messages: Vec<(u64, Vec<u8>)>, _: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        let mut replies = Vec::new();
        for (number, message) in messages {
            let state = &mut self.states[number as usize];
            let answered = site(number as usize).and_then(|mut site| site.answer(&message, state));
            if let (Ok((reply, after)), Ok(mut heard)) = (&answered, self.heard.lock()) {
                heard.messages.insert(message);
                heard.replies.insert(reply.clone());
                heard.states.insert(after.clone());
                *state = after.clone();
            }
            let delivery = answered.map(|(mut reply, _)| {
                (self.spoil)(&mut reply);
                reply
            });
            replies.push((number, delivery.map_err(|error| error.to_string())));
        }
        Ok(replies)
    }
}

fn run_over(experiment: &str, heard: &Arc<Mutex<Heard>>, spoil: impl FnMut(&mut Vec<u8>) + Send + 'static) -> bool {
    let experiment = Experiment::parse("spoiled", experiment, &[]).expect("an experiment");
    let line: Line = Arc::new(Mutex::new(Box::new(Way { states: Default::default(), heard: heard.clone(), spoil })));
    let options = Options { threads: 1, ..Options::default() };
    run_at(&mut Elsewhere::new(line), &experiment, &options, &mut Unwatched).is_ok()
}

/// What crosses in small runs of many methods.
fn heard() -> Heard {
    let heard = Arc::new(Mutex::new(Heard::default()));
    for experiment in EXPERIMENTS {
        assert!(run_over(experiment, &heard, |_| {}));
    }
    let mut heard = heard.lock().expect("what was heard");
    std::mem::take(&mut *heard)
}

/// A few of many, of every length.
fn some(all: BTreeSet<Vec<u8>>, most: usize) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = all.into_iter().collect();
    all.sort_by_key(Vec::len);
    let step = all.len().div_ceil(most);
    all.into_iter().step_by(step).collect()
}

#[test]
fn message_bytes() {
    fuzz(&Inputs::of("message_bytes", some(heard().messages, 60)), cases(5000, 1), |_, bytes| {
        wire::decode::<SiteMessage>(bytes).is_ok()
    });
}

#[test]
fn reply_bytes() {
    let replies = some(heard().replies, 60);
    // Rolls, single answers, integer sums and masked ones are among them.
    let found: Vec<SiteReply> = replies.iter().map(|bytes| wire::decode(bytes).expect("a reply")).collect();
    assert!(found.iter().any(|reply| matches!(reply, SiteReply::Roll(_))));
    assert!(found.iter().any(|reply| matches!(reply, SiteReply::Replies(single, _) if !single.is_empty())));
    assert!(found.iter().any(|reply| matches!(reply, SiteReply::Replies(_, sums) if !sums.is_empty())));
    assert!(found.iter().any(|reply| matches!(reply, SiteReply::Masked(_) | SiteReply::Shares(_))));
    fuzz(&Inputs::of("reply_bytes", replies), cases(5000, 1), |_, bytes| wire::decode::<SiteReply>(bytes).is_ok());
}

/// Changes a number, a name or a list somewhere in a value; others stay what they are.
fn spoil(value: &mut Value, random: &mut kinfolk::rng::Rng) {
    match value {
        Value::Array(list) if !list.is_empty() => {
            let place = random.random_range(0..list.len());
            match random.random_range(0..8) {
                0 => drop(list.remove(place)),
                1 => list.push(list[place].clone()),
                2 => list.clear(),
                _ => spoil(&mut list[place], random),
            }
        }
        Value::Object(entries) if !entries.is_empty() => {
            let place = random.random_range(0..entries.len());
            entries.values_mut().nth(place).into_iter().for_each(|value| spoil(value, random));
        }
        Value::Number(_) => {
            let whole = [0u64, 1, 2, 3, 7, 255, 65_535, u64::from(u32::MAX), 1 << 40, u64::MAX];
            let real = [-1.0, 0.5, 1e9, -1e140, 1e300, 5e-324, 1e-9];
            *value = match random.random_range(0..2) {
                0 => whole[random.random_range(0..whole.len())].into(),
                _ => real[random.random_range(0..real.len())].into(),
            };
        }
        Value::String(text) => {
            *text =
                ["", "linear", "table", "nobody", "[", "\u{1b}[2J", &text.repeat(40)][random.random_range(0..7)].into();
        }
        Value::Bool(flag) => *flag = !*flag,
        Value::Null | Value::Array(_) | Value::Object(_) => {}
    }
}

/// A message of which parts were changed, but not the way it is written.
fn respelled<M: serde::Serialize + serde::de::DeserializeOwned>(bytes: &[u8], key: &Key) -> Option<Vec<u8>> {
    let message: M = wire::decode(bytes).ok()?;
    let mut value = serde_json::to_value(&message).ok()?;
    let mut random = key.rng();
    for _ in 0..random.random_range(1..4) {
        spoil(&mut value, &mut random);
    }
    wire::encode(&serde_json::from_value::<M>(value).ok()?).ok()
}

/// Whether a machine answers; a panic in it fails, though the machine survives it.
fn answers(site: &mut Site, message: &[u8], state: &[u8]) -> bool {
    match site.answer(message, state) {
        Ok(_) => true,
        Err(error) => {
            assert!(!error.to_string().contains("panicked"), "{error}");
            false
        }
    }
}

#[test]
fn machine_with_spoiled_messages() {
    let heard = heard();
    let (messages, states) = (some(heard.messages, 60), some(heard.states, 20));
    let key = Key::new(seed()).word("respelled");
    let mut site = site(0).expect("a machine");
    fuzz(&Inputs::mixed("machine_with_spoiled_messages", messages.clone()), cases(400, 20), |case, bytes| {
        let key = key.clone().number(case);
        let drawn = key.seed() as usize;
        let (message, state) = (&messages[drawn % messages.len()], &states[drawn % states.len()]);
        let respelled = respelled::<SiteMessage>(message, &key);
        answers(&mut site, bytes, state) | respelled.is_some_and(|bytes| answers(&mut site, &bytes, state))
    });
}

#[test]
fn machine_with_spoiled_states() {
    let heard = heard();
    let messages = some(heard.messages, 60);
    let mut site = site(0).expect("a machine");
    fuzz(&Inputs::mixed("machine_with_spoiled_states", some(heard.states, 30)), cases(400, 20), |case, bytes| {
        answers(&mut site, &messages[case as usize % messages.len()], bytes)
    });
}

/// A file in which a machine keeps what clients remember: refused where its digest does not fit, and harmless where it does.
#[test]
fn memory_files() {
    let heard = heard();
    let (place, messages) = (Place::new(), some(heard.messages, 60));
    let (mut machine, mut kept) = (site(0).expect("a machine"), Vec::new());
    for message in &messages {
        let folder = place.file("whole");
        let _ = std::fs::remove_dir_all(&folder);
        answers_from(&mut machine, message, &folder);
        kept.extend(files(&folder).into_iter().map(|path| {
            let bytes = std::fs::read(&path).expect("a file");
            (message.clone(), path.strip_prefix(&folder).expect("a path").to_path_buf(), bytes)
        }));
    }
    assert!(kept.len() > 3, "{}", kept.len());
    let corpus = kept.iter().map(|(_, _, bytes)| bytes.clone()).collect();
    fuzz(&Inputs::of("memory_files", corpus), cases(400, 20), |case, bytes| {
        let (message, path, whole) = &kept[case as usize % kept.len()];
        let write = |bytes: &[u8]| {
            let folder = place.file("spoiled");
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, bytes).expect("a file");
            folder
        };
        let accepted = answers_from(&mut machine, message, &write(bytes));
        assert!(!accepted || bytes == whole || has_digest(bytes), "a file that does not match its digest was taken");
        let content = bytes.get(32..).unwrap_or_default();
        let digest = Sha256::digest(content);
        answers_from(&mut machine, message, &write(&[&digest[..], content].concat())) | accepted
    });
}

/// Whether a file is one that matches its digest, though another's.
fn has_digest(bytes: &[u8]) -> bool {
    bytes.split_first_chunk::<32>().is_some_and(|(digest, content)| digest[..] == Sha256::digest(content)[..])
}

fn answers_from(site: &mut Site, message: &[u8], folder: &Path) -> bool {
    match site.answer_from(message, &mut Memories::in_folder(folder.to_path_buf(), 10)) {
        Ok(_) => true,
        Err(error) => {
            assert!(!error.to_string().contains("panicked"), "{error}");
            false
        }
    }
}

/// The files two folders below this one.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    entries(folder).iter().flat_map(|run| entries(run)).collect()
}

#[test]
fn server_with_spoiled_replies() {
    let experiments = EXPERIMENTS.map(|text| text.as_bytes().to_vec()).to_vec();
    let key = Key::new(seed()).word("spoiled replies");
    fuzz(&Inputs::of("server_with_spoiled_replies", experiments), cases(30, 200), |case, _| {
        let key = key.clone().number(case);
        // What was heard in all of them would fill the memory.
        let (heard, mut replies) = (Arc::default(), 0);
        run_over(EXPERIMENTS[case as usize % EXPERIMENTS.len()], &heard, move |reply| {
            replies += 1;
            let key = key.clone().number(replies);
            match key.seed() % 4 {
                0 => *reply = mutate::input(std::slice::from_ref(reply), &key, u64::MAX),
                1 => *reply = respelled::<SiteReply>(reply, &key).unwrap_or_default(),
                _ => {}
            }
        });
        // Whether a run survives is the business of other tests; here it must come back.
        true
    });
}
