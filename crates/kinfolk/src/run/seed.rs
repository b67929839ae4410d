//! The data of one seed: its clients, one schema for everybody, and the model that fits it.

use super::venue::Meeting;
use super::*;
use crate::data::own::OwnStart;
use crate::data::schema::{Description, TargetDescription, extreme_cells};
use crate::data::{Client, DataShape, Population};
use crate::federation::transforms::Transforms;
use crate::federation::work::TargetScale;
use crate::groups::Origin;
use crate::methods::{DataFacts, Setup, auto_step, choose_components, no_true_clusters};
use crate::models::{Blueprint, Metric, Model};
use crate::num::Moments;
use crate::over::Over;
use crate::rng::Key;
use std::sync::atomic::AtomicBool;

pub(crate) struct SeedData {
    pub(crate) population: Population,
    pub(crate) engine: Box<dyn Engine>,
    pub(super) unseen: Option<Box<dyn Engine>>,
    /// The same clients with test rows on which the success of an attack is measured.
    pub(super) attacked: Option<Box<dyn Engine>>,
    pub(crate) rows: Vec<usize>,
    truth: Option<Vec<usize>>,
    /// The groups that clients say they belong to.
    column: Option<Groups>,
    pub(crate) model: Arc<dyn Model>,
    blueprint: Blueprint,
    pub(super) metric: Metric,
    pub(crate) schema: Schema,
    /// Notes about the data and the model, for every method.
    pub(crate) notes: Vec<String>,
    /// Upper bound on the curvature of the clients' losses, where a method needs it.
    curvature: Option<f64>,
    facts: DataFacts,
    /// Identifies the program and the data.
    pub(super) origin: String,
    /// Who was met, where a run that goes on must know.
    pub(super) met: Option<Vec<u8>>,
}

/// Clients with further columns, a model for them, and what is known of the columns.
pub(crate) type Widened = (Box<dyn Engine>, Arc<dyn Model>, DataFacts);

/// Looks up what the method with a label found.
#[derive(Clone, Copy)]
pub(super) struct Above<'a> {
    /// Its clusters as groups.
    pub(super) groups: &'a dyn Fn(&str) -> Result<Groups>,
    /// Its clusters and models.
    pub(super) over: &'a dyn Fn(&str) -> Result<Over>,
}

/// Increased whenever the layout of checkpoints changes.
const CHECKPOINT_LAYOUT: u32 = 7;

impl SeedData {
    pub(crate) fn prepare(
        experiment: &Experiment,
        seed: u64,
        venue: &mut dyn Venue,
        start: Option<&OwnStart>,
        before: Option<&[u8]>,
    ) -> Result<Self> {
        let Meeting { mut population, mut engine, mut unseen, mut attacked, digest, met } =
            venue.open(experiment, seed, before)?;
        let begins = start.map_or(Ok(String::new()), OwnStart::digest)?;
        let origin = format!("{} {CHECKPOINT_LAYOUT} {digest}{begins}", env!("CARGO_PKG_VERSION"));

        // The server asks for descriptions of the data, and fixes one schema for everybody.
        let described = engine.describe(experiment.standardises())?;
        let silent = |(_, description): &(&ClientInfo, &Option<Description>)| description.is_none();
        if let Some((client, _)) = engine.clients().iter().zip(&described).find(silent) {
            let message = format!("client {} does not say what its data looks like", client.id);
            return Err(Error::new(ErrorKind::Client, message));
        }
        let described: Vec<Description> = described.into_iter().flatten().collect();
        let rows: Vec<usize> = described.iter().map(|description| description.rows).collect();
        let column = Groups::named(described.iter().map(|description| description.group.as_deref()));
        let schema = Schema::fix(&described, experiment.coding())?;
        let ordered = experiment.data.get("time").is_some();
        let facts = DataFacts { columns: schema.roles(), target: target_scale(&described), ordered };
        let mut notes = std::mem::take(&mut population.remarks);
        notes.extend(columns::extreme_cell_notes(engine.clients(), &extreme_cells(&described)));
        let mut unknown = schema.unknown_classes(&described);
        if let Some(encoded) = engine.adopt(&schema)? {
            population.clients = encoded;
        }
        if let Some(unseen) = &mut unseen {
            let described: Vec<Description> = unseen.describe(false)?.into_iter().flatten().collect();
            unknown.extend(schema.unknown_classes(&described));
            if let Some(encoded) = unseen.adopt(&schema)? {
                population.unseen = encoded;
            }
        }
        let mut shape = schema.shape();
        shape.classes = shape.classes.max(population.shape.classes);
        // A schema knows the columns but not their layout; only tables are encoded, and those have none.
        shape.form = population.shape.form;
        let mut blueprint = Blueprint { kind: experiment.model_kind, settings: experiment.model.clone(), shape };
        let mut model = blueprint.build_from(start.cloned())?;
        notes.extend(columns::unknown_classes_note(unknown));
        engine.equip(&model, &blueprint)?;
        if let Some((settings, note)) =
            choose_components(&mut *engine, &*model, &experiment.model, &rows, &Key::new(seed))?
        {
            blueprint.settings = settings;
            model = blueprint.build_from(start.cloned())?;
            engine.equip(&model, &blueprint)?;
            notes.push(note);
        }
        if let Some(unseen) = &mut unseen {
            unseen.equip(&model, &blueprint)?;
        }
        if let Some(attacked) = &mut attacked {
            attacked.adopt(&schema)?;
            attacked.equip(&model, &blueprint)?;
        }
        let metric = choose_metric(experiment, &*model)?;
        let curvature = find_curvature(experiment, &mut *engine, &*model)?;
        let truth = population.clients.iter().map(|client| client.truth).collect();
        Ok(Self {
            population,
            engine,
            unseen,
            attacked,
            rows,
            truth,
            column,
            model,
            blueprint,
            metric,
            schema,
            notes,
            curvature,
            facts,
            origin,
            met,
        })
    }

