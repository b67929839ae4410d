//! All steps in order, and what comes out of them.

use super::difference::{self, Difference};
use super::evidence::{Basis, Evidence, Panel, Products, Response, Role, Working};
use super::ladder::{self, AloneModels, FoldLosses, Joining, Models, Recipe, Rung, Service, Standing, Trials};
use super::mixed::{self, Covariance, Integrated};
use super::mixture::Joint;
use super::population::Population;
use super::search::{self, Search};
use super::sentences;
use crate::error::{Error, Result};
use crate::num::tails::chi_square_tail;
use crate::num::triangular::{factorise, solve};
use crate::num::{add_scaled, dot};
use crate::rng::Key;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Rows of a client's own that the common variance of noise counts for at most, and at least.
const NOISE_FREEDOM: [f64; 2] = [4.0, 1e6];

/// Columns up to which covariances with more parameters are tried, and groups of curves up to which they are tried one by one.
const MOST_FREE: usize = 10;
const MOST_GROUPS: usize = 12;

/// How many families there shall be.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Wanted {
    /// As many as are found.
    #[default]
    Auto,
    /// One.
    One,
    /// This many.
    Exactly(usize),
    /// Those that are known, by client.
    Known(Vec<usize>),
}

/// What may be asked of [`learn`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// The seed of all draws.
    pub seed: u64,
    /// How many families.
    pub families: Wanted,
    /// The covariance of clients' coefficients; without, intercept and slopes, or what cross-validation finds better.
    pub covariance: Option<Covariance>,
    /// Fewer draws, and no search among covariances.
    pub quick: bool,
}

/// A family of clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Family {
    /// What it is called: counted from 1, and the same when the clients are fitted again.
    pub number: usize,
    /// Its share of the clients.
    pub share: f64,
    /// How many clients are most probably in it.
    pub clients: usize,
    /// The coefficients of its centre.
    pub centre: Vec<f64>,
    /// Their covariance, row-major.
    pub covariance: Vec<f64>,
}

/// What was learned of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearnedClient {
    /// How many rows it has.
    pub rows: usize,
    /// Its most probable family.
    pub family: usize,
    /// The probabilities of all families.
    pub responsibilities: Vec<f64>,
    /// In how many resamples of the clients it stayed in its family, as a share.
    pub stability: Option<f64>,
    /// The coefficients of its personal model; like what follows but the noise, empty where they stay on the client's machine,
    pub personal: Vec<f64>,
    /// of its own alone,
    pub alone: Vec<f64>,
    /// and of what serves it.
    pub served: Vec<f64>,
    /// What cross-validation says of what serves it; absent of a client that was added later.
    pub service: Option<Service>,
    /// The variance of its noise.
    pub noise: f64,
    /// The covariance of its personal model's coefficients, in the coordinates of the basis: the upper triangle, row by row.
    pub(crate) covariance: Vec<f64>,
}

/// The models that folds were predicted with, learned without them: of these are errors, intervals and their coverage.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldOut {
    /// The fold.
    pub fold: usize,
    /// What serves each client.
    pub served: Vec<Vec<f64>>,
}

/// A client, and what would serve it if it had not been there.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut {
    /// The client.
    pub client: usize,
    /// The coefficients.
    pub coefficients: Vec<f64>,
}

/// What was learned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// What is predicted.
    pub response: Response,
    /// Whether clients differ at all.
    pub difference: Difference,
    /// How the number of families was found.
    pub search: Search,
    /// The families.
    pub families: Vec<Family>,
    /// The model for everybody.
    pub global: Vec<f64>,
    /// The covariance of clients around their family's centre, row-major; 0 in columns that have one coefficient for everybody.
    pub spread: Vec<f64>,
    /// Its structure,
    pub covariance: Covariance,
    /// the groups of curves that are in the model,
    pub curves: Vec<usize>,
    /// and whether they differ between clients.
    pub random_curves: bool,
    /// The columns whose products with others are in the model.
    #[serde(default)]
    pub interactions: Vec<String>,
    /// The variance of noise in a typical client,
    pub noise: f64,
    /// and how many rows of a client's own it counts for.
    pub noise_freedom: f64,
    /// Weights of the four models in what serves everybody, from global to alone.
    pub stack: [f64; 4],
    /// How new clients' own models are made; without, they have none.
    #[serde(default)]
    pub alone: Option<AloneModels>,
    /// Cross-validated losses of the four models, and of what serves clients, averaged over clients: mean squared errors, or log losses.
    pub errors: [f64; 5],
    /// Every client.
    pub clients: Vec<LearnedClient>,
    /// Each decision in a sentence.
    pub sentences: Vec<String>,
    /// The coordinates of the population.
    pub basis: Basis,
    pub(crate) population: Population,
    /// Not kept: what the folds were predicted with.
    #[serde(skip)]
    pub held_out: Vec<HeldOut>,
    /// Not kept: what clients would be predicted with that are left out in turn.
    #[serde(skip)]
    pub left_out: Vec<LeftOut>,
}

