//! Strengths before the first step: as given, estimated from the data, or tuned by cross-validation over a grid.
//!
//! Estimated, they are one over the variances of a hierarchical model, by restricted maximum likelihood: a round for every
//! look of `hierarchy/variances.rs`. A logistic model is treated as linear around its clients' best models near centres that
//! are found anew until the variances stay; that these models, and with them the curvatures, move with the strength is
//! taken into account (Laplace's approximation).
//!
//! Tuned, every pair of λ and γ of the grid is tried: models are learnt from all but one part of each client's rows and
//! judged by their loss on that part, averaged over the parts and then over the clients.

use super::super::*;
use super::complete::ask_everybody;
use super::fit::{Fit, ResponseRound, centres_of};
use super::{Spread, want_quadratic};
use crate::federation::work::{ResponseParts, Validate};
use crate::hierarchy::response::Response;
use crate::hierarchy::variances::{ClusterSums, Design, Estimates, VarianceSearch};
use crate::text::significant;

/// Strengths, or how they are being found.
#[derive(Serialize, Deserialize)]
pub enum Preparation {
    Estimating(Box<Estimating>),
    Tuning(Tuning),
    Done(Found),
}

/// Strengths, and what there is to say about them.
#[derive(Serialize, Deserialize)]
pub struct Found {
    strengths: Strengths,
    rounds: usize,
    notes: Vec<String>,
    numbers: BTreeMap<String, f64>,
}

#[derive(Default, Serialize, Deserialize)]
pub struct Estimating {
    common: bool,
    /// Whether no pull may be infinite, as that of clients that do not differ would be.
    bounded: bool,
    /// Absent before the first round.
    search: Option<(VarianceSearch, Design)>,
    /// Where the clients' losses are expanded.
    centres: Vec<Vec<f64>>,
    passes: usize,
    last: Option<Estimates>,
}

#[derive(Serialize, Deserialize)]
pub struct Tuning {
    gammas: Vec<f64>,
    lambdas: Vec<f64>,
    folds: u32,
    /// Sums over the clients, one for every λ, of the γ that were tried.
    losses: Vec<Vec<f64>>,
    clients: usize,
}

/// Whether strengths are known now.
pub enum Prepared<'a> {
    Ready(&'a Strengths),
    NotYet(Progress),
}

/// The values that are tried where none are given.
const USUAL: usize = 17;

/// What clients tell for the choice of strengths by cross-validation.
pub fn discloses_tuning(grid: Option<&Vec<f64>>, folds: u32, ability: Ability) -> Vec<Disclosure> {
    let times = grid.map_or(USUAL, Vec::len).saturating_mul(folds as usize);
    let (what, phase) = ("how strongly clients are pulled, by cross-validation", Phase::Start);
    let responses = Disclosure::sums::<work::Respond>(phase, times, what);
    let responses = if ability == Ability::Quadratic { responses } else { responses.as_needed() };
    vec![responses, Disclosure::single::<Validate>(phase, times, what)]
}

/// What clients tell for the estimate of strengths from variances.
pub fn discloses_estimates() -> Vec<Disclosure> {
    let what = "how strongly clients are pulled, from variances";
    vec![Disclosure::sums::<work::Respond>(Phase::Start, 1, what).as_needed()]
}

impl Preparation {
    /// As the settings say. `bounded` is for steps, which no pull may overwhelm.
    pub fn new(setup: &Setup, objective: &Objective, problem: &Problem, bounded: bool) -> Result<Self> {
        if let Some(strengths) = Strengths::given(setup, objective, &problem.families)? {
            return Ok(Self::given(strengths));
        }
        if objective.tune {
            return Self::tuning(setup, problem, objective.grid.clone(), objective.folds);
        }
        want_quadratic(setup, "estimating strengths").map_err(|error| error.hint("give gamma and lambda"))?;
        Ok(Preparation::Estimating(Box::new(Estimating {
            common: objective.client.spread == Spread::Common,
            bounded,
            centres: vec![problem.start.to_vec(); problem.families.count()],
            ..Estimating::default()
        })))
    }

    pub fn given(strengths: Strengths) -> Self {
        Preparation::Done(Found { strengths, rounds: 0, notes: Vec::new(), numbers: BTreeMap::new() })
    }

