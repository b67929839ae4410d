//! A histogram of the distances between clients, for the page.

use crate::record::ComparisonRecord;
use serde::Serialize;

/// The distances that one method measured on one seed, as the page draws them.
#[derive(Serialize)]
pub(super) struct Histogram<'a> {
    /// The threshold λ; absent where it is infinite.
    lambda: Option<f64>,
    reason: &'a str,
    pairs: usize,
    from: f64,
    to: f64,
    /// Pairs in every bar: within one true cluster, and others.
    bars: Vec<[usize; 2]>,
    truth: bool,
}

impl<'a> Histogram<'a> {
    /// `None` where no two clients were compared.
    pub(super) fn of(record: &'a ComparisonRecord) -> Option<Self> {
        const BARS: usize = 60;
        let found = &record.found;
        let distances = || found.pairs.iter().map(|(_, _, distance)| *distance);
        let (least, most) = distances().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), d| (a.min(d), b.max(d)));
        if least > most {
            return None;
        }
        // Bars begin at 0, the distance of equal clients.
        let (from, to) = (least.min(0.0), if most > least.min(0.0) { most } else { least + 1.0 });
        let mut bars = vec![[0; 2]; BARS];
        for &(a, b, distance) in &found.pairs {
            let bar = (((distance - from) / (to - from)) * BARS as f64) as usize;
            let same = record.truth.as_ref().is_some_and(|truth| truth[a as usize] == truth[b as usize]);
            bars[bar.min(BARS - 1)][usize::from(!same)] += 1;
        }
        Some(Self {
            lambda: found.lambda,
            reason: &found.reason,
            pairs: found.pairs.len(),
            from,
            to,
            bars,
            truth: record.truth.is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::Comparison;

    #[test]
    fn every_pair_is_in_one_bar() {
        let mut record = ComparisonRecord {
            label: "a".into(),
            seed: 0,
            clients: vec!["x".into(), "y".into(), "z".into()],
            truth: Some(vec![0, 0, 1]),
            found: Comparison {
                pairs: vec![(0, 1, 0.25), (0, 2, 6.0), (1, 2, 5.95)],
                lambda: Some(3.0),
                reason: "as given".into(),
            },
        };
        let histogram = Histogram::of(&record).unwrap();
        assert_eq!((histogram.from, histogram.to, histogram.pairs), (0.0, 6.0, 3));
        assert_eq!((histogram.bars[2], histogram.bars[59]), ([1, 0], [0, 2]));
        assert_eq!(histogram.bars.iter().flatten().sum::<usize>(), 3);
        record.found.pairs = vec![(0, 1, 0.0)];
        assert_eq!(Histogram::of(&record).unwrap().bars[0], [1, 0]);
        record.found.pairs.clear();
        assert!(Histogram::of(&record).is_none());
    }
}
