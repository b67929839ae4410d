//! Rows as every trained model sees them: as numbers, with their targets, in batches, and with the loss of a row.

use super::*;
use crate::num::logistic::Odds;

/// What the outputs mean and how they are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::models) enum Output {
    /// One number; squared error without the ½.
    Squared,
    /// One number, the log odds of class 1.
    Logistic,
    /// A score for each class.
    Softmax,
}

/// The targets of some rows.
#[derive(Clone, Copy)]
pub(in crate::models) enum Goal<'a> {
    Classes(&'a [u32]),
    Values(&'a [f64]),
}

impl<'a> Goal<'a> {
    /// A model's `check` has seen that these are there.
    pub(in crate::models) fn of(rows: &'a Shard) -> Self {
        match rows.classes() {
            Some(classes) => Goal::Classes(classes),
            None => Goal::Values(rows.values().unwrap_or_default()),
        }
    }

    pub(in crate::models) fn len(self) -> usize {
        match self {
            Goal::Classes(classes) => classes.len(),
            Goal::Values(values) => values.len(),
        }
    }

    pub(in crate::models) fn part(self, range: Range<usize>) -> Self {
        match self {
            Goal::Classes(classes) => Goal::Classes(&classes[range]),
            Goal::Values(values) => Goal::Values(&values[range]),
        }
    }
}

/// The rows of a batch, gathered.
#[derive(Default)]
pub(in crate::models) struct PickedRows<T> {
    x: Vec<T>,
    classes: Vec<u32>,
    values: Vec<f64>,
}

impl<T: Real> PickedRows<T> {
    /// The picked rows and their targets; `None` picks all, without a copy.
    pub(in crate::models) fn gather<'p>(
        &'p mut self,
        picked: Option<&[u32]>,
        input: &'p [T],
        goal: Goal<'p>,
        columns: usize,
    ) -> (&'p [T], Goal<'p>, usize) {
        let Some(picked) = picked else { return (input, goal, input.len() / columns) };
        self.x.clear();
        for &row in picked {
            self.x.extend_from_slice(&input[row as usize * columns..(row as usize + 1) * columns]);
        }
        let goal = match goal {
            Goal::Classes(classes) => {
                self.classes.clear();
                self.classes.extend(picked.iter().map(|&row| classes[row as usize]));
                Goal::Classes(&self.classes)
            }
            Goal::Values(values) => {
                self.values.clear();
                self.values.extend(picked.iter().map(|&row| values[row as usize]));
                Goal::Values(&self.values)
            }
        };
        (&self.x, goal, picked.len())
    }
}

/// Loss and slope of one row: fills `slope` with the derivative of the row's loss times `scale`. A class that training
/// rows did not have is as unlikely as the least likely one.
#[inline]
pub(in crate::models) fn row_loss<T: Real>(
    output: Output,
    out: &[T],
    goal: Goal,
    row: usize,
    slope: Option<(&mut [T], T)>,
) -> T {
    match (output, goal) {
        (Output::Squared, Goal::Values(values)) => {
            let residual = out[0] - T::of(values[row]);
            if let Some((slope, scale)) = slope {
                slope[0] = (residual + residual) * scale;
            }
            residual * residual
        }
        (Output::Logistic, Goal::Classes(classes)) => {
            let is_one = match classes[row] {
                UNKNOWN_CLASS => out[0] < T::ZERO,
                class => class == 1,
            };
            let sign = if is_one { T::ONE } else { -T::ONE };
            let odds = Odds::of(sign * out[0]);
            if let Some((slope, scale)) = slope {
                slope[0] = -sign * (-odds).chance() * scale;
            }
            odds.loss()
        }
        (Output::Softmax, Goal::Classes(classes)) => {
            let largest = out.iter().copied().fold(out[0], |a, b| if b > a { b } else { a });
            let class = match classes[row] {
                UNKNOWN_CLASS => least(out),
                class => class as usize,
            };
            let mut total = T::ZERO;
            match slope {
                Some((slope, scale)) => {
                    for (s, &o) in slope.iter_mut().zip(out) {
                        *s = (o - largest).exp();
                        total += *s;
                    }
                    let share = scale / total;
                    slope.iter_mut().for_each(|s| *s *= share);
                    slope[class] -= scale;
                }
                None => out.iter().for_each(|&o| total += (o - largest).exp()),
            }
            // Never negative: the sum holds e⁰ = 1, and the largest is at least the class's own. Early exit needs that.
            total.ln() + (largest - out[class])
        }
        _ => unreachable!("a model's check refuses targets it cannot predict"),
    }
}

