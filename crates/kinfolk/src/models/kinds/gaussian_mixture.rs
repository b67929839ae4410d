//! A mixture of normal distributions: rows fall into components, each around a centre of its own.

use super::super::mixture::{Components, MixtureModel};
use super::{Ability, DataShape, Model, ModelSettings, Result};
use crate::mixture::{Covariance, Family, Shape};
use crate::settings::Field;
use crate::settings::{Settings, choices, settings};

choices!(Covariance {
    Identity = "identity",
    Spherical = "spherical",
    Diagonal = "diagonal",
    Tied = "tied",
    Full = "full",
});

settings! {
    /// The settings of the model `gaussian-mixture`.
    pub struct GaussianMixtureSettings {
        /// the components
        components: Components,
        /// how rows scatter around their centre: by 1 in every direction, or as estimated: one variance a component,
        /// one for each column, one covariance for all components, or one for each
        covariance: Covariance = "tied",
    }
}

impl ModelSettings for GaussianMixtureSettings {
    const NAME: &str = "gaussian-mixture";
    const SUMMARY: &str = "normal distributions around several centres, for rows without a target";
    const NEEDS_TARGET: bool = false;
    const ABILITY: Ability = Ability::Mixture;
    const ROW_GRADIENTS: bool = true;

    fn ability(settings: &Settings) -> Ability {
        match Covariance::find(settings, "covariance") {
            Some(Covariance::Identity | Covariance::Tied) => Ability::SharedScatter,
            _ => Self::ABILITY,
        }
    }

    fn build(self, data: DataShape) -> Result<Box<dyn Model>> {
        let family = Family::Gaussian(self.covariance);
        let shape = Shape { family, components: self.components.count(), columns: data.columns };
        Ok(Box::new(MixtureModel::new(shape, data.classes)))
    }
}
