//! Input that is at fault: a clear message, exit code 2, and nothing that looks like a finished run.

use crate::bench::{Bench, TINY};

impl Bench {
    /// The message of a command that must be refused.
    fn refused(&self, arguments: &[&str]) -> String {
        let ended = self.kinfolk(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.stdout, "", "stdout is for results");
        assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
        ended.stderr
    }

    /// The message of a refused run, which must leave no run folder behind.
    fn refused_run(&self, arguments: &[&str]) -> String {
        let message = self.refused(&[&["run", "--out", "refused"], arguments].concat());
        assert!(!self.path("refused").exists(), "a folder was left behind");
        message
    }

    /// The message of a refused run of [`TINY`] with a piece of it replaced.
    fn refused_text(&self, from: &str, to: &str) -> String {
        assert!(TINY.contains(from));
        self.write("faulty.toml", TINY.replacen(from, to, 1));
        self.refused_run(&["faulty.toml"])
    }
}

#[test]
fn unknown_keys_and_names() {
    let bench = Bench::new();
    let mut messages = vec![
        bench.refused_text("rounds", "round"),
        bench.refused_text("samples", "sample"),
        bench.refused_text("name = \"tiny\"", "nmae = \"tiny\""),
        bench.refused_text("[model]", "[modle]"),
        bench.refused_text("clusters = 2", "clusters = 2\nxylophone = 3"),
    ];
    for (what, setting) in [
        ("a method", "method.ifca.name=ifac"),
        ("a former name", "method.ifca.name=fedem"),
        ("a model", "model.kind=liner"),
        ("a dataset", "data.source=minst"),
        ("nothing like it", "model.kind=transformer"),
        ("a label", "method.ifac.step=0.1"),
        ("a section", "date.clients=3"),
        ("no value", "data.clients"),
        ("a label that is to change", "method.ifca.label=other"),
    ] {
        messages.push(format!("# {what}\n{}", bench.refused_run(&["tiny.toml", "--set", setting])));
    }
    insta::assert_snapshot!("unknown", messages.join("\n"));
}

