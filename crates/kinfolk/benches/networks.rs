//! One training step of convolutional networks (forward, loss, backward, plain descent), ours against PyTorch's eager
//! mode, both on one thread.
//!
//! The machine may be in company, so times are those of the thread on its core, each side in turns, and the best counts.
//! What a training costs before its first step is left out on both sides.

mod common;

use common::{Company, Line, apart};
use kinfolk::data::{Augment, Client, DataShape, Features, Form, Shard, Targets};
use kinfolk::error::{Error, Result};
use kinfolk::models::{Model, Seat, kind};
use kinfolk::rng::Key;
use kinfolk::settings::Settings;
use rand::RngExt;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// A network: its name, kind and settings, the images it reads, classes, images in a batch, and steps in a measurement.
struct Case {
    name: &'static str,
    kind: &'static str,
    settings: &'static str,
    image: [usize; 3],
    classes: usize,
    batch: usize,
    steps: u32,
}

const CASES: [Case; 3] = [
    Case { name: "femnist", kind: "cnn", settings: "", image: [1, 28, 28], classes: 62, batch: 50, steps: 8 },
    Case {
        name: "cifar",
        kind: "cnn",
        settings: "filters = [64, 64]\npool = 3\nnorm = \"response\"\nhidden = [384, 192]",
        image: [3, 24, 24],
        classes: 10,
        batch: 50,
        steps: 8,
    },
    Case { name: "resnet9", kind: "resnet9", settings: "", image: [3, 32, 32], classes: 10, batch: 32, steps: 2 },
];

const STEP: f64 = 0.01;
const TURNS: usize = 2;
const MEASUREMENTS: usize = 3;

fn main() -> Result<()> {
    if !common::called_by_cargo_bench() {
        return Ok(());
    }
    println!("convolutional networks: one training step on one thread, time of the thread, best of several");
    common::print_machine();
    let company = Company::watch();
    CASES.iter().try_for_each(compare)?;
    company.print();
    Ok(())
}

fn compare(case: &Case) -> Result<()> {
    let table = toml::from_str(case.settings).map_err(|error| Error::settings(error.to_string()))?;
    let Some(kind) = kind(case.kind) else { return Ok(()) };
    let settings = Settings::check("model", kind.settings, table, &mut Vec::new());
    let [channels, height, width] = case.image;
    let columns = channels * height * width;
    let form = Form::Image { channels, height, width, augment: Augment::default() };
    let model = kind.make(&settings, DataShape { columns, classes: case.classes, form })?;
    let mut rng = Key::new(0).word(case.name).rng();
    let pixels: Vec<f32> = (0..case.batch * columns).map(|_| rng.random()).collect();
    let classes: Vec<u32> = (0..case.batch).map(|_| rng.random_range(0..case.classes as u32)).collect();
    let train = Shard::new(Features::F32 { columns, values: pixels.clone() }, Targets::Classes(classes.clone()))?;
    let client = Client { id: case.name.into(), test: train.clone(), train, group: None, truth: None };
    let params = model.initialise(&mut rng)?;

    let folder = tempfile::tempdir().map_err(|error| Error::io("making", std::env::temp_dir(), error))?;
    let path = |name: &str| folder.path().join(name);
    common::write_floats(&path("pixels"), pixels.iter().map(|&pixel| f64::from(pixel)))?;
    common::write_floats(&path("labels"), classes.iter().map(|&class| f64::from(class)))?;
    common::write_floats(&path("params"), params.iter().copied())?;
    let task = |layout: &str| {
        json!({
            "folder": folder.path(), "network": case.name, "image": case.image, "classes": case.classes,
            "batch": case.batch, "steps": case.steps, "step": STEP, "threads": 1, "repetitions": MEASUREMENTS,
            "layout": layout,
        })
    };
    let python = common::python_with("torch");
    let (mut ours, mut after) = (f64::INFINITY, Vec::new());
    let mut theirs = [("planes", f64::INFINITY), ("channels last", f64::INFINITY)];
    let mut version = String::new();
    for _ in 0..TURNS {
        let (seconds, trained) = measure(&*model, &client, &params, case.steps);
        (ours, after) = (ours.min(seconds), trained);
        let Ok(python) = &python else { continue };
        for (layout, best) in &mut theirs {
            let answer = &common::run_scripts(python, "networks.py", &[task(layout)])?[0];
            *best = answer["seconds"].as_array().into_iter().flatten().filter_map(Value::as_f64).fold(*best, f64::min);
            version = answer["version"].as_str().unwrap_or_default().to_string();
        }
    }
    let mut lines = vec![Line::new("ours", ours, "")];
    for (layout, seconds) in theirs {
        let name = format!("PyTorch, {layout}");
        match &python {
            Err(why) => lines.push(Line::absent(&name, why)),
            Ok(_) => {
                let answer = common::read_floats(&path(&format!("answer {layout}")))?;
                let change = |after: &[f64]| -> Vec<f64> { after.iter().zip(&params).map(|(a, b)| a - b).collect() };
                let gap = apart(&change(&answer), &change(&after)).replace("models", "changes");
                lines.push(Line::new(&name, seconds, format!("torch {version}; {gap}")));
            }
        }
    }
    let title =
        format!("{}: {} images of {height} × {width} × {channels}, {} numbers", case.name, case.batch, params.len());
    common::print_table(&title, ("ours", ours), &lines);
    Ok(())
}

/// Seconds of a step, and the parameters after `steps` of them.
fn measure(model: &dyn Model, client: &Client, params: &[f64], steps: u32) -> (f64, Vec<f64>) {
    let prepared = OnceLock::new();
    let seat = Seat { client, prepared: &prepared, may_prepare: false, secret: None };
    let mut worker = model.worker(&[params]);
    let mut train = |steps: u32| {
        let (plan, mut out) = (common::plain_descent(steps, STEP), vec![0.0; params.len()]);
        let (seconds, _) = common::thread_time(|| worker.train(0, &seat, &plan, &mut out));
        (seconds, out)
    };
    train(1);
    let first = (0..MEASUREMENTS).map(|_| train(1).0).fold(f64::INFINITY, f64::min);
    let more = (0..MEASUREMENTS).map(|_| train(steps + 1).0).fold(f64::INFINITY, f64::min);
    ((more - first) / f64::from(steps), train(steps).1)
}
