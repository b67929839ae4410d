//! Sums of vectors as whole numbers.
//!
//! A sum of floating-point numbers depends on the order in which they are added, a sum of integers does not: machines may
//! each add up their own clients, and the server the machines' sums, with the same bits however clients are spread.
//!
//! Every number is taken as a multiple of 2^−bits, cut off towards zero, so that no vector becomes longer. An order's
//! [`Grid`] fixes the bits from what the server knows before anybody answers: the largest length a vector may have, and the
//! weights of all clients together. With these no sum of 128 bits can overflow. Weights are whole, so that the mean is
//! off by less than one unit of the grid, and exact up to the last rounding to 53 bits where the numbers themselves are
//! multiples of it. 64 bits would leave too few: between a million rows and clients that may be 10¹² times as large as
//! usual, sums of squares would keep three digits.

use crate::aggregate::{By, Sum, Weight};
use crate::error::{Error, Result};
use crate::federation::server::gather::{Soundness, slots};
use crate::federation::work::Reply;
use crate::federation::{Ask, Gather};
use crate::models::{Model, Precision};
use crate::num::norm;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bits of a sum, without its sign and one to spare.
const BITS: i32 = 126;
/// How many times longer than usual a vector may be.
const ROOM: f64 = (1u64 << 40) as f64;
/// The same where nobody knows what is usual.
const UNKNOWN: f64 = (1u128 << 70) as f64;
/// Longest length that is accepted at all.
const LONGEST: f64 = 1e120;

/// How an order's vectors are summed as integers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SumOrder {
    /// What has a sum of its own.
    pub(crate) by: By,
    /// What each client counts.
    pub(crate) weight: Weight,
    /// What is a unit, and what is too long.
    pub(crate) grid: Grid,
}

impl SumOrder {
    pub(crate) fn slot(&self, counts: &[u32]) -> usize {
        if self.by == By::Choice { counts.first().copied().unwrap_or(0) as usize } else { 0 }
    }

    /// The weight of an answer, which is a whole number.
    pub(crate) fn weight(&self, rows: u32) -> u64 {
        match self.weight {
            Weight::Uniform => 1,
            Weight::Rows => u64::from(rows),
        }
    }

    pub(crate) fn gather(&self) -> Gather {
        Gather::Sum { by: self.by, weight: self.weight }
    }
}

/// Numbers as multiples of 2^−bits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    bits: i32,
    /// The largest length of a vector.
    pub(crate) range: f64,
}

impl Grid {
    /// For vectors that are usually so long, beside models of at most this length, with so much weight together.
    pub(crate) fn new(longest_model: f64, usual: Option<f64>, weight: u64) -> Self {
        let range = match usual {
            Some(usual) => ROOM * (1.0 + longest_model + usual),
            None => UNKNOWN * (1.0 + longest_model),
        };
        let range = range.min(LONGEST);
        Self { bits: Self::most_bits(range, weight), range }
    }

    /// The most bits with which sums of vectors up to this length and this weight do not overflow.
    fn most_bits(range: f64, weight: u64) -> i32 {
        let weight_bits = (u64::BITS - weight.leading_zeros()) as i32;
        // The smallest power of two that is not below it, without a logarithm, which rounds.
        let range_bits = range.to_bits();
        let exponent = (range_bits >> 52) as i32 - 1023;
        BITS - weight_bits - exponent - i32::from(range_bits & ((1 << 52) - 1) != 0)
    }

    /// Whether a vector of this length can be in a sum.
    pub(crate) fn holds(&self, length: f64) -> bool {
        length <= self.range
    }

    /// Whether a message's grid is one: no sum of this weight may overflow.
    pub(crate) fn is_sound(&self, weight: u64) -> bool {
        let is_possible = (1.0..=LONGEST).contains(&self.range);
        is_possible && (-1000..=Self::most_bits(self.range, weight)).contains(&self.bits)
    }

    /// A unit.
    pub(crate) fn unit(&self) -> f64 {
        2f64.powi(-self.bits)
    }

    /// Units in 1.
    pub(crate) fn scale(&self) -> f64 {
        2f64.powi(self.bits)
    }
}

/// A sum over the clients of a slot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FixedSum {
    /// Σ weight · vector in units of the grid; empty when nobody is in the slot.
    #[serde(serialize_with = "write_integers", deserialize_with = "read_integers")]
    total: Vec<i128>,
    weight: u64,
    count: u64,
}

