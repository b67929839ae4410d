//! What the environment says of a run.

use super::Options;
use crate::error::{Error, Result};
use std::time::Duration;

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
