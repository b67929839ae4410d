//! How to run an experiment, and who watches.

use crate::data::own::OwnStart;
use crate::error::{Error, Result};
use crate::record::{RepeatSummary, RoundRecord};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How to run an experiment.
pub struct Options {
    /// The run folder; `None` keeps everything in memory.
    pub folder: Option<PathBuf>,
    /// Threads; 0 is one for every core.
    pub threads: usize,
    /// Go on with what is in the folder.
    pub resume: bool,
    /// Raise it to stop; what was done is in the checkpoint.
    pub stop: Arc<AtomicBool>,
    /// Least time between two checkpoints of one method.
    pub checkpoint_every: Duration,
    /// Sum single answers instead of reducing while computing: the bits that clients on other machines give.
    pub single_answers: bool,
    /// Where models of the user's own code begin.
    pub start: Option<OwnStart>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            folder: None,
            threads: 0,
            resume: false,
            stop: Arc::new(AtomicBool::new(false)),
            checkpoint_every: Duration::from_secs(10),
            single_answers: false,
            start: None,
        }
    }
}

/// Somebody who watches a run.
pub trait Watch {
    /// Something slow begins: making the data, evaluating.
    fn doing(&mut self, _what: &str) {}
    /// A method means to ask clients about so many questions on each of so many seeds. Said before any method runs, and
    /// again where one only learns on the way how many there will be.
    fn planned(&mut self, _label: &str, _questions: usize, _seeds: usize) {}
    /// A method begins, or goes on from a round.
    fn method(&mut self, _label: &str, _seed: u64, _from: usize, _rounds: usize) {}
    /// A round is over.
    fn round(&mut self, _record: &RoundRecord) {}
    /// A method is finished.
    fn finished(&mut self, _summary: &RepeatSummary, _label: &str) {}
}

/// Watches nothing.
pub struct Unwatched;

impl Watch for Unwatched {}

/// The least time between two checkpoints, from KINFOLK_CHECKPOINT_SECONDS where that is set.
pub fn checkpoint_every() -> Result<Duration> {
    let Some(text) = std::env::var_os("KINFOLK_CHECKPOINT_SECONDS") else {
        return Ok(Options::default().checkpoint_every);
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| {
        Error::settings(format!("KINFOLK_CHECKPOINT_SECONDS: got {}, want a number of at least 0", text.display()))
    })
}
