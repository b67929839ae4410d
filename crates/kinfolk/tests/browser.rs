//! The report page in a real browser: it draws itself, survives hostile labels and odd runs, and
//! asks no network for anything. The pages stay in the target folder's `tmp` to be looked at.

use kinfolk::clustering::convex::{Certificate, Path as ClusterPath, Step};
use kinfolk::clustering::quality::{adjusted_rand_index, misclustering};
use kinfolk::clustering::{Clustering, Found, Plane, Sureness};
use kinfolk::data::TableSettings;
use kinfolk::data::points::{Choice, PointTable, read};
use kinfolk::fit::{FitSettings, fit};
use kinfolk::methods::Comparison;
use kinfolk::record::summary::ClientScore;
use kinfolk::record::{
    ClientMixture, ClientRecord, ComparisonRecord, MethodSummary, MetricSummary, MixtureRecord, Record, RepeatSummary,
    RoundRecord, Summary,
};
use kinfolk::report::clustering::ClusteringRecord;
use kinfolk::report::html;
use kinfolk::rng::Key;
use kinfolk::run::{Options, Unwatched};
use rand::RngExt;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const HOSTILE: &str = "if<script>document.documentElement.dataset.broken='true'</script>\"ca'";

fn browser() -> PathBuf {
    if let Some(chosen) = std::env::var_os("CHROMIUM") {
        return chosen.into();
    }
    let folders: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
        .expect("no Chromium: want $CHROMIUM, or chromium, chromium-browser or google-chrome on PATH; `make test` installs it")
}

fn opened(name: &str, record: &Record) -> String {
    opened_page(name, &html::page(record))
}

/// Writes the page, opens it, and returns the document after its scripts ran, without the scripts.
fn opened_page(name: &str, text: &str) -> String {
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}.html"));
    std::fs::write(&page, text).expect("the target folder is writable");
    let profile = tempfile::tempdir().expect("a temporary folder");
    let output = Command::new(browser())
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--window-size=1280,900", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document = String::from_utf8(output.stdout).expect("a document is text");
    let (before, rest) = document.split_once("<script type=\"application/json\"").expect("the page carries its data");
    let after = rest.rsplit_once("</script>").expect("the script ends").1;
    format!("{before}{after}")
}

fn assert_ready(document: &str) {
    let opening = document.split_once("<head>").expect("a head").0;
    assert!(opening.contains("data-ready=\"true\""), "the page did not finish: {document:.2000}");
    assert!(!opening.contains("data-broken"), "a script in a label ran");
    assert!(!document.contains("NaN") && !document.contains("Infinity"), "a number that is none was drawn");
    for reference in [" src=", " href=", "url(", "@import"] {
        assert!(!document.contains(reference), "the page refers to something outside: {reference}");
    }
}

fn panel<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = document.split_once(&format!("data-panel=\"{name}\""))?;
    Some(rest.split_once("</section>").map_or(rest, |(panel, _)| panel))
}

fn count(document: &str, name: &str, mark: &str) -> usize {
    panel(document, name).unwrap_or_else(|| panic!("no panel {name}")).matches(mark).count()
}

fn says(document: &str, name: &str, words: &str) -> bool {
    count(document, name, words) > 0
}

/// How a fabricated method behaves.
struct Behaviour {
    label: &'static str,
    name: &'static str,
    /// Where its accuracy begins, where it goes, and after how many rounds most of the way is done.
    accuracy: (f64, f64, f64),
    clustered: bool,
    bytes: u64,
    seconds: f64,
}

const CLIENTS: usize = 40;
const CLUSTERS: usize = 4;

fn behaviours(first: &'static str) -> [Behaviour; 4] {
    let method = |label, name, accuracy, clustered, bytes, seconds| Behaviour {
        label,
        name,
        accuracy,
        clustered,
        bytes,
        seconds,
    };
    [
        method(first, "ifca", (0.12, 0.945, 14.0), true, 102_000_000, 0.9),
        method("fedavg", "fedavg", (0.12, 0.862, 16.0), false, 25_500_000, 0.7),
        method("local", "local", (0.3, 0.815, 6.0), false, 0, 0.35),
        method("oracle", "oracle", (0.12, 0.951, 10.0), true, 25_500_000, 0.7),
    ]
}

