//! stub

use crate::Ending;
/// Reproduce
#[derive(clap::Args)]
pub struct Arguments {}
/// Runs the command.
pub fn run(_: Arguments) -> kinfolk::Result<Ending> {
    Ok(Ending::Done)
}
