//! Methods that ask once, and their baselines, on clients whose minimisers are known by hand.

use crate::by_hand::{clients, close, faults_of, line, numbers, settings};
use kinfolk::Result;
use kinfolk::compute::threads;
use kinfolk::data::{Client, DataShape};
use kinfolk::evaluate;
use kinfolk::federation::engines::local::LocalFederation;
use kinfolk::federation::faults;
use kinfolk::federation::{Federation, Phase};
use kinfolk::methods::room::{MethodLedger, MissingRule};
use kinfolk::methods::{Method, Outcome, Serving, Setup, kind};
use kinfolk::models::{self, Model};
use kinfolk::rng::Key;
use kinfolk::training::Split;
use std::sync::Arc;

/// A model without an exact minimiser.
fn network() -> Arc<dyn Model> {
    let kind = models::kind("mlp").unwrap();
    let shape = DataShape::numbers(1, 0);
    Arc::from(kind.make(&settings(kind.settings, "hidden = [2]"), shape).unwrap())
}

fn build(
    name: &str,
    text: &str,
    model: Arc<dyn Model>,
    clients: &[Client],
    truth: &[usize],
) -> Result<Box<dyn Method>> {
    let kind = kind(name).unwrap();
    let rows: Vec<usize> = clients.iter().map(|client| client.train.len()).collect();
    let setup = Setup {
        place: "method.it".into(),
        settings: &settings(kind.settings, text),
        model,
        rows: &rows,
        curvature: None,
        truth: Some(truth),
        planted: Some(&[vec![1.0], vec![1.0]]),
        groups: None,
        over: None,
        facts: Default::default(),
        seed: 3,
        key: Key::new(3),
    };
    (kind.build)(setup)
}

fn method(name: &str, text: &str, clients: &[Client], truth: &[usize]) -> Box<dyn Method> {
    build(name, text, line(), clients, truth).unwrap()
}

fn federation(clients: &[Client]) -> LocalFederation {
    federation_of(line(), clients)
}

fn federation_of(model: Arc<dyn Model>, clients: &[Client]) -> LocalFederation {
    let mut federation = LocalFederation::new(clients.to_vec(), threads(1).unwrap());
    federation.set_model(model).unwrap();
    federation
}

/// A federation in which clients are silent so often.
fn silent(share: f64, clients: &[Client]) -> impl Federation {
    let faults = faults::transforms(&settings(faults::SETTINGS, &format!("silent = {share:?}")), 3, clients);
    federation(clients).with_transforms(faults)
}

/// Runs a method to its end.
fn run(method: &mut dyn Method, federation: &mut dyn Federation) -> (Outcome, usize) {
    let mut rounds = 1;
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    while !ledger.run_round(&mut *method, federation).unwrap().finished {
        rounds += 1;
    }
    let mut outcome = method.outcome();
    outcome.notes.splice(0..0, ledger.note());
    (outcome, rounds)
}

/// Minimisers 1, 2, −4, −4.5 and −3.5; the first client has three rows.
const FIVE: [&[f64]; 5] = [&[0.0, 1.0, 2.0], &[2.0], &[-4.0], &[-4.5], &[-3.0, -4.0]];
const TRUTH: [usize; 5] = [0, 0, 1, 1, 1];

#[test]
fn one_round_finds_the_clusters_and_their_plain_means() {
    let clients = clients(&FIVE);
    let mut federation = federation(&clients);
    let text = "clustering = \"kmeans++\"\nclusters = 2";
    let (outcome, rounds) = run(&mut *method("odcl", text, &clients, &TRUTH), &mut federation);
    close(&numbers(&outcome), &[1.5, -4.0], 1e-12);
    assert_eq!((outcome.serving, rounds), (Serving::Given(TRUTH.into_iter().collect()), 1));
    let traffic = federation.meter().total();
    // Five minimisers up, with a loss each; then its cluster's mean down to every client: one number of 8 bytes each.
    assert_eq!((traffic.asks, traffic.models_down, traffic.models_up), (2, 5, 5));
    assert_eq!((traffic.bytes_down, traffic.bytes_up), (5 * 8, 5 * (8 + 8)));
    // Centres 5.5 apart, the farthest client 0.5 from its own.
    assert!((outcome.extra["separability"] - 11.0).abs() < 1e-9);
}

