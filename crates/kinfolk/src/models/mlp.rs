//! Multi-layer perceptron: dense layers with rectifiers in between, for classes or a number.

use super::dense::{Dense, DenseModel};
use super::rows::Output;
use super::{Ability, ModelKind, Precision, Reads};
use crate::settings::{Default, Kind, Setting};

pub(super) static KIND: ModelKind = ModelKind {
    name: "mlp",
    summary: "multi-layer perceptron with rectifiers",
    needs_target: true,
    reads: Reads::Numbers,
    settings: &[
        Setting::new("hidden", Kind::Integers(1, 1 << 20), Default::Is("[200]"), "widths of the hidden layers"),
        Setting::new(
            "precision",
            Kind::OneOf(&["f32", "f64"]),
            Default::Is("\"f32\""),
            "numbers to compute in and to send",
        ),
    ],
    ability: |_| Ability::Rows,
    build: |settings, data| {
        let mut widths = vec![data.columns];
        widths.extend(settings.integers("hidden"));
        widths.push(data.classes.max(1));
        let output = if data.classes > 0 { Output::Softmax } else { Output::Squared };
        let dense = Dense::new(widths, true, output, Precision::of(settings));
        Ok(Box::new(DenseModel { dense, wanted: data, minimiser: None }))
    },
};
