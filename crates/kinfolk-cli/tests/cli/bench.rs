//! A workbench for the tests: a folder of their own, commands, and what came out of them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Two planted families of linear clients. In double precision and far from any rounding of the table, so that
/// the numbers shown are the same on every machine.
pub const TINY: &str = r#"
name = "tiny"

[data]
source = "linear"
clients = 12
samples = 20
test_samples = 10
unseen_clients = 4
dimension = 5

[model]
kind = "linear"
intercept = false

[[method]]
name = "ifca"
clusters = 2
rounds = 12
step = 0.1

[[method]]
name = "fedavg"
rounds = 12
step = 0.1

[[method]]
name = "local"
rounds = 2
step = 0.1
"#;

/// A folder to work in, thrown away at the end.
pub struct Bench {
    folder: tempfile::TempDir,
}

/// What a finished command left.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Bench {
    /// A folder with [`TINY`] in it.
    pub fn new() -> Self {
        let bench = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        bench.write("tiny.toml", TINY);
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("below the folder")).expect("a writable folder");
        std::fs::write(path, text).expect("a writable folder");
    }

    pub fn read(&self, name: &str) -> String {
        let path = self.path(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).expect("JSON")
    }

    /// The program, about to run in the folder without any dataset.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kinfolk"));
        command.current_dir(self.folder.path()).args(arguments).stdin(Stdio::null());
        command.env("KINFOLK_DATA", self.path("datasets")).env("NO_COLOR", "1");
        command.env_remove("KINFOLK_CHECKPOINT_SECONDS");
        command
    }

    /// Runs the program to its end.
    pub fn kinfolk(&self, arguments: &[&str]) -> Ended {
        self.end(self.command(arguments).output().expect("the program starts"))
    }

    /// Runs it and insists that all went well.
    pub fn well(&self, arguments: &[&str]) -> Ended {
        let ended = self.kinfolk(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
        ended
    }

    pub fn end(&self, output: Output) -> Ended {
        let text = |bytes: Vec<u8>| self.plain(&String::from_utf8(bytes).expect("output is text"));
        Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// A text without what changes from run to run.
    fn plain(&self, text: &str) -> String {
        let folder = self.folder.path().to_str().expect("a plain path");
        text.replace(folder, "[FOLDER]").replace(env!("CARGO_PKG_VERSION"), "[VERSION]")
    }

    /// Every file below a folder, by its path from there, sorted.
    pub fn files(&self, name: &str) -> Vec<String> {
        fn walk(top: &Path, folder: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).expect("a readable folder") {
                let path = entry.expect("a readable folder").path();
                if path.is_dir() {
                    walk(top, &path, found);
                } else {
                    found.push(path.strip_prefix(top).expect("below").to_str().expect("a plain path").to_string());
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.path(name), &self.path(name), &mut found);
        found.sort();
        found
    }

    /// Asserts that two run folders agree in every file and in every byte of it, but for the seconds that a run took:
    /// those of summary.json, of rounds.csv, and of the record and the result table inside report.html.
    pub fn assert_same_run(&self, one: &str, other: &str) {
        let files = self.files(one);
        assert_eq!(files, self.files(other));
        for file in &files {
            let [a, b] = [one, other].map(|folder| self.path(folder).join(file));
            let [a, b] = [a, b].map(|path| std::fs::read(path).expect("readable"));
            match file.as_str() {
                "summary.json" => {
                    assert_eq!(summary_without_seconds(&a), summary_without_seconds(&b), "{one} and {other}: {file}");
                }
                "report.html" => {
                    assert!(page_without_seconds(&a) == page_without_seconds(&b), "{one} and {other}: {file}");
                }
                "rounds.csv" => assert_eq!(rounds_without_seconds(&a), rounds_without_seconds(&b), "{file}"),
                _ => assert!(a == b, "{one} and {other} differ in {file}"),
            }
        }
    }
}

/// The text of summary.json without the fields named seconds; everything else stays as it was written.
fn summary_without_seconds(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).expect("text");
    text.lines().filter(|line| !line.trim_start().starts_with("\"seconds\":")).map(|line| format!("{line}\n")).collect()
}

/// The page around its record, and the record without seconds.
fn page_without_seconds(bytes: &[u8]) -> (String, Value) {
    fn forget_seconds(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("seconds");
                fields.values_mut().for_each(forget_seconds);
            }
            Value::Array(list) => list.iter_mut().for_each(forget_seconds),
            _ => {}
        }
    }
    const BEGIN: &str = "<script type=\"application/json\" id=\"record\">";
    let text = std::str::from_utf8(bytes).expect("text");
    let (before, rest) = text.split_once(BEGIN).expect("a record");
    let (record, after) = rest.split_once("</script>").expect("the end of the record");
    let mut record: Value = serde_json::from_str(record).expect("JSON");
    forget_seconds(&mut record);
    let columns = record["table"]["columns"].as_array().expect("columns");
    let place = columns.iter().position(|column| column["title"] == "seconds").expect("a column `seconds`");
    for row in record["table"]["rows"].as_array_mut().expect("rows") {
        row[place] = Value::Null;
    }
    (format!("{before}{after}"), record)
}

/// The rows of rounds.csv without the column `seconds`.
fn rounds_without_seconds(bytes: &[u8]) -> Vec<Vec<&str>> {
    let text = std::str::from_utf8(bytes).expect("text");
    let place = text.lines().next().and_then(|header| header.split(',').position(|name| name == "seconds"));
    let place = place.expect("a column `seconds`");
    text.lines()
        .map(|line| line.split(',').enumerate().filter(|(index, _)| *index != place).map(|(_, cell)| cell).collect())
        .collect()
}

/// A result table without its last column, the seconds.
pub fn without_seconds(table: &str) -> String {
    let place = table.lines().next().and_then(|header| header.find("seconds")).expect("a column `seconds`");
    let (rows, rest) = table.split_once("\n\n").unwrap_or((table, ""));
    let cut: Vec<&str> = rows.lines().map(|line| line.get(..place).unwrap_or(line).trim_end()).collect();
    if rest.is_empty() { cut.join("\n") } else { format!("{}\n\n{rest}", cut.join("\n")) }
}
