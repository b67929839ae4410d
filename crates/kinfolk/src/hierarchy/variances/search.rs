//! The search over the clients' strengths, a round at a time.

use super::{ClusterSums, Component, Design, Likelihood};
use crate::descent::Descent;
use crate::hierarchy::response::{Quadratic, trace};
use crate::num::{Spectrum, dot};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Ratios between these multiples of the data's curvature are searched; beyond them a variance is nothing.
const RANGE: (f64, f64) = (1e-6, 1e6);
/// The longest step, in logarithms.
const LONGEST: f64 = 7.0;
/// The step, in logarithms, at which a search by rounds ends, and one that costs none.
const TOLERANCE: (f64, f64) = (1e-6, 1e-10);
/// A pull that is nothing but rounding.
const SILENT: f64 = 1e-10;
/// What is near, in logarithms: there clusters with strengths of their own leave the common one.
const NEAR: f64 = 0.3;
/// The distance from the optimum, in standard errors, at which the search for a common strength ends, and for several.
const LEVEL: (f64, f64) = (1e-4, 1e-3);
/// Upper bound on the evaluations in a search.
const LOOKS: usize = 60;
/// The step, in logarithms, of the differences that make second derivatives.
const DIFFERENCE: f64 = 1e-3;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimates {
    /// `σ²`, of the noise.
    pub noise: f64,
    /// `σ_w²` of every cluster, of its clients around its centre. Where 0, they are one.
    pub within: Vec<f64>,
    /// `σ_b²`, of the centres around the global one; absent where there is one cluster only. Where 0, they are one.
    pub between: Option<f64>,
    pub standard_errors: StandardErrors,
    pub rounds: usize,
    pub notes: Vec<String>,
}

/// Standard errors of the estimates; absent where one is known, at a bound, or not identified.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StandardErrors {
    pub noise: Option<f64>,
    pub within: Vec<Option<f64>>,
    pub between: Option<f64>,
}

/// A search for variances: ask clients at [`VarianceSearch::wanted`], and hand the sums to [`VarianceSearch::tell`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VarianceSearch {
    design: Design,
    wanted: Vec<f64>,
    /// The last ratio of the noise and the centres, to start the next from.
    between: Option<f64>,
    phase: Phase,
    rounds: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Phase {
    /// One strength for all: the end, or where several begin.
    Common(Root),
    /// Every cluster its own, each logarithm stretched to units of its standard error.
    Together { descent: Descent, scales: Vec<f64> },
    /// One more round for the second derivatives.
    Closing(Closing),
}

/// The optimum, and what the second derivatives need of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Closing {
    estimates: Estimates,
    /// The ratio of the noise and the centres.
    ratio: f64,
    /// The clusters whose strength is at no bound, and those where it is at the lower one; where all share one, the
    /// first stands for them.
    free: Vec<usize>,
    lowest: Vec<usize>,
    gradient: Vec<f64>,
    /// How it changes with the logarithms of the ratio and of the noise.
    with_ratio: Vec<f64>,
    with_noise: Vec<f64>,
    /// The second derivatives in these two.
    ratio_ratio: f64,
    ratio_noise: f64,
    noise_noise: f64,
}

/// The likelihood at its best ratio and noise, for the strengths that were asked.
struct Profile<'a> {
    likelihood: Likelihood<'a>,
    ratio: f64,
    within: Vec<Component>,
}

impl VarianceSearch {
    pub fn new(design: Design) -> Result<Self> {
        if !(design.curvature > 0.0 && design.curvature.is_finite()) {
            let message = format!("the clients' curvatures sum to {}; wanted a positive number", design.curvature);
            return Err(Error::data(message).hint("are all features zero?"));
        }
        if design.noise.is_none() && design.rows <= design.dimension {
            return Err(super::too_few_rows(design.rows, design.dimension));
        }
        // Where a client differs from its centre as much as one row shows.
        let start = design.curvature / design.rows.max(1) as f64;
        let tolerance = if design.common { TOLERANCE.0 } else { NEAR };
        let root = Root::new(start.ln(), strength_bounds(&design), tolerance);
        let wanted = vec![root.at.exp(); design.clusters()];
        Ok(Self { design, wanted, between: None, phase: Phase::Common(root), rounds: 0 })
    }

