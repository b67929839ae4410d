//! Whether what `auto` says of linear models is right as often as it claims, on data of which the truth is known.
//!
//!     cargo run --release --example calibration -- [SEEDS] [STUDY ...]
//!
//! Studies: `same` (one population without differences), `continuum` (random effects: normal, skewed, heavy-tailed), `families` (planted
//! ones), `permuted` (differences, with the clients of rows permuted), `joining` (who gains by it), `coverage` (intervals), `classes`, `speed`.

use kinfolk::clustering::{Points, adjusted_rand_index, kmeans};
use kinfolk::data::TableSettings;
use kinfolk::families::{Evidence, Joining, Learned, Options, Products, Response, Role, learn};
use kinfolk::fit::FitSettings;
use kinfolk::rng::{Key, Rng};
use kinfolk::run::Unwatched;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_distr::{StandardNormal, StudentT};
use std::time::Instant;

const FOLDS: usize = 5;

fn normal(random: &mut Rng) -> f64 {
    random.sample(StandardNormal)
}

/// A row: an intercept, standard normal columns, and the target with noise of variance 1.
fn row(model: &[f64], random: &mut Rng) -> (Vec<f64>, f64) {
    let mut x = vec![1.0];
    x.extend((1..model.len()).map(|_| normal(random)));
    let y = dot(&x, model) + normal(random);
    (x, y)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

type Rows = Vec<(Vec<f64>, f64)>;

fn rows_of(models: &[Vec<f64>], rows: &[usize], random: &mut Rng) -> Vec<Rows> {
    models.iter().zip(rows).map(|(model, &rows)| (0..rows).map(|_| row(model, random)).collect()).collect()
}

fn evidence(clients: &[Rows], columns: usize) -> Evidence {
    let client = |rows: &Rows| {
        let mut folds = vec![Products::none(columns); FOLDS];
        rows.iter().enumerate().for_each(|(at, (x, y))| folds[at % FOLDS].add_row(x, *y, 1.0));
        folds
    };
    let roles = (0..columns).map(|j| if j == 0 { Role::Intercept } else { Role::Linear }).collect();
    Evidence {
        response: Response::Numbers,
        columns: roles,
        clients: clients.iter().map(client).collect(),
        rolling: false,
    }
}

fn learned(clients: &[Rows], columns: usize, seed: u64) -> Learned {
    learn(&evidence(clients, columns), &Options { seed, ..Options::default() })
        .expect("simulated rows can be learned from")
}

/// The solution of `a x = b` by elimination, `a` positive definite.
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let size = b.len();
    for pivot in 0..size {
        for row in pivot + 1..size {
            let share = a[row][pivot] / a[pivot][pivot];
            let above = a[pivot].clone();
            a[row].iter_mut().zip(&above).for_each(|(value, above)| *value -= share * above);
            b[row] -= share * b[pivot];
        }
    }
    for pivot in (0..size).rev() {
        b[pivot] = (b[pivot] - dot(&a[pivot][pivot + 1..], &b[pivot + 1..])) / a[pivot][pivot];
    }
    b
}

/// The best model of a client when the variance of coefficients around a centre is known; with an infinite one, least squares.
fn shrunk(rows: &Rows, centre: &[f64], variance: f64) -> Vec<f64> {
    let size = centre.len();
    let mut a = vec![vec![0.0; size]; size];
    let mut b: Vec<f64> = centre.iter().map(|value| value / variance).collect();
    (0..size).for_each(|j| a[j][j] = 1.0 / variance + 1e-9);
    for (x, y) in rows {
        for i in 0..size {
            b[i] += x[i] * y;
            (0..size).for_each(|j| a[i][j] += x[i] * x[j]);
        }
    }
    solve(a, b)
}

fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
}

struct Counts {
    one: usize,
    levels: [usize; 3],
}

/// How often one family was found, and how often p was at most .01, .05, .1.
fn count(outcomes: &[Learned]) -> Counts {
    let below =
        |level: f64| outcomes.iter().filter(|learned| learned.difference.p.is_some_and(|p| p <= level + 1e-12)).count();
    Counts {
        one: outcomes.iter().filter(|learned| learned.families.len() == 1).count(),
        levels: [0.01, 0.05, 0.1].map(below),
    }
}

