//! One file a verb.

pub mod cluster;
pub mod data;
pub mod list;
pub mod reproduce;
pub mod run;

use kinfolk::{Error, ErrorKind, Result};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes to stdout. Somebody who closes the pipe early has seen enough.
pub fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(ErrorKind::Io, format!("writing the result: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes one JSON document to stdout.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Error::new(ErrorKind::Io, format!("json: {error}")))?;
    print(&(text + "\n"))
}

/// A flag that Ctrl-C raises; a second Ctrl-C ends the program at once.
pub fn stop_on_interrupt() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let raised = stop.clone();
    // Without a handler Ctrl-C still ends the program; checkpoints are kept either way.
    let _ = ctrlc::set_handler(move || {
        if raised.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    stop
}
