//! The mixed model `y_i = X_i β + Z_i u_i + e_i`, `u_i ~ N(0, σ²ΛΛᵀ)`, `e_i ~ N(0, σ²)`, by restricted maximum likelihood.
//!
//! `Z_i` are the random columns of `X_i`. With `H_i = I + Z_iΛΛᵀZ_iᵀ`, everything follows from `X_iᵀH_i⁻¹X_i = A_i − WᵀW`, where
//! `W = U⁻ᵀΛᵀA_i[random, :]` and `UᵀU = I + ΛᵀA_i[random, random]Λ`: clients with few rows, and variances of 0, need no special care.
//! Penalised common columns have coefficients `N(0, σ²λ²)` of their own. `β` and `σ²` are profiled out; the entries of `Λ`, some of which
//! are one and the same parameter, are found by Fisher scoring with Levenberg's damping.

use super::evidence::Panel;
use crate::descent::Descent;
use crate::error::{Error, Result};
use crate::num::triangular::{factorise, log_determinant, solve};
use crate::num::{add_scaled, dot, norm};
use crate::settings::choices;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Clients whose sums are formed together; a constant, so that sums do not depend on the number of threads.
const BLOCK: usize = 128;
const ITERATIONS: usize = 200;
/// Decrease of the deviance below which nothing is gained any more; where a fit goes on from that of nearly the same rows, to be compared
/// with others; and relative to the deviance, where rounding begins.
const CONVERGED: f64 = 1e-12;
const CONVERGED_AGAIN: f64 = 1e-6;
const ROUNDING: f64 = 1e-14;
/// The norm of the deviance's gradient, in standard errors of the parameters, at which L-BFGS has arrived.
const POLISHED: f64 = 1e-5;
/// Of the target's mean square, the least variance of noise that is told from none.
const LEAST_NOISE: f64 = 1e-14;

/// Which entries of the covariance of clients' coefficients there are, and which of them are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Covariance {
    /// One variance, of intercepts; slopes are common.
    Intercept,
    /// One variance for all coefficients.
    Scalar,
    /// One variance for intercepts and one for all slopes.
    InterceptSlopes,
    /// A variance for every column.
    Diagonal,
    /// Variances and covariances.
    Full,
}

choices!(Covariance {
    Intercept = "intercept",
    Scalar = "scalar",
    InterceptSlopes = "intercept-slopes",
    Diagonal = "diagonal",
    Full = "full",
});

impl Covariance {
    /// For each parameter, the entries of the lower triangle `Λ` that are equal to it.
    pub(crate) fn entries(self, random: usize, intercepts: usize) -> Vec<Vec<(usize, usize)>> {
        let diagonal = |range: std::ops::Range<usize>| range.map(|j| (j, j)).collect::<Vec<_>>();
        match self {
            _ if random == 0 => Vec::new(),
            Self::InterceptSlopes if intercepts > 0 && random > intercepts => {
                vec![diagonal(0..intercepts), diagonal(intercepts..random)]
            }
            Self::Intercept | Self::Scalar | Self::InterceptSlopes => vec![diagonal(0..random)],
            Self::Diagonal => (0..random).map(|j| vec![(j, j)]).collect(),
            Self::Full => (0..random).flat_map(|i| (0..=i).map(move |j| vec![(i, j)])).collect(),
        }
    }
}

/// One client with its own coefficients integrated out.
pub(crate) struct Integrated {
    random: usize,
    columns: usize,
    pub factor: Vec<f64>,
    square: Vec<f64>,
    /// `W`, `random` × the client's columns.
    pub pulled: Vec<f64>,
    /// `U⁻ᵀΛᵀb[random]`.
    pub moment: Vec<f64>,
    /// `log|H|`.
    pub log_determinant: f64,
}

impl Integrated {
    pub(crate) fn new(random: usize) -> Self {
        Self {
            random,
            columns: 0,
            factor: Vec::new(),
            square: vec![0.0; random * random],
            pulled: Vec::new(),
            moment: vec![0.0; random],
            log_determinant: 0.0,
        }
    }

