//! A machine's side of secure sums: what it keeps in a run, what it answers, and what it refuses whatever a server says.

use super::keys::{Card, Identity, Keys, derive, seal, unseal};
use super::masks::mask;
use super::roster::{Roster, Wanted};
use super::shares::split;
use super::{Digest, Masked, Seed, Shares, Turn, Unmasking, digest_of, random, threshold};
use crate::error::{Error, Result};
use crate::federation::fixed::{read_integers, write_integers};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A slot of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlotShape {
    /// How many numbers it has.
    pub(crate) length: usize,
    /// Whether it is opened only if enough clients are in it: it tells more than how many these are.
    pub(crate) tells: bool,
}

/// What a machine adds to a sum: the numbers of all slots one after the other, and how many of its clients are in each.
pub(crate) struct Part {
    pub(crate) numbers: Vec<i128>,
    pub(crate) clients: Vec<i128>,
    pub(crate) shapes: Vec<SlotShape>,
}

/// A machine's place in the secure sums of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Seat {
    /// Digest of the run and of its session.
    run: Digest,
    keys: Keys,
    card: Card,
    /// Who takes part, and the place among them.
    roster: Option<(Roster, u32)>,
    /// The newest turn.
    turn: u64,
    pending: Option<Pending>,
}

/// What was masked last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pending {
    turn: Turn,
    shapes: Vec<SlotShape>,
    /// What its clients did, order by order.
    works: Vec<Digest>,
    /// What the machine notes of what leaves when it is opened.
    note: Vec<u8>,
    /// The digest of what it was opened with.
    opened_with: Option<Digest>,
}

/// What one machine tells another.
#[derive(Serialize, Deserialize)]
struct Parcel {
    /// How many clients are in each slot, masked. Its length tells nothing.
    #[serde(serialize_with = "write_integers", deserialize_with = "read_integers")]
    clients: Vec<i128>,
    /// Of the seed of each slot.
    shares: Vec<Seed>,
}

/// What sums were opened of, over all runs: the same work about the same models is never done for other machines, as the two sums
/// would differ by those that are in one of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Opened(pub(crate) Vec<(Digest, Digest)>);

impl Opened {
    fn refuse(&self, works: &[Digest], identities: &Digest) -> Result<()> {
        let differs = |(work, among): &(Digest, Digest)| among != identities && works.contains(work);
        match self.0.iter().any(differs) {
            true => refused(
                "the same work and models were in a sum with other machines: their difference would tell about few",
            ),
            false => Ok(()),
        }
    }

    fn add(&mut self, works: &[Digest], identities: &Digest) {
        let known: Vec<Digest> = self.0.iter().map(|(work, _)| *work).collect();
        let new = works.iter().filter(|work| !known.contains(work));
        self.0.extend(new.map(|work| (*work, *identities)));
    }
}

fn refused<T>(what: impl std::fmt::Display) -> Result<T> {
    Err(Error::federation(format!("secure sums: {what}")))
}

impl Seat {
    /// A place in a run, of this digest, with new keys.
    pub(crate) fn take(run: Digest, identity: &Identity, clients: u64) -> Result<Self> {
        let keys = Keys::generate()?;
        let card = keys.card(identity, &run, clients);
        Ok(Self { run, keys, card, roster: None, turn: 0, pending: None })
    }

    pub(crate) fn is_for(&self, run: &Digest) -> bool {
        self.run == *run
    }

    pub(crate) fn card(&self) -> &Card {
        &self.card
    }

    /// Takes note of who takes part, once.
    pub(crate) fn meet(&mut self, roster: Roster, wanted: &Wanted) -> Result<()> {
        let own = roster.cards.iter().position(|card| *card == self.card);
        let Some(place) = own.filter(|_| self.keys.are_of(&self.card)) else {
            return refused("this machine is not on the roster, or with other keys");
        };
        match &self.roster {
            Some((known, _)) if *known == roster => return Ok(()),
            Some(_) => return refused("another roster than the one of this run"),
            None => roster.check(&self.run, &self.card.identity, wanted)?,
        }
        self.roster = Some((roster, place as u32));
        Ok(())
    }

    /// The roster that a turn names, and this machine's place on it.
    fn roster_of(&self, turn: &Turn) -> Result<(&Roster, u32)> {
        match &self.roster {
            Some((roster, place)) if roster.digest()? == turn.roster => Ok((roster, *place)),
            _ => refused("an unknown roster"),
        }
    }

    /// The other machines of a turn, with their clients.
    pub(crate) fn others(&self, turn: &Turn) -> Result<impl Iterator<Item = (&Seed, u64)>> {
        let (roster, own) = self.roster_of(turn)?;
        let others = turn.among.iter().filter(move |&&place| place != own);
        Ok(others.filter_map(|&place| roster.cards.get(place as usize)).map(|card| (&card.identity, card.clients)))
    }

    /// Refuses a turn that must not be, for this work.
    pub(crate) fn check(&self, turn: &Turn, works: &[Digest], opened: &Opened) -> Result<()> {
        let (roster, own) = self.roster_of(turn)?;
        let is_list = turn.among.is_sorted_by(|one, other| one < other);
        let is_within = turn.among.last().is_some_and(|&last| (last as usize) < roster.cards.len());
        if !is_list || !is_within || turn.among.binary_search(&own).is_err() {
            return refused("a turn that is not among machines of the roster, each once, and this one");
        }
        roster.check_enough(turn.among.iter().map(|&place| place as usize))?;
        let again = self.pending.as_ref().filter(|pending| pending.turn == *turn && pending.opened_with.is_none());
        if turn.number <= self.turn && again.is_none() {
            return refused(format!("turn {} again", turn.number));
        }
        opened.refuse(works, &roster.identities(turn))
    }

