//! Where clients' rows are computed with.
//!
//! An engine hands whole orders to a [`Roster`], which holds the rows of its clients where they are computed with (this
//! computer's threads, a GPU), cuts blocks of clients as a function of the data alone, and returns single findings or sums in
//! the order of the clients. What a roster does not take is done client by client on the threads (`threads.rs`), which every
//! backend can rely on.
//!
//! A new backend is an implementation of both traits, given to the engine or to a run.

mod threads;

use crate::error::Result;
use crate::models::{Found, Model, Packed, Reduced, Step, Summing, Worker};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
pub use threads::{Cpu, MOST_THREADS, Threads, threads};

/// A device, or this computer's threads.
pub trait Backend: Send + Sync {
    /// Takes clients in, with the model they compute with: their rows go where they are computed with, once.
    fn admit(&self, clients: Arc<Threads>) -> Result<Box<dyn Roster>>;
}

/// Clients on a backend, and the vectors that they keep between asks.
pub trait Roster: Send + Sync {
    /// Whether it can take this step.
    fn takes(&self, step: &Step) -> bool;

    /// Carries out jobs whose steps it takes. The results of a job come in ascending order of the clients, and are the same
    /// for any number of threads.
    fn run(&mut self, batch: &Batch, take: &mut (dyn FnMut(usize, Computed) + Send)) -> Result<()>;

    /// A copy of what a client keeps.
    fn export(&self, client: u32) -> Option<Packed>;

    /// What a client keeps, moved out.
    fn take(&self, client: u32) -> Option<Packed>;

    /// Has a client keep vectors.
    fn import(&self, client: u32, vectors: Packed);

    /// The same clients with the same model, without anything kept.
    fn afresh(&self) -> Box<dyn Roster>;

    /// What did not run where it was asked for, and why.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A device that computes for workers of this computer's threads, for many of them at once: whoever asks waits until all
/// others ask too, or are done.
pub trait Helper: Send + Sync {
    /// A worker that asks it.
    fn worker(&self, model: &Arc<dyn Model>, models: &[&[f64]]) -> Box<dyn Worker>;

    /// So many threads begin to work.
    fn expect(&self, threads: usize);

    /// One of them is done.
    fn leave(&self);
}

/// Jobs that share models.
pub struct Batch<'a> {
    /// At the model's precision.
    pub models: &'a [&'a [f64]],
    /// Who does what.
    pub jobs: &'a [Job<'a>],
    /// How vectors are summed; without, they come one by one. Only choices that something follows from can be summed.
    pub sums: Option<Sums<'a>>,
    /// Once raised, the run ends with an error of kind `Stopped`.
    pub stop: &'a AtomicBool,
}

/// A step for some clients.
pub struct Job<'a> {
    /// Its place in the ask: what is remembered of a client's choice is remembered by place.
    pub place: usize,
    /// The clients, ascending.
    pub to: Vec<u32>,
    /// What they do.
    pub step: Step<'a>,
}

/// How the vectors of a batch are summed.
pub struct Sums<'a> {
    /// Slots and weights.
    pub summing: Summing,
    /// Whether the sums of a block, of the job in this place of the batch, are plausible; if not, its clients answer singly.
    pub plausible: &'a (dyn Fn(usize, &Reduced) -> bool + Sync),
}

/// A result of one job.
pub enum Computed {
    /// What one client found.
    Single(u32, Found),
    /// Sums over some clients.
    Sums(Vec<u32>, Reduced),
}
