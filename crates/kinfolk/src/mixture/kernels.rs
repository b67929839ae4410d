//! The loops all mixtures are made of, over groups of rows side by side.

use crate::linalg::Real;

/// Rows side by side.
pub(super) const LANES: usize = 8;

/// One number each of as many rows.
pub(super) type Group = [f64; LANES];

/// Groups that go through the formulas together: few enough to stay in the nearest cache.
pub(super) const BLOCK: usize = 16;

/// `a·b + c`, in one rounding where the processor has an instruction for it (in software it would crawl).
#[inline(always)]
pub(super) fn fused(a: f64, b: f64, c: f64) -> f64 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) { a.mul_add(b, c) } else { a * b + c }
}

/// Sizes a slice without keeping what it held.
pub(super) fn sized<T: Copy>(values: &mut Vec<T>, length: usize, fill: T) -> &mut [T] {
    values.clear();
    values.resize(length, fill);
    values
}

/// Outputs that are summed up together, at most: with a group of rows as many as there are registers.
const TILE: usize = 6;

/// For every group of rows and every output the constant plus the product of coefficients (outputs × `width`) and rows.
/// Groups of `rows` have `width` columns, those of `out` as many as there are constants.
pub(super) fn affine(
    out: &mut [Group],
    constants: &[f64],
    coefficients: &[f64],
    rows: &[Group],
    width: usize,
    panel: &mut Vec<f64>,
) {
    let outputs = constants.len();
    let tiles = outputs.div_ceil(TILE).max(1);
    for tile in 0..tiles {
        let (begin, end) = (outputs * tile / tiles, outputs * (tile + 1) / tiles);
        let size = end - begin;
        let panel = sized(panel, size * width, 0.0);
        for (output, coefficients) in coefficients[begin * width..end * width].chunks_exact(width).enumerate() {
            panel[output..].iter_mut().step_by(size).zip(coefficients).for_each(|(to, &from)| *to = from);
        }
        let constants = &constants[begin..end];
        match size {
            1 => affine_tile::<1>(out, outputs, begin, constants, panel, rows, width),
            2 => affine_tile::<2>(out, outputs, begin, constants, panel, rows, width),
            3 => affine_tile::<3>(out, outputs, begin, constants, panel, rows, width),
            4 => affine_tile::<4>(out, outputs, begin, constants, panel, rows, width),
            5 => affine_tile::<5>(out, outputs, begin, constants, panel, rows, width),
            _ => affine_tile::<TILE>(out, outputs, begin, constants, panel, rows, width),
        }
    }
}

fn affine_tile<const SIZE: usize>(
    out: &mut [Group],
    outputs: usize,
    begin: usize,
    constants: &[f64],
    panel: &[f64],
    rows: &[Group],
    width: usize,
) {
    let panel = panel.as_chunks::<SIZE>().0;
    for (out, rows) in out.chunks_exact_mut(outputs).zip(rows.chunks_exact(width)) {
        let mut sums: [Group; SIZE] = std::array::from_fn(|output| [constants[output]; LANES]);
        for (coefficients, column) in panel.iter().zip(rows) {
            for (sum, &coefficient) in sums.iter_mut().zip(coefficients) {
                for (sum, value) in sum.iter_mut().zip(column) {
                    *sum = fused(coefficient, *value, *sum);
                }
            }
        }
        out[begin..begin + SIZE].copy_from_slice(&sums);
    }
}

/// Adds to `out` (row-major, `left_width` × `right_width`) for every pair of columns the sum over rows of their products.
pub(super) fn gather(out: &mut [f64], left: &[Group], left_width: usize, right: &[Group], right_width: usize) {
    for (down, row) in (0..left_width).step_by(4).zip(out.chunks_mut(4 * right_width)) {
        for across in (0..right_width).step_by(3) {
            let size = ((left_width - down).min(4), (right_width - across).min(3));
            let (left, right) = ((left, left_width, down), (right, right_width, across));
            let row = &mut row[across..];
            match size {
                (4, 3) => gather_tile::<4, 3>(row, left, right),
                (4, 2) => gather_tile::<4, 2>(row, left, right),
                (4, _) => gather_tile::<4, 1>(row, left, right),
                (3, 3) => gather_tile::<3, 3>(row, left, right),
                (3, 2) => gather_tile::<3, 2>(row, left, right),
                (3, _) => gather_tile::<3, 1>(row, left, right),
                (2, 3) => gather_tile::<2, 3>(row, left, right),
                (2, 2) => gather_tile::<2, 2>(row, left, right),
                (2, _) => gather_tile::<2, 1>(row, left, right),
                (_, 3) => gather_tile::<1, 3>(row, left, right),
                (_, 2) => gather_tile::<1, 2>(row, left, right),
                _ => gather_tile::<1, 1>(row, left, right),
            }
        }
    }
}