#[test]
fn the_means_sent_back_are_in_the_bytes_of_every_one_shot_method() {
    let clients = clients(&FIVE);
    let down = |name: &str, text: &str| {
        let mut federation = federation(&clients);
        run(&mut *method(name, text, &clients, &TRUTH), &mut federation);
        let traffic = federation.meter().total();
        (traffic.models_down, traffic.bytes_down)
    };
    for (name, text) in
        [("odcl", "clustering = \"kmeans++\"\nclusters = 2"), ("naive-average", ""), ("oracle-average", "")]
    {
        assert_eq!(down(name, text), (5, 5 * 8), "{name}");
    }
    // The common start goes down first.
    assert_eq!(down("local-kmeans", "clusters = 2\nsteps = 3\nstep = 0.1"), (5 + 5, 10 * 8));
    // A client that did not answer is sent both means to choose from.
    let many: Vec<&[f64]> = (0..30).map(|client| FIVE[client % 5]).collect();
    let (clients, truth): (_, Vec<usize>) =
        (crate::by_hand::clients(&many), (0..30).map(|client| TRUTH[client % 5]).collect());
    let mut federation = silent(0.3, &clients);
    let text = "clustering = \"kmeans++\"\nclusters = 2";
    let (outcome, _) = run(&mut *method("odcl", text, &clients, &truth), &mut federation);
    let Serving::Given(given) = &outcome.serving else { panic!("{:?}", outcome.serving) };
    let unplaced = given.unassigned().len() as u64;
    assert_eq!(federation.meter().total().models_down, (30 - unplaced) + 2 * unplaced);
}

#[test]
fn inexact_clients_come_as_close_as_their_steps_allow() {
    let clients = clients(&FIVE);
    let odcl = |text: &str| {
        let text = format!("clustering = \"kmeans++\"\nclusters = 2\nsolve = \"steps\"\n{text}");
        numbers(&run(&mut *method("odcl", &text, &clients, &TRUTH), &mut federation(&clients)).0)
    };
    // The loss curves by 2: a step of ½ is Newton's.
    close(&odcl("steps = 1\nstep = 0.5"), &[1.5, -4.0], 1e-12);
    close(&odcl("steps = 10000\nstep = 0.1\ntolerance = 1e-9"), &[1.5, -4.0], 1e-9);
    let rough = odcl("steps = 5\nstep = 0.1");
    assert!((rough[0] - 1.5).abs() > 0.1, "{rough:?}");
    // 1/(μt) on single rows, averaged with weights t: noise of order 1/√T remains.
    close(&odcl("steps = 4000\nstep = 0.5\npace = \"inverse\"\niterate = \"average\"\nbatch = 1"), &[1.5, -4.0], 0.05);
}

#[test]
fn a_ridge_pulls_every_minimiser() {
    let clients = clients(&FIVE);
    // Mean loss (θ − a)² + ½·2·θ²: the minimiser is a/2.
    let (outcome, _) = run(&mut *method("naive-average", "ridge = 2.0", &clients, &TRUTH), &mut federation(&clients));
    close(&numbers(&outcome), &[(1.0 + 2.0 - 4.0 - 4.5 - 3.5) / 10.0], 1e-12);
}

#[test]
fn baselines_by_hand() {
    let clients = clients(&FIVE);
    let run = |name: &str| run(&mut *method(name, "", &clients, &TRUTH), &mut federation(&clients));
    let (naive, rounds) = run("naive-average");
    close(&numbers(&naive), &[(1.0 + 2.0 - 4.0 - 4.5 - 3.5) / 5.0], 1e-12);
    assert_eq!((naive.clustered, rounds), (false, 1));
    let (oracle, rounds) = run("oracle-average");
    close(&numbers(&oracle), &[1.5, -4.0], 1e-12);
    assert_eq!((oracle.clustered, rounds), (true, 1));
    // Rows count here, not clients: 5 over 4 rows, −15.5 over 4 rows.
    let (pooled, rounds) = run("cluster-oracle");
    close(&numbers(&pooled), &[5.0 / 4.0, -15.5 / 4.0], 1e-9);
    assert!(pooled.converged && rounds < 10, "{rounds}");
}

