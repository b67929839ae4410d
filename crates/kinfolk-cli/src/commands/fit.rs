//! `kinfolk fit TABLE`: whether the clients of a table differ, which are alike, and a model for each.

use super::flower::{Elsewhere, Found};
use super::{parse_threads, print, print_disclosures, print_json, say, stop_on_interrupt};
use crate::Ending;
use crate::progress::Bars;
use kinfolk::data::TableSettings;
use kinfolk::data::options::Task;
use kinfolk::disk::folder::NewFolder;
use kinfolk::families::Covariance;
use kinfolk::fit::{
    FILES, FitSettings, FittedModel, MIXTURE_FILES, ModelChoice, NETWORK_FILES, fit_mixture, fit_model, follow, show,
};
use kinfolk::models::{AutoModelSettings, MlpSettings, ModelSettings};
use kinfolk::run::{Disclosures, Options};
use kinfolk::settings::{Auto, Field, Kind, Value, finish};
use kinfolk::{Error, Result};
use std::path::{Path, PathBuf};
use toml::Table;

/// Fit a table with a column that names the client: families, and the model that serves each client best; without a target, kinds of rows.
#[derive(clap::Args)]
pub struct Arguments {
    /// The table: csv, tsv or txt, also with .gz, parquet, arrow or feather
    #[arg(required_unless_present = "on")]
    table: Option<PathBuf>,
    /// The column that names the client
    #[arg(long, value_name = "COLUMN", required_unless_present = "refit")]
    client: Option<String>,
    /// The column to be predicted; without one, kinds of rows are looked for: the components of a mixture
    #[arg(long, value_name = "COLUMN")]
    target: Option<String>,
    /// Go on with the model in this folder: its options hold where none are given, families keep their numbers, and what moved is said
    #[arg(long, value_name = "DIR")]
    refit: Option<PathBuf>,
    /// The column of families that are known
    #[arg(long, value_name = "COLUMN")]
    group: Option<String>,
    /// The column of the rows' times: the last rows of every client are held out, and nothing of the future is used
    #[arg(long, value_name = "COLUMN", conflicts_with = "part")]
    time: Option<String>,
    /// The column that says train or test
    #[arg(long, value_name = "COLUMN")]
    part: Option<String>,
    /// The column of the rows' weights: a row of weight 2 counts like one whose noise has half the variance
    #[arg(long, value_name = "COLUMN")]
    weight: Option<String>,
    /// Columns to leave out
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    drop: Vec<String>,
    /// Columns of numbers that are names
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    words: Vec<String>,
    /// The models: numbers are linear, two classes logistic and more softmax; mlp is networks of either [auto: words, and two numbers, are classes; networks where they are better]
    #[arg(long, value_name = "MODEL", value_parser = parse_model)]
    model: Option<(ModelChoice, Task)>,
    /// What happens to missing values of columns: fill (with the mean, and a column that marks them), or refuse [default: fill]
    #[arg(long, value_name = "WHAT", value_parser = ["fill", "refuse"])]
    missing: Option<String>,
    /// How many families: a number, auto or one [default: auto]
    #[arg(long, value_name = "K", value_parser = parse_families)]
    families: Option<Families>,
    /// Without a target: how many components [default: as many as are found]
    #[arg(long, value_name = "R", conflicts_with_all = ["target", "refit"], value_parser = parse_components)]
    components: Option<usize>,
    /// Let numbers enter as they are, without curves
    #[arg(long)]
    no_curves: bool,
    /// Let columns act alike whatever the others are, without products of two
    #[arg(long)]
    no_interactions: bool,
    /// How coefficients vary between clients: intercept, scalar, intercept-slopes, diagonal, full, or auto
    #[arg(long, value_name = "HOW", value_parser = parse_covariance)]
    covariance: Option<Auto<Covariance>>,
    /// Try no other covariances of clients, and no interactions
    #[arg(long)]
    quick: bool,
    /// Seed of all draws [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Threads to use [default: one for every core]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
    /// Folder for the model [default: the table's name with .families]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace the model in the folder
    #[arg(long)]
    replace: bool,
    /// Print what clients on other machines would tell whom, how often and what for, and stop: nothing is sent
    #[arg(long, requires = "target")]
    dry: bool,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    elsewhere: Elsewhere,
}

/// How many families are wanted; `None`: as many as are found.
#[derive(Clone, Copy)]
struct Families(Option<usize>);

