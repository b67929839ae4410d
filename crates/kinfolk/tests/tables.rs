//! Whole runs on tables that are as tables are: categories that few clients have, words that turn up late, mistaken cells.

use kinfolk::experiment::{Experiment, Override};
use kinfolk::record::{Record, RepeatSummary};
use kinfolk::rng::Key;
use kinfolk::run::{Options, Unwatched, run};
use rand::RngExt;
use std::path::Path;
use tempfile::TempDir;

fn write(content: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    std::fs::write(&path, content).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

fn result(text: &str, path: &str, folder: Option<&Path>) -> Record {
    let change = Override::parse(&format!("data.path={path}")).unwrap();
    let experiment = Experiment::parse("test", text, &[change]).unwrap();
    let options = Options { folder: folder.map(Path::to_path_buf), ..Options::default() };
    run(&experiment, &options, &mut Unwatched).unwrap()
}

fn repeat<'a>(record: &'a Record, label: &str) -> &'a RepeatSummary {
    &record.summary.methods.iter().find(|method| method.label == label).unwrap().repeats[0]
}

/// Ratings between about 1 and 6: every person has one occupation and one region, and rates films of many genres.
fn ratings() -> (String, f64) {
    let occupations = ["baker", "clerk", "driver", "nurse", "painter", "smith", "tailor", "writer"];
    let genres = ["comedy", "crime", "drama", "horror", "musical", "western"];
    let mut random = Key::new(5).word("ratings").rng();
    let mut content = "person,occupation,region,genre,year,rating\n".to_string();
    let mut all = Vec::new();
    for person in 0..40 {
        let occupation = occupations[random.random_range(0..occupations.len())];
        let region = ["east", "north", "south", "west"][random.random_range(0..4)];
        for _ in 0..25 {
            let genre = random.random_range(0..genres.len());
            let year: f64 = random.random();
            let rating = 3.0 + 0.15 * genre as f64 + 0.4 * year + 1.6 * (random.random::<f64>() - 0.5);
            let genre = genres[genre];
            content += &format!("p{person},{occupation},{region},{genre},{},{rating:.3}\n", 1950.0 + 70.0 * year);
            all.push(rating);
        }
    }
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let variance = all.iter().map(|rating| (rating - mean).powi(2)).sum::<f64>() / all.len() as f64;
    (content, variance)
}

#[test]
fn averages_of_models_with_categories_predict_no_worse_than_the_mean() {
    let (content, variance) = ratings();
    let (_folder, path) = write(&content);
    let text = r#"
[data]
source = "table"
path = ""
client = "person"
target = "rating"
[model]
kind = "linear"
[[method]]
name = "odcl"
clustering = "kmeans++"
clusters = 2
[[method]]
name = "naive-average"
"#;
    let record = result(text, &path, None);
    for label in ["odcl", "naive-average"] {
        let pooled = repeat(&record, label).metric.as_ref().unwrap().pooled;
        assert!(pooled < variance, "{label}: {pooled}, the variance of all ratings is {variance}");
    }
}

/// Wards whose patients are ill or well by their age; `spoil` may change a cell.
fn wards(spoil: impl Fn(usize, usize, &str, f64) -> String) -> String {
    let mut random = Key::new(8).word("wards").rng();
    let mut content = "ward,age,dose,score\n".to_string();
    for ward in 0..12 {
        let slope = if ward % 2 == 0 { 2.0 } else { -2.0 };
        for row in 0..30 {
            let age = 40.0 + 30.0 * (random.random::<f64>() - 0.5);
            let dose = 5.0 + 4.0 * (random.random::<f64>() - 0.5);
            let score = slope * (age - 40.0) / 9.0 + (dose - 5.0) + 0.5 * (random.random::<f64>() - 0.5);
            let cells =
                [("age", age), ("dose", dose), ("score", score)].map(|(name, cell)| spoil(ward, row, name, cell));
            content += &format!("w{ward},{}\n", cells.join(","));
        }
    }
    content
}

const WARDS: &str = r#"
[data]
source = "table"
path = ""
client = "ward"
target = "score"
test_fraction = 0.2
[model]
kind = "linear"
[[method]]
name = "local"
solve = "exact"
[[method]]
name = "local"
label = "local-by-steps"
rounds = 60
[[method]]
name = "ifca"
clusters = 2
rounds = 60
[[method]]
name = "fedavg"
rounds = 60
[[method]]
name = "odcl"
clustering = "kmeans++"
clusters = 2
[[method]]
name = "naive-average"
"#;

