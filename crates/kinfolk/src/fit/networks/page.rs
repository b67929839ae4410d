//! The page of fitted networks.

use super::SavedNetworks;
use super::effects::Effect;
use super::saved::FittedClient;
use super::show;
use crate::fit::page::{About, Client, Content, MOST_TERMS, Residuals, Term, calibration, columns, picked};
use crate::fit::saved::MODEL;
use crate::methods::Intervals;
use crate::report::html::shortened;

/// The page.
pub(super) fn page(saved: &SavedNetworks) -> String {
    let model = &saved.model;
    let residuals = model.intervals.as_ref().map(|intervals| &intervals.reach);
    let residuals = residuals.filter(|reach| !reach.residuals.is_empty());
    let content = Content {
        version: env!("CARGO_PKG_VERSION"),
        target: &saved.target,
        loss: show::loss(saved),
        client: &saved.client,
        count: saved.names.len(),
        rows: model.clients.iter().map(|client| client.rows).sum(),
        families: model.families.len(),
        family_numbers: model.families.iter().map(|family| family.number).collect(),
        sentences: &model.sentences,
        columns: columns(&saved.understood),
        table: show::families(saved),
        errors: show::errors(saved),
        coverage: show::coverage(saved),
        cloud: None,
        residuals: residuals.map(|own| Residuals { step: Intervals::STEP, shares: &own.residuals, reach: own.reach }),
        calibration: calibration(model.reliability.as_ref()),
        clients: clients(saved),
        terms: terms(saved),
        curves: Vec::new(),
        effect: String::new(),
        remarks: saved.changes.iter().chain(&saved.remarks).collect(),
        about: About {
            terms: "By how much the prediction changes averaged over rows: for one unit more of a number, or if all rows were of that word. Each on its own scale.",
            errors: "Held out: by networks that were trained without the row.",
            gains: "Against a network of the client's own rows alone; above the line joining pays.",
            validated: "Held-out",
        },
        numbers: MODEL,
    };
    content.page()
}

fn clients(saved: &SavedNetworks) -> Vec<Client<'_>> {
    let unit = saved.unit();
    let in_units = |value: Option<f64>| value.and_then(|value| shortened(unit * value));
    let client = |place: usize| {
        let client: &FittedClient = &saved.model.clients[place];
        Client {
            name: &saved.names[place],
            rows: client.rows,
            family: client.family,
            // Networks have no probabilities of families, and no place among each other.
            sure: None,
            stability: None,
            place: [None; 2],
            served: saved.served_by(client),
            errors: client.errors.map(|errors| errors.map(in_units)),
            joining: if client.joining.is_some() { show::joining(client) } else { "is not known" },
            gain: in_units(client.joining.map(|gain| gain.mean)),
            gain_error: in_units(client.joining.map(|gain| gain.error)),
        }
    };
    picked(saved.names.len()).map(client).collect()
}

/// The terms whose effects differ most between families; with one family the largest ones.
fn terms(saved: &SavedNetworks) -> Vec<Term> {
    let (global, families) = (&saved.model.effects, &saved.model.families);
    let outputs = show::outputs(saved);
    let apart = |(term, output): (usize, usize)| {
        let of = |effects: &[Effect]| effects[term].mean[output];
        let from = if families.len() > 1 { of(global) } else { 0.0 };
        // Terms have different units: beside how much effects differ between rows.
        let spread = global[term].spread[output].max(of(global).abs()).max(f64::MIN_POSITIVE);
        families.iter().map(|family| (of(&family.effects) - from).abs() / spread).fold(0.0, f64::max)
    };
    let mut places: Vec<(usize, usize)> =
        (0..global.len()).flat_map(|term| outputs.iter().map(move |(output, _)| (term, *output))).collect();
    places.sort_by(|a, b| apart(*b).total_cmp(&apart(*a)));
    places.truncate(MOST_TERMS);
    let term = |(term, output): (usize, usize)| {
        let prefix = outputs.iter().find(|(place, _)| *place == output).map_or("", |(_, prefix)| prefix);
        Term {
            name: format!("{prefix}{}", global[term].term),
            families: families.iter().map(|family| [shortened(family.effects[term].mean[output]), None]).collect(),
            global: shortened(global[term].mean[output]),
        }
    };
    places.into_iter().map(term).collect()
}
