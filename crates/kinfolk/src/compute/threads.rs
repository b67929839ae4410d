//! This computer's threads.
//!
//! Blocks are a fixed function of the data, threads take them in order, and their results are folded in order, so sums are
//! the same for any number of threads while only a few partial sums exist at a time. Workers, with their buffers and what
//! they cache about rows, are kept from ask to ask and from method to method.

use super::{Backend, Batch, Computed, Helper, Job, Roster, Sums};
use crate::data::{Client, Features};
use crate::error::{Error, ErrorKind, Result};
use crate::models::{Choosing, Found, Model, Packed, Seat, Step, Worker};
use crate::panics;
use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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

/// Clients with their model, and the threads that compute with them.
pub struct Threads {
    clients: Arc<Vec<Client>>,
    model: Arc<dyn Model>,
    memories: Vec<Memory>,
    may_prepare: bool,
    /// Whether some clients are the user's own code.
    has_custom: bool,
    blocks: Vec<Range<u32>>,
    pool: Arc<rayon::ThreadPool>,
    workers: Mutex<Vec<Box<dyn Worker>>>,
    /// What computes for workers.
    helper: OnceLock<Arc<dyn Helper>>,
    /// Number of runs so far.
    runs: AtomicUsize,
}

#[derive(Default)]
struct Memory {
    prepared: OnceLock<Box<dyn Any + Send + Sync>>,
    /// Last choice per order, which the next tries first. Never changes an answer.
    hints: Mutex<Vec<u32>>,
}

impl Threads {
    pub(crate) fn new(clients: Arc<Vec<Client>>, model: Arc<dyn Model>, pool: Arc<rayon::ThreadPool>) -> Self {
        const ROOM_FOR_PREPARED: usize = 1 << 30;
        let wanted: usize = clients.iter().map(|client| model.prepared_numbers(client.train.len())).sum();
        Self {
            memories: clients.iter().map(|_| Memory::default()).collect(),
            may_prepare: wanted * (model.precision().width() as usize) < ROOM_FOR_PREPARED,
            has_custom: clients.iter().any(is_custom),
            blocks: blocks(&clients),
            clients,
            model,
            pool,
            workers: Mutex::default(),
            helper: OnceLock::new(),
            runs: AtomicUsize::new(0),
        }
    }

    /// The clients.
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// Their model.
    pub fn model(&self) -> &Arc<dyn Model> {
        &self.model
    }

    /// Has a device compute for workers from now on: as many clients as may be are then worked on at once.
    pub fn help_with(&self, helper: Arc<dyn Helper>) {
        // Whoever was first stays.
        let _ = self.helper.set(helper);
    }

    /// What a step finds for one client, found on this thread alone.
    pub fn find(&self, models: &[&[f64]], step: &Step, client: u32) -> Found {
        self.model.worker(models).take(step, &self.seat(client, None), &mut 0)
    }

