use super::effects::Effect;
use super::*;
use crate::data::TableSettings;
use crate::data::options::Task;
use crate::fit::{Format, Saved};
use crate::modelfile::of_bytes;
use crate::rng::Key;
use crate::run::Unwatched;
use rand::RngExt;
use rand_distr::StandardNormal;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const NOISE: f64 = 2.0;

/// Rows of clients in two families by turns: a wave along a column, with a sign that is the family's, and a word that adds 5.
fn wave(client: usize, x: [f64; 2], word: &str) -> f64 {
    let sign = [1.0, -1.0][client % 2];
    100.0 + 10.0 * sign * (2.0 * x[0]).sin() + if word == "up" { 5.0 } else { 0.0 }
}

fn straight(client: usize, x: [f64; 2], word: &str) -> f64 {
    100.0 + client as f64 + 10.0 * x[0] - 4.0 * x[1] + if word == "up" { 5.0 } else { 0.0 }
}

type Truth = fn(usize, [f64; 2], &str) -> f64;

/// The text of a table whose first client has this number.
fn rows(seed: u64, clients: std::ops::Range<usize>, each: usize, truth: Truth) -> String {
    let mut random = Key::new(seed).rng();
    let mut text = "shop,width,height,kind,price\n".to_string();
    for client in clients {
        for row in 0..each {
            let x = [0, 1].map(|_| random.sample::<f64, _>(StandardNormal));
            let word = ["up", "down", "down"][row % 3];
            let y = truth(client, x, word) + NOISE * random.sample::<f64, _>(StandardNormal);
            let _ = writeln!(text, "s{client:02},{},{},{word},{y}", 3.0 + 2.0 * x[0], x[1]);
        }
    }
    text
}

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a table");
        path
    }
}

fn settings(path: &Path, model: ModelChoice) -> FitSettings {
    let (client, target) = ("shop".into(), Some("price".into()));
    let path = path.display().to_string();
    let table = TableSettings { path, client, target, task: Task::Words, ..TableSettings::default() };
    FitSettings { table, model, ..FitSettings::default() }
}

fn fitted(settings: FitSettings, threads: usize) -> FittedModel {
    let options = Options { threads, ..Options::default() };
    fit_model(settings, &options, &mut Unwatched, &mut |_| {}).expect("a model")
}

fn linear(model: FittedModel) -> Saved {
    match model {
        FittedModel::Families(saved) => saved,
        FittedModel::Networks(saved) => panic!("linear models, got networks: {}", saved.show()),
        FittedModel::Mixture(_) => panic!("a target"),
    }
}

/// Predictions as numbers and words: client, prediction, low, high, served_by.
fn predicted(saved: &SavedNetworks, table: &Path) -> Vec<(String, [f64; 3], String)> {
    let mut written = Vec::new();
    saved.predict(table, Format::Csv, &mut written).expect("predictions");
    let line = |line: &str| {
        let cells: Vec<&str> = line.splitn(5, ',').collect();
        let numbers = [1, 2, 3].map(|place| cells[place].parse().expect("a number"));
        (cells[0].to_string(), numbers, cells[4].to_string())
    };
    String::from_utf8(written).expect("text").lines().skip(1).map(line).collect()
}

