//! Points from a file to their clusters.

use crate::bench::Bench;
use serde_json::Value;
use std::fmt::Write;
use std::sync::Arc;

/// Stations in three clouds far apart, five each: the example of docs/cluster.md.
const STATIONS: &str = include_str!("../../../../docs/stations.csv");

fn stations() -> Bench {
    let bench = Bench::new();
    bench.write("stations.csv", STATIONS);
    bench
}

/// The text without what differs from run to run and from machine to machine.
fn plain(text: &str) -> String {
    let line = |line: &str| match (line.split_once(", relative gap "), line.rsplit_once(" in ")) {
        (Some((before, _)), _) => format!("{before}, relative gap [GAP]\n"),
        (_, Some((before, _))) if line.ends_with(" s") => format!("{before} in [SECONDS] s\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn labels(json: &Value) -> Vec<u64> {
    json["labels"].as_array().expect("labels").iter().map(|label| label.as_u64().expect("a number")).collect()
}

fn planted() -> Vec<u64> {
    (0..15).map(|station| station % 3).collect()
}

#[test]
fn tables_for_people() {
    let bench = stations();
    for (name, arguments) in [
        ("auto", &[][..]),
        ("kmeans", &["--clusters", "3", "--standardise"]),
        ("lambda", &["--lambda", "0.2"]),
        ("path", &["--method", "clusterpath", "--path-values", "12"]),
    ] {
        let ended = bench.well(&[&["cluster", "stations.csv", "--id", "station"], arguments].concat());
        assert_eq!(ended.stderr, "");
        insta::assert_snapshot!(format!("cluster-{name}"), plain(&ended.stdout));
    }
    assert!(!bench.path("runs").exists(), "nothing is written unless asked for");
}

#[test]
fn every_method_finds_the_clouds() {
    let bench = stations();
    for arguments in [
        &["--method", "auto"][..],
        &["--method", "kmeans++"],
        &["--method", "kmeans++", "--clusters", "3"],
        &["--method", "spectral", "--clusters", "3", "--starts", "3"],
        &["--method", "gradient", "--clusters", "3", "--seed", "7"],
        &["--method", "convex"],
        &["--method", "clusterpath"],
        &["--method", "convex", "--lambda", "1000", "--weights", "neighbours", "--neighbours", "4", "--threads", "1"],
    ] {
        let ended = bench.well(&[&["cluster", "stations.csv", "--drop", "station", "--json"], arguments].concat());
        let json: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
        assert_eq!(labels(&json), planted(), "{arguments:?}");
        assert_eq!(json["method"], arguments[1]);
    }
}

fn keys(json: &Value) -> Vec<&str> {
    json.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn the_json_document_has_the_fields_of_the_contract() {
    let bench = stations();
    let printed = |arguments: &[&str]| -> Value {
        let ended = bench.well(&[&["cluster", "stations.csv", "--drop", "station", "--json"], arguments].concat());
        assert!(!ended.stdout.contains("null"), "what does not apply is absent");
        serde_json::from_str(&ended.stdout).expect("one JSON document")
    };
    let everywhere = ["centres", "clusters", "labels", "method", "seconds", "separability"];
    let convex = ["dual", "gap", "lambda", "primal", "undecided"];
    let kmeans = printed(&["--clusters", "3"]);
    assert!(everywhere.iter().all(|key| keys(&kmeans).contains(key)), "{:?}", keys(&kmeans));
    assert!(convex.iter().chain(&["path", "sureness"]).all(|key| !keys(&kmeans).contains(key)));
    assert_eq!((&kmeans["clusters"], kmeans["centres"].as_array().map(Vec::len)), (&3.into(), Some(3)));
    assert!((kmeans["centres"][0][0].as_f64().expect("a number") - 0.02).abs() < 1e-12);
    assert_eq!(kmeans["columns"], serde_json::json!(["rain", "sun"]));

    let path = printed(&["--method", "clusterpath"]);
    assert!(everywhere.iter().chain(&convex).all(|key| keys(&path).contains(key)), "{:?}", keys(&path));
    let steps = path["path"].as_array().expect("a path");
    assert_eq!(keys(&steps[0]), ["clusters", "lambda"]);
    assert_eq!((&steps[0]["clusters"], &steps[steps.len() - 1]["clusters"]), (&15.into(), &1.into()));
    let (primal, gap) = (path["primal"].as_f64().expect("a number"), path["gap"].as_f64().expect("a number"));
    assert!(gap >= 0.0 && gap <= 1e-6 * primal, "{gap}");

    let one = printed(&["--lambda", "inf"]);
    assert_eq!(one["clusters"], 1);
    assert!(["lambda", "separability", "recovery"].iter().all(|key| !keys(&one).contains(key)), "{:?}", keys(&one));
    assert_eq!(printed(&["--lambda", "0"])["clusters"], 15);
    // Centres are told in the units of the file.
    let scaled = printed(&["--clusters", "3", "--standardise"]);
    let difference = scaled["centres"][1][1].as_f64().expect("a number") - 1.0;
    assert!(difference.abs() < 1e-9, "{difference}");
    assert_eq!(scaled["standardised"], true);
}

#[test]
fn the_folder_holds_what_is_promised() {
    let bench = stations();
    let ended = bench.well(&[
        "cluster",
        "stations.csv",
        "--id",
        "station",
        "--method",
        "clusterpath",
        "--out",
        "out",
        "--json",
    ]);
    assert_eq!(ended.stderr, "report: out/report.html\n");
    assert_eq!(
        bench.files("out"),
        ["centres.csv", "labels.csv", "path.csv", "report.html", "summary.json", "tree.csv"]
    );
    assert_eq!(bench.read("out/summary.json"), ended.stdout.replace("[VERSION]", env!("CARGO_PKG_VERSION")));
    let rows = bench.read("out/labels.csv");
    assert!(rows.starts_with("point,cluster\ns01,0\ns02,1\ns03,2\ns04,0\n"), "{rows}");
    assert!(bench.read("out/centres.csv").starts_with("cluster,points,rain,sun\n0,5,"));
    assert!(bench.read("out/path.csv").starts_with("lambda,clusters\n"));
    let tree = bench.read("out/tree.csv");
    assert!(tree.starts_with("node,parent,lambda,points\n1,"), "{tree}");
    assert!(tree.trim_end().ends_with(",15"), "in the end all are one: {tree}");

    bench.well(&["cluster", "stations.csv", "--drop", "station", "--clusters", "2", "--out", "two"]);
    assert_eq!(bench.files("two"), ["centres.csv", "labels.csv", "report.html", "summary.json"]);
    assert!(bench.read("two/labels.csv").starts_with("point,cluster\n1,0\n2,"), "points without names are numbered");
}

#[test]
fn the_same_points_in_any_kind_of_file() {
    let bench = stations();
    let values: Vec<[f64; 2]> = STATIONS
        .lines()
        .skip(1)
        .map(|line| {
            let mut cells = line.split(',').skip(1).map(|cell| cell.parse().expect("a number"));
            [cells.next().expect("rain"), cells.next().expect("sun")]
        })
        .collect();
    let text = values.iter().fold(String::new(), |mut text, [a, b]| {
        writeln!(text, "{a}\t{b}").expect("in memory");
        text
    });
    bench.write("plain.tsv", text);
    let header = "{'descr': '<f8', 'fortran_order': True, 'shape': (15, 2), }\n";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    for column in 0..2 {
        bytes.extend(values.iter().flat_map(|row| row[column].to_le_bytes()));
    }
    bench.write("stations.npy", bytes);
    write_parquet(&bench, &values);
    let expected = labels_of(&bench, "stations.csv", &["--drop", "station"]);
    assert_eq!(expected, planted());
    for name in ["plain.tsv", "stations.npy", "stations.parquet"] {
        assert_eq!(labels_of(&bench, name, &[]), expected, "{name}");
    }
}

fn labels_of(bench: &Bench, name: &str, arguments: &[&str]) -> Vec<u64> {
    let ended = bench.well(&[&["cluster", name, "--clusters", "3", "--json"], arguments].concat());
    labels(&serde_json::from_str(&ended.stdout).expect("JSON"))
}

fn write_parquet(bench: &Bench, values: &[[f64; 2]]) {
    use parquet::data_type::DoubleType;
    use parquet::file::writer::SerializedFileWriter;
    let message = "message points { required double rain; required double sun; }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(message).expect("a schema"));
    let file = std::fs::File::create(bench.path("stations.parquet")).expect("writable");
    let mut writer = SerializedFileWriter::new(file, schema, Default::default()).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    for column in 0..2 {
        let cells: Vec<f64> = values.iter().map(|row| row[column]).collect();
        let mut writer = group.next_column().expect("a column").expect("a column");
        writer.typed::<DoubleType>().write_batch(&cells, None, None).expect("written");
        writer.close().expect("written");
    }
    group.close().expect("written");
    writer.close().expect("written");
}

impl Bench {
    /// The message of a refused clustering, which must leave nothing behind.
    fn refused_cluster(&self, arguments: &[&str]) -> String {
        let ended = self.kinfolk(&[&["cluster", "--out", "refused"], arguments].concat());
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.stdout, "", "stdout is for results");
        assert!(!self.path("refused").exists(), "a folder was left behind");
        format!("# {}\n{}", arguments.join(" "), ended.stderr)
    }
}

#[test]
fn files_at_fault() {
    let bench = stations();
    for (name, content) in [
        ("empty.csv", ""),
        ("header.csv", "x,y\n"),
        ("ragged.csv", "x,y\n1,2\n3\n"),
        ("missing.csv", "x,y\n1,2\n,4\n"),
        ("nan.csv", "1,2\nNaN,4\n"),
        ("infinite.csv", "1,2\n3,inf\n"),
        ("twice.csv", "x,x\n1,2\n"),
        ("mixed.csv", "p0,1,2\np1,3,4\n"),
        ("index.csv", ",x\n0,1\n1,2\n"),
        ("bars.csv", "x|y\n1|2\n"),
        ("huge.csv", "1\n1e200\n"),
        ("not.npy", "x,y\n1,2\n"),
        ("not.parquet", "x,y\n1,2\n"),
        ("points.xls", "1,2\n"),
    ] {
        bench.write(name, content);
    }
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000), }\n";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend([0; 80]);
    bench.write("cut.npy", bytes);
    let names = [
        "stations.csv",
        "empty.csv",
        "header.csv",
        "ragged.csv",
        "missing.csv",
        "nan.csv",
        "infinite.csv",
        "twice.csv",
        "mixed.csv",
        "index.csv",
        "bars.csv",
        "huge.csv",
        "not.npy",
        "cut.npy",
        "not.parquet",
        "points.xls",
        "absent.csv",
    ];
    insta::assert_snapshot!("cluster-files", names.map(|name| bench.refused_cluster(&[name])).join("\n"));
}

