//! The experiment file: TOML in, checked settings out, every fault reported at once.

mod draft;
mod hidden;
mod registry;

pub use crate::federation::faults::{Attack, AttackFrom, Rates};
#[doc(hidden)]
pub use crate::privacy::protection::{Level, Neighbours, NoiseFrom, Protection};
pub use crate::privacy::{Disclosure, Privacy};
pub use draft::{Chosen, Data, Draft};
pub use registry::Registry;

use crate::data::schema::Coding;
use crate::data::{Population, Source};
use crate::error::{Error, Result, option};
use crate::federation::faults;
use crate::methods::{self, MethodKind, Needs};
use crate::models::{Ability, ModelKind};
use crate::over::Over;
use crate::privacy;
use crate::settings::{self, Declared, Field, Setting, Settings, choices, settings};
use crate::training::Split;
use std::sync::Arc;
use toml::{Table, Value};

choices! {
    /// Which models are written.
    pub enum SaveModels { All = "all", Clusters = "clusters", None = "none" }
    /// How clients' vectors are summed.
    pub enum Sums { Auto = "auto", Integer = "integer", Float = "float" }
    /// What clients of this computer compute on.
    pub enum Device { Cpu = "cpu", Cuda = "cuda", Auto = "auto" }
    /// What a device keeps of the factors of convolutions.
    pub enum DevicePrecision { F32 = "f32", Tf32 = "tf32" }
}

choices!(Split { Train = "train", Test = "test" });

settings! {
    /// The keys at the top of the file.
    pub struct Top {
        /// what this is called; the run folder is named after it
        name: String = "experiment",
        /// the first seed
        seed: u64 [0..=i64::MAX] = 0,
        /// how many seeds, counting up from the first
        repeat: u64 [1..=1 << 20] = 1,
        /// rounds between evaluations; the last round is always evaluated
        evaluate_every: usize [1..=i64::MAX] = 10,
        /// what clients are scored by; auto is accuracy for classes and mse for numbers
        metric: String ["auto", "accuracy", "mse", "nll", "loss"] = "auto",
        /// the rows by which an evaluated client finds its cluster; test is only for papers that do so
        assign_on: Split = "train",
        /// which models are written: all, only those of clusters (not of single clients), or none
        save_models: SaveModels = "all",
        /// how vectors are summed: integers give the same bits however clients are spread; auto: float here, integer elsewhere
        sums: Sums = "auto",
        /// what clients of this computer compute on; auto takes a CUDA device where there is one
        device: Option<Device>,
        /// what a device keeps of the factors of convolutions: f32, or tf32, which is faster
        device_precision: Option<DevicePrecision>,
    }
}

/// The keys at the top of the file.
pub(crate) const SETTINGS: &[Setting] = Top::SETTINGS;

const SECTIONS: [&str; 5] = ["data", "model", "method", "faults", "privacy"];

/// Most characters of a label, which becomes part of file names.
const LONGEST_LABEL: usize = 64;

/// A checked experiment with every default filled in.
#[derive(Clone)]
pub struct Experiment {
    /// The keys at the top.
    pub settings: Settings,
    /// The same as a struct.
    pub top: Top,
    /// Where the data comes from.
    pub source: &'static Source,
    /// `[data]`.
    pub data: Settings,
    /// What is trained.
    pub model_kind: &'static ModelKind,
    /// `[model]`.
    pub model: Settings,
    /// `[[method]]`.
    pub methods: Vec<MethodEntry>,
    /// `[faults]`.
    pub faults: Settings,
    /// `[privacy]`.
    pub privacy: Privacy,
    /// The clients, where they come with the experiment and not from its source.
    pub(crate) clients: Option<Arc<Population>>,
}

/// One `[[method]]`.
#[derive(Clone)]
pub struct MethodEntry {
    /// Unique in the experiment; used in all files.
    pub label: String,
    /// Which method.
    pub kind: &'static MethodKind,
    /// Its settings.
    pub settings: Settings,
}

impl MethodEntry {
    pub(crate) fn needs(&self) -> Needs {
        (self.kind.needs)(&self.settings)
    }
}

/// A setting that overrides the file: a dotted path and a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    path: Vec<String>,
    value: Value,
}

