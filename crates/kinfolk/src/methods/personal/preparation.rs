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
use super::fit::{Circle, Fit, centres_of, shared};
use super::{Base, Objective, Spread, Strengths, want_quadratic};
use crate::federation::work::{ResponseParts, Validate};
use crate::hierarchy::response::Response;
use crate::hierarchy::variances::{ClusterSums, Design, Estimates, Step, VarianceSearch};
use crate::text::significant;
use crate::training::Pull;

/// Times a logistic model is made linear anew, and the relative change of variances that ends it.
const MOST_PASSES: usize = 20;
const STEADY: f64 = 1e-3;
/// Looks a search for variances takes, about.
const USUAL_LOOKS: usize = 12;

/// How strengths come about.
#[derive(Serialize, Deserialize)]
pub struct Preparation {
    strengths: Option<Strengths>,
    stage: Stage,
    /// Whether no pull may be infinite, as that of clients that do not differ would be.
    bounded: bool,
}

#[derive(Serialize, Deserialize)]
enum Stage {
    Given,
    Estimating(Box<Estimating>),
    Estimated(Estimates),
    Tuning(Tuning),
    Tuned(Tuned),
}

#[derive(Serialize, Deserialize)]
struct Estimating {
    common: bool,
    /// Absent before the first round.
    search: Option<VarianceSearch>,
    design: Option<Design>,
    /// Where the clients' losses are expanded.
    centres: Vec<Params>,
    passes: usize,
    last: Option<Estimates>,
}

#[derive(Serialize, Deserialize)]
struct Tuning {
    gammas: Vec<f64>,
    lambdas: Vec<f64>,
    folds: u32,
    /// Sums over the clients, one for every λ, of the γ that were tried.
    losses: Vec<Vec<f64>>,
    clients: usize,
}

#[derive(Serialize, Deserialize)]
struct Tuned {
    gamma: f64,
    lambda: f64,
    loss: f64,
    tried: usize,
    at_the_edge: bool,
}

/// Whether there are strengths now.
pub enum Prepared<'a> {
    /// These.
    Ready(&'a Strengths),
    /// Not yet; with the mean loss of this round.
    NotYet(Option<f64>),
}

impl Preparation {
    /// As the settings say.
    pub fn new(setup: &Setup, objective: &Objective, base: &Base) -> Result<Self> {
        if let Some(strengths) = Strengths::given(setup, objective, &base.families)? {
            return Ok(Self { strengths: Some(strengths), stage: Stage::Given, bounded: false });
        }
        if objective.tune {
            return Self::tuning(setup, base, objective.grid.clone(), objective.folds);
        }
        want_quadratic(setup, "estimating strengths").map_err(|error| error.hint("give gamma and lambda"))?;
        let estimating = Estimating {
            common: objective.client.spread == Spread::Common,
            search: None,
            design: None,
            centres: vec![base.start.clone(); base.families.count()],
            passes: 0,
            last: None,
        };
        Ok(Self { strengths: None, stage: Stage::Estimating(Box::new(estimating)), bounded: false })
    }

    /// Strengths that are known.
    pub fn given(strengths: Strengths) -> Self {
        Self { strengths: Some(strengths), stage: Stage::Given, bounded: false }
    }

    /// Strengths to be looked for on the grid; with one cluster there is no λ.
    pub fn tuning(setup: &Setup, base: &Base, grid: Option<Vec<f64>>, folds: u32) -> Result<Self> {
        want_quadratic(setup, "tuning strengths").map_err(|error| error.hint("give gamma and lambda"))?;
        let usual = || (0..17).map(|step| 10f64.powf(-2.0 + 0.25 * f64::from(step))).collect();
        let gammas: Vec<f64> = grid.unwrap_or_else(usual);
        let lambdas = if base.families.count() == 1 { vec![f64::INFINITY] } else { gammas.clone() };
        let tuning = Tuning { gammas, lambdas, folds, losses: Vec::new(), clients: 0 };
        Ok(Self { strengths: None, stage: Stage::Tuning(tuning), bounded: false })
    }

    /// The same for steps, which no pull may overwhelm.
    pub fn bounded(self) -> Self {
        Self { bounded: true, ..self }
    }

    /// The strengths, once they are there.
    pub fn strengths(&self) -> Option<&Strengths> {
        self.strengths.as_ref()
    }

