//! Single replies into answers, without those that are implausible.
//!
//! A reply is first checked on its own: lengths, rows as described, numbers that are possible. Then against those of the
//! other clients: one that is not finite, or larger by orders of magnitude, is blamed on its client as long as most are
//! sound; where most are not finite, the method has diverged, and sees it.
//!
//! Of vectors that were summed elsewhere (`fixed.rs`), the checks know the lengths. A client that is found out of place only
//! here is in its machine's sum already: the engine asks for its vector alone, and takes it out again.

use super::ledger::{Ledger, Long, Opposed, Size};
use crate::aggregate::{Sum, Weight};
use crate::error::Result;
use crate::federation::fixed::{FixedSum, Grid, SumOrder, Summand, Summed};
use crate::federation::sealed::{Blocks, SealedOrder, SealedSum, open_answers, sealed_order};
use crate::federation::secure::Minimum;
use crate::federation::work::{Content, Reply, Work};
use crate::federation::{Absence, Answers, Ask, By, Gather, Missing, Order, OrderAnswers, Phase, Slot, part_of};
use crate::models::{Model, Reduced};
use crate::num::{add_scaled, distance, dot, median, norm};
use std::collections::{BTreeMap, BTreeSet};

/// How many times longer than the others' a model may be: it scales with the data, everything else with its square.
const FAR: f64 = 1e6;
/// Fewest answers among which one can be called an outlier.
const PEERS: usize = 3;
/// Numbers held back to be compared with those of later clients.
const WAITING: usize = 1 << 26;
/// Most numbers in answers of which every single one is looked at in the first round, though only sums are wanted.
const LOOKED_AT: usize = 1 << 22;
/// Fewest updates with a common direction, and fewest numbers in one.
const FEWEST_UPDATES: (usize, usize) = (5, 20);

/// How vectors are summed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Addition {
    /// As floating-point numbers.
    #[default]
    Float,
    /// As integers.
    Integer,
    /// As integers, with all that clients answer, and nothing else is told of them.
    Sealed,
    /// The same, where nobody sees a slot with fewer clients, nor what single machines add.
    Secure(Minimum),
}

impl Addition {
    /// Whether nothing is told of single clients.
    pub fn is_sealed(self) -> bool {
        matches!(self, Addition::Sealed | Addition::Secure(_))
    }
}

/// Collects replies, and sums that an engine reduced while computing.
pub struct Gatherer<'a> {
    ask: &'a Ask,
    soundness: Soundness,
    /// Training rows of every client, as described.
    rows: Vec<u32>,
    longest_model: f64,
    waiting: Vec<Waiting>,
    held: usize,
    /// How the vectors of each order are summed as integers, where they are, and the sums.
    integer: Vec<Option<(SumOrder, Vec<FixedSum>)>>,
    /// Whether single vectors are looked at though they could be summed: who sends one alone depends on how clients are spread over machines.
    sees_vectors: bool,
    /// The fewest clients of a slot that is seen.
    least: usize,
    /// The sums of each order, where nothing else is told.
    sealed: Vec<(SealedOrder, Blocks, SealedSum)>,
    /// Slots with a vector that no sum can hold, by order.
    spoiled: BTreeSet<(usize, usize)>,
    /// Who is in a sum and was refused after all, by order.
    to_remove: BTreeSet<(usize, u32)>,
    /// Sizes of the answers to each order so far.
    sizes: Vec<Vec<Size>>,
    answers: Answers,
    ledger: Ledger,
}

/// A reply that is sound by itself.
struct Waiting {
    order: usize,
    client: u32,
    reply: Reply,
    size: Size,
    /// Whether its vector is in a sum already, unless that cannot hold it.
    is_summed: bool,
}

/// What shows whether a reply can be true.
#[derive(Debug, Clone, Copy)]
pub struct Soundness {
    /// Number of a model's parameters.
    width: usize,
    least_loss: f64,
}

/// The typical answer to an order.
#[derive(Debug, Clone, Copy, Default)]
struct Peers {
    /// Medians over the clients.
    usual: Size,
    /// Whether most have no finite loss.
    diverged: bool,
}

