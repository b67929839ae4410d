//! Async-L2GD (known clusters, personal models; Lyu, Hanzely, Kolar: Personalized federated learning with multiple known
//! clusters, 2022), Algorithm 1. Every client has a model of its own, pulled towards its cluster's mean and towards
//! everybody's; coins decide who steps where.
//!
//! ```text
//!  1  θ_i ← 0
//!  2  for t = 1, 2, …:
//!  3      ξ₀ ← 1 with chance p₀
//!  4      if ξ₀ = 1:
//!  5          every cluster:  θ̄_j ← Σ γ_i·θ_i / Σ γ_i
//!  6          all of them:    θ̄ ← Σ α_j·γ_i·θ_i / Σ α_j·γ_i
//!  7          every client:   θ_i ← θ_i − (η·γ_i/p₀)·[α_j·(θ_i − θ̄) + τ_j·(1 − α_j)·(θ_i − θ̄_j)]
//!  9      else every cluster for itself:
//! 10          ξ_j ← 1 with chance p_j
//! 11          if ξ_j = 1:     θ_i ← θ_i − η·γ_i·(1 − τ_j)·(1 − α_j)/((1 − p₀)·p_j)·(θ_i − θ̄_j)
//! 15          else:           θ_i ← θ_i − η/((1 − p₀)(1 − p_j))·∇f_i(θ_i)
//! ```
//!
//! The one-coin version of the paper's experiments is p_j = 0: every step that is not local is one of everybody.
//!
//! Differences from the paper:
//! - chances and step follow Corollary 3.6 and Theorem 3.5 unless given, with L asked from the clients. The corollary
//!   keeps rounds few; `aim = "accuracy"` takes p₀ = 0.1 and p_j = 0.3, which ends much nearer to the minimiser.
//! - strengths that are not given are estimated or tuned before the first step (`personal/preparation.rs`).
//! - a mean the server can compute is not asked for (`personal/asynchronous.rs`).
//! - a client that does not answer stays where it is, and steps on from there when it is asked the next time.

use super::personal::asynchronous::{Constants, Ground, Walk};
use super::personal::coins::{Aim, Chances, Stepping};
use super::personal::complete::ask_everybody;
use super::personal::preparation::{Preparation, Prepared};
use super::personal::{Base, Objective, Strengths, note_untrained, want_quadratic};
use super::*;
use crate::federation::work::{Curvature, Curvatures};

choices! {
    /// One coin for everybody and one for each cluster, or one alone.
    pub(super) enum Coins { Two = "two", One = "one" }
}

settings! {
    pub(super) struct L2gdSettings {
        /// step size η (default: as large as Theorem 3.5 allows)
        step: Option<f64> [above 0.0],
        /// one for everybody and one for each cluster, or one alone, as in the paper's experiments
        coins: Coins = "two",
        stepping: Stepping,
        /// a missing answer is left out: the client stays where it is; or it ends the run
        missing: MissingRule ["skip", "fail"] = "skip",
        objective: Objective,
    }

    fn check(&self, check: &mut Check) {
        if self.coins == Coins::One && self.stepping.chance_within.is_some_and(|chance| chance > 0.0) {
            check.fault("chance_within", "coins = \"one\" has none for clusters");
        }
    }
}

impl MethodSettings for L2gdSettings {
    const NAME: &str = "l2gd";
    const SUMMARY: &str = "known clusters: personal models by local steps and steps towards means";
    const PAPER: &str = "Lyu, Hanzely, Kolar 2022, Algorithm 1";
    const HAS_CLUSTERS: bool = true;

    fn needs_truth(&self) -> bool {
        self.objective.client.needs_truth()
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let choice = Choice::new(&setup, self.step, &self.stepping, self.coins == Coins::One)?;
        let base = Base::with_groups(&setup, &self.objective.client)?;
        steps(&setup, base, &self.objective, choice, Box::new(Plain))
    }
}

