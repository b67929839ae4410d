//! New clients: their family, how far they are from each, and whether they fit none.

use super::newcomers::{Arrival, newcomers};
use super::{Input, Saved};
use crate::error::{Error, Result};
use crate::num::tails::largest_discovery;
use serde::Serialize;

/// What is said of a new client.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assigned {
    /// Its name.
    pub client: String,
    /// Its rows with a target value.
    pub rows: usize,
    /// Its most probable family, counted from 1.
    pub family: usize,
    /// The probabilities of all families.
    pub probabilities: Vec<f64>,
    /// Its distance to each family in standard errors.
    pub distances: Vec<f64>,
    /// The largest probability, over the families, that a member is as far from the centre.
    pub p: f64,
    /// Whether it fits none, with at most 5 % of such claims wrong (Benjamini and Hochberg).
    pub fits_none: bool,
}

/// Assigns the clients of a table that did not take part in the fit.
pub fn assign<'a>(saved: &'a Saved, table: impl Into<Input<'a>>) -> Result<Vec<Assigned>> {
    let table = table.into();
    let mut newcomers: Vec<_> = newcomers(saved, table)?.into_iter().collect();
    if newcomers.is_empty() {
        let message = format!("{}: no new client has a value in column `{}`", table.path().display(), saved.target);
        return Err(Error::data(message)
            .hint("all clients are in the model already (`show --client NAME`), or values are missing"));
    }
    newcomers.sort_by(|a, b| a.0.cmp(&b.0));
    let assigned = |(client, Arrival { rows, newcomer }): (String, Arrival)| {
        let (probabilities, distances, p) = (newcomer.responsibilities, newcomer.distances, newcomer.p);
        Assigned { client, rows, family: newcomer.family + 1, probabilities, distances, p, fits_none: false }
    };
    let mut assigned: Vec<Assigned> = newcomers.into_iter().map(assigned).collect();
    let cut = largest_discovery(assigned.iter().map(|assigned| assigned.p).collect());
    assigned.iter_mut().for_each(|assigned| assigned.fits_none = assigned.p <= cut);
    Ok(assigned)
}
