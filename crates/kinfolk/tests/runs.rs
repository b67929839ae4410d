//! Runs from the outside: what is written, what is refused, what is said.

use kinfolk::Result;
use kinfolk::experiment::{Experiment, Override};
use kinfolk::methods::room::Room;
use kinfolk::methods::{self, Method, MethodKind, Outcome, Progress, Serving, Setup};
use kinfolk::record::{MethodSummary, Record, RoundRecord};
use kinfolk::run::{Options, Unwatched, Watch, run};
use std::collections::{BTreeMap, BTreeSet};
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
    fn round(&mut self, record: &RoundRecord) {
        if record.round >= self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
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
    let repeat = &record.summary.methods[2].repeats[0];
    assert_eq!(repeat.status, "failed");
    let said = repeat.notes.iter().chain(&repeat.reason);
    assert!(said.clone().next().is_some() && said.clone().all(|said| !said.contains("test rows")), "{repeat:?}");
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

/// Where a method breaks.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Build,
    Start,
    Round,
    Outcome,
    Findings,
    Nowhere,
}

/// A method that works like another one until it panics.
struct Panicking {
    inner: Box<dyn Method>,
    at: At,
    rounds: usize,
}

impl Method for Panicking {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        self.rounds += 1;
        assert!(self.at != At::Start, "broken at the start");
        assert!(self.at != At::Round || self.rounds < 3, "broken in a round");
        self.inner.round(room)
    }
    fn planned_rounds(&self) -> usize {
        self.inner.planned_rounds()
    }
    fn outcome(&self) -> Outcome {
        assert!(self.at != At::Outcome, "broken where it says what it found");
        let outcome = self.inner.outcome();
        match self.at {
            // Clients that are not there: whoever looks them up panics.
            At::Findings => Outcome { serving: Serving::Given([99; 8].into_iter().collect()), ..outcome },
            _ => outcome,
        }
    }
    fn save(&self) -> Result<Option<Vec<u8>>> {
        self.inner.save()
    }
    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        self.inner.restore(bytes)
    }
}

/// Has the methods of this label break, on seeds from this one on.
fn break_method<const PLACE: u8>(experiment: &mut Experiment, label: &str) {
    fn build<const PLACE: u8>(setup: Setup) -> Result<Box<dyn Method>> {
        let at = [At::Build, At::Start, At::Round, At::Outcome, At::Findings][PLACE as usize];
        let at = if setup.seed == 0 { At::Nowhere } else { at };
        assert!(at != At::Build, "broken when it is made");
        let kind = methods::kind("fedavg").unwrap();
        Ok(Box::new(Panicking { inner: (kind.build)(setup)?, at, rounds: 0 }))
    }
    let entry = experiment.methods.iter_mut().find(|entry| entry.label == label).unwrap();
    entry.kind = Box::leak(Box::new(MethodKind { build: build::<PLACE>, ..*entry.kind }));
}

#[test]
fn a_method_that_panics_anywhere_costs_its_own_result_only() {
    let whole = result(LINEAR, &["repeat=2"]);
    let breaks = [break_method::<0>, break_method::<1>, break_method::<2>, break_method::<3>, break_method::<4>];
    for (place, break_it) in breaks.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let mut experiment = experiment(LINEAR, &["repeat=2"]).unwrap();
        break_it(&mut experiment, "fedavg");
        let options = Options { folder: Some(folder.path().join("out")), ..Options::default() };
        let record = run(&experiment, &options, &mut Unwatched).unwrap();
        let method = |label: &str| record.summary.methods.iter().find(|method| method.label == label).unwrap();
        let broken = method("fedavg");
        let statuses: Vec<&str> = broken.repeats.iter().map(|repeat| repeat.status.as_str()).collect();
        assert_eq!((broken.status.as_str(), statuses), ("failed", vec!["done", "failed"]), "place {place}");
        let reason = broken.repeats[1].reason.as_ref().unwrap();
        assert!(reason.starts_with("a bug in kinfolk: ") && reason.contains(".rs:"), "{reason}");
        if place == 2 {
            assert!(broken.repeats[1].rounds == 2 && broken.repeats[1].bytes_down > 0, "what it had done is told");
            assert_eq!(record.rounds.iter().filter(|round| round.label == "fedavg" && round.seed == 1).count(), 2);
        }
        for label in ["ifca", "local", "oracle"] {
            assert_eq!(method(label).status, "done");
            let clients = |record: &Record| -> Vec<_> {
                record.clients.iter().filter(|client| client.label == label).cloned().collect()
            };
            assert_eq!(clients(&record), clients(&whole), "place {place}");
        }
        assert!(folder.path().join("out/summary.json").exists() && !folder.path().join("out/checkpoint").exists());
    }
}

