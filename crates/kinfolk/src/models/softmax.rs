//! Softmax regression: a weighted sum for every class.

use super::dense::{Dense, DenseModel, Output};
use super::{DOUBLE, INTERCEPT, ModelKind, Precision};
use crate::error::Error;

pub(super) static KIND: ModelKind = ModelKind {
    name: "softmax",
    summary: "softmax regression for any number of classes",
    settings: &[INTERCEPT, DOUBLE],
    build: |settings, data| {
        if data.classes < 2 {
            return Err(Error::settings("model.kind: \"softmax\" wants classes, the data has numbers to predict")
                .hint("use \"linear\" or \"mlp\""));
        }
        let widths = vec![data.columns, data.classes];
        let dense = Dense::new(widths, settings.flag("intercept"), Output::Softmax, Precision::of(settings));
        Ok(Box::new(DenseModel { dense, wanted: data, minimiser: None }))
    },
};
