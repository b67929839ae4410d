//! The worker of networks, with about the smallest network there is and a dense layer as its oracle.

use super::*;
use crate::data::{Augment, Features, Form, Targets};
use crate::models::TensorPlace;
use crate::models::dense::Dense;
use crate::models::first_smallest;
use crate::models::layers::{Builder, Sequence, Size};
use crate::num::{Matrix, multiply};
use crate::training::Pull;
use crate::training::{Amount, Course, Optimiser, Portion, Terms};
use rand::RngExt;
use std::sync::OnceLock;

const COLUMNS: usize = 4;
const CLASSES: usize = 3;

/// One dense layer, and the running mean of the first feature as a statistic. Drops whole batches.
struct Small {
    layout: Layout,
    drops: bool,
}

#[derive(Default)]
struct SmallMemory {
    mean: f64,
    dropped: bool,
}

impl Small {
    fn new(drops: bool) -> Self {
        let weight = TensorPlace { name: "weight".into(), shape: vec![CLASSES, COLUMNS], offset: 0 };
        let mean = TensorPlace { name: "mean".into(), shape: vec![1], offset: CLASSES * COLUMNS };
        Self { layout: Layout { tensors: vec![weight, mean] }, drops }
    }
}

impl Network for Small {
    type Memory<T: Real> = SmallMemory;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn learned(&self) -> usize {
        CLASSES * COLUMNS
    }

    fn initialise(&self, _rng: &mut Rng) -> Vec<f64> {
        (0..13).map(|i| f64::from(i) * 0.3 % 1.0 - 0.5).collect()
    }

    fn outputs(&self) -> usize {
        CLASSES
    }

    fn fault(&self, rows: &Shard) -> Option<String> {
        (rows.len() == 1).then(|| "are lonely".into())
    }

    fn forward<T: Real>(
        &self,
        params: &[T],
        x: &[T],
        rows: usize,
        pass: Pass,
        memory: &mut SmallMemory,
        out: &mut [T],
    ) {
        memory.dropped = false;
        if let Pass::Train(rng) = pass {
            memory.mean = x.chunks_exact(COLUMNS).map(|row| row[0].to_f64()).sum::<f64>() / rows as f64;
            memory.dropped = self.drops && rng.is_some_and(|rng| rng.random::<bool>());
        }
        let weight = Matrix::new(&params[..CLASSES * COLUMNS], CLASSES, COLUMNS);
        multiply(out, T::ONE, Matrix::new(x, rows, COLUMNS), weight.transpose());
        if memory.dropped {
            out.fill(T::ZERO);
        }
    }

    fn backward<T: Real>(
        &self,
        _params: &[T],
        x: &[T],
        rows: usize,
        slopes: &[T],
        memory: &mut SmallMemory,
        gradient: &mut [T],
    ) {
        let scale = if memory.dropped { T::ZERO } else { T::ONE };
        multiply(gradient, scale, Matrix::new(slopes, rows, CLASSES).transpose(), Matrix::new(x, rows, COLUMNS));
    }

    fn update_statistics<T: Real>(&self, memory: &SmallMemory, statistics: &mut [T]) {
        statistics[0] = T::of(memory.mean);
    }
}

fn model(drops: bool, smoothing: f64, augment: Augment) -> NetworkModel<Small> {
    let form = Form::Image { channels: 1, height: 2, width: 2, augment };
    let wanted = DataShape { columns: COLUMNS, classes: CLASSES, form };
    NetworkModel { smoothing, ..NetworkModel::new(Small::new(drops), wanted, Precision::F64) }
}

fn plain() -> NetworkModel<Small> {
    model(false, 0.0, Augment::default())
}

/// The same layer as a dense stack.
fn oracle() -> NetworkModel<Dense> {
    let dense = Dense::new(vec![COLUMNS, CLASSES], false, Output::Softmax);
    NetworkModel::new(dense, DataShape::numbers(COLUMNS, CLASSES), Precision::F64)
}

fn client(rows: usize) -> Client {
    let mut rng = Key::new(5).word("rows").rng();
    let values = (0..rows * COLUMNS).map(|_| rng.random_range(-1.0..1.0)).collect();
    let classes = (0..rows).map(|_| rng.random_range(0..CLASSES as u32)).collect();
    let train = Shard::new(Features::F64 { columns: COLUMNS, values }, Targets::Classes(classes)).unwrap();
    Client { id: "somebody".into(), test: train.clone(), train, group: None, truth: None }
}

