//! Known clusters: Lyu, Hanzely, Kolar 2022. What each experiment is, and what was found, is in
//! experiments/known-clusters.
//!
//! The references are those of an independent implementation in numpy. The paper's donors are not public: schools stand
//! in for them, and nothing is compared there.

use super::{Case, Cell, Judge, Paper, Reproduction, declare_paper, extra};
use crate::record::summary::{mean, standard_deviation};
use crate::record::{ClientRecord, Record};

pub(super) static PAPER: Paper = declare_paper! {
    "known-clusters", "Personalized federated learning with multiple known clusters (2022)",
    "e1": "e1.toml", "Table 1 and figure 1: distance to the clients' true parameters against rows a client", distances;
    "e2": "e2.toml", "Table 2's columns on schools: squared error of the score in mathematics",
        |quick| vec![schools(quick, "mse")];
    "e2-pass": "e2-pass.toml", "Tables 2 and 3's columns on schools: cross-entropy and accuracy of pass or fail",
        |quick| vec![schools(quick, "nll"), schools(quick, "accuracy")];
    "e3": "e3.toml", "Theorems 3.5 and 4.3: distance to the exact minimiser, iterations and rounds",
        |quick| neighbourhoods(quick).into_iter().chain(accelerations(quick)).collect();
};

const FEWER_CLIENTS: [&str; 2] = ["data.clients=40", "data.true_clusters=4"];

/// A row of Table 1: title, label; average, deviation and largest distance over the clients, at 10 and at 100 rows a
/// client; and the reference's average of 20 runs, at the same.
type Row = (&'static str, &'static str, Option<([[f64; 3]; 2], [f64; 2])>);

const TABLE_1: [Row; 6] = [
    ("local", "local", Some(([[4.50, 0.981, 8.224], [0.494, 0.093, 0.768]], [4.52, 0.495]))),
    ("single model", "single-model", Some(([[6.11, 0.968, 9.025], [6.243, 1.003, 9.479]], [6.21, 6.17]))),
    ("single cluster", "single-cluster", Some(([[4.46, 0.958, 8.112], [0.494, 0.093, 0.763]], [4.46, 0.493]))),
    ("exact minimiser", "hierarchical", Some(([[3.46, 0.689, 8.676], [0.489, 0.093, 0.748]], [3.39, 0.491]))),
    ("exact minimiser, variances estimated", "estimated", None),
    ("James-Stein", "james-stein", None),
];

/// The reference's averages for the exact minimiser at the other sizes, of five runs.
const EXACT_REFERENCE: [(usize, f64); 5] = [(1, 5.57), (5, 4.23), (25, 1.567), (50, 0.789), (200, 0.330)];

/// Rows a client in Table 1, and twice the deviation of a run of the exact minimiser there.
const TABLE_1_ROWS: [(usize, f64); 2] = [(10, 0.07), (100, 0.008)];

fn distance(record: &Record, label: &str) -> Option<f64> {
    extra(record, label, "personal_error")
}

fn distances(quick: bool) -> Vec<Case> {
    let sizes: &[usize] = if quick { &[10, 100] } else { &[1, 5, 10, 25, 50, 100, 200] };
    sizes.iter().map(|&rows| distances_with(rows)).chain([25, 100].map(variances)).collect()
}

fn distances_with(rows: usize) -> Case {
    let name = format!("m={rows}");
    let place = TABLE_1_ROWS.iter().position(|(at, _)| *at == rows);
    let mut cells = Vec::new();
    for (what, label, known) in TABLE_1 {
        let of = |column: usize| Some(known?.0[place?][column]);
        let exact = EXACT_REFERENCE.iter().find(|(at, _)| *at == rows && label == "hierarchical").map(|(_, it)| *it);
        let reference = known.zip(place).map(|((_, reference), place)| reference[place]).or(exact);
        let average = Cell::extra(format!("{name} {what}, distance"), label, "personal_error");
        let average = average.paper(of(0)).reference(reference);
        cells.push(match place {
            Some(place) if label == "hierarchical" => average.judged(Judge::Near(TABLE_1_ROWS[place].1)),
            _ => average,
        });
        if place.is_some() {
            let more = [
                ("distance, deviation over clients", "personal_error_sd", of(1)),
                ("distance, largest", "personal_error_max", of(2)),
                ("squared distance", "personal_error_squared", of(0)),
                ("squared distance, largest", "personal_error_squared_max", of(2)),
            ];
            let cell =
                |(about, field, paper)| Cell::extra(format!("{name} {what}, {about}"), label, field).paper(paper);
            cells.extend(more.map(cell));
        }
    }
    let best = Cell::new(format!("{name} exact minimiser over the best of the paper's others"), |record| {
        let others = ["local", "single-model", "single-cluster"].map(|label| distance(record, label));
        let best = others.into_iter().collect::<Option<Vec<f64>>>()?.into_iter().fold(f64::INFINITY, f64::min);
        Some(distance(record, "hierarchical")? / best)
    });
    cells.push(best.paper(1.0).judged(Judge::AtMost(0.0)));
    let ratio = Cell::new(format!("{name} variances estimated over variances known"), |record| {
        Some(distance(record, "estimated")? / distance(record, "hierarchical")?)
    });
    cells.push(if rows < 10 { ratio } else { ratio.reference(1.0).judged(Judge::Near(0.01)) });
    Case::new(name, vec![format!("data.samples={rows}")], [1, 5], cells).small(&FEWER_CLIENTS)
}