    /// Strengths to be looked for on the grid; with one cluster there is no λ.
    pub fn tuning(setup: &Setup, problem: &Problem, grid: Option<Vec<f64>>, folds: u32) -> Result<Self> {
        want_quadratic(setup, "tuning strengths").map_err(|error| error.hint("give gamma and lambda"))?;
        let usual = || (0..USUAL as u32).map(|step| 10f64.powf(-2.0 + 0.25 * f64::from(step))).collect();
        let gammas: Vec<f64> = grid.unwrap_or_else(usual);
        let lambdas = if problem.families.count() == 1 { vec![f64::INFINITY] } else { gammas.clone() };
        Ok(Preparation::Tuning(Tuning { gammas, lambdas, folds, losses: Vec::new(), clients: 0 }))
    }

    pub fn strengths(&self) -> Option<&Strengths> {
        match self {
            Preparation::Done(found) => Some(&found.strengths),
            _ => None,
        }
    }

    pub fn planned_rounds(&self) -> usize {
        /// Usual number of looks in a search for variances.
        const LOOKS: usize = 12;
        match self {
            Preparation::Estimating(estimating) => LOOKS + usize::from(estimating.search.is_some()),
            Preparation::Tuning(tuning) => tuning.gammas.len(),
            Preparation::Done(found) => found.rounds,
        }
    }

    /// One round, unless there is nothing left to find out.
    pub fn round(&mut self, problem: &Problem, room: &mut Room) -> Result<Prepared<'_>> {
        let (found, loss) = match self {
            Preparation::Estimating(estimating) => estimating.round(problem, room)?,
            Preparation::Tuning(tuning) => (tuning.round(problem, room)?, None),
            Preparation::Done(found) => return Ok(Prepared::Ready(&found.strengths)),
        };
        if let Some(found) = found {
            *self = Preparation::Done(found);
        }
        Ok(Prepared::NotYet(Progress::of(loss, false)))
    }

    /// What was found, in words and numbers.
    pub fn describe(&self, notes: &mut Vec<String>, extra: &mut BTreeMap<String, f64>) {
        let Preparation::Done(found) = self else { return };
        if found.strengths.are_zero() {
            notes.push("all strengths are zero: every client learns alone".into());
        }
        notes.extend(found.notes.iter().cloned());
        extra.extend(found.numbers.clone());
    }
}

impl Found {
    /// One over the estimated variances, and at most `most`, in units of the noise, where there is no variance.
    fn estimated(estimates: Estimates, problem: &Problem, most: f64) -> Self {
        let Estimates { noise, within, between, standard_errors: errors, rounds, notes } = estimates;
        let gammas: Vec<f64> = within.iter().map(|variance| (1.0 / variance).min(most / noise)).collect();
        let lambda = between.map_or(f64::INFINITY, |between| 1.0 / between);
        let mut numbers = BTreeMap::new();
        let mut number = |name: &str, value: f64, error: Option<f64>| {
            numbers.insert(format!("{name}_variance"), value);
            let said = significant(value, 4);
            let Some(error) = error else { return said };
            numbers.insert(format!("{name}_variance_error"), error);
            format!("{said} ± {}", significant(error, 2))
        };
        let common = within.iter().all(|other| *other == within[0]);
        let mean = within.iter().sum::<f64>() / within.len().max(1) as f64;
        let of_clients = number("within", mean, errors.within.first().copied().flatten().filter(|_| common));
        let mut said = format!("estimated variances: clients around their cluster {of_clients}");
        if let Some(between) = between {
            said += &format!(", clusters {}", number("between", between, errors.between));
        }
        said += &format!(", noise {}", number("noise", noise, errors.noise));
        if !common {
            let each: Vec<String> = within.iter().map(|&within| significant(within, 4)).collect();
            said += &format!(" (clients by cluster: {})", each.join(", "));
        }
        let strengths = Strengths::by_cluster(&problem.families, &gammas, lambda, noise);
        Self { strengths, rounds: rounds + 1, notes: std::iter::once(said).chain(notes).collect(), numbers }
    }
}

