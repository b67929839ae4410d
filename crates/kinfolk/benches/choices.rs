//! The choice among four separated models, with early exit against all losses to their end, on one thread.
//!
//! Model j prefers class j, and all rows have class 0: as separated as IFCA's models are after some rounds.

mod common;

use common::{Company, Line};
use kinfolk::data::{Augment, Client, DataShape, Features, Form, Shard, Targets};
use kinfolk::error::{Error, Result};
use kinfolk::models::kind;
use kinfolk::rng::Key;
use kinfolk::settings::Settings;
use rand::RngExt;

const MODELS: usize = 4;
const CLASSES: usize = 10;
const ROWS: [usize; 2] = [50, 200];
/// What a model's preference adds to the score of its class.
const PREFERENCE: f64 = 6.0;
const TURNS: usize = 5;

fn main() -> Result<()> {
    if !common::called_by_cargo_bench() {
        return Ok(());
    }
    println!("a choice among {MODELS} separated models on one thread, time of the thread, best of {TURNS}");
    common::print_machine();
    let company = Company::watch();
    let images = Form::Image { channels: 1, height: 28, width: 28, augment: Augment::default() };
    for rows in ROWS {
        compare("cnn", DataShape { columns: 28 * 28, classes: CLASSES, form: images }, rows)?;
        compare("lstm", DataShape { columns: 80, classes: CLASSES, form: Form::Text { symbols: 80 } }, rows)?;
    }
    company.print();
    Ok(())
}

fn compare(name: &str, shape: DataShape, rows: usize) -> Result<()> {
    let kind = kind(name).ok_or_else(|| Error::settings("no such model"))?;
    let settings = Settings::check("model", kind.settings, toml::Table::new(), &mut Vec::new());
    let model = kind.make(&settings, shape)?;
    let mut rng = Key::new(0).word(name).rng();
    let features = match shape.form {
        Form::Text { .. } => Features::Symbols {
            columns: shape.columns,
            values: (0..rows * shape.columns).map(|_| rng.random_range(0..80)).collect(),
        },
        _ => {
            Features::F32 { columns: shape.columns, values: (0..rows * shape.columns).map(|_| rng.random()).collect() }
        }
    };
    let train = Shard::new(features, Targets::Classes(vec![0; rows]))?;
    let client = Client { id: name.into(), test: train.clone(), train, group: None, truth: None };
    let mut models = Vec::new();
    for preferred in 0..MODELS {
        let mut params = model.initialise(&mut rng)?;
        let scores = params.len() - CLASSES;
        params[scores + preferred] += PREFERENCE;
        models.push(params);
    }
    let models: Vec<&[f64]> = models.iter().map(Vec::as_slice).collect();
    let among: Vec<usize> = (0..MODELS).collect();
    let mut worker = model.worker(&models);
    let (mut early, mut whole) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..TURNS {
        let (seconds, choice) = common::thread_time(|| worker.choose(&among, 0, &client.train));
        early = early.min(seconds);
        let (seconds, losses) = common::thread_time(|| worker.losses(&among, &client.train));
        whole = whole.min(seconds);
        let best = losses.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(choice.position == 0 && (choice.loss - best).abs() < 1e-6, "{choice:?} and {losses:?}");
    }
    let lines = [Line::new("with early exit", early, ""), Line::new("all losses to their end", whole, "")];
    common::print_table(&format!("{name}, {rows} rows"), ("ours", early), &lines);
    Ok(())
}