/// Estimated variances, all of which are 1: their means over many runs, and how often one is within two and a half of
/// its standard errors of the truth, which is 98.8 % where those are right.
fn variances(rows: usize) -> Case {
    let name = format!("m={rows}, estimated variance");
    let tolerance = if rows >= 100 { 0.05 } else { 0.08 };
    let mut cells = Vec::new();
    let kinds = [
        ("of noise", "noise_variance", "noise_variance_error"),
        ("within clusters", "within_variance", "within_variance_error"),
        ("between clusters", "between_variance", "between_variance_error"),
    ];
    for (what, field, error) in kinds {
        let found = Cell::extra(format!("{name} {what}"), "estimated", field);
        cells.push(found.reference(1.0).judged(Judge::Near(tolerance)));
        let near = Cell::share(format!("{name} {what}, share within 2.5 standard errors"), move |record| {
            let off = (extra(record, "estimated", field)? - 1.0).abs();
            Some(off <= 2.5 * extra(record, "estimated", error)?)
        });
        cells.push(near.reference(0.988));
    }
    Case::new(name, vec![format!("data.samples={rows}")], [2, 40], cells).small(&FEWER_CLIENTS)
}

const SCHOOL_MODELS: [(&str, &str); 5] = [
    ("local", "local"),
    ("single model", "single-model"),
    ("exact minimiser, tuned", "tuned"),
    ("exact minimiser, variances estimated", "estimated"),
    ("simplified Async-L2GD", "l2gd"),
];

/// Fewest rows of a client that counts.
const FEWEST_ROWS: usize = 5;
/// What counts for a loss that overflowed.
const OVERFLOW: f64 = 100.0;

/// The metric of every client that counts, in the order of the clients.
fn metrics(record: &Record, label: &str) -> Option<Vec<f64>> {
    let counts = |client: &&ClientRecord| client.label == label && client.samples >= FEWEST_ROWS;
    let metric = |metric: f64| if metric.is_finite() { metric } else { OVERFLOW };
    let found: Vec<f64> = record.clients.iter().filter(counts).filter_map(|it| it.metric.map(metric)).collect();
    (!found.is_empty()).then_some(found)
}

/// The value below which this share lies, between two values in proportion.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + place.fract() * (above - below)
}

/// Reads a number off the metrics of all clients.
type Column = fn(&[f64]) -> Option<f64>;

const SCHOOL_COLUMNS: [(&str, Column); 6] = [
    ("average", |it| Some(mean(it))),
    ("deviation over clients", standard_deviation),
    ("first quartile", |it| Some(quantile(it, 0.25))),
    ("median", |it| Some(quantile(it, 0.5))),
    ("third quartile", |it| Some(quantile(it, 0.75))),
    ("largest", |it| it.iter().copied().reduce(f64::max)),
];

