//! How many components there are, and where.

use super::*;
use crate::num::Spectrum;

/// Upper bound on the components that are tried.
pub(super) const MOST: usize = 30;
/// Rows that every component has in the mean at least, as many times as its centre has columns.
const ROWS_PER_COLUMN: usize = 3;
/// Numbers of components that are tried beyond the best so far.
const PATIENCE: usize = 2;
/// Splits that are tried, and steps of EM after which the best of them goes on.
const SPLITS: usize = 8;
const SHORT: usize = 6;
/// Steps of EM at most, and the gain of the log-likelihood by row at which they end.
const LONG: usize = 60;
const TOLERANCE: f64 = 5e-5;
/// The scatter that every component has beside its rows', like so many rows.
const PRIOR_ROWS: f64 = 1.0;

/// A number of components and a scatter that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tried {
    pub(crate) components: usize,
    /// Whether every component has a full covariance; else a variance for every column.
    pub(crate) full: bool,
    /// Mean log density of held-out rows, its difference from the best, and the standard error of that.
    pub(crate) held_out: f64,
    pub(crate) short_of_best: Gain,
    pub(crate) chosen: bool,
}

/// The components.
pub(super) struct Found {
    pub(super) shape: Shape,
    pub(super) params: Vec<f64>,
    /// Those without each fold.
    pub(super) by_fold: Vec<Vec<f64>>,
    pub(super) tried: Vec<Tried>,
}

/// A mixture of all rows, those without each fold, and how likely these are: one number for every client and fold, in order.
struct Attempt {
    shape: Shape,
    params: Vec<f64>,
    by_fold: Vec<Vec<f64>>,
    cells: Vec<f64>,
    rows: Vec<f64>,
    /// Of all rows, in the mixture that saw them.
    log_likelihood: f64,
}

impl Attempt {
    fn held_out(&self) -> f64 {
        self.cells.iter().sum::<f64>() / self.rows.iter().sum::<f64>().max(1.0)
    }

    /// The criterion of Bayes: what the parameters cost beside what they explain.
    fn bic(&self) -> f64 {
        self.shape.free_parameters() as f64 * self.rows.iter().sum::<f64>().max(1.0).ln() - 2.0 * self.log_likelihood
    }

    /// By how much another is better by row, and the standard error of that over clients and folds.
    fn short_of(&self, other: &Self) -> Gain {
        let all: f64 = self.rows.iter().sum::<f64>().max(1.0);
        let gains: Vec<f64> = other.cells.iter().zip(&self.cells).map(|(other, own)| other - own).collect();
        let mean = gains.iter().sum::<f64>() / all;
        let squares = gains.iter().zip(&self.rows).map(|(gain, rows)| (gain - rows * mean).powi(2));
        Gain { mean, error: squares.sum::<f64>().sqrt() / all }
    }
}

impl Study<'_, '_> {
    /// The number of components, their scatter, and where they are.
    pub(super) fn components(&mut self, columns: usize, rows: &[usize], clients: &[u32]) -> Result<Found> {
        let to = Recipients::list(clients.to_vec());
        let all: usize = clients.iter().map(|&client| rows[client as usize]).sum();
        let most = MOST.min(all / (ROWS_PER_COLUMN * (columns + 1)).max(5)).max(1);
        let fixed = self.wishes.components;
        if fixed.is_some_and(|components| components > most) {
            let message = format!("components: got {}, want at most {most} for {all} rows", fixed.unwrap_or(0));
            return Err(Error::settings(message));
        }
        let most = fixed.unwrap_or(most);
        // One column has no covariances.
        let scatters =
            if columns == 1 { vec![Covariance::Diagonal] } else { vec![Covariance::Diagonal, Covariance::Full] };
        let mut paths: Vec<Vec<Attempt>> = scatters.iter().map(|_| Vec::new()).collect();
        for components in 1..=most {
            let going: Vec<usize> = (0..paths.len()).filter(|&path| fixed.is_some() || goes_on(&paths, path)).collect();
            if going.is_empty() {
                break;
            }
            let mut starts = Vec::new();
            for &path in &going {
                let shape = Shape { family: Family::Gaussian(scatters[path]), components, columns };
                starts.push(match paths[path].last() {
                    None => vec![FoldMixture { shape, params: standard(&shape), without: None }],
                    Some(less) => splits(less),
                });
            }
            let starts = self.best_starts(starts, &to)?;
            let attempts = self.attempt(starts, &to)?;
            going.into_iter().zip(attempts).for_each(|(path, attempt)| paths[path].push(attempt));
        }
        if let Some(components) = fixed {
            paths.iter_mut().for_each(|path| drop(path.drain(..components - 1)));
        }
        choose(paths.into_iter().flatten().collect())
    }

