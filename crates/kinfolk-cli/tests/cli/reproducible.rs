//! The same bytes on any number of threads, and after any number of kills.

use crate::bench::Bench;
use std::time::Duration;

/// The quickstart with clients that stay away and small batches, so that every kind of draw takes part.
const LIVELY: &str = r#"
name = "lively"
evaluate_every = 5

[data]
source = "digits"
clients = 20
samples = 40
test_samples = 10
unseen_clients = 4

[model]
kind = "mlp"
hidden = [24]

[[method]]
name = "ifca"
clusters = 4
rounds = 30
step = [0.1, 0.3]
restarts = 2
participation = 0.8

[[method]]
name = "fedavg"
rounds = 30
local_epochs = 2
batch = 7

[[method]]
name = "local"
rounds = 30
participation = 0.5

[[method]]
name = "oracle"
rounds = 30
optimiser = "adam"
step = 0.01

[faults]
silent = 0.1
garbage = 0.05
"#;

#[test]
fn one_thread_and_two_give_the_same_bytes() {
    let bench = Bench::new();
    bench.write("lively.toml", LIVELY);
    // Once with single answers, once with sums that are reduced while computing.
    for garbage in ["faults.garbage=0.05", "faults.garbage=0"] {
        let name = |threads: &str| format!("{}-{threads}", garbage.replace('.', "-"));
        for threads in ["1", "2", "3"] {
            bench.well(&["run", "lively.toml", "--set", garbage, "--threads", threads, "--out", &name(threads)]);
        }
        bench.assert_same_run(&name("1"), &name("2"));
        bench.assert_same_run(&name("1"), &name("3"));
    }
}

#[test]
fn a_killed_run_goes_on_as_if_nothing_had_happened() {
    let bench = Bench::new();
    bench.write("lively.toml", LIVELY);
    bench.well(&["run", "lively.toml", "--out", "whole"]);

    let arguments = ["run", "lively.toml", "--out", "killed"];
    let mut kills = 0;
    for attempt in 1u64.. {
        // A kill may come before anything was written: then there is nothing to resume.
        let resume = bench.path("killed").exists();
        let mut command = bench.command(&arguments);
        command.args(resume.then_some("--resume")).env("KINFOLK_CHECKPOINT_SECONDS", "0");
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        std::thread::sleep(Duration::from_millis(15 * attempt));
        if child.try_wait().expect("a child").is_none() {
            child.kill().expect("a child of ours");
            kills += usize::from(child.wait().expect("a child").code().is_none());
            continue;
        }
        let ended = bench.end(child.wait_with_output().expect("a child"));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        break;
    }
    assert!(kills >= 3, "only {kills} kills came in time");
    bench.assert_same_run("whole", "killed");
}

/// Ctrl-C is the gentle kill.
#[cfg(unix)]
#[test]
fn an_interrupted_run_says_how_to_go_on() {
    let bench = Bench::new();
    bench.write("lively.toml", LIVELY);
    let arguments = ["run", "lively.toml", "--out", "stopped", "--set", "method.ifca.rounds=100000"];
    let mut command = bench.command(&arguments);
    command.env("KINFOLK_CHECKPOINT_SECONDS", "0");
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("the program starts");
    while !bench.path("stopped/checkpoint/ifca-0.current").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let interrupt = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.expect("kill is there").success());
    let ended = bench.end(child.wait_with_output().expect("a child"));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    insta::assert_snapshot!("interrupted", ended.stderr);
    assert!(!bench.path("stopped/summary.json").exists());
    assert!(bench.path("stopped/checkpoint/ifca-0.current").exists());
}

#[test]
fn what_a_kill_left_half_written_is_cleaned_up() {
    let bench = Bench::new();
    bench.well(&["run", "tiny.toml", "--out", "whole"]);
    bench.well(&["run", "tiny.toml", "--out", "killed"]);
    std::fs::remove_file(bench.path("killed/summary.json")).expect("writable");
    bench.write("killed/models/ifca/0/.cluster-0.safetensors.77-1.part", "half a mod");
    bench.write("killed/.report.html.77-2.part", "<html");
    bench.well(&["run", "tiny.toml", "--out", "killed", "--resume"]);
    bench.assert_same_run("whole", "killed");
}

#[test]
fn resuming_a_finished_run_prints_its_result_again() {
    let bench = Bench::new();
    let first = bench.well(&["run", "tiny.toml", "--out", "out"]);
    let before = bench.read("out/summary.json");
    let again = bench.well(&["run", "tiny.toml", "--out", "out", "--resume"]);
    assert_eq!(again.stdout, first.stdout);
    assert_eq!(bench.read("out/summary.json"), before);
}

#[test]
fn another_seed_is_another_run() {
    let bench = Bench::new();
    bench.well(&["run", "tiny.toml", "--out", "zero"]);
    bench.well(&["run", "tiny.toml", "--out", "one", "--seed", "1"]);
    assert_ne!(bench.read("zero/clients.csv"), bench.read("one/clients.csv").replace(",1,", ",0,"));
}
