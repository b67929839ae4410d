//! Settings declared once: the declaration drives checking, defaults, help and docs.

pub(crate) mod field;

use crate::error::{Error, Result};
pub use field::{Auto, Declared, Field, ForEach};
pub(crate) use field::{bounds, check_together, choices, default, only_with, settings};
use std::collections::BTreeMap;
use toml::Value;

/// One setting: its name, what it may be, what it is when left out, and what it does.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The key in the experiment file.
    pub name: &'static str,
    /// What values are allowed.
    pub kind: Kind,
    /// What it is when left out.
    pub default: Default,
    /// The choice it belongs to, and with which of its values, written as in TOML; it means nothing with others.
    pub only_with: Option<(&'static str, &'static [&'static str])>,
    /// One line for people.
    pub help: &'static str,
}

/// What values a setting may take.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A whole number within bounds, both included.
    Integer(i64, i64),
    /// A number within bounds, both included.
    Number(f64, f64),
    /// A number above 0.
    Positive,
    /// A number above the first bound, and up to the second.
    Above(f64, f64),
    /// A number from the first bound to below the second.
    Below(f64, f64),
    /// One positive number, or a list of them.
    Positives,
    /// A number of at least 0, a list of them, or a table of them by name.
    Strengths,
    /// This word, or a value of this kind.
    Or(&'static str, &'static Kind),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Any text.
    Text,
    /// true or false.
    Flag,
    /// A list of whole numbers within bounds.
    Integers(i64, i64),
    /// A list of texts.
    Texts,
}

/// Between what values are.
#[derive(Debug, Clone, Copy)]
pub enum Bounds {
    /// There are none.
    None,
    /// From the first to the second, both included.
    From(f64, f64),
    /// Above the first, and up to the second.
    Above(f64, f64),
    /// From the first to below the second.
    Below(f64, f64),
    /// One of these words.
    Words(&'static [&'static str]),
}

/// What a setting is when left out.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// It must be given.
    Required,
    /// It stays absent.
    Absent,
    /// This value, written as in TOML.
    Is(&'static str),
}

impl Setting {
    /// Declares a setting.
    pub const fn new(name: &'static str, kind: Kind, default: Default, help: &'static str) -> Self {
        Self { name, kind, default, only_with: None, help }
    }
}

impl Kind {
    /// What is wanted, in words.
    pub fn wanted(&self) -> String {
        let bounds = |low: f64, high: f64| match (low > -1e18, high < 1e18) {
            (true, true) => format!(" from {low} to {high}"),
            (true, false) => format!(" of at least {low}"),
            (false, true) => format!(" of at most {high}"),
            (false, false) => String::new(),
        };
        match self {
            Kind::Integer(low, high) => format!("a whole number{}", bounds(*low as f64, *high as f64)),
            Kind::Number(low, high) => format!("a number{}", bounds(*low, *high)),
            Kind::Positive => "a number above 0".into(),
            Kind::Above(low, high) if *high < 1e18 => format!("a number above {low} and up to {high}"),
            Kind::Above(low, _) => format!("a number above {low}"),
            Kind::Below(low, high) => format!("a number from {low} to below {high}"),
            Kind::Positives => "a number above 0, or a list of them".into(),
            Kind::Strengths => "a number of at least 0, a list of them, or a table of them by name".into(),
            Kind::Or(word, kind) => format!("\"{word}\", or {}", kind.wanted()),
            Kind::OneOf(words) => format!("one of {}", words.join(", ")),
            Kind::Text => "a text".into(),
            Kind::Flag => "true or false".into(),
            Kind::Integers(low, high) => format!("a list of whole numbers{}", bounds(*low as f64, *high as f64)),
            Kind::Texts => "a list of texts".into(),
        }
    }

    fn accepts(&self, value: &Value) -> bool {
        match self {
            Kind::Integer(low, high) => value.as_integer().is_some_and(|v| (*low..=*high).contains(&v)),
            Kind::Number(low, high) => number(value).is_some_and(|v| (*low..=*high).contains(&v)),
            Kind::Positive => number(value).is_some_and(|v| v > 0.0 && v.is_finite()),
            Kind::Above(low, high) => number(value).is_some_and(|v| *low < v && v <= *high),
            Kind::Below(low, high) => number(value).is_some_and(|v| (*low..*high).contains(&v)),
            Kind::Positives => match value {
                Value::Array(list) => !list.is_empty() && list.iter().all(|v| Kind::Positive.accepts(v)),
                one => Kind::Positive.accepts(one),
            },
            Kind::Strengths => {
                let one = |value: &Value| number(value).is_some_and(|v| v >= 0.0 && v.is_finite());
                match value {
                    Value::Array(list) => !list.is_empty() && list.iter().all(one),
                    Value::Table(table) => !table.is_empty() && table.values().all(one),
                    value => one(value),
                }
            }
            Kind::Or(word, kind) => value.as_str() == Some(word) || kind.accepts(value),
            Kind::OneOf(words) => value.as_str().is_some_and(|v| words.contains(&v)),
            Kind::Text => value.is_str(),
            Kind::Flag => value.is_bool(),
            Kind::Integers(low, high) => {
                value.as_array().is_some_and(|list| list.iter().all(|v| Kind::Integer(*low, *high).accepts(v)))
            }
            Kind::Texts => value.as_array().is_some_and(|list| list.iter().all(Value::is_str)),
        }
    }
}

