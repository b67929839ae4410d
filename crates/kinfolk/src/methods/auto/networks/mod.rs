//! `auto` for networks: everything that has no closed form.
//!
//! ```text
//!  1  a third of every client's rows is held out
//!  2  θ ← FedAvg for a while
//!  3  look: every client's update of θ on two parts of its other rows; are there families among them?    `look.rs`
//!  4  if so: IFCA beside the models so far; each family begins with these, or with the mean of what members learn alone; clients choose
//!     by held-out rows
//!  5  judge: families stay if they clearly lower the loss of held-out rows; small ones end, equal ones merge    `judge.rs`
//!  6  look again, also inside families, up to three times
//!  7  until nobody changes family for two rounds and the gain of further rounds is below one standard error
//!  8  on held-out rows: everybody's model, the family's, fine-tuned by so many steps, alone; who gets what    `service.rs`
//!  9  train on with all rows, fine-tune, hand out
//! ```

mod heard;
mod judge;
mod look;
mod sentences;
mod service;
#[cfg(test)]
mod tests;

use super::super::*;
use crate::families::Gain;
use crate::federation::Handle;
use crate::federation::work::{Choice, Choose, FineTune, Losses, Receive, Trial};
use crate::methods::parts::training::draw_clients;
use crate::methods::room::diverged;
use crate::models::first_smallest;
use crate::text::counted;
use crate::training::Then;
use heard::Heard;
pub(crate) use heard::{NetworkClient, NetworksFound};
use judge::{Judged, Settled, is_clear};
use look::{folded, look};
pub(crate) use service::Rung as NetworkRung;
use service::{PARTS, Rung, Service, Tried, decide, mean_gain};

/// Parts of every client's rows: the first is held out, a look compares the others.
const FOLDS: u32 = 3;
/// With fewer rows a client does not take part in the search.
const LEAST_ROWS: usize = 2 * FOLDS as usize;
/// Times that families are looked for, and after how many stretches of rounds.
const LOOKS: [usize; 3] = [1, 3, 6];
/// Clients whose updates are compared; the others choose by their losses.
const MOST_COMPARED: usize = 256;
/// Clients of few rows that try what would serve them.
const MOST_TRIED: usize = 512;
/// Numbers in the updates that are asked for at once.
const MOST_NUMBERS: usize = 1 << 25;
/// How long clients train for the updates that are compared, in rounds' worth of steps. Single gradients mostly say which targets
/// happen to be frequent.
const UPDATING: u32 = 4;
/// The same for fine-tuning, and for training alone.
const FINE_TUNING: [u32; 3] = [1, 4, 16];
const ALONE: u32 = 30;

pub(crate) struct Networks {
    trainer: Trainer,
    /// θ at the start.
    start: Params,
    rows: Vec<usize>,
    cut: Cut,
    wanted: Option<usize>,
    /// Families that need not be looked for.
    known: Option<Assignment>,
    /// Whether predictions of held-out rows are checked for intervals.
    checks: bool,
    state: State,
    /// What held-out rows said when it was decided who gets what; not kept in a checkpoint.
    heard: Heard,
}

/// Which rows of a client do what in the search.
struct Cut {
    held_out: Portion,
    trained: Portion,
    halves: [Portion; 2],
}

impl Cut {
    /// Where rows are in the order of time, the last are held out.
    fn new(ordered: bool) -> Self {
        let of = FOLDS;
        if ordered {
            let part = |index| Portion::Part { index, of };
            return Self { held_out: part(of - 1), trained: Portion::Earlier { of }, halves: [part(0), part(1)] };
        }
        let fold = |index| Portion::Fold { index, of };
        Self { held_out: fold(0), trained: Portion::Others { index: 0, of }, halves: [fold(1), fold(2)] }
    }
}

#[derive(Serialize, Deserialize)]
struct State {
    stage: Stage,
    /// Rounds of training.
    trained: usize,
    current: Partition,
    /// Families on trial.
    challenger: Option<Partition>,
    /// Everybody's model, as it was when families were found.
    global: Option<Params>,
    /// Held-out losses when they were last judged, by client.
    losses: Vec<Option<f64>>,
    /// Rounds in which nobody changed family.
    quiet: usize,
    findings: Findings,
    stamps: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    Search,
    /// Training on all rows, for so many rounds.
    Last(usize),
    Done,
}

