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
//! - a mean the server can compute is not asked for (`personal/cluster.rs`).
//! - a client that does not answer stays where it is, and steps on from there when it is asked the next time.

use super::personal::algorithm::{Algorithm, Stop};
use super::personal::cluster::{Cluster, MeanPull};
use super::personal::coins::{Chances, Coins, Step};
use super::personal::complete::ask_everybody;
use super::personal::message::Message;
use super::personal::theory::{Choice, Constants, Stepping, expected_smoothness};
use super::*;
use crate::federation::work::Advance;
use crate::text::counted;

choices! {
    /// One coin for everybody and one for each cluster, or one alone.
    pub enum CoinCount { Two = "two", One = "one" }
}

settings! {
    /// The settings of the method `l2gd`.
    pub struct L2gdSettings {
        /// step size η (default: as large as Theorem 3.5 allows)
        step: Option<f64> [above 0.0],
        /// one for everybody and one for each cluster, or one alone, as in the paper's experiments
        coins: CoinCount = "two",
        /// how many steps there are, and how likely those towards the means
        stepping: Stepping,
        /// a missing answer is left out: the client stays where it is; or it ends the run
        missing: MissingRule ["skip", "fail"] = "skip",
        /// what is minimised
        objective: Objective,
    }

    fn check(&self, check: &mut Check) {
        if self.coins == CoinCount::One && self.stepping.chance_within.is_some_and(|chance| chance > 0.0) {
            check.fault("chance_within", "coins = \"one\" has none for clusters");
        }
    }
}

impl MethodSettings for L2gdSettings {
    const NAME: &str = "l2gd";
    const SUMMARY: &str = "known clusters: personal models by local steps and steps towards means";
    const PAPER: &str = "Lyu, Hanzely, Kolar 2022, Algorithm 1";
    const HAS_CLUSTERS: bool = true;
    const WANTS_SINGLE: Option<&'static str> = Some("it follows the models of single clients by their answers");

    fn needs(&self) -> Needs {
        self.objective.client.needs(self.missing)
    }

    fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        discloses(&self.objective, &self.stepping, ability)
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let choice = Choice::new(&setup, self.step, self.stepping, self.coins == CoinCount::One)?;
        build(&setup, &self.objective, choice, Plain)
    }
}

/// What clients tell in either algorithm.
pub(super) fn discloses(objective: &Objective, stepping: &Stepping, ability: Ability) -> Vec<Disclosure> {
    let mut all = objective.discloses(ability);
    if stepping.smoothness.is_none() {
        all.push(Disclosure::single::<work::Curvature>(Phase::Start, 1, "how long the steps may be"));
    }
    all.push(Disclosure::sums::<Advance>(Phase::Train, 1, "means of personal models").as_needed());
    all
}

/// Algorithm 1, or with the steps of another algorithm that one.
pub(super) fn build(
    setup: &Setup,
    objective: &Objective,
    choice: Choice,
    algorithm: impl Algorithm + 'static,
) -> Result<Box<dyn Method>> {
    let problem = Problem::with_groups(setup, &objective.client)?;
    let preparation = Preparation::new(setup, objective, &problem, true)?;
    choice.check(&setup.place, preparation.strengths())?;
    Ok(Box::new(L2gd { problem, choice, algorithm, state: State { preparation, iterations: None } }))
}

struct L2gd<A> {
    problem: Problem,
    choice: Choice,
    algorithm: A,
    state: State<A>,
}

#[derive(Serialize, Deserialize)]
struct State<A> {
    preparation: Preparation,
    iterations: Option<Iterations<A>>,
}

/// The iterations of the clusters, each as far ahead as the server can follow it.
#[derive(Serialize, Deserialize)]
pub(super) struct Iterations<A> {
    algorithm: A,
    constants: Constants,
    count: usize,
    start: Params,
    clusters: Vec<Cluster>,
    /// The ask after which each client last kept its vectors; 0 before the first.
    stamps: Vec<u64>,
    /// Whether a local step was taken since everybody last stepped together.
    stirred: bool,
    /// Rounds between clusters, and within each of them.
    pub(super) between: usize,
    pub(super) within: Vec<usize>,
    #[serde(skip)]
    coins: Option<Coins>,
}

