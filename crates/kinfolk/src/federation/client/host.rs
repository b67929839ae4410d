//! The clients' side of the waist: carries out orders on clients' data, in this process or at the far end of a wire.

use super::context::ClientContext;
use super::guard::Guard;
use crate::data::Client;
use crate::data::schema::{Description, Schema, describe};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::wire::Packed;
use crate::federation::work::{Reply, Work};
use crate::models::{Model, Seat, Worker};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Clients with their data and their state between asks.
pub struct Host {
    clients: Vec<Client>,
    model: Option<Arc<dyn Model>>,
    memories: Vec<Memory>,
    may_prepare: bool,
    /// Of each client, the fewest rows that an answer may be about, and the seed of its batches and folds; may be empty.
    protection: Vec<(usize, u64)>,
}

#[derive(Default)]
struct Memory {
    prepared: OnceLock<Box<dyn Any + Send + Sync>>,
    notes: Mutex<Notes>,
}

#[derive(Default)]
pub(super) struct Notes {
    /// Last choice per order, which the next tries first. Never changes an answer.
    hints: Vec<u32>,
    pub(super) state: Option<State>,
}

/// A client's own model, stamped with the ask that wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub stamp: u64,
    /// The model, followed by any further vectors.
    pub vectors: Packed,
    /// The numbers answered then, in case the order is repeated.
    pub(super) numbers: Vec<f64>,
}

impl Host {
    pub(crate) fn new(clients: Vec<Client>) -> Self {
        let memories = clients.iter().map(|_| Memory::default()).collect();
        Self { clients, model: None, memories, may_prepare: true, protection: Vec::new() }
    }

    /// Has clients refuse work on fewer rows than this, and draw batches and folds from seeds that only they know.
    pub(crate) fn refuse_below(&mut self, minimum_rows: usize) {
        // Before any schema that a server sends.
        let protected = self.clients.iter().filter(|_| minimum_rows > 1);
        self.protection = protected.map(|client| (minimum_rows, client.secret())).collect();
    }

    fn guard(&self, client: u32) -> Guard {
        let protection = self.protection.get(client as usize).copied();
        Guard { rows: self.clients[client as usize].train.len(), protection }
    }

    pub(crate) fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// Gives the clients a model, after checking that it fits their rows. Clients that are the user's own code are reset.
    pub(crate) fn set_model(&mut self, model: Arc<dyn Model>) -> Result<()> {
        const ROOM_FOR_PREPARED: usize = 1 << 30;
        self.clients.iter().try_for_each(|client| model.check(client).and_then(|()| client.begin_anew()))?;
        let wanted: usize = self.clients.iter().map(|client| model.prepared_numbers(client.train.len())).sum();
        self.may_prepare = wanted * (model.precision().width() as usize) < ROOM_FOR_PREPARED;
        self.model = Some(model);
        Ok(())
    }

    pub(crate) fn model(&self) -> Result<&Arc<dyn Model>> {
        self.model.as_ref().ok_or_else(|| Error::federation("the clients have no model yet"))
    }

    pub(crate) fn seat(&self, client: u32) -> Seat<'_> {
        let index = client as usize;
        Seat {
            client: &self.clients[index],
            prepared: &self.memories[index].prepared,
            may_prepare: self.may_prepare,
            secret: self.guard(client).protection.map(|(_, secret)| secret),
        }
    }

    pub(super) fn notes(&self, client: u32) -> MutexGuard<'_, Notes> {
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

    pub(crate) fn adopt(&mut self, schema: &Schema) -> Result<()> {
        for client in &mut self.clients {
            let at = |error: Error| error.at(format!("client {}", client.id));
            client.train = schema.encode(&client.train).map_err(at)?;
            client.test = schema.encode(&client.test).map_err(at)?;
        }
        Ok(())
    }

    pub(crate) fn describe(&self, client: u32, moments: bool) -> Description {
        let description = describe(&self.clients[client as usize], moments);
        if self.protection.is_empty() { description } else { description.coarse() }
    }

    /// Carries out one order for one client. `worker` holds the ask's `models`.
    pub(crate) fn answer(
        &self,
        worker: &mut dyn Worker,
        models: &[Vec<f64>],
        stamp: u64,
        order: usize,
        work: &Work,
        client: u32,
    ) -> Result<Reply> {
        let guard = self.guard(client);
        let mut context = ClientContext { host: self, guard, order, client, stamp, worker, models };
        let reply = work.carry_out(&mut context);
        match context.worker.failure().map_or(reply, Err) {
            // A client whose rows do not allow the work sends nothing, and the others go on.
            Err(error) if matches!(error.kind(), ErrorKind::Data | ErrorKind::Diverged) => {
                Ok(Reply { rows: self.clients[client as usize].train.len() as u32, ..Reply::default() })
            }
            reply => reply,
        }
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

    pub fn states(&self) -> Vec<Option<State>> {
        (0..self.clients.len() as u32).map(|client| self.notes(client).state.clone()).collect()
    }

    /// Saves clients that are the user's own code; `None` where one of them cannot be saved.
    pub(crate) fn save_own(&self) -> Result<Option<Vec<Vec<u8>>>> {
        self.clients.iter().map(Client::save).collect()
    }

    /// Loads clients that were [saved](Host::save_own).
    pub(crate) fn load_own(&self, states: &[Vec<u8>]) -> Result<()> {
        self.clients.iter().zip(states).try_for_each(|(client, state)| client.load(state))
    }

    pub fn restore(&self, states: Vec<Option<State>>) {
        for (client, state) in states.into_iter().enumerate().take(self.clients.len()) {
            self.notes(client as u32).state = state;
        }
    }
}
