//! EM from several starts.

use super::starts::{Start, Starts, of_labels};
use super::{Covariance, Detail, Family, Rows, Scratch, Shape, Statistics, classify, expect, maximise};
use crate::error::{Error, Result};
use crate::rng::Key;
use serde::{Deserialize, Serialize};

/// How EM begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Begin {
    /// Hierarchical clustering under each of three scalings, and k-means `starts` times. Regressions: `starts` times at
    /// random with annealed noise.
    Auto,
    /// Hierarchical clustering of the rows (with their targets), under up to three scalings.
    Hierarchical,
    /// k-means of the rows (with their targets) from k-means++ seeds.
    KMeans,
    /// Rows as centres; for regressions components at random.
    Random,
}

/// Settings of [`fit()`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Fitting {
    /// How EM begins.
    pub begin: Begin,
    /// Number of starts; EM goes on from the one with the best likelihood after a few steps.
    pub starts: usize,
    /// Upper bound on the steps of EM.
    pub iterations: usize,
    /// Gain of the log likelihood in a step, relative to it plus one per row, below which EM has converged.
    pub tolerance: f64,
}

impl Default for Fitting {
    fn default() -> Self {
        Self { begin: Begin::Auto, starts: 10, iterations: 500, tolerance: 1e-8 }
    }
}

/// What EM found.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The parameters.
    pub params: Vec<f64>,
    /// The log likelihood of all rows.
    pub log_likelihood: f64,
    /// Steps of EM from the best start.
    pub iterations: usize,
    /// Whether it converged.
    pub converged: bool,
    /// Whether every component has rows enough for variances of its own; else the likelihood says nothing.
    is_sound: bool,
}

impl Fitted {
    fn beats(&self, other: &Self) -> bool {
        (self.is_sound, self.log_likelihood) > (other.is_sound, other.log_likelihood)
    }
}

/// EM from several starts, continued from the best of them until it converges. Runs on the calling thread, except for
/// k-means of many rows.
///
/// ```
/// use kinfolk::mixture::{Covariance, Family, Fitting, Rows, Shape, fit};
/// use kinfolk::rng::Key;
/// let shape = Shape { family: Family::Gaussian(Covariance::Tied), components: 2, columns: 1 };
/// let rows = Rows::new(&shape, &[0.0, 1.0, 2.0, 100.0, 101.0, 102.0], &[]);
/// let fitted = fit(&shape, &rows, &Fitting::default(), &Key::new(0))?;
/// let mut centres = fitted.params[shape.centres()].to_vec();
/// centres.sort_by(f64::total_cmp);
/// assert!((centres[0] - 1.0).abs() < 1e-6 && (centres[1] - 101.0).abs() < 1e-6);
/// # Ok::<(), kinfolk::Error>(())
/// ```
pub fn fit(shape: &Shape, rows: &Rows, fitting: &Fitting, key: &Key) -> Result<Fitted> {
    check(shape, rows)?;
    let contest = contest(shape);
    let mut em = Em::new(&contest, rows);
    let mut starts = Starts::new(&contest, rows, key);
    let coarse = fitting.tolerance.max(COARSE);
    let mut best: Option<Fitted> = None;
    for start in Start::all(shape, fitting) {
        let Some(params) = starts.begin(start, &mut em.scratch) else { continue };
        let fitted = em.run(params, fitting.iterations.min(SHORT), coarse);
        if best.as_ref().is_none_or(|best| fitted.beats(best)) {
            best = Some(fitted);
        }
    }
    // Where rows coincide there may be no start but this.
    let mut best = best.unwrap_or_else(|| {
        let params = starts.random(0, &mut em.scratch);
        em.run(params, 0, coarse)
    });
    if contest != *shape {
        let mut labels = Vec::new();
        classify(&contest, &best.params, rows, &mut em.scratch, &mut labels);
        best.params = of_labels(shape, rows, &labels, &mut em.scratch);
        best.iterations = 0;
    }
    let fitted = Em { shape, ..em }.run(best.params, fitting.iterations - best.iterations, fitting.tolerance);
    Ok(Fitted { iterations: best.iterations + fitted.iterations, ..fitted })
}

