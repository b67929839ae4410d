//! `kinfolk reproduce PAPER`: a paper's numbers beside ours.

use super::*;
use kinfolk::run::Watch;
use kinfolk::text::significant;
use kinfolk_papers::{CellResult, Plan, Recorded, WatchCases, cpu};

/// Run a paper's experiments and print its numbers beside ours.
#[derive(clap::Args)]
pub struct Arguments {
    /// The paper, such as ifca
    paper: String,
    /// Only this experiment, such as e2
    experiment: Option<String>,
    /// A cut-down version that ends within a minute on two cores, compared with kept numbers
    #[arg(long)]
    quick: bool,
    /// Seeds or trials for every cell [default: as the paper]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    repeat: Option<u64>,
    /// Folder for finished repeats; going on in it skips them [default: runs/reproduce-PAPER]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write what was measured to this file, as the numbers to compare with from then on
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Threads to use [default: one for every core]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
    #[command(flatten)]
    on: OnDevice,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

struct Cases;

impl WatchCases for Cases {
    fn skipped(&mut self, experiment: &str, why: &Error) {
        say(&format!("left out: {experiment}: {why}"));
    }

    fn case(&mut self, experiment: &str, case: &str, repeat: u64, of: u64) -> Box<dyn Watch> {
        Box::new(Bars::new(format!("{experiment} {case}, {repeat} of {of}: ")))
    }
}

pub fn run(arguments: Arguments) -> Result<Ending> {
    let paper = kinfolk_papers::paper(&arguments.paper, arguments.quick)?;
    let folder = arguments.out.unwrap_or_else(|| PathBuf::from("runs").join(format!("reproduce-{}", paper.name)));
    let plan = Plan {
        experiment: arguments.experiment.as_deref(),
        repeats: arguments.repeat,
        folder: &folder,
        threads: arguments.threads.unwrap_or(0),
        backend: arguments.on.backend(None)?,
        stop: stop_on_interrupt(),
    };
    let results = kinfolk_papers::reproduce(&paper, &plan, &mut Cases).map_err(|error| match error.kind() {
        ErrorKind::Stopped => error.hint("the same command goes on where this stopped"),
        _ => error,
    })?;
    if let Some(file) = &arguments.record {
        let text = Recorded::of(paper.name, &results).to_json()?;
        std::fs::write(file, text + "\n").map_err(|error| Error::io("writing", file, error))?;
    }
    let missed = |cell: &CellResult| cell.within.map_or(cell.ours.is_none(), |within| !within);
    let fell_short = results.iter().flat_map(|result| &result.cells).any(missed);
    if arguments.json {
        print_json(&serde_json::json!({ "paper": paper.name, "cpu": cpu(), "experiments": results }))?;
    } else {
        let mut text = format!("{}\n", paper.title);
        for result in &results {
            let title = paper.experiments.iter().find(|e| e.name == result.experiment).map_or("", |e| &e.title);
            let referred = result.cells.iter().any(|cell| cell.reference.is_some());
            let recorded = result.cells.iter().any(|cell| cell.recorded.is_some());
            let mut table = Table::new().words("cell").numbers("paper");
            if referred {
                table = table.numbers("reference");
            }
            if recorded {
                table = table.numbers("recorded");
            }
            table = table.numbers("ours").numbers("sd").numbers("repeats").words("within");
            for cell in &result.cells {
                let number = |value: Option<f64>| value.map_or(String::new(), |value| significant(value, 4));
                let within = match cell.within {
                    Some(true) => "yes",
                    Some(false) => "no",
                    None => "",
                };
                let mut row = vec![cell.cell.clone(), number(cell.paper)];
                row.extend(referred.then(|| number(cell.reference)));
                row.extend(recorded.then(|| number(cell.recorded)));
                row.extend([number(cell.ours), number(cell.sd), cell.repeats.to_string(), within.into()]);
                table.push(row);
            }
            text += &format!("\n{}: {title}\n{table}", result.experiment);
        }
        print(&text)?;
    }
    Ok(if fell_short { Ending::FellShort } else { Ending::Done })
}
