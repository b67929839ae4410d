//! `kinfolk show MODEL`: what a fitted model found.

use super::{print, print_json};
use crate::Ending;
use kinfolk::Result;
use kinfolk::fit::{FittedModel, show, show_client, show_family};
use std::path::PathBuf;

/// Show a fitted model: what was decided, families, errors; or one family, or one client.
#[derive(clap::Args)]
pub struct Arguments {
    /// The folder of a model that `fit` has written
    model: PathBuf,
    /// Only this family: members and coefficients
    #[arg(long, value_name = "N", conflicts_with = "client")]
    family: Option<usize>,
    /// Only this client: what serves it, and its coefficients
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Print one JSON document instead of text
    #[arg(long, conflicts_with_all = ["family", "client"])]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<Ending> {
    let (client, family) = (arguments.client.as_deref(), arguments.family);
    match FittedModel::read(&arguments.model)? {
        FittedModel::Families(saved) => match (client, family) {
            _ if arguments.json => print_json(&saved.shown())?,
            (Some(name), _) => print(&show_client(&saved, name)?)?,
            (None, Some(number)) => print(&show_family(&saved, number)?)?,
            (None, None) => print(&show(&saved))?,
        },
        FittedModel::Networks(saved) => match (client, family) {
            _ if arguments.json => print_json(&saved.shown())?,
            (Some(name), _) => print(&saved.show_client(name)?)?,
            (None, Some(number)) => print(&saved.show_family(number)?)?,
            (None, None) => print(&saved.show())?,
        },
        FittedModel::Mixture(saved) => match (client, family) {
            _ if arguments.json => print_json(&saved.shown())?,
            (Some(name), _) => print(&saved.show_client(name)?)?,
            (None, Some(number)) => print(&saved.show_family(number)?)?,
            (None, None) => print(&saved.show())?,
        },
    }
    Ok(Ending::Done)
}
