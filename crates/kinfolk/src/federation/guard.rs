//! What a client of a real machine does for nobody: work on so few of its rows that the answer would show them, and more
//! work than a message may ask for.
//!
//! The gradient of a linear model on one row is a multiple of that row; sums over all rows and over all but a few show
//! those few. So every portion, fold and batch, and what is left beside it, has at least `minimum_rows` rows. Who knows
//! which rows are in which of many batches or folds solves equations for each of them: so they are drawn from a number
//! that only who has the rows can know.

use super::mixtures::{FitMixture, MixtureStep};
use super::node::Limits;
use super::own::{Advance, Respond, Run};
use super::{Amount, Plan, Portion, Sample, Subject, Then, Work};
use crate::data::Client;
use crate::error::{Error, Result};
use crate::mixture::Shape;
use crate::rng::Key;
use std::borrow::Cow;

/// How few rows of a client an answer may be about, and each client's own number, from which its batches and folds are
/// drawn.
pub(super) struct Guard {
    pub(super) minimum: usize,
    secrets: Vec<u64>,
}

impl Guard {
    /// A guard of these clients' rows, as they are before any schema that a server sends; `None` where nothing is few.
    pub(super) fn of(clients: &[Client], minimum: usize) -> Option<Self> {
        (minimum > 1).then(|| Self { minimum, secrets: clients.iter().map(Client::secret).collect() })
    }

    /// A client's own number.
    pub(super) fn secret(&self, client: u32) -> u64 {
        self.secrets[client as usize]
    }

    /// The work as a client with so many training rows does it, or why it does not.
    pub(super) fn admit<'w>(&self, work: &'w Work, client: u32, rows: usize) -> Result<Cow<'w, Work>> {
        let least = Least { rows, minimum: self.minimum, secret: self.secret(client) };
        Ok(least.admit(work)?.map_or(Cow::Borrowed(work), Cow::Owned))
    }
}

/// One client's rows, and how few of them an answer may be about.
struct Least {
    rows: usize,
    minimum: usize,
    secret: u64,
}

impl Least {
    /// The work as it is done, where that is not as it was asked for.
    fn admit(&self, work: &Work) -> Result<Option<Work>> {
        Ok(match work {
            Work::Describe { .. } | Work::Adopt { .. } | Work::Shares { .. } | Work::Minimise { .. } => None,
            // Held-out rows are as many or none.
            Work::Score { .. } | Work::Tally { .. } | Work::Curvature | Work::Receive { .. } => None,
            Work::Losses { on, .. } | Work::Respond(Respond { on, .. }) => self.portion(*on).map(|_| None)?,
            Work::Gradient { of, sample } => {
                self.sample(sample, false)?.map(|sample| Work::Gradient { of: *of, sample })
            }
            Work::Train { from, plan, keep } => {
                self.plan(plan)?.map(|plan| Work::Train { from: from.clone(), plan, keep: *keep })
            }
            Work::Choose { among, on, then } => {
                self.portion(*on)?;
                let then = match then {
                    Then::Nothing => None,
                    Then::Gradient(sample) => self.sample(sample, false)?.map(Then::Gradient),
                    Then::Train(plan) => self.plan(plan)?.map(Then::Train),
                };
                then.map(|then| Work::Choose { among: among.clone(), on: *on, then })
            }
            Work::Advance(advance) => match &advance.run {
                None => None,
                Some(run) => self.sample(&run.sample, run.acceleration.is_none())?.map(|sample| {
                    let run = Some(Run { sample, ..run.clone() });
                    Work::Advance(Advance { run, ..advance.clone() })
                }),
            },
            Work::Validate { fold, of, .. } => self.portion(Portion::Others { index: *fold, of: *of }).map(|_| None)?,
            Work::FitMixture(FitMixture { shape, .. }) => self.components(shape).map(|()| None)?,
            Work::MixtureStep(step) => {
                self.components(&step.shape)?;
                let sample = self.sample(&step.sample, false)?;
                sample.map(|sample| Work::MixtureStep(MixtureStep { sample, ..step.clone() }))
            }
        })
    }

    fn enough(&self, what: &str, found: usize) -> Result<()> {
        match found >= self.minimum {
            true => Ok(()),
            false => {
                let message = format!("{what} of {found} rows, this machine wants at least {}", self.minimum);
                Err(Error::federation(message).hint("node.minimum_rows in the machine's own file says so"))
            }
        }
    }