    /// Of every list the mixture that is likeliest after a few steps.
    fn best_starts(&mut self, starts: Vec<Vec<FoldMixture>>, to: &Recipients) -> Result<Vec<FoldMixture>> {
        let lengths: Vec<usize> = starts.iter().map(Vec::len).collect();
        let all: Vec<FoldMixture> = starts.into_iter().flatten().collect();
        let mut ran = if lengths.iter().all(|length| *length == 1) {
            all.into_iter().map(|mixture| (mixture, 0.0)).collect()
        } else {
            self.run(all, SHORT, to)?
        };
        let mut best = Vec::new();
        for length in lengths {
            let own = ran.drain(..length).reduce(|best, next| if next.1 > best.1 { next } else { best });
            best.extend(own.map(|(mixture, _)| mixture));
        }
        Ok(best)
    }

    /// EM of all mixtures at once: each ask is a step of all that have not converged.
    fn run(
        &mut self,
        mut mixtures: Vec<FoldMixture>,
        steps: usize,
        to: &Recipients,
    ) -> Result<Vec<(FoldMixture, f64)>> {
        let mut likelihoods = vec![f64::NEG_INFINITY; mixtures.len()];
        let mut going: Vec<usize> = (0..mixtures.len()).collect();
        for _ in 0..steps {
            let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Sum { by: By::All, weight: Weight::Uniform });
            let asked = going.iter().map(|&place| mixtures[place].clone()).collect();
            let order = ask.order(to.clone(), SumMixtures { folds: self.folds, mixtures: asked, score: false });
            let answers = self.ask(&ask)?;
            let Some(sum) = answers.of(order).sums().first().filter(|sum| sum.count > 0) else {
                return Err(nobody_answered());
            };
            let mut rest = &sum.total[..];
            let mut left = Vec::new();
            for &place in &going {
                let FoldMixture { shape, params, .. } = &mut mixtures[place];
                let (own, more) = rest.split_at(Statistics::packed_len(shape, Detail::Full));
                rest = more;
                let statistics = Statistics::unpack(shape, Detail::Full, own);
                step(shape, &statistics, params);
                let before = std::mem::replace(&mut likelihoods[place], statistics.log_likelihood);
                if statistics.log_likelihood - before > TOLERANCE * statistics.rows {
                    left.push(place);
                }
            }
            going = left;
            if going.is_empty() {
                break;
            }
        }
        Ok(mixtures.into_iter().zip(likelihoods).collect())
    }

    /// From these starts to where EM ends, with all rows and without each fold.
    fn attempt(&mut self, starts: Vec<FoldMixture>, to: &Recipients) -> Result<Vec<Attempt>> {
        let each = 1 + FOLDS as usize;
        let with_folds = |start: &FoldMixture| {
            let without = [None].into_iter().chain((0..FOLDS).map(Some));
            without.map(|without| FoldMixture { without, ..start.clone() }).collect::<Vec<_>>()
        };
        let ran = self.run(starts.iter().flat_map(with_folds).collect(), LONG, to)?;
        let (mixtures, likelihoods): (Vec<FoldMixture>, Vec<f64>) = ran.into_iter().unzip();
        let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Sum { by: By::All, weight: Weight::Uniform });
        let folds = mixtures.iter().filter(|mixture| mixture.without.is_some()).cloned().collect();
        let order = ask.order(to.clone(), SumMixtures { folds: self.folds, mixtures: folds, score: true });
        let answers = self.ask(&ask)?;
        let held_out: Vec<_> = answers.of(order).each().collect();
        let attempt = |(place, mixtures): (usize, &[FoldMixture])| {
            let (mut cells, mut rows) = (Vec::new(), Vec::new());
            for (_, sums) in &held_out {
                let own = place * (each - 1)..(place + 1) * (each - 1);
                cells.extend_from_slice(&sums.likelihoods[own.clone()]);
                rows.extend(sums.rows[own].iter().map(|&rows| f64::from(rows)));
            }
            let by_fold = mixtures[1..].iter().map(|mixture| mixture.params.clone()).collect();
            Attempt {
                shape: mixtures[0].shape,
                params: mixtures[0].params.clone(),
                by_fold,
                cells,
                rows,
                log_likelihood: likelihoods[place * each],
            }
        };
        Ok(mixtures.chunks_exact(each).enumerate().map(attempt).collect())
    }
}

