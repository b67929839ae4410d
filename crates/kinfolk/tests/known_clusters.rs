//! Personal models in known clusters, from an experiment to its record.

use kinfolk::experiment::{Experiment, Override};
use kinfolk::record::{Record, RepeatSummary};
use kinfolk::run::{Options, Unwatched, run};

const DATA: &str = r#"
save_models = "none"
evaluate_every = 1000000

[data]
source = "hierarchical-linear"
clients = 40
true_clusters = 4
dimension = 6
samples = 12
test_samples = 30

[model]
kind = "linear"
intercept = false
"#;

fn record(methods: &str, changes: &[&str]) -> Record {
    let text = format!("{DATA}{methods}");
    let overrides: Vec<Override> = changes.iter().map(|change| Override::parse(change).unwrap()).collect();
    let experiment = Experiment::parse("test", &text, &overrides).unwrap();
    run(&experiment, &Options { threads: 1, ..Options::default() }, &mut Unwatched).unwrap()
}

fn repeat<'a>(record: &'a Record, label: &str) -> &'a RepeatSummary {
    &record.summary.methods.iter().find(|method| method.label == label).unwrap().repeats[0]
}

fn number(record: &Record, label: &str, name: &str) -> f64 {
    repeat(record, label).extra[name].as_f64().unwrap()
}

fn metrics(record: &Record, label: &str) -> Vec<f64> {
    record.clients.iter().filter(|client| client.label == label).map(|client| client.metric.unwrap()).collect()
}

fn largest_gap(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / b.abs()).fold(0.0, f64::max)
}

#[test]
fn personal_models_beat_what_they_are_made_of() {
    let methods = r#"
        [[method]]
        name = "local"
        solve = "exact"
        [[method]]
        name = "single-model"
        [[method]]
        name = "single-cluster"
        [[method]]
        name = "hierarchical"
        gamma = 1
        lambda = 1
        [[method]]
        name = "hierarchical"
        label = "estimated"
        [[method]]
        name = "james-stein"
        gamma = 1
    "#;
    for samples in [2, 6, 12, 60] {
        let record = record(methods, &[&format!("data.samples={samples}")]);
        let error = |label: &str| number(&record, label, "personal_error");
        let ours = error("hierarchical");
        for other in ["local", "single-model", "single-cluster"] {
            assert!(ours < error(other), "{samples} rows: {ours}, {other} {}", error(other));
        }
        if samples >= 6 {
            let estimated = error("estimated");
            // Six rows for six parameters and four clusters tell little of variances.
            let most = if samples > 6 { 1.01 } else { 1.05 };
            assert!(estimated < most * ours, "{samples} rows: {estimated} where the variances are known {ours}");
            assert!(error("james-stein") < error("local"));
        }
    }
}

#[test]
fn the_accelerated_algorithm_ends_at_the_exact_minimiser_and_the_plain_one_near_it() {
    let methods = r#"
        [[method]]
        name = "hierarchical"
        gamma = 1
        lambda = 1
        [[method]]
        name = "al2sgd+"
        gamma = 1
        lambda = 1
        tolerance = 1e-11
        [[method]]
        name = "al2sgd+"
        label = "one-row"
        rows = "one"
        gamma = 1
        lambda = 1
        iterations = 60000
        [[method]]
        name = "l2gd"
        gamma = 1
        lambda = 1
        iterations = 20000
        [[method]]
        name = "l2gd"
        label = "one-coin"
        coins = "one"
        gamma = 1
        lambda = 1
        iterations = 20000
        [[method]]
        name = "l2gd"
        label = "short-steps"
        gamma = 1
        lambda = 1
        iterations = 60000
        step = 0.0002
    "#;
    for samples in [4, 30] {
        let record = record(methods, &[&format!("data.samples={samples}")]);
        let exact = metrics(&record, "hierarchical");
        let gap = |label: &str| largest_gap(&metrics(&record, label), &exact);
        assert!(gap("al2sgd+") < 1e-8, "{samples} rows: {}", gap("al2sgd+"));
        assert_eq!(repeat(&record, "al2sgd+").status, "done");
        assert!(gap("one-row") < 1e-4, "{samples} rows: {}", gap("one-row"));
        let (long, short) = (gap("l2gd"), gap("short-steps"));
        assert!(short < 0.5 * long && short < 0.2, "{samples} rows: steps of Theorem 3.5 {long}, shorter ones {short}");
        assert!(gap("one-coin").is_finite() && number(&record, "one-coin", "rounds_within") == 0.0);
    }
}