    pub(crate) fn set(&mut self, root: &[f64], slab: &[f64], moment: &[f64]) {
        let (q, p) = (self.random, moment.len());
        self.columns = p;
        self.pulled.clear();
        self.pulled.resize(q * p, 0.0);
        self.moment.fill(0.0);
        for (i, (row, target)) in slab.chunks_exact(p).zip(moment).enumerate() {
            for (j, &value) in root[i * q..=i * q + i].iter().enumerate().filter(|(_, value)| **value != 0.0) {
                add_scaled(&mut self.pulled[j * p..(j + 1) * p], value, row);
                self.moment[j] += value * target;
            }
        }
        self.square.fill(0.0);
        for (j, row) in self.pulled.chunks_exact(p).enumerate() {
            for i in 0..q {
                add_scaled(&mut self.square[j * q..(j + 1) * q], row[i], &root[i * q..(i + 1) * q]);
            }
            self.square[j * q + j] += 1.0;
        }
        factorise(&self.square, q, &mut self.factor);
        self.log_determinant = log_determinant(&self.factor, q);
        for j in 0..q {
            let (done, later) = self.pulled.split_at_mut(j * p);
            for (i, above) in done.chunks_exact(p).enumerate() {
                add_scaled(&mut later[..p], -self.factor[i * q + j], above);
                self.moment[j] -= self.factor[i * q + j] * self.moment[i];
            }
            let share = self.factor[j * q + j].recip();
            later[..p].iter_mut().for_each(|value| *value *= share);
            self.moment[j] *= share;
        }
    }

    /// Writes the random rows of `A − WᵀW`, that is `ZᵀH⁻¹X`.
    pub(crate) fn curvature(&self, slab: &[f64], out: &mut Vec<f64>) {
        let p = self.columns;
        out.clear();
        out.extend_from_slice(slab);
        for row in self.pulled.chunks_exact(p) {
            for (j, values) in out.chunks_exact_mut(p).enumerate() {
                add_scaled(values, -row[j], row);
            }
        }
    }

    /// Writes `ZᵀH⁻¹y`.
    pub(crate) fn random_moment(&self, moment: &[f64], out: &mut [f64]) {
        out.copy_from_slice(&moment[..self.random]);
        for (row, value) in self.pulled.chunks_exact(self.columns).zip(&self.moment) {
            add_scaled(out, -value, &row[..self.random]);
        }
    }

    /// The expected coefficients beyond a centre `β` of the client's columns, `ΛU⁻¹(ΛᵀZᵀ(y − Xβ))`.
    pub(crate) fn deviation(&self, root: &[f64], centre: &[f64]) -> Vec<f64> {
        let (q, p) = (self.random, self.columns);
        let mut left: Vec<f64> =
            self.pulled.chunks_exact(p).zip(&self.moment).map(|(row, value)| value - dot(row, centre)).collect();
        for (j, row) in self.factor.chunks_exact(q.max(1)).enumerate().rev() {
            left[j] = (left[j] - dot(&row[j + 1..], &left[j + 1..])) / row[j];
        }
        (0..q).map(|i| dot(&root[i * q..=i * q + i], &left[..=i])).collect()
    }

    /// Their covariance over `σ²`, `Λ(I + ΛᵀGΛ)⁻¹Λᵀ`.
    pub(crate) fn covariance(&self, root: &[f64]) -> Vec<f64> {
        let q = self.random;
        let mut covariance = vec![0.0; q * q];
        let mut column = vec![0.0; q];
        for i in 0..q {
            column.copy_from_slice(&root[i * q..(i + 1) * q]);
            solve(&self.factor, q, &mut column);
            for j in 0..q {
                covariance[j * q + i] = dot(&root[j * q..(j + 1) * q], &column);
            }
        }
        covariance
    }
}

/// The fitted model, in the coordinates of the panel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mixed {
    /// The parameters that `Λ` is made of, then one `λ` for every penalised group.
    pub parameters: Vec<f64>,
    /// `Λ`, row-major.
    pub root: Vec<f64>,
    /// `λ` of the penalised groups.
    pub bends: Vec<f64>,
    pub noise: f64,
    pub centre: Vec<f64>,
    /// The covariance of the centre over `σ²`.
    pub inverse: Vec<f64>,
    pub deviance: f64,
}

/// Sums over the clients at given variances, and what is profiled out of them.
struct Profile {
    curvature: Vec<f64>,
    moment: Vec<f64>,
    inverse: Vec<f64>,
    centre: Vec<f64>,
    noise: f64,
    deviance: f64,
}

