//! From a table of clients to a model that is taken into use: fit, predict, assign, show.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | reads a table, asks its clients, learns ([`fit`]) |
//! | `saved.rs` | what was fitted, and its folder |
//! | `fitted.rs` | a folder's model, of whichever kind it is |
//! | `coefficients.rs` | coefficients in the table's own units |
//! | `predict.rs` | new rows: predictions with intervals, or probabilities of classes |
//! | `serving.rs` | what serves their clients |
//! | `output.rs` | where predictions go |
//! | `newcomers.rs` | what the rows of new clients say |
//! | `assign.rs` | clients by new rows: their family, whether they fit any; adding new ones |
//! | `interactions.rs` | products of the strongest columns with the others |
//! | `elsewhere.rs` | the same with clients on other machines |
//! | `tested.rs` | errors on rows that were kept for testing |
//! | `mixtures/` | all of it without a target: the kinds of rows there are, and who has how many of which |
//! | `networks/` | all of it by networks, and whether these are better |
//! | `refit.rs` | clients that are fitted again: the same families, and what moved |
//! | `show.rs`, `page.rs` | what was found, in words and tables, and as a page |

mod assign;
mod coefficients;
mod elsewhere;
mod fitted;
mod interactions;
mod mixtures;
mod networks;
mod newcomers;
mod output;
mod page;
mod predict;
mod refit;
mod saved;
mod serving;
mod show;
mod tested;

pub use crate::data::files::Input;
#[cfg(feature = "parquet")]
pub use crate::data::files::Records;
pub use assign::{Assigned, Assignments, add, assign};
pub use elsewhere::{fit_elsewhere, settle};
pub use fitted::FittedModel;
#[cfg(feature = "parquet")]
pub use mixtures::fit_mixture_records;
pub use mixtures::{
    ComponentsPredicted, MIXTURE_FILES, SavedMixture, ShownComponent, ShownMixture, assign_by_components, fit_mixture,
    predict_component_batches, predict_components,
};
#[cfg(feature = "parquet")]
pub use networks::fit_model_records;
pub use networks::{NETWORK_FILES, NetworkTested, SavedNetworks, ShownNetworkFamily, ShownNetworks, fit_model};
pub use output::Format;
pub use predict::{PredictedRows, Predictions, predict, predict_batches};
pub use refit::follow;
pub use saved::{FILES, Saved};
pub use show::{Shown, show, show_client, show_family};

use crate::data::TableSettings;
use crate::data::options::{Missing, Task};
use crate::data::understood::{self, Understood};
use crate::error::{Error, Result, option};
use crate::experiment::Experiment;
use crate::families::{self, Covariance, HeldOut, Response, Wanted};
use crate::federation::engines::Engine;
use crate::federation::transforms::Transforms;
use crate::federation::work::Folds;
use crate::groups::Groups;
use crate::methods::room::{MethodLedger, MissingRule, Room};
use crate::methods::{AutoSettings, Study};
use crate::models::AutoModelSettings;
use crate::run::seed::SeedData;
use crate::run::venue::{InProcess, Venue};
use crate::run::{Options, Watch};
use serde::{Deserialize, Serialize};
use tested::test_errors;

/// Which models are fitted to a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelChoice {
    /// Linear models, or networks where these are better by more than one standard error.
    #[default]
    Auto,
    /// Models that are linear but for a link.
    Linear,
    /// Networks.
    Network,
}

/// What is fitted.
#[derive(Debug, Clone, Default)]
pub struct FitSettings {
    /// The table.
    pub table: TableSettings,
    /// The models; [`fit`] has linear ones only, [`fit_model`] all.
    pub model: ModelChoice,
    /// How many families; without, as many as are found.
    pub families: Option<usize>,
    /// How many components, where there is no target; without, as many as are found.
    pub components: Option<usize>,
    /// Whether missing values of columns are an error, instead of being filled.
    pub refuse_missing: bool,
    /// Whether numbers enter as they are, without curves.
    pub straight: bool,
    /// Whether there are no products of columns.
    pub additive: bool,
    /// How coefficients vary between clients; without, what cross-validation finds best.
    pub covariance: Option<Covariance>,
    /// Whether no other covariances of clients and no products of columns are tried.
    pub quick: bool,
    /// The seed of all draws.
    pub seed: u64,
}

/// What is asked for beside client, target and seed, as a model keeps it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FitOptions {
    group: Option<String>,
    time: Option<String>,
    part: Option<String>,
    drop: Vec<String>,
    words: Vec<String>,
    families: Option<usize>,
    refuse_missing: bool,
    straight: bool,
    #[serde(default)]
    additive: bool,
    covariance: Option<Covariance>,
    quick: bool,
    #[serde(default)]
    model: ModelChoice,
}

