//! The program `kinfolk`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kinfolk_cli::start()
}
