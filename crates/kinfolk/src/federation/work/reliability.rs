//! How often classes came true, beside the probabilities that they were given.

use super::fold_products::{FoldedRows, Folds, TargetScale, misfit};
use super::*;
use crate::families::{ClassOdds, Reliability};

/// The probabilities of held-out rows' classes, and how often these were right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CountProbabilities {
    pub(crate) folds: Folds,
    /// The folds that are predicted, each with coefficients that were learned without it.
    pub(crate) coefficients: Vec<(u32, Vec<f64>)>,
}

impl Answer for Reliability {
    fn read(counts: &[u32], _: &[f64]) -> Self {
        Self::from_counts(counts.iter().map(|&count| u64::from(count)))
    }

    fn write(self, counts: &mut Vec<u32>, _: &mut Vec<f64>) {
        counts.extend(self.counts().map(|count| count as u32));
    }
}

impl Telling for CountProbabilities {
    const TELLS: Tells =
        Tells::counts("its held-out rows counted by the probabilities they were given, and how many came true");
}

impl Kind for CountProbabilities {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&[][..], Capability::Descent)
    }

    fn sends(&self, _: usize) -> Sends {
        Sends::numbers(0).with_counts(Reliability::COUNTS)
    }

    fn cost(&self, load: &Load) -> Cost {
        load.solves(1.0)
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let rows = FoldedRows::of(context, self.folds, TargetScale::PLAIN)?;
        if self.coefficients.iter().any(|(_, coefficients)| coefficients.len() != rows.form.coefficients()) {
            return Err(context.naming()(misfit()));
        }
        let mut odds = ClassOdds::new(rows.form.response.equations());
        let mut found = Reliability::default();
        // Rows are counted, whatever their weights.
        for (fold, x, class, _) in rows.classes() {
            if let Some((_, coefficients)) = self.coefficients.iter().find(|(of, _)| *of as usize == fold) {
                odds.set(x, coefficients);
                found.add(&odds.probabilities, class);
            }
        }
        // Single rows must not show.
        context.guard.minimum().into_iter().for_each(|minimum| found.coarsen(minimum as u64));
        Ok(context.reply(found, None))
    }

    fn fault(&self) -> Option<&'static str> {
        let odd = self.folds.count < 2 || self.coefficients.len() > self.folds.count as usize;
        odd.then_some("has fewer than two folds, or more models than folds")
    }

    fn implausible(&self, reply: &Reply, _: f64) -> Option<String> {
        let found = Reliability::read(&reply.counts, &reply.numbers);
        (found.rows > u64::from(reply.rows)).then(|| format!("{} predictions of {} rows", found.rows, reply.rows))
    }

    fn loss(&self, _: &Reply) -> Option<f64> {
        None
    }
}