    /// Puts together what a checkpoint leaves out.
    pub fn restored(&mut self, base: &Base) {
        if let Some(strengths) = &mut self.strengths {
            strengths.sort_into_classes(&base.families);
        }
    }

    /// Rounds it takes, about.
    pub fn planned_rounds(&self) -> usize {
        match &self.stage {
            Stage::Given => 0,
            Stage::Estimating(estimating) => estimating.design.as_ref().map_or(USUAL_LOOKS, |_| USUAL_LOOKS + 1),
            Stage::Estimated(estimates) => estimates.rounds + 1,
            Stage::Tuning(tuning) => tuning.gammas.len(),
            Stage::Tuned(tuned) => tuned.tried,
        }
    }

    /// One round, unless there is nothing left to find out.
    pub fn round(&mut self, base: &Base, room: &mut Room) -> Result<Prepared<'_>> {
        if self.strengths.is_none() {
            let (stage, loss) = match &mut self.stage {
                Stage::Estimating(estimating) => {
                    let (done, loss) = estimating.round(base, room)?;
                    let most = if self.bounded { estimating.strongest_pull() } else { f64::INFINITY };
                    (done.map(|estimates| (strengths_of(&estimates, base, most), Stage::Estimated(estimates))), loss)
                }
                Stage::Tuning(tuning) => {
                    let done = tuning.round(base, room)?;
                    (done.map(|tuned| (tuned.strengths(base), Stage::Tuned(tuned))), None)
                }
                Stage::Given | Stage::Estimated(_) | Stage::Tuned(_) => (None, None),
            };
            if let Some((strengths, stage)) = stage {
                (self.strengths, self.stage) = (Some(strengths), stage);
            }
            return Ok(Prepared::NotYet(loss));
        }
        Ok(self.strengths.as_ref().map_or(Prepared::NotYet(None), Prepared::Ready))
    }

    /// What was found, in words and numbers.
    pub fn describe(&self, notes: &mut Vec<String>, extra: &mut BTreeMap<String, f64>) {
        let Some(strengths) = &self.strengths else { return };
        if strengths.are_zero() {
            notes.push("all strengths are zero: every client learns alone".into());
        }
        match &self.stage {
            Stage::Estimated(estimates) => {
                describe_estimates(estimates, notes, extra);
            }
            Stage::Tuned(tuned) => {
                let Tuned { gamma, lambda, loss, tried, at_the_edge } = tuned;
                let said = |value: f64| significant(value, 4);
                let pair = match lambda.is_finite() {
                    true => format!("λ = {}, γ = {}", said(*lambda), said(*gamma)),
                    false => format!("γ = {}", said(*gamma)),
                };
                notes.push(format!("{pair} by cross-validation, held-out loss {}", said(*loss)));
                if *at_the_edge {
                    notes.push(
                        "the best strength lies at the edge of the grid: a wider grid may hold a better one".into(),
                    );
                }
                extra.extend([
                    ("gamma".into(), *gamma),
                    ("tuning_loss".into(), *loss),
                    ("tuning_rounds".into(), *tried as f64),
                ]);
                if lambda.is_finite() {
                    extra.insert("lambda".into(), *lambda);
                }
            }
            Stage::Given | Stage::Estimating(_) | Stage::Tuning(_) => {}
        }
    }
}

fn describe_estimates(estimates: &Estimates, notes: &mut Vec<String>, extra: &mut BTreeMap<String, f64>) {
    let within = estimates.within.iter().sum::<f64>() / estimates.within.len().max(1) as f64;
    let errors = &estimates.standard_errors;
    let common = estimates.within.iter().all(|other| *other == estimates.within[0]);
    let mut number = |name: &str, value: f64, error: Option<f64>| {
        extra.insert(format!("{name}_variance"), value);
        if let Some(error) = error {
            extra.insert(format!("{name}_variance_error"), error);
        }
        match error {
            Some(error) => format!("{} ± {}", significant(value, 4), significant(error, 2)),
            None => significant(value, 4),
        }
    };
    let of_clients = number("within", within, errors.within.first().copied().flatten().filter(|_| common));
    let mut said = format!("estimated variances: clients around their cluster {of_clients}");
    if let Some(between) = estimates.between {
        said += &format!(", clusters {}", number("between", between, errors.between));
    }
    said += &format!(", noise {}", number("noise", estimates.noise, errors.noise));
    if !common {
        let each: Vec<String> = estimates.within.iter().map(|&within| significant(within, 4)).collect();
        said += &format!(" (clients by cluster: {})", each.join(", "));
    }
    notes.push(said);
    notes.extend(estimates.notes.iter().cloned());
}

