//! Clients on other machines. Every ask becomes one message to each machine with clients in it, which carries each model
//! once. Where sums are wanted, a machine with several clients answers with its sums as integers (`fixed.rs`); all other
//! replies come one by one and are summed here.
//!
//! The clients of a machine that does not answer are silent: they are missing from that ask, and the method decides what
//! to do without them. The notes at the end say what got lost.
//!
//! What clients remember stays with their machines, under the run's name. A run goes on from the server's checkpoint: every
//! machine has kept the states of that moment. Where machines are processes of the run itself, which end with it, the
//! checkpoint has the states in it.

mod hidden;
mod secure;

use super::*;
use crate::data::schema::sorted;
use crate::data::{DataShape, Features, Population, Shard, Targets};
pub use crate::federation::fixed::Totals;
use crate::federation::fixed::{SumOrder, Summed};
use crate::federation::sealed::{SealedOrder, SealedSum};
use crate::federation::server::gather::{Addition, Gatherer};
use crate::federation::server::ledger::few_of;
use crate::federation::server::rolls::{Admitted, MOST_MEMBERS, Rolls, admit};
use crate::federation::server::{Exchange, Server};
use crate::federation::wire::{
    self, ClientReply, DataOrder, KeptModels, ModelOrder, Request, Roll, RunMark, SiteMessage, SiteOrder, SiteReply,
    roll_of,
};
use crate::federation::work::Reply;
use crate::federation::{Absence, Answers, Ask, ClientInfo, Phase};
use crate::models::Packed;
use crate::privacy::noise::Source;
use crate::text::counted;
use secure::SecureSums;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// Brings messages to machines and their replies back.
pub trait Transport: Send {
    /// Numbers of the machines that are connected now.
    fn machines(&mut self) -> Result<Vec<u64>>;

    /// Name of a machine in messages, if it has none of its own.
    fn name(&mut self, number: u64) -> String {
        format!("machine {number}")
    }

    /// Delivers each message and waits for the replies. A machine without an entry did not answer.
    fn exchange(&mut self, messages: Vec<(u64, Vec<u8>)>, kind: MessageKind) -> Result<Vec<(u64, Delivery)>>;

    /// What machines added up among themselves in the last exchange, and left out of their replies: only processes of the run
    /// itself do so.
    fn totals(&mut self) -> Totals {
        Totals::default()
    }
}

/// A transport that several federations use in turn.
pub type Line = Arc<Mutex<Box<dyn Transport>>>;

/// A reply, or why there is none.
pub type Delivery<T = Vec<u8>> = Result<T, String>;

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// A roll call, with descriptions of the data.
    Query,
    /// A round of a method, or a start.
    Train,
    /// Scoring.
    Evaluate,
}

impl MessageKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            MessageKind::Query => "query",
            MessageKind::Train => "train",
            MessageKind::Evaluate => "evaluate",
        }
    }
}

struct Machine {
    number: u64,
    name: String,
    /// Whether it was there when the run went on.
    is_there: bool,
    roll: String,
    /// Each client's place among all; `None` for one that was left out.
    clients: Vec<Option<u32>>,
}

impl Machine {
    /// A client's place among all.
    fn place(&self, client: u32) -> Option<u32> {
        self.clients.get(client as usize).copied().flatten()
    }

    /// Whom these orders are for, by place among all, with the order's index in the ask.
    fn places(&self, orders: &[SiteOrder]) -> Vec<(usize, Vec<u32>)> {
        let of = |order: &SiteOrder| {
            let mut places: Vec<u32> = match &order.to {
                Some(to) => to.iter().filter_map(|&client| self.place(client)).collect(),
                None => self.present().map(|(_, place)| place).collect(),
            };
            places.sort_unstable();
            (order.index as usize, places)
        };
        orders.iter().map(of).collect()
    }

    /// The clients that take part: number on the machine, and place among all.
    fn present(&self) -> impl Iterator<Item = (u32, u32)> {
        (0u32..).zip(&self.clients).filter_map(|(local, place)| Some((local, (*place)?)))
    }
}

/// What all federations of the same clients share.
struct Shared {
    line: Line,
    machines: Vec<Machine>,
    /// Every client's machine, by its place in the list, and its number there.
    homes: Vec<(u32, u32)>,
    infos: Vec<ClientInfo>,
    data: DataOrder,
    /// The name of the run.
    name: String,
    /// Whether checkpoints have the clients' states in them.
    holds_states: bool,
    /// The clients' descriptions of their data, and whether these have moments.
    met: (bool, Vec<Description>),
    /// Machines and clients that were left out, and why.
    absent: Vec<String>,
}

impl Shared {
    fn rows(&self) -> Vec<u32> {
        self.met.1.iter().map(|description| description.rows as u32).collect()
    }

    /// The part of every machine in an ask. A machine whose clients are at least `several` for an order sums their vectors,
    /// where the order has sums.
    fn errands(
        &self,
        ask: &Ask,
        absences: &[Option<Absence>],
        sums: &[Option<SumOrder>],
        several: usize,
    ) -> Vec<(&Machine, Vec<SiteOrder>)> {
        let mut errands: Vec<(&Machine, Vec<SiteOrder>)> =
            self.machines.iter().map(|machine| (machine, Vec::new())).collect();
        for ((index, order), sum) in (0u32..).zip(&ask.orders).zip(sums) {
            let mut to: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for place in order.to.among(self.homes.len()).filter(|&place| absences[place as usize].is_none()) {
                let (machine, local) = self.homes[place as usize];
                to.entry(machine).or_default().push(local);
            }
            for (machine, mut to) in to {
                to.sort_unstable();
                let (machine, orders) = &mut errands[machine as usize];
                let sum = sum.filter(|_| to.len() >= several);
                let everybody = to.len() == machine.clients.len();
                let (to, work) = ((!everybody).then_some(to), order.work.clone());
                orders.push(SiteOrder { index, to, work, sum, seal: None });
            }
        }
        errands.retain(|(_, orders)| !orders.is_empty());
        errands
    }