#[test]
fn networks_are_taken_where_linear_models_lose_and_serve_families() {
    let bench = Bench::new();
    let path = bench.write("shops.csv", &rows(1, 0..24, 80, wave));
    let saved = match fitted(settings(&path, ModelChoice::Auto), 2) {
        FittedModel::Networks(saved) => saved,
        other => panic!("want networks, got {}", crate::fit::show(&linear(other))),
    };
    let text = saved.show();
    assert!(saved.model.sentences[0].starts_with("A network (hidden 32 and 32) was tried: "), "{text}");
    assert!(saved.model.sentences[0].ends_with(" and it is taken."), "{text}");
    assert_eq!(saved.model.families.len(), 2, "{text}");
    let family = |client: usize| saved.model.clients[client].family;
    assert!((0..24).all(|client| family(client) == family(client % 2)) && family(0) != family(1), "{text}");
    // The variance of the noise is 4, that of the target above 50.
    let error = saved.shown().errors[4].expect("an error");
    assert!(error < 25.0, "{error}: {text}");

    // Fresh rows of known clients are inside their intervals as often as said.
    let fresh = bench.write("fresh.csv", &rows(2, 0..24, 80, wave));
    let found = saved.predict(&fresh, Format::Csv, &mut Vec::new()).expect("predictions");
    let (covered, count) = found.covered.expect("targets");
    assert_eq!((count, found.known, found.fitted, found.unknown), (24 * 80, 24, 0, 0));
    assert!((0.85..=0.95).contains(&covered), "{covered}");
    let said = saved.shown().coverage.expect("a coverage");
    assert!((0.85..=0.95).contains(&said), "{said}");

    // What columns do: the word adds 5 wherever it stands, and the wave has hardly any effect in the mean, but very different ones.
    let effect = |effects: &[Effect], term: &str| {
        let found = effects.iter().find(|effect| effect.term == term).expect("a term");
        (found.mean[0], found.spread[0])
    };
    for family in &saved.model.families {
        let [up, down] = ["kind=up", "kind=down"].map(|term| effect(&family.effects, term).0);
        assert!((up - down - 5.0).abs() < 1.5, "{up} {down}");
        let (mean, spread) = effect(&family.effects, "width");
        assert!(mean.abs() < 2.0 && (2.5..9.0).contains(&spread), "{mean} {spread}");
    }

    // New clients: with target values by their family, without by both; and one that is like nobody.
    let mut text = rows(3, 30..31, 40, wave);
    text += &rows(4, 31..32, 40, |_, x, _| 100.0 + 60.0 * x[0])
        .lines()
        .skip(1)
        .map(|line| format!("{line}\n"))
        .collect::<String>();
    text += "s40,3,0,up,\n";
    let new = bench.write("new.csv", &text);
    let lines = predicted(&saved, &new);
    assert!(lines[0].2.contains(&format!("family {}", saved.model.families[family(0)].number)), "{:?}", lines[0]);
    assert_eq!(lines[80].2, "families by share");
    let assigned = saved.assign(&new).expect("new clients");
    assert_eq!(assigned.without_target, ["s40"]);
    let [first, odd] = &assigned.clients[..] else { panic!("{assigned:?}") };
    assert!(!first.fits_none && first.probabilities[family(0)] > 0.99, "{assigned:?}");
    assert!(odd.fits_none, "{assigned:?}");

    // Added, a client is served without target values as it was with them.
    let (added, _) = saved.add(&new).expect("a larger model");
    let without: String = text.lines().map(|line| format!("{},\n", &line[..line.rfind(',').expect("cells")])).collect();
    let without = bench.write("without.csv", &without.replacen("kind,\n", "kind,price\n", 1));
    for (before, after) in lines.iter().zip(predicted(&added, &without)).take(80) {
        assert_eq!((&before.0, before.1), (&after.0, after.1));
    }
    let folder = bench.path("added");
    std::fs::create_dir(&folder).expect("a folder");
    added.write(&folder).expect("its files");
    let FittedModel::Networks(read) = FittedModel::read(&folder).expect("a model") else { panic!("networks") };
    for name in NETWORK_FILES {
        assert!(read.file(name).expect("a file") == added.file(name).expect("a file"), "{name}");
    }
}

#[test]
fn linear_models_stay_where_networks_are_no_better() {
    let bench = Bench::new();
    let path = bench.write("shops.csv", &rows(5, 0..24, 60, straight));
    let saved = linear(fitted(settings(&path, ModelChoice::Auto), 2));
    let last = saved.model.learned.sentences.last().expect("a sentence");
    assert!(
        last.starts_with("A network (hidden 32 and 32) was tried") && last.ends_with("the linear model stays."),
        "{last}"
    );
    // Few rows are not worth a trial, and neither is it to be quick.
    let small = bench.write("small.csv", &rows(5, 0..8, 20, straight));
    let quick = FitSettings { quick: true, ..settings(&path, ModelChoice::Auto) };
    for settings in [settings(&small, ModelChoice::Auto), quick, settings(&path, ModelChoice::Linear)] {
        let saved = linear(fitted(settings, 2));
        assert!(saved.model.learned.sentences.iter().all(|sentence| !sentence.contains("network")));
    }
}

/// The output of a network with rectifiers, layer by layer, from the tensors of a file.
fn forward(tensors: &HashMap<String, (Vec<usize>, Vec<f64>)>, name: &str, input: &[f64]) -> Vec<f64> {
    let mut values = input.to_vec();
    for layer in 0.. {
        let Some((shape, weight)) = tensors.get(&format!("{name}/layer{layer}.weight")) else { break };
        let (_, bias) = &tensors[&format!("{name}/layer{layer}.bias")];
        assert_eq!(shape[1], values.len());
        let is_last = !tensors.contains_key(&format!("{name}/layer{}.weight", layer + 1));
        let sum = |out: usize| -> f64 {
            let line = &weight[out * shape[1]..(out + 1) * shape[1]];
            bias[out] + line.iter().zip(&values).map(|(weight, value)| weight * value).sum::<f64>()
        };
        values = (0..shape[0]).map(sum).map(|value| if is_last { value } else { value.max(0.0) }).collect();
    }
    values
}

