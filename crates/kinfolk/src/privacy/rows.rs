//! Differential privacy of single rows, as a client keeps it.
//!
//! A client trains by noised steps: every row is in a step with the same chance, its gradient is cut to a length, and noise hides any one
//! of them. Which of several models fits best is drawn, with probabilities that grow with the rows each fits, in a tenth of the rounds,
//! and kept in between. Losses are not told. What a client spends is counted where its rows are, and nothing beyond the plan is done.

use super::accountant::{Budget, Mechanism};
use super::noise::Source;
use super::protection::Neighbours;
use crate::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// What a method does with the rows of every client, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exposure {
    /// Steps of training.
    pub steps: u64,
    /// Rounds in which clients choose among models.
    pub choices: u64,
    /// Sums over clients that each of them is in; 0 where more than such sums is sent.
    pub sums: u64,
}

/// Of so many rounds with a choice, one has it drawn anew.
const ROUNDS_OF_A_CHOICE: u64 = 10;
/// The share of ε that the choices would cost alone.
const SHARE_OF_CHOICES: f64 = 0.2;

/// How a client's rows are protected.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RowPrivacy {
    /// The length to which a row's gradient is cut.
    pub clip: f64,
    /// The chance of a row to be in a step.
    pub rate: f64,
    /// The noise of a step's sum of gradients, over the length above.
    pub noise: f64,
    /// ε of one drawn choice.
    pub choice: f64,
    /// The loss at which a row counts as not fitted at all, where rows are no classes.
    pub loss_cap: f64,
    /// How data differ that are not told apart.
    pub neighbours: Neighbours,
    /// What may be done in all.
    pub most: Exposure,
    /// Where noise and draws come from.
    pub source: Source,
}

/// What a client has done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Steps so far.
    steps: u64,
    /// Orders to choose so far.
    choices: u64,
    /// The model it chose last.
    last: Option<usize>,
}

impl RowPrivacy {
    /// The protection of a method's rows that keeps a budget; `None` where no noise is enough.
    pub fn within(
        budget: Budget,
        (clip, rate, loss_cap): (f64, f64, f64),
        neighbours: Neighbours,
        most: Exposure,
        source: Source,
    ) -> Option<Self> {
        let bare = Self { clip, rate, noise: f64::INFINITY, choice: 0.0, loss_cap, neighbours, most, source };
        let choice = match bare.draws() {
            0 => 0.0,
            // The smaller ε is, the larger the noise that a choice is as good as.
            _ => {
                let share = Budget { epsilon: SHARE_OF_CHOICES * budget.epsilon, ..budget };
                1.0 / share.noise(|noise| Self { choice: 1.0 / noise, ..bare }.mechanisms())?
            }
        };
        let protection = Self { choice, ..bare };
        let noise = budget.noise(|noise| Self { noise, ..protection }.mechanisms())?;
        Some(Self { noise, ..protection })
    }

    /// What is released about a row in all, for the accountant.
    pub fn mechanisms(&self) -> Vec<(Mechanism, u64)> {
        // Another row in one's place changes twice as much as one that is no longer there.
        let times = match self.neighbours {
            Neighbours::AddOrRemove => 1.0,
            Neighbours::Replace => 2.0,
        };
        let step = Mechanism::Gaussian { rate: self.rate, noise: self.noise / times };
        vec![(step, self.most.steps), (Mechanism::Choice { epsilon: self.choice * times }, self.draws())]
    }

    /// How often a choice is drawn.
    pub fn draws(&self) -> u64 {
        self.most.choices.div_ceil(ROUNDS_OF_A_CHOICE)
    }

    /// What was released about a row between two moments.
    pub(crate) fn spent_since(&self, before: &Spent, after: &Spent) -> Vec<(Mechanism, u64)> {
        let of = |spent: &Spent| {
            Self { most: Exposure { steps: spent.steps, choices: spent.choices, sums: 0 }, ..*self }.mechanisms()
        };
        let more =
            of(before).into_iter().zip(of(after)).map(|((_, before), (mechanism, after))| (mechanism, after - before));
        more.filter(|(_, times)| *times > 0).collect()
    }

    /// Steps of a pass over the rows.
    pub fn steps_of_a_pass(rate: f64) -> u64 {
        (1.0 / rate).ceil() as u64
    }
}

impl Spent {
    /// Spends on so many steps, or refuses them.
    pub(crate) fn step(&mut self, privacy: &RowPrivacy, steps: u64) -> Result<()> {
        let all = self.steps.saturating_add(steps);
        if all > privacy.most.steps {
            return Err(beyond(format!("{all} steps, {} are planned", privacy.most.steps)));
        }
        self.steps = all;
        Ok(())
    }

    /// The model to go on with: the last one chosen, or `None` where a choice is to be [drawn](Self::chose) now.
    pub(crate) fn choose(&mut self, privacy: &RowPrivacy) -> Result<Option<usize>> {
        if self.choices >= privacy.most.choices {
            return Err(beyond(format!("{} choices, {} are planned", self.choices + 1, privacy.most.choices)));
        }
        let is_due = self.choices.is_multiple_of(ROUNDS_OF_A_CHOICE);
        self.choices += 1;
        Ok(self.last.filter(|_| !is_due))
    }

    /// Remembers a choice.
    pub(crate) fn chose(&mut self, place: usize) {
        self.last = Some(place);
    }
}

fn beyond(what: String) -> Error {
    Error::new(ErrorKind::Unsupported, format!("this would be more than the budget pays for: {what}"))
}

#[cfg(test)]
mod tests {
    use super::super::accountant::Accountant;
    use super::*;

    fn protection(choices: u64) -> RowPrivacy {
        let budget = Budget { epsilon: 4.0, delta: 1e-5 };
        let most = Exposure { steps: 30, choices, sums: 0 };
        RowPrivacy::within(budget, (1.0, 0.5, 1.0), Neighbours::AddOrRemove, most, Source::Seed(0)).unwrap()
    }

    #[test]
    fn steps_and_choices_together_keep_the_budget() {
        for choices in [0, 1, 30] {
            let protection = protection(choices);
            let mut accountant = Accountant::default();
            protection.mechanisms().into_iter().for_each(|(mechanism, times)| accountant.spend(mechanism, times));
            let spent = accountant.epsilon(1e-5);
            assert!(spent <= 4.0 && spent > 3.99, "{choices}: {spent}");
            let alone = protection.choice * protection.draws() as f64;
            assert!(choices == 0 || (alone > 0.7 && protection.noise > self::protection(0).noise), "{protection:?}");
        }
    }

    #[test]
    fn nothing_is_done_beyond_the_plan() {
        let (privacy, mut spent) = (protection(12), Spent::default());
        assert!(spent.step(&privacy, 20).is_ok() && spent.step(&privacy, 10).is_ok());
        assert!(spent.step(&privacy, 1).unwrap_err().to_string().contains("31 steps, 30 are planned"));
        // Drawn in the first of ten rounds, and in the eleventh.
        for round in 0..12 {
            let last = spent.choose(&privacy).unwrap();
            assert_eq!(last, (round % 10 != 0).then_some(7), "{round}");
            spent.chose(7);
        }
        assert!(spent.choose(&privacy).unwrap_err().to_string().contains("13 choices"));
    }
}