#[test]
fn local_minimisers_stay_with_their_clients() {
    let clients = clients(&FIVE);
    let mut federation = federation(&clients);
    let (outcome, rounds) = run(&mut *method("local", "solve = \"exact\"", &clients, &TRUTH), &mut federation);
    let own: Vec<f64> = federation.host().own_models().map(|(_, model)| model[0]).collect();
    close(&own, &[1.0, 2.0, -4.0, -4.5, -3.5], 1e-12);
    let own = Serving::Own { stamps: vec![1; 5], clusters: None };
    assert_eq!((outcome.serving, rounds, federation.meter().total().models_up), (own, 1, 0));
}

#[test]
fn a_client_that_does_not_answer_chooses_by_its_loss() {
    let many: Vec<&[f64]> = (0..40).map(|client| if client < 20 { &[1.0, 2.0][..] } else { &[-3.0][..] }).collect();
    let truth: Vec<usize> = (0..40).map(|client| client / 20).collect();
    let clients = clients(&many);
    let mut federation = silent(0.3, &clients);
    let text = "clustering = \"kmeans++\"\nclusters = 2";
    let (outcome, _) = run(&mut *method("odcl", text, &clients, &truth), &mut federation);
    let Serving::Given(given) = &outcome.serving else { panic!("{:?}", outcome.serving) };
    let unplaced = given.unassigned().len();
    assert!((1..30).contains(&unplaced), "{unplaced}");
    assert!(outcome.notes[1].starts_with(&format!("{unplaced} clients did not answer")), "{:?}", outcome.notes);
    let scored = evaluate::seen(&outcome, &mut federation, line().metrics()[0], Split::Train, &[], true).unwrap();
    let found: Vec<usize> = scored.clients.iter().map(|served| served.cluster.unwrap()).collect();
    assert_eq!(kinfolk::clustering::quality::misclustering(&found, &truth), 0.0);
    assert!(scored.clients.iter().all(|served| served.score.is_some() && served.margin.is_some()));
}

#[test]
fn ifca_from_one_shot_clusters_is_there_at_once() {
    let clients = clients(&FIVE);
    let rounds = |start: &str| {
        let text = format!("clusters = 2\nstep = 0.05\nlocal_steps = 2\ntolerance = 1e-6\nrounds = 500\n{start}");
        let mut federation = federation(&clients);
        let (outcome, rounds) = run(&mut *method("ifca", &text, &clients, &TRUTH), &mut federation);
        (numbers(&outcome), rounds, federation.meter().of(Phase::Start))
    };
    let (found, few, asked) = rounds("start = \"odcl\"");
    close(&found, &[1.5, -4.0], 1e-4);
    assert_eq!((asked.asks, asked.models_down, asked.models_up), (1, 0, 5));
    let (_, many, _) = rounds("start = \"farthest\"\nstart_clients = 5\nstart_steps = 1");
    assert!(few < 5 && many > 20, "{few} rounds against {many}");
}

#[test]
fn starts_around_the_truth_are_as_far_as_asked() {
    let clients = clients(&FIVE);
    let first = |more: &str| {
        let text = format!("clusters = 2\nstep = 1e-12\nlocal_steps = 1\nrounds = 1\nstart = \"oracle\"\n{more}");
        numbers(&run(&mut *method("ifca", &text, &clients, &TRUTH), &mut federation(&clients)).0)
    };
    let (a, b) = (5.0 / 4.0, -15.5 / 4.0);
    close(&first(""), &[a, b], 1e-3);
    let moved = first("start_distance = [0.2, 0.25]");
    for (moved, from) in moved.iter().zip([a, b]) {
        let share = (moved - from).abs() / (a - b);
        assert!((0.2 - 1e-3..0.25 + 1e-3).contains(&share), "{share}");
    }
    assert_ne!(first("start_noise = 1.0")[0], a);
}

