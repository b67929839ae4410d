use super::*;
use kinfolk::run::Unwatched;

fn wishes<'a>(only: &'a [String], folder: &'a Path) -> Wishes<'a> {
    Wishes { only, seeds: Some(1), folder, threads: 1, backend: Arc::new(kinfolk::compute::Cpu), stop: Arc::default() }
}

/// A table small enough for a test.
fn small() -> Table {
    let text = "[arena]\ntitle = \"Small\"\nprotocol = \"\"\nseeds = 1\nmegabytes = 0.05\npublished = { fedavg = 40.0 }\n\
                [training]\nrounds = 3\nlocal_steps = 2\nstep = 0.3\n\
                [data]\nsource = \"digits\"\nclients = 6\nsamples = 20\ntest_samples = 10\ntrue_clusters = 2\n\
                [model]\nkind = \"softmax\"\n\
                [[method]]\nname = \"fedavg\"\n[[method]]\nname = \"local\"\n\
                [[method]]\nname = \"ifca\"\nclusters = 2\n\
                [[method]]\nname = \"fine-tune\"\nover = \"ifca\"\n";
    Table::read("small", text, false).unwrap()
}

#[test]
fn every_table_is_sound() {
    for name in names() {
        for quick in [false, true] {
            let table = table(name, quick).unwrap();
            assert!(table.labels.len() > 5, "{name}");
            for label in &table.labels {
                let experiment = table.experiment(label, 1);
                assert!(experiment.is_ok(), "{name} {label}: {:?}", experiment.err());
            }
            let unknown = table.about.published.keys().find(|label| !table.labels.contains(label));
            assert_eq!(unknown, None, "{name}");
        }
    }
}

#[test]
fn a_new_method_joins_by_running_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut runs = Vec::new();
    let mut show = |_: &str, label: &str, _: u64| -> Box<dyn Watch> {
        runs.push(label.to_string());
        Box::new(Unwatched)
    };
    let filled = small().fill(&wishes(&[], folder.path()), &mut show).unwrap();
    assert_eq!(filled.lines.len(), 4);
    let of = |filled: &Filled, method: &str| filled.lines.iter().find(|line| line.method == method).unwrap().clone();
    assert_eq!(of(&filled, "fedavg").published, Some(40.0));
    assert_eq!(of(&filled, "local").better_alone, None);
    assert!(of(&filled, "fedavg").better_alone.is_some());
    // Two models of 650 numbers in single precision a round and client: three rounds are 0.09 MB.
    let fedavg = of(&filled, "fedavg");
    assert!(fedavg.megabytes.unwrap() > 0.05);
    // What it goes on from is part of what it costs.
    assert!(of(&filled, "fine-tune").megabytes.unwrap() > of(&filled, "ifca").megabytes.unwrap());
    let added = small().fill(&wishes(&["ditto".into()], folder.path()), &mut show).unwrap();
    assert_eq!(added.lines.len(), 5);
    assert!(of(&added, "ditto").mean.is_some());
    // It is in the table from then on, and nothing was run twice.
    assert_eq!(small().fill(&wishes(&[], folder.path()), &mut show).unwrap().lines.len(), 5);
    assert_eq!(runs, ["fedavg", "local", "ifca", "fine-tune", "ditto"]);
    let unknown = small().fill(&wishes(&["dito".into()], folder.path()), &mut |_, _, _| Box::new(Unwatched));
    assert!(unknown.unwrap_err().to_string().contains("did you mean \"ditto\"?"));
    let html = page(&[added]);
    assert!(html.contains("\"method\":\"ditto\"") && !html.contains("/*content*/[]"));
}