fn same(seeds: u64) {
    for (clients, rows, columns) in [(30, 9, 5), (60, 20, 3), (200, 12, 4), (10, 100, 6)] {
        let of = |seed: u64| {
            let mut random = Key::new(seed).word("same").rng();
            let models = vec![(0..columns).map(|j| j as f64 - 1.0).collect(); clients];
            learned(&rows_of(&models, &vec![rows; clients], &mut random), columns, seed)
        };
        let counts = count(&(0..seeds).map(of).collect::<Vec<_>>());
        let [a, b, c] = counts.levels;
        println!(
            "same, {clients} clients of {rows} rows, {columns} columns: one family {} of {seeds}; p ≤ .01 {a}, .05 {b}, .1 {c}",
            counts.one
        );
    }
}

fn continuum(seeds: u64) {
    for kind in ["normal", "skewed", "t with 3 degrees"] {
        for (clients, rows) in [(50, 20), (200, 20), (200, 100)] {
            let (mut one, mut ours, mut known) = (0, 0.0, 0.0);
            for seed in 0..seeds {
                let mut random = Key::new(seed).word("continuum").rng();
                let heavy = StudentT::new(3.0).expect("three degrees of freedom");
                let deviation = |random: &mut Rng| match kind {
                    "normal" => normal(random),
                    "skewed" => -(1.0 - random.random::<f64>()).ln() - 1.0,
                    _ => random.sample(heavy) / 3f64.sqrt(),
                };
                let models: Vec<Vec<f64>> =
                    (0..clients).map(|_| (0..3).map(|j| j as f64 + 0.7 * deviation(&mut random)).collect()).collect();
                let data = rows_of(&models, &vec![rows; clients], &mut random);
                let learned = learned(&data, 3, seed);
                one += usize::from(learned.families.len() == 1);
                for ((client, model), rows) in learned.clients.iter().zip(&models).zip(&data) {
                    ours += 1.0 + squared_distance(&client.served, model);
                    known += 1.0 + squared_distance(&shrunk(rows, &[0.0, 1.0, 2.0], 0.49), model);
                }
            }
            let excess = 100.0 * (ours / known - 1.0);
            println!(
                "continuum, {kind}, {clients} clients of {rows} rows: one family {one} of {seeds}; error {excess:+.2} % of that with known centre and variances"
            );
        }
    }
}

/// Families of unequal sizes with random centres; some rows a client.
fn loss(rows: &Rows, model: &[f64]) -> f64 {
    rows.iter().map(|(x, y)| (y - dot(x, model)).powi(2)).sum()
}

fn nearest(rows: &Rows, models: &[Vec<f64>]) -> usize {
    (0..models.len()).min_by(|&a, &b| loss(rows, &models[a]).total_cmp(&loss(rows, &models[b]))).unwrap_or(0)
}

/// IFCA with exact minimisers: from the models of random clients, clients choose by their loss and families learn from theirs, until nobody
/// changes. The best of ten starts by the loss.
fn ifca(data: &[Rows], families: usize, random: &mut Rng) -> Vec<usize> {
    let mut best: Option<(f64, Vec<usize>)> = None;
    for _ in 0..10 {
        let start = |_| shrunk(&data[random.random_range(0..data.len())], &[0.0; 4], 1e3);
        let mut models: Vec<Vec<f64>> = (0..families).map(start).collect();
        let mut chosen = vec![usize::MAX; data.len()];
        for _ in 0..100 {
            let next: Vec<usize> = data.iter().map(|rows| nearest(rows, &models)).collect();
            if next == chosen {
                break;
            }
            chosen = next;
            for (family, model) in models.iter_mut().enumerate() {
                let members = data.iter().zip(&chosen).filter(|(_, of)| **of == family);
                let rows: Rows = members.flat_map(|(rows, _)| rows.iter().cloned()).collect();
                if !rows.is_empty() {
                    *model = shrunk(&rows, &[0.0; 4], 1e3);
                }
            }
        }
        let total = data.iter().zip(&chosen).map(|(rows, of)| loss(rows, &models[*of])).sum();
        if best.as_ref().is_none_or(|(least, _)| total < *least) {
            best = Some((total, chosen));
        }
    }
    best.map(|(_, chosen)| chosen).unwrap_or_default()
}