/// The place of the smallest score.
fn least<T: Real>(scores: &[T]) -> usize {
    let smaller = |least: usize, place: usize| if scores[place] < scores[least] { place } else { least };
    (1..scores.len()).fold(0, smaller)
}

/// The number that these outputs predict, or the class; of equal scores the first one's.
pub(super) fn predicted<T: Real>(output: Output, out: &[T]) -> f64 {
    match output {
        Output::Squared => out[0].to_f64(),
        Output::Logistic => f64::from(u8::from(out[0] > T::ZERO)),
        Output::Softmax => {
            let larger = |best: usize, place: usize| if out[place] > out[best] { place } else { best };
            (1..out.len()).fold(0, larger) as f64
        }
    }
}

/// The number that these outputs predict, or the probability of every class.
pub(super) fn expected<T: Real>(output: Output, out: &[T], found: &mut Vec<f64>) {
    match output {
        Output::Squared => found.push(out[0].to_f64()),
        Output::Logistic => {
            let chance = Odds::of(out[0].to_f64()).chance();
            found.extend([1.0 - chance, chance]);
        }
        Output::Softmax => {
            let largest = out.iter().map(|score| score.to_f64()).fold(f64::NEG_INFINITY, f64::max);
            let begin = found.len();
            found.extend(out.iter().map(|score| (score.to_f64() - largest).exp()));
            let total: f64 = found[begin..].iter().sum();
            found[begin..].iter_mut().for_each(|share| *share /= total);
        }
    }
}

/// Whether a row's class is the predicted one; never, where rows have no classes.
pub(in crate::models) fn is_right<T: Real>(output: Output, out: &[T], goal: Goal, row: usize) -> bool {
    match (output, goal) {
        (_, Goal::Values(_)) => false,
        (Output::Logistic, Goal::Classes(classes)) => u32::from(out[0] > T::ZERO) == classes[row],
        (_, Goal::Classes(classes)) => is_largest(out, classes[row]),
    }
}

/// Whether a row's class has the largest of its scores, the first one of equals; a class without a score has not.
fn is_largest<T: Real>(scores: &[T], class: u32) -> bool {
    let class = class as usize;
    let beats = |own: T| move |(c, &score): (usize, &T)| c == class || score < own || (score == own && c > class);
    scores.get(class).is_some_and(|&own| scores.iter().enumerate().all(beats(own)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_was_never_trained_on_is_always_wrong() {
        let unknown = Goal::Classes(&[UNKNOWN_CLASS]);
        fn loss(output: Output, out: &[f64], goal: Goal) -> f64 {
            row_loss(output, out, goal, 0, None)
        }
        let scores = [0.5, -1.0, 2.0];
        assert_eq!(loss(Output::Softmax, &scores, unknown), loss(Output::Softmax, &scores, Goal::Classes(&[1])));
        assert!(!is_largest(&scores, UNKNOWN_CLASS) && is_largest(&scores, 2));
        for (odds, other) in [(3.0, 0), (-3.0, 1)] {
            assert_eq!(
                loss(Output::Logistic, &[odds], unknown),
                loss(Output::Logistic, &[odds], Goal::Classes(&[other]))
            );
        }
    }
}
