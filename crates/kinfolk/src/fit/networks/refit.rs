//! Clients that are fitted again: families keep their numbers, and what moved is said.

use super::SavedNetworks;
use crate::fit::show::listed;
use crate::text::counted;
use std::collections::BTreeMap;

impl SavedNetworks {
    /// This model as one that goes on with an earlier one of the same clients: a family has the number of the one with which it has most
    /// clients in common, others have new numbers, and `changes` says what moved.
    pub fn following(mut self, old: &Self) -> Self {
        let continued = continued(old, &self);
        let mut latest = old.latest_family;
        for (family, before) in self.model.families.iter_mut().zip(continued) {
            family.number = before.map_or_else(
                || {
                    latest = latest.saturating_add(1);
                    latest
                },
                |before| old.model.families[before].number,
            );
        }
        self.latest_family = latest;
        self.changes = changes(old, &self);
        self
    }
}

/// Of every new family, the old one that it continues. One family alone continues one family alone.
fn continued(old: &SavedNetworks, new: &SavedNetworks) -> Vec<Option<usize>> {
    let (before, after) = (old.model.families.len(), new.model.families.len());
    let mut overlap = vec![vec![0usize; after]; before];
    for (name, client) in new.names.iter().zip(&new.model.clients) {
        if let Some(place) = old.place(name) {
            overlap[old.model.clients[place].family][client.family] += 1;
        }
    }
    let mut pairs: Vec<(usize, usize)> =
        (0..before).flat_map(|one| (0..after).map(move |other| (one, other))).collect();
    pairs.sort_by_key(|&(one, other)| std::cmp::Reverse(overlap[one][other]));
    let (mut taken, mut continued) = (vec![false; before], vec![None; after]);
    for (one, other) in pairs {
        let alike = overlap[one][other] > 0 || before == 1 && after == 1;
        if !taken[one] && continued[other].is_none() && alike {
            taken[one] = true;
            continued[other] = Some(one);
        }
    }
    continued
}

/// What moved, in sentences.
fn changes(old: &SavedNetworks, new: &SavedNetworks) -> Vec<String> {
    let mut said = Vec::new();
    let number = |saved: &SavedNetworks, place: usize| saved.model.families[saved.model.clients[place].family].number;
    let has = |saved: &SavedNetworks, number: usize| saved.model.families.iter().any(|family| family.number == number);
    for family in old.model.families.iter().filter(|family| !has(new, family.number)) {
        said.push(format!("family {} is there no longer", family.number));
    }
    for family in new.model.families.iter().filter(|family| !has(old, family.number)) {
        said.push(format!("family {} is new, with {}", family.number, counted(family.clients, "client")));
    }
    let mut moved: BTreeMap<(usize, usize), Vec<&str>> = BTreeMap::new();
    let mut came: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (place, name) in new.names.iter().enumerate() {
        let is = number(new, place);
        match old.place(name).map(|place| number(old, place)) {
            Some(was) if was != is => moved.entry((was, is)).or_default().push(name),
            Some(_) => {}
            None => came.entry(is).or_default().push(name),
        }
    }
    for ((from, to), names) in moved {
        let clients = counted(names.len(), "client");
        said.push(format!("{clients} moved from family {from} to family {to}: {}", listed(&names)));
    }
    for (family, names) in came {
        said.push(format!("{} came to family {family}: {}", counted(names.len(), "client"), listed(&names)));
    }
    let left: Vec<&str> = old.names.iter().filter(|name| new.place(name).is_none()).map(String::as_str).collect();
    if !left.is_empty() {
        said.push(format!("{} left: {}", counted(left.len(), "client"), listed(&left)));
    }
    if said.is_empty() {
        said.push("all clients are in the families they were in".into());
    }
    said
}