/// A whole or broken number.
pub(crate) fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|v| v as f64))
}

/// Checked settings with every default filled in.
///
/// The getters panic on a name that was not declared: that is a bug in the caller, never input.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(transparent)]
pub struct Settings(BTreeMap<String, Value>);

impl Settings {
    /// What holds where nothing is given; what must be given is absent.
    pub fn defaults(declared: &[Setting]) -> Self {
        Self::check("", declared, toml::Table::new(), &mut Vec::new())
    }

    /// Checks a table against its declaration, adding every fault under `place` to `faults`. The place is empty for
    /// keys at the top of the file.
    pub fn check(place: &str, declared: &[Setting], mut given: toml::Table, faults: &mut Vec<Error>) -> Self {
        let mut checked = BTreeMap::new();
        let before = faults.len();
        for setting in declared {
            let path = if place.is_empty() { setting.name.into() } else { format!("{place}.{}", setting.name) };
            match (given.remove(setting.name), setting.default) {
                (Some(value), _) if setting.kind.accepts(&value) => {
                    checked.insert(setting.name.to_string(), value);
                }
                (Some(value), _) => {
                    let mut fault = Error::settings(format!("{path}: got {value}, want {}", setting.kind.wanted()));
                    if let (Kind::OneOf(words), Some(word)) = (setting.kind, value.as_str())
                        && let Some(near) = nearest(word, words.iter().copied())
                    {
                        fault = fault.hint(format!("did you mean \"{near}\"?"));
                    }
                    faults.push(fault);
                }
                (None, Default::Required) => faults.push(
                    Error::settings(format!("{path}: missing, want {}", setting.kind.wanted())).hint(setting.help),
                ),
                (None, Default::Absent) => {}
                (None, Default::Is(literal)) => {
                    checked.insert(setting.name.to_string(), literal_value(literal));
                }
            }
        }
        for key in given.keys() {
            faults.push(unknown(place, key, declared.iter().map(|setting| setting.name)));
        }
        let checked = Settings(checked);
        if faults.len() == before {
            faults.extend(declared.iter().filter_map(|setting| checked.misplaced(place, setting, declared)));
        }
        checked
    }

    /// The fault of a setting that was given though its choice fell otherwise.
    fn misplaced(&self, place: &str, setting: &Setting, declared: &[Setting]) -> Option<Error> {
        let (choice, words) = setting.only_with?;
        let chosen = self.get(choice)?.to_string();
        if words.contains(&&*chosen) || self.changed(declared, &[setting.name]).is_empty() {
            return None;
        }
        Some(Error::settings(format!("{place}.{}: is for {choice} = {}", setting.name, words.join(" or "))))
    }

    /// The value of a declared setting, if it has one.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Which of these names have a value other than when left out.
    pub fn changed<'a>(&self, declared: &[Setting], names: &[&'a str]) -> Vec<&'a str> {
        let usual = |name: &str| match declared.iter().find(|setting| setting.name == name)?.default {
            Default::Is(literal) => Some(literal_value(literal)),
            Default::Required | Default::Absent => None,
        };
        let same = |name: &str| match (self.get(name), usual(name)) {
            (Some(found), Some(usual)) => *found == usual || number(found).is_some_and(|it| number(&usual) == Some(it)),
            (found, usual) => found == usual.as_ref(),
        };
        names.iter().copied().filter(|name| !same(name)).collect()
    }

    /// A whole number.
    pub fn integer(&self, name: &str) -> usize {
        self.optional_integer(name).unwrap_or_else(|| panic!("setting {name} has no value"))
    }

    /// A whole number that may be absent.
    pub fn optional_integer(&self, name: &str) -> Option<usize> {
        self.0.get(name).and_then(Value::as_integer).map(|v| v.max(0) as usize)
    }

    /// A number.
    pub fn number(&self, name: &str) -> f64 {
        self.optional_number(name).unwrap_or_else(|| panic!("setting {name} has no value"))
    }

    /// A number that may be absent.
    pub fn optional_number(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(number)
    }

    /// One or more numbers.
    pub fn numbers(&self, name: &str) -> Vec<f64> {
        match self.0.get(name) {
            Some(Value::Array(list)) => list.iter().filter_map(number).collect(),
            Some(one) => number(one).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Whole numbers.
    pub fn integers(&self, name: &str) -> Vec<usize> {
        let list = self.0.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_integer).map(|v| v.max(0) as usize).collect()
    }

    /// A text.
    pub fn text(&self, name: &str) -> &str {
        self.optional_text(name).unwrap_or_else(|| panic!("setting {name} has no value"))
    }

    /// A text that may be absent.
    pub fn optional_text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// Texts.
    pub fn texts(&self, name: &str) -> Vec<String> {
        let list = self.0.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect()
    }

    /// The same settings with another value of one.
    pub fn with(&self, name: &str, value: impl Into<Value>) -> Self {
        let mut changed = self.clone();
        changed.0.insert(name.to_string(), value.into());
        changed
    }

    /// A flag.
    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or_else(|| panic!("setting {name} has no value"))
    }

    /// As a TOML table.
    pub fn to_table(&self) -> toml::Table {
        self.0.clone().into_iter().collect()
    }
}

