//! The clients of one machine: a message comes in as bytes, is answered with the machine's own data on all cores, and goes
//! out as bytes.
//!
//! A message carries everything needed to answer it except the data, which the machine finds itself, and the clients'
//! state, which the caller keeps between messages. So each may be answered by a new process.

use super::account::Books;
use super::guard;
use super::masking;
use super::memory::{Kept, Memories, Memory};
use super::node::{Limits, Node, Rows, TableRows};
use super::policy::{Form, Release, Spending, Wanted, tells};
use crate::compute::threads;
use crate::data::files::Notation;
use crate::data::schema::{Description, FeaturesSchema, Schema};
use crate::data::table::{Small, TableSettings};
use crate::data::{self, Cells, Client, Features, Part, Population, Source, Targets, table};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::engines::Engine;
use crate::federation::engines::local::LocalFederation;
use crate::federation::fixed::{SumOrder, Totals};
use crate::federation::hidden::AddedBy;
use crate::federation::sealed::{Blocks, SealedOrder, SealedSum};
use crate::federation::wire::{
    self, ClientReply, DataOrder, KeptModels, Member, ModelOrder, Request, Roll, SiteMessage, SiteOrder, SiteReply,
    read_settings, roll_of,
};
use crate::federation::{Ask, Gather, Order, Params, Phase, Recipients};
use crate::modelfile;
use crate::models::{Packed, Precision};
use crate::privacy::Hidden;
use crate::privacy::accountant::Mechanism;
use crate::privacy::noise;
use crate::privacy::rows::{RowPrivacy, Spent};
use crate::settings::{Declared, Settings, finish, number};
use crate::text::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::Value;

impl Node {
    fn load(&self, order: &DataOrder) -> Result<Here> {
        let source = data::source(&order.source).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("data source {} is not known here", order.source))
        })?;
        let here = match &self.rows {
            Rows::Given(clients, shape) => {
                let true_clusters = clients.iter().filter_map(|client| client.truth).max().map(|last| last + 1);
                let clients = clients.clone();
                Here::all(Population { clients, true_clusters, shape: *shape, ..Population::default() })
            }
            Rows::Table(own) => Here::all(own.load(source, order)?),
            Rows::Partition { index, of } => {
                // No server may have a machine read arbitrary files.
                if source.settings.iter().any(|setting| setting.name == "path") {
                    return Err(Error::settings(format!("data source {} has no partitions", source.name))
                        .hint("say with table = \"/path/to/rows.csv\" in [node] where this machine's rows are")
                        .open());
                }
                let settings = read_settings("data", source.settings, &order.settings).map_err(Error::open)?;
                self.limits.check_dataset(&settings)?;
                Here::part(source, &settings, order.seed, Part { index: *index, of: *of })?
            }
            Rows::Share { index, of } => {
                let settings = read_settings("data", source.settings, &order.settings)?;
                Here::part(source, &settings, order.seed, Part { index: *index, of: *of })?
            }
        };
        let here = here.without_small(self.minimum_rows)?;
        Limits::check("clients", here.population.clients.len() as f64, "clients", self.limits.clients)?;
        Ok(here)
    }
}

impl Limits {
    fn check_dataset(&self, settings: &Settings) -> Result<()> {
        let given = |name: &str| settings.get(name).and_then(number);
        let rows = given("samples").unwrap_or(0.0) + given("test_samples").unwrap_or(0.0);
        let rows = rows * (given("clients").unwrap_or(1.0) + given("unseen_clients").unwrap_or(0.0));
        Self::check("rows of the dataset", rows, "rows", self.rows)?;
        let numbers = rows * given("dimension").unwrap_or(1.0);
        Self::check("numbers of the dataset", numbers, "numbers", self.numbers)
    }
}

impl TableRows {
    /// The table's clients, if the experiment wants nothing that this machine forbids.
    fn load(&self, source: &Source, order: &DataOrder) -> Result<Population> {
        if source.name != "table" {
            let message = format!("this machine has a table, the experiment asks for {}", source.name);
            let hint = "set data.source = \"table\" in the experiment, or partition in the machine's own file";
            return Err(Error::settings(message).hint(hint).open());
        }
        let mut given: toml::Table = toml::from_str(&order.settings).unwrap_or_default();
        given.insert("path".into(), Value::String(self.path.display().to_string()));
        let text = toml::to_string(&given).unwrap_or_default();
        let settings = read_settings("data", source.settings, &text).map_err(Error::open)?;
        let mut settings = TableSettings::of(&settings);
        self.check(&settings)?;
        settings.drop.retain(|name| self.columns.contains(name));
        settings.words.retain(|name| self.columns.contains(name));
        (settings.small, settings.unseen_clients) = (Small::Drop, 0.0);
        let population = table::build_only(&settings, self.split_seed, &self.columns)?;
        self.check_words(&settings, &population)?;
        // Every machine would number the true clusters of its table differently.
        let unnamed = |client: Client| Client { truth: None, ..client };
        let clients = population.clients.into_iter().map(unnamed).collect();
        Ok(Population { clients, true_clusters: None, ..population })
    }

