//! The waist: a method asks, a federation has clients do the work and gathers their answers.
//!
//! An [`Ask`] carries each model once and a few [`Order`]s that name models by index. Every order says which clients do which
//! [`Work`]; [`Gather`] says whether vectors come back one by one or as sums. Adding an order to an ask returns a [`Handle`]
//! that takes out its answers with their type. A federation never knows which method it serves, and a method never sees a
//! client's data.
//!
//! | folder | what it is |
//! |---|---|
//! | `work/` | what a client can be asked to do, one file a kind |
//! | `client/` | the clients' side: does an order's work on the data, and guards the data on other people's machines |
//! | `server/` | the server's side: replies into answers and sums, traffic, who answered what |
//! | `engines/` | federations: in this process on all cores, and over bytes on other machines |
//! | `disclosure.rs` | what leaves clients, as data: declared by kinds of work and by methods |
//! | `fixed.rs` | sums of vectors as whole numbers, the same however clients are spread |
//! | `sealed.rs` | such sums of all that clients answer, in which nothing of a single one is told |
//! | `secure/` | such sums over machines, of which the server learns the total alone |
//! | `hidden.rs` | such sums with noise, in which any one client is hidden |
//! | `wire.rs` | asks and answers as bytes |
//! | `transforms.rs` | what happens to answers on their way, as a list |
//! | `faults.rs` | clients that are silent, late, broken or hostile, as such a list |

#[doc(hidden)]
pub mod client;
#[doc(hidden)]
pub mod disclosure;
#[doc(hidden)]
pub mod engines;
#[doc(hidden)]
pub mod faults;
pub(crate) mod fixed;
pub(crate) mod hidden;
pub(crate) mod sealed;
#[doc(hidden)]
pub mod secure;
pub(crate) mod server;
pub(crate) mod transforms;
#[doc(hidden)]
pub mod wire;
#[doc(hidden)]
pub mod work;

pub use crate::aggregate::By;
use crate::aggregate::{Sum, Weight};
use crate::error::{Error, ErrorKind, Result};
use crate::models::Model;
use crate::training::Portion;
use serde::{Deserialize, Serialize};
#[doc(hidden)]
pub use server::meter::Meter;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use work::Reply;
use work::{Answer, Capability, HasLoss, TypedWork, Work};

/// A model's parameters at the server.
pub type Params = Arc<Vec<f64>>;

/// Clients that can be asked to do work.
pub trait Federation {
    /// The clients, in a fixed order.
    fn clients(&self) -> &[ClientInfo];

    /// Has the work done and gathers the answers, sorted by client.
    fn ask(&mut self, ask: &Ask) -> Result<Answers>;

    /// The traffic so far.
    fn meter(&self) -> &Meter;

    /// Whether only sums over clients are told, and nothing of a single one.
    fn is_sealed(&self) -> bool {
        false
    }

    /// Whether noise hides single clients in all that is asked outside of evaluation: nothing but sums is told there.
    fn hides_clients(&self) -> bool {
        false
    }
}

/// What the server knows of a client without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// Its stable name.
    pub id: String,
}

/// One round trip: models, who does what with them, and how the answers come back.
#[derive(Debug, Clone)]
pub struct Ask {
    /// What it is for; the meter keeps phases apart, and transforms spare evaluation.
    pub phase: Phase,
    /// The models the orders name by index. Each travels once to a client that needs it.
    pub models: Vec<Params>,
    /// Who does what. A client named by several orders does each of them.
    pub orders: Vec<Order>,
    /// How answers come back.
    pub gather: Gather,
}

/// What an ask is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Before the first round: describing the data, finding a start.
    Start,
    /// A round of the method.
    Train,
    /// Scoring; not counted as communication of the method.
    Evaluate,
}

impl Phase {
    /// As written in rounds.csv.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Start => "start",
            Phase::Train => "train",
            Phase::Evaluate => "evaluate",
        }
    }
}

/// Work for a set of clients.
#[derive(Debug, Clone)]
pub struct Order {
    /// Who does it.
    pub to: Recipients,
    /// What they do.
    pub work: Work,
}

/// A set of clients.
#[derive(Debug, Clone, PartialEq)]
pub enum Recipients {
    /// Everybody.
    All,
    /// These, ascending, by index into [`Federation::clients`].
    List(Arc<Vec<u32>>),
}

