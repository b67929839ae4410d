//! Whether networks are better than linear models: both predict the same rows, that neither was learned from.

use super::study::{HIDDEN, NetworkTable, has_columns, network};
use super::{Asked, served, test_losses};
use crate::compute::threads;
use crate::data::{Client, Shard};
use crate::error::{ErrorKind, Result};
use crate::families::{Gain, HeldOut};
use crate::federation::Params;
use crate::federation::engines::Engine;
use crate::federation::engines::local::LocalFederation;
use crate::fit::Fitted;
use crate::fit::networks::saved::{FittedClient, NetworkParams};
use crate::models::{AutoModelSettings, ModelSettings, Precision};
use crate::run::{Options, Watch};
use crate::text::significant;
use std::sync::Arc;

/// How often a network may gain once more what it gained last, before it must have caught up.
const PATIENCE: f64 = 2.0;

/// What was found.
pub(super) enum Verdict {
    /// There are too few rows.
    NotTried,
    /// Networks are not better, in a sentence.
    Stays(String),
    /// They are, by more than a standard error.
    Wins(String),
}

/// The rows of a client that both predict, and those that they may learn from.
struct Halves {
    learned: Vec<usize>,
    held_out: Vec<usize>,
}

fn divided(client: &Client, halves: &Halves) -> Client {
    let mut divided = Client::new(client.id.clone(), client.train.pick(&halves.learned));
    divided.test = client.train.pick(&halves.held_out);
    divided
}

/// Tries networks on the rows of one fold.
pub(super) fn try_networks(
    fitted: &Fitted,
    asked: &Asked,
    options: &Options,
    watch: &mut dyn Watch,
) -> Result<Verdict> {
    let (data, model) = (&fitted.data.data, &fitted.saved.model);
    let rows: usize = data.rows.iter().sum();
    let ordered = data.facts().ordered;
    // In the order of time the last fold has the most to be learned from.
    let held = if ordered { fitted.held_out.last() } else { fitted.held_out.first() };
    let Some(HeldOut { fold, served: linear }) = held else { return Ok(Verdict::NotTried) };
    let (schema, _) = data.schema.without_bends(|_| false);
    // With fewer rows than parameters a network would have to be lucky.
    if !has_columns(&schema) || rows < network(&HIDDEN, Precision::F32, schema.shape())?.layout().len() {
        return Ok(Verdict::NotTried);
    }
    let halves = |train: &Shard, id: &str| {
        let folds = fitted.folds.of_rows(train.len(), 1, id, None);
        let rows = |is: &dyn Fn(usize) -> bool| (0..folds.len()).filter(|&row| is(folds[row])).collect::<Vec<usize>>();
        let learned = if ordered { rows(&|own| own < *fold) } else { rows(&|own| own != *fold) };
        Halves { learned, held_out: rows(&|own| own == *fold) }
    };
    // Clients with rows to learn from: by their number, what serves them without the fold, and how their rows are cut.
    let members = model.clients.iter().zip(linear).map(|(&place, served)| {
        let client = &data.population.clients[place as usize];
        (place, served, halves(&client.train, &client.id))
    });
    let members: Vec<(u32, &Vec<f64>, Halves)> = members.filter(|(.., halves)| !halves.learned.is_empty()).collect();
    if members.len() < 2 {
        return Ok(Verdict::NotTried);
    }
    watch.doing("trying networks");
    let of = |clients: &[Client]| -> Vec<Client> {
        members.iter().map(|(place, _, halves)| divided(&clients[*place as usize], halves)).collect()
    };
    let columns = &fitted.saved.columns;
    let mut engine = LocalFederation::new(of(&data.population.clients), threads(options.threads)?);
    match columns.interactions.is_empty() {
        true => engine.set_model(data.model.clone())?,
        false => {
            // Linear models may have products of columns beside these.
            engine.widen(columns)?;
            engine.set_model(Arc::from(AutoModelSettings::default().build(columns.shape())?))?;
        }
    }
    let linear = members.iter().map(|(_, served, _)| Params::new(model.in_units(served)));
    let linear = test_losses(&mut engine, (0..).zip(linear).collect())?;

    let (_, table) = asked.table(&fitted.data)?;
    let clients = of(&table.clients);
    let known = table.known.as_ref().map(|known| members.iter().filter_map(|(place, ..)| known.of(*place)).collect());
    let unit = if table.shape.classes > 0 { 1.0 } else { table.target.deviation.powi(2) };
    let table = NetworkTable { clients, known, ..table };
    // What leaning on themselves gains clients with linear models is expected of networks too.
    let square = model.target.deviation.powi(2);
    let personal = square * (model.learned.errors[0] - model.learned.errors[4]).max(0.0);
    let compare = |losses: &[Option<(f64, u32)>]| Comparison::new(&linear, losses, unit);
    let (mut last, mut given_up) = (None, None);
    let mut round = 0;
    let studied = table.study(options, watch, |method, engine| {
        round += 1;
        if !method.is_past_first_look() || !method.takes_stock() || method.is_serving() {
            return Ok(true);
        }
        let (models, families) = method.so_far();
        let model = |client: u32| (client, models[families.of(client).unwrap_or(0)].clone());
        let losses = test_losses(engine, (0..table.clients.len() as u32).map(model).collect())?;
        let Some(now) = compare(&losses) else { return Ok(true) };
        let gained = last.map_or(f64::INFINITY, |last: f64| (last - now.apart.mean).max(0.0));
        last = Some(now.apart.mean);
        if now.apart.mean - personal - PATIENCE * gained > now.apart.error {
            given_up = Some((round, now));
            return Ok(false);
        }
        Ok(true)
    });
    let name = format!("A network (hidden {})", HIDDEN.map(|width| width.to_string()).join(" and "));
    let studied = match studied {
        Err(error) if error.kind() == ErrorKind::Diverged => {
            return Ok(Verdict::Stays(format!("{name} was tried, and its training diverged: the linear model stays.")));
        }
        studied => studied?,
    };
    let Some(mut studied) = studied else {
        let Some((rounds, found)) = given_up else { return Ok(Verdict::NotTried) };
        return Ok(Verdict::Stays(format!(
            "{name} was tried and given up after {rounds} rounds: the error of held-out rows was {}; the linear model stays.",
            found.words()
        )));
    };
    let networks = NetworkParams {
        global: studied.found.global.clone(),
        families: studied.found.families.clone(),
        own: studied.own,
    };
    let serving = (0..).zip(&studied.found.clients).map(|(place, client): (u32, _)| {
        let facts = FittedClient {
            rows: 0,
            family: client.family.unwrap_or(0),
            rung: client.rung,
            errors: None,
            joining: None,
            added: false,
        };
        (place, served(&facts, networks.own[place as usize].as_ref(), &networks).clone())
    });
    let losses = test_losses(&mut *studied.engine, serving.collect())?;
    let Some(found) = compare(&losses) else { return Ok(Verdict::NotTried) };
    let words = found.words();
    Ok(match -found.apart.mean > found.apart.error {
        true => Verdict::Wins(format!("{name} was tried: the error of held-out rows is {words}, and it is taken.")),
        false if found.apart.mean < 0.0 => Verdict::Stays(format!(
            "{name} was tried: the error of held-out rows is {words}, which is less than one standard error; the linear model stays."
        )),
        false => {
            Verdict::Stays(format!("{name} was tried: the error of held-out rows is {words}; the linear model stays."))
        }
    })
}

