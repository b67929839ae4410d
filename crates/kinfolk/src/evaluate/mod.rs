//! Findings about a method's result, between its rounds and after the last.
//!
//! A finding is one file here and one line in `findings`. It gets a `Context`, asks clients in the evaluation phase if it
//! has to, and adds to the records: columns of rounds and clients, numbers and notes of the summary.

#[cfg(test)]
mod testing;

pub use baselines::single_model;
pub use scores::{Evaluation, Served, seen, unseen};

use crate::clustering::quality::assign;
use crate::data::schema::Schema;
use crate::data::{Client, Population};
use crate::error::Result;
use crate::federation::engines::Engine;
use crate::federation::work::{Evaluate, Subject};
use crate::federation::{Ask, Federation, Gather, Params, Phase, Recipients};
use crate::methods::{Outcome, Serving};
use crate::models::{Metric, Model};
use crate::num::{distance, median, norm};
use crate::record::summary::mean;
use crate::record::{ClientRecord, MethodRecord, RoundRecord};
use scores::is_good;
use std::collections::BTreeMap;

/// Something that is measured of a method. It lives as long as a seed, and may remember what it learnt.
pub(crate) trait Finding {
    /// Measures at every evaluation, the last included: for the round, and for the record if it is the last.
    fn evaluate(&self, _: &mut Context, _: &mut RoundRecord, _: &mut MethodRecord) -> Result<()> {
        Ok(())
    }

    fn conclude(&self, _: &mut Context, _: &mut MethodRecord) -> Result<()> {
        Ok(())
    }

    /// Remembers of a method that has ended, now or before the run was resumed, what later ones are compared with.
    fn learn(&mut self, _: &mut MethodRecord) {}
}

/// Declares every finding: its file and its type. Notes come in this order.
macro_rules! findings {
    ($($file:ident::$finding:ident)*) => {
        $(mod $file;)*

        /// All findings about the methods of one seed.
        pub(crate) fn findings() -> Vec<Box<dyn Finding>> {
            vec![$(Box::<$file::$finding>::default()),*]
        }
    };
}

findings! {
    mixtures::Mixtures
    outliers::Outliers
    attackers::Attackers
    backdoor::BackdoorSuccess
    scores::Scores
    truth::Truth
    planted::PlantedParameters
    exact::DistanceToExact
    baselines::BesideBaselines
    clusters::Clusters
    comparisons::Comparisons
}

pub(crate) struct Context<'a> {
    pub label: &'a str,
    pub seed: u64,
    pub population: &'a Population,
    /// Which of its clients attack on purpose; empty where nobody knows.
    pub attackers: &'a [bool],
    pub schema: &'a Schema,
    pub model: &'a dyn Model,
    pub metric: Metric,
    pub outcome: &'a mut Outcome,
    pub scored: &'a Evaluation,
    /// Scores of clients met only after training, if any.
    pub unseen: Option<&'a Evaluation>,
    /// The same clients with test rows on which the success of an attack is measured, where there are such.
    pub attacked: Option<&'a mut dyn Engine>,
    /// The clients that took part, to be asked in the evaluation phase.
    pub federation: &'a mut dyn Engine,
    /// Whether to record the component of every row.
    pub with_rows: bool,
    /// Called before something slow begins.
    pub doing: &'a mut dyn FnMut(&str),
}

/// Clients' own models, by the clients' ids.
pub(crate) type OwnModels<'a> = BTreeMap<&'a str, Vec<f64>>;

impl Context<'_> {
    /// The clients' own models, where these serve them. If they are out of reach, a note says what is `missing` therefore.
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
