//! Sums in which nothing of a single client is told.
//!
//! A client's answer to an order becomes a list of whole numbers with a block for every slot. In the block of its slot stand 1 for
//! being there, its weight, its numbers and its weighted vector; all other blocks are zeros. Machines add such lists up, and so does
//! the server: what it learns of an order is how many clients are in each slot, and the sums of what they sent.
//!
//! A client checks its own answer, as nobody else sees it. One that cannot be true, or that the order's grids do not hold, is in no sum:
//! the server misses it in the count, without its name and without the reason.

use crate::aggregate::{By, Sum};
use crate::error::{Error, Result};
use crate::federation::fixed::{Grid, SumOrder, read_integers, whole, write_integers};
use crate::federation::secure::machine::SlotShape;
use crate::federation::server::gather::{Soundness, slots};
use crate::federation::work::{Reply, Work};
use crate::federation::{Ask, Gather, Order, Slot};
use crate::models::{Model, Precision};
use crate::num::norm;
use serde::{Deserialize, Serialize};

/// How the answers to an order are added up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SealedOrder {
    /// What has a slot of its own, what a client counts, and the grid of vectors.
    pub(crate) sum: SumOrder,
    /// The grid of numbers.
    pub(crate) numbers: Grid,
}

/// How long the parts of a sum are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blocks {
    slots: usize,
    numbers: usize,
    length: usize,
}

/// In front of the numbers of a block: how many clients there are, and their weight.
const HEAD: usize = 2;

impl Blocks {
    /// Of an order, where a model has so many parameters; `None` for work whose answers have no sum.
    pub(crate) fn of(gather: Gather, work: &Work, width: usize) -> Option<Self> {
        Some(Self { slots: slots(gather, work).max(1), numbers: work.summable()?, length: work.sends(width).length })
    }

    fn block(self) -> usize {
        HEAD + self.numbers + self.length
    }

    /// The numbers of all blocks together.
    pub(crate) fn len(self) -> usize {
        self.slots * self.block()
    }

    /// Whether a block has more in it than how many clients there are, and their weight.
    fn tells(self) -> bool {
        self.block() > HEAD
    }

    /// The slots, as secure sums see them.
    pub(crate) fn shapes(self) -> impl Iterator<Item = SlotShape> {
        std::iter::repeat_n(SlotShape { length: self.block(), tells: self.tells() }, self.slots)
    }

    /// How many clients are in each slot of a sum.
    pub(crate) fn clients(self, sum: &SealedSum) -> impl Iterator<Item = i128> {
        sum.0.chunks_exact(self.block()).map(|block| block[0])
    }
}

/// The sums of an order over some clients, block by block.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SealedSum(
    #[serde(serialize_with = "write_integers", deserialize_with = "read_integers")] pub(crate) Vec<i128>,
);

impl SealedSum {
    /// Over nobody.
    pub(crate) fn nobody(blocks: Blocks) -> Self {
        Self(vec![0; blocks.len()])
    }