    /// The same, beginning where another search has ended.
    pub fn starting_at(mut self, strengths: &[f64]) -> Self {
        if let (Phase::Common(root), Some(&strength)) = (&mut self.phase, strengths.first()) {
            *root = Root::new(strength.ln(), strength_bounds(&self.design), TOLERANCE.0);
            self.wanted.fill(strength);
        }
        self
    }

    /// The strength at which each cluster's clients are to be asked, at noise 1.
    pub fn wanted(&self) -> &[f64] {
        &self.wanted
    }

    /// Takes the sums of every cluster at [`VarianceSearch::wanted`]. Returns the estimates at the end of the search.
    pub fn tell(&mut self, sums: &[ClusterSums]) -> Result<Option<Estimates>> {
        self.rounds += 1;
        let evidence: Vec<Quadratic> = sums.iter().map(|cluster| cluster.response.clone().into_quadratic()).collect();
        if let Phase::Closing(closing) = &self.phase {
            return self.finish(closing.clone(), &evidence, sums).map(Some);
        }
        let profile = self.profile(&evidence, sums)?;
        if profile.ratio.is_finite() {
            self.between = Some(profile.ratio);
        }
        let bounds = strength_bounds(&self.design);
        match &mut self.phase {
            Phase::Common(root) => {
                let all = profile.within.iter().copied().fold(Component::default(), Component::join);
                let strength = self.wanted[0];
                if !root.look_at(all, strength) {
                    self.wanted.fill(root.at.exp());
                } else if self.design.common {
                    return self.close(profile, &evidence, sums, true).map(|()| None);
                } else {
                    let scales: Vec<f64> = sums.iter().map(ClusterSums::scale).collect();
                    let mut descent = Descent::new(scales.iter().map(|scale| strength.ln() * scale).collect());
                    let gradient = stretched_gradient(&profile, &self.wanted, &scales, bounds);
                    descent.report(profile.likelihood.value, &gradient);
                    self.wanted = shrunk(&descent.wanted(), &scales, bounds);
                    self.phase = Phase::Together { descent, scales };
                }
            }
            Phase::Together { descent, scales } => {
                let gradient = stretched_gradient(&profile, &self.wanted, scales, bounds);
                let level = gradient.iter().all(|slope| slope.abs() < LEVEL.1);
                descent.report(profile.likelihood.value, &gradient);
                if level || descent.is_stuck() || self.rounds >= LOOKS {
                    return self.close(profile, &evidence, sums, level).map(|()| None);
                }
                self.wanted = shrunk(&descent.wanted(), scales, bounds);
            }
            Phase::Closing(_) => {}
        }
        Ok(None)
    }

