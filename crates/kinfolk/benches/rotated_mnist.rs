//! One IFCA round on rotated MNIST (the paper's Table 1), ours against the plain path and against PyTorch.
//!
//! Every round that is compared begins with the models of round 5, so that all do the same work; evaluation is left
//! out. PyTorch gets a part of the clients, because it takes so long, and its time is scaled up.

mod common;

use common::{Company, Line, THREADS, apart, federation, first_method, forget_peak, joined, median, memory, time};
use kinfolk::aggregate::Weight;
use kinfolk::data::Part;
use kinfolk::data::images::{self, Images, Pools};
use kinfolk::data::{Client, Features, cache};
use kinfolk::error::Result;
use kinfolk::experiment::{Experiment, Override};
use kinfolk::federation::engines::local::LocalFederation;
use kinfolk::federation::work::{Choose, Work};
use kinfolk::federation::{Ask, By, Federation, Gather, Order, Params, Phase, Recipients};
use kinfolk::methods::Method;
use kinfolk::methods::room::{MethodLedger, MissingRule};
use kinfolk::models::Model;
use kinfolk::rng::Key;
use kinfolk::training::{Amount, Course, Optimiser, Plan, Portion, Sample, Terms, Then};
use rand::RngExt;
use serde_json::json;
use std::sync::Arc;

const EXPERIMENT: &str = include_str!("../../kinfolk-papers/experiments/ifca/e2-1200x200.toml");
const ROUNDS_BEFORE: usize = 5;
const WIDTHS: [usize; 3] = [784, 200, 10];

/// Clients, rows of each, and how many of them PyTorch gets.
const SHAPES: [(usize, usize, usize); 2] = [(1200, 200, 60), (4800, 50, 240)];

fn main() -> Result<()> {
    if !common::called_by_cargo_bench() {
        return Ok(());
    }
    println!(
        "rotated MNIST: one IFCA round, 4 models 784-200-10, choice by loss, 10 full-batch steps, mean per cluster"
    );
    common::print_machine();
    let pools = match cache::is_present("mnist") {
        true => {
            println!("data: MNIST from the cache");
            Pools::read_idx(&cache::find("mnist")?)?
        }
        false => {
            println!(
                "data: random bytes and labels, where choices cannot end early (`kinfolk data get mnist` for MNIST)"
            );
            noise()?
        }
    };
    let company = Company::watch();
    SHAPES.iter().try_for_each(|&(clients, rows, part)| compare(&pools, clients, rows, part))?;
    company.print();
    Ok(())
}

/// Images of MNIST's shape with nothing to see on them.
fn noise() -> Result<Pools> {
    let mut rng = Key::new(0).word("noise").rng();
    let mut images = |count: usize| {
        let pixels = (0..count * WIDTHS[0]).map(|_| rng.random()).collect();
        let labels = (0..count).map(|_| rng.random_range(0..10)).collect();
        Images::new("noise", 1, 28, pixels, labels, 10)
    };
    Ok(Pools { train: images(60_000)?, test: images(10_000)?, classes: 10 })
}

fn compare(pools: &Pools, clients: usize, rows: usize, part: usize) -> Result<()> {
    let changes = [format!("data.clients={clients}"), format!("data.samples={rows}")];
    let fixed = ["data.test_samples=0", "data.unseen_clients=0"].map(String::from);
    let changes: Vec<Override> =
        changes.iter().chain(&fixed).map(|text| Override::parse(text)).collect::<Result<_>>()?;
    let experiment = Experiment::parse("e2", EXPERIMENT, &changes)?;
    let population = images::build(pools, &experiment.data, 0, Part { index: 0, of: 1 })?;
    let model: Arc<dyn Model> = Arc::from(experiment.model_kind.make(&experiment.model, population.shape)?);
    let clients = &population.clients;
    let begin = || first_method(&experiment, clients, &model);

    forget_peak();
    let held = memory();
    let mut ours = federation(clients, &model, false)?;
    let mut method = begin()?;
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    let first = timed_round(&mut *method, &mut ours)?;
    for _ in 1..ROUNDS_BEFORE {
        ledger.run_round(&mut *method, &mut ours)?;
    }
    let peak = memory();
    let before = method.outcome().models;
    let state = method.save()?.unwrap_or_default();
    let later = repeated(5, || {
        method.restore(&state)?;
        timed_round(&mut *method, &mut ours)
    })?;
    let after = joined(&method.outcome().models);
    MethodLedger::new(MissingRule::Skip).run_round(&mut *begin()?, &mut ours)?;
    let unpruned = repeated(3, || timed_round(&mut *begin()?, &mut ours))?;
    drop(ours);

    forget_peak();
    let mut plain = federation(clients, &model, true)?;
    let plainly = repeated(3, || {
        method.restore(&state)?;
        timed_round(&mut *method, &mut plain)
    })?;
    let plain_peak = memory();
    let plain_after = joined(&method.outcome().models);
    drop(plain);

    let mut lines = vec![
        Line::new("ours, a round after 5", later, ""),
        Line::new("ours, the first round again", unpruned, "no choice ends early"),
        Line::new("ours, the very first round", first, "X·Xᵀ of every client is made"),
        Line::new("plain path, a round after 5", plainly, apart(&plain_after, &after)),
    ];
    let stride = clients.len() / part;
    let part: Vec<Client> = clients.iter().step_by(stride).cloned().collect();
    lines.extend(pytorch(&part, rows, stride, &model, &before)?);
    common::print_table(&format!("{} clients with {rows} rows", clients.len()), ("ours", later), &lines);
    if let (Some((held, _)), Some((_, peak)), Some((_, plain_peak))) = (held, peak, plain_peak) {
        println!("  memory: {held:.0} MiB before the first round, at most {peak:.0} MiB in rounds 1 to 5");
        println!("  (plain path: at most {plain_peak:.0} MiB)");
    }
    Ok(())
}

