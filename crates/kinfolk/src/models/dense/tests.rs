use super::*;
use crate::aggregate::{By, Weight};
use crate::data::{Client, DataShape, Features, Targets};
use crate::models::Precision;
use crate::models::trainer::steps::{Batches, Scratch};
use crate::num::{dot, extreme_eigenvalues};
use crate::privacy::noise::{CUT_OFF, Source};
use crate::rng::Key;
use crate::training::{Amount, Course, HiddenRows, Optimiser, Portion, Terms};
use rand_distr::{Distribution, StandardNormal};
use std::borrow::Cow;
use std::sync::OnceLock;

const PLAIN: Optimiser = Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 };
const HEAVY: Optimiser = Optimiser::Descent { momentum: 0.9, weight_decay: 0.05 };

fn rng(purpose: &str) -> Rng {
    Key::new(3).word(purpose).rng()
}

fn normals(purpose: &str, count: usize) -> Vec<f64> {
    StandardNormal.sample_iter(rng(purpose)).take(count).collect()
}

fn client(id: &str, rows: usize, columns: usize, output: Output) -> Client {
    let features = Features::F64 { columns, values: normals(id, rows * columns) };
    let mut draws = rng(&format!("targets of {id}"));
    let targets = match output {
        Output::Squared => Targets::Values(normals(&format!("values of {id}"), rows)),
        Output::Logistic => Targets::Classes((0..rows).map(|_| draws.random_range(0..2)).collect()),
        Output::Softmax => Targets::Classes((0..rows).map(|_| draws.random_range(0..3)).collect()),
    };
    let train = Shard::new(features, targets).unwrap();
    Client { id: id.into(), test: train.clone(), train, group: None, truth: None }
}

fn stack(widths: Vec<usize>, bias: bool, output: Output) -> NetworkModel<Dense> {
    let wanted = DataShape::numbers(widths[0], 0);
    NetworkModel::new(Dense::new(widths, bias, output), wanted, Precision::F64)
}

impl NetworkModel<Dense> {
    fn working<T: Real>(&self, models: &[&[f64]]) -> DenseWorker<T> {
        DenseWorker::new(self, models)
    }
}

impl<T: Real> DenseWorker<T> {
    fn plain(mut self) -> Self {
        self.fast = false;
        self
    }
}

fn stacks() -> Vec<NetworkModel<Dense>> {
    let dense = |widths: &[usize], bias, output| stack(widths.to_vec(), bias, output);
    vec![
        dense(&[5, 1], false, Output::Squared),
        dense(&[5, 1], true, Output::Logistic),
        dense(&[5, 3], true, Output::Softmax),
        dense(&[5, 4, 3], true, Output::Softmax),
        dense(&[5, 4, 6, 1], true, Output::Squared),
    ]
}

fn models(dense: &NetworkModel<Dense>, count: usize) -> Vec<Vec<f64>> {
    (0..count).map(|model| dense.network.initialise(&mut rng(&format!("model {model}")))).collect()
}

fn views(models: &[Vec<f64>]) -> Vec<&[f64]> {
    models.iter().map(Vec::as_slice).collect()
}

struct Bench {
    clients: Vec<Client>,
    prepared: Vec<OnceLock<Box<dyn std::any::Any + Send + Sync>>>,
}

impl Bench {
    fn new(sizes: &[usize], output: Output) -> Self {
        let clients = sizes.iter().enumerate().map(|(i, &rows)| client(&format!("client {i}"), rows, 5, output));
        Self { clients: clients.collect(), prepared: sizes.iter().map(|_| OnceLock::new()).collect() }
    }

    fn seats(&self) -> Vec<Seat<'_>> {
        let seat = |(client, prepared)| Seat { client, prepared, may_prepare: true, secret: None };
        self.clients.iter().zip(&self.prepared).map(seat).collect()
    }
}

fn plan(optimiser: Optimiser, steps: u32, batch: Option<u32>) -> Plan {
    Plan {
        sample: Sample { batch, ..Sample::FULL },
        amount: Amount::Steps(steps),
        step: 0.1,
        optimiser,
        terms: Terms::default(),
        course: Course::PLAIN,
    }
}

