//! The exact minimiser of a client's loss.

use super::*;

/// The exact minimiser of the local loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Minimise {
    /// Strength of ½·ridge·‖θ‖² added to the mean loss.
    pub ridge: f64,
    /// Keep the result as the client's own model instead of sending it.
    pub keep: bool,
}

impl Telling for Minimise {
    const TELLS: Tells = Tells::numbers("the loss there").with_vector("the model with the smallest loss on its rows");
}

impl Kind for Minimise {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&[][..], Capability::Descent).keeping(self.keep)
    }

    fn sends(&self, width: usize) -> Sends {
        Sends::numbers(1).model(Content::Minimiser, width, !self.keep)
    }

    fn cost(&self, load: &Load) -> Cost {
        load.solves(1.0)
    }

    fn hides_rows(&self) -> bool {
        true
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        if let (true, Some(numbers)) = (self.keep, context.numbers_of(context.stamp)) {
            // This order has been carried out, and its answer got lost.
            return Ok(context.reply(numbers, None));
        }
        let rows = &context.client().train;
        if let Some(mut hidden) = context.guard.answer(1)? {
            let convex = context.model().want_convex()?;
            let vector = convex.minimise_hidden(rows, self.ridge, &mut hidden).map_err(context.naming())?;
            // No loss is told.
            return context.keep_or_send(if self.keep { Keep::Instead } else { Keep::No }, 0.0, vector);
        }
        let vector = context.model().want_convex()?.minimise(rows, self.ridge).map_err(context.naming())?;
        let own = context.worker.load(&vector);
        let loss = context.worker.loss(own, rows);
        context.keep_or_send(if self.keep { Keep::Instead } else { Keep::No }, loss, vector)
    }
}