    /// The part of every machine in an ask of which only sums leave it, by the machine's place.
    fn sealed_errands(&self, ask: &Ask, absences: &[Option<Absence>], sealed: &[SealedOrder]) -> Errands<'_> {
        let mut errands = self.errands(ask, absences, &vec![None; ask.orders.len()], 1);
        for order in errands.iter_mut().flat_map(|(_, orders)| orders) {
            order.seal = Some(sealed[order.index as usize]);
        }
        let place = |machine: &Machine| self.machines.iter().position(|it| it.number == machine.number);
        errands.into_iter().filter_map(|(machine, orders)| Some((place(machine)?, (machine, orders)))).collect()
    }

    /// Delivers messages; the reply of each machine, or why there is none.
    fn exchange(&self, messages: Vec<(u64, Vec<u8>)>, kind: MessageKind) -> Result<Exchanged<'_>> {
        Ok(self.exchange_and_add(messages, kind)?.0)
    }

    /// The same, and what the machines added up among themselves.
    fn exchange_and_add(&self, messages: Vec<(u64, Vec<u8>)>, kind: MessageKind) -> Result<(Exchanged<'_>, Totals)> {
        if messages.is_empty() {
            return Ok(Default::default());
        }
        let asked: BTreeSet<u64> = messages.iter().map(|(number, _)| *number).collect();
        let there: BTreeSet<u64> = self.machines.iter().filter(|it| it.is_there).map(|it| it.number).collect();
        let messages = messages.into_iter().filter(|(number, _)| there.contains(number)).collect();
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let mut deliveries: BTreeMap<u64, Delivery> = line.exchange(messages, kind)?.into_iter().collect();
        let mut read = |machine: &Machine| {
            let missing = if machine.is_there { "no answer" } else { "not there when the run went on" };
            let bytes = deliveries.remove(&machine.number).unwrap_or_else(|| Err(missing.into()))?;
            wire::decode(&bytes).map_err(|error| error.to_string())
        };
        let machines = self.machines.iter().filter(|machine| asked.contains(&machine.number));
        Ok((machines.map(|machine| (machine, read(machine))).collect(), line.totals()))
    }
}

/// Clients on other machines.
pub struct RemoteFederation {
    shared: Arc<Shared>,
    run: RunMark,
    label: String,
    schema: Option<Schema>,
    model: Option<(Arc<dyn Model>, ModelOrder)>,
    server: Server,
    stop: Arc<AtomicBool>,
    /// By the names of the machines, in the order of their numbers.
    lost: BTreeMap<(u64, String), Lost>,
    /// Where clients' own models are saved, or why not.
    kept: Vec<String>,
    secure: SecureSums,
    /// What hides clients, or their rows, and in how many sums the clients have been.
    hidden: Option<(Hidden, u64)>,
}

/// The part of each machine in an ask, by the machine's place.
type Errands<'m> = BTreeMap<usize, (&'m Machine, Vec<SiteOrder>)>;

/// What every client remembers, and what is saved by those that are the user's own code.
type Remembered = (Vec<Option<State>>, Vec<Vec<u8>>);

/// The reply of each machine, or why there is none.
type Exchanged<'m> = Vec<(&'m Machine, Delivery<SiteReply>)>;

/// Single replies by client and order.
type Replies = Vec<((u32, u32), Reply)>;

/// The sums of one machine for one order.
struct MachineSums<'m> {
    machine: &'m Machine,
    order: usize,
    summed: Summed,
}

impl MachineSums<'_> {
    /// Everybody who is heard of in them, by place among all.
    fn heard(&self) -> impl Iterator<Item = u32> {
        let refused = self.summed.refused.iter().map(|(client, _)| client);
        self.summed.clients.iter().chain(refused).filter_map(|&client| self.machine.place(client))
    }
}

/// What a checkpoint keeps of machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RemoteState {
    run: RunMark,
    lost: BTreeMap<(u64, String), Lost>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Lost {
    asks: usize,
    reason: String,
    clients: BTreeSet<u32>,
}

/// The machines of a run and their clients, as they were met: a run that goes on has the same, whoever is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Met {
    rolls: Rolls,
    admitted: Admitted,
    names: BTreeMap<u64, String>,
    /// Whether descriptions have moments.
    moments: bool,
    /// Machines and clients that were left out, and why.
    absent: Vec<String>,
    /// Whether the machines are processes of the run itself, which end with it.
    end_with_run: bool,
}