fn plan(optimiser: Optimiser, batch: Option<u32>) -> Plan {
    Plan {
        sample: Sample { batch, seed: 9, on: Portion::All },
        amount: Amount::Epochs(3),
        step: 0.2,
        optimiser,
        terms: Terms::default(),
        course: Course::PLAIN,
    }
}

const PLAIN: Optimiser = Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 };
const HEAVY: Optimiser = Optimiser::Descent { momentum: 0.9, weight_decay: 0.1 };

/// The trained parameters, and the loss before the first step.
fn train(model: &dyn Model, client: &Client, models: &[&[f64]], plan: &Plan) -> (Vec<f64>, f64) {
    let prepared = OnceLock::new();
    let mut out = vec![0.0; models[0].len()];
    let seat = Seat { client, prepared: &prepared, may_prepare: false, secret: None };
    let loss = model.worker(models).train(0, &seat, plan, &mut out);
    (out, loss)
}

fn begin(model: &dyn Model) -> Vec<f64> {
    model.initialise(&mut Key::new(0).rng()).unwrap()
}

fn assert_close(a: &[f64], b: &[f64]) {
    let gap = crate::num::distance(a, b);
    assert!(a.len() == b.len() && gap < 1e-12, "{gap}: {a:?} and {b:?}");
}

#[test]
fn every_way_of_training_is_that_of_a_dense_layer() {
    let (model, client) = (plain(), client(70));
    let start = begin(&model);
    let centre: Vec<f64> = start.iter().map(|value| value + 1.0).collect();
    let (short, short_centre) = (&start[..12], &centre[..12]);
    let pulls = vec![Pull { centre: 1, strength: 0.7 }];
    let course = Course { fading: true, averaged: true, tolerance: 0.0 };
    let plans = [
        plan(PLAIN, Some(16)),
        plan(HEAVY, Some(16)),
        plan(Optimiser::Adam { weight_decay: 0.1 }, Some(16)),
        Plan { terms: Terms { pulls: pulls.clone(), ..Terms::default() }, ..plan(PLAIN, Some(16)) },
        Plan { terms: Terms { pulls, ..Terms::default() }, course, ..plan(HEAVY, None) },
        Plan { course: Course { tolerance: 0.3, ..course }, ..plan(PLAIN, Some(16)) },
    ];
    for plan in plans {
        let (found, loss) = train(&model, &client, &[&start, &centre], &plan);
        let (wanted, wanted_loss) = train(&oracle(), &client, &[short, short_centre], &plan);
        assert_close(&found[..12], &wanted);
        assert!((loss - wanted_loss).abs() < 1e-13, "{loss} and {wanted_loss}");
        assert!((found[..12].iter().zip(short)).any(|(a, b)| a != b), "{plan:?} changed nothing");
    }
}

#[test]
fn scores_gradients_and_slopes_are_those_of_a_dense_layer() {
    let (model, client) = (plain(), client(150));
    let start = begin(&model);
    let prepared = OnceLock::new();
    let seat = Seat { client: &client, prepared: &prepared, may_prepare: false, secret: None };
    let (oracle, sample) = (oracle(), Sample { batch: Some(20), ..Sample::FULL });
    let (mut worker, mut wanted) = (NetworkWorker::<_, f64>::new(&model, &[&start]), oracle.worker(&[&start[..12]]));
    let (found, dense) = (worker.score(0, &client.train), wanted.score(0, &client.train));
    assert!((found.loss - dense.loss).abs() < 1e-11 && found.hits == dense.hits && found.rows == 150);
    let (mut out, mut dense_out) = (vec![9.0; 13], vec![9.0; 12]);
    worker.gradient(0, &seat, &sample, &mut out);
    wanted.gradient(0, &seat, &sample, &mut dense_out);
    assert_close(&out[..12], &dense_out);
    assert_eq!(out[12], 0.0);
    worker.slope(&start, &seat, Some(&[3, 1, 99]), &mut out);
    wanted.slope(&start[..12], &seat, Some(&[3, 1, 99]), &mut dense_out);
    assert_close(&out[..12], &dense_out);
}

