//! How mixtures compare with what was planted: centres and weights, the classes of rows, and who is an outlier.
//!
//! Components come in any order, so everything is compared under the best matching. Clients that were planted as
//! outliers count in nothing but the last.

use super::scores::{own_subjects, with_drafts};
use super::*;
use crate::aggregate::Weight;
use crate::data::schema::TargetSchema;
use crate::data::{PlantedMixture, Shard};
use crate::federation::By;
use crate::federation::work::Tally;
use crate::mixture::{Family, Rows, Scratch, Shape, classify};
use crate::num::add_scaled;
use crate::record::{ClientMixture, MixtureRecord, RowsRecord};

/// Clients' mixtures beside what was planted, and as they are recorded.
#[derive(Default)]
pub(super) struct Mixtures;

impl Finding for Mixtures {
    fn conclude(&self, context: &mut Context, found: &mut MethodRecord) -> Result<()> {
        let Some(shape) = context.model.mixture() else { return Ok(()) };
        let own = context.own_models("row of a client in components.csv and rows.csv", found);
        let mixture = |client: &Client| {
            let params = params_of(context.outcome, &own, client)?;
            Some((&params[shape.weights()], &params[shape.centres()]))
        };
        let population = context.population;
        let mixtures: Vec<Option<Mixture>> = population.clients.iter().map(mixture).collect();
        found.numbers(mixture_errors(&mixtures, &population.mixtures));
        found.mixture = Some(record(context, shape, &own));
        let classes = context.schema.shape().classes.max(population.shape.classes);
        if context.outcome.mixture.is_some() && classes > 0 && matches!(shape.family, Family::Gaussian(_)) {
            let error = global_row_error(context.outcome, context.federation, shape, classes, &population.outliers)?;
            found.numbers([("row_error_global", error)]);
        }
        Ok(())
    }
}

fn params_of<'a>(outcome: &'a Outcome, own: &'a OwnModels, client: &Client) -> Option<&'a [f64]> {
    match outcome.serving {
        Serving::Own { .. } => own.get(client.id.as_str()).map(Vec::as_slice),
        _ => outcome.models.first().map(|model| model.as_slice()),
    }
}

/// Whether components have an intercept in the units of the data: where encoding shifts columns, regressions gain one.
fn has_intercept(schema: &Schema, shape: &Shape) -> bool {
    matches!(shape.family, Family::Regression { intercept, .. } if intercept || schema.moves_columns())
}

/// A centre, or the coefficients of a regression, in the units of the data.
fn in_units(schema: &Schema, shape: &Shape, centre: &[f64]) -> Vec<f64> {
    let (encoded, intercept) = centre.split_at(shape.columns);
    let mut decoded = encoded.to_vec();
    match shape.family {
        Family::Gaussian(_) => schema.decode(&mut decoded),
        Family::Regression { .. } => {
            let gained = schema.decode_slopes(&mut decoded);
            if has_intercept(schema, shape) {
                decoded.push(intercept.first().unwrap_or(&0.0) + gained);
            }
        }
    }
    decoded
}

/// The component of every row; none of rows on another machine.
fn row_components(shape: &Shape, params: &[f64], rows: &Shard) -> Vec<u32> {
    let mut components = Vec::new();
    if !rows.is_empty() {
        classify(shape, params, &Rows::of(shape, rows), &mut Scratch::default(), &mut components);
    }
    components
}

