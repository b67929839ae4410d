//! Messages that come twice, late, in another order or not at all, sites that die and come back from disk, servers that die and go
//! on: a hundred seeded schedules.
//!
//! What comes twice or late changes nothing: a run ends like one in which the same messages were lost and all else went well, bit by
//! bit; where none was lost, like one that was left alone. Whoever was missing is named.

use super::comparable;
use kinfolk::experiment::Experiment;
use kinfolk::federation::client::memory::Memories;
use kinfolk::federation::client::node::{Node, Rows};
use kinfolk::federation::client::site::Site;
use kinfolk::federation::engines::remote::{Delivery, Line, MessageKind, Transport};
use kinfolk::record::Record;
use kinfolk::rng::Key;
use kinfolk::run::venue::Elsewhere;
use kinfolk::run::{Options, Unwatched, run_at};
use kinfolk::{Error, ErrorKind, Result};
use rand::RngExt;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How many there are, and the first. `KINFOLK_SCHEDULES` and `KINFOLK_SCHEDULE` say otherwise.
const SCHEDULES: u64 = 100;
const MACHINES: usize = 3;

/// Clients that remember nothing, and that go on from what they keep.
const EXPERIMENT: &str = r#"
name = "schedules"
evaluate_every = 2
[data]
source = "linear"
clients = 7
samples = 12
test_samples = 6
dimension = 8
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
rounds = 5
step = 0.05
[[method]]
name = "al2sgd+"
groups = "truth"
gamma = 0.2
lambda = 0.3
iterations = 12
chance_between = 0.2
chance_within = 0.3
"#;

/// What happens to a message.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Arrives,
    /// Twice, and the answer that counts is the second.
    Twice,
    /// The site dies before it has read it, comes back, and is asked again.
    KillsBefore,
    /// The site has answered, and dies before the answer left; it comes back, and is asked again.
    KillsAfter,
    /// An earlier message comes once more, before this one or after.
    AfterEarlier(bool),
    /// It gets lost.
    Lost,
    /// The answer gets lost.
    AnswerLost,
    /// It comes after the next one, or after the one after that.
    Late(usize),
}

impl Fate {
    const ALL: [Self; 12] = [
        Self::Twice,
        Self::KillsBefore,
        Self::KillsAfter,
        Self::AfterEarlier(true),
        Self::AfterEarlier(false),
        Self::Twice,
        Self::KillsBefore,
        Self::KillsAfter,
        Self::Lost,
        Self::AnswerLost,
        Self::Late(1),
        Self::Late(2),
    ];
    const HARMLESS: usize = 8;

    fn is_loss(self) -> bool {
        matches!(self, Self::Lost | Self::AnswerLost | Self::Late(_))
    }
}

/// A schedule, by its number.
#[derive(Clone)]
struct Schedule {
    key: Key,
    /// One of so many messages meets with something.
    one_in: u32,
    /// Whether messages and answers get lost.
    loses: bool,
    /// The exchanges at which the server dies, before or after it.
    deaths: Vec<(usize, bool)>,
}

impl Schedule {
    fn new(number: u64) -> Self {
        let key = Key::new(number).word("schedule");
        let mut random = key.rng();
        let loses = number % 2 == 1;
        // A server that dies asks again: which messages were lost then is another question.
        let deaths = if loses { 0 } else { random.random_range(0..3) };
        let deaths = (0..deaths).map(|_| (random.random_range(2..26), random.random())).collect();
        Self { key, one_in: [3, 6, 20][random.random_range(0..3)], loses, deaths }
    }

    fn fate(&self, exchange: usize, machine: u64) -> Fate {
        let mut random = self.key.clone().number(exchange as u64).number(machine).rng();
        if random.random_range(0..self.one_in) > 0 {
            return Fate::Arrives;
        }
        Fate::ALL[random.random_range(0..if self.loses { Fate::ALL.len() } else { Fate::HARMLESS })]
    }
}

