//! Step 1: do clients differ at all?
//!
//! An F statistic compares one model for everybody with a model in which random columns have coefficients of each client's own. Its
//! p-value comes from a restricted wild bootstrap: targets are made anew from the common model and its residuals, each fold of each client
//! with a random sign. (One sign for a whole client would leave what the client's own model explains as it is, and the statistic with it.)
//! Where the variance of the noise is known, as with classes expanded at the common model, this is the score test.
//! Only products enter: with `g` the products of columns and residuals, a sign turns `g` of its fold over, and sums of squares stay.

use super::evidence::Working;
use crate::num::triangular::{factorise, solve};
use crate::num::{Spectrum, add_scaled, dot};
use crate::rng::Key;
use rand::RngExt;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Tables of signs that are drawn.
const DRAWS: usize = 199;
/// Tables of signs that are computed with at once.
const LANES: usize = 8;
type Lanes = [f64; LANES];
/// Residual degrees of freedom below which nothing is said.
const LEAST_FREEDOM: f64 = 20.0;
/// Of a sum of squares, what rounding may leave of it.
const ROUNDING: f64 = 1e-9;

/// Whether clients differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The F statistic; with classes, the score statistic over its degrees of freedom.
    pub statistic: f64,
    /// Degrees of freedom of the difference between clients, and of what is left.
    pub freedom: [f64; 2],
    /// Its p-value; absent where too few rows are left to tell.
    pub p: Option<f64>,
    /// The share of what one model for everybody leaves unexplained that lies between clients: by restricted maximum likelihood, the
    /// intraclass correlation where only intercepts differ.
    pub between: f64,
}

impl Difference {
    /// Whether clients differ at the level of five per cent.
    pub fn found(&self) -> bool {
        self.p.is_some_and(|p| p <= 0.05)
    }
}

/// One client's part: rows that turn products with residuals into what its own model explains, and products by fold.
struct Part {
    /// `W` with `W G Wᵀ = I`, as many rows as the client's random columns have rank.
    rank: usize,
    /// `W A[random, common]`, rank × the client's common columns.
    common: Vec<f64>,
    /// By fold: `W g[random]`, then `g` in the client's columns.
    folds: Vec<f64>,
}

/// Rows `w` with `w G wᵀ = 1`, orthogonal in `G` to each other, for as many directions as `G` has. `stride` is the length of its rows.
fn whiten(gram: &[f64], size: usize, stride: usize) -> Vec<f64> {
    let mut rows: Vec<f64> = Vec::new();
    let mut image = vec![0.0; size];
    for j in 0..size {
        let mut row = vec![0.0; size];
        row[j] = 1.0;
        let column = |w: &[f64]| (0..size).map(|i| w[i] * gram[i * stride + j]).sum::<f64>();
        for other in rows.chunks_exact(size) {
            add_scaled(&mut row, -column(other), other);
        }
        for (value, line) in image.iter_mut().zip(gram.chunks_exact(stride)) {
            *value = dot(&line[..size], &row);
        }
        let square = dot(&row, &image);
        if square > ROUNDING * gram[j * stride + j] && square > 0.0 {
            rows.extend(row.iter().map(|value| value / square.sqrt()));
        }
    }
    rows
}

fn add_to_lanes(sum: &mut Lanes, scale: f64, values: &Lanes) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += scale * value);
}

