//! The steps against each other, against rows, against closed forms and against lme4; recovery and calibration in small.

use super::evidence::Working;
use super::mixed::{self, Covariance};
use super::*;
use crate::num::distance;
use crate::rng::Key;
use rand::RngExt;
use rand_distr::StandardNormal;

const FOLDS: usize = 5;

/// Rows of a client: columns and target.
type Rows = Vec<(Vec<f64>, f64)>;

fn evidence(columns: Vec<Role>, clients: &[Rows]) -> Evidence {
    let client = |rows: &Rows| {
        let mut folds = vec![Products::none(columns.len()); FOLDS];
        rows.iter().enumerate().for_each(|(at, (row, target))| folds[at % FOLDS].add_row(row, *target, 1.0));
        folds
    };
    Evidence { response: Response::Numbers, clients: clients.iter().map(client).collect(), columns, rolling: false }
}

/// An intercept and slopes.
fn linear(slopes: usize) -> Vec<Role> {
    [vec![Role::Intercept], vec![Role::Linear; slopes]].concat()
}

fn normal(random: &mut crate::rng::Rng) -> f64 {
    random.sample(StandardNormal)
}

/// Clients whose coefficients are given, with standard normal columns beside the intercept and this noise.
fn draw(coefficients: &[Vec<f64>], rows: usize, noise: f64, seed: u64) -> Vec<Rows> {
    let mut random = Key::new(seed).rng();
    let mut row = |model: &Vec<f64>| {
        let mut x = vec![1.0];
        x.extend((1..model.len()).map(|_| normal(&mut random)));
        let mean: f64 = x.iter().zip(model).map(|(x, b)| x * b).sum();
        (x, mean + noise * normal(&mut random))
    };
    coefficients.iter().map(|model| (0..rows).map(|_| row(model)).collect()).collect()
}

/// Coefficients of clients around centres that take turns.
fn around(centres: &[Vec<f64>], clients: usize, spread: f64, seed: u64) -> Vec<Vec<f64>> {
    let mut random = Key::new(seed).word("clients").rng();
    let mut one =
        |client: usize| centres[client % centres.len()].iter().map(|c| c + spread * normal(&mut random)).collect();
    (0..clients).map(&mut one).collect()
}

fn fit(evidence: &Evidence, covariance: Covariance) -> mixed::Mixed {
    let working = Working::new(evidence, |_| true, |role| role == Role::Linear).unwrap();
    mixed::fit(&working.panel(None), covariance, working.basis.intercepts(), None).unwrap()
}

#[test]
fn balanced_clients_have_the_variances_of_the_analysis_of_variance() {
    // Means 1, 3, 8 of rows m − 1, m, m + 1: within 1, between 3·13 = 39, so that τ² = (39 − 1)/3.
    let rows = |mean: f64| [-1.0, 0.0, 1.0].iter().map(|e| (vec![1.0], mean + e)).collect::<Rows>();
    let found = fit(&evidence(linear(0), &[rows(1.0), rows(3.0), rows(8.0)]), Covariance::InterceptSlopes);
    assert!((found.noise - 1.0).abs() < 1e-6 && (found.centre[0] - 4.0).abs() < 1e-9, "{found:?}");
    assert!((found.root[0].powi(2) * found.noise - 38.0 / 3.0).abs() < 1e-4, "{}", found.root[0].powi(2) * found.noise);
    // −2 log of the restricted likelihood: three times log|H| = log 39, log XᵀH⁻¹X = log 9/39, and 8 (1 + log 2π).
    let plain = 2.0 * 39f64.ln() + 9f64.ln() + 8.0 * (1.0 + (2.0 * std::f64::consts::PI).ln());
    assert!((found.deviance - plain).abs() < 1e-6, "{} {plain}", found.deviance);
}

#[test]
fn clients_that_are_alike_have_no_variance() {
    let rows = |shift: f64| [-1.0, 0.0, 1.0].iter().map(|e| (vec![1.0], 2.0 + e + shift)).collect::<Rows>();
    let found = fit(&evidence(linear(0), &[rows(0.0), rows(0.01), rows(-0.01)]), Covariance::Scalar);
    assert!(found.root[0].powi(2) < 1e-4 && (found.centre[0] - 2.0).abs() < 1e-12, "{found:?}");
}

