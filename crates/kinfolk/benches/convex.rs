//! Convex clustering: one λ with uniform weights against a plain ADMM and against CVXPY, then whole paths.

mod common;

use common::{Company, Line, THREADS, forget_peak, median, memory, time};
use kinfolk::clustering::Points;
use kinfolk::clustering::convex::{self, Weights};
use kinfolk::error::Result;
use kinfolk::num::distance;
use kinfolk::rng::Key;
use rand::RngExt;
use rand_distr::StandardNormal;
use serde_json::json;
use std::path::Path;

const DIMENSION: usize = 20;
const CLUSTERS: usize = 10;
/// λ in units of the data's radius over the number of points: all apart, nearly fused, some clusters, all clusters,
/// all together.
const STRENGTHS: [f64; 5] = [0.4, 1.0, 1.1, 1.2, 1.3];

fn main() -> Result<()> {
    if !common::called_by_cargo_bench() {
        return Ok(());
    }
    println!("convex clustering: ten clouds in {DIMENSION} dimensions, double precision");
    common::print_machine();
    let folder = tempfile::tempdir().map_err(|error| kinfolk::Error::io("making", std::env::temp_dir(), error))?;
    let pool = kinfolk::compute::threads(THREADS)?;
    let company = Company::watch();
    pool.install(|| {
        for (count, strengths) in [(100, &STRENGTHS[..]), (400, &STRENGTHS[..])] {
            for &strength in strengths {
                one_lambda(folder.path(), count, strength)?;
            }
        }
        whole_path(100, &Weights::Uniform, 10)?;
        whole_path(2000, &Weights::Uniform, 30)?;
        let neighbours = Weights::Neighbours { neighbours: 10, decay: None };
        whole_path(10_000, &neighbours, 30)
    })?;
    company.print();
    Ok(())
}

fn draw(count: usize) -> Vec<f64> {
    let mut random = Key::new(0).word("points").rng();
    let places: Vec<f64> = (0..CLUSTERS * DIMENSION).map(|_| random.sample::<f64, _>(StandardNormal)).collect();
    (0..count * DIMENSION).map(|at| places[at % places.len()] + 0.1 * random.sample::<f64, _>(StandardNormal)).collect()
}

fn one_lambda(folder: &Path, count: usize, strength: f64) -> Result<()> {
    let values = draw(count);
    let points = Points::new(&values, DIMENSION)?;
    let lambda = strength * radius(&values) / count as f64;
    let solve = || convex::cluster(points, &Weights::Uniform, lambda);
    let solved = solve()?;
    let ours = median((0..7).map(|_| time(solve).0).collect());
    let certificate = solved.certificate;
    let clusters = solved.clustering.clusters();
    let note = format!("{clusters} clusters, relative gap {:.0e}", certificate.gap / certificate.primal);
    let mut lines = vec![Line::new("ours", ours, note)];

    let (seconds, (objective, iterations)) = time(|| admm(&values, lambda, certificate.dual));
    let off = |objective: f64| format!("objective {:.0e} above the lower bound", objective / certificate.dual - 1.0);
    lines.push(Line::new("plain ADMM, one thread", seconds, format!("{iterations} iterations, {}", off(objective))));
    if count == 100 {
        let path = folder.join("points");
        common::write_bytes(&path, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())?;
        for solver in ["SCS", "CLARABEL"] {
            let what = format!("CVXPY, {solver}");
            if solver == "CLARABEL" && strength != STRENGTHS[0] {
                continue;
            }
            match common::python_with("cvxpy") {
                Err(why) => lines.push(Line::absent(&what, &why)),
                Ok(python) => {
                    let task = json!({
                        "points": path, "dimension": DIMENSION, "lambda": lambda, "solver": solver,
                        "repetitions": 1, "threads": THREADS,
                    });
                    let answer = common::run_scripts(&python, "convex.py", &[task])?.remove(0);
                    let objective = answer["objective"].as_f64().unwrap_or(f64::NAN);
                    lines.push(Line::new(&what, common::median_seconds(&answer), off(objective)));
                }
            }
        }
    }
    common::print_table(&format!("{count} points, uniform weights, λ = {strength} radius / m"), ("ours", ours), &lines);
    Ok(())
}