/// A choice of columns and covariance that cross-validation compares.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shape {
    /// Groups of curves.
    curves: Vec<usize>,
    random_curves: bool,
    /// Groups of products.
    interactions: Vec<usize>,
    covariance: Covariance,
}

/// How well a choice does.
struct Trial {
    /// Every client's cross-validated errors with its personal model, by the folds with rows: their sums, and the rows.
    cells: Vec<Vec<(usize, f64, f64)>>,
    /// Minus twice the restricted log-likelihood.
    deviance: f64,
}

impl Shape {
    fn working(&self, evidence: &Evidence) -> Result<Working> {
        let curve = |role: Role| matches!(role, Role::Curve(_));
        Working::new(
            evidence,
            |role| match role {
                Role::Curve(group) => self.curves.contains(&group),
                Role::Interaction(group) => self.interactions.contains(&group),
                role => role != Role::Unused,
            },
            |role| {
                self.covariance != Covariance::Intercept && (role == Role::Linear || self.random_curves && curve(role))
            },
        )
    }

    /// Without curves and products.
    pub(crate) fn plain(options: &Options) -> Self {
        let covariance = options.covariance.unwrap_or(Covariance::InterceptSlopes);
        Self { curves: Vec::new(), random_curves: false, interactions: Vec::new(), covariance }
    }

    fn recipe(&self) -> Recipe<'static> {
        Recipe { covariance: self.covariance, start: None, families: None, known: None, common: None }
    }

    /// Groups of columns that have a penalty of their own.
    fn penalties(&self) -> usize {
        self.interactions.len() + if self.random_curves { 0 } else { self.curves.len() }
    }

    /// The groups of products in the model.
    pub(crate) fn interactions(&self) -> &[usize] {
        &self.interactions
    }

    fn trial(&self, working: &Working) -> Result<Trial> {
        let recipe = self.recipe();
        let mixed = mixed::fit(&working.panel(None), self.covariance, working.basis.intercepts(), None)?;
        let trials = Trials::new(working, Recipe { start: Some(&mixed.parameters), ..recipe });
        let cells = (0..working.clients).map(|client| trials.cells(working, client, Rung::Personal)).collect();
        Ok(Trial { cells, deviance: mixed.deviance })
    }
}

/// Learns everything from what clients sent, where that is all there is to know: of numbers.
pub fn learn(evidence: &Evidence, options: &Options) -> Result<Learned> {
    learn_with(evidence, choose(evidence, options)?, options)
}

/// The same with columns and covariance that are chosen already.
pub(crate) fn learn_with(evidence: &Evidence, shape: Shape, options: &Options) -> Result<Learned> {
    let draft = Draft::new(evidence, Beforehand { difference: None, shape, common: None }, options)?;
    let stack = draft.trials.stack(&draft.working);
    let losses = draft.trials.losses(&draft.working, stack);
    Ok(draft.finish(stack, &losses))
}

/// Whether clients differ, by likelihoods that are expanded at one model for everybody.
pub(crate) fn differ(evidence: &Evidence, options: &Options) -> Result<Difference> {
    let shape = Shape::plain(options);
    let working = shape.working(evidence)?;
    let (one, panel, left, _) = ladder::fit(&working, None, shape.recipe())?;
    let between = share_between(&working, &panel, &left, &one);
    Ok(difference::test(&working, between, &key(options).word("difference")))
}

/// One step of Newton's method towards the model for everybody, from likelihoods that are expanded at one model. A ridge of one row's worth
/// keeps it finite where classes separate.
pub(crate) fn newton_step(evidence: &Evidence) -> Result<Vec<f64>> {
    let working = Shape::plain(&Options::default()).working(evidence)?;
    let panel = working.panel(None);
    let (size, mut curvature) = (panel.columns, panel.curvature.clone());
    (working.basis.intercepts()..size).for_each(|j| curvature[j * (size + 1)] += 1.0);
    let mut factor = Vec::new();
    factorise(&curvature, size, &mut factor);
    let mut solution = panel.total_moment();
    solve(&factor, size, &mut solution);
    Ok(working.basis.back(&solution))
}

