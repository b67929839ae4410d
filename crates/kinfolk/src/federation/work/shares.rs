//! How many of a client's rows each model fits best.

use super::*;
use crate::models::first_smallest;

/// The share of the training rows that each of these models fits best, ties to the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    pub(crate) among: Vec<usize>,
}

impl Telling for Shares {
    const TELLS: Tells = Tells::numbers("the share of its rows that each model fits best");
}

impl Kind for Shares {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&self.among, Capability::Descent)
    }

    fn sends(&self, _: usize) -> Sends {
        Sends::numbers(self.among.len())
    }

    fn cost(&self, load: &Load) -> Cost {
        load.looks(self.among.len() as f64, self.among.len())
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let rows = &context.client().train;
        let losses: Vec<Vec<f64>> = self.among.iter().map(|&model| context.worker.row_losses(model, rows)).collect();
        let mut shares = vec![0.0; self.among.len()];
        for row in 0..rows.len() {
            shares[first_smallest(losses.iter().map(|losses| losses[row])).position] += 1.0;
        }
        shares.iter_mut().for_each(|share| *share /= rows.len() as f64);
        Ok(context.reply(shares, None))
    }

    fn fault(&self) -> Option<&'static str> {
        self.among.is_empty().then_some("has no model to work with")
    }

    fn implausible(&self, reply: &Reply, _: f64) -> Option<String> {
        let odd = |share: &f64| !reply::is_share(*share);
        reply::below(&reply.numbers, 0.0)
            .or_else(|| reply.numbers.iter().any(odd).then(|| "shares of its rows that cannot be".to_string()))
    }

    fn loss(&self, reply: &Reply) -> Option<f64> {
        reply::best(&reply.numbers)
    }
}
