//! Steps 4 and 5: the four models that may serve a client, compared by cross-validation inside the training rows.
//!
//! Everybody is served by a stack of the four with common weights, unless cross-validation says of a client that one of them alone
//! serves it better.

use super::classes::StackLosses;
use super::evidence::{Panel, Working};
use super::mixed::{self, Covariance, Integrated};
use super::mixture;
use super::population::Population;
use crate::error::Result;
use crate::num::tails::normal_tail;
use crate::num::triangular::{factorise, solve};
use crate::num::{add_scaled, dot};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Strengths of the ridge of clients' own models that are tried, in rows.
const STRENGTHS: [f64; 8] = [1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0, 10000.0];
/// Rows below which a client is served like everybody.
const LEAST_ROWS: f64 = 30.0;
/// Probability of a gain above which a client is served otherwise than everybody.
const SURE: f64 = 0.95;
/// Rows' worth of trust in the pooled variance over folds, beside each client's own.
const POOLED_FREEDOM: f64 = 4.0;

/// Rows' worth of trust in everybody's columns, beside a client's own.
const TYPICAL_ROWS: f64 = 10.0;

/// A model that may serve a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// One model for everybody.
    Global,
    /// Its family's.
    Family,
    /// Its own, leaning on the family.
    Personal,
    /// Its own alone.
    Alone,
}

impl Rung {
    /// All, from the most common to the most own.
    pub const ALL: [Self; 4] = [Self::Global, Self::Family, Self::Personal, Self::Alone];
}

/// An expected gain in mean squared error, and its standard error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The gain; negative where it is a loss.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
}

impl Gain {
    /// The probability that it is one.
    pub fn probability(&self) -> f64 {
        match self.error > 0.0 {
            true => normal_tail(-self.mean / self.error),
            false if self.mean == 0.0 => 0.5,
            false => f64::from(u8::from(self.mean > 0.0)),
        }
    }

    /// Of a gain by joining, whether it is sure.
    pub fn verdict(&self) -> Joining {
        match self.probability() {
            p if p >= SURE => Joining::Helps,
            p if p <= 1.0 - SURE => Joining::Hurts,
            _ => Joining::Neutral,
        }
    }
}

/// How a population is fitted to a part of the rows.
#[derive(Clone, Copy)]
pub(crate) struct Recipe<'a> {
    pub covariance: Covariance,
    /// Parameters of an earlier fit, to begin with.
    pub start: Option<&'a [f64]>,
    /// More than one family: the centres to begin with, and known families of clients.
    pub families: Option<&'a Population>,
    pub known: Option<&'a [usize]>,
    /// Where clients' likelihoods are expanded each at a model of its own: the same, expanded at one model for everybody.
    pub common: Option<&'a Working>,
}

/// A population fitted to what is learned from when a fold is predicted, and that panel without what common columns explain.
pub(crate) fn fit(
    working: &Working,
    test: Option<usize>,
    recipe: Recipe,
) -> Result<(Population, Panel, Panel, Vec<f64>)> {
    let panel = working.panel(test);
    let mixed = mixed::fit(&panel, recipe.covariance, working.basis.intercepts(), recipe.start)?;
    let left = working.without_common(test, &panel, &mixed.centre);
    let one = Population::one(&mixed);
    match recipe.families {
        None => Ok((one, panel, left, mixed.parameters)),
        Some(families) => {
            let (population, left) = mixture::refine(working, test, &panel, &one, families, recipe)?;
            Ok((population, panel, left, mixed.parameters))
        }
    }
}

/// The model for everybody: least squares, with the penalties of the population.
pub(crate) fn global(panel: &Panel, population: &Population) -> Vec<f64> {
    let p = panel.columns;
    let mut curvature = panel.curvature.clone();
    for (j, group) in panel.curves.iter().enumerate() {
        if let Some(group) = group {
            curvature[j * (p + 1)] += population.bends[*group].powi(2).max(1e-12).recip();
        }
    }
    let mut factor = Vec::new();
    factorise(&curvature, p, &mut factor);
    let mut solution = panel.total_moment();
    solve(&factor, p, &mut solution);
    solution
}

/// How clients' own models are made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AloneModels {
    /// The strength of their ridge, in rows.
    pub strength: f64,
    /// Rows from which on a client that comes later has one: as many as cross-validation has seen to be enough.
    pub least_rows: f64,
}

