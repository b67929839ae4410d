//! The fast formulas against plain ones.

use super::*;
use crate::linalg::{Spectrum, dot, solve_positive};
use crate::rng::{Key, Rng};
use rand::RngExt;
use rand_distr::StandardNormal;

const FAMILIES: [Family; 9] = [
    Family::Gaussian(Covariance::Identity),
    Family::Gaussian(Covariance::Spherical),
    Family::Gaussian(Covariance::Diagonal),
    Family::Gaussian(Covariance::Tied),
    Family::Gaussian(Covariance::Full),
    Family::Regression { intercept: false, noise: Noise::Unit },
    Family::Regression { intercept: true, noise: Noise::Unit },
    Family::Regression { intercept: false, noise: Noise::Common },
    Family::Regression { intercept: true, noise: Noise::Common },
];

fn normals(count: usize, random: &mut Rng) -> Vec<f64> {
    (0..count).map(|_| random.sample(StandardNormal)).collect()
}

/// Some shape's parameters, rows and targets.
struct Case {
    shape: Shape,
    params: Vec<f64>,
    features: Vec<f64>,
    targets: Vec<f64>,
}

impl Case {
    fn new(family: Family, components: usize, columns: usize, count: usize, seed: u64) -> Self {
        let shape = Shape { family, components, columns };
        let mut random = Key::new(seed).rng();
        let mut params = normals(shape.len(), &mut random);
        let scatter = shape.scatter();
        if matches!(family, Family::Gaussian(Covariance::Tied | Covariance::Full)) {
            for covariance in params[scatter].chunks_exact_mut(columns * columns) {
                let roots = covariance.to_vec();
                for (at, value) in covariance.iter_mut().enumerate() {
                    let (row, column) = (at / columns, at % columns);
                    *value = dot(&roots[row * columns..][..columns], &roots[column * columns..][..columns]);
                    *value += if row == column { 0.3 } else { 0.0 };
                }
            }
        } else {
            params[scatter].iter_mut().for_each(|variance| *variance = 0.2 + variance.abs());
        }
        params[shape.weights()].iter_mut().for_each(|weight| *weight = weight.abs());
        normalise(&mut params[shape.weights()]);
        let features = normals(count * columns, &mut random).iter().map(|value| 3.0 + 1.5 * value).collect();
        let targets = normals(count, &mut random).iter().map(|value| 2.0 * value).collect();
        Self { shape, params, features, targets }
    }

    fn rows(&self) -> Rows {
        Rows::new(&self.shape, &self.features, &self.targets)
    }

    fn expect(&self, detail: Detail, limit: Option<f64>) -> Statistics {
        let mut out = Statistics::default();
        expect(&self.shape, &self.params, &self.rows(), detail, limit, &mut Scratch::default(), &mut out);
        out
    }

    /// The covariance of a component.
    fn covariance(&self, component: usize) -> Vec<f64> {
        let columns = self.shape.columns;
        let scatter = &self.params[self.shape.scatter()];
        let diagonal = |variance: &dyn Fn(usize) -> f64| {
            (0..columns * columns)
                .map(|at| if at / columns == at % columns { variance(at % columns) } else { 0.0 })
                .collect()
        };
        match self.shape.family {
            Family::Gaussian(Covariance::Spherical) => diagonal(&|_| scatter[component]),
            Family::Gaussian(Covariance::Diagonal) => diagonal(&|column| scatter[component * columns + column]),
            Family::Gaussian(Covariance::Tied) => scatter.to_vec(),
            Family::Gaussian(Covariance::Full) => {
                scatter[component * columns * columns..][..columns * columns].to_vec()
            }
            _ => diagonal(&|_| 1.0),
        }
    }