impl FixedSum {
    /// Puts in a total that was taken out.
    pub(crate) fn put(&mut self, total: Vec<i128>) {
        self.total = total;
    }

    /// Adds a vector that the grid holds.
    pub(crate) fn add(&mut self, grid: &Grid, weight: u64, vector: &[f64]) {
        self.total.resize(vector.len(), 0);
        let (scale, times) = (grid.scale(), i128::from(weight));
        for (total, value) in self.total.iter_mut().zip(vector) {
            *total = total.wrapping_add(times.wrapping_mul(whole(value * scale)));
        }
        self.weight += weight;
        self.count += 1;
    }

    pub(crate) fn merge(&mut self, other: &FixedSum) {
        self.total.resize(self.total.len().max(other.total.len()), 0);
        self.total.iter_mut().zip(&other.total).for_each(|(total, other)| *total = total.wrapping_add(*other));
        self.weight += other.weight;
        self.count += other.count;
    }

    /// Takes out what was added before.
    pub(crate) fn remove(&mut self, other: &FixedSum) {
        self.total.iter_mut().zip(&other.total).for_each(|(total, other)| *total = total.wrapping_sub(*other));
        self.weight = self.weight.saturating_sub(other.weight);
        self.count = self.count.saturating_sub(other.count);
        if self.count == 0 {
            self.total.clear();
        }
    }

    /// As the method gets it.
    pub(crate) fn sum(&self, grid: &Grid) -> Sum {
        let unit = grid.unit();
        let total = self.total.iter().map(|&total| total as f64 * unit).collect();
        Sum { total, weight: self.weight as f64, count: self.count as usize }
    }
}

/// The totals of sums apart from the answers they belong to, by order and slot: processes of one run may add theirs up among
/// themselves before anybody reads them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals(Vec<((u32, u32), Total)>);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Total(#[serde(serialize_with = "write_integers", deserialize_with = "read_integers")] Vec<i128>);

impl Totals {
    /// Takes them out of the sums of some orders.
    pub(crate) fn take_out(sums: &mut [(u32, Summed)]) -> Self {
        let of_order = |(order, summed): &mut (u32, Summed)| {
            let order = *order;
            let taken = (0u32..).zip(&mut summed.sums).filter(|(_, sum)| !sum.total.is_empty());
            taken.map(|(slot, sum)| ((order, slot), Total(std::mem::take(&mut sum.total)))).collect::<Vec<_>>()
        };
        let mut totals: Vec<_> = sums.iter_mut().flat_map(of_order).collect();
        totals.sort_unstable_by_key(|(of, _)| *of);
        Self(totals)
    }

    /// Adds another process's.
    pub fn merge(&mut self, other: Self) {
        for (of, Total(added)) in other.0 {
            match self.0.binary_search_by_key(&of, |(of, _)| *of) {
                Ok(place) => {
                    let Total(total) = &mut self.0[place].1;
                    total.resize(total.len().max(added.len()), 0);
                    total.iter_mut().zip(&added).for_each(|(total, added)| *total = total.wrapping_add(*added));
                }
                Err(place) => self.0.insert(place, (of, Total(added))),
            }
        }
    }

    /// The total of an order's slot, for the first who asks.
    pub(crate) fn claim(&mut self, order: u32, slot: u32) -> Option<Vec<i128>> {
        let place = self.0.binary_search_by_key(&(order, slot), |(of, _)| *of).ok()?;
        Some(std::mem::take(&mut self.0[place].1.0))
    }

    /// As bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).map_err(|error| Error::federation(format!("sums could not be written: {error}")))
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        postcard::from_bytes(bytes).map_err(|error| Error::federation(format!("sums could not be read: {error}")))
    }
}

/// A number cut off towards zero. Conversions to 64 bits are an instruction, those to 128 are not.
pub(crate) fn whole(value: f64) -> i128 {
    const SHORT: f64 = (1u64 << 62) as f64;
    if value.abs() < SHORT { i128::from(value as i64) } else { value as i128 }
}

/// As bytes: their number does not tell how large they are.
pub(crate) fn write_integers<S: Serializer>(integers: &[i128], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let bytes: Vec<u8> = integers.iter().flat_map(|integer| integer.to_le_bytes()).collect();
    serializer.serialize_bytes(&bytes)
}

