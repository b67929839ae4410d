//! Clusters from pairwise distances alone: items at most λ apart belong together.
//!
//! λ can be found from the distances themselves ([`Distances::threshold`]).

use super::*;
use rand::seq::SliceRandom;

/// Pairwise distances, as far as they are known.
#[derive(Debug, Clone, PartialEq)]
pub struct Distances {
    count: usize,
    /// Row-major, symmetric; infinite where a pair was not compared or cannot be.
    values: Vec<f64>,
}

/// A threshold and its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// λ; infinite where everything belongs together.
    pub value: f64,
    /// The share of the variance of the distances that the groups explain.
    pub separability: Option<f64>,
    /// Whether some distances within groups are larger than some between groups.
    pub overlap: bool,
    /// The reason in words.
    pub reason: String,
}

/// A distance for messages: four decimals, or scientific where those would not do.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        size if (1e-3..1e6).contains(&size) => format!("{value:.4}"),
        _ => format!("{value:.3e}"),
    }
}

impl Distances {
    /// No distance is known.
    pub fn unknown(count: usize) -> Self {
        Self { count, values: vec![f64::INFINITY; count * count] }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The distance of two items.
    pub fn get(&self, a: usize, b: usize) -> f64 {
        self.values[a * self.count + b]
    }

    /// Sets a distance; NaN becomes infinite.
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
    pub(crate) fn sorted(&self) -> Vec<f64> {
        let mut values: Vec<f64> = self.pairs().map(|(_, _, distance)| distance).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The connected components of the graph of pairs at most `threshold` apart, in the order of their first members.
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

    /// Correlation clustering by pivots: a random item and all free ones within `threshold` of it are a cluster, until none
    /// is left. Unlike components these cannot chain; numbered in the order of their first members.
    pub(crate) fn pivots(&self, threshold: f64, key: &Key) -> Vec<usize> {
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
        renumber(&labels)
    }

    pub(crate) fn quantile(&self, share: f64) -> Result<Threshold> {
        let values = self.sorted();
        let place = (share * values.len() as f64).ceil() as usize;
        let Some(&value) = values.get(place.clamp(1, values.len().max(1)) - 1) else {
            return Err(Error::data("no two clients have a finite distance to each other")
                .hint("train less, or with a smaller step, or give lambda"));
        };
        let reason = format!("{:.0} % of {} distances are no larger", 100.0 * share, values.len());
        Ok(Threshold { value, separability: None, overlap: false, reason })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Distances on a line.
    pub(in crate::clustering) fn line(places: &[f64]) -> Distances {
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
        assert!(Distances::unknown(2).threshold().is_err() && Distances::unknown(1).quantile(0.5).is_err());
    }

    #[test]
    fn quantiles_by_hand() {
        let distances = line(&[0.0, 1.0, 3.0]);
        let value = |share: f64| distances.quantile(share).unwrap().value;
        assert_eq!([0.0, 0.3, 0.34, 0.67, 1.0].map(value), [1.0, 1.0, 2.0, 3.0, 3.0]);
    }
}
