//! Scores: every client with its model, on its own held-out rows.
//!
//! Clients that took part are assigned on their training rows; unseen clients choose by the smallest loss. Scoring goes
//! through the federation like everything else, in a phase of its own that is not counted as the method's traffic.

use super::*;
use crate::aggregate::Weight;
use crate::error::{Error, ErrorKind};
use crate::federation::server::ledger::few_of;
use crate::federation::work::{Evaluated, Losses, Scored};
use crate::federation::{Answered, By, ClientInfo, Handle};
use crate::models::first_smallest;
use crate::record::MetricSummary;
use crate::record::summary::ClientScore;
use crate::training::{Portion, Split};
use std::collections::BTreeSet;

/// The scores of a federation's clients.
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// One entry per client.
    pub clients: Vec<Served>,
    /// Over the clients, without planted outliers.
    pub metric: Option<MetricSummary>,
    /// Mean loss of the clients' own models on the rows that assign them.
    pub loss: Option<f64>,
    /// Number of clients in every cluster, where only sums are told of clients.
    pub sizes: Option<Vec<usize>>,
}

/// The score of one client.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Served {
    /// Which model serves it.
    pub cluster: Option<usize>,
    /// Loss of the best other model minus the loss of its own, on the rows that assign it, where models are compared.
    pub margin: Option<f64>,
    /// Loss of its model on the rows that assign it.
    pub loss: Option<f64>,
    /// Its metric on held-out rows.
    pub score: Option<ClientScore>,
}

impl Served {
    /// Its metric over its held-out rows.
    pub(crate) fn mean(&self) -> Option<f64> {
        self.score.and_then(|score| score.mean())
    }
}