#[test]
fn too_few_iterations_are_said() {
    let methods = "[[method]]\nname = \"al2sgd+\"\ngamma = 1\nlambda = 1\niterations = 20";
    let record = record(methods, &[]);
    let repeat = repeat(&record, "al2sgd+");
    assert_eq!(repeat.status, "not-converged");
    assert!(repeat.notes.iter().any(|note| note.contains("not yet flat")), "{:?}", repeat.notes);
}

#[test]
fn strengths_can_be_given_in_every_form() {
    // α = λ/(λ + Σγ), with ten clients in each cluster.
    let forms = [
        ("lambda", "gamma = 2\nlambda = 5"),
        ("alpha", "gamma = 2\nalpha = 0.2"),
        ("lists", "gamma = [2, 2, 2, 2]\nlambda = [5, 5, 5, 5]"),
        ("table", "gamma = { 0 = 2, 1 = 2, 2 = 2, 3 = 2 }\nalpha = [0.2, 0.2, 0.2, 0.2]"),
        ("clients", &format!("gamma = [{}]\nlambda = 5", ["2"; 40].join(", "))),
        ("noise", "gamma = 1\nlambda = 2.5\nnoise = 2"),
    ];
    let method =
        |(label, text): (&str, &str)| format!("[[method]]\nname = \"hierarchical\"\nlabel = \"{label}\"\n{text}\n");
    let record = record(&forms.map(method).concat(), &[]);
    let first = metrics(&record, "lambda");
    for (label, _) in forms {
        assert!(largest_gap(&metrics(&record, label), &first) < 1e-9, "{label}");
    }
}

#[test]
fn strengths_of_zero_are_local_training_and_this_is_said() {
    let methods = r#"
        [[method]]
        name = "local"
        solve = "exact"
        [[method]]
        name = "hierarchical"
        gamma = 0
        lambda = 0
        [[method]]
        name = "l2gd"
        gamma = 0
        alpha = 0
        iterations = 3000
    "#;
    // Fewer rows than parameters too: the smallest of all solutions.
    for samples in [3, 30] {
        let record = record(methods, &[&format!("data.samples={samples}")]);
        let alone = metrics(&record, "local");
        assert!(largest_gap(&metrics(&record, "hierarchical"), &alone) < 1e-8);
        assert!(largest_gap(&metrics(&record, "l2gd"), &alone) < 1e-4);
        for label in ["hierarchical", "l2gd"] {
            let notes = &repeat(&record, label).notes;
            assert!(notes.iter().any(|note| note.contains("every client learns alone")), "{notes:?}");
        }
        assert_eq!(number(&record, "l2gd", "rounds_between"), 0.0);
    }
}

#[test]
fn clusters_found_by_another_method_hold_personal_models() {
    let methods = r#"
        [[method]]
        name = "odcl"
        clustering = "kmeans++"
        clusters = 4
        [[method]]
        name = "hierarchical"
        groups = "odcl"
        [[method]]
        name = "hierarchical"
        label = "together"
        groups = "one"
    "#;
    let record = record(methods, &["data.between=5.0", "data.samples=40"]);
    assert_eq!(repeat(&record, "odcl").misclustering, Some(0.0));
    let clusters = |label: &str| -> Vec<Option<usize>> {
        record.clients.iter().filter(|client| client.label == label).map(|client| client.cluster).collect()
    };
    assert_eq!(clusters("odcl"), clusters("hierarchical"));
    assert_eq!(repeat(&record, "hierarchical").misclustering, None, "what it is told is not its finding");
    assert!(number(&record, "hierarchical", "personal_error") < number(&record, "odcl", "personal_error"));
    assert!(number(&record, "hierarchical", "personal_error") < number(&record, "together", "personal_error"));
    let person = record.clients.iter().find(|client| client.label == "hierarchical").unwrap();
    assert!(person.model_norm > Some(0.0) && person.distance_to_global > person.distance_to_cluster);
    assert!(person.metric_local.is_some() && person.metric_global > person.metric);
}

