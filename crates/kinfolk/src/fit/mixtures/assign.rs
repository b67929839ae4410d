//! New clients: their family, how far they are from each, and whether they fit none.

use super::SavedMixture;
use super::newcomers::{Newcomer, newcomers};
use crate::error::{Error, Result};
use crate::fit::{Assigned, Assignments, Input};
use crate::mixture::clients::{Typical, distance, surprise};
use crate::num::tails::normal_tail;
use crate::rng::Key;
use rayon::prelude::*;

/// Assigns the clients of a table that did not take part in the fit. A client fits none of the families if the components explain its rows
/// badly, or occur in it as in no family.
pub fn assign_by_components<'a>(saved: &'a SavedMixture, table: impl Into<Input<'a>>) -> Result<Assignments> {
    let table = table.into();
    let mut newcomers: Vec<(String, Newcomer)> = newcomers(saved, table)?.into_iter().collect();
    if newcomers.is_empty() {
        let message = format!("{}: no new client", table.path().display());
        return Err(Error::data(message).hint("all clients are in the model already (`show --client NAME`)"));
    }
    newcomers.sort_by(|a, b| a.0.cmp(&b.0));
    let (model, key) = (&saved.model, Key::new(saved.seed).word("assign"));
    let typical = Typical::new(&model.shape, &model.params, &key);
    let assigned = |(client, own): (String, Newcomer)| {
        let key = key.clone().word(&client);
        let (families, rows) = (&model.families, own.counts.iter().sum::<f64>());
        let distances: Vec<f64> =
            families.centres.iter().map(|centre| distance(&own.counts, centre, families.strength)).collect();
        let like_a_family = (families.centres.iter().zip(&distances))
            .map(|(centre, distance)| surprise(*distance, centre, families.strength, rows, &key))
            .fold(0.0, f64::max);
        let deviation = typical.deviation(&own.own, own.used as f64, own.log_likelihood);
        // Either may speak against it.
        let p = (2.0 * like_a_family.min(normal_tail(-deviation))).min(1.0);
        let family = crate::families::most_probable(&own.responsibilities) + 1;
        let probabilities = own.responsibilities;
        Assigned { client, known: false, rows: own.rows, family, probabilities, distances, p, fits_none: false }
    };
    let assigned = newcomers.into_par_iter().map(assigned).collect();
    Ok(Assignments::new((1..=saved.model.families.centres.len()).collect(), assigned, Vec::new()))
}
