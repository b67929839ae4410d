//! Sums over machines of which the server learns the total alone: double masking (Bonawitz et al. 2017), as functions without transport.
//!
//! A machine adds to its whole numbers a mask for every other machine, which that one takes off, and one of its own. Masks between
//! machines vanish in the total; the seeds of machines' own masks are in shares at all of them, of which more than two thirds open a sum.
//!
//! 1. Once: every machine makes keys and signs them by its identity ([`Card`]).
//! 2. Once: the [`Roster`] of cards goes round. Machines check signatures, whom they know, and that they are enough.
//! 3. A turn ([`Turn`], [`Masked`]): each of the machines that take part sends its masked numbers, and for each of them a sealed parcel with
//!    shares of its seeds, and the number of its clients in each slot, which is masked too.
//! 4. The parcels go round ([`Unmasking`]). Only machines can read them: each adds up the clients in every slot, and returns its
//!    shares ([`Shares`]) for those slots that have enough, and no others.
//!
//! Differences from the paper. Shares travel with what they open, so that there is nothing to be lost between turns. A machine that is missing in
//! a turn is never unmasked by the keys it has with others: nothing has been opened then, and those who are there begin another turn
//! without it. So no key that two machines share ever leaves them, and there is no choice between two sets of machines by which a server could get
//! at both masks. A machine that is missing after that is not needed while enough others are there, and its numbers are in the sum.
//!
//! | file | what it is |
//! |---|---|
//! | `keys.rs` | identities, a run's keys, and what two machines derive of them |
//! | `roster.rs` | who takes part, as all machines see it |
//! | `shares.rs` | a secret in shares |
//! | `masks.rs` | streams of numbers that hide others |
//! | `machine.rs` | a machine's side: what it keeps, answers and refuses |
//! | `opening.rs` | the server's side: masked numbers and shares into sums |

pub(crate) mod keys;
pub(crate) mod machine;
pub(crate) mod masks;
pub(crate) mod opening;
pub(crate) mod roster;
pub(crate) mod shares;

#[cfg(test)]
mod tests;

use super::fixed::{read_integers, write_integers};
use crate::error::{Error, Result};
pub use keys::Card;
pub use roster::Roster;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// 32 bytes: a secret, or a public key.
pub(crate) type Seed = [u8; 32];

/// A SHA-256.
pub(crate) type Digest = [u8; 32];

/// Each machine has a mask with every other: beyond this, a sparser graph would be wanted.
pub(crate) const MOST_MACHINES: usize = 64;

/// How few may be in a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minimum {
    /// Clients in a slot that is opened.
    pub clients: usize,
    /// Machines that take part.
    pub machines: usize,
}

/// One sum, among some machines of a roster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The digest of the roster.
    pub(crate) roster: Digest,
    /// Grows from turn to turn.
    pub(crate) number: u64,
    /// The places of those who take part, ascending.
    pub(crate) among: Vec<u32>,
}

/// What a machine sends in a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Masked {
    /// The numbers of all slots, one after the other.
    #[serde(serialize_with = "write_integers", deserialize_with = "read_integers")]
    pub(crate) numbers: Vec<i128>,
    /// The digest of the seed of each slot's own mask, by which a wrong one is noticed.
    pub(crate) marks: Vec<Digest>,
    /// For each of those who take part, in their order, what only it can read.
    pub(crate) parcels: Vec<Vec<u8>>,
}

/// Asks a machine for its shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmasking {
    /// Of which turn.
    pub(crate) turn: Turn,
    /// What each of those who take part sent for this machine, in their order.
    pub(crate) parcels: Vec<Vec<u8>>,
}

/// A machine's shares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Which slots have enough clients.
    pub(crate) open: Vec<bool>,
    /// Of each of those who take part, in their order, one for each of these slots.
    pub(crate) shares: Vec<Vec<Seed>>,
}

/// How many of so many machines must help to open a sum: more than two thirds. Two sets of them have machines in common that are more than
/// a third of all, and each machine helps once.
pub(crate) fn threshold(machines: usize) -> usize {
    2 * machines / 3 + 1
}

/// A digest of something as it travels.
pub(crate) fn digest_of(what: &impl Serialize) -> Result<Digest> {
    let bytes = postcard::to_stdvec(what)
        .map_err(|error| Error::federation(format!("something of a secure sum could not be written: {error}")))?;
    Ok(Sha256::digest(bytes).into())
}

/// Random bytes from the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::federation(format!("the operating system has no random numbers: {error}")))?;
    Ok(bytes)
}
