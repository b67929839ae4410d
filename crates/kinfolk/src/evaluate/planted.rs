//! How far models are from the parameters that the data was drawn from.

use super::scores::Evaluation;
use super::*;
use crate::record::summary::standard_deviation;

/// Distances of the clusters' models from the planted ones, and of the clients' models from the parameters of their rows.
#[derive(Default)]
pub(super) struct PlantedParameters;

impl Finding for PlantedParameters {
    fn evaluate(&self, context: &mut Context, round: &mut RoundRecord, found: &mut MethodRecord) -> Result<()> {
        let planted = &context.population.true_parameters;
        if planted.is_empty() {
            return Ok(());
        }
        let outcome = &*context.outcome;
        if is_comparable(&outcome.models, planted) {
            found.summary.parameter_error =
                Some(matched_distance(&outcome.models, planted)).filter(|error| error.is_finite());
            found.number("parameter_error_nearest", nearest_distance(&outcome.models, planted));
        }
        let candidates = || outcome.candidates.iter().filter(|models| is_comparable(models, planted));
        let best = |of: fn(&[Params], &[Vec<f64>]) -> f64| {
            candidates().map(|models| of(models, planted)).fold(f64::INFINITY, f64::min)
        };
        found.number("parameter_error_best", best(matched_distance));
        found.number("parameter_error_nearest_best", best(nearest_distance));
        let own = context.own_models("distance of theirs to what was planted", found);
        let Some(distances) = distances_to_planted(outcome, context.scored, context.population, &own) else {
            return Ok(());
        };
        round.normalised_mse = normalised_mse(&distances);
        found.numbers([("normalised_mse", round.normalised_mse)]);
        if !context.population.client_parameters.is_empty() {
            found.numbers(personal_errors(&distances));
        }
        Ok(())
    }
}

fn is_comparable(models: &[Params], planted: &[Vec<f64>]) -> bool {
    models.len() == planted.len() && models.iter().zip(planted).all(|(model, planted)| model.len() == planted.len())
}

/// For every client, ‖θ̂_i − θ*_i‖ of the model that serves it and ‖θ*_i‖ of the parameters its rows were drawn from. `None`
/// where those are not known for everybody, or are no parameters of this model.
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

/// (1/m) Σ_i ‖θ̂_i − θ*_i‖² / ‖θ*_i‖² over the clients.
fn normalised_mse(distances: &[(f64, f64)]) -> Option<f64> {
    if distances.iter().any(|(_, size)| *size == 0.0) {
        return None;
    }
    Some(distances.iter().map(|(error, size)| (error / size).powi(2)).sum::<f64>() / distances.len() as f64)
}

/// With parameters per client: mean, deviation and maximum of the distances, mean and maximum of the squared ones.
fn personal_errors(distances: &[(f64, f64)]) -> [(&'static str, Option<f64>); 5] {
    let errors: Vec<f64> = distances.iter().map(|(error, _)| *error).collect();
    let squares: Vec<f64> = errors.iter().map(|error| error * error).collect();
    let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    [
        ("personal_error", Some(mean(&errors))),
        ("personal_error_sd", standard_deviation(&errors)),
        ("personal_error_max", Some(largest(&errors))),
        ("personal_error_squared", Some(mean(&squares))),
        ("personal_error_squared_max", Some(largest(&squares))),
    ]
}

/// (1/k) Σ_j ‖θ̂_j − θ*_π(j)‖ under the best one-to-one matching π.
fn matched_distance(models: &[Params], planted: &[Vec<f64>]) -> f64 {
    let count = models.len();
    let cost: Vec<f64> = models.iter().flat_map(|model| planted.iter().map(|truth| distance(model, truth))).collect();
    if cost.iter().any(|cost| !cost.is_finite()) {
        return f64::INFINITY;
    }
    let matching = assign(&cost, count, count);
    matching.iter().enumerate().filter_map(|(row, column)| Some(cost[row * count + (*column)?])).sum::<f64>()
        / count as f64
}

/// (1/k) Σ_j min_j' ‖θ̂_j − θ*_j'‖, where two models may be nearest to the same truth.
fn nearest_distance(models: &[Params], planted: &[Vec<f64>]) -> f64 {
    let nearest = |model: &Params| planted.iter().map(|truth| distance(model, truth)).fold(f64::INFINITY, f64::min);
    models.iter().map(nearest).sum::<f64>() / models.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::testing::{outcome, personal, served, two_clients};
    use std::collections::BTreeMap;

    #[test]
    fn errors_are_relative_to_the_planted_parameters_by_hand() {
        let error = |serving, clustered, a, b| {
            let own = BTreeMap::from([("b", vec![0.0, 1.0])]);
            let population = two_clients(Vec::new());
            normalised_mse(&distances_to_planted(&outcome(serving, clustered), &served(a, b), &population, &own)?)
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
        let distances = |outcome: Outcome, population: &Population| {
            distances_to_planted(&outcome, &served(Some(0), Some(1)), population, &own)
        };
        // Distances are 5 and 1.
        let apart = distances(outcome(personal(vec![1, 1]), true), &population).unwrap();
        assert_eq!(personal_errors(&apart).map(|(_, error)| error.unwrap()), [3.0, 8f64.sqrt(), 5.0, 13.0, 25.0]);
        let relative = normalised_mse(&apart);
        assert!((relative.unwrap() - (25.0 / 9.0 + 0.5) / 2.0).abs() < 1e-14);
        // The clusters' models are 3 and 1 away, the first of them 3 and √8.
        let apart = distances(outcome(Serving::Choose, true), &population).unwrap();
        assert_eq!(personal_errors(&apart)[0], ("personal_error", Some(2.0)));
        let apart = distances(outcome(Serving::Choose, false), &population).unwrap();
        assert!((personal_errors(&apart)[3].1.unwrap() - 8.5).abs() < 1e-14);
        let wider = two_clients(vec![vec![0.0; 3]; 2]);
        assert!(distances(outcome(Serving::Choose, true), &wider).is_none());
    }
}
