//! `kinfolk assign MODEL TABLE`: which family new clients belong to.

use super::{print, print_json};
use crate::Ending;
use crate::progress::Wait;
use kinfolk::Result;
use kinfolk::fit::{Assigned, FittedModel, assign, assign_by_components};
use kinfolk::report::table::Table;
use std::path::PathBuf;

/// Assign new clients to the families of a fitted model: probabilities, distances, and whether a client fits none.
#[derive(clap::Args)]
pub struct Arguments {
    /// The folder of a model that `fit` has written
    model: PathBuf,
    /// A table with rows of new clients, the target included
    table: PathBuf,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<Ending> {
    let fitted = FittedModel::read(&arguments.model)?;
    let wait = Wait::new("assigning");
    let assigned = match &fitted {
        FittedModel::Families(saved) => assign(saved, &arguments.table)?,
        FittedModel::Mixture(saved) => assign_by_components(saved, &arguments.table)?,
    };
    drop(wait);
    if arguments.json {
        print_json(&serde_json::json!({ "schema": 1, "clients": assigned }))?;
    } else {
        print(&table(&assigned).to_string())?;
    }
    Ok(Ending::Done)
}

fn table(assigned: &[Assigned]) -> Table {
    let families = assigned.first().map_or(0, |client| client.probabilities.len());
    let mut table = Table::new().words("client").numbers("rows").numbers("family");
    for family in 1..=families {
        table = table.numbers(format!("P({family})")).numbers(format!("distance to {family}"));
    }
    table = table.words("fits");
    for client in assigned {
        let mut cells = vec![client.client.clone(), client.rows.to_string(), client.family.to_string()];
        for (probability, distance) in client.probabilities.iter().zip(&client.distances) {
            cells.extend([format!("{probability:.3}"), format!("{distance:.2}")]);
        }
        cells.push(if client.fits_none { format!("none (p = {:.4})", client.p) } else { "yes".into() });
        table.push(cells);
    }
    table
}
