//! Honest scores: every client with the model it was given, on its own held-out rows.
//!
//! Clients that took part are assigned on their training rows. Unseen clients choose by the smallest loss.
//! Scoring goes through the federation like everything else, in a phase of its own that costs a method nothing.

pub mod mixtures;

use crate::clustering::quality::{adjusted_rand_index, assign, misclustering};
use crate::data::{Client, Population};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::work::{Evaluate, Evaluated, Losses, Subject};
use crate::federation::{Answered, Ask, ClientInfo, Federation, Gather, Params, Phase, Recipients};
use crate::linalg::{distance, norm};
use crate::methods::room::median_loss;
use crate::methods::{Outcome, Serving, pooled_minimiser};
use crate::models::{Metric, Model};
use crate::report::summary::{ClientScore, is_higher_better, mean, standard_deviation};
use crate::report::{MetricSummary, PersonalRecord};
use crate::training::{Portion, Split};
use std::collections::BTreeMap;

/// How the clients of a federation fare.
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// One entry a client.
    pub clients: Vec<Served>,
    /// Over the clients, those left out that were planted as outliers.
    pub metric: Option<MetricSummary>,
    /// Mean loss of the clients' own models on the rows that assign them.
    pub loss: Option<f64>,
    /// Squared distance of the clients' models to the planted ones, where those are known: see [`normalised_mse`].
    pub normalised_mse: Option<f64>,
    /// What a personal model is to each client, in the end and for methods that have them in clusters.
    pub personal: Vec<PersonalRecord>,
    /// Numbers for the summary: see [`personal_errors`] and [`beside_baselines`].
    pub extra: BTreeMap<String, f64>,
}

impl Evaluation {
    /// The middle of the clients' losses; `None` where nobody has one.
    pub fn median_loss(&self) -> Option<f64> {
        median_loss(&self.clients.iter().filter_map(|served| served.loss).collect::<Vec<f64>>())
    }
}

/// How one client fares.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Served {
    /// Which model serves it.
    pub cluster: Option<usize>,
    /// Loss of the best other model minus the loss of its own, on the rows that assign it.
    pub margin: Option<f64>,
    /// Loss of its model on the rows that assign it.
    pub loss: Option<f64>,
    /// Its metric on held-out rows.
    pub score: Option<ClientScore>,
}

/// Scores the clients that took part. Those marked in `outliers` (empty: nobody) are not in the averages of the metric.
pub fn seen(
    outcome: &Outcome,
    federation: &mut dyn Federation,
    metric: Metric,
    assign_on: Split,
    outliers: &[bool],
) -> Result<Evaluation> {
    let count = federation.clients().len();
    let everything: Vec<usize> = (0..outcome.models.len()).collect();
    let mut ask = Ask::new(Phase::Evaluate, with_drafts(outcome), Gather::Each);
    let mut scores = Vec::new();
    let mut score = |to: Recipients, with: Subject| scores.push(ask.order(to, Evaluate { with, assign_on }));
    let mut compared = None;
    match &outcome.serving {
        Serving::Choose if everything.is_empty() => {}
        Serving::Choose => score(Recipients::All, Subject::Models(everything)),
        Serving::Given(given) => {
            let given_to = |cluster: Option<usize>| {
                Recipients::list((0..count as u32).filter(|&client| given[client as usize] == cluster).collect())
            };
            for cluster in everything.iter().copied() {
                score(given_to(Some(cluster)), Subject::Models(vec![cluster]));
            }
            // Where there is no model at all there is none to choose either.
            if !everything.is_empty() {
                score(given_to(None), Subject::Models(everything.clone()));
            }
            // How much better another cluster's model would be; nobody asks that of models that are no clusters'.
            if outcome.clustered && !everything.is_empty() {
                let of_all = Losses { of: everything, on: Portion::All };
                compared = Some((given, ask.order(Recipients::All, of_all)));
            }
        }
        Serving::Own { stamps, .. } => {
            own_subjects(outcome, stamps).into_iter().for_each(|(to, subject)| score(to, subject));
        }
    }
    let answers = federation.ask(&ask)?;
    let mut clients = vec![Served::default(); count];
    let scores: Vec<Answered<Evaluated>> = scores.into_iter().map(|order| answers.of(order)).collect();
    for answer in &scores {
        let free = |client: &u32| match &outcome.serving {
            Serving::Choose => true,
            Serving::Given(given) => given[*client as usize].is_none(),
            Serving::Own { .. } => false,
        };
        let chose = outcome.clustered && answer.clients.iter().all(free);
        take_scores(answer, metric, chose, &mut clients);
    }
    if let Some((given, order)) = compared {
        for (client, losses) in answers.of(order).each() {
            if let Some(own) = given[client as usize] {
                clients[client as usize].margin = margin(&losses, own);
                clients[client as usize].cluster = Some(own);
            }
        }
    }
    check_counted(&scores, metric, federation.clients(), &clients)?;
    if let Serving::Own { clusters: Some(clusters), .. } = &outcome.serving {
        clients.iter_mut().zip(clusters).for_each(|(served, &cluster)| served.cluster = Some(cluster));
    }
    Ok(summarise(clients, metric, outcome, outliers))
}

