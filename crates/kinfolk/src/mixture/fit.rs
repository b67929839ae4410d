//! EM from several starts.

use super::{Detail, Rows, Scratch, Shape, Statistics, expect, maximise, starts};
use crate::error::{Error, Result};
use crate::rng::Key;
use serde::{Deserialize, Serialize};

/// How EM begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Begin {
    /// The hierarchical start and those by k-means.
    Auto,
    /// Hierarchical clustering of the rows.
    Hierarchical,
    /// k-means from k-means++ seeds.
    KMeans,
    /// Rows as centres, or components at random.
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
    /// Gain of the log likelihood in one step, relative to itself and for each row, below which EM has converged.
    pub tolerance: f64,
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
    /// How many components have nearly no row.
    pub empty: usize,
}

/// EM from several starts, the best of which goes on until it comes to rest.
pub fn fit(shape: &Shape, rows: &Rows, fitting: &Fitting, key: &Key) -> Result<Fitted> {
    check(shape, rows)?;
    let mut scratch = Scratch::default();
    let mut statistics = Statistics::default();
    let mut best: Option<(f64, Vec<f64>)> = None;
    for start in 0..fitting.starts.max(1) {
        let mut random = key.clone().word("start").number(start as u64).rng();
        let mut params = starts::random(shape, rows, &mut scratch, &mut random);
        for _ in 0..20 {
            expect(shape, &params, rows, Detail::Full, None, &mut scratch, &mut statistics);
            maximise(shape, &statistics, &mut params);
        }
        if best.as_ref().is_none_or(|(likelihood, _)| statistics.log_likelihood > *likelihood) {
            best = Some((statistics.log_likelihood, params));
        }
    }
    let (_, mut params) = best.expect("at least one start");
    let (mut iterations, mut converged, mut last) = (0, false, f64::NEG_INFINITY);
    while iterations < fitting.iterations && !converged {
        expect(shape, &params, rows, Detail::Full, None, &mut scratch, &mut statistics);
        let gain = statistics.log_likelihood - last;
        converged = gain.abs() <= fitting.tolerance * (statistics.log_likelihood.abs() + statistics.rows);
        last = statistics.log_likelihood;
        maximise(shape, &statistics, &mut params);
        iterations += 1;
    }
    let empty = statistics.members.iter().filter(|&&members| members < 0.5).count();
    Ok(Fitted { params, log_likelihood: last, iterations, converged, empty })
}

fn check(shape: &Shape, rows: &Rows) -> Result<()> {
    if shape.components == 0 || shape.columns == 0 {
        return Err(Error::settings("components: got none, want at least one, and rows with at least one column"));
    }
    if rows.len() < shape.components {
        return Err(Error::data(format!(
            "rows: got {}, want at least {}, one a component",
            rows.len(),
            shape.components
        )));
    }
    Ok(())
}
