//! Calls a reader with many spoiled inputs, and says how to repeat the one that it could not take.
//!
//! `KINFOLK_FUZZ_SEED`, `KINFOLK_FUZZ_CASES` (of every reader) and `KINFOLK_FUZZ_CASE` (this one alone) say which.

use super::mutate;
use kinfolk::rng::Key;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A call that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(60);
/// A process that ever took more memory than this, in kB, took too much.
const MOST_MEMORY: u64 = 4 << 20;
/// Memory is looked at after so many cases.
const BETWEEN_LOOKS: u64 = 64;

/// A number from the environment.
pub fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(format!("KINFOLK_FUZZ_{name}")).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("KINFOLK_FUZZ_{name}: got {text}, want a whole number")))
}

/// The seed of all draws.
pub fn seed() -> u64 {
    setting("SEED").unwrap_or(0)
}

/// The cases to call: one, or as many as wanted; `usual` where nothing is said. Slow readers get a share of them.
pub fn cases(usual: u64, one_in: u64) -> std::ops::Range<u64> {
    match setting("CASE") {
        Some(case) => case..case + 1,
        None => 0..setting("CASES").map_or(usual, |cases| cases.div_ceil(one_in)),
    }
}

/// A family of inputs that one reader is called with.
pub struct Inputs {
    name: &'static str,
    corpus: Vec<Vec<u8>>,
    /// Whether the reader must take them as they are.
    valid: bool,
    key: Key,
}

impl Inputs {
    /// Inputs made from these valid ones.
    pub fn of(name: &'static str, corpus: Vec<Vec<u8>>) -> Arc<Self> {
        Arc::new(Self { name, corpus, valid: true, key: Key::new(seed()).word("fuzz").word(name) })
    }

    /// Inputs made from these, which may be meant for somebody else.
    pub fn mixed(name: &'static str, corpus: Vec<Vec<u8>>) -> Arc<Self> {
        Arc::new(Self { name, corpus, valid: false, key: Key::new(seed()).word("fuzz").word(name) })
    }

    /// The input of one case.
    pub fn case(&self, case: u64) -> Vec<u8> {
        mutate::input(&self.corpus, &self.key, case)
    }

    /// Keeps the input of a case, and says how to come back to it.
    pub fn explain(&self, case: u64, what: &str) -> String {
        let path = std::env::temp_dir().join(format!("kinfolk-fuzz-{}-{}-{case}", self.name, seed()));
        let kept = match std::fs::write(&path, self.case(case)) {
            Ok(()) => format!("its input is kept in {}", path.display()),
            Err(error) => format!("its input could not be kept: {error}"),
        };
        let name = self.name;
        format!("{name}: {what}; {kept}; again: make fuzz READER={name} SEED={} CASE={case}", seed())
    }
}

/// Calls a reader with every case and its number. It says whether it accepted the input; valid ones it must.
pub fn fuzz(inputs: &Arc<Inputs>, cases: std::ops::Range<u64>, mut call: impl FnMut(u64, &[u8]) -> bool) {
    let watch = Watchdog::over(inputs.clone());
    let (begun, mut accepted) = (Instant::now(), 0u64);
    for case in cases.clone() {
        let input = inputs.case(case);
        watch.begin(case);
        let outcome = catch_unwind(AssertUnwindSafe(|| call(case, &input)));
        match outcome {
            Ok(true) => accepted += 1,
            Ok(false) if inputs.valid && case < inputs.corpus.len() as u64 => {
                panic!("{}", inputs.explain(case, "refused a valid input"))
            }
            Ok(false) => {}
            Err(_) => panic!("{}", inputs.explain(case, "panicked")),
        }
        if case % BETWEEN_LOOKS == 0 && peak_memory().is_some_and(|peak| peak > MOST_MEMORY) {
            panic!("{}", inputs.explain(case, "took too much memory, now or a few cases ago"));
        }
    }
    let (count, seconds) = (cases.end - cases.start, begun.elapsed().as_secs_f64());
    println!("{}: {count} cases, {accepted} accepted, seed {}, {seconds:.1} s", inputs.name, seed());
}

/// The most memory this process has had, in kB, where the system says so.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

/// Ends the process, with the input kept, when a call does not come back.
struct Watchdog {
    /// The case and the second it began in, since the watch began; nothing before the first.
    at: Arc<(AtomicU64, AtomicU64)>,
    over: Arc<AtomicBool>,
    since: Instant,
}

impl Watchdog {
    fn over(inputs: Arc<Inputs>) -> Self {
        let (at, over) = (Arc::new((AtomicU64::new(0), AtomicU64::new(0))), Arc::new(AtomicBool::new(false)));
        let since = Instant::now();
        let (seen, ended) = (at.clone(), over.clone());
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(200));
                let (case, begun) = (seen.0.load(Ordering::Relaxed), seen.1.load(Ordering::Relaxed));
                if !ended.load(Ordering::Relaxed) && since.elapsed().as_secs() > begun + LONGEST.as_secs() {
                    eprintln!("{}", inputs.explain(case, "hangs"));
                    std::process::exit(1);
                }
            }
        });
        Self { at, over, since }
    }

    fn begin(&self, case: u64) {
        self.at.0.store(case, Ordering::Relaxed);
        self.at.1.store(self.since.elapsed().as_secs(), Ordering::Relaxed);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A file in memory where there is such a folder, else on disk; gone when dropped.
pub struct Place(tempfile::TempDir);

impl Place {
    /// A folder of its own.
    pub fn new() -> Self {
        let memory = std::path::Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self(folder.expect("a folder for files"))
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and returns its path.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    }
}