struct Fit<'a> {
    panel: &'a Panel,
    entries: Vec<Vec<(usize, usize)>>,
    bends: usize,
    total_moment: Vec<f64>,
    total_energy: f64,
    freedom: f64,
}

/// Sums of a block of clients, folded in order.
pub(super) fn over_blocks<S: Send>(
    clients: usize,
    sum: impl Fn(std::ops::Range<usize>) -> S + Sync,
    mut fold: impl FnMut(S),
) {
    let blocks = clients.div_ceil(BLOCK);
    let block = |at: usize| sum(at * BLOCK..clients.min((at + 1) * BLOCK));
    if blocks < 2 {
        (0..blocks).for_each(|at| fold(block(at)));
    } else {
        (0..blocks).into_par_iter().map(block).collect::<Vec<S>>().into_iter().for_each(fold);
    }
}

impl Fit<'_> {
    fn root(&self, parameters: &[f64]) -> Vec<f64> {
        root(parameters, self.panel.random, &self.entries)
    }

    fn profile(&self, parameters: &[f64]) -> Profile {
        let panel = self.panel;
        let (p, q) = (panel.columns, panel.random);
        let root = self.root(parameters);
        let (mut curvature, mut moment, mut energy) =
            (panel.curvature.clone(), self.total_moment.clone(), self.total_energy);
        let mut log_determinants = 0.0;
        let block = |clients: std::ops::Range<usize>| {
            let mut integrated = Integrated::new(q);
            let (mut curvature, mut moment, mut energy, mut logs) = (vec![0.0; p * p], vec![0.0; p], 0.0, 0.0);
            for client in clients {
                integrated.set(&root, panel.slab(client), panel.moment(client));
                logs += integrated.log_determinant;
                let support = panel.support(client);
                for (row, value) in integrated.pulled.chunks_exact(support.len().max(1)).zip(&integrated.moment) {
                    if support.len() == p {
                        (0..p).for_each(|j| add_scaled(&mut curvature[j * p + j..(j + 1) * p], row[j], &row[j..]));
                    } else {
                        for (column, value) in support.columns().zip(row) {
                            support.scatter(&mut curvature[column * p..(column + 1) * p], *value, row);
                        }
                    }
                    support.scatter(&mut moment, *value, row);
                    energy += value * value;
                }
            }
            (curvature, moment, energy, logs)
        };
        over_blocks(panel.clients(), block, |(part, shift, drop, logs)| {
            add_scaled(&mut curvature, -1.0, &part);
            add_scaled(&mut moment, -1.0, &shift);
            energy -= drop;
            log_determinants += logs;
        });
        for i in 0..p {
            for j in 0..i {
                curvature[i * p + j] = curvature[j * p + i];
            }
        }
        // Penalised columns are scaled by their λ, and their coefficients then have variance σ².
        let scales: Vec<f64> = (panel.curves.iter())
            .map(|group| group.map_or(1.0, |group| parameters[self.entries.len() + group]))
            .collect();
        let mut scaled = curvature.clone();
        for (i, row) in scaled.chunks_exact_mut(p).enumerate() {
            row.iter_mut().zip(&scales).for_each(|(value, scale)| *value *= scales[i] * scale);
            row[i] += f64::from(u8::from(panel.curves[i].is_some()));
        }
        let mut factor = Vec::new();
        factorise(&scaled, p, &mut factor);
        let mut inverse = vec![0.0; p * p];
        let mut column = vec![0.0; p];
        for j in 0..p {
            column.fill(0.0);
            column[j] = 1.0;
            solve(&factor, p, &mut column);
            for i in 0..p {
                inverse[i * p + j] = column[i] * scales[i] * scales[j];
            }
        }
        let mut centre: Vec<f64> = moment.iter().zip(&scales).map(|(value, scale)| value * scale).collect();
        solve(&factor, p, &mut centre);
        centre.iter_mut().zip(&scales).for_each(|(value, scale)| *value *= scale);
        let left = (energy - dot(&moment, &centre)).max(LEAST_NOISE * self.total_energy).max(f64::MIN_POSITIVE);
        let noise = panel.noise.unwrap_or(left / self.freedom);
        let deviance = log_determinants
            + log_determinant(&factor, p)
            + left / noise
            + self.freedom * (2.0 * std::f64::consts::PI * noise).ln();
        Profile { curvature, moment, inverse, centre, noise, deviance }
    }

    /// The gradient of the deviance in the parameters, and an approximation of its second derivatives.
    fn slopes(&self, parameters: &[f64], profile: &Profile) -> (Vec<f64>, Vec<f64>) {
        let panel = self.panel;
        let (p, q) = (panel.columns, panel.random);
        let root = self.root(parameters);
        let (mut gradient, mut sums, mut squares) = (vec![0.0; q * q], vec![0.0; q * q], vec![0.0; q * q]);
        let block = |clients: std::ops::Range<usize>| {
            let mut integrated = Integrated::new(q);
            let (mut curvature, mut residual, mut solved, mut own) =
                (Vec::new(), vec![0.0; q], vec![0.0; p], Vec::new());
            let (mut gradient, mut sums, mut squares) = (vec![0.0; q * q], vec![0.0; q * q], vec![0.0; q * q]);
            for client in clients {
                let (slab, support) = (panel.slab(client), panel.support(client));
                let width = support.len().max(1);
                integrated.set(&root, slab, panel.moment(client));
                integrated.curvature(slab, &mut curvature);
                integrated.random_moment(panel.moment(client), &mut residual);
                let centre = support.gather(&profile.centre);
                for (value, row) in residual.iter_mut().zip(curvature.chunks_exact(width)) {
                    *value -= dot(row, &centre);
                }
                let inverse = if width == p {
                    &profile.inverse
                } else {
                    own.clear();
                    support.columns().for_each(|i| own.extend(support.columns().map(|j| profile.inverse[i * p + j])));
                    &own
                };
                for (i, row) in curvature.chunks_exact(width).enumerate() {
                    for (value, line) in solved.iter_mut().zip(inverse.chunks_exact(width)) {
                        *value = dot(line, row);
                    }
                    for (j, other) in curvature.chunks_exact(width).enumerate() {
                        let information = row[j];
                        gradient[i * q + j] +=
                            information - residual[i] * residual[j] / profile.noise - dot(&solved[..width], other);
                        sums[i * q + j] += information;
                        squares[i * q + j] += information * information;
                    }
                }
            }
            (gradient, sums, squares)
        };
        over_blocks(panel.clients(), block, |(one, two, three)| {
            add_scaled(&mut gradient, 1.0, &one);
            add_scaled(&mut sums, 1.0, &two);
            add_scaled(&mut squares, 1.0, &three);
        });
        let information = Information { gradient, sums, squares };
        let count = self.entries.len() + self.bends;
        let (mut slope, mut metric, mut traces) = information.slopes(&root, q, &self.entries, count);
        self.bend_slopes(parameters, profile, &mut slope, &mut metric, &mut traces);
        if panel.noise.is_none() {
            // The variance of the noise is fitted to whatever the parameters are.
            for (t, row) in metric.chunks_exact_mut(count.max(1)).enumerate() {
                add_scaled(row, -traces[t] / self.freedom, &traces);
            }
        }
        (slope, metric)
    }

    /// Goes on with L-BFGS, which learns the true curvature: where some variance is nearly 0, or clients are very different, scoring's
    /// approximation may be too poor to come any nearer.
    fn polish(&self, parameters: Vec<f64>, profile: Profile) -> (Vec<f64>, Profile) {
        let (_, metric) = self.slopes(&parameters, &profile);
        let count = parameters.len();
        let scales: Vec<f64> = metric.iter().step_by(count + 1).map(|own| own.sqrt().max(f64::MIN_POSITIVE)).collect();
        let largest = scales.iter().fold(0.0_f64, |largest, scale| largest.max(*scale));
        let scales: Vec<f64> = scales.iter().map(|scale| scale.max(1e-3 * largest)).collect();
        let mut descent = Descent::new(parameters.iter().zip(&scales).map(|(value, scale)| value * scale).collect());
        let mut best = (parameters, profile);
        for _ in 0..ITERATIONS {
            let tried: Vec<f64> = descent.wanted().iter().zip(&scales).map(|(value, scale)| value / scale).collect();
            let next = self.profile(&tried);
            let (slope, _) = self.slopes(&tried, &next);
            let slope: Vec<f64> = slope.iter().zip(&scales).map(|(slope, scale)| slope / scale).collect();
            descent.report(next.deviance, &slope);
            let level = norm(&slope);
            if next.deviance < best.1.deviance {
                best = (tried, next);
            }
            if descent.is_stuck() || level < POLISHED {
                break;
            }
        }
        best
    }

    fn bend_slopes(
        &self,
        parameters: &[f64],
        profile: &Profile,
        slope: &mut [f64],
        metric: &mut [f64],
        traces: &mut [f64],
    ) {
        let p = self.panel.columns;
        let first = self.entries.len();
        let count = first + self.bends;
        for group in 0..self.bends {
            let members: Vec<usize> = (0..p).filter(|&j| self.panel.curves[j] == Some(group)).collect();
            let (mut trace, mut square, mut pull) = (0.0, 0.0, 0.0);
            for &i in &members {
                let row = &profile.curvature[i * p..(i + 1) * p];
                let spread: Vec<f64> = profile.inverse.chunks_exact(p).map(|line| dot(line, row)).collect();
                for &j in &members {
                    let left = row[j] - dot(&spread, &profile.curvature[j * p..(j + 1) * p]);
                    trace += if i == j { left } else { 0.0 };
                    square += left * left;
                }
                pull += (profile.moment[i] - dot(row, &profile.centre)).powi(2);
            }
            let at = first + group;
            let twice = 2.0 * parameters[at];
            slope[at] = twice * (trace - pull / profile.noise);
            traces[at] = twice * trace;
            metric[at * count + at] = twice * twice * square;
        }
    }
}