/// A run that looks like one: rounds, clients and summaries of several methods over several seeds.
fn comparison(behaviours: &[Behaviour], seeds: u64, rounds: usize) -> Record {
    let data = json!({
        "source": "mnist", "clients": CLIENTS, "samples": 200, "test_samples": 50, "unseen_clients": 8,
        "true_clusters": CLUSTERS, "clusters": "rotate",
    });
    let summary = Summary {
        schema: 1,
        name: "rotated-mnist".into(),
        seed: 0,
        version: "0.1.0".into(),
        cpu: "baseline".into(),
        data,
        methods: Vec::new(),
    };
    let mut record = Record { summary, ..Record::default() };
    for behaviour in behaviours {
        let repeats = (0..seeds).map(|seed| fabricate(behaviour, seed, rounds, &mut record)).collect();
        let settings =
            json!({ "clusters": CLUSTERS, "rounds": rounds, "local_steps": 10, "step": 0.1, "hidden": [200] });
        record.summary.methods.push(MethodSummary::of(behaviour.label, behaviour.name, settings, repeats));
    }
    record
}

fn fabricate(behaviour: &Behaviour, seed: u64, rounds: usize, record: &mut Record) -> RepeatSummary {
    let mut random = Key::new(seed).word(behaviour.label).rng();
    let mut wobble = |size: f64| random.random_range(-size..size);
    let (begin, end, speed) = behaviour.accuracy;
    let end = end + wobble(0.012);
    let accuracy_at = |round: usize| end - (end - begin) * (-(round as f64) / speed).exp();
    let mut found: Vec<usize> = (0..CLIENTS).map(|client| (client + (wobble(2.0) + 2.0) as usize) % CLUSTERS).collect();
    for round in 1..=rounds {
        let mut switched = 0;
        for (client, cluster) in found.iter_mut().enumerate() {
            let settles = wobble(0.5) + 0.5 < 0.16 && client != 17;
            if settles && *cluster != client % CLUSTERS {
                *cluster = client % CLUSTERS;
                switched += 1;
            }
        }
        let sizes = (0..CLUSTERS).map(|cluster| found.iter().filter(|found| **found == cluster).count()).collect();
        let train = RoundRecord {
            label: behaviour.label.into(),
            seed,
            round,
            phase: "train".into(),
            loss: Some(2.3 * (1.02 - accuracy_at(round)) + wobble(0.01)),
            switched: behaviour.clustered.then_some(switched),
            sizes: if behaviour.clustered { sizes } else { Vec::new() },
            bytes_down: behaviour.bytes,
            bytes_up: behaviour.bytes / 4,
            seconds: round as f64 * behaviour.seconds,
            ..RoundRecord::default()
        };
        let evaluate = RoundRecord {
            phase: "evaluate".into(),
            loss: None,
            metric: Some(accuracy_at(round) + wobble(0.006)),
            unseen_metric: Some(accuracy_at(round) - 0.02 + wobble(0.01)),
            switched: None,
            bytes_down: 0,
            bytes_up: 0,
            ..train.clone()
        };
        record.rounds.push(train);
        if round % 10 == 0 || round == 1 {
            record.rounds.push(evaluate);
        }
    }
    let truth: Vec<usize> = (0..CLIENTS).map(|client| client % CLUSTERS).collect();
    let mut scores = Vec::new();
    for (client, cluster) in found.iter().enumerate() {
        let unlucky = if wobble(1.0) > 0.8 { 0.14 } else { 0.0 };
        let accuracy = (end - unlucky + wobble(0.035)).min(1.0);
        let cluster = behaviour.clustered.then_some(*cluster);
        scores.push(ClientScore { sum: accuracy * 50.0, rows: 50, cluster });
        record.clients.push(ClientRecord {
            label: behaviour.label.into(),
            seed,
            client: format!("school-{client:02}"),
            true_cluster: Some(truth[client]),
            cluster,
            samples: 200,
            margin: behaviour.clustered.then_some(0.2),
            metric: Some(accuracy),
            ..ClientRecord::default()
        });
    }
    let clusters = if behaviour.clustered { CLUSTERS } else { 0 };
    RepeatSummary {
        seed,
        status: "done".into(),
        reason: None,
        rounds,
        clusters: behaviour.clustered.then_some(clusters),
        metric: MetricSummary::of("accuracy", &scores, clusters),
        unseen: MetricSummary::of("accuracy", &scores[..8], clusters),
        misclustering: behaviour.clustered.then(|| misclustering(&found, &truth)),
        ari: behaviour.clustered.then(|| adjusted_rand_index(&found, &truth)),
        parameter_error: None,
        bytes_down: behaviour.bytes * rounds as u64,
        bytes_up: behaviour.bytes / 4 * rounds as u64,
        models_down: 4,
        models_up: 1,
        seconds: behaviour.seconds * rounds as f64,
        notes: if behaviour.clustered { vec!["school-17 never settled".into()] } else { Vec::new() },
        extra: BTreeMap::new(),
    }
}

