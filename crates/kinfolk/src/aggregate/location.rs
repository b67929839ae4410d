//! Points pulled to a common centre. Over positions v_k and a centre v̄,
//!
//! ```text
//! minimise  Σ_k ( n_k/2 ‖v_k − x_k‖² + n_k τ_k ‖v_k − v̄‖ )
//! ```
//!
//! For a fixed centre every position is known: within reach, ‖x_k − v̄‖ ≤ τ_k, it is the centre itself; beyond, the point
//! moved by τ_k towards it. What remains is a location problem in the centre with Huber's loss of the distances, quadratic
//! within reach and linear beyond. It is convex, and solved by Newton's method with reweighted means as the fallback.

use crate::num::{Cholesky, add_scaled, distance, dot, norm, squared_distance};

/// Largest dimension in which Newton's method pays.
const NEWTON_DIMENSION: usize = 100;
/// Most steps of one solve; a handful suffices from a good start.
const MOST_STEPS: usize = 10_000;

/// The location problem of points that are pulled to a common centre.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Location<'a> {
    /// The points x_k, concatenated.
    pub points: &'a [f64],
    /// Their weights n_k > 0.
    pub counts: &'a [f64],
    /// The reach τ_k ≥ 0 of each; infinite for a plain mean.
    pub reach: &'a [f64],
}

impl Location<'_> {
    fn dimension(&self) -> usize {
        self.points.len() / self.counts.len().max(1)
    }

    fn members(&self) -> impl Iterator<Item = (&[f64], f64, f64)> {
        let points = self.points.chunks_exact(self.dimension().max(1));
        points.zip(self.counts).zip(self.reach).map(|((point, &count), &reach)| (point, count, reach))
    }

    /// Σ n x / Σ n.
    pub(crate) fn mean(&self) -> Vec<f64> {
        let mut mean = vec![0.0; self.dimension()];
        self.members().for_each(|(point, count, _)| add_scaled(&mut mean, count, point));
        let all: f64 = self.counts.iter().sum();
        mean.iter_mut().for_each(|value| *value /= all);
        mean
    }

    /// The coordinatewise median, a robust start.
    pub(crate) fn median(&self) -> Vec<f64> {
        let middle = |place: usize| {
            let mut values: Vec<f64> = self.members().map(|(point, _, _)| point[place]).collect();
            values.sort_by(f64::total_cmp);
            0.5 * (values[(values.len() - 1) / 2] + values[values.len() / 2])
        };
        (0..self.dimension()).map(middle).collect()
    }

    /// The best centre, up to `tolerance` times the mean distance of the points from it, with distances cut off at the reach.
    /// With τ = 0 every centre is as good as any other, and the mean is taken. Points at a distance that overflows do not
    /// count.
    pub(crate) fn centre(&self, start: Option<&[f64]>, tolerance: f64) -> Vec<f64> {
        let everything = self.reach.iter().all(|&reach| reach == f64::INFINITY);
        let nothing = self.reach.iter().all(|&reach| reach == 0.0);
        if everything || nothing || self.dimension() == 0 {
            return self.mean();
        }
        let mut centre = start.map_or_else(|| self.median(), <[f64]>::to_vec);
        let mut value = self.value(&centre);
        for _ in 0..MOST_STEPS {
            let slope = self.slope(&centre);
            // The step to a reweighted mean: always downhill, and its length estimates the distance left.
            let size = norm(&slope.gradient) / slope.weight;
            if size <= tolerance * slope.distance || size == 0.0 {
                break;
            }
            let newton = self.newton(&centre, &slope.gradient).filter(|next| self.value(next) < value);
            let next = newton.unwrap_or_else(|| {
                let mut next = centre.clone();
                add_scaled(&mut next, -1.0 / slope.weight, &slope.gradient);
                next
            });
            let now = self.value(&next);
            // Within rounding, values no longer fall, but the last step was still right.
            let (stuck, before) = (now >= value, std::mem::replace(&mut centre, next));
            if stuck && distance(&before, &centre) <= 1e-9 * slope.distance {
                break;
            }
            value = now;
        }
        centre
    }

    /// The authors' two passes: the mean, and once more after moving the points beyond reach.
    pub(crate) fn centre_in_two_passes(&self) -> Vec<f64> {
        let first = self.mean();
        let mut centre = vec![0.0; first.len()];
        for (point, count, reach) in self.members() {
            let away = distance(point, &first);
            let beyond = if away > reach { 1.0 - reach / away } else { 0.0 };
            for ((centre, point), first) in centre.iter_mut().zip(point).zip(&first) {
                *centre += count * (point - beyond * (point - first));
            }
        }
        let all: f64 = self.counts.iter().sum();
        centre.iter_mut().for_each(|value| *value /= all);
        centre
    }

    /// Σ_k n_k ρ(‖x_k − v̄‖), up to a constant.
    fn value(&self, centre: &[f64]) -> f64 {
        let term = |(point, count, reach): (&[f64], f64, f64)| {
            let square = squared_distance(point, centre);
            let away = square.sqrt();
            count * if away <= reach { 0.5 * square } else { reach * (away - 0.5 * reach) }
        };
        self.members().map(term).filter(|term| term.is_finite()).sum()
    }

    fn slope(&self, centre: &[f64]) -> Slope {
        let mut slope = Slope { gradient: vec![0.0; centre.len()], weight: 0.0, distance: 0.0 };
        let mut counted = 0.0;
        for (point, count, reach) in self.members() {
            let away = distance(point, centre);
            if !away.is_finite() {
                continue;
            }
            let weight = count * if away <= reach { 1.0 } else { reach / away };
            for ((slope, point), centre) in slope.gradient.iter_mut().zip(point).zip(centre) {
                *slope += weight * (centre - point);
            }
            slope.weight += weight;
            slope.distance += count * away.min(reach);
            counted += count;
        }
        slope.distance /= counted;
        slope
    }

    /// One step of Newton's method; `None` where the Hessian is of no help.
    fn newton(&self, centre: &[f64], gradient: &[f64]) -> Option<Vec<f64>> {
        let size = centre.len();
        if size > NEWTON_DIMENSION {
            return None;
        }
        let mut curvature = vec![0.0; size * size];
        let (mut away, mut diagonal) = (vec![0.0; size], 0.0);
        for (point, count, reach) in self.members() {
            away.iter_mut().zip(point).zip(centre).for_each(|((away, point), centre)| *away = point - centre);
            let square = dot(&away, &away);
            let far = square.sqrt();
            if !far.is_finite() {
                continue;
            }
            if far <= reach {
                diagonal += count;
                continue;
            }
            let weight = count * reach / far;
            diagonal += weight;
            for (row, &along) in curvature.chunks_exact_mut(size).zip(&away) {
                add_scaled(row, -weight * along / square, &away);
            }
        }
        (0..size).for_each(|place| curvature[place * (size + 1)] += diagonal);
        let mut step = gradient.to_vec();
        Cholesky::new(&curvature, size)?.solve(&mut step, 1);
        let next: Vec<f64> = centre.iter().zip(&step).map(|(centre, step)| centre - step).collect();
        next.iter().all(|value| value.is_finite()).then_some(next)
    }
}

