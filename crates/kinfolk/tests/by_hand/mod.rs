//! Clients so small that what methods do with them can be worked by hand.

use kinfolk::data::{Client, DataShape, Features, Shard, Targets};
use kinfolk::methods::{Outcome, kind};
use kinfolk::models::{self, Model};
use kinfolk::settings::{Setting, Settings};
use std::sync::Arc;

/// Clients with one feature, always 1: a linear model without intercept fits the mean of the targets, the loss of
/// parameter w on a target y is (w − y)², and its gradient 2(w − y).
pub fn clients(targets: &[&[f64]]) -> Vec<Client> {
    let client = |(index, values): (usize, &&[f64])| {
        let features = Features::F64 { columns: 1, values: vec![1.0; values.len()] };
        let train = Shard::new(features, Targets::Values(values.to_vec())).unwrap();
        Client { id: index.to_string(), test: train.clone(), train, group: None, truth: None }
    };
    targets.iter().enumerate().map(client).collect()
}

pub fn settings(declared: &[Setting], text: &str) -> Settings {
    let mut faults = Vec::new();
    let settings = Settings::check("method.it", declared, toml::from_str(text).unwrap(), &mut faults);
    assert!(faults.is_empty(), "{faults:?}");
    settings
}

pub fn line() -> Arc<dyn Model> {
    let kind = models::kind("linear").unwrap();
    Arc::from(kind.make(&settings(kind.settings, "intercept = false"), DataShape::numbers(1, 0)).unwrap())
}

pub fn faults_of(name: &str, text: &str) -> Vec<String> {
    let (kind, mut faults) = (kind(name).unwrap(), Vec::new());
    let settings = Settings::check("method.it", kind.settings, toml::from_str(text).unwrap(), &mut faults);
    if faults.is_empty() {
        (kind.check)("method.it", &settings, &mut faults);
    }
    faults.iter().map(|fault| fault.to_string().lines().next().unwrap().to_string()).collect()
}

pub fn numbers(outcome: &Outcome) -> Vec<f64> {
    outcome.models.iter().map(|model| model[0]).collect()
}

pub fn close(found: &[f64], wanted: &[f64], tolerance: f64) {
    let near = |(f, w): (&f64, &f64)| (f - w).abs() <= tolerance;
    assert!(found.len() == wanted.len() && found.iter().zip(wanted).all(near), "{found:?}, want {wanted:?}");
}
