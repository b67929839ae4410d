//! The threshold λ from the distances alone.
//!
//! Single linkage joins clients into groups level by level, and every λ gives the groups of one level. At a level the
//! groups have a width, the largest distance within any of them, and a gap, the smallest distance between two. Where
//! there are clusters the gap is many times the width; in a single cloud it is hardly ever larger, except by chance among
//! a handful of clients. So λ lies in the gap of the finest level at which groups are separated, however far the clusters
//! are from each other. Where groups touch, the level is chosen whose groups explain most of the variance of the
//! distances (Otsu's rule, for groups instead of a histogram). Otherwise there is one cluster.
//!
//! The thresholds below were set on simulated clusters and clouds, and tested on others (experiments/sr-fca/lambda.md).

use super::threshold::{Distances, Threshold, short};
use crate::error::{Error, Result};
use crate::num::Moments;

/// Groups are clearly separated when the gap is this many times their width, whatever their number.
const CLEAR: f64 = 3.0;
/// They are likely separated at a smaller ratio where clients are many: chance gives 1 + 6/n among n clients, rarely more.
const LIKELY: (f64, f64) = (6.0, 1.15);
/// The share of the clients that groups usually hold, and its lower bound.
const MOST: f64 = 0.8;
const LEAST: f64 = 2.0 / 3.0;
/// Among more clients than this a pair may be likely separated by chance, and a group has at least three.
const FEW: usize = 12;
/// The share of the variance that touching groups must explain: evenly spread distances reach ¾, few clients more.
const HUMPS: (f64, f64) = (0.8, 2.0);

/// The groups for every λ from `joined` up to `gap`.
#[derive(Debug, Clone, Copy)]
struct Level {
    /// The longest distance needed to connect them.
    joined: f64,
    width: f64,
    gap: f64,
    /// Groups of at least two clients, and the clients in them.
    groups: usize,
    held: usize,
    /// Groups large enough to count where they are only likely separated, and the clients in them.
    telling: usize,
    told: usize,
    /// The share of the variance of the distances between grouped clients that is between and within groups.
    explained: f64,
}

impl Level {
    fn ratio(&self) -> f64 {
        if self.width > 0.0 { self.gap / self.width } else { f64::INFINITY }
    }

    fn lambda(&self) -> f64 {
        let from = if self.width < self.gap { self.width } else { self.joined };
        // Halves first: the sum of two distances may overflow.
        0.5 * from + 0.5 * self.gap
    }

    fn holds(&self, share: f64, of: usize) -> bool {
        self.held as f64 >= share * of as f64
    }
}

impl Distances {
    /// The levels of single linkage with at least one group, the finest first.
    fn levels(&self) -> Vec<Level> {
        let mut edges: Vec<(usize, usize, f64)> = self.pairs().collect();
        edges.sort_by(|a, b| a.2.total_cmp(&b.2));
        let finite = |a: usize, b: usize| Some(self.get(a, b)).filter(|distance| distance.is_finite());
        let mut members: Vec<Vec<usize>> = (0..self.count()).map(|client| vec![client]).collect();
        let mut group: Vec<usize> = (0..self.count()).collect();
        let mut grouped: Vec<usize> = Vec::new();
        let (mut all, mut within) = (Moments::NONE, Moments::NONE);
        let (mut width, mut joined) = (0.0_f64, 0.0_f64);
        let telling = if self.count() > FEW { 3 } else { 2 };
        let mut levels = Vec::new();
        for (a, b, gap) in edges {
            let (into, from) = (group[a], group[b]);
            if into == from {
                continue;
            }
            if gap > joined && !grouped.is_empty() {
                let count = |least: usize| {
                    let sizes = members.iter().map(Vec::len).filter(|&size| size >= least);
                    sizes.fold((0, 0), |(groups, held), size| (groups + 1, held + size))
                };
                let ((groups, held), (telling, told)) = (count(2), count(telling));
                // The share of the scatter that is between the means, of distances within groups and of the others.
                let apart = (within.mean - all.mean) / all.deviation;
                let explained = match all.deviation > 0.0 && all.count > within.count {
                    true => within.count as f64 / (all.count - within.count) as f64 * apart * apart,
                    false => 0.0,
                };
                levels.push(Level { joined, width, gap, groups, held, telling, told, explained });
            }
            for client in [into, from].into_iter().filter(|&side| members[side].len() == 1).map(|side| members[side][0])
            {
                grouped.iter().filter_map(|&other| finite(client, other)).for_each(|distance| all.add(distance));
                grouped.push(client);
            }
            let joining = std::mem::take(&mut members[from]);
            for (&a, &b) in members[into].iter().flat_map(|a| joining.iter().map(move |b| (a, b))) {
                if let Some(distance) = finite(a, b) {
                    within.add(distance);
                    width = width.max(distance);
                }
            }
            joining.iter().for_each(|&client| group[client] = into);
            members[into].extend(joining);
            joined = gap;
        }
        levels
    }

