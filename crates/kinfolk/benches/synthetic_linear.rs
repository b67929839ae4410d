//! IFCA with gradient averaging on mixed linear regression (the paper's Figure 2), ours against the plain path and
//! against numpy: 300 iterations from one start, and ten starts with three steps each side by side.

mod common;

use common::{Company, Line, THREADS, apart, federation, first_method, joined, median, time};
use kinfolk::data::{Client, Features};
use kinfolk::error::Result;
use kinfolk::experiment::{Experiment, Override};
use kinfolk::federation::{Federation, Phase};
use kinfolk::methods::room::{MethodLedger, MissingRule};
use kinfolk::models::Model;
use kinfolk::rng::Key;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

const EXPERIMENT: &str = include_str!("../../kinfolk-papers/experiments/ifca/e1.toml");
const ITERATIONS: usize = 300;
const STEPS: [f64; 3] = [0.01, 0.1, 1.0];

fn main() -> Result<()> {
    if !common::called_by_cargo_bench() {
        return Ok(());
    }
    println!("mixed linear regression: IFCA, 100 clients with 100 rows, 1000 columns, k = 2, {ITERATIONS} iterations");
    common::print_machine();
    let folder = tempfile::tempdir().map_err(|error| kinfolk::Error::io("making", std::env::temp_dir(), error))?;
    let folder = folder.path();

    let stacked = Experiment::parse("e1", EXPERIMENT, &[])?;
    let population = (stacked.source.build)(&stacked.data, 0)?;
    let clients = &population.clients;
    let model: Arc<dyn Model> = Arc::from(stacked.model_kind.make(&stacked.model, population.shape)?);
    let start = write_start(folder, &*model)?;
    let given = [
        "method.ifca.restarts=1".into(),
        "method.ifca.step=0.1".into(),
        "method.ifca.start=given".into(),
        format!("method.ifca.start_from={}", folder.display()),
    ];
    let given: Vec<Override> = given.iter().map(|text: &String| Override::parse(text)).collect::<Result<_>>()?;
    let single = Experiment::parse("e1", EXPERIMENT, &given)?;

    let company = Company::watch();
    let (one, models, _) = run(&single, clients, &model, false, 5)?;
    let (thirty, _, share) = run(&stacked, clients, &model, false, 3)?;
    let (plain, plain_models, _) = run(&single, clients, &model, true, 3)?;
    write_data(folder, clients, start)?;
    let numpy = match common::python_with("numpy") {
        Ok(python) => Ok(Numpy::run(&python, folder, clients.len(), model.layout().len(), &models)?),
        Err(why) => Err(why),
    };

    let rows: Vec<&[f32]> = clients.iter().map(features).collect();
    let reading = kinfolk::compute::threads(THREADS)?.install(|| common::reading(&rows, ITERATIONS));
    let mut lines = vec![
        Line::new("ours", one, ""),
        Line::new("reading the features", reading, format!("{ITERATIONS} times: the least where no cache holds them")),
        Line::new("plain path", plain, apart(&plain_models, &models)),
    ];
    match &numpy {
        Ok(numpy) => lines.extend(numpy.single.iter().map(|(what, seconds, note)| Line::new(what, *seconds, note))),
        Err(why) => lines.push(Line::absent("numpy", why)),
    }
    common::print_table("one start", ("ours", one), &lines);

    let alive = format!("{:.0} % of the work: starts that diverge are dropped", 100.0 * share);
    let mut lines = vec![
        Line::new("ours, side by side", thirty, alive),
        Line::new("ours, 30 × one start", 30.0 * one, ""),
        Line::new("plain path, 30 × one start", 30.0 * plain, ""),
    ];
    match &numpy {
        Ok(numpy) => lines.extend([
            Line::new("numpy, 30 × the fastest of the above", 30.0 * numpy.fastest(), ""),
            Line::new("numpy, side by side by hand", numpy.stacked, "one matrix, f32, for information"),
        ]),
        Err(why) => lines.push(Line::absent("numpy", why)),
    }
    common::print_table("ten starts with three steps each", ("ours", thirty), &lines);
    if let Ok(numpy) = numpy {
        let (best, runs) = (numpy.fastest(), 30.0 * numpy.fastest());
        println!("\nagainst the fastest numpy ({}):", numpy.version);
        println!("  one start takes {:.3} of its time; wanted: at most 1/4 = 0.250", one / best);
        println!("  side by side takes {:.3} of 30 of its runs; wanted: at most 1/15 = 0.067", thirty / runs);
    }
    company.print();
    Ok(())
}