impl Met {
    /// Calls the roll of all connected machines. Machines without a roll are left out, and the notes say so; unless
    /// `patient`, leaving out more than half of them is an error.
    pub fn call(line: &Line, data: &DataOrder, moments: bool, patient: bool, end_with_run: bool) -> Result<Self> {
        let hello = SiteMessage {
            data: data.clone(),
            run: RunMark::new(""),
            label: String::new(),
            schema: None,
            model: None,
            request: Request::Hello { moments },
        };
        let hello = wire::encode(&hello)?;
        let mut transport = line.lock().unwrap_or_else(PoisonError::into_inner);
        let mut numbers = transport.machines()?;
        numbers.sort_unstable();
        let messages = numbers.iter().map(|&number| (number, hello.clone())).collect();
        let mut rolls = Rolls::new();
        let mut faults: BTreeMap<u64, Error> = BTreeMap::new();
        let deliveries = transport.exchange(messages, MessageKind::Query)?;
        for (number, delivery) in deliveries.into_iter().filter(|(number, _)| numbers.contains(number)) {
            match delivery.map_err(Error::federation).and_then(|bytes| wire::decode(&bytes)) {
                Ok(SiteReply::Roll(roll)) => drop(rolls.insert(number, roll)),
                Ok(_) => drop(faults.insert(number, Error::federation("another answer than a roll"))),
                Err(error) => drop(faults.insert(number, error)),
            }
        }
        if numbers.is_empty() {
            return Err(Error::federation("there are no machines").hint("start them first"));
        }
        for number in numbers.iter().filter(|number| !rolls.contains_key(number)) {
            faults.entry(*number).or_insert_with(|| Error::federation("it did not say who is there"));
        }
        let names = names(&mut **transport, &numbers, &rolls);
        let most = if end_with_run { usize::MAX } else { MOST_MEMBERS };
        let admitted = admit(&mut rolls, &names, most, &mut faults);
        let faults: Vec<Error> = faults.into_iter().map(|(number, error)| error.at(&names[&number])).collect();
        if rolls.is_empty() || (!patient && 2 * rolls.len() < numbers.len()) {
            return Err(Error::all(faults));
        }
        let small = |(number, roll): (&u64, &Roll)| match roll.left_out {
            0 => None,
            count => Some(format!("{}: {count} more clients have too few rows to take part", names[number])),
        };
        let absent = faults.iter().map(|fault| format!("left out: {fault}"));
        let absent = absent.chain(admitted.notes.iter().cloned()).chain(rolls.iter().filter_map(small)).collect();
        Ok(Self { rolls, admitted, names, moments, absent, end_with_run })
    }

    /// Identifies the clients and their rows, whichever machines they are on.
    pub fn digest(&self) -> String {
        let members = self.rolls.values().flat_map(|roll| &roll.members);
        let mut members: Vec<String> =
            members.map(|member| format!("{} {:?} {}", member.description.rows, member.place, member.id)).collect();
        members.sort_unstable();
        roll_of(members.iter().map(String::as_str))
    }

    /// A federation of these clients. Of a run that goes on, `now` says which machines are there: they are known by the names
    /// of their clients.
    pub fn begin(&self, line: &Line, data: DataOrder, now: Option<&Met>) -> Result<(RemoteFederation, Population)> {
        let Self { rolls, admitted, names, moments, end_with_run, .. } = self;
        let digest =
            |(number, roll): (&u64, &Roll)| (roll_of(roll.members.iter().map(|member| member.id.as_str())), *number);
        let now: Option<BTreeMap<String, u64>> = now.map(|now| now.rolls.iter().map(digest).collect());
        let mut absent = self.absent.clone();
        let mut there: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        for (number, roll) in rolls {
            let found = match &now {
                None => Some(*number),
                Some(now) => now.get(&digest((number, roll)).0).copied(),
            };
            if found.is_none() {
                absent.push(format!("{}: not there when the run went on, or with other clients", names[number]));
            }
            there.insert(*number, found);
        }
        let about = (data, *moments, absent, *end_with_run);
        RemoteFederation::of_rolls(line.clone(), (rolls, admitted), (names, &there), about)
    }
}

impl RemoteFederation {
    /// Meets the clients of all connected machines, and returns what is known of them. Machines without a roll and
    /// implausible clients are left out, and the notes say so; unless `patient`, leaving out more than half of the machines
    /// is an error.
    pub fn meet(line: &Line, data: DataOrder, moments: bool, patient: bool) -> Result<(Self, Population)> {
        Met::call(line, &data, moments, patient, false)?.begin(line, data, None)
    }

    fn new(shared: Arc<Shared>) -> Self {
        Self {
            run: RunMark::new(&shared.name),
            shared,
            label: String::new(),
            schema: None,
            model: None,
            server: Server { addition: Addition::Integer, ..Server::default() },
            stop: Arc::default(),
            lost: BTreeMap::new(),
            kept: Vec::new(),
            secure: SecureSums::default(),
            hidden: None,
        }
    }

