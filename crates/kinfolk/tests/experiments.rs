//! The experiment files of this repository, small: they must parse, run, and show what they are there to show.

use kinfolk::experiment::{Experiment, Override};
use kinfolk::record::{Record, RepeatSummary};
use kinfolk::run::{Options, Unwatched, run};
use kinfolk::settings::Field;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kinfolk-papers/experiments")
}

fn parse(file: &str, changes: &[&str]) -> kinfolk::Result<Experiment> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    let changes: Vec<Override> = changes.iter().map(|change| Override::parse(change).unwrap()).collect();
    Experiment::parse(file, &text, &changes)
}

fn result(file: &str, changes: &[&str]) -> Record {
    run(&parse(file, changes).unwrap(), &Options::default(), &mut Unwatched).unwrap()
}

fn repeat<'a>(record: &'a Record, label: &str) -> &'a RepeatSummary {
    &record.summary.methods.iter().find(|method| method.label == label).unwrap().repeats[0]
}

#[test]
fn ifca_e1_small_finds_the_planted_parameters() {
    let small = [
        "repeat=1",
        "data.clients=20",
        "data.samples=50",
        "data.dimension=20",
        "method.ifca.rounds=100",
        "data.scale=1.0",
    ];
    let record = result("ifca/e1.toml", &small);
    let found = repeat(&record, "ifca");
    assert_eq!(found.misclustering, Some(0.0));
    let error = found.extra["parameter_error_nearest_best"].as_f64().unwrap();
    assert!(error <= 0.6 * 0.1, "{error}");
}

#[test]
fn ifca_e2_small_beats_one_model_and_local_models() {
    let small = [
        "data.source=digits",
        "data.clients=40",
        "data.samples=36",
        "data.test_samples=35",
        "data.unseen_clients=40",
        "method.ifca.rounds=40",
        "method.ifca.step=0.3",
        "method.ifca.start=farthest",
        "method.fedavg.rounds=40",
        "method.fedavg.step=0.3",
        "model.hidden=[32]",
    ];
    let record = result("ifca/e2-1200x200.toml", &small);
    let pooled = |label: &str| repeat(&record, label).unseen.as_ref().unwrap().pooled;
    assert_eq!(repeat(&record, "ifca").misclustering, Some(0.0));
    assert!(pooled("ifca") > pooled("fedavg") + 0.05);
    let local = repeat(&record, "local").metric.as_ref().unwrap().mean;
    assert!(repeat(&record, "ifca").metric.as_ref().unwrap().mean > local + 0.05);
}

#[test]
fn ifca_e3_small_runs_its_network() {
    let small = [
        "data.source=digits",
        "data.clients=8",
        "data.samples=40",
        "data.test_samples=20",
        "data.unseen_clients=4",
        "data.crop=1",
        "model.filters=[8, 8]",
        "model.hidden=[16]",
        "method.ifca.rounds=3",
        "method.ifca.participation=1",
        "method.ifca.batch=20",
        "method.fedavg.rounds=3",
        "method.fedavg.batch=20",
        "method.local.local_epochs=3",
        "method.local.batch=20",
    ];
    let record = result("ifca/e3.toml", &small);
    for label in ["ifca", "fedavg", "local"] {
        assert_eq!(repeat(&record, label).status, "done", "{label}");
    }
}

/// What makes SR-FCA's image experiments small, for these methods.
fn small_images(methods: &[&str], more: &[&str]) -> Vec<String> {
    let of = |label: &&str| {
        let rounds = ["local", "local-kmeans", "local-kmeans-apart"].contains(label);
        let rounds = (!rounds).then(|| format!("method.{label}.rounds=8"));
        rounds.into_iter().chain([format!("method.{label}.batch=20"), format!("method.{label}.step=0.01")])
    };
    let mut changes: Vec<String> = methods.iter().flat_map(of).collect();
    changes.push("data.source=digits".into());
    changes.extend(more.iter().map(|change| change.to_string()));
    changes
}

const BOTTOM_UP: [&str; 8] = ["sr-fca", "local", "fedavg", "cfl", "local-kmeans", "ifca", "fedsoft", "one-shot-ifca"];