    /// Refuses an experiment that wants other columns or other rows.
    fn check(&self, settings: &TableSettings) -> Result<()> {
        let mut faults = Vec::new();
        let client = &settings.client;
        if *client != self.client {
            faults.push(format!("data.client: got `{client}`, this machine's clients are named by `{}`", self.client));
        }
        for (name, wanted) in [("target", &settings.target), ("group", &settings.group), ("truth", &settings.truth)] {
            let Some(wanted) = wanted else { continue };
            if !self.columns.contains(wanted) {
                let allowed = self.columns.join(", ");
                faults.push(format!("data.{name}: got `{wanted}`, this machine lets be read {allowed}"));
            } else if name == "group" && !self.words.contains(wanted) {
                faults.push(format!("data.group: got `{wanted}`, which is not among this machine's words"));
            }
        }
        let fraction = settings.test_fraction;
        if fraction != self.test_fraction {
            let own = self.test_fraction;
            faults
                .push(format!("data.test_fraction: got {fraction}, this machine keeps {own} of its rows for testing"));
        }
        let chosen = [("part", &settings.part), ("time", &settings.time), ("weight", &settings.weight)];
        for (name, _) in chosen.into_iter().filter(|(_, column)| column.is_some()) {
            faults.push(format!("data.{name}: this machine divides its rows itself, and counts them alike"));
        }
        if settings.spoiling.outliers > 0.0 {
            faults.push("data.outliers: rows of real machines are not spoiled, want 0".into());
        }
        finish(faults.into_iter().map(Error::settings).collect())
            .map_err(|error| error.hint("[node] in the machine's own file decides what is read").open())
    }

    /// Refuses columns whose cells would leave the machine without its permission.
    fn check_words(&self, settings: &TableSettings, population: &Population) -> Result<()> {
        let Some(first) = population.clients.first() else { return Ok(()) };
        let mut faults = Vec::new();
        if let Features::Columns(columns) = &**first.train.features() {
            for column in columns.iter().filter(|column| !self.words.contains(&column.name)) {
                let Cells::Words(words) = &column.values else { continue };
                let odd = words.iter().filter(|word| word.parse::<f64>().is_err()).count();
                let (name, all) = (&column.name, words.len());
                let message =
                    format!("column `{name}`: {odd} of {all} rows are no numbers, and it is not among node.words");
                faults.push(Error::data(message));
            }
        }
        if let (Targets::Words(_), Some(target)) = (&**first.train.targets(), &settings.target)
            && !self.words.iter().any(|word| word == target)
        {
            let message =
                format!("column `{target}`: its cells would leave as names of classes, and it is not among node.words");
            faults.push(Error::data(message));
        }
        let hint = "mend the cells, or name the column in words of the machine's own file: every different cell of it \
                    then leaves the machine; a target of numbers stays one with data.task = \"regression\"";
        finish(faults).map_err(|error| error.hint(hint).open())
    }
}

struct Here {
    population: Population,
    /// The place of each client among all; empty where that is not known.
    places: Vec<u64>,
    /// Number of clients left out because they have too few rows.
    left_out: usize,
    log: Vec<String>,
}

impl Here {
    fn all(mut population: Population) -> Self {
        let log = std::mem::take(&mut population.remarks);
        Self { population, places: Vec::new(), left_out: 0, log }
    }

    /// A part of the clients of a source, which makes the others only where it cannot do without.
    fn part(source: &Source, settings: &Settings, seed: u64, part: Part) -> Result<Self> {
        let (population, places) = source.build_part(settings, seed, part)?;
        population.check()?;
        Ok(Self { places: places.map(|place| place as u64).collect(), ..Self::all(population) })
    }

    /// Leaves out clients with fewer training rows than the minimum, and held-out rows where there are fewer.
    fn without_small(mut self, minimum: usize) -> Result<Self> {
        let enough: Vec<bool> = self.population.clients.iter().map(|client| client.train.len() >= minimum).collect();
        let all = enough.len();
        let said = |client: &Client, rows: usize| format!("{} ({rows})", client.id);
        let small = self.population.clients.iter().filter(|client| client.train.len() < minimum);
        let small: Vec<String> = small.map(|client| said(client, client.train.len())).collect();
        if small.len() == all {
            let message = format!("none of the {all} clients here has {minimum} training rows");
            let hint = "node.minimum_rows in the machine's own file says how many are wanted; objects of your own say \
                        how many they have with an attribute rows";
            return Err(Error::data(message).hint(hint).open());
        }
        if !small.is_empty() {
            self.log.push(format!("left out, with fewer than {minimum} training rows: {}", small.join(", ")));
            self.left_out = small.len();
        }
        keep_where(&mut self.population.clients, &enough);
        keep_where(&mut self.population.outliers, &enough);
        keep_where(&mut self.places, &enough);
        let mut unscored = Vec::new();
        for client in &mut self.population.clients {
            // What the user's own code holds out shows only in its scores.
            let rows = client.test.len();
            if (1..minimum).contains(&rows) && !matches!(**client.test.features(), Features::Own(_)) {
                unscored.push(said(client, rows));
                client.test = client.test.pick(&[]);
            }
        }
        if !unscored.is_empty() {
            self.log.push(format!("not scored, with fewer than {minimum} held-out rows: {}", unscored.join(", ")));
        }
        Ok(self)
    }
}

