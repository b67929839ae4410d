//! What a method is handed for a round: its clients, and the ledger that is kept of them.
//!
//! One call asks, checks and records: which answers are missing and whether that is allowed, whether the method has diverged,
//! which clients are not asked any more. The run keeps the [`MethodLedger`] between rounds and in checkpoints.

use super::*;
use crate::federation::server::ledger::few_of;
use crate::federation::work::Receive;
use crate::federation::{Absence, ClientInfo, Missing};

/// The clients of a method, and its ledger.
pub struct Room<'a> {
    federation: &'a mut dyn Federation,
    ledger: &'a mut MethodLedger,
}

/// A method's rounds so far: how many there were, which answers were missing, which clients are no longer asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodLedger {
    /// What a missing answer means.
    rule: MissingRule,
    /// Completed rounds.
    round: usize,
    /// Answers missing so far, by reason.
    silent: usize,
    late: usize,
    garbage: usize,
    /// The median loss of the first round.
    first_loss: Option<f64>,
    /// Clients that are no longer asked, with their names.
    left_out: BTreeMap<u32, String>,
}

choices! {
    /// What a missing answer means: it is left out, stands for no change, ends the run, or is asked for again.
    #[derive(Serialize, Deserialize)]
    pub enum MissingRule { Skip = "skip", Keep = "keep", Fail = "fail", Again = "again" }
}

impl MethodLedger {
    /// The ledger of a method that has not begun.
    pub fn new(rule: MissingRule) -> Self {
        let (silent, late, garbage) = (0, 0, 0);
        Self { rule, round: 0, silent, late, garbage, first_loss: None, left_out: BTreeMap::new() }
    }

    /// Runs one round of a method with the clients of a federation.
    pub fn run_round(&mut self, method: &mut dyn Method, federation: &mut dyn Federation) -> Result<Progress> {
        let progress = method.round(&mut Room::new(federation, self));
        self.round += 1;
        progress
    }

    fn count(&mut self, answers: &Answers) {
        self.garbage += answers.unusable();
        for missing in &answers.missing {
            match missing.reason {
                Absence::Silent => self.silent += 1,
                Absence::Late => self.late += 1,
                Absence::Garbage => self.garbage += 1,
            }
        }
    }

    /// How many answers were missing, if any.
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
    pub(crate) fn new(federation: &'a mut dyn Federation, ledger: &'a mut MethodLedger) -> Self {
        Self { federation, ledger }
    }

    /// The clients, in a fixed order.
    pub fn clients(&self) -> &[ClientInfo] {
        self.federation.clients()
    }

    /// Whether only sums over clients are told, and nothing of a single one.
    pub fn is_sealed(&self) -> bool {
        self.federation.is_sealed() || self.federation.hides_clients()
    }

    /// Completed rounds.
    pub fn round(&self) -> usize {
        self.ledger.round
    }

    /// Asks. An error if answers are missing and must not be, or if every single one is unusable.
    pub fn ask(&mut self, ask: &Ask) -> Result<Answers> {
        let answers = self.ask_for_any(ask)?;
        let nobody = answers.orders.iter().all(|order| order.answered() == 0);
        let garbage = |missing: &Missing| missing.reason == Absence::Garbage;
        if nobody && answers.absent() > 0 && answers.missing.iter().all(garbage) {
            return Err(diverged(self.ledger.round));
        }
        Ok(answers)
    }

    /// The same where every single answer may be unusable.
    pub(crate) fn ask_for_any(&mut self, ask: &Ask) -> Result<Answers> {
        let answers = self.federation.ask(ask)?;
        if let (MissingRule::Fail, Some(missing)) = (self.ledger.rule, answers.missing.first()) {
            let id = &self.clients()[missing.client as usize].id;
            let why = match missing.reason {
                Absence::Silent => "did not answer",
                Absence::Late => "answered too late",
                Absence::Garbage => "answered garbage",
            };
            return Err(Error::new(ErrorKind::Client, format!("client {id} {why}"))
                .hint("set missing = \"skip\" to go on without such clients"));
        }
        if self.ledger.rule == MissingRule::Fail && answers.unusable() > 0 {
            let message = "a client gave no usable answer; who it is, is not told";
            return Err(
                Error::new(ErrorKind::Client, message).hint("set missing = \"skip\" to go on without such clients")
            );
        }
        self.ledger.count(&answers);
        Ok(answers)
    }

    /// Sends every client the model of its cluster, and all models to a client without one. Answers may be missing.
    pub(super) fn distribute(&mut self, models: &[Params], clusters: &Assignment) -> Result<()> {
        let mut ask = Ask::new(Phase::Train, models.to_vec(), Gather::Each);
        let mut send = |to: Vec<u32>, models: Vec<usize>| {
            if !to.is_empty() {
                ask.order(Recipients::list(to), Receive { models, keep: false });
            }
        };
        (0..models.len()).for_each(|cluster| send(clusters.members(cluster), vec![cluster]));
        send(clusters.unassigned(), (0..models.len()).collect());
        self.federation.ask(&ask).map(|_| ())
    }

    /// How many of these absent clients count as unchanged.
    pub(super) fn unchanged(&self, absent: usize) -> usize {
        if self.ledger.rule == MissingRule::Keep { absent } else { 0 }
    }

    /// The mean of a round's losses, `None` if nobody answered; an error once they have exploded for most clients.
    pub fn check_loss(&mut self, losses: &[f64]) -> Result<Option<f64>> {
        check_loss(losses, &mut self.ledger.first_loss, self.ledger.round)
    }

    /// Stops asking a client.
    pub(super) fn leave_out(&mut self, client: u32) {
        let id = self.clients()[client as usize].id.clone();
        self.ledger.left_out.insert(client, id);
    }

    pub(super) fn without_left_out(&self, ask: &Ask) -> Ask {
        let mut ask = ask.clone();
        let left_out = &self.ledger.left_out;
        for order in ask.orders.iter_mut().filter(|_| !left_out.is_empty()) {
            let everybody = 0..self.clients().len() as u32;
            let is_in = |client: &u32| order.to.contains(*client) && !left_out.contains_key(client);
            order.to = Recipients::list(everybody.filter(is_in).collect());
        }
        ask
    }
}

/// The mean of the losses, `None` when nobody answered.
pub(crate) fn mean_loss(losses: &[f64]) -> Option<f64> {
    (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64)
}

/// The mean of a round's losses, or an error once most have exploded; `first` keeps the first round's median.
pub(super) fn check_loss(losses: &[f64], first: &mut Option<f64>, round: usize) -> Result<Option<f64>> {
    match median(losses.iter().copied()) {
        Some(loss) if exploded(*first.get_or_insert(loss), loss) => Err(diverged(round)),
        _ => Ok(mean_loss(losses)),
    }
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

pub(crate) fn nobody_answered() -> Error {
    Error::new(ErrorKind::Client, "no client gave a usable answer, so nothing was trained")
}

/// The stamps of what clients keep after an ask. One whose answer was garbage has done the work all the same.
pub(super) fn stamps_after(answers: &Answers) -> impl Iterator<Item = (u32, u64)> {
    let garbage = answers.missing.iter().filter(|missing| missing.reason == Absence::Garbage);
    let answered = answers.orders.iter().flat_map(|order| order.clients.iter().copied());
    answered.chain(garbage.map(|missing| missing.client)).map(|client| (client, answers.stamp))
}