#[test]
fn a_method_whose_groups_come_from_a_failed_one_says_so() {
    let text = "
        [data]\nsource = \"hierarchical-linear\"\nclients = 12\ntrue_clusters = 3\ndimension = 3\nsamples = 8
        [model]\nkind = \"linear\"\nintercept = false
        [[method]]\nname = \"ifca\"\nclusters = 2\nrounds = 4
        [[method]]\nname = \"hierarchical\"\ngroups = \"ifca\"\ngamma = 1\nlambda = 1
        [[method]]\nname = \"local\"\nrounds = 2";
    let mut experiment = experiment(text, &["seed=1"]).unwrap();
    break_method::<1>(&mut experiment, "ifca");
    let record = run(&experiment, &Options::default(), &mut Unwatched).unwrap();
    let status: Vec<&str> = record.summary.methods.iter().map(|method| method.status.as_str()).collect();
    assert_eq!(status, ["failed", "failed", "done"]);
    let reason = record.summary.methods[1].repeats[0].reason.as_ref().unwrap();
    assert!(reason.contains("its groups come from method ifca, which failed"), "{reason}");
}

/// Rows of clients that do not differ: the classes depend on nobody and nothing.
fn homogeneous(path: &Path, seed: u64) {
    let mut text = String::from("who,x1,x2,y\n");
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 31)
    };
    for row in 0..240 {
        let (x1, x2) = (draw() - 0.5, draw() - 0.5);
        let class = if draw() < 1.0 / (1.0 + (-2.0 * x1 - x2).exp()) { "yes" } else { "no" };
        text += &format!("c{},{x1},{x2},{class}\n", row % 12);
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn estimated_strengths_of_clients_that_do_not_differ_do_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("table.csv");
    let mut at_the_bound = 0;
    for seed in 0..6 {
        homogeneous(&csv, seed);
        let text = format!(
            "[data]\nsource = \"table\"\npath = {:?}\nclient = \"who\"\ntarget = \"y\"\n[model]\nkind = \"logistic\"\n\
             [[method]]\nname = \"hierarchical\"\ngroups = \"one\"\n[[method]]\nname = \"l2gd\"\ngroups = \"one\"\niterations = 50\n\
             [[method]]\nname = \"al2sgd+\"\ngroups = \"one\"\niterations = 50\n[[method]]\nname = \"fedavg\"\nrounds = 3\n",
            csv.display().to_string()
        );
        let record = result(&text, &[]);
        for method in &record.summary.methods {
            assert!(["done", "not-converged"].contains(&&*method.status), "{seed}: {:?}", method.repeats[0].reason);
        }
        let notes = &record.summary.methods[0].repeats[0].notes;
        at_the_bound += usize::from(notes.iter().any(|note| note.contains("clients differ no more")));
    }
    assert!(at_the_bound > 0);
}

const EXACT: &str = "
evaluate_every = 5
repeat = 2
[data]
source = \"hierarchical-linear\"
clients = 12
true_clusters = 3
dimension = 3
samples = 8
[model]
kind = \"linear\"
intercept = false
[[method]]
name = \"hierarchical\"
gamma = 1
lambda = 1
[[method]]
name = \"al2sgd+\"
gamma = 1
lambda = 1
[[method]]
name = \"l2gd\"
gamma = 1
lambda = 1
iterations = 100
";

