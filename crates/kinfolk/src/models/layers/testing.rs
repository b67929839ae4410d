//! What tests of layers share.

use super::{Backward, Layer, Memory, Pass, Work};
use crate::models::trainer::testing::assert_differences;
pub(super) use crate::models::trainer::testing::numbers;

/// Compares all slopes of a layer with differences of Σ weights·outputs.
pub(super) fn assert_slopes(layer: &Layer, inputs: usize, rows: usize) {
    let width = match layer {
        Layer::Convolution(layer) => layer.bias.end,
        Layer::Dense(layer) => layer.bias.end,
        Layer::Normalisation(layer) => layer.shift.end,
        _ => 0,
    };
    let (params, x) = (numbers("params", width), numbers("x", inputs * rows));
    let outputs = |params: &[f64], x: &[f64]| {
        let mut memory = Memory::default();
        layer.forward(params, x, &mut Pass::Train(None), &mut memory, &mut Work::default());
        memory
    };
    let mut memory = outputs(&params, &x);
    let weights = numbers("weights", memory.out.len());
    let objective = |params: &[f64], x: &[f64]| crate::num::dot(&outputs(params, x).out, &weights);
    let (mut gradient, mut down) = (vec![9.0; width], vec![9.0; x.len()]);
    let work = &mut Work::default();
    let at = Backward { params: &params, x: &x, slopes: &weights, work, gradient: &mut gradient };
    layer.backward(at, &mut memory, Some(&mut down));
    if let Layer::Dense(layer) = layer {
        layer.gradient(&x, &memory, &mut gradient);
    }
    assert_differences(&params, &gradient, |moved| objective(moved, &x));
    assert_differences(&x, &down, |moved| objective(&params, moved));
}
