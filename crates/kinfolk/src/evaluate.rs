//! Honest scores: every client with the model it was given, on its own held-out rows.
//!
//! Clients that took part are assigned on their training rows. Unseen clients choose by the smallest loss.
//! Scoring goes through the federation like everything else, in a phase of its own that costs a method nothing.

use crate::clustering::quality::{adjusted_rand_index, assign, misclustering};
use crate::data::Population;
use crate::error::Result;
use crate::federation::{
    Ask, Federation, Gather, Order, OrderAnswers, Params, Phase, Portion, Recipients, Split, Subject, Work,
};
use crate::linalg::distance;
use crate::methods::{Outcome, Serving};
use crate::models::Metric;
use crate::report::MetricSummary;
use crate::report::summary::ClientScore;
use std::collections::BTreeMap;

/// How the clients of a federation fare.
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// One entry a client.
    pub clients: Vec<Served>,
    /// Over the clients.
    pub metric: Option<MetricSummary>,
    /// Mean loss of the clients' own models on the rows that assign them.
    pub loss: Option<f64>,
    /// Squared distance of the clients' models to the planted ones, where those are known: see [`normalised_mse`].
    pub normalised_mse: Option<f64>,
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

/// Scores the clients that took part.
pub fn seen(
    outcome: &Outcome,
    federation: &mut dyn Federation,
    metric: Metric,
    assign_on: Split,
) -> Result<Evaluation> {
    let count = federation.clients().len();
    let everything: Vec<usize> = (0..outcome.models.len()).collect();
    let mut orders = Vec::new();
    match &outcome.serving {
        Serving::Choose => orders.push(score(Recipients::All, Subject::Models(everything), assign_on)),
        Serving::Given(given) => {
            let given_to = |cluster: Option<usize>| {
                Recipients::list((0..count as u32).filter(|&client| given[client as usize] == cluster).collect())
            };
            for cluster in everything.iter().copied() {
                orders.push(score(given_to(Some(cluster)), Subject::Models(vec![cluster]), assign_on));
            }
            orders.push(score(given_to(None), Subject::Models(everything.clone()), assign_on));
            orders.push(Order { to: Recipients::All, work: Work::Losses { of: everything, on: Portion::All } });
        }
        Serving::Own(stamps) => {
            let mut ages: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
            for (client, &stamp) in (0u32..).zip(stamps).filter(|(_, stamp)| **stamp > 0) {
                ages.entry(stamp).or_default().push(client);
            }
            orders.extend(
                ages.into_iter()
                    .map(|(stamp, clients)| score(Recipients::list(clients), Subject::Own { stamp }, assign_on)),
            );
        }
    }
    let ask = Ask { phase: Phase::Evaluate, models: outcome.models.clone(), orders, gather: Gather::Each };
    let answers = federation.ask(&ask)?;
    let mut clients = vec![Served::default(); count];
    for (order, answer) in ask.orders.iter().zip(&answers.orders) {
        match (&order.work, &outcome.serving) {
            (Work::Losses { .. }, Serving::Given(given)) => {
                for (place, &client) in answer.clients.iter().enumerate() {
                    if let Some(own) = given[client as usize] {
                        clients[client as usize].margin = margin(losses(answer, place), own);
                        clients[client as usize].cluster = Some(own);
                    }
                }
            }
            (_, serving) => {
                let free = |client: &u32| match serving {
                    Serving::Choose => true,
                    Serving::Given(given) => given[*client as usize].is_none(),
                    Serving::Own(_) => false,
                };
                let chose = outcome.clustered && answer.clients.iter().all(free);
                take_scores(answer, metric, chose, &mut clients);
            }
        }
    }
    Ok(summarise(clients, metric, outcome))
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
    let answers = federation.ask(&Ask {
        phase: Phase::Evaluate,
        models: outcome.models.clone(),
        orders: vec![score(Recipients::All, subject, assign_on)],
        gather: Gather::Each,
    })?;
    let mut clients = vec![Served::default(); federation.clients().len()];
    take_scores(&answers.orders[0], metric, outcome.clustered, &mut clients);
    Ok(Some(summarise(clients, metric, outcome)))
}

fn score(to: Recipients, with: Subject, assign_on: Split) -> Order {
    Order { to, work: Work::Score { with, assign_on } }
}

fn losses(answer: &OrderAnswers, place: usize) -> &[f64] {
    let each = answer.losses_each();
    &answer.losses[place * each..(place + 1) * each]
}

fn margin(losses: &[f64], own: usize) -> Option<f64> {
    let other = losses.iter().enumerate().filter(|(model, _)| *model != own).map(|(_, &loss)| loss).reduce(f64::min)?;
    let margin = other - losses[own];
    margin.is_finite().then_some(margin)
}

