//! Lists of methods, models, datasets and presets.

use kinfolk::data::SOURCES;
use kinfolk::methods::METHODS;
use kinfolk::models::MODELS;
use kinfolk::presets::PRESETS;
use kinfolk::settings::{Default, Setting};
use pyo3::prelude::*;

/// Name, default, accepted values and help. The default is as in a file, and absent where there is none.
type SettingEntry = (&'static str, Option<&'static str>, String, &'static str);
/// Name, summary and settings.
type Entry = (&'static str, String, Vec<SettingEntry>);

fn entry(name: &'static str, summary: impl Into<String>, settings: &[Setting]) -> Entry {
    let settings = settings.iter().map(|setting| {
        let default = match setting.default {
            Default::Required => Some("required"),
            Default::Absent => None,
            Default::Is(value) => Some(value),
        };
        (setting.name, default, setting.kind.wanted(), setting.help)
    });
    (name, summary.into(), settings.collect())
}

/// Every method.
#[pyfunction]
pub fn methods() -> Vec<Entry> {
    let methods = METHODS.iter();
    methods
        .map(|method| entry(method.name, format!("{} ({})", method.summary, method.paper), method.settings))
        .collect()
}

/// Every model.
#[pyfunction]
pub fn models() -> Vec<Entry> {
    MODELS.iter().map(|model| entry(model.name, model.summary, model.settings)).collect()
}

/// Every dataset.
#[pyfunction]
pub fn datasets() -> Vec<Entry> {
    SOURCES.iter().map(|source| entry(source.name, source.summary, source.settings)).collect()
}

/// Every preset.
#[pyfunction]
pub fn presets() -> Vec<Entry> {
    PRESETS.iter().map(|preset| entry(preset.name, preset.summary, &[])).collect()
}