    /// What became of columns in a way that may surprise.
    pub(super) fn column_notes(&self) -> impl Iterator<Item = String> {
        self.schema.understood().into_iter().filter(|column| column.is_unusual).map(|column| column.note())
    }

    /// What clients said of their columns and targets.
    pub(crate) fn facts(&self) -> &DataFacts {
        &self.facts
    }

    /// The same clients with the products of columns that a schema has beyond theirs, a model for them, and what is known of the columns.
    pub(crate) fn widened(&self, label: &str, schema: &Schema, stop: Arc<AtomicBool>) -> Result<Widened> {
        let mut engine = self.engine.afresh(label, Transforms::default(), stop)?;
        engine.widen(schema)?;
        let shape = DataShape { columns: schema.shape().columns, ..self.blueprint.shape };
        let blueprint = Blueprint { shape, ..self.blueprint.clone() };
        let model = blueprint.build()?;
        engine.equip(&model, &blueprint)?;
        Ok((engine, model, DataFacts { columns: schema.roles(), ..self.facts.clone() }))
    }

    /// The groups that clients say they belong to.
    pub(crate) fn column(&self) -> Option<&Groups> {
        self.column.as_ref()
    }

    /// The groups given to a method, if any. `found` looks up an earlier method's; before that all are in one group.
    pub(super) fn groups_for(&self, entry: &MethodEntry, above: Option<Above>) -> Result<Option<Groups>> {
        let place = format!("method.{}.groups", entry.label);
        let Some(grouping) = entry.needs().groups else { return Ok(None) };
        let groups = match grouping.origin() {
            Origin::One => Groups::one(self.rows.len()),
            Origin::Truth => {
                let truth = self.truth.as_ref().and_then(|truth| Groups::numbered(truth.iter().copied().map(Some)));
                truth.ok_or_else(|| no_true_clusters(&place))?
            }
            Origin::Column => self.column.clone().ok_or_else(|| {
                Error::settings(format!("{place}: the data names no groups"))
                    .hint("set data.group for a table, or groups = \"truth\", \"one\", or the label of a method above")
            })?,
            Origin::Method(label) => match above {
                Some(above) => (above.groups)(label)?,
                None => Groups { provisional: true, ..Groups::one(self.rows.len()) },
            },
        };
        Ok(Some(groups))
    }

    pub(super) fn method(&self, entry: &MethodEntry, seed: u64, above: Option<Above>) -> Result<Box<dyn Method>> {
        let groups = self.groups_for(entry, above)?;
        let needs = entry.needs();
        // Before any method has run, one that goes on from another is made as if from the start.
        let over = needs.over.zip(above).map(|(label, above)| (above.over)(&label)).transpose()?;
        (entry.kind.build)(Setup {
            place: format!("method.{}", entry.label),
            settings: &entry.settings,
            model: self.model.clone(),
            rows: &self.rows,
            curvature: self.curvature,
            truth: self.truth.as_deref().filter(|_| needs.truth),
            planted: Some(&*self.population.true_parameters).filter(|planted| needs.truth && !planted.is_empty()),
            groups,
            over,
            facts: self.facts.clone(),
            seed,
            key: Key::new(seed).word(&entry.label),
        })
    }