pub fn slots(gather: Gather, work: &Work) -> usize {
    match gather {
        Gather::Sum { by: By::Choice, .. } => work.needs().models.len(),
        _ => 1,
    }
}

pub fn longest(ask: &Ask) -> f64 {
    ask.models.iter().map(|model| norm(model)).filter(|length| length.is_finite()).fold(0.0, f64::max)
}

/// Whether one of the clients in these sums may have sent a vector that is not finite or far too long.
pub fn is_suspect(work: &Work, reduced: &Reduced, longest_model: f64) -> bool {
    let far = |sum: &Sum| {
        let length = norm(&sum.total) / sum.weight;
        sum.count > 0 && (length.is_nan() || length > far(work) * (1.0 + longest_model))
    };
    reduced.losses.iter().any(|loss| !loss.is_finite()) || reduced.sums.iter().any(far)
}

/// How many times longer than the others' an answer to this work may be.
fn far(work: &Work) -> f64 {
    match work.sends(1).content {
        Content::Trained | Content::Minimiser => FAR,
        _ => FAR * FAR,
    }
}

impl<'a> Gatherer<'a> {
    pub fn new(ask: &'a Ask, model: &dyn Model, rows: Vec<u32>, ledger: &Ledger, addition: Addition) -> Self {
        let longest_model = longest(ask);
        let integer = |order: &Order| {
            let Gather::Sum { by, weight } = ask.gather else { return None };
            if addition != Addition::Integer || !order.work.sends_vector() {
                return None;
            }
            let all = order.to.among(rows.len()).map(|client| weight.of(rows[client as usize] as usize) as u64).sum();
            let usual = ledger.usual.get(order.work.name()).and_then(|usual| usual.length);
            let order_of = SumOrder { by, weight, grid: Grid::new(longest_model, usual, all) };
            Some((order_of, vec![FixedSum::default(); slots(ask.gather, &order.work)]))
        };
        let integer = ask.orders.iter().map(integer).collect();
        let orders = ask.orders.iter().map(|order| {
            let sums = match ask.gather {
                Gather::Sum { .. } if order.work.sends_vector() => slots(ask.gather, &order.work),
                _ => 0,
            };
            OrderAnswers { sums: vec![Sum::default(); sums], ..OrderAnswers::default() }
        });
        Self {
            ask,
            soundness: Soundness::of(model),
            rows,
            longest_model,
            waiting: Vec::new(),
            held: 0,
            integer,
            sees_vectors: false,
            least: if let Addition::Secure(minimum) = addition { minimum.clients } else { 0 },
            sealed: Vec::new(),
            spoiled: BTreeSet::new(),
            to_remove: BTreeSet::new(),
            sizes: vec![Vec::new(); ask.orders.len()],
            answers: Answers { orders: orders.collect(), ..Answers::default() },
            ledger: ledger.clone(),
        }
    }

    pub fn missing(&mut self, client: u32, reason: Absence) {
        self.answers.missing.push(Missing { client, reason });
    }

    pub fn refuse(&mut self, client: u32, what: String) {
        self.missing(client, Absence::Garbage);
        self.ledger.blame(client, what);
    }

    /// Takes one reply, or records it as garbage. The replies to an order come in ascending order of the clients.
    pub fn take(&mut self, order: usize, client: u32, reply: Reply) {
        let work = &self.ask.orders[order].work;
        let size = Size::of(work, &reply);
        let vector = reply.vector.as_ref().map_or(0, Vec::len);
        if let Some(what) = self.soundness.fault(work, self.rows[client as usize], &reply, vector, size) {
            return self.refuse(client, what);
        }
        self.sizes[order].push(size);
        self.held += vector;
        self.waiting.push(Waiting { order, client, reply, size, is_summed: false });
        if self.held > WAITING {
            self.settle();
        }
    }

    /// Takes the reply of a client whose vector is in a sum.
    fn take_summand(&mut self, order: usize, Summand { client, reply, length }: Summand) {
        let work = &self.ask.orders[order].work;
        let size = Size { length: Some(length), loss: work.loss(&reply) };
        let vector = work.sends(self.soundness.width).length;
        match self.soundness.fault(work, self.rows[client as usize], &reply, vector, size) {
            Some(what) => {
                self.refuse(client, what);
                self.to_remove.extend(self.holds(order, size).then_some((order, client)));
            }
            None => {
                self.sizes[order].push(size);
                self.waiting.push(Waiting { order, client, reply, size, is_summed: true });
            }
        }
    }

