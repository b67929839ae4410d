//! `kinfolk data`: which datasets are here, where, and how to get the others.

use super::*;
use crate::progress::style;
use indicatif::ProgressBar;
use kinfolk::data::cache;

/// Look after the datasets: list them, find them, download them.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Which datasets there are, and which are here
    List,
    /// Where a dataset lies, or belongs
    Path {
        /// Such as mnist
        name: String,
    },
    /// Download a dataset, going on where a download broke off
    Get {
        /// Such as mnist
        name: String,
    },
}

pub fn run(arguments: Arguments) -> Result<Ending> {
    match arguments.verb {
        Verb::List => {
            let mut table = Table::new().words("name").words("here").words("folder");
            table.push(["digits", "compiled in", ""]);
            for dataset in cache::DATASETS {
                let here = if cache::is_present(dataset.name) { "yes" } else { "no" };
                table.push([dataset.name, here, &cache::path(dataset.name)?.display().to_string()]);
            }
            print(&table.to_string())?;
        }
        Verb::Path { name } => print(&format!("{}\n", cache::path(&name)?.display()))?,
        Verb::Get { name } => {
            let bar = ProgressBar::new(0);
            bar.set_style(style("{msg} {bar:30} {bytes}/{total_bytes}, {eta} left"));
            let path = cache::get(&name, &mut |file: &str, done: u64, total: Option<u64>| {
                bar.set_message(file.to_string());
                if let Some(total) = total {
                    bar.set_length(total);
                }
                bar.set_position(done);
            })?;
            bar.finish_and_clear();
            print(&format!("{}\n", path.display()))?;
        }
    }
    Ok(Ending::Done)
}