/// Clients that keep a model, by the stamp it carries.
fn by_stamp(stamps: &[u64]) -> BTreeMap<u64, Recipients> {
    let mut ages: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (client, &stamp) in (0u32..).zip(stamps).filter(|(_, stamp)| **stamp > 0) {
        ages.entry(stamp).or_default().push(client);
    }
    ages.into_iter().map(|(stamp, clients)| (stamp, Recipients::list(clients))).collect()
}

/// A method's models, and behind them what it would hand to its clients.
fn with_drafts(outcome: &Outcome) -> Vec<Params> {
    let drafts = outcome.mixture.iter().flat_map(|mixture| mixture.drafts.iter().flatten());
    outcome.models.iter().chain(drafts).cloned().collect()
}

/// What clients with models of their own are judged by: what they keep, or what they would be handed now.
fn own_subjects(outcome: &Outcome, stamps: &[u64]) -> Vec<(Recipients, Subject)> {
    let drafts = outcome.mixture.as_ref().map_or(&[][..], |mixture| &mixture.drafts);
    if drafts.is_empty() {
        return by_stamp(stamps).into_iter().map(|(stamp, to)| (to, Subject::Own { stamp })).collect();
    }
    let numbered = (0u32..).zip(drafts).filter(|(_, draft)| draft.is_some()).zip(outcome.models.len()..);
    let completed = |((client, _), model): ((u32, &Option<Params>), usize)| {
        (Recipients::list(vec![client]), Subject::Completed { model, stamp: stamps[client as usize] })
    };
    numbered.map(completed).collect()
}

/// Scores clients met only after training. `None` when the method has no model for them.
pub fn unseen(
    outcome: &Outcome,
    federation: &mut dyn Federation,
    metric: Metric,
    assign_on: Split,
) -> Result<Option<Evaluation>> {
    if outcome.models.is_empty() {
        return Ok(None);
    }
    let subject = Subject::Models((0..outcome.models.len()).collect());
    let mut ask = Ask::new(Phase::Evaluate, outcome.models.clone(), Gather::Each);
    let order = ask.order(Recipients::All, Evaluate { with: subject, assign_on });
    let answers = federation.ask(&ask)?;
    let answer = answers.of(order);
    let mut clients = vec![Served::default(); federation.clients().len()];
    take_scores(&answer, metric, outcome.clustered, &mut clients);
    check_counted(&[answer], metric, federation.clients(), &clients)?;
    Ok(Some(summarise(clients, metric, outcome, &[])))
}

fn margin(losses: &[f64], own: usize) -> Option<f64> {
    let other = losses.iter().enumerate().filter(|(model, _)| *model != own).map(|(_, &loss)| loss).reduce(f64::min)?;
    let margin = other - losses[own];
    margin.is_finite().then_some(margin)
}

