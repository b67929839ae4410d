//! Families or a continuum, and how many?
//!
//! Numbers of families are fitted as long as clients that were held out become more likely. From the largest of these downwards, one is
//! taken when its last family has three things to say for itself: a likelihood ratio beyond those of data simulated with one family less; a
//! likelihood of held-out clients that is better by more than a standard error; and a valley in the density of clients between any two
//! families. A skewed or heavy-tailed continuum has the first two, but no valley.

use super::difference::Difference;
use super::evidence::{Panel, Working};
use super::ladder::Gain;
use super::learned::{Options, Wanted};
use super::mixed::{Covariance, Integrated, root};
use super::mixture::{Em, Mixture};
use super::population::Population;
use crate::clustering::quality::match_clusters;
use crate::clustering::{Points, adjusted_rand_index, kmeans};
use crate::error::{Error, Result};
use crate::num::triangular::{factorise, solve};
use crate::num::{add_scaled, dot};
use crate::rng::Key;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_distr::{ChiSquared, Distribution, StandardNormal};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Clients below which families are not told from a continuum.
pub(crate) const LEAST_CLIENTS: usize = 20;
/// The most families that are looked for, and how many clients there must be for each.
const MOST_FAMILIES: usize = 20;
const CLIENTS_PER_FAMILY: usize = 5;
/// Clients among which numbers of families are compared: of more, so many are drawn. Families of a share below a hundredth are not seen then.
const COMPARED: usize = 400;
/// Numbers of families that are tried beyond the best so far.
const PATIENCE: usize = 3;
/// Parts of the clients that are held out in turn.
const PARTS: usize = 5;
/// Simulated panels for the likelihood ratio, how many are made before it is asked whether more are needed, and the level.
const SIMULATIONS: usize = 99;
const BATCH: usize = 11;
const LEVEL: f64 = 0.05;
/// The deepest density between two families, over the lower mode, at which they are two.
pub(crate) const VALLEY: f64 = 0.5;
/// Draws of clients for the stability; panels that are simulated for comparison, and draws of the clients of each.
const RESAMPLES: usize = 19;
const SIMULATED: usize = 19;
const DRAWS_EACH: usize = 3;
/// Share of a client's estimate that is signal above which it is clustered at the start.
const RELIABLE: f64 = 0.5;

/// One more family, and what speaks for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// How many families that would be.
    pub families: usize,
    /// p-value of the likelihood ratio against one less, by parametric bootstrap; absent where something else spoke against it already.
    pub p: Option<f64>,
    /// Gain of log-likelihood of clients that were held out, in sum, over one family less.
    pub held_out: Gain,
    /// The largest, over pairs of families, of the least density between them over the lower of their modes.
    pub valley: f64,
    /// Whether all three speak for it.
    pub taken: bool,
}

/// Whether families come out the same when clients are drawn anew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stability {
    /// The mean adjusted Rand index between the families and those of resamples,
    pub agreement: f64,
    /// that of the first few of them,
    #[serde(default)]
    pub compared: f64,
    /// and the lower 5 % quantile of the latter if the model were true: the least of 19 that are simulated with as many resamples each, of
    /// which it would be one.
    pub expected: f64,
    /// Of each client, the share of resamples in which it stayed in its family.
    pub clients: Vec<f64>,
}

/// How the number of families was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// How many there are.
    pub families: usize,
    /// Whether that was looked for, or else given.
    pub searched: bool,
    /// The numbers that were considered, from the largest.
    pub steps: Vec<Step>,
    /// How stable they are, where there are several.
    pub stability: Option<Stability>,
}

