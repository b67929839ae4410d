//! One time step of one row in an LSTM layer, forward and backward, unit by unit.
//!
//! The gates of a row lie one after the other, as PyTorch has them: input i, forget f, candidate g, output o, with
//!
//! ```text
//! c = f·c₋ + i·g      h = o·tanh c
//! ```

use crate::num::{Cpu, Real, dispatch};

/// The gates of a row from the two parts of their input.
pub(super) fn activate<T: Real>(input: &[T], recurrent: &[T], gates: &mut [T]) {
    dispatch!(|cpu| activate_units(cpu, input, recurrent, gates));
}

#[inline(always)]
fn activate_units<T: Real>(cpu: Cpu, input: &[T], recurrent: &[T], gates: &mut [T]) {
    let units = gates.len() / 4;
    let parts = input.chunks_exact(units).zip(recurrent.chunks_exact(units)).zip(gates.chunks_exact_mut(units));
    for (part, ((input, recurrent), gates)) in parts.enumerate() {
        let sums = input.iter().zip(recurrent).map(|(&input, &recurrent)| input + recurrent);
        match part {
            2 => gates.iter_mut().zip(sums).for_each(|(gate, sum)| *gate = sum.fast_tanh(cpu)),
            _ => gates.iter_mut().zip(sums).for_each(|(gate, sum)| *gate = sum.logistic(cpu)),
        }
    }
}

/// The cells and the outputs of a row from its gates and the cells before.
pub(super) fn advance<T: Real>(gates: &[T], before: &[T], cells: &mut [T], outputs: &mut [T]) {
    dispatch!(|cpu| advance_units(cpu, gates, before, cells, outputs));
}

#[inline(always)]
fn advance_units<T: Real>(cpu: Cpu, gates: &[T], before: &[T], cells: &mut [T], outputs: &mut [T]) {
    let (input, forget, candidate, output) = quarters(gates);
    let gates = input.iter().zip(forget).zip(candidate.iter().zip(output));
    for (((&i, &f), (&g, &o)), ((&before, cell), out)) in gates.zip(before.iter().zip(cells).zip(outputs)) {
        *cell = cpu.mul_add(f, before, i * g);
        *out = o * cell.fast_tanh(cpu);
    }
}

#[inline(always)]
fn quarters<T>(gates: &[T]) -> (&[T], &[T], &[T], &[T]) {
    let (first, second) = gates.split_at(gates.len() / 2);
    let ((i, f), (g, o)) = (first.split_at(first.len() / 2), second.split_at(second.len() / 2));
    (i, f, g, o)
}

/// The slopes of a row's cells and of what goes into its gates, given those of its outputs: `cell_slopes` holds what comes
/// from the next time step and is left with what goes to the one before, and `gates` are replaced by their slopes.
pub(super) fn backward<T: Real>(slopes: &[T], before: &[T], cells: &[T], cell_slopes: &mut [T], gates: &mut [T]) {
    let (first, second) = gates.split_at_mut(gates.len() / 2);
    let ((i, f), (g, o)) = (first.split_at_mut(first.len() / 2), second.split_at_mut(second.len() / 2));
    dispatch!(|cpu| backward_quarters(cpu, slopes, before, cells, cell_slopes, i, f, g, o));
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the compiler must know that the gates lie apart")]
fn backward_quarters<T: Real>(
    cpu: Cpu,
    slopes: &[T],
    before: &[T],
    cells: &[T],
    cell_slopes: &mut [T],
    input: &mut [T],
    forget: &mut [T],
    candidate: &mut [T],
    output: &mut [T],
) {
    let gates = input.iter_mut().zip(forget).zip(candidate.iter_mut().zip(output));
    let rest = slopes.iter().zip(before).zip(cells.iter().zip(cell_slopes));
    for (((i, f), (g, o)), ((&slope, &before), (&cell, cell_slope))) in gates.zip(rest) {
        let bent = cell.fast_tanh(cpu);
        let through = slope * *o * (T::ONE - bent * bent) + *cell_slope;
        *cell_slope = through * *f;
        let (open, kept, fresh) = (*i, *f, *g);
        *i = through * fresh * open * (T::ONE - open);
        *f = through * before * kept * (T::ONE - kept);
        *g = through * open * (T::ONE - fresh * fresh);
        *o = slope * bent * *o * (T::ONE - *o);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A unit with gates of ½: σ(0) = ½ and tanh(log 3 / 2) = ½.
    #[test]
    fn one_unit_by_hand() {
        let half = 3f64.ln() / 2.0;
        let (mut gates, mut cell, mut out) = ([0.0; 4], [0.0], [0.0]);
        activate(&[0.1, 0.2, half - 0.3, 0.4], &[-0.1, -0.2, 0.3, -0.4], &mut gates);
        gates.iter().for_each(|gate| assert!((gate - 0.5).abs() < 1e-15, "{gates:?}"));
        // c = ½·2 + ½·½ = 1.25
        advance(&gates, &[2.0], &mut cell, &mut out);
        assert!((cell[0] - 1.25).abs() < 1e-15);
        let bent = 1.25f64.tanh();
        assert!((out[0] - bent / 2.0).abs() < 1e-15);
        // Of a slope of 4 in the output and 1 in the cell: 4·½·(1 − tanh²) + 1 goes into the cell.
        let mut cell_slopes = [1.0];
        backward(&[4.0], &[2.0], &cell, &mut cell_slopes, &mut gates);
        let through = 2.0 * (1.0 - bent * bent) + 1.0;
        let wanted = [through / 8.0, through / 2.0, through * 0.375, bent];
        gates.iter().zip(wanted).for_each(|(found, wanted)| assert!((found - wanted).abs() < 1e-15, "{gates:?}"));
        assert!((cell_slopes[0] - through / 2.0).abs() < 1e-15);
    }
}
