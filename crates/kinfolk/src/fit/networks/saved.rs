//! What was fitted, and the folder it lies in.

use super::effects::Effect;
use super::page::page;
use super::reach::{Fit, NetworkIntervals};
use super::show;
use super::study::network;
use crate::data::files::Notation;
use crate::data::known::KnownColumns;
use crate::data::schema::Schema;
use crate::data::understood::Understood;
use crate::disk::{comma_separated, json_text, write_all_atomically};
use crate::error::{Error, Result};
use crate::families::{Gain, Reliability};
use crate::federation::Params;
use crate::federation::work::TargetScale;
use crate::fit::FitOptions;
use crate::methods::NetworkRung;
use crate::modelfile;
use crate::models::{Layout, Model, Precision, TensorPlace};
use crate::training::{Amount, Plan, Portion, Sample};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Increased whenever an older program could not read a model any more.
const SCHEMA: u32 = 1;
const MODEL: &str = "model.json";
const TENSORS: &str = "models.safetensors";
/// What model.json says it is.
pub(in crate::fit) const KIND: &str = "network";
/// The files of a folder.
pub const NETWORK_FILES: [&str; 6] = [MODEL, TENSORS, "families.csv", "clients.csv", "effects.csv", "report.html"];
/// Bounds of what a file may ask for.
const MOST_STEPS: u32 = 1 << 20;
const WIDEST: usize = 1 << 16;

/// Fitted networks with all that is needed to use them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedNetworks {
    schema: u32,
    kind: String,
    version: String,
    /// The column that names the client.
    pub client: String,
    /// The column that is predicted.
    pub target: String,
    /// Its classes, where it has some.
    pub classes: Vec<String>,
    /// What was understood of the columns.
    pub understood: Vec<Understood>,
    /// What was read in an unusual way, who was left out.
    pub remarks: Vec<String>,
    /// Errors on rows kept for testing.
    pub(super) tested: Option<NetworkTested>,
    /// The seed of all draws.
    pub seed: u64,
    /// What else was asked for.
    pub(in crate::fit) options: FitOptions,
    /// What moved since the fit before, where this goes on with it,
    pub changes: Vec<String>,
    /// and the largest number that a family had so far.
    pub(super) latest_family: usize,
    /// The clients' names, in the order of the model's clients.
    pub names: Vec<String>,
    pub(super) columns: Schema,
    notation: Notation,
    pub(super) model: NetworkFacts,
    /// The digest of the file with the networks; only in files.
    networks: String,
    #[serde(skip)]
    pub(super) networks_of: NetworkParams,
    /// The place of each name.
    #[serde(skip)]
    places: OnceLock<HashMap<String, usize>>,
}

/// What was decided, and how well it serves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct NetworkFacts {
    /// Widths of the hidden layers.
    pub(super) hidden: Vec<usize>,
    /// The scale of a target that is a number.
    pub(super) target: TargetScale,
    /// How often clients that do not differ would look as different.
    pub(super) p: Option<f64>,
    /// What serves who has no reason to deviate.
    pub(super) default: NetworkRung,
    /// How a client fine-tunes; the rung says how long.
    pub(super) plan: Plan,
    pub(super) families: Vec<NetworkFamily>,
    pub(super) clients: Vec<FittedClient>,
    /// Mean losses of held-out rows: everybody's model, the family's, fine-tuned, alone, what serves clients.
    pub(super) errors: [Option<f64>; 5],
    /// Of numbers.
    pub(super) intervals: Option<NetworkIntervals>,
    /// Of classes.
    pub(super) reliability: Option<Reliability>,
    /// Of everybody's model.
    pub(super) effects: Vec<Effect>,
    pub(super) sentences: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct NetworkFamily {
    pub(super) number: usize,
    pub(super) clients: usize,
    pub(super) share: f64,
    pub(super) fit: Fit,
    pub(super) effects: Vec<Effect>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct FittedClient {
    pub(super) rows: usize,
    pub(super) family: usize,
    pub(super) rung: NetworkRung,
    /// As those of all.
    pub(super) errors: Option<[Option<f64>; 5]>,
    pub(super) joining: Option<Gain>,
    /// Whether it came after the fit.
    pub(super) added: bool,
}

impl FittedClient {
    /// Whether a model of its own serves it.
    pub(super) fn has_own(&self) -> bool {
        matches!(self.rung, NetworkRung::Personal(_) | NetworkRung::Alone(_))
    }
}

/// Mean squared errors, or log losses, on rows kept for testing, averaged over clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkTested {
    /// Clients with such rows.
    pub clients: usize,
    /// The rows.
    pub rows: u64,
    /// Of one model for everybody.
    pub global: f64,
    /// Of the families' models.
    pub family: f64,
    /// Of what serves each client.
    pub served: f64,
}