fn parse_families(text: &str) -> Result<Families, String> {
    match text {
        "auto" => Ok(Families(None)),
        "one" => Ok(Families(Some(1))),
        number => match number.parse() {
            Ok(families) if families > 0 => Ok(Families(Some(families))),
            _ => Err("want a whole number from 1 on, auto or one".into()),
        },
    }
}

fn parse_model(text: &str) -> Result<(ModelChoice, Task), String> {
    let known = AutoModelSettings::TASKS;
    let found = known.iter().find(|(name, _)| *name == text).map(|(_, task)| *task);
    match (text, found) {
        (MlpSettings::NAME, _) => Ok((ModelChoice::Network, Task::Words)),
        (_, Some(task @ Task::Words)) => Ok((ModelChoice::Auto, task)),
        (_, Some(task)) => Ok((ModelChoice::Linear, task)),
        (_, None) => {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).chain([MlpSettings::NAME]).collect();
            Err(format!("want one of {}", names.join(", ")))
        }
    }
}

fn parse_covariance(text: &str) -> Result<Auto<Covariance>, String> {
    Auto::parse(&Value::from(text)).ok_or_else(|| match Covariance::KIND {
        Kind::OneOf(words) => format!("want auto or one of {}", words.join(", ")),
        _ => "want a word".into(),
    })
}

fn parse_components(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|components| *components > 0).ok_or_else(|| "want a whole number from 1 on".into())
}

pub fn run(arguments: Arguments) -> Result<Ending> {
    if arguments.dry {
        let name = arguments.out.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
        let disclosures = Disclosures::of_fit(name.as_deref().unwrap_or("fit"));
        print_disclosures(&disclosures, arguments.json, arguments.elsewhere.is_wanted())?;
        return Ok(Ending::Done);
    }
    if arguments.elsewhere.is_wanted() {
        return run_elsewhere(&arguments);
    }
    let before = arguments.refit.as_deref().map(FittedModel::read).transpose()?;
    let in_place = arguments.refit.clone().filter(|_| arguments.replace);
    let folder = arguments.out.clone().or(in_place).unwrap_or_else(|| {
        let table = arguments.table.as_deref().unwrap_or(Path::new("table"));
        let name = table.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or("table");
        table.with_file_name(format!("{stem}.families"))
    });
    // Files of an earlier model are replaced one by one, when the new ones are there.
    let has_target = arguments.target.is_some() || before.is_some();
    let files = if has_target { [&FILES[..], &NETWORK_FILES].concat() } else { MIXTURE_FILES.to_vec() };
    let taken = if arguments.replace { Vec::new() } else { files };
    let claimed = NewFolder::claim(&folder, taken)
        .map_err(|error| error.hint("give --out another folder, or --replace to fit anew"))?;
    let options = Options { threads: arguments.threads.unwrap_or(0), stop: stop_on_interrupt(), ..Options::default() };
    let json = arguments.json;
    let settings = settings(arguments, before.as_ref())?;
    let mut bars = Bars::new(String::new());
    let mut told = |lines: &[String]| lines.iter().for_each(|line| say(line));
    if settings.table.target.is_none() {
        let saved = fit_mixture(settings, &options, &mut bars, &mut told)?;
        drop(bars);
        saved.write(claimed.path())?;
        if json {
            print_json(&saved.shown())?
        } else {
            print(&saved.show())?
        }
        say_where(&folder);
        return Ok(Ending::Done);
    }
    let fitted = fit_model(settings, &options, &mut bars, &mut told)?;
    drop(bars);
    match (fitted, before) {
        (FittedModel::Families(mut saved), before) => {
            if let Some(FittedModel::Families(before)) = before {
                saved = follow(&before, saved);
            }
            saved.write(claimed.path())?;
            remove_others(claimed.path(), &FILES)?;
            if json {
                print_json(&saved.shown())?;
            } else {
                print(&show(&saved))?;
            }
        }
        (FittedModel::Networks(mut saved), before) => {
            if let Some(FittedModel::Networks(before)) = before {
                saved = saved.following(&before);
            }
            saved.write(claimed.path())?;
            remove_others(claimed.path(), &NETWORK_FILES)?;
            if json {
                print_json(&saved.shown())?;
            } else {
                print(&saved.show())?;
            }
        }
        (FittedModel::Mixture(_), _) => unreachable!("a target is predicted"),
    }
    say_where(&folder);
    Ok(Ending::Done)
}