/// `chose` says that each client chose its cluster by its losses.
fn take_scores(answer: &Answered<Evaluated>, metric: Metric, chose: bool, clients: &mut [Served]) {
    for (client, Evaluated { choice, losses, score }) in answer.each() {
        let served = &mut clients[client as usize];
        let choice = choice as usize;
        served.loss = Some(losses[choice]);
        if chose {
            served.cluster = Some(choice);
            served.margin = margin(&losses, choice);
        }
        let sum = metric.sum(&score).filter(|_| score.rows > 0);
        served.score = sum.map(|sum| ClientScore { sum, rows: score.rows as usize, cluster: served.cluster });
    }
}

/// Refuses a metric by which nobody can be judged. A single client that does not count what it takes is not scored.
fn check_counted(
    answers: &[Answered<Evaluated>],
    metric: Metric,
    infos: &[ClientInfo],
    clients: &[Served],
) -> Result<()> {
    let mut scores = answers.iter().flat_map(|answer| answer.each());
    let uncounted = scores.find(|(_, told)| told.score.rows > 0 && metric.sum(&told.score).is_none());
    match uncounted {
        Some((client, _)) if clients.iter().all(|served| served.score.is_none()) => {
            let (id, name) = (&infos[client as usize].id, metric.name());
            let message = format!("client {id}: score: no hits, which metric = \"{name}\" counts");
            Err(Error::new(ErrorKind::Client, message).hint("count the rows that are right, or use metric = \"loss\""))
        }
        _ => Ok(()),
    }
}

/// Whether the client in this place was not planted as an outlier; nobody was where the list is empty.
fn is_good(outliers: &[bool], place: usize) -> bool {
    !outliers.get(place).is_some_and(|&outlier| outlier)
}

fn summarise(mut clients: Vec<Served>, metric: Metric, outcome: &Outcome, outliers: &[bool]) -> Evaluation {
    for served in &mut clients {
        if let Some(score) = &mut served.score {
            score.cluster = served.cluster;
        }
    }
    let good = clients.iter().enumerate().filter(|(place, _)| is_good(outliers, *place));
    let scores: Vec<ClientScore> = good.filter_map(|(_, served)| served.score).collect();
    let clusters = if outcome.clustered { outcome.models.len() } else { 0 };
    let losses: Vec<f64> = clients.iter().filter_map(|served| served.loss).collect();
    let loss = (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64);
    let metric = MetricSummary::of(metric.name(), &scores, clusters);
    Evaluation { loss, metric, clients, ..Evaluation::default() }
}

/// How the clusters found compare with those planted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgainstTruth {
    /// Share of clients outside the best matching.
    pub misclustering: Option<f64>,
    /// Adjusted Rand index.
    pub ari: Option<f64>,
    /// Mean distance to the true parameters under the best matching.
    pub parameter_error: Option<f64>,
    /// More about the parameters, by name.
    pub extra: BTreeMap<String, f64>,
}

/// How far models are from the planted parameters.
type Distance = fn(&[Params], &[Vec<f64>]) -> f64;

/// Compares an outcome with what was planted.
pub fn against_truth(outcome: &Outcome, evaluation: &Evaluation, population: &Population) -> AgainstTruth {
    let mut result = AgainstTruth::default();
    // A client that cannot be reached any more is in no cluster, right or wrong.
    let reached = |served: &Served| served.cluster.is_some() || served.loss.is_some();
    let clients = || population.clients.iter().zip(&evaluation.clients).filter(|(_, served)| reached(served));
    let truth: Option<Vec<usize>> = clients().map(|(client, _)| client.truth).collect();
    let found: Option<Vec<usize>> = clients().map(|(_, served)| served.cluster).collect();
    // Clusters that a method was told are not its finding.
    let told = matches!(outcome.serving, Serving::Own { clusters: Some(_), .. });
    if let (Some(truth), Some(found), true) = (truth, found, outcome.clustered && !told) {
        result.misclustering = Some(misclustering(&found, &truth));
        result.ari = Some(adjusted_rand_index(&found, &truth));
    }
    let planted = &population.true_parameters;
    let comparable = |models: &[Params]| {
        !planted.is_empty()
            && models.len() == planted.len()
            && models.iter().zip(planted).all(|(m, p)| m.len() == p.len())
    };
    if comparable(&outcome.models) {
        result.parameter_error = Some(matched_distance(&outcome.models, planted));
        result.extra.insert("parameter_error_nearest".into(), nearest_distance(&outcome.models, planted));
    }
    let measures: [(&str, Distance); 2] =
        [("parameter_error_best", matched_distance), ("parameter_error_nearest_best", nearest_distance)];
    for (name, distance) in measures {
        let candidates = outcome.candidates.iter().filter(|models| comparable(models));
        let best = candidates.map(|models| distance(models, planted)).fold(f64::INFINITY, f64::min);
        if best.is_finite() {
            result.extra.insert(name.into(), best);
        }
    }
    result
}

