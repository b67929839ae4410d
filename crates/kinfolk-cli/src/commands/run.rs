//! `kinfolk run FILE|PRESET`: one experiment, from data to report.

use super::flower::{Elsewhere, Found};
use super::*;
use kinfolk::disk::folder::run_folder;
use kinfolk::experiment::{Experiment, Override};
use kinfolk::presets;
use kinfolk::record::Summary;
use kinfolk::report::table::results_with_notes;
use kinfolk::run::venue::{InProcess, Venue};
use kinfolk::run::{Disclosures, Options, checkpoint_every};
use kinfolk_node::leave_path_open;
use std::path::Path;

const ENVIRONMENT: &str = "\
Environment:
  KINFOLK_DATA                Folder of the downloaded datasets [default: kinfolk in the platform's cache folder]
  KINFOLK_DEVICE              What clients compute on: cpu, cuda or auto [default: cpu]
  KINFOLK_CHECKPOINT_SECONDS  Least seconds between two checkpoints of a method [default: 10]
  KINFOLK_PYTHON              The Python that has the package, for --on flower [default: python3]";

/// Run an experiment: a TOML file, or a preset such as `quickstart`.
#[derive(clap::Args)]
#[command(after_help = ENVIRONMENT)]
pub struct Arguments {
    /// An experiment file, or the name of a preset (`kinfolk list presets`)
    experiment: String,
    /// Folder for the results [default: runs/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Change a setting, such as method.ifca.step=0.05 or data.clients=100
    #[arg(long, value_name = "SETTING=VALUE")]
    set: Vec<String>,
    /// Choose strengths of personal models by cross-validation, whatever the file says of them
    #[arg(long)]
    tune: bool,
    /// The first seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    seed: Option<u64>,
    /// How many seeds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    repeat: Option<u64>,
    /// Threads to use [default: one for every core]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
    #[command(flatten)]
    on: OnDevice,
    /// Go on with an unfinished run in --out
    #[arg(long, requires = "out")]
    resume: bool,
    /// Print the summary as JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Print the experiment with every default filled in, and stop
    #[arg(long)]
    show: bool,
    /// Print what clients on other machines would tell whom, how often and what for, and stop: nothing is sent
    #[arg(long, conflicts_with = "show")]
    dry: bool,
    #[command(flatten)]
    elsewhere: Elsewhere,
}

impl Arguments {
    /// Threads to use, if they were given.
    pub fn threads(&self) -> Option<usize> {
        self.threads
    }
}

pub fn run(arguments: Arguments) -> Result<Ending> {
    if !arguments.elsewhere.is_wanted() {
        return run_at(arguments, |options| Ok(Box::new(InProcess::new(options)?)));
    }
    let Some(experiment) = read(&arguments)? else { return Ok(Ending::Done) };
    let out = arguments.out.as_deref();
    let found = arguments.elsewhere.run(&experiment.to_toml(), out, arguments.resume);
    let Found { folder, summary, .. } = found.map_err(|error| out.map_or(error.clone(), |out| go_on(error, out)))?;
    let summary = summary.ok_or_else(|| Error::federation("the run has ended without a summary"))?;
    show(&summary, &folder, arguments.json)
}

/// The experiment, unless something of it was only to be shown.
fn read(arguments: &Arguments) -> Result<Option<Experiment>> {
    let mut overrides = arguments.set.iter().map(|text| Override::parse(text)).collect::<Result<Vec<_>>>()?;
    overrides.extend(arguments.tune.then(Override::tune));
    overrides.extend(arguments.seed.map(|seed| Override::top("seed", seed as i64)));
    overrides.extend(arguments.repeat.map(|repeat| Override::top("repeat", repeat as i64)));
    let (place, text) = presets::read(&arguments.experiment)?;
    let mut table = Experiment::read_table(&place, &text)?;
    if arguments.elsewhere.is_wanted() || arguments.dry {
        leave_path_open(&mut table);
    }
    let experiment = Experiment::from_table(&place, table, &overrides)?;
    if arguments.show {
        print(&experiment.to_toml())?;
        return Ok(None);
    }
    if arguments.dry {
        print_disclosures(&Disclosures::of(&experiment), arguments.json, arguments.elsewhere.is_wanted())?;
        return Ok(None);
    }
    Ok(Some(experiment))
}

/// The same with the clients of a venue.
pub fn run_at(arguments: Arguments, venue: impl FnOnce(&Options) -> Result<Box<dyn Venue>>) -> Result<Ending> {
    if arguments.elsewhere.is_wanted() {
        return Err(Error::settings("--on: this program has its clients in processes of its own"));
    }
    let Some(experiment) = read(&arguments)? else { return Ok(Ending::Done) };
    let backend = arguments.on.backend(Some(&experiment))?;
    let (folder, _new) = run_folder(arguments.out, experiment.name())?;
    let options = Options {
        folder: Some(folder.clone()),
        threads: arguments.threads.unwrap_or(0),
        backend,
        resume: arguments.resume,
        checkpoint_every: checkpoint_every()?,
        keep_models: false,
        stop: stop_on_interrupt(),
        ..Options::default()
    };
    let record = kinfolk::run::run_at(&mut *venue(&options)?, &experiment, &options, &mut Bars::new(String::new()));
    let record = record.map_err(|error| go_on(error, &folder))?;
    show(&record.summary, &folder, arguments.json)
}

/// How to go on with a run that was stopped.
fn go_on(error: Error, folder: &Path) -> Error {
    match error.kind() {
        ErrorKind::Stopped => {
            error.hint(format!("go on with the same command and --out {} --resume", folder.display()))
        }
        _ => error,
    }
}

fn show(summary: &Summary, folder: &Path, json: bool) -> Result<Ending> {
    if json {
        print_json(summary)?;
    } else {
        print(&results_with_notes(summary))?;
    }
    say(&format!("report: {}", folder.join("report.html").display()));
    let well = |status: &str| matches!(status, "done" | "not-converged");
    Ok(if summary.methods.iter().all(|method| well(&method.status)) { Ending::Done } else { Ending::FellShort })
}
