//! IFCA: Ghosh, Chung, Yin, Ramchandran 2020. What each experiment is, and what was found, is in experiments/ifca.

use super::{Case, Cell, Judge, Paper, Reproduction, case, recorded_numbers, repeat};

pub(super) static PAPER: Paper = Paper {
    name: "ifca",
    title: "An efficient framework for clustered federated learning (2020)",
    experiments: &[
        Reproduction {
            name: "e1a",
            title: "Figure 2 (a): success against separation and noise, k = 2",
            text: include_str!("../../../../experiments/ifca/e1.toml"),
            cases: |quick| separation(quick, 2, 100),
        },
        Reproduction {
            name: "e1b",
            title: "Figure 2 (b): success against separation and noise, k = 4",
            text: include_str!("../../../../experiments/ifca/e1.toml"),
            cases: |quick| separation(quick, 4, 400),
        },
        Reproduction {
            name: "e1c",
            title: "Figure 2 (c): success against clients and rows, k = 2",
            text: include_str!("../../../../experiments/ifca/e1.toml"),
            cases: |quick| sizes(quick, 2, &[50, 70, 100, 150, 200, 300, 400], &[0.1, 0.25]),
        },
        Reproduction {
            name: "e1d",
            title: "Figure 2 (d): success against clients and rows, k = 4",
            text: include_str!("../../../../experiments/ifca/e1.toml"),
            cases: |quick| sizes(quick, 4, &[100, 200, 300, 400, 800], &[0.5, 0.75]),
        },
        Reproduction {
            name: "e2",
            title: "Table 1: rotated MNIST",
            text: include_str!("../../../../experiments/ifca/e2-1200x200.toml"),
            cases: rotated_mnist,
        },
        Reproduction {
            name: "e3",
            title: "Table 1: rotated CIFAR-10 with a convolutional network (waits for an accelerator)",
            text: include_str!("../../../../experiments/ifca/e3.toml"),
            cases: rotated_cifar,
        },
    ],
    recorded: recorded_numbers!("ifca"),
};

/// A trial: ten starts with three steps each; it succeeds if one of them ends within 0.6σ of the truth. The first
/// start is tried alone, because where it succeeds the others cannot change that.
fn trial(quick: bool, clusters: usize, clients: usize, rows: usize, noise: f64, scale: f64, slack: f64) -> Case {
    let (first_step, steps) = if clusters == 2 { (0.1, "[0.1, 1.0, 0.01]") } else { (1.0, "[1.0, 2.0, 0.5]") };
    let (dimension, rounds) = if quick { (100, 100) } else { (1000, 300) };
    let limit = 0.6 * noise + slack;
    let within = move |field: &'static str| {
        move |record: &crate::record::Record| {
            let summary = repeat(record, "ifca")?;
            let error = match summary.extra.get(field) {
                Some(error) => error.as_f64(),
                // With a single start its own error is the best one.
                None => summary
                    .extra
                    .get(field.trim_end_matches("_best"))
                    .and_then(|e| e.as_f64())
                    .or(summary.parameter_error),
            };
            Some(f64::from(u8::from(error.is_some_and(|error| error <= limit))))
        }
    };
    let name = format!("k={clusters} m={clients} n={rows} σ={noise} r={scale}");
    let cell = |what: &str, field: &'static str| Cell {
        best: Some(1.0),
        ..Cell::shown(format!("{name}{what}"), within(field))
    };
    Case {
        changes: vec![
            format!("data.clients={clients}"),
            format!("data.samples={rows}"),
            format!("data.dimension={dimension}"),
            format!("data.true_clusters={clusters}"),
            format!("data.noise={noise:?}"),
            format!("data.scale={scale:?}"),
            format!("method.ifca.clusters={clusters}"),
            format!("method.ifca.rounds={rounds}"),
            format!("evaluate_every={rounds}"),
        ],
        attempts: vec![
            vec!["method.ifca.restarts=1".into(), format!("method.ifca.step={first_step:?}")],
            vec!["method.ifca.restarts=10".into(), format!("method.ifca.step={steps}")],
        ],
        repeats: if quick { 2 } else { 40 },
        long: false,
        cells: vec![cell(", nearest", "parameter_error_nearest_best"), cell(", matched", "parameter_error_best")],
        name,
    }
}