/// The networks' parameters.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct NetworkParams {
    pub(super) global: Params,
    pub(super) families: Vec<Params>,
    /// Of clients that have one.
    pub(super) own: Vec<Option<Params>>,
}

impl NetworkParams {
    /// As they are in a file.
    fn rounded(&self) -> Self {
        let round = |params: &Params| {
            let mut rounded = params.to_vec();
            Precision::F32.round(&mut rounded);
            Params::new(rounded)
        };
        Self {
            global: round(&self.global),
            families: self.families.iter().map(round).collect(),
            own: self.own.iter().map(|own| own.as_ref().map(round)).collect(),
        }
    }
}

/// What everything about a table and its reading is put together from.
pub(super) struct Origin {
    pub(super) client: String,
    pub(super) target: String,
    pub(super) names: Vec<String>,
    pub(super) columns: Schema,
    pub(super) notation: Notation,
    pub(super) understood: Vec<Understood>,
    pub(super) remarks: Vec<String>,
    pub(super) tested: Option<NetworkTested>,
    pub(super) seed: u64,
    pub(super) options: FitOptions,
}

impl SavedNetworks {
    pub(super) fn new(origin: Origin, model: NetworkFacts, networks_of: NetworkParams) -> Self {
        let Origin { client, target, names, columns, notation, understood, remarks, tested, seed, options } = origin;
        Self {
            schema: SCHEMA,
            kind: KIND.to_string(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            client,
            target,
            classes: columns.class_names(),
            understood,
            remarks,
            tested,
            seed,
            options,
            changes: Vec::new(),
            latest_family: model.families.len(),
            names,
            columns,
            notation,
            model,
            networks: String::new(),
            networks_of: networks_of.rounded(),
            places: OnceLock::new(),
        }
    }

    /// What is known of the columns of new rows.
    pub(super) fn known_columns(&self) -> KnownColumns<'_> {
        let Self { columns: schema, notation, client, target, .. } = self;
        KnownColumns { schema, notation, client, target, weight: None }
    }

    /// The network that predicts, in double precision.
    pub(super) fn network(&self) -> Result<Arc<dyn Model>> {
        network(&self.model.hidden, Precision::F64, self.columns.shape())
    }

