//! What leaves clients, as data: what an answer to each kind of work tells, and which of them a method asks for how often. It is what
//! `--dry` prints before anything is sent, and what a machine's own log says of every answer.

use super::Phase;
use super::work::{TypedWork, Work};
use serde::Serialize;

/// What an answer to a kind of work tells of a client's rows, part by part and in words; empty where it has no such part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tells {
    /// Of the vector, if it sends one.
    pub vector: &'static str,
    /// Of the numbers.
    pub numbers: &'static str,
    /// Of the whole numbers.
    pub counts: &'static str,
}

impl Tells {
    /// Nothing leaves.
    pub const NOTHING: Self = Self { vector: "", numbers: "", counts: "" };

    /// Numbers that tell this.
    pub const fn numbers(numbers: &'static str) -> Self {
        Self { numbers, ..Self::NOTHING }
    }

    /// Whole numbers that tell this.
    pub const fn counts(counts: &'static str) -> Self {
        Self { counts, ..Self::NOTHING }
    }

    /// Also a vector.
    pub const fn with_vector(self, vector: &'static str) -> Self {
        Self { vector, ..self }
    }

    /// Also whole numbers.
    pub const fn with_counts(self, counts: &'static str) -> Self {
        Self { counts, ..self }
    }

    /// What an answer tells that has these parts, in words.
    pub(super) fn of(self, [vector, numbers, counts]: [bool; 3]) -> String {
        let parts = [(vector, self.vector), (numbers, self.numbers), (counts, self.counts)];
        in_words(parts.into_iter().filter(|(is_sent, _)| *is_sent).map(|(_, words)| words))
    }
}

fn in_words<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let parts: Vec<&str> = parts.filter(|words| !words.is_empty()).collect();
    if parts.is_empty() { "nothing".into() } else { parts.join("; ") }
}

/// A kind of work that says what it tells.
pub trait Telling {
    /// What it tells.
    const TELLS: Tells;
}

/// In what form answers come to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// One client's by itself.
    Single,
    /// Vectors in sums over several clients; losses and choices one by one, unless sums are sealed.
    Sums,
}

/// How often a client answers, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Times {
    /// So often.
    AtMost(u64),
    /// As often as it takes: nobody knows beforehand.
    AsNeeded,
}

/// What a method has clients tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disclosure {
    /// The name of the kind of work.
    pub work: &'static str,
    /// When.
    pub phase: Phase,
    /// In what form.
    pub told: Told,
    /// Whether a vector leaves.
    pub vector: bool,
    /// Whether nothing else does.
    #[serde(skip)]
    pub is_vector_alone: bool,
    /// What, in words.
    pub tells: String,
    /// How often of one client.
    pub times: Times,
    /// What it is needed for.
    pub purpose: &'static str,
}

impl Disclosure {
    fn new<W: TypedWork + Telling>(phase: Phase, told: Told, times: usize, purpose: &'static str) -> Self {
        let Tells { vector, numbers, counts } = W::TELLS;
        Self {
            work: W::NAME,
            phase,
            told,
            vector: !vector.is_empty(),
            is_vector_alone: numbers.is_empty() && counts.is_empty(),
            tells: in_words([vector, numbers, counts].into_iter()),
            times: Times::AtMost(times as u64),
            purpose,
        }
    }

    /// Answers that come one by one, so often at most.
    pub fn single<W: TypedWork + Telling>(phase: Phase, times: usize, purpose: &'static str) -> Self {
        Self::new::<W>(phase, Told::Single, times, purpose)
    }

    /// Answers whose vectors are summed, so often at most.
    pub fn sums<W: TypedWork + Telling>(phase: Phase, times: usize, purpose: &'static str) -> Self {
        Self::new::<W>(phase, Told::Sums, times, purpose)
    }

    /// Of work whose vector stays with the client.
    pub fn without_vector<W: Telling>(self) -> Self {
        let Tells { numbers, counts, .. } = W::TELLS;
        Self { vector: false, tells: in_words([numbers, counts].into_iter()), ..self }
    }

    /// As often as it takes.
    pub fn as_needed(self) -> Self {
        Self { times: Times::AsNeeded, ..self }
    }

    /// Whether an order in this phase is one of those that are declared.
    pub fn covers(&self, work: &Work, phase: Phase, told: Told) -> bool {
        let sends_vector = work.sends_vector();
        (self.work, self.phase) == (work.name(), phase)
            && (self.vector || !sends_vector)
            && (self.told == told || (self.told == Told::Single || !sends_vector))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::federation::work::{Losses, Minimise, Train};
    use crate::training::Portion;

    #[test]
    fn what_is_declared_is_compared_with_what_is_asked() {
        let losses: Work = Losses { of: vec![0, 1], on: Portion::All }.into();
        let minimise = |keep: bool| -> Work { Minimise { ridge: 0.0, keep }.into() };
        let single = Disclosure::single::<Minimise>(Phase::Train, 1, "clusters");
        assert!(single.covers(&minimise(false), Phase::Train, Told::Single));
        assert!(single.covers(&minimise(true), Phase::Train, Told::Single), "less than was declared");
        assert!(!single.covers(&minimise(false), Phase::Start, Told::Single));
        assert!(!single.covers(&losses, Phase::Train, Told::Single));
        let kept = Disclosure::single::<Minimise>(Phase::Train, 1, "a model").without_vector::<Minimise>();
        assert!(kept.covers(&minimise(true), Phase::Train, Told::Single));
        assert!(!kept.covers(&minimise(false), Phase::Train, Told::Single));
        let summed = Disclosure::sums::<Minimise>(Phase::Train, 1, "a mean");
        assert!(summed.covers(&minimise(false), Phase::Train, Told::Sums));
        assert!(!summed.covers(&minimise(false), Phase::Train, Told::Single));
    }

    #[test]
    fn an_answer_is_told_by_the_parts_it_has() {
        assert_eq!(Train::TELLS.of([false, true, false]), Train::TELLS.numbers);
        assert_eq!(Tells::NOTHING.of([false; 3]), "nothing");
        let all = Tells::numbers("a loss").with_vector("a model").with_counts("rows");
        assert_eq!(all.of([true; 3]), "a model; a loss; rows");
    }
}
