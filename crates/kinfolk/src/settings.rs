//! Settings, each declared once: checks, defaults, help and docs follow from the declaration.

#[doc(hidden)]
pub mod field;

use crate::error::{Error, Result};
pub use field::{Auto, Declared, Field, ForEach};
#[doc(hidden)]
pub use field::{bounded, choices, default, only_with, settings};
use std::collections::BTreeMap;
#[doc(hidden)]
pub use toml::{Table, Value};

/// The declaration of a setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The key in the experiment file.
    pub name: &'static str,
    /// The allowed values.
    pub kind: Kind,
    /// Its default.
    pub default: Default,
    /// The choice it belongs to, and the values of that choice, in TOML, with which it has a meaning.
    pub only_with: Option<(&'static str, &'static [&'static str])>,
    /// One line of help.
    pub help: &'static str,
}

/// The allowed values of a setting.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub enum Kind {
    /// A whole number within bounds.
    Integer(Bounds),
    /// A number within bounds.
    Number(Bounds),
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
    Integers(Bounds),
    /// A list of texts.
    Texts,
}

/// Bounds of a number.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct Bounds {
    /// The least value.
    pub low: f64,
    /// Whether it must be above that.
    pub above: bool,
    /// The largest value.
    pub high: f64,
    /// Whether it must be below that.
    pub below: bool,
}

impl Bounds {
    const fn from(low: f64, high: f64) -> Self {
        Self { low, above: false, high, below: false }
    }

    fn contain(self, value: f64) -> bool {
        let high_enough = if self.above { value > self.low } else { value >= self.low };
        let low_enough = if self.below { value < self.high } else { value <= self.high };
        high_enough && low_enough
    }

    fn in_words(self) -> String {
        let Self { low, above, high, below } = self;
        match (low > -1e18, high < 1e18) {
            (true, true) if above && below => format!(" above {low} and below {high}"),
            (true, true) if above => format!(" above {low} and up to {high}"),
            (true, true) if below => format!(" from {low} to below {high}"),
            (true, true) => format!(" from {low} to {high}"),
            (true, false) if above => format!(" above {low}"),
            (true, false) => format!(" of at least {low}"),
            (false, true) => format!(" of at most {high}"),
            (false, false) => String::new(),
        }
    }
}

/// The default of a setting.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub enum Default {
    /// It must be given.
    Required,
    /// It stays absent.
    Absent,
    /// This value, in TOML.
    Is(&'static str),
}

impl Kind {
    /// A description of the allowed values.
    pub fn wanted(&self) -> String {
        match self {
            Kind::Integer(bounds) => format!("a whole number{}", bounds.in_words()),
            Kind::Number(bounds) => format!("a number{}", bounds.in_words()),
            Kind::Positives => "a number above 0, or a list of them".into(),
            Kind::Strengths => "a number of at least 0, a list of them, or a table of them by name".into(),
            Kind::Or(word, kind) => format!("\"{word}\", or {}", kind.wanted()),
            Kind::OneOf(words) => format!("one of {}", words.join(", ")),
            Kind::Text => "a text".into(),
            Kind::Flag => "true or false".into(),
            Kind::Integers(bounds) => format!("a list of whole numbers{}", bounds.in_words()),
            Kind::Texts => "a list of texts".into(),
        }
    }

    fn accepts(&self, value: &Value) -> bool {
        const POSITIVE: Bounds = Bounds { above: true, ..NOT_NEGATIVE };
        const NOT_NEGATIVE: Bounds = Bounds::from(0.0, f64::MAX);
        let within = |bounds: Bounds, value: &Value| number(value).is_some_and(|value| bounds.contain(value));
        let all = |bounds: Bounds, value: &Value| match value {
            Value::Array(list) => !list.is_empty() && list.iter().all(|value| within(bounds, value)),
            one => within(bounds, one),
        };
        match self {
            Kind::Integer(bounds) => value.is_integer() && within(*bounds, value),
            Kind::Number(bounds) => within(*bounds, value),
            Kind::Positives => all(POSITIVE, value),
            Kind::Strengths => match value {
                Value::Table(table) => !table.is_empty() && table.values().all(|value| within(NOT_NEGATIVE, value)),
                value => all(NOT_NEGATIVE, value),
            },
            Kind::Or(word, kind) => value.as_str() == Some(word) || kind.accepts(value),
            Kind::OneOf(words) => value.as_str().is_some_and(|v| words.contains(&v)),
            Kind::Text => value.is_str(),
            Kind::Flag => value.is_bool(),
            Kind::Integers(bounds) => {
                value.as_array().is_some_and(|list| list.iter().all(|v| Kind::Integer(*bounds).accepts(v)))
            }
            Kind::Texts => value.as_array().is_some_and(|list| list.iter().all(Value::is_str)),
        }
    }
}