#[test]
fn sr_fca_mnist_small_finds_both_kinds_of_clusters() {
    for (kind, beaten) in [("invert", 0.05), ("rotate", 0.0)] {
        let data =
            ["data.clients=16", "data.samples=80", "data.test_samples=30", "data.true_clusters=2", "model.hidden=[20]"];
        let mut changes = small_images(&BOTTOM_UP, &data);
        changes.push(format!("data.clusters={kind}"));
        for label in ["local-kmeans", "ifca", "fedsoft"] {
            changes.push(format!("method.{label}.clusters=2"));
        }
        for change in
            ["sr-fca.one_shot_steps", "one-shot-ifca.one_shot_steps", "local.local_steps", "local-kmeans.steps"]
        {
            changes.push(format!("method.{change}=80"));
        }
        let record = result("sr-fca/mnist.toml", &changes.iter().map(String::as_str).collect::<Vec<_>>());
        let found = repeat(&record, "sr-fca");
        assert_eq!((found.misclustering, found.clusters), (Some(0.0), Some(2)), "{kind}: {:?}", found.notes);
        let mean = |label: &str| repeat(&record, label).metric.as_ref().unwrap().mean;
        assert!(mean("sr-fca") > mean("local") + beaten, "{kind}: {} {}", mean("sr-fca"), mean("local"));
        let stages = ["one_shot", "refine_1", "refine_2"]
            .map(|stage| extra(&record, "sr-fca", &format!("metric_after_{stage}")));
        assert!((stages[0] - mean("local")).abs() < 0.06, "{kind}: {stages:?} {}", mean("local"));
        assert_eq!(stages[2], mean("sr-fca"));
        assert_eq!(record.comparisons.len(), 2);
    }
}

#[test]
fn sr_fca_local_kmeans_small_needs_a_common_start() {
    let data =
        ["data.clients=12", "data.samples=80", "data.test_samples=30", "data.true_clusters=2", "model.hidden=[20]"];
    let clusters = ["method.local-kmeans.clusters=2", "method.local-kmeans-apart.clusters=2"];
    let changes = small_images(&["local-kmeans", "local-kmeans-apart"], &[&data[..], &clusters].concat());
    let record = result("sr-fca/local-kmeans.toml", &changes.iter().map(String::as_str).collect::<Vec<_>>());
    let mean = |label: &str| repeat(&record, label).metric.as_ref().unwrap().mean;
    assert!(mean("local-kmeans") > mean("local-kmeans-apart") + 0.3);
}

#[test]
fn sr_fca_attack_small_is_withstood_by_trimming() {
    let data =
        ["data.clients=20", "data.samples=60", "data.test_samples=20", "data.true_clusters=2", "model.hidden=[20]"];
    let accuracy = |more: &[&str]| {
        let changes = small_images(&["sr-fca"], &[&data, more].concat());
        let record = result("sr-fca/attack.toml", &changes.iter().map(String::as_str).collect::<Vec<_>>());
        repeat(&record, "sr-fca").metric.as_ref().map(|metric| metric.mean)
    };
    let calm = accuracy(&["faults.attackers=0", "method.sr-fca.trim=0.25"]).unwrap();
    let robust = accuracy(&["method.sr-fca.trim=0.25", "faults.strength=50"]).unwrap();
    // Nothing holds a mean that is not trimmed: it may leave all bounds, and then has no score.
    let plain = accuracy(&["method.sr-fca.trim=0", "faults.strength=50"]).unwrap_or(0.0);
    assert!(robust > calm - 0.05, "{robust}, without attack {calm}");
    assert!(plain < robust - 0.05, "{plain}, trimmed {robust}");
}