/// Sums over clients by which the deviance depends on `ΛΛᵀ`: its gradient, and the entries of `ZᵀH⁻¹Z` and their squares.
pub(super) struct Information {
    pub gradient: Vec<f64>,
    pub sums: Vec<f64>,
    pub squares: Vec<f64>,
}

impl Information {
    /// The gradient of the deviance in the parameters of `Λ`, its expected second derivatives, and the traces by which they would change
    /// the noise; all with places for `count` parameters.
    pub(super) fn slopes(
        &self,
        root: &[f64],
        size: usize,
        entries: &[Vec<(usize, usize)>],
        count: usize,
    ) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        // Clients stand for one whose information has the mean square of theirs, entry by entry.
        let typical: Vec<f64> =
            self.sums.iter().zip(&self.squares).map(|(sum, square)| sum.signum() * square.sqrt()).collect();
        let (mut slope, mut metric, mut traces) = (vec![0.0; count], vec![0.0; count * count], vec![0.0; count]);
        let directions: Vec<Vec<f64>> = entries.iter().map(|entries| direction(root, size, entries)).collect();
        let products: Vec<Vec<f64>> = directions.iter().map(|direction| product(&typical, direction, size)).collect();
        for (t, direction) in directions.iter().enumerate() {
            slope[t] = dot(&self.gradient, direction);
            traces[t] = dot(&self.sums, direction);
            for (s, other) in products.iter().enumerate() {
                let entries = (0..size * size).map(|at| products[t][at] * other[at % size * size + at / size]);
                metric[t * count + s] = entries.sum();
            }
        }
        (slope, metric, traces)
    }
}

