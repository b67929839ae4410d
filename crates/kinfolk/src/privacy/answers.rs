//! Single answers about a client's rows that hide any one of them: minimisers, and sums.
//!
//! Every row is cut to public bounds, so that one row changes what is released by a known length at most, its sensitivity for one row more
//! or less; another row in its place changes it by twice that, for which the accountant doubles the noise. An answer costs what one
//! Gaussian with the noise of the plan costs. Where it is made of several parts, each has √parts times that noise: ρ(α) = α/2σ² adds up.
//!
//! Least squares are AdaSSP (Wang 2018, algorithm 2): noise on XᵀX, Xᵀy and the smallest eigenvalue of XᵀX, from which the ridge follows that
//! the noise calls for. Other minimisers get noise themselves (output perturbation: Chaudhuri, Monteleoni, Sarwate 2011).

use super::noise::{Noise, Source};
use super::protection::Neighbours;
use super::rows::RowPrivacy;
use crate::error::{Error, Result};
use crate::num::{Matrix, extreme_eigenvalues, multiply, norm, solve_positive};

/// How long a gradient a minimiser may be left with, as a share of what one row adds to it.
const UNSOLVED: f64 = 1e-3;

/// The noise of one answer.
pub struct HiddenAnswer {
    privacy: RowPrivacy,
    noise: Noise,
}

impl HiddenAnswer {
    pub(crate) fn new(privacy: RowPrivacy, source: Source) -> Self {
        Self { privacy, noise: Noise::new(source.extended(|key| key.word("answer"))) }
    }

    /// The length to which a row's pull is cut.
    pub(crate) fn clip(&self) -> f64 {
        self.privacy.clip
    }

    /// The length to which a row of so many columns, with the constant 1, is cut.
    fn row_bound(&self, columns: usize) -> f64 {
        self.privacy.bounds.row.unwrap_or((columns as f64).sqrt())
    }

    /// Hides one of so many parts of an answer.
    fn hide(&mut self, values: &mut [f64], sensitivity: f64, parts: f64) {
        self.noise.hide(values, sensitivity, parts.sqrt() * self.privacy.noise);
    }

    /// Hides sums to which a row adds numbers of this length at most, which are the whole answer; returns the deviation of their noise.
    pub(crate) fn hide_sums(&mut self, sums: &mut [f64], sensitivity: f64) -> f64 {
        self.hide(sums, sensitivity, 1.0);
        self.privacy.noise * sensitivity
    }

    /// Cuts rows to their bound. With targets, these shrink with their row, which only weighs less then, and are cut as well.
    pub(crate) fn cut(&self, x: &mut [f64], columns: usize, mut targets: Option<&mut [f64]>) {
        let (bound, most) = (self.row_bound(columns), self.privacy.bounds.target);
        for (place, row) in x.chunks_exact_mut(columns).enumerate() {
            let length = norm(row);
            let share = if length > bound { bound / length } else { 1.0 };
            let target = targets.as_mut().map(|targets| &mut targets[place]);
            // A row that cannot be computed with says nothing.
            if !length.is_finite() || target.as_ref().is_some_and(|target| !target.is_finite()) {
                row.fill(0.0);
                target.into_iter().for_each(|target| *target = 0.0);
                continue;
            }
            row.iter_mut().for_each(|value| *value *= share);
            target.into_iter().for_each(|target| *target = (share * *target).clamp(-most, most));
        }
    }