impl AloneModels {
    pub(super) fn new(strength: f64, panel: &Panel) -> Self {
        Self { strength, least_rows: panel.rows.iter().copied().fold(LEAST_ROWS, f64::min) }
    }
}

/// Finds clients' own models.
#[derive(Default)]
pub(super) struct Alone {
    curvature: Vec<f64>,
    factor: Vec<f64>,
    solution: Vec<f64>,
}

impl Alone {
    /// Ridge in the random columns, intercepts free. `None` where the client has no rows.
    pub(super) fn model(&mut self, panel: &Panel, client: usize, intercepts: usize, strength: f64) -> Option<&[f64]> {
        let q = panel.random;
        if panel.rows[client] == 0.0 {
            return None;
        }
        let Self { curvature, factor, solution } = self;
        curvature.clear();
        let width = panel.support(client).len().max(1);
        panel.slab(client).chunks_exact(width).for_each(|row| curvature.extend_from_slice(&row[..q]));
        (intercepts..q).for_each(|j| curvature[j * (q + 1)] += strength);
        factorise(curvature, q, factor);
        solution.clear();
        solution.extend_from_slice(&panel.moment(client)[..q]);
        solve(factor, q, solution);
        solution.resize(panel.columns, 0.0);
        Some(solution)
    }
}

/// The four models of all clients, from one part of the rows.
pub(crate) struct Models {
    columns: usize,
    /// By client and rung.
    values: Vec<f64>,
}

impl Models {
    /// A client's four models with these weights.
    fn stacked(&self, client: usize, stack: [f64; 4]) -> Vec<f64> {
        let mut stacked = vec![0.0; self.columns];
        Rung::ALL.iter().zip(stack).for_each(|(rung, weight)| add_scaled(&mut stacked, weight, self.of(client, *rung)));
        stacked
    }

    pub(crate) fn of(&self, client: usize, rung: Rung) -> &[f64] {
        let at = client * Rung::ALL.len() + rung as usize;
        &self.values[at * self.columns..(at + 1) * self.columns]
    }

    /// From what is learned from when a fold is predicted.
    pub(crate) fn new(
        working: &Working,
        test: Option<usize>,
        (population, panel, left): (&Population, &Panel, &Panel),
        strength: f64,
        recipe: Recipe,
    ) -> Self {
        let everybody = match recipe.common {
            None => global(panel, population),
            Some(common) => global(&common.panel(test), population),
        };
        let intercepts = working.basis.intercepts();
        let client = |(integrated, alone): &mut (Integrated, Alone), client: usize| {
            let known = recipe.known.map(|known| known[client]);
            let posterior = population.posterior(left, client, known, integrated);
            let own = alone.model(panel, client, intercepts, strength).unwrap_or(&everybody);
            [&everybody, &posterior.centre[..], &posterior.mean, own].concat()
        };
        let parts = || (Integrated::new(left.random), Alone::default());
        let values = (0..panel.clients()).into_par_iter().map_init(parts, client).collect::<Vec<_>>().concat();
        Self { columns: panel.columns, values }
    }
}

/// A cross-validation of the four models.
pub(crate) struct Trials {
    pub strength: f64,
    /// The folds that were predicted, and the models they were predicted with.
    pub folds: Vec<(usize, Models)>,
}

impl Trials {
    pub(crate) fn new(working: &Working, recipe: Recipe) -> Self {
        let intercepts = working.basis.intercepts();
        // A fold is left out where the others have too few rows.
        let fits: Vec<_> =
            working.tests().filter_map(|test| Some((test, fit(working, Some(test), recipe).ok()?))).collect();
        // One strength of ridge for everybody: the best averaged over clients.
        let cost = |strength: f64| {
            let of = |alone: &mut Alone, client: usize| {
                let (mut sum, mut rows) = (0.0, 0.0);
                for (test, (_, panel, ..)) in &fits {
                    let fold = working.fold(client, *test);
                    if let Some(model) = alone.model(panel, client, intercepts, strength) {
                        sum += fold.error(model);
                        rows += fold.rows;
                    }
                }
                if rows > 0.0 { sum / rows } else { 0.0 }
            };
            (0..working.clients).into_par_iter().map_init(Alone::default, of).collect::<Vec<f64>>().iter().sum::<f64>()
        };
        let strength = match working.basis.random > intercepts {
            true => {
                let costs = STRENGTHS.map(cost);
                STRENGTHS[(0..STRENGTHS.len()).fold(0, |best, at| if costs[at] < costs[best] { at } else { best })]
            }
            // Intercepts are free.
            false => STRENGTHS[0],
        };
        let models = |(test, (population, panel, left, _)): (usize, (Population, Panel, Panel, Vec<f64>))| {
            (test, Models::new(working, Some(test), (&population, &panel, &left), strength, recipe))
        };
        Self { strength, folds: fits.into_iter().map(models).collect() }
    }

