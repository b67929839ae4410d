//! What was fitted without a target, and the folder it lies in.

use super::page::page;
use super::show;
use super::units::components;
use crate::data::files::Notation;
use crate::data::known::KnownColumns;
use crate::data::schema::Schema;
use crate::data::understood::Understood;
use crate::disk::{comma_separated, json_text, write_all_atomically};
use crate::error::{Error, Result};
use crate::fit::saved::{MODEL, damaged};
use crate::methods::ComponentModel;
use crate::modelfile;
use crate::models::{Layout, Precision, TensorPlace};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

/// Increased whenever an older program could not read a model any more.
const SCHEMA: u32 = 1;
/// What model.json says it is.
pub(in crate::fit) const KIND: &str = "mixture";
/// The files of a folder.
pub const MIXTURE_FILES: [&str; 6] =
    [MODEL, "models.safetensors", "families.csv", "clients.csv", "components.csv", "report.html"];

/// A fitted mixture with all that is needed to use it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedMixture {
    schema: u32,
    kind: String,
    version: String,
    /// The column that names the client.
    pub client: String,
    /// What was understood of the columns.
    pub understood: Vec<Understood>,
    /// What was read in an unusual way, who was left out.
    pub remarks: Vec<String>,
    /// The seed of all draws.
    pub seed: u64,
    /// The clients' names, in the order of the model's clients.
    pub names: Vec<String>,
    pub(super) columns: Schema,
    notation: Notation,
    pub(super) model: ComponentModel,
    /// The place of each name.
    #[serde(skip)]
    places: OnceLock<HashMap<String, usize>>,
}

impl SavedMixture {
    /// The model of the text of a `model.json`.
    pub(in crate::fit) fn of_text(text: &str) -> Result<Self> {
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

    #[expect(clippy::too_many_arguments, reason = "its fields, which nobody else puts together")]
    pub(super) fn new(
        client: String,
        names: Vec<String>,
        columns: Schema,
        notation: Notation,
        understood: Vec<Understood>,
        model: ComponentModel,
        remarks: Vec<String>,
        seed: u64,
    ) -> Self {
        let (version, kind) = (env!("CARGO_PKG_VERSION").to_string(), KIND.to_string());
        let places = OnceLock::new();
        Self {
            schema: SCHEMA,
            kind,
            version,
            client,
            understood,
            remarks,
            seed,
            names,
            columns,
            notation,
            model,
            places,
        }
    }

    /// What is known of the columns of new rows.
    pub(super) fn known_columns(&self) -> KnownColumns<'_> {
        KnownColumns { schema: &self.columns, notation: &self.notation, client: &self.client, target: "", weight: None }
    }

    /// The names of the columns of numbers that it is a mixture of.
    pub fn features(&self) -> Vec<String> {
        self.columns.feature_names()
    }