    /// λ where groups are separated, or explain the distances; infinite otherwise.
    pub fn threshold(&self) -> Result<Threshold> {
        let count = self.count();
        let values = self.sorted();
        let (Some(&least), Some(&most)) = (values.first(), values.last()) else {
            return Err(Error::data("no two clients have a finite distance to each other")
                .hint("train less, or with a smaller step, or give lambda"));
        };
        let together = |separability: Option<f64>, reason: String| Threshold {
            value: f64::INFINITY,
            separability,
            overlap: false,
            reason: format!("{reason}: one cluster"),
        };
        if least == most {
            return Ok(together(None, format!("all distances are {}", short(least))));
        }
        let levels = self.levels();
        let found = |level: &Level| {
            let aside = match count - level.held {
                0 => String::new(),
                aside => format!("{aside} clients far from all others left aside, "),
            };
            let overlap = level.gap <= level.width;
            let explained =
                format!("who is with whom explains {:.1} % of the distances' variance", 100.0 * level.explained);
            let groups = match level.groups {
                1 => "the others are".to_string(),
                groups => format!("{groups} groups are"),
            };
            let reason = format!(
                "{aside}{groups} at most {} wide and at least {} apart{}",
                short(level.width),
                short(level.gap),
                if level.groups > 1 { format!("; {explained}") } else { String::new() }
            );
            Ok(Threshold { value: level.lambda(), separability: Some(level.explained), overlap, reason })
        };
        let bar = (1.0 + LIKELY.0 / count as f64).clamp(LIKELY.1, CLEAR);
        let parted = |level: &&Level| level.groups >= 2 && level.holds(LEAST, count);
        let clear = |level: &&Level| parted(level) && level.ratio() >= CLEAR;
        let telling = |level: &&Level| parted(level) && level.telling >= 2 && level.told as f64 >= MOST * count as f64;
        let likely = |level: &&Level| telling(level) && level.ratio() >= bar;
        if let Some(apart) = levels.iter().find(|level| clear(level) && level.holds(MOST, count)) {
            // Clusters within these, unless they only set more clients aside.
            let finer = levels.iter().find(|level| likely(level) && level.gap < apart.gap && level.held >= apart.held);
            return found(finer.unwrap_or(apart));
        }
        let by = |of: fn(&Level) -> f64| move |a: &&Level, b: &&Level| of(a).total_cmp(&of(b));
        if let Some(apart) = levels.iter().filter(clear).max_by(by(Level::ratio)) {
            return found(apart);
        }
        let lonely = |level: &&Level| {
            level.groups == 1 && level.held < count && level.holds(MOST, count) && level.ratio() >= CLEAR
        };
        if let Some(apart) = levels.iter().find(lonely).or_else(|| levels.iter().find(likely)) {
            return found(apart);
        }
        let bar = HUMPS.0 + HUMPS.1 / count as f64;
        // Leaving one more client aside often explains a little more, at no gap to speak of.
        let explain = |level: &&Level| telling(level) && level.explained >= bar;
        if let Some(touching) = levels.iter().filter(explain).max_by(by(Level::ratio)) {
            return found(touching);
        }
        match levels.iter().filter(telling).max_by(by(|level| level.explained)) {
            Some(best) => Ok(together(
                Some(best.explained),
                format!(
                    "no groups are far enough apart, and the best {} explain {:.0} % of the distances' variance, want {:.0} %",
                    best.groups,
                    100.0 * best.explained,
                    100.0 * bar.min(1.0)
                ),
            )),
            None => Ok(together(None, "no two groups hold most clients at any distance".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clustering::threshold::tests::line;
    use crate::rng::Key;

    #[test]
    fn lambda_is_in_the_gap_by_hand() {
        // 1 and 1 within, 9, 10, 10 and 11 between: these leave 2 of Σ(d − 7)² unexplained.
        let threshold = line(&[0.0, 1.0, 10.0, 11.0]).threshold().unwrap();
        let distances = [1.0, 1.0, 9.0, 10.0, 10.0, 11.0];
        let mean = 42.0 / 6.0;
        let total: f64 = distances.iter().map(|d: &f64| (d - mean).powi(2)).sum();
        let within = 1.0 + 1.0;
        assert_eq!(threshold.value, 5.0);
        assert!((threshold.separability.unwrap() - (1.0 - within / total)).abs() < 1e-12, "{threshold:?}");
    }

    #[test]
    fn one_hump_is_one_cluster() {
        let even: Vec<f64> = (0..200).map(f64::from).collect();
        let mut distances = Distances::unknown(21);
        let pairs: Vec<(usize, usize)> = (0..21).flat_map(|b| (0..b).map(move |a| (a, b))).collect();
        for (&(a, b), value) in pairs.iter().zip(even.iter().cycle()) {
            distances.set(a, b, *value);
        }
        let threshold = distances.threshold().unwrap();
        assert_eq!(threshold.value, f64::INFINITY);
        let mut same = Distances::unknown(3);
        [(0, 1), (0, 2), (1, 2)].iter().for_each(|&(a, b)| same.set(a, b, 2.0));
        assert_eq!(same.threshold().unwrap().value, f64::INFINITY);
    }

    #[test]
    fn groups_far_apart_for_their_size_are_structure() {
        // Four families on the corners of a square whose diagonals are longer than its sides.
        let mut square = Distances::unknown(12);
        for b in 0..12usize {
            for a in 0..b {
                let distance = [0.5, 2.0, 3.6, 2.0][usize::abs_diff(a % 4, b % 4)];
                square.set(a, b, distance + 0.01 * (a * b % 7) as f64);
            }
        }
        let threshold = square.threshold().unwrap();
        assert_eq!(square.components(threshold.value), [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
        // One pair across is enough to doubt it.
        square.set(0, 1, 0.5);
        assert_eq!(square.threshold().unwrap().value, f64::INFINITY);
    }

    #[test]
    fn noise_is_no_structure() {
        for seed in 0..50 {
            let mut rng = Key::new(seed).rng();
            let mut distances = Distances::unknown(20);
            for b in 0..20 {
                for a in 0..b {
                    distances.set(a, b, 1.0 + rand::RngExt::random_range(&mut rng, 0.0..1.0_f64).powi(2));
                }
            }
            assert_eq!(distances.threshold().unwrap().value, f64::INFINITY);
        }
    }

    #[test]
    fn a_gap_below_the_cut_of_the_histogram_is_seen() {
        // Three families within 1 of each other's members, 13 and 40 apart: the histogram is best cut between 13 and 40.
        let places = [0.0, 0.4, 0.8, 13.6, 14.0, 14.4, 54.0, 54.5];
        let threshold = line(&places).threshold().unwrap();
        assert_eq!(line(&places).components(threshold.value), [0, 0, 0, 1, 1, 1, 2, 2]);
        assert!(
            !threshold.overlap && threshold.reason.starts_with("3 groups are at most 0.8000 wide"),
            "{threshold:?}"
        );
    }

    #[test]
    fn touching_groups_are_said_to_overlap() {
        // Two clouds of twenty, dense in the middle: as wide as they are apart.
        let place = |i: u32| f64::from(2 * (i % 20) + 1) / 20.0 - 1.0;
        let places: Vec<f64> =
            (0..40).map(|i| 2.0 * place(i) * place(i).abs() + if i < 20 { 0.0 } else { 7.0 }).collect();
        let threshold = line(&places).threshold().unwrap();
        let labels = line(&places).components(threshold.value);
        assert!(
            threshold.overlap && labels[..20].iter().all(|&l| l == 0) && labels[20..].iter().all(|&l| l == 1),
            "{threshold:?}"
        );
    }

    #[test]
    fn distances_near_the_largest_number_do_not_overflow() {
        let threshold = line(&[0.0, 1e307, 1.5e308, 1.6e308]).threshold().unwrap();
        assert!(threshold.value.is_finite() && threshold.separability.unwrap() <= 1.0, "{threshold:?}");
    }
}
