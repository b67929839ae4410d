//! The engine in this process: blocks of clients on all cores.
//!
//! Blocks are a fixed function of the data, workers take them in order, and their results are folded in order,
//! so the sums are the same for any number of threads while only a few partial sums exist at a time.

use super::{Engine, FederationState, is_possible};
use crate::data::schema::{Description, Schema};
use crate::data::{Client, Features};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::client::host::Host;
use crate::federation::server::gather::{is_suspect, longest, slots, weight_of};
use crate::federation::server::ledger::Ledger;
use crate::federation::server::meter::Meter;
use crate::federation::server::{Exchange, Server};
use crate::federation::transforms::Transforms;
use crate::federation::work::{Reply, Task};
use crate::federation::{Absence, Answers, Ask, ClientInfo, Federation, Gather, Order, OrderIndex, Recipients};
use crate::memory::check_room;
use crate::models::{Blueprint, Job, Model, Reduced, Worker};
use crate::panics;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Clients in this process.
pub struct LocalFederation {
    pub(in crate::federation) host: Host,
    infos: Vec<ClientInfo>,
    blocks: Vec<Range<u32>>,
    server: Server,
    pool: Arc<rayon::ThreadPool>,
    stop: Arc<AtomicBool>,
    single_answers: bool,
}

/// The most threads one may ask for: more than cores, far fewer than a process can start.
pub const MOST_THREADS: usize = 1024;

/// Threads for engines to share; 0 means one for every core.
pub fn threads(count: usize) -> Result<Arc<rayon::ThreadPool>> {
    if count > MOST_THREADS {
        return Err(Error::settings(format!("threads: got {count}, want a whole number from 1 to {MOST_THREADS}")));
    }
    rayon::ThreadPoolBuilder::new()
        .num_threads(count)
        .start_handler(|_| panics::mark_pool_thread())
        .build()
        .map(Arc::new)
        .map_err(|error| Error::new(ErrorKind::Io, format!("threads could not be started: {error}")))
}

/// Bytes of results that may wait in memory.
const SMALL_RESULTS: usize = 16 << 20;

impl LocalFederation {
    /// A federation of these clients.
    pub fn new(clients: Vec<Client>, pool: Arc<rayon::ThreadPool>) -> Self {
        let infos = clients.iter().map(|client| ClientInfo { id: client.id.clone() }).collect();
        let blocks = blocks(&clients);
        Self {
            host: Host::new(clients),
            infos,
            blocks,
            server: Server::default(),
            pool,
            stop: Arc::new(AtomicBool::new(false)),
            single_answers: false,
        }
    }

    /// Has these transforms act on answers.
    pub fn with_transforms(mut self, transforms: Transforms) -> Self {
        self.server.transforms = transforms;
        self
    }

    /// Sums single answers at the server, as over a wire, instead of reducing while computing.
    pub fn from_single_answers(mut self) -> Self {
        self.single_answers = true;
        self
    }

    fn rows(&self) -> Vec<u32> {
        self.host.clients().iter().map(|client| client.train.len() as u32).collect()
    }

    /// The clients' side.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Gives the clients their model.
    pub fn set_model(&mut self, model: Arc<dyn Model>) -> Result<()> {
        self.host.set_model(model)
    }