/// Models that clients keep, by the clients' ids.
pub type OwnModels<'a> = BTreeMap<&'a str, Vec<f64>>;

/// For every client that is served, ‖θ̂_i − θ*_i‖ of the model that serves it and ‖θ*_i‖ of the parameters its rows were
/// drawn from. `None` where those are not known for everybody, or are no parameters of this model.
fn distances_to_planted(
    outcome: &Outcome,
    evaluation: &Evaluation,
    population: &Population,
    own: &OwnModels,
) -> Option<Vec<(f64, f64)>> {
    let mut distances = Vec::new();
    for (place, (client, fares)) in population.clients.iter().zip(&evaluation.clients).enumerate() {
        let model = match (&outcome.serving, outcome.clustered) {
            (Serving::Own { .. }, _) => own.get(client.id.as_str()),
            (_, true) => fares.cluster.map(|cluster| &*outcome.models[cluster]),
            (_, false) => outcome.models.first().map(|model| &**model),
        };
        let planted = match population.client_parameters.get(place) {
            Some(planted) => planted,
            None => population.true_parameters.get(client.truth?)?,
        };
        let Some(model) = model else { continue };
        if model.len() != planted.len() {
            return None;
        }
        distances.push((distance(model, planted), norm(planted)));
    }
    (!distances.is_empty()).then_some(distances)
}

/// (1/m) Σ_i ‖θ̂_i − θ*_i‖² / ‖θ*_i‖² over the clients that are served, each with the model that serves it, against the
/// parameters of its own where clients have them, otherwise of its cluster.
pub fn normalised_mse(
    outcome: &Outcome,
    evaluation: &Evaluation,
    population: &Population,
    own: &OwnModels,
) -> Option<f64> {
    let distances = distances_to_planted(outcome, evaluation, population, own)?;
    if distances.iter().any(|(_, size)| *size == 0.0) {
        return None;
    }
    Some(distances.iter().map(|(error, size)| (error / size).powi(2)).sum::<f64>() / distances.len() as f64)
}

/// Where every client has parameters of its own: how far the models that serve clients are from them, as a distance
/// (mean, deviation and largest over clients) and squared (mean and largest).
pub fn personal_errors(
    outcome: &Outcome,
    evaluation: &Evaluation,
    population: &Population,
    own: &OwnModels,
) -> BTreeMap<String, f64> {
    if population.client_parameters.is_empty() {
        return BTreeMap::new();
    }
    let Some(distances) = distances_to_planted(outcome, evaluation, population, own) else {
        return BTreeMap::new();
    };
    let errors: Vec<f64> = distances.iter().map(|(error, _)| *error).collect();
    let squares: Vec<f64> = errors.iter().map(|error| error * error).collect();
    let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let numbers = [
        ("personal_error", Some(mean(&errors))),
        ("personal_error_sd", standard_deviation(&errors)),
        ("personal_error_max", Some(largest(&errors))),
        ("personal_error_squared", Some(mean(&squares))),
        ("personal_error_squared_max", Some(largest(&squares))),
    ];
    numbers.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
}

/// What other models would give the clients on the same held-out rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Baselines {
    /// Every client's metric with the minimiser of its own loss.
    pub local: Vec<Option<f64>>,
    /// Every client's metric with the one model.
    pub global: Vec<Option<f64>>,
}