    fn sum_orders(&self) -> Vec<Option<SumOrder>> {
        self.integer.iter().map(|integer| integer.as_ref().map(|(order, _)| *order)).collect()
    }

    /// How the answers to each order are added up where nothing else is told of clients; an error for single answers.
    pub fn seal(&mut self) -> Result<Vec<SealedOrder>> {
        for order in &self.ask.orders {
            open_answers(self.ask.gather, order).map_or(Ok(()), Err)?;
            let clients: Vec<u32> = order.to.among(self.rows.len()).collect();
            let of = match self.ask.gather {
                Gather::Sum { weight, .. } => weight,
                Gather::Each => Weight::Uniform,
            };
            let weight = clients.iter().map(|&client| of.of(self.rows[client as usize] as usize) as u64).sum();
            // A model is about as long as the one it was trained from; a gradient may be anything.
            let usual = self.ledger.usual.get(order.work.name()).and_then(|usual| usual.length);
            let sends = order.work.sends(self.soundness.width);
            let is_model = matches!(sends.content, Content::Trained | Content::Minimiser);
            let usual = usual.or(is_model.then_some(0.0));
            let sealed = sealed_order(self.ask.gather, (clients.len(), weight), self.longest_model, usual);
            let Some(blocks) = Blocks::of(self.ask.gather, &order.work, self.soundness.width) else { continue };
            self.sealed.push((sealed, blocks, SealedSum::nobody(blocks)));
        }
        Ok(self.sealed.iter().map(|(order, _, _)| *order).collect())
    }

    /// The blocks of an order's sums.
    pub fn blocks(&self, order: usize) -> Blocks {
        self.sealed[order].1
    }