    /// Masks what this machine adds to the sum of a turn that was [checked](Seat::check). A question that comes again is masked by
    /// another seed: of the two, machines open one.
    pub(crate) fn mask(&mut self, turn: Turn, part: Part, works: Vec<Digest>, note: Vec<u8>) -> Result<Masked> {
        let Part { mut numbers, mut clients, shapes } = part;
        let (roster, own) = self.roster_of(&turn)?;
        let of_turn = digest_of(&turn)?;
        for &place in turn.among.iter().filter(|&&place| place != own) {
            let common = self.keys.masking_with(&roster.cards[place as usize], &turn.roster)?;
            let adds = own < place;
            mask(&mut clients, &derive(&common, &of_turn, &[b"clients"]), adds);
            let mut rest = &mut numbers[..];
            for (slot, shape) in (0u64..).zip(&shapes) {
                let (numbers, after) = rest.split_at_mut(shape.length.min(rest.len()));
                mask(numbers, &derive(&common, &of_turn, &[b"slot", &slot.to_le_bytes()]), adds);
                rest = after;
            }
        }
        let mut random_numbers = ChaCha20Rng::from_seed(random()?);
        let (needed, holders) = (threshold(turn.among.len()), turn.among.len());
        let mut marks = Vec::new();
        let mut dealt = vec![Vec::new(); holders];
        let mut rest = &mut numbers[..];
        for shape in &shapes {
            let seed: Seed = random()?;
            let (numbers, after) = rest.split_at_mut(shape.length.min(rest.len()));
            mask(numbers, &seed, true);
            rest = after;
            marks.push(mark(&seed));
            let shares = split(&seed, needed, holders, &mut random_numbers);
            dealt.iter_mut().zip(shares).for_each(|(dealt, share)| dealt.push(share));
        }
        let parcel = |(&place, shares): (&u32, Vec<Seed>)| {
            let key = self.keys.sealing_with(&roster.cards[place as usize], &turn.roster)?;
            let content = postcard::to_stdvec(&Parcel { clients: clients.clone(), shares })
                .map_err(|error| Error::federation(format!("a parcel could not be written: {error}")))?;
            seal(&key, &content, &about(&turn, &shapes, own, place)?)
        };
        let parcels = turn.among.iter().zip(dealt).map(parcel).collect::<Result<_>>()?;
        self.turn = turn.number;
        self.pending = Some(Pending { turn, shapes, works, note, opened_with: None });
        Ok(Masked { numbers, marks, parcels })
    }

    /// What was noted of the turn that is to be opened.
    pub(crate) fn note(&self, unmasking: &Unmasking) -> Result<&[u8]> {
        self.pending_of(unmasking).map(|pending| pending.note.as_slice())
    }

    fn pending_of(&self, unmasking: &Unmasking) -> Result<&Pending> {
        let pending = self.pending.as_ref().filter(|pending| pending.turn == unmasking.turn);
        let Some(pending) = pending else {
            return refused("shares of another turn, or among others, than this machine has masked its numbers for");
        };
        if unmasking.parcels.len() != pending.turn.among.len() {
            return refused("parcels of other machines than take part");
        }
        Ok(pending)
    }

    /// This machine's shares of those slots that have enough clients. Once, unless the same question comes again.
    pub(crate) fn unmask(&mut self, unmasking: &Unmasking, opened: &mut Opened) -> Result<Shares> {
        let pending = self.pending_of(unmasking)?;
        let question = digest_of(unmasking)?;
        if pending.opened_with.is_some_and(|before| before != question) {
            return refused("a turn that was opened with other parcels");
        }
        let (roster, own) = self.roster_of(&pending.turn)?;
        let mut clients = vec![0i128; pending.shapes.len()];
        let mut all = Vec::new();
        for (&place, sealed) in pending.turn.among.iter().zip(&unmasking.parcels) {
            let key = self.keys.sealing_with(&roster.cards[place as usize], &pending.turn.roster)?;
            let content = unseal(&key, sealed, &about(&pending.turn, &pending.shapes, place, own)?);
            let parcel: Option<Parcel> = content.and_then(|content| postcard::from_bytes(&content).ok());
            let is_whole = |parcel: &Parcel| [parcel.clients.len(), parcel.shares.len()] == [clients.len(); 2];
            let Some(parcel) = parcel.filter(is_whole) else {
                return refused(format!("machine {place} of the roster did not seal this parcel for this turn"));
            };
            clients.iter_mut().zip(&parcel.clients).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
            all.push(parcel.shares);
        }
        let least = roster.minimum.clients as i128;
        let open: Vec<bool> =
            pending.shapes.iter().zip(&clients).map(|(shape, clients)| !shape.tells || *clients >= least).collect();
        let of_open =
            |shares: Vec<Seed>| shares.into_iter().zip(&open).filter(|(_, open)| **open).map(|(share, _)| share);
        let shares = all.into_iter().map(|shares| of_open(shares).collect()).collect();
        let identities = roster.identities(&pending.turn);
        // Another sum may have been opened since this one was masked.
        opened.refuse(&pending.works, &identities)?;
        opened.add(&pending.works, &identities);
        if let Some(pending) = &mut self.pending {
            pending.opened_with = Some(question);
        }
        Ok(Shares { open, shares })
    }
}

/// By which a seed is recognised.
pub(crate) fn mark(seed: &Seed) -> Digest {
    Sha256::digest([b"kinfolk mark", &seed[..]].concat()).into()
}

/// What a parcel is about: it is read in no other turn, by nobody else, and about nothing of another shape.
fn about(turn: &Turn, shapes: &[SlotShape], from: u32, to: u32) -> Result<Vec<u8>> {
    digest_of(&(turn, shapes, from, to)).map(Vec::from)
}