    /// A client's sums of squared errors in the folds with rows that were predicted, with one of the models: the fold, the sum and the rows,
    /// by the fold's weight.
    pub(crate) fn cells(&self, working: &Working, client: usize, rung: Rung) -> Vec<(usize, f64, f64)> {
        let cell = |(test, models): &(usize, Models)| {
            let (fold, weight) = (working.fold(client, *test), working.weight(*test));
            (*test, weight * fold.error(models.of(client, rung)), weight * fold.rows)
        };
        self.folds.iter().map(cell).filter(|(.., rows)| *rows > 0.0).collect()
    }

    /// Every client's losses in the folds with rows, with this stack.
    pub(crate) fn losses(&self, working: &Working, stack: [f64; 4]) -> Vec<Vec<FoldLosses>> {
        let client = |client: usize| {
            let fold = |(test, models): &(usize, Models)| {
                let fold = working.fold(client, *test);
                FoldLosses {
                    rows: fold.rows,
                    stack: fold.error(&models.stacked(client, stack)),
                    rungs: Rung::ALL.map(|rung| fold.error(models.of(client, rung))),
                }
            };
            self.folds.iter().map(fold).filter(|fold| fold.rows > 0.0).collect()
        };
        (0..working.clients).into_par_iter().map(client).collect()
    }

    /// The non-negative weights with sum 1 by which the four models together have the smallest error averaged over clients.
    /// Without any fold, the personal model.
    pub(crate) fn stack(&self, working: &Working) -> [f64; 4] {
        if self.folds.is_empty() {
            return Rung::ALL.map(|rung| f64::from(u8::from(rung == Rung::Personal)));
        }
        let client = |client: usize| {
            let (mut cross, mut moment, mut rows) = ([0.0; 16], [0.0; 4], 0.0);
            for (test, models) in &self.folds {
                let fold = working.fold(client, *test);
                if fold.rows == 0.0 {
                    continue;
                }
                let weight = working.weight(*test);
                rows += weight * fold.rows;
                for (i, &one) in Rung::ALL.iter().enumerate() {
                    moment[i] += weight * fold.moment(models.of(client, one));
                    for (j, &other) in Rung::ALL.iter().enumerate().skip(i) {
                        let value = weight * fold.bilinear(models.of(client, one), models.of(client, other));
                        cross[i * 4 + j] += value;
                        cross[j * 4 + i] += if i == j { 0.0 } else { value };
                    }
                }
            }
            let share = if rows > 0.0 { 1.0 / rows } else { 0.0 };
            (cross.map(|value| value * share), moment.map(|value| value * share))
        };
        let (mut cross, mut moment) = ([0.0; 16], [0.0; 4]);
        for (one, two) in (0..working.clients).into_par_iter().map(client).collect::<Vec<_>>() {
            add_scaled(&mut cross, 1.0, &one);
            add_scaled(&mut moment, 1.0, &two);
        }
        simplex(&cross, &moment)
    }
}

