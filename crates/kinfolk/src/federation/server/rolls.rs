//! Which of the clients that machines claim to have may take part: no claim may trip the server up.

use super::ledger::few_of;
use crate::data::DataShape;
use crate::data::schema::{FeaturesDescription, TargetDescription};
use crate::error::{Error, Result};
use crate::federation::wire::{Member, Roll};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Most clients of somebody else's machine.
pub const MOST_MEMBERS: usize = 100_000;
/// Most bytes in a client's name.
const LONGEST_NAME: usize = 256;
/// How many times the rows of all others together a client may have.
const MOST_OF_OTHERS: usize = 100;

pub type Rolls = BTreeMap<u64, Roll>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Admitted {
    /// The shape of the rows of most machines.
    pub shape: DataShape,
    /// Whether each client in a machine's roll was left out.
    left_out: BTreeMap<u64, Vec<bool>>,
    /// Who was left out and why, and who has most of the rows.
    pub notes: Vec<String>,
}

impl Admitted {
    /// Everybody who may take part, with the machine and the place in its roll.
    pub fn members<'a>(&'a self, rolls: &'a Rolls) -> impl Iterator<Item = (u64, usize, &'a Member)> {
        rolls.iter().flat_map(|(&number, roll)| {
            let left_out = self.left_out.get(&number);
            let is_in = move |place: &usize| !left_out.is_some_and(|left_out| left_out[*place]);
            roll.members.iter().enumerate().filter(move |(place, _)| is_in(place)).map(move |(p, m)| (number, p, m))
        })
    }
}

/// Moves implausible machines, and those with more clients than `most`, from the rolls to the faults, and finds implausible
/// clients.
pub fn admit(
    rolls: &mut Rolls,
    called: &BTreeMap<u64, String>,
    most: usize,
    faults: &mut BTreeMap<u64, Error>,
) -> Admitted {
    let alike = |one: &DataShape, other: &DataShape| (one.form, one.columns) == (other.form, other.columns);
    let shape = most_common(rolls.values().map(|roll| roll.shape), alike).unwrap_or_default();
    let headers = rolls.values().filter_map(|roll| roll.members.first()).map(columns_of);
    let names = most_common(headers, |one, other| one == other).unwrap_or_default();
    let names: Vec<String> = names.into_iter().map(String::from).collect();
    rolls.retain(|&number, roll| check_roll(roll, shape, most).map_err(|error| faults.insert(number, error)).is_ok());
    let mut admitted = Admitted { shape, left_out: BTreeMap::new(), notes: Vec::new() };
    let mut homes: HashMap<&str, u64> = HashMap::new();
    for (&number, roll) in rolls.iter() {
        let mut odd: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let mut left_out = vec![false; roll.members.len()];
        for (left_out, member) in left_out.iter_mut().zip(&roll.members) {
            let fault = check_member(member, roll, &names).or_else(|| match homes.get(member.id.as_str()) {
                Some(other) => Some(format!("{} has a client of that name", called[other])),
                None => homes.insert(&member.id, number).and(None),
            });
            if let Some(fault) = fault {
                *left_out = true;
                odd.entry(fault).or_default().push(if is_printable(&member.id) {
                    &member.id
                } else {
                    "without a name"
                });
            }
        }
        for (fault, names) in odd {
            let who = if names.len() == 1 { "client" } else { "clients" };
            admitted.notes.push(format!("left out: {who} {} of {}: {fault}", few_of(&names), called[&number]));
        }
        admitted.left_out.insert(number, left_out);
    }
    leave_out_giants(rolls, called, &mut admitted);
    let nobody = |number: &u64| admitted.left_out[number].iter().all(|left_out| *left_out);
    for number in rolls.keys().copied().filter(nobody).collect::<Vec<u64>>() {
        rolls.remove(&number);
        faults.insert(number, Error::data("none of its clients can take part"));
    }
    admitted
}

fn columns_of(member: &Member) -> Vec<&str> {
    match &member.description.features {
        FeaturesDescription::Matrix { .. } => Vec::new(),
        FeaturesDescription::Named(columns) => columns.iter().map(|column| column.name.as_str()).collect(),
    }
}