/// Networks beside linear models, over clients with rows that both predict.
#[derive(Clone, Copy)]
struct Comparison {
    /// The mean error of linear models,
    linear: f64,
    /// and by how much that of networks is above it, paired by client.
    apart: Gain,
}

impl Comparison {
    fn new(linear: &[Option<(f64, u32)>], networks: &[Option<(f64, u32)>], unit: f64) -> Option<Self> {
        let both =
            linear.iter().zip(networks).filter_map(|(linear, network)| Some((linear.as_ref()?.0, network.as_ref()?.0)));
        let both: Vec<(f64, f64)> = both.collect();
        let count = both.len() as f64;
        if count < 2.0 {
            return None;
        }
        let apart: Vec<f64> = both.iter().map(|(linear, network)| unit * network - linear).collect();
        let mean = apart.iter().sum::<f64>() / count;
        let squares: f64 = apart.iter().map(|apart| (apart - mean).powi(2)).sum();
        let apart = Gain { mean, error: (squares / (count - 1.0) / count).sqrt() };
        let linear = both.iter().map(|(linear, _)| linear).sum::<f64>() / count;
        (mean.is_finite() && linear > 0.0).then_some(Self { linear, apart })
    }

    fn words(&self) -> String {
        let percent = |value: f64| significant(100.0 * value / self.linear, 2);
        let (size, error) = (percent(self.apart.mean.abs()), percent(self.apart.error));
        format!("{size} % ± {error} {}", if self.apart.mean > 0.0 { "above" } else { "below" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_by_hand() {
        let linear = [Some((4.0, 9)), Some((6.0, 9)), None, Some((5.0, 9))];
        let networks = [Some((1.0, 9)), Some((2.5, 9)), Some((7.0, 9)), None];
        let found = Comparison::new(&linear, &networks, 2.0).unwrap();
        // 2 − 4 and 5 − 6: −1.5 ± 0.5, where linear models have 5.
        assert_eq!((found.linear, found.apart.mean, found.apart.error), (5.0, -1.5, 0.5));
        assert_eq!(found.words(), "30 % ± 10 below");
        assert!(Comparison::new(&linear[..1], &networks[..1], 1.0).is_none());
    }
}