    /// Finds the best ratio and noise for these sums.
    fn profile<'a>(&self, evidence: &'a [Quadratic], sums: &[ClusterSums]) -> Result<Profile<'a>> {
        let volume = sums.iter().map(|cluster| cluster.response.volume).sum();
        let likelihood = |ratio: f64| self.design.likelihood(evidence, volume, ratio, None);
        let clusters = self.design.clusters() as f64;
        let size = self.design.dimension;
        let curvature: f64 = evidence.iter().map(|one| trace(&one.curvature, size)).sum();
        let scale = curvature / (clusters * size as f64);
        if evidence.len() < 2 || scale <= 0.0 {
            return self.gather(likelihood(f64::INFINITY)?, f64::INFINITY, sums);
        }
        let bounds = ((RANGE.0 * scale).ln(), (RANGE.1 * scale).ln());
        let mut root = Root::new(self.between.unwrap_or(scale / clusters).ln(), bounds, TOLERANCE.1);
        loop {
            let ratio = root.at.exp();
            let found = likelihood(ratio)?;
            if !root.look(found.between.pull(ratio), 0.0) {
                continue;
            }
            return match root.at >= bounds.1 {
                true => self.gather(likelihood(f64::INFINITY)?, f64::INFINITY, sums),
                false => self.gather(found, ratio, sums),
            };
        }
    }

    fn gather<'a>(&self, likelihood: Likelihood<'a>, ratio: f64, sums: &[ClusterSums]) -> Result<Profile<'a>> {
        let within = likelihood.within(sums, &self.wanted)?;
        Ok(Profile { likelihood, ratio, within })
    }

    /// Keeps the optimum, and asks for one more round near it.
    fn close(&mut self, profile: Profile, evidence: &[Quadratic], sums: &[ClusterSums], settled: bool) -> Result<()> {
        let Profile { likelihood, ratio, within } = profile;
        let bounds = strength_bounds(&self.design);
        let (noise, strengths) = (likelihood.noise, &self.wanted);
        let is_one = |strength: f64| strength.ln() >= bounds.1 - SILENT;
        let is_all = |strength: f64| strength.ln() <= bounds.0 + SILENT;
        let mut notes = Vec::new();
        let kinds = if self.design.common { 1 } else { strengths.len() };
        for (j, &strength) in strengths.iter().enumerate().take(kinds) {
            if is_one(strength) {
                notes.push(
                    self.whose(j) + "clients differ no more than the noise explains; their variance is put at zero",
                );
            } else if is_all(strength) {
                notes.push(
                    self.whose(j) + "the noise cannot be told from zero; the clients' differences explain the rows",
                );
            } else if !self.design.common && within[j].freedom < SILENT {
                notes.push(self.whose(j) + "no data tell its clients' variance; it was left where the search began");
            }
        }
        if !settled {
            notes.push(format!("the clusters' variances did not settle in {} rounds; one for all would", self.rounds));
        }
        let between = (strengths.len() > 1).then(|| if ratio.is_finite() { noise / ratio } else { 0.0 });
        match between {
            None => notes.push("one cluster only: a variance between clusters is not identified and left out".into()),
            Some(0.0) => notes.push(
                "the centres differ no more than clients and noise explain; their variance is put at zero".into(),
            ),
            Some(_) => {}
        }
        let within_variances =
            strengths.iter().map(|&strength| if is_one(strength) { 0.0 } else { noise / strength }).collect();
        let estimates = Estimates {
            noise,
            within: within_variances,
            between,
            standard_errors: StandardErrors { within: vec![None; strengths.len()], ..Default::default() },
            rounds: self.rounds,
            notes,
        };
        let free: Vec<usize> = (0..kinds)
            .filter(|&j| !is_one(strengths[j]) && !is_all(strengths[j]))
            .filter(|&j| self.design.common || within[j].freedom >= SILENT)
            .collect();
        let mut closing = Closing {
            estimates,
            ratio,
            lowest: (0..kinds).filter(|&j| is_all(strengths[j])).collect(),
            gradient: self.gradient(&within, strengths, &free),
            with_ratio: vec![0.0; free.len()],
            with_noise: self.noise_slope(&within, strengths, &free),
            ratio_ratio: 0.0,
            ratio_noise: 0.0,
            noise_noise: likelihood.misfit / noise,
            free,
        };
        if ratio.is_finite() {
            let volume = sums.iter().map(|cluster| cluster.response.volume).sum();
            let beside = |step: f64| -> Result<(f64, Vec<f64>)> {
                let ratio = (ratio.ln() + step).exp();
                let found = self.design.likelihood(evidence, volume, ratio, Some(noise))?;
                let within = found.within(sums, strengths)?;
                Ok((found.between.gradient(ratio), self.gradient(&within, strengths, &closing.free)))
            };
            let (up, down) = (beside(DIFFERENCE)?, beside(-DIFFERENCE)?);
            let slope = |up: f64, down: f64| (up - down) / (2.0 * DIFFERENCE);
            closing.ratio_ratio = slope(up.0, down.0);
            closing.with_ratio = up.1.iter().zip(&down.1).map(|(up, down)| slope(*up, *down)).collect();
            closing.ratio_noise = -0.5 * ratio * likelihood.between.spread;
        }
        self.wanted.iter_mut().for_each(|strength| *strength *= DIFFERENCE.exp());
        self.phase = Phase::Closing(closing);
        Ok(())
    }

    fn whose(&self, cluster: usize) -> String {
        if self.design.common { String::new() } else { format!("cluster {cluster}: ") }
    }

    /// The gradient in the logarithms of the strengths that move: of all at once, or of those that are free.
    fn gradient(&self, within: &[Component], strengths: &[f64], free: &[usize]) -> Vec<f64> {
        self.over_free(free, |j| within[j].gradient(strengths[j]))
    }

    /// Its derivative in the logarithm of the noise.
    fn noise_slope(&self, within: &[Component], strengths: &[f64], free: &[usize]) -> Vec<f64> {
        self.over_free(free, |j| -0.5 * strengths[j] * within[j].spread)
    }

    fn over_free(&self, free: &[usize], part: impl Fn(usize) -> f64) -> Vec<f64> {
        match self.design.common {
            true => free.iter().map(|_| (0..self.design.clusters()).map(&part).sum()).collect(),
            false => free.iter().map(|&j| part(j)).collect(),
        }
    }

    /// Adds the standard errors, by what a step beside the optimum showed.
    fn finish(&self, closing: Closing, evidence: &[Quadratic], sums: &[ClusterSums]) -> Result<Estimates> {
        let volume = sums.iter().map(|cluster| cluster.response.volume).sum();
        let mut estimates = Estimates { rounds: self.rounds, ..closing.estimates };
        let beside = self.design.likelihood(evidence, volume, closing.ratio, Some(estimates.noise))?;
        let within = beside.within(sums, &self.wanted)?;
        let moved = self.gradient(&within, &self.wanted, &closing.free);
        // The logarithms of the strengths, of the ratio and of the noise, as far as they are free.
        let count = closing.free.len();
        let ratio = closing.ratio.is_finite().then_some(count);
        let noise = self.design.noise.is_none().then_some(count + usize::from(ratio.is_some()));
        let size = count + usize::from(ratio.is_some()) + usize::from(noise.is_some());
        let bends: Vec<f64> = moved.iter().zip(&closing.gradient).map(|(up, at)| (up - at) / DIFFERENCE).collect();
        let mut information = vec![0.0; size * size];
        let mut set = |row: usize, column: usize, value: f64| {
            information[row * size + column] = value;
            information[column * size + row] = value;
        };
        for (i, &bend) in bends.iter().enumerate() {
            if bend <= 0.0 {
                set(i, i, 1.0);
                continue;
            }
            set(i, i, bend);
            ratio.into_iter().for_each(|ratio| set(i, ratio, closing.with_ratio[i]));
            noise.into_iter().for_each(|noise| set(i, noise, closing.with_noise[i]));
        }
        ratio.into_iter().for_each(|ratio| set(ratio, ratio, closing.ratio_ratio));
        noise.into_iter().for_each(|noise| set(noise, noise, closing.noise_noise));
        ratio.zip(noise).into_iter().for_each(|(ratio, noise)| set(ratio, noise, closing.ratio_noise));
        let spectrum = Spectrum::new(&information, size).filter(|spectrum| spectrum.rank() == size);
        let Some(covariance) = spectrum.map(|spectrum| spectrum.inverse()) else {
            estimates.notes.push("the data do not tell the variances apart; they have no standard errors".into());
            return Ok(estimates);
        };
        // A variance is the noise divided by a ratio, so its logarithm is a difference.
        let error = |variance: f64, ratio: Option<usize>| {
            let mut direction = vec![0.0; size];
            noise.into_iter().for_each(|noise| direction[noise] = 1.0);
            ratio.into_iter().for_each(|ratio| direction[ratio] = -1.0);
            let rows = covariance.chunks_exact(size).zip(&direction);
            variance * rows.map(|(row, x)| x * dot(row, &direction)).sum::<f64>().sqrt()
        };
        let errors = &mut estimates.standard_errors;
        let kinds = if self.design.common { 1 } else { self.design.clusters() };
        errors.noise = noise.filter(|_| closing.lowest.len() < kinds).map(|_| error(estimates.noise, None));
        errors.between = ratio.and_then(|ratio| Some(error(estimates.between?, Some(ratio))));
        for (i, &j) in closing.free.iter().enumerate() {
            if bends[i] > 0.0 {
                errors.within[j] = Some(error(estimates.within[j], Some(i)));
            } else {
                estimates
                    .notes
                    .push(self.whose(j) + "the clients' variance is hardly to be told; it has no standard error");
            }
        }
        // At the lower bound the ratio stands, and the clients' variance is as sure as what stands for the noise.
        closing.lowest.iter().for_each(|&j| errors.within[j] = noise.map(|_| error(estimates.within[j], None)));
        if self.design.common {
            let same = errors.within[0];
            errors.within.fill(same);
        }
        Ok(estimates)
    }
}

