//! What a run tells of mixtures when a method has ended.

use super::{Running, Stage};
use crate::data::Client;
use crate::data::schema::{Schema, TargetSchema};
use crate::error::Result;
use crate::evaluate::mixtures::{Mixture, area_under_curve, global_row_error, mixture_errors};
use crate::evaluate::{Evaluation, OwnModels};
use crate::federation::engines::Engine;
use crate::methods::{Outcome, Serving};
use crate::mixture::{Family, Shape};
use crate::report::mixtures::judge;
use crate::report::{ClientMixture, MixtureRecord, OutlierRecord, RowsRecord};

/// The parameters of the mixture that serves a client.
fn serves<'a>(outcome: &'a Outcome, own: &'a OwnModels, client: &Client) -> Option<&'a [f64]> {
    match outcome.serving {
        Serving::Own { .. } => own.get(client.id.as_str()).map(Vec::as_slice),
        _ => outcome.models.first().map(|model| model.as_slice()),
    }
}

/// Adds how clients' mixtures compare with what was planted: components, classes of rows, outliers among clients.
pub(super) fn compare(
    stage: &Stage,
    outcome: &Outcome,
    shape: &Shape,
    scored: &mut Evaluation,
    federation: &mut dyn Engine,
) -> Result<()> {
    let population = &stage.population;
    let own: OwnModels = federation.own_models().collect();
    let parts = |params: &'_ [f64]| -> (Vec<f64>, Vec<f64>) {
        (params[shape.weights()].to_vec(), params[shape.centres()].to_vec())
    };
    let found: Vec<Option<(Vec<f64>, Vec<f64>)>> =
        population.clients.iter().map(|client| serves(outcome, &own, client).map(parts)).collect();
    let found: Vec<Option<Mixture>> = found.iter().map(|it| it.as_ref().map(|(w, c)| (&w[..], &c[..]))).collect();
    scored.extra.extend(mixture_errors(&found, &population.mixtures));
    let Some(mixture) = &outcome.mixture else { return Ok(()) };
    let classes = stage.schema.shape().classes.max(population.shape.classes);
    if classes > 0 && matches!(shape.family, Family::Gaussian(_)) {
        let error = global_row_error(outcome, federation, shape, classes, &population.outliers)?;
        scored.extra.extend(error.map(|error| ("row_error_global".to_string(), error)));
    }
    let scores: Option<Vec<f64>> = mixture.apart.iter().map(|apart| Some((*apart)?.score)).collect();
    let curve = scores.and_then(|scores| area_under_curve(&scores, &population.outliers));
    scored.extra.extend(curve.map(|area| ("outlier_auc".to_string(), area)));
    Ok(())
}

/// Which clients are unlike the others, and which were made so.
pub(super) fn outliers(stage: &Stage, outcome: &Outcome) -> Vec<OutlierRecord> {
    let record = |place: usize| {
        let apart = outcome.mixture.as_ref().and_then(|mixture| *mixture.apart.get(place)?);
        OutlierRecord {
            score: apart.map(|apart| apart.score),
            apart: apart.map(|apart| apart.components),
            verdict: None,
            planted: stage.population.outliers.get(place).copied(),
        }
    };
    let mut records: Vec<OutlierRecord> = (0..stage.population.clients.len()).map(record).collect();
    judge(&mut records, stage.model.mixture().map_or(0, |shape| shape.components));
    records
}

/// The clients that are unlike all others, by name.
pub(super) fn note(stage: &Stage, outcome: &Outcome) -> Option<String> {
    const NAMED: usize = 10;
    let records = outliers(stage, outcome);
    let named = stage.population.clients.iter().zip(&records).filter(|(_, record)| record.verdict == Some(true));
    let mut odd: Vec<(f64, &str)> =
        named.filter_map(|(client, record)| Some((record.score?, client.id.as_str()))).collect();
    odd.sort_by(|a, b| b.0.total_cmp(&a.0));
    let names: Vec<String> = odd.iter().take(NAMED).map(|(score, id)| format!("{id} ({score:.2})")).collect();
    let more = odd.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let who = match odd.len() {
        0 => return None,
        1 => "a client unlike the others, with its outlier score",
        _ => "clients unlike the others, with their outlier scores",
    };
    Some(format!("{who}: {}{more}", names.join(", ")))
}

/// Whether components have a constant in the units of the data: regressions without one get it where columns are moved
/// to be encoded.
fn has_constant(schema: &Schema, shape: &Shape) -> bool {
    matches!(shape.family, Family::Regression { intercept, .. } if intercept || schema.moves_columns())
}

/// A centre, or the coefficients of a regression, in the units of the data.
fn in_units(schema: &Schema, shape: &Shape, centre: &[f64]) -> Vec<f64> {
    let (encoded, constant) = centre.split_at(shape.columns);
    let mut decoded = encoded.to_vec();
    match shape.family {
        Family::Gaussian(_) => schema.decode(&mut decoded),
        Family::Regression { .. } => {
            let gained = schema.decode_slopes(&mut decoded);
            if has_constant(schema, shape) {
                decoded.push(constant.first().unwrap_or(&0.0) + gained);
            }
        }
    }
    decoded
}

/// The mixtures of all clients in the units of the data, and where their rows belong.
pub(super) fn record(running: &Running, outcome: &Outcome, shape: &Shape, federation: &dyn Engine) -> MixtureRecord {
    let stage = running.stage;
    let own: OwnModels = federation.own_models().collect();
    let outliers = outliers(stage, outcome);
    let all_in_units = |centres: &[f64]| -> Vec<f64> {
        centres.chunks_exact(shape.width()).flat_map(|centre| in_units(&stage.schema, shape, centre)).collect()
    };
    // Every row of every seed would be many.
    let first = running.seed == running.experiment.seeds().start;
    let with_rows = first && running.experiment.settings.text("save_models") == "all";
    let client = |(place, client): (usize, &Client)| {
        let params = serves(outcome, &own, client)?;
        let lines = stage.population.lines.get(place);
        let [train, test] = match federation.host() {
            Some(host) if with_rows => host.row_components(place as u32, params),
            _ => [Vec::new(), Vec::new()],
        };
        Some(ClientMixture {
            outlier: outliers[place],
            train: RowsRecord::new(&train, client.train.classes(), lines.map(|lines| &lines.train[..])),
            test: RowsRecord::new(&test, client.test.classes(), lines.map(|lines| &lines.test[..])),
            ..ClientMixture::new(&client.id, &params[shape.weights()], &all_in_units(&params[shape.centres()]))
        })
    };
    let mut features = stage.schema.feature_names();
    if has_constant(&stage.schema, shape) {
        features.push("intercept".into());
    }
    MixtureRecord {
        label: running.entry.label.clone(),
        seed: running.seed,
        components: shape.components,
        ordered: outcome.mixture.is_some(),
        features,
        classes: match &stage.schema.target {
            TargetSchema::Names(names) => names.clone(),
            _ => Vec::new(),
        },
        common: outcome.mixture.as_ref().map_or_else(Vec::new, |mixture| all_in_units(&mixture.common)),
        clients: stage.population.clients.iter().enumerate().filter_map(client).collect(),
    }
}