impl Estimating {
    fn round(&mut self, problem: &Problem, room: &mut Room) -> Result<(Option<Found>, Option<f64>)> {
        /// Times a logistic model is linearised anew.
        const MOST_PASSES: usize = 20;
        let round = problem.response_round(Phase::Start, 1.0);
        let Some((search, design)) = &mut self.search else {
            let loss = self.begin(problem, &round, room)?;
            return Ok((None, loss));
        };
        let gammas = search.wanted().to_vec();
        let strengths = Strengths::by_cluster(&problem.families, &gammas, 0.0, 1.0);
        let found = round.run(&self.centres, &strengths, (ResponseParts::ResponseAndSlope, false), room)?;
        let sums = found.responses.iter().cloned().zip(found.slopes);
        let sums: Vec<ClusterSums> = sums.map(|(response, slope)| ClusterSums { response, slope }).collect();
        let Some(mut estimates) = search.tell(&sums)? else { return Ok((None, found.loss)) };
        self.passes += 1;
        estimates.rounds += self.last.as_ref().map_or(0, |last| last.rounds);
        let steady = self.last.as_ref().is_some_and(|last| are_alike(last, &estimates));
        if round.exact || steady || self.passes >= MOST_PASSES {
            if !round.exact && !steady {
                estimates.notes.push(format!("the variances still moved after {MOST_PASSES} passes"));
            }
            // So much stronger than the losses that nobody can tell it from an infinite pull.
            let strongest = 1e3 * design.curvature / design.clients.iter().sum::<usize>().max(1) as f64;
            let most = if self.bounded { strongest } else { f64::INFINITY };
            return Ok((Some(Found::estimated(estimates, problem, most)), found.loss));
        }
        // The losses are expanded anew, where their clients' best models are by what is known now.
        let lambda = estimates.between.map_or(f64::INFINITY, |between| 1.0 / between);
        self.centres =
            centres_of(found.responses, &vec![lambda; problem.families.count()], &problem.families)?.clusters;
        self.last = Some(estimates);
        *search = VarianceSearch::new(design.clone())?.starting_at(&gammas);
        Ok((None, found.loss))
    }

    /// How much everybody's loss curves, and where one model for all would be.
    fn begin(&mut self, problem: &Problem, round: &ResponseRound, room: &mut Room) -> Result<Option<f64>> {
        let families = &problem.families;
        let strengths = Strengths::by_cluster(families, &vec![1.0; families.count()], 0.0, 1.0);
        let found = round.run(&self.centres, &strengths, (ResponseParts::Quadratic, false), room)?;
        let dimension = problem.start.len();
        let trace = |response: &Response| response.curvature.iter().step_by(dimension + 1).sum::<f64>();
        let design = Design {
            dimension,
            rows: problem.rows.iter().sum(),
            clients: families.sizes(),
            curvature: found.responses.iter().map(trace).sum::<f64>() / dimension as f64,
            noise: (!round.exact).then_some(1.0),
            common: self.common,
        };
        if !round.exact {
            self.centres = centres_of(found.responses, &vec![f64::INFINITY; families.count()], families)?.clusters;
        }
        self.search = Some((VarianceSearch::new(design.clone())?, design));
        Ok(found.loss)
    }
}

fn are_alike(before: &Estimates, now: &Estimates) -> bool {
    const TOLERANCE: f64 = 1e-3;
    let near = |a: f64, b: f64| (a - b).abs() <= TOLERANCE * (a.abs() + b.abs());
    let between = match (before.between, now.between) {
        (Some(before), Some(now)) => near(before, now),
        (before, now) => before == now,
    };
    between && before.within.iter().zip(&now.within).all(|(&before, &now)| near(before, now))
}

impl Tuning {
    /// Tries one γ with every λ. The last one brings the answer.
    fn round(&mut self, problem: &Problem, room: &mut Room) -> Result<Option<Found>> {
        let gamma = self.gammas[self.losses.len()];
        let mut losses = vec![0.0; self.lambdas.len()];
        for fold in 0..self.folds {
            let on = Portion::Others { index: fold, of: self.folds };
            let round = ResponseRound { on, ..problem.response_round(Phase::Start, 1.0) };
            let centres = self.centres(problem, &round, gamma, room)?;
            self.validate(problem, &centres, (gamma, fold), room, &mut losses)?;
        }
        self.losses.push(losses);
        Ok((self.losses.len() == self.gammas.len()).then(|| self.best(problem)))
    }