impl Override {
    /// Reads `method.ifca.step=0.05`. A value that is not TOML is taken as text.
    pub fn parse(text: &str) -> Result<Self> {
        let (path, value) = text.split_once('=').ok_or_else(|| {
            Error::settings(format!("{}{text}: want a setting and its value", option("set ")))
                .hint(format!("such as {}method.ifca.step=0.05", option("set ")))
        })?;
        let value = toml::from_str::<Table>(&format!("value = {value}"))
            .ok()
            .and_then(|mut table| table.remove("value"))
            .unwrap_or_else(|| Value::String(value.to_string()));
        Ok(Self::new(path.split('.').map(|key| key.trim().to_string()).collect(), value))
    }

    /// Sets the value at this path.
    pub fn new(path: Vec<String>, value: Value) -> Self {
        Self { path, value }
    }

    /// Sets a key at the top.
    #[doc(hidden)]
    pub fn top(key: &str, value: impl Into<Value>) -> Self {
        Self::new(vec![key.to_string()], value.into())
    }

    /// Has every method that can do so tune its strengths, whatever the file says.
    #[doc(hidden)]
    pub fn tune() -> Self {
        Self::top(TUNE, true)
    }
}

/// The path of [`Override::tune`], which no setting has.
const TUNE: &str = "tune every method";

impl Experiment {
    /// Reads and checks an experiment. `place` names the file in messages.
    pub fn parse(place: &str, text: &str, overrides: &[Override]) -> Result<Self> {
        Registry::default().parse(place, text, overrides)
    }

    /// Reads an experiment without checking its settings. `place` names the file in messages.
    #[doc(hidden)]
    pub fn read_table(place: &str, text: &str) -> Result<Table> {
        toml::from_str(text).map_err(|error| {
            Error::settings(format!("{place}: not a TOML file\n{}", error.to_string().trim_end()))
                .hint("the preset quickstart is an example")
        })
    }

    /// Checks an experiment. `place` names it in messages.
    pub fn from_table(place: &str, file: Table, overrides: &[Override]) -> Result<Self> {
        Registry::default().check(place, file, overrides)
    }

    fn check(place: &str, mut file: Table, overrides: &[Override], known: &Registry) -> Result<Self> {
        let mut faults = Vec::new();
        let labels = label_methods(&mut file, &mut faults);
        for change in overrides {
            apply(&mut file, change, &labels, known, &mut faults);
        }

        let data = settings::section("data", file.remove("data"), &mut faults);
        let model = settings::section("model", file.remove("model"), &mut faults);
        let faulty = settings::section("faults", file.remove("faults"), &mut faults);
        let private = settings::section("privacy", file.remove("privacy"), &mut faults);
        let entries = match file.remove("method") {
            Some(Value::Array(entries)) => entries,
            _ => Vec::new(),
        };
        for key in file.keys().filter(|key| !SETTINGS.iter().any(|setting| setting.name == *key)) {
            let known = SETTINGS.iter().map(|setting| setting.name).chain(SECTIONS);
            faults.push(settings::unknown(place, key, known));
        }
        file.retain(|key, _| SETTINGS.iter().any(|setting| setting.name == key));
        let settings = Settings::check("", SETTINGS, file, &mut faults);

        let of_source = |source: &Source| (source.name, source.settings, source.check);
        let data = registered(("data", "source"), data, &known.sources, of_source, settings::unknown_name, &mut faults);
        let before = faults.len();
        let of_model = |kind: &ModelKind| (kind.name, kind.settings, kind.check);
        let model = registered(("model", "kind"), model, &known.models, of_model, settings::unknown_name, &mut faults);
        // The abilities of a model depend on its settings.
        let sound_model = model.as_ref().filter(|_| faults.len() == before);
        if let (Some((source, data)), Some((kind, _))) = (&data, &model)
            && kind.needs_target
            && !source.has_target(data)
        {
            faults.push(
                Error::settings(format!("model.kind: {} needs a target; the data has none", kind.name))
                    .hint("set data.target, or use a gaussian-mixture"),
            );
        }
        if entries.is_empty() {
            faults.push(
                Error::settings(format!("{place}: no [[method]], want at least one"))
                    .hint("add [[method]] and name = \"ifca\", or the name of another method"),
            );
        }
        let mut methods: Vec<MethodEntry> = Vec::new();
        for (entry, label) in entries.into_iter().zip(&labels) {
            let Value::Table(mut entry) = entry else { continue };
            entry.remove("label");
            let place = format!("method.{label}");
            let of_method = |kind: &MethodKind| (kind.name, kind.settings, kind.check);
            let found = registered((&place, "name"), entry, &known.methods, of_method, methods::unknown, &mut faults);
            if let Some((kind, settings)) = found {
                faults.extend(sound_model.and_then(|(model, settings)| mismatch(&place, kind, model, settings, known)));
                let above = methods.iter().map(|entry| (entry.label.clone(), entry.kind.has_clusters));
                let above: Vec<(String, bool)> = above.collect();
                let groups = (kind.needs)(&settings).groups;
                faults.extend(groups.and_then(|groups| groups.origin().check(&place, &above, &labels)));
                let above: Vec<String> = above.into_iter().map(|(label, _)| label).collect();
                let over = (kind.needs)(&settings).over;
                faults.extend(over.and_then(|label| Over::check(&place, &label, &above, &labels)));
                methods.push(MethodEntry { label: label.clone(), kind, settings });
            }
        }
        let before = faults.len();
        let misbehaving = Settings::check("faults", faults::SETTINGS, faulty, &mut faults);
        if faults.len() == before {
            Rates::check_section("faults", &misbehaving, &mut faults);
        }
        let before = faults.len();
        let private = Settings::check("privacy", privacy::SETTINGS, private, &mut faults);
        if faults.len() == before {
            Privacy::check_section("privacy", &private, &mut faults);
        }
        if let (Some(private), Some((source, data))) = (Privacy::read(&private), &data) {
            let model = model.as_ref().map(|(kind, settings)| (*kind, settings));
            faults.extend(hidden::shown(&private.protection, (source, data), model, &methods, known));
        }
        let sums_alone = |private: Privacy| match private.protection.level {
            Level::Client => Some(format!("privacy.level = \"{}\"", Level::Client)),
            _ if private.sums != Disclosure::Open => Some(format!("privacy.sums = \"{}\"", private.sums)),
            _ => None,
        };
        if let Some(is) = Privacy::read(&private).and_then(sums_alone) {
            faults.extend(not_in_sums(&is, &methods, &settings, known));
        }
        settings::finish(faults)?;
        let (Some((source, data)), Some((model_kind, model))) = (data, model) else {
            return Err(Error::settings(format!("{place}: incomplete")));
        };
        let top = Top::of(&settings);
        let (faults, privacy) = (misbehaving, Privacy::of(&private));
        Ok(Self { settings, top, source, data, model_kind, model, methods, faults, privacy, clients: None })
    }