    /// A client as all may see it.
    pub fn seat_of(&self, client: u32) -> Seat<'_> {
        self.seat(client, None)
    }

    /// A client as workers see it; `secret` is the seed of its parts and folds, where nobody else may know it.
    pub(crate) fn seat(&self, client: u32, secret: Option<u64>) -> Seat<'_> {
        let index = client as usize;
        let (client, prepared) = (&self.clients[index], &self.memories[index].prepared);
        Seat { client, prepared, may_prepare: self.may_prepare, secret }
    }

    fn hints(&self, client: u32) -> MutexGuard<'_, Vec<u32>> {
        self.memories[client as usize].hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hint(&self, client: u32, place: usize) -> u32 {
        self.hints(client).get(place).copied().unwrap_or(0)
    }

    fn set_hint(&self, client: u32, place: usize, hint: u32) {
        let mut hints = self.hints(client);
        if hints.len() <= place {
            hints.resize(place + 1, 0);
        }
        hints[place] = hint;
    }

    /// What a step, in this place of its ask, finds for one client.
    pub(crate) fn take(&self, worker: &mut dyn Worker, step: &Step, place: usize, client: u32, seat: &Seat) -> Found {
        let mut hint = self.hint(client, place);
        let found = worker.take(step, seat, &mut hint);
        self.set_hint(client, place, hint);
        found
    }

    /// Does `work` for every block on all threads and `fold`s the results, of about `result_bytes` each, in block order.
    pub(crate) fn in_blocks<R: Send>(
        &self,
        models: &[&[f64]],
        stop: &AtomicBool,
        result_bytes: usize,
        work: impl Fn(&mut dyn Worker, Range<u32>) -> Result<R> + Sync,
        fold: impl FnMut(R) + Send,
    ) -> Result<()> {
        let helper = self.helper.get();
        let blocks: Cow<[Range<u32>]> = match helper {
            Some(_) => (0..self.clients.len() as u32).map(|client| client..client + 1).collect(),
            None => Cow::Borrowed(&self.blocks),
        };
        let next = AtomicUsize::new(0);
        let folding = Mutex::new((0, BTreeMap::new(), fold));
        let failures: Mutex<BTreeMap<usize, Error>> = Mutex::new(BTreeMap::new());
        let give_up = |place: usize, error: Error| {
            next.store(blocks.len(), Ordering::Relaxed);
            failures.lock().unwrap_or_else(PoisonError::into_inner).insert(place, error);
        };
        // Every other run goes backwards, from the rows that the last one left in the cache. All results then wait for the
        // first block, so only small ones do.
        let is_odd = self.runs.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        let backwards = is_odd && result_bytes.saturating_mul(blocks.len()) < SMALL_RESULTS;
        let run = || {
            let idle = || self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = idle().pop();
            let mut worker = match kept {
                Some(mut worker) => {
                    worker.begin(models);
                    worker
                }
                None => match helper {
                    Some(helper) => helper.worker(&self.model, models),
                    None => self.model.worker(models),
                },
            };
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let index = if backwards { blocks.len().wrapping_sub(1 + place) } else { place };
                let Some(block) = blocks.get(index) else { break };
                if stop.load(Ordering::Relaxed) {
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
            idle().push(worker);
        };
        match helper {
            Some(helper) => together(&**helper, blocks.len().min(MOST_TOGETHER), run),
            None => self.pool.scope(|scope| (0..self.pool.current_num_threads()).for_each(|_| scope.spawn(|_| run()))),
        }
        // Blocks are taken in order, so the first failure is the same for any number of threads.
        match failures.into_inner().unwrap_or_else(PoisonError::into_inner).pop_first() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }
}

/// Most clients that wait for a device at once, each on a thread of its own.
const MOST_TOGETHER: usize = 64;

