//! Runs over other machines that end before their time and go on: to the same bits where everybody answers.

mod schedules;

use kinfolk::experiment::Experiment;
use kinfolk::federation::client::memory::Memories;
use kinfolk::federation::client::node::{Node, Rows};
use kinfolk::federation::client::site::Site;
use kinfolk::federation::engines::remote::{Delivery, Line, MessageKind, Transport};
use kinfolk::record::Record;
use kinfolk::run::venue::Elsewhere;
use kinfolk::run::{Options, Unwatched, run_at};
use kinfolk::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const EXPERIMENT: &str = r#"
name = "goes on"
evaluate_every = 2
[data]
source = "linear"
clients = 9
samples = 20
test_samples = 10
dimension = 24
[model]
kind = "linear"
intercept = false
[[method]]
name = "ifca"
clusters = 2
rounds = 4
step = 0.05
[[method]]
name = "local"
rounds = 4
step = 0.05
[[method]]
name = "al2sgd+"
groups = "truth"
gamma = 0.2
lambda = 0.3
iterations = 30
chance_between = 0.1
chance_within = 0.2
"#;

/// When the server dies: at this exchange, before or after the machines have done their part.
#[derive(Clone, Copy)]
enum Death {
    Before(usize),
    After(usize),
    Never,
}

/// Three machines, each of whose messages is answered by a new process that finds what clients remember in a folder.
struct Machines {
    folder: PathBuf,
    there: Vec<u64>,
    exchanges: Arc<Mutex<usize>>,
    death: Death,
}

impl Machines {
    fn line(folder: &Path, there: &[u64], death: Death) -> (Line, Arc<Mutex<usize>>) {
        let exchanges = Arc::new(Mutex::new(0));
        let machines = Self { folder: folder.into(), there: there.to_vec(), exchanges: exchanges.clone(), death };
        (Arc::new(Mutex::new(Box::new(machines))), exchanges)
    }

    fn answer(&self, number: u64, message: &[u8]) -> Result<Vec<u8>> {
        let node = Node::new(Rows::Partition { index: number as usize, of: 3 });
        let mut memories = Memories::in_folder(self.folder.join(format!("machine-{number}")), 20);
        Site::new(node, 1)?.answer_from(message, &mut memories)
    }
}

impl Transport for Machines {
    fn machines(&mut self) -> Result<Vec<u64>> {
        Ok(self.there.clone())
    }

    fn exchange(&mut self, messages: Vec<(u64, Vec<u8>)>, _: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        let now = {
            let mut exchanges = self.exchanges.lock().unwrap();
            *exchanges += 1;
            *exchanges
        };
        let dead = || Err(Error::new(ErrorKind::Stopped, "the server died"));
        if matches!(self.death, Death::Before(when) if when == now) {
            return dead();
        }
        let answer =
            |(number, message): (u64, Vec<u8>)| (number, self.answer(number, &message).map_err(|error| error.told()));
        let replies = messages.into_iter().map(answer).collect();
        if matches!(self.death, Death::After(when) if when == now) { dead() } else { Ok(replies) }
    }
}

fn run(folder: &Path, line: Line, resume: bool) -> Result<Record> {
    let experiment = Experiment::parse("test", EXPERIMENT, &[]).unwrap();
    let (folder, checkpoint_every) = (Some(folder.join("run")), Duration::ZERO);
    let options = Options { folder, resume, checkpoint_every, ..Options::default() };
    run_at(&mut Elsewhere::new(line), &experiment, &options, &mut Unwatched)
}

/// What must be the same: everything but times.
fn comparable(record: &Record) -> String {
    let mut summary = record.summary.clone();
    summary.methods.iter_mut().flat_map(|method| &mut method.repeats).for_each(|repeat| repeat.seconds = 0.0);
    let repeats: Vec<String> =
        summary.methods.iter().map(|method| serde_json::to_string_pretty(&method.repeats).unwrap()).collect();
    let rounds = record.rounds.iter().map(|round| {
        (&round.label, round.round, &round.phase, round.loss, round.metric, round.bytes_down, round.bytes_up)
    });
    let rounds = format!("{:?}", rounds.collect::<Vec<_>>());
    format!("{}\n{rounds}\n{}", repeats.join("\n"), serde_json::to_string_pretty(&record.clients).unwrap())
}

const ALL: &[u64] = &[0, 1, 2];

/// The whole run, and how many exchanges it takes.
fn straight() -> (Record, usize) {
    let folder = tempfile::tempdir().unwrap();
    let (line, exchanges) = Machines::line(folder.path(), ALL, Death::Never);
    let record = run(folder.path(), line, false).unwrap();
    let exchanges = *exchanges.lock().unwrap();
    (record, exchanges)
}

#[test]
fn a_server_that_dies_goes_on_to_the_same_bits() {
    let (whole, exchanges) = straight();
    assert!(exchanges > 20, "{exchanges}");
    for moment in 0..10 {
        let when = 2 + moment * (exchanges - 3) / 9;
        let death = if moment % 2 == 0 { Death::Before(when) } else { Death::After(when) };
        let folder = tempfile::tempdir().unwrap();
        let (line, _) = Machines::line(folder.path(), ALL, death);
        let error = run(folder.path(), line, false).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Stopped, "{error}");
        // It dies once more on the way, two exchanges later.
        let (line, _) = Machines::line(folder.path(), ALL, Death::After(3));
        let again = run(folder.path(), line, true);
        let (line, _) = Machines::line(folder.path(), ALL, Death::Never);
        let record = again.unwrap_or_else(|_| run(folder.path(), line, true).unwrap());
        assert_eq!(comparable(&record), comparable(&whole), "died at exchange {when} of {exchanges}");
    }
}

#[test]
fn a_machine_that_is_gone_or_has_lost_its_disk_is_one_less_and_that_is_said() {
    let (_, exchanges) = straight();
    for is_gone in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (line, _) = Machines::line(folder.path(), ALL, Death::Before(exchanges - 5));
        run(folder.path(), line, false).err().unwrap();
        let there: &[u64] = if is_gone { &[0, 2] } else { ALL };
        std::fs::remove_dir_all(folder.path().join("machine-1")).unwrap();
        let (line, _) = Machines::line(folder.path(), there, Death::Never);
        let record = run(folder.path(), line, true).unwrap();
        assert_eq!(record.clients.len(), 27);
        let notes = &record.summary.methods[2].repeats[0].notes;
        let said = if is_gone { "not there when the run went on" } else { "wanted, found none" };
        assert!(notes.iter().any(|note| note.starts_with("machine 1:") && note.contains(said)), "{notes:?}");
        assert_ne!(record.summary.methods[2].repeats[0].status, "failed");
    }
}

#[test]
fn a_run_does_not_go_on_without_machines() {
    let folder = tempfile::tempdir().unwrap();
    let (line, _) = Machines::line(folder.path(), ALL, Death::Before(8));
    run(folder.path(), line, false).err().unwrap();
    let experiment = Experiment::parse("test", EXPERIMENT, &[]).unwrap();
    let (line, _) = Machines::line(folder.path(), &[], Death::Never);
    let options = Options { folder: Some(folder.path().join("run")), resume: true, ..Options::default() };
    let error = run_at(&mut Elsewhere::new(line), &experiment, &options, &mut Unwatched).err().unwrap();
    assert!(error.to_string().contains("there are no machines"), "{error}");
}
