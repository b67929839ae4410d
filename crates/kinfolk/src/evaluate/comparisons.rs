//! How far clients are apart, where a method compared them.

use super::{Context, Finding, MethodRecord};
use crate::error::Result;
use crate::record::{ComparisonRecord, RoundRecord};

#[derive(Default)]
pub(super) struct Comparisons;

impl Finding for Comparisons {
    fn evaluate(&self, context: &mut Context, _: &mut RoundRecord, found: &mut MethodRecord) -> Result<()> {
        let clients = || context.population.clients.iter();
        // Moved, not copied: there may be one for every pair of clients.
        found.comparison = context.outcome.comparison.take().map(|distances| ComparisonRecord {
            label: context.label.to_string(),
            seed: context.seed,
            clients: clients().map(|client| client.id.clone()).collect(),
            truth: clients().map(|client| client.truth).collect(),
            found: distances,
        });
        Ok(())
    }
}