/// Scores the clients that took part; where models are to be `compare`d, with margins, which takes the losses of all. Those marked in `outliers` (empty: nobody) are left out of the metric's averages.
pub fn seen(
    outcome: &Outcome,
    federation: &mut dyn Federation,
    metric: Metric,
    assign_on: Split,
    outliers: &[bool],
    compare: bool,
) -> Result<Evaluation> {
    if federation.is_sealed() {
        return seen_together(outcome, federation, metric, assign_on, outliers);
    }
    let count = federation.clients().len();
    let everything: Vec<usize> = (0..outcome.models.len()).collect();
    let mut ask = Ask::new(Phase::Evaluate, with_drafts(outcome), Gather::Each);
    let mut scores = Vec::new();
    let mut score = |to: Recipients, with: Subject| scores.push(ask.order(to, Evaluate { with, assign_on, compare }));
    let mut compared = None;
    match &outcome.serving {
        Serving::Choose if everything.is_empty() => {}
        Serving::Choose => score(Recipients::All, Subject::Models(everything)),
        Serving::Given(given) => {
            for cluster in everything.iter().copied() {
                score(Recipients::list(given.members(cluster)), Subject::Models(vec![cluster]));
            }
            if !everything.is_empty() {
                score(Recipients::list(given.unassigned()), Subject::Models(everything.clone()));
            }
            if compare && outcome.clustered && !everything.is_empty() {
                let of_all = Losses { of: everything, on: Portion::All };
                compared = Some((given, ask.order(Recipients::All, of_all)));
            }
        }
        Serving::Mixed { shares } => {
            for (client, shares) in (0u32..).zip(shares) {
                let with = Subject::Mixture { models: everything.clone(), shares: shares.clone() };
                score(Recipients::list(vec![client]), with);
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
            Serving::Given(given) => given.of(*client).is_none(),
            Serving::Mixed { .. } | Serving::Own { .. } => false,
        };
        let chose = outcome.clustered && answer.clients.iter().all(free);
        take_scores(answer, metric, chose, &mut clients);
    }
    if let Serving::Given(given) = &outcome.serving
        && outcome.clustered
    {
        let assigned = clients.iter_mut().zip(given.each()).filter(|(served, _)| served.loss.is_some());
        assigned.for_each(|(served, &cluster)| served.cluster = cluster.or(served.cluster));
    }
    if let Some((given, order)) = compared {
        for (client, losses) in answers.of(order).each() {
            if let Some(own) = given.of(client) {
                clients[client as usize].margin = margin(&losses, own);
            }
        }
    }
    if let Serving::Mixed { shares } = &outcome.serving {
        for (served, shares) in clients.iter_mut().zip(shares).filter(|(served, _)| served.loss.is_some()) {
            served.cluster = Some(first_smallest(shares.iter().map(|share| -share)).position);
        }
    }
    check_counted(&scores, metric, federation.clients(), &clients)?;
    if let Serving::Own { clusters: Some(clusters), .. } = &outcome.serving {
        clients.iter_mut().zip(clusters.each()).for_each(|(served, &cluster)| served.cluster = cluster);
    }
    Ok(summarise(clients, metric, outcome, outliers))
}

/// The same where only sums are told of clients: nobody's score is known, but those of the clusters.
fn seen_together(
    outcome: &Outcome,
    federation: &mut dyn Federation,
    metric: Metric,
    assign_on: Split,
    outliers: &[bool],
) -> Result<Evaluation> {
    let everything: Vec<usize> = (0..outcome.models.len()).collect();
    let mut ask = Ask::new(Phase::Evaluate, with_drafts(outcome), TOGETHER);
    // Each order with the cluster of every slot.
    let mut scores: Vec<(Vec<Option<usize>>, Handle<Evaluated>)> = Vec::new();
    let count = federation.clients().len() as u32;
    let mut score = |to: Recipients, of: Vec<Option<usize>>, with: Subject| {
        let good = |client: &u32| to.contains(*client) && is_good(outliers, *client as usize);
        let to = Recipients::list((0..count).filter(good).collect());
        scores.push((of, ask.order(to, Evaluate { with, assign_on, compare: false })));
    };
    let each = || everything.iter().copied().map(Some).collect::<Vec<_>>();
    let mut clients = vec![Served::default(); count as usize];
    match &outcome.serving {
        Serving::Choose if everything.is_empty() => {}
        Serving::Choose => score(Recipients::All, each(), Subject::Models(everything.clone())),
        Serving::Given(given) => {
            for &cluster in &everything {
                let to = Recipients::list(given.members(cluster));
                score(to, vec![Some(cluster)], Subject::Models(vec![cluster]));
            }
            if !everything.is_empty() && !given.unassigned().is_empty() {
                score(Recipients::list(given.unassigned()), each(), Subject::Models(everything.clone()));
            }
            clients.iter_mut().zip(given.each()).for_each(|(served, &cluster)| served.cluster = cluster);
        }
        Serving::Mixed { .. } => {
            let message = "mixtures of a client's own are scored one by one, and only sums are told of clients";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Serving::Own { stamps, clusters } => {
            let of = |client: u32| clusters.as_ref().and_then(|clusters| clusters.of(client));
            let known: BTreeSet<Option<usize>> = (0..count).map(of).collect();
            for (to, subject) in own_subjects(outcome, stamps) {
                for &cluster in &known {
                    let members = (0..count).filter(|&client| to.contains(client) && of(client) == cluster);
                    score(Recipients::list(members.collect()), vec![cluster], subject.clone());
                }
            }
            (0..count).zip(&mut clients).for_each(|(client, served)| served.cluster = of(client));
        }
    }
    let answers = federation.ask(&ask)?;
    let told = scores.iter().map(|(of, order)| (&of[..], answers.of(*order)));
    let clusters = if outcome.clustered { outcome.models.len() } else { 0 };
    Ok(Evaluation { clients, ..summarise_together(told, metric, clusters)? })
}

/// How scores are gathered where only sums are told of clients.
const TOGETHER: Gather = Gather::Sum { by: By::Choice, weight: Weight::Uniform };

/// The scores of all clients from those of each slot, which is that of a cluster.
fn summarise_together<'a>(
    told: impl Iterator<Item = (&'a [Option<usize>], Answered<'a, Evaluated>)>,
    metric: Metric,
    clusters: usize,
) -> Result<Evaluation> {
    let mut of_cluster = vec![Scored::default(); clusters];
    let mut all = Scored::default();
    for (of, answer) in told {
        for (slot, cluster) in answer.slots.iter().zip(of) {
            let scored = Scored::of(slot);
            all.merge(&scored);
            cluster.and_then(|cluster| of_cluster.get_mut(cluster)).into_iter().for_each(|sum| sum.merge(&scored));
        }
    }
    if all.scored > 0.0 && sums(metric, &all).is_none() {
        let message = format!("score: no hits of some clients, which metric = \"{}\" counts", metric.name());
        return Err(
            Error::new(ErrorKind::Client, message).hint("count the rows that are right, or use metric = \"loss\"")
        );
    }
    let mean =
        |scored: &Scored| sums(metric, scored).filter(|_| scored.scored > 0.0).map(|(_, means)| means / scored.scored);
    let per_cluster = of_cluster.iter().map(mean).collect();
    let known = mean(&all).zip(sums(metric, &all));
    let metric = known.map(|(mean, (sum, _))| MetricSummary {
        name: metric.name().into(),
        mean,
        pooled: sum / all.rows,
        worst_decile: None,
        per_cluster,
    });
    let loss = (all.clients > 0).then(|| all.loss / all.clients as f64);
    let sizes = of_cluster.iter().map(|scored| scored.clients).collect();
    Ok(Evaluation { clients: Vec::new(), metric, loss, sizes: Some(sizes) })
}

/// A metric summed over rows, and its clients' means summed over clients; `None` where it needs hits and not everybody counts some.
fn sums(metric: Metric, scored: &Scored) -> Option<(f64, f64)> {
    let counts = scored.counted == scored.scored;
    match metric {
        Metric::Accuracy => counts.then_some(scored.hits),
        Metric::SquaredError | Metric::LogLoss | Metric::Loss => Some(scored.row_losses),
        Metric::RowError => counts.then_some((scored.rows - scored.hits.0, scored.scored - scored.hits.1)),
    }
}

pub(super) fn with_drafts(outcome: &Outcome) -> Vec<Params> {
    let drafts = outcome.mixture.iter().flat_map(|mixture| mixture.drafts.iter().flatten());
    outcome.models.iter().chain(drafts).cloned().collect()
}

/// What clients with models of their own are scored with: their own model, or their draft.
pub(super) fn own_subjects(outcome: &Outcome, stamps: &[u64]) -> Vec<(Recipients, Subject)> {
    let drafts = outcome.mixture.as_ref().map_or(&[][..], |mixture| &mixture.drafts);
    if drafts.is_empty() {
        let keeping = (0..stamps.len() as u32).filter(|&client| stamps[client as usize] > 0);
        let by_stamp = Recipients::by_stamp(keeping, stamps).into_iter();
        return by_stamp.map(|(stamp, to)| (to, Subject::Own { stamp })).collect();
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
    let everything: Vec<usize> = (0..outcome.models.len()).collect();
    let evaluate = Evaluate { with: Subject::Models(everything.clone()), assign_on, compare: false };
    if federation.is_sealed() {
        let mut ask = Ask::new(Phase::Evaluate, outcome.models.clone(), TOGETHER);
        let order = ask.order(Recipients::All, evaluate);
        let (count, answers) = (federation.clients().len(), federation.ask(&ask)?);
        let of: Vec<Option<usize>> = everything.into_iter().map(Some).collect();
        let clusters = if outcome.clustered { outcome.models.len() } else { 0 };
        let scored = summarise_together(std::iter::once((&of[..], answers.of(order))), metric, clusters)?;
        return Ok(Some(Evaluation { clients: vec![Served::default(); count], ..scored }));
    }
    let clients = score_all(federation, outcome.models.clone(), evaluate, metric, outcome.clustered)?;
    Ok(Some(summarise(clients, metric, outcome, &[])))
}

/// Scores every client in the same way. `chose` says that each client chose its cluster by its losses.
pub(super) fn score_all(
    federation: &mut dyn Federation,
    models: Vec<Params>,
    evaluate: Evaluate,
    metric: Metric,
    chose: bool,
) -> Result<Vec<Served>> {
    let mut ask = Ask::new(Phase::Evaluate, models, Gather::Each);
    let order = ask.order(Recipients::All, evaluate);
    let answers = federation.ask(&ask)?;
    let answer = answers.of(order);
    let mut clients = vec![Served::default(); federation.clients().len()];
    take_scores(&answer, metric, chose, &mut clients);
    check_counted(&[answer], metric, federation.clients(), &clients)?;
    Ok(clients)
}

fn margin(losses: &[f64], own: usize) -> Option<f64> {
    let other = losses.iter().enumerate().filter(|(model, _)| *model != own).map(|(_, &loss)| loss).reduce(f64::min)?;
    let margin = other - losses.get(own)?;
    margin.is_finite().then_some(margin)
}

fn take_scores(answer: &Answered<Evaluated>, metric: Metric, chose: bool, clients: &mut [Served]) {
    for (client, evaluated) in answer.each() {
        let served = &mut clients[client as usize];
        served.loss = Some(evaluated.loss());
        if chose {
            served.cluster = Some(evaluated.choice as usize);
            served.margin = margin(&evaluated.losses, evaluated.choice as usize);
        }
        let score = evaluated.score;
        let sum = metric.sum(&score).filter(|_| score.rows > 0);
        served.score = sum.map(|sum| ClientScore { sum, rows: score.rows as usize, cluster: served.cluster });
    }
}

/// Refuses a metric that no client can be scored by. Single clients without it are not scored.
fn check_counted(
    answers: &[Answered<Evaluated>],
    metric: Metric,
    infos: &[ClientInfo],
    clients: &[Served],
) -> Result<()> {
    let mut scores = answers.iter().flat_map(|answer| answer.each());
    match scores.find(|(_, told)| told.score.rows > 0 && metric.sum(&told.score).is_none()) {
        Some((client, _)) if clients.iter().all(|served| served.score.is_none()) => {
            let (id, name) = (&infos[client as usize].id, metric.name());
            let message = format!("client {id}: score: no hits, which metric = \"{name}\" counts");
            Err(Error::new(ErrorKind::Client, message).hint("count the rows that are right, or use metric = \"loss\""))
        }
        _ => Ok(()),
    }
}

pub(super) fn is_good(outliers: &[bool], place: usize) -> bool {
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
    Evaluation { loss, metric: MetricSummary::of(metric.name(), &scores, clusters), clients, sizes: None }
}

/// What a result lacks where only sums are told of clients.
const SEALED: &str = "only sums over clients were told, so single clients' clusters, margins and metrics and the worst tenth of them are \
                      not known";

#[derive(Default)]
pub(super) struct Scores;

impl Finding for Scores {
    fn evaluate(&self, context: &mut Context, round: &mut RoundRecord, found: &mut MethodRecord) -> Result<()> {
        found.summary.metric = context.scored.metric.clone();
        found.summary.unseen = context.unseen.and_then(|unseen| unseen.metric.clone());
        let mean = |metric: &Option<MetricSummary>| metric.as_ref().map(|metric| metric.mean);
        (round.metric, round.unseen_metric) = (mean(&found.summary.metric), mean(&found.summary.unseen));
        Ok(())
    }

    fn conclude(&self, context: &mut Context, found: &mut MethodRecord) -> Result<()> {
        let Context { scored, population, .. } = context;
        for (client, served) in found.clients.iter_mut().zip(&scored.clients) {
            client.cluster = served.cluster;
            client.margin = served.margin;
            client.metric = served.mean();
        }
        let infinite = without_finite_metric(&population.clients, scored);
        let notes = &mut found.summary.notes;
        if context.federation.is_sealed() {
            notes.push(SEALED.into());
        }
        if scored.metric.is_none() && infinite.is_none() {
            notes.push(format!("{}, so there is nothing to score", why_nothing(context.outcome, scored)));
        }
        let unseen = context.unseen.and_then(|unseen| without_finite_metric(&population.unseen, unseen));
        notes.extend(infinite.into_iter().chain(unseen));
        notes.extend(lone_metric_note(&population.clients, &scored.clients, &population.outliers));
        Ok(())
    }
}

fn why_nothing(outcome: &Outcome, scored: &Evaluation) -> &'static str {
    match &outcome.serving {
        Serving::Own { stamps, .. } if stamps.iter().all(|&stamp| stamp == 0) => "no client has a model",
        _ if scored.clients.iter().any(|served| served.loss.is_some()) => "no client has test rows",
        _ => "no client could be reached any more",
    }
}

fn without_finite_metric(clients: &[Client], scored: &Evaluation) -> Option<String> {
    let served = clients.iter().zip(&scored.clients);
    let infinite = served.filter(|(_, served)| served.mean().is_some_and(|mean| !mean.is_finite()));
    let names: Vec<&str> = infinite.map(|(client, _)| client.id.as_str()).collect();
    let list = few_of(&names);
    match names.len() {
        0 => None,
        1 => Some(format!("the metric of client {list} is not finite and in no average")),
        _ => Some(format!("the metrics of clients {list} are not finite and in no average")),
    }
}

/// A note about a client whose metric dominates the mean, as happens with an extreme cell among its test rows.
fn lone_metric_note(clients: &[Client], served: &[Served], outliers: &[bool]) -> Option<String> {
    /// How many times the usual sum of all.
    const LONE: f64 = 1000.0;
    let mean = |served: &Served| served.mean().filter(|mean| mean.is_finite());
    // Planted outliers are in no average.
    let averaged = clients.iter().zip(served).enumerate().filter(|(place, _)| outliers.get(*place) != Some(&true));
    let mut metrics: Vec<(f64, &str)> =
        averaged.filter_map(|(_, (client, served))| Some((mean(served)?.abs(), &*client.id))).collect();
    metrics.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (usual, (largest, id)) = (metrics.get(metrics.len() / 2)?.0, *metrics.last()?);
    let is_alone = metrics.len() > 2 && usual > 0.0 && largest / LONE > usual * metrics.len() as f64;
    is_alone.then(|| {
        format!("client {id} has a metric of {largest:.1e}, where {usual:.1e} is usual: it is nearly all of the mean")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_outliers_are_served_but_not_averaged() {
        let score = |sum| Some(ClientScore { sum, rows: 2, cluster: None });
        let clients = [1.0, 2.0, 0.0].map(|sum| Served { score: score(sum), loss: Some(sum), ..Served::default() });
        let mean = |outliers: &[bool]| {
            let found = summarise(clients.to_vec(), Metric::Accuracy, &Outcome::default(), outliers);
            assert_eq!((found.clients.len(), found.loss), (3, Some(1.0)));
            found.metric.unwrap().mean
        };
        assert_eq!((mean(&[]), mean(&[false, false, true])), (0.5, 0.75));
    }

    #[test]
    fn a_metric_that_is_nearly_all_of_the_mean_is_told() {
        use crate::data::{Features, Shard, Targets};
        let nothing = || Shard::new(Features::F64 { columns: 1, values: Vec::new() }, Targets::None).unwrap();
        let client = |id: &str| Client { id: id.into(), train: nothing(), test: nothing(), group: None, truth: None };
        let clients = ["a", "b", "c"].map(client);
        let note = |sums: [f64; 3]| {
            let served = sums
                .map(|sum| Served { score: Some(ClientScore { sum, rows: 2, cluster: None }), ..Served::default() });
            lone_metric_note(&clients, &served, &[])
        };
        assert_eq!(note([4.0, 2.0, 500.0]), None);
        let wanted = "client c has a metric of 1.0e12, where 2.0e0 is usual: it is nearly all of the mean";
        assert_eq!(note([4.0, 2.0, 2e12]).as_deref(), Some(wanted));
    }
}