/// Finds their number; and where it is more than one, the families to begin with.
pub(crate) fn search(
    working: &Working,
    left: &Panel,
    one: &Population,
    covariance: Covariance,
    difference: &Difference,
    options: &Options,
    key: &Key,
) -> Result<(Search, Option<Population>)> {
    let clients = left.clients();
    let given = |families| Search { families, searched: false, steps: Vec::new(), stability: None };
    let coarse = if covariance == Covariance::Scalar { Covariance::Scalar } else { Covariance::InterceptSlopes };
    let mut drawn: Vec<usize> = (0..clients).collect();
    if clients > COMPARED {
        drawn.shuffle(&mut key.clone().word("compared").rng());
        drawn.truncate(COMPARED);
        drawn.sort_unstable();
    }
    let sample = left.subset(&drawn);
    let seeker = Seeker::new(&sample, one, coarse.entries(left.random, working.basis.intercepts()));
    match &options.families {
        Wanted::One => Ok((given(1), None)),
        Wanted::Known(labels) => {
            let families = labels.iter().map(|label| label + 1).max().unwrap_or(1);
            let alike = |_| one.centres[0].clone();
            let start = Population {
                shares: (0..families)
                    .map(|k| labels.iter().filter(|label| **label == k).count() as f64 / clients as f64)
                    .collect(),
                centres: (0..families).map(alike).collect(),
                covariances: Vec::new(),
                ..one.clone()
            };
            if start.shares.contains(&0.0) {
                return Err(Error::data(
                    "families: got a family without clients, want the numbers from 0 on, each with a client",
                ));
            }
            Ok((given(families), (families > 1).then_some(start)))
        }
        Wanted::Exactly(families) => {
            if *families == 0 || *families > clients {
                let message = format!("families: got {families}, want at least 1 and at most the {clients} clients");
                return Err(Error::settings(message));
            }
            if *families == 1 {
                return Ok((given(1), None));
            }
            let found = seeker.fit(left, *families, &key.clone().word("start"))?;
            let stability = seeker.stability(left, &found, key)?;
            Ok((Search { stability: Some(stability), ..given(*families) }, Some(seeker.population(&found, one))))
        }
        Wanted::Auto => {
            let none = Search { searched: true, ..given(1) };
            if !difference.found() || clients < LEAST_CLIENTS || left.random == 0 {
                return Ok((none, None));
            }
            let (steps, found) = climb(&seeker, key)?;
            let Some(found) = found else { return Ok((Search { steps, ..none }, None)) };
            let found =
                if sample.clients() < clients { ordered(seeker.em(left).run(found), left.random) } else { found };
            let stability = Some(seeker.stability(left, &found, key)?);
            let search = Search { families: found.families(), searched: true, steps, stability };
            Ok((search, Some(seeker.population(&found, one))))
        }
    }
}

/// Fits of all numbers of families that are worth it, and the decision.
fn climb(seeker: &Seeker, key: &Key) -> Result<(Vec<Step>, Option<Mixture>)> {
    let clients = seeker.panel.clients();
    let most = MOST_FAMILIES.min(clients / CLIENTS_PER_FAMILY);
    let mut order: Vec<usize> = (0..clients).collect();
    order.shuffle(&mut key.clone().word("held out").rng());
    let parts: Vec<(Panel, Vec<usize>, Panel)> = (0..PARTS)
        .map(|part| {
            let (mut inside, mut outside): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
            order
                .iter()
                .enumerate()
                .for_each(|(at, &client)| if at % PARTS == part { &mut outside } else { &mut inside }.push(client));
            (seeker.panel.subset(&inside), outside.clone(), seeker.panel.subset(&outside))
        })
        .collect();
    let held_out = |families: usize| -> Result<Vec<f64>> {
        let part = |(inside, names, outside): &(Panel, Vec<usize>, Panel)| {
            let fit = seeker.fit(inside, families, &key.clone().word("held out").number(families as u64))?;
            Ok(names.iter().copied().zip(seeker.em(outside).log_likelihoods(&fit)).collect::<Vec<_>>())
        };
        let mut each = vec![0.0; clients];
        for (client, value) in parts.par_iter().map(part).collect::<Result<Vec<_>>>()?.into_iter().flatten() {
            each[client] = value;
        }
        Ok(each)
    };
    // Numbers of families from 1 on, by their held-out likelihoods.
    let mut likelihoods = vec![held_out(1)?];
    let total = |values: &[f64]| values.iter().sum::<f64>();
    let mut best = 1;
    while likelihoods.len() < most && likelihoods.len() < best + PATIENCE {
        likelihoods.push(held_out(likelihoods.len() + 1)?);
        let (last, so_far) = (likelihoods.len(), total(&likelihoods[best - 1]));
        if total(&likelihoods[last - 1]) > so_far {
            best = last;
        }
    }
    let mut steps = Vec::new();
    for families in (2..=best).rev() {
        let gains: Vec<f64> = (likelihoods[families - 1].iter().zip(&likelihoods[families - 2]))
            .map(|(more, less)| more - less)
            .collect();
        let (sum, count) = (total(&gains), clients as f64);
        let variance = gains.iter().map(|gain| (gain - sum / count).powi(2)).sum::<f64>() / (count - 1.0);
        let gain = Gain { mean: sum, error: (variance * count).sqrt() };
        let more = seeker.fit(seeker.panel, families, &key.clone().word("start").number(families as u64))?;
        let valley = seeker.valley(&more);
        let mut step = Step { families, p: None, held_out: gain, valley, taken: false };
        if gain.mean > gain.error && valley <= VALLEY {
            let less =
                seeker.fit(seeker.panel, families - 1, &key.clone().word("start").number(families as u64 - 1))?;
            let p = seeker.likelihood_ratio(&less, &more, &key.clone().word("simulate").number(families as u64))?;
            step = Step { p: Some(p), taken: p < LEVEL, ..step };
        }
        let taken = step.taken;
        steps.push(step);
        if taken {
            return Ok((steps, Some(more)));
        }
    }
    Ok((steps, None))
}