/// `chose` says that each client chose its cluster by its losses.
fn take_scores(answer: &OrderAnswers, metric: Metric, chose: bool, clients: &mut [Served]) {
    for (place, (&client, score)) in answer.clients.iter().zip(&answer.scores).enumerate() {
        let served = &mut clients[client as usize];
        let choice = answer.choices[place] as usize;
        served.loss = Some(losses(answer, place)[choice]);
        if chose {
            served.cluster = Some(choice);
            served.margin = margin(losses(answer, place), choice);
        }
        served.score = (score.rows > 0).then(|| ClientScore {
            sum: metric.sum(score),
            rows: score.rows as usize,
            cluster: served.cluster,
        });
    }
}

fn summarise(mut clients: Vec<Served>, metric: Metric, outcome: &Outcome) -> Evaluation {
    for served in &mut clients {
        if let Some(score) = &mut served.score {
            score.cluster = served.cluster;
        }
    }
    let scores: Vec<ClientScore> = clients.iter().filter_map(|served| served.score).collect();
    let clusters = if outcome.clustered { outcome.models.len() } else { 0 };
    let losses: Vec<f64> = clients.iter().filter_map(|served| served.loss).collect();
    let loss = (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64);
    let metric = MetricSummary::of(metric.name(), &scores, clusters);
    Evaluation { loss, metric, clients, normalised_mse: None }
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
    let truth: Option<Vec<usize>> = population.clients.iter().map(|client| client.truth).collect();
    let found: Option<Vec<usize>> = evaluation.clients.iter().map(|served| served.cluster).collect();
    if let (Some(truth), Some(found), true) = (truth, found, outcome.clustered) {
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

/// (1/m) Σ_i ‖θ̂_i − θ*_(i)‖² / ‖θ*_(i)‖² over the clients that are served, each with the model that serves it.
/// `own` holds the models that clients keep.
pub fn normalised_mse(
    outcome: &Outcome,
    evaluation: &Evaluation,
    population: &Population,
    own: &BTreeMap<&str, Vec<f64>>,
) -> Option<f64> {
    let (mut total, mut served) = (0.0, 0);
    for (client, fares) in population.clients.iter().zip(&evaluation.clients) {
        let model = match (&outcome.serving, outcome.clustered) {
            (Serving::Own(_), _) => own.get(client.id.as_str()),
            (_, true) => fares.cluster.map(|cluster| &*outcome.models[cluster]),
            (_, false) => outcome.models.first().map(|model| &**model),
        };
        let truth = population.true_parameters.get(client.truth?)?;
        let Some(model) = model else { continue };
        let size: f64 = truth.iter().map(|value| value * value).sum();
        if model.len() != truth.len() || size == 0.0 {
            return None;
        }
        total += distance(model, truth).powi(2) / size;
        served += 1;
    }
    (served > 0).then(|| total / served as f64)
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
    use crate::data::{Client, DataShape, Features, Shard, Targets};
    use std::sync::Arc;

    #[test]
    fn errors_are_relative_to_the_planted_parameters_by_hand() {
        let rows = Shard::new(Features::F64 { columns: 2, values: vec![0.0; 2] }, Targets::Values(vec![0.0])).unwrap();
        let client = |id: &str, truth| Client {
            id: id.into(),
            train: rows.clone(),
            test: rows.clone(),
            group: None,
            truth: Some(truth),
        };
        let population = Population {
            clients: vec![client("a", 0), client("b", 1)],
            unseen: Vec::new(),
            true_clusters: Some(2),
            true_parameters: vec![vec![3.0, 4.0], vec![0.0, 2.0]],
            shape: DataShape { columns: 2, classes: 0 },
        };
        let outcome = |serving, clustered| Outcome {
            models: vec![Arc::new(vec![3.0, 3.0]), Arc::new(vec![1.0, 2.0])],
            clustered,
            serving,
            candidates: Vec::new(),
            converged: true,
            notes: Vec::new(),
            extra: BTreeMap::new(),
        };
        let served = |cluster| Served { cluster, ..Served::default() };
        let evaluation = |a, b| Evaluation { clients: vec![served(a), served(b)], ..Evaluation::default() };
        let error = |serving, clustered, a, b| {
            let own = BTreeMap::from([("b", vec![0.0, 1.0])]);
            normalised_mse(&outcome(serving, clustered), &evaluation(a, b), &population, &own)
        };
        for (found, wanted) in [
            (error(Serving::Choose, true, Some(0), Some(1)), (1.0 / 25.0 + 1.0 / 4.0) / 2.0),
            (error(Serving::Choose, true, None, Some(1)), 0.25),
            (error(Serving::Choose, false, None, None), (1.0 / 25.0 + 10.0 / 4.0) / 2.0),
            (error(Serving::Own(vec![0, 1]), false, None, None), 0.25),
        ] {
            assert!((found.unwrap() - wanted).abs() < 1e-14, "{found:?}, want {wanted}");
        }
    }
}
