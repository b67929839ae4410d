//! What reaches the terminal, and what happens where it cannot be reached.

use crate::bench::Bench;
use std::fs::OpenOptions;
use std::process::Stdio;

/// A file that takes nothing.
#[cfg(target_os = "linux")]
fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("a full device").into()
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_or_closed_stderr_does_not_change_how_a_command_ends() {
    let bench = Bench::new();
    bench.write("points.csv", "x,y\n1,2\n3,4\n5,7\n");
    for (code, arguments) in [
        (0, &["run", "tiny.toml"][..]),
        (1, &["run", "tiny.toml", "--set", "method.fedavg.step=1e6"]),
        (2, &["run", "missing.toml"]),
        (0, &["cluster", "points.csv", "--clusters", "2", "--out", "clustered"]),
        (2, &["no-such-command"]),
    ] {
        let full = bench.command(arguments).stderr(full()).stdout(Stdio::null()).status().expect("the program starts");
        assert_eq!(full.code(), Some(code), "{arguments:?}, full");
        let _ = std::fs::remove_dir_all(bench.path("clustered"));
        // A pipe whose reader is gone.
        let mut child = bench.command(arguments);
        let mut child = child.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the program starts");
        drop(child.stderr.take());
        assert_eq!(child.wait().expect("a child").code(), Some(code), "{arguments:?}, closed");
        let _ = std::fs::remove_dir_all(bench.path("clustered"));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_result_that_cannot_be_written_is_an_error_and_a_closed_pipe_is_none() {
    let bench = Bench::new();
    for arguments in [&["run", "tiny.toml"][..], &["list", "methods"], &["--help"], &["run", "tiny.toml", "--json"]] {
        let ended = bench.command(arguments).stdout(full()).output().expect("the program starts");
        assert!(matches!(ended.status.code(), Some(1 | 2)), "{arguments:?}: {:?}", ended.status);
        let mut child = bench.command(arguments);
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
        drop(child.stdout.take());
        assert_eq!(child.wait().expect("a child").code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn escape_sequences_in_cells_do_not_reach_the_terminal() {
    let bench = Bench::new();
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}2J\u{202e}";
    let rows = |id: &str| (0..6).map(|row| format!("{id},{row},{}\n", row * 2)).collect::<String>();
    bench.write("table.csv", format!("who,{hostile}x,y\n{}{}{}", rows(&format!("{hostile}a")), rows("b"), rows("c")));
    bench.write(
        "table.toml",
        "[data]\nsource = \"table\"\npath = \"table.csv\"\nclient = \"who\"\ntarget = \"y\"\ntask = \"regression\"\n\
         [model]\nkind = \"linear\"\n[[method]]\nname = \"ifca\"\nclusters = 3\nrounds = 2\n",
    );
    bench.write("points.csv", format!("id,{hostile}x,y\n{hostile}a,1,2\nb,3,4\nc,5,x\n"));
    bench.write("sound.csv", format!("id,{hostile}x,y\n{hostile}a,1,2\nb,3,4\nc,5,6\n"));
    for arguments in [
        &["run", "table.toml"][..],
        &["run", "table.toml", "--json"],
        &["run", "table.toml", "--set", "data.client=nobody"],
        &["run", "table.toml", "--set", "data.min_rows=7"],
        &["cluster", "points.csv", "--id", "id"],
        &["cluster", "points.csv", "--drop", "nobody"],
        &["cluster", "sound.csv", "--id", "id", "--clusters", "2"],
        &["cluster", "sound.csv", "--id", "id", "--clusters", "2", "--json"],
        &["run", "\u{1b}[31mfile"],
        &["list", "methods", "\u{1b}[31mname"],
    ] {
        let ended = bench.kinfolk(arguments);
        let odd = |text: &str| text.contains(|c: char| c.is_control() && c != '\n') || text.contains('\u{202e}');
        assert!(!odd(&ended.stdout) && !odd(&ended.stderr), "{arguments:?}: {:?} {:?}", ended.stdout, ended.stderr);
        if arguments.contains(&"--json") {
            serde_json::from_str::<serde_json::Value>(&ended.stdout).expect("still JSON");
        }
    }
}

#[test]
fn more_threads_than_any_machine_has_are_refused() {
    let bench = Bench::new();
    for command in [&["run", "tiny.toml"][..], &["cluster", "points.csv"], &["reproduce", "ifca"]] {
        for count in ["65535", "1025", "0", "-1", "many"] {
            let ended = bench.kinfolk(&[command, &[&format!("--threads={count}")]].concat());
            assert_eq!(ended.code, Some(2), "{command:?} {count}");
            assert!(ended.stderr.contains("want a whole number from 1 to 1024"), "{}", ended.stderr);
        }
    }
    bench.well(&["run", "tiny.toml", "--threads", "64"]);
}

#[test]
fn sizes_beyond_all_memory_are_refused_and_do_not_abort() {
    let bench = Bench::new();
    bench.write("tiny-images.toml", TINY_IMAGES);
    for settings in [
        &["data.clients=10000000", "data.samples=100000000"][..],
        &["data.dimension=1000000", "data.clients=1000000"],
        &["data.clients=10000000", "data.true_clusters=1000000", "data.dimension=1000000", "data.samples=1"],
        &["data.clients=10000000", "data.samples=100", "data.dimension=1000"],
        &["data.unseen_clients=10000000", "data.samples=1000000"],
    ] {
        let mut arguments = vec!["run", "tiny.toml"];
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        let ended = bench.kinfolk(&arguments);
        assert_eq!(ended.code, Some(2), "{settings:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("GB of memory would be needed"), "{settings:?}: {}", ended.stderr);
    }
    bench.write("points.csv", "x,y\n1,2\n3,4\n5,7\n");
    for options in [
        &["--path", "--path-values", "18446744073709551615"][..],
        &["--weights", "neighbours", "--neighbours", "18446744073709551615"],
        &["--method", "kmeans++", "--starts", "18446744073709551615"],
        &["--clusters", "18446744073709551615"],
    ] {
        let ended = bench.kinfolk(&[&["cluster", "points.csv"], options].concat());
        assert!(ended.code == Some(2) && ended.stderr.contains("want at most"), "{options:?}: {}", ended.stderr);
    }
    for settings in [
        &["model.hidden=[1048576, 1048576]"][..],
        &["model.hidden=[1048576, 2000]"],
        &["data.clients=10000000", "data.samples=100000000"],
    ] {
        let mut arguments = vec!["run", "tiny-images.toml"];
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        let ended = bench.kinfolk(&arguments);
        assert_eq!(ended.code, Some(2), "{settings:?}: {}", ended.stderr);
    }
}

const TINY_IMAGES: &str = "
[data]
source = \"digits\"
clients = 4
samples = 10
test_samples = 2
[model]
kind = \"mlp\"
[[method]]
name = \"fedavg\"
rounds = 1
";

#[test]
fn a_table_of_very_many_columns_is_read_in_good_time() {
    // Comparing every name with every other took minutes.
    let bench = Bench::new();
    let columns = 30_000;
    let names: Vec<String> = (0..columns).map(|column| format!("a-rather-long-name-of-a-column-{column}")).collect();
    let row = |value: usize| vec![value.to_string(); columns].join(",");
    bench.write("wide.csv", format!("{}\n{}\n{}\n{}\n", names.join(","), row(1), row(2), row(9)));
    let ended = bench.well(&["cluster", "wide.csv", "--clusters", "2", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(found["clusters"], 2);
    let dropped = bench.kinfolk(&["cluster", "wide.csv", "--drop", "nobody"]);
    assert!(dropped.code == Some(2) && dropped.stderr.len() < 2000, "{}", dropped.stderr.len());
}
