//! The clients' side of the waist: does what an order says on a client's data.
//!
//! The same host stands behind every federation, in this process or at the far end of a wire.

use super::guard::Guard;
use super::wire::{Packed, Reply};
use super::{Keep, Portion, Split, Start, Subject, Then, Work};
use crate::data::schema::{Schema, describe};
use crate::data::{Client, Shard};
use crate::error::{Error, ErrorKind, Result};
use crate::models::{Job, Model, Precision, Seat, Worker, first_smallest};
use crate::rng::Key;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Clients with their data, and what they keep between asks.
pub struct Host {
    clients: Vec<Client>,
    model: Option<Arc<dyn Model>>,
    memories: Vec<Memory>,
    may_prepare: bool,
    /// Refuses work on few rows, at a machine that does so.
    guard: Option<Guard>,
}

/// What is remembered of one client.
#[derive(Default)]
struct Memory {
    prepared: OnceLock<Box<dyn Any + Send + Sync>>,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    /// Last time's choice per order: where a choice looks first. Never changes an answer.
    hints: Vec<u32>,
    state: Option<State>,
}

/// A client's own model, stamped with the ask that wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The ask that wrote it.
    pub stamp: u64,
    /// The model, and behind it what else the client remembers.
    pub vectors: Packed,
    /// The losses that were answered then, to answer again if the order is repeated.
    losses: Vec<f64>,
}

/// A training order in the one form workers know.
pub(super) struct Task {
    pub(super) among: Vec<usize>,
    pub(super) on: Portion,
    pub(super) then: Then,
}

impl Task {
    /// `None` for work that is not about choosing, training or gradients of the ask's models.
    pub(super) fn of(work: &Work) -> Option<Task> {
        match work {
            Work::Choose { among, on, then } => Some(Task { among: among.clone(), on: *on, then: then.clone() }),
            Work::Gradient { of, sample } => {
                Some(Task { among: vec![*of], on: Portion::All, then: Then::Gradient(sample.clone()) })
            }
            Work::Train { from: Start::Model(model), plan, keep: Keep::No } => {
                Some(Task { among: vec![*model], on: Portion::All, then: Then::Train(plan.clone()) })
            }
            _ => None,
        }
    }

    pub(super) fn job(&self, slots: usize) -> Job<'_> {
        Job { among: &self.among, on: self.on, then: &self.then, slots }
    }
}

impl Host {
    /// A host of these clients.
    pub fn new(clients: Vec<Client>) -> Self {
        let memories = clients.iter().map(|_| Memory::default()).collect();
        Self { clients, model: None, memories, may_prepare: true, guard: None }
    }

    /// Has clients refuse work on fewer rows than this, and draw batches and folds from what only they know.
    pub(super) fn refuse_below(&mut self, minimum_rows: usize) {
        self.guard = Guard::of(&self.clients, minimum_rows);
    }

    /// The fewest rows of a client that an answer may be about.
    pub(super) fn minimum_rows(&self) -> usize {
        self.guard.as_ref().map_or(1, |guard| guard.minimum)
    }

    /// The clients.
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// Gives the clients a model to work with, after checking that it fits their rows. Clients that are code of the
    /// user's own begin anew.
    pub fn set_model(&mut self, model: Arc<dyn Model>) -> Result<()> {
        const ROOM_FOR_PREPARED: usize = 1 << 30;
        self.clients.iter().try_for_each(|client| model.check(client).and_then(|()| client.begin_anew()))?;
        let wanted: usize = self.clients.iter().map(|client| model.prepared_numbers(client.train.len())).sum();
        self.may_prepare = wanted * (model.precision().width() as usize) < ROOM_FOR_PREPARED;
        self.model = Some(model);
        Ok(())
    }

    /// The model, once there is one.
    pub fn model(&self) -> Result<&Arc<dyn Model>> {
        self.model.as_ref().ok_or_else(|| Error::federation("the clients have no model yet"))
    }