    fn of_rolls(
        line: Line,
        (rolls, admitted): (&Rolls, &Admitted),
        (names, there): (&BTreeMap<u64, String>, &BTreeMap<u64, Option<u64>>),
        (data, moments, absent, holds_states): (DataOrder, bool, Vec<String>, bool),
    ) -> Result<(Self, Population)> {
        let ids: BTreeSet<String> = admitted.members(rolls).map(|(_, _, member)| member.id.clone()).collect();
        let by_name: HashMap<String, u64> = sorted(ids).into_iter().zip(0..).collect();
        let mut everybody: Vec<_> = (admitted.members(rolls))
            .map(|(number, local, member)| (member.place, by_name[&member.id], number, local, member))
            .collect();
        everybody.sort_by_key(|(place, name, number, ..)| (*place, *name, *number));
        let true_clusters = rolls.values().filter_map(|roll| roll.true_clusters).max();
        let classes = rolls.values().map(|roll| roll.shape.classes).max().unwrap_or(0);
        let shape = DataShape { classes, ..admitted.shape };
        let mut machines: BTreeMap<u64, Machine> = (rolls.iter().zip(0u64..))
            .map(|((&number, roll), place)| {
                let roll_digest = roll_of(roll.members.iter().map(|member| member.id.as_str()));
                let (name, found) = (names[&number].clone(), there[&number]);
                // A machine that is not there has a number that none has.
                let now = found.unwrap_or(u64::MAX - place);
                let clients = vec![None; roll.members.len()];
                (number, Machine { number: now, name, is_there: found.is_some(), roll: roll_digest, clients })
            })
            .collect();
        let places: HashMap<u64, u32> = machines.keys().copied().zip(0..).collect();
        let homes = everybody.iter().map(|(_, _, number, local, _)| (places[number], *local as u32)).collect();
        let nothing = Shard::new(Features::F64 { columns: 0, values: Vec::new() }, Targets::None)?;
        let (mut clients, mut descriptions, mut outliers) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (_, _, number, local, member)) in everybody.iter().enumerate() {
            if let Some(machine) = machines.get_mut(number) {
                machine.clients[*local] = Some(place as u32);
            }
            let group = member.description.group.clone();
            let (train, test) = (nothing.clone(), nothing.clone());
            clients.push(Client { id: member.id.clone(), train, test, group, truth: member.truth });
            descriptions.push(member.description.clone());
            outliers.push(member.outlier);
        }
        let shared = Shared {
            line,
            machines: machines.into_values().collect(),
            homes,
            infos: clients.iter().map(|client| ClientInfo { id: client.id.clone() }).collect(),
            data,
            name: String::new(),
            holds_states,
            met: (moments, descriptions),
            absent,
        };
        let population = Population {
            clients,
            true_clusters,
            shape,
            outliers: if outliers.contains(&true) { outliers } else { Vec::new() },
            ..Population::default()
        };
        Ok((Self::new(Arc::new(shared)), population))
    }

    /// The same as part of a run of this name.
    pub fn named(mut self, name: &str) -> Self {
        self.run = RunMark::new(name);
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.name = name.into();
        }
        self
    }

    /// Has these transforms act on answers.
    pub fn with_transforms(mut self, transforms: Transforms) -> Self {
        self.server.transforms = transforms;
        self
    }

    /// Sums single answers at the server, in the order of the clients, instead of integers on the machines.
    pub fn from_single_answers(mut self) -> Self {
        self.server.addition = Addition::Float;
        self
    }

    /// Tells only sums over each machine's clients, and nothing of a single one.
    pub fn with_sealed_sums(mut self) -> Self {
        self.server.addition = Addition::Sealed;
        self
    }

    /// Refuses to alter single answers where none comes.
    fn refuse_altered(&self) -> Result<()> {
        if !self.server.transforms.alter_answers() {
            return Ok(());
        }
        let message = "answers that are altered on their way come one by one, and only sums leave machines";
        Err(Error::new(ErrorKind::Unsupported, message).hint("leave out the attacks and garbage in [faults]"))
    }

    /// An ask of which machines answer only sums over their clients.
    fn ask_for_sums(&mut self, ask: &Ask) -> Result<Answers> {
        self.refuse_altered()?;
        let (shared, model) = (self.shared.clone(), self.model()?.clone());
        let mut exchange = self.server.open(ask, &shared.infos, shared.rows(), &*model)?;
        let sealed = exchange.gatherer.seal()?;
        let errands = shared.sealed_errands(ask, &exchange.absences, &sealed);
        let to: Vec<Vec<(usize, Vec<u32>)>> =
            errands.values().map(|(machine, orders)| machine.places(orders)).collect();
        let exchanged = self.deliver(ask, &shared, errands.into_values())?;
        for ((machine, reply), to) in exchanged.into_iter().zip(to) {
            let fault = match reply {
                Ok(SiteReply::Sealed(sums)) if sums.len() == to.len() => {
                    let fault = |((order, clients), sum): (&(usize, Vec<u32>), &SealedSum)| {
                        exchange.gatherer.fault(*order, clients, sum)
                    };
                    match to.iter().zip(&sums).find_map(fault) {
                        Some(fault) => fault.to_string(),
                        None => {
                            let found = to.iter().zip(&sums);
                            found.for_each(|((order, clients), sum)| {
                                exchange.gatherer.take_sealed(*order, clients, sum)
                            });
                            continue;
                        }
                    }
                }
                other => unwanted(other),
            };
            self.lose_part(machine, &fault, to, &mut exchange);
        }
        Ok(self.server.close(exchange))
    }

    /// Counts the clients of a machine's part in an ask as missing.
    fn lose_part(&mut self, machine: &Machine, why: &str, part: Vec<(usize, Vec<u32>)>, exchange: &mut Exchange) {
        for (order, clients) in &part {
            exchange.sent[*order] -= clients.len();
            clients.iter().for_each(|&client| exchange.gatherer.missing(client, Absence::Silent));
        }
        self.lose_clients(machine, why, part.into_iter().flat_map(|(_, clients)| clients));
    }

    /// Delivers each machine's part of an ask; the replies in the same order.
    fn deliver<'m>(
        &self,
        ask: &Ask,
        shared: &'m Shared,
        errands: impl Iterator<Item = (&'m Machine, Vec<SiteOrder>)>,
    ) -> Result<Exchanged<'m>> {
        let packed = self.pack(ask)?;
        let message = |(machine, orders): (&Machine, Vec<SiteOrder>)| {
            Ok((machine.number, self.message(ask, &packed, machine, orders)?))
        };
        shared.exchange(errands.map(message).collect::<Result<_>>()?, kind_of(ask))
    }

    /// The models of an ask as they travel.
    fn pack(&self, ask: &Ask) -> Result<Vec<Arc<Packed>>> {
        let precision = self.model()?.precision();
        Ok(ask.models.iter().map(|model| Arc::new(Packed::pack(model, precision))).collect())
    }

    fn model(&self) -> Result<&Arc<dyn Model>> {
        self.model.as_ref().map(|(model, _)| model).ok_or_else(|| Error::federation("the clients have no model yet"))
    }

    /// The message with a machine's part of an ask.
    fn message(&self, ask: &Ask, packed: &[Arc<Packed>], machine: &Machine, orders: Vec<SiteOrder>) -> Result<Vec<u8>> {
        self.encode(self.work(ask, packed, machine, orders))
    }

    fn work(&self, ask: &Ask, packed: &[Arc<Packed>], machine: &Machine, orders: Vec<SiteOrder>) -> Request {
        let needed: BTreeSet<usize> = orders.iter().flat_map(|order| order.work.needs().models.into_owned()).collect();
        let models = needed.into_iter().map(|index| (index as u32, packed[index].clone())).collect();
        let (roll, stamp) = (machine.roll.clone(), self.server.asked);
        let hides = self.hidden_in(ask);
        Request::Work { roll, stamp, phase: ask.phase, models, orders, hides }
    }

    /// What is hidden in the answers to an ask.
    fn hidden_in(&self, ask: &Ask) -> Option<Hidden> {
        self.hidden.filter(|_| ask.phase != Phase::Evaluate).map(|(hidden, _)| hidden)
    }

    fn encode(&self, request: Request) -> Result<Vec<u8>> {
        let model = self.model.as_ref().map(|(_, order)| order.clone());
        let (data, label, schema) = (self.shared.data.clone(), self.label.clone(), self.schema.clone());
        wire::encode(&SiteMessage { data, run: self.run.clone(), label, schema, model, request })
    }

    /// Has every machine do its part. Replies by client, each with its order's index, and sums.
    fn collect<'m>(
        &mut self,
        ask: &Ask,
        shared: &'m Shared,
        errands: Vec<(&'m Machine, Vec<SiteOrder>)>,
        gatherer: &Gatherer,
    ) -> Result<(Replies, Vec<MachineSums<'m>>)> {
        let packed = self.pack(ask)?;
        let (mut messages, mut asked) = (Vec::new(), BTreeMap::new());
        for (machine, orders) in errands {
            let sums = orders.iter().filter_map(|order| Some((order.index, (order.sum?, order.to.clone()))));
            asked.insert(machine.number, sums.collect::<AskedSums>());
            messages.push((machine.number, self.message(ask, &packed, machine, orders)?));
        }
        let kind = kind_of(ask);
        let (mut replies, mut sums) = (Replies::new(), Vec::new());
        let (exchanged, mut totals) = shared.exchange_and_add(messages, kind)?;
        for (machine, reply) in exchanged {
            match reply {
                Ok(SiteReply::Replies(found, mut summed)) => {
                    let asked = &asked[&machine.number];
                    // Processes of the run itself are not doubted, and may have put their totals together.
                    let fault = if shared.holds_states { None } else { summed_fault(asked, &summed, gatherer) };
                    if let Some(fault) = fault {
                        self.lose(machine, fault.into());
                        continue;
                    }
                    for (order, summed) in &mut summed {
                        for (slot, sum) in (0u32..).zip(&mut summed.sums) {
                            totals.claim(*order, slot).into_iter().for_each(|total| sum.put(total));
                        }
                    }
                    self.sort(ask, machine, (found, asked), &mut replies);
                    let of = |(order, summed): (u32, Summed)| MachineSums { machine, order: order as usize, summed };
                    sums.extend(summed.into_iter().map(of));
                }
                other => self.lose(machine, unwanted(other)),
            }
        }
        // Of duplicates, the first counts.
        replies.sort_by_key(|(of, _)| *of);
        replies.dedup_by_key(|(of, _)| *of);
        Ok((replies, sums))
    }

    /// Sorts a machine's replies by client. Unrequested and failed ones are left out, and single ones to orders that have
    /// sums.
    fn sort(
        &mut self,
        ask: &Ask,
        machine: &Machine,
        (found, summed): (Vec<ClientReply>, &AskedSums),
        replies: &mut Replies,
    ) {
        let mut failures: BTreeMap<u32, String> = BTreeMap::new();
        for ClientReply { client, order, reply } in found {
            let is_summed = summed.contains_key(&order);
            let (place, order) = (machine.place(client), order as usize);
            let Some(place) =
                place.filter(|&place| ask.orders.get(order).is_some_and(|order| order.to.contains(place)))
            else {
                continue;
            };
            match reply {
                Ok(_) if is_summed => {}
                Ok(reply) => replies.push(((place, order as u32), reply.unpack())),
                Err(reason) => drop(failures.insert(place, reason)),
            }
        }
        if let Some(reason) = failures.values().next().cloned() {
            self.lose_clients(machine, &reason, failures.into_keys());
        }
    }

    /// What all clients remember, from machines that end with the run.
    fn fetch_states(&self) -> Result<Remembered> {
        let shared = &self.shared;
        let messages = shared
            .machines
            .iter()
            .map(|machine| Ok((machine.number, self.encode(Request::Export { roll: machine.roll.clone() })?)));
        let mut all = vec![None; shared.infos.len()];
        let mut all_own = vec![Vec::new(); shared.infos.len()];
        for (machine, reply) in shared.exchange(messages.collect::<Result<_>>()?, MessageKind::Query)? {
            match reply {
                Ok(SiteReply::States(states, own)) if [states.len(), own.len()] == [machine.clients.len(); 2] => {
                    let clients = machine.clients.iter().zip(states.into_iter().zip(own));
                    for (place, (state, own)) in clients.filter_map(|(place, found)| Some(((*place)? as usize, found)))
                    {
                        (all[place], all_own[place]) = (state, own.unwrap_or_default());
                    }
                }
                other => return Err(Error::federation(unwanted(other)).at(&machine.name)),
            }
        }
        Ok((all, all_own))
    }

    /// Has machines remember what their clients did at a checkpoint.
    fn hand_out_states(&self, states: Vec<Option<State>>, own: Vec<Vec<u8>>) -> Result<()> {
        let shared = &self.shared;
        if [states.len(), own.len()] != [shared.infos.len(); 2] {
            return Err(Error::federation("a checkpoint of other clients"));
        }
        let mut messages = Vec::new();
        for machine in &shared.machines {
            let of = |place: &Option<u32>| {
                let place = (*place)? as usize;
                Some((states[place].clone(), Some(own[place].clone()).filter(|own| !own.is_empty())))
            };
            let (states, own) = machine.clients.iter().map(|place| of(place).unwrap_or_default()).unzip();
            messages.push((machine.number, self.encode(Request::Import { roll: machine.roll.clone(), states, own })?));
        }
        for (machine, reply) in shared.exchange(messages, MessageKind::Query)? {
            if !matches!(reply, Ok(SiteReply::States(..))) {
                return Err(Error::federation(unwanted(reply)).at(&machine.name));
            }
        }
        Ok(())
    }

    /// Takes clients whose answers were refused out of their machines' sums: asks for theirs alone. If a machine does not give
    /// them, its sum does not count.
    fn take_out(
        &mut self,
        ask: &Ask,
        to_remove: &BTreeSet<(usize, u32)>,
        (sums, machine_sums): (&[Option<SumOrder>], &[MachineSums]),
        exchange: &mut Exchange,
    ) -> Result<()> {
        let shared = self.shared.clone();
        let refused = ask.only(shared.infos.len(), |order, client| to_remove.contains(&(order, client)));
        let errands = shared.errands(&refused, &exchange.absences, sums, 1);
        let (_, found) = self.collect(&refused, &shared, errands, &exchange.gatherer)?;
        for MachineSums { machine, order, summed } in machine_sums {
            let own = |client: &u32| machine.place(*client).is_some_and(|place| to_remove.contains(&(*order, place)));
            let wanted: Vec<u32> = summed.clients.iter().copied().filter(own).collect();
            if wanted.is_empty() {
                continue;
            }
            let of_this = |it: &&MachineSums| (it.machine.number, it.order) == (machine.number, *order);
            match found.iter().find(of_this).filter(|found| found.summed.clients == wanted) {
                Some(found) => exchange.gatherer.remove_sums(*order, &found.summed.sums),
                None if shared.holds_states => {
                    return Err(Error::federation("clients that answer otherwise when asked again").at(&machine.name));
                }
                None => exchange.gatherer.remove_sums(*order, &summed.sums),
            }
        }
        Ok(())
    }

    fn lose(&mut self, machine: &Machine, reason: String) {
        self.lose_clients(machine, &reason, machine.present().map(|(_, place)| place));
    }

    fn lose_clients(&mut self, machine: &Machine, reason: &str, places: impl Iterator<Item = u32>) {
        let lost = self.lost.entry((machine.number, machine.name.clone())).or_default();
        lost.asks += 1;
        lost.reason = one_line(reason);
        lost.clients.extend(places);
    }
}

