//! How a method's clients hide single rows: noise for the budget, and what a run says of it.

use super::*;
use crate::privacy::protection::{composed, said_of_rows};
use crate::privacy::rows::RowPrivacy;
use crate::rng::Key;

/// What hides the rows of a method's clients on a seed, where the experiment asks for it.
pub(super) fn rows_of(experiment: &Experiment, entry: &MethodEntry, seed: u64) -> Result<Option<RowPrivacy>> {
    let protection = &experiment.privacy.protection;
    let Some(budget) = protection.budget() else { return Ok(None) };
    let pass = RowPrivacy::steps_of_a_pass(protection.rate);
    let place = format!("method.{}", entry.label);
    let exposure =
        (entry.kind.exposure)(&entry.settings, pass).map_err(|why| Error::settings(format!("{place}: {why}")))?;
    let own = Key::new(seed).word(&entry.label).word("privacy").seed();
    protection.of_rows(exposure, own).map(Some).ok_or_else(|| {
        let message = format!("{place}: no noise keeps ε = {} in {} steps", budget.epsilon, exposure.steps);
        Error::settings(message).hint("take fewer rounds and steps, or a larger privacy.epsilon")
    })
}

/// What a run says of it.
pub(super) fn note(experiment: &Experiment, rows: &RowPrivacy, data: &SeedData) -> String {
    said_of_rows(&experiment.privacy.protection, rows, data.model.layout().len(), &data.rows)
}

/// What all methods and seeds of a run cost together, where they are several.
pub(super) fn note_together(experiment: &Experiment) -> Result<Option<String>> {
    let mut releases = Vec::new();
    for entry in &experiment.methods {
        let rows = rows_of(experiment, entry, experiment.seeds().start)?;
        releases.extend(rows.iter().flat_map(RowPrivacy::mechanisms));
    }
    let seeds = experiment.seeds().count() as u64;
    if releases.is_empty() || experiment.methods.len() as u64 * seeds == 1 {
        return Ok(None);
    }
    let all = composed(
        releases.into_iter().map(|(mechanism, times)| (mechanism, seeds * times)),
        experiment.privacy.protection.delta,
    );
    Ok(Some(format!("all methods and seeds of this run together, if all are published: ε = {all:.3}")))
}
