//! Every kind of model but the users' own: its settings, and which network or mixture it is.

use super::layers::Size;
use super::{Ability, Model, ModelKind, ModelSettings, Precision, Reads};
use crate::data::{DataShape, Form};
use crate::error::{Error, Result};
use crate::models::dense::{Dense, Rows};
use crate::models::trainer::NetworkModel;
use crate::models::trainer::rows::Output;
use crate::settings::{choices, settings};

/// A file here, and its name and settings in this list, make a kind of model.
macro_rules! kinds {
    ($($kind:ident::$settings:ident)*) => {
        $(mod $kind; pub use $kind::$settings;)*

        pub(super) const KINDS: &[&ModelKind] = &[$($settings::MODEL,)* super::custom::OwnSettings::MODEL];
    };
}

kinds! {
    auto::AutoModelSettings
    linear::LinearSettings
    logistic::LogisticSettings
    softmax::SoftmaxSettings
    mlp::MlpSettings
    cnn::CnnSettings
    resnet9::Resnet9Settings
    lstm::LstmSettings
    gaussian_mixture::GaussianMixtureSettings
    regression_mixture::RegressionMixtureSettings
}

pub(super) mod options {
    pub use super::super::layers::Padding;
    pub use super::cnn::{CnnNorm, Pooling};
    pub use super::resnet9::ResnetNorm;
}

/// The size of the images a model reads, where it can tell classes apart.
fn image_size(model: &str, data: DataShape) -> Result<Size> {
    let Form::Image { channels, height, width, .. } = data.form else { unreachable!("`make` refuses other rows") };
    must_have_classes(model, data)?;
    Ok(Size { height, width, channels })
}

fn must_have_classes(model: &str, data: DataShape) -> Result<()> {
    let refused = |found: &str| Error::settings(format!("model.kind: {model} tells classes apart, but {found}"));
    match data.classes {
        0 => Err(refused("the target of this data is a number").hint("use linear or mlp")),
        1 => Err(refused("this data has only one").hint("use data of two classes or more")),
        _ => Ok(()),
    }
}