    /// The pair with the smallest held-out loss.
    fn best(&self, problem: &Problem) -> Found {
        let pairs = (0..self.gammas.len()).flat_map(|g| (0..self.lambdas.len()).map(move |l| (g, l)));
        let best = pairs.min_by(|&(g, l), &(h, m)| self.losses[g][l].total_cmp(&self.losses[h][m]));
        let (g, l) = best.unwrap_or((0, 0));
        let (gamma, lambda, rounds) = (self.gammas[g], self.lambdas[l], self.gammas.len());
        let loss = self.losses[g][l] / self.clients.max(1) as f64;
        let is_at_edge = |value: f64, grid: &[f64]| {
            let (low, high) = grid.iter().fold((f64::INFINITY, 0.0), |(low, high), &v| (v.min(low), v.max(high)));
            low < high && (value == low || value == high)
        };
        let mut numbers = BTreeMap::from([
            ("gamma".into(), gamma),
            ("tuning_loss".into(), loss),
            ("tuning_rounds".into(), rounds as f64),
        ]);
        let mut pair = format!("γ = {}", significant(gamma, 4));
        if lambda.is_finite() {
            numbers.insert("lambda".into(), lambda);
            pair = format!("λ = {}, {pair}", significant(lambda, 4));
        }
        let mut notes = vec![format!("{pair} by cross-validation, held-out loss {}", significant(loss, 4))];
        if is_at_edge(gamma, &self.gammas) || is_at_edge(lambda, &self.lambdas) {
            notes.push("the best strength lies at the edge of the grid: a wider grid may hold a better one".into());
        }
        let strengths = Strengths::by_cluster(&problem.families, &vec![gamma; problem.families.count()], lambda, 1.0);
        Found { strengths, rounds, notes, numbers }
    }

    /// The clusters' centres for every λ, learnt from the rows of the round.
    fn centres(
        &self,
        problem: &Problem,
        round: &ResponseRound,
        gamma: f64,
        room: &mut Room,
    ) -> Result<Vec<Vec<Vec<f64>>>> {
        let families = &problem.families;
        let gammas = vec![gamma; families.count()];
        let mut start = vec![problem.start.to_vec(); families.count()];
        if round.exact {
            let strengths = Strengths::by_cluster(families, &gammas, 0.0, 1.0);
            let found = round.run(&start, &strengths, (ResponseParts::Response, false), room)?;
            let centres = |&lambda: &f64| {
                let lambdas = vec![lambda; families.count()];
                Ok(centres_of(found.responses.clone(), &lambdas, families)?.clusters)
            };
            return self.lambdas.iter().map(centres).collect();
        }
        let mut found = Vec::new();
        for &lambda in &self.lambdas {
            let strengths = Strengths::by_cluster(families, &gammas, lambda, 1.0);
            let mut fit = Fit::new(start, &problem.start, problem.rows.len());
            fit.run_to_the_end(round, &strengths, room)?;
            start = fit.centres().clusters.clone();
            found.push(start.clone());
        }
        Ok(found)
    }

    /// Adds the clients' losses on the rows of the fold.
    fn validate(
        &mut self,
        problem: &Problem,
        centres: &[Vec<Vec<f64>>],
        (gamma, fold): (f64, u32),
        room: &mut Room,
        losses: &mut [f64],
    ) -> Result<()> {
        let clusters = problem.families.count();
        let models = centres.iter().flatten().cloned().map(Arc::new).collect();
        let mut ask = Ask::new(Phase::Start, models, Gather::Each);
        let order = |(cluster, members): (usize, &Vec<u32>)| {
            let trial = |lambda: usize| Pull { centre: lambda * clusters + cluster, strength: gamma };
            let trials = (0..centres.len()).map(trial).collect();
            let validate = Validate { trials, fold, of: self.folds, scale: problem.scale(1.0) };
            ask.order(Recipients::list(members.clone()), validate)
        };
        let orders: Vec<_> = problem.families.members.iter().enumerate().map(order).collect();
        let (answers, _) = ask_everybody(&ask, room)?;
        self.clients = 0;
        for (_, found) in orders.into_iter().flat_map(|order| answers.of(order).each().collect::<Vec<_>>()) {
            losses.iter_mut().zip(found).for_each(|(sum, loss)| *sum += loss);
            self.clients += 1;
        }
        Ok(())
    }
}