fn separation(quick: bool, clusters: usize, clients: usize) -> Vec<Case> {
    let (noises, scales): (&[f64], &[f64]) = match quick {
        true => (&[0.1], &[0.1, 1.0]),
        false => (&[0.0, 0.1, 0.2, 0.4], &[0.1, 0.25, 0.5, 0.75, 1.0]),
    };
    let clients = if quick { clients / 4 } else { clients };
    let pairs = noises.iter().flat_map(|&noise| scales.iter().map(move |&scale| (noise, scale)));
    pairs.map(|(noise, scale)| trial(quick, clusters, clients, 100, noise, scale, 0.001)).collect()
}

fn sizes(quick: bool, clusters: usize, clients: &[usize], scales: &[f64]) -> Vec<Case> {
    let (clients, scales): (Vec<usize>, &[f64]) = match quick {
        true => (vec![clients[0] / 2, clients[0]], &scales[..1]),
        false => (clients.to_vec(), scales),
    };
    let rows: &[usize] = if quick { &[100] } else { &[50, 100, 200] };
    let mut cases = Vec::new();
    for &scale in scales {
        for &rows in rows {
            cases.extend(clients.iter().map(|&clients| trial(quick, clusters, clients, rows, 0.1, scale, 0.0)));
        }
    }
    cases
}

/// Accuracies in percent. The paper's protocol: test clients choose on the rows they are tested on, and the pooled
/// share of right answers counts; local models are tested on rows of their own rotation, averaged over clients.
/// A cell of Table 1: percent of the unseen clients' rows, for local models of the clients' own.
fn accuracy(name: String, label: &'static str, paper: f64) -> Cell {
    let read = move |record: &crate::record::Record| {
        let summary = repeat(record, label)?;
        let share = match label {
            "local" => summary.metric.as_ref()?.mean,
            _ => summary.unseen.as_ref()?.pooled,
        };
        Some(100.0 * share)
    };
    Cell::shown(name, read).beside(Some(paper), None).judged(Judge::AtLeast(0.3))
}

fn rotated_cifar(quick: bool) -> Vec<Case> {
    const SMALL: [&str; 10] = [
        "data.clients=8",
        "data.samples=50",
        "data.test_samples=25",
        "data.unseen_clients=4",
        "model.filters=[8, 8]",
        "model.hidden=[32]",
        "method.ifca.rounds=2",
        "method.ifca.participation=1",
        "method.fedavg.rounds=2",
        "method.local.local_epochs=2",
    ];
    let cells = vec![
        accuracy("IFCA".into(), "ifca", 81.51),
        accuracy("global".into(), "fedavg", 77.87),
        accuracy("local".into(), "local", 33.97),
    ];
    let changes = SMALL.iter().filter(|_| quick).map(|change| change.to_string()).collect();
    vec![Case { long: !quick, ..case("cifar".into(), changes, if quick { 1 } else { 5 }, cells) }]
}

fn rotated_mnist(quick: bool) -> Vec<Case> {
    let table: [(usize, usize, [f64; 3]); 3] =
        [(1200, 200, [95.25, 89.73, 80.05]), (2400, 100, [95.05, 88.65, 73.66]), (4800, 50, [94.20, 86.74, 63.32])];
    let sized = |(clients, rows, paper): (usize, usize, [f64; 3])| {
        let cell =
            |what: &str, label: &'static str, paper: f64| accuracy(format!("{what} {clients}x{rows}"), label, paper);
        let mut changes = vec![
            format!("name=ifca-e2-{clients}x{rows}"),
            format!("data.clients={clients}"),
            format!("data.samples={rows}"),
            format!("data.test_samples={rows}"),
            format!("data.unseen_clients={}", if quick { 40 } else { 40_000 / rows }),
        ];
        if quick {
            changes.extend(["ifca", "fedavg"].map(|label| format!("method.{label}.rounds=20")));
            changes.push("evaluate_every=20".into());
        }
        Case {
            name: format!("{clients}x{rows}"),
            changes,
            attempts: Vec::new(),
            repeats: if quick { 1 } else { 5 },
            long: !quick,
            cells: vec![
                cell("IFCA", "ifca", paper[0]),
                cell("global", "fedavg", paper[1]),
                cell("local", "local", paper[2]),
            ],
        }
    };
    match quick {
        true => vec![sized((80, 200, [0.0; 3]))],
        false => table.into_iter().map(sized).collect(),
    }
}
