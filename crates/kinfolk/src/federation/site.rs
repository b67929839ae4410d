//! The clients of one machine: a message comes as bytes, is worked on with the machine's own data on all cores, and is
//! answered in bytes.
//!
//! A message has all that is needed to answer it but two things: the data, of which the machine itself says where it is,
//! and what clients remember, which the caller keeps between messages as a state. So a new process may answer each one.

use super::host::State;
use super::local::{LocalFederation, threads};
use super::wire::{
    self, ClientReply, DataOrder, Member, ModelOrder, Reply, Request, Roll, SiteMessage, SiteOrder, SiteReply,
    read_settings, roll_of,
};
use super::{Ask, Gather, Order, Params, Phase, Recipients};
use crate::data::schema::{Schema, describe};
use crate::data::{self, Client, DataShape, Population};
use crate::error::{Error, ErrorKind, Result};
use crate::models::Precision;
use serde::{Deserialize, Serialize};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use toml::Value;

/// Where the rows of a machine's clients are.
pub enum Rows {
    /// In a table of this path: one client or many.
    Table(String),
    /// In the dataset that the experiment names, of which this machine has part `index` of `of`.
    Partition {
        /// Which part, from 0.
        index: usize,
        /// How many parts there are.
        of: usize,
    },
    /// With clients that somebody made, and the shape of their data.
    Given(Vec<Client>, DataShape),
}

impl Rows {
    /// The clients here that belong to an experiment's data, and their places among all.
    fn load(&self, order: &DataOrder) -> Result<Here> {
        let source = data::source(&order.source).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("data source {} is not known here", order.source))
        })?;
        // A server must not be able to have a machine read any file.
        let has_path = source.settings.iter().any(|setting| setting.name == "path");
        let text = match self {
            Rows::Given(clients, shape) => {
                let true_clusters = clients.iter().filter_map(|client| client.truth).max().map(|last| last + 1);
                let population =
                    Population { clients: clients.clone(), true_clusters, shape: *shape, ..Population::default() };
                return Ok(Here { population, first: None });
            }
            Rows::Table(_) if source.name != "table" => {
                return Err(Error::settings(format!(
                    "this machine has a table, the experiment asks for {}",
                    source.name
                ))
                .hint("set data.source = \"table\" in the experiment, or partition-id and num-partitions here"));
            }
            Rows::Table(path) => {
                let mut table: toml::Table = toml::from_str(&order.settings).unwrap_or_default();
                table.insert("path".into(), Value::String(path.clone()));
                toml::to_string(&table).unwrap_or_default()
            }
            Rows::Partition { .. } if has_path => {
                return Err(Error::settings(format!("data source {} has no partitions", source.name))
                    .hint("say with table = \"/path/to/rows.csv\" where this machine's rows are"));
            }
            Rows::Partition { .. } => order.settings.clone(),
        };
        let settings = read_settings("data", source.settings, &text)?;
        let population = (source.build)(&settings, order.seed)?;
        population.check()?;
        match self {
            Rows::Partition { index, of } => Here::part(population, *index, *of),
            // Every machine would number the true clusters of its own table in its own way.
            _ => {
                let unnamed = |client: Client| Client { truth: None, ..client };
                let clients = population.clients.into_iter().map(unnamed).collect();
                Ok(Here { population: Population { clients, true_clusters: None, ..population }, first: None })
            }
        }
    }
}

/// Clients that are here.
struct Here {
    population: Population,
    /// The place of the first of them among all, where that is known.
    first: Option<usize>,
}

impl Here {
    fn part(mut population: Population, index: usize, of: usize) -> Result<Self> {
        let all = population.clients.len();
        if index >= of || of > all {
            return Err(Error::settings(format!(
                "partition {index} of {of}: want a number below {of}, and at most {all} partitions for {all} clients"
            )));
        }
        let cut = |part: usize| all * part / of;
        population.clients = population.clients[cut(index)..cut(index + 1)].to_vec();
        if !population.outliers.is_empty() {
            population.outliers = population.outliers[cut(index)..cut(index + 1)].to_vec();
        }
        Ok(Self { population, first: Some(cut(index)) })
    }
}

