//! The clients' side of the waist: carries out orders on clients' data, in this process or at the far end of a wire.

use super::context::ClientContext;
use super::guard::{Guard, Hiding};
use crate::compute::{Backend, Batch, Computed, Roster, Threads};
use crate::data::Client;
use crate::data::schema::{Description, Schema, describe, pool};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::Phase;
use crate::federation::work::{Reply, Work};
use crate::models::{Model, Packed, Step, Worker};
use crate::privacy::rows::{RowPrivacy, Spent};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Clients with their data and their state between asks.
pub struct Host {
    clients: Arc<Vec<Client>>,
    equipment: Option<Equipment>,
    /// What each client keeps, without the vectors, which the roster holds.
    kept: Vec<Mutex<Option<Head>>>,
    /// Of each client, the fewest rows that an answer may be about, and the seed of its batches and folds; may be empty.
    protection: Vec<(usize, u64)>,
    /// How single rows are hidden outside of evaluation, where they are to be, and what each client has spent.
    hidden: Option<(RowPrivacy, Vec<Mutex<Spent>>)>,
}

/// The clients' model, and what computes with it.
pub(super) struct Equipment {
    pub(super) threads: Arc<Threads>,
    pub(super) roster: Box<dyn Roster>,
}

/// What a client's state is, apart from its vectors.
pub(super) struct Head {
    pub(super) stamp: u64,
    /// The numbers answered then, in case the order is repeated.
    pub(super) numbers: Vec<f64>,
    /// Length of the vectors together.
    pub(super) length: usize,
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
    pub(crate) fn new(clients: Arc<Vec<Client>>) -> Self {
        let kept = clients.iter().map(|_| Mutex::default()).collect();
        Self { clients, equipment: None, kept, protection: Vec::new(), hidden: None }
    }

    /// The same clients with the same model, without any state.
    pub(crate) fn afresh(&self) -> Result<Self> {
        let mut fresh = Self { protection: self.protection.clone(), ..Self::new(self.clients.clone()) };
        if let Some(Equipment { threads, roster }) = &self.equipment {
            self.clients.iter().try_for_each(Client::begin_anew)?;
            fresh.equipment = Some(Equipment { threads: threads.clone(), roster: roster.afresh() });
        }
        Ok(fresh)
    }

    /// Has clients refuse work on fewer rows than this, and draw batches and folds from seeds that only they know.
    pub(crate) fn refuse_below(&mut self, minimum_rows: usize) {
        // Before any schema that a server sends.
        let protected = self.clients.iter().filter(|_| minimum_rows > 1);
        self.protection = protected.map(|client| (minimum_rows, client.secret())).collect();
    }

    /// Has clients hide single rows in all that they answer outside of evaluation. `spent` is what each has done so far; empty: nothing.
    pub(crate) fn hide_rows(&mut self, privacy: RowPrivacy, mut spent: Vec<Spent>) {
        spent.resize(self.clients.len(), Spent::default());
        self.hidden = Some((privacy, spent.into_iter().map(Mutex::new).collect()));
    }

    /// Has clients hide nothing any more. What each has done while they did.
    pub(super) fn show_rows(&mut self) -> Vec<Spent> {
        let spent = self.hidden.take().map_or_else(Vec::new, |(_, spent)| spent);
        spent.into_iter().map(|spent| spent.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    pub(crate) fn hides_rows(&self) -> bool {
        self.hidden.is_some()
    }

    /// The guard of an answer to the order in this place of an ask with this stamp.
    fn guard(&self, client: u32, (stamp, order, phase): (u64, usize, Phase)) -> Guard<'_> {
        let protection = self.protection.get(client as usize).copied();
        let Client { id, train, .. } = &self.clients[client as usize];
        let hidden = self.hidden.as_ref().filter(|_| phase != Phase::Evaluate);
        let hiding = hidden.map(|(privacy, spent)| Hiding {
            privacy,
            spent: &spent[client as usize],
            source: privacy.source.extended(|key| key.word("rows").word(id).number(stamp).number(order as u64)),
        });
        Guard { rows: train.len(), protection, hiding }
    }

    pub(crate) fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// Gives the clients a model, after checking that it fits their rows. Clients that are the user's own code are reset.
    pub(crate) fn set_model(
        &mut self,
        model: Arc<dyn Model>,
        pool: &Arc<rayon::ThreadPool>,
        backend: &dyn Backend,
    ) -> Result<()> {
        self.clients.iter().try_for_each(|client| model.check(client).and_then(|()| client.begin_anew()))?;
        let threads = Arc::new(Threads::new(self.clients.clone(), model, pool.clone()));
        let roster = backend.admit(threads.clone())?;
        self.equipment = Some(Equipment { threads, roster });
        Ok(())
    }

    fn equipment(&self) -> Result<&Equipment> {
        self.equipment.as_ref().ok_or_else(|| Error::federation("the clients have no model yet"))
    }

    pub(crate) fn model(&self) -> Result<&Arc<dyn Model>> {
        self.threads().map(|threads| threads.model())
    }

    pub(crate) fn threads(&self) -> Result<&Threads> {
        self.equipment().map(|equipment| &*equipment.threads)
    }

    fn roster(&self) -> Result<&dyn Roster> {
        self.equipment().map(|equipment| &*equipment.roster)
    }

    /// Whether the clients' backend takes this step. It does not know of protected rows.
    pub(crate) fn takes(&self, step: &Step, phase: Phase) -> bool {
        let are_hidden = self.hidden.is_some() && phase != Phase::Evaluate;
        !are_hidden && self.protection.is_empty() && self.roster().is_ok_and(|roster| roster.takes(step))
    }

    /// Has the clients' backend carry out what it [takes](Host::takes).
    pub(crate) fn run(&mut self, batch: &Batch, take: &mut (dyn FnMut(usize, Computed) + Send)) -> Result<()> {
        match &mut self.equipment {
            Some(equipment) => equipment.roster.run(batch, take),
            None => self.equipment().map(|_| ()),
        }
    }

    /// What did not run where it was asked for.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.roster().map_or_else(|_| Vec::new(), |roster| roster.notes())
    }

