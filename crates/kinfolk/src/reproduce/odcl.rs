//! ODCL: Armacki, Bajović, Jakovetić, Kar 2022. What each experiment is, and what was found, is in experiments/odcl.
//!
//! Errors are the paper's: (1/m) Σ ‖ũ_i − u*_(i)‖² / ‖u*_(i)‖². Where the paper has only a figure, the references are
//! those of an independent implementation in numpy.

use super::{Case, Cell, Judge, Paper, Reproduction, declare_paper, extra, owned, planned_rounds, repeat};
use crate::record::Record;

pub(super) static PAPER: Paper = declare_paper! {
    "odcl", "A one-shot framework for distributed clustered learning in heterogeneous environments (2022)",
    "e1": "e1.toml", "Figure 2: ten linear regressions, error against rows a client", ten_regressions;
    "e2": "e2.toml", "Table 2: accuracy on two classes with labels swapped", swapped_labels;
    "e3": "e3.toml", "Table 3: rounds of IFCA for the error of one round", rounds_for_one;
    "e4": "e4.toml", "Figure 3: four logistic regressions, error and clusters against rows a client",
        logistic_regressions;
    "e5": "e5.toml", "Figure 4: λ from a path of ten values, and from the truth", path_of_ten;
    "e6": "e6.toml", "Figure 5: IFCA's error over its rounds, with three steps", error_over_rounds;
};

fn error(record: &Record, label: &str) -> Option<f64> {
    extra(record, label, "normalised_mse")
}

fn error_of(name: &str, what: &str, label: &'static str) -> Cell {
    Cell::new(format!("{name} {what}, error"), move |record| error(record, label))
}

fn clusters_of(name: &str, what: &str, label: &'static str) -> Cell {
    Cell::clusters(format!("{name} {what}, clusters"), label)
}

/// The share of repeats in which the true clusters are recovered.
fn recovered(name: &str, what: &str, label: &'static str) -> Cell {
    Cell::share(format!("{name} {what}, all right"), move |record| {
        let repeat = repeat(record, label)?;
        Some(repeat.misclustering? == 0.0 && repeat.ari? == 1.0)
    })
}

/// One case for every number of rows a client.
fn by_rows(rows: &[usize], repeats: [u64; 2], cells: impl Fn(&str, usize) -> Vec<Cell>) -> Vec<Case> {
    let of = |&rows: &usize| {
        let name = format!("n={rows}");
        let cells = cells(&name, rows);
        Case::new(name, vec![format!("data.samples={rows}")], repeats, cells)
    };
    rows.iter().map(of).collect()
}

/// What the reference found for E1 at n rows: local, oracle averaging, cluster oracle, convex, its clusters.
const E1_REFERENCE: &[(usize, [f64; 5])] = &[
    (50, [1.65e-2, 1.45e-3, 8.6e-4, 1.65e-2, 100.0]),
    (100, [5.6e-3, 5.3e-4, 3.8e-4, 5.6e-3, 100.0]),
    (200, [2.44e-3, 2.5e-4, 2.1e-4, 2.44e-3, 100.0]),
    (400, [1.14e-3, 1.15e-4, 1.03e-4, 2.4e-4, 20.0]),
    (450, [9.6e-4, 9.1e-5, 8.7e-5, 9.8e-5, 11.8]),
    (500, [8.7e-4, 8.8e-5, 8.6e-5, 8.8e-5, 10.0]),
    (800, [5.2e-4, 5.3e-5, 5.0e-5, 5.3e-5, 10.0]),
];

