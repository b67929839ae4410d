//! What was fitted, and the folder it lies in.

use super::FitOptions;
use super::coefficients::Coefficients;
use super::page::page;
use super::show;
use super::tested::Tested;
use crate::data::files::Notation;
use crate::data::known::KnownColumns;
use crate::data::schema::Schema;
use crate::data::understood::Understood;
use crate::disk::{comma_separated, json_text, write_all_atomically};
use crate::error::{Error, ErrorKind, Result};
use crate::families::{Joining, LearnedClient, Response, Rung};
use crate::federation::work::TargetScale;
use crate::methods::FamilyModel;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// Increased whenever an older program could not read a model any more: 2 has products of columns.
const SCHEMA: u32 = 2;
/// The model, for programs.
pub(super) const MODEL: &str = "model.json";
/// The files of a folder.
pub const FILES: [&str; 5] = [MODEL, "families.csv", "clients.csv", "coefficients.csv", "report.html"];

/// A `model.json` that cannot be read.
pub(super) fn damaged(error: serde_json::Error) -> Error {
    Error::data(error.to_string()).hint("the file is damaged: copy it again, or fit the model again")
}

/// A fitted model with all that is needed to use it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    schema: u32,
    version: String,
    /// The column that names the client.
    pub client: String,
    /// The column that is predicted.
    pub target: String,
    /// Its classes, where it has some: a row is in the first unless others are more likely.
    pub classes: Vec<String>,
    /// What was understood of the columns.
    pub understood: Vec<Understood>,
    /// What was read in an unusual way, who was left out.
    pub remarks: Vec<String>,
    /// Errors on rows kept for testing.
    pub tested: Option<Tested>,
    /// The seed of all draws.
    pub seed: u64,
    /// What else was asked for.
    pub(super) options: FitOptions,
    /// What moved since the fit before, where this goes on with it,
    pub changes: Vec<String>,
    /// and the largest number that a family had so far.
    pub(super) latest_family: usize,
    /// The clients' names, in the order of the model's clients.
    pub names: Vec<String>,
    pub(super) columns: Schema,
    /// How the table was written.
    #[serde(default)]
    pub(super) notation: Notation,
    /// The column of the rows' weights, and their mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) weight: Option<(String, f64)>,
    pub(super) model: FamilyModel,
    /// The place of each name.
    #[serde(skip)]
    places: OnceLock<HashMap<String, usize>>,
}

impl Saved {
    #[expect(clippy::too_many_arguments, reason = "its fields, which nobody else puts together")]
    pub(super) fn new(
        client: String,
        target: String,
        names: Vec<String>,
        columns: Schema,
        notation: Notation,
        weight: Option<(String, f64)>,
        understood: Vec<Understood>,
        model: FamilyModel,
        tested: Option<Tested>,
        remarks: Vec<String>,
        (seed, options): (u64, FitOptions),
    ) -> Self {
        let latest_family = model.learned.families.len();
        let version = env!("CARGO_PKG_VERSION").to_string();
        let classes = columns.class_names();
        Self {
            schema: SCHEMA,
            version,
            client,
            target,
            classes,
            understood,
            remarks,
            tested,
            seed,
            options,
            changes: Vec::new(),
            latest_family,
            names,
            columns,
            notation,
            weight,
            model,
            places: OnceLock::new(),
        }
    }

