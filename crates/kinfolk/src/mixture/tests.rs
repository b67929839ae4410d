//! The fast formulas against plain ones.

use super::*;
use crate::num::{Spectrum, dot, solve_positive};
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

    fn expect(&self, detail: Detail, limit: Option<f64>, scratch: &mut Scratch) -> Statistics {
        let mut out = Statistics::default();
        expect(&self.shape, &self.params, &self.rows(), detail, limit, scratch, &mut out);
        out
    }

    /// The variance of a regression's noise.
    fn noise(&self) -> f64 {
        self.params[self.shape.scatter()].first().copied().unwrap_or(1.0)
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
                    Family::Regression { .. } => {
                        let (residual, variance) = (target - dot(&row, centre), self.noise());
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
                let length = crate::num::norm(&pull);
                let scale = limit.map_or(1.0, |limit| (limit / length).min(1.0));
                crate::num::add_scaled(&mut out.pulls[component * width..][..width], scale, &pull);
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

#[test]
fn statistics_agree_with_a_plain_loop() {
    // One scratch for all: what it held before must not matter.
    let mut scratch = Scratch::default();
    for (seed, family) in FAMILIES.into_iter().enumerate() {
        for (components, columns, count) in [(1, 1, 1), (2, 3, 7), (3, 1, 8), (10, 16, 203), (13, 7, 260), (2, 2, 513)]
        {
            let case = Case::new(family, components, columns, count, seed as u64);
            for limit in [None, Some(0.7)] {
                let (found, wanted) = (case.expect(Detail::Full, limit, &mut scratch), case.plain(limit));
                let what = format!("{:?} {count} {limit:?}", case.shape);
                assert_close(&[found.log_likelihood], &[wanted.log_likelihood], 1e-12, &what);
                assert_close(&found.members, &wanted.members, 1e-12, &what);
                assert_close(&found.pulls, &wanted.pulls, 1e-12, &what);
                assert_close(&found.squares, &wanted.squares, 1e-12, &what);
                let gradient = case.expect(Detail::Gradient, limit, &mut scratch);
                assert_eq!(gradient, Statistics { squares: Vec::new(), ..found }, "{what}");
            }
        }
    }
}

#[test]
fn an_e_step_by_hand() {
    // Centres −1 and 1, weights 3/4 and 1/4. At ½ log 3 densities are as 1 to 3, so both posteriors are ½.
    let shape = Shape { family: Family::Gaussian(Covariance::Identity), components: 2, columns: 1 };
    let x = 0.5 * 3f64.ln();
    let case = Case { shape, params: vec![-1.0, 1.0, 0.75, 0.25], features: vec![x], targets: vec![0.0] };
    let found = case.expect(Detail::Full, None, &mut Scratch::default());
    let density = (-0.5 * (x - 1.0) * (x - 1.0)).exp() / (2.0 * std::f64::consts::PI).sqrt();
    assert_close(&[found.rows, found.log_likelihood], &[1.0, (0.5 * density).ln()], 1e-15, "likelihood");
    assert_close(&found.members, &[0.5, 0.5], 1e-15, "members");
    assert_close(&found.pulls, &[0.5 * (x + 1.0), 0.5 * (x - 1.0)], 1e-15, "pulls");
    // The same with a regression on a row that is 2, lines −½ and ½, and the value as target.
    let shape = Shape { family: FAMILIES[5], components: 2, columns: 1 };
    let case = Case { shape, params: vec![-0.5, 0.5, 0.75, 0.25], features: vec![2.0], targets: vec![x] };
    let found = case.expect(Detail::Full, None, &mut Scratch::default());
    assert_close(&[found.log_likelihood], &[(0.5 * density).ln()], 1e-15, "likelihood");
    assert_close(&found.pulls, &[x + 1.0, x - 1.0], 1e-15, "pulls");
    assert_close(&found.squares, &[2.0, 2.0], 1e-15, "squares");
    let clipped = case.expect(Detail::Full, Some(0.25), &mut Scratch::default());
    assert_close(&clipped.pulls, &[0.25, -0.25], 1e-15, "clipped");
    assert_eq!((clipped.members, clipped.squares), (found.members, found.squares));
}

#[test]
fn pulls_are_the_gradient() {
    for (seed, family) in FAMILIES.into_iter().enumerate() {
        let mut case = Case::new(family, 3, 4, 50, seed as u64);
        let width = case.shape.width();
        let pulls = case.expect(Detail::Gradient, None, &mut Scratch::default()).pulls;
        for component in 0..3 {
            let pull = &pulls[component * width..][..width];
            // ∂ log p / ∂ θ is the pull times the precision.
            let gradient = match family {
                Family::Gaussian(_) => solve_positive(&case.covariance(component), pull, width, 1).unwrap(),
                Family::Regression { .. } => pull.iter().map(|pull| pull / case.noise()).collect(),
            };
            for (column, slope) in gradient.iter().enumerate() {
                let at = component * width + column;
                let mut likelihood = |step: f64| {
                    case.params[at] += step;
                    let found = case.expect(Detail::Gradient, None, &mut Scratch::default()).log_likelihood;
                    case.params[at] -= step;
                    found
                };
                let difference = (likelihood(1e-5) - likelihood(-1e-5)) / 2e-5;
                assert!((difference - slope).abs() < 1e-5 * (1.0 + slope.abs()), "{family:?}: {difference} {slope}");
            }
        }
    }
}

#[test]
fn em_never_lowers_the_likelihood() {
    for (seed, family) in FAMILIES.into_iter().enumerate() {
        let mut case = Case::new(family, 4, 3, 120, seed as u64);
        let (mut scratch, mut last) = (Scratch::default(), f64::NEG_INFINITY);
        for step in 0..60 {
            let statistics = case.expect(Detail::Full, None, &mut scratch);
            // The floors of variances and the ridge cost a little.
            assert!(statistics.log_likelihood > last - 1e-5, "{family:?} {step} {last} {}", statistics.log_likelihood);
            last = statistics.log_likelihood;
            maximise(&case.shape, &statistics, &mut case.params);
            let weights = &case.params[case.shape.weights()];
            assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-14, "{weights:?}");
        }
    }
}

#[test]
fn an_m_step_by_hand() {
    // One component: mean and covariance of (0, 0), (2, 0), (4, 6), from wherever it was.
    let rows = [0.0, 0.0, 2.0, 0.0, 4.0, 6.0];
    let wanted: [(Covariance, &[f64]); 5] = [
        (Covariance::Identity, &[]),
        (Covariance::Spherical, &[(8.0 + 24.0) / 6.0]),
        (Covariance::Diagonal, &[8.0 / 3.0, 8.0]),
        (Covariance::Tied, &[8.0 / 3.0, 4.0, 4.0, 8.0]),
        (Covariance::Full, &[8.0 / 3.0, 4.0, 4.0, 8.0]),
    ];
    for (covariance, scatter) in wanted {
        let mut case = Case::new(Family::Gaussian(covariance), 1, 2, 3, 0);
        case.features = rows.to_vec();
        let statistics = case.expect(Detail::Full, None, &mut Scratch::default());
        maximise(&case.shape, &statistics, &mut case.params);
        assert_close(&case.params[case.shape.centres()], &[2.0, 2.0], 1e-14, "centre");
        assert_close(&case.params[case.shape.scatter()], scatter, 2e-6, "scatter");
        assert_eq!(case.params[case.shape.weights()], [1.0]);
    }
    // One regression with a constant: (0, 1), (1, 3), (2, 8) is fitted by 0.5 + 3.5 x, with squares that sum to 1.5.
    let mut case = Case::new(FAMILIES[8], 1, 1, 3, 0);
    (case.features, case.targets) = (vec![0.0, 1.0, 2.0], vec![1.0, 3.0, 8.0]);
    let statistics = case.expect(Detail::Full, None, &mut Scratch::default());
    maximise(&case.shape, &statistics, &mut case.params);
    assert_close(&case.params, &[3.5, 0.5, 0.5, 1.0], 2e-5, "regression");
}

#[test]
fn a_component_nobody_belongs_to_stays() {
    for (seed, family) in FAMILIES.into_iter().enumerate() {
        let mut case = Case::new(family, 3, 2, 40, seed as u64);
        let width = case.shape.width();
        case.params[width..2 * width].fill(1e6);
        let (before, statistics) = (case.params.clone(), case.expect(Detail::Full, None, &mut Scratch::default()));
        maximise(&case.shape, &statistics, &mut case.params);
        assert_eq!(case.params[width..2 * width], before[width..2 * width], "{family:?}");
        let weight = case.params[case.shape.weights()][1];
        assert!(
            (weight - LEAST_WEIGHT).abs() < 1e-12 && case.params.iter().all(|value| value.is_finite()),
            "{family:?}"
        );
        assert_ne!(case.params[..width], before[..width]);
    }
}

#[test]
fn statistics_of_clients_add_up_and_travel() {
    for (seed, family) in FAMILIES.into_iter().enumerate() {
        let all = Case::new(family, 3, 4, 90, seed as u64);
        let part = |rows: Range<usize>| Case {
            features: all.features[rows.start * 4..rows.end * 4].to_vec(),
            targets: all.targets[rows].to_vec(),
            params: all.params.clone(),
            ..all
        };
        for detail in [Detail::Gradient, Detail::Full] {
            let mut scratch = Scratch::default();
            let whole = all.expect(detail, None, &mut scratch);
            let [mut packed, mut rest] = [0..37, 37..90].map(|rows| {
                let part = part(rows).expect(detail, None, &mut scratch);
                let mut packed = vec![7.0];
                part.pack(&mut packed);
                assert_eq!(packed.len() - 1, Statistics::packed_len(&all.shape, detail));
                assert_eq!(Statistics::unpack(&all.shape, detail, &packed[1..]), part);
                packed
            });
            rest[0] = 0.0;
            crate::num::add_scaled(&mut packed, 1.0, &rest);
            let mut wanted = vec![7.0];
            whole.pack(&mut wanted);
            assert_close(&packed, &wanted, 1e-12, "sums");
        }
    }
}

#[test]
fn picked_rows_are_those_rows() {
    let mut random = Key::new(5).rng();
    for family in FAMILIES {
        let case = Case::new(family, 3, 4, 400, 1);
        let rows: Vec<u32> = (0..300).map(|_| random.random_range(0..400)).collect();
        let pick = |values: &[f64], width: usize| -> Vec<f64> {
            rows.iter().flat_map(|&row| &values[row as usize * width..][..width]).copied().collect()
        };
        let alone = Case {
            features: pick(&case.features, 4),
            targets: pick(&case.targets, 1),
            params: case.params.clone(),
            ..case
        };
        let mut found = Statistics::default();
        let picked = case.rows().pick(&rows);
        assert_eq!(picked.len(), 300);
        expect(&case.shape, &case.params, &picked, Detail::Full, None, &mut Scratch::default(), &mut found);
        let wanted = alone.expect(Detail::Full, None, &mut Scratch::default());
        assert_close(&found.pulls, &wanted.pulls, 1e-12, "pulls");
        assert_close(&found.squares, &wanted.squares, 1e-12, "squares");
        assert_close(&[found.log_likelihood], &[wanted.log_likelihood], 1e-12, "likelihood");
    }
}

#[test]
fn rows_of_one_gaussian_serve_another() {
    let identity = Case::new(Family::Gaussian(Covariance::Identity), 2, 3, 30, 3);
    for covariance in [Covariance::Tied, Covariance::Full] {
        let other = Case::new(Family::Gaussian(covariance), 2, 3, 30, 3);
        let case = Case { features: identity.features.clone(), ..other };
        let mut found = Statistics::default();
        let mut scratch = Scratch::default();
        expect(&case.shape, &case.params, &identity.rows(), Detail::Full, None, &mut scratch, &mut found);
        assert_eq!(found, case.expect(Detail::Full, None, &mut scratch), "{covariance:?}");
    }
}

#[test]
fn rows_are_read_from_every_kind_of_shard() {
    use crate::data::{Features, Shard, Targets};
    let shape = Shape { family: FAMILIES[6], components: 1, columns: 2 };
    let targets = || Targets::Values(vec![1.0, 2.0]);
    let kinds = [
        Features::Bytes { columns: 2, values: vec![0, 51, 255, 102] },
        Features::F32 { columns: 2, values: vec![0.0, 0.2, 1.0, 0.4] },
        Features::F64 { columns: 2, values: vec![0.0, 0.2, 1.0, 0.4] },
    ];
    for features in kinds {
        let rows = Rows::of(&shape, &Shard::new(features, targets()).unwrap());
        let wanted = [0.0, 0.2, 1.0, 1.0, 0.4, 1.0];
        for (at, wanted) in wanted.into_iter().enumerate() {
            assert!((rows.value(at / 3, at % 3) - wanted).abs() < 1e-7);
        }
        let (values, width) = rows.with_targets();
        assert_eq!((values[2], values[5], width), (1.0, 2.0, 3));
    }
}

#[test]
fn rows_are_given_the_first_of_the_likeliest_components() {
    for (seed, family) in FAMILIES.into_iter().enumerate() {
        let case = Case::new(family, 4, 3, 300, seed as u64);
        let (mut scratch, mut labels) = (Scratch::default(), vec![9]);
        let found = classify(&case.shape, &case.params, &case.rows(), &mut scratch, &mut labels);
        assert_eq!(found, case.expect(Detail::Full, None, &mut scratch).log_likelihood);
        assert_eq!(labels.len(), 300);
        for (row, &label) in labels.iter().enumerate() {
            let one = Case {
                features: case.features[row * 3..][..3].to_vec(),
                targets: vec![case.targets[row]],
                params: case.params.clone(),
                ..case
            };
            let members = one.plain(None).members;
            assert!(members.iter().all(|other| *other <= members[label as usize]), "{family:?} {row}");
        }
    }
    let shape = Shape { family: FAMILIES[0], components: 3, columns: 1 };
    let rows = Rows::new(&shape, &[0.0, 5.0], &[]);
    let mut labels = Vec::new();
    let params = [9.0, 1.0, 1.0, 0.2, 0.4, 0.4];
    classify(&shape, &params, &rows, &mut Scratch::default(), &mut labels);
    assert_eq!(labels, [1, 1]);
}

#[test]
fn shapes_by_hand() {
    let shape = |family: Family| Shape { family, components: 3, columns: 4 };
    let lengths = FAMILIES.map(|family| (shape(family).len(), shape(family).free_parameters(), shape(family).width()));
    let wanted = [
        (15, 14, 4),
        (18, 17, 4),
        (27, 26, 4),
        (31, 24, 4),
        (63, 44, 4),
        (15, 14, 4),
        (18, 17, 5),
        (16, 15, 4),
        (19, 18, 5),
    ];
    assert_eq!(lengths, wanted);
    let tied = shape(Family::Gaussian(Covariance::Tied));
    assert_eq!((tied.centres(), tied.scatter(), tied.weights()), (0..12, 12..28, 28..31));
    assert_eq!(Statistics::packed_len(&tied, Detail::Full), 2 + 3 + 12 + 10);
}

#[test]
fn the_largest_eigenvalue_is_found_where_ones_belong_to_the_smallest() {
    // 3² + 3² along (1, −1) and ½² + ½² along (1, 1), over two rows.
    let shape =
        Shape { family: Family::Regression { intercept: false, noise: Noise::Unit }, components: 1, columns: 2 };
    let rows = Rows::new(&shape, &[3.0, -3.0, 0.5, 0.5], &[0.0, 0.0]);
    assert!((rows.largest_eigenvalue() - 9.0).abs() < 1e-14);
}