/// One over the variances, and at most `most`, in units of the noise, where there is no variance.
fn strengths_of(estimates: &Estimates, base: &Base, most: f64) -> Strengths {
    let families = &base.families;
    let gamma = |&cluster: &usize| (1.0 / estimates.within[cluster]).min(most / estimates.noise);
    let gamma = families.of.iter().map(gamma).collect();
    let lambda = estimates.between.map_or(f64::INFINITY, |between| 1.0 / between);
    Strengths::new(families, gamma, vec![lambda; families.count()], estimates.noise)
}

impl Estimating {
    /// A pull so much stronger than the losses that nobody can tell it from an infinite one.
    fn strongest_pull(&self) -> f64 {
        const STRONGER: f64 = 1e3;
        let of_one = |design: &Design| design.curvature / design.clients.iter().sum::<usize>().max(1) as f64;
        self.design.as_ref().map_or(f64::INFINITY, |design| STRONGER * of_one(design))
    }

    fn round(&mut self, base: &Base, room: &mut Room) -> Result<(Option<Estimates>, Option<f64>)> {
        let circle = base.circle(Phase::Start, 1.0);
        let Some(search) = &mut self.search else {
            let loss = self.begin(base, &circle, room)?;
            return Ok((None, loss));
        };
        let strengths_then = search.wanted().to_vec();
        let strengths = with_gammas(base, &strengths_then);
        let told = circle.consult(&self.centres, &strengths, (ResponseParts::ResponseAndSlope, false), room)?;
        let sums: Vec<ClusterSums> = told
            .responses
            .iter()
            .zip(told.slopes)
            .map(|(response, slope)| ClusterSums { response: response.clone(), slope })
            .collect();
        let Step::Done(mut estimates) = search.told(&sums)? else { return Ok((None, told.loss)) };
        self.passes += 1;
        estimates.rounds += self.last.as_ref().map_or(0, |last| last.rounds);
        let steady = self.last.as_ref().is_some_and(|last| alike(last, &estimates));
        if circle.exact || steady || self.passes >= MOST_PASSES {
            if !circle.exact && !steady {
                estimates.notes.push(format!("the variances still moved after {MOST_PASSES} passes"));
            }
            return Ok((Some(estimates), told.loss));
        }
        // The losses are expanded anew, where their clients' best models are by what is known now.
        let lambda = estimates.between.map_or(f64::INFINITY, |between| 1.0 / between);
        let centres = centres_of(told.responses, &vec![lambda; base.families.count()], &base.families)?;
        self.centres = shared(centres).0;
        self.last = Some(estimates);
        let search = self.design.clone().map(VarianceSearch::new).transpose()?;
        self.search = search.map(|search| search.starting_at(&strengths_then));
        Ok((None, told.loss))
    }

    /// How much everybody's loss curves, and where one model for all would be.
    fn begin(&mut self, base: &Base, circle: &Circle, room: &mut Room) -> Result<Option<f64>> {
        let families = &base.families;
        let strengths = with_gammas(base, &vec![1.0; families.count()]);
        let told = circle.consult(&self.centres, &strengths, (ResponseParts::Quadratic, false), room)?;
        let dimension = base.start.len();
        let trace = |response: &Response| (0..dimension).map(|i| response.curvature[i * dimension + i]).sum::<f64>();
        let design = Design {
            dimension,
            rows: base.rows.iter().sum(),
            clients: base.sizes(),
            curvature: told.responses.iter().map(trace).sum::<f64>() / dimension as f64,
            noise: (!circle.exact).then_some(1.0),
            common: self.common,
        };
        if !circle.exact {
            self.centres = shared(centres_of(told.responses, &vec![f64::INFINITY; families.count()], families)?).0;
        }
        self.search = Some(VarianceSearch::new(design.clone())?);
        self.design = Some(design);
        Ok(told.loss)
    }
}

/// Whether two estimates are nearly the same.
fn alike(before: &Estimates, now: &Estimates) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= STEADY * (a.abs() + b.abs());
    let between = match (before.between, now.between) {
        (Some(before), Some(now)) => near(before, now),
        (before, now) => before == now,
    };
    between && before.within.iter().zip(&now.within).all(|(&before, &now)| near(before, now))
}

