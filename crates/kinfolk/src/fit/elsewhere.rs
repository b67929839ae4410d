//! Clients on other machines: rows and clients' own models stay there.
//!
//! The model that is returned has the families and everything about all clients in common; of single clients, what was decided. Every
//! machine is sent it at the end, makes the models of its own clients from their rows, and writes a folder that is whole.

use super::newcomers::at_home;
use super::{FitSettings, Fitted, ModelChoice, Saved, fit_at};
use crate::data::files::Notation;
use crate::data::options::Task;
use crate::data::{Client, TableSettings};
use crate::error::{Error, Result};
use crate::families::Covariance;
use crate::federation::engines::remote::{Delivery, Line, MessageKind, Transport};
use crate::run::venue::Elsewhere;
use crate::run::{Options, Watch};
use crate::settings::{Auto, Declared, Settings, finish, section, settings};
use crate::text::counted;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

settings! {
    /// The keys of `[fit]`, in the place of `[data]`, `[model]` and `[[method]]` of an experiment.
    pub struct FitTable {
        /// the column that names the client
        client: String,
        /// the column to be predicted
        target: String,
        /// the column of families that are known
        group: Option<String>,
        /// columns to leave out
        drop: Vec<String> = [],
        /// columns of numbers that are names
        words: Vec<String> = [],
        /// how many families; "auto": as many as are found
        families: Auto<usize> [1..=1 << 20] = "auto",
        /// whether numbers may bend, where that predicts better
        curves: bool = true,
        /// whether the two strongest columns may act otherwise with other values of other columns, where that predicts better
        interactions: bool = true,
        /// how coefficients vary between clients; "auto": what cross-validation finds best
        covariance: Auto<Covariance> = "auto",
        /// try no other covariances of clients, and no interactions
        quick: bool = false,
        /// share of a client's rows kept for testing, as the machines have it
        test_fraction: f64 [0.0..=0.9] = 0.2,
    }
}

impl FitSettings {
    /// The settings of a file with a table `[fit]`, and what the fit is called.
    pub fn of_file(mut file: toml::Table) -> Result<(String, Self)> {
        let mut faults = Vec::new();
        let table = section("fit", file.remove("fit"), &mut faults);
        let settings = Settings::check("fit", FitTable::SETTINGS, table, &mut faults);
        let name = match file.remove("name") {
            None => "fit".to_string(),
            Some(toml::Value::String(name)) if !name.is_empty() => name,
            Some(other) => {
                faults.push(Error::settings(format!("name: got {other}, want a text")));
                String::new()
            }
        };
        let seed = match file.remove("seed") {
            None => 0,
            Some(toml::Value::Integer(seed)) if seed >= 0 => seed as u64,
            Some(other) => {
                faults.push(Error::settings(format!("seed: got {other}, want a whole number from 0")));
                0
            }
        };
        let unknown =
            |key: &String| Error::settings(format!("{key}: not known beside [fit], want name, seed and [fit]"));
        faults.extend(file.keys().map(unknown));
        finish(faults)?;
        let FitTable {
            client,
            target,
            group,
            drop,
            words,
            families,
            curves,
            interactions,
            covariance,
            quick,
            test_fraction,
        } = FitTable::of(&settings);
        let (target, task) = (Some(target), Task::Words);
        let table =
            TableSettings { client, target, group, drop, words, test_fraction, task, ..TableSettings::default() };
        let (families, covariance) = (families.given(), covariance.given());
        let (straight, additive) = (!curves, !interactions);
        let settings = Self { table, families, straight, additive, covariance, quick, seed, ..Self::default() };
        Ok((name, settings))
    }
}

/// Fits the clients of other machines; `name` is what it is called there. The path of the table is known to the machines alone, which also
/// divide their rows: `test_fraction` is theirs.
pub fn fit_elsewhere(
    name: &str,
    line: &Line,
    mut settings: FitSettings,
    options: &Options,
    watch: &mut dyn Watch,
    told: &mut dyn FnMut(&[String]),
) -> Result<Saved> {
    if settings.model == ModelChoice::Network {
        let message = "model: networks are not fitted on other machines, want linear models";
        return Err(Error::settings(message).hint("an experiment with the method `auto` trains networks there"));
    }
    settings.table.path = "on each machine".into();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted_line: Box<dyn Transport> = Box::new(Counted { line: line.clone(), asked: asked.clone() });
    let mut venue = Elsewhere::new(Arc::new(Mutex::new(counted_line)));
    let Fitted { saved, mut engine, left_out, .. } = fit_at(&mut venue, settings.checked(true)?, options, watch, told)?;
    watch.doing("telling the machines");
    engine.settle(name, &|places| saved.only(places).file(super::saved::MODEL))?;
    let mut saved = saved.without_own_models();
    let lost = |client: &String| format!("client {client} is left out: not all that was asked of it was answered");
    saved.remarks.extend(left_out.iter().map(lost));
    saved.remarks.extend(engine.notes());
    saved.remarks.push(format!("the machines were asked {}", counted(asked.load(Ordering::Relaxed), "question")));
    Ok(saved)
}

/// Makes the models of a machine's clients, by their encoded rows, and writes the folder of a model that knows them: what a machine does
/// with the model that [`fit_elsewhere`] sends.
pub fn settle(model: &str, clients: &[Client], notation: &Notation, folder: &Path) -> Result<usize> {
    let mut saved = Saved::of_text(model)?;
    let mut found = at_home(&saved, clients)?;
    for (name, client) in saved.names.iter().zip(&mut saved.model.learned.clients) {
        let own = found.remove(name).ok_or_else(|| Error::data(format!("client {name} is not here")))?;
        *client = own.client;
    }
    saved.notation = notation.clone();
    std::fs::create_dir_all(folder).map_err(|error| Error::io("creating", folder, error))?;
    saved.write(folder)?;
    Ok(saved.names.len())
}

/// A way to machines that counts what they are asked.
struct Counted {
    line: Line,
    asked: Arc<AtomicUsize>,
}

impl Counted {
    fn transport<T>(&self, with: impl FnOnce(&mut dyn Transport) -> T) -> T {
        with(&mut **self.line.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Transport for Counted {
    fn machines(&mut self) -> Result<Vec<u64>> {
        self.transport(|line| line.machines())
    }

    fn name(&mut self, number: u64) -> String {
        self.transport(|line| line.name(number))
    }

    fn exchange(&mut self, messages: Vec<(u64, Vec<u8>)>, kind: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.transport(|line| line.exchange(messages, kind))
    }
}