#[test]
fn settings_that_do_not_go_together_are_all_named() {
    let faults = |text: &str| faults_of("odcl", text);
    assert_eq!(
        faults("clustering = \"kmeans++\"\nlambda = 1.0\nweights = \"neighbours\"\nsolve = \"exact\"\nsteps = 3"),
        [
            "method.it.lambda: is for clustering = \"convex\"",
            "method.it.weights: is for clustering = \"convex\" or \"clusterpath\"",
            "method.it.steps: is for solve = \"steps\" or \"auto\"",
        ]
    );
    assert_eq!(
        faults("clustering = \"convex\"\nclusters = 2\nneighbours = 3\npace = \"inverse\""),
        [
            "method.it.clusters: is for clustering = \"kmeans++\" or \"spectral\" or \"gradient\"",
            "method.it.neighbours: is for weights = \"neighbours\"",
            "method.it.step: pace = \"inverse\" wants a number",
        ]
    );
    assert_eq!(
        faults("tolerance = 0.1\nbatch = 2\niterate = \"average\""),
        [
            "method.it.tolerance: the gradient of a batch is never that short",
            "method.it.tolerance: is about the last model, not about an average",
        ]
    );
    assert!(faults("clustering = \"convex\"\nlambda = \"exact\"").is_empty());
}

#[test]
fn steps_are_refused_where_there_are_none() {
    let steps = "steps = 5\nstep = 0.3\npace = \"inverse\"\niterate = \"average\"\nbatch = 2\ntolerance = 0.1";
    let names = ["steps", "step", "batch", "pace", "iterate", "tolerance"];
    let wanted = names.map(|name| format!("method.it.{name}: is for solve = \"steps\" or \"auto\""));
    assert_eq!(faults_of("odcl", &format!("solve = \"exact\"\n{steps}")), wanted);
    let clients = clients(&FIVE);
    for name in ["odcl", "naive-average", "oracle-average"] {
        for setting in ["step = 0.3", "iterate = \"average\"", "tolerance = 0.1"] {
            let error = build(name, setting, line(), &clients, &TRUTH).err().unwrap().to_string();
            assert!(error.contains("solved exactly") && error.contains("solve = \"steps\""), "{error}");
            assert!(build(name, setting, network(), &clients, &TRUTH).is_ok());
        }
    }
    assert_eq!(faults_of("local", "solve = \"exact\"\nrounds = 100\nstart = \"own\"\nridge = 1.0"), [""; 0]);
    assert_eq!(
        faults_of("local", "solve = \"exact\"\nrounds = 7\nmomentum = 0.5"),
        ["rounds", "momentum"].map(|name| format!("method.it.{name}: solve = \"exact\" takes no steps"))
    );
}

#[test]
fn settings_of_other_starts_are_refused() {
    let fault = |text: &str| faults_of("ifca", text).concat();
    let distance = fault("clusters = 1\nstart = \"planted\"\nstart_distance = 0.2");
    assert_eq!(distance, "method.it.start_distance: one cluster has no distance to another");
    let clients_asked = fault("clusters = 2\nstart = \"odcl\"\nstart_clients = 9");
    assert_eq!(clients_asked, "method.it.start_clients: is for start = \"farthest\"");
    let steps = fault("clusters = 2\nstart_steps = 9");
    assert_eq!(steps, "method.it.start_steps: is for start = \"farthest\" or \"odcl\"");
    let clients = clients(&FIVE);
    let steps = "clusters = 2\nstart = \"odcl\"\nstart_steps = 9";
    assert!(build("ifca", steps, line(), &clients, &TRUTH).err().unwrap().to_string().contains("start_steps"));
    assert!(build("ifca", steps, network(), &clients, &TRUTH).is_ok());
    // The two planted models are the same.
    let text = "clusters = 2\nstart = \"planted\"\nstart_distance = 0.2";
    let error = MethodLedger::new(MissingRule::Skip)
        .run_round(&mut *method("ifca", text, &clients, &TRUTH), &mut federation(&clients))
        .unwrap_err()
        .to_string();
    assert!(error.contains("the same model"), "{error}");
    assert_eq!(faults_of("cluster-oracle", "tolerance = 1.0").len(), 1);
}