/// The point of the simplex where `½xᵀAx − bᵀx` is smallest, by trying all its faces. Of equal ones the face with fewer corners is taken.
fn simplex(a: &[f64; 16], b: &[f64; 4]) -> [f64; 4] {
    let mut best = ([0.0; 4], f64::INFINITY);
    let mut faces: Vec<u32> = (1..16).collect();
    faces.sort_by_key(|face| face.count_ones());
    for face in faces {
        let members: Vec<usize> = (0..4).filter(|i| face >> i & 1 == 1).collect();
        let (first, rest) = (members[0], &members[1..]);
        // x = e_first + Σ t_i (e_i − e_first).
        let size = rest.len();
        let mut curvature = vec![0.0; size * size];
        let mut moment = vec![0.0; size];
        for (s, &i) in rest.iter().enumerate() {
            moment[s] = b[i] - b[first] - a[i * 4 + first] + a[first * 5];
            for (t, &j) in rest.iter().enumerate() {
                curvature[s * size + t] = a[i * 4 + j] - a[i * 4 + first] - a[first * 4 + j] + a[first * 5];
            }
        }
        // Models that hardly differ are not told apart by large weights of opposite sign.
        (0..size).for_each(|s| curvature[s * (size + 1)] *= 1.0 + 1e-9);
        let mut factor = Vec::new();
        factorise(&curvature, size, &mut factor);
        solve(&factor, size, &mut moment);
        let mut point = [0.0; 4];
        rest.iter().zip(&moment).for_each(|(&i, &value)| point[i] = value);
        point[first] = 1.0 - moment.iter().sum::<f64>();
        if point.iter().any(|value| !(0.0..=1.0).contains(value)) {
            continue;
        }
        let bent: f64 = (0..4).map(|i| point[i] * dot(&a[i * 4..i * 4 + 4], &point)).sum();
        let value = 0.5 * bent - dot(b, &point);
        if value < best.1 - 1e-12 * best.1.abs().min(f64::MAX) || best.1 == f64::INFINITY {
            best = (point, value);
        }
    }
    best.0
}

/// The mean loss over clients of a stack with these weights, and the weights at which the second-order expansion of that is smallest.
/// Folds count with these weights.
pub(crate) fn best_stack(stack: [f64; 4], losses: &[Vec<StackLosses>], weights: &[f64]) -> (f64, [f64; 4]) {
    let (mut total, mut curvature, mut moment, mut clients) = (0.0, [0.0; 16], [0.0; 4], 0.0);
    for folds in losses {
        let rows: f64 = folds.iter().zip(weights).map(|(fold, weight)| weight * fold.losses.rows).sum();
        if rows <= 0.0 {
            continue;
        }
        clients += 1.0;
        for (fold, weight) in folds.iter().zip(weights) {
            total += weight / rows * fold.losses.stack;
            add_scaled(&mut curvature, weight / rows, &fold.curvature);
            add_scaled(&mut moment, -weight / rows, &fold.gradient);
        }
    }
    for (value, row) in moment.iter_mut().zip(curvature.chunks_exact(4)) {
        *value += dot(row, &stack);
    }
    (total / f64::max(clients, 1.0), simplex(&curvature, &moment))
}

/// What serves a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// One of the four models, where it serves this client better than the stack that serves everybody.
    pub own_choice: Option<Rung>,
    /// The best of the four models that is not what serves it.
    pub runner_up: Rung,
    /// The gain over the runner-up.
    pub gain: Gain,
    /// The gain over its own model alone: whether joining is worth it.
    pub joining: Gain,
    /// Cross-validated mean squared errors of the four models, from global to alone; absent without rows to predict.
    pub errors: Option<[f64; 4]>,
    /// The cross-validated mean squared error of what serves it.
    pub error: Option<f64>,
}

impl Service {
    /// With gains and losses in other units.
    pub(crate) fn in_units(&self, unit: f64) -> Self {
        let gain = |gain: Gain| Gain { mean: unit * gain.mean, error: unit * gain.error };
        Self {
            gain: gain(self.gain),
            joining: gain(self.joining),
            errors: self.errors.map(|errors| errors.map(|error| unit * error)),
            error: self.error.map(|error| unit * error),
            ..self.clone()
        }
    }

    /// Whether joining surely helps or hurts.
    pub fn verdict(&self) -> Joining {
        self.joining.verdict()
    }
}

/// What joining does for a client, beside its own model alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joining {
    /// It surely helps.
    Helps,
    /// Neither is sure.
    Neutral,
    /// It surely hurts.
    Hurts,
}

impl Joining {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Helps => "helps",
            Self::Neutral => "neutral",
            Self::Hurts => "hurts",
        }
    }

    /// As what is said of joining.
    pub fn predicate(self) -> &'static str {
        match self {
            Self::Neutral => "is neutral",
            sure => sure.word(),
        }
    }
}

/// Of the noise's variance, a gain that nobody sees: where two models are almost the same, folds say nothing of its error.
const LEAST_GAIN: f64 = 0.01;

/// A client's losses in a fold that was predicted, in sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FoldLosses {
    pub rows: f64,
    /// Of the stack.
    pub stack: f64,
    /// Of the four models.
    pub rungs: [f64; 4],
}

/// Differences of errors between two ways to serve each client, per row and over the noise's variance, shrunk towards each other.
pub(crate) struct Gains {
    pub mean: Vec<f64>,
    pub error: Vec<f64>,
}