/// Whether more components may be better than the best so far: neither the last ones of this scatter were, nor has it more parameters than
/// what is better.
fn goes_on(paths: &[Vec<Attempt>], path: usize) -> bool {
    let own = &paths[path];
    let best = (0..own.len()).fold(0, |best, at| if own[at].held_out() > own[best].held_out() { at } else { best });
    let is_beaten = |last: &Attempt, other: &Attempt| {
        other.held_out() > last.held_out() && other.shape.free_parameters() < last.shape.free_parameters()
    };
    let others = || paths.iter().enumerate().filter(|(other, _)| *other != path).flat_map(|(_, attempts)| attempts);
    own.len() <= best + PATIENCE && !own.last().is_some_and(|last| others().any(|other| is_beaten(last, other)))
}

/// The mixture with the fewest parameters that is short of the best by at most one standard error, or by less than parameters cost (BIC):
/// numbers of components that were tried in turn give chance its opportunities.
fn choose(mut attempts: Vec<Attempt>) -> Result<Found> {
    let best = (0..attempts.len())
        .filter(|&at| attempts[at].held_out().is_finite())
        .reduce(|best, at| if attempts[at].held_out() > attempts[best].held_out() { at } else { best })
        .ok_or_else(|| Error::new(ErrorKind::Diverged, "no mixture has a likelihood that is a number"))?;
    let short: Vec<Gain> = attempts.iter().map(|attempt| attempt.short_of(&attempts[best])).collect();
    let is_near = |at: usize| short[at].mean <= short[at].error || attempts[at].bic() <= attempts[best].bic();
    let near = (0..attempts.len()).filter(|&at| is_near(at));
    let chosen = near.min_by_key(|&at| attempts[at].shape.free_parameters()).unwrap_or(best);
    let tried = |(at, attempt): (usize, &Attempt)| Tried {
        components: attempt.shape.components,
        full: attempt.shape.family == Family::Gaussian(Covariance::Full),
        held_out: attempt.held_out(),
        short_of_best: short[at],
        chosen: at == chosen,
    };
    let tried = attempts.iter().enumerate().map(tried).collect();
    let Attempt { shape, params, by_fold, .. } = attempts.swap_remove(chosen);
    // The most frequent first.
    let weights = &params[shape.weights()];
    let mut order: Vec<usize> = (0..shape.components).collect();
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
    let ordered = |params: &Vec<f64>| pick(&shape, params, &order).1;
    Ok(Found { shape, params: ordered(&params), by_fold: by_fold.iter().map(ordered).collect(), tried })
}

/// One component of standardised columns.
fn standard(shape: &Shape) -> Vec<f64> {
    let columns = shape.columns;
    let mut params = vec![0.0; shape.len()];
    let stride = if shape.family == Family::Gaussian(Covariance::Full) { columns + 1 } else { 1 };
    params[shape.scatter()].iter_mut().step_by(stride).for_each(|value| *value = 1.0);
    params[shape.weights()].fill(1.0);
    params
}