/// What fits of the same clients share: their estimates, as points to begin with.
struct Seeker<'a> {
    panel: &'a Panel,
    entries: Vec<Vec<(usize, usize)>>,
    /// Parameters of `Λ` and noise with one family.
    parameters: Vec<f64>,
    noise: f64,
    root: Vec<f64>,
    centre: Vec<f64>,
}

/// Estimates of clients whose rows say enough, in coordinates in which estimates of one family spread alike in all directions. They are
/// those expected with one family: where rows hardly determine a direction, a client's own minimiser may be anywhere in it.
struct Estimates {
    clients: Vec<usize>,
    /// As coefficients, and as points.
    models: Vec<f64>,
    points: Vec<f64>,
    /// The transposed factor `U` of the metric, `UᵀU` = spread and a typical client's uncertainty.
    factor: Vec<f64>,
}

impl<'a> Seeker<'a> {
    fn new(panel: &'a Panel, one: &Population, entries: Vec<Vec<(usize, usize)>>) -> Self {
        let q = panel.random;
        let root_of = |entries: &Vec<(usize, usize)>| {
            let squares =
                entries.iter().map(|&(i, _)| dot(&one.root[i * q..(i + 1) * q], &one.root[i * q..(i + 1) * q]));
            (squares.sum::<f64>() / entries.len() as f64).sqrt()
        };
        let parameters: Vec<f64> = entries.iter().map(root_of).collect();
        let centre = one.centres[0][..q].to_vec();
        Self { panel, root: root(&parameters, q, &entries), parameters, entries, noise: one.noise, centre }
    }

