//! How large a client's residuals are beside what a linear model expects of them.

use super::fold_products::{FoldedRows, Folds, TargetScale, misfit};
use super::*;
use crate::families::{Histogram, Predictor};

/// The residuals of held-out rows, each in units of the deviation that its prediction has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Residuals {
    pub(crate) folds: Folds,
    pub(crate) target: TargetScale,
    /// What is predicted with, but for the coefficients.
    pub(crate) predictor: Predictor,
    /// The folds that are predicted, each with coefficients that were learned without it.
    pub(crate) coefficients: Vec<(u32, Vec<f64>)>,
}

impl Answer for Histogram {
    fn read(counts: &[u32], _: &[f64]) -> Self {
        Histogram { counts: counts.iter().map(|&count| u64::from(count)).collect() }
    }

    fn write(self, counts: &mut Vec<u32>, _: &mut Vec<f64>) {
        counts.extend(self.counts.iter().map(|&count| count as u32));
    }
}

impl Telling for Residuals {
    const TELLS: Tells = Tells::counts("its held-out rows counted by the size of their residuals");
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
        let columns = rows.form.width();
        let fits = self.coefficients.iter().all(|(_, coefficients)| coefficients.len() == columns);
        if !self.predictor.fits(columns) || !fits {
            return Err(context.naming()(misfit()));
        }
        let mut histogram = Histogram::default();
        for (fold, x, y) in rows.values() {
            if let Some((_, coefficients)) = self.coefficients.iter().find(|(of, _)| *of as usize == fold) {
                let residual = y - crate::num::dot(coefficients, x);
                histogram.add(residual.abs() / self.predictor.variance(x).sqrt());
            }
        }
        // Single rows must not show.
        context.guard.minimum().into_iter().for_each(|minimum| histogram.coarsen(minimum as u64));
        Ok(context.reply(histogram, None))
    }

    fn fault(&self) -> Option<&'static str> {
        if self.folds.count < 2 || self.coefficients.len() > self.folds.count as usize {
            return Some("has fewer than two folds, or more predictors than folds");
        }
        let noise = self.predictor.noise;
        (noise.is_nan() || noise < 0.0).then_some("has noise of a negative variance")
    }

    fn implausible(&self, reply: &Reply, _: f64) -> Option<String> {
        let counted: u64 = reply.counts.iter().map(|&count| u64::from(count)).sum();
        (counted > u64::from(reply.rows)).then(|| format!("{counted} residuals of {} rows", reply.rows))
    }

    fn loss(&self, _: &Reply) -> Option<f64> {
        None
    }
}