fn with_gammas(base: &Base, gammas: &[f64]) -> Strengths {
    let families = &base.families;
    let gamma = families.of.iter().map(|&cluster| gammas[cluster]).collect();
    Strengths::new(families, gamma, vec![0.0; families.count()], 1.0)
}

impl Tuning {
    /// Tries one γ with every λ. The last one brings the answer.
    fn round(&mut self, base: &Base, room: &mut Room) -> Result<Option<Tuned>> {
        let gamma = self.gammas[self.losses.len()];
        let mut losses = vec![0.0; self.lambdas.len()];
        for fold in 0..self.folds {
            let mut circle = base.circle(Phase::Start, 1.0);
            circle.on = Portion::Others { index: fold, of: self.folds };
            let centres = self.centres(base, &circle, gamma, room)?;
            self.judge(base, &centres, (gamma, fold), room, &mut losses)?;
        }
        self.losses.push(losses);
        if self.losses.len() < self.gammas.len() {
            return Ok(None);
        }
        let pairs = || (0..self.gammas.len()).flat_map(|g| (0..self.lambdas.len()).map(move |l| (g, l)));
        let clients = self.clients.max(1) as f64;
        let best = pairs().min_by(|&(g, l), &(h, m)| self.losses[g][l].total_cmp(&self.losses[h][m]));
        let (g, l) = best.unwrap_or((0, 0));
        let edge = |value: f64, grid: &[f64]| {
            let (low, high) = grid.iter().fold((f64::INFINITY, 0.0), |(low, high), &v| (v.min(low), v.max(high)));
            low < high && (value == low || value == high)
        };
        Ok(Some(Tuned {
            gamma: self.gammas[g],
            lambda: self.lambdas[l],
            loss: self.losses[g][l] / clients,
            tried: self.gammas.len(),
            at_the_edge: edge(self.gammas[g], &self.gammas) || edge(self.lambdas[l], &self.lambdas),
        }))
    }

    /// The centres of every λ, learnt from the rows of the circle.
    fn centres(&self, base: &Base, circle: &Circle, gamma: f64, room: &mut Room) -> Result<Vec<Vec<Params>>> {
        let families = &base.families;
        let mut strengths = with_gammas(base, &vec![gamma; families.count()]);
        let mut start = vec![base.start.clone(); families.count()];
        if circle.exact {
            let told = circle.consult(&start, &strengths, (ResponseParts::Response, false), room)?;
            let of = |&lambda: &f64| {
                let lambdas = vec![lambda; families.count()];
                Ok(shared(centres_of(told.responses.clone(), &lambdas, families)?).0)
            };
            return self.lambdas.iter().map(of).collect();
        }
        let mut found = Vec::new();
        for &lambda in &self.lambdas {
            strengths.lambda = vec![lambda; families.count()];
            let mut fit = Fit::new(base.start.clone(), families).from(start);
            fit.run_to_the_end(circle, &strengths, room)?;
            start = fit.clusters;
            found.push(start.clone());
        }
        Ok(found)
    }

    fn judge(
        &mut self,
        base: &Base,
        centres: &[Vec<Params>],
        (gamma, fold): (f64, u32),
        room: &mut Room,
        losses: &mut [f64],
    ) -> Result<()> {
        let clusters = base.families.count();
        let models = centres.iter().flatten().cloned().collect();
        let mut ask = Ask::new(Phase::Start, models, Gather::Each);
        let order = |(cluster, members): (usize, &Vec<u32>)| {
            let trial = |lambda: usize| Pull { centre: lambda * clusters + cluster, strength: gamma };
            let trials = (0..centres.len()).map(trial).collect();
            let validate = Validate { trials, fold, of: self.folds, scale: base.scale(1.0) };
            ask.order(Recipients::list(members.clone()), validate)
        };
        let orders: Vec<_> = base.families.members.iter().enumerate().map(order).collect();
        let (answers, _) = ask_everybody(&ask, room)?;
        self.clients = 0;
        for (_, told) in orders.into_iter().flat_map(|order| answers.of(order).each().collect::<Vec<_>>()) {
            losses.iter_mut().zip(told).for_each(|(sum, loss)| *sum += loss);
            self.clients += 1;
        }
        Ok(())
    }
}

impl Tuned {
    fn strengths(&self, base: &Base) -> Strengths {
        let mut strengths = with_gammas(base, &vec![self.gamma; base.families.count()]);
        strengths.lambda = vec![self.lambda; base.families.count()];
        strengths
    }
}
