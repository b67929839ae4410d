//! Logistic regression for two classes.

use super::*;
use crate::num::logistic::Odds;
use crate::num::newton::{self, Step};
use crate::num::{Matrix, dot, multiply, multiply_add, row_space, solve_positive, sum_of_squares};
use std::f64::consts::LN_2;

settings! {
    /// The settings of the model `logistic`.
    pub struct LogisticSettings {
        /// add a constant term
        intercept: bool = true,
        /// numbers to compute in and to send
        precision: Precision = "f64",
    }
}

impl ModelSettings for LogisticSettings {
    const NAME: &str = "logistic";
    const SUMMARY: &str = "logistic regression for two classes";
    const ABILITY: Ability = Ability::Minimiser;
    const ROW_GRADIENTS: bool = true;

    fn build(self, data: DataShape) -> Result<Box<dyn Model>> {
        if data.classes != 2 {
            return Err(Error::settings(format!(
                "model.kind: \"logistic\" wants 2 classes, the data has {}",
                data.classes
            ))
            .hint("use \"softmax\" for more classes, \"linear\" for numbers"));
        }
        let dense = Dense::new(vec![data.columns, 1], self.intercept, Output::Logistic);
        Ok(Box::new(NetworkModel::new(dense.minimised_by(minimise), data, self.precision)))
    }
}

/// Where the classes separate and nothing holds the model back, a ridge of this share of the columns' mean square does.
const RIDGE_WHERE_SEPARATED: f64 = 1e-4;

/// A gain this small, relatively, is lost in rounding.
const BELOW_ROUNDING: f64 = 1e-14;

