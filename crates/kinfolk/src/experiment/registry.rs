//! What an experiment may name.

use super::*;
use crate::data;
use crate::models;

/// The sources, models and methods that an experiment may name: those of this library, and the user's own beside them.
///
/// ```
/// use kinfolk::experiment::Registry;
/// # use kinfolk::methods::{MethodSettings, FedAvgSettings};
/// # let mine = FedAvgSettings::METHOD;
/// let text = "data.source = \"digits\"\nmodel.kind = \"softmax\"\n[[method]]\nname = \"fedavg\"";
/// let experiment = Registry::default().with_method(mine).parse("digits.toml", text, &[])?;
/// assert_eq!(experiment.methods[0].label, "fedavg");
/// # Ok::<(), kinfolk::Error>(())
/// ```
#[derive(Clone)]
pub struct Registry {
    pub(super) sources: Vec<&'static Source>,
    pub(super) models: Vec<&'static ModelKind>,
    pub(super) methods: Vec<&'static MethodKind>,
}

impl Default for Registry {
    fn default() -> Self {
        Self { sources: data::SOURCES.to_vec(), models: models::MODELS.to_vec(), methods: methods::METHODS.to_vec() }
    }
}

impl Registry {
    /// With this model too, in place of any of the same name.
    pub fn with_model(mut self, kind: &'static ModelKind) -> Self {
        replace(&mut self.models, kind, |kind| kind.name);
        self
    }

    /// With this method too, in place of any of the same name.
    pub fn with_method(mut self, kind: &'static MethodKind) -> Self {
        replace(&mut self.methods, kind, |kind| kind.name);
        self
    }

    pub(super) fn with_source(mut self, source: &'static Source) -> Self {
        replace(&mut self.sources, source, |source| source.name);
        self
    }

    /// Reads and checks an experiment. `place` names the file in messages.
    pub fn parse(&self, place: &str, text: &str, overrides: &[Override]) -> Result<Experiment> {
        self.check(place, Experiment::read_table(place, text)?, overrides)
    }

    pub(super) fn method(&self, name: &str) -> Option<&'static MethodKind> {
        self.methods.iter().copied().find(|kind| kind.name == name)
    }

    pub(super) fn check(&self, place: &str, file: Table, overrides: &[Override]) -> Result<Experiment> {
        Experiment::check(place, file, overrides, self)
    }
}

fn replace<T>(all: &mut Vec<&'static T>, one: &'static T, name: impl Fn(&T) -> &str) {
    match all.iter_mut().find(|other| name(other) == name(one)) {
        Some(place) => *place = one,
        None => all.push(one),
    }
}
