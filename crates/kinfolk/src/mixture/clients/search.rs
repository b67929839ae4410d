//! Families of clients or a continuum, and how many: like `families/search.rs`, of weights instead of coefficients.
//!
//! One family more needs a better likelihood of clients that were held out, by more than a standard error; a valley in the density of
//! clients between any two families; and a likelihood ratio beyond those of clients simulated with one family less.

use super::counts::Counts;
use super::dirichlet::Families;
use crate::clustering::{Points, kmeans};
use crate::families::{Gain, LEAST_CLIENTS, VALLEY, valley_between};
use crate::rng::{Key, Rng};
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Gamma};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

const MOST_FAMILIES: usize = 20;
const CLIENTS_PER_FAMILY: usize = 5;
const PARTS: usize = 5;
const SIMULATIONS: usize = 99;
const BATCH: usize = 11;
const LEVEL: f64 = 0.05;
/// Numbers of families that are tried beyond the best so far.
const PATIENCE: usize = 2;

/// One more family, and what speaks for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FamilyStep {
    pub(crate) families: usize,
    /// Gain of log-likelihood of clients that were held out, in sum, over one family less.
    pub(crate) held_out: Gain,
    /// The largest, over pairs of families, of the least density between them over the lower mode.
    pub(crate) valley: f64,
    /// p-value of the likelihood ratio; absent where something else spoke against it.
    pub(crate) p: Option<f64>,
    pub(crate) taken: bool,
}

/// Exactly so many families.
pub(crate) fn fit_families(counts: &Counts, families: usize, key: &Key) -> Families {
    const STARTS: u64 = 3;
    if families < 2 || counts.len() < families {
        return Families::one(counts);
    }
    let points: Vec<f64> = counts
        .each()
        .flat_map(|own| {
            let all = own.iter().sum::<f64>().max(1e-9);
            own.iter().map(move |count| (count / all).sqrt())
        })
        .collect();
    let start = |start: u64| -> Option<Families> {
        let options = kmeans::Options { starts: 5, iterations: 50 };
        let points = Points::new(&points, counts.components).ok()?;
        let found = kmeans::cluster(points, families, &options, &key.clone().number(start)).ok()?;
        let members = |family: usize| {
            let labels = found.clustering.labels.iter();
            labels.map(|label| if *label == family { 0.9 } else { 0.1 / (families - 1) as f64 }).collect()
        };
        let members: Vec<Vec<f64>> = (0..families).map(members).collect();
        Some(Families::begin(counts, &members).improved(counts))
    };
    let fits = (0..STARTS).filter_map(start);
    let best = fits.max_by(|a, b| a.log_likelihood.total_cmp(&b.log_likelihood));
    best.unwrap_or_else(|| Families::one(counts)).ordered()
}

/// The same families from other counts of the clients.
pub(crate) fn refit_families(families: &Families, counts: &Counts) -> Families {
    Families { log_likelihood: f64::NEG_INFINITY, ..families.clone() }.improved(counts)
}

/// As many families as are found, and what spoke for each.
pub(crate) fn search_families(counts: &Counts, key: &Key) -> (Families, Vec<FamilyStep>) {
    let clients = counts.len();
    let one = Families::one(counts);
    if clients < LEAST_CLIENTS || counts.components < 2 {
        return (one, Vec::new());
    }
    let mut order: Vec<usize> = (0..clients).collect();
    order.shuffle(&mut key.clone().word("parts").rng());
    // Held-out likelihoods of clients, by the number of families.
    let held_out = |families: usize| -> Vec<f64> {
        let parts: Vec<Vec<(usize, f64)>> = (0..PARTS)
            .into_par_iter()
            .map(|part| {
                let is_in = |place: usize| place % PARTS == part;
                let rest = counts.of((0..clients).filter(|&place| !is_in(place)).map(|place| order[place]));
                let fit = fit_families(&rest, families, &key.clone().word("part").number(part as u64));
                let all: Vec<&[f64]> = counts.each().collect();
                let mine = (0..clients).filter(|&place| is_in(place)).map(|place| order[place]);
                mine.map(|client| (client, fit.score(all[client]))).collect()
            })
            .collect();
        let mut scores = vec![0.0; clients];
        parts.into_iter().flatten().for_each(|(client, score)| scores[client] = score);
        scores
    };
    let most = MOST_FAMILIES.min(clients / CLIENTS_PER_FAMILY);
    let (mut fits, mut scores) = (vec![one], vec![held_out(1)]);
    let mut best = 0;
    while fits.len() < most && fits.len() <= best + PATIENCE {
        let families = fits.len() + 1;
        fits.push(fit_families(counts, families, &key.clone().word("fit").number(families as u64)));
        scores.push(held_out(families));
        let total = |place: usize| scores[place].iter().sum::<f64>();
        if total(families - 1) > total(best) {
            best = families - 1;
        }
    }
    let mut steps = Vec::new();
    // From the best downwards, the first that all speak for.
    for place in (1..=best).rev() {
        let gains: Vec<f64> = scores[place].iter().zip(&scores[place - 1]).map(|(more, less)| more - less).collect();
        let held_out = gain(&gains);
        let valley = valley(counts, &fits[place]);
        let mut step = FamilyStep { families: place + 1, held_out, valley, p: None, taken: false };
        if held_out.mean > held_out.error && valley <= VALLEY {
            let p = likelihood_ratio(
                counts,
                &fits[place - 1],
                &fits[place],
                &key.clone().word("ratio").number(place as u64),
            );
            (step.p, step.taken) = (Some(p), p < LEVEL);
        }
        let taken = step.taken;
        steps.push(step);
        if taken {
            return (fits.swap_remove(place), steps);
        }
    }
    (fits.swap_remove(0), steps)
}

