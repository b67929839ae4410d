//! Step size and probabilities by the paper's theory, unless they are given.

use super::super::*;
use super::coins::Chances;
use super::complete::ask_everybody;
use super::want_quadratic;
use crate::federation::work::{Curvature, Curvatures};

choices! {
    /// What probabilities are chosen for: few rounds, or an end near the minimiser.
    pub enum Aim { FewRounds = "few-rounds", Accuracy = "accuracy" }
}

settings! {
    /// How many steps there are, and how likely those towards the means.
    pub struct Stepping {
        /// steps of the algorithm at most
        iterations: usize [1..=1 << 31] = 10000,
        /// chances that keep rounds few, or 0.1 and 0.3, which end nearer to the minimiser
        aim: Aim = "few-rounds",
        /// how likely a step of everybody towards the means is (default: by aim)
        chance_between: Option<f64> [0.0..=0.999],
        /// otherwise, how likely a step of a cluster towards its mean is (default: by aim)
        chance_within: Option<f64> [0.0..=0.999],
        /// L, how much a client's loss curves at most (default: asked from the clients; needed for networks)
        smoothness: Option<f64> [above 0.0],
    }
}

/// The numbers of an algorithm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Constants {
    /// η.
    pub step: f64,
    /// p₀ and p_j.
    pub chances: Chances,
}

/// What the settings say of an algorithm's constants.
pub struct Choice {
    /// η, where it is given.
    pub step: Option<f64>,
    /// Whether one coin decides for everybody: p_j = 0.
    pub one_coin: bool,
    pub stepping: Stepping,
}

impl Choice {
    pub fn new(setup: &Setup, step: Option<f64>, stepping: Stepping, one_coin: bool) -> Result<Self> {
        if stepping.smoothness.is_none() {
            want_quadratic(setup, "L, asked from the clients,").map_err(|error| error.hint("give smoothness"))?;
        }
        Ok(Self { step, one_coin, stepping })
    }

    /// Refuses probabilities of 0 for steps that are needed. Strengths that are not known yet will not be 0.
    pub fn check(&self, place: &str, strengths: Option<&Strengths>) -> Result<()> {
        let Stepping { chance_between, chance_within, .. } = self.stepping;
        let (global, cluster) = strengths.map_or((1.0, 1.0), largest_pulls);
        let fault = |name: &str, why: &str| Error::settings(format!("{place}.{name}: {why}"));
        if chance_between == Some(0.0) && global > 0.0 {
            let why = "got 0, but clusters are pulled towards each other";
            return Err(fault("chance_between", why).hint("want more than 0, or alpha = 0"));
        }
        let within = if self.one_coin { Some(0.0) } else { chance_within };
        if chance_between == Some(0.0) && within == Some(0.0) && cluster > 0.0 {
            let why = "got 0 with chance_between 0, but clients are pulled";
            return Err(fault("chance_within", why).hint("want one of them above 0, or gamma = 0"));
        }
        Ok(())
    }

    /// How much losses curve: as given, or as the clients say.
    pub fn curvatures(&self, problem: &Problem, noise: f64, room: &mut Room) -> Result<Curvatures> {
        if let Some(most) = self.stepping.smoothness {
            return Ok(Curvatures { most, least: 0.0, single: most });
        }
        let mut ask = Ask::new(Phase::Start, Vec::new(), Gather::Each);
        let order = ask.order(Recipients::All, Curvature);
        let (answers, _) = ask_everybody(&ask, room)?;
        let scale = problem.scale(noise);
        let mut found = Curvatures { most: 0.0, least: f64::INFINITY, single: 0.0 };
        let order = answers.of(order);
        for ((_, client), &rows) in order.each().zip(&order.rows) {
            let scale = scale.of(rows as usize);
            found.most = found.most.max(scale * client.most);
            found.least = found.least.min(scale * client.least);
            found.single = found.single.max(scale * client.single);
        }
        Ok(found)
    }

    /// p₀ and p_j: given, or by Corollary 3.6 with losses of this smoothness.
    pub fn chances(&self, strengths: &Strengths, smoothness: f64) -> Chances {
        let (global, cluster) = largest_pulls(strengths);
        let larger = global.max(cluster);
        let (between, within) = match (self.stepping.aim, self.one_coin) {
            (Aim::Accuracy, false) => (0.1, 0.3),
            (Aim::Accuracy, true) => (0.1, 0.0),
            (Aim::FewRounds, true) => (2.0 * larger / (2.0 * larger + smoothness), 0.0),
            (Aim::FewRounds, false) if cluster > global => {
                let beyond = cluster - global;
                (2.0 * global / (global + cluster + smoothness), beyond / (beyond + smoothness))
            }
            (Aim::FewRounds, false) => (2.0 * global / (2.0 * global + smoothness), 0.0),
        };
        let sane = |chance: f64| if chance.is_finite() { chance.min(0.99) } else { 0.0 };
        let within = self.stepping.chance_within.unwrap_or(sane(within));
        Chances {
            between: self.stepping.chance_between.unwrap_or(sane(between)),
            within: vec![within; strengths.lambda.len()],
        }
    }
}

/// C₁ = max α_j·γ_i and C₂ = max (1 − α_j)·γ_i.
fn largest_pulls(strengths: &Strengths) -> (f64, f64) {
    let largest = |share: fn(f64) -> f64| {
        let pulls = strengths.alpha().into_iter().zip(strengths.largest_gammas());
        pulls.map(|(alpha, gamma)| share(alpha) * gamma).fold(0.0, f64::max)
    };
    (largest(|alpha| alpha), largest(|alpha| 1.0 - alpha))
}

/// 𝓛 of (3.3), leaving out what nobody is pulled by.
pub fn expected_smoothness(strengths: &Strengths, chances: &Chances, smoothness: f64) -> f64 {
    let (global, _) = largest_pulls(strengths);
    let mut largest = if global > 0.0 { 2.0 * global / chances.between } else { 0.0 };
    for (cluster, (alpha, gamma)) in strengths.alpha().into_iter().zip(strengths.largest_gammas()).enumerate() {
        let pull = 2.0 * (1.0 - alpha) * gamma;
        if pull > 0.0 {
            largest = largest.max(pull / (chances.between + 2.0 * (1.0 - chances.between) * chances.within[cluster]));
        }
        largest = largest.max(smoothness / chances.local(cluster));
    }
    largest
}
