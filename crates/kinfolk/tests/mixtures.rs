//! Methods for mixtures: FedGrEM against a plain version of itself, what travels, what its options do, and odd data.

use kinfolk::compute::threads;
use kinfolk::data::{Client, Features, Population, Shard, Targets, source};
use kinfolk::evaluate;
use kinfolk::experiment::Experiment;
use kinfolk::federation::engines::local::LocalFederation;
use kinfolk::federation::faults;
use kinfolk::federation::work::{FitMixture, Parts, StepMixture};
use kinfolk::federation::work::{Gradient, Subject, Tally, Work};
use kinfolk::federation::{Ask, Federation, Gather, Order, Phase, Recipients};
use kinfolk::methods::room::{MethodLedger, MissingRule};
use kinfolk::methods::{self, Method, Outcome, Setup};
use kinfolk::mixture::step::{Rule, Step};
use kinfolk::mixture::{Begin, Fitting, Shape};
use kinfolk::models::{self, Model};
use kinfolk::record::Record;
use kinfolk::rng::Key;
use kinfolk::run::{Options, Unwatched, run};
use kinfolk::settings::{Setting, Settings};
use kinfolk::training::{Sample, Split};
use std::sync::Arc;

fn settings(declared: &'static [Setting], text: &str) -> Settings {
    let mut faults = Vec::new();
    let settings = Settings::check("test", declared, toml::from_str(text).unwrap(), &mut faults);
    assert!(faults.is_empty(), "{faults:?}");
    settings
}

struct Problem {
    population: Population,
    model: Arc<dyn Model>,
}

impl Problem {
    fn new(name: &str, data: &str, kind: &str, model: &str) -> Self {
        let source = source(name).unwrap();
        let population = (source.build)(&settings(source.settings, data), 3).unwrap();
        let kind = models::kind(kind).unwrap();
        let model = Arc::from(kind.make(&settings(kind.settings, model), population.shape).unwrap());
        Self { population, model }
    }

    fn gaussians(data: &str, model: &str) -> Self {
        let model = format!("components = 3\n{model}");
        Self::new("fedgrem-gaussian", &format!("components = 3\n{data}"), "gaussian-mixture", &model)
    }

    /// Clients of different sizes: the later, the fewer rows.
    fn unequal(mut self) -> Self {
        for (place, client) in self.population.clients.iter_mut().enumerate() {
            let rows: Vec<usize> = (0..client.train.len() - 7 * place).collect();
            client.train = client.train.pick(&rows);
        }
        self
    }

    fn federation(&self) -> LocalFederation {
        let mut federation = LocalFederation::new(self.population.clients.clone(), threads(2).unwrap());
        federation.set_model(self.model.clone()).unwrap();
        federation
    }

    fn method(&self, name: &str, text: &str) -> Box<dyn Method> {
        let kind = methods::kind(name).unwrap();
        let rows: Vec<usize> = self.population.clients.iter().map(|client| client.train.len()).collect();
        (kind.build)(Setup {
            place: "method".into(),
            settings: &settings(kind.settings, text),
            model: self.model.clone(),
            rows: &rows,
            curvature: None,
            truth: None,
            planted: None,
            groups: None,
            over: None,
            facts: Default::default(),
            seed: 3,
            key: Key::new(3).word(name),
        })
        .unwrap()
    }

    fn play(&self, name: &str, text: &str, rounds: usize) -> (Outcome, LocalFederation) {
        let mut ledger = MethodLedger::new(MissingRule::Skip);
        let (mut method, mut federation) = (self.method(name, text), self.federation());
        for _ in 0..rounds {
            if ledger.run_round(&mut *method, &mut federation).unwrap().finished {
                break;
            }
        }
        (method.outcome(), federation)
    }
}

fn kept(federation: &LocalFederation) -> Vec<Vec<f64>> {
    federation.host().own_models().map(|(_, model)| model).collect()
}

fn close(a: &[f64], b: &[f64], tolerance: f64) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance * (1.0 + b.abs()))
}

