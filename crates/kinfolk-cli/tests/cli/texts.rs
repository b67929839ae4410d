//! Texts as users meet them: LEAF's files, a network that reads characters, and families of writers.

use crate::bench::Bench;
use serde_json::json;

const EXPERIMENT: &str = r#"
name = "texts"

[data]
source = "leaf"
path = "leaf.json"

[model]
kind = "lstm"
embedding = 4
hidden = 8
layers = 1

[[method]]
name = "sr-fca"
rounds = 5
batch = 10
optimiser = "adam"
step = 0.05
one_shot_steps = 60
"#;

/// Eight writers: half of them go up the alphabet, the other half down.
fn leaf() -> String {
    let mut data = serde_json::Map::new();
    for writer in 0..8 {
        let text: String = (0..80)
            .map(|place| {
                let letter = (place + writer) % 5;
                char::from(b'a' + if writer % 2 == 0 { letter } else { 4 - letter } as u8)
            })
            .collect();
        let windows: Vec<&str> = (0..60).map(|begin| &text[begin..begin + 6]).collect();
        let next: Vec<&str> = (0..60).map(|begin| &text[begin + 6..begin + 7]).collect();
        data.insert(format!("writer-{writer}"), json!({ "x": windows, "y": next }));
    }
    let users: Vec<&String> = data.keys().collect();
    json!({ "users": users, "num_samples": vec![60; 8], "user_data": data }).to_string()
}

#[test]
fn writers_of_two_kinds_are_told_apart() {
    let bench = Bench::new();
    bench.write("leaf.json", leaf());
    bench.write("texts.toml", EXPERIMENT);
    bench.well(&["run", "texts.toml", "--out", "run", "--threads", "1"]);
    let summary = bench.json("run/summary.json");
    let found = &summary["methods"][0]["repeats"][0];
    assert_eq!(found["clusters"], 2, "{found}");
    let accuracy = found["metric"]["mean"].as_f64().unwrap();
    assert!(accuracy > 0.95, "{accuracy}");
    let clients = bench.read("run/clients.csv");
    let clusters: Vec<&str> = (clients.lines().skip(1).take(8)).map(|line| line.split(',').nth(4).unwrap()).collect();
    assert_eq!(clusters, ["0", "1", "0", "1", "0", "1", "0", "1"]);
    assert_eq!(bench.read("run/distances.csv").lines().count(), 1 + 28);
}

#[test]
fn a_model_that_cannot_read_says_which_can() {
    let bench = Bench::new();
    bench.write("leaf.json", leaf());
    bench.write(
        "texts.toml",
        EXPERIMENT.replace("kind = \"lstm\"\nembedding = 4\nhidden = 8\nlayers = 1", "kind = \"mlp\""),
    );
    let ended = bench.kinfolk(&["run", "texts.toml", "--out", "run"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("model.kind: mlp reads numbers, but the rows of this data are texts"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("use lstm"), "{}", ended.stderr);
}
