//! What the rows of clients say that the model does not know.

use super::SavedNetworks;
use super::saved::FittedClient;
use super::study::{network, scaled_rows};
use crate::compute::threads;
use crate::data::known::KnownRows;
use crate::data::numbers::convert;
use crate::data::{Client, Features, Shard, Targets};
use crate::error::Result;
use crate::federation::engines::local::LocalFederation;
use crate::federation::work::Train;
use crate::federation::{Ask, Federation, Gather, Params, Phase, Recipients};
use crate::fit::Input;
use crate::fit::newcomers::are_there;
use crate::methods::NetworkRung;
use crate::models::Precision;
use crate::training::Plan;
use std::collections::{BTreeMap, HashMap};

/// Rows of a new client on which a network is fine-tuned, at most: a table may be larger than the memory.
const MOST_ROWS: usize = 2000;

/// A client by its rows with a target.
#[derive(Debug, Clone)]
pub(super) struct Newcomer {
    pub(super) rows: usize,
    /// Its mean loss by each family's model.
    pub(super) losses: Vec<f64>,
    /// The probabilities of the families.
    pub(super) probabilities: Vec<f64>,
    pub(super) family: usize,
    /// What serves it, and a model of its own if that does.
    pub(super) rung: NetworkRung,
    pub(super) own: Option<Params>,
}

impl Newcomer {
    pub(super) fn client(&self) -> FittedClient {
        let (rows, family, rung) = (self.rows, self.family, self.rung);
        FittedClient { rows, family, rung, errors: None, joining: None, added: true }
    }
}

#[derive(Default)]
struct Gathered {
    rows: usize,
    losses: Vec<f64>,
    x: Vec<f64>,
    values: Vec<f64>,
    classes: Vec<u32>,
}

/// What is said of every client with a target that the model does not know.
pub(super) fn newcomers(saved: &SavedNetworks, table: Input) -> Result<BTreeMap<String, Newcomer>> {
    let is_new = |client: &str| saved.place(client).is_none();
    match are_there(table, saved.known_columns(), is_new)? {
        true => by_their_rows(saved, table, is_new),
        false => Ok(BTreeMap::new()),
    }
}

