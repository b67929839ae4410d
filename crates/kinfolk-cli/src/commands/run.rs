//! `kinfolk run FILE|PRESET`: one experiment, from data to report.

use super::{print, print_json, stop_on_interrupt};
use crate::Ending;
use crate::progress::Bars;
use kinfolk::experiment::{Experiment, Override};
use kinfolk::report::table::results_with_notes;
use kinfolk::run::Options;
use kinfolk::{Error, ErrorKind, Result, presets};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const ENVIRONMENT: &str = "\
Environment:
  KINFOLK_DATA                Folder of the downloaded datasets [default: kinfolk in the platform's cache folder]
  KINFOLK_CHECKPOINT_SECONDS  Least seconds between two checkpoints of a method [default: 10]";

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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Go on with an unfinished run in --out
    #[arg(long, requires = "out")]
    resume: bool,
    /// Print the summary as JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Print the experiment with every default filled in, and stop
    #[arg(long)]
    show: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<Ending> {
    let mut overrides = arguments.set.iter().map(|text| Override::parse(text)).collect::<Result<Vec<_>>>()?;
    overrides.extend(arguments.tune.then(Override::tune));
    overrides.extend(arguments.seed.map(|seed| Override::top("seed", seed as i64)));
    overrides.extend(arguments.repeat.map(|repeat| Override::top("repeat", repeat as i64)));
    let (place, text) = read(&arguments.experiment)?;
    let experiment = Experiment::parse(&place, &text, &overrides)?;
    if arguments.show {
        print(&experiment.to_toml())?;
        return Ok(Ending::Done);
    }
    let folder = arguments.out.unwrap_or_else(|| default_folder(experiment.name()));
    let options = Options {
        folder: Some(folder.clone()),
        threads: arguments.threads.map_or(0, usize::from),
        resume: arguments.resume,
        checkpoint_every: checkpoint_every()?,
        stop: stop_on_interrupt(),
    };
    let record = kinfolk::run::run(&experiment, &options, &mut Bars::new()).map_err(|error| match error.kind() {
        ErrorKind::Stopped => {
            error.hint(format!("go on with the same command and --out {} --resume", folder.display()))
        }
        _ => error,
    })?;
    let summary = &record.summary;
    if arguments.json {
        print_json(summary)?;
    } else {
        print(&results_with_notes(summary))?;
    }
    eprintln!("report: {}", folder.join("report.html").display());
    let well = |status: &str| matches!(status, "done" | "not-converged");
    Ok(if summary.methods.iter().all(|method| well(&method.status)) { Ending::Done } else { Ending::FellShort })
}

/// The time between checkpoints, from the environment where it is set.
fn checkpoint_every() -> Result<Duration> {
    let Some(text) = std::env::var_os("KINFOLK_CHECKPOINT_SECONDS") else {
        return Ok(Options::default().checkpoint_every);
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| {
        Error::settings(format!("KINFOLK_CHECKPOINT_SECONDS: got {}, want a number of at least 0", text.display()))
    })
}

/// A file if there is one of this name, else a preset.
fn read(name: &str) -> Result<(String, String)> {
    if !Path::new(name).exists()
        && let Some(preset) = presets::find(name)
    {
        return Ok((name.to_string(), preset.text.to_string()));
    }
    match std::fs::read_to_string(name) {
        Ok(text) => Ok((name.to_string(), text)),
        Err(error) => {
            let known: Vec<&str> = presets::PRESETS.iter().map(|preset| preset.name).collect();
            Err(Error::io("reading", name, error)
                .hint(format!("want an experiment file, or a preset: {}", known.join(", "))))
        }
    }
}

/// runs/NAME-TIME, with a number behind it where that is taken.
fn default_folder(name: &str) -> PathBuf {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let plain: String = name.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '-' }).collect();
    let base = format!("{plain}-{}", stamp(seconds));
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    let free = std::iter::once(base.clone()).chain(numbered).map(|name| Path::new("runs").join(name));
    free.into_iter().find(|path| !path.exists()).unwrap_or_else(|| Path::new("runs").join(&base))
}

/// Seconds since 1970 as YYYYMMDD-HHMMSS, in UTC.
fn stamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in eras of 400 years: leap days then come last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::stamp;

    #[test]
    fn times_read_like_a_calendar() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_399), "20000228-235959");
        assert_eq!(stamp(951_782_400), "20000229-000000");
        assert_eq!(stamp(1_794_700_861), "20261115-000101");
    }
}