impl<A: Algorithm> Iterations<A> {
    /// Line 1.
    pub(super) fn new(
        (constants, algorithm): (Constants, A),
        count: usize,
        start: Params,
        strengths: &Strengths,
    ) -> Self {
        let cluster = |(number, classes): (usize, &Vec<_>)| Cluster::new::<A>(number, classes.len(), &start);
        let clusters: Vec<Cluster> = strengths.classes.iter().enumerate().map(cluster).collect();
        Self {
            algorithm,
            constants,
            count,
            stamps: vec![0; strengths.gamma.len()],
            stirred: false,
            between: 0,
            within: vec![0; clusters.len()],
            coins: None,
            clusters,
            start,
        }
    }

    /// Lines 2 to 15 for all clusters, until only clients can tell a mean; then asks them.
    pub(super) fn round(&mut self, problem: &Problem, strengths: &Strengths, room: &mut Room) -> Result<Progress> {
        let mut coins = self.take_coins(&problem.key);
        let stops = loop {
            let stops: Vec<Stop> = (0..self.clusters.len()).map(|j| self.advance(j, strengths, &mut coins)).collect();
            if stops.iter().any(|stop| *stop != Stop::Together) {
                break stops;
            }
            self.step_between(strengths);
        };
        let renews = stops.iter().all(|stop| *stop == Stop::Renewal);
        let ends = stops.iter().all(|stop| *stop == Stop::End);
        let is_asked = |j: &usize| renews || ends || matches!(stops[*j], Stop::Mean(_));
        let mut message = Message::new(&self.start);
        let mut asked = Vec::new();
        for j in (0..stops.len()).filter(is_asked) {
            let cluster = &self.clusters[j];
            let sends = self.algorithm.sends(cluster, stops[j], &mut coins);
            let seed = problem.key.clone().word("rows").number(cluster.time as u64).number(j as u64).seed();
            let Constants { step, chances, .. } = &self.constants;
            let run = || self.algorithm.local_steps(*step, cluster.local, chances.local(j), seed);
            let order = Advance {
                from: Start::Model(0),
                vectors: A::VECTORS as u32,
                blend: None,
                run: (cluster.local > 0).then(run),
                renewal: A::ANCHOR.filter(|_| renews),
                measured: A::ANCHOR.map(|anchor| anchor.gradient),
                send: sends.iter().map(|part| part.shares(&self.algorithm)).collect(),
                scale: problem.scale(strengths.noise),
            };
            message.add(cluster, &order, &strengths.classes[j], &self.stamps);
            asked.push((j, sends));
        }
        self.coins = Some(coins);
        if message.ask.orders.is_empty() {
            return Ok(Progress::of(None, ends));
        }
        let answers = self.ask(&message.ask, room)?;
        let each = message.answers(&answers);
        let loss = room.check_loss(&each.iter().map(|answer| answer.loss).collect::<Vec<_>>())?;
        for ((j, sends), mean) in asked.into_iter().zip(message.means(&answers)) {
            self.within[j] += usize::from(stops[j] == Stop::Mean(Step::Within));
            self.clusters[j].learn(&sends, mean);
        }
        if renews {
            self.stirred = false;
            self.algorithm.renew_anchors(&each, &mut self.clusters, strengths);
        }
        Ok(Progress::of(loss, ends || (renews && self.algorithm.has_converged() == Some(true))))
    }