/// Minus the step that scoring takes, with Levenberg's damping.
pub(super) fn damped_step(slope: &[f64], metric: &[f64], damping: f64) -> Vec<f64> {
    let count = slope.len();
    let largest = metric.iter().step_by(count + 1).fold(0.0, |largest, &value| value.max(largest));
    let mut damped = metric.to_vec();
    for own in damped.iter_mut().step_by(count + 1) {
        *own = own.max(1e-12 * largest).max(f64::MIN_POSITIVE) * (1.0 + damping);
    }
    let mut factor = Vec::new();
    factorise(&damped, count, &mut factor);
    let mut step = slope.to_vec();
    solve(&factor, count, &mut step);
    step
}

/// `Λ` with these parameters.
pub(super) fn root(parameters: &[f64], size: usize, entries: &[Vec<(usize, usize)>]) -> Vec<f64> {
    let mut root = vec![0.0; size * size];
    for (entries, value) in entries.iter().zip(parameters) {
        entries.iter().for_each(|&(i, j)| root[i * size + j] = *value);
    }
    root
}

/// The derivative of `ΛΛᵀ` in a parameter that these entries are equal to.
fn direction(root: &[f64], size: usize, entries: &[(usize, usize)]) -> Vec<f64> {
    let mut direction = vec![0.0; size * size];
    for &(i, j) in entries {
        for l in 0..size {
            direction[i * size + l] += root[l * size + j];
            direction[l * size + i] += root[l * size + j];
        }
    }
    direction
}