fn rows_of(client: &Client) -> Vec<Vec<f64>> {
    let Features::F64 { columns, values } = &**client.train.features() else { panic!("not doubles") };
    let rows = client.train.rows();
    values[rows.start * columns..rows.end * columns].chunks_exact(*columns).map(<[f64]>::to_vec).collect()
}

/// Line 3 for one component by plain alternation.
fn pulled(points: &[Vec<f64>], rows: &[f64], penalty: f64) -> Vec<Vec<f64>> {
    let width = points[0].len();
    let all: f64 = rows.iter().sum();
    let mut centre = vec![0.0; width];
    let position = |point: &[f64], centre: &[f64], rows: f64| -> Vec<f64> {
        let away = point.iter().zip(centre).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
        let share = (1.0 - penalty / rows.sqrt() / away).max(0.0);
        point.iter().zip(centre).map(|(a, b)| b + share * (a - b)).collect()
    };
    for _ in 0..20_000 {
        let mut next = vec![0.0; width];
        for (point, &count) in points.iter().zip(rows) {
            let moved = position(point, &centre, count);
            (0..width).for_each(|i| next[i] += count / all * (point[i] - (moved[i] - centre[i])));
        }
        centre = next;
    }
    points.iter().zip(rows).map(|(point, &count)| position(point, &centre, count)).collect()
}

#[test]
fn a_round_is_what_the_paper_says() {
    let problem =
        Problem::gaussians("clients = 5\nsamples = 60\nheterogeneity = 1.0", "covariance = \"identity\"").unequal();
    let (components, width) = (3, 10);
    let options = "tolerance = 0.0\nstep = 0.7";
    let (_, before) = problem.play("fedgrem", options, 4);
    let (_, after) = problem.play("fedgrem", options, 5);
    let rows: Vec<f64> = problem.population.clients.iter().map(|client| client.train.len() as f64).collect();
    let sent = kept(&before);
    // λ_0 = 1, then four times λ ← κλ + C√(d + log K).
    let penalty = (0..4).fold(1.0, |penalty, _| 0.1 * penalty + 2.0 * (10.0 + 5f64.ln()).sqrt());
    let mut centres: Vec<Vec<f64>> = vec![Vec::new(); 5];
    for r in 0..components {
        let points: Vec<Vec<f64>> = sent.iter().map(|params| params[r * width..(r + 1) * width].to_vec()).collect();
        for (centres, point) in centres.iter_mut().zip(pulled(&points, &rows, penalty)) {
            centres.extend(point);
        }
    }
    let first: Vec<Vec<f64>> =
        before.host().states().iter().map(|state| state.as_ref().unwrap().vectors.unpack()[33..36].to_vec()).collect();
    for (client, found) in kept(&after).iter().enumerate() {
        let (theta, weights) = (&centres[client], &sent[client][30..33]);
        let (mut members, mut pulls) = (vec![0.0; components], vec![0.0; components * width]);
        for row in rows_of(&problem.population.clients[client]) {
            let density = |r: usize| {
                let square: f64 = row.iter().zip(&theta[r * width..]).map(|(x, t)| (x - t).powi(2)).sum();
                weights[r] * (-0.5 * square).exp()
            };
            let all: f64 = (0..components).map(density).sum();
            for r in 0..components {
                let share = density(r) / all;
                members[r] += share / rows[client];
                (0..width).for_each(|i| pulls[r * width + i] += share * (row[i] - theta[r * width + i]) / rows[client]);
            }
        }
        let step = |r: usize| (0.7 / first[client][r]).min(1.0 / members[r]);
        let next: Vec<f64> = (0..components * width).map(|i| theta[i] + step(i / width) * pulls[i]).collect();
        assert!(close(&found[..30], &next, 1e-7), "client {client}");
        assert!(close(&found[30..33], &members, 1e-7), "client {client}");
    }
}

