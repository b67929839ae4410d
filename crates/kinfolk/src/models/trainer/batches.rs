//! The rows of every step of a training, for engines that train elsewhere.

use super::steps::{Batches, steps_of};
use crate::training::{Plan, Sample};
use std::ops::Range;

/// The rows of the steps of one client's training, in the order in which they are used.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    /// Rows, counted from the first of those that are drawn from.
    pub rows: Vec<u32>,
    /// Which of these every step uses.
    pub steps: Vec<Range<u32>>,
}

/// The steps of a plan for a client with this many rows to draw from: the trainer's own draws.
pub fn course_of(plan: &Plan, rows: usize, client: &str) -> Course {
    let mut batches = Batches::new(rows, &plan.sample, client);
    let steps = steps_of(plan, rows, batches.size);
    let mut course = Course { rows: Vec::new(), steps: Vec::with_capacity(steps) };
    for _ in 0..steps {
        course.take(batches.next(), rows);
    }
    course
}

impl Course {
    /// The one step of a gradient.
    pub fn of_gradient(sample: &Sample, rows: usize, client: &str) -> Self {
        let mut course = Course { rows: Vec::new(), steps: Vec::new() };
        course.take(Batches::new(rows, sample, client).next(), rows);
        course
    }

    fn take(&mut self, batch: Option<&[u32]>, rows: usize) {
        let begin = self.rows.len() as u32;
        match batch {
            Some(batch) => self.rows.extend_from_slice(batch),
            // All rows, every time the same ones.
            None if self.steps.is_empty() => self.rows.extend(0..rows as u32),
            None => return self.steps.push(0..rows as u32),
        }
        self.steps.push(begin..self.rows.len() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::{Amount, Portion};

    #[test]
    fn every_pass_sees_every_row_once() {
        let sample = Sample { on: Portion::All, batch: Some(4), seed: 3 };
        let plan = Plan { sample, amount: Amount::Epochs(2), ..Plan::steps(1, 0.1) };
        let course = course_of(&plan, 10, "it");
        assert_eq!(course.steps, [0..4, 4..8, 8..10, 10..14, 14..18, 18..20]);
        let mut pass = course.rows[..10].to_vec();
        pass.sort_unstable();
        assert_eq!(pass, (0..10).collect::<Vec<_>>());
        assert_ne!(course.rows[..10], course.rows[10..]);
        assert_ne!(course.rows, course_of(&plan, 10, "another").rows);
        let whole = course_of(&Plan::steps(3, 0.1), 2, "it");
        assert_eq!((whole.rows, whole.steps), (vec![0, 1], vec![0..2; 3]));
        let one = Course::of_gradient(&plan.sample, 10, "it");
        assert_eq!((&one.rows[..], one.steps.len(), one.steps[0].clone()), (&course.rows[..4], 1, 0..4));
    }
}
