//! One file a verb.

pub mod arena;
pub mod assign;
pub mod cluster;
pub mod data;
mod device;
pub mod fit;
pub mod flower;
pub mod list;
pub mod node;
pub mod predict;
pub mod reproduce;
pub mod run;
pub mod show;

use crate::Ending;
use crate::progress::Bars;
use device::OnDevice;
use kinfolk::compute::MOST_THREADS;
use kinfolk::report::table::Table;
use kinfolk::run::Disclosures;
use kinfolk::text::{escaped_json, printable};
use kinfolk::{Error, ErrorKind, Result};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes to stdout. Somebody who closes the pipe early has seen enough.
pub fn print(text: &str) -> Result<()> {
    write_result(&printable(text))
}

/// Says something on stderr, a line of its own. Where nobody can read it, nobody misses it: how the program ended
/// shows in its exit code.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
}

fn write_result(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(ErrorKind::Io, format!("writing the result: {error}")))
        }
        _ => Ok(()),
    }
}

/// What clients would tell; of a run in this process that nothing leaves it.
pub fn print_disclosures(disclosures: &Disclosures, json: bool, is_elsewhere: bool) -> Result<()> {
    if !is_elsewhere {
        say("in one process, as this would run, nothing leaves this computer; this is what --on flower would tell");
    }
    if json { print_json(disclosures) } else { print(&disclosures.show()) }
}

pub fn parse_threads(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=MOST_THREADS).contains(count));
    count.ok_or_else(|| format!("want a whole number from 1 to {MOST_THREADS}"))
}

pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Error::new(ErrorKind::Io, format!("json: {error}")))?;
    write_result(&(escaped_json(&text) + "\n"))
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