    /// Why this cannot be the sum over some of these clients' answers to an order.
    pub fn fault(&self, order: usize, clients: &[u32], found: &SealedSum) -> Option<&'static str> {
        let (sealed, blocks, _) = &self.sealed[order];
        let weight = clients.iter().map(|&client| sealed.sum.weight(self.rows[client as usize])).sum();
        found.fault(sealed, *blocks, (clients.len(), weight))
    }

    /// Takes the sum over those of these clients who gave a usable answer to an order. It must have been found sound.
    pub fn take_sealed(&mut self, order: usize, clients: &[u32], found: &SealedSum) {
        self.sealed[order].2.merge(found);
        self.answers.orders[order].clients.extend(clients);
    }

    /// Takes sums in which single clients are hidden: neither who was reached nor who is in none is told.
    pub fn take_hidden(&mut self, order: usize, (sums, slots): (Vec<Sum>, Vec<Slot>)) {
        self.ledger.useful += 1;
        let answers = &mut self.answers.orders[order];
        (answers.sums, answers.slots) = (sums, slots);
    }

    /// The sums as answers.
    fn open_sums(&mut self) {
        for (order, (sealed, blocks, sum)) in self.sealed.iter_mut().enumerate() {
            let answers = &mut self.answers.orders[order];
            answers.unseen = sum.empty_small(*blocks, self.least) * self.least.saturating_sub(1);
            answers.clients.sort_unstable();
            answers.rows = answers.clients.iter().map(|&client| self.rows[client as usize]).collect();
            (answers.sums, answers.slots) = sum.read(sealed, *blocks);
            let work = &self.ask.orders[order].work;
            if self.ask.phase != Phase::Evaluate && work.sends(1).numbers > 0 {
                self.ledger.useful += answers.answered() as u64;
                let beside = answers.clients.len().saturating_sub(answers.answered());
                self.ledger.unseen += beside.min(answers.unseen) as u64;
            }
            // A mean is about as long as its terms.
            let means = answers.sums.iter().filter(|sum| sum.count > 0).map(|sum| norm(&sum.total) / sum.weight);
            if let Some(length) = means.reduce(f64::max) {
                self.ledger.usual.insert(work.name().to_string(), Size { length: Some(length), loss: None });
            }
        }
    }

    /// How the vectors of each order are summed as integers: those of none where answers are `altered` on their way, or are to be looked at.
    pub fn sums_wanted(&mut self, altered: bool) -> Vec<Option<SumOrder>> {
        self.sees_vectors = altered || self.wants_vectors();
        if self.sees_vectors { vec![None; self.ask.orders.len()] } else { self.sum_orders() }
    }

    /// Whether every single vector is to be looked at, although only sums are wanted: once, in the first round.
    fn wants_vectors(&self) -> bool {
        let numbers = |order: &Order| {
            let (sends, clients) = (order.work.sends(self.soundness.width), order.to.among(self.rows.len()).count());
            let is_compared = clients >= FEWEST_UPDATES.0 && sends.length >= FEWEST_UPDATES.1 && is_update(&order.work);
            if is_compared { clients * sends.length } else { 0 }
        };
        let numbers: usize = self.ask.orders.iter().map(numbers).sum();
        self.ask.phase == Phase::Train && !self.ledger.opposed.looked && (1..=LOOKED_AT).contains(&numbers)
    }

    /// The shape of what is summed: slots, and each client's counts, numbers and numbers in its vector.
    pub fn shape(&self, order: usize) -> (usize, usize, usize, usize) {
        let work = &self.ask.orders[order].work;
        let sends = work.sends(self.soundness.width);
        (slots(self.ask.gather, work), sends.counts, sends.numbers, sends.length)
    }

    /// Takes the replies of clients whose vectors are summed, by their numbers there. The sums must have been found sound.
    pub fn take_summed(&mut self, order: usize, summed: &Summed, place: impl Fn(u32) -> Option<u32>) {
        for (client, what) in &summed.refused {
            place(*client).into_iter().for_each(|client| self.refuse(client, what.clone()));
        }
        for summand in summed.summands() {
            if let Some(client) = place(summand.client) {
                self.take_summand(order, Summand { client, ..summand });
            }
        }
        if let Some((_, totals)) = &mut self.integer[order] {
            totals.iter_mut().zip(&summed.sums).for_each(|(total, sum)| total.merge(sum));
        }
    }

    /// Takes out what those added who were refused afterwards.
    pub fn remove_sums(&mut self, order: usize, sums: &[FixedSum]) {
        if let Some((_, totals)) = &mut self.integer[order] {
            totals.iter_mut().zip(sums).for_each(|(total, sum)| total.remove(sum));
        }
    }

    /// Compares all replies so far with each other. Returns who, by order, is in a sum and must be taken out.
    pub fn judge(&mut self) -> BTreeSet<(usize, u32)> {
        self.settle();
        std::mem::take(&mut self.to_remove)
    }

    /// Whether an order's sum holds a vector of this size.
    fn holds(&self, order: usize, size: Size) -> bool {
        match (&self.integer[order], size.length) {
            (Some((order, _)), Some(length)) => order.grid.holds(length),
            _ => true,
        }
    }

    pub fn take_sums(&mut self, order: usize, clients: Vec<u32>, reduced: Reduced) {
        let tells_choice = self.ask.orders[order].work.tells_choice();
        let answers = &mut self.answers.orders[order];
        let rows = clients.iter().map(|&client| self.rows[client as usize]);
        answers.rows.extend(rows);
        self.ledger.useful += clients.len() as u64;
        answers.clients.extend(clients);
        answers.counts.extend(reduced.choices.into_iter().filter(|_| tells_choice));
        // A mean is about as long as its terms.
        let means = reduced.sums.iter().filter(|sum| sum.count > 0).map(|sum| norm(&sum.total) / sum.weight);
        self.sizes[order].extend(means.map(|length| Size { length: Some(length), loss: None }));
        self.sizes[order].extend(reduced.losses.iter().map(|&loss| Size { length: None, loss: Some(loss) }));
        answers.numbers.extend(reduced.losses);
        answers.sums.iter_mut().zip(&reduced.sums).for_each(|(sum, part)| sum.merge(part));
    }

    /// In the first round, records whose updates oppose those of the other clients that started from the same model.
    fn look_for_opposed(&mut self) {
        const FEWEST: (usize, usize) = FEWEST_UPDATES;
        /// Smallest cosine between the median update and the common direction.
        const COMMON: f64 = 0.2;
        if self.ask.phase != Phase::Train || self.ledger.opposed.among > 0 {
            return;
        }
        // By order and choice; gradients have no base.
        type Updates<'u> = (Option<usize>, Vec<(u32, &'u [f64])>);
        let mut groups: BTreeMap<(usize, Option<u32>), Updates> = BTreeMap::new();
        for Waiting { order, client, reply, .. } in &self.waiting {
            let work = &self.ask.orders[*order].work;
            if let Some(vector) = reply.vector.as_ref().filter(|it| is_update(work) && it.len() >= FEWEST.1) {
                let of_choice = || (work.base(reply), Vec::new());
                let group = groups.entry((*order, reply.counts.first().copied())).or_insert_with(of_choice);
                group.1.push((*client, vector));
            }
        }
        let (mut among, mut away) = (0, BTreeSet::new());
        for (base, members) in groups.values().filter(|(_, members)| members.len() >= FEWEST.0) {
            let zero = vec![0.0; members[0].1.len()];
            let base = base.map_or(&zero[..], |model| &self.ask.models[model]);
            let lengths: Vec<f64> = members.iter().map(|(_, vector)| distance(vector, base)).collect();
            let mut common = vec![0.0; base.len()];
            for ((_, vector), length) in members.iter().zip(&lengths) {
                if *length > 0.0 && length.is_finite() {
                    add_scaled(&mut common, 1.0 / length, vector);
                    add_scaled(&mut common, -1.0 / length, base);
                }
            }
            let (whole, offset) = (norm(&common), dot(base, &common));
            let cosine =
                |((_, vector), length): (&(u32, &[f64]), &f64)| (dot(vector, &common) - offset) / (length * whole);
            let cosines: Vec<f64> = members.iter().zip(&lengths).map(cosine).collect();
            among += members.len();
            if let Some(usual) = finite_median(cosines.iter().copied()).filter(|usual| *usual >= COMMON) {
                let opposed = members.iter().zip(cosines).filter(|(_, cosine)| *cosine < -0.5 * usual);
                away.extend(opposed.map(|((client, _), _)| *client));
            }
        }
        self.ledger.opposed.looked |= self.wants_vectors();
        if among > 0 {
            self.ledger.opposed = Opposed { clients: away, among, looked: true };
        }
    }

    /// Records whose updates are, number by number, those of others to the same order.
    fn look_for_copies(&mut self) {
        if self.ask.phase != Phase::Train {
            return;
        }
        let mut same: BTreeMap<(usize, Option<u32>, u64), Vec<u32>> = BTreeMap::new();
        for Waiting { order, client, reply, .. } in self.waiting.iter().filter(|waiting| self.sees(waiting.order)) {
            let vector = reply.vector.as_ref().filter(|it| it.len() >= FEWEST_UPDATES.1);
            let work = &self.ask.orders[*order].work;
            if let Some(vector) = vector.filter(|_| is_update(work)) {
                let base = work.base(reply).map(|model| &self.ask.models[model]);
                // Who does not move at all is not suspicious.
                if base.is_none_or(|base| **base != *vector) && vector.iter().any(|value| *value != 0.0) {
                    let place = (*order, reply.counts.first().copied(), digest(vector));
                    same.entry(place).or_default().push(*client);
                }
            }
        }
        for clients in same.values().filter(|clients| clients.len() > 1) {
            let copies = &mut self.ledger.copies;
            copies.most = copies.most.max(clients.len());
            clients.iter().for_each(|&client| *copies.clients.entry(client).or_default() += 1);
        }
    }

    /// Records whose updates are several times as long as is usual among those that began from the same model.
    fn look_for_long(&mut self) {
        /// The least share of a model's length that an update must have: near a minimum, lengths tell little.
        const LEAST: f64 = 0.01;
        if self.ask.phase != Phase::Train {
            return;
        }
        // By order and choice.
        type Lengths = Vec<(u32, f64)>;
        let mut groups: BTreeMap<(usize, Option<u32>), Lengths> = BTreeMap::new();
        for waiting in self.waiting.iter().filter(|waiting| is_update(&self.ask.orders[waiting.order].work)) {
            if let Some(length) = self.update_length(waiting) {
                let group = groups.entry((waiting.order, waiting.reply.counts.first().copied())).or_default();
                group.push((waiting.client, length));
            }
        }
        groups.retain(|_, members| members.len() >= FEWEST_UPDATES.0);
        self.ledger.long.asks += usize::from(!groups.is_empty());
        let mut long = BTreeSet::new();
        for members in groups.values() {
            let usual = finite_median(members.iter().map(|(_, length)| *length)).unwrap_or(f64::INFINITY);
            let least = LEAST * (1.0 + self.longest_model);
            let is_long = |length: f64| length > Long::TIMES * usual && length > least;
            long.extend(members.iter().filter(|(_, length)| is_long(*length)).map(|(client, _)| *client));
        }
        long.into_iter().for_each(|client| *self.ledger.long.clients.entry(client).or_default() += 1);
    }

    /// The median length of the updates among the waiting replies to each order, where enough can be compared.
    fn usual_updates(&self) -> Vec<Option<f64>> {
        let mut lengths = vec![Vec::new(); self.sizes.len()];
        for waiting in &self.waiting {
            lengths[waiting.order].extend(self.update_length(waiting));
        }
        let usual = |lengths: &Vec<f64>| finite_median(lengths.iter().copied()).filter(|_| lengths.len() >= PEERS);
        lengths.iter().map(usual).collect()
    }

    /// Whether the vectors of all answers to an order are seen one by one.
    fn sees(&self, order: usize) -> bool {
        self.sees_vectors || self.integer[order].is_none()
    }

    /// How far a trained model is from the one that it began from, where those of all are seen.
    fn update_length(&self, Waiting { order, reply, .. }: &Waiting) -> Option<f64> {
        if !self.sees(*order) {
            return None;
        }
        let base = self.ask.models.get(self.ask.orders[*order].work.base(reply)?)?;
        reply.vector.as_ref().filter(|vector| vector.len() == base.len()).map(|vector| distance(vector, base))
    }

    /// Checks the waiting replies against each other, and adds up the sound ones.
    fn settle(&mut self) {
        self.look_for_opposed();
        self.look_for_copies();
        self.look_for_long();
        let usual_updates = self.usual_updates();
        let peers = self.peers();
        for waiting in std::mem::take(&mut self.waiting) {
            let Waiting { order, client, size, is_summed, .. } = waiting;
            let too_long = self.too_long(&waiting, usual_updates[order]);
            match self.out_of_place(order, size, peers[order]).or(too_long) {
                Some(what) => {
                    self.refuse(client, what);
                    self.to_remove.extend((is_summed && self.holds(order, size)).then_some((order, client)));
                }
                None => self.add(waiting),
            }
        }
        self.held = 0;
    }

    /// The typical answer to each order: among its own if enough, else to the same kind of work, else in earlier asks.
    fn peers(&mut self) -> Vec<Peers> {
        let mut kinds: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
        for (order, of) in self.ask.orders.iter().enumerate() {
            kinds.entry(of.work.name()).or_default().push(order);
        }
        let range = |order: usize| self.integer[order].as_ref().map(|(order, _)| order.grid.range);
        let mut peers = vec![Peers::default(); self.sizes.len()];
        for (kind, orders) in kinds {
            let all: Vec<Size> = orders.iter().flat_map(|&order| self.sizes[order].iter().copied()).collect();
            let together = if all.len() >= PEERS {
                let found = Peers::of(&all, orders.iter().filter_map(|&order| range(order)).reduce(f64::min));
                if !found.diverged && self.ask.phase != Phase::Evaluate {
                    self.ledger.usual.insert(kind.to_string(), found.usual);
                }
                found
            } else {
                Peers { usual: self.ledger.usual.get(kind).copied().unwrap_or_default(), diverged: false }
            };
            for order in orders {
                let sizes = &self.sizes[order];
                peers[order] = if sizes.len() >= PEERS { Peers::of(sizes, range(order)) } else { together };
            }
        }
        peers
    }

    /// What is wrong with a reply compared with the others'.
    fn out_of_place(&self, order: usize, size: Size, peers: Peers) -> Option<String> {
        let work = &self.ask.orders[order].work;
        // The evaluator reports scores that are not finite.
        let is_score = self.ask.phase == Phase::Evaluate && work.sends(1).content == Content::Nothing;
        if !is_score && !peers.diverged && size.loss.is_some_and(|loss| !loss.is_finite()) {
            return Some(format!("a loss of {}, while the others' are finite", size.loss.unwrap_or(f64::NAN)));
        }
        let beyond = |value: Option<f64>, usual: Option<f64>, times: f64, beside: f64| {
            let (value, usual) = (value.filter(|value| value.is_finite())?, usual?);
            (value.abs() > times * (1.0 + usual.abs() + beside)).then_some((value, usual))
        };
        if let Some((length, usual)) = beyond(size.length, peers.usual.length, far(work), self.longest_model) {
            return Some(format!("{length:.1e} in {}, where {usual:.1e} is usual", work.name()));
        }
        if let Some((loss, usual)) = beyond(size.loss, peers.usual.loss, FAR * FAR, 0.0) {
            return Some(format!("a loss of {loss:.1e}, where {usual:.1e} is usual"));
        }
        if !peers.diverged && !self.holds(order, size) {
            let length = size.length.unwrap_or(f64::NAN);
            return Some(format!("{length:.1e} in {}, more than a sum of integers can hold", work.name()));
        }
        None
    }

    /// What is wrong with an update that is longer than the others' by orders of magnitude, and long for its model too: near a
    /// minimum most are next to nothing.
    fn too_long(&self, waiting: &Waiting, usual: Option<f64>) -> Option<String> {
        const TIMES: f64 = 1e3;
        const MODELS: f64 = 10.0;
        let (length, usual) = (self.update_length(waiting)?, usual?);
        let is_far = length > TIMES * usual && length > MODELS * (1.0 + self.longest_model);
        is_far.then(|| format!("an update of length {length:.1e}, where {usual:.1e} is usual"))
    }

    fn add(&mut self, Waiting { order, client, reply, size, is_summed }: Waiting) {
        let is_work = self.ask.orders[order].work.sends(1).numbers > 0;
        self.ledger.useful += u64::from(is_work && self.ask.phase != Phase::Evaluate);
        let is_held = self.holds(order, size);
        let answers = &mut self.answers.orders[order];
        answers.clients.push(client);
        answers.rows.push(reply.rows);
        answers.counts.extend(&reply.counts);
        answers.numbers.extend(&reply.numbers);
        if let Some((sums, totals)) = &mut self.integer[order] {
            let slot = sums.slot(&reply.counts);
            if !is_held {
                self.spoiled.insert((order, slot));
            } else if !is_summed {
                totals[slot].add(&sums.grid, sums.weight(reply.rows), &reply.vector.unwrap_or_default());
            }
            return;
        }
        let Some(vector) = reply.vector else { return };
        match self.ask.gather {
            Gather::Each => answers.vectors.extend(vector),
            Gather::Sum { by, weight } => {
                let slot = if by == By::Choice { reply.counts.first().copied().unwrap_or(0) as usize } else { 0 };
                answers.sums[slot].add(weight.of(reply.rows as usize), &vector);
            }
        }
    }

    pub fn finish(mut self, stamp: u64) -> (Answers, Ledger) {
        self.settle();
        self.open_sums();
        for (order, (answers, integer)) in self.answers.orders.iter_mut().zip(&self.integer).enumerate() {
            let Some((sums, totals)) = integer else { continue };
            answers.sums = totals.iter().map(|total| total.sum(&sums.grid)).collect();
            let length = self.ask.orders[order].work.sends(self.soundness.width).length;
            for (slot, sum) in answers.sums.iter_mut().enumerate() {
                if self.spoiled.contains(&(order, slot)) {
                    *sum = Sum { total: vec![f64::NAN; length], count: sum.count.max(1), weight: sum.weight.max(1.0) };
                }
            }
        }
        self.answers.orders.iter_mut().for_each(OrderAnswers::sort_by_client);
        self.answers.missing.sort_by_key(|missing| missing.client);
        self.answers.missing.dedup_by_key(|missing| missing.client);
        (Answers { stamp, ..self.answers }, self.ledger)
    }
}