    fn em<'b>(&self, panel: &'b Panel) -> Em<'b> {
        Em { panel, entries: self.entries.clone(), known: None, restricted: None, iterations: 150, tolerance: 1e-3 }
    }

    fn population(&self, found: &Mixture, one: &Population) -> Population {
        let q = self.panel.random;
        let centre = |centre: &[f64]| [centre, &one.centres[0][q..]].concat();
        Population {
            shares: found.shares.clone(),
            centres: found.centres.chunks_exact(q).map(centre).collect(),
            covariances: Vec::new(),
            root: root(&found.parameters, q, &self.entries),
            bends: one.bends.clone(),
            noise: found.noise,
        }
    }

    /// A fit of this many families, which begins with k-means of clients' estimates. Families are numbered by their size.
    fn fit(&self, panel: &Panel, families: usize, key: &Key) -> Result<Mixture> {
        let q = panel.random;
        let estimates = self.estimates(panel);
        let start = |labels: &[usize], families: usize| {
            let (mut centres, mut counts) = (vec![0.0; families * q], vec![0.0; families]);
            for (model, &label) in estimates.models.chunks_exact(q).zip(labels) {
                add_scaled(&mut centres[label * q..(label + 1) * q], 1.0, model);
                counts[label] += 1.0;
            }
            for (centre, count) in centres.chunks_exact_mut(q).zip(&counts) {
                centre.iter_mut().for_each(|value| *value /= count);
            }
            let total: f64 = counts.iter().sum();
            Mixture {
                shares: counts.iter().map(|count| count / total).collect(),
                centres,
                // Families are narrower than all clients together.
                parameters: self
                    .parameters
                    .iter()
                    .map(|value| value.abs() / if families > 1 { 2.0 } else { 1.0 })
                    .collect(),
                noise: self.noise,
                log_likelihood: f64::NEG_INFINITY,
                responsibilities: Vec::new(),
            }
        };
        let count = estimates.clients.len();
        if families == 1 || count <= families {
            return Ok(self.em(panel).run(start(&vec![0; count], 1)));
        }
        let points = Points::new(&estimates.points, q)?;
        let options = kmeans::Options { starts: 8, ..kmeans::Options::default() };
        let by_means = kmeans::cluster(points, families, &options, key)?;
        let fit = self.em(panel).run(start(&by_means.clustering.labels, by_means.clustering.clusters()));
        Ok(ordered(fit, q))
    }

    /// Estimates of clients that are reliable; of the more reliable half where few are.
    fn estimates(&self, panel: &Panel) -> Estimates {
        let q = panel.random;
        let mut integrated = Integrated::new(q);
        let mut curvature = Vec::new();
        let mean = |j: usize| panel.curvature[j * (q + 1)] / panel.clients() as f64;
        let share = |j: usize| dot(&self.root[j * q..(j + 1) * q], &self.root[j * q..(j + 1) * q]);
        let counted: Vec<usize> = (0..q).filter(|&j| share(j) * mean(j) > 1e-3).collect();
        let mut expected = Vec::with_capacity(panel.clients() * q);
        let mut reliabilities: Vec<(f64, usize)> = (0..panel.clients())
            .map(|client| {
                integrated.set(&self.root, panel.slab(client), panel.moment(client));
                integrated.curvature(panel.slab(client), &mut curvature);
                let deviation = integrated.deviation(&self.root, &self.centre);
                expected.extend(self.centre.iter().zip(deviation).map(|(centre, deviation)| centre + deviation));
                let trace: f64 = counted.iter().map(|&j| share(j) * curvature[j * (q + 1)]).sum();
                (trace / counted.len().max(1) as f64, client)
            })
            .collect();
        let reliable = reliabilities.iter().filter(|(value, _)| *value >= RELIABLE).count();
        let take = reliable.max(panel.clients().div_ceil(2));
        reliabilities.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut clients: Vec<usize> = reliabilities[..take].iter().map(|(_, client)| *client).collect();
        clients.sort_unstable();
        // A typical client's uncertainty: that of the one in the middle.
        let (middle, mut factor, mut inverse) = (reliabilities[take / 2].1, Vec::new(), vec![0.0; q * q]);
        let mut gram = panel.slab(middle).to_vec();
        // As much as a thousandth of a row in every direction: its uncertainty is bounded.
        (0..q).for_each(|j| gram[j * (q + 1)] += 1e-3 * mean(j) / panel.rows[middle].max(1.0) + f64::MIN_POSITIVE);
        factorise(&gram, q, &mut factor);
        for (j, column) in inverse.chunks_exact_mut(q).enumerate() {
            column[j] = 1.0;
            solve(&factor, q, column);
        }
        for i in 0..q {
            for j in 0..q {
                inverse[i * q + j] += dot(&self.root[i * q..(i + 1) * q], &self.root[j * q..(j + 1) * q]);
            }
        }
        let mut metric = Vec::new();
        factorise(&inverse, q, &mut metric);
        let (mut models, mut points) = (Vec::with_capacity(take * q), Vec::with_capacity(take * q));
        for &client in &clients {
            let model = &expected[client * q..(client + 1) * q];
            models.extend_from_slice(model);
            points.extend(whitened(&metric, model));
        }
        Estimates { clients, models, points, factor: metric }
    }

    /// The largest, over pairs of families, of the least density of estimates between them over the lower mode.
    fn valley(&self, fit: &Mixture) -> f64 {
        let (q, labels) = (self.panel.random, fit.labels());
        let estimates = self.estimates(self.panel);
        let centres: Vec<Vec<f64>> =
            fit.centres.chunks_exact(q).map(|centre| whitened(&estimates.factor, centre)).collect();
        let mut worst: f64 = 0.0;
        for a in 0..centres.len() {
            for b in a + 1..centres.len() {
                let across: Vec<f64> = centres[b].iter().zip(&centres[a]).map(|(b, a)| b - a).collect();
                let on = |family: usize| {
                    let members = estimates.clients.iter().zip(estimates.points.chunks_exact(q));
                    members
                        .filter(|(client, _)| labels[**client] == family)
                        .map(|(_, point)| dot(point, &across))
                        .collect::<Vec<f64>>()
                };
                worst = worst.max(valley_between(&on(a), &on(b)));
            }
        }
        worst
    }

    /// The p-value of more families against less: ratios of likelihoods beyond the found one when data have the fewer families. Ends early
    /// where it is clearly above the level.
    fn likelihood_ratio(&self, less: &Mixture, more: &Mixture, key: &Key) -> Result<f64> {
        let found = more.log_likelihood - less.log_likelihood;
        let simulation = |number: usize| -> Result<bool> {
            let key = key.clone().number(number as u64);
            let panel = self.simulate(less, &key);
            let null = self.em(&panel).run(less.clone());
            let other = self.fit(&panel, more.families(), &key)?;
            Ok(other.log_likelihood - null.log_likelihood >= found)
        };
        let (mut beyond, mut made) = (0, 0);
        while made < SIMULATIONS && (1 + beyond) as f64 / ((SIMULATIONS + 1) as f64) < LEVEL {
            let batch: Vec<bool> = (made..made + BATCH).into_par_iter().map(simulation).collect::<Result<_>>()?;
            beyond += batch.iter().filter(|beyond| **beyond).count();
            made += BATCH;
        }
        Ok((1 + beyond) as f64 / (made + 1) as f64)
    }

    /// Families of clients drawn anew, given to all clients, against those of clients that come about as the fit says.
    fn stability(&self, all: &Panel, fit: &Mixture, key: &Key) -> Result<Stability> {
        let (labels, clients) = (self.em(all).labels(fit), self.panel.clients());
        let again = |panel: &Panel, all: &Panel, key: &Key| -> Result<Vec<usize>> {
            let mut random = key.rng();
            let drawn: Vec<usize> = (0..clients).map(|_| random.random_range(0..panel.clients())).collect();
            let refit = self.fit(&panel.subset(&drawn), fit.families(), key)?;
            Ok(self.em(all).labels(&refit))
        };
        let resample = |number: usize| again(all, all, &key.clone().word("resample").number(number as u64));
        let resamples: Vec<Vec<usize>> = (0..RESAMPLES).into_par_iter().map(resample).collect::<Result<_>>()?;
        let simulation = |number: usize| -> Result<f64> {
            let key = key.clone().word("stability").number(number as u64);
            let panel = self.simulate(fit, &key);
            let found = self.fit(&panel, fit.families(), &key)?.labels();
            let mut sum = 0.0;
            for draw in 0..DRAWS_EACH {
                let key = key.clone().word("resample").number(draw as u64);
                sum += adjusted_rand_index(&again(&panel, &panel, &key)?, &found);
            }
            Ok(sum / DRAWS_EACH as f64)
        };
        let simulated: Vec<f64> = (0..SIMULATED).into_par_iter().map(simulation).collect::<Result<_>>()?;
        let mut stayed = vec![0.0; all.clients()];
        for other in &resamples {
            let matching = match_clusters(other, &labels);
            for (client, label) in other.iter().enumerate() {
                if matching.pairs.contains(&(*label, labels[client])) {
                    stayed[client] += 1.0 / RESAMPLES as f64;
                }
            }
        }
        let agreements: Vec<f64> = resamples.iter().map(|other| adjusted_rand_index(other, &labels)).collect();
        Ok(Stability {
            agreement: agreements.iter().sum::<f64>() / RESAMPLES as f64,
            compared: agreements[..DRAWS_EACH].iter().sum::<f64>() / DRAWS_EACH as f64,
            expected: simulated.into_iter().fold(1.0, f64::min),
            clients: stayed,
        })
    }

    /// Clients as the fit says they come about, with the columns they have.
    fn simulate(&self, fit: &Mixture, key: &Key) -> Panel {
        let (q, panel) = (self.panel.random, self.panel);
        let root = root(&fit.parameters, q, &self.entries);
        let deviation = fit.noise.sqrt();
        let mut simulated = panel.clone();
        let mut random = key.rng();
        let mut factor = Vec::new();
        for client in 0..panel.clients() {
            let slab = panel.slab(client);
            let mut place: f64 = random.random();
            let family = fit.shares.iter().position(|share| {
                place -= share;
                place < 0.0
            });
            let family = family.unwrap_or(fit.families() - 1);
            let mut model = fit.centres[family * q..(family + 1) * q].to_vec();
            let draws: Vec<f64> = (0..q).map(|_| deviation * random.sample::<f64, _>(StandardNormal)).collect();
            (0..q).for_each(|i| model[i] += dot(&root[i * q..(i + 1) * q], &draws));
            // Xᵀe = Uᵀz with UᵀU = XᵀX; directions without rows have no noise.
            factorise(slab, q, &mut factor);
            let (mut noise, mut rank, mut square) = (vec![0.0; q], 0.0, 0.0);
            for j in 0..q {
                let pivot = factor[j * (q + 1)];
                if pivot * pivot > 1e-9 * slab[j * (q + 1)] {
                    let draw = deviation * random.sample::<f64, _>(StandardNormal);
                    add_scaled(&mut noise[j..], draw, &factor[j * q + j..(j + 1) * q]);
                    square += draw * draw;
                    rank += 1.0;
                }
            }
            let freedom = panel.rows[client] - rank;
            if let Ok(rest) = ChiSquared::new(freedom) {
                square += fit.noise * rest.sample(&mut random);
            }
            let moments = &mut simulated.moments[client * q..(client + 1) * q];
            let mut energy = square + 2.0 * dot(&model, &noise);
            for (i, row) in slab.chunks_exact(q).enumerate() {
                let fitted = dot(row, &model);
                energy += model[i] * fitted;
                moments[i] = fitted + noise[i];
            }
            simulated.energies[client] = energy;
        }
        simulated
    }
}

