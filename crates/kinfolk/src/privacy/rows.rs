//! Differential privacy of single rows, as a client keeps it.
//!
//! A client trains by noised steps: every row is in a step with the same chance, its gradient is cut to a length, and noise hides any one
//! of them. Which of several models fits best is drawn, with probabilities that grow with the rows each fits, in a tenth of the rounds,
//! and kept in between. Losses are not told. Single answers, such as a minimiser, are hidden by `answers.rs`. What a client spends is counted where its rows are, and nothing beyond the plan is done.

use super::accountant::{Budget, Mechanism};
use super::noise::Source;
use super::protection::Neighbours;
use crate::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// What a method does with the rows of every client, at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exposure {
    /// Steps of training.
    pub steps: u64,
    /// Rounds in which clients choose among models.
    pub choices: u64,
    /// Answers with a minimiser, or with sums over rows.
    pub answers: u64,
    /// Sums over clients that each of them is in; 0 where more than such sums is sent.
    pub sums: u64,
}

/// Of so many rounds with a choice, one has it drawn anew.
const ROUNDS_OF_A_CHOICE: u64 = 10;
/// The share of ε that the choices would cost alone.
const SHARE_OF_CHOICES: f64 = 0.2;

/// What rows are cut to in single answers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// The length of a row; by default the root of the number of its columns.
    pub row: Option<f64>,
    /// The size of a target.
    pub target: f64,
}

/// How a client's rows are protected.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RowPrivacy {
    /// The length to which a row's gradient is cut.
    pub clip: f64,
    /// The chance of a row to be in a step.
    pub rate: f64,
    /// The noise of a step's sum of gradients, over the length above; of an answer, over what one row adds to it.
    pub noise: f64,
    /// ε of one drawn choice.
    pub choice: f64,
    /// The loss at which a row counts as not fitted at all, where rows are no classes.
    pub loss_cap: f64,
    /// What rows are cut to in single answers.
    pub bounds: Bounds,
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
    /// Answers so far.
    answers: u64,
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
        let bounds = Bounds { row: None, target: 1.0 };
        let bare = Self { clip, rate, noise: f64::INFINITY, choice: 0.0, loss_cap, bounds, neighbours, most, source };
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
        let answer = Mechanism::Gaussian { rate: 1.0, noise: self.noise / times };
        let choice = Mechanism::Choice { epsilon: self.choice * times };
        vec![(step, self.most.steps), (answer, self.most.answers), (choice, self.draws())]
    }

    /// How often a choice is drawn.
    pub fn draws(&self) -> u64 {
        self.most.choices.div_ceil(ROUNDS_OF_A_CHOICE)
    }

    /// What was released about a row between two moments.
    pub(crate) fn spent_since(&self, before: &Spent, after: &Spent) -> Vec<(Mechanism, u64)> {
        let of = |&Spent { steps, choices, answers, .. }: &Spent| {
            Self { most: Exposure { steps, choices, answers, sums: 0 }, ..*self }.mechanisms()
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

    /// Spends on so many answers, or refuses them.
    pub(crate) fn answer(&mut self, privacy: &RowPrivacy, answers: u64) -> Result<()> {
        let all = self.answers.saturating_add(answers);
        if all > privacy.most.answers {
            return Err(beyond(format!("{all} answers, {} are planned", privacy.most.answers)));
        }
        self.answers = all;
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
        let most = Exposure { steps: 30, choices, ..Exposure::default() };
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
    fn an_answer_costs_what_a_full_step_does() {
        let budget = Budget { epsilon: 2.0, delta: 1e-5 };
        let noise = |most: Exposure, neighbours| {
            RowPrivacy::within(budget, (1.0, 1.0, 1.0), neighbours, most, Source::Seed(0)).unwrap().noise
        };
        let answers = |answers| Exposure { answers, ..Exposure::default() };
        let both = Exposure { steps: 3, ..answers(4) };
        assert_eq!(noise(both, Neighbours::AddOrRemove), noise(answers(7), Neighbours::AddOrRemove));
        let (one, other) = (noise(answers(1), Neighbours::AddOrRemove), noise(answers(1), Neighbours::Replace));
        assert!((other / one - 2.0).abs() < 1e-5, "{one} {other}");
        // AdaSSP's three parts, each with √3 times the noise.
        let mut accountant = Accountant::default();
        accountant.spend(Mechanism::Gaussian { rate: 1.0, noise: one * 3f64.sqrt() }, 3);
        let spent = accountant.epsilon(1e-5);
        assert!(spent <= 2.0 * (1.0 + 1e-12) && spent > 1.999, "{spent}");
    }

    #[test]
    fn nothing_is_done_beyond_the_plan() {
        let (privacy, mut spent) = (protection(12), Spent::default());
        assert!(spent.step(&privacy, 20).is_ok() && spent.step(&privacy, 10).is_ok());
        assert!(spent.step(&privacy, 1).unwrap_err().to_string().contains("31 steps, 30 are planned"));
        assert!(spent.answer(&privacy, 1).unwrap_err().to_string().contains("1 answers, 0 are planned"));
        // Drawn in the first of ten rounds, and in the eleventh.
        for round in 0..12 {
            let last = spent.choose(&privacy).unwrap();
            assert_eq!(last, (round % 10 != 0).then_some(7), "{round}");
            spent.chose(7);
        }
        assert!(spent.choose(&privacy).unwrap_err().to_string().contains("13 choices"));
    }
}