/// The most common of these; ties go to the first.
fn most_common<T>(all: impl Iterator<Item = T>, alike: impl Fn(&T, &T) -> bool) -> Option<T> {
    let mut votes: Vec<(T, usize)> = Vec::new();
    for one in all {
        match votes.iter_mut().find(|(other, _)| alike(other, &one)) {
            Some((_, count)) => *count += 1,
            None => votes.push((one, 1)),
        }
    }
    let most = votes.iter().map(|(_, count)| *count).max()?;
    votes.into_iter().find(|(_, count)| *count == most).map(|(one, _)| one)
}

fn check_roll(roll: &Roll, shape: DataShape, most: usize) -> Result<()> {
    let (members, clusters) = (roll.members.len(), roll.true_clusters.unwrap_or(0));
    if members > most {
        return Err(Error::data(format!("{members} clients, want at most {most}"))
            .hint("let several machines share them, or leave out those with few rows (data.min_rows)"));
    }
    if (roll.shape.form, roll.shape.columns) != (shape.form, shape.columns) {
        return Err(Error::data(format!(
            "its rows have {} columns and are not like those of most machines, with {}",
            roll.shape.columns, shape.columns
        )));
    }
    let rows = roll.members.iter().map(|member| member.description.rows).fold(0, usize::saturating_add);
    if roll.shape.classes > rows.max(MOST_CLASSES) || clusters > members.saturating_mul(64).max(MOST_CLASSES) {
        return Err(Error::data(format!("{} classes and {clusters} true clusters", roll.shape.classes)));
    }
    Ok(())
}

/// Classes and true clusters that are accepted however few rows a machine has.
const MOST_CLASSES: usize = 4096;

fn is_printable(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST_NAME && !name.chars().any(char::is_control)
}

fn check_member(member: &Member, roll: &Roll, names: &[String]) -> Option<String> {
    let description = &member.description;
    if !is_printable(&member.id) {
        return Some(format!("a name of {} bytes, want printable text of at most {LONGEST_NAME}", member.id.len()));
    }
    let columns = match &description.features {
        FeaturesDescription::Matrix { columns, .. } => *columns,
        FeaturesDescription::Named(columns) => columns.len(),
    };
    if columns != roll.shape.columns {
        return Some(format!("rows of {columns} columns, want {}", roll.shape.columns));
    }
    if let Some(other) = columns_of(member).into_iter().zip(names).find(|(found, wanted)| found != wanted) {
        return Some(format!("a column {:?}, want {:?} as most have", other.0, other.1));
    }
    if !(1..=u32::MAX as usize).contains(&description.rows) {
        return Some(format!("{} rows, want at least 1 and at most {}", description.rows, u32::MAX));
    }
    if let Some(truth) = member.truth.filter(|truth| *truth >= roll.true_clusters.unwrap_or(0)) {
        return Some(format!("true cluster {truth} of {}", roll.true_clusters.unwrap_or(0)));
    }
    match description.target {
        TargetDescription::Classes(found) if found > roll.shape.classes => {
            Some(format!("{found} classes, want at most {}", roll.shape.classes))
        }
        _ => description.fault(),
    }
}

/// Leaves out clients that claim so many rows that nobody else would count, and notes who has most of them.
fn leave_out_giants(rolls: &Rolls, called: &BTreeMap<u64, String>, admitted: &mut Admitted) {
    let mut sizes: Vec<(usize, u64, usize, String)> = (admitted.members(rolls))
        .map(|(number, place, member)| (member.description.rows, number, place, member.id.clone()))
        .collect();
    sizes.sort_by_key(|(rows, ..)| std::cmp::Reverse(*rows));
    let mut others = sizes.iter().map(|(rows, ..)| rows).sum::<usize>();
    // With two clients nobody can say which of them is odd.
    for (rows, number, place, id) in sizes.into_iter().rev().skip(2).rev() {
        others -= rows;
        if rows > MOST_OF_OTHERS.saturating_mul(others) {
            if let Some(left_out) = admitted.left_out.get_mut(&number) {
                left_out[place] = true;
            }
            admitted.notes.push(format!(
                "left out: client {id} of {}: {rows} rows, while all others have {others} together",
                called[&number]
            ));
        } else {
            if rows > others {
                let share = 100.0 * rows as f64 / (rows + others) as f64;
                admitted.notes.push(format!("client {id} of {} says it has {share:.0} % of all rows", called[&number]));
            }
            return;
        }
    }
}
