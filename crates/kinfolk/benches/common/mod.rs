//! What the benchmarks share: the plain path to compare with, clocks, tables, and the Python they call.

#![allow(dead_code)] // no benchmark uses all of it

use kinfolk::data::{Client, Shard};
use kinfolk::error::{Error, ErrorKind, Result};
use kinfolk::experiment::Experiment;
use kinfolk::federation::Params;
use kinfolk::federation::engines::local::LocalFederation;
use kinfolk::groups::Groups;
use kinfolk::methods::{Method, Setup};
use kinfolk::models::Score;
use kinfolk::models::{Convex, Layout, Metric, Model, Precision, Seat, Worker};
use kinfolk::num::distance;
use kinfolk::rng::{Key, Rng};
use kinfolk::training::{Amount, Course, Optimiser, Plan, Portion, Sample, Terms};
use rayon::prelude::*;
use std::hint::black_box;
use std::iter::Sum;
use std::ops::Add;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A model whose workers take no fast path: a choice looks at every loss to its end, training goes step by step on
/// the weights themselves, and sums are sums of single vectors.
pub struct Plain(pub Arc<dyn Model>);

impl Model for Plain {
    fn layout(&self) -> &Layout {
        self.0.layout()
    }

    fn precision(&self) -> Precision {
        self.0.precision()
    }

    fn metrics(&self) -> &'static [Metric] {
        self.0.metrics()
    }

    fn curvature(&self, mean_square: f64) -> Option<f64> {
        self.0.curvature(mean_square)
    }

    fn initialise(&self, rng: &mut Rng) -> Result<Vec<f64>> {
        self.0.initialise(rng)
    }

    fn check(&self, client: &Client) -> Result<()> {
        self.0.check(client)
    }

    fn worker(&self, models: &[&[f64]]) -> Box<dyn Worker> {
        Box::new(PlainWorker(self.0.worker(models)))
    }

    fn likelihood(&self) -> f64 {
        self.0.likelihood()
    }

    fn convex(&self) -> Option<&dyn Convex> {
        self.0.convex()
    }
}

/// Leaves `choose` and `reduce` as the trait has them: the plain loops.
struct PlainWorker(Box<dyn Worker>);

impl Worker for PlainWorker {
    fn begin(&mut self, models: &[&[f64]]) {
        self.0.begin(models);
    }

    fn load(&mut self, params: &[f64]) -> usize {
        self.0.load(params)
    }

    fn width(&self) -> usize {
        self.0.width()
    }

    fn loss(&mut self, model: usize, rows: &Shard) -> f64 {
        self.0.loss(model, rows)
    }

    fn score(&mut self, model: usize, rows: &Shard) -> Score {
        self.0.score(model, rows)
    }

    fn gradient(&mut self, model: usize, seat: &Seat, sample: &Sample, out: &mut [f64]) -> f64 {
        self.0.gradient(model, seat, sample, out)
    }

    fn slope(&mut self, params: &[f64], seat: &Seat, rows: Option<&[u32]>, out: &mut [f64]) -> f64 {
        self.0.slope(params, seat, rows, out)
    }

    /// Fast paths are for all rows, and "the only part of one" is all rows by another name.
    fn train(&mut self, model: usize, seat: &Seat, plan: &Plan, out: &mut [f64]) -> f64 {
        let on = match plan.sample.on {
            Portion::All => Portion::Part { index: 0, of: 1 },
            part => part,
        };
        let plan = Plan { sample: Sample { on, ..plan.sample.clone() }, ..plan.clone() };
        self.0.train(model, seat, &plan, out)
    }
}

/// A federation of these clients, with all fast paths or with none.
pub fn federation(clients: &[Client], model: &Arc<dyn Model>, plain: bool) -> Result<LocalFederation> {
    let pool = kinfolk::compute::threads(THREADS)?;
    let federation = LocalFederation::new(clients.to_vec(), pool);
    let (mut federation, model): (_, Arc<dyn Model>) = match plain {
        true => (federation.from_single_answers(), Arc::new(Plain(model.clone()))),
        false => (federation, model.clone()),
    };
    federation.set_model(model)?;
    Ok(federation)
}

/// The first method of an experiment, at its beginning.
pub fn first_method(experiment: &Experiment, clients: &[Client], model: &Arc<dyn Model>) -> Result<Box<dyn Method>> {
    let entry = &experiment.methods[0];
    let rows: Vec<usize> = clients.iter().map(|client| client.train.len()).collect();
    (entry.kind.build)(Setup {
        place: format!("method.{}", entry.label),
        curvature: None,
        settings: &entry.settings,
        model: model.clone(),
        rows: &rows,
        truth: None,
        planted: None,
        groups: Groups::numbered(clients.iter().map(|client| client.truth)),
        over: None,
        facts: Default::default(),
        seed: 0,
        key: Key::new(0).word(&entry.label),
    })
}

