//! Async-L2GD on many small logistic clients in known clusters: ours, the plain path, and numpy over all rows at once.

mod common;

use common::{Company, Line, THREADS, apart, forget_peak, median, memory, time};
use kinfolk::data::{Client, Features, Population, source};
use kinfolk::error::Result;
use kinfolk::experiment::Experiment;
use kinfolk::federation::engines::local::LocalFederation;
use kinfolk::methods::room::{MethodLedger, MissingRule};
use kinfolk::models::{Model, kind};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

const ITERATIONS: usize = 5000;
const COMPARED: usize = 500;
const REPETITIONS: usize = 3;

fn main() -> Result<()> {
    if !common::called_by_cargo_bench() {
        return Ok(());
    }
    println!("Async-L2GD, one coin of 0.1: logistic clients in 5 clusters, 5 to 60 rows, 3 features, double precision");
    common::print_machine();
    let folder = tempfile::tempdir().map_err(|error| kinfolk::Error::io("making", std::env::temp_dir(), error))?;
    let company = Company::watch();
    compare(folder.path(), 30_000)?;
    println!("\n{ITERATIONS} iterations");
    for clients in [7_500, 15_000, 30_000] {
        forget_peak();
        let world = World::new(clients, ITERATIONS)?;
        let (seconds, _) = time(|| world.run(false));
        let peak = memory().map_or(f64::NAN, |(_, peak)| peak);
        println!(
            "  {clients} clients: {seconds:.2} s, {:.2} ms a client, at most {peak:.0} MiB",
            1e3 * seconds / clients as f64
        );
    }
    company.print();
    Ok(())
}

/// Clients and their experiment.
struct World {
    experiment: Experiment,
    population: Population,
    model: Arc<dyn Model>,
}

impl World {
    fn new(clients: usize, iterations: usize) -> Result<Self> {
        let text = format!(
            "[data]\nsource = \"hierarchical-logistic\"\nclients = {clients}\ntrue_clusters = 5\ndimension = 3\n\
             samples = 60\nfewest_samples = 5\ntest_samples = 0\n[model]\nkind = \"logistic\"\nintercept = false\n\
             [[method]]\nname = \"l2gd\"\ngamma = 1\nlambda = 1\nloss = \"mean\"\ncoins = \"one\"\n\
             chance_between = 0.1\nstep = {STEP}\niterations = {iterations}\n"
        );
        let experiment = Experiment::parse("bench", &text, &[])?;
        let data = source("hierarchical-logistic").ok_or_else(|| kinfolk::Error::settings("no such data"))?;
        let population = (data.build)(&experiment.data, 0)?;
        let logistic = kind("logistic").ok_or_else(|| kinfolk::Error::settings("no such model"))?;
        let model = Arc::from(logistic.make(&experiment.model, population.shape)?);
        Ok(Self { experiment, population, model })
    }

    fn clients(&self) -> &[Client] {
        &self.population.clients
    }

    /// A whole run; the clients' models end to end.
    fn run(&self, plain: bool) -> Result<(Vec<f64>, f64)> {
        let mut federation: LocalFederation = common::federation(self.clients(), &self.model, plain)?;
        let mut method = common::first_method(&self.experiment, self.clients(), &self.model)?;
        let mut ledger = MethodLedger::new(MissingRule::Skip);
        while !ledger.run_round(&mut *method, &mut federation)?.finished {}
        let rounds = method.outcome().extra["rounds_between"];
        Ok((federation.host().own_models().flat_map(|(_, model)| model).collect(), rounds))
    }
}

/// The step of the paper's experiment with donors is 1e-3; this one gets somewhere in 500 iterations.
const STEP: f64 = 0.02;

fn compare(folder: &Path, clients: usize) -> Result<()> {
    let world = World::new(clients, COMPARED)?;
    let (ours, rounds) = world.run(false)?;
    let seconds = median((0..REPETITIONS).map(|_| time(|| world.run(false)).0).collect());
    let mut lines = vec![Line::new("ours", seconds, format!("{rounds} rounds"))];
    let (plain_seconds, plain) = time(|| world.run(true));
    lines.push(Line::new("plain path", plain_seconds, apart(&plain?.0, &ours)));

    write_world(folder, &world)?;
    match common::python_with("numpy") {
        Err(why) => lines.push(Line::absent("numpy", &why)),
        Ok(python) => {
            let task = json!({
                "folder": folder, "clients": clients, "dimension": 3, "iterations": COMPARED, "chance": 0.1,
                "step": STEP, "gamma": 1.0, "lambda": 1.0, "repetitions": 1, "threads": THREADS,
            });
            let answer = common::run_scripts(&python, "personal.py", &[task])?.remove(0);
            let note = "the same steps with coins of its own".to_string();
            lines.push(Line::new("numpy, all rows at once", common::median_seconds(&answer), note));
        }
    }
    common::print_table(&format!("{clients} clients, {COMPARED} iterations"), ("ours", seconds), &lines);
    Ok(())
}

/// Features, targets, rows of each client and clusters, for numpy.
fn write_world(folder: &Path, world: &World) -> Result<()> {
    let rows = |client: &Client| client.train.rows();
    let features = world.clients().iter().flat_map(|client| match &**client.train.features() {
        Features::F64 { columns, values } => values[rows(client).start * columns..rows(client).end * columns].to_vec(),
        _ => Vec::new(),
    });
    let targets = world.clients().iter().flat_map(|client| client.train.classes().unwrap_or_default());
    common::write_floats(&folder.join("features"), features)?;
    common::write_floats(&folder.join("targets"), targets.map(|&class| f64::from(class)))?;
    common::write_floats(&folder.join("rows"), world.clients().iter().map(|client| client.train.len() as f64))?;
    let clusters = world.clients().iter().map(|client| client.truth.unwrap_or(0) as f64);
    common::write_floats(&folder.join("clusters"), clusters)
}