/// Families and their models.
#[derive(Clone, Serialize, Deserialize)]
struct Partition {
    models: Vec<Params>,
    families: Assignment,
    /// Whether clients train where they were put, instead of choosing: models are alike before the first round.
    put: bool,
}

/// What was decided, and why.
#[derive(Default, Serialize, Deserialize)]
struct Findings {
    wanted: Option<usize>,
    /// How often clients that do not differ would look as different.
    p: Option<f64>,
    looks: usize,
    /// What clients gain by families, where some were tried.
    gain: Option<Gain>,
    /// Rounds of the search, and the gain at its end where that ended it.
    ended: Option<(usize, Option<Gain>)>,
    service: Option<Service>,
    events: Vec<String>,
    /// Asks of a client.
    questions: usize,
}

impl Networks {
    pub(crate) fn new(setup: &Setup, training: Training, wanted: Option<usize>) -> Result<Self> {
        let start = setup.common_start()?;
        let clients = setup.rows.len();
        let families = Assignment::one(clients);
        let current = Partition { models: vec![start.clone()], families, put: false };
        let state = State {
            stage: Stage::Search,
            trained: 0,
            current,
            challenger: None,
            global: None,
            losses: vec![None; clients],
            quiet: 0,
            findings: Findings { wanted, ..Findings::default() },
            stamps: vec![0; clients],
        };
        let trainer = training.trainer(setup);
        let (rows, cut) = (setup.rows.to_vec(), Cut::new(setup.facts.ordered));
        let heard = Heard::default();
        let mut networks = Self { trainer, start, rows, cut, wanted, known: None, checks: false, state, heard };
        if networks.able().next().is_none() {
            networks.state.stage = Stage::Last(networks.trainer.schedule.rounds);
        }
        Ok(networks)
    }