/// The mixtures of all clients in the units of the data, and where their rows belong.
fn record(context: &Context, shape: &Shape, own: &OwnModels) -> MixtureRecord {
    let Context { population, schema, outcome, .. } = context;
    let all_in_units = |centres: &[f64]| -> Vec<f64> {
        centres.chunks_exact(shape.width()).flat_map(|centre| in_units(schema, shape, centre)).collect()
    };
    let client = |(place, client): (usize, &Client)| {
        let params = params_of(outcome, own, client)?;
        let lines = population.lines.get(place);
        let [train, test] = [&client.train, &client.test].map(|rows| match context.with_rows {
            true => row_components(shape, params, rows),
            false => Vec::new(),
        });
        Some(ClientMixture {
            train: RowsRecord::new(&train, client.train.classes(), lines.map(|lines| &lines.train[..])),
            test: RowsRecord::new(&test, client.test.classes(), lines.map(|lines| &lines.test[..])),
            ..ClientMixture::new(&client.id, &params[shape.weights()], &all_in_units(&params[shape.centres()]))
        })
    };
    let mut features = schema.feature_names();
    if has_intercept(schema, shape) {
        features.push("intercept".into());
    }
    MixtureRecord {
        label: context.label.to_string(),
        seed: context.seed,
        components: shape.components,
        ordered: outcome.mixture.is_some(),
        features,
        classes: match &schema.target {
            TargetSchema::Names(names) => names.clone(),
            _ => Vec::new(),
        },
        common: outcome.mixture.as_ref().map_or_else(Vec::new, |mixture| all_in_units(&mixture.common)),
        clients: population.clients.iter().enumerate().filter_map(client).collect(),
    }
}

/// The permutation whose largest cost is smallest, and that cost. `costs` lie row by row; row r is given column π(r). Of
/// several such permutations it is one with the smallest sum. A cost that is not a number counts as infinite.
fn bottleneck(costs: &[f64], size: usize) -> (f64, Vec<usize>) {
    let costs: Vec<f64> = costs.iter().map(|&cost| if cost.is_nan() { f64::INFINITY } else { cost }).collect();
    let mut thresholds = costs.clone();
    thresholds.sort_by(f64::total_cmp);
    let matching = |threshold: f64| -> Vec<usize> {
        let allowed = costs.iter().map(|&cost| if cost <= threshold { cost } else { f64::INFINITY });
        // The smaller side is assigned completely, and here both are as large.
        assign(&allowed.collect::<Vec<_>>(), size, size).into_iter().flatten().collect()
    };
    let is_too_low = |threshold: &f64| {
        matching(*threshold).iter().enumerate().any(|(row, column)| costs[row * size + column] > *threshold)
    };
    match thresholds.get(thresholds.partition_point(is_too_low)) {
        Some(&lowest) => (lowest, matching(lowest)),
        None => (0.0, Vec::new()),
    }
}

/// How far one client's mixture is from the planted one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct MixtureError {
    /// max_r ‖θ_r − θ*_π(r)‖ under the best labels.
    centre: f64,
    /// max_r |w_r − w*_π(r)| under the labels best for the weights alone, as the paper's tables have it.
    weight: f64,
    /// The same under the labels best for the centres.
    weight_matched: f64,
}

impl MixtureError {
    /// Compares weights and concatenated centres with the planted ones; `None` where the shapes differ.
    fn of(weights: &[f64], centres: &[f64], planted: &PlantedMixture) -> Option<Self> {
        let count = weights.len();
        if count == 0 || planted.weights.len() != count || planted.centres.len() != centres.len() {
            return None;
        }
        let width = centres.len() / count;
        let pairs = || (0..count * count).map(|cell| (cell / count, cell % count));
        let centre = |component: usize| &centres[component * width..][..width];
        let true_centre = |component: usize| &planted.centres[component * width..][..width];
        let apart = |(row, column): (usize, usize)| (weights[row] - planted.weights[column]).abs();
        let distances: Vec<f64> = pairs().map(|(row, column)| distance(centre(row), true_centre(column))).collect();
        let (largest, matching) = bottleneck(&distances, count);
        Some(Self {
            centre: largest,
            weight: bottleneck(&pairs().map(apart).collect::<Vec<_>>(), count).0,
            weight_matched: matching.into_iter().enumerate().map(apart).fold(0.0, f64::max),
        })
    }
}

/// A client's weights and centres, end to end.
type Mixture<'a> = (&'a [f64], &'a [f64]);