fn families(seeds: u64) {
    for (families, clients, rows, apart) in [
        (2, 60, [5, 12], 2.0),
        (2, 60, [20, 40], 0.8),
        (3, 90, [10, 40], 1.2),
        (4, 120, [30, 100], 0.8),
        (8, 200, [20, 60], 1.2),
        (8, 240, [100, 200], 0.7),
    ] {
        let (mut ours, mut told, mut iterated, mut best, mut right, mut counted, mut seconds) =
            (0.0, 0.0, 0.0, 0.0, 0, 0, 0.0);
        for seed in 0..seeds {
            let mut random = Key::new(seed).word("families").rng();
            let centres: Vec<Vec<f64>> =
                (0..families).map(|_| (0..4).map(|_| apart * normal(&mut random)).collect()).collect();
            // Shares as 1 : 2 : 1 : 2 …
            let truth: Vec<usize> = (0..clients)
                .map(|_| {
                    let at = random.random_range(0..3 * families / 2 + families % 2);
                    if at < families { at } else { (2 * (at - families) + 1).min(families - 1) }
                })
                .collect();
            let models: Vec<Vec<f64>> = truth.iter().map(|&family| centres[family].clone()).collect();
            let sizes: Vec<usize> = truth.iter().map(|_| random.random_range(rows[0]..=rows[1])).collect();
            let data = rows_of(&models, &sizes, &mut random);
            let classified: Vec<usize> = data.iter().map(|rows| nearest(rows, &centres)).collect();
            let reach = adjusted_rand_index(&classified, &truth);
            if reach < 0.9 {
                continue;
            }
            counted += 1;
            best += reach;
            let begun = Instant::now();
            let learned = learned(&data, 4, seed);
            seconds += begun.elapsed().as_secs_f64();
            let found: Vec<usize> = learned.clients.iter().map(|client| client.family).collect();
            right += usize::from(learned.families.len() == families);
            ours += adjusted_rand_index(&found, &truth);
            if learned.families.len() != families {
                eprintln!(
                    "  seed {seed}: {} of {families} families, {:?}",
                    learned.families.len(),
                    learned.search.steps
                );
            }
            let points: Vec<f64> = data.iter().flat_map(|rows| shrunk(rows, &[0.0; 4], 1e3)).collect();
            let points = Points::new(&points, 4).expect("finite estimates");
            let clustered =
                kmeans::cluster(points, families, &kmeans::Options::default(), &Key::new(seed)).expect("enough points");
            told += adjusted_rand_index(&clustered.clustering.labels, &truth);
            iterated += adjusted_rand_index(&ifca(&data, families, &mut random), &truth);
        }
        let mean = |sum: f64| sum / f64::from(counted.max(1));
        println!(
            "families, {families} in {clients} clients of {}-{} rows: number right {right} of {counted}; mean ARI {:.3}, told the number: one-shot k-means {:.3}, IFCA {:.3}; true centres {:.3}; {:.2} s",
            rows[0],
            rows[1],
            mean(ours),
            mean(told),
            mean(iterated),
            mean(best),
            mean(seconds)
        );
    }
}

fn permuted(seeds: u64) {
    for (clients, rows) in [(30, 12), (100, 30)] {
        let of = |seed: u64| {
            let mut random = Key::new(seed).word("permuted").rng();
            let models: Vec<Vec<f64>> = (0..clients).map(|_| (0..3).map(|_| normal(&mut random)).collect()).collect();
            let mut all: Rows = rows_of(&models, &vec![rows; clients], &mut random).concat();
            all.shuffle(&mut random);
            learned(&all.chunks(rows).map(<[_]>::to_vec).collect::<Vec<_>>(), 3, seed)
        };
        let counts = count(&(0..seeds).map(of).collect::<Vec<_>>());
        println!(
            "permuted, {clients} clients of {rows} rows: no difference in {} of {seeds}",
            seeds as usize - counts.levels[1]
        );
    }
}