impl Here {
    /// Leaves out clients that came since sums left, until they are enough: sums with and without them would tell about them.
    fn have_wait(&mut self, node: &Node, books: &Books) -> Result<()> {
        let account = books.read()?;
        let waiting = node.policy.waiting(&account, self.population.clients.iter().map(|client| client.id.as_str()));
        let taken: Vec<bool> =
            self.population.clients.iter().map(|client| !waiting.contains(client.id.as_str())).collect();
        if !waiting.is_empty() {
            let names: Vec<&str> = waiting.iter().copied().collect();
            let least = node.policy.minimum_clients;
            self.log.push(format!("left out until there are {least} new clients: {}", names.join(", ")));
            self.left_out += waiting.len();
        }
        keep_where(&mut self.population.clients, &taken);
        keep_where(&mut self.population.outliers, &taken);
        keep_where(&mut self.places, &taken);
        Ok(())
    }
}

fn keep_where<T>(list: &mut Vec<T>, kept: &[bool]) {
    let mut kept = kept.iter();
    list.retain(|_| kept.next().copied().unwrap_or(true));
}

/// What an answer tells: for every order, about whom.
#[derive(Default)]
struct Told {
    /// The run that it counts for, where there is one: roll calls are before any.
    run: Option<String>,
    releases: Vec<Release>,
    /// What it spends where noise hides clients, or their rows.
    spent: Spending,
    /// Whether it is told later, and only looked at now.
    waits: bool,
}

/// The parts of a message that were prepared, and the result.
struct Prepared {
    data: DataOrder,
    schema: Option<Schema>,
    model: Option<ModelOrder>,
    /// Without the clients, which are in the federation.
    here: Here,
    federation: LocalFederation,
    roll: String,
}

/// The clients of one machine.
pub struct Site {
    node: Node,
    pool: Arc<rayon::ThreadPool>,
    /// For the last message; the next one usually needs the same.
    prepared: Option<Prepared>,
    log: Vec<String>,
    /// What the last message asked for.
    about: String,
    settle: Option<Settle>,
}

/// Writes a fitted model that knows these clients, by their encoded rows, into a folder, and says how many there are. The model comes as
/// text without theirs; the notation is that of the machine's table.
pub type Settle = fn(model: &str, clients: &[Client], notation: &Notation, folder: &Path) -> Result<usize>;

impl Site {
    /// A machine with this many threads (0: one for every core).
    pub fn new(node: Node, thread_count: usize) -> Result<Self> {
        Ok(Self {
            node,
            pool: threads(thread_count)?,
            prepared: None,
            log: Vec::new(),
            about: String::new(),
            settle: None,
        })
    }

    /// The same, where fitted models may be written.
    pub fn with_models(self, settle: Settle) -> Self {
        Self { settle: Some(settle), ..self }
    }

    /// Answers a message: the reply, and the clients' state. `state` is that of the previous answer in the same run, and empty
    /// at first. No message ends the program. The server may hear [`Error::told`] of an error.
    pub fn answer(&mut self, message: &[u8], state: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
        self.unharmed(|site| {
            let read = site.read(message)?;
            let before = if state.is_empty() { None } else { Some(wire::decode(state)?) };
            let mut memory = Memory::of(before, &read)?;
            if let Some(again) = site.repeated(message) {
                return Ok((again, state.to_vec()));
            }
            let (reply, told) = site.try_to_answer(read, &mut memory)?;
            let (reply, memory) = (wire::encode(&reply)?, wire::encode(&memory)?);
            site.settle(message, &reply, told)?;
            Ok((reply, memory))
        })
    }

    /// The same where this process remembers its clients' state, and perhaps a folder: a process that follows goes on with it.
    pub fn answer_from(&mut self, message: &[u8], memories: &mut Memories) -> Result<Vec<u8>> {
        self.unharmed(|site| {
            if let Some(again) = site.repeated(message) {
                return Ok(again);
            }
            let (reply, told) = site.remember_and_answer(message, memories)?;
            let reply = wire::encode(&reply)?;
            site.settle(message, &reply, told)?;
            Ok(reply)
        })
    }

    /// The same with the totals of sums apart, for processes that add these up among themselves.
    pub fn answer_apart(&mut self, message: &[u8], memories: &mut Memories) -> Result<(Vec<u8>, Totals)> {
        self.unharmed(|site| {
            let (mut reply, told) = site.remember_and_answer(message, memories)?;
            site.settle(message, &[], told)?;
            let totals = match &mut reply {
                SiteReply::Replies(_, sums) => Totals::take_out(sums),
                _ => Totals::default(),
            };
            Ok((wire::encode(&reply)?, totals))
        })
    }

    fn remember_and_answer(&mut self, message: &[u8], memories: &mut Memories) -> Result<(SiteReply, Told)> {
        let message = self.read(message)?;
        let mut memory = memories.find(&message)?;
        let answer = self.try_to_answer(message, &mut memory)?;
        memories.keep(memory)?;
        Ok(answer)
    }

