//! Clients on other machines. Every ask becomes one message to each machine with clients in it, which carries each model
//! once; replies are summed here, in the order of the clients.
//!
//! The clients of a machine that does not answer are silent: they are missing from that ask, and the method decides what
//! to do without them. The notes at the end say what got lost.

use super::*;
use crate::data::schema::sorted;
use crate::data::{DataShape, Features, Population, Shard, Targets};
use crate::federation::server::Server;
use crate::federation::server::ledger::few_of;
use crate::federation::server::rolls::{Admitted, Rolls, admit};
use crate::federation::wire::{
    self, ClientReply, DataOrder, KeptModels, ModelOrder, Request, Roll, SiteMessage, SiteOrder, SiteReply, roll_of,
};
use crate::federation::work::Reply;
use crate::federation::{Absence, Answers, Ask, ClientInfo, Phase};
use crate::models::Packed;
use crate::text::counted;
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    roll: String,
    /// Each client's place among all; `None` for one that was left out.
    clients: Vec<Option<u32>>,
}

impl Machine {
    /// The clients that take part: number on the machine, and place among all.
    fn present(&self) -> impl Iterator<Item = (u32, u32)> {
        (0u32..).zip(&self.clients).filter_map(|(local, place)| Some((local, (*place)?)))
    }
}

/// What all federations of the same clients share.
struct Shared {
    line: Line,
    machines: Vec<Machine>,
    infos: Vec<ClientInfo>,
    data: DataOrder,
    /// The clients' descriptions of their data, and whether these have moments.
    met: (bool, Vec<Description>),
    /// Machines and clients that were left out, and why.
    absent: Vec<String>,
}

impl Shared {
    fn rows(&self) -> Vec<u32> {
        self.met.1.iter().map(|description| description.rows as u32).collect()
    }

    /// Delivers messages; the reply of each machine, or why there is none.
    fn exchange(
        &self,
        messages: Vec<(u64, Vec<u8>)>,
        kind: MessageKind,
    ) -> Result<Vec<(&Machine, Delivery<SiteReply>)>> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let asked: BTreeSet<u64> = messages.iter().map(|(number, _)| *number).collect();
        let deliveries = self.line.lock().unwrap_or_else(PoisonError::into_inner).exchange(messages, kind)?;
        let mut deliveries: BTreeMap<u64, Delivery> = deliveries.into_iter().collect();
        let mut read = |machine: &Machine| {
            let bytes = deliveries.remove(&machine.number).unwrap_or_else(|| Err("no answer".into()))?;
            wire::decode(&bytes).map_err(|error| error.to_string())
        };
        let machines = self.machines.iter().filter(|machine| asked.contains(&machine.number));
        Ok(machines.map(|machine| (machine, read(machine))).collect())
    }
}

/// Clients on other machines.
pub struct RemoteFederation {
    shared: Arc<Shared>,
    label: String,
    schema: Option<Schema>,
    model: Option<(Arc<dyn Model>, ModelOrder)>,
    server: Server,
    stop: Arc<AtomicBool>,
    /// By the names of the machines, in the order of their numbers.
    lost: BTreeMap<(u64, String), Lost>,
    /// Where clients' own models are saved, or why not.
    kept: Vec<String>,
}

/// The replies of every client, each with its order.
type Replies = BTreeMap<u32, Vec<(usize, Reply)>>;

#[derive(Default)]
struct Lost {
    asks: usize,
    reason: String,
    clients: BTreeSet<u32>,
}

impl RemoteFederation {
    /// Meets the clients of all connected machines, and returns what is known of them. Machines without a roll and
    /// implausible clients are left out, and the notes say so; unless `patient`, leaving out more than half of the machines
    /// is an error.
    pub fn meet(line: &Line, data: DataOrder, moments: bool, patient: bool) -> Result<(Self, Population)> {
        let hello = SiteMessage {
            data: data.clone(),
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
        let admitted = admit(&mut rolls, &names, &mut faults);
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
        Self::of_rolls(line.clone(), (&rolls, &admitted), &names, (data, moments, absent))
    }

    fn of_rolls(
        line: Line,
        (rolls, admitted): (&Rolls, &Admitted),
        names: &BTreeMap<u64, String>,
        (data, moments, absent): (DataOrder, bool, Vec<String>),
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
        let mut machines: BTreeMap<u64, Machine> = (rolls.iter())
            .map(|(&number, roll)| {
                let roll_digest = roll_of(roll.members.iter().map(|member| member.id.as_str()));
                let name = names[&number].clone();
                (number, Machine { number, name, roll: roll_digest, clients: vec![None; roll.members.len()] })
            })
            .collect();
        let nothing = || Shard::new(Features::F64 { columns: 0, values: Vec::new() }, Targets::None);
        let (mut clients, mut descriptions, mut outliers) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (_, _, number, local, member)) in everybody.iter().enumerate() {
            if let Some(machine) = machines.get_mut(number) {
                machine.clients[*local] = Some(place as u32);
            }
            let group = member.description.group.clone();
            let (train, test) = (nothing()?, nothing()?);
            clients.push(Client { id: member.id.clone(), train, test, group, truth: member.truth });
            descriptions.push(member.description.clone());
            outliers.push(member.outlier);
        }
        let shared = Shared {
            line,
            machines: machines.into_values().collect(),
            infos: clients.iter().map(|client| ClientInfo { id: client.id.clone() }).collect(),
            data,
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

    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            label: String::new(),
            schema: None,
            model: None,
            server: Server::default(),
            stop: Arc::default(),
            lost: BTreeMap::new(),
            kept: Vec::new(),
        }
    }

