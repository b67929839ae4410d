//! Mean and standard deviation, also of numbers spread over many clients.
//!
//! Σx² − n·mean² cancels where the mean is large relative to the deviation. So the deviation around the own mean is
//! kept, and parts are merged by Chan's formula. Nothing is squared before it is divided by the largest part, so no
//! finite number overflows or vanishes.

use serde::{Deserialize, Serialize};

/// Moments and range of some numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    /// How many there are.
    pub count: u64,
    /// Their mean; 0 for no numbers.
    pub mean: f64,
    /// Their standard deviation (n); exactly 0 where all are equal.
    pub deviation: f64,
    /// The smallest; infinite for no numbers.
    pub min: f64,
    /// The largest; minus infinity for no numbers.
    pub max: f64,
}

impl Moments {
    /// Moments of no numbers.
    pub const NONE: Self = Self { count: 0, mean: 0.0, deviation: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY };

    /// Moments of finite numbers.
    pub(crate) fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let mut moments = Self::NONE;
        for value in values.clone() {
            moments.count += 1;
            moments.min = moments.min.min(value);
            moments.max = moments.max.max(value);
        }
        if moments.count == 0 {
            return moments;
        }
        let count = moments.count as f64;
        // Relative to the middle of the range: small summands, and the exact mean of a constant.
        let middle = 0.5 * moments.min + 0.5 * moments.max;
        let offset = values.clone().map(|value| (value - middle) / count).sum::<f64>();
        moments.mean = (middle + offset).clamp(moments.min, moments.max);
        let unit = (moments.max - moments.mean).max(moments.mean - moments.min);
        if unit > 0.0 {
            let squares = values.map(|value| ((value - moments.mean) / unit).powi(2)).sum::<f64>();
            moments.deviation = unit * (squares / count).sqrt();
        }
        moments
    }

    pub(crate) fn add(&mut self, value: f64) {
        self.merge(&Self { count: 1, mean: value, deviation: 0.0, min: value, max: value });
    }

    /// What cannot be true of the values of this many rows.
    pub(crate) fn fault(&self, rows: usize) -> Option<String> {
        if self.count > rows as u64 {
            return Some(format!("{} values in {rows} rows", self.count));
        }
        let sound = self.mean.is_finite() && self.deviation.is_finite() && self.deviation >= 0.0;
        let inside = self.count == 0 || (self.min <= self.mean && self.mean <= self.max);
        (!sound || !inside).then(|| "moments that no values have".into())
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if self.count == 0 || other.count == 0 {
            *self = if self.count == 0 { *other } else { *self };
            return;
        }
        let count = self.count.saturating_add(other.count);
        let (own, others) = (self.count as f64 / count as f64, other.count as f64 / count as f64);
        let half_gap = 0.5 * other.mean - 0.5 * self.mean;
        let unit = self.deviation.max(other.deviation).max(half_gap.abs());
        if unit > 0.0 {
            let square = |value: f64| (value / unit).powi(2);
            let between = 4.0 * own * others * square(half_gap);
            self.deviation = unit * (own * square(self.deviation) + others * square(other.deviation) + between).sqrt();
        }
        self.mean += 2.0 * others * half_gap;
        self.count = count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The same with the extremes rounded outwards, to powers of two of the deviation, so that no number is revealed.
    pub(crate) fn coarse(&self) -> Self {
        if self.deviation == 0.0 {
            return *self;
        }
        let outwards = |distance: f64| self.deviation * (distance / self.deviation).log2().ceil().exp2();
        let bound = |place: f64| place.clamp(f64::MIN, f64::MAX);
        let (below, above) = (outwards(self.mean - self.min), outwards(self.max - self.mean));
        Self { min: bound(self.mean - below), max: bound(self.mean + above), ..*self }
    }

    /// The root mean squared distance from a place.
    pub(crate) fn distance_from(&self, place: f64) -> f64 {
        self.deviation.hypot(self.mean - place)
    }
}

/// The upper of the two middle ones of these numbers, `None` for none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;
    use rand::RngExt;

    fn of(values: &[f64]) -> Moments {
        Moments::of(values.iter().copied())
    }

    fn merged(parts: &[&[f64]]) -> Moments {
        let mut all = Moments::NONE;
        parts.iter().for_each(|part| all.merge(&of(part)));
        all
    }

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() <= 1e-14 * wanted.abs(), "{found}, want {wanted}");
    }

    #[test]
    fn by_hand() {
        let moments = of(&[1.0, 3.0, 5.0]);
        assert_eq!((moments.count, moments.mean, moments.min, moments.max), (3, 3.0, 1.0, 5.0));
        close(moments.deviation, (8.0f64 / 3.0).sqrt());
        close(moments.distance_from(7.0), (16.0f64 + 8.0 / 3.0).sqrt());
        let parts = merged(&[&[1.0, 3.0], &[], &[5.0]]);
        assert_eq!(parts.count, 3);
        close(parts.mean, 3.0);
        close(parts.deviation, moments.deviation);
        assert_eq!(merged(&[&[]]), Moments::NONE);
        let mut added = Moments::NONE;
        [1.0, 3.0, 5.0].into_iter().for_each(|value| added.add(value));
        assert_eq!((added.count, added.mean), (3, 3.0));
        close(added.deviation, moments.deviation);
    }

    #[test]
    fn a_large_mean_leaves_the_deviation_as_it_is() {
        // Distances to 1.7e9 that are multiples of 1/64, so that rounding cannot change what is wanted.
        let mut random = Key::new(3).word("moments").rng();
        for spread in [51.0, 0.9] {
            let near: Vec<f64> =
                (0..900).map(|_| (64.0 * spread * (random.random::<f64>() - 0.5)).round() / 64.0).collect();
            let far: Vec<f64> = near.iter().map(|value| 1.7e9 + value).collect();
            let wanted = of(&near);
            for found in [of(&far), merged(&far.chunks(70).collect::<Vec<_>>())] {
                assert!((found.deviation / wanted.deviation - 1.0).abs() < 1e-7, "{found:?}, want {wanted:?}");
                assert!((found.mean - 1.7e9 - wanted.mean).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn a_constant_stays_constant_and_the_smallest_spread_is_one() {
        for constant in [0.1, -1.7e9, 1e300, 5e-324, 0.0] {
            let moments = merged(&[&[constant; 7], &[constant], &[constant; 100]]);
            assert_eq!((moments.mean, moments.deviation), (constant, 0.0));
        }
        let next = f64::from_bits(1.7e9f64.to_bits() + 1);
        let moments = merged(&[&[1.7e9, next], &[1.7e9, next]]);
        assert!(moments.deviation > 0.0 && moments.deviation < 1e-6, "{moments:?}");
    }

    #[test]
    fn nothing_is_too_large_or_too_small() {
        for size in [1e-200, 1e140, 8e307] {
            let parts: [&[f64]; 2] = [&[size, -size, size], &[-size]];
            close(merged(&parts).deviation, size);
            close(of(&parts.concat()).deviation, size);
        }
    }
}