/// Two models to begin with, as files for us and as numbers for numpy.
fn write_start(folder: &Path, model: &dyn Model) -> Result<Vec<f64>> {
    let mut start = Vec::new();
    for cluster in 0..2 {
        let params = model.initialise(&mut Key::new(0).word("start of the benchmark").number(cluster).rng())?;
        let bytes = kinfolk::modelfile::bytes(&params, model.layout(), model.precision(), &[])?;
        common::write_bytes(&folder.join(format!("cluster-{cluster}.safetensors")), &bytes)?;
        start.extend(params);
    }
    Ok(start)
}

fn features(client: &Client) -> &[f32] {
    match &**client.train.features() {
        Features::F32 { columns, values } => {
            let rows = client.train.rows();
            &values[rows.start * columns..rows.end * columns]
        }
        _ => &[],
    }
}

fn write_data(folder: &Path, clients: &[Client], start: Vec<f64>) -> Result<()> {
    let features = clients.iter().flat_map(features);
    common::write_floats(&folder.join("features"), features.map(|&value| f64::from(value)))?;
    let targets = clients.iter().flat_map(|client| client.train.values().unwrap_or_default().iter().copied());
    common::write_floats(&folder.join("targets"), targets)?;
    common::write_floats(&folder.join("start"), start.into_iter())
}

/// Median seconds of all iterations, the models at the end, and which share of the lanes was alive on average.
fn run(
    experiment: &Experiment,
    clients: &[Client],
    model: &Arc<dyn Model>,
    plain: bool,
    repetitions: usize,
) -> Result<(f64, Vec<f64>, f64)> {
    let mut federation = federation(clients, model, plain)?;
    for _ in 0..3 {
        MethodLedger::new(MissingRule::Skip)
            .run_round(&mut *first_method(experiment, clients, model)?, &mut federation)?;
    }
    let (mut times, mut models, mut alive) = (Vec::new(), Vec::new(), 1.0);
    for _ in 0..repetitions {
        let sent = |federation: &dyn Federation| federation.meter().of(Phase::Train).models_up as f64;
        let before = sent(&federation);
        let mut method = first_method(experiment, clients, model)?;
        let mut ledger = MethodLedger::new(MissingRule::Skip);
        let (seconds, done) =
            time(|| (0..ITERATIONS).try_for_each(|_| ledger.run_round(&mut *method, &mut federation).map(drop)));
        done?;
        times.push(seconds);
        models = joined(&method.outcome().models);
        let lanes = method.outcome().candidates.len().max(1);
        alive = (sent(&federation) - before) / (clients.len() * ITERATIONS * lanes) as f64;
    }
    Ok((median(times), models, alive))
}

/// What numpy takes.
struct Numpy {
    /// Runs of one start: what, seconds, and what is to be said.
    single: Vec<(&'static str, f64, String)>,
    /// Seconds of thirty starts as columns of one matrix.
    stacked: f64,
    version: String,
}

impl Numpy {
    fn run(python: &Path, folder: &Path, clients: usize, dimension: usize, ours: &[f64]) -> Result<Self> {
        let run = |form: &str, precision: &str, threads: usize, steps: &[f64]| -> Result<_> {
            let task = json!({
                "folder": folder, "clients": clients, "dimension": dimension, "form": form, "precision": precision,
                "steps": steps, "iterations": ITERATIONS, "repetitions": 3, "threads": threads,
            });
            let answer = common::run_scripts(python, "synthetic_linear.py", &[task])?.remove(0);
            let theirs = common::read_floats(&folder.join("answer"))?;
            Ok((common::median_seconds(&answer), apart(&theirs, ours), answer))
        };
        let forms = [
            ("numpy f32, one matrix of all rows", "flat", "f4", THREADS),
            ("numpy f32, one matrix, one thread", "flat", "f4", 1),
            ("numpy f32, a gradient for every client", "by_client", "f4", THREADS),
            ("numpy f32, the same, one thread", "by_client", "f4", 1),
            ("numpy f64, one matrix of all rows", "flat", "f8", THREADS),
            ("numpy f64, a gradient for every client", "by_client", "f8", THREADS),
        ];
        let mut single = Vec::new();
        for (what, form, precision, threads) in forms {
            let (seconds, note, _) = run(form, precision, threads, &[0.1])?;
            single.push((what, seconds, note));
        }
        let (stacked, _, answer) = run("flat", "f4", THREADS, &STEPS.repeat(10))?;
        Ok(Self { single, stacked, version: answer["version"].as_str().unwrap_or_default().to_string() })
    }

    /// Seconds of the fastest run of one start.
    fn fastest(&self) -> f64 {
        self.single.iter().map(|(_, seconds, _)| *seconds).fold(f64::INFINITY, f64::min)
    }
}
