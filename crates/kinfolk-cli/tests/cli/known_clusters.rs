//! Personal models as users meet them: odd groups, strengths that cannot be, and what is said about both.

use crate::bench::Bench;

const PERSONAL: &str = r#"
name = "personal"

[data]
source = "table"
path = "pupils.csv"
client = "school"
group = "sector"
target = "score"
task = "regression"
standardise = false

[model]
kind = "linear"

[[method]]
name = "hierarchical"
gamma = 1
lambda = 1
"#;

impl Bench {
    /// Schools in sectors: two of one sector, one alone in its own.
    fn with_pupils() -> Self {
        let bench = Self::new();
        let mut table = String::from("school,sector,hours,score\n");
        for (school, sector, slope) in [("a", "public", 1.0), ("b", "public", 2.0), ("c", "private", 3.0)] {
            for hours in 0..6 {
                let noise = f64::from((hours * 7) % 3) - 1.0;
                table += &format!("{school},{sector},{hours},{}\n", slope * f64::from(hours) + 0.25 * noise);
            }
        }
        bench.write("pupils.csv", table);
        bench.write("personal.toml", PERSONAL);
        bench
    }

    fn refused_personal(&self, changes: &[&str]) -> String {
        let sets = changes.iter().flat_map(|change| ["--set", change]);
        let ended = self.kinfolk(&["run", "personal.toml"].into_iter().chain(sets).collect::<Vec<_>>());
        assert_eq!(ended.code, Some(2), "{changes:?}: {}{}", ended.stdout, ended.stderr);
        format!("# {}\n{}", changes.join(" "), ended.stderr)
    }
}

#[test]
fn strengths_that_cannot_be_are_refused() {
    let bench = Bench::with_pupils();
    let messages: Vec<String> = [
        &["method.hierarchical.gamma=-1"][..],
        &["method.hierarchical.gamma=[1, 2, 3, 4]"],
        &["method.hierarchical.lambda={ public = 1 }"],
        &["method.hierarchical.lambda={ public = 1, privat = 2 }"],
        &["method.hierarchical.alpha=0.5"],
        &["method.hierarchical.tune=true"],
        &["method.hierarchical.grid=[1, 2]", "method.hierarchical.spread=per-cluster"],
        &["method.hierarchical.groups=truth"],
        &["method.hierarchical.groups=ifca", "method.hierarchical.gamma=-1"],
        &["method.hierarchical.name=james-stein"],
        &["method.hierarchical.name=l2gd", "method.hierarchical.chance_between=0"],
        &["model.kind=mlp"],
    ]
    .into_iter()
    .map(|changes| bench.refused_personal(changes))
    .collect();
    insta::assert_snapshot!("strengths", messages.join("\n"));
}

#[test]
fn a_table_without_groups_is_refused_with_the_ways_out() {
    let bench = Bench::with_pupils();
    bench.write("personal.toml", PERSONAL.replace("group = \"sector\"\n", "drop = [\"sector\"]\n"));
    insta::assert_snapshot!("no_groups", bench.refused_personal(&[]));
    let ended = bench.kinfolk(&["run", "tiny.toml", "--tune"]);
    assert_eq!(ended.code, Some(2));
    insta::assert_snapshot!("nothing_to_tune", ended.stderr);
}

#[test]
fn a_cluster_of_one_and_a_client_of_none() {
    let bench = Bench::with_pupils();
    let ended = bench.kinfolk(&["run", "personal.toml", "--out", "one", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let notes = bench.json("one/summary.json")["methods"][0]["repeats"][0]["notes"].to_string();
    assert!(notes.contains("has one client, c"), "{notes}");
    let schools = bench.read("one/clients.csv");
    assert!(schools.lines().nth(1).is_some_and(|line| line.ends_with(",public,,,,")), "{schools}");
    for name in ["cluster-0", "cluster-1", "global", "client-a", "client-b", "client-c"] {
        assert!(bench.path(&format!("one/models/hierarchical/0/{name}.safetensors")).exists(), "{name}");
    }
    // A school without a sector is held by the global centre alone.
    bench.write("pupils.csv", bench.read("pupils.csv").replace("b,public", "b,"));
    let ended = bench.kinfolk(&["run", "personal.toml", "--out", "none"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("1 client is in no cluster and is held by the global centre alone"),
        "{}",
        ended.stdout
    );
    let refused = bench.refused_personal(&["method.hierarchical.gamma={ public = 1 }"]);
    assert!(refused.contains("has nothing for cluster `private`"), "{refused}");
    // Strengths in the file go away for --tune.
    let ended = bench.kinfolk(&["run", "personal.toml", "--out", "tuned", "--tune"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("by cross-validation"), "{}", ended.stdout);
}
