//! One run a folder, whoever else wants it.

use crate::bench::Bench;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A run that does not end by itself, once it has begun to write.
fn endless(bench: &Bench, folder: &str) -> Child {
    let endless = ["run", "tiny.toml", "--out", folder, "--set", "method.ifca.rounds=1000000000"];
    let mut command = bench.command(&endless);
    command.env("KINFOLK_CHECKPOINT_SECONDS", "0").stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("the program starts");
    let began = Instant::now();
    while !bench.path(folder).join("checkpoint/ifca-0.current").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "it never began");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn a_second_run_in_the_same_folder_is_refused_until_the_first_is_gone() {
    let bench = Bench::new();
    let mut first = endless(&bench, "out");
    let wanted = format!("error: out: in use by process {}\n", first.id());
    for more in [&["--resume"][..], &[]] {
        let refused = bench.kinfolk(&[&["run", "tiny.toml", "--out", "out"], more].concat());
        assert_eq!((refused.code, refused.stderr.starts_with(&wanted)), (Some(2), true), "{}", refused.stderr);
    }
    let points = "x,y\n1,2\n3,4\n5,7\n";
    bench.write("points.csv", points);
    let refused = bench.kinfolk(&["cluster", "points.csv", "--out", "out"]);
    assert_eq!((refused.code, refused.stderr.starts_with(&wanted)), (Some(2), true), "{}", refused.stderr);
    first.kill().expect("a child of ours");
    first.wait().expect("a child");
    // What is left of a killed process holds nobody up.
    let refused = bench.kinfolk(&["run", "tiny.toml", "--out", "out"]);
    assert!(refused.stderr.contains("holds an unfinished run"), "{}", refused.stderr);
    let arguments = ["run", "tiny.toml", "--out", "out", "--resume", "--set", "method.ifca.rounds=1000000000"];
    let mut second = bench.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(300));
    assert!(second.try_wait().expect("a child").is_none(), "it goes on");
    second.kill().expect("a child of ours");
    second.wait().expect("a child");
}

#[test]
fn runs_started_in_the_same_second_get_folders_of_their_own() {
    let bench = Bench::new();
    let start = |_| {
        let mut command = bench.command(&["run", "tiny.toml", "--threads", "1"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts")
    };
    let children: Vec<Child> = (0..8).map(start).collect();
    for child in children {
        let ended = bench.end(child.wait_with_output().expect("a child"));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    let folders: Vec<_> =
        std::fs::read_dir(bench.path("runs")).expect("runs").map(|it| it.expect("readable")).collect();
    assert_eq!(folders.len(), 8);
    for folder in folders {
        assert!(folder.path().join("summary.json").exists() && folder.path().join("models/ifca/0").is_dir());
        assert!(!folder.path().join(".kinfolk-lock").exists());
    }
}

#[test]
fn of_many_runs_in_one_folder_one_is_done_and_the_others_say_why_not() {
    let bench = Bench::new();
    let start = |seed: usize| {
        let mut command = bench.command(&["run", "tiny.toml", "--out", "out", "--seed", &seed.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts")
    };
    let children: Vec<Child> = (0..8).map(start).collect();
    let mut done = Vec::new();
    for (seed, child) in children.into_iter().enumerate() {
        let ended = bench.end(child.wait_with_output().expect("a child"));
        match ended.code {
            Some(0) => done.push(seed),
            code => {
                let why = ["in use by", "holds a finished run", "holds an unfinished run", "holds a `"];
                assert!(code == Some(2) && why.iter().any(|why| ended.stderr.contains(why)), "{}", ended.stderr);
            }
        }
    }
    assert_eq!(done.len(), 1);
    bench.well(&["run", "tiny.toml", "--out", "alone", "--seed", &done[0].to_string()]);
    bench.assert_same_run("alone", "out");
}

#[test]
fn a_refused_run_leaves_no_folder_behind() {
    let bench = Bench::new();
    let refused = bench.kinfolk(&["run", "tiny.toml", "--set", "method.ifca.clusters=1000"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let left = std::fs::read_dir(bench.path("runs")).map_or(0, |folder| folder.count());
    assert_eq!(left, 0);
}

#[test]
fn an_experiment_with_a_long_name_has_a_folder() {
    let bench = Bench::new();
    let name = format!("name={}/é", "x".repeat(500));
    bench.well(&["run", "tiny.toml", "--set", &name]);
}
