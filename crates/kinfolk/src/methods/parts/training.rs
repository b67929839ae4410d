//! How clients train in the rounds of a method.

use super::super::*;
use super::aggregating::Aggregating;
use crate::federation::Handle;
use crate::federation::work::{Answer, Choice};
use std::borrow::Cow;

choices! {
    /// How gradients become steps.
    pub enum OptimiserKind { Descent = "descent", Adam = "adam" }
    /// Where a client begins.
    pub enum StartModel { Own = "own", Common = "common" }
}

choices!(Weight { Uniform = "uniform", Rows = "rows", });

settings! {
    /// How gradients become steps.
    pub struct Optimising {
        /// how gradients become steps
        optimiser: OptimiserKind = "descent",
        /// momentum of descent
        momentum: f64 [0.0..=1.0] = 0.0,
        /// pull of the parameters towards 0
        weight_decay: f64 [0.0..=1e18] = 0.0,
    }

    fn check(&self, check: &mut Check) {
        if self.optimiser == OptimiserKind::Adam && self.momentum > 0.0 {
            check.fault("momentum", "adam has its own, want 0");
        }
    }
}

impl Optimising {
    pub(in crate::methods) fn optimiser(&self) -> Optimiser {
        match self.optimiser {
            OptimiserKind::Adam => Optimiser::Adam { weight_decay: self.weight_decay },
            OptimiserKind::Descent => Optimiser::Descent { momentum: self.momentum, weight_decay: self.weight_decay },
        }
    }
}

/// The steps of this amount of training, where a pass has so many.
pub fn steps(amount: Amount, pass: u64) -> u64 {
    match amount {
        Amount::Steps(steps) => u64::from(steps),
        Amount::Epochs(epochs) => u64::from(epochs).saturating_mul(pass),
    }
}

/// Steps, or passes over the rows, where one of them is given.
pub fn amount(steps: Option<u32>, epochs: Option<u32>) -> Option<Amount> {
    steps.map(Amount::Steps).or(epochs.map(Amount::Epochs))
}

/// Adds the fault of giving both.
pub fn one_amount(check: &mut Check, [steps, epochs]: [&str; 2]) {
    if check.changed(&[steps, epochs]).len() == 2 {
        check.fault(epochs, format!("{steps} is given too, want one of them"));
    }
}

/// Adds faults of optimisers other than plain descent.
pub fn plain_steps_only(check: &mut Check, why: &str) {
    for name in check.changed(&["momentum", "optimiser", "weight_decay"]) {
        check.fault_with_hint(name, why, format!("leave {name} out"));
    }
}

settings! {
    /// The rounds of a method in which clients train, but for the step size.
    pub struct Schedule {
        /// rounds to run at most
        rounds: usize [1..=1 << 40] = 100,
        /// steps a client takes in a round (default 10)
        local_steps: Option<u32> [1..=1 << 31],
        /// passes over its rows instead of steps
        local_epochs: Option<u32> [1..=1 << 31],
        /// rows in a step (default all)
        batch: Option<u32> [1..=1 << 31],
        /// the step shrinks by this factor every round
        decay: f64 [0.0..=1.0] = 1.0,
        /// how gradients become steps
        optimising: Optimising,
        /// share of the clients asked in a round
        participation: f64 [above 0.0..=1.0] = 1.0,
        /// a missing answer is left out, stands for no change, or ends the run
        missing: MissingRule ["skip", "keep", "fail"] = "skip",
    }

    fn check(&self, check: &mut Check) {
        if self.local_steps.is_some() && self.local_epochs.is_some() {
            check.fault("local_epochs", "local_steps is given too, want one of them");
        }
    }
}

impl Schedule {
    /// So many rounds, all else by default.
    pub fn rounds(rounds: usize) -> Self {
        Self { rounds, ..Self::default() }
    }

    /// The amount of training in a round.
    pub(in crate::methods) fn amount(&self) -> Amount {
        amount(self.local_steps, self.local_epochs).unwrap_or(Amount::Steps(10))
    }

    /// How much rounds of training use the rows of a client that takes part in all of them, where a pass has so many steps.
    pub(in crate::methods) fn exposure(&self, pass: u64) -> Hidable {
        let of_round = steps(self.amount(), pass);
        let rounds = self.rounds as u64;
        Ok(Exposure { steps: of_round.saturating_mul(rounds), sums: rounds, ..Exposure::default() })
    }

    pub(in crate::methods) fn needs<T>(&self, step: &Auto<T>) -> Needs {
        Needs { auto_step: AutoStep::unless_given(step, self.optimising.optimiser()), ..Needs::only(self.missing) }
    }
}

