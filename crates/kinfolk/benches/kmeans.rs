//! Lloyd's iteration from the same centres, ours against scikit-learn, on data without clusters and with; and k-means on
//! a million points, with the memory it takes.

mod common;

use common::{Company, Line, THREADS, forget_peak, median, memory, time};
use kinfolk::clustering::quality::misclustering;
use kinfolk::clustering::{Points, kmeans};
use kinfolk::error::Result;
use kinfolk::rng::Key;
use rand::RngExt;
use rand_distr::StandardNormal;
use serde_json::json;
use std::path::Path;

const COUNT: usize = 100_000;
const DIMENSION: usize = 100;
const CLUSTERS: usize = 10;
/// Iterations in which the bounds have nothing to say yet, so that every point is measured every time.
const FIRST: usize = 10;
const REPETITIONS: usize = 5;

fn main() -> Result<()> {
    if !common::called_by_cargo_bench() {
        return Ok(());
    }
    println!("k-means: Lloyd's iteration, {COUNT} points, {DIMENSION} columns, K = {CLUSTERS}, double precision");
    common::print_machine();
    let folder = tempfile::tempdir().map_err(|error| kinfolk::Error::io("making", std::env::temp_dir(), error))?;
    let pool = kinfolk::compute::threads(THREADS)?;
    let company = Company::watch();
    pool.install(|| {
        let noise = draw(COUNT, 0.0);
        compare(folder.path(), "one normal cloud, 10 iterations", &noise, FIRST)?;
        compare(folder.path(), "one normal cloud, 300 iterations", &noise, 300)?;
        compare(folder.path(), "ten clouds that touch, to the end", &draw(COUNT, 0.2), 1000)?;
        compare(folder.path(), "ten clouds apart, to the end", &draw(COUNT, 2.0), 1000)?;
        measure_memory()
    })?;
    company.print();
    Ok(())
}

/// Normal clouds around places that are normal themselves, with this standard deviation.
fn draw(count: usize, places: f64) -> Vec<f64> {
    let mut random = Key::new(0).word("points").rng();
    let places: Vec<f64> =
        (0..CLUSTERS * DIMENSION).map(|_| places * random.sample::<f64, _>(StandardNormal)).collect();
    (0..count * DIMENSION).map(|at| places[at % places.len()] + random.sample::<f64, _>(StandardNormal)).collect()
}

fn compare(folder: &Path, title: &str, values: &[f64], iterations: usize) -> Result<()> {
    let points = Points::new(values, DIMENSION)?;
    let mut random = Key::new(1).word("start").rng();
    let start: Vec<f64> =
        (0..CLUSTERS).flat_map(|_| points.row(random.random_range(0..points.count()))).copied().collect();
    let ours = kmeans::lloyd(points, &start, iterations)?;
    let times = (0..REPETITIONS).map(|_| time(|| kmeans::lloyd(points, &start, iterations)).0);
    let seconds = median(times.collect());
    let mut lines = vec![Line::new("ours", seconds, told(ours.iterations, ours.inertia))];
    if iterations == FIRST {
        let reading = common::reading(&values.chunks(100 * DIMENSION).collect::<Vec<_>>(), iterations);
        lines.push(Line::new("reading the points", reading, format!("{iterations} times")));
    }

    write_doubles(&folder.join("points"), values)?;
    write_doubles(&folder.join("start"), &start)?;
    match common::python_with("sklearn") {
        Err(why) => lines.push(Line::absent("scikit-learn", &why)),
        Ok(python) => {
            for algorithm in ["lloyd", "elkan"] {
                let task = json!({
                    "folder": folder, "dimension": DIMENSION, "iterations": iterations, "algorithm": algorithm,
                    "repetitions": REPETITIONS, "threads": THREADS,
                });
                let answer = common::run_scripts(&python, "kmeans.py", &[task])?.remove(0);
                let number = |field: &str| answer[field].as_f64().unwrap_or(f64::NAN);
                let theirs = read_labels(&folder.join("labels"))?;
                let others = (misclustering(&theirs, &ours.clustering.labels) * COUNT as f64).round();
                let note = told(number("iterations") as usize, number("inertia"));
                let version = answer["version"].as_str().unwrap_or_default();
                let what = format!("scikit-learn {version}, {algorithm}");
                let note = format!("{note}, {others} points elsewhere");
                lines.push(Line::new(&what, common::median_seconds(&answer), note));
            }
        }
    }
    common::print_table(title, ("ours", seconds), &lines);
    Ok(())
}

fn told(iterations: usize, inertia: f64) -> String {
    format!("{iterations} iterations, inertia {inertia:.6e}")
}

fn measure_memory() -> Result<()> {
    let values = draw(10 * COUNT, 0.2);
    let points = Points::new(&values, DIMENSION)?;
    forget_peak();
    let held = memory();
    let options = kmeans::Options { starts: 1, iterations: 20 };
    let (seconds, found) = time(|| kmeans::cluster(points, CLUSTERS, &options, &Key::new(0)));
    let peak = memory();
    println!("\n{} points: one k-means++ start and {} iterations", points.count(), found?.iterations);
    println!("  {seconds:.2} s");
    if let (Some((held, _)), Some((_, peak))) = (held, peak) {
        println!("  memory: {held:.0} MiB before, at most {peak:.0} MiB meanwhile");
    }
    Ok(())
}

fn write_doubles(path: &Path, values: &[f64]) -> Result<()> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    common::write_bytes(path, &bytes)
}

fn read_labels(path: &Path) -> Result<Vec<usize>> {
    let bytes = std::fs::read(path).map_err(|error| kinfolk::Error::io("reading", path, error))?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(*four) as usize).collect())
}