#[test]
fn a_ridge_reaches_clients_that_take_steps_for_a_start() {
    let clients = clients(&FIVE);
    let first = |more: &str| {
        let text = format!("clusters = 2\nstep = 0.01\nlocal_steps = 1\nrounds = 1\nstart = \"odcl\"\n{more}");
        let mut method = build("ifca", &text, network(), &clients, &TRUTH).unwrap();
        run(&mut *method, &mut federation_of(network(), &clients)).0.models
    };
    assert_ne!(first("start_ridge = 5.0"), first(""));
}

#[test]
fn ifca_says_how_sure_its_start_is() {
    let clients = clients(&FIVE);
    let text = "clusters = \"auto\"\nstart = \"odcl\"\nrounds = 1";
    let (outcome, _) = run(&mut *method("ifca", text, &clients, &TRUTH), &mut federation(&clients));
    let clusters = if outcome.models.len() == 1 { "cluster" } else { "clusters" };
    let wanted = format!("start = \"odcl\": {} {clusters}, ", outcome.models.len());
    assert!(outcome.notes.iter().any(|note| note.starts_with(&wanted)), "{:?}", outcome.notes);
    assert!(outcome.extra.contains_key("sureness"));
}

#[test]
fn nothing_is_certain_where_nobody_took_a_step() {
    let clients = clients(&FIVE);
    let outcome = |tolerance: &str| {
        let mut method = build("odcl", &format!("steps = 3\n{tolerance}"), network(), &clients, &TRUTH).unwrap();
        run(&mut *method, &mut federation_of(network(), &clients)).0
    };
    let still = outcome("tolerance = 1e9");
    assert_eq!(
        (&still.notes[0][..], still.extra["sureness"]),
        ("1 cluster, unsure: no client took a step: all sent the model they began at", 0.0)
    );
    assert!(outcome("").notes.iter().all(|note| !note.contains("took a step")));
}

#[test]
fn missing_answers_delay_the_pooled_minimisers_and_do_not_change_them() {
    let clients = clients(&FIVE);
    let (all, few) = run(&mut *method("cluster-oracle", "", &clients, &TRUTH), &mut federation(&clients));
    let (some, many) = run(&mut *method("cluster-oracle", "", &clients, &TRUTH), &mut silent(0.3, &clients));
    assert!(some.converged && many > few, "{many} {few} {:?}", some.notes);
    close(&numbers(&some), &numbers(&all), 1e-9);
    // Where nobody ever answers, everybody is left out in the end.
    let (none, rounds) = run(&mut *method("cluster-oracle", "", &clients, &TRUTH), &mut silent(1.0, &clients));
    assert!(!none.converged && rounds < 100, "{rounds}");
    assert!(none.notes.iter().any(|note| note.ends_with("5 clients")), "{:?}", none.notes);
}

#[test]
fn an_oracle_start_that_was_not_found_is_not_kept_quiet() {
    let clients = clients(&FIVE);
    let mut federation = silent(1.0, &clients);
    let mut ifca = method("ifca", "clusters = 2\nstart = \"oracle\"\nrounds = 1", &clients, &TRUTH);
    let (outcome, _) = run(&mut *ifca, &mut federation);
    assert!(outcome.notes.iter().any(|note| note.contains("did not converge")), "{:?}", outcome.notes);
}

#[test]
fn where_nobody_answers_that_is_what_is_said() {
    let clients = clients(&FIVE);
    let error = |name: &str, text: &str| {
        MethodLedger::new(MissingRule::Skip)
            .run_round(&mut *method(name, text, &clients, &TRUTH), &mut silent(1.0, &clients))
            .unwrap_err()
            .to_string()
    };
    let once = "there is only one round to answer in";
    let nobody = "0 clients answered, want at least";
    let exact = "clustering = \"convex\"\nlambda = \"exact\"";
    assert_eq!(error("odcl", exact), format!("{nobody} 1\n  hint: {once}"));
    assert_eq!(error("naive-average", ""), format!("none of the clients answered\n  hint: {once}"));
    assert_eq!(error("oracle-average", ""), format!("cluster 0: none of its clients answered\n  hint: {once}"));
    let start = "clusters = 2\nstart = \"odcl\"";
    assert_eq!(error("ifca", start), format!("{nobody} 2\n  hint: use another start"));
}
