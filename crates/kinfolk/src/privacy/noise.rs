//! Gaussian noise in whole numbers of a grid.
//!
//! The low bits of a floating-point number with noise tell what it was added to (Mironov 2012). So what is to be noised is first cut
//! off to whole multiples of a unit, towards zero, and the noise is rounded to such multiples too: rounding the sum of both would give
//! the same, and so is no more than a look at the Gaussian mechanism's output. Units are powers of two, a millionth of what is hidden.

use crate::num::Real;
use crate::rng::Key;
use rand::{Rng as _, RngExt};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

/// Where noise comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// From a seed, so that a simulation can be repeated. Who knows the seed takes the noise off: no guarantee.
    Seed(u64),
    /// From the operating system.
    System,
}

impl Source {
    /// The source of one purpose among several.
    pub fn extended(self, extend: impl FnOnce(Key) -> Key) -> Self {
        match self {
            Source::Seed(seed) => Source::Seed(extend(Key::new(seed)).seed()),
            Source::System => Source::System,
        }
    }

    /// As the report of a run says it.
    pub fn in_words(self) -> &'static str {
        match self {
            Source::Seed(_) => "noise from the seed, as in every simulation: no guarantee",
            Source::System => "noise from the operating system",
        }
    }
}

/// Relative growth of a sensitivity by cutting numbers off to the grid.
pub const CUT_OFF: f64 = 1.0 / (1 << 20) as f64;

/// The largest power of two with which cutting `length` numbers off changes no sum by more than [`CUT_OFF`] of the sensitivity.
pub fn unit(sensitivity: f64, length: usize) -> f64 {
    let most = sensitivity * CUT_OFF / (length.max(1) as f64).sqrt();
    2f64.powi(most.log2().floor() as i32)
}

/// A stream of noise.
pub struct Noise(ChaCha20Rng);

impl Noise {
    /// From this source.
    ///
    /// # Panics
    ///
    /// If the operating system has no random numbers.
    pub fn new(source: Source) -> Self {
        let mut seed = [0; 32];
        match source {
            Source::Seed(number) => Key::new(number).word("noise").rng().fill_bytes(&mut seed),
            Source::System => getrandom::fill(&mut seed).expect("the operating system gives random numbers"),
        }
        Self(ChaCha20Rng::from_seed(seed))
    }

    /// A whole Gaussian number with this standard deviation.
    pub fn whole(&mut self, deviation: f64) -> f64 {
        let normal: f64 = StandardNormal.sample(&mut self.0);
        (deviation * normal).round()
    }

    /// A discrete Gaussian number: a whole one, with probabilities proportional to e^(−x²/2σ²). By rejection from a discrete Laplace
    /// distribution (Canonne, Kamath, Steinke 2020, algorithm 3), with chances in double precision.
    pub fn discrete(&mut self, deviation: f64) -> i64 {
        if deviation <= 0.0 {
            return 0;
        }
        let scale = deviation.floor() as u64 + 1;
        loop {
            let within = self.0.random_range(0..scale);
            if !self.survives(within as f64 / scale as f64) {
                continue;
            }
            let mut size = within;
            while self.survives(1.0) {
                size = size.saturating_add(scale);
            }
            let is_negative = self.0.random::<bool>();
            if is_negative && size == 0 {
                continue;
            }
            let beyond = size as f64 - deviation * deviation / scale as f64;
            if self.survives(beyond * beyond / (2.0 * deviation * deviation)) {
                let size = i64::try_from(size).unwrap_or(i64::MAX);
                return if is_negative { -size } else { size };
            }
        }
    }

    /// Whether something with the chance e^(−rate) happens.
    fn survives(&mut self, rate: f64) -> bool {
        self.happens((-rate).exp())
    }

    /// Whether something with this chance happens.
    pub fn happens(&mut self, chance: f64) -> bool {
        self.0.random::<f64>() < chance
    }