#[test]
fn without_a_centre_it_is_local_gradient_em() {
    for problem in [
        Problem::gaussians("clients = 4\nsamples = 50", "covariance = \"identity\""),
        Problem::new(
            "fedgrem-regression",
            "clients = 3\nsamples = 60\ncomponents = 2",
            "regression-mixture",
            "components = 2\nintercept = false\nnoise = \"unit\"",
        ),
    ] {
        let (_, federated) =
            problem.play("fedgrem", "central = \"none\"\nrounds = 12\ntolerance = 0.0\ncontests = 0", 12);
        let (_, alone) = problem.play("local-grem", "step = 0.95\nstep_rule = \"capped\"\nrounds = 12", 12);
        // The server puts components into one order for all; a client alone has its own, and rounds in it.
        for (federated, alone) in kept(&federated).iter().zip(kept(&alone)) {
            let shape = problem.model.mixture().unwrap();
            let sorted = |params: &[f64]| -> Vec<f64> {
                let part = |r: usize| {
                    [&params[r * shape.width()..(r + 1) * shape.width()], &params[shape.weights()][r..=r]].concat()
                };
                let mut parts: Vec<Vec<f64>> = (0..shape.components).map(part).collect();
                parts.sort_by(|a, b| a[0].total_cmp(&b[0]));
                parts.concat()
            };
            assert!(close(&sorted(federated), &sorted(&alone), 1e-12));
        }
    }
}

#[test]
fn with_an_infinite_reach_everybody_has_the_same_centres() {
    let problem = Problem::gaussians("clients = 4\nsamples = 60\nheterogeneity = 1.0", "").unequal();
    let (outcome, federation) = problem.play("fedgrem", "central = \"mean\"\nrounds = 5\ntolerance = 0.0", 5);
    let models = kept(&federation);
    assert!(models.iter().all(|model| model[..30] == models[0][..30]));
    assert!(models.iter().any(|model| model[130..] != models[0][130..]), "weights are everybody's own");
    assert!(close(&outcome.mixture.unwrap().common, &models[0][..30], 1e-12));
}

#[test]
fn centres_travel_and_weights_stay() {
    let traffic = |model: &str, options: &str| {
        let problem = Problem::gaussians("clients = 6\nsamples = 60", model);
        let (_, federation) = problem.play("fedgrem", &format!("rounds = 10\ntolerance = 0.0\n{options}"), 10);
        federation.meter().of(Phase::Train)
    };
    let plain = traffic("covariance = \"identity\"", "contests = 0");
    // Ten rounds, and once more to hand over what was found; two numbers and a count come with every answer.
    let centres = 3 * 10 * 8;
    assert_eq!((plain.asks, plain.models_down, plain.models_up), (11, 66, 60));
    assert_eq!((plain.bytes_down, plain.bytes_up), (66 * centres, 60 * centres + 66 * 20));
    let compared = traffic("covariance = \"identity\"", "contests = 2");
    assert_eq!((compared.asks, compared.bytes_down), (13, 78 * centres));
    let covariance = 100 * 8;
    let own = traffic("", "contests = 0");
    assert_eq!(own.bytes_down, plain.bytes_down, "covariances stay with their clients");
    let common = traffic("", "contests = 0\nscatter = \"common\"");
    assert_eq!(common.bytes_down, plain.bytes_down + 6 * covariance, "the common one travels once");
    let weights = traffic("covariance = \"identity\"", "contests = 0\nweights = \"pulled\"");
    assert_eq!(weights.bytes_up, plain.bytes_up + 60 * 3 * 8);
}

fn experiment(text: &str) -> Record {
    run(&Experiment::parse("test", text, &[]).unwrap(), &Options::default(), &mut Unwatched).unwrap()
}

fn number(record: &Record, label: &str, field: &str) -> f64 {
    let method = record.summary.methods.iter().find(|method| method.label == label).unwrap();
    method.repeats[0].extra[field].as_f64().unwrap()
}

const SMALL: &str = r#"
name = "small"
evaluate_every = 1000
[data]
source = "fedgrem-gaussian"
clients = 8
[model]
kind = "gaussian-mixture"
components = 5
covariance = "identity"
"#;