impl Recipients {
    /// These clients, in any order.
    pub fn list(mut clients: Vec<u32>) -> Self {
        clients.sort_unstable();
        clients.dedup();
        Recipients::List(Arc::new(clients))
    }

    /// Who they are, in a federation of `count` clients.
    pub(crate) fn among(&self, count: usize) -> impl Iterator<Item = u32> {
        let (all, list) = match self {
            Recipients::All => (0..count as u32, &[][..]),
            Recipients::List(list) => (0..0, &list[..]),
        };
        all.chain(list.iter().copied())
    }

    /// These clients by the stamp of what each keeps, one list a stamp.
    pub(crate) fn by_stamp(clients: impl Iterator<Item = u32>, stamps: &[u64]) -> BTreeMap<u64, Self> {
        let mut lists: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        clients.for_each(|client| lists.entry(stamps[client as usize]).or_default().push(client));
        lists.into_iter().map(|(stamp, clients)| (stamp, Self::list(clients))).collect()
    }

    pub(crate) fn contains(&self, client: u32) -> bool {
        match self {
            Recipients::All => true,
            Recipients::List(list) => list.binary_search(&client).is_ok(),
        }
    }
}

/// How answers come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gather {
    /// One by one.
    Each,
    /// As sums over clients, per order and slot; the method divides.
    Sum {
        /// What a slot is.
        by: By,
        /// What each answer counts.
        weight: Weight,
    },
}

/// The answers to an ask.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// One entry for each of the ask's orders.
    pub orders: Vec<OrderAnswers>,
    /// Clients that were asked and gave nothing usable, ascending.
    pub missing: Vec<Missing>,
    /// The number of this ask; what clients kept of it carries this stamp.
    pub stamp: u64,
}

/// The answers to one order. The lists run along `clients`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OrderAnswers {
    /// Who answered, ascending. Where only sums are told, who was reached: some of them may be in no sum.
    pub clients: Vec<u32>,
    /// Training rows of each.
    pub rows: Vec<u32>,
    /// Counts of each, concatenated.
    pub counts: Vec<u32>,
    /// Numbers of each, concatenated.
    pub numbers: Vec<f64>,
    /// Vectors of each, concatenated, when gathered one by one.
    pub vectors: Vec<f64>,
    /// One entry for every slot, when gathered as sums.
    pub sums: Vec<Sum>,
    /// One entry for every slot, where only sums are told; the lists of counts and numbers are empty then.
    #[doc(hidden)]
    pub slots: Vec<Slot>,
    /// At most so many clients are in slots that nobody sees because they have few.
    #[doc(hidden)]
    pub unseen: usize,
}

/// What is known of the clients in a slot where only sums are told.
#[derive(Debug, Clone, Default, PartialEq)]
#[doc(hidden)]
pub struct Slot {
    /// Number of clients.
    pub count: usize,
    /// The sum of each number of their replies.
    pub numbers: Vec<f64>,
}

/// A client that gave nothing usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// Who.
    pub client: u32,
    /// Why.
    pub reason: Absence,
}

/// Why there is no usable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// It never came.
    Silent,
    /// It came after the deadline.
    Late,
    /// It was not what was asked for, or cannot be true.
    Garbage,
}

/// One of the `count` equal parts of a concatenated list.
fn part_of<T>(list: &[T], place: usize, count: usize) -> &[T] {
    let each = list.len() / count.max(1);
    &list[place * each..(place + 1) * each]
}

impl OrderAnswers {
    /// How many clients gave a usable answer.
    #[doc(hidden)]
    pub fn answered(&self) -> usize {
        if self.slots.is_empty() { self.clients.len() } else { self.slots.iter().map(|slot| slot.count).sum() }
    }

    /// How many were reached and are in no sum, where only sums are told.
    pub(crate) fn unusable(&self) -> usize {
        self.clients.len().saturating_sub(self.answered() + self.unseen)
    }

    /// The vector of the client in this place.
    pub fn vector(&self, place: usize) -> &[f64] {
        part_of(&self.vectors, place, self.clients.len())
    }
}