impl Gains {
    /// From each client's differences by fold with their rows. Where the population says what is to be expected of each client, they are
    /// shrunk towards a multiple of that, the same for everybody; else towards their mean.
    pub(crate) fn new(differences: &[Vec<(f64, f64)>], share: f64, expected: Option<&[f64]>) -> Self {
        let summary = |folds: &Vec<(f64, f64)>| {
            let rows: f64 = folds.iter().map(|(_, rows)| rows).sum();
            let mean = if rows > 0.0 { folds.iter().map(|(value, _)| value).sum::<f64>() / rows } else { 0.0 };
            // Per row: the variance of a fold's mean is this over its rows.
            let squares: f64 = folds.iter().map(|(value, rows)| (value - rows * mean).powi(2) / rows).sum();
            (rows, mean, squares, folds.len() as f64 - 1.0)
        };
        let summaries: Vec<(f64, f64, f64, f64)> = differences.iter().map(summary).collect();
        let (squares, freedom) = summaries.iter().fold((0.0, 0.0), |(a, b), s| (a + s.2, b + s.3.max(0.0)));
        let pooled = squares / freedom.max(1.0);
        let variance = |&(rows, _, squares, freedom): &(f64, f64, f64, f64)| {
            let own = (squares + POOLED_FREEDOM * pooled) / (freedom.max(0.0) + POOLED_FREEDOM);
            // Folds share training rows: fold variance × (1/J + n_test/n_train).
            if rows > 0.0 { own / rows * (1.0 + (freedom + 1.0) * share) } else { f64::INFINITY }
        };
        let variances: Vec<f64> = summaries.iter().map(variance).collect();
        let means: Vec<f64> = summaries.iter().map(|s| s.1).collect();
        let along = expected.map_or_else(|| vec![1.0; means.len()], <[f64]>::to_vec);
        let (centre, spread, uncertain) = shrinkage(&means, &variances, &along);
        let (mut mean, mut error) = (Vec::new(), Vec::new());
        for ((value, variance), along) in means.iter().zip(&variances).zip(along) {
            let trust =
                if variance.is_finite() && spread + variance > 0.0 { spread / (spread + variance) } else { 0.0 };
            mean.push(centre * along + trust * (value - centre * along));
            let left = if variance.is_finite() { trust * variance } else { spread };
            error.push((left + ((1.0 - trust) * along).powi(2) * uncertain).sqrt());
        }
        Self { mean, error }
    }
}

/// Of a normal population around a multiple of given numbers, of which each member is seen with its own variance: the multiple, the
/// population's variance (by moments), and the multiple's.
fn shrinkage(values: &[f64], variances: &[f64], along: &[f64]) -> (f64, f64, f64) {
    let seen: Vec<(f64, f64, f64)> = (values.iter().zip(variances).zip(along))
        .map(|((value, variance), along)| (*value, *variance, *along))
        .filter(|(_, v, _)| v.is_finite())
        .collect();
    // Weights, and sums of them, stay finite where no value varies.
    let least = (seen.iter().map(|(_, v, _)| *v).fold(0.0, f64::max) * 1e-12).max(1e-200);
    let weighted = |spread: f64| {
        let weight = |v: f64| 1.0 / (v + spread).max(least);
        let (sum, total) = seen
            .iter()
            .fold((0.0, 0.0), |(sum, total), (x, v, e)| (sum + weight(*v) * x * e, total + weight(*v) * e * e));
        let multiple = if total > 0.0 { sum / total } else { 0.0 };
        (
            multiple,
            seen.iter().map(|(x, v, e)| weight(*v) * (x - multiple * e).powi(2)).sum::<f64>(),
            if total > 0.0 { 1.0 / total } else { 0.0 },
        )
    };
    // The spread at which squares over their variances sum to their number (Paule and Mandel), by bisection.
    let wanted = seen.len() as f64 - 1.0;
    let (mut low, mut high) = (0.0, seen.iter().map(|(value, ..)| value * value).sum::<f64>() + f64::MIN_POSITIVE);
    if weighted(0.0).1 > wanted {
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if weighted(middle).1 > wanted { low = middle } else { high = middle }
        }
    } else {
        high = 0.0;
    }
    let (multiple, _, uncertain) = weighted(high);
    (multiple, high, uncertain)
}

