//! How large a client's residuals are beside what a linear model expects of them.

use super::fold_products::{FoldedRows, Folds, TargetScale};
use super::*;
use crate::families::{Histogram, Predictor};

/// The residuals of held-out rows, each in units of the deviation that its prediction has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Residuals {
    pub(crate) folds: Folds,
    pub(crate) target: TargetScale,
    /// The folds that are predicted, each with a model that was learned without it.
    pub(crate) predictors: Vec<(u32, Predictor)>,
}

impl Answer for Histogram {
    fn read(counts: &[u32], _: &[f64]) -> Self {
        Histogram { counts: counts.iter().map(|&count| u64::from(count)).collect() }
    }

    fn write(self, counts: &mut Vec<u32>, _: &mut Vec<f64>) {
        counts.extend(self.counts.iter().map(|&count| count as u32));
    }
}

impl Kind for Residuals {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&[][..], Capability::Descent)
    }

    fn sends(&self, _: usize) -> Sends {
        Sends::numbers(0).with_counts(Histogram::BINS)
    }

    fn cost(&self, load: &Load) -> Cost {
        load.solves(1.0)
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let rows = FoldedRows::of(context, self.folds, self.target)?;
        if self.predictors.iter().any(|(_, predictor)| !predictor.fits(rows.columns)) {
            return Err(context.naming()(Error::federation("a predictor that does not fit the clients' columns")));
        }
        let mut histogram = Histogram::default();
        for (fold, x, y, _) in rows.iter() {
            if let Some((_, predictor)) = self.predictors.iter().find(|(of, _)| *of as usize == fold) {
                histogram.add((y - predictor.mean(x)).abs() / predictor.variance(x).sqrt());
            }
        }
        Ok(context.reply(histogram, None))
    }

    fn loss(&self, _: &Reply) -> Option<f64> {
        None
    }
}
