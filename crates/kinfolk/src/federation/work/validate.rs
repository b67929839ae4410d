//! Cross-validation on one client's rows.

use super::*;
use crate::models::pulled::{mean_loss, minimise_near, quadratic_everywhere};

/// Losses on one fold of models learnt from the other folds under the pull of a centre; summed over the fold's rows and
/// divided by all rows, so that the folds' answers add up to a mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Validate {
    /// The pulls to try.
    pub trials: Vec<Pull>,
    /// The fold that is held out.
    pub fold: u32,
    /// Number of folds.
    pub of: u32,
    /// How the client's loss enters the method's objective.
    pub scale: Scale,
}

impl Validate {
    fn learnt(&self) -> Portion {
        Portion::Others { index: self.fold, of: self.of }
    }
}

impl Telling for Validate {
    const TELLS: Tells = Tells::numbers("losses on a fold of its rows of models learned from the others");
}

impl Kind for Validate {
    fn needs(&self) -> Needs<'_> {
        let centres: Vec<usize> = self.trials.iter().map(|trial| trial.centre).collect();
        Needs::new(centres, Capability::Descent).on(self.learnt())
    }

    fn sends(&self, _: usize) -> Sends {
        Sends::numbers(self.trials.len())
    }

    fn cost(&self, load: &Load) -> Cost {
        load.solves(self.trials.len() as f64)
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let held_out = context.rows(Portion::Fold { index: self.fold, of: self.of })?;
        let learnt = context.rows(self.learnt())?;
        let share = held_out.len() as f64 / context.client().train.len() as f64;
        let model = context.model();
        let at = context.naming();
        let known = quadratic_everywhere(model, &learnt, self.scale).map_err(&at)?;
        let mut losses = Vec::with_capacity(self.trials.len());
        for trial in &self.trials {
            let pull = (trial.strength, context.models[trial.centre].as_slice());
            let own = minimise_near(model, context.worker, &learnt, self.scale, pull, known.as_ref()).map_err(&at)?;
            losses.push(share * mean_loss(context.worker, &own, &held_out));
        }
        Ok(context.reply(losses, None))
    }

    fn loss(&self, reply: &Reply) -> Option<f64> {
        reply::best(&reply.numbers)
    }
}