/// Three sites of this process, each with a folder in which clients' memories outlast it.
struct Way {
    folder: PathBuf,
    schedule: Schedule,
    /// Whether messages that meet with a loss are simply lost, and all others arrive.
    is_plain: bool,
    exchanges: Arc<Mutex<usize>>,
    sites: [Option<(Site, Memories)>; MACHINES],
    /// Messages that each machine has had, and those on their way, with the exchange after which they arrive.
    earlier: [Vec<Vec<u8>>; MACHINES],
    late: [Vec<(usize, Vec<u8>)>; MACHINES],
    losses: Arc<Mutex<BTreeSet<u64>>>,
}

impl Way {
    fn deliver(&mut self, machine: u64, message: &[u8]) -> Delivery {
        let place = machine as usize;
        if self.sites[place].is_none() {
            let node = Node::new(Rows::Partition { index: place, of: MACHINES });
            let site = Site::new(node, 1).map_err(|error| error.to_string())?;
            self.sites[place] = Some((site, Memories::in_folder(self.folder.join(format!("machine-{machine}")), 20)));
        }
        let (site, memories) = self.sites[place].as_mut().expect("a site");
        let answer = site.answer_from(message, memories);
        assert!(!answer.as_ref().is_err_and(|error| error.to_string().contains("panicked")), "{:?}", answer.err());
        answer.map_err(|error| error.told())
    }

    fn pass(&mut self, exchange: usize, machine: u64, message: Vec<u8>) -> Delivery {
        let place = machine as usize;
        let fate = self.schedule.fate(exchange, machine);
        if fate.is_loss() {
            self.losses.lock().unwrap().insert(machine);
        }
        let silent = Err("no answer".to_string());
        if self.is_plain {
            return if fate.is_loss() { silent } else { self.deliver(machine, &message) };
        }
        let mut random = self.schedule.key.clone().word("earlier").number(exchange as u64).number(machine).rng();
        let earlier = match self.earlier[place].len() {
            0 => None,
            // Mostly the last ones.
            count => Some(self.earlier[place][count - 1 - random.random_range(0..count.min(4))].clone()),
        };
        let answer = match fate {
            Fate::Lost => silent,
            Fate::Late(exchanges) => {
                self.late[place].push((exchange + exchanges, message.clone()));
                silent
            }
            Fate::AnswerLost => self.deliver(machine, &message).and(silent),
            Fate::Arrives => self.deliver(machine, &message),
            Fate::Twice => {
                let _ = self.deliver(machine, &message);
                self.deliver(machine, &message)
            }
            Fate::KillsBefore => {
                self.sites[place] = None;
                self.deliver(machine, &message)
            }
            Fate::KillsAfter => {
                let _ = self.deliver(machine, &message);
                self.sites[place] = None;
                self.deliver(machine, &message)
            }
            Fate::AfterEarlier(is_before) => {
                let earlier = earlier.unwrap_or_else(|| message.clone());
                if is_before {
                    let _ = self.deliver(machine, &earlier);
                }
                let answer = self.deliver(machine, &message);
                if !is_before {
                    let _ = self.deliver(machine, &earlier);
                }
                answer
            }
        };
        self.earlier[place].push(message);
        for (_, message) in self.late[place].extract_if(.., |(due, _)| *due <= exchange).collect::<Vec<_>>() {
            let _ = self.deliver(machine, &message);
        }
        answer
    }
}

impl Transport for Way {
    fn machines(&mut self) -> Result<Vec<u64>> {
        Ok((0..MACHINES as u64).rev().collect())
    }