    /// Adds another, of the same order.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, other)| *sum = sum.wrapping_add(*other));
    }

    /// Empties the slots with fewer clients than that, unless they tell nothing else; how many are empty then.
    pub(crate) fn empty_small(&mut self, blocks: Blocks, least: usize) -> usize {
        if !blocks.tells() {
            return 0;
        }
        let mut empty = 0;
        for block in self.0.chunks_exact_mut(blocks.block()).filter(|block| block[0] < least as i128) {
            block.fill(0);
            empty += 1;
        }
        empty
    }

    /// Adds a client's answer at the precision of the wire; why not, if the grids do not hold it.
    fn add(
        &mut self,
        order: &SealedOrder,
        blocks: Blocks,
        (slot, weight): (usize, u64),
        numbers: &[f64],
        vector: &[f64],
    ) -> std::result::Result<(), &'static str> {
        let SealedOrder { sum: SumOrder { grid, .. }, numbers: grid_of_numbers } = order;
        if slot >= blocks.slots {
            return Err("a choice among models that nobody sent");
        }
        if (numbers.len(), vector.len()) != (blocks.numbers, blocks.length) {
            return Err("an answer of another shape");
        }
        if !grid.holds(norm(vector)) {
            return Err("a vector that is longer than a sum can hold");
        }
        if !numbers.iter().all(|number| grid_of_numbers.holds(number.abs())) {
            return Err("a number that is larger than a sum can hold");
        }
        let block = &mut self.0[slot * blocks.block()..(slot + 1) * blocks.block()];
        let times = i128::from(weight);
        let head = [1, times].into_iter();
        let numbers = numbers.iter().map(|number| whole(number * grid_of_numbers.scale()));
        let vector = vector.iter().map(|value| times.wrapping_mul(whole(value * grid.scale())));
        let added = head.chain(numbers).chain(vector);
        block.iter_mut().zip(added).for_each(|(sum, added)| *sum = sum.wrapping_add(added));
        Ok(())
    }

    /// Why these cannot be sums over at most so many clients, of so much weight together.
    pub(crate) fn fault(
        &self,
        order: &SealedOrder,
        blocks: Blocks,
        (clients, weight): (usize, u64),
    ) -> Option<&'static str> {
        if self.0.len() != blocks.len() {
            return Some("sums of another shape than was asked for");
        }
        let (mut all, mut heaviest) = (0i128, 0i128);
        for block in self.0.chunks_exact(blocks.block()) {
            let (count, weight) = (block[0], block[1]);
            let is_empty = count == 0 && block.iter().any(|&sum| sum != 0);
            if count < 0 || weight < 0 || is_empty {
                return Some("sums that are not of its clients' answers");
            }
            (all, heaviest) = (all.saturating_add(count), heaviest.saturating_add(weight));
            let Read { numbers, sum } = Read::of(block, order, blocks);
            let (range, most) = (order.sum.grid.range, count as f64);
            if numbers.iter().any(|number| number.abs() > order.numbers.range * most)
                || norm(&sum.total) > range * sum.weight * (1.0 + 1e-9)
            {
                return Some("sums that are longer than its clients' answers together");
            }
        }
        let is_beyond = all > clients as i128 || heaviest > i128::from(weight);
        is_beyond.then_some("sums over more clients than were asked")
    }

    /// As the method gets them: the sums of vectors, where there are some, and what else is known of each slot.
    pub(crate) fn read(&self, order: &SealedOrder, blocks: Blocks) -> (Vec<Sum>, Vec<Slot>) {
        let read = self.0.chunks_exact(blocks.block()).map(|block| Read::of(block, order, blocks));
        let known = |Read { numbers, sum }: Read| {
            let count = sum.count;
            (sum, Slot { count, numbers })
        };
        let (sums, known): (Vec<Sum>, Vec<Slot>) = read.map(known).unzip();
        (if blocks.length > 0 { sums } else { Vec::new() }, known)
    }
}

/// A block in floating-point numbers.
struct Read {
    numbers: Vec<f64>,
    sum: Sum,
}

impl Read {
    fn of(block: &[i128], order: &SealedOrder, blocks: Blocks) -> Self {
        let (head, rest) = block.split_at(HEAD);
        let (numbers, vector) = rest.split_at(blocks.numbers);
        let (unit, unit_of_numbers) = (order.sum.grid.unit(), order.numbers.unit());
        let numbers = numbers.iter().map(|&sum| sum as f64 * unit_of_numbers).collect();
        // As where sums are open, a slot that nobody is in has no total.
        let vector = if head[0] > 0 { vector } else { &[] };
        let total = vector.iter().map(|&sum| sum as f64 * unit).collect();
        Self { numbers, sum: Sum { total, weight: head[1] as f64, count: head[0] as usize } }
    }
}

/// The order that says how an order's answers are added up: of clients with so much weight together, beside models of at most this
/// length, and vectors that are usually so long.
pub(crate) fn sealed_order(
    gather: Gather,
    (clients, weight): (usize, u64),
    longest_model: f64,
    usual: Option<f64>,
) -> SealedOrder {
    let (by, of) = match gather {
        Gather::Sum { by, weight } => (by, weight),
        Gather::Each => (By::All, crate::aggregate::Weight::Uniform),
    };
    let grid = Grid::new(longest_model, usual, weight);
    SealedOrder { sum: SumOrder { by, weight: of, grid }, numbers: Grid::new(0.0, None, clients as u64) }
}

