//! Async-AL2SGD+ (known clusters, personal models; Lyu, Hanzely, Kolar: Personalized federated learning with multiple
//! known clusters, 2022), Algorithm 2: Async-L2GD accelerated, with gradients whose variance vanishes at the minimiser,
//! which it therefore reaches.
//!
//! ```text
//!  1  x_i, y_i, z_i ← 0
//!  2  for t = 1, 2, …:
//!  3      θ ← a₁·z + a₂·x + (1 − a₁ − a₂)·y
//!  4      coins as in Async-L2GD
//!  5      g_i ← ∇F_i(x) + [the coin's gradient at θ − the same at x]                          (4.1)
//!  6      y ← θ − η·g
//!  7      z ← b₁·z + (1 − b₁)·θ + (b₂/η)·(y − θ)
//!  8      with chance ρ:  x ← y, and everybody's gradient and the means at x are found anew
//! ```
//!
//! ∇F_i(x) = ∇f_i(x_i) + α_j·γ_i·(x_i − x̄) + (1 − α_j)·γ_i·(x_i − x̄_j). The local coin's gradient is that of one row,
//! the same one at θ and at x, or of all rows.
//!
//! Differences from the paper:
//! - formula (4.1) as printed leaves out the pull to the cluster's mean when ξ₀ = 1; without it g is biased.
//! - μ is that of the whole objective, pulls included: found by asking, as the losses of few rows have none themselves.
//! - ρ is 0.05 with gradients of all rows, and one over the mean number of rows with gradients of one row.
//! - it ends where the objective is flat by `tolerance`, which every renewal of the anchor shows.
//! - whoever does not answer is asked again: a client that missed a renewal would pull the others astray for good.
//! - rounds and strengths are as in `l2gd.rs`.

use super::l2gd::{self, Choice, Theorem, expected_smoothness};
use super::personal::asynchronous::{Accelerated, Constants};
use super::personal::coins::Stepping;
use super::personal::{Base, Objective, Strengths, convexity};
use super::*;
use crate::federation::work::Curvatures;
use crate::models::Precision;

choices! {
    /// Rows in the gradient of a local step.
    pub(super) enum RowsInStep { All = "all", One = "one" }
}

settings! {
    pub(super) struct Al2sgdPlusSettings {
        /// the length of the objective's gradient, as a share of that at the start, at which it ends
        tolerance: f64 [0.0..=1.0] = 1e-10,
        /// step size η (default: that of Theorem 4.3)
        step: Option<f64> [above 0.0],
        /// rows in the gradient of a local step: all of a client's, or one drawn anew each time
        rows: RowsInStep = "all",
        /// ρ, how likely full gradients are found anew after a step (default 0.05, or one over the mean rows)
        refresh: Option<f64> [above 0.0..=1.0],
        /// μ, how much the whole objective curves at least (default: found by asking)
        convexity: Option<f64> [above 0.0],
        stepping: Stepping,
        /// a missing answer is asked for again, or ends the run
        missing: MissingRule ["again", "fail"] = "again",
        objective: Objective,
    }
}

impl MethodSettings for Al2sgdPlusSettings {
    const NAME: &str = "al2sgd+";
    const SUMMARY: &str = "known clusters: personal models, accelerated and to the exact minimiser";
    const PAPER: &str = "Lyu, Hanzely, Kolar 2022, Algorithm 2";
    const HAS_CLUSTERS: bool = true;

    fn needs_truth(&self) -> bool {
        self.objective.client.needs_truth()
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        if !setup.model.has_minimiser() {
            let wanted = [("smoothness", self.stepping.smoothness), ("convexity", self.convexity)];
            let fault = |(name, _): &(&str, Option<f64>)| {
                Error::settings(format!("{}.{name}: missing, networks cannot be asked for it", setup.place))
            };
            crate::settings::finish(wanted.iter().filter(|(_, given)| given.is_none()).map(fault).collect())?;
        }
        let one_row = self.rows == RowsInStep::One;
        let mean_rows = setup.rows.iter().sum::<usize>() as f64 / setup.rows.len().max(1) as f64;
        let usual = if one_row { 1.0 / mean_rows } else { 0.05 };
        // Single precision does not tell smaller slopes from none.
        let least = if setup.model.precision() == Precision::F32 { 1e-5 } else { 0.0 };
        let acceleration = Acceleration {
            convexity: self.convexity,
            refresh: self.refresh.unwrap_or(usual),
            one_row,
            tolerance: self.tolerance.max(least),
        };
        let choice = Choice::new(&setup, self.step, &self.stepping, false)?;
        let base = Base::with_groups(&setup, &self.objective.client)?;
        l2gd::steps(&setup, base, &self.objective, choice, Box::new(acceleration))
    }
}

/// μ is taken to be at least this share of L.
const FLATTEST: f64 = 1e-6;

/// What the settings say of acceleration.
struct Acceleration {
    convexity: Option<f64>,
    refresh: f64,
    one_row: bool,
    tolerance: f64,
}

impl Theorem for Acceleration {
    /// Theorem 4.3, with Corollary 4.4's chances.
    fn constants(
        &self,
        choice: &Choice,
        base: &Base,
        strengths: &Strengths,
        curvatures: Curvatures,
        room: &mut Room,
    ) -> Result<Constants> {
        let most = if self.one_row { curvatures.single } else { curvatures.most };
        let least = match self.convexity {
            Some(given) => given,
            None => convexity(base, strengths, curvatures.least, room)?,
        };
        // Losses that do not curve everywhere are still descended, only without an end in sight.
        let least = least.max(FLATTEST * most);
        let chances = choice.chances(strengths, most);
        let smoothness = expected_smoothness(strengths, &chances, most);
        let gamma = strengths.gamma.iter().copied().fold(0.0, f64::max);
        let largest = smoothness.max(most + gamma).max(f64::MIN_POSITIVE);
        let step = choice.step.unwrap_or(0.25 / largest);
        let a2 = smoothness / (2.0 * largest);
        let a1 = (step * least * (a2 / self.refresh).max(0.5)).sqrt().min(0.5);
        let b2 = 1.0 / (2.0 * least).max(4.0 * a1 / step);
        let batch = self.one_row.then_some(1);
        let (refresh, tolerance) = (self.refresh, self.tolerance);
        let accelerated = Accelerated { a: [a1, a2], b: [1.0 - b2 * least, b2], refresh, batch, tolerance };
        Ok(Constants { step, chances, alpha: strengths.alpha(), acceleration: Some(accelerated) })
    }
}