/// The minimiser of the pooled loss of all clients' rows, for models that have one.
pub fn single_model(federation: &mut dyn Federation, model: &dyn Model) -> Result<Option<Params>> {
    if model.has_minimiser() { pooled_minimiser(federation, model) } else { Ok(None) }
}

/// Scores every client on its own, where the model has a minimiser, and with one model for everybody.
pub fn baselines(
    federation: &mut dyn Federation,
    model: &dyn Model,
    metric: Metric,
    single: Option<Params>,
) -> Result<Baselines> {
    let mut metrics = |subject: Option<Subject>| -> Result<Vec<Option<f64>>> {
        let mut clients = vec![Served::default(); federation.clients().len()];
        if let Some(subject) = subject {
            let mut ask = Ask::new(Phase::Evaluate, single.iter().cloned().collect(), Gather::Each);
            let order = ask.order(Recipients::All, Evaluate { with: subject, assign_on: Split::Train });
            let answers = federation.ask(&ask)?;
            let answer = answers.of(order);
            take_scores(&answer, metric, false, &mut clients);
            check_counted(&[answer], metric, federation.clients(), &clients)?;
        }
        Ok(clients.iter().map(|served| served.score.and_then(|score| score.mean())).collect())
    };
    Ok(Baselines {
        local: metrics(model.has_minimiser().then_some(Subject::Alone))?,
        global: metrics(single.is_some().then(|| Subject::Models(vec![0])))?,
    })
}

/// What a personal model is beside its cluster's and the mean of all, and beside what the client would have otherwise.
/// Empty for methods without personal models in clusters.
pub fn personal_records(
    outcome: &Outcome,
    population: &Population,
    own: &OwnModels,
    baselines: &Baselines,
) -> Vec<PersonalRecord> {
    let Serving::Own { clusters: Some(clusters), .. } = &outcome.serving else { return Vec::new() };
    let record = |(place, client): (usize, &Client)| {
        let model = own.get(client.id.as_str());
        let apart = |other: Option<&Params>| Some(distance(model?, other?));
        PersonalRecord {
            model_norm: model.map(|model| norm(model)),
            distance_to_cluster: apart(clusters.get(place).and_then(|&cluster| outcome.models.get(cluster))),
            distance_to_global: apart(outcome.global.as_ref()),
            metric_local: baselines.local.get(place).copied().flatten(),
            metric_global: baselines.global.get(place).copied().flatten(),
        }
    };
    population.clients.iter().enumerate().map(record).collect()
}

/// The baselines' means over clients, and the shares of clients that are no worse off with their own model; planted
/// outliers are left out.
pub fn beside_baselines(
    evaluation: &Evaluation,
    baselines: &Baselines,
    metric: Metric,
    outliers: &[bool],
) -> BTreeMap<String, f64> {
    let mut numbers = BTreeMap::new();
    for (name, others) in [("local", &baselines.local), ("global", &baselines.global)] {
        let good: Vec<(usize, f64)> = (others.iter().enumerate())
            .filter_map(|(place, other)| Some((place, other.filter(|_| is_good(outliers, place))?)))
            .collect();
        let known: Vec<f64> = good.iter().map(|(_, other)| *other).collect();
        let pairs: Vec<(f64, f64)> = (good.iter())
            .filter_map(|(place, other)| Some((evaluation.clients.get(*place)?.score?.mean()?, *other)))
            .collect();
        let no_worse = pairs.iter().filter(|(with, without)| is_no_worse(metric, *with, *without)).count();
        if !known.is_empty() {
            numbers.insert(format!("metric_{name}_mean"), mean(&known));
        }
        if !pairs.is_empty() {
            numbers.insert(format!("no_worse_than_{name}"), no_worse as f64 / pairs.len() as f64);
        }
    }
    numbers
}

/// Whether a metric is at least as good as another, up to rounding: equal models in another order of sums are equal.
fn is_no_worse(metric: Metric, with: f64, without: f64) -> bool {
    let rounding = 1e-9 * without.abs();
    if is_higher_better(metric.name()) { with >= without - rounding } else { with <= without + rounding }
}