    /// Where it is written what was told, if the policy wants to know, or a budget is spent. Processes of the run itself have nobody to
    /// protect from it.
    fn books(&self, spends: bool) -> Result<Option<Books>> {
        if !self.node.policy.counts() && (!spends || self.node.is_part_of_run()) {
            return Ok(None);
        }
        let folder = self.node.account.as_deref();
        let folder = folder.ok_or_else(|| Error::settings("node.policy.account: missing, want a folder"))?;
        Ok(Some(Books::at(folder)))
    }

    /// The answer to a message that was answered before: what was told costs nothing a second time, and noise is not drawn again.
    fn repeated(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let again = Books::at(self.node.account.as_deref()?).answer_to(message)?;
        self.about = "the same question again, which gets the same answer".into();
        Some(again)
    }

    /// Takes note of what an answer tells, before it leaves; an error if it may not.
    fn settle(&self, message: &[u8], reply: &[u8], Told { run, releases, spent, waits }: Told) -> Result<()> {
        let books = self.books(!spent.is_empty())?;
        let Some(books) = books.filter(|_| !waits && !releases.is_empty()) else { return Ok(()) };
        let (policy, runs) = (&self.node.policy, self.node.limits.kept);
        books.settle(message, reply, |account| policy.charge(account, run.as_deref(), (&releases, &spent), runs))
    }

    /// The same before it is computed, as far as that is known.
    fn check_account(&self, Told { run, releases, .. }: &Told) -> Result<()> {
        let Some(books) = self.books(false)? else { return Ok(()) };
        let told = (&releases[..], &Spending::new());
        self.node.policy.charge(&books.read()?, run.as_deref(), told, self.node.limits.kept).map(drop)
    }

    /// Turns a panic into an error.
    fn unharmed<R>(&mut self, answer: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        catch_unwind(AssertUnwindSafe(|| answer(self))).unwrap_or_else(|_| {
            self.prepared = None;
            Err(Error::federation("this machine panicked over a message; its log says where"))
        })
    }