/// With 25 rows some clients have no unique minimiser, so medians are compared there.
fn ten_regressions(quick: bool) -> Vec<Case> {
    let rows: &[usize] = if quick { &[100, 800] } else { &[25, 50, 100, 200, 400, 450, 500, 800] };
    by_rows(rows, [2, 10], |name, rows| {
        let found = E1_REFERENCE.iter().find(|(n, _)| *n == rows).map(|(_, found)| *found);
        let reference = |index: usize| found.map(|found| found[index]);
        let few = |cell: Cell| if rows < 50 { cell.median() } else { cell };
        let error = |what: &str, label| few(error_of(name, what, label));
        let ratio = few(Cell::new(format!("{name} kmeans++ over oracle averaging"), |record| {
            Some(self::error(record, "kmeans")? / self::error(record, "oracle-average")?)
        }));
        let ratio = match rows {
            ..50 => ratio,
            _ => ratio.paper(1.0).reference(1.0).judged(Judge::AtMost(0.02)),
        };
        let right = recovered(name, "convex", "convex");
        let right = match rows {
            ..500 => right,
            _ => right.paper(1.0).reference(1.0).judged(Judge::AtLeast(0.0)),
        };
        vec![
            error("local", "local").reference(reference(0)),
            error("naive averaging", "naive-average").reference(found.map(|_| 1.0)),
            error("oracle averaging", "oracle-average").reference(reference(1)),
            error("cluster oracle", "cluster-oracle").reference(reference(2)),
            error("kmeans++, ten seedings", "kmeans").reference(reference(1)),
            ratio,
            error("kmeans++, one seeding", "one-seeding"),
            recovered(name, "kmeans++, one seeding", "one-seeding"),
            error("convex", "convex").reference(reference(3)),
            clusters_of(name, "convex", "convex").reference(reference(4)),
            Cell::extra(format!("{name} convex, clusters within 1e-3"), "convex", "clusters_1e-3"),
            Cell::extra(format!("{name} convex, clusters within 3e-3"), "convex", "clusters_3e-3"),
            right,
            error("auto", "auto"),
            clusters_of(name, "auto", "auto"),
            Cell::extra(format!("{name} auto, certain 1, likely ½, unsure 0"), "auto", "sureness"),
        ]
    })
}

/// A column of Table 2.
struct Column {
    name: &'static str,
    changes: &'static [&'static str],
    /// Cluster oracle, local, kmeans++, IFCA-1, IFCA-2, IFCA-R.
    paper: [Option<f64>; 6],
    /// The first three of them.
    reference: [Option<f64>; 3],
}

const E2_COLUMNS: [Column; 3] = [
    Column {
        name: "MNIST",
        changes: &[],
        paper: [Some(0.98), Some(0.83), Some(0.91), Some(0.94), Some(0.83), Some(0.65)],
        reference: [Some(0.986), Some(0.830), Some(0.916)],
    },
    Column {
        name: "CIFAR10",
        changes: &["data.source=cifar-10", "data.classes=[0, 1]", "data.samples=40"],
        paper: [Some(0.76), Some(0.70), Some(0.76), Some(0.70), Some(0.66), Some(0.51)],
        reference: [Some(0.755), Some(0.697), Some(0.761)],
    },
    Column {
        name: "CIFAR10N",
        changes: &["data.source=cifar-10", "data.classes=[0, 1]", "data.samples=40", "data.label_flips=0.2"],
        paper: [None, Some(0.62), Some(0.66), Some(0.58), Some(0.54), Some(0.52)],
        reference: [None, Some(0.621), Some(0.747)],
    },
];

fn swapped_labels(quick: bool) -> Vec<Case> {
    let of = |Column { name, changes, paper, reference }: Column| {
        let cell = |what: &str, label| Cell::metric(format!("{name} {what}"), label);
        let judged = |what: &str, label, row: usize| {
            let judge = if paper[row].is_none() { Judge::Shown } else { Judge::AtLeast(0.01) };
            cell(what, label).paper(paper[row]).reference(reference[row]).judged(judge)
        };
        let cells = vec![
            judged("cluster oracle", "cluster-oracle", 0),
            judged("local", "local", 1),
            judged("kmeans++, ten seedings", "kmeans", 2),
            cell("kmeans++, one seeding", "one-seeding"),
            cell("auto", "auto"),
            clusters_of(name, "auto", "auto"),
            cell("IFCA-1, models", "ifca-1-models").paper(paper[3]),
            cell("IFCA-1, gradients", "ifca-1-gradients").paper(paper[3]),
            cell("IFCA-2, models", "ifca-2-models").paper(paper[4]),
            cell("IFCA-2, gradients", "ifca-2-gradients").paper(paper[4]),
            cell("IFCA-R, models", "ifca-r-models").paper(paper[5]),
            cell("IFCA-R, gradients", "ifca-r-gradients").paper(paper[5]),
        ];
        Case::new(name, owned(changes), [1, 10], cells)
    };
    E2_COLUMNS.into_iter().take(if quick { 1 } else { 3 }).map(of).collect()
}

