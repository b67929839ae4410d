//! How the library is laid out: modules are layers, and shared code knows no method or model by name.

use kinfolk::data::SOURCES;
use kinfolk::methods::METHODS;
use kinfolk::models::MODELS;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The modules from the bottom up: each may use those that stand before it in this list, and no others.
const LAYERS: [&str; 32] = [
    "error",
    "rng",
    "text",
    "assignment",
    "memory",
    "panics",
    "settings",
    "disk",
    "num",
    "privacy",
    "descent",
    "aggregate",
    "training",
    "clustering",
    "hierarchy",
    "families",
    "data",
    "mixture",
    "models",
    "modelfile",
    "compute",
    "federation",
    "groups",
    "over",
    "methods",
    "presets",
    "experiment",
    "record",
    "evaluate",
    "report",
    "run",
    "fit",
];

/// Files outside the registries that name a model or a method, and which: clients of the user's own have one kind of model, and the arena
/// compares every method with each client alone.
const NAMED: [(&str, &str); 3] = [
    ("kinfolk-papers/src/arena/mod.rs", "local"),
    ("kinfolk-py/src/clients.rs", "own"),
    ("kinfolk-py/src/run.rs", "own"),
];

/// Methods that build on another method's file: Algorithm 2 of a paper on its Algorithm 1, a baseline on the exact minimiser.
const BUILT_ON: [(&str, &str); 2] = [("al2sgd_plus", "l2gd"), ("single_cluster", "hierarchical")];

/// Folders and files below `methods/` that are no method, but what methods share.
const SHARED: [&str; 7] = ["mod", "mixtures", "outcome", "parts", "personal", "room", "setup"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates").to_path_buf()
}

/// Every source file below a folder that is no test, by its path from there, with its text without tests and comments.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_string();
            if path.is_dir() {
                open.push(path);
            } else if name.ends_with(".rs") && !["tests.rs", "testing.rs", "fabricated.rs"].contains(&name.as_str()) {
                let text = std::fs::read_to_string(&path).expect("a text");
                let path = path.strip_prefix(folder).expect("below it").to_string_lossy().replace('\\', "/");
                found.push((path, without_tests_and_comments(&text)));
            }
        }
    }
    found.sort();
    found
}

fn without_tests_and_comments(text: &str) -> String {
    let text: String = text.split_inclusive('\n').filter(|line| !line.trim_start().starts_with("//")).collect();
    let Some((before, tests)) = text.split_once("\n#[cfg(test)]\nmod tests {") else { return text };
    let after = tests.split_once("\n}\n").map_or("", |(_, after)| after);
    before.to_string() + after
}

#[test]
fn no_file_of_tests_is_left_out() {
    let folder = crates().join("kinfolk/tests");
    let program = std::fs::read_to_string(folder.join("main.rs")).expect("a text");
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_string();
        if path.extension().is_some_and(|extension| extension == "rs") && name != "main" {
            assert!(program.contains(&format!("\nmod {name};\n")), "{name}.rs is not in main.rs");
        }
    }
}

#[test]
fn nothing_imports_upwards() {
    let layer = |module: &str| LAYERS.iter().position(|layer| *layer == module);
    let mut upward = Vec::new();
    for (path, text) in sources(&crates().join("kinfolk/src")) {
        let module = path.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let own = layer(module).unwrap_or_else(|| panic!("{module} is in no layer"));
        let used = text
            .split("crate::")
            .skip(1)
            .filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next());
        let above = used.filter(|used| layer(used).is_some_and(|used| used > own));
        upward.extend(above.map(|used| format!("{path} uses {used}")));
    }
    assert!(upward.is_empty(), "{upward:?}");
}

#[test]
fn no_method_imports_from_another_methods_file() {
    let files = sources(&crates().join("kinfolk/src/methods"));
    let name = |path: &str| path.split(['/', '.']).next().unwrap_or_default().to_string();
    let methods: BTreeSet<String> =
        files.iter().map(|(path, _)| name(path)).filter(|name| !SHARED.contains(&&**name)).collect();
    let names = |text: &str, other: &str| {
        let path = format!("{other}::");
        text.match_indices(&path).map(|(place, _)| &text[..place]).any(|before| match before.strip_suffix("::") {
            Some(path) => path.ends_with("super") || path.ends_with("methods"),
            None => !before.ends_with(|c: char| c.is_alphanumeric() || c == '_'),
        })
    };
    let mut built_on = BTreeSet::new();
    for (path, text) in files.iter().filter(|(path, _)| path != "mod.rs") {
        let own = name(path);
        let others = methods.iter().filter(|other| **other != own && names(text, other));
        built_on.extend(others.map(|other| (own.clone(), other.clone())));
    }
    let known = BUILT_ON.map(|(method, other)| (method.to_string(), other.to_string()));
    assert_eq!(built_on, BTreeSet::from(known), "the left are found, the right are listed");
}

#[test]
fn methods_and_models_are_named_in_their_own_folders_alone() {
    // A setting, too, may be "auto".
    let names = || METHODS.iter().map(|kind| kind.name).chain(MODELS.iter().map(|kind| kind.name));
    let registered = || names().filter(|name| *name != "auto");
    let is_source = |name: &str| SOURCES.iter().any(|source| source.name == name);
    let knows_them = |path: &str| {
        ["kinfolk/src/methods/", "kinfolk/src/models/", "kinfolk/src/presets.rs", "kinfolk-papers/src/paper.rs"]
            .iter()
            .any(|known| path.starts_with(known))
    };
    let mut named = Vec::new();
    for (path, text) in
        ["kinfolk", "kinfolk-papers", "kinfolk-node", "kinfolk-cli", "kinfolk-py"].iter().flat_map(|name| {
            let below = sources(&crates().join(name).join("src"));
            below.into_iter().map(move |(path, text)| (format!("{name}/src/{path}"), text))
        })
    {
        // Some data sources are called like the model that fits them.
        let may_name = |name: &str| knows_them(&path) || path.starts_with("kinfolk/src/data/") && is_source(name);
        let names = registered().filter(|name| !may_name(name) && text.contains(&format!("\"{name}\"")));
        named.extend(names.map(|name| (path.clone(), name.to_string())));
    }
    let known = NAMED.map(|(path, name)| (path.to_string(), name.to_string()));
    assert_eq!(named, known, "the left are found, the right are listed");
}

/// What CONTRIBUTING says an addition touches: new files, and lines added to code that is there.
#[test]
fn additions_touch_what_contributing_counts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let counted = [
        ("kind-of-work", 1, 1),
        ("method", 1, 1),
        ("data-source", 1, 1),
        ("finding", 1, 1),
        ("column", 0, 3),
        ("run-file", 0, 5),
    ];
    for (name, new_files, lines) in counted {
        let patch = root.join(format!("docs/patches/{name}.patch"));
        let applied = Command::new("git").args(["apply", "--check"]).arg(&patch).current_dir(&root).output().unwrap();
        assert!(applied.status.success(), "{name}: {}", String::from_utf8_lossy(&applied.stderr));
        let text = std::fs::read_to_string(patch).unwrap();
        let files: Vec<&str> = text.split("diff --git ").skip(1).collect();
        let (new, existing): (Vec<&str>, Vec<&str>) = files.iter().partition(|file| file.contains("new file mode"));
        let added = existing
            .iter()
            .flat_map(|file| file.lines())
            .filter(|line| line.starts_with('+') && !line.starts_with("+++"));
        assert_eq!((new.len(), added.count()), (new_files, lines), "{name}");
    }
}