    pub(super) fn seat(&self, client: u32) -> Seat<'_> {
        let index = client as usize;
        Seat {
            client: &self.clients[index],
            prepared: &self.memories[index].prepared,
            may_prepare: self.may_prepare,
            secret: self.guard.as_ref().map(|guard| guard.secret(client)),
        }
    }

    fn notes(&self, client: u32) -> std::sync::MutexGuard<'_, Notes> {
        self.memories[client as usize].notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hint(&self, client: u32, order: usize) -> u32 {
        self.notes(client).hints.get(order).copied().unwrap_or(0)
    }

    pub(super) fn set_hint(&self, client: u32, order: usize, hint: u32) {
        let mut notes = self.notes(client);
        if notes.hints.len() <= order {
            notes.hints.resize(order + 1, 0);
        }
        notes.hints[order] = hint;
    }

    /// Encodes a client's table by a schema.
    pub(super) fn adopt(&mut self, client: u32, schema: &Schema) -> Result<()> {
        let client = &mut self.clients[client as usize];
        let at = |error: Error| error.at(format!("client {}", client.id));
        client.train = schema.encode(&client.train).map_err(at)?;
        client.test = schema.encode(&client.test).map_err(at)?;
        Ok(())
    }

    /// What a client says of its data; needs no model.
    pub(super) fn describe(&self, client: u32, moments: bool) -> Reply {
        let client = &self.clients[client as usize];
        let description = describe(client, moments);
        let description = if self.guard.is_some() { description.coarse() } else { description };
        Reply { rows: client.train.len() as u32, description: Some(description), ..Reply::default() }
    }

    /// Does one order's work for one client. `worker` holds the ask's `models`.
    pub(super) fn answer(
        &self,
        worker: &mut dyn Worker,
        models: &[Vec<f64>],
        stamp: u64,
        order: usize,
        work: &Work,
        client: u32,
    ) -> Result<Reply> {
        let rows = self.clients[client as usize].train.len();
        let work = match &self.guard {
            Some(guard) => guard.admit(work, client, rows)?,
            None => Cow::Borrowed(work),
        };
        let reply = self.carry_out(worker, models, stamp, order, &work, client);
        match worker.failure().map_or(reply, Err) {
            // What cannot be done with this client's rows is its own affair: it sends nothing, and the others go on.
            Err(error) if matches!(error.kind(), ErrorKind::Data | ErrorKind::Diverged) => {
                Ok(Reply { rows: rows as u32, ..Reply::default() })
            }
            reply => reply,
        }
    }

    fn carry_out(
        &self,
        worker: &mut dyn Worker,
        models: &[Vec<f64>],
        stamp: u64,
        order: usize,
        work: &Work,
        client: u32,
    ) -> Result<Reply> {
        let seat = self.seat(client);
        let rows = seat.client.train.len() as u32;
        if let Some(task) = Task::of(work) {
            return Ok(self.answer_task(worker, order, &task, client));
        }
        match work {
            Work::Losses { of, on } => {
                let shard = seat.rows(*on);
                Ok(Reply { rows, losses: worker.losses(of, &shard), ..Reply::default() })
            }
            Work::Shares { among } => {
                Ok(Reply { rows, losses: shares(worker, among, &seat.client.train), ..Reply::default() })
            }
            Work::Minimise { keep: true, .. } | Work::Train { keep: Keep::Instead | Keep::Also, .. }
                if let Some(losses) = self.kept_by(client, stamp) =>
            {
                // This order has been carried out; its answer got lost on the way.
                let vector = match work.sends_vector() {
                    true => Some(self.own_model(client, stamp)?),
                    false => None,
                };
                Ok(Reply { rows, losses, vector, ..Reply::default() })
            }
            Work::Minimise { ridge, keep } => {
                let vector = self.model()?.minimise(&seat.client.train, *ridge);
                let vector = vector.map_err(|error| error.at(format!("client {}", seat.client.id)))?;
                let own = worker.load(&vector);
                let loss = worker.loss(own, &seat.client.train);
                self.keep_or_send(client, stamp, if *keep { Keep::Instead } else { Keep::No }, loss, vector)
            }
            Work::Train { from, plan, keep } => {
                let start = match from {
                    Start::Own { stamp } => self.own_model(client, *stamp)?,
                    Start::Fresh { seed } => {
                        let key = Key::new(*seed).word("fresh").word(&seat.client.id);
                        self.model()?.initialise(&mut key.rng())?
                    }
                    Start::Model(_) => Vec::new(),
                };
                let model = match from {
                    Start::Model(model) => *model,
                    _ => worker.load(&start),
                };
                let mut vector = vec![0.0; worker.width()];
                let loss = worker.train(model, &seat, plan, &mut vector);
                // What a client kept before must outlast a training that failed.
                worker.failure().map_or(Ok(()), Err)?;
                self.keep_or_send(client, stamp, *keep, loss, vector)
            }
            Work::Score { with, assign_on } => {
                let candidates = match with {
                    Subject::Models(models) => models.clone(),
                    Subject::Own { stamp } => vec![worker.load(&self.own_model(client, *stamp)?)],
                    Subject::Completed { model, stamp } => {
                        vec![worker.load(&self.completed_model(client, models, *model, *stamp)?)]
                    }
                    Subject::Alone => {
                        let alone = self.model()?.minimise(&seat.client.train, 0.0);
                        vec![worker.load(&alone.map_err(|error| error.at(format!("client {}", seat.client.id)))?)]
                    }
                };
                let deciding = match assign_on {
                    Split::Test if !seat.client.test.is_empty() => &seat.client.test,
                    _ => &seat.client.train,
                };
                let losses: Vec<f64> = candidates.iter().map(|&model| worker.loss(model, deciding)).collect();
                let choice = first_smallest(losses.iter().copied()).position;
                let score = worker.score(candidates[choice], &seat.client.test);
                Ok(Reply { rows, choice: Some(choice as u32), losses, score: Some(score), ..Reply::default() })
            }
            Work::Describe { moments } => Ok(self.describe(client, *moments)),
            Work::Receive { .. } => Ok(Reply { rows, ..Reply::default() }),
            Work::Advance(advance) => self.advance(worker, models, stamp, advance, client),
            Work::Respond(respond) => self.respond(worker, models, stamp, respond, client),
            Work::Curvature => {
                let losses = self.model()?.curvatures(&seat.client.train);
                let mut losses = losses.map_err(|error| error.at(format!("client {}", seat.client.id)))?.to_vec();
                if self.guard.is_some() {
                    // How much a single row curves would show that row; it is no more than all of them together.
                    losses[2] = losses[0] * f64::from(rows);
                }
                Ok(Reply { rows, losses, ..Reply::default() })
            }
            Work::Validate { trials, fold, of, scale } => {
                self.validate(worker, models, (trials, *fold, *of, *scale), client)
            }
            Work::FitMixture(order) => self.fit_mixture(stamp, order, client),
            Work::MixtureStep(order) => self.step_mixture(worker, models, stamp, order, client),
            Work::Tally { with, components, classes } => {
                self.tally(worker, models, (with, *components, *classes), client)
            }
            other => Err(Error::new(ErrorKind::Unsupported, format!("this host cannot do {other:?}"))),
        }
    }

    /// The losses a client answered when it kept a model in the ask with this stamp.
    pub(super) fn kept_by(&self, client: u32, stamp: u64) -> Option<Vec<f64>> {
        self.notes(client).state.as_ref().filter(|state| state.stamp == stamp).map(|state| state.losses.clone())
    }

    /// A client's new model: kept as its own, or sent.
    fn keep_or_send(&self, client: u32, stamp: u64, keep: Keep, loss: f64, vector: Vec<f64>) -> Result<Reply> {
        let rows = self.clients[client as usize].train.len() as u32;
        let vector = match keep {
            Keep::No => Some(vector),
            Keep::Instead => self.keep(client, stamp, &[loss], vector).map(|()| None)?,
            Keep::Also => self.keep(client, stamp, &[loss], vector.clone()).map(|()| Some(vector))?,
        };
        Ok(Reply { rows, losses: vec![loss], vector, ..Reply::default() })
    }

    /// Has a client keep vectors, its own model first.
    pub(super) fn keep(&self, client: u32, stamp: u64, losses: &[f64], vectors: Vec<f64>) -> Result<()> {
        let vectors = match self.model()?.precision() {
            Precision::F64 => Packed::F64(vectors),
            precision => Packed::pack(&vectors, precision),
        };
        self.notes(client).state = Some(State { stamp, vectors, losses: losses.to_vec() });
        Ok(())
    }

    fn answer_task(&self, worker: &mut dyn Worker, order: usize, task: &Task, client: u32) -> Reply {
        let seat = self.seat(client);
        let choice = worker.settle(&task.job(1), self.hint(client, order) as usize, &seat);
        self.set_hint(client, order, choice.position as u32);
        let model = task.among[choice.position];
        let mut vector = vec![0.0; if task.then == Then::Nothing { 0 } else { worker.width() }];
        let first_loss = match &task.then {
            Then::Nothing => choice.loss,
            Then::Gradient(sample) => worker.gradient(model, &seat, sample, &mut vector),
            Then::Train(plan) => worker.train(model, &seat, plan, &mut vector),
        };
        Reply {
            rows: seat.client.train.len() as u32,
            choice: Some(choice.position as u32),
            losses: vec![if task.among.len() == 1 { first_loss } else { choice.loss }],
            vector: (task.then != Then::Nothing).then_some(vector),
            ..Reply::default()
        }
    }

    pub(super) fn own_model(&self, client: u32, wanted: u64) -> Result<Vec<f64>> {
        let mut vectors = self.own_vectors(client, wanted)?;
        vectors.truncate(self.model()?.layout().len());
        Ok(vectors)
    }

    /// A copy of what a client kept in the ask with this stamp.
    pub(super) fn own_vectors(&self, client: u32, wanted: u64) -> Result<Vec<f64>> {
        match &self.notes(client).state {
            Some(state) if state.stamp == wanted => Ok(state.vectors.unpack()),
            found => Err(self.other_state(client, wanted, found.as_ref())),
        }
    }

    /// The so many vectors a client kept in the ask with this stamp, taken away from it until it keeps something again.
    pub(super) fn take_vectors(&self, client: u32, wanted: u64, count: u32) -> Result<Vec<f64>> {
        let width = self.model()?.layout().len();
        let state = &mut self.notes(client).state;
        match state {
            Some(found) if found.stamp == wanted && found.vectors.len() == width * count as usize => {}
            Some(found) if found.stamp == wanted => {
                let (id, found) = (&self.clients[client as usize].id, found.vectors.len() / width.max(1));
                return Err(Error::federation(format!("client {id}: {count} vectors wanted, found {found}")));
            }
            found => return Err(self.other_state(client, wanted, found.as_ref())),
        }
        Ok(match state.take().map(|state| state.vectors) {
            Some(Packed::F64(vectors)) => vectors,
            other => other.map_or(Vec::new(), |vectors| vectors.unpack()),
        })
    }

    fn other_state(&self, client: u32, wanted: u64, found: Option<&State>) -> Error {
        let id = &self.clients[client as usize].id;
        let found = found.map_or("none".to_string(), |state| format!("one of ask {}", state.stamp));
        Error::federation(format!("client {id}: own model of ask {wanted} wanted, found {found}"))
    }

    /// Every client's own model, by its id.
    pub fn own_models(&self) -> impl Iterator<Item = (&str, Vec<f64>)> {
        let width = self.model().map_or(0, |model| model.layout().len());
        let unpack = move |state: State| {
            let mut model = state.vectors.unpack();
            model.truncate(width);
            model
        };
        let models = self.states().into_iter().map(move |state| state.map(unpack));
        self.clients.iter().zip(models).filter_map(|(client, model)| Some((client.id.as_str(), model?)))
    }

    /// What every client remembers, for a checkpoint.
    pub fn states(&self) -> Vec<Option<State>> {
        (0..self.clients.len() as u32).map(|client| self.notes(client).state.clone()).collect()
    }

    /// What clients say of themselves that are code of the user's own; `None` where one of them cannot.
    pub fn save_own(&self) -> Result<Option<Vec<Vec<u8>>>> {
        self.clients.iter().map(Client::save).collect()
    }

    /// Puts clients that are code of the user's own back to where they [were](Host::save_own).
    pub fn load_own(&self, states: &[Vec<u8>]) -> Result<()> {
        self.clients.iter().zip(states).try_for_each(|(client, state)| client.load(state))
    }

    /// Has clients remember what they did.
    pub fn restore(&self, states: Vec<Option<State>>) {
        for (client, state) in states.into_iter().enumerate().take(self.clients.len()) {
            self.notes(client as u32).state = state;
        }
    }
}

/// The share of the rows that each model fits best.
fn shares(worker: &mut dyn Worker, among: &[usize], rows: &Shard) -> Vec<f64> {
    let losses: Vec<Vec<f64>> = among.iter().map(|&model| worker.row_losses(model, rows)).collect();
    let mut shares = vec![0.0; among.len()];
    for row in 0..rows.len() {
        shares[first_smallest(losses.iter().map(|losses| losses[row])).position] += 1.0;
    }
    shares.iter_mut().for_each(|share| *share /= rows.len() as f64);
    shares
}
