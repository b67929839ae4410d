//! What a list of noised releases costs: Rényi differential privacy, composed and converted to (ε, δ).
//!
//! A mechanism has Rényi differential privacy ρ(α) if the Rényi divergence of order α between its outputs on neighbouring data
//! is at most ρ(α). Under composition ρ adds up, for every order. From it follows (ε, δ)-differential privacy for any δ, with
//! the best of the orders:
//!
//! ```text
//! ε = min_α  ρ(α) + log(1 − 1/α) − (log δ + log α)/(α − 1)      Canonne, Kamath, Steinke 2020, proposition 12
//! ```
//!
//! The Gaussian on a secret Poisson sample is Mironov, Talwar, Zhang 2019: for whole orders a finite sum, for others two series.
//! All terms of a series are taken as positive, so that what is left out of exactness errs to the safe side.

use crate::num::tails::log_normal_tail;
use serde::{Deserialize, Serialize};

/// A release, with neighbours that differ by one client, or one row, more or less.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Mechanism {
    /// A Gaussian with this standard deviation, as a multiple of the sensitivity, on a Poisson sample with this rate, which
    /// stays secret. With rate 1 everybody takes part.
    Gaussian {
        /// The chance of each to take part.
        rate: f64,
        /// Standard deviation of the noise over the sensitivity.
        noise: f64,
    },
    /// A choice with probabilities proportional to e^(ε · count), where one more row adds at most 1 to the counts.
    Choice {
        /// ε.
        epsilon: f64,
    },
}

impl Mechanism {
    /// ρ(α).
    fn renyi(&self, order: f64) -> f64 {
        match *self {
            Mechanism::Gaussian { rate, noise } if rate <= 0.0 || noise == f64::INFINITY => 0.0,
            Mechanism::Gaussian { noise, .. } if noise <= 0.0 || order == f64::INFINITY => f64::INFINITY,
            Mechanism::Gaussian { rate, noise } if rate >= 1.0 => order / (2.0 * noise * noise),
            Mechanism::Gaussian { rate, noise } => {
                let moment = match order.fract() == 0.0 {
                    true => whole_moment(rate, noise, order as u32),
                    false => moment(rate, noise, order),
                };
                moment.max(0.0) / (order - 1.0)
            }
            // The losses of neighbours lie in an interval of length ε: Cesar and Rogers 2021; and are ε-private.
            Mechanism::Choice { epsilon } => (order * epsilon * epsilon / 8.0).min(epsilon),
        }
    }
}

/// log E[(1 − q + q·e^((2x − 1)/2σ²))^α] under the standard deviation σ, for a whole α.
fn whole_moment(rate: f64, noise: f64, order: u32) -> f64 {
    let (log_rate, log_rest) = (rate.ln(), (-rate).ln_1p());
    let mut total = f64::NEG_INFINITY;
    let mut choose = 0.0;
    for i in 0..=order {
        let (i, left) = (f64::from(i), f64::from(order - i));
        total = log_add(total, choose + i * log_rate + left * log_rest + (i * i - i) / (2.0 * noise * noise));
        choose += left.max(1.0).ln() - (i + 1.0).ln();
    }
    total
}

/// The same for any α, as two series: left and right of the point where both densities are alike. Infinite if they do not settle.
fn moment(rate: f64, noise: f64, order: f64) -> f64 {
    const TERMS: u32 = 1000;
    /// Terms that no longer matter are e^−30 of the sum.
    const SMALL: f64 = 30.0;
    let (log_rate, log_rest) = (rate.ln(), (-rate).ln_1p());
    let middle = noise * noise * (1.0 / rate - 1.0).ln() + 0.5;
    let mut total = f64::NEG_INFINITY;
    let mut choose = 0.0;
    let mut last = [f64::NEG_INFINITY; 2];
    for i in (0..TERMS).map(f64::from) {
        let left = order - i;
        let term = |power: f64, other: f64, beyond: f64| {
            let size = choose + power * log_rate + other * log_rest + (power * power - power) / (2.0 * noise * noise);
            size + log_normal_tail(beyond / noise)
        };
        let now = [term(i, left, i - middle), term(left, i, middle - left)];
        total = now.iter().fold(total, |total, &term| log_add(total, term));
        if now[0] < last[0] && now[1] < last[1] && now[0].max(now[1]) < total - SMALL {
            return total;
        }
        last = now;
        choose += left.abs().ln() - (i + 1.0).ln();
    }
    f64::INFINITY
}