/// The coefficients of predicting how often each class occurs, from likelihoods that are expanded where all classes are as likely.
pub(crate) fn constant_model(evidence: &Evidence) -> Vec<f64> {
    let (given, equations) = (evidence.columns.len(), evidence.response.equations());
    let mut total = Products::none(given);
    evidence.clients.iter().flatten().for_each(|fold| total.add(fold));
    let rows = total.rows as f64;
    // There Σ(y − p) stands beside the column of ones; half a row more of every class keeps the logarithms finite.
    let beside: Vec<f64> = (0..given)
        .map(|j| if evidence.columns[j] == Role::Intercept { total.at(given + 1, j, given) } else { 0.0 })
        .collect();
    let classes = equations as f64 + 1.0;
    let first = rows / classes - beside.iter().sum::<f64>();
    let share = |j: usize| (beside[j] + rows / classes + 0.5) / (first + 0.5);
    (0..given).map(|j| if evidence.columns[j] == Role::Intercept { share(j).ln() } else { 0.0 }).collect()
}

/// Everybody's personal model in one family: where likelihoods are to be expanded next.
pub(crate) fn personal(evidence: &Evidence, shape: &Shape) -> Result<Vec<Vec<f64>>> {
    let working = shape.working(evidence)?;
    let (one, _, left, _) = ladder::fit(&working, None, shape.recipe())?;
    let personal = |client: usize| {
        working.basis.back(&one.posterior(&left, client, None, &mut Integrated::new(working.basis.random)).mean)
    };
    Ok((0..working.clients).into_par_iter().map(personal).collect())
}

fn key(options: &Options) -> Key {
    Key::new(options.seed).word("families")
}

/// What is known before clients' likelihoods are expanded at models of their own.
pub(crate) struct Beforehand<'a> {
    /// Whether they differ.
    pub difference: Option<Difference>,
    /// Columns and covariance.
    pub shape: Shape,
    /// The expansion at one model for everybody.
    pub common: Option<&'a Evidence>,
}

/// All that is learned before it is decided what serves whom.
pub(crate) struct Draft {
    working: Working,
    shape: Shape,
    difference: Difference,
    search: Search,
    known: Option<Vec<usize>>,
    population: Population,
    panel: Panel,
    left: Panel,
    models: Models,
    trials: Trials,
}

impl Draft {
    pub(crate) fn new(evidence: &Evidence, beforehand: Beforehand, options: &Options) -> Result<Self> {
        let key = key(options);
        let shape = beforehand.shape;
        let working = shape.working(evidence)?;
        let common = beforehand.common.map(|common| Working::in_basis(common, working.basis.clone())).transpose()?;
        let recipe = Recipe { common: common.as_ref(), ..shape.recipe() };
        let (one, panel, left, parameters) = ladder::fit(&working, None, recipe)?;
        let recipe = Recipe { start: Some(&parameters), ..recipe };
        let difference = beforehand.difference.unwrap_or_else(|| {
            let between = share_between(&working, &panel, &left, &one);
            difference::test(&working, between, &key.clone().word("difference"))
        });
        let (search, start) = search::search(&working, &left, &one, shape.covariance, &difference, options, &key)?;
        let known = match &options.families {
            Wanted::Known(labels) => Some(labels.clone()),
            _ => None,
        };
        let recipe = Recipe { families: start.as_ref(), known: known.as_deref(), ..recipe };
        let (population, left) = match start {
            None => (one, left),
            Some(_) => {
                let (population, _, left, _) = ladder::fit(&working, None, recipe)?;
                (population, left)
            }
        };
        let recipe = Recipe { families: start.as_ref().map(|_| &population), ..recipe };
        let trials = Trials::new(&working, recipe);
        let models = Models::new(&working, None, (&population, &panel, &left), trials.strength, recipe);
        Ok(Self { working, shape, difference, search, known, population, panel, left, models, trials })
    }

    /// The folds that were predicted, and the four models of every client that were learned without them.
    pub(crate) fn tried(&self) -> impl Iterator<Item = (usize, Vec<[Vec<f64>; 4]>)> {
        let four =
            |models: &Models, client: usize| Rung::ALL.map(|rung| self.working.basis.back(models.of(client, rung)));
        self.trials
            .folds
            .iter()
            .map(move |(fold, models)| (*fold, (0..self.working.clients).map(|client| four(models, client)).collect()))
    }

