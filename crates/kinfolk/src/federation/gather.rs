//! The server's side: single replies into answers. What cannot be true does not get in.
//!
//! A reply is looked at by itself first: lengths, rows as they were described, numbers that are possible. Then beside
//! those of the other clients: one that is not finite, or larger than the others' by orders of magnitude, is its client's
//! fault while most are as they should be; where most are not finite, the method has diverged, and sees it.

use super::ledger::{Ledger, Opposed, Usual};
use super::local::base_of;
use super::wire::Reply;
use super::{Absence, Answers, Ask, By, Gather, Missing, OrderAnswers, Phase, Sum, Then, Weight, Work};
use crate::linalg::{add_scaled, distance, dot, norm};
use crate::models::{Model, Reduced};
use std::collections::{BTreeMap, BTreeSet};

/// How many times as long as the others' a model may be, which grows with the numbers in the data; whatever else is sent
/// and every loss may grow with their squares.
const FAR: f64 = 1e6;
/// With fewer answers than these nobody can be told apart from the others.
const PEERS: usize = 3;
/// Numbers that may wait to be compared with those of the clients that follow.
const WAITING: usize = 1 << 26;

/// What replies are held against.
pub(super) struct Expected {
    /// Parameters of a model.
    pub width: usize,
    /// No loss is less than this.
    pub least_loss: f64,
    /// Training rows of every client, as described.
    pub rows: Vec<u32>,
}

impl Expected {
    pub(super) fn of(model: Option<&dyn Model>, rows: Vec<u32>) -> Self {
        let width = model.map_or(0, |model| model.layout().len());
        Self { width, least_loss: model.map_or(f64::NEG_INFINITY, |model| model.least_loss()), rows }
    }
}

/// Collects replies, and sums that an engine reduced while it computed.
pub(super) struct Gatherer<'a> {
    ask: &'a Ask,
    expected: Expected,
    /// The longest model of the ask.
    longest_model: f64,
    waiting: Vec<(usize, u32, Reply)>,
    /// Numbers in the vectors that wait.
    held: usize,
    /// How large the answers to each order were so far.
    sizes: Vec<Vec<Size>>,
    answers: Answers,
    ledger: Ledger,
}

/// How large one answer is.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Of its vector.
    length: Option<f64>,
    /// Its loss, or what stands for it; `None` for an answer without any.
    loss: Option<f64>,
}

/// What the answers to an order are like.
#[derive(Debug, Clone, Copy, Default)]
struct Peers {
    usual: Usual,
    /// Whether most of them have no finite loss.
    diverged: bool,
}

/// How many slots the sum of an order has.
pub(super) fn slots(gather: Gather, work: &Work) -> usize {
    match gather {
        Gather::Sum { by: By::Choice, .. } => work.models().len(),
        _ => 1,
    }
}

/// The longest of an ask's models.
pub(super) fn longest(ask: &Ask) -> f64 {
    ask.models.iter().map(|model| norm(model)).filter(|length| length.is_finite()).fold(0.0, f64::max)
}

/// Whether somebody in these sums may have sent what is not finite or far too long, so that they have to be told apart.
pub(super) fn is_suspect(work: &Work, reduced: &Reduced, longest_model: f64) -> bool {
    let far = |sum: &Sum| {
        let length = norm(&sum.total) / sum.weight;
        sum.count > 0 && (length.is_nan() || length > far(work) * (1.0 + longest_model))
    };
    reduced.losses.iter().any(|loss| !loss.is_finite()) || reduced.sums.iter().any(far)
}

/// How many times as long as the others' an answer to this work may be.
fn far(work: &Work) -> f64 {
    match work {
        Work::Train { .. } | Work::Minimise { .. } | Work::Choose { then: Then::Train(_), .. } => FAR,
        _ => FAR * FAR,
    }
}

impl<'a> Gatherer<'a> {
    pub(super) fn new(ask: &'a Ask, expected: Expected, ledger: &Ledger) -> Self {
        let orders = ask.orders.iter().map(|order| {
            let sums = match ask.gather {
                Gather::Sum { .. } if order.work.sends_vector() => slots(ask.gather, &order.work),
                _ => 0,
            };
            OrderAnswers { sums: vec![Sum::default(); sums], ..OrderAnswers::default() }
        });
        Self {
            ask,
            expected,
            longest_model: longest(ask),
            waiting: Vec::new(),
            held: 0,
            sizes: vec![Vec::new(); ask.orders.len()],
            answers: Answers { orders: orders.collect(), ..Answers::default() },
            ledger: ledger.clone(),
        }
    }

    pub(super) fn missing(&mut self, client: u32, reason: Absence) {
        self.answers.missing.push(Missing { client, reason });
    }

