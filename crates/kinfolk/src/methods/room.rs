//! What a method is handed for a round: its clients, and the books that are kept of them.
//!
//! One call asks, checks and books: who is missing and whether that may be, whether a method has diverged, who is not asked
//! any more. The run keeps the [`Book`] between rounds and in checkpoints.

use super::{Method, Progress};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::server::ledger::few_of;
use crate::federation::{Absence, Answers, Ask, ClientInfo, Federation, Missing, Recipients};
use crate::settings::{Field, Settings, choices};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The clients of a method, with its book.
pub struct Room<'a> {
    federation: &'a mut dyn Federation,
    book: &'a mut Book,
}

/// What is remembered of a method's clients between rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Book {
    /// What a missing answer means.
    rule: MissingRule,
    /// Rounds that are over.
    round: usize,
    /// Answers that were missing so far, by why.
    silent: usize,
    late: usize,
    garbage: usize,
    /// The median loss of the first round.
    first_loss: Option<f64>,
    /// Clients that are not asked any more, and their names.
    left_out: BTreeMap<u32, String>,
}

choices! {
    /// What a missing answer means: it is left out, stands for no change, ends the run, or is asked for again.
    #[derive(Serialize, Deserialize)]
    pub enum MissingRule { Skip = "skip", Keep = "keep", Fail = "fail", Again = "again" }
}

impl MissingRule {
    /// As a method's settings say.
    pub fn of(settings: &Settings) -> Self {
        Self::find(settings, "missing").unwrap_or(MissingRule::Skip)
    }
}

impl Book {
    /// A book of nothing.
    pub fn new(rule: MissingRule) -> Self {
        let (silent, late, garbage) = (0, 0, 0);
        Self { rule, round: 0, silent, late, garbage, first_loss: None, left_out: BTreeMap::new() }
    }

    /// One round of a method with the clients of a federation.
    pub fn play(&mut self, method: &mut dyn Method, federation: &mut dyn Federation) -> Result<Progress> {
        let progress = method.round(&mut Room::new(federation, self));
        self.round += 1;
        progress
    }

    fn count(&mut self, answers: &Answers) {
        for missing in &answers.missing {
            match missing.reason {
                Absence::Silent => self.silent += 1,
                Absence::Late => self.late += 1,
                Absence::Garbage => self.garbage += 1,
            }
        }
    }

    /// How many answers were missing, where there were any.
    pub fn note(&self) -> Option<String> {
        let all = self.silent + self.late + self.garbage;
        let names: Vec<&str> = self.left_out.values().map(String::as_str).collect();
        (all > 0).then(|| {
            let without = match self.left_out.len() {
                0 => String::new(),
                1 => format!("; client {} was left out in the end", few_of(&names)),
                _ => format!("; clients {} were left out in the end", few_of(&names)),
            };
            format!(
                "{all} answers were missing over all rounds: {} silent, {} late, {} garbage{without}",
                self.silent, self.late, self.garbage
            )
        })
    }
}

impl<'a> Room<'a> {
    /// The clients of a federation, with this book.
    pub fn new(federation: &'a mut dyn Federation, book: &'a mut Book) -> Self {
        Self { federation, book }
    }

    /// Who is there.
    pub fn clients(&self) -> &[ClientInfo] {
        self.federation.clients()
    }

    /// Rounds that are over.
    pub fn round(&self) -> usize {
        self.book.round
    }

    /// Asks. Ends the method where answers are missing and must not be, or where every single one is unusable.
    pub fn ask(&mut self, ask: &Ask) -> Result<Answers> {
        let answers = self.ask_for_any(ask)?;
        let nobody = answers.orders.iter().all(|order| order.clients.is_empty());
        let garbage = |missing: &Missing| missing.reason == Absence::Garbage;
        if nobody && !answers.missing.is_empty() && answers.missing.iter().all(garbage) {
            return Err(diverged(self.book.round));
        }
        Ok(answers)
    }

