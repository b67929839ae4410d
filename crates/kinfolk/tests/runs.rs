//! Runs from the outside: what is written, what is refused, what is said.

use kinfolk::Result;
use kinfolk::experiment::{Experiment, Override};
use kinfolk::methods;
use kinfolk::report::{Record, RepeatSummary, RoundRecord};
use kinfolk::run::{Options, Unwatched, Watch, run};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LINEAR: &str = "
[data]
source = \"linear\"
clients = 8
samples = 20
dimension = 5
[model]
kind = \"linear\"
[[method]]
name = \"ifca\"
clusters = 2
rounds = 8
[[method]]
name = \"fedavg\"
rounds = 8
[[method]]
name = \"local\"
rounds = 8
[[method]]
name = \"oracle\"
rounds = 8
";

fn experiment(text: &str, changes: &[&str]) -> Result<Experiment> {
    let changes: Vec<Override> = changes.iter().map(|change| Override::parse(change).unwrap()).collect();
    Experiment::parse("test", text, &changes)
}

fn result(text: &str, changes: &[&str]) -> Record {
    run(&experiment(text, changes).unwrap(), &Options::default(), &mut Unwatched).unwrap()
}

#[test]
fn divergence_in_the_last_round_does_not_pass_for_done() {
    let last = ["ifca", "fedavg", "local", "oracle"];
    let mut changes: Vec<String> = last.iter().map(|label| format!("method.{label}.rounds=1")).collect();
    changes.extend(last.iter().map(|label| format!("method.{label}.step=50")));
    changes.extend(last.iter().map(|label| format!("method.{label}.local_steps=60")));
    let record = result(LINEAR, &changes.iter().map(String::as_str).collect::<Vec<_>>());
    for method in &record.summary.methods {
        assert_eq!(method.status, "diverged", "{}", method.label);
        assert!(method.repeats[0].reason.as_ref().unwrap().starts_with("round 1: the training loss has exploded"));
    }
    assert!(record.clients.is_empty());
}

#[test]
fn one_diverging_method_leaves_the_others_alone() {
    let record = result(LINEAR, &["method.fedavg.step=1e6"]);
    let status = |label: &str| record.summary.methods.iter().find(|m| m.label == label).unwrap().status.clone();
    assert_eq!(["ifca", "fedavg", "local", "oracle"].map(status), ["done", "diverged", "done", "done"]);
    assert!(record.clients.iter().all(|client| client.label != "fedavg"));
}

#[test]
fn a_folder_of_somebody_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("checkpoint/weights.bin");
    std::fs::create_dir(weights.parent().unwrap()).unwrap();
    std::fs::write(&weights, b"mine").unwrap();
    let options = Options { folder: Some(folder.path().to_path_buf()), ..Options::default() };
    let error = run(&experiment(LINEAR, &[]).unwrap(), &options, &mut Unwatched).unwrap_err();
    assert!(error.to_string().contains("holds a `checkpoint` already"), "{error}");
    assert_eq!(std::fs::read(&weights).unwrap(), b"mine");
}

/// Raises the flag after some rounds.
struct StopAt(usize, Arc<AtomicBool>);