    /// The clients of a seed.
    pub(crate) fn population(&self, seed: u64) -> Result<Population> {
        match &self.clients {
            Some(clients) => Ok((**clients).clone()),
            None => (self.source.build)(&self.data, seed),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.top.name
    }

    pub(crate) fn seeds(&self) -> std::ops::Range<u64> {
        self.top.seed..self.top.seed + self.top.repeat
    }

    /// Whether columns are scaled by their pooled mean and deviation.
    pub(crate) fn standardises(&self) -> bool {
        self.data.get("standardise").and_then(Value::as_bool).unwrap_or(false)
    }

    /// How columns are to be encoded.
    #[doc(hidden)]
    pub fn coding(&self) -> Coding {
        let intercept = self.model.get("intercept").and_then(Value::as_bool);
        let kinds = self.data.get("kinds").and_then(Value::as_integer).and_then(|kinds| usize::try_from(kinds).ok());
        let (standardise, constant) = (self.standardises(), intercept.unwrap_or(true));
        let curves = self.data.get("curves").and_then(Value::as_bool).unwrap_or(false);
        let numbers_only = self.data.get("numbers_only").and_then(Value::as_bool).unwrap_or(false);
        let means_alone = self.data.get("means_alone").and_then(Value::as_bool).unwrap_or(false);
        Coding { standardise, constant, kinds: kinds.unwrap_or(Coding::KINDS), curves, numbers_only, means_alone }
    }

    /// The file with every default filled in.
    pub fn to_toml(&self) -> String {
        let section = |names: &[(&str, &str)], settings: &Settings| {
            let names = names.iter().map(|(key, name)| (key.to_string(), Value::from(*name)));
            Value::Table(names.chain(settings.to_table()).collect())
        };
        let method =
            |entry: &MethodEntry| section(&[("name", entry.kind.name), ("label", &entry.label)], &entry.settings);
        let mut file = self.settings.to_table();
        file.insert("data".into(), section(&[("source", self.source.name)], &self.data));
        file.insert("model".into(), section(&[("kind", self.model_kind.name)], &self.model));
        file.insert("faults".into(), section(&[], &self.faults));
        file.insert("privacy".into(), Value::Table(self.privacy.to_table()));
        file.insert("method".into(), Value::Array(self.methods.iter().map(method).collect()));
        toml::to_string(&file).unwrap_or_default()
    }
}

/// The faults of methods that want single answers, and of settings that do, where only sums over clients leave.
fn not_in_sums(is: &str, methods: &[MethodEntry], top: &Settings, known: &Registry) -> Vec<Error> {
    let mut faults = Vec::new();
    if Sums::find(top, "sums") == Some(Sums::Float) {
        let message = format!("sums: got \"float\", and {is} adds whole numbers up");
        faults.push(Error::settings(message).hint("leave sums out"));
    }
    let works = |kind: &&&MethodKind| (kind.wants_single)(&Settings::defaults(kind.settings)).is_none();
    let able: Vec<&str> = known.methods.iter().filter(works).map(|kind| kind.name).collect();
    for (place, entry) in methods.iter().enumerate() {
        let label = &entry.label;
        if let Some(why) = (entry.kind.wants_single)(&entry.settings) {
            let message = format!("method.{label}: {why}; with {is} only sums over clients leave");
            faults.push(Error::settings(message).hint(format!("methods that do with sums: {}", able.join(", "))));
        }
        let above = entry.needs().over.and_then(|over| methods[..place].iter().find(|it| it.label == over));
        if let Some(above) = above.filter(|above| above.kind.has_clusters && !above.needs().truth) {
            let message =
                format!("method.{label}.over: with {is} nobody knows who is in which cluster of {}", above.label);
            faults.push(Error::settings(message).hint("name a method with one model for everybody, such as fedavg"));
        }
    }
    faults
}

/// The fault of a method that cannot train this model, with a hint at those that can.
fn mismatch(
    place: &str,
    method: &MethodKind,
    model: &ModelKind,
    settings: &Settings,
    known: &Registry,
) -> Option<Error> {
    let ability = (model.ability)(settings);
    if ability.suffices(method.wants) {
        return None;
    }
    let why = match (ability.of_mixture(), method.wants) {
        (true, Ability::SharedScatter) => "whose covariance is neither \"identity\" nor \"tied\"",
        (true, _) => "which is a mixture",
        (false, wanted) if wanted.of_mixture() => "which is not a mixture",
        (false, Ability::Quadratic) => "whose loss is not a quadratic",
        (false, Ability::Linear) => "which is not linear",
        (false, Ability::Minimiser) => "which has no exact minimiser",
        (false, _) => "whose clients do not show single rows",
    };
    let fault = Error::settings(format!("{place}: {} cannot train model {}, {why}", method.name, model.name));
    // Without those that need groups or the truth from the data.
    let works = |kind: &&&MethodKind| {
        let needs = (kind.needs)(&Settings::defaults(kind.settings));
        ability.suffices(kind.wants) && !kind.particular && needs.groups.is_none() && !needs.truth
    };
    let names: Vec<&str> = known.methods.iter().filter(works).map(|kind| kind.name).collect();
    Some(fault.hint(format!("methods that can, on any data: {}", names.join(", "))))
}

fn label_methods(file: &mut Table, faults: &mut Vec<Error>) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    let entries = match file.get_mut("method") {
        Some(Value::Array(entries)) => entries,
        Some(_) => {
            faults.push(Error::settings("method: want [[method]] in double brackets, one for every method"));
            return labels;
        }
        None => return labels,
    };
    for entry in entries {
        if !entry.is_table() {
            faults.push(Error::settings(format!("method: got {entry}, want [[method]] with a name")));
        }
        if let Some(other) = entry.get("label").filter(|label| !label.is_str()) {
            faults.push(Error::settings(format!("method.label: got {other}, want a text")));
        }
        let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_string);
        let label = match (text("label"), text("name")) {
            (Some(label), _) => {
                if let Some(other) = labels.iter().find(|other| other.eq_ignore_ascii_case(&label)) {
                    let fault = match *other == label {
                        true => format!("method.{label}: two methods have this label, want different ones"),
                        false => {
                            format!("method.{label}: differs from {other} only in capital letters, want another label")
                        }
                    };
                    faults.push(Error::settings(fault));
                }
                label
            }
            (None, name) => {
                let name = name.unwrap_or_else(|| "unnamed".into());
                let numbered = (2..).map(|number| format!("{name}-{number}"));
                let is_free = |label: &String| !labels.iter().any(|other| other.eq_ignore_ascii_case(label));
                std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name)
            }
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+' | '.');
        if label.len() > LONGEST_LABEL {
            let (start, length) = (label.chars().take(20).collect::<String>(), label.chars().count());
            faults.push(
                Error::settings(format!(
                    "method.label: got \"{start}…\", {length} letters long, want at most {LONGEST_LABEL}"
                ))
                .hint("labels become folder names"),
            );
        } else if label.is_empty() || label.starts_with('.') || !label.chars().all(plain) {
            faults.push(
                Error::settings(format!("method.label: got \"{label}\", want letters, digits, '-', '_', '+' and '.'"))
                    .hint("labels become folder names"),
            );
        }
        labels.push(label);
    }
    labels
}