#[test]
fn common_components_help_and_outliers_show() {
    let record = experiment(&format!(
        "{SMALL}\n[[method]]\nname = \"fedgrem\"\n[[method]]\nname = \"local-em\"\n[[method]]\nname = \"mixture-fedem\""
    ));
    let error = |label| number(&record, label, "centre_error");
    assert!(error("fedgrem") < error("local-em") && error("fedgrem") < error("mixture-fedem"));
    assert!(error("fedgrem") < 1.0, "{}", error("fedgrem"));
    assert_eq!(number(&record, "fedgrem", "outlier_auc"), 1.0);
    assert!(number(&record, "fedgrem", "row_error_global") < 0.02);
}

#[test]
fn every_option_leads_to_the_same_components() {
    let options = [
        "weights = \"pulled\"",
        "batch = 50\nrounds = 300",
        "participation = 0.5\nrounds = 200",
        "clip = 6.0",
        "sparsity = 0.02",
        "central = \"two-passes\"",
        "step_rule = \"relative\"\nrounds = 300",
    ];
    let method =
        |(place, options): (usize, &&str)| format!("[[method]]\nname = \"fedgrem\"\nlabel = \"o{place}\"\n{options}\n");
    let all: String = options.iter().enumerate().map(method).collect();
    let record = experiment(&format!("{SMALL}\n{all}"));
    for (place, options) in options.iter().enumerate() {
        let error = number(&record, &format!("o{place}"), "centre_error");
        assert!(error < 1.3, "{options}: {error}");
    }
}

#[test]
fn the_number_of_components_is_found() {
    let text = SMALL.replace("components = 5", "components = \"auto\"\nmost_components = 8");
    let record = experiment(&format!("{text}\n[[method]]\nname = \"local-em\""));
    let notes = &record.summary.methods[0].repeats[0].notes;
    assert!(notes.iter().any(|note| note.starts_with("components: 5 of 1 to 8, by BIC")), "{notes:?}");
}

#[test]
fn clients_that_never_answer_end_in_notes_not_in_panics() {
    for trouble in ["silent = 1.0", "garbage = 1.0", "silent = 0.7"] {
        for kind in methods::METHODS.iter().filter(|kind| kind.wants.of_mixture()) {
            for components in ["components = 3", "components = 3\ncovariance = \"identity\""] {
                let problem = Problem::new(
                    "fedgrem-gaussian",
                    "clients = 3\nsamples = 40\ncomponents = 3",
                    "gaussian-mixture",
                    components,
                );
                let faults = faults::transforms(&settings(faults::SETTINGS, trouble), 1, &problem.population.clients);
                let (mut method, mut federation) =
                    (problem.method(kind.name, ""), problem.federation().with_transforms(faults));
                let mut ledger = MethodLedger::new(MissingRule::Skip);
                for _ in 0..20 {
                    match ledger.run_round(&mut *method, &mut federation) {
                        Ok(progress) if !progress.finished => {}
                        Ok(_) => break,
                        Err(error) => {
                            assert!(error.to_string().contains("exploded"), "{}: {error}", kind.name);
                            break;
                        }
                    }
                }
                let outcome = method.outcome();
                // What is not sent cannot be garbled, and of one ask everybody may happen to answer.
                let unscathed = trouble != "silent = 1.0" && kind.name == "local-em" || trouble.starts_with("garbage");
                assert!(unscathed || ledger.note().is_some() || !outcome.notes.is_empty(), "{}", kind.name);
                evaluate::seen(&outcome, &mut federation, problem.model.metrics()[0], Split::Train, &[], true).unwrap();
            }
        }
    }
}

#[test]
fn silence_is_not_convergence() {
    let problem = Problem::gaussians("clients = 3\nsamples = 60\nheterogeneity = 1.0", "");
    let faults = || faults::transforms(&settings(faults::SETTINGS, "silent = 0.6"), 4, &problem.population.clients);
    for name in ["fedgrem", "mixture-fedem", "mixture-fedgmm", "tgmm", "pooled-em"] {
        let rounds = |silent: bool| {
            let mut federation = problem.federation();
            if silent {
                federation = federation.with_transforms(faults());
            }
            let mut method = problem.method(name, "");
            let mut ledger = MethodLedger::new(MissingRule::Skip);
            (1..).find(|_| ledger.run_round(&mut *method, &mut federation).unwrap().finished).unwrap()
        };
        assert!(
            rounds(true) >= rounds(false),
            "{name}: {} rounds with silence, {} without",
            rounds(true),
            rounds(false)
        );
    }
}