    /// The clients with rows enough to hold some out.
    fn able(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.rows).filter(|(_, rows)| **rows >= LEAST_ROWS).map(|(client, _)| client)
    }

    /// With families that are known, and need not be looked for.
    pub(crate) fn with_families(mut self, known: Assignment) -> Self {
        self.known = Some(known).filter(|known| known.clusters() > 1);
        self
    }

    /// With checks of predictions, for intervals.
    pub(crate) fn with_checks(mut self) -> Self {
        self.checks = true;
        self
    }

    /// Whether it was told how many families there are, or which.
    fn is_told(&self) -> bool {
        self.wanted.is_some() || self.known.is_some()
    }

    /// Rounds between two judgements.
    fn stretch(&self) -> usize {
        (self.trainer.schedule.rounds / 10).clamp(3, 10)
    }

    /// Rounds of the search at most; a third is left for all rows.
    fn most_searched(&self) -> usize {
        let rounds = self.trainer.schedule.rounds;
        (rounds - rounds / 3).max(1)
    }

    fn plan(&self, on: Portion) -> Plan {
        let plan = self.trainer.plan(self.state.trained);
        Plan { sample: Sample { on, ..plan.sample }, ..plan }
    }

    /// So many rounds' worth of steps.
    fn amount(&self, rounds: u32) -> Amount {
        match self.plan(self.cut.trained).amount {
            Amount::Steps(steps) => Amount::Steps(steps.saturating_mul(rounds)),
            Amount::Epochs(epochs) => Amount::Epochs(epochs.saturating_mul(rounds)),
        }
    }

    fn ask(&mut self, room: &mut Room, ask: &Ask) -> Result<Answers> {
        self.state.findings.questions += 1;
        room.ask(ask)
    }

    /// One round of training with these rows, for all partitions. Returns the mean loss and how many changed family.
    fn train(&mut self, room: &mut Room, held_out: bool) -> Result<(Option<f64>, usize)> {
        let (choose_on, train_on) =
            if held_out { (self.cut.held_out, self.cut.trained) } else { (Portion::All, Portion::All) };
        let everybody = self.trainer.participants(self.state.trained, room);
        let takes_part = |client: &u32| !held_out || self.rows[*client as usize] >= LEAST_ROWS;
        let asked: Vec<u32> = everybody.among(self.rows.len()).filter(takes_part).collect();
        let then = Then::Train(self.plan(train_on));
        let partitions: Vec<&Partition> = std::iter::once(&self.state.current).chain(&self.state.challenger).collect();
        let models = partitions.iter().flat_map(|partition| partition.models.iter().cloned()).collect();
        let mut ask = Ask::new(Phase::Train, models, Gather::Sum { by: By::Choice, weight: Weight::Rows });
        let mut orders: Vec<(usize, usize, Handle<Choice>)> = Vec::new();
        let mut first = 0;
        for (place, partition) in partitions.iter().enumerate() {
            let count = partition.models.len();
            let mut order = |clients: Vec<u32>, among: std::ops::Range<usize>| {
                if !clients.is_empty() {
                    let family = among.start;
                    let among = among.map(|family| first + family).collect();
                    let work = Choose { among, on: choose_on, then: then.clone() };
                    orders.push((place, family, ask.order(Recipients::list(clients), work)));
                }
            };
            let is_put = |client: &u32| partition.put && partition.families.of(*client).is_some();
            for family in 0..count {
                let is_here = |client: &u32| is_put(client) && partition.families.of(*client) == Some(family);
                order(asked.iter().copied().filter(is_here).collect(), family..family + 1);
            }
            // Models on trial are alike in their first round.
            if !(partition.put && held_out) {
                order(asked.iter().copied().filter(|client| !is_put(client)).collect(), 0..count);
            }
            first += count;
        }
        let answers = self.ask(room, &ask)?;

        let (mut losses, mut switched) = (Vec::new(), 0);
        let (round, known) = (room.round(), self.known.is_some());
        let partitions = std::iter::once(&mut self.state.current).chain(&mut self.state.challenger);
        for (place, partition) in partitions.enumerate() {
            let mut sums = vec![Sum::default(); partition.models.len()];
            let before = partition.families.clone();
            for &(_, family, order) in orders.iter().filter(|order| order.0 == place) {
                let answer = answers.of(order);
                sums[family..].iter_mut().zip(answer.sums()).for_each(|(sum, part)| sum.merge(part));
                for (client, choice) in answer.each() {
                    let family = family + choice.place as usize;
                    let last = partition.families.put(client, family);
                    if place == 0 {
                        losses.push(choice.loss);
                        switched += usize::from(last.is_some_and(|last| last != family));
                    }
                }
            }
            for (family, (model, sum)) in partition.models.iter_mut().zip(&sums).enumerate() {
                *model = mean_model(model, sum, room.unchanged(absent_from(family, &before, &answers)));
                if !model.iter().all(|value| value.is_finite()) {
                    return Err(diverged(round));
                }
            }
            partition.put = partition.put && (!held_out || known && partition.models.len() > 1);
        }
        self.state.trained += 1;
        Ok((room.check_loss(&losses)?, switched))
    }

    /// The losses of all models, with which a client that answered is judged.
    fn judge(&mut self, room: &mut Room) -> Result<Judged> {
        let partitions = std::iter::once(&self.state.current).chain(&self.state.challenger);
        let models: Vec<Params> = partitions.flat_map(|partition| partition.models.iter().cloned()).collect();
        let of: Vec<usize> = (0..models.len()).collect();
        let mut ask = Ask::new(Phase::Train, models, Gather::Each);
        let able = Recipients::list(self.able().collect());
        let trained = ask.order(able.clone(), Losses { of: of.clone(), on: self.cut.trained });
        let held_out = ask.order(able, Losses { of, on: self.cut.held_out });
        let answers = self.ask(room, &ask)?;
        let mut held_out: BTreeMap<u32, Vec<f64>> = answers.of(held_out).each().collect();
        let mut judged = Judged { clients: Vec::new(), trained: Vec::new(), held_out: Vec::new() };
        for (client, trained) in answers.of(trained).each() {
            let Some(held_out) = held_out.remove(&client) else { continue };
            if trained.iter().chain(&held_out).all(|loss| loss.is_finite()) {
                judged.clients.push(client);
                judged.trained.push(trained);
                judged.held_out.push(held_out);
            }
        }
        Ok(judged)
    }

    /// Lines 5 to 7, after a stretch of rounds. Returns whether the search has ended.
    fn take_stock(&mut self, room: &mut Room) -> Result<bool> {
        let judged = self.judge(room)?;
        let last = self.state.trained >= self.most_searched();
        if judged.clients.is_empty() {
            return Ok(last);
        }
        let here: Vec<usize> = (0..self.state.current.models.len()).collect();
        let families = judged.choices(&here);
        let losses = judged.losses(&here, &families);
        let since = |(client, loss): (&u32, &f64)| Some(self.state.losses[*client as usize]? - loss);
        let since: Vec<f64> = judged.clients.iter().zip(&losses).filter_map(since).collect();
        let since = (!since.is_empty()).then(|| mean_gain(&since));
        for (&client, &loss) in judged.clients.iter().zip(&losses) {
            self.state.losses[client as usize] = Some(loss);
        }
        if let Some(challenger) = self.state.challenger.take() {
            self.compare(challenger, &judged, &losses);
        } else {
            let settled = if self.is_told() { None } else { Some(judged.settle(here)) };
            if let Some(settled) = settled.filter(|settled| settled.models.len() < self.state.current.models.len()) {
                self.note_changes(&settled);
                self.state.current = self.partition(&judged, &settled, &self.state.current.models.clone());
                self.state.losses.fill(None);
                self.state.quiet = 0;
            }
            let at_rest = self.state.quiet >= 2 && since.as_ref().is_some_and(|gain| gain.mean <= gain.error);
            let looks = self.state.findings.looks;
            let stretches = self.state.trained / self.stretch();
            let due = LOOKS.get(looks).is_some_and(|due| stretches >= *due || at_rest);
            let is_open = match &self.known {
                Some(known) => self.state.current.models.len() < known.clusters(),
                None => self.wanted.is_none_or(|wanted| self.state.current.models.len() < wanted),
            };
            if due && !last && is_open {
                self.look(room)?;
                return Ok(false);
            }
            if at_rest && !last {
                self.state.findings.ended = Some((self.state.trained, since));
                return Ok(true);
            }
        }
        if last {
            self.state.findings.ended = Some((self.state.trained, None));
        }
        Ok(last)
    }

    /// Families in place of those before, if that is clearly better.
    fn compare(&mut self, challenger: Partition, judged: &Judged, losses: &[f64]) {
        let before = self.state.current.models.len();
        let all = [&self.state.current.models[..], &challenger.models[..]].concat();
        let on_trial: Vec<usize> = (before..all.len()).collect();
        let settled = match (self.wanted, &self.known) {
            (_, Some(known)) => {
                let families = judged.clients.iter().map(|client| known.of(*client).unwrap_or(0)).collect();
                Settled { families, models: on_trial, ended: 0, merged: 0 }
            }
            (Some(_), None) => Settled { families: judged.choices(&on_trial), models: on_trial, ended: 0, merged: 0 },
            (None, None) => judged.settle(on_trial),
        };
        let new = judged.losses(&settled.models, &settled.families);
        let gain = mean_gain(&losses.iter().zip(&new).map(|(old, new)| old - new).collect::<Vec<_>>());
        let better = is_clear(&gain) && settled.models.len() > before;
        if before == 1 {
            self.state.findings.gain = Some(gain);
        }
        if better || self.is_told() {
            if before == 1 {
                self.state.global = Some(self.state.current.models[0].clone());
            } else {
                self.state.findings.events.push(format!("{before} families became {}.", settled.models.len()));
            }
            self.note_changes(&settled);
            self.state.current = self.partition(judged, &settled, &all);
            for (&client, &loss) in judged.clients.iter().zip(&new) {
                self.state.losses[client as usize] = Some(loss);
            }
            self.state.quiet = 0;
        }
    }

    fn note_changes(&mut self, settled: &Settled) {
        let rounds = counted(self.state.trained, "round");
        if settled.ended > 0 {
            let families = plural(settled.ended, "small family", "small families");
            self.state.findings.events.push(format!("After {rounds}, {families} ended."));
        }
        if settled.merged > 0 {
            let families = plural(settled.merged, "family", "families");
            self.state
                .findings
                .events
                .push(format!("After {rounds}, {families} merged with others that served as well."));
        }
    }

    fn partition(&self, judged: &Judged, settled: &Settled, models: &[Params]) -> Partition {
        if let Some(known) = &self.known {
            let models = settled.models.iter().map(|&model| models[model].clone()).collect();
            return Partition { models, families: known.clone(), put: true };
        }
        let mut families = Assignment::none(settled.models.len(), self.rows.len());
        judged.clients.iter().zip(&settled.families).for_each(|(&client, &family)| {
            families.put(client, family);
        });
        Partition { models: settled.models.iter().map(|&model| models[model].clone()).collect(), families, put: false }
    }

    /// Line 3.
    fn look(&mut self, room: &mut Room) -> Result<()> {
        self.state.findings.looks += 1;
        self.state.findings.questions += 1;
        let number = self.state.findings.looks;
        let key = self.trainer.key.clone().word("look").number(number as u64);
        let drawn = draw_clients(&key, MOST_COMPARED, room);
        let compared: Vec<u32> = self.able().filter(|client| drawn.contains(*client)).collect();
        let updates = self.updates(room, &compared)?;
        let count = self.state.current.models.len();
        let mut models = Vec::new();
        let mut families = Assignment::none(0, self.rows.len());
        for family in 0..count {
            let members: Vec<u32> = updates
                .keys()
                .copied()
                .filter(|&client| self.state.current.families.of(client) == Some(family))
                .collect();
            let half = |half: usize| members.iter().map(|client| updates[client][half].clone()).collect();
            let seen = look([half(0), half(1)], self.wanted, &key.clone().number(family as u64))?;
            if count == 1 {
                self.state.findings.p = Some(seen.p);
            }
            let parts = match &self.known {
                Some(known) => members.iter().map(|client| known.of(*client).unwrap_or(0)).collect(),
                None => seen.families.unwrap_or_else(|| vec![0; members.len()]),
            };
            members.iter().zip(&parts).for_each(|(&client, part)| {
                families.put(client, models.len() + part);
            });
            let parts = match &self.known {
                Some(known) => known.clusters(),
                None => parts.iter().max().map_or(1, |last| last + 1),
            };
            models.extend(std::iter::repeat_n(self.state.current.models[family].clone(), parts));
        }
        if models.len() > count {
            // Only some of the clients are compared.
            let families = self.known.clone().unwrap_or(families);
            self.begin_afresh(room, &mut models, &families)?;
            self.state.challenger = Some(Partition { models, families, put: true });
        }
        Ok(())
    }

    /// A model that several families pulled at may be a poor one to begin with: where the mean of what a new family's members learn alone
    /// has a smaller loss on held-out rows, it takes its place.
    fn begin_afresh(&mut self, room: &mut Room, models: &mut [Params], families: &Assignment) -> Result<()> {
        let members: Vec<Recipients> =
            (0..models.len()).map(|family| Recipients::list(families.members(family))).collect();
        let mut ask =
            Ask::new(Phase::Train, vec![self.start.clone()], Gather::Sum { by: By::All, weight: Weight::Rows });
        let plan = Plan { amount: self.amount(ALONE), ..self.plan(self.cut.trained) };
        let orders: Vec<_> =
            members.iter().map(|to| ask.order(to.clone(), Train::from_model(0, plan.clone()))).collect();
        let answers = self.ask(room, &ask)?;
        let fresh: Vec<Params> =
            orders.into_iter().map(|order| mean_model(&self.start, &answers.of(order).sums()[0], 0)).collect();
        let mut ask = Ask::new(Phase::Train, models.iter().chain(&fresh).cloned().collect(), Gather::Each);
        let losses = |(family, to): (usize, Recipients)| {
            ask.order(to, Losses { of: vec![family, models.len() + family], on: self.cut.held_out })
        };
        let orders: Vec<_> = members.into_iter().enumerate().map(losses).collect();
        let answers = self.ask(room, &ask)?;
        for ((model, fresh), order) in models.iter_mut().zip(fresh).zip(orders) {
            let gain: f64 = answers.of(order).each().map(|(_, losses)| losses[0] - losses[1]).sum();
            if gain > 0.0 {
                *model = fresh;
            }
        }
        Ok(())
    }

    /// How each of these clients would change its model on two parts of its rows.
    fn updates(&self, room: &mut Room, clients: &[u32]) -> Result<BTreeMap<u32, [Vec<f64>; 2]>> {
        let current = &self.state.current;
        let width = self.start.len();
        let at_once = (MOST_NUMBERS / (2 * width.max(1))).max(1);
        let plan = |on: Portion| Plan { amount: self.amount(UPDATING), ..self.plan(on) };
        let mut updates = BTreeMap::new();
        for clients in clients.chunks(at_once) {
            let mut ask = Ask::new(Phase::Train, current.models.clone(), Gather::Each);
            let mut orders = Vec::new();
            for family in 0..current.models.len() {
                let is_here = |client: &u32| current.families.of(*client) == Some(family);
                let members: Vec<u32> = clients.iter().copied().filter(is_here).collect();
                if !members.is_empty() {
                    let to = Recipients::list(members);
                    orders.push((
                        family,
                        self.cut.halves.map(|half| ask.order(to.clone(), Train::from_model(family, plan(half)))),
                    ));
                }
            }
            if orders.is_empty() {
                continue;
            }
            let answers = room.ask_for_any(&ask)?;
            for (family, halves) in orders {
                let [first, mut second] = halves.map(|half| {
                    let answer = answers.of(half);
                    let update = |place: usize| {
                        let mut update = answer.vector(place).to_vec();
                        add_scaled(&mut update, -1.0, &current.models[family]);
                        folded(&update)
                    };
                    let finite = finite_vectors(&answer).map(|(place, _)| (answer.clients[place], update(place)));
                    finite.collect::<BTreeMap<u32, Vec<f64>>>()
                });
                for (client, first) in first {
                    if let Some(second) = second.remove(&client) {
                        updates.insert(client, [first, second]);
                    }
                }
            }
        }
        Ok(updates)
    }

    /// Line 8.
    fn try_rungs(&mut self, room: &mut Room) -> Result<Service> {
        let current = &self.state.current;
        let families = current.models.len();
        let mut rungs: Vec<Rung> = self.state.global.iter().map(|_| Rung::Global).collect();
        rungs.push(Rung::Family);
        rungs.extend(FINE_TUNING.map(|many| Rung::Personal(self.amount(many))));
        rungs.push(Rung::Alone(self.amount(ALONE)));
        let mut ask = Ask::new(Phase::Train, self.models_so_far(), Gather::Each);
        // Clients of few rows are served like the others: a part of them tells by what.
        let drawn = draw_clients(&self.trainer.key.clone().word("tried"), MOST_TRIED, room);
        let is_tried = |client: &u32| self.rows[*client as usize] >= service::LEAST_ROWS || drawn.contains(*client);
        let able: Vec<u32> = self.able().filter(is_tried).collect();
        let mut orders = Vec::new();
        for family in 0..families {
            let members = current.families.members(family);
            let to: Vec<u32> = members.into_iter().filter(|client| able.binary_search(client).is_ok()).collect();
            if to.is_empty() {
                continue;
            }
            let trial = |rung: &Rung| match *rung {
                Rung::Global => Trial { from: families + 1, amount: Amount::Steps(0) },
                Rung::Family => Trial { from: family, amount: Amount::Steps(0) },
                Rung::Personal(amount) => Trial { from: family, amount },
                Rung::Alone(amount) => Trial { from: families, amount },
            };
            let trials = rungs.iter().map(trial).collect();
            let work =
                FineTune { trials, plan: self.plan(self.cut.trained), held_out: self.cut.held_out, parts: PARTS };
            orders.push(ask.order(Recipients::list(to), work));
        }
        if orders.is_empty() {
            return Ok(Service::plain(Rung::Family));
        }
        self.state.findings.questions += 1;
        let answers = room.ask_for_any(&ask)?;
        let mut tried = Vec::new();
        for order in orders {
            for (client, losses) in answers.of(order).each() {
                let losses: Vec<Vec<f64>> = losses.chunks(PARTS as usize).map(<[f64]>::to_vec).collect();
                if losses.iter().flatten().all(|loss| loss.is_finite()) {
                    tried.push(Tried { client, rows: self.rows[client as usize], losses });
                }
            }
        }
        tried.sort_by_key(|tried| tried.client);
        let service = if tried.is_empty() { Service::plain(Rung::Family) } else { decide(&rungs, &tried) };
        (self.heard.rungs, self.heard.tried) = (rungs, tried);
        Ok(service)
    }

    /// The last of line 9.
    fn serve(&mut self, room: &mut Room) -> Result<()> {
        let Some(service) = self.state.findings.service.clone() else { return Ok(()) };
        let current = &self.state.current;
        self.state.findings.questions += 1;
        let everybody = 0..self.rows.len() as u32;
        if everybody.clone().all(|client| service.of(client) == Rung::Family) {
            return room.distribute(&current.models, &current.families);
        }
        let families = current.models.len();
        let models = self.models_so_far();
        let mut lists: Vec<(Rung, usize, Vec<u32>)> = Vec::new();
        for client in everybody {
            let family = current.families.of(client).unwrap_or(0);
            let rung = service.of(client);
            match lists.iter_mut().find(|(other, of, _)| (*other, *of) == (rung, family)) {
                Some((.., list)) => list.push(client),
                None => lists.push((rung, family, vec![client])),
            }
        }
        let mut ask = Ask::new(Phase::Train, models, Gather::Each);
        for (rung, family, list) in lists {
            let to = Recipients::list(list);
            let mut train = |from: usize, amount: Amount| {
                let plan = Plan { amount, ..self.plan(Portion::All) };
                ask.order(to.clone(), Train { from: Start::Model(from), plan, keep: Keep::Instead });
            };
            match rung {
                Rung::Personal(amount) => train(family, amount),
                Rung::Alone(amount) => train(families, amount),
                Rung::Family => drop(ask.order(to, Receive { models: vec![family], keep: true })),
                Rung::Global => drop(ask.order(to, Receive { models: vec![families + 1], keep: true })),
            }
        }
        let answers = room.ask_for_any(&ask)?;
        stamps_after(&answers).for_each(|(client, stamp)| self.state.stamps[client as usize] = stamp);
        Ok(())
    }

    /// Everybody's choice at the end of the search, by all rows, and who gets what.
    fn end_search(&mut self, room: &mut Room) -> Result<()> {
        let judged = self.judge(room)?;
        let whole = |(trained, held_out): (&Vec<f64>, &Vec<f64>)| {
            let share = f64::from(FOLDS).recip();
            let losses = trained.iter().zip(held_out).map(|(trained, held_out)| trained + share * (held_out - trained));
            first_smallest(losses).position
        };
        let choices: Vec<usize> = judged.trained.iter().zip(&judged.held_out).map(whole).collect();
        let current = &mut self.state.current;
        current.put = true;
        if self.known.is_none() {
            judged.clients.iter().zip(choices).for_each(|(&client, family)| {
                current.families.put(client, family);
            });
        }
        self.state.findings.service = Some(self.try_rungs(room)?);
        if self.checks {
            self.check(room)?;
        }
        let left = self.trainer.schedule.rounds.saturating_sub(self.state.trained);
        self.state.stage = Stage::Last(self.state.trained.div_ceil(2).min(left).max(1));
        Ok(())
    }
}

