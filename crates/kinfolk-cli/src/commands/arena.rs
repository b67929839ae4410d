//! `kinfolk arena [TABLE]`: every suitable method on tables to be judged by.

use super::*;
use kinfolk::run::Watch;
use kinfolk::text::significant;
use kinfolk_papers::arena::{self, Filled, Line, Wishes};

/// Run every suitable method on tables to be judged by, and show them beside published numbers.
#[derive(clap::Args)]
pub struct Arguments {
    /// The table, such as digits [default: all whose data is here]
    table: Option<String>,
    /// Only this method, by its label or name; also one that the table does not have (may be repeated)
    #[arg(long, value_name = "METHOD")]
    only: Vec<String>,
    /// A cut-down version with fewer rounds and one seed
    #[arg(long)]
    quick: bool,
    /// How many seeds [default: as the table says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    repeat: Option<u64>,
    /// Folder of the results, which are kept: what is there is not run again
    #[arg(long, value_name = "DIR", default_value = "arena")]
    out: PathBuf,
    /// Threads to use [default: one for every core]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
    #[command(flatten)]
    on: OnDevice,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<Ending> {
    let names = match &arguments.table {
        Some(name) => vec![name.as_str()],
        None => arena::names(),
    };
    let mut tables = names.iter().map(|name| arena::table(name, arguments.quick)).collect::<Result<Vec<_>>>()?;
    let wishes = Wishes {
        only: &arguments.only,
        seeds: arguments.repeat,
        folder: &arguments.out,
        threads: arguments.threads.unwrap_or(0),
        backend: arguments.on.backend(None)?,
        stop: stop_on_interrupt(),
    };
    let mut filled = Vec::new();
    for table in &mut tables {
        if let Some(why) = table.obstacle()? {
            if arguments.table.is_some() {
                return Err(why);
            }
            say(&format!("left out: {}: {why}", table.name));
            continue;
        }
        let mut show = |table: &str, method: &str, seed: u64| -> Box<dyn Watch> {
            Box::new(Bars::new(format!("{table} {method}, seed {seed}: ")))
        };
        filled.push(table.fill(&wishes, &mut show).map_err(|error| match error.kind() {
            ErrorKind::Stopped => error.hint("the same command goes on where this stopped"),
            _ => error,
        })?);
    }
    // The page also has what is kept of tables that were not asked for.
    let mut shown = filled.clone();
    for name in arena::names().into_iter().filter(|name| !names.contains(name)) {
        shown.extend(arena::table(name, arguments.quick)?.kept_lines(&arguments.out)?);
    }
    let page = arguments.out.join("arena.html");
    std::fs::create_dir_all(&arguments.out).map_err(|error| Error::io("creating", &arguments.out, error))?;
    kinfolk::disk::write_atomically(&page, arena::page(&shown).as_bytes())?;
    if arguments.json {
        print_json(&serde_json::json!({ "tables": filled }))?;
    } else {
        let tables: Vec<String> = filled.iter().map(text_of).collect();
        print(&format!("{}\npage: {}\n", tables.join("\n"), page.display()))?;
    }
    Ok(Ending::Done)
}

fn text_of(filled: &Filled) -> String {
    let is_share = filled.metric == "accuracy";
    let score = |value: Option<f64>| match value {
        Some(value) if is_share => format!("{:.2}", 100.0 * value),
        Some(value) => significant(value, 4),
        None => String::new(),
    };
    let number = |value: Option<f64>, digits: usize| value.map_or(String::new(), |value| significant(value, digits));
    let heading = if is_share { "accuracy %".to_string() } else { filled.metric.clone() };
    let has = |of: &dyn Fn(&Line) -> bool| filled.lines.iter().any(of);
    let (published, clusters) = (has(&|line| line.published.is_some()), has(&|line| line.clusters.is_some()));
    let ari = has(&|line| line.ari.is_some());
    let mut table = Table::new().words("method").numbers(&heading);
    if published {
        table = table.numbers("published");
    }
    table = table.numbers("worst decile").numbers("better alone %");
    table = table.numbers(format!("within {} MB", filled.about.megabytes)).numbers("MB").numbers("seconds");
    if clusters {
        table = table.numbers("clusters");
    }
    if ari {
        table = table.numbers("ARI");
    }
    for line in &filled.lines {
        let mean = match line.sd {
            Some(sd) if line.mean.is_some() => format!("{} ± {}", score(line.mean), score(Some(sd))),
            _ => score(line.mean),
        };
        let mut row = vec![line.method.clone(), mean];
        row.extend(published.then(|| number(line.published, 4)));
        row.push(score(line.worst_decile));
        row.push(line.better_alone.map_or(String::new(), |share| format!("{:.0}", 100.0 * share)));
        row.push(score(line.within));
        row.extend([number(line.megabytes, 3), number(line.seconds, 3)]);
        row.extend(clusters.then(|| number(line.clusters, 3)));
        row.extend(ari.then(|| line.ari.map_or(String::new(), |ari| format!("{ari:.2}"))));
        table.push(row);
    }
    let failed = filled.lines.iter().filter_map(|line| Some(format!("{}: {}\n", line.method, line.reason.as_ref()?)));
    let quick = if filled.quick { " (quick version)" } else { "" };
    format!("{}{quick}\n{table}{}", filled.about.title, failed.collect::<String>())
}
