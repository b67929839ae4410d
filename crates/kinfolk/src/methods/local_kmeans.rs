//! Local-KMeans: k-means on what clients learnt alone, and the mean of every cluster's models (a baseline of Vardhan, Ghosh,
//! Mazumdar 2024). It is ODCL with k-means whose clients take steps from one common model.
//!
//! ```text
//! 1  each client i: w_i ← local steps from w_0, sent
//! 2  C_1 … C_K ← k-means of the w_i
//! 3  ω_k ← mean of the w_i in C_k
//! ```
//!
//! `start = "own"` lets every client begin at a random model of its own. For networks that shows why the common start
//! matters: the same function has many parameter vectors, and neither distances nor means of them say anything.

use super::*;
use crate::clustering::convex::Weights;
use crate::clustering::{Algorithm, Request};

pub(super) static KIND: MethodKind = MethodKind {
    name: "local-kmeans",
    summary: "one round: k-means of the clients' own models, average inside",
    paper: "Vardhan, Ghosh, Mazumdar 2024",
    settings: &[
        Setting::new("clusters", Kind::Integer(1, 1 << 20), Default::Required, "how many clusters"),
        Setting::new("starts", Kind::Integer(1, 1 << 16), Default::Is("10"), "starts of k-means"),
        Setting::new(
            "start",
            Kind::OneOf(&["common", "own"]),
            Default::Is("\"common\""),
            "whether clients begin at one common model, or each at a random one",
        ),
        Setting::new("steps", Kind::Integer(1, 1 << 31), Default::Is("250"), "steps a client takes"),
        STEP,
        Setting::new("batch", Kind::Integer(1, 1 << 31), Default::Absent, "rows in a step (default all)"),
        Setting::new(
            "optimiser",
            Kind::OneOf(&["descent", "adam"]),
            Default::Is("\"descent\""),
            "how gradients become steps",
        ),
        Setting::new("momentum", Kind::Number(0.0, 1.0), Default::Is("0.0"), "momentum of descent"),
        Setting::new("weight_decay", Kind::Number(0.0, 1e18), Default::Is("0.0"), "pull of the parameters towards 0"),
        odcl::MISSING_ONCE,
    ],
    needs_truth: |_| false,
    has_clusters: true,
    wants: Ability::Descent,
    check: check_optimiser,
    build: |setup| {
        let (settings, clients) = (setup.settings, setup.rows.len());
        let clusters = settings.integer("clusters");
        setup.want_clients("clusters", clusters)?;
        let plan = Plan {
            sample: Sample {
                on: Portion::All,
                batch: settings.optional_integer("batch").map(|batch| batch as u32),
                seed: setup.key.clone().word("batches").number(0).seed(),
            },
            amount: Amount::Steps(settings.integer("steps") as u32),
            step: setup.steps()[0],
            optimiser: optimiser_of(settings),
            pulls: Vec::new(),
            course: Course::PLAIN,
        };
        let solve = match settings.text("start") {
            "own" => odcl::Solve::Apart { seed: setup.key.clone().word("start").seed(), plan },
            _ => odcl::Solve::Steps { from: odcl::common_start(&setup)?, plan },
        };
        let request = Request {
            algorithm: Algorithm::KMeans,
            clusters: Some(clusters),
            lambda: None,
            weights: Weights::Uniform,
            starts: settings.integer("starts"),
            path_values: 20,
            key: setup.key.clone().word("clustering"),
        };
        Ok(Box::new(odcl::Odcl::new(solve, request, None, clients)))
    },
};