impl SealedOrder {
    /// The blocks of its sums, where a model has so many parameters; `None` for work whose answers have no sum.
    pub(crate) fn blocks(&self, work: &Work, width: usize) -> Option<Blocks> {
        Blocks::of(self.sum.gather(), work, width)
    }
}

/// Why an order's answers cannot be sealed.
pub(crate) fn open_answers(gather: Gather, order: &Order) -> Option<Error> {
    let sends = order.work.sends(1);
    let says_nothing = sends.length + sends.numbers + sends.counts == 0;
    if order.work.summable().is_some() && (says_nothing || gather != Gather::Each) {
        return None;
    }
    let message =
        format!("single answers to {} stay with the clients: only sums over several leave", order.work.name());
    Some(Error::new(crate::error::ErrorKind::Unsupported, message).hint("set privacy.sums = \"open\", or leave it out"))
}

/// Adds up the answers of some clients to the orders of an ask.
pub(crate) struct Sealing<'a> {
    ask: &'a Ask,
    soundness: Soundness,
    precision: Precision,
    rows: &'a [u32],
    orders: Vec<(SealedOrder, Blocks, SealedSum)>,
}

impl<'a> Sealing<'a> {
    /// An error where an order's answers cannot be sealed, or its sums could overflow. `rows` are those of each client.
    pub(crate) fn new(ask: &'a Ask, model: &dyn Model, rows: &'a [u32], orders: &[SealedOrder]) -> Result<Self> {
        if orders.len() != ask.orders.len() {
            return Err(Error::federation("sums of some orders only, want all of them"));
        }
        let mut all = Vec::new();
        for (order, sealed) in ask.orders.iter().zip(orders) {
            let Some(blocks) = sealed.blocks(&order.work, model.layout().len()) else {
                return Err(open_answers(Gather::Each, order).unwrap_or_else(|| Error::federation("sums of nothing")));
            };
            let to = || order.to.among(rows.len());
            let weight = to().map(|client| sealed.sum.weight(rows[client as usize])).sum();
            if !sealed.sum.grid.is_sound(weight) || !sealed.numbers.is_sound(to().count() as u64) {
                return Err(Error::federation("sums of integers that could overflow"));
            }
            all.push((*sealed, blocks, SealedSum::nobody(blocks)));
        }
        Ok(Self { ask, soundness: Soundness::of(model), precision: model.precision(), rows, orders: all })
    }

    /// Adds a reply, or says why its client is in no sum.
    pub(crate) fn take(&mut self, order: usize, client: u32, mut reply: Reply) -> std::result::Result<(), String> {
        let (sealed, blocks, sum) = &mut self.orders[order];
        reply.vector.iter_mut().for_each(|vector| self.precision.round(vector));
        let (work, rows) = (&self.ask.orders[order].work, self.rows[client as usize]);
        if let Some(what) = self.soundness.find_fault(work, rows, &reply) {
            return Err(what);
        }
        let place = (sealed.sum.slot(&reply.counts), sealed.sum.weight(rows));
        let vector = reply.vector.as_deref().unwrap_or_default();
        sum.add(sealed, *blocks, place, &work.to_sum(&reply), vector).map_err(str::to_string)
    }