impl Federation for RemoteFederation {
    fn clients(&self) -> &[ClientInfo] {
        &self.shared.infos
    }

    fn meter(&self) -> &Meter {
        &self.server.meter
    }

    fn is_sealed(&self) -> bool {
        self.server.addition.is_sealed()
    }

    fn ask(&mut self, ask: &Ask) -> Result<Answers> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Stopped, "stopped"));
        }
        if let Some(Hidden::Clients(privacy)) = self.hidden_in(ask) {
            return self.ask_for_hidden_sums(ask, privacy);
        }
        match self.server.addition {
            Addition::Sealed => return self.ask_for_sums(ask),
            Addition::Secure(minimum) => return self.ask_for_secure_sums(ask, minimum),
            Addition::Float | Addition::Integer => {}
        }
        let (shared, model) = (self.shared.clone(), self.model()?.clone());
        let mut exchange = self.server.open(ask, &shared.infos, shared.rows(), &*model)?;
        let sums = exchange.gatherer.sums_wanted(self.server.transforms.alter_answers());
        let errands = shared.errands(ask, &exchange.absences, &sums, 2);
        let (replies, machine_sums) = self.collect(ask, &shared, errands, &exchange.gatherer)?;
        let mut replies = replies.into_iter().peekable();
        let (holds_back, mut held) = (self.server.holds_back(ask), Vec::new());
        let mut in_sums: HashSet<(u32, u32)> = HashSet::new();
        for sums in &machine_sums {
            in_sums.extend(sums.heard().map(|client| (client, sums.order as u32)));
            exchange.gatherer.take_summed(sums.order, &sums.summed, |client| sums.machine.place(client));
        }
        for (client, info) in
            (0u32..).zip(&shared.infos).filter(|(client, _)| exchange.absences[*client as usize].is_none())
        {
            let mut unanswered = exchange.index.of_client(client).into_owned();
            unanswered.retain(|order| !in_sums.contains(&(client, *order)));
            // Of clients that were not asked.
            while replies.next_if(|((of, _), _)| *of < client).is_some() {}
            while let Some(((_, order), mut reply)) = replies.next_if(|((of, _), _)| *of == client) {
                unanswered.retain(|other| *other != order);
                let order = order as usize;
                self.server.transform(ask, &exchange.models, order, &info.id, &mut reply);
                match holds_back {
                    true => held.push((order, client, reply)),
                    false => exchange.gatherer.take(order, client, reply),
                }
            }
            if !unanswered.is_empty() {
                exchange.gatherer.missing(client, Absence::Silent);
            }
            unanswered.into_iter().for_each(|order| exchange.sent[order as usize] -= 1);
        }
        let Exchange { models, gatherer, .. } = &mut exchange;
        let together = (ask, &models[..], &shared.infos[..]);
        self.server.transform_together(together, held, |order, client, reply| gatherer.take(order, client, reply));
        let to_remove = exchange.gatherer.judge();
        if !to_remove.is_empty() {
            self.take_out(ask, &to_remove, (&sums, &machine_sums), &mut exchange)?;
        }
        Ok(self.server.close(exchange))
    }
}