/// An order of an ask, which takes out its answers.
pub struct Handle<A> {
    order: usize,
    answer: PhantomData<fn() -> A>,
}

impl<A> Clone for Handle<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Handle<A> {}

impl Answers {
    /// How many answers are not there: those of the [missing](Answers::missing), and where only sums are told those that are in none.
    pub fn absent(&self) -> usize {
        self.missing.len() + self.unusable()
    }

    pub(crate) fn unusable(&self) -> usize {
        self.orders.iter().map(OrderAnswers::unusable).sum()
    }

    /// The answers to an order.
    pub fn of<A: Answer>(&self, handle: Handle<A>) -> Answered<'_, A> {
        Answered { order: &self.orders[handle.order], answer: PhantomData }
    }

    /// The answers to an order without their type.
    pub(crate) fn order<A>(&self, handle: Handle<A>) -> &OrderAnswers {
        &self.orders[handle.order]
    }

    /// The losses of all clients in the answers to some orders.
    pub fn losses<'a, A: HasLoss + 'a>(&self, handles: impl IntoIterator<Item = &'a Handle<A>>) -> Vec<f64> {
        handles.into_iter().flat_map(|handle| self.of(*handle).losses()).collect()
    }
}

/// The answers to one order, with their type.
pub struct Answered<'a, A> {
    order: &'a OrderAnswers,
    answer: PhantomData<fn() -> A>,
}

impl<A> Deref for Answered<'_, A> {
    type Target = OrderAnswers;

    fn deref(&self) -> &OrderAnswers {
        self.order
    }
}

impl<'a, A: Answer> Answered<'a, A> {
    /// The sums, one for every slot.
    pub(crate) fn sums(&self) -> &'a [Sum] {
        &self.order.sums
    }

    pub(crate) fn at(&self, place: usize) -> A {
        let count = self.clients.len();
        A::read(part_of(&self.counts, place, count), part_of(&self.numbers, place, count))
    }

    /// The loss of each client that answered, at the model it began from. Where only sums are told, the mean of a slot stands for
    /// each of its clients, and an infinite one for all where most gave nothing usable, as where training has diverged.
    pub fn losses(&self) -> Vec<f64>
    where
        A: HasLoss,
    {
        if !self.slots.is_empty() {
            let of_slot = |slot: &Slot| {
                let mean = slot.numbers.first().map_or(0.0, |sum| sum / slot.count.max(1) as f64);
                std::iter::repeat_n(mean, slot.count)
            };
            let diverged = self.unusable() > self.answered();
            return if diverged { vec![f64::INFINITY] } else { self.slots.iter().flat_map(of_slot).collect() };
        }
        let count = self.clients.len();
        (0..count).map(|place| part_of(&self.numbers, place, count)[0]).collect()
    }

    /// Every client with its answer; nobody where only sums are told.
    pub fn each(&self) -> impl Iterator<Item = (u32, A)> {
        let told = if self.slots.is_empty() { &self.clients[..] } else { &[] };
        told.iter().enumerate().map(|(place, &client)| (client, self.at(place)))
    }
}

pub(crate) struct OrderIndex {
    all: Vec<u32>,
    /// The other orders of each client; empty where there are none.
    listed: Vec<Vec<u32>>,
}

impl OrderIndex {
    pub(crate) fn of(ask: &Ask, clients: usize) -> Self {
        let (mut all, mut listed) = (Vec::new(), Vec::new());
        for (index, order) in (0u32..).zip(&ask.orders) {
            match &order.to {
                Recipients::All => all.push(index),
                Recipients::List(list) => {
                    listed.resize_with(clients, Vec::new);
                    list.iter().for_each(|&client| listed[client as usize].push(index));
                }
            }
        }
        Self { all, listed }
    }

    /// The orders of every client, where all have the same.
    pub(crate) fn everybody(&self) -> Option<&[u32]> {
        self.listed.is_empty().then_some(&self.all)
    }

    /// The orders of one client, ascending.
    pub(crate) fn of_client(&self, client: u32) -> Cow<'_, [u32]> {
        let listed = self.listed.get(client as usize).map_or(&[][..], Vec::as_slice);
        match (self.all.is_empty(), listed.is_empty()) {
            (true, _) => Cow::from(listed),
            (_, true) => Cow::from(&self.all),
            (false, false) => {
                let mut orders = [&self.all, listed].concat();
                orders.sort_unstable();
                Cow::from(orders)
            }
        }
    }
}

