//! Multi-layer perceptron: dense layers with rectifiers in between, for classes or a number.

use super::*;

settings! {
    /// The settings of the model `mlp`.
    pub struct MlpSettings {
        /// widths of the hidden layers
        hidden: Vec<usize> [1..=1 << 20] = [200],
        /// numbers to compute in and to send
        precision: Precision = "f32",
    }
}

impl ModelSettings for MlpSettings {
    const NAME: &str = "mlp";
    const SUMMARY: &str = "multi-layer perceptron with rectifiers";
    const ABILITY: Ability = Ability::Rows;
    const ROW_GRADIENTS: bool = true;

    fn build(self, data: DataShape) -> Result<Box<dyn Model>> {
        let mut widths = vec![data.columns];
        widths.extend(self.hidden);
        widths.push(data.classes.max(1));
        let output = if data.classes > 0 { Output::Softmax } else { Output::Squared };
        Ok(Box::new(NetworkModel::new(Dense::new(widths, true, output), data, self.precision)))
    }
}