    /// What is known of the columns of new rows.
    pub(super) fn known_columns(&self) -> KnownColumns<'_> {
        let weight = self.weight.as_ref().map(|(name, mean)| (&**name, *mean));
        let Self { columns: schema, notation, client, target, .. } = self;
        KnownColumns { schema, notation, client, target, weight }
    }

    /// Writes all files of the model into a folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let file = |name: &str| Ok((name.to_string(), self.file(name)?.into_bytes()));
        let tables = FILES.iter().filter(|name| **name != MODEL).map(|name| file(name)).collect::<Result<_>>()?;
        write_all_atomically(folder, tables)?;
        // The last: a folder without it is not finished.
        write_all_atomically(folder, vec![file(MODEL)?])
    }

    /// The text of one of [`FILES`].
    pub fn file(&self, name: &str) -> Result<String> {
        let table = match name {
            MODEL => return json_text(self),
            "families.csv" => self.families_file()?,
            "clients.csv" => self.clients_file()?,
            "coefficients.csv" => self.coefficients_file()?,
            "report.html" => return Ok(page(self)),
            other => return Err(Error::settings(format!("file: got {other}, want one of {}", FILES.join(", ")))),
        };
        String::from_utf8(table).map_err(|_| Error::new(ErrorKind::Internal, format!("{name}: not UTF-8")))
    }

    /// Reads the model of a folder.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(MODEL);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                let message = format!("{}: no fitted model, it has no {MODEL}", folder.display());
                return Err(Error::data(message).hint("`kinfolk fit TABLE --client COLUMN --target COLUMN` makes one"));
            }
            text => text.map_err(|error| Error::io("reading", &path, error))?,
        };
        Self::of_text(&text).map_err(|error| error.at(path.display()))
    }

    /// The model of a text that [`Saved::file`] gave for `model.json`.
    pub fn of_text(text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        let head: Head = serde_json::from_str(text).map_err(damaged)?;
        if head.schema > SCHEMA {
            let message = format!("schema {}, this program reads up to {SCHEMA}", head.schema);
            return Err(Error::data(message).hint("a newer kinfolk has written it: use that one"));
        }
        let saved: Self = serde_json::from_str(text).map_err(damaged)?;
        saved.check()?;
        Ok(saved)
    }

    /// What a hand that changed the file may have broken.
    fn check(&self) -> Result<()> {
        let learned = &self.model.learned;
        if !self.columns.has_its_factors() {
            return Err(Error::data("not what `fit` has written: the products of columns"));
        }
        let width = (self.columns.feature_names().len() + 1) * learned.response.equations();
        let classes = if learned.response == Response::Numbers { 0 } else { learned.response.equations() + 1 };
        if self.classes.len() != classes || self.model.form.coefficients() != width {
            return Err(Error::data("not what `fit` has written: the classes"));
        }
        learned.check(width).map_err(|fault| Error::data(format!("not what `fit` has written: {fault}")))?;
        let TargetScale { mean, deviation } = self.model.target;
        if !mean.is_finite() || !deviation.is_finite() || deviation <= 0.0 {
            return Err(Error::data("not what `fit` has written: the scale of the target"));
        }
        let mut widths = learned.families.iter().map(|family| family.centre.len()).chain([learned.global.len()]);
        if widths.any(|other| other != width) {
            return Err(Error::data(format!("coefficients of other columns, want {width} everywhere")));
        }
        if self.names.len() != learned.clients.len() {
            let (names, clients) = (self.names.len(), learned.clients.len());
            return Err(Error::data(format!("{names} names for {clients} clients")));
        }
        Ok(())
    }

    /// The place of a client, by its name.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        let places = self.places.get_or_init(|| self.names.iter().cloned().zip(0..).collect());
        places.get(name).copied()
    }

    /// For the machine of some clients: it knows these alone, and not their models.
    pub(super) fn only(&self, places: &[u32]) -> Self {
        let of = |place: &u32| self.model.clients.binary_search(place).ok();
        let places: Vec<usize> = places.iter().filter_map(of).collect();
        let mut saved = self.without_own_models();
        saved.names = places.iter().map(|&place| self.names[place].clone()).collect();
        saved.model.clients = (0..places.len() as u32).collect();
        saved.model.learned.clients = places.iter().map(|&place| saved.model.learned.clients[place].clone()).collect();
        saved
    }

    /// Without the models of single clients.
    pub(super) fn without_own_models(&self) -> Self {
        let mut saved = Self { places: OnceLock::new(), ..self.clone() };
        let clients = &mut saved.model.learned.clients;
        clients.iter_mut().for_each(|client| *client = client.without_models());
        saved
    }

    /// With clients that were not there, by their names.
    pub(super) fn with(&self, added: Vec<(String, LearnedClient)>) -> Self {
        let mut saved = Self { places: OnceLock::new(), ..self.clone() };
        for (name, client) in added {
            let model = &mut saved.model;
            model.learned.families[client.family].clients += 1;
            model.learned.clients.push(client);
            model.clients.push(model.clients.last().map_or(0, |last| last + 1));
            saved.names.push(name);
        }
        saved
    }

    /// Names of clients that were added after the fit.
    pub(super) fn added(&self) -> Vec<&str> {
        let clients = self.names.iter().zip(&self.model.learned.clients);
        clients.filter(|(_, client)| client.service.is_none()).map(|(name, _)| name.as_str()).collect()
    }

    /// What serves a client, in words: one of the four models, or their mixture.
    pub(super) fn served_by(&self, client: &LearnedClient) -> String {
        let learned = &self.model.learned;
        let family = learned.number_of(client);
        let name = |rung: Rung| match rung {
            Rung::Global => "global".to_string(),
            Rung::Family => format!("family {family}"),
            Rung::Personal => "personal".to_string(),
            Rung::Alone => "alone".to_string(),
        };
        if let Some(rung) = client.own_choice() {
            return name(rung);
        }
        let mut weights: Vec<(f64, Rung)> = learned.stack_of(client).into_iter().zip(Rung::ALL).collect();
        weights.sort_by(|a, b| b.0.total_cmp(&a.0));
        let weights = weights.into_iter().filter(|(weight, _)| *weight >= 0.005);
        let parts: Vec<String> =
            weights.map(|(weight, rung)| format!("{} {:.0}%", name(rung), 100.0 * weight)).collect();
        parts.join(" + ")
    }

    fn families_file(&self) -> Result<Vec<u8>> {
        let table = show::families(self);
        let header = ["family", "clients", "share_percent", "apart_by"];
        comma_separated("families.csv", header, table.rows().iter().cloned())
    }

    fn clients_file(&self) -> Result<Vec<u8>> {
        let header = [
            "client",
            "rows",
            "family",
            "probability",
            "stability",
            "served_by",
            "error",
            "error_global",
            "error_family",
            "error_personal",
            "error_alone",
            "joining",
            "gain",
            "gain_se",
            "added",
        ];
        let square = self.model.target.deviation.powi(2);
        let or_empty = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let row = |(place, name): (usize, &String)| {
            let client = &self.model.learned.clients[place];
            let service = client.service.as_ref();
            let errors = service.and_then(|service| service.errors);
            let joining = service.map(|service| service.joining);
            let mut row = vec![
                name.clone(),
                client.rows.to_string(),
                self.model.learned.number_of(client).to_string(),
                client.responsibilities[client.family].to_string(),
                or_empty(client.stability),
                self.served_by(client),
                or_empty(service.and_then(|service| service.error).map(|error| square * error)),
            ];
            row.extend((0..4).map(|rung| or_empty(errors.map(|errors| square * errors[rung]))));
            row.push(client.verdict().map_or("", Joining::word).to_string());
            row.push(or_empty(joining.map(|gain| square * gain.mean)));
            row.push(or_empty(joining.map(|gain| square * gain.error)));
            row.push(if service.is_none() { "yes" } else { "no" }.to_string());
            row
        };
        comma_separated("clients.csv", header, self.names.iter().enumerate().map(row))
    }

    /// The columns without the curves that the model does not use, and which encoded columns are left.
    pub(super) fn used_columns(&self) -> (Schema, Vec<usize>) {
        let learned = &self.model.learned;
        let has_classes = learned.response != Response::Numbers;
        self.columns.without_bends(|feature| has_classes || learned.basis.kept.contains(&feature))
    }

    fn coefficients_file(&self) -> Result<Vec<u8>> {
        let units = Coefficients::new(self);
        let learned = &self.model.learned;
        let mut rows = Vec::new();
        let mut push = |model: &str, who: &str, coefficients: &[f64], covariance: Option<&[f64]>| {
            for term in units.terms(coefficients, covariance) {
                let error = term.error.map_or(String::new(), |error| error.to_string());
                rows.push(vec![model.to_string(), who.to_string(), term.name, term.value.to_string(), error]);
            }
        };
        push("global", "", &learned.global, None);
        for family in &learned.families {
            push("family", &family.number.to_string(), &family.centre, Some(&family.covariance));
        }
        for (name, client) in self.names.iter().zip(&learned.clients).filter(|(_, client)| !client.is_elsewhere()) {
            push("served", name, &client.served, None);
            push("personal", name, &client.personal, Some(&learned.predictor(client).covariance));
        }
        comma_separated("coefficients.csv", ["model", "of", "term", "value", "standard_error"], rows)
    }
}
