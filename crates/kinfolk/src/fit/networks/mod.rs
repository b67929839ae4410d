//! Networks of a target: families of them, fine-tuned for clients where that pays, and whether they are worth it at all.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | reads a table and learns, by networks where they are asked for or win ([`fit_model`]) |
//! | `study.rs` | how networks are trained on a table |
//! | `trial.rs` | whether they are better than linear models, on the same held-out rows |
//! | `reach.rs` | intervals, and how well families explain their members |
//! | `effects.rs` | by how much predictions change with each column |
//! | `saved.rs` | what was fitted, and its folder |
//! | `predict.rs`, `newcomers.rs`, `assign.rs` | new rows, and new clients |
//! | `refit.rs` | clients that are fitted again |
//! | `show.rs`, `page.rs` | what was found, in words and tables, and as a page |

mod assign;
mod effects;
mod newcomers;
mod page;
mod predict;
mod reach;
mod refit;
mod saved;
mod show;
mod study;
#[cfg(test)]
mod tests;
mod trial;

pub(in crate::fit) use saved::KIND;
pub use saved::{NETWORK_FILES, NetworkTested, SavedNetworks};
pub use show::{ShownNetworkFamily, ShownNetworks};

#[cfg(feature = "parquet")]
use super::Input;
use super::{FitOptions, FitSettings, FittedModel, ModelChoice, Prepared, known_families, prepared, with_options};
use crate::data::schema::Schema;
use crate::error::{Error, Result};
#[cfg(feature = "parquet")]
use crate::experiment::Experiment;
use crate::families::Reliability;
use crate::federation::engines::Engine;
use crate::federation::work::{Evaluate, Evaluated, Subject, TargetScale};
use crate::federation::{Ask, Gather, Handle, Params, Phase, Recipients};
use crate::methods::{NetworkClient, NetworkRung};
use crate::run::venue::{InProcess, Venue};
use crate::run::{Options, Watch};
use crate::settings::finish;
use crate::training::Split;
use effects::effects;
use reach::{NetworkIntervals, fits};
use saved::{FittedClient, NetworkFacts, NetworkFamily, NetworkParams, Origin};
use study::{HIDDEN, NetworkTable, Studied, scaled_client};
use trial::{Verdict, try_networks};

/// Fits the clients of a table with a target, all cores at work: by linear models, by networks, or by what is better on held-out rows, as
/// the settings say. `told` is handed what was understood of the columns, before the work begins.
pub fn fit_model(
    settings: FitSettings,
    options: &Options,
    watch: &mut dyn Watch,
    told: &mut dyn FnMut(&[String]),
) -> Result<FittedModel> {
    let settings = checked(settings)?;
    fit_at(&mut InProcess::new(options)?, settings, options, watch, told).map_err(|error| error.reworded(with_options))
}

/// The same for rows in memory, whatever file the settings name.
#[cfg(feature = "parquet")]
pub fn fit_model_records(
    records: super::Records,
    settings: FitSettings,
    options: &Options,
    watch: &mut dyn Watch,
    told: &mut dyn FnMut(&[String]),
) -> Result<FittedModel> {
    let mut settings = checked(settings)?;
    settings.table.path = Input::Memory(&records).path().display().to_string();
    let table = settings.table.clone();
    let populate = move |_: &Experiment, seed| crate::data::table::build_from(Input::Memory(&records), &table, seed);
    let mut venue = InProcess::of(options, populate)?;
    fit_at(&mut venue, settings, options, watch, told).map_err(|error| error.reworded(with_options))
}

/// The settings, unless they ask of networks what is for linear models.
fn checked(settings: FitSettings) -> Result<FitSettings> {
    let mut faults = Vec::new();
    if settings.model == ModelChoice::Network {
        let mut refuse = |is_asked: bool, why: &str| {
            if is_asked {
                faults.push(Error::settings(why).hint("leave it out, or fit linear models"));
            }
        };
        refuse(settings.table.weight.is_some(), "weight: networks count all rows alike");
        refuse(settings.covariance.is_some(), "covariance: it is that of coefficients, which networks do not have");
        refuse(settings.straight, "no-curves: networks have no curves to be left out");
        refuse(settings.additive, "no-interactions: networks have no products of columns to be left out");
    }
    finish(faults)?;
    settings.checked(false)
}

fn fit_at(
    venue: &mut dyn Venue,
    mut settings: FitSettings,
    options: &Options,
    watch: &mut dyn Watch,
    told: &mut dyn FnMut(&[String]),
) -> Result<FittedModel> {
    if settings.model == ModelChoice::Network {
        settings.table.curves = false;
        let asked = Asked::of(&settings);
        watch.doing("reading the table");
        let data = prepared(venue, settings.table, settings.seed, told)?;
        return study(&data, &asked, options, watch, Vec::new()).map(FittedModel::Networks);
    }
    let asked = Asked::of(&settings);
    let is_open = settings.model == ModelChoice::Auto && !settings.quick && settings.table.weight.is_none();
    let mut fitted = super::fit_at(venue, settings, options, watch, told)?;
    if !is_open {
        return Ok(FittedModel::Families(fitted.here()));
    }
    match try_networks(&fitted, &asked, options, watch)? {
        Verdict::NotTried => {}
        Verdict::Stays(sentence) => fitted.saved.model.learned.sentences.push(sentence),
        Verdict::Wins(sentence) => {
            let asked = Asked { options: FitOptions { model: ModelChoice::Network, ..asked.options }, ..asked };
            return study(&fitted.data, &asked, options, watch, vec![sentence]).map(FittedModel::Networks);
        }
    }
    Ok(FittedModel::Families(fitted.here()))
}

