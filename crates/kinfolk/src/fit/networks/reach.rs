//! How far predictions of held-out rows were off: intervals of numbers, and how well families explain their members.

use crate::families::Histogram;
use crate::federation::work::Checked;
use crate::methods::{Intervals, NetworkClient};
use serde::{Deserialize, Serialize};

/// How many rows of everybody's residuals a client's own spread leans on.
const LEANING: f64 = 20.0;
/// What a normal distribution has, where no row was held out.
const USUAL: f64 = 1.645;
/// The share of rows that intervals shall cover.
const COVERAGE: f64 = 0.9;

/// Intervals of numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct NetworkIntervals {
    /// How far they reach, in units of the spreads below.
    pub(super) reach: Intervals,
    /// The spread of residuals of everybody,
    pub(super) spread: f64,
    /// and of every client, in their order.
    pub(super) spreads: Vec<f64>,
}

/// How large the losses of a family's members are by its model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Fit {
    /// In the mean over members.
    pub(super) mean: f64,
    /// The variance of members' own means.
    pub(super) between: f64,
    /// The variance of single rows.
    pub(super) within: f64,
}

impl Fit {
    /// How many standard errors the mean loss of so many rows is above what members have. Losses are skewed: it is their cube root that is
    /// nearly normal, as that of a gamma distribution is (Wilson and Hilferty).
    pub(super) fn distance(&self, loss: f64, rows: f64) -> f64 {
        let variance = self.between + self.within / rows.max(1.0);
        if variance <= 0.0 || self.mean <= 0.0 {
            return 0.0;
        }
        let ninth = variance / (9.0 * self.mean.powi(2));
        ((loss / self.mean).max(0.0).cbrt() - (1.0 - ninth)) / ninth.sqrt()
    }

    /// How many rows that are like each other count for, where so many are of one client.
    pub(super) fn effective(&self, rows: f64) -> f64 {
        let alike = if self.within > 0.0 { self.between / self.within } else { 0.0 };
        rows / (1.0 + rows * alike)
    }
}

/// A residual's size in other units: bins of histograms are equal steps of the logarithm.
fn rescaled(histogram: &Histogram, unit: f64) -> Histogram {
    let mut found = Histogram::default();
    for (bin, &count) in histogram.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        // The middle of the bin stands for its rows.
        let middle = 0.5 * (Histogram::edge(bin) + Histogram::edge(bin + 1));
        found.add_many(middle / unit, count);
    }
    found
}

/// The spread of residuals, from sums of squares that lean on everybody's.
fn leaning(squares: f64, rows: f64, everybody: f64) -> f64 {
    ((squares + LEANING * everybody) / (rows + LEANING)).sqrt()
}

impl NetworkIntervals {
    /// From the residuals of held-out rows. What is learned of a client's spread from one half of them is tried on the other.
    pub(super) fn new(clients: &[NetworkClient]) -> Self {
        let served = || clients.iter().filter_map(|client| client.checked_served.as_ref());
        let sum = |of: &dyn Fn(&Checked) -> f64| served().map(of).sum::<f64>();
        let rows = sum(&|checked| checked.halves.iter().map(|half| f64::from(half.rows)).sum());
        let squares = sum(&|checked| checked.halves.iter().map(|half| half.losses).sum());
        let variance = if rows > 0.0 && squares > 0.0 { squares / rows } else { 1.0 };
        let mut groups = [Histogram::default(), Histogram::default()];
        for (place, checked) in served().enumerate() {
            for half in 0..2 {
                let other = &checked.halves[1 - half];
                let unit = leaning(other.losses, f64::from(other.rows), variance);
                groups[place % 2].merge(&rescaled(&checked.halves[half].residuals, unit));
            }
        }
        let spread = variance.sqrt();
        let mut newcomers = Histogram::default();
        for checked in clients.iter().filter_map(|client| client.checked_blend.as_ref()) {
            checked.halves.iter().for_each(|half| newcomers.merge(&rescaled(&half.residuals, spread)));
        }
        let mut all = groups[0].clone();
        all.merge(&groups[1]);
        let inside = |group: usize| Some(groups[group].share_below(groups[1 - group].quantile(COVERAGE)?));
        let share = |group: usize| groups[group].total() as f64 / all.total().max(1) as f64;
        let covered = match groups[1].total() {
            // One client alone: there is nobody to have its reach from.
            0 => None,
            _ => inside(0).zip(inside(1)).map(|(first, second)| share(0) * first + share(1) * second),
        };
        let reach = Intervals {
            reach: all.quantile(COVERAGE).unwrap_or(USUAL),
            newcomer_reach: newcomers.quantile(COVERAGE).unwrap_or(USUAL),
            coverage: covered,
            residuals: Intervals::shares(&all),
        };
        let own = |client: &NetworkClient| match &client.checked_served {
            Some(checked) => {
                let [squares, rows] = [
                    checked.halves.iter().map(|half| half.losses).sum::<f64>(),
                    checked.halves.iter().map(|half| f64::from(half.rows)).sum::<f64>(),
                ];
                leaning(squares, rows, variance)
            }
            None => spread,
        };
        Self { reach, spread, spreads: clients.iter().map(own).collect() }
    }
}

