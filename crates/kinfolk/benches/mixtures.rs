//! Mixtures on pen digits: a whole replication of FedGrEM beside numpy, EM beside scikit-learn from the same starts; and
//! putting the components of many clients into one order.

mod common;

use common::{Company, Line, median, time};
use kinfolk::compute::threads;
use kinfolk::data::{Client, Features, cache, source};
use kinfolk::error::Result;
use kinfolk::experiment::Experiment;
use kinfolk::federation::engines::local::LocalFederation;
use kinfolk::methods::room::{MethodLedger, MissingRule};
use kinfolk::mixture::alignment::Alignment;
use kinfolk::mixture::{
    Begin, Covariance, Detail, Family, Fitting, Rows, Scratch, Shape, Statistics, expect, fit, maximise,
};
use kinfolk::models::{Model, kind};
use kinfolk::rng::Key;
use rand::RngExt;
use rand::seq::SliceRandom;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

const COMPONENTS: usize = 10;
const ROUNDS: usize = 1000;
const ITERATIONS: usize = 100;
const REPETITIONS: usize = 5;

fn main() -> Result<()> {
    if !common::called_by_cargo_bench() {
        return Ok(());
    }
    println!("mixtures, one thread, double precision");
    common::print_machine();
    let company = Company::watch();
    if cache::is_present("pendigits") {
        let folder = tempfile::tempdir().map_err(|error| kinfolk::Error::io("making", std::env::temp_dir(), error))?;
        let writers = Writers::read()?;
        writers.write(folder.path())?;
        replicate(folder.path(), &writers)?;
        compare_em(folder.path(), &writers)?;
    } else {
        println!("\npen digits: not measured: the file is not there (kinfolk data path pendigits)");
    }
    align();
    company.print();
    Ok(())
}

/// The 44 writers of pen digits.
struct Writers {
    experiment: Experiment,
    clients: Vec<Client>,
    model: Arc<dyn Model>,
    shape: Shape,
}

impl Writers {
    fn read() -> Result<Self> {
        let text = format!(
            "[data]\nsource = \"pendigits\"\n[model]\nkind = \"gaussian-mixture\"\ncomponents = {COMPONENTS}\n\
             [[method]]\nname = \"fedgrem\"\nrounds = {ROUNDS}\ntolerance = 0.0\n"
        );
        let experiment = Experiment::parse("bench", &text, &[])?;
        let data = source("pendigits").ok_or_else(|| kinfolk::Error::settings("no such data"))?;
        let population = (data.build)(&experiment.data, 0)?;
        let description = |client: &Client| kinfolk::data::schema::describe(client, false);
        let schema = kinfolk::data::schema::Schema::fix(
            &population.clients.iter().map(description).collect::<Vec<_>>(),
            experiment.coding(),
        )?;
        let encode = |mut client: Client| {
            client.train = schema.encode(&client.train)?;
            client.test = schema.encode(&client.test)?;
            Ok(client)
        };
        let clients: Vec<Client> = population.clients.into_iter().map(encode).collect::<Result<_>>()?;
        let mixture = kind("gaussian-mixture").ok_or_else(|| kinfolk::Error::settings("no such model"))?;
        let model: Arc<dyn Model> = Arc::from(mixture.make(&experiment.model, schema.shape())?);
        let shape = Shape {
            family: Family::Gaussian(Covariance::Tied),
            components: COMPONENTS,
            columns: schema.shape().columns,
        };
        Ok(Self { experiment, clients, model, shape })
    }

    /// A whole replication: fits, one order of components, rounds. The centres that everybody has in common.
    fn replicate(&self) -> Result<Vec<f64>> {
        let mut federation = LocalFederation::new(self.clients.clone(), threads(1)?);
        federation.set_model(self.model.clone())?;
        let mut method = common::first_method(&self.experiment, &self.clients, &self.model)?;
        let mut ledger = MethodLedger::new(MissingRule::Skip);
        while !ledger.run_round(&mut *method, &mut federation)?.finished {}
        Ok(method.outcome().mixture.map_or_else(Vec::new, |mixture| mixture.common))
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let values = self.clients.iter().flat_map(|client| match &**client.train.features() {
            Features::F64 { columns, values } => {
                let rows = client.train.rows();
                values[rows.start * columns..rows.end * columns].to_vec()
            }
            _ => Vec::new(),
        });
        common::write_floats(&folder.join("rows"), values)?;
        common::write_floats(&folder.join("counts"), self.clients.iter().map(|client| client.train.len() as f64))
    }
}

