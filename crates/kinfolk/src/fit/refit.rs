//! Clients that are fitted again: families keep their numbers, and what moved is said.

use super::Saved;
use super::coefficients::{Coefficients, Term};
use super::show::{listed, short};
use crate::families::Family;
use crate::text::counted;
use std::collections::BTreeMap;

/// Standard errors by which a coefficient must have moved to be said.
const MOVED: f64 = 2.0;
/// Coefficients of a family that are said at most.
const TERMS: usize = 3;

/// A model that goes on with an earlier one of the same clients: families have the numbers of those they continue, and `changes` says
/// what moved. A family continues the one with which it has most clients in common; where neither has a client in common with any, the
/// nearest. Others have new numbers.
pub fn follow(old: &Saved, mut saved: Saved) -> Saved {
    let continued = continued(old, &saved);
    let mut latest = old.latest_family;
    let number = |before: &Option<usize>| match before {
        Some(before) => old.model.learned.families[*before].number,
        None => {
            latest += 1;
            latest
        }
    };
    let numbers: Vec<usize> = continued.iter().map(number).collect();
    saved.latest_family = latest;
    saved.model.learned = saved.model.learned.renumbered(&numbers);
    saved.changes = changes(old, &saved);
    saved
}

/// Of every new family, the old one that it continues.
fn continued(old: &Saved, new: &Saved) -> Vec<Option<usize>> {
    let [before, after] = [old, new].map(|saved| &saved.model.learned);
    let (mut overlap, rows) = (vec![0usize; before.families.len() * after.families.len()], after.families.len());
    for (name, client) in new.names.iter().zip(&after.clients) {
        if let Some(place) = old.place(name) {
            overlap[before.clients[place].family * rows + client.family] += 1;
        }
    }
    let mut pairs: Vec<(usize, usize)> =
        (0..before.families.len()).flat_map(|one| (0..rows).map(move |other| (one, other))).collect();
    let common = |(one, other): (usize, usize)| overlap[one * rows + other];
    let apart = |(one, other): (usize, usize)| distance(old, &before.families[one], new, &after.families[other]);
    pairs.sort_by(|&a, &b| common(b).cmp(&common(a)).then_with(|| apart(a).total_cmp(&apart(b))));
    let is_strange = |(one, other): (usize, usize)| {
        (0..rows).all(|other| common((one, other)) == 0)
            && (0..before.families.len()).all(|one| common((one, other)) == 0)
    };
    let (mut taken, mut continued) = (vec![false; before.families.len()], vec![None; rows]);
    for (one, other) in pairs {
        if !taken[one] && continued[other].is_none() && (common((one, other)) > 0 || is_strange((one, other))) {
            taken[one] = true;
            continued[other] = Some(one);
        }
    }
    continued
}

/// A family's coefficients by their names.
fn terms(saved: &Saved, family: &Family) -> BTreeMap<String, Term> {
    let terms = Coefficients::new(saved).terms(&family.centre, Some(&family.covariance));
    terms.into_iter().map(|term| (term.name.clone(), term)).collect()
}

/// By how many standard errors two coefficients differ.
fn errors_between(one: &Term, other: &Term) -> f64 {
    let error = one.error.unwrap_or(0.0).hypot(other.error.unwrap_or(0.0));
    if error > 0.0 { (one.value - other.value).abs() / error } else { 0.0 }
}

/// The squared distance of two centres, in the coefficients that both have.
fn distance(old: &Saved, one: &Family, new: &Saved, other: &Family) -> f64 {
    let before = terms(old, one);
    let after = terms(new, other);
    let common = after.iter().filter_map(|(name, term)| Some(errors_between(before.get(name)?, term)));
    common.map(|errors| errors.powi(2)).sum()
}

/// What moved, in sentences.
fn changes(old: &Saved, new: &Saved) -> Vec<String> {
    let [before, after] = [old, new].map(|saved| &saved.model.learned);
    let find = |number: usize, families: &[Family]| families.iter().any(|family| family.number == number);
    let mut said = Vec::new();
    for family in before.families.iter().filter(|family| !find(family.number, &after.families)) {
        said.push(format!("family {} is there no longer", family.number));
    }
    for family in after.families.iter().filter(|family| !find(family.number, &before.families)) {
        said.push(format!("family {} is new, with {}", family.number, counted(family.clients, "client")));
    }
    let mut moved: BTreeMap<(usize, usize), Vec<&str>> = BTreeMap::new();
    let mut came: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (name, client) in new.names.iter().zip(&after.clients) {
        let number = after.number_of(client);
        match old.place(name).map(|place| before.number_of(&before.clients[place])) {
            Some(was) if was != number => moved.entry((was, number)).or_default().push(name),
            Some(_) => {}
            None => came.entry(number).or_default().push(name),
        }
    }
    for ((from, to), names) in moved {
        said.push(format!(
            "{} moved from family {from} to family {to}: {}",
            counted(names.len(), "client"),
            listed(&names)
        ));
    }
    for (family, names) in came {
        said.push(format!("{} came to family {family}: {}", counted(names.len(), "client"), listed(&names)));
    }
    let left: Vec<&str> = old.names.iter().filter(|name| new.place(name).is_none()).map(String::as_str).collect();
    if !left.is_empty() {
        said.push(format!("{} left: {}", counted(left.len(), "client"), listed(&left)));
    }
    for family in &after.families {
        let Some(was) = before.families.iter().find(|was| was.number == family.number) else { continue };
        let was = terms(old, was);
        let mut apart: Vec<(f64, String)> = terms(new, family)
            .into_iter()
            .filter_map(|(name, term)| {
                let was = was.get(&name)?;
                let [now, error, before] = [term.value, term.error.unwrap_or(0.0), was.value].map(short);
                Some((errors_between(was, &term), format!("{name} {now} ± {error} (was {before})")))
            })
            .filter(|(errors, _)| *errors > MOVED)
            .collect();
        apart.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        if !apart.is_empty() {
            let words: Vec<String> = apart.into_iter().take(TERMS).map(|(_, words)| words).collect();
            said.push(format!("family {} has other coefficients: {}", family.number, words.join("; ")));
        }
    }
    if said.is_empty() {
        said.push("all clients are in the families they were in".into());
    }
    said
}
