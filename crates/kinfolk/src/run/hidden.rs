//! What hides clients, or their rows: noise for a method's budget, and what a run says of it.

use super::*;
use crate::privacy::Hidden;
use crate::privacy::protection::{Answered, Level, composed, said_of_clients, said_of_rows};
use crate::privacy::rows::RowPrivacy;
use crate::rng::Key;

/// What hides a method's clients, or their rows, on a seed, where the experiment asks for it.
pub(super) fn hidden(experiment: &Experiment, entry: &MethodEntry, seed: u64) -> Result<Option<Hidden>> {
    let protection = &experiment.privacy.protection;
    let Some(budget) = protection.budget() else { return Ok(None) };
    let pass = RowPrivacy::steps_of_a_pass(protection.rate);
    let place = format!("method.{}", entry.label);
    let ability = (experiment.model_kind.ability)(&experiment.model);
    let exposure = (entry.kind.exposure)(&entry.settings, pass, ability);
    let exposure = exposure.map_err(|why| Error::settings(format!("{place}: {why}")))?;
    let own = Key::new(seed).word(&entry.label).word("privacy").seed();
    let hidden = match protection.level {
        Level::Client => protection.of_clients(exposure, own).map(Hidden::Clients),
        _ => protection.of_rows(exposure, own).map(Hidden::Rows),
    };
    hidden.map(Some).ok_or_else(|| {
        let message = format!("{place}: no noise keeps ε = {} in so many rounds", budget.epsilon);
        Error::settings(message).hint("take fewer rounds and steps, or a larger privacy.epsilon")
    })
}

/// What a run says of it.
pub(super) fn note(hidden: &Hidden, experiment: &Experiment, entry: &MethodEntry, data: &SeedData) -> String {
    let (settings, width) = (&experiment.privacy.protection, data.model.layout().len());
    match hidden {
        Hidden::Rows(rows) => {
            let answered = match data.model.mixture() {
                Some(_) => Answered::Pulls,
                None if data.model.is_quadratic() => Answered::LeastSquares,
                None => Answered::Minimiser,
            };
            said_of_rows(settings, rows, (width, answered), &data.rows)
        }
        Hidden::Clients(clients) => {
            let clusters = entry.settings.get("clusters").and_then(toml::Value::as_integer).unwrap_or(1).max(1);
            said_of_clients(settings, clients, (width, data.rows.len()), clusters as usize)
        }
    }
}

/// What all methods and seeds of a run cost together, where they are several.
pub(super) fn note_together(experiment: &Experiment) -> Result<Option<String>> {
    let mut releases = Vec::new();
    for entry in &experiment.methods {
        let hidden = hidden(experiment, entry, experiment.seeds().start)?;
        releases.extend(hidden.iter().flat_map(Hidden::mechanisms));
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
