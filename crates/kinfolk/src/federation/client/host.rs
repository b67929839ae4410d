//! The clients' side of the waist: does what an order says on a client's data.
//!
//! The same host stands behind every federation, in this process or at the far end of a wire.

use super::context::ClientContext;
use super::guard::Guard;
use crate::data::Client;
use crate::data::schema::{Description, Schema, describe};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::wire::Packed;
use crate::federation::work::{Reply, Work};
use crate::mixture::{Rows, Scratch, classify};
use crate::models::{Model, Precision, Seat, Worker};
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
    /// The numbers that were answered then, to answer again if the order is repeated.
    numbers: Vec<f64>,
}

impl Host {
    /// A host of these clients.
    pub fn new(clients: Vec<Client>) -> Self {
        let memories = clients.iter().map(|_| Memory::default()).collect();
        Self { clients, model: None, memories, may_prepare: true, guard: None }
    }

    /// Has clients refuse work on fewer rows than this, and draw batches and folds from what only they know.
    pub(crate) fn refuse_below(&mut self, minimum_rows: usize) {
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

    pub(crate) fn seat(&self, client: u32) -> Seat<'_> {
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

    pub(crate) fn hint(&self, client: u32, order: usize) -> u32 {
        self.notes(client).hints.get(order).copied().unwrap_or(0)
    }

    pub(crate) fn set_hint(&self, client: u32, order: usize, hint: u32) {
        let mut notes = self.notes(client);
        if notes.hints.len() <= order {
            notes.hints.resize(order + 1, 0);
        }
        notes.hints[order] = hint;
    }

    /// Encodes a client's table by a schema.
    pub(crate) fn adopt(&mut self, client: u32, schema: &Schema) -> Result<()> {
        let client = &mut self.clients[client as usize];
        let at = |error: Error| error.at(format!("client {}", client.id));
        client.train = schema.encode(&client.train).map_err(at)?;
        client.test = schema.encode(&client.test).map_err(at)?;
        Ok(())
    }

    /// What a client says of its data; needs no model.
    pub(crate) fn describe(&self, client: u32, moments: bool) -> Description {
        let description = describe(&self.clients[client as usize], moments);
        if self.guard.is_some() { description.coarse() } else { description }
    }

    /// Does one order's work for one client. `worker` holds the ask's `models`.
    pub(crate) fn answer(
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
        let mut context = ClientContext { host: self, stamp, order, client, worker, models };
        let reply = work.carry_out(&mut context);
        match context.worker.failure().map_or(reply, Err) {
            // What cannot be done with this client's rows is its own affair: it sends nothing, and the others go on.
            Err(error) if matches!(error.kind(), ErrorKind::Data | ErrorKind::Diverged) => {
                Ok(Reply::nothing(rows as u32))
            }
            reply => reply,
        }
    }

    /// The numbers a client answered when it kept something in the ask with this stamp.
    pub(super) fn kept_by(&self, client: u32, stamp: u64) -> Option<Vec<f64>> {
        self.notes(client).state.as_ref().filter(|state| state.stamp == stamp).map(|state| state.numbers.clone())
    }

    /// Has a client keep vectors, its own model first.
    pub(super) fn keep(&self, client: u32, stamp: u64, numbers: &[f64], vectors: Vec<f64>) -> Result<()> {
        let vectors = match self.model()?.precision() {
            Precision::F64 => Packed::F64(vectors),
            precision => Packed::pack(&vectors, precision),
        };
        self.notes(client).state = Some(State { stamp, vectors, numbers: numbers.to_vec() });
        Ok(())
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

    /// The component of every row of a client, of training and of test rows. What a client knows of its rows crosses no
    /// wire: this is for an engine whose clients are its own.
    pub(crate) fn row_components(&self, client: u32, params: &[f64]) -> [Vec<u32>; 2] {
        let Some(shape) = self.model.as_ref().and_then(|model| model.mixture()) else { return Default::default() };
        let mut scratch = Scratch::default();
        let client = &self.clients()[client as usize];
        [&client.train, &client.test].map(|shard| {
            let mut labels = Vec::new();
            if !shard.is_empty() {
                classify(shape, params, &Rows::of(shape, shard), &mut scratch, &mut labels);
            }
            labels
        })
    }
}
