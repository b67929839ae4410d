//! An experiment put together in code: the same sections as in a file, each from a struct of settings.

use super::*;
use crate::data::{Client, GIVEN, ImageSet, ImageSettings, SourceSettings};
use crate::methods::MethodSettings;
use crate::models::ModelSettings;

/// An experiment in the making; [`Experiment::on`] begins one.
#[must_use]
pub struct Draft {
    top: Top,
    data: Data,
    model: Option<Chosen<ModelKind>>,
    methods: Vec<(Option<String>, Chosen<MethodKind>)>,
    faults: Rates,
    privacy: Privacy,
}

/// What an experiment is about: clients, or a source of them with its settings.
pub struct Data {
    source: Chosen<Source>,
    clients: Option<Population>,
}

/// One of the registered things, with its settings.
pub struct Chosen<K: 'static> {
    kind: &'static K,
    settings: Table,
}

impl<S: SourceSettings> From<S> for Data {
    fn from(settings: S) -> Self {
        Self { source: Chosen { kind: S::SOURCE, settings: settings.to_table() }, clients: None }
    }
}

impl From<(ImageSet, ImageSettings)> for Data {
    fn from((set, settings): (ImageSet, ImageSettings)) -> Self {
        Self { source: Chosen { kind: set.source(), settings: settings.to_table() }, clients: None }
    }
}

impl From<Population> for Data {
    fn from(population: Population) -> Self {
        Self { source: Chosen { kind: &GIVEN, settings: Table::new() }, clients: Some(population) }
    }
}

impl From<Vec<Client>> for Data {
    fn from(clients: Vec<Client>) -> Self {
        Population { clients, ..Population::default() }.into()
    }
}

impl<S: ModelSettings> From<S> for Chosen<ModelKind> {
    fn from(settings: S) -> Self {
        Self { kind: S::MODEL, settings: settings.to_table() }
    }
}

impl<S: MethodSettings> From<S> for Chosen<MethodKind> {
    fn from(settings: S) -> Self {
        Self { kind: S::METHOD, settings: settings.to_table() }
    }
}

impl<K> From<&'static K> for Chosen<K> {
    fn from(kind: &'static K) -> Self {
        Self { kind, settings: Table::new() }
    }
}

impl Experiment {
    /// An experiment on one's own clients, or on those of a source.
    pub fn on(data: impl Into<Data>) -> Draft {
        let (top, faults, privacy) = (Top::default(), Rates::default(), Privacy::default());
        Draft { top, data: data.into(), model: None, methods: Vec::new(), faults, privacy }
    }
}

impl Draft {
    /// The model to train.
    pub fn model(mut self, model: impl Into<Chosen<ModelKind>>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// One more method. Its label is its name, with a number where that is taken.
    pub fn method(mut self, method: impl Into<Chosen<MethodKind>>) -> Self {
        self.methods.push((None, method.into()));
        self
    }

    /// One more method, with a label of its own.
    pub fn method_called(mut self, label: &str, method: impl Into<Chosen<MethodKind>>) -> Self {
        self.methods.push((Some(label.to_string()), method.into()));
        self
    }

    /// The name, the seeds, and how clients are scored.
    pub fn with(mut self, top: Top) -> Self {
        self.top = top;
        self
    }

    /// Clients that misbehave.
    pub fn faults(mut self, faults: Rates) -> Self {
        self.faults = faults;
        self
    }

    /// What is told of clients and their rows.
    pub fn privacy(mut self, privacy: Privacy) -> Self {
        self.privacy = privacy;
        self
    }

    /// The experiment, checked as one from a file is.
    pub fn check(self) -> Result<Experiment> {
        let mut registry = Registry::default().with_source(self.data.source.kind);
        let section = |key: &str, name: &str, settings: Table| {
            let mut table = settings;
            table.insert(key.to_string(), name.into());
            Value::Table(table)
        };
        let mut file = self.top.to_table();
        file.insert("data".into(), section("source", self.data.source.kind.name, self.data.source.settings));
        file.insert("faults".into(), Value::Table(self.faults.to_table()));
        file.insert("privacy".into(), Value::Table(self.privacy.to_table()));
        if let Some(model) = self.model {
            registry = registry.with_model(model.kind);
            file.insert("model".into(), section("kind", model.kind.name, model.settings));
        }
        let mut methods = Vec::new();
        for (label, method) in self.methods {
            registry = registry.with_method(method.kind);
            let mut table = method.settings;
            table.extend(label.map(|label| ("label".to_string(), label.into())));
            methods.push(section("name", method.kind.name, table));
        }
        file.insert("method".into(), Value::Array(methods));
        let experiment = registry.check("experiment", file, &[])?;
        Ok(Experiment { clients: self.data.clients.map(Arc::new), ..experiment })
    }
}
