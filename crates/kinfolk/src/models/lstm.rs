//! Stacked LSTM layers that read a text symbol by symbol and say which one comes next.

use super::network::{NetworkModel, PRECISION, must_have_classes};
use super::recurrent::Recurrent;
use super::{Ability, ModelKind, Precision, Reads};
use crate::data::Form;
use crate::error::Error;
use crate::settings::{Default, Kind, Setting};

pub(super) static KIND: ModelKind = ModelKind {
    name: "lstm",
    summary: "stacked LSTM layers over the symbols of a text, for what comes next",
    needs_target: true,
    reads: Reads::Texts,
    settings: &[
        Setting::new("embedding", Kind::Integer(1, 4096), Default::Is("8"), "numbers that stand for a symbol"),
        Setting::new("hidden", Kind::Integer(1, 1 << 14), Default::Is("256"), "units of each layer"),
        Setting::new("layers", Kind::Integer(1, 64), Default::Is("2"), "LSTM layers, one on top of the other"),
        PRECISION,
    ],
    ability: |_| Ability::Rows,
    build: |settings, data| {
        let Form::Text { symbols } = data.form else { unreachable!("`make` refuses other rows") };
        must_have_classes(KIND.name, data)?;
        if data.columns == 0 {
            return Err(Error::settings("model.kind: lstm wants one symbol a row or more, the data has none"));
        }
        let of = |name| settings.integer(name);
        let network = Recurrent::new(symbols, of("embedding"), of("hidden"), of("layers"), data.classes);
        Ok(Box::new(NetworkModel { network, wanted: data, precision: Precision::of(settings), smoothing: 0.0 }))
    },
};