    /// What this machine decides about its clients.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// What the last message asked for, in words for the machine's own log.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Remarks since the last call, for the machine's own log only.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    fn read(&self, message: &[u8]) -> Result<SiteMessage> {
        let most = self.node.limits.message_bytes;
        Limits::check("bytes in a message", message.len() as f64, "message_bytes", most)?;
        wire::decode(message)
    }

    fn try_to_answer(&mut self, mut message: SiteMessage, memory: &mut Memory) -> Result<(SiteReply, Told)> {
        let limits = self.node.limits;
        self.prepare(&message)?;
        self.about = self.describe(&message);
        let mut told = self.told_by(&message, memory)?;
        self.check_account(&told)?;
        let Some(prepared) = &mut self.prepared else { return Err(Error::federation("nothing is prepared")) };
        // In a secure sum, work is done as in any other, and masked before it leaves.
        let (request, turn) = match std::mem::replace(&mut message.request, Request::Forget) {
            Request::Mask { turn, work } => (*work, Some(turn)),
            request => (request, None),
        };
        let changed = || Error::federation("the clients of this machine have changed since the run began");
        let count = prepared.federation.host.clients().len();
        let reply = match request {
            Request::Export { .. } | Request::Import { .. } if !self.node.is_part_of_run() => {
                return Err(Error::federation("what clients remember stays on this machine"));
            }
            Request::Hello { moments } => {
                memory.clients.clear();
                let together = !self.node.policy.allows_single();
                SiteReply::Roll(prepared.roll_call(moments, together, self.node.name.clone()))
            }
            Request::Work { roll, stamp, phase, models, orders, hides } if roll == prepared.roll => {
                let hides = hides.map(|hidden| self.node.hides(hidden, phase)).transpose()?;
                let ask = prepared.ask(phase, &models, &orders, &limits)?;
                let works = if turn.is_some() { masking::works(&message, &models, &orders)? } else { Vec::new() };
                if let Some(turn) = &turn {
                    let opened = masking::opened(&self.node, &memory.secure)?;
                    masking::seat(&mut memory.secure, &message)?.check(turn, &works, &opened)?;
                }
                // Scoring is repeated after what it scores.
                let repeated = (phase != Phase::Evaluate).then_some(stamp);
                memory.recall(&prepared.federation.host, &orders, repeated)?;
                let reply = match hides {
                    Some(Hidden::Clients(privacy)) => {
                        let by = match &turn {
                            _ if self.node.is_part_of_run() => None,
                            Some(turn) => Some(AddedBy::Together(turn.among.len())),
                            None => Some(AddedBy::Each(1)),
                        };
                        let sealed: Vec<SealedOrder> = orders.iter().filter_map(|order| order.seal).collect();
                        let sums = prepared.federation.hidden_sums(&ask, stamp, (privacy, &sealed), by)?;
                        told.spent = spent_in_sums(&told.releases, self.node.policy.cost(&privacy));
                        SiteReply::Sealed(sums)
                    }
                    Some(Hidden::Rows(privacy)) => {
                        let before = std::mem::take(&mut memory.spent);
                        prepared.federation.host.hide_rows(privacy, before.clone());
                        let reply = prepared.work(stamp, &ask, &orders, &mut self.log);
                        memory.spent = prepared.federation.host.show_rows();
                        told.spent = prepared.spent(&privacy, &before, &memory.spent);
                        reply?
                    }
                    None => prepared.work(stamp, &ask, &orders, &mut self.log)?,
                };
                memory.note(&prepared.federation.host, stamp, message.run.checkpoint)?;
                let are_hidden = matches!(hides, Some(Hidden::Clients(_)));
                match (turn, reply) {
                    (Some(turn), SiteReply::Sealed(sums)) => {
                        let part = match are_hidden {
                            true => masking::hidden_part(sums),
                            false => masking::part(sums, &prepared.blocks(&orders)?),
                        };
                        let note =
                            wire::encode(&(std::mem::take(&mut told.releases), std::mem::take(&mut told.spent)))?;
                        SiteReply::Masked(masking::seat(&mut memory.secure, &message)?.mask(turn, part, works, note)?)
                    }
                    (Some(_), _) => return Err(Error::federation("only sums of all that clients answer are masked")),
                    // What the server sees of one machine is not of few clients, whichever slot they are in.
                    (None, SiteReply::Sealed(sums)) if !self.node.policy.allows_single() && !are_hidden => {
                        SiteReply::Sealed(prepared.without_small(sums, &orders, self.node.policy.minimum_clients)?)
                    }
                    (None, reply) => reply,
                }
            }
            Request::Introduce => SiteReply::Card(masking::introduce(&self.node, &mut memory.secure, &message, count)?),
            Request::Meet(roster) => {
                let seat = masking::seat(&mut memory.secure, &message)?;
                self.node.policy.check_roster(|wanted| seat.meet(roster, wanted))?;
                SiteReply::Done
            }
            Request::Unmask(unmasking) => {
                let mut opened = masking::opened(&self.node, &memory.secure)?;
                let before = opened.0.len();
                let shares = masking::seat(&mut memory.secure, &message)?.unmask(&unmasking, &mut opened)?;
                masking::keep_opened(&self.node, &mut memory.secure, opened, before)?;
                SiteReply::Shares(shares)
            }
            Request::Forget => {
                memory.secure.seat = None;
                SiteReply::Done
            }
            Request::Keep { roll, run, stamps } if roll == prepared.roll => {
                if stamps.len() != count {
                    return Err(changed());
                }
                memory.recall(&prepared.federation.host, &[], None)?;
                let (label, seed) = (&message.label, message.data.seed);
                let within = format!("{}/{}/{seed}", modelfile::plain_name(&run), modelfile::plain_name(label));
                let about = [("label", label.clone()), ("seed", seed.to_string())];
                SiteReply::Kept(prepared.keep(&memory.clients, &stamps, &self.node, (within, &about), &mut self.log)?)
            }
            Request::Export { roll } if roll == prepared.roll => {
                memory.recall(&prepared.federation.host, &[], None)?;
                let current = |kept: &Kept| (kept.current().cloned(), kept.own().map(<[u8]>::to_vec));
                let (states, own) = memory.clients.iter().map(current).unzip();
                SiteReply::States(states, own)
            }
            Request::Import { roll, states, own } if roll == prepared.roll => {
                if [states.len(), own.len()] != [count; 2] {
                    return Err(changed());
                }
                let states = states.into_iter().zip(own);
                memory.clients = states.map(|(state, own)| Kept::of(message.run.checkpoint, state, own)).collect();
                SiteReply::States(Vec::new(), Vec::new())
            }
            Request::Settle { roll, run, model } if roll == prepared.roll => {
                let (label, seed) = (&message.label, message.data.seed);
                let within = format!("{}/{}/{seed}", modelfile::plain_name(&run), modelfile::plain_name(label));
                SiteReply::Kept(prepared.settle(&model, &self.node, within, self.settle, &mut self.log)?)
            }
            Request::Work { .. }
            | Request::Keep { .. }
            | Request::Export { .. }
            | Request::Import { .. }
            | Request::Mask { .. }
            | Request::Settle { .. } => return Err(changed()),
        };
        Ok((reply, told))
    }

    /// What the answer to a message tells about whom, unless this machine's policy refuses it.
    fn told_by(&self, message: &SiteMessage, memory: &mut Memory) -> Result<Told> {
        let Some(prepared) = &self.prepared else { return Ok(Told::default()) };
        let here = prepared.federation.host.clients();
        let named = |to: &Option<Vec<u32>>| -> Vec<String> {
            let named = |list: &Vec<u32>| {
                list.iter().filter_map(|&client| Some(here.get(client as usize)?.id.clone())).collect()
            };
            to.as_ref().map_or_else(|| here.iter().map(|client| client.id.clone()).collect(), named)
        };
        let release = |clients| Release { clients, ..Release::default() };
        let of_orders = |orders: &[SiteOrder], others: Option<Vec<(String, u64)>>, hides: &Option<Hidden>| {
            let form = |order: &SiteOrder| match (&order.seal, &order.sum, &others) {
                (Some(_), _, Some(_)) => Form::SecureSums,
                (Some(_), _, None) => Form::SealedSums,
                (None, Some(_), _) => Form::OpenSums,
                (None, None, _) => Form::Single,
            };
            let wanted = orders.iter().map(|order| Wanted { work: &order.work, form: form(order) });
            self.node.policy.check_forms(wanted.clone())?;
            self.node.policy.check_noise(hides.as_ref(), wanted)?;
            let told = orders.iter().filter(|order| tells(&order.work)).map(|order| release(named(&order.to)));
            let others = others.unwrap_or_default();
            let with = told.map(|release| Release { others: others.clone(), ..release });
            Ok::<_, Error>(with.filter(|release| !release.clients.is_empty()).collect())
        };
        let run = Some(message.run.name.clone());
        match &message.request {
            Request::Hello { moments } => {
                self.node.policy.check_description(*moments || matches!(self.node.rows, Rows::Table(_)))?;
                let is_description = self.node.policy.allows_descriptions();
                let releases = vec![Release { is_description, ..release(named(&None)) }];
                Ok(Told { releases, ..Told::default() })
            }
            Request::Work { orders, hides, .. } => {
                Ok(Told { run, releases: of_orders(orders, None, hides)?, ..Told::default() })
            }
            Request::Mask { turn, work } => {
                let Request::Work { orders, hides, .. } = &**work else {
                    return Err(Error::federation("nothing but work is masked"));
                };
                let others = masking::others(masking::seat(&mut memory.secure, message)?, turn)?;
                let releases = of_orders(orders, Some(others), hides)?;
                Ok(Told { run, releases, waits: true, ..Told::default() })
            }
            Request::Unmask(unmasking) => {
                let note = masking::seat(&mut memory.secure, message)?.note(unmasking)?;
                let (releases, spent) = wire::decode(note)?;
                Ok(Told { run, releases, spent, waits: false })
            }
            _ => Ok(Told::default()),
        }
    }

    fn describe(&self, message: &SiteMessage) -> String {
        let all = self.prepared.as_ref().map_or(0, |prepared| prepared.federation.host.clients().len());
        let (what, clients) = match &message.request {
            Request::Hello { .. } => ("roll call".into(), all),
            Request::Keep { .. } => ("own models to keep".into(), all),
            Request::Export { .. } => ("what clients remember, for a checkpoint".into(), all),
            Request::Import { .. } => ("what clients are to remember".into(), all),
            Request::Settle { .. } => ("a fitted model to write".into(), all),
            Request::Introduce => ("keys of secure sums".into(), all),
            Request::Meet(roster) => (format!("secure sums over {}", counted(roster.cards.len(), "machine")), all),
            Request::Unmask(_) => ("shares of a secure sum".into(), all),
            Request::Forget => ("keys of secure sums to forget".into(), all),
            Request::Mask { work, .. } => {
                let inner = SiteMessage { request: (**work).clone(), ..message.clone() };
                return format!("{}, masked", self.describe(&inner));
            }
            Request::Work { orders, .. } => {
                let kinds: BTreeSet<&str> = orders.iter().map(|order| order.work.name()).collect();
                let everybody = orders.iter().any(|order| order.to.is_none());
                let some: BTreeSet<u32> =
                    orders.iter().filter_map(|order| order.to.as_ref()).flatten().copied().collect();
                (kinds.into_iter().collect::<Vec<_>>().join(" and "), if everybody { all } else { some.len() })
            }
        };
        let label = if message.label.is_empty() { String::new() } else { format!("{}, ", message.label) };
        format!("{label}{what}, {}; {}", counted(clients, "client"), self.disclosure(&message.request))
    }

    /// What the answer to a request tells the server, in words.
    fn disclosure(&self, request: &Request) -> String {
        let of = if self.node.policy.allows_single() { "each client" } else { "all clients together" };
        match request {
            Request::Hello { .. } => {
                format!("tells their names and rows, and of {of} means, deviations and words of columns")
            }
            Request::Work { orders, hides, .. } => {
                let noise = match hides {
                    Some(Hidden::Rows(_)) => ", with noise that hides single rows",
                    Some(Hidden::Clients(_)) => ", with noise that hides single clients",
                    None => "",
                };
                let told = orders.iter().filter(|order| tells(&order.work)).map(|order| {
                    let form = match (&order.seal, &order.sum) {
                        (Some(_), _) => "in sums alone",
                        (None, Some(_)) => "in sums, but for losses and choices",
                        (None, None) => "of each client",
                    };
                    format!("{form}{noise}: {}", order.work.tells())
                });
                let told: BTreeSet<String> = told.collect();
                if told.is_empty() {
                    "tells nothing".into()
                } else {
                    format!("tells {}", told.into_iter().collect::<Vec<_>>().join("; "))
                }
            }
            Request::Keep { .. } | Request::Settle { .. } => "tells how many are kept, and in which folder".into(),
            Request::Export { .. } => "tells all that clients remember".into(),
            Request::Mask { work, .. } => self.disclosure(work),
            Request::Unmask(_) => "tells the sum over all machines, with the others' shares".into(),
            Request::Introduce | Request::Meet(_) | Request::Forget | Request::Import { .. } => "tells nothing".into(),
        }
    }

    fn prepare(&mut self, message: &SiteMessage) -> Result<()> {
        let is_ready =
            |it: &Prepared| (&it.data, &it.schema, &it.model) == (&message.data, &message.schema, &message.model);
        if self.prepared.as_ref().is_some_and(is_ready) {
            return Ok(());
        }
        let limits = self.node.limits;
        let mut here = self.pool.install(|| self.node.load(&message.data))?;
        if let Some(books) = self.books(false)? {
            here.have_wait(&self.node, &books)?;
        }
        self.log.append(&mut here.log);
        let clients = std::mem::take(&mut here.population.clients);
        let roll = roll_of(clients.iter().map(|client| client.id.as_str()));
        let rows: usize = clients.iter().map(|client| client.train.len() + client.test.len()).sum();
        let mut federation = LocalFederation::new(clients, self.pool.clone());
        federation.host.refuse_below(self.node.minimum_rows);
        if let Some(schema) = &message.schema {
            if let FeaturesSchema::Named(_) = schema.features {
                let numbers = rows as f64 * schema.shape().columns as f64;
                Limits::check("numbers in the encoded rows", numbers, "numbers", limits.numbers)?;
            }
            federation.adopt(schema)?;
        }
        if let Some(model) = &message.model {
            let model = model.read()?.build().map_err(Error::open)?;
            let parameters = model.layout().len() as f64;
            Limits::check("parameters of the model", parameters, "numbers", limits.numbers)?;
            federation.set_model(model)?;
        }
        self.prepared = Some(Prepared {
            data: message.data.clone(),
            schema: message.schema.clone(),
            model: message.model.clone(),
            here,
            federation,
            roll,
        });
        Ok(())
    }
}

