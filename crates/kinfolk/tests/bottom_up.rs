//! SR-FCA and its rivals, on clients whose steps can be worked by hand, and on clients that misbehave.

use crate::by_hand::{clients, close, faults_of, line, numbers, settings};
use kinfolk::Result;
use kinfolk::clustering::quality::misclustering;
use kinfolk::compute::threads;
use kinfolk::data::{Client, Features, Shard, Targets, source};
use kinfolk::evaluate;
use kinfolk::federation::engines::local::LocalFederation;
use kinfolk::federation::faults;
use kinfolk::federation::{Federation, Phase};
use kinfolk::methods::room::{MethodLedger, MissingRule};
use kinfolk::methods::{Method, Outcome, Progress, Serving, Setup, kind};
use kinfolk::models::{self, Metric, Model};
use kinfolk::rng::Key;
use kinfolk::training::Split;
use std::sync::Arc;

fn build(name: &str, text: &str, model: Arc<dyn Model>, clients: &[Client]) -> Result<Box<dyn Method>> {
    let kind = kind(name).unwrap();
    let rows: Vec<usize> = clients.iter().map(|client| client.train.len()).collect();
    (kind.build)(Setup {
        place: "method.it".into(),
        settings: &settings(kind.settings, text),
        model,
        rows: &rows,
        curvature: None,
        truth: None,
        planted: None,
        groups: None,
        over: None,
        facts: Default::default(),
        seed: 3,
        key: Key::new(3),
    })
}

fn method(name: &str, text: &str, clients: &[Client]) -> Box<dyn Method> {
    build(name, text, line(), clients).unwrap()
}

fn federation(clients: &[Client]) -> LocalFederation {
    let mut federation = LocalFederation::new(clients.to_vec(), threads(1).unwrap());
    federation.set_model(line()).unwrap();
    federation
}

/// Runs a method to its end and notes its stages.
fn run(method: &mut dyn Method, federation: &mut dyn Federation) -> (Outcome, Vec<(String, Progress)>) {
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    let mut stages = Vec::new();
    loop {
        let progress = ledger.run_round(method, federation).unwrap();
        let finished = progress.finished;
        stages.extend(method.stage().map(|stage| (stage, progress)));
        if finished {
            let mut outcome = method.outcome();
            outcome.notes.splice(0..0, ledger.note());
            return (outcome, stages);
        }
    }
}