#[test]
fn products_are_those_of_rows() {
    let mut products = Products::none(2);
    products.add_row(&[1.0, 2.0], 3.0, 1.0);
    products.add_row(&[1.0, -1.0], 1.0, 2.0);
    assert_eq!((products.rows, products.values.as_slice()), (2, [3.0, 0.0, 5.0, 6.0, 4.0, 11.0].as_slice()));
}

#[test]
fn errors_of_a_fold_are_those_of_its_rows() {
    let clients = draw(&around(&[vec![1.0, 2.0, -1.0]], 4, 0.5, 1), 13, 1.0, 2);
    let evidence = evidence(linear(2), &clients);
    let working = Working::new(&evidence, |_| true, |role| role == Role::Linear).unwrap();
    let model = [0.3, -0.7, 0.2];
    let given = working.basis.back(&model);
    let squares = |rows: &Rows, fold: usize| -> f64 {
        let of_fold = rows.iter().skip(fold).step_by(FOLDS);
        of_fold.map(|(x, y)| (y - x.iter().zip(&given).map(|(x, b)| x * b).sum::<f64>()).powi(2)).sum()
    };
    for (client, rows) in clients.iter().enumerate() {
        let wanted = squares(rows, 3);
        assert!((working.fold(client, 3).error(&model) - wanted).abs() < 1e-10 * (1.0 + wanted));
    }
}

/// What lme4 1.1-31 says of rows made by a formula. The R program, `lmer` with `REML = TRUE`:
///
/// ```r
/// i <- 0:239; g <- i %/% 12; j <- i %% 12; x <- (j * 37 + g * 11) %% 29 / 10; z <- (i * 17) %% 13 / 5
/// u <- ((g * 7) %% 20 - 9.5) / 6; v <- ((g * 13) %% 20 - 9.5) / 12
/// y <- 2 + 1.5 * x - z + u + v * x + ((i * i * 31 + i * 7) %% 97 - 48) / 30
/// x <- x - mean(x); z <- z - mean(z)
/// lmer(y ~ x + z + (1 | g)); lmer(y ~ x + z + (1 + x | g)); lmer(y ~ x + z + (1 + x + z | g))
/// lmer(y ~ x + z + (1 | g) + (0 + x | g)); lmer(y ~ x + z + (1 | g) + (0 + x | g) + (0 + z | g))
/// ```
/// with `lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-10))`; then `VarCorr`, and `predict` for rows 40 and 210.
fn formula() -> Vec<Rows> {
    let row = |g: i64, j: i64| {
        let i = 12 * g + j;
        let (x, z) = (((j * 37 + g * 11) % 29) as f64 / 10.0, ((i * 17) % 13) as f64 / 5.0);
        let (u, v) = (((g * 7) % 20) as f64 - 9.5, ((g * 13) % 20) as f64 - 9.5);
        let e = ((i * i * 31 + i * 7) % 97 - 48) as f64 / 30.0;
        (vec![1.0, x, z], 2.0 + 1.5 * x - z + u / 6.0 + v / 12.0 * x + e)
    };
    (0..20).map(|g| (0..12).map(|j| row(g, j)).collect()).collect()
}

/// The variances of `u` in the order of columns, that of noise, and predictions for rows 40 and 210.
fn by_lme4(columns: [Role; 3], covariance: Covariance, variances: &[f64], noise: f64, predictions: [f64; 2]) {
    let clients = formula();
    let evidence = evidence(columns.to_vec(), &clients);
    let options = Options { families: Wanted::One, covariance: Some(covariance), ..Options::default() };
    let learned = learn(&evidence, &options).unwrap();
    let close = |found: f64, wanted: f64| {
        assert!((found / wanted - 1.0).abs() < 5e-5, "{found} {wanted} {columns:?} {covariance:?}")
    };
    close(learned.noise, noise);
    let q = learned.basis.random;
    let spread = learned.population.spread();
    for (at, wanted) in variances.iter().enumerate() {
        let scale = learned.basis.scales[at];
        close(spread[at * (q + 1)] / (scale * scale), *wanted);
    }
    for (row, wanted) in [39, 209].into_iter().zip(predictions) {
        let x = &clients[row / 12][row % 12].0;
        close(learned.clients[row / 12].personal.iter().zip(x).map(|(b, x)| b * x).sum(), wanted);
    }
}

