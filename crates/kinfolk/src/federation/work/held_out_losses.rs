//! How well several models, and a stack of them, predict the classes of held-out rows.

use super::fold_products::{FoldedRows, Folds, TargetScale, misfit};
use super::*;
use crate::families::{ClassOdds, StackLosses};
use crate::num::{add_scaled, dot};

/// The losses of a client's folds with four models that were learned without them, and with a stack of these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldOutLosses {
    pub(crate) folds: Folds,
    /// The folds that are predicted, each with the coefficients of four models.
    pub(crate) models: Vec<(u32, [Vec<f64>; 4])>,
    /// The weights of the stack.
    pub(crate) stack: [f64; 4],
}

/// The losses of each of the folds, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct LossesByFold(pub(crate) Vec<StackLosses>);

impl Answer for LossesByFold {
    fn read(counts: &[u32], numbers: &[f64]) -> Self {
        let fold = |(rows, numbers): (&u32, &[f64])| StackLosses::read(f64::from(*rows), numbers);
        Self(counts.iter().zip(numbers.chunks_exact(StackLosses::NUMBERS)).map(fold).collect())
    }

    fn write(self, counts: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        for fold in self.0 {
            counts.push(fold.losses.rows as u32);
            fold.write(numbers);
        }
    }
}

impl Telling for HeldOutLosses {
    const TELLS: Tells = Tells::numbers(
        "sums of the losses of its held-out rows, and of their squares, with several models and a stack of them",
    )
    .with_counts("how many of these rows are predicted right");
}

impl Kind for HeldOutLosses {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&[][..], Capability::Descent)
    }

    fn sends(&self, _: usize) -> Sends {
        Sends::numbers(self.models.len() * StackLosses::NUMBERS).with_counts(self.models.len())
    }

    fn cost(&self, load: &Load) -> Cost {
        load.solves(1.0)
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let rows = FoldedRows::of(context, self.folds, TargetScale::PLAIN)?;
        let (equations, columns) = (rows.form.response.equations(), rows.form.coefficients());
        if self.models.iter().flat_map(|(_, models)| models).any(|model| model.len() != columns) {
            return Err(context.naming()(misfit()));
        }
        let mut folds = vec![StackLosses::default(); self.models.len()];
        let mut four: [ClassOdds; 4] = std::array::from_fn(|_| ClassOdds::new(equations));
        let mut stacked = ClassOdds::new(equations);
        let (mut residual, mut bent) = (vec![0.0; equations], vec![0.0; equations]);
        for (fold, x, class, weight) in rows.classes() {
            let Some(place) = self.models.iter().position(|(of, _)| *of as usize == fold) else { continue };
            let found = &mut folds[place];
            stacked.odds.fill(0.0);
            for (at, (odds, model)) in four.iter_mut().zip(&self.models[place].1).enumerate() {
                odds.set(x, model);
                found.losses.rungs[at] += weight * odds.deviance(class);
                add_scaled(&mut stacked.odds, self.stack[at], &odds.odds);
            }
            stacked.normalise();
            found.losses.rows += 1.0;
            found.losses.stack += weight * stacked.deviance(class);
            stacked.residual(class, &mut residual);
            for (i, one) in four.iter().enumerate() {
                found.gradient[i] -= 2.0 * weight * dot(&residual, &one.odds);
                stacked.weigh(&one.odds, &mut bent);
                for (j, other) in four.iter().enumerate() {
                    found.curvature[i * 4 + j] += 2.0 * weight * dot(&bent, &other.odds);
                }
            }
        }
        Ok(context.reply(LossesByFold(folds), None))
    }

    fn fault(&self) -> Option<&'static str> {
        if self.folds.count < 2 || self.models.len() > self.folds.count as usize {
            return Some("has fewer than two folds, or more models than folds");
        }
        let weights = self.stack.iter();
        let numbers = self.models.iter().flat_map(|(_, models)| models).flatten().chain(weights);
        numbers.into_iter().any(|value| !value.is_finite()).then_some("has coefficients that are not finite")
    }

    fn implausible(&self, reply: &Reply, _: f64) -> Option<String> {
        let counted: u64 = reply.counts.iter().map(|&count| u64::from(count)).sum();
        (counted > u64::from(reply.rows)).then(|| format!("losses of {counted} rows where there are {}", reply.rows))
    }

    fn loss(&self, _: &Reply) -> Option<f64> {
        None
    }
}
