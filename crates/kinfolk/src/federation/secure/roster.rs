//! Who takes part in secure sums, as all machines see it.

use super::keys::Card;
use super::{Digest, MOST_MACHINES, Minimum, Seed, Turn, digest_of};
use crate::error::{Error, Result};
use crate::text::counted;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;

/// The machines that may take part in sums, and how few may be in one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// How few may be in a sum.
    pub(crate) minimum: Minimum,
    /// The machines.
    pub(crate) cards: Vec<Card>,
}

/// What a machine wants of a roster.
pub(crate) struct Wanted<'a> {
    /// The fewest of a sum.
    pub(crate) minimum: Minimum,
    /// The identities that it knows; without a list, any.
    pub(crate) known: Option<&'a BTreeSet<Seed>>,
}

impl Roster {
    pub(crate) fn digest(&self) -> Result<Digest> {
        digest_of(self)
    }

    /// Refuses a roster for this run that this machine must not take part in.
    pub(crate) fn check(&self, run: &Digest, own: &Seed, wanted: &Wanted) -> Result<()> {
        let refused = |what: String| Err(Error::federation(format!("secure sums: {what}")));
        let Minimum { clients, machines } = self.minimum;
        let all = self.cards.len();
        if all > MOST_MACHINES {
            return refused(format!("{all} machines, want at most {MOST_MACHINES}: each has a mask with every other"));
        }
        if clients < wanted.minimum.clients || machines < wanted.minimum.machines {
            let what = format!(
                "sums over at least {} on {}, this machine wants at least {} on {}",
                counted(clients, "client"),
                counted(machines, "machine"),
                counted(wanted.minimum.clients, "client"),
                counted(wanted.minimum.machines, "machine"),
            );
            return refused(
                what + " (node.policy.minimum_clients, minimum_machines; privacy.minimum_clients, minimum_machines of the experiment)",
            );
        }
        let identities: BTreeSet<&Seed> = self.cards.iter().map(|card| &card.identity).collect();
        let keys: BTreeSet<&Seed> = self.cards.iter().flat_map(|card| [&card.sealing, &card.masking]).collect();
        if identities.len() < all || keys.len() < 2 * all {
            return refused("a machine is on the roster twice".into());
        }
        if let Some(place) = self.cards.iter().position(|card| !card.is_signed(run)) {
            return refused(format!("machine {place} of the roster did not sign its keys for this run"));
        }
        if let Some(known) = wanted.known {
            let stranger = self.cards.iter().find(|card| card.identity != *own && !known.contains(&card.identity));
            if let Some(card) = stranger {
                let identity = in_hex(&card.identity);
                return refused(format!("this machine does not know the identity {identity} (node.policy.peers)"));
            }
        }
        self.check_enough(0..all)
    }

    /// Refuses a turn among too few.
    pub(crate) fn check_enough(&self, among: impl Iterator<Item = usize>) -> Result<()> {
        let Minimum { clients, machines } = self.minimum;
        let of: Vec<u64> = among.map(|place| self.cards.get(place).map_or(0, |card| card.clients)).collect();
        let all = of.iter().fold(0u64, |sum, clients| sum.saturating_add(*clients));
        if of.len() < machines || all < clients as u64 {
            let found = format!("{} with {}", counted(of.len(), "machine"), counted(all as usize, "client"));
            let wanted = format!("{} with {}", counted(machines, "machine"), counted(clients, "client"));
            return Err(Error::federation(format!("secure sums: {found} take part, want at least {wanted}")));
        }
        Ok(())
    }

    /// Identifies the machines of a turn, over all runs.
    pub(crate) fn identities(&self, turn: &Turn) -> Digest {
        let mut identities: Vec<Seed> =
            turn.among.iter().filter_map(|&place| Some(self.cards.get(place as usize)?.identity)).collect();
        identities.sort_unstable();
        Sha256::digest(identities.concat()).into()
    }
}

impl<'a> Wanted<'a> {
    /// Any machines, as many as a roster says.
    #[cfg(test)]
    pub(crate) const ANY: Wanted<'static> = Wanted { minimum: Minimum { clients: 1, machines: 1 }, known: None };
}

/// As people write a public key.
pub(crate) fn in_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads it.
pub(crate) fn of_hex(text: &str) -> Option<Seed> {
    let digits = text.trim().as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Vec<u8> = pairs.iter().map(byte).collect::<Option<_>>()?;
    if rest.is_empty() { bytes.try_into().ok() } else { None }
}