/// What a decision for every client needs beside the cross-validation.
pub(crate) struct Standing<'a> {
    pub stack: [f64; 4],
    pub panel: &'a Panel,
    /// The models of all rows.
    pub models: &'a Models,
    /// Variances of clients' own noise.
    pub noise: &'a [f64],
    /// Covariances of clients' coefficients of random columns, cautiously.
    pub covariances: &'a [Vec<f64>],
    /// The rows of all clients.
    pub rows: f64,
}

impl Standing<'_> {
    /// What serves a client by the one model chosen for it, or by the stack.
    pub(crate) fn served(&self, models: &Models, client: usize, choice: Option<Rung>) -> Vec<f64> {
        choice.map_or_else(|| models.stacked(client, self.stack), |rung| models.of(client, rung).to_vec())
    }

    /// The gain of one model over another that is to be expected on a client's future rows, with its coefficients where the personal model
    /// has them: the difference of squared distances.
    fn expected(&self, working: &Working, client: usize, one: &[f64], other: &[f64]) -> f64 {
        let personal = self.models.of(client, Rung::Personal);
        let square = |model: &[f64]| {
            let apart: Vec<f64> = model.iter().zip(personal).map(|(one, other)| one - other).collect();
            let own: f64 = (0..working.folds).map(|fold| working.fold(client, fold).bilinear(&apart, &apart)).sum();
            let rows = self.panel.curvature.chunks_exact(self.panel.columns).zip(&apart);
            let typical = rows.map(|(row, value)| value * dot(row, &apart)).sum::<f64>();
            self.blended(client, own, typical)
        };
        square(other) - square(one)
    }

    /// By how much that gain varies around its expectation, as the client's true coefficients are uncertain: with `d` the difference of
    /// the models and `A` the columns' products per row, `4 dᵀA V A d`.
    fn realised(&self, client: usize, one: &[f64], other: &[f64]) -> f64 {
        let q = self.panel.random;
        let support = self.panel.support(client);
        let apart: Vec<f64> = one.iter().zip(other).map(|(one, other)| one - other).collect();
        let here = support.gather(&apart);
        let own = self.panel.slab(client).chunks_exact(support.len().max(1)).map(|row| dot(row, &here));
        let typical = self.panel.curvature.chunks_exact(self.panel.columns).map(|row| dot(row, &apart));
        let bent: Vec<f64> = own.zip(typical).map(|(own, typical)| self.blended(client, own, typical)).collect();
        4.0 * self.covariances[client]
            .chunks_exact(q.max(1))
            .zip(&bent)
            .map(|(row, value)| value * dot(row, &bent))
            .sum::<f64>()
    }

    /// Per row, what a client's rows say of columns and what all rows do: with few rows of its own, future ones are more like everybody's.
    fn blended(&self, client: usize, own: f64, all: f64) -> f64 {
        let trust = TYPICAL_ROWS + 2.0 * self.panel.random as f64;
        (own + trust * all / self.rows.max(1.0)) / (self.panel.rows[client] + trust)
    }
}