#[test]
fn variances_and_predictions_are_those_of_lme4() {
    use Role::{Common, Intercept, Linear};
    by_lme4([Intercept, Common, Common], Covariance::Scalar, &[0.6930958701], 1.0090305719, [5.691393424, 5.910834942]);
    by_lme4(
        [Intercept, Linear, Common],
        Covariance::Full,
        &[0.732904917350, 0.260838386586],
        0.822452633236,
        [7.043192738, 5.446463612],
    );
    let variances = [0.736031003607, 0.258380520816, 0.048949310799];
    by_lme4([Intercept, Linear, Linear], Covariance::Full, &variances, 0.795361460315, [6.630523735, 5.495862630]);
    by_lme4(
        [Intercept, Linear, Common],
        Covariance::Diagonal,
        &[0.7327329787, 0.2608940134],
        0.8224573416,
        [7.043406016, 5.445493981],
    );
    let variances = [0.73659675257, 0.25866060775, 0.04410033965];
    by_lme4([Intercept, Linear, Linear], Covariance::Diagonal, &variances, 0.79781872486, [7.121715425, 5.442137113]);
}

#[test]
fn permuting_clients_changes_nothing() {
    let clients = draw(&around(&[vec![1.0, 2.0]], 12, 0.5, 3), 20, 1.0, 4);
    let mut turned = clients.clone();
    turned.reverse();
    let (one, other) = (
        learn(&evidence(linear(1), &clients), &Options::default()),
        learn(&evidence(linear(1), &turned), &Options::default()),
    );
    let (one, mut other) = (one.unwrap(), other.unwrap());
    other.clients.reverse();
    assert!((one.noise - other.noise).abs() < 1e-9 && distance(&one.stack, &other.stack) < 1e-6);
    for (a, b) in one.clients.iter().zip(&other.clients) {
        assert!(distance(&a.personal, &b.personal) < 1e-6 && distance(&a.served, &b.served) < 1e-6);
        assert_eq!(a.verdict(), b.verdict());
    }
}

#[test]
fn clients_with_one_row_and_columns_that_do_not_vary_do_no_harm() {
    let mut clients = draw(&around(&[vec![1.0, 2.0, 0.5]], 24, 0.4, 5), 9, 0.5, 6);
    clients[3].truncate(1);
    clients[7].truncate(2);
    clients[9].iter_mut().for_each(|(x, _)| x[2] = 0.25);
    // A fourth column that is the sum of two others.
    for (x, _) in clients.iter_mut().flatten() {
        x.push(x[1] + x[2]);
    }
    let learned = learn(&evidence(linear(3), &clients), &Options::default()).unwrap();
    assert!(learned.difference.found(), "{:?}", learned.difference);
    assert!(
        learned.clients.iter().all(|client| client.served.iter().all(|value| value.is_finite() && value.abs() < 10.0))
    );
    assert!(learned.clients.iter().all(|client| client.personal[3] == 0.0));
    assert!(
        learned.predictor(&learned.clients[3]).variance(&[1.0, 0.0, 0.0, 0.0])
            > learned.predictor(&learned.clients[0]).variance(&[1.0, 0.0, 0.0, 0.0])
    );
}

#[test]
fn a_personal_model_is_between_the_centre_and_what_rows_say() {
    let truth = around(&[vec![0.0, 4.0]], 60, 1.0, 7);
    let clients = draw(&truth, 10, 2.0, 8);
    let learned = learn(&evidence(linear(1), &clients), &Options::default()).unwrap();
    let error = |of: &dyn Fn(&LearnedClient) -> Vec<f64>| -> f64 {
        learned.clients.iter().zip(&truth).map(|(client, truth)| distance(&of(client), truth).powi(2)).sum()
    };
    let (personal, alone) = (error(&|client| client.personal.clone()), error(&|client| client.alone.clone()));
    let family = error(&|client| learned.families[client.family].centre.clone());
    assert!(personal < alone && alone < family, "{personal} {alone} {family}");
    assert!(
        (learned.spread[0] - 1.0).abs() < 0.6 && (learned.noise - 4.0).abs() < 0.8,
        "{:?} {}",
        learned.spread,
        learned.noise
    );
}