/// Stops when the method of a label is met on a seed.
struct StopWhere(&'static str, u64, Arc<AtomicBool>);

impl Watch for StopWhere {
    fn method(&mut self, label: &str, seed: u64, _: usize, _: usize) {
        if (label, seed) == (self.0, self.1) {
            self.2.store(true, Ordering::Relaxed);
        }
    }
    fn round(&mut self, _: &RoundRecord) {}
}

/// The options of a run in a folder, and the flag that stops it.
fn in_folder(folder: &Path, resume: bool) -> (Options, Arc<AtomicBool>) {
    let stop = Arc::new(AtomicBool::new(false));
    let options = Options {
        folder: Some(folder.to_path_buf()),
        resume,
        stop: stop.clone(),
        checkpoint_every: Duration::ZERO,
        ..Options::default()
    };
    (options, stop)
}

#[test]
fn the_distance_to_the_exact_solution_survives_a_resume() {
    let experiment = experiment(EXACT, &[]).unwrap();
    let straight = run(&experiment, &Options::default(), &mut Unwatched).unwrap();
    for label in ["al2sgd+", "l2gd"] {
        let folder = tempfile::tempdir().unwrap();
        let (options, stop) = in_folder(folder.path(), false);
        run(&experiment, &options, &mut StopWhere(label, 1, stop)).unwrap_err();
        let resumed = run(&experiment, &in_folder(folder.path(), true).0, &mut Unwatched).unwrap();
        for (there, here) in straight.summary.methods.iter().zip(&resumed.summary.methods) {
            let distances = |summary: &MethodSummary| -> Vec<Option<serde_json::Value>> {
                summary.repeats.iter().map(|repeat| repeat.extra.get("distance_to_exact").cloned()).collect()
            };
            assert_eq!(distances(there), distances(here), "{}", there.label);
            assert_eq!(there.mean.get("distance_to_exact"), here.mean.get("distance_to_exact"));
        }
        assert!(resumed.summary.methods[1].repeats.iter().all(|it| it.extra.contains_key("distance_to_exact")));
        assert_eq!(resumed.clients, straight.clients);
        // A run that has ended is read again as it was.
        let again = run(&experiment, &in_folder(folder.path(), true).0, &mut Unwatched).unwrap();
        assert_eq!((again.clients, again.rounds), (resumed.clients, resumed.rounds));
    }
}

#[test]
fn a_mutated_checkpoint_is_refused_and_never_changes_numbers() {
    let experiment = experiment(LINEAR, &[]).unwrap();
    let straight = run(&experiment, &Options::default(), &mut Unwatched).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (options, stop) = in_folder(folder.path(), false);
    // IFCA is done then, FedAvg and nobody else is under way.
    struct Late(StopAt);
    impl Watch for Late {
        fn round(&mut self, record: &RoundRecord) {
            if record.label == "fedavg" {
                self.0.round(record);
            }
        }
    }
    run(&experiment, &options, &mut Late(StopAt(4, stop))).unwrap_err();
    let checkpoint = folder.path().join("checkpoint");
    let (done, current) = (checkpoint.join("ifca-0.done"), checkpoint.join("fedavg-0.current"));
    let resume = || run(&experiment, &in_folder(folder.path(), true).0, &mut Unwatched);
    for path in [&done, &current] {
        let sound = std::fs::read(path).unwrap();
        let places = (0..24).map(|draw: usize| draw * 7919 % sound.len());
        let flipped = places.map(|place| {
            let mut bytes = sound.clone();
            bytes[place] ^= 1 << (place % 8);
            bytes
        });
        let cut = [0, 1, 31, 32, 33, sound.len() / 2, sound.len() - 1].map(|length| sound[..length].to_vec());
        let longer = [sound.iter().copied().chain([0]).collect()];
        for bytes in flipped.chain(cut).chain(longer) {
            std::fs::write(path, bytes).unwrap();
            let error = resume().unwrap_err();
            assert!(error.kind().is_input() && error.to_string().contains("a broken checkpoint"), "{error}");
            assert!(error.to_string().contains("remove this file"), "{error}");
        }
        std::fs::write(path, sound).unwrap();
    }
    // Sound bytes in the place of another method are no less broken.
    let sound = std::fs::read(&done).unwrap();
    std::fs::write(checkpoint.join("oracle-0.done"), &sound).unwrap();
    assert!(resume().unwrap_err().to_string().contains("oracle-0.done: a broken checkpoint"));
    std::fs::remove_file(checkpoint.join("oracle-0.done")).unwrap();
    // The hint is true: without the file its part is run again.
    std::fs::remove_file(&done).unwrap();
    assert_eq!(resume().unwrap().clients, straight.clients);
}

#[cfg(unix)]
#[test]
fn resuming_removes_nothing_through_links_and_nothing_of_others() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let experiment = experiment(LINEAR, &[]).unwrap();
    let (options, stop) = in_folder(folder.path(), false);
    run(&experiment, &options, &mut StopAt(4, stop)).unwrap_err();
    let foreign = |name: &str| {
        let path = elsewhere.path().join(name);
        std::fs::write(&path, b"mine").unwrap();
        path
    };
    let kept = [
        foreign(".film.mp4.part"),
        foreign(".summary.json.1-2.part"),
        foreign("x.done"),
        foreign(".ifca-0.done.1-2.part"),
        foreign(".cluster-0.safetensors.1-2.part"),
    ];
    let link = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), path).unwrap();
    };
    ["linked", "models/linked", "models/other/0", "checkpoint/linked"].iter().for_each(|name| link(name));
    std::os::unix::fs::symlink(&kept[1], folder.path().join(".rounds.csv.1-2.part")).unwrap();
    let own = folder.path().join(".film.mp4.part");
    std::fs::write(&own, b"mine").unwrap();
    let half = folder.path().join("models/ifca/0/.cluster-0.safetensors.77-1.part");
    std::fs::create_dir_all(half.parent().unwrap()).unwrap();
    std::fs::write(&half, b"half a mod").unwrap();
    run(&experiment, &in_folder(folder.path(), true).0, &mut Unwatched).unwrap();
    for path in kept.iter().chain([&own]) {
        assert_eq!(std::fs::read(path).unwrap(), b"mine", "{}", path.display());
    }
    assert!(!half.exists(), "what a kill left of ours is gone");
    assert!(folder.path().join("summary.json").exists() && !folder.path().join("checkpoint/ifca-0.done").exists());
}