    /// Lines 3 to 15 for one cluster, as far as it goes by itself.
    fn advance(&mut self, j: usize, strengths: &Strengths, coins: &mut Coins) -> Stop {
        loop {
            let cluster = &mut self.clusters[j];
            if cluster.time == self.count {
                return Stop::End;
            }
            if coins.refreshes_before(cluster.time) && !cluster.renewed {
                return Stop::Renewal;
            }
            let is_known = cluster.knows_mean();
            // Lines 3 and 10.
            match coins.step(j, cluster.time) {
                Step::Between if is_known => return Stop::Together,
                // Line 11: a cluster steps towards its mean.
                Step::Within if is_known => {
                    self.step_towards_means(j, Step::Within, strengths, &vec![0.0; self.start.len()]);
                }
                Step::Local => {
                    cluster.step_locally();
                    self.stirred = true;
                }
                step => return Stop::Mean(step),
            }
        }
    }

    /// Lines 5 to 7: everybody steps towards the means.
    fn step_between(&mut self, strengths: &Strengths) {
        let points: Vec<Vec<f64>> = self.clusters.iter().map(|cluster| cluster.point(&self.algorithm)).collect();
        let anchors: Vec<&[f64]> = self.clusters.iter().map(|cluster| &cluster.anchor[..]).collect();
        let mut mean = strengths.mean_of_all(&points.iter().map(Vec::as_slice).collect::<Vec<_>>());
        add_scaled(&mut mean, -1.0, &strengths.mean_of_all(&anchors));
        if self.stirred || strengths.classes.iter().any(|classes| classes.len() > 1) {
            self.between += 1;
        }
        self.stirred = false;
        (0..self.clusters.len()).for_each(|j| self.step_towards_means(j, Step::Between, strengths, &mean));
    }

    fn step_towards_means(&mut self, j: usize, step: Step, strengths: &Strengths, all: &[f64]) {
        let pull = mean_pull(&self.constants.chances, j, strengths.alpha()[j], step);
        let how = (&self.algorithm, self.constants.step);
        self.clusters[j].step_towards_means(how, &strengths.classes[j], pull, all);
    }

    /// Asks, and notes what everybody holds then. Plain steps go on without silent clients; those from anchors do not.
    fn ask(&mut self, ask: &Ask, room: &mut Room) -> Result<Answers> {
        let (answers, stamps) = match A::ANCHOR {
            Some(_) => ask_everybody(ask, room)?,
            None => {
                let answers = room.ask(ask)?;
                let stamps = stamps_after(&answers).collect();
                (answers, stamps)
            }
        };
        stamps.into_iter().for_each(|(client, stamp)| self.stamps[client as usize] = stamp);
        Ok(answers)
    }

    /// The coins that are still of use: a renewal before an iteration is decided with the one before it.
    fn take_coins(&mut self, key: &Key) -> Coins {
        let first = self.done().saturating_sub(1);
        let refresh = A::ANCHOR.map(|_| self.algorithm.refresh());
        let new = || Coins::new(&self.constants.chances, refresh, key.clone().word("coins"), self.count, first);
        let mut coins = self.coins.take().unwrap_or_else(new);
        coins.forget(first);
        coins
    }

    /// Iterations that every cluster has behind it.
    fn done(&self) -> usize {
        self.clusters.iter().map(|cluster| cluster.time).min().unwrap_or(0)
    }

    /// Expected rounds between clusters and within each of them, for the iterations done.
    pub(super) fn expected_rounds(&self) -> (f64, Vec<f64>) {
        self.constants.chances.expected_rounds(self.done(), self.algorithm.refresh())
    }

    /// Upper bound on the expected number of asks: clusters ask together where they can.
    fn expected_asks(&self) -> usize {
        let (between, within) = self.expected_rounds();
        let done = self.done().max(1) as f64;
        let renewals = A::ANCHOR.map_or(0.0, |_| 1.0 + self.algorithm.refresh() * done);
        let asks = between + within.iter().copied().fold(0.0, f64::max) + renewals;
        (asks * self.count as f64 / done).ceil() as usize + 1
    }

