//! IFCA: Ghosh, Chung, Yin, Ramchandran 2020. What each experiment is, and what was found, is in experiments/ifca.

use super::{Case, Cell, Judge, Paper, Reproduction, declare_paper, repeat};
use crate::record::RepeatSummary;

pub(super) static PAPER: Paper = declare_paper! {
    "ifca", "An efficient framework for clustered federated learning (2020)",
    "e1a": "e1.toml", "Figure 2 (a): success against separation and noise, k = 2", |quick| separation(quick, 2, 100);
    "e1b": "e1.toml", "Figure 2 (b): success against separation and noise, k = 4", |quick| separation(quick, 4, 400);
    "e1c": "e1.toml", "Figure 2 (c): success against clients and rows, k = 2",
        |quick| sizes(quick, 2, &[50, 70, 100, 150, 200, 300, 400], &[0.1, 0.25]);
    "e1d": "e1.toml", "Figure 2 (d): success against clients and rows, k = 4",
        |quick| sizes(quick, 4, &[100, 200, 300, 400, 800], &[0.5, 0.75]);
    "e2": "e2-1200x200.toml", "Table 1: rotated MNIST", rotated_mnist;
    "e3": "e3.toml", "Table 1: rotated CIFAR-10 with a convolutional network (waits for an accelerator)",
        rotated_cifar;
};

/// A trial: ten starts with three steps each; it succeeds if one of them ends within 0.6σ of the truth. The first
/// start is tried alone, because where it succeeds the others cannot change that.
fn trial(quick: bool, clusters: usize, clients: usize, rows: usize, noise: f64, scale: f64, slack: f64) -> Case {
    let (first_step, steps) = if clusters == 2 { (0.1, "[0.1, 1.0, 0.01]") } else { (1.0, "[1.0, 2.0, 0.5]") };
    let (dimension, rounds) = if quick { (100, 100) } else { (1000, 300) };
    let limit = 0.6 * noise + slack;
    let name = format!("k={clusters} m={clients} n={rows} σ={noise} r={scale}");
    let cell = |what: &str, field: &'static str| {
        let within = Cell::share(format!("{name}{what}"), move |record| {
            let summary = repeat(record, "ifca")?;
            // With a single start its own error is the best one.
            let own = summary.extra.get(field.trim_end_matches("_best")).and_then(|error| error.as_f64());
            let error = summary.extra.get(field).map_or(own.or(summary.parameter_error), |best| best.as_f64());
            Some(error.is_some_and(|error| error <= limit))
        });
        Cell { best: Some(1.0), ..within }
    };
    let cells = vec![cell(", nearest", "parameter_error_nearest_best"), cell(", matched", "parameter_error_best")];
    let changes = vec![
        format!("data.clients={clients}"),
        format!("data.samples={rows}"),
        format!("data.dimension={dimension}"),
        format!("data.true_clusters={clusters}"),
        format!("data.noise={noise:?}"),
        format!("data.scale={scale:?}"),
        format!("method.ifca.clusters={clusters}"),
        format!("method.ifca.rounds={rounds}"),
        format!("evaluate_every={rounds}"),
    ];
    let attempts = vec![
        vec!["method.ifca.restarts=1".into(), format!("method.ifca.step={first_step:?}")],
        vec!["method.ifca.restarts=10".into(), format!("method.ifca.step={steps}")],
    ];
    Case { attempts, ..Case::new(name, changes, [2, 40], cells) }
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

/// The cells of Table 1, in percent, by the paper's protocol: test clients choose on the rows they are tested on, and the
/// pooled share of right answers counts; local models are tested on rows of their own rotation, averaged over clients.
fn table_1(size: &str, paper: [f64; 3]) -> Vec<Cell> {
    let methods = [("IFCA", "ifca"), ("global", "fedavg"), ("local", "local")];
    let cell = |((title, label), paper): ((&str, &'static str), f64)| {
        let share = move |repeat: &RepeatSummary| match label {
            "local" => Some(repeat.metric.as_ref()?.mean),
            _ => Some(repeat.unseen.as_ref()?.pooled),
        };
        let cell = Cell::of(format!("{title}{size}"), label, move |repeat| Some(100.0 * share(repeat)?));
        cell.paper(paper).judged(Judge::AtLeast(0.3))
    };
    methods.into_iter().zip(paper).map(cell).collect()
}

fn rotated_cifar(_: bool) -> Vec<Case> {
    let small = [
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
    vec![Case::new("cifar", Vec::new(), [1, 5], table_1("", [81.51, 77.87, 33.97])).small(&small).long()]
}

fn rotated_mnist(quick: bool) -> Vec<Case> {
    let sized = |(clients, rows, paper): (usize, usize, [f64; 3])| {
        let size = format!("{clients}x{rows}");
        let changes = vec![
            format!("name=ifca-e2-{size}"),
            format!("data.clients={clients}"),
            format!("data.samples={rows}"),
            format!("data.test_samples={rows}"),
            format!("data.unseen_clients={}", if quick { 40 } else { 40_000 / rows }),
        ];
        let small = ["method.ifca.rounds=20", "method.fedavg.rounds=20", "evaluate_every=20"];
        let cells = table_1(&format!(" {size}"), paper);
        Case::new(size, changes, [1, 5], cells).small(&small).long()
    };
    let table =
        [(1200, 200, [95.25, 89.73, 80.05]), (2400, 100, [95.05, 88.65, 73.66]), (4800, 50, [94.20, 86.74, 63.32])];
    if quick { vec![sized((80, 200, [0.0; 3]))] } else { table.into_iter().map(sized).collect() }
}