fn schools(quick: bool, metric: &'static str) -> Case {
    let higher_is_better = metric == "accuracy";
    let mut cells = Vec::new();
    for (what, label) in SCHOOL_MODELS {
        let column = |(about, column): (&str, Column)| {
            Cell::new(format!("{metric}, {what}, {about}"), move |record| column(&metrics(record, label)?))
        };
        cells.extend(SCHOOL_COLUMNS.into_iter().map(column));
        if metric == "nll" {
            cells.push(column(("clients above 1", |it| Some(it.iter().filter(|&&loss| loss > 1.0).count() as f64))));
        }
        if ["local", "single-model"].contains(&label) {
            continue;
        }
        for (other_what, other) in &SCHOOL_MODELS[..2] {
            let other = *other;
            let name = format!("{metric}, {what}, share of clients no worse than with {other_what}");
            cells.push(Cell::new(name, move |record| {
                let (with, without) = (metrics(record, label)?, metrics(record, other)?);
                let no_worse =
                    |(with, without): &(f64, f64)| if higher_is_better { with >= without } else { with <= without };
                let count = with.len() as f64;
                Some(with.into_iter().zip(without).filter(no_worse).count() as f64 / count)
            }));
        }
    }
    let distance = format!("{metric}, simplified Async-L2GD, distance to the minimiser");
    cells.extend([
        Cell::extra(format!("{metric}, tuned λ"), "tuned", "lambda"),
        Cell::extra(format!("{metric}, tuned γ"), "tuned", "gamma"),
        Cell::extra(distance, "l2gd", "distance_to_exact"),
    ]);
    let mut changes = vec![format!("metric={metric}")];
    if quick {
        let tuned: &[&str] = if metric == "mse" { &["tuned", "l2gd"] } else { &["tuned"] };
        changes.extend(tuned.iter().map(|label| format!("method.{label}.grid=[0.01, 1, 100]")));
        changes.push("method.l2gd.iterations=100".into());
    }
    Case::new(metric, changes, [1, 5], cells)
}

/// Steps of Async-L2GD: the corollary's, and about a half, a quarter and an eighth of it at 10 and 100 rows a client.
const L2GD_STEPS: [(&str, Option<[f64; 2]>); 4] = [
    ("l2gd", None),
    ("l2gd-half", Some([3e-3, 1e-3])),
    ("l2gd-quarter", Some([1.5e-3, 5e-4])),
    ("l2gd-eighth", Some([7.5e-4, 2.5e-4])),
];

const ACCELERATED: [(&str, &str); 4] = [
    ("all rows, ρ=0.1", "all-often"),
    ("all rows, ρ=0.01", "all-seldom"),
    ("one row, ρ=0.1", "one-often"),
    ("one row, ρ=0.01", "one-seldom"),
];

/// Rows a client, and iterations in which each variant comes to about 1e-8.
const ACCELERATED_ITERATIONS: [(usize, [usize; 4]); 5] = [
    (10, [4500, 14000, 16000, 35000]),
    (25, [2600, 7200, 8500, 22000]),
    (50, [1500, 3600, 6000, 15000]),
    (100, [1000, 2200, 4200, 10000]),
    (200, [550, 1700, 3400, 8600]),
];

fn iterations(label: &str, count: usize) -> String {
    format!("method.{label}.iterations={count}")
}

/// Communication as it was, and as the coins bring it on average.
fn rounds(name: &str, label: &'static str, kinds: &[(&str, &'static str, &'static str)]) -> Vec<Cell> {
    let both = |(what, found, expected): &(&str, &'static str, &'static str)| {
        let cell = |name: String, field| Cell::extra(name, label, field);
        [cell(format!("{name}, {what}"), found), cell(format!("{name}, {what}, expected"), expected)]
    };
    kinds.iter().flat_map(both).collect()
}

const BETWEEN: (&str, &str, &str) = ("rounds between clusters", "rounds_between", "expected_between");
const WITHIN: (&str, &str, &str) = ("rounds within a cluster", "rounds_within", "expected_within");
const REFRESHES: (&str, &str, &str) = ("refreshes", "refreshes", "expected_refreshes");

fn squared_distance(record: &Record, label: &str) -> Option<f64> {
    Some(extra(record, label, "distance_to_exact")?.powi(2))
}