#[test]
fn a_comparison_draws_every_panel() {
    let document = opened("comparison", &comparison(&behaviours("ifca"), 3, 60));
    assert_ready(&document);
    assert_eq!(count(&document, "results", "<tr>"), 5, "a heading and four methods");
    assert_eq!(count(&document, "notes", "<li"), 2, "both clustered methods have a note");
    assert_eq!(count(&document, "curves", "class=\"mean\""), 12, "metric, unseen metric and loss of four methods");
    assert_eq!(count(&document, "curves", "class=\"seed\""), 36, "and of each of three seeds");
    assert_eq!(count(&document, "communication", "data-label="), 4);
    assert_eq!(count(&document, "formation", "class=\"cluster\""), 8, "four clusters of two methods");
    assert!(count(&document, "formation", "class=\"switched\"") > 2);
    assert_eq!(count(&document, "truth", "class=\"cell\""), 32, "two tables of four by four");
    assert_eq!(count(&document, "truth", "class=\"agreed\""), 8);
    assert!(count(&document, "clients", "class=\"bin\"") >= 8);
    assert_eq!(count(&document, "clients", "class=\"worst\""), 4);
    assert!(says(&document, "settings", "local_steps"));
    let titles = document.matches("<title>").count() - 1;
    assert_eq!(document.matches("role=\"img\"").count(), titles, "every picture has a title");
}

#[test]
fn a_script_in_a_label_is_only_text() {
    let mut record = comparison(&behaviours(HOSTILE), 1, 20);
    record.summary.name = "</title></script><script>document.documentElement.dataset.broken='true'</script>".into();
    record.summary.methods[0].repeats[0].notes.push("</script><img onerror=\"document.title='broken'\">".into());
    let document = opened("hostile", &record);
    assert_ready(&document);
    assert_eq!(count(&document, "results", "<tr>"), 5);
    assert!(says(&document, "results", "if&lt;script&gt;document"));
    assert!(says(&document, "notes", "&lt;/script&gt;&lt;img onerror"));
    assert!(!document.contains("<script>") && !document.contains("<img"));
}

#[test]
fn a_diverged_method_and_unknown_truth_are_said_out_loud() {
    let mut record = comparison(&behaviours("ifca"), 1, 1);
    record.clients.iter_mut().for_each(|client| client.true_cluster = None);
    record.clients.retain(|client| client.client == "school-00");
    let mut repeat = record.summary.methods[0].repeats[0].clone();
    repeat.status = "diverged".into();
    repeat.reason = Some("the loss left the finite numbers in round 1".into());
    repeat.metric = None;
    record.summary.methods[0] = MethodSummary::of("ifca", "ifca", json!(null), vec![repeat]);
    record.rounds.iter_mut().filter(|round| round.label == "ifca").for_each(|round| {
        round.loss = Some(f64::NAN);
        round.metric = Some(f64::INFINITY);
    });
    let document = opened("diverged", &record);
    assert_ready(&document);
    assert_eq!(count(&document, "results", "<tr>"), 5);
    assert!(says(&document, "results", "diverged"));
    assert!(says(&document, "notes", "left the finite numbers"));
    assert_eq!(count(&document, "curves", "data-label=\"ifca\""), 0);
    assert!(says(&document, "curves", "No curve: ifca (diverged)"));
    assert_eq!(count(&document, "formation", "class=\"cluster\""), 4, "only the oracle, in its one round");
    assert!(panel(&document, "truth").is_none(), "nothing to compare with");
    assert_eq!(count(&document, "clients", "class=\"bin\""), 3, "one client is a distribution too");
}