    /// Notes an answer as garbage, and what was wrong with it.
    pub(super) fn refuse(&mut self, client: u32, what: String) {
        self.missing(client, Absence::Garbage);
        self.ledger.blame(client, what);
    }

    /// Takes one reply, or notes it as garbage. The replies to an order come in ascending order of the clients.
    pub(super) fn take(&mut self, order: usize, client: u32, reply: Reply) {
        let work = &self.ask.orders[order].work;
        if let Some(what) = self.expected.fault(work, client, &reply) {
            return self.refuse(client, what);
        }
        self.sizes[order].push(Size::of(work, &reply));
        self.held += reply.vector.as_ref().map_or(0, Vec::len);
        self.waiting.push((order, client, reply));
        if self.held > WAITING {
            self.settle();
        }
    }

    /// Takes what an engine summed up while it computed.
    pub(super) fn take_sums(&mut self, order: usize, clients: Vec<u32>, reduced: Reduced) {
        let answers = &mut self.answers.orders[order];
        let rows = clients.iter().map(|&client| self.expected.rows[client as usize]);
        answers.rows.extend(rows);
        self.ledger.useful += clients.len() as u64;
        answers.clients.extend(clients);
        answers.choices.extend(reduced.choices);
        // A mean is about as long as what it is the mean of.
        let means = reduced.sums.iter().filter(|sum| sum.count > 0).map(|sum| norm(&sum.total) / sum.weight);
        self.sizes[order].extend(means.map(|length| Size { length: Some(length), loss: None }));
        self.sizes[order].extend(reduced.losses.iter().map(|&loss| Size { length: None, loss: Some(loss) }));
        answers.losses.extend(reduced.losses);
        answers.sums.iter_mut().zip(&reduced.sums).for_each(|(sum, part)| sum.merge(part));
    }

    /// Notes whose updates point away from those of the other clients that went on from the same model, in the first
    /// round.
    fn look_for_opposed(&mut self) {
        /// With fewer updates there is no common direction, and with fewer numbers in one it says little.
        const FEWEST: (usize, usize) = (5, 20);
        /// The least cosine between a usual update and the common direction.
        const COMMON: f64 = 0.2;
        if self.ask.phase != Phase::Train || !self.ledger.opposed.is_open() {
            return;
        }
        // By order and choice.
        type Updates<'u> = Vec<(u32, &'u [f64])>;
        let mut groups: BTreeMap<(usize, Option<u32>), Updates> = BTreeMap::new();
        for (order, client, reply) in &self.waiting {
            let is_update = matches!(
                self.ask.orders[*order].work,
                Work::Train { .. } | Work::Choose { .. } | Work::Gradient { .. }
            );
            if let Some(vector) = reply.vector.as_ref().filter(|vector| is_update && vector.len() >= FEWEST.1) {
                groups.entry((*order, reply.choice)).or_default().push((*client, vector));
            }
        }
        let (mut among, mut away) = (0, BTreeSet::new());
        for ((order, choice), members) in groups.iter().filter(|(_, members)| members.len() >= FEWEST.0) {
            let zero = vec![0.0; members[0].1.len()];
            let base = base_of(&self.ask.orders[*order].work, *choice);
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
            if let Some(usual) = median(cosines.iter().copied()).filter(|usual| *usual >= COMMON) {
                let opposed = members.iter().zip(cosines).filter(|(_, cosine)| *cosine < -0.5 * usual);
                away.extend(opposed.map(|((client, _), _)| *client));
            }
        }
        if among > 0 {
            self.ledger.opposed = Opposed::found(among, away);
        }
    }

    /// Holds what waits against what the others sent, and adds up what stands.
    fn settle(&mut self) {
        self.look_for_opposed();
        let peers = self.peers();
        for (order, client, reply) in std::mem::take(&mut self.waiting) {
            let work = &self.ask.orders[order].work;
            match self.out_of_place(work, &reply, peers[order]) {
                Some(what) => self.refuse(client, what),
                None => self.add(order, client, reply),
            }
        }
        self.held = 0;
    }

    /// What the answers to each order are like: among themselves where there are enough, else among those to the same
    /// kind of work, else as they were before.
    fn peers(&mut self) -> Vec<Peers> {
        let mut kinds: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
        for (order, of) in self.ask.orders.iter().enumerate() {
            kinds.entry(of.work.name()).or_default().push(order);
        }
        let mut peers = vec![Peers::default(); self.sizes.len()];
        for (kind, orders) in kinds {
            let all: Vec<Size> = orders.iter().flat_map(|&order| self.sizes[order].iter().copied()).collect();
            let together = if all.len() >= PEERS {
                let found = Peers::of(&all);
                if !found.diverged && self.ask.phase != Phase::Evaluate {
                    self.ledger.usual.insert(kind.to_string(), found.usual);
                }
                found
            } else {
                let usual = self.ledger.usual.get(kind).copied().unwrap_or_default();
                Peers { usual, diverged: false }
            };
            for order in orders {
                peers[order] = if self.sizes[order].len() >= PEERS { Peers::of(&self.sizes[order]) } else { together };
            }
        }
        peers
    }

    /// What is wrong with a reply beside those of the others.
    fn out_of_place(&self, work: &Work, reply: &Reply, peers: Peers) -> Option<String> {
        let size = Size::of(work, reply);
        // Scores are taken as they are: the evaluator says whose are not finite.
        let is_score = self.ask.phase == Phase::Evaluate && matches!(work, Work::Score { .. } | Work::Losses { .. });
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
        None
    }

    fn add(&mut self, order: usize, client: u32, reply: Reply) {
        let is_work = self.ask.orders[order].work.losses() > 0;
        self.ledger.useful += u64::from(is_work && self.ask.phase != Phase::Evaluate);
        let answers = &mut self.answers.orders[order];
        answers.clients.push(client);
        answers.rows.push(reply.rows);
        answers.choices.extend(reply.choice);
        answers.losses.extend(reply.losses);
        answers.scores.extend(reply.score);
        answers.descriptions.extend(reply.description);
        let Some(vector) = reply.vector else { return };
        match self.ask.gather {
            Gather::Each => answers.vectors.extend(vector),
            Gather::Sum { by, weight } => {
                let slot = if by == By::Choice { reply.choice.unwrap_or(0) as usize } else { 0 };
                answers.sums[slot].add(weight.of(reply.rows as usize), &vector);
            }
        }
    }

    /// The answers, and what is remembered of them.
    pub(super) fn finish(mut self, stamp: u64) -> (Answers, Ledger) {
        self.settle();
        self.answers.orders.iter_mut().for_each(OrderAnswers::sort_by_client);
        self.answers.missing.sort_by_key(|missing| missing.client);
        self.answers.missing.dedup_by_key(|missing| missing.client);
        (Answers { stamp, ..self.answers }, self.ledger)
    }
}