/// Whether `cargo bench` called; `cargo test --all-targets` starts benchmarks as well and should not wait for them.
pub fn called_by_cargo_bench() -> bool {
    let called = std::env::args().any(|argument| argument == "--bench");
    if !called {
        println!("a benchmark: run it with cargo bench");
    }
    called
}

/// One line about when and where.
pub fn print_machine() {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    let date = date.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string()).unwrap_or_default();
    let about = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = about.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let processor = named.map_or("an unknown processor", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{date}, {cores} cores of {processor}, {THREADS} threads");
}

/// Threads for everybody who is compared.
pub const THREADS: usize = 2;

/// Watches how much of the machine other processes take while we measure: times taken in company are worth little.
pub struct Company {
    began: Instant,
    busy: Option<f64>,
}

impl Company {
    /// Begins to watch.
    pub fn watch() -> Self {
        Self { began: Instant::now(), busy: Self::busy_without_us() }
    }

    /// Says what was seen.
    pub fn print(&self) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        if let (Some(before), Some(now)) = (self.busy, Self::busy_without_us()) {
            let share = (now - before).max(0.0) / TICKS / (self.began.elapsed().as_secs_f64() * cores);
            println!("\nother processes took {:.0} % of the machine meanwhile", 100.0 * share);
        }
    }

    /// Ticks all cores were busy, less those of this process and of its children that have ended.
    fn busy_without_us() -> Option<f64> {
        let numbers = |text: &str, skip: usize, take: usize| -> Option<f64> {
            let fields: Vec<f64> = text.split_whitespace().skip(skip).take(take).flat_map(str::parse).collect();
            (fields.len() == take).then(|| fields.iter().sum())
        };
        // user, nice and system; then utime, stime, cutime and cstime, which follow the name in brackets.
        let all = numbers(std::fs::read_to_string("/proc/stat").ok()?.lines().next()?, 1, 3)?;
        let status = std::fs::read_to_string("/proc/self/stat").ok()?;
        let ours = numbers(status.rsplit_once(')')?.1, 11, 4)?;
        Some(all - ours)
    }
}

/// Of the kernel's clock in a second, as everywhere on Linux.
const TICKS: f64 = 100.0;

/// How long something takes, in seconds.
pub fn time<R>(work: impl FnOnce() -> R) -> (f64, R) {
    let began = Instant::now();
    let result = work();
    (began.elapsed().as_secs_f64(), result)
}

/// Seconds this thread was on a core, which Linux counts in steps of some milliseconds; elsewhere by the clock.
fn thread_seconds() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    nanoseconds
        .map_or_else(|| BEGAN.get_or_init(Instant::now).elapsed().as_secs_f64(), |nanoseconds| nanoseconds * 1e-9)
}

/// Seconds this thread was at some work.
pub fn thread_time<R>(work: impl FnOnce() -> R) -> (f64, R) {
    let before = thread_seconds();
    let result = work();
    (thread_seconds() - before, result)
}

/// So many plain steps of descent on all rows.
pub fn plain_descent(steps: u32, step: f64) -> Plan {
    Plan {
        sample: Sample::FULL,
        amount: Amount::Steps(steps),
        step,
        optimiser: Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 },
        terms: Terms::default(),
        course: Course::PLAIN,
    }
}

/// The middle one of several times.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    match times.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => times[middle],
        _ => (times[middle - 1] + times[middle]) / 2.0,
    }
}

/// Models end to end.
pub fn joined(models: &[Params]) -> Vec<f64> {
    models.iter().flat_map(|model| model.iter().copied()).collect()
}

/// ‖a − b‖ / ‖b‖, in words.
pub fn apart(a: &[f64], b: &[f64]) -> String {
    let size = b.iter().map(|value| value * value).sum::<f64>().sqrt();
    format!("models {:.0e} apart from ours, relatively", distance(a, b) / size)
}

/// One line of a table: what was measured, its seconds, and what is to be said about it.
pub struct Line {
    what: String,
    seconds: Option<f64>,
    note: String,
}

impl Line {
    /// Something that was measured.
    pub fn new(what: &str, seconds: f64, note: impl Into<String>) -> Self {
        Self { what: what.into(), seconds: Some(seconds), note: note.into() }
    }

    /// Something that could not be measured.
    pub fn absent(what: &str, why: &str) -> Self {
        Self { what: what.into(), seconds: None, note: format!("not measured: {why}") }
    }
}