/// log(e^a + e^b).
fn log_add(a: f64, b: f64) -> f64 {
    let (small, large) = if a < b { (a, b) } else { (b, a) };
    if small == f64::NEG_INFINITY { large } else { large + (small - large).exp().ln_1p() }
}

/// The orders that are tried.
fn orders() -> impl Iterator<Item = f64> {
    let tenths = (1..100).map(|tenth| 1.0 + f64::from(tenth) / 10.0);
    let between = [1.025, 1.05, 1.075].into_iter();
    let beyond = [72.0, 80.0, 96.0, 112.0, 128.0, 192.0, 256.0, 384.0, 512.0, 768.0, 1024.0];
    between.chain(tenths).chain((11..=64).map(f64::from)).chain(beyond)
}

/// What has been spent.
#[derive(Debug, Clone)]
pub struct Accountant {
    /// Every order with its ρ.
    spent: Vec<(f64, f64)>,
    /// The sum of all ε with δ = 0.
    pure: f64,
}

impl Default for Accountant {
    fn default() -> Self {
        Self { spent: orders().map(|order| (order, 0.0)).collect(), pure: 0.0 }
    }
}

impl Accountant {
    /// Spends on a mechanism that is used so many times.
    pub fn spend(&mut self, mechanism: Mechanism, times: u64) {
        if times > 0 {
            self.spent.iter_mut().for_each(|(order, spent)| *spent += times as f64 * mechanism.renyi(*order));
            self.pure += times as f64 * mechanism.renyi(f64::INFINITY);
        }
    }

    /// The smallest ε with which all that was spent is (ε, δ)-differentially private.
    pub fn epsilon(&self, delta: f64) -> f64 {
        let of_order = |&(order, spent): &(f64, f64)| {
            // The total variation is at most √(1 − e^−ρ).
            if delta * delta + (-spent).exp_m1() > 0.0 || spent == 0.0 {
                return 0.0;
            }
            spent + (-1.0 / order).ln_1p() - (delta.ln() + order.ln()) / (order - 1.0)
        };
        self.spent.iter().map(of_order).fold(self.pure, f64::min).max(0.0)
    }
}

/// A budget that all releases of a run together keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// ε.
    pub epsilon: f64,
    /// δ.
    pub delta: f64,
}

