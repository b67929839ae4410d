//! `kinfolk list`: what there is to use.

use super::*;
use kinfolk::record::table::Heading;
use kinfolk::run::files::FILES;
use kinfolk::settings::{Default, Setting, unknown_name};
use kinfolk::{data, methods, models, presets};

/// List methods, models, datasets, presets, or the files of a run.
#[derive(clap::Args)]
pub struct Arguments {
    /// What to list
    what: What,
    /// Show the settings of one of them, or the columns of a file
    name: Option<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    Methods,
    Models,
    Datasets,
    Presets,
    Files,
}

struct Entry {
    name: &'static str,
    summary: String,
    settings: &'static [Setting],
    columns: &'static [Heading],
}

pub fn run(arguments: Arguments) -> Result<Ending> {
    let entry = |name, summary: &str, settings| Entry { name, summary: summary.to_string(), settings, columns: &[] };
    let entries: Vec<Entry> = match arguments.what {
        What::Methods => methods::METHODS
            .iter()
            .map(|m| entry(m.name, &format!("{} ({})", m.summary, m.paper), m.settings))
            .collect(),
        What::Models => models::MODELS.iter().map(|m| entry(m.name, m.summary, m.settings)).collect(),
        What::Datasets => data::SOURCES.iter().map(|s| entry(s.name, s.summary, s.settings)).collect(),
        What::Presets => presets::PRESETS.iter().map(|p| entry(p.name, p.summary, &[])).collect(),
        What::Files => FILES.iter().map(|f| Entry { columns: f.columns, ..entry(f.name, f.holds, &[]) }).collect(),
    };
    match arguments.name {
        None => {
            let mut table = Table::new().words("name").words("what it is");
            entries.iter().for_each(|entry| table.push([entry.name, &entry.summary]));
            print(&table.to_string())?;
        }
        Some(name) => {
            let entry = entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
                let known: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
                match arguments.what {
                    What::Methods => methods::unknown("list", &name, &known),
                    _ => unknown_name("list", &name, &known),
                }
            })?;
            let mut table = match entry.columns {
                [] => Table::new().words("setting").words("default").words("wanted").words("what it does"),
                _ => Table::new().words("column").words("what it is"),
            };
            entry.columns.iter().for_each(|column| table.push([column.name, column.help.trim()]));
            for setting in entry.settings {
                let default = match setting.default {
                    Default::Required => "required".to_string(),
                    Default::Absent => String::new(),
                    Default::Is(value) => value.to_string(),
                };
                table.push([setting.name.to_string(), default, setting.kind.wanted(), setting.help.to_string()]);
            }
            print(&format!("{}: {}\n\n{table}", entry.name, entry.summary))?;
        }
    }
    Ok(Ending::Done)
}