/// Decides for every client what serves it, by its losses in each fold, of which this many were predicted.
pub(crate) fn serve(
    working: &Working,
    cells: &[Vec<FoldLosses>],
    predicted: usize,
    standing: &Standing,
) -> Vec<Service> {
    let (noise, tests) = (standing.noise, predicted as f64);
    // n_test / n_train; with folds in the order of time, in the mean.
    let share = if working.rolling { 2.0 / working.folds as f64 } else { 1.0 / (tests - 1.0).max(1.0) };
    let gains = |difference: &dyn Fn(usize, &FoldLosses) -> f64, expected: Option<&[f64]>| {
        let client = |(client, folds): (usize, &Vec<FoldLosses>)| {
            folds.iter().map(|cell| (difference(client, cell) / noise[client], cell.rows)).collect()
        };
        Gains::new(&cells.iter().enumerate().map(client).collect::<Vec<Vec<(f64, f64)>>>(), share, expected)
    };
    let against_stack = Rung::ALL.map(|rung| gains(&|_, cell| cell.stack - cell.rungs[rung as usize], None));
    let choice = |client: usize| {
        if standing.panel.rows[client] < LEAST_ROWS || cells[client].len() < 2 {
            return None;
        }
        let gain = |rung: &Rung| {
            let gains = &against_stack[*rung as usize];
            Gain { mean: gains.mean[client], error: gains.error[client] }
        };
        let sure = Rung::ALL.iter().filter(|rung| gain(rung).probability() >= SURE);
        sure.max_by(|a, b| gain(a).mean.total_cmp(&gain(b).mean)).copied()
    };
    let choices: Vec<Option<Rung>> = (0..working.clients).map(choice).collect();
    let served_error =
        |client: usize, cell: &FoldLosses| choices[client].map_or(cell.stack, |rung| cell.rungs[rung as usize]);
    let all_served: Vec<Vec<f64>> = (0..working.clients)
        .into_par_iter()
        .map(|client| standing.served(standing.models, client, choices[client]))
        .collect();
    let over = Rung::ALL.map(|rung| {
        let expected = |client: usize| {
            standing.expected(working, client, &all_served[client], standing.models.of(client, rung)) / noise[client]
        };
        let expected: Vec<f64> = (0..working.clients).into_par_iter().map(expected).collect();
        gains(&|client, cell| cell.rungs[rung as usize] - served_error(client, cell), Some(&expected))
    });
    (0..working.clients)
        .into_par_iter()
        .map(|client| {
            let total: f64 = cells[client].iter().map(|cell| cell.rows).sum();
            let mean = |value: &dyn Fn(&FoldLosses) -> f64| cells[client].iter().map(value).sum::<f64>() / total;
            let errors = (total > 0.0).then(|| Rung::ALL.map(|rung| mean(&|cell| cell.rungs[rung as usize])));
            let served = &all_served[client];
            let gain = |rung: Rung| {
                let gains = &over[rung as usize];
                let realised = standing.realised(client, standing.models.of(client, rung), served);
                let unseen = (LEAST_GAIN * noise[client]).powi(2);
                let error = ((gains.error[client] * noise[client]).powi(2) + realised + unseen).sqrt();
                Gain { mean: gains.mean[client] * noise[client], error }
            };
            let others = Rung::ALL.iter().filter(|rung| Some(**rung) != choices[client]);
            let runner_up = *others.min_by(|a, b| gain(**a).mean.total_cmp(&gain(**b).mean)).unwrap_or(&Rung::Global);
            Service {
                own_choice: choices[client],
                runner_up,
                gain: gain(runner_up),
                joining: gain(Rung::Alone),
                error: errors.map(|_| mean(&|cell| served_error(client, cell))),
                errors,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_corner_edge_and_inside_of_the_simplex() {
        // Independent errors of variances 1, 1, 2, 4: weights are as their inverses.
        let mut a = [0.0; 16];
        [1.0, 1.0, 2.0, 4.0].iter().enumerate().for_each(|(i, value)| a[i * 5] = *value);
        let found = simplex(&a, &[0.0; 4]);
        for (value, wanted) in found.iter().zip([4.0, 4.0, 2.0, 1.0]) {
            assert!((value - wanted / 11.0).abs() < 1e-8, "{found:?}");
        }
        assert_eq!(simplex(&a, &[0.0, 9.0, 0.0, 0.0]), [0.0, 1.0, 0.0, 0.0]);
        // Four times the same model: the first alone.
        assert_eq!(simplex(&[1.0; 16], &[1.0; 4]), [1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_population_seen_with_noise_by_hand() {
        // Values ±2 with variance 1 each: Σ x²/(1 + s) = 1 for two values is s = 7.
        let (mean, spread, uncertain) = shrinkage(&[-2.0, 2.0], &[1.0, 1.0], &[1.0; 2]);
        assert!(
            mean.abs() < 1e-12 && (spread - 7.0).abs() < 1e-9 && (uncertain - 4.0).abs() < 1e-9,
            "{mean} {spread} {uncertain}"
        );
        assert_eq!(shrinkage(&[0.1, -0.1], &[1.0, 1.0], &[1.0; 2]), (0.0, 0.0, 0.5));
        // Along (1, 3): Σ xe/Σ e² = 1.1, nothing left that noise does not explain.
        let (multiple, spread, _) = shrinkage(&[2.0, 3.0], &[1.0, 1.0], &[1.0, 3.0]);
        assert!((multiple - 1.1).abs() < 1e-12 && spread == 0.0);
        let (mean, spread, _) = shrinkage(&[0.5; 9], &[0.0; 9], &[1.0; 9]);
        assert!((mean - 0.5).abs() < 1e-12 && spread < 1e-12, "folds that all agree: {mean} {spread}");
    }
}
