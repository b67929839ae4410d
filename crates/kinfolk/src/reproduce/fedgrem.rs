//! FedGrEM: Tian, Weng, Feng 2024. What each experiment is, and what was found, is in experiments/fedgrem.
//!
//! The references are those of an independent implementation in numpy.

use super::{Case, Cell, Judge, Paper, Reproduction, declare_paper, extra};
use crate::record::Record;

pub(super) static PAPER: Paper = declare_paper! {
    "fedgrem", "Towards the theory of unsupervised federated learning (2024)",
    "e1-gaussian": "e1-gaussian.toml",
        "Figure 3: errors of weights and centres of normal components against the heterogeneity",
        |quick| curves(quick, GAUSSIAN);
    "e1-regression": "e1-regression.toml",
        "Figure 3: errors of weights and coefficients of regressions against the heterogeneity",
        |quick| curves(quick, REGRESSION);
    "e2": "e2.toml", "Tables 4 and 5: errors against the step size, and the authors' version beside ours", step_sizes;
    "e3-pendigits": "e3-pendigits.toml",
        "Table 1: misclustered rows of pen digits, percent, against the share of outliers",
        |quick| contaminated(quick, &PEN_DIGITS);
    "e3-pendigits-weak": "e3-pendigits-weak.toml", "Table 1 with weak starts",
        |quick| contaminated(quick, &PEN_DIGITS_WEAK);
    "e3-mnist": "e3-mnist.toml", "Table 2: misclustered images of MNIST in ten dimensions, percent",
        |quick| contaminated(quick, &MNIST);
    "e3-fashion-mnist": "e3-fashion-mnist.toml",
        "Table 3: misclustered images of Fashion-MNIST in ten dimensions, percent",
        |quick| contaminated(quick, &FASHION);
};

/// Labels of the methods and their names in the paper, in the order of its tables; two more are in the simulations only.
const METHODS: [(&str, &str); 7] = [
    ("local-em", "Local-EM"),
    ("local-grem", "Local-GrEM"),
    ("fedem", "FedEM"),
    ("fedgrem", "FedGrEM"),
    ("tgmm", "TGMM"),
    ("pooled-em", "Pooled-EM"),
    ("pooled-grem", "Pooled-GrEM"),
];
const IN_SIMULATIONS: [(&str, &str); 2] = [("fedgmm", "FedGMM"), ("authors", "FedGrEM as in the authors' code")];