impl Budget {
    /// The smallest noise, up to 10⁻⁶ of itself, with which these mechanisms keep the budget: each comes with how many times it
    /// is used. `None` if no noise is enough, because what is not noised costs more.
    pub fn noise(&self, mechanisms: impl Fn(f64) -> Vec<(Mechanism, u64)>) -> Option<f64> {
        const MOST: f64 = 1e12;
        let keeps = |noise: f64| {
            let mut accountant = Accountant::default();
            mechanisms(noise).into_iter().for_each(|(mechanism, times)| accountant.spend(mechanism, times));
            accountant.epsilon(self.delta) <= self.epsilon
        };
        let mut high = 1.0;
        while !keeps(high) {
            high *= 2.0;
            if high > MOST {
                return None;
            }
        }
        let mut low = high / 2.0;
        while low > 1e-3 && keeps(low) {
            (low, high) = (low / 2.0, low);
        }
        while high / low > 1.0 + 1e-6 {
            let middle = 0.5 * (low + high);
            if keeps(middle) { high = middle } else { low = middle }
        }
        Some(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(mechanisms: &[(Mechanism, u64)], delta: f64) -> f64 {
        let mut accountant = Accountant::default();
        mechanisms.iter().for_each(|&(mechanism, times)| accountant.spend(mechanism, times));
        accountant.epsilon(delta)
    }

    fn gaussian(rate: f64, noise: f64) -> Mechanism {
        Mechanism::Gaussian { rate, noise }
    }

    #[derive(serde::Deserialize)]
    struct Reference {
        /// Rate, noise, times.
        mechanisms: Vec<(f64, f64, u64)>,
        delta: f64,
        /// By the published Rényi accountant, and by privacy loss distributions, which are all but exact.
        renyi: f64,
        loss: f64,
    }

    #[test]
    fn no_less_than_the_loss_and_no_more_than_the_published_accountant() {
        let references: Vec<Reference> =
            serde_json::from_str(include_str!("../../tests/reference/accountant.json")).unwrap();
        assert!(references.len() > 150);
        for Reference { mechanisms, delta, renyi, loss } in references {
            let own: Vec<_> = mechanisms.iter().map(|&(rate, noise, times)| (gaussian(rate, noise), times)).collect();
            let found = spent(&own, delta);
            assert!(loss <= found && found <= renyi * (1.0 + 1e-6), "{mechanisms:?}: {loss} {found} {renyi}");
        }
    }

    #[test]
    fn values_of_the_specification() {
        // (q, σ, T, δ) → ε by Rényi orders, by privacy losses.
        for ((rate, noise, times, delta), (renyi, loss)) in [
            ((1.0, 1.0, 1, 1e-5), (4.728507, 4.377178)),
            ((1.0, 4.0, 10, 1e-5), (3.617100, 3.341410)),
            ((1.0, 20.0, 300, 1e-5), (4.011322, 3.708636)),
            ((0.1, 1.0, 100, 1e-5), (7.903850, 7.046629)),
            ((0.01, 1.0, 1000, 1e-5), (2.101367, 1.828934)),
            ((0.001, 0.8, 10000, 1e-6), (1.703625, 0.959778)),
        ] {
            let found = spent(&[(gaussian(rate, noise), times)], delta);
            assert!(loss <= found && found <= renyi * (1.0 + 1e-6), "{rate} {noise}: {loss} {found} {renyi}");
        }
    }

    #[test]
    fn by_hand() {
        // ρ(2) of a sample: log(1 + q²(e^(1/σ²) − 1)).
        let wanted = (0.01f64 * 1f64.exp_m1()).ln_1p();
        assert!((whole_moment(0.1, 1.0, 2) - wanted).abs() < 1e-12);
        // Both series meet the whole orders.
        for (rate, noise) in [(0.3, 1.5), (0.01, 0.8), (0.9, 2.0)] {
            for order in 2..8u32 {
                let (near, whole) = (moment(rate, noise, f64::from(order) + 1e-7), whole_moment(rate, noise, order));
                assert!((near - whole).abs() < 1e-5 * whole.max(1e-3), "{rate} {noise} {order}: {near} {whole}");
            }
        }
        assert_eq!(spent(&[], 1e-5), 0.0);
        assert_eq!(spent(&[(gaussian(0.0, 1.0), 100)], 1e-5), 0.0);
        assert_eq!(spent(&[(gaussian(1.0, 0.0), 1)], 1e-5), f64::INFINITY);
    }

    #[test]
    fn choices_compose_better_than_their_epsilons_and_never_worse() {
        // One choice: pure ε. A hundred: ε²/8 each, as a Gaussian with σ = 2/ε.
        let choice = Mechanism::Choice { epsilon: 0.2 };
        assert!(spent(&[(choice, 1)], 1e-6) <= 0.2 + 1e-12);
        let many = spent(&[(choice, 100)], 1e-6);
        assert!((many - spent(&[(gaussian(1.0, 10.0), 100)], 1e-6)).abs() < 1e-9 && many < 20.0, "{many}");
    }

    #[test]
    fn noise_for_a_budget_keeps_it_and_no_more() {
        for (rate, times, epsilon, delta) in
            [(1.0, 1, 1.0, 1e-5), (1.0, 300, 8.0, 1e-5), (0.01, 1000, 0.5, 1e-6), (0.2, 40, 30.0, 1e-4)]
        {
            let budget = Budget { epsilon, delta };
            let noise = budget.noise(|noise| vec![(gaussian(rate, noise), times)]).unwrap();
            let (kept, less) = (
                spent(&[(gaussian(rate, noise), times)], delta),
                spent(&[(gaussian(rate, noise * (1.0 - 1e-4)), times)], delta),
            );
            assert!(kept <= epsilon && less > epsilon, "{rate} {times}: {kept} {less}");
        }
        let choices = |noise| vec![(gaussian(1.0, noise), 10), (Mechanism::Choice { epsilon: 1.0 }, 1000)];
        assert_eq!(Budget { epsilon: 2.0, delta: 1e-5 }.noise(choices), None);
    }
}
