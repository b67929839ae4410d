//! The same bits for any number of ranks, and after a rank was killed. Needs `mpirun`.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const EXPERIMENT: &str = r#"
name = "ranks"
evaluate_every = 3
sums = "integer"
[data]
source = "linear"
clients = 13
samples = 12
test_samples = 6
dimension = 24
[model]
kind = "linear"
intercept = false
[[method]]
name = "ifca"
clusters = 2
rounds = 6
step = 0.05
[[method]]
name = "local"
rounds = 4
step = 0.05
[[method]]
name = "al2sgd+"
groups = "truth"
gamma = 0.2
lambda = 0.3
iterations = 40
chance_between = 0.1
chance_within = 0.2
"#;

fn mpirun(ranks: usize, experiment: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--allow-run-as-root", "-np", &ranks.to_string()]);
    command.arg(env!("CARGO_BIN_EXE_kinfolk-mpi")).arg("run").arg(experiment).arg("--out").arg(out).args(more);
    command.env("KINFOLK_CHECKPOINT_SECONDS", "0").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn written(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("experiment.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// All that a run found, without times.
fn found(out: &Path) -> (Value, String, Vec<(PathBuf, Vec<u8>)>) {
    let mut summary: Value =
        serde_json::from_slice(&std::fs::read(out.join("summary.json")).expect("the run is finished")).unwrap();
    for method in summary["methods"].as_array_mut().unwrap() {
        let all = method.as_object_mut().unwrap();
        for numbers in ["mean", "sd"] {
            all.get_mut(numbers).and_then(Value::as_object_mut).map(|numbers| numbers.remove("seconds"));
        }
        for repeat in all["repeats"].as_array_mut().unwrap() {
            repeat.as_object_mut().unwrap().remove("seconds");
        }
    }
    let clients = std::fs::read_to_string(out.join("clients.csv")).unwrap();
    let mut models = Vec::new();
    let mut folders = vec![out.join("models")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                models.push((path.strip_prefix(out).unwrap().to_path_buf(), std::fs::read(&path).unwrap()));
            }
        }
    }
    models.sort();
    (summary, clients, models)
}

#[test]
fn any_number_of_ranks_gives_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = written(folder.path(), EXPERIMENT);
    let run = |ranks: usize| {
        let out = folder.path().join(format!("on-{ranks}"));
        let output = mpirun(ranks, &experiment, &out, &["--threads", "1"]).output().expect("mpirun is installed");
        assert!(output.status.success(), "{ranks} ranks: {}", said(&output));
        found(&out)
    };
    let one = run(1);
    assert!(one.2.iter().any(|(path, _)| path.ends_with("ifca/0/cluster-1.safetensors")));
    for ranks in [2, 3, 4] {
        assert_eq!(run(ranks), one, "{ranks} ranks");
    }
    // The engine in one process, with the same sums.
    let text = std::fs::read_to_string(&experiment).unwrap();
    let here = kinfolk::experiment::Experiment::parse("test", &text, &[]).unwrap();
    let out = folder.path().join("here");
    let options = kinfolk::run::Options { folder: Some(out.clone()), ..Default::default() };
    kinfolk::run::run(&here, &options, &mut kinfolk::run::Unwatched).unwrap();
    let here = found(&out);
    assert_eq!((one.1, one.2), (here.1, here.2));
}

/// The processes whose parent is this one.
fn children(parent: u32) -> Vec<u32> {
    let listed = Command::new("ps").args(["-o", "pid=", "--ppid", &parent.to_string()]).output().unwrap();
    String::from_utf8_lossy(&listed.stdout).split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Kills the last of the ranks as soon as there is a checkpoint of the method.
fn kill_a_rank(job: &mut Child, checkpoint: &Path) {
    let began = Instant::now();
    while !checkpoint.exists() {
        assert!(began.elapsed() < Duration::from_secs(60) && job.try_wait().unwrap().is_none(), "no checkpoint");
        std::thread::sleep(Duration::from_millis(2));
    }
    let rank = children(job.id()).into_iter().max().expect("ranks are children of mpirun");
    assert!(Command::new("kill").args(["-9", &rank.to_string()]).status().unwrap().success());
}

#[test]
fn a_killed_rank_ends_the_job_which_goes_on_with_another_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let text = EXPERIMENT.replace("rounds = 4", "rounds = 400").replace("iterations = 40", "iterations = 20");
    let experiment = written(folder.path(), &text);
    let straight = folder.path().join("straight");
    let output = mpirun(2, &experiment, &straight, &["--threads", "1"]).output().expect("mpirun is installed");
    assert!(output.status.success(), "{}", said(&output));
    let out = folder.path().join("killed");
    let mut job = mpirun(3, &experiment, &out, &["--threads", "1"]).spawn().unwrap();
    kill_a_rank(&mut job, &out.join("checkpoint/local-0.current"));
    let ended = job.wait_with_output().unwrap();
    assert!(!ended.status.success(), "{}", said(&ended));
    assert!(!out.join("summary.json").exists());
    let output = mpirun(4, &experiment, &out, &["--threads", "1", "--resume"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(found(&out), found(&straight));
}

#[test]
fn what_is_wrong_is_said_once_and_ends_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for (change, wanted) in [("step = 0.05\nclusterz = 2", "clusterz"), ("rounds = 6\nclusters = 0", "clusters")] {
        let (from, _) = change.split_once('\n').unwrap();
        let experiment = written(folder.path(), &EXPERIMENT.replacen(from, change, 1));
        let output = mpirun(2, &experiment, &out, &[]).output().unwrap();
        let said = said(&output);
        assert!(!output.status.success() && said.matches("error: ").count() == 1 && said.contains(wanted), "{said}");
    }
    let experiment = written(folder.path(), EXPERIMENT);
    let output = mpirun(3, &experiment, &out, &["--set", "data.clients=2", "--set", "data.true_clusters=1"]).output();
    let output = output.unwrap();
    assert!(said(&output).contains("at most 2 partitions for 2 clients"), "{}", said(&output));
    assert!(!output.status.success());
}