#[test]
fn one_cell_of_a_billion_spoils_its_own_client_alone() {
    let (_folder, path) = write(&wards(|_, _, _, cell| cell.to_string()));
    let calm = result(WARDS, &path, None);
    for cell in ["1e9", "-1e140", "1e300"] {
        let spoil = |ward, row, name: &str, value: f64| match (ward, row, name) {
            (3, 7, "age") => cell.to_string(),
            _ => value.to_string(),
        };
        let (_folder, path) = write(&wards(spoil));
        let spoiled = result(WARDS, &path, None);
        for label in ["local", "local-by-steps", "ifca", "fedavg", "odcl", "naive-average"] {
            let of = |record: &Record| -> f64 {
                let others = record.clients.iter().filter(|client| client.label == label && client.client != "w3");
                let scores: Vec<f64> = others.filter_map(|client| client.metric).collect();
                assert_eq!(scores.len(), 11, "{cell}: {:?}", repeat(record, label));
                scores.iter().sum::<f64>() / 11.0
            };
            let (before, after) = (of(&calm), of(&spoiled));
            // The variance of the scores is 5. In a mean of six models, one that has learnt nothing of age is still a sixth.
            let more = if label == "odcl" { 0.1 } else { 0.05 };
            assert!(after < 1.2 * before + more, "{label}, {cell}: {before} before, {after} now");
            let notes = &repeat(&spoiled, label).notes;
            assert!(notes.iter().any(|note| note.contains("client w3: column `age` reaches")), "{label}: {notes:?}");
        }
    }
}

#[test]
fn a_word_of_test_rows_alone_changes_no_model_and_a_class_of_them_is_wrong() {
    let text = r#"
[data]
source = "table"
path = ""
client = "shop"
target = "bought"
test_fraction = 0.25
[model]
kind = "softmax"
[[method]]
name = "fedavg"
rounds = 5
"#;
    let table = |rows: &[[String; 4]]| {
        let rows: Vec<String> = rows.iter().map(|row| row.join(",")).collect();
        format!("shop,colour,size,bought\n{}\n", rows.join("\n"))
    };
    let mut random = Key::new(2).word("shops").rng();
    let mut rows: Vec<[String; 4]> = Vec::new();
    for row in 0..80 {
        let colour = ["red", "green", "blue"][random.random_range(0..3)].to_string();
        let size: f64 = random.random();
        let bought = if size > 0.5 { "yes" } else { "no" };
        rows.push([format!("s{}", row % 4), colour, format!("{size:.4}"), bought.into()]);
    }
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let read = |folder: &TempDir, name: &str| std::fs::read(folder.path().join("run").join(name)).unwrap();
    let (_kept, path) = write(&table(&rows));
    let before = result(text, &path, Some(&folders[0].path().join("run")));
    // Which rows are held out depends on the shop and the number of its rows: find one by changing it.
    let models = ["models/schema.json", "models/fedavg/0/global.safetensors"];
    let mut found = None;
    for place in 0..rows.len() {
        let mut changed = rows.clone();
        (changed[place][1], changed[place][3]) = ("ultraviolet".into(), "perhaps".into());
        let (_kept, path) = write(&table(&changed));
        let population = {
            let change = Override::parse(&format!("data.path={path}")).unwrap();
            let experiment = Experiment::parse("test", text, &[change]).unwrap();
            (experiment.source.build)(&experiment.data, 0).unwrap()
        };
        // A word in training rows is known to everybody: two classes are left where it is not.
        if population.shape.classes == 2 {
            found = Some(result(text, &path, Some(&folders[1].path().join("run"))));
            break;
        }
    }
    let after = found.expect("some row is held out");
    for name in models {
        assert_eq!(read(&folders[0], name), read(&folders[1], name), "{name}");
    }
    let (before, after) = (repeat(&before, "fedavg"), repeat(&after, "fedavg"));
    let accuracy = |repeat: &RepeatSummary| repeat.metric.as_ref().unwrap().pooled;
    assert!(accuracy(after) <= accuracy(before));
    assert!(after.notes.iter().any(|note| note.contains("no model can predict them: perhaps")), "{:?}", after.notes);
    assert_eq!(before.notes.iter().find(|note| note.contains("test rows alone")), None);
}

#[test]
fn a_run_says_what_became_of_unusual_columns_and_counts_rows_alike() {
    let mut content = "who;number;day;x;y;weight\n".to_string();
    for row in 0..90 {
        let (day, x) = (row % 28 + 1, row * 7 % 13);
        let y = f64::from(x) * 0.5 + f64::from(row % 5);
        let cell = if row == 4 { "n/k".to_string() } else { x.to_string() };
        content += &format!("c{};{row};{day:02}.03.2021;{cell};{};1\n", row % 3, y.to_string().replace('.', ","));
    }
    let (_folder, path) = write(&content);
    let text = r#"
[data]
source = "table"
path = ""
client = "who"
target = "y"
task = "regression"
missing = "fill"
[model]
kind = "linear"
[[method]]
name = "naive-average"
"#;
    let record = result(text, &path, None);
    let notes = repeat(&record, "naive-average").notes.join("\n");
    for wanted in [
        "column `number` (number): left out: different in every row, like a name or a number of rows",
        "column `day` (date): becomes year, weekday",
        "column `weight` (number): left out: the same in every row",
        "column `x` holds numbers; 1 cell counts as missing: `n/k`",
        "a decimal comma in y",
    ] {
        assert!(notes.contains(wanted), "{notes}");
    }
}