/// A sum, and its standard error.
fn gain(values: &[f64]) -> Gain {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    Gain { mean: mean * count, error: (variance * count).sqrt() }
}

fn valley(counts: &Counts, fit: &Families) -> f64 {
    let most_probable = |own: &[f64]| {
        let responsibilities = fit.responsibilities(own);
        (0..fit.len())
            .fold(0, |best, family| if responsibilities[family] > responsibilities[best] { family } else { best })
    };
    let labels: Vec<usize> = counts.each().map(most_probable).collect();
    let mut worst: f64 = 0.0;
    for a in 0..fit.len() {
        for b in a + 1..fit.len() {
            let across: Vec<f64> = (0..counts.components)
                .map(|r| (fit.centres[b][r] - fit.centres[a][r]) / (fit.centres[a][r] + fit.centres[b][r]))
                .collect();
            let on = |family: usize| -> Vec<f64> {
                let members = counts.each().zip(&labels).filter(|(_, label)| **label == family);
                members.map(|(own, _)| crate::num::dot(own, &across) / own.iter().sum::<f64>().max(1e-9)).collect()
            };
            worst = worst.max(valley_between(&on(a), &on(b)));
        }
    }
    worst
}

/// The p-value of more families against less. Ends early where it is clearly above the level.
fn likelihood_ratio(counts: &Counts, less: &Families, more: &Families, key: &Key) -> f64 {
    let found = more.log_likelihood - less.log_likelihood;
    let simulation = |number: usize| {
        let key = key.clone().number(number as u64);
        let drawn = simulate(counts, less, &mut key.rng());
        let null = refit_families(less, &drawn);
        fit_families(&drawn, more.len(), &key).log_likelihood - null.log_likelihood >= found
    };
    let (mut beyond, mut made) = (0, 0);
    while made < SIMULATIONS && (1 + beyond) as f64 / ((SIMULATIONS + 1) as f64) < LEVEL {
        beyond += (made..made + BATCH).into_par_iter().filter(|number| simulation(*number)).count();
        made += BATCH;
    }
    (1 + beyond) as f64 / (made + 1) as f64
}

/// Clients as the families say, with as many rows as there are.
fn simulate(counts: &Counts, families: &Families, random: &mut Rng) -> Counts {
    let mut values = Vec::with_capacity(counts.values.len());
    for own in counts.each() {
        let rows: f64 = own.iter().sum();
        let family = pick(&families.shares, random);
        values.extend(draw_counts(&families.centres[family], families.strength, rows, random));
    }
    Counts { components: counts.components, values }
}

/// Counts of a client whose weights spread around these.
pub(super) fn draw_counts(centre: &[f64], strength: f64, rows: f64, random: &mut Rng) -> Vec<f64> {
    let mut gammas: Vec<f64> = centre
        .iter()
        .map(|weight| Gamma::new((strength * weight).max(1e-9), 1.0).map_or(*weight, |gamma| gamma.sample(random)))
        .collect();
    let all: f64 = gammas.iter().sum();
    match all > 0.0 {
        true => gammas.iter_mut().for_each(|gamma| *gamma /= all),
        false => gammas.copy_from_slice(centre),
    }
    let mut drawn = vec![0.0; centre.len()];
    let whole = rows.floor();
    (0..whole as usize).for_each(|_| drawn[pick(&gammas, random)] += 1.0);
    if rows > whole {
        drawn[pick(&gammas, random)] += rows - whole;
    }
    drawn
}

fn pick(weights: &[f64], random: &mut Rng) -> usize {
    let mut left = random.random::<f64>() * weights.iter().sum::<f64>();
    for (place, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return place;
        }
    }
    weights.len() - 1
}

/// How far counts are from a family's weights, in deviations of its members.
pub(crate) fn distance(counts: &[f64], centre: &[f64], strength: f64) -> f64 {
    let rows = counts.iter().sum::<f64>().max(1e-9);
    // The variance of a share: of the rows, and of the members' weights.
    let spread = (1.0 / rows + 1.0 / (1.0 + strength)).min(1.0);
    let parts = counts.iter().zip(centre).map(|(count, weight)| (count / rows - weight).powi(2) / weight.max(1e-9));
    (parts.sum::<f64>() / spread).sqrt()
}

/// The probability that a member of a family with so many rows is as far from it.
pub(crate) fn surprise(found: f64, centre: &[f64], strength: f64, rows: f64, key: &Key) -> f64 {
    const DRAWS: usize = 999;
    let mut random = key.rng();
    let beyond =
        (0..DRAWS).filter(|_| distance(&draw_counts(centre, strength, rows, &mut random), centre, strength) >= found);
    (1 + beyond.count()) as f64 / (DRAWS + 1) as f64
}
