//! The record of a run: its rounds, its clients, its summary, and the files they are written to.

pub(crate) mod comparisons;
#[cfg(test)]
pub(crate) mod fabricated;
pub(crate) mod mixtures;
mod models;
#[doc(hidden)]
pub mod summary;
#[doc(hidden)]
pub mod table;

pub use comparisons::ComparisonRecord;
pub use mixtures::{ClientMixture, MixtureRecord, RowsRecord};
pub use models::{FoundModels, TrainedModel};
pub use summary::{MethodSummary, MetricSummary, RepeatSummary, Summary};

use crate::error::{Error, Result};
use crate::over::Over;
use crate::settings::unknown_name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use table::table_row;

table_row! {
    /// What one phase of one round did.
    pub struct RoundRecord in "rounds.csv" {
        /// The method's label.
        pub label: String,
        /// The seed of this repeat.
        pub seed: u64,
        /// The round, from 1; 0 is what happened before the first.
        pub round: usize,
        /// `start`, `train` or `evaluate`.
        pub phase: String,
        /// Mean training loss of the clients that answered, before the step.
        pub loss: Option<f64>,
        /// The metric's mean over clients, on evaluation rows.
        pub metric: Option<f64>,
        /// How many clients changed cluster.
        pub switched: Option<usize>,
        /// Clients in every cluster.
        pub sizes: Vec<usize>,
        /// Payload sent to clients in this phase.
        pub bytes_down: u64,
        /// Payload sent by clients in this phase.
        pub bytes_up: u64,
        /// Seconds since the method began, evaluation left out.
        pub seconds: f64,
        /// The metric's mean over unseen clients.
        pub unseen_metric: Option<f64>,
        /// Squared distance of the clients' models to the planted ones, relative to those, where they are known.
        pub normalised_mse: Option<f64>,
        /// Distance of the clients' models to the exact minimiser, relative to it, where an earlier method found that.
        pub distance_to_exact: Option<f64>,
        /// Share of clients outside the best matching of the clusters with the true ones, where those are known.
        pub misclustering: Option<f64>,
        /// The stage of the method that ended here, of a method that has stages.
        pub stage: Option<String>,
    }
}

table_row! {
    /// How one client ended.
    pub struct ClientRecord in "clients.csv" {
        /// The method's label.
        pub label: String,
        /// The seed of this repeat.
        pub seed: u64,
        /// The client's id.
        pub client: String,
        /// The cluster it was planted in.
        pub true_cluster: Option<usize>,
        /// The cluster the method put it in.
        pub cluster: Option<usize>,
        /// Its training rows.
        pub samples: usize,
        /// Loss gap between the best and the second best model.
        pub margin: Option<f64>,
        /// Its metric on its own held-out rows.
        pub metric: Option<f64>,
        /// The length of the parameters of its personal model.
        pub model_norm: Option<f64>,
        /// How far its personal model is from its cluster's.
        pub distance_to_cluster: Option<f64>,
        /// How far its personal model is from the mean of all models.
        pub distance_to_global: Option<f64>,
        /// What its metric would be on its own.
        pub metric_local: Option<f64>,
        /// What its metric would be with one model for everybody.
        pub metric_global: Option<f64>,
        /// What the group is called that the method was told it belongs to.
        pub group: Option<String>,
        /// Its outlier score: how unlike the other clients it is.
        pub outlier_score: Option<f64>,
        /// For how many components of a mixture it is out of reach of the common centre.
        pub apart: Option<usize>,
        /// Whether it is an outlier among all clients, where they have scores.
        pub outlier: Option<bool>,
        /// Whether it was planted as an outlier, where some were.
        pub planted_outlier: Option<bool>,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MethodRecord {
    #[serde(with = "summary::as_json")]
    pub summary: RepeatSummary,
    pub rounds: Vec<RoundRecord>,
    pub clients: Vec<ClientRecord>,
    pub mixture: Option<MixtureRecord>,
    pub comparison: Option<ComparisonRecord>,
    /// The exact minimiser it found, for iterative methods with the same objective.
    pub minimiser: Option<Minimiser>,
    /// Its clusters and models, where a later method goes on from them.
    pub over: Option<Over>,
    #[serde(skip)]
    pub models: Option<FoundModels>,
}

/// The exact minimiser of an objective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Minimiser {
    pub objective: String,
    /// The clients' models by their ids.
    pub models: BTreeMap<String, Vec<f64>>,
}

impl MethodRecord {
    /// Adds a number to the summary, if it is finite.
    pub(crate) fn number(&mut self, name: &str, value: f64) {
        let number = serde_json::Number::from_f64(value);
        self.summary.extra.extend(number.map(|number| (name.to_string(), number.into())));
    }

    /// Adds those that are known.
    pub(crate) fn numbers<'a>(&mut self, numbers: impl IntoIterator<Item = (&'a str, Option<f64>)>) {
        numbers.into_iter().for_each(|(name, value)| self.number(name, value.unwrap_or(f64::NAN)));
    }
}