#[test]
fn noise_free_rows_are_learned_exactly() {
    let clients = draw(&around(&[vec![1.0, -2.0]], 8, 1.0, 9), 10, 0.0, 10);
    let learned = learn(&evidence(linear(1), &clients), &Options::default()).unwrap();
    for (client, rows) in learned.clients.iter().zip(&clients) {
        for (x, y) in rows {
            assert!((client.served[0] * x[0] + client.served[1] * x[1] - y).abs() < 1e-2, "{:?}", client.served);
        }
    }
}

/// How many families are found.
fn families(clients: &[Rows], seed: u64) -> usize {
    let columns = linear(clients[0][0].0.len() - 1);
    learn(&evidence(columns, clients), &Options { seed, ..Options::default() }).unwrap().families.len()
}

#[test]
fn one_population_is_one_family_and_p_values_are_even() {
    let outcome = |seed: u64| {
        let clients = draw(&around(&[vec![1.0, 2.0, -1.0]], 30, 0.0, 0), 9, 1.0, 100 + seed);
        learn(&evidence(linear(2), &clients), &Options { seed, families: Wanted::One, ..Options::default() }).unwrap()
    };
    let values: Vec<f64> = (0..40).map(|seed| outcome(seed).difference.p.unwrap()).collect();
    // Of 40: 2 expected at .05, with 7 once in a thousand times; 20 expected below .5.
    assert!(values.iter().filter(|p| **p <= 0.05).count() <= 6, "{values:?}");
    assert!((10..=30).contains(&values.iter().filter(|p| **p <= 0.5).count()), "{values:?}");
}

#[test]
fn permuted_clients_do_not_differ() {
    let differ = |seed: u64| {
        let mut rows = draw(&around(&[vec![1.0, 2.0]], 20, 1.0, seed), 12, 1.0, seed).concat();
        use rand::seq::SliceRandom;
        rows.shuffle(&mut Key::new(seed).word("permuted").rng());
        let clients: Vec<Rows> = rows.chunks(12).map(<[_]>::to_vec).collect();
        learn(&evidence(linear(1), &clients), &Options { seed, ..Options::default() }).unwrap().difference.found()
    };
    assert!((0..12).filter(|seed| differ(*seed)).count() <= 3);
}

#[test]
fn a_continuum_is_one_family_even_if_skewed() {
    let clients = around(&[vec![1.0, 2.0]], 100, 0.7, 21);
    assert_eq!(families(&draw(&clients, 20, 1.0, 22), 0), 1);
    // The square of a normal number, beyond 1, has variance 2 and a long tail on one side.
    let skewed: Vec<Vec<f64>> =
        around(&[vec![0.0, 0.0]], 100, 1.0, 23).iter().map(|c| c.iter().map(|x| x * x).collect()).collect();
    assert_eq!(families(&draw(&skewed, 20, 1.0, 24), 0), 1);
}

