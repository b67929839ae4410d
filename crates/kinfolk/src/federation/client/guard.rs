//! What a client on somebody else's machine refuses: work on so few of its rows that the answer would reveal them, and
//! more work than a message may ask for.
//!
//! The gradient of a linear model on one row is a multiple of that row; sums over all rows and over all but a few reveal
//! those few. So every portion, fold and batch, and its complement, has at least `minimum_rows` rows. Knowing which rows
//! are in which of many batches or folds, one could solve equations for each row: so they are drawn from a number that
//! only the owner of the rows can know.

use super::node::Limits;
use crate::error::{Error, Result};
use crate::federation::work::Work;
use crate::mixture::Shape;
use crate::models::{Choosing, Step};
use crate::privacy::answers::HiddenAnswer;
use crate::privacy::noise::{Noise, Source};
use crate::privacy::rows::{RowPrivacy, Spent};
use crate::rng::Key;
use crate::training::{Amount, HiddenRows, Plan, Portion, Sample, Terms, Then};
use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Protects one client's rows, where they are to be protected.
pub struct Guard<'h> {
    pub(super) rows: usize,
    /// The fewest rows that an answer may be about, and the seed of the client's batches and folds.
    pub(super) protection: Option<(usize, u64)>,
    /// What hides single rows, where an answer is to be differentially private.
    pub(super) hiding: Option<Hiding<'h>>,
}

/// What hides the rows of one client in its answer to one order.
pub(super) struct Hiding<'h> {
    pub(super) privacy: &'h RowPrivacy,
    pub(super) spent: &'h Mutex<Spent>,
    /// Where this answer's noise comes from.
    pub(super) source: Source,
}

impl Hiding<'_> {
    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Training by steps that hide single rows.
    fn plan(&self, plan: &Plan) -> Result<Plan> {
        let RowPrivacy { rate, clip, noise, .. } = *self.privacy;
        let steps = match plan.amount {
            Amount::Steps(steps) => u64::from(steps),
            Amount::Epochs(epochs) => u64::from(epochs).saturating_mul(RowPrivacy::steps_of_a_pass(rate)),
        };
        self.spent().step(self.privacy, steps)?;
        let hidden = Some(Box::new(HiddenRows { rate, clip, noise, source: self.source }));
        Ok(Plan {
            sample: Sample { batch: None, ..plan.sample.clone() },
            amount: Amount::Steps(u32::try_from(steps).unwrap_or(u32::MAX)),
            terms: Terms { hidden, ..plan.terms.clone() },
            ..plan.clone()
        })
    }

    /// The model to go on with: the last one chosen, or one drawn now, by how many rows each fits.
    pub(super) fn choose(&self, among: usize, fits: impl FnOnce(&RowPrivacy) -> Vec<f64>) -> Result<usize> {
        let last = self.spent().choose(self.privacy)?.filter(|&last| last < among);
        let place = last.unwrap_or_else(|| {
            let scores: Vec<f64> = fits(self.privacy).iter().map(|rows| self.privacy.choice * rows).collect();
            Noise::new(self.source.extended(|key| key.word("choice"))).choose(&scores)
        });
        self.spent().chose(place);
        Ok(place)
    }
}