    /// Writes all files of the model into a folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let file = |name: &str| Ok((name.to_string(), self.file(name)?));
        let others =
            MIXTURE_FILES.iter().filter(|name| **name != MODEL).map(|name| file(name)).collect::<Result<_>>()?;
        write_all_atomically(folder, others)?;
        // The last: a folder without it is not finished.
        write_all_atomically(folder, vec![file(MODEL)?])
    }

    /// The content of one of [`MIXTURE_FILES`].
    pub fn file(&self, name: &str) -> Result<Vec<u8>> {
        match name {
            MODEL => json_text(self).map(String::into_bytes),
            "models.safetensors" => self.tensors(),
            "families.csv" => {
                let header = ["family", "clients", "share_percent", "weights"];
                comma_separated(name, header, show::families(self).rows().iter().cloned())
            }
            "clients.csv" => self.clients_file(),
            "components.csv" => self.components_file(),
            "report.html" => Ok(page(self).into_bytes()),
            other => Err(Error::settings(format!("file: got {other}, want one of {}", MIXTURE_FILES.join(", ")))),
        }
    }

    /// What a hand that changed the file may have broken.
    fn check(&self) -> Result<()> {
        let (model, shape) = (&self.model, self.model.shape);
        let odd = |what: &str| Err(Error::data(format!("not what `fit` has written: {what}")));
        if shape.columns != self.columns.shape().columns || shape.components == 0 || model.params.len() != shape.len() {
            return odd("the components");
        }
        let is_weights =
            |weights: &Vec<f64>| weights.len() == shape.components && weights.iter().all(|weight| *weight >= 0.0);
        let families = &model.families;
        if families.len() == 0 || families.centres.len() != families.len() || !families.centres.iter().all(is_weights) {
            return odd("the families");
        }
        if self.names.len() != model.clients.len() {
            return odd(&format!("{} names for {} clients", self.names.len(), model.clients.len()));
        }
        for client in &model.clients {
            let own = client
                .alone
                .as_ref()
                .is_none_or(|own| own.shape.columns == shape.columns && own.params.len() == own.shape.len());
            let has_family = client.family < families.len() && client.responsibilities.len() == families.len();
            if !has_family || !own || ![&client.own, &client.personal, &client.served].into_iter().all(is_weights) {
                return odd("the clients");
            }
        }
        Ok(())
    }

    /// The place of a client, by its name.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        let places = self.places.get_or_init(|| self.names.iter().cloned().zip(0..).collect());
        places.get(name).copied()
    }

    /// What serves a client, in words.
    pub(super) fn served_by(&self, place: usize) -> String {
        let client = &self.model.clients[place];
        if client.alone.is_some() {
            return "alone".into();
        }
        if client.is_outlier {
            return "personal".into();
        }
        let names = ["everybody".to_string(), format!("family {}", client.family + 1), "personal".to_string()];
        let parts = names.into_iter().zip(self.model.stack).filter(|(_, share)| *share > 0.0);
        let parts: Vec<(String, f64)> = parts.collect();
        match &parts[..] {
            [(name, _)] => name.clone(),
            parts => {
                let part = |(name, share): &(String, f64)| format!("{name} {:.0}%", 100.0 * share);
                parts.iter().map(part).collect::<Vec<_>>().join(" + ")
            }
        }
    }

    fn clients_file(&self) -> Result<Vec<u8>> {
        let header = [
            "client",
            "rows",
            "family",
            "probability",
            "served_by",
            "outlier",
            "outlier_p",
            "log_density",
            "joining",
            "gain",
            "gain_se",
        ];
        let weights = (1..=self.model.shape.components).map(|component| format!("weight_{component}"));
        let header: Vec<String> = header.map(str::to_string).into_iter().chain(weights).collect();
        let or_empty = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let row = |(place, name): (usize, &String)| {
            let client = &self.model.clients[place];
            let mut row = vec![
                name.clone(),
                client.rows.to_string(),
                (client.family + 1).to_string(),
                client.responsibilities[client.family].to_string(),
                self.served_by(place),
                if client.is_outlier { "yes" } else { "no" }.to_string(),
                client.outlier_p.to_string(),
                or_empty(client.held_out.map(|value| value + self.model.log_units)),
                show::joining(client).to_string(),
                or_empty(client.joining.map(|gain| gain.mean)),
                or_empty(client.joining.map(|gain| gain.error)),
            ];
            row.extend(client.served.iter().map(f64::to_string));
            row
        };
        comma_separated("clients.csv", header.iter().map(String::as_str), self.names.iter().enumerate().map(row))
    }

    fn components_file(&self) -> Result<Vec<u8>> {
        let names = self.features();
        let mut rows = Vec::new();
        for (number, component) in components(self).iter().enumerate() {
            for (place, name) in names.iter().enumerate() {
                let numbers = [component.weight, component.means[place], component.deviations[place]];
                let mut row = vec![(number + 1).to_string(), name.clone()];
                row.extend(numbers.iter().map(f64::to_string));
                rows.push(row);
            }
        }
        comma_separated("components.csv", ["component", "column", "weight", "mean", "standard_deviation"], rows)
    }

    /// Means, covariances and weights in the table's units, and what serves every client.
    fn tensors(&self) -> Result<Vec<u8>> {
        let (shape, components) = (self.model.shape, components(self));
        let parts: [(&str, Vec<usize>, Vec<f64>); 4] = [
            (
                "means",
                vec![shape.components, shape.columns],
                components.iter().flat_map(|own| own.means.clone()).collect(),
            ),
            (
                "covariances",
                vec![shape.components, shape.columns, shape.columns],
                components.iter().flat_map(|own| own.covariance.clone()).collect(),
            ),
            ("weights", vec![shape.components], components.iter().map(|own| own.weight).collect()),
            (
                "client_weights",
                vec![self.names.len(), shape.components],
                self.model.clients.iter().flat_map(|client| client.served.clone()).collect(),
            ),
        ];
        let (mut layout, mut values) = (Layout { tensors: Vec::new() }, Vec::new());
        for (name, shape, own) in parts {
            layout.tensors.push(TensorPlace { name: name.into(), shape, offset: values.len() });
            values.extend(own);
        }
        modelfile::bytes(&values, &layout, Precision::F64, &[("kinfolk", self.version.clone())])
    }

    /// Means (component by component), covariances and weights in the table's units, as in `models.safetensors`.
    pub fn in_units(&self) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let components = components(self);
        let means = components.iter().flat_map(|own| own.means.clone()).collect();
        let covariances = components.iter().flat_map(|own| own.covariance.clone()).collect();
        (means, covariances, components.iter().map(|own| own.weight).collect())
    }
}