#[test]
fn sr_fca_with_networks_of_images_small() {
    let writers = ["sr-fca", "sr-fca-quantile", "local", "fedavg", "cfl", "ifca", "fedsoft", "one-shot-ifca"];
    let changes = small_images(&writers, &["data.clients=6", "model.filters=[4, 4]", "model.hidden=[8]"]);
    let record = result("sr-fca/writers.toml", &changes.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(writers.iter().all(|label| repeat(&record, label).status == "done"));
    for file in ["sr-fca/cifar-rotated.toml", "sr-fca/cifar-label.toml"] {
        let methods = ["sr-fca", "local", "fedavg", "cfl", "ifca"];
        let data = [
            "data.clients=4",
            "data.samples=40",
            "data.test_samples=20",
            "data.crop=1",
            "model.width=4",
            "method.sr-fca.one_shot_steps=10",
            "method.local.local_steps=10",
        ];
        let changes = small_images(&methods, &data);
        let record = result(file, &changes.iter().map(String::as_str).collect::<Vec<_>>());
        for label in methods {
            let found = repeat(&record, label);
            assert!(found.status == "done" && found.rounds > 0, "{file}, {label}: {}", found.status);
        }
    }
    assert!(parse("sr-fca/shakespeare.toml", &[]).is_ok());
}

fn error(record: &Record, label: &str) -> f64 {
    extra(record, label, "normalised_mse")
}

#[test]
fn odcl_e1_small_reaches_the_oracle_in_one_round() {
    let small = ["repeat=1", "data.clients=40", "data.samples=800"];
    let record = result("odcl/e1.toml", &small);
    let oracle = error(&record, "oracle-average");
    for label in ["kmeans", "convex", "auto"] {
        assert!((error(&record, label) - oracle).abs() < 1e-9 * oracle, "{label}");
        assert_eq!(repeat(&record, label).clusters, Some(10), "{label}");
    }
    assert!(error(&record, "cluster-oracle") < 1.2 * oracle);
    assert!(error(&record, "local") > 2.0 * oracle);
    assert!(error(&record, "naive-average") > 0.9);
}

#[test]
fn odcl_and_a_few_rounds_small_beat_either_alone() {
    let record = result("odcl/start.toml", &["repeat=1", "data.clients=40", "data.samples=50"]);
    let both = error(&record, "ifca-from-odcl");
    assert!(both < 0.8 * error(&record, "odcl") && both < 0.5 * error(&record, "ifca-random"));
    assert!((both / error(&record, "cluster-oracle") - 1.0).abs() < 0.1);
}

#[test]
fn odcl_e2_small_beats_local_models() {
    let small = [
        "data.source=digits",
        "data.clients=20",
        "data.samples=4",
        "data.test_samples=6",
        "method.auto.clustering=spectral",
        "method.auto.clusters=2",
        "method.ifca-1-gradients.rounds=20",
        "method.ifca-1-models.rounds=20",
        "repeat=1",
    ];
    let record = result("odcl/e2.toml", &small);
    let accuracy = |label: &str| repeat(&record, label).metric.as_ref().unwrap().mean;
    assert_eq!(repeat(&record, "kmeans").misclustering, Some(0.0));
    assert!(accuracy("kmeans") >= accuracy("local"), "{} {}", accuracy("kmeans"), accuracy("local"));
    assert!(accuracy("cluster-oracle") > 0.9);
}

#[test]
fn odcl_e3_small_needs_many_rounds_for_one() {
    let small = ["repeat=1", "data.clients=20", "data.samples=100", "method.ifca.rounds=60"];
    let four = [
        "data.true_clusters=4",
        "method.odcl.clusters=4",
        "method.ifca.clusters=4",
        "method.ifca.start=planted",
        "method.ifca.start_distance=[0.17, 0.25]",
    ];
    for more in [&[][..], &four] {
        let record = result("odcl/e3.toml", &[&small[..], more].concat());
        let target = error(&record, "odcl");
        let errors =
            record.rounds.iter().filter(|round| round.label == "ifca").filter_map(|round| round.normalised_mse);
        let errors: Vec<f64> = errors.collect();
        assert_eq!(errors.len(), 60);
        assert!(errors[9] > 2.0 * target && errors[59] < 0.5 * errors[0], "{target} {errors:?}");
    }
}

#[test]
fn odcl_e4_small_separates_the_clusters() {
    let record = result("odcl/e4.toml", &["repeat=1", "data.clients=16", "data.samples=5000"]);
    let oracle = error(&record, "oracle-average");
    assert!((error(&record, "kmeans") - oracle).abs() < 1e-9 * oracle);
    assert!(error(&record, "cluster-oracle") < 2.0 * oracle && error(&record, "local") > oracle);
    assert!(repeat(&record, "convex").clusters.unwrap() >= 4);
}

#[test]
fn odcl_e5_small_finds_four_clusters_on_the_path() {
    let record = result("odcl/e5.toml", &["repeat=1", "data.clients=24", "data.samples=800"]);
    for label in ["exact", "clusterpath", "auto"] {
        assert_eq!(repeat(&record, label).clusters, Some(4), "{label}");
        assert_eq!(repeat(&record, label).misclustering, Some(0.0), "{label}");
    }
}

#[test]
fn odcl_e6_small_runs_with_three_steps() {
    let labels = ["ifca-large", "ifca-middle", "ifca-small"];
    let rounds = labels.map(|label| format!("method.{label}.rounds=10"));
    let mut small = vec!["repeat=1", "data.clients=24", "data.samples=600"];
    small.extend(rounds.iter().map(String::as_str));
    let record = result("odcl/e6.toml", &small);
    let [large, middle, little] = labels.map(|label| error(&record, label));
    assert!(large < middle && middle < little, "{large} {middle} {little}");
}

fn extra(record: &Record, label: &str, field: &str) -> f64 {
    repeat(record, label).extra[field].as_f64().unwrap()
}

#[test]
fn known_clusters_e1_small_is_nearest_to_the_truth() {
    let small = ["repeat=1", "data.clients=40", "data.true_clusters=4", "data.samples=10"];
    let record = result("known-clusters/e1.toml", &small);
    let distance = |label: &str| extra(&record, label, "personal_error");
    let exact = distance("hierarchical");
    for label in ["local", "single-model", "single-cluster"] {
        assert!(exact < 0.9 * distance(label), "{label}: {exact} {}", distance(label));
    }
    assert!((distance("estimated") / exact - 1.0).abs() < 0.02);
    assert!((distance("james-stein") / exact - 1.0).abs() < 0.05);
}

#[test]
fn known_clusters_e2_tunes_on_the_papers_grid() {
    for (file, target, model) in
        [("known-clusters/e2.toml", "score", "linear"), ("known-clusters/e2-pass.toml", "pass", "logistic")]
    {
        let experiment = parse(file, &[]).unwrap();
        assert_eq!(
            (experiment.data.get("target").and_then(toml::Value::as_str).unwrap(), experiment.model_kind.name),
            (target, model)
        );
        let tuned = experiment.methods.iter().find(|method| method.label == "tuned").unwrap();
        let grid = Vec::<f64>::find(&tuned.settings, "grid").unwrap();
        assert_eq!(grid.len(), 33);
        for (place, value) in grid.iter().enumerate() {
            let wanted = 10f64.powf(-2.0 + 0.125 * place as f64);
            assert!((value / wanted - 1.0).abs() < 1e-4, "{value}, want {wanted}");
        }
    }
}

#[test]
fn known_clusters_e3_small_approaches_the_minimiser() {
    let small = [
        "repeat=1",
        "data.clients=40",
        "data.true_clusters=4",
        "data.dimension=5",
        "data.samples=50",
        "data.noise=2.0",
    ];
    let steps = ["l2gd", "l2gd-half", "l2gd-quarter", "l2gd-eighth", "accuracy"];
    let fewer = steps.map(|label| format!("method.{label}.iterations=4000"));
    let record = result(
        "known-clusters/e3.toml",
        &small.into_iter().chain(fewer.iter().map(String::as_str)).collect::<Vec<_>>(),
    );
    let distance = |label: &str| extra(&record, label, "distance_to_exact");
    assert!(distance("l2gd") < 0.3, "{}", distance("l2gd"));
    assert!(distance("l2gd-eighth") < 0.7 * distance("l2gd"));
    assert!(distance("accuracy") < 0.5 * distance("l2gd"));
    for label in ["all-often", "all-seldom", "one-often", "one-seldom"] {
        assert!(distance(label) < 1e-8, "{label}: {}", distance(label));
        let (found, expected) = (extra(&record, label, "refreshes"), extra(&record, label, "expected_refreshes"));
        assert!((found - expected).abs() < 4.0 * expected.sqrt(), "{label}: {found}, want about {expected}");
    }
}

#[test]
fn fedgrem_e1_small_is_ahead_of_the_others() {
    for (file, few) in [("fedgrem/e1-gaussian.toml", 3), ("fedgrem/e1-regression.toml", 2)] {
        let small = [
            "repeat=1".to_string(),
            "data.clients=6".to_string(),
            format!("data.components={few}"),
            format!("model.components={few}"),
            "method.local-grem.rounds=100".to_string(),
            "method.pooled-grem.rounds=100".to_string(),
        ];
        let record = result(file, &small.iter().map(String::as_str).collect::<Vec<_>>());
        let error = |label: &str| extra(&record, label, "centre_error");
        for other in ["local-em", "fedem", "tgmm", "pooled-em"] {
            assert!(error("fedgrem") < error(other), "{file} {other}: {} against {}", error("fedgrem"), error(other));
        }
        assert!(error("fedgrem") < 0.7, "{file}: {}", error("fedgrem"));
        assert_eq!(extra(&record, "fedgrem", "outlier_auc"), 1.0, "{file}");
    }
}

#[test]
fn fedgrem_e2_small_is_ahead_of_the_authors_version_at_any_step_size() {
    let with = |step: &str| {
        let steps = ["fedgrem", "authors"].map(|label| format!("method.{label}.step={step}"));
        let changes = ["repeat=1", "data.components=3", "model.components=3", &steps[0], &steps[1]];
        let record = result("fedgrem/e2.toml", &changes);
        ["fedgrem", "authors"].map(|label| extra(&record, label, "centre_error"))
    };
    for step in ["0.55", "0.95", "1.35"] {
        let [ours, theirs] = with(step);
        assert!(ours < theirs && ours < 0.6, "{step}: {ours} against {theirs}");
    }
}

/// Eight clients with three clouds of rows each, as a table.
fn clouds(path: &Path) {
    let mut text = String::from("a,b,c,class,client\n");
    let mut key = 0.5_f64;
    let mut noise = || {
        key = (key * 997.0 + 0.123).fract();
        key - 0.5
    };
    for client in 0..8 {
        for row in 0..60 {
            let class = row % 3;
            let centre = [[0.0, 0.0, 4.0], [4.0, 0.0, 0.0], [0.0, 4.0, 0.0]][class];
            let values: Vec<String> = centre.iter().map(|value| format!("{}", value + 2.0 * noise())).collect();
            text += &format!("{},k{class},{client}\n", values.join(","));
        }
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn fedgrem_e3_small_tells_rows_and_clients_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clouds.csv");
    clouds(&path);
    let path = format!("data.path={}", path.display());
    let table =
        ["repeat=1", "data.outliers=0.25", "model.components=3", "data.client=client", "data.target=class", &path];
    let files = [
        ("fedgrem/e3-pendigits.toml", true),
        ("fedgrem/e3-pendigits-weak.toml", true),
        ("fedgrem/e3-mnist.toml", false),
        ("fedgrem/e3-fashion-mnist.toml", false),
    ];
    for (file, other_source) in files {
        let source: &[&str] = if other_source { &["data.source=table"] } else { &[] };
        let record = result(file, &[&table[..], source].concat());
        let error = |label: &str| repeat(&record, label).metric.as_ref().unwrap().mean;
        assert!(error("fedgrem") <= 0.02, "{file}: {}", error("fedgrem"));
        assert!(error("fedgrem") <= error("local-em"), "{file}");
        assert_eq!(extra(&record, "fedgrem", "outlier_auc"), 1.0, "{file}");
    }
}

#[test]
fn auto_small_finds_as_many_families_as_there_are() {
    let digits = ["method.auto.rounds=40", "method.auto-plain.rounds=40", "method.auto-plain.step=0.3"];
    let few = ["method.auto.rounds=30"];
    let image = |clusters: &'static str| {
        let mut changes =
            vec!["data.source=digits", "data.clients=20", "data.samples=60", "data.test_samples=20", clusters];
        changes.extend(["data.true_clusters=2", "model.hidden=[20]", "method.auto.rounds=24"]);
        changes.extend(["method.auto.batch=20", "method.auto.step=0.01"]);
        changes
    };
    let (rotated, inverted) = (image("data.clusters=rotate"), image("data.clusters=invert"));
    for (file, changes, families) in [
        ("auto/digits.toml", &digits[..], 4),
        ("auto/few-clients.toml", &few[..], 4),
        ("auto/mnist.toml", &rotated[..], 2),
        ("auto/mnist.toml", &inverted[..], 2),
    ] {
        let record = result(file, changes);
        let found = repeat(&record, "auto");
        assert_eq!((found.misclustering, found.clusters), (Some(0.0), Some(families)), "{file}: {:?}", found.notes);
        assert!(extra(&record, "auto", "heterogeneity_p") <= 0.001, "{file}");
    }
}

#[test]
fn auto_small_finds_no_families_among_clients_that_are_alike() {
    let small = [
        "data.source=digits",
        "data.clients=12",
        "data.samples=30",
        "data.test_samples=10",
        "data.clusters=none",
        "model.filters=[4]",
        "model.hidden=[16]",
        "method.auto.rounds=6",
        "method.auto.batch=10",
    ];
    let record = result("auto/writers.toml", &small);
    assert_eq!(repeat(&record, "auto").clusters, Some(1));
    assert!(extra(&record, "auto", "heterogeneity_p") > 0.05);
}

/// What a run says it spent of ε.
fn spent(record: &Record, label: &str) -> f64 {
    let notes = &repeat(record, label).notes;
    let said = notes.iter().find_map(|note| note.strip_prefix("differential privacy of ")?.split_once("ε = "));
    said.unwrap_or_else(|| panic!("{notes:?}")).1.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn school_small_spends_its_budget_on_every_method() {
    let table = concat!("data.path=", env!("CARGO_MANIFEST_DIR"), "/../../examples/bakeries.csv");
    let rounds = ["method.local.rounds=2", "method.fedavg.rounds=4", "method.mr-mtl.rounds=4"];
    let small = [&["repeat=1", table, "data.client=bakery", "data.target=sold"][..], &rounds].concat();
    let record = result("privacy/school.toml", &small);
    for label in ["local", "fedavg", "mr-mtl"] {
        let spent = spent(&record, label);
        assert!(spent <= 6.0 && spent > 5.9, "{label}: {spent}");
        assert!(repeat(&record, label).metric.as_ref().unwrap().mean.is_finite());
    }
}

#[test]
fn hidden_rows_small_are_hidden_in_every_family() {
    let small = ["repeat=1", "data.clients=20", "data.samples=60", "data.dimension=4", "method.ifca.rounds=10"];
    let record = result("privacy/mixed.toml", &small);
    let spent = spent(&record, "ifca");
    assert!(spent <= 8.0 && spent > 7.9, "{spent}");
    assert_eq!(repeat(&record, "ifca").status, "done");
}

#[test]
fn hidden_digits_small_keep_their_budget_by_row_and_by_client() {
    let digits = ["repeat=1", "data.source=digits", "data.clients=12", "data.samples=40", "data.test_samples=10"];
    for file in ["privacy/mnist-rows.toml", "privacy/mnist-clients.toml"] {
        let record = result(file, &[&digits[..], &["data.true_clusters=2", "method.ifca.rounds=4"]].concat());
        let spent = spent(&record, "ifca");
        assert!(spent <= 2.0 && spent > 1.9, "{file}: {spent}");
        assert_eq!(repeat(&record, "ifca").status, "done", "{file}");
    }
    parse("privacy/minority.toml", &[]).unwrap();
}

#[test]
fn hidden_minimisers_small_are_clustered() {
    let small = ["repeat=1", "data.clients=20", "data.samples=400", "data.dimension=5", "data.true_clusters=2"];
    let record = result("privacy/odcl.toml", &[&small[..], &["method.kmeans.clusters=2"]].concat());
    for label in ["oracle-average", "kmeans", "auto"] {
        let spent = spent(&record, label);
        assert!(spent <= 4.0 && spent > 3.9, "{label}: {spent}");
        assert_eq!(repeat(&record, label).misclustering, Some(0.0), "{label}");
    }
}

#[test]
fn hidden_mixtures_small_are_learned() {
    let small = ["repeat=1", "data.clients=6", "data.samples=300"];
    let record = result("privacy/mixture.toml", &small);
    for label in ["fedgrem", "mixture-fedem", "pooled-em"] {
        let spent = spent(&record, label);
        assert!(spent <= 8.0 && spent > 7.9, "{label}: {spent}");
        assert!(repeat(&record, label).metric.as_ref().unwrap().mean < 0.1, "{label}");
    }
}

#[test]
fn hidden_clients_small_are_hidden_in_sums() {
    let small = ["repeat=1", "data.clients=40", "data.dimension=4", "method.ifca.rounds=5"];
    let record = result("privacy/mixed-clients.toml", &small);
    let spent = spent(&record, "ifca");
    assert!(spent <= 8.0 && spent > 7.9, "{spent}");
    assert_eq!(repeat(&record, "ifca").status, "done");
}

#[test]
fn hostile_digits_small_are_safe_behind_the_recommended_rule() {
    let methods = ["ifca-spare", "oracle"];
    let left = |rule: &[&str], faults: &[&str]| -> Vec<f64> {
        let rules = methods.iter().flat_map(|label| rule.iter().map(move |rule| format!("method.{label}.{rule}")));
        let changes: Vec<String> = rules.chain(faults.iter().map(|fault| format!("faults.{fault}"))).collect();
        let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
        let mut experiment = parse("hostile/digits.toml", &changes).unwrap();
        experiment.methods.retain(|entry| methods.contains(&entry.label.as_str()));
        let record = run(&experiment, &Options::default(), &mut Unwatched).unwrap();
        methods.iter().map(|label| extra(&record, label, "honest_metric")).collect()
    };
    let recommended = ["aggregate=trimmed-mean"];
    let calm = left(&recommended, &["attack=noise", "strength=1e-9"]);
    assert!(calm.iter().all(|accuracy| *accuracy > 0.88), "{calm:?}");
    for faults in [
        &["attack=sign-flip"][..],
        &["attack=backdoor", "attack_from=start"],
        &["attack=noise", "attack_from=start"],
        &["attack=min-sum"],
        &["attack=alie", "attackers=0.3", "attackers_in=2"],
    ] {
        let found = left(&recommended, faults);
        let lost: Vec<f64> = calm.iter().zip(&found).map(|(calm, found)| calm - found).collect();
        assert!(lost.iter().all(|lost| *lost < 0.05), "{faults:?}: {found:?}, without attack {calm:?}");
    }
    let mean = left(&[], &["attack=noise", "attack_from=start"]);
    assert!(mean[0] < calm[0] - 0.1, "{mean:?}, with the rule and without attack {calm:?}");
}

#[test]
fn every_experiment_file_is_tested_here() {
    let here = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/experiments.rs")).unwrap();
    for paper in std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for file in std::fs::read_dir(&paper).unwrap().map(|entry| entry.unwrap().path()) {
            let is_experiment =
                file.extension().is_some_and(|extension| extension == "toml") && !file.ends_with("paper.toml");
            if is_experiment {
                let name = format!("{}/{}", paper.file_name().unwrap().display(), file.file_name().unwrap().display());
                assert!(here.contains(&name), "{name} has no small version in tests/experiments.rs");
            }
        }
    }
}

/// The quickstart against its recorded numbers. Bits are promised on one kind of CPU only, hence the tolerances;
/// what is counted must agree exactly. `make bless` records anew.
#[test]
fn the_quickstart_gives_its_recorded_numbers() {
    let preset = kinfolk::presets::find("quickstart").unwrap();
    let experiment = Experiment::parse(preset.name, preset.text, &[]).unwrap();
    let record = run(&experiment, &Options::default(), &mut Unwatched).unwrap();
    let mut means: Vec<Value> = record
        .summary
        .methods
        .iter()
        .map(|method| serde_json::json!({ "label": method.label, "mean": method.mean }))
        .collect();
    for method in &mut means {
        method["mean"].as_object_mut().unwrap().remove("seconds");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/quickstart.json");
    if std::env::var_os("KINFOLK_BLESS").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&means).unwrap() + "\n").unwrap();
    }
    let recorded: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(means.len(), recorded.len());
    for (now, then) in means.iter().zip(&recorded) {
        compare(now["label"].as_str().unwrap(), now, then);
    }
}

fn compare(place: &str, now: &Value, then: &Value) {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            assert_eq!(now.keys().collect::<Vec<_>>(), then.keys().collect::<Vec<_>>(), "{place}");
            now.iter().for_each(|(key, now)| compare(&format!("{place}.{key}"), now, &then[key]));
        }
        (Value::Array(now), Value::Array(then)) => {
            assert_eq!(now.len(), then.len(), "{place}");
            now.iter().zip(then).for_each(|(now, then)| compare(place, now, then));
        }
        (Value::Number(now), Value::Number(then)) => {
            let (now, then) = (now.as_f64().unwrap(), then.as_f64().unwrap());
            let counted =
                ["bytes", "models", "rounds", "clusters", "misclustering"].iter().any(|word| place.contains(word));
            let tolerance = if counted { 0.0 } else { 0.02 };
            assert!((now - then).abs() <= tolerance, "{place}: {now}, recorded {then}");
        }
        _ => assert_eq!(now, then, "{place}"),
    }
}
