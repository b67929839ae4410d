//! From an experiment to a run folder: data, federation, method, rounds, findings, records, checkpoints.
//!
//! | file | what it does |
//! |---|---|
//! | `seed.rs` | prepares the data of a seed: clients, schema, model |
//! | `method.rs` | follows one method through its rounds to its end |
//! | `models.rs` | writes its models |
//! | `files.rs`, `folder.rs` | what is in a run folder, how it is protected, and checkpoints |
//! | `venue.rs` | where the clients are |
//! | `disclosures.rs` | what clients would tell, before anything is sent |
//! | `options.rs` | how to run, and who watches |

mod columns;
mod disclosures;
#[doc(hidden)]
pub mod files;
mod folder;
mod hidden;
mod method;
mod models;
mod options;
pub(crate) mod seed;
#[doc(hidden)]
pub mod venue;

#[doc(hidden)]
pub use disclosures::Disclosures;
pub use options::{Options, Unwatched, Watch, checkpoint_every};

use crate::data::schema::Schema;
use crate::disk::write_atomically;
use crate::error::{Error, ErrorKind, Result};
use crate::evaluate;
use crate::experiment::{Draft, Experiment, MethodEntry, SaveModels};
use crate::federation::ClientInfo;
use crate::federation::engines::Engine;
use crate::groups::Groups;
use crate::methods::{Method, Outcome};
use crate::num::{instructions, median};
use crate::over::Over;
use crate::panics::contained;
use crate::record::{ClientRecord, MethodRecord, MethodSummary, Record, RepeatSummary, RoundRecord, Summary};
use folder::{Folder, Resumed};
use method::{MethodRun, questions};
use seed::{Above, SeedData};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use venue::{InProcess, Venue};

type Records = BTreeMap<(usize, u64), MethodRecord>;

/// Runs an experiment and returns its record, in which methods that diverged, failed or panicked are included. An error
/// means that the input was at fault or a file could not be written.
pub fn run(experiment: &Experiment, options: &Options, watch: &mut dyn Watch) -> Result<Record> {
    run_at(&mut InProcess::new(options)?, experiment, options, watch)
}

impl Draft {
    /// Runs the experiment on all cores, in memory.
    pub fn run(self) -> Result<Record> {
        run(&self.check()?, &Options::default(), &mut Unwatched)
    }
}

/// The same, with the clients of a venue.
pub fn run_at(
    venue: &mut dyn Venue,
    experiment: &Experiment,
    options: &Options,
    watch: &mut dyn Watch,
) -> Result<Record> {
    instructions()?;
    if options.resume && experiment.privacy.protection.budget().is_some() {
        let message = "privacy.level: a run that hides rows does not go on: what is asked again is spent again";
        return Err(Error::new(ErrorKind::Unsupported, message).hint("start anew in another folder, and count both"));
    }
    let mut folder =
        options.folder.as_deref().map(|path| Folder::open(path, experiment, options.resume)).transpose()?;
    if let Some(record) = folder.as_mut().and_then(|folder| folder.finished.take()) {
        return Ok(record);
    }
    let folder = folder.as_ref();
    let mut records = Records::new();
    let mut about_data = serde_json::Value::Null;
    for seed in experiment.seeds() {
        watch.doing("preparing the data");
        let before = folder.map(|folder| folder.read(&folder.met(seed), "")).transpose()?.flatten();
        let before: Option<Vec<u8>> = before.map(|before: Resumed<Vec<u8>>| before.value);
        let data = SeedData::prepare(experiment, seed, venue, options.start.as_ref(), before.as_deref())?;
        data.check_weights()?;
        if options.resume {
            data.check_resumable()?;
        }
        if seed == experiment.seeds().start {
            plan(experiment, &data, watch)?;
            about_data = data.about(experiment);
            folder.map_or(Ok(()), |folder| folder.begin(experiment, &data.schema))?;
        }
        if let (Some(folder), Some(met), None) = (folder, &data.met, &before) {
            folder.write(&folder.met(seed), "", met)?;
        }
        let mut findings = evaluate::findings();
        for (place, entry) in experiment.methods.iter().enumerate() {
            let done = folder.map(|folder| folder.read(&folder.done(&entry.label, seed), &data.origin));
            let done: Option<Resumed<MethodRecord>> = done.transpose()?.flatten();
            let mut record = match done {
                Some(Resumed { value: mut record, note }) => {
                    record.summary.notes.extend(note);
                    record
                }
                None => {
                    let (data, findings) = (&data, &findings[..]);
                    let groups = &|label: &str| found_groups(experiment, &records, label, seed);
                    let over = &|label: &str| found_models_of(experiment, &records, label, seed);
                    let above = Above { groups, over };
                    let run = MethodRun { experiment, entry, seed, data, options, folder, findings, above };
                    let record = run.to_the_end(watch)?;
                    watch.finished(&record.summary, &entry.label);
                    record
                }
            };
            findings.iter_mut().for_each(|finding| finding.learn(&mut record));
            records.insert((place, seed), record);
        }
    }
    let record = gather(experiment, about_data, records)?;
    folder.map_or(Ok(()), |folder| folder.finish(&record))?;
    Ok(record)
}

