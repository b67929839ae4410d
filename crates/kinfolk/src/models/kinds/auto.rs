//! The linear model that suits the target.

use super::*;
use crate::models::{LinearSettings, LogisticSettings, SoftmaxSettings};

settings! {
    /// The settings of the model `auto`.
    pub struct AutoModelSettings {
        /// numbers to compute in and to send
        precision: Precision = "f64",
    }
}

impl ModelSettings for AutoModelSettings {
    const NAME: &str = "auto";
    const SUMMARY: &str = "linear for numbers, logistic for two classes, softmax for more";
    const ABILITY: Ability = Ability::Linear;

    fn build(self, data: DataShape) -> Result<Box<dyn Model>> {
        let precision = self.precision;
        match data.classes {
            0 => LinearSettings { precision, ..LinearSettings::default() }.build(data),
            2 => LogisticSettings { precision, ..LogisticSettings::default() }.build(data),
            _ => SoftmaxSettings { precision, ..SoftmaxSettings::default() }.build(data),
        }
    }
}