/// Each side: groups of columns, how many columns, and which one the tile begins with.
type Side<'a> = (&'a [Group], usize, usize);

fn gather_tile<const DOWN: usize, const ACROSS: usize>(out: &mut [f64], left: Side, right: Side) {
    const HALF: usize = LANES / 2;
    let mut sums = [[[0.0; HALF]; ACROSS]; DOWN];
    let (left, left_width, left_begin) = left;
    let (right, right_width, right_begin) = right;
    for (left, right) in left.chunks_exact(left_width).zip(right.chunks_exact(right_width)) {
        let (Some(left), Some(right)) =
            (left[left_begin..].first_chunk::<DOWN>(), right[right_begin..].first_chunk::<ACROSS>())
        else {
            return;
        };
        for half in [0, HALF] {
            for (sums, left) in sums.iter_mut().zip(left) {
                for (sums, right) in sums.iter_mut().zip(right) {
                    for lane in 0..HALF {
                        sums[lane] = fused(left[half + lane], right[half + lane], sums[lane]);
                    }
                }
            }
        }
    }
    for (out, sums) in out.chunks_mut(right_width).zip(&sums) {
        for (out, sums) in out.iter_mut().zip(sums) {
            *out += (sums[0] + sums[1]) + (sums[2] + sums[3]);
        }
    }
}

/// Smallest logarithm of a posterior: what is smaller cannot be told from 0, and would be slow to compute with.
const LEAST: f64 = -600.0;

/// Turns logits into posteriors, in place, and returns the sum over rows of the logarithm of the sum over components.
/// Posteriors of the places after the last row are 0.
pub(super) fn posteriors(logits: &mut [Group], components: usize, rows: usize) -> f64 {
    let mut largest_sum = [0.0; LANES];
    for (group, logits) in logits.chunks_exact_mut(components).enumerate() {
        let mut largest = [f64::NEG_INFINITY; LANES];
        for logits in &*logits {
            for (largest, &logit) in largest.iter_mut().zip(logits) {
                *largest = if logit > *largest { logit } else { *largest };
            }
        }
        for logits in logits {
            for (logit, largest) in logits.iter_mut().zip(&largest) {
                let less = *logit - largest;
                *logit = if less < LEAST { LEAST } else { less };
            }
        }
        for lane in 0..LANES {
            largest_sum[lane] += if group * LANES + lane < rows { largest[lane] } else { 0.0 };
        }
    }
    f64::exponentials(logits.as_flattened_mut());
    // A sum of exponentials lies between 1 and the number of components: a product of a block's is far from overflow.
    let mut products = [1.0; LANES];
    for (group, powers) in logits.chunks_exact_mut(components).enumerate() {
        let mut sums = [0.0; LANES];
        for powers in &*powers {
            sums.iter_mut().zip(powers).for_each(|(sum, power)| *sum += power);
        }
        let mut shares: Group = std::array::from_fn(|lane| 1.0 / sums[lane]);
        for lane in rows.saturating_sub(group * LANES).min(LANES)..LANES {
            (sums[lane], shares[lane]) = (1.0, 0.0);
        }
        for powers in powers {
            powers.iter_mut().zip(&shares).for_each(|(power, share)| *power *= share);
        }
        products.iter_mut().zip(&sums).for_each(|(product, sum)| *product *= sum);
    }
    (0..LANES).map(|lane| largest_sum[lane] + products[lane].ln()).sum()
}

/// Posteriors of rows whose component is known.
pub(super) fn one_hot<'a>(
    posteriors: &mut Vec<Group>,
    components: usize,
    labels: impl ExactSizeIterator<Item = &'a u32>,
) {
    sized(posteriors, labels.len().div_ceil(LANES) * components, [0.0; LANES]);
    for (row, &label) in labels.enumerate() {
        posteriors[row / LANES * components + label as usize][row % LANES] = 1.0;
    }
}

/// The component with the largest logit of every row, the first among equals.
pub(super) fn largest(logits: &[Group], components: usize, rows: usize, labels: &mut Vec<u32>) {
    for (group, logits) in logits.chunks_exact(components).enumerate() {
        for lane in 0..LANES.min(rows - group * LANES) {
            let better =
                |best: usize, other: usize| if logits[other][lane] > logits[best][lane] { other } else { best };
            labels.push((1..components).fold(0, better) as u32);
        }
    }
}

/// Adds to `members` the sum over rows of every component's posteriors.
pub(super) fn count(posteriors: &[Group], members: &mut [f64]) {
    let components = members.len();
    for (component, members) in members.iter_mut().enumerate() {
        let mut sums = [0.0; LANES];
        for group in posteriors.iter().skip(component).step_by(components) {
            sums.iter_mut().zip(group).for_each(|(sum, posterior)| *sum += posterior);
        }
        *members += sums.iter().sum::<f64>();
    }
}