    /// The centres of the clusters and the global one, by the means that were last known: w̄ = θ̄ and, between the mean of
    /// the cluster and that of all, w_j = (1 − α_j)·θ̄_j + α_j·θ̄.
    pub(super) fn centres(&self, strengths: &Strengths) -> (Vec<Vec<f64>>, Vec<f64>) {
        let means: Vec<&[f64]> = self.clusters.iter().map(|cluster| &cluster.mean[..]).collect();
        let global = strengths.mean_of_all(&means);
        let centre = |(mean, alpha): (&&[f64], f64)| {
            mean.iter().zip(&global).map(|(own, all)| (1.0 - alpha) * own + alpha * all).collect()
        };
        (means.iter().zip(strengths.alpha()).map(centre).collect(), global.clone())
    }

    fn describe(&self, extra: &mut BTreeMap<String, f64>) {
        let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / numbers.len() as f64;
        let Constants { step, chances, .. } = &self.constants;
        let mut numbers = vec![
            ("step", *step),
            ("chance_between", chances.between),
            ("chance_within", mean(&chances.within)),
            ("rounds_between", self.between as f64),
            ("rounds_within", self.rounds_within()),
        ];
        if self.clusters.iter().all(Cluster::is_uniform) {
            let (between, within) = self.expected_rounds();
            numbers.extend([("expected_between", between), ("expected_within", mean(&within))]);
        }
        numbers.extend(self.algorithm.describe(self.done()));
        extra.extend(numbers.into_iter().map(|(name, number)| (name.to_string(), number)));
    }

    fn rounds_within(&self) -> f64 {
        self.within.iter().sum::<usize>() as f64 / self.within.len() as f64
    }

    fn notes(&self) -> Vec<String> {
        let renewals = self.algorithm.renewals().map(|count| format!(", {count} to renew the anchor"));
        let mut notes = Vec::new();
        let untrained = self.stamps.iter().filter(|&&stamp| stamp == 0).count();
        if untrained > 0 {
            notes.push(format!("{untrained} clients never took part and have no model"));
        }
        notes.push(format!(
            "{} iterations: {} between clusters, {:.1} within one{}",
            self.done(),
            counted(self.between, "round"),
            self.rounds_within(),
            renewals.unwrap_or_default()
        ));
        if self.algorithm.has_converged() == Some(false) {
            notes.push("the objective is not yet flat: more iterations would change the models".into());
        }
        notes
    }
}

/// The gradients of lines 7 and 11. Of the pull to a cluster's mean, τ_j = p₀/(p₀ + 2(1 − p₀)p_j) is left to line 7.
pub(super) fn mean_pull(chances: &Chances, j: usize, alpha: f64, step: Step) -> MeanPull {
    let (p0, pj) = (chances.between, chances.within[j]);
    let tau = if p0 == 0.0 { 0.0 } else { p0 / (p0 + 2.0 * (1.0 - p0) * pj) };
    match step {
        Step::Between => MeanPull { own: tau * (1.0 - alpha) / p0, all: alpha / p0 },
        Step::Within => MeanPull { own: (1.0 - tau) * (1.0 - alpha) / ((1.0 - p0) * pj), all: 0.0 },
        Step::Local => MeanPull { own: 0.0, all: 0.0 },
    }
}

/// Algorithm 1: a client keeps its model θ and descends from it.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Plain;

impl Algorithm for Plain {
    const VECTORS: usize = 1;

    fn constants(
        &mut self,
        choice: &Choice,
        problem: &Problem,
        strengths: &Strengths,
        room: &mut Room,
    ) -> Result<Constants> {
        Ok(theorem_3_5(choice, strengths, choice.curvatures(problem, strengths.noise, room)?.most))
    }

    fn point(&self) -> Vec<f64> {
        vec![1.0]
    }

    fn take_step(&self, size: f64, vectors: &mut [Vec<f64>], rate: f64, pull: impl FnOnce(&mut [f64])) {
        let mut gradient: Vec<f64> = vectors[0].iter().map(|value| rate * value).collect();
        pull(&mut gradient);
        add_scaled(&mut vectors[0], -size, &gradient);
    }

    /// Line 15, on the client.
    fn local_steps(&self, size: f64, steps: u32, chance: f64, _: u64) -> Run {
        Run { steps, step: size / chance, sample: Sample::FULL, acceleration: None }
    }
}