impl Engine for RemoteFederation {
    fn describe(&mut self, moments: bool) -> Result<Vec<Option<Description>>> {
        let shared = self.shared.clone();
        let (had_moments, met) = &shared.met;
        if self.schema.is_none() && moments == *had_moments {
            return Ok(met.iter().cloned().map(Some).collect());
        }
        let hello = self.encode(Request::Hello { moments })?;
        let messages = shared.machines.iter().map(|machine| (machine.number, hello.clone())).collect();
        let rows = shared.rows();
        let mut found = vec![None; shared.infos.len()];
        for (machine, reply) in shared.exchange(messages, MessageKind::Query)? {
            match reply {
                Ok(SiteReply::Roll(roll)) if roll.members.len() == machine.clients.len() => {
                    for (local, place) in machine.present() {
                        let description = &roll.members[local as usize].description;
                        if is_possible(rows[place as usize], description) {
                            found[place as usize] = Some(description.clone());
                        }
                    }
                }
                other => self.lose(machine, unwanted(other)),
            }
        }
        Ok(found)
    }

    fn adopt(&mut self, schema: &Schema) -> Result<Option<Vec<Client>>> {
        // It travels with every later message.
        self.schema = Some(schema.clone());
        Ok(None)
    }

    fn widen(&mut self, schema: &Schema) -> Result<()> {
        self.adopt(schema).map(|_| ())
    }

