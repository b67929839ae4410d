//! A method's final models, as files.

use super::files::MODELS;
use super::*;
use crate::disk::write_all_atomically;
use crate::evaluate::{Evaluation, Served};
use crate::federation::Params;
use crate::methods::Serving;
use crate::modelfile::{self, CLIENT_FILES, ClientNames};
use crate::record::FoundModels;

/// Has clients elsewhere save their own models, if such models are to be written.
pub(super) fn keep_models(run: &MethodRun, outcome: &Outcome, federation: &mut dyn Engine) -> Result<()> {
    match &outcome.serving {
        Serving::Own { stamps, .. } if run.experiment.top.save_models == SaveModels::All => {
            federation.keep_models(run.experiment.name(), stamps)
        }
        _ => Ok(()),
    }
}

pub(super) fn write_models(run: &MethodRun, folder: &Path, outcome: &Outcome, federation: &dyn Engine) -> Result<()> {
    let wanted = run.experiment.top.save_models;
    if wanted == SaveModels::None {
        return Ok(());
    }
    /// Bytes of files that may wait in memory to be written together.
    const TOGETHER: usize = 64 << 20;
    let (model, label) = (&run.data.model, &run.entry.label);
    let place = folder.join(MODELS).join(label).join(run.seed.to_string());
    let mut waiting: Vec<(String, Vec<u8>)> = Vec::new();
    let mut size = 0;
    let mut write = |name: String, params: &[f64]| {
        let about = [("label", label.clone()), ("seed", run.seed.to_string()), ("model", name.clone())];
        let bytes = modelfile::bytes(params, model.layout(), model.precision(), &about)?;
        size += bytes.len();
        waiting.push((format!("{name}.safetensors"), bytes));
        if size < TOGETHER {
            return Ok(());
        }
        size = 0;
        write_together(&place, std::mem::take(&mut waiting))
    };
    let mut names = ClientNames::default();
    match &outcome.serving {
        Serving::Given(given) if !outcome.clustered => {
            let clients = run.data.population.clients.iter().zip(given.each());
            for (client, model) in clients.filter_map(|(client, given)| Some((client, (*given)?))) {
                write(names.of(&client.id), &outcome.models[model])?;
            }
        }
        _ => {
            let several = outcome.clustered || outcome.models.len() > 1;
            for (cluster, params) in outcome.models.iter().enumerate() {
                write(if several { format!("cluster-{cluster}") } else { "global".into() }, params)?;
            }
        }
    }
    if let Some(global) = &outcome.global {
        write("global".into(), global)?;
    }
    // A client's state is not always the model that serves it: it may be where it began.
    if wanted == SaveModels::All && matches!(outcome.serving, Serving::Own { .. }) {
        for (id, params) in federation.own_models().into_iter().flatten() {
            write(names.of(id), &params)?;
        }
    }
    waiting.extend(names.table()?.map(|table| (CLIENT_FILES.to_string(), table)));
    write_together(&place, waiting)
}

/// The models themselves, with what is needed to predict by them.
pub(super) fn found_models(
    run: &MethodRun,
    outcome: &Outcome,
    scored: &Evaluation,
    federation: &dyn Engine,
) -> FoundModels {
    let data = run.data;
    let own = match &outcome.serving {
        Serving::Own { .. } => federation.own_models().unwrap_or_default(),
        _ => Vec::new(),
    };
    let only = (outcome.models.len() == 1).then_some(0);
    let given = match &outcome.serving {
        Serving::Given(given) => Some(given),
        _ => None,
    };
    let served =
        |(place, served): (usize, &Served)| given.and_then(|given| given.each()[place]).or(served.cluster).or(only);
    FoundModels {
        label: run.entry.label.clone(),
        seed: run.seed,
        clients: data.population.clients.iter().map(|client| client.id.clone()).collect(),
        assignment: scored.clients.iter().enumerate().map(served).collect(),
        models: outcome.models.clone(),
        own: own.into_iter().map(|(id, params)| (id.to_string(), Params::new(params))).collect(),
        model: data.model.clone(),
        schema: data.schema.clone(),
    }
}

/// Writes files, if any, into a folder, which is created.
fn write_together(place: &Path, files: Vec<(String, Vec<u8>)>) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    // A full disk concerns all methods.
    let made = std::fs::create_dir_all(place).map_err(|error| Error::io("creating", place, error));
    made.and_then(|()| write_all_atomically(place, files)).map_err(Error::ending_the_run)
}