/// The first round after which a method's error is at most that of one round of ODCL.
fn matched(record: &Record, label: &str) -> Option<usize> {
    let target = error(record, "odcl")?;
    let reached = |error: Option<f64>| error.is_some_and(|error| error <= target);
    record.rounds.iter().find(|round| round.label == label && reached(round.normalised_mse)).map(|round| round.round)
}

/// Rounds until the error of ODCL is reached; the largest possible number for a repeat in which it never is.
fn rounds_to_match(name: &str, label: &'static str) -> Cell {
    Cell::new(format!("{name}, rounds"), move |record| {
        matched(record, label).or_else(|| planned_rounds(record, label)).map(|rounds| rounds as f64)
    })
}

/// The share of repeats in which the error of ODCL is never reached.
fn never_matched(name: &str, label: &'static str) -> Cell {
    Cell::share(format!("{name}, never"), move |record| repeat(record, label).map(|_| matched(record, label).is_none()))
}

/// Full gradients, and those of one row.
const GRADIENTS: [(&str, Option<usize>); 2] = [("full gradients", None), ("batch 1", Some(1))];

fn rounds_for_one(quick: bool) -> Vec<Case> {
    let settings: [(usize, f64, [Option<f64>; 2]); 2] =
        [(1, 440.0, [Some(384.0), Some(370.0)]), (4, 655.0, [Some(200.0), None])];
    let mut cases = Vec::new();
    for (count, paper, references) in settings {
        for ((gradients, batch), reference) in GRADIENTS.into_iter().zip(references) {
            let mut changes = vec![
                format!("data.true_clusters={count}"),
                format!("method.odcl.clusters={count}"),
                format!("method.ifca.clusters={count}"),
            ];
            if count > 1 {
                changes.push("method.ifca.start=planted".into());
                changes.push(format!("method.ifca.start_distance=[{}, {}]", 1.0 / 6.0, 0.25));
            }
            changes.extend(batch.map(|batch| format!("method.ifca.batch={batch}")));
            if quick {
                changes.push("method.ifca.rounds=300".into());
            }
            let name = format!("K={count}, {gradients}");
            let rounds = || rounds_to_match(&name, "ifca").paper(paper).reference(reference);
            let (median, mean, never) = (rounds().median(), rounds(), never_matched(&name, "ifca"));
            let odcl = Cell::new(format!("{name}, error of ODCL"), |record| error(record, "odcl"));
            cases.push(Case::new(name, changes, [2, 10], vec![odcl, median, mean, never]));
        }
    }
    cases
}

/// The reference's number of clusters of convex clustering.
const E4_REFERENCE: &[(usize, f64)] = &[(1000, 92.0), (2000, 14.0), (3000, 4.45), (4600, 4.1), (5000, 4.0)];

fn logistic_regressions(quick: bool) -> Vec<Case> {
    let rows: &[usize] = if quick { &[1000, 5000] } else { &[100, 500, 1000, 2000, 3000, 4600, 5000] };
    by_rows(rows, [2, 20], |name, rows| {
        let found = E4_REFERENCE.iter().find(|(n, _)| *n == rows).map(|(_, clusters)| *clusters);
        vec![
            error_of(name, "local", "local"),
            error_of(name, "oracle averaging", "oracle-average"),
            error_of(name, "cluster oracle", "cluster-oracle"),
            error_of(name, "kmeans++", "kmeans"),
            error_of(name, "convex", "convex"),
            clusters_of(name, "convex", "convex").paper((rows >= 3000).then_some(4.0)).reference(found),
            recovered(name, "convex", "convex"),
        ]
    })
}