    /// Does `work` for every block on all threads and `fold`s the results, of about `result_bytes` each, in block order.
    fn in_blocks<R: Send>(
        &self,
        models: &[Vec<f64>],
        result_bytes: usize,
        work: impl Fn(&mut dyn Worker, Range<u32>) -> Result<R> + Sync,
        fold: impl FnMut(R) + Send,
    ) -> Result<()> {
        let model = self.host.model()?;
        let models: Vec<&[f64]> = models.iter().map(Vec::as_slice).collect();
        let next = AtomicUsize::new(0);
        let folding = Mutex::new((0, BTreeMap::new(), fold));
        let failures: Mutex<BTreeMap<usize, Error>> = Mutex::new(BTreeMap::new());
        let give_up = |place: usize, error: Error| {
            next.store(self.blocks.len(), Ordering::Relaxed);
            failures.lock().unwrap_or_else(PoisonError::into_inner).insert(place, error);
        };
        // Every other ask runs backwards, from the rows that the last one left in the cache. All results then wait for the
        // first block, so only small ones do.
        let backwards = self.server.asked % 2 == 1 && result_bytes * self.blocks.len() < SMALL_RESULTS;
        let run = || {
            let mut worker = model.worker(&models);
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let index = if backwards { self.blocks.len().wrapping_sub(1 + place) } else { place };
                let Some(block) = self.blocks.get(index) else { break };
                if self.stop.load(Ordering::Relaxed) {
                    give_up(place, Error::new(ErrorKind::Stopped, "stopped"));
                    break;
                }
                match work(&mut *worker, block.clone()) {
                    Err(error) => give_up(place, error),
                    Ok(result) => {
                        let mut guard = folding.lock().unwrap_or_else(PoisonError::into_inner);
                        let (turn, waiting, fold) = &mut *guard;
                        waiting.insert(index, result);
                        while let Some(result) = waiting.remove(turn) {
                            fold(result);
                            *turn += 1;
                        }
                    }
                }
            }
        };
        self.pool.scope(|scope| (0..self.pool.current_num_threads()).for_each(|_| scope.spawn(|_| run())));
        // Blocks are taken in order, so the first failure is the same for any number of threads.
        match failures.into_inner().unwrap_or_else(PoisonError::into_inner).pop_first() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// Sums without single answers, orders to the same clients together; where a model diverged, clients answer singly.
    fn reduce(&self, ask: &Ask, exchange: &mut Exchange) -> Result<()> {
        let Exchange { models, absences, gatherer, .. } = exchange;
        let longest_model = longest(ask);
        let tasks: Vec<Task> = ask.orders.iter().filter_map(|order| order.work.task()).collect();
        let slots = ask.orders.iter().map(|order| slots(ask.gather, &order.work));
        let jobs: Vec<Job> = tasks.iter().zip(slots).map(|(task, slots)| task.job(slots)).collect();
        let mut stacks: Vec<(&Recipients, Vec<usize>)> = Vec::new();
        for (index, order) in ask.orders.iter().enumerate() {
            match stacks.iter_mut().find(|(to, _)| **to == order.to) {
                Some((_, orders)) => orders.push(index),
                None => stacks.push((&order.to, vec![index])),
            }
        }
        let weight = weight_of(ask.gather);
        let work = |worker: &mut dyn Worker, block: Range<u32>| {
            let mut results: Vec<Part> = Vec::new();
            for (to, orders) in &stacks {
                let clients: Vec<u32> =
                    block.clone().filter(|&c| absences[c as usize].is_none() && to.contains(c)).collect();
                if clients.is_empty() {
                    continue;
                }
                let seats: Vec<_> = clients.iter().map(|&client| self.host.seat(client)).collect();
                let stack: Vec<Job> = orders.iter().map(|&order| jobs[order]).collect();
                let places = || clients.iter().flat_map(|&client| orders.iter().map(move |&order| (client, order)));
                let mut hints: Vec<u32> = places().map(|(client, order)| self.host.hint(client, order)).collect();
                let reduced = worker.reduce(&stack, &seats, &mut hints, weight);
                worker.failure().map_or(Ok(()), Err)?;
                places().zip(&hints).for_each(|((client, order), &hint)| self.host.set_hint(client, order, hint));
                for (&order, reduced) in orders.iter().zip(reduced) {
                    if !is_suspect(&ask.orders[order].work, &reduced, longest_model) {
                        results.push(Part::Sums(order, clients.clone(), reduced));
                        continue;
                    }
                    for &client in &clients {
                        let reply = self.answer(worker, models, (ask, self.server.asked), order, client)?;
                        results.push(Part::Single(order, client, reply));
                    }
                }
            }
            Ok(results)
        };
        let result_bytes = jobs.iter().map(|job| job.slots).sum::<usize>() * models.first().map_or(0, Vec::len) * 8;
        self.in_blocks(models, result_bytes, work, |results| {
            for part in results {
                match part {
                    Part::Sums(order, clients, reduced) => gatherer.take_sums(order, &tasks[order], clients, reduced),
                    Part::Single(order, client, reply) => gatherer.take(order, client, reply),
                }
            }
        })
    }

    /// One client's answer to one order, rounded and transformed.
    fn answer(
        &self,
        worker: &mut dyn Worker,
        models: &[Vec<f64>],
        (ask, stamp): (&Ask, u64),
        order: usize,
        client: u32,
    ) -> Result<Reply> {
        let mut reply = self.host.answer(worker, models, stamp, order, &ask.orders[order].work, client)?;
        let precision = self.host.model()?.precision();
        reply.vector.iter_mut().for_each(|vector| precision.round(vector));
        self.server.transform((ask, stamp), models, order, &self.infos[client as usize].id, &mut reply);
        Ok(reply)
    }

    /// Single replies, block by block. Where `patient`, `take` gets clients' errors too; else the first ends the ask.
    fn reply(
        &self,
        (ask, stamp, patient): (&Ask, u64, bool),
        models: &[Vec<f64>],
        (index, absences): (&OrderIndex, &[Option<Absence>]),
        mut take: impl FnMut(usize, u32, Result<Reply>) + Send,
    ) -> Result<()> {
        let work = |worker: &mut dyn Worker, block: Range<u32>| {
            let mut replies: Vec<(usize, u32, Result<Reply>)> = Vec::new();
            for client in block.filter(|&client| absences[client as usize].is_none()) {
                for index in index.of_client(client).iter().map(|&index| index as usize) {
                    let reply = self.answer(worker, models, (ask, stamp), index, client);
                    replies.push((index, client, if patient { reply } else { Ok(reply?) }));
                }
            }
            Ok(replies)
        };
        self.in_blocks(models, usize::MAX / self.blocks.len().max(1), work, |replies| {
            replies.into_iter().for_each(|(order, client, reply)| take(order, client, reply));
        })
    }

