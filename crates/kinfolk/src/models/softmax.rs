//! Softmax regression: a weighted sum for every class.

use super::dense::{Dense, DenseModel};
use super::rows::Output;
use super::{Ability, DOUBLE, INTERCEPT, ModelKind, Precision, Reads};
use crate::error::Error;

pub(super) static KIND: ModelKind = ModelKind {
    name: "softmax",
    summary: "softmax regression for any number of classes",
    needs_target: true,
    reads: Reads::Numbers,
    settings: &[INTERCEPT, DOUBLE],
    ability: |_| Ability::Rows,
    build: |settings, data| {
        if data.classes < 2 {
            let found = if data.classes == 1 { "only one class" } else { "numbers to predict" };
            return Err(Error::settings(format!(
                "model.kind: \"softmax\" wants two classes or more, the data has {found}"
            ))
            .hint("use \"linear\" or \"mlp\" for numbers"));
        }
        let widths = vec![data.columns, data.classes];
        let dense = Dense::new(widths, settings.flag("intercept"), Output::Softmax, Precision::of(settings));
        Ok(Box::new(DenseModel { dense, wanted: data, minimiser: None }))
    },
};