/// The shape in which starts are compared. With a covariance for every component the likelihood is best where one of
/// them lies flat on few rows, so the best of the starts is found with one for all of them.
fn contest(shape: &Shape) -> Shape {
    match shape.family {
        Family::Gaussian(Covariance::Full) => Shape { family: Family::Gaussian(Covariance::Tied), ..*shape },
        _ => *shape,
    }
}

/// Steps from every start before the best one is chosen, and the gain below which they end earlier.
const SHORT: usize = 30;
const COARSE: f64 = 1e-5;

/// Rows that components with variances of their own need: around a single one they shrink without bound.
const LEAST_OWN: f64 = 2.0;

fn check(shape: &Shape, rows: &Rows) -> Result<()> {
    let (found, wanted) = (rows.len(), shape.components);
    if wanted == 0 || shape.columns == 0 {
        return Err(Error::settings(format!(
            "components: got {wanted} for rows with {} columns, want at least 1 of both",
            shape.columns
        )));
    }
    if found < wanted {
        return Err(Error::data(format!("rows: got {found}, want at least {wanted}, as many as components"))
            .hint("ask for fewer components, or leave out clients with so few rows"));
    }
    rows.fault().map_or(Ok(()), |fault| Err(fault.error()))
}

/// EM with its working memory.
struct Em<'a> {
    shape: &'a Shape,
    rows: &'a Rows,
    scratch: Scratch,
    statistics: Statistics,
}

impl<'a> Em<'a> {
    fn new(shape: &'a Shape, rows: &'a Rows) -> Self {
        Self { shape, rows, scratch: Scratch::default(), statistics: Statistics::default() }
    }

