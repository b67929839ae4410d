//! The sums of an E-step that hide any single row.
//!
//! A row adds its posteriors γ to the members, and γ times its pull, cut to a length C, to the pulls of all components. As posteriors sum to 1,
//! (C·γ, γ·pull) is no longer than √2·C, whatever the row, the parameters and the number of components. Squares of rows are not formed:
//! how rows scatter must be given. Nothing is relative to the mean of the rows: a long row would move it, and with it all others by rounding.

use super::{Detail, Family, Rows, Scratch, Shape, Statistics, prepare, score, turn_into_posteriors};
use crate::num::{add_scaled, norm};
use crate::privacy::answers::HiddenAnswer;
use std::f64::consts::SQRT_2;

/// The E-step with noise, without a likelihood. Returns the deviation of the noise on members. Rows must be [uncentred](Rows::uncentred).
pub(crate) fn expect_hidden(
    shape: &Shape,
    params: &[f64],
    rows: &Rows,
    hidden: &mut HiddenAnswer,
    scratch: &mut Scratch,
    out: &mut Statistics,
) -> f64 {
    let clip = hidden.clip();
    sum_cut(shape, params, rows, clip, scratch, out);
    let mut sums: Vec<f64> = out.members.iter().map(|members| clip * members).collect();
    sums.extend_from_slice(&out.pulls);
    let deviation = hidden.hide_sums(&mut sums, SQRT_2 * clip);
    let (members, pulls) = sums.split_at(shape.components);
    out.members = members.iter().map(|members| members / clip).collect();
    out.pulls = pulls.to_vec();
    deviation / clip
}

/// The sums without noise.
fn sum_cut(shape: &Shape, params: &[f64], rows: &Rows, clip: f64, scratch: &mut Scratch, out: &mut Statistics) {
    let width = shape.width();
    out.clear(shape, Detail::Gradient, rows.len());
    prepare(shape, params, rows, scratch);
    let mut pull = vec![0.0; width];
    for block in rows.blocks() {
        score(shape, &block, scratch);
        turn_into_posteriors(block.rows, scratch);
        for row in 0..block.rows {
            let posteriors = || scratch.posteriors.iter().skip(row).step_by(block.rows);
            // A row that cannot be computed with says nothing.
            if posteriors().any(|posterior| !posterior.is_finite()) {
                continue;
            }
            for (component, &posterior) in posteriors().enumerate() {
                out.members[component] += posterior;
                let values = block.values.iter().skip(row).step_by(block.rows);
                match shape.family {
                    Family::Gaussian(_) => {
                        let centre = &scratch.centres[component * width..];
                        pull.iter_mut().zip(values).zip(centre).for_each(|((pull, value), at)| *pull = value - at);
                    }
                    Family::Regression { .. } => {
                        let residual = scratch.weights[component * block.rows + row];
                        pull.iter_mut().zip(values).for_each(|(pull, value)| *pull = residual * value);
                    }
                }
                let length = norm(&pull);
                if length.is_finite() {
                    let share = if length > clip { clip / length } else { 1.0 };
                    add_scaled(&mut out.pulls[component * width..][..width], posterior * share, &pull);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Covariance, Noise, expect};
    use super::*;
    use crate::rng::Key;
    use rand::RngExt;

    fn shapes() -> [Shape; 2] {
        let families =
            [Family::Gaussian(Covariance::Identity), Family::Regression { intercept: true, noise: Noise::Unit }];
        families.map(|family| Shape { family, components: 3, columns: 2 })
    }

    fn params(shape: &Shape, seed: u64) -> Vec<f64> {
        let mut rng = Key::new(seed).rng();
        let mut params: Vec<f64> = (0..shape.centres().end).map(|_| rng.random_range(-2.0..2.0)).collect();
        params.extend([0.2, 0.3, 0.5]);
        params
    }

    fn sums(shape: &Shape, params: &[f64], x: &[f64], y: &[f64], clip: f64) -> Statistics {
        let (mut scratch, mut out) = (Scratch::default(), Statistics::default());
        let rows = Rows::around(vec![0.0; shape.width()], shape, x, y);
        sum_cut(shape, params, &rows, clip, &mut scratch, &mut out);
        out
    }

    #[test]
    fn a_row_adds_no_more_than_is_claimed() {
        for shape in shapes() {
            let mut worst = 0.0f64;
            for seed in 0..40 {
                let (params, clip) = (params(&shape, seed), 0.7);
                let mut rng = Key::new(seed).word("rows").rng();
                let size = 10f64.powi(seed as i32 % 9 - 1);
                let mut x: Vec<f64> = (0..2000).map(|_| size * rng.random_range(-1.0..1.0)).collect();
                let y: Vec<f64> = (0..1000).map(|_| size * rng.random_range(-1.0..1.0)).collect();
                if seed % 9 == 8 {
                    x[0] = 1e200;
                }
                // The first row more or less.
                let (all, others) =
                    (sums(&shape, &params, &x, &y, clip), sums(&shape, &params, &x[2..], &y[1..], clip));
                let members = all.members.iter().zip(&others.members).map(|(a, b)| clip * (a - b));
                let pulls = all.pulls.iter().zip(&others.pulls).map(|(a, b)| a - b);
                let length = norm(&members.chain(pulls).collect::<Vec<f64>>());
                assert!(length <= SQRT_2 * clip * (1.0 + 1e-9), "{seed}: {length}");
                worst = worst.max(length / clip);
            }
            assert!(worst > 1.41, "{worst}");
        }
    }

    #[test]
    fn without_a_bound_they_are_the_sums_of_the_plain_step() {
        for shape in shapes() {
            let params = params(&shape, 1);
            let (x, y): (Vec<f64>, Vec<f64>) =
                ((0..600).map(|at| (at as f64).sin()).collect(), (0..300).map(|at| (at as f64).cos()).collect());
            let found = sums(&shape, &params, &x, &y, 1e9);
            let (mut scratch, mut plain) = (Scratch::default(), Statistics::default());
            let rows = Rows::new(&shape, &x, &y);
            expect(&shape, &params, &rows, Detail::Gradient, None, &mut scratch, &mut plain);
            let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
            assert!(near(&found.members, &plain.members) && near(&found.pulls, &plain.pulls), "{found:?} {plain:?}");
        }
    }
}
