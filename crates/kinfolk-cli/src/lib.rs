//! The command line: `kinfolk fit`, `predict`, `assign`, `show`, `run`, `node`, `cluster`, `list`, `data`,
//! `reproduce`.
//!
//! stdout carries the result and nothing else; progress and messages go to stderr.

#[doc(hidden)]
pub mod commands;
mod progress;

use clap::{Parser, Subcommand};
use commands::{arena, assign, cluster, data, fit, list, node, predict, reproduce, run, say, show};
use kinfolk::panics::contained;
use std::process::ExitCode;

/// Finds which clients of a federation are kin, and trains a model for every family.
#[derive(Parser)]
#[command(name = "kinfolk", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Fit(Box<fit::Arguments>),
    Predict(predict::Arguments),
    Assign(assign::Arguments),
    Show(show::Arguments),
    Run(run::Arguments),
    Node(Box<node::Arguments>),
    Cluster(Box<cluster::Arguments>),
    List(list::Arguments),
    Data(data::Arguments),
    Reproduce(reproduce::Arguments),
    Arena(arena::Arguments),
}

/// How a command ended, where it ended at all.
#[doc(hidden)]
pub enum Ending {
    /// Exit code 0.
    Done,
    /// Exit code 1: a method failed or diverged, or a number missed its tolerance.
    FellShort,
}

/// Does what the arguments of this process say.
pub fn start() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(Cli { command }) => command,
        Err(help_or_fault) => return refuse(&help_or_fault),
    };
    finish(|| match command {
        Command::Fit(arguments) => fit::run(*arguments),
        Command::Predict(arguments) => predict::run(arguments),
        Command::Assign(arguments) => assign::run(arguments),
        Command::Show(arguments) => show::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Node(arguments) => node::run(*arguments),
        Command::Cluster(arguments) => cluster::run(*arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Data(arguments) => data::run(arguments),
        Command::Reproduce(arguments) => reproduce::run(arguments),
        Command::Arena(arguments) => arena::run(arguments),
    })
}

/// Prints help, or what is wrong with the arguments.
#[doc(hidden)]
pub fn refuse(help_or_fault: &clap::Error) -> ExitCode {
    // Who closed the pipe has read enough.
    let unread = |error: std::io::Error| error.kind() != std::io::ErrorKind::BrokenPipe;
    let lost = help_or_fault.print().is_err_and(unread) && !help_or_fault.use_stderr();
    let code = if lost { 1 } else { help_or_fault.exit_code() };
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}

/// Runs a command to its end, says what went wrong, and turns it into an exit code.
#[doc(hidden)]
pub fn finish(command: impl FnOnce() -> kinfolk::Result<Ending>) -> ExitCode {
    match contained(command) {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::FellShort) => ExitCode::from(1),
        Err(error) => {
            let as_flag = |option: &str| format!("--{}", option.replace('_', "-"));
            say(&format!("error: {}", error.spelling(as_flag)));
            ExitCode::from(if error.kind().is_input() { 2 } else { 1 })
        }
    }
}