fn radius(values: &[f64]) -> f64 {
    let count = values.len() / DIMENSION;
    let mean: Vec<f64> =
        (0..DIMENSION).map(|c| values.iter().skip(c).step_by(DIMENSION).sum::<f64>() / count as f64).collect();
    values.chunks_exact(DIMENSION).map(|row| distance(row, &mean)).fold(0.0, f64::max)
}

fn whole_path(count: usize, weights: &Weights, steps: usize) -> Result<()> {
    let values = draw(count);
    let points = Points::new(&values, DIMENSION)?;
    forget_peak();
    let held = memory();
    let (seconds, path) = time(|| convex::path(points, weights, steps, &mut |_| Ok(())));
    let peak = memory();
    let path = path?;
    let kind = if *weights == Weights::Uniform { "uniform weights" } else { "ten neighbours" };
    let worst = path.steps.iter().map(|step| step.certificate.gap / step.certificate.primal).fold(0.0, f64::max);
    let undecided: usize = path.steps.iter().map(|step| step.certificate.undecided).sum();
    let clusters: Vec<String> = path.levels().iter().map(|level| level.clusters.to_string()).collect();
    println!(
        "\n{count} points, {kind}, a path of {} values with its ends looked for: {seconds:.3} s",
        path.steps.len()
    );
    println!("  clusters {}; largest relative gap {worst:.0e}; undecided pairs {undecided}", clusters.join(" "));
    if let (Some((held, _)), Some((_, peak))) = (held, peak) {
        println!("  memory: {held:.0} MiB before, at most {peak:.0} MiB meanwhile");
    }
    Ok(())
}

/// The method one would write first: ADMM on all pairs, with a closed form for the solve. Ends 1e-8 above the bound.
fn admm(values: &[f64], lambda: f64, bound: f64) -> (f64, usize) {
    let count = values.len() / DIMENSION;
    let pairs: Vec<(usize, usize)> = (0..count).flat_map(|j| (0..j).map(move |i| (i, j))).collect();
    let penalty = 1.0 / count as f64;
    let mut solution = values.to_vec();
    let mut split = vec![0.0; pairs.len() * DIMENSION];
    let mut dual = vec![0.0; pairs.len() * DIMENSION];
    let mut right = vec![0.0; values.len()];
    for iteration in 1..=20_000 {
        for (at, &(i, j)) in pairs.iter().enumerate() {
            let range = at * DIMENSION..(at + 1) * DIMENSION;
            let (split, dual) = (&mut split[range.clone()], &mut dual[range]);
            let mut square = 0.0;
            for c in 0..DIMENSION {
                split[c] = solution[i * DIMENSION + c] - solution[j * DIMENSION + c] + dual[c];
                square += split[c] * split[c];
            }
            let shrink = (1.0 - lambda / penalty / square.sqrt()).max(0.0);
            for c in 0..DIMENSION {
                dual[c] = split[c] * (1.0 - shrink);
                split[c] *= shrink;
            }
        }
        // (I + ρ DᵀD)⁻¹ = (I + ρ 11ᵀ) / (1 + ρ m) for all pairs.
        right.copy_from_slice(values);
        for (at, &(i, j)) in pairs.iter().enumerate() {
            for c in 0..DIMENSION {
                let pull = penalty * (split[at * DIMENSION + c] - dual[at * DIMENSION + c]);
                right[i * DIMENSION + c] += pull;
                right[j * DIMENSION + c] -= pull;
            }
        }
        for c in 0..DIMENSION {
            let sum: f64 = right.iter().skip(c).step_by(DIMENSION).sum();
            for i in 0..count {
                solution[i * DIMENSION + c] =
                    (right[i * DIMENSION + c] + penalty * sum) / (1.0 + penalty * count as f64);
            }
        }
        if iteration % 10 == 0 {
            let objective = objective(values, &solution, lambda);
            if objective <= bound * (1.0 + 1e-8) || iteration == 20_000 {
                return (objective, iteration);
            }
        }
    }
    (f64::NAN, 0)
}

fn objective(values: &[f64], solution: &[f64], lambda: f64) -> f64 {
    let rows: Vec<&[f64]> = solution.chunks_exact(DIMENSION).collect();
    let pairs = (0..rows.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
    let length: f64 = pairs.map(|(i, j)| distance(rows[i], rows[j])).sum();
    0.5 * distance(values, solution).powi(2) + lambda * length
}