impl Node {
    /// How clients, or their rows, are hidden in answers that a server wants: by noise that nobody else knows, unless this is a process
    /// of the run itself.
    fn hides(&self, hidden: Hidden, phase: Phase) -> Result<Hidden> {
        hidden.check()?;
        if phase == Phase::Evaluate {
            return Err(Error::federation("scores are not hidden behind noise"));
        }
        if let Hidden::Rows(rows) = &hidden {
            Limits::check("noised steps", rows.most.steps as f64, "steps", self.limits.steps)?;
        }
        Ok(if self.is_part_of_run() { hidden } else { hidden.from_source(noise::Source::System) })
    }
}

/// What clients spend that are in these sums, each of which costs so much.
fn spent_in_sums(releases: &[Release], cost: Mechanism) -> Spending {
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    for client in releases.iter().flat_map(|release| &release.clients) {
        *times.entry(client).or_default() += 1;
    }
    times.into_iter().map(|(client, times)| (client.to_string(), vec![(cost, times)])).collect()
}

impl Prepared {
    /// What each client has spent on its rows between two moments.
    fn spent(&self, privacy: &RowPrivacy, before: &[Spent], after: &[Spent]) -> Spending {
        let mut spending = Spending::new();
        for (place, (client, after)) in self.federation.host.clients().iter().zip(after).enumerate() {
            let spent = privacy.spent_since(before.get(place).unwrap_or(&Spent::default()), after);
            if !spent.is_empty() {
                spending.push((client.id.clone(), spent));
            }
        }
        spending
    }

