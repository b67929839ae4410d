//! Over all asks of a method: how many answers were usable, who sent garbage, and how large an answer usually is.

use crate::federation::ClientInfo;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const NAMED: usize = 5;

/// A list of names, cut off after the first few.
pub(crate) fn few_of(names: &[&str]) -> String {
    let list = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}

/// Statistics of the answers of a method's clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Usable answers, not counting evaluation.
    pub(crate) useful: u64,
    pub(in crate::federation) offences: BTreeMap<u32, Offence>,
    /// The median size of answers, by the kind of work.
    pub(in crate::federation) usual: BTreeMap<String, Size>,
    pub(in crate::federation) opposed: Opposed,
    pub(in crate::federation) copies: Copies,
    pub(in crate::federation) long: Long,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::federation) struct Offence {
    count: usize,
    /// What was wrong the first time.
    first: String,
}

/// Clients whose updates opposed those of the others in the first round. Later rounds tell nothing: near a minimum, the
/// updates of honest clients oppose each other too, until they cancel out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::federation) struct Opposed {
    pub clients: BTreeSet<u32>,
    /// Number of clients compared; 0 before the first round.
    pub among: usize,
    /// Whether a round's updates were looked at.
    pub looked: bool,
}

impl Opposed {
    /// Smallest share of the clients that is reported.
    const SHARE: f64 = 0.1;

    /// Whether there are enough of them to be said.
    fn stand_out(&self) -> bool {
        self.clients.len() >= 2 && self.clients.len() as f64 >= Self::SHARE * self.among as f64
    }

    fn note(&self, name: impl Fn(u32) -> String) -> Option<String> {
        if !self.stand_out() {
            return None;
        }
        let (count, among) = (self.clients.len(), self.among);
        let names: Vec<String> = self.clients.iter().map(|&client| name(client)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Some(format!(
            "the updates of {count} of {among} clients ({}) point away from those of the others in the first round: they \
             are hostile, or nothing like the others",
            few_of(&names)
        ))
    }
}

/// Clients whose updates were, number by number, those of others to the same order: conspirators that send what they have agreed
/// on, or clients with the same rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::federation) struct Copies {
    /// How often each was.
    pub clients: BTreeMap<u32, usize>,
    /// The most that sent one and the same at once.
    pub most: usize,
}

impl Copies {
    fn note(&self, name: impl Fn(u32) -> String) -> Option<String> {
        let names: Vec<String> = self.clients.keys().map(|&client| name(client)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        (!names.is_empty()).then(|| {
            format!(
                "{} clients ({}) sent the same update as another, up to {} of them at once: they conspire, or have the same rows",
                names.len(),
                few_of(&names),
                self.most
            )
        })
    }
}

/// Clients whose updates are again and again several times as long as is usual among those that began from the same model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::federation) struct Long {
    /// How often each was.
    pub clients: BTreeMap<u32, usize>,
    /// How often lengths were looked at.
    pub asks: usize,
}

impl Long {
    /// How many times longer than the median one.
    pub const TIMES: f64 = 4.0;
    /// Fewest asks, and smallest share of them, in which a client must stand out to be named.
    const OFTEN: (usize, f64) = (3, 0.5);

    fn stand_out(&self) -> impl Iterator<Item = u32> {
        let often = |times: usize| times >= Self::OFTEN.0 && times as f64 >= Self::OFTEN.1 * self.asks as f64;
        self.clients.iter().filter(move |(_, times)| often(**times)).map(|(client, _)| *client)
    }

    fn note(&self, name: impl Fn(u32) -> String) -> Option<String> {
        let names: Vec<String> = self.stand_out().map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        (!names.is_empty()).then(|| {
            format!(
                "the updates of {} clients ({}) are more than {} times as long as is usual, in most rounds: they are hostile, say that they \
                 belong where they do not, or train much more than others",
                names.len(),
                few_of(&names),
                Self::TIMES
            )
        })
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::federation) struct Size {
    /// The length of its vector.
    pub length: Option<f64>,
    /// Its loss, or what stands for it.
    pub loss: Option<f64>,
}

impl Ledger {
    pub(in crate::federation) fn blame(&mut self, client: u32, what: String) {
        let offence = self.offences.entry(client).or_default();
        if offence.count == 0 {
            offence.first = what;
        }
        offence.count += 1;
    }

    /// The clients that notes speak of.
    pub(crate) fn suspects(&self) -> BTreeSet<u32> {
        let opposed = self.opposed.clients.iter().filter(|_| self.opposed.stand_out());
        let named = opposed.chain(self.offences.keys()).chain(self.copies.clients.keys()).copied();
        named.chain(self.long.stand_out()).collect()
    }

    /// Who sent garbage, for the summary; one by one while they are few.
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
        notes.extend(self.copies.note(|client| name(client).to_string()));
        notes.extend(self.long.note(|client| name(client).to_string()));
        notes
    }
}