fn close(a: &[f64], b: &[f64], tolerance: f64) {
    let size = b.iter().map(|v| v * v).sum::<f64>().sqrt().max(1e-300);
    let gap = crate::num::distance(a, b) / size;
    assert!(a.len() == b.len() && gap <= tolerance, "relative distance {gap}");
}

#[test]
fn gradients_agree_with_finite_differences() {
    for dense in stacks() {
        let bench = Bench::new(&[7], dense.network.output);
        let seat = &bench.seats()[0];
        let params = models(&dense, 1).remove(0);
        let mut gradient = vec![0.0; params.len()];
        let loss = dense.working::<f64>(&[&params]).gradient(0, seat, &Sample::FULL, &mut gradient);
        assert!((loss - dense.working::<f64>(&[&params]).loss(0, &seat.client.train)).abs() < 1e-14);
        let numeric: Vec<f64> = (0..params.len())
            .map(|i| {
                let shifted = |by: f64| {
                    let mut moved = params.clone();
                    moved[i] += by;
                    dense.working::<f64>(&[&moved]).loss(0, &seat.client.train)
                };
                (shifted(1e-5) - shifted(-1e-5)) / 2e-5
            })
            .collect();
        close(&gradient, &numeric, 1e-8);
    }
}

#[test]
fn losses_and_hits_by_hand() {
    let dense = stack(vec![1, 2], false, Output::Softmax);
    let rows = Shard::new(Features::F64 { columns: 1, values: vec![1.0, 2.0] }, Targets::Classes(vec![0, 1])).unwrap();
    let score = dense.working::<f64>(&[&[1.0, 0.0]]).score(0, &rows);
    let loss = (1.0 + (-1f64).exp()).ln() + (1.0 + 2f64.exp()).ln();
    assert!((score.loss - loss).abs() < 1e-14);
    assert_eq!((score.hits, score.rows), (Some(1), 2));
    let squared = stack(vec![1, 1], false, Output::Squared);
    let rows =
        Shard::new(Features::F64 { columns: 1, values: vec![1.0, 2.0] }, Targets::Values(vec![0.0, 1.0])).unwrap();
    assert_eq!(squared.working::<f64>(&[&[3.0]]).score(0, &rows).loss, 9.0 + 25.0);
}

#[test]
fn a_large_margin_neither_overflows_nor_goes_negative() {
    for out in [[-1e4f64], [1e4]] {
        let mut slope = [0.0f64];
        let loss = row_loss(Output::Logistic, &out, Goal::Classes(&[1]), 0, Some((&mut slope, 1.0)));
        assert!(loss >= 0.0 && loss.is_finite() && slope[0].is_finite());
    }
    let out = [1e4f64, -1e4, 0.0];
    assert_eq!(row_loss(Output::Softmax, &out, Goal::Classes(&[0]), 0, None), 0.0);
    assert_eq!(row_loss(Output::Softmax, &out, Goal::Classes(&[1]), 0, None), 2e4);
}

#[test]
fn steps_fade_are_averaged_and_end_by_hand() {
    // Loss (θ − 1)²: from 0 with step 1/(2t) the gradient 2(θ − 1) leads to 1 at once and stays there.
    let dense = stack(vec![1, 1], false, Output::Squared);
    let train = Shard::new(Features::F64 { columns: 1, values: vec![1.0] }, Targets::Values(vec![1.0])).unwrap();
    let client = Client { id: "one".into(), test: train.clone(), train, group: None, truth: None };
    let seat = Seat { client: &client, prepared: &OnceLock::new(), may_prepare: true, secret: None };
    let result = |step: f64, steps: u32, course: Course, weight_decay: f64| {
        let optimiser = Optimiser::Descent { momentum: 0.0, weight_decay };
        let plan = Plan { step, course, ..plan(optimiser, steps, None) };
        let mut out = [0.0];
        dense.working::<f64>(&[&[0.0]]).train(0, &seat, &plan, &mut out);
        out[0]
    };
    // θ: 0, 1/2, 5/8, 11/16.
    let fading = Course { fading: true, ..Course::PLAIN };
    assert!((result(0.25, 3, fading, 0.0) - 0.6875).abs() < 1e-15);
    let averaged = Course { averaged: true, ..fading };
    assert!((result(0.25, 3, averaged, 0.0) - (0.5 + 2.0 * 0.625 + 3.0 * 0.6875) / 6.0).abs() < 1e-15);
    // Equal steps halve the gradient, −2 at first: it is −1/2 after two steps, −1/4 after three.
    let ending = Course { tolerance: 0.5, ..Course::PLAIN };
    assert!((result(0.25, 9, ending, 0.0) - 0.75).abs() < 1e-15);
    // Weight decay belongs to the gradient: 2(θ − 1) + 2θ vanishes at ½.
    let ending = Course { tolerance: 1e-12, ..Course::PLAIN };
    assert!((result(0.2, 1000, ending, 2.0) - 0.5).abs() < 1e-12);
}

