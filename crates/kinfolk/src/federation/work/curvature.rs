//! How much a client's loss curves.

use super::*;
use crate::error::ErrorKind;

/// How much the mean loss curves on the training rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curvature;

/// How much a mean loss curves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Curvatures {
    pub(crate) most: f64,
    pub(crate) least: f64,
    /// At most on a single row.
    pub(crate) single: f64,
}

impl Answer for Curvatures {
    fn read(_: &[u32], numbers: &[f64]) -> Self {
        Self { most: numbers[0], least: numbers[1], single: numbers[2] }
    }

    fn write(self, _: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        numbers.extend([self.most, self.least, self.single]);
    }
}

impl Telling for Curvature {
    const TELLS: Tells = Tells::numbers("how much its loss curves: most, least, and a bound for single rows");
}

impl Kind for Curvature {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&[][..], Capability::Descent)
    }

    fn sends(&self, _: usize) -> Sends {
        Sends::numbers(3)
    }

    fn cost(&self, load: &Load) -> Cost {
        load.solves(1.0)
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let model = context.model().convex().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "there is no bound on the curvature of this model's loss")
                .hint("give a step and a smoothness, or use a linear or logistic model")
        })?;
        let mut answer = Curvatures::read(&[], &model.curvatures(&context.client().train));
        if context.guard.minimum().is_some() {
            // How much a single row curves would show that row; it is no more than all of them together.
            answer.single = answer.most * context.client().train.len() as f64;
        }
        Ok(context.reply(answer, None))
    }

    fn implausible(&self, reply: &Reply, _: f64) -> Option<String> {
        reply::below(&reply.numbers, 0.0)
    }
}
