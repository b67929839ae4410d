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

/// Something that happens to replies on their way. It acts on their parts and knows no kind of work.
pub trait Transform: Send + Sync {
    /// Why the reply never arrives. Decided before the client does any work.
    fn withhold(&self, _: &Passage) -> Option<Absence> {
        None
    }

    /// Changes a reply that arrives.
    fn alter(&self, _: &Passage, _: &mut Reply) {}

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

    pub(super) fn alter_answers(&self) -> bool {
        self.0.iter().any(|transform| transform.alters())
    }

    pub(super) fn notes(&self, clients: usize) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(move |transform| transform.note(clients))
    }
}