fn plural(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("one {one}") } else { format!("{count} {many}") }
}

impl Method for Networks {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let (loss, switched) = self.train(room, self.state.stage == Stage::Search)?;
        match self.state.stage {
            Stage::Search => {
                self.state.quiet = if switched == 0 { self.state.quiet + 1 } else { 0 };
                let due =
                    self.state.trained.is_multiple_of(self.stretch()) || self.state.trained >= self.most_searched();
                if due && self.take_stock(room)? {
                    self.end_search(room)?;
                }
            }
            Stage::Last(left) if left > 1 => self.state.stage = Stage::Last(left - 1),
            Stage::Last(_) | Stage::Done => {
                self.serve(room)?;
                self.state.stage = Stage::Done;
            }
        }
        let sizes = self.state.current.families.sizes();
        Ok(Progress { loss, switched: Some(switched), sizes, finished: self.state.stage == Stage::Done })
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds.max(2)
    }

    fn outcome(&self) -> Outcome {
        let State { current, findings, stamps, .. } = &self.state;
        let families = current.families.clone();
        let serving = match stamps.iter().any(|&stamp| stamp > 0) {
            true => Serving::Own { stamps: stamps.clone(), clusters: Some(families) },
            false => Serving::Given(families),
        };
        let mut extra: BTreeMap<String, f64> =
            findings.p.map(|p| ("heterogeneity_p".to_string(), p)).into_iter().collect();
        extra.insert("questions".into(), findings.questions as f64);
        Outcome {
            models: current.models.clone(),
            clustered: true,
            global: self.state.global.clone(),
            serving,
            notes: sentences::of(findings, &current.families.sizes(), self.able().count()),
            extra,
            ..Outcome::default()
        }
    }

    keep_state!();
}