/// Prints a table of times; `times` is each one's time as a multiple of the `base`.
pub fn print_table(title: &str, base: (&str, f64), lines: &[Line]) {
    println!("\n{title}");
    println!("  {:<44} {:>10} {:>12}", "", "seconds", format!("× {}", base.0));
    for line in lines {
        let (seconds, ratio) = match line.seconds {
            Some(seconds) => {
                (format!("{seconds:.*}", if seconds < 0.1 { 5 } else { 3 }), format!("{:.2}", seconds / base.1))
            }
            None => ("-".into(), "-".into()),
        };
        println!("  {:<44} {seconds:>10} {ratio:>12}  {}", line.what, line.note);
    }
}

/// The folder the workspace is in.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A Python that has this package: `KINFOLK_BENCH_PYTHON`, or a virtual environment that is made on demand. The error
/// says in a few words why there is none.
pub fn python_with(package: &str) -> std::result::Result<PathBuf, String> {
    let quietly = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let succeeds = |command: &mut Command| quietly(command).is_ok_and(|status| status.success());
    let imports = |python: &Path| succeeds(Command::new(python).args(["-c", &format!("import {package}")]));
    if let Some(python) = std::env::var_os("KINFOLK_BENCH_PYTHON").map(PathBuf::from) {
        return if imports(&python) { Ok(python) } else { Err(format!("{} has no {package}", python.display())) };
    }
    let environment = root().join(".venv-bench");
    let python = environment.join("bin/python");
    if !python.exists() && !succeeds(Command::new("python3").args(["-m", "venv"]).arg(&environment)) {
        return Err("python3 -m venv failed".into());
    }
    if !imports(&python) {
        eprintln!("installing {package} into {} …", environment.display());
        let wanted = root().join("benches/requirements.txt");
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", package, "--constraint"]).arg(wanted);
        if !succeeds(&mut install) || !imports(&python) {
            return Err(format!("{package} could not be installed"));
        }
    }
    Ok(python)
}

/// What a script in `benches/` prints as JSON, one document for each of the commands, which run at the same time.
pub fn run_scripts(python: &Path, script: &str, arguments: &[serde_json::Value]) -> Result<Vec<serde_json::Value>> {
    let fault = |message: String| Error::new(ErrorKind::Io, format!("benches/{script}: {message}"));
    let start = |argument: &serde_json::Value| {
        let mut command = Command::new(python);
        command.arg(root().join("benches").join(script)).arg(argument.to_string()).stdout(Stdio::piped());
        let threads = argument["threads"].to_string();
        for variable in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(variable, &threads);
        }
        command.spawn().map_err(|error| fault(error.to_string()))
    };
    let started: Vec<_> = arguments.iter().map(start).collect::<Result<_>>()?;
    let finish = |child: std::process::Child| {
        let output = child.wait_with_output().map_err(|error| fault(error.to_string()))?;
        serde_json::from_slice(&output.stdout).map_err(|_| fault(format!("ended with {}", output.status)))
    };
    started.into_iter().map(finish).collect()
}

/// The median of a script's `seconds`.
pub fn median_seconds(answer: &serde_json::Value) -> f64 {
    let seconds = answer["seconds"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_f64);
    median(seconds.collect())
}

/// Writes numbers as 4-byte floats, for a script to read.
pub fn write_floats(path: &Path, values: impl Iterator<Item = f64>) -> Result<()> {
    let bytes: Vec<u8> = values.flat_map(|value| (value as f32).to_le_bytes()).collect();
    write_bytes(path, &bytes)
}

/// Writes a file for a script to read.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(|error| Error::io("writing", path, error))
}

/// Reads the 4-byte floats a script wrote.
pub fn read_floats(path: &Path) -> Result<Vec<f64>> {
    let bytes = std::fs::read(path).map_err(|error| Error::io("reading", path, error))?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|four| f64::from(f32::from_le_bytes(*four))).collect())
}

/// Seconds to look at every number of all parts this many times, with the threads of the pool: the least that work on them
/// takes where no cache holds them.
pub fn reading<T: Copy + Default + Add<Output = T> + Sum + Send + Sync>(parts: &[&[T]], times: usize) -> f64 {
    let read = |part: &&[T]| {
        let lines = part.as_chunks::<64>().0;
        let sums = lines.iter().fold([T::default(); 64], |sums, line| std::array::from_fn(|at| sums[at] + line[at]));
        sums.into_iter().sum::<T>()
    };
    let look = || (0..times).map(|_| parts.par_iter().map(read).sum::<T>()).sum::<T>();
    median((0..5).map(|_| time(|| black_box(look())).0).collect())
}

/// Memory of this process, in MiB: what it holds now, and the most it held since [`forget_peak`].
pub fn memory() -> Option<(f64, f64)> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let of = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim().trim_end_matches(" kB").parse::<f64>().ok()? / 1024.0)
    };
    Some((of("VmRSS:")?, of("VmHWM:")?))
}

/// Has the system begin anew with [`memory`]'s peak. Without effect where that is not allowed.
pub fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
