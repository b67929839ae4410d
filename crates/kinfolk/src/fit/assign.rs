//! Clients by their new rows: their family, how far they are from each, and whether they fit. New ones may be added to the model.

use super::newcomers::by_their_rows;
use super::{Input, Saved};
use crate::data::known::{self, KnownColumns};
use crate::error::{Error, Result};
use crate::families::{LearnedClient, Newcomer};
use crate::num::tails::largest_discovery;
use crate::text::counted;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// What is said of a client.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assigned {
    /// Its name.
    pub client: String,
    /// Whether the model knows it: then it stays in its family, and the rest is about whether its new rows fit there.
    pub known: bool,
    /// Its rows with a target value.
    pub rows: usize,
    /// The number of its most probable family, or of the one it is in.
    pub family: usize,
    /// The probabilities of all families.
    pub probabilities: Vec<f64>,
    /// Its distance to each family in standard errors.
    pub distances: Vec<f64>,
    /// The largest probability, over the families, that a member is as far from the centre; of a known client, that in its family.
    pub p: f64,
    /// Whether it fits none, or no longer its own, with at most 5 % of such claims wrong (Benjamini and Hochberg).
    pub fits_none: bool,
}

/// What is said of the clients of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assignments {
    /// The numbers of the families, in the order of probabilities and distances.
    pub families: Vec<usize>,
    /// Those with target values, in the order of their names.
    pub clients: Vec<Assigned>,
    /// New clients without.
    pub without_target: Vec<String>,
}

impl Assignments {
    /// With what is said of every client, and who of them fits none.
    pub(super) fn new(families: Vec<usize>, mut clients: Vec<Assigned>, without_target: Vec<String>) -> Self {
        let cut = largest_discovery(clients.iter().map(|assigned| assigned.p).collect());
        clients.iter_mut().for_each(|assigned| assigned.fits_none = assigned.p <= cut);
        Self { families, clients, without_target }
    }

    /// That none of these clients is new.
    pub(super) fn nothing_to_add(&self, table: Input, target: &str) -> Error {
        let known = counted(self.clients.len(), "client");
        let path = table.path().display();
        Error::data(format!("{path}: nothing to add, no new client has a value in column `{target}`"))
            .hint(format!("{known} with values are in the model already"))
    }
}

/// The clients of a table in the order of their names, and whether they have a target, which some must.
pub(super) fn with_targets(table: Input, columns: KnownColumns, target: &str) -> Result<BTreeMap<String, bool>> {
    let mut names: BTreeMap<String, bool> = BTreeMap::new();
    known::scan_targets(table, columns, |client, has_target| {
        match names.get_mut(client) {
            Some(known) => *known |= has_target,
            None => drop(names.insert(client.to_string(), has_target)),
        }
        ControlFlow::Continue(())
    })?;
    if !names.values().any(|has_target| *has_target) {
        let message = format!("{}: no client has a value in column `{target}`", table.path().display());
        return Err(Error::data(message).hint("families are told by it: give rows for which it is known"));
    }
    Ok(names)
}

/// Assigns the clients of a table to the families.
pub fn assign<'a>(saved: &'a Saved, table: impl Into<Input<'a>>) -> Result<Assignments> {
    gathered(saved, table.into()).map(|(assignments, _)| assignments)
}

/// Assigns the clients of a table, and adds those that the model does not know: a model that serves them as `predict` does where it sees
/// their target values.
pub fn add<'a>(saved: &'a Saved, table: impl Into<Input<'a>>) -> Result<(Saved, Assignments)> {
    let table = table.into();
    let (assignments, clients) = gathered(saved, table)?;
    let named = assignments.clients.iter().map(|assigned| assigned.client.clone()).zip(clients);
    let new: Vec<(String, LearnedClient)> = named.filter(|(name, _)| saved.place(name).is_none()).collect();
    if new.is_empty() {
        return Err(assignments.nothing_to_add(table, &saved.target));
    }
    Ok((saved.with(new), assignments))
}

/// What is said of the clients of a table with target values, and what is learned of each.
fn gathered(saved: &Saved, table: Input) -> Result<(Assignments, Vec<LearnedClient>)> {
    let names = with_targets(table, saved.known_columns(), &saved.target)?;
    let families = &saved.model.learned.families;
    let mut found = by_their_rows(saved, table, |_| true)?;
    let (mut assigned, mut clients, mut without_target) = (Vec::new(), Vec::new(), Vec::new());
    for name in names.into_keys() {
        let own = saved.place(&name).map(|place| saved.model.learned.clients[place].family);
        let Some(Newcomer { client, distances, p_values }) = found.remove(&name) else {
            without_target.extend(own.is_none().then_some(name));
            continue;
        };
        assigned.push(Assigned {
            client: name,
            known: own.is_some(),
            rows: client.rows,
            family: families[own.unwrap_or(client.family)].number,
            probabilities: client.responsibilities.clone(),
            distances,
            p: own.map_or_else(|| p_values.iter().copied().fold(0.0, f64::max), |own| p_values[own]),
            fits_none: false,
        });
        clients.push(client);
    }
    let families = families.iter().map(|family| family.number).collect();
    Ok((Assignments::new(families, assigned, without_target), clients))
}
