//! What a run needs of a federation beyond asking: a model for its clients, a fresh beginning for every method, and
//! checkpoints where clients' memories are within reach.

pub mod local;
pub mod remote;

use crate::data::Client;
use crate::data::schema::{Description, Schema};
use crate::error::Result;
use crate::federation::Federation;
use crate::federation::client::host::State;
use crate::federation::server::ledger::Ledger;
use crate::federation::server::meter::Meter;
use crate::federation::transforms::Transforms;
use crate::models::{Blueprint, Model};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A federation that can carry a run.
pub trait Engine: Federation {
    /// What every client says of its data, in the order of the clients, with moments of the columns if wanted; `None` of
    /// one that says nothing, or what cannot be true.
    fn describe(&mut self, moments: bool) -> Result<Vec<Option<Description>>>;

    /// Has every client encode its rows by one schema. Returns the clients with their encoded rows, where they are in this
    /// process.
    fn adopt(&mut self, schema: &Schema) -> Result<Option<Vec<Client>>>;

    /// Gives the clients a model, and says how clients elsewhere make the same.
    fn equip(&mut self, model: &Arc<dyn Model>, blueprint: &Blueprint) -> Result<()>;

    /// The same clients with the same model, who remember nothing yet, and a list of what happens to their answers. Raising
    /// `stop` ends an ask in progress with an error of kind `Stopped`.
    fn afresh(&self, label: &str, transforms: Transforms, stop: Arc<AtomicBool>) -> Result<Box<dyn Engine>>;

    /// For a checkpoint; `None` where what clients remember is out of reach.
    fn state(&self) -> Result<Option<FederationState>>;

    /// From a checkpoint.
    fn restore(&mut self, state: FederationState) -> Result<()>;

    /// Every client's own model, by the client's id; `None` where these stay on other machines.
    fn own_models(&self) -> Option<Vec<(&str, Vec<f64>)>>;

    /// Has clients that are elsewhere keep the models with these stamps where they are, under the run's name. Where they
    /// are, and what went wrong, is in the notes.
    fn keep_models(&mut self, _run: &str, _stamps: &[u64]) -> Result<()> {
        Ok(())
    }

    /// What came of the clients' answers so far.
    fn ledger(&self) -> &Ledger;

    /// What went wrong on the way, for the summary.
    fn notes(&self) -> Vec<String>;
}

/// What a checkpoint keeps of a federation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FederationState {
    pub(in crate::federation) asked: u64,
    pub(in crate::federation) meter: Meter,
    pub(in crate::federation) ledger: Ledger,
    pub(in crate::federation) states: Vec<Option<State>>,
    /// What clients say of themselves that are code of the user's own.
    pub(in crate::federation) own: Vec<Vec<u8>>,
}

/// Whether a client with so many rows may say this of its data.
fn is_possible(rows: u32, description: &Description) -> bool {
    description.rows == rows as usize && description.fault().is_none()
}
