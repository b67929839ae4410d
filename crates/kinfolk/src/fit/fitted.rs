//! The model of a folder that `fit` has written, of whichever kind it is.

use super::saved::MODEL;
use super::{Saved, SavedMixture, SavedNetworks, mixtures, networks};
use crate::error::{Error, Result};
use serde::Deserialize;
use std::path::Path;

/// What a folder that `fit` has written holds.
#[expect(clippy::large_enum_variant, reason = "there is one of them")]
#[derive(Debug, Clone, PartialEq)]
pub enum FittedModel {
    /// Families of models of a target.
    Families(Saved),
    /// Families of networks of a target.
    Networks(SavedNetworks),
    /// A mixture of rows without a target.
    Mixture(SavedMixture),
}

impl FittedModel {
    /// Reads the model of a folder.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(MODEL);
        match std::fs::read_to_string(&path) {
            Ok(text) if kind_of(&text).as_deref() == Some(networks::KIND) => {
                SavedNetworks::read(folder, &text).map(Self::Networks).map_err(|error| error.at(folder.display()))
            }
            Ok(text) => Self::of_text(&text).map_err(|error| error.at(path.display())),
            // It says what is wrong.
            Err(_) => Saved::read(folder).map(Self::Families),
        }
    }

    /// The model of the text of a `model.json`; that of networks is not all of it.
    pub fn of_text(text: &str) -> Result<Self> {
        match kind_of(text).as_deref() {
            Some(networks::KIND) => {
                Err(Error::data("the model's networks are in another file").hint("read the folder"))
            }
            Some(mixtures::KIND) => SavedMixture::of_text(text).map(Self::Mixture),
            _ => Saved::of_text(text).map(Self::Families),
        }
    }
}

/// What the text of a `model.json` says it is.
fn kind_of(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Head {
        kind: String,
    }
    serde_json::from_str::<Head>(text).ok().map(|head| head.kind)
}
