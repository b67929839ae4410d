//! What the rows of clients say that did not take part in the fit.

use super::SavedMixture;
use crate::data::known::KnownRows;
use crate::error::Result;
use crate::fit::Input;
use crate::mixture::clients::Counts;
use crate::mixture::{Densities, Rows, Scratch};
use rayon::prelude::*;
use std::collections::HashMap;

/// Rows of a new client from which its weights are learned, at most: a table may be larger than the memory.
const MOST_ROWS: usize = 1000;

/// A new client.
pub(super) struct Newcomer {
    pub(super) rows: usize,
    /// Its counts of components,
    pub(super) counts: Vec<f64>,
    /// the weights under which its rows are likeliest, their log-likelihood then, and of how many rows that is,
    pub(super) own: Vec<f64>,
    pub(super) log_likelihood: f64,
    pub(super) used: usize,
    /// and those that lean on the families.
    pub(super) personal: Vec<f64>,
    /// The probabilities of the families.
    pub(super) responsibilities: Vec<f64>,
}

/// Every client of a table that did not take part in the fit.
pub(super) fn newcomers(saved: &SavedMixture, table: Input) -> Result<HashMap<String, Newcomer>> {
    let mut found: HashMap<String, (usize, Densities)> = HashMap::new();
    let (shape, params) = (saved.model.shape, &saved.model.params);
    KnownRows::read_ahead(table, saved.known_columns(), |batch| {
        let new: Vec<usize> =
            (0..batch.clients.len()).filter(|&row| saved.place(&batch.clients[row]).is_none()).collect();
        if new.is_empty() {
            return Ok(());
        }
        let rows = batch.encoded(&saved.columns, 0..batch.clients.len())?;
        let densities = Densities::of(&shape, params, &Rows::of(&shape, &rows), &mut Scratch::default());
        for row in new {
            let (count, kept) = found.entry(batch.clients[row].clone()).or_default();
            *count += 1;
            if kept.len() < MOST_ROWS {
                kept.append(&densities.row(row));
            }
        }
        Ok(())
    })?;
    let families = &saved.model.families;
    let newcomer = |(name, (rows, densities)): (String, (usize, Densities))| {
        let used = densities.len();
        let own = densities.weigh(0..used, &[]);
        let log_likelihood = (0..used).map(|row| densities.log_density(row, &own)).sum();
        let counts =
            Counts::new(shape.components, saved.model.efficiency, [(&own[..], used as f64)].into_iter()).values;
        let responsibilities = families.responsibilities(&counts);
        let prior: Vec<f64> =
            families.leaning(&responsibilities).iter().map(|weight| weight * families.strength).collect();
        let personal = densities.weigh(0..used, &prior);
        (name, Newcomer { rows, counts, own, log_likelihood, used, personal, responsibilities })
    };
    Ok(found.into_par_iter().map(newcomer).collect())
}