fn given(outcome: &Outcome) -> Vec<Option<usize>> {
    match &outcome.serving {
        Serving::Given(given) => given.each().to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Minimisers 1, 2, −4, 1.5, −4.5, −3.5.
const SIX: [&[f64]; 6] = [&[0.0, 2.0], &[2.0], &[-4.0], &[1.5], &[-4.5], &[-3.0, -4.0]];

#[test]
fn one_shot_then_a_refinement_by_hand() {
    let clients = clients(&SIX);
    let mut federation = federation(&clients);
    // A step of ¼ with a curvature of 2 goes half of the way: after two steps from w_0 members stand at (w_0 + 3y)/4.
    let text = "distance = \"l2\"\nrefinements = 1\nrounds = 1\nlocal_steps = 2\nstep = 0.25\ntrim = 0.34\none_shot_steps = 60\nwarm = false";
    let mut method = method("sr-fca", text, &clients);
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    let first = ledger.run_round(&mut *method, &mut federation).unwrap();
    assert_eq!((first.sizes, method.stage()), (vec![3, 3], Some("one_shot".into())));
    let alone = method.outcome();
    close(&numbers(&alone), &[1.0, 2.0, -4.0, 1.5, -4.5, -3.5], 1e-9);
    assert!(!alone.clustered && given(&alone) == (0..6).map(Some).collect::<Vec<_>>());
    // Distances 0.5, 0.5, 1 and 0.5, 0.5, 1 within, 4.5 to 6.5 between.
    close(&[alone.extra["lambda"]], &[0.5 * (1.0 + 4.5)], 1e-9);
    let progress = ledger.run_round(&mut *method, &mut federation).unwrap();
    assert!(progress.finished && progress.switched == Some(0));
    assert_eq!(method.stage().as_deref(), Some("refine_1"));
    let outcome = method.outcome();
    assert_eq!(given(&outcome), [0, 0, 1, 0, 1, 1].map(Some));
    // ⌊0.34·3⌋ = 1 at each end: the middle member, 1.5 and −4, three quarters of the way from the same w_0.
    let (a, b) = (numbers(&outcome)[0], numbers(&outcome)[1]);
    close(&[a - b], &[0.75 * (1.5 + 4.0)], 1e-9);
    let traffic = federation.meter().total();
    assert_eq!((traffic.asks, traffic.models_down, traffic.models_up), (2, 6 + 6, 6 + 6));
    // Warm, it begins at the means 1.5 and −4, from which the middle members do not move at all.
    let text = text.replace("warm = false", "warm = true");
    let (outcome, _) = run(&mut *self::method("sr-fca", &text, &clients), &mut federation);
    close(&numbers(&outcome), &[1.5, -4.0], 1e-9);
}

#[test]
fn cross_losses_are_metered_and_remembered() {
    let clients = clients(&SIX);
    let mut federation = federation(&clients);
    let text = "refinements = 2\nrounds = 20\nlocal_steps = 2\nstep = 0.25";
    let (outcome, stages) = run(&mut *method("sr-fca", text, &clients), &mut federation);
    assert_eq!(given(&outcome), [0, 0, 1, 0, 1, 1].map(Some));
    let names: Vec<&str> = stages.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["one_shot", "refine_1", "refine_2"]);
    // Exact minimisers up, every other client's model down, then K models to all twice.
    let start = federation.meter().of(Phase::Start);
    assert_eq!((start.asks, start.models_up, start.models_down), (2, 6, 6 * 5));
    let train = federation.meter().of(Phase::Train);
    assert_eq!((train.asks, train.models_down), (2 * 20 + 2, 2 * (20 * 6 + 6 * 2)));
    // ½(f_1(w_2) + f_2(w_1)) of the first two: rows 0 and 2 lose (4 + 0)/2 with 2, row 2 loses 1 with 1.
    let comparison = outcome.comparison.unwrap();
    assert_eq!(comparison.pairs.len(), 15);
    let pair = comparison.pairs.iter().find(|(a, b, _)| (*a, *b) == (0, 1)).unwrap();
    close(&[pair.2], &[0.5 * (2.0 + 1.0)], 1e-9);
}

#[test]
fn a_client_in_the_wrong_place_is_put_right() {
    // The third client's few rows make it look like the first family; its model is nearer to the second's.
    let targets: [&[f64]; 7] = [&[0.0], &[0.2], &[5.2], &[10.0], &[10.2], &[9.8], &[-0.2]];
    let clients = clients(&targets);
    let mut federation = federation(&clients);
    // Components: 5.2 is within 5.3 of both families, which makes one cluster of all.
    let text =
        "distance = \"l2\"\nlambda = 5.0\nrefinements = 2\nrounds = 30\nlocal_steps = 1\nstep = 0.25\nmin_size = 2";
    let (outcome, _) = run(&mut *method("sr-fca", text, &clients), &mut federation);
    assert_eq!(given(&outcome), [0; 7].map(Some));
    // Just below both its distances it is alone at first, and joins the nearer family.
    let text = text.replace("5.0", "4.5");
    let mut method = method("sr-fca", &text, &clients);
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    let first = ledger.run_round(&mut *method, &mut federation).unwrap();
    assert_eq!(first.sizes, [3, 3]);
    let (outcome, _) = run(&mut *method, &mut federation);
    assert_eq!(given(&outcome), [0, 0, 1, 1, 1, 1, 0].map(Some));
    assert_eq!(outcome.extra["unclustered_at_first"], 1.0);
}

#[test]
fn clusters_that_come_close_become_one() {
    // Two by two, and far more than λ apart while they are alone; the cluster models end where theirs are.
    let clients = clients(&[&[0.0], &[0.1], &[2.0], &[2.1], &[50.0], &[50.1]]);
    let text =
        "distance = \"l2\"\nlambda = 0.5\nrefinements = 1\nrounds = 40\nlocal_steps = 1\nstep = 0.25\ntrim = 0.0";
    let (outcome, _) = run(&mut *method("sr-fca", text, &clients), &mut federation(&clients));
    assert_eq!(given(&outcome), [0, 0, 1, 1, 2, 2].map(Some));
    close(&numbers(&outcome), &[0.05, 2.05, 50.05], 1e-6);
    // One round from a common start leaves all of them near each other: 2^-1 of the way.
    let text = "distance = \"l2\"\nlambda = 1.5\nrefinements = 1\nrounds = 1\nlocal_steps = 1\nstep = 0.25\ntrim = 0.0\nwarm = false";
    let (outcome, _) = run(&mut *method("sr-fca", text, &clients), &mut federation(&clients));
    assert_eq!(given(&outcome), [0, 0, 0, 0, 1, 1].map(Some));
    assert!(outcome.notes.iter().any(|note| note.contains("merged")), "{:?}", outcome.notes);
    let (merged, far) = (numbers(&outcome)[0], numbers(&outcome)[1]);
    close(&[far - merged], &[0.5 * (50.05 - 0.5 * (0.05 + 2.05))], 1e-9);
}

#[test]
fn bad_thresholds_and_sizes_are_said_out_loud() {
    let clients = clients(&SIX);
    let run_with = |text: &str| run(&mut *method("sr-fca", text, &clients), &mut federation(&clients));
    let quick = "rounds = 2\nlocal_steps = 1\nstep = 0.1\nrefinements = 1";
    let (outcome, stages) = run_with(&format!("{quick}\nlambda = 0.000001"));
    assert!(!outcome.converged && stages.len() == 1);
    assert_eq!(given(&outcome), (0..6).map(Some).collect::<Vec<_>>());
    let no_cluster = outcome.notes.iter().find(|note| note.starts_with("no cluster")).unwrap();
    assert!(no_cluster.contains("largest group within lambda has 1, want at least 2"), "{no_cluster}");
    let (outcome, _) = run_with(&format!("{quick}\nlambda = 1e9"));
    assert_eq!(given(&outcome), [0; 6].map(Some));
    let (outcome, _) = run_with(&format!("{quick}\nmin_size = 4"));
    assert!(outcome.notes.iter().any(|note| note.contains("has 3, want at least 4")), "{:?}", outcome.notes);
    let error = build("sr-fca", "min_size = 7", line(), &clients).err().unwrap();
    assert_eq!(error.to_string(), "method.it.min_size: got 7, want at most the number of clients, 6");
    assert_eq!(faults_of("sr-fca", "trim = 0.5"), ["method.it.trim: got 0.5, want a number from 0 to below 0.5"]);
    let both = "lambda = 1\nlambda_rule = \"quantile\"";
    assert_eq!(faults_of("sr-fca", both).len(), 1);
    assert_eq!(faults_of("one-shot-ifca", both).len(), 1);
    assert_eq!(faults_of("sr-fca", "quantile = 0.5\npeers = 3").len(), 2);
    let (outcome, _) = run_with(&format!("{quick}\nlambda = 1e9"));
    assert!(outcome.notes.iter().any(|note| note.starts_with("one cluster")), "{:?}", outcome.notes);
    assert!(outcome.notes.iter().any(|note| note.starts_with("lambda 1.000e9: as given")), "{:?}", outcome.notes);
    let one = clients_of_one();
    let (outcome, _) = run(&mut *method("sr-fca", &format!("{quick}\nmin_size = 1"), &one), &mut federation(&one));
    assert_eq!(given(&outcome), [Some(0)]);
}

fn clients_of_one() -> Vec<Client> {
    clients(&[&[3.0]])
}

#[test]
fn a_diverging_client_does_not_take_the_others_along() {
    let mut clients = clients(&SIX);
    // A column of 1e200 overflows in the first step.
    let features = Features::F64 { columns: 1, values: vec![1e200, 1e200] };
    clients[1].train = Shard::new(features, Targets::Values(vec![1.0, 1.0])).unwrap();
    for distance in ["cross-loss", "l2"] {
        let text = format!(
            "distance = \"{distance}\"\nrounds = 10\nlocal_steps = 2\nstep = 0.25\none_shot_steps = 30\nlambda = 3"
        );
        let (outcome, _) = run(&mut *method("sr-fca", &text, &clients), &mut federation(&clients));
        let given = given(&outcome);
        assert_eq!([0, 2, 3, 4, 5].map(|client| given[client].unwrap()), [0, 1, 0, 1, 1], "{distance}");
        close(&numbers(&outcome), &[1.25, -4.0], 0.1);
        assert!(outcome.notes.iter().any(|note| note.contains("no model of their own")), "{:?}", outcome.notes);
    }
}

#[test]
fn a_client_beyond_all_others_is_served_and_does_not_train() {
    let mut clients = clients(&SIX);
    // Features of 60 make every step of 0.25 overshoot; after a few the model is huge, and finite.
    let features = Features::F64 { columns: 1, values: vec![60.0, 60.0] };
    clients[1].train = Shard::new(features, Targets::Values(vec![90.0, 90.0])).unwrap();
    for steps in [10, 2000] {
        let text =
            format!("rounds = 30\nlocal_steps = 2\nstep = 0.25\none_shot_steps = {steps}\ntrim = 0.0\nrefinements = 2");
        let (outcome, _) = run(&mut *method("sr-fca", &text, &clients), &mut federation(&clients));
        let given = given(&outcome);
        assert_eq!(
            [0, 2, 3, 4, 5].map(|client| given[client].unwrap()),
            [0, 1, 0, 1, 1],
            "{steps}: {:?}",
            outcome.notes
        );
        close(&numbers(&outcome), &[1.25, -4.0], 1e-6);
        assert!(outcome.notes.iter().any(|note| note.contains("do not train")), "{steps}: {:?}", outcome.notes);
    }
}

#[test]
fn a_few_clients_far_from_all_others_do_not_hide_the_families() {
    let values: Vec<Vec<f64>> = (0..14)
        .map(|i| match i {
            12 => vec![500.0],
            13 => vec![-700.0],
            _ => vec![if i % 2 == 0 { 4.0 } else { -4.0 } + 0.05 * f64::from(i)],
        })
        .collect();
    let clients = clients(&values.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let text = "distance = \"l2\"\nrounds = 20\nlocal_steps = 2\nstep = 0.25\nrefinements = 1";
    let mut method = method("sr-fca", text, &clients);
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    let first = ledger.run_round(&mut *method, &mut federation(&clients)).unwrap();
    assert_eq!(first.sizes, [6, 6], "{:?}", method.outcome().notes);
    let note = method.outcome().notes.into_iter().find(|note| note.contains("left aside")).unwrap();
    assert!(note.contains("2 clients far from all others"), "{note}");
}

#[test]
fn one_client_between_two_families_does_not_make_them_one() {
    let mut places = vec![0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 5.0];
    let text = "distance = \"l2\"\nrounds = 2\nlocal_steps = 1\nstep = 0.25\nrefinements = 1";
    for far in [vec![], vec![1000.0, -1500.0]] {
        places.extend(far);
        let values: Vec<Vec<f64>> = places.iter().map(|&place| vec![place]).collect();
        let clients = clients(&values.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let first = MethodLedger::new(MissingRule::Skip)
            .run_round(&mut *method("sr-fca", text, &clients), &mut federation(&clients))
            .unwrap();
        assert_eq!(first.sizes, [6, 6]);
    }
}

#[test]
fn silence_while_clusters_end_is_survived() {
    let source = source("digits").unwrap();
    let kind = models::kind("mlp").unwrap();
    for seed in 0..12 {
        let data = "clients = 16\nsamples = 40\ntest_samples = 10\nsplit = \"dirichlet\"\nalpha = 0.1";
        let population = (source.build)(&settings(source.settings, data), seed).unwrap();
        let model: Arc<dyn Model> =
            Arc::from(kind.make(&settings(kind.settings, "hidden = [8]"), population.shape).unwrap());
        let faults = faults::transforms(&settings(faults::SETTINGS, "silent = 0.35"), seed, &population.clients);
        let mut federation = LocalFederation::new(population.clients.clone(), threads(1).unwrap());
        federation.set_model(model.clone()).unwrap();
        let mut federation = federation.with_transforms(faults);
        let text = "rounds = 3\nlocal_steps = 3\nstep = 0.1\none_shot_steps = 20\nlambda_rule = \"quantile\"\nquantile = 0.1\nmin_size = 2";
        run(&mut *build("sr-fca", text, model, &population.clients).unwrap(), &mut federation);
    }
}

#[test]
fn nobody_answering_is_not_a_matter_of_steps() {
    let clients = clients(&SIX);
    let faults = faults::transforms(&settings(faults::SETTINGS, "silent = 1"), 1, &clients);
    let mut federation = federation(&clients).with_transforms(faults);
    let error = MethodLedger::new(MissingRule::Skip)
        .run_round(&mut *method("sr-fca", "rounds = 2\nstep = 0.1", &clients), &mut federation)
        .err()
        .unwrap();
    assert!(error.to_string().starts_with("0 clients answered"), "{error}");
}

#[test]
fn silence_and_garbage_are_survived() {
    let values: Vec<Vec<f64>> =
        (0..12).map(|i| vec![if i % 2 == 0 { 4.0 } else { -4.0 } + 0.01 * f64::from(i)]).collect();
    let clients = clients(&values.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for trouble in ["silent = 0.3", "garbage = 0.3", "late = 0.2"] {
        let faults = || faults::transforms(&settings(faults::SETTINGS, trouble), 1, &clients);
        for name in ["sr-fca", "one-shot-ifca", "cfl", "fedsoft", "local-kmeans"] {
            let rounds = "rounds = 30\nlocal_steps = 2\n";
            let more = match name {
                "fedsoft" => format!("{rounds}clusters = 2\npull = 0.1\n"),
                "local-kmeans" => "clusters = 2\n".to_string(),
                _ => rounds.to_string(),
            };
            let mut method = method(name, &format!("{more}step = 0.25"), &clients);
            let mut federation = federation(&clients).with_transforms(faults());
            let (outcome, _) = run(&mut *method, &mut federation);
            assert!(outcome.notes.iter().any(|note| note.contains("missing")), "{name}: {:?}", outcome.notes);
            assert!(numbers(&outcome).iter().all(|number| number.is_finite() && number.abs() < 5.0), "{name}");
        }
    }
}

#[test]
fn one_true_cluster_is_one_cluster_and_few_peers_find_the_same() {
    let source = source("digits").unwrap();
    let kind = models::kind("mlp").unwrap();
    let found = |data: &str, more: &str| {
        let population = (source.build)(&settings(source.settings, data), 2).unwrap();
        let model: Arc<dyn Model> =
            Arc::from(kind.make(&settings(kind.settings, "hidden = [20]"), population.shape).unwrap());
        let mut federation = LocalFederation::new(population.clients.clone(), threads(1).unwrap());
        federation.set_model(model.clone()).unwrap();
        let text = format!(
            "rounds = 6\nlocal_steps = 10\nstep = 0.01\noptimiser = \"adam\"\nbatch = 20\none_shot_steps = 80\n{more}"
        );
        let mut method = build("sr-fca", &text, model, &population.clients).unwrap();
        let (outcome, _) = run(&mut *method, &mut federation);
        let truth: Vec<usize> = population.clients.iter().map(|client| client.truth.unwrap_or(0)).collect();
        let labels: Vec<usize> = given(&outcome).iter().map(|given| given.unwrap()).collect();
        let scored = evaluate::seen(&outcome, &mut federation, Metric::Accuracy, Split::Train, &[], true).unwrap();
        (misclustering(&labels, &truth), outcome.models.len(), scored.metric.unwrap().mean, outcome.comparison.unwrap())
    };
    let rotated = "clients = 16\nsamples = 80\ntest_samples = 20\ntrue_clusters = 2\narrange = \"alternate\"";
    let (wrong, clusters, accuracy, comparison) = found(rotated, "");
    assert_eq!((wrong, clusters, comparison.pairs.len()), (0.0, 2, 120));
    assert!(accuracy > 0.8, "{accuracy}");
    for compare in ["sample", "neighbours"] {
        let (wrong, clusters, _, few) = found(rotated, &format!("compare = \"{compare}\"\npeers = 6"));
        assert_eq!((wrong, clusters), (0.0, 2), "{compare}");
        assert!(few.pairs.len() < 100, "{compare}: {}", few.pairs.len());
    }
    let four = rotated.replace("true_clusters = 2", "true_clusters = 4");
    let (wrong, clusters, _, comparison) = found(&four, "");
    assert_eq!((wrong, clusters), (0.0, 4), "{}", comparison.reason);
    let (wrong, clusters, _, _) = found(rotated, "groups_by = \"pivots\"");
    assert_eq!((wrong, clusters), (0.0, 2));
    let plain = "clients = 16\nsamples = 80\ntest_samples = 20\nclusters = \"none\"";
    let (_, clusters, _, comparison) = found(plain, "");
    assert_eq!((clusters, comparison.lambda), (1, None));
}

#[test]
fn one_shot_ifca_begins_at_the_means_of_its_clusters() {
    let clients = clients(&SIX);
    let mut federation = federation(&clients);
    let mut method = method("one-shot-ifca", "rounds = 1\nlocal_steps = 1\nstep = 0.25", &clients);
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    let first = ledger.run_round(&mut *method, &mut federation).unwrap();
    assert_eq!((first.sizes, method.stage().as_deref()), (vec![3, 3], Some("one_shot")));
    // Means 1.5 and −4 of the clusters; half a step to each member's own mean changes nothing of their mean.
    let last = ledger.run_round(&mut *method, &mut federation).unwrap();
    assert!(last.finished);
    close(&numbers(&method.outcome()), &[1.5, -4.0], 1e-9);
    let saved = method.save().unwrap().unwrap();
    let mut again = self::method("one-shot-ifca", "rounds = 1\nlocal_steps = 1\nstep = 0.25", &clients);
    again.restore(&saved).unwrap();
    assert_eq!(numbers(&again.outcome()), numbers(&method.outcome()));
}

#[test]
fn local_kmeans_takes_means_of_what_clients_learnt() {
    let clients = clients(&SIX);
    // 40 half steps from the common start.
    let text = "clusters = 2\nsteps = 40\nstep = 0.25";
    let (outcome, _) = run(&mut *method("local-kmeans", text, &clients), &mut federation(&clients));
    close(&numbers(&outcome), &[1.5, -4.0], 1e-9);
    assert_eq!(given(&outcome), [0, 0, 1, 0, 1, 1].map(Some));
    // One step of ½ is Newton's, from wherever a client begins.
    let text = "clusters = 2\nsteps = 1\nstep = 0.5\nstart = \"own\"";
    let (outcome, _) = run(&mut *method("local-kmeans", text, &clients), &mut federation(&clients));
    close(&numbers(&outcome), &[1.5, -4.0], 1e-9);
}

#[test]
fn cfl_parts_where_clients_pull_apart() {
    // From any start the mean goes to 0 and stays; clients pull to −3 and 3.
    let targets: [&[f64]; 5] = [&[3.0], &[-3.0], &[3.0, 3.0, 3.0], &[-3.0], &[-3.0, -3.0]];
    let clients = clients(&targets);
    let mut federation = federation(&clients);
    let text =
        "rounds = 12\nlocal_steps = 1\nstep = 0.25\nweight = \"uniform\"\nstill = 0.4\npulling = 1.0\npatience = 2";
    let mut cfl = method("cfl", text, &clients);
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    let mut sizes = Vec::new();
    for _ in 0..12 {
        sizes.push(ledger.run_round(&mut *cfl, &mut federation).unwrap().sizes);
    }
    // Mean of the targets is −0.6; the distance to it halves each round, so the mean update is short soon.
    let split = sizes.iter().position(|sizes| sizes.len() == 2).unwrap();
    assert!(split >= 2, "patience: {sizes:?}");
    assert_eq!(sizes.last().unwrap(), &[2, 3]);
    let outcome = cfl.outcome();
    assert_eq!(given(&outcome), [0, 1, 0, 1, 1].map(Some));
    assert!(outcome.notes.iter().any(|note| note.contains("3 clients left cluster 0 as cluster 1 (gap 1.00)")));
    let left = (-0.6f64 - 3.0) * 0.5f64.powi(11 - split as i32);
    close(&[numbers(&outcome)[0] - 3.0], &[left], 1e-3);
    // Nobody is left behind in the wrong part because it was silent just then.
    let faults = faults::transforms(&settings(faults::SETTINGS, "silent = 0.1"), 1, &clients);
    let mut troubled = self::federation(&clients).with_transforms(faults);
    let (outcome, _) = run(&mut *method("cfl", &text.replace("rounds = 12", "rounds = 40"), &clients), &mut troubled);
    assert_eq!(given(&outcome), [0, 1, 0, 1, 1].map(Some));
    let error = build("cfl", "min_size = 6", line(), &clients).err().unwrap();
    assert_eq!(error.to_string(), "method.it.min_size: got 6, want at most the number of clients, 5");
    // With everybody at one place nobody pulls, and nothing is parted.
    let same = self::clients(&[&[3.0], &[3.1], &[2.9], &[3.0]]);
    let (outcome, _) =
        run(&mut *method("cfl", "rounds = 30\nlocal_steps = 1\nstep = 0.25", &same), &mut self::federation(&same));
    assert_eq!(outcome.models.len(), 1);
    assert!(outcome.notes.iter().any(|note| note.starts_with("never parted")), "{:?}", outcome.notes);
}

#[test]
fn fedsoft_by_hand() {
    // The second client's rows belong half to either centre.
    let targets: [&[f64]; 3] = [&[4.0, 4.0], &[4.0, -4.0], &[-4.0, -4.0, -4.0, -4.0]];
    let clients = clients(&targets);
    let mut federation = federation(&clients);
    let text = "clusters = 2\nrounds = 1\nlocal_steps = 1\nstep = 0.25\npull = 0.5\nfloor = 0.1\ninterval = 3";
    let mut soft = method("fedsoft", text, &clients);
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    let start = numbers(&soft.outcome());
    let (low, high) = if start[0] < start[1] { (0, 1) } else { (1, 0) };
    ledger.run_round(&mut *soft, &mut federation).unwrap();
    let found = numbers(&soft.outcome());
    // u: the centre on a row's side of the middle fits it best.
    let mut shares = [[0.0; 2]; 3];
    for (client, rows) in targets.iter().enumerate() {
        for row in rows.iter() {
            let best = if (row - start[0]).abs() <= (row - start[1]).abs() { 0 } else { 1 };
            shares[client][best] += 1.0 / rows.len() as f64;
        }
        shares[client].iter_mut().for_each(|share: &mut f64| *share = share.max(0.1));
    }
    assert_eq!((shares[0][high], shares[2][low]), (1.0, 1.0), "{start:?}");
    // w: one step of ¼ from the centre with the larger share, down 2(w − mean) + λ Σ u (w − c).
    let model = |client: usize| {
        let mean = targets[client].iter().sum::<f64>() / targets[client].len() as f64;
        let from = if shares[client][0] >= shares[client][1] { start[0] } else { start[1] };
        let pull: f64 = (0..2).map(|s| 0.5 * shares[client][s] * (from - start[s])).sum();
        from - 0.25 * (2.0 * (from - mean) + pull)
    };
    let rows = [2.0, 2.0, 4.0];
    let centre = |s: usize| {
        let weight = |k: usize| shares[k][s] * rows[k];
        (0..3).map(|k| weight(k) * model(k)).sum::<f64>() / (0..3).map(weight).sum::<f64>()
    };
    close(&found, &[centre(0), centre(1)], 1e-12);
    // Everybody is served by its own model.
    let scored =
        evaluate::seen(&soft.outcome(), &mut federation, Metric::SquaredError, Split::Train, &[], true).unwrap();
    let wanted: Vec<f64> = (0..3)
        .map(|k| targets[k].iter().map(|y| (y - model(k)).powi(2)).sum::<f64>() / targets[k].len() as f64)
        .collect();
    let losses: Vec<f64> = scored.clients.iter().map(|served| served.score.unwrap().mean().unwrap()).collect();
    close(&losses, &wanted, 1e-12);
    // Down: 2 models to look at, the same 2 to train with; up: one model each.
    let traffic = federation.meter().total();
    assert_eq!((traffic.asks, traffic.models_down, traffic.models_up), (2, 6 + 6, 3));
}

#[test]
fn fedsoft_draws_clients_by_their_weight() {
    let values: Vec<Vec<f64>> = (0..10).map(|i| vec![if i < 5 { 4.0 } else { -4.0 }]).collect();
    let clients = clients(&values.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let text = "clusters = 2\nrounds = 15\nlocal_steps = 1\nstep = 0.25\npull = 0.0\nfloor = 0.0\nparticipation = 0.3";
    let mut federation = federation(&clients);
    let (outcome, _) = run(&mut *method("fedsoft", text, &clients), &mut federation);
    let mut centres = numbers(&outcome);
    centres.sort_by(f64::total_cmp);
    close(&centres, &[-4.0, 4.0], 0.5);
    assert!(federation.meter().total().models_up <= 15 * 6);
}

#[test]
fn trimming_withstands_hostile_members() {
    let values: Vec<Vec<f64>> =
        (0..20).map(|i| vec![if i < 10 { 4.0 } else { -4.0 } + 0.02 * f64::from(i % 10)]).collect();
    let mut clients = clients(&values.iter().map(Vec::as_slice).collect::<Vec<_>>());
    clients.iter_mut().enumerate().for_each(|(i, client)| client.truth = Some(usize::from(i >= 10)));
    let attack = "attack = \"noise\"\nattackers = 0.2\nstrength = 50\nattack_from = \"rounds\"";
    let error = |trim: f64| {
        let faults = faults::transforms(&settings(faults::SETTINGS, attack), 1, &clients);
        let mut federation = federation(&clients).with_transforms(faults);
        let text = format!("distance = \"l2\"\nlambda = 1\nrounds = 30\nlocal_steps = 1\nstep = 0.25\ntrim = {trim}");
        let mut method = method("sr-fca", &text, &clients);
        let mut ledger = MethodLedger::new(MissingRule::Skip);
        while let Ok(progress) = ledger.run_round(&mut *method, &mut federation) {
            if progress.finished {
                break;
            }
        }
        let outcome = method.outcome();
        let centre = |cluster: usize| 0.09 + if cluster == 0 { 4.0 } else { -4.0 };
        let far = |(cluster, number): (usize, &f64)| (number - centre(cluster.min(1))).abs();
        numbers(&outcome).iter().enumerate().map(far).fold(0.0, f64::max)
    };
    assert!(error(0.25) < 0.2, "{}", error(0.25));
    assert!(error(0.0) > 1.0, "{}", error(0.0));
}