/// What was asked for.
struct Asked {
    client: String,
    target: String,
    options: FitOptions,
    seed: u64,
}

impl Asked {
    fn of(settings: &FitSettings) -> Self {
        let (client, target) = (settings.table.client.clone(), settings.table.target.clone().unwrap_or_default());
        Self { client, target, options: settings.options(), seed: settings.seed }
    }

    /// A table as networks see it: the schema without curves, and the rows of these clients.
    fn table(&self, data: &Prepared) -> Result<(Schema, NetworkTable)> {
        let data = &data.data;
        let (schema, columns) = data.schema.without_bends(|_| false);
        if !study::has_columns(&schema) {
            let message = "no column is left to predict by, and networks want at least one";
            return Err(Error::data(message).hint("fit linear models: there, clients may have a mean of their own"));
        }
        let target = data.facts().target.unwrap_or(TargetScale::PLAIN);
        let clients = &data.population.clients;
        let clients =
            clients.iter().map(|client| scaled_client(client, &columns, target)).collect::<Result<Vec<_>>>()?;
        let known = match self.options.group {
            Some(_) => Some(known_families(data.column())?.into_iter().collect()),
            None => None,
        };
        let table = NetworkTable {
            clients,
            shape: schema.shape(),
            target,
            ordered: data.facts().ordered,
            known,
            families: self.options.families,
            seed: self.seed,
            quick: self.options.quick,
        };
        Ok((schema, table))
    }
}

/// Learns networks of all rows.
fn study(
    data: &Prepared,
    asked: &Asked,
    options: &Options,
    watch: &mut dyn Watch,
    mut sentences: Vec<String>,
) -> Result<SavedNetworks> {
    let (schema, table) = asked.table(data)?;
    if let Some(wanted) = table.families.filter(|wanted| *wanted > table.clients.len()) {
        let there = table.clients.len();
        return Err(Error::settings(format!("families: got {wanted}, want at most the number of clients, {there}")));
    }
    let studied = table.study(options, watch, |_, _| Ok(true))?;
    let Some(Studied { found, own, mut engine, note }) = studied else {
        return Err(Error::settings("networks: the study was given up"));
    };
    sentences.extend(found.sentences);
    // Families are numbered by their size; clients that never gave a usable answer are left out.
    let count = found.families.len();
    let mut sizes = vec![0usize; count];
    found.clients.iter().filter_map(|client| client.family).for_each(|family| sizes[family] += 1);
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&family| std::cmp::Reverse(sizes[family]));
    let number = |family: usize| order.iter().position(|other| *other == family).unwrap_or(0);
    let kept: Vec<usize> = (0..found.clients.len()).filter(|&place| found.clients[place].family.is_some()).collect();
    let clients: Vec<NetworkClient> = (kept.iter())
        .map(|&place| NetworkClient { family: found.clients[place].family.map(number), ..found.clients[place].clone() })
        .collect();
    let families: Vec<Params> = order.iter().map(|&family| found.families[family].clone()).collect();
    let own: Vec<Option<Params>> = (kept.iter().zip(&clients))
        .map(|(&place, client)| match client.rung {
            NetworkRung::Personal(_) | NetworkRung::Alone(_) => own[place].clone(),
            NetworkRung::Global | NetworkRung::Family => None,
        })
        .collect();
    watch.doing("comparing networks");
    let unit = table.target.deviation;
    let models: Vec<Params> = std::iter::once(&found.global).chain(&families).cloned().collect();
    let mut effects = effects(&mut *engine, &schema, &models, unit)?.into_iter();
    let global_effects = effects.next().unwrap_or_default();
    let total: usize = sizes.iter().sum();
    let family = |((place, fit), effects): ((usize, reach::Fit), _)| NetworkFamily {
        number: place + 1,
        clients: sizes[order[place]],
        share: sizes[order[place]] as f64 / total.max(1) as f64,
        fit,
        effects,
    };
    let fitted_families = fits(&clients, count).into_iter().enumerate().zip(effects).map(family).collect();
    let fitted_client = |(&place, client): (&usize, &NetworkClient)| FittedClient {
        rows: table.clients[place].train.len(),
        family: client.family.unwrap_or(0),
        // A model that could not be trained is none.
        rung: client.rung,
        errors: client.errors,
        joining: client.joining,
        added: false,
    };
    let mut fitted_clients: Vec<FittedClient> = kept.iter().zip(&clients).map(fitted_client).collect();
    for (client, own) in fitted_clients.iter_mut().zip(&own) {
        if client.has_own() && own.as_ref().is_none_or(|own| own.iter().any(|value| !value.is_finite())) {
            client.rung = NetworkRung::Family;
        }
    }
    let error = |rung: usize| {
        let errors: Vec<f64> =
            clients.iter().filter_map(|client| client.errors.and_then(|errors| errors[rung])).collect();
        (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
    };
    let networks = NetworkParams { global: found.global.clone(), families, own };
    let has_classes = table.shape.classes > 0;
    let mut reliability = Reliability::default();
    let checked = clients.iter().filter_map(|client| client.checked_served.as_ref());
    checked.for_each(|checked| reliability.merge(&checked.reliability));
    let scale = if has_classes { 1.0 } else { unit.powi(2) };
    let tested = tested(&mut *engine, &kept, &fitted_clients, &networks, scale)?;
    let model = NetworkFacts {
        hidden: HIDDEN.to_vec(),
        target: table.target,
        p: found.p,
        default: found.default,
        plan: found.plan,
        families: fitted_families,
        clients: fitted_clients,
        errors: std::array::from_fn(error),
        intervals: (!has_classes).then(|| NetworkIntervals::new(&clients)),
        reliability: has_classes.then_some(reliability),
        effects: global_effects,
        sentences,
    };
    let mut remarks = data.data.notes.clone();
    remarks.extend(note);
    let left_out = (0..found.clients.len()).filter(|place| kept.binary_search(place).is_err());
    let id = |place: usize| table.clients[place].id.clone();
    remarks.extend(left_out.map(|place| format!("client {} is left out: its rows gave no usable answer", id(place))));
    let origin = Origin {
        client: asked.client.clone(),
        target: asked.target.clone(),
        names: kept.iter().map(|&place| id(place)).collect(),
        columns: schema,
        notation: data.data.population.notation.clone(),
        understood: data.understood.clone(),
        remarks,
        tested,
        seed: asked.seed,
        options: FitOptions { model: ModelChoice::Network, ..asked.options.clone() },
    };
    Ok(SavedNetworks::new(origin, model, networks))
}