#[test]
fn training_in_gram_form_is_training() {
    for dense in stacks() {
        let bench = Bench::new(&[4], dense.network.output);
        let seat = &bench.seats()[0];
        let params = models(&dense, 1);
        for optimiser in [PLAIN, HEAVY] {
            let plan = plan(optimiser, 6, None);
            let (mut fast, mut plain) = (vec![0.0; params[0].len()], vec![0.0; params[0].len()]);
            assert!(dense.working::<f64>(&views(&params)).gram_pays(4, &plan));
            let fast_loss = dense.working::<f64>(&views(&params)).train(0, seat, &plan, &mut fast);
            let plain_loss = dense.working::<f64>(&views(&params)).plain().train(0, seat, &plan, &mut plain);
            close(&fast, &plain, 1e-13);
            assert!((fast_loss - plain_loss).abs() < 1e-13);
        }
    }
}

#[test]
fn sums_while_computing_are_sums_of_answers() {
    let then = [
        Then::Gradient(Sample::FULL),
        Then::Train(plan(PLAIN, 5, None)),
        Then::Train(plan(HEAVY, 3, None)),
        Then::Train(plan(PLAIN, 3, Some(2))),
    ];
    for dense in stacks() {
        let bench = Bench::new(&[4, 3, 9, 2, 5, 4], dense.network.output);
        let seats = bench.seats();
        let params = models(&dense, 4);
        for then in &then {
            let among = [[0usize, 1], [2, 3]];
            let choose = |among| Choosing { among, on: Portion::All, then: Cow::Borrowed(then) };
            let steps = [choose(&among[0]), choose(&among[1])];
            let steps: Vec<&Choosing> = steps.iter().collect();
            for weight in [Weight::Uniform, Weight::Rows] {
                let summing = Summing { by: By::Choice, weight };
                let mut hints = vec![1; seats.len() * steps.len()];
                let fast = dense.working::<f64>(&views(&params)).reduce(&steps, &seats, &mut hints, summing);
                let mut untouched = vec![0; seats.len() * steps.len()];
                let mut plain = dense.working::<f64>(&views(&params)).plain();
                let plain = plain.reduce(&steps, &seats, &mut untouched, summing);
                for (fast, plain) in fast.iter().zip(&plain) {
                    assert_eq!(fast.choices, plain.choices);
                    close(&fast.losses, &plain.losses, 1e-13);
                    for (fast, plain) in fast.sums.iter().zip(&plain.sums) {
                        assert_eq!((fast.count, fast.weight), (plain.count, plain.weight));
                        close(&fast.total, &plain.total, 1e-12);
                    }
                }
            }
        }
    }
}

#[test]
fn a_choice_does_not_depend_on_where_it_looks_first() {
    let dense = stack(vec![5, 4, 3], true, Output::Softmax);
    let bench = Bench::new(&[90, 33, 200, 16], dense.network.output);
    let mut params = models(&dense, 4);
    params.push(params[1].clone()); // A tie, which must go to the first.
    params[3][0] = f64::NAN; // Never chosen.
    for seat in bench.seats() {
        let choices: Vec<Choice> = (0..5)
            .map(|hint| dense.working::<f32>(&views(&params)).choose(&[0, 1, 2, 3, 4], hint, &seat.client.train))
            .collect();
        let plain = dense.working::<f32>(&views(&params)).plain().choose(&[0, 1, 2, 3, 4], 0, &seat.client.train);
        assert!(choices.iter().all(|choice| *choice == plain), "{choices:?} {plain:?}");
        assert!(plain.position < 3);
    }
}