#[test]
fn clients_with_long_or_odd_ids_have_their_models_written() {
    let folder = tempfile::tempdir().unwrap();
    let (csv, out) = (folder.path().join("table.csv"), folder.path().join("out"));
    let ids =
        ["x".repeat(400), "x".repeat(401), "a/b".into(), "a:b".into(), "Ann".into(), "ann".into(), "é\u{1b}[1m".into()];
    let rows = ids.iter().flat_map(|id| (0..6).map(move |row| format!("{id},{},{}\n", row * 2, row)));
    std::fs::write(&csv, "who,x,y\n".to_string() + &rows.collect::<String>()).unwrap();
    let text = format!(
        "[data]\nsource = \"table\"\npath = {:?}\nclient = \"who\"\ntarget = \"y\"\ntask = \"regression\"\n\
         [model]\nkind = \"linear\"\n[[method]]\nname = \"local\"\nrounds = 2\n",
        csv.display().to_string()
    );
    let options = Options { folder: Some(out.clone()), ..Options::default() };
    run(&experiment(&text, &[]).unwrap(), &options, &mut Unwatched).unwrap();
    let models = out.join("models/local/0");
    let table = std::fs::read_to_string(models.join("clients.csv")).unwrap();
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let files: BTreeMap<String, String> = reader.deserialize().map(|row| row.unwrap()).collect();
    let known: BTreeSet<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(known, ids.iter().map(String::as_str).collect());
    let distinct: BTreeSet<String> = files.values().map(|file| file.to_lowercase()).collect();
    assert_eq!(distinct.len(), ids.len(), "also where capitals are not told from small letters");
    assert!(files.values().all(|file| models.join(file).is_file()));
    assert_eq!(files["Ann"], "client-Ann.safetensors");
}

#[test]
fn labels_that_cannot_be_folder_names_are_refused_when_the_experiment_is_read() {
    let labelled = |label: &str| format!("{LINEAR}label = {label:?}\n");
    for (label, wanted) in [
        ("x".repeat(65), "65 letters long, want at most 64"),
        ("a/b".into(), "want letters"),
        ("..".into(), "want letters"),
        ("é".into(), "want letters"),
        (String::new(), "want letters"),
        ("IFCA".into(), "differs from ifca only in capital letters"),
    ] {
        let error = experiment(&labelled(&label), &[]).err().unwrap().to_string();
        assert!(error.contains(wanted), "{label}: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let options = Options { folder: Some(folder.path().join("out")), ..Options::default() };
    let longest = experiment(&labelled(&"x".repeat(64)), &["method.ifca.rounds=1"]).unwrap();
    run(&longest, &options, &mut Unwatched).unwrap();
}