#[test]
fn predictions_are_those_of_the_networks_in_the_folder_whatever_the_threads() {
    let bench = Bench::new();
    let path = bench.write("shops.csv", &rows(6, 0..12, 50, wave));
    let quick = || FitSettings { quick: true, ..settings(&path, ModelChoice::Network) };
    let [FittedModel::Networks(saved), FittedModel::Networks(other)] = [1, 2].map(|threads| fitted(quick(), threads))
    else {
        panic!("networks")
    };
    for name in NETWORK_FILES {
        assert!(saved.file(name).expect("a file") == other.file(name).expect("a file"), "{name}");
    }
    let tensors = of_bytes(&saved.file("models.safetensors").expect("a file")).expect("tensors");
    let tensors: HashMap<String, (Vec<usize>, Vec<f64>)> = tensors
        .into_iter()
        .map(|tensor| (tensor.name.clone(), (tensor.shape.clone(), tensor.values.to_f64())))
        .collect();
    // Columns as the table has them, standardised by their mean and deviation over all rows.
    let text = std::fs::read_to_string(&path).expect("a table");
    let cells: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let column = |place: usize| -> Vec<f64> { cells.iter().map(|row| row[place].parse().expect("a number")).collect() };
    let standardised = |values: Vec<f64>| -> (Vec<f64>, f64, f64) {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        (values.iter().map(|value| (value - mean) / deviation).collect(), mean, deviation)
    };
    let [(width, ..), (height, ..), (_, mean, deviation)] = [column(1), column(2), column(4)].map(standardised);
    let feature = saved.columns.feature_names();
    assert_eq!(feature.len(), 3, "{feature:?}");
    for (row, (client, [prediction, low, high], served)) in predicted(&saved, &path).into_iter().enumerate() {
        let name = match &*served {
            "global" => "global".to_string(),
            "personal" | "alone" => format!("client {client}"),
            family => family.to_string(),
        };
        let word = f64::from(u8::from(feature[2] == format!("kind={}", cells[row][3])));
        let out = mean + deviation * forward(&tensors, &name, &[width[row], height[row], word])[0];
        assert!((prediction - out).abs() < 1e-9 * out.abs(), "row {row}: {prediction}, want {out}");
        assert!(((prediction - low) - (high - prediction)).abs() < 1e-9 * out.abs() && high > low);
    }
}

#[test]
fn classes_have_probabilities_and_known_groups_are_families() {
    let bench = Bench::new();
    let text = rows(7, 0..12, 60, wave);
    let class = |line: &str| {
        let (rest, price) = line.rsplit_once(',').expect("cells");
        let shop: usize = line[1..3].parse().expect("a number");
        let price: f64 = price.parse().expect("a number");
        format!("{rest},{},g{}\n", if price > 101.5 { "dear" } else { "cheap" }, shop % 2)
    };
    let text: String = std::iter::once("shop,width,height,kind,price,group\n".to_string())
        .chain(text.lines().skip(1).map(class))
        .collect();
    let path = bench.write("shops.csv", &text);
    let mut wanted = settings(&path, ModelChoice::Network);
    wanted.table.group = Some("group".into());
    let FittedModel::Networks(saved) = fitted(wanted, 2) else { panic!("networks") };
    assert_eq!((saved.classes.len(), saved.model.families.len()), (2, 2), "{}", saved.show());
    assert!((0..12).all(|client| saved.model.clients[client].family == saved.model.clients[client % 2].family));
    let shown = saved.shown();
    assert!(shown.accuracy.is_some_and(|share| share > 0.8) && shown.auc.is_some_and(|area| area > 0.85), "{shown:?}");
    let mut written = Vec::new();
    saved.predict(&path, Format::Csv, &mut written).expect("predictions");
    let written = String::from_utf8(written).expect("text");
    assert!(written.starts_with("client,prediction,p(cheap),p(dear),served_by\n"), "{written}");
    for line in written.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [cheap, dear]: [f64; 2] = [2, 3].map(|place| cells[place].parse().expect("a probability"));
        assert!((cheap + dear - 1.0).abs() < 1e-12 && (cells[1] == "dear") == (dear > cheap), "{line}");
    }
}