    /// Decides what serves whom, by losses with this stack.
    pub(crate) fn finish(self, stack: [f64; 4], losses: &[Vec<FoldLosses>]) -> Learned {
        let Self { working, shape, difference, search, known, population, panel, left, models, trials } = self;
        let (noise_freedom, noises) = noises(&working, &left, &population, &models);
        let q = working.basis.random;
        let posterior = |client: usize| {
            let known = known.as_ref().map(|known| known[client]);
            population.posterior(&left, client, known, &mut Integrated::new(q))
        };
        let (responsibilities, covariances): (Vec<Vec<f64>>, Vec<Vec<f64>>) = (0..working.clients)
            .into_par_iter()
            .map(posterior)
            .map(|posterior| (posterior.responsibilities, posterior.covariance))
            .unzip();
        // What a client gains depends on its true coefficients: how uncertain these are must not rest on an estimated spread of 0.
        let wide = population.with_more_spread(&panel, &shape.covariance.entries(q, working.basis.intercepts()));
        let uncertain = |client: usize| {
            let known = known.as_ref().map(|known| known[client]);
            wide.posterior(&left, client, known, &mut Integrated::new(q)).covariance
        };
        let uncertain: Vec<Vec<f64>> = (0..working.clients).into_par_iter().map(uncertain).collect();
        let standing = Standing {
            stack,
            panel: &panel,
            models: &models,
            noise: &noises,
            covariances: &uncertain,
            rows: panel.total_rows(),
        };
        let services = ladder::serve(&working, losses, trials.folds.len(), &standing);
        let served = |models: &Models, client: usize| {
            working.basis.back(&standing.served(models, client, services[client].own_choice))
        };
        let client = |client: usize| LearnedClient {
            rows: panel.rows[client] as usize,
            family: most_probable(&responsibilities[client]),
            responsibilities: responsibilities[client].clone(),
            stability: search.stability.as_ref().map(|stability| stability.clients[client]),
            personal: working.basis.back(models.of(client, Rung::Personal)),
            alone: working.basis.back(models.of(client, Rung::Alone)),
            served: served(&models, client),
            service: Some(services[client].in_units(working.response.loss_unit())),
            noise: noises[client],
            covariance: upper_triangle(&covariances[client], q),
        };
        let clients: Vec<LearnedClient> = (0..working.clients).into_par_iter().map(client).collect();
        let held_out = trials.folds.iter().map(|(fold, models)| HeldOut {
            fold: *fold,
            served: (0..working.clients).map(|client| served(models, client)).collect(),
        });
        let columns = working.basis.columns();
        let family = |family: usize| Family {
            number: family + 1,
            share: population.shares[family],
            clients: clients.iter().filter(|client| client.family == family).count(),
            centre: working.basis.back(&population.centres[family]),
            covariance: working.basis.back_covariance(&population.covariances[family], columns),
        };
        let mut learned = Learned {
            response: working.response,
            families: (0..population.centres.len()).map(family).collect(),
            global: working.basis.back(models.of(0, Rung::Global)),
            spread: working.basis.back_covariance(&population.spread(), working.basis.random),
            covariance: shape.covariance,
            curves: shape.curves,
            random_curves: shape.random_curves,
            interactions: Vec::new(),
            noise: population.noise,
            noise_freedom,
            stack,
            alone: Some(AloneModels::new(trials.strength, &panel)),
            errors: mean_errors(&clients),
            held_out: held_out.collect(),
            left_out: left_out(&working, &panel, &population, &responsibilities),
            sentences: Vec::new(),
            difference,
            search,
            clients,
            basis: working.basis.clone(),
            population,
        };
        learned.sentences = sentences::of(&learned);
        learned
    }
}

/// Of a symmetric matrix of this size, row by row.
pub(super) fn upper_triangle(matrix: &[f64], size: usize) -> Vec<f64> {
    (0..size).flat_map(|i| matrix[i * size + i..(i + 1) * size].to_vec()).collect()
}

pub(crate) fn most_probable(responsibilities: &[f64]) -> usize {
    (0..responsibilities.len()).fold(0, |best, k| if responsibilities[k] > responsibilities[best] { k } else { best })
}