pub(crate) fn read_integers<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<i128>, D::Error> {
    let bytes = <&'de [u8]>::deserialize(deserializer)?;
    let (integers, rest) = bytes.as_chunks::<{ size_of::<i128>() }>();
    if !rest.is_empty() {
        return Err(serde::de::Error::custom("a sum that is cut off"));
    }
    Ok(integers.iter().map(|bytes| i128::from_le_bytes(*bytes)).collect())
}

/// The answers of several clients to an order, with their vectors summed. The lists run along `clients`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summed {
    /// Who answered, ascending.
    pub(crate) clients: Vec<u32>,
    rows: Vec<u32>,
    counts: Vec<u32>,
    numbers: Vec<f64>,
    /// The length of each vector. One that the grid does not hold is in no sum.
    lengths: Vec<f64>,
    /// Whose answer cannot be true, and why.
    pub(crate) refused: Vec<(u32, String)>,
    /// One for every slot.
    pub(crate) sums: Vec<FixedSum>,
}

/// One of several clients in a sum: its reply without the vector, and the vector's length.
pub struct Summand {
    pub client: u32,
    pub reply: Reply,
    pub length: f64,
}

impl Summed {
    pub(crate) fn new(slots: usize) -> Self {
        Self { sums: vec![FixedSum::default(); slots], ..Self::default() }
    }

    /// Adds a sound answer at the precision of the wire; clients come in ascending order.
    pub(crate) fn add(&mut self, order: &SumOrder, client: u32, reply: Reply) {
        let vector = reply.vector.as_deref().unwrap_or_default();
        let length = norm(vector);
        if order.grid.holds(length)
            && let Some(sum) = self.sums.get_mut(order.slot(&reply.counts))
        {
            sum.add(&order.grid, order.weight(reply.rows), vector);
        }
        self.clients.push(client);
        self.rows.push(reply.rows);
        self.counts.extend(reply.counts);
        self.numbers.extend(reply.numbers);
        self.lengths.push(length);
    }

    /// The answers one by one. The sums must have been [found](Summed::fault) sound.
    pub(crate) fn summands(&self) -> impl Iterator<Item = Summand> {
        let count = self.clients.len().max(1);
        let (counts, numbers) = (self.counts.len() / count, self.numbers.len() / count);
        self.clients.iter().enumerate().map(move |(place, &client)| {
            let reply = Reply {
                rows: self.rows[place],
                counts: self.counts[place * counts..(place + 1) * counts].to_vec(),
                numbers: self.numbers[place * numbers..(place + 1) * numbers].to_vec(),
                vector: None,
            };
            Summand { client, reply, length: self.lengths[place] }
        })
    }

    /// Why these cannot be the sums of these answers, with so many slots, counts, numbers and numbers in a vector.
    pub(crate) fn fault(
        &self,
        order: &SumOrder,
        (slots, counts, numbers, length): (usize, usize, usize, usize),
    ) -> Option<&'static str> {
        let clients = self.clients.len();
        let lists = [(self.rows.len(), 1), (self.lengths.len(), 1), (self.counts.len(), counts)];
        let is_long = |(found, each): &(usize, usize)| *found != clients * each;
        if lists.iter().chain([&(self.numbers.len(), numbers)]).any(is_long) || self.sums.len() != slots {
            return Some("sums of another shape than was asked for");
        }
        if !self.clients.is_sorted_by(|one, other| one < other) {
            return Some("sums in which a client is counted twice");
        }
        let mut wanted = vec![(0u64, 0u64, 0.0); slots];
        for Summand { reply, length, .. } in self.summands().filter(|summand| order.grid.holds(summand.length)) {
            let Some((count, weight, bound)) = wanted.get_mut(order.slot(&reply.counts)) else {
                return Some("the sum of a model that nobody was sent");
            };
            let own = order.weight(reply.rows);
            (*count, *weight, *bound) = (*count + 1, *weight + own, *bound + own as f64 * length);
        }
        for (sum, (count, weight, bound)) in self.sums.iter().zip(wanted) {
            let numbers = if count > 0 { length } else { 0 };
            if (sum.count, sum.weight, sum.total.len()) != (count, weight, numbers) {
                return Some("sums that are not of its clients' answers");
            }
            // A sum is no longer than what was added.
            let rounding = order.grid.unit() * weight as f64 * (length as f64).sqrt();
            if norm(&sum.sum(&order.grid).total) > bound * (1.0 + 1e-9) + rounding {
                return Some("sums that are longer than its clients' answers together");
            }
        }
        None
    }
}