impl Expected {
    /// What is wrong with a reply by itself.
    fn fault(&self, work: &Work, client: u32, reply: &Reply) -> Option<String> {
        let told = |what: &str, found: String, want: String| Some(format!("{found} {what}, want {want}"));
        let rows = self.rows[client as usize];
        if reply.rows != rows {
            return told("rows", reply.rows.to_string(), format!("{rows} as it said of its data"));
        }
        let (found, wanted) = (reply.vector.as_ref().map_or(0, Vec::len), work.sends(self.width));
        if found == 0 && reply.losses.is_empty() && wanted + work.losses() > 0 {
            return Some(format!("nothing for {}, which its rows do not allow", work.name()));
        }
        if found != wanted {
            return told("numbers", found.to_string(), wanted.to_string());
        }
        if reply.losses.len() != work.losses() {
            return told("losses", reply.losses.len().to_string(), work.losses().to_string());
        }
        let size = Size::of(work, reply);
        // A model that has blown up sends what it has; whose fault that is shows beside the others.
        let has_blown_up = size.loss.is_some_and(|loss| !loss.is_finite());
        if size.length.is_some_and(|length| !length.is_finite()) && !has_blown_up {
            return Some(format!("a number in {} that is not finite", work.name()));
        }
        let least = if matches!(work, Work::Shares { .. } | Work::Curvature) { 0.0 } else { self.least_loss };
        let largest = reply.losses.iter().copied().filter(|loss| loss.is_finite()).fold(1.0, larger);
        if let Some(loss) = reply.losses.iter().find(|&&loss| loss < least - ROUNDING * largest.abs()) {
            return Some(format!("a loss of {loss:.1e}, which cannot be"));
        }
        let is_mean = |value: f64| (-ROUNDING..=1.0 + ROUNDING).contains(&value);
        match work {
            Work::Shares { .. } if reply.losses.iter().any(|&share| !is_mean(share)) => {
                return Some("shares of its rows that cannot be".into());
            }
            Work::FitMixture(_) | Work::MixtureStep(_) if reply.losses[1].is_finite() && !is_mean(reply.losses[1]) => {
                return Some(format!("{:.1e} for a weight, which cannot be", reply.losses[1]));
            }
            // The first number is a curvature, which is not negative.
            Work::Respond(_)
                if let Some(vector) = &reply.vector
                    && vector[0] < -ROUNDING * norm(vector) =>
            {
                return Some(format!("{:.1e} for a curvature, which cannot be", vector[0]));
            }
            Work::Tally { .. } if reply.vector.iter().flatten().any(|&count| count < 0.0) => {
                return Some("a count below 0".into());
            }
            _ => {}
        }
        let chosen = |choice: u32| choice < work.models().len().max(1) as u32;
        if !reply.choice.map_or(!matches!(work, Work::Choose { .. } | Work::Score { .. }), chosen) {
            return Some("no choice among the models it was sent".into());
        }
        match (work, &reply.score) {
            (Work::Score { .. }, None) => return Some("no score".into()),
            (_, Some(score)) if score.hits.is_some_and(|hits| hits > score.rows) => {
                return Some(format!("a score with more hits than its {} rows", score.rows));
            }
            (_, Some(score)) if score.loss < (self.least_loss - ROUNDING) * f64::from(score.rows) => {
                return Some(format!("{:.1e} for a score, which cannot be", score.loss));
            }
            _ => {}
        }
        match (work, &reply.description) {
            (Work::Describe { .. }, None) => Some("no description of its data".into()),
            (_, Some(description)) if description.rows != rows as usize => {
                told("rows", description.rows.to_string(), format!("{rows} as it said before"))
            }
            (_, Some(description)) => description.fault(),
            _ => None,
        }
    }
}

