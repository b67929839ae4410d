use super::starts::{farthest_first, without_company};
use super::*;
use crate::compute::threads;
use crate::data::{Client, DataShape, Features, Shard, Targets};
use crate::federation::engines::local::LocalFederation;
use crate::methods::room::MethodLedger;

/// Clients with one feature, always 1: a linear model without intercept fits the mean of the targets.
fn clients(targets: &[&[f64]]) -> Vec<Client> {
    let client = |(index, values): (usize, &&[f64])| {
        let features = Features::F64 { columns: 1, values: vec![1.0; values.len()] };
        let train = Shard::new(features, Targets::Values(values.to_vec())).unwrap();
        Client { id: index.to_string(), test: train.clone(), train, group: None, truth: None }
    };
    targets.iter().enumerate().map(client).collect()
}

fn model(name: &str, text: &str, shape: DataShape) -> Arc<dyn Model> {
    let kind = crate::models::kind(name).unwrap();
    let mut faults = Vec::new();
    let settings = Settings::check("model", kind.settings, toml::from_str(text).unwrap(), &mut faults);
    Arc::from((kind.build)(&settings, shape).unwrap())
}

fn method(text: &str, model: Arc<dyn Model>, rows: &[usize]) -> Ifca {
    let mut faults = Vec::new();
    let settings = Settings::check("method", IfcaSettings::SETTINGS, toml::from_str(text).unwrap(), &mut faults);
    (kind("ifca").unwrap().check)("method", &settings, &mut faults);
    assert!(faults.is_empty(), "{faults:?}");
    let setup = Setup {
        place: "method.ifca".into(),
        curvature: None,
        settings: &settings,
        model,
        rows,
        truth: None,
        planted: None,
        groups: None,
        over: None,
        facts: Default::default(),
        seed: 0,
        key: Key::new(0),
    };
    IfcaSettings::of(&settings).make(setup).unwrap()
}

/// One round from these one-number models.
fn step(targets: &[&[f64]], text: &str, start: &[f64]) -> (Ifca, Progress) {
    let line = model("linear", "intercept = false", DataShape::numbers(1, 0));
    let rows: Vec<usize> = targets.iter().map(|values| values.len()).collect();
    let mut method = method(&format!("clusters = {}\n{text}", start.len()), line.clone(), &rows);
    method.state.lanes[0].begin(start.iter().map(|&value| Arc::new(vec![value])).collect());
    let mut federation = LocalFederation::new(clients(targets), threads(1).unwrap());
    federation.set_model(line).unwrap();
    let progress = MethodLedger::new(MissingRule::Skip).run_round(&mut method, &mut federation).unwrap();
    (method, progress)
}

fn run(method: &mut Ifca, federation: &mut LocalFederation) {
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    while !ledger.run_round(method, federation).unwrap().finished {}
}

fn models(method: &Ifca) -> Vec<f64> {
    method.state.lanes[0].models.iter().map(|model| model[0]).collect()
}

fn close(found: &[f64], wanted: &[f64]) {
    assert!(found.iter().zip(wanted).all(|(f, w)| (f - w).abs() < 1e-12), "{found:?}, want {wanted:?}");
}

const THREE: [&[f64]; 3] = [&[2.0], &[-1.0], &[2.5]];

#[test]
fn gradient_averaging_by_hand() {
    // Clients 0 and 2 choose θ = 1 with gradients −2 and −3, client 1 sits on θ = −1.
    let text = "averaging = \"gradients\"\nstep = 0.5\nrounds = 3";
    let (method, progress) = step(&THREE, text, &[1.0, -1.0]);
    close(&models(&method), &[1.0 + 0.5 / 3.0 * 5.0, -1.0]);
    assert_eq!((progress.sizes, progress.finished), (vec![2, 1], false));
    close(&[progress.loss.unwrap()], &[(1.0 + 0.0 + 2.25) / 3.0]);
}

#[test]
fn model_averaging_by_hand() {
    // Two local steps of 0.25: the error halves each time. The third model is nobody's and stays.
    let (method, progress) = step(&THREE, "step = 0.25\nlocal_steps = 2\nrounds = 1", &[1.0, -1.0, -9.0]);
    close(&models(&method), &[((2.0 - 0.25) + (2.5 - 0.375)) / 2.0, -1.0, -9.0]);
    assert_eq!((progress.sizes, progress.finished), (vec![2, 1, 0], true));
}