fn timed_round(method: &mut dyn Method, federation: &mut LocalFederation) -> Result<f64> {
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    let (seconds, progress) = time(|| ledger.run_round(method, federation));
    progress.map(|_| seconds)
}

/// The median of several times.
fn repeated(times: usize, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    (0..times).map(|_| measure()).collect::<Result<_>>().map(median)
}

/// PyTorch on some clients, each standing for `stride` of them: once with a loop over clients on both cores, once
/// with a loop on each core, which is as well as one can do without writing other code.
fn pytorch(
    clients: &[Client],
    rows: usize,
    stride: usize,
    model: &Arc<dyn Model>,
    models: &[Params],
) -> Result<Vec<Line>> {
    const LOOP: &str = "PyTorch, a loop over clients";
    const TWO_LOOPS: &str = "PyTorch, two loops of one thread";
    let python = match common::python_with("torch") {
        Ok(python) => python,
        Err(why) => return Ok(vec![Line::absent(LOOP, &why), Line::absent(TWO_LOOPS, &why)]),
    };
    let folder = tempfile::tempdir().map_err(|error| kinfolk::Error::io("making", std::env::temp_dir(), error))?;
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for client in clients {
        if let Features::Bytes { columns, values } = &**client.train.features() {
            let range = client.train.rows();
            pixels.extend_from_slice(&values[range.start * columns..range.end * columns]);
        }
        labels.extend(client.train.classes().unwrap_or_default().iter().map(|&class| class as u8));
    }
    common::write_bytes(&folder.path().join("pixels"), &pixels)?;
    common::write_bytes(&folder.path().join("labels"), &labels)?;
    common::write_floats(&folder.path().join("models"), joined(models).into_iter())?;
    let task = |threads: usize, part: usize, parts: usize| {
        json!({
            "folder": folder.path(), "widths": WIDTHS, "models": models.len(), "rows": rows, "steps": 10, "step": 0.1,
            "threads": threads, "repetitions": 5, "part": part, "parts": parts,
        })
    };
    let one = common::run_scripts(&python, "rotated_mnist.py", &[task(THREADS, 0, 1)])?;
    let tasks: Vec<_> = (0..THREADS).map(|part| task(1, part, THREADS)).collect();
    let several = common::run_scripts(&python, "rotated_mnist.py", &tasks)?;
    let slowest = several.iter().map(common::median_seconds).fold(0.0, f64::max);

    let ours = ours_on(clients, model, models)?;
    let theirs = common::read_floats(&folder.path().join("answer"))?;
    let scaled = format!("{} clients × {stride}", clients.len());
    let version = one[0]["version"].as_str().unwrap_or_default().to_string();
    let scale = stride as f64;
    Ok(vec![
        Line::new(LOOP, scale * common::median_seconds(&one[0]), format!("{scaled}; {}", apart(&theirs, &ours))),
        Line::new(TWO_LOOPS, scale * slowest, format!("{scaled}; torch {version}")),
    ])
}

/// The means of the clusters after our round on these clients.
fn ours_on(clients: &[Client], model: &Arc<dyn Model>, models: &[Params]) -> Result<Vec<f64>> {
    let plan = Plan {
        sample: Sample::FULL,
        amount: Amount::Steps(10),
        step: 0.1,
        optimiser: Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 },
        terms: Terms::default(),
        course: Course::PLAIN,
    };
    let work = Work::Choose(Choose { among: (0..models.len()).collect(), on: Portion::All, then: Then::Train(plan) });
    let answers = federation(clients, model, false)?.ask(&Ask {
        phase: Phase::Train,
        models: models.to_vec(),
        orders: vec![Order { to: Recipients::All, work }],
        gather: Gather::Sum { by: By::Choice, weight: Weight::Uniform },
    })?;
    let mean = |(old, sum): (&Params, &kinfolk::aggregate::Sum)| match sum.count {
        0 => old.to_vec(),
        _ => sum.total.iter().map(|total| total / sum.weight).collect(),
    };
    Ok(models.iter().zip(&answers.orders[0].sums).flat_map(mean).collect())
}