impl Watch for StopAt {
    fn doing(&mut self, _: &str) {}
    fn method(&mut self, _: &str, _: u64, _: usize, _: usize) {}
    fn round(&mut self, record: &RoundRecord) {
        if record.round >= self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
    fn finished(&mut self, _: &RepeatSummary, _: &str) {}
}

fn table(path: &Path, clients: usize) {
    let rows = (0..clients)
        .flat_map(|client| (0..6).map(move |row| format!("c{client},{},{}\n", row * 2, row * (1 + client % 2))));
    std::fs::write(path, "who,x,y\n".to_string() + &rows.collect::<String>()).unwrap();
}

#[test]
fn a_run_is_not_resumed_on_other_data() {
    let folder = tempfile::tempdir().unwrap();
    let (csv, out) = (folder.path().join("table.csv"), folder.path().join("out"));
    table(&csv, 8);
    let text = format!(
        "[data]\nsource = \"table\"\npath = {:?}\nclient = \"who\"\ntarget = \"y\"\ntask = \"regression\"\n\
         [model]\nkind = \"linear\"\n[[method]]\nname = \"ifca\"\nclusters = 2\nrounds = 20\n",
        csv.display().to_string()
    );
    let stop = Arc::new(AtomicBool::new(false));
    let options = |resume: bool, stop: &Arc<AtomicBool>| Options {
        folder: Some(out.clone()),
        resume,
        stop: stop.clone(),
        checkpoint_every: Duration::ZERO,
        ..Options::default()
    };
    let experiment = experiment(&text, &[]).unwrap();
    run(&experiment, &options(false, &stop), &mut StopAt(5, stop.clone())).unwrap_err();
    let go_on = Arc::new(AtomicBool::new(false));
    table(&csv, 9);
    let error = run(&experiment, &options(true, &go_on), &mut Unwatched).unwrap_err();
    assert!(error.to_string().contains("the data or the program has changed"), "{error}");
    table(&csv, 8);
    let resumed = run(&experiment, &options(true, &go_on), &mut Unwatched).unwrap();
    let straight = run(&experiment, &Options::default(), &mut Unwatched).unwrap();
    assert_eq!(resumed.clients, straight.clients);
}

#[test]
fn faults_of_all_methods_are_reported_together() {
    let changes = [
        "method.ifca.averaging=gradients",
        "method.ifca.weight_decay=1.0",
        "method.fedavg.participation=0",
        "method.local.optimiser=adam",
        "method.local.momentum=0.5",
    ];
    let error = experiment(LINEAR, &changes).err().unwrap().to_string();
    for wanted in ["method.ifca.weight_decay", "method.fedavg.participation", "method.local.momentum"] {
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_model_with_a_fault_is_told_before_anybody_asks_what_it_can_do() {
    let text = "[data]\nsource = \"fedgrem-gaussian\"\n[model]\nkind = \"gaussian-mixture\"\ncomponents = 2\n\
                covariance = \"round\"\n[[method]]\nname = \"fedgrem\"\n";
    let error = experiment(text, &[]).err().unwrap().to_string();
    assert!(error.contains("model.covariance: got \"round\""), "{error}");
}

#[test]
fn clients_without_test_rows_are_assigned_by_their_training_rows() {
    let changes = ["assign_on=test", "data.test_samples=0", "data.scale=3.0", "method.ifca.restarts=5"];
    let record = result(LINEAR, &changes);
    let ifca = &record.summary.methods[0].repeats[0];
    assert_eq!(ifca.misclustering, Some(0.0));
    assert!(ifca.metric.is_none() && ifca.notes.iter().any(|note| note.starts_with("no client has test rows")));
}

#[test]
fn clients_without_models_are_not_blamed_for_test_rows() {
    let record = result(LINEAR, &["faults.silent=1.0"]);
    let notes = &record.summary.methods[2].repeats[0].notes;
    assert!(notes.iter().any(|note| note.starts_with("no client has a model")), "{notes:?}");
}

#[test]
fn a_safe_step_is_chosen_for_every_optimiser() {
    for more in ["method.fedavg.optimiser=adam", "method.fedavg.weight_decay=10000.0", "method.fedavg.momentum=0.9"] {
        let record = result(LINEAR, &[more]);
        assert_eq!(record.summary.methods[1].status, "done", "{more}");
    }
}

#[test]
fn methods_that_a_hint_proposes_are_not_refused() {
    let linear = "source = \"linear\"\nclients = 8\nsamples = 30\ndimension = 5";
    let logistic = "source = \"odcl-logistic\"\nclients = 8\nsamples = 30";
    let gaussian = "source = \"fedgrem-gaussian\"\nclients = 6\nsamples = 60\ncomponents = 2";
    let regression = "source = \"fedgrem-regression\"\nclients = 6\nsamples = 60\ncomponents = 2";
    let mixture = |covariance| format!("kind = \"gaussian-mixture\"\ncomponents = 2\ncovariance = \"{covariance}\"");
    let cases = [
        (linear, "kind = \"linear\"".to_string(), "fedgrem", "single-model"),
        (linear, "kind = \"mlp\"\nhidden = [4]".to_string(), "james-stein", "fedavg"),
        (logistic, "kind = \"logistic\"".to_string(), "james-stein", "single-cluster"),
        (gaussian, mixture("tied"), "ifca", "fedgrem"),
        (gaussian, mixture("full"), "fedgrem", "local-em"),
        (gaussian, mixture("diagonal"), "fedavg", "tgmm"),
        (regression, "kind = \"regression-mixture\"\ncomponents = 2".to_string(), "hierarchical", "fedgrem"),
    ];
    for (data, model, refused, wanted) in cases {
        let head = format!("[data]\n{data}\n[model]\n{model}\n");
        let given = |name: &str| {
            let known = |setting: &str| methods::kind(name).unwrap().settings.iter().any(|it| it.name == setting);
            let mut text = format!("[[method]]\nname = \"{name}\"\n");
            text += if known("clusters") && name != "odcl" { "clusters = 2\n" } else { "" };
            text + if known("rounds") { "rounds = 2\n" } else { "" }
        };
        let error = experiment(&format!("{head}{}", given(refused)), &[]).err().unwrap().to_string();
        let hint = error.lines().find_map(|line| line.split_once("on any data: ")).unwrap();
        let proposed: Vec<&str> = hint.1.split(", ").collect();
        assert!(proposed.contains(&wanted) && !proposed.contains(&refused), "{error}");
        let methods: String = proposed.iter().map(|name| given(name)).collect();
        let record = result(&format!("{head}{methods}"), &["evaluate_every=100"]);
        for method in &record.summary.methods {
            assert!(
                ["done", "not-converged"].contains(&&*method.status),
                "{}: {:?}",
                method.label,
                method.repeats[0].reason
            );
        }
    }
}