    /// How many rows a portion has, at least.
    fn portion(&self, on: Portion) -> Result<usize> {
        let (what, of) = match on {
            Portion::All => return Ok(self.rows),
            Portion::Part { of, .. } => ("a part", of as usize),
            Portion::Fold { of, .. } => ("a fold", of as usize),
            Portion::Others { of, .. } => ("a fold left out", of as usize),
        };
        let (inside, others) = (self.rows / of.max(1), self.rows - self.rows.div_ceil(of.max(1)));
        self.enough(what, inside)?;
        if of > 1 {
            self.enough("what is left beside a part", others)?;
        }
        Ok(if matches!(on, Portion::Others { .. }) { others } else { inside })
    }

    /// The sample as it is drawn, where it is not all rows. In `passes` over the rows, a batch grows until what is left
    /// in the end is enough for a batch of its own.
    fn sample(&self, sample: &Sample, passes: bool) -> Result<Option<Sample>> {
        let least = self.portion(sample.on)?;
        // A portion may have a row more than the smallest of its kind.
        let most = least + usize::from(sample.on != Portion::All);
        let Some(asked) = sample.batch.map(|batch| batch as usize) else { return Ok(None) };
        self.enough("a batch", asked.min(least))?;
        if asked >= most {
            return Ok(None);
        }
        let leaves_enough = |batch: &usize| {
            (least..=most).all(|rows| rows % batch == 0 || rows % batch >= self.minimum || *batch >= rows)
        };
        let batch = if passes { (asked..most).find(leaves_enough).unwrap_or(most) } else { asked };
        let seed = Key::new(sample.seed).number(self.secret).seed();
        Ok(Some(Sample { batch: Some(batch as u32), seed, on: sample.on }))
    }

    fn plan(&self, plan: &Plan) -> Result<Option<Plan>> {
        Ok(self.sample(&plan.sample, true)?.map(|sample| Plan { sample, ..plan.clone() }))
    }

    /// A component of its own for every few rows is a list of the rows.
    fn components(&self, shape: &Shape) -> Result<()> {
        self.enough("components", self.rows / shape.components.max(1))
    }
}

/// What an order costs a client: its steps, the numbers that are looked at, and the numbers it takes in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Cost {
    pub(super) steps: f64,
    pub(super) work: f64,
    pub(super) numbers: f64,
}

/// What work costs a client with so many rows and a model of so many parameters, at most.
pub(super) fn cost(work: &Work, rows: usize, width: usize) -> Cost {
    let (rows, wide) = (rows as f64, width as f64);
    let square = wide * wide;
    let looks = |times: f64| Cost { steps: 1.0, work: times * rows * wide, numbers: work.losses() as f64 + times };
    let runs = |steps: f64, sample: &Sample| {
        let batch = sample.batch.map_or(rows, |batch| rows.min(f64::from(batch)));
        Cost { steps, work: steps * batch * wide, numbers: wide }
    };
    let training = |plan: &Plan| match plan.amount {
        Amount::Steps(steps) => runs(f64::from(steps), &plan.sample),
        Amount::Epochs(epochs) => {
            let batch = plan.sample.batch.map_or(rows, |batch| rows.min(f64::from(batch))).max(1.0);
            runs(f64::from(epochs) * (rows / batch).ceil(), &plan.sample)
        }
    };
    // Whoever solves exactly forms a matrix.
    let solves = |times: f64| Cost { steps: times, work: times * rows * square, numbers: 4.0 * square };
    let mixes = |shape: &Shape, steps: f64| {
        let (components, columns) = (shape.components as f64, shape.columns as f64 + 1.0);
        let numbers = components * columns * columns + components * rows;
        Cost { steps, work: steps * rows * components * columns * columns, numbers }
    };
    match work {
        Work::Describe { .. } | Work::Adopt { .. } => looks(1.0),
        Work::Shares { among: of } | Work::Losses { of, .. } => looks(of.len() as f64),
        Work::Receive { .. } => Cost::default(),
        Work::Gradient { sample, .. } => runs(1.0, sample),
        Work::Train { plan, .. } => training(plan),
        Work::Choose { among, then, .. } => {
            let then = match then {
                Then::Nothing => Cost::default(),
                Then::Gradient(sample) => runs(1.0, sample),
                Then::Train(plan) => training(plan),
            };
            let looks = looks(among.len() as f64);
            Cost { steps: then.steps, work: looks.work + then.work, numbers: looks.numbers + then.numbers }
        }
        Work::Minimise { .. } | Work::Respond(_) | Work::Curvature | Work::Score { with: Subject::Alone, .. } => {
            solves(1.0)
        }
        Work::Validate { trials, .. } => solves(trials.len() as f64),
        Work::Score { with, .. } => match with {
            Subject::Models(models) => looks(models.len() as f64),
            _ => looks(1.0),
        },
        Work::Advance(advance) => {
            let run = advance.run.as_ref().map_or_else(Cost::default, |run| runs(f64::from(run.steps), &run.sample));
            let sent = advance.send.len() as f64 + f64::from(advance.vectors);
            Cost { steps: run.steps, work: 2.0 * run.work + rows * wide, numbers: sent * wide }
        }
        Work::FitMixture(fit) => mixes(&fit.shape, fit.fitting.starts as f64 * fit.fitting.iterations as f64),
        Work::MixtureStep(step) => mixes(&step.shape, f64::from(step.steps)),
        Work::Tally { components, classes, .. } => {
            Cost { numbers: f64::from(*components) * f64::from(*classes), ..looks(1.0) }
        }
    }
}

