//! What the program says about itself.

use crate::bench::Bench;

#[test]
fn every_verb_has_help() {
    let bench = Bench::new();
    for verb in ["", "run", "node", "cluster", "list", "data", "data list", "data path", "data get", "reproduce"] {
        let mut arguments: Vec<&str> = verb.split_whitespace().collect();
        arguments.push("--help");
        let ended = bench.well(&arguments);
        assert_eq!(ended.stderr, "");
        insta::assert_snapshot!(format!("help {verb}").trim_end().replace(' ', "-"), ended.stdout);
    }
    assert_eq!(bench.well(&["--version"]).stdout, "kinfolk [VERSION]\n");
}

#[test]
fn no_verb_and_an_unknown_one_are_faults() {
    let bench = Bench::new();
    assert_eq!(bench.kinfolk(&[]).code, Some(2));
    assert_eq!(bench.kinfolk(&["rum"]).code, Some(2));
}

#[test]
fn everything_registered_is_listed() {
    let bench = Bench::new();
    for what in ["methods", "models", "datasets", "presets", "sections", "files", "methods ifca", "files clients.csv"] {
        let mut arguments = vec!["list"];
        arguments.extend(what.split(' '));
        let ended = bench.well(&arguments);
        assert_eq!(ended.stderr, "");
        insta::assert_snapshot!(format!("list-{}", what.replace(' ', "-")), ended.stdout);
    }
    for (kind, names) in [
        ("methods", kinfolk::methods::METHODS.iter().map(|kind| kind.name).collect::<Vec<_>>()),
        ("models", kinfolk::models::MODELS.iter().map(|kind| kind.name).collect()),
        ("datasets", kinfolk::data::SOURCES.iter().map(|source| source.name).collect()),
    ] {
        for name in names {
            let shown = bench.well(&["list", kind, name]).stdout;
            assert!(shown.starts_with(&format!("{name}: ")), "{shown}");
        }
    }
    let declared = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&bench.well(&[&["list", "--json"], arguments].concat()).stdout).expect("one document")
    };
    for what in ["methods", "models", "datasets", "presets", "sections", "files"] {
        let listed = declared(&[what]);
        let first = listed[0]["name"].as_str().expect("a name");
        assert_eq!(declared(&[what, first]), listed[0]);
    }
    let ifca = declared(&["methods", "ifca"]);
    assert_eq!((&ifca["clusters"], &ifca["wants"]), (&true.into(), &"descent".into()));
    assert_eq!(ifca["settings"][0]["required"], true, "{ifca}");
    insta::assert_snapshot!("list-unknown", bench.kinfolk(&["list", "methods", "ifac"]).stderr);
}

#[test]
fn datasets_are_found_in_their_folder() {
    let bench = Bench::new();
    insta::assert_snapshot!("data-list", bench.well(&["data", "list"]).stdout);
    assert_eq!(bench.well(&["data", "path", "mnist"]).stdout, "[FOLDER]/datasets/mnist\n");
    let unknown = bench.kinfolk(&["data", "path", "mnits"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(2), ""));
    insta::assert_snapshot!("data-unknown", unknown.stderr);
}

#[test]
fn only_known_papers_and_experiments_are_reproduced() {
    let bench = Bench::new();
    let mut messages = Vec::new();
    for arguments in [["reproduce", "ifac"].as_slice(), &["reproduce", "ifca", "e9"]] {
        let ended = bench.kinfolk(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
        messages.push(ended.stderr);
    }
    insta::assert_snapshot!("reproduce-unknown", messages.join("\n"));
    assert!(!bench.path("runs").exists());
}
