//! A mixture of linear regressions: rows fall into components, each with coefficients of its own.

use super::super::mixture::{Components, MixtureModel};
use super::{Ability, DataShape, Model, ModelSettings, Result};
use crate::mixture::{Family, Noise, Shape};
use crate::settings::{choices, settings};

choices!(Noise { Unit = "unit", Common = "common" });

settings! {
    /// The settings of the model `regression-mixture`.
    pub struct RegressionMixtureSettings {
        /// the components
        components: Components,
        /// add a constant term
        intercept: bool = true,
        /// variance of targets around their regression: 1, or as estimated, one for all components
        noise: Noise = "common",
    }
}

impl ModelSettings for RegressionMixtureSettings {
    const NAME: &str = "regression-mixture";
    const SUMMARY: &str = "several linear regressions, each for some of the rows";
    const ABILITY: Ability = Ability::SharedScatter;
    const ROW_GRADIENTS: bool = true;

    fn build(self, data: DataShape) -> Result<Box<dyn Model>> {
        let family = Family::Regression { intercept: self.intercept, noise: self.noise };
        let shape = Shape { family, components: self.components.count(), columns: data.columns };
        Ok(Box::new(MixtureModel::new(shape, data.classes)))
    }
}