/// Adds up answers of some clients as they come, in ascending order of the clients.
pub struct Summation<'a> {
    ask: &'a Ask,
    soundness: Soundness,
    precision: Precision,
    rows: &'a [u32],
    orders: Vec<Option<(SumOrder, Summed)>>,
}

impl<'a> Summation<'a> {
    /// Of the orders that have sums; an error if these could overflow. `rows` are those of each client.
    pub(crate) fn new(ask: &'a Ask, model: &dyn Model, rows: &'a [u32], sums: &[Option<SumOrder>]) -> Result<Self> {
        let mut orders = Vec::new();
        for (order, sum) in ask.orders.iter().zip(sums) {
            let Some(sum) = sum else {
                orders.push(None);
                continue;
            };
            let weight = order.to.among(rows.len()).map(|client| sum.weight(rows[client as usize])).sum();
            if !sum.grid.is_sound(weight) {
                return Err(Error::federation("sums of integers that could overflow"));
            }
            let gather = Gather::Sum { by: sum.by, weight: sum.weight };
            orders.push(Some((*sum, Summed::new(slots(gather, &order.work)))));
        }
        Ok(Self { ask, soundness: Soundness::of(model), precision: model.precision(), rows, orders })
    }

    /// Adds a reply if its order is summed, or says that it cannot be true; returns all others.
    pub(crate) fn take(&mut self, order: usize, client: u32, mut reply: Reply) -> Option<Reply> {
        let Some((sum, summed)) = &mut self.orders[order] else { return Some(reply) };
        reply.vector.iter_mut().for_each(|vector| self.precision.round(vector));
        let work = &self.ask.orders[order].work;
        match self.soundness.find_fault(work, self.rows[client as usize], &reply) {
            Some(what) => summed.refused.push((client, what)),
            None => summed.add(sum, client, reply),
        }
        None
    }

