//! Messages to ranks and their answers.
//!
//! All messages of an exchange are alike but for a few bytes: which clients are meant. So one of them is broadcast, and each
//! rank is sent the blocks in which its own differs. What ranks say of single clients goes to the first rank; the totals of
//! sums are added on the way, in a binary tree over the ranks, so that the first one receives as many of them as there are
//! levels and not as there are ranks.

use kinfolk::federation::client::memory::Memories;
use kinfolk::federation::client::site::Site;
use kinfolk::federation::engines::remote::{Delivery, MessageKind, Totals, Transport};
use kinfolk::{Error, Result};
use mpi::topology::{Process, SimpleCommunicator};
use mpi::traits::{Communicator, Destination, Root, Source};

/// Most bytes in one call: MPI counts in 31 bits.
const MOST: usize = 1 << 30;
/// Bytes of a block that differs or not.
const BLOCK: usize = 1 << 12;
/// In place of a message's length: there are no more.
const END: u64 = u64::MAX;

/// A rank's clients.
pub struct Served {
    pub site: Site,
    pub memories: Memories,
}

impl Served {
    fn answer(&mut self, message: &[u8]) -> Delivery<(Vec<u8>, Totals)> {
        self.site.answer_apart(message, &mut self.memories).map_err(|error| error.to_string())
    }
}

/// All ranks, as the first sees them; its own clients are asked without a message.
pub struct Ranks {
    own: Served,
    /// Of the last exchange, over all ranks.
    totals: Totals,
}

impl Ranks {
    pub fn new(own: Served) -> Self {
        Self { own, totals: Totals::default() }
    }
}

impl Transport for Ranks {
    fn machines(&mut self) -> Result<Vec<u64>> {
        Ok((0..SimpleCommunicator::world().size() as u64).collect())
    }

    fn name(&mut self, number: u64) -> String {
        format!("rank {number}")
    }

    /// A rank that cannot answer ends the run: there is no other that has its clients.
    fn exchange(&mut self, messages: Vec<(u64, Vec<u8>)>, _: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        let world = SimpleCommunicator::world();
        let (mut own, mut others) = (None, vec![None; world.size() as usize]);
        for (number, message) in messages {
            match number {
                0 => own = Some(message),
                number => others[number as usize] = Some(message),
            }
        }
        let is_alone = others.iter().all(Option::is_none);
        if !is_alone {
            let mut common = others.iter().flatten().next().cloned().unwrap_or_default();
            broadcast(&world, &mut common);
            for (rank, message) in others.iter().enumerate().skip(1) {
                let patch = message.as_ref().map(|message| differences(&common, message));
                send(&world.process_at_rank(rank as i32), &patch.unwrap_or_default());
            }
        }
        let mut deliveries = Vec::new();
        self.totals = Totals::default();
        if let Some(message) = own {
            let delivery = self.own.answer(&message).map(|(reply, totals)| {
                self.totals = totals;
                reply
            });
            deliveries.push((0, delivery));
        }
        for (rank, _) in others.iter().enumerate().filter(|(_, message)| message.is_some()) {
            let mut reply = receive(&world.process_at_rank(rank as i32));
            let is_sound = reply.pop() == Some(SOUND);
            let delivery = if is_sound { Ok(reply) } else { Err(String::from_utf8_lossy(&reply).into_owned()) };
            deliveries.push((rank as u64, delivery));
        }
        if !is_alone {
            self.totals = add_up(&world, std::mem::take(&mut self.totals))?;
        }
        if let Some((rank, Err(fault))) = deliveries.iter().find(|(_, delivery)| delivery.is_err()) {
            return Err(Error::federation(format!("rank {rank}: {fault}")).ending_the_run());
        }
        Ok(deliveries)
    }

    fn totals(&mut self) -> Totals {
        std::mem::take(&mut self.totals)
    }
}

/// The last byte of an answer that is none of the errors.
const SOUND: u8 = 1;