fn mean_errors(clients: &[LearnedClient]) -> [f64; 5] {
    let (mut sums, mut count) = ([0.0; 5], 0.0);
    for service in clients.iter().filter_map(|client| client.service.as_ref()) {
        if let (Some(errors), Some(error)) = (service.errors, service.error) {
            add_scaled(&mut sums[..4], 1.0, &errors);
            sums[4] += error;
            count += 1.0;
        }
    }
    sums.map(|sum| if count > 0.0 { sum / count } else { 0.0 })
}

/// Columns and covariance: what is asked for, or what cross-validation finds better. Products of columns are another question
/// ([`choose_interactions`]).
pub(crate) fn choose(evidence: &Evidence, options: &Options) -> Result<Shape> {
    if let Wanted::Known(labels) = &options.families
        && labels.len() != evidence.clients.len()
    {
        return Err(Error::data(format!(
            "families: got {} known families for {} clients, want one for each",
            labels.len(),
            evidence.clients.len()
        )));
    }
    let groups = groups(evidence, |role| if let Role::Curve(group) = role { Some(group) } else { None });
    let curved = evidence.columns.iter().filter(|role| matches!(role, Role::Curve(_))).count();
    let shape = Shape::plain(options);
    let working = shape.working(evidence)?;
    let (clients, q) = (working.clients, working.basis.random);
    let numbers = q * (q + 1) / 2;
    if options.covariance == Some(Covariance::Full) && numbers > clients {
        let message = format!(
            "covariance: full has {numbers} variances and covariances, want at least as many clients, got {clients}"
        );
        return Err(Error::settings(message).hint("choose diagonal, or leave columns out"));
    }
    let rows = evidence.clients.iter().flatten().map(|fold| fold.rows as f64).sum::<f64>();
    let free = options.covariance.is_none() && !options.quick && (2..=MOST_FREE).contains(&q);
    let diagonal = free && clients >= 10 * q;
    let full = free && 2 * clients >= 5 * q * (q + 1);
    if groups.is_empty() && !diagonal && !full {
        return Ok(shape);
    }
    let mut best = Best { evidence, trial: shape.trial(&working)?, shape };
    best.improve_by(&groups, |shape, curves| Shape { curves, ..shape.clone() }, |shape| &shape.curves)?;
    let slopes = options.covariance != Some(Covariance::Intercept);
    if !best.shape.curves.is_empty() && slopes && !options.quick && rows >= 2.0 * (clients * (q + curved)) as f64 {
        best.improve(Shape { random_curves: true, ..best.shape.clone() }, None)?;
    }
    for (covariance, allowed) in [(Covariance::Diagonal, diagonal), (Covariance::Full, full)] {
        if allowed {
            best.improve(Shape { covariance, ..best.shape.clone() }, None)?;
        }
    }
    Ok(best.shape)
}

/// The same choice with the groups of products that cross-validation finds better.
pub(crate) fn choose_interactions(evidence: &Evidence, shape: Shape) -> Result<Shape> {
    let groups = groups(evidence, |role| if let Role::Interaction(group) = role { Some(group) } else { None });
    let working = shape.working(evidence)?;
    let mut best = Best { evidence, trial: shape.trial(&working)?, shape };
    best.improve_by(
        &groups,
        |shape, interactions| Shape { interactions, ..shape.clone() },
        |shape| &shape.interactions,
    )?;
    Ok(best.shape)
}

/// The groups that some columns are of.
fn groups(evidence: &Evidence, of: impl Fn(Role) -> Option<usize>) -> Vec<usize> {
    let mut groups: Vec<usize> = evidence.columns.iter().filter_map(|role| of(*role)).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// The best choice so far.
struct Best<'a> {
    evidence: &'a Evidence,
    shape: Shape,
    trial: Trial,
}

