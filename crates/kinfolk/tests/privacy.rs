//! Differential privacy from outside: what is refused, what a run says, where noise comes from, and whether an attacker who knows all but
//! one row learns more of it than is claimed.

use crate::by_hand::clients;
use kinfolk::experiment::{Draft, Level, NoiseFrom, Privacy, Protection, Top};
use kinfolk::methods::options::{Schedule, Training, Weight};
use kinfolk::methods::{FedAvgSettings, IfcaSettings};
use kinfolk::models::LinearSettings;
use kinfolk::run::{Options, Unwatched, run};
use kinfolk::{Client, Experiment, Record, Shard};

const DELTA: f64 = 1e-5;

fn hidden(epsilon: f64, noise: NoiseFrom) -> Privacy {
    let protection =
        Protection { level: Level::Record, epsilon: Some(epsilon), delta: DELTA, noise, ..Protection::default() };
    Privacy { protection, ..Privacy::default() }
}

fn training(rounds: usize) -> Training {
    let schedule = Schedule { local_steps: Some(1), ..Schedule::rounds(rounds) };
    Training { step: 0.5.into(), schedule }
}

/// One client with 20 rows that say nothing, but for the first one.
fn with_first(x: f64) -> Draft {
    let mut columns = vec![0.0; 20];
    columns[0] = x;
    let rows = Shard::of_numbers(1, columns, vec![1000.0; 20]).unwrap();
    Experiment::on(vec![Client { test: rows.clone(), ..Client::new("a", rows) }])
        .model(LinearSettings {
            intercept: false,
            initial: kinfolk::models::options::Initial::Zero,
            ..LinearSettings::default()
        })
        .method(FedAvgSettings { training: training(4), ..FedAvgSettings::default() })
}

fn carried_out(draft: Draft, privacy: Privacy, seed: u64) -> Record {
    let top = Top { seed, evaluate_every: 1000, ..Top::default() };
    let experiment = draft.with(top).privacy(privacy).check().unwrap();
    run(&experiment, &Options { threads: 1, ..Options::default() }, &mut Unwatched).unwrap()
}

fn found(record: &Record) -> f64 {
    record.models_of("fedavg").unwrap().models[0][0]
}