impl FitSettings {
    /// The settings that a model was fitted with, for another table of its clients. Linear models stay linear, and networks networks.
    pub fn again(fitted: &FittedModel, path: String) -> Result<Self> {
        match fitted {
            FittedModel::Families(saved) => {
                let weight = saved.weight.as_ref().map(|(column, _)| column.clone());
                let options = FitOptions { model: ModelChoice::Linear, ..saved.options.clone() };
                let (client, target) = (saved.client.clone(), saved.target.clone());
                Ok(Self::of_options(options, [path, client, target], !saved.classes.is_empty(), weight, saved.seed))
            }
            FittedModel::Networks(saved) => {
                let (client, target) = (saved.client.clone(), saved.target.clone());
                let options = saved.options.clone();
                Ok(Self::of_options(options, [path, client, target], !saved.classes.is_empty(), None, saved.seed))
            }
            FittedModel::Mixture(_) => Err(without_target()),
        }
    }

    fn of_options(
        options: FitOptions,
        [path, client, target]: [String; 3],
        has_classes: bool,
        weight: Option<String>,
        seed: u64,
    ) -> Self {
        let target = Some(target);
        let FitOptions {
            group,
            time,
            part,
            drop,
            words,
            families,
            refuse_missing,
            straight,
            additive,
            covariance,
            quick,
            model,
        } = options;
        // The target stays what it was.
        let task = if has_classes { Task::Classification } else { Task::Regression };
        let table = TableSettings {
            path,
            client,
            target,
            group,
            time,
            part,
            weight,
            drop,
            words,
            task,
            ..TableSettings::default()
        };
        Self { table, model, families, refuse_missing, straight, additive, covariance, quick, seed, ..Self::default() }
    }

    fn options(&self) -> FitOptions {
        let TableSettings { group, time, part, drop, words, .. } = self.table.clone();
        let Self { families, refuse_missing, straight, additive, covariance, quick, model, .. } = *self;
        FitOptions {
            group,
            time,
            part,
            drop,
            words,
            families,
            refuse_missing,
            straight,
            additive,
            covariance,
            quick,
            model,
        }
    }

    /// The settings with what every fit has in common.
    fn checked(mut self, keeps_test_rows: bool) -> Result<Self> {
        if self.table.target.is_none() {
            return Err(Error::settings("target: got none, want the column to be predicted"));
        }
        if self.components.is_some() {
            return Err(
                Error::settings("components: these are for tables without a target").hint("leave one of them out")
            );
        }
        self.table.curves = !self.straight;
        self.table.means_alone = true;
        self.common(keeps_test_rows)?;
        Ok(self)
    }

    /// What fits with and without a target have in common.
    fn common(&mut self, keeps_test_rows: bool) -> Result<()> {
        let table = &mut self.table;
        table.missing = if self.refuse_missing { Missing::Refuse } else { Missing::Fill };
        if self.families.is_some() && table.group.is_some() {
            return Err(Error::settings("families: the groups are known already").hint("leave one of them out"));
        }
        if !keeps_test_rows && table.part.is_none() && table.time.is_none() {
            // Errors are cross-validated: no row is kept from the model.
            table.test_fraction = 0.0;
        }
        Ok(())
    }
}

/// Fits the clients of a table, all cores at work. `told` is handed what was understood of the columns, before the work begins.
pub fn fit(
    settings: FitSettings,
    options: &Options,
    watch: &mut dyn Watch,
    told: &mut dyn FnMut(&[String]),
) -> Result<Saved> {
    let fitted = fit_at(&mut InProcess::new(options)?, settings.checked(false)?, options, watch, told);
    fitted.map(Fitted::here).map_err(|error| error.reworded(with_options))
}

/// The same for rows in memory, whatever file the settings name: the same model as from a file with these rows.
#[cfg(feature = "parquet")]
pub fn fit_records(
    records: Records,
    settings: FitSettings,
    options: &Options,
    watch: &mut dyn Watch,
    told: &mut dyn FnMut(&[String]),
) -> Result<Saved> {
    let mut settings = settings.checked(false)?;
    settings.table.path = Input::Memory(&records).path().display().to_string();
    let table = settings.table.clone();
    let populate = move |_: &Experiment, seed| crate::data::table::build_from(Input::Memory(&records), &table, seed);
    let fitted = fit_at(&mut InProcess::of(options, populate)?, settings, options, watch, told);
    fitted.map(Fitted::here).map_err(|error| error.reworded(with_options))
}

/// A message about settings of a table as one about options.
fn with_options(message: &str) -> String {
    let mut message = message.replace("data.path: ", "");
    for name in ["client", "target", "group", "time", "part", "weight", "drop", "words"] {
        message = message.replace(&format!("data.{name} = [\""), &format!("{} ", option(name)));
        message = message.replace(&format!("data.{name}"), &option(name));
    }
    message.replace("\"]", "")
}

/// What was fitted, the clients it was fitted to, and those whose answers were of no use.
struct Fitted {
    saved: Saved,
    engine: Box<dyn Engine>,
    left_out: Vec<String>,
    data: Prepared,
    /// What folds were predicted with, by models that were learned without them.
    held_out: Vec<HeldOut>,
    folds: Folds,
}

