//! Softmax regression: a weighted sum for every class.

use super::*;

settings! {
    /// The settings of the model `softmax`.
    pub struct SoftmaxSettings {
        /// add a constant term
        intercept: bool = true,
        /// numbers to compute in and to send
        precision: Precision = "f64",
    }
}

impl ModelSettings for SoftmaxSettings {
    const NAME: &str = "softmax";
    const SUMMARY: &str = "softmax regression for any number of classes";
    const ABILITY: Ability = Ability::Linear;
    const ROW_GRADIENTS: bool = true;

    fn build(self, data: DataShape) -> Result<Box<dyn Model>> {
        if data.classes < 2 {
            let found = if data.classes == 1 { "only one class" } else { "numbers to predict" };
            return Err(Error::settings(format!(
                "model.kind: \"softmax\" wants two classes or more, the data has {found}"
            ))
            .hint("use \"linear\" or \"mlp\" for numbers"));
        }
        let dense = Dense::new(vec![data.columns, data.classes], self.intercept, Output::Softmax);
        Ok(Box::new(NetworkModel::new(dense, data, self.precision)))
    }
}