#[test]
fn a_run_that_failed_altogether_is_still_a_page() {
    let mut record = comparison(&behaviours("ifca")[..1], 1, 1);
    record.rounds.clear();
    record.clients.clear();
    let mut repeat = record.summary.methods[0].repeats[0].clone();
    repeat.status = "failed".into();
    repeat.metric = None;
    record.summary.methods[0] = MethodSummary::of("ifca", "ifca", json!({}), vec![repeat]);
    let document = opened("failed", &record);
    assert_ready(&document);
    assert_eq!(count(&document, "notes", "class=\"warning\""), 1);
    assert!(panel(&document, "curves").is_none());
}

#[test]
fn twenty_methods_and_five_thousand_clients_are_drawn() {
    let template = comparison(&behaviours("ifca")[..1], 1, 20);
    let mut record = Record { clients: Vec::new(), rounds: Vec::new(), ..template.clone() };
    record.summary.methods.clear();
    for number in 0..20 {
        let label = format!("ifca-{number}");
        let method = &template.summary.methods[0];
        record.summary.methods.push(MethodSummary { label: label.clone(), ..method.clone() });
        record.rounds.extend(template.rounds.iter().map(|round| RoundRecord { label: label.clone(), ..round.clone() }));
        record.clients.extend((0..5000).map(|client| ClientRecord {
            label: label.clone(),
            client: format!("client-{client}"),
            cluster: Some(client % 70),
            true_cluster: Some(client % 7),
            metric: Some((client % 97) as f64 / 97.0),
            ..template.clients[0].clone()
        }));
    }
    let document = opened("large", &record);
    assert_ready(&document);
    assert_eq!(count(&document, "results", "<tr>"), 21);
    assert_eq!(count(&document, "clients", "class=\"worst\""), 20);
    assert!(says(&document, "truth", "the first 60 of 70 found"));
}

#[test]
fn distances_show_two_humps_and_where_they_are_cut() {
    let mut record = comparison(&behaviours("ifca"), 1, 5);
    let truth: Vec<usize> = (0..20).map(|client| client % 2).collect();
    let pairs = (0..20u32).flat_map(|b| (0..b).map(move |a| (a, b)));
    let distance = |a: u32, b: u32| if a % 2 == b % 2 { 0.5 } else { 6.0 } + f64::from((a * 7 + b) % 10) / 10.0;
    let found = Comparison {
        pairs: pairs.map(|(a, b)| (a, b, distance(a, b))).collect(),
        lambda: Some(3.5),
        reason: format!("a gap {HOSTILE}"),
    };
    let compared = |label: &str, truth: Option<Vec<usize>>, found: Comparison| ComparisonRecord {
        label: label.into(),
        seed: 0,
        clients: (0..20).map(|client| client.to_string()).collect(),
        truth,
        found,
    };
    let none = Comparison { pairs: found.pairs.clone(), lambda: None, reason: "one hump".into() };
    record.comparisons = vec![compared("ifca", Some(truth), found), compared("fedavg", None, none)];
    let document = opened("distances", &record);
    assert_ready(&document);
    assert_eq!(count(&document, "distances", "class=\"lambda\""), 1, "the second method has none");
    assert!(count(&document, "distances", "class=\"bin same\"") >= 5);
    assert!(count(&document, "distances", "class=\"bin other\"") >= 10);
    assert!(
        says(&document, "distances", "190 pairs · λ 3.5") && says(&document, "distances", "one cluster · one hump")
    );
    assert!(panel(&opened("no-distances", &comparison(&behaviours("ifca")[..1], 1, 5)), "distances").is_none());
}