#[test]
fn what_tells_of_single_rows_is_refused_all_at_once() {
    let text = "data.source = \"linear\"\nmodel.kind = \"linear\"\nprivacy.level = \"record\"\nprivacy.epsilon = 1\n\
        [[method]]\nname = \"hierarchical\"\ngroups = \"one\"\n[[method]]\nname = \"auto\"\n[[method]]\nname = \"odcl\"\nsolve = \"steps\"\nstep = 0.1\ntolerance = 0.1\n\
        [[method]]\nname = \"fedavg\"\nbatch = 4\n[[method]]\nname = \"ifca\"\nclusters = 2\nstep = 0.1\nrestarts = 3\n\
        [[method]]\nname = \"fedprox\"\nstep = 0.1\n";
    let said = Experiment::parse("file", text, &[]).err().unwrap().to_string();
    for wanted in [
        "method.hierarchical: its clients answer with how their smallest loss",
        "method.auto: its clients answer with products",
        "method.odcl: with a tolerance the rows decide when steps end",
        "method.fedavg.step: \"auto\" looks at the rows",
        "method.fedavg.batch: a batch of a fixed size",
        "method.ifca: several starts or steps",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(!said.contains("method.fedprox"), "{said}");
    let table = "data.source = \"table\"\ndata.path = \"t.csv\"\ndata.client = \"c\"\ndata.target = \"y\"\nmodel.kind = \"linear\"\n\
        privacy.level = \"record\"\nprivacy.epsilon = 1\n[[method]]\nname = \"fedavg\"\nstep = 0.1\n";
    let said = Experiment::parse("file", table, &[]).err().unwrap().to_string();
    assert!(said.contains("has clients describe their columns") && said.contains("privacy.public_schema"), "{said}");
    let images = "data.source = \"digits\"\nmodel.kind = \"cnn\"\nprivacy.level = \"record\"\nprivacy.epsilon = 1\n\
        [[method]]\nname = \"fedavg\"\nstep = 0.1\n";
    let said = Experiment::parse("file", images, &[]).err().unwrap().to_string();
    assert!(said.contains("cnn does not have one by one") && said.contains("models that do: linear"), "{said}");
}

/// What is said against an experiment with rows hidden, of this data, model and methods.
fn refused(data: &str, model: &str, methods: &str) -> String {
    let text = format!("privacy.level = \"record\"\nprivacy.epsilon = 1\n[data]\n{data}\n[model]\n{model}\n{methods}");
    Experiment::parse("file", &text, &[]).err().map_or_else(String::new, |error| error.to_string())
}

#[test]
fn minimisers_and_mixtures_are_hidden_where_their_methods_can_be() {
    let digits = "source = \"digits\"\nclasses = [1, 2]";
    let odcl = "[[method]]\nname = \"odcl\"\n";
    let said = refused(digits, "kind = \"logistic\"", odcl);
    assert!(said.contains("method.odcl: without a ridge one row may move the minimiser"), "{said}");
    assert_eq!(refused(digits, "kind = \"logistic\"", &format!("{odcl}ridge = 0.1\n")), "");
    let said = refused(digits, "kind = \"softmax\"", odcl);
    assert!(said.contains("method.odcl.step: \"auto\" looks at the rows"), "{said}");
    assert_eq!(refused(digits, "kind = \"softmax\"", &format!("{odcl}step = 0.1\n")), "");
    let said = refused("source = \"linear\"", "kind = \"linear\"", "[[method]]\nname = \"cluster-oracle\"\n");
    assert!(said.contains("method.cluster-oracle: it searches by gradients"), "{said}");
    let (data, model) = ("source = \"fedgrem-gaussian\"", "kind = \"gaussian-mixture\"\ncovariance = \"identity\"");
    let two = format!("{model}\ncomponents = 2");
    for (method, wanted) in [
        ("fedgrem", "it begins with what clients fit alone to their rows: set start = \"random\""),
        ("local-em", "it begins with what clients fit alone"),
        ("tgmm", "its clients answer more than"),
    ] {
        let said = refused(data, &two, &format!("[[method]]\nname = \"{method}\"\n"));
        assert!(said.contains(wanted) && !said.contains("fedavg"), "{method}: {said}");
    }
    let random = "[[method]]\nname = \"fedgrem\"\nstart = \"random\"\n";
    assert_eq!(refused(data, &two, random), "");
    let auto = format!("{model}\ncomponents = \"auto\"");
    assert!(refused(data, &auto, random).contains("model.components: \"auto\" is found by what clients fit"));
    assert!(refused(data, &two, &format!("{random}clip = 2.0\n")).contains("privacy.clip cuts rows"));
    assert!(refused(data, &two, &format!("{random}batch = 5\n")).contains("a batch of a fixed size"));
}

/// The record of an experiment written as text, on one seed.
fn run_of(text: &str) -> Record {
    let experiment = Experiment::parse("file", text, &[]).unwrap();
    run(&experiment, &Options { threads: 1, ..Options::default() }, &mut Unwatched).unwrap()
}

const REGRESSIONS: &str = "[data]\nsource = \"odcl-linear\"\nclients = 12\nsamples = 2000\ntest_samples = 50\ndimension = 3\n\
    active = 3\ntrue_clusters = 2\n[model]\nkind = \"linear\"\nintercept = false\n[[method]]\nname = \"odcl\"\n";

fn private(epsilon: f64, more: &str) -> String {
    format!("evaluate_every = 1000\n[privacy]\nlevel = \"record\"\nepsilon = {epsilon:?}\n{more}\n")
}

#[test]
fn clusters_are_found_among_minimisers_with_noise() {
    let record = run_of(&(private(2.0, "target_bound = 10.0") + REGRESSIONS));
    let repeat = &record.summary.methods[0].repeats[0];
    assert_eq!((repeat.clusters, repeat.misclustering), (Some(2), Some(0.0)), "{:?}", repeat.notes);
    let notes = repeat.notes.join("\n");
    assert!(notes.contains("ε = 2.000 at δ = 1e-5") && notes.contains("1 noised answer, noise"), "{notes}");
    assert!(record.rounds.iter().filter(|round| round.phase == "train").all(|round| round.loss.is_none()));
}

#[test]
fn with_next_to_no_noise_clients_answer_with_their_minimisers() {
    // The means of the clusters, in one order.
    let means = |text: &str| {
        let record = run_of(text);
        let mut means: Vec<f64> =
            record.models_of("odcl").unwrap().models.iter().flat_map(|model| model.to_vec()).collect();
        means.sort_by(f64::total_cmp);
        means
    };
    let plain = means(REGRESSIONS);
    let hidden = means(&(private(1e6, "row_bound = 10.0\ntarget_bound = 100.0") + REGRESSIONS));
    assert!(plain.iter().zip(&hidden).all(|(plain, hidden)| (plain - hidden).abs() < 0.01), "{plain:?} {hidden:?}");
}

#[test]
fn logistic_minimisers_and_kept_ones_are_hidden() {
    let text = "[data]\nsource = \"digits\"\nclasses = [1, 2]\nclients = 4\nsamples = 60\ntest_samples = 20\n\
        [model]\nkind = \"logistic\"\n[[method]]\nname = \"naive-average\"\nridge = 0.1\n\
        [[method]]\nname = \"local\"\nsolve = \"exact\"\nridge = 0.1\n";
    let accuracy = |text: &str| {
        let record = run_of(text);
        record.summary.methods.iter().map(|it| it.repeats[0].metric.as_ref().unwrap().mean).collect::<Vec<f64>>()
    };
    let plain = accuracy(text);
    let near = accuracy(&(private(1e6, "row_bound = 20.0") + text));
    assert!(plain.iter().zip(&near).all(|(plain, near)| plain - near < 0.05), "{plain:?} {near:?}");
    let far = accuracy(&(private(0.1, "") + text));
    assert!(far.iter().all(|accuracy| *accuracy < 0.9), "{far:?}");
}

#[test]
fn mixtures_are_learned_from_steps_with_noise() {
    let text = |method: &str| {
        format!(
            "[data]\nsource = \"fedgrem-gaussian\"\nclients = 6\nsamples = 400\ncomponents = 2\ntest_samples = 50\n\
             [model]\nkind = \"gaussian-mixture\"\ncomponents = 2\ncovariance = \"identity\"\n\
             [[method]]\nname = \"{method}\"\nrounds = 12\nstart = \"random\"\n"
        )
    };
    for method in ["fedgrem", "mixture-fedem", "mixture-fedgmm", "pooled-em", "pooled-grem"] {
        let record = run_of(&(private(8.0, "clip = 3.0") + &text(method)));
        let repeat = &record.summary.methods[0].repeats[0];
        let notes = repeat.notes.join("\n");
        assert!(notes.contains("ε = 8.000") && notes.contains("12 noised answers"), "{method}: {notes}");
        let error = repeat.metric.as_ref().unwrap().mean;
        // A step of a tenth is too short to get far in twelve rounds.
        assert!(error < 0.1 || method == "pooled-grem", "{method}: {error}");
    }
    let regressions = text("mixture-fedem")
        .replace("fedgrem-gaussian", "fedgrem-regression")
        .replace("gaussian-mixture", "regression-mixture")
        .replace("covariance = \"identity\"", "noise = \"unit\"");
    let repeat = &run_of(&(private(8.0, "") + &regressions)).summary.methods[0].repeats[0];
    assert!(repeat.reason.as_ref().is_some_and(|why| why.contains("needs sums of products")), "{repeat:?}");
    let repeat =
        &run_of(&(private(8.0, "") + &regressions.replace("mixture-fedem", "fedgrem"))).summary.methods[0].repeats[0];
    assert!(repeat.metric.is_some() && repeat.status == "not-converged", "{repeat:?}");
}

#[test]
fn a_run_says_what_it_spends_and_tells_no_losses() {
    let twice =
        with_first(1.0).method_called("other", FedAvgSettings { training: training(4), ..FedAvgSettings::default() });
    let record = carried_out(twice, hidden(2.0, NoiseFrom::Seed), 1);
    let notes = record.summary.methods[0].repeats[0].notes.join("\n");
    assert!(
        notes.contains("ε = 2.000 at δ = 1e-5, for one row more or less of a client; 4 noised steps, noise"),
        "{notes}"
    );
    assert!(notes.contains("no guarantee") && notes.contains("together, if all are published: ε = 2.9"), "{notes}");
    assert!(record.rounds.iter().filter(|round| round.phase == "train").all(|round| round.loss.is_none()));
    let record = carried_out(with_first(1.0), hidden(2.0, NoiseFrom::System), 1);
    let notes = record.summary.methods[0].repeats[0].notes.join("\n");
    assert!(notes.contains("Noise from the operating system") && !notes.contains("together"), "{notes}");
}

#[test]
fn seeds_repeat_noise_and_do_not_reach_that_of_the_operating_system() {
    let trained = |noise: NoiseFrom, seed: u64| found(&carried_out(with_first(1.0), hidden(2.0, noise), seed));
    assert_eq!(trained(NoiseFrom::Seed, 1), trained(NoiseFrom::Seed, 1));
    assert_ne!(trained(NoiseFrom::Seed, 1), trained(NoiseFrom::Seed, 2));
    assert_ne!(trained(NoiseFrom::System, 1), trained(NoiseFrom::System, 1));
}

#[test]
fn clusters_are_found_by_drawn_choices() {
    let ifca = IfcaSettings {
        clusters: 2.into(),
        step: vec![0.3].into(),
        schedule: Schedule { local_steps: Some(1), ..Schedule::rounds(40) },
        ..IfcaSettings::default()
    };
    let draft = || {
        Experiment::on(clients(&[&[0.0; 8], &[0.1; 8], &[0.8; 8], &[0.9; 8]]))
            .model(LinearSettings::default())
            .method(ifca.clone())
    };
    let record = carried_out(draft(), hidden(1e5, NoiseFrom::Seed), 3);
    let notes = record.summary.methods[0].repeats[0].notes.join("\n");
    assert!(notes.contains("40 noised steps and 4 drawn choices"), "{notes}");
    let again = carried_out(draft(), hidden(1e5, NoiseFrom::Seed), 3);
    assert_eq!(record.models_of("ifca").unwrap().models, again.models_of("ifca").unwrap().models);
}

/// Clients that each have one value, which the model of one constant learns.
fn of_values(values: &[f64]) -> Draft {
    let targets: Vec<[f64; 4]> = values.iter().map(|&value| [value; 4]).collect();
    let targets: Vec<&[f64]> = targets.iter().map(|values| &values[..]).collect();
    let zero = kinfolk::models::options::Initial::Zero;
    Experiment::on(clients(&targets)).model(LinearSettings {
        intercept: false,
        initial: zero,
        ..LinearSettings::default()
    })
}

fn hidden_clients(epsilon: f64, noise: NoiseFrom) -> Privacy {
    let protection =
        Protection { level: Level::Client, epsilon: Some(epsilon), delta: DELTA, noise, ..Protection::default() };
    Privacy { protection, ..Privacy::default() }
}

#[test]
fn one_model_is_learned_from_many_clients_that_are_hidden() {
    let values: Vec<f64> = (0..400).map(|client| 0.5 + 0.001 * f64::from(client % 2)).collect();
    let fedavg = || FedAvgSettings { weight: Weight::Uniform, training: training(6), ..FedAvgSettings::default() };
    let trained = |noise: NoiseFrom, seed: u64| {
        carried_out(of_values(&values).method(fedavg()), hidden_clients(4.0, noise), seed)
    };
    let record = trained(NoiseFrom::Seed, 1);
    // One step of ½ finds each client's value; the noise of a mean is about 3/400 of the clip.
    assert!((found(&record) - 0.5005).abs() < 0.05 && found(&record) != 0.5005, "{}", found(&record));
    let notes = record.summary.methods[0].repeats[0].notes.join("\n");
    assert!(
        notes.contains("differential privacy of clients: ε = 4.000")
            && notes.contains("one client more or less; 6 sums"),
        "{notes}"
    );
    assert_eq!(found(&record), found(&trained(NoiseFrom::Seed, 1)));
    assert_ne!(found(&record), found(&trained(NoiseFrom::Seed, 2)));
    assert_ne!(found(&trained(NoiseFrom::System, 1)), found(&trained(NoiseFrom::System, 1)));
}

#[test]
fn clusters_are_found_among_clients_that_are_hidden() {
    let values: Vec<f64> = (0..600).map(|client| if client % 3 == 0 { 1.0 } else { -1.0 }).collect();
    let schedule = Schedule { local_steps: Some(1), ..Schedule::rounds(8) };
    let ifca = || IfcaSettings {
        clusters: 2.into(),
        step: vec![0.5].into(),
        schedule: schedule.clone(),
        ..IfcaSettings::default()
    };
    let model = || LinearSettings { intercept: false, ..LinearSettings::default() };
    // Which start leads to two clusters is a matter of luck: random models on either side of 0.
    let parted = |seed: u64| {
        let record =
            carried_out(of_values(&values).model(model()).method(ifca()), hidden_clients(8.0, NoiseFrom::Seed), seed);
        let mut models: Vec<f64> = record.models_of("ifca").unwrap().models.iter().map(|model| model[0]).collect();
        models.sort_by(f64::total_cmp);
        let sizes: Vec<usize> = record.rounds.iter().rev().find(|round| round.phase == "train").unwrap().sizes.clone();
        let are_near = (models[0] + 1.0).abs() < 0.2 && (models[1] - 1.0).abs() < 0.2;
        are_near && sizes.iter().sum::<usize>().abs_diff(600) < 150
    };
    assert!((0..6).any(parted));
}

#[test]
fn what_tells_of_single_clients_is_refused() {
    let text = "data.source = \"linear\"\nmodel.kind = \"linear\"\nprivacy.level = \"client\"\nprivacy.epsilon = 1\n\
        [[method]]\nname = \"odcl\"\n[[method]]\nname = \"mr-mtl\"\nstep = 0.1\n[[method]]\nname = \"fedavg\"\nstep = 0.1\n\
        [[method]]\nname = \"ifca\"\nclusters = 2\nstep = 0.1\nbatch = 4\n";
    let said = Experiment::parse("file", text, &[]).err().unwrap().to_string();
    for wanted in [
        "method.odcl: its clients send more than sums of updates",
        "method.mr-mtl: its clients send more than one update to a sum",
        "method.fedavg.weight: \"rows\" lets one client weigh as much as many",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(!said.contains("method.ifca"), "{said}");
}

/// The probability of at most so many successes in `runs`.
fn at_most(successes: u32, runs: u32, chance: f64) -> f64 {
    let mut term = (1.0 - chance).powf(f64::from(runs));
    (0..successes).fold(term, |total, k| {
        term *= f64::from(runs - k) / f64::from(k + 1) * chance / (1.0 - chance);
        total + term
    })
}

/// Clopper and Pearson: the chance below which the truth lies with 97.5 %, and the one above which it does.
fn interval(successes: u32, runs: u32) -> (f64, f64) {
    let solve = |holds: &dyn Fn(f64) -> bool| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if holds(middle) { low = middle } else { high = middle }
        }
        low
    };
    let least = if successes == 0 { 0.0 } else { solve(&|chance| 1.0 - at_most(successes - 1, runs, chance) < 0.025) };
    (least, if successes == runs { 1.0 } else { solve(&|chance| at_most(successes, runs, chance) > 0.025) })
}