    /// The orders that were summed, and their sums.
    pub(crate) fn finish(self) -> impl Iterator<Item = (usize, Summed)> {
        self.orders.into_iter().enumerate().filter_map(|(order, sums)| Some((order, sums?.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_cut_off_towards_zero_and_sums_rounded_once() {
        // 126 bits: 2 for the weight 3, 41 for the range of 2^40 · (1 + 1).
        let grid = Grid::new(0.0, Some(1.0), 3);
        assert_eq!((grid.bits, grid.range), (83, 2f64.powi(41)));
        let mut sum = FixedSum::default();
        let below = 1.5 * 2f64.powi(-83);
        sum.add(&grid, 1, &[1.0, below, -below, 1e12]);
        sum.add(&grid, 1, &[2f64.powi(-53), 0.0, 0.0, 1.0]);
        sum.add(&grid, 1, &[2f64.powi(-53), 0.0, 0.0, 0.0]);
        assert_eq!(sum.total[1..3], [1, -1]);
        let found = sum.sum(&grid);
        // In floating point the two small numbers would vanish one by one.
        assert_eq!(1.0 + 2f64.powi(-53) + 2f64.powi(-53), 1.0);
        assert_eq!(found.total, [1.0 + 2f64.powi(-52), 2f64.powi(-83), -2f64.powi(-83), 1e12 + 1.0]);
        assert_eq!((found.weight, found.count), (3.0, 3));
    }

    #[test]
    fn the_longest_vectors_of_all_clients_do_not_overflow() {
        for (longest, usual, weight) in [(0.0, None, 1), (1e3, Some(1e-9), 1 << 40), (1e100, Some(1e90), u64::MAX >> 1)]
        {
            let grid = Grid::new(longest, usual, weight);
            assert!(grid.is_sound(weight) && !grid.is_sound(weight.saturating_mul(4).max(8)), "{grid:?}");
            let mut sum = FixedSum::default();
            sum.add(&grid, weight, &[grid.range, -grid.range]);
            let found = sum.sum(&grid);
            let wanted = grid.range * weight as f64;
            assert!((found.total[0] / wanted - 1.0).abs() < 1e-15 && found.total[1] == -found.total[0], "{found:?}");
            assert!(!grid.holds(f64::NAN) && !grid.holds(f64::INFINITY) && !grid.holds(1.1 * grid.range));
        }
    }

    #[test]
    fn any_order_gives_the_same_bits_and_what_is_removed_leaves_no_trace() {
        let grid = Grid::new(1.0, Some(1.0), 100);
        let vectors: Vec<Vec<f64>> =
            (0..20).map(|client| (0..5).map(|place| (0.37 * client as f64 + place as f64).sin()).collect()).collect();
        let all = |order: &[usize]| {
            let mut sum = FixedSum::default();
            order.iter().for_each(|&client| sum.add(&grid, 1 + client as u64 % 5, &vectors[client]));
            sum
        };
        let forwards: Vec<usize> = (0..20).collect();
        let backwards: Vec<usize> = (0..20).rev().collect();
        assert_eq!(all(&forwards), all(&backwards));
        let mut apart = all(&forwards[..7]);
        apart.merge(&all(&forwards[7..]));
        assert_eq!(apart, all(&forwards));
        apart.remove(&all(&[3, 9]));
        assert_eq!(apart, all(&forwards.iter().copied().filter(|client| ![3, 9].contains(client)).collect::<Vec<_>>()));
        apart.remove(&apart.clone());
        assert_eq!(apart, FixedSum::default());
    }

    fn summed() -> (SumOrder, Summed) {
        let order = SumOrder { by: By::Choice, weight: Weight::Rows, grid: Grid::new(1.0, Some(1.0), 30) };
        let mut summed = Summed::new(2);
        for (client, choice, vector) in [(0, 0, [1.0, 0.0]), (2, 1, [0.0, 2.0]), (3, 1, [1e300, 0.0])] {
            let reply = Reply { rows: 10, counts: vec![choice], numbers: vec![0.5], vector: Some(vector.to_vec()) };
            summed.add(&order, client, reply);
        }
        (order, summed)
    }

    #[test]
    fn sums_that_contradict_the_answers_are_refused() {
        let (order, sound) = summed();
        let shape = (2, 1, 1, 2);
        assert_eq!(sound.fault(&order, shape), None);
        assert_eq!(sound.sums[1].sum(&order.grid).total, [0.0, 20.0]);
        let fault = |change: fn(&mut Summed)| {
            let mut summed = sound.clone();
            change(&mut summed);
            summed.fault(&order, shape).unwrap_or("none")
        };
        assert!(fault(|it| it.clients[1] = 0).contains("twice"));
        assert!(fault(|it| it.counts[0] = 7).contains("nobody was sent"));
        assert!(fault(|it| it.sums[0].count = 2).contains("not of its clients"));
        assert!(fault(|it| it.sums[1].total[0] = i128::MAX).contains("longer"));
        assert!(fault(|it| it.lengths[2] = 1.0).contains("not of its clients"));
        assert!(fault(|it| drop(it.sums.pop())).contains("shape"));
        assert!(fault(|it| it.numbers.clear()).contains("shape"));
    }

    #[test]
    fn totals_are_added_apart_from_the_answers() {
        let (order, summed) = summed();
        let alone = |totals: Totals| Totals::decode(&totals.encode().unwrap()).unwrap();
        let mut replies = [[(4, summed.clone())], [(4, summed.clone())], [(5, summed.clone())]];
        let [mut one, other, another] = replies.each_mut().map(|reply| alone(Totals::take_out(reply)));
        assert!(replies.iter().flatten().all(|(_, summed)| summed.sums.iter().all(|sum| sum.total.is_empty())));
        one.merge(another);
        one.merge(other);
        let mut twice = summed.sums[1].clone();
        twice.merge(&summed.sums[1]);
        assert_eq!(one.claim(4, 1), Some(twice.total));
        assert_eq!((one.claim(4, 1), one.claim(4, 2)), (Some(Vec::new()), None));
        assert_eq!(one.claim(5, 0), Some(summed.sums[0].total.clone()));
        assert!(order.grid.holds(1.0) && Totals::decode(&[9]).is_err());
    }

    #[test]
    fn sums_survive_the_wire() {
        let (_, summed) = summed();
        let bytes = postcard::to_stdvec(&summed).unwrap();
        assert_eq!(postcard::from_bytes::<Summed>(&bytes).unwrap(), summed);
        assert!((0..bytes.len()).all(|end| postcard::from_bytes::<Summed>(&bytes[..end]).is_err()));
    }
}
