//! `auto`: the number of clusters, their members, the points in none, and how certain that is.
//!
//! 1. Among many columns, the few directions with more variance than noise has ([`directions`]).
//! 2. Mixtures of clouds of several forms and tails with uniform noise, for every number of clouds, the best by Schwarz's
//!    criterion ([`clouds`], [`scatter`], [`agglomerate`]).
//! 3. Clouds without a valley between them are one cluster ([`valleys`]).
//! 4. One cluster, unless several clouds improve the fit more than they do for simulated single clouds ([`single`]).
//! 5. Certainty: how much worse the next best clustering is, and how many subsamples give the same one.

mod agglomerate;
mod clouds;
mod directions;
mod sample;
mod scatter;
mod single;
#[cfg(test)]
mod tests;
mod valleys;

use super::quality::adjusted_rand_index;
use super::{Clustering, Points, Progress, Stage, Sureness};
use crate::error::Result;
use crate::num::triangular::factorise;
use crate::num::{add_scaled, dot, median};
use crate::rng::Key;
use agglomerate::{Candidate, MOST_CLOUDS, best_alike, candidates};
use clouds::Mixture;
use rand::seq::index;
use rayon::prelude::*;
use sample::Sample;
use scatter::{Form, Moments, Scatter};
use std::collections::HashSet;

/// Above this number of points a sample is clustered.
const MOST_POINTS: usize = 600;
/// Number of subsamples that are clustered again, and the share of the points in each.
const PARTS: usize = 10;
const PART: f64 = 0.8;
/// Two clusterings are the same with equal numbers of clusters and an adjusted Rand index above this.
const SAME: f64 = 0.9;
/// Candidates among which the next best clustering is sought.
const RUNNERS_UP: usize = 60;
/// Lead over the next best clustering for a certain result, for a likely one, and that as a share of a cluster's cost.
const CERTAIN: f64 = 20.0;
const LIKELY: f64 = 12.0;
const SHARE_OF_COST: f64 = 0.5;
/// Subsamples that must agree where the lead is that of a certain result.
const MOST_PARTS: usize = 8;
/// With fewer points than this a result is never certain, or never likely.
const LEAST_FOR_CERTAIN: usize = 20;
const LEAST_FOR_LIKELY: usize = 10;

pub(super) struct Decision {
    /// The cluster of every point; the nearest one for those set aside.
    pub clustering: Clustering,
    /// The points that fit no cluster, ascending.
    pub aside: Vec<usize>,
    pub sureness: Sureness,
    pub notes: Vec<String>,
}

/// The partition by a mixture: for every point its cluster, and whether it is set aside.
#[derive(Clone)]
struct Partition {
    labels: Vec<usize>,
    aside: Vec<bool>,
}

impl Partition {
    fn of(mixture: &Mixture, sample: &Sample) -> Self {
        let clusters = valleys::clusters(mixture);
        let (labels, aside) = mixture.assign(sample).into_iter().map(|(cloud, noise)| (clusters[cloud], noise)).unzip();
        Self { labels, aside }
    }

    fn clusters(&self) -> usize {
        let members = self.labels.iter().zip(&self.aside).filter(|(_, aside)| !**aside);
        members.map(|(label, _)| label).collect::<HashSet<_>>().len()
    }

    /// Points set aside count as one more cluster.
    fn is_like(&self, other: &Self) -> bool {
        let names = |partition: &Self| -> Vec<usize> {
            let named = partition.labels.iter().zip(&partition.aside);
            named.map(|(label, aside)| if *aside { usize::MAX } else { *label }).collect()
        };
        let clusters = self.clusters();
        clusters == other.clusters() && (clusters == 1 || adjusted_rand_index(&names(self), &names(other)) > SAME)
    }
}

pub(super) fn find(points: Points, key: &Key, progress: Progress) -> Result<Decision> {
    let count = points.count();
    let together = |word, reason: String| Decision {
        clustering: Clustering::of(points, &vec![0; count]),
        aside: Vec::new(),
        sureness: Sureness { word, reason },
        notes: Vec::new(),
    };
    if (1..count).all(|point| points.row(point) == points.row(0)) {
        return Ok(together("certain", "all points are the same".into()));
    }
    if count < 4 {
        return Ok(together("unsure", format!("{count} points cannot show clusters")));
    }
    let mut stage = |done| progress(Stage { what: "looking for clusters", done, total: 3 });
    stage(0)?;
    let drawn: Vec<usize> = match count > MOST_POINTS {
        true => {
            let mut drawn = index::sample(&mut key.clone().word("sample").rng(), count, MOST_POINTS).into_vec();
            drawn.sort_unstable();
            drawn
        }
        false => (0..count).collect(),
    };
    let Some((sample, whole, stands_out)) = in_few_directions(points, &drawn)? else {
        let reason =
            format!("in none of {} columns' directions points spread more than noise does", points.dimension());
        return Ok(together("likely", reason));
    };
    let ranked = candidates(&sample);
    let Some(best) = ranked.first() else {
        return Ok(together("unsure", "no mixture of clusters could be fitted".into()));
    };
    stage(1)?;
    let single = ranked.iter().find(|candidate| candidate.mixture.clouds.len() == 1);
    let partition = Partition::of(&best.mixture, &sample);
    let as_good = match single {
        Some(single) if partition.clusters() > 1 => {
            single::count_as_good(&sample, &single.mixture, single::gain(&ranked), &key.clone().word("single"))
        }
        _ => 0,
    };
    let chosen = single.filter(|_| as_good > 0).unwrap_or(best);
    stage(2)?;
    let sureness = match as_good {
        0 => {
            let partition = Partition::of(&chosen.mixture, &sample);
            let found = sureness(&sample, &ranked, &partition, key);
            match partition.clusters() {
                1 if stands_out => {
                    let reason = format!(
                        "{}; one direction stands out, as it would with two clusters that overlap",
                        found.reason
                    );
                    Sureness { word: "unsure", reason }
                }
                _ => found,
            }
        }
        _ => {
            let all = single::simulations(sample.count());
            let reason =
                format!("{as_good} of {all} simulated single clusters look as much like several as these points do");
            Sureness { word: "unsure", reason }
        }
    };
    let Partition { labels, aside } = Partition::of(&chosen.mixture, &whole);
    let aside: Vec<usize> = (0..count).filter(|point| aside[*point]).collect();
    let looked =
        format!("clusters were looked for among {MOST_POINTS} of {count} points; very small ones may be missing");
    let notes = if count > MOST_POINTS { vec![looked] } else { Vec::new() };
    Ok(Decision { clustering: Clustering::without(points, &labels, &aside), aside, sureness, notes })
}