/// The largest error over clients that were drawn from a mixture and have one, and the mean of the centres': `centre_error`,
/// `centre_error_mean`, `weight_error` and `weight_error_matched`. Empty where mixtures are of another shape than planted.
fn mixture_errors(found: &[Option<Mixture>], planted: &[Option<PlantedMixture>]) -> Vec<(&'static str, Option<f64>)> {
    let pairs = found.iter().zip(planted).filter_map(|(found, planted)| Some(((*found)?, planted.as_ref()?)));
    let errors: Option<Vec<MixtureError>> =
        pairs.map(|((weights, centres), planted)| MixtureError::of(weights, centres, planted)).collect();
    let Some(errors) = errors.filter(|errors| !errors.is_empty()) else { return Vec::new() };
    let centres: Vec<f64> = errors.iter().map(|error| error.centre).collect();
    let largest = |of: fn(&MixtureError) -> f64| errors.iter().map(of).fold(0.0, f64::max);
    vec![
        ("centre_error", Some(largest(|error| error.centre))),
        ("centre_error_mean", Some(mean(&centres))),
        ("weight_error", Some(largest(|error| error.weight))),
        ("weight_error_matched", Some(largest(|error| error.weight_matched))),
    ]
}

/// The share of rows outside the best matching of components to classes, with counts by component; `None` without rows.
fn outside_matching(counts: &[f64], classes: usize) -> Option<f64> {
    let cost: Vec<f64> = counts.iter().map(|count| -count).collect();
    let matching = assign(&cost, counts.len() / classes.max(1), classes);
    let matched = matching.iter().enumerate().filter_map(|(row, class)| Some(counts[row * classes + (*class)?]));
    let (matched, all): (f64, f64) = (matched.sum(), counts.iter().sum());
    (all > 0.0).then(|| (all - matched) / all)
}