    /// Has these transforms act on answers.
    pub fn with_transforms(mut self, transforms: Transforms) -> Self {
        self.server.transforms = transforms;
        self
    }

    fn model(&self) -> Result<&Arc<dyn Model>> {
        self.model.as_ref().map(|(model, _)| model).ok_or_else(|| Error::federation("the clients have no model yet"))
    }

    /// The message of an ask to a machine; `None` where none of its clients has work.
    fn message(
        &self,
        ask: &Ask,
        packed: &[Arc<Packed>],
        machine: &Machine,
        absences: &[Option<Absence>],
    ) -> Result<Option<Vec<u8>>> {
        let mut orders = Vec::new();
        let mut needed = BTreeSet::new();
        for (index, order) in (0u32..).zip(&ask.orders) {
            let is_meant = |place: u32| order.to.contains(place) && absences[place as usize].is_none();
            let to: Vec<u32> =
                machine.present().filter(|(_, place)| is_meant(*place)).map(|(local, _)| local).collect();
            if !to.is_empty() {
                needed.extend(order.work.needs().models.iter().copied());
                let everybody = to.len() == machine.clients.len();
                orders.push(SiteOrder { index, to: (!everybody).then_some(to), work: order.work.clone() });
            }
        }
        if orders.is_empty() {
            return Ok(None);
        }
        let models = needed.into_iter().map(|index| (index as u32, packed[index].clone())).collect();
        let request =
            Request::Work { roll: machine.roll.clone(), stamp: self.server.asked, phase: ask.phase, models, orders };
        self.encode(request).map(Some)
    }

    fn encode(&self, request: Request) -> Result<Vec<u8>> {
        let model = self.model.as_ref().map(|(_, order)| order.clone());
        let (data, label, schema) = (self.shared.data.clone(), self.label.clone(), self.schema.clone());
        wire::encode(&SiteMessage { data, label, schema, model, request })
    }

    /// Has every machine do its part. Replies by client, each with its order's index.
    fn collect(&mut self, ask: &Ask, absences: &[Option<Absence>]) -> Result<Replies> {
        let precision = self.model()?.precision();
        let packed: Vec<Arc<Packed>> =
            ask.models.iter().map(|model| Arc::new(Packed::pack(model, precision))).collect();
        let mut messages = Vec::new();
        for machine in &self.shared.machines {
            messages.extend(self.message(ask, &packed, machine, absences)?.map(|message| (machine.number, message)));
        }
        let kind = if ask.phase == Phase::Evaluate { MessageKind::Evaluate } else { MessageKind::Train };
        let mut replies = Replies::new();
        for (machine, reply) in self.shared.clone().exchange(messages, kind)? {
            match reply {
                Ok(SiteReply::Replies(found)) => self.sort(ask, machine, found, &mut replies),
                other => self.lose(machine, unwanted(other)),
            }
        }
        Ok(replies)
    }

    /// Sorts a machine's replies by client. Unrequested and failed ones are left out; of duplicates, the first counts.
    fn sort(&mut self, ask: &Ask, machine: &Machine, found: Vec<ClientReply>, replies: &mut Replies) {
        let mut failures: BTreeMap<u32, String> = BTreeMap::new();
        for ClientReply { client, order, reply } in found {
            let (place, order) = (machine.clients.get(client as usize).copied().flatten(), order as usize);
            let Some(place) =
                place.filter(|&place| ask.orders.get(order).is_some_and(|order| order.to.contains(place)))
            else {
                continue;
            };
            match reply {
                Ok(reply) => {
                    let own = replies.entry(place).or_default();
                    if own.iter().all(|(other, _)| *other != order) {
                        own.push((order, reply.unpack()));
                    }
                }
                Err(reason) => drop(failures.insert(place, reason)),
            }
        }
        if let Some(reason) = failures.values().next().cloned() {
            self.lose_clients(machine, &reason, failures.into_keys());
        }
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

    fn ask(&mut self, ask: &Ask) -> Result<Answers> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Stopped, "stopped"));
        }
        let (shared, model) = (self.shared.clone(), self.model()?.clone());
        let mut exchange = self.server.open(ask, &shared.infos, shared.rows(), &*model)?;
        let mut replies = self.collect(ask, &exchange.absences)?;
        let expected =
            (0u32..).zip(&shared.infos).zip(exchange.absences.clone()).filter(|(_, absence)| absence.is_none());
        for ((client, info), _) in expected {
            let mut unanswered = exchange.index.of_client(client).into_owned();
            for (order, mut reply) in replies.remove(&client).unwrap_or_default() {
                unanswered.retain(|other| *other as usize != order);
                self.server.transform(ask, &exchange.models, order, &info.id, &mut reply);
                exchange.gatherer.take(order, client, reply);
            }
            if !unanswered.is_empty() {
                exchange.gatherer.missing(client, Absence::Silent);
            }
            unanswered.into_iter().for_each(|order| exchange.sent[order as usize] -= 1);
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
        let fresh = Self { label: label.into(), schema, model, stop, ..Self::new(self.shared.clone()) };
        Ok(Box::new(fresh.with_transforms(transforms)))
    }

    fn keep_models(&mut self, run: &str, stamps: &[u64]) -> Result<()> {
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
        lost.chain(self.kept.iter().cloned()).collect()
    }
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