/// Makes every method once before any runs, so that no fault shows up hours later, and announces how much each will ask. A
/// fault that only another seed shows, or a bug, fails that method alone.
fn plan(experiment: &Experiment, data: &SeedData, watch: &mut dyn Watch) -> Result<()> {
    let (mut faults, mut planned) = (Vec::new(), Vec::new());
    for entry in &experiment.methods {
        match contained(|| Ok(questions(&*data.method(entry, experiment.seeds().start, None)?, experiment))) {
            Ok(questions) => planned.push((&entry.label, questions)),
            Err(fault) if fault.kind() == ErrorKind::Internal => {}
            Err(fault) => faults.push(fault),
        }
    }
    crate::settings::finish(faults)?;
    let seeds = experiment.seeds().count();
    planned.iter().for_each(|(label, questions)| watch.planned(label, *questions, seeds));
    Ok(())
}

/// The clusters that an earlier method found on this seed, in this run or before it was resumed.
fn found_groups(experiment: &Experiment, records: &Records, label: &str, seed: u64) -> Result<Groups> {
    let record = record_of(experiment, records, label, seed)?;
    Groups::found_by(label, &record.summary.status, record.clients.iter().map(|client| client.cluster))
}

/// The clusters and models that it found.
fn found_models_of(experiment: &Experiment, records: &Records, label: &str, seed: u64) -> Result<Over> {
    let record = record_of(experiment, records, label, seed)?;
    Over::found_by(label, &record.summary.status, record.over.as_ref())
}

fn record_of<'r>(experiment: &Experiment, records: &'r Records, label: &str, seed: u64) -> Result<&'r MethodRecord> {
    let place = experiment.methods.iter().position(|entry| entry.label == label);
    let record = place.and_then(|place| records.get(&(place, seed)));
    record.ok_or_else(|| Error::settings(format!("it goes on from method {label}, which has not run")))
}

fn gather(experiment: &Experiment, data: serde_json::Value, records: Records) -> Result<Record> {
    let mut all = Record::default();
    let mut repeats: Vec<Vec<RepeatSummary>> = vec![Vec::new(); experiment.methods.len()];
    for ((place, _), record) in records {
        repeats[place].push(record.summary);
        all.rounds.extend(record.rounds);
        all.clients.extend(record.clients);
        all.mixtures.extend(record.mixture);
        all.comparisons.extend(record.comparison);
        all.models.extend(record.models);
    }
    let summarise = |(entry, repeats): (&MethodEntry, Vec<RepeatSummary>)| {
        let settings = serde_json::to_value(&entry.settings).unwrap_or_default();
        MethodSummary::of(&entry.label, entry.kind.name, settings, repeats)
    };
    all.summary = Summary {
        schema: 1,
        name: experiment.name().to_string(),
        seed: experiment.seeds().start,
        version: env!("CARGO_PKG_VERSION").to_string(),
        cpu: instructions()?.to_string(),
        data,
        methods: experiment.methods.iter().zip(repeats).map(summarise).collect(),
    };
    Ok(all)
}