#[test]
fn a_tie_goes_to_the_first_model() {
    let (method, progress) = step(&[&[0.0], &[0.0]], "rounds = 1\nlocal_steps = 1\nstep = 0.25", &[1.0, -1.0]);
    assert_eq!(progress.sizes, [2, 0]);
    close(&models(&method), &[0.5, -1.0]);
}

#[test]
fn resampling_chooses_on_one_part_and_steps_on_the_next() {
    // One round: the first row decides for θ = 1, the second one pulls it to 5.
    let text = "step = 0.25\nlocal_steps = 1\nrounds = 1\nresample = true";
    let (method, progress) = step(&[&[1.0, 5.0], &[-1.0, -1.0]], text, &[1.0, -1.0]);
    assert_eq!(progress.sizes, [1, 1]);
    close(&models(&method), &[3.0, -1.0]);
}

#[test]
fn a_step_that_diverges_is_dropped_and_the_best_is_kept() {
    let line = model("linear", "intercept = false", DataShape::numbers(1, 0));
    let text = "clusters = 2\nrounds = 40\nrestarts = 3\nstep = [0.2, 1e160]\nlocal_steps = 3";
    let mut method = method(text, line.clone(), &[1, 1, 1]);
    let mut federation = LocalFederation::new(clients(&THREE), threads(1).unwrap());
    federation.set_model(line).unwrap();
    run(&mut method, &mut federation);
    let outcome = method.outcome();
    assert_eq!((outcome.candidates.len(), outcome.extra["best_step"]), (6, 0.2));
    let dropped = "3 of 6 starts and steps diverged and were dropped";
    assert!(outcome.notes.iter().any(|note| note == dropped), "{:?}", outcome.notes);
    let mut found: Vec<f64> = outcome.models.iter().map(|model| model[0]).collect();
    found.sort_by(f64::total_cmp);
    close(&found, &[-1.0, 2.25]);
}

#[test]
fn a_settled_start_stops() {
    let line = model("linear", "intercept = false", DataShape::numbers(1, 0));
    let mut method = method("clusters = 1\nrounds = 1000\ntolerance = 1e-6\nstep = 0.1", line.clone(), &[1, 1, 1]);
    let mut federation = LocalFederation::new(clients(&THREE), threads(1).unwrap());
    federation.set_model(line).unwrap();
    run(&mut method, &mut federation);
    assert!(method.state.round < 20 && method.outcome().converged);
}

#[test]
fn shared_layers_stay_the_same_everywhere() {
    let shape = DataShape::numbers(1, 0);
    let net = model("mlp", "hidden = [3]\nprecision = \"f64\"", shape);
    for averaging in ["models", "gradients"] {
        let text = format!("clusters = 2\nrounds = 5\nshared = [\"layer0\"]\naveraging = \"{averaging}\"\nstep = 0.05");
        let mut method = method(&text, net.clone(), &[1, 1, 1]);
        let mut federation = LocalFederation::new(clients(&THREE), threads(1).unwrap());
        federation.set_model(net.clone()).unwrap();
        run(&mut method, &mut federation);
        let models = &method.state.lanes[0].models;
        assert_eq!(models[0][..6], models[1][..6]);
        assert_ne!(models[0][6..], models[1][6..]);
    }
}

#[test]
fn models_far_from_all_others_are_set_aside() {
    // Two clusters of four on a line, two apart from each other's, and one model far away with nobody beside it.
    let found = |points: &[f64], clusters: Option<usize>| {
        let clients = (0..points.len() as u32).collect();
        without_company(&OrderAnswers { clients, vectors: points.to_vec(), ..OrderAnswers::default() }, clusters)
    };
    let line = [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0, 40.0, 0.5, 1.5, 10.5];
    // Half a cluster is three of twelve: to the second other one it is 28 from the ninth, and about 1 elsewhere.
    assert_eq!(found(&line, Some(2)), [8]);
    assert_eq!(found(&line, None), [8]);
    // With three clusters half of one is two: too few to say.
    assert!(found(&line, Some(3)).is_empty());
    // Three liars who agree are a cluster like any other.
    let agreed = [&line[..], &[40.0, 40.0]].concat();
    assert!(found(&agreed, Some(2)).is_empty());
}

#[test]
fn families_far_apart_are_found_first() {
    let points: [f64; 6] = [0.0, 0.1, 10.0, 10.1, 20.0, 0.2];
    let families = farthest_first(6, 3, |i, j| (points[i] - points[j]).abs());
    let mut sorted: Vec<Vec<usize>> = families;
    sorted.sort();
    assert_eq!(sorted, [vec![0, 1, 5], vec![2, 3], vec![4]]);
}