    /// One of some places, with probabilities proportional to e^(score).
    pub fn choose(&mut self, scores: &[f64]) -> usize {
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let mut left = self.0.random::<f64>() * weights.iter().sum::<f64>();
        for (place, weight) in weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return place;
            }
        }
        weights.len() - 1
    }

    /// Cuts numbers off to a grid and adds noise, for a sum of this sensitivity and noise of so many times that.
    pub(crate) fn hide<T: Real>(&mut self, values: &mut [T], sensitivity: f64, noise: f64) {
        let unit = unit(sensitivity, values.len());
        let deviation = noise * sensitivity * (1.0 + CUT_OFF) / unit;
        for value in values {
            *value = T::of(((value.to_f64() / unit).trunc() + self.whole(deviation)) * unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_small_powers_of_two() {
        for (sensitivity, length) in [(1.0, 1), (0.3, 1000), (1e-6, 159_010)] {
            let unit = unit(sensitivity, length);
            assert_eq!(unit.log2().fract(), 0.0);
            let change = unit * (length as f64).sqrt() / sensitivity;
            assert!(change <= CUT_OFF && change > CUT_OFF / 2.0, "{change}");
        }
    }

    #[test]
    fn noise_is_on_the_grid_and_as_large_as_ordered() {
        let mut values = vec![0.7_f64; 40_000];
        Noise::new(Source::Seed(3)).hide(&mut values, 0.5, 2.0);
        let unit = unit(0.5, values.len());
        assert!(values.iter().all(|value| (value / unit).fract() == 0.0));
        let mean = values.iter().sum::<f64>() / 40_000.0;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 40_000.0;
        // Standard errors: 1/200, and √(2/40 000).
        assert!((mean - 0.7).abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn discrete_gaussians_have_their_probabilities() {
        let mut noise = Noise::new(Source::Seed(9));
        for deviation in [0.4f64, 1.7] {
            let density = |x: i64| (-(x as f64).powi(2) / (2.0 * deviation * deviation)).exp();
            let total: f64 = (-60..=60).map(density).sum();
            let mut counts = [0u32; 7];
            for _ in 0..40_000 {
                let drawn = noise.discrete(deviation);
                if let Some(count) = counts.get_mut((drawn + 3) as usize) {
                    *count += 1;
                }
            }
            for (x, count) in (-3..=3).zip(counts) {
                let (found, wanted) = (f64::from(count) / 40_000.0, density(x) / total);
                assert!(
                    (found - wanted).abs() < 4.0 * (wanted / 40_000.0).sqrt() + 1e-9,
                    "{deviation}: {x}: {counts:?}"
                );
            }
        }
        let drawn: Vec<f64> = (0..20_000).map(|_| noise.discrete(3e9) as f64 / 3e9).collect();
        let mean = drawn.iter().sum::<f64>() / 20_000.0;
        let variance = drawn.iter().map(|x| x * x).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
        assert_eq!(noise.discrete(0.0), 0);
    }

    #[test]
    fn choices_have_the_probabilities_of_their_scores() {
        let mut noise = Noise::new(Source::Seed(5));
        let mut counts = [0u32; 3];
        (0..20_000).for_each(|_| counts[noise.choose(&[1000.0, 1000.0 + 2f64.ln(), 999.0])] += 1);
        let total = 3.0 + (-1f64).exp();
        for (count, weight) in counts.iter().zip([1.0, 2.0, (-1f64).exp()]) {
            assert!((f64::from(*count) / 20_000.0 - weight / total).abs() < 0.015, "{counts:?}");
        }
    }

    #[test]
    fn seeds_repeat_and_do_not_reach_the_operating_system() {
        let drawn = |source: Source| {
            let mut noise = Noise::new(source.extended(|key| key.word("client").number(1)));
            (0..4).map(|_| noise.whole(1e12)).collect::<Vec<f64>>()
        };
        assert_eq!(drawn(Source::Seed(1)), drawn(Source::Seed(1)));
        assert_ne!(drawn(Source::Seed(1)), drawn(Source::Seed(2)));
        assert_ne!(drawn(Source::System), drawn(Source::System));
    }
}