#[test]
fn planted_families_are_found_with_a_client_in_each_as_it_was_planted() {
    let centres = [vec![0.0, 2.0, 0.0], vec![1.0, -2.0, 0.5], vec![-1.0, 0.0, 2.5]];
    let clients = draw(&around(&centres, 60, 0.1, 25), 15, 1.0, 26);
    let learned = learn(&evidence(linear(2), &clients), &Options::default()).unwrap();
    assert_eq!(learned.families.len(), 3, "{:?}", learned.search);
    let found: Vec<usize> = learned.clients.iter().map(|client| client.family).collect();
    let truth: Vec<usize> = (0..60).map(|client| client % 3).collect();
    assert!(crate::clustering::adjusted_rand_index(&found, &truth) > 0.95);
    let stability = learned.search.stability.as_ref().unwrap();
    assert!(stability.agreement > 0.9 && stability.clients.iter().all(|share| *share > 0.5), "{stability:?}");
    for (family, centre) in learned.families.iter().zip(0..) {
        let member = found.iter().position(|label| *label == centre).unwrap();
        let (wanted, error) = (&centres[member % 3], distance(&family.centre, &centres[member % 3]));
        let sure: f64 = (0..3).map(|j| family.covariance[j * 4]).sum::<f64>().sqrt();
        assert!(error < 4.0 * sure && sure < 0.3, "{wanted:?} {error} {sure}");
    }
    // A newcomer of the second kind.
    let mut products = Products::none(3);
    draw(&centres[1..2], 10, 1.0, 27)[0].iter().for_each(|(x, y)| products.add_row(x, *y, 1.0));
    let newcomer = learned.newcomer(&products).unwrap();
    let family = newcomer.client.family;
    assert_eq!(family, found[1]);
    assert!(newcomer.client.responsibilities[family] > 0.99 && newcomer.p_values[family] > 0.001);
}

#[test]
fn known_families_are_kept_and_wished_numbers_made() {
    let centres = [vec![0.0, 1.0], vec![0.0, -1.0]];
    let clients = draw(&around(&centres, 12, 0.1, 28), 20, 1.0, 29);
    let given = evidence(linear(1), &clients);
    let labels: Vec<usize> = (0..12).map(|client| usize::from(client < 6)).collect();
    let known = learn(&given, &Options { families: Wanted::Known(labels.clone()), ..Options::default() }).unwrap();
    assert_eq!(known.clients.iter().map(|client| client.family).collect::<Vec<_>>(), labels);
    let two = learn(&given, &Options { families: Wanted::Exactly(2), ..Options::default() }).unwrap();
    let odd: Vec<usize> = two.clients.iter().map(|client| client.family).collect();
    assert_eq!(
        crate::clustering::adjusted_rand_index(&odd, &(0..12).map(|client| client % 2).collect::<Vec<_>>()),
        1.0
    );
    for wrong in [Wanted::Exactly(0), Wanted::Exactly(13), Wanted::Known(vec![0; 3]), Wanted::Known(vec![2; 12])] {
        assert!(learn(&given, &Options { families: wrong, ..Options::default() }).is_err());
    }
}

#[test]
fn families_that_are_found_have_the_spread_of_known_ones() {
    let centres = [vec![0.0, 8.0], vec![0.0, -8.0], vec![9.0, 0.0], vec![-9.0, 0.0]];
    let clients = draw(&around(&centres, 24, 1.0, 41), 30, 1.0, 42);
    let given = evidence(linear(1), &clients);
    let of = |families: Wanted| learn(&given, &Options { families, quick: true, ..Options::default() }).unwrap();
    let known = of(Wanted::Known((0..24).map(|client| client % 4).collect()));
    let found = of(Wanted::Exactly(4));
    assert!(distance(&known.spread, &found.spread) < 1e-3 * known.spread[0], "{:?} {:?}", known.spread, found.spread);
}

#[test]
fn curves_are_taken_where_they_help_and_words_of_a_place_do_no_harm() {
    let mut random = Key::new(30).rng();
    let mut client = |number: usize| {
        let shift = normal(&mut random);
        let rows = (0..25).map(|_| {
            let x = normal(&mut random);
            let mut row = vec![1.0, x, x * x - 1.0, (x * 9.0).sin()];
            row.extend((0..6).map(|place| f64::from(u8::from(place == number % 7))));
            (row, shift + x + 0.8 * x * x + [0.0, 1.0, -1.0][number % 7 % 3] + 0.5 * normal(&mut random))
        });
        rows.collect::<Rows>()
    };
    let clients: Vec<Rows> = (0..28).map(&mut client).collect();
    let columns = [vec![Role::Intercept, Role::Linear, Role::Curve(4), Role::Curve(9)], vec![Role::Linear; 6]].concat();
    let learned =
        learn(&evidence(columns, &clients), &Options { families: Wanted::One, ..Options::default() }).unwrap();
    assert!(learned.curves.contains(&4), "{:?}", learned.curves);
    assert!(
        (learned.families[0].centre[2] - 0.8).abs() < 0.1 && (learned.noise - 0.25).abs() < 0.05,
        "{:?}",
        learned.families
    );
    assert!(learned.spread[4 * 10 + 4] == 0.0, "places have one coefficient for everybody");
    assert!(learned.errors[4] < 0.35, "{:?}", learned.errors);
}

