//! `--on flower`: the clients are on machines that are connected to a Flower SuperLink. The Python package beside this program packs
//! the server's app, submits it and follows it; here its events become progress, a table and an exit code.

use super::*;
use crate::progress::Bars;
use kinfolk::record::Summary;
use kinfolk::run::Watch;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// Between two looks whether the user wants to stop.
const PATIENCE: Duration = Duration::from_millis(100);

/// Where clients are, if not here.
#[derive(clap::Args)]
#[command(next_help_heading = "Clients on other machines")]
pub struct Elsewhere {
    /// Where the clients are: flower, on the machines that are connected to a SuperLink (wants the Python package, with Flower)
    #[arg(long, value_name = "WHERE", value_parser = ["flower"], requires = "superlink")]
    on: Option<String>,
    /// The SuperLink: a connection in Flower's configuration, or HOST:PORT
    #[arg(long, value_name = "NAME", requires = "on")]
    superlink: Option<String>,
    /// With HOST:PORT, certificates of the authority that signed the SuperLink's
    #[arg(long, value_name = "FILE", requires = "on", conflicts_with = "insecure")]
    root_certificates: Option<PathBuf>,
    /// With HOST:PORT, send everything in the clear
    #[arg(long, requires = "on")]
    insecure: bool,
    /// Begin when so many machines are connected [default: 1]
    #[arg(long, value_name = "N", requires = "on", value_parser = clap::value_parser!(u32).range(1..))]
    machines: Option<u32>,
    /// Wait for them so many seconds [default: 300]
    #[arg(long, value_name = "SECONDS", requires = "on", value_parser = clap::value_parser!(u32).range(1..))]
    wait: Option<u32>,
    /// A machine without an answer is missing after so many seconds [default: 600]
    #[arg(long, value_name = "SECONDS", requires = "on", value_parser = clap::value_parser!(u32).range(1..))]
    timeout: Option<u32>,
}

/// What was found, and where it is on the machine of the SuperLink.
pub struct Found {
    /// The folder.
    pub folder: PathBuf,
    /// Of a run.
    pub summary: Option<Summary>,
    /// Of a fit, as text.
    pub shown: Option<String>,
}

#[derive(Serialize)]
struct Request<'a> {
    experiment: &'a str,
    superlink: &'a str,
    root_certificates: Option<&'a Path>,
    insecure: bool,
    settings: BTreeMap<&'static str, Value>,
}

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Line { text: String },
    Doing { what: String },
    Planned {},
    Method { label: String, seed: u64, from: usize, rounds: usize },
    Round { round: usize, loss: Option<f64>, metric: Option<f64> },
    Finished { label: String, seed: u64, status: String, reason: Option<String> },
    Ended { folder: PathBuf, summary: Option<String>, shown: Option<String> },
    Failed { kind: String, reason: String },
}

impl Elsewhere {
    /// Whether the clients are elsewhere.
    pub fn is_wanted(&self) -> bool {
        self.on.is_some()
    }

    /// Runs an experiment, or fits: `file` says what, `out` where the results go on the machine of the SuperLink.
    pub fn run(&self, file: &str, out: Option<&Path>, resume: bool) -> Result<Found> {
        let out = out.map(std::path::absolute).transpose();
        let out = out.map_err(|error| Error::new(ErrorKind::Io, format!("the folder of the results: {error}")))?;
        let numbers = [("machines", self.machines), ("wait", self.wait), ("timeout", self.timeout)];
        let mut settings: BTreeMap<&str, Value> =
            numbers.into_iter().filter_map(|(key, number)| Some((key, number?.into()))).collect();
        settings.extend(out.map(|out| ("out", out.display().to_string().into())));
        settings.extend(resume.then_some(("resume", true.into())));
        let request = Request {
            experiment: file,
            superlink: self.superlink.as_deref().unwrap_or_default(),
            root_certificates: self.root_certificates.as_deref(),
            insecure: self.insecure,
            settings,
        };
        let (stop, is_over) = (stop_on_interrupt(), AtomicBool::new(false));
        let (mut child, stdin) = start(&request)?;
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(PATIENCE);
                }
                // At its end the run is stopped.
                drop(stdin);
            });
            let found = follow(&mut child);
            is_over.store(true, Ordering::Relaxed);
            found
        });
        let ended = child.wait();
        match (found, ended) {
            (Ok(Some(found)), _) => Ok(found),
            (Err(error), _) => Err(error),
            (Ok(None), Ok(status)) => Err(Error::federation(format!("the run has ended without a result ({status})"))
                .hint("flwr ls and flwr log say more; the same command with --resume goes on, if it had --out")),
            (Ok(None), Err(error)) => Err(Error::new(ErrorKind::Io, format!("waiting for Python: {error}"))),
        }
    }
}

