//! What a run needs of a federation beyond asking: a model for the clients, a fresh start for every method, and
//! checkpoints where the clients' state is within reach.

pub mod local;
pub mod remote;

use crate::data::Client;
use crate::data::schema::{Description, Schema};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::Federation;
use crate::federation::client::host::State;
use crate::federation::server::ledger::Ledger;
use crate::federation::server::meter::Meter;
use crate::federation::transforms::Transforms;
use crate::models::{Blueprint, Model};
use crate::privacy::Hidden;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A federation that can carry a run.
pub trait Engine: Federation {
    /// Every client's description of its data, with moments if wanted; `None` for one that is missing or implausible.
    fn describe(&mut self, moments: bool) -> Result<Vec<Option<Description>>>;

    /// Has every client encode its rows by one schema. Returns the clients in this process with their encoded rows.
    fn adopt(&mut self, schema: &Schema) -> Result<Option<Vec<Client>>>;

    /// Has every client append the products that a schema has beyond the adopted one. Clients need a model afterwards.
    fn widen(&mut self, schema: &Schema) -> Result<()>;

    /// Gives the clients a model; those elsewhere build it from the blueprint.
    fn equip(&mut self, model: &Arc<dyn Model>, blueprint: &Blueprint) -> Result<()>;

    /// The same clients and model without any state, and transforms of their answers. Raising `stop` ends an ask in progress
    /// with an error of kind `Stopped`.
    fn afresh(&self, label: &str, transforms: Transforms, stop: Arc<AtomicBool>) -> Result<Box<dyn Engine>>;

    /// Hides clients, or their rows, in the answers to all asks outside of evaluation. Returns how: noise may come from elsewhere.
    fn hide(&mut self, hidden: Hidden) -> Result<Hidden>;

    /// For a checkpoint; `None` where the clients' state is out of reach.
    fn state(&self) -> Result<Option<FederationState>> {
        Ok(None)
    }

    /// The checkpoint with the last [`state`](Engine::state) was written: the run may go on from there.
    fn saved(&mut self) {}

    /// From a checkpoint.
    fn restore(&mut self, _: FederationState) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "these clients cannot go on from a checkpoint"))
    }

    /// Every client's own model, by the client's id; `None` where these stay on other machines.
    fn own_models(&self) -> Option<Vec<(&str, Vec<f64>)>> {
        None
    }

    /// Has clients elsewhere save their models with these stamps on their own machines, under the run's name. The notes say
    /// where, and what went wrong.
    fn keep_models(&mut self, _run: &str, _stamps: &[u64]) -> Result<()> {
        Ok(())
    }

    /// Has machines elsewhere write a fitted model that knows their clients, under this name. `model` is the text of the model for the
    /// clients at these places. The notes say where it is, and what went wrong.
    fn settle(&mut self, _run: &str, _model: &dyn Fn(&[u32]) -> Result<String>) -> Result<()> {
        Ok(())
    }

    /// Tells machines that no more will be asked.
    fn part(&mut self) -> Result<()> {
        Ok(())
    }

    /// Statistics of the answers so far.
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
    /// Saved by clients that are the user's own code.
    pub(in crate::federation) own: Vec<Vec<u8>>,
    /// Where clients are on other machines, which keep their states.
    pub(in crate::federation) elsewhere: Option<remote::RemoteState>,
}

fn is_possible(rows: u32, description: &Description) -> bool {
    description.rows == rows as usize && description.fault().is_none()
}