#[test]
fn estimated_variances_are_near_the_planted_ones() {
    let record = record(
        "[[method]]\nname = \"hierarchical\"",
        &["data.clients=400", "data.true_clusters=20", "data.samples=30", "data.within=2.0", "data.noise=0.5"],
    );
    let near = |name: &str, truth: f64, freedom: f64| {
        let found = number(&record, "hierarchical", name);
        let deviation = truth * (2.0 / freedom).sqrt();
        assert!((found - truth).abs() < 3.0 * deviation, "{name}: {found}, want {truth} ± {deviation}");
    };
    near("within_variance", 4.0, 6.0 * 380.0);
    near("between_variance", 1.2, 6.0 * 19.0);
    near("noise_variance", 0.25, 400.0 * 24.0);
}

#[test]
fn tuned_strengths_come_with_what_they_cost() {
    let methods = "[[method]]\nname = \"hierarchical\"\ntune = true\ngrid = [0.1, 1, 10]\nfolds = 3\n\
                   [[method]]\nname = \"single-cluster\"\ngrid = [0.5]";
    // Two rows and three folds: one fold is empty, and one row teaches alone.
    for samples in [2, 12] {
        let record = record(methods, &[&format!("data.samples={samples}")]);
        assert!([0.1, 1.0, 10.0].contains(&number(&record, "hierarchical", "gamma")));
        assert!(number(&record, "hierarchical", "tuning_loss") > 0.0);
        assert_eq!(number(&record, "single-cluster", "gamma"), 0.5);
    }
}

#[test]
fn logistic_models_too() {
    let methods = r#"
        [[method]]
        name = "hierarchical"
        [[method]]
        name = "hierarchical"
        label = "given"
        gamma = 1
        lambda = 1
        [[method]]
        name = "al2sgd+"
        gamma = 1
        lambda = 1
        tolerance = 1e-9
        [[method]]
        name = "single-model"
    "#;
    let text = DATA.replace("hierarchical-linear", "hierarchical-logistic").replace("\"linear\"", "\"logistic\"");
    let text = format!("{text}{methods}").replace("[data]", "metric = \"nll\"\n[data]");
    let experiment = Experiment::parse("test", &text, &[]).unwrap();
    let record = run(&experiment, &Options { threads: 1, ..Options::default() }, &mut Unwatched).unwrap();
    let gap = largest_gap(&metrics(&record, "al2sgd+"), &metrics(&record, "given"));
    assert!(gap < 1e-6, "{gap}");
    let loss = |label: &str| repeat(&record, label).metric.as_ref().unwrap().mean;
    assert!(loss("given") < loss("single-model") && loss("hierarchical") < loss("single-model"));
    assert!(number(&record, "hierarchical", "within_variance") > 0.1);
}

#[test]
fn variances_of_logistic_clients_with_few_rows_are_not_lost() {
    let text = DATA.replace("hierarchical-linear", "hierarchical-logistic").replace("\"linear\"", "\"logistic\"");
    let text = format!("{text}[[method]]\nname = \"hierarchical\"");
    let of = |changes: [&str; 3]| {
        let overrides: Vec<Override> = changes.iter().map(|change| Override::parse(change).unwrap()).collect();
        let experiment = Experiment::parse("test", &text, &overrides).unwrap();
        run(&experiment, &Options { threads: 1, ..Options::default() }, &mut Unwatched).unwrap()
    };
    // With the clients' curvatures taken as given, the first would come out at 0.45 and the second at 0.71.
    for (rows, least) in [("data.samples=15", 0.7), ("data.samples=40", 0.85)] {
        let record = of(["data.clients=400", "data.dimension=3", rows]);
        let within = number(&record, "hierarchical", "within_variance");
        assert!((least..1.15).contains(&within), "{rows}: {within}");
    }
}