/// A number that stands for all bits of a vector: FNV-1a over its words.
fn digest(vector: &[f64]) -> u64 {
    vector.iter().fold(0xcbf2_9ce4_8422_2325, |digest, value| (digest ^ value.to_bits()).wrapping_mul(0x100_0000_01b3))
}

fn is_update(work: &Work) -> bool {
    matches!(work.sends(1).content, Content::Trained | Content::Gradient)
}

impl Soundness {
    pub fn of(model: &dyn Model) -> Self {
        Self { width: model.layout().len(), least_loss: model.least_loss() }
    }

    /// What is wrong with a reply on its own.
    pub fn find_fault(&self, work: &Work, rows: u32, reply: &Reply) -> Option<String> {
        let vector = reply.vector.as_ref().map_or(0, Vec::len);
        self.fault(work, rows, reply, vector, Size::of(work, reply))
    }

    /// The same for a vector of so many numbers, which need not be there. A client has so many training rows.
    fn fault(&self, work: &Work, rows: u32, reply: &Reply, found: usize, size: Size) -> Option<String> {
        if reply.rows != rows {
            return Some(format!("{} rows, want {rows} as it said of its data", reply.rows));
        }
        let sends = work.sends(self.width);
        let is_empty = found == 0 && reply.numbers.is_empty() && reply.counts.is_empty();
        if is_empty && sends.length + sends.numbers + sends.counts > 0 {
            return Some(format!("nothing for {}, which its rows do not allow", work.name()));
        }
        let (losses, counts) = (reply.numbers.len(), reply.counts.len());
        let parts =
            [("numbers", found, sends.length), ("losses", losses, sends.numbers), ("counts", counts, sends.counts)];
        if let Some((what, found, want)) = parts.into_iter().find(|(_, found, want)| found != want) {
            return Some(format!("{found} {what}, want {want}"));
        }
        // Whose fault a diverged model is shows in comparison with the others.
        let has_blown_up = size.loss.is_some_and(|loss| !loss.is_finite());
        if size.length.is_some_and(|length| !length.is_finite()) && !has_blown_up {
            return Some(format!("a number in {} that is not finite", work.name()));
        }
        work.implausible(reply, self.least_loss)
    }
}