pub(crate) fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|v| v as f64))
}

/// Checked settings with every default filled in.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(transparent)]
pub struct Settings(BTreeMap<String, Value>);

impl Settings {
    /// All defaults; required settings are absent.
    #[doc(hidden)]
    pub fn defaults(declared: &[Setting]) -> Self {
        Self::check("", declared, Table::new(), &mut Vec::new())
    }

    /// Checks a table against its declaration, adding every fault to `faults`. `place` is empty at the top of the file.
    #[doc(hidden)]
    pub fn check(place: &str, declared: &[Setting], mut given: Table, faults: &mut Vec<Error>) -> Self {
        let mut checked = BTreeMap::new();
        for setting in declared {
            let path = if place.is_empty() { setting.name.into() } else { format!("{place}.{}", setting.name) };
            let unset = |value: &Value| matches!(setting.default, Default::Required) && value.as_str() == Some("");
            match (given.remove(setting.name).filter(|value| !unset(value)), setting.default) {
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
        Settings(checked)
    }

    /// The fault of a setting that has no meaning with the choice made.
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

    /// Which of these settings differ from their defaults.
    pub(crate) fn changed<'a>(&self, declared: &[Setting], names: &[&'a str]) -> Vec<&'a str> {
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

    /// The same settings with another value of this one.
    pub(crate) fn with(&self, name: &str, value: impl Into<Value>) -> Self {
        let mut changed = self.clone();
        changed.0.insert(name.to_string(), value.into());
        changed
    }

    pub(crate) fn to_table(&self) -> Table {
        self.0.clone().into_iter().collect()
    }
}

fn literal_value(literal: &str) -> Value {
    let table: Table = toml::from_str(&format!("v = {literal}"))
        .unwrap_or_else(|error| panic!("default {literal} is not TOML: {error}"));
    table["v"].clone()
}

/// A section whose settings are valid one by one, to check combinations of them.
pub struct Check<'a> {
    /// The section's path.
    pub place: &'a str,
    /// Its settings.
    pub settings: &'a Settings,
    /// Their declarations.
    pub declared: &'static [Setting],
    /// Where faults go.
    pub faults: &'a mut Vec<Error>,
}

impl Check<'_> {
    /// Adds a fault of a setting.
    pub fn fault(&mut self, name: &str, why: impl std::fmt::Display) {
        self.faults.push(Error::settings(format!("{}.{name}: {why}", self.place)));
    }

    /// The same, with a hint.
    pub fn fault_with_hint(&mut self, name: &str, why: impl std::fmt::Display, hint: impl Into<String>) {
        self.faults.push(Error::settings(format!("{}.{name}: {why}", self.place)).hint(hint));
    }

    pub(crate) fn changed<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        self.settings.changed(self.declared, names)
    }
}

/// The fault of an undeclared key, with the nearest known one.
pub(crate) fn unknown<'a>(place: &str, key: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    let fault = Error::settings(format!("{place}: unknown key `{key}`"));
    match nearest(key, known.iter().copied()) {
        Some(near) => fault.hint(format!("did you mean `{near}`?")),
        None => fault.hint(format!("known keys: {}", known.join(", "))),
    }
}

/// The fault of a name that is not among the known ones, with the nearest of them.
#[doc(hidden)]
pub fn unknown_name(place: &str, name: &str, known: &[&str]) -> Error {
    let fault = Error::settings(format!("{place}: got \"{name}\", want one of {}", known.join(", ")));
    match nearest(name, known.iter().copied()) {
        Some(near) => fault.hint(format!("did you mean \"{near}\"?")),
        None => fault,
    }
}