    /// Everything by the book, one row and one component at a time.
    fn plain(&self, limit: Option<f64>) -> Statistics {
        let Shape { family, components, columns } = self.shape;
        let width = self.shape.width();
        let mut out = Statistics::default();
        out.clear(&self.shape, Detail::Full, self.targets.len());
        for (features, target) in self.features.chunks_exact(columns).zip(&self.targets) {
            let mut row = features.to_vec();
            row.resize(width, 1.0);
            let mut differences = Vec::new();
            let mut logs = Vec::new();
            for component in 0..components {
                let centre = &self.params[component * width..][..width];
                let weight = self.params[self.shape.weights()][component];
                let (difference, log) = match family {
                    Family::Gaussian(_) => {
                        let covariance = self.covariance(component);
                        let difference: Vec<f64> =
                            row.iter().zip(centre).map(|(value, centre)| value - centre).collect();
                        let solved = solve_positive(&covariance, &difference, columns, 1).unwrap();
                        let log_determinant = Spectrum::new(&covariance, columns).unwrap().sum(f64::ln);
                        let log = -0.5 * (dot(&difference, &solved) + log_determinant);
                        (difference, log - columns as f64 * HALF_LOG_TWO_PI)
                    }
                    Family::Regression { noise, .. } => {
                        let residual = target - dot(&row, centre);
                        let variance = if noise == Noise::Unit { 1.0 } else { self.params[self.shape.scatter().start] };
                        let log = -0.5 * residual * residual / variance - 0.5 * variance.ln() - HALF_LOG_TWO_PI;
                        (vec![residual], log)
                    }
                };
                differences.push(difference);
                logs.push(log + weight.ln());
            }
            let sum: f64 = logs.iter().map(|log| log.exp()).sum();
            out.log_likelihood += sum.ln();
            for component in 0..components {
                let posterior = logs[component].exp() / sum;
                out.members[component] += posterior;
                let difference = &differences[component];
                let pull: Vec<f64> = match family {
                    Family::Gaussian(_) => difference.iter().map(|value| posterior * value).collect(),
                    Family::Regression { .. } => row.iter().map(|value| posterior * difference[0] * value).collect(),
                };
                let length = crate::linalg::norm(&pull);
                let scale = limit.map_or(1.0, |limit| (limit / length).min(1.0));
                crate::linalg::add_scaled(&mut out.pulls[component * width..][..width], scale, &pull);
                let squared = if matches!(family, Family::Gaussian(_)) { difference } else { &row };
                let products = || {
                    let pairs = (0..width).flat_map(|one| (0..=one).map(move |other| (one, other)));
                    pairs.map(|(one, other)| posterior * squared[one] * squared[other])
                };
                let add = |sums: &mut [f64], values: &mut dyn Iterator<Item = f64>| {
                    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                };
                let squares = &mut out.squares;
                match family {
                    Family::Gaussian(Covariance::Identity) => {}
                    Family::Gaussian(Covariance::Spherical) => squares[component] += posterior * dot(squared, squared),
                    Family::Gaussian(Covariance::Diagonal) => add(
                        &mut squares[component * columns..][..columns],
                        &mut squared.iter().map(|value| posterior * value * value),
                    ),
                    Family::Gaussian(Covariance::Tied) => add(squares, &mut products()),
                    Family::Gaussian(Covariance::Full) | Family::Regression { noise: Noise::Unit, .. } => {
                        add(&mut squares[component * triangle(width)..][..triangle(width)], &mut products());
                    }
                    Family::Regression { noise: Noise::Common, .. } => {
                        add(&mut squares[component * triangle(width)..][..triangle(width)], &mut products());
                        *squares.last_mut().unwrap() += posterior * difference[0] * difference[0];
                    }
                }
            }
        }
        out
    }
}

fn assert_close(found: &[f64], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let scale = wanted.iter().fold(1.0, |scale: f64, value| scale.max(value.abs()));
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() <= tolerance * scale, "{what}: got {found}, want {wanted}");
    }
}

fn packed(statistics: &Statistics) -> Vec<f64> {
    let mut packed = Vec::new();
    statistics.pack(&mut packed);
    packed
}

#[test]
fn statistics_agree_with_a_plain_loop() {
    for (seed, family) in FAMILIES.into_iter().enumerate() {
        for (components, columns, count) in [(1, 1, 1), (2, 3, 7), (3, 1, 8), (5, 4, 129), (10, 16, 203), (13, 7, 260)]
        {
            let case = Case::new(family, components, columns, count, seed as u64);
            for limit in [None, Some(0.7)] {
                let (found, wanted) = (case.expect(Detail::Full, limit), case.plain(limit));
                let what = format!("{:?} {count} {limit:?}", case.shape);
                assert_close(&[found.log_likelihood], &[wanted.log_likelihood], 1e-12, &what);
                assert_close(&found.members, &wanted.members, 1e-12, &what);
                assert_close(&found.pulls, &wanted.pulls, 1e-12, &what);
                assert_close(&found.squares, &wanted.squares, 1e-12, &what);
                let gradient = case.expect(Detail::Gradient, limit);
                assert_eq!(gradient, Statistics { squares: Vec::new(), ..found.clone() }, "{what}");
            }
        }
    }
}