    fn equip(&mut self, model: &Arc<dyn Model>, blueprint: &Blueprint) -> Result<()> {
        self.model = Some((model.clone(), ModelOrder::of(blueprint)?));
        Ok(())
    }

    fn afresh(&self, label: &str, transforms: Transforms, stop: Arc<AtomicBool>) -> Result<Box<dyn Engine>> {
        let (schema, model) = (self.schema.clone(), self.model.clone());
        let server = Server { transforms, addition: self.server.addition, ..Server::default() };
        Ok(Box::new(Self { label: label.into(), schema, model, stop, server, ..Self::new(self.shared.clone()) }))
    }

    /// Over other machines, noise comes from their operating systems: the server could take off what follows from a seed.
    fn hide(&mut self, hidden: Hidden) -> Result<Hidden> {
        if matches!(hidden, Hidden::Clients(_)) && !self.is_sealed() {
            let message = "privacy.sums: \"open\" tells losses and choices of single clients, which privacy.level = \"client\" hides";
            return Err(Error::new(ErrorKind::Settings, message).hint("set privacy.sums = \"secure\", or \"sealed\""));
        }
        let hidden = if self.shared.holds_states { hidden } else { hidden.from_source(Source::System) };
        self.hidden = Some((hidden, 0));
        Ok(hidden)
    }

    /// What is spent is counted once: a run that hides clients or their rows does not go on from a checkpoint.
    fn state(&self) -> Result<Option<FederationState>> {
        if self.hidden.is_some() {
            return Ok(None);
        }
        let Server { asked, meter, ledger, .. } = &self.server;
        let elsewhere = RemoteState { run: self.run.clone(), lost: self.lost.clone() };
        let (states, own) = if self.shared.holds_states { self.fetch_states()? } else { Default::default() };
        let (asked, meter, ledger) = (*asked, meter.clone(), ledger.clone());
        Ok(Some(FederationState { asked, meter, ledger, states, own, elsewhere: Some(elsewhere) }))
    }

    fn saved(&mut self) {
        self.run.checkpoint = self.server.asked;
    }

    fn restore(&mut self, state: FederationState) -> Result<()> {
        let FederationState { asked, meter, ledger, states, own, elsewhere } = state;
        let Some(RemoteState { run, lost }) = elsewhere else {
            return Err(Error::federation("this run began with its clients in one process"));
        };
        self.server = Server { asked, meter, ledger, ..std::mem::take(&mut self.server) };
        (self.run, self.lost) = (run.again(asked), lost);
        if self.shared.holds_states { self.hand_out_states(states, own) } else { Ok(()) }
    }

    fn own_models(&self) -> Option<Vec<(&str, Vec<f64>)>> {
        if !self.shared.holds_states {
            return None;
        }
        let (width, states) = (self.model().ok()?.layout().len(), self.fetch_states().ok()?.0);
        let own = |state: Option<State>| {
            let mut model = state?.vectors.unpack();
            model.truncate(width);
            Some(model)
        };
        let models = states.into_iter().map(own);
        Some(
            self.shared.infos.iter().zip(models).filter_map(|(info, model)| Some((info.id.as_str(), model?))).collect(),
        )
    }

