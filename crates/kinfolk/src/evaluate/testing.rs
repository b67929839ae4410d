//! Two clients and what a method made of them, for tests.

use super::scores::{Evaluation, Served};
use crate::data::{Client, DataShape, Features, Population, Shard, Targets};
use crate::methods::{Outcome, Serving};
use std::sync::Arc;

pub fn two_clients(client_parameters: Vec<Vec<f64>>) -> Population {
    let rows = Shard::new(Features::F64 { columns: 2, values: vec![0.0; 2] }, Targets::Values(vec![0.0])).unwrap();
    let client = |id: &str, truth| Client {
        id: id.into(),
        train: rows.clone(),
        test: rows.clone(),
        group: None,
        truth: Some(truth),
    };
    Population {
        clients: vec![client("a", 0), client("b", 1)],
        unseen: Vec::new(),
        true_clusters: Some(2),
        true_parameters: vec![vec![3.0, 4.0], vec![0.0, 2.0]],
        client_parameters,
        shape: DataShape::numbers(2, 0),
        ..Population::default()
    }
}

pub fn outcome(serving: Serving, clustered: bool) -> Outcome {
    Outcome {
        models: vec![Arc::new(vec![3.0, 3.0]), Arc::new(vec![1.0, 2.0])],
        clustered,
        global: Some(Arc::new(vec![2.0, 2.5])),
        serving,
        ..Outcome::default()
    }
}

pub fn served(a: Option<usize>, b: Option<usize>) -> Evaluation {
    let clients = [a, b].map(|cluster| Served { cluster, ..Served::default() }).to_vec();
    Evaluation { clients, ..Evaluation::default() }
}

pub fn personal(stamps: Vec<u64>) -> Serving {
    Serving::Own { stamps, clusters: Some([0, 1].into_iter().collect()) }
}