/// Writers that mix ten digits in 16 columns; two of them do something else.
fn mixture(label: &str, clients: usize, common: bool) -> (MixtureRecord, Vec<ClientRecord>) {
    const COMPONENTS: usize = 10;
    const WIDTH: usize = 16;
    let mut random = Key::new(9).word("mixture").rng();
    let mut around = |centre: &[f64], size: f64| -> Vec<f64> {
        centre.iter().map(|value| value + random.random_range(-size..size)).collect()
    };
    let centres = around(&[50.0; COMPONENTS * WIDTH], 40.0);
    let client = |number: usize| {
        let odd = number % 20 == 11;
        let own = if odd { around(&[50.0; COMPONENTS * WIDTH], 30.0) } else { around(&centres, 8.0) };
        let shares: Vec<f64> = around(&[1.0; COMPONENTS], 0.9);
        let total: f64 = shares.iter().sum();
        let id = format!("writer {number}");
        let ended = ClientRecord {
            label: label.into(),
            client: id.clone(),
            outlier_score: Some(if odd { 40.0 } else { 5.0 } + around(&[0.0], 4.0)[0]),
            apart: common.then_some(if odd { 8 } else { number % 3 }),
            outlier: Some(odd),
            planted_outlier: Some(odd),
            ..ClientRecord::default()
        };
        let weights: Vec<f64> = shares.iter().map(|share| share / total).collect();
        (ClientMixture::new(&id, &weights, &own), ended)
    };
    let (clients, ended) = (0..clients).map(client).unzip();
    let common = if common { centres.clone() } else { Vec::new() };
    let components = COMPONENTS;
    let ordered = !common.is_empty();
    let label = label.into();
    (MixtureRecord { label, components, ordered, common, clients, ..MixtureRecord::default() }, ended)
}

#[test]
fn mixtures_show_components_and_outliers() {
    let mut record = comparison(&behaviours(HOSTILE)[..3], 1, 20);
    for (mut mixture, mut clients) in [mixture(HOSTILE, 44, true), mixture("fedavg", 44, false)] {
        if mixture.label == HOSTILE {
            clients[12].client = format!("writer {HOSTILE}");
            mixture.clients[12].client = clients[12].client.clone();
        }
        record.mixtures.push(mixture);
        record.clients.extend(clients);
    }
    let document = opened("mixtures", &record);
    assert_ready(&document);
    assert_eq!(count(&document, "mixtures", "class=\"common\""), 10, "the second method has no common centres");
    assert_eq!(count(&document, "mixtures", "class=\"own\""), 2 * 42 * 10, "two of 44 writers are outliers");
    assert_eq!(count(&document, "mixtures", "class=\"apart\""), 2 * 2 * 10, "with common centres and without");
    assert_eq!(count(&document, "mixtures", "class=\"score\""), 2 * 44);
    assert_eq!(count(&document, "mixtures", "class=\"planted\""), 2 * 2);
    assert!(says(&document, "mixtures", "10 components in 44 clients · 2 outliers: writer 11 and writer 31"));
    assert!(says(&document, "mixtures", "No mixtures: local"));
    let in_one_colour = "in every client's own order, so all in one colour";
    assert_eq!(count(&document, "mixtures", in_one_colour), 1, "the second method");
    assert!(says(&document, "mixtures", "role=\"img\" aria-label=\"Outlier scores of fedavg, from the highest down"));
    let scores = panel(&document, "mixtures").expect("a panel");
    let place = |name: &str| scores.find(&format!(">{name}</text>")).unwrap_or_else(|| panic!("no bar of {name}"));
    assert!(place("writer 31").max(place("writer 11")) < place("writer 5"), "the highest stand on top");
    let titles = document.matches("<title>").count() - 1;
    assert_eq!(document.matches("role=\"img\"").count(), titles, "every picture has a title");
}