/// (1/k) Σ_j ‖θ̂_j − θ*_π(j)‖ under the best one-to-one matching π.
pub fn matched_distance(models: &[Params], planted: &[Vec<f64>]) -> f64 {
    let count = models.len();
    let cost: Vec<f64> = models.iter().flat_map(|model| planted.iter().map(|truth| distance(model, truth))).collect();
    if cost.iter().any(|cost| !cost.is_finite()) {
        return f64::INFINITY;
    }
    let matching = assign(&cost, count, count);
    matching.iter().enumerate().filter_map(|(row, column)| Some(cost[row * count + (*column)?])).sum::<f64>()
        / count as f64
}

/// (1/k) Σ_j min_j' ‖θ̂_j − θ*_j'‖, where two models may sit on one truth.
pub fn nearest_distance(models: &[Params], planted: &[Vec<f64>]) -> f64 {
    let nearest = |model: &Params| planted.iter().map(|truth| distance(model, truth)).fold(f64::INFINITY, f64::min);
    models.iter().map(nearest).sum::<f64>() / models.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DataShape, Features, Shard, Targets};
    use std::sync::Arc;

    fn two_clients(client_parameters: Vec<Vec<f64>>) -> Population {
        let rows = Shard::new(Features::F64 { columns: 2, values: vec![0.0; 2] }, Targets::Values(vec![0.0])).unwrap();
        let client = |id: &str, truth| Client {
            id: id.into(),
            train: rows.clone(),
            test: rows.clone(),
            group: None,
            truth: Some(truth),
        };
        Population {
            clients: vec![client("a", 0), client("b", 1)],
            unseen: Vec::new(),
            true_clusters: Some(2),
            true_parameters: vec![vec![3.0, 4.0], vec![0.0, 2.0]],
            client_parameters,
            shape: DataShape::numbers(2, 0),
            ..Population::default()
        }
    }

    fn outcome(serving: Serving, clustered: bool) -> Outcome {
        Outcome {
            models: vec![Arc::new(vec![3.0, 3.0]), Arc::new(vec![1.0, 2.0])],
            clustered,
            global: Some(Arc::new(vec![2.0, 2.5])),
            serving,
            ..Outcome::default()
        }
    }

    fn served(a: Option<usize>, b: Option<usize>) -> Evaluation {
        let clients = [a, b].map(|cluster| Served { cluster, ..Served::default() }).to_vec();
        Evaluation { clients, ..Evaluation::default() }
    }

    fn personal(stamps: Vec<u64>) -> Serving {
        Serving::Own { stamps, clusters: Some(vec![0, 1]) }
    }

    #[test]
    fn errors_are_relative_to_the_planted_parameters_by_hand() {
        let error = |serving, clustered, a, b| {
            let own = BTreeMap::from([("b", vec![0.0, 1.0])]);
            normalised_mse(&outcome(serving, clustered), &served(a, b), &two_clients(Vec::new()), &own)
        };
        let own = Serving::Own { stamps: vec![0, 1], clusters: None };
        for (found, wanted) in [
            (error(Serving::Choose, true, Some(0), Some(1)), (1.0 / 25.0 + 1.0 / 4.0) / 2.0),
            (error(Serving::Choose, true, None, Some(1)), 0.25),
            (error(Serving::Choose, false, None, None), (1.0 / 25.0 + 10.0 / 4.0) / 2.0),
            (error(own, false, None, None), 0.25),
        ] {
            assert!((found.unwrap() - wanted).abs() < 1e-14, "{found:?}, want {wanted}");
        }
    }

    #[test]
    fn errors_of_personal_models_by_hand() {
        let population = two_clients(vec![vec![0.0, 3.0], vec![1.0, 1.0]]);
        let own = BTreeMap::from([("a", vec![4.0, 0.0]), ("b", vec![1.0, 2.0])]);
        let errors = |outcome: Outcome, population: &Population| {
            personal_errors(&outcome, &served(Some(0), Some(1)), population, &own)
        };
        // Distances are 5 and 1.
        let found = errors(outcome(personal(vec![1, 1]), true), &population);
        let wanted = [
            ("personal_error", 3.0),
            ("personal_error_max", 5.0),
            ("personal_error_sd", 8f64.sqrt()),
            ("personal_error_squared", 13.0),
            ("personal_error_squared_max", 25.0),
        ];
        assert_eq!(found, wanted.map(|(name, value)| (name.to_string(), value)).into());
        // The clusters' models are 3 and 1 away, the first of them 3 and √8.
        assert_eq!(errors(outcome(Serving::Choose, true), &population)["personal_error"], 2.0);
        let one = errors(outcome(Serving::Choose, false), &population)["personal_error_squared"];
        assert!((one - 8.5).abs() < 1e-14);
        let relative = normalised_mse(&outcome(personal(vec![1, 1]), true), &served(None, None), &population, &own);
        assert!((relative.unwrap() - (25.0 / 9.0 + 0.5) / 2.0).abs() < 1e-14);
        let wider = two_clients(vec![vec![0.0; 3]; 2]);
        assert!(errors(outcome(Serving::Choose, true), &wider).is_empty());
        assert!(errors(outcome(Serving::Choose, true), &two_clients(Vec::new())).is_empty());
    }

    #[test]
    fn planted_outliers_are_served_but_not_averaged() {
        let score = |sum| Some(ClientScore { sum, rows: 2, cluster: None });
        let clients = [1.0, 2.0, 0.0].map(|sum| Served { score: score(sum), loss: Some(sum), ..Served::default() });
        let mean = |outliers: &[bool]| {
            let found = summarise(clients.to_vec(), Metric::Accuracy, &outcome(Serving::Choose, false), outliers);
            assert_eq!((found.clients.len(), found.loss), (3, Some(1.0)));
            found.metric.unwrap().mean
        };
        assert_eq!((mean(&[]), mean(&[false, false, true])), (0.5, 0.75));
    }

    #[test]
    fn personal_models_beside_others_by_hand() {
        let baselines = Baselines { local: vec![Some(0.5), None], global: vec![Some(0.25), Some(0.75)] };
        let own = BTreeMap::from([("a", vec![3.0, 0.0])]);
        let outcome = outcome(personal(vec![1, 0]), true);
        let records = personal_records(&outcome, &two_clients(Vec::new()), &own, &baselines);
        let first = PersonalRecord {
            model_norm: Some(3.0),
            distance_to_cluster: Some(3.0),
            distance_to_global: Some(7.25f64.sqrt()),
            metric_local: Some(0.5),
            metric_global: Some(0.25),
        };
        assert_eq!(records, [first, PersonalRecord { metric_global: Some(0.75), ..PersonalRecord::default() }]);
        let scored = |sum| Served { score: Some(ClientScore { sum, rows: 4, cluster: None }), ..Served::default() };
        let evaluation = Evaluation { clients: vec![scored(2.0), scored(2.0)], ..Evaluation::default() };
        let beside = |metric| beside_baselines(&evaluation, &baselines, metric, &[]);
        let wanted = |global: f64| {
            BTreeMap::from([
                ("metric_local_mean".to_string(), 0.5),
                ("metric_global_mean".to_string(), 0.5),
                ("no_worse_than_local".to_string(), 1.0),
                ("no_worse_than_global".to_string(), global),
            ])
        };
        // Both score 0.5: above 0.25 and below 0.75.
        assert_eq!(beside(Metric::Accuracy), wanted(0.5));
        assert_eq!(beside(Metric::LogLoss), wanted(0.5));
        let without_second = beside_baselines(&evaluation, &baselines, Metric::Accuracy, &[false, true]);
        assert_eq!((without_second["metric_global_mean"], without_second["no_worse_than_global"]), (0.25, 1.0));
        assert!(is_no_worse(Metric::LogLoss, 0.5 + 1e-12, 0.5) && !is_no_worse(Metric::LogLoss, 0.6, 0.5));
        assert!(is_no_worse(Metric::Accuracy, 0.6, 0.5) && !is_no_worse(Metric::Accuracy, 0.4, 0.5));
    }
}