/// Async-L2GD stays in a neighbourhood of the minimiser; its squared distance is proportional to the step. Where it is at
/// the end depends on how long ago the last step towards a mean was, hence the many repeats.
fn neighbourhoods(quick: bool) -> Vec<Case> {
    let of = |(place, rows): (usize, usize)| {
        let name = format!("m={rows}, Async-L2GD");
        let (repeats, count) = [(10, 100_000), (40, 3000)][place];
        let count = if quick { 500 } else { count };
        let mut changes = vec![format!("data.samples={rows}"), iterations("accuracy", count.min(10_000))];
        changes.extend(ACCELERATED.map(|(_, label)| iterations(label, 1)));
        let mut cells = Vec::new();
        let squared = |name: &str, label: &'static str| {
            Cell::new(format!("{name}, squared distance"), move |record| squared_distance(record, label))
        };
        for (label, step) in L2GD_STEPS {
            changes.push(iterations(label, count));
            changes.extend(step.map(|steps| format!("method.{label}.step={:?}", steps[place])));
            let within = match step {
                None => format!("{name}, the corollary's step"),
                Some(steps) => format!("{name}, step {}", steps[place]),
            };
            let reference = step.is_none().then_some([0.108f64, 0.040][place].powi(2));
            cells.push(squared(&within, label).reference(reference));
            cells.push(Cell::new(format!("{within}, squared distance over step"), move |record| {
                Some(squared_distance(record, label)? / extra(record, label, "step")?)
            }));
        }
        let corollary = format!("{name}, the corollary's step");
        cells.push(Cell::extra(format!("{corollary}, which is"), "l2gd", "step"));
        cells.extend(rounds(&corollary, "l2gd", &[BETWEEN, WITHIN]));
        let accurate = format!("{name}, aim = \"accuracy\"");
        cells.push(squared(&accurate, "accuracy").reference((rows == 100).then_some(0.0043f64.powi(2))));
        cells.extend(rounds(&accurate, "accuracy", &[BETWEEN, WITHIN]));
        Case::new(name, changes, [1, repeats], cells).small(&FEWER_CLIENTS)
    };
    [10, 100].into_iter().enumerate().map(of).collect()
}

/// Async-AL2SGD+ converges linearly: half the iterations, half the digits.
fn accelerations(quick: bool) -> Vec<Case> {
    let sizes = if quick { &ACCELERATED_ITERATIONS[3..4] } else { &ACCELERATED_ITERATIONS[..] };
    let of = |(rows, counts): &(usize, [usize; 4]), half: bool| {
        let name = format!("m={rows}, Async-AL2SGD+");
        let mut changes = vec![format!("data.samples={rows}"), iterations("accuracy", 1)];
        changes.extend(L2GD_STEPS.map(|(label, _)| iterations(label, 1)));
        let mut cells = Vec::new();
        for ((what, label), count) in ACCELERATED.into_iter().zip(counts) {
            let count = count / if half { 2 } else { 1 } / if quick { 4 } else { 1 };
            changes.push(iterations(label, count));
            let within = format!("{name}, {what}");
            let away = Cell::extra(format!("{within}, distance after {count} iterations"), label, "distance_to_exact");
            cells.push(away.median());
            if half {
                continue;
            }
            let reference = match (*rows, label) {
                (100, "all-often") => Some(1000.0),
                (100, "all-seldom") => Some(1800.0),
                _ => None,
            };
            // Everybody starts at 0, at a relative distance of 1.
            let needed = Cell::new(format!("{within}, iterations to 1e-8"), move |record| {
                Some(count as f64 * 1e-8f64.ln() / extra(record, label, "distance_to_exact")?.ln())
            });
            cells.push(needed.reference(reference));
            // η = 1/(4·max{L_F, 𝓛}).
            cells.push(Cell::new(format!("{within}, √(L_F/μ)"), move |record| {
                Some((0.25 / extra(record, label, "step")? / extra(record, label, "convexity")?).sqrt())
            }));
            cells.extend(rounds(&within, label, &[REFRESHES, BETWEEN, WITHIN]));
        }
        let about = if half { "half way" } else { "to the end" };
        Case::new(format!("{name}, {about}"), changes, [1, 3], cells).small(&FEWER_CLIENTS)
    };
    sizes.iter().flat_map(|size| [of(size, true), of(size, false)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Options, Unwatched, run};

    #[test]
    fn overflow_counts_as_much_and_clients_with_few_rows_do_not() {
        let e1 = &PAPER.experiments[0];
        let mut case = e1.cases(true).remove(0);
        case.changes.push("data.dimension=5".into());
        let experiment = e1.experiment(&case, 0, &[]).unwrap();
        let mut record = run(&experiment, &Options { threads: 1, ..Options::default() }, &mut Unwatched).unwrap();
        let before = metrics(&record, "local").unwrap();
        assert_eq!(before.len(), 40);
        let first = record.clients.iter().position(|client| client.label == "local").unwrap();
        record.clients[first].samples = FEWEST_ROWS - 1;
        record.clients[first + 1].metric = Some(f64::INFINITY);
        record.clients[first + 2].metric = None;
        let after = metrics(&record, "local").unwrap();
        assert_eq!((after[0], &after[1..]), (100.0, &before[3..]));
        assert_eq!(metrics(&record, "nobody"), None);
    }

    #[test]
    fn quantiles_by_hand() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(|share| quantile(&values, share)), [1.0, 1.75, 2.5, 4.0]);
        assert_eq!(quantile(&[7.0], 0.75), 7.0);
    }
}