    /// Parameters with a small squared error on rows that have been [cut](Self::cut), plus ½·ridge·‖θ‖² of its mean.
    pub(crate) fn least_squares(&mut self, x: &[f64], y: &[f64], columns: usize, ridge: f64) -> Vec<f64> {
        /// The chance that noise is larger than the ridge allows for.
        const FAILURE: f64 = 0.05;
        const PARTS: f64 = 3.0;
        let (count, size) = (y.len(), columns as f64);
        let rows = Matrix::new(x, count, columns);
        let (mut squares, mut moments) = (vec![0.0; columns * columns], vec![0.0; columns]);
        multiply(&mut squares, 1.0, rows.transpose(), rows);
        multiply(&mut moments, 1.0, rows.transpose(), Matrix::new(y, count, 1));
        let length = self.row_bound(columns);
        // One row more adds xxᵀ, whose lower triangle is no longer than ‖x‖², and at most ‖x‖² to every eigenvalue.
        let sensitivity = length * length;
        let mut smallest = [extreme_eigenvalues(&squares, columns).0.max(0.0)];
        let mut triangle: Vec<f64> = (0..columns).flat_map(|i| squares[i * columns..][..=i].to_vec()).collect();
        self.hide(&mut smallest, sensitivity, PARTS);
        self.hide(&mut triangle, sensitivity, PARTS);
        self.hide(&mut moments, length * self.privacy.bounds.target, PARTS);
        let mut noised = triangle.iter();
        for i in 0..columns {
            for (j, &value) in noised.by_ref().take(i + 1).enumerate() {
                squares[i * columns + j] = value;
                squares[j * columns + i] = value;
            }
        }
        // The ridge that noise of this size needs, less what the rows have without one, which is at least this much.
        let deviation = PARTS.sqrt() * self.privacy.noise * sensitivity;
        let surely = (smallest[0] - deviation * (-2.0 * FAILURE.ln()).sqrt()).max(0.0);
        let needed = deviation * (size * (2.0 * size * size / FAILURE).ln()).sqrt() - surely;
        let mut added = needed.max(0.5 * count as f64 * ridge);
        loop {
            let mut ridged = squares.clone();
            ridged.iter_mut().step_by(columns + 1).for_each(|value| *value += added);
            if let Some(solution) = solve_positive(&ridged, &moments, columns, 1) {
                return solution;
            }
            added = (2.0 * added).max(deviation).max(1e-9 * sensitivity);
        }
    }