impl Best<'_> {
    /// Takes groups of columns that are penalised: all at once, or else those that help, one after the other.
    fn improve_by(
        &mut self,
        groups: &[usize],
        with: impl Fn(&Shape, Vec<usize>) -> Shape,
        of: impl Fn(&Shape) -> &Vec<usize>,
    ) -> Result<()> {
        if groups.is_empty() || self.improve(with(&self.shape, groups.to_vec()), Some(LEVEL))? {
            return Ok(());
        }
        if (2..=MOST_GROUPS).contains(&groups.len()) {
            for &group in groups {
                let more = of(&self.shape).iter().copied().chain([group]).collect();
                self.improve(with(&self.shape, more), Some(LEVEL / groups.len() as f64))?;
            }
        }
        Ok(())
    }

    /// Takes another choice if cross-validation says that it is better; says whether it did. Of further groups of penalised columns, the
    /// likelihood must say so too: the probability that it would rise as much by chance is below this level.
    fn improve(&mut self, shape: Shape, level: Option<f64>) -> Result<bool> {
        let working = shape.working(self.evidence)?;
        let Ok(trial) = shape.trial(&working) else { return Ok(false) };
        let further = shape.penalties().saturating_sub(self.shape.penalties());
        let is_likelier = level.is_none_or(|level| chance(self.trial.deviance - trial.deviance, further) < level);
        let better = is_likelier && trial.is_better_than(&self.trial);
        if better {
            (self.shape, self.trial) = (shape, trial);
        }
        Ok(better)
    }
}

impl Trial {
    /// Whether its errors are smaller averaged over clients, by more than one standard error over clients, and one over folds: of few
    /// clients, the first says little.
    fn is_better_than(&self, other: &Self) -> bool {
        let (mut clients, mut folds): (Vec<f64>, Vec<(f64, f64)>) = (Vec::new(), Vec::new());
        for (own, other) in self.cells.iter().zip(&other.cells) {
            let (mut gain, mut rows) = (0.0, 0.0);
            for (fold, error, count) in own {
                let Some((_, before, _)) = other.iter().find(|(other, ..)| other == fold) else { continue };
                gain += before - error;
                rows += count;
                folds.resize(folds.len().max(fold + 1), (0.0, 0.0));
                folds[*fold].0 += (before - error) / count;
                folds[*fold].1 += 1.0;
            }
            if rows > 0.0 {
                clients.push(gain / rows);
            }
        }
        let folds: Vec<f64> = folds.iter().filter(|(_, clients)| *clients > 0.0).map(|(sum, n)| sum / n).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / (values.len() as f64).max(1.0);
        let error = |values: &[f64]| {
            let (count, mean) = (values.len() as f64, mean(values));
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            (squares / (count * (count - 1.0)).max(1.0)).sqrt()
        };
        mean(&clients) > 0.0 && mean(&clients) > error(&clients) && mean(&folds) > error(&folds)
    }
}

/// The level at which the likelihood must speak for further columns.
const LEVEL: f64 = 0.05;

/// The probability that minus twice the log-likelihood falls by as much with so many variances that are 0 in truth. Each is estimated as 0
/// in one case of two, so that this is a mixture of χ² of 0 to that many degrees of freedom, by binomial weights.
fn chance(fall: f64, variances: usize) -> f64 {
    let mut weight = 0.5_f64.powi(variances as i32);
    let mut sum = 0.0;
    for freedom in 1..=variances {
        weight *= (variances - freedom + 1) as f64 / freedom as f64;
        sum += weight * chi_square_tail(freedom as f64, fall.max(0.0));
    }
    sum
}

/// Clients that are left out at most, evenly picked.
const MOST_LEFT_OUT: usize = 400;

/// What clients would be predicted with, each left out in turn: the centres without it, by the families' shares, with the same variances.
fn left_out(working: &Working, panel: &Panel, population: &Population, responsibilities: &[Vec<f64>]) -> Vec<LeftOut> {
    let (clients, q, k) = (working.clients, panel.random, population.centres.len());
    if clients < 2 {
        return Vec::new();
    }
    let held: Vec<f64> = population.centres.iter().flat_map(|centre| centre[..q].to_vec()).collect();
    let joint = Joint::of(panel, &responsibilities.concat(), &population.root, &population.bends, k);
    let count = clients.min(MOST_LEFT_OUT);
    let leave_out = |place: usize| {
        let client = place * clients / count;
        let own = &responsibilities[client];
        let (solution, _) = joint.without(working, panel, client, &population.root, own).solve(&held, false);
        let mut mean = [vec![0.0; q], solution[k * q..].to_vec()].concat();
        for (family, centre) in solution[..k * q].chunks_exact(q.max(1)).enumerate() {
            let share = (population.shares[family] * clients as f64 - own[family]) / (clients as f64 - 1.0);
            add_scaled(&mut mean[..q], share.max(0.0), centre);
        }
        LeftOut { client, coefficients: working.basis.back(&mean) }
    };
    (0..count).into_par_iter().map(leave_out).collect()
}