settings! {
    /// The rounds of a method in which clients train.
    pub struct Training {
        /// step size; auto is safe on this data for full batches of a linear model, 0.1 for a network, 0.01 for adam
        step: Auto<f64> [above 0.0] = "auto",
        /// the rounds, and how clients train in them
        schedule: Schedule,
    }
}

impl Training {
    /// So many rounds, all else by default.
    pub fn rounds(rounds: usize) -> Self {
        Self { schedule: Schedule::rounds(rounds), ..Self::default() }
    }

    pub(in crate::methods) fn needs(&self) -> Needs {
        self.schedule.needs(&self.step)
    }

    pub(in crate::methods) fn trainer(self, setup: &Setup) -> Trainer {
        let step = setup.step(self.step, self.schedule.optimising.optimiser());
        Trainer { schedule: self.schedule, step, aggregating: Aggregating::default(), key: setup.key.clone() }
    }
}

/// How clients train in the rounds of a method, ready to run.
#[derive(Clone)]
pub struct Trainer {
    pub schedule: Schedule,
    pub step: f64,
    /// How what they send becomes one model.
    pub aggregating: Aggregating,
    pub key: Key,
}

impl Trainer {
    /// The same with other random draws.
    pub fn with_draws(&self, word: &str) -> Self {
        Self { key: self.key.clone().word(word), ..self.clone() }
    }

    /// The same, where what clients send becomes one model by these settings.
    pub fn aggregating(self, aggregating: &Aggregating) -> Self {
        Self { aggregating: aggregating.clone(), ..self }
    }

    /// How answers come back.
    pub fn gather(&self, by: By, weight: Weight) -> Gather {
        self.aggregating.gather(by, weight)
    }

    fn draws_of(&self, answers: &Answers) -> Key {
        self.key.clone().word("aggregate").number(answers.stamp)
    }

    /// What clients sent in answer to some orders, one sum for each of the models they began from.
    pub fn sums<A: Answer>(
        &self,
        weight: Weight,
        before: &[Params],
        answers: &Answers,
        orders: &[(usize, Handle<A>)],
    ) -> Vec<Sum> {
        let orders = orders.iter().map(|&(slot, order)| (slot, answers.order(order)));
        self.aggregating.by_order((weight, &self.draws_of(answers)), before, orders)
    }

    /// The same for one order, whose clients chose among these models.
    pub fn sums_by_choice<'a>(
        &self,
        weight: Weight,
        before: &[Params],
        answers: &'a Answers,
        order: Handle<Choice>,
    ) -> Cow<'a, [Sum]> {
        self.aggregating.by_choice((weight, &self.draws_of(answers)), before, answers.order(order))
    }

    pub fn sample(&self, round: usize) -> Sample {
        let seed = self.key.clone().word("batches").number(round as u64).seed();
        Sample { on: Portion::All, batch: self.schedule.batch, seed }
    }

    pub fn plan(&self, round: usize) -> Plan {
        Plan {
            sample: self.sample(round),
            amount: self.schedule.amount(),
            step: self.step_in(round),
            optimiser: self.schedule.optimising.optimiser(),
            terms: Terms::default(),
            course: Course::PLAIN,
        }
    }

    /// The step size in this round, counted from 0.
    pub fn step_in(&self, round: usize) -> f64 {
        self.step * self.schedule.decay.powi(round.min(i32::MAX as usize) as i32)
    }

    pub fn is_last(&self, room: &Room) -> bool {
        room.round() + 1 >= self.schedule.rounds
    }

    pub fn participants(&self, round: usize, room: &Room) -> Recipients {
        draw_participants(self.schedule.participation, &self.key, round, room)
    }
}

/// This share of the clients, drawn for a round.
pub fn draw_participants(share: f64, key: &Key, round: usize, room: &Room) -> Recipients {
    if share >= 1.0 {
        return Recipients::All;
    }
    let all = room.clients().len();
    let count = ((share * all as f64).round() as usize).clamp(1, all);
    draw_clients(&key.clone().word("participation").number(round as u64), count, room)
}

/// Random clients. Each draws a lot of its own, so that the order of the clients does not matter.
pub fn draw_clients(key: &Key, count: usize, room: &Room) -> Recipients {
    let mut lots: Vec<(u64, u32)> =
        (0u32..).zip(room.clients()).map(|(index, client)| (key.clone().word(&client.id).seed(), index)).collect();
    lots.sort_unstable();
    Recipients::list(lots.into_iter().take(count).map(|(_, index)| index).collect())
}
