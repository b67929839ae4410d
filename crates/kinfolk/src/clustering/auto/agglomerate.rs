//! Mixtures for every number of clouds. Starting from many clouds found by Ward's criterion, two are merged, or one becomes
//! noise, whatever costs the least likelihood. So clouds of any form grow from pieces, and no start depends on their
//! number.

use super::clouds::Posteriors;
use super::scatter::Common;
use super::*;
use crate::clustering::ward;
use std::f64::consts::PI;

/// Upper bound on the initial number of clouds.
pub(super) const MOST_CLOUDS: usize = 24;
/// Steps of EM after every merge.
const STEPS: usize = 6;
/// Steps for the best ones.
const FURTHER_STEPS: usize = 20;
/// Degrees of freedom while merging, and those tried for the best mixtures afterwards.
const TAILS: u32 = 10;
const ALL_TAILS: [Option<u32>; 3] = [Some(3), Some(TAILS), None];
/// Number of mixtures of every form that are tried with other tails.
const TRIED: usize = 4;

#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub mixture: Mixture,
    /// Schwarz's criterion (BIC); larger is better.
    pub criterion: f64,
}

impl Candidate {
    fn of(mixture: Mixture, sample: &Sample) -> Self {
        let criterion = match mixture.is_sound(sample) {
            true => 2.0 * mixture.log_likelihood - mixture.cost(sample),
            false => f64::NEG_INFINITY,
        };
        Self { mixture, criterion }
    }
}

/// Mixtures of all forms, numbers of clouds and tails, the best first, including one cloud.
pub(super) fn candidates(sample: &Sample) -> Vec<Candidate> {
    of_all_forms(sample, MOST_CLOUDS, |start, form| {
        let joined = ranked(join(sample, start, form, Some(TAILS)));
        let others = with_all_tails(sample, &joined);
        joined.into_iter().chain(others).collect()
    })
}

/// Mixtures of all forms with these tails and at most `most` clouds, the best first.
pub(super) fn candidates_with(sample: &Sample, degrees: Option<u32>, most: usize) -> Vec<Candidate> {
    of_all_forms(sample, most, |start, form| join(sample, start, form, degrees))
}

/// The best mixture of the same form and tails, from at most `most` clouds.
pub(super) fn best_alike(sample: &Sample, like: &Mixture, most: usize) -> Option<Mixture> {
    ranked(join(sample, &start(sample, most), like.form, like.degrees)).into_iter().next().map(|best| best.mixture)
}

fn of_all_forms(
    sample: &Sample,
    most: usize,
    find: impl Fn(&Posteriors, Form) -> Vec<Candidate> + Sync,
) -> Vec<Candidate> {
    let start = start(sample, most);
    let forms: Vec<Form> = Form::ALL.into_iter().filter(|form| form.applies(sample.dimension)).collect();
    ranked(forms.par_iter().flat_map(|&form| find(&start, form)).collect())
}

/// The sound ones, the best first.
fn ranked(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    candidates.retain(|candidate| candidate.criterion.is_finite());
    candidates.sort_by(|one, other| other.criterion.total_cmp(&one.criterion));
    candidates
}

fn start(sample: &Sample, most: usize) -> Posteriors {
    let clouds = (sample.count() / 2).clamp(1, most);
    Posteriors::of_labels(&ward::cluster(&sample.values, sample.dimension, clouds))
}

/// The best of these, and one cloud, with heavier and lighter tails, and more steps of EM.
fn with_all_tails(sample: &Sample, ranked: &[Candidate]) -> Vec<Candidate> {
    let single = ranked.iter().skip(TRIED).filter(|candidate| candidate.mixture.clouds.len() == 1);
    let tried = ranked.iter().take(TRIED).chain(single);
    let mut posteriors = Posteriors::default();
    tried
        .flat_map(|candidate| ALL_TAILS.map(|degrees| (candidate, degrees)))
        .map(|(candidate, degrees)| {
            let mut mixture = Mixture { degrees, ..candidate.mixture.clone() };
            mixture.climb(sample, FURTHER_STEPS, &mut posteriors);
            Candidate::of(mixture, sample)
        })
        .collect()
}

