//! What a client of a real machine does for nobody: work on so few of its rows that the answer would show them, and more
//! work than a message may ask for.
//!
//! The gradient of a linear model on one row is a multiple of that row; sums over all rows and over all but a few show
//! those few. So every portion, fold and batch, and what is left beside it, has at least `minimum_rows` rows. Who knows
//! which rows are in which of many batches or folds solves equations for each of them: so they are drawn from a number
//! that only who has the rows can know.

use super::node::Limits;
use crate::data::Client;
use crate::error::{Error, Result};
use crate::federation::work::Work;
use crate::mixture::Shape;
use crate::rng::Key;
use crate::training::{Amount, Plan, Portion, Sample};
use std::borrow::Cow;

/// How few rows of a client an answer may be about, and each client's own number, from which its batches and folds are
/// drawn.
pub struct Guard {
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
        let fewest = FewestRows { rows, minimum: self.minimum, secret: self.secret(client) };
        Ok(work.restrict(&fewest)?.map_or(Cow::Borrowed(work), Cow::Owned))
    }
}

/// One client's rows, and how few of them an answer may be about.
pub struct FewestRows {
    rows: usize,
    minimum: usize,
    secret: u64,
}

impl FewestRows {
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
    pub(crate) fn portion(&self, on: Portion) -> Result<usize> {
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
    pub(crate) fn sample(&self, sample: &Sample, passes: bool) -> Result<Option<Sample>> {
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

    pub(crate) fn plan(&self, plan: &Plan) -> Result<Option<Plan>> {
        Ok(self.sample(&plan.sample, true)?.map(|sample| Plan { sample, ..plan.clone() }))
    }

    /// A component of its own for every few rows is a list of the rows.
    pub(crate) fn components(&self, shape: &Shape) -> Result<()> {
        self.enough("components", self.rows / shape.components.max(1))
    }
}

/// What an order costs a client.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// Steps.
    pub steps: f64,
    /// Numbers that are looked at.
    pub work: f64,
    /// Numbers that it takes in memory.
    pub numbers: f64,
}

/// What decides about costs: a client's rows and the parameters of the model.
pub struct Load {
    pub(crate) rows: f64,
    pub(crate) width: f64,
}

impl Load {
    pub(super) fn new(rows: usize, width: usize) -> Self {
        Self { rows: rows as f64, width: width as f64 }
    }

    /// Of so many looks at all rows, for so many numbers.
    pub(crate) fn looks(&self, times: f64, numbers: usize) -> Cost {
        Cost { steps: 1.0, work: times * self.rows * self.width, numbers: numbers as f64 + times }
    }

    /// Of so many steps.
    pub(crate) fn runs(&self, steps: f64, sample: &Sample) -> Cost {
        Cost { steps, work: steps * self.batch(sample) * self.width, numbers: self.width }
    }

    /// Of a training.
    pub(crate) fn training(&self, plan: &Plan) -> Cost {
        match plan.amount {
            Amount::Steps(steps) => self.runs(f64::from(steps), &plan.sample),
            Amount::Epochs(epochs) => {
                let steps = (self.rows / self.batch(&plan.sample).max(1.0)).ceil();
                self.runs(f64::from(epochs) * steps, &plan.sample)
            }
        }
    }

    /// Of so many exact solutions, each of which forms a matrix.
    pub(crate) fn solves(&self, times: f64) -> Cost {
        let square = self.width * self.width;
        Cost { steps: times, work: times * self.rows * square, numbers: 4.0 * square }
    }

    /// Of so many steps of EM.
    pub(crate) fn mixes(&self, shape: &Shape, steps: f64) -> Cost {
        let (components, columns) = (shape.components as f64, shape.columns as f64 + 1.0);
        let numbers = components * columns * columns + components * self.rows;
        Cost { steps, work: steps * self.rows * components * columns * columns, numbers }
    }

    fn batch(&self, sample: &Sample) -> f64 {
        sample.batch.map_or(self.rows, |batch| self.rows.min(f64::from(batch)))
    }
}

/// Refuses orders that cost more than a message may.
pub(super) fn afford<'a>(orders: impl Iterator<Item = (&'a Work, usize)>, width: usize, limits: &Limits) -> Result<()> {
    let mut all = Cost::default();
    for (work, rows) in orders {
        let one = work.cost(&Load::new(rows, width));
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
    use crate::federation::work::{Subject, Tally, Train};
    use crate::training::{Course, Optimiser};

    fn train(batch: u32, amount: Amount) -> Work {
        let sample = Sample { batch: Some(batch), ..Sample::FULL };
        let optimiser = Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 };
        let plan = Plan { sample, amount, step: 0.1, optimiser, pulls: Vec::new(), course: Course::PLAIN };
        Train::from_model(0, plan).into()
    }

    #[test]
    fn the_last_batch_of_a_pass_is_never_smaller_than_the_least() {
        for rows in 10..80 {
            let least = FewestRows { rows, minimum: 10, secret: 7 };
            for batch in 10..90 {
                let asked = train(batch, Amount::Epochs(2));
                let done = asked.restrict(&least).unwrap().unwrap_or(asked);
                let Work::Train(Train { plan, .. }) = done else { panic!("{done:?}") };
                let size = (plan.sample.batch.unwrap() as usize).min(rows);
                assert!(rows % size == 0 || rows % size >= 10, "{rows} rows in batches of {size}");
                assert!(size >= (batch as usize).min(rows));
            }
        }
        let least = FewestRows { rows: 40, minimum: 10, secret: 7 };
        assert_eq!(train(40, Amount::Steps(3)).restrict(&least).unwrap(), None, "all rows are no batch");
        let refused = train(9, Amount::Steps(1)).restrict(&least).unwrap_err();
        assert!(refused.to_string().contains("a batch of 9 rows"), "{refused}");
    }

    #[test]
    fn costs_are_counted_and_never_overflow() {
        let steps = train(16, Amount::Steps(u32::MAX));
        assert_eq!(steps.cost(&Load::new(40, 3)).steps, f64::from(u32::MAX));
        assert_eq!(
            train(16, Amount::Epochs(2)).cost(&Load::new(40, 3)),
            Cost { steps: 6.0, work: 6.0 * 16.0 * 3.0, numbers: 3.0 }
        );
        let tally = Tally { with: Subject::Models(vec![0]), components: u32::MAX, classes: u32::MAX }.into();
        assert!(afford([(&tally, 10)].into_iter(), 3, &Limits::default()).unwrap_err().to_string().contains("numbers"));
        let said = afford([(&steps, 40)].into_iter(), 3, &Limits::default()).unwrap_err().to_string();
        assert_eq!(said, "steps of one client: got 4294967295, this machine allows 1000000 (node.limits.steps)");
    }
}