/// How far below its least value rounding may put a number, relative to the largest beside it.
const ROUNDING: f64 = 1e-6;

impl Size {
    fn of(work: &Work, reply: &Reply) -> Self {
        let loss = match work {
            // Of several models the worst may be as bad as it likes; the best is what a client holds on to.
            Work::Losses { .. } | Work::Shares { .. } | Work::Validate { .. } | Work::Score { .. } => {
                let finite = reply.losses.iter().copied().filter(|loss| loss.is_finite()).reduce(f64::min);
                let best = finite.or(reply.losses.first().copied());
                let score = reply.score.map(|score| score.loss / f64::from(score.rows.max(1)));
                best.into_iter().chain(score).reduce(larger)
            }
            // Rows may be so long that their squares are not finite.
            Work::Describe { .. } => {
                let squares = reply.description.as_ref().map(|description| description.mean_square());
                squares.filter(|squares| squares.is_finite())
            }
            _ => reply.losses.iter().copied().reduce(larger),
        };
        Self { length: reply.vector.as_ref().map(|vector| norm(vector)), loss }
    }
}

/// The number that is further from 0, or not finite.
fn larger(one: f64, other: f64) -> f64 {
    if one.is_nan() || one.abs() >= other.abs() { one } else { other }
}

impl Peers {
    fn of(sizes: &[Size]) -> Self {
        let losses: Vec<f64> = sizes.iter().filter_map(|size| size.loss).collect();
        let broken = losses.iter().filter(|loss| !loss.is_finite()).count();
        let usual =
            Usual { length: median(sizes.iter().filter_map(|size| size.length)), loss: median(losses.iter().copied()) };
        Self { usual, diverged: 2 * broken > losses.len() }
    }
}

/// The middle of the finite ones of these numbers.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

impl OrderAnswers {
    /// Puts answers that came partly singly and partly summed into the order of the clients.
    fn sort_by_client(&mut self) {
        if self.clients.is_sorted() {
            return;
        }
        let each = self.losses_each();
        let mut places: Vec<usize> = (0..self.clients.len()).collect();
        places.sort_by_key(|&place| self.clients[place]);
        let losses = places.iter().flat_map(|&place| &self.losses[place * each..(place + 1) * each]).copied().collect();
        let sorted = |list: &[u32]| places.iter().filter_map(|&place| list.get(place).copied()).collect();
        (self.rows, self.choices, self.losses) = (sorted(&self.rows), sorted(&self.choices), losses);
        self.clients = sorted(&self.clients);
    }
}

impl Sum {
    /// Adds one vector.
    pub fn add(&mut self, weight: f64, vector: &[f64]) {
        self.total.resize(vector.len(), 0.0);
        add_scaled(&mut self.total, weight, vector);
        self.weight += weight;
        self.count += 1;
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: &Sum) {
        if other.count > 0 {
            self.total.resize(other.total.len(), 0.0);
            add_scaled(&mut self.total, 1.0, &other.total);
            self.weight += other.weight;
            self.count += other.count;
        }
    }
}

/// What each answer of this ask counts.
pub(super) fn weight_of(gather: Gather) -> Weight {
    match gather {
        Gather::Sum { weight, .. } => weight,
        Gather::Each => Weight::Uniform,
    }
}