/// Merges these clouds down to one.
fn join(sample: &Sample, start: &Posteriors, form: Form, degrees: Option<u32>) -> Vec<Candidate> {
    let mut posteriors = start.clone();
    let mut found = Vec::with_capacity(start.clouds);
    loop {
        let mut mixture = Mixture::of(sample, &posteriors, form, degrees);
        mixture.climb(sample, STEPS, &mut posteriors);
        found.push(Candidate::of(mixture.clone(), sample));
        if mixture.clouds.len() == 1 {
            return found;
        }
        let (gone, into) = cheapest(sample, &mixture, &posteriors.moments(sample, form));
        posteriors = posteriors.without(gone, into);
    }
}

/// The two clouds whose merging costs the least likelihood; or the same cloud twice where turning it into noise costs less.
fn cheapest(sample: &Sample, mixture: &Mixture, moments: &[Moments]) -> (usize, usize) {
    let common = Common::of(mixture.form, moments, sample.floor);
    let likelihoods: Vec<f64> = moments.iter().map(|moments| likelihood(&common, moments)).collect();
    let joins = (0..moments.len()).flat_map(|one| (0..one).map(move |two| (one, two))).map(|(one, two)| {
        let together = likelihood(&common, &moments[one].joined(&moments[two]));
        (likelihoods[one] + likelihoods[two] - together, one, two)
    });
    let noise = mixture.noise * sample.count() as f64;
    let dissolved = (0..moments.len()).filter_map(|cloud| {
        let members = moments[cloud].members;
        let grown = noise + members;
        let spread = if noise > 0.0 { noise * (grown / noise).ln() } else { 0.0 };
        let loss = likelihoods[cloud] - members * (grown.ln() - sample.log_volume) - spread;
        (grown <= MOST_DISSOLVED * sample.count() as f64).then_some((loss, cloud, cloud))
    });
    let (_, gone, into) = joins.chain(dissolved).min_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or_default();
    (gone, into)
}

/// Upper bound on the share of noise after a cloud became noise.
const MOST_DISSOLVED: f64 = 0.2;

/// The log likelihood of the points of one cloud, as if normal with certain membership.
fn likelihood(common: &Common, moments: &Moments) -> f64 {
    let dimension = moments.centre.len();
    let scatter = common.scatter(moments);
    let spread = dimension as f64 * (2.0 * PI).ln() + scatter.log_determinant(dimension) + scatter.mean_square(moments);
    moments.members * (moments.members.max(f64::MIN_POSITIVE).ln() - 0.5 * spread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;
    use rand_distr::{Distribution, StandardNormal};

    /// Two long clouds side by side, nearer to each other than their ends are.
    fn lines() -> Sample {
        let mut random = Key::new(4).word("lines").rng();
        let mut normal = || -> f64 { StandardNormal.sample(&mut random) };
        Sample::new(
            (0..60).flat_map(|point| [4.0 * normal(), f64::from(point / 30) * 3.0 + 0.3 * normal()]).collect(),
            2,
        )
    }

    #[test]
    fn long_clouds_grow_together_from_pieces() {
        let sample = lines();
        let best = &candidates(&sample)[0];
        let assigned = best.mixture.assign(&sample);
        assert_eq!(best.mixture.clouds.len(), 2, "{:?}", best.mixture.form);
        assert!((0..60).all(|point| (assigned[point].0 == assigned[0].0) == (point < 30)));
    }

    #[test]
    fn one_cloud_is_always_among_the_candidates() {
        for values in [vec![0.0, 1.0, 5.0], vec![1.0, 1.0, 1.0, 1.0, 9.0, 9.0], (0..12).map(f64::from).collect()] {
            let found = candidates(&Sample::new(values, 1));
            assert!(found.iter().any(|candidate| candidate.mixture.clouds.len() == 1));
            assert!(found.windows(2).all(|pair| pair[0].criterion >= pair[1].criterion));
        }
    }
}