    fn run(&mut self, mut params: Vec<f64>, iterations: usize, tolerance: f64) -> Fitted {
        let Self { shape, rows, scratch, statistics } = self;
        let (mut step, mut before) = (0, f64::NEG_INFINITY);
        let converged = loop {
            expect(shape, &params, rows, Detail::Full, None, scratch, statistics);
            let found = statistics.log_likelihood;
            let converged = (found - before).abs() <= tolerance * (found.abs() + statistics.rows);
            if converged || step == iterations {
                break converged;
            }
            before = found;
            maximise(shape, statistics, &mut params);
            step += 1;
        };
        let needed = match shape.family {
            Family::Gaussian(Covariance::Spherical | Covariance::Diagonal) => LEAST_OWN,
            _ => 0.0,
        };
        Fitted {
            params,
            log_likelihood: statistics.log_likelihood,
            iterations: step,
            converged,
            is_sound: statistics.members.iter().all(|&members| members >= needed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Noise;
    use super::*;
    use crate::num::{distance, dot};
    use rand::RngExt;
    use rand_distr::StandardNormal;

    const COVARIANCES: [Covariance; 5] =
        [Covariance::Identity, Covariance::Spherical, Covariance::Diagonal, Covariance::Tied, Covariance::Full];
    const BEGINS: [Begin; 4] = [Begin::Auto, Begin::Hierarchical, Begin::KMeans, Begin::Random];

    fn gaussian(covariance: Covariance, components: usize, columns: usize) -> Shape {
        Shape { family: Family::Gaussian(covariance), components, columns }
    }

    fn regression(intercept: bool, noise: Noise, components: usize, columns: usize) -> Shape {
        Shape { family: Family::Regression { intercept, noise }, components, columns }
    }

    fn run(shape: &Shape, features: &[f64], targets: &[f64]) -> Result<Fitted> {
        fit(shape, &Rows::new(shape, features, targets), &Fitting::default(), &Key::new(0))
    }

    /// Rows around 0, 10 and (0, 10), with twice the deviation in the last column.
    fn planted(count: usize, seed: u64) -> Vec<f64> {
        let mut random = Key::new(seed).rng();
        let centres = [[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]];
        let mut row = |number: usize| {
            let noise: [f64; 2] = std::array::from_fn(|_| random.sample(StandardNormal));
            [centres[number % 3][0] + noise[0], centres[number % 3][1] + 2.0 * noise[1]]
        };
        (0..count).flat_map(&mut row).collect()
    }

    /// The distance of the farthest wanted centre from the nearest one found.
    fn worst(found: &[f64], wanted: &[f64], width: usize) -> f64 {
        let nearest = |wanted: &[f64]| {
            found.chunks_exact(width).map(|found| distance(found, wanted)).fold(f64::INFINITY, f64::min)
        };
        wanted.chunks_exact(width).map(nearest).fold(0.0, f64::max)
    }

    #[test]
    fn planted_gaussians_are_found() {
        let features = planted(300, 1);
        for covariance in COVARIANCES {
            for begin in BEGINS {
                let shape = gaussian(covariance, 3, 2);
                let rows = Rows::new(&shape, &features, &[]);
                let fitting = Fitting { begin, starts: 20, ..Fitting::default() };
                let found = fit(&shape, &rows, &fitting, &Key::new(2)).unwrap();
                let what = format!("{covariance:?} {begin:?} {found:?}");
                let centres = &found.params[shape.centres()];
                assert!(worst(centres, &[0.0, 0.0, 10.0, 0.0, 0.0, 10.0], 2) < 0.7, "{what}");
                assert!(found.params[shape.weights()].iter().all(|weight| (weight - 1.0 / 3.0).abs() < 0.02), "{what}");
                assert!(found.converged, "{what}");
                let scatter = &found.params[shape.scatter()];
                let variances: &[f64] = match covariance {
                    Covariance::Identity => &[],
                    Covariance::Spherical => &[2.5],
                    Covariance::Diagonal => &[1.0, 4.0],
                    Covariance::Tied | Covariance::Full => &[1.0, 0.0, 0.0, 4.0],
                };
                let pairs = scatter.iter().zip(variances.iter().cycle());
                pairs.for_each(|(found, wanted)| assert!((found - wanted).abs() < 1.6, "{what}"));
            }
        }
    }

    #[test]
    fn many_rows_begin_from_some_of_them() {
        let shape = gaussian(Covariance::Tied, 3, 2);
        let rows = Rows::new(&shape, &planted(2500, 3), &[]);
        let fitting = Fitting { begin: Begin::Hierarchical, starts: 1, ..Fitting::default() };
        let found = fit(&shape, &rows, &fitting, &Key::new(0)).unwrap();
        assert!(worst(&found.params[shape.centres()], &[0.0, 0.0, 10.0, 0.0, 0.0, 10.0], 2) < 0.2, "{found:?}");
    }

    #[test]
    fn planted_regressions_are_found() {
        let mut random = Key::new(4).rng();
        let lines = [4.0, 0.0, 1.0, -4.0, 2.0, -1.0, 0.0, -5.0, 0.0];
        let (mut features, mut targets) = (Vec::new(), Vec::new());
        for row in 0..300 {
            let x: [f64; 2] = std::array::from_fn(|_| random.sample(StandardNormal));
            let line = &lines[row % 3 * 3..][..3];
            features.extend(x);
            targets.push(dot(&x, &line[..2]) + line[2] + 0.5 * random.sample::<f64, _>(StandardNormal));
        }
        for noise in [Noise::Unit, Noise::Common] {
            let shape = regression(true, noise, 3, 2);
            let found = run(&shape, &features, &targets).unwrap();
            assert!(worst(&found.params[shape.centres()], &lines, 3) < 0.4, "{noise:?} {found:?}");
            assert!(found.converged, "{found:?}");
            let variance = found.params[shape.scatter()].first();
            assert!(variance.is_none_or(|variance| (variance - 0.25).abs() < 0.06), "{found:?}");
        }
        // Clusters of rows and targets tell less, but are a start.
        for begin in [Begin::Hierarchical, Begin::KMeans, Begin::Random] {
            let shape = regression(true, Noise::Common, 3, 2);
            let rows = Rows::new(&shape, &features, &targets);
            let found = fit(&shape, &rows, &Fitting { begin, ..Fitting::default() }, &Key::new(0)).unwrap();
            assert!(found.log_likelihood.is_finite() && found.converged, "{begin:?} {found:?}");
        }
    }

    #[test]
    fn the_log_likelihood_belongs_to_the_parameters() {
        let features = planted(120, 5);
        for (covariance, iterations) in COVARIANCES.into_iter().flat_map(|one| [(one, 0), (one, 2), (one, 500)]) {
            let shape = gaussian(covariance, 4, 2);
            let rows = Rows::new(&shape, &features, &[]);
            let fitting = Fitting { iterations, ..Fitting::default() };
            let found = fit(&shape, &rows, &fitting, &Key::new(0)).unwrap();
            let wanted = classify(&shape, &found.params, &rows, &mut Scratch::default(), &mut Vec::new());
            assert_eq!(found.log_likelihood, wanted);
            assert!(found.iterations <= iterations);
        }
    }

    #[test]
    fn more_starts_are_not_worse_and_repetition_changes_nothing() {
        let shape = gaussian(Covariance::Tied, 8, 2);
        let rows = Rows::new(&shape, &planted(90, 6), &[]);
        let with = |starts: usize| {
            let fitting = Fitting { begin: Begin::Random, starts, iterations: 30, tolerance: 1e-5 };
            fit(&shape, &rows, &fitting, &Key::new(7)).unwrap()
        };
        assert_eq!(with(5), with(5));
        assert!(with(5).log_likelihood >= with(1).log_likelihood);
        assert!(with(40).log_likelihood >= with(5).log_likelihood);
    }

    #[test]
    fn where_the_data_lies_does_not_matter() {
        let near = planted(200, 8);
        let far: Vec<f64> = near.iter().map(|value| value + 1e6).collect();
        for covariance in COVARIANCES {
            let shape = gaussian(covariance, 3, 2);
            let (here, there) = (run(&shape, &near, &[]).unwrap(), run(&shape, &far, &[]).unwrap());
            let centres = there.params[shape.centres()].iter().map(|value| value - 1e6);
            let moved: Vec<f64> = centres.chain(there.params[shape.centres().end..].iter().copied()).collect();
            assert!(distance(&moved, &here.params) < 1e-6, "{covariance:?} {here:?} {there:?}");
            assert!((here.log_likelihood - there.log_likelihood).abs() < 1e-4, "{covariance:?}");
        }
    }

    #[test]
    fn odd_rows_are_no_trouble() {
        let constant: Vec<f64> = planted(60, 9).chunks(2).flat_map(|row| [row[0], 1e6 + 0.1, row[1]]).collect();
        let doubled: Vec<f64> = planted(60, 9).chunks(2).flat_map(|row| [row[0], row[0], -row[0]]).collect();
        let scales: Vec<f64> =
            planted(60, 9).chunks(2).flat_map(|row| [1e-9 * row[0], 1e9 * row[1], 1e6 + row[0]]).collect();
        let apart: Vec<f64> = (0..60).flat_map(|row| [1e9 * f64::from(row % 2), f64::from(row % 7), 0.0]).collect();
        let cases = [
            ("a constant column", constant),
            ("columns that repeat each other", doubled),
            ("far-away scales", scales),
            ("groups far apart", apart),
            ("rows that coincide", [1.0, 2.0, 3.0].repeat(20)),
            ("two distinct rows", [0.1, 0.2, 0.3, 5.0, 5.0, 5.0].repeat(10)),
            ("as many rows as components", vec![1.0, 0.0, 2.0, 4.0, 1.0, 7.0, 9.0, 9.0, 1.0, 0.0, 5.0, 5.0]),
        ];
        for (what, features) in &cases {
            let targets: Vec<f64> = features.iter().step_by(3).map(|value| value - 1.0).collect();
            for begin in BEGINS {
                let gaussians = COVARIANCES.map(|covariance| gaussian(covariance, 4, 3));
                let noises = [Noise::Unit, Noise::Common].map(|noise| regression(true, noise, 4, 3));
                let one = gaussian(Covariance::Full, 1, 3);
                for shape in gaussians.into_iter().chain(noises).chain([one]) {
                    let rows = Rows::new(&shape, features, &targets);
                    let fitting = Fitting { begin, starts: 3, ..Fitting::default() };
                    let found = fit(&shape, &rows, &fitting, &Key::new(0)).unwrap();
                    let finite = found.params.iter().all(|value| value.is_finite());
                    assert!(finite && found.log_likelihood.is_finite(), "{what} {begin:?} {shape:?} {found:?}");
                    let weights: f64 = found.params[shape.weights()].iter().sum();
                    assert!((weights - 1.0).abs() < 1e-12, "{what} {begin:?} {shape:?} {found:?}");
                }
            }
        }
    }

    #[test]
    fn likelihoods_of_components_on_single_rows_do_not_count() {
        // Of the second column a component of one row knows no variance.
        let shape = gaussian(Covariance::Diagonal, 2, 2);
        let features = planted(30, 10);
        let rows = Rows::new(&shape, &features, &[]);
        let mut em = Em::new(&shape, &rows);
        let mut from = |labels: &[u32]| {
            let params = of_labels(&shape, &rows, labels, &mut Scratch::default());
            em.run(params, 20, 1e-6)
        };
        let lone: Vec<u32> = (0..30).map(|row| u32::from(row == 4)).collect();
        let halves: Vec<u32> = (0..30).map(|row| u32::from(row % 3 == 0)).collect();
        let (lone, halves) = (from(&lone), from(&halves));
        assert!(!lone.is_sound && halves.is_sound && halves.beats(&lone) && !lone.beats(&halves));
        assert!(!halves.beats(&halves));
    }

    #[test]
    fn faults_are_named() {
        let shape = gaussian(Covariance::Tied, 3, 2);
        let message = |features: &[f64]| run(&shape, features, &[]).unwrap_err().to_string();
        assert!(message(&[1.0; 4]).starts_with("rows: got 2, want at least 3, as many as components\n  hint: "));
        assert!(message(&[]).starts_with("rows: got 0, want"));
        let (nan, infinite, large) = (f64::NAN, f64::INFINITY, 1e200);
        assert!(
            message(&[0.0, 0.0, 1.0, nan, 2.0, 2.0]).starts_with("rows: row 2, column 2: got NaN, want a number of")
        );
        assert!(message(&[0.0, 0.0, 1.0, 1.0, infinite, 2.0]).starts_with("rows: row 3, column 1: got inf"));
        assert!(message(&[large, 0.0, 1.0, 1.0, 2.0, 2.0]).starts_with("rows: row 1, column 1: got 1e200"));
        let shape = regression(false, Noise::Unit, 2, 1);
        let message = |targets: &[f64]| run(&shape, &[1.0, 2.0, 3.0], targets).unwrap_err().to_string();
        assert!(message(&[1.0, nan, 2.0]).starts_with("rows: row 2, target: got NaN"));
        assert!(message(&[1.0, 2.0]).starts_with("rows: row 3, target: got NaN"));
        let none = Shape { components: 0, ..shape };
        assert!(run(&none, &[1.0], &[1.0]).unwrap_err().to_string().starts_with("components: got 0"));
    }
}