fn apply(file: &mut Table, change: &Override, labels: &[String], known: &Registry, faults: &mut Vec<Error>) {
    let path: Vec<&str> = change.path.iter().map(String::as_str).collect();
    let (place, set) = (path.join("."), option("set "));
    match path.as_slice() {
        ["method", .., "label"] => {
            faults.push(Error::settings(format!(
                "{set}{place}: a label cannot be changed, it says which method is meant"
            )));
        }
        ["method", label @ .., key] if !label.is_empty() => {
            let label = label.join(".");
            let index = labels.iter().position(|known| *known == label);
            let entry = index.and_then(|index| file.get_mut("method")?.as_array_mut()?.get_mut(index)?.as_table_mut());
            match entry {
                Some(entry) => {
                    entry.insert(key.to_string(), change.value.clone());
                }
                None => {
                    let fault = Error::settings(format!("{set}{place}: there is no method {label}"));
                    faults.push(fault.hint(format!("methods here: {}", labels.join(", "))));
                }
            }
        }
        [section @ ("data" | "model" | "faults" | "privacy"), key] => {
            let table = file.entry(section.to_string()).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(table) = table {
                table.insert(key.to_string(), change.value.clone());
            }
        }
        [TUNE] => tune(file, known, faults),
        [key] if SETTINGS.iter().any(|setting| setting.name == *key) => {
            file.insert(key.to_string(), change.value.clone());
        }
        _ => {
            let fault = Error::settings(format!("{set}{place}: unknown setting"));
            faults.push(fault.hint(
                "want data.KEY, model.KEY, faults.KEY, privacy.KEY, method.LABEL.KEY, or a key at the top of the file",
            ));
        }
    }
}