#[test]
fn a_device_that_is_not_there_is_said_before_any_work() {
    if kinfolk_cuda::Cuda::open(false, |_| ()).is_ok() {
        return;
    }
    let bench = Bench::new();
    let wanted = "error: device: \"cuda\" wants an NVIDIA device with its driver, found ";
    let refused = [
        bench.refused_run(&["tiny.toml", "--device", "cuda"]),
        bench.refused_text("name = \"tiny\"", "name = \"tiny\"\ndevice = \"cuda\""),
    ];
    assert!(refused.iter().all(|message| message.starts_with(wanted)), "{refused:?}");
    let ended = bench.kinfolk(&["run", "tiny.toml", "--device", "auto", "--out", "auto"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("computing on the CPU: found "), "{}", ended.stderr);
}

#[test]
fn wrong_types_and_values() {
    let bench = Bench::new();
    let mut messages = Vec::new();
    for setting in [
        "data.clients=many",
        "data.clients=2.5",
        "data.clients=0",
        "method.ifca.clusters=0",
        "method.ifca.clusters=13",
        "method.ifca.step=-1",
        "method.ifca.step=[]",
        "method.ifca.start=randon",
        "method.ifca.start=given",
        "method.ifca.shared=[\"layer7\"]",
        "method.ifca.resample=true",
        "method.fedavg.participation=0",
        "repeat=0",
        "metric=accuracy",
        "model.kind=softmax",
        "data.true_clusters=13",
    ] {
        messages.push(format!("# {setting}\n{}", bench.refused_run(&["tiny.toml", "--set", setting])));
    }
    insta::assert_snapshot!("values", messages.join("\n"));
    for (option, value) in [("--seed", "-1"), ("--seed", "18446744073709551615"), ("--repeat", "0"), ("--threads", "0")]
    {
        bench.refused_run(&["tiny.toml", option, value]);
    }
}

#[test]
fn several_faults_in_one_message() {
    let bench = Bench::new();
    let settings = ["data.clients=0", "model.kind=mpl", "method.ifca.clusters=0", "method.local.steep=1", "seed=x"];
    let mut arguments = vec!["tiny.toml"];
    settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
    insta::assert_snapshot!("several", bench.refused_run(&arguments));
}

#[test]
fn methods_that_are_none() {
    let bench = Bench::new();
    let beginning = TINY.split("[[method]]").next().expect("a beginning");
    let mut messages = Vec::new();
    for methods in [
        "",
        "[method]\nname = \"ifca\"\n",
        "[[method]]\nrounds = 3\n",
        "[[method]]\nname = 3\n",
        "[[method]]\nname = \"ifca\"\nclusters = 2\nlabel = 3\n",
        "[[method]]\nname = \"ifca\"\nclusters = 2\nlabel = \"../up\"\n",
        "[[method]]\nname = \"local\"\nlabel = \"a\"\n[[method]]\nname = \"local\"\nlabel = \"a\"\n",
    ] {
        bench.write("faulty.toml", format!("{beginning}{methods}"));
        messages.push(format!("# {}\n{}", methods.replace('\n', " ").trim_end(), bench.refused_run(&["faulty.toml"])));
    }
    bench.write("faulty.toml", format!("method = [1]\n{beginning}"));
    messages.push(format!("# method = [1]\n{}", bench.refused_run(&["faulty.toml"])));
    bench.write(
        "faulty.toml",
        TINY.replace("source = \"linear\"", "source = \"digits\"\nclusters = \"none\"")
            .replace("dimension = 5", "")
            .replace("kind = \"linear\"", "kind = \"softmax\"")
            .replace("local", "oracle"),
    );
    messages.push(format!("# oracle without truth\n{}", bench.refused_run(&["faulty.toml"])));
    insta::assert_snapshot!("methods", messages.join("\n"));
}

#[test]
fn experiment_files_that_are_none() {
    let bench = Bench::new();
    bench.write("words.toml", "This is not TOML.\n");
    bench.write("cut.toml", "name = \"cut\n");
    bench.write("bytes.toml", [0x80, 0xff, 0x00]);
    let names = ["words.toml", "cut.toml", "bytes.toml", "absent.toml", "quickstat", "."];
    let messages = names.map(|name| format!("# {name}\n{}", bench.refused_run(&[name])));
    insta::assert_snapshot!("files", messages.join("\n"));
}

fn digits_from_mnist(bench: &Bench) -> String {
    bench.refused_run(&["quickstart", "--set", "data.source=mnist"])
}

#[test]
fn a_dataset_that_is_not_there() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("datasets")).expect("writable");
    insta::assert_snapshot!("no-dataset", digits_from_mnist(&bench));
}

/// MNIST in name and size only: enough for the program to look inside.
fn write_mnist(bench: &Bench, cut: usize) {
    for (name, count, image) in [
        ("train-images-idx3-ubyte", 60_000u32, true),
        ("t10k-images-idx3-ubyte", 10_000, true),
        ("train-labels-idx1-ubyte", 60_000, false),
        ("t10k-labels-idx1-ubyte", 10_000, false),
    ] {
        let mut bytes = vec![0, 0, 8, if image { 3 } else { 1 }];
        bytes.extend(count.to_be_bytes());
        if image {
            bytes.extend([0, 0, 0, 28, 0, 0, 0, 28]);
        }
        let size = if image { 784 } else { 1 };
        bytes.resize(bytes.len() + count as usize * size, 0);
        if name == "train-images-idx3-ubyte" {
            bytes.truncate(bytes.len() - cut);
        }
        bench.write(&format!("datasets/mnist/{name}"), bytes);
    }
}

#[test]
fn a_truncated_dataset() {
    let bench = Bench::new();
    write_mnist(&bench, 1000);
    insta::assert_snapshot!("cut-dataset", digits_from_mnist(&bench));
    // A packed file says nothing of its size until it is read.
    std::fs::rename(
        bench.path("datasets/mnist/train-images-idx3-ubyte"),
        bench.path("datasets/mnist/train-images-idx3-ubyte.gz"),
    )
    .expect("writable");
    insta::assert_snapshot!("cut-dataset-packed", digits_from_mnist(&bench));
}

