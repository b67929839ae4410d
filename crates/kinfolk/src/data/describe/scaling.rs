//! How numbers spread over many clients are pooled and scaled.

use crate::num::Moments;
use serde::{Deserialize, Serialize};

/// A number this many deviations away from the other clients' numbers is taken for a mistake.
const EXTREME: f64 = 1000.0;
/// Where extreme numbers multiply the deviation by this, they make up 99 % of the variance, and scale nobody else.
const DOMINATED: f64 = 10.0;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pooled {
    /// Their moments; without the clients with extreme numbers where those make up nearly all of the variance.
    pub moments: Moments,
    pub extremes: Vec<Extreme>,
}

/// A number that is far from those of the other clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Extreme {
    pub client: usize,
    pub value: f64,
    /// Distance from the mean of the others, in their deviations.
    pub ratio: f64,
}

impl Pooled {
    /// Pools the moments of every client. What is usual is the median over clients, which a few of them cannot move.
    pub(crate) fn of(clients: &[Moments]) -> Self {
        let merge = |chosen: &dyn Fn(usize) -> bool| {
            let mut all = Moments::NONE;
            clients.iter().enumerate().filter(|(client, _)| chosen(*client)).for_each(|(_, own)| all.merge(own));
            all
        };
        let all = merge(&|_| true);
        let Some(middle) = median(clients.iter().filter(|own| own.count > 0).map(|own| own.mean)) else {
            return Self { moments: all, extremes: Vec::new() };
        };
        let spreads = clients.iter().filter(|own| own.count > 0).map(|own| own.distance_from(middle));
        let usual = median(spreads.filter(|spread| *spread > 0.0)).unwrap_or(0.0);
        let farthest = |own: &Moments| if own.max - middle > middle - own.min { own.max } else { own.min };
        let is_extreme = |own: &Moments| own.count > 0 && (farthest(own) - middle).abs() / EXTREME > usual;
        let others = merge(&|client| !is_extreme(&clients[client]));
        let extreme = |(client, own): (usize, &Moments)| {
            let value = farthest(own);
            Extreme { client, value, ratio: (value - others.mean).abs() / others.deviation }
        };
        let extremes = match others.deviation > 0.0 {
            true => clients.iter().enumerate().filter(|(_, own)| is_extreme(own)).map(extreme).collect(),
            false => Vec::new(),
        };
        let dominated = !extremes.is_empty() && all.deviation / DOMINATED > others.deviation;
        Self { moments: if dominated { others } else { all }, extremes }
    }
}

/// The lower of two middle values.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

/// Scales a number to (value − mean) / deviation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Subtracted first.
    pub(crate) mean: f64,
    /// The divisor.
    pub(crate) deviation: f64,
}

impl Scale {
    /// What standardises these numbers; a constant is only shifted to 0.
    pub(crate) fn of(moments: &Moments) -> Self {
        Self { mean: moments.mean, deviation: if moments.deviation > 0.0 { moments.deviation } else { 1.0 } }
    }

    /// The identity.
    pub(crate) const KEEP: Self = Self { mean: 0.0, deviation: 1.0 };

    pub(crate) fn apply(&self, value: f64) -> f64 {
        (value - self.mean) / self.deviation
    }

    pub(crate) fn undo(&self, value: f64) -> f64 {
        value * self.deviation + self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Moments {
        Moments::of(values.iter().copied())
    }

    #[test]
    fn a_constant_is_only_shifted() {
        assert_eq!(Scale::of(&of(&[0.1; 3])), Scale { mean: 0.1, deviation: 1.0 });
        assert_eq!(Scale::of(&of(&[1.0, 5.0])), Scale { mean: 3.0, deviation: 2.0 });
    }

    #[test]
    fn one_extreme_cell_spoils_nobody_elses_scale() {
        let calm = [-2.0, 0.5, 1.0, -1.0, 2.0, 0.0, -0.5, 3.0];
        let shifted = |by: f64| calm.map(|value| value + by);
        let usual: Vec<Moments> = (0..5).map(|client| of(&shifted(f64::from(client)))).collect();
        let wanted = Pooled::of(&usual);
        assert_eq!((wanted.extremes.len(), wanted.moments.count), (0, 40));
        for cell in [1e9, -1e9, 1e140, -1e140, f64::MAX] {
            for spoiled in 0..5 {
                let mut clients = usual.clone();
                let mut rows = shifted(spoiled as f64);
                rows[3] = cell;
                clients[spoiled] = of(&rows);
                let found = Pooled::of(&clients);
                let extreme = found.extremes[0];
                assert_eq!((found.extremes.len(), extreme.client, extreme.value), (1, spoiled, cell));
                assert!((extreme.ratio / (cell.abs() / found.moments.deviation) - 1.0).abs() < 1e-6, "{extreme:?}");
                assert_eq!(found.moments.count, 32);
                assert!((found.moments.deviation / wanted.moments.deviation - 1.0).abs() < 0.3, "{found:?}");
            }
        }
        // Two of five at once do not hide each other.
        let odd = of(&[1e9, 0.0, 1.0]);
        assert_eq!(Pooled::of(&[usual[0], odd, usual[1], odd, usual[2]]).moments.count, 24);
    }

    #[test]
    fn clients_that_differ_are_no_mistake() {
        // Spreads from 1 to 100, a column that is 0 nearly everywhere, one that is constant at every client.
        let wide: Vec<Moments> = (0..9).map(|client| of(&[-1.0, 0.0, 1.0].map(|v| v * 1.78f64.powi(client)))).collect();
        let sparse: Vec<Moments> =
            (0..40).map(|client| of(&[0.0, 0.0, f64::from(u8::from(client % 13 == 0)), 0.0])).collect();
        let constant: Vec<Moments> = (0..6).map(|client| of(&[f64::from(client); 4])).collect();
        let alone = vec![of(&[5.0; 9]), of(&[5.0, 1e9, 5.0]), of(&[5.0; 9])];
        for clients in [wide, sparse, constant, alone] {
            let found = Pooled::of(&clients);
            assert_eq!(found.extremes, []);
            assert_eq!(found.moments.count, clients.iter().map(|own| own.count).sum::<u64>());
        }
        assert_eq!(Pooled::of(&[]), Pooled { moments: Moments::NONE, extremes: Vec::new() });
    }
}