#[test]
fn columns_that_add_up_leave_no_trace_of_rounding() {
    // Two columns that add up to a constant: one direction shows nowhere. However weak the ties, models stay as short as can be.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pupils.csv");
    let mut table = String::from("school,sector,girl,boy,hours,score\n");
    for school in 0..30 {
        for pupil in 0..20 {
            let (sector, sex) = (["public", "private"][school % 2], ["1,0", "0,1"][(pupil * 7 + school) % 2]);
            let hours = ((school * 31 + pupil * 17) % 23) as f64 / 7.0;
            let score = 10.0 + hours * (1.0 + 0.1 * (school % 5) as f64) + ((school + pupil * pupil) % 7) as f64;
            table += &format!("{school},{sector},{sex},{hours},{score}\n");
        }
    }
    std::fs::write(&path, table).unwrap();
    let text = format!(
        "save_models = \"none\"\n[data]\nsource = \"table\"\npath = {path:?}\nclient = \"school\"\ngroup = \"sector\"\n\
         target = \"score\"\n[model]\nkind = \"linear\"\n\
         [[method]]\nname = \"hierarchical\"\nlabel = \"strong\"\ngamma = 2\nlambda = 2\n\
         [[method]]\nname = \"hierarchical\"\nlabel = \"weak\"\ngamma = 2\nlambda = 1e-4\n"
    );
    let experiment = Experiment::parse("test", &text, &[]).unwrap();
    let record = run(&experiment, &Options { threads: 1, ..Options::default() }, &mut Unwatched).unwrap();
    let longest = |label: &str| {
        let of = record.clients.iter().filter(|client| client.label == label);
        of.filter_map(|client| client.model_norm).fold(0.0, f64::max)
    };
    assert!(longest("weak") < 1.1 * longest("strong"), "{} {}", longest("weak"), longest("strong"));
    for label in ["strong", "weak"] {
        let notes = &repeat(&record, label).notes;
        assert!(notes.iter().any(|note| note.contains("say nothing along 1 direction")), "{label}: {notes:?}");
    }
}

#[test]
fn lost_answers_cost_rounds_and_nothing_else() {
    let methods = r#"
        [[method]]
        name = "hierarchical"
        [[method]]
        name = "hierarchical"
        label = "tuned"
        tune = true
        grid = [0.1, 10]
        [[method]]
        name = "al2sgd+"
        gamma = 1
        lambda = 1
        [[method]]
        name = "single-model"
        [[method]]
        name = "l2gd"
        gamma = 1
        lambda = 1
        iterations = 2000
    "#;
    for model in ["linear", "logistic"] {
        let text = DATA.replace("\"hierarchical-linear\"", &format!("\"hierarchical-{model}\""));
        let text = text.replace("\"linear\"", &format!("\"{model}\""));
        let text = text.replace("clients = 40", "clients = 12").replace("true_clusters = 4", "true_clusters = 2");
        let text = format!("{text}{methods}").replace("samples = 12", "samples = 30");
        let metric = if model == "logistic" { "nll" } else { "mse" };
        let text = text.replace("[data]", &format!("metric = \"{metric}\"\n[data]"));
        let of = |changes: &[&str]| {
            let overrides: Vec<Override> = changes.iter().map(|change| Override::parse(change).unwrap()).collect();
            let experiment = Experiment::parse("test", &text, &overrides).unwrap();
            run(&experiment, &Options { threads: 1, ..Options::default() }, &mut Unwatched).unwrap()
        };
        let (well, ill) = (of(&[]), of(&["faults.silent=0.2", "faults.garbage=0.2"]));
        for label in ["hierarchical", "tuned", "al2sgd+", "single-model"] {
            let gap = largest_gap(&metrics(&ill, label), &metrics(&well, label));
            assert!(gap < 1e-6, "{model} {label}: {gap}");
            assert!(repeat(&ill, label).notes[0].contains("answers were missing"), "{label}");
            assert_eq!(repeat(&ill, label).status, "done", "{model} {label}");
            assert!(repeat(&ill, label).models_down >= repeat(&well, label).models_down, "{label}");
        }
        // Plain steps go on without those who did not answer, who fall behind but have a model.
        assert_eq!(metrics(&ill, "l2gd").len(), 12);
    }
}