    /// Writes the clients' own models with these stamps into the machine's folder.
    fn keep(
        &self,
        kept: &[Kept],
        stamps: &[u64],
        node: &Node,
        (within, about): (String, &[(&str, String)]),
        log: &mut Vec<String>,
    ) -> Result<KeptModels> {
        let Some(folder) = &node.models else {
            log.push("clients' own models are kept nowhere: no file of this machine's says where".into());
            return Ok(KeptModels { clients: 0, place: None });
        };
        let model = self.federation.host.model()?;
        let stamped = |(kept, &stamp): (&Kept, &u64)| {
            let mut states = kept.states.iter();
            states.find(|state| stamp != 0 && state.stamp == stamp).map(|state| state.vectors.unpack())
        };
        let models = kept.iter().zip(stamps).map(stamped).zip(self.federation.host.clients());
        let models: Vec<(&str, Vec<f64>)> =
            models.filter_map(|(own, client)| Some((client.id.as_str(), own?))).collect();
        if models.is_empty() {
            return Ok(KeptModels { clients: 0, place: Some(within) });
        }
        let full = folder.join(&within);
        check_room(folder, &full, node.limits.kept)?;
        modelfile::write_clients(&full, &models, &**model, about)?;
        log.push(format!("own models of {} clients are kept in {}", models.len(), full.display()));
        Ok(KeptModels { clients: models.len() as u64, place: Some(place_of(folder, &within)) })
    }

    /// Has a fitted model written that knows the clients here.
    fn settle(
        &self,
        model: &str,
        node: &Node,
        within: String,
        settle: Option<Settle>,
        log: &mut Vec<String>,
    ) -> Result<KeptModels> {
        let settle =
            settle.ok_or_else(|| Error::new(ErrorKind::Unsupported, "fitted models are not written here").open())?;
        let Some(folder) = &node.models else {
            log.push("the fitted model is written nowhere: no file of this machine's says where".into());
            return Ok(KeptModels { clients: 0, place: None });
        };
        let full = folder.join(&within);
        check_room(folder, &full, node.limits.kept)?;
        let clients = settle(model, self.federation.host.clients(), &self.here.population.notation, &full)?;
        log.push(format!("a model that knows the {clients} clients here is in {}", full.display()));
        Ok(KeptModels { clients: clients as u64, place: Some(place_of(folder, &within)) })
    }

