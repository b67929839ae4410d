//! A mixture fitted to a client's own rows.

use super::*;
use crate::mixture::{Family, Fitting, fit, recast};

/// Fit a mixture to the client's own rows by EM from several starts.
///
/// A client keeps the parameters of a mixture, and behind them the weights it began with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FitMixture {
    /// The mixture to fit. It may scatter in another way than the model; what is kept has the model's form.
    pub shape: Shape,
    /// How.
    pub fitting: Fitting,
    /// Seeds the starts, together with the client's id.
    pub seed: u64,
    /// Keep the result as the client's own model.
    pub keep: bool,
    /// What is sent of the fit, in the form in which it was fitted.
    pub send: Parts,
}

/// What is sent of a mixture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parts {
    /// Nothing.
    Nothing,
    /// The centres.
    Centres,
    /// The centres and how rows scatter around them.
    Shared,
    /// All parameters.
    Whole,
    /// The sums of the E-step at the parameters before the step.
    Statistics(Detail),
}

impl Parts {
    pub(crate) fn count(self, shape: &Shape) -> usize {
        match self {
            Parts::Nothing => 0,
            Parts::Centres => shape.centres().end,
            Parts::Shared => shape.scatter().end,
            Parts::Whole => shape.len(),
            Parts::Statistics(detail) => Statistics::packed_len(shape, detail),
        }
    }

    /// Besides a mixture's answer. Counts as one model, however much is sent: what stays with a client does not count.
    pub(super) fn sends(self, shape: &Shape) -> Sends {
        let length = self.count(shape);
        let content = if length > 0 { Content::Statistics } else { Content::Nothing };
        Sends { content, length, models: usize::from(length > 0), ..Sends::numbers(2) }.with_counts(1)
    }
}

/// How a mixture fits a client's rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fitted {
    /// Mean negative log likelihood at the last step; 0 without steps.
    pub(crate) loss: f64,
    pub(crate) smallest_weight: f64,
    pub(crate) converged: bool,
}

impl Answer for Fitted {
    fn read(counts: &[u32], numbers: &[f64]) -> Self {
        Self { loss: numbers[0], smallest_weight: numbers[1], converged: counts[0] != 0 }
    }

    fn write(self, counts: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        counts.push(u32::from(self.converged));
        numbers.extend([self.loss, self.smallest_weight]);
    }
}

pub(super) fn implausible(reply: &Reply, least_loss: f64) -> Option<String> {
    let weight = reply.numbers[1];
    let odd = weight.is_finite() && !reply::is_share(weight);
    reply::below(&reply.numbers, least_loss)
        .or_else(|| odd.then(|| format!("{weight:.1e} for a weight, which cannot be")))
}

pub(super) fn smallest(weights: &[f64]) -> f64 {
    weights.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Most components, starts or iterations of a fit.
const MOST: usize = 1 << 24;

impl FitMixture {
    /// Whether it fits the clients' mixture, up to the scatter.
    fn is_sound(&self, own: &Shape) -> bool {
        let same_family = match (self.shape.family, own.family) {
            (Family::Gaussian(_), Family::Gaussian(_)) => true,
            (Family::Regression { intercept: one, .. }, Family::Regression { intercept: other, .. }) => one == other,
            _ => false,
        };
        let same_size = !self.keep || self.shape.components == own.components;
        let few_enough =
            self.shape.components <= MOST && self.fitting.starts <= MOST && self.fitting.iterations <= MOST;
        same_family && same_size && few_enough && self.shape.components > 0 && self.shape.columns == own.columns
    }
}

impl HasLoss for Fitted {}

impl Telling for FitMixture {
    const TELLS: Tells = Tells::numbers("how likely its rows are, and the smallest weight of a component")
        .with_vector("the mixture that fits its rows: centres, and scatter or weights where these are asked for")
        .with_counts("whether the fit came to an end");
}

impl Kind for FitMixture {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&[][..], Capability::Mixture).keeping(self.keep)
    }

    fn sends(&self, _: usize) -> Sends {
        self.send.sends(&self.shape)
    }

    fn cost(&self, load: &Load) -> Cost {
        load.mixes(&self.shape, self.fitting.starts as f64 * self.fitting.iterations as f64)
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        context.guard.components(&self.shape)?;
        let (shape, own) = (self.shape, context.shape()?);
        if !self.is_sound(&own) {
            return Err(context.unsound("a fit"));
        }
        let is_kept = self.keep && context.numbers_of(context.stamp).is_some();
        let seat = context.seat();
        let key = Key::new(self.seed).word("fit").word(&seat.client.id);
        // The state has the model's shape: a repeated order of another shape is fitted again.
        let rows = match shape.family == own.family {
            true => context.mixture_rows(&seat, &shape),
            false => Cow::Owned(Rows::of(&shape, &seat.client.train)),
        };
        let fitted = fit(&shape, &rows, &self.fitting, &key).map_err(context.naming())?;
        let smallest_weight = smallest(&fitted.params[shape.weights()]);
        let members = smallest_weight * seat.client.train.len() as f64;
        context.guard.enough("a fit with a component", members)?;
        let loss = -fitted.log_likelihood / seat.client.train.len() as f64;
        let count = self.send.count(&shape);
        let vector = (count > 0).then(|| fitted.params[..count].to_vec());
        let reply = context.reply(Fitted { loss, smallest_weight, converged: fitted.converged }, vector);
        if self.keep && !is_kept {
            let mut vectors = recast(&shape, &fitted.params, &own);
            vectors.extend_from_within(own.weights());
            context.keep(&reply.numbers, vectors)?;
        }
        Ok(reply)
    }

    fn implausible(&self, reply: &Reply, least_loss: f64) -> Option<String> {
        implausible(reply, least_loss)
    }
}