impl Fitted {
    /// With clients in this process.
    fn here(mut self) -> Saved {
        let too_large =
            |client: &String| format!("client {client} is left out: its numbers are too large to be squared");
        self.saved.remarks.extend(self.left_out.iter().map(too_large));
        self.saved
    }
}

/// A table that was read, encoded and agreed on.
struct Prepared {
    data: SeedData,
    understood: Vec<Understood>,
}

fn prepared(
    venue: &mut dyn Venue,
    table: TableSettings,
    seed: u64,
    told: &mut dyn FnMut(&[String]),
) -> Result<Prepared> {
    let target = table.target.clone().unwrap_or_default();
    let experiment =
        Experiment::on(table).model(AutoModelSettings::default()).method(AutoSettings::default()).check()?;
    let data = SeedData::prepare(&experiment, seed, venue, None, None)?;
    if data.facts().target.is_some_and(|target| target.deviation == 0.0) || data.schema.class_names().len() == 1 {
        let message = format!("column `{target}` is the same in every training row, want a target that varies");
        return Err(Error::data(message));
    }
    let understood = data.schema.understood();
    told(&understood::lines(&understood));
    Ok(Prepared { data, understood })
}

fn fit_at(
    venue: &mut dyn Venue,
    settings: FitSettings,
    options: &Options,
    watch: &mut dyn Watch,
    told: &mut dyn FnMut(&[String]),
) -> Result<Fitted> {
    let asked = settings.options();
    let FitSettings { table, families, additive, covariance, quick, seed, .. } = settings;
    let (client, target) = (table.client.clone(), table.target.clone().unwrap_or_default());
    let (is_grouped, weight) = (table.group.is_some(), table.weight.clone());
    let tests = table.part.is_some() || table.test_fraction > 0.0;
    watch.doing("reading the table");
    let prepared = prepared(venue, table, seed, told)?;
    let (data, understood) = (&prepared.data, prepared.understood.clone());
    let families = match families {
        None if is_grouped => Wanted::Known(known_families(data.column())?),
        None => Wanted::Auto,
        Some(1) => Wanted::One,
        Some(families) => Wanted::Exactly(families),
    };
    let mut engine = data.engine.afresh("fit", Transforms::default(), options.stop.clone())?;
    watch.doing("comparing clients");
    let asked_of_families = families::Options { seed, families, covariance, quick };
    let mut study = Study::new(&*data.model, data.facts(), asked_of_families.clone())?;
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    let mut begun = study.begin(&mut Room::new(&mut *engine, &mut ledger))?;
    let (mut columns, mut interacting) = (data.schema.clone(), Vec::new());
    if !additive && !quick {
        watch.doing("trying products of columns");
        let chosen = interactions::choose(data, &study, &begun, &asked_of_families, &mut ledger, &options.stop)?;
        if let Some(chosen) = chosen {
            (columns, engine, study, begun) = (chosen.schema, chosen.engine, chosen.study, chosen.begun);
            interacting = chosen.names;
        }
    }
    let mut model = study.finish(&mut Room::new(&mut *engine, &mut ledger), begun)?;
    let held_out = std::mem::take(&mut model.learned.held_out);
    let folds = study.folds();
    model.learned = model.learned.with_interactions(interacting);
    let tested = tests.then(|| test_errors(&mut *engine, &model)).transpose()?.flatten();
    let names = model.clients.iter().map(|&place| engine.clients()[place as usize].id.clone()).collect();
    let mut remarks = data.notes.clone();
    remarks.extend(ledger.note());
    let left_out = (0..).zip(engine.clients()).filter(|(place, _)| !model.clients.contains(place));
    let left_out = left_out.map(|(_, client)| client.id.clone()).collect();
    // The target has a variance of 1 there.
    const EXACT: f64 = 1e-12;
    if model.learned.response == Response::Numbers && model.learned.errors[0] < EXACT {
        remarks
            .push(format!("the columns predict `{target}` without error: is one of them the target by another name?"));
    }
    let notation = data.population.notation.clone();
    let weight = weight.zip(data.population.mean_weight);
    let origin = (seed, asked);
    let saved =
        Saved::new(client, target, names, columns, notation, weight, understood, model, tested, remarks, origin);
    Ok(Fitted { saved, engine, left_out, data: prepared, held_out, folds })
}

/// The error of a mixture where a model of a target is wanted.
fn without_target() -> Error {
    Error::settings("the model is a mixture: it was fitted without a target")
}

fn known_families(groups: Option<&Groups>) -> Result<Vec<usize>> {
    let groups = groups.ok_or_else(|| Error::settings("group: no client names one"))?;
    groups.of.each().iter().copied().collect::<Option<Vec<usize>>>().ok_or_else(|| {
        Error::data("group: some clients have none").hint("name a group for every client, or leave the option out")
    })
}
