//! `kinfolk list`: what there is to use.

use super::*;
use kinfolk::experiment::{Privacy, Rates, Top};
use kinfolk::record::table::Heading;
use kinfolk::run::files::FILES;
use kinfolk::settings::{Declared, Default, Setting, unknown_name};
use kinfolk::{data, methods, models, presets};
use serde_json::{Map, Value, json};

/// List methods, models, datasets, presets, the sections of an experiment file, or the files of a run.
#[derive(clap::Args)]
pub struct Arguments {
    /// What to list
    what: What,
    /// Show the settings of one of them, or the columns of a file
    name: Option<String>,
    /// Print everything that is declared as one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    Methods,
    Models,
    Datasets,
    Presets,
    Sections,
    Files,
}

#[derive(std::default::Default)]
struct Entry {
    name: &'static str,
    summary: &'static str,
    /// Where a method comes from.
    paper: Option<&'static str>,
    /// Whether a method puts clients into clusters.
    clusters: Option<bool>,
    /// What a method wants a model to be able to do.
    wants: Option<String>,
    settings: &'static [Setting],
    columns: &'static [Heading],
}

impl Entry {
    fn new(name: &'static str, summary: &'static str, settings: &'static [Setting]) -> Self {
        Self { name, summary, settings, ..std::default::Default::default() }
    }

    fn in_one_line(&self) -> String {
        self.paper.map_or_else(|| self.summary.to_string(), |paper| format!("{} ({paper})", self.summary))
    }

    /// All that is declared; what does not apply is absent.
    fn as_json(&self) -> Value {
        let mut fields = Map::new();
        let mut add = |name: &str, value: Value| fields.insert(name.to_string(), value);
        add("name", self.name.into());
        add("summary", self.summary.into());
        if let Some(paper) = self.paper {
            add("paper", paper.into());
        }
        if let Some(clusters) = self.clusters {
            add("clusters", clusters.into());
        }
        if let Some(wants) = &self.wants {
            add("wants", wants.as_str().into());
        }
        if !self.columns.is_empty() {
            let columns = self.columns.iter().map(|column| json!({ "name": column.name, "help": column.help.trim() }));
            add("columns", columns.collect());
        }
        add("settings", self.settings.iter().map(setting_as_json).collect());
        fields.into()
    }
}

fn setting_as_json(setting: &Setting) -> Value {
    let mut fields = json!({
        "name": setting.name,
        "required": matches!(setting.default, Default::Required),
        "wanted": setting.kind.wanted(),
        "help": setting.help,
    });
    if let Default::Is(value) = setting.default {
        fields["default"] = value.into();
    }
    if let Some((choice, values)) = setting.only_with {
        fields["only_with"] = json!({ "setting": choice, "values": values });
    }
    fields
}

pub fn run(arguments: Arguments) -> Result<Ending> {
    let entries: Vec<Entry> = match arguments.what {
        What::Methods => methods::METHODS
            .iter()
            .map(|method| Entry {
                paper: Some(method.paper),
                clusters: Some(method.has_clusters),
                wants: Some(format!("{:?}", method.wants).to_lowercase()),
                ..Entry::new(method.name, method.summary, method.settings)
            })
            .collect(),
        What::Models => models::MODELS.iter().map(|m| Entry::new(m.name, m.summary, m.settings)).collect(),
        What::Datasets => data::SOURCES.iter().map(|s| Entry::new(s.name, s.summary, s.settings)).collect(),
        What::Presets => presets::PRESETS.iter().map(|p| Entry::new(p.name, p.summary, &[])).collect(),
        What::Sections => vec![
            Entry::new("top", "the keys at the top of an experiment file", Top::SETTINGS),
            Entry::new("faults", "clients that do not answer, or answer falsely", Rates::SETTINGS),
            Entry::new("privacy", "what is told of clients and their rows", Privacy::SETTINGS),
        ],
        What::Files => FILES.iter().map(|f| Entry { columns: f.columns, ..Entry::new(f.name, f.holds, &[]) }).collect(),
    };
    let Some(name) = arguments.name else {
        if arguments.json {
            print_json(&entries.iter().map(Entry::as_json).collect::<Vec<_>>())?;
            return Ok(Ending::Done);
        }
        let mut table = Table::new().words("name").words("what it is");
        entries.iter().for_each(|entry| table.push([entry.name, &entry.in_one_line()]));
        print(&table.to_string())?;
        return Ok(Ending::Done);
    };
    let entry = entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
        match arguments.what {
            What::Methods => methods::unknown("list", &name, &known),
            _ => unknown_name("list", &name, &known),
        }
    })?;
    if arguments.json {
        print_json(&entry.as_json())?;
        return Ok(Ending::Done);
    }
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
    print(&format!("{}: {}\n\n{table}", entry.name, entry.in_one_line()))?;
    Ok(Ending::Done)
}