/// Ratio of the first to the second variance from which the first direction stands out.
const STANDS_OUT: f64 = 1.5;

/// The drawn points and all points, in the directions beyond noise; `None` where there is none. Centred and on the scale
/// of 1, so that squares neither cancel nor overflow nor vanish. And whether, among many columns, a single direction
/// stands out.
fn in_few_directions(points: Points, drawn: &[usize]) -> Result<Option<(Sample, Sample, bool)>> {
    let dimension = points.dimension();
    let some: Vec<f64> = drawn.iter().flat_map(|&point| points.row(point)).copied().collect();
    let mean = Points::new(&some, dimension)?.mean();
    let centred =
        points.values().chunks_exact(dimension).flat_map(|row| row.iter().zip(&mean).map(|(x, mean)| x - mean));
    let mut all: Vec<f64> = centred.collect();
    let largest = all.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    all.iter_mut().for_each(|value| *value /= largest);
    let all = Points::new(&all, dimension)?;
    let some: Vec<f64> = drawn.iter().flat_map(|&point| all.row(point)).copied().collect();
    let (some, all, directions, stands_out) = match directions::beyond_noise(Points::new(&some, dimension)?)? {
        None => (some, all.values().to_vec(), dimension, false),
        Some(projection) if projection.directions == 0 => return Ok(None),
        Some(projection) => {
            let all = projection.project(all);
            let variance = |direction: usize| projection.singular.get(direction).map_or(0.0, |value| value * value);
            let stands_out = variance(0) > STANDS_OUT * variance(1);
            (projection.coordinates, all, projection.directions, stands_out)
        }
    };
    let sample = Sample::new(some, directions);
    let whole = sample.with(all);
    Ok(Some((sample, whole, stands_out)))
}

/// The lead over the next best clustering, and whether subsamples give the same one.
fn sureness(sample: &Sample, ranked: &[Candidate], partition: &Partition, key: &Key) -> Sureness {
    let best = &ranked[0];
    let rival = ranked.iter().take(RUNNERS_UP).find_map(|candidate| {
        let other = Partition::of(&candidate.mixture, sample);
        (!other.is_like(partition)).then(|| (best.criterion - candidate.criterion, other.clusters()))
    });
    let agreeing =
        (0..PARTS).into_par_iter().filter(|part| agrees(sample, *part, &best.mixture, partition, key)).count();
    let lead = rival.map_or(f64::INFINITY, |(lead, _)| lead);
    let cost = best.mixture.cost_of_a_cloud(sample);
    let far_ahead = lead >= CERTAIN && agreeing >= MOST_PARTS;
    let ahead = lead >= LIKELY.max(SHARE_OF_COST * cost) && agreeing == PARTS;
    let word = match sample.count() {
        LEAST_FOR_CERTAIN.. if far_ahead && agreeing == PARTS => "certain",
        LEAST_FOR_LIKELY.. if far_ahead || ahead => "likely",
        _ => "unsure",
    };
    let several = |clusters: usize, kind: &str| match clusters {
        1 => "one cluster".to_string(),
        _ => format!("{clusters} {kind}"),
    };
    let rival = rival.map_or(String::new(), |(lead, clusters)| {
        format!("; the next best, {}, is behind by a BIC of {lead:.0}", several(clusters, "clusters"))
    });
    let clusters = partition.clusters();
    let reason = format!(
        "{} explain{} the points best{rival}; {agreeing} of {PARTS} parts of the points give the same",
        several(clusters, best.mixture.form.describe()),
        if clusters == 1 { "s" } else { "" }
    );
    Sureness { word, reason }
}

/// Whether a subsample gives the same clustering of all points.
fn agrees(sample: &Sample, part: usize, best: &Mixture, partition: &Partition, key: &Key) -> bool {
    let mut random = key.clone().word("part").number(part as u64).rng();
    let size = (PART * sample.count() as f64).round() as usize;
    let mut drawn = index::sample(&mut random, sample.count(), size).into_vec();
    drawn.sort_unstable();
    // Twice as many initial clouds: enough for other clusterings to emerge.
    let most = MOST_CLOUDS.min(2 * best.clouds.len() + 4);
    best_alike(&sample.part(&drawn), best, most).is_some_and(|found| Partition::of(&found, sample).is_like(partition))
}
