//! How far clients are apart: a histogram for the page.

use crate::record::ComparisonRecord;
use serde::Serialize;

/// What the page draws of the distances that one method measured on one seed.
#[derive(Serialize)]
pub(super) struct Histogram<'a> {
    /// From where on clients are strangers; absent where nobody is.
    lambda: Option<f64>,
    reason: &'a str,
    /// How many pairs were compared.
    pairs: usize,
    /// Where the first bar begins and the last one ends.
    from: f64,
    to: f64,
    /// Pairs in every bar; those of one true cluster apart where the truth is known.
    bars: Vec<[usize; 2]>,
    /// Whether the truth is known.
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
        // Bars begin at 0, which is where equal clients are.
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
