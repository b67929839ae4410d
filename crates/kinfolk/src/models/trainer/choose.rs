//! A choice among models with exact early exit.

use super::super::Choice;
use std::ops::Range;

/// Models that compete on the same rows. A row's loss is never negative.
pub(in crate::models) trait Candidates {
    /// The sum of one candidate's losses over some of the rows.
    fn loss(&mut self, position: usize, rows: Range<usize>) -> f64;

    /// This candidate, whose losses were asked for last, has the smallest loss so far.
    fn lead(&mut self, _position: usize) {}
}

/// Rows that are looked at together: enough for the matrix product to be worth it, few enough to give up early. A function
/// of the number of rows alone, so that sums always run alike.
fn rows_at_once(rows: usize) -> usize {
    rows.div_ceil(4).next_multiple_of(8).clamp(16, 64)
}

/// The candidate with the smallest mean loss, ties to the first; a loss that is not a number counts as infinite. A
/// candidate whose partial loss exceeds the best total is out. `hint` is looked at first and changes nothing but time.
pub(in crate::models) fn compete(
    candidates: &mut impl Candidates,
    (count, rows): (usize, usize),
    hint: usize,
    early_exit: bool,
) -> Choice {
    let at_once = rows_at_once(rows);
    let hint = if hint < count { hint } else { 0 };
    let mut best = Choice { position: usize::MAX, loss: f64::INFINITY };
    let others = (0..count).filter(|&position| position != hint);
    for position in std::iter::once(hint).chain(others) {
        let mut total = 0.0;
        let mut beaten = false;
        for begin in (0..rows).step_by(at_once) {
            total += candidates.loss(position, begin..(begin + at_once).min(rows));
            if total.is_nan() {
                total = f64::INFINITY;
            }
            beaten = total > best.loss || (total == best.loss && position > best.position);
            if beaten && early_exit {
                break;
            }
        }
        if !beaten {
            best = Choice { position, loss: total };
            candidates.lead(position);
        }
    }
    Choice { loss: best.loss / rows as f64, ..best }
}
