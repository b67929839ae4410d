//! What a federation remembers of its clients' answers over all asks of a method: how many were of use, who sent what
//! cannot be, and how large an answer usually is.

use crate::federation::ClientInfo;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// So many clients are named one by one.
const NAMED: usize = 5;

/// Names in a sentence, the first few of them.
pub(crate) fn few_of(names: &[&str]) -> String {
    let list = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}

/// The answers of a method's clients, in short.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Answers of use, evaluation left out.
    pub(in crate::federation) useful: u64,
    /// Who sent garbage.
    pub(in crate::federation) offences: BTreeMap<u32, Offence>,
    /// The median size of answers, by the kind of work.
    pub(in crate::federation) usual: BTreeMap<String, Size>,
    /// Whose updates point away from those of the others.
    pub(in crate::federation) opposed: Opposed,
}

/// What one client sent that cannot be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::federation) struct Offence {
    /// How often.
    count: usize,
    /// What it was first.
    first: String,
}

/// Clients whose updates pointed away from those of the others in the first round. Later ones tell nothing: the closer
/// training comes to its end, the more the updates of honest clients oppose each other, until they add up to nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::federation) struct Opposed {
    clients: BTreeSet<u32>,
    /// How many there were to compare with; 0 before the first round.
    among: usize,
}

impl Opposed {
    /// Of fewer clients than this share nothing is said.
    const SHARE: f64 = 0.1;

    /// Whether nothing was looked at yet.
    pub(in crate::federation) fn is_open(&self) -> bool {
        self.among == 0
    }

    /// Who of so many clients pointed away from the others.
    pub(in crate::federation) fn found(among: usize, clients: BTreeSet<u32>) -> Self {
        Self { clients, among }
    }

    fn note(&self, name: impl Fn(u32) -> String) -> Option<String> {
        let (count, among) = (self.clients.len(), self.among);
        if count < 2 || (count as f64) < Self::SHARE * among as f64 {
            return None;
        }
        let names: Vec<String> = self.clients.iter().map(|&client| name(client)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Some(format!(
            "the updates of {count} of {among} clients ({}) point away from those of the others in the first round: they \
             are hostile, or nothing like the others",
            few_of(&names)
        ))
    }
}

/// How large an answer is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::federation) struct Size {
    /// The length of its vector.
    pub length: Option<f64>,
    /// Its loss, or what stands for it.
    pub loss: Option<f64>,
}

impl Ledger {
    /// How many answers were of use, evaluation left out.
    pub fn useful_answers(&self) -> u64 {
        self.useful
    }

    /// Books an answer that cannot be.
    pub(in crate::federation) fn blame(&mut self, client: u32, what: String) {
        let offence = self.offences.entry(client).or_default();
        if offence.count == 0 {
            offence.first = what;
        }
        offence.count += 1;
    }

    /// Who sent what, for the summary: one by one while they are few.
    pub(in crate::federation) fn notes(&self, infos: &[ClientInfo]) -> Vec<String> {
        let name = |client: u32| infos.get(client as usize).map_or("?", |info| info.id.as_str());
        let note = |(&client, offence): (&u32, &Offence)| {
            let answers = match offence.count {
                1 => "this answer was".to_string(),
                count => format!("this and {} more of its answers were", count - 1),
            };
            format!("client {} sent {}: {answers} left out", name(client), offence.first)
        };
        let mut notes: Vec<String> = self.offences.iter().take(NAMED).map(note).collect();
        let others: Vec<&str> = self.offences.keys().skip(NAMED).map(|&client| name(client)).collect();
        if !others.is_empty() {
            notes.push(format!("unusable answers also came from clients {}", few_of(&others)));
        }
        notes.extend(self.opposed.note(|client| name(client).to_string()));
        notes
    }
}