/// Everything a report shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// summary.json.
    pub summary: Summary,
    /// rounds.csv.
    pub rounds: Vec<RoundRecord>,
    /// clients.csv.
    pub clients: Vec<ClientRecord>,
    /// components.csv and rows.csv.
    pub mixtures: Vec<MixtureRecord>,
    /// distances.csv.
    pub comparisons: Vec<ComparisonRecord>,
    /// The models, where the run was to keep them. A method that had ended before the run was resumed has its own in the folder.
    pub models: Vec<FoundModels>,
}

impl Record {
    /// The models that a method found on the first seed that it did not fail on.
    pub fn models_of(&self, label: &str) -> Result<&FoundModels> {
        if let Some(found) = self.models.iter().find(|found| found.label == label) {
            return Ok(found);
        }
        let labels: Vec<&str> = self.summary.methods.iter().map(|method| method.label.as_str()).collect();
        let method = self.summary.methods.iter().find(|method| method.label == label);
        let Some(method) = method else { return Err(unknown_name("label", label, &labels)) };
        let reason = method.repeats.iter().find_map(|repeat| repeat.reason.as_deref());
        let why = reason.unwrap_or("the run did not keep its models");
        Err(Error::data(format!("method {label}: no models; {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<R: table::TableRow>(rows: &[R]) -> String {
        String::from_utf8(table::write::<R>(rows).expect("in memory")).expect("csv is text")
    }

    #[test]
    fn rounds_have_the_columns_of_the_contract() {
        assert_eq!(
            text(&fabricated::record().rounds[..2]),
            "label,seed,round,phase,loss,metric,switched,sizes,bytes_down,bytes_up,seconds,unseen_metric,\
             normalised_mse,distance_to_exact,misclustering,stage\n\
             \"a, \"\"quoted\"\"\",0,1,train,0.5,,2,2;1,800,400,0.25,,,,,\n\
             \"a, \"\"quoted\"\"\",0,1,evaluate,,0.75,,2;1,0,0,0.25,0.5,,0.125,0.25,middle\n"
        );
    }

    #[test]
    fn clients_have_the_columns_of_the_contract() {
        assert_eq!(
            text(&fabricated::record().clients[..2]),
            "label,seed,client,true_cluster,cluster,samples,margin,metric,model_norm,distance_to_cluster,\
             distance_to_global,metric_local,metric_global,group,outlier_score,apart,outlier,planted_outlier\n\
             \"a, \"\"quoted\"\"\",0,north,0,1,20,0.125,0.5,1.5,,,0.25,,hills,,,,\n\
             \"a, \"\"quoted\"\"\",0,south,,,20,,,,,,,,,2.5,1,false,true\n"
        );
        assert_eq!(text::<ClientRecord>(&[]).lines().count(), 1, "an empty file has its header");
    }
}
