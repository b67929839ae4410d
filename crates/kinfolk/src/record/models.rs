//! The models that a method found, to be used at once.

use crate::assignment::Assignment;
use crate::data::schema::Schema;
use crate::data::{Features, Shard, Targets};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::Params;
use crate::models::{Layout, Model};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The models that a method found on one seed.
#[derive(Clone)]
pub struct FoundModels {
    /// The method's label.
    pub label: String,
    /// The seed of this repeat.
    pub seed: u64,
    /// The clients' ids, in their order.
    pub clients: Vec<String>,
    /// Which of `models` serves each client, in that order.
    pub assignment: Assignment,
    /// The models of the clusters, or the one model.
    pub models: Vec<Params>,
    /// The models of clients that have one of their own, by their ids.
    pub own: BTreeMap<String, Params>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) schema: Schema,
}

impl FoundModels {
    /// The model that serves a client: its own, or that of its cluster.
    pub fn of_client(&self, id: &str) -> Result<TrainedModel<'_>> {
        let place = self.clients.iter().position(|client| client == id);
        let served = place.and_then(|place| self.models.get(self.assignment.each()[place]?));
        match self.own.get(id).or(served) {
            Some(parameters) => Ok(TrainedModel { parameters, found: self }),
            None if place.is_some() => {
                Err(Error::data(format!("client {id}: method {} has no model for it", self.label)))
            }
            None => Err(Error::data(format!("client {id}: did not take part"))),
        }
    }

    /// The model of a cluster; 0 where there is one model for everybody.
    pub fn of_cluster(&self, cluster: usize) -> Result<TrainedModel<'_>> {
        let found = self.models.get(cluster).map(|parameters| TrainedModel { parameters, found: self });
        let there = self.models.len();
        found.ok_or_else(|| Error::data(format!("cluster {cluster}: method {} found {there} models", self.label)))
    }
}

impl fmt::Debug for FoundModels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} models of {} on seed {}", self.models.len() + self.own.len(), self.label, self.seed)
    }
}

impl PartialEq for FoundModels {
    fn eq(&self, other: &Self) -> bool {
        (&self.label, self.seed, &self.assignment, &self.models, &self.own)
            == (&other.label, other.seed, &other.assignment, &other.models, &other.own)
    }
}

/// One trained model.
#[derive(Clone, Copy)]
pub struct TrainedModel<'a> {
    /// Its parameters, end to end.
    pub parameters: &'a [f64],
    found: &'a FoundModels,
}

impl TrainedModel<'_> {
    /// The named tensors that the parameters are.
    pub fn layout(&self) -> &Layout {
        self.found.model.layout()
    }

    /// What it predicts for rows of numbers, one after the other: for each the number, or the number of its class.
    pub fn predict(&self, rows: &[f64]) -> Result<Vec<f64>> {
        let columns = self.found.schema.columns();
        if columns == 0 || !rows.len().is_multiple_of(columns) {
            let message = format!("got {} numbers, want rows of {columns}", rows.len());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        self.predict_rows(&Shard::new(Features::F64 { columns, values: rows.to_vec() }, Targets::None)?)
    }

    /// The same for rows as clients have them; their targets are not looked at.
    pub fn predict_rows(&self, rows: &Shard) -> Result<Vec<f64>> {
        let rows = self.found.schema.encode_features(rows)?;
        self.found.model.predict(self.parameters, &rows)
    }
}