    fn keep_models(&mut self, run: &str, stamps: &[u64]) -> Result<()> {
        if self.shared.holds_states {
            return Ok(());
        }
        let shared = self.shared.clone();
        let own = |machine: &Machine| -> Vec<u64> {
            machine.clients.iter().map(|place| place.map_or(0, |it| stamps[it as usize])).collect()
        };
        let count = |machine: &Machine| own(machine).iter().filter(|&&stamp| stamp != 0).count() as u64;
        let mut messages = Vec::new();
        for machine in shared.machines.iter().filter(|machine| count(machine) > 0) {
            let request = Request::Keep { roll: machine.roll.clone(), run: run.into(), stamps: own(machine) };
            messages.push((machine.number, self.encode(request)?));
        }
        for (machine, reply) in shared.exchange(messages, MessageKind::Evaluate)? {
            let (number, what) = match reply {
                Ok(SiteReply::Kept(KeptModels { clients, place: Some(place) })) if clients > 0 => {
                    (clients, format!("are kept on their machine, {}: {}", machine.name, one_line(&place)))
                }
                Ok(SiteReply::Kept(KeptModels { place: None, .. })) => {
                    let why = "has no folder for them (node.models)";
                    (count(machine), format!("are kept nowhere: {} {why}", machine.name))
                }
                Ok(SiteReply::Kept(_)) => (count(machine), format!("are kept nowhere: {} has lost them", machine.name)),
                other => {
                    let reason = one_line(&unwanted(other));
                    (count(machine), format!("may not be kept: {}: {reason}", machine.name))
                }
            };
            self.kept.push(format!("personal models of {} {what}", counted(number as usize, "client")));
        }
        Ok(())
    }

    fn settle(&mut self, run: &str, model: &dyn Fn(&[u32]) -> Result<String>) -> Result<()> {
        let shared = self.shared.clone();
        let mut messages = Vec::new();
        for machine in &shared.machines {
            let places: Vec<u32> = machine.present().map(|(_, place)| place).collect();
            let request = Request::Settle { roll: machine.roll.clone(), run: run.into(), model: model(&places)? };
            messages.push((machine.number, self.encode(request)?));
        }
        for (machine, reply) in shared.exchange(messages, MessageKind::Evaluate)? {
            let name = &machine.name;
            self.kept.push(match reply {
                Ok(SiteReply::Kept(KeptModels { clients, place: Some(place) })) => {
                    let clients = counted(clients as usize, "client");
                    format!("{name}: the model with those of its {clients} is there, in {}", one_line(&place))
                }
                Ok(SiteReply::Kept(KeptModels { place: None, .. })) => {
                    format!("{name}: the model is not there, it has no folder for it (node.models)")
                }
                other => format!("{name}: the model may not be there: {}", one_line(&unwanted(other))),
            });
        }
        Ok(())
    }

    fn part(&mut self) -> Result<()> {
        self.part_from_machines()
    }

    fn ledger(&self) -> &Ledger {
        &self.server.ledger
    }

    fn notes(&self) -> Vec<String> {
        let infos = &self.shared.infos;
        let note = |((_, machine), lost): (&(u64, String), &Lost)| {
            let names: Vec<&str> = lost.clients.iter().map(|&client| infos[client as usize].id.as_str()).collect();
            let asks = if lost.asks == 1 { "one ask".into() } else { format!("{} asks", lost.asks) };
            format!("{machine}: no answer to {asks} from {}: {}", few_of(&names), lost.reason)
        };
        let absent = self.shared.absent.iter().cloned().chain(self.server.transforms.notes(infos.len()));
        let lost = absent.chain(self.lost.iter().map(note)).chain(self.server.ledger.notes(infos));
        lost.chain(self.hidden_note()).chain(self.secure_notes()).chain(self.kept.iter().cloned()).collect()
    }
}

/// The orders that a machine was to sum, and for whom: everybody where that is absent.
type AskedSums = BTreeMap<u32, (SumOrder, Option<Vec<u32>>)>;

/// What is wrong with a machine's sums.
fn summed_fault(asked: &AskedSums, summed: &[(u32, Summed)], gatherer: &Gatherer) -> Option<&'static str> {
    let mut seen = BTreeSet::new();
    summed.iter().find_map(|(order, summed)| {
        let Some((sum, to)) = asked.get(order).filter(|_| seen.insert(*order)) else {
            return Some("sums that were not asked for");
        };
        let is_meant = |client: &u32| to.as_ref().is_none_or(|to| to.binary_search(client).is_ok());
        let mut clients = summed.clients.iter().chain(summed.refused.iter().map(|(client, _)| client));
        if !clients.all(is_meant) {
            return Some("sums over clients that were not asked");
        }
        summed.fault(sum, gatherer.shape(*order as usize))
    })
}

fn kind_of(ask: &Ask) -> MessageKind {
    if ask.phase == Phase::Evaluate { MessageKind::Evaluate } else { MessageKind::Train }
}

fn unwanted(reply: Delivery<SiteReply>) -> String {
    reply.err().unwrap_or_else(|| "another answer than was asked for".to_string())
}

/// A machine's text as one line without control characters.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 500;
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Names of the machines: their own where these are unique, else the transport's.
fn names(transport: &mut dyn Transport, numbers: &[u64], rolls: &BTreeMap<u64, Roll>) -> BTreeMap<u64, String> {
    const LONGEST: usize = 64;
    let own = |number: &u64| -> Option<String> {
        let name = one_line(rolls.get(number)?.name.as_deref()?);
        (!name.is_empty()).then(|| name.chars().take(LONGEST).collect())
    };
    let mut count: HashMap<String, usize> = HashMap::new();
    numbers.iter().filter_map(own).for_each(|name| *count.entry(name).or_default() += 1);
    let name = |&number: &u64| {
        let own = own(&number).filter(|name| count[name] == 1);
        (number, own.unwrap_or_else(|| one_line(&transport.name(number))))
    };
    numbers.iter().map(name).collect()
}