    /// Writes all files of the model into a folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let file = |name: &str| Ok((name.to_string(), self.file(name)?));
        let others =
            NETWORK_FILES.iter().filter(|name| **name != MODEL).map(|name| file(name)).collect::<Result<_>>()?;
        write_all_atomically(folder, others)?;
        // The last: a folder without it is not finished, and one with networks of another model is noticed.
        write_all_atomically(folder, vec![file(MODEL)?])
    }

    /// The content of one of [`NETWORK_FILES`].
    pub fn file(&self, name: &str) -> Result<Vec<u8>> {
        match name {
            MODEL => {
                let networks = digest(&self.tensors()?);
                json_text(&Self { networks, places: OnceLock::new(), ..self.clone() }).map(String::into_bytes)
            }
            TENSORS => self.tensors(),
            "families.csv" => {
                let header = ["family", "clients", "share_percent", "apart_by"];
                comma_separated(name, header, show::families(self).rows().iter().cloned())
            }
            "clients.csv" => self.clients_file(),
            "effects.csv" => self.effects_file(),
            "report.html" => Ok(page(self).into_bytes()),
            other => Err(Error::settings(format!("file: got {other}, want one of {}", NETWORK_FILES.join(", ")))),
        }
    }

    /// Reads the model of a folder whose `model.json` has this text.
    pub(in crate::fit) fn read(folder: &Path, text: &str) -> Result<Self> {
        let path = folder.join(TENSORS);
        let bytes = std::fs::read(&path).map_err(|error| Error::io("reading", &path, error))?;
        Self::of_parts(text, &bytes)
    }

    /// The model of the contents of `model.json` and `models.safetensors`.
    pub fn of_parts(text: &str, networks: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
            kind: String,
        }
        let unsound = |error: serde_json::Error| Error::data(error.to_string());
        let head: Head = serde_json::from_str(text).map_err(unsound)?;
        if head.kind != KIND {
            return Err(Error::data(format!("kind {:?}, want {KIND:?}", head.kind)));
        }
        if head.schema > SCHEMA {
            let message = format!("schema {}, this program reads up to {SCHEMA}", head.schema);
            return Err(Error::data(message).hint("a newer kinfolk has written it: use that one"));
        }
        let mut saved: Self = serde_json::from_str(text).map_err(unsound)?;
        saved.check()?;
        if digest(networks) != std::mem::take(&mut saved.networks) {
            let message = format!("{TENSORS} is not the one that belongs to {MODEL}");
            return Err(Error::data(message).hint("one of them was changed, or not written to its end: fit again"));
        }
        saved.take_tensors(networks)?;
        Ok(saved)
    }

    /// What a hand that changed the file may have broken.
    fn check(&self) -> Result<()> {
        let odd = |what: &str| Err(Error::data(format!("not what `fit` has written: {what}")));
        let (model, outputs) = (&self.model, self.classes.len().max(1));
        let TargetScale { mean, deviation } = model.target;
        if model.hidden.is_empty()
            || model.hidden.len() > 16
            || model.hidden.iter().any(|width| !(1..=WIDEST).contains(width))
        {
            return odd("the hidden layers");
        }
        if self.columns.class_names() != self.classes || self.columns.shape().columns == 0 {
            return odd("the columns");
        }
        if !mean.is_finite() || !deviation.is_finite() || deviation <= 0.0 {
            return odd("the scale of the target");
        }
        let steps = |rung: &NetworkRung| match rung {
            NetworkRung::Personal(amount) | NetworkRung::Alone(amount) => match amount {
                Amount::Steps(steps) | Amount::Epochs(steps) => *steps <= MOST_STEPS,
            },
            NetworkRung::Global | NetworkRung::Family => true,
        };
        let plan = &model.plan;
        let Sample { on, batch, .. } = plan.sample;
        let is_plain = on == Portion::All && batch != Some(0) && plan.terms.is_empty();
        if !steps(&model.default) || !plan.step.is_finite() || !is_plain {
            return odd("how clients fine-tune");
        }
        if model.reliability.as_ref().is_some_and(|found| found.counts().count() != Reliability::COUNTS) {
            return odd("how often classes came true");
        }
        let is_effects = |effects: &[Effect]| {
            effects.iter().all(|effect| effect.mean.len() == outputs && effect.spread.len() == outputs)
        };
        let is_family = |family: &NetworkFamily| {
            let Fit { mean, between, within } = family.fit;
            let fits = mean.is_finite() && between >= 0.0 && within >= 0.0;
            fits && family.share.is_finite() && (0.0..=1.0).contains(&family.share) && is_effects(&family.effects)
        };
        let terms = |effects: &[Effect]| effects.iter().map(|effect| effect.term.clone()).collect::<Vec<_>>();
        let alike = |family: &NetworkFamily| terms(&family.effects) == terms(&model.effects);
        if model.families.is_empty()
            || !is_effects(&model.effects)
            || !model.families.iter().all(|own| is_family(own) && alike(own))
        {
            return odd("the families");
        }
        if self.names.len() != model.clients.len() {
            return odd(&format!("{} names for {} clients", self.names.len(), model.clients.len()));
        }
        if model.clients.iter().any(|client| client.family >= model.families.len() || !steps(&client.rung)) {
            return odd("the clients");
        }
        let has_intervals = model.intervals.as_ref().is_some_and(|intervals| {
            let is_size = |value: &f64| value.is_finite() && *value >= 0.0;
            intervals.spreads.len() == self.names.len()
                && intervals.spreads.iter().all(is_size)
                && [intervals.spread, intervals.reach.reach, intervals.reach.newcomer_reach].iter().all(is_size)
        });
        if self.classes.is_empty() != has_intervals || self.classes.len() == 1 {
            return odd("the intervals");
        }
        Ok(())
    }

    /// The place of a client, by its name.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        let places = self.places.get_or_init(|| self.names.iter().cloned().zip(0..).collect());
        places.get(name).copied()
    }

    /// With clients that were not there: by their names, with their models and the spread of their residuals.
    pub(super) fn with(&self, added: Vec<(String, FittedClient, Option<Params>)>) -> Self {
        let mut saved = Self { places: OnceLock::new(), ..self.clone() };
        for (name, client, own) in added {
            let model = &mut saved.model;
            model.families[client.family].clients += 1;
            model.clients.push(client);
            if let Some(intervals) = &mut model.intervals {
                intervals.spreads.push(intervals.spread);
            }
            saved.names.push(name);
            saved.networks_of.own.push(own);
        }
        saved.networks_of = saved.networks_of.rounded();
        saved
    }

    /// What serves a client, in words.
    pub(super) fn served_by(&self, client: &FittedClient) -> String {
        match client.rung {
            NetworkRung::Global => "global".into(),
            NetworkRung::Family => format!("family {}", self.model.families[client.family].number),
            NetworkRung::Personal(_) => "personal".into(),
            NetworkRung::Alone(_) => "alone".into(),
        }
    }

    /// The factor that brings losses into the table's units.
    pub(super) fn unit(&self) -> f64 {
        if self.classes.is_empty() { self.model.target.deviation.powi(2) } else { 1.0 }
    }

    fn clients_file(&self) -> Result<Vec<u8>> {
        let header = [
            "client",
            "rows",
            "family",
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
        let unit = self.unit();
        let or_empty = |value: Option<f64>| value.map_or(String::new(), |value| (unit * value).to_string());
        let row = |(name, client): (&String, &FittedClient)| {
            let error = |at: usize| or_empty(client.errors.and_then(|errors| errors[at]));
            let number = self.model.families[client.family].number;
            let mut row = vec![name.clone(), client.rows.to_string(), number.to_string(), self.served_by(client)];
            row.extend([4, 0, 1, 2, 3].map(error));
            row.push(show::joining(client).to_string());
            row.push(or_empty(client.joining.map(|gain| gain.mean)));
            row.push(or_empty(client.joining.map(|gain| gain.error)));
            row.push(if client.added { "yes" } else { "no" }.to_string());
            row
        };
        comma_separated("clients.csv", header, self.names.iter().zip(&self.model.clients).map(row))
    }

    fn effects_file(&self) -> Result<Vec<u8>> {
        let classes = if self.classes.is_empty() { vec![String::new()] } else { self.classes.clone() };
        let mut rows = Vec::new();
        let mut push = |model: &str, of: &str, effects: &[Effect]| {
            for effect in effects {
                for (class, (mean, spread)) in classes.iter().zip(effect.mean.iter().zip(&effect.spread)) {
                    let names = [model, of, class, &effect.term].map(str::to_string);
                    rows.push(names.into_iter().chain([mean.to_string(), spread.to_string()]).collect::<Vec<_>>());
                }
            }
        };
        push("global", "", &self.model.effects);
        for family in &self.model.families {
            push("family", &family.number.to_string(), &family.effects);
        }
        comma_separated("effects.csv", ["model", "of", "class", "term", "effect", "spread"], rows)
    }

    /// The networks with their names.
    fn named(&self) -> Vec<(String, Option<&Params>)> {
        let mut named = vec![("global".to_string(), Some(&self.networks_of.global))];
        for (place, family) in self.model.families.iter().enumerate() {
            named.push((format!("family {}", family.number), self.networks_of.families.get(place)));
        }
        for (place, (name, _)) in
            self.names.iter().zip(&self.model.clients).enumerate().filter(|(_, (_, own))| own.has_own())
        {
            named.push((format!("client {name}"), self.networks_of.own.get(place).and_then(Option::as_ref)));
        }
        named
    }

    /// Every network's tensors, as they are trained: standardised columns in, a standardised number or scores of classes out.
    fn tensors(&self) -> Result<Vec<u8>> {
        let network = self.network()?;
        let (mut layout, mut values) = (Layout { tensors: Vec::new() }, Vec::new());
        for (name, params) in self.named() {
            let params = params.ok_or_else(|| Error::data(format!("there is no network of {name}")))?;
            for tensor in &network.layout().tensors {
                let name = format!("{name}/{}", tensor.name);
                layout.tensors.push(TensorPlace { name, shape: tensor.shape.clone(), offset: values.len() });
                values.extend_from_slice(&params[tensor.range()]);
            }
        }
        modelfile::bytes(&values, &layout, Precision::F32, &[("kinfolk", self.version.clone())])
    }

    fn take_tensors(&mut self, bytes: &[u8]) -> Result<()> {
        let network = self.network()?;
        let found = modelfile::of_bytes(bytes).map_err(|error| error.at(TENSORS))?;
        let tensors: HashMap<&str, &modelfile::Tensor> =
            found.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
        let params = |name: &str| -> Result<Params> {
            let mut params = Vec::with_capacity(network.layout().len());
            for wanted in &network.layout().tensors {
                let name = format!("{name}/{}", wanted.name);
                let fault = |what: String| Error::data(format!("{TENSORS}: {what}"));
                let tensor = tensors.get(name.as_str()).ok_or_else(|| fault(format!("has no tensor `{name}`")))?;
                if tensor.shape != wanted.shape {
                    return Err(fault(format!("`{name}` has shape {:?}, want {:?}", tensor.shape, wanted.shape)));
                }
                params.extend(tensor.values.to_f64());
            }
            match params.iter().all(|value| value.is_finite()) {
                true => Ok(Params::new(params)),
                false => Err(Error::data(format!("{TENSORS}: the network of {name} has numbers that are not finite"))),
            }
        };
        let families = &self.model.families;
        let own = |(name, client): (&String, &FittedClient)| match client.has_own() {
            true => params(&format!("client {name}")).map(Some),
            false => Ok(None),
        };
        self.networks_of = NetworkParams {
            global: params("global")?,
            families: families
                .iter()
                .map(|family| params(&format!("family {}", family.number)))
                .collect::<Result<_>>()?,
            own: self.names.iter().zip(&self.model.clients).map(own).collect::<Result<_>>()?,
        };
        Ok(())
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