fn product(a: &[f64], b: &[f64], size: usize) -> Vec<f64> {
    let mut product = vec![0.0; size * size];
    for (row, out) in a.chunks_exact(size).zip(product.chunks_exact_mut(size)) {
        row.iter().zip(b.chunks_exact(size)).for_each(|(value, other)| add_scaled(out, *value, other));
    }
    product
}

/// Fits the model; `start` are the parameters of an earlier fit of the same kind.
pub(crate) fn fit(panel: &Panel, covariance: Covariance, intercepts: usize, start: Option<&[f64]>) -> Result<Mixed> {
    let (p, q, clients) = (panel.columns, panel.random, panel.clients());
    let entries = covariance.entries(q, intercepts);
    let bends = panel.curves.iter().flatten().map(|group| group + 1).max().unwrap_or(0);
    let unpenalised = panel.curves.iter().filter(|group| group.is_none()).count();
    let freedom = panel.total_rows() - unpenalised as f64;
    if freedom < 1.0 && panel.noise.is_none() {
        return Err(Error::data(format!(
            "got {} rows for {unpenalised} coefficients, want more rows than coefficients",
            panel.total_rows()
        ))
        .hint("leave columns out, or bring more rows"));
    }
    let fit = Fit {
        panel,
        bends,
        total_moment: panel.total_moment(),
        total_energy: panel.energies.iter().sum(),
        freedom,
        entries,
    };
    let mut parameters = match start {
        Some(start) if start.len() == fit.entries.len() + bends => {
            start.iter().map(|value| if value.abs() < 1e-3 { 1e-3 } else { *value }).collect()
        }
        _ => {
            // Where clients' coefficients vary as much as they are uncertain.
            let mean = |j: usize| panel.curvature[j * p + j] / clients as f64;
            let of_entries = |entries: &Vec<(usize, usize)>| {
                let (total, diagonal) =
                    entries.iter().fold((0.0, true), |(sum, on), &(i, j)| (sum + mean(i), on && i == j));
                if diagonal && total > 0.0 { (entries.len() as f64 / total).sqrt() } else { 0.0 }
            };
            let mut start: Vec<f64> = fit.entries.iter().map(of_entries).collect();
            start.extend((0..bends).map(|_| 1.0 / (panel.total_rows()).sqrt()));
            start
        }
    };
    let mut profile = fit.profile(&parameters);
    let mut damping = 1e-3;
    for _ in 0..ITERATIONS {
        let (slope, metric) = fit.slopes(&parameters, &profile);
        let converged = if start.is_some() { CONVERGED_AGAIN } else { CONVERGED };
        let (mut settled, least) = (true, converged.max(ROUNDING * profile.deviance.abs()));
        for _ in 0..30 {
            let step = damped_step(&slope, &metric, damping);
            let promised = dot(&step, &slope);
            if !(promised > least && promised.is_finite()) {
                if promised.is_finite() && promised >= 0.0 {
                    break;
                }
                damping = (damping * 10.0).max(1e-3);
                continue;
            }
            let tried: Vec<f64> = parameters.iter().zip(&step).map(|(value, step)| value - step).collect();
            let next = fit.profile(&tried);
            if next.deviance < profile.deviance {
                settled = profile.deviance - next.deviance < least;
                (parameters, profile) = (tried, next);
                damping = (damping * 0.2).max(1e-9);
                break;
            }
            damping = (damping * 6.0).max(1e-3);
        }
        if settled {
            break;
        }
    }
    if start.is_none() && parameters.len() > 1 {
        (parameters, profile) = fit.polish(parameters, profile);
    }
    if !profile.deviance.is_finite() || profile.centre.iter().any(|value| !value.is_finite()) {
        return Err(Error::data("the mixed model has no finite fit")
            .hint("a column or the target has values too large to be squared"));
    }
    Ok(Mixed {
        root: fit.root(&parameters),
        bends: parameters[fit.entries.len()..].to_vec(),
        noise: profile.noise,
        centre: profile.centre,
        inverse: profile.inverse,
        deviance: profile.deviance,
        parameters,
    })
}