/// `U⁻ᵀx`.
fn whitened(factor: &[f64], vector: &[f64]) -> Vec<f64> {
    let size = vector.len();
    let mut left = vector.to_vec();
    for (at, row) in factor.chunks_exact(size).enumerate() {
        let value = left[at] / row[at];
        left[at] = value;
        add_scaled(&mut left[at + 1..], -value, &row[at + 1..]);
    }
    left
}

/// Families in the order of their size.
fn ordered(fit: Mixture, q: usize) -> Mixture {
    let mut order: Vec<usize> = (0..fit.families()).collect();
    order.sort_by(|&a, &b| fit.shares[b].total_cmp(&fit.shares[a]));
    let rows = fit.responsibilities.chunks_exact(fit.families());
    Mixture {
        shares: order.iter().map(|&k| fit.shares[k]).collect(),
        centres: order.iter().flat_map(|&k| fit.centres[k * q..(k + 1) * q].to_vec()).collect(),
        responsibilities: rows.flat_map(|row| order.iter().map(|&k| row[k])).collect(),
        ..fit
    }
}

/// The least density between two groups of numbers, the first below the second, over the lower of the modes on either side.
pub(crate) fn valley_between(low: &[f64], high: &[f64]) -> f64 {
    const GRID: usize = 60;
    let smaller = low.len().min(high.len());
    if smaller < CLIENTS_PER_FAMILY {
        return 1.0;
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let squares = |values: &[f64]| values.iter().map(|value| (value - mean(values)).powi(2)).sum::<f64>();
    let (from, to) = (mean(low), mean(high));
    if from >= to {
        return 1.0;
    }
    let within = ((squares(low) + squares(high)) / (low.len() + high.len() - 2) as f64).sqrt().max(1e-9 * (to - from));
    let bandwidth = 0.9 * within * (smaller as f64).powf(-0.2);
    let density = |at: f64| {
        let kernel = |value: &f64| (-0.5 * ((at - value) / bandwidth).powi(2)).exp();
        low.iter().map(kernel).sum::<f64>() + high.iter().map(kernel).sum::<f64>()
    };
    let between: Vec<f64> = (0..=GRID).map(|step| density(from + (to - from) * step as f64 / GRID as f64)).collect();
    let deepest = (0..=GRID).fold(0, |deepest, at| if between[at] < between[deepest] { at } else { deepest });
    // Modes may lie beyond the means.
    let outside = |mean: f64, sign: f64| {
        (1..=GRID / 2)
            .map(|step| density(mean + sign * 2.0 * within * step as f64 / (GRID / 2) as f64))
            .fold(0.0, f64::max)
    };
    let left = between[..=deepest].iter().fold(outside(from, -1.0), |mode, &value| value.max(mode));
    let right = between[deepest..].iter().fold(outside(to, 1.0), |mode, &value| value.max(mode));
    between[deepest] / left.min(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_groups_have_a_valley_and_one_has_none() {
        let group = |centre: f64| (0..20).map(|i| centre + (f64::from(i) - 9.5) / 6.0).collect::<Vec<f64>>();
        assert!(valley_between(&group(0.0), &group(8.0)) < 0.1);
        // One even stretch cut in two.
        assert!(valley_between(&group(0.0), &group(3.3)) > 0.9);
        assert_eq!(valley_between(&group(0.0), &[5.0, 5.0]), 1.0);
        assert_eq!(valley_between(&group(1.0), &group(0.0)), 1.0);
    }
}