impl Guard<'_> {
    /// The noise of so many answers, which count, where single rows are to be hidden.
    pub(crate) fn answer(&self, answers: u64) -> Result<Option<HiddenAnswer>> {
        let Some(hiding) = &self.hiding else { return Ok(None) };
        hiding.spent().answer(hiding.privacy, answers)?;
        Ok(Some(HiddenAnswer::new(*hiding.privacy, hiding.source)))
    }

    /// The fewest rows that an answer may be about, where that is limited.
    pub(crate) fn minimum(&self) -> Option<usize> {
        self.protection.map(|(minimum, _)| minimum)
    }

    pub(crate) fn enough(&self, what: &str, found: f64) -> Result<()> {
        match self.minimum() {
            Some(minimum) if found < minimum as f64 => {
                let found = (10.0 * found).round() / 10.0;
                let message = format!("{what} of {found} rows, this machine wants at least {minimum}");
                Err(Error::federation(message).hint("node.minimum_rows in the machine's own file says so"))
            }
            _ => Ok(()),
        }
    }

    /// Lower bound on the rows of a portion, unless that is refused.
    pub(crate) fn portion(&self, on: Portion) -> Result<usize> {
        let (what, of) = match on {
            Portion::All => return Ok(self.rows),
            Portion::Part { of, .. } => ("a part", of as usize),
            Portion::Fold { of, .. } => ("a fold", of as usize),
            Portion::Others { of, .. } => ("a fold left out", of as usize),
            Portion::Earlier { of } => ("the last part", of as usize),
        };
        let (inside, others) = (self.rows / of.max(1), self.rows - self.rows.div_ceil(of.max(1)));
        self.enough(what, inside as f64)?;
        if of > 1 {
            self.enough("what is left beside a part", others as f64)?;
        }
        Ok(if matches!(on, Portion::Others { .. } | Portion::Earlier { .. }) { others } else { inside })
    }

    /// The sample drawn instead of the one asked for: in `passes`, a batch grows until the rest is enough for another.
    pub(crate) fn sample(&self, sample: &Sample, passes: bool) -> Result<Sample> {
        let Some((minimum, secret)) = self.protection else { return Ok(sample.clone()) };
        let least = self.portion(sample.on)?;
        // A portion may have a row more than the smallest of its kind.
        let most = least + usize::from(sample.on != Portion::All);
        let Some(asked) = sample.batch.map(|batch| batch as usize) else { return Ok(sample.clone()) };
        self.enough("a batch", asked.min(least) as f64)?;
        if asked >= most {
            return Ok(sample.clone());
        }
        let leaves_enough =
            |batch: &usize| (least..=most).all(|rows| rows % batch == 0 || rows % batch >= minimum || *batch >= rows);
        let batch = if passes { (asked..most).find(leaves_enough).unwrap_or(most) } else { asked };
        Ok(Sample { batch: Some(batch as u32), seed: Key::new(sample.seed).number(secret).seed(), on: sample.on })
    }

    pub(crate) fn plan(&self, plan: &Plan) -> Result<Plan> {
        match &self.hiding {
            Some(hiding) => hiding.plan(plan),
            None => Ok(Plan { sample: self.sample(&plan.sample, true)?, ..plan.clone() }),
        }
    }

    /// The step taken instead of the one asked for.
    pub(super) fn step<'s>(&self, step: Step<'s>) -> Result<Step<'s>> {
        match step {
            Step::Losses { on, .. } => self.portion(on).map(|_| step),
            Step::Choose(Choosing { among, on, then }) => {
                self.portion(on)?;
                let then = match &*then {
                    _ if self.protection.is_none() => then,
                    Then::Nothing => Cow::Owned(Then::Nothing),
                    Then::Gradient(sample) => Cow::Owned(Then::Gradient(self.sample(sample, false)?)),
                    Then::Train(plan) => Cow::Owned(Then::Train(self.plan(plan)?)),
                };
                Ok(Step::Choose(Choosing { among, on, then }))
            }
            Step::Score { .. } => Ok(step),
        }
    }

    /// The seed of the client's parts and folds, where nobody else may know it.
    pub(crate) fn secret(&self) -> Option<u64> {
        self.protection.map(|(_, secret)| secret)
    }

    /// Refuses so many components that they would be a list of the rows.
    pub(crate) fn components(&self, shape: &Shape) -> Result<()> {
        self.enough("components", (self.rows / shape.components.max(1)) as f64)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    pub steps: f64,
    /// Rows looked at times parameters.
    pub work: f64,
    /// Numbers in memory.
    pub numbers: f64,
}

/// What costs depend on: a client's rows and the parameters of the model.
pub struct Load {
    pub(crate) rows: f64,
    pub(crate) width: f64,
}

impl Load {
    pub(super) fn new(rows: usize, width: usize) -> Self {
        Self { rows: rows as f64, width: width as f64 }
    }

    /// The cost of `times` passes over all rows that yield `numbers` numbers.
    pub(crate) fn looks(&self, times: f64, numbers: usize) -> Cost {
        Cost { steps: 1.0, work: times * self.rows * self.width, numbers: numbers as f64 + times }
    }

    pub(crate) fn runs(&self, steps: f64, sample: &Sample) -> Cost {
        Cost { steps, work: steps * self.batch(sample) * self.width, numbers: self.width }
    }

    pub(crate) fn training(&self, plan: &Plan) -> Cost {
        match plan.amount {
            Amount::Steps(steps) => self.runs(f64::from(steps), &plan.sample),
            Amount::Epochs(epochs) => {
                let steps = (self.rows / self.batch(&plan.sample).max(1.0)).ceil();
                self.runs(f64::from(epochs) * steps, &plan.sample)
            }
        }
    }

    /// The cost of exact solutions, each of which forms a matrix.
    pub(crate) fn solves(&self, times: f64) -> Cost {
        let square = self.width * self.width;
        Cost { steps: times, work: times * self.rows * square, numbers: 4.0 * square }
    }

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
    use crate::training::{Course, Optimiser, Terms};

    fn train(batch: u32, amount: Amount) -> Work {
        let sample = Sample { batch: Some(batch), ..Sample::FULL };
        let optimiser = Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 };
        let plan = Plan { sample, amount, step: 0.1, optimiser, terms: Terms::default(), course: Course::PLAIN };
        Train::from_model(0, plan).into()
    }

    #[test]
    fn the_last_batch_of_a_pass_is_never_smaller_than_the_least() {
        let sample = |batch: u32| Sample { batch: Some(batch), ..Sample::FULL };
        for rows in 10..80 {
            let guard = Guard { rows, protection: Some((10, 7)), hiding: None };
            for batch in 10..90 {
                let size = (guard.sample(&sample(batch), true).unwrap().batch.unwrap() as usize).min(rows);
                assert!(rows % size == 0 || rows % size >= 10, "{rows} rows in batches of {size}");
                assert!(size >= (batch as usize).min(rows));
            }
        }
        let guard = Guard { rows: 40, protection: Some((10, 7)), hiding: None };
        assert_eq!(guard.sample(&sample(40), true).unwrap(), sample(40), "all rows are no batch");
        let refused = guard.sample(&sample(9), true).unwrap_err();
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
