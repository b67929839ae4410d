//! Tables without a target: the kinds of rows there are, as components of a mixture, and who has how many of which.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | reads a table, asks its clients, learns ([`fit_mixture`]) |
//! | `saved.rs` | what was fitted, and its folder |
//! | `units.rs` | components in the table's own units |
//! | `newcomers.rs` | what the rows of new clients say |
//! | `predict.rs` | new rows: their component, their density, whether they are outliers |
//! | `assign.rs` | new clients: their family, and whether they fit any |
//! | `show.rs`, `page.rs` | what was found, in words and tables, and as a page |

mod assign;
mod newcomers;
mod page;
mod predict;
mod saved;
mod show;
#[cfg(test)]
mod tests;
mod units;

pub use assign::assign_by_components;
pub use predict::{ComponentsPredicted, predict_component_batches, predict_components};
pub(in crate::fit) use saved::KIND;
pub use saved::{MIXTURE_FILES, SavedMixture};
pub use show::{ShownComponent, ShownMixture};

use super::{FitSettings, known_families, with_options};
use crate::data::options::Task;
use crate::data::understood;
use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::families::Wanted;
use crate::federation::transforms::Transforms;
use crate::methods::room::{MethodLedger, MissingRule, Room};
use crate::methods::{MixtureWishes, PooledEmSettings, study_components};
use crate::mixture::Covariance;
use crate::models::GaussianMixtureSettings;
use crate::models::options::Components;
use crate::run::seed::SeedData;
use crate::run::venue::{InProcess, Venue};
use crate::run::{Options, Watch};
use crate::settings::{Auto, finish};

/// Fits the clients of a table without a target, all cores at work. `told` is handed what was understood of the columns, before the work
/// begins.
pub fn fit_mixture(
    settings: FitSettings,
    options: &Options,
    watch: &mut dyn Watch,
    told: &mut dyn FnMut(&[String]),
) -> Result<SavedMixture> {
    fit_at(&mut InProcess::new(options)?, checked(settings)?, options, watch, told)
        .map_err(|error| error.reworded(with_options))
}

/// The same for rows in memory, whatever file the settings name.
#[cfg(feature = "parquet")]
pub fn fit_mixture_records(
    records: super::Records,
    settings: FitSettings,
    options: &Options,
    watch: &mut dyn Watch,
    told: &mut dyn FnMut(&[String]),
) -> Result<SavedMixture> {
    use super::Input;
    let mut settings = checked(settings)?;
    settings.table.path = Input::Memory(&records).path().display().to_string();
    let table = settings.table.clone();
    let populate = move |_: &Experiment, seed| crate::data::table::build_from(Input::Memory(&records), &table, seed);
    fit_at(&mut InProcess::of(options, populate)?, settings, options, watch, told)
        .map_err(|error| error.reworded(with_options))
}

fn checked(mut settings: FitSettings) -> Result<FitSettings> {
    let mut faults = Vec::new();
    if settings.table.weight.is_some() {
        faults.push(Error::settings("weight: rows without a target all count alike").hint("leave it out"));
    }
    if settings.covariance.is_some() {
        faults
            .push(Error::settings("covariance: that of coefficients is for tables with a target").hint("leave it out"));
    }
    finish(faults)?;
    settings.common(false)?;
    let table = &mut settings.table;
    table.curves = false;
    table.task = Task::Auto;
    table.numbers_only = true;
    Ok(settings)
}

fn fit_at(
    venue: &mut dyn Venue,
    settings: FitSettings,
    options: &Options,
    watch: &mut dyn Watch,
    told: &mut dyn FnMut(&[String]),
) -> Result<SavedMixture> {
    let FitSettings { table, families, components, seed, .. } = settings;
    let (client, is_grouped, ordered) = (table.client.clone(), table.group.is_some(), table.time.is_some());
    watch.doing("reading the table");
    // Numbers of components and scatters are tried below; what clients compute with is a mixture of any.
    let model = GaussianMixtureSettings {
        components: Components { components: Auto::Given(1), ..Components::default() },
        covariance: Covariance::Full,
    };
    let experiment = Experiment::on(table).model(model).method(PooledEmSettings::default()).check()?;
    let data = SeedData::prepare(&experiment, seed, venue, None, None)?;
    let understood = data.schema.understood();
    told(&understood::lines(&understood));
    let families = match families {
        None if is_grouped => Wanted::Known(known_families(data.column())?),
        None => Wanted::Auto,
        Some(1) => Wanted::One,
        Some(families) => Wanted::Exactly(families),
    };
    let mut engine = data.engine.afresh("fit", Transforms::default(), options.stop.clone())?;
    watch.doing("looking for components, comparing clients");
    let mut ledger = MethodLedger::new(MissingRule::Skip);
    let columns = data.schema.shape().columns;
    let log_units = units::log_units(&data.schema);
    let wishes = MixtureWishes { components, families, seed, ordered, log_units };
    let model = study_components(&mut Room::new(&mut *engine, &mut ledger), columns, &data.rows, &wishes)?;
    let names = model.clients.iter().map(|own| engine.clients()[own.client as usize].id.clone()).collect();
    let mut remarks = data.notes.clone();
    remarks.extend(ledger.note());
    if !log_units.is_finite() {
        return Err(Error::data("a column has no scale, want numbers that vary and are finite"));
    }
    Ok(SavedMixture::new(
        client,
        names,
        data.schema.clone(),
        data.population.notation.clone(),
        understood,
        model,
        remarks,
        seed,
    ))
}