/// What clients remember of the method they last worked for.
#[derive(Default, Serialize, Deserialize)]
struct Memory {
    label: String,
    seed: u64,
    clients: Vec<Kept>,
}

/// What one client remembers.
#[derive(Default, Clone, Serialize, Deserialize)]
struct Kept {
    state: Option<State>,
    /// What it kept before that: where an answer got lost, the server still counts with it.
    before: Option<State>,
    /// What a client says of itself that is code of the user's own, where it can.
    own: Option<Vec<u8>>,
}

/// What a message needs to be prepared, and what was made of it.
struct Prepared {
    data: DataOrder,
    schema: Option<Schema>,
    model: Option<ModelOrder>,
    first: Option<usize>,
    shape: DataShape,
    true_clusters: Option<usize>,
    outliers: Vec<bool>,
    federation: LocalFederation,
    roll: String,
}

/// The clients of one machine.
pub struct Site {
    rows: Rows,
    pool: Arc<rayon::ThreadPool>,
    /// Of the last message; the next one mostly needs the same.
    prepared: Option<Prepared>,
}

impl Site {
    /// A machine with these rows, on so many threads (0: all cores).
    pub fn new(rows: Rows, thread_count: usize) -> Result<Self> {
        Ok(Self { rows, pool: threads(thread_count)?, prepared: None })
    }

    /// Answers a message. `state` is what the last answer to the same run returned beside the reply, and empty at first.
    /// Nothing that a message says ends the program.
    pub fn answer(&mut self, message: &[u8], state: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
        let answered = catch_unwind(AssertUnwindSafe(|| self.try_to_answer(message, state)));
        answered.unwrap_or_else(|_| {
            self.prepared = None;
            Err(Error::federation("this machine panicked over a message; its log says where"))
        })
    }

    fn try_to_answer(&mut self, message: &[u8], state: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
        let message: SiteMessage = wire::decode(message)?;
        let memory: Memory = if state.is_empty() { Memory::default() } else { wire::decode(state)? };
        self.prepare(&message)?;
        let Some(prepared) = &mut self.prepared else { return Err(Error::federation("nothing is prepared")) };
        let mut kept = Vec::new();
        let reply = match message.request {
            Request::Hello { moments } => SiteReply::Roll(prepared.roll_call(moments)),
            Request::Work { roll, stamp, phase, models, orders } => {
                if roll != prepared.roll {
                    return Err(Error::federation("the clients of this machine have changed since the run began"));
                }
                let same = memory.label == message.label && memory.seed == message.data.seed;
                kept = if same { memory.clients } else { Vec::new() };
                prepared.remember(&mut kept, &orders)?;
                prepared.work(stamp, phase, &models, orders)?
            }
        };
        let memory = Memory { label: message.label, seed: message.data.seed, clients: prepared.tell(kept)? };
        Ok((wire::encode(&reply)?, wire::encode(&memory)?))
    }

    fn prepare(&mut self, message: &SiteMessage) -> Result<()> {
        let is_ready =
            |it: &Prepared| (&it.data, &it.schema, &it.model) == (&message.data, &message.schema, &message.model);
        if self.prepared.as_ref().is_some_and(is_ready) {
            return Ok(());
        }
        let Here { population, first } = self.pool.install(|| self.rows.load(&message.data))?;
        let roll = roll_of(population.clients.iter().map(|client| client.id.as_str()));
        let (shape, true_clusters, outliers) = (population.shape, population.true_clusters, population.outliers);
        let mut federation = LocalFederation::new(population.clients, self.pool.clone());
        if let Some(schema) = &message.schema {
            federation.adopt(schema)?;
        }
        if let Some(model) = &message.model {
            federation.set_model(model.read()?.build()?)?;
        }
        let (data, schema, model) = (message.data.clone(), message.schema.clone(), message.model.clone());
        self.prepared = Some(Prepared { data, schema, model, first, shape, true_clusters, outliers, federation, roll });
        Ok(())
    }
}