    /// The replies of a machine's clients to an ask with this stamp; a client that fails leaves the others alone.
    pub(in crate::federation) fn replies(&self, ask: &Ask, stamp: u64) -> Result<Vec<(usize, u32, Result<Reply>)>> {
        ask.check(self.infos.len())?;
        let index = OrderIndex::of(ask, self.infos.len());
        let mut replies = Vec::new();
        ask.suits(&**self.host.model()?)?;
        let models: Vec<Vec<f64>> = ask.models.iter().map(|model| model.to_vec()).collect();
        self.reply((ask, stamp, true), &models, (&index, &vec![None; self.infos.len()]), |order, client, reply| {
            replies.push((order, client, reply));
        })?;
        Ok(replies)
    }
}

enum Part {
    Sums(usize, Vec<u32>, Reduced),
    Single(usize, u32, Reply),
}

/// Consecutive clients with about a 64th of all rows, between 512 and 4096 rows, at most 1024 clients. Clients that are the
/// user's own code, which may take any time, are blocks of their own.
fn blocks(clients: &[Client]) -> Vec<Range<u32>> {
    let total: usize = clients.iter().map(|client| client.train.len()).sum();
    let wanted = (total / 64).clamp(512, 4096);
    let mut blocks = Vec::new();
    let (mut begin, mut rows) = (0u32, 0);
    for (index, client) in clients.iter().enumerate() {
        let end = index as u32 + 1;
        rows += client.train.len();
        let alone = matches!(**client.train.features(), Features::Own(_));
        if rows >= wanted || alone || end - begin == 1024 || end as usize == clients.len() {
            blocks.push(begin..end);
            (begin, rows) = (end, 0);
        }
    }
    blocks
}

impl Federation for LocalFederation {
    fn clients(&self) -> &[ClientInfo] {
        &self.infos
    }

    fn meter(&self) -> &Meter {
        &self.server.meter
    }

    fn ask(&mut self, ask: &Ask) -> Result<Answers> {
        let model = self.host.model()?.clone();
        let mut exchange = self.server.open(ask, &self.infos, self.rows(), &*model)?;
        let is_vector = |order: &&Order| order.work.sends(1).length > 0;
        let summable = ask.orders.iter().all(|order| order.work.task().is_some() && is_vector(&order));
        let sums = matches!(ask.gather, Gather::Sum { .. });
        if !sums {
            let answers = ask.orders.iter().filter(is_vector).map(|order| order.to.among(self.infos.len()).count());
            check_room("every client's own answer", &[answers.sum(), model.layout().len()], size_of::<f64>())?;
        }
        if sums && summable && !self.single_answers && !self.server.transforms.alter_answers() {
            self.reduce(ask, &mut exchange)?;
        } else {
            let Exchange { index, absences, models, gatherer, .. } = &mut exchange;
            self.reply((ask, self.server.asked, false), models, (index, absences), |order, client, reply| {
                if let Ok(reply) = reply {
                    gatherer.take(order, client, reply);
                }
            })?;
        }
        Ok(self.server.close(exchange))
    }
}

impl Engine for LocalFederation {
    fn describe(&mut self, moments: bool) -> Result<Vec<Option<Description>>> {
        let describe = |(client, rows): (u32, u32)| {
            Some(self.host.describe(client, moments)).filter(|description| is_possible(rows, description))
        };
        Ok((0..).zip(self.rows()).map(describe).collect())
    }

    fn adopt(&mut self, schema: &Schema) -> Result<Option<Vec<Client>>> {
        self.host.adopt(schema).map(|()| Some(self.host.clients().to_vec()))
    }

    fn equip(&mut self, model: &Arc<dyn Model>, _: &Blueprint) -> Result<()> {
        self.set_model(model.clone())
    }

    fn afresh(&self, _: &str, transforms: Transforms, stop: Arc<AtomicBool>) -> Result<Box<dyn Engine>> {
        let fresh = Self::new(self.host.clients().to_vec(), self.pool.clone());
        let mut fresh = Self { stop, single_answers: self.single_answers, ..fresh.with_transforms(transforms) };
        if let Ok(model) = self.host.model() {
            fresh.set_model(model.clone())?;
        }
        Ok(Box::new(fresh))
    }

    fn state(&self) -> Result<Option<FederationState>> {
        let Server { asked, meter, ledger, .. } = &self.server;
        let (meter, ledger, states) = (meter.clone(), ledger.clone(), self.host.states());
        Ok(self.host.save_own()?.map(|own| FederationState { asked: *asked, meter, ledger, states, own }))
    }

    fn restore(&mut self, state: FederationState) -> Result<()> {
        let transforms = std::mem::take(&mut self.server.transforms);
        self.server = Server { transforms, asked: state.asked, meter: state.meter, ledger: state.ledger };
        self.host.restore(state.states);
        self.host.load_own(&state.own)
    }

    fn own_models(&self) -> Option<Vec<(&str, Vec<f64>)>> {
        Some(self.host.own_models().collect())
    }

    fn ledger(&self) -> &Ledger {
        &self.server.ledger
    }

    fn notes(&self) -> Vec<String> {
        self.server.transforms.notes(self.infos.len()).chain(self.server.ledger.notes(&self.infos)).collect()
    }
}
