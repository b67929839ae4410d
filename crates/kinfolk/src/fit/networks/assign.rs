//! Clients by their new rows: their family, and whether they fit any. New ones may be added to the model.

use super::SavedNetworks;
use super::newcomers::{Newcomer, by_their_rows};
use crate::error::Result;
use crate::fit::assign::with_targets;
use crate::fit::{Assigned, Assignments, Input};
use crate::num::tails::normal_tail;
use std::collections::BTreeMap;

impl SavedNetworks {
    /// Assigns the clients of a table to the families, by the losses of the families' networks.
    pub fn assign<'a>(&'a self, table: impl Into<Input<'a>>) -> Result<Assignments> {
        gathered(self, table.into()).map(|(assignments, _)| assignments)
    }

    /// Assigns the clients of a table, and adds those that the model does not know: a model that serves them as `predict` does where it sees
    /// their target values.
    pub fn add<'a>(&'a self, table: impl Into<Input<'a>>) -> Result<(Self, Assignments)> {
        let table = table.into();
        let (assignments, newcomers) = gathered(self, table)?;
        let new = newcomers.into_iter().filter(|(name, _)| self.place(name).is_none());
        let new: Vec<_> = new.map(|(name, newcomer)| (name, newcomer.client(), newcomer.own)).collect();
        if new.is_empty() {
            return Err(assignments.nothing_to_add(table, &self.target));
        }
        Ok((self.with(new), assignments))
    }
}

fn gathered(saved: &SavedNetworks, table: Input) -> Result<(Assignments, BTreeMap<String, Newcomer>)> {
    let names = with_targets(table, saved.known_columns(), &saved.target)?;
    let found = by_their_rows(saved, table, |_| true)?;
    let families = &saved.model.families;
    let (mut clients, mut without_target) = (Vec::new(), Vec::new());
    for name in names.into_keys() {
        let own = saved.place(&name).map(|place| saved.model.clients[place].family);
        let Some(newcomer) = found.get(&name) else {
            without_target.extend(own.is_none().then_some(name));
            continue;
        };
        let rows = newcomer.rows as f64;
        let distance = |(family, loss): (&super::saved::NetworkFamily, &f64)| family.fit.distance(*loss, rows);
        let distances: Vec<f64> = families.iter().zip(&newcomer.losses).map(distance).collect();
        let p = |distance: &f64| normal_tail(*distance);
        clients.push(Assigned {
            client: name,
            known: own.is_some(),
            rows: newcomer.rows,
            family: families[own.unwrap_or(newcomer.family)].number,
            probabilities: newcomer.probabilities.clone(),
            p: own.map_or_else(|| distances.iter().map(p).fold(0.0, f64::max), |own| p(&distances[own])),
            distances,
            fits_none: false,
        });
    }
    let families = families.iter().map(|family| family.number).collect();
    Ok((Assignments::new(families, clients, without_target), found))
}
