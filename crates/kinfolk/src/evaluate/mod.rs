//! What is found out about a method's result, between its rounds and after the last.
//!
//! A finding is one file here and one line in [`findings`]. It is given a [`Context`], asks clients in the evaluation phase
//! where it has to, and adds what it found to the records: columns of rounds and clients, numbers and notes of the summary.

mod baselines;
mod clusters;
mod comparisons;
mod exact;
mod mixtures;
mod outliers;
mod planted;
mod scores;
#[cfg(test)]
mod testing;
mod truth;

pub use baselines::single_model;
pub use scores::{Evaluation, Served, seen, unseen};

use crate::data::Population;
use crate::data::schema::Schema;
use crate::error::Result;
use crate::federation::engines::Engine;
use crate::methods::{Outcome, Serving};
use crate::models::{Metric, Model};
use crate::record::{MethodRecord, RoundRecord};
use std::collections::BTreeMap;

/// Something that is measured of what a method did. It lives as long as a seed, and may remember what it learnt.
pub trait Finding {
    /// What is found at every evaluation, the last included: for the round, and for the record if no other follows.
    fn evaluate(&self, _: &mut Context, _: &mut RoundRecord, _: &mut MethodRecord) -> Result<()> {
        Ok(())
    }

    /// What is found once the method has ended.
    fn conclude(&self, _: &mut Context, _: &mut MethodRecord) -> Result<()> {
        Ok(())
    }

    /// Remembers what the methods that follow are compared with, of one that has ended in this run or before it was resumed.
    fn learn(&mut self, _: &mut MethodRecord) {}
}

/// All there is to find out about the methods of one seed. Notes come in this order.
pub fn findings() -> Vec<Box<dyn Finding>> {
    vec![
        Box::new(mixtures::Mixtures),
        Box::new(outliers::Outliers),
        Box::new(scores::Scores),
        Box::new(truth::Truth),
        Box::new(planted::PlantedParameters),
        Box::<exact::DistanceToExact>::default(),
        Box::<baselines::BesideBaselines>::default(),
        Box::new(clusters::Clusters),
        Box::new(comparisons::Comparisons),
    ]
}

/// What findings are made from.
pub struct Context<'a> {
    /// The method's label.
    pub label: &'a str,
    /// The seed.
    pub seed: u64,
    /// What is known of the clients.
    pub population: &'a Population,
    /// How their columns are encoded.
    pub schema: &'a Schema,
    /// What was trained.
    pub model: &'a dyn Model,
    /// What clients are scored by.
    pub metric: Metric,
    /// What the method found.
    pub outcome: &'a mut Outcome,
    /// How the clients fare that took part.
    pub scored: &'a Evaluation,
    /// How those fare that are met only after training, where there are any.
    pub unseen: Option<&'a Evaluation>,
    /// The clients that took part, to be asked in the evaluation phase.
    pub federation: &'a mut dyn Engine,
    /// Whether to record the component of every row.
    pub with_rows: bool,
    /// Called before something slow begins.
    pub doing: &'a mut dyn FnMut(&str),
}

/// Models that clients keep, by the clients' ids.
pub type OwnModels<'a> = BTreeMap<&'a str, Vec<f64>>;

impl Context<'_> {
    /// The models that clients are served by that keep their own. Where these are out of reach, it is noted what is
    /// therefore missing.
    fn own_models(&self, missing: &str, found: &mut MethodRecord) -> OwnModels<'_> {
        if !matches!(self.outcome.serving, Serving::Own { .. }) {
            return OwnModels::new();
        }
        let own = self.federation.own_models();
        if own.is_none() {
            found.summary.notes.push(format!("personal models stay on their machines, so there is no {missing}"));
        }
        own.into_iter().flatten().collect()
    }
}