/// Two dense layers, with dropout between them or without.
fn large(chance: f64) -> NetworkModel<Sequence> {
    let mut builder = Builder::new(Size { height: 2, width: 2, channels: 1 }, "");
    builder.dense("first", 5, true, true);
    builder.drop_out(chance);
    builder.dense("second", CLASSES, true, false);
    let NetworkModel { wanted, precision, .. } = plain();
    NetworkModel { smoothing: 0.2, ..NetworkModel::new(builder.build(), wanted, precision) }
}

#[test]
fn chunks_of_a_large_batch_give_its_gradient() {
    let client = client(300);
    let prepared = OnceLock::new();
    let seat = Seat { client: &client, prepared: &prepared, may_prepare: false, secret: None };
    for chance in [0.0, 0.5] {
        let model = large(chance);
        let start = begin(&model);
        let mut worker = NetworkWorker::<_, f64>::new(&model, &[&start]);
        let (mut whole, mut one) = (vec![9.0; start.len()], vec![0.0; start.len()]);
        let loss = worker.slope(&start, &seat, None, &mut whole);
        assert_eq!(worker.buffers.pass.outputs.len(), 100 * CLASSES);
        let (mut sum, mut losses) = (vec![0.0; start.len()], 0.0);
        for row in 0..300 {
            losses += worker.slope(&start, &seat, Some(&[row]), &mut one) / 300.0;
            add_scaled(&mut sum, 1.0 / 300.0, &one);
        }
        assert_close(&whole, &sum);
        assert!((loss - losses).abs() < 1e-13, "{loss} and {losses}");

        let sample = Sample { seed: 9, ..Sample::FULL };
        worker.gradient(0, &seat, &sample, &mut whole);
        assert_eq!(chance > 0.0, crate::num::distance(&whole, &sum) > 1e-3);
        let wanted: Vec<f64> = start.iter().zip(&whole).map(|(p, g)| p - 0.2 * g).collect();
        let plan = Plan { amount: Amount::Steps(1), ..plan(PLAIN, None) };
        assert_close(&train(&model, &client, &[&start], &plan).0, &wanted);
    }
}

#[test]
fn rows_go_together_by_their_number_alone() {
    let model = large(0.0);
    assert_eq!([1, 128, 129, 256, 257, 1000].map(|rows| model.rows_at_once(rows)), [1, 128, 65, 128, 86, 125]);
    assert_eq!(plain().rows_at_once(1000), 1000);
}

#[test]
fn statistics_are_brought_up_to_date_and_left_alone_by_all_else() {
    let (model, client) = (plain(), client(40));
    let start = begin(&model);
    let centre = vec![100.0; 13];
    let rows: Vec<f64> = match &**client.train.features() {
        Features::F64 { values, .. } => values.clone(),
        _ => unreachable!(),
    };
    let mean = rows.chunks_exact(COLUMNS).map(|row| row[0]).sum::<f64>() / 40.0;
    for optimiser in [PLAIN, HEAVY, Optimiser::Adam { weight_decay: 0.5 }] {
        let pulls = vec![Pull { centre: 1, strength: 0.1 }];
        let (found, _) = train(
            &model,
            &client,
            &[&start, &centre],
            &Plan { terms: Terms { pulls, ..Terms::default() }, ..plan(optimiser, None) },
        );
        assert!((found[12] - mean).abs() < 1e-14, "{} for {mean}", found[12]);
    }
}

#[test]
fn nothing_is_dropped_when_scoring_or_for_a_slope() {
    let (model, client) = (model(true, 0.0, Augment::default()), client(64));
    let start = begin(&model);
    let prepared = OnceLock::new();
    let seat = Seat { client: &client, prepared: &prepared, may_prepare: false, secret: None };
    let (mut dropping, whole) = (NetworkWorker::<_, f64>::new(&model, &[&start]), plain());
    let mut plain = NetworkWorker::<_, f64>::new(&whole, &[&start]);
    let (mut out, mut wanted) = (vec![0.0; 13], vec![0.0; 13]);
    for _ in 0..8 {
        assert_eq!(dropping.score(0, &client.train), plain.score(0, &client.train));
        dropping.slope(&start, &seat, None, &mut out);
        plain.slope(&start, &seat, None, &mut wanted);
        assert_eq!(out, wanted);
    }
    let gradients = (0..8).map(|seed| {
        dropping.gradient(0, &seat, &Sample { seed, ..Sample::FULL }, &mut out);
        out.iter().all(|&value| value == 0.0)
    });
    let dropped = gradients.filter(|&dropped| dropped).count();
    assert!((1..8).contains(&dropped), "{dropped}");
}