/// The known word closest to a misspelt one, if any is close. A different number is no misspelling.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
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

/// The table of a section, which may be left out.
pub(crate) fn section(place: &str, given: Option<Value>, faults: &mut Vec<Error>) -> Table {
    match given {
        None => Table::new(),
        Some(Value::Table(table)) => table,
        Some(other) => {
            faults.push(Error::settings(format!("{place}: got {other}, want a section [{place}]")));
            Table::new()
        }
    }
}

/// Turns collected faults into a result.
#[doc(hidden)]
pub fn finish(faults: Vec<Error>) -> Result<()> {
    if faults.is_empty() { Ok(()) } else { Err(Error::all(faults)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    choices! {
        /// How to begin.
        enum Start { Random = "random", Farthest = "farthest" }
    }

    settings! {
        struct Declaration {
            /// how many
            clusters: usize [1..=i64::MAX],
            /// step size
            step: Vec<f64> = 0.1,
            /// how to begin
            start: Start = "random",
            /// who looks
            #[only_with(start = "farthest")]
            lookers: Option<usize> [2..=9],
            shares: Shares,
        }

        fn check(&self, check: &mut Check) {
            if self.start == Start::Farthest && self.clusters == 1 {
                check.fault("clusters", "one is not far from another");
            }
        }
    }

    settings! {
        struct Shares {
            /// of the clients
            participation: f64 [above 0.0..=1.0] = 1.0,
            /// of the rows
            tests: Auto<f64> [0.0..0.5] = "auto",
        }
    }

    const DECLARED: &[Setting] = Declaration::SETTINGS;

    fn check(text: &str) -> (Settings, Vec<String>) {
        let mut faults = Vec::new();
        let settings = Settings::check("method.ifca", DECLARED, toml::from_str(text).unwrap(), &mut faults);
        (settings, faults.iter().map(Error::to_string).collect())
    }

    #[test]
    fn defaults_are_filled_in() {
        let (settings, faults) = check("clusters = 2");
        assert!(faults.is_empty());
        assert_eq!(Vec::<f64>::find(&settings, "step"), Some(vec![0.1]));
        assert_eq!(settings.get("start").and_then(Value::as_str), Some("random"));
    }

    #[test]
    fn settings_are_read_as_they_are_declared() {
        let read = |text: &str| Declaration::from_table("method.it", toml::from_str(text).unwrap());
        let all = read("clusters = 2\nstart = \"farthest\"\nlookers = 3\nstep = [1, 0.5]\ntests = 0.25").unwrap();
        assert_eq!((all.clusters, all.start, all.lookers, all.step), (2, Start::Farthest, Some(3), vec![1.0, 0.5]));
        assert_eq!((all.shares.participation, all.shares.tests), (1.0, Auto::Given(0.25)));
        let fault = |text: &str| read(text).unwrap_err().to_string();
        assert_eq!(fault("clusters = 2\nlookers = 3"), "method.it.lookers: is for start = \"farthest\"");
        assert_eq!(fault("clusters = 1\nstart = \"farthest\""), "method.it.clusters: one is not far from another");
        assert_eq!(
            fault("clusters = 2\nparticipation = 0\ntests = 0.5"),
            "2 faults\n- method.it.participation: got 0, want a number above 0 and up to 1\n- method.it.tests: got 0.5, \
             want \"auto\", or a number from 0 to below 0.5"
        );
    }

    #[test]
    fn settings_in_code_are_checked_and_written_like_those_of_a_file() {
        let code = |settings: Declaration| Declaration::from_table("method.it", settings.to_table());
        let shares = Shares { tests: 0.25.into(), ..Shares::default() };
        let given = code(Declaration { clusters: 2, shares, ..Declaration::default() }).unwrap();
        assert_eq!((given.clusters, given.start, given.lookers, given.step), (2, Start::Random, None, vec![0.1]));
        assert_eq!((given.shares.participation, given.shares.tests), (1.0, Auto::Given(0.25)));
        let fault = code(Declaration::default()).unwrap_err().to_string();
        assert_eq!(fault, "method.it.clusters: got 0, want a whole number of at least 1");
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