/// Corollary 3.6 and Theorem 3.5.
fn theorem_3_5(choice: &Choice, strengths: &Strengths, smoothness: f64) -> Constants {
    let chances = choice.chances(strengths, smoothness);
    let largest = expected_smoothness(strengths, &chances, smoothness);
    Constants { step: choice.step.unwrap_or(0.5 / largest.max(f64::MIN_POSITIVE)), chances }
}

impl<A: Algorithm> Method for L2gd<A> {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let State { preparation, iterations } = &mut self.state;
        let problem = &self.problem;
        let strengths = match preparation.round(problem, room)? {
            Prepared::Ready(strengths) => strengths,
            Prepared::NotYet(progress) => return Ok(progress),
        };
        let iterations = match iterations {
            Some(iterations) => iterations,
            None => {
                let mut algorithm = self.algorithm.clone();
                let constants = algorithm.constants(&self.choice, problem, strengths, room)?;
                let count = self.choice.stepping.iterations;
                iterations.insert(Iterations::new((constants, algorithm), count, problem.start.clone(), strengths))
            }
        };
        iterations.round(problem, strengths, room)
    }

    fn planned_rounds(&self) -> usize {
        let unknown = self.choice.stepping.iterations / 10 + 1;
        let expected = self.state.iterations.as_ref().map_or(unknown, Iterations::expected_asks);
        self.state.preparation.planned_rounds() + expected
    }

    fn outcome(&self) -> Outcome {
        let State { preparation, iterations } = &self.state;
        let minimises = self.problem.minimises(false);
        let (Some(iterations), Some(strengths)) = (iterations, preparation.strengths()) else {
            let outcome = self.problem.outcome(preparation, &vec![0; self.problem.rows.len()], (Vec::new(), None));
            return Outcome { clustered: true, minimises, ..outcome };
        };
        let (clusters, global) = iterations.centres(strengths);
        let mut outcome = self.problem.outcome(preparation, &iterations.stamps, (clusters, Some(global)));
        iterations.describe(&mut outcome.extra);
        outcome.notes.extend(iterations.notes());
        Outcome { converged: iterations.algorithm.has_converged() != Some(false), minimises, ..outcome }
    }

    keep_state!();
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
        let stepping = Stepping::from_table("method.l2gd", toml::Table::new()).unwrap();
        let choice = Choice { step: None, one_coin: false, stepping };
        let constants = theorem_3_5(&choice, &strengths, 3.0);
        let Chances { between, within } = &constants.chances;
        assert!((between - 0.8 / 5.0).abs() < 1e-15 && (within[0] - 1.2 / 4.2).abs() < 1e-15, "{constants:?}");
        // At these chances τ = C₁/C₂, and the three parts of 𝓛 are equal: C₁ + C₂ + L.
        let pull = mean_pull(&constants.chances, 1, strengths.alpha()[1], Step::Between);
        assert!((pull.own * between - 0.25 * 0.8).abs() < 1e-15 && (pull.all * between - 0.2).abs() < 1e-15);
        assert!((constants.step - 0.5 / 5.0).abs() < 1e-15, "{}", constants.step);
        // Where clusters pull more at each other than at their clients, no cluster steps alone.
        let tight = Strengths::new(&families, vec![2.0; 4], vec![12.0; 2], 1.0);
        let chances = choice.chances(&tight, 3.0);
        assert!((chances.between - 3.0 / 6.0).abs() < 1e-15 && chances.within == [0.0, 0.0], "{chances:?}");
        // Without ties or pulls there is nothing to step towards.
        let alone = Strengths::new(&families, vec![0.0; 4], vec![0.0; 2], 1.0);
        let constants = theorem_3_5(&choice, &alone, 3.0);
        assert_eq!(constants.chances, Chances { between: 0.0, within: vec![0.0; 2] });
        assert!((constants.step - 0.5 / 3.0).abs() < 1e-15);
    }
}