/// The share of what one model for everybody leaves unexplained that lies between clients: with a random intercept alone, the intraclass
/// correlation.
fn share_between(working: &Working, panel: &Panel, left: &Panel, population: &Population) -> f64 {
    let share = match panel.noise {
        None => {
            let everybody = ladder::global(panel, population);
            let folds = (0..working.clients).flat_map(|client| (0..working.folds).map(move |fold| (client, fold)));
            let error: f64 = folds.map(|(client, fold)| working.fold(client, fold).error(&everybody)).sum();
            1.0 - population.noise / (error / (panel.total_rows() - panel.columns as f64).max(1.0))
        }
        Some(noise) => {
            let between = dot(&population.spread(), &left.curvature) / panel.total_rows().max(1.0);
            between / (between + noise)
        }
    };
    if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
}

/// Variances of noise: each client's own, and the common one, which counts for as many rows as clients' variances are alike (by moments).
fn noises(working: &Working, left: &Panel, population: &Population, models: &Models) -> (f64, Vec<f64>) {
    if let Some(noise) = left.noise {
        return (NOISE_FREEDOM[1], vec![noise; working.clients]);
    }
    let q = left.random;
    let client = |client: usize| {
        let mut integrated = Integrated::new(q);
        integrated.set(&population.root, left.slab(client), left.moment(client));
        // The trace of the client's hat matrix.
        let used = dot(&integrated.covariance(&population.root), left.slab(client));
        let error: f64 =
            (0..working.folds).map(|fold| working.fold(client, fold).error(models.of(client, Rung::Personal))).sum();
        (error, (left.rows[client] - used).max(0.0))
    };
    let parts: Vec<(f64, f64)> = (0..working.clients).into_par_iter().map(client).collect();
    // Var(s²/σ²) = 2/f + (1 + 2/f)·v, with v the variance of the clients' own σ_i²/σ², 2/v rows' worth.
    let (mut beyond, mut weight) = (0.0, 0.0);
    for &(error, freedom) in parts.iter().filter(|(_, freedom)| *freedom >= 2.0) {
        beyond += freedom * ((error / freedom / population.noise - 1.0).powi(2) - 2.0 / freedom);
        weight += freedom + 2.0;
    }
    let relative = if weight > 0.0 { beyond / weight } else { 0.0 };
    let common = if relative > 0.0 {
        (2.0 / relative + 4.0).clamp(NOISE_FREEDOM[0], NOISE_FREEDOM[1])
    } else {
        NOISE_FREEDOM[1]
    };
    let own = |&(error, freedom): &(f64, f64)| (error + common * population.noise) / (freedom + common);
    (common, parts.iter().map(own).collect())
}

impl Learned {
    /// With the names of the columns whose products are in the model.
    pub(crate) fn with_interactions(mut self, names: Vec<String>) -> Self {
        self.interactions = names;
        self.sentences = sentences::of(&self);
        self
    }

    /// What a client's family is called.
    pub fn number_of(&self, client: &LearnedClient) -> usize {
        self.families[client.family].number
    }

    /// With its families in the order of these numbers, which they have from then on.
    pub(crate) fn renumbered(mut self, numbers: &[usize]) -> Self {
        let mut order: Vec<usize> = (0..numbers.len()).collect();
        order.sort_by_key(|&family| numbers[family]);
        let shuffled = |values: &[f64]| -> Vec<f64> { order.iter().map(|&family| values[family]).collect() };
        let population = &mut self.population;
        population.shares = shuffled(&population.shares);
        population.centres = order.iter().map(|&family| population.centres[family].clone()).collect();
        population.covariances = order.iter().map(|&family| population.covariances[family].clone()).collect();
        for client in &mut self.clients {
            client.responsibilities = shuffled(&client.responsibilities);
            client.family = order.iter().position(|&family| family == client.family).unwrap_or(client.family);
        }
        let named = |&family: &usize| Family { number: numbers[family], ..self.families[family].clone() };
        self.families = order.iter().map(named).collect();
        self.sentences = sentences::of(&self);
        self
    }
}

impl LearnedClient {
    /// The one model that serves it; `None` where the stack does that serves everybody.
    pub fn own_choice(&self) -> Option<Rung> {
        self.service.as_ref().and_then(|service| service.own_choice)
    }

    /// Whether its models stay on its machine.
    pub fn is_elsewhere(&self) -> bool {
        self.served.is_empty()
    }

