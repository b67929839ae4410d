//! The inner loops of all mixtures, over a block of rows. Blocks are transposed, columns or components one after the other
//! and the rows of each side by side, so that everything runs along the rows.

use crate::num::{Cpu, Real, dispatch, sum};

/// Rows that go through the formulas together: few enough to stay in a near cache.
pub(super) const BLOCK: usize = 256;

/// Sums and products side by side.
const LANES: usize = 8;

/// Refills a vector, reusing its memory.
pub(super) fn filled(values: &mut Vec<f64>, length: usize, value: f64) -> &mut [f64] {
    values.clear();
    values.resize(length, value);
    values
}

/// Adds the squared differences of a column from a value, times a factor, to the sum of every row.
pub(super) fn add_squared_differences(sums: &mut [f64], column: &[f64], from: f64, factor: f64) {
    #[inline(always)]
    fn add(cpu: Cpu, sums: &mut [f64], column: &[f64], from: f64, factor: f64) {
        for (sum, value) in sums.iter_mut().zip(column) {
            let difference = value - from;
            *sum = cpu.mul_add(difference * factor, difference, *sum);
        }
    }
    dispatch!(|cpu| add(cpu, sums, column, from, factor));
}

/// The sum over rows of weight times squared difference from a value.
pub(super) fn weighted_square(column: &[f64], from: f64, weights: &[f64]) -> f64 {
    dispatch!(|cpu| {
        let (eights, rest) = column.as_chunks::<LANES>();
        let (weights, last) = weights.as_chunks::<LANES>();
        let mut sums = [0.0; LANES];
        let add = |sums: &mut [f64; LANES], values: &[f64], weights: &[f64]| {
            for ((sum, value), weight) in sums.iter_mut().zip(values).zip(weights) {
                let difference = value - from;
                *sum = cpu.mul_add(difference * weight, difference, *sum);
            }
        };
        eights.iter().zip(weights).for_each(|(values, weights)| add(&mut sums, values, weights));
        add(&mut sums, rest, last);
        sums.iter().sum()
    })
}

/// Every column's values times the weights of their rows.
pub(super) fn scale(columns: &[f64], weights: &[f64], scaled: &mut Vec<f64>) {
    scaled.clear();
    for column in columns.chunks_exact(weights.len()) {
        scaled.extend(column.iter().zip(weights).map(|(value, weight)| value * weight));
    }
}

/// Smallest logarithm of a posterior: what is smaller cannot be told from 0, and would be slow to compute with.
const LEAST: f64 = -600.0;

/// Turns logits into posteriors, in place, and returns the sum over rows of the logarithm of the sum over components.
pub(super) fn posteriors(logits: &mut [f64], rows: usize, largest: &mut Vec<f64>, sums: &mut Vec<f64>) -> f64 {
    let (largest, sums) = (filled(largest, rows, f64::NEG_INFINITY), filled(sums, rows, 0.0));
    let products = dispatch!(|cpu| normalise(cpu, logits, largest, sums));
    sum(largest) + products.iter().map(|product| product.ln()).sum::<f64>()
}

/// Leaves every row's largest logit in `largest`; returns the product over rows of the sums over components of what is left.
#[inline(always)]
fn normalise(cpu: Cpu, logits: &mut [f64], largest: &mut [f64], sums: &mut [f64]) -> [f64; LANES] {
    let rows = sums.len();
    for logits in logits.chunks_exact(rows) {
        for (largest, &logit) in largest.iter_mut().zip(logits) {
            *largest = if logit > *largest { logit } else { *largest };
        }
    }
    for logits in logits.chunks_exact_mut(rows) {
        for (logit, largest) in logits.iter_mut().zip(&*largest) {
            let less = *logit - largest;
            *logit = if less < LEAST { LEAST } else { less };
        }
    }
    f64::exp_all(cpu, logits);
    for powers in logits.chunks_exact(rows) {
        sums.iter_mut().zip(powers).for_each(|(sum, power)| *sum += power);
    }
    // Each is between 1 and the number of components: products of a block's are far from overflow.
    let mut products = [1.0; LANES];
    let (eights, rest) = sums.as_chunks::<LANES>();
    let mut multiply = |sums: &[f64]| products.iter_mut().zip(sums).for_each(|(product, sum)| *product *= sum);
    eights.iter().for_each(|sums| multiply(sums));
    multiply(rest);
    sums.iter_mut().for_each(|sum| *sum = sum.recip());
    for powers in logits.chunks_exact_mut(rows) {
        powers.iter_mut().zip(&*sums).for_each(|(power, share)| *power *= share);
    }
    products
}

/// Posteriors of rows whose component is known.
pub(super) fn one_hot(posteriors: &mut Vec<f64>, components: usize, labels: &[u32]) {
    filled(posteriors, labels.len() * components, 0.0);
    for (row, &label) in labels.iter().enumerate() {
        posteriors[label as usize * labels.len() + row] = 1.0;
    }
}

/// Appends the component with the largest logit of every row, the first among equals.
pub(super) fn largest(logits: &[f64], rows: usize, labels: &mut Vec<u32>) {
    for row in 0..rows {
        let column = (0u32..).zip(logits.iter().skip(row).step_by(rows));
        // Of equal elements `min_by` takes the first, `max_by` the last.
        labels.extend(column.min_by(|a, b| b.1.total_cmp(a.1)).map(|(component, _)| component));
    }
}

/// Adds to `members` the sum over rows of every component's posteriors.
pub(super) fn count(posteriors: &[f64], rows: usize, members: &mut [f64]) {
    members.iter_mut().zip(posteriors.chunks_exact(rows)).for_each(|(members, each)| *members += sum(each));
}