/// The share of held-out rows outside one matching of components to classes for everybody: it minds where clients number
/// alike components in another way. Clients planted as outliers do not count.
fn global_row_error(
    outcome: &Outcome,
    federation: &mut dyn Federation,
    shape: &Shape,
    classes: usize,
    outliers: &[bool],
) -> Result<Option<f64>> {
    let work = |with: Subject| Tally { with, components: shape.components as u32, classes: classes as u32 };
    let good = |to: Recipients| {
        let all = 0..federation.clients().len() as u32;
        Recipients::list(all.filter(|&client| to.contains(client) && is_good(outliers, client as usize)).collect())
    };
    let subjects = match &outcome.serving {
        Serving::Own { stamps, .. } => own_subjects(outcome, stamps),
        _ if outcome.models.is_empty() => Vec::new(),
        _ => vec![(Recipients::All, Subject::Models(vec![0]))],
    };
    let gather = Gather::Sum { by: By::All, weight: Weight::Uniform };
    let mut ask = Ask::new(Phase::Evaluate, with_drafts(outcome), gather);
    for (to, subject) in subjects {
        ask.order(good(to), work(subject));
    }
    let answers = federation.ask(&ask)?;
    let mut counts = vec![0.0; shape.components * classes];
    answers.orders.iter().flat_map(|order| &order.sums).for_each(|sum| add_scaled(&mut counts, 1.0, &sum.total));
    Ok(outside_matching(&counts, classes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;
    use rand::RngExt;

    /// The smallest largest cost, and the smallest sum among the permutations that have it, by trying them all.
    fn by_search(costs: &[f64], size: usize) -> (f64, f64) {
        fn search(costs: &[f64], size: usize, row: usize, taken: &mut [bool]) -> Vec<(f64, f64)> {
            if row == size {
                return vec![(f64::NEG_INFINITY, 0.0)];
            }
            let mut all = Vec::new();
            for column in 0..size {
                if !std::mem::replace(&mut taken[column], true) {
                    let cost = costs[row * size + column];
                    let rest = search(costs, size, row + 1, taken);
                    all.extend(rest.into_iter().map(|(largest, sum)| (largest.max(cost), sum + cost)));
                    taken[column] = false;
                }
            }
            all
        }
        let all = search(costs, size, 0, &mut vec![false; size]);
        let largest = all.iter().map(|(largest, _)| *largest).fold(f64::INFINITY, f64::min);
        let sums = all.iter().filter(|(other, _)| *other == largest).map(|(_, sum)| *sum);
        (largest, sums.fold(f64::INFINITY, f64::min))
    }

    #[test]
    fn the_bottleneck_is_what_trying_all_permutations_finds() {
        let mut rng = Key::new(6).rng();
        for round in 0..400 {
            let size = 1 + round % 6;
            // Few different costs, so that there are ties.
            let costs: Vec<f64> =
                (0..size * size).map(|_| f64::from(rng.random_range(0..3 + round as u32 % 20))).collect();
            let (largest, permutation) = bottleneck(&costs, size);
            let used: Vec<f64> =
                permutation.iter().enumerate().map(|(row, column)| costs[row * size + column]).collect();
            let mut columns = permutation.clone();
            columns.sort_unstable();
            assert_eq!(columns, (0..size).collect::<Vec<_>>());
            assert_eq!(used.iter().copied().fold(f64::NEG_INFINITY, f64::max), largest);
            assert_eq!((largest, used.iter().sum::<f64>()), by_search(&costs, size), "{costs:?}");
        }
        assert_eq!(bottleneck(&[], 0), (0.0, vec![]));
        // The smallest sum, 0 + 10, is not the smallest largest.
        assert_eq!(bottleneck(&[0.0, 6.0, 5.0, 10.0], 2), (6.0, vec![1, 0]));
        assert_eq!(bottleneck(&[f64::NAN, 1.0, 1.0, f64::NAN], 2), (1.0, vec![1, 0]));
        let (largest, permutation) = bottleneck(&[f64::NAN, f64::NAN, 1.0, 2.0], 2);
        assert_eq!((largest, permutation.len()), (f64::INFINITY, 2));
    }

    fn planted(weights: &[f64], centres: &[f64]) -> PlantedMixture {
        PlantedMixture { weights: weights.into(), centres: centres.into() }
    }

    #[test]
    fn errors_of_one_client_by_hand() {
        let truth = planted(&[0.6, 0.4], &[0.0, 0.0, 10.0, 0.0]);
        // The labels are exchanged: 10 is found at 10 + 2, 0 at 0 + 1.
        let error = MixtureError::of(&[0.55, 0.45], &[10.0, 2.0, 1.0, 0.0], &truth).unwrap();
        assert_eq!(error.centre, 2.0);
        assert!((error.weight - 0.05).abs() < 1e-15 && (error.weight_matched - 0.15).abs() < 1e-15);
        assert_eq!(MixtureError::of(&[1.0], &[0.0, 0.0], &truth), None);
        assert_eq!(MixtureError::of(&[0.5, 0.5], &[0.0; 6], &truth), None, "centres with an intercept");
        assert_eq!(MixtureError::of(&[0.5, 0.5], &[f64::NAN; 4], &truth).unwrap().centre, f64::INFINITY);
    }

    #[test]
    fn errors_are_largest_over_good_clients() {
        let truths =
            [Some(planted(&[1.0], &[0.0])), None, Some(planted(&[1.0], &[5.0])), Some(planted(&[1.0], &[0.0]))];
        let near: Mixture = (&[1.0], &[0.5]);
        let far: Mixture = (&[0.75], &[8.0]);
        // The second is an outlier, the last has no mixture.
        let errors = mixture_errors(&[Some(near), Some(far), Some(far), None], &truths);
        assert_eq!(errors.iter().map(|(_, error)| error.unwrap()).collect::<Vec<_>>(), [3.0, 1.75, 0.25, 0.25]);
        let two: Mixture = (&[0.5, 0.5], &[0.0, 1.0]);
        assert!(mixture_errors(&[Some(near), None, Some(two), None], &truths).is_empty());
        assert!(mixture_errors(&[None, Some(near)], &truths).is_empty());
        assert!(mixture_errors(&[Some(near)], &[]).is_empty());
    }

    #[test]
    fn errors_of_rows_by_hand() {
        // Two clients that agree on three of four rows and on two, the second with its labels exchanged.
        assert_eq!(outside_matching(&[2.0, 1.0, 0.0, 1.0], 2), Some(0.25));
        assert_eq!(outside_matching(&[0.0, 1.0, 1.0, 0.0], 2), Some(0.0));
        assert_eq!(outside_matching(&[2.0, 2.0, 1.0, 1.0], 2), Some(0.5), "any matching of both holds three of six");
        assert_eq!(outside_matching(&[1.0, 2.0, 1.0], 1), Some(0.5), "more components than classes");
        assert_eq!(outside_matching(&[0.0; 4], 2), None);
    }
}