#[test]
fn folds_in_the_order_of_time_are_predicted_from_those_before() {
    let clients = draw(&around(&[vec![1.0, 2.0]], 10, 0.5, 31), 20, 1.0, 32);
    let rolling = Evidence { rolling: true, ..evidence(linear(1), &clients) };
    let learned = learn(&rolling, &Options::default()).unwrap();
    assert_eq!(learned.held_out.iter().map(|held| held.fold).collect::<Vec<_>>(), [1, 2, 3, 4]);
    // A last fold with targets of the other sign changes the model of all rows, and not what the first folds are predicted with.
    let mut changed = rolling.clone();
    for client in &mut changed.clients {
        [2, 4].iter().for_each(|&at| client[4].values[at] *= -1.0);
    }
    let other = learn(&changed, &Options::default()).unwrap();
    // Variances that a fit begins with are those of all rows.
    let first = |evidence: &Evidence| {
        let options = Options::default();
        let shape = choose(evidence, &options).unwrap();
        let draft = Draft::new(evidence, Beforehand { difference: None, shape, common: None }, &options).unwrap();
        let (fold, clients) = draft.tried().next().unwrap();
        assert_eq!(fold, 1);
        // How strongly a client's own model is held back follows all folds.
        clients.into_iter().flat_map(|four| four.into_iter().take(3)).flatten().collect::<Vec<f64>>()
    };
    let (one, two) = (first(&rolling), first(&changed));
    assert!(distance(&one, &two) < 1e-2 * distance(&one, &vec![0.0; one.len()]), "{}", distance(&one, &two));
    assert!(distance(&learned.global, &other.global) > 0.5);
}

#[test]
fn a_client_left_out_is_as_if_it_had_not_been_there() {
    for centres in [vec![vec![1.0, 2.0]], vec![vec![3.0, 2.0], vec![-3.0, -2.0]]] {
        // A place is a column of its own, which the others know nothing of.
        let mut clients = draw(&around(&centres, 24, 0.5, 41), 12, 1.0, 42);
        for (number, client) in clients.iter_mut().enumerate() {
            client.iter_mut().for_each(|(row, _)| row.push(f64::from(u8::from(number == 5))));
        }
        let columns = [linear(1), vec![Role::Common]].concat();
        let families = if centres.len() == 1 { Wanted::One } else { Wanted::Exactly(2) };
        let options = Options { families, ..Options::default() };
        let learned = learn(&evidence(columns.clone(), &clients), &options).unwrap();
        assert_eq!(learned.left_out.len(), 24);
        for client in [0, 5] {
            let mut others = clients.clone();
            others.remove(client);
            let without = learn(&evidence(columns.clone(), &others), &options).unwrap();
            let found = &learned.left_out[client];
            assert_eq!(found.client, client);
            // The variances are those of all clients.
            let apart = distance(&found.coefficients[..2], &without.unknown()[..2]);
            assert!(apart < 0.02, "{client}: {:?}, {:?}", found.coefficients, without.unknown());
            assert!(apart < 0.2 * distance(&learned.unknown()[..2], &without.unknown()[..2]), "{client}: {apart}");
            assert_eq!(client == 5, found.coefficients[2] == 0.0);
        }
    }
}

#[test]
fn what_is_learned_is_read_back() {
    let clients = draw(&around(&[vec![1.0, 2.0]], 6, 0.5, 11), 12, 1.0, 12);
    let mut learned = learn(&evidence(linear(1), &clients), &Options::default()).unwrap();
    let text = serde_json::to_string(&learned).unwrap();
    learned.held_out.clear();
    learned.left_out.clear();
    assert_eq!(serde_json::from_str::<Learned>(&text).unwrap(), learned);
}