impl Ask {
    /// An ask without orders.
    pub fn new(phase: Phase, models: Vec<Params>, gather: Gather) -> Self {
        Self { phase, models, orders: Vec::new(), gather }
    }

    /// Adds an order.
    pub fn order<W: TypedWork>(&mut self, to: Recipients, work: W) -> Handle<W::Answer> {
        self.orders.push(Order { to, work: work.into() });
        Handle { order: self.orders.len() - 1, answer: PhantomData }
    }

    /// The same ask to those of its clients alone for which this holds, by order and client.
    pub(crate) fn only(&self, clients: usize, wanted: impl Fn(usize, u32) -> bool) -> Self {
        let only = |(index, order): (usize, &Order)| {
            let to = order.to.among(clients).filter(|&client| wanted(index, client)).collect();
            Order { to: Recipients::List(Arc::new(to)), work: order.work.clone() }
        };
        Self { orders: self.orders.iter().enumerate().map(only).collect(), ..self.clone() }
    }

    /// Refuses an ask that names models or clients that are not there.
    pub(crate) fn check(&self, clients: usize) -> Result<()> {
        let fault = |message: String| Err(Error::new(ErrorKind::Federation, message));
        for (index, order) in self.orders.iter().enumerate() {
            if let Recipients::List(list) = &order.to
                && (list.iter().any(|&client| client as usize >= clients) || !list.is_sorted())
            {
                return fault(format!("order {index} names a client that is not there (there are {clients})"));
            }
            let needs = order.work.needs();
            if let Some(model) = needs.models.iter().find(|model| **model >= self.models.len()) {
                return fault(format!("order {index} names model {model} of {}", self.models.len()));
            }
            let parts = needs.portions.iter().filter_map(Portion::place);
            if let Some((part, of)) = parts.into_iter().find(|(part, of)| part >= of) {
                return fault(format!("order {index} names part {part} of {of}"));
            }
            if let Some(what) = order.work.fault() {
                return fault(format!("order {index} {what}"));
            }
        }
        // A second order to keep something would be taken for a repetition of the first.
        let keeping: Vec<&Order> = self.orders.iter().filter(|order| order.work.needs().keeps).collect();
        if keeping.len() > 1 {
            let mut keeps = vec![false; clients];
            let mut recipients = keeping.iter().flat_map(|order| order.to.among(clients));
            if let Some(client) = recipients.find(|&client| std::mem::replace(&mut keeps[client as usize], true)) {
                return fault(format!("two orders have client {client} keep something"));
            }
        }
        Ok(())
    }

    /// Refuses parameters that cannot travel, and work that this model cannot do.
    pub(crate) fn suits(&self, model: &dyn Model) -> Result<()> {
        let want = model.layout().len();
        // Only what orders name must be there: a machine gets the models that its own clients need.
        for order in &self.orders {
            let needs = order.work.needs();
            let fits = |numbers: usize| match needs.without {
                0 => model.travels(numbers),
                without => numbers.checked_add(without) == Some(want),
            };
            if let Some(found) = needs.models.iter().map(|&index| &self.models[index]).find(|found| !fits(found.len()))
            {
                let want = want.saturating_sub(needs.without);
                return Err(Error::new(ErrorKind::Shape, format!("a model of {} numbers, want {want}", found.len())));
            }
        }
        let is_mixture = model.mixture().is_some();
        for order in &self.orders {
            let unsupported = match order.work.needs().capability {
                Capability::Gradients if model.keeps_statistics() => {
                    let message =
                        "gradients leave the running statistics of batch normalisation as they were at the start";
                    return Err(Error::new(ErrorKind::Unsupported, message)
                        .hint("use norm = \"group\" in the model, or a method with averaging = \"models\""));
                }
                Capability::Descent | Capability::Gradients if is_mixture => {
                    "a mixture is not trained by descent, want steps of EM"
                }
                Capability::Mixture if !is_mixture => "the clients' model is not a mixture",
                _ => continue,
            };
            return Err(Error::new(ErrorKind::Unsupported, unsupported));
        }
        Ok(())
    }
}