/// How well a family's model explains its members; families of few members lean on all.
pub(super) fn fits(clients: &[NetworkClient], families: usize) -> Vec<Fit> {
    let of = |family: Option<usize>| -> Option<Fit> {
        let members = clients.iter().filter(|client| family.is_none() || client.family == family);
        let mut means: Vec<(f64, f64)> = Vec::new();
        let (mut rows, mut losses, mut squares) = (0.0, 0.0, 0.0);
        for checked in members.filter_map(|client| client.checked_family.as_ref()) {
            let own: f64 = checked.halves.iter().map(|half| f64::from(half.rows)).sum();
            let loss: f64 = checked.halves.iter().map(|half| half.losses).sum();
            if own == 0.0 || !loss.is_finite() {
                continue;
            }
            rows += own;
            losses += loss;
            squares += checked.halves.iter().map(|half| half.squares).sum::<f64>();
            means.push((loss / own, own));
        }
        let count = means.len() as f64;
        if count < 2.0 {
            return None;
        }
        let mean = means.iter().map(|(mean, _)| mean).sum::<f64>() / count;
        let within = (squares / rows - (losses / rows).powi(2)).max(0.0);
        let spread = means.iter().map(|(own, _)| (own - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let by_chance = within * means.iter().map(|(_, rows)| rows.recip()).sum::<f64>() / count;
        Some(Fit { mean, between: (spread - by_chance).max(0.0), within })
    };
    let all = of(None).unwrap_or(Fit { mean: 1.0, between: 0.0, within: 2.0 });
    (0..families).map(|family| of(Some(family)).unwrap_or(all)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_and_effective_rows_by_hand() {
        let fit = Fit { mean: 1.0, between: 0.25, within: 3.0 };
        // The variance is 0.25 + 3/4 = 1, a ninth of it 1/9: (2 − 8/9) · 3 where the loss is 8, and (1 − 8/9) · 3 where it is 1.
        assert!((fit.distance(8.0, 4.0) - 10.0 / 3.0).abs() < 1e-12);
        assert!((fit.distance(1.0, 4.0) - 1.0 / 3.0).abs() < 1e-12);
        // 4 / (1 + 4 · 0.25/3) = 3.
        assert!((fit.effective(4.0) - 3.0).abs() < 1e-12);
        assert_eq!(Fit { between: 0.0, ..fit }.effective(7.0), 7.0);
    }

    #[test]
    fn residuals_in_other_units() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|value| histogram.add(f64::from(value) * 0.01));
        let halved = rescaled(&histogram, 2.0);
        assert_eq!(halved.total(), 1000);
        assert!((halved.quantile(0.9).unwrap() / 4.5 - 1.0).abs() < 0.03, "{:?}", halved.quantile(0.9));
    }
}