/// What is said of clients with a target that are asked for; those that the model knows get no model of their own.
pub(super) fn by_their_rows(
    saved: &SavedNetworks,
    table: Input,
    is_asked: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, Newcomer>> {
    let network = saved.network()?;
    let mut found: BTreeMap<String, Gathered> = BTreeMap::new();
    let all: Vec<usize> = (0..saved.columns.shape().columns).collect();
    let fine_tunes = matches!(saved.model.default, NetworkRung::Personal(_));
    KnownRows::read_ahead(table, saved.known_columns(), |batch| {
        let asked: Vec<usize> = (0..batch.clients.len()).filter(|&row| is_asked(&batch.clients[row])).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let rows = batch.encoded(&saved.columns, 0..batch.clients.len())?;
        let classes = saved.classes.len();
        let has_target = |row: &usize| match (rows.values(), rows.classes()) {
            (Some(values), _) => values[*row].is_finite(),
            (None, Some(found)) => (found[*row] as usize) < classes,
            (None, None) => false,
        };
        let asked: Vec<usize> = asked.into_iter().filter(has_target).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let rows = scaled_rows(&rows.pick(&asked), &all, saved.model.target)?;
        let families = &saved.networks_of.families;
        let expected = families.iter().map(|family| network.expectations(family, &rows)).collect::<Result<Vec<_>>>()?;
        let (columns, width) = (rows.columns(), classes.max(1));
        let mut buffer = Vec::new();
        let x = convert::<f64>(&rows, &mut buffer);
        for (row, &place) in asked.iter().enumerate() {
            let own = found.entry(batch.clients[place].clone()).or_default();
            own.losses.resize(families.len(), 0.0);
            own.rows += 1;
            for (sum, expected) in own.losses.iter_mut().zip(&expected) {
                let expected = &expected[row * width..(row + 1) * width];
                *sum += match (rows.values(), rows.classes()) {
                    (Some(values), _) => (values[row] - expected[0]).powi(2),
                    (None, Some(classes)) => -expected[classes[row] as usize].max(f64::MIN_POSITIVE).ln(),
                    (None, None) => 0.0,
                };
            }
            if fine_tunes && own.rows <= MOST_ROWS && saved.place(&batch.clients[place]).is_none() {
                own.x.extend_from_slice(&x[row * columns..(row + 1) * columns]);
                own.values.extend(rows.values().map(|values| values[row]));
                own.classes.extend(rows.classes().map(|classes| classes[row]));
            }
        }
        Ok(())
    })?;
    let mut kept = Vec::new();
    let mut newcomers = BTreeMap::new();
    for (name, own) in found {
        let losses: Vec<f64> = own.losses.iter().map(|sum| sum / own.rows.max(1) as f64).collect();
        let probabilities = probabilities(saved, &losses, own.rows as f64);
        let family = crate::families::most_probable(&probabilities);
        let rung = match saved.model.default {
            rung @ (NetworkRung::Global | NetworkRung::Family) => rung,
            // Without a start to train from, the family's model stands in.
            NetworkRung::Alone(_) => NetworkRung::Family,
            rung @ NetworkRung::Personal(_) => rung,
        };
        if !own.x.is_empty() {
            let targets =
                if own.classes.is_empty() { Targets::Values(own.values) } else { Targets::Classes(own.classes) };
            let rows = Shard::new(Features::F64 { columns: all.len(), values: own.x }, targets)?;
            kept.push((family, Client::new(name.clone(), rows)));
        }
        newcomers.insert(name, Newcomer { rows: own.rows, losses, probabilities, family, rung, own: None });
    }
    for (name, params) in fine_tuned(saved, kept)? {
        if let Some(newcomer) = newcomers.get_mut(&name) {
            newcomer.own = Some(params);
        }
    }
    for newcomer in newcomers.values_mut().filter(|newcomer| newcomer.own.is_none()) {
        if matches!(newcomer.rung, NetworkRung::Personal(_)) {
            newcomer.rung = NetworkRung::Family;
        }
    }
    Ok(newcomers)
}

/// The probabilities of the families by mean losses of so many rows. Rows of one client are more alike than others, which makes them count less.
fn probabilities(saved: &SavedNetworks, losses: &[f64], rows: f64) -> Vec<f64> {
    let families = &saved.model.families;
    let counting = families.iter().map(|family| family.fit.effective(rows)).fold(rows, f64::min);
    // Squared residuals are twice the variance times a log likelihood.
    let unit = match saved.classes.is_empty() {
        true => 2.0 * families.iter().map(|family| family.share * family.fit.mean).sum::<f64>().max(f64::MIN_POSITIVE),
        false => 1.0,
    };
    let logarithm = |(family, loss): (&super::saved::NetworkFamily, &f64)| family.share.ln() - counting * loss / unit;
    let logarithms: Vec<f64> = families.iter().zip(losses).map(logarithm).collect();
    let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shares: Vec<f64> = logarithms.iter().map(|value| (value - largest).exp()).collect();
    let total: f64 = shares.iter().sum();
    match total.is_finite() && total > 0.0 {
        true => shares.iter().map(|share| share / total).collect(),
        false => families.iter().map(|family| family.share).collect(),
    }
}

/// The families' networks, fine-tuned by clients' rows as in the fit.
fn fine_tuned(saved: &SavedNetworks, kept: Vec<(usize, Client)>) -> Result<HashMap<String, Params>> {
    let NetworkRung::Personal(amount) = saved.model.default else { return Ok(HashMap::new()) };
    if kept.is_empty() {
        return Ok(HashMap::new());
    }
    let model = network(&saved.model.hidden, Precision::F32, saved.columns.shape())?;
    let (families, clients): (Vec<usize>, Vec<Client>) = kept.into_iter().unzip();
    let names: Vec<String> = clients.iter().map(|client| client.id.clone()).collect();
    let mut federation = LocalFederation::new(clients, threads(0)?);
    federation.set_model(model)?;
    let mut found = HashMap::new();
    let plan = Plan { amount, ..saved.model.plan.clone() };
    /// Clients whose models are held at once.
    const AT_ONCE: usize = 1024;
    for begin in (0..names.len()).step_by(AT_ONCE) {
        let mut ask = Ask::new(Phase::Train, saved.networks_of.families.clone(), Gather::Each);
        let mut orders = Vec::new();
        for family in 0..saved.model.families.len() {
            let block = begin..names.len().min(begin + AT_ONCE);
            let members: Vec<u32> =
                block.filter(|&place| families[place] == family).map(|place| place as u32).collect();
            if !members.is_empty() {
                orders.push(ask.order(Recipients::list(members), Train::from_model(family, plan.clone())));
            }
        }
        let answers = federation.ask(&ask)?;
        for order in orders {
            let answer = answers.of(order);
            for (place, &client) in answer.clients.iter().enumerate() {
                let params = answer.vector(place).to_vec();
                if params.iter().all(|value| value.is_finite()) {
                    found.insert(names[client as usize].clone(), Params::new(params));
                }
            }
        }
    }
    Ok(found)
}