/// The network that serves a client.
fn served<'a>(client: &FittedClient, own: Option<&'a Params>, networks: &'a NetworkParams) -> &'a Params {
    match (client.rung, own) {
        (NetworkRung::Global, _) => &networks.global,
        (NetworkRung::Personal(_) | NetworkRung::Alone(_), Some(own)) => own,
        _ => &networks.families[client.family],
    }
}

/// Mean losses on test rows with one model each, in the order of clients; `None` where a client has no such rows.
fn test_losses(engine: &mut dyn Engine, models: Vec<(u32, Params)>) -> Result<Vec<Option<(f64, u32)>>> {
    let mut ask = Ask::new(Phase::Evaluate, Vec::new(), Gather::Each);
    let mut orders = Vec::new();
    for (place, (client, model)) in models.into_iter().enumerate() {
        ask.models.push(model);
        let work = Evaluate { with: Subject::Models(vec![place]), assign_on: Split::Train, compare: false };
        orders.push(ask.order(Recipients::list(vec![client]), work));
    }
    let answers = engine.ask(&ask)?;
    let score = |order: Handle<Evaluated>| answers.of(order).each().next().map(|(_, evaluated)| evaluated.score);
    let loss = |score: crate::models::Score| (score.loss / f64::from(score.rows), score.rows);
    Ok(orders.into_iter().map(|order| score(order).filter(|score| score.rows > 0).map(loss)).collect())
}

/// The errors on rows kept for testing, `None` where no client has such rows.
fn tested(
    engine: &mut dyn Engine,
    kept: &[usize],
    clients: &[FittedClient],
    networks: &NetworkParams,
    unit: f64,
) -> Result<Option<NetworkTested>> {
    let mut losses = |model: &dyn Fn(usize, &FittedClient) -> Params| {
        let models = kept.iter().zip(clients).enumerate();
        let models = models.map(|(at, (&place, client))| (place as u32, model(at, client))).collect();
        test_losses(engine, models)
    };
    let global = losses(&|_, _| networks.global.clone())?;
    let tested: Vec<u32> = global.iter().flatten().map(|(_, rows)| *rows).collect();
    if tested.is_empty() {
        return Ok(None);
    }
    let family = losses(&|_, client| networks.families[client.family].clone())?;
    let served = losses(&|at, client| served(client, networks.own[at].as_ref(), networks).clone())?;
    let mean = |losses: Vec<Option<(f64, u32)>>| {
        unit * losses.iter().flatten().map(|(loss, _)| loss).sum::<f64>() / tested.len() as f64
    };
    let rows = tested.iter().map(|&rows| u64::from(rows)).sum();
    let (global, family, served) = (mean(global), mean(family), mean(served));
    Ok(Some(NetworkTested { clients: tested.len(), rows, global, family, served }))
}