/// Answers the first rank's messages until there are no more.
pub fn serve(mut served: Served) -> Result<()> {
    let world = SimpleCommunicator::world();
    let first = world.process_at_rank(0);
    let mut common = Vec::new();
    while broadcast(&world, &mut common) {
        let patch = receive(&first);
        let mut totals = Totals::default();
        if !patch.is_empty() {
            let (mut bytes, is_sound) = match served.answer(&patched(&common, &patch)) {
                Ok((bytes, found)) => {
                    totals = found;
                    (bytes, SOUND)
                }
                Err(fault) => (fault.into_bytes(), 1 - SOUND),
            };
            bytes.push(is_sound);
            send(&first, &bytes);
        }
        add_up(&world, totals)?;
    }
    Ok(())
}

/// Adds up all ranks' totals; the first rank has the result. At every level, of two neighbours that are still there the second
/// hands its totals to the first.
fn add_up(world: &SimpleCommunicator, mut totals: Totals) -> Result<Totals> {
    let (rank, size) = (world.rank(), world.size());
    let mut apart = 1;
    while apart < size {
        if rank & apart != 0 {
            send(&world.process_at_rank(rank - apart), &totals.encode()?);
            return Ok(Totals::default());
        }
        if rank + apart < size {
            totals.merge(Totals::decode(&receive(&world.process_at_rank(rank + apart)))?);
        }
        apart *= 2;
    }
    Ok(totals)
}

/// Tells all ranks that there are no more messages.
pub fn end() {
    SimpleCommunicator::world().process_at_rank(0).broadcast_into(&mut END.clone());
}

/// Sends the first rank's bytes to all; false where these are the end.
fn broadcast(world: &SimpleCommunicator, bytes: &mut Vec<u8>) -> bool {
    let first = world.process_at_rank(0);
    let mut length = bytes.len() as u64;
    first.broadcast_into(&mut length);
    if length == END {
        return false;
    }
    bytes.resize(length as usize, 0);
    bytes.chunks_mut(MOST).for_each(|part| first.broadcast_into(part));
    true
}

fn send(process: &Process, bytes: &[u8]) {
    process.send(&(bytes.len() as u64));
    bytes.chunks(MOST).for_each(|part| process.send(part));
}

fn receive(process: &Process) -> Vec<u8> {
    let mut length = 0u64;
    process.receive_into(&mut length);
    let mut bytes = vec![0; length as usize];
    for part in bytes.chunks_mut(MOST) {
        process.receive_into(part);
    }
    bytes
}

/// The length of a message, and the blocks in which it differs from another, each with its number.
fn differences(common: &[u8], message: &[u8]) -> Vec<u8> {
    let mut patch = (message.len() as u64).to_le_bytes().to_vec();
    for (number, block) in message.chunks(BLOCK).enumerate() {
        let begin = number * BLOCK;
        if common.get(begin..begin + block.len()) != Some(block) {
            patch.extend((number as u64).to_le_bytes());
            patch.extend(block);
        }
    }
    patch
}

/// The message of which these are the [differences].
fn patched(common: &[u8], patch: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8]| u64::from_le_bytes(std::array::from_fn(|place| bytes[place])) as usize;
    let (length, mut blocks) = patch.split_at(NUMBER);
    let mut message = common.to_vec();
    message.resize(number(length), 0);
    while !blocks.is_empty() {
        let begin = number(blocks) * BLOCK;
        let end = message.len().min(begin + BLOCK);
        message[begin..end].copy_from_slice(&blocks[NUMBER..NUMBER + end - begin]);
        blocks = &blocks[NUMBER + end - begin..];
    }
    message
}

/// Bytes of a number.
const NUMBER: usize = size_of::<u64>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_made_of_what_is_common_and_what_is_not() {
        let common: Vec<u8> = (0..3 * BLOCK + 17).map(|place| (place % 251) as u8).collect();
        let mut other = common.clone();
        other[BLOCK + 5] ^= 1;
        let longer = [&common[..], &[7; 2 * BLOCK]].concat();
        for message in [&common[..], &other, &longer, &common[..BLOCK + 3], &common[..BLOCK], &[]] {
            assert_eq!(patched(&common, &differences(&common, message)), message);
        }
        assert_eq!(differences(&common, &common).len(), NUMBER);
        assert_eq!(differences(&common, &other).len(), NUMBER + NUMBER + BLOCK);
        assert_eq!(patched(&[], &differences(&[], &other)), other);
    }
}
