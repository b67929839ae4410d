//! `kinfolk assign MODEL TABLE`: which family new clients belong to; `--add` takes them into the model.

use super::{print, print_json, say};
use crate::Ending;
use crate::progress::Wait;
use kinfolk::disk::folder::NewFolder;
use kinfolk::fit::{Assigned, Assignments, FILES, FittedModel, NETWORK_FILES, add, assign, assign_by_components};
use kinfolk::report::table::Table;
use kinfolk::{Error, Result};
use std::path::PathBuf;

/// Assign new clients to the families of a fitted model: probabilities, distances, and whether a client fits none.
#[derive(clap::Args)]
pub struct Arguments {
    /// The folder of a model that `fit` has written
    model: PathBuf,
    /// A table with rows of new clients, the target included
    table: PathBuf,
    /// Write a model that knows the new clients, and predicts them without target values
    #[arg(long)]
    add: bool,
    /// Folder for that model
    #[arg(long, value_name = "DIR", requires = "add")]
    out: Option<PathBuf>,
    /// Replace the model in its folder
    #[arg(long, requires = "add", conflicts_with = "out")]
    replace: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<Ending> {
    if arguments.add && arguments.out.is_none() && !arguments.replace {
        let message = "--add: want also --out with a folder for the model, or --replace to change it in its place";
        return Err(Error::settings(message));
    }
    let saved = match FittedModel::read(&arguments.model)? {
        FittedModel::Mixture(_) if arguments.add => {
            let message = format!("{}: clients cannot be added to a model without a target", arguments.model.display());
            return Err(Error::settings(message).hint("fit the table of all clients"));
        }
        saved => saved,
    };
    // Before any work; files of the same model are replaced when the new ones are there.
    let claimed = match (&arguments.out, arguments.add) {
        (Some(folder), _) => Some(
            NewFolder::claim(folder, FILES.into_iter().chain(NETWORK_FILES))
                .map_err(|error| error.hint("give --out another folder, or --replace"))?,
        ),
        (None, true) => Some(NewFolder::claim(&arguments.model, [])?),
        (None, false) => None,
    };
    let wait = Wait::new("assigning");
    let written = claimed.is_some();
    let assigned = match (&saved, claimed) {
        (FittedModel::Families(saved), Some(claimed)) => {
            let (extended, assigned) = add(saved, &arguments.table)?;
            extended.write(claimed.path())?;
            assigned
        }
        (FittedModel::Networks(saved), Some(claimed)) => {
            let (extended, assigned) = saved.add(&arguments.table)?;
            extended.write(claimed.path())?;
            assigned
        }
        (FittedModel::Families(saved), None) => assign(saved, &arguments.table)?,
        (FittedModel::Networks(saved), None) => saved.assign(&arguments.table)?,
        (FittedModel::Mixture(saved), _) => assign_by_components(saved, &arguments.table)?,
    };
    drop(wait);
    tell(&assigned, written, &arguments)
}

fn tell(assigned: &Assignments, written: bool, arguments: &Arguments) -> Result<Ending> {
    if arguments.json {
        let Assignments { families, clients, without_target } = assigned;
        print_json(&serde_json::json!({
            "schema": 1, "families": families, "clients": clients, "without_target": without_target
        }))?;
    } else {
        print(&table(assigned).to_string())?;
    }
    sentences(assigned, written).iter().for_each(|line| say(line));
    if written {
        let folder = arguments.out.as_ref().unwrap_or(&arguments.model);
        say(&format!("model: {}", folder.display()));
    }
    Ok(Ending::Done)
}

fn probability(p: f64) -> String {
    if p < 0.0001 { "p < 0.0001".into() } else { format!("p = {p:.4}") }
}

/// What the table does not say.
fn sentences(assigned: &Assignments, added: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for Assigned { client, known, family, p, fits_none, .. } in &assigned.clients {
        let stays = format!("client {client} is known; it stays in family {family}");
        match (known, fits_none) {
            (true, false) => lines.push(stays),
            (true, true) => lines.push(format!("{stays}, where its new rows do not fit ({})", probability(*p))),
            (false, false) if added => lines.push(format!("client {client} is added to family {family}")),
            (false, true) if added => {
                lines.push(format!("client {client} is added to family {family}, though it fits none"))
            }
            (false, _) => {}
        }
    }
    let so = if added { ": it is not added" } else { "" };
    let without = assigned.without_target.iter();
    lines.extend(without.map(|client| format!("client {client} has no value of the target{so}")));
    lines
}

fn table(assigned: &Assignments) -> Table {
    let mut table = Table::new().words("client").numbers("rows").numbers("family");
    for family in &assigned.families {
        table = table.numbers(format!("P({family})")).numbers(format!("distance to {family}"));
    }
    table = table.words("fits").words("client is");
    for client in &assigned.clients {
        let mut cells = vec![client.client.clone(), client.rows.to_string(), client.family.to_string()];
        for (probability, distance) in client.probabilities.iter().zip(&client.distances) {
            cells.extend([format!("{probability:.3}"), format!("{distance:.2}")]);
        }
        let misfit = if client.known { "no longer" } else { "none" };
        cells.push(if client.fits_none { format!("{misfit} ({})", probability(client.p)) } else { "yes".into() });
        cells.push(if client.known { "known" } else { "new" }.to_string());
        table.push(cells);
    }
    table
}
