//! What tests of models share.

use crate::data::{Client, DataShape, Features, Form, Shard, Targets};
use crate::error::Result;
use crate::models::{Model, ModelKind, Seat};
use crate::rng::Key;
use crate::settings::Settings;
use crate::training::{Amount, Course, Optimiser, Plan, Sample, Terms};
use rand_distr::{Distribution, StandardNormal};

/// Normal numbers.
pub(in crate::models) fn numbers(purpose: &str, count: usize) -> Vec<f64> {
    StandardNormal.sample_iter(Key::new(3).word(purpose).rng()).take(count).collect()
}

/// Compares slopes with central differences, at up to about 100 places.
pub(in crate::models) fn assert_differences(at: &[f64], slopes: &[f64], value: impl Fn(&[f64]) -> f64) {
    const STEP: f64 = 1e-5;
    let mut moved = at.to_vec();
    let largest = slopes.iter().fold(1e-3, |most: f64, slope| most.max(slope.abs()));
    for place in (0..at.len()).step_by((at.len() / 100).max(1)) {
        moved[place] = at[place] + STEP;
        let above = value(&moved);
        moved[place] = at[place] - STEP;
        let difference = (above - value(&moved)) / (2.0 * STEP);
        moved[place] = at[place];
        let gap = (difference - slopes[place]).abs();
        assert!(gap < 1e-6 * largest, "at {place}: {} is not {difference}", slopes[place]);
    }
}

/// Images of some channels, height and width, without augmentation.
pub(in crate::models) fn images([channels, height, width]: [usize; 3], classes: usize) -> DataShape {
    let form = Form::Image { channels, height, width, augment: Default::default() };
    DataShape { columns: channels * height * width, classes, form }
}

/// A model of this kind, in f64 unless it is said otherwise.
pub(in crate::models) fn build(kind: &ModelKind, settings: &str, shape: DataShape) -> Result<Box<dyn Model>> {
    let mut faults = Vec::new();
    let settings = Settings::check("model", kind.settings, toml::from_str(settings).unwrap(), &mut faults);
    assert!(faults.is_empty(), "{faults:?}");
    kind.make(&settings, shape)
}

/// A client with these rows.
pub(in crate::models) fn client(columns: usize, values: Vec<f64>, classes: &[u32]) -> Client {
    let train = Shard::new(Features::F64 { columns, values }, Targets::Classes(classes.to_vec())).unwrap();
    Client { id: "somebody".into(), test: train.clone(), train, group: None, truth: None }
}

/// The loss over all training rows and its gradient.
pub(in crate::models) fn slope(model: &dyn Model, params: &[f64], client: &Client) -> (f64, Vec<f64>) {
    let (prepared, mut out) = (std::sync::OnceLock::new(), vec![9.0; params.len()]);
    let seat = Seat { client, prepared: &prepared, may_prepare: false, secret: None };
    let loss = model.worker(&[params]).slope(params, &seat, None, &mut out);
    (loss, out)
}

/// The parameters after so many steps on batches of four.
pub(in crate::models) fn trained(
    model: &dyn Model,
    params: &[f64],
    client: &Client,
    steps: u32,
    step: f64,
) -> Vec<f64> {
    let (prepared, mut out) = (std::sync::OnceLock::new(), vec![9.0; params.len()]);
    let seat = Seat { client, prepared: &prepared, may_prepare: false, secret: None };
    let plan = Plan {
        sample: Sample { batch: Some(4), ..Sample::FULL },
        amount: Amount::Steps(steps),
        step,
        optimiser: Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 },
        terms: Terms::default(),
        course: Course::PLAIN,
    };
    model.worker(&[params]).train(0, &seat, &plan, &mut out);
    out
}

/// Compares the gradient of a whole model with differences of its loss.
pub(in crate::models) fn assert_gradient(model: &dyn Model, client: &Client) {
    let params = model.initialise(&mut Key::new(4).rng()).unwrap();
    let (_, gradient) = slope(model, &params, client);
    assert!(gradient.iter().any(|slope| slope.abs() > 1e-3));
    assert_differences(&params, &gradient, |moved| slope(model, moved, client).0);
}

/// Compares loss and gradient with those of another implementation: parameters are 0.4·sin(1 + i), features cos(2·i),
/// and of each learned tensor's gradient Σ gᵢ·cos(i) is given.
pub(in crate::models) fn assert_known(model: &dyn Model, columns: usize, classes: &[u32], loss: f64, sums: &[f64]) {
    let params: Vec<f64> = (0..model.layout().len()).map(|i| 0.4 * (1.0 + i as f64).sin()).collect();
    let values = (0..columns * classes.len()).map(|i| (2.0 * i as f64).cos()).collect();
    let (found, gradient) = slope(model, &params, &client(columns, values, classes));
    assert!((found - loss).abs() < 1e-12, "{found} for {loss}");
    for (tensor, wanted) in model.layout().tensors.iter().zip(sums) {
        let found: f64 = gradient[tensor.range()].iter().enumerate().map(|(i, g)| g * (i as f64).cos()).sum();
        assert!((found - wanted).abs() < 1e-11, "{}: {found} for {wanted}", tensor.name);
    }
}

/// The mean loss when scoring.
pub(in crate::models) fn loss(model: &dyn Model, params: &[f64], client: &Client) -> f64 {
    model.worker(&[params]).loss(0, &client.train)
}

/// Twelve images of three classes, each brighter in a part of its own, in some noise.
pub(in crate::models) fn stripes([channels, height, width]: [usize; 3]) -> Client {
    let columns = channels * height * width;
    let classes: Vec<u32> = (0..12).map(|row| row % 3).collect();
    let mut values: Vec<f64> = numbers("stripes", 12 * columns).iter().map(|value| 0.3 * value).collect();
    for (image, &class) in values.chunks_exact_mut(columns).zip(&classes) {
        image
            .iter_mut()
            .enumerate()
            .filter(|(i, _)| (i % width) * 3 / width == class as usize)
            .for_each(|(_, v)| *v += 1.0);
    }
    client(columns, values, &classes)
}

/// Training on images of 8 × 8 pixels halves the loss, and for some steps goes the same way in single precision, up to a
/// share of the way. The settings must say `precision = "f64"`.
pub(in crate::models) fn assert_training(kind: &ModelKind, settings: &str, steps: u32, share: f64) {
    let (client, shape) = (stripes([1, 8, 8]), images([1, 8, 8], 3));
    let double = build(kind, settings, shape).unwrap();
    let single = build(kind, &settings.replace("f64", "f32"), shape).unwrap();
    let start = double.initialise(&mut Key::new(1).rng()).unwrap();
    let after = trained(&*double, &start, &client, 60, 0.1);
    let (before, end) = (loss(&*double, &start, &client), loss(&*double, &after, &client));
    assert!(end < 0.5 * before, "{settings}: {before} to {end}");
    let rounded = trained(&*single, &start, &client, steps, 0.1);
    let wanted = trained(&*double, &start, &client, steps, 0.1);
    let gap = crate::num::distance(&rounded, &wanted) / crate::num::distance(&wanted, &start);
    assert!(gap > 0.0 && gap < share, "{settings}: {gap}");
}