/// Whether gains by joining are within two standard errors of what they are, and verdicts right.
fn joining(seeds: u64) {
    for (spread, rows) in [(0.1, 50), (0.5, 50), (2.0, 50), (0.1, 8), (0.5, 8)] {
        let (mut within, mut total, mut verdicts, mut wrong) = (0, 0, 0, 0);
        for seed in 0..seeds {
            let mut random = Key::new(seed).word("joining").rng();
            let models: Vec<Vec<f64>> =
                (0..60).map(|_| (0..3).map(|_| spread * normal(&mut random)).collect()).collect();
            let learned = learned(&rows_of(&models, &vec![rows; 60], &mut random), 3, seed);
            for (client, model) in learned.clients.iter().zip(&models) {
                let gain = squared_distance(&client.alone, model) - squared_distance(&client.served, model);
                let Some(service) = &client.service else { continue };
                let said = service.joining;
                within += usize::from((gain - said.mean).abs() <= 1.96 * said.error);
                total += 1;
                let sign = match service.verdict() {
                    Joining::Helps => 1.0,
                    Joining::Hurts => -1.0,
                    Joining::Neutral => 0.0,
                };
                verdicts += usize::from(sign != 0.0);
                wrong += usize::from(sign * gain < 0.0);
            }
        }
        println!(
            "joining, spread {spread}, {rows} rows: {within} of {total} gains within 1.96 standard errors; {verdicts} verdicts, {wrong} wrong"
        );
    }
}

fn coverage(seeds: u64) {
    for (clients, rows) in [(30, 8), (100, 20), (40, 200)] {
        let (mut known, mut unknown, mut total) = (0, 0, 0);
        for seed in 0..seeds {
            let mut random = Key::new(seed).word("coverage").rng();
            let models: Vec<Vec<f64>> =
                (0..clients).map(|_| (0..3).map(|_| 0.7 * normal(&mut random)).collect()).collect();
            let learned = learned(&rows_of(&models, &vec![rows; clients], &mut random), 3, seed);
            let centre = learned.unknown();
            for (number, model) in models.iter().enumerate() {
                let (x, y) = row(model, &mut random);
                let inside =
                    |prediction: f64, variance: f64| usize::from((y - prediction).abs() <= 1.644_85 * variance.sqrt());
                known += inside(
                    dot(&x, &learned.clients[number].served),
                    learned.predictor(&learned.clients[number]).variance(&x),
                );
                let stranger: Vec<f64> = (0..3).map(|_| 0.7 * normal(&mut random)).collect();
                let (x, y) = row(&stranger, &mut random);
                unknown += usize::from(
                    (y - dot(&x, &centre)).abs() <= 1.644_85 * learned.unknown_predictor().variance(&x).sqrt(),
                );
                total += 1;
            }
        }
        let share = |count: usize| 100.0 * count as f64 / total as f64;
        println!(
            "coverage at 90 %, {clients} clients of {rows} rows: {:.1} % for clients, {:.1} % for newcomers",
            share(known),
            share(unknown)
        );
    }
}

