//! A stacked LSTM on texts (SR-FCA's Shakespeare network), one thread: a step of descent and a pass forward, ours against
//! PyTorch from the same parameters on the same rows.
//!
//! Times are processor time of the one thread, the best of several turns that both sides take alternately, so that other
//! work on the machine spoils little.

mod common;

use common::{Company, Line, apart};
use kinfolk::data::{Client, DataShape, Features, Form, Shard, Targets};
use kinfolk::error::Result;
use kinfolk::models::{Seat, Worker, kind};
use kinfolk::rng::Key;
use kinfolk::settings::Settings;
use rand::RngExt;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::OnceLock;

const LENGTH: usize = 80;
const SYMBOLS: usize = 80;
const STEP: f64 = 0.1;
const TURNS: usize = 3;

/// Rows of a batch, and steps that are timed together.
const BATCHES: [(usize, u32); 2] = [(10, 10), (50, 3)];

fn main() -> Result<()> {
    if !common::called_by_cargo_bench() {
        return Ok(());
    }
    println!(
        "lstm: embedding 8, 2 layers of 256 units, {LENGTH} of {SYMBOLS} symbols a row, single precision, one thread"
    );
    common::print_machine();
    let company = Company::watch();
    BATCHES.iter().try_for_each(|&(rows, steps)| compare(rows, steps))?;
    company.print();
    Ok(())
}

fn compare(rows: usize, steps: u32) -> Result<()> {
    let lstm = kind("lstm").ok_or_else(|| kinfolk::Error::settings("no such model"))?;
    let settings = Settings::check("model", lstm.settings, toml::Table::new(), &mut Vec::new());
    let shape = DataShape { columns: LENGTH, classes: SYMBOLS, form: Form::Text { symbols: SYMBOLS } };
    let model = lstm.make(&settings, shape)?;
    let mut rng = Key::new(0).word("text").rng();
    let symbols: Vec<u8> = (0..rows * LENGTH).map(|_| rng.random_range(0..SYMBOLS as u8)).collect();
    let classes: Vec<u8> = (0..rows).map(|_| rng.random_range(0..SYMBOLS as u8)).collect();
    let mut params = model.initialise(&mut rng)?;
    model.precision().round(&mut params);

    let folder = tempfile::tempdir().map_err(|error| kinfolk::Error::io("making", std::env::temp_dir(), error))?;
    common::write_bytes(&folder.path().join("symbols"), &symbols)?;
    common::write_bytes(&folder.path().join("classes"), &classes)?;
    common::write_floats(&folder.path().join("params"), params.iter().copied())?;

    let features = Features::Symbols { columns: LENGTH, values: symbols };
    let train = Shard::new(features, Targets::Classes(classes.iter().map(|&class| u32::from(class)).collect()))?;
    let client = Client { id: "poet".into(), test: train.clone(), train, group: None, truth: None };
    let mut worker = model.worker(&[&params]);
    let mut trained = vec![0.0; params.len()];
    step(&mut *worker, &client, steps, &mut trained);
    let (mut ours, mut theirs, mut answers) = ([f64::INFINITY; 2], [f64::INFINITY; 2], Vec::new());
    let python = common::python_with("torch");
    for _ in 0..TURNS {
        for _ in 0..2 {
            let (training, ()) = common::thread_time(|| step(&mut *worker, &client, steps, &mut trained));
            let scores = || (0..steps).for_each(|_| _ = worker.score(0, &client.test));
            let (scoring, ()) = common::thread_time(scores);
            ours = [ours[0].min(training / f64::from(steps)), ours[1].min(scoring / f64::from(steps))];
        }
        if let Ok(python) = &python {
            let answer = pytorch(python, folder.path(), rows, steps)?;
            for (best, name) in theirs.iter_mut().zip(["train", "score"]) {
                let times = answer[name].as_array().into_iter().flatten().filter_map(Value::as_f64);
                *best = times.fold(*best, f64::min);
            }
            answers.push(answer);
        }
    }
    let [mut stepping, mut scoring] = [("ours, a step", ours[0]), ("ours, a pass forward", ours[1])]
        .map(|(what, time)| vec![Line::new(what, time, "")]);
    match (python, answers.first()) {
        (Ok(_), Some(answer)) => {
            let after = common::read_floats(&folder.path().join("answer"))?;
            let note = format!("torch {}; {}", answer["version"].as_str().unwrap_or_default(), apart(&after, &trained));
            stepping.push(Line::new("PyTorch, a step", theirs[0], note));
            scoring.push(Line::new("PyTorch, a pass forward", theirs[1], ""));
        }
        (python, _) => stepping.push(Line::absent("PyTorch", &python.err().unwrap_or_default())),
    }
    common::print_table(&format!("{rows} rows: training"), ("ours", ours[0]), &stepping);
    common::print_table(&format!("{rows} rows: scoring"), ("ours", ours[1]), &scoring);
    if theirs[0].is_finite() {
        println!(
            "  ours takes {:.2} of PyTorch's time to train, {:.2} to score",
            ours[0] / theirs[0],
            ours[1] / theirs[1]
        );
    }
    Ok(())
}

/// Some steps of descent on all rows.
fn step(worker: &mut dyn Worker, client: &Client, steps: u32, out: &mut [f64]) {
    let seat = Seat { client, prepared: &OnceLock::new(), may_prepare: false, secret: None };
    worker.train(0, &seat, &common::plain_descent(steps, STEP), out);
}

fn pytorch(python: &Path, folder: &Path, rows: usize, steps: u32) -> Result<Value> {
    let task = json!({
        "folder": folder, "sizes": [SYMBOLS, 8, 256, 2, SYMBOLS], "rows": rows, "steps": steps, "step": STEP,
        "repetitions": 2, "threads": 1,
    });
    Ok(common::run_scripts(python, "lstm.py", &[task])?.remove(0))
}
