//! `kinfolk list`: what there is to use.

use super::print;
use crate::Ending;
use kinfolk::report::table::Table;
use kinfolk::settings::{Default, Setting, nearest};
use kinfolk::{Result, data, methods, models, presets};

/// List methods, models, datasets or presets.
#[derive(clap::Args)]
pub struct Arguments {
    /// What to list
    what: What,
    /// Show the settings of one of them
    name: Option<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    Methods,
    Models,
    Datasets,
    Presets,
}

/// One thing to list.
struct Entry {
    name: &'static str,
    summary: &'static str,
    settings: &'static [Setting],
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<Ending> {
    let entries: Vec<Entry> = match arguments.what {
        What::Methods => {
            methods::METHODS.iter().map(|m| Entry { name: m.name, summary: m.summary, settings: m.settings }).collect()
        }
        What::Models => {
            models::MODELS.iter().map(|m| Entry { name: m.name, summary: m.summary, settings: m.settings }).collect()
        }
        What::Datasets => {
            data::SOURCES.iter().map(|s| Entry { name: s.name, summary: s.summary, settings: s.settings }).collect()
        }
        What::Presets => {
            presets::PRESETS.iter().map(|p| Entry { name: p.name, summary: p.summary, settings: &[] }).collect()
        }
    };
    match arguments.name {
        None => {
            let mut table = Table::new().words("name").words("what it is");
            entries.iter().for_each(|entry| table.push([entry.name, entry.summary]));
            print(&table.to_string())?;
        }
        Some(name) => {
            let entry = entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
                let known: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
                let fault = kinfolk::Error::settings(format!("list: got \"{name}\", want one of {}", known.join(", ")));
                match nearest(&name, known.into_iter()) {
                    Some(near) => fault.hint(format!("did you mean \"{near}\"?")),
                    None => fault,
                }
            })?;
            let mut table = Table::new().words("setting").words("default").words("wanted").words("what it does");
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
