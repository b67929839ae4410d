//! What a run needs of a federation beyond asking: a model for its clients, a fresh beginning for every method, and
//! checkpoints where clients' memories are within reach.

use super::Federation;
use super::faults::Faults;
use super::host::{Host, State};
use super::ledger::Ledger;
use super::meter::Meter;
use crate::error::Result;
use crate::models::{Blueprint, Model};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A federation that can carry a run.
pub trait Engine: Federation {
    /// Gives the clients a model, and says how clients elsewhere make the same.
    fn equip(&mut self, model: &Arc<dyn Model>, blueprint: &Blueprint) -> Result<()>;

    /// The same clients with the same model, who remember nothing yet. Raising `stop` ends an ask in progress with an
    /// error of kind `Stopped`.
    fn afresh(&self, label: &str, faults: Faults, stop: Arc<AtomicBool>) -> Result<Box<dyn Engine>>;

    /// For a checkpoint; `None` where what clients remember is out of reach.
    fn state(&self) -> Result<Option<FederationState>>;

    /// From a checkpoint.
    fn restore(&mut self, state: FederationState) -> Result<()>;

    /// The clients' side, where it is in this process.
    fn host(&self) -> Option<&Host>;

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
    pub(super) asked: u64,
    pub(super) meter: Meter,
    pub(super) ledger: Ledger,
    pub(super) states: Vec<Option<State>>,
    /// What clients say of themselves that are code of the user's own.
    pub(super) own: Vec<Vec<u8>>,
}

impl dyn Engine + '_ {
    /// Every client's own model that is within reach, by its id.
    pub fn own_models(&self) -> impl Iterator<Item = (&str, Vec<f64>)> {
        self.host().into_iter().flat_map(Host::own_models)
    }
}