/// Refuses orders that cost more than a message may.
pub(super) fn afford<'a>(orders: impl Iterator<Item = (&'a Work, usize)>, width: usize, limits: &Limits) -> Result<()> {
    let mut all = Cost::default();
    for (work, rows) in orders {
        let one = cost(work, rows, width);
        Limits::check("steps of one client", one.steps, "steps", limits.steps)?;
        all.work += one.work;
        all.numbers += one.numbers;
    }
    Limits::check("numbers for the answer", all.numbers, "numbers", limits.numbers)?;
    Limits::check("rows looked at times parameters", all.work, "work", limits.work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::federation::{Course, Keep, Optimiser, Start};

    fn train(batch: u32, amount: Amount) -> Work {
        let sample = Sample { batch: Some(batch), ..Sample::FULL };
        let optimiser = Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 };
        let plan = Plan { sample, amount, step: 0.1, optimiser, pulls: Vec::new(), course: Course::PLAIN };
        Work::Train { from: Start::Model(0), plan, keep: Keep::No }
    }

    #[test]
    fn the_last_batch_of_a_pass_is_never_smaller_than_the_least() {
        for rows in 10..80 {
            let least = Least { rows, minimum: 10, secret: 7 };
            for batch in 10..90 {
                let asked = train(batch, Amount::Epochs(2));
                let done = least.admit(&asked).unwrap().unwrap_or(asked);
                let Work::Train { plan, .. } = done else { panic!("{done:?}") };
                let size = (plan.sample.batch.unwrap() as usize).min(rows);
                assert!(rows % size == 0 || rows % size >= 10, "{rows} rows in batches of {size}");
                assert!(size >= (batch as usize).min(rows));
            }
        }
        let least = Least { rows: 40, minimum: 10, secret: 7 };
        assert_eq!(least.admit(&train(40, Amount::Steps(3))).unwrap(), None, "all rows are no batch");
        let refused = least.admit(&train(9, Amount::Steps(1))).unwrap_err();
        assert!(refused.to_string().contains("a batch of 9 rows"), "{refused}");
    }

    #[test]
    fn costs_are_counted_and_never_overflow() {
        let steps = train(16, Amount::Steps(u32::MAX));
        assert_eq!(cost(&steps, 40, 3).steps, f64::from(u32::MAX));
        assert_eq!(
            cost(&train(16, Amount::Epochs(2)), 40, 3),
            Cost { steps: 6.0, work: 6.0 * 16.0 * 3.0, numbers: 3.0 }
        );
        let tally = Work::Tally { with: Subject::Models(vec![0]), components: u32::MAX, classes: u32::MAX };
        assert!(afford([(&tally, 10)].into_iter(), 3, &Limits::default()).unwrap_err().to_string().contains("numbers"));
        let said = afford([(&steps, 40)].into_iter(), 3, &Limits::default()).unwrap_err().to_string();
        assert_eq!(said, "steps of one client: got 4294967295, this machine allows 1000000 (node.limits.steps)");
    }
}