#[test]
fn a_client_in_other_units_is_named_and_does_no_harm() {
    let mut problem = Problem::gaussians("clients = 8\nsamples = 60\noutliers = 0", "");
    let odd = &mut problem.population.clients[5];
    let Features::F64 { columns, values } = &**odd.train.features() else { panic!("not doubles") };
    let features = Features::F64 { columns: *columns, values: values.iter().map(|value| 1e4 * value).collect() };
    odd.train = Shard::new(features, Targets::None).unwrap();
    let (outcome, federation) = problem.play("fedgrem", "", 1000);
    let scores: Vec<f64> = outcome.mixture.unwrap().apart.iter().map(|apart| apart.unwrap().score).collect();
    let others = (0..8).filter(|&client| client != 5).map(|client| scores[client]).fold(0.0, f64::max);
    assert!(scores[5] > 100.0 * others, "{scores:?}");
    for (client, model) in kept(&federation).iter().enumerate().filter(|(client, _)| *client != 5) {
        assert!(model[..30].iter().all(|value| value.abs() < 6.0), "client {client}");
    }
}

#[test]
fn asks_that_do_not_fit_the_mixture_are_refused() {
    let problem = Problem::gaussians("clients = 2\nsamples = 40", "");
    let mut federation = problem.federation();
    let shape = *problem.model.mixture().unwrap();
    let fitting = Fitting { begin: Begin::Auto, starts: 1, iterations: 5, tolerance: 1e-6 };
    let fit = FitMixture { shape, fitting, seed: 0, keep: true, send: Parts::Centres };
    let step = StepMixture {
        shape,
        from: Some(1),
        model: None,
        relabel: Vec::new(),
        step: Step { rule: Rule::Maximise, sparsity: 0.0, share: 1.0 },
        steps: 1,
        sample: Sample::FULL,
        limit: None,
        send: Parts::Centres,
    };
    let mut ask = |models: Vec<usize>, work: Work| {
        let models = models.into_iter().map(|length| Arc::new(vec![0.1; length])).collect();
        let orders = vec![Order { to: Recipients::All, work }];
        federation.ask(&Ask { phase: Phase::Train, models, orders, gather: Gather::Each }).map(drop)
    };
    ask(vec![], Work::FitMixture(fit.clone())).unwrap();
    let other = Shape { components: 2, ..shape };
    let narrow = Shape { columns: 3, ..shape };
    let tally = |components, classes| Work::Tally(Tally { with: Subject::Models(vec![0]), components, classes });
    let refused = [
        (vec![], Work::FitMixture(FitMixture { shape: other, ..fit.clone() })),
        (vec![], Work::FitMixture(FitMixture { shape: narrow, ..fit.clone() })),
        (vec![], Work::FitMixture(FitMixture { fitting: Fitting { starts: usize::MAX, ..fitting }, ..fit.clone() })),
        (vec![], Work::StepMixture(StepMixture { shape: other, ..step.clone() })),
        (vec![], Work::StepMixture(StepMixture { relabel: vec![0, 0, 1], ..step.clone() })),
        (vec![], Work::StepMixture(StepMixture { from: None, ..step.clone() })),
        (vec![30], Work::StepMixture(StepMixture { from: None, model: Some(0), ..step.clone() })),
        (vec![31], Work::StepMixture(StepMixture { model: Some(0), ..step.clone() })),
        (vec![], Work::StepMixture(StepMixture { step: Step { rule: Rule::Contest, ..step.step }, ..step.clone() })),
        (vec![], Work::StepMixture(StepMixture { sample: Sample { batch: Some(0), ..Sample::FULL }, ..step.clone() })),
        (vec![30], tally(3, 3)),
        (vec![133], tally(2, 3)),
        (vec![133], tally(3, u32::MAX)),
        (vec![133], Work::Gradient(Gradient { of: 0, sample: Sample::FULL })),
    ];
    for (models, work) in refused {
        let said = format!("{work:?}");
        assert!(ask(models, work).is_err(), "{said}");
    }
    ask(vec![], Work::StepMixture(step)).unwrap();
}