#[test]
fn adam_takes_a_first_step_of_its_step_size() {
    let mut scratch = Scratch::default();
    scratch.begin(2);
    scratch.gradient.copy_from_slice(&[3.0, -0.5]);
    let mut params = vec![1.0, 1.0];
    scratch.apply(Optimiser::Adam { weight_decay: 0.0 }, 0.1, &mut params);
    close(&params, &[0.9, 1.1], 1e-7);
    // Second step, by hand: m = 0.9·0.1·g + 0.1·g, v likewise; bias correction leaves g and g².
    scratch.apply(Optimiser::Adam { weight_decay: 0.0 }, 0.1, &mut params);
    close(&params, &[0.8, 1.2], 1e-7);
}

#[test]
fn batches_see_every_row_once_a_pass() {
    let sample = Sample { batch: Some(3), ..Sample::FULL };
    let mut batches = Batches::new(8, &sample, "a");
    for _ in 0..2 {
        let mut seen: Vec<u32> = (0..3).flat_map(|_| batches.next().unwrap().to_vec()).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
    assert!(Batches::new(8, &Sample { batch: Some(8), ..Sample::FULL }, "a").next().is_none());
}

#[test]
fn mini_batch_steps_by_hand() {
    // One weight, two rows with x = 1: whichever row comes first, θ moves by −0.1·2(θ − y) each time.
    let dense = stack(vec![1, 1], false, Output::Squared);
    let rows =
        Shard::new(Features::F64 { columns: 1, values: vec![1.0, 1.0] }, Targets::Values(vec![5.0, 5.0])).unwrap();
    let client = Client { id: "a".into(), test: rows.clone(), train: rows, group: None, truth: None };
    let prepared = OnceLock::new();
    let seat = Seat { client: &client, prepared: &prepared, may_prepare: true, secret: None };
    let mut out = [0.0];
    let loss = dense.working::<f64>(&[&[0.0]]).train(0, &seat, &plan(PLAIN, 2, Some(1)), &mut out);
    assert_eq!(loss, 25.0);
    assert!((out[0] - (1.0 + 0.8)).abs() < 1e-15);
}

#[test]
fn slopes_are_gradients_and_those_of_single_rows_average_to_the_whole() {
    for dense in stacks() {
        let bench = Bench::new(&[7, 40], dense.network.output);
        let params = models(&dense, 1).remove(0);
        for seat in &bench.seats() {
            let [mut wanted, mut whole, mut plain, mut average] = [(); 4].map(|()| vec![0.0; params.len()]);
            let mut worker = dense.working::<f64>(&[&params]);
            let loss = worker.gradient(0, seat, &Sample::FULL, &mut wanted);
            assert!((worker.slope(&params, seat, None, &mut whole) - loss).abs() < 1e-13 * loss);
            close(&whole, &wanted, 1e-13);
            dense.working::<f64>(&[]).plain().slope(&params, seat, None, &mut plain);
            close(&plain, &wanted, 1e-13);
            let rows = seat.client.train.len() as u32;
            let mut losses = 0.0;
            for row in 0..rows {
                losses += worker.slope(&params, seat, Some(&[row]), &mut whole) / f64::from(rows);
                add_scaled(&mut average, 1.0 / f64::from(rows), &whole);
            }
            close(&average, &wanted, 1e-13);
            assert!((losses - loss).abs() < 1e-13 * loss);
        }
    }
}

#[test]
fn single_outputs_train_alike_row_by_row_by_moments_and_plainly() {
    for (bias, output) in [(false, Output::Squared), (true, Output::Squared), (true, Output::Logistic)] {
        for columns in [1, 3, 5] {
            let dense = stack(vec![columns, 1], bias, output);
            for rows in [columns + 2, 16, 37] {
                let client = client("narrow", rows, columns, output);
                let prepared = OnceLock::new();
                let seat = Seat { client: &client, prepared: &prepared, may_prepare: true, secret: None };
                let params = models(&dense, 1).remove(0);
                for steps in [1, 9] {
                    let plan = plan(PLAIN, steps, None);
                    let (mut fast, mut plain) = (vec![0.0; params.len()], vec![0.0; params.len()]);
                    let loss = dense.working::<f64>(&[&params]).train(0, &seat, &plan, &mut fast);
                    let wanted = dense.working::<f64>(&[&params]).plain().train(0, &seat, &plan, &mut plain);
                    assert!((loss - wanted).abs() < 1e-12 * wanted, "{loss} {wanted}");
                    close(&fast, &plain, 1e-12);
                }
            }
        }
    }
}

#[test]
fn losses_far_from_the_rows_are_neither_infinite_nor_lost() {
    let dense = stack(vec![1, 1], false, Output::Logistic);
    let features = Features::F64 { columns: 1, values: vec![1.0, -1.0, 1.0] };
    let train = Shard::new(features, Targets::Classes(vec![1, 0, 0])).unwrap();
    let client = Client { id: "far".into(), test: train.clone(), train, group: None, truth: None };
    let prepared = OnceLock::new();
    let seat = Seat { client: &client, prepared: &prepared, may_prepare: true, secret: None };
    let mut slope = [0.0];
    // Two rows are right beyond doubt, the third is as wrong as can be: its loss is the log odds.
    let loss = dense.working::<f64>(&[]).slope(&[2000.0], &seat, None, &mut slope);
    assert!((loss - 2000.0 / 3.0).abs() < 1e-9 && (slope[0] - 1.0 / 3.0).abs() < 1e-12, "{loss} {slope:?}");
}

#[test]
fn quadratics_agree_with_the_loss_up_to_second_derivatives() {
    for (bias, output) in [(false, Output::Squared), (true, Output::Logistic)] {
        let dense = stack(vec![3, 1], bias, output);
        let client = client("quadratic", 20, 3, output);
        let prepared = OnceLock::new();
        let seat = Seat { client: &client, prepared: &prepared, may_prepare: true, secret: None };
        let params = models(&dense, 1).remove(0);
        let size = params.len();
        let model = &dense.network;
        let quadratic = model.quadratic(&client.train, &params, 7.0);
        let mut worker = dense.working::<f64>(&[&params]);
        assert!((quadratic.value(&params) - 7.0 * worker.loss(0, &client.train)).abs() < 1e-12);
        let mut slope_at = |moved: &[f64]| {
            let mut slope = vec![0.0; size];
            worker.slope(moved, &seat, None, &mut slope);
            slope
        };
        // Its gradient here is the loss's, and its curvature is how that changes.
        let bent = quadratic.curvature.chunks(size).zip(&quadratic.moment);
        let gradient: Vec<f64> = bent.map(|(row, moment)| dot(row, &params) - moment).collect();
        let scaled: Vec<f64> = slope_at(&params).iter().map(|slope| 7.0 * slope).collect();
        close(&gradient, &scaled, 1e-12);
        for place in 0..size {
            let mut shifted = |by: f64| {
                let mut moved = params.clone();
                moved[place] += by;
                slope_at(&moved)
            };
            let (up, down) = (shifted(1e-5), shifted(-1e-5));
            let change: Vec<f64> = up.iter().zip(&down).map(|(up, down)| 7.0 * (up - down) / 2e-5).collect();
            close(&quadratic.curvature[place * size..(place + 1) * size], &change, 1e-7);
        }
        // Moved along any axis, the curvature changes as it says.
        let weights = normals("weights", size * size);
        let gradient = model.curvature_gradient(&client.train, &params, 7.0, &weights);
        for place in 0..size {
            let weigh = |by: f64| {
                let mut moved = params.clone();
                moved[place] += by;
                dot(&model.quadratic(&client.train, &moved, 7.0).curvature, &weights)
            };
            let change = (weigh(1e-5) - weigh(-1e-5)) / 2e-5;
            assert!((gradient[place] - change).abs() < 1e-7, "{} {change}", gradient[place]);
        }
        // The bounds hold here: nowhere does it curve more than at most, or less than at least.
        let [most, least, single] = model.curvatures(&client.train);
        let (low, high) = extreme_eigenvalues(&quadratic.curvature, size);
        assert!(high <= 7.0 * most * (1.0 + 1e-12) && low >= 7.0 * least * (1.0 - 1e-12) && single >= most);
        assert!(output != Output::Squared || (high - 7.0 * most).abs() < 1e-9);
    }
}

/// A step that hides rows as the mean of all rows' gradients, each found alone and cut to a length.
#[test]
fn hidden_steps_are_means_of_cut_gradients() {
    for dense in stacks() {
        let bench = Bench::new(&[7], dense.network.output);
        let seat = &bench.seats()[0];
        let params = models(&dense, 1).remove(0);
        let of_row = |row: u32| {
            let mut gradient = vec![0.0; params.len()];
            dense.working::<f64>(&[&params]).slope(&params, seat, Some(&[row]), &mut gradient);
            gradient
        };
        let gradients: Vec<Vec<f64>> = (0..7).map(of_row).collect();
        let mut lengths: Vec<f64> = gradients.iter().map(|gradient| crate::num::norm(gradient)).collect();
        lengths.sort_by(f64::total_cmp);
        // Some are cut, some are not; all; none.
        for clip in [lengths[3], lengths[0] / 2.0, lengths[6] * 2.0] {
            let mut wanted = params.clone();
            for gradient in &gradients {
                let share = (clip / crate::num::norm(gradient)).min(1.0);
                add_scaled(&mut wanted, -0.1 * share / 7.0, gradient);
            }
            let hidden = HiddenRows { rate: 1.0, clip, noise: 0.0, source: Source::Seed(1) };
            let plan =
                Plan { terms: Terms { hidden: Some(Box::new(hidden)), ..Terms::default() }, ..plan(PLAIN, 1, None) };
            let mut found = vec![0.0; params.len()];
            let loss = dense.working::<f64>(&[&params]).train(0, seat, &plan, &mut found);
            assert_eq!(loss, 0.0, "a loss tells of the rows");
            // Cut off to the grid.
            assert!(crate::num::distance(&found, &wanted) < 0.1 * clip / 7.0 * CUT_OFF * 1.01);
        }
    }
}

/// Noise and samples of a step: what one row more changes of the mean is hidden behind noise of so many times that.
#[test]
fn hidden_steps_have_the_ordered_noise() {
    let dense = stack(vec![5, 3], true, Output::Softmax);
    let bench = Bench::new(&[40], Output::Softmax);
    let (seat, params) = (&bench.seats()[0], models(&dense, 1).remove(0));
    let trained = |seed: u64, rate: f64, noise: f64| {
        let hidden = HiddenRows { rate, clip: 0.5, noise, source: Source::Seed(seed) };
        let plan = Plan {
            step: 1.0,
            terms: Terms { hidden: Some(Box::new(hidden)), ..Terms::default() },
            ..plan(PLAIN, 1, None)
        };
        let mut found = vec![0.0; params.len()];
        dense.working::<f64>(&[&params]).train(0, seat, &plan, &mut found);
        found
    };
    let exact = trained(0, 1.0, 0.0);
    let square = |seed: u64| crate::num::squared_distance(&trained(seed, 1.0, 3.0), &exact) / params.len() as f64;
    let deviation = ((0..200).map(square).sum::<f64>() / 200.0).sqrt();
    // 18 · 200 numbers: a standard error of 1.2 %.
    assert!((deviation / (3.0 * 0.5 / 40.0) - 1.0).abs() < 0.05, "{deviation}");
    // The mean over samples is that of all rows.
    let mut mean = vec![0.0; params.len()];
    (0..2000).for_each(|seed| add_scaled(&mut mean, 1.0 / 2000.0, &trained(seed, 0.3, 0.0)));
    let (gap, step) = (crate::num::distance(&mean, &exact), crate::num::distance(&exact, &params));
    assert!(gap < 0.1 * step, "{gap} {step}");
    assert_eq!(trained(1, 0.3, 1.0), trained(1, 0.3, 1.0));
    assert_ne!(trained(1, 0.3, 1.0), trained(2, 0.3, 1.0));
}