/// What the settings say of chances, step and smoothness.
pub(super) struct Choice {
    pub(super) step: Option<f64>,
    between: Option<f64>,
    within: Option<f64>,
    accuracy: bool,
    one_coin: bool,
    smoothness: Option<f64>,
    iterations: usize,
    place: String,
}

impl Choice {
    pub(super) fn new(setup: &Setup, step: Option<f64>, stepping: &Stepping, one_coin: bool) -> Result<Self> {
        if stepping.smoothness.is_none() {
            want_quadratic(setup, "L, asked from the clients,").map_err(|error| error.hint("give smoothness"))?;
        }
        Ok(Self {
            step,
            between: stepping.chance_between,
            within: stepping.chance_within,
            accuracy: stepping.aim == Aim::Accuracy,
            one_coin,
            smoothness: stepping.smoothness,
            iterations: stepping.iterations,
            place: setup.place.clone(),
        })
    }

    /// How much losses curve: as given, or as the clients say.
    pub(super) fn curvatures(&self, base: &Base, noise: f64, room: &mut Room) -> Result<Curvatures> {
        if let Some(most) = self.smoothness {
            return Ok(Curvatures { most, least: 0.0, single: most });
        }
        let mut ask = Ask::new(Phase::Start, Vec::new(), Gather::Each);
        let order = ask.order(Recipients::All, Curvature);
        let (answers, _) = ask_everybody(&ask, room)?;
        let scale = base.scale(noise);
        let mut found = Curvatures { most: 0.0, least: f64::INFINITY, single: 0.0 };
        let order = answers.of(order);
        for ((_, own), &rows) in order.each().zip(&order.rows) {
            let scale = scale.of(rows as usize);
            found.most = found.most.max(scale * own.most);
            found.least = found.least.min(scale * own.least);
            found.single = found.single.max(scale * own.single);
        }
        Ok(found)
    }

    /// p₀ and p_j: given, or by Corollary 3.6 with losses that curve by at most `most`.
    pub(super) fn chances(&self, strengths: &Strengths, most: f64) -> Chances {
        let alpha = strengths.alpha();
        let (tied, own) = largest_pulls(strengths, &alpha);
        let (between, within) = match (self.accuracy, self.one_coin) {
            (true, false) => (0.1, 0.3),
            (true, true) => (0.1, 0.0),
            (false, true) => (2.0 * tied.max(own) / (2.0 * tied.max(own) + most), 0.0),
            (false, false) if own > tied => (2.0 * tied / (tied + own + most), (own - tied) / (own - tied + most)),
            (false, false) => (2.0 * tied / (2.0 * tied + most), 0.0),
        };
        let sane = |chance: f64| if chance.is_finite() { chance.min(0.99) } else { 0.0 };
        let (between, within) = (self.between.unwrap_or(sane(between)), self.within.unwrap_or(sane(within)));
        Chances { between, within: vec![within; alpha.len()] }
    }

    /// Refuses chances of 0 for steps that are needed; strengths that are not known yet will not be 0.
    fn check(&self, strengths: Option<&Strengths>) -> Result<()> {
        let (tied, own) = strengths.map_or((1.0, 1.0), |strengths| largest_pulls(strengths, &strengths.alpha()));
        let fault = |name: &str, why: &str| Error::settings(format!("{}.{name}: {why}", self.place));
        if self.between == Some(0.0) && tied > 0.0 {
            let why = "got 0, but clusters are pulled towards each other";
            return Err(fault("chance_between", why).hint("want more than 0, or alpha = 0"));
        }
        let within = if self.one_coin { Some(0.0) } else { self.within };
        if self.between == Some(0.0) && within == Some(0.0) && own > 0.0 {
            let why = "got 0 with chance_between 0, but clients are pulled";
            return Err(fault("chance_within", why).hint("want one of them above 0, or gamma = 0"));
        }
        Ok(())
    }
}