struct Slope {
    gradient: Vec<f64>,
    weight: f64,
    /// Mean distance of the points, cut off at the reach.
    distance: f64,
}

/// Moves a point by `reach` towards the centre, at most to it. Returns its former distance.
pub(crate) fn pull(point: &mut [f64], centre: &[f64], reach: f64) -> f64 {
    let away = distance(point, centre);
    if reach == 0.0 {
        return away;
    }
    if away <= reach {
        point.copy_from_slice(centre);
        return away;
    }
    let kept = 1.0 - reach / away;
    point.iter_mut().zip(centre).for_each(|(point, centre)| *point = centre + kept * (*point - centre));
    away
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;
    use rand::RngExt;

    #[test]
    fn a_centre_by_hand() {
        // Points 0, 0 and 10 with a reach of 1: the centre solves 2v = 1, and the far point comes one nearer.
        let (points, counts, reach) = ([0.0, 0.0, 10.0], [1.0; 3], [1.0; 3]);
        let problem = Location { points: &points, counts: &counts, reach: &reach };
        let centre = problem.centre(None, 1e-12);
        assert!((centre[0] - 0.5).abs() < 1e-12, "{centre:?}");
        let mut far = [10.0];
        assert_eq!(pull(&mut far, &centre, 1.0), 10.0 - centre[0]);
        assert!((far[0] - 9.0).abs() < 1e-12);
        let mut near = [0.0];
        pull(&mut near, &centre, 1.0);
        assert_eq!(near[0], centre[0]);
        // From the mean, 10/3, all three points are beyond reach: Δ is what is left of each way after 1.
        let two = problem.centre_in_two_passes();
        let mean: f64 = 10.0 / 3.0;
        let moved = (mean - 1.0).mul_add(2.0, -(10.0 - mean - 1.0));
        assert!((two[0] - (10.0 + moved) / 3.0).abs() < 1e-12, "{two:?}");
    }

    #[test]
    fn a_point_however_far_moves_the_centre_by_its_reach_alone() {
        let near = [0.1, -0.3, 0.2, 0.4, -0.2, 0.0, 0.3, -0.1, -0.4];
        let centre = |far: f64| {
            let points: Vec<f64> = near.iter().copied().chain([far]).collect();
            Location { points: &points, counts: &[1.0; 10], reach: &[1.0; 10] }.centre(None, 1e-12)[0]
        };
        let wanted = 1.0 / 9.0;
        for far in [1e2, 1e6, 1e12, 1e100] {
            assert!((centre(far) - wanted).abs() < 1e-9, "{far:e}: {}", centre(far));
        }
        assert!(centre(1e200).abs() < 1e-9, "its distance is no number, and it does not count");
    }

    #[test]
    fn no_reach_leaves_points_and_infinite_reach_is_the_mean() {
        let points = [1.0, 2.0, 3.0, 5.0];
        let counts = [1.0, 3.0];
        let with = |reach: f64| {
            let reach = [reach; 2];
            let problem = Location { points: &points, counts: &counts, reach: &reach };
            let centre = problem.centre(None, 1e-12);
            let mut moved = points;
            moved.chunks_exact_mut(2).for_each(|point| _ = pull(point, &centre, reach[0]));
            (centre, moved)
        };
        assert_eq!(with(0.0).1, points);
        let (centre, moved) = with(f64::INFINITY);
        assert_eq!(centre, [(1.0 + 9.0) / 4.0, (2.0 + 15.0) / 4.0]);
        assert_eq!(moved, [centre[0], centre[1], centre[0], centre[1]]);
    }

    /// Positions and centre by plain alternation, long enough: the oracle.
    fn alternate(problem: &Location) -> Vec<f64> {
        let mut centre = problem.mean();
        let all: f64 = problem.counts.iter().sum();
        for _ in 0..200_000 {
            let mut next = vec![0.0; centre.len()];
            for (point, count, reach) in problem.members() {
                let mut moved = point.to_vec();
                pull(&mut moved, &centre, reach);
                for ((next, point), (moved, centre)) in next.iter_mut().zip(point).zip(moved.iter().zip(&centre)) {
                    *next += count / all * (point - (moved - centre));
                }
            }
            let still = distance(&next, &centre) < 1e-14;
            centre = next;
            if still {
                break;
            }
        }
        centre
    }

    #[test]
    fn random_problems_agree_with_long_alternation_and_are_stationary() {
        let mut rng = Key::new(3).word("pull").rng();
        for case in 0..60 {
            let (members, dimension) = (2 + case % 9, 1 + case % 7);
            let points: Vec<f64> = (0..members * dimension)
                .map(|place| rng.random_range(-1.0..1.0) + if place < dimension * (members / 3) { 8.0 } else { 0.0 })
                .collect();
            let counts: Vec<f64> = (0..members).map(|_| rng.random_range(1.0..200.0)).collect();
            let reach: Vec<f64> =
                counts.iter().map(|count: &f64| 0.3 * (1 + case % 4) as f64 * 8.0 / count.sqrt()).collect();
            let problem = Location { points: &points, counts: &counts, reach: &reach };
            let centre = problem.centre(None, 1e-13);
            // Where nothing is in reach the centre need not be unique; its value is.
            let oracle = alternate(&problem);
            let (ours, theirs) = (problem.value(&centre), problem.value(&oracle));
            assert!(ours <= theirs * (1.0 + 1e-12), "{case}: {ours} against {theirs}");
            let slope = problem.slope(&centre);
            assert!(norm(&slope.gradient) <= 1e-8 * slope.weight.max(1.0) * slope.distance.max(1e-3), "{case}");
            let far = problem.centre(Some(&vec![50.0; dimension]), 1e-13);
            assert!((problem.value(&far) - ours).abs() <= 1e-10 * ours.max(1.0), "{case}: from far away");
        }
    }

    /// Points, rows and λ of a problem; its smallest value as a conic solver (Clarabel) finds it, and the centre as a
    /// quasi-Newton method (scipy) does: a value known to 1e-13 leaves the centre open to 1e-7.
    type Solved = (&'static [f64], &'static [f64], f64, f64, &'static [f64]);

    #[test]
    fn generic_convex_solvers_find_the_same() {
        let solved: [Solved; 3] = [
            (
                &[0.001, 0.299, -0.274, -0.891, -0.455, -0.992, 6.06, 7.34],
                &[43.0, 163.0, 41.0, 104.0],
                3.0,
                329.290288290502,
                &[-0.19925615490121232, -0.698423796318039],
            ),
            (
                &[
                    0.49, 0.357, 0.105, -0.93, -0.029, 0.695, -1.344, -0.458, -1.901, -1.29, -1.842, -0.235, -1.267,
                    0.271, 0.157, 5.813, 3.483, 5.461,
                ],
                &[168.0, 133.0, 99.0, 112.0, 67.0, 109.0],
                6.0,
                884.5208957206482,
                &[-0.6456114586817505, -0.02722738036218836, 0.27843194160824436],
            ),
            (
                &[-0.478, -0.979, -0.809, 1.061, -0.808, -0.033, 0.884, -0.584, 5.888, 6.11],
                &[53.0, 111.0, 189.0, 172.0, 147.0],
                1.0,
                146.643101341627,
                &[-0.26602574092872744, 0.11551750455571813],
            ),
        ];
        for (points, counts, penalty, value, centre) in solved {
            let reach: Vec<f64> = counts.iter().map(|rows| penalty / rows.sqrt()).collect();
            let found = Location { points, counts, reach: &reach }.centre(None, 1e-13);
            assert!(distance(&found, centre) < 1e-8, "{found:?} against {centre:?}");
            let positions = points.chunks_exact(centre.len()).zip(counts).zip(&reach).map(|((point, rows), reach)| {
                let mut position = point.to_vec();
                pull(&mut position, &found, *reach);
                0.5 * rows * squared_distance(&position, point) + rows.sqrt() * penalty * distance(&position, &found)
            });
            let ours: f64 = positions.sum();
            assert!((ours - value).abs() <= 1e-9 * value, "{ours} against {value}");
        }
    }
}