fn replicate(folder: &Path, writers: &Writers) -> Result<()> {
    writers.replicate()?;
    let seconds = median((0..REPETITIONS).map(|_| time(|| writers.replicate()).0).collect());
    let mut lines = vec![Line::new("ours: fits, order of components, 1000 rounds", seconds, "")];
    match common::python_with("sklearn") {
        Err(why) => lines.push(Line::absent("numpy", &why)),
        Ok(python) => {
            for central in ["two-passes", "converged"] {
                let task = json!({
                    "what": "fedgrem", "folder": folder, "columns": writers.shape.columns, "components": COMPONENTS,
                    "rounds": ROUNDS, "central": central, "repetitions": 1, "threads": 1,
                });
                let answer = common::run_scripts(&python, "mixtures.py", &[task])?.remove(0);
                let what = format!("numpy: the 1000 rounds alone, {central}");
                lines.push(Line::new(&what, common::median_seconds(&answer), "no fits; identity, rows scaled by hand"));
            }
        }
    }
    common::print_table("pen digits, one replication of FedGrEM", ("ours", seconds), &lines);
    Ok(())
}

/// EM from one start for every writer, so many iterations.
fn compare_em(folder: &Path, writers: &Writers) -> Result<()> {
    let shape = &writers.shape;
    let all: Vec<Rows> = writers.clients.iter().map(|client| Rows::of(shape, &client.train)).collect();
    let start = Fitting { begin: Begin::KMeans, starts: 1, iterations: 1, tolerance: 0.0 };
    let starts = all.iter().map(|rows| Ok(fit(shape, rows, &start, &Key::new(0))?.params));
    let starts: Vec<Vec<f64>> = starts.collect::<Result<_>>()?;
    let run = || {
        let (mut scratch, mut statistics, mut likelihood) = (Scratch::default(), Statistics::default(), 0.0);
        for (rows, start) in all.iter().zip(&starts) {
            let mut params = start.clone();
            for _ in 0..ITERATIONS {
                expect(shape, &params, rows, Detail::Full, None, &mut scratch, &mut statistics);
                maximise(shape, &statistics, &mut params);
            }
            likelihood += statistics.log_likelihood;
        }
        likelihood
    };
    let likelihood = run();
    let seconds = median((0..REPETITIONS).map(|_| time(run).0).collect());
    let told = |likelihood: f64| format!("log likelihood {likelihood:.4}");
    let mut lines = vec![Line::new("ours", seconds, told(likelihood))];
    let doubles: Vec<u8> = starts.concat().iter().flat_map(|value| value.to_le_bytes()).collect();
    common::write_bytes(&folder.join("starts"), &doubles)?;
    match common::python_with("sklearn") {
        Err(why) => lines.push(Line::absent("scikit-learn", &why)),
        Ok(python) => {
            let task = json!({
                "what": "em", "folder": folder, "columns": shape.columns, "components": COMPONENTS,
                "iterations": ITERATIONS, "repetitions": 3, "threads": 1,
            });
            let answer = common::run_scripts(&python, "mixtures.py", &[task])?.remove(0);
            let version = answer["version"].as_str().unwrap_or_default();
            let note = told(answer["likelihood"].as_f64().unwrap_or(f64::NAN));
            lines.push(Line::new(&format!("scikit-learn {version}"), common::median_seconds(&answer), note));
        }
    }
    let title = format!("pen digits, EM for 44 writers, one covariance for all components, {ITERATIONS} iterations");
    common::print_table(&title, ("ours", seconds), &lines);
    Ok(())
}

/// 100 clients of 20 components in 10 dimensions, shaken so that neighbours are confused.
fn align() {
    const CLIENTS: usize = 100;
    const MANY: usize = 20;
    const WIDTH: usize = 10;
    let mut random = Key::new(0).word("components").rng();
    let common: Vec<f64> = (0..MANY * WIDTH).map(|_| random.random_range(-1.0..1.0)).collect();
    let centres: Vec<Vec<f64>> = (0..CLIENTS)
        .map(|_| {
            let mut order: Vec<usize> = (0..MANY).collect();
            order.shuffle(&mut random);
            let centre = |r: &usize| common[r * WIDTH..][..WIDTH].to_vec();
            order.iter().flat_map(centre).map(|value| value + random.random_range(-0.5..0.5)).collect()
        })
        .collect();
    let views: Vec<&[f64]> = centres.iter().map(Vec::as_slice).collect();
    let sequence = |number: u64| {
        let mut all: Vec<usize> = (0..CLIENTS).collect();
        all.shuffle(&mut Key::new(1).number(number).rng());
        all
    };
    let sequences: Vec<Vec<usize>> = (0..20).map(sequence).collect();
    let run = || Alignment::new(&views, MANY).find(&sequences).score;
    let score = run();
    let seconds = median((0..REPETITIONS).map(|_| time(run).0).collect());
    println!("\none order of {MANY} components for {CLIENTS} clients, 20 sequences: {seconds:.3} s, score {score:.4}");
}