/// By Newton's method. Where there is no minimiser, because the classes separate, it
/// is that with a small ridge, which scales with the columns. A ridge keeps the minimiser in the span of the rows; where
/// there are fewer of them than columns, that is the smaller problem with the same solution.
fn minimise(rows: &Rows, ridge: f64) -> Result<Vec<f64>> {
    let (count, size) = (rows.y.len(), rows.columns);
    if ridge > 0.0 && count < size {
        let (coordinates, basis) = row_space(&rows.x, count, size);
        let within = minimise(&Rows { x: coordinates, y: rows.y.clone(), columns: count }, ridge)?;
        let mut params = vec![0.0; size];
        multiply(&mut params, 1.0, Matrix::new(&within, 1, count), Matrix::new(&basis, count, size));
        return Ok(params);
    }
    let share = 1.0 / count as f64;
    let x = Matrix::new(&rows.x, count, size);
    let odds = |params: &[f64]| {
        let mut odds = vec![0.0; count];
        multiply(&mut odds, 1.0, x, Matrix::new(params, size, 1));
        odds
    };
    let objective = |params: &[f64]| -> f64 {
        let loss = |(odds, &y): (f64, &f64)| Odds::of(if y > 0.5 { odds } else { -odds }).loss();
        let loss: f64 = odds(params).into_iter().zip(&rows.y).map(loss).sum();
        loss * share + 0.5 * ridge * sum_of_squares(params)
    };
    // Below this no row is on its wrong side: the model gets better without end when nothing holds it back.
    let separated = LN_2 * share;
    let params = newton::minimise(vec![0.0; size], BELOW_ROUNDING, objective, |params, value| {
        if ridge == 0.0 && value < separated {
            return Ok(None);
        }
        let mut gradient: Vec<f64> = params.iter().map(|p| ridge * p).collect();
        let (mut residual, mut weighted) = (Vec::with_capacity(count), Vec::with_capacity(rows.x.len()));
        for ((row, y), odds) in rows.x.chunks_exact(size).zip(&rows.y).zip(odds(params)) {
            let odds = Odds::of(odds);
            residual.push(odds.chance() - y);
            weighted.extend(row.iter().map(|value| value * odds.curvature()));
        }
        multiply_add(&mut gradient, share, x.transpose(), Matrix::new(&residual, count, 1));
        let mut curvature = vec![0.0; size * size];
        multiply(&mut curvature, share, Matrix::new(&weighted, count, size).transpose(), x);
        (0..size).for_each(|i| curvature[i * size + i] += ridge);
        let direction = solve_positive(&curvature, &gradient, size, 1).or_else(|| {
            // Columns that depend on each other leave a direction free; a little damping picks a short step.
            let largest = (0..size).map(|i| curvature[i * size + i]).fold(0.0, f64::max);
            (0..size).for_each(|i| curvature[i * size + i] += 1e-10 * largest);
            solve_positive(&curvature, &gradient, size, 1)
        });
        Ok(direction.map(|direction| Step {
            target: params.iter().zip(&direction).map(|(p, d)| p - d).collect(),
            promised: 0.5 * dot(&gradient, &direction),
        }))
    })?;
    let small_ridge = RIDGE_WHERE_SEPARATED * sum_of_squares(&rows.x) / rows.x.len() as f64;
    if ridge == 0.0 && small_ridge > 0.0 && objective(&params) < separated {
        return minimise(rows, small_ridge);
    }
    match params.iter().all(|value| value.is_finite()) {
        true => Ok(params),
        false => Err(Error::data("logistic regression found no finite minimiser")
            .hint("are there numbers in the data that are far too large?")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::kind;
    use crate::models::trainer::testing::{build, client, numbers};
    use crate::num::distance;
    use crate::privacy::accountant::Budget;
    use crate::privacy::answers::HiddenAnswer;
    use crate::privacy::noise::Source;
    use crate::privacy::protection::Neighbours;
    use crate::privacy::rows::{Bounds, Exposure, RowPrivacy};

    #[test]
    fn the_log_odds_of_a_constant() {
        // Three of four rows in class 1: the intercept alone is log 3.
        let rows = Rows { x: vec![1.0; 4], y: vec![1.0, 1.0, 1.0, 0.0], columns: 1 };
        assert!((minimise(&rows, 0.0).unwrap()[0] - 3f64.ln()).abs() < 1e-10);
    }

    #[test]
    fn separated_classes_have_a_minimiser_that_scales_with_the_columns() {
        let rows = |scale: f64| Rows { x: vec![-scale, scale], y: vec![0.0, 1.0], columns: 1 };
        let found = minimise(&rows(1.0), 0.0).unwrap()[0];
        // 1/(1 + e^θ) = 1e-4·θ, the columns' mean square being 1.
        assert!((1.0 / (1.0 + found.exp()) - 1e-4 * found).abs() < 1e-10);
        for scale in [1e-3, 50.0] {
            let scaled = minimise(&rows(scale), 0.0).unwrap()[0] * scale;
            assert!((scaled - found).abs() < 1e-6 * found, "{scale}: {scaled}, {found}");
        }
        let found = minimise(&rows(1.0), 0.1).unwrap()[0];
        // 1/(1 + e^θ) = 0.1·θ
        assert!((1.0 / (1.0 + found.exp()) - 0.1 * found).abs() < 1e-10);
        // A single row, rows of one class, and columns without anything in them.
        for (x, y) in
            [(vec![2.0, 1.0], vec![1.0]), (vec![1.0, -1.0, 1.0, 3.0], vec![0.0, 0.0]), (vec![0.0; 4], vec![0.0; 2])]
        {
            let found = minimise(&Rows { x, y, columns: 2 }, 0.0).unwrap();
            assert!(found.iter().all(|value| value.is_finite()), "{found:?}");
        }
    }

    #[test]
    fn few_rows_have_no_slope_left_either() {
        // Three rows of five columns, two of them alike; the gradient is formed from its definition.
        let x = vec![1.0, 2.0, 0.0, -1.0, 0.5, 0.0, 1.0, 3.0, 1.0, -2.0, 1.0, 2.0, 0.0, -1.0, 0.5];
        let rows = Rows { x, y: vec![1.0, 0.0, 0.0], columns: 5 };
        let found = minimise(&rows, 0.01).unwrap();
        let mut gradient: Vec<f64> = found.iter().map(|p| 0.01 * p).collect();
        for (row, y) in rows.x.chunks(5).zip(&rows.y) {
            let odds: f64 = row.iter().zip(&found).map(|(x, p)| x * p).sum();
            let residual = 1.0 / (1.0 + (-odds).exp()) - y;
            gradient.iter_mut().zip(row).for_each(|(g, x)| *g += residual * x / 3.0);
        }
        assert!(gradient.iter().all(|g| g.abs() < 1e-12), "{gradient:?}");
    }

    /// What is left of numbers is their grid: a millionth of what a row may do.
    fn next_to_no_noise(bound: f64) -> HiddenAnswer {
        let (budget, source) = (Budget { epsilon: 1.0, delta: 1e-5 }, Source::Seed(1));
        let most = Exposure { answers: 1, ..Exposure::default() };
        let plan = RowPrivacy::within(budget, (1.0, 1.0, 1.0), Neighbours::AddOrRemove, most, source).unwrap();
        let bounds = Bounds { row: Some(bound), target: 1.0 };
        HiddenAnswer::new(RowPrivacy { noise: 1e-9, bounds, ..plan }, source)
    }

    #[test]
    fn a_row_moves_a_hidden_minimiser_by_no_more_than_is_claimed() {
        const BOUND: f64 = 2.0;
        let model = build(kind("logistic").unwrap(), "", DataShape::numbers(2, 2)).unwrap();
        let minimiser = |values: &[f64], classes: &[u32], ridge: f64| {
            let mut hidden = next_to_no_noise(BOUND);
            let rows = client(2, values.to_vec(), classes).train;
            model.want_convex().unwrap().minimise_hidden(&rows, ridge, &mut hidden).unwrap()
        };
        let mut worst = 0.0f64;
        for (count, ridge) in [(1, 5.0), (1, 0.01), (4, 1.0), (30, 0.1), (30, 1e-4)] {
            let values = numbers("rows", 2 * count).into_iter().map(|value| 3.0 * value).collect::<Vec<f64>>();
            let classes: Vec<u32> = (0..count as u32).map(|row| row % 2).collect();
            let claimed = 2.0 * 1.001 * BOUND / (count as f64 * ridge);
            let one = minimiser(&values, &classes, ridge);
            // Another row in the first one's place, and one more; as long as can be, and one without end.
            for (x, class) in [([1e9, 0.0], 1), ([1e9, 0.0], 0), ([-1.0, 0.2], 1), ([f64::INFINITY, 1.0], 0)] {
                let (mut other, mut labels) = (values.clone(), classes.clone());
                (other[0], other[1], labels[0]) = (x[0], x[1], class);
                let replaced = distance(&one, &minimiser(&other, &labels, ridge));
                let more = minimiser(&[&values[..], &x].concat(), &[&classes[..], &[class]].concat(), ridge);
                let added = distance(&one, &more);
                assert!(replaced.max(added) <= claimed * (1.0 + 1e-5), "{count} {ridge}: {replaced} {added} {claimed}");
                worst = worst.max(replaced.max(added) / claimed);
            }
        }
        assert!(worst > 0.3, "{worst}");
    }

    #[test]
    fn without_noise_a_hidden_minimiser_is_that_of_the_rows() {
        let model = build(kind("logistic").unwrap(), "", DataShape::numbers(2, 2)).unwrap();
        let rows = client(2, numbers("rows", 40), &[0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1, 1, 0]).train;
        let mut hidden = next_to_no_noise(100.0);
        let convex = model.want_convex().unwrap();
        let (plain, found) =
            (convex.minimise(&rows, 0.1).unwrap(), convex.minimise_hidden(&rows, 0.1, &mut hidden).unwrap());
        assert!(distance(&plain, &found) < 1e-3, "{plain:?} {found:?}");
        let said = convex.minimise_hidden(&rows, 0.0, &mut hidden).unwrap_err().to_string();
        assert!(said.contains("a ridge above 0"), "{said}");
    }
}
