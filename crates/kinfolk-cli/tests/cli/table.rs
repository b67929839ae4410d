//! Somebody's own table, from the file to the families.

use crate::bench::Bench;
use std::fmt::Write;

const SCHOOLS: usize = 12;

/// One pupil.
struct Row {
    school: String,
    family: &'static str,
    hours: f64,
    sleep: f64,
    lesson: &'static str,
    score: f64,
}

/// Twelve schools of two families: in the first, hours of study make the score, in the second, sleep does.
fn rows() -> Vec<Row> {
    let mut state = 1u64;
    // A small generator of its own: the numbers stay the same whatever the library does.
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    let mut rows = Vec::new();
    for school in 0..SCHOOLS {
        let family = if school % 2 == 0 { "study" } else { "sleep" };
        for _ in 0..40 {
            let (hours, sleep) = (10.0 * uniform(), 4.0 + 6.0 * uniform());
            let lesson = ["art", "maths", "sport"][(3.0 * uniform()) as usize % 3];
            let worth = if family == "study" { 3.0 * hours } else { 5.0 * sleep };
            let score = worth + if lesson == "maths" { 4.0 } else { 0.0 } + uniform();
            rows.push(Row { school: format!("school {school}"), family, hours, sleep, lesson, score });
        }
    }
    rows
}

fn experiment(path: &str) -> String {
    format!(
        r#"
name = "schools"

[data]
source = "table"
path = "{path}"
client = "school"
target = "score"
truth = "family"

[model]
kind = "linear"

[[method]]
name = "ifca"
clusters = 2
rounds = 30
start = "farthest"

[[method]]
name = "fedavg"
rounds = 30
"#
    )
}

fn write_csv(bench: &Bench, name: &str) {
    let mut text = "school,family,hours,sleep,lesson,score\n".to_string();
    for Row { school, family, hours, sleep, lesson, score } in rows() {
        writeln!(text, "{school},{family},{hours},{sleep},{lesson},{score}").expect("in memory");
    }
    bench.write(name, text);
}

fn assert_families_found(bench: &Bench, folder: &str) {
    let summary = bench.json(&format!("{folder}/summary.json"));
    let (ifca, fedavg) = (&summary["methods"][0]["repeats"][0], &summary["methods"][1]["repeats"][0]);
    assert_eq!(ifca["misclustering"], 0.0);
    let error = |method: &serde_json::Value| method["metric"]["mean"].as_f64().expect("a number");
    assert!(error(ifca) < 0.2 && error(fedavg) > 10.0, "{} and {}", error(ifca), error(fedavg));
}

#[test]
fn the_families_of_a_csv_are_found() {
    let bench = Bench::new();
    write_csv(&bench, "schools.csv");
    bench.write("schools.toml", experiment("schools.csv"));
    bench.well(&["run", "schools.toml", "--out", "out"]);
    assert_families_found(&bench, "out");
    let clients = bench.read("out/clients.csv");
    let first = clients.lines().nth(1).expect("a client");
    assert!(first.starts_with("ifca,0,school 0,1,"), "{first}");
    insta::assert_snapshot!("schools-schema", schema_without_numbers(&bench.read("out/models/schema.json")));
}