/// What the reference found at some heterogeneities: the method, and its error of the centres.
type Reference = &'static [(f64, &'static [(&'static str, f64)])];

const GAUSSIAN: Reference = &[
    (0.0, &[("local-em", 1.31), ("fedem", 1.05), ("tgmm", 0.94), ("authors", 0.75), ("fedgrem", 0.62)]),
    (0.5, &[("local-em", 1.62), ("fedem", 1.34), ("tgmm", 1.21), ("authors", 0.96), ("fedgrem", 0.88)]),
    (1.0, &[("local-em", 1.59), ("fedem", 1.74), ("tgmm", 1.56), ("authors", 1.11), ("fedgrem", 1.07)]),
    (2.0, &[("local-em", 1.43), ("fedem", 2.65), ("tgmm", 2.37), ("authors", 1.32), ("fedgrem", 1.33)]),
];
const REGRESSION: Reference = &[
    (0.0, &[("local-em", 6.95), ("fedem", 3.67), ("authors", 2.15), ("fedgrem", 0.34)]),
    (1.0, &[("local-em", 6.79), ("fedem", 4.93), ("authors", 4.84), ("fedgrem", 2.75)]),
];

/// A half of Figure 3.
fn curves(quick: bool, reference: Reference) -> Vec<Case> {
    let all: &[f64] = if quick { &[0.0, 1.0] } else { &[0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0] };
    let clean: &[f64] = if quick { &[] } else { &[0.0, 1.0, 2.0] };
    let with = |h: f64, outliers: usize| {
        let name = if outliers == 0 { format!("h={h}, no outlier") } else { format!("h={h}") };
        let changes = vec![format!("data.heterogeneity={h:?}"), format!("data.outliers={outliers}")];
        let known = reference.iter().find(|(at, _)| *at == h && outliers == 1).map_or(&[][..], |(_, known)| known);
        let cells = METHODS.iter().chain(&IN_SIMULATIONS).flat_map(|&(label, title)| {
            let found = known.iter().find(|(of, _)| *of == label).map(|(_, error)| *error);
            let centres = Cell::extra(format!("{name} {title}, θ"), label, "centre_error").reference(found);
            let judge = if label == "fedgrem" { Judge::AtMostReference(0.04) } else { Judge::Shown };
            [centres.judged(judge), Cell::extra(format!("{name} {title}, w"), label, "weight_error")]
        });
        let cells = cells.collect();
        Case::new(name, changes, [1, 100], cells)
    };
    all.iter().map(|&h| with(h, 1)).chain(clean.iter().map(|&h| with(h, 0))).collect()
}

const STEP_SIZES: [f64; 9] = [0.55, 0.65, 0.75, 0.85, 0.95, 1.05, 1.15, 1.25, 1.35];

/// Table 5: rows are step sizes, columns h = 0, 0.25, … 1.75.
const TABLE_5: [[f64; 8]; 9] = [
    [1.36, 1.47, 1.62, 1.71, 1.89, 2.07, 2.23, 2.44],
    [1.28, 1.38, 1.52, 1.62, 1.79, 1.99, 2.14, 2.33],
    [1.22, 1.34, 1.44, 1.54, 1.71, 1.93, 2.02, 2.25],
    [1.17, 1.30, 1.38, 1.49, 1.66, 1.88, 1.95, 2.22],
    [1.13, 1.30, 1.34, 1.45, 1.60, 1.82, 1.90, 2.14],
    [1.12, 1.27, 1.30, 1.42, 1.54, 1.79, 1.85, 2.07],
    [1.10, 1.25, 1.32, 1.39, 1.52, 1.79, 1.82, 2.04],
    [1.09, 1.23, 1.34, 1.40, 1.50, 1.78, 1.81, 1.99],
    [1.21, 1.24, 1.31, 1.36, 1.49, 1.81, 1.79, 1.99],
];
/// Table 4, whose rows agree to 0.001: columns h = 0, 0.25, … 1.5.
const TABLE_4: [f64; 7] = [0.072, 0.071, 0.068, 0.071, 0.072, 0.071, 0.071];

fn step_sizes(quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for (row, &step) in STEP_SIZES.iter().enumerate().filter(|(row, _)| !quick || row % 4 == 0) {
        for (column, &paper) in TABLE_5[row].iter().enumerate().filter(|(column, _)| !quick || *column == 0) {
            let h = 0.25 * column as f64;
            let name = format!("C={step} h={h}");
            let mut changes = vec![format!("data.heterogeneity={h:?}")];
            changes.extend(["fedgrem", "authors"].map(|label| format!("method.{label}.step={step}")));
            let cell =
                |label, title: &str, what: &str, field| Cell::extra(format!("{name} {title}, {what}"), label, field);
            let weights = TABLE_4.get(column).copied();
            let cells = vec![
                cell("authors", "authors' version", "θ", "centre_error").paper(paper),
                cell("fedgrem", "ours", "θ", "centre_error").paper(paper).judged(Judge::AtMost(0.0)),
                cell("authors", "authors' version", "w", "weight_error").paper(weights),
                cell("fedgrem", "ours", "w", "weight_error").paper(weights).judged(Judge::AtMost(0.01)),
            ];
            cases.push(Case::new(name, changes, [1, 20], cells));
        }
    }
    cases
}

/// One of Tables 1 to 3.
struct Contaminated {
    shares: [f64; 4],
    /// The paper's errors in percent, method by method as in [`METHODS`].
    paper: [[f64; 7]; 4],
    judge: Judge,
    repeats: u64,
    small: &'static [&'static str],
}

const PEN_DIGITS: Contaminated = Contaminated {
    shares: [0.0, 0.068, 0.136, 0.205],
    paper: [
        [13.30, 13.20, 15.75, 9.62, 25.14, 26.84, 34.88],
        [12.88, 12.96, 15.87, 9.31, 25.00, 26.60, 34.61],
        [12.62, 12.99, 17.56, 9.04, 25.68, 26.79, 35.61],
        [12.94, 13.31, 18.52, 9.39, 26.14, 27.05, 37.94],
    ],
    judge: Judge::AtMost(0.0),
    repeats: 50,
    small: &["data.clients=8"],
};
const PEN_DIGITS_WEAK: Contaminated = Contaminated { judge: Judge::Shown, repeats: 20, ..PEN_DIGITS };
const MNIST: Contaminated = Contaminated {
    shares: [0.0, 0.08, 0.16, 0.24],
    paper: [
        [12.47, 12.06, 9.97, 10.63, 12.18, 12.84, 10.67],
        [12.30, 11.98, 11.97, 10.64, 13.66, 15.07, 14.16],
        [12.47, 12.06, 14.46, 10.96, 14.47, 16.16, 14.97],
        [12.43, 12.10, 21.67, 10.97, 15.70, 15.50, 14.35],
    ],
    judge: Judge::AtMost(0.0),
    repeats: 5,
    small: &["method.local-grem.rounds=20", "method.pooled-grem.rounds=20", "method.fedgrem.rounds=20"],
};
const FASHION: Contaminated = Contaminated {
    paper: [
        [36.40, 35.66, 36.06, 34.44, 36.14, 36.31, 35.72],
        [36.40, 35.69, 36.82, 33.27, 36.71, 39.75, 39.71],
        [36.34, 35.65, 36.80, 33.29, 37.50, 39.65, 39.34],
        [36.31, 35.61, 37.93, 33.35, 38.20, 39.51, 39.44],
    ],
    ..MNIST
};

fn contaminated(quick: bool, table: &Contaminated) -> Vec<Case> {
    let mut cases = Vec::new();
    for (share, paper) in table.shares.iter().zip(&table.paper).filter(|(share, _)| !quick || **share == 0.0) {
        let name = format!("ε={}%", (share * 1000.0).round() / 10.0);
        let mut cells = Vec::new();
        for (&(label, title), &paper) in METHODS.iter().zip(paper) {
            let judge = if label == "fedgrem" { table.judge } else { Judge::Shown };
            cells.push(Cell::percent(format!("{name} {title}"), label).paper(paper).judged(judge));
        }
        cells.push(Cell::percent(format!("{name} FedGMM"), "fedgmm"));
        for (label, title) in [("fedgrem", "FedGrEM"), ("fedem", "FedEM"), ("pooled-em", "Pooled-EM")] {
            let global = move |record: &Record| Some(100.0 * extra(record, label, "row_error_global")?);
            cells.push(Cell::new(format!("{name} {title}, one matching for all"), global));
        }
        if *share > 0.0 {
            let name = format!("{name} area under the curve of outlier scores");
            cells.push(Cell::extra(name, "fedgrem", "outlier_auc"));
        }
        let changes = vec![format!("data.outliers={share:?}")];
        cases.push(Case::new(name, changes, [1, table.repeats], cells).small(table.small));
    }
    cases
}