/// Removes what a model of another kind left in the folder that it was replaced in.
fn remove_others(folder: &Path, files: &[&str]) -> Result<()> {
    for name in FILES.iter().chain(&NETWORK_FILES).chain(&MIXTURE_FILES).filter(|name| !files.contains(name)) {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("removing", folder.join(name), error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Fits the clients of other machines, whose tables are known to the machines alone.
fn run_elsewhere(arguments: &Arguments) -> Result<Ending> {
    let table = [("TABLE", arguments.table.is_some()), ("--refit", arguments.refit.is_some())];
    let rows = [("--time", &arguments.time), ("--part", &arguments.part), ("--weight", &arguments.weight)];
    let others = [
        ("--model", arguments.model.is_some()),
        ("--missing", arguments.missing.is_some()),
        ("--components", arguments.components.is_some()),
        ("--threads", arguments.threads.is_some()),
        ("--replace", arguments.replace),
        ("--json", arguments.json),
    ];
    let rows = rows.map(|(name, column)| (name, column.is_some()));
    let given = table.into_iter().chain(rows).chain(others).filter(|(_, is_given)| *is_given);
    finish(given.map(|(name, _)| Error::settings(format!("{name}: not possible with --on flower"))).collect())?;
    let list = |names: &[String]| (!names.is_empty()).then(|| Value::from(names.to_vec()));
    let families = arguments.families.and_then(|Families(families)| Some(Value::from(families? as i64)));
    let keys = [
        ("client", arguments.client.clone().map(Value::from)),
        ("target", arguments.target.clone().map(Value::from)),
        ("group", arguments.group.clone().map(Value::from)),
        ("drop", list(&arguments.drop)),
        ("words", list(&arguments.words)),
        ("families", families),
        ("curves", arguments.no_curves.then_some(Value::from(false))),
        ("interactions", arguments.no_interactions.then_some(Value::from(false))),
        ("covariance", arguments.covariance.as_ref().and_then(Field::value)),
        ("quick", arguments.quick.then_some(Value::from(true))),
    ];
    let keys: Table = keys.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))).collect();
    let mut file = Table::from_iter([("fit".to_string(), Value::Table(keys))]);
    file.extend(arguments.seed.map(|seed| ("seed".to_string(), Value::from(seed as i64))));
    let name = arguments.out.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    file.extend(name.map(|name| ("name".to_string(), Value::from(name))));
    FitSettings::of_file(file.clone())?;
    let Found { folder, shown, .. } = arguments.elsewhere.run(&file.to_string(), arguments.out.as_deref(), false)?;
    print(&shown.unwrap_or_default())?;
    say_where(&folder);
    Ok(Ending::Done)
}

fn say_where(folder: &Path) {
    say(&format!("model: {}\nreport: {}", folder.display(), folder.join("report.html").display()));
}

/// What is asked for; the rest is as in the fit before.
fn settings(arguments: Arguments, before: Option<&FittedModel>) -> Result<FitSettings> {
    let path = arguments.table.as_deref().unwrap_or(Path::new("")).display().to_string();
    let mut settings = match before {
        Some(before) => FitSettings::again(before, path)?,
        None => {
            let table = TableSettings { path, task: Task::Words, ..TableSettings::default() };
            FitSettings { table, ..FitSettings::default() }
        }
    };
    let table = &mut settings.table;
    if let Some(client) = arguments.client {
        table.client = client;
    }
    table.target = arguments.target.or(table.target.take());
    if arguments.families.is_some() {
        table.group = None;
    }
    table.group = arguments.group.or(table.group.take());
    if arguments.time.is_some() || arguments.part.is_some() {
        (table.time, table.part) = (arguments.time, arguments.part);
    }
    table.weight = arguments.weight.or(table.weight.take());
    if let Some((model, task)) = arguments.model {
        settings.model = model;
        table.task = if before.is_some() && task == Task::Words { table.task } else { task };
    }
    if !arguments.drop.is_empty() {
        table.drop = arguments.drop;
    }
    if !arguments.words.is_empty() {
        table.words = arguments.words;
    }
    if let Some(Families(families)) = arguments.families {
        settings.families = families;
    }
    if let Some(missing) = arguments.missing {
        settings.refuse_missing = missing == "refuse";
    }
    if let Some(covariance) = arguments.covariance {
        settings.covariance = match covariance {
            Auto::Auto => None,
            Auto::Given(covariance) => Some(covariance),
        };
    }
    settings.components = arguments.components;
    settings.straight |= arguments.no_curves;
    settings.additive |= arguments.no_interactions;
    settings.quick |= arguments.quick;
    settings.seed = arguments.seed.unwrap_or(settings.seed);
    Ok(settings)
}
