//! `fit` with clients on other machines: the same decisions as here, and clients' own models only where their rows are.

use crate::loopback::{Loopback, MakeSite};
use kinfolk::Result;
use kinfolk::data::TableSettings;
use kinfolk::data::options::Task;
use kinfolk::federation::client::node::{Node, Rows, TableRows};
use kinfolk::federation::client::site::Site;
use kinfolk::federation::engines::remote::{Delivery, Line, MessageKind, Transport};
use kinfolk::fit::{FitSettings, Format, Saved, fit, fit_elsewhere, predict, settle};
use kinfolk::run::{Options, Unwatched};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const BAKERIES: &str = include_str!("../../../examples/bakeries.csv");

/// Part of the bakeries' rows, one in so many, by the number in the name.
fn part(index: usize, of: usize) -> String {
    let mut lines = BAKERIES.lines();
    let mut text = format!("{}\n", lines.next().unwrap());
    let is_here = |line: &&str| line[1..3].parse::<usize>().unwrap() % of == index;
    lines.filter(is_here).for_each(|line| text += &format!("{line}\n"));
    text
}

fn settings(path: &Path) -> FitSettings {
    let table = TableSettings {
        path: path.display().to_string(),
        client: "bakery".into(),
        target: Some("sold".into()),
        task: Task::Words,
        test_fraction: 0.0,
        ..TableSettings::default()
    };
    FitSettings { table, quick: true, ..FitSettings::default() }
}

/// Three machines with a third of the bakeries each, in folders of their own.
fn machines(folder: &Path, minimum_rows: usize, keeps: bool) -> Line {
    let columns = ["date", "weekend", "rain", "price", "sold"];
    machines_with(folder, |index| part(index, 3), (&columns, &["weekend"]), minimum_rows, keeps)
}

/// Three machines with rows of their own, of these columns, of which some are words.
fn machines_with(
    folder: &Path,
    rows: impl Fn(usize) -> String,
    (columns, words): (&[&str], &[&str]),
    minimum_rows: usize,
    keeps: bool,
) -> Line {
    let site = |index: usize| -> MakeSite {
        let own = folder.join(format!("machine-{index}"));
        std::fs::create_dir_all(&own).unwrap();
        let path = own.join("rows.csv");
        std::fs::write(&path, rows(index)).unwrap();
        let texts = |list: &[&str]| list.iter().map(|text| text.to_string()).collect();
        let rows = TableRows {
            path,
            client: "bakery".into(),
            columns: texts(columns),
            words: texts(words),
            test_fraction: 0.0,
            split_seed: 0,
        };
        let mut node = Node::new(Rows::Table(rows)).with_minimum_rows(minimum_rows);
        node.name = Some(format!("north-{index}"));
        node.models = keeps.then(|| own.join("models"));
        Box::new(move || Ok(Site::new(node.clone(), 1)?.with_models(settle)))
    };
    Loopback::line((0..3).map(site).collect())
}

fn fit_there(line: &Line) -> Result<Saved> {
    fit_elsewhere("bread", line, settings(Path::new("")), &Options::default(), &mut Unwatched, &mut |_| {})
}

fn fit_here(folder: &Path) -> Saved {
    let path = folder.join("all.csv");
    std::fs::write(&path, BAKERIES).unwrap();
    fit(settings(&path), &Options::default(), &mut Unwatched, &mut |_| {}).unwrap()
}

/// What `kinfolk predict` writes: the client and the numbers of every row.
fn predicted(saved: &Saved, table: &Path) -> Vec<(String, Vec<f64>, String)> {
    let mut text = Vec::new();
    predict(saved, table, Format::Csv, &mut text).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let numbers = cells[1..4].iter().map(|cell| cell.parse().unwrap()).collect();
        (cells[0].to_string(), numbers, cells[4..].join(","))
    };
    String::from_utf8(text).unwrap().lines().skip(1).map(row).collect()
}

fn model(saved: &Saved) -> Value {
    serde_json::from_str(&saved.file("model.json").unwrap()).unwrap()
}

#[test]
fn the_same_decisions_as_here_and_own_models_stay() {
    let folder = tempfile::tempdir().unwrap();
    let here = fit_here(folder.path());
    let there = fit_there(&machines(folder.path(), 1, true)).unwrap();
    let said = |note: &str| there.remarks.iter().any(|remark| remark == note);
    assert!(said("the machines were asked 5 questions"), "{:?}", there.remarks);
    assert!(
        said("north-1: the model with those of its 14 clients is there, in models/bread/fit/0"),
        "{:?}",
        there.remarks
    );

    // What was decided, and how well it does.
    let (mut shown_here, mut shown_there) =
        (serde_json::to_value(here.shown()).unwrap(), serde_json::to_value(there.shown()).unwrap());
    for shown in [&mut shown_here, &mut shown_there] {
        shown["remarks"].take();
    }
    assert_eq!(shown_here, shown_there);
    assert_eq!(here.file("clients.csv").unwrap(), there.file("clients.csv").unwrap());
    assert_eq!(here.file("families.csv").unwrap(), there.file("families.csv").unwrap());

    // No coefficient of a single client is at the server.
    let coefficients = there.file("coefficients.csv").unwrap();
    assert!(coefficients.lines().skip(1).all(|line| line.starts_with("global,") || line.starts_with("family,")));
    for client in model(&there)["model"]["learned"]["clients"].as_array().unwrap() {
        for field in ["personal", "alone", "served", "covariance"] {
            assert_eq!(client[field], Value::Array(Vec::new()), "{field}");
        }
    }
    there.write(folder.path()).unwrap();
    let again = Saved::read(folder.path()).unwrap();
    assert_eq!(again, there);
    let served = predicted(&again, &folder.path().join("all.csv"));
    assert!(served.iter().all(|(.., by)| by.ends_with("its own model is on its machine\"")), "{:?}", served[0]);

    // Every machine has a model of its own clients, which predicts as the one here does.
    for index in 0..3 {
        let own: PathBuf = folder.path().join(format!("machine-{index}"));
        let kept = Saved::read(&own.join("models/bread/fit/0")).unwrap();
        assert_eq!(kept.names.len(), [13, 14, 13][index]);
        let rows = own.join("rows.csv");
        for (there, here) in predicted(&kept, &rows).iter().zip(predicted(&here, &rows)) {
            assert_eq!((&there.0, &there.2), (&here.0, &here.2));
            for (there, here) in there.1.iter().zip(here.1) {
                assert!((there - here).abs() < 1e-6, "{there}, here {here}");
            }
        }
        let clients = kept.file("clients.csv").unwrap();
        let all = here.file("clients.csv").unwrap();
        assert!(clients.lines().all(|line| all.contains(line)), "{clients}");
        assert!(own.join("models/bread/fit/0/report.html").exists());
    }
}