#[test]
fn many_clients_and_odd_mixtures_are_drawn() {
    let mut record = comparison(&behaviours("ifca")[..3], 1, 20);
    let single = MixtureRecord {
        components: 1,
        clients: vec![ClientMixture::new("only", &[1.0], &[3.0])],
        label: "fedavg".into(),
        ..MixtureRecord::default()
    };
    let (mut broken, _) = mixture("local", 3, true);
    broken.common[0] = f64::NAN;
    let (many, clients) = mixture("ifca", 4000, true);
    record.clients.extend(clients);
    record.mixtures = vec![many, single, broken];
    let document = opened("mixtures-odd", &record);
    assert_ready(&document);
    assert!(
        says(&document, "mixtures", "4,000 clients · 200 outliers: writer 11, ")
            && says(&document, "mixtures", "192 more")
    );
    assert!(
        says(&document, "mixtures", "300 clients are drawn") && says(&document, "mixtures", "the 50 highest of 4,000")
    );
    assert_eq!(count(&document, "mixtures", "class=\"own\""), 200 * 10 + 1, "and the only centre of one client");
    assert!(says(&document, "mixtures", "The centres are no finite numbers."));
    assert!(panel(&opened("no-mixtures", &comparison(&behaviours("ifca")[..1], 1, 5)), "mixtures").is_none());
}