/// The Python that has the package: the one named, or the first one on the path.
fn python() -> String {
    std::env::var("KINFOLK_PYTHON").unwrap_or_else(|_| "python3".into())
}

/// Starts it. The run is stopped when its stdin is closed.
fn start(request: &Request) -> Result<(Child, Option<ChildStdin>)> {
    let python = python();
    let wanted = format!(
        "pip install 'kinfolk[flower]' of version {}, and name that Python with KINFOLK_PYTHON",
        env!("CARGO_PKG_VERSION")
    );
    let missing = |why: String| {
        Error::new(ErrorKind::Unsupported, format!("--on flower: {python} has no Kinfolk with Flower: {why}"))
            .hint(&wanted)
    };
    let script = "import kinfolk, kinfolk.flower; print(kinfolk.__version__)";
    let probe = Command::new(&python).args(["-c", script]).stdin(Stdio::null()).output();
    let probe = probe.map_err(|error| missing(error.to_string()))?;
    let version = String::from_utf8_lossy(&probe.stdout).trim().to_string();
    if !probe.status.success() {
        let said = String::from_utf8_lossy(&probe.stderr).trim().lines().last().unwrap_or_default().to_string();
        return Err(missing(said));
    }
    if version != env!("CARGO_PKG_VERSION") {
        return Err(missing(format!("got version {version}")));
    }
    let mut request =
        serde_json::to_vec(request).map_err(|error| Error::new(ErrorKind::Io, format!("json: {error}")))?;
    request.push(b'\n');
    let begin = || {
        let mut child = Command::new(&python)
            .args(["-m", "kinfolk.flower"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take();
        stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(&request))?;
        Ok((child, stdin))
    };
    begin().map_err(|error: std::io::Error| Error::new(ErrorKind::Io, format!("starting {python}: {error}")))
}

/// Shows what happens, and returns what was found in the end.
fn follow(child: &mut Child) -> Result<Option<Found>> {
    let mut bars = Bars::new(String::new());
    let mut found = None;
    let lines = child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
    for line in lines {
        let line = line.map_err(|error| Error::new(ErrorKind::Io, format!("reading from Python: {error}")))?;
        // What others print there is none of ours.
        let Ok(event) = serde_json::from_str(&line) else { continue };
        match event {
            Event::Line { text } => bars.say(&text),
            Event::Doing { what } => bars.doing(&what),
            Event::Planned {} => {}
            Event::Method { label, seed, from, rounds } => bars.method(&label, seed, from, rounds),
            Event::Round { round, loss, metric } => bars.reach(round, loss, metric),
            Event::Finished { label, seed, status, reason } => bars.end(&label, seed, &status, reason.as_deref()),
            Event::Ended { folder, summary, shown } => {
                let summary = summary.map(|text| serde_json::from_str(&text)).transpose();
                let summary = summary.map_err(|error| Error::new(ErrorKind::Io, format!("summary.json: {error}")))?;
                found = Some(Found { folder, summary, shown });
            }
            Event::Failed { kind, reason } => return Err(Error::new(kind_of(&kind), reason)),
        }
    }
    Ok(found)
}

fn kind_of(word: &str) -> ErrorKind {
    let kinds = [
        ErrorKind::Settings,
        ErrorKind::Data,
        ErrorKind::Io,
        ErrorKind::Unsupported,
        ErrorKind::Stopped,
        ErrorKind::Diverged,
        ErrorKind::Client,
    ];
    kinds.into_iter().find(|kind| kind.word() == word).unwrap_or(ErrorKind::Federation)
}