/// The M-step, with a little of the columns' variance in every component's: none collapses on a few rows.
pub(super) fn step(shape: &Shape, statistics: &Statistics, params: &mut [f64]) {
    maximise(shape, statistics, params);
    let columns = shape.columns;
    // Columns have variance 1, and components a part of that.
    let usual = (shape.components as f64).powf(-2.0 / columns as f64);
    let is_full = shape.family == Family::Gaussian(Covariance::Full);
    let size = if is_full { columns * columns } else { columns };
    let scatters = params[shape.scatter()].chunks_exact_mut(size);
    for (scatter, members) in scatters.zip(&statistics.members) {
        let share = members.max(0.0) / (members.max(0.0) + PRIOR_ROWS);
        scatter.iter_mut().for_each(|value| *value *= share);
        let stride = if is_full { columns + 1 } else { 1 };
        scatter.iter_mut().step_by(stride).for_each(|value| *value += (1.0 - share) * usual);
    }
}

/// The covariance of a component, row-major.
pub(crate) fn covariance(shape: &Shape, params: &[f64], component: usize) -> Vec<f64> {
    let columns = shape.columns;
    let scatter = &params[shape.scatter()];
    if shape.family == Family::Gaussian(Covariance::Full) {
        return scatter[component * columns * columns..][..columns * columns].to_vec();
    }
    let mut covariance = vec![0.0; columns * columns];
    let variances = &scatter[component * columns..][..columns];
    covariance.iter_mut().step_by(columns + 1).zip(variances).for_each(|(cell, variance)| *cell = *variance);
    covariance
}

/// Some of the components.
pub(super) fn pick(shape: &Shape, params: &[f64], components: &[usize]) -> (Shape, Vec<f64>) {
    let fewer = Shape { components: components.len(), ..*shape };
    let mut picked = Vec::with_capacity(fewer.len());
    for range in [shape.centres(), shape.scatter(), shape.weights()] {
        let part = &params[range];
        let size = part.len() / shape.components;
        components.iter().for_each(|component| picked.extend_from_slice(&part[component * size..][..size]));
    }
    (fewer, picked)
}

/// Mixtures with one component more: the widest of this one, each cut in two across one of its two longest axes.
fn splits(less: &Attempt) -> Vec<FoldMixture> {
    /// Where the halves of a normal distribution have their means, and the share of its variance that this is: √(2/π), 2/π.
    const HALF: f64 = 0.797_884_560_802_865_4;
    let (shape, columns) = (less.shape, less.shape.columns);
    let mut cuts: Vec<(f64, usize, Vec<f64>)> = Vec::new();
    for (component, weight) in less.params[shape.weights()].iter().enumerate() {
        let Some(spectrum) = Spectrum::new(&covariance(&shape, &less.params, component), columns) else { continue };
        for (variance, axis) in spectrum.descending().take(2) {
            let step: Vec<f64> = axis.iter().map(|value| value * variance.sqrt() * HALF).collect();
            cuts.push((weight * variance, component, step));
        }
    }
    cuts.sort_by(|a, b| b.0.total_cmp(&a.0));
    cuts.truncate(SPLITS);
    let more = Shape { components: shape.components + 1, ..shape };
    let cut = |(_, component, step): (f64, usize, Vec<f64>)| {
        let order: Vec<usize> = (0..shape.components).chain([component]).collect();
        let (_, mut params) = pick(&shape, &less.params, &order);
        let last = shape.components;
        for (component, sign) in [(component, 1.0), (last, -1.0)] {
            add_scaled(&mut params[component * columns..][..columns], sign, &step);
            let scatter = &mut params[more.scatter()];
            if shape.family == Family::Gaussian(Covariance::Full) {
                let matrix = &mut scatter[component * columns * columns..][..columns * columns];
                let lines = matrix.chunks_exact_mut(columns).zip(&step);
                lines.for_each(|(line, value)| add_scaled(line, -value, &step));
            } else {
                let variances = &mut scatter[component * columns..][..columns];
                variances.iter_mut().zip(&step).for_each(|(variance, value)| *variance -= value * value);
            }
            params[more.weights()][component] *= 0.5;
        }
        FoldMixture { shape: more, params, without: None }
    };
    cuts.into_iter().map(cut).collect()
}
