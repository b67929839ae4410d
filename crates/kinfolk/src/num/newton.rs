//! Newton's method with halved steps.

use crate::error::Result;

const MOST_STEPS: usize = 100;
const MOST_HALVINGS: usize = 40;

/// Where the second-order expansion of an objective is smallest, and by how much it is lower there.
pub(crate) struct Step {
    pub(crate) target: Vec<f64>,
    pub(crate) promised: f64,
}

/// The minimiser of a convex objective. `step` is given a point and the objective there; where it has none, the search ends.
/// It ends as well where a step promises no more than this share of the objective.
pub(crate) fn minimise(
    start: Vec<f64>,
    share: f64,
    mut objective: impl FnMut(&[f64]) -> f64,
    mut step: impl FnMut(&[f64], f64) -> Result<Option<Step>>,
) -> Result<Vec<f64>> {
    let (mut point, mut value) = (start.clone(), objective(&start));
    for _ in 0..MOST_STEPS {
        let Some(Step { target, promised }) = step(&point, value)? else { break };
        // What is promised below rounding cannot be seen to come true, but it is true all the same.
        if promised <= share * value.abs() {
            return Ok(target);
        }
        let mut length = 1.0;
        let lower = (0..MOST_HALVINGS).find_map(|_| {
            let next: Vec<f64> = point.iter().zip(&target).map(|(from, to)| from + length * (to - from)).collect();
            length *= 0.5;
            let now = objective(&next);
            (now < value).then_some((next, now))
        });
        match lower {
            Some(lower) => (point, value) = lower,
            None => break,
        }
    }
    Ok(point)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_any_size_is_minimised_and_overshooting_is_halved() {
        // size·(√(1 + (x − 3)²) + const): Newton's own steps overshoot from farther away than 1.
        for size in [1e-200, 1.0, 1e200] {
            let root = |x: f64| (1.0 + (x - 3.0) * (x - 3.0)).sqrt();
            let step = |x: &[f64], _: f64| {
                let (slope, curvature) = ((x[0] - 3.0) / root(x[0]), root(x[0]).powi(-3));
                let target = vec![x[0] - slope / curvature];
                Ok(Some(Step { target, promised: 0.5 * size * slope * slope / curvature }))
            };
            let found = minimise(vec![-10.0], 1e-14, |x| size * root(x[0]), step).unwrap();
            assert!((found[0] - 3.0).abs() < 1e-10, "{size}: {found:?}");
        }
    }

    #[test]
    fn without_a_step_or_a_lower_value_it_stays() {
        let still = minimise(vec![7.0], 0.0, |x| x[0], |_, _| Ok(None));
        assert_eq!(still.unwrap(), [7.0]);
        let uphill = |x: &[f64], _: f64| Ok(Some(Step { target: vec![x[0] + 1.0], promised: 1.0 }));
        assert_eq!(minimise(vec![7.0], 0.0, |x| x[0], uphill).unwrap(), [7.0]);
    }
}
