//! Experiments compiled in, so that the shortest command works.

use crate::error::{Error, Result};
use std::path::Path;

/// An experiment by name.
pub struct Preset {
    /// What `kinfolk run` takes.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// The experiment file.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal: $summary:literal),* $(,)?) => {
        &[$(Preset { name: $name, summary: $summary, text: include_str!(concat!("../presets/", $name, ".toml")) }),*]
    };
}

/// Every preset there is.
pub static PRESETS: &[Preset] = presets! {
    "quickstart": "handwritten digits in four rotations; no download, a few seconds",
    "personal": "regressions of eighty clients in known clusters; no download, a second",
    "mixtures": "rows without a target, two outliers among twenty clients; no download, a second",
    "families": "digits of which nobody says how many families there are; no download, a second",
};

/// The preset of this name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// The file of this name, or else the preset: what to call it in messages, and its text.
pub fn read(name: &str) -> Result<(String, String)> {
    if !Path::new(name).exists()
        && let Some(preset) = find(name)
    {
        return Ok((name.to_string(), preset.text.to_string()));
    }
    match std::fs::read_to_string(name) {
        Ok(text) => Ok((name.to_string(), text)),
        Err(error) => {
            let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
            Err(Error::io("reading", name, error)
                .hint(format!("want an experiment file, or a preset: {}", known.join(", "))))
        }
    }
}
