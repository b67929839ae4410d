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

/// Rows that are looked at together: few at first, to give up early, then more and more, for the matrix product to be
/// worth it. The same for every candidate, so that sums always run alike.
fn pieces(rows: usize) -> impl Iterator<Item = Range<usize>> {
    const FIRST: usize = 16;
    const MOST: usize = 64;
    let piece = move |begin: usize| {
        let size = (begin + FIRST).min(MOST);
        // A short last piece joins the one before.
        if begin + size + size / 2 > rows { begin..rows } else { begin..begin + size }
    };
    std::iter::successors(Some(piece(0)), move |last| Some(piece(last.end))).take_while(|piece| !piece.is_empty())
}

/// The candidate with the smallest mean loss, ties to the first; a loss that is not a number counts as infinite. A
/// candidate whose partial loss exceeds the best total is out. `hint` is looked at first and changes nothing but time.
pub(in crate::models) fn compete(
    candidates: &mut impl Candidates,
    (count, rows): (usize, usize),
    hint: usize,
    early_exit: bool,
) -> Choice {
    let hint = if hint < count { hint } else { 0 };
    let mut best = Choice { position: usize::MAX, loss: f64::INFINITY };
    let others = (0..count).filter(|&position| position != hint);
    for position in std::iter::once(hint).chain(others) {
        let mut total = 0.0;
        let mut beaten = false;
        for piece in pieces(rows) {
            total += candidates.loss(position, piece);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_grow_and_cover_every_row_once() {
        let sizes = |rows: usize| pieces(rows).map(|piece| piece.len()).collect::<Vec<_>>();
        assert_eq!(sizes(50), [16, 34]);
        assert_eq!(sizes(200), [16, 32, 64, 88]);
        assert_eq!((sizes(0), sizes(1), sizes(23)), (vec![], vec![1], vec![23]));
        for rows in 0..500 {
            assert_eq!(pieces(rows).flatten().collect::<Vec<_>>(), (0..rows).collect::<Vec<_>>());
        }
    }
}
