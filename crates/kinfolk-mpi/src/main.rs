//! `mpirun -np 8 kinfolk-mpi run experiment.toml`: an experiment on a cluster of machines.
//!
//! Every rank is a machine with its share of the clients, which it makes by itself; the first rank also runs the methods.
//! Models go to all ranks at once, and every rank answers with the sums of its own clients' vectors as integers: the
//! results have the same bits for any number of ranks. Checkpoints, in the first rank's run folder, hold what all clients
//! remember, so that a run may go on with another number of ranks.

mod ranks;

use clap::{Parser, Subcommand};
use kinfolk::federation::client::memory::Memories;
use kinfolk::federation::client::node::Node;
use kinfolk::federation::client::site::Site;
use kinfolk::federation::engines::remote::Line;
use kinfolk::run::venue::{Elsewhere, Venue};
use kinfolk::{Error, ErrorKind, Result};
use kinfolk_cli::Ending;
use kinfolk_cli::commands::run;
use mpi::Threading;
use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator;
use ranks::{Ranks, Served};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

/// Runs experiments of clustered federated learning on the ranks of an MPI job.
#[derive(Parser)]
#[command(name = "kinfolk-mpi", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
}

fn main() -> ExitCode {
    // Only this thread calls MPI; ending the universe ends MPI.
    let Some((_universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
        eprintln!("error: MPI could not be initialised; start this with mpirun or srun");
        return ExitCode::from(1);
    };
    let world = SimpleCommunicator::world();
    let is_first = world.rank() == 0;
    let arguments = match Cli::try_parse() {
        Ok(Cli { command: Command::Run(arguments) }) => arguments,
        // The first rank says what is wrong for all of them.
        Err(help_or_fault) if is_first => return kinfolk_cli::refuse(&help_or_fault),
        Err(help_or_fault) => return ExitCode::from(u8::try_from(help_or_fault.exit_code()).unwrap_or(2)),
    };
    let served = match serve_with(&world, arguments.threads()) {
        Ok(served) => served,
        Err(error) => return kinfolk_cli::finish(|| Err(error)),
    };
    if !is_first {
        return kinfolk_cli::finish(|| ranks::serve(served).map(|()| Ending::Done));
    }
    let line: Line = Arc::new(Mutex::new(Box::new(Ranks::new(served))));
    let code = kinfolk_cli::finish(|| {
        run::run_at(arguments, |_| Ok(Box::new(Elsewhere::of_processes(line.clone())) as Box<dyn Venue>))
    });
    ranks::end();
    code
}

/// This rank's share of the clients. A rank has its part of its machine's cores, unless the number of threads is given.
fn serve_with(world: &SimpleCommunicator, threads: Option<usize>) -> Result<Served> {
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let neighbours = world.split_shared(world.rank()).size().max(1) as usize;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or_else(|| (cores / neighbours).max(1));
    let site = Site::new(Node::share_of_run(rank, size), threads)
        .map_err(|error| Error::new(ErrorKind::Io, format!("rank {rank}: {error}")))?;
    Ok(Served { site, memories: Memories::here() })
}