/// A way on which one machine falls silent after so many questions.
struct Failing {
    line: Line,
    left: usize,
}

impl Transport for Failing {
    fn machines(&mut self) -> Result<Vec<u64>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).machines()
    }

    fn exchange(&mut self, mut messages: Vec<(u64, Vec<u8>)>, kind: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        if self.left == 0 {
            messages.retain(|(machine, _)| *machine != 1);
        }
        self.left = self.left.saturating_sub(1);
        self.line.lock().unwrap_or_else(PoisonError::into_inner).exchange(messages, kind)
    }
}

#[test]
fn a_silent_machine_is_left_out_and_a_machines_rules_hold() {
    let folder = tempfile::tempdir().unwrap();
    // It says who is there, and nothing more.
    let failing: Box<dyn Transport> = Box::new(Failing { line: machines(folder.path(), 10, false), left: 1 });
    let there = fit_there(&Arc::new(Mutex::new(failing))).unwrap();
    let said = |part: &str| there.remarks.iter().any(|remark| remark.contains(part));
    assert!(said("client B01 is left out: not all that was asked of it was answered"), "{:?}", there.remarks);
    assert!(said("north-0: the model is not there, it has no folder for it"), "{:?}", there.remarks);
    assert!(said("north-1: the model may not be there: no answer"), "{:?}", there.remarks);
    assert!(there.names.iter().all(|name| name[1..].parse::<usize>().unwrap() % 3 != 1), "{:?}", there.names);
    assert!(there.names.len() > 20, "clients of few rows take part, in fewer folds: {:?}", there.names);
    assert!(!folder.path().join("machine-0/models").exists());

    // A column that the machine does not let be read.
    let mut other = settings(Path::new(""));
    other.table.target = Some("secret".into());
    let line = machines(folder.path(), 10, false);
    let refused = fit_elsewhere("bread", &line, other, &Options::default(), &mut Unwatched, &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("this machine lets be read"), "{refused}");
}

#[test]
fn products_of_columns_are_found_there_too() {
    // Noise that nobody needs to draw: digits of multiples.
    let row = |number: usize| {
        let [a, b, noise] = [37, 59, 83].map(|step| (number * step % 101) as f64 / 50.0 - 1.0);
        let y = 0.1 * (number % 12) as f64 + a + b + a * b + 0.2 * noise;
        format!("B{:02},{a:.2},{b:.2},{y:.4}\n", number % 12)
    };
    let table = |takes: &dyn Fn(usize) -> bool| {
        let rows = (0..360).filter(|number| takes(number % 12)).map(row);
        format!("bakery,rain,price,sold\n{}", rows.collect::<String>())
    };
    let folder = tempfile::tempdir().unwrap();
    let all = folder.path().join("all.csv");
    std::fs::write(&all, table(&|_| true)).unwrap();
    let wanted = |path: &Path| FitSettings { quick: false, straight: true, families: Some(1), ..settings(path) };
    let here = fit(wanted(&all), &Options::default(), &mut Unwatched, &mut |_| {}).unwrap();
    let columns = ["rain", "price", "sold"];
    let line = machines_with(folder.path(), |index| table(&|client| client % 3 == index), (&columns, &[]), 1, true);
    let asked = wanted(Path::new(""));
    let there = fit_elsewhere("bread", &line, asked, &Options::default(), &mut Unwatched, &mut |_| {}).unwrap();
    assert!(there.remarks.iter().any(|note| note == "the machines were asked 6 questions"), "{:?}", there.remarks);
    for saved in [&here, &there] {
        let coefficients = saved.file("coefficients.csv").unwrap();
        assert!(coefficients.contains("rain*price") || coefficients.contains("price*rain"), "{coefficients}");
    }
    assert_eq!(here.file("clients.csv").unwrap(), there.file("clients.csv").unwrap());
    let own = folder.path().join("machine-1");
    let kept = Saved::read(&own.join("models/bread/fit/0")).unwrap();
    let rows = own.join("rows.csv");
    for (there, here) in predicted(&kept, &rows).iter().zip(predicted(&here, &rows)) {
        assert!(there.1.iter().zip(here.1).all(|(there, here)| (there - here).abs() < 1e-6), "{there:?}");
    }
}