#[test]
fn intervals_by_tables() {
    for ((successes, runs), (low, high)) in
        [((5, 10), (0.1871, 0.8129)), ((0, 20), (0.0, 0.1684)), ((20, 20), (0.8316, 1.0))]
    {
        let found = interval(successes, runs);
        assert!((found.0 - low).abs() < 1e-4 && (found.1 - high).abs() < 1e-4, "{successes}/{runs}: {found:?}");
    }
}

/// A canary: the row whose gradient is always longer than the clip, in a client whose other rows have none. The attacker sees the model
/// and says whether the row was there. From how often that is right follows, with 95 % certainty, an ε that the truth is not below.
/// `KINFOLK_AUDIT_RUNS=1000` for the figure that is recorded.
#[test]
fn an_audit_stays_below_the_claim() {
    let runs: u32 = std::env::var("KINFOLK_AUDIT_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(120);
    for claimed in [1.0, 4.0] {
        let trained =
            |x: f64, seed: u32| found(&carried_out(with_first(x), hidden(claimed, NoiseFrom::Seed), u64::from(seed)));
        // Four steps of ½·1/20 towards the row: what the model is without noise.
        let moved = 4.0 * 0.5 / 20.0;
        let above = |x: f64, first: u32| (first..first + runs).filter(|&seed| trained(x, seed) > moved).count() as u32;
        let (right, wrong) = (above(1.0, 0), above(0.0, runs));
        let ((least, _), (_, most)) = (interval(right, runs), interval(wrong, runs));
        let proved = ((least - DELTA) / most).ln();
        println!("claimed {claimed}: {right} and {wrong} of {runs} above; at least {proved:.3}");
        assert!(proved < claimed, "{proved} of {claimed}: {right} and {wrong} of {runs}");
        assert!(claimed < 4.0 || proved > 0.1, "an audit that would notice nothing: {proved}");
    }
}