/// The schema with its means and deviations left out.
fn schema_without_numbers(text: &str) -> String {
    let is_number =
        |line: &&str| ["mean", "deviation", "fill"].iter().any(|name| line.contains(&format!("\"{name}\"")));
    text.lines().filter(|line| !is_number(line)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_same_families_in_parquet() {
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
    use parquet::file::writer::SerializedFileWriter;
    let bench = Bench::new();
    let schema =
        "message schools { required binary school (UTF8); required binary family (UTF8); required double hours;
        required double sleep; required binary lesson (UTF8); required double score; }";
    let schema = parquet::schema::parser::parse_message_type(schema).expect("a schema").into();
    let file = std::fs::File::create(bench.path("schools.parquet")).expect("writable");
    let mut writer = SerializedFileWriter::new(file, schema, Default::default()).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    let rows = rows();
    let words = |cell: fn(&Row) -> &str| -> Vec<ByteArray> { rows.iter().map(|row| cell(row).into()).collect() };
    let words = [words(|row| &row.school), words(|row| row.family), words(|row| row.lesson)];
    let numbers = |cell: fn(&Row) -> f64| -> Vec<f64> { rows.iter().map(cell).collect() };
    let numbers = [numbers(|row| row.hours), numbers(|row| row.sleep), numbers(|row| row.score)];
    let (mut words, mut numbers) = (words.iter(), numbers.iter());
    while let Some(mut column) = group.next_column().expect("a column") {
        let is_word = matches!(column.untyped(), parquet::column::writer::ColumnWriter::ByteArrayColumnWriter(_));
        if is_word {
            let cells = words.next().expect("a column of words");
            column.typed::<ByteArrayType>().write_batch(cells, None, None).expect("written");
        } else {
            let cells = numbers.next().expect("a column of numbers");
            column.typed::<DoubleType>().write_batch(cells, None, None).expect("written");
        }
        column.close().expect("written");
    }
    group.close().expect("written");
    writer.close().expect("written");

    write_csv(&bench, "schools.csv");
    for kind in ["csv", "parquet"] {
        bench.write("schools.toml", experiment(&format!("schools.{kind}")));
        bench.well(&["run", "schools.toml", "--out", kind]);
        assert_families_found(&bench, kind);
    }
    assert_eq!(bench.read("csv/clients.csv"), bench.read("parquet/clients.csv"), "the same rows, the same result");
}

#[test]
fn tables_at_fault() {
    let bench = Bench::new();
    let mut messages = Vec::new();
    let good = "school,hours,lesson,score\na,1,art,2\na,2,art,3\nb,1,sport,2\nb,3,sport,4\n";
    for (what, from, to) in [
        ("a missing number", "b,1,sport", "b,,sport"),
        ("a missing word", "a,2,art", "a,2,NA"),
        ("a missing client", "b,3,", ",3,"),
        ("an infinite number", "a,1,", "a,inf,"),
        ("too few cells", "a,2,art,3", "a,2,art"),
        ("no target column", "score", "scores"),
        ("two columns of a name", "hours", "lesson"),
        ("no rows", "\na,1,art,2\na,2,art,3\nb,1,sport,2\nb,3,sport,4\n", "\n"),
    ] {
        bench.write("table.csv", good.replacen(from, to, 1));
        bench.write("table.toml", experiment("table.csv").replace("truth = \"family\"\n", ""));
        let ended = bench.kinfolk(&["run", "table.toml", "--out", "out"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{what}: {}", ended.stderr);
        assert!(!bench.path("out").exists());
        messages.push(format!("# {what}\n{}", ended.stderr));
    }
    for setting in [
        "data.path=absent.csv",
        "data.path=table.toml",
        "data.client=scholl",
        "data.client=score",
        "data.min_rows=3",
        "data.test_fraction=1",
        "data.outliers=0.5",
        "model.kind=softmax",
    ] {
        bench.write("table.csv", good);
        let ended = bench.kinfolk(&["run", "table.toml", "--out", "out", "--set", setting]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{setting}: {}", ended.stderr);
        assert!(!bench.path("out").exists());
        messages.push(format!("# {setting}\n{}", ended.stderr));
    }
    bench.write("table.toml", experiment("table.csv").replace("target = \"score\"\ntruth = \"family\"\n", ""));
    let ended = bench.kinfolk(&["run", "table.toml", "--out", "out"]);
    assert_eq!((ended.code, bench.path("out").exists()), (Some(2), false), "{}", ended.stderr);
    messages.push(format!("# no target\n{}", ended.stderr));
    insta::assert_snapshot!("tables", messages.join("\n"));
}

const PUPILS: &str = r#"
[data]
source = "schools"
target = "pass"
drop = ["minority", "mean_ses"]

[model]
kind = "logistic"

[[method]]
name = "fedavg"
rounds = 3
"#;

#[test]
fn the_schools_are_found_in_their_folder() {
    let bench = Bench::new();
    bench.write("pupils.toml", PUPILS);
    let missing = bench.kinfolk(&["run", "pupils.toml"]);
    assert_eq!(missing.code, Some(2), "{}", missing.stderr);
    assert!(missing.stderr.contains("put high-school-and-beyond.csv into"), "{}", missing.stderr);
    assert_eq!(bench.kinfolk(&["data", "get", "schools"]).code, Some(2));
    let mut content = "school,sector,minority,sex,ses,mean_ses,math_achievement\n".to_string();
    for (number, row) in rows().iter().enumerate() {
        let sector = if row.family == "study" { "Public" } else { "Catholic" };
        let sex = ["Female", "Male"][number % 2];
        writeln!(content, "{},{sector},No,{sex},{},0.1,{}", row.school, row.hours, row.score).unwrap();
    }
    bench.write("datasets/schools/high-school-and-beyond.csv", content);
    assert_eq!(bench.well(&["data", "get", "schools"]).stdout, "[FOLDER]/datasets/schools\n");
    bench.well(&["run", "pupils.toml", "--out", "pupils"]);
    let about = &bench.json("pupils/summary.json")["data"];
    assert_eq!((&about["clients"], &about["classes"], &about["columns"]), (&12.into(), &2.into(), &2.into()));
}