/// Removes the given strengths, so that they are tuned.
fn tune(file: &mut Table, known: &Registry, faults: &mut Vec<Error>) {
    let has = |kind: &MethodKind, name: &str| kind.settings.iter().any(|setting| setting.name == name);
    let mut any = false;
    let entries = file.get_mut("method").and_then(Value::as_array_mut).into_iter().flatten();
    for entry in entries.filter_map(Value::as_table_mut) {
        let kind = entry.get("name").and_then(Value::as_str).and_then(|name| known.method(name));
        let Some(kind) = kind.filter(|kind| has(kind, "folds")) else { continue };
        any = true;
        ["gamma", "lambda", "alpha", "noise", "spread", "strength"].iter().for_each(|name| drop(entry.remove(*name)));
        if has(kind, "tune") {
            entry.insert("tune".into(), true.into());
        }
    }
    if !any {
        let tunable = known.methods.iter().filter(|kind| has(kind, "folds"));
        let names: Vec<&str> = tunable.map(|kind| kind.name).collect();
        faults.push(
            Error::settings(format!("{}: no method here has strengths to tune", option("tune")))
                .hint(format!("these have: {}", names.join(", "))),
        );
    }
}

/// A registered thing: its name, its settings, and the check of their combination.
type Registration = (&'static str, &'static [Setting], fn(&str, &Settings, &mut Vec<Error>));

/// Looks up the registered thing a section names and checks the section against its declaration.
fn registered<T>(
    (place, key): (&str, &str),
    mut table: Table,
    all: &[&'static T],
    registration: impl Fn(&T) -> Registration,
    unknown: impl Fn(&str, &str, &[&str]) -> Error,
    faults: &mut Vec<Error>,
) -> Option<(&'static T, Settings)> {
    let known: Vec<&str> = all.iter().map(|one| registration(one).0).collect();
    let fault = match table.remove(key) {
        Some(Value::String(name)) => match known.iter().position(|known| *known == name) {
            Some(position) => {
                let before = faults.len();
                let (_, declared, check) = registration(all[position]);
                let settings = Settings::check(place, declared, table, faults);
                if faults.len() == before {
                    check(place, &settings, faults);
                }
                return Some((all[position], settings));
            }
            None => unknown(&format!("{place}.{key}"), &name, &known),
        },
        Some(other) => Error::settings(format!("{place}.{key}: got {other}, want one of {}", known.join(", "))),
        None => Error::settings(format!("{place}.{key}: missing, want one of {}", known.join(", "))),
    };
    faults.push(fault);
    None
}
