//! How to run an experiment, and who watches.

use super::*;
use crate::compute::{Backend, Cpu};
use crate::data::own::OwnStart;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How to run an experiment.
pub struct Options {
    /// The run folder; `None` keeps everything in memory.
    pub folder: Option<PathBuf>,
    /// Number of threads; 0 for one per core.
    pub threads: usize,
    /// Where clients compute.
    pub backend: Arc<dyn Backend>,
    /// Resume the run in the folder.
    pub resume: bool,
    /// Raise it to stop the run, which can then be resumed from its checkpoint.
    pub stop: Arc<AtomicBool>,
    /// Least time between two checkpoints of one method.
    pub checkpoint_every: Duration,
    /// Sum single answers instead of reducing while computing, as integers unless the experiment says otherwise: the bits that
    /// clients on other machines give.
    pub single_answers: bool,
    /// Return the models with the record; a run that writes them to its folder need not hold them too.
    pub keep_models: bool,
    /// The initial model of the user's own code.
    pub start: Option<OwnStart>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            folder: None,
            threads: 0,
            backend: Arc::new(Cpu),
            resume: false,
            stop: Arc::new(AtomicBool::new(false)),
            checkpoint_every: Duration::from_secs(10),
            single_answers: false,
            keep_models: true,
            start: None,
        }
    }
}

/// Follows the progress of a run.
pub trait Watch {
    /// Something slow begins: making the data, evaluating.
    fn doing(&mut self, _what: &str) {}
    /// A method will make about this many asks on each of this many seeds. Called before any method runs, and again
    /// when the estimate changes.
    fn planned(&mut self, _label: &str, _questions: usize, _seeds: usize) {}
    /// A method begins, or resumes from a round.
    fn method(&mut self, _label: &str, _seed: u64, _from: usize, _rounds: usize) {}
    /// A round is over.
    fn round(&mut self, _record: &RoundRecord) {}
    /// A method is finished.
    fn finished(&mut self, _summary: &RepeatSummary, _label: &str) {}
}

/// Watches nothing.
pub struct Unwatched;

impl Watch for Unwatched {}

/// The least time between two checkpoints, from KINFOLK_CHECKPOINT_SECONDS if set.
#[doc(hidden)]
pub fn checkpoint_every() -> Result<Duration> {
    let Some(text) = std::env::var_os("KINFOLK_CHECKPOINT_SECONDS") else {
        return Ok(Options::default().checkpoint_every);
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| {
        Error::settings(format!("KINFOLK_CHECKPOINT_SECONDS: got {}, want a number of at least 0", text.display()))
    })
}
