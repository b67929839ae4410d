//! From records to files people read: json, csv, tables and one html page.

pub mod clustering;
pub mod columns;
mod comparisons;
pub mod files;
pub mod folder;
pub mod html;
pub mod lock;
pub mod mixtures;
pub mod summary;
pub mod table;

#[cfg(test)]
mod fabricated;

use crate::methods::Comparison;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line of rounds.csv: what one phase of one round did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundRecord {
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
    /// The same on unseen clients.
    pub unseen_metric: Option<f64>,
    /// Squared distance of the clients' models to the planted ones, relative to those, where they are known.
    pub normalised_mse: Option<f64>,
    /// Distance of the clients' models to the exact minimiser, relative to it, where an earlier method found that.
    pub distance_to_exact: Option<f64>,
    /// Share of clients outside the best matching of the clusters with the true ones, where those are known.
    pub misclustering: Option<f64>,
    /// The stage of the method that ended here, of a method that has stages.
    pub stage: Option<String>,
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
}

/// One line of clients.csv: how one client ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientRecord {
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
    /// More about it, where it has a personal model in a cluster.
    pub personal: PersonalRecord,
    /// What the group is called that the method was told it belongs to.
    pub group: Option<String>,
    /// Whether it is unlike the others.
    #[serde(default)]
    pub outlier: OutlierRecord,
}

/// How unlike the others a client is, whether that makes it an outlier, and whether it was made one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct OutlierRecord {
    /// The method's score; the higher, the less it is like the others.
    pub score: Option<f64>,
    /// For how many components it is out of reach of the common centre.
    pub apart: Option<usize>,
    /// Whether it is an outlier among all clients, where they have scores.
    #[serde(default)]
    pub verdict: Option<bool>,
    /// Whether it was planted as an outlier, where some were.
    pub planted: Option<bool>,
}

/// How far clients are apart, as one method compared them on one seed: distances.csv.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparisonRecord {
    /// The method's label.
    pub label: String,
    /// The seed of this repeat.
    pub seed: u64,
    /// The clients' ids.
    pub clients: Vec<String>,
    /// The cluster each was planted in, where all were.
    pub truth: Option<Vec<usize>>,
    /// The pairs and their distances.
    pub found: Comparison,
}

/// The mixtures that one method found on one seed: components.csv and rows.csv.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MixtureRecord {
    /// The method's label.
    pub label: String,
    /// The seed of this repeat.
    pub seed: u64,
    /// How many components there are.
    pub components: usize,
    /// Whether a component's number means the same for all clients; otherwise it is a client's own.
    #[serde(default = "in_order")]
    pub ordered: bool,
    /// What the numbers of a centre are called; empty where they have no names.
    pub features: Vec<String>,
    /// What the classes of rows are called; empty where they have no names.
    pub classes: Vec<String>,
    /// The common centres, end to end; empty where a method has none.
    pub common: Vec<f64>,
    /// Every client's own.
    pub clients: Vec<ClientMixture>,
}

fn in_order() -> bool {
    true
}

impl Default for MixtureRecord {
    fn default() -> Self {
        Self {
            label: String::new(),
            seed: 0,
            components: 0,
            ordered: in_order(),
            features: Vec::new(),
            classes: Vec::new(),
            common: Vec::new(),
            clients: Vec::new(),
        }
    }
}

/// The mixture of one client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientMixture {
    /// The client's id.
    pub client: String,
    /// The share of every component.
    pub weights: Vec<f64>,
    /// The centres of its components, end to end.
    pub centres: Vec<f64>,
    /// Whether it is unlike the others.
    pub outlier: OutlierRecord,
    /// Where its training rows belong.
    pub train: RowsRecord,
    /// Where its test rows belong.
    pub test: RowsRecord,
}

/// The component of every row of one part of a client's data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RowsRecord {
    /// The most likely component.
    pub components: Vec<u32>,
    /// The class; empty where rows have none.
    pub classes: Vec<u32>,
    /// Where the row stands in the file it was read from; empty where there is none.
    pub lines: Vec<u64>,
}

impl ClientMixture {
    /// A client's weights and centres, end to end.
    pub fn new(client: &str, weights: &[f64], centres: &[f64]) -> Self {
        let (weights, centres) = (weights.to_vec(), centres.to_vec());
        Self { client: client.to_string(), weights, centres, ..Self::default() }
    }