#[test]
fn a_newcomer_with_a_clients_rows_is_that_client() {
    let clients = draw(&around(&[vec![1.0, 2.0]], 30, 0.5, 13), 12, 1.0, 14);
    let evidence = evidence(linear(1), &clients);
    let learned = learn(&evidence, &Options::default()).unwrap();
    let mut products = Products::none(2);
    evidence.clients[4].iter().for_each(|fold| products.add(fold));
    let newcomer = learned.newcomer(&products).unwrap();
    assert!(distance(&newcomer.client.personal, &learned.clients[4].personal) < 1e-9);
    assert!(distance(&newcomer.client.alone, &learned.clients[4].alone) < 1e-9);
    assert_eq!(learned.clients[4].own_choice(), None, "it is served by the stack");
    assert!(distance(&newcomer.client.served, &learned.clients[4].served) < 1e-9);
    assert!((newcomer.client.noise - learned.clients[4].noise).abs() < 1e-9);
    let row = [1.0, 0.7];
    assert!(
        (learned.predictor(&newcomer.client).variance(&row) - learned.predictor(&learned.clients[4]).variance(&row))
            .abs()
            < 1e-9
    );
    assert!(newcomer.p_values[0] > 0.01);
    // One that is nothing like the others fits none.
    let mut strange = Products::none(2);
    (0..12).for_each(|i| strange.add_row(&[1.0, f64::from(i) / 6.0 - 1.0], 30.0, 1.0));
    assert!(learned.newcomer(&strange).unwrap().p_values[0] < 1e-6);
    // Without rows, it is the centre.
    let nobody = learned.newcomer(&Products::none(2)).unwrap();
    assert!(distance(&nobody.client.personal, &learned.unknown()) < 1e-9 && nobody.p_values == [1.0]);
    assert!(
        (learned.predictor(&nobody.client).variance(&row) - learned.unknown_predictor().variance(&row)).abs() < 1e-9
    );
}

#[test]
fn wrong_evidence_is_refused() {
    let good = evidence(linear(1), &draw(&around(&[vec![1.0, 2.0]], 3, 0.5, 1), 8, 1.0, 1));
    let mut short = good.clone();
    short.clients[1].pop();
    let mut odd = good.clone();
    odd.clients[2][0].values[1] = f64::NAN;
    let empty = Evidence { clients: Vec::new(), ..good.clone() };
    let mut silent = good.clone();
    silent.clients[0] = vec![Products::none(2); FOLDS];
    let few = evidence(linear(1), &[vec![(vec![1.0, 2.0], 3.0)]]);
    for wrong in [short, odd, empty, silent, few] {
        assert!(learn(&wrong, &Options::default()).is_err());
    }
}

#[test]
fn clients_that_are_nearly_alike_are_not_told_that_joining_pays_where_it_does_not() {
    let (mut verdicts, mut wrong) = (0, 0);
    for seed in 0..8 {
        let models = around(&[vec![0.0; 3]], 60, 0.1, 100 + seed);
        let learned = learn(&evidence(linear(2), &draw(&models, 50, 1.0, 200 + seed)), &Options::default()).unwrap();
        for (client, model) in learned.clients.iter().zip(&models) {
            let gain = distance(&client.alone, model).powi(2) - distance(&client.served, model).powi(2);
            verdicts += usize::from(client.verdict() != Some(Joining::Neutral));
            wrong += usize::from(client.verdict() == Some(if gain > 0.0 { Joining::Hurts } else { Joining::Helps }));
        }
    }
    assert!(20 * wrong <= verdicts.max(20), "{wrong} of {verdicts} verdicts are wrong");
}

#[test]
fn a_full_covariance_of_more_numbers_than_clients_is_refused() {
    let clients = draw(&around(&[vec![0.0; 4]], 9, 1.0, 3), 20, 1.0, 3);
    let options = Options { covariance: Some(Covariance::Full), ..Options::default() };
    let refused = learn(&evidence(linear(3), &clients), &options).unwrap_err().to_string();
    assert!(refused.contains("full has 10 variances and covariances") && refused.contains("got 9"), "{refused}");
    let clients = draw(&around(&[vec![0.0; 4]], 10, 1.0, 3), 20, 1.0, 3);
    assert!(learn(&evidence(linear(3), &clients), &options).is_ok());
}