#[test]
fn the_last_rows_are_held_out_in_the_order_of_time() {
    let bench = Bench::new();
    let text = rows(8, 0..10, 60, wave);
    let mut lines = text.lines();
    let mut timed = format!("{},day\n", lines.next().expect("a header"));
    lines.enumerate().for_each(|(row, line)| timed += &format!("{line},{}\n", row % 60));
    let path = bench.write("shops.csv", &timed);
    let mut wanted = settings(&path, ModelChoice::Network);
    wanted.table.time = Some("day".into());
    let FittedModel::Networks(saved) = fitted(FitSettings { quick: true, ..wanted }, 2) else { panic!("networks") };
    let tested = saved.tested.as_ref().expect("rows kept for testing");
    assert_eq!((tested.clients, tested.rows), (10, 120));
    assert!(saved.show().contains("test rows"));
}

#[test]
fn what_networks_cannot_have_is_said_before_any_work() {
    let refused = |change: &dyn Fn(&mut FitSettings), wanted: &str| {
        // There is no such table.
        let mut settings = settings(Path::new("missing.csv"), ModelChoice::Network);
        change(&mut settings);
        let refused = fit_model(settings, &Options::default(), &mut Unwatched, &mut |_| {}).expect_err("refused");
        assert!(refused.to_string().contains(wanted), "{refused}");
    };
    refused(&|settings| settings.table.weight = Some("w".into()), "weight: ");
    refused(&|settings| settings.covariance = Some(crate::families::Covariance::Full), "covariance: ");
    refused(&|settings| settings.straight = true, "no-curves: ");
    refused(&|settings| settings.additive = true, "no-interactions: ");
    refused(&|settings| settings.table.target = None, "target: ");
    let bench = Bench::new();
    let only = bench.write("only.csv", "shop,price\na,1\na,2\nb,3\nb,4\n");
    let error = fit_model(settings(&only, ModelChoice::Network), &Options::default(), &mut Unwatched, &mut |_| {});
    assert!(error.expect_err("no columns").to_string().contains("no column is left"));
}

#[test]
fn files_that_are_not_whole_are_refused_and_those_fitted_again_keep_their_numbers() {
    let bench = Bench::new();
    let path = bench.write("shops.csv", &rows(9, 0..12, 40, wave));
    let mut wanted = FitSettings { quick: true, families: Some(2), ..settings(&path, ModelChoice::Network) };
    wanted.seed = 3;
    let FittedModel::Networks(saved) = fitted(wanted, 2) else { panic!("networks") };
    assert_eq!(saved.model.families.len(), 2);
    let folder = bench.path("model");
    std::fs::create_dir(&folder).expect("a folder");
    saved.write(&folder).expect("its files");
    assert_eq!(FittedModel::read(&folder).expect("a model"), FittedModel::Networks(saved.clone()));
    let [text, tensors] = ["model.json", "models.safetensors"].map(|name| saved.file(name).expect("a file"));
    let text = String::from_utf8(text).expect("text");
    let refused = |text: &str, tensors: &[u8], wanted: &str| {
        let error = SavedNetworks::of_parts(text, tensors).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}");
    };
    refused(&text, &tensors[..tensors.len() - 4], "not the one that belongs to");
    refused(&text[..text.len() / 2], &tensors, "EOF");
    refused(&text.replace("\"schema\": 1", "\"schema\": 2"), &tensors, "a newer kinfolk");
    refused(&text.replace("\"family\": 1", "\"family\": 7"), &tensors, "the clients");
    refused(&text.replacen("\"hidden\": [\n      32", "\"hidden\": [\n      33", 1), &tensors, "shape");
    std::fs::remove_file(folder.join("models.safetensors")).expect("a file");
    assert!(FittedModel::read(&folder).expect_err("no networks").to_string().contains("models.safetensors"));

    // The other way around, the families would have changed their numbers.
    let mut turned = saved.clone();
    for client in &mut turned.model.clients {
        client.family = 1 - client.family;
    }
    let again = turned.following(&saved);
    assert_eq!(again.model.families.iter().map(|family| family.number).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(again.changes, ["all clients are in the families they were in"]);
    let settings = FitSettings::again(&FittedModel::Networks(saved), "later.csv".into()).expect("settings");
    assert_eq!((settings.model, settings.families, settings.seed), (ModelChoice::Network, Some(2), 3));
}
