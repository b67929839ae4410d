//! The same bytes on any number of threads, and after any number of kills.

use crate::bench::Bench;
use serde_json::Value;
use std::process::Stdio;
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
        command.stdout(Stdio::null()).stderr(Stdio::piped());
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
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
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

/// All numbers of two documents, which must be alike but for them.
fn numbers<'a>(a: &'a Value, b: &'a Value, found: &mut Vec<(f64, f64)>) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            assert!(a.keys().eq(b.keys()));
            a.iter().filter(|(name, _)| *name != "seconds").for_each(|(name, a)| numbers(a, &b[name], found));
        }
        (Value::Array(a), Value::Array(b)) => a.iter().zip(b).for_each(|(a, b)| numbers(a, b, found)),
        _ => found.extend(a.as_f64().zip(b.as_f64())),
    }
}

#[test]
fn what_loops_are_compiled_for_changes_last_digits_alone() {
    const TOLERANCE: f64 = 1e-6;
    let bench = Bench::new();
    let run = |preset: &str, cpu: &str| {
        let out = format!("{preset}-{cpu}");
        let ended = bench.command(&["run", preset, "--out", &out]).env("KINFOLK_CPU", cpu).output();
        assert!(ended.expect("the program starts").status.success());
        bench.json(&format!("{out}/summary.json"))
    };
    for preset in ["quickstart", "mixtures"] {
        let (found, baseline) = (run(preset, "auto"), run(preset, "baseline"));
        assert_eq!(baseline["cpu"], "baseline");
        for (one, other) in
            found["methods"].as_array().into_iter().flatten().zip(baseline["methods"].as_array().unwrap())
        {
            let mut pairs = Vec::new();
            numbers(&one["mean"], &other["mean"], &mut pairs);
            assert!(pairs.len() > 5);
            for (a, b) in pairs {
                assert!((a - b).abs() <= TOLERANCE * a.abs().max(1.0), "{preset}, {}: {a} and {b}", one["label"]);
            }
        }
    }
    let refused =
        bench.command(&["run", "tiny.toml"]).env("KINFOLK_CPU", "abacus").output().expect("the program starts");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("KINFOLK_CPU: got \"abacus\", want auto or baseline"), "{text}");
}

#[test]
fn a_run_that_goes_on_with_other_instructions_says_so() {
    let bench = Bench::new();
    bench.write("lively.toml", LIVELY);
    let arguments = ["run", "lively.toml", "--out", "moved", "--set", "method.ifca.rounds=2000"];
    let mut command = bench.command(&arguments);
    command.env("KINFOLK_CHECKPOINT_SECONDS", "0").env("KINFOLK_CPU", "baseline");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    while !bench.path("moved/checkpoint/ifca-0.current").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().and_then(|()| child.wait()).expect("a child of ours");
    bench.well(&[&arguments[..], &["--resume"]].concat());
    let summary = bench.json("moved/summary.json");
    let cpu = summary["cpu"].as_str().unwrap_or_default();
    let notes = summary["methods"][0]["repeats"][0]["notes"].to_string();
    let said = notes.contains(&format!("begun with baseline, resumed with {cpu}: last digits may differ"));
    assert_eq!(said, cpu != "baseline", "{notes}");
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