impl Size {
    fn of(work: &Work, reply: &Reply) -> Self {
        Self { length: reply.vector.as_ref().map(|vector| norm(vector)), loss: work.loss(reply) }
    }
}

impl Peers {
    /// Among answers of these sizes; a sum holds vectors up to `range`.
    fn of(sizes: &[Size], range: Option<f64>) -> Self {
        let losses: Vec<f64> = sizes.iter().filter_map(|size| size.loss).collect();
        let broken = losses.iter().filter(|loss| !loss.is_finite()).count();
        let usual = Size {
            length: finite_median(sizes.iter().filter_map(|size| size.length)),
            loss: finite_median(losses.iter().copied()),
        };
        let lengths = || sizes.iter().filter_map(|size| size.length);
        let beyond = range.map_or(0, |range| lengths().filter(|length| length.is_nan() || *length > range).count());
        Self { usual, diverged: 2 * broken > losses.len() || 2 * beyond > lengths().count() }
    }
}

/// The median of the finite ones of these numbers.
fn finite_median(values: impl Iterator<Item = f64>) -> Option<f64> {
    median(values.filter(|value| value.is_finite()))
}

impl OrderAnswers {
    /// Sorts answers that came partly one by one and partly as sums.
    fn sort_by_client(&mut self) {
        if self.clients.is_sorted() {
            return;
        }
        let count = self.clients.len();
        let mut places: Vec<usize> = (0..self.clients.len()).collect();
        places.sort_by_key(|&place| self.clients[place]);
        let numbers = places.iter().flat_map(|&place| part_of(&self.numbers, place, count)).copied().collect();
        let sorted = |list: &[u32]| places.iter().flat_map(|&place| part_of(list, place, count)).copied().collect();
        (self.rows, self.counts, self.numbers) = (sorted(&self.rows), sorted(&self.counts), numbers);
        self.clients = sorted(&self.clients);
    }
}