    /// Without its models.
    pub(crate) fn without_models(&self) -> Self {
        let (personal, alone, served, covariance) = Default::default();
        let Self { rows, family, stability, .. } = *self;
        let (responsibilities, service) = (self.responsibilities.clone(), self.service.clone());
        Self { rows, family, responsibilities, stability, personal, alone, served, service, noise: 0.0, covariance }
    }

    /// What joining does for it; `None` of a client that was added later.
    pub fn verdict(&self) -> Option<Joining> {
        self.service.as_ref().map(Service::verdict)
    }
}

impl Learned {
    /// What does not fit together, as in a file that somebody has changed; `width` is the number of given columns.
    pub(crate) fn check(&self, width: usize) -> Result<(), &'static str> {
        let (basis, population) = (&self.basis, &self.population);
        let (p, q, k) = (basis.kept.len(), basis.random, self.families.len());
        let sound = |holds: bool, fault: &'static str| if holds { Ok(()) } else { Err(fault) };
        let is_column = |column: &usize| *column < width;
        let equations = self.response.equations();
        let in_first = |column: &usize| column * equations < width;
        sound(basis.given == width && q <= p && basis.equations == equations, "the number of columns")?;
        sound(equations > 0 && width.is_multiple_of(equations), "the number of equations")?;
        sound(basis.kept.iter().all(is_column) && basis.intercept.iter().all(in_first), "the columns that are kept")?;
        let lengths = [basis.means.len(), basis.scales.len(), basis.curves.len()];
        sound(lengths == [p; 3] && basis.scales.iter().all(|scale| *scale > 0.0), "the scales of the columns")?;
        let (centres, covariances) = (&population.centres, &population.covariances);
        let shapes = centres.iter().all(|centre| centre.len() == p) && covariances.iter().all(|one| one.len() == p * p);
        sound(
            k > 0 && [centres.len(), covariances.len(), population.shares.len()] == [k; 3] && shapes,
            "the families",
        )?;
        sound(population.root.len() == q * q && self.spread.len() == width * width, "the spread of clients")?;
        sound(self.families.iter().all(|family| family.covariance.len() == width * width), "a family's covariance")?;
        let client = |client: &LearnedClient| {
            let models = [&client.personal, &client.alone, &client.served].map(Vec::len);
            let is_whole = models == [width; 3] && client.covariance.len() == q * (q + 1) / 2;
            let is_nothing = models == [0; 3] && client.covariance.is_empty();
            client.responsibilities.len() == k && client.family < k && (is_whole || is_nothing) && client.noise >= 0.0
        };
        sound(self.clients.iter().all(client), "a client")?;
        sound(self.noise >= 0.0 && self.noise.is_finite(), "the noise")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_that_a_likelihood_rises_by_hand() {
        // χ² of one degree of freedom is above 2.7055 in 10 % of cases, of two above x in exp(−x/2).
        assert!((chance(2.7055, 1) - 0.05).abs() < 1e-5);
        assert!((chance(2.7055, 2) - (0.05 + 0.25 * (-2.7055_f64 / 2.0).exp())).abs() < 1e-5);
        assert_eq!(chance(-1.0, 1), 0.5);
        assert_eq!(chance(9.0, 0), 0.0);
    }

    #[test]
    fn better_over_clients_and_over_folds() {
        let trial = |errors: [[f64; 3]; 4]| {
            let cells =
                errors.map(|folds| folds.into_iter().enumerate().map(|(fold, error)| (fold, 10.0 * error, 10.0)));
            Trial { cells: cells.into_iter().map(Iterator::collect).collect(), deviance: 0.0 }
        };
        let before = trial([[1.0; 3]; 4]);
        assert!(trial([[0.9, 0.8, 0.9], [0.8, 0.9, 0.9], [0.9, 0.7, 0.8], [1.0, 0.8, 0.9]]).is_better_than(&before));
        assert!(!before.is_better_than(&before));
        // All clients gain, in one fold alone.
        assert!(!trial([[0.4, 1.0, 1.1]; 4]).is_better_than(&before));
        // One client gains, in all folds.
        assert!(!trial([[0.4; 3], [1.0; 3], [1.0; 3], [1.1; 3]]).is_better_than(&before));
        // Of one client, folds decide.
        let one = |errors: [f64; 3]| Trial { cells: trial([errors; 4]).cells[..1].to_vec(), deviance: 0.0 };
        assert!(one([0.9, 0.8, 0.9]).is_better_than(&one([1.0; 3])));
        assert!(!one([0.4, 1.0, 1.1]).is_better_than(&one([1.0; 3])));
    }
}