    /// Its rows, by the name of their part.
    pub fn parts(&self) -> [(&'static str, &RowsRecord); 2] {
        [("train", &self.train), ("test", &self.test)]
    }
}

impl RowsRecord {
    /// The components of rows, with their classes and lines where there are any.
    pub fn new(components: &[u32], classes: Option<&[u32]>, lines: Option<&[u64]>) -> Self {
        let (classes, lines) = (classes.unwrap_or_default().to_vec(), lines.unwrap_or_default().to_vec());
        Self { components: components.to_vec(), classes, lines }
    }
}

/// What clients.csv says of a client's personal model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PersonalRecord {
    /// The length of its parameters.
    pub model_norm: Option<f64>,
    /// How far it is from its cluster's model.
    pub distance_to_cluster: Option<f64>,
    /// How far it is from the mean of all models.
    pub distance_to_global: Option<f64>,
    /// What the client's metric would be on its own.
    pub metric_local: Option<f64>,
    /// What the client's metric would be with one model for everybody.
    pub metric_global: Option<f64>,
}

/// A metric over many clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricSummary {
    /// accuracy, mse or nll.
    pub name: String,
    /// Average over clients.
    pub mean: f64,
    /// Average over rows.
    pub pooled: f64,
    /// Mean of the worst tenth of the clients.
    pub worst_decile: f64,
    /// Average over the clients of every cluster, `None` where a cluster is empty.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub per_cluster: Vec<Option<f64>>,
}

/// How one method ended on one seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepeatSummary {
    /// The seed.
    pub seed: u64,
    /// `done`, `not-converged`, `diverged` or `failed`.
    pub status: String,
    /// Why, where it is not `done`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Rounds run.
    pub rounds: usize,
    /// Clusters with at least one client.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clusters: Option<usize>,
    /// On the clients that took part; those planted as outliers are left out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub metric: Option<MetricSummary>,
    /// On clients met only after training.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unseen: Option<MetricSummary>,
    /// Share of clients outside the best matching of clusters to true clusters.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub misclustering: Option<f64>,
    /// Adjusted Rand index against the truth.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ari: Option<f64>,
    /// Mean distance of the models to the true parameters under the best matching.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parameter_error: Option<f64>,
    /// Payload to clients over all training rounds.
    pub bytes_down: u64,
    /// Payload from clients over all training rounds.
    pub bytes_up: u64,
    /// Whole models sent to clients.
    pub models_down: u64,
    /// Whole models or gradients sent by clients.
    pub models_up: u64,
    /// Seconds in training rounds.
    pub seconds: f64,
    /// Things a reader must know: empty clusters, missing answers, settled starts.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    /// What a method adds of its own.
    #[serde(flatten)]
    pub extra: BTreeMap<String, serde_json::Value>,
}

/// One method over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodSummary {
    /// Its label in this run.
    pub label: String,
    /// Its registered name.
    pub name: String,
    /// Every setting, defaults filled in.
    pub settings: serde_json::Value,
    /// The worst status of its repeats.
    pub status: String,
    /// One entry a seed.
    pub repeats: Vec<RepeatSummary>,
    /// Means over the repeats of every numeric field.
    pub mean: serde_json::Value,
    /// Standard deviations (n − 1); absent for one repeat.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sd: Option<serde_json::Value>,
}

/// summary.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of this layout.
    pub schema: u32,
    /// The experiment's name.
    pub name: String,
    /// The first seed.
    pub seed: u64,
    /// The version of Kinfolk that wrote it.
    pub version: String,
    /// What the data was: clients, samples, true_clusters and so on.
    pub data: serde_json::Value,
    /// Every method.
    pub methods: Vec<MethodSummary>,
}

/// Everything a report shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// summary.json.
    pub summary: Summary,
    /// rounds.csv.
    pub rounds: Vec<RoundRecord>,
    /// clients.csv.
    pub clients: Vec<ClientRecord>,
    /// components.csv and rows.csv.
    #[serde(default)]
    pub mixtures: Vec<MixtureRecord>,
    /// distances.csv.
    #[serde(default)]
    pub comparisons: Vec<ComparisonRecord>,
}