/// Between which logarithms strengths are searched.
fn strength_bounds(design: &Design) -> (f64, f64) {
    let scale = design.curvature / design.clients.iter().sum::<usize>() as f64;
    ((RANGE.0 * scale).ln(), (RANGE.1 * scale).ln())
}

/// The gradient in the stretched logarithms; at a bound, what would lead beyond it is left out.
fn stretched_gradient(profile: &Profile, strengths: &[f64], scales: &[f64], bounds: (f64, f64)) -> Vec<f64> {
    let parts = profile.within.iter().zip(strengths).zip(scales).map(|((one, &strength), scale)| {
        let (gradient, at) = (one.gradient(strength) / scale, strength.ln());
        let leads_out = at >= bounds.1 - SILENT && gradient < 0.0 || at <= bounds.0 + SILENT && gradient > 0.0;
        if leads_out { 0.0 } else { gradient }
    });
    parts.collect()
}

fn shrunk(stretched: &[f64], scales: &[f64], bounds: (f64, f64)) -> Vec<f64> {
    stretched.iter().zip(scales).map(|(x, scale)| (x / scale).clamp(bounds.0, bounds.1).exp()).collect()
}

/// A search for where a falling function is zero: secants, kept between the signs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Root {
    at: f64,
    bounds: (f64, f64),
    tolerance: f64,
    /// The nearest places known where it is positive and negative.
    positive: Option<f64>,
    negative: Option<f64>,
    last: Option<(f64, f64)>,
    looks: usize,
}

