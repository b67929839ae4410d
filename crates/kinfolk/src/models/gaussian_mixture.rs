//! A mixture of normal distributions: rows fall into components, each around a centre of its own.

use super::mixture::{COMPONENTS, MOST_COMPONENTS, MixtureModel, components};
use super::*;
use crate::mixture::{Covariance, Family};

pub(super) static KIND: ModelKind = ModelKind {
    name: "gaussian-mixture",
    summary: "normal distributions around several centres, for rows without a target",
    settings: &[
        COMPONENTS,
        MOST_COMPONENTS,
        Setting::new(
            "covariance",
            Kind::OneOf(&["identity", "spherical", "diagonal", "tied", "full"]),
            Default::Is("\"tied\""),
            "how rows scatter around their centre: by 1 in every direction, or as estimated: one variance a component, \
             one for each column, one covariance for all components, or one for each",
        ),
    ],
    needs_target: false,
    reads: Reads::Numbers,
    ability: |settings| match settings.text("covariance") {
        "identity" | "tied" => Ability::SharedScatter,
        _ => Ability::Mixture,
    },
    build: |settings, shape| {
        let covariance = match settings.text("covariance") {
            "identity" => Covariance::Identity,
            "spherical" => Covariance::Spherical,
            "diagonal" => Covariance::Diagonal,
            "full" => Covariance::Full,
            _ => Covariance::Tied,
        };
        let form =
            Shape { family: Family::Gaussian(covariance), components: components(settings), columns: shape.columns };
        Ok(Box::new(MixtureModel::new(form, shape.classes)))
    },
};
