//! One step of EM, or of gradient EM, from the sums of an E-step.

use super::{Family, LEAST_WEIGHT, Rows, Shape, Statistics, maximise, normalise};
use serde::{Deserialize, Serialize};

/// How a step is taken.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The kind of step.
    pub rule: Rule,
    /// Soft threshold on the coordinates of centres, times the step size.
    pub sparsity: f64,
    /// Share of the step that is taken: less than 1 where it is made from few rows.
    pub share: f64,
}

/// The kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Rule {
    /// Take over the model; with a step, find new weights for what is kept.
    Stay,
    /// Move centres along their gradients, and find new weights.
    Ascend(Rate),
    /// The full M-step.
    Maximise,
    /// Full M-steps from what is kept, and from the model with equal weights; what makes the rows likelier stays.
    Contest,
}

/// The step sizes η_r of gradient EM.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Rate {
    /// The same for all components.
    Fixed(f64),
    /// A number over the weight each component began with.
    Relative {
        /// C_η.
        factor: f64,
        /// At most what does not overshoot: one over the weight a component has, and for regressions less where features
        /// are alike.
        capped: bool,
    },
}

impl Step {
    /// Moves the parameters; `first` are the weights they began with. Without `rows`, steps are as long as suits standardised ones.
    pub(crate) fn take(
        &self,
        shape: &Shape,
        statistics: &Statistics,
        rows: Option<&Rows>,
        first: &[f64],
        params: &mut [f64],
    ) {
        match self.rule {
            Rule::Stay => set_weights(shape, statistics, self.share, params),
            Rule::Ascend(rate) => self.ascend(shape, statistics, rate, rows, first, params),
            Rule::Maximise | Rule::Contest => maximise(shape, statistics, params),
        }
    }

    /// θ_r ← θ_r + η_r ∂Q/∂θ_r, and new weights.
    fn ascend(
        &self,
        shape: &Shape,
        statistics: &Statistics,
        rate: Rate,
        rows: Option<&Rows>,
        first: &[f64],
        params: &mut [f64],
    ) {
        set_weights(shape, statistics, self.share, params);
        let width = shape.width();
        let (centres, rest) = params.split_at_mut(shape.centres().end);
        let weights = &rest[rest.len() - shape.components..];
        for (r, centre) in centres.chunks_exact_mut(width).enumerate() {
            let weight = (statistics.members[r] / statistics.rows).max(LEAST_WEIGHT);
            let size = self.share
                * match rate {
                    Rate::Fixed(size) => size,
                    Rate::Relative { factor, capped } => {
                        let size = factor / first[r].max(LEAST_WEIGHT);
                        if capped { size.min(longest_step(shape, rows) / weight) } else { size }
                    }
                };
            for (value, pull) in centre.iter_mut().zip(&statistics.pulls[r * width..][..width]) {
                *value += size * pull / statistics.rows;
                if self.sparsity > 0.0 {
                    *value = value.signum() * (value.abs() - size * self.sparsity * weights[r]).max(0.0);
                }
            }
        }
    }
}

/// The share of rows in every component, none of them 0; `share` of the way there.
fn set_weights(shape: &Shape, statistics: &Statistics, share: f64, params: &mut [f64]) {
    let weights = &mut params[shape.weights()];
    for (weight, members) in weights.iter_mut().zip(&statistics.members) {
        *weight += share * (members / statistics.rows - *weight);
    }
    normalise(weights);
}

/// The longest step, times the weight of a component, that does not overshoot: to the mean of its rows for normal
/// components; for regressions one that is short enough for the direction in which rows stretch most, of which a
/// component's own rows may have a little more than all.
fn longest_step(shape: &Shape, rows: Option<&Rows>) -> f64 {
    match (shape.family, rows) {
        (Family::Regression { .. }, Some(rows)) => (1.4 / rows.largest_eigenvalue()).min(1.0),
        _ => 1.0,
    }
}