fn path_of_ten(quick: bool) -> Vec<Case> {
    let rows: &[usize] = if quick { &[200, 600] } else { &[50, 100, 200, 400, 600, 800] };
    by_rows(rows, [2, 10], |name, rows| {
        let clusters = |what, label, reached: usize| {
            let cell = clusters_of(name, what, label).paper((rows >= 600).then_some(4.0));
            cell.reference((rows >= reached).then_some(4.0))
        };
        vec![
            error_of(name, "oracle averaging", "oracle-average"),
            error_of(name, "exact λ", "exact"),
            clusters("exact λ", "exact", 400),
            error_of(name, "clusterpath", "clusterpath"),
            clusters("clusterpath", "clusterpath", 200),
            Cell::extra(format!("{name} clusterpath, (13) holds"), "clusterpath", "recovery"),
            error_of(name, "auto", "auto"),
            clusters_of(name, "auto", "auto"),
        ]
    })
}

/// Steps with what the paper says of n = 400, and what the reference found: rounds with full gradients, and the error
/// that is left with batches of 1 at n = 600.
const E6_STEPS: [(&str, f64, f64, f64, f64); 3] = [
    ("ifca-large", 0.1, 20.0, 16.0, 4.3e-3),
    ("ifca-middle", 0.05, 20.0, 30.0, 2.2e-3),
    ("ifca-small", 0.01, 70.0, 150.0, 8.9e-4),
];

fn error_over_rounds(quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for rows in [400, 600] {
        for (gradients, batch) in GRADIENTS {
            let name = format!("n={rows}, {gradients}");
            let mut changes = vec![format!("data.samples={rows}")];
            let odcl = Cell::new(format!("{name}, error of ODCL"), |record| error(record, "odcl"));
            let mut cells = vec![odcl.reference((rows == 600).then_some(5.7e-4))];
            for (label, step, paper, reference, floor) in E6_STEPS {
                changes.extend(batch.map(|batch| format!("method.{label}.batch={batch}")));
                // With full gradients all is over long before the paper's 1000 rounds.
                let rounds = if quick { Some(100) } else { batch.is_none().then_some(400) };
                changes.extend(rounds.map(|rounds| format!("method.{label}.rounds={rounds}")));
                let within = format!("{name}, step {step}");
                let full = batch.is_none();
                let taken = rounds_to_match(&within, label).median().paper((rows == 400).then_some(paper));
                cells.push(taken.reference(full.then_some(reference)));
                let never = never_matched(&within, label).paper((rows == 600).then_some(1.0));
                cells.push(never.reference(full.then_some(0.0)));
                let last = Cell::new(format!("{within}, last error"), move |record| error(record, label));
                cells.push(last.reference((rows == 600 && !full).then_some(floor)));
            }
            cases.push(Case::new(name, changes, [1, 10], cells));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Options, Unwatched, run};

    #[test]
    fn a_method_that_diverged_has_taken_all_rounds() {
        let e3 = &PAPER.experiments[2];
        let mut case = e3.cases(true).remove(0);
        let small = ["data.clients=4", "data.samples=20", "method.ifca.rounds=7", "method.ifca.step=1e200"];
        case.changes.extend(small.map(String::from));
        let experiment = e3.experiment(&case, 0, &[]).unwrap();
        let record = run(&experiment, &Options { threads: 1, ..Options::default() }, &mut Unwatched).unwrap();
        assert_eq!(repeat(&record, "ifca").unwrap().status, "diverged");
        let read = |cell: &Cell| (cell.read)(&record);
        let values: Vec<_> = case.cells[1..].iter().map(read).collect();
        assert_eq!(values, [Some(7.0), Some(7.0), Some(1.0)]);
    }
}