/// Classes of clients with these log-odds, from a table as people have it.
fn fitted_classes(models: &[Vec<f64>], rows: usize, random: &mut Rng, seed: u64) -> (Option<f64>, Vec<usize>) {
    let folder = std::env::temp_dir().join(format!("kinfolk-calibration-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("model")).expect("a temporary folder");
    let path = folder.join("table.csv");
    let mut text = String::from("client,a,b,class\n");
    for (client, model) in models.iter().enumerate() {
        for _ in 0..rows {
            let x = [1.0, normal(random), normal(random)];
            let chance = 1.0 / (1.0 + (-dot(&x, model)).exp());
            let class = if random.random::<f64>() < chance { "yes" } else { "no" };
            text.push_str(&format!("c{client:03},{},{},{class}\n", x[1], x[2]));
        }
    }
    std::fs::write(&path, text).expect("a temporary file");
    let table = TableSettings {
        path: path.display().to_string(),
        client: "client".into(),
        target: Some("class".into()),
        ..TableSettings::default()
    };
    let settings = FitSettings { table, straight: true, quick: true, seed, ..FitSettings::default() };
    let options = kinfolk::run::Options::default();
    let saved =
        kinfolk::fit::fit(settings, &options, &mut Unwatched, &mut |_| ()).expect("simulated rows can be fitted");
    saved.write(&folder.join("model")).expect("a folder");
    let table = std::fs::read_to_string(folder.join("model/clients.csv")).expect("clients");
    let family = |line: &str| line.split(',').nth(2).and_then(|cell| cell.parse().ok()).expect("a family");
    let found = table.lines().skip(1).map(family).collect();
    let p = saved.shown().difference_p;
    let _ = std::fs::remove_dir_all(&folder);
    (p, found)
}

fn classes(seeds: u64) {
    for (clients, rows) in [(30, 15), (40, 60)] {
        let (mut one, mut levels) = (0, [0; 3]);
        for seed in 0..seeds {
            let mut random = Key::new(seed).word("classes").rng();
            let (p, found) = fitted_classes(&vec![vec![0.5, 1.0, -1.0]; clients], rows, &mut random, seed);
            one += usize::from(found.iter().all(|family| *family == 1));
            for (count, level) in levels.iter_mut().zip([0.01, 0.05, 0.1]) {
                *count += usize::from(p.is_some_and(|p| p <= level + 1e-12));
            }
        }
        let [a, b, c] = levels;
        println!(
            "classes, {clients} clients of {rows} rows, no difference: one family {one} of {seeds}; p ≤ .01 {a}, .05 {b}, .1 {c}"
        );
    }
    for (families, clients, rows) in [(2, 40, 60), (3, 60, 100)] {
        let (mut right, mut index) = (0, 0.0);
        for seed in 0..seeds {
            let mut random = Key::new(seed).word("families of classes").rng();
            let centres = [[0.5, 1.5, -1.5], [0.5, -1.5, 1.5], [-0.5, 1.5, 1.5]];
            let truth: Vec<usize> = (0..clients).map(|client| client % families).collect();
            let models: Vec<Vec<f64>> = truth.iter().map(|&family| centres[family].to_vec()).collect();
            let (_, found) = fitted_classes(&models, rows, &mut random, seed);
            right += usize::from(found.iter().max() == Some(&families));
            index += adjusted_rand_index(&found, &truth);
        }
        println!(
            "classes, {families} families in {clients} clients of {rows} rows: number right {right} of {seeds}; mean ARI {:.3}",
            index / seeds as f64
        );
    }
}

fn speed(_: u64) {
    let mut random = Key::new(0).word("speed").rng();
    let models: Vec<Vec<f64>> = (0..125_000).map(|_| vec![normal(&mut random), 1.0]).collect();
    let data = rows_of(&models, &vec![8; 125_000], &mut random);
    let mut evidence = evidence(&data, 2);
    evidence.columns[1] = Role::Common;
    let begun = Instant::now();
    let learned =
        learn(&evidence, &Options { families: kinfolk::families::Wanted::One, quick: true, ..Options::default() })
            .expect("rows");
    println!(
        "speed, 125000 clients with a random intercept: all steps {:.2} s; noise {:.4}, spread {:.4}",
        begun.elapsed().as_secs_f64(),
        learned.noise,
        learned.spread[0]
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seeds = arguments.next().and_then(|word| word.parse().ok()).unwrap_or(20);
    let asked: Vec<String> = arguments.collect();
    type Study = fn(u64);
    let studies: [(&str, Study); 8] = [
        ("same", same),
        ("continuum", continuum),
        ("families", families),
        ("permuted", permuted),
        ("joining", joining),
        ("coverage", coverage),
        ("classes", classes),
        ("speed", speed),
    ];
    for (name, study) in studies {
        if asked.is_empty() || asked.iter().any(|word| word == name) {
            study(seeds);
        }
    }
}
