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
//! - rounds and strengths are as in `l2gd.rs`, whose loop this is: line 4 leaves it as it is.

use super::personal::algorithm::{ANCHOR_GRADIENT, Algorithm, MODEL, MOMENTUM, Part, Stop};
use super::personal::cluster::Cluster;
use super::personal::coins::Coins;
use super::personal::convexity::convexity;
use super::personal::theory::{Choice, Constants, Stepping, expected_smoothness};
use super::*;
use crate::federation::work::{Acceleration, Advanced, Renewal};
use crate::models::Precision;

choices! {
    /// Rows in the gradient of a local step.
    pub enum RowsInStep { All = "all", One = "one" }
}

settings! {
    /// The settings of the method `al2sgd+`.
    pub struct Al2sgdPlusSettings {
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
        /// how many steps there are, and how likely those towards the means
        stepping: Stepping,
        /// a missing answer is asked for again, or ends the run
        missing: MissingRule ["again", "fail"] = "again",
        /// what is minimised
        objective: Objective,
    }
}

impl MethodSettings for Al2sgdPlusSettings {
    const NAME: &str = "al2sgd+";
    const SUMMARY: &str = "known clusters: personal models, accelerated and to the exact minimiser";
    const PAPER: &str = "Lyu, Hanzely, Kolar 2022, Algorithm 2";
    const HAS_CLUSTERS: bool = true;
    const WANTS_SINGLE: Option<&'static str> = Some("it follows the models of single clients by their answers");

    fn needs(&self) -> Needs {
        self.objective.client.needs(self.missing)
    }

    fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        let mut all = l2gd::discloses(&self.objective, &self.stepping, ability);
        if self.convexity.is_none() {
            let what = "how long the steps may be";
            all.push(Disclosure::sums::<work::Respond>(Phase::Start, 1, what).as_needed());
        }
        all
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        if setup.model.convex().is_none() {
            let wanted = [("smoothness", self.stepping.smoothness), ("convexity", self.convexity)];
            let fault = |(name, _): &(&str, Option<f64>)| {
                Error::settings(format!("{}.{name}: missing, networks cannot be asked for it", setup.place))
            };
            crate::settings::finish(wanted.iter().filter(|(_, given)| given.is_none()).map(fault).collect())?;
        }
        let one_row = self.rows == RowsInStep::One;
        let mean_rows = setup.rows.iter().sum::<usize>() as f64 / setup.rows.len().max(1) as f64;
        let refresh = self.refresh.unwrap_or(if one_row { 1.0 / mean_rows } else { 0.05 });
        // Single precision does not tell smaller gradients from none.
        let least = if setup.model.precision() == Precision::F32 { 1e-5 } else { 0.0 };
        let accelerated = Accelerated {
            refresh,
            convexity: self.convexity,
            batch: one_row.then_some(1),
            tolerance: self.tolerance.max(least),
            ..Accelerated::default()
        };
        l2gd::build(&setup, &self.objective, Choice::new(&setup, self.step, self.stepping, false)?, accelerated)
    }
}

/// The steps of Algorithm 2. A client keeps y, z, the anchor x and, as h, the gradient of the whole objective at the anchor.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Accelerated {
    pub(super) a: [f64; 2],
    pub(super) b: [f64; 2],
    /// ρ.
    pub(super) refresh: f64,
    /// μ, where it is given.
    convexity: Option<f64>,
    /// Rows in a local step; all of them when absent.
    batch: Option<u32>,
    /// The length of the objective's gradient at an anchor, as a share of the first one's, at which it ends.
    tolerance: f64,
    /// That length at the anchor before the last one, and at the first.
    gradient_lengths: Option<(f64, f64)>,
    renewals: usize,
}

const Y: u32 = 0;
const Z: u32 = 1;
const X: u32 = 2;
const H: u32 = 3;

impl Algorithm for Accelerated {
    const VECTORS: usize = 4;
    const ANCHOR: Option<Renewal> = Some(Renewal { copy: X, gradient: H });

    /// Theorem 4.3, with Corollary 4.4's probabilities.
    fn constants(
        &mut self,
        choice: &Choice,
        problem: &Problem,
        strengths: &Strengths,
        room: &mut Room,
    ) -> Result<Constants> {
        /// Lower bound on μ as a share of L: losses that do not curve everywhere are still descended, only slowly.
        const FLATTEST: f64 = 1e-6;
        let curvatures = choice.curvatures(problem, strengths.noise, room)?;
        let most = if self.batch.is_some() { curvatures.single } else { curvatures.most };
        let least = match self.convexity {
            Some(given) => given,
            None => convexity(problem, strengths, curvatures.least, room)?,
        };
        let least = least.max(FLATTEST * most);
        let chances = choice.chances(strengths, most);
        let smoothness = expected_smoothness(strengths, &chances, most);
        let gamma = strengths.gamma.iter().copied().fold(0.0, f64::max);
        let largest = smoothness.max(most + gamma).max(f64::MIN_POSITIVE);
        let step = choice.step.unwrap_or(0.25 / largest);
        let a2 = smoothness / (2.0 * largest);
        let a1 = (step * least * (a2 / self.refresh).max(0.5)).sqrt().min(0.5);
        let b2 = 1.0 / (2.0 * least).max(4.0 * a1 / step);
        (self.a, self.b) = ([a1, a2], [1.0 - b2 * least, b2]);
        Ok(Constants { step, chances })
    }

