//! EM from several starts.

use super::rows::Fault;
use super::starts::{Start, Starts, of_labels};
use super::{Covariance, Detail, Family, Rows, Scratch, Shape, Statistics, classify, expect, maximise};
use crate::error::{Error, Result};
use crate::rng::Key;
use serde::{Deserialize, Serialize};

/// How EM begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Begin {
    /// Hierarchical clustering under each of three scalings, and k-means `starts` times. Regressions: `starts` times at
    /// random with noise that is large at first and cools down.
    Auto,
    /// Hierarchical clustering of the rows (with their targets), under up to three scalings.
    Hierarchical,
    /// k-means of the rows (with their targets) from k-means++ seeds.
    KMeans,
    /// Rows as centres; for regressions components at random.
    Random,
}

/// How long and how often to try.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Fitting {
    /// How EM begins.
    pub begin: Begin,
    /// How many starts there are; the one with the best likelihood after a few steps goes on.
    pub starts: usize,
    /// Steps of EM at most.
    pub iterations: usize,
    /// Gain of the log likelihood in one step below which EM has come to rest, relative to the log likelihood plus one
    /// for each row.
    pub tolerance: f64,
}

impl Default for Fitting {
    fn default() -> Self {
        Self { begin: Begin::Auto, starts: 10, iterations: 500, tolerance: 1e-8 }
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The parameters.
    pub params: Vec<f64>,
    /// The log likelihood of all rows.
    pub log_likelihood: f64,
    /// Steps of EM from the best start.
    pub iterations: usize,
    /// Whether it came to rest.
    pub converged: bool,
    /// How many components have less than half a row.
    pub empty: usize,
}

/// EM from several starts, the best of which goes on until it comes to rest. Runs on the calling thread, but for k-means
/// of many rows.
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
    let mut climber = Climber::new(&contest, rows);
    let mut starts = Starts::new(&contest, rows, key);
    let coarse = fitting.tolerance.max(COARSE);
    let mut best: Option<Climbed> = None;
    for start in Start::all(shape, fitting) {
        let Some(params) = starts.begin(start, &mut climber.scratch) else { continue };
        let climbed = climber.climb(params, fitting.iterations.min(SHORT), coarse);
        if best.as_ref().is_none_or(|best| climbed.beats(best)) {
            best = Some(climbed);
        }
    }
    // Where rows coincide there may be no start but this.
    let mut best = best.unwrap_or_else(|| {
        let params = starts.random(0, &mut climber.scratch);
        climber.climb(params, 0, coarse)
    });
    if contest != *shape {
        let mut labels = Vec::new();
        classify(&contest, &best.params, rows, &mut climber.scratch, &mut labels);
        best.params = of_labels(shape, rows, &labels, &mut climber.scratch);
        best.iterations = 0;
    }
    let mut climber = Climber { shape, ..climber };
    let further = climber.climb(best.params, fitting.iterations - best.iterations, fitting.tolerance);
    Ok(Fitted {
        params: further.params,
        log_likelihood: further.log_likelihood,
        iterations: best.iterations + further.iterations,
        converged: further.converged,
        empty: climber.statistics.members.iter().filter(|&&members| members < 0.5).count(),
    })
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
    match rows.fault() {
        None => Ok(()),
        Some(Fault { row, column, value }) => {
            let place = column.map_or("target".to_owned(), |column| format!("column {}", column + 1));
            Err(Error::data(format!(
                "rows: row {}, {place}: got {value:?}, want a number of magnitude at most {:?}",
                row + 1,
                Fault::LARGEST
            ))
            .hint("rows and columns are counted from 1; drop the row or fill in the number"))
        }
    }
}

/// Where some steps of EM led.
struct Climbed {
    params: Vec<f64>,
    log_likelihood: f64,
    iterations: usize,
    converged: bool,
    /// Whether every component has rows enough for variances of its own; else the likelihood says nothing.
    sound: bool,
}

impl Climbed {
    fn beats(&self, other: &Self) -> bool {
        match (self.sound, other.sound) {
            (true, false) => true,
            (false, true) => false,
            _ => self.log_likelihood > other.log_likelihood,
        }
    }
}

struct Climber<'a> {
    shape: &'a Shape,
    rows: &'a Rows,
    scratch: Scratch,
    statistics: Statistics,
}

impl<'a> Climber<'a> {
    fn new(shape: &'a Shape, rows: &'a Rows) -> Self {
        Self { shape, rows, scratch: Scratch::default(), statistics: Statistics::default() }
    }

    fn climb(&mut self, mut params: Vec<f64>, iterations: usize, tolerance: f64) -> Climbed {
        let Self { shape, rows, scratch, statistics } = self;
        let (mut step, mut converged, mut before) = (0, false, f64::NEG_INFINITY);
        loop {
            expect(shape, &params, rows, Detail::Full, None, scratch, statistics);
            let found = statistics.log_likelihood;
            converged |= (found - before).abs() <= tolerance * (found.abs() + statistics.rows);
            if converged || step == iterations {
                break;
            }
            before = found;
            maximise(shape, statistics, &mut params);
            step += 1;
        }
        let needed = match shape.family {
            Family::Gaussian(Covariance::Spherical | Covariance::Diagonal) => LEAST_OWN,
            _ => 0.0,
        };
        Climbed {
            params,
            log_likelihood: statistics.log_likelihood,
            iterations: step,
            converged,
            sound: statistics.members.iter().all(|&members| members >= needed),
        }
    }
}