    pub(super) fn kept(&self, client: u32) -> MutexGuard<'_, Option<Head>> {
        self.kept[client as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn adopt(&mut self, schema: &Schema) -> Result<()> {
        for client in Arc::make_mut(&mut self.clients) {
            let at = |error: Error| error.at(format!("client {}", client.id));
            client.train = schema.encode(&client.train).map_err(at)?;
            client.test = schema.encode(&client.test).map_err(at)?;
        }
        Ok(())
    }

    /// Appends the products that a schema has beyond the adopted one.
    pub(crate) fn widen(&mut self, schema: &Schema) -> Result<()> {
        for client in Arc::make_mut(&mut self.clients) {
            client.train = schema.widen(&client.train)?;
            client.test = schema.widen(&client.test)?;
        }
        self.equipment = None;
        Ok(())
    }

    pub(crate) fn describe(&self, client: u32, moments: bool) -> Description {
        self.coarse(describe(&self.clients[client as usize], moments))
    }

    /// The descriptions of all clients, or for each its share of what describes them `together`.
    pub(crate) fn describe_all(&self, moments: bool, together: bool) -> Vec<Description> {
        let mut all: Vec<Description> = self.clients.iter().map(|client| describe(client, moments)).collect();
        if together {
            pool(&mut all);
        }
        all.into_iter().map(|description| self.coarse(description)).collect()
    }

    fn coarse(&self, description: Description) -> Description {
        if self.protection.is_empty() { description } else { description.coarse() }
    }

    /// Carries out one order for one client. `worker` holds the ask's `models`.
    pub(crate) fn answer(
        &self,
        worker: &mut dyn Worker,
        models: &[Vec<f64>],
        (stamp, order, phase): (u64, usize, Phase),
        work: &Work,
        client: u32,
    ) -> Result<Reply> {
        let (guard, equipment) = (self.guard(client, (stamp, order, phase)), self.equipment()?);
        if guard.hiding.is_some() && !work.hides_rows() {
            let message = format!("answers to {} tell of single rows, which are to be hidden", work.name());
            return Err(
                Error::new(ErrorKind::Unsupported, message).hint("set privacy.level = \"none\", or leave it out")
            );
        }
        let mut context = ClientContext { host: self, equipment, guard, order, client, stamp, worker, models };
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
        let state = |client: u32| {
            let kept = self.kept(client);
            let Head { stamp, numbers, .. } = kept.as_ref()?;
            let vectors = self.roster().ok()?.export(client)?;
            Some(State { stamp: *stamp, vectors, numbers: numbers.clone() })
        };
        (0..self.clients.len() as u32).map(state).collect()
    }

    pub fn restore(&self, states: Vec<Option<State>>) {
        for (client, state) in (0u32..).zip(states).take(self.clients.len()) {
            let Ok(roster) = self.roster() else { return };
            roster.take(client);
            *self.kept(client) = state.map(|State { stamp, vectors, numbers }| {
                let length = vectors.len();
                roster.import(client, vectors);
                Head { stamp, numbers, length }
            });
        }
    }
}
