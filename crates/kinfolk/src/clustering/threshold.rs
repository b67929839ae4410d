//! Clusters of things of which only distances to each other are known: whatever is at most λ apart belongs together.
//!
//! λ can be found from the distances themselves: where there is structure they form two humps, within and between
//! clusters, and λ is the cut that leaves the least variance on both sides (Otsu's rule). Many clusters at different
//! distances from each other make the upper hump wide; then groups that are far apart for their size tell the same.

use crate::error::{Error, Result};
use crate::rng::Key;
use rand::seq::SliceRandom;

/// Distances between things, as far as they are known.
#[derive(Debug, Clone, PartialEq)]
pub struct Distances {
    count: usize,
    /// Row-major, symmetric; infinite where a pair was not compared or cannot be.
    values: Vec<f64>,
}

/// A threshold and why it is what it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// λ; infinite where everything belongs together.
    pub value: f64,
    /// The share of the distances' variance that lies between the two sides of the cut.
    pub separability: Option<f64>,
    /// In words.
    pub reason: String,
}

/// From this share of variance between its two sides on a cut separates two humps: distances spread evenly over an
/// interval reach ¾, bell-shaped ones less.
const CLEAR: f64 = 0.8;
/// Groups are apart when the nearest two are so many times farther from each other than any group is wide.
const APART: f64 = 1.5;
/// They must hold this share of all things, each group at least this many.
const HELD: f64 = 0.8;
const GROUP: usize = 2;

/// A distance for people: four digits behind the point, or an exponent where those would say nothing.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        size if (1e-3..1e6).contains(&size) => format!("{value:.4}"),
        _ => format!("{value:.3e}"),
    }
}

impl Distances {
    /// Nothing known yet.
    pub fn unknown(count: usize) -> Self {
        Self { count, values: vec![f64::INFINITY; count * count] }
    }

    /// The distances of some of these things, in this order.
    pub fn among(&self, things: &[usize]) -> Self {
        let values = things.iter().flat_map(|&a| things.iter().map(move |&b| self.get(a, b))).collect();
        Self { count: things.len(), values }
    }

    /// How many things there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The distance of two things.
    pub fn get(&self, a: usize, b: usize) -> f64 {
        self.values[a * self.count + b]
    }

    /// Notes a distance; what is not a number is as good as infinite.
    pub fn set(&mut self, a: usize, b: usize, distance: f64) {
        let distance = if distance.is_nan() { f64::INFINITY } else { distance };
        self.values[a * self.count + b] = distance;
        self.values[b * self.count + a] = distance;
    }