    /// Noise on the minimiser of a mean over `count` rows that have been [cut](Self::cut), each with a gradient no longer than its row,
    /// plus ½·ridge·‖θ‖². `slope` is the gradient that is left there.
    ///
    /// Where one row more, or another one, moves the gradient of the mean by g, the minimiser moves by g/ridge at most. Another row in one's
    /// place gives g = 2R/n. With one row more the mean is over n + 1, all other gradients shrink by 1/(n + 1) and come to ridge·‖θ‖ ≤ R
    /// together: g ≤ 2R/(n + 1). So 2R/(n·ridge) holds for both, and what the solver left undone adds to it twice.
    pub(crate) fn minimiser(
        &mut self,
        mut params: Vec<f64>,
        slope: f64,
        count: usize,
        columns: usize,
        ridge: f64,
    ) -> Result<Vec<f64>> {
        let moved = self.row_bound(columns) / count as f64;
        if slope.is_nan() || slope > UNSOLVED * moved {
            let message = format!("a gradient of {slope:e} is left at the minimiser, want {:e}", UNSOLVED * moved);
            return Err(Error::data(message).hint("take a larger ridge"));
        }
        let sensitivity = 2.0 * (1.0 + UNSOLVED) * moved / ridge;
        // The accountant has doubled the noise already for another row in one's place.
        let counted = if self.privacy.neighbours == Neighbours::Replace { 2.0 } else { 1.0 };
        self.hide(&mut params, sensitivity / counted, 1.0);
        Ok(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::rows::{Bounds, Exposure};
    use crate::rng::Key;
    use rand::RngExt;

    /// Noise so small that released numbers are what they are without, up to the grid.
    const NONE: f64 = 1e-12;

    fn answer(noise: f64, (row, target): (f64, f64), neighbours: Neighbours) -> HiddenAnswer {
        let most = Exposure { answers: 1, ..Exposure::default() };
        let source = Source::Seed(1);
        let bounds = Bounds { row: Some(row), target };
        let (clip, rate, choice, loss_cap) = (1.0, 1.0, 0.0, 1.0);
        let privacy = RowPrivacy { clip, rate, noise, choice, loss_cap, bounds, neighbours, most, source };
        HiddenAnswer::new(privacy, source)
    }

    /// Random rows of all sizes, among them some that cannot be computed with.
    fn rows(count: usize, columns: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
        let mut rng = Key::new(seed).rng();
        let mut size = |row: usize| if row % 7 == 3 { 1e200 } else { 10f64.powf(rng.random_range(-2.0..3.0)) };
        let sizes: Vec<f64> = (0..count).map(&mut size).collect();
        let mut x: Vec<f64> =
            (0..count * columns).map(|at| sizes[at / columns] * rng.random_range(-1.0..1.0)).collect();
        let mut y: Vec<f64> = (0..count).map(|_| rng.random_range(-50.0..50.0)).collect();
        (x[columns], y[2]) = (f64::NAN, f64::INFINITY);
        (x, y)
    }

    #[test]
    fn a_row_adds_no_more_than_is_claimed_to_what_least_squares_release() {
        let (bound, target) = (1.5, 2.0);
        let hidden = answer(1.0, (bound, target), Neighbours::AddOrRemove);
        for columns in [1, 2, 5] {
            let released = |x: &[f64], y: &[f64]| {
                let (mut x, mut y) = (x.to_vec(), y.to_vec());
                hidden.cut(&mut x, columns, Some(&mut y));
                let matrix = Matrix::new(&x, y.len(), columns);
                let (mut squares, mut moments) = (vec![0.0; columns * columns], vec![0.0; columns]);
                multiply(&mut squares, 1.0, matrix.transpose(), matrix);
                multiply(&mut moments, 1.0, matrix.transpose(), Matrix::new(&y, y.len(), 1));
                let smallest = extreme_eigenvalues(&squares, columns).0;
                let triangle: Vec<f64> = (0..columns).flat_map(|i| squares[i * columns..][..=i].to_vec()).collect();
                (smallest, triangle, moments)
            };
            let apart = |a: &[f64], b: &[f64]| crate::num::distance(a, b);
            let (x, y) = rows(20, columns, columns as u64);
            let mut worst = [0.0f64; 3];
            for left_out in 0..21 {
                // The last of these is the worst there is: a long row in one direction, with a target as large as can be.
                let (mut more, mut targets) = (x.clone(), y.clone());
                if left_out == 20 {
                    more.extend([1e6].into_iter().chain(vec![0.0; columns - 1]));
                    targets.push(1e9);
                }
                let (mut less, mut fewer) = (more.clone(), targets.clone());
                less.drain(left_out * columns..(left_out + 1) * columns);
                fewer.remove(left_out);
                let (one, other) = (released(&more, &targets), released(&less, &fewer));
                let found = [(one.0 - other.0).abs(), apart(&one.1, &other.1), apart(&one.2, &other.2)];
                let claimed = [bound * bound, bound * bound, bound * target];
                assert!(found.iter().zip(claimed).all(|(found, most)| *found <= most * (1.0 + 1e-9)), "{found:?}");
                worst = [0, 1, 2].map(|part| worst[part].max(found[part] / claimed[part]));
            }
            assert!(worst[1] > 0.999 && worst[2] > 0.999, "{worst:?}");
        }
    }

    #[test]
    fn without_noise_least_squares_are_those_of_the_rows_as_they_are_cut() {
        let mut hidden = answer(NONE, (1e3, 2e3), Neighbours::AddOrRemove);
        let mut x = vec![1.0, 2.0, 2000.0];
        let mut y = vec![1.0, 3.0, 2600.0];
        hidden.cut(&mut x, 1, Some(&mut y));
        assert_eq!((x[2], y[2]), (1000.0, 1300.0));
        let found = hidden.least_squares(&x, &y, 1, 0.0);
        let (moment, square) = (1.0 + 6.0 + 1.3e6, 1.0 + 4.0 + 1e6);
        // The grid is a millionth of what a row may add.
        assert!((found[0] - moment / square).abs() < 1e-5, "{found:?}");
        // A ridge as in the minimiser without noise: (n/2)·ridge on the diagonal.
        let found = hidden.least_squares(&x, &y, 1, 2e6);
        assert!((found[0] - moment / (square + 3e6)).abs() < 1e-5, "{found:?}");
        // Columns that say the same, and no rows at all, have a solution as well.
        assert!(hidden.least_squares(&[1.0, 1.0], &[1.0], 2, 0.0).iter().all(|value| value.is_finite()));
        assert!(answer(2.0, (1.0, 1.0), Neighbours::Replace).least_squares(&[], &[], 2, 0.0)[0].is_finite());
    }

    #[test]
    fn noise_on_a_minimiser_is_as_large_as_its_sensitivity_says() {
        let (bound, ridge, count) = (3.0, 0.1, 50);
        for (neighbours, noise) in [(Neighbours::AddOrRemove, 2.0), (Neighbours::Replace, 4.0)] {
            // The accountant asks for twice the noise where another row takes one's place: the deviation is the same.
            let mut hidden = answer(noise, (bound, 1.0), neighbours);
            let found = hidden.minimiser(vec![0.0; 20_000], 0.0, count, 4, ridge).unwrap();
            let deviation = (found.iter().map(|value| value * value).sum::<f64>() / 20_000.0).sqrt();
            let wanted = 2.0 * 2.0 * bound / (50.0 * ridge);
            assert!((deviation / wanted - 1.0).abs() < 0.03, "{neighbours}: {deviation} {wanted}");
        }
        let said = answer(1.0, (bound, 1.0), Neighbours::Replace).minimiser(vec![0.0], 0.1, count, 4, ridge);
        assert!(said.unwrap_err().to_string().contains("take a larger ridge"));
    }
}