/// Runs the same on so many threads, which wait for a device most of the time.
fn together(helper: &dyn Helper, threads: usize, run: impl Fn() + Sync) {
    struct Leaving<'h>(&'h dyn Helper);
    impl Drop for Leaving<'_> {
        fn drop(&mut self) {
            self.0.leave();
        }
    }
    helper.expect(threads);
    std::thread::scope(|scope| {
        let work = || {
            panics::mark_pool_thread();
            let _leaving = Leaving(helper);
            run();
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
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
        if rows >= wanted || is_custom(client) || end - begin == 1024 || end as usize == clients.len() {
            blocks.push(begin..end);
            (begin, rows) = (end, 0);
        }
    }
    blocks
}

/// Whether a client is the user's own code.
fn is_custom(client: &Client) -> bool {
    matches!(**client.train.features(), Features::Own(_))
}

/// This computer's threads as a backend.
pub struct Cpu;

impl Backend for Cpu {
    fn admit(&self, clients: Arc<Threads>) -> Result<Box<dyn Roster>> {
        Ok(Box::new(CpuRoster::new(clients)))
    }
}

struct CpuRoster {
    threads: Arc<Threads>,
    kept: Vec<Mutex<Option<Packed>>>,
}

impl CpuRoster {
    fn new(threads: Arc<Threads>) -> Self {
        let kept = threads.clients().iter().map(|_| Mutex::default()).collect();
        Self { threads, kept }
    }

    fn kept(&self, client: u32) -> MutexGuard<'_, Option<Packed>> {
        self.kept[client as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_singly(&self, batch: &Batch, take: &mut (dyn FnMut(usize, Computed) + Send)) -> Result<()> {
        let threads = &*self.threads;
        // Who does what, by client: a client's rows are read for all its jobs in turn.
        let mut tasks: Vec<(u32, usize)> = Vec::new();
        for (index, job) in batch.jobs.iter().enumerate() {
            tasks.extend(job.to.iter().map(|&client| (client, index)));
        }
        tasks.sort_unstable();
        let work = |worker: &mut dyn Worker, block: Range<u32>| {
            let found = within(&tasks, &block, |task| task.0).iter().map(|&(client, index)| {
                let (Job { place, step, .. }, seat) = (&batch.jobs[index], threads.seat(client, None));
                (index, client, threads.take(worker, step, *place, client, &seat))
            });
            Ok(found.collect::<Vec<_>>())
        };
        threads.in_blocks(batch.models, batch.stop, usize::MAX, work, |found| {
            found.into_iter().for_each(|(job, client, found)| take(job, Computed::Single(client, found)));
        })
    }

    /// Jobs for the same clients together.
    fn run_summed(&self, batch: &Batch, sums: &Sums, take: &mut (dyn FnMut(usize, Computed) + Send)) -> Result<()> {
        let threads = &*self.threads;
        type Stack<'s> = (&'s [u32], Vec<(usize, &'s Choosing<'s>)>);
        let mut stacks: Vec<Stack> = Vec::new();
        for (index, job) in batch.jobs.iter().enumerate() {
            let Step::Choose(step) = &job.step else { continue };
            match stacks.iter_mut().find(|(to, _)| *to == &job.to[..]) {
                Some((_, steps)) => steps.push((index, step)),
                None => stacks.push((&job.to, vec![(index, step)])),
            }
        }
        let work = |worker: &mut dyn Worker, block: Range<u32>| {
            let mut results: Vec<(usize, Computed)> = Vec::new();
            for (to, jobs) in &stacks {
                let clients = within(to, &block, |client| *client);
                if clients.is_empty() {
                    continue;
                }
                let seats: Vec<Seat> = clients.iter().map(|&client| threads.seat(client, None)).collect();
                let steps: Vec<&Choosing> = jobs.iter().map(|(_, step)| *step).collect();
                let places = || {
                    let of_client = |&client| jobs.iter().map(move |(index, _)| (client, batch.jobs[*index].place));
                    clients.iter().flat_map(of_client)
                };
                let mut hints: Vec<u32> = places().map(|(client, place)| threads.hint(client, place)).collect();
                let reduced = worker.reduce(&steps, &seats, &mut hints, sums.summing);
                places().zip(&hints).for_each(|((client, place), &hint)| threads.set_hint(client, place, hint));
                for ((index, _), reduced) in jobs.iter().zip(reduced) {
                    if (sums.plausible)(*index, &reduced) {
                        results.push((*index, Computed::Sums(clients.to_vec(), reduced)));
                        continue;
                    }
                    let Job { place, step, .. } = &batch.jobs[*index];
                    for (&client, seat) in clients.iter().zip(&seats) {
                        let found = threads.take(worker, step, *place, client, seat);
                        results.push((*index, Computed::Single(client, found)));
                    }
                }
            }
            Ok(results)
        };
        let slots: usize = stacks.iter().flat_map(|(_, jobs)| jobs).map(|(_, step)| sums.summing.slots(step)).sum();
        let result_bytes = slots * batch.models.first().map_or(0, |model| model.len()) * size_of::<f64>();
        threads.in_blocks(batch.models, batch.stop, result_bytes, work, |results| {
            results.into_iter().for_each(|(job, outcome)| take(job, outcome));
        })
    }
}

/// The part of an ascending list that belongs to a block of clients.
fn within<'l, T>(list: &'l [T], block: &Range<u32>, client: impl Fn(&T) -> u32) -> &'l [T] {
    let begin = list.partition_point(|item| client(item) < block.start);
    let length = list[begin..].partition_point(|item| client(item) < block.end);
    &list[begin..begin + length]
}

impl Roster for CpuRoster {
    /// Code of the user's own may fail for one client alone, which is for the plain path to tell.
    fn takes(&self, _: &Step) -> bool {
        !self.threads.has_custom
    }

    fn run(&mut self, batch: &Batch, take: &mut (dyn FnMut(usize, Computed) + Send)) -> Result<()> {
        match &batch.sums {
            Some(sums) => self.run_summed(batch, sums, take),
            None => self.run_singly(batch, take),
        }
    }

    fn export(&self, client: u32) -> Option<Packed> {
        self.kept(client).clone()
    }

    fn take(&self, client: u32) -> Option<Packed> {
        self.kept(client).take()
    }

    fn import(&self, client: u32, vectors: Packed) {
        *self.kept(client) = Some(vectors);
    }

    fn afresh(&self) -> Box<dyn Roster> {
        Box::new(Self::new(self.threads.clone()))
    }
}