/// Tests it, and adds the share of variance between clients, which the caller knows.
pub(crate) fn test(working: &Working, between: f64, key: &Key) -> Difference {
    let panel = working.panel(None);
    let (p, q, folds) = (panel.columns, panel.random, working.folds);
    let (total, energy) = (panel.total_moment(), panel.energies.iter().sum::<f64>());
    let mut pooled = Vec::new();
    factorise(&panel.curvature, p, &mut pooled);
    let mut centre = total.clone();
    solve(&pooled, p, &mut centre);
    let residual = (energy - dot(&total, &centre)).max(0.0);

    let part = |client: usize| {
        let (slab, width) = (panel.slab(client), panel.support(client).len().max(1));
        let rows = whiten(slab, q, width);
        let rank = rows.len() / q.max(1);
        let mut common = vec![0.0; rank * (width - q)];
        for (row, out) in rows.chunks_exact(q.max(1)).zip(common.chunks_exact_mut((width - q).max(1))) {
            row.iter().zip(slab.chunks_exact(width)).for_each(|(value, line)| add_scaled(out, *value, &line[q..]));
        }
        let mut by_fold = vec![0.0; folds * (rank + width)];
        for (fold, values) in by_fold.chunks_exact_mut(rank + width).enumerate() {
            let (explained, products) = values.split_at_mut(rank);
            working.fold(client, fold).residual(&centre, products);
            for (value, row) in explained.iter_mut().zip(rows.chunks_exact(q.max(1))) {
                *value = dot(row, &products[..q]);
            }
        }
        Part { rank, common, folds: by_fold }
    };
    let parts: Vec<Part> = (0..panel.clients()).into_par_iter().map(part).collect();

    // What common columns still explain when random ones are each client's own.
    let r = p - q;
    let mut within = vec![0.0; r * r];
    for (row, out) in panel.curvature.chunks_exact(p).skip(q).zip(within.chunks_exact_mut(r.max(1))) {
        out.copy_from_slice(&row[q..]);
    }
    let places: Vec<Vec<usize>> = (0..panel.clients())
        .map(|client| panel.support(client).columns().skip(q).map(|column| column - q).collect())
        .collect();
    for (part, places) in parts.iter().zip(&places) {
        for row in part.common.chunks_exact(places.len().max(1)) {
            for (&i, one) in places.iter().zip(row) {
                places.iter().zip(row).for_each(|(&j, two)| within[i * r + j] -= one * two);
            }
        }
    }
    let spectrum = Spectrum::above(&within, r, ROUNDING);
    let own_rank = parts.iter().map(|part| part.rank).sum::<usize>() + spectrum.as_ref().map_or(0, Spectrum::rank);
    let numbers = panel.total_rows() * working.response.equations() as f64;
    let freedom = [own_rank as f64 - p as f64, numbers - own_rank as f64];

    // From sums of squares that remain with the common model and with clients' own, when folds have these signs. Several tables of signs
    // at once, so that the clients' numbers are read once for all of them.
    let statistics = |signs: &dyn Fn(usize) -> Lanes| -> Lanes {
        let (mut all, mut common, mut explained) = (vec![[0.0; LANES]; p], vec![[0.0; LANES]; r], [0.0; LANES]);
        let mut sum = vec![[0.0; LANES]; q + p];
        for (client, part) in parts.iter().enumerate() {
            let (support, places) = (panel.support(client), &places[client]);
            let width = part.rank + support.len();
            let sum = &mut sum[..width];
            sum.fill([0.0; LANES]);
            for (fold, values) in part.folds.chunks_exact(width).enumerate() {
                let signs = signs(client * folds + fold);
                sum.iter_mut().zip(values).for_each(|(sum, value)| add_to_lanes(sum, *value, &signs));
            }
            let (own, products) = sum.split_at(part.rank);
            support.columns().zip(products).for_each(|(at, product)| add_to_lanes(&mut all[at], 1.0, product));
            let mut squares = [0.0; LANES];
            own.iter().for_each(|own| (0..LANES).for_each(|lane| squares[lane] += own[lane] * own[lane]));
            add_to_lanes(&mut explained, 1.0, &squares);
            for (own, row) in own.iter().zip(part.common.chunks_exact(places.len().max(1))) {
                places.iter().zip(row).for_each(|(&at, entry)| add_to_lanes(&mut common[at], -entry, own));
            }
        }
        std::array::from_fn(|lane| {
            let all: Vec<f64> = all.iter().map(|all| all[lane]).collect();
            let common: Vec<f64> = common.iter().zip(&all[q..]).map(|(common, all)| common[lane] + all).collect();
            let explained =
                explained[lane] + spectrum.as_ref().map_or(0.0, |spectrum| dot(&common, &spectrum.solve(&common)));
            let mut solved = all.clone();
            solve(&pooled, p, &mut solved);
            let (one, own) = (residual - dot(&all, &solved), (residual - explained).max(ROUNDING * ROUNDING * energy));
            let noise = panel.noise.unwrap_or((own / freedom[1]).max(f64::MIN_POSITIVE));
            (one - own).max(0.0) / freedom[0].max(1.0) / noise
        })
    };
    let found = statistics(&|_| [1.0; LANES])[0];
    let tells = freedom[1] >= LEAST_FREEDOM && freedom[0] >= 1.0 && residual > ROUNDING * ROUNDING * energy;
    let p = tells.then(|| {
        let bits = |draw: usize| -> Vec<u64> {
            let mut random = key.clone().number(draw as u64).rng();
            (0..(parts.len() * folds).div_ceil(u64::BITS as usize)).map(|_| random.random()).collect()
        };
        let draws = |first: usize| {
            let bits: [Vec<u64>; LANES] = std::array::from_fn(|lane| bits(first + lane));
            let sign = |at: usize| -> Lanes {
                bits.each_ref().map(|bits| 1.0 - 2.0 * (bits[at / 64] >> (at % 64) & 1) as f64)
            };
            let beyond = |value: &&f64| **value >= found * (1.0 - ROUNDING);
            statistics(&sign).iter().take(DRAWS - first).filter(beyond).count()
        };
        let beyond: usize = (0..DRAWS.div_ceil(LANES)).into_par_iter().map(|batch| draws(batch * LANES)).sum();
        (1 + beyond) as f64 / (DRAWS + 1) as f64
    });
    Difference { statistic: if tells { found } else { 0.0 }, freedom, p, between }
}
