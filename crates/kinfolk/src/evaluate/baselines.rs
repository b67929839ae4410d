//! Baselines for personal models in clusters: local models, and one model for everybody.

use super::scores::{Evaluation, Served, score_all};
use super::*;
use crate::assignment::Assignment;
use crate::methods::pooled_minimiser;
use crate::record::summary::is_higher_better;
use crate::training::Split;
use std::cell::OnceCell;

/// Personal models compared with those of their clusters, the mean of all, and the baselines.
#[derive(Default)]
pub(super) struct BesideBaselines {
    /// The same for every method; computed when first needed.
    baselines: OnceCell<Baselines>,
}

impl Finding for BesideBaselines {
    fn conclude(&self, context: &mut Context, found: &mut MethodRecord) -> Result<()> {
        let Serving::Own { clusters: Some(clusters), .. } = &context.outcome.serving else { return Ok(()) };
        if context.federation.is_sealed() {
            return Ok(());
        }
        (context.doing)("comparing with local models and with one model");
        let baselines = match self.baselines.get() {
            Some(baselines) => baselines,
            None => {
                let single = single_model(context.federation, context.model)?;
                let known = baselines(context.federation, context.model, context.metric, single)?;
                self.baselines.get_or_init(|| known)
            }
        };
        let own = context.own_models("model_norm, distance_to_cluster and distance_to_global", found);
        fill_in(&mut found.clients, context.outcome, clusters, &own, baselines);
        found.numbers(beside_baselines(context.scored, baselines, context.metric, &context.population.outliers));
        Ok(())
    }
}

/// Every client's metric with other models, on the same held-out rows.
#[derive(Debug, Clone, Default, PartialEq)]
struct Baselines {
    /// With the minimiser of its own loss.
    local: Vec<Option<f64>>,
    /// With one model for everybody.
    global: Vec<Option<f64>>,
}

/// The minimiser of the pooled loss of all clients' rows, for models that have one.
pub fn single_model(federation: &mut dyn Federation, model: &dyn Model) -> Result<Option<Params>> {
    if model.convex().is_some() { pooled_minimiser(federation, model) } else { Ok(None) }
}

fn baselines(
    federation: &mut dyn Federation,
    model: &dyn Model,
    metric: Metric,
    single: Option<Params>,
) -> Result<Baselines> {
    let mut metrics = |with: Subject, models: Vec<Params>| -> Result<Vec<Option<f64>>> {
        let evaluate = Evaluate { with, assign_on: Split::Train, compare: false };
        Ok(score_all(federation, models, evaluate, metric, false)?.iter().map(Served::mean).collect())
    };
    Ok(Baselines {
        local: if model.convex().is_some() { metrics(Subject::Alone, Vec::new())? } else { Vec::new() },
        global: single.map_or_else(|| Ok(Vec::new()), |single| metrics(Subject::Models(vec![0]), vec![single]))?,
    })
}

fn fill_in(
    clients: &mut [ClientRecord],
    outcome: &Outcome,
    clusters: &Assignment,
    own: &OwnModels,
    baselines: &Baselines,
) {
    for (place, client) in clients.iter_mut().enumerate() {
        let model = own.get(client.client.as_str());
        let apart = |other: Option<&Params>| Some(distance(model?, other?));
        client.model_norm = model.map(|model| norm(model));
        client.distance_to_cluster =
            apart(clusters.each().get(place).and_then(|cluster| outcome.models.get((*cluster)?)));
        client.distance_to_global = apart(outcome.global.as_ref());
        client.metric_local = baselines.local.get(place).copied().flatten();
        client.metric_global = baselines.global.get(place).copied().flatten();
    }
}

/// The baselines' means over clients, and the shares of clients whose own model is no worse; without planted outliers.
fn beside_baselines(
    evaluation: &Evaluation,
    baselines: &Baselines,
    metric: Metric,
    outliers: &[bool],
) -> [(&'static str, Option<f64>); 4] {
    let beside = |others: &[Option<f64>]| {
        let good: Vec<(usize, f64)> = (others.iter().enumerate())
            .filter_map(|(place, other)| Some((place, other.filter(|_| is_good(outliers, place))?)))
            .collect();
        let known: Vec<f64> = good.iter().map(|(_, other)| *other).collect();
        let pairs: Vec<(f64, f64)> = (good.iter())
            .filter_map(|(place, other)| Some((evaluation.clients.get(*place)?.mean()?, *other)))
            .collect();
        let no_worse = pairs.iter().filter(|(with, without)| is_no_worse(metric, *with, *without)).count();
        let share = (!pairs.is_empty()).then(|| no_worse as f64 / pairs.len() as f64);
        ((!known.is_empty()).then(|| mean(&known)), share)
    };
    let ((local, no_worse_than_local), (global, no_worse_than_global)) =
        (beside(&baselines.local), beside(&baselines.global));
    [
        ("metric_local_mean", local),
        ("no_worse_than_local", no_worse_than_local),
        ("metric_global_mean", global),
        ("no_worse_than_global", no_worse_than_global),
    ]
}

/// Whether a metric is at least as good as another, up to rounding.
fn is_no_worse(metric: Metric, with: f64, without: f64) -> bool {
    let rounding = 1e-9 * without.abs();
    if is_higher_better(metric.name()) { with >= without - rounding } else { with <= without + rounding }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::testing::{outcome, personal};
    use crate::record::summary::ClientScore;
    use std::collections::BTreeMap;

    #[test]
    fn personal_models_beside_others_by_hand() {
        let baselines = Baselines { local: vec![Some(0.5), None], global: vec![Some(0.25), Some(0.75)] };
        let own = BTreeMap::from([("a", vec![3.0, 0.0])]);
        let mut records = ["a", "b"].map(|id| ClientRecord { client: id.into(), ..ClientRecord::default() });
        fill_in(&mut records, &outcome(personal(vec![1, 0]), true), &Assignment::from_iter([0, 1]), &own, &baselines);
        let first = ClientRecord {
            client: "a".into(),
            model_norm: Some(3.0),
            distance_to_cluster: Some(3.0),
            distance_to_global: Some(7.25f64.sqrt()),
            metric_local: Some(0.5),
            metric_global: Some(0.25),
            ..ClientRecord::default()
        };
        let second = ClientRecord { client: "b".into(), metric_global: Some(0.75), ..ClientRecord::default() };
        assert_eq!(records, [first, second]);
        let scored = |sum| Served { score: Some(ClientScore { sum, rows: 4, cluster: None }), ..Served::default() };
        let evaluation = Evaluation { clients: vec![scored(2.0), scored(2.0)], ..Evaluation::default() };
        let beside = |metric, outliers: &[bool]| {
            beside_baselines(&evaluation, &baselines, metric, outliers).map(|(_, number)| number.unwrap())
        };
        // Both score 0.5: above 0.25 and below 0.75.
        assert_eq!(beside(Metric::Accuracy, &[]), [0.5, 1.0, 0.5, 0.5]);
        assert_eq!(beside(Metric::LogLoss, &[]), [0.5, 1.0, 0.5, 0.5]);
        assert_eq!(beside(Metric::Accuracy, &[false, true])[2..], [0.25, 1.0]);
        assert!(is_no_worse(Metric::LogLoss, 0.5 + 1e-12, 0.5) && !is_no_worse(Metric::LogLoss, 0.6, 0.5));
        assert!(is_no_worse(Metric::Accuracy, 0.6, 0.5) && !is_no_worse(Metric::Accuracy, 0.4, 0.5));
    }
}