    /// The sums, in the order of the orders.
    pub(crate) fn finish(self) -> Vec<SealedSum> {
        self.orders.into_iter().map(|(_, _, sum)| sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::Weight;

    const BLOCKS: Blocks = Blocks { slots: 2, numbers: 1, length: 2 };

    fn order() -> SealedOrder {
        sealed_order(Gather::Sum { by: By::Choice, weight: Weight::Rows }, (3, 30), 1.0, Some(1.0))
    }

    fn sum(parts: &[(usize, u64, f64, [f64; 2])]) -> SealedSum {
        let mut sum = SealedSum::nobody(BLOCKS);
        for &(slot, weight, number, vector) in parts {
            sum.add(&order(), BLOCKS, (slot, weight), &[number], &vector).unwrap();
        }
        sum
    }

    #[test]
    fn a_client_is_in_one_block_and_sums_are_by_hand() {
        let one = sum(&[(1, 10, 0.5, [1.0, -2.0])]);
        assert!(one.0[..5].iter().all(|&number| number == 0));
        assert_eq!(one.0[5..7], [1, 10]);
        let all = sum(&[(1, 10, 0.5, [1.0, -2.0]), (0, 4, 3.0, [0.25, 0.0]), (1, 5, 0.25, [-1.0, 1.0])]);
        let (sums, known) = all.read(&order(), BLOCKS);
        assert_eq!((sums[0].total.as_slice(), sums[0].weight, sums[0].count), (&[1.0, 0.0][..], 4.0, 1));
        assert_eq!((sums[1].total.as_slice(), sums[1].weight, sums[1].count), (&[5.0, -15.0][..], 15.0, 2));
        assert_eq!(known[1], Slot { count: 2, numbers: vec![0.75] });
        let mut merged = sum(&[(0, 4, 3.0, [0.25, 0.0])]);
        merged.merge(&sum(&[(1, 5, 0.25, [-1.0, 1.0]), (1, 10, 0.5, [1.0, -2.0])]));
        assert_eq!(merged, all);
        let bytes = postcard::to_stdvec(&all).unwrap();
        assert_eq!(postcard::from_bytes::<SealedSum>(&bytes).unwrap(), all);
    }

    #[test]
    fn slots_with_few_clients_are_emptied() {
        let mut all = sum(&[(1, 10, 0.5, [1.0, -2.0]), (0, 4, 3.0, [0.25, 0.0]), (1, 5, 0.25, [-1.0, 1.0])]);
        let before = all.clone();
        assert_eq!(all.empty_small(BLOCKS, 1), 0);
        assert_eq!(all, before);
        assert_eq!(all.empty_small(BLOCKS, 2), 1);
        assert!(all.0[..5].iter().all(|&number| number == 0) && all.0[5..] == before.0[5..]);
        assert_eq!(BLOCKS.clients(&all).collect::<Vec<_>>(), [0, 2]);
        // Who is there at all is no secret.
        let bare = Blocks { numbers: 0, length: 0, ..BLOCKS };
        let mut count = SealedSum(vec![1, 4, 2, 8]);
        assert_eq!((count.empty_small(bare, 3), count.0), (0, vec![1, 4, 2, 8]));
    }

    #[test]
    fn what_the_grids_do_not_hold_is_in_no_sum() {
        let mut sum = SealedSum::nobody(BLOCKS);
        let mut refused = |slot: usize, number: f64, vector: &[f64]| {
            sum.add(&order(), BLOCKS, (slot, 1), &[number], vector).unwrap_err()
        };
        assert!(refused(2, 0.0, &[0.0; 2]).contains("choice"));
        assert!(refused(0, 0.0, &[0.0; 3]).contains("shape"));
        assert!(refused(0, 0.0, &[1e100, 0.0]).contains("longer"));
        assert!(refused(0, 0.0, &[f64::NAN, 0.0]).contains("longer"));
        assert!(refused(0, f64::INFINITY, &[0.0; 2]).contains("number"));
        assert_eq!(sum, SealedSum::nobody(BLOCKS));
    }

    #[test]
    fn sums_that_cannot_be_of_so_many_clients_are_refused() {
        let sound = sum(&[(1, 10, 0.5, [1.0, -2.0]), (0, 4, 3.0, [0.25, 0.0])]);
        assert_eq!(sound.fault(&order(), BLOCKS, (2, 14)), None);
        let fault = |change: fn(&mut Vec<i128>)| {
            let mut sum = sound.clone();
            change(&mut sum.0);
            sum.fault(&order(), BLOCKS, (2, 14)).unwrap_or("none")
        };
        assert!(fault(|it| it.truncate(9)).contains("shape"));
        assert!(fault(|it| it[0] = -1).contains("not of its clients"));
        assert!(fault(|it| it[0] = 0).contains("not of its clients"));
        assert!(fault(|it| it[0] = 2).contains("more clients"));
        assert!(fault(|it| it[1] = 15).contains("more clients"));
        assert!(fault(|it| it[2] = i128::MAX).contains("longer"));
        assert!(fault(|it| it[8] = i128::MAX).contains("longer"));
    }
}