#[test]
fn settings_at_fault() {
    let bench = stations();
    let messages: Vec<String> = [
        "--method kmean",
        "--method kmeans++ --lambda 1",
        "--method convex --clusters 3",
        "--method auto --clusters 3",
        "--method clusterpath --lambda 1 --starts 2",
        "--method spectral --path --weights uniform --path-values 3",
        "--clusters 0",
        "--clusters 16",
        "--clusters 2 --lambda 1",
        "--lambda -1",
        "--lambda nan",
        "--neighbours 3",
        "--weights neighbour",
        "--method kmeans++ --lambda -1 --starts 0 --path-values 1 --weights all --decay -2 --neighbours 0",
        "--columns rain --drop sun",
        "--columns rian",
        "--drop everything --id sum",
    ]
    .iter()
    .map(|options| {
        let mut arguments = vec!["stations.csv"];
        if !options.contains("--drop") && !options.contains("--columns") {
            arguments.extend(["--id", "station"]);
        }
        arguments.extend(options.split(' '));
        bench.refused_cluster(&arguments)
    })
    .collect();
    insta::assert_snapshot!("cluster-settings", messages.join("\n"));
}

#[test]
fn folders_that_hold_something_else_are_left_alone() {
    let bench = stations();
    bench.write("taken/labels.csv", "mine");
    bench.well(&["run", "tiny.toml", "--out", "ran"]);
    let mut messages = Vec::new();
    for folder in ["taken", "ran", "stations.csv"] {
        let ended = bench.kinfolk(&["cluster", "stations.csv", "--id", "station", "--out", folder]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
        messages.push(ended.stderr);
    }
    assert_eq!(bench.read("taken/labels.csv"), "mine");
    insta::assert_snapshot!("cluster-folders", messages.join("\n"));
}

#[test]
fn a_path_of_few_points_is_of_all_pairs() {
    let bench = Bench::new();
    bench.write("two.csv", "0,0\n1,1\n");
    let ended = bench.well(&["cluster", "two.csv", "--path", "--json"]);
    assert!(ended.stdout.contains("\"path\"") && !ended.stdout.contains("neighbours"), "{}", ended.stdout);
}

#[test]
fn degenerate_points_have_answers() {
    let bench = stations();
    bench.write("one.csv", "1,2\n");
    bench.write("same.csv", "3,3\n3,3\n3,3\n");
    for (name, arguments) in [
        ("one.csv", &[][..]),
        ("one.csv", &["--clusters", "1"]),
        ("one.csv", &["--method", "clusterpath"]),
        ("same.csv", &[]),
        ("same.csv", &["--method", "convex"]),
        ("same.csv", &["--lambda", "0", "--path"]),
    ] {
        let out = format!("out-{name}-{}", arguments.join(""));
        let ended = bench.well(&[&["cluster", name, "--json", "--out", &out], arguments].concat());
        let json: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert_eq!(json["clusters"], 1, "{name} {arguments:?}");
    }
}