    pub(super) fn auto_step_note(&self, entry: &MethodEntry) -> Option<String> {
        let step = entry.needs().auto_step.filter(|step| step.is_used(&*self.model))?;
        self.curvature?;
        Some(format!("step {:.3e}, chosen from the data", auto_step(step.optimiser, self.curvature)))
    }

    /// Refuses weights of rows, which methods of an experiment do not know.
    pub(crate) fn check_weights(&self) -> Result<()> {
        if self.population.clients.iter().any(|client| client.train.weights().is_some()) {
            return Err(Error::settings("data.weight: the methods of an experiment count all rows alike").hint(
                "fit the table with `kinfolk fit`; or leave data.weight out, and name the column in data.drop if it is no feature",
            ));
        }
        Ok(())
    }

    /// Refuses to resume where the clients' state is out of reach.
    pub(super) fn check_resumable(&self) -> Result<()> {
        self.population.clients.iter().try_for_each(Client::check_resumable)?;
        if self.engine.state()?.is_some() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported, "this run cannot go on from a checkpoint")
            .hint("what its clients remember is out of reach; start anew in another folder"))
    }

    /// The `data` entry of summary.json. `samples` is the mean per client.
    pub(super) fn about(&self, experiment: &Experiment) -> serde_json::Value {
        let (rows, population, shape) = (&self.rows, &self.population, self.schema.shape());
        let total: usize = rows.iter().sum();
        let is_same = rows.iter().all(|other| rows.first() == Some(other)) && !rows.is_empty();
        let where_any = |count: usize| (count > 0).then_some(count);
        let outliers = population.outliers.iter().filter(|outlier| **outlier).count();
        let mut about = serde_json::json!({
            "source": experiment.source.name,
            "clients": rows.len(),
            "samples": if is_same { rows[0].into() } else { serde_json::Value::from(total as f64 / rows.len() as f64) },
            "rows": total,
            "columns": where_any(shape.columns),
            "classes": where_any(shape.classes),
            "unseen_clients": where_any(population.unseen.len()),
            "true_clusters": population.true_clusters,
            "outliers": (!population.outliers.is_empty()).then_some(outliers),
        });
        if let Some(about) = about.as_object_mut() {
            about.retain(|_, value| !value.is_null());
        }
        about
    }
}

/// The target's mean and deviation over all clients, where it is a number.
fn target_scale(described: &[Description]) -> Option<TargetScale> {
    let mut target = Moments::of(std::iter::empty());
    for description in described {
        if let TargetDescription::Values(own) = &description.target {
            target.merge(own);
        }
    }
    (target.count > 0).then_some(TargetScale { mean: target.mean, deviation: target.deviation })
}

fn choose_metric(experiment: &Experiment, model: &dyn Model) -> Result<Metric> {
    match &*experiment.top.metric {
        "auto" => Ok(model.metrics()[0]),
        wanted => model.metrics().iter().copied().find(|metric| metric.name() == wanted).ok_or_else(|| {
            let offered: Vec<&str> = model.metrics().iter().map(|metric| metric.name()).collect();
            Error::settings(format!("metric: got \"{wanted}\", want one of {} for this model", offered.join(", ")))
        }),
    }
}

fn find_curvature(experiment: &Experiment, engine: &mut dyn Engine, model: &dyn Model) -> Result<Option<f64>> {
    let is_used = |entry: &MethodEntry| entry.needs().auto_step.is_some_and(|step| step.is_used(model));
    let is_wanted = experiment.methods.iter().any(is_used);
    if model.curvature(0.0).is_none() || !is_wanted {
        return Ok(None);
    }
    let described: Vec<Description> = engine.describe(true)?.into_iter().flatten().collect();
    // One extreme cell would shrink everybody's steps to nothing.
    let extremes = extreme_cells(&described);
    let is_usual = |place: usize| extremes.iter().all(|cell| cell.client != place || cell.column.is_none());
    let described = described.iter().enumerate().filter(|(place, _)| is_usual(*place));
    let mean_squares = described.map(|(_, description)| description.mean_square());
    Ok(model.curvature(mean_squares.fold(0.0, f64::max)))
}