/// Points in a few clouds of a plane in five dimensions, one after the other.
fn clouds(points: usize, clouds: usize) -> (PointTable, Vec<usize>) {
    let mut random = Key::new(3).word("clouds").rng();
    let truth: Vec<usize> = (0..points).map(|point| point % clouds).collect();
    let mut text = "name,a,b,c,d,e\n".to_string();
    for (point, cloud) in truth.iter().enumerate() {
        let angle = *cloud as f64 * 2.4;
        let middle = [4.0 * angle.cos(), 3.0 * angle.sin(), angle.sin(), 0.0, 1.0];
        let row = middle.map(|value| (value + random.random_range(-0.9..0.9)).to_string());
        text += &format!("town {},{}\n", point + 1, row.join(","));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("clouds.csv");
    std::fs::write(&file, text).expect("writable");
    let table = read(&file, &Choice { id: Some("name".into()), ..Choice::default() }).expect("points");
    (table, truth)
}

/// A path as it might be: first points gather in their clouds, pair by pair, then clouds meet one after the other.
fn fabricated_path(table: &PointTable, truth: &[usize], steps: usize) -> ClusterPath {
    let points = table.points().expect("points");
    let plane = Plane::of(points);
    let clustering = Clustering::of(points, truth);
    let clouds = clustering.clusters();
    let count = truth.len();
    let step = |number: usize| {
        let time = number as f64 / (steps - 1) as f64;
        // In the first half of the path points join their cloud, in its last quarter clouds join the first.
        let gathered = ((2.0 * time).min(1.0) * count as f64) as usize;
        let met = ((4.0 * time - 3.0).max(0.0) * clouds as f64) as usize;
        let name = |point: usize| match point < gathered {
            true if truth[point] < met => 0,
            true => truth[point],
            false => clouds + point,
        };
        let labels = kinfolk::clustering::renumber(&(0..count).map(name).collect::<Vec<_>>());
        let pull = (2.0 * time).min(1.0);
        let drift = (4.0 * time - 3.0).max(0.0);
        let place = |point: usize| {
            let (own, centre) = (plane.project(points.row(point)), plane.project(clustering.centre(truth[point])));
            [0, 1].map(|axis| (own[axis] + pull * (centre[axis] - own[axis])) * (1.0 - drift))
        };
        Step {
            lambda: if number == 0 { 0.0 } else { 0.001 * 10f64.powf(2.5 * time) },
            clusters: labels.iter().max().map_or(0, |last| last + 1),
            labels,
            plane: (0..count).map(place).collect(),
            certificate: Certificate { primal: 1.0, dual: 1.0, gap: 0.0, undecided: 0 },
        }
    };
    ClusterPath { steps: (0..steps).map(step).collect() }
}

fn clustering_page(name: &str, points: usize, steps: usize) -> String {
    let (table, truth) = clouds(points, 4);
    let found = Found {
        lambda: Some(0.05),
        certificate: Some(Certificate { primal: 83.25, dual: 83.249999, gap: 1e-6, undecided: 0 }),
        path: (steps > 0).then(|| fabricated_path(&table, &truth, steps)),
        sureness: Some(Sureness { word: "likely", reason: "four clusters last longest".into() }),
        notes: vec![format!("a note {HOSTILE}")],
        ..Found::from(Clustering::of(table.points().expect("points"), &truth))
    };
    let record = ClusteringRecord::of("clouds.csv".into(), &table, "clusterpath", &found, 0.25).expect("a record");
    opened_page(name, &kinfolk::report::clustering::page(&record))
}

#[test]
fn a_path_draws_points_trajectories_tree_and_counts() {
    let document = clustering_page("clusterpath", 48, 40);
    assert_ready(&document);
    assert_eq!(count(&document, "clusters", "<tr>"), 5, "a heading and four clusters");
    assert_eq!(count(&document, "plane", "class=\"point\""), 48);
    assert_eq!(count(&document, "plane", "class=\"centre\""), 4);
    assert_eq!(count(&document, "path", "class=\"trajectory\""), 48);
    assert_eq!(count(&document, "path", "class=\"now\""), 48);
    assert!(says(&document, "path", "aria-valuetext=\"λ = 0.0"), "the slider says where it is");
    assert_eq!(count(&document, "tree", "class=\"leaf\""), 48);
    assert_eq!(count(&document, "tree", "class=\"chosen\""), 1);
    assert_eq!(count(&document, "tree", "class=\"counts\""), 1);
    assert!(says(&document, "tree", "town 7"), "leaves have names");
    assert!(says(&document, "notes", "a note if&lt;script&gt;"));
    let titles = document.matches("<title>").count() - 1;
    assert_eq!(document.matches("role=\"img\"").count(), titles, "every picture has a title");
}

#[test]
fn ten_thousand_points_are_thinned_and_it_is_said() {
    let document = clustering_page("clusterpath-large", 10_000, 100);
    assert_ready(&document);
    assert_eq!(count(&document, "plane", "class=\"dots\""), 4, "one path a cluster");
    assert!(says(&document, "plane", "4,000 of 10,000 points"));
    assert_eq!(count(&document, "path", "class=\"trajectory\""), 1000);
    assert!(says(&document, "path", "1,000 of 10,000 points") && says(&document, "path", "60 of 100 values"));
    assert!(says(&document, "tree", "groups that were there when at most 200 were left"));
    assert!((2..=200).contains(&count(&document, "tree", "class=\"leaf\"")));
}

#[test]
fn a_clustering_without_a_path_has_no_tree() {
    let document = clustering_page("clusters", 5, 0);
    assert_ready(&document);
    assert_eq!(count(&document, "plane", "class=\"point\""), 5);
    assert!(panel(&document, "path").is_none() && panel(&document, "tree").is_none());
}

/// The page of a table's fit.
fn fitted_page(name: &str, path: &Path, client: &str, target: &str) -> String {
    let table = TableSettings {
        path: path.display().to_string(),
        client: client.into(),
        target: Some(target.into()),
        ..TableSettings::default()
    };
    let settings = FitSettings { table, quick: true, ..FitSettings::default() };
    let saved = fit(settings, &Options::default(), &mut Unwatched, &mut |_| {}).unwrap();
    opened_page(name, &saved.file("report.html").unwrap())
}

#[test]
fn a_fitted_table_answers_its_questions_in_order() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bakeries.csv");
    let document = fitted_page("fit", &path, "bakery", "sold");
    assert_ready(&document);
    let wanted = "decisions columns families cloud map terms errors residuals gains clients";
    let places: Vec<_> = wanted.split(' ').map(|name| document.find(&format!("data-panel=\"{name}\""))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
    assert_eq!(count(&document, "clients", "<tr"), 41);
}

#[test]
fn curves_are_drawn_and_few_clients_have_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    let mut random = Key::new(5).rng();
    let mut text = "shop,x,z,y\n".to_string();
    for row in 0..480 {
        let [x, z]: [f64; 2] = [random.random_range(-3.0..3.0), random.random_range(-1.0..1.0)];
        let y = x * x + z + (row % 8) as f64 + 0.3 * random.random::<f64>();
        text += &format!("shop {},{x},{z},{y}\n", row % 8);
    }
    std::fs::write(&path, text).unwrap();
    let document = fitted_page("fit-curves", &path, "shop", "y");
    assert_ready(&document);
    assert!(says(&document, "curves", "What x adds to the prediction"));
    assert!(panel(&document, "terms").is_none_or(|terms| !terms.contains("bend")), "curves are drawn, not listed");
    assert!(says(&document, "map", ">shop 7<"));
}