    /// Line 3.
    fn point(&self) -> Vec<f64> {
        let [a1, a2] = self.a;
        vec![1.0 - a1 - a2, a1, a2, 0.0]
    }

    /// Lines 3 and 5 to 7.
    fn take_step(&self, size: f64, vectors: &mut [Vec<f64>], rate: f64, pull: impl FnOnce(&mut [f64])) {
        let mut theta = vec![0.0; vectors[0].len()];
        vectors.iter().zip(self.point()).for_each(|(vector, share)| add_scaled(&mut theta, share, vector));
        let [y, z, x, h] = vectors else { return };
        let mut gradient: Vec<f64> = theta.iter().map(|value| rate * value).collect();
        add_scaled(&mut gradient, -rate, x);
        add_scaled(&mut gradient, 1.0, h);
        pull(&mut gradient);
        let [b1, b2] = self.b;
        z.iter_mut().for_each(|value| *value *= b1);
        add_scaled(z, 1.0 - b1, &theta);
        add_scaled(z, -b2, &gradient);
        add_scaled(&mut theta, -size, &gradient);
        *y = theta;
    }

    /// The same for the local coin, on the client.
    fn local_steps(&self, size: f64, steps: u32, chance: f64, seed: u64) -> Run {
        Run {
            steps,
            step: size,
            sample: Sample { on: Portion::All, batch: self.batch, seed },
            acceleration: Some(Acceleration { vectors: [Y, Z, X, H], a: self.a, b: self.b, chance }),
        }
    }

    fn sends(&self, cluster: &Cluster, stop: Stop, coins: &mut Coins) -> Vec<Part> {
        let Cluster { number, time, .. } = *cluster;
        let (is_known, is_uniform) = (cluster.knows_vectors(), cluster.is_uniform());
        let mut parts = if is_known { Vec::new() } else { vec![MODEL] };
        match stop {
            Stop::End => parts,
            Stop::Renewal => {
                if is_uniform && !is_known && coins.averages(number, time) {
                    parts.push(MOMENTUM);
                }
                parts.extend(is_uniform.then_some(ANCHOR_GRADIENT));
                parts
            }
            // The mean of θ is enough for one step; a second one right after it needs those of y and z.
            _ if is_uniform && coins.averages(number, time + 1) && !coins.refreshes_before(time + 1) => {
                vec![MODEL, MOMENTUM]
            }
            _ => vec![Part::Point],
        }
    }

    fn refresh(&self) -> f64 {
        self.refresh
    }

    /// Line 8. Clients have copied y to x, with the gradient of their own loss there; once every cluster's mean is known, so
    /// are the pulls: h ← ∇f(x) + γ·(x − target).
    fn renew_anchors(&mut self, answers: &[Advanced], clusters: &mut [Cluster], strengths: &Strengths) {
        if self.renewals > 0 {
            let now = answers.iter().filter_map(|answer| answer.squared_length).sum::<f64>().sqrt();
            self.gradient_lengths = Some((now, self.gradient_lengths.map_or(now, |(_, first)| first)));
        }
        self.renewals += 1;
        clusters.iter_mut().for_each(|cluster| cluster.anchor.clone_from(&cluster.mean));
        let mean = strengths.mean_of_all(&clusters.iter().map(|cluster| &cluster.anchor[..]).collect::<Vec<_>>());
        for ((cluster, alpha), classes) in clusters.iter_mut().zip(strengths.alpha()).zip(&strengths.classes) {
            let mut target: Vec<f64> = cluster.anchor.iter().map(|x| (1.0 - alpha) * x).collect();
            add_scaled(&mut target, alpha, &mean);
            for (class, blend) in classes.iter().zip(&mut cluster.blends) {
                blend.iter_mut().for_each(|shares| shares.push(0.0));
                let shares = &mut blend[H as usize];
                (shares[X as usize], shares[Self::VECTORS]) = (class.gamma, -class.gamma);
            }
            if let [class] = classes.as_slice() {
                add_scaled(&mut cluster.anchor_gradient, class.gamma, &cluster.anchor);
                add_scaled(&mut cluster.anchor_gradient, -class.gamma, &target);
            }
            cluster.targets.push(target);
            cluster.renewed = true;
        }
    }

    fn has_converged(&self) -> Option<bool> {
        Some(self.gradient_lengths.is_some_and(|(now, first)| now <= self.tolerance * first))
    }

    fn renewals(&self) -> Option<usize> {
        Some(self.renewals)
    }

    fn describe(&self, iterations: usize) -> Vec<(&'static str, f64)> {
        let [b1, b2] = self.b;
        let mut numbers = vec![
            ("iterations_done", iterations as f64),
            ("convexity", (1.0 - b1) / b2),
            ("refreshes", self.renewals as f64),
            ("expected_refreshes", 1.0 + self.refresh * (iterations as f64 - 1.0)),
        ];
        let steepness = |(now, first): (f64, f64)| ("steepness", if first > 0.0 { now / first } else { 0.0 });
        numbers.extend(self.gradient_lengths.map(steepness));
        numbers
    }
}