impl Root {
    fn new(start: f64, bounds: (f64, f64), tolerance: f64) -> Self {
        let at = start.clamp(bounds.0, bounds.1);
        Self { at, bounds, tolerance, positive: None, negative: None, last: None, looks: 0 }
    }

    /// Takes the pull on a ratio; it also ends where nothing of note is to be gained.
    fn look_at(&mut self, component: Component, ratio: f64) -> bool {
        self.look(component.pull(ratio), LEVEL.0 * LEVEL.0 / component.gradient(ratio).abs())
    }

    /// Takes the value here; returns whether the search ends: the step would be below the tolerance or `enough`.
    fn look(&mut self, value: f64, enough: f64) -> bool {
        self.looks += 1;
        let at_bound = if value > 0.0 { self.at >= self.bounds.1 } else { self.at <= self.bounds.0 };
        if value.is_nan() || value.abs() < SILENT || at_bound || self.looks >= LOOKS {
            return true;
        }
        if value > 0.0 {
            self.positive = Some(self.at)
        } else {
            self.negative = Some(self.at)
        };
        let step = self.last.map_or(value, |last| self.secant(value, last));
        let mut next = (self.at + step.clamp(-LONGEST, LONGEST)).clamp(self.bounds.0, self.bounds.1);
        if let (Some(low), Some(high)) = (self.positive, self.negative) {
            let (low, high) = (low.min(high), low.max(high));
            if !(next > low && next < high) {
                next = 0.5 * (low + high);
            }
        }
        // A first step, which is no secant, may be too short to tell.
        let enough = if self.last.is_some() { enough } else { 0.0 };
        if (next - self.at).abs() <= self.tolerance.max(enough) {
            return true;
        }
        self.last = Some((self.at, value));
        self.at = next;
        false
    }

    /// The step to where the line through this place and the last one is zero.
    fn secant(&self, value: f64, (place, before): (f64, f64)) -> f64 {
        let moved = self.at - place;
        let slope = (value - before) / moved;
        let mut step = if slope < 0.0 { -value / slope } else { value.signum() * LONGEST };
        if self.positive.is_some() && self.negative.is_some() {
            return step;
        }
        if value < 0.0 && value > -NEAR {
            // Far below all data the derivative in the ratio itself, not in its logarithm, is a line; or even level.
            let factor = 1.0 + value * (-moved).exp_m1() / (value - before * moved.exp());
            if factor > 0.0 && factor < 1.0 {
                step = factor.ln();
            } else if factor <= 0.0 || before > -NEAR {
                step = -LONGEST;
            }
        }
        // Two places close by say little of what is far.
        let longest = (2.0 * moved.abs()).max(2.0);
        step.clamp(-longest, longest)
    }
}
