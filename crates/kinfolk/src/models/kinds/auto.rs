//! The linear model that suits the target.

use super::*;
use crate::data::options::Task;
use crate::models::{LinearSettings, LogisticSettings, SoftmaxSettings};

settings! {
    /// The settings of the model `auto`.
    pub struct AutoModelSettings {
        /// numbers to compute in and to send
        precision: Precision = "f64",
    }
}

impl AutoModelSettings {
    /// The models it may be, and what each makes of a target.
    #[doc(hidden)]
    pub const TASKS: [(&str, Task); 4] = [
        (Self::NAME, Task::Words),
        (LinearSettings::NAME, Task::Regression),
        (LogisticSettings::NAME, Task::Classification),
        (SoftmaxSettings::NAME, Task::Classification),
    ];
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
