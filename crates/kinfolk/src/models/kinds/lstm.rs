//! Stacked LSTM layers that read a text symbol by symbol and say which one comes next.

use super::super::lstm::Recurrent;
use super::*;

settings! {
    /// The settings of the model `lstm`.
    pub struct LstmSettings {
        /// numbers that stand for a symbol
        embedding: usize [1..=4096] = 8,
        /// units of each layer
        hidden: usize [1..=1 << 14] = 256,
        /// LSTM layers, one on top of the other
        layers: usize [1..=64] = 2,
        /// numbers to compute in and to send
        precision: Precision = "f32",
    }
}

impl ModelSettings for LstmSettings {
    const NAME: &str = "lstm";
    const SUMMARY: &str = "stacked LSTM layers over the symbols of a text, for what comes next";
    const READS: Reads = Reads::Texts;
    const ABILITY: Ability = Ability::Rows;

    fn build(self, data: DataShape) -> Result<Box<dyn Model>> {
        let Form::Text { symbols } = data.form else { unreachable!("`make` refuses other rows") };
        must_have_classes(Self::NAME, data)?;
        if data.columns == 0 {
            return Err(Error::settings("model.kind: lstm wants one symbol a row or more, the data has none"));
        }
        let network = Recurrent::new(symbols, self.embedding, self.hidden, self.layers, data.classes);
        Ok(Box::new(NetworkModel::new(network, data, self.precision)))
    }
}
