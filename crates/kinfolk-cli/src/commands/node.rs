//! `kinfolk node`: answers for the clients of this machine, through Flower's SuperLink, until it is stopped.

use super::{parse_threads, say};
use crate::Ending;
use kinfolk::federation::client::node::Node;
use kinfolk::federation::client::site::Site;
use kinfolk::fit::settle;
use kinfolk::{Error, ErrorKind, Result};
use kinfolk_node::{Connection, FIRST_SUPPORTED, LAST_SUPPORTED, Security, default_state, serve};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use toml::{Table, Value};

/// Answer for the clients of this machine in runs on a Flower SuperLink, until Ctrl-C
#[derive(clap::Args)]
#[command(after_help = format!("\
What may be read of the rows, and how few rows an answer may be about, a file of this machine says, or the options; no run can
change it, and code that comes with a run is never executed. The SuperLink's Flower may be of version {FIRST_SUPPORTED} to {LAST_SUPPORTED}."))]
pub struct Arguments {
    /// The machine's own file, with a table [node] (docs/on-real-machines.md)
    #[arg(value_name = "NODE.toml", required_unless_present_any = ["data", "partition"])]
    file: Option<PathBuf>,
    /// Where the SuperLink is
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "identity")]
    superlink: Option<String>,
    /// Print the identity by which other machines know this one in secure sums, made where it is missing, and end
    #[arg(long)]
    identity: bool,
    /// Certificates of the authority that signed the SuperLink's [default: the authorities that browsers trust]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    root_certificates: Option<PathBuf>,
    /// Send everything in the clear, to whoever answers
    #[arg(long)]
    insecure: bool,
    /// The private key of this node, of which the SuperLink knows the public one [default: a new one, for a SuperLink that asks for none]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Folder for what clients keep between the questions of a run, if there is a key [default: kinfolk-state beside the folder of models]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Threads to use [default: one for every core]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
    #[command(flatten)]
    keys: Keys,
}

/// What a file would say.
#[derive(clap::Args)]
#[group(multiple = true, conflicts_with = "file")]
#[command(next_help_heading = "Instead of a file")]
struct Keys {
    /// The table with this machine's rows
    #[arg(long, value_name = "TABLE", conflicts_with = "partition")]
    data: Option<String>,
    /// The column that names the client
    #[arg(long, value_name = "COLUMN", requires = "data")]
    client: Option<String>,
    /// The columns that may be read, the target's and the group's too
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', requires = "data")]
    columns: Vec<String>,
    /// Those whose different cells may leave this machine
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', requires = "data")]
    words: Vec<String>,
    /// Share of a client's rows kept for testing [default: 0.2]
    #[arg(long, value_name = "SHARE", requires = "data")]
    test_fraction: Option<f64>,
    /// Decides which rows these are [default: 0]
    #[arg(long, value_name = "N", requires = "data", value_parser = clap::value_parser!(i64).range(0..))]
    split_seed: Option<i64>,
    /// Instead of a table, part I of N of the public dataset that an experiment names, from 0
    #[arg(long, value_name = "I/N", value_parser = parse_partition)]
    partition: Option<[i64; 2]>,
    /// What the server calls this machine [default: its host name]
    #[arg(long)]
    name: Option<String>,
    /// The fewest rows of a client that an answer may be about [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    minimum_rows: Option<i64>,
    /// Folder for clients' own models [default: kinfolk-models beside the table]
    #[arg(long, value_name = "DIR")]
    models: Option<String>,
}

fn parse_partition(text: &str) -> Result<[i64; 2], String> {
    let parts = text.split_once('/').and_then(|(part, of)| Some([part.parse().ok()?, of.parse().ok()?]));
    parts.ok_or_else(|| "want a part and how many there are, such as 0/3".into())
}

impl Keys {
    fn table(self) -> Table {
        let list = |names: Vec<String>| (!names.is_empty()).then(|| Value::from(names));
        let keys = [
            ("table", self.data.map(Value::from)),
            ("client", self.client.map(Value::from)),
            ("columns", list(self.columns)),
            ("words", list(self.words)),
            ("test_fraction", self.test_fraction.map(Value::from)),
            ("split_seed", self.split_seed.map(Value::from)),
            ("partition", self.partition.map(|parts| Value::from(parts.to_vec()))),
            ("name", self.name.map(Value::from)),
            ("minimum_rows", self.minimum_rows.map(Value::from)),
            ("models", self.models.map(Value::from)),
        ];
        keys.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))).collect()
    }
}

pub fn run(arguments: Arguments) -> Result<Ending> {
    let node = match &arguments.file {
        Some(path) => Node::read(path, None)?,
        None => Node::of_keys(arguments.keys.table(), Path::new(""), None, Vec::new())?,
    };
    let Some(superlink) = arguments.superlink.filter(|_| !arguments.identity) else {
        let identity = node.public_identity()?;
        println!("{}", identity.ok_or_else(|| Error::settings("this machine has no file for an identity"))?);
        return Ok(Ending::Done);
    };
    let security = match (arguments.insecure, arguments.root_certificates) {
        (true, _) => Security::Insecure,
        (false, Some(path)) => Security::Certificates(path),
        (false, None) => Security::PublicAuthorities,
    };
    let state = arguments.state.unwrap_or_else(|| default_state(&node));
    let connection = Connection { superlink, security, key: arguments.key };
    let site = Site::new(node, arguments.threads.unwrap_or(0))?.with_models(settle);
    let stop = stop_on_signal()?;
    serve(&connection, site, &state, &stop, &say)?;
    say("stopped");
    Ok(Ending::Done)
}

/// A flag that Ctrl-C and service managers raise; a second signal ends the program at once.
fn stop_on_signal() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let handled = [SIGINT, SIGTERM].into_iter().try_for_each(|signal| {
        flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())?;
        flag::register(signal, stop.clone()).map(drop)
    });
    handled.map_err(|error| Error::new(ErrorKind::Io, format!("handling Ctrl-C: {error}")))?;
    Ok(stop)
}