    /// The same, where it is no divergence if every single answer is unusable.
    pub fn ask_for_any(&mut self, ask: &Ask) -> Result<Answers> {
        let answers = self.federation.ask(ask)?;
        if let (MissingRule::Fail, Some(missing)) = (self.book.rule, answers.missing.first()) {
            let id = &self.clients()[missing.client as usize].id;
            let why = match missing.reason {
                Absence::Silent => "did not answer",
                Absence::Late => "answered too late",
                Absence::Garbage => "answered garbage",
            };
            return Err(Error::new(ErrorKind::Client, format!("client {id} {why}"))
                .hint("set missing = \"skip\" to go on without such clients"));
        }
        self.book.count(&answers);
        Ok(answers)
    }

    /// Hands something over, whoever is there to take it: one that is away now gets it when it is back, and that changes
    /// nothing for the others.
    pub fn hand_over(&mut self, ask: &Ask) -> Result<()> {
        self.federation.ask(ask).map(|_| ())
    }

    /// The mean of a round's losses, `None` where nobody answered; an error when they have exploded for most clients.
    pub fn watch(&mut self, losses: &[f64]) -> Result<Option<f64>> {
        watch_loss(losses, &mut self.book.first_loss, self.book.round)
    }

    /// Asks a client no more.
    pub(super) fn leave_out(&mut self, client: u32) {
        let id = self.clients()[client as usize].id.clone();
        self.book.left_out.insert(client, id);
    }

    /// The ask without those that are not asked any more.
    pub(super) fn without_left_out(&self, ask: &Ask) -> Ask {
        let mut ask = ask.clone();
        let left_out = &self.book.left_out;
        for order in ask.orders.iter_mut().filter(|_| !left_out.is_empty()) {
            let everybody = 0..self.clients().len() as u32;
            let is_in = |client: &u32| order.to.contains(*client) && !left_out.contains_key(client);
            order.to = Recipients::list(everybody.filter(is_in).collect());
        }
        ask
    }
}

/// The mean of the losses, `None` when nobody answered.
pub fn mean_loss(losses: &[f64]) -> Option<f64> {
    (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64)
}

/// The mean of a round's losses, or an error when they have exploded for most clients; `first` keeps the first of their
/// medians.
pub(super) fn watch_loss(losses: &[f64], first: &mut Option<f64>, round: usize) -> Result<Option<f64>> {
    match median_loss(losses) {
        Some(loss) if exploded(*first.get_or_insert(loss), loss) => Err(diverged(round)),
        _ => Ok(mean_loss(losses)),
    }
}

/// The middle of the losses, `None` where there are none.
pub(crate) fn median_loss(losses: &[f64]) -> Option<f64> {
    let mut losses = losses.to_vec();
    losses.sort_by(f64::total_cmp);
    losses.get(losses.len() / 2).copied()
}

/// Whether a loss has grown beyond all bounds since the first round.
pub(crate) fn exploded(first: f64, now: f64) -> bool {
    !now.is_finite() || now > 1e6 * (first.abs() + 1.0)
}

/// The error of a run that diverged in this round, counted from 0.
pub(crate) fn diverged(round: usize) -> Error {
    Error::new(ErrorKind::Diverged, format!("round {}: the training loss has exploded", round + 1))
        .hint("use a smaller step")
}

/// The error of a method without a single answer.
pub(crate) fn nobody_answered() -> Error {
    Error::new(ErrorKind::Client, "no client gave a usable answer, so nothing was trained")
}

/// The stamps of what clients keep after an ask. One whose answer was garbage has done the work all the same.
pub(super) fn stamps_after(answers: &Answers) -> impl Iterator<Item = (u32, u64)> {
    let garbage = answers.missing.iter().filter(|missing| missing.reason == Absence::Garbage);
    let answered = answers.orders.iter().flat_map(|order| order.clients.iter().copied());
    answered.chain(garbage.map(|missing| missing.client)).map(|client| (client, answers.stamp))
}