/// C₁ = max α_j·γ_i and C₂ = max (1 − α_j)·γ_i.
fn largest_pulls(strengths: &Strengths, alpha: &[f64]) -> (f64, f64) {
    let of = |share: fn(f64) -> f64| {
        let pulls = strengths.classes.iter().zip(alpha);
        pulls
            .flat_map(|(classes, &alpha)| classes.iter().map(move |class| share(alpha) * class.gamma))
            .fold(0.0, f64::max)
    };
    (of(|alpha| alpha), of(|alpha| 1.0 - alpha))
}

/// 𝓛 of (3.3), leaving out what nobody is pulled by.
pub(super) fn expected_smoothness(strengths: &Strengths, chances: &Chances, most: f64) -> f64 {
    let alpha = strengths.alpha();
    let (tied, _) = largest_pulls(strengths, &alpha);
    let mut largest = if tied > 0.0 { 2.0 * tied / chances.between } else { 0.0 };
    for ((classes, alpha), within) in strengths.classes.iter().zip(&alpha).zip(&chances.within) {
        let gamma = classes.iter().map(|class| class.gamma).fold(0.0, f64::max);
        let pull = 2.0 * (1.0 - alpha) * gamma;
        if pull > 0.0 {
            largest = largest.max(pull / (chances.between + 2.0 * (1.0 - chances.between) * within));
        }
        largest = largest.max(most / ((1.0 - chances.between) * (1.0 - within)));
    }
    largest
}

/// Step size and chances of an algorithm, by what is known of the losses.
pub(super) trait Theorem: Send {
    /// May ask the clients for more.
    fn constants(
        &self,
        choice: &Choice,
        base: &Base,
        strengths: &Strengths,
        curvatures: Curvatures,
        room: &mut Room,
    ) -> Result<Constants>;
}

/// Algorithm 1, or with the theorem of Algorithm 2 that one.
struct Steps {
    base: Base,
    choice: Choice,
    theorem: Box<dyn Theorem>,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    preparation: Preparation,
    walk: Option<Walk>,
}

pub(super) fn steps(
    setup: &Setup,
    base: Base,
    objective: &Objective,
    choice: Choice,
    theorem: Box<dyn Theorem>,
) -> Result<Box<dyn Method>> {
    let preparation = Preparation::new(setup, objective, &base)?.bounded();
    choice.check(preparation.strengths())?;
    let state = State { preparation, walk: None };
    Ok(Box::new(Steps { base, choice, theorem, state }))
}

impl Method for Steps {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let State { preparation, walk } = &mut self.state;
        let base = &self.base;
        let strengths = match preparation.round(base, room)? {
            Prepared::Ready(strengths) => strengths,
            Prepared::NotYet(loss) => return Ok(Progress::of(loss, false)),
        };
        let ground = Ground::new(base, strengths);
        let walk = match walk {
            Some(walk) => walk,
            None => {
                let curvatures = self.choice.curvatures(base, strengths.noise, room)?;
                let constants = self.theorem.constants(&self.choice, base, strengths, curvatures, room)?;
                walk.insert(Walk::new(constants, self.choice.iterations, base.start.clone(), &ground))
            }
        };
        let (loss, finished) = walk.round(&ground, room)?;
        Ok(Progress::of(loss, finished))
    }

    fn planned_rounds(&self) -> usize {
        let expected = self.state.walk.as_ref().map_or(self.choice.iterations / 10 + 1, Walk::expected_asks);
        self.state.preparation.planned_rounds() + expected
    }

    fn outcome(&self) -> Outcome {
        let State { preparation, walk } = &self.state;
        let mut notes: Vec<String> = self.base.families.note().into_iter().collect();
        let mut extra = BTreeMap::new();
        preparation.describe(&mut notes, &mut extra);
        let (mut models, mut global, mut stamps) = (Vec::new(), None, vec![0; self.base.rows.len()]);
        let mut pulled = true;
        if let (Some(walk), Some(strengths)) = (walk, preparation.strengths()) {
            stamps = walk.stamps.clone();
            pulled = !strengths.are_zero();
            if pulled {
                let (clusters, all) = walk.centres(&Ground::new(&self.base, strengths));
                (models, global) = (clusters, Some(all));
            }
            walk.describe(strengths, &mut extra);
            notes.extend(note_untrained(&stamps));
            notes.push(walk.rounds_in_words());
            if walk.has_converged() == Some(false) {
                notes.push("the objective is not yet flat: more iterations would change the models".into());
            }
        }
        Outcome {
            models,
            clustered: pulled,
            global,
            serving: self.base.serving(&stamps),
            converged: walk.as_ref().is_none_or(|walk| walk.has_converged() != Some(false)),
            notes,
            extra,
            minimises: self.base.minimises(false),
            ..Outcome::default()
        }
    }

    keep_state!(preparation);
}

