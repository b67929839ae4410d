//! `kinfolk show MODEL`: what a fitted model found.

use super::{print, print_json};
use crate::Ending;
use kinfolk::Result;
use kinfolk::fit::{FittedModel, SavedMixture, show, show_client, show_family};
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
    let saved = match FittedModel::read(&arguments.model)? {
        FittedModel::Families(saved) => saved,
        FittedModel::Mixture(saved) => return show_mixture(&saved, &arguments),
    };
    match (&arguments.client, arguments.family) {
        _ if arguments.json => print_json(&saved.shown())?,
        (Some(name), _) => print(&show_client(&saved, name)?)?,
        (None, Some(number)) => print(&show_family(&saved, number)?)?,
        (None, None) => print(&show(&saved))?,
    }
    Ok(Ending::Done)
}

fn show_mixture(saved: &SavedMixture, arguments: &Arguments) -> Result<Ending> {
    match (&arguments.client, arguments.family) {
        _ if arguments.json => print_json(&saved.shown())?,
        (Some(name), _) => print(&saved.show_client(name)?)?,
        (None, Some(number)) => print(&saved.show_family(number)?)?,
        (None, None) => print(&saved.show())?,
    }
    Ok(Ending::Done)
}
