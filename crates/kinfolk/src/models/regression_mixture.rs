//! A mixture of linear regressions: rows fall into components, each with coefficients of its own.

use super::mixture::{COMPONENTS, MOST_COMPONENTS, MixtureModel, components};
use super::*;
use crate::mixture::{Family, Noise};

pub(super) static KIND: ModelKind = ModelKind {
    name: "regression-mixture",
    summary: "several linear regressions, each for some of the rows",
    settings: &[
        COMPONENTS,
        MOST_COMPONENTS,
        INTERCEPT,
        Setting::new(
            "noise",
            Kind::OneOf(&["unit", "common"]),
            Default::Is("\"common\""),
            "variance of targets around their regression: 1, or as estimated, one for all components",
        ),
    ],
    needs_target: true,
    reads: Reads::Numbers,
    ability: |_| Ability::SharedScatter,
    build: |settings, shape| {
        let noise = if settings.text("noise") == "unit" { Noise::Unit } else { Noise::Common };
        let family = Family::Regression { intercept: settings.flag("intercept"), noise };
        Ok(Box::new(MixtureModel::new(
            Shape { family, components: components(settings), columns: shape.columns },
            shape.classes,
        )))
    },
};
