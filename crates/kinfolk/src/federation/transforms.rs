//! What happens to answers on their way to the server: transforms, applied in order to each reply.

use super::*;

/// One reply on its way to the server.
pub struct Passage<'a> {
    pub stamp: u64,
    pub phase: Phase,
    pub client: &'a str,
    /// The model that the reply's vector is an update of; gradients have none.
    pub base: Option<&'a [f64]>,
}

/// An order whose replies are all there.
pub struct Occasion<'a> {
    pub phase: Phase,
    /// The models among which clients chose, where they say which.
    pub candidates: Vec<&'a [f64]>,
}

/// The reply of one client to an order.
pub struct Told<'a> {
    pub client: &'a str,
    /// The model that the reply's vector is an update of; gradients have none.
    pub base: Option<&'a [f64]>,
    pub reply: &'a mut Reply,
}

/// Something that happens to replies on their way. It acts on their parts and knows no kind of work.
pub trait Transform: Send + Sync {
    /// Why the reply never arrives. Decided before the client does any work.
    fn withhold(&self, _: &Passage) -> Option<Absence> {
        None
    }

    /// Changes a reply that arrives.
    fn alter(&self, _: &Passage, _: &mut Reply) {}

    /// Changes replies to an order when all that arrive are there, in the order of the clients.
    fn conspire(&self, _: &Occasion, _: &mut [Told]) {}

    /// Whether it wants them together.
    fn conspires(&self) -> bool {
        false
    }

    /// Whether it changes replies, so that sums must be made of single ones.
    fn alters(&self) -> bool;

    /// What the summary says of it, with this many clients.
    fn note(&self, _clients: usize) -> Option<String> {
        None
    }
}

/// What happens to the answers of a method's clients. Evaluation is spared: it measures and does not take part.
#[derive(Default)]
pub struct Transforms(pub Vec<Box<dyn Transform>>);

impl Transforms {
    fn of(&self, phase: Phase) -> &[Box<dyn Transform>] {
        if phase == Phase::Evaluate { &[] } else { &self.0 }
    }

    pub(crate) fn withhold(&self, passage: &Passage) -> Option<Absence> {
        self.of(passage.phase).iter().find_map(|transform| transform.withhold(passage))
    }

    pub(crate) fn alter(&self, passage: &Passage, reply: &mut Reply) {
        self.of(passage.phase).iter().for_each(|transform| transform.alter(passage, reply));
    }

    pub(crate) fn conspire(&self, occasion: &Occasion, told: &mut [Told]) {
        self.of(occasion.phase).iter().for_each(|transform| transform.conspire(occasion, told));
    }

    /// Whether replies to an ask of this phase must be held back until all are there.
    pub(super) fn conspire_in(&self, phase: Phase) -> bool {
        self.of(phase).iter().any(|transform| transform.conspires())
    }

    pub(super) fn alter_answers(&self) -> bool {
        self.0.iter().any(|transform| transform.alters())
    }

    pub(super) fn notes(&self, clients: usize) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(move |transform| transform.note(clients))
    }
}