impl Prepared {
    /// Puts every client back to where it was, or to where the server believes it to be: of two states that it kept it
    /// takes the one that its orders name.
    fn remember(&self, kept: &mut Vec<Kept>, orders: &[SiteOrder]) -> Result<()> {
        let host = self.federation.host();
        let is_new = kept.is_empty();
        kept.resize(host.clients().len(), Kept::default());
        for order in orders {
            let Some(stamp) = order.work.expects() else { continue };
            for (place, kept) in (0u32..).zip(kept.iter_mut()) {
                let is_meant = order.to.as_ref().is_none_or(|list| list.binary_search(&place).is_ok());
                if is_meant && kept.before.as_ref().is_some_and(|before| before.stamp == stamp) {
                    kept.state = kept.before.take();
                }
            }
        }
        host.restore(kept.iter().map(|kept| kept.state.clone()).collect());
        for (client, kept) in host.clients().iter().zip(kept) {
            match &kept.own {
                Some(own) => client.load(own)?,
                None if is_new => client.begin_anew()?,
                None => {}
            }
        }
        Ok(())
    }

    /// What clients remember after a message, beside what they remembered before it.
    fn tell(&self, before: Vec<Kept>) -> Result<Vec<Kept>> {
        let host = self.federation.host();
        let before = before.into_iter().chain(std::iter::repeat(Kept::default()));
        let after = host.clients().iter().zip(host.states()).zip(before);
        let tell = |((client, state), kept): ((&Client, Option<State>), Kept)| {
            let stamp = |state: &Option<State>| state.as_ref().map(|state| state.stamp);
            let before = if stamp(&state) == stamp(&kept.state) { kept.before } else { kept.state };
            Ok(Kept { state, before, own: client.save()? })
        };
        after.map(tell).collect()
    }

    fn roll_call(&self, moments: bool) -> Roll {
        let member = |(place, client): (usize, &Client)| Member {
            id: client.id.clone(),
            place: self.first.map(|first| (first + place) as u64),
            truth: client.truth,
            outlier: self.outliers.get(place).copied().unwrap_or(false),
            description: describe(client, moments),
        };
        let members = self.federation.host().clients().iter().enumerate().map(member).collect();
        Roll { members, shape: self.shape, true_clusters: self.true_clusters }
    }

    fn work(
        &self,
        stamp: u64,
        phase: Phase,
        models: &[(u32, Arc<wire::Packed>)],
        orders: Vec<SiteOrder>,
    ) -> Result<SiteReply> {
        const MOST_MODELS: usize = 1 << 22;
        let count = models.iter().map(|(index, _)| *index as usize + 1).max().unwrap_or(0);
        if count > MOST_MODELS {
            return Err(Error::federation(format!("a message names model {}, want below {MOST_MODELS}", count - 1)));
        }
        let mut unpacked: Vec<Params> = vec![Params::default(); count];
        models.iter().for_each(|(index, model)| unpacked[*index as usize] = Arc::new(model.unpack()));
        let indices: Vec<u32> = orders.iter().map(|order| order.index).collect();
        let order = |order: SiteOrder| Order {
            to: order.to.map_or(Recipients::All, |list| Recipients::List(Arc::new(list))),
            work: order.work,
        };
        let orders = orders.into_iter().map(order).collect();
        let ask = Ask { phase, models: unpacked, orders, gather: Gather::Each };
        let precision = self.federation.host().model().map_or(Precision::F64, |model| model.precision());
        let reply = |(order, client, reply): (usize, u32, Result<Reply>)| ClientReply {
            client,
            order: indices[order],
            reply: reply.map(|reply| reply.pack(precision)).map_err(|error| error.to_string()),
        };
        Ok(SiteReply::Replies(self.federation.replies(&ask, stamp)?.into_iter().map(reply).collect()))
    }
}