/// Corollary 3.6 and Theorem 3.5.
struct Plain;

impl Theorem for Plain {
    fn constants(
        &self,
        choice: &Choice,
        _: &Base,
        strengths: &Strengths,
        curvatures: Curvatures,
        _: &mut Room,
    ) -> Result<Constants> {
        Ok(theorem(choice, strengths, curvatures.most))
    }
}

fn theorem(choice: &Choice, strengths: &Strengths, most: f64) -> Constants {
    let chances = choice.chances(strengths, most);
    let smoothness = expected_smoothness(strengths, &chances, most);
    let step = choice.step.unwrap_or(0.5 / smoothness.max(f64::MIN_POSITIVE));
    Constants { step, chances, alpha: strengths.alpha(), acceleration: None }
}

#[cfg(test)]
mod tests {
    use super::personal::Families;
    use super::*;

    #[test]
    fn chances_and_step_of_the_corollary_by_hand() {
        // Two clusters of two: Σγ = 4 each, α = λ/(λ + 4) = 0.2; C₁ = 0.4, C₂ = 1.6.
        let families = Families { of: vec![0, 0, 1, 1], members: vec![vec![0, 1], vec![2, 3]], ..Families::one(4) };
        let strengths = Strengths::new(&families, vec![2.0; 4], vec![1.0; 2], 1.0);
        let choice = Choice {
            step: None,
            between: None,
            within: None,
            accuracy: false,
            one_coin: false,
            smoothness: None,
            iterations: 1,
            place: "method.l2gd".into(),
        };
        let constants = theorem(&choice, &strengths, 3.0);
        let Chances { between, within } = &constants.chances;
        assert!((between - 0.8 / 5.0).abs() < 1e-15 && (within[0] - 1.2 / 4.2).abs() < 1e-15, "{constants:?}");
        // At these chances τ = C₁/C₂, and the three parts of 𝓛 are equal: C₁ + C₂ + L.
        assert!((constants.tau(1) - 0.25).abs() < 1e-15);
        assert!((constants.step - 0.5 / 5.0).abs() < 1e-15, "{}", constants.step);
        // Where clusters pull more at each other than at their clients, no cluster steps alone.
        let tight = Strengths::new(&families, vec![2.0; 4], vec![12.0; 2], 1.0);
        let chances = choice.chances(&tight, 3.0);
        assert!((chances.between - 3.0 / 6.0).abs() < 1e-15 && chances.within == [0.0, 0.0], "{chances:?}");
        // Without ties or pulls there is nothing to step towards.
        let alone = Strengths::new(&families, vec![0.0; 4], vec![0.0; 2], 1.0);
        let constants = theorem(&choice, &alone, 3.0);
        assert_eq!(constants.chances, Chances { between: 0.0, within: vec![0.0; 2] });
        assert!((constants.step - 0.5 / 3.0).abs() < 1e-15);
    }
}