    /// All pairs with a finite distance, each once.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize, f64)> {
        let pairs = (0..self.count).flat_map(|b| (0..b).map(move |a| (a, b)));
        pairs.map(|(a, b)| (a, b, self.get(a, b))).filter(|(_, _, distance)| distance.is_finite())
    }

    /// The finite distances, ascending.
    pub fn sorted(&self) -> Vec<f64> {
        let mut values: Vec<f64> = self.pairs().map(|(_, _, distance)| distance).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The connected components of the graph with an edge wherever two are at most `threshold` apart, numbered in the order
    /// of their first members.
    pub fn components(&self, threshold: f64) -> Vec<usize> {
        let mut labels = vec![usize::MAX; self.count];
        let mut next = 0;
        for first in 0..self.count {
            if labels[first] != usize::MAX {
                continue;
            }
            let mut reached = vec![first];
            labels[first] = next;
            while let Some(here) = reached.pop() {
                for (there, label) in labels.iter_mut().enumerate() {
                    if *label == usize::MAX && self.get(here, there) <= threshold {
                        *label = next;
                        reached.push(there);
                    }
                }
            }
            next += 1;
        }
        labels
    }

    /// Correlation clustering by pivots: a random thing and all free ones within `threshold` of it are a cluster, until none
    /// is left. Unlike components these cannot chain; numbered in the order of their first members.
    pub fn pivots(&self, threshold: f64, key: &Key) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.count).collect();
        order.shuffle(&mut key.rng());
        let mut labels = vec![usize::MAX; self.count];
        for &pivot in &order {
            if labels[pivot] == usize::MAX {
                labels[pivot] = pivot;
                for (other, label) in labels.iter_mut().enumerate() {
                    if *label == usize::MAX && self.get(pivot, other) <= threshold {
                        *label = pivot;
                    }
                }
            }
        }
        super::renumber(&labels)
    }

    /// Groups that are apart: their largest diameter and their smallest distance, where that is most times larger.
    fn separated(&self) -> Option<(f64, f64)> {
        let mut edges: Vec<(usize, usize, f64)> = self.pairs().collect();
        edges.sort_by(|a, b| a.2.total_cmp(&b.2));
        let mut members: Vec<Vec<usize>> = (0..self.count).map(|thing| vec![thing]).collect();
        let mut group: Vec<usize> = (0..self.count).collect();
        let mut widest = 0.0_f64;
        let mut best: Option<(f64, f64)> = None;
        // Joining the nearest groups first, the next pair to be joined is the smallest distance between two of them.
        for (a, b, distance) in edges {
            let (into, from) = (group[a], group[b]);
            if into == from {
                continue;
            }
            let telling = members.iter().filter(|group| group.len() >= GROUP);
            let (groups, held) = telling.fold((0, 0), |(groups, held), group| (groups + 1, held + group.len()));
            let structured = groups >= 2 && held as f64 >= HELD * self.count as f64 && distance >= APART * widest;
            if structured && best.is_none_or(|(wide, apart)| distance * wide > apart * widest) {
                best = Some((widest, distance));
            }
            let joined = std::mem::take(&mut members[from]);
            let across = members[into].iter().flat_map(|&a| joined.iter().map(move |&b| self.get(a, b)));
            widest = across.filter(|distance| distance.is_finite()).fold(widest, f64::max);
            joined.iter().for_each(|&thing| group[thing] = into);
            members[into].extend(joined);
        }
        best
    }

    /// λ by Otsu's rule: the middle of the gap at the cut with the most variance between its two sides. Where that is less than
    /// 80 % of all variance the distances have one hump, and everything belongs together, unless there are groups far apart
    /// for their size.
    pub fn otsu(&self) -> Result<Threshold> {
        let values = self.sorted();
        let (Some(&least), Some(&most)) = (values.first(), values.last()) else {
            return Err(Error::data("no two clients have a finite distance to each other")
                .hint("train less, or with a smaller step, or give lambda"));
        };
        let together = |separability: Option<f64>, reason: String| Threshold {
            value: f64::INFINITY,
            separability,
            reason: format!("{reason}: one cluster"),
        };
        if least == most {
            return Ok(together(None, format!("all distances are {}", short(least))));
        }
        // Variances about the middle of the range lose nothing to cancellation.
        let shift = 0.5 * (least + most);
        let count = values.len() as f64;
        let total: f64 = values.iter().map(|value| value - shift).sum();
        let mean = total / count;
        let spread: f64 = values.iter().map(|value| (value - shift - mean).powi(2)).sum();
        let (mut below, mut best, mut cut) = (0.0, 0.0, 0);
        for (place, value) in values.iter().enumerate().take(values.len() - 1) {
            below += value - shift;
            let (low, high) = ((place + 1) as f64, count - (place + 1) as f64);
            let between = low * (below / low - mean).powi(2) + high * ((total - below) / high - mean).powi(2);
            if between > best {
                (best, cut) = (between, place);
            }
        }
        let separability = best / spread;
        let value = 0.5 * (values[cut] + values[cut + 1]);
        if let (true, Some((wide, apart))) = (separability < CLEAR, self.separated()) {
            return Ok(Threshold {
                value: 0.5 * (wide + apart),
                separability: Some(separability),
                reason: format!("groups are at most {} wide and at least {} apart", short(wide), short(apart)),
            });
        }
        if separability < CLEAR {
            let reason = format!(
                "the best cut of the distances explains {:.0} % of their variance, want {:.0} %",
                100.0 * separability,
                100.0 * CLEAR
            );
            return Ok(together(Some(separability), reason));
        }
        let reason = format!(
            "{} of {} distances are up to {}, the others from {} on; the cut explains {:.1} % of their variance",
            cut + 1,
            values.len(),
            short(values[cut]),
            short(values[cut + 1]),
            100.0 * separability
        );
        Ok(Threshold { value, separability: Some(separability), reason })
    }

    /// The distance below which this share of all distances lies.
    pub fn quantile(&self, share: f64) -> Result<Threshold> {
        let values = self.sorted();
        let place = (share * values.len() as f64).ceil() as usize;
        let Some(&value) = values.get(place.clamp(1, values.len().max(1)) - 1) else {
            return Err(Error::data("no two clients have a finite distance to each other")
                .hint("train less, or with a smaller step, or give lambda"));
        };
        let reason = format!("{:.0} % of {} distances are no larger", 100.0 * share, values.len());
        Ok(Threshold { value, separability: None, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distances on a line.
    fn line(places: &[f64]) -> Distances {
        let mut distances = Distances::unknown(places.len());
        for b in 0..places.len() {
            (0..b).for_each(|a| distances.set(a, b, (places[a] - places[b]).abs()));
        }
        distances
    }

    #[test]
    fn components_chain_and_pivots_do_not() {
        let distances = line(&[0.0, 10.0, 1.0, 2.0, 11.0, 50.0]);
        assert_eq!(distances.components(1.0), [0, 1, 0, 0, 1, 2]);
        assert_eq!(distances.components(0.5), [0, 1, 2, 3, 4, 5]);
        assert_eq!(distances.components(f64::INFINITY), [0; 6]);
        for seed in 0..20 {
            let labels = distances.pivots(1.0, &Key::new(seed));
            // 0 and 2 are too far from each other to share a pivot at either end; one at 1 takes both.
            let whole = labels == [0, 1, 0, 0, 1, 2];
            assert!(whole || labels == [0, 1, 0, 2, 1, 3] || labels == [0, 1, 2, 2, 1, 3], "{labels:?}");
        }
    }

    #[test]
    fn what_was_not_compared_is_far_apart() {
        let mut distances = Distances::unknown(3);
        distances.set(0, 1, 0.5);
        distances.set(1, 2, f64::NAN);
        assert_eq!(distances.components(1e300), [0, 0, 1]);
        assert_eq!(distances.pairs().collect::<Vec<_>>(), [(0, 1, 0.5)]);
        assert!(Distances::unknown(2).otsu().is_err() && Distances::unknown(1).quantile(0.5).is_err());
    }

    #[test]
    fn otsu_cuts_between_two_humps_by_hand() {
        // 1, 1, 9, 9, 10, 10: the cut after 1 leaves 4/3 within, of Σ(d − 20/3)² = 97⅓ in all.
        let threshold = line(&[0.0, 1.0, 10.0, 11.0]).otsu().unwrap();
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
        let threshold = distances.otsu().unwrap();
        assert!((threshold.separability.unwrap() - 0.75).abs() < 0.01, "{threshold:?}");
        assert_eq!(threshold.value, f64::INFINITY);
        let mut same = Distances::unknown(3);
        [(0, 1), (0, 2), (1, 2)].iter().for_each(|&(a, b)| same.set(a, b, 2.0));
        assert_eq!(same.otsu().unwrap().value, f64::INFINITY);
    }

    #[test]
    fn groups_far_apart_for_their_size_are_structure() {
        // Four families on the corners of a square whose diagonals are longer than its sides: Otsu's cut is between those.
        let mut square = Distances::unknown(12);
        for b in 0..12usize {
            for a in 0..b {
                let distance = [0.5, 2.0, 3.6, 2.0][usize::abs_diff(a % 4, b % 4)];
                square.set(a, b, distance + 0.01 * (a * b % 7) as f64);
            }
        }
        let threshold = square.otsu().unwrap();
        assert!(threshold.separability.unwrap() < 0.8, "{threshold:?}");
        assert_eq!(square.components(threshold.value), [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
        // One pair across is enough to doubt it.
        square.set(0, 1, 0.5);
        assert_eq!(square.otsu().unwrap().value, f64::INFINITY);
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
            assert_eq!(distances.separated(), None);
        }
    }

    #[test]
    fn quantiles_by_hand() {
        let distances = line(&[0.0, 1.0, 3.0]);
        let value = |share: f64| distances.quantile(share).unwrap().value;
        assert_eq!([0.0, 0.3, 0.34, 0.67, 1.0].map(value), [1.0, 1.0, 2.0, 3.0, 3.0]);
    }
}