#[test]
fn augmentation_is_drawn_from_the_order_and_only_in_training() {
    let moving = model(false, 0.0, Augment { flip: true, crop: 1 });
    let (still, client) = (plain(), client(64));
    let start = begin(&moving);
    let seeded = |seed| {
        let mut plan = plan(PLAIN, Some(16));
        plan.sample.seed = seed;
        plan
    };
    let (first, _) = train(&moving, &client, &[&start], &seeded(1));
    assert_eq!(first, train(&moving, &client, &[&start], &seeded(1)).0);
    assert_ne!(first, train(&moving, &client, &[&start], &seeded(2)).0);
    assert_ne!(first, train(&still, &client, &[&start], &seeded(1)).0);
    let score = |model: &NetworkModel<Small>| NetworkWorker::<_, f64>::new(model, &[&start]).score(0, &client.train);
    assert_eq!(score(&moving), score(&still));
}

#[test]
fn smoothing_moves_the_target_by_hand() {
    // Scores 2, 0, 1 of class 0: with ε the loss is log Σe^s − (1 − ε)·2 − ε·1.
    let values = vec![1.0, 0.0, 0.0, 0.0];
    let train = Shard::new(Features::F64 { columns: COLUMNS, values }, Targets::Classes(vec![0])).unwrap();
    let client = Client { id: "one".into(), test: train.clone(), train, group: None, truth: None };
    let (prepared, mut start) = (OnceLock::new(), vec![0.0; 13]);
    (start[0], start[8]) = (2.0, 1.0);
    let seat = Seat { client: &client, prepared: &prepared, may_prepare: false, secret: None };
    let model = model(false, 0.3, Augment::default());
    let mut out = vec![0.0; 13];
    let loss = NetworkWorker::<_, f64>::new(&model, &[&start]).slope(&start, &seat, None, &mut out);
    let total = 2f64.exp() + 1.0 + 1f64.exp();
    assert!((loss - (total.ln() - 1.7)).abs() < 1e-14, "{loss}");
    let chances = [2f64.exp() / total - 0.8, 1.0 / total - 0.1, 1f64.exp() / total - 0.1];
    assert_close(&[out[0], out[4], out[8]], &chances);
    let plain = NetworkWorker::<_, f64>::new(&model, &[&start]).loss(0, &client.train);
    assert!((plain - (total.ln() - 2.0)).abs() < 1e-14, "{plain}");
}

#[test]
fn what_a_network_cannot_do_it_says() {
    let model = plain();
    assert!(model.convex().is_none() && model.curvature(1.0).is_none());
    let refused = (&model as &dyn Model).want_convex().err().unwrap().to_string();
    assert!(refused.contains("neither an exact minimiser nor second derivatives"), "{refused}");
    assert!(model.check(&client(3)).is_ok());
    let refused = model.check(&client(1)).unwrap_err().to_string();
    assert!(refused.contains("client somebody: training rows are lonely"), "{refused}");
}

#[test]
fn a_choice_with_early_exit_is_that_by_all_losses() {
    for rows in [2, 16, 70, 150] {
        let (model, client) = (plain(), client(rows));
        let start = begin(&model);
        let scaled = |factor: f64| -> Vec<f64> { start.iter().map(|value| factor * value).collect() };
        // A tie, which goes to the first, and a model that gives no numbers.
        let candidates = [scaled(3.0), scaled(-2.0), start.clone(), scaled(f64::NAN), start.clone(), scaled(0.0)];
        let models: Vec<&[f64]> = candidates.iter().map(Vec::as_slice).collect();
        let mut worker = NetworkWorker::<_, f64>::new(&model, &models);
        let among = [0, 1, 2, 3, 4, 5];
        let wanted = first_smallest(worker.losses(&among, &client.train).into_iter());
        for hint in 0..7 {
            let found = worker.choose(&among, hint, &client.train);
            assert_eq!(found.position, wanted.position, "{rows} rows, hint {hint}");
            assert!((found.loss - wanted.loss).abs() < 1e-14 * wanted.loss);
        }
    }
}