    /// Who is there. Columns are described for each client, or for all `together`.
    fn roll_call(&self, moments: bool, together: bool, name: Option<String>) -> Roll {
        let host = &self.federation.host;
        let descriptions = host.describe_all(moments, together);
        let member = |(place, (client, description)): (usize, (&Client, Description))| Member {
            id: client.id.clone(),
            place: self.here.places.get(place).copied(),
            truth: client.truth,
            outlier: self.here.population.outliers.get(place).copied().unwrap_or(false),
            description,
        };
        let members = host.clients().iter().zip(descriptions).enumerate().map(member).collect();
        let Population { shape, true_clusters, .. } = self.here.population;
        Roll { name, members, left_out: self.here.left_out as u64, shape, true_clusters }
    }

    /// The ask in a message, if it is within this machine's limits.
    fn ask(&self, phase: Phase, models: &[(u32, Arc<Packed>)], orders: &[SiteOrder], limits: &Limits) -> Result<Ask> {
        let count = models.iter().map(|(index, _)| *index as usize + 1).max().unwrap_or(0);
        Limits::check("models in an ask", count as f64, "models", limits.models)?;
        Limits::check("orders", orders.len() as f64, "orders", limits.orders)?;
        let mut unpacked: Vec<Params> = vec![Params::default(); count];
        models.iter().for_each(|(index, model)| unpacked[*index as usize] = Arc::new(model.unpack()));
        let order = |order: &SiteOrder| Order {
            to: order.to.clone().map_or(Recipients::All, |list| Recipients::List(Arc::new(list))),
            work: order.work.clone(),
        };
        let ask = Ask { phase, models: unpacked, orders: orders.iter().map(order).collect(), gather: Gather::Each };
        let clients = self.federation.host.clients();
        ask.check(clients.len())?;
        let rows = |client: u32| {
            let client = &clients[client as usize];
            client.train.len().max(client.test.len())
        };
        let each = (ask.orders.iter())
            .flat_map(|order| order.to.among(clients.len()).map(|client| (&order.work, rows(client))));
        guard::afford(each, self.federation.host.model().map_or(0, |model| model.layout().len()), limits)?;
        Ok(ask)
    }

    /// The blocks of the sums of some orders, all of which are sealed.
    fn blocks(&self, orders: &[SiteOrder]) -> Result<Vec<Blocks>> {
        let width = self.federation.host.model()?.layout().len();
        let blocks = |order: &SiteOrder| order.seal.and_then(|seal| seal.blocks(&order.work, width));
        let none = || Error::federation("sums of some orders only, want all of them");
        orders.iter().map(|order| blocks(order).ok_or_else(none)).collect()
    }

    /// Sums without slots of few clients.
    fn without_small(&self, mut sums: Vec<SealedSum>, orders: &[SiteOrder], least: usize) -> Result<Vec<SealedSum>> {
        for (sum, blocks) in sums.iter_mut().zip(self.blocks(orders)?) {
            sum.empty_small(blocks, least);
        }
        Ok(sums)
    }

    /// Has clients do what is asked. The server hears of their errors what it may; the machine's own log has them in full.
    fn work(&mut self, stamp: u64, ask: &Ask, orders: &[SiteOrder], log: &mut Vec<String>) -> Result<SiteReply> {
        let precision = self.federation.host.model().map_or(Precision::F64, |model| model.precision());
        let sealed: Vec<SealedOrder> = orders.iter().filter_map(|order| order.seal).collect();
        if !sealed.is_empty() {
            let (sums, left_out) = self.federation.sealed_sums(ask, stamp, &sealed)?;
            let clients = self.federation.host.clients();
            log.extend(left_out.into_iter().map(|(it, why)| format!("client {}: {why}", clients[it as usize].id)));
            return Ok(SiteReply::Sealed(sums));
        }
        let sums: Vec<Option<SumOrder>> = orders.iter().map(|order| order.sum).collect();
        let (found, summed) = self.federation.replies(ask, stamp, &sums)?;
        let clients = self.federation.host.clients();
        let mut replies = Vec::new();
        for (order, client, reply) in found {
            let reply = reply.map(|reply| reply.pack(precision)).map_err(|error| {
                log.push(format!("client {}: {error}", clients[client as usize].id));
                error.told()
            });
            replies.push(ClientReply { client, order: orders[order].index, reply });
        }
        let summed = summed.into_iter().map(|(order, summed)| (orders[order].index, summed)).collect();
        Ok(SiteReply::Replies(replies, summed))
    }
}

/// A place in the folder of models as others may hear it.
fn place_of(folder: &Path, within: &str) -> String {
    let name = folder.file_name().map_or_else(String::new, |name| format!("{}/", name.to_string_lossy()));
    format!("{name}{within}")
}

/// Limits the number of folders of models: a server may name any number of runs.
fn check_room(models: &Path, folder: &Path, most: usize) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    let runs = folders(models);
    let seeds = runs.iter().flat_map(|run| folders(run)).map(|label| folders(&label).len());
    Limits::check("folders of clients' own models", seeds.sum::<usize>() as f64 + 1.0, "kept", most)
}