#[test]
fn a_step_sees_its_batch_is_limited_and_shrinks() {
    let problem = Problem::gaussians("clients = 3\nsamples = 80", "covariance = \"identity\"");
    let (_, plain) = problem.play("fedgrem", "rounds = 20\ncontests = 0", 20);
    let differs = |options: &str| {
        let (_, federation) = problem.play("fedgrem", &format!("rounds = 20\ncontests = 0\n{options}"), 20);
        kept(&federation) != kept(&plain)
    };
    assert!(
        differs("batch = 40") && differs("clip = 1.0") && differs("sparsity = 0.1") && differs("participation = 0.7")
    );
    let (_, unlimited) = problem.play("fedgrem", "rounds = 20\ncontests = 0\nclip = 1e9", 20);
    assert!(kept(&unlimited).iter().zip(kept(&plain)).all(|(one, other)| close(one, &other, 1e-9)));
    let (_, nothing) = problem.play("fedgrem", "rounds = 20\nsparsity = 1e6\ncontests = 0", 20);
    assert!(kept(&nothing).iter().all(|model| model[..30].iter().all(|value| *value == 0.0)));
}

/// A client with these rows.
fn client(id: &str, columns: usize, values: Vec<f64>) -> Client {
    let shard = |values| Shard::new(Features::F64 { columns, values }, Targets::None).unwrap();
    Client { id: id.into(), train: shard(values), test: shard(Vec::new()), group: None, truth: None }
}

fn odd(clients: Vec<Client>, components: usize) -> Problem {
    let kind = models::kind("gaussian-mixture").unwrap();
    let shape = kinfolk::data::DataShape::numbers(clients[0].train.columns(), 0);
    let model = kind.make(&settings(kind.settings, &format!("components = {components}")), shape).unwrap();
    Problem { population: Population { clients, shape, ..Population::default() }, model: Arc::from(model) }
}

#[test]
fn odd_data_ends_in_numbers() {
    let wave = |count: usize, phase: f64| (0..count).map(move |i| (i as f64 * 1.7 + phase).sin());
    let constant = || client("constant", 2, wave(30, 0.0).flat_map(|x| [x, 4.0]).collect());
    let same = || client("same", 2, vec![1.0; 60]);
    let plain = |id: &str| client(id, 2, wave(60, 0.3).collect());
    let far = || client("far", 2, wave(60, 0.5).map(|x| 1e6 + x).collect());
    let cases = [
        vec![constant(), plain("a")],
        vec![plain("alone")],
        vec![same(), plain("a"), plain("b")],
        vec![far(), plain("a"), plain("b")],
    ];
    for clients in cases {
        let problem = odd(clients, 3);
        for kind in methods::METHODS.iter().filter(|kind| kind.wants.of_mixture()) {
            let (outcome, mut federation) = problem.play(kind.name, "", 300);
            let names = || problem.population.clients.iter().map(|client| client.id.as_str()).collect::<Vec<_>>();
            let finite = |values: &[f64]| values.iter().all(|value| value.is_finite());
            assert!(outcome.models.iter().all(|model| finite(model)), "{} on {:?}", kind.name, names());
            assert!(kept(&federation).iter().all(|model| finite(model)), "{} on {:?}", kind.name, names());
            let scored =
                evaluate::seen(&outcome, &mut federation, problem.model.metrics()[0], Split::Train, &[], true).unwrap();
            assert!(scored.loss.unwrap().is_finite(), "{} on {:?}", kind.name, names());
        }
    }
}

#[test]
fn rows_that_no_mixture_can_be_fitted_to_are_refused_by_name() {
    let refuse = |clients: Vec<Client>| {
        let problem = odd(clients, 3);
        let mut federation = LocalFederation::new(problem.population.clients.clone(), threads(1).unwrap());
        federation.set_model(problem.model.clone()).unwrap_err().to_string()
    };
    let odd = refuse(vec![client("odd", 1, vec![1.0, 2.0, 3.0, f64::NAN])]);
    assert!(odd.starts_with("client odd: training row 3 has a number that is not finite"), "{odd}");
}