fn literal_value(literal: &str) -> Value {
    let table: toml::Table = toml::from_str(&format!("v = {literal}"))
        .unwrap_or_else(|error| panic!("default {literal} is not TOML: {error}"));
    table["v"].clone()
}

/// A section whose settings are sound one by one, for faults that need several of them to see.
pub struct Check<'a> {
    /// Where the section stands.
    pub place: &'a str,
    /// Its settings.
    pub settings: &'a Settings,
    /// Their declarations.
    pub declared: &'static [Setting],
    /// Where faults go.
    pub faults: &'a mut Vec<Error>,
}

impl Check<'_> {
    /// A fault of the setting of this name.
    pub fn fault(&mut self, name: &str, why: impl std::fmt::Display) {
        self.faults.push(Error::settings(format!("{}.{name}: {why}", self.place)));
    }

    /// A fault of the setting of this name, with what to do about it.
    pub fn fault_with_hint(&mut self, name: &str, why: impl std::fmt::Display, hint: impl Into<String>) {
        self.faults.push(Error::settings(format!("{}.{name}: {why}", self.place)).hint(hint));
    }

    /// Which of these have a value other than when left out.
    pub fn changed<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        self.settings.changed(self.declared, names)
    }
}

/// The fault of a key nobody declared, with the nearest known one.
pub fn unknown<'a>(place: &str, key: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    let fault = Error::settings(format!("{place}: unknown key `{key}`"));
    match nearest(key, known.iter().copied()) {
        Some(near) => fault.hint(format!("did you mean `{near}`?")),
        None => fault.hint(format!("known keys: {}", known.join(", "))),
    }
}

/// The fault of a name that is not among the known ones, with the nearest of them.
pub fn unknown_name(place: &str, name: &str, known: &[&str]) -> Error {
    let fault = Error::settings(format!("{place}: got \"{name}\", want one of {}", known.join(", ")));
    match nearest(name, known.iter().copied()) {
        Some(near) => fault.hint(format!("did you mean \"{near}\"?")),
        None => fault,
    }
}

/// The known word closest to a misspelt one, if any is close. Another number is no misspelling.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters = |word: &str| -> String { word.chars().filter(|letter| !letter.is_ascii_digit()).collect() };
    known
        .filter(|candidate| letters(candidate) != letters(word))
        .map(|candidate| (edit_distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().max(word.len()) / 3)
        .min()
        .map(|(_, candidate)| candidate)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// Turns collected faults into a result.
pub fn finish(faults: Vec<Error>) -> Result<()> {
    if faults.is_empty() { Ok(()) } else { Err(Error::all(faults)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &[Setting] = &[
        Setting::new("clusters", Kind::Integer(1, i64::MAX), Default::Required, "how many"),
        Setting::new("step", Kind::Positives, Default::Is("0.1"), "step size"),
        Setting::new("start", Kind::OneOf(&["random", "farthest"]), Default::Is("\"random\""), "how to begin"),
    ];

    fn check(text: &str) -> (Settings, Vec<String>) {
        let mut faults = Vec::new();
        let settings = Settings::check("method.ifca", DECLARED, toml::from_str(text).unwrap(), &mut faults);
        (settings, faults.iter().map(Error::to_string).collect())
    }

    #[test]
    fn defaults_are_filled_in() {
        let (settings, faults) = check("clusters = 2");
        assert!(faults.is_empty());
        assert_eq!(settings.numbers("step"), [0.1]);
        assert_eq!(settings.text("start"), "random");
    }

    #[test]
    fn another_number_is_no_misspelling() {
        assert_eq!(nearest("3", ["1", "2"].into_iter()), None);
        assert_eq!(nearest("e9", ["e1", "e2", "t1"].into_iter()), None);
        assert_eq!(nearest("mnits2", ["mnist1", "mnist2"].into_iter()), Some("mnist2"));
    }

    #[test]
    fn what_is_given_as_the_default_has_not_changed() {
        let changed = |text: &str| check(text).0.changed(DECLARED, &["clusters", "step", "start"]);
        assert_eq!(changed("clusters = 2\nstep = 0.1\nstart = \"random\""), ["clusters"]);
        assert_eq!(changed("clusters = 2\nstep = 1\nstart = \"farthest\""), ["clusters", "step", "start"]);
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let (_, faults) = check("clusters = 0\nstpe = 1.0\nstart = \"randon\"\nstep = \"fast\"");
        assert_eq!(
            faults,
            [
                "method.ifca.clusters: got 0, want a whole number of at least 1",
                "method.ifca.step: got \"fast\", want a number above 0, or a list of them",
                "method.ifca.start: got \"randon\", want one of random, farthest\n  hint: did you mean \"random\"?",
                "method.ifca: unknown key `stpe`\n  hint: did you mean `step`?",
            ]
        );
    }
}