    fn exchange(&mut self, messages: Vec<(u64, Vec<u8>)>, _: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        let now = {
            let mut exchanges = self.exchanges.lock().unwrap();
            *exchanges += 1;
            *exchanges
        };
        let dies = |after: bool| !self.is_plain && self.schedule.deaths.contains(&(now, after));
        let (dies_before, dies_after) = (dies(false), dies(true));
        let dead = || Err(Error::new(ErrorKind::Stopped, "the server died"));
        if dies_before {
            // What it has sent may still arrive.
            for (machine, message) in messages {
                self.late[machine as usize].push((now + 1, message));
            }
            return dead();
        }
        let mut answers: Vec<(u64, Delivery)> = Vec::new();
        for (machine, message) in messages {
            answers.push((machine, self.pass(now, machine, message)));
        }
        if !self.is_plain {
            // In another order, some twice, and one of somebody who was not asked.
            answers.reverse();
            answers.extend(answers.first().cloned());
            answers.push((99, Ok(vec![1, 2, 3])));
        }
        if dies_after { dead() } else { Ok(answers) }
    }
}

/// How a run ended, and which machines lost a message.
struct Ended {
    outcome: std::result::Result<String, String>,
    record: Option<Record>,
    losses: BTreeSet<u64>,
}

fn run(schedule: &Schedule, is_plain: bool) -> Ended {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let experiment = Experiment::parse("test", EXPERIMENT, &[]).unwrap();
    let (exchanges, losses) = (Arc::default(), Arc::<Mutex<BTreeSet<u64>>>::default());
    let way = Way {
        folder: folder.path().to_path_buf(),
        schedule: schedule.clone(),
        is_plain,
        exchanges,
        sites: Default::default(),
        earlier: Default::default(),
        late: Default::default(),
        losses: losses.clone(),
    };
    // The machines outlast the server.
    let line: Line = Arc::new(Mutex::new(Box::new(way)));
    let mut resume = false;
    let ended = loop {
        let run = folder.path().join("run");
        let options = Options {
            resume: resume && run.exists(),
            folder: Some(run),
            checkpoint_every: Duration::ZERO,
            threads: 1,
            ..Options::default()
        };
        match run_at(&mut Elsewhere::new(line.clone()), &experiment, &options, &mut Unwatched) {
            Err(error) if error.kind() == ErrorKind::Stopped => resume = true,
            ended => break ended,
        }
    };
    let losses = losses.lock().unwrap().clone();
    match ended {
        Ok(record) => Ended { outcome: Ok(comparable(&record)), record: Some(record), losses },
        Err(error) => Ended { outcome: Err(error.to_string()), record: None, losses },
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}: want a whole number")))
}

#[test]
fn whatever_happens_to_messages_the_result_is_right_or_says_who_was_missing() {
    let first = setting("KINFOLK_SCHEDULE").unwrap_or(0);
    let count = setting("KINFOLK_SCHEDULES").unwrap_or(if first > 0 { 1 } else { SCHEDULES });
    let (mut whole, mut missing, mut resumed) = (0, 0, 0);
    let undisturbed = run(&Schedule { one_in: u32::MAX, deaths: Vec::new(), ..Schedule::new(0) }, true).outcome;
    for number in first..first + count {
        let schedule = Schedule::new(number);
        let again = format!("again: KINFOLK_SCHEDULE={number} cargo test -p kinfolk --test integration schedules");
        let found = run(&schedule, false);
        resumed += usize::from(!schedule.deaths.is_empty());
        if found.losses.is_empty() {
            whole += 1;
            assert!(found.outcome == undisturbed, "nothing was lost, and the result is another; {again}");
            continue;
        }
        missing += 1;
        let plain = run(&schedule, true);
        assert_eq!(found.losses, plain.losses, "{again}");
        assert!(found.outcome == plain.outcome, "not as if these messages had simply been lost; {again}");
        let said = found.record.map_or_else(String::new, |record| serde_json::to_string(&record.summary).unwrap());
        let said = found.outcome.err().unwrap_or(said);
        for machine in found.losses {
            assert!(said.contains(&format!("machine {machine}")), "machine {machine} is not named; {again}");
        }
    }
    if count == SCHEDULES {
        assert!(whole > 30 && missing > 30 && resumed > 15, "{whole} {missing} {resumed}");
    }
    println!(
        "{count} schedules: {whole} to the bits of an undisturbed run, {missing} that name who was missing; {resumed} with servers that died"
    );
}
