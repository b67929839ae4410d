//! Distances of one point to all, the innermost loop of the dense solver.

use super::*;

pub(super) fn transpose(out: &mut Vec<f64>, values: &[f64], dimension: usize) {
    let rows = values.len() / dimension;
    out.resize(values.len(), 0.0);
    for (coordinate, line) in out.chunks_exact_mut(rows).enumerate() {
        for (o, row) in line.iter_mut().zip(values.chunks_exact(dimension)) {
            *o = row[coordinate];
        }
    }
}

/// Squared distances of all points to point `to`, by differences for accuracy; `transposed` has a row per coordinate.
pub(super) fn squared_distances(out: &mut [f64], transposed: &[f64], to: usize) {
    dispatch!(|_| differences(out, transposed, to));
}

#[inline(always)]
fn differences(out: &mut [f64], transposed: &[f64], to: usize) {
    let count = out.len();
    out.fill(0.0);
    let mut fours = transposed.chunks_exact(4 * count);
    for four in &mut fours {
        let (a, rest) = four.split_at(count);
        let (b, rest) = rest.split_at(count);
        let (c, d) = rest.split_at(count);
        let at = [a[to], b[to], c[to], d[to]];
        for ((((o, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            let (p, q, r, s) = (a - at[0], b - at[1], c - at[2], d - at[3]);
            *o += (p * p + q * q) + (r * r + s * s);
        }
    }
    for line in fours.remainder().chunks_exact(count) {
        let at = line[to];
        for (o, a) in out.iter_mut().zip(line) {
            *o += (a - at) * (a - at);
        }
    }
}