#[test]
fn folders_that_cannot_be_used() {
    let bench = Bench::new();
    let refuse = |arguments: &[&str]| {
        let message = bench.refused(&[&["run", "tiny.toml", "--out"], arguments].concat());
        format!("# {}\n{message}", arguments.join(" "))
    };
    let mut messages = vec![refuse(&["tiny.toml/out"]), refuse(&["tiny.toml"]), refuse(&["absent", "--resume"])];
    assert!(!bench.path("absent").exists());
    bench.well(&["run", "tiny.toml", "--out", "done"]);
    let before = bench.read("done/summary.json");
    messages.push(refuse(&["done"]));
    messages.push(refuse(&[
        "done",
        "--resume",
        "--set",
        "method.fedavg.step=0.2",
        "--set",
        "data.noise=0.5",
        "--set",
        "method.local.local_steps=3",
    ]));
    assert_eq!(bench.read("done/summary.json"), before, "what was there is untouched");
    // As a kill leaves it.
    std::fs::remove_file(bench.path("done/summary.json")).expect("writable");
    messages.push(refuse(&["done"]));
    insta::assert_snapshot!("folders", messages.join("\n"));
    bench.refused(&["run", "tiny.toml", "--resume"]);
}

#[test]
fn a_checkpoint_time_that_is_none() {
    let bench = Bench::new();
    let mut command = bench.command(&["run", "tiny.toml", "--out", "out"]);
    let ended = bench.end(command.env("KINFOLK_CHECKPOINT_SECONDS", "often").output().expect("the program starts"));
    assert_eq!(ended.code, Some(2));
    insta::assert_snapshot!("checkpoint-seconds", ended.stderr);
}

#[test]
fn steps_that_diverge_are_an_outcome_and_the_other_methods_stay() {
    let bench = Bench::new();
    let ended = bench.kinfolk(&[
        "run",
        "tiny.toml",
        "--out",
        "out",
        "--set",
        "method.ifca.step=100",
        "--set",
        "method.local.step=1e200",
    ]);
    assert_eq!(ended.code, Some(1));
    insta::assert_snapshot!("diverged-table", crate::bench::without_seconds(&ended.stdout));
    insta::assert_snapshot!("diverged-talk", ended.stderr);
    let summary = bench.json("out/summary.json");
    let statuses: Vec<&str> =
        summary["methods"].as_array().expect("methods").iter().filter_map(|method| method["status"].as_str()).collect();
    assert_eq!(statuses, ["diverged", "done", "diverged"]);
    assert!(summary["methods"][0]["repeats"][0].get("metric").is_none());
    assert!(summary["methods"][1]["repeats"][0]["metric"]["mean"].as_f64().expect("a number") < 10.0);
    assert!(bench.path("out/models/fedavg/0/global.safetensors").exists());
    assert!(!bench.path("out/models/ifca").exists(), "a diverged model is of no use");
}

#[test]
fn a_client_that_must_answer_and_does_not_fails_its_method() {
    let bench = Bench::new();
    let ended = bench.kinfolk(&[
        "run",
        "tiny.toml",
        "--out",
        "out",
        "--set",
        "faults.silent=0.3",
        "--set",
        "method.fedavg.missing=fail",
    ]);
    assert_eq!(ended.code, Some(1));
    insta::assert_snapshot!("failed-talk", ended.stderr);
    assert_eq!(bench.json("out/summary.json")["methods"][1]["status"], "failed");
}

#[test]
fn nodes_and_runs_elsewhere() {
    let bench = Bench::new();
    bench.write("node.toml", "[node]\npartition = [0, 1]\n");
    bench.write("empty.toml", "[node]\n");
    bench.write("key", "no key");
    bench.write("rows.csv", "shop,spent\na,1\n");
    let node = |arguments: &[&str]| bench.refused(&[&["node", "--superlink", "127.0.0.1:1"], arguments].concat());
    let messages = [
        node(&["nowhere.toml", "--insecure"]),
        node(&["empty.toml", "--insecure"]),
        node(&["--insecure", "--data", "rows.csv", "--client", "shop"]),
        node(&["node.toml", "--key", "key"]),
        node(&["node.toml", "--root-certificates", "key"]),
        node(&["node.toml", "--partition", "0/1"]),
        node(&["--partition", "0"]),
        bench.refused(&["node", "--superlink", "here", "--insecure", "node.toml"]),
        bench.refused(&["run", "tiny.toml", "--on", "flower"]),
        bench.refused(&["run", "tiny.toml", "--on", "moon", "--superlink", "there"]),
        bench.refused(&["fit", "--on", "flower", "--superlink", "there", "--client", "a", "--target", "b", "--json"]),
        bench.refused(&["fit", "--on", "flower", "--superlink", "there", "--client", "a"]),
    ];
    insta::assert_snapshot!("elsewhere", messages.join("\n"));
}
